"""What a session with specgate in use holds together: plans, the store, verdicts, reports."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from . import demo
from .config.build import Builder, base_options
from .config.gates_file import default_gates_file
from .config.layers import Layer
from .config.markers import gate_configs, gate_markers, inputs_layer, item_origin
from .config.options import Options, read_options
from .config.plan import GateConfig, Inputs, Measure, Plan, Prompt
from .config.spec import ConfigError, nearest
from .engines import builtin_engines
from .engines.base import Engine, EngineError, Pair
from .environment import environment
from .gates import builtin_gates
from .gates.base import Gate, Verdict
from .items import GateItem, GatesFile
from .measure.evidence import Comparison, Evidence
from .measure.store import Campaign, Store
from .prompts import builtin
from .replay import read_case, save_case
from .report import builtin_reports
from .report.junit import properties
from .report.progress import Progress
from .report.session_report import MeasuredPair, SessionReport, session_status
from .report.terminal import explanation, summary_lines

_GATES_NAMES = ("gates.yaml", "gates.yml")
_NO_PAIR = "no pair was given: use --spec-target and --spec-draft, or --spec-demo"

# what an item measures and judges, checked when it is collected
_INPUTS: pytest.StashKey[tuple[Inputs, Measure]] = pytest.StashKey()
_GATES: pytest.StashKey[tuple[GateConfig, ...]] = pytest.StashKey()


class SpecSession:
    """The state of one pytest session; made only when specgate is used."""

    def __init__(self, config: pytest.Config) -> None:
        """Gather what plugins and conftests provide; read nothing yet."""
        self._config = config
        external = [gate for gates in config.hook.pytest_specgate_gates() for gate in gates]
        self.gates: dict[str, Gate] = {gate.name: gate for gate in [*builtin_gates(), *external]}
        self._engines: dict[str, Callable[[], Engine]] = dict(builtin_engines())
        for engines in config.hook.pytest_specgate_engines():
            self._engines.update(engines)
        self._writers = dict(builtin_reports())
        for writers in config.hook.pytest_specgate_report():
            self._writers.update(writers)
        self._progress = Progress(config)
        self._demo_directory = demo.demo_directory(config) if config.option.spec_demo else None
        self.store = Store(self._engines, self._progress, self._prepare)
        self._plans: dict[Path, Plan] = {}
        self._base: Plan | None = None
        self._default_file: Path | None = None
        self._selected: list[GateItem] = []
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}
        self._measured: dict[int, tuple[Campaign, Inputs]] = {}
        self._environment: dict[str, Any] | None = None
        self._report: SessionReport | None = None
        self._notes: list[str] = []

    # -- start: options and plans ------------------------------------------------------------

    def start(self) -> None:
        """Read options and gates files, and decide what is collected.

        Raises:
            ConfigError: anything the user typed wrong, before a model is loaded.
        """
        config = self._config
        self._options: Options = read_options(config, self._writers)
        self._check_engine(self._options.engine, self._options.engine_origin)
        pair = demo.demo_pair(self._demo_directory) if self._demo_directory else None
        self._builder = Builder(self._options, self.gates, self._prompt_set, pair)
        self._check_parallel()
        no_paths = config.args_source != config.ArgsSource.ARGS
        if self._options.replay:
            self._start_replay(self._options.replay, no_paths)
            return
        named = self._named_gates_files()
        active = self._active_gates_file(named)
        if active is None:
            return
        for path in {*named, active}:
            self._plans[path] = self._builder.plan(path)
        self._base = self._plans[active]
        added = [str(active)] if no_paths or self._options.gates == active else []
        if no_paths and self._options.demo:
            config.args[:] = added
        elif active not in named:
            config.args.extend(added)

    def _check_engine(self, name: str, origin: str) -> None:
        if name not in self._engines:
            raise ConfigError(
                f"{origin}: no engine {name!r}{nearest(name, self._engines)} "
                f"(allowed: {', '.join(self._engines)})"
            )

    def _check_parallel(self) -> None:
        workers = getattr(self._config.option, "numprocesses", None)
        if (workers or hasattr(self._config, "workerinput")) and self._options.names_pair:
            raise ConfigError(
                "specgate measures time and memory, which workers side by side would spoil: "
                "run the gates without -n (or with -n 0)"
            )

    def _start_replay(self, path: Path, no_paths: bool) -> None:
        layer, engine = read_case(path)
        self._check_engine(engine, str(path))
        self._builder = replace(self._builder, options=replace(self._options, engine=engine))
        inputs, measure = self._builder.inputs({}, layer)
        parity = GateConfig("parity", dict(self.gates["parity"].defaults), str(path))
        self._plans[path] = self._base = Plan(inputs, measure, (parity,), path, layer)
        self._builder.check((parity,), inputs)
        if no_paths:
            self._config.args[:] = [str(path)]
        else:
            self._config.args.append(str(path))

    def _prompt_set(self, name: str) -> Any:
        given = self._config.hook.pytest_specgate_prompts(name=name)
        return given if given is not None else builtin(name)

    def _named_gates_files(self) -> list[Path]:
        """Gates files that stand on the command line themselves."""
        here = self._config.invocation_params.dir
        paths = [(here / arg.split("::", 1)[0]).resolve() for arg in self._config.args]
        explicit = self._options.gates
        return [
            path
            for path in dict.fromkeys(paths)
            if path.is_file() and (path.name in _GATES_NAMES or path == explicit)
        ]

    def _active_gates_file(self, named: list[Path]) -> Path | None:
        """The file whose settings hold for markers too; None in a session that gates nothing."""
        if self._options.gates:
            return self._options.gates
        if named:
            return named[0]
        if not self._options.names_pair:
            return None
        for name in _GATES_NAMES:
            if (path := self._config.rootpath / name).is_file():
                return path.resolve()
        self._default_file = default_gates_file()
        return self._default_file

    # -- collection --------------------------------------------------------------------------

    def collect_file(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """The collector of a gates file that belongs to this session."""
        plan = self._plans.get(path.resolve())
        if plan is None:
            return None
        nodeid = "gates.yaml" if path == self._default_file else None
        return GatesFile.make(parent, path, plan, self, nodeid)

    def check_markers(self, items: list[pytest.Item], report: pytest.CollectReport) -> None:
        """Check the markers of collected tests; a wrong one turns the report into an error."""
        problems = []
        for item in items:
            try:
                self._resolve(item)
            except ConfigError as error:
                problems.append(str(error))
        if problems:
            report.outcome = "failed"
            report.longrepr = "\n".join(dict.fromkeys(problems))
            report.result = []

    def _resolve(self, item: pytest.Item) -> None:
        file: Layer = self._base.settings if self._base else {}
        inputs, measure = self._builder.inputs(
            inputs_layer(item, self._config.rootpath), file
        )
        configs = gate_configs(item, self.gates, base_options(self._base))
        self._builder.check(configs, inputs)
        item.stash[_INPUTS] = (inputs, measure)
        item.stash[_GATES] = configs

    def order(self, items: list[pytest.Item]) -> None:
        """Drop gate items collected twice, by a folder and by their own path."""
        seen: set[str] = set()
        kept = []
        for item in items:
            if isinstance(item, GateItem):
                if item.nodeid in seen:
                    continue
                seen.add(item.nodeid)
            kept.append(item)
        items[:] = kept

    def register(self, items: Iterable[pytest.Item]) -> None:
        """Tell the store all that will be asked for, so that one round serves every gate.

        Raises:
            ConfigError: with --spec-require, when no item would judge or measure anything.
        """
        asked = 0
        for item in items:
            if isinstance(item, GateItem):
                self._selected.append(item)
                timed = self.gates[item.config_of_gate.name].needs == "rounds"
                asked += self._register(item.inputs, timed)
            elif _GATES in item.stash:
                timed = any(self.gates[c.name].needs == "rounds" for c in item.stash[_GATES])
                if item.stash[_GATES]:
                    asked += self._register(item.stash[_INPUTS][0], timed)
                else:
                    asked += 1
        self._progress.expect(sum(campaign.prompts for campaign in self.store.campaigns()))
        if self._options.require and not asked and not self._uses_fixtures(items):
            raise ConfigError(
                "--spec-require: no gate was collected, so nothing would be judged; "
                "check the paths, -k and the names of the tests"
            )

    @staticmethod
    def _uses_fixtures(items: Iterable[pytest.Item]) -> bool:
        return any(
            name.startswith("spec_") for item in items for name in getattr(item, "fixturenames", ())
        )

    def _register(self, inputs: Inputs, timed: bool) -> int:
        if not inputs.has_pair:
            return 1
        campaign = self.store.campaign(inputs)
        campaign.register(inputs, timed=timed)
        self._measured.setdefault(id(campaign), (campaign, inputs))
        return 1

    def announcement(self) -> list[str]:
        """How much will be generated, said before anything is."""
        if self._base is None or self._config.option.collectonly:
            return []
        counts = [c.planned_trials(self._base.measure) for c in self.store.campaigns()]
        least, most = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        if not least:
            return []
        span = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        return [f"specgate: {span} generations planned; the time left is shown after the first"]

    # -- measuring and judging ----------------------------------------------------------------

    def inputs(self, item: pytest.Item) -> Inputs:
        """What a test measures."""
        return self._measures(item)[0]

    def _measures(self, item: pytest.Item) -> tuple[Inputs, Measure]:
        if isinstance(item, GateItem):
            return item.inputs, item.plan.measure
        if _INPUTS not in item.stash:
            self._resolve(item)
        return item.stash[_INPUTS]

    def need_pair(self, item: pytest.Item) -> None:
        """Skip a test that needs a pair when there is none; with --spec-require, fail it."""
        if self.inputs(item).has_pair:
            return
        if self._options.require:
            pytest.fail(f"{_NO_PAIR} (--spec-require)", pytrace=False)
        pytest.skip(_NO_PAIR)

    def judge_item(self, item: GateItem) -> Verdict:
        """The verdict of one gate item."""
        gate, options = self.gates[item.config_of_gate.name], item.config_of_gate.options
        campaign = self.store.campaign(item.inputs)
        peers = [
            other
            for other in self._selected
            if self.store.campaign(other.inputs) is campaign
            and self.gates[other.config_of_gate.name].needs == "rounds"
        ]

        def wants(_: Evidence) -> bool:
            return any(
                self.gates[other.config_of_gate.name].wants_rounds(
                    campaign.evidence(other.inputs), other.config_of_gate.options
                )
                for other in peers
            )

        evidence = self._measure(campaign, gate, item.inputs, item.plan.measure, wants)
        return self._record(item, gate.judge(evidence, options, item.subject), item.inputs)

    def _measure(
        self,
        campaign: Campaign,
        gate: Gate,
        inputs: Inputs,
        measure: Measure,
        wants: Callable[[Evidence], bool],
    ) -> Evidence:
        self._measured.setdefault(id(campaign), (campaign, inputs))
        with self._progress.running():
            if gate.needs == "rounds":
                return campaign.rounds(inputs, measure, wants)
            return campaign.parity_pass(inputs)

    def judge_markers(self, item: pytest.Item) -> list[Verdict]:
        """Judge every gate marker of a test, before its body runs.

        Fails the test, with all failed verdicts in words, when there are any.
        """
        configs = item.stash.get(_GATES, ())
        if not configs:
            return []
        inputs, measure = item.stash[_INPUTS]
        campaign = self.store.campaign(inputs)
        verdicts: list[Verdict] = []
        for config in sorted(configs, key=lambda c: self.gates[c.name].scope != "prompt"):
            gate = self.gates[config.name]
            parts = (
                [(inputs.only(prompt), prompt.id) for prompt in inputs.prompts]
                if gate.scope == "prompt"
                else [
                    (replace(inputs, num_draft_tokens=(k,)), f"k={k}")
                    for k in inputs.num_draft_tokens
                ]
            )
            for part, subject in parts:

                def wants(
                    evidence: Evidence, gate: Gate = gate, config: GateConfig = config
                ) -> bool:
                    return gate.wants_rounds(evidence, config.options)

                evidence = self._measure(campaign, gate, part, measure, wants)
                verdict = gate.judge(evidence, config.options, subject)
                verdicts.append(self._record(item, verdict, part))
        failed = [verdict for verdict in verdicts if verdict.status == "failed"]
        if failed:
            pytest.fail("\n\n".join(map(self.explain, failed)), pytrace=False)
        return verdicts

    def settle_markers(self, verdicts: list[Verdict]) -> None:
        """After the test's body: an undecided gate is not a pass."""
        undecided = [v for v in verdicts if v.status in ("inconclusive", "skipped")]
        if undecided:
            pytest.skip("; ".join(f"{v.gate}: {v.reason}" for v in undecided))

    def explain(self, verdict: Verdict) -> str:
        """A verdict in words."""
        gate = self.gates[verdict.gate]
        name = f"{gate.item}[{verdict.subject}]" if gate.scope == "prompt" else gate.item
        return explanation(name, verdict)

    def _record(self, item: pytest.Item, verdict: Verdict, inputs: Inputs) -> Verdict:
        """Keep a verdict (a rerun replaces the earlier one), save a failing case, tell the hook."""
        gate = self.gates[verdict.gate]
        if verdict.status == "failed" and verdict.gate == "parity":
            verdict = self._save_failure(verdict, inputs)
        self._verdicts[item.nodeid, verdict.gate, verdict.subject] = verdict
        worst_first = ("failed", "inconclusive", "skipped", "passed")
        if isinstance(item, GateItem):
            item.user_properties.extend(properties(verdict))
        else:
            prefix = f"specgate_{gate.item}_{verdict.subject}"
            item.user_properties.extend(properties(verdict, prefix))
            statuses = [v.status for (node, *_), v in self._verdicts.items() if node == item.nodeid]
            status = min(statuses, key=worst_first.index)
            item.user_properties[:] = [
                entry for entry in item.user_properties if entry[0] != "specgate_status"
            ]
            item.user_properties.append(("specgate_status", status))
        self._config.hook.pytest_specgate_verdict(verdict=verdict)
        return verdict

    def _save_failure(self, verdict: Verdict, inputs: Inputs) -> Verdict:
        evidence = self.store.campaign(inputs).evidence(inputs)
        cases = [case for case in evidence.cases if case.prompt.id == verdict.subject]
        if not cases or cases[0].error:
            return verdict
        directory = self._config.rootpath / ".specgate" / "failures"
        try:
            path = save_case(directory, cases[0], inputs, self._facts())
        except OSError as error:
            note = f"the case could not be saved: {error}"
            return replace(verdict, details=(*verdict.details, note))
        here = self._config.invocation_params.dir
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        command = f"Replay: pytest --spec-replay {shlex.quote(str(shown))}"
        return replace(verdict, advice=(*verdict.advice, command))

    # -- fixtures ----------------------------------------------------------------------------

    def pair(self, item: pytest.Item) -> Pair:
        """The loaded pair of a test; fails it with one paragraph when it cannot be loaded."""
        try:
            with self._progress.running():
                return self.store.pair(self.inputs(item))
        except EngineError as error:
            pytest.fail(str(error), pytrace=False)

    def evidence(self, item: pytest.Item) -> Evidence:
        """Evidence for a test's own inputs, with trials where a marker of it needs them."""
        inputs, measure = self._measures(item)
        campaign = self.store.campaign(inputs)
        self._measured.setdefault(id(campaign), (campaign, inputs))
        timed = any(
            self.gates[name].needs == "rounds" for name in gate_markers(item, self.gates)
        )
        with self._progress.running():
            evidence = (
                campaign.rounds(inputs, measure, lambda _: False)
                if timed
                else campaign.parity_pass(inputs)
            )
        errors = [case for case in evidence.cases if case.error]
        if errors and len(errors) == len(evidence.cases):
            pytest.fail(str(errors[0].error), pytrace=False)
        return evidence

    def comparer(self, item: pytest.Item) -> Callable[..., Comparison]:
        """The function behind ``spec_compare``."""
        inputs, _ = self._measures(item)

        def compare(
            text: str,
            *,
            max_tokens: int | None = None,
            num_draft_tokens: int | None = None,
            rounds: int = 0,
        ) -> Comparison:
            """One prompt on both paths.

            Args:
                text: the prompt, as a user would say it.
                max_tokens: budget; default: the options'.
                num_draft_tokens: k; default: the options' (first).
                rounds: timed rounds beside the compared pass, for ``.speedup``.
            """
            origin = item_origin(item, "spec_compare")
            layer = inputs_layer(item, self._config.rootpath)
            layer = {
                **layer,
                **self._builder.call_layer(text, max_tokens, num_draft_tokens, origin),
            }
            own, _ = self._builder.inputs(layer, self._base.settings if self._base else {})
            prompt = replace(own.prompts[0], max_tokens=max_tokens or inputs.decoding.max_tokens)
            k = num_draft_tokens or inputs.num_draft_tokens[0]
            own = replace(own, prompts=(prompt,), num_draft_tokens=(k,))
            with self._progress.running():
                if rounds:
                    campaign = self.store.fresh_campaign(own)
                    evidence = campaign.rounds(own, Measure(1, rounds, rounds), lambda _: False)
                else:
                    evidence = self.store.campaign(own).parity_pass(own)
            (case,) = evidence.cases
            if case.error:
                pytest.fail(case.error, pytrace=False)
            return Comparison(case, case.parity()[0], own.decoding)

        return compare

    def environment(self, item: pytest.Item) -> dict[str, Any]:
        """The recorded environment, with the pair of a test."""
        self.pair(item)
        return dict(self._facts())

    def _prepare(self, inputs: Inputs) -> None:
        if self._demo_directory and inputs.target and inputs.target.directory:
            if inputs.target.directory.parent == self._demo_directory:
                demo.build_missing(self._demo_directory)

    def _facts(self) -> Mapping[str, Any]:
        if self._environment is None:
            facts = environment(self.store.engine_info)
            self._config.hook.pytest_specgate_environment(environment=facts)
            self._environment = facts
        return self._environment

    # -- reports -----------------------------------------------------------------------------

    def finish(self, *, interrupted: bool) -> bool:
        """Assemble the report and write what was asked for; False when a file was not written."""
        if self._config.option.collectonly:
            return True
        verdicts = tuple(self._verdicts.values())
        measured = tuple(
            MeasuredPair(inputs, self.store.pair_info(inputs), campaign.cases())
            for campaign, inputs in self._measured.values()
            if campaign.cases()
        )
        if not (verdicts or measured or self._options.reports):
            return True
        self._report = SessionReport(
            status=session_status(verdicts, interrupted=interrupted),
            environment=self._facts(),
            measured=measured,
            verdicts=verdicts,
            item_names={name: gate.item for name, gate in self.gates.items()},
        )
        written = True
        for request in self._options.reports:
            try:
                self._writers[request.kind](self._report, request.path)
                self._notes.append(f"{request.kind} report: {request.path}")
            except OSError as error:
                written = False
                self._notes.append(f"ERROR: {request.origin}: cannot be written: {error}")
        return written

    def summarize(self, reporter: Any) -> None:
        """Write the section behind pytest's own summary."""
        if self._report is None:
            return
        reporter.section("specgate")
        width = self._config.get_terminal_writer().fullwidth
        for line in [*summary_lines(self._report, width), *self._notes]:
            reporter.write_line(line)

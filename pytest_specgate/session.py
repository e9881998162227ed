"""What a session with specgate in use holds together: options, plans, the judge, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from . import demo, parallel
from .baseline import Reference
from .baseline.document import BaselineError, baseline_of
from .baseline.files import Place, read, write
from .config.build import Builder, base_options
from .config.gates_file import default_gates_file
from .config.markers import gate_configs, inputs_layer, item_origin
from .config.options import read_options
from .config.plan import GateConfig, Inputs, Measure, Plan
from .config.prompt_file import checked_prompts
from .config.spec import ConfigError, Invalid
from .engines.base import EngineError, Pair
from .gates.base import Verdict
from .items import GateItem, GatesFile
from .judging import Judge
from .measure.budget import Budget
from .measure.evidence import Comparison, Evidence
from .measure.lock import Busy, MachineLock, lock_path
from .measure.samples import Samples
from .measure.store import Store
from .prompts import builtin
from .registry import Registry
from .report.progress import Progress
from .report.session_report import SessionReport, session_status
from .report.terminal import coloured, summary_lines
from .saved_case import read_case
from .text import shown, shown_lines

_GATES_NAMES = ("gates.yaml", "gates.yml")
_NO_PAIR = "no pair was given: use --spec-target and --spec-draft, or --spec-demo"

# what a marked item measures and judges, checked when it is collected
_INPUTS: pytest.StashKey[tuple[Inputs, Measure]] = pytest.StashKey()
_GATES: pytest.StashKey[tuple[GateConfig, ...]] = pytest.StashKey()


class SpecSession:
    """The state of one pytest session; made only when specgate is used."""

    def __init__(self, config: pytest.Config) -> None:
        """Read options and gates files, and decide what is collected.

        Raises:
            ConfigError: anything the user typed wrong, before a model is loaded.
        """
        self._config = config
        self.registry = Registry.gather(config)
        self._options = read_options(config, self.registry.reports)
        if self._options.isolation:
            self.registry = self.registry.isolated(self._options.isolation)
        self.registry.check_engine(self._options.engine, self._options.engine_origin)
        self._demo = demo.demo_directory(config) if self._options.demo else None
        pair = demo.demo_pair(self._demo) if self._demo else None
        self._builder = Builder(self._options, self.registry.gates, self._prompt_set, pair)
        self._progress = Progress(config)
        self._store = Store(
            self.registry.engines,
            self._progress,
            self._prepare,
            preflight=not self._options.no_preflight,
            budget=Budget(self._options.budget_s),
            noise=self._options.noise,
            reference=self._reference(),
            samples=Samples(self._sample_folder(), lambda: self.judge.facts()),
            lock=MachineLock(lock_path(self._elsewhere()), waiting=self._progress.waiting),
        )
        self.judge = Judge(config, self.registry, self._store)
        self._workers: list[parallel.Findings] = []
        self._plans: dict[Path, Plan] = {}
        self._base: Plan | None = None
        self._default_file: Path | None = None
        self._report: SessionReport | None = None
        save = self._options.save_baseline
        self._save = Place.of(save.path, update=save.update) if save else None
        self._notes: list[str] = []
        if self._options.replay:
            self._plan_replay(self._options.replay)
        else:
            self._plan_gates()
        if not self._plans:
            self._builder.inputs({}, {})  # wrong options are told also where nothing is gated

    def _reference(self) -> Reference | None:
        """What --spec-baseline names; a file that cannot be used fails the gate, not the start."""
        asked = self._options.baseline
        if self._config.option.collectonly:
            return None
        if asked is None:
            stored = self._options.save_baseline is not None
            return Reference("-", None, None, dict) if stored else None
        try:
            found, problem = read(asked.path), None
        except BaselineError as error:
            found, problem = None, str(error)
        return Reference(asked.name, found, problem, lambda: self.judge.facts())

    def _sample_folder(self) -> Path | None:
        """In pytest's cache, so that --cache-clear forgets samples too."""
        cache = getattr(self._config, "cache", None)
        return Path(cache.mkdir("specgate-samples")) if cache else None

    def _elsewhere(self) -> str:
        """The spec of a gateway to another machine, which is then the one that is measured."""
        spec = self._options.isolation.spec if self._options.isolation else ""
        return spec if spec.startswith(("ssh", "socket", "vagrant")) else ""

    # -- plans ---------------------------------------------------------------------------------

    @property
    def _no_paths(self) -> bool:
        return self._config.args_source != self._config.ArgsSource.ARGS

    def _plan_gates(self) -> None:
        named = self._named_gates_files()
        active = self._active_gates_file(named)
        if active is None:
            return
        for path in {*named, active}:
            self._plans[path] = self._builder.plan(path, builtin=path == self._default_file)
        self._base = self._plans[active]
        if self._no_paths and self._options.demo:
            self._config.args[:] = [str(active)]
        elif active not in named and (self._no_paths or self._options.gates):
            self._config.args.append(str(active))

    def _plan_replay(self, path: Path) -> None:
        layer, engine = read_case(path)
        self.registry.check_engine(engine, str(path))
        self._builder = replace(self._builder, options=replace(self._options, engine=engine))
        inputs, measure = self._builder.inputs({}, layer)
        parity = GateConfig("parity", dict(self.registry.gates["parity"].defaults), str(path))
        self._builder.check((parity,), inputs)
        self._plans[path] = self._base = Plan(inputs, measure, (parity,), path, layer)
        if self._no_paths:
            self._config.args[:] = [str(path)]
        else:
            self._config.args.append(str(path))

    def _prompt_set(self, name: str) -> Any:
        given = self._config.hook.pytest_specgate_prompts(name=name)
        if given is None:
            return builtin(name)
        try:
            return checked_prompts(given)
        except Invalid as error:
            raise ConfigError(f"prompt set {name!r} of a plugin: {error}") from None

    def _prepare(self, inputs: Inputs) -> None:
        if self._demo and inputs.target == demo.demo_pair(self._demo)[0]:
            try:
                demo.build_missing(self._demo, self._config)
            except OSError as error:
                raise EngineError(
                    f"the demo pair cannot be built: its folder {self._demo} cannot be written: "
                    f"{error.strerror or error} (-o cache_dir=FOLDER puts it elsewhere)"
                ) from error

    def _named_gates_files(self) -> list[Path]:
        """Gates files that stand on the command line themselves."""
        here = self._config.invocation_params.dir
        paths = [(here / arg.split("::", 1)[0]).resolve() for arg in self._config.args]
        return [
            path
            for path in dict.fromkeys(paths)
            if path.is_file() and (path.name in _GATES_NAMES or path == self._options.gates)
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

    # -- collection ----------------------------------------------------------------------------

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
            report.longrepr = shown_lines("\n".join(dict.fromkeys(problems)))
            report.result = []

    def _resolve(self, item: pytest.Item) -> None:
        layer = inputs_layer(item, self._config.rootpath)
        inputs, measure = self._builder.inputs(layer, self._base.settings if self._base else {})
        configs = gate_configs(item, self.registry.gates, base_options(self._base))
        self._builder.check(configs, inputs)
        item.stash[_INPUTS] = (self._builder.asked_by(configs, inputs), measure)
        item.stash[_GATES] = configs
        self.group(item, configs)

    def group(self, item: pytest.Item, configs: Iterable[GateConfig]) -> None:
        """In a worker of pytest-xdist: all that is timed goes to one worker, where groups hold."""
        timed = any(self.registry.gates[config.name].needs == "rounds" for config in configs)
        if timed and parallel.is_worker(self._config):
            item.add_marker(pytest.mark.xdist_group(parallel.GROUP))

    def _measures(self, item: pytest.Item) -> tuple[Inputs, Measure]:
        if isinstance(item, GateItem):
            return item.inputs, item.plan.measure
        if _INPUTS not in item.stash:
            self._resolve(item)
        return item.stash[_INPUTS]

    def order(self, items: list[pytest.Item], uses_spec: Callable[[pytest.Item], bool]) -> None:
        """Drop gate items collected twice, by a folder and by their own path; skip without a pair.

        Raises:
            ConfigError: what a test would measure cannot be told.
        """
        for item in items:
            measures = isinstance(item, GateItem) or uses_spec(item)
            if measures and not self._options.require and not self._measures(item)[0].has_pair:
                item.add_marker(pytest.mark.skip(reason=_NO_PAIR))
        gate_items = {item.nodeid: item for item in reversed(items) if isinstance(item, GateItem)}
        items[:] = [item for item in items if gate_items.get(item.nodeid, item) is item]

    def register(
        self, items: Iterable[pytest.Item], uses_spec: Callable[[pytest.Item], bool]
    ) -> None:
        """Tell the judge all that will be asked for.

        Raises:
            ConfigError: with --spec-require, when no item would judge or measure anything.
        """
        used = False
        for item in items:
            if isinstance(item, GateItem):
                gates = [self.registry.gates[item.config_of_gate.name]]
                self.judge.expect(item, item.inputs, item.plan.measure, gates)
                used = True
            elif uses_spec(item):
                gates = [self.registry.gates[c.name] for c in item.stash.get(_GATES, ())]
                if gates:
                    self.judge.expect(item, *item.stash[_INPUTS], gates)
                used = True
        self._progress.expect(sum(campaign.prompts for campaign in self._store.campaigns()))
        if self._options.require and not used:
            raise ConfigError(
                "--spec-require: no gate was collected, so nothing would be judged; "
                "check the paths, -k and the names of the tests"
            )

    def announcement(self) -> list[str]:
        """How much will be generated, said before anything is."""
        if self._base is None or self._config.option.collectonly:
            return []
        counts = [c.planned_trials(self._base.measure) for c in self._store.campaigns()]
        least, most = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        if not least:
            return []
        span = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        return [f"specgate: {span} generations planned; the time left is shown after the first"]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a whole test in a worker of pytest-xdist, so that nothing is timed meanwhile."""
        with ExitStack() as stack:
            if parallel.is_worker(self._config):
                with suppress(Busy):  # nothing of this test is timed: it need not wait for ever
                    stack.enter_context(self._store.together())
            yield

    # -- items and fixtures ----------------------------------------------------------------------

    def need_pair(self, item: pytest.Item) -> None:
        """With --spec-require, fail a test that has no pair; otherwise it was skipped before."""
        if not self._measures(item)[0].has_pair:
            _fail(f"{_NO_PAIR} (--spec-require)")

    def judge_markers(self, item: pytest.Item) -> list[Verdict]:
        """Judge the gate markers of a test before its body runs."""
        if not (configs := item.stash.get(_GATES, ())):
            return []
        return self.judge.markers(item, configs, *item.stash[_INPUTS])

    def settle(self, verdicts: list[Verdict], *, named: bool = True) -> None:
        """An undecided gate is not a pass: skip the test, or fail it where the policy says so.

        Args:
            verdicts: of the test.
            named: say which gate it was; an item of a gates file has its name.
        """
        undecided = [v for v in verdicts if v.status in ("inconclusive", "skipped")]
        noisy = [verdict for verdict in undecided if verdict.status == "inconclusive"]
        if noisy and self._options.on_inconclusive == "fail":
            words = "\n\n".join(map(self.judge.explain, noisy))
            _fail(f"{words}\n  Undecided counts as failed here: --spec-on-inconclusive=fail")
        if undecided:
            reasons = (f"{v.gate}: {v.reason}" if named else v.reason for v in undecided)
            pytest.skip(shown("; ".join(reasons)))

    def inputs(self, item: pytest.Item) -> Inputs:
        """What a test measures."""
        return self._measures(item)[0]

    def pair(self, item: pytest.Item) -> Pair:
        """The loaded pair of a test; fails it with one paragraph when it cannot be loaded."""
        try:
            with self._progress.running():
                return self._store.pair(self.inputs(item))
        except EngineError as error:
            _fail(error)

    def evidence(self, item: pytest.Item) -> Evidence:
        """Evidence for a test's own inputs, with trials where a marker of it needs them."""
        inputs, measure = self._measures(item)
        gates = [self.registry.gates[config.name] for config in item.stash.get(_GATES, ())]
        timed = next((gate for gate in gates if gate.needs == "rounds"), None)
        untimed = parallel.why_untimed(item)
        evidence = self.judge.measure(inputs, measure, timed, untimed=untimed)
        errors = [case.error for case in evidence.cases if case.error]
        if errors and len(errors) == len(evidence.cases):
            _fail(errors[0])
        return evidence

    def comparer(self, item: pytest.Item) -> Callable[..., Comparison]:
        """The function behind ``spec_compare``."""

        def compare(
            text: str,
            *,
            max_tokens: int | None = None,
            num_draft_tokens: int | None = None,
            rounds: int = 0,
        ) -> Comparison:
            """One prompt on both paths; the README lists the arguments."""
            origin = item_origin(item, "spec_compare")
            layer = dict(inputs_layer(item, self._config.rootpath))
            file = self._base.settings if self._base else {}
            try:
                layer |= self._builder.call_layer(
                    text, max_tokens, num_draft_tokens, rounds, origin
                )
                inputs, measure = self._builder.inputs(layer, file, call=True)
            except ConfigError as error:
                _fail(error)
            inputs = replace(inputs, num_draft_tokens=inputs.num_draft_tokens[:1])
            with self._progress.running(), self.judge.together():
                if rounds:
                    campaign = self._store.fresh_campaign(inputs)
                    exactly = replace(measure, warmup=1)
                    evidence = campaign.rounds(inputs, exactly, lambda _: ())
                else:
                    evidence = self.judge.campaign(inputs).parity_pass(inputs)
            (case,) = evidence.cases
            if problem := case.error or evidence.unmeasured:
                _fail(problem)
            return Comparison(case, case.parity()[0], inputs.decoding)

        return compare

    def environment(self, item: pytest.Item) -> dict[str, Any]:
        """The recorded environment, with the pair of a test."""
        self.pair(item)
        return dict(self.judge.facts())

    # -- report ----------------------------------------------------------------------------------

    def take_over(self, node: Any) -> None:
        """A worker of pytest-xdist has ended."""
        if (found := parallel.handed_over(node)) is not None:
            self._workers.append(found)
        else:
            self._notes.append("a worker ended early: what it had measured is lost")

    def _findings(self) -> parallel.Findings:
        own = parallel.Findings(self.judge.verdicts, self.judge.measured(), self._store.used)
        return parallel.joined([own, *self._workers]) if self._workers else own

    def finish(self, exitstatus: int) -> bool:
        """End engines, write the reports asked for; False when the session may not be green."""
        self._store.close()
        if self._config.option.collectonly or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return True
        try:
            self.judge.keep_samples()
        except OSError as error:
            self._notes.append(shown(f"the undecided sample could not be kept: {error}"))
        found = self._findings()
        if parallel.is_worker(self._config):
            facts = self.judge.facts() if found.used else None
            parallel.hand_over(self._config, replace(found, facts=facts))
            return True
        self._remember(found.verdicts)
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        idle = self._options.require and not found.verdicts and not found.used
        if not (found.verdicts or found.measured or self._options.reports or idle or self._save):
            return True
        self._report = SessionReport(
            status=session_status(found.verdicts, interrupted=interrupted),
            environment=found.facts or self.judge.facts(),
            measured=found.measured,
            verdicts=found.verdicts,
            quiet=self._options.on_inconclusive == "pass",
            item_names={name: gate.item for name, gate in self.registry.gates.items()},
        )
        if idle:
            self._notes.append(
                "ERROR: --spec-require: nothing was judged: what was collected was skipped"
            )
        written = self._save_baseline(exitstatus)
        for request in self._options.reports:
            try:
                self.registry.reports[request.kind](self._report, request.path)
                self._notes.append(shown(f"{request.kind} report: {request.path}"))
            except OSError as error:
                written = False
                self._notes.append(shown(f"ERROR: {request.origin}: cannot be written: {error}"))
        return written and not idle

    def _save_baseline(self, exitstatus: int) -> bool:
        """Store the session; False where that was asked for and could not be done."""
        if self._save is None or self._options.save_baseline is None or self._report is None:
            return True
        report = self._report
        whole = exitstatus == pytest.ExitCode.OK and report.status != "failed"
        problem = None
        if not whole and not self._options.save_baseline.anyway:
            why = report.status if report.status in ("failed", "incomplete") else "not green"
            problem = f"the session is {why} (--spec-keep-failed-baseline stores it all the same)"
        elif not any(case.arms for pair in report.measured for case in pair.cases):
            problem = "nothing was measured"
        elif len(report.measured) > 1:
            problem = f"it takes one pair with one set of options, found {len(report.measured)}"
        if problem:
            self._notes.append(f"ERROR: no baseline was stored: {problem}")
            return False
        (pair,) = report.measured
        found = baseline_of(pair.cases, pair.inputs, pair.info, report.environment, report.verdicts)
        try:
            write(self._save, found)
        except BaselineError as error:
            self._notes.append(shown(f"ERROR: --spec-save-baseline: {error}"))
            return False
        self._notes.append(shown(f"baseline: {self._save.path}"))
        return True

    def _remember(self, verdicts: Iterable[Verdict]) -> None:
        """An undecided item is worth running again: ``--lf`` selects it beside the failed ones."""
        again = getattr(self._config.pluginmanager.get_plugin("lfplugin"), "lastfailed", None)
        if isinstance(again, dict):
            again |= {v.item: True for v in verdicts if v.status == "inconclusive"}

    def summarize(self, reporter: Any) -> None:
        """Write the section behind pytest's own summary."""
        if self._report is None:
            return
        reporter.ensure_newline()
        reporter.section("specgate")
        writer = self._config.get_terminal_writer()
        for line in [*summary_lines(self._report, writer.fullwidth), *self._notes]:
            reporter.write_line(coloured(line, writer.markup))


def _fail(message: object) -> NoReturn:
    """Fail the test with these words, which may be an engine's own, and no traceback."""
    pytest.fail(shown_lines(str(message)), pytrace=False)

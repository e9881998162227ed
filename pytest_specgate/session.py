"""What a session with specgate in use holds together: options, plans, the judge, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from . import demo, parallel
from .compared import other_of, reference_of
from .config.build import Builder, base_options
from .config.gates_file import default_gates_file
from .config.markers import gate_configs, inputs_layer, item_origin
from .config.option_values import Isolation
from .config.options import read_options
from .config.plan import GateConfig, Inputs, Measure, Plan
from .config.prompt_file import checked_prompts
from .config.spec import ConfigError, Invalid
from .ending import Ending
from .engines.base import EngineError, Pair
from .gates.base import Verdict
from .items import GateItem, GatesFile
from .judging import Judge
from .measure.budget import Budget
from .measure.comparison import Comparison
from .measure.evidence import Evidence
from .measure.lock import Busy, MachineLock, lock_path
from .measure.samples import Samples
from .measure.store import Store
from .prompts import builtin
from .registry import Registry
from .report.progress import Progress
from .saved_case import read_case
from .text import count, shown, shown_lines

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
        for request in self._options.reports:
            self.registry.check_report(request.kind, request.origin)
        if self._options.against and not self._options.isolation:
            # both sides alike, or the way that results take would be part of the difference
            own = Isolation("popen", self._options.against.origin)
            self._options = replace(self._options, isolation=own)
        if self._options.isolation:
            self.registry = self.registry.isolated(self._options.isolation)
        if self._options.scan:
            self.registry = self.registry.scanning()
        self.registry.check_engine(self._options.engine, self._options.engine_origin)
        self._demo = demo.demo_directory(config) if self._options.demo else None
        pair = demo.demo_pair(self._demo) if self._demo else None
        checks = self.registry.checks
        self._builder = Builder(self._options, self.registry.gates, self._prompt_set, pair, checks)
        self._progress = Progress(config)
        self._store = Store(
            self.registry.engines,
            self._progress,
            self._prepare,
            preflight=not self._options.no_preflight,
            budget=Budget(self._options.budget_s),
            noise=self._options.noise,
            reference=None
            if config.option.collectonly
            else reference_of(self._options, lambda: self.judge.facts()),
            against=other_of(self._options, config),
            fresh=self.registry.afresh(self._options.engine),
            facts=lambda: self.judge.facts(),
            samples=Samples(self._sample_folder(), lambda: self.judge.facts()),
            lock=MachineLock(lock_path(self._elsewhere()), waiting=self._progress.waiting),
        )
        self.judge = Judge(config, self.registry, self._store)
        self._plans: dict[Path, Plan] = {}
        self._base: Plan | None = None
        self._default_file: Path | None = None
        self.ending = Ending(config, self._options, self.registry, self._store, self.judge)
        if self._options.replay:
            self._plan_replay(self._options.replay)
        else:
            self._plan_gates()
        if self._options.scan and not any(p.inputs.has_pair for p in self._plans.values()):
            raise ConfigError(f"--spec-scan: {_NO_PAIR}")
        if not self._plans:
            self._builder.inputs({}, {})  # wrong options are told also where nothing is gated

    def _sample_folder(self) -> Path | None:
        """In pytest's cache, so that --cache-clear forgets samples too; None without one."""
        cache = getattr(self._config, "cache", None)
        if cache is None or self._config.option.collectonly:
            return None
        try:
            return Path(cache.mkdir("specgate-samples"))
        except OSError:  # read-only: pytest itself goes on without its cache
            return None

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
        if self._no_paths and (self._options.demo or self._options.scan):
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
            elif measures and self._options.scan and not isinstance(item, GateItem):
                item.add_marker(pytest.mark.skip(reason="--spec-scan judges and measures no test"))
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
        if self._options.scan:
            scans = [campaign.prompts for campaign in self._store.campaigns()]
            if not scans:
                return []
            over = f"{count(max(scans), 'plain output')}, {count(len(scans), 'draft')}"
            return [f"specgate: one pass over {over}; nothing is timed"]
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
            errors = (case.error for case in evidence.cases if case.error)
            if problem := next(errors, evidence.unmeasured):
                _fail(problem)
            (case,) = evidence.cases
            return Comparison(case, case.parity()[0], inputs.decoding)

        return compare

    def environment(self, item: pytest.Item) -> dict[str, Any]:
        """The recorded environment, with the pair of a test."""
        self.pair(item)
        return dict(self.judge.facts())


def _fail(message: object) -> NoReturn:
    """Fail the test with these words, which may be an engine's own, and no traceback."""
    pytest.fail(shown_lines(str(message)), pytrace=False)

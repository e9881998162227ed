"""The pytest hooks: wiring only. What they call is imported when a session uses it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .config.plan import Prompt
    from .measure.comparison import Comparison
    from .measure.evidence import Evidence
    from .session import SpecSession

SESSION: pytest.StashKey[SpecSession] = pytest.StashKey()

_OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("target", "model directory or hub id of the target", {"metavar": "MODEL"}),
    (
        "draft",
        "model directory or hub id of the draft; repeatable with --spec-scan",
        {"action": "append", "metavar": "MODEL"},
    ),
    ("num-draft-tokens", "tokens drafted a block: one number or a list 1,3,5", {"metavar": "K"}),
    (
        "sweep",
        "choose among numbers of draft tokens (default: 1,2,3,5,8)",
        {"metavar": "LIST", "nargs": "?", "const": "1,2,3,5,8"},
    ),
    ("max-tokens", "most new tokens a prompt", {"metavar": "N"}),
    ("prompts", "core, smoke, or a JSON Lines file", {"metavar": "SET"}),
    ("gates", "gates file (default: gates.yaml in the rootdir)", {"metavar": "FILE"}),
    ("replay", "run a saved failing case again", {"metavar": "FILE"}),
    ("rounds", "rounds of measurement; MIN alone runs exactly MIN", {"metavar": "MIN[:MAX]"}),
    ("engine", "engine that generates (default: mlx-lm)", {"metavar": "NAME"}),
    (
        "report",
        "write a report, such as json:gate.json; repeatable",
        {"action": "append", "metavar": "KIND:PATH"},
    ),
    ("require", "fail instead of skipping when no pair was given", {"action": "store_true"}),
    ("no-preflight", "generate whatever the pre-flight check says", {"action": "store_true"}),
    ("demo", "gate the embedded pair; nothing is downloaded", {"action": "store_true"}),
    (
        "isolate",
        "generate in a child process, or where an execnet spec says (default: popen)",
        {"metavar": "SPEC", "nargs": "?", "const": "popen"},
    ),
    ("timeout", "seconds that one call of an isolated engine may take", {"metavar": "SECONDS"}),
    (
        "on-inconclusive",
        "what an undecided gate does: fail, warn (default) or pass",
        {"metavar": "POLICY"},
    ),
    (
        "against",
        "measure another environment in the same rounds: mlx-lm==X, python=PATH, a file",
        {"metavar": "ENVIRONMENT"},
    ),
    ("baseline", "judge against a stored session: its name, or a file", {"metavar": "NAME"}),
    ("save-baseline", "store this session under a name", {"metavar": "NAME"}),
    ("update-baseline", "let --spec-save-baseline replace a file", {"action": "store_true"}),
    ("keep-failed-baseline", "store a session that failed, too", {"action": "store_true"}),
    ("baseline-dir", "folder of baselines (default: .specgate/baselines)", {"metavar": "DIR"}),
    ("noise", "time the plain path twice: the machine's own noise", {"action": "store_true"}),
    (
        "scan",
        "rank drafts and numbers of draft tokens by one pass of each draft; times nothing",
        {"action": "store_true"},
    ),
    ("checklist", "end with what a decision for a pair takes", {"action": "store_true"}),
    ("budget", "most time for measuring, such as 10m", {"metavar": "TIME"}),
    ("chat-template-args", "arguments of the chat template", {"metavar": "JSON"}),
    ("trust-remote-code", "let a model run code of its own", {"action": "store_true"}),
)
_COMMAND_LINE_ONLY = (
    *("replay", "demo", "save-baseline", "update-baseline", "keep-failed-baseline"),
)
_MARKERS = (
    "spec_parity(mode='exact'): the speculative output equals the plain one",
    "spec_speedup(min=1.15, margin=0.03): median end-to-end speedup",
    "spec_latency(p95_max_ratio=1.0, p95_max_seconds=None): p95 of end-to-end seconds",
    "spec_memory(max_gb=None, max_ratio=None, headroom=0.1): peak memory",
    "spec_acceptance(min=0.5): accepted / proposed draft tokens",
    "spec_ttft(p95_max_ratio=None, p95_max_seconds=None): p95 of seconds to the first token",
    "spec_tpot(p95_max_ratio=1.0, p95_max_seconds=None): p95 of time per output token",
    "spec_against(speedup='-5%', ...): no figure is worse in the environment of --spec-against",
    "spec_baseline(output='same', speedup='-5%', ...): no figure is worse than the stored one",
    "spec_reuse(follow_up=): a second turn with the prompt cache kept equals a fresh run",
    "spec_quality(min_pass=1.0, not_worse=0.05, ...): outputs of both paths pass their checks",
    "spec_options(repetition_penalty=1.3, ...): each option alone, equal on both paths",
    "spec_recommended(max_loss=0.03): no k of the sweep is faster by more than that",
    "spec_distribution(seeds=600, prompts=4, first=2, distance=0.1, false_alarm=0.01): sampled "
    "output is drawn by the target's law on both paths",
    "spec_inputs(prompts=, kinds=, target=, draft=, num_draft_tokens=, max_tokens=, ...): "
    "what is measured for this test",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("specgate", "speculative decoding gates")
    for name, text, more in _OPTIONS:
        dest = f"spec_{name.replace('-', '_')}"
        group.addoption(f"--spec-{name}", dest=dest, default=None, help=text, **more)
        if name not in _COMMAND_LINE_ONLY:
            parser.addini(f"specgate_{name.replace('-', '_')}", text, default=None)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | pytest.ExitCode | None:
    """Start again where pytest took a model directory for a test path, and so the wrong root."""
    called = config.invocation_params
    if not any(arg[:7] == "--spec-" for arg in called.args):
        return None
    from .early import joined

    args = joined(called.args, called.dir)
    return None if args == list(called.args) else pytest.main(args, called.plugins)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from . import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    for gates in config.hook.pytest_specgate_gates():
        for gate in gates:
            config.addinivalue_line("markers", f"spec_{gate.name}(...): a gate of another plugin")
    if _asked_for(config):
        _start(config)


def _asked_for(config: pytest.Config) -> bool:
    """Any option, ini key or named gates file. Cheap: every session runs this."""
    return (
        any(value is not None for name, value in vars(config.option).items() if name[:5] == "spec_")
        or any(_in_ini(config, name) for name, _, _ in _OPTIONS if name not in _COMMAND_LINE_ONLY)
        or any("gates.y" in arg for arg in config.args)
    )


def _in_ini(config: pytest.Config, name: str) -> bool:
    try:
        return config.getini(f"specgate_{name.replace('-', '_')}") is not None
    except (TypeError, pytest.UsageError):  # of a wrong type: said when it is read
        return True


def _start(config: pytest.Config) -> SpecSession:
    from .config.spec import usage_errors
    from .session import SpecSession

    with usage_errors():
        config.stash[SESSION] = SpecSession(config)
    return config.stash[SESSION]


def _session(config: pytest.Config) -> SpecSession:
    """The session's own state; made here for a test that uses specgate with no pair given."""
    return config.stash[SESSION] if SESSION in config.stash else _start(config)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    session = parent.config.stash.get(SESSION, None)
    return session.collect_file(file_path, parent) if session else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    marked = [item for item in report.result if isinstance(item, pytest.Item) and _is_marked(item)]
    if marked:
        _session(collector.config).check_markers(marked, report)
    return report


def _is_marked(item: pytest.Item) -> bool:
    return any(mark.name[:5] == "spec_" for mark in item.iter_markers())


def _uses_spec(item: pytest.Item) -> bool:
    names: Iterable[str] = getattr(item, "fixturenames", ())
    return any(name in _FIXTURES for name in names) or _is_marked(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    session = config.stash.get(SESSION, None)
    if session or any(_uses_spec(item) for item in items):
        from .config.spec import usage_errors

        with usage_errors():
            (session or _session(config)).order(items, _uses_spec)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if (spec := session.config.stash.get(SESSION, None)) and not session.config.option.collectonly:
        from .config.spec import usage_errors

        with usage_errors():
            spec.register(session.items, _uses_spec)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    session = config.stash.get(SESSION, None)
    return session.announcement() if session else []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if SESSION in node.config.stash or "specgate" in getattr(node, "workeroutput", {}):
        _session(node.config).ending.take_over(node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    session = item.config.stash.get(SESSION, None)
    with session.at_work() if session else nullcontext():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _uses_spec(item):
        _session(item.config).need_pair(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    session = item.config.stash.get(SESSION, None)
    verdicts = session.judge_markers(item) if session and _is_marked(item) else []
    result = yield
    if session:
        session.settle(verdicts)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    undecided = ("specgate_status", "inconclusive") in item.user_properties
    if report.skipped and undecided and isinstance(report.longrepr, tuple):
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    properties = getattr(report, "user_properties", ())
    if (
        report.when == "call"
        and report.skipped
        and ("specgate_status", "inconclusive") in properties
    ):
        return "inconclusive", "i", ("INCONCLUSIVE", {"yellow": True})
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    spec = session.config.stash.get(SESSION, None)
    if spec and not spec.ending.finish(exitstatus) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if session := config.stash.get(SESSION, None):
        session.ending.summarize(terminalreporter)


_FIXTURES = frozenset(
    {"spec_pair", "spec_compare", "spec_evidence", "spec_prompts", "spec_environment"}
)


@pytest.fixture
def spec_pair(request: pytest.FixtureRequest) -> Any:
    """The loaded pair: ``.target``, ``.draft``, ``.tokenizer`` are mlx-lm's own objects."""
    return _session(request.config).pair(request.node)


@pytest.fixture
def spec_prompts(request: pytest.FixtureRequest) -> tuple[Prompt, ...]:
    """The prompts that this test measures, as its ``spec_inputs`` marker and the options say."""
    return _session(request.config).inputs(request.node).prompts


@pytest.fixture
def spec_evidence(request: pytest.FixtureRequest) -> Evidence:
    """What was measured for this test: outputs and blocks; trials where a timing marker asks."""
    return _session(request.config).evidence(request.node)


@pytest.fixture
def spec_compare(request: pytest.FixtureRequest) -> Callable[..., Comparison]:
    """``spec_compare(text, max_tokens=, num_draft_tokens=, rounds=)``: one prompt on both paths."""
    return _session(request.config).comparer(request.node)


@pytest.fixture
def spec_environment(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The recorded environment: versions, machine, device, models."""
    return _session(request.config).environment(request.node)

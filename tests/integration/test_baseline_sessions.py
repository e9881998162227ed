"""Sessions that are stored, and sessions that are judged against one, on a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_scripted_sessions import OPTIONS, Session, project, session, with_faults, with_gates

__all__ = ["project", "session"]

SAVE, JUDGE = "--spec-save-baseline=a", "--spec-baseline=a"
# a small noise of its own for each prompt, arm and round
NOISE = """
import random

def noisy(prompt, arm, number):
    pace = 0.2 if arm == "plain" else 0.1 * SLOWER
    return pace * random.Random(f"{SEED}{prompt}{arm}{number}").lognormvariate(0, 0.005)

PAIR.seconds = noisy
"""


def with_noise(project: pytest.Pytester, seed: int, slower: float = 1.0, *lines: str) -> None:
    """Scripted times with 0.5 % of noise; the speculative path so many times slower."""
    with_faults(project, f"SEED, SLOWER = {seed}, {slower}", NOISE, *lines)


def stored_file(project: pytest.Pytester) -> Path:
    """Where the baseline ``a`` lies."""
    return project.path / ".specgate" / "baselines" / "a.json"


def part(report: dict[str, Any], figure: str, item: str = "baseline") -> dict[str, Any]:
    """The verdict on one figure."""
    (one,) = [
        v for v in report["verdicts"] if v["evidence"].get("figure") == figure and item in v["item"]
    ]
    found: dict[str, Any] = one
    return found


def whole(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict of the gate itself."""
    (one,) = [
        v for v in report["verdicts"] if v["gate"] == "baseline" and "figure" not in v["evidence"]
    ]
    found: dict[str, Any] = one
    return found


@pytest.fixture(scope="module")
def kept() -> list[bytes]:
    """The stored session, made by the first test that wants it."""
    return []


@pytest.fixture
def saved(project: pytest.Pytester, session: Session, kept: list[bytes]) -> Path:
    """A stored session of parity and speedup."""
    with_noise(project, 1)
    with_gates(project, "parity: {}", "speedup: {}")
    path = stored_file(project)
    if not kept:
        result, _ = session(SAVE, "gates.yaml")
        assert result.ret == 0
        kept.append(path.read_bytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kept[0])
    return path


# -- stored ----------------------------------------------------------------------------------------


def test_a_session_is_stored_and_the_next_one_agrees(
    project: pytest.Pytester, session: Session, saved: Path
) -> None:
    """The gate is added to a file that does not name it; the JSON report has every figure."""
    assert json.loads(saved.read_bytes())["schema"] == "specgate-baseline/1"
    assert list(json.loads(saved.read_bytes())["verdicts"]) == [
        "parity a",
        "parity b",
        "speedup k=3",
    ]
    with_noise(project, 2)
    result, report = session(JUDGE, "gates.yaml")
    result.assert_outcomes(passed=4)
    verdict = whole(report)
    assert (verdict["status"], verdict["item"]) == ("passed", "gates.yaml::baseline")
    assert [f["name"] for f in verdict["evidence"]["figures"]] == [
        *("output", "acceptance other", "speedup", "p95", "ttft", "decode", "e2e", "memory")
    ]
    assert part(report, "speedup")["status"] == "passed"
    assert part(report, "e2e")["status"] == "skipped"
    assert not list(saved.parent.glob("*.part"))


def test_it_is_named_where_it_lies(project: pytest.Pytester, session: Session, saved: Path) -> None:
    """By its path, and in a folder of another name."""
    assert session(f"--spec-baseline={saved}", "gates.yaml")[0].ret == 0
    folder = "--spec-baseline-dir=cache"
    result, _ = session(folder, SAVE, "gates.yaml")
    assert result.ret == 0
    assert (project.path / "cache" / "a.json").is_file()
    result.stdout.fnmatch_lines(f"baseline: {project.path}/cache/a.json")
    assert session(folder, JUDGE, "gates.yaml")[0].ret == 0


def test_a_session_can_judge_and_replace_its_own(session: Session, saved: Path) -> None:
    """Read at the start, written at the end."""
    before = saved.read_bytes()
    result, _ = session(JUDGE, SAVE, "--spec-update-baseline", "gates.yaml")
    assert result.ret == 0
    assert saved.read_bytes() != before


FAILING = "PAIR.scripts = {'say b': Script(wrong={'k=3': (100, 1, 2)})}"


def test_a_failed_session_is_not_stored(project: pytest.Pytester, session: Session) -> None:
    """Unless that is asked for."""
    with_faults(project, FAILING)
    with_gates(project, "parity: {}")
    result, _ = session(SAVE, "gates.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        "ERROR: no baseline was stored: the session is failed "
        "(--spec-keep-failed-baseline stores it all the same)"
    )
    assert not stored_file(project).exists()
    result, _ = session(SAVE, "--spec-keep-failed-baseline", "gates.yaml")
    assert result.ret == 1
    assert stored_file(project).is_file()


def test_a_failed_test_of_ones_own_counts(project: pytest.Pytester, session: Session) -> None:
    """The gates are green, the session is not."""
    with_gates(project, "parity: {}")
    project.makepyfile(test_own="def test_it(): assert False")
    result, _ = session(SAVE, "gates.yaml", "test_own.py")
    result.stdout.fnmatch_lines("ERROR: no baseline was stored: the session is not green*")
    assert not stored_file(project).exists()


def test_an_interrupted_session_is_not_stored(project: pytest.Pytester) -> None:
    """What was measured until then is no baseline."""
    with_faults(project, "PAIR.raises = {('say b', 'k=3', 2): KeyboardInterrupt()}")
    with_gates(project, "parity: {}", "speedup: {}")
    result = project.runpytest(*OPTIONS, SAVE, "gates.yaml", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines("ERROR: no baseline was stored: the session is incomplete *")
    assert not stored_file(project).exists()


@pytest.mark.parametrize("anyway", [(), ("--spec-keep-failed-baseline",)])
def test_a_session_that_measured_nothing_is_not_stored(
    project: pytest.Pytester, anyway: tuple[str, ...]
) -> None:
    """It says so, and is red."""
    project.makepyfile(test_own="def test_it(): pass")
    result = project.runpytest(*OPTIONS[:3], SAVE, *anyway, "test_own.py")
    assert result.ret == 1
    result.stdout.fnmatch_lines("ERROR: no baseline was stored: nothing was measured")
    assert not stored_file(project).exists()


def test_a_pair_that_cannot_be_loaded_is_not_stored(
    project: pytest.Pytester, session: Session
) -> None:
    """Such a file could not be read again."""
    with_faults(project, "def broken(inputs): raise ValueError('no')", "ENGINE.load = broken")
    with_gates(project, "parity: {}")
    result, _ = session(SAVE, "--spec-keep-failed-baseline", "gates.yaml")
    result.stdout.fnmatch_lines("ERROR: no baseline was stored: nothing was measured")
    assert not stored_file(project).exists()


def test_two_sets_of_options_are_not_one_baseline(
    project: pytest.Pytester, session: Session
) -> None:
    """Which one should it be?"""
    with_gates(project, "parity: {}")
    project.makepyfile(
        test_own="""
        import pytest
        @pytest.mark.spec_parity
        @pytest.mark.spec_inputs(seed=7)
        def test_it(): pass
        """
    )
    result, _ = session(SAVE, "gates.yaml", "test_own.py")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        "ERROR: no baseline was stored: it takes one pair with one set of options, found 2"
    )


def test_a_file_that_is_there_is_not_replaced(
    project: pytest.Pytester, session: Session, saved: Path
) -> None:
    """Told before anything is generated."""
    before = saved.read_bytes()
    with_faults(
        project, "def broken(inputs): raise SystemExit('generated')", "ENGINE.load = broken"
    )
    result = project.runpytest(*OPTIONS[:3], SAVE, "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        f"ERROR: --spec-save-baseline: {saved} is there already: add --spec-update-baseline to *"
    )
    assert saved.read_bytes() == before


def test_a_file_that_came_meanwhile_is_kept(project: pytest.Pytester, session: Session) -> None:
    """Of two sessions at once the second is red and says why."""
    path = stored_file(project)
    with_faults(
        project,
        "from pathlib import Path",
        "def pytest_sessionfinish():",
        f"    path = Path({str(path)!r})",
        "    path.parent.mkdir(parents=True)",
        "    path.write_text('of another session')",
        "pytest_sessionfinish = pytest.hookimpl(tryfirst=True)(pytest_sessionfinish)",
    )
    with_gates(project, "parity: {}")
    result, _ = session(SAVE, "gates.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        "ERROR: --spec-save-baseline: *a.json: another session has written it meanwhile; it is kept"
    )
    assert path.read_text() == "of another session"


def test_a_folder_that_cannot_be_made(project: pytest.Pytester, session: Session) -> None:
    """Root may write everywhere, so a file stands in the way."""
    (project.path / ".specgate").write_text("", encoding="utf-8")
    with_gates(project, "acceptance: {min: 0}")
    result, _ = session(SAVE, "gates.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines("ERROR: --spec-save-baseline: *a.json: cannot be written: *")
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x.json", "a b"])
def test_a_name_that_is_none(project: pytest.Pytester, name: str) -> None:
    """None leads out of the folder."""
    with_gates(project, "parity: {}")
    result = project.runpytest(*OPTIONS[:3], f"--spec-save-baseline={name}", "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("ERROR: --spec-save-baseline: must be a plain word of letters, *")


@pytest.mark.parametrize("flag", ["update", "keep-failed"])
def test_a_flag_without_a_name(project: pytest.Pytester, flag: str) -> None:
    """It would do nothing."""
    result = project.runpytest(f"--spec-{flag}-baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(f"ERROR: --spec-{flag}-baseline: needs --spec-save-baseline NAME")


# -- judged ----------------------------------------------------------------------------------------


def test_a_missing_baseline_fails(project: pytest.Pytester, session: Session) -> None:
    """And says how to get one."""
    with_gates(project, "parity: {}")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    result.assert_outcomes(passed=2, failed=1)
    verdict = whole(report)
    assert verdict["reason"] == f"{stored_file(project)}: cannot be read: No such file or directory"
    assert verdict["advice"] == [
        "Store one with --spec-save-baseline NAME, and name it with --spec-baseline NAME."
    ]


@pytest.mark.parametrize("given", ["no/such.json", "x.json", "../a"])
def test_a_wrong_path_is_a_wrong_call(project: pytest.Pytester, given: str) -> None:
    """Before anything is generated."""
    with_gates(project, "parity: {}")
    result = project.runpytest(*OPTIONS[:3], f"--spec-baseline={given}", "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("ERROR: --spec-baseline: no such file: *")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not a baseline: not JSON"),
        ('{"version": 1}', "not a baseline: schema must be 'specgate-baseline/1', found None"),
        ('{"schema": "specgate-baseline/9"}', "is newer than this plugin knows"),
        (None, "damaged: its content is not what was written"),
    ],
)
def test_a_file_that_is_no_baseline_fails(
    session: Session, saved: Path, content: str | None, words: str
) -> None:
    """Corrupt, foreign, newer, edited: never green, never a traceback."""
    text = saved.read_text(encoding="utf-8")
    saved.write_text(
        text.replace('"max_tokens": 8', '"max_tokens": 9') if content is None else content
    )
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    assert whole(report)["status"] == "failed"
    assert words in whole(report)["reason"]
    assert "Traceback" not in result.stdout.str()


def test_no_baseline_named(project: pytest.Pytester, session: Session) -> None:
    """A gates file asks for one; storing the first one is no failure of it."""
    with_gates(project, "parity: {}", "baseline: {}")
    result, report = session("gates.yaml")
    assert result.ret == 1
    assert whole(report)["reason"] == "no baseline was named"
    result, report = session(SAVE, "gates.yaml")
    assert result.ret == 0
    assert whole(report)["status"] == "skipped"
    assert session(JUDGE, "gates.yaml")[0].ret == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_slowdown_is_found(
    project: pytest.Pytester, session: Session, saved: Path, seed: int
) -> None:
    """10 % a speculative trial, 1 % of noise."""
    with_noise(project, 10 + seed, 1.1)
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    assert whole(report)["status"] == "failed"
    assert part(report, "speedup")["status"] == "failed"
    assert part(report, "output")["status"] == "passed"


def test_a_planted_fall_of_acceptance_is_found(
    project: pytest.Pytester, session: Session, saved: Path
) -> None:
    """A tenth less, at the same speed."""
    with_noise(project, 3, 1.0, "PAIR.scripts = {'say a': Script(matches=(True, False))}")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    one = part(report, "acceptance other")
    assert one["status"] == "failed"
    assert one["limit"] - one["observed"] > 0.05
    assert part(report, "speedup")["status"] == "passed"


def test_limits_of_the_gates_file(project: pytest.Pytester, session: Session, saved: Path) -> None:
    """Wider ones let the slowdown through; a wrong one names file, line and what is allowed."""
    with_noise(project, 4, 1.1)
    with_gates(project, "baseline: {speedup: -20%, p95: null}")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 0
    assert part(report, "speedup")["limit"] is not None
    assert part(report, "p95")["status"] == "skipped"
    with_gates(project, "baseline: {speedup: +5%}")
    result = project.runpytest(*OPTIONS[:3], JUDGE, "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "gates.yaml, line 5: baseline.speedup" in result.stderr.str()
    assert "must be a change for the worse, which is '-'" in result.stderr.str()


NONE = "{output: any, acceptance: null, speedup: null, p95: null, memory: null}"


def test_limits_that_judge_nothing(project: pytest.Pytester) -> None:
    """Never green."""
    with_gates(project, f"baseline: {NONE}")
    result = project.runpytest(*OPTIONS[:3], JUDGE, "gates.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "with output: any and no limit there is nothing to judge" in result.stderr.str()


def test_only_seconds_of_another_machine(
    project: pytest.Pytester, session: Session, saved: Path
) -> None:
    """All that has a limit is not judged there: not green."""
    with_noise(
        project,
        5,
        1.0,
        "def pytest_specgate_environment(environment): environment['chip'] = 'another'",
        "pytest_specgate_environment = "
        "pytest.hookimpl(optionalhook=True)(pytest_specgate_environment)",
    )
    with_gates(project, f"baseline: {NONE[:-1]}, e2e: 5%}}")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    assert whole(report)["reason"].startswith("no figure could be judged: ")
    assert "another machine: seconds cannot be compared" in whole(report)["reason"]


def test_other_prompts_are_not_comparable(
    project: pytest.Pytester, session: Session, saved: Path
) -> None:
    """Named and failed."""
    line = '{"id": "c", "prompt": "say c"}\n'
    path = project.path / "prompts.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + line, encoding="utf-8")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    verdict = whole(report)
    assert verdict["reason"] == ("not comparable with a: 1 prompt measured and not stored: c")
    assert verdict["evidence"]["figures"] == []


def test_what_changed_stands_first(project: pytest.Pytester, session: Session, saved: Path) -> None:
    """Before the table of gates; cause beside effect."""
    with_noise(
        project,
        6,
        1.1,
        "from dataclasses import replace",
        "INFO = ENGINE.describe()",
        "VERSIONS = {**INFO.versions, 'mlx': '0.3\\x1b[31m'}",
        "ENGINE.describe = lambda: replace(INFO, versions=VERSIONS)",
    )
    result, _ = session(JUDGE, "gates.yaml")
    lines = result.outlines
    section = next(
        n for n, line in enumerate(lines) if line.startswith("====") and "specgate" in line
    )
    lines = lines[section:]
    starts = [line.split("  ")[0] for line in lines]
    order = [
        starts.index(name) for name in ("what changed", "mlx", "figure", "acceptance other", "gate")
    ]
    assert order == sorted(order)
    assert "0.3\\x1b[31m" in lines[starts.index("mlx")]
    assert max(map(len, lines[: starts.index("gate")])) <= 80


def test_the_marker(project: pytest.Pytester, session: Session, saved: Path) -> None:
    """With limits of its own."""
    with_noise(project, 7, 1.1)
    project.makepyfile(
        test_own="""
        import pytest

        pytestmark = pytest.mark.spec_inputs(prompts="prompts.jsonl", max_tokens=8)

        @pytest.mark.spec_baseline
        def test_default(): pass

        @pytest.mark.spec_baseline(speedup="-20%", p95="25%")
        def test_wide(): pass
        """
    )
    result, report = session(JUDGE, "test_own.py")
    result.assert_outcomes(passed=1, failed=1)
    assert part(report, "speedup", "test_wide")["status"] == "passed"
    assert part(report, "speedup", "test_default")["status"] == "failed"


def test_nothing_is_touched_when_collecting(
    project: pytest.Pytester, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither read nor written."""

    def no(*_: object) -> None:
        raise AssertionError("read")

    monkeypatch.setattr("pytest_specgate.compared.read", no)
    before = saved.read_bytes()
    for more in ((JUDGE,), (SAVE, "--spec-update-baseline"), ("--spec-save-baseline=b",)):
        result = project.runpytest(*OPTIONS[:3], *more, "--collect-only", "-q", "gates.yaml")
        assert result.ret == 0
    assert [path.name for path in saved.parent.iterdir()] == ["a.json"]
    assert saved.read_bytes() == before


def test_workers_store_and_judge(project: pytest.Pytester) -> None:
    """One file of all workers; where groups are ignored nothing is timed, so it is undecided."""
    pytest.importorskip("xdist")
    with_noise(project, 1)
    with_gates(project, "parity: {}", "speedup: {}")
    run: Callable[..., pytest.RunResult] = project.runpytest_subprocess
    result = run("-n", "2", *OPTIONS, SAVE, "gates.yaml")
    assert result.ret == 0
    stored = json.loads(stored_file(project).read_bytes())
    assert list(stored["cases"]) == ["a", "b"]
    assert project.runpytest(*OPTIONS, SAVE, "--spec-update-baseline", "gates.yaml").ret == 0
    result = run("-n", "2", "--dist", "load", *OPTIONS, JUDGE, "gates.yaml")
    assert result.ret == 0
    report = json.loads((project.path / "out.json").read_bytes())
    assert whole(report)["status"] == "inconclusive"
    assert "pytest-xdist ignores groups" in whole(report)["reason"]
    assert part(report, "output")["status"] == "passed"
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.usefixtures("saved")
def test_parity_names_versions_that_are_known_to_be_good(
    project: pytest.Pytester, session: Session
) -> None:
    """The stored session was exact with these models and this prompt, so its versions are named."""
    wrong = 'PAIR.scripts["say a"] = Script(wrong={"k=3": (100, 101, 9, 9, 9, 9, 9, 9)})'
    with_noise(project, 1, 1.0, wrong)
    with_gates(project, "parity: {}")
    result, report = session(JUDGE, "gates.yaml")
    assert result.ret == 1
    advice = {v["subject"]: v["advice"] for v in report["verdicts"] if v["gate"] == "parity"}
    assert "It was exact under mlx-lm 0.2, mlx 0.1 (baseline a)." in advice["a"]
    assert advice["b"] == []

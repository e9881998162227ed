"""Under pytest-xdist: parity spreads over the workers, timed gates stay with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .test_scripted_sessions import OPTIONS, project, with_faults, with_gates

__all__ = ["project"]

pytest.importorskip("xdist")

Workers = Callable[..., tuple[pytest.RunResult, dict[str, Any]]]
GROUP = "@specgate-timed"


@pytest.fixture
def workers(project: pytest.Pytester) -> Workers:
    """workers(*args): a session of two workers in a process of its own; result and JSON report."""

    def run(*args: str, pair: bool = True) -> tuple[pytest.RunResult, dict[str, Any]]:
        options = OPTIONS if pair else (OPTIONS[-1],)
        result = project.runpytest_subprocess("-n", "2", *options, *args)
        path = project.path / "out.json"
        return result, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    return run


def statuses(report: dict[str, Any]) -> dict[str, str]:
    """item -> status."""
    return {verdict["item"]: verdict["status"] for verdict in report["verdicts"]}


def groups_hold(pytester: pytest.Pytester) -> bool:
    """Does this xdist write groups behind the ids of items? With pytest 9.2 it may not."""
    pytester.makepyfile(
        test_group="""
        import pytest
        @pytest.mark.xdist_group("g")
        def test_it(request): assert "@g" in request.node.nodeid
        """
    )
    result = pytester.runpytest_subprocess("-n", "1", "--dist", "loadgroup", "test_group.py")
    return result.ret == 0


def test_load_by_groups(project: pytest.Pytester, workers: Workers) -> None:
    """All verdicts of all workers, one report; a prompt's trials beside its parity."""
    holds = groups_hold(project)
    with_gates(project, "parity: {}", "speedup: {min: 0.1}", "memory: {}", "acceptance: {min: 0}")
    result, report = workers("--dist", "loadgroup", "--spec-rounds", "5", "gates.yaml")
    assert result.ret == 0
    timed, group = ("passed", GROUP) if holds else ("inconclusive", "")
    assert statuses(report) == {
        "gates.yaml::parity[a]": "passed",
        "gates.yaml::parity[b]": "passed",
        f"gates.yaml::speedup{group}": timed,
        f"gates.yaml::memory{group}": timed,
        "gates.yaml::acceptance": "passed",
    }
    assert sorted(case["id"] for case in report["cases"]) == ["a", "b"]
    for case in report["cases"]:
        assert {name: len(arm["trials"]) for name, arm in case["arms"].items()} == {
            "plain": 5 * holds,
            "k=3": 5 * holds,
        }
    assert report["status"] == timed
    assert report["environment"]["versions"]
    result.stdout.fnmatch_lines(["*= specgate =*"])
    result.stdout.fnmatch_lines_random(["parity *2 of 2 exact*", f"speedup *{timed}*"])


@pytest.mark.parametrize("mode", ["load", "worksteal", "loadfile", "each"])
def test_groups_that_are_ignored(project: pytest.Pytester, workers: Workers, mode: str) -> None:
    """Parity is judged; what would be timed is undecided, with the reason and what to do."""
    with_gates(project, "parity: {}", "speedup: {}", "latency: {}", "memory: {}")
    result, report = workers("--dist", mode)
    assert result.ret == 0
    assert statuses(report) == {
        "gates.yaml::parity[a]": "passed",
        "gates.yaml::parity[b]": "passed",
        "gates.yaml::speedup": "inconclusive",
        "gates.yaml::latency_p95": "inconclusive",
        "gates.yaml::memory": "inconclusive",
    }
    assert report["status"] == "inconclusive"
    (reason,) = {v["reason"] for v in report["verdicts"] if v["status"] == "inconclusive"}
    assert "ignores groups" in reason
    assert "--dist loadgroup" in reason
    assert not any(arm["trials"] for case in report["cases"] for arm in case["arms"].values())


def test_one_worker_times(project: pytest.Pytester, workers: Workers) -> None:
    """Nobody else is there."""
    with_gates(project, "speedup: {min: 0.1}")
    result, report = workers("-n", "1")
    assert (result.ret, list(statuses(report).values())) == (0, ["passed"])


def test_markers_and_fixtures(project: pytest.Pytester, workers: Workers) -> None:
    """No option names a pair: only the workers know that specgate is used."""
    project.makepyfile(
        """
        import pytest
        inputs = pytest.mark.spec_inputs(target="t", draft="d", prompts=["say x"], max_tokens=8)

        @inputs
        @pytest.mark.spec_parity
        def test_parity(): pass

        @inputs
        @pytest.mark.spec_speedup(min=0.1)
        def test_speedup(): pass

        @inputs
        def test_by_hand(spec_compare):
            assert spec_compare("say y", rounds=2).parity.exact

        def test_plain(): pass
        """
    )
    (project.path / "pytest.ini").write_text("[pytest]\nspecgate_engine = fake\n")
    holds = groups_hold(project)
    result, report = workers("--dist", "loadgroup", "test_markers_and_fixtures.py", pair=False)
    result.assert_outcomes(passed=3 + holds, skipped=0)
    assert result.ret == 0
    timed = "passed" if holds else "inconclusive"
    assert sorted(statuses(report).values()) == sorted(["passed", timed])
    result.stdout.fnmatch_lines(["*= specgate =*", f"*speedup*{timed}*"])


def test_a_failure_in_a_worker(project: pytest.Pytester, workers: Workers) -> None:
    """Exit 1, and the report says what any other would."""
    with_gates(project, "parity: {}", "acceptance: {min: 0.9}")
    result, report = workers()
    assert result.ret == 1
    assert report["status"] == "failed"
    assert statuses(report)["gates.yaml::acceptance"] == "failed"


def test_a_worker_that_dies(project: pytest.Pytester, workers: Workers) -> None:
    """What the others found is reported, and that something is lost."""
    with_gates(project, "parity: {}")
    project.makepyfile("import os\ndef test_dies(): os._exit(3)\n")
    result, report = workers(
        "--max-worker-restart", "0", "gates.yaml", "test_a_worker_that_dies.py"
    )
    assert result.ret == 1
    assert report["schema"]
    result.stdout.fnmatch_lines(["*a worker ended early: what it had measured is lost*"])


def test_built_in_gates(workers: Workers) -> None:
    """The default file is no user's own in a worker either: its items are named as ever."""
    _, report = workers("--spec-prompts", "prompts.jsonl")
    assert list(map(str, sorted(statuses(report)))) == [
        "gates.yaml::latency_p95",
        "gates.yaml::memory",
        "gates.yaml::parity[a]",
        "gates.yaml::parity[b]",
        "gates.yaml::preflight",
        "gates.yaml::speedup",
    ]


def test_wrong_options_are_told_once(project: pytest.Pytester) -> None:
    """Before a worker starts."""
    result = project.runpytest_subprocess("-n", "2", *OPTIONS, "--spec-rounds", "fast")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().count("--spec-rounds") == 1


# -- undecided gates -------------------------------------------------------------------------------

NOISY = """
PAIR.seconds = lambda prompt, arm, n: 0.2 if arm == 'plain' else (0.1, 0.4)[n % 2]
"""


def rounds_of(report: dict[str, Any]) -> list[int]:
    """The number of the last round of each prompt."""
    return [case["arms"]["k=3"]["trials"][-1]["round"] for case in report["cases"]]


def test_an_undecided_gate_of_a_worker_goes_on(project: pytest.Pytester, workers: Workers) -> None:
    """The next session goes on with the worker's sample: with workers, without, run again."""
    with_faults(project, NOISY)
    with_gates(project, "parity: {}", "speedup: {min: 1.0}")
    alone = ("-n", "1", "--spec-rounds=5:6")
    _, report = workers(*alone)
    assert rounds_of(report) == [6, 6]
    result, report = workers(*alone, "--lf")
    assert statuses(report) == {"gates.yaml::speedup": "inconclusive"}
    assert rounds_of(report) == [12, 12]
    result, report = workers("-n", "0", "--lf", "--spec-rounds=5:6")
    assert statuses(report) == {"gates.yaml::speedup": "inconclusive"}
    assert rounds_of(report) == [18, 18]
    result, report = workers(*alone, "--lf", "--reruns=1", "--spec-on-inconclusive=fail")
    assert result.ret == 1
    assert rounds_of(report) == [30, 30]
    assert len(report["verdicts"]) == 1
    result.assert_outcomes(failed=1)


def test_the_last_failed_of_a_group(project: pytest.Pytester, workers: Workers) -> None:
    """Named as without workers, where xdist wrote a group behind the id."""
    with_faults(project, NOISY)
    with_gates(project, "parity: {}", "speedup: {min: 1.0}")
    workers("--dist", "loadgroup", "--spec-rounds=6")
    _, report = workers("-n", "0", "--lf", "--spec-rounds=6")
    assert statuses(report) == {"gates.yaml::speedup": "inconclusive"}
    _, report = workers("--dist", "loadgroup", "--lf", "--spec-rounds=6")
    assert [name.partition("@")[0] for name in statuses(report)] == ["gates.yaml::speedup"]


def test_one_process_reports_to_github(
    project: pytest.Pytester, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One report in the summary, one annotation a failure, at the line that workers collected."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
    with_gates(project, "parity: {}", "acceptance: {min: 1}")
    result, _ = workers("gates.yaml")
    (line,) = (line for line in result.outlines if line.startswith("::"))
    assert line.startswith("::error file=gates.yaml,line=6,title=specgate%3A acceptance (k=3) fail")
    text = (project.path / "summary.md").read_text(encoding="utf-8")
    assert text.count("## specgate: failed\n") == 1

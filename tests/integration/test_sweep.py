"""Sessions that choose among numbers of draft tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .test_scripted_sessions import OPTIONS, project, with_faults, with_gates

__all__ = ["project"]  # the fixture

# seconds a token; noise that every arm of a round has for itself
PACES = """
PACE = {"plain": 0.2, "k=1": 0.18, "k=2": 0.13, "k=3": 0.12, "k=5": 0.1, "k=8": 0.15}

def seconds(prompt, arm, number):
    noise = random.Random(f"{prompt} {arm} {number}").gauss(0, 0.004)
    return PACE[arm] * (1 + noise)

import random
PAIR.seconds = seconds
"""


def session(pytester: pytest.Pytester, *options: str) -> tuple[pytest.RunResult, dict[str, Any]]:
    result = pytester.runpytest(*OPTIONS, *options)
    path = pytester.path / "out.json"
    return result, json.loads(path.read_bytes()) if path.exists() else {}


def recommended(report: dict[str, Any]) -> dict[str, Any]:
    (verdict,) = [v for v in report["verdicts"] if v["gate"] == "recommended"]
    return dict(verdict)


def test_the_default_sweep(project: pytest.Pytester) -> None:
    """One plain arm, five others; the gate is added, and says which to use."""
    with_faults(project, PACES)
    with_gates(project, "parity: {}")
    result, report = session(project, "--spec-sweep", "gates.yaml")
    found = recommended(report)
    assert (result.ret, found["status"]) == (1, "failed")
    assert found["evidence"]["mix"]["best"] == 5
    result.stdout.fnmatch_lines(
        [
            "recommended failed: k=5 is faster than k=3 by 20.*",
            "  To do: Use --spec-num-draft-tokens 5.",
            "k *speedup *95 %*",
            "5 *recommended*",
        ]
    )
    result, report = session(project, "--spec-sweep", "--spec-num-draft-tokens=5", "gates.yaml")
    assert (result.ret, recommended(report)["reason"]) == (0, "k=5 is the best")


def test_an_arm_that_is_beaten_ends_early(project: pytest.Pytester) -> None:
    """Two close ones go on to the last round; the others stop at the least."""
    noisy = PACES.replace("0.004", "0.05").replace('"k=3": 0.12', '"k=3": 0.101')
    with_faults(project, noisy)
    with_gates(project, "parity: {}", "recommended: {max_loss: 0.005}")
    _, report = session(project, "--spec-sweep=1,3,5", "--spec-rounds=5:9", "gates.yaml")
    rounds = {r["num_draft_tokens"]: r["rounds"] for r in _candidates(report)}
    assert rounds == {1: 5, 3: 9, 5: 9}


def _candidates(report: dict[str, Any]) -> list[dict[str, Any]]:
    return list(recommended(report)["evidence"]["candidates"])


def test_a_file_says_what_to_sweep(project: pytest.Pytester) -> None:
    """The other gates judge the number in use alone."""
    with_faults(project, PACES)
    (project.path / "gates.yaml").write_text(
        "version: 1\nprompts: {file: prompts.jsonl}\ndecoding: {max_tokens: 8}\n"
        "sweep: {num_draft_tokens: [2, 8], objective: worst_kind, per_kind: false}\n"
        "gates: {speedup: {min: 1.2}, memory: {max_gb: 1}}\n"
    )
    _, report = session(project, "gates.yaml")
    assert [r["num_draft_tokens"] for r in _candidates(report)] == [2, 3, 8]
    assert {v["subject"] for v in report["verdicts"] if v["gate"] == "speedup"} == {"k=3"}
    assert "no candidate keeps to the limits: k=2: its peak" in recommended(report)["reason"]


def test_a_marker(project: pytest.Pytester) -> None:
    """The sweep stands in the command line, the gate on a test."""
    with_faults(project, PACES)
    with_gates(project, "parity: {}")
    project.makepyfile(
        test_own="""
        from pytest_specgate import spec_recommended
        @spec_recommended(max_loss=0.5)
        def test_it(): pass
        """
    )
    result, report = session(project, "--spec-sweep=3,5", "test_own.py")
    assert result.ret == 0
    assert recommended(report)["reason"] == "no candidate is faster than k=3 by 50%"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--spec-sweep=0", "--spec-sweep: sweep.num_draft_tokens *"),
        ("--spec-sweep=1,x", "--spec-sweep: must be a whole number, found the text 'x'"),
        (
            "--spec-num-draft-tokens=1,3",
            "*recommended: it judges one num_draft_tokens, found 1, 3*",
        ),
    ],
)
def test_wrong_sweeps(project: pytest.Pytester, option: str, words: str) -> None:
    with_gates(project, "recommended: {}")
    result, _ = session(project, option, "gates.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(f"ERROR: {words}")

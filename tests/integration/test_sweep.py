"""Sessions that choose among numbers of draft tokens."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models import mamba_config, save_pair

from .conftest import Gate
from .test_scan import drafts
from .test_scripted_sessions import OPTIONS, project, with_faults, with_gates

__all__ = ["drafts", "project"]  # the fixtures

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
    assert found["evidence"]["mix"]["best"] == {"draft": "d", "num_draft_tokens": 5}
    result.stdout.fnmatch_lines(
        [
            "recommended failed: k=5 is faster than k=3 by 20.*",
            "  To do: Use --spec-num-draft-tokens 5.",
            "k *speedup *95 %*",
            "5 *recommended*",
            "nothing is predicted: the engine fake cannot time single passes",
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


@pytest.mark.parametrize("isolated", [False, True], ids=["here", "isolated"])
def test_several_drafts(
    pytester: pytest.Pytester, gate: Gate, drafts: dict[str, Path], isolated: bool
) -> None:
    """Every draft with every k in the same rounds, beside one plain arm; the first one is gated."""
    names = ["draft-0.5", "draft-1"] if isolated else [n for n in drafts if n != "target"]
    (pytester.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "Say what a list is."}')
    (pytester.path / "gates.yaml").write_text(
        "version: 1\ngates: {parity: {}, recommended: {max_loss: 0.5}}\n"
    )
    result, report = gate(
        *(None, "--spec-target", str(drafts["target"])),
        *(f"--spec-draft={drafts[name]}" for name in names),
        *("--spec-prompts=prompts.jsonl", "--spec-max-tokens=24", "--spec-sweep=5"),
        *("--spec-rounds=5:5", *(["--spec-isolate"] if isolated else [])),
    )
    assert result.ret in (0, 1)  # which is fastest is a matter of time
    rows = {(r["draft"], r["num_draft_tokens"]): r for r in _candidates(report)}
    assert list(rows) == [(name, k) for name in names for k in (3, 5)]
    assert {row["rounds"] for row in rows.values()} == {5}
    assert {row["excluded"] for row in rows.values()} == {None}
    rates = {name: rows[name, 3]["acceptance_rate"] for name in names}
    assert sorted(rates.values()) == [rates[name] for name in names]
    assert rates["draft-0.5"] < rates["draft-1"] == 1.0
    (case,) = report["cases"]
    assert {len(arm["trials"]) for arm in case["arms"].values()} == {5}
    predictions = recommended(report)["evidence"]["predictions"]
    assert list(predictions) == names
    for found in predictions.values():  # replayed: every k has blocks of its own
        assert {row["origin"] for row in found["rows"]} == {"blocks"}
    assert [v["subject"] for v in report["verdicts"] if v["gate"] == "parity"] == ["a"]
    result.stdout.fnmatch_lines(["draft-0.5 3 *", "draft-1 5 *"])


def test_a_draft_that_does_not_fit_is_left_out(
    pytester: pytest.Pytester, gate: Gate, drafts: dict[str, Path], tmp_path: Path
) -> None:
    """Its pre-flight check fails: named, and the others are compared."""
    other = save_pair(tmp_path, mamba_config()) / "draft"
    (pytester.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "Say what a list is."}')
    (pytester.path / "gates.yaml").write_text("version: 1\ngates: {recommended: {max_loss: 0.5}}\n")
    _, report = gate(
        *(None, "--spec-target", str(drafts["target"]), f"--spec-draft={drafts['draft-1']}"),
        *(f"--spec-draft={other}", "--spec-prompts=prompts.jsonl", "--spec-max-tokens=8"),
        *("--spec-sweep=3", "--spec-rounds=5:5"),
    )
    sound, left = _candidates(report)
    assert (sound["excluded"], sound["rounds"]) == (None, 5)
    assert left["excluded"].startswith("a: ")
    assert "cache" in left["excluded"]


def test_several_drafts_and_another_environment(pytester: pytest.Pytester) -> None:
    """One at a time: what would be compared with what?"""
    for name in ("t", "d", "e"):
        pytester.mkdir(name)
    result = pytester.runpytest(
        *("--spec-target=t", "--spec-draft=d", "--spec-draft=e", "--spec-sweep"),
        f"--spec-against=python={sys.executable}",
    )
    assert result.ret == 4
    result.stderr.fnmatch_lines("ERROR: --spec-against: takes one draft, found 2")


CROWDED = """
from dataclasses import replace
from pytest_specgate import PairInfo
import weakref

ALIVE = weakref.WeakSet()
LOADS = []
GB = 10**9

class Sized(FakePair):
    __hash__ = object.__hash__

    @property
    def info(self):
        found = super().info
        return PairInfo(found.target, replace(found.draft, bytes=SIZE * GB))

class Many(FakeEngine):
    def load(self, inputs):
        made = Sized(seconds=seconds)
        LOADS.append(inputs.draft.short)
        ALIVE.add(made)
        with open("most", "a") as file:
            file.write(f"{len(ALIVE)} {inputs.draft.short}\\n")
        return made

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_engines():
    return {"fake": lambda: Many(PAIR)}
"""


@pytest.mark.parametrize(("size", "together", "reloaded"), [(1, 3, False), (4, 2, True)])
def test_drafts_that_do_not_fit_together(
    project: pytest.Pytester, size: int, together: int, reloaded: bool
) -> None:
    """8 GB and three drafts on a device of 20 GB: of 4 GB each one further draft is kept."""
    with_faults(project, PACES, f"SIZE = {size}", CROWDED)
    with_gates(project, "recommended: {max_loss: 0.5}")
    for name in ("e", "f"):
        project.mkdir(name)
    drafts = ("--spec-draft=e", "--spec-draft=f")
    _, report = session(project, *drafts, "--spec-sweep=1,3", "--spec-rounds=5:5", "gates.yaml")
    rows = {(r["draft"], r["num_draft_tokens"]): r["rounds"] for r in _candidates(report)}
    assert rows == dict.fromkeys(((d, k) for d in "def" for k in (1, 3)), 5)
    loads = [line.split() for line in (project.path / "most").read_text().splitlines()]
    assert max(int(alive) for alive, _ in loads) == together
    assert (len(loads) > 3) is reloaded

"""A worker that dies or hangs midway costs its own prompt, and the session is red."""

from __future__ import annotations

import execnet  # noqa: F401  # pytester forgets modules first imported inside it

from .conftest import Visit


def test_killed(visit: Visit) -> None:
    """SIGKILL in the middle of trial 3: the signal is named, and the report is whole.

    Parity was judged before the rounds, so the timing gate is what fails.
    """
    seen = visit("killed")
    assert seen.exit == 1
    assert seen.report["status"] == "failed"
    how = "round 3: the worker was ended by SIGKILL"
    assert how in seen.case["error"]
    speedup = seen.verdict("speedup")
    assert speedup["status"] == "failed"
    assert how in speedup["reason"]
    assert "Traceback" not in seen.text
    assert {
        v["subject"]: v["status"] for v in seen.report["verdicts"] if v["gate"] == "parity"
    } == {
        "case": "passed",
        "other0": "passed",
        "other1": "passed",
    }
    killed, *others = seen.report["cases"]
    assert {len(arm["trials"]) for arm in killed["arms"].values()} == {2}
    for other in others:
        assert other["error"] is None
        assert {len(arm["trials"]) for arm in other["arms"].values()} == {3}


def test_hang(visit: Visit) -> None:
    """No answer in the middle of the speculative run: killed after the timeout."""
    seen = visit("hang")
    assert seen.exit == 1
    assert seen.report["status"] == "failed"
    assert "no answer within 15 s (--spec-timeout) while generating with k=3" in seen.case["error"]
    assert {
        v["subject"]: v["status"] for v in seen.report["verdicts"] if v["gate"] == "parity"
    } == {
        "case": "failed",
        "other0": "passed",
        "other1": "passed",
    }
    hung, *others = seen.report["cases"]
    assert set(hung["arms"]) == {"plain"}
    assert all(set(other["arms"]) == {"plain", "k=3"} for other in others)

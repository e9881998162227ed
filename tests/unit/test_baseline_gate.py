"""The gate: when more rounds could decide, and what must never be green."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.baseline import Reference
from pytest_specgate.baseline.document import Baseline
from pytest_specgate.gates.against import AgainstGate
from pytest_specgate.gates.baseline import BaselineGate
from pytest_specgate.measure.evidence import Against, CaseEvidence, Evidence
from tests.baselines import FACTS, NOISY, mix, stored
from tests.fakes import make_arm, make_case, make_evidence, make_inputs, pair_info

GATE = BaselineGate()
LOUD = (1.0, 1.2, 0.8, 1.1, 0.9, 1.05)


def evidence(then: Baseline, cases: list[CaseEvidence], **more: Any) -> Evidence:
    """These cases, judged against a baseline."""
    inputs = make_inputs(tuple(case.prompt for case in cases))
    reference = Reference("a", then, None, lambda: FACTS)
    return replace(make_evidence(*cases), reference=reference, inputs=inputs, **more)


@pytest.mark.parametrize(
    ("then", "now", "speedup", "wants", "advice"),
    [
        (NOISY, LOUD, 1.93, True, "More rounds narrow it"),
        (LOUD, NOISY, 1.93, False, "The stored baseline is too noisy to judge speedup"),
        (NOISY, NOISY, 2.0, False, None),
        (NOISY, NOISY, 1.5, False, "See what changed above"),
    ],
)
def test_more_rounds_where_they_could_decide(
    then: Any, now: Any, speedup: float, wants: bool, advice: str | None
) -> None:
    """Not where the stored side's own error is the larger one: then it is said."""
    found = evidence(stored(*mix(2.0, then)), mix(speedup, now))
    options = {**GATE.defaults, "p95": None}
    assert GATE.wants_rounds(found, options, 12) is wants
    lines = GATE.judge(found, options, "k=3").advice
    assert [line[: len(advice or "")] for line in lines] == ([advice] if advice else [])


@pytest.mark.parametrize(("here", "there"), [(LOUD, NOISY), (NOISY, LOUD)])
def test_nothing_is_stored_side_by_side(here: Any, there: Any) -> None:
    """Whichever side is the noisier one, more rounds are the way."""
    gate = AgainstGate()
    other = Against("mlx-lm==0.31.1", tuple(mix(1.93, there)), None, pair_info(), lambda: FACTS)
    found = replace(evidence(stored(), mix(2.0, here)), reference=None, against=other)
    verdict = gate.judge(found, {**gate.defaults, "p95": None}, "k=3")
    assert verdict.status == "inconclusive"
    assert verdict.advice == ("More rounds narrow it: --spec-rounds 10:20.",)


def test_nothing_drafted_is_never_green() -> None:
    """Nor an output that is not deterministic, even where every figure is as stored."""
    then = stored(*mix())
    for fault in ({"drafted": False}, {"unstable": "round 1 differs"}):
        first, *rest = mix()
        arms = {**first.arms, "k=3": replace(first.arms["k=3"], **fault)}
        cases = [replace(first, arms=arms), *rest]
        if "drafted" in fault:
            cases = [
                replace(c, arms={**c.arms, "k=3": replace(c.arms["k=3"], **fault)}) for c in mix()
            ]
        assert GATE.judge(evidence(then, cases), GATE.defaults, "k=3").status == "failed"


def test_others_at_work_are_the_reason() -> None:
    """Where nothing could be timed."""
    cases = [make_case("a", make_arm(None), make_arm(3))]
    found = evidence(stored(*cases), cases, unmeasured="others are at work")
    verdict = GATE.judge(found, GATE.defaults, "k=3")
    assert (verdict.status, verdict.reason) == ("inconclusive", "others are at work")
    assert GATE.wants_rounds(found, GATE.defaults, 12) is False

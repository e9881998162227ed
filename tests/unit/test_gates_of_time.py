"""TTFT and time per output token, chances of a false alarm, and a measurement cut short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Inputs
from pytest_specgate.gates.base import judged
from pytest_specgate.gates.latency import TpotGate, TtftGate
from pytest_specgate.measure.evidence import ArmEvidence, CaseEvidence
from tests.fakes import make_arm, make_case, make_evidence

from .test_gates import ALL, EVEN, judge, mix

# -- time to the first token, and per output token -------------------------------------------------


def tail_case(
    name: str,
    plain: Sequence[tuple[float, float]],
    ours: Sequence[tuple[float, float]],
    tokens: int = 5,
) -> CaseEvidence:
    """A prompt with (TTFT, e2e) seconds of each round on both paths."""

    def arm(k: int | None, seconds: Sequence[tuple[float, float]]) -> ArmEvidence:
        made = make_arm(k, [e2e for _, e2e in seconds], tokens=range(1, tokens + 1))
        trials = zip(made.trials, seconds, strict=True)
        return replace(made, trials=tuple(replace(t, ttft_s=ttft) for t, (ttft, _) in trials))

    return make_case(name, arm(None, plain), arm(3, ours))


def test_the_figures_of_the_tail_gates() -> None:
    """TTFT, and (e2e - TTFT) / (n - 1): nothing else of the trials counts."""
    case = tail_case("a", [(0.4, 2.0)] * 60, [(0.5, 1.3)] * 60)
    expected = {"ttft": (1.25, "failed"), "tpot": (0.5, "passed"), "latency": (0.65, "passed")}
    for name, (ratio, status) in expected.items():
        verdict = judge(ALL[name], make_evidence(case), p95_max_ratio=1.0)
        assert verdict.observed == pytest.approx(ratio)
        assert (verdict.status, verdict.unit, verdict.samples) == (status, "x", 60)
    verdict = judge(ALL["tpot"], make_evidence(case), p95_max_ratio=None, p95_max_seconds=0.25)
    assert verdict.observed == pytest.approx(0.2)
    assert verdict.observed_text == "0.20 s [0.20, 0.20]"
    assert (verdict.limit, verdict.unit, verdict.limit_text) == (0.25, "s", "<= 0.25 s")


def test_small_seconds_keep_two_digits() -> None:
    """A token of a quick model takes a few milliseconds."""
    case = tail_case("a", [(0.01, 0.05)] * 60, [(0.01, 0.0236)] * 60)
    limits: dict[str, Any] = {"p95_max_ratio": None, "p95_max_seconds": 0.003}
    verdict = judge(ALL["tpot"], make_evidence(case), **limits)
    assert verdict.observed_text == "0.0034 s [0.0034, 0.0034]"
    assert verdict.reason == "p95 is 0.0034 s, limit 0.003 s"
    assert verdict.status == "failed"


def test_outputs_of_one_token_have_no_time_per_token() -> None:
    """They are left out of tpot alone; where there are no others nothing can be judged."""
    several = tail_case("a", [(0.4, 2.0)] * 60, [(0.5, 1.3)] * 60)
    single = tail_case("b", [(9.0, 9.0)] * 60, [(9.0, 9.0)] * 60, tokens=1)
    evidence = make_evidence(several, single)
    assert judge(ALL["tpot"], evidence).samples == 60
    assert judge(ALL["latency"], evidence).samples == 120
    assert judge(ALL["tpot"], evidence).observed == pytest.approx(0.5)
    assert not ALL["tpot"].wants_rounds(make_evidence(single), TpotGate.defaults, 1000)
    alone = judge(ALL["tpot"], make_evidence(single))
    assert alone.status == "failed"
    assert alone.reason == "nothing to judge: no output has this figure"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("latency", "slower with the draft: 2 prompts: b, c"),
        ("ttft", "later first token with the draft: 3 prompts: a, b, c"),
        ("tpot", "more time per token with the draft: 1 prompt: c"),
    ],
)
def test_prompts_that_lose_are_named_where_no_p95_can_be(name: str, words: str) -> None:
    """Below 60 trials they are all that can be told, so they stand in the advice as well."""
    cases = [
        tail_case("a", [(0.4, 2.0)] * 5, [(0.5, 1.3)] * 5),
        tail_case("b", [(0.4, 2.0)] * 5, [(0.9, 2.1)] * 5),
        tail_case("c", [(0.4, 2.0)] * 5, [(0.5, 2.5)] * 5),
    ]
    verdict = judge(ALL[name], make_evidence(*cases), p95_max_ratio=1.0)
    assert verdict.status == "inconclusive"
    assert words in verdict.details
    assert verdict.advice == (
        words,
        "With 3 prompts that is --spec-rounds 20; or give more prompts.",
    )
    assert verdict.false_alarm == 0


def test_ttft_needs_a_limit_of_the_users() -> None:
    """Its default says nothing; those of the others do."""
    assert "give p95_max_ratio" in (TtftGate().complaint(TtftGate.defaults, Inputs()) or "")
    assert TtftGate().complaint({**TtftGate.defaults, "p95_max_seconds": 1.0}, Inputs()) is None
    assert TpotGate().complaint(TpotGate.defaults, Inputs()) is None


# -- what could have failed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "rounds", "chance"),
    [(12, 1, 0), (12, 4, 0), (12, 5, 0.01), (1, 6, 0), (1, 7, 0.01), (2, 12, 0.01)],
)
@pytest.mark.parametrize("speedup", [0.5, 1.15, 2.0])
def test_a_speedup_that_could_not_have_failed(
    prompts: int, rounds: int, chance: float, speedup: float
) -> None:
    """Too few rounds decide nothing, so they cannot decide wrongly."""
    evidence = make_evidence(*mix(speedup, prompts=prompts, rounds=rounds))
    assert judge(ALL["speedup"], evidence).false_alarm == chance


def test_the_chance_of_each_limit_of_a_tail() -> None:
    """Both limits, one of them; facts have none."""
    evidence = make_evidence(*mix(2.0, prompts=12, rounds=5))
    for limits, chance in (
        ({"p95_max_ratio": 1.0}, 0.025),
        ({"p95_max_ratio": None, "p95_max_seconds": 9.0}, 0.05),
        ({"p95_max_ratio": 1.0, "p95_max_seconds": 9.0}, 0.075),
    ):
        assert judge(ALL["latency"], evidence, **limits).false_alarm == pytest.approx(chance)
    for name in ("memory", "acceptance"):
        assert judge(ALL[name], evidence).false_alarm == 0


# -- an unfinished measurement ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["speedup", "latency", "memory", "acceptance", "ttft", "tpot"])
def test_no_time_for_anything_is_undecided(name: str) -> None:
    """Not failed for want of a draft; a third-party gate is not even asked."""
    late = replace(make_evidence(), unmeasured="no time")
    gate = ALL[name]
    verdict = judged(gate, late, gate.defaults, "k=3")
    assert (verdict.gate, verdict.subject) == (name, "k=3")
    assert (verdict.status, verdict.reason) == ("inconclusive", "no time")


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("name", ["speedup", "latency"])
def test_an_undecided_gate_says_that_time_was_up(name: str, rounds: int) -> None:
    """Behind what it lacks."""
    late = replace(make_evidence(*mix(1.0, prompts=3, rounds=rounds)), unmeasured="no time")
    verdict = judge(ALL[name], late)
    assert verdict.status == "inconclusive"
    assert verdict.reason.endswith("; no time")


def test_a_case_without_the_arm_that_is_asked_for() -> None:
    """There was no time for it: it is no timed case, and nothing breaks."""
    plain = make_case("b", make_arm(None, EVEN))
    evidence = make_evidence(*mix(2.0), plain).for_arm(3)
    assert "b" not in [case.prompt.id for case in evidence.timed]
    for name in ("speedup", "latency", "memory"):
        assert judge(ALL[name], evidence).status == "passed"

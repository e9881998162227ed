"""The gate ``distribution`` on evidence that is made up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Draws
from pytest_specgate.engines.base import Generation, SampledScores
from pytest_specgate.gates.base import Verdict
from pytest_specgate.gates.distribution import DistributionGate
from pytest_specgate.gates.law import positions_proposed
from pytest_specgate.measure.blocks import count_blocks
from pytest_specgate.measure.drawn import derived_seed, draw, drawn_from, numbers
from pytest_specgate.measure.evidence import AGAIN, PLAIN, CaseEvidence
from pytest_specgate.measure.record import malformed_law
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from pytest_specgate.stats.sampling import TEMPERATURE_RATIOS
from tests.fakes import (
    FakeEngine,
    failed_case,
    make_arm,
    make_case,
    make_evidence,
    make_inputs,
    make_prompts,
    text_of,
)

GATE = DistributionGate()
OPTIONS = {**GATE.defaults, "seeds": 400, "prompts": 1, "distance": 0.2}
HALF = math.log(0.5)
SOUND = [1, 2] * 200


def output(tokens: list[int], flags: list[bool] | None = None, off: float = 0.0) -> Generation:
    """An observed output whose tokens have the probability 1/2; the last one is off."""
    return Generation(
        tokens=tuple(tokens),
        text=text_of(tokens),
        from_draft=tuple(flags or [False] * len(tokens)),
        token_times_s=tuple(float(i + 1) for i in range(len(tokens))),
        e2e_s=float(len(tokens)),
        finish_reason="length",
        logprobs=tuple([HALF] * (len(tokens) - 1) + [HALF + off]),
    )


def law(count: int, *, outside: float = 0.0, drawn: float = HALF, other: float = HALF) -> Any:
    """A law of two equal tokens; of the last one what is said."""
    return SampledScores(
        logprobs=(HALF,) * count,
        ulps=(1e-7,) * count,
        drawn=(*((HALF,) * (count - 1)), drawn),
        outside=(*((0.0,) * (count - 1)), outside),
        tempered=tuple((other,) * count for _ in TEMPERATURE_RATIOS),
    )


def case_of(
    *,
    plain: SampledScores | None = None,
    ours: SampledScores | None = None,
    off: float = 0.0,
    floor: float = 0.0,
    draws: list[int] = SOUND,
    again: list[int] | None = None,
    **more: Any,
) -> CaseEvidence:
    """A prompt with four whole tokens a path, and first tokens."""
    flags = [True, False, True, False]
    case = make_case("a", make_arm(None), make_arm(3))
    single = {number: output([number]) for number in {*SOUND, *draws, *(again or ())}}
    drawn = {
        (PLAIN, 0): (output([1, 2, 1, 2], off=floor),),
        ("k=3", 0): (output([1, 2, 1, 2], flags, off),),
        (PLAIN, 2): tuple(single[n] for n in SOUND[:200]),
        (AGAIN, 2): tuple(single[n] for n in again or SOUND[:200]),
        ("k=3", 2): tuple(single[n] for n in draws),
    }
    laws = {PLAIN: plain or law(4), "k=3": ours or law(4)}
    return replace(case, draws=drawn, laws=laws, **more)


def judge(case: CaseEvidence, **options: Any) -> Verdict:
    """The verdict on it."""
    return GATE.judge(make_evidence(case, temperature=0.7), {**OPTIONS, **options}, "k=3")


def test_a_sound_pair_passes() -> None:
    """Every figure is told."""
    verdict = judge(case_of())
    assert (verdict.status, verdict.kind, verdict.false_alarm) == ("passed", None, 0.01)
    assert verdict.reason == (
        "4 tokens drawn by the target's law, and the first tokens of 400 outputs as on the plain "
        "path"
    )
    assert (verdict.unit, verdict.samples) == ("p", 400)
    assert verdict.limit == pytest.approx(0.009)
    assert verdict.observed == verdict.evidence["draws"]["p_value"] > 0.1
    assert verdict.evidence["control"]["first"] == 200
    assert verdict.evidence["speculative"]["logprobs_off"] == 0
    assert [row.split()[0] for row in verdict.details] == [
        *("plain", "speculative", "noise", "draws", "control", "power"),
    ]


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        (case_of(off=0.5), "logprobs-differ", "other log probabilities: a, token 3, by 0.5 nats"),
        (case_of(ours=law(4, outside=0.5)), "sampler-differs", "leave out: a, token 3, by 0.5"),
        (case_of(ours=law(4, drawn=-40.0)), "sampler-differs", "another temperature"),
        (case_of(plain=law(4, other=3.0)), "sampler-differs", "the plain path draws at another"),
        (case_of(draws=[1, 1, 1, 2] * 100), "draws-differ", "distance 0.250"),
    ],
)
def test_what_fails(case: CaseEvidence, kind: str, words: str) -> None:
    """Each with its kind and the place."""
    verdict = judge(case)
    assert (verdict.status, verdict.kind) == ("failed", kind)
    assert words in verdict.reason
    assert len(verdict.advice) == 1


def test_a_drafted_token_that_cannot_be_the_targets() -> None:
    """Not the sampler: it was accepted unchecked, in the support or outside of it."""
    row = (HALF, HALF, -40.0, HALF)
    unlikely = replace(law(4), drawn=row, tempered=(row,) * len(TEMPERATURE_RATIOS))
    beyond = replace(law(4), outside=(0.0, 0.0, 0.5, 0.0))
    for ours in (unlikely, beyond):
        verdict = judge(case_of(ours=ours))
        assert (verdict.status, verdict.kind) == ("failed", "unchecked-drafts")


def test_rounding_is_let_through() -> None:
    """Four times the plain path's own noise; a nat at the most."""
    assert judge(case_of(floor=0.2, off=0.75)).status == "passed"
    assert judge(case_of(floor=0.2, off=0.85)).status == "failed"
    assert judge(case_of(floor=0.9, off=1.1)).status == "failed"
    assert judge(case_of(floor=0.2, ours=law(4, outside=0.75))).status == "passed"


@pytest.mark.parametrize(
    ("case", "options", "words"),
    [
        (case_of(floor=1.5), {}, "lie up to 1.5 nats from one pass"),
        (case_of(plain=law(4, other=3.0), ours=law(4, other=3.0)), {}, "both paths draw otherwise"),
        (case_of(again=[1] * 200), {}, "plain against plain already differs"),
        (case_of(), {"distance": 0.05}, "would not show a distance of 0.05"),
        (case_of(not_drawn="no such thing"), {}, "not all was drawn: no such thing"),
        (replace(case_of(), laws={}), {}, "an engine that draws and tells its law is needed"),
    ],
)
def test_what_is_undecided(case: CaseEvidence, options: dict[str, float], words: str) -> None:
    """Never green without its reason."""
    verdict = judge(case, **options)
    assert verdict.status == "inconclusive"
    assert words in verdict.reason


def test_how_many_seeds_would_do() -> None:
    """By the square of the distances."""
    verdict = judge(case_of(), distance=0.05)
    seen = verdict.evidence["draws"]["seen"]
    needed = math.ceil(400 * (seen / 0.05) ** 2)
    assert verdict.advice == (f"Give seeds: {needed}, or raise distance.",)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (failed_case("a", "it broke"), "nothing could be generated: it broke"),
        (replace(case_of(), draws={}, laws={}), "nothing was drawn"),
        (replace(case_of(), error="it broke"), "nothing could be generated: it broke"),
        (make_case("a", make_arm(None), make_arm(3, drafted=False)), "nothing was drafted"),
        (make_case("a", make_arm(None, tokens=()), make_arm(3, tokens=())), "nothing was generate"),
    ],
)
def test_nothing_to_judge(case: CaseEvidence, reason: str) -> None:
    """Failed, as everywhere."""
    verdict = judge(case)
    assert verdict.status == "failed"
    assert verdict.reason.startswith(reason)


def test_greedy_is_refused() -> None:
    """Before any model is loaded."""
    inputs = make_inputs(make_prompts("a"), 3)
    assert "nothing is drawn at temperature 0" in str(GATE.complaint(GATE.defaults, inputs))
    warm = make_inputs(make_prompts("a"), 3, temperature=0.5)
    assert GATE.complaint(GATE.defaults, warm) is None


def test_what_it_asks_for() -> None:
    """A whole output and the first tokens, beside what others ask for, and once."""
    other = Draws(5)
    inputs = replace(make_inputs(make_prompts("a"), 3), draws=(other,))
    asked = GATE.asks(OPTIONS, inputs)
    assert asked.draws == (other, Draws(1), Draws(400, 2, 1, control=True))
    assert GATE.asks(OPTIONS, asked) == asked


# -- drawing ---------------------------------------------------------------------------------------


def test_seeds_are_all_different() -> None:
    """Between prompts, arms and numbers, and other than those of another seed."""
    seeds = {
        derived_seed(seed, prompt, arm, number)
        for seed in (0, 1)
        for prompt in ("a", "b")
        for arm in (PLAIN, AGAIN, "k=1")
        for number in range(100)
    }
    assert len(seeds) == 1200
    assert max(seeds) < 2**63


def test_arms_and_prompts_of_a_sample() -> None:
    """Plain outputs are split where a control is wanted; prompts are spread over the set."""
    assert numbers(Draws(5, control=True), (1, 3)) == [
        *((PLAIN, None, 3), (AGAIN, None, 2), ("k=1", 1, 5), ("k=3", 3, 5)),
    ]
    assert numbers(Draws(5), (3,)) == [(PLAIN, None, 5), ("k=3", 3, 5)]
    campaign = Store({}, Silent(), lambda _: None).campaign(make_inputs(make_prompts("a"), 3))
    campaign.register(make_inputs(make_prompts(*"abcdefghij"), 3), rounds=0)
    records = list(campaign._records.values())
    chosen = [r.prompt.id for r in drawn_from(records, Draws(1, prompts=4))]
    assert chosen == ["a", "c", "f", "h"]
    assert len(drawn_from(records, Draws(1, prompts=40))) == len(records) == 10


def test_an_engine_that_does_not_tell_its_law() -> None:
    """The draws are made all the same, once; the law's absence is told."""
    engine = FakeEngine()
    store = Store({"fake": lambda: engine}, Silent(), lambda _: None)
    inputs = make_inputs(make_prompts("a", "b"), 3, temperature=0.5)
    inputs = GATE.asks({**OPTIONS, "seeds": 6}, inputs)
    evidence = store.campaign(inputs).distribution_pass(inputs)
    made = len(engine.pair.made)
    assert {key: len(v) for key, v in evidence.cases[0].draws.items()} == {
        (PLAIN, 0): 1,
        (PLAIN, 2): 3,
        (AGAIN, 2): 3,
        ("k=3", 0): 1,
        ("k=3", 2): 6,
    }
    assert {len(g.tokens) for g in evidence.cases[0].draws["k=3", 2]} == {2}
    assert not any(tokens for _, tokens in evidence.cases[1].draws)  # one prompt is drawn from
    assert evidence.cases[0].not_drawn == "the engine fake does not tell the target's law"
    store.campaign(inputs).distribution_pass(inputs)
    assert len(engine.pair.made) == made
    verdict = GATE.judge(evidence, {**OPTIONS, "seeds": 6}, "k=3")
    assert verdict.status == "inconclusive"
    assert "does not tell the target's law" in verdict.reason


def test_a_budget_ends_the_drawing() -> None:
    """Nothing is begun that would not fit."""

    class Spent:
        def exceeded_by(self, seconds: float) -> str:
            return "used up"

    campaign = Store({}, Silent(), lambda _: None).campaign(make_inputs(make_prompts("a"), 3))
    campaign.register(make_inputs(make_prompts("a"), 3), rounds=0)
    (record,) = campaign._records.values()
    inputs = make_inputs(make_prompts("a"), 3)
    budget: Any = Spent()
    assert draw([record], Draws(3), inputs, lambda *_, **__: output([1]), budget) == "used up"
    assert record.draws == {}


# -- parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "k", "proposed"),
    [
        ([True, True, False, False], 2, [True, True, False, True]),  # a whole block, a refusal
        ([False, False, False], 1, [True, True, True]),
        ([True, False, True], 1, [True, False, True]),
    ],
)
def test_positions_that_had_a_proposal(flags: list[bool], k: int, proposed: list[bool]) -> None:
    """Behind a block that was accepted whole the target's token had no rival."""
    blocks = count_blocks(
        flags, num_draft_tokens=k, max_tokens=len(flags) + 1, finish_reason="stop"
    )
    assert positions_proposed(blocks) == proposed


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "where SampledScores are due"),
        (replace(law(4), drawn=(HALF,)), "drawn must be a tuple of 4 numbers"),
        (replace(law(4), outside=(0.0, 0.0, 0.0, math.nan)), "outside must be numbers"),
        (replace(law(4), tempered=()), "tempered must be a tuple of"),
        (replace(law(4), tempered=((1.0,),) * len(TEMPERATURE_RATIOS)), "tempered[0] must be"),
    ],
)
def test_a_law_that_is_none(given: Any, words: str) -> None:
    """Refused as any other answer of an engine."""
    assert malformed_law(law(4), 4, len(TEMPERATURE_RATIOS)) is None
    assert words in str(malformed_law(given, 4, len(TEMPERATURE_RATIOS)))

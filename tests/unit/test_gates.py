"""Every gate on made-up evidence: passed, failed, undecided, and what must never be green."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding, Inputs
from pytest_specgate.gates import builtin_gates
from pytest_specgate.gates.acceptance import AcceptanceGate
from pytest_specgate.gates.base import BaseGate, Gate, Verdict
from pytest_specgate.gates.latency import LatencyGate
from pytest_specgate.gates.memory import MemoryGate
from pytest_specgate.gates.parity import ParityGate
from pytest_specgate.gates.speedup import SpeedupGate
from pytest_specgate.measure.blocks import Blocks
from pytest_specgate.measure.evidence import ArmEvidence, CaseEvidence, Evidence
from pytest_specgate.text import count, gigabytes, shown
from tests.fakes import (
    GB,
    engine_info,
    failed_case,
    make_arm,
    make_case,
    make_evidence,
    make_inputs,
    pair_info,
    timed_case,
)

EVEN = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
NOISY = (1.0, 1.06, 0.94, 1.04, 0.96, 1.08, 0.92)


def judge(gate: Gate, evidence: Evidence, **options: Any) -> Verdict:
    """The verdict with default options but these."""
    unknown = set(options) - set(gate.options)
    assert not unknown
    subject = evidence.cases[0].prompt.id if gate.scope == "prompt" else "k=3"
    if evidence.inputs is None:
        asked = make_inputs(tuple(case.prompt for case in evidence.cases))
        evidence = replace(evidence, inputs=gate.own(asked))
    verdict = gate.judge(evidence, {**gate.defaults, **options}, subject)
    assert verdict.gate == gate.name
    assert verdict.subject == subject
    return verdict


def mix(
    speedup: float, *, prompts: int = 12, rounds: int = 5, first: float = 1.0
) -> list[CaseEvidence]:
    """Prompts of first, 2 first, ... seconds, all exactly so much faster with the draft."""
    return [
        timed_case(f"p{i:02}", [first * i] * rounds, [first * i / speedup] * rounds, kind="python")
        for i in range(1, prompts + 1)
    ]


def differing(name: str = "odd") -> CaseEvidence:
    """A prompt whose speculative output parts at token 2; it was never timed."""
    return make_case(name, make_arm(None), make_arm(3, tokens=(1, 2, 9, 4)))


# -- what every gate must not pass -----------------------------------------------------------------

ALL = {gate.name: gate for gate in builtin_gates()}
# the others judge a session beside something else, and fail first where that is not there
ALONE = {name: gate for name, gate in ALL.items() if name not in ("baseline", "against")}
NOTHING: Mapping[str, tuple[tuple[CaseEvidence, ...], str]] = {
    "nothing drafted": (
        (
            make_case(
                "a", make_arm(None, EVEN), make_arm(3, EVEN, flags=[False] * 4, drafted=False)
            ),
        ),
        "nothing was drafted: the draft model was never called",
    ),
    "nothing drafted, calls unseen": (
        (make_case("a", make_arm(None, EVEN), make_arm(3, EVEN, flags=[False] * 4, drafted=None)),),
        "nothing was drafted: the draft model was never called",
    ),
    "nothing generated": (
        (timed_case("a", EVEN, EVEN, tokens=()),),
        "nothing was generated",
    ),
    "parity failed": (
        (differing(),),
        "",
    ),
    "an error": ((failed_case("a", "the kernel broke"),), "the kernel broke"),
    "unstable": (
        (
            make_case(
                "a", make_arm(None, EVEN), make_arm(3, EVEN, unstable="round 2 differs somewhere")
            ),
        ),
        "not deterministic: a, k=3: round 2 differs somewhere",
    ),
    "unstable plain arm": (
        (
            make_case(
                "a", make_arm(None, EVEN, unstable="round 1 differs somewhere"), make_arm(3, EVEN)
            ),
        ),
        "not deterministic: a, plain: round 1 differs somewhere",
    ),
    "broken block counts": (
        (make_case("a", make_arm(None, EVEN), make_arm(3, EVEN, broken="block 2 is odd")),),
        "",
    ),
}


@pytest.mark.parametrize("gate", ALONE.values(), ids=ALONE)
@pytest.mark.parametrize("what", NOTHING)
def test_nothing_to_judge_is_never_green(gate: Gate, what: str) -> None:
    """Failed, with the reason, and no more rounds are asked for."""
    cases, reason = NOTHING[what]
    verdict = judge(gate, make_evidence(*cases))
    assert verdict.status == "failed"
    if gate.needs != "preflight" and gate.name != "baseline":  # no output; no baseline is named
        assert reason in verdict.reason
    assert verdict.reason


@pytest.mark.parametrize("name", ["speedup", "latency", "memory", "acceptance"])
def test_nothing_left_but_prompts_that_differ(name: str) -> None:
    """The number of prompts is told, and where to look."""
    verdict = judge(ALL[name], make_evidence(differing("a"), differing("b")))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "nothing to judge: none of 2 prompts gave an output on both paths that can be trusted"
    )
    assert "parity" in verdict.advice[0]


@pytest.mark.parametrize("name", ["speedup", "latency", "memory", "acceptance"])
def test_an_unstable_prompt_spoils_the_mix(name: str) -> None:
    """One of many is enough: no figure of such a path holds."""
    unstable = make_case("z", make_arm(None), make_arm(3, unstable="round 1 differs"))
    verdict = judge(ALL[name], make_evidence(*mix(2.0), unstable))
    assert verdict.status == "failed"
    assert "z, k=3: round 1 differs" in verdict.reason


@pytest.mark.parametrize("name", ["speedup", "latency", "memory"])
def test_prompts_left_out_are_named(name: str) -> None:
    """The rest is judged; who is missing and why stands in the details."""
    cases = [*mix(2.0), differing("odd"), failed_case("bad", "no kernel")]
    verdict = judge(ALL[name], make_evidence(*cases))
    assert verdict.status == "passed"
    assert "left out: odd (its output differs)" in verdict.details
    assert "left out: bad (generating failed)" in verdict.details
    assert sum("left out" in line for line in verdict.details) == 2
    assert verdict.samples == 60


@pytest.mark.parametrize("name", ["speedup", "latency", "memory"])
def test_before_any_round(name: str) -> None:
    """Interrupted in the parity pass: undecided, with a reason."""
    verdict = judge(ALL[name], make_evidence(make_case("a", make_arm(None), make_arm(3))))
    assert verdict.status == "inconclusive"
    assert verdict.reason == "no round was completed"


@pytest.mark.parametrize("gate", ALL.values(), ids=ALL)
def test_outputs_of_one_token(gate: Gate) -> None:
    """No decode phase, no rest after the first block: nothing is divided by zero."""
    cases = [timed_case(f"p{i}", EVEN, EVEN, tokens=(1,), flags=[True]) for i in range(1)]
    trial = cases[0].plain.trials[0]
    assert trial.decode_s is None
    assert trial.decode_tokens_per_s is None
    assert trial.time_per_output_token_s is None
    verdict = judge(gate, make_evidence(*cases))
    assert verdict.status in ("passed", "failed", "inconclusive")


def lazy(name: str = "lazy") -> CaseEvidence:
    """A prompt whose speculative arm never called the draft, timed all the same."""
    arm = make_arm(3, EVEN, flags=[False] * 4, drafted=False)
    return make_case(name, make_arm(None, EVEN), arm)


def miscounted(name: str = "miscounted") -> CaseEvidence:
    """A prompt whose text agrees while its block counts do not."""
    return make_case(name, make_arm(None, EVEN), make_arm(3, EVEN, broken="block 2 is odd"))


@pytest.mark.parametrize("name", ["speedup", "latency", "memory", "acceptance"])
@pytest.mark.parametrize(
    ("case", "why"),
    [(lazy("z"), "nothing was drafted"), (miscounted("z"), "block 2 is odd")],
    ids=["not drafted", "broken counts"],
)
def test_a_prompt_that_cannot_be_trusted_is_left_out_and_named(
    name: str, case: CaseEvidence, why: str
) -> None:
    """Its text agrees, so only this line tells; the figures are those of the others."""
    alone, with_it = (
        judge(ALL[name], make_evidence(*cases), **({"min": 0.1} if name == "acceptance" else {}))
        for cases in (mix(2.0), [*mix(2.0), case])
    )
    assert with_it.status == alone.status == "passed"
    assert with_it.details == (*alone.details, f"left out: z ({why})")
    assert replace(with_it, details=alone.details) == alone


@pytest.mark.parametrize("name", ["speedup", "latency", "memory", "acceptance"])
def test_nothing_left_but_broken_counts(name: str) -> None:
    """Equal text is no trust."""
    verdict = judge(ALL[name], make_evidence(miscounted("a"), miscounted("b")))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "nothing to judge: none of 2 prompts gave an output on both paths that can be trusted"
    )


class Named(BaseGate):
    """A gate of one's own that sets only what it must."""

    name = "of_mine"


class Renamed(BaseGate):
    """A gate that judges one figure of many."""

    name, item = "of_mine", "of_mine_p95"


def test_a_gate_that_sets_only_its_name_has_an_item_of_that_name() -> None:
    """An item of its own name where it has one."""
    assert (Named.name, Named.item) == ("of_mine", "of_mine")
    assert (Renamed.name, Renamed.item) == ("of_mine", "of_mine_p95")
    assert Named().wants_rounds(make_evidence(*mix(2.0)), {}, 12) is False
    assert Named().complaint({}, Inputs()) is None


def test_the_gates_in_the_order_of_the_report() -> None:
    """Names are the keys of gates.yaml; one figure of many has its own item name."""
    assert list(ALL) == [
        *("preflight", "parity", "speedup", "latency", "memory", "acceptance"),
        *(
            "reuse",
            "options",
            "quality",
            "distribution",
            "ttft",
            "tpot",
            "baseline",
            "against",
            "recommended",
        ),
    ]
    assert ALL["latency"].item == "latency_p95"
    assert [ALL[name].scope for name in ALL] == [
        *("pair", "prompt", "arm", "arm", "arm", "arm"),
        *("prompt", "prompt", "arm", "arm", "arm", "arm", "arm", "arm", "pair"),
    ]
    assert [name for name in ALL if ALL[name].needs == "parity"] == ["parity", "acceptance"]


@pytest.mark.parametrize("gate", ALL.values(), ids=ALL)
def test_defaults_are_allowed_values(gate: Gate) -> None:
    """Each option has a default that its own check lets through unchanged."""
    assert set(gate.defaults) == set(gate.options)
    for name, spec in gate.options.items():
        assert spec(gate.defaults[name]) == gate.defaults[name]


# -- parity ----------------------------------------------------------------------------------------

GATE = ParityGate()


def test_parity_passes() -> None:
    """Two arms, both equal."""
    case = make_case("a", make_arm(None), make_arm(1), make_arm(3))
    verdict = judge(GATE, make_evidence(case))
    assert verdict.status == "passed"
    assert verdict.reason == "4 tokens equal"
    assert (verdict.observed, verdict.limit, verdict.unit, verdict.samples) == (4, 4, "tokens", 4)
    assert (verdict.observed_text, verdict.limit_text) == ("exact", "exact")
    assert verdict.evidence_text == "4 tokens"
    assert verdict.advice == ()


PLAIN_IDS = (10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)
PLAIN_TEXT = "the second clause limits the supplier's liability to a sum"


def parting(*firsts: int) -> CaseEvidence:
    """k = 1, 3, 5, ... part at these tokens."""
    arms = []
    for k, first in zip((1, 3, 5), firsts, strict=False):
        ids = (*PLAIN_IDS[:first], *(99 for _ in PLAIN_IDS[first:]))
        text = PLAIN_TEXT if ids == PLAIN_IDS else "the second clause limits the the buyer shall"
        arms.append(make_arm(k, tokens=ids, text=text))
    return make_case("sum-02", make_arm(None, tokens=PLAIN_IDS, text=PLAIN_TEXT), *arms)


def test_parity_names_the_first_difference() -> None:
    """Position, both texts around it, both lists of ids."""
    verdict = judge(GATE, make_evidence(parting(7)))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "from output token 7 on the speculative text is not the target's own (k = 1)"
    )
    assert verdict.details == (
        "plain  the second clause limits the |supplier's liability to a sum",
        "spec   the second clause limits the |the buyer shall",
        "first difference   7 (k = 1)",
        "plain ids          12 13 14 15 16 | 17 18 19 20 21",
        "spec ids           12 13 14 15 16 | 99 99 99 99 99",
    )
    assert verdict.observed == 7
    assert verdict.limit == 12
    assert verdict.observed_text == "differs"
    assert verdict.advice


def test_parity_lists_the_difference_of_every_k() -> None:
    """The first arm that parts is shown, all are listed: how it moves with k tells the cause."""
    verdict = judge(GATE, make_evidence(parting(9, 7, 3)))
    assert "(k = 1)" in verdict.reason
    assert "first difference   9 (k = 1), 7 (k = 3), 3 (k = 5)" in verdict.details
    assert verdict.observed == 3
    some = judge(GATE, make_evidence(parting(12, 7)))
    assert "(k = 3)" in some.reason
    assert "first difference   7 (k = 3)" in some.details


@pytest.mark.parametrize("shorter", ["plain", "speculative"])
def test_an_output_that_ends_early_differs_where_it_ends(shorter: str) -> None:
    """A missing end is a difference, whichever side lacks it."""
    whole, cut = (1, 2, 3, 4), (1, 2)
    plain, ours = (cut, whole) if shorter == "plain" else (whole, cut)
    case = make_case("a", make_arm(None, tokens=plain), make_arm(3, tokens=ours))
    verdict = judge(GATE, make_evidence(case))
    assert verdict.status == "failed"
    assert "from output token 2 on" in verdict.reason
    assert sum(line.endswith("1 2 | (end)") for line in verdict.details) == 1


def test_a_difference_at_the_first_token() -> None:
    """Nothing before it to show."""
    case = make_case("a", make_arm(None), make_arm(3, tokens=(9, 2, 3, 4)))
    verdict = judge(GATE, make_evidence(case))
    assert "from output token 0 on" in verdict.reason
    assert "plain ids           | 1 2 3 4" in verdict.details
    assert "spec ids            | 9 2 3 4" in verdict.details


def test_long_texts_are_cut_around_the_difference() -> None:
    """32 characters before and after."""
    plain, ours = "x" * 100 + "yes" + "p" * 100, "x" * 100 + "no" + "s" * 100
    case = make_case("a", make_arm(None, text=plain), make_arm(3, tokens=(1, 2, 9, 4), text=ours))
    verdict = judge(GATE, make_evidence(case))
    assert verdict.details[:2] == (
        f"plain  ... {'x' * 32}|yes{'p' * 29}",
        f"spec   ... {'x' * 32}|no{'s' * 30}",
    )


def test_equal_ids_with_two_texts() -> None:
    """The detokenizer is at fault, and the text is what people read: failed."""
    case = make_case("a", make_arm(None, text="one"), make_arm(3, text="two"))
    verdict = judge(GATE, make_evidence(case))
    assert verdict.status == "failed"
    assert verdict.reason == "the token ids are equal with k = 3, but the text is not"
    assert verdict.details == ("plain  one", "spec   two")


def test_nothing_is_normalised() -> None:
    """Composed and decomposed letters, a space at the end: different."""
    for other in ("caf\u0065\u0301", "caf\u00e9 "):
        case = make_case("a", make_arm(None, text="caf\u00e9"), make_arm(3, text=other))
        assert judge(GATE, make_evidence(case)).status == "failed"


ESCAPES = "a\x1b[31mred\x1b[0m\r\n\x07\u202eevil\u200b\x9b2J\x00"


def test_model_output_cannot_drive_the_terminal() -> None:
    """Escape sequences, control characters, reversals of direction: all shown, none obeyed."""
    other = make_arm(3, tokens=(1, 2, 9, 4), text=ESCAPES + "two")
    case = make_case("a", make_arm(None, text=ESCAPES + "one"), other)
    verdict = judge(GATE, make_evidence(case))
    assert all(line.isprintable() for line in verdict.details)
    assert "\\x1b[31mred\\x1b[0m\\r\\n\\x07\\u202eevil\\u200b\\x9b2J\\x00" in verdict.details[0]
    same_ids = make_case("a", make_arm(None, text=ESCAPES), make_arm(3, text=ESCAPES + "x"))
    assert all(line.isprintable() for line in judge(GATE, make_evidence(same_ids)).details)


@pytest.mark.parametrize("drafted", [True, False, None])
@pytest.mark.parametrize("ks", [(3,), (1, 3), (3, 5)])
def test_broken_counts_fail_though_the_text_agrees(
    ks: tuple[int, ...], drafted: bool | None
) -> None:
    """An output that agrees by luck is not a pass; the count that is wrong is named."""
    words = "block 2: 1 accepted, but the target's cache moved on by 3 (not rewound)"
    arms = [make_arm(k, drafted=drafted, broken=words if k == 3 else None) for k in ks]
    verdict = judge(GATE, make_evidence(make_case("a", make_arm(None), *arms)))
    assert verdict.status == "failed"
    assert verdict.reason == f"the text agrees, but the block counts do not: {words}"
    assert verdict.observed_text == "differs"
    assert "agrees by luck" in verdict.advice[0]


def test_a_difference_of_tokens_is_told_before_one_of_text() -> None:
    """k = 1 has another text for the same ids, k = 3 other ids: those are the graver fault."""
    arms = make_arm(1, text="another"), make_arm(3, tokens=(1, 2, 9, 4))
    verdict = judge(GATE, make_evidence(make_case("a", make_arm(None), *arms)))
    assert verdict.reason == (
        "from output token 2 on the speculative text is not the target's own (k = 3)"
    )
    assert "first difference   2 (k = 3)" in verdict.details
    assert verdict.observed == 2
    text_alone = judge(GATE, make_evidence(make_case("a", make_arm(None), arms[0], make_arm(3))))
    assert text_alone.reason == "the token ids are equal with k = 1, but the text is not"


def test_broken_counts_are_evidence_of_a_difference() -> None:
    """Where the text differs as well, they stand in the details."""
    arm = make_arm(3, tokens=(1, 2, 9, 4), broken="block 1 was not rewound")
    verdict = judge(GATE, make_evidence(make_case("a", make_arm(None), arm)))
    assert "block counts       block 1 was not rewound" in verdict.details


def test_parity_of_a_failed_prompt_is_the_engines_message() -> None:
    """Nothing else to say."""
    verdict = judge(GATE, make_evidence(failed_case("a", "with the draft (k=3): no trim")))
    assert (verdict.status, verdict.reason) == ("failed", "with the draft (k=3): no trim")


def test_parity_needs_temperature_zero() -> None:
    """Said before a model is loaded."""
    sampled = Inputs(decoding=Decoding(temperature=0.7))
    complaint = GATE.complaint(GATE.defaults, sampled)
    assert complaint is not None
    assert "temperature 0, found 0.7" in complaint
    assert GATE.complaint(GATE.defaults, Inputs()) is None


# -- speedup ---------------------------------------------------------------------------------------


def test_speedup_passes() -> None:
    """Exactly twice as fast on every prompt."""
    verdict = judge(SpeedupGate(), make_evidence(*mix(2.0)))
    assert verdict.status == "passed"
    assert verdict.observed == pytest.approx(2.0)
    assert verdict.spread == pytest.approx((2.0, 2.0))
    assert (verdict.limit, verdict.unit, verdict.samples) == (1.15, "x", 60)
    assert verdict.observed_text == "2.00x [2.00, 2.00]"
    assert verdict.limit_text == ">= 1.15x"
    assert verdict.evidence_text == "12 prompts, 5 rounds"


def test_speedup_fails() -> None:
    """1.05 where 1.15 is asked for; five rounds may say so, four may not."""
    verdict = judge(SpeedupGate(), make_evidence(*mix(1.05, rounds=5)))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "the speculative path is 1.05x as fast as the plain path, the limit is 1.15x"
    )
    assert verdict.advice == (
        "Try another num_draft_tokens or a smaller draft, or look at the table by kind: a draft "
        "may pay on some alone.",
    )
    early = make_evidence(*mix(1.05, rounds=4))
    assert judge(SpeedupGate(), early).status == "inconclusive"
    assert SpeedupGate().wants_rounds(early, SpeedupGate.defaults, 12)


def test_speedup_of_a_noisy_machine_is_undecided() -> None:
    """The number of rounds that would decide is told, and how to ask for them."""
    evidence = make_evidence(timed_case("a", NOISY, [1 / 1.13] * 7))
    verdict = judge(SpeedupGate(), evidence)
    assert verdict.status == "inconclusive"
    assert verdict.reason.startswith("undecided after 7 rounds: the noise (CV ")
    assert re.search(r"About (\d+) rounds .* --spec-rounds 5:\1;", verdict.advice[0])
    assert SpeedupGate().wants_rounds(evidence, SpeedupGate.defaults, 12)


@pytest.mark.parametrize(
    ("speedup", "rounds", "words"),
    [
        (1.10, 5, "below the limit of 1.15x, but with a single prompt it takes 7 rounds to fail"),
        (1.10, 6, "below the limit of 1.15x, but with a single prompt it takes 7 rounds to fail"),
        (1.16, 5, "undecided after 5 rounds: the noise (CV "),
        (1.10, 7, "undecided after 7 rounds: the noise (CV "),
    ],
)
def test_why_a_speedup_is_undecided(speedup: float, rounds: int, words: str) -> None:
    """Before round 7 a miss cannot be told, however quiet the machine is; then it is the noise."""
    evidence = make_evidence(timed_case("a", NOISY[:rounds], [1 / speedup] * rounds))
    verdict = judge(SpeedupGate(), evidence)
    assert verdict.status == "inconclusive"
    assert verdict.reason.startswith(words)


def test_rounds_that_no_one_would_wait_for() -> None:
    """A margin of nothing: no number is named that the option would refuse."""
    verdict = judge(
        SpeedupGate(), make_evidence(timed_case("a", NOISY, [1 / 1.15] * 7)), margin=0.0
    )
    assert verdict.status == "inconclusive"
    assert "--spec-rounds" not in verdict.advice[0]


def test_speedup_wants_no_more_once_decided() -> None:
    """Passed, failed, or nothing to judge: no further round."""
    gate = SpeedupGate()
    for cases in (mix(2.0), mix(0.5, rounds=7), [differing()], [failed_case("a", "no")]):
        assert not gate.wants_rounds(make_evidence(*cases), gate.defaults, 12)


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_few_rounds_cannot_decide_a_speedup(rounds: int) -> None:
    """However clear it looks."""
    verdict = judge(SpeedupGate(), make_evidence(*mix(9.0, rounds=rounds)))
    assert verdict.status == "inconclusive"
    assert verdict.reason == f"{rounds} rounds cannot decide: it takes 5"
    assert verdict.advice == ("Run again with --spec-rounds 5:12",)


def test_one_round_has_no_spread() -> None:
    """The figure is shown without an interval."""
    verdict = judge(SpeedupGate(), make_evidence(*mix(3.0, rounds=1)))
    assert verdict.status == "inconclusive"
    assert verdict.observed == pytest.approx(3.0)
    assert verdict.spread is None
    assert verdict.observed_text == "3.00x"
    assert verdict.evidence_text == "12 prompts, 1 round"


def test_speedup_with_other_limits() -> None:
    """min and margin are what they are given as."""
    evidence = make_evidence(*mix(1.05, rounds=7))
    assert judge(SpeedupGate(), evidence, min=1.0).status == "passed"
    assert judge(SpeedupGate(), evidence, min=1.06, margin=0.0).status == "failed"
    assert judge(SpeedupGate(), evidence, min=1.06, margin=0.03).status == "passed"


def test_only_complete_rounds_count() -> None:
    """After an interrupt one prompt has a round more: it is cut."""
    cases = [timed_case("a", [1.0] * 6, [0.5] * 6), timed_case("b", [1.0] * 5, [0.5] * 5)]
    verdict = judge(SpeedupGate(), make_evidence(*cases))
    assert verdict.evidence_text == "2 prompts, 5 rounds"
    assert verdict.samples == 10


def test_sampled_outputs_are_compared_by_the_token() -> None:
    """Twice the tokens in the same time is twice as fast; at temperature 0 it is a difference."""
    case = make_case(
        "a",
        make_arm(None, [1.0] * 5, tokens=(1, 2)),
        make_arm(3, [1.0] * 5, tokens=(1, 2, 3, 4)),
    )
    verdict = judge(SpeedupGate(), make_evidence(case, temperature=0.8))
    assert verdict.status == "passed"
    assert verdict.observed == pytest.approx(2.0)
    assert judge(SpeedupGate(), make_evidence(case)).status == "failed"


@pytest.mark.parametrize("gate", [SpeedupGate(), LatencyGate()])
def test_an_output_of_one_token_has_no_decode(gate: Gate) -> None:
    """It is timed end to end, and said where a figure of decoding would be."""
    short = timed_case("eos", [1.0] * 6, [0.5] * 6, tokens=(1,))
    wrong = make_case("off", make_arm(None, tokens=(1,)), make_arm(3, tokens=(2,)))
    verdict = judge(gate, make_evidence(*mix(2.0, rounds=6), short, wrong))
    assert verdict.details[-2:] == (
        "too short to time: eos (1 token): its decode time is not defined",
        "left out: off (its output differs)",
    )
    assert (verdict.status, verdict.samples) == ("passed", 13 * 6)
    assert not any("short" in line for line in judge(gate, make_evidence(*mix(2.0))).details)


# -- latency ---------------------------------------------------------------------------------------


def test_latency_passes() -> None:
    """60 trials an arm, half the time."""
    verdict = judge(LatencyGate(), make_evidence(*mix(2.0)))
    assert verdict.status == "passed"
    assert verdict.observed == pytest.approx(0.5)
    assert verdict.spread == pytest.approx((0.5, 0.5))
    assert (verdict.limit, verdict.unit, verdict.samples) == (1.0, "x", 60)
    assert verdict.observed_text == "0.50x [0.50, 0.50]"
    assert verdict.limit_text == "<= 1.00x"
    assert verdict.evidence_text == "60 trials an arm"
    assert verdict.details[0].startswith("p95 plain ")
    assert not any("slower" in line for line in verdict.details)


def test_latency_fails_and_names_the_slow_prompts() -> None:
    """One slow long prompt makes the tail; it is named."""
    cases = [*mix(2.0, prompts=11), timed_case("long", [30.0] * 6, [60.0] * 6)]
    verdict = judge(LatencyGate(), make_evidence(*cases))
    assert verdict.status == "failed"
    assert verdict.observed is not None
    assert verdict.observed > 1
    assert "slower with the draft: 1 prompt: long" in verdict.details
    assert verdict.advice


def test_only_the_first_slow_prompts_are_named() -> None:
    """Eight names at most."""
    verdict = judge(LatencyGate(), make_evidence(*mix(0.5)))
    slow = next(line for line in verdict.details if line.startswith("slower"))
    assert slow == (
        "slower with the draft: 12 prompts: p01, p02, p03, p04, p05, p06, p07, p08, ..."
    )


def test_latency_within_the_tolerance() -> None:
    """Without noise: at 1.04 above the limit itself, so failed; at 0.99 passed."""
    assert judge(LatencyGate(), make_evidence(*mix(1 / 1.04))).status == "failed"
    assert judge(LatencyGate(), make_evidence(*mix(1 / 0.99))).status == "passed"


def test_latency_of_a_noisy_mix_is_undecided() -> None:
    """Equal arms with independent noise."""
    noise = [0.6, 1.4, 0.8, 1.2, 1.6]
    cases = [
        timed_case(
            f"p{i}", noise[i % 5 :] + noise[: i % 5], noise[(i + 2) % 5 :] + noise[: (i + 2) % 5]
        )
        for i in range(12)
    ]
    verdict = judge(LatencyGate(), make_evidence(*cases), tolerance=0.0)
    assert verdict.status == "inconclusive"
    assert verdict.advice == ("More trials narrow it: --spec-rounds 10",)


@pytest.mark.parametrize(
    ("prompts", "rounds", "needed"), [(9, 1, 7), (1, 59, 60), (11, 5, 6), (60, 1, 2), (100, 1, 2)]
)
def test_below_sixty_trials_only_the_largest_is_shown(
    prompts: int, rounds: int, needed: int
) -> None:
    """Labelled as what it is, and how many rounds it takes."""
    trials = prompts * rounds
    verdict = judge(LatencyGate(), make_evidence(*mix(2.0, prompts=prompts, rounds=rounds)))
    assert verdict.status == "inconclusive"
    assert verdict.observed_text == f"{prompts / 2:.2f} s (max of {trials})"
    of = f"{trials} trials in {rounds} round{'' if rounds == 1 else 's'}"
    assert verdict.reason == (
        f"p95 cannot be estimated from {of}: it takes 60 trials an arm in at least 2 rounds"
    )
    assert f"--spec-rounds {needed};" in verdict.advice[0]
    assert verdict.observed is None  # the largest in seconds is no ratio


def test_below_sixty_trials_a_limit_in_seconds_is_undecided_too() -> None:
    """Even where the largest is far under it."""
    evidence = make_evidence(*mix(2.0, prompts=9, rounds=1))
    verdict = judge(LatencyGate(), evidence, p95_max_ratio=None, p95_max_seconds=1e6)
    assert verdict.status == "inconclusive"
    assert (verdict.observed, verdict.unit) == (4.5, "s")


def test_sixty_trials_of_one_round_have_no_error() -> None:
    """A bootstrap over a single round would know no noise."""
    verdict = judge(LatencyGate(), make_evidence(*mix(2.0, prompts=60, rounds=1)))
    assert verdict.status == "inconclusive"


def test_a_limit_in_seconds_alone() -> None:
    """Of 60 trials the bound of p95 is the largest: 6 s."""
    evidence = make_evidence(*mix(2.0))
    only: dict[str, Any] = {"p95_max_ratio": None}
    passed = judge(LatencyGate(), evidence, **only, p95_max_seconds=6.0)
    assert passed.status == "passed"
    assert (passed.limit, passed.unit, passed.limit_text) == (6.0, "s", "<= 6 s")
    assert passed.observed is not None
    assert 5 < passed.observed <= 6
    assert passed.spread is not None
    assert passed.spread[1] == 6.0
    assert judge(LatencyGate(), evidence, **only, p95_max_seconds=5.9).status == "inconclusive"
    failed = judge(LatencyGate(), evidence, **only, p95_max_seconds=1.0)
    assert failed.status == "failed"
    assert failed.reason.endswith(" s, limit 1 s")


def test_both_limits_the_worse_one_counts() -> None:
    """The ratio is good, the seconds are not, and the other way round."""
    evidence = make_evidence(*mix(2.0))
    both = judge(LatencyGate(), evidence, p95_max_seconds=1.0)
    assert both.status == "failed"
    assert both.limit_text == "<= 1.00x, <= 1 s"
    assert both.reason.count(";") == 1
    assert (both.unit, both.limit) == ("x", 1.0)
    assert both.observed == pytest.approx(0.5)
    assert judge(LatencyGate(), evidence, p95_max_seconds=5.9).status == "inconclusive"
    assert judge(LatencyGate(), evidence, p95_max_seconds=6.0).status == "passed"
    slow = make_evidence(*mix(0.5))
    assert judge(LatencyGate(), slow, p95_max_seconds=1e6).status == "failed"


def test_latency_wants_rounds_up_to_sixty_trials() -> None:
    """Never for a better verdict."""
    gate = LatencyGate()
    cases = ((11, 5, True), (12, 5, False), (1, 59, True), (1, 60, False), (2, 29, True))
    for prompts, rounds, wants in cases:
        evidence = make_evidence(*mix(1.0, prompts=prompts, rounds=rounds))
        assert gate.wants_rounds(evidence, gate.defaults, 60) is wants
    assert not gate.wants_rounds(make_evidence(differing()), gate.defaults, 1000)


@pytest.mark.parametrize(
    ("prompts", "most", "wants"),
    [(5, 12, True), (5, 11, False), (4, 15, True), (4, 14, False), (1, 59, False), (1, 60, True)],
)
def test_latency_wants_no_round_where_sixty_trials_are_out_of_reach(
    prompts: int, most: int, wants: bool
) -> None:
    """No maximum of rounds would decide it: none is spent."""
    evidence = make_evidence(*mix(1.0, prompts=prompts, rounds=5))
    assert LatencyGate().wants_rounds(evidence, LatencyGate.defaults, most) is wants


@pytest.mark.parametrize(("rounds", "wants"), [(1, True), (2, False), (3, False)])
@pytest.mark.parametrize("prompts", [60, 61, 100])
def test_latency_needs_two_rounds_however_many_prompts(
    prompts: int, rounds: int, wants: bool
) -> None:
    """A single round has no spread."""
    evidence = make_evidence(*mix(1.0, prompts=prompts, rounds=rounds))
    assert LatencyGate().wants_rounds(evidence, LatencyGate.defaults, 12) is wants
    verdict = judge(LatencyGate(), evidence, p95_max_ratio=1.5)
    assert verdict.status == ("inconclusive" if wants else "passed")


def test_latency_without_a_limit() -> None:
    """Refused before any model."""
    none = {"p95_max_ratio": None, "p95_max_seconds": None, "tolerance": 0.05}
    assert "nothing to judge" in (LatencyGate().complaint(none, Inputs()) or "")
    assert LatencyGate().complaint({**none, "p95_max_seconds": 2.0}, Inputs()) is None
    assert LatencyGate().complaint(LatencyGate.defaults, Inputs()) is None


# -- memory ----------------------------------------------------------------------------------------


def memory(plain: int | None, ours: int | None, **more: Any) -> Evidence:
    """One prompt with these peaks; the draft holds 1 GB, the device 20 GB."""
    case = make_case("a", make_arm(None, EVEN, peak=plain), make_arm(3, EVEN, peak=ours))
    return make_evidence(case, **more)


PEAKS = memory(10 * GB, 10_800_000_000)


def test_memory_passes() -> None:
    """Peak 10.8 GB of 20; the plain path alone would take 9, so the draft costs 1.8."""
    verdict = judge(MemoryGate(), PEAKS)
    assert verdict.status == "passed"
    assert verdict.reason == "peak 10.80 GB"
    assert (verdict.observed, verdict.limit, verdict.unit) == (10.8, None, "GB")
    assert verdict.observed_text == "10.80 GB (draft +1.80 GB)"
    assert verdict.limit_text == ">= 10% free"
    assert verdict.evidence_text == "headroom 46%"
    assert verdict.evidence["ratio"] == pytest.approx(1.2)
    assert verdict.evidence["headroom"] == pytest.approx(0.46)
    assert verdict.evidence["plain_peak_bytes_without_draft"] == 9 * GB
    assert verdict.details[0] == "weights 9.00 GB, KV caches 0.30 GB, working 1.50 GB"


@pytest.mark.parametrize(
    ("limit", "status"), [(1.25, "passed"), (1.21, "passed"), (1.19, "failed")]
)
def test_memory_ratio_leaves_the_idle_draft_out(limit: float, status: str) -> None:
    """10.8 / (10 - 1) = 1.2, not 1.08."""
    assert judge(MemoryGate(), PEAKS, max_ratio=limit).status == status


def test_memory_budget() -> None:
    """10.8 GB against 10.7 and 12."""
    failed = judge(MemoryGate(), PEAKS, max_gb=10.7)
    assert failed.status == "failed"
    assert failed.reason == "the peak is 10.800 GB"
    assert failed.limit == 10.7
    assert failed.limit_text == "<= 10.7 GB, >= 10% free"
    assert failed.advice
    assert judge(MemoryGate(), PEAKS, max_gb=12.0).status == "passed"


def test_memory_near_a_limit_is_noted() -> None:
    """Passed, but within 2 %: the next release may not be."""
    near = judge(MemoryGate(), PEAKS, max_gb=10.9, max_ratio=1.21, headroom=0.45)
    assert near.status == "passed"
    assert near.reason == (
        "the peak is within 2 % of its limit; the ratio is within 2 % of its limit; "
        "headroom is within 2 % of its limit"
    )
    far = judge(MemoryGate(), PEAKS, max_gb=11.1, max_ratio=1.25, headroom=0.43)
    assert far.reason == "peak 10.80 GB"


def test_memory_headroom() -> None:
    """46 % free."""
    verdict = judge(MemoryGate(), PEAKS, headroom=0.5)
    assert verdict.status == "failed"
    assert verdict.reason == "only 46% of the memory limit stays free"
    unknown = judge(MemoryGate(), replace(PEAKS, engine=engine_info(0)))
    assert unknown.status == "failed"
    assert "not known" in unknown.reason
    none = judge(MemoryGate(), replace(PEAKS, engine=engine_info(0)), headroom=None, max_gb=11.5)
    assert none.status == "passed"


def test_memory_swap_growth() -> None:
    """More than the limit is a failure even where the peak is small."""
    grown = memory(10 * GB, 10 * GB, swap_growth_bytes=600_000_000)
    verdict = judge(MemoryGate(), grown)
    assert verdict.status == "failed"
    assert verdict.reason == "swap in use grew by 0.60 GB during the trials"
    assert judge(MemoryGate(), grown, max_swap_growth_gb=0.7).status == "passed"
    assert judge(MemoryGate(), grown, max_swap_growth_gb=None).status == "passed"
    for swap in (None, -(10**9), 0):
        quiet = memory(10 * GB, 10 * GB, swap_growth_bytes=swap)
        assert judge(MemoryGate(), quiet).status == "passed"


def test_memory_fails_for_every_reason_at_once() -> None:
    """All reasons in one sentence."""
    grown = replace(PEAKS, swap_growth_bytes=GB)
    verdict = judge(MemoryGate(), grown, max_gb=1.0, max_ratio=1.0, headroom=0.9)
    assert verdict.reason.count(";") == 3


def test_one_trial_above_the_budget_fails() -> None:
    """A fact, not a sample: the largest of all trials and prompts."""
    large = make_case("b", make_arm(None, EVEN, peak=10 * GB), make_arm(3, EVEN, peak=15 * GB))
    evidence = make_evidence(*PEAKS.cases, large)
    assert judge(MemoryGate(), evidence, max_gb=12.0).status == "failed"
    assert judge(MemoryGate(), evidence).observed == 15.0


def test_memory_that_the_engine_does_not_report() -> None:
    """Undecided, never green."""
    verdict = judge(MemoryGate(), memory(None, None))
    assert (verdict.status, verdict.reason) == ("inconclusive", "the engine reports no memory")


def test_memory_of_a_draft_as_large_as_everything() -> None:
    """The plain path's own memory cannot be told: no ratio is made up."""
    tiny = memory(10**9, 2 * 10**9, pair=pair_info(10**8, 2 * 10**9))
    assert judge(MemoryGate(), tiny).status == "passed"
    verdict = judge(MemoryGate(), tiny, max_ratio=3.0)
    assert verdict.status == "failed"
    assert "cannot be told" in verdict.reason


@pytest.mark.parametrize("plain", [10 * GB, 11 * GB, 11_800_000_000, 11_900_000_000, 20 * GB])
def test_memory_costs_are_never_below_nothing(plain: int) -> None:
    """Where the plain path held as much or more, the draft costs nothing that could be shown."""
    verdict = judge(MemoryGate(), memory(plain, 10_800_000_000))
    cost = 10_800_000_000 - (plain - GB)
    more = f" (draft +{gigabytes(cost)})" if cost > 0 else ""
    assert verdict.observed_text == f"10.80 GB{more}"
    assert "+-" not in verdict.observed_text


def test_memory_without_a_limit() -> None:
    """Refused before any model."""
    none: dict[str, Any] = dict.fromkeys(MemoryGate.options)
    complaint = MemoryGate().complaint(none, Inputs())
    assert complaint is not None
    assert "max_gb, max_ratio, headroom, max_swap_growth_gb" in complaint
    for name in none:
        assert MemoryGate().complaint({**none, name: 0.5}, Inputs()) is None


# -- acceptance ------------------------------------------------------------------------------------

# blocks of k = 3 over four tokens: 3 proposed and 1 accepted, 2 proposed and 1 accepted
TWO_OF_FIVE = make_evidence(make_case("a", make_arm(None), make_arm(3)))


@pytest.mark.parametrize(("least", "status"), [(0.39, "passed"), (0.4, "passed"), (0.41, "failed")])
def test_acceptance_at_the_limit(least: float, status: str) -> None:
    """2 of 5: exactly the limit is enough."""
    verdict = judge(AcceptanceGate(), TWO_OF_FIVE, min=least)
    assert verdict.status == status
    assert (verdict.observed, verdict.samples) == (0.4, 5)
    assert verdict.observed_text == "0.400"
    assert verdict.limit_text == f">= {least:.2f}"
    assert verdict.evidence_text == "5 proposals"
    assert verdict.details == (
        "accepted 2 of 5 proposed tokens in 2 blocks",
        "mean accept length 1.00",
    )


def test_acceptance_weighs_proposals_not_prompts() -> None:
    """2 of 5 and 0 of 9: 2 / 14."""
    none = make_case("b", make_arm(None), make_arm(3, flags=[False] * 4))
    evidence = make_evidence(*TWO_OF_FIVE.cases, none)
    verdict = judge(AcceptanceGate(), evidence, min=0.1)
    assert verdict.observed == 2 / (5 + 3 + 3 + 2 + 1)


def test_acceptance_leaves_wrong_outputs_out() -> None:
    """Four of four in an output that is not the target's own: no merit of the draft."""
    wrong = make_arm(3, tokens=(1, 2, 9, 4), flags=[True, True, True, False])
    evidence = make_evidence(*TWO_OF_FIVE.cases, make_case("odd", make_arm(None), wrong))
    verdict = judge(AcceptanceGate(), evidence, min=0.4)
    assert (verdict.observed, verdict.samples) == (0.4, 5)
    assert verdict.details == (
        "accepted 2 of 5 proposed tokens in 2 blocks",
        "mean accept length 1.00",
        "left out: odd (its output differs)",
    )
    assert judge(AcceptanceGate(), evidence, min=0.41).status == "failed"
    assert evidence.acceptance_rate == 5 / 8  # what was generated, whatever it is worth


def test_acceptance_of_one_cut_block() -> None:
    """No block was closed: no mean length is made up."""
    arm = make_arm(3, flags=[True, True, True], tokens=(1, 2, 3))
    evidence = make_evidence(make_case("a", make_arm(None, tokens=(1, 2, 3)), arm))
    verdict = judge(AcceptanceGate(), evidence)
    assert verdict.status == "passed"
    assert verdict.details == ("accepted 3 of 3 proposed tokens in 1 block", "all cut short")


def test_acceptance_without_a_proposal() -> None:
    """The draft was called, but proposed nothing."""
    arm: ArmEvidence = replace(make_arm(3), blocks=Blocks())
    verdict = judge(AcceptanceGate(), make_evidence(make_case("a", make_arm(None), arm)))
    assert verdict.status == "failed"
    assert verdict.reason == "nothing was drafted: no token was proposed"


# -- evidence of several k -------------------------------------------------------------------------

SEVERAL = make_evidence(
    make_case(
        "a",
        make_arm(None, [1.0] * 5),
        make_arm(1, [0.5] * 5, flags=[True, False, True, False]),
        make_arm(3, [0.25] * 5, flags=[True, True, True, False]),
    )
)
FIGURES: Mapping[str, Callable[[Evidence], object]] = {
    "blocks": lambda e: e.blocks,
    "usable_blocks": lambda e: e.usable_blocks,
    "acceptance_rate": lambda e: e.acceptance_rate,
    "draft_share": lambda e: e.draft_share,
    "speedup": lambda e: e.speedup,
    "ratios": lambda e: e.ratios(),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_of_several_k_do_not_mix(figure: str) -> None:
    """A mean over k = 1 and k = 3 would be the figure of neither."""
    with pytest.raises(ValueError, match=r"k = 1, 3 do not mix: .*for_arm\(k\)"):
        FIGURES[figure](SEVERAL)
    FIGURES[figure](SEVERAL.for_arm(1))


def test_evidence_is_cut_to_one_k() -> None:
    """Each k has its own figures beside the same plain arm."""
    assert SEVERAL.num_draft_tokens == (1, 3)
    one, three = SEVERAL.for_arm(1), SEVERAL.for_arm(3)
    assert (one.num_draft_tokens, three.num_draft_tokens) == ((1,), (3,))
    assert list(three.cases[0].arms) == ["plain", "k=3"]
    assert (one.speedup, three.speedup) == (2.0, 4.0)
    assert (one.ratios(), three.ratios()) == ({"a": [2.0] * 5}, {"a": [4.0] * 5})
    assert (one.acceptance_rate, three.acceptance_rate) == (1.0, 1.0)
    assert (one.draft_share, three.draft_share) == (0.5, 0.75)
    assert (one.blocks.proposed, three.blocks.proposed) == (2, 3)
    assert three.usable_blocks == three.blocks
    assert SEVERAL.exact  # what holds for every k may be asked of all at once
    assert [case.prompt.id for case in SEVERAL.timed] == ["a"]
    assert SEVERAL.for_arm(5).num_draft_tokens == ()


# -- words -----------------------------------------------------------------------------------------


def test_words() -> None:
    """One form each."""
    assert [count(n, "prompt") for n in (0, 1, 2, 6144)] == [
        "0 prompts",
        "1 prompt",
        "2 prompts",
        "6,144 prompts",
    ]
    assert [gigabytes(n) for n in (0, 9_999_999, 10**7, 5_124_000_000)] == [
        "0.0 MB",
        "10.0 MB",
        "0.01 GB",
        "5.12 GB",
    ]


@pytest.mark.parametrize("text", ["plain 水 é 🙂", "", " a  b ", "C:\\new 'x' \"y\"", "e\u0301"])
def test_text_with_a_shape_is_shown_as_it_is(text: str) -> None:
    """Backslashes and quotes as well: it is text, not source."""
    assert shown(text) == text


@pytest.mark.parametrize(
    ("character", "escaped"),
    [
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
        ("\x85", "\\x85"),
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("\t", "\\t"),
        ("\0", "\\x00"),
        ("\x1b", "\\x1b"),
        ("\x7f", "\\x7f"),
        ("\x9b", "\\x9b"),
        ("\u200b", "\\u200b"),
        ("\u202e", "\\u202e"),
        ("\ufeff", "\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\ue000", "\\ue000"),
        ("\ufffe", "\\ufffe"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_a_character_without_a_shape_is_escaped(character: str, escaped: str) -> None:
    """Line and paragraph separators too: what is shown stays on one line."""
    line = shown(f"a{character}b")
    assert line == f"a{escaped}b"
    assert line.isprintable()
    assert len(line.splitlines()) == 1

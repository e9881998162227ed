"""gates/parity_words.py: how a parity failure reads, word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.engines.base import Scores
from pytest_specgate.gates.parity_words import (
    ADVICE,
    continuations,
    evidence_of,
    first_differences,
    sentence,
    signals,
    token_ids,
)
from pytest_specgate.measure.diagnosis import Check, Diagnosis
from pytest_specgate.measure.evidence import ArmEvidence, CaseEvidence
from tests.fakes import make_arm, make_case, pair_info

PLAIN = make_arm(None, tokens=(1, 2, 3, 4, 5, 6, 7, 8, 9), text="the plain text ends so")
SCORES = Scores(
    logprobs=(-0.5,) * 4,
    gaps=(0.0, 0.0, 0.25, 3.0),
    margins=(2.0, 2.0, 0.125, 4.0),
    ulps=(0.1,) * 4,
)
DIAGNOSIS = Diagnosis(
    plain_repeats=True,
    speculative_repeats=True,
    zero_draft_equal=True,
    differences={1: None, 3: 2, 7: 2},
    drift=((0, 0), (3, 0)),
    check=Check(SCORES, floor=0.0625, ties=(2,), wide=(3,)),
)


def arm_with(diagnosis: Diagnosis | None = DIAGNOSIS, **more: Any) -> ArmEvidence:
    """k = 3; four tokens, which part at the third."""
    arm = make_arm(3, tokens=(1, 2, 30, 40), text="the plain fault", **more)
    return replace(arm, diagnosis=diagnosis)


def case_of(arm: ArmEvidence) -> CaseEvidence:
    """A prompt of eight tokens with both paths."""
    return make_case("a", PLAIN, arm)


# -- the sentence ----------------------------------------------------------------------------------

ELSEWHERE = "from output token 2 on the speculative text is not the target's own (k = 3)"


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("unexplained", {}, ELSEWHERE),
        (
            "cache-corruption",
            {"drift": ((0, 0), (3, 0), (5, 2))},
            "the target's cache stops rewinding once 13 tokens are held (k = 3)",
        ),
        ("cache-corruption", {}, f"{ELSEWHERE[:-8]}, and sooner for larger k (k = 3)"),
        (
            "near-tie",
            {},
            "the outputs part at token 2, where the best two lie 0.12 nats apart",
        ),
        ("near-tie", {"check": None}, "the outputs part at token 2"),
        (
            "options-differ",
            {},
            "the speculative path differs from token 2 on even without proposals",
        ),
        ("non-deterministic", {}, "the speculative path gave two outputs for the same input"),
        (
            "non-deterministic",
            {"plain_repeats": False},
            "the plain path gave two outputs for the same input",
        ),
    ],
)
def test_one_sentence_a_kind(kind: str, more: dict[str, Any], words: str) -> None:
    """The kind itself stands before it."""
    arm = arm_with(replace(DIAGNOSIS, **more))
    assert sentence(kind, case_of(arm), arm, 2) == words
    assert kind in ADVICE


def test_the_sentence_about_an_id_out_of_range() -> None:
    """The id is told."""
    arm = arm_with()
    arm = replace(arm, generation=replace(arm.generation, largest_proposal=1234))
    assert sentence("out-of-range-ids", case_of(arm), arm, 2) == (
        "the draft proposes id 1234, beyond the target's"
    )


def test_an_output_that_only_ends_sooner_has_no_token_there() -> None:
    """Four tokens were scored; the plain output goes on with a fifth."""
    arm = arm_with()
    assert sentence("near-tie", case_of(arm), arm, 4) == "the outputs part at token 4"


def test_a_difference_without_a_diagnosis() -> None:
    """Where the engine broke while it was run again."""
    arm = arm_with(None)
    assert sentence(None, case_of(arm), arm, 2) == ELSEWHERE
    assert signals(None, case_of(arm), arm, None) == []
    broken = arm_with(None, broken="one block too many")
    assert signals(None, case_of(broken), broken, None) == ["block counts       one block too many"]


# -- both outputs ----------------------------------------------------------------------------------


def test_both_texts_around_the_first_character_that_differs() -> None:
    """32 characters before and after, in one column."""
    arm = arm_with()
    assert continuations(case_of(arm), arm) == [
        "plain  the plain |text ends so",
        "spec   the plain |fault",
    ]


def test_long_texts_are_cut_on_both_sides() -> None:
    """What was cut before is marked."""
    plain = replace(PLAIN, generation=replace(PLAIN.generation, text="x" * 40 + "y" * 40))
    arm = arm_with()
    arm = replace(arm, generation=replace(arm.generation, text="x" * 40))
    assert continuations(make_case("a", plain, arm), arm) == [
        f"plain  ... {'x' * 32}|{'y' * 32}",
        f"spec   ... {'x' * 32}|",
    ]


def test_texts_cannot_drive_the_terminal() -> None:
    """Escaped after they were cut, so that the place stays right."""
    plain = replace(PLAIN, generation=replace(PLAIN.generation, text="a\nb"))
    arm = arm_with()
    arm = replace(arm, generation=replace(arm.generation, text="a\x1bb"))
    assert continuations(make_case("a", plain, arm), arm) == ["plain  a|\\nb", "spec   a|\\x1bb"]


def test_the_ids_around_the_first_token_that_differs() -> None:
    """Five before and five after, or the end."""
    arm = arm_with()
    assert token_ids(case_of(arm), arm, 2) == [
        "plain ids          1 2 | 3 4 5 6 7",
        "spec ids           1 2 | 30 40",
    ]
    assert token_ids(case_of(arm), arm, 4) == [
        "plain ids          1 2 3 4 | 5 6 7 8 9",
        "spec ids           1 2 30 40 | (end)",
    ]


# -- the signals -----------------------------------------------------------------------------------


def test_where_each_k_parts() -> None:
    """Those that were measured and those run for the diagnosis, k rising."""
    arm = arm_with()
    assert first_differences(case_of(arm), arm) == (
        "first difference   none (k = 1), 2 (k = 3), 2 (k = 7)"
    )
    moving = arm_with(replace(DIAGNOSIS, differences={1: 5, 3: 2}))
    assert first_differences(case_of(moving), moving) == (
        "first difference   5 (k = 1), 2 (k = 3): moves with k, so not rounding"
    )
    alone = arm_with(None)
    assert first_differences(case_of(alone), alone) == "first difference   2 (k = 3)"


def test_the_rows_of_evidence() -> None:
    """The plain path's own margins are 1, 3 and 2 nats: usually 2."""
    plain = replace(PLAIN, generation=replace(PLAIN.generation, margins=(1.0, 3.0, 2.0)))
    arm = arm_with()
    assert signals("unexplained", make_case("a", plain, arm), arm, pair_info()) == [
        "run again          plain equal, speculative equal, k = 0 equal",
        "top-2 gap there    0.12 nats, usually 2, noise floor 0.062",
        "teacher-forced     1 of 4 tokens wrong, widest gap 3 nats",
        "cache ledger       constant",
    ]


@pytest.mark.parametrize(
    ("drift", "words"),
    [
        ((), "not seen"),
        (((0, 0), (4, 0)), "constant"),
        (((0, 0), (4, 1)), "+0 until token 4, then +1 .. +1"),
        (((0, 0), (4, 1), (6, 0), (9, 14)), "+0 until token 4, then +1 .. +14"),
        (((0, 0), (4, -2), (6, -5)), "+0 until token 4, then -5 .. -2"),
    ],
)
def test_the_ledger_of_the_cache(drift: tuple[tuple[int, int], ...], words: str) -> None:
    """From where on it is not rewound, and by how much."""
    arm = arm_with(replace(DIAGNOSIS, drift=drift, check=None))
    rows = signals("cache-corruption", case_of(arm), arm, None)
    assert rows == [
        "run again          plain equal, speculative equal, k = 0 equal",
        f"cache ledger       {words}",
    ]


def test_what_was_run_again_and_differs() -> None:
    """Each of the three."""
    odd = replace(
        DIAGNOSIS,
        plain_repeats=False,
        speculative_repeats=False,
        zero_draft_equal=False,
        check=None,
    )
    arm = arm_with(odd)
    assert signals("non-deterministic", case_of(arm), arm, None)[0] == (
        "run again          plain differs, speculative differs, k = 0 differs"
    )


def test_the_row_of_an_id_out_of_range() -> None:
    """Only for that kind, and where the pair is known."""
    arm = arm_with(replace(DIAGNOSIS, check=None))
    arm = replace(arm, generation=replace(arm.generation, largest_proposal=1234))
    pair = pair_info()
    pair = replace(pair, target=replace(pair.target, embedding_rows=1000))
    rows = signals("out-of-range-ids", case_of(arm), arm, pair)
    assert rows[-1] == "largest proposal   1234, embedding rows 1000"
    assert len(signals("unexplained", case_of(arm), arm, pair)) == len(rows) - 1
    assert len(signals("out-of-range-ids", case_of(arm), arm, None)) == len(rows) - 1


def test_the_signals_as_json() -> None:
    """Every one of them; null where it was not seen."""
    generation = replace(arm_with().generation, largest_proposal=77)
    assert evidence_of(replace(DIAGNOSIS, drift=((0, 0), (3, -1), (5, 4))), generation, 1000) == {
        "plain_repeats": True,
        "speculative_repeats": True,
        "zero_draft_equal": True,
        "first_difference": {"k=1": None, "k=3": 2, "k=7": 2},
        "cache_drift": {"least": -1, "most": 4},
        "noise_floor": 0.0625,
        "widest_gap": 3.0,
        "wide_tokens": 1,
        "near_ties": 1,
        "largest_proposal": 77,
        "embedding_rows": 1000,
        "rewind_probe": None,
    }
    blind = evidence_of(replace(DIAGNOSIS, drift=(), check=None), generation, None)
    for name in ("cache_drift", "noise_floor", "widest_gap", "wide_tokens", "near_ties"):
        assert blind[name] is None
    assert blind["embedding_rows"] is None

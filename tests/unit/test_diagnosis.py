"""measure/diagnosis.py: signals from constructed runs, and the kind that they point to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.engines.base import Call, Generation, Scores
from pytest_specgate.measure.diagnosis import (
    Check,
    Diagnosis,
    cache_drift,
    check_of,
    floor_of,
    floor_without_plain,
    kind_of,
    moves_earlier,
)
from tests.fakes import walk


def generation(*logprobs: float) -> Generation:
    """A run whose tokens had these log probabilities."""
    count = len(logprobs)
    times = tuple(float(i + 1) for i in range(count))
    return Generation(
        tuple(range(count)), "", (False,) * count, times, float(count), "length", logprobs=logprobs
    )


def scores(*gaps: float, logprobs: tuple[float, ...] | None = None, ulps: float = 0.001) -> Scores:
    """What the target says, with these gaps."""
    count = len(gaps)
    return Scores(logprobs or (-1.0,) * count, gaps, (1.0,) * count, (ulps,) * count)


# -- the noise floor -------------------------------------------------------------------------------


def test_the_floor_is_the_largest_difference_of_the_plain_path() -> None:
    """|own - scored| is 0.25, 0.5, 0."""
    plain = generation(-1.0, -2.0, -3.0)
    assert floor_of(plain, scores(0, 0, 0, logprobs=(-1.25, -1.5, -3.0))) == 0.5
    assert floor_of(replace(plain, logprobs=None), scores(0, 0, 0)) == 0.0


@pytest.mark.parametrize(
    ("scored", "floor"),
    [
        ((-1.0, -1.0, -1.0), 0.0),
        ((-1.25, -1.0, -1.0), 0.0),  # one of three is no median
        ((-1.25, -1.5, -1.0), 16 * 0.25),
        ((-1.25, -1.5, -9.0), 16 * 0.5),
    ],
)
def test_the_floor_without_a_plain_output(scored: tuple[float, ...], floor: float) -> None:
    """Sixteen medians of |own - scored|; a corruption of few tokens does not widen it."""
    assert floor_without_plain(generation(-1.0, -1.0, -1.0), scores(0, 0, 0, logprobs=scored)) == (
        floor
    )


def test_the_floor_of_a_run_that_returned_nothing() -> None:
    """Nothing to estimate from."""
    run = replace(generation(-1.0), logprobs=None)
    assert floor_without_plain(run, scores(0.0)) == 0.0


# -- the teacher-forced check ----------------------------------------------------------------------


def check(*gaps: float, floor: float, ulps: float = 0.001) -> tuple[tuple[int, ...], ...]:
    """(ties, wide) of a greedy output."""
    found = check_of(generation(*gaps), scores(*gaps, ulps=ulps), floor, sampled=False)
    return found.ties, found.wide


def test_ties_and_wide_tokens_of_a_greedy_output() -> None:
    """With a floor of 0.1 a gap up to 0.4 is rounding; 0 is the target's own choice."""
    assert check(0.0, 0.1, 0.4, 0.41, 0.0, 3.0, floor=0.1) == ((1, 2), (3, 5))


def test_two_steps_of_the_dtype_are_rounding_too() -> None:
    """Where the floor is smaller: bfloat16 has a step of 0.125 between 16 and 32."""
    assert check(0.125, 0.25, 0.3, floor=0.0, ulps=0.125) == ((0, 1), (2,))


def test_no_tolerance_is_wider_than_one_nat() -> None:
    """Whatever the floor: a real fault shows more."""
    assert check(0.9, 1.0, 1.01, floor=50.0) == ((0, 1), (2,))


def test_a_token_that_the_target_forbids_is_wide() -> None:
    """Its log probability is minus infinity."""
    assert check(math.inf, floor=50.0) == ((), (0,))


def test_a_sampled_output_is_judged_by_the_log_probabilities_it_returned() -> None:
    """The gap does not count: a sampled token need not be the first choice; nor is it a tie."""
    run = generation(-1.0, -2.0, -3.0)
    scored = scores(5.0, 5.0, 5.0, logprobs=(-1.0, -2.3, -3.5))
    found = check_of(run, scored, 0.1, sampled=True)
    assert (found.ties, found.wide) == ((), (2,))
    unseen = check_of(replace(run, logprobs=None), scored, 0.1, sampled=True)
    assert (unseen.ties, unseen.wide) == ((), ())


def test_the_largest_gap() -> None:
    """Of all tokens; 0 of none."""
    assert Check(scores(0.1, 2.5, 0.3), 0.0, (), ()).largest_gap == 2.5
    assert Check(scores(), 0.0, (), ()).largest_gap == 0.0


# -- the target's cache ----------------------------------------------------------------------------


def calls_of(prompt_tokens: int, *blocks: tuple[int, int]) -> list[Call]:
    """(length, offset) of each verify pass, after a prefill of all but one prompt token."""
    prefill = [Call("target", prompt_tokens - 1, 0)] if prompt_tokens > 1 else []
    return [*prefill, *(Call("target", length, offset) for length, offset in blocks)]


def test_a_cache_that_is_rewound_does_not_drift() -> None:
    """Five prompt tokens, k = 3: two accepted, none, three."""
    calls = calls_of(5, (4, 4), (4, 7), (4, 8))
    assert cache_drift(calls, (2, 0, 3), 5) == ((0, 0), (3, 0), (4, 0))


def test_refused_proposals_that_stay_in_the_cache() -> None:
    """One is left after the first block, three more after the second."""
    calls = calls_of(5, (4, 4), (4, 8), (4, 12))
    assert cache_drift(calls, (2, 0, 3), 5) == ((0, 0), (3, 1), (4, 4))


def test_a_cache_that_lost_tokens() -> None:
    """A window that slid: the drift is negative."""
    assert cache_drift(calls_of(5, (4, 4), (4, 5)), (2, 0), 5) == ((0, 0), (3, -2))


def test_calls_that_do_not_count() -> None:
    """Of the draft, with no offset, or beyond the blocks that the output tells of."""
    calls = calls_of(5, (4, 4), (4, 7))
    drafted = [Call("draft", 1, 99), *calls[:2], Call("draft", 1, 99), *calls[2:]]
    assert cache_drift(drafted, (2, 0), 5) == ((0, 0), (3, 0))
    assert cache_drift([*calls, Call("target", 1, 99)], (2, 0), 5) == ((0, 0), (3, 0))
    blind = [replace(call, offset=None) for call in calls]
    assert cache_drift(blind, (2, 0), 5) == ()
    assert cache_drift((), (), 5) == ()


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("form", ["new", "old"])
def test_the_walk_of_mlx_lm_does_not_drift(k: int, form: Any) -> None:
    """Either form of prefill, in steps of two."""
    run = walk((True, True, False), k=k, max_tokens=20, prompt_tokens=7, step=2, form=form)
    accepted = [accepted for _, accepted, _ in run.blocks]
    drift = cache_drift(run.calls, accepted, 7)
    assert len(drift) == len(run.blocks)
    assert {moved for _, moved in drift} == {0}


# -- the kind --------------------------------------------------------------------------------------


CLEAN = Diagnosis(
    plain_repeats=True,
    speculative_repeats=True,
    zero_draft_equal=True,
    differences={1: 7, 3: 7},
    drift=((0, 0), (3, 0)),
    check=None,
)
TIES = Check(scores(0.1), 0.1, (0,), ())
WIDE = Check(scores(5.0), 0.1, (), (0,))


@pytest.mark.parametrize(
    ("more", "largest", "kind"),
    [
        ({}, None, "unexplained"),
        ({"plain_repeats": False}, None, "non-deterministic"),
        ({"speculative_repeats": False}, None, "non-deterministic"),
        ({}, 1000, "out-of-range-ids"),
        ({}, 999, "unexplained"),
        ({"zero_draft_equal": False}, None, "options-differ"),
        ({"drift": ((0, 0), (3, 1))}, None, "cache-corruption"),
        ({"drift": ((0, 0), (3, -1))}, None, "cache-corruption"),
        ({"check": TIES}, None, "near-tie"),
        ({"check": WIDE}, None, "unexplained"),
        ({"differences": {1: 9, 3: 7}}, None, "cache-corruption"),
        ({"differences": {1: 9, 3: 7}, "check": WIDE}, None, "cache-corruption"),
        ({"differences": {1: 9, 3: 7}, "check": TIES}, None, "near-tie"),
        # the surest signal is asked first
        ({"plain_repeats": False, "zero_draft_equal": False}, 1000, "non-deterministic"),
        ({"speculative_repeats": False}, 1000, "out-of-range-ids"),
        ({"zero_draft_equal": False, "drift": ((0, 1),)}, None, "options-differ"),
        ({"drift": ((0, 1),), "check": TIES}, None, "cache-corruption"),
    ],
)
def test_the_kind_that_signals_point_to(
    more: dict[str, Any], largest: int | None, kind: str
) -> None:
    """One signal at a time, then two; the target has 1,000 rows."""
    assert kind_of(replace(CLEAN, **more), largest, 1000) == kind


def test_ids_are_in_range_where_the_rows_are_not_known() -> None:
    """An engine that cannot see the embedding."""
    assert kind_of(CLEAN, 10**6, None) == "unexplained"


@pytest.mark.parametrize(
    ("differences", "earlier"),
    [
        ({}, False),
        ({3: 7}, False),
        ({1: 7, 3: 7}, False),
        ({1: 9, 3: 7}, True),
        ({3: 7, 1: 9}, True),  # in whatever order they were run
        ({1: 9, 3: 9, 7: 7}, True),
        ({1: 7, 3: 9}, False),
        ({1: 9, 3: 7, 7: 8}, False),
        ({1: None, 3: 7}, False),
        ({1: 9, 3: None, 7: 5}, True),
    ],
)
def test_a_difference_that_comes_sooner_as_k_grows(
    differences: dict[int, int | None], earlier: bool
) -> None:
    """Rounding would leave it where it is."""
    assert moves_earlier(differences) is earlier

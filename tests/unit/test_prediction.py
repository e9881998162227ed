"""stats/prediction.py: against the paper's own figures and blocks that are drawn one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from pytest_specgate.stats.prediction import (
    BlockCosts,
    accepted_whole,
    break_even,
    expected_seconds,
    interpolate,
    predicted_seconds,
    speedup,
    tokens_per_block,
)

COSTS = BlockCosts(
    plain=1.0,
    draft=0.1,
    draft_after_whole=0.16,
    target=(1.0, 1.5, 1.8, 2.1, 2.4, 2.7),
    rest=(0.05, 0.06, 0.07, 0.08, 0.09, 0.10),
)


def drawn(chances: Sequence[float], k: int, blocks: int, seed: int) -> Iterator[tuple[int, int]]:
    """(proposed, accepted) of blocks whose proposals are judged in turn until one is refused."""
    rng = random.Random(seed)
    for _ in range(blocks):
        accepted = 0
        while accepted < k and rng.random() < chances[min(accepted, len(chances) - 1)]:
            accepted += 1
        yield k, accepted


# -- tokens a block ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"),
    [
        (0.6, 2, 1.96),
        (0.7, 3, 2.53),
        (0.8, 2, 2.44),
        (0.8, 5, 3.69),
        (0.9, 2, 2.71),
        (0.9, 10, 6.86),
    ],
)
def test_the_papers_table_1(alpha: float, k: int, tokens: float) -> None:
    """Its column SPEED, where a draft costs nothing."""
    assert tokens_per_block(alpha, k) == pytest.approx(tokens, abs=0.005)
    assert speedup(alpha, k, c=0.0, v=1.0, o=0.0) == pytest.approx(tokens, abs=0.005)


def test_the_ends_of_acceptance() -> None:
    """Everything refused leaves the target's own token, nothing refused k of them more."""
    assert tokens_per_block(0.0, 5) == 1.0
    assert tokens_per_block(1.0, 5) == 6.0
    assert tokens_per_block(1.0 - 1e-12, 5) == pytest.approx(6.0)
    assert tokens_per_block(0.7, 0) == 1.0
    assert (accepted_whole(0.5, 3), accepted_whole(0.5, 0)) == (0.125, 0.0)


@pytest.mark.parametrize("chances", [(0.75,), (0.9, 0.5, 0.8), (0.2, 1.0, 1.0, 0.4)])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_tokens_a_block_of_blocks_that_are_drawn(chances: Sequence[float], k: int) -> None:
    """One chance for all, and a chance a position, the last of which goes on."""
    blocks = list(drawn(chances, k, 20_000, seed=k))
    mean = sum(accepted + 1 for _, accepted in blocks) / len(blocks)
    assert tokens_per_block(chances, k) == pytest.approx(mean, rel=0.02)
    whole = sum(accepted == k for _, accepted in blocks) / len(blocks)
    assert accepted_whole(chances, k) == pytest.approx(whole, abs=0.015)


def test_acceptance_at_no_position() -> None:
    """Nothing can be said."""
    with pytest.raises(ValueError, match="no position"):
        tokens_per_block((), 3)


# -- speedup and break-even --------------------------------------------------------------------


def test_the_papers_corollary() -> None:
    """With one proposal and a verify pass that costs one step: (1 + alpha) / (1 + c)."""
    assert speedup(0.6, 1, c=0.2, v=1.0, o=0.0) == pytest.approx(1.6 / 1.2)
    assert break_even(1, c=0.2, v=1.0, o=0.0) == pytest.approx(0.2)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_seconds_of_blocks_that_are_drawn(k: int) -> None:
    """The sum over blocks, its expectation and the formula of the speedup are one thing."""
    chances = (0.8, 0.7, 0.9)
    blocks = list(drawn(chances, k, 20_000, seed=11))
    tokens = sum(accepted + 1 for _, accepted in blocks)
    seconds, after_whole = 0.0, False
    for _, accepted in blocks:
        seconds += COSTS.draft * k + COSTS.target[k] + COSTS.rest[k] + after_whole * 0.06
        after_whole = accepted == k
    assert predicted_seconds(blocks, COSTS, start=2.5) == pytest.approx(seconds + 2.5)
    assert expected_seconds(tokens, chances, k, COSTS, start=2.5) == pytest.approx(
        seconds, rel=0.02
    )
    by_formula = speedup(chances, k, 0.1, COSTS.target[k], COSTS.rest[k], after_whole=0.06)
    assert by_formula == pytest.approx(tokens / seconds, rel=0.02)


def test_seconds_of_blocks_by_hand() -> None:
    """The last block of a budget proposes fewer; only one accepted whole makes the next dearer."""
    blocks = [(2, 2), (2, 1), (1, 1)]
    assert predicted_seconds(blocks, COSTS) == pytest.approx(
        (0.2 + 1.8 + 0.07) + (0.2 + 0.06 + 1.8 + 0.07) + (0.1 + 1.5 + 0.06)
    )
    assert predicted_seconds([(0, 0), (0, 0)], COSTS, start=1.0) == pytest.approx(1.0 + 2 * 1.05)


@pytest.mark.parametrize(("c", "v"), [(0.1, 1.59), (0.02, 1.2), (0.3, 1.05)])
def test_break_even_of_one_proposal(c: float, v: float) -> None:
    """A gate of 1.15 at k = 1 needs 1.15 (c + v) - 1."""
    assert break_even(1, c, v, 0.0, least=1.15) == pytest.approx(1.15 * (c + v) - 1)


@pytest.mark.parametrize("k", [2, 4, 8, 16])
def test_the_speedup_at_break_even(k: int) -> None:
    """It is the one asked for, with what follows a whole block as well."""
    for least in (1.0, 1.15):
        alpha = break_even(k, 0.1, 1.0 + 0.1 * k, 0.05, least=least, after_whole=0.04)
        assert alpha is not None
        found = speedup(alpha, k, 0.1, 1.0 + 0.1 * k, 0.05, after_whole=0.04)
        assert found == pytest.approx(least, abs=1e-6)


def test_no_break_even() -> None:
    """Where all is accepted and it is still too slow; and where nothing need be accepted."""
    assert break_even(1, c=1.2, v=1.59, o=0.0) is None
    assert break_even(3, c=0.0, v=0.9, o=0.0) == 0.0


# -- interpolation -----------------------------------------------------------------------------


def test_between_and_beyond_points() -> None:
    """A straight line between two, the nearest value outside."""
    points = [(1.0, 10.0), (3.0, 20.0), (4.0, 18.0)]
    found = [interpolate(points, at) for at in (0.0, 1.0, 2.0, 3.0, 3.5, 9.0)]
    assert found == [10.0, 10.0, 15.0, 20.0, 19.0, 18.0]
    assert interpolate([(5.0, 7.0)], 1.0) == interpolate([(5.0, 7.0)], 9.0) == 7.0

"""The speedup that passes of known cost and a known acceptance make.

After Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding, ICML
2023, arXiv 2211.17192, section 3: there verifying k + 1 tokens costs one step, here what it was
measured to cost. Costs named c, v and o are in units of the plain path's time a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Acceptance = float | Sequence[float]
"""Chance that a proposal is accepted, given that those before it were: one, or one a position."""


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Seconds of the parts of a block, at one context depth.

    Attributes:
        plain: a token of the plain path.
        draft: a draft step.
        draft_after_whole: the first draft step after a block that was accepted whole; it reads two
            tokens.
        target: a target pass over 1, 2, ... tokens.
        rest: what a block of 0, 1, ... proposals takes besides; below 0 where passes overlap.
    """

    plain: float
    draft: float
    draft_after_whole: float
    target: tuple[float, ...]
    rest: tuple[float, ...]

    def block(self, proposed: int, *, after_whole: float = 0.0) -> float:
        """Seconds of a block.

        Args:
            proposed: at most as many as there are ``rest``, less 1.
            after_whole: chance that the block before it was accepted whole.
        """
        if proposed == 0:
            return self.target[0] + self.rest[0]
        extra = after_whole * (self.draft_after_whole - self.draft)
        return proposed * self.draft + extra + self.target[proposed] + self.rest[proposed]


def _reached(alpha: Acceptance, k: int) -> list[float]:
    """Chance that at least 1, 2, ... k proposals of a block are accepted.

    Positions beyond those that are given go on at the last one's chance.
    """
    chances = [alpha] if isinstance(alpha, float | int) else list(alpha)
    if not chances:
        raise ValueError("acceptance at no position is given")
    reached, chance = [], 1.0
    for position in range(k):
        chance *= chances[min(position, len(chances) - 1)]
        reached.append(chance)
    return reached


def tokens_per_block(alpha: Acceptance, k: int) -> float:
    """Mean tokens a block, the target's own included: (1 - alpha^(k + 1)) / (1 - alpha).

    Equation 1 of the paper. By position: 1 + alpha_1 + alpha_1 alpha_2 + ... (k terms).
    """
    return 1.0 + sum(_reached(alpha, k))


def accepted_whole(alpha: Acceptance, k: int) -> float:
    """Chance that all k proposals of a block are accepted."""
    return _reached(alpha, k)[-1] if k else 0.0


def speedup(
    alpha: Acceptance, k: int, c: float, v: float, o: float, *, after_whole: float = 0.0
) -> float:
    """Decode speed over the plain path's: tokens a block / (k c + v + o).

    Theorem 3.8 of the paper has v = 1 and o = 0.

    Args:
        alpha: acceptance.
        k: num_draft_tokens.
        c: a draft step.
        v: a target pass over k + 1 tokens.
        o: the rest of a block.
        after_whole: what a block costs more after one that was accepted whole.
    """
    cost = k * c + v + o + after_whole * accepted_whole(alpha, k)
    return tokens_per_block(alpha, k) / cost


def break_even(
    k: int, c: float, v: float, o: float, *, least: float = 1.0, after_whole: float = 0.0
) -> float | None:
    """The acceptance at which the speedup is ``least``; None where that of 1 does not reach it.

    Args:
        k, c, v, o, after_whole: as for ``speedup``.
        least: a speedup; 0.0 is returned where acceptance of 0 reaches it.
    """

    def enough(alpha: float) -> bool:
        return speedup(alpha, k, c, v, o, after_whole=after_whole) >= least

    if not enough(1.0):
        return None
    if enough(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def predicted_seconds(
    blocks: Iterable[tuple[int, int]], costs: BlockCosts, start: float = 0.0
) -> float:
    """Seconds of a speculative run: the sum over its blocks.

    Args:
        blocks: (proposed, accepted) of each, in order.
        costs: at the mean depth of the run.
        start: what comes before the first block, both prefills above all.
    """
    total, whole = start, False
    for proposed, accepted in blocks:
        total += costs.block(proposed, after_whole=float(whole))
        whole = 0 < proposed == accepted
    return total


def expected_seconds(
    emitted: int, alpha: Acceptance, k: int, costs: BlockCosts, start: float = 0.0
) -> float:
    """The same where blocks are not known: emitted / tokens a block of them, each proposing k."""
    count = emitted / tokens_per_block(alpha, k)
    return start + count * costs.block(k, after_whole=accepted_whole(alpha, k))


def interpolate(points: Sequence[tuple[float, float]], at: float) -> float:
    """Between points (x, y), x rising; outside of them as at the nearest."""
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]

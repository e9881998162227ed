"""Has a figure changed for the worse since another session? Two independent samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .common import Decision, Level
from .speedup import decide_speedup, median_speedup, thresholds


def median_level(seconds: Sequence[Sequence[float]]) -> Level:
    """The level of a prompt mix: the mean over prompts of the robust centre of the log rounds.

    Args:
        seconds: one row of at least 2 rounds for each of at least 1 prompts, above 0.
    """
    return median_speedup(seconds)


def change_of(then: Level, now: Level) -> Level:
    """Now over then, of two independent samples."""
    return Level(
        now.log - then.log,
        math.hypot(then.error, now.error),
        now.below + then.above,
        now.above + then.below,
    )


def decide_change(change: Level, worst: float, prompts: int, rounds: int) -> Decision:
    """Is a figure still on the right side of the worst that is let through?

    Failed when the change lies so many errors beyond the limit as ``thresholds`` asks, passed when
    it lies so many within it. Simulated with a look after each round: ``benchmarks/decisions.py``.

    Args:
        change: now over then.
        worst: the same ratio at the limit: below 1 where less is worse, above where more is.
        prompts: that both sides have.
        rounds: of the side that has fewer.
    """
    inside, beyond = thresholds(prompts, rounds)
    margin = change.log - math.log(worst)
    within, better, worse = margin, change.above, change.below
    if worst > 1:
        within, better, worse = -margin, change.below, change.above
    if within + better <= -beyond * change.error:
        return "failed"
    return "passed" if within - worse >= inside * change.error else "inconclusive"


def decide_paired_change(changes: Sequence[Sequence[float]], worst: float) -> Decision:
    """The same of two sides that were timed in the same rounds: the rule of the speedup gate.

    Its margin is 0: passed means within the limit, by the same error that failed means beyond it.

    Args:
        changes: now over then, one row of rounds for each prompt.
        worst: as for ``decide_change``.
    """
    if worst < 1:
        return decide_speedup(changes, worst, margin=0.0)
    return decide_speedup(
        [[1 / change for change in row] for row in changes], 1 / worst, margin=0.0
    )

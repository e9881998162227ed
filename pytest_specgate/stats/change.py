"""Has a figure changed for the worse since another session? Two independent samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .common import TINY, Decision, Estimate
from .speedup import thresholds

_MANY = 12  # prompts and rounds; the thresholds hardly change after
_PASSES = 1.645


def median_change(seconds: Sequence[Sequence[float]]) -> Estimate:
    """The level of a prompt mix: the mean over prompts of the median of the log rounds.

    Its error is that of a median of normal rounds, from each prompt's own spread.

    Args:
        seconds: one row of at least 2 rounds for each of at least 1 prompts, above 0.
    """
    medians, variances = [], []
    for row in seconds:
        logs = list(map(math.log, row))
        medians.append(statistics.median(logs))
        mean = math.fsum(logs) / len(logs)
        variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
        variances.append(math.pi / 2 * variance / len(logs))
    error = math.sqrt(sum(variances)) / len(seconds)
    return Estimate(sum(medians) / len(medians), max(error, TINY))


def decide_change(change: Estimate, worst: float) -> Decision:
    """Is a figure still on the right side of the worst that is let through?

    Failed when the change lies so many errors beyond the limit as ``thresholds`` asks of many
    prompts and rounds, passed when it lies 1.645 within it.

    Args:
        change: now over then.
        worst: the same ratio at the limit: below 1 where less is worse, above where more is.
    """
    _, beyond = thresholds(_MANY, _MANY)
    margin = change.log - math.log(worst)
    within = margin if worst < 1 else -margin
    if within <= -beyond * change.error:
        return "failed"
    return "passed" if within >= _PASSES * change.error else "inconclusive"

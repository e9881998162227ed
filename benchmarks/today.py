"""What people gate with today, and the first rule of this project, on simulated sessions.

Each takes log seconds of both arms, of shape (sessions, prompts, rounds), and returns which
sessions failed. Arms that were measured one after the other differ by a drift of the machine
besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pytest_specgate.stats import Centres
from tests.simulation import Floats

BLOCK_DRIFT = 0.025  # standard deviation of the log seconds of one block of trials
Failed = NDArray[np.bool_]
Tool = Callable[[Floats, Floats], Failed]


def point_estimate(plain: Floats, speculative: Floats) -> Failed:
    """The mean over prompts of the ratio of medians is below the limit."""
    return np.asarray((np.median(plain, 2) - np.median(speculative, 2)).mean(axis=1) < 0)


def compare_fail(statistic: Callable[..., Floats]) -> Tool:
    """pytest-benchmark ``--benchmark-compare-fail=<statistic>:5%``, a benchmark a prompt."""

    def failed(plain: Floats, speculative: Floats) -> Failed:
        before, now = statistic(np.exp(plain), axis=2), statistic(np.exp(speculative), axis=2)
        return np.asarray((now > 1.05 * before).any(axis=1))

    return failed


def asv(plain: Floats, speculative: Floats) -> Failed:
    """asv: Mann-Whitney at 0.002 and a ratio of medians above 1.1, a benchmark a prompt."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(plain, speculative, axis=2, method="exact").pvalue < 0.002
    slower = np.median(speculative, axis=2) - np.median(plain, axis=2) > math.log(1.1)
    return np.asarray((found & slower).any(axis=1))


def pyperf(plain: Floats, speculative: Floats) -> Failed:
    """pyperf: Welch's t test of the seconds at 95 %, two-sided, a benchmark a prompt."""
    from scipy.stats import ttest_ind

    found = ttest_ind(np.exp(speculative), np.exp(plain), axis=2, equal_var=False)
    return np.asarray(((found.pvalue < 0.05) & (found.statistic > 0)).any(axis=1))


# name -> (rule, arms in blocks rather than interleaved)
TOOLS: Mapping[str, tuple[Tool, bool]] = {
    "point estimate, in blocks": (point_estimate, True),
    "point estimate, interleaved": (point_estimate, False),
    "pytest-benchmark mean:5%, in blocks": (compare_fail(np.mean), True),
    "pytest-benchmark min:5%, in blocks": (compare_fail(np.min), True),
    "asv: Mann-Whitney 0.002, factor 1.1": (asv, False),
    "pyperf: Welch's t, 95 %": (pyperf, False),
}


def first_estimator(plain: Floats, speculative: Floats) -> Centres:
    """Of the paired log ratios alone.

    Mean over prompts of the median round; the spread of a prompt is capped at twice the median.

    The error is the larger of that of a median of normal rounds and the one seen between rounds.
    """
    logs = plain - speculative
    prompts, rounds = logs.shape[-2:]
    medians = np.median(logs, axis=-1)
    first, second = np.triu_indices(rounds, k=1)
    spreads = np.median(np.abs(logs[..., first] - logs[..., second]), axis=-1) / 0.9539
    capped = np.minimum(spreads, 2 * np.median(spreads, axis=-1, keepdims=True))
    within = np.sqrt(math.pi / 2 * (capped**2).mean(axis=-1) / (rounds * prompts))
    shared = np.median(logs - medians[..., None], axis=-2)
    between = shared.std(axis=-1, ddof=1) / math.sqrt(rounds)
    none = np.zeros_like(within)
    return Centres(medians.mean(axis=-1), np.maximum(within, between), none, none)


def first_rule(
    centres: Centres, prompts: int, rounds: int, least: float, margin: float
) -> NDArray[np.int8]:
    """2.3 errors to pass; from round 7 on 3.0 to fail; 2.4 and 4.0 for a single prompt."""
    above, below = (2.4, 4.0) if prompts == 1 else (2.3, 3.0)
    distance = (centres.log - math.log(least)) / centres.error
    verdicts = np.zeros(np.shape(centres.log), dtype=np.int8)
    if rounds >= 7:
        verdicts[-distance >= below] = -1
    verdicts[distance + math.log1p(margin) / centres.error >= above] = 1
    return verdicts

"""Estimators and decision rules: pure functions on numbers.

The rules compare paired trials on a log scale. Prompts are blocks and rounds are replicates: with
greedy decoding a prompt's acceptance is a property of the prompt, not noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Literal

Decision = Literal["passed", "failed", "inconclusive"]

LEAST_ROUNDS = 5
LEAST_ROUNDS_TO_FAIL = 7
# Wilks 1941: of 59 trials at least one lies above the 95th percentile with 95 % confidence.
LEAST_TRIALS_P95 = 60
_MEDIAN_DIFFERENCE = 0.9539  # median |x - y| of two standard normal variables
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure on a log scale with its standard error."""

    log: float
    error: float

    @property
    def value(self) -> float:
        """The figure itself."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by the normal approximation on the log scale."""
        return math.exp(self.log - 1.96 * self.error), math.exp(self.log + 1.96 * self.error)


def prompt_spread(values: Sequence[float]) -> float:
    """Standard deviation of one prompt's rounds from the median difference of pairs of rounds."""
    import numpy as np

    if len(values) < 2:
        return 0.0
    array = np.asarray(values, dtype=float)
    first, second = np.triu_indices(len(values), k=1)
    return float(np.median(np.abs(array[first] - array[second]))) / _MEDIAN_DIFFERENCE


def median_speedup(ratios: Sequence[Sequence[float]]) -> Estimate:
    """Speedup over a prompt mix: the mean over prompts of the median log ratio of the rounds.

    The standard error is the larger of sqrt(pi/2) * sqrt(mean s_j^2 / (R * J)), the error of a
    median of normal rounds with s_j capped at twice the median s, and the standard deviation over
    rounds of the median deviation of all prompts / sqrt(R), which sees drift that all prompts
    share.

    Args:
        ratios: plain / speculative seconds, one row of R >= 2 rounds for each of J >= 1 prompts.
    """
    logs = [[math.log(ratio) for ratio in row] for row in ratios]
    rounds, prompts = len(logs[0]), len(logs)
    medians = [median(row) for row in logs]
    spreads = [prompt_spread(row) for row in logs]
    cap = 2 * median(spreads)
    within = math.sqrt(
        math.pi / 2 * sum(min(s, cap) ** 2 for s in spreads) / prompts / (rounds * prompts)
    )
    shared = [
        median(row[r] - middle for row, middle in zip(logs, medians, strict=True))
        for r in range(rounds)
    ]
    between = stdev(shared) / math.sqrt(rounds)
    return Estimate(sum(medians) / prompts, max(within, between, _TINY))


def decide_speedup(ratios: Sequence[Sequence[float]], least: float, margin: float) -> Decision:
    """Is the speedup at least ``least``? One look of a sequence with a look after each round.

    Passed when the estimate lies 2.3 standard errors above least / (1 + margin) (2.4 for a single
    prompt); from round 7 on failed when it lies 3.0 (4.0) below least. Nothing is decided before
    round 5.

    Args:
        ratios: as for ``median_speedup``.
        least: the limit, such as 1.15.
        margin: share by which a miss is not told from a hit, such as 0.03.
    """
    rounds = len(ratios[0])
    if rounds < LEAST_ROUNDS:
        return "inconclusive"
    estimate = median_speedup(ratios)
    above, below = (2.4, 4.0) if len(ratios) == 1 else (2.3, 3.0)
    distance = estimate.log - math.log(least)
    if (distance + math.log1p(margin)) / estimate.error >= above:
        return "passed"
    if rounds >= LEAST_ROUNDS_TO_FAIL and -distance / estimate.error >= below:
        return "failed"
    return "inconclusive"


def rounds_needed(ratios: Sequence[Sequence[float]], margin: float) -> tuple[float, int]:
    """(coefficient of variation of a single trial, rounds that would likely decide).

    A paired ratio varies by sqrt(2) times as much. The rounds are
    (9.4 * CV / ln(1 + margin))^2 / J, from the rule's thresholds.
    """
    spreads = [prompt_spread([math.log(ratio) for ratio in row]) for row in ratios]
    variation = math.sqrt(sum(s * s for s in spreads) / len(spreads)) / math.sqrt(2)
    needed = (9.4 * variation / math.log1p(max(margin, 1e-3))) ** 2 / len(spreads)
    return variation, max(LEAST_ROUNDS, math.ceil(needed))


def harrell_davis_weights(count: int, quantile: float) -> list[float]:
    """Weights of the order statistics in the Harrell-Davis quantile estimator (1982).

    w_i = I_{i/n}(a, b) - I_{(i-1)/n}(a, b) with a = (n + 1) q and b = (n + 1)(1 - q); the
    incomplete beta function I is integrated numerically.
    """
    import numpy as np

    a, b = (count + 1) * quantile, (count + 1) * (1 - quantile)
    steps = 64
    grid = (np.arange(count * steps) + 0.5) / (count * steps)
    log_density = (a - 1) * np.log(grid) + (b - 1) * np.log1p(-grid)
    density = np.exp(log_density - log_density.max())
    weights = density.reshape(count, steps).sum(axis=1)
    return [float(weight) for weight in weights / weights.sum()]


@dataclass(frozen=True, slots=True)
class TailEstimate:
    """p95 of both arms and their log ratio with its standard error."""

    plain: float
    speculative: float
    ratio: Estimate


def p95_ratio(
    plain: Sequence[Sequence[float]],
    speculative: Sequence[Sequence[float]],
    *,
    seed: int,
    resamples: int = 400,
) -> TailEstimate:
    """p95 of the speculative arm over p95 of the plain arm, over a whole prompt mix.

    On log seconds with Harrell-Davis weights. The error comes from bootstraps that resample rounds
    within prompts with pairs kept, times sqrt(R / (R - 1)).

    Args:
        plain: seconds, one row of R >= 2 rounds a prompt.
        speculative: the same shape, paired.
        seed: of the bootstrap.
        resamples: how many bootstraps.
    """
    import numpy as np

    logs = np.log(np.array([plain, speculative], dtype=float))  # (2, prompts, rounds)
    _, prompts, rounds = logs.shape
    weights = np.array(harrell_davis_weights(prompts * rounds, 0.95))

    def quantiles(sample: np.ndarray) -> np.ndarray:
        pooled = np.sort(sample.reshape(*sample.shape[:-2], -1), axis=-1)
        return np.asarray(pooled @ weights)

    point = quantiles(logs)
    chosen = np.random.default_rng(seed).integers(rounds, size=(resamples, prompts, rounds))
    resampled = np.stack(
        [np.take_along_axis(np.broadcast_to(arm, chosen.shape), chosen, axis=2) for arm in logs]
    )
    differences = quantiles(resampled[1]) - quantiles(resampled[0])
    error = float(differences.std(ddof=1)) * math.sqrt(rounds / (rounds - 1))
    return TailEstimate(
        math.exp(point[0]),
        math.exp(point[1]),
        Estimate(float(point[1] - point[0]), max(error, _TINY)),
    )


def decide_p95_ratio(estimate: Estimate, most: float, tolerance: float) -> Decision:
    """Is the p95 ratio at most ``most``?

    Failed when the estimate lies 2.33 standard errors above the limit, passed when it lies 1.645
    below limit * (1 + tolerance).
    """
    distance = estimate.log - math.log(most)
    if distance - 2.33 * estimate.error > 0:
        return "failed"
    if distance + 1.645 * estimate.error < math.log1p(tolerance):
        return "passed"
    return "inconclusive"


def p95_bounds(seconds: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free bounds of the 95th percentile by order statistics.

    Each is one-sided at the given confidence: the largest order statistic that lies below the
    percentile, and the smallest that lies above it, by the binomial count of trials under it.

    Args:
        seconds: at least 59 trials, else the upper bound is infinite.
        confidence: of each bound.
    """
    ordered, count = sorted(seconds), len(seconds)
    at_most, total = [], 0.0
    for below in range(count + 1):
        # by logarithms: the binomial coefficient of a thousand trials is no float
        log_ways = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
        total += math.exp(log_ways + below * math.log(0.95) + (count - below) * math.log(0.05))
        at_most.append(total)
    # x_(i) <= p95 unless fewer than i trials lie under it; x_(i) >= p95 unless i or more do
    lower = [x for i, x in enumerate(ordered, 1) if 1 - at_most[i - 1] >= confidence]
    upper = [x for i, x in enumerate(ordered, 1) if at_most[i - 1] >= confidence]
    return (lower[-1] if lower else -math.inf), (upper[0] if upper else math.inf)


def decide_p95_seconds(seconds: Sequence[float], most: float) -> Decision:
    """Is the 95th percentile at most ``most`` seconds?"""
    lower, upper = p95_bounds(seconds)
    if lower > most:
        return "failed"
    return "passed" if upper <= most else "inconclusive"

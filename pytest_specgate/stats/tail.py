"""Is a tail no worse? Quantiles by Harrell and Davis, and bounds by order statistics.

The functions take seconds of any kind: end to end, TTFT, or time per output token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .common import TINY, Decision, Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Wilks 1941: of 59 trials at least one lies above the 95th percentile with 95 % confidence.
LEAST_TRIALS_P95 = 60
_AT_ONCE = 2**18  # trials resampled at a time
_ALL_OF = 2000  # trials; the tails of fewer are too long to be cut
_SPREADS = 15  # of the beta distribution; what lies beyond is below 1e-12
_MOST_TERMS = 1000  # of the continued fraction; it takes about sqrt(max(a, b))


def incomplete_beta(a: float, b: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The regularised incomplete beta function I_x(a, b), within 1e-10 for a + b up to 2,000.

    By its continued fraction, evaluated by Lentz's method on the side of the mean where it
    converges fast; I_x(a, b) = 1 - I_{1-x}(b, a) gives the other side.

    Args:
        a: above 0.
        b: above 0.
        x: in [0, 1], any shape.
    """
    import numpy as np

    x = np.asarray(x, dtype=float)
    swap = x > (a + 1) / (a + b + 2)
    if swap.any():
        out = np.empty_like(x)
        out[~swap] = incomplete_beta(a, b, x[~swap])
        out[swap] = 1 - _lower_beta(b, a, 1 - x[swap])
        return out
    return _lower_beta(a, b, x)


def _lower_beta(a: float, b: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    smallest = 1e-300  # Lentz: a partial denominator of zero becomes this
    inside = x > 0
    z = x[inside]
    log_front = a * np.log(z) + b * np.log1p(-z)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)

    def kept(value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(np.abs(value) < smallest, smallest, value)

    c = np.ones_like(z)
    d = 1 / kept(1 - (a + b) * z / (a + 1))
    value = d.copy()
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * z / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * z / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / kept(1 + term * d)
            c = kept(1 + term / c)
            step = c * d
            value = value * step
        if np.all(np.abs(step - 1) < 1e-15):
            break
    out = np.zeros_like(x)
    out[inside] = np.exp(log_front) * value / a
    return out


@lru_cache(maxsize=64)
def harrell_davis_weights(count: int, quantile: float) -> tuple[float, ...]:
    """Weights of the order statistics in the Harrell-Davis quantile estimator (1982).

    w_i = I_{i/n}(a, b) - I_{(i-1)/n}(a, b) with a = (n + 1) q and b = (n + 1)(1 - q).
    """
    import numpy as np

    at = np.arange(count + 1) / count
    reach = _SPREADS * math.sqrt(quantile * (1 - quantile) / (count + 2))
    levels = (at > quantile).astype(float)  # as far from the quantile as nothing has weight
    near = (np.abs(at - quantile) <= reach) | (count <= _ALL_OF)
    levels[near] = incomplete_beta((count + 1) * quantile, (count + 1) * (1 - quantile), at[near])
    return tuple(float(weight) for weight in np.diff(levels))


def p95(seconds: Sequence[float]) -> float:
    """The 95th percentile of one arm's trials, as ``p95_ratio`` estimates it.

    Args:
        seconds: at least one, each above 0.
    """
    import numpy as np

    weights = np.array(harrell_davis_weights(len(seconds), 0.95))
    return float(np.exp(np.sort(np.log(np.asarray(seconds, dtype=float))) @ weights))


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

    point = np.sort(logs.reshape(2, -1), axis=-1) @ weights
    chosen = np.random.default_rng(seed).integers(rounds, size=(resamples, prompts, rounds))
    chosen += rounds * np.arange(prompts)[:, None]
    differences = _bootstrapped(logs.reshape(2, -1), chosen.reshape(resamples, -1), weights)
    error = float(differences.std(ddof=1)) * math.sqrt(rounds / (rounds - 1))
    return TailEstimate(
        math.exp(point[0]),
        math.exp(point[1]),
        Estimate(float(point[1] - point[0]), max(error, TINY)),
    )


def _bootstrapped(
    logs: NDArray[np.float64], chosen: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Second arm's quantile less the first's, one a bootstrap.

    An arm is sorted once; a bootstrap says how often each of its values counts. So large mixes take
    no sorting, and the memory of a few bootstraps alone. Of a large mix only the greatest values
    have a weight: that fewer of them are drawn than have one is an event of 8 standard deviations.

    Args:
        logs: two arms of trials.
        chosen: one row of indices a bootstrap.
        weights: of the order statistics.
    """
    import numpy as np

    trials = logs.shape[1]
    weighted = trials - int(np.flatnonzero(weights)[0])
    most = min(trials, weighted + math.ceil(8 * math.sqrt(weighted)))
    greatest = np.argsort(logs, axis=1)[:, : -most - 1 : -1]
    upto = np.concatenate([[0.0], np.cumsum(weights)])
    found = []
    step = max(1, _AT_ONCE // trials)
    for first in range(0, len(chosen), step):
        rows = chosen[first : first + step]
        at = rows + trials * np.arange(len(rows))[:, None]
        times = np.bincount(at.ravel(), minlength=rows.size).reshape(rows.shape)
        quantiles = []
        for arm, order in zip(logs, greatest, strict=True):
            above = np.cumsum(times[:, order[:-1]], axis=1)
            # sum of (upto[rank] - upto[rank below]) * value, by parts
            quantiles.append(arm[order[0]] + upto[trials - above] @ np.diff(arm[order]))
        found.append(quantiles[1] - quantiles[0])
    return np.concatenate(found)


def decide_p95_ratio(estimate: Estimate, most: float, tolerance: float) -> Decision:
    """Is the p95 ratio at most ``most``?

    Failed when the estimate lies 2.8 standard errors above the limit, passed when it lies 1.645
    below limit * (1 + tolerance). The bootstrap of a tail of few rounds gives too small an error
    now and then: 2.33, the 1 % point of the normal distribution, made up to 4.5 % false failures.
    """
    distance = estimate.log - math.log(most)
    if distance - 2.8 * estimate.error > 0:
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

"""What noise costs: the noise floor of a machine, the rounds it asks for, false alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .common import Estimate
from .speedup import LEAST_ROUNDS, Paired, prompt_spread, thresholds

# False failures of one verdict whose truth is exactly at its limit; the gates that judge facts,
# such as parity, memory and acceptance, have none. See docs/statistics.md.
FALSE_FAILURE: Mapping[str, float] = {
    "speedup": 0.01,
    "p95_ratio": 0.025,
    "p95_seconds": 0.05,
    "quality": 0.01,  # of each of its two limits
}
_MEAN_OF_BIWEIGHT = 1.05  # its standard error over that of a mean, normal noise
_NINE_OF_TEN = 1.2816  # upper tenth of the normal distribution
_LONG_SERIES = 12  # rounds; the thresholds hardly change after


def _variation(ratios: Sequence[Sequence[float]]) -> float:
    """CV of a single trial: a paired log ratio varies by sqrt(2) times as much."""
    spreads = [prompt_spread([math.log(ratio) for ratio in row]) for row in ratios]
    return math.sqrt(sum(s * s for s in spreads) / len(spreads) / 2)


def _error(variation: float, prompts: int, rounds: float) -> float:
    return _MEAN_OF_BIWEIGHT * math.sqrt(2) * variation / math.sqrt(prompts * rounds)


def rounds_needed(pairs: Paired, margin: float) -> tuple[float, int]:
    """(coefficient of variation of a single trial, rounds that would decide).

    With that many rounds the thresholds of passed and failed meet within the margin, so that even
    a truth between limit / (1 + margin) and limit is likely decided: R (5.3 SE / ln(1 + margin))^2
    from the thresholds (2.45 and 2.85) and the error of R rounds. Where no trial is disturbed that
    is about (7.9 * CV / ln(1 + margin))^2 / J.

    Args:
        pairs: of at least two rounds.
        margin: of the gate.
    """
    once = pairs.speedup().error * math.sqrt(pairs.rounds)
    reach = sum(thresholds(pairs.prompts, _LONG_SERIES)) * once
    needed = (reach / math.log1p(max(margin, 1e-3))) ** 2
    return _variation(pairs.ratios), max(LEAST_ROUNDS, math.ceil(needed))


def smallest_effect(variation: float, prompts: int, rounds: int) -> float:
    """The smallest true slowdown below a limit that nine of ten sessions find failed.

    Args:
        variation: CV of a single trial, such as 0.05.
        prompts: of the mix.
        rounds: the most that are run.

    Returns:
        A share, such as 0.03.
    """
    _, below = thresholds(prompts, rounds)
    return math.expm1((below + _NINE_OF_TEN) * _error(variation, prompts, rounds))


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What plain against plain shows of a machine.

    Attributes:
        variation: CV of a single trial.
        ratio: first over second arm; 1 lies within its interval unless the order of the arms or
            the machine favours one.
        drift: growth of log seconds a round, shared by all prompts.
        smallest_effect: as the function, with these prompts and rounds.
    """

    variation: float
    ratio: Estimate
    drift: Estimate
    smallest_effect: float


def noise_floor(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], rounds: int | None = None
) -> NoiseFloor:
    """The noise floor from two arms of the plain path.

    The drift is the least-squares slope over rounds of the median over prompts of log seconds, both
    arms together, less the prompt's own median; its error has R - 2 degrees of freedom.

    Args:
        first: seconds, one row of R >= 3 rounds a prompt.
        second: the same shape, paired by round.
        rounds: the most that are run, for the smallest effect; R where it is not given.
    """
    import numpy as np

    seconds = np.log(np.array([first, second], dtype=float))
    pairs = Paired([[*zip(*row, strict=True)] for row in zip(first, second, strict=True)])
    prompts, count = seconds.shape[1:]
    level = seconds.mean(axis=0)
    shared = np.median(level - np.median(level, axis=1, keepdims=True), axis=0)
    time = np.arange(count) - (count - 1) / 2
    squares = float(time @ time)
    slope = float(time @ shared) / squares
    rest = shared - shared.mean() - slope * time
    drift = Estimate(slope, math.sqrt(float(rest @ rest) / (count - 2) / squares))
    variation = _variation(pairs.ratios)
    return NoiseFloor(
        variation,
        pairs.speedup(),
        drift,
        smallest_effect(variation, prompts, rounds or count),
    )


def chance_of_false_alarm(rates: Sequence[float]) -> float:
    """At most this chance that any of several verdicts is a false failure.

    The union bound: the sum of the rates, which holds however the verdicts hang together (gates of
    one session judge the same trials, so they are not independent).

    Args:
        rates: of each verdict, from ``FALSE_FAILURE``.
    """
    return min(1.0, math.fsum(rates))

"""Pass rates: exact intervals, and whether one path is worse than the other.

Outputs of a fixed prompt set with different chances of passing vary less than a binomial of their
mean chance (Hoeffding 1956), so that what follows errs on the safe side there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .common import Decision
from .tail import incomplete_beta

_STEPS = 40  # of bisection: below 1e-12
_FAILS = 0.01  # chance of a false failure
_PASSES_AT_MOST = 0.05  # chance of a false pass
# Of Tango's statistic. 1.645, the 5 % point of the normal distribution, passes up to 5.8 % falsely
# where the outputs are few; with this at most 4.8 %. See docs/statistics.md.
_PASSES = 1.75


def _at(a: float, b: float, x: float) -> float:
    import numpy as np

    return float(incomplete_beta(a, b, np.array([x]))[0])


def _root(rises: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function reaches the target."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < target else (low, middle)
    return (low + high) / 2


def exact_bounds(passed: int, outputs: int, tail: float = 0.025) -> tuple[float, float]:
    """Lower and upper bound of a rate (Clopper and Pearson 1934).

    Args:
        passed: of the outputs.
        outputs: at least 1.
        tail: the chance that the truth lies below the lower bound, and that it lies above the
            upper one, is at most this.
    """
    low, high = 0.0, 1.0
    if passed > 0:
        low = _root(lambda p: _at(passed, outputs - passed + 1, p), tail, 0, 1)
    if passed < outputs:
        high = _root(lambda p: _at(passed + 1, outputs - passed, p), 1 - tail, 0, 1)
    return low, high


def decide_rate(passed: int, outputs: int, least: float, tolerance: float) -> Decision:
    """Is a pass rate at least a limit? Of a sample.

    Failed when the rate lies below the limit with 99 % confidence, passed when it lies above
    limit - tolerance with 95 %, both exactly.
    """
    # the tails of the binomial distribution that the bounds invert
    if passed < outputs and 1 - _at(passed + 1, outputs - passed, least) < _FAILS:
        return "failed"
    worst = max(least - tolerance, 0.0)
    enough = passed > 0 and _at(passed, outputs - passed + 1, worst) <= _PASSES_AT_MOST
    return "passed" if enough else "inconclusive"


def paired_z(gained: int, lost: int, pairs: int, difference: float) -> float:
    """Tango's score statistic (1998) of paired rates against a difference.

    The higher it is, the surer is a true difference that is larger than this one.

    Args:
        gained: pairs of which the second output alone passed.
        lost: pairs of which the first output alone passed.
        pairs: all of them.
        difference: second rate less the first, strictly within -1 and 1.
    """
    # the constrained maximum-likelihood estimate of the chance of the rarer kind of pair
    b = -gained - lost + (2 * pairs - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    root = math.sqrt(max(b * b - 8 * pairs * c, 0.0))
    rarer = (root - b) / (4 * pairs)
    variance = pairs * (2 * rarer + difference * (1 - difference))
    distance = gained - lost - pairs * difference
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def paired_interval(gained: int, lost: int, pairs: int) -> tuple[float, float]:
    """95 % score interval of the difference of paired rates (Tango 1998)."""
    middle = (gained - lost) / pairs
    edge = 1 - 1e-9
    low = high = middle
    if middle > -edge:
        low = _root(lambda d: -paired_z(gained, lost, pairs, d), -1.96, -edge, middle)
    if middle < edge:
        high = _root(lambda d: -paired_z(gained, lost, pairs, d), 1.96, middle, edge)
    return low, high


def decide_not_worse(gained: int, lost: int, pairs: int, margin: float) -> Decision:
    """Is the second path's pass rate not worse than the first's?

    Passed when the score test excludes a loss of the margin with 95 % confidence at least; failed
    when, of the pairs that differ, so many are lost as would be one time in a hundred were both
    paths alike (the exact test of McNemar, one-sided).

    Args:
        gained, lost, pairs: see ``paired_z``.
        margin: the loss that is not let through, such as 0.05.
    """
    if paired_z(gained, lost, pairs, -margin) > _PASSES:
        return "passed"
    if lost > gained and _at(lost, gained + 1, 0.5) <= _FAILS:
        return "failed"
    return "inconclusive"


def times_needed(decided: Callable[[int], bool], most: int = 100) -> int | None:
    """How many times the outputs decide, by a test of that number; None beyond ``most``."""
    return next((times for times in range(2, most + 1) if decided(times)), None)

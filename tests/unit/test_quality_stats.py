"""stats/quality.py: exact bounds, and the paired test, against SciPy and by exact enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from pytest_specgate.stats import (
    decide_not_worse,
    decide_rate,
    exact_bounds,
    paired_interval,
    paired_z,
    times_needed,
)

COUNTS = [(0, 1), (1, 1), (0, 24), (23, 24), (24, 24), (7, 24), (59, 59), (150, 1000), (999, 2000)]


@pytest.mark.parametrize(("passed", "outputs"), COUNTS)
@pytest.mark.parametrize("tail", [0.025, 0.01])
def test_exact_bounds_equal_those_of_scipy(passed: int, outputs: int, tail: float) -> None:
    expected = binomtest(passed, outputs).proportion_ci(1 - 2 * tail, method="exact")
    assert exact_bounds(passed, outputs, tail) == pytest.approx(tuple(expected), abs=1e-8)


def test_a_pass_rate_of_a_sample() -> None:
    """59 of 59 pass a limit of 100 % with a tolerance of 5 %; one failure is one too many."""
    assert decide_rate(58, 58, 1.0, 0.05) == "inconclusive"
    assert decide_rate(59, 59, 1.0, 0.05) == "passed"
    assert decide_rate(999, 1000, 1.0, 0.05) == "failed"
    assert decide_rate(18, 24, 0.9, 0.05) == "inconclusive"
    assert decide_rate(16, 24, 0.9, 0.05) == "failed"
    assert decide_rate(90, 100, 0.8, 0.05) == "passed"


@pytest.mark.parametrize("outputs", [24, 100])
@pytest.mark.parametrize("least", [0.8, 0.95])
def test_errors_of_a_pass_rate(outputs: int, least: float) -> None:
    """Exactly: false failures with the truth at the limit, false passes at limit - tolerance."""
    said = [decide_rate(x, outputs, least, 0.05) for x in range(outputs + 1)]
    failed = sum(binom.pmf(x, outputs, least) for x in range(outputs + 1) if said[x] == "failed")
    worst = least - 0.05 - 1e-9
    passed = sum(binom.pmf(x, outputs, worst) for x in range(outputs + 1) if said[x] == "passed")
    assert failed <= 0.01
    assert passed <= 0.05


def test_the_score_statistic() -> None:
    """Its sign, its zero, and McNemar's statistic at no difference; the pairs' names swap."""
    assert paired_z(6, 2, 40, 0.0) == pytest.approx((6 - 2) / math.sqrt(8))
    assert paired_z(6, 2, 40, 0.1) == pytest.approx(0)
    assert paired_z(6, 2, 40, -0.2) == pytest.approx(-paired_z(2, 6, 40, 0.2))
    assert paired_z(0, 0, 50, 0.0) == 0
    assert paired_z(0, 0, 50, -0.05) == pytest.approx(math.sqrt(50 * 0.05 / 0.95))


def test_the_interval_of_tangos_paper() -> None:
    """Crossover data of Tango (1998), table I: 12 and 2 discordant of 44 pairs gives a score
    interval that inverts the statistic at 1.96 on either side."""
    low, high = paired_interval(12, 2, 44)
    assert low < 10 / 44 < high
    assert paired_z(12, 2, 44, low) == pytest.approx(1.96, abs=1e-6)
    assert paired_z(12, 2, 44, high) == pytest.approx(-1.96, abs=1e-6)
    for counts in ((0, 0, 24), (24, 0, 24), (0, 24, 24), (1, 0, 1)):
        low, high = paired_interval(*counts)
        assert -1 <= low <= (counts[0] - counts[1]) / counts[2] <= high <= 1


def _chances(pairs: int, margin: float, difference: float, discordant: float) -> dict[str, float]:
    """decision -> its chance, summed over all counts."""
    gained, found = (
        (discordant + difference) / 2,
        {"passed": 0.0, "failed": 0.0, "inconclusive": 0.0},
    )
    for differ in range(pairs + 1):
        chance = binom.pmf(differ, pairs, discordant)
        if chance < 1e-10:
            continue
        for up, share in enumerate(binom.pmf(np.arange(differ + 1), differ, gained / discordant)):
            if share > 1e-10:
                said = decide_not_worse(up, differ - up, pairs, margin)
                found[said] += float(chance * share)
    return found


@pytest.mark.parametrize(("pairs", "discordant"), [(48, 0.2), (72, 0.06), (120, 0.05)])
def test_size_of_the_paired_test(pairs: int, discordant: float) -> None:
    """A loss of the margin passes at most 5 % of the time; no loss fails at most 1 %."""
    assert _chances(pairs, 0.05, -0.05, discordant)["passed"] <= 0.05
    assert _chances(pairs, 0.05, 0.0, discordant)["failed"] <= 0.01


def test_power_of_the_paired_test() -> None:
    """It does say something: enough equal pairs pass, a broken path fails."""
    assert decide_not_worse(0, 0, 58, 0.05) == "inconclusive"
    assert decide_not_worse(0, 0, 59, 0.05) == "passed"
    assert decide_not_worse(0, 7, 24, 0.05) == "failed"
    assert decide_not_worse(0, 6, 24, 0.05) == "inconclusive"
    assert decide_not_worse(7, 0, 24, 0.05) == "passed"


def test_how_many_times_it_takes() -> None:
    assert times_needed(lambda n: n * 24 >= 59) == 3
    assert times_needed(lambda n: False) is None

"""Estimators and rules on numbers worked out by hand, and on a small simulation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from pytest_specgate.stats import (
    Decision,
    Estimate,
    decide_p95_ratio,
    decide_p95_seconds,
    decide_speedup,
    harrell_davis_weights,
    median_speedup,
    p95_bounds,
    p95_ratio,
    prompt_spread,
    rounds_needed,
)

MEDIAN_DIFFERENCE = 0.9539


def around(log: float, deviations: Sequence[float]) -> list[float]:
    """Ratios whose logs lie around a middle."""
    return [math.exp(log + deviation) for deviation in deviations]


def steps(rounds: int, height: float) -> list[float]:
    """Evenly spaced deviations about zero, such as -2h, -h, 0, h, 2h."""
    return [height * (i - (rounds - 1) / 2) for i in range(rounds)]


# -- spread and estimate -----------------------------------------------------------------------


def test_median_difference_of_two_normal_variables() -> None:
    """0.9539 is sqrt(2) times the upper quartile of the normal distribution."""
    assert math.sqrt(2) * statistics.NormalDist().inv_cdf(0.75) == pytest.approx(
        MEDIAN_DIFFERENCE, abs=5e-5
    )


def test_prompt_spread_by_hand() -> None:
    """0, 1, 2, 3, 10: ten differences, the middle two of which are 2 and 3."""
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    differences = sorted(abs(a - b) for a, b in combinations(values, 2))
    assert differences == [1, 1, 1, 2, 2, 3, 7, 8, 9, 10]
    assert prompt_spread(values) == pytest.approx(2.5 / MEDIAN_DIFFERENCE)


def test_prompt_spread_of_no_spread() -> None:
    """Equal values and a single value have none."""
    assert prompt_spread([4.0, 4.0, 4.0]) == 0.0
    assert prompt_spread([4.0]) == 0.0
    assert prompt_spread([]) == 0.0


def test_prompt_spread_estimates_a_standard_deviation() -> None:
    """On evenly drawn normal values it is the standard deviation."""
    normal = statistics.NormalDist(0, 3)
    values = [normal.inv_cdf((i + 0.5) / 300) for i in range(300)]
    assert prompt_spread(values) == pytest.approx(3, rel=0.01)


def test_speedup_is_the_mean_over_prompts_of_the_median_log() -> None:
    """Two prompts, medians 2 and 8: the geometric mean is 4, and outliers do not count."""
    rows = [[2.0, 2.0, 2.0, 2.0, 50.0], [8.0, 0.1, 8.0, 8.0, 8.0]]
    assert median_speedup(rows).value == pytest.approx(4.0)


def test_error_of_one_prompt() -> None:
    """-2h .. 2h: differences 1,1,1,1,2,2,2,3,3,4 with median 2, so s = 2h / 0.9539."""
    h = 0.01
    estimate = median_speedup([around(math.log(1.5), steps(5, h))])
    s = 2 * h / MEDIAN_DIFFERENCE
    assert estimate.value == pytest.approx(1.5)
    assert estimate.error == pytest.approx(math.sqrt(math.pi / 2) * s / math.sqrt(5))


def test_error_within_prompts_falls_with_their_number() -> None:
    """Opposite deviations cancel in what all prompts share; s^2 is averaged over R * J trials."""
    h = 0.02
    one, other = steps(7, h), steps(7, -h)
    estimate = median_speedup([around(0.1, one), around(0.3, other)])
    s = 2 * h / MEDIAN_DIFFERENCE  # -3h .. 3h: of 21 differences the 11th is 2h
    assert estimate.log == pytest.approx(0.2)
    assert estimate.error == pytest.approx(math.sqrt(math.pi / 2 * s * s / (7 * 2)))


def test_error_of_drift_that_all_prompts_share() -> None:
    """Equal deviations in every prompt: the error does not fall with the number of prompts."""
    h = 0.02
    rows = [around(log, steps(7, h)) for log in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]
    between = statistics.stdev(steps(7, h)) / math.sqrt(7)
    assert median_speedup(rows).error == pytest.approx(between)


def test_one_noisy_prompt_is_capped() -> None:
    """s_j counts at most twice the median s: spreads 1, 1, 50 count as 1, 1, 2."""
    h = 0.001
    signs = (1, -1, 50)
    rows = [around(0.2, steps(5, h * sign)) for sign in signs]
    s = 2 * h / MEDIAN_DIFFERENCE
    squares = s**2 + s**2 + (2 * s) ** 2
    within = math.sqrt(math.pi / 2 * squares / 3 / (5 * 3))
    # the middle of h, -h and 50h times a step is h times that step
    between = statistics.stdev(steps(5, h)) / math.sqrt(5)
    assert median_speedup(rows).error == pytest.approx(max(within, between))
    assert within > between


def test_interval_is_symmetric_on_the_log_scale() -> None:
    """exp(log -+ 1.96 errors)."""
    low, high = Estimate(math.log(2.0), 0.1).interval
    assert low == pytest.approx(2.0 * math.exp(-0.196))
    assert high == pytest.approx(2.0 * math.exp(0.196))


# -- the rule ----------------------------------------------------------------------------------

LIMIT, MARGIN = 1.15, 0.03
H = 0.01


def rows_at(distance: float, from_log: float, rounds: int, prompts: int) -> list[list[float]]:
    """Ratios whose estimate lies so many standard errors above a log; 1 or 2 prompts."""
    assert rounds in (5, 7)  # where the median difference of even steps of h is 2h
    s = 2 * H / MEDIAN_DIFFERENCE
    error = math.sqrt(math.pi / 2 * s * s / (rounds * prompts))
    middle = from_log + distance * error
    return [around(middle, steps(rounds, sign * H)) for sign in (1, -1)[:prompts]]


@pytest.mark.parametrize(("prompts", "threshold"), [(1, 2.4), (2, 2.3)])
@pytest.mark.parametrize("rounds", [5, 7])
def test_passed_above_the_limit_less_the_margin(
    rounds: int, prompts: int, threshold: float
) -> None:
    """2.3 standard errors above limit / (1 + margin), 2.4 for a single prompt."""
    floor = math.log(LIMIT / (1 + MARGIN))
    assert decide_speedup(rows_at(threshold + 0.01, floor, rounds, prompts), LIMIT, MARGIN) == (
        "passed"
    )
    assert decide_speedup(rows_at(threshold - 0.01, floor, rounds, prompts), LIMIT, MARGIN) == (
        "inconclusive"
    )


@pytest.mark.parametrize(("prompts", "threshold"), [(1, 4.0), (2, 3.0)])
def test_failed_below_the_limit(prompts: int, threshold: float) -> None:
    """3.0 standard errors below the limit, 4.0 for a single prompt; without a margin here."""
    limit = math.log(LIMIT)
    assert decide_speedup(rows_at(-threshold - 0.01, limit, 7, prompts), LIMIT, 0.0) == "failed"
    assert decide_speedup(rows_at(-threshold + 0.01, limit, 7, prompts), LIMIT, 0.0) == (
        "inconclusive"
    )


@pytest.mark.parametrize("rounds", [2, 3, 4])
@pytest.mark.parametrize("ratio", [0.01, 100.0])
def test_nothing_is_decided_before_round_five(rounds: int, ratio: float) -> None:
    """However clear it looks."""
    assert decide_speedup([[ratio] * rounds] * 3, LIMIT, MARGIN) == "inconclusive"


@pytest.mark.parametrize(
    ("rounds", "decision"), [(5, "inconclusive"), (6, "inconclusive"), (7, "failed")]
)
def test_failed_only_from_round_seven(rounds: int, decision: Decision) -> None:
    """A pass may come at round 5, a failure not before 7."""
    assert decide_speedup([[0.5] * rounds] * 3, LIMIT, MARGIN) == decision
    assert decide_speedup([[2.0] * rounds] * 3, LIMIT, MARGIN) == "passed"


def test_without_noise_the_margin_alone_decides() -> None:
    """Zero spread divides nothing by zero: just above limit / (1 + margin) passes."""
    floor = LIMIT / (1 + MARGIN)
    assert decide_speedup([[floor * 1.0001] * 7] * 2, LIMIT, MARGIN) == "passed"
    assert decide_speedup([[floor * 0.9999] * 7] * 2, LIMIT, MARGIN) == "failed"
    assert decide_speedup([[LIMIT * 1.0001] * 7], LIMIT, 0.0) == "passed"
    assert decide_speedup([[LIMIT * 0.9999] * 7], LIMIT, 0.0) == "failed"
    assert median_speedup([[2.0] * 5]).error > 0


def simulate(true_log: float, sessions: int, seed: int) -> dict[Decision, int]:
    """Sessions of 12 prompts whose speedups differ, CV 5 % a trial, a look after each round."""
    rng = np.random.default_rng(seed)
    counts: dict[Decision, int] = {"passed": 0, "failed": 0, "inconclusive": 0}
    for _ in range(sessions):
        prompts = rng.normal(0, 0.3, 12)
        logs = true_log + (prompts - prompts.mean())[:, None]
        noise = rng.normal(0, 0.05, (2, 12, 12))
        ratios = np.exp(logs + noise[0] - noise[1])
        decision: Decision = "inconclusive"
        for rounds in range(5, 13):
            decision = decide_speedup(ratios[:, :rounds].tolist(), LIMIT, MARGIN)
            if decision != "inconclusive":
                break
        counts[decision] += 1
    return counts


def test_false_passes_are_rare() -> None:
    """Truth at limit / (1 + margin), eight looks: fewer than 10 % pass."""
    assert simulate(math.log(LIMIT / (1 + MARGIN)), 300, seed=11)["passed"] < 30


def test_false_failures_are_rare() -> None:
    """Truth at the limit: fewer than 10 % fail."""
    assert simulate(math.log(LIMIT), 300, seed=12)["failed"] < 30


def test_clear_cases_are_decided() -> None:
    """Truth 10 % above and 10 % below the limit."""
    assert simulate(math.log(LIMIT * 1.10), 40, seed=13)["passed"] >= 38
    assert simulate(math.log(LIMIT * 0.90), 40, seed=14)["failed"] >= 38


def test_rounds_needed_by_hand() -> None:
    """(9.4 * CV / ln(1 + margin))^2 / J, at least five."""
    h = 0.03
    s = 2 * h / MEDIAN_DIFFERENCE
    variation, needed = rounds_needed([around(0.1, steps(5, h)), around(0.2, steps(5, -h))], 0.03)
    assert variation == pytest.approx(s / math.sqrt(2))
    assert needed == math.ceil((9.4 * variation / math.log(1.03)) ** 2 / 2)
    assert needed > 5
    assert rounds_needed([[1.2] * 5], 0.03) == (0.0, 5)
    assert rounds_needed([around(0.1, steps(5, h))], 0.0)[1] > 1000  # finite without a margin


# -- Harrell-Davis -----------------------------------------------------------------------------


def exact_weights(count: int, a: int, b: int) -> list[float]:
    """For whole a and b the incomplete beta function is a binomial tail."""
    trials = a + b - 1

    def tail(x: Fraction) -> Fraction:
        return sum(
            (math.comb(trials, j) * x**j * (1 - x) ** (trials - j) for j in range(a, trials + 1)),
            Fraction(0),
        )

    levels = [tail(Fraction(i, count)) for i in range(count + 1)]
    return [float(high - low) for low, high in pairwise(levels)]


@pytest.mark.parametrize(
    ("count", "quantile", "a", "b"),
    [(3, 0.5, 2, 2), (9, 0.5, 5, 5), (59, 0.5, 30, 30), (59, 0.95, 57, 3), (99, 0.95, 95, 5)],
)
def test_weights_equal_the_binomial_tails(count: int, quantile: float, a: int, b: int) -> None:
    """a = (n + 1) q and b = (n + 1)(1 - q) are whole here."""
    exact = exact_weights(count, a, b)
    assert harrell_davis_weights(count, quantile) == pytest.approx(exact, abs=2e-5)


def test_weights_of_three_values() -> None:
    """I_x(2, 2) = 3x^2 - 2x^3: 7/27, 13/27, 7/27."""
    weights = harrell_davis_weights(3, 0.5)
    assert weights == pytest.approx([7 / 27, 13 / 27, 7 / 27], abs=1e-4)


@pytest.mark.parametrize("count", [1, 2, 5, 60, 61, 288])
@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95])
def test_weights_are_weights(count: int, quantile: float) -> None:
    """They sum to one, none is negative, and at the median they are symmetric."""
    weights = harrell_davis_weights(count, quantile)
    assert len(weights) == count
    assert sum(weights) == pytest.approx(1.0)
    assert min(weights) >= 0
    if quantile == 0.5:
        assert weights == pytest.approx(weights[::-1])


def test_weights_lie_about_the_quantile() -> None:
    """Of 100 values the mean rank under the weights is near 0.95 * 100."""
    weights = harrell_davis_weights(100, 0.95)
    rank = sum(i * weight for i, weight in enumerate(weights, start=1))
    assert rank == pytest.approx(0.95 * 100 + 0.5, abs=0.2)


# -- p95 ratio ---------------------------------------------------------------------------------


def latencies(seed: int, prompts: int = 12, rounds: int = 6) -> list[list[float]]:
    """Seconds of a mix of short and long prompts with noise."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(1, 5, (prompts, 1))
    rows: list[list[float]] = (base * np.exp(rng.normal(0, 0.05, (prompts, rounds)))).tolist()
    return rows


def test_equal_arms_have_ratio_one() -> None:
    """The very same seconds: no difference and no error."""
    arm = latencies(1)
    tail = p95_ratio(arm, arm, seed=7)
    assert tail.plain == tail.speculative
    assert tail.ratio.value == 1.0
    assert tail.ratio.interval == pytest.approx((1.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.97, 1.3])
def test_a_constant_factor_is_found_exactly(factor: float) -> None:
    """Pairs are kept in the bootstrap, so a factor common to all trials has no error."""
    plain = latencies(2)
    tail = p95_ratio(plain, [[factor * value for value in row] for row in plain], seed=7)
    assert tail.ratio.value == pytest.approx(factor, rel=1e-12)
    low, high = tail.ratio.interval
    assert high / low == pytest.approx(1.0, abs=1e-9)


def test_p95_is_the_weighted_mean_of_ordered_logs() -> None:
    """99 trials of 3 prompts, against weights from whole binomial sums."""
    plain, speculative = latencies(3, 3, 33), latencies(4, 3, 33)
    tail = p95_ratio(plain, speculative, seed=1)
    weights = exact_weights(99, 95, 5)
    for rows, found in ((plain, tail.plain), (speculative, tail.speculative)):
        logs = sorted(math.log(value) for row in rows for value in row)
        assert found == pytest.approx(
            math.exp(sum(w * x for w, x in zip(weights, logs, strict=True))), rel=1e-4
        )
    assert tail.ratio.value == pytest.approx(tail.speculative / tail.plain)


def test_the_bootstrap_repeats_with_its_seed() -> None:
    """Same seed, same answer; another seed, another error but the same point."""
    plain, speculative = latencies(5), latencies(6)
    first, again = (p95_ratio(plain, speculative, seed=3) for _ in range(2))
    other = p95_ratio(plain, speculative, seed=4)
    assert first == again
    assert other.ratio.log == first.ratio.log
    assert other.ratio.error != first.ratio.error
    assert other.ratio.error == pytest.approx(first.ratio.error, rel=0.3)


def test_rounds_are_resampled_within_prompts() -> None:
    """Prompts that differ but never vary carry no error: they are blocks, not samples."""
    plain = [[float(1 + prompt)] * 6 for prompt in range(12)]
    speculative = [[0.5 * (1 + prompt % 4)] * 6 for prompt in range(12)]
    tail = p95_ratio(plain, speculative, seed=3)
    assert tail.ratio.error < 1e-9


@pytest.mark.parametrize(
    ("errors_above", "limit_with_tolerance", "decision"),
    [
        (2.34, None, "failed"),
        (2.32, None, "inconclusive"),
        (None, 1.65, "passed"),
        (None, 1.64, "inconclusive"),
    ],
)
def test_p95_ratio_decisions(
    errors_above: float | None, limit_with_tolerance: float | None, decision: Decision
) -> None:
    """Failed 2.33 errors above the limit; passed 1.645 below limit * (1 + tolerance)."""
    error, most, tolerance = 0.02, 1.0, 0.05
    if errors_above is not None:
        log = math.log(most) + errors_above * error
        tolerance = 0.0
    else:
        assert limit_with_tolerance is not None
        log = math.log(most * (1 + tolerance)) - limit_with_tolerance * error
    assert decide_p95_ratio(Estimate(log, error), most, tolerance) == decision


def test_p95_ratio_limit_is_not_one() -> None:
    """The distance is taken on the log scale from the limit itself."""
    exact = Estimate(math.log(1.2), 1e-9)
    assert decide_p95_ratio(exact, 1.1999, 0.0) == "failed"
    assert decide_p95_ratio(exact, 1.2001, 0.0) == "passed"
    assert decide_p95_ratio(exact, 1.15, 0.05) == "failed"  # above the limit itself


# -- distribution-free bounds ------------------------------------------------------------------


def brute_bounds(count: int, confidence: Fraction) -> tuple[float, float]:
    """Ranks by exact binomial sums; the seconds are their own ranks."""
    p = Fraction(19, 20)
    exactly = [math.comb(count, i) * p**i * (1 - p) ** (count - i) for i in range(count + 1)]
    # x_(i) <= p95 when at least i trials lie under it; x_(i) >= p95 when at most i - 1 do
    lower = [i for i in range(1, count + 1) if sum(exactly[i:], Fraction(0)) >= confidence]
    upper = [i for i in range(1, count + 1) if sum(exactly[:i], Fraction(0)) >= confidence]
    return max(lower, default=-math.inf), min(upper, default=math.inf)


@pytest.mark.parametrize("count", [1, 2, 20, 58, 59, 60, 72, 93, 120, 200])
def test_bounds_equal_brute_force(count: int) -> None:
    """Order statistics of 1 .. n, given in reverse."""
    seconds = [float(count - i) for i in range(count)]
    assert p95_bounds(seconds) == brute_bounds(count, Fraction(95, 100))


def exact_ranks(count: int) -> tuple[int, int]:
    """The same ranks in whole numbers, each binomial term made from the one before."""
    terms = [1]  # ways to have that many trials under p95, times 20 ** count
    for below in range(1, count + 1):
        terms.append(terms[-1] * 19 * (count - below + 1) // below)
    share, at_most, lower, upper = 20**count, 0, 0, 0
    for rank, term in enumerate(terms[:count], 1):
        at_most += term
        lower = rank if 20 * at_most <= share else lower
        upper = upper or (rank if 20 * at_most >= 19 * share else 0)
    return lower, upper


@pytest.mark.parametrize("count", [1_000, 1_029, 1_030, 2_000, 5_000])
def test_bounds_of_many_trials(count: int) -> None:
    """Finite, about the 95th percentile, as far from it as 1.645 standard deviations of a count."""
    seconds = [float(i) for i in range(1, count + 1)]
    lower, upper = p95_bounds(seconds)
    assert (lower, upper) == exact_ranks(count)
    assert lower < 0.95 * count < upper
    reach = 1.645 * math.sqrt(count * 0.95 * 0.05)
    assert (lower, upper) == pytest.approx((0.95 * count - reach, 0.95 * count + reach), abs=1.5)
    assert decide_p95_seconds(seconds, upper) == "passed"
    assert decide_p95_seconds(seconds, upper - 0.5) == "inconclusive"
    assert decide_p95_seconds(seconds, lower - 0.5) == "failed"


def test_the_rule_of_59() -> None:
    """1 - 0.95^n first reaches 0.95 at n = 59: only then the largest trial bounds p95."""
    assert 1 - 0.95**58 < 0.95 < 1 - 0.95**59
    assert p95_bounds([1.0] * 57 + [9.0])[1] == math.inf
    assert p95_bounds([1.0] * 58 + [9.0])[1] == 9.0


def test_a_higher_confidence_needs_more_trials() -> None:
    """0.99 takes 90 trials."""
    assert 1 - 0.95**89 < 0.99 < 1 - 0.95**90
    assert p95_bounds([1.0] * 89, 0.99)[1] == math.inf
    assert p95_bounds([1.0] * 90, 0.99)[1] == 1.0


def test_p95_seconds_decisions() -> None:
    """60 trials of 1 .. 60 s: the bounds are ranks."""
    seconds = [float(i) for i in range(1, 61)]
    lower, upper = brute_bounds(60, Fraction(95, 100))
    assert upper == 60
    assert decide_p95_seconds(seconds, 60.0) == "passed"
    assert decide_p95_seconds(seconds, 59.9) == "inconclusive"
    assert decide_p95_seconds(seconds, lower) == "inconclusive"
    assert decide_p95_seconds(seconds, lower - 0.1) == "failed"
    assert decide_p95_seconds([1.0] * 20, 1e9) == "inconclusive"  # never passed by few

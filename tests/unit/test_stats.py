"""Estimators and rules on numbers worked out by hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_specgate.stats import (
    FALSE_FAILURE,
    Decision,
    Estimate,
    Paired,
    chance_of_false_alarm,
    decide_p95_ratio,
    decide_p95_seconds,
    decide_speedup,
    harrell_davis_weights,
    incomplete_beta,
    median_speedup,
    noise_floor,
    p95_bounds,
    p95_ratio,
    prompt_spread,
    quietness,
    rounds_needed,
    smallest_effect,
    speedup_centres,
    speedup_verdicts,
    thresholds,
)
from tests.simulation import Noise, speedup_sessions

MEDIAN_DIFFERENCE = 0.9539


def around(log: float, deviations: Sequence[float]) -> list[float]:
    """Ratios whose logs lie around a middle."""
    return [math.exp(log + deviation) for deviation in deviations]


def steps(rounds: int, height: float) -> list[float]:
    """Evenly spaced deviations about zero, such as -2h, -h, 0, h, 2h."""
    return [height * (i - (rounds - 1) / 2) for i in range(rounds)]


def paired(first: NDArray[np.float64], second: NDArray[np.float64]) -> Paired:
    """Of log seconds, shape (prompts, rounds)."""
    return Paired(np.stack([np.exp(first), np.exp(second)], axis=-1).tolist())


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


def test_speedup_is_the_mean_over_prompts_of_the_centre() -> None:
    """Two prompts about 2 and 8: the geometric mean is 4, and outliers do not count."""
    rows = [[2.0, 2.02, 1.98, 2.0, 50.0], [8.0, 0.1, 8.08, 7.92, 8.0]]
    assert median_speedup(rows).value == pytest.approx(4.0, rel=2e-4)


def biweight(values: Sequence[float], spread: float) -> tuple[float, float]:
    """(centre, variance) of one prompt by hand: weights (1 - u^2)^2 within four spreads."""
    reach, centre = 4 * spread, statistics.median(values)
    for _ in range(5):
        weights = [max(0.0, 1 - ((v - centre) / reach) ** 2) ** 2 for v in values]
        centre = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    squares = [((v - centre) / reach) ** 2 for v in values]
    slope = statistics.mean((1 - u) * (1 - 5 * u) if u < 1 else 0.0 for u in squares)
    moved = [
        (v - centre) * (1 - u) ** 2 if u < 1 else 0.0 for v, u in zip(values, squares, strict=True)
    ]
    rounds = len(values)
    return centre, sum(m * m for m in moved) / slope**2 / (rounds * (rounds - 1))


def test_centre_and_error_of_one_prompt() -> None:
    """-2h .. 2h and one far away: its spread is its own, and the far one has no weight."""
    logs = [*(math.log(1.5) + d for d in steps(6, 0.01)), math.log(3.0)]
    centre, variance = biweight(logs, prompt_spread(logs))
    estimate = median_speedup([[math.exp(log) for log in logs]])
    assert estimate.log == pytest.approx(centre)
    assert estimate.log == pytest.approx(math.log(1.5), abs=0.002)
    assert estimate.error == pytest.approx(math.sqrt(variance))


def test_error_within_prompts_falls_with_their_number() -> None:
    """Opposite deviations cancel in what all prompts share; the variances add up over J^2."""
    h = 0.02
    one, other = steps(7, h), steps(7, -h)
    estimate = median_speedup([around(0.1, one), around(0.3, other)])
    _, variance = biweight(one, prompt_spread(one))
    assert estimate.log == pytest.approx(0.2)
    assert estimate.error == pytest.approx(math.sqrt(2 * variance) / 2)


def test_error_of_drift_that_all_prompts_share() -> None:
    """Equal deviations in every prompt: the error does not fall with the number of prompts."""
    logs = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    one = median_speedup([around(0.1, steps(7, 0.02))])
    many = median_speedup([around(log, steps(7, 0.02)) for log in logs])
    assert many.error == pytest.approx(one.error)


def test_the_spread_of_a_prompt_is_held_near_that_of_all() -> None:
    """Spreads 1, 1, 50 count as 1, 1, 1.4: the wild prompt is cut to its middle, and tells so."""
    h = 0.001
    spread = 2 * h / MEDIAN_DIFFERENCE
    rows = [around(0.2, steps(5, h * sign)) for sign in (1, -1, 50)]
    wild, variance = biweight(steps(5, 50 * h), 1.4 * spread)
    _, calm = biweight(steps(5, h), spread)
    assert wild == pytest.approx(0)
    assert median_speedup(rows).error == pytest.approx(math.sqrt(2 * calm + variance) / 3)
    centres = speedup_centres(np.log(rows))
    assert (centres.below, centres.above) == pytest.approx((0.025, 0.025))  # 0.075 in one of three


def test_a_prompt_torn_between_two_groups_says_so() -> None:
    """Two of five rounds together and far off could be the true centre; of seven, they are not."""
    logs = [0.0, 0.001, -0.001, 0.69, 0.69]
    five = speedup_centres(np.array([logs, steps(5, 0.001), steps(5, 0.001)]))
    assert float(five.above) == pytest.approx(0.69 / 3, rel=1e-3)
    assert five.below == 0
    seven = speedup_centres(np.array([[*logs, 0.0, 0.0], steps(7, 0.001), steps(7, 0.001)]))
    assert (float(seven.below), float(seven.above)) == (0, 0)
    either = speedup_centres(np.array([[0.0, 0.001, -0.001, 0.69, -0.69], steps(5, 0.001)]))
    assert (float(either.below), float(either.above)) == (0, 0)


@pytest.mark.parametrize("weighted", [False, True])
def test_leading_axes_are_sessions(weighted: bool) -> None:
    """A stack of sessions gives what each gives alone."""
    logs = np.random.default_rng(5).normal(0, 0.05, (4, 3, 6, 8))
    seconds = np.zeros_like(logs)
    centres = speedup_centres(logs, quietness(logs, seconds) if weighted else None)
    verdicts = speedup_verdicts(centres, 6, 8, 1.0, MARGIN)
    assert verdicts.shape == (4, 3)
    for place in np.ndindex(4, 3):
        rows, pairs = np.exp(logs[place]).tolist(), paired(logs[place], seconds[place])
        estimate = pairs.speedup() if weighted else median_speedup(rows)
        assert estimate.log == pytest.approx(float(centres.log[place]))
        assert estimate.error == pytest.approx(float(centres.error[place]))
        words = {1: "passed", -1: "failed", 0: "inconclusive"}
        decision = pairs.decide(1.0, MARGIN) if weighted else decide_speedup(rows, 1.0, MARGIN)
        assert decision == words[int(verdicts[place])]


def quiet_by_hand(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Weights of one prompt's pairs of log seconds: 1 / (1 + (d / 6s)^2)."""
    spreads = []
    for arm in (first, second):
        differences = [abs(a - b) for a, b in combinations(arm, 2)]
        spreads.append(statistics.quantiles(differences, n=4, method="inclusive")[0] / 0.4506)
    delays = [
        max(0.0, a - sorted(first)[1], b - sorted(second)[1])
        for a, b in zip(first, second, strict=True)
    ]
    return [1 / (1 + (delay / (6 * max(spreads))) ** 2) for delay in delays]


def test_first_quartile_of_two_normal_variables() -> None:
    """0.4506 is sqrt(2) times the 62.5 % point of the normal distribution."""
    quartile = math.sqrt(2) * statistics.NormalDist().inv_cdf(0.625)
    assert quartile == pytest.approx(0.4506, abs=5e-5)


def test_disturbed_pairs_count_for_little() -> None:
    """Doubled in either arm, or in both: a few hundredths; the quick ones count whole."""
    first = [0.0, 0.69, 0.01, 0.02, 0.70, 0.015, 0.005]
    second = [1.0, 1.01, 1.69, 1.005, 1.70, 1.02, 1.015]
    weights = quietness(np.array([first]), np.array([second]))[0]
    assert weights == pytest.approx(quiet_by_hand(first, second))
    assert [weight < 0.05 for weight in weights] == [False, True, True, False, True, False, False]
    assert weights[0] == 1
    assert min(weights[3], weights[5], weights[6]) > 0.9


def test_quietness_favours_no_arm() -> None:
    """Nor does it change with the level of a prompt, or of an arm."""
    first, second = Noise(0.05).arms(np.random.default_rng(3), (6, 9))
    weights = quietness(first, second)
    assert quietness(second, first) == pytest.approx(weights)
    levels = np.arange(6.0)[:, None]
    assert quietness(first + levels, second - 0.3) == pytest.approx(weights)


def test_the_spread_of_a_trial_is_held_near_that_of_all() -> None:
    """Three prompts, the wild one's spread counts as 1.25 times that of all."""
    rows = np.array([steps(5, h) for h in (0.001, 0.001, 0.05)])
    differences = [abs(a - b) for row in rows.tolist() for a, b in combinations(row, 2)]
    spread = statistics.quantiles(differences, n=4, method="inclusive")[0] / 0.4506
    expected = [1 / (1 + (0.05 * i / (6 * 1.25 * spread)) ** 2) for i in (0, 0, 1, 2, 3)]
    assert quietness(rows, rows)[2] == pytest.approx(expected)


@pytest.mark.parametrize(("arm", "never"), [(0, "failed"), (1, "passed")])
@pytest.mark.parametrize("prompts", [1, 4])
def test_what_disturbs_one_arm_alone_is_its_own_cost(
    arm: int, never: Decision, prompts: int
) -> None:
    """Every second trial of one path doubled: nobody may say that only the others count."""
    arms = list(Noise(0.01, 0.0).arms(np.random.default_rng(6), (prompts, 10)))
    arms[arm] = arms[arm] + np.where(np.arange(10) % 2, 0.7, 0.0)
    assert (quietness(*arms) == 1).all()
    assert paired(*arms).decide(1.0, MARGIN) != never
    both = [logs + np.where(np.arange(10) % 2, 0.7, 0.0) for logs in arms[1 - arm : 2 - arm] * 2]
    assert (quietness(*both)[:, 1::2] < 0.1).all()


def test_the_noise_of_one_arm_is_no_disturbance() -> None:
    """A calm arm beside a noisy one: its quick rounds would be taken for the truth."""
    rng = np.random.default_rng(4)
    calm, noisy = (Noise(v, 0.0).log_seconds(rng, (600, 12, 12)) for v in (0.02, 0.10))
    centres = speedup_centres(calm - noisy, quietness(calm, noisy))
    assert abs(centres.log.mean()) < 0.005
    assert centres.error.mean() > 0.009


def test_two_doubled_rounds_of_five_move_nothing_where_seconds_are_known() -> None:
    """From ratios alone nobody can say which group is the true one; from seconds one can."""
    ours = np.array([steps(5, 0.001)] * 3)
    plain = ours + np.array([[0.3] * 5, [0.3] * 5, [0.3, 0.3, 0.3, 0.99, 0.99]])
    known, unknown = paired(plain, ours[:, ::-1]), speedup_centres(plain - ours[:, ::-1])
    assert known.speedup().log == pytest.approx(0.3, abs=0.002)
    assert known.speedup().above == 0
    assert float(unknown.above) == pytest.approx(0.69 / 3, rel=0.05)


def test_three_doubled_rounds_of_five() -> None:
    """The median lies among them; the two quick pairs have it all the same."""
    ours = np.array([steps(5, 0.001)] * 3)
    plain = ours[:, ::-1] + np.array([[0.3] * 5, [0.3] * 5, [0.3, 0.3, 0.99, 0.99, 0.99]])
    ours += np.array([[0.69, 0, 0, 0, 0], [0, 0, 0.69, 0, 0], [0] * 5])  # the machine, not a path
    assert paired(plain, ours).speedup().log == pytest.approx(0.3, abs=0.002)
    assert float(speedup_centres(plain - ours).log) > 0.5


def test_interval_is_symmetric_on_the_log_scale() -> None:
    """exp(log -+ 1.96 errors)."""
    low, high = Estimate(math.log(2.0), 0.1).interval
    assert low == pytest.approx(2.0 * math.exp(-0.196))
    assert high == pytest.approx(2.0 * math.exp(0.196))


# -- the rule ----------------------------------------------------------------------------------

LIMIT, MARGIN = 1.15, 0.03
H = 0.02


def rows_at(distance: float, from_log: float, rounds: int, prompts: int) -> list[list[float]]:
    """Ratios whose estimate lies so many standard errors above a log."""
    rows = [steps(rounds, H * (-1) ** prompt) for prompt in range(prompts)]
    error = median_speedup([around(0.0, row) for row in rows]).error
    return [around(from_log + distance * error, row) for row in rows]


@pytest.mark.parametrize(
    ("prompts", "rounds", "above", "below"),
    [
        (1, 5, 2.3 * 7 / 4, math.inf),
        (1, 6, 2.3 * 8 / 5, math.inf),
        (1, 7, 2.3 * 1.5, 3.6 * 1.5),
        (2, 5, 2.45 * 11 / 8, 2.85 * 11 / 8),
        (2, 12, 2.45 * 25 / 22, 2.85 * 25 / 22),
        (12, 5, 2.45 * 51 / 48, 2.85 * 51 / 48),
    ],
)
def test_thresholds(prompts: int, rounds: int, above: float, below: float) -> None:
    """They grow as 1 + 3 / (J (R - 1)); a single prompt has its own and fails from round 7 on."""
    assert thresholds(prompts, rounds) == pytest.approx((above, below))


@pytest.mark.parametrize("prompts", [1, 2, 4])
@pytest.mark.parametrize("rounds", [5, 7, 12])
def test_passed_above_the_limit_less_the_margin(rounds: int, prompts: int) -> None:
    """So many standard errors above limit / (1 + margin)."""
    floor, (above, _) = math.log(LIMIT / (1 + MARGIN)), thresholds(prompts, rounds)
    inside, outside = (rows_at(above + by, floor, rounds, prompts) for by in (0.01, -0.01))
    assert decide_speedup(inside, LIMIT, MARGIN) == "passed"
    assert decide_speedup(outside, LIMIT, MARGIN) == "inconclusive"


@pytest.mark.parametrize(("prompts", "rounds"), [(1, 7), (1, 12), (2, 5), (4, 12)])
def test_failed_below_the_limit(prompts: int, rounds: int) -> None:
    """So many standard errors below the limit; without a margin here."""
    _, below = thresholds(prompts, rounds)
    outside, inside = (
        rows_at(-below - by, math.log(LIMIT), rounds, prompts) for by in (0.01, -0.01)
    )
    assert decide_speedup(outside, LIMIT, 0.0) == "failed"
    assert decide_speedup(inside, LIMIT, 0.0) == "inconclusive"


def test_a_torn_prompt_counts_against_the_verdict() -> None:
    """Three calm prompts 10 % below, or above; one of which two in five rounds speak against it."""
    calm = [around(math.log(LIMIT * 0.9), steps(5, 0.0002 * sign)) for sign in (1, -1, 1)]
    assert decide_speedup([*calm, calm[0]], LIMIT, MARGIN) == "failed"
    torn = [*calm[0][:3], *(2 * ratio for ratio in calm[0][3:])]
    assert decide_speedup([*calm, torn], LIMIT, MARGIN) == "inconclusive"
    fast = [[1 / ratio for ratio in row] for row in calm]
    torn = [*fast[0][:3], *(ratio / 2 for ratio in fast[0][3:])]
    assert decide_speedup([*fast, fast[0]], 1 / LIMIT, MARGIN) == "passed"
    assert decide_speedup([*fast, torn], 1 / LIMIT, MARGIN) == "inconclusive"


@pytest.mark.parametrize("rounds", [2, 3, 4])
@pytest.mark.parametrize("ratio", [0.01, 100.0])
def test_nothing_is_decided_before_round_five(rounds: int, ratio: float) -> None:
    """However clear it looks."""
    assert decide_speedup([[ratio] * rounds] * 3, LIMIT, MARGIN) == "inconclusive"


@pytest.mark.parametrize(
    ("rounds", "decision"), [(5, "inconclusive"), (6, "inconclusive"), (7, "failed")]
)
def test_a_single_prompt_fails_only_from_round_seven(rounds: int, decision: Decision) -> None:
    """A pass may come at round 5; with more prompts a failure as well."""
    assert decide_speedup([[0.5] * rounds], LIMIT, MARGIN) == decision
    assert decide_speedup([[2.0] * rounds], LIMIT, MARGIN) == "passed"
    assert decide_speedup([[0.5] * rounds] * 3, LIMIT, MARGIN) == "failed"


def test_without_noise_the_margin_alone_decides() -> None:
    """Zero spread divides nothing by zero: just above limit / (1 + margin) passes."""
    floor = LIMIT / (1 + MARGIN)
    assert decide_speedup([[floor * 1.0001] * 7] * 2, LIMIT, MARGIN) == "passed"
    assert decide_speedup([[floor * 0.9999] * 7] * 2, LIMIT, MARGIN) == "failed"
    assert decide_speedup([[LIMIT * 1.0001] * 7], LIMIT, 0.0) == "passed"
    assert decide_speedup([[LIMIT * 0.9999] * 7], LIMIT, 0.0) == "failed"
    assert median_speedup([[2.0] * 5]).error > 0


# -- noise -------------------------------------------------------------------------------------


def test_rounds_needed_by_hand() -> None:
    """R (5.3 SE / ln(1 + margin))^2, at least five; 5.3 = 2.45 + 2.85."""
    h = 0.03
    pairs = paired(np.array([steps(5, h), steps(5, -h)]), np.array([[0.0] * 5, [0.3] * 5]))
    variation, needed = rounds_needed(pairs, 0.03)
    reach = 5.3 * (1 + 3 / (2 * 11)) * pairs.speedup().error
    assert variation == pytest.approx(2 * h / MEDIAN_DIFFERENCE / math.sqrt(2))
    assert needed == math.ceil(5 * (reach / math.log(1.03)) ** 2)
    assert needed > 5
    calm = paired(np.zeros((1, 5)), np.zeros((1, 5)))
    assert rounds_needed(calm, 0.03) == (0.0, 5)
    assert rounds_needed(pairs, 0.0)[1] > 1000  # finite without a margin


@pytest.mark.parametrize(("noise", "most"), [(Noise(0.04, 0.0), 14), (Noise(0.04, 0.15), 20)])
def test_the_rounds_needed_do_decide(noise: Noise, most: int) -> None:
    """With about twice what CV 4 % asks of 12 prompts, a truth at either end is decided."""
    arms = noise.arms(np.random.default_rng(8), (200, 12, 30))
    needed = [rounds_needed(paired(arms[0][i], arms[1][i]), MARGIN)[1] for i in range(20)]
    assert 6 <= statistics.median(needed) <= most
    for shares in speedup_sessions(arms, (1.0, 1 / (1 + MARGIN))):
        assert shares.inconclusive < 0.05


def test_smallest_effect_is_found_by_nine_of_ten() -> None:
    """At CV 5 %, twelve prompts and rounds the stated slowdown fails in about nine of ten."""
    arms = Noise(0.05, 0.0).arms(np.random.default_rng(9), (1500, 12, 12))
    effect = smallest_effect(0.05, 12, 12)
    assert 0.02 < effect < 0.035
    (shares,) = speedup_sessions(arms, (1 / (1 + effect),))
    assert shares.failed == pytest.approx(0.9, abs=0.05)


def test_noise_floor_of_a_drifting_machine() -> None:
    """CV 3 %, every round 1 % slower than the last, no difference between the arms."""
    rng, noise = np.random.default_rng(10), Noise(0.03, 0.0)
    base = rng.normal(0, 0.3, (12, 1)) + 0.01 * np.arange(10)
    first, second = (np.exp(base + noise.log_seconds(rng, (12, 10))).tolist() for _ in range(2))
    floor = noise_floor(first, second)
    assert floor.variation == pytest.approx(0.03, rel=0.25)
    assert floor.drift.log == pytest.approx(0.01, abs=3 * floor.drift.error)
    assert 0 < floor.drift.error < 0.003
    low, high = floor.ratio.interval
    assert low < 1 < high
    ratio = paired(np.log(first), np.log(second)).speedup()
    assert (floor.ratio.log, floor.ratio.error) == pytest.approx((ratio.log, ratio.error))
    assert floor.smallest_effect == smallest_effect(floor.variation, 12, 10)
    assert noise_floor(first, second, 12).smallest_effect < floor.smallest_effect


def test_drift_by_hand() -> None:
    """Prompts that double each round, whatever their length: ln 2 a round, without error."""
    arm = [[scale * 2.0**number for number in range(5)] for scale in (1.0, 7.0, 0.3)]
    drift = noise_floor(arm, arm).drift
    assert drift.log == pytest.approx(math.log(2))
    assert drift.error == pytest.approx(0, abs=1e-12)


def test_chance_of_false_alarm() -> None:
    """The sum, at most 1; facts have no rate."""
    assert chance_of_false_alarm([]) == 0
    rates = [FALSE_FAILURE["speedup"], FALSE_FAILURE["speedup"], FALSE_FAILURE["p95_ratio"]]
    assert chance_of_false_alarm(rates) == pytest.approx(0.045)
    assert chance_of_false_alarm([0.6, 0.6]) == 1.0


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
    assert harrell_davis_weights(count, quantile) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("quantile", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("count", [2, 3, 5, 10, 59, 60, 61, 144, 288, 1000, 1999, 2000])
def test_weights_against_scipy(count: int, quantile: float) -> None:
    """The incomplete beta function and its differences, to 1e-10."""
    from scipy.special import betainc

    a, b, at = (count + 1) * quantile, (count + 1) * (1 - quantile), np.arange(count + 1) / count
    expected = betainc(a, b, at)
    assert np.abs(incomplete_beta(a, b, at) - expected).max() < 1e-10
    assert (
        np.abs(np.array(harrell_davis_weights(count, quantile)) - np.diff(expected)).max() < 1e-10
    )


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 1), (1e-3, 2), (3, 1e-3), (700, 0.3)])
def test_incomplete_beta_against_scipy(a: float, b: float) -> None:
    """Shapes that no weights have; both ends are exact."""
    from scipy.special import betainc

    at = np.concatenate([np.linspace(0, 1, 101), [1e-12, 1 - 1e-12]])
    assert np.abs(incomplete_beta(a, b, at) - betainc(a, b, at)).max() < 1e-10
    assert incomplete_beta(a, b, np.array([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_weights_of_three_values() -> None:
    """I_x(2, 2) = 3x^2 - 2x^3: 7/27, 13/27, 7/27."""
    weights = harrell_davis_weights(3, 0.5)
    assert weights == pytest.approx([7 / 27, 13 / 27, 7 / 27], abs=1e-12)


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
            math.exp(sum(w * x for w, x in zip(weights, logs, strict=True))), rel=1e-9
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


@pytest.mark.parametrize(("prompts", "rounds"), [(1, 2), (3, 5), (40, 6), (700, 6)])
def test_the_bootstrap_is_that_of_whole_samples(prompts: int, rounds: int) -> None:
    """Each drawn sample sorted anew; the largest mix has weights in its tail alone."""
    mix = np.log([latencies(7, prompts, rounds), latencies(8, prompts, rounds)])
    drawn = np.random.default_rng(3).integers(rounds, size=(50, prompts, rounds))
    weights = np.array(harrell_davis_weights(prompts * rounds, 0.95))
    quantiles = [
        np.sort(np.take_along_axis(arm[None], drawn, axis=2).reshape(50, -1)) @ weights
        for arm in mix
    ]
    error = np.std(quantiles[1] - quantiles[0], ddof=1) * math.sqrt(rounds / (rounds - 1))
    tail = p95_ratio(*np.exp(mix).tolist(), seed=3, resamples=50)
    assert tail.ratio.error == pytest.approx(error, rel=1e-9)


def test_rounds_are_resampled_within_prompts() -> None:
    """Prompts that differ but never vary carry no error: they are blocks, not samples."""
    plain = [[float(1 + prompt)] * 6 for prompt in range(12)]
    speculative = [[0.5 * (1 + prompt % 4)] * 6 for prompt in range(12)]
    tail = p95_ratio(plain, speculative, seed=3)
    assert tail.ratio.error < 1e-9


@pytest.mark.parametrize(
    ("errors_above", "limit_with_tolerance", "decision"),
    [
        (2.81, None, "failed"),
        (2.79, None, "inconclusive"),
        (None, 1.65, "passed"),
        (None, 1.64, "inconclusive"),
    ],
)
def test_p95_ratio_decisions(
    errors_above: float | None, limit_with_tolerance: float | None, decision: Decision
) -> None:
    """Failed 2.8 errors above the limit; passed 1.645 below limit * (1 + tolerance)."""
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

"""The stated error rates of the decisions, on a few thousand sessions from a fixed seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_specgate.stats import FALSE_FAILURE, Centres, speedup_centres, speedup_verdicts
from tests.simulation import (
    MARGIN,
    MOST_ROUNDS,
    Arms,
    Floats,
    Noise,
    Shares,
    change_sessions,
    p95_sessions,
    speedup_sessions,
)

AT_LIMIT, AT_MARGIN, AT_SIX = 1.0, 1 / (1 + MARGIN), 1 / 1.06
# prompts, noise, least share of failed sessions 3 % below the limit and 6 % below it
CELLS = [
    (1, Noise(0.02), 0.25, 0.90),
    (4, Noise(0.05), 0.30, 0.92),
    (4, Noise(0.10, 0.0), 0.03, 0.30),
    (12, Noise(0.02), 0.95, 0.99),
    (12, Noise(0.05), 0.88, 0.99),
    (12, Noise(0.10), 0.10, 0.65),
    (24, Noise(0.02), 0.95, 0.99),
    (24, Noise(0.05), 0.93, 0.99),
    (24, Noise(0.10), 0.35, 0.93),
]
SESSIONS = 1500


def slack(rate: float, sessions: int) -> float:
    """Three standard errors of a share."""
    return 3 * math.sqrt(rate * (1 - rate) / sessions)


def sessions_of(prompts: int, noise: Noise) -> Arms:
    """Always the same ones."""
    rng = np.random.default_rng([20, prompts])
    return noise.arms(rng, (SESSIONS, prompts, MOST_ROUNDS))


def stated_errors_hold(at_limit: Shares, at_margin: Shares) -> bool:
    """At most 1 % failed at the limit, at most 5 % passed at limit / (1 + margin)."""
    rate = FALSE_FAILURE["speedup"]
    return at_limit.failed <= rate + slack(rate, SESSIONS) and at_margin.passed <= 0.05 + slack(
        0.05, SESSIONS
    )


@pytest.mark.parametrize(("prompts", "noise", "at_three", "at_six"), CELLS)
def test_speedup(prompts: int, noise: Noise, at_three: float, at_six: float) -> None:
    """Both errors, and the power to find a slowdown."""
    limit, margin, six = speedup_sessions(
        sessions_of(prompts, noise), (AT_LIMIT, AT_MARGIN, AT_SIX)
    )
    assert stated_errors_hold(limit, margin)
    assert margin.failed >= at_three
    assert six.failed >= at_six
    assert six.passed <= 0.005


def test_a_clear_speedup_stops_early() -> None:
    """3 % above the limit: passed, in little more than the least rounds."""
    (shares,) = speedup_sessions(sessions_of(12, Noise(0.05)), (1.03,))
    assert shares.passed >= 0.995
    assert shares.rounds <= 5.5


def eager(
    centres: Centres, prompts: int, rounds: int, least: float, margin: float
) -> NDArray[np.int8]:
    """The rule with the thresholds of a single look."""
    smaller = Centres(centres.log, 0.6 * centres.error, centres.below, centres.above)
    return speedup_verdicts(smaller, prompts, rounds, least, margin)


def careless(
    centres: Centres, prompts: int, rounds: int, least: float, margin: float
) -> NDArray[np.int8]:
    """The rule that trusts every prompt's centre."""
    none = np.zeros_like(centres.log)
    trusting = Centres(centres.log, centres.error, none, none)
    return speedup_verdicts(trusting, prompts, rounds, least, margin)


def mean_and_deviation(plain: Floats, speculative: Floats) -> Centres:
    """No robust centre: the plain mean of all."""
    logs = plain - speculative
    flat = logs.reshape(*logs.shape[:-2], -1)
    none = np.zeros(logs.shape[:-2])
    error = 0.5 * flat.std(axis=-1, ddof=1) / math.sqrt(flat.shape[-1])
    return Centres(flat.mean(axis=-1), error, none, none)


def of_ratios(plain: Floats, speculative: Floats) -> Centres:
    """Where only ratios are known: no weights."""
    return speedup_centres(plain - speculative)


def test_worse_rules_are_caught() -> None:
    """The same check turns down thresholds and errors that are too small."""
    arms = sessions_of(12, Noise(0.05))
    effects = (AT_LIMIT, AT_MARGIN)
    assert stated_errors_hold(*speedup_sessions(arms, effects))
    assert not stated_errors_hold(*speedup_sessions(arms, effects, rule=eager))
    assert not stated_errors_hold(*speedup_sessions(arms, effects, estimator=mean_and_deviation))


def test_torn_prompts_are_not_trusted() -> None:
    """CV 2 %, 24 prompts: where they are, a session 3 % below the limit passes now and then."""
    arms = sessions_of(24, Noise(0.02))
    (trusted,) = speedup_sessions(arms, (AT_MARGIN,), estimator=of_ratios, rule=careless)
    (doubted,) = speedup_sessions(arms, (AT_MARGIN,), estimator=of_ratios)
    assert doubted.passed <= 0.02 < trusted.passed


@pytest.mark.parametrize(("prompts", "variation"), [(4, 0.05), (12, 0.05)])
def test_a_change_since_another_session(prompts: int, variation: float) -> None:
    """Limit 5 % slower: at it at most 1 % failed and 5 % passed; no change and 10 % are told."""
    sessions = 150
    same, limit, slower = (
        change_sessions(
            *(Noise(variation), change),
            sessions=sessions,
            prompts=prompts,
            stored_rounds=8,
            seed=5,
        )
        for change in (1.0, 1.05, 1.1)
    )
    assert limit.failed <= 0.01 + slack(0.01, sessions)
    assert limit.passed <= 0.05 + slack(0.05, sessions)
    assert same.failed <= 0.01 + slack(0.01, sessions)
    assert same.passed >= 0.75
    assert slower.failed >= 0.6
    assert slower.passed == 0


@pytest.mark.parametrize(("noise", "least"), [(Noise(0.03, 0.0), 0.95), (Noise(0.05), 0.0)])
def test_p95(noise: Noise, least: float) -> None:
    """At most 2.5 % false failures at 60 trials an arm; 10 % slower is seen where it can be."""
    rate, sessions = FALSE_FAILURE["p95_ratio"], 300
    same, slower = (
        p95_sessions(noise, effect, sessions=sessions, prompts=12, rounds=5, seed=3)
        for effect in (1.0, 1.1)
    )
    assert same.failed <= rate + slack(rate, sessions)
    assert slower.failed >= least
    assert slower.passed <= 0.05 + slack(0.05, sessions)

"""Sessions drawn from a model of noise and decided by the rules themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_specgate.stats import (
    LEAST_ROUNDS,
    Centres,
    change_of,
    decide_change,
    decide_p95_ratio,
    median_level,
    p95_ratio,
    quietness,
    speedup_centres,
    speedup_verdicts,
)

Floats = NDArray[np.float64]
Arms = tuple[Floats, Floats]
Estimator = Callable[[Floats, Floats], Centres]
Rule = Callable[[Centres, int, int, float, float], NDArray[np.int8]]

MARGIN = 0.03
MOST_ROUNDS = 12


@dataclass(frozen=True)
class Noise:
    """Of a single trial: exp(N(0, variation)), and a share of trials that take twice as long."""

    variation: float
    doubled: float = 0.05

    def log_seconds(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """The log of what each trial takes, of a path that takes one second."""
        normal = rng.normal(0, self.variation, shape)
        return normal + math.log(2) * (rng.random(shape) < self.doubled)

    def arms(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Arms:
        """Log seconds of the plain and of the speculative path, which are equally fast."""
        return self.log_seconds(rng, shape), self.log_seconds(rng, shape)


@dataclass(frozen=True)
class Shares:
    """What became of many sessions: shares of them, and rounds in the mean."""

    failed: float
    passed: float
    rounds: float

    @property
    def inconclusive(self) -> float:
        """The rest."""
        return 1 - self.failed - self.passed

    def __str__(self) -> str:
        """``failed/passed/inconclusive, rounds`` in per cent."""
        shares = (self.failed, self.passed, abs(self.inconclusive))  # no "-0.0"
        return "/".join(f"{100 * s:.1f}" for s in shares) + f", {self.rounds:.1f}"


def our_estimator(plain: Floats, speculative: Floats) -> Centres:
    """Of paired log seconds."""
    return speedup_centres(plain - speculative, quietness(plain, speculative))


def speedup_sessions(
    arms: Arms,
    effects: Iterable[float],
    *,
    estimator: Estimator = our_estimator,
    rule: Rule = speedup_verdicts,
    margin: float = MARGIN,
) -> list[Shares]:
    """Sessions with a look after each round from 5 on, one result an effect.

    Args:
        arms: log seconds of the plain and of the speculative path, which are equally fast; shape
            (sessions, prompts, rounds).
        effects: true speedup over the limit, such as 0.97.
        estimator: of a look.
        rule: of a look.
        margin: of the gate.
    """
    plain, speculative = arms
    sessions, prompts, most = plain.shape
    looks = [
        (rounds, estimator(plain[..., :rounds], speculative[..., :rounds]))
        for rounds in range(LEAST_ROUNDS, most + 1)
    ]
    results = []
    for effect in effects:
        final, ended = np.zeros(sessions, dtype=np.int8), np.full(sessions, most)
        for rounds, centres in looks:
            # a truth of 0.97 at a limit of 1 is a truth of 1 at a limit of 1 / 0.97
            now = np.where(final == 0, rule(centres, prompts, rounds, 1 / effect, margin), 0)
            ended[now != 0] = rounds
            final += now.astype(np.int8)
        results.append(
            Shares(float((final < 0).mean()), float((final > 0).mean()), float(ended.mean()))
        )
    return results


def p95_sessions(
    noise: Noise,
    effect: float,
    *,
    sessions: int,
    prompts: int,
    rounds: int,
    seed: int | None,
    tolerance: float = 0.05,
) -> Shares:
    """Sessions with one look at the p95 ratio, limit 1, of prompts of unequal length.

    Args:
        noise: of a trial.
        effect: true ratio of speculative to plain, 1.1 for 10 % slower.
        sessions: how many.
        prompts: whose plain seconds spread by a factor of exp(N(0, 0.3)).
        rounds: of the look.
        seed: None for a fresh one.
        tolerance: of the gate.
    """
    rng, counts = np.random.default_rng(seed), {"failed": 0, "passed": 0, "inconclusive": 0}
    for number in range(sessions):
        length = rng.normal(0, 0.3, (prompts, 1))
        plain = np.exp(length + noise.log_seconds(rng, (prompts, rounds)))
        ours = effect * np.exp(length + noise.log_seconds(rng, (prompts, rounds)))
        tail = p95_ratio(_rows(plain), _rows(ours), seed=number)
        counts[decide_p95_ratio(tail.ratio, 1.0, tolerance)] += 1
    return Shares(counts["failed"] / sessions, counts["passed"] / sessions, rounds)


def change_sessions(
    noise: Noise,
    change: float,
    *,
    sessions: int,
    prompts: int,
    stored_rounds: int,
    seed: int | None,
    worst: float = 1.05,
    most: int = MOST_ROUNDS,
) -> Shares:
    """Sessions against a stored one, with a look after each round from 5 on.

    Args:
        noise: of a trial, then and now.
        change: true seconds now over then.
        sessions: how many; each has a stored session of its own.
        prompts: of equal length.
        stored_rounds: of the stored session.
        seed: None for a fresh one.
        worst: limit of the change.
        most: rounds.
    """
    rng, counts = np.random.default_rng(seed), {"failed": 0, "passed": 0, "inconclusive": 0}
    total = 0
    for _ in range(sessions):
        then = median_level(_rows(np.exp(noise.log_seconds(rng, (prompts, stored_rounds)))))
        now = change * np.exp(noise.log_seconds(rng, (prompts, most)))
        for rounds in range(LEAST_ROUNDS, most + 1):
            ours = median_level(_rows(now[:, :rounds]))
            fewest = min(rounds, stored_rounds)
            decision = decide_change(change_of(then, ours), worst, prompts, fewest)
            if decision != "inconclusive":
                break
        counts[decision] += 1
        total += rounds
    return Shares(counts["failed"] / sessions, counts["passed"] / sessions, total / sessions)


def _rows(array: Floats) -> Sequence[Sequence[float]]:
    rows: Any = array.tolist()
    return rows  # type: ignore[no-any-return]  # numpy does not say what a list holds

"""Estimators and decision rules: pure functions on numbers.

What each decides, with which error and from which source, is in ``docs/statistics.md``.
"""

from .change import change_of, decide_change, decide_paired_change, median_level
from .common import Decision, Estimate, Level
from .noise import (
    FALSE_FAILURE,
    NoiseFloor,
    chance_of_false_alarm,
    noise_floor,
    rounds_needed,
    smallest_effect,
)
from .quality import (
    decide_not_worse,
    decide_rate,
    exact_bounds,
    paired_interval,
    paired_z,
    times_needed,
)
from .speedup import (
    LEAST_ROUNDS,
    LEAST_ROUNDS_TO_FAIL_ALONE,
    Centres,
    Paired,
    decide_speedup,
    median_speedup,
    prompt_spread,
    quietness,
    speedup_centres,
    speedup_verdicts,
    thresholds,
)
from .tail import (
    LEAST_TRIALS_P95,
    TailEstimate,
    decide_p95_ratio,
    decide_p95_seconds,
    harrell_davis_weights,
    incomplete_beta,
    p95,
    p95_bounds,
    p95_ratio,
)

__all__ = [
    "FALSE_FAILURE",
    "LEAST_ROUNDS",
    "LEAST_ROUNDS_TO_FAIL_ALONE",
    "LEAST_TRIALS_P95",
    "Centres",
    "Decision",
    "Estimate",
    "Level",
    "NoiseFloor",
    "Paired",
    "TailEstimate",
    "chance_of_false_alarm",
    "change_of",
    "decide_change",
    "decide_not_worse",
    "decide_p95_ratio",
    "decide_p95_seconds",
    "decide_paired_change",
    "decide_rate",
    "decide_speedup",
    "exact_bounds",
    "harrell_davis_weights",
    "incomplete_beta",
    "median_level",
    "median_speedup",
    "noise_floor",
    "p95",
    "p95_bounds",
    "p95_ratio",
    "paired_interval",
    "paired_z",
    "prompt_spread",
    "quietness",
    "rounds_needed",
    "smallest_effect",
    "speedup_centres",
    "speedup_verdicts",
    "thresholds",
    "times_needed",
]

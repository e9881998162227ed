"""Is it still faster? Robust centre of the paired end-to-end ratios, mean over the prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.plan import MOST_ROUNDS
from ..config.spec import number, one_of
from ..stats import (
    FALSE_FAILURE,
    LEAST_ROUNDS,
    LEAST_ROUNDS_TO_FAIL_ALONE,
    Paired,
    rounds_needed,
    thresholds,
)
from ..text import count
from .base import BaseGate, Verdict, nothing_to_judge
from .words import carried, excluded, noise_floor_line, too_short, unfinished, untimed

if TYPE_CHECKING:
    from ..measure.evidence import Evidence


class SpeedupGate(BaseGate):
    """Plain over speculative e2e seconds, paired by round, at least ``min``."""

    name = item = "speedup"
    options = {
        "min": number(above=0),
        "statistic": one_of("median"),
        "margin": number(least=0, most=0.5),
    }
    defaults = {"min": 1.15, "statistic": "median", "margin": 0.03}

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Another round while this look decides nothing."""
        if nothing_to_judge(evidence) or not (pairs := evidence.paired()).rounds:
            return False
        return pairs.decide(options["min"], options["margin"]) == "inconclusive"

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over all timed cases."""
        least, margin = options["min"], options["margin"]
        shared: dict[str, Any] = {
            "limit": least,
            "unit": "x",
            "limit_text": f">= {least:.2f}x",
        }
        if problem := nothing_to_judge(evidence):
            reason, advice = problem
            return self.failed(subject, reason, *advice, **shared)
        pairs, rounds = evidence.paired(), evidence.rounds
        if not pairs.prompts:
            return Verdict(self.name, subject, "inconclusive", untimed(evidence), **shared)
        shared |= {
            "samples": rounds * pairs.prompts,
            "evidence_text": f"{count(pairs.prompts, 'prompt')}, {count(rounds, 'round')}",
        }
        if rounds < 2:
            only = sum(row[0] for row in pairs.ratios) / pairs.prompts
            return Verdict(
                self.name,
                subject,
                "inconclusive",
                f"a single round has no spread to judge by{unfinished(evidence)}",
                observed=only,
                observed_text=f"{only:.2f}x",
                advice=(f"Run at least {LEAST_ROUNDS} rounds: --spec-rounds {LEAST_ROUNDS}:12",),
                **shared,
            )
        estimate = pairs.speedup()
        low, high = estimate.interval
        shared |= {
            "observed": estimate.value,
            "spread": estimate.interval,
            "observed_text": f"{estimate.value:.2f}x [{low:.2f}, {high:.2f}]",
            "details": (
                *carried(evidence),
                *noise_floor_line(evidence, rounds, margin, "margin"),
                *too_short(evidence),
                *excluded(evidence),
            ),
            "false_alarm": FALSE_FAILURE["speedup"] * _can_fail(pairs.prompts, rounds),
        }
        match pairs.decide(least, margin):
            case "passed":
                return Verdict(
                    self.name, subject, "passed", f"{estimate.value:.2f}x as fast", **shared
                )
            case "failed":
                speed = f"{estimate.value:.2f}x as fast as the plain path"
                return Verdict(
                    self.name,
                    subject,
                    "failed",
                    f"the speculative path is {speed}, the limit is {least:.2f}x",
                    advice=(
                        "Try another num_draft_tokens or a smaller draft, or look at the "
                        "table by kind: a draft may pay on some alone.",
                    ),
                    **shared,
                )
        why = _undecided(pairs, least, margin)
        why["reason"] += unfinished(evidence)
        return Verdict(self.name, subject, "inconclusive", **why, **shared)


def _can_fail(prompts: int, rounds: int) -> bool:
    return rounds >= LEAST_ROUNDS and not math.isinf(thresholds(prompts, rounds)[1])


def _undecided(pairs: Paired, least: float, margin: float) -> dict[str, Any]:
    variation, needed = rounds_needed(pairs, margin)
    rounds = pairs.rounds
    if rounds < LEAST_ROUNDS:
        return {
            "reason": f"{count(rounds, 'round')} cannot decide: it takes {LEAST_ROUNDS}",
            "advice": (f"Run again with --spec-rounds {LEAST_ROUNDS}:12",),
        }
    if not _can_fail(pairs.prompts, rounds) and pairs.speedup().value < least:
        return {
            "reason": f"below the limit of {least:.2f}x, but with a single prompt it takes "
            f"{LEAST_ROUNDS_TO_FAIL_ALONE} rounds to fail, found {rounds}",
            "advice": (f"Run again with --spec-rounds {LEAST_ROUNDS_TO_FAIL_ALONE}:12",),
        }
    more = max(needed, rounds + 1)
    advice = f"About {more} rounds would decide: --spec-rounds {LEAST_ROUNDS}:{more}; a quieter "
    advice += "machine needs fewer."
    if more > MOST_ROUNDS:
        advice = (
            f"Not even {MOST_ROUNDS} rounds would decide: give more prompts or longer outputs, a "
            "quieter machine, or a limit further from what is observed."
        )
    return {
        "reason": f"undecided after {count(rounds, 'round')}: the noise (CV {variation:.1%}) is "
        "too large for so close a limit",
        "advice": (advice,),
    }

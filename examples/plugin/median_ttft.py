"""A gate of one's own: the median time to the first token is at most ``max_seconds``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_specgate import BaseGate, Verdict
from pytest_specgate.config.spec import number
from pytest_specgate.gates.base import nothing_to_judge

if TYPE_CHECKING:
    from pytest_specgate import Evidence

LEAST_TRIALS = 6  # fewer have no interval


class MedianTtftGate(BaseGate):
    """Seconds to the first token on the speculative path, over all prompts and rounds.

    They hold the draft's prefill and a whole first block, which is what a user waits for.
    """

    name = item = "median_ttft"
    options = {"max_seconds": number(above=0)}
    defaults = {"max_seconds": 1.0}

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Another round while this look decides nothing, where most_rounds could decide."""
        if nothing_to_judge(evidence) or not (seconds := _ttft(evidence)):
            return False
        if most_rounds * len(evidence.timed) < LEAST_TRIALS:
            return False
        low, high = median_interval(seconds)
        return bool(low <= options["max_seconds"] < high)

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """Green or red when the whole interval lies on one side of the limit."""
        limit = options["max_seconds"]
        shared: dict[str, Any] = {"limit": limit, "limit_text": f"<= {limit:g} s", "unit": "s"}
        if problem := nothing_to_judge(evidence):
            reason, advice = problem
            return self.failed(subject, reason, *advice, **shared)
        seconds = _ttft(evidence)
        if not seconds:
            return Verdict(self.name, subject, "inconclusive", "no round was completed", **shared)
        middle, (low, high) = median(seconds), median_interval(seconds)
        shared |= {
            "observed": middle,
            "samples": len(seconds),
            "spread": (low, high),
            "observed_text": f"{middle:.3f} s [{low:.3f}, {high:.3f}]",
            "evidence_text": f"{len(seconds)} trials",
        }
        reason = f"the first token takes {middle:.3f} s, the limit is {limit:g} s"
        if low > limit:
            todo = "Shorten the prompts, or lower num_draft_tokens: the first block comes sooner."
            return self.failed(subject, reason, todo, **shared)
        status: Any = "passed" if high <= limit else "inconclusive"
        return Verdict(self.name, subject, status, reason, **shared)


def _ttft(evidence: Evidence) -> list[float]:
    return [trial.ttft_s for case in evidence.timed for trial in case.speculative[0].trials]


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median by order statistics; without bounds below LEAST_TRIALS values."""
    ordered, count = sorted(values), len(values)
    below = 0.0  # chance that at most `rank` of the values lie under the true median
    for rank in range(count):
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            return (ordered[rank - 1], ordered[-rank]) if rank else (-math.inf, math.inf)
    return -math.inf, math.inf

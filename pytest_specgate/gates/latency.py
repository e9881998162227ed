"""Is the slowest part of the prompt mix no slower? p95 of end-to-end seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.spec import number, optional
from ..stats import LEAST_TRIALS_P95, decide_p95_ratio, decide_p95_seconds, p95_bounds, p95_ratio
from ..text import count
from .base import BaseGate, Status, Verdict, nothing_to_judge
from .words import excluded, too_short, untimed

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence


_LEAST_ROUNDS = 2  # a single one has no spread


class LatencyGate(BaseGate):
    """p95 over all trials of the mix: its ratio to the plain path's, and optionally seconds."""

    name = "latency"
    item = "latency_p95"
    options = {
        "p95_max_ratio": optional(number(above=0)),
        "p95_max_seconds": optional(number(above=0)),
        "tolerance": number(least=0, most=0.5),
    }
    defaults = {"p95_max_ratio": 1.0, "p95_max_seconds": None, "tolerance": 0.05}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """A gate without a limit would judge nothing."""
        if options["p95_max_ratio"] is None and options["p95_max_seconds"] is None:
            return "give p95_max_ratio or p95_max_seconds: with neither there is nothing to judge"
        return None

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Rounds up to the count that makes a p95 honest, never for a better verdict."""
        if not evidence.timed or most_rounds * len(evidence.timed) < LEAST_TRIALS_P95:
            return False
        return evidence.rounds < _rounds_needed(len(evidence.timed))

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over the e2e seconds of all timed cases."""
        ratio, seconds = options["p95_max_ratio"], options["p95_max_seconds"]
        limits = [f"<= {ratio:.2f}x"] if ratio is not None else []
        limits += [f"<= {seconds:g} s"] if seconds is not None else []
        shared: dict[str, Any] = {
            "limit": ratio if ratio is not None else seconds,
            "unit": "x" if ratio is not None else "s",
            "limit_text": ", ".join(limits),
        }
        if problem := nothing_to_judge(evidence):
            reason, advice = problem
            return self.failed(subject, reason, *advice, **shared)
        trials, rounds = _trials(evidence), evidence.rounds
        shared |= {
            "samples": trials,
            "evidence_text": f"{count(trials, 'trial')} an arm",
            "details": (*too_short(evidence), *excluded(evidence)),
        }
        if not trials:
            return Verdict(self.name, subject, "inconclusive", untimed(evidence), **shared)
        plain = [[t.e2e_s for t in case.plain.trials[:rounds]] for case in evidence.timed]
        ours = [[t.e2e_s for t in c.speculative[0].trials[:rounds]] for c in evidence.timed]
        pooled = [value for row in ours for value in row]
        if trials < LEAST_TRIALS_P95 or rounds < _LEAST_ROUNDS:
            return Verdict(
                self.name,
                subject,
                "inconclusive",
                f"p95 cannot be estimated from {count(trials, 'trial')} in "
                f"{count(rounds, 'round')}: it takes {LEAST_TRIALS_P95} trials an arm in at least "
                f"{_LEAST_ROUNDS} rounds",
                observed=max(pooled) if ratio is None else None,
                observed_text=f"{max(pooled):.2f} s (max of {trials})",
                advice=(_more_trials(len(ours)),),
                **shared,
            )
        tail = p95_ratio(plain, ours, seed=evidence.decoding.seed)
        low, high = tail.ratio.interval
        bounds = p95_bounds(pooled)
        decisions: list[Status] = []
        reasons = []
        if ratio is not None:
            decisions.append(decide_p95_ratio(tail.ratio, ratio, options["tolerance"]))
            reasons.append(f"p95 is {tail.ratio.value:.2f}x the plain path's, limit {ratio:.2f}x")
            shared |= {
                "observed": tail.ratio.value,
                "spread": tail.ratio.interval,
                "observed_text": f"{tail.ratio.value:.2f}x [{low:.2f}, {high:.2f}]",
            }
        if seconds is not None:
            decisions.append(decide_p95_seconds(pooled, seconds))
            reasons.append(f"p95 is {tail.speculative:.2f} s, limit {seconds:g} s")
            if ratio is None:
                shared |= {
                    "observed": tail.speculative,
                    "spread": bounds,
                    "observed_text": f"{tail.speculative:.2f} s [{bounds[0]:.2f}, {bounds[1]:.2f}]",
                }
        status: Status = next((s for s in ("failed", "inconclusive") if s in decisions), "passed")
        slower = [
            case.prompt.id
            for case, p, s in zip(evidence.timed, plain, ours, strict=True)
            if sum(s) > sum(p)
        ]
        details = [f"p95 plain {tail.plain:.3f} s, speculative {tail.speculative:.3f} s"]
        if slower:
            names = ", ".join(slower[:8]) + (", ..." if len(slower) > 8 else "")
            details.append(f"slower with the draft: {count(len(slower), 'prompt')}: {names}")
        shared["details"] = (*details, *shared["details"])
        more = {
            "failed": "Look at the prompts that are slower with the draft: few accepted tokens, or "
            "a long prompt that the draft reads as well.",
            "inconclusive": f"More trials narrow it: --spec-rounds {rounds + 5}",
        }.get(status)
        return Verdict(
            self.name,
            subject,
            status,
            "; ".join(reasons),
            advice=(more,) if more else (),
            **shared,
        )


def _trials(evidence: Evidence) -> int:
    return evidence.rounds * len(evidence.timed)


def _rounds_needed(prompts: int) -> int:
    return max(_LEAST_ROUNDS, -(-LEAST_TRIALS_P95 // prompts))


def _more_trials(prompts: int) -> str:
    rounds = _rounds_needed(prompts)
    return f"With {count(prompts, 'prompt')} that is --spec-rounds {rounds}; or give more prompts."

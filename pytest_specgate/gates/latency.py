"""Is the slowest part of the prompt mix no slower? p95 of e2e, TTFT, time per output token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.spec import number, optional
from ..stats import (
    FALSE_FAILURE,
    LEAST_TRIALS_P95,
    decide_p95_ratio,
    decide_p95_seconds,
    p95_bounds,
    p95_ratio,
)
from ..text import count
from .base import BaseGate, Status, Verdict, nothing_to_judge
from .words import carried, excluded, noise_floor_line, too_short, unfinished, untimed

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import CaseEvidence, Evidence
    from ..measure.trial import Trial


_LEAST_ROUNDS = 2  # a single one has no spread


class TailGate(BaseGate):
    """p95 over all trials of the mix: its ratio to the plain path's, and optionally seconds."""

    options = {
        "p95_max_ratio": optional(number(above=0)),
        "p95_max_seconds": optional(number(above=0)),
        "tolerance": number(least=0, most=0.5),
    }
    defaults = {"p95_max_ratio": 1.0, "p95_max_seconds": None, "tolerance": 0.05}
    slower_words = "slower with the draft"

    def seconds(self, trial: Trial) -> float | None:
        """The figure of one trial; None where it has none."""
        raise NotImplementedError

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """A gate without a limit would judge nothing."""
        if options["p95_max_ratio"] is None and options["p95_max_seconds"] is None:
            return "give p95_max_ratio or p95_max_seconds: with neither there is nothing to judge"
        return None

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Rounds up to the count that makes a p95 honest, never for a better verdict."""
        cases = len(self._cases(evidence))
        if not cases or most_rounds * cases < LEAST_TRIALS_P95:
            return False
        return evidence.rounds < _rounds_needed(cases)

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over the seconds of all timed cases."""
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
        cases, rounds = self._cases(evidence), evidence.rounds
        trials = rounds * len(cases)
        notes = (*carried(evidence), *too_short(evidence), *excluded(evidence))
        shared |= {"samples": trials, "evidence_text": f"{count(trials, 'trial')} an arm"}
        if not trials and evidence.timed:
            return self.failed(subject, "nothing to judge: no output has this figure", **shared)
        if not trials:
            return Verdict(self.name, subject, "inconclusive", untimed(evidence), **shared)
        plain = [self._row(case.plain.trials, rounds) for case in cases]
        ours = [self._row(case.speculative[0].trials, rounds) for case in cases]
        slower = self._slower(cases, plain, ours)
        pooled = [value for row in ours for value in row]
        if trials < LEAST_TRIALS_P95 or rounds < _LEAST_ROUNDS:
            return Verdict(
                self.name,
                subject,
                "inconclusive",
                f"p95 cannot be estimated from {count(trials, 'trial')} in "
                f"{count(rounds, 'round')}: it takes {LEAST_TRIALS_P95} trials an arm in at least "
                f"{_LEAST_ROUNDS} rounds{unfinished(evidence)}",
                observed=max(pooled) if ratio is None else None,
                observed_text=f"{_figure(max(pooled))} s (max of {trials})",
                details=(*slower, *notes),
                advice=(*slower, _more_trials(len(ours))),
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
            reasons.append(f"p95 is {_figure(tail.speculative)} s, limit {seconds:g} s")
            if ratio is None:
                shared |= {
                    "observed": tail.speculative,
                    "spread": bounds,
                    "observed_text": f"{_figure(tail.speculative)} s "
                    f"[{_figure(bounds[0])}, {_figure(bounds[1])}]",
                }
        status: Status = next((s for s in ("failed", "inconclusive") if s in decisions), "passed")
        shared["details"] = (
            f"p95 plain {tail.plain:.3f} s, speculative {tail.speculative:.3f} s",
            *slower,
            *noise_floor_line(evidence, rounds, options["tolerance"], "tolerance"),
            *notes,
        )
        more = {
            "failed": "Look at the prompts that are slower with the draft: few accepted tokens, or "
            "a long prompt that the draft reads as well.",
            "inconclusive": f"More trials narrow it: --spec-rounds {rounds + 5}",
        }.get(status)
        return Verdict(
            self.name,
            subject,
            status,
            "; ".join(reasons) + (unfinished(evidence) if status == "inconclusive" else ""),
            advice=(more,) if more else (),
            false_alarm=(ratio is not None) * FALSE_FAILURE["p95_ratio"]
            + (seconds is not None) * FALSE_FAILURE["p95_seconds"],
            **shared,
        )

    def _cases(self, evidence: Evidence) -> list[CaseEvidence]:
        """Timed cases whose trials all have the figure."""
        return [
            case
            for case in evidence.timed
            if all(
                self.seconds(trial) is not None
                for arm in (case.plain, *case.speculative)
                for trial in arm.trials
            )
        ]

    def _row(self, trials: tuple[Trial, ...], rounds: int) -> list[float]:
        return [value for t in trials[:rounds] if (value := self.seconds(t)) is not None]

    def _slower(
        self, cases: list[CaseEvidence], plain: list[list[float]], ours: list[list[float]]
    ) -> tuple[str, ...]:
        slower = [
            case.prompt.id for case, p, s in zip(cases, plain, ours, strict=True) if sum(s) > sum(p)
        ]
        if not slower:
            return ()
        names = ", ".join(slower[:8]) + (", ..." if len(slower) > 8 else "")
        return (f"{self.slower_words}: {count(len(slower), 'prompt')}: {names}",)


class LatencyGate(TailGate):
    """End-to-end seconds, from the call to its end."""

    name = "latency"
    item = "latency_p95"

    def seconds(self, trial: Trial) -> float | None:
        """End to end."""
        return trial.e2e_s


class TtftGate(TailGate):
    """Seconds to the first token.

    With a draft they hold its prefill and a whole first block, so there is no default limit: say
    what the service may cost.
    """

    name = "ttft"
    item = "ttft_p95"
    defaults = {**TailGate.defaults, "p95_max_ratio": None}
    slower_words = "later first token with the draft"

    def seconds(self, trial: Trial) -> float | None:
        """To the first token."""
        return trial.ttft_s


class TpotGate(TailGate):
    """Time per output token, (e2e - TTFT) / (n - 1).

    Never of the gaps between tokens, which come in bursts. Outputs of one token have none and are
    left out.
    """

    name = "tpot"
    item = "tpot_p95"
    slower_words = "more time per token with the draft"

    def seconds(self, trial: Trial) -> float | None:
        """Per output token; None for a single one."""
        return trial.time_per_output_token_s


def _figure(seconds: float) -> str:
    """Two digits at the least: a token takes hundredths of a second."""
    return f"{seconds:.2f}" if seconds >= 0.1 else f"{seconds:.2g}"


def _rounds_needed(prompts: int) -> int:
    return max(_LEAST_ROUNDS, -(-LEAST_TRIALS_P95 // prompts))


def _more_trials(prompts: int) -> str:
    rounds = _rounds_needed(prompts)
    return f"With {count(prompts, 'prompt')} that is --spec-rounds {rounds}; or give more prompts."

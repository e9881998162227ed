"""Is it still within memory? A fact, not a sample: one trial above the budget fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.spec import number, optional
from ..measure.memory import parts_at_peak
from ..text import gigabytes
from .base import BaseGate, Verdict, nothing_to_judge
from .words import excluded, untimed

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence

_NEAR = 0.02


class MemoryGate(BaseGate):
    """Peak of the speculative path: gigabytes, ratio to the plain path, headroom, swap.

    The draft's weights lie in memory during plain trials too, so the plain path's peak is taken
    less the idle draft's bytes: the ratio says what switching the draft on costs.
    """

    name = item = "memory"
    options = {
        "max_gb": optional(number(above=0)),
        "max_ratio": optional(number(above=0)),
        "headroom": optional(number(least=0, most=0.99)),
        "max_swap_growth_gb": optional(number(least=0)),
    }
    defaults = {"max_gb": None, "max_ratio": None, "headroom": 0.10, "max_swap_growth_gb": 0.5}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """A gate without a limit would judge nothing."""
        if all(value is None for value in options.values()):
            return f"give one of {', '.join(options)}: with none there is nothing to judge"
        return None

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over the peaks of all trials."""
        if problem := nothing_to_judge(evidence):
            reason, advice = problem
            return self.failed(subject, reason, *advice, unit="GB")
        ours = [t.peak_memory_bytes or 0 for c in evidence.timed for t in c.speculative[0].trials]
        plain = [t.peak_memory_bytes or 0 for c in evidence.timed for t in c.plain.trials]
        if not ours or not max(ours) or evidence.pair is None:
            return Verdict(
                self.name,
                subject,
                "inconclusive",
                untimed(evidence) if not ours else "the engine reports no memory",
                unit="GB",
            )
        peak, alone = max(ours), max(plain) - evidence.pair.draft.bytes
        reasons: list[str] = []
        notes: list[str] = []
        limits: list[str] = []

        def check(label: str, value: float, limit: float | None, words: str) -> None:
            if limit is None:
                return
            if value > limit:
                reasons.append(words)
            elif value > limit * (1 - _NEAR):
                notes.append(f"{label} is within 2 % of its limit")

        max_gb, max_ratio = options["max_gb"], options["max_ratio"]
        check("the peak", peak / 1e9, max_gb, f"the peak is {peak / 1e9:.3f} GB")
        ratio = peak / alone if alone > 0 else None
        if ratio is not None:
            check("the ratio", ratio, max_ratio, f"the peak is {ratio:.2f}x the plain path's")
        elif max_ratio is not None:
            reasons.append("the plain path's own memory cannot be told from the draft's")
        limits += [f"<= {max_gb:g} GB"] if max_gb is not None else []
        limits += [f"<= {max_ratio:.2f}x"] if max_ratio is not None else []
        headroom, limit_bytes = options["headroom"], 0
        if evidence.engine is not None:
            limit_bytes = evidence.engine.memory_limit_bytes
        free = 1 - peak / limit_bytes if limit_bytes else None
        evidence_text = f"{len(ours):,} trials" if free is None else f"headroom {free:.0%}"
        if headroom is not None:
            limits.append(f">= {headroom:.0%} free")
            if free is None:
                reasons.append("the device's memory is not known, so headroom cannot be judged")
            elif free < headroom:
                reasons.append(f"only {free:.0%} of the memory limit stays free")
            elif free < headroom + _NEAR:
                notes.append("headroom is within 2 % of its limit")
        swap, max_swap = evidence.swap_growth_bytes, options["max_swap_growth_gb"]
        if max_swap is not None and swap is not None and swap > max_swap * 1e9:
            reasons.append(f"swap in use grew by {gigabytes(swap)} during the trials")
        cost = peak - alone
        return Verdict(
            self.name,
            subject,
            "failed" if reasons else "passed",
            "; ".join(reasons) or "; ".join(notes) or f"peak {gigabytes(peak)}",
            observed=peak / 1e9,
            limit=max_gb,
            unit="GB",
            samples=len(ours),
            observed_text=gigabytes(peak) + (f" (draft +{gigabytes(cost)})" if cost > 0 else ""),
            limit_text=", ".join(limits) or "-",
            evidence_text=evidence_text,
            details=(*_parts(evidence), *notes, *excluded(evidence)),
            advice=(
                "Use a smaller or more strongly quantised draft, shorter prompts, or kv_bits; "
                "close what else holds memory.",
            )
            if reasons
            else (),
            evidence={
                "ratio": ratio,
                "headroom": free,
                "swap_growth_bytes": swap,
                "plain_peak_bytes_without_draft": alone,
            },
        )


def _parts(evidence: Evidence) -> tuple[str, ...]:
    """Weights, caches and working memory apart, of the speculative trial with the highest peak."""
    if evidence.pair is None:
        return ()
    parts = parts_at_peak(evidence.pair, (case.speculative[0] for case in evidence.timed))
    if parts is None:
        return ()
    lines = [
        f"weights {gigabytes(parts.target_weights + parts.draft_weights)}, "
        f"KV caches {gigabytes(parts.caches)}, working {gigabytes(parts.working)}"
    ]
    if evidence.engine is not None:
        limit = gigabytes(evidence.engine.memory_limit_bytes)
        lines.append(f"limit {limit}: {evidence.engine.memory_limit_origin}")
    return tuple(lines)

"""Is it still as good as the stored session?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..baseline.compare import Compared, compare
from ..baseline.document import baseline_of
from ..baseline.limits import limit
from ..config.spec import one_of
from ..stats import FALSE_FAILURE
from ..text import count
from .base import BaseGate, Status, Verdict, nothing_to_judge
from .words import untimed

if TYPE_CHECKING:
    from ..baseline.compare import Figure
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence, Side

_SAVE = "Store one with --spec-save-baseline NAME, and name it with --spec-baseline NAME."
_TIMED = ("speedup", "p95", "ttft", "decode", "e2e", "plain_e2e")
_LIMITS = ("acceptance", "memory", *_TIMED)


class BaselineGate(BaseGate):
    """Each figure has changed for the worse by no more than its limit; null shows it unjudged.

    Ratios of the two paths hold on any machine. Seconds and bytes are judged on the machine that
    they were stored on alone. Another model, other prompts or other decoding are not comparable,
    which fails.
    """

    name = item = "baseline"
    side: Side = "here"
    apart_advice = (
        "Measure what was measured then, or store a new baseline with --spec-update-baseline."
    )
    failed_advice = (
        "See what changed above: go back to the versions of the baseline, or accept the change "
        "with --spec-save-baseline and --spec-update-baseline."
    )
    options = {
        "output": one_of("same", "any"),
        "acceptance": limit("-"),
        "speedup": limit("-"),
        "p95": limit("+"),
        "memory": limit("+"),
        "ttft": limit("+"),
        "decode": limit("-"),
        "e2e": limit("+"),
    }
    defaults = {
        "output": "same",
        "acceptance": limit("-")(-0.03),
        "speedup": limit("-")("-5%"),
        "p95": limit("+")("+5%"),
        "memory": limit("+")("+1%"),
        "ttft": None,
        "decode": None,
        "e2e": None,
    }

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Sampled outputs cannot be the stored ones."""
        if inputs.decoding.temperature > 0 and options["output"] == "same":
            return "output: same needs temperature 0; set output: any for sampled outputs"
        if options["output"] == "any" and all(options.get(name) is None for name in _LIMITS):
            return "with output: any and no limit there is nothing to judge"
        return None

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one number of draft tokens; each figure is a part of it."""
        reference = evidence.reference
        if reference is None:
            return self.failed(subject, "no baseline was named", _SAVE)
        if reference.baseline is None:
            if reference.problem:
                return self.failed(subject, reference.problem, _SAVE)
            why = "this session is stored as a baseline, and compared with none"
            return Verdict(self.name, subject, "skipped", why)
        if evidence.inputs is None:
            raise ValueError("evidence of a campaign says what it was measured with")
        broken = [case for case in evidence.cases if case.error]
        if broken and len(broken) == len(evidence.cases):
            return self.failed(subject, f"nothing could be generated: {broken[0].error}")
        now = baseline_of(evidence.cases, evidence.inputs, evidence.pair, reference.facts())
        (k,) = evidence.inputs.num_draft_tokens
        found = compare(reference.baseline, now, options, k, fresh=evidence.fresh_peak)
        return self.verdict(evidence, found, reference.name, subject)

    def verdict(self, evidence: Evidence, found: Compared, name: str, subject: str) -> Verdict:
        """What a comparison says."""
        shared: dict[str, Any] = {
            "samples": len(found.common),
            "limit_text": "no worse",
            "evidence_text": count(len(found.common), "prompt"),
            "details": _details(found),
            "evidence": _as_json(found, name),
        }
        if found.apart or not found.figures:
            why = "; ".join(found.apart) or "no prompt is in both"
            return self.failed(
                subject,
                f"not comparable with {name}: {why}",
                self.apart_advice,
                observed_text="not comparable",
                **shared,
            )
        failed = [figure for figure in found.figures if figure.status == "failed"]
        undecided = [figure for figure in found.figures if figure.status == "inconclusive"]
        judged = [figure for figure in found.figures if figure.status != "not judged"]
        problem = nothing_to_judge(evidence)
        if not judged and not problem:
            reasons = "; ".join(dict.fromkeys(figure.reason for figure in found.figures))
            problem = f"no figure could be judged: {reasons}", ()
        if problem and not failed:
            return self.failed(subject, problem[0], *problem[1], **shared)
        status: Status = "failed" if failed else "inconclusive" if undecided else "passed"
        first = next(iter(failed or undecided), None)
        reason = f"{first.name}: {first.reason}" if first else "no figure is worse"
        reason = f"{reason} ({_versions(found) or name})"
        if undecided and not failed and evidence.unmeasured:
            reason = untimed(evidence)
        return Verdict(
            self.name,
            subject,
            status,
            reason,
            observed_text=f"{len(judged) - len(failed) - len(undecided)} of {len(judged)} hold",
            advice=self._advice(failed, undecided),
            parts=tuple(self._part(figure, subject) for figure in found.figures),
            false_alarm=FALSE_FAILURE["speedup"] * sum(f.name in _TIMED for f in judged),
            **shared,
        )

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Rounds while they could decide a figure: its error is not the stored one's above all."""
        reference = evidence.reference
        if not (reference and reference.baseline and evidence.timed and evidence.inputs):
            return False
        now = baseline_of(evidence.cases, evidence.inputs, evidence.pair, reference.facts())
        (k,) = evidence.inputs.num_draft_tokens
        figures = compare(reference.baseline, now, options, k).figures
        return not any(figure.status == "failed" for figure in figures) and any(
            figure.status == "inconclusive" and not _stored_is_noisier(figure) for figure in figures
        )

    def wants_second_look(self, verdict: Verdict) -> Side | None:
        """Where memory grew: one process holds what it did before, a fresh one does not."""
        grew = any(
            part.evidence["figure"] == "memory" and part.status == "failed"
            for part in verdict.parts
        )
        return self.side if grew else None

    def _advice(self, failed: list[Figure], undecided: list[Figure]) -> tuple[str, ...]:
        if failed:
            return (self.failed_advice,)
        if not undecided:
            return ()
        noisy = [figure.name for figure in undecided if _stored_is_noisier(figure)]
        advice: tuple[str, ...] = ()
        if noisy:
            advice = (
                f"The stored baseline is too noisy to judge {', '.join(noisy)}: store it again "
                "with more rounds, such as --spec-rounds 10:20.",
            )
        if len(noisy) == len(undecided):
            return advice
        return (*advice, "More rounds narrow it: --spec-rounds 10:20.")

    def _part(self, figure: Figure, subject: str) -> Verdict:
        skipped = figure.status == "not judged"
        return Verdict(
            self.name,
            f"{subject} {figure.name}",
            "skipped" if skipped else figure.status,  # type: ignore[arg-type]  # one of the others
            figure.reason,
            observed=figure.observed,
            limit=figure.worst,
            observed_text=figure.now,
            limit_text=figure.limit,
            evidence={"figure": figure.name, "stored": figure.then, "change": figure.change},
        )


def _versions(found: Compared) -> str:
    """The releases of mlx-lm and mlx on both sides, where they differ."""
    rows = [c for c in found.changes if c.name in ("mlx-lm", "mlx") and c.then and c.now]
    return ", ".join(f"{c.name} {c.then} -> {c.now}" for c in rows)


def _details(found: Compared) -> tuple[str, ...]:
    rows = [f"{c.name:<20} {c.then or '-'} -> {c.now or '-'}" for c in found.changes]
    if found.changes:
        rows.insert(0, "what changed")
    return tuple(rows)


def _stored_is_noisier(figure: Figure) -> bool:
    return figure.errors is not None and figure.errors[0] > figure.errors[1]


def _as_json(found: Compared, name: str) -> dict[str, Any]:
    return {
        "compared": name,
        "changes": [{"name": c.name, "then": c.then, "now": c.now} for c in found.changes],
        "not_comparable": list(found.apart),
        "figures": [
            {
                "name": f.name,
                "status": f.status,
                "then": f.then,
                "now": f.now,
                "change": f.change,
                "limit": f.limit,
                "reason": f.reason,
            }
            for f in found.figures
        ],
    }

"""Can this pair be trusted at all? Asked in seconds, before anything is generated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..text import count
from .base import BaseGate, Needs, Scope, Status, Verdict

if TYPE_CHECKING:
    from ..measure.evidence import Evidence
    from ..preflight.finding import Finding

_MOST_LINES = 12


class PreflightGate(BaseGate):
    """No finding of severity error; warnings and notes are shown under a passed verdict."""

    name = item = "preflight"
    scope: Scope = "pair"
    needs: Needs = "preflight"

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over all findings, each of them a part of it."""
        found = evidence.preflight
        if found is None:
            why = next((case.error for case in evidence.cases if case.error), None)
            return self.failed(subject, why or "nothing could be checked")
        errors = [finding for finding in found.findings if finding.severity == "error"]
        words = ", ".join(
            count(number, severity)
            for severity in ("error", "warning", "note")
            if (number := sum(f.severity == severity for f in found.findings))
        )
        about = [_line(finding) for finding in found.findings]
        if len(about) > _MOST_LINES:
            about = [*about[:_MOST_LINES], f"... and {len(about) - _MOST_LINES} more"]
        return Verdict(
            self.name,
            subject,
            "failed" if errors else "passed",
            f"{errors[0].subject}: {errors[0].message}" if errors else words or "nothing found",
            samples=found.checks,
            observed_text=words or "nothing found",
            evidence_text=f"{count(found.checks, 'check')}, {found.seconds:.1f} s",
            details=tuple(about),
            advice=tuple(dict.fromkeys(finding.advice for finding in errors)),
            parts=tuple(self._part(finding) for finding in found.findings),
        )

    def _part(self, finding: Finding) -> Verdict:
        where = f" [{finding.prompt}]" if finding.prompt else ""
        status: Status = "failed" if finding.severity == "error" else "passed"
        return Verdict(
            self.name,
            f"{finding.subject}{where}",
            status,
            finding.message,
            advice=(finding.advice,),
            evidence={"severity": finding.severity, "prompt": finding.prompt},
        )


def _line(finding: Finding) -> str:
    where = f"{finding.prompt}: " if finding.prompt else ""
    return f"{finding.severity:<8} {where}{finding.subject}: {finding.message}"

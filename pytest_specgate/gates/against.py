"""Is the other environment no worse? Both are measured in the same rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..baseline.compare import compare
from ..baseline.document import baseline_of
from ..baseline.limits import limit
from .base import Verdict
from .baseline import BaselineGate

if TYPE_CHECKING:
    from ..measure.evidence import Against, Evidence, Side


class AgainstGate(BaselineGate):
    """No figure of the other environment is worse than this one's by more than its limit.

    Same machine, same minutes, trials paired by round: seconds and bytes are judged too.
    """

    name = item = "against"
    side: Side = "there"
    options = {**BaselineGate.options, "plain_e2e": limit("+")}
    apart_advice = "Look at what cannot run where; parity says more of this environment."
    failed_advice = "Stay with this environment, or look at what changed above one by one."
    defaults = {
        **BaselineGate.defaults,
        "p95": None,
        "e2e": limit("+")("+5%"),
        "plain_e2e": limit("+")("+5%"),
    }

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one number of draft tokens; each figure is a part of it."""
        other = evidence.against
        if other is None:
            return self.failed(
                subject,
                "no other environment was named",
                "Name one with --spec-against, such as --spec-against 'mlx-lm==0.32.2'.",
            )
        if evidence.inputs is None:
            raise ValueError("evidence of a campaign says what it was measured with")
        facts = other.facts()
        theirs = {**facts, **_facts_of(other, facts)}
        here = baseline_of(evidence.cases, evidence.inputs, evidence.pair, facts)
        there = baseline_of(other.cases, evidence.inputs, other.pair, theirs)
        (k,) = evidence.inputs.num_draft_tokens
        errors = [
            f"{where} cannot generate: {case.prompt.id}: {case.error}"
            for where, cases in (("this environment", evidence.cases), ("the other", other.cases))
            for case in cases
            if case.error
        ]
        if evidence.unmeasured and not other.cases:
            return Verdict(self.name, subject, "inconclusive", evidence.unmeasured)
        found = compare(here, there, options, k, paired=True, fresh=evidence.fresh_peak)
        if errors:
            found = replace(found, figures=(), apart=tuple(dict.fromkeys(errors))[:3])
        return self.verdict(evidence, found, other.name, subject)

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Rounds while a figure is undecided."""
        if evidence.against is None or not evidence.timed:
            return False
        return self.judge(evidence, options, "").status == "inconclusive"


def _facts_of(other: Against, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the other environment is, where it is not this one."""
    if other.engine is None:
        return {}
    versions = {**facts.get("versions", {}), **other.engine.versions}
    details = other.engine.details
    return {
        "versions": versions,
        "device": other.engine.device,
        "python": details.get("worker_python", facts.get("python")),
    }

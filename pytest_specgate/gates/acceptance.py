"""Does the target take what the draft proposes?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.spec import number
from ..text import count
from .base import BaseGate, Needs, Verdict, nothing_to_judge
from .words import excluded

if TYPE_CHECKING:
    from ..measure.evidence import Evidence


class AcceptanceGate(BaseGate):
    """accepted / proposed over all prompts, at least ``min``. Exact under greedy decoding."""

    name = item = "acceptance"
    needs: Needs = "parity"
    options = {"min": number(least=0, most=1)}
    defaults = {"min": 0.5}

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over the blocks of all prompts."""
        least = options["min"]
        shared: dict[str, Any] = {"limit": least, "limit_text": f">= {least:.2f}"}
        if problem := nothing_to_judge(evidence):
            reason, advice = problem
            return self.failed(subject, reason, *advice, **shared)
        blocks = evidence.usable_blocks
        rate = blocks.acceptance_rate
        if rate is None:
            return self.failed(subject, "nothing was drafted: no token was proposed", **shared)
        lengths = blocks.mean_accept_length
        shared |= {
            "observed": rate,
            "samples": blocks.proposed,
            "observed_text": f"{rate:.3f}",
            "evidence_text": f"{count(blocks.proposed, 'proposal')}",
            "details": (
                f"accepted {blocks.accepted:,} of {blocks.proposed:,} proposed tokens in "
                f"{count(len(blocks.blocks), 'block')}",
                f"mean accept length {lengths:.2f}" if lengths is not None else "all cut short",
                *excluded(evidence),
            ),
        }
        if rate < least:
            return self.failed(
                subject,
                f"the target accepts {rate:.3f} of the proposed tokens, the limit is {least:.2f}",
                "Check that draft and target are of one family and use the same chat template; "
                "a smaller num_draft_tokens raises the rate.",
                **shared,
            )
        return Verdict(self.name, subject, "passed", f"acceptance rate {rate:.3f}", **shared)

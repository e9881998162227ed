"""What would each draft be accepted, at every number of draft tokens? Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..measure.acceptance import replayed
from ..measure.replay import forced_of, unlike_greedy
from ..text import count, shown
from .base import BaseGate, Needs, Scope, Verdict
from .words import acceptance

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.blocks import Block, Blocks
    from ..measure.evidence import CaseEvidence, Evidence

_SHOWN_MISSED = 5


class ScanGate(BaseGate):
    """The one gate of ``--spec-scan``: fails where one real run does not give the blocks foretold.

    It has no limit: its evidence ranks drafts and numbers of draft tokens.
    """

    name = item = "scan"
    scope: Scope = "draft"
    needs: Needs = "scan"

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """One pass of the draft tells what it proposes under plain greedy decoding alone."""
        if (name := unlike_greedy(inputs.decoding)) is None:
            return None
        value = getattr(inputs.decoding, name)
        return (
            f"one pass of the draft tells what it proposes under plain greedy decoding "
            f"alone, found decoding.{name}: {value if name != 'logit_bias' else 'set'}"
        )

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """All figures of one draft, and whether the real run gave the same blocks."""
        outputs = forced_of(evidence.cases)
        broken = [case for case in evidence.cases if case.error]
        if not outputs or evidence.inputs is None:
            problem = broken[0].error if broken else "no prompt was scanned"
            return self.failed(subject, f"nothing could be scanned: {problem}")
        (k, *_) = evidence.inputs.num_draft_tokens
        found = replayed(outputs, k)
        rate = found.blocks.acceptance_rate
        shared: dict[str, Any] = {
            "observed": rate,
            "samples": found.blocks.emitted,
            "observed_text": f"{rate or 0.0:.3f} accepted",
            "evidence_text": f"{count(len(outputs), 'prompt')}, k = {k}",
            "details": (*acceptance(found), *_missed(evidence)),
            "evidence": {
                "k": k,
                "checked": [case.prompt.id for case in evidence.cases if case.speculative],
                "missed": [
                    {"id": e.token, "text": e.text, "missed": e.missed, "seen": e.seen}
                    for e in evidence.missed
                ],
            },
        }
        if broken:
            names = ", ".join(case.prompt.id for case in broken[:3])
            more = f"{count(len(broken), 'prompt')} could not be scanned ({names})"
            return self.failed(subject, f"{more}: {broken[0].error}", **shared)
        if evidence.unmeasured:
            reason = f"not all was scanned: {evidence.unmeasured}"
            return Verdict(self.name, subject, "inconclusive", reason, **shared)
        if problem := _unlike_the_real_run(evidence.cases, k):
            return self.failed(
                subject,
                problem,
                "Judge this pair with the gate parity (without --spec-scan): the figures hold "
                "only where both paths give one output, and where the draft's cache is rewound.",
                **shared,
            )
        words = f"{rate or 0.0:.3f} of the proposed tokens would be accepted at k = {k}"
        return Verdict(self.name, subject, "passed", words, **shared)


def _unlike_the_real_run(cases: Sequence[CaseEvidence], k: int) -> str | None:
    """Where the one real run gave other blocks than the replay; None where they are equal."""
    for case in cases:
        for arm, parity in zip(case.speculative, case.parity(), strict=True):
            where = f"the real run of {case.prompt.id} (k = {k})"
            if parity.first_difference is not None:
                at = parity.first_difference
                return f"{where} differs from the plain output from token {at} on"
            if arm.broken:
                return f"{where}: {arm.broken}"
            if arm.blocks is not None:
                (output,) = forced_of([case])
                return _first_unlike(where, output.blocks(k), arm.blocks)
    return "no real run was made to compare with"


def _first_unlike(where: str, told: Blocks, real: Blocks) -> str | None:
    if told == real:
        return None
    for number, (ours, theirs) in enumerate(zip(told.blocks, real.blocks, strict=False), 1):
        if ours != theirs:
            return (
                f"{where} made other blocks than one pass of the draft tells: block {number} has "
                f"{_words(theirs)}, foretold were {_words(ours)}"
            )
    return f"{where} made {len(real.blocks)} blocks, foretold were {len(told.blocks)}"


def _words(block: Block) -> str:
    cut = f", cut by {block.censored}" if block.censored else ""
    return f"{block.accepted} of {block.proposed} accepted{cut}"


def _missed(evidence: Evidence) -> tuple[str, ...]:
    """A line with the tokens missed most."""
    tokens = [f"{e.text!r} {e.missed} of {e.seen}" for e in evidence.missed[:_SHOWN_MISSED]]
    return (shown(f"missed most: {', '.join(tokens)}"),) if tokens else ()

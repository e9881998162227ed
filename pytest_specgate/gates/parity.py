"""Is it still exact? Token ids and text of both paths, nothing normalised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..config.spec import one_of
from ..text import shown
from .base import BaseGate, Needs, Scope, Verdict, nothing_to_judge
from .words import count

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import ArmEvidence, CaseEvidence, Evidence, Parity

_AROUND = 5


class ParityGate(BaseGate):
    """Every speculative arm of a prompt emits what the plain path emits."""

    name = item = "parity"
    scope: Scope = "prompt"
    needs: Needs = "parity"
    options = {"mode": one_of("exact")}
    defaults = {"mode": "exact"}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Sampled outputs differ by design: mlx-lm's two paths draw differently."""
        if inputs.decoding.temperature > 0:
            return (
                "exact parity needs temperature 0, found "
                f"{inputs.decoding.temperature:g}: set decoding.temperature to 0.0, or list the "
                "gates you want without parity"
            )
        return None

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one prompt."""
        (case,) = evidence.cases
        if case.error:
            return self.failed(subject, case.error)
        if not case.plain.generation.tokens:
            return self.failed(subject, "nothing was generated: the output is empty")
        arms = {arm.num_draft_tokens: arm for arm in case.speculative}
        different = [parity for parity in case.parity() if not parity.exact]
        for parity in sorted(different, key=lambda p: p.tokens_equal):
            return self._different(case, arms[parity.num_draft_tokens], parity, subject)
        for arm in case.speculative:
            if arm.broken:
                return self.failed(
                    subject,
                    f"the text agrees, but the block counts do not: {arm.broken}",
                    "The output agrees by luck: this pair or this mlx-lm release counts or rewinds "
                    "its caches wrongly. Report it with the saved case.",
                    **_shown(case, exact=False),
                )
        if problem := nothing_to_judge(evidence):
            return self.failed(subject, problem[0], *problem[1], **_shown(case, exact=False))
        return Verdict(
            self.name,
            subject,
            "passed",
            f"{count(len(case.plain.generation.tokens), 'token')} equal",
            **_shown(case, exact=True),
        )

    def _different(
        self, case: CaseEvidence, arm: ArmEvidence, parity: Parity, subject: str
    ) -> Verdict:
        name = f"k = {arm.num_draft_tokens}"
        if parity.first_difference is None:
            return self.failed(
                subject,
                f"the token ids are equal with {name}, but the text is not",
                "The detokenizer gave two texts for the same ids: report it to mlx-lm.",
                details=(
                    f"plain  {shown(case.plain.generation.text)[:200]}",
                    f"spec   {shown(arm.generation.text)[:200]}",
                ),
                **_shown(case, exact=False),
            )
        first = parity.first_difference
        others = ", ".join(
            f"{p.first_difference} (k = {p.num_draft_tokens})"
            for p in case.parity()
            if p.first_difference is not None
        )
        details = [
            *_continuations(case, arm, first),
            f"first difference   {others}",
            _ids("plain ids", case.plain, first),
            _ids("spec ids", arm, first),
        ]
        if arm.broken:
            details.append(f"block counts       {arm.broken}")
        return self.failed(
            subject,
            f"from output token {first} on the speculative text is not the target's own ({name})",
            "Do not rely on this pair's speculative output; run without the draft.",
            details=tuple(details),
            **_shown(case, exact=False),
        )


def _shown(case: CaseEvidence, *, exact: bool) -> dict[str, Any]:
    emitted = len(case.plain.generation.tokens)
    firsts = [p.first_difference for p in case.parity() if p.first_difference is not None]
    return {
        "observed": float(min(firsts, default=emitted)),
        "limit": float(emitted),
        "unit": "tokens",
        "samples": emitted,
        "observed_text": "exact" if exact else "differs",
        "limit_text": "exact",
        "evidence_text": count(emitted, "token"),
    }


def _continuations(case: CaseEvidence, arm: ArmEvidence, first: int) -> list[str]:
    """Both texts around the first character that differs."""
    plain, speculative = case.plain.generation.text, arm.generation.text
    at = next(
        (i for i, (a, b) in enumerate(zip(plain, speculative, strict=False)) if a != b),
        min(len(plain), len(speculative)),
    )
    start = max(0, at - 32)
    lead = "... " if start else ""
    return [
        f"{label}  {lead}{shown(text[start:at])}|{shown(text[at : at + 32])}"
        for label, text in (("plain", plain), ("spec ", speculative))
    ]


def _ids(label: str, arm: ArmEvidence, first: int) -> str:
    tokens = arm.generation.tokens
    before = " ".join(map(str, tokens[max(0, first - _AROUND) : first]))
    after = " ".join(map(str, tokens[first : first + _AROUND])) or "(end)"
    return f"{label:<18} {before} | {after}"

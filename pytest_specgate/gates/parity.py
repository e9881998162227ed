"""Is it still exact? Token ids and text of both paths, nothing normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.spec import integer, one_of
from ..measure.diagnosis import kind_of
from ..text import count, shown
from .base import BaseGate, Needs, Scope, Verdict, nothing_to_judge
from .parity_words import (
    ADVICE,
    continuations,
    evidence_of,
    first_differences,
    sentence,
    signals,
    token_ids,
)

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import ArmEvidence, CaseEvidence, Evidence, Parity


class ParityGate(BaseGate):
    """Every speculative arm of a prompt emits what the plain path emits.

    ``mode``: ``exact`` fails on any difference and names its kind. ``tie_aware`` lets through an
    output in which every token is the target's choice within rounding, and counts those that are
    not its first choice, at most ``max_near_ties`` a prompt. ``scored`` needs no plain output: one
    teacher-forced pass judges each token, also at temperature > 0, where the log probabilities
    that the speculative path returned are compared with the target's own.
    """

    name = item = "parity"
    scope: Scope = "prompt"
    needs: Needs = "parity"
    options = {"mode": one_of("exact", "tie_aware", "scored"), "max_near_ties": integer(0)}
    defaults = {"mode": "exact", "max_near_ties": 8}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Sampled outputs differ by design: mlx-lm's two paths draw differently."""
        if inputs.decoding.temperature > 0 and options["mode"] != "scored":
            return (
                f"{options['mode'].replace('_', '-')} parity needs temperature 0, found "
                f"{inputs.decoding.temperature:g}: use mode: scored, which holds for sampled "
                "output, or set decoding.temperature to 0.0"
            )
        return None

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """How outputs are compared."""
        return replace(inputs, parity=options["mode"])

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one prompt."""
        if not evidence.cases:
            return self.failed(subject, "nothing was generated")
        (case,) = evidence.cases
        if case.error:
            return self.failed(subject, case.error)
        token_faults = {p.num_draft_tokens for p in case.parity() if not p.tokens_equal}
        for arm in sorted(case.speculative, key=lambda a: a.num_draft_tokens not in token_faults):
            if problem := self._problem(evidence, case, arm, options, subject):
                return problem
        if nothing := nothing_to_judge(evidence):
            return self.failed(subject, nothing[0], *nothing[1], **_shown(case, "differs"))
        ties = sum(len(_ties(arm)) for arm in case.speculative)
        words = f"{count(ties, 'near tie')}" if ties else "exact"
        if options["mode"] == "scored" and not ties:
            words = "scored"
        emitted = len(next(iter(case.arms.values())).generation.tokens)
        return Verdict(
            self.name,
            subject,
            "passed",
            f"{count(emitted, 'token')} equal" + (f" but for {words}" if ties else ""),
            evidence={"near_ties": ties},
            kind="near-tie" if ties else None,
            **_shown(case, words),
        )

    def _problem(
        self,
        evidence: Evidence,
        case: CaseEvidence,
        arm: ArmEvidence,
        options: Mapping[str, Any],
        subject: str,
    ) -> Verdict | None:
        """The failed verdict that one arm gives, or None."""
        parities = {parity.num_draft_tokens: parity for parity in case.parity()}
        parity = parities.get(arm.num_draft_tokens or 0)
        if options["mode"] == "scored":
            if arm.check is not None and arm.check.wide:
                return self._wide(case, arm, subject)
        elif parity is not None and not parity.exact and not evidence.sampled:
            let_through = options["mode"] == "tie_aware" and arm.only_ties and not arm.broken
            if not let_through:
                return self._different(evidence, case, arm, parity, subject)
        if arm.broken:
            return self.failed(
                subject,
                f"the text agrees, but the block counts do not: {arm.broken}",
                "The output agrees by luck: this pair or this mlx-lm release counts or rewinds "
                "its caches wrongly. Report it with the saved case.",
                **self._kind(evidence, arm),
                **_shown(case, "differs"),
            )
        if len(_ties(arm)) > options["max_near_ties"]:
            ties, most = len(_ties(arm)), options["max_near_ties"]
            return self.failed(
                subject,
                f"{ties} near ties with k = {arm.num_draft_tokens}, {most} are let through",
                "So many are rare for rounding alone: look at the dtype of the logits, or raise "
                "max_near_ties.",
                kind="near-tie",
                **_shown(case, f"{ties} near ties"),
            )
        return None

    def _kind(self, evidence: Evidence, arm: ArmEvidence) -> dict[str, Any]:
        if arm.diagnosis is None:
            return {}
        rows = evidence.pair.target.embedding_rows if evidence.pair else None
        return {
            "kind": kind_of(arm.diagnosis, arm.generation.largest_proposal, rows),
            "evidence": evidence_of(arm.diagnosis, arm.generation, rows),
        }

    def _wide(self, case: CaseEvidence, arm: ArmEvidence, subject: str) -> Verdict:
        assert arm.check is not None
        first, check = arm.check.wide[0], arm.check
        return self.failed(
            subject,
            f"output token {first} is not the target's own choice (k = {arm.num_draft_tokens})",
            "Run again in mode exact, which also says which kind of fault it is.",
            details=(
                f"tokens off by more than rounding   {len(check.wide)} of {len(check.scores.gaps)}",
                f"gap at the first                   {check.scores.gaps[first]:.3g} nats",
                f"noise floor                        {check.floor:.2g} nats",
            ),
            evidence={"wide": list(check.wide), "noise_floor": check.floor},
            **_shown(case, "differs"),
        )

    def _different(
        self,
        evidence: Evidence,
        case: CaseEvidence,
        arm: ArmEvidence,
        parity: Parity,
        subject: str,
    ) -> Verdict:
        if parity.first_difference is None:
            return self.failed(
                subject,
                f"the token ids are equal with k = {arm.num_draft_tokens}, but the text is not",
                "The detokenizer gave two texts for the same ids: report it to mlx-lm.",
                details=(
                    f"plain  {shown(case.plain.generation.text)[:200]}",
                    f"spec   {shown(arm.generation.text)[:200]}",
                ),
                **_shown(case, "differs"),
            )
        first = parity.first_difference
        kind = self._kind(evidence, arm)
        name = kind.get("kind")  # None where an engine's evidence came without a diagnosis
        said = sentence(name, case, arm, first)
        return self.failed(
            subject,
            f"{name}: {said}" if name else said,
            ADVICE[name or "unexplained"],
            details=(
                *continuations(case, arm),
                first_differences(case, arm),
                *token_ids(case, arm, first),
                *signals(name, case, arm, evidence.pair),
            ),
            **kind,
            **_shown(case, "differs"),
        )


def _ties(arm: ArmEvidence) -> set[int]:
    """Where the output is not the target's first choice, and where it parts from the plain one.

    The one pass that checks may round as the speculative path did: then it calls each of its tokens
    the first choice, and the plain path's token is the one that lost.
    """
    check = arm.check or (arm.diagnosis.check if arm.diagnosis else None)
    ties = set(check.ties if check else ())
    if arm.diagnosis is not None:
        first = arm.diagnosis.differences.get(arm.num_draft_tokens or 0)
        ties |= {first} if first is not None else set()
    return ties


def _shown(case: CaseEvidence, words: str) -> dict[str, Any]:
    emitted = len(next(iter(case.arms.values())).generation.tokens)
    firsts = [p.first_difference for p in case.parity() if p.first_difference is not None]
    return {
        "observed": float(min(firsts, default=emitted)),
        "limit": float(emitted),
        "unit": "tokens",
        "samples": emitted,
        "observed_text": words,
        "limit_text": "exact",
        "evidence_text": count(emitted, "token"),
    }

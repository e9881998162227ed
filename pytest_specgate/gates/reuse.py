"""Can the prompt cache be kept for a second turn, as a server keeps it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.spec import text
from ..measure.further import first_difference
from ..text import count
from .base import BaseGate, Needs, Scope, Verdict, nothing_to_judge

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import CaseEvidence, Evidence
    from ..measure.further import TurnRun

_TO_DO = (
    "Give each turn a fresh prompt_cache while a draft is in use, or serve this model without a "
    "draft: the cache does not hold what its owner believes it holds."
)


class ReuseGate(BaseGate):
    """A second turn with the kept prompt cache gives what a fresh run gives, on each path.

    After the first turn the cache is said to hold the prompt and all that was emitted, so only the
    rest of the second turn is fed; this is what ``mlx_lm.server`` does. Rounding is let through and
    counted, since the two runs cut the prompt into other chunks.
    """

    name = item = "reuse"
    scope: Scope = "prompt"
    needs: Needs = "reuse"
    options = {"follow_up": text()}
    defaults = {"follow_up": "Go on, and then say it again in other words."}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Sampled outputs differ by themselves."""
        if inputs.decoding.temperature > 0:
            found = f"{inputs.decoding.temperature:g}"
            return f"it compares outputs, so it needs temperature 0, found {found}"
        return None

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """What is said in the second turn."""
        return replace(inputs, follow_up=options["follow_up"])

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one prompt."""
        if not evidence.cases:
            return self.failed(subject, "nothing was generated")
        (case,) = evidence.cases
        if case.error:
            return self.failed(subject, case.error)
        if problem := nothing_to_judge(evidence):
            return self.failed(subject, problem[0], *problem[1])
        if not case.turns:
            return self.failed(subject, "no second turn was generated")
        faults = {name: _fault(case, name, run) for name, run in case.turns.items()}
        wrong = {name: fault for name, fault in faults.items() if fault}
        emitted = sum(len(run.turns.fresh.tokens) for run in case.turns.values() if run.turns)
        ties = sum(run.check is not None and not run.check.wide for run in case.turns.values())
        shared: dict[str, Any] = {
            "samples": emitted,
            "observed_text": f"{len(faults) - len(wrong)} of {len(faults)} paths",
            "limit_text": "equal",
            "evidence_text": f"{count(emitted, 'token')}",
            "details": tuple(_row(case, name, run) for name, run in case.turns.items()),
            "evidence": {name: _figures(run) for name, run in case.turns.items()},
        }
        if wrong:
            name, fault = next(iter(wrong.items()))
            kind = None if case.turns[name].error else "cache-corruption"
            return self.failed(subject, f"{_path(name)}: {fault}", _TO_DO, kind=kind, **shared)
        words = f"the second turn equals a fresh run on {count(len(faults), 'path')}"
        return Verdict(
            self.name,
            subject,
            "passed",
            words + (f" but for {count(ties, 'near tie')}" if ties else ""),
            **shared,
        )


def _path(arm: str) -> str:
    return "plain path" if arm == "plain" else f"speculative path ({arm.replace('=', ' = ')})"


def _fault(case: CaseEvidence, arm: str, run: TurnRun) -> str:
    """What is wrong with one path, or nothing."""
    if run.turns is None:
        return run.error or "nothing was generated"
    turns = run.turns
    own = case.arms[arm].generation.tokens if arm in case.arms else turns.first.tokens
    at = first_difference(own, turns.first.tokens)
    if at is not None:
        return f"with a prompt_cache of the caller's own the first turn differs from token {at} on"
    short = _short(run)
    if turns.second is None:
        return f"the second turn broke with the kept cache: {turns.problem}"
    differs = first_difference(turns.second.tokens, turns.fresh.tokens)
    wide = differs is not None and (run.check is None or bool(run.check.wide))
    if wide:
        words = f"the second turn differs from a fresh run from token {differs} on"
        return f"{words}: {short}" if short else words
    return f"the second turn agrees, but {short}" if short else ""


def _short(run: TurnRun) -> str:
    """How what the cache holds differs from what it is said to hold, in words."""
    if run.turns is None or run.turns.held is None:
        return ""
    kept, (least, most) = run.turns.kept, run.turns.held
    if least == most == kept:
        return ""
    if least == most and most < kept:
        return f"the kept cache is {count(kept - most, 'token')} short"
    held = f"{least}" if least == most else f"{least} to {most}"
    return f"the kept cache holds {held} tokens of the {kept} it is said to hold"


def _row(case: CaseEvidence, arm: str, run: TurnRun) -> str:
    return f"{arm:<8} {_fault(case, arm, run) or 'equal'}"


def _figures(run: TurnRun) -> dict[str, Any]:
    if run.turns is None:
        return {"error": run.error}
    turns = run.turns
    return {
        "said_to_hold": turns.kept,
        "holds": list(turns.held) if turns.held else None,
        "last_token_drafted": turns.first.from_draft[-1],
        "first_difference": first_difference(turns.second.tokens, turns.fresh.tokens)
        if turns.second
        else 0,
        "wide_tokens": len(run.check.wide) if run.check else 0,
    }

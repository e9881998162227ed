"""Do decoding options reach both paths? Each is tried alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.spec import integer, number, one_of_numbers, optional
from ..text import count
from .base import BaseGate, Needs, Scope, Verdict, nothing_to_judge

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence
    from ..measure.further import OptionRun

_CACHE_OPTIONS = ("max_kv_size", "kv_bits")
_TAKES_EFFECT = 1.5  # times the bytes of the other path's cache; blocks and padding are less
_TO_DO = (
    "Leave the option out while a draft is in use, or use a release of mlx-lm whose speculative "
    "path takes it."
)


class OptionsGate(BaseGate):
    """Both paths give the same text with each of these options set, one at a time.

    ``logit_bias`` is put on the first token of the plain output; null leaves an option out. Where
    the options are about the cache, its size at the end must show them on both paths too.
    """

    name = item = "options"
    scope: Scope = "prompt"
    needs: Needs = "options"
    options = {
        "repetition_penalty": optional(number(above=0)),
        "presence_penalty": optional(number()),
        "frequency_penalty": optional(number()),
        "logit_bias": optional(number()),
        "max_kv_size": optional(integer(8)),
        "kv_bits": optional(one_of_numbers(2, 3, 4, 5, 6, 8)),
    }
    defaults = {
        "repetition_penalty": 1.3,
        "presence_penalty": 1.0,
        "frequency_penalty": 1.0,
        "logit_bias": -10.0,
        "max_kv_size": 64,
        "kv_bits": 8,
    }

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Nothing to try, or sampled output, which differs by itself."""
        if all(value is None for value in options.values()):
            return f"give one of {', '.join(options)}: with none there is nothing to judge"
        if inputs.decoding.temperature > 0:
            return f"it compares texts, so it needs temperature 0, found {_temperature(inputs)}"
        return None

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """Each option that is set, to be tried alone."""
        return replace(inputs, alone={name: v for name, v in options.items() if v is not None})

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one prompt."""
        if not evidence.cases:
            return self.failed(subject, "nothing was generated")
        (case,) = evidence.cases
        if case.error:
            return self.failed(subject, case.error)
        if problem := nothing_to_judge(evidence):
            return self.failed(subject, problem[0], *problem[1])
        if not case.alone:
            return self.failed(subject, "no option was tried")
        runs = [run for run in case.alone if not run.unusable]
        rows = tuple(_row(run) for run in case.alone)
        faults = {f"{run.option}, k = {run.num_draft_tokens}": _fault(run) for run in runs}
        wrong = {name: fault for name, fault in faults.items() if fault}
        ties = sum(run.near_tie for run in runs)
        shared: dict[str, Any] = {
            "samples": sum(len(run.plain.tokens) for run in runs if run.plain),
            "observed_text": f"{len(runs) - len(wrong)} of {len(runs)} equal",
            "limit_text": "equal",
            "evidence_text": f"{count(len(runs), 'option')}",
            "details": rows,
            "evidence": {
                name: {"fault": fault or None, "first_difference": run.first_difference}
                for run, (name, fault) in zip(runs, faults.items(), strict=True)
            },
        }
        if not runs:
            return Verdict(
                self.name,
                subject,
                "skipped",
                "the plain path takes none of these options",
                **shared,
            )
        if wrong:
            name, fault = next(iter(wrong.items()))
            more = f"; {count(len(wrong) - 1, 'further option')}" if len(wrong) > 1 else ""
            return self.failed(
                subject, f"{name}: {fault}{more}", _TO_DO, kind="options-differ", **shared
            )
        words = f"{count(len(runs), 'option')} alone, equal on both paths"
        return Verdict(
            self.name,
            subject,
            "passed",
            words + (f" but for {count(ties, 'near tie')}" if ties else ""),
            **shared,
        )


def _temperature(inputs: Inputs) -> str:
    return f"{inputs.decoding.temperature:g}"


def _fault(run: OptionRun) -> str:
    """What is wrong with one option, or nothing."""
    if run.error or run.plain is None or run.speculative is None:
        return run.error or "nothing was generated"
    dropped = _bytes_differ(run)
    first = run.first_difference
    if first is not None and not run.near_tie:
        where = f"the paths part at output token {first}"
        return f"{where}: {dropped}" if dropped else where
    return f"the text agrees, but {dropped}" if dropped else ""


def _bytes_differ(run: OptionRun) -> str:
    """How the target's cache shows that a cache option took effect on one path only."""
    if run.option not in _CACHE_OPTIONS or run.plain is None or run.speculative is None:
        return ""
    if run.plain.kv_bytes is None or run.speculative.kv_bytes is None:
        return ""
    plain, speculative = run.plain.kv_bytes[0], run.speculative.kv_bytes[0]
    small, large = sorted((plain, speculative))
    if large <= _TAKES_EFFECT * small:
        return ""
    path = "speculative" if speculative > plain else "plain"
    return (
        f"it has no effect on the {path} path, whose target cache holds {large:,} bytes, not "
        f"{small:,}"
    )


def _row(run: OptionRun) -> str:
    name = f"{run.option} {run.value:g} (k = {run.num_draft_tokens})"
    if run.unusable:
        state = f"not judged: {run.error}"
    else:
        state = _fault(run) or ("equal but for a near tie" if run.near_tie else "equal")
    return f"{name:<32} {state}"

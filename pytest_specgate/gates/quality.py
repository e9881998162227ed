"""Do the outputs hold up? Structured checks on each output of both paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..checks import Check, builtin_checks
from ..checks.base import CheckFault, Output
from ..checks.examine import Examiner, Problem
from ..config.checks import by_kind
from ..config.plan import CheckConfig, Prompt
from ..config.spec import integer, number, optional
from ..measure.evidence import PLAIN
from ..stats import (
    FALSE_FAILURE,
    Decision,
    decide_not_worse,
    decide_rate,
    exact_bounds,
    paired_interval,
    times_needed,
)
from ..text import count
from .base import BaseGate, Needs, Verdict, nothing_drafted
from .words import unfinished

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import CaseEvidence, Evidence

_MOST_SHOWN = 20  # failing outputs in a verdict's details; the rest is in the saved files


@dataclass(frozen=True, slots=True)
class Judged:
    """One pair of outputs: a prompt, with the seed of one sample.

    Attributes:
        prompt: that was answered.
        sample: from 1, the output of the parity pass.
        arms: arm -> what is wrong with its output.
    """

    prompt: Prompt
    sample: int
    arms: Mapping[str, tuple[Problem, ...]]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many outputs of either path passed every check, and of how many pairs just one did."""

    outputs: int
    plain: int
    speculative: int
    gained: int
    lost: int

    @classmethod
    def of(cls, judged: Iterable[Judged], arm: str) -> Tally:
        """Counted over pairs of outputs."""
        pairs = [(not one.arms[PLAIN], not one.arms[arm]) for one in judged]
        return cls(
            len(pairs),
            sum(plain for plain, _ in pairs),
            sum(speculative for _, speculative in pairs),
            sum(speculative and not plain for plain, speculative in pairs),
            sum(plain and not speculative for plain, speculative in pairs),
        )

    def times(self, factor: int) -> Tally:
        """So many times the outputs, shares unchanged."""
        return Tally(
            *(
                factor * value
                for value in (self.outputs, self.plain, self.speculative, self.gained, self.lost)
            )
        )


class QualityGate(BaseGate):
    """At least ``min_pass`` of the speculative outputs pass, and no fewer than of the plain ones.

    Greedy outputs are all there is to know of the prompts, so their rates are facts. Sampled ones
    are a sample: there the limits are decided by an exact interval and by a paired test.
    """

    name = item = "quality"
    needs: Needs = "samples"
    defaults: Mapping[str, Any] = {
        "min_pass": 1.0,
        "not_worse": 0.05,
        "tolerance": 0.05,
        "samples": 1,
        "checks": {},
    }

    def __init__(self, checks: Mapping[str, Check] | None = None) -> None:
        """Know the checks.

        Args:
            checks: by name; those that come with specgate where none are given.
        """
        self._checks = builtin_checks() if checks is None else checks
        self.options = {
            "min_pass": optional(number(above=0, most=1)),
            "not_worse": optional(number(above=0, most=0.5)),
            "tolerance": number(above=0, most=0.5),
            "samples": integer(1, 1000),
            "checks": by_kind(self._checks),
        }

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Nothing to judge by, samples that would all be one, or a check that cannot be used."""
        if options["min_pass"] is None and options["not_worse"] is None:
            return "give min_pass or not_worse: with neither there is nothing to judge"
        if options["samples"] > 1 and inputs.decoding.temperature == 0:
            return (
                f"samples is {options['samples']}, but at temperature 0 all samples are one: set "
                "decoding.temperature, or leave samples out"
            )
        for kind, configs in options["checks"].items():
            for config in configs:
                if problem := self._checks[config.name].complaint(config.options):
                    return f"checks of the kind {kind!r}: {config.name}: {problem}"
        for prompt in inputs.prompts:
            for config in (*(prompt.checks or ()), *prompt.usual_checks):
                if problem := self._checks[config.name].complaint(config.options):
                    return f"{config.origin}: {config.name}: {problem}"
        return None

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """So many outputs of each path."""
        return replace(inputs, samples=options["samples"])

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict over all outputs that have checks."""
        limits = [f">= {options['min_pass']:.0%}"] if options["min_pass"] is not None else []
        if options["not_worse"] is not None:
            limits.append(f"loss <= {options['not_worse']:.0%}")
        shared: dict[str, Any] = {
            "limit": options["min_pass"],
            "limit_text": ", ".join(limits),
            "unit": "share",
        }
        if problem := _nothing(evidence, options):
            return self.failed(subject, problem[0], *problem[1], **shared)
        try:
            judged = _judged(evidence, options, Examiner(self._checks))
        except CheckFault as fault:
            return self.failed(subject, str(fault), "Mend the check, or leave it out.", **shared)
        arm = subject
        tally = Tally.of(judged, arm)
        sampled = evidence.sampled
        bounds = exact_bounds(tally.speculative, tally.outputs)
        shared |= {
            "observed": tally.speculative / tally.outputs,
            "spread": bounds,
            "samples": tally.outputs,
            "observed_text": f"{_of(tally.speculative, tally)} (plain {_of(tally.plain, tally)})",
            "evidence_text": f"{count(tally.outputs, 'output')} a path",
            "details": tuple(_details(evidence, options, judged, tally, arm)),
            "evidence": _evidence(judged, tally, arm, sampled=sampled),
            "false_alarm": FALSE_FAILURE["quality"] * len(limits) if sampled else 0.0,
        }
        decisions = _decisions(tally, options, sampled=sampled)
        status = next(s for s in ("failed", "inconclusive", "passed") if s in decisions.values())
        reason = "; ".join(
            _words(name, tally, options) for name, d in decisions.items() if d == status
        )
        if status == "failed":
            return self.failed(
                subject,
                reason,
                "Compare the failing outputs of both paths: what the plain one gets right, the "
                "draft must not cost; what both get wrong is the target's, or the prompt's.",
                **shared,
            )
        if status == "inconclusive":
            return Verdict(
                self.name,
                subject,
                "inconclusive",
                f"{reason}: {count(tally.outputs, 'output')} a path are too few to tell"
                f"{unfinished(evidence)}",
                advice=(_more(tally, options),),
                **shared,
            )
        return Verdict(self.name, subject, "passed", _passed(tally), **shared)


def checks_of(prompt: Prompt, options: Mapping[str, Any]) -> tuple[CheckConfig, ...]:
    """The checks of a prompt: its own line's, else its kind's, else those of its prompt set."""
    if prompt.checks is not None:
        return prompt.checks
    of_kind: tuple[CheckConfig, ...] = options["checks"].get(prompt.kind, prompt.usual_checks)
    return of_kind


def _nothing(evidence: Evidence, options: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Why no output can be judged, and what to do."""
    cases = evidence.cases
    if problem := nothing_drafted(evidence):
        return problem
    for case in cases:
        error = case.error if checks_of(case.prompt, options) else None
        if broke := case.broke_in_sample or error:
            return f"generating broke: {case.prompt.id}, {broke}", ()
    if not any(arm.generation.tokens for case in cases for arm in case.arms.values()):
        return "nothing was generated: every output is empty", ()
    if not any(checks_of(case.prompt, options) for case in cases):
        kinds = ", ".join(dict.fromkeys(case.prompt.kind for case in cases))
        return "nothing to judge: no prompt has a check", (
            'Give a prompt\'s line "checks": ["json"], or the gate quality checks for its kind: '
            f"checks: {{{kinds.split(', ')[0] or 'json'}: [...]}} (kinds here: {kinds}).",
        )
    if not any(map(_whole, cases)):
        return "nothing to judge: no prompt has an output of both paths", (
            "Parity in the mode scored makes no plain output; use another mode beside quality.",
        )
    if not any(checks_of(case.prompt, options) for case in cases if _whole(case)):
        return "nothing to judge: no prompt that has a check gave an output of both paths", ()
    return None


def _whole(case: CaseEvidence) -> bool:
    return PLAIN in case.arms and bool(case.speculative)


def _judged(evidence: Evidence, options: Mapping[str, Any], examiner: Examiner) -> list[Judged]:
    """Every pair of outputs of the prompts that have checks.

    Raises:
        CheckFault: a check is at fault.
    """
    judged = []
    for case in filter(_whole, evidence.cases):
        configs = checks_of(case.prompt, options)
        for sample, outputs in enumerate(case.pairs(), 1) if configs else ():
            found = {
                name: examiner.problems(configs, Output.of(case.prompt, generation))
                for name, generation in outputs.items()
            }
            judged.append(Judged(case.prompt, sample, found))
    return judged


def _decisions(tally: Tally, options: Mapping[str, Any], *, sampled: bool) -> dict[str, Decision]:
    """What is said of each limit that is set."""
    least, margin = options["min_pass"], options["not_worse"]
    decisions: dict[str, Decision] = {}
    if sampled:
        if least is not None:
            decisions["min_pass"] = decide_rate(
                tally.speculative, tally.outputs, least, options["tolerance"]
            )
        if margin is not None:
            decisions["not_worse"] = decide_not_worse(
                tally.gained, tally.lost, tally.outputs, margin
            )
        return decisions
    if least is not None:
        # a limit such as 0.95 has no exact binary form
        enough = tally.speculative >= least * tally.outputs - 1e-9
        decisions["min_pass"] = "passed" if enough else "failed"
    if margin is not None:
        lost = tally.plain - tally.speculative
        within = lost <= margin * tally.outputs + 1e-9
        decisions["not_worse"] = "passed" if within else "failed"
    return decisions


def _of(passed: int, tally: Tally) -> str:
    return f"{passed:,} of {tally.outputs:,}"


def _words(limit: str, tally: Tally, options: Mapping[str, Any]) -> str:
    if limit == "min_pass":
        return (
            f"{_of(tally.speculative, tally)} speculative outputs pass every check, the limit is "
            f"{options['min_pass']:.0%}"
        )
    return (
        f"of {count(tally.outputs, 'pair')} of outputs {tally.lost:,} passed on the plain path "
        f"alone and {tally.gained:,} on the speculative path alone, the limit is a loss of "
        f"{options['not_worse']:.0%}"
    )


def _passed(tally: Tally) -> str:
    return (
        f"{_of(tally.speculative, tally)} speculative outputs pass every check "
        f"(plain {tally.plain:,})"
    )


def _more(tally: Tally, options: Mapping[str, Any]) -> str:
    """How many samples would decide it."""

    def decided(factor: int) -> bool:
        more = _decisions(tally.times(factor), options, sampled=True)
        return "inconclusive" not in more.values()

    factor = times_needed(decided)
    if factor is None:
        return (
            "The rates lie too near the limit: no number of samples up to 100 times as many tells."
        )
    return f"samples: {factor * options['samples']} would decide it at these rates."


def _details(
    evidence: Evidence,
    options: Mapping[str, Any],
    judged: list[Judged],
    tally: Tally,
    arm: str,
) -> Iterable[str]:
    for name, passed in (("plain", tally.plain), ("speculative", tally.speculative)):
        low, high = exact_bounds(passed, tally.outputs)
        yield f"{name:<12} {passed / tally.outputs:.1%} pass [{low:.1%}, {high:.1%}]"
    if evidence.sampled:
        low, high = paired_interval(tally.gained, tally.lost, tally.outputs)
        gain = (tally.gained - tally.lost) / tally.outputs
        yield f"{'difference':<12} {gain:+.1%} [{low:+.1%}, {high:+.1%}]"
    lines = [line for one in judged for line in _lines(one, arm)]
    yield from lines[:_MOST_SHOWN]
    if len(lines) > _MOST_SHOWN:
        yield f"and {len(lines) - _MOST_SHOWN} more lines"
    without = [c.prompt.id for c in evidence.cases if not checks_of(c.prompt, options)]
    if without:
        yield f"not judged: {count(len(without), 'prompt')} without checks ({_some(without)})"
    for case in evidence.cases:
        if not _whole(case):
            yield f"left out: {case.prompt.id} ({case.error or 'not generated'})"
    if evidence.unmeasured:
        yield f"not all was measured: {evidence.unmeasured}"


def _some(names: list[str]) -> str:
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])


def _lines(one: Judged, arm: str) -> Iterable[str]:
    """``json-01, both paths: json: not JSON at line 1, column 5: ...``."""
    name = one.prompt.id if one.sample == 1 else f"{one.prompt.id}, sample {one.sample}"
    plain, speculative = one.arms[PLAIN], one.arms[arm]
    for problem in dict.fromkeys((*speculative, *plain)):
        where = "both paths"
        if problem not in plain:
            where = "speculative"
        elif problem not in speculative:
            where = "plain"
        yield f"{name}, {where}: {problem.check}: {problem.message}"


def _evidence(judged: list[Judged], tally: Tally, arm: str, *, sampled: bool) -> dict[str, Any]:
    """The counts of each kind and what fails, as plain JSON."""
    kinds = []
    for kind in dict.fromkeys(one.prompt.kind for one in judged):
        of_kind = [one for one in judged if one.prompt.kind == kind]
        kinds.append(
            {
                "kind": kind,
                "prompts": len({one.prompt.id for one in of_kind}),
                **_counts(Tally.of(of_kind, arm)),
            }
        )
    return {
        "sampled": sampled,
        **_counts(tally),
        "gained": tally.gained,
        "lost": tally.lost,
        "quality": kinds,
        "failing": [
            {
                "prompt": one.prompt.id,
                "kind": one.prompt.kind,
                "sample": one.sample,
                "arm": name,
                "check": problem.check,
                "message": problem.message,
            }
            for one in judged
            for name, problems in one.arms.items()
            for problem in problems
        ],
    }


def _counts(tally: Tally) -> dict[str, Any]:
    return {
        "outputs": tally.outputs,
        "plain_passed": tally.plain,
        "speculative_passed": tally.speculative,
        "plain_interval": list(exact_bounds(tally.plain, tally.outputs)),
        "speculative_interval": list(exact_bounds(tally.speculative, tally.outputs)),
    }

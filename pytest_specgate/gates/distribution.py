"""Sampled output: does the speculative path still draw by the target's law?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.plan import Draws
from ..config.spec import integer, number
from ..measure.diagnosis import WIDEST_TIE
from ..measure.evidence import AGAIN, PLAIN, arm_name
from ..stats.sampling import beyond_chance
from ..stats.twosample import TwoSample, compare_samples
from ..text import count
from .base import BaseGate, Needs, Verdict, nothing_to_judge
from .law import PathLaw, Place, floor_of_plain, path_law

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence

DRAWN = 0.9  # the share of false_alarm that the draws get; the two paths' tokens share the rest
_KINDS = {
    "logprobs-differ": "The target saw another prefix there than the output has: a cache that is "
    "short or holds rejected proposals. Parity at temperature 0 names the fault.",
    "sampler-differs": "Look for a sampler, a temperature or a filter that reaches one path only.",
    "unchecked-drafts": "Proposals get into the output that the target did not draw: look at how "
    "they are verified.",
    "draws-differ": "Run the gate again with another seed: at one law it fails once in so many "
    "sessions as false_alarm says.",
}


class DistributionGate(BaseGate):
    """Both paths draw by the law of the target, at temperature > 0.

    Two parts. The tokens of one output of each prompt are judged by a teacher-forced pass: returned
    log probabilities, what the filters leave out, and likelihood ratios for another temperature and
    for proposals accepted without a check. Then the first ``first`` tokens of ``seeds`` outputs for
    each of ``prompts`` prompts are compared between the paths, plain against plain beside it;
    ``passed`` needs so many that a total-variation distance of ``distance`` would have been seen in
    95 % of sessions. ``false_alarm`` is the chance of failing at one law.
    """

    name = item = "distribution"
    needs: Needs = "distribution"
    options = {
        "seeds": integer(20),
        "prompts": integer(1),
        "first": integer(1, 8),
        "distance": number(above=0, most=1),
        "false_alarm": number(least=0.001, most=0.2),
    }
    defaults = {"seeds": 600, "prompts": 4, "first": 2, "distance": 0.1, "false_alarm": 0.01}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Greedy output is not drawn."""
        if inputs.decoding.temperature > 0:
            return None
        return (
            "nothing is drawn at temperature 0, where parity says it all: set "
            "decoding.temperature, or leave this gate out"
        )

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """A whole output of each prompt, and the first tokens of many, plain ones in two arms."""
        wanted = Draws(options["seeds"], options["first"], options["prompts"], control=True)
        both = Draws(seeds=1), wanted
        others = tuple(one for one in inputs.draws if one not in both)
        return replace(inputs, draws=(*others, *both))

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on one number of draft tokens."""
        k = next(iter(evidence.num_draft_tokens), None)
        arm = arm_name(k) if k else ""
        if problem := _nothing(evidence, arm):
            return self.failed(subject, problem)
        alarm = options["false_alarm"]
        cases = [case for case in evidence.cases if {PLAIN, arm} <= {*case.laws}]
        plain = ours = None
        if cases:
            floor = floor_of_plain(cases, PLAIN)
            plain = path_law(cases, PLAIN, None, floor)
            ours = path_law(cases, arm, k, floor)
        test, control = _compared(evidence, arm, options)
        missing = next((case.not_drawn for case in evidence.cases if case.not_drawn), None)
        verdict = Verdict(
            self.name,
            subject,
            "passed",
            f"{count(ours.tokens, 'token')} drawn by the target's law, and the first tokens of "
            f"{count(test.draws[1], 'output')} as on the plain path"
            if ours
            else "",
            observed=test.p_value,
            limit=alarm * DRAWN,
            unit="p",
            samples=test.draws[1],
            observed_text=f"p = {test.p_value:.3g}",
            limit_text=f"p > {alarm * DRAWN:.3g}",
            evidence_text=f"{count(test.draws[1], 'seed')} an arm",
            details=_details(plain, ours, test, control),
            evidence=_figures(plain, ours, test, control),
            false_alarm=alarm,
        )
        found = _by_tokens(plain, ours, arm, alarm * (1 - DRAWN) / 2) if plain and ours else None
        level = alarm * DRAWN
        if found is None and all(test.draws) and test.p_value <= level < control.p_value:
            words = (
                "the first tokens are drawn otherwise than on the plain path: distance "
                f"{test.distance:.3f}, {test.chance_distance:.3f} by chance, "
                f"p = {test.p_value:.2g}"
            )
            found = "draws-differ", words
        if found is not None:
            kind, words = found
            if kind is None:
                return replace(verdict, status="inconclusive", reason=words)
            return replace(
                verdict, status="failed", reason=words, kind=kind, advice=(_KINDS[kind],)
            )
        return replace(verdict, **_undecided(evidence, test, control, options, missing, ours))


def _nothing(evidence: Evidence, arm: str) -> str | None:
    """Why there is nothing to judge."""
    if not (evidence.unmeasured or any(case.draws or case.not_drawn for case in evidence.cases)):
        problem = nothing_to_judge(evidence)
        return problem[0] if problem else "nothing was drawn"
    broken = [case for case in evidence.cases if case.error]
    if len(broken) == len(evidence.cases):
        return f"nothing could be generated: {broken[0].error}" if broken else "nothing to judge"
    if not evidence.drafted:
        return "nothing was drafted: the draft model was never called"
    if not any(case.arms[arm].generation.tokens for case in evidence.cases if arm in case.arms):
        return "nothing was generated: every output is empty"
    return None


def _compared(
    evidence: Evidence, arm: str, options: Mapping[str, Any]
) -> tuple[TwoSample, TwoSample]:
    """(speculative against plain, plain against plain)."""

    def drawn(name: str) -> list[list[tuple[int, ...]]]:
        key = name, options["first"]
        return [
            [generation.tokens[: options["first"]] for generation in case.draws.get(key, ())]
            for case in evidence.cases
        ]

    plain, again, ours = drawn(PLAIN), drawn(AGAIN), drawn(arm)
    both = [[*one, *other] for one, other in zip(plain, again, strict=True)]
    level, seed = options["false_alarm"] * DRAWN, evidence.decoding.seed
    return (
        compare_samples(both, ours, level, seed),
        compare_samples(plain, again, level, seed),
    )


def _by_tokens(
    plain: PathLaw, ours: PathLaw, arm: str, chance: float
) -> tuple[str | None, str] | None:
    """(kind, reason) of what the teacher-forced pass shows; no kind where it cannot be judged."""
    if plain.floor > WIDEST_TIE:
        return None, (
            f"the plain path's own log probabilities lie up to {plain.floor:.2g} nats from one "
            "pass of the target, so that pass is no measure"
        )
    path = f"speculative path ({arm.replace('=', ' = ')})"
    if ours.off:
        where = _where(ours.off)
        return "logprobs-differ", f"the {path} returns other log probabilities: {where}"
    if plain.other(chance) and ours.other(chance):
        return None, "both paths draw otherwise than the options say, so the law is no measure"
    for path_of, law in ((path, ours), ("plain path", plain)):
        if law.outside:
            drafted = any(place.from_draft for place in law.outside)
            words = f"the {path_of} draws what the filters leave out: {_where(law.outside)}"
            return "unchecked-drafts" if drafted else "sampler-differs", words
        if law.other(chance):
            odds = _odds(law.evidence)
            if law.unchecked is not None and law.unchecked > law.temperature:
                return "unchecked-drafts", (
                    f"on the {path_of} proposals are accepted that the target would refuse: "
                    f"{odds} that they are not all checked"
                )
            return "sampler-differs", (
                f"the {path_of} draws at another temperature or by another law: {odds}"
            )
    return None


def _where(places: tuple[Place, ...]) -> str:
    first, more = places[0], len(places) - 1
    others = f", and {count(more, 'further token')}" if more else ""
    return f"{first.prompt}, token {first.token}, by {first.off:.3g} nats{others}"


def _odds(evidence: float) -> str:
    return f"a likelihood ratio of 10^{evidence / math.log(10):.1f}"


def _undecided(
    evidence: Evidence,
    test: TwoSample,
    control: TwoSample,
    options: Mapping[str, Any],
    missing: str | None,
    ours: PathLaw | None,
) -> dict[str, Any]:
    """What keeps a verdict from being passed."""
    level, distance = options["false_alarm"] * DRAWN, options["distance"]
    reason, advice = "", ""
    if missing or ours is None or not all(test.draws):
        why = missing or evidence.unmeasured or "an engine that draws and tells its law is needed"
        reason = f"not all was drawn: {why}"
    elif evidence.unmeasured:
        reason = f"not all was drawn: {evidence.unmeasured}"
    elif control.p_value <= level:
        reason = (
            f"plain against plain already differs (p = {control.p_value:.2g}): the draws of this "
            "machine do not come from one law"
        )
        advice = "Run again with another decoding.seed; if it stays, the plain path is at fault."
    elif test.seen > distance:
        reason = (
            f"so few draws would not show a distance of {distance:g}: {test.seen:.2g} is the "
            "smallest that they show in 95 % of sessions"
        )
        needed = math.ceil(options["seeds"] * (test.seen / distance) ** 2)
        advice = f"Give seeds: {needed}, or raise distance."
    if not reason:
        return {}
    return {"status": "inconclusive", "reason": reason, "advice": (advice,) if advice else ()}


def _details(
    plain: PathLaw | None, ours: PathLaw | None, test: TwoSample, control: TwoSample
) -> tuple[str, ...]:
    rows = []
    for name, law in (("plain", plain), ("speculative", ours)):
        if law is not None:
            rows.append(
                f"{name:<12} {count(law.tokens, 'token')}: {len(law.off)} log probabilities off, "
                f"{len(law.outside)} outside the filters, surprise {law.surprise:.3f} nats, "
                f"{_odds(law.evidence)} for another law"
            )
    if ours is not None:
        rows.append(f"noise floor  {ours.floor:.2g} nats")
    for name, sample in (("draws", test), ("control", control)):
        first, second = sample.draws
        rows.append(
            f"{name:<12} {first:,} against {second:,}: distance {sample.distance:.3f}, "
            f"{sample.chance_distance:.3f} by chance, p = {sample.p_value:.3g}"
        )
    if math.isfinite(test.seen):
        rows.append(
            f"power        a distance of {test.seen:.3f} between {count(test.cells, 'cell')} is "
            "seen in 95 % of sessions"
        )
    return tuple(rows)


def _figures(
    plain: PathLaw | None, ours: PathLaw | None, test: TwoSample, control: TwoSample
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, law in (("plain", plain), ("speculative", ours)):
        found[name] = law and {
            "tokens": law.tokens,
            "logprobs_off": len(law.off),
            "outside": len(law.outside),
            "surprise": law.surprise,
            "chance_at_most": beyond_chance([law.evidence]),
            "noise_floor": law.floor,
        }
    for name, sample in (("draws", test), ("control", control)):
        found[name] = {
            "first": sample.draws[0],
            "second": sample.draws[1],
            "cells": sample.cells,
            "distance": sample.distance,
            "by_chance": sample.chance_distance,
            "p_value": sample.p_value,
            "seen": sample.seen if math.isfinite(sample.seen) else None,
        }
    return found

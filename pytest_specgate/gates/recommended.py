"""Is the configured number of draft tokens the one to use? Judged by a sweep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..config.spec import number, optional
from ..measure.choice import (
    Candidate,
    Choice,
    Limits,
    Pick,
    candidates_of,
    choose,
    loss,
    speedup_of,
    still_open,
)
from ..measure.prediction import Prediction, predict
from ..stats import FALSE_FAILURE, Level
from ..text import count, gigabytes
from .base import BaseGate, Verdict, nothing_to_judge
from .words import excluded, unfinished, untimed

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..measure.evidence import Evidence


class RecommendedGate(BaseGate):
    """No other number of draft tokens is faster than the configured one by more than ``max_loss``.

    ``p95_max_ratio`` and ``max_gb`` keep candidates out, ``min_speedup`` is that of the break-even;
    where they are not set, those of the gates ``latency``, ``memory`` and ``speedup`` of the same
    file hold.
    """

    name = item = "recommended"
    scope = "pair"
    options = {
        "max_loss": number(least=0, most=0.5),
        "p95_max_ratio": optional(number(above=0)),
        "max_gb": optional(number(above=0)),
        "min_speedup": optional(number(above=0)),
    }
    defaults = {"max_loss": 0.03, "p95_max_ratio": None, "max_gb": None, "min_speedup": None}

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """One number of draft tokens can be in use, not several."""
        if len(inputs.num_draft_tokens) > 1:
            ks = ", ".join(map(str, inputs.num_draft_tokens))
            return f"it judges one num_draft_tokens, found {ks}; the sweep names the others"
        return None

    def own(self, inputs: Inputs) -> Inputs:
        """Every number of draft tokens of the sweep."""
        return inputs.swept()

    def wanted_arms(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> Collection[int]:
        """Those that could still be the best, or lose too much to it."""
        if nothing_to_judge(_in_use(evidence)):
            return ()
        return still_open(_choice(evidence, options), options["max_loss"])

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on the configured number, with the whole choice as its evidence."""
        most = options["max_loss"]
        shared: dict[str, Any] = {"limit": most, "limit_text": f"loss <= {most:.0%}"}
        if problem := nothing_to_judge(_in_use(evidence)):
            return self.failed(subject, problem[0], *problem[1], **shared)
        choice, inputs = _choice(evidence, options), _inputs(evidence)
        (configured,) = inputs.configured
        predictions = _predictions(evidence, options["min_speedup"])
        shared["evidence"] = as_json(choice, configured, predictions)
        ours = next(one for one in choice.candidates if one.num_draft_tokens == configured)
        label = _labels(choice)
        trials = sum(len(rounds) for one in choice.candidates for rounds in one.costs.values())
        shared |= {
            "samples": trials,
            "evidence_text": f"{count(len(choice.candidates), 'candidate')}, {trials:,} trials",
            "details": (
                *statements(choice, inputs),
                *foretold(predictions, configured),
                *excluded(_in_use(evidence)),
            ),
        }
        if choice.mix is None:
            if any(one.rounds for one in choice.candidates) and all(
                one.excluded for one in choice.candidates
            ):
                why = "; ".join(f"{label(one)}: {one.excluded}" for one in choice.candidates)
                return self.failed(subject, f"no candidate keeps to the limits: {why}", **shared)
            return Verdict(self.name, subject, "inconclusive", untimed(evidence), **shared)
        best = choice.worst_kind if inputs.objective == "worst_kind" else None
        best = best or choice.mix.best
        advice = f"Use --spec-num-draft-tokens {best.num_draft_tokens}"
        advice += "." if best.draft == ours.draft else f" with the draft {best.draft}."
        mine, name = label(ours), label(best)
        if ours.excluded:
            return self.failed(subject, f"{mine}: {ours.excluded}", advice, **shared)
        if ours is best:
            shared["observed_text"] = f"{name} {_interval(best.speedup)}"
            return Verdict(self.name, subject, "passed", f"{name} is the best", **shared)
        where, kind = "", None
        if inputs.objective == "worst_kind" and choice.worst_kind is not None:
            kind = min(choice.kinds, key=lambda kind: speedup_of(ours, kind))
            where = f" for {kind}"
        pairs = best.of(kind).against(ours.of(kind))
        lost = pairs.speedup() if pairs.rounds else None
        shared["observed"] = lost.value - 1 if lost else None
        shared["observed_text"] = f"{_lost(lost)} to {name}{where}"
        match loss(ours.of(kind), best.of(kind), most):
            case "failed":
                return self.failed(
                    subject,
                    f"{name} is faster than {mine} by {_lost(lost)}{where}",
                    advice,
                    false_alarm=_false_alarm(choice),
                    **shared,
                )
            case "passed":
                reason = f"no candidate is faster than {mine} by {most:.0%}{where}"
                return Verdict(
                    self.name, subject, "passed", reason, false_alarm=_false_alarm(choice), **shared
                )
        return Verdict(
            self.name,
            subject,
            "inconclusive",
            f"{mine} and {name} cannot be told apart{where}: {_lost(lost)}{unfinished(evidence)}",
            advice=("More rounds or more prompts narrow it: --spec-rounds 10:20.",),
            **shared,
        )


def _in_use(evidence: Evidence) -> Evidence:
    return evidence.for_arm(_inputs(evidence).configured[0])


def _inputs(evidence: Evidence) -> Inputs:
    if evidence.inputs is None:
        raise ValueError("evidence of a campaign says what it was measured with")
    return evidence.inputs


def _choice(evidence: Evidence, options: Mapping[str, Any]) -> Choice:
    inputs = _inputs(evidence)
    limits = Limits(options["p95_max_ratio"], max_gb=options["max_gb"])
    names = inputs.draft_names
    found = [
        candidate
        for name, one in zip(names, (evidence, *evidence.rivals), strict=False)
        for candidate in candidates_of(one, name, inputs.num_draft_tokens, limits)
    ]
    return choose(found, inputs.configured[0], names[0])


def _false_alarm(choice: Choice) -> float:
    """Any other candidate may seem faster by chance."""
    return FALSE_FAILURE["speedup"] * (len(choice.candidates) - 1)


def _interval(level: Level | None) -> str:
    if level is None:
        return "-"
    low, high = level.interval
    return f"{level.value:.2f}x [{low:.2f}, {high:.2f}]"


def _lost(level: Level | None) -> str:
    if level is None:
        return "-"
    low, high = level.interval
    return f"{level.value - 1:.1%} [{low - 1:.1%}, {high - 1:.1%}]"


def _labels(choice: Choice) -> Callable[[Candidate], str]:
    """How a candidate is named: with its draft where there are several."""
    several = len({one.draft for one in choice.candidates}) > 1

    def label(one: Candidate) -> str:
        return f"{one.draft} k={one.num_draft_tokens}" if several else f"k={one.num_draft_tokens}"

    return label


def statements(choice: Choice, inputs: Inputs) -> tuple[str, ...]:
    """What is recommended, in plain lines; nothing beyond the noise is claimed."""
    if choice.mix is None:
        return ()
    label = _labels(choice)
    lines = [_statement("over the mix", choice.mix, label)]
    steady = choice.worst_kind
    if steady is not None and steady is not choice.mix.best:
        words = f"whose worst kind is best: {label(steady)}"
        lines.append(f"{words}; best in the mean: {label(choice.mix.best)}")
    if inputs.per_kind and len(choice.kinds) > 1:
        lines += [_statement(f"for {kind}", pick, label) for kind, pick in choice.kinds.items()]
    out = [one for one in choice.candidates if one.excluded]
    return (*lines, *(f"{label(one)} left out: {one.excluded}" for one in out))


def _statement(where: str, pick: Pick, label: Callable[[Candidate], str]) -> str:
    if pick.pays == "failed":
        return f"{where}: none pays; the best, {label(pick.best)}, is slower than the plain path"
    words = f"{where}: {label(pick.advised)}"
    others = [one for one in (pick.best, *pick.equals) if one is not pick.advised]
    others.sort(key=lambda one: (one.draft, one.num_draft_tokens))
    if others:
        words += f"; not told from it by these trials: {', '.join(map(label, others))}"
    if pick.pays == "inconclusive":
        words += "; whether it is faster than the plain path is undecided"
    return words


Predictions = Mapping[str, Prediction | str]
"""Draft -> what is predicted, or why nothing is."""


def _predictions(evidence: Evidence, least: float | None) -> Predictions:
    found: dict[str, Prediction | str] = {}
    names = _inputs(evidence).draft_names
    for name, one in zip(names, (evidence, *evidence.rivals), strict=False):
        if (known := one.forecast) is None:
            continue
        made = predict(known.costs, known.outputs, least=least or 1.0) if known.costs else None
        found[name] = made or str(known.problem)
    return found


def foretold(predictions: Predictions, configured: int) -> tuple[str, ...]:
    """The prediction in plain lines, a draft each."""
    lines = []
    for name, made in predictions.items():
        if isinstance(made, str):
            lines.append(f"nothing is predicted: {made}")
            continue
        if made.best is None:
            continue
        begin = f"{name}: " if len(predictions) > 1 else ""
        error = f", median error {made.error:.1%}" if made.error is not None else ""
        lines.append(
            f"{begin}predicted best of k = 1 to 16: k={made.best.num_draft_tokens}, "
            f"{made.best.speedup:.2f}x{error}"
        )
        row = made.rows[configured - 1]
        even = "never" if row.break_even is None else f"at {row.break_even:.2f}"
        alpha = "" if made.alpha is None else f" (here {made.alpha:.2f})"
        draft, verify, rest = row.shares
        lines.append(
            f"{begin}k={configured}: breaks even {even} acceptance a token{alpha}; time of a "
            f"block: draft {draft:.0%}, verify {verify:.0%}, rest {rest:.0%}"
        )
    return tuple(lines)


def as_json(choice: Choice, configured: int, predictions: Predictions) -> dict[str, Any]:
    """The choice as plain values, for reports."""

    def named(one: Candidate | None) -> dict[str, Any] | None:
        return {"draft": one.draft, "num_draft_tokens": one.num_draft_tokens} if one else None

    def picked(pick: Pick | None) -> dict[str, Any] | None:
        if pick is None:
            return None
        return {
            "best": named(pick.best),
            "advised": named(pick.advised),
            "equals": [named(one) for one in pick.equals],
            "pays": pick.pays,
        }

    return {
        "configured": {"draft": choice.candidates[0].draft, "num_draft_tokens": configured},
        "candidates": [_row(one, choice) for one in choice.candidates],
        "mix": picked(choice.mix),
        "worst_kind": named(choice.worst_kind),
        "kinds": {kind: picked(pick) for kind, pick in choice.kinds.items()},
        "predictions": {
            name: {"problem": made} if isinstance(made, str) else _prediction(made)
            for name, made in predictions.items()
        },
    }


def _prediction(made: Prediction) -> dict[str, Any]:
    found = asdict(made)
    found["errors"] = [{"prompt": p, "k": k, "error": e} for (p, k), e in made.errors.items()]
    return {**found, "error": made.error}


def _row(one: Candidate, choice: Choice) -> dict[str, Any]:
    level = one.speedup
    kinds = {kind: one.of(kind).speedup for kind in dict.fromkeys(one.kinds.values())}
    return {
        "draft": one.draft,
        "num_draft_tokens": one.num_draft_tokens,
        "speedup": level.value if level else None,
        "interval": list(level.interval) if level else None,
        "kinds": {
            kind: {"speedup": found.value, "interval": list(found.interval)}
            for kind, found in kinds.items()
            if found
        },
        "acceptance_rate": one.acceptance_rate,
        "p95_ratio": one.p95.ratio.value if one.p95 else None,
        "peak": gigabytes(one.peak_bytes) if one.peak_bytes else None,
        "peak_bytes": one.peak_bytes,
        "rounds": one.rounds,
        "beaten": any(one is other for other in choice.beaten),
        "excluded": one.excluded,
    }

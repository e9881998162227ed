"""What became of a stored session: facts that changed, and each figure against its limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from ..measure.evidence import PLAIN, arm_name
from ..measure.fresh import FreshPeak
from ..measure.trial import Trial
from ..stats import (
    Decision,
    Estimate,
    Level,
    change_of,
    decide_change,
    decide_paired_change,
    median_level,
    median_speedup,
    p95_ratio,
)
from ..text import gigabytes
from .changes import Change, apart_of, changes, same_case, same_machine, shortened
from .document import Baseline, StoredArm, StoredCase
from .limits import Limit

Status = Literal["passed", "failed", "inconclusive", "not judged"]
Output = Literal["same", "plain alone", "speculative alone", "both alike", "both apart"]

_RESAMPLES = 200  # tells the error of a p95 within 5 %
LEAST_MEMORY = 16 * 2**20  # bytes; less is the allocator's own
_OUTPUT_MEANS: Mapping[Output, str] = {
    "same": "the outputs are the stored ones",
    "both alike": "the model's own output is another one, and speculative decoding follows it",
    "speculative alone": "the plain output is the stored one: speculative decoding went wrong",
    "plain alone": "the plain output changed, and the speculative one did not follow it",
    "both apart": "both outputs changed, and they differ from each other",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure then and now, in words and numbers.

    Attributes:
        worst: that is let through.
        errors: standard errors of the logarithms, stored and now; None for a fact, and where both
            sides were timed in the same rounds.
    """

    name: str
    status: Status
    then: str
    now: str
    change: str
    limit: str
    reason: str
    observed: float | None = None
    worst: float | None = None
    errors: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """All that differs.

    Attributes:
        changes: of environment, models, prompts and decoding.
        figures: in the order of the report.
        apart: what makes cases not comparable, in words.
        common: prompts that both sides have.
    """

    changes: tuple[Change, ...]
    figures: tuple[Figure, ...]
    apart: tuple[str, ...]
    common: tuple[str, ...]


def compare(
    then: Baseline,
    now: Baseline,
    limits: Mapping[str, Any],
    num_draft_tokens: int,
    *,
    paired: bool = False,
    fresh: FreshPeak | None = None,
) -> Compared:
    """Judge one number of draft tokens against a stored session.

    Args:
        then: stored.
        now: this session, or another stored one.
        limits: of the gate ``baseline``.
        num_draft_tokens: k.
        paired: both sides were timed in the same rounds.
        fresh: the peak memory of now, seen again in a process of its own.
    """
    arm = arm_name(num_draft_tokens)
    apart = apart_of(then, now, arm)
    common = tuple(
        name for name, case in now.cases.items() if same_case(then.cases.get(name), case, arm)
    )
    pairs = [(then.cases[name], now.cases[name]) for name in common]
    figures: list[Figure] = []
    if pairs and not apart:
        here = same_machine(then, now)
        sampled = bool(now.decoding.get("temperature"))
        figures = [
            _output(common, pairs, arm, limits["output"]),
            *_acceptance(pairs, arm, limits["acceptance"]),
            *(
                _paired_times(pairs, arm, limits)
                if paired
                else _times(common, pairs, arm, limits, same_machine=here, sampled=sampled)
            ),
            *_memory(pairs, arm, limits["memory"], fresh, same_machine=here),
        ]
    return Compared(tuple(changes(then, now)), tuple(figures), tuple(apart), common)


# -- figures -------------------------------------------------------------------------------------

Pairs = Sequence[tuple[StoredCase, StoredCase]]


def what_changed(then: StoredCase, now: StoredCase, arm: str) -> Output:
    """Three outputs against the stored ones: which changed, and did they change alike?"""

    def same(name: str) -> bool:
        old, new = then.arms[name], now.arms[name]
        return (old.tokens, old.text) == (new.tokens, new.text)

    if same(PLAIN):
        return "same" if same(arm) else "speculative alone"
    if same(arm):
        return "plain alone"
    plain, ours = now.arms[PLAIN], now.arms[arm]
    return "both alike" if (plain.tokens, plain.text) == (ours.tokens, ours.text) else "both apart"


def _output(names: Sequence[str], pairs: Pairs, arm: str, wanted: str) -> Figure:
    found = {
        name: what_changed(then, now, arm) for name, (then, now) in zip(names, pairs, strict=True)
    }
    differ = {name: kind for name, kind in found.items() if kind != "same"}
    reason = _OUTPUT_MEANS["same"]
    if differ:
        worst = min(differ.values(), key=list(_OUTPUT_MEANS)[::-1].index)
        of_kind = [name for name, kind in differ.items() if kind == worst]
        reason = f"{_OUTPUT_MEANS[worst]}: {shortened(of_kind)}"
    status: Status = "failed" if differ and wanted == "same" else "passed"
    if wanted == "any":
        status = "not judged"
    same = len(found) - len(differ)
    now = f"{same} of {len(found)} same"
    return Figure("output", status, "-", now, "-", wanted, reason, float(same))


def _kinds(pairs: Pairs) -> dict[str, Pairs]:
    kinds = dict.fromkeys(now.kind for _, now in pairs)
    return {kind: [pair for pair in pairs if pair[1].kind == kind] for kind in kinds}


def _acceptance(pairs: Pairs, arm: str, limit: Limit | None) -> list[Figure]:
    """A fact, not a sample: greedy acceptance is a property of the prompts."""
    figures = []
    for kind, of_kind in _kinds(pairs).items():
        rates = []
        for side in (0, 1):
            blocks = [b for pair in of_kind if (b := pair[side].arms[arm].blocks)]
            proposed = sum(sum(b.proposed) for b in blocks)
            rates.append(sum(sum(b.accepted) for b in blocks) / proposed if proposed else None)
        then, now = rates
        if then is None or now is None:
            continue
        worst = limit.worst(then) if limit else None
        status: Status = "not judged" if worst is None else "passed"
        if worst is not None and now < worst - 1e-9:
            status = "failed"
        name = f"acceptance {kind}"
        reason = f"{then:.3f} before, {now:.3f} after"
        figures.append(
            Figure(
                *(name, status, f"{then:.3f}", f"{now:.3f}", f"{now - then:+.3f}"),
                *(limit.text if limit else "-", reason, now, worst),
            )
        )
    return figures


def _paired(case: StoredCase, arm: str) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """Trials of both arms in the rounds that both were part of."""
    plain = {trial.round: trial for trial in case.arms[PLAIN].trials}
    ours = [trial for trial in case.arms[arm].trials if trial.round in plain]
    return tuple(plain[trial.round] for trial in ours), tuple(ours)


def _missing(name: str, status: Status, limit: Limit | None, reason: str) -> list[Figure]:
    """A figure that is not there; nothing where nobody set a limit."""
    return [Figure(name, status, "-", "-", "-", limit.text, reason)] if limit else []


def _times(
    names: Sequence[str],
    pairs: Pairs,
    arm: str,
    limits: Mapping[str, Any],
    *,
    same_machine: bool,
    sampled: bool,
) -> list[Figure]:
    timed = [[_paired(case, arm) for case in pair] for pair in pairs]
    short = [any(len(ours) < 2 for _, ours in pair) for pair in timed]
    if all(short):
        stored = all(len(pair[0][1]) < 2 for pair in timed)
        reason = f"fewer than two timed rounds are {'stored' if stored else 'measured now'}"
        return [
            figure
            for name in ("speedup", "p95", "ttft", "decode", "e2e")
            for figure in _missing(name, "inconclusive", limits[name], reason)
        ]
    left = [name for name, is_short in zip(names, short, strict=True) if is_short]
    sides = [
        [pair[side] for pair, is_short in zip(timed, short, strict=True) if not is_short]
        for side in (0, 1)
    ]
    rounds = [min(len(ours) for _, ours in side) for side in sides]
    shape = len(sides[0]), min(rounds)
    # sampled outputs differ in length
    cost = attrgetter("seconds_per_token" if sampled else "e2e_s")
    speedups, tails = [], []
    for side, count_ in zip(sides, rounds, strict=True):
        plain = [[*map(cost, row[:count_])] for row, _ in side]
        ours = [[*map(cost, row[:count_])] for _, row in side]
        ratios = [
            [p / s for p, s in zip(*rows, strict=True)] for rows in zip(plain, ours, strict=True)
        ]
        speedups.append(median_speedup(ratios))
        tail = p95_ratio(plain, ours, seed=0, resamples=_RESAMPLES).ratio
        tails.append(Level(tail.log, tail.error))
    figures = [
        _judged("speedup", speedups, limits["speedup"], lambda v: f"{v:.2f}x", shape),
        _judged("p95", tails, limits["p95"], lambda v: f"{v:.2f}x", shape),
    ]
    picks: dict[str, tuple[Callable[[Trial], float | None], Callable[[float], str]]] = {
        "ttft": (lambda t: t.ttft_s, lambda v: f"{v:.3f} s"),
        "decode": (lambda t: t.decode_tokens_per_s, lambda v: f"{v:.1f} tok/s"),
        "e2e": (lambda t: t.e2e_s, lambda v: f"{v:.3f} s"),
    }
    for name, (pick, form) in picks.items():
        values = [
            [[v for t in ours if (v := pick(t)) is not None] for _, ours in side] for side in sides
        ]
        if not all(len(row) >= 2 for side in values for row in side):
            reason = "some outputs are of one token or one block: it is not defined"
            figures += _missing(name, "not judged", limits[name], reason)
            continue
        fewest = [min(map(len, side)) for side in values]
        estimates = [
            median_level([row[:most] for row in side])
            for side, most in zip(values, fewest, strict=True)
        ]
        shape = len(sides[0]), min(fewest)
        figure = _judged(name, estimates, limits[name], form, shape)
        if not same_machine and figure.status != "not judged":
            figure = _unjudged(figure, "another machine: seconds cannot be compared")
        figures.append(figure)
    if left:
        reason = f"; left out, not timed on both sides: {shortened(left)}"
        figures = [replace(figure, reason=figure.reason + reason) for figure in figures]
    return figures


def _paired_times(pairs: Pairs, arm: str, limits: Mapping[str, Any]) -> list[Figure]:
    """Figures of two sides that were timed in the same rounds, so that drift falls on both."""
    rows = [_in_step(then, now, arm) for then, now in pairs]
    rounds = min(map(len, rows))
    if rounds < 2:
        reason = "fewer than two rounds were timed on both sides"
        return [
            Figure(name, "inconclusive", "-", "-", "-", limits[name].text, reason)
            for name in ("speedup", "plain_e2e", "e2e", "p95", "ttft", "decode")
            if limits.get(name) is not None
        ]
    rows = [row[:rounds] for row in rows]
    figures = []
    for name, form, then, now in _PAIRED:
        cells = [[(then(step), now(step)) for step in row] for row in rows]
        if any(None in cell for row in cells for cell in row):
            continue
        sides = [median_level([[cell[side] for cell in row] for row in cells]) for side in (0, 1)]  # type: ignore[misc]  # None was looked for
        changes = [[b / a for a, b in row] for row in cells]  # type: ignore[operator]  # as above
        change = median_speedup(changes)
        figures.append(
            _decided(
                *(name, sides, change, limits.get(name), form),
                partial(decide_paired_change, changes),
            )
        )
    ours = [[[step[arm_].e2e_s for step in row] for row in rows] for arm_ in (1, 3)]
    tail = p95_ratio(*ours, seed=0)
    ends = [Estimate(math.log(value), 0.0) for value in (tail.plain, tail.speculative)]
    change = Level(tail.ratio.log, tail.ratio.error)
    many = partial(decide_change, change, prompts=len(rows), rounds=rounds)
    figures.append(_decided("p95", ends, tail.ratio, limits["p95"], lambda v: f"{v:.3f} s", many))
    return figures


Step = tuple[Trial, Trial, Trial, Trial]
"""Plain and speculative of one side, plain and speculative of the other."""
Pick = Callable[[Step], float | None]

_PAIRED: Sequence[tuple[str, Callable[[float], str], Pick, Pick]] = (
    (
        "speedup",
        lambda v: f"{v:.2f}x",
        lambda s: s[0].e2e_s / s[1].e2e_s,
        lambda s: s[2].e2e_s / s[3].e2e_s,
    ),
    ("plain_e2e", lambda v: f"{v:.3f} s", lambda s: s[0].e2e_s, lambda s: s[2].e2e_s),
    ("e2e", lambda v: f"{v:.3f} s", lambda s: s[1].e2e_s, lambda s: s[3].e2e_s),
    ("ttft", lambda v: f"{v:.3f} s", lambda s: s[1].ttft_s, lambda s: s[3].ttft_s),
    (
        "decode",
        lambda v: f"{v:.1f} tok/s",
        lambda s: s[1].decode_tokens_per_s,
        lambda s: s[3].decode_tokens_per_s,
    ),
)


def _in_step(then: StoredCase, now: StoredCase, arm: str) -> list[Step]:
    """The rounds that all four arms were part of."""
    arms = [
        {trial.round: trial for trial in case.arms[name].trials}
        for case in (then, now)
        for name in (PLAIN, arm)
    ]
    common = sorted(set.intersection(*map(set, arms)))
    return [(arms[0][r], arms[1][r], arms[2][r], arms[3][r]) for r in common]


def _judged(
    name: str,
    sides: Sequence[Level],
    limit: Limit | None,
    form: Callable[[float], str],
    shape: tuple[int, int],
) -> Figure:
    """Two samples that have nothing to do with each other; shape is (prompts, fewest rounds)."""
    then, now = sides
    change = change_of(then, now)
    prompts, rounds = shape
    decide = partial(decide_change, change, prompts=prompts, rounds=rounds)
    figure = _decided(name, sides, change, limit, form, decide)
    return replace(figure, errors=(then.error, now.error))


def _decided(
    name: str,
    sides: Sequence[Estimate],
    change: Estimate,
    limit: Limit | None,
    form: Callable[[float], str],
    decide: Callable[[float], Decision],
) -> Figure:
    then, now = sides
    low, high = change.interval
    words = f"{change.value - 1:+.1%} [{low - 1:+.1%}, {high - 1:+.1%}]"
    status: Status = "not judged"
    worst = None
    reason = f"{form(then.value)} before, {form(now.value)} after: {words}"
    if limit is not None:
        worst = limit.worst(then.value)
        if worst > 0:
            status = decide(worst / then.value)
        else:
            status = "failed"
            reason = f"the limit {limit.text} lets every figure through: {reason}"
    return Figure(
        *(name, status, form(then.value), form(now.value), words),
        *(limit.text if limit else "-", reason, now.value, worst),
    )


def _unjudged(figure: Figure, reason: str) -> Figure:
    return replace(figure, status="not judged", reason=reason)


def _memory(
    pairs: Pairs, arm: str, limit: Limit | None, fresh: FreshPeak | None, *, same_machine: bool
) -> list[Figure]:
    """A fact: the highest peak of any trial; less than 16 MiB more is let through in any case.

    What a fresh process does not need was kept by this one for something else.
    """
    peaks = []
    for side in (0, 1):
        arms: list[StoredArm] = [pair[side].arms[arm] for pair in pairs]
        peaks.append(max((t.peak_memory_bytes or 0 for a in arms for t in a.trials), default=0))
    then, now = peaks
    if not then or not now:
        reason = f"no peak memory is {'measured now' if then else 'stored'}"
        timed = all(
            arms.trials for pair in pairs for arms in (pair[0].arms[arm], pair[1].arms[arm])
        )
        return _missing("memory", "not judged" if timed else "inconclusive", limit, reason)
    worst = max(limit.worst(then), then + LEAST_MEMORY) if limit else None
    status: Status = "not judged" if worst is None else "failed" if now > worst else "passed"
    change = f"{now / then - 1:+.1%}"
    reason = f"{gigabytes(then)} before, {gigabytes(now)} after"
    if fresh is not None and worst is not None and status == "failed":
        seen = fresh.bytes
        status = "passed" if seen and seen <= worst else "failed"
        what = (
            f"{gigabytes(seen)} in a fresh process" if seen else f"not seen again: {fresh.problem}"
        )
        reason = f"{reason}, {what}"
    figure = Figure(
        *("memory", status, gigabytes(then), gigabytes(now), change),
        *(limit.text if limit else "-", reason, now / 1e9, worst / 1e9 if worst else None),
    )
    if not same_machine and status != "not judged":
        figure = _unjudged(figure, "another machine: bytes cannot be compared")
    return [figure]

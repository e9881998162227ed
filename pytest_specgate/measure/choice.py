"""Which number of draft tokens, and which draft: candidates against one shared plain arm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..stats import (
    LEAST_TRIALS_P95,
    Decision,
    Level,
    Paired,
    TailEstimate,
    decide_p95_ratio,
    p95_ratio,
)
from .evidence import PLAIN, CaseEvidence, Evidence, arm_name


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate must keep to; None for no limit.

    Attributes:
        p95_max_ratio: p95 of e2e seconds, speculative over plain.
        tolerance: of that ratio.
        max_gb: of peak memory.
    """

    p95_max_ratio: float | None = None
    tolerance: float = 0.05
    max_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One draft with one number of draft tokens.

    Attributes:
        draft: its short name.
        num_draft_tokens: k.
        costs: prompt id -> round -> (plain, speculative): e2e seconds, or seconds a token where
            outputs are sampled.
        kinds: prompt id -> kind.
        acceptance_rate: accepted / proposed; None when nothing was proposed.
        peak_bytes: highest peak of any trial; None where none was seen.
        excluded: why it cannot be recommended, whatever its speed; None where it can.
        p95: speculative over plain; None below 60 trials an arm.
    """

    draft: str
    num_draft_tokens: int
    costs: Mapping[str, Mapping[int, tuple[float, float]]]
    kinds: Mapping[str, str]
    acceptance_rate: float | None = None
    peak_bytes: int | None = None
    excluded: str | None = None
    p95: TailEstimate | None = None

    @property
    def rounds(self) -> int:
        """Rounds that every prompt has."""
        return min(map(len, self.costs.values()), default=0)

    def of(self, kind: str | None) -> Candidate:
        """The same on the prompts of one kind; of all where kind is None."""
        if kind is None:
            return self
        costs = {name: rounds for name, rounds in self.costs.items() if self.kinds[name] == kind}
        return replace(self, costs=costs)

    @property
    def pairs(self) -> Paired:
        """Plain and speculative, equally many rounds of each prompt."""
        return Paired([[*rounds.values()][: self.rounds] for rounds in self.costs.values()])

    @property
    def speedup(self) -> Level | None:
        """Over the prompt mix; None before two rounds."""
        return self.pairs.speedup() if self.rounds >= 2 else None

    def against(self, other: Candidate) -> Paired:
        """The other and this one, in the rounds that both were part of."""
        rows = []
        for name, rounds in self.costs.items():
            theirs = other.costs.get(name, {})
            rows.append([(theirs[r][1], ours) for r, (_, ours) in rounds.items() if r in theirs])
        fewest = min(map(len, rows), default=0)
        return Paired([row[:fewest] for row in rows])


@dataclass(frozen=True, slots=True)
class Pick:
    """The best of some candidates, and those that cannot be told from it.

    Attributes:
        best: by the centre of its speedup.
        equals: not told from the best beyond the noise, k rising.
        advised: of the best and its equals the one that asks for least: the configured one where it
            is among them, else the fewest draft tokens.
        pays: is it faster than the plain path?
    """

    best: Candidate
    equals: tuple[Candidate, ...]
    advised: Candidate
    pays: Decision


@dataclass(frozen=True, slots=True)
class Choice:
    """What a sweep says.

    Attributes:
        candidates: all, drafts in order and k rising.
        mix: over the user's mix of prompts; None where no candidate is left.
        worst_kind: the one whose worst kind of prompts is best; None with a single kind.
        kinds: kind -> the pick for its prompts alone.
        beaten: candidates that another one beats beyond doubt, over the mix.
    """

    candidates: tuple[Candidate, ...]
    mix: Pick | None
    worst_kind: Candidate | None = None
    kinds: Mapping[str, Pick] = field(default_factory=dict)
    beaten: tuple[Candidate, ...] = ()


def candidates_of(
    evidence: Evidence, draft: str, ks: Iterable[int], limits: Limits
) -> tuple[Candidate, ...]:
    """One candidate for each number of draft tokens that was measured of one draft."""
    return tuple(_candidate(evidence.for_arm(k), draft, k, limits) for k in ks)


def _candidate(evidence: Evidence, draft: str, k: int, limits: Limits) -> Candidate:
    timed, name = evidence.timed, arm_name(k)
    costs = {case.prompt.id: _costs(case, name, sampled=evidence.sampled) for case in timed}
    blocks = evidence.for_arm(k).usable_blocks
    peaks = [t.peak_memory_bytes or 0 for case in timed for t in case.arms[name].trials]
    found = Candidate(
        draft=draft,
        num_draft_tokens=k,
        costs=costs,
        kinds={case.prompt.id: case.prompt.kind for case in timed},
        acceptance_rate=blocks.acceptance_rate,
        peak_bytes=max(peaks, default=0) or None,
    )
    if left := [case for case in evidence.cases if case not in evidence.usable]:
        names = ", ".join(case.prompt.id for case in left[:3])
        why = next((case.error for case in left if case.error), "its output is not the plain one")
        return replace(found, excluded=f"{names}: {why}")
    if found.rounds and found.rounds * len(costs) >= LEAST_TRIALS_P95:
        plain, ours = (
            [[cost[side] for cost in rounds.values()][: found.rounds] for rounds in costs.values()]
            for side in (0, 1)
        )
        found = replace(found, p95=p95_ratio(plain, ours, seed=evidence.decoding.seed))
    return replace(found, excluded=_beyond(found, limits))


def _costs(case: CaseEvidence, name: str, *, sampled: bool) -> dict[int, tuple[float, float]]:
    plain = {trial.round: trial for trial in case.arms[PLAIN].trials}
    ours = {trial.round: trial for trial in case.arms[name].trials}
    return {
        number: (plain[number].seconds_per_token, trial.seconds_per_token)
        if sampled
        else (plain[number].e2e_s, trial.e2e_s)
        for number, trial in ours.items()
        if number in plain
    }


def _beyond(found: Candidate, limits: Limits) -> str | None:
    """The limit that a candidate does not keep to."""
    if limits.max_gb and found.peak_bytes and found.peak_bytes > limits.max_gb * 1e9:
        return f"its peak of {found.peak_bytes / 1e9:.2f} GB is above {limits.max_gb:g} GB"
    if limits.p95_max_ratio and found.p95:
        ratio = found.p95.ratio
        if decide_p95_ratio(ratio, limits.p95_max_ratio, limits.tolerance) == "failed":
            return f"its p95 is {ratio.value:.2f}x the plain path's"
    return None


def loss(ours: Candidate, best: Candidate, most: float) -> Decision:
    """Is one candidate slower than another by at most this share? Margin 0, see the speedup gate.

    Args:
        ours, best: timed in the same rounds.
        most: such as 0.03; 0 asks whether it is not slower at all.
    """
    return ours.against(best).decide(1 / (1 + most), margin=0.0)


def beaten(ours: Candidate, best: Candidate) -> bool:
    """The other is faster beyond doubt."""
    return ours is not best and loss(ours, best, 0.0) == "failed"


def choose(candidates: Sequence[Candidate], configured: int, draft: str) -> Choice:
    """The best of these candidates, over the mix and for each kind.

    Args:
        candidates: of all drafts.
        configured: num_draft_tokens that is in use now.
        draft: that is in use now.
    """
    every = tuple(candidates)
    able = [one for one in every if one.excluded is None and one.speedup is not None]

    def pick(kind: str | None) -> Pick:
        cut = {id(one): one.of(kind) for one in able}
        best = max(able, key=lambda one: speedup_of(one, kind))
        equals = tuple(
            one for one in able if one is not best and not beaten(cut[id(one)], cut[id(best)])
        )
        advised = min(
            (best, *equals),
            key=lambda one: (
                (one.draft, one.num_draft_tokens) != (draft, configured),
                one.num_draft_tokens,
            ),
        )
        return Pick(best, equals, advised, cut[id(best)].pairs.decide(1.0, margin=0.0))

    if not able:
        return Choice(every, None)
    kinds = dict.fromkeys(kind for one in able for kind in one.kinds.values())
    mix = pick(None)
    steady = None
    if len(kinds) > 1:
        steady = max(able, key=lambda one: min(speedup_of(one, kind) for kind in kinds))
    return Choice(
        candidates=every,
        mix=mix,
        worst_kind=steady,
        kinds={kind: pick(kind) for kind in kinds},
        beaten=tuple(one for one in able if beaten(one, mix.best)),
    )


def speedup_of(candidate: Candidate, kind: str | None) -> float:
    """On a log scale, over the prompts of one kind or all; minus infinity before two rounds."""
    level = candidate.of(kind).speedup
    return level.log if level is not None else -math.inf


def still_open(choice: Choice, max_loss: float) -> set[int]:
    """Numbers of draft tokens of which another round could change what is recommended.

    Not those that are beaten beyond doubt, nor those that lose less than ``max_loss`` for certain:
    the best itself goes on while any other does.
    """
    if choice.mix is None:
        return set()
    best = choice.mix.best
    able = [one for one in choice.candidates if one.excluded is None and one.speedup is not None]
    others = {
        one.num_draft_tokens
        for one in able
        if one is not best and not beaten(one, best) and loss(one, best, max_loss) == "inconclusive"
    }
    return others | {best.num_draft_tokens} if others else set()

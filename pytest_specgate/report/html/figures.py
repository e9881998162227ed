"""What the plots of one pair show, as plain values: gathered here, drawn in ``plots``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...gates.base import Verdict
from ...measure.evidence import PLAIN, Evidence, arm_name
from ...measure.memory import MemoryParts, parts_at_peak
from ...stats import LEAST_TRIALS_P95, Estimate, p95
from ..session_report import MeasuredPair

MOST_KINDS = 7  # drawn, those of most prompts; the table has them all
_MOST_POINTS = 200  # of one cumulative line
_LEAST_ROUNDS = 2  # one has no spread


@dataclass(frozen=True, slots=True)
class Speedups:
    """Speedup at each k, over all prompts or those of one kind."""

    name: str
    prompts: int
    points: tuple[tuple[int, Estimate], ...]


@dataclass(frozen=True, slots=True)
class SpeedupFigure:
    """The first row is of all prompts.

    ``limit`` is the speedup gate's, where it has one alone; ``predicted`` are (k, speedup) over all
    prompts, after a sweep.
    """

    rows: tuple[Speedups, ...]
    limit: float | None
    kinds_left_out: int
    predicted: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Latencies:
    """e2e seconds of all trials of one arm.

    Attributes:
        points: (seconds, share of trials at or below it), rising, at most 200.
        p95: of the 95th percentile, from 60 trials on; of the largest below that.
    """

    arm: str
    trials: int
    points: tuple[tuple[float, float], ...]
    median: float
    p95: float

    @property
    def honest(self) -> bool:
        """There are trials enough for a 95th percentile."""
        return self.trials >= LEAST_TRIALS_P95

    @property
    def tail(self) -> str:
        """What ``p95`` is: ``p95``, or ``max of 15``."""
        return "p95" if self.honest else f"max of {self.trials}"


@dataclass(frozen=True, slots=True)
class Acceptances:
    """The blocks of one k: how long accepted runs are, and how often each position is accepted.

    ``lengths`` counts blocks by accept length, 0 to k; censored blocks are left out. ``positions``
    are (proposed, accepted), from position 1.
    """

    num_draft_tokens: int
    lengths: tuple[int, ...]
    censored: int
    mean: float | None
    positions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BlockTime:
    """Seconds of a whole block of k proposals: its draft steps, its target pass, the rest."""

    num_draft_tokens: int
    draft_s: float
    verify_s: float
    rest_s: float


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Everything that is drawn of one pair; what was not measured is empty."""

    speedup: SpeedupFigure | None
    latencies: tuple[Latencies, ...]
    acceptances: tuple[Acceptances, ...]
    memory: tuple[tuple[str, MemoryParts], ...]
    block_times: tuple[BlockTime, ...] = ()


def pair_figures(pair: MeasuredPair, verdicts: Sequence[Verdict]) -> PairFigures:
    """Gather what was measured on one pair.

    Prompts whose output cannot be trusted do not count, as in the gates.
    """
    evidence = Evidence(pair.cases, pair.inputs.decoding, pair.info)
    at = {k: evidence.for_arm(k) for k in evidence.num_draft_tokens}
    made = _prediction(pair, verdicts)
    speedup = _speedup(at, verdicts)
    if speedup is not None:
        most = max(k for row in speedup.rows for k, _ in row.points)
        rows = [row for row in made.get("rows", ()) if row["num_draft_tokens"] <= most]
        points = tuple((row["num_draft_tokens"], row["speedup"]) for row in rows)
        speedup = replace(speedup, predicted=points)
    return PairFigures(
        speedup=speedup,
        block_times=_block_times(made, at),
        latencies=_latencies(at),
        acceptances=tuple(
            found for k, arm in at.items() if (found := _acceptances(k, arm)) is not None
        ),
        memory=_memory(at),
    )


def _prediction(pair: MeasuredPair, verdicts: Sequence[Verdict]) -> Mapping[str, Any]:
    """What a sweep predicts of this pair; empty where nothing was."""
    name = next(iter(pair.inputs.draft_names), "")
    for verdict in verdicts:
        found: Mapping[str, Any] = verdict.evidence.get("predictions", {}).get(name, {})
        if "rows" in found:
            return found
    return {}


def _block_times(made: Mapping[str, Any], at: Collection[int]) -> tuple[BlockTime, ...]:
    rows = [row for row in made.get("rows", ()) if row["num_draft_tokens"] in at]
    return tuple(
        BlockTime(
            row["num_draft_tokens"],
            row["num_draft_tokens"] * made["draft"] * made["plain_s"],
            row["verify"] * made["plain_s"],
            row["rest"] * made["plain_s"],
        )
        for row in rows
    )


def _speedup(at: dict[int, Evidence], verdicts: Sequence[Verdict]) -> SpeedupFigure | None:
    whole = _speedups("all prompts", at)
    if whole is None:
        return None
    kinds = Counter(
        {case.prompt.id: case.prompt.kind for arm in at.values() for case in arm.timed}.values()
    )
    rows = []
    for kind, _ in kinds.most_common(MOST_KINDS) if len(kinds) > 1 else ():
        of_kind = {
            k: replace(arm, cases=tuple(c for c in arm.cases if c.prompt.kind == kind))
            for k, arm in at.items()
        }
        if row := _speedups(kind, of_kind):
            rows.append(row)
    limits = {v.limit for v in verdicts if v.gate == "speedup" and v.limit is not None}
    limit = limits.pop() if len(limits) == 1 else None
    return SpeedupFigure((whole, *rows), limit, max(0, len(kinds) - MOST_KINDS))


def _speedups(name: str, at: dict[int, Evidence]) -> Speedups | None:
    points, prompts = [], 0
    for k, evidence in at.items():
        pairs = evidence.paired()
        if pairs.rounds >= _LEAST_ROUNDS:
            points.append((k, pairs.speedup()))
            prompts = max(prompts, pairs.prompts)
    return Speedups(name, prompts, tuple(points)) if points else None


def _latencies(at: dict[int, Evidence]) -> tuple[Latencies, ...]:
    seconds: dict[str, list[float]] = {}
    for k, evidence in at.items():
        for name in (PLAIN, arm_name(k)):
            found = [t.e2e_s for case in evidence.timed for t in case.arms[name].trials]
            # each k is cut to the rounds that it shares with the plain path
            if len(found) > len(seconds.get(name, ())):
                seconds[name] = found
    return tuple(_latency(name, sorted(found)) for name, found in seconds.items())


def _latency(arm: str, ordered: list[float]) -> Latencies:
    trials = len(ordered)
    step = max(1, -(-trials // _MOST_POINTS))
    ranks = sorted({*range(0, trials, step), trials - 1})
    return Latencies(
        arm,
        trials,
        tuple((ordered[rank], (rank + 1) / trials) for rank in ranks),
        ordered[(trials - 1) // 2],
        p95(ordered) if trials >= LEAST_TRIALS_P95 else ordered[-1],
    )


def _acceptances(k: int, evidence: Evidence) -> Acceptances | None:
    blocks = evidence.usable_blocks
    if not blocks.proposed:
        return None
    lengths = Counter(blocks.accept_lengths)
    return Acceptances(
        k,
        tuple(lengths[length] for length in range(k + 1)),
        len(blocks.blocks) - lengths.total(),
        blocks.mean_accept_length,
        tuple(zip(blocks.position_proposed, blocks.position_accepted, strict=True)),
    )


def _memory(at: dict[int, Evidence]) -> tuple[tuple[str, MemoryParts], ...]:
    bars: dict[str, MemoryParts] = {}
    for k, evidence in at.items():
        if evidence.pair is None:
            continue
        for name in (PLAIN, arm_name(k)):
            parts = parts_at_peak(evidence.pair, (case.arms[name] for case in evidence.timed))
            if parts is not None:
                bars.setdefault(name, parts)
    return tuple(bars.items())

"""The figures of each kind of prompt."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .blocks import joined
from .evidence import PLAIN, ArmEvidence, CaseEvidence, arm_name


@dataclass(frozen=True, slots=True)
class KindRow:
    """One prompt kind on one speculative arm; a figure is None where nothing was timed."""

    kind: str
    num_draft_tokens: int
    prompts: int
    plain_tokens_per_s: float | None
    speculative_tokens_per_s: float | None
    speedup: float | None
    acceptance_rate: float | None
    mean_accept_length: float | None
    ttft_s: float | None


def kind_rows(cases: Iterable[CaseEvidence], num_draft_tokens: Sequence[int]) -> list[KindRow]:
    """One row a number of draft tokens and prompt kind, in the order of the prompts.

    Args:
        cases: those without a plain arm, or without the arm of a row, do not count in it.
        num_draft_tokens: each k that was measured.
    """
    compared = [case for case in cases if PLAIN in case.arms]
    rows = []
    for k in num_draft_tokens:
        for kind in dict.fromkeys(case.prompt.kind for case in compared):
            of_kind = [c for c in compared if c.prompt.kind == kind and arm_name(k) in c.arms]
            if of_kind:
                rows.append(_kind_row(kind, k, of_kind))
    return rows


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _ratios(plain: ArmEvidence, ours: ArmEvidence) -> list[float]:
    """Plain over speculative seconds a token, of the rounds that both were part of."""
    costs = {trial.round: trial.seconds_per_token for trial in plain.trials}
    return [costs[t.round] / t.seconds_per_token for t in ours.trials if t.round in costs]


def _kind_row(kind: str, k: int, cases: list[CaseEvidence]) -> KindRow:
    def arms(pick: str) -> list[ArmEvidence]:
        return [case.arms[pick] for case in cases]

    plain, ours = arms(PLAIN), arms(arm_name(k))
    blocks = joined(arm.blocks for arm in ours)
    return KindRow(
        kind=kind,
        num_draft_tokens=k,
        prompts=len(cases),
        plain_tokens_per_s=_median(t.decode_tokens_per_s for arm in plain for t in arm.trials),
        speculative_tokens_per_s=_median(t.decode_tokens_per_s for arm in ours for t in arm.trials),
        speedup=_median(
            ratio for one, other in zip(plain, ours, strict=True) for ratio in _ratios(one, other)
        ),
        acceptance_rate=blocks.acceptance_rate,
        mean_accept_length=blocks.mean_accept_length,
        ttft_s=_median(trial.ttft_s for arm in ours for trial in arm.trials),
    )

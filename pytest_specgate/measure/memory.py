"""What a peak of memory is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..engines.base import PairInfo
from .evidence import ArmEvidence


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """The parts of one trial's peak, in bytes.

    ``draft_weights`` lie in memory on the plain path too, idle. ``caches`` are the key-value caches
    at the end of the output, ``working`` is what remains of the peak.
    """

    target_weights: int
    draft_weights: int
    caches: int
    working: int


def parts_at_peak(pair: PairInfo, arms: Iterable[ArmEvidence]) -> MemoryParts | None:
    """Of the trial with the highest peak; None where no trial has one."""
    peaks = [
        (max((trial.peak_memory_bytes or 0 for trial in arm.trials), default=0), arm)
        for arm in arms
    ]
    peak, arm = max(peaks, key=lambda found: found[0], default=(0, None))
    if arm is None or not peak:
        return None
    caches = sum(arm.generation.kv_bytes or (0, 0))
    weights = pair.target.bytes + pair.draft.bytes
    return MemoryParts(pair.target.bytes, pair.draft.bytes, caches, max(0, peak - weights - caches))

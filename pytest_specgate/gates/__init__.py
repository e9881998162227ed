"""The gates: one module each. A gate judges evidence; it never runs a model."""

from __future__ import annotations

from collections.abc import Mapping

from ..checks import Check
from .acceptance import AcceptanceGate
from .against import AgainstGate
from .base import Gate
from .baseline import BaselineGate
from .distribution import DistributionGate
from .latency import LatencyGate, TpotGate, TtftGate
from .memory import MemoryGate
from .options import OptionsGate
from .parity import ParityGate
from .preflight import PreflightGate
from .quality import QualityGate
from .recommended import RecommendedGate
from .reuse import ReuseGate
from .speedup import SpeedupGate


def builtin_gates(checks: Mapping[str, Check] | None = None) -> list[Gate]:
    """The gates that come with the plugin, in the order of the report.

    Args:
        checks: that the gate quality knows; those that come with the plugin by default.
    """
    return [
        PreflightGate(),
        ParityGate(),
        SpeedupGate(),
        LatencyGate(),
        MemoryGate(),
        AcceptanceGate(),
        ReuseGate(),
        OptionsGate(),
        QualityGate(checks),
        DistributionGate(),
        TtftGate(),
        TpotGate(),
        BaselineGate(),
        AgainstGate(),
        RecommendedGate(),
    ]

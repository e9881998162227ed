"""The gates: one module each. A gate judges evidence; it never runs a model."""

from __future__ import annotations

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
from .reuse import ReuseGate
from .speedup import SpeedupGate


def builtin_gates() -> list[Gate]:
    """The gates that come with the plugin, in the order of the report."""
    return [
        PreflightGate(),
        ParityGate(),
        SpeedupGate(),
        LatencyGate(),
        MemoryGate(),
        AcceptanceGate(),
        ReuseGate(),
        OptionsGate(),
        DistributionGate(),
        TtftGate(),
        TpotGate(),
        BaselineGate(),
        AgainstGate(),
    ]

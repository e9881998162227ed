"""Gates MLX speculative decoding: is it still exact, still faster, still within memory?

The markers below equal ``pytest.mark.spec_parity`` and so on. Nothing heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

__version__ = "0.1.0"

spec_parity = pytest.mark.spec_parity
spec_speedup = pytest.mark.spec_speedup
spec_latency = pytest.mark.spec_latency
spec_memory = pytest.mark.spec_memory
spec_acceptance = pytest.mark.spec_acceptance
spec_against = pytest.mark.spec_against
spec_baseline = pytest.mark.spec_baseline
spec_ttft = pytest.mark.spec_ttft
spec_tpot = pytest.mark.spec_tpot
spec_recommended = pytest.mark.spec_recommended
spec_reuse = pytest.mark.spec_reuse
spec_options = pytest.mark.spec_options
spec_quality = pytest.mark.spec_quality
spec_distribution = pytest.mark.spec_distribution
spec_inputs = pytest.mark.spec_inputs

if TYPE_CHECKING:
    from .checks import Check
    from .checks.base import Output
    from .checks.own import specgate_check
    from .config.plan import CheckConfig, Decoding, Inputs, ModelRef, Prompt
    from .engines.base import (
        Call,
        Drafts,
        Engine,
        EngineError,
        EngineInfo,
        Generation,
        KeepsCaches,
        KnowsItsLaw,
        ModelInfo,
        Pair,
        PairInfo,
        SampledScores,
        Turns,
    )
    from .gates.base import BaseGate, Gate, Verdict
    from .measure.blocks import Block, Blocks
    from .measure.comparison import Comparison
    from .measure.evidence import CaseEvidence, Evidence, Parity
    from .measure.trial import Trial
    from .saved_case import replay

_HOME = {
    "BaseGate": "gates.base",
    "Block": "measure.blocks",
    "Blocks": "measure.blocks",
    "Call": "engines.base",
    "CaseEvidence": "measure.evidence",
    "Check": "checks",
    "CheckConfig": "config.plan",
    "Comparison": "measure.comparison",
    "Decoding": "config.plan",
    "Drafts": "engines.base",
    "Engine": "engines.base",
    "EngineError": "engines.base",
    "EngineInfo": "engines.base",
    "Evidence": "measure.evidence",
    "Gate": "gates.base",
    "Generation": "engines.base",
    "Inputs": "config.plan",
    "KeepsCaches": "engines.base",
    "KnowsItsLaw": "engines.base",
    "ModelInfo": "engines.base",
    "ModelRef": "config.plan",
    "Output": "checks.base",
    "Pair": "engines.base",
    "PairInfo": "engines.base",
    "Parity": "measure.evidence",
    "Prompt": "config.plan",
    "SampledScores": "engines.base",
    "Trial": "measure.trial",
    "Turns": "engines.base",
    "Verdict": "gates.base",
    "replay": "saved_case",
    "specgate_check": "checks.own",
}

__all__ = [
    "BaseGate",
    "Block",
    "Blocks",
    "Call",
    "CaseEvidence",
    "Check",
    "CheckConfig",
    "Comparison",
    "Decoding",
    "Drafts",
    "Engine",
    "EngineError",
    "EngineInfo",
    "Evidence",
    "Gate",
    "Generation",
    "Inputs",
    "KeepsCaches",
    "KnowsItsLaw",
    "ModelInfo",
    "ModelRef",
    "Output",
    "Pair",
    "PairInfo",
    "Parity",
    "Prompt",
    "SampledScores",
    "Trial",
    "Turns",
    "Verdict",
    "__version__",
    "replay",
    "spec_acceptance",
    "spec_against",
    "spec_baseline",
    "spec_distribution",
    "spec_inputs",
    "spec_latency",
    "spec_memory",
    "spec_options",
    "spec_parity",
    "spec_quality",
    "spec_recommended",
    "spec_reuse",
    "spec_speedup",
    "spec_tpot",
    "spec_ttft",
    "specgate_check",
]


def __getattr__(name: str) -> Any:
    """Import the public types when they are first asked for: a plain session never pays."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

"""The recorded environment: what a figure depends on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from . import __version__
from .engines.base import EngineInfo
from .measure.machine import distributions, machine_facts, swap_used_bytes


def plain_json(value: Any) -> Any:
    """The value as JSON can hold it; what it cannot hold becomes text."""
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except (ValueError, RecursionError):
        return repr(value)


def environment(engine: EngineInfo | None) -> dict[str, Any]:
    """Versions, machine and device as plain JSON values.

    Args:
        engine: None when nothing was loaded.
    """
    facts: dict[str, Any] = {
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"pytest-specgate": __version__, "pytest": pytest.__version__},
        **machine_facts(),
        "swap_used_bytes": swap_used_bytes(),
        "distributions": dict(distributions()),
    }
    if engine is not None:
        facts["versions"] |= engine.versions
        facts |= {
            "device": engine.device,
            "device_details": {
                key: value
                for key, value in engine.details.items()
                if isinstance(value, str | int | float | bool)
            },
            "memory_limit_bytes": engine.memory_limit_bytes,
            "memory_limit_origin": engine.memory_limit_origin,
        }
    return facts

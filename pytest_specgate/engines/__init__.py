"""Engines: what loads a pair and generates on one path. An engine knows no limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .base import Engine


def _mlx_lm() -> Engine:
    from .mlx_lm import MlxLmEngine

    return MlxLmEngine()


def builtin_engines() -> Mapping[str, Callable[[], Engine]]:
    """Name -> factory; the factory imports what the engine needs."""
    return {"mlx-lm": _mlx_lm}

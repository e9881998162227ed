"""Loaded with ``-p tests.museum.plugin``: offers the engines with a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_specgate import Engine


@pytest.hookimpl(optionalhook=True)
def pytest_specgate_engines() -> Mapping[str, Callable[[], Engine]]:
    """By the names of ``tests.museum.engines.PAIRS``."""
    from .engines import engines

    return engines()

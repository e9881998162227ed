"""What a session is compared with: a stored one, or another environment beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .baseline import Reference
from .baseline.document import BaselineError
from .baseline.files import read
from .config.options import Options
from .measure.store import Other

if TYPE_CHECKING:
    from .engines.base import Engine


def reference_of(options: Options, facts: Callable[[], Mapping[str, Any]]) -> Reference | None:
    """What --spec-baseline names; a file that cannot be used fails the gate, not the start.

    A session that stores the first baseline has none to be judged against, which is no fault of it.
    """
    asked = options.baseline
    if asked is None:
        return Reference("-", None, None, dict) if options.save_baseline else None
    try:
        found, problem = read(asked.path), None
    except BaselineError as error:
        found, problem = None, str(error)
    return Reference(asked.name, found, problem, facts)


def other_of(options: Options, config: pytest.Config) -> Other | None:
    """What --spec-against names; its environment is made when it is first needed."""
    asked = options.against
    if asked is None:
        return None
    timeout = options.isolation.timeout_s if options.isolation else None

    def make() -> Engine:
        from .engines.environments import python_of
        from .engines.isolated import IsolatedEngine

        spec = asked.spec
        if spec is None and asked.requirement is not None:
            spec = f"popen//python={python_of(asked.requirement, _environments(config))}"
        return IsolatedEngine(spec or "popen", timeout)

    return Other(asked.name, make)


def _environments(config: pytest.Config) -> Path:
    """Where environments are kept: pytest's cache, or a temporary folder where that is off."""
    cache = getattr(config, "cache", None)
    name = "specgate-environments"
    return Path(cache.mkdir(name)) if cache else Path(tempfile.gettempdir()) / name

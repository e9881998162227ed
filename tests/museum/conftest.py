"""Runs the museum's cases as sessions of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import mlx_lm  # noqa: F401  # pytester forgets modules first imported inside it; numpy forbids that
import pytest

from .cases import CASES, Case
from .sessions import Outcome

Visit = Callable[..., Outcome]


@pytest.fixture(scope="session")
def museum_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the pairs lie; each is made when it is first asked for."""
    saved = os.environ.get("SPECGATE_MUSEUM_MODELS")
    return Path(saved) if saved else tmp_path_factory.mktemp("museum")


@pytest.fixture
def visit(pytester: pytest.Pytester, museum_models: Path) -> Visit:
    """visit(id or case, preflight=True): run a case as a session."""

    def run(case: str | Case, *, preflight: bool = True) -> Outcome:
        row = CASES[case] if isinstance(case, str) else case
        (pytester.path / "out.json").unlink(missing_ok=True)
        result = pytester.runpytest(
            *row.arguments(museum_models, pytester.path, preflight=preflight)
        )
        return Outcome.read(int(result.ret), pytester.path, result.stdout.str())

    return run

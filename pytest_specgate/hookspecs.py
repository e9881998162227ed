"""Hooks with which other projects extend specgate, from a conftest or a plugin of their own.

Mark an implementation with ``@pytest.hookimpl(optionalhook=True)``, so that pytest still starts
when specgate is switched off with ``-p no:specgate``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .checks import Check
    from .config.plan import Prompt
    from .engines.base import Engine
    from .gates.base import Gate, Verdict
    from .measure.trial import Trial
    from .report.session_report import SessionReport


@pytest.hookspec
def pytest_specgate_engines() -> Mapping[str, Callable[[], Engine]]:  # type: ignore[empty-body]  # a hookspec has no body
    """Engines by the name that ``--spec-engine`` takes; each value makes one when it is needed."""


@pytest.hookspec
def pytest_specgate_gates() -> Sequence[Gate]:  # type: ignore[empty-body]  # a hookspec has no body
    """Further gates; each is then a key under ``gates:`` and a marker ``spec_<name>``."""


@pytest.hookspec
def pytest_specgate_checks() -> Sequence[Check]:  # type: ignore[empty-body]  # a hookspec has no body
    """Further checks of outputs; the decorator ``specgate_check`` makes one of a function."""


@pytest.hookspec(firstresult=True)
def pytest_specgate_prompts(name: str) -> Sequence[Prompt] | None:
    """The prompts of a set that ``--spec-prompts NAME`` asks for, or None for an unknown name."""


@pytest.hookspec
def pytest_specgate_trial_finished(
    trial: Trial, prompt: Prompt, arm: str, config: pytest.Config
) -> None:
    """A timed trial is over; called between trials, so that it costs none of them."""


@pytest.hookspec
def pytest_specgate_verdict(verdict: Verdict, config: pytest.Config) -> None:
    """A gate has judged."""


@pytest.hookspec
def pytest_specgate_environment(
    environment: MutableMapping[str, Any], config: pytest.Config
) -> None:
    """Add facts to the recorded environment, in place; values must be plain JSON."""


@pytest.hookspec
def pytest_specgate_report() -> Mapping[str, Callable[[SessionReport, Path], None]]:  # type: ignore[empty-body]  # a hookspec has no body
    """Report kinds by the name that ``--spec-report KIND:PATH`` takes, and what writes them."""

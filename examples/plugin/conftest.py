"""How a project extends specgate: a gate, an engine, a prompt set, and a hook that notes verdicts.

Run the gates on the scripted engine, and the project's own tests without specgate:

    pytest --spec-engine scripted --spec-gates gates.yaml
    pytest -p no:specgate

Each hook is an ``optionalhook``, and what it needs of pytest_specgate is imported inside it: so the
second command works, and a session that gates nothing pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_specgate import Engine, Gate, Prompt, Verdict


@pytest.hookimpl(optionalhook=True)
def pytest_specgate_gates() -> Sequence[Gate]:
    """One more key under ``gates:``, ``median_ttft``, and one more marker."""
    from median_ttft import MedianTtftGate

    return [MedianTtftGate()]


@pytest.hookimpl(optionalhook=True)
def pytest_specgate_engines() -> Mapping[str, Callable[[], Engine]]:
    """One more name for ``--spec-engine``."""
    from scripted import ScriptedEngine

    return {"scripted": ScriptedEngine}


@pytest.hookimpl(optionalhook=True)
def pytest_specgate_prompts(name: str) -> Sequence[Prompt] | None:
    """The prompt set ``tickets``; None leaves any other name to the next plugin."""
    if name != "tickets":
        return None
    from tickets import TICKETS

    from pytest_specgate import Prompt

    return [Prompt(key, text, kind="ticket") for key, text in TICKETS.items()]


class VerdictNotes:
    """Notes each verdict and lists them at the end; a plugin object, so that it keeps state."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_specgate_verdict(self, verdict: Verdict) -> None:
        """A gate has judged."""
        self.lines.append(f"{verdict.gate}[{verdict.subject}]: {verdict.status}: {verdict.reason}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the notes, if there are any."""
        if self.lines:
            terminalreporter.section("verdict notes")
            terminalreporter.write_line("\n".join(self.lines))


def pytest_configure(config: pytest.Config) -> None:
    """Start the notes of this session."""
    config.pluginmanager.register(VerdictNotes(), "verdict-notes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without specgate nobody judges its markers: skip such a test rather than call it green."""
    if config.pluginmanager.has_plugin("specgate"):
        return
    for item in items:
        if any(mark.name.startswith("spec_") for mark in item.iter_markers()):
            item.add_marker(pytest.mark.skip(reason="specgate is switched off"))

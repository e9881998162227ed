"""Stored evidence of an earlier session: its file, and what became of it since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .document import Baseline


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline that a session is judged against.

    Attributes:
        name: as the user gave it.
        baseline: None where it could not be read, or where this session is to become one itself.
        problem: why it could not be read.
        facts: the recorded environment of this session.
    """

    name: str
    baseline: Baseline | None
    problem: str | None
    facts: Callable[[], Mapping[str, Any]]

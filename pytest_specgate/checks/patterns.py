"""Regular expressions that cannot hang: each search has its own time limit.

Python's ``re`` cannot be stopped while it backtracks; the package ``regex`` can.
"""

from __future__ import annotations

from typing import Any

from ..config.spec import Invalid, Spec, found
from .base import Stalled

PATIENCE_S = 0.25


def search(pattern: str, text: str) -> Any:
    """The first match, or None.

    Raises:
        Stalled: it was stopped.
    """
    import regex

    try:
        return regex.search(pattern, text, timeout=PATIENCE_S)
    except TimeoutError:
        raise Stalled(
            f"the pattern {pattern[:80]!r} was stopped after {PATIENCE_S:g} s on a text of "
            f"{len(text):,} characters: it backtracks without end"
        ) from None


def problem(pattern: str) -> str | None:
    """Why this is no pattern."""
    import regex

    try:
        regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        return f"{pattern[:80]!r} is no regular expression: {error}"[:300]
    return None


def pattern_option() -> Spec:
    """Text that is a regular expression."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise Invalid(f"must be text that is not empty, found {found(value)}")
        if why := problem(value):
            raise Invalid(why)
        return value

    return Spec(check, "a regular expression of the package regex")

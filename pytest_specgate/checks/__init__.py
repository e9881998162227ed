"""Checks of single outputs: pure functions that say what is wrong. The gate quality counts them."""

from __future__ import annotations

from .base import Check
from .json_check import JSON
from .language import LANGUAGE
from .python_check import PYTHON
from .repetition import NO_REPETITION
from .texts import CONTAINS, FINISH, LENGTH, NOT_REGEX, REGEX

__all__ = ["Check", "builtin_checks"]


def builtin_checks() -> dict[str, Check]:
    """The checks that come with the plugin, by name."""
    every = (JSON, PYTHON, CONTAINS, REGEX, NOT_REGEX, LENGTH, LANGUAGE, NO_REPETITION, FINISH)
    return {check.name: check for check in every}

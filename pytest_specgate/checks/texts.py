"""Checks of what the text holds, how long it is, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..config.spec import boolean, integer, one_of, optional, texts
from ..text import count
from .base import Check, Output
from .patterns import pattern_option, search


def _contains(output: Output, options: Mapping[str, Any]) -> str | None:
    ignore = options["ignore_case"]
    text = output.text.casefold() if ignore else output.text
    missing = [t for t in options["text"] if (t.casefold() if ignore else t) not in text]
    if missing:
        return f"it does not contain {', '.join(repr(t[:80]) for t in missing)}"
    return None


def _regex(output: Output, options: Mapping[str, Any]) -> str | None:
    if search(options["pattern"], output.text) is None:
        return f"nothing matches {options['pattern'][:80]!r}"
    return None


def _not_regex(output: Output, options: Mapping[str, Any]) -> str | None:
    found = search(options["pattern"], output.text)
    if found is not None:
        at = found.start()
        return f"{options['pattern'][:80]!r} matches {found.group()[:80]!r} at character {at}"
    return None


def _length(output: Output, options: Mapping[str, Any]) -> str | None:
    unit = options["unit"]
    length = len(output.tokens) if unit == "tokens" else len(output.text)
    for name, wrong in (("min", length < (options["min"] or 0)), ("max", _above(length, options))):
        if wrong:
            return f"{count(length, unit[:-1])}, the {name} is {options[name]:,}"
    return None


def _above(length: int, options: Mapping[str, Any]) -> bool:
    return options["max"] is not None and length > options["max"]


def _length_complaint(options: Mapping[str, Any]) -> str | None:
    least, most = options["min"], options["max"]
    if least is None and most is None:
        return "give min or max: with neither there is nothing to judge"
    if least is not None and most is not None and least > most:
        return f"min ({least}) is above max ({most})"
    return None


def _finish(output: Output, options: Mapping[str, Any]) -> str | None:
    if output.finish_reason == "stop":
        return None
    if output.cut:
        return f"max_tokens cut it after {count(len(output.tokens), 'token')}"
    return f"nothing says that it stopped by itself (finish_reason {output.finish_reason!r})"


CONTAINS = Check(
    "contains",
    _contains,
    {"text": texts(), "ignore_case": boolean()},
    {"ignore_case": False},
    short="text",
)
REGEX = Check("regex", _regex, {"pattern": pattern_option()}, short="pattern")
NOT_REGEX = Check("not_regex", _not_regex, {"pattern": pattern_option()}, short="pattern")
LENGTH = Check(
    "length",
    _length,
    {
        "unit": one_of("tokens", "characters"),
        "min": optional(integer(0)),
        "max": optional(integer(1)),
    },
    {"unit": "tokens", "min": None, "max": None},
    complaint=_length_complaint,
)
FINISH = Check("finish", _finish)

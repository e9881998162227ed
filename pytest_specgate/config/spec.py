"""Checks of single values, shared by options, ini keys, gates files and markers."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..text import shown_lines

_MOST_BITS = 63


class Invalid(ValueError):
    """A value is wrong; the text says what is needed and what was found."""


class ConfigError(Exception):
    """What the user typed is wrong; the text is for the user."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ConfigError into pytest's own: the text is printed, exit code 4."""
    try:
        yield
    except ConfigError as error:
        raise pytest.UsageError(shown_lines(str(error))) from None


@dataclass(frozen=True, slots=True)
class Spec:
    """One key: how its value is checked, and in words what is allowed."""

    check: Callable[[Any], Any]
    allowed: str

    def __call__(self, value: Any) -> Any:
        """The checked value.

        Raises:
            Invalid: with the found value and what is allowed.
        """
        try:
            return self.check(value)
        except Invalid as error:
            raise Invalid(f"{error} (allowed: {self.allowed})") from None

    def at(self, base: Path) -> Spec:
        """The same for values whose relative paths start from a folder."""
        return self


class BasedSpec(Spec):
    """A key whose value may hold paths: they are relative to the folder of what names them."""

    based: Callable[[Any, Path], Any]

    def __init__(self, check: Callable[[Any, Path], Any], allowed: str) -> None:
        """Check by a function of the value and the folder."""
        super().__init__(lambda value: check(value, Path()), allowed)
        object.__setattr__(self, "based", check)

    def at(self, base: Path) -> Spec:
        """The same for values whose relative paths start from a folder."""
        return Spec(lambda value: self.based(value, base), self.allowed)


def found(value: Any) -> str:
    """How a wrong value is named in a message."""
    if isinstance(value, bool):
        return f"{str(value).lower()}, a truth value"
    if value is None:
        return "nothing (null)"
    if isinstance(value, str):
        return f"the text {value[:80]!r}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number of too many digits"
    try:
        return repr(value)[:80]
    except Exception:  # a set of such numbers, or an object of the user's own
        return f"a {type(value).__name__} that cannot be written out"


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``json.loads(object_pairs_hook=)``.

    Raises:
        Invalid: a key is given twice.
    """
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise Invalid(f"{key!r} is given twice")
        seen[key] = value
    return seen


def path_of(text: str, base: Path) -> Path:
    """The path that a text names, from a folder; ``~`` is a home folder.

    Raises:
        Invalid: no path can have that name.
    """
    try:
        path = base / Path(text).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise Invalid(f"not a usable path: {found(text)}: {error}"[:300]) from None
    return path


def nearest(word: str, allowed: Iterable[str]) -> str:
    """``; did you mean 'speedup'?`` or nothing when no allowed word is close."""
    if not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    if not close:
        close = [name for name in allowed if len(name) > 2 and str(word).startswith(name)][:1]
    return f"; did you mean {close[0]!r}?" if close else ""


def number(
    *, above: float | None = None, least: float | None = None, most: float | None = None
) -> Spec:
    """A finite number, with bounds; a truth value is not a number."""
    bounds = []
    if above is not None:
        bounds.append(f"> {above:g}")
    if least is not None:
        bounds.append(f">= {least:g}")
    if most is not None:
        bounds.append(f"<= {most:g}")
    words = " and ".join(bounds)

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Invalid(f"must be a number, found {found(value)}")
        try:
            as_float = float(value)
        except OverflowError:
            as_float = math.inf
        if not math.isfinite(as_float):
            raise Invalid(f"must be a finite number, found {found(value)}")
        if (
            (above is not None and not as_float > above)
            or (least is not None and as_float < least)
            or (most is not None and as_float > most)
        ):
            raise Invalid(f"must be {words}, found {found(value)}")
        return as_float

    return Spec(check, f"a number {words}".strip())


def integer(least: int, most: int | None = None, *, why_least: str = "") -> Spec:
    """A whole number from least to most; a truth value or 3.0 is none."""
    allowed = f"a whole number >= {least}" if most is None else f"{least} to {most}"

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Invalid(f"must be a whole number, found {found(value)}")
        if value < least:
            why = f" ({why_least})" if why_least and value == least - 1 else ""
            raise Invalid(f"must be at least {least}, found {found(value)}{why}")
        if value.bit_length() > _MOST_BITS or (most is not None and value > most):
            raise Invalid(f"must be at most {most or 2**_MOST_BITS - 1}, found {found(value)}")
        return value

    return Spec(check, allowed)


def text() -> Spec:
    """Text that is not empty."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise Invalid(f"must be text, found {found(value)}")
        if not value.strip():
            raise Invalid("must not be empty")
        return value

    return Spec(check, "text")


def boolean() -> Spec:
    """true or false."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise Invalid(f"must be true or false, found {found(value)}")
        return value

    return Spec(check, "true, false")


def one_of(*words: str) -> Spec:
    """One word of a fixed set."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise Invalid(
                f"must be one of {', '.join(words)}; found {found(value)}{nearest(value, words)}"
            )
        return value

    return Spec(check, ", ".join(words))


def one_of_numbers(*allowed: int) -> Spec:
    """One whole number of a fixed set."""
    words = ", ".join(map(str, allowed))

    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
            raise Invalid(f"must be one of {words}, found {found(value)}")
        return value

    return Spec(check, words)


def optional(spec: Spec) -> Spec:
    """The same, or null for no limit."""
    return Spec(lambda value: None if value is None else spec.check(value), f"{spec.allowed}, null")


def texts() -> Spec:
    """A list of texts (one text stands for a list of one)."""

    def check(value: Any) -> tuple[str, ...]:
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list | tuple):
            raise Invalid(f"must be a list of texts, found {found(value)}")
        if not values:
            raise Invalid("must not be empty")
        for entry in values:
            if not isinstance(entry, str):
                hint = (
                    ": YAML reads a bare yes, no, on or off as a truth value; put it in quotes"
                    if isinstance(entry, bool)
                    else ""
                )
                raise Invalid(f"must be text in every entry, found {found(entry)}{hint}")
        return tuple(values)

    return Spec(check, "a list of texts")


def models() -> Spec:
    """One model, which stays text, or a list of different ones; none is empty."""
    several = texts()

    def check(value: Any) -> str | tuple[str, ...]:
        if not isinstance(value, str | list | tuple):
            raise Invalid(f"must be text, found {found(value)}")
        names = several.check(value)
        if not all(name.strip() for name in names):
            raise Invalid("must not be empty")
        if len(set(names)) != len(names):
            raise Invalid("must not repeat a model")
        return value if isinstance(value, str) else tuple(names)

    return Spec(check, "text, or a list of texts")


def integers(one: Spec) -> Spec:
    """One whole number or a list of different ones."""

    def check(value: Any) -> tuple[int, ...]:
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not values:
            raise Invalid("must not be empty")
        checked = [one.check(entry) for entry in values]
        if len(set(checked)) != len(checked):
            raise Invalid(f"must not repeat a number, found {checked}")
        return tuple(checked)

    return Spec(check, f"{one.allowed}, or a list of such numbers")


def mapping() -> Spec:
    """A mapping with text keys."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise Invalid(f"must be a mapping with text keys, found {found(value)}")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"must hold plain JSON values alone: {error}") from None
        return value

    return Spec(check, "a mapping of plain JSON values")


def _number_of(token: Any) -> Any:
    """The whole number that a text is; anything else as it is."""
    short = isinstance(token, str) and len(token) < 20  # int() refuses texts of thousands
    return int(token) if short and token.isdecimal() else token


def biases() -> Spec:
    """Token id -> what is added to its logit; a list of pairs, and ids as texts, will do."""
    one_id, one_bias = integer(0), number()

    def check(value: Any) -> tuple[tuple[int, float], ...]:
        needed = f"must be a mapping of token ids to numbers, found {found(value)}"
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list | tuple) or not all(
            isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
        ):
            raise Invalid(needed)
        try:
            checked = {
                one_id.check(_number_of(token)): one_bias.check(bias) for token, bias in pairs
            }
        except Invalid as error:
            raise Invalid(f"{needed}: {error}") from None
        if len(checked) != len(pairs):
            raise Invalid("must not repeat a token id")
        return tuple(sorted(checked.items()))

    return Spec(check, "a mapping of token ids to numbers")

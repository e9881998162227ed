"""A baseline from the text of its file: nothing is believed that was not checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from types import NoneType
from typing import Any

from ..measure.evidence import PLAIN
from ..measure.trial import Trial
from .document import (
    NAME,
    SCHEMA,
    VERSION,
    Baseline,
    BaselineError,
    StoredArm,
    StoredBlocks,
    StoredCase,
)
from .layout import taken_up

_MODELS = ("target", "draft")
_CENSORED = ("max_tokens", "eos", "closed")
_ARM = re.compile(r"plain|k=[1-9]\d{0,3}", re.ASCII)
# how a file of an older version becomes one of the next; none is older yet
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers that a list may hold."""

    kinds: frozenset[type]
    least: float
    most: float

    def hold(self, values: Sequence[Any]) -> bool:
        kinds = set(map(type, values))
        if not kinds <= self.kinds:
            return False
        found = [v for v in values if v is not None] if NoneType in kinds else values
        return not found or (min(found) >= self.least and max(found) <= self.most)

    def first_other(self, values: Sequence[Any]) -> Any:
        """Of values that do not hold."""
        return next(value for value in values if not self.hold([value]))


def _whole(least: int, *other: type) -> _Numbers:
    return _Numbers(frozenset({int, *other}), least, 2**53)  # beyond it they are no floats any more


def _seconds(least: float, *other: type) -> _Numbers:
    return _Numbers(frozenset({int, float, *other}), least, 1e9)


_COUNTS = _whole(0)
_SHORTEST = 1e-9  # seconds; nothing below was ever timed
_TRIALS: Mapping[str, _Numbers] = {
    "round": _whole(1),
    "tokens": _whole(1),
    "ttft_s": _seconds(_SHORTEST),
    "decode_s": _seconds(0, NoneType),
    "e2e_s": _seconds(_SHORTEST),
    "rest_tokens": _whole(1, NoneType),
    "rest_s": _seconds(0, NoneType),
    "peak_memory_bytes": _whole(0, NoneType),
    "accepted": _whole(0, NoneType),
}
TRIAL_COLUMNS = tuple(_TRIALS)


def loads(text: str) -> Baseline:
    """Read a file.

    Raises:
        BaselineError: not a baseline, of a newer version, or damaged; names the key.
    """
    try:
        document, whole = taken_up(text)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"not a baseline: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BaselineError("not a baseline: the file must hold an object")
    version = _version(document)
    if not whole:
        raise BaselineError(
            "damaged: its content is not what was written (the digest differs); take the file from "
            "git or store it again"
        )
    return _read(_migrated(document, version))


def _version(document: Mapping[str, Any]) -> int:
    schema = document.get("schema")
    name, _, number = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != NAME or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise BaselineError(f"not a baseline: schema must be {SCHEMA!r}, found {schema!r:.80}")
    version = int(number)
    if version > VERSION:
        raise BaselineError(
            f"schema {schema} is newer than this plugin knows ({SCHEMA}): update pytest-specgate"
        )
    return version


def _migrated(document: dict[str, Any], version: int) -> dict[str, Any]:
    while version < VERSION:
        if version not in MIGRATIONS:
            raise BaselineError(f"not a baseline: there never was a schema {NAME}/{version}")
        document = MIGRATIONS[version](document)
        version += 1
    return document


@dataclass(frozen=True, slots=True)
class _Reader:
    """A part of the document, and where it stands."""

    document: dict[str, Any]
    place: str

    def get(self, key: str, kind: type) -> Any:
        value = self.document.get(key)
        if type(value) is not kind:
            raise self.damaged(key, value)
        return value

    def part(self, key: str) -> _Reader:
        return _Reader(self.get(key, dict), f"{self.place}{key}.")

    def counts(self, key: str) -> tuple[int, ...]:
        values = self.get(key, list)
        if not _COUNTS.hold(values):
            raise self.damaged(key, _COUNTS.first_other(values))
        return tuple(values)

    def damaged(self, key: str, found: Any) -> BaselineError:
        return BaselineError(
            f"damaged: {self.place}{key} is missing or wrong (found {found!r:.40})"
        )


def _read(document: dict[str, Any]) -> Baseline:
    reader = _Reader(document, "")
    if reader.get("trial_columns", list) != list(TRIAL_COLUMNS):
        raise BaselineError(f"damaged: trial_columns must be {', '.join(TRIAL_COLUMNS)}")
    pair, cases = reader.part("pair"), reader.part("cases")
    return Baseline(
        environment=reader.get("environment", dict),
        models={role: _model(pair.part(role)) for role in _MODELS},
        engine=reader.get("engine", str),
        decoding=reader.get("decoding", dict),
        cases={name: _case(cases.part(name)) for name in cases.document},
        verdicts=tuple(_verdicts(reader.part("verdicts"))),
    )


def _model(model: _Reader) -> dict[str, Any]:
    model.get("digest", str)
    return model.document


def _verdicts(verdicts: _Reader) -> Iterable[Mapping[str, Any]]:
    for name in verdicts.document:
        part = verdicts.part(name)
        for key in ("gate", "subject", "status"):
            part.get(key, str)
        yield part.document


def _case(case: _Reader) -> StoredCase:
    arms = case.part("arms")
    read: dict[str, StoredArm] = {}
    for name in sorted(arms.document, key=PLAIN.__ne__):  # others may say that they are as plain
        if not _ARM.fullmatch(name):
            raise BaselineError(f"damaged: {arms.place}{name} is no arm: plain or k=N")
        read[name] = _arm(arms.part(name), read.get(PLAIN), plain=name == PLAIN)
    return StoredCase(
        case.get("kind", str),
        case.get("prompt", str),
        case.get("ids", str),
        case.get("max_tokens", int),
        read,
    )


def _arm(arm: _Reader, plain_arm: StoredArm | None, *, plain: bool) -> StoredArm:
    if arm.document.get("as_plain") is True and plain_arm is not None:
        tokens, text = plain_arm.tokens, plain_arm.text
    else:
        tokens, text = arm.counts("tokens"), arm.get("text", str)
        if not tokens:
            raise arm.damaged("tokens", [])
    blocks = None if plain else _blocks(arm.part("blocks"))
    return StoredArm(tokens, text, blocks, _trials(arm))


def _blocks(blocks: _Reader) -> StoredBlocks:
    proposed, accepted = blocks.counts("proposed"), blocks.counts("accepted")
    if len(accepted) != len(proposed) or any(map(gt, accepted, proposed)):
        raise blocks.damaged("accepted", "more than was proposed")
    censored = blocks.document.get("censored")
    if censored is not None and censored not in _CENSORED:
        raise blocks.damaged("censored", censored)
    return StoredBlocks(proposed, accepted, censored)


def _trials(arm: _Reader) -> tuple[Trial, ...]:
    """Column by column: a file holds thousands of rows."""
    rows = arm.get("trials", list)
    for row in rows:
        if type(row) is not list or len(row) != len(TRIAL_COLUMNS):
            raise arm.damaged("trials", row)
    if not rows:
        return ()
    columns = tuple(zip(*rows, strict=True))
    for (name, numbers), values in zip(_TRIALS.items(), columns, strict=True):
        if not numbers.hold(values):
            raise arm.damaged(f"trials.{name}", numbers.first_other(values))
    number, tokens, ttft, decode, e2e, rest_tokens, rest, peak, accepted = columns
    past = [
        None if count is None or seconds is None else (count, float(seconds))
        for count, seconds in zip(rest_tokens, rest, strict=True)
    ]
    return tuple(
        map(Trial, number, tokens, map(float, ttft), decode, map(float, e2e), past, peak, accepted)
    )

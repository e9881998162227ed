"""The figures of a session as a block of JSON that a page can hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..json_report import report_document
from ..session_report import SessionReport

# a script element ends at the next "</script", and "<!--" opens a state that hides it
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True, slots=True)
class Embedded:
    """The block, and in words what of the JSON report it lacks."""

    text: str
    left_out: tuple[str, ...]


def embedded(report: SessionReport, most: int) -> Embedded:
    """The JSON report in at most so many characters, or in as few as it can be.

    What is large goes first: lists of a value a token, then outputs, then trials.

    Args:
        report: the session.
        most: characters.
    """
    document = report_document(report)
    left_out: list[str] = []
    text = _text(document)
    for words, cut in _CUTS.items():
        if len(text) <= most:
            break
        cut(document)
        left_out.append(words)
        document["left_out"] = left_out
        text = _text(document)
    return Embedded(text, tuple(left_out))


def _text(document: dict[str, Any]) -> str:
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for char, escape in _UNSAFE.items():
        text = text.replace(char, escape)
    return text


def _pairs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield document
    yield from document["further_pairs"]


def _arms(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for pair in _pairs(document):
        for case in pair["cases"]:
            yield from case["arms"].values()


def _tokens(document: dict[str, Any]) -> None:
    for arm in _arms(document):
        del arm["tokens"]
        if arm["blocks"] is not None:
            del arm["blocks"]["accept_lengths"]


def _trials(document: dict[str, Any]) -> None:
    for arm in _arms(document):
        del arm["trials"]


def _texts(document: dict[str, Any]) -> None:
    for arm in _arms(document):
        del arm["text"]


def _cases(document: dict[str, Any]) -> None:
    for pair in _pairs(document):
        pair["cases"] = []


_CUTS: dict[str, Callable[[dict[str, Any]], None]] = {
    "token ids and the accept length of each block": _tokens,
    "output texts": _texts,
    "timed trials": _trials,
    "all figures of single prompts": _cases,
}

"""Both outputs of a parity failure around the place where they part, with what differs marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from ...gates.base import Verdict
from ...measure.evidence import PLAIN, CaseEvidence, arm_name
from ..session_report import SessionReport

_BEFORE, _AFTER = 300, 700  # characters that are shown
_IDS = 6  # on either side
_LEAST_SHARED = 4  # characters; fewer between two differences are there by chance
_WORDS = re.compile(r"\s+|[A-Za-z0-9_]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that both outputs share, or that they do not."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One output: its pieces, how many characters before and after them are not shown, its ids.

    ``ids`` are those before the first token that differs, and those from there on.
    """

    name: str
    pieces: tuple[Piece, ...]
    before: int
    after: int
    ids: tuple[tuple[int, ...], tuple[int, ...]]
    ended: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One speculative arm beside the plain one; ``first`` is the first token that differs."""

    num_draft_tokens: int
    first: int | None
    text_equal: bool
    sides: tuple[Side, Side]


def failed_case(report: SessionReport, verdict: Verdict) -> CaseEvidence | None:
    """The case that a failed parity verdict is of; None where nothing was compared.

    One prompt may be measured on several pairs: then the one whose first difference it tells.
    """
    found = [
        case
        for pair in report.measured
        for case in pair.cases
        if case.prompt.id == verdict.subject and any(not p.exact for p in case.parity())
    ]
    told = [
        case for case in found if verdict.observed in {p.first_difference for p in case.parity()}
    ]
    return next(iter([*told, *found]), None)


def differences(case: CaseEvidence, *, least: bool) -> list[Difference]:
    """One for each k whose output differs.

    Args:
        case: with a plain arm.
        least: of the first k alone, a few characters, all of them marked from the first that
            differs on: for one of very many failures.
    """
    found: list[Difference] = []
    for parity in case.parity():
        if parity.exact or (least and found):
            continue
        arms = case.arms[PLAIN], case.arms[arm_name(parity.num_draft_tokens)]
        texts = [arm.generation.text for arm in arms]
        before, after = (_BEFORE // 6, _AFTER // 7) if least else (_BEFORE, _AFTER)
        at = _parts_at(*texts)
        start = max(0, at - before)
        cut = [text[at : at + after] for text in texts]
        marked = [[Piece(text, True)] for text in cut] if least else _marked(*cut)
        first = parity.first_difference
        sides = [
            Side(
                name,
                tuple(p for p in (Piece(text[start:at], False), *pieces) if p.text),
                start,
                max(0, len(text) - at - after),
                _ids(arm.generation.tokens, first),
                at >= len(text),
            )
            for name, text, pieces, arm in zip(
                ("plain", f"speculative, k = {parity.num_draft_tokens}"),
                texts,
                marked,
                arms,
                strict=True,
            )
        ]
        found.append(
            Difference(parity.num_draft_tokens, first, parity.text_equal, (sides[0], sides[1]))
        )
    return found


def _parts_at(plain: str, speculative: str) -> int:
    """The first character that differs."""
    pairs = enumerate(zip(plain, speculative, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(plain), len(speculative)))


def _ids(tokens: Sequence[int], first: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if first is None:
        return (), ()
    return tuple(tokens[max(0, first - _IDS) : first]), tuple(tokens[first : first + _IDS])


def _marked(plain: str, speculative: str) -> tuple[list[Piece], list[Piece]]:
    """What differs, word by word; the texts are short, so that this ends soon whatever they say."""
    words = _WORDS.findall(plain), _WORDS.findall(speculative)
    matcher = SequenceMatcher(None, *words, autojunk=False)
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for tag, a, b, c, d in matcher.get_opcodes():
        runs = "".join(words[0][a:b]), "".join(words[1][c:d])
        last = b == len(words[0]) and d == len(words[1])
        chance = not last and len(runs[0].strip()) < _LEAST_SHARED
        for pieces, run in zip(sides, runs, strict=True):
            pieces.extend(_pieces(run, tag != "equal" or chance))
    return _joined(sides[0]), _joined(sides[1])


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Neighbours that are alike as one."""
    groups = groupby(pieces, key=lambda piece: piece.differs)
    return [Piece("".join(piece.text for piece in run), differs) for differs, run in groups]


def _pieces(text: str, differs: bool) -> Iterator[Piece]:
    if text:
        yield Piece(text, differs)

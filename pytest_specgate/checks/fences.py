"""Fenced code blocks: models put code and JSON between lines of three backticks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..config.spec import Invalid, Spec, found

_OPENS = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: the first word behind its fence in lower case, and what stands in it."""

    language: str
    text: str
    closed: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order, as CommonMark has them.

    One that is never closed goes on to the end.
    """
    found: list[Block] = []
    fence, language = "", ""
    lines: list[str] = []
    for line in text.split("\n"):
        if not fence:
            if opening := _OPENS.match(line.rstrip()):
                fence, words, lines = opening[1], opening[2].split(), []
                language = words[0].lower() if words else ""
            continue
        bare = line.strip()
        if len(bare) >= len(fence) and set(bare) == {fence[0]}:
            found.append(Block(language, "\n".join(lines), closed=True))
            fence = ""
        else:
            lines.append(line)
    if fence:
        found.append(Block(language, "\n".join(lines), closed=False))
    return found


def blocks_in(text: str, *languages: str) -> list[Block]:
    """The blocks in one of these languages; where there is none, those that name no language."""
    every = blocks(text)
    named = [block for block in every if block.language in languages]
    return named or [block for block in every if not block.language]


def fenced_option() -> Spec:
    """true, false or ``either``."""

    def check(value: Any) -> bool | str:
        if isinstance(value, bool) or value == "either":
            checked: bool | str = value
            return checked
        raise Invalid(f"must be true, false or either, found {found(value)}")

    return Spec(check, "true, false, either")

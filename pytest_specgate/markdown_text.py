"""GitHub's Markdown from text that nobody vouches for: no cell, tag, link or mention gets out."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from .text import shown

_SPECIAL = re.compile(
    r"""[\\`*|~$]             # code, emphasis, cells, strikes, formulas
    | (?<![^\W_])_ | _(?![^\W_])  # emphasis too, but not within a word
    | \](?=[(\[:])            # the end of a link's text, or of what defines one
    | <(?=[A-Za-z/!?])        # tags
    | &(?=\#?\w+;)            # entities
    """,
    re.VERBOSE,
)
_BEGINS = re.compile(r"^(\d*)([>#+\-.)=])")  # quotes, headings, lists, underlines
_MENTION = re.compile(r"(?<!\w)@(?=\w)")


def inline(text: str) -> str:
    """Within a line: shows these characters and does nothing else; still readable raw."""
    # GitHub looks for mentions after it has undone escapes; a comment parts the two
    return _MENTION.sub("@<!-- -->", _SPECIAL.sub(r"\\\g<0>", shown(text)))


def escaped(text: str) -> str:
    """The same at the beginning of a line."""
    return _BEGINS.sub(r"\1\\\2", inline(text.strip()))


def in_html(text: str) -> str:
    """The same within an HTML block, where Markdown is not read."""
    return _MENTION.sub("@<!-- -->", html.escape(shown(text), quote=False))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; what cells hold cannot end a row or begin a tag."""
    return [
        f"| {' | '.join(header)} |",
        "|" + " --- |" * len(header),
        *(f"| {' | '.join(map(inline, row))} |" for row in rows),
    ]


def code_block(lines: Iterable[str]) -> list[str]:
    """Lines as they are, in columns; the fence is longer than any within."""
    inside = [shown(line) for line in lines]
    longest = max((len(run) for line in inside for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *inside, fence]

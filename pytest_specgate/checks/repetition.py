"""Is the output caught in a loop?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..config.spec import integer
from .base import Check, Output


@lru_cache(maxsize=16)
def _loop(times: int, span: int, longest: int) -> re.Pattern[str]:
    """A unit of 1 to longest characters that stands there often enough, back to back.

    Bounded work at each start, so the search takes time in proportion to the text.
    """
    even = min(-(-span // times), longest)  # from this length on, ``times`` units fill the span
    few = [rf"(.{{{p}}})\{p}{{{-(-span // p) - 1},}}" for p in range(1, even)]
    many = rf"(.{{{even},{longest}}}?)\{even}{{{times - 1},}}"
    return re.compile("|".join([*few, many]), re.DOTALL)


def _no_repetition(output: Output, options: Mapping[str, Any]) -> str | None:
    if _few_repeat(output.tokens, options["times"], options["span"]):
        return None
    pattern = _loop(options["times"], options["span"], options["longest"])
    text = "".join(map(_char, output.tokens))
    found = pattern.search(text)
    if found is None:
        return None
    unit = next(len(group) for group in found.groups() if group is not None)
    times = len(found.group()) // unit
    what = "one token" if unit == 1 else f"{unit} tokens"
    return f"from token {found.start()} on {what} stand there {times} times in a row"


def _few_repeat(tokens: tuple[int, ...], times: int, span: int) -> bool:
    """Too few runs of four tokens stand there again for any loop; quick, so it is asked first.

    In a loop of L >= span tokens and a unit of at most L / times, all runs of four but those of the
    first unit and the last three are repeated ones.
    """
    runs = list(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))
    return len(runs) - len(set(runs)) < span * (1 - 1 / times) - 3


def _char(token: int) -> str:
    return chr(token % 0x110000)


NO_REPETITION = Check(
    "no_repetition",
    _no_repetition,
    {"times": integer(2, 50), "span": integer(2, 1000), "longest": integer(1, 500)},
    {"times": 4, "span": 32, "longest": 64},
)

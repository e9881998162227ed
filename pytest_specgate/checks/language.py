"""In which script is the output written, and is its Chinese the one that was asked for?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..config.spec import Invalid, Spec, found, integer, number, optional
from .base import Check, Output
from .patterns import problem

# in Hong Kong's supplement of Big5, and yet Simplified alone in running text
_SIMPLIFIED_IN_HKSCS = (
    "业东丽义亿从仪众会农决况减务动华厅双发变号启团园国块坛声处备头学宝实币帮广庆总战护担拟拥无条桥梦毁气"
    "汉济炉点电画盖礼窃笔类粮经统联药见视设询车轮输边达迁运邮邻钟铁铜银长门际险随页风飞马鱼鸟齐齿龙"
)


@lru_cache(maxsize=1)
def simplified_only() -> frozenset[str]:
    """Characters of Simplified Chinese that Traditional Chinese does not use.

    Those of GB 2312 that are not in Big5 with Hong Kong's supplement, and some of the latter. What
    serves both, such as 后, 里, 台 and 只, is not among them.
    """
    ideographs = map(chr, range(0x4E00, 0xA000))
    return frozenset(_SIMPLIFIED_IN_HKSCS) | {
        char
        for char in ideographs
        if _encodable(char, "gb2312") and not _encodable(char, "big5hkscs")
    }


def _encodable(char: str, encoding: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _script_option() -> Spec:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not value.replace("_", "").isalpha():
            raise Invalid(f"must be the name of a script, found {found(value)}")
        if problem(rf"\p{{Script={value}}}"):
            raise Invalid(f"must be the name of a Unicode script, found {found(value)}")
        return value

    return Spec(check, "a Unicode script such as Han, Latin, Cyrillic, Hiragana, Hangul, Arabic")


def _language(output: Output, options: Mapping[str, Any]) -> str | None:
    import regex

    script, least = options["script"], options["min_share"]
    times = Counter(output.text)  # a text has few different characters
    if script is not None:
        letters = {char: number for char, number in times.items() if char.isalpha()}
        if not letters:
            return "it holds no letter"
        written = regex.findall(rf"\p{{Script={script}}}", "".join(letters))
        of_script, total = sum(letters[char] for char in written), sum(letters.values())
        share = of_script / total
        if share < least:
            return f"{share:.0%} of its {total:,} letters are {script}, the least is {least:.0%}"
    most = options["max_simplified"]
    if most is not None:
        known = simplified_only()
        simplified = {char: number for char, number in times.items() if char in known}
        if (amount := sum(simplified.values())) > most:
            shown = "".join(simplified)[:20]
            return (
                f"{amount} of its characters are Simplified Chinese alone ({shown}), "
                f"the most is {most}"
            )
    return None


def _complaint(options: Mapping[str, Any]) -> str | None:
    if options["script"] is None and options["max_simplified"] is None:
        return "give script or max_simplified: with neither there is nothing to judge"
    return None


LANGUAGE = Check(
    "language",
    _language,
    {
        "script": optional(_script_option()),
        "min_share": number(above=0, most=1),
        "max_simplified": optional(integer(0)),
    },
    {"script": None, "min_share": 0.5, "max_simplified": None},
    short="script",
    complaint=_complaint,
)

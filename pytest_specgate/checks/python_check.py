"""Is the output Python? It is parsed, and compiled where that is asked for; never executed."""

from __future__ import annotations

import ast
import codeop
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..config.spec import boolean, one_of
from .base import Check, Output
from .fences import blocks_in, fenced_option

_LONGEST = 1_000_000  # characters; no model writes more, and the compiler takes memory


def _python(output: Output, options: Mapping[str, Any]) -> str | None:
    inside = [] if options["fenced"] is False else blocks_in(output.text, "python", "py", "python3")
    if not inside and options["fenced"] is True:
        return "it holds no fenced Python block"
    lenient = output.cut and options["cut"] == "begins"
    if not inside:
        return _problem(output.text, options, cut=lenient)
    for number, block in enumerate(inside, 1):
        problem = _problem(block.text, options, cut=lenient and not block.closed)
        if problem:
            return f"in fenced block {number}: {problem}" if len(inside) > 1 else problem
    return None


def _problem(code: str, options: Mapping[str, Any], *, cut: bool) -> str | None:
    """What is wrong with one piece of code.

    Raises:
        RecursionError, MemoryError: it nests too deeply for the compiler.
    """
    if not code.strip() and not cut:
        return "it holds no code"
    if len(code) > _LONGEST:
        return f"{len(code):,} characters of code are not parsed, the most is {_LONGEST:,}"
    try:
        with _without_warnings():
            tree = ast.parse(code)
            if options["compile"]:
                compile(tree, "output", "exec", dont_inherit=True)
    except SyntaxError as error:
        if cut and begins_code(code):
            return None
        return f"no Python at line {error.lineno}: {error.msg}"
    except ValueError as error:  # a null byte, half of a surrogate pair, a number too long
        return f"no Python that can be read: {error}"
    return None


def begins_code(code: str) -> bool:
    """Could this be the beginning of a piece of code, its last line cut anywhere?"""
    whole_lines = code.rpartition("\n")[0] or code
    try:
        with _without_warnings():
            codeop.compile_command(whole_lines + "\n", "output", "exec")
    except (SyntaxError, ValueError, OverflowError):
        return False
    return True


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Invalid escapes and the like are no fault of what was generated, even under ``-W error``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PYTHON = Check(
    "python",
    _python,
    {"compile": boolean(), "fenced": fenced_option(), "cut": one_of("fail", "begins")},
    {"compile": False, "fenced": "either", "cut": "fail"},
)

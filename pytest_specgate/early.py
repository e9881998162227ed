"""What must happen before pytest has found its root folder, or be undone after."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .config.option_values import names_gateway
from .config.options import ALL_SWEPT

_TAKE_PATHS: tuple[str, ...] = (
    "--spec-target",
    "--spec-draft",
    "--spec-prompts",
    "--spec-gates",
    "--spec-replay",
)
_TAKE_PATHS += ("--spec-baseline", "--spec-baseline-dir")

# option whose value may be left out -> (is this its value?, what stands for none)
_MAY_STAND_ALONE: Mapping[str, tuple[Callable[[str], object], str]] = {
    "--spec-isolate": (names_gateway, "popen"),
    "--spec-sweep": (re.compile(r"[\d,\s]+").fullmatch, ALL_SWEPT),
}


def joined(args: Sequence[str], here: Path) -> list[str]:
    """The same arguments, with ``--spec-target DIR`` written as ``--spec-target=DIR``.

    Before it has loaded any plugin, pytest takes every argument that exists on disk for a test
    path, and looks for its root folder and configuration there: a model directory outside the
    project would hide the project's own. Joined to its option a value is not taken for a path.
    An option whose value may be left out, such as ``--spec-isolate``, is given its default: it
    would take a test path behind it for a value.

    Args:
        args: of the command line.
        here: folder that relative paths start from.
    """
    out: list[str] = []
    rest = deque(args)
    while rest:
        arg = rest.popleft()
        if arg == "--":
            return [*out, arg, *rest]
        if arg in _MAY_STAND_ALONE:
            is_value, default = _MAY_STAND_ALONE[arg]
            out.append(f"{arg}={rest.popleft() if rest and is_value(rest[0]) else default}")
        elif arg in _TAKE_PATHS and rest:
            value = rest.popleft()
            out += [f"{arg}={value}"] if _exists(here / value) else [arg, value]
        else:
            out.append(arg)
    return out


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False

"""What must happen before pytest has found its root folder, or be undone after."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from .config.options import names_gateway

_TAKE_PATHS: tuple[str, ...] = (
    "--spec-target",
    "--spec-draft",
    "--spec-prompts",
    "--spec-gates",
    "--spec-replay",
)
_TAKE_PATHS += ("--spec-baseline", "--spec-baseline-dir")

_TAKES_SPEC_OR_NOTHING = "--spec-isolate"


def joined(args: Sequence[str], here: Path) -> list[str]:
    """The same arguments, with ``--spec-target DIR`` written as ``--spec-target=DIR``.

    Before it has loaded any plugin, pytest takes every argument that exists on disk for a test
    path, and looks for its root folder and configuration there: a model directory outside the
    project would hide the project's own. Joined to its option a value is not taken for a path.
    ``--spec-isolate`` alone is given its default: it would take a test path behind it for a value.

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
        if arg == _TAKES_SPEC_OR_NOTHING:
            out.append(f"{arg}={rest.popleft() if rest and names_gateway(rest[0]) else 'popen'}")
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

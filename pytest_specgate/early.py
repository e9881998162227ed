"""What must happen before pytest has found its root folder, or be undone after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_TAKE_PATHS = ("--spec-target", "--spec-draft", "--spec-prompts", "--spec-gates", "--spec-replay")


def joined(args: Sequence[str], here: Path) -> list[str]:
    """The same arguments, with ``--spec-target DIR`` written as ``--spec-target=DIR``.

    Before it has loaded any plugin, pytest takes every argument that exists on disk for a test
    path, and looks for its root folder and configuration there: a model directory outside the
    project would hide the project's own. Joined to its option a value is not taken for a path.

    Args:
        args: of the command line.
        here: folder that relative paths start from.
    """
    out: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg == "--":
            return [*out, arg, *rest]
        value = next(rest, None) if arg in _TAKE_PATHS else None
        if value is not None and _exists(here / value):
            out.append(f"{arg}={value}")
        else:
            out += [arg] if value is None else [arg, value]
    return out


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False

"""Environments to measure against: one that is there, or one made once from a requirement."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ..measure.lock import MachineLock
from .base import EngineError

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]

_PINNED = ("mlx", "transformers", "tokenizers")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.\-\[\],]*\s*(?:[=<>!~@].*)?", re.ASCII)
_CLIP = 1500


def run_command(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run to the end, output kept."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def is_requirement(text: str) -> bool:
    """Does this look like ``mlx-lm==0.32.2``?"""
    return bool(_REQUIREMENT.fullmatch(text.strip())) and not text.strip().endswith(".txt")


def backend() -> str | None:
    """The extra of mlx that this process computes with; None where mlx needs none."""
    installed = {
        dist.metadata["Name"].lower().replace("_", "-") for dist in metadata.distributions()
    }
    names = {"mlx-cpu": "cpu", "mlx-cuda-12": "cuda12", "mlx-cuda-13": "cuda13"}
    found = [extra for name, extra in names.items() if name in installed]
    return found[0] if len(found) == 1 else None


def pins(requirements: Iterable[str]) -> dict[str, str]:
    """What should not change together with the requirement: package -> version now.

    A package that a requirement names is left out.
    """
    named = {re.split(r"[\s=<>!~@\[]", text.strip())[0].lower() for text in requirements}
    found = {}
    for name in _PINNED:
        if name not in named:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
    return found


def python_of(requirement: str | Path, folder: Path, run: Run = run_command) -> Path:
    """The interpreter of an environment with this requirement, made when it is not there.

    One factor at a time: mlx, transformers and tokenizers keep their versions of now, unless the
    requirement forbids it; then fewer of them are kept.

    Args:
        requirement: such as ``mlx-lm==0.32.2``, or a requirements file.
        folder: where environments are kept; each has a name of its own.
        run: starts a command.

    Raises:
        EngineError: it cannot be made; holds the installer's own words.
    """
    if isinstance(requirement, Path):
        lines = requirement.read_text(encoding="utf-8").splitlines()
        asked, named = ["-r", str(requirement.resolve())], lines
    else:
        asked = named = requirement.split()
    kept, extra = pins(named), backend()
    key = json.dumps([named, kept, extra, sys.version, sys.executable])
    place = folder / f"env-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    python, done = place / "bin" / "python", place / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    with MachineLock(folder / f"{place.name}.lock").alone():
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            _make(place, asked, kept, extra, run)
            done.write_text(key, encoding="utf-8")
    return python


def _make(
    place: Path, asked: Sequence[str], kept: Mapping[str, str], extra: str | None, run: Run
) -> None:
    uv = shutil.which("uv")
    python = str(place / "bin" / "python")
    venv = [uv, "venv", "--quiet", "--python", sys.executable, str(place)] if uv else None
    _checked(run(venv or [sys.executable, "-m", "venv", str(place)]), "making the environment")
    install = [uv, "pip", "install", "--quiet", "--python", python] if uv else None
    install = install or [python, "-m", "pip", "install", "--quiet"]
    mlx = [f"mlx[{extra}]"] if extra else []
    attempts = [kept, {n: v for n, v in kept.items() if n == "mlx"}, {}]
    for number, pinned in enumerate(attempts):
        ended = run([*install, *asked, *mlx, *(f"{n}=={v}" for n, v in pinned.items())])
        if ended.returncode == 0:
            return
        if number == len(attempts) - 1:
            _checked(ended, f"installing {' '.join(asked)}")


def _checked(ended: subprocess.CompletedProcess[str], doing: str) -> None:
    if ended.returncode:
        words = " ".join((ended.stderr or ended.stdout).split())[-_CLIP:]
        raise EngineError(f"{doing} failed: {words}")


def is_interpreter(path: Path) -> bool:
    """A file that can be run."""
    return path.is_file() and os.access(path, os.X_OK)

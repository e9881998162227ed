"""The embedded pair: real mlx-lm model directories, built from a seed on first use."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..config.plan import ModelRef
from ..measure.lock import MachineLock

if TYPE_CHECKING:
    from .constructed import PairRecipe

_HERE = Path(__file__).parent
_MADE_FROM = (
    _HERE / "__init__.py",
    _HERE / "constructed.py",
    _HERE.parent / "prompts" / "core.jsonl",
    _HERE.parent / "prompts" / "smoke.txt",
)


def recipe() -> PairRecipe:
    """Deep and narrow: on a CPU a pass over four tokens then costs little more than over one."""
    from .constructed import PairRecipe

    return PairRecipe(agreement=0.85, target_layers=8, draft_layers=1)


def demo_directory(config: pytest.Config) -> Path:
    """Where the pair is kept: pytest's cache folder, or a temporary one where that is off.

    The name changes with all that the pair is made from, so an old one is never taken. Nothing is
    made yet.
    """
    made_from = hashlib.sha256(b"".join(path.read_bytes() for path in _MADE_FROM))
    name = f"specgate-demo-{made_from.hexdigest()[:12]}"
    try:
        return config.rootpath / str(config.getini("cache_dir")) / "d" / name
    except ValueError:  # pytest's cache is switched off
        return Path(tempfile.gettempdir()) / name


def demo_pair(directory: Path) -> tuple[ModelRef, ModelRef]:
    """Target and draft, which need not be there yet."""
    target, draft = directory / "target", directory / "draft"
    return ModelRef("demo target", target), ModelRef("demo draft", draft)


def build_missing(directory: Path, config: pytest.Config) -> None:
    """Build both models unless they are there; whole folders appear, or none.

    Raises:
        OSError: the folder cannot be written.
        Busy: another session did not end building it.
    """
    if (directory / "draft" / "config.json").exists():
        return
    if cache := getattr(config, "cache", None):
        cache.mkdir(directory.name)  # with pytest's own .gitignore beside it
    directory.mkdir(parents=True, exist_ok=True)
    with MachineLock(directory / "building.lock").alone():
        if not (directory / "draft" / "config.json").exists():
            _build_in(directory)


def _build_in(directory: Path) -> None:
    from .constructed import build

    work = Path(tempfile.mkdtemp(prefix=".building-", dir=directory))
    try:
        build(work, recipe())
        for role in ("target", "draft"):
            shutil.rmtree(directory / role, ignore_errors=True)
            (work / role).rename(directory / role)
    finally:
        shutil.rmtree(work, ignore_errors=True)

"""The built-in prompt set: four kinds, written for this project, with checks for each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ..config.checks import listed
from ..config.plan import Prompt
from ..config.prompt_file import read_prompts

NAMES = ("core", "smoke")
_HERE = Path(__file__).parent


def builtin(name: str) -> tuple[Prompt, ...] | None:
    """The prompts of ``core`` or of its short subset ``smoke``; None for another name."""
    if name not in NAMES:
        return None
    path = _HERE / "checks.json"
    kinds = json.loads(path.read_text(encoding="utf-8"))
    checks = {kind: listed(entries, path.name, _HERE) for kind, entries in kinds.items()}
    core = tuple(
        replace(prompt, usual_checks=checks[prompt.kind])
        for prompt in read_prompts(_HERE / "core.jsonl")
    )
    if name == "core":
        return core
    smoke = set((_HERE / "smoke.txt").read_text(encoding="utf-8").split())
    return tuple(prompt for prompt in core if prompt.id in smoke)

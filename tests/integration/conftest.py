"""Helpers for sessions that gate real models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx_lm  # noqa: F401  # pytester forgets modules first imported inside it; numpy forbids that
import pytest

from tests.models import gemma3_config, save_pair

Report = dict[str, Any]
Gate = Callable[..., tuple[pytest.RunResult, Report]]


@pytest.fixture
def gate(pytester: pytest.Pytester) -> Gate:
    """gate(folder, *options): run the pair of a folder, give the result and the JSON report."""

    def run(folder: Path | None, *options: str) -> tuple[pytest.RunResult, Report]:
        pair = []
        if folder is not None:
            pair = ["--spec-target", f"{folder}/target", "--spec-draft", f"{folder}/draft"]
        result = pytester.runpytest(*pair, "--spec-report", "json:out.json", *options)
        path = pytester.path / "out.json"
        return result, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    return run


@pytest.fixture(scope="session")
def window_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """window -> a sliding-window pair whose draft is refused now and then."""
    return {
        window: save_pair(
            tmp_path_factory.mktemp(f"window{window}"), gemma3_config(window), noise=0.2
        )
        for window in (24, 512)
    }


@pytest.fixture
def prompts(pytester: pytest.Pytester) -> Callable[..., str]:
    """prompts(a="text", ...): a prompt file of these ids and texts; gives its name."""

    def write(**texts: str) -> str:
        lines = [json.dumps({"id": name, "prompt": text}) for name, text in texts.items()]
        (pytester.path / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return "prompts.jsonl"

    return write

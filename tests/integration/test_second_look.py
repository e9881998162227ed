"""Memory that grew is seen again in a fresh process before a gate fails for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.baselines import signed
from tests.models import dense_config, save_pair

from .conftest import Gate, Report

MIB = 2**20
PEAK = -2  # its place in the row of a stored trial
QUICK = ("--spec-max-tokens", "4", "--spec-rounds", "5:5")
NOTHING_ELSE = "acceptance: null, speedup: null, p95: null, e2e: null"
HOLDS = """
import mlx.core as mx

def pytest_sessionstart(session):
    session.config.held = mx.zeros((64, 2**20), mx.uint8)
    mx.eval(session.config.held)

def pytest_unconfigure(config):
    del config.held
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense pair of a few hundred kilobytes."""
    return save_pair(tmp_path_factory.mktemp("dense"), dense_config(), noise=0.1)


@pytest.fixture
def options(pytester: pytest.Pytester) -> tuple[str, ...]:
    """One prompt, and no figure judged but memory and output."""
    (pytester.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "Say it."}\n')
    (pytester.path / "gates.yaml").write_text(
        f"version: 1\ngates: {{parity: {{}}, baseline: {{{NOTHING_ELSE}}}}}\n"
    )
    return (*QUICK, "--spec-prompts", "prompts.jsonl")


def memory(report: Report) -> dict[str, Any]:
    """The figure of the baseline gate."""
    (verdict,) = [v for v in report["verdicts"] if v["subject"] == "k=3 memory"]
    return dict(verdict)


def test_what_this_process_holds_for_something_else(
    pytester: pytest.Pytester, gate: Gate, pair: Path, options: tuple[str, ...]
) -> None:
    """64 MiB of a conftest lie in every peak; a fresh process does without."""
    assert gate(pair, *options, "--spec-save-baseline", "a")[0].ret == 0
    pytester.makeconftest(HOLDS)
    result, report = gate(pair, *options, "--spec-baseline", "a")
    found = memory(report)
    assert (result.ret, found["status"]) == (0, "passed")
    assert found["observed"] * 1e9 > 64 * MIB
    assert found["reason"].endswith(" in a fresh process")


def test_what_the_pair_needs(
    pytester: pytest.Pytester, gate: Gate, pair: Path, options: tuple[str, ...]
) -> None:
    """A stored session whose peak was lower by more than the limit: a fresh process agrees."""
    large = save_pair(pytester.mkdir("large"), {**dense_config(), "vocab_size": 65536}, noise=0.1)
    assert gate(large, *options, "--spec-save-baseline", "a")[0].ret == 0
    stored = pytester.path / ".specgate" / "baselines" / "a.json"
    document = json.loads(stored.read_bytes())
    for case in document["cases"].values():
        for row in case["arms"]["k=3"]["trials"]:
            assert row[PEAK] > 48 * MIB
            row[PEAK] -= 32 * MIB
    stored.write_text(signed(document))
    result, report = gate(large, *options, "--spec-baseline", "a")
    found = memory(report)
    assert (result.ret, found["status"]) == (1, "failed")
    assert found["reason"].endswith(" in a fresh process")


HELD_THERE = """
import mlx.core as mx
held = mx.zeros((64, 2**20), mx.uint8)
mx.eval(held)
"""


def test_the_other_environment_is_looked_at_there(
    pytester: pytest.Pytester, gate: Gate, pair: Path, options: tuple[str, ...]
) -> None:
    """What every process of the other interpreter holds is its own: it fails."""
    folder = pytester.mkdir("other")
    (folder / "sitecustomize.py").write_text(HELD_THERE)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (pytester.path / "gates.yaml").write_text(
        "version: 1\ngates: {parity: {}, against: {speedup: null, e2e: null, plain_e2e: null}}\n"
    )
    result, report = gate(pair, *options, "--spec-against", f"python={python}")
    found = memory(report)
    assert (result.ret, found["status"]) == (1, "failed")
    assert found["reason"].endswith(" in a fresh process")

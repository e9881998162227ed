"""Two environments in the same rounds: one interpreter twice, and one that computes otherwise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.demo.constructed import PairRecipe, build
from tests.models import dense_config, save_pair

from .conftest import Gate

HERE = f"python={sys.executable}"
QUICK = ("--spec-max-tokens", "8", "--spec-rounds", "5:6")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense pair, whose draft is refused now and then."""
    return save_pair(tmp_path_factory.mktemp("dense"), dense_config(), noise=0.1)


@pytest.fixture
def prompts(pytester: pytest.Pytester) -> str:
    """Two prompts."""
    lines = [f'{{"id": "p{i}", "prompt": "Say it {i} times."}}\n' for i in range(2)]
    (pytester.path / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    return "prompts.jsonl"


def against(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict, and its figures by name."""
    verdicts = [v for v in report["verdicts"] if v["gate"] == "against" and v["subject"] == "k=3"]
    (verdict,) = verdicts
    figures = {figure["name"]: figure for figure in verdict["evidence"].get("figures", ())}
    return {**verdict, "figures": figures}


def test_the_same_interpreter_twice(
    pytester: pytest.Pytester, gate: Gate, pair: Path, prompts: str
) -> None:
    """Nothing changed: facts are equal to the last token, and times are paired."""
    (pytester.path / "gates.yaml").write_text(
        "version: 1\n"
        "gates: {parity: {}, against: {speedup: null, e2e: null, plain_e2e: null, memory: 50%}}\n"
    )
    result, report = gate(pair, *QUICK, "--spec-prompts", prompts, "--spec-against", HERE)
    found = against(report)
    assert (result.ret, found["status"]) == (0, "passed")
    assert found["evidence"]["changes"] == []
    assert found["figures"]["output"]["status"] == "passed"
    assert found["figures"]["acceptance other"]["change"] == "+0.000"
    assert {"speedup", "plain_e2e", "e2e", "ttft", "memory"} <= {*found["figures"]}
    for case in report["cases"]:
        assert {len(arm["trials"]) for arm in case["arms"].values()} == {5}
    result.stdout.fnmatch_lines([f"against {HERE} (k=3)", "nothing changed in environment, *"])


OTHER = """
import mlx.core as mx
from mlx_lm import sample_utils

def make_sampler(temp=0.0, **more):
    return lambda logprobs: mx.argsort(logprobs, axis=-1)[..., -2]

sample_utils.make_sampler = make_sampler
"""


def test_another_output(
    pytester: pytest.Pytester,
    gate: Gate,
    pair: Path,
    prompts: str,
) -> None:
    """An interpreter that takes the second choice: both paths changed alike, and it says so."""
    folder = pytester.mkdir("other")
    (folder / "sitecustomize.py").write_text(OTHER)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (pytester.path / "gates.yaml").write_text("version: 1\ngates: {parity: {}, against: {}}\n")
    result, report = gate(
        pair, *QUICK, "--spec-prompts", prompts, "--spec-against", f"python={python}"
    )
    found = against(report)
    assert (result.ret, found["status"]) == (1, "failed")
    assert found["figures"]["output"]["status"] == "failed"
    assert found["figures"]["output"]["now"] == "0 of 2 same"
    assert "the model's own output is another one" in found["reason"]
    assert {v["status"] for v in report["verdicts"] if v["gate"] == "parity"} == {"passed"}


WORSE_DRAFT = """
import mlx.core as mx
from mlx_lm import utils

load_model, loaded = utils.load_model, []

class Worse:
    def __init__(self, model):
        self._model = model
    def __getattr__(self, name):
        return getattr(self._model, name)
    def __call__(self, inputs, *args, **kwargs):
        logits = self._model(inputs, *args, **kwargs)
        wrong = (inputs % 8 == 0)[..., None]
        return mx.where(wrong, mx.roll(logits, 1, axis=-1), logits)

def load(*args, **kwargs):
    model, *rest = load_model(*args, **kwargs)
    loaded.append(model)
    return (model if len(loaded) % 2 else Worse(model)), *rest

utils.load_model = load
"""


def test_less_is_accepted_there(
    pytester: pytest.Pytester, gate: Gate, prompts: str, tmp_path: Path
) -> None:
    """A draft that misses after an eighth of the tokens: outputs are equal, the gate fails."""
    build(tmp_path, PairRecipe(agreement=0.9, target_layers=2, draft_layers=1))
    folder = pytester.mkdir("other")
    (folder / "sitecustomize.py").write_text(WORSE_DRAFT)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (pytester.path / "gates.yaml").write_text(
        "version: 1\ngates: {against: {speedup: null, e2e: null, plain_e2e: null, memory: null}}\n"
    )
    result, report = gate(
        *(tmp_path, "--spec-max-tokens", "64", "--spec-rounds", "5:5"),
        *("--spec-prompts", prompts, "--spec-against", f"python={python}"),
    )
    found = against(report)
    dropped = found["figures"]["acceptance other"]
    assert (result.ret, found["status"], dropped["status"]) == (1, "failed", "failed")
    assert found["figures"]["output"]["status"] == "passed"
    assert -0.25 < float(dropped["change"]) < -0.05


def test_an_environment_that_cannot_load_it(gate: Gate, pair: Path, prompts: str) -> None:
    """The gate fails with its words; everything else is judged as ever."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("needs another interpreter, without mlx-lm")
    result, report = gate(
        pair, *QUICK, "--spec-prompts", prompts, "--spec-against", "python=/usr/bin/python3"
    )
    found = against(report)
    assert (result.ret, found["status"]) == (1, "failed")
    assert "the other cannot generate: p0: " in found["reason"]
    assert {v["status"] for v in report["verdicts"] if v["gate"] == "parity"} == {"passed"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("python=/nowhere/python", "no interpreter: /nowhere/python"),
        ("nowhere.txt", "no such file"),
        ("", "must be a requirement"),
        ("../x", "must be a requirement"),
        ("popen//via=other", "not an execnet spec"),
    ],
)
def test_wrong_environments(pytester: pytest.Pytester, value: str, words: str) -> None:
    result = pytester.runpytest("--spec-demo", f"--spec-against={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --spec-against: *{words}*"])

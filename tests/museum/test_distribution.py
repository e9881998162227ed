"""Sampled output: planted faults, each caught in one run, and pairs that draw as they should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding, Inputs
from pytest_specgate.demo.constructed import PairRecipe, build
from pytest_specgate.gates.base import Verdict
from pytest_specgate.gates.distribution import DistributionGate
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent

from .campaigns import inputs_of, prompt_ids
from .cases import SEVEN, Case
from .conftest import Visit
from .engines import engines
from .pairs import pair_folder

GATE = DistributionGate()
FEW = {**GATE.defaults, "seeds": 20, "prompts": 1, "distance": 1.0}
TOKENS = 32
# 0.3: about a nat of entropy on this pair
WARM = Decoding(max_tokens=TOKENS, temperature=0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dense pair in float32."""
    return pair_folder(tmp_path_factory.mktemp("pairs"), "dense")


def asked(folder: Path, decoding: Decoding, engine: str, k: int = 3) -> Inputs:
    """Eight prompts, or more of longer outputs, as the gate wants them measured."""
    prompts = [prompt_ids(i, 5 + i) for i in range(8 if decoding.max_tokens == TOKENS else 16)]
    inputs = inputs_of(folder, prompts, k=(k,), max_tokens=decoding.max_tokens, engine=engine)
    return GATE.asks(FEW, replace(inputs, decoding=decoding))


def judged(folder: Path, decoding: Decoding = WARM, engine: str = "museum", k: int = 3) -> Verdict:
    """The verdict of one run."""
    inputs = asked(folder, decoding, engine, k)
    store = Store(engines(), Silent(), lambda _: None)
    return GATE.judge(store.campaign(inputs).distribution_pass(inputs), FEW, f"k={k}")


@pytest.mark.parametrize(
    ("engine", "kind", "words"),
    [
        ("short-cache", "logprobs-differ", "the speculative path (k = 3) returns other log"),
        ("hot", "sampler-differs", "the speculative path (k = 3) draws at another temperature"),
        ("hot-plain", "sampler-differs", "the plain path draws at another temperature"),
    ],
)
def test_a_planted_fault(folder: Path, engine: str, kind: str, words: str) -> None:
    """Caught by the tokens of one output a prompt."""
    verdict = judged(folder, engine=engine)
    assert (verdict.status, verdict.kind) == ("failed", kind)
    assert words in verdict.reason


@pytest.mark.parametrize(("engine", "status"), [("museum", "passed"), ("unchecked", "failed")])
def test_proposals_accepted_unchecked(tmp_path: Path, engine: str, status: str) -> None:
    """Only proposals that the target would refuse can tell: half of them, of 768 tokens."""
    build(tmp_path, PairRecipe(agreement=0.5, target_layers=2))
    verdict = judged(tmp_path, Decoding(max_tokens=48, temperature=1.5), engine)
    assert verdict.status == status
    if status == "failed":
        assert verdict.kind == "unchecked-drafts"
        assert "on the speculative path (k = 3) proposals are accepted" in verdict.reason


@pytest.mark.parametrize(
    ("filters", "k"),
    [
        ({"top_p": 0.9, "top_k": 12}, 3),
        ({"min_p": 0.05, "min_tokens_to_keep": 2, "logit_bias": ((5, 3.0), (300, -3.0))}, 1),
        ({"xtc_probability": 0.4, "xtc_threshold": 0.1}, 3),
    ],
)
def test_a_sound_pair(folder: Path, filters: dict[str, Any], k: int) -> None:
    """Every option is known to the law: nothing is off, nothing outside."""
    verdict = judged(folder, replace(WARM, **filters), k=k)
    assert (verdict.status, verdict.kind) == ("passed", None), verdict.reason
    for path in ("plain", "speculative"):
        figures = verdict.evidence[path]
        assert (figures["tokens"], figures["logprobs_off"], figures["outside"]) == (256, 0, 0)
        assert figures["chance_at_most"] > 0.01


def test_a_filter_that_does_not_reach_one_path(folder: Path) -> None:
    """Tokens come out that top_k leaves out; the draft has nothing to do with it."""
    verdict = judged(folder, replace(WARM, temperature=1.0, top_k=5), "hot")
    assert (verdict.status, verdict.kind) == ("failed", "sampler-differs")
    assert "draws what the filters leave out" in verdict.reason
    assert verdict.evidence["speculative"]["outside"] > 0
    assert verdict.evidence["plain"]["outside"] == 0


def test_the_draws_alone_see_a_short_cache(folder: Path) -> None:
    """Without the law of the tokens the first ones still differ from the plain path's."""
    options = {**FEW, "seeds": 80}
    inputs = GATE.asks(options, asked(folder, replace(WARM, temperature=0.2), "short-cache"))
    store = Store(engines(), Silent(), lambda _: None)
    evidence = store.campaign(inputs).distribution_pass(inputs)
    evidence = replace(evidence, cases=tuple(replace(c, laws={}) for c in evidence.cases))
    verdict = GATE.judge(evidence, options, "k=3")
    assert (verdict.status, verdict.kind) == ("failed", "draws-differ")
    assert verdict.evidence["control"]["p_value"] > 0.009


SESSION = Case(
    "dense",
    SEVEN,
    gates="preflight: {}, distribution: {seeds: 20, prompts: 1, distance: 1}",
    decoding="temperature: 0.3, top_p: 0.9, xtc_probability: 0.1",
)


def test_a_session(visit: Visit) -> None:
    """An item a number of draft tokens; pre-flight says what the speculative path makes of xtc."""
    seen = visit(SESSION)
    verdict = seen.verdict("distribution")
    assert (seen.exit, verdict["status"]) == (0, "passed")
    assert verdict["evidence"]["draws"]["first"] == verdict["evidence"]["draws"]["second"] == 20
    assert any("one coin is thrown for a whole block" in line for line in seen.preflight)
    assert seen.report["decoding"]["top_p"] == 0.9


def test_the_same_in_a_process_of_its_own(visit: Visit) -> None:
    """The isolated engine tells the law too; its prompts are text."""
    row = replace(SESSION, engine="mlx-lm", prompt="Say it again.")
    here, apart = (visit(replace(row, options=o)) for o in ((), ("--spec-isolate",)))
    assert here.verdict("distribution")["evidence"] == apart.verdict("distribution")["evidence"]
    assert here.verdict("distribution")["evidence"]["plain"]["tokens"] == 24


def test_temperature_0(visit: Visit) -> None:
    """Nothing is drawn: refused before a model is loaded."""
    seen = visit(replace(SESSION, decoding="temperature: 0"))
    assert seen.exit == 4
    assert "distribution: nothing is drawn at temperature 0" in seen.text or not seen.report

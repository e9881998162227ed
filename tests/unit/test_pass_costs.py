"""What single passes cost, of real models; a clock that the models move on makes it exact."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef
from pytest_specgate.demo.constructed import PairRecipe, make_tokenizer, save_model
from pytest_specgate.engines import worker
from pytest_specgate.engines.base import Costs, EngineError, PassCosts
from pytest_specgate.engines.isolated import IsolatedEngine
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from pytest_specgate.measure.blocks import blocks_of
from pytest_specgate.measure.prediction import MOST, Output, costs_at, predict
from tests.conftest import ConstructedPair
from tests.models import (
    dense_config,
    gemma3_config,
    gemma4_config,
    hybrid_config,
    mamba_config,
    random_weights,
    save_pair,
)

QUICK = PairRecipe(agreement=0.8, target_layers=2)
PROMPT = list(range(10, 22))
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 17)
DEPTHS, LENGTHS = (40, 8), (12, 30, 5)
KS = (1, 2, 5, 8, 16)


def inputs_of(folder: Path) -> Inputs:
    """What an engine loads from a folder."""
    return Inputs(ModelRef("target", folder / "target"), ModelRef("draft", folder / "draft"))


def load(folder: Path) -> MlxLmPair:
    """Both models of a folder."""
    return MlxLmEngine().load(inputs_of(folder))


def costs_of(pair: Costs, decoding: Decoding | None = None, **more: Any) -> PassCosts:
    """One round, and the one before it that does not count."""
    options = {"depths": DEPTHS, "prompt_lengths": LENGTHS, "rounds": 1, **more}
    return pair.pass_costs(PROMPT, decoding or Decoding(), **options)


@pytest.fixture(autouse=True)
def _short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_BURST_S", 0.0)


def all_there(costs: PassCosts) -> bool:
    """Every depth, length, width and loop, in rising order, and time was spent on each."""
    seconds = [
        each
        for at in costs.depths
        for each in (
            at.plain_s,
            *at.draft_s,
            *(cost for _, cost in at.target_s),
            *(loop.block_s for loop in at.loops),
        )
    ] + [each for first in costs.first for each in (first.plain_s, first.speculative_s)]
    return (
        all(each > 0 for each in seconds)
        and [at.depth for at in costs.depths] == [8, 40]
        and [first.prompt_tokens for first in costs.first] == [5, 12, 30]
        and all(tuple(width for width, _ in at.target_s) == WIDTHS for at in costs.depths)
        and all([o.num_draft_tokens for o in at.loops] == [1, 4, 8, 16] for at in costs.depths)
        and all(0 <= o.whole <= 1 <= o.emitted for at in costs.depths for o in at.loops)
    )


# -- real models -------------------------------------------------------------------------------


def test_all_costs_of_a_pair_that_is_left_as_it_was(
    constructed: Callable[[PairRecipe], ConstructedPair],
) -> None:
    """Its output afterwards is its output before; its tokenizer still ends texts."""
    pair = load(constructed(QUICK)[0])
    assert isinstance(pair, Costs)

    def outputs() -> list[tuple[int, ...]]:
        return [
            pair.generate(PROMPT, Decoding(), max_tokens=20, num_draft_tokens=k).tokens
            for k in (None, 3)
        ]

    before, ends = outputs(), set(pair.tokenizer.eos_token_ids)
    assert all_there(costs_of(pair))
    assert outputs() == before
    assert set(pair.tokenizer.eos_token_ids) == ends
    assert "make_cache" not in vars(pair.target) | vars(pair.draft)
    assert gc.isenabled()


def test_a_worker_gives_the_same_figures(
    constructed: Callable[[PairRecipe], ConstructedPair],
) -> None:
    """Through JSON and back; only the seconds differ."""
    folder = constructed(QUICK)[0]
    engine = IsolatedEngine("popen")
    try:
        far = engine.load(inputs_of(folder))
        assert isinstance(far, Costs)
        theirs = costs_of(far)
    finally:
        engine.close()
    assert all_there(theirs)
    assert isinstance(theirs.depths[0].target_s[0], tuple)


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(kv_bits=8, kv_group_size=32, quantized_kv_start=0),
        Decoding(max_kv_size=16),
        Decoding(repetition_penalty=1.2, temperature=0.5, prefill_step_size=4),
    ],
    ids=["quantized", "max_kv_size", "penalty"],
)
def test_decoding_options(tmp_path: Path, decoding: Decoding) -> None:
    """Caches that are quantised, a plain cache that is full, processors and a sampler."""
    assert all_there(costs_of(load(save_pair(tmp_path, dense_config())), decoding))


def test_fewer_caches_than_layers(tmp_path: Path) -> None:
    """gemma4_text: its layers share caches, and mlx-lm would split a prompt_cache wrongly."""
    assert all_there(costs_of(load(save_pair(tmp_path, gemma4_config()))))


def test_a_window_that_is_never_full(tmp_path: Path) -> None:
    """A sliding-window target is timed as far as its caches can be rewound."""
    assert all_there(costs_of(load(save_pair(tmp_path, gemma3_config(512)))))


def test_a_window_that_is_full(tmp_path: Path) -> None:
    """Beyond, there is nothing to time: speculative decoding itself is wrong there."""
    pair = load(save_pair(tmp_path, gemma3_config(24)))
    with pytest.raises(EngineError, match=r"passes of the target .* rewound to 40 tokens"):
        costs_of(pair)
    assert "make_cache" not in vars(pair.target)


def test_a_target_that_cannot_be_rewound(tmp_path: Path) -> None:
    """Convolution layers hold a state, no tokens."""
    pair = load(save_pair(tmp_path, hybrid_config()))
    with pytest.raises(EngineError, match="passes of the target cannot be timed: its caches"):
        costs_of(pair)


def test_a_draft_that_cannot_be_rewound(tmp_path: Path) -> None:
    """mlx-lm takes it without a word."""
    save_pair(tmp_path, dense_config())
    weights = random_weights(mamba_config(), 5)
    save_model(tmp_path / "draft", make_tokenizer(), mamba_config(), weights, "float32")
    with pytest.raises(EngineError, match="passes of the draft cannot be timed: its caches"):
        costs_of(load(tmp_path))


# -- a clock that the models move on -----------------------------------------------------------


class Clock:
    """Stands in for ``time.perf_counter``; reading it takes a moment, so that none is twice."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-9
        return self.now


class Timed:
    """A model whose pass over w tokens at offset d takes a + b w + d / 1000 seconds."""

    def __init__(self, model: Any, clock: Clock, a: float, b: float) -> None:
        self._model, self._clock, self._a, self._b = model, clock, a, b

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        depth = (kwargs.get("cache") or args[0])[0].offset
        self._clock.now += self._a + self._b * int(inputs.shape[-1]) + depth / 1000
        return self._model(inputs, *args, **kwargs)


@pytest.fixture
def timed(
    constructed: Callable[[PairRecipe], ConstructedPair], monkeypatch: pytest.MonkeyPatch
) -> MlxLmPair:
    """A pair of which every pass takes a known time, and nothing else takes any."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    pair = load(constructed(QUICK)[0])
    pair.target, pair.draft = Timed(pair.target, clock, 10, 1), Timed(pair.draft, clock, 1, 0.5)
    return pair


def test_each_pass_is_charged_what_it_takes(timed: MlxLmPair) -> None:
    """At either depth, of either model, and in both loops; the loops take nothing besides."""
    costs = costs_of(timed)
    for at in costs.depths:
        deep = at.depth / 1000
        near = 0.03  # tokens that a burst itself adds to the depth
        assert at.plain_s == pytest.approx(11 + deep, abs=near)
        assert at.draft_s == pytest.approx((1.5 + deep, 2 + deep), abs=near)
        for width, seconds in at.target_s:
            assert seconds == pytest.approx(10 + width + deep, abs=1e-6)
        for loop in at.loops:
            k = loop.num_draft_tokens
            block = k * (1.5 + deep) + loop.whole * 0.5 + 11 + k + deep
            assert loop.block_s == pytest.approx(block, abs=0.04 * k + 0.05)
    (first, *_) = costs.first
    # prefill of 4 tokens, a step, and the next one, which is under way by then
    assert first.plain_s == pytest.approx(14 + 11 + 11, abs=near)
    assert first.speculative_s == pytest.approx(14 + 3 + 1.5 + 12, abs=near)


def test_the_rest_of_a_block_is_nothing_there(timed: MlxLmPair) -> None:
    """What the loop takes beyond its passes, and how passes of other widths and depths follow."""
    at = costs_at(costs_of(timed), 24.0)
    assert at.target == pytest.approx([10 + width + 0.024 for width in range(1, MOST + 2)])
    assert at.rest == pytest.approx([0.0] * (MOST + 1), abs=0.3)
    assert at.block(5, after_whole=1.0) == pytest.approx(5 * 1.5 + 0.5 + 16, rel=0.02)


def test_predicted_equals_measured(timed: MlxLmPair) -> None:
    """Where time is made of passes alone, every k is predicted; no noise hides a wrong term."""
    prompts = {"short": PROMPT, "long": PROMPT * 3}
    outputs = []
    for name, prompt in prompts.items():

        def run(k: int | None, prompt: list[int] = prompt) -> Any:
            return timed.generate(prompt, Decoding(), max_tokens=45, num_draft_tokens=k)

        plain, runs = run(None), {k: run(k) for k in KS}
        outputs.append(
            Output(
                prompt=name,
                kind=name,
                prompt_tokens=len(prompt),
                emitted=45,
                blocks={k: found for k, ours in runs.items() if (found := blocks_of(ours, k, 45))},
                measured={k: plain.e2e_s / ours.e2e_s for k, ours in runs.items()},
            )
        )
    costs = costs_of(timed, depths=(12, 80), prompt_lengths=(12, 36))
    predicted = predict(costs, outputs, least=1.15)
    assert max(map(abs, predicted.errors.values())) < 0.01
    assert [row.num_draft_tokens for row in predicted.rows] == list(range(1, MOST + 1))
    for row in predicted.rows:
        if row.num_draft_tokens not in KS:
            assert (row.origin, row.measured, row.error) == ("positions", None, None)
            continue
        assert row.origin == "blocks"
        assert row.error == pytest.approx(0, abs=0.01)
        assert sum(row.shares) == pytest.approx(1)
        assert row.shares[2] == pytest.approx(0, abs=0.02)
    by_positions = predict(
        costs, [replace(each, blocks={8: each.blocks[8]}) for each in outputs], least=1.15
    )
    assert {row.origin for row in by_positions.rows} == {"blocks", "positions"}
    assert by_positions.error == pytest.approx(0, abs=0.1)

"""Sound pairs: not one false alarm, in any dtype, for any k."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_specgate.demo.constructed import make_tokenizer, save_model
from tests.models import dense_config, noisy, random_weights

from .campaigns import inputs_of, judged, measured, prompt_ids

# benchmarks/museum.py asks for 500
RUNS = int(os.environ.get("SPECGATE_CLEAN_RUNS", "60"))
TOKENS = 24
DTYPES = ("float32", "float16", "bfloat16")
PAIRS = [(kind, dtype) for kind in ("llama", "qwen2") for dtype in DTYPES]
KS = (1, 3, 5, 8, 2, 4, 6, 7)


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=["-".join(pair) for pair in PAIRS])
def test_no_false_alarm(number: int, tmp_path: Path) -> None:
    """Prompts of 1 to 40 tokens, each with two k; as many seeds as the runs need."""
    kind, dtype = PAIRS[number]
    config, tokenizer = dense_config(kind, dtype=dtype), make_tokenizer()
    left = -(-RUNS // len(PAIRS))
    for seed in range(number, 1000, len(PAIRS)):
        folder = tmp_path / str(seed)
        weights = random_weights(config, seed)
        save_model(folder / "target", tokenizer, config, weights, dtype)
        save_model(folder / "draft", tokenizer, config, noisy(weights, 0.05, seed), dtype)
        prompts = [prompt_ids(100 * seed + i, 1 + 13 * i % 40) for i in range(3)]
        two = (KS[seed % 4], KS[4 + seed % 4])
        evidence = measured(inputs_of(folder, prompts, k=two, max_tokens=TOKENS))
        alarms = [v for v in judged(evidence).values() if v.status != "passed"]
        assert [v.reason for v in alarms] == []
        assert all(evidence.for_arm(k).blocks.proposed for k in two)
        assert any(evidence.for_arm(k).blocks.accepted for k in two)
        left -= len(prompts) * len(two)
        if left <= 0:
            return

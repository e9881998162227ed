"""preflight/sampling.py: filters that act on one path otherwise than on the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import sample_utils

from pytest_specgate.config.plan import Decoding
from pytest_specgate.engines import worker
from pytest_specgate.engines.mlx_lm import options
from pytest_specgate.preflight import sampling
from pytest_specgate.preflight.finding import Finding, Subject
from tests.fakes import FakePair, make_inputs, make_prompts
from tests.unit.test_resources import PaperPair, of_rows


def findings(pair: Any = None, **decoding: Any) -> list[Finding]:
    """Of these options."""
    inputs = make_inputs(make_prompts("a"), 3, **decoding)
    subject = Subject(pair or FakePair(), inputs, {"a": (1, 2)}, None)
    return list(sampling.sampling_options(subject))


def mixing(logits: Any, probability: float, threshold: float, _: list[int]) -> Any:
    """xtc as it was up to mlx-lm 0.31.3: the least likely token above the threshold of all rows."""
    probs = mx.softmax(logits, -1)
    mask = probs > mx.where(probs > threshold, probs, mx.inf).min()
    coin = mx.random.uniform(0, 1) > probability
    return mx.where(coin, logits, mx.where(mask, -mx.inf, logits))


def coin_a_row(logits: Any, probability: float, threshold: float, _: list[int]) -> Any:
    """xtc as the plain path has it, for several rows."""
    probs = mx.softmax(logits, -1)
    least = mx.where(probs > threshold, probs, mx.inf).min(axis=-1, keepdims=True)
    coin = mx.random.uniform(0, 1, shape=(len(logits), 1)) > probability
    return mx.where(coin, logits, mx.where(probs > least, -mx.inf, logits))


@pytest.mark.parametrize(
    "decoding",
    [
        {"temperature": 0.7},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "min_tokens_to_keep": 2},
        {"temperature": 0.7, "xtc_threshold": 0.3},
        {},
    ],
)
def test_nothing_to_say(decoding: dict[str, Any]) -> None:
    """Filters that treat each row for itself, and none at all."""
    assert findings(**decoding) == []


def test_filters_at_temperature_0() -> None:
    """They do nothing there: named, and nothing else is said."""
    (finding,) = findings(top_p=0.9, xtc_probability=0.5)
    assert finding.severity == "warning"
    assert finding.message.startswith("top_p, xtc_probability: without effect at temperature 0")


def test_one_coin_for_a_block() -> None:
    """As mlx-lm 0.32.2 has it."""
    (finding,) = findings(temperature=0.7, xtc_probability=0.5)
    assert finding.severity == "warning"
    assert "one coin is thrown for a whole block" in finding.message
    assert sampling.one_coin_for_all_rows(sample_utils.apply_xtc)
    assert not sampling.one_coin_for_all_rows(coin_a_row)


def test_rows_that_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mlx-lm 0.31.3 has it; a release that mends both is silent."""
    monkeypatch.setattr(sample_utils, "apply_xtc", mixing)
    found = findings(temperature=0.7, xtc_probability=0.5)
    assert [f.severity for f in found] == ["warning", "warning"]
    assert "depends on the other rows of its block" in found[0].message
    monkeypatch.setattr(sample_utils, "apply_xtc", coin_a_row)
    assert findings(temperature=0.7, xtc_probability=0.5) == []


@pytest.mark.parametrize(("top_k", "errors"), [(1023, 0), (1024, 1), (5000, 1)])
def test_top_k_beyond_the_vocabulary(top_k: int, errors: int) -> None:
    """mlx-lm refuses it in the middle of a generation."""
    found = findings(PaperPair(models=of_rows(1024, 1024)), temperature=0.7, top_k=top_k)
    assert [f.severity for f in found] == ["error"] * errors


def only_top_p(temp: float = 0.0, top_p: float = 0.0) -> Any:
    """A release whose sampler knows one filter."""
    return SimpleNamespace(temp=temp, top_p=top_p)


def test_an_option_that_a_release_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pre-flight says so, and the worker refuses it; what changes nothing is left out."""
    monkeypatch.setattr(sample_utils, "make_sampler", only_top_p)
    (finding,) = findings(temperature=0.7, top_p=0.9, min_p=0.1)
    assert (finding.severity, finding.message) == ("error", "mlx-lm has no min_p")
    made = worker._sampler(options(Decoding(temperature=0.7, top_p=0.9), 8))
    assert (made.temp, made.top_p) == (0.7, 0.9)
    with pytest.raises(worker.Unsupported, match=r"^mlx-lm \S+ has no min_p$"):
        worker._sampler(options(Decoding(temperature=0.7, min_p=0.1), 8))

"""preflight/resources.py on pairs of paper: vocabulary, size, memory, options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_specgate import preflight
from pytest_specgate.config.plan import ModelRef
from pytest_specgate.engines.base import PairInfo
from pytest_specgate.preflight import resources
from pytest_specgate.preflight.finding import Finding, Preflight, Subject
from tests.fakes import GB, FakePair, engine_info, make_inputs, make_prompts, pair_info


@dataclass
class PaperPair(FakePair):
    """A pair of these two models."""

    models: PairInfo = field(default_factory=pair_info)

    @property
    def info(self) -> PairInfo:
        """As given."""
        return self.models


def of_rows(target: int | None, draft: int | None, *, same: bool = False) -> PairInfo:
    """Two models with so many embedding rows; ``same`` for one digest."""
    info = pair_info()
    digest = info.target.digest if same else info.draft.digest
    return PairInfo(
        replace(info.target, embedding_rows=target),
        replace(info.draft, embedding_rows=draft, digest=digest),
    )


def subject(
    models: PairInfo | None = None,
    *,
    limit: int | None = 20 * GB,
    target: Any = None,
    draft: Any = None,
    prompt_tokens: int = 100,
    **decoding: Any,
) -> Subject:
    """What the checks look at: one prompt with a budget of 8 tokens."""
    return Subject(
        pair=PaperPair(models=models or pair_info(), target=target, draft=draft),
        inputs=make_inputs(make_prompts("a"), 3, **decoding),
        tokens={"a": range(prompt_tokens)},
        engine=engine_info(limit) if limit is not None else None,
    )


def told(findings: Iterator[Finding]) -> list[tuple[str, str, str]]:
    """Severity, subject and message of each."""
    return [(finding.severity, finding.subject, finding.message) for finding in findings]


# -- vocabulary ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "draft", "severity", "words"),
    [
        (1000, 1000, None, ""),
        (None, 1000, None, ""),
        (1000, None, None, ""),
        (
            1000,
            2025,
            "error",
            "2025 embedding rows, the target has 1000: it can propose ids that the target does "
            "not have",
        ),
        (
            1000,
            2024,
            "warning",
            "2024 embedding rows, the target has 1000: ids in between would read past the "
            "target's embedding",
        ),
        (
            1000,
            1001,
            "warning",
            "1001 embedding rows, the target has 1000: ids in between would read past the "
            "target's embedding",
        ),
        (
            1000,
            999,
            "warning",
            "999 embedding rows, the target has 1000: it cannot propose the rest",
        ),
        (
            3000,
            1000,
            "warning",
            "1000 embedding rows, the target has 3000: it cannot propose the rest",
        ),
    ],
)
def test_rows_of_the_embedding(
    target: int | None, draft: int | None, severity: str | None, words: str
) -> None:
    """Up to 1,024 more may be padding; beyond that the draft has words of its own."""
    found = told(resources.vocabulary(subject(of_rows(target, draft))))
    assert found == ([(severity, "draft vocabulary", words)] if severity else [])


@pytest.mark.parametrize(("draft", "findings"), [(999, 0), (1000 - 1024, 0), (1000 - 1025, 1)])
def test_fewer_rows_of_one_model(draft: int, findings: int) -> None:
    """A copy of the target that was cut by its padding."""
    assert len(told(resources.vocabulary(subject(of_rows(1000, draft, same=True))))) == findings


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft_bytes", "words"),
    [
        (4 * GB, None),
        (4 * GB + 10**7, "4.01 GB against 8.00 GB of the target"),
        (9 * GB, "9.00 GB against 8.00 GB of the target"),
    ],
)
def test_a_draft_of_over_half_the_target(draft_bytes: int, words: str | None) -> None:
    """It can hardly pay."""
    found = told(resources.draft_is_smaller(subject(pair_info(8 * GB, draft_bytes))))
    assert found == ([("warning", "draft size", words)] if words else [])


def test_a_draft_that_is_the_target() -> None:
    """Told by what the user named, whatever its size."""
    own = subject(pair_info(8 * GB, 1 * GB))
    own = replace(own, inputs=replace(own.inputs, draft=ModelRef("org/target")))
    assert told(resources.draft_is_smaller(own)) == [
        (
            "warning",
            "draft size",
            "it is the target itself: nothing is rejected, so no cache is ever rewound",
        )
    ]


# -- memory ----------------------------------------------------------------------------------------


def model(layers: int, **args: Any) -> Any:
    """An mlx-lm model's outside."""
    return SimpleNamespace(args=SimpleNamespace(**args), layers=[None] * layers)


@pytest.mark.parametrize(
    ("limit", "severity"), [(10 * GB, None), (9_999_999_999, "warning"), (8_999_999_999, "error")]
)
def test_weights_alone(limit: int, severity: str | None) -> None:
    """8 GB and 1 GB: more than nine tenths of the limit is a warning, more than all an error."""
    found = told(resources.memory(subject(limit=limit)))
    assert [severity for severity, _, _ in found] == ([severity] if severity else [])


def test_what_the_memory_is_needed_for() -> None:
    """Grouped heads: 2 x 2 bytes x 2 heads x 64 x 10 layers x 1,000,008 tokens; prefill of one
    chunk of 2,048 rows of 100,000 float32 logits."""
    pair = subject(
        of_rows(100_000, 100_000),
        limit=5 * GB,
        target=model(10, num_attention_heads=8, num_key_value_heads=2, head_dim=64),
        prompt_tokens=1_000_000,
    )
    (finding,) = resources.memory(pair)
    assert finding.severity == "error"
    assert finding.message == (
        "about 14.94 GB are needed (weights 9.00 GB, caches at 1000008 tokens 5.12 GB, prefill "
        "0.82 GB), as the test says is 5.00 GB"
    )


@pytest.mark.parametrize(
    ("args", "bytes_a_token"),
    [
        ({"num_attention_heads": 8, "head_dim": 64}, 4 * 8 * 64 * 3),
        ({"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}, 4 * 2 * 64 * 3),
        ({"num_attention_heads": 8, "hidden_size": 256}, 4 * 8 * 32 * 3),
        ({"num_attention_heads": 8, "hidden_size": 256, "head_dim": None}, 4 * 8 * 32 * 3),
        ({"num_attention_heads": 8}, 0),
        ({"head_dim": 64}, 0),
        ({"num_attention_heads": [8, 4], "head_dim": 64}, 0),
        ({}, 0),
    ],
)
def test_bytes_of_a_token(args: dict[str, Any], bytes_a_token: int) -> None:
    """Keys and values of three layers, two bytes a number; 0 where it cannot be told."""
    limit = 9 * GB + 1000 * bytes_a_token - 1
    pair = subject(limit=limit, target=model(3, **args), prompt_tokens=992)
    (finding,) = resources.memory(pair)
    assert finding.severity == "error"
    pair = replace(pair, engine=engine_info(limit + 1))
    (finding,) = resources.memory(pair)
    assert finding.severity == "warning"


def test_memory_of_an_engine_that_tells_no_limit() -> None:
    """Nothing to compare with."""
    assert told(resources.memory(subject(limit=None))) == []


# -- options ---------------------------------------------------------------------------------------


def generators(plain: str, speculative: str) -> ModuleType:
    """A module as mlx_lm.generate, whose two paths take these options."""
    module = ModuleType("paper")
    for name, options in (("generate_step", plain), ("speculative_generate_step", speculative)):
        exec(f"def {name}(prompt, model, *, {options}): pass", module.__dict__)
    return module


ALL = "max_tokens, sampler, prefill_step_size"
CACHE = "kv_bits, kv_group_size, quantized_kv_start"


@pytest.mark.parametrize(
    ("plain", "speculative", "decoding", "missing"),
    [
        (ALL, ALL, {}, []),
        (ALL, ALL, {"kv_group_size": 32}, []),  # of no use without kv_bits
        (f"{ALL}, {CACHE}", f"{ALL}, {CACHE}", {"kv_bits": 4}, []),
        (ALL, "max_tokens, sampler", {}, [("speculative", "prefill_step_size")]),
        ("max_tokens, prefill_step_size", ALL, {}, [("plain", "sampler")]),
        (
            f"{ALL}, {CACHE}",
            f"{ALL}, kv_bits",
            {"kv_bits": 4},
            [("speculative", "kv_group_size"), ("speculative", "quantized_kv_start")],
        ),
    ],
)
def test_options_that_one_path_does_not_take(
    monkeypatch: pytest.MonkeyPatch,
    plain: str,
    speculative: str,
    decoding: dict[str, Any],
    missing: list[tuple[str, str]],
) -> None:
    """An error each, named by path and option."""
    module = generators(plain, speculative)
    monkeypatch.setattr(resources, "importlib", SimpleNamespace(import_module=lambda _: module))
    assert told(resources.options_reach_both_paths(subject(**decoding))) == [
        ("error", f"{path} options", f"mlx-lm's {path} path does not take {option}")
        for path, option in missing
    ]


def test_a_sampled_pair_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs differ by design."""
    module = generators(ALL, ALL)
    monkeypatch.setattr(resources, "importlib", SimpleNamespace(import_module=lambda _: module))
    assert told(resources.options_reach_both_paths(subject(temperature=0.7))) == [
        ("note", "sampling", "the two paths draw differently from the same seed")
    ]


# -- findings --------------------------------------------------------------------------------------


def test_an_error_of_the_pair_or_of_one_prompt() -> None:
    """The first error that is about it; warnings stop nothing."""
    warning = Finding("warning", "w", "no matter", "Go on.")
    of_a = Finding("error", "context", "too long", "Cut it.", "a")
    of_all = Finding("error", "pair memory", "too large", "Use less.")
    assert Preflight((warning,), 1, 0.0).error("a") is None
    found = Preflight((warning, of_a), 2, 0.0)
    assert found.error("a") == "pre-flight: context: too long. Cut it."
    assert found.error("b") is None
    assert Preflight((of_a, of_all), 2, 0.0).error("b") == (
        "pre-flight: pair memory: too large. Use less."
    )


def test_lengths_of_the_prompts() -> None:
    """Tokens and budget together; a prompt that could not be encoded has none."""
    both = subject(prompt_tokens=5)
    prompts = make_prompts("a", "b")
    both = replace(both, inputs=replace(both.inputs, prompts=prompts))
    assert both.lengths() == [(prompts[0], 5 + 8)]


def test_a_check_that_breaks_is_a_warning() -> None:
    """On one line, whatever the model's own code says."""

    class Odd(FakePair):
        isolated = True

        @property
        def info(self) -> PairInfo:
            raise ValueError("no\n  such field")

    found = preflight.run(Odd(), make_inputs(make_prompts("p")), {"p": [1]}, None)
    words = {finding.message for finding in found.findings if finding.severity == "warning"}
    assert words == {"could not be checked: ValueError: no such field"}

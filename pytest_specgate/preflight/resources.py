"""Vocabulary, size, memory and options of the pair."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..text import gigabytes
from .finding import Finding, Subject

_PADDING = 1024  # rows that a trained model may have beyond its vocabulary, never proposed
CLEARLY_SMALLER = 0.5  # share of the target's bytes
_NEAR_LIMIT = 0.9


def vocabulary(subject: Subject) -> Iterator[Finding]:
    """An id beyond the target's embedding reads outside it: wrong text, or a crash."""
    target, draft = subject.pair.info.target, subject.pair.info.draft
    if target.embedding_rows is None or draft.embedding_rows is None:
        return
    more = draft.embedding_rows - target.embedding_rows
    rows = f"{draft.embedding_rows} embedding rows, the target has {target.embedding_rows}"
    if more > _PADDING:
        yield Finding(
            "error",
            "draft vocabulary",
            f"{rows}: it can propose ids that the target does not have",
            "Use a draft of the target's own family.",
        )
    elif more > 0:
        yield Finding(
            "warning",
            "draft vocabulary",
            f"{rows}: ids in between would read past the target's embedding",
            "Harmless while they are padding that the draft never proposes.",
        )
    elif more < -_PADDING or (more < 0 and draft.digest != target.digest):
        yield Finding(
            "warning" if more < 0 else "note",
            "draft vocabulary",
            f"{rows}: it cannot propose the rest",
            "Output stays right; tokens in between are never drafted.",
        )


def draft_is_smaller(subject: Subject) -> Iterator[Finding]:
    """A draft as large as its target cannot pay, and one that is the target hides cache faults."""
    target, draft = subject.pair.info.target, subject.pair.info.draft
    if subject.inputs.target == subject.inputs.draft:
        yield Finding(
            "warning",
            "draft size",
            "it is the target itself: nothing is rejected, so no cache is ever rewound",
            "Use it to try the plugin, not to gate a pair.",
        )
    elif draft.bytes > CLEARLY_SMALLER * target.bytes:
        yield Finding(
            "warning",
            "draft size",
            f"{gigabytes(draft.bytes)} against {gigabytes(target.bytes)} of the target",
            "Use a clearly smaller draft: each proposal costs a pass of it.",
        )


def memory(subject: Subject) -> Iterator[Finding]:
    """Weights, both caches at full length and the prefill against the device's limit."""
    if subject.engine is None:
        return
    longest = max((length for _, length in subject.lengths()), default=0)
    info, limit = subject.pair.info, subject.engine.memory_limit_bytes
    weights = info.target.bytes + info.draft.bytes
    caches = longest * sum(
        _bytes_a_token(model) for model in (subject.pair.target, subject.pair.draft)
    )
    rows = min(longest, subject.inputs.decoding.prefill_step_size)
    prefill = 4 * rows * (info.target.embedding_rows or 0)  # float32 logits of one chunk
    need = weights + caches + prefill
    if need > _NEAR_LIMIT * limit:
        yield Finding(
            "error" if need > limit else "warning",
            "pair memory",
            f"about {gigabytes(need)} are needed (weights {gigabytes(weights)}, caches at "
            f"{longest} tokens {gigabytes(caches)}, prefill {gigabytes(prefill)}), "
            f"{subject.engine.memory_limit_origin} is {gigabytes(limit)}",
            "Use smaller or more strongly quantised models, shorter prompts, or kv_bits.",
        )


def _bytes_a_token(model: Any) -> int:
    """Keys and values of one token in all layers, two bytes a number; 0 where it cannot be told."""
    args: Any = getattr(model, "args", None)
    queries = getattr(args, "num_attention_heads", None)
    heads = getattr(args, "num_key_value_heads", None) or queries
    size = getattr(args, "head_dim", None)
    if not size and queries and hasattr(args, "hidden_size"):
        size = args.hidden_size // queries
    if not isinstance(heads, int) or not isinstance(size, int):
        return 0
    return 2 * 2 * heads * size * len(model.layers)


class _Mute:
    """A model without layers, for probing what surrounds it."""

    layers: tuple[Any, ...] = ()

    def make_cache(self) -> list[Any]:
        return []

    def __call__(self, inputs: Any, **_: Any) -> Any:
        import mlx.core as mx

        return mx.zeros((*inputs.shape, 4))


def tokens_seen(generate_step: Callable[..., Any], length: int) -> int:
    """How many of a prompt's tokens reach the logits processors of mlx-lm's speculative path."""
    import mlx.core as mx

    seen: list[int] = []

    def note(tokens: Any, logits: Any) -> Any:
        seen.append(int(tokens.size))
        return logits

    model = _Mute()
    steps = generate_step(
        mx.arange(length), model, model, num_draft_tokens=1, max_tokens=2, logits_processors=[note]
    )
    next(steps)
    steps.close()
    return seen[0]


def options_reach_both_paths(subject: Subject) -> Iterator[Finding]:
    """Every decoding option is a parameter of both of mlx-lm's generators."""
    module = importlib.import_module("mlx_lm.generate")
    decoding = subject.inputs.decoding
    wanted = ["max_tokens", "sampler", "prefill_step_size"]
    if decoding.kv_bits is not None:
        wanted += ["kv_bits", "kv_group_size", "quantized_kv_start"]
    if decoding.max_kv_size is not None:
        wanted.append("max_kv_size")
    for path, name in (("plain", "generate_step"), ("speculative", "speculative_generate_step")):
        takes = inspect.signature(getattr(module, name)).parameters
        for option in wanted:
            if option not in takes:
                yield Finding(
                    "error",
                    f"{path} options",
                    f"mlx-lm's {path} path does not take {option}",
                    "Leave the option out, or use a release whose paths both take it.",
                )
    penalties = (
        decoding.repetition_penalty,
        decoding.presence_penalty,
        decoding.frequency_penalty,
    )
    longest = max(map(len, subject.tokens.values()), default=0)
    if any(penalties) and longest:
        step = partial(
            module.speculative_generate_step, prefill_step_size=decoding.prefill_step_size
        )
        if (seen := tokens_seen(step, longest)) < longest:
            yield Finding(
                "warning",
                "penalties",
                f"on the speculative path they see {seen} of {longest} prompt tokens",
                "Expect other text than on the plain path: leave them out while a draft is in use.",
            )
    if decoding.temperature > 0:
        yield Finding(
            "note",
            "sampling",
            "the two paths draw differently from the same seed",
            "Compare by parity: {mode: scored} and the gate distribution, not by text.",
        )

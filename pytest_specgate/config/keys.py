"""Every key a user may set, in one table: options, ini keys, gates file and markers share it."""

from __future__ import annotations

from collections.abc import Mapping

from .plan import MAX_DRAFT_TOKENS, MOST_ROUNDS
from .spec import (
    Spec,
    biases,
    boolean,
    integer,
    integers,
    mapping,
    models,
    number,
    one_of,
    one_of_numbers,
    optional,
    text,
    texts,
)

VERSION = 1

ONE_DRAFT_TOKENS = integer(1, MAX_DRAFT_TOKENS, why_least="0 drafts nothing")
DRAFT_TOKENS = integers(ONE_DRAFT_TOKENS)
CALL_ROUNDS = integer(0, MOST_ROUNDS)  # of spec_compare, where 0 compares without times

MAX_TOKENS = integer(
    1, why_least="mlx-lm's speculative path needs a limit; -1 works on the plain path alone"
)


SECTIONS: Mapping[str, Mapping[str, Spec]] = {
    "pair": {"target": optional(text()), "draft": optional(models())},
    "decoding": {
        "num_draft_tokens": DRAFT_TOKENS,
        "max_tokens": MAX_TOKENS,
        "temperature": number(least=0),
        "top_p": number(above=0, most=1),
        "top_k": integer(0),
        "min_p": number(least=0, most=1),
        "min_tokens_to_keep": integer(1),
        "xtc_probability": number(least=0, most=1),
        "xtc_threshold": number(least=0, most=0.5),
        "seed": integer(0, 2**63 - 1),
        "prefill_step_size": integer(1),
        "kv_bits": optional(one_of_numbers(2, 3, 4, 5, 6, 8)),
        "kv_group_size": one_of_numbers(32, 64, 128),
        "quantized_kv_start": integer(0),
        "max_kv_size": optional(integer(8)),
        "repetition_penalty": optional(number(above=0)),
        "presence_penalty": optional(number()),
        "frequency_penalty": optional(number()),
        "logit_bias": biases(),
        "ignore_eos": boolean(),
        "chat_template_args": mapping(),
    },
    "sweep": {
        "num_draft_tokens": DRAFT_TOKENS,
        "objective": one_of("median_speedup", "worst_kind"),
        "per_kind": boolean(),
    },
    "prompts": {"builtin": text(), "file": text(), "kinds": texts()},
    "measure": {
        "warmup": integer(1, 10, why_least="the warm-up pass is the parity pass"),
        "min_rounds": integer(1, MOST_ROUNDS),
        "max_rounds": integer(1, MOST_ROUNDS),
    },
}

# What the marker spec_inputs takes; each name stands for one key of a section.
MARKER_INPUTS: Mapping[str, tuple[str, str]] = {
    "target": ("pair", "target"),
    "draft": ("pair", "draft"),
    "num_draft_tokens": ("decoding", "num_draft_tokens"),
    "max_tokens": ("decoding", "max_tokens"),
    "temperature": ("decoding", "temperature"),
    "top_p": ("decoding", "top_p"),
    "top_k": ("decoding", "top_k"),
    "min_p": ("decoding", "min_p"),
    "min_tokens_to_keep": ("decoding", "min_tokens_to_keep"),
    "xtc_probability": ("decoding", "xtc_probability"),
    "xtc_threshold": ("decoding", "xtc_threshold"),
    "seed": ("decoding", "seed"),
    "prefill_step_size": ("decoding", "prefill_step_size"),
    "kv_bits": ("decoding", "kv_bits"),
    "kv_group_size": ("decoding", "kv_group_size"),
    "quantized_kv_start": ("decoding", "quantized_kv_start"),
    "max_kv_size": ("decoding", "max_kv_size"),
    "repetition_penalty": ("decoding", "repetition_penalty"),
    "presence_penalty": ("decoding", "presence_penalty"),
    "frequency_penalty": ("decoding", "frequency_penalty"),
    "logit_bias": ("decoding", "logit_bias"),
    "ignore_eos": ("decoding", "ignore_eos"),
    "chat_template_args": ("decoding", "chat_template_args"),
    "kinds": ("prompts", "kinds"),
    "min_rounds": ("measure", "min_rounds"),
    "max_rounds": ("measure", "max_rounds"),
}

"""Tiny random models that mlx-lm loads, for faults which constructed pairs cannot show."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_specgate.demo.constructed import make_tokenizer, save_model, table_weights

_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 0,
}


def random_weights(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Weights of a model of mlx-lm, from a seed, scaled by 2 so that its text wanders."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(config))
    return {name: array * 2 for name, array in tree_flatten(model.parameters())}


def noisy(weights: dict[str, Any], share: float, seed: int) -> dict[str, Any]:
    """The same weights with normal noise of a share of each array's own spread."""
    import mlx.core as mx

    mx.random.seed(seed)
    return {
        name: array + share * array.std() * mx.random.normal(array.shape)
        for name, array in weights.items()
    }


def gemma3_config(window: int, layers: int = 6) -> dict[str, Any]:
    """Sliding-window layers but for every sixth, as ``gemma3_text`` has them."""
    return {
        **_SIZES,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": layers,
        "sliding_window": window,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 32,
        "rope_theta": 10000.0,
        "vocab_size": make_tokenizer().get_vocab_size(),
        "torch_dtype": "float32",
    }


def save_pair(folder: Path, config: dict[str, Any], *, noise: float = 0.1, seed: int = 3) -> Path:
    """``target`` with random weights and ``draft`` with the same plus noise, in folder."""
    tokenizer, weights = make_tokenizer(), random_weights(config, seed)
    save_model(folder / "target", tokenizer, config, weights, "float32")
    save_model(folder / "draft", tokenizer, config, noisy(weights, noise, seed + 1), "float32")
    return folder


def dense_config(
    kind: str = "llama", *, rows: int = 1024, dtype: str = "float32"
) -> dict[str, Any]:
    """A small ``llama`` or ``qwen2``: full attention, caches that rewind."""
    return {
        **_SIZES,
        "model_type": kind,
        "num_hidden_layers": 2,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "vocab_size": rows,
        "torch_dtype": dtype,
    }


def gemma4_config() -> dict[str, Any]:
    """``gemma4_text``: the last two of four layers share the caches of the first two."""
    return {
        **_SIZES,
        "model_type": "gemma4_text",
        "global_head_dim": 32,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "vocab_size": 1024,
        "vocab_size_per_layer_input": 1024,
        "hidden_size_per_layer_input": 32,
        "sliding_window": 512,
        "sliding_window_pattern": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,  # tied, it says one token for ever
        "torch_dtype": "float32",
    }


def hybrid_config() -> dict[str, Any]:
    """``lfm2``: convolution layers, whose state cannot be rewound, around one of attention."""
    return {
        "model_type": "lfm2",
        "vocab_size": 1024,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 128,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "rope_theta": 10000.0,
        "full_attn_idxs": [2],
        "eos_token_id": 0,
    }


def mamba_config() -> dict[str, Any]:
    """``mamba``: a state alone, nothing to rewind."""
    return {
        "model_type": "mamba",
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 2,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
        "eos_token_id": 0,
    }


def saying(folder: Path, *pieces: str, draft: Sequence[str] = ()) -> Path:
    """A pair in folder that answers any prompt with these pieces and then ends.

    Args:
        folder: of ``target`` and ``draft``.
        pieces: of the text, different from each other and without spaces; each becomes a token.
        draft: what the draft proposes: the same pieces in another order, say; the target's by
            default.
    """
    from tokenizers import AddedToken

    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in pieces])
    size, end = tokenizer.get_vocab_size(), 0
    ids: Callable[[str], Any] = tokenizer.token_to_id
    start: int = ids("a")
    for role, said in (("target", pieces), ("draft", draft or pieces)):
        chain: list[int] = [start, *map(ids, said), end]
        home: list[int] = [token if token in chain else start for token in range(size)]
        following = dict(zip(chain, [*chain[1:], start], strict=True))
        table: list[int] = [following[token] for token in home]
        config = dense_config(rows=size) | {"num_attention_heads": 1, "head_dim": 64}
        weights = table_weights(home, table, config, seed=5)
        save_model(folder / role, tokenizer, config, weights, "float32")
    return folder

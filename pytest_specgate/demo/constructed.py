"""Builds a target and a draft whose greedy output, acceptance and cost are known.

Both are plain mlx-lm ``llama`` models with one small byte-level BPE tokenizer:

* The next token depends on the last token alone. Embeddings are random unit vectors; row
  ``next[t]`` of the output head points along the embedding of ``t``. The decoder layers add exactly
  zero to the residual stream (``o_proj`` and ``down_proj`` are zero): they cost real time and
  change nothing, in any dtype.
* ``next`` runs through the text tokens in one seeded cycle. A token outside the cycle borrows the
  embedding of one inside, so that every prompt leads into it.
* The draft's table agrees for a set share of the cycle, spread evenly; elsewhere its successors
  are exchanged among themselves.

Since only the last token counts, such a pair cannot show a fault of a cache.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
_VOCABULARY = 1024
# The template ends with the message's middle character, which picks the place in the cycle.
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% set text = messages[-1]['content'] %}{{ text[text | length // 2] }}{% endif %}"
)
_SHARPNESS = 20.0  # the right token's logit; every other stays well below it
_CYCLE = 400
_RUN = 20  # transitions in which the share of disagreement is exact
_END = 0


@dataclass(frozen=True, slots=True)
class PairRecipe:
    """How a pair is made.

    Attributes:
        agreement: share of transitions on which draft and target agree.
        target_layers, draft_layers: decoder layers.
        target_hidden, draft_hidden: hidden sizes, multiples of 64.
        dtype: of all weights.
        seed: of everything random.
        ends: put the end-of-text token into the cycle.
    """

    agreement: float = 0.8
    target_layers: int = 8
    draft_layers: int = 1
    target_hidden: int = 64
    draft_hidden: int = 64
    dtype: str = "float32"
    seed: int = 0
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Oracle:
    """What a pair does, token by token: token id -> the next one, for either model."""

    target_next: list[int]
    draft_next: list[int]

    def greedy(self, last_token: int, count: int) -> list[int]:
        """The tokens that follow a prompt ending in last_token: at most count, up to the end."""
        out: list[int] = []
        while len(out) < count and (not out or out[-1] != _END):
            out.append(last_token := self.target_next[last_token])
        return out


def make_tokenizer() -> Tokenizer:
    """Byte-level BPE of 1,024 tokens, learnt from the built-in prompts, so that those are short."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    from ..prompts import builtin

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        show_progress=False,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in _SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator((prompt.text for prompt in builtin("smoke") or ()), trainer)
    return tokenizer


def _is_text(token: str) -> bool:
    """Printable characters, whole in UTF-8, so that every output of the cycle reads as text."""
    return token.isprintable() and "\ufffd" not in token


def _tables(tokenizer: Tokenizer, recipe: PairRecipe) -> tuple[list[int], Oracle]:
    """(home, oracle): home[t] is t itself inside the cycle, else the token that t stands for."""
    import numpy as np

    rng, size = np.random.default_rng(recipe.seed), tokenizer.get_vocab_size()
    texts = [i for i in range(len(_SPECIAL), size) if _is_text(tokenizer.decode([i]))]
    inside = rng.choice(texts, size=_CYCLE, replace=False).tolist()
    cycle = rng.permutation(inside + [_END] * recipe.ends).tolist()
    home = list(range(size))
    for other in sorted(set(range(size)) - set(cycle)):
        home[other] = cycle[int(rng.integers(len(cycle)))]
    step = {token: cycle[(i + 1) % len(cycle)] for i, token in enumerate(cycle)}
    wrong: list[int] = []
    for start in range(0, len(cycle), _RUN):
        block = cycle[start : start + _RUN]
        share = round(len(block) * (1 - recipe.agreement))
        wrong += rng.permutation(block)[:share].tolist()
    guess = dict(step)
    for here, there in zip(wrong, wrong[1:] + wrong[:1], strict=True):
        guess[here] = step[there]
    oracle = Oracle([step[home[t]] for t in range(size)], [guess[home[t]] for t in range(size)])
    return home, oracle


def table_weights(
    home: list[int], table: list[int], config: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Weights of a model that follows a table.

    Args:
        home: token -> the token whose embedding it shares, itself where it has its own.
        table: token -> the next one; of tokens that share an embedding the same.
        config: as in ``config.json``.
        seed: of everything random.

    Raises:
        ValueError: the hidden size is too small for the vocabulary.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    embedding = rng.standard_normal((len(home), hidden))
    embedding = (embedding / np.linalg.norm(embedding, axis=1, keepdims=True))[home]
    head = np.zeros_like(embedding)
    for token in sorted(set(home)):
        head[table[token]] = embedding[token]
    logits = embedding @ head.T
    rival = float(np.sort(logits, axis=1)[:, -2].max())
    if logits.argmax(axis=1).tolist() != list(table) or rival > 0.75:
        raise ValueError(f"hidden size {hidden} is too small: the closest rival is at {rival:.2f}")
    arrays: dict[str, Any] = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.ones(hidden),
        # the final RMSNorm makes the state sqrt(hidden) long
        "lm_head.weight": head * _SHARPNESS / np.sqrt(hidden),
    }
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, hidden),
        "self_attn.v_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
    }
    for layer in (f"model.layers.{i}" for i in range(config["num_hidden_layers"])):
        for name, shape in shapes.items():
            arrays[f"{layer}.{name}.weight"] = rng.standard_normal(shape) * 0.02
        arrays[f"{layer}.self_attn.o_proj.weight"] = np.zeros((hidden, hidden))
        arrays[f"{layer}.mlp.down_proj.weight"] = np.zeros((hidden, inner))
        for name in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"{layer}.{name}.weight"] = np.ones(hidden)
    return arrays


def save_model(
    path: Path, tokenizer: Tokenizer, config: dict[str, Any], weights: dict[str, Any], dtype: str
) -> None:
    """Write one model directory that ``mlx_lm.load`` takes.

    Args:
        path: made when missing.
        tokenizer: written as ``tokenizer.json`` with a chat template.
        config: as in ``config.json``.
        weights: name -> numpy or mlx array.
        dtype: that the weights are stored in.
    """
    import mlx.core as mx

    path.mkdir(parents=True, exist_ok=True)
    arrays = {name: mx.array(value).astype(getattr(mx, dtype)) for name, value in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), arrays, metadata={"format": "mlx"})
    tokenizer.save(str(path / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _SPECIAL[_END],
        "pad_token": _SPECIAL[_END],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": _CHAT_TEMPLATE,
    }
    for name, value in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        (path / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def build(directory: Path, recipe: PairRecipe) -> Oracle:
    """Write ``target`` and ``draft`` into directory, and return what they will do.

    Raises:
        ValueError: the hidden size is too small for the vocabulary.
    """
    tokenizer = make_tokenizer()
    home, oracle = _tables(tokenizer, recipe)
    for role, table, layers, hidden, seed in (
        ("target", oracle.target_next, recipe.target_layers, recipe.target_hidden, 1),
        ("draft", oracle.draft_next, recipe.draft_layers, recipe.draft_hidden, 2),
    ):
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "intermediate_size": hidden * 2,
            "num_attention_heads": max(hidden // 64, 1),
            "num_key_value_heads": max(hidden // 64, 1),
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "vocab_size": len(home),
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "torch_dtype": recipe.dtype,
            "eos_token_id": _END,
        }
        weights = table_weights(home, table, config, recipe.seed + seed)
        save_model(directory / role, tokenizer, config, weights, recipe.dtype)
    return oracle

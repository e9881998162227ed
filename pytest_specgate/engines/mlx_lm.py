"""The mlx-lm engine: both paths through ``mlx_lm.stream_generate`` with the same options."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from ..config.plan import Decoding, Inputs, ModelRef
from .base import Call, EngineError, EngineInfo, Generation, ModelInfo, PairInfo, Scores, Tick

_VERSIONED = ("mlx", "mlx-lm", "transformers", "tokenizers")
_IDENTITY_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
)
_NEVER = float("inf")
_MARGIN_BATCH = 32


def _import_mlx() -> Any:
    try:
        import mlx.core as mx
    except ImportError as error:
        raise EngineError(
            "mlx cannot be imported, and nothing runs without it. On macOS it comes with mlx-lm; "
            "elsewhere install one of the extras: pytest-specgate[cpu], pytest-specgate[cuda12] "
            f"or pytest-specgate[cuda13]. Python said: {error}"
        ) from None
    return mx


@contextmanager
def _engine_errors(what: str) -> Iterator[None]:
    """Turn whatever the engine raises into one paragraph; Ctrl-C and the like pass through."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise EngineError(f"{what}: {type(error).__name__}: {message[:600]}") from error


class _CallNotes:
    """Stands in for a model, notes the shape of each call, and passes everything on."""

    def __init__(self, model: Any, role: Literal["target", "draft"], notes: list[Call]) -> None:
        self._model = model
        self._role = role
        self._notes = notes
        self.cache: Sequence[Any] = ()
        self.inputs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache")
        if cache is None and args:
            cache = args[0]
        self.cache = cache or ()
        self.inputs.append(inputs)
        self._notes.append(Call(self._role, int(inputs.shape[-1]), _offset(self.cache)))
        return self._model(inputs, *args, **kwargs)


def _offset(cache: Sequence[Any]) -> int | None:
    for layer in cache:
        if isinstance(offset := getattr(layer, "offset", None), int):
            return offset
    return None


def _cache_bytes(cache: Sequence[Any]) -> int:
    """Bytes of the arrays that the caches hold, whatever their class."""
    from mlx.utils import tree_flatten

    return sum(
        array.nbytes
        for layer in cache
        for _, array in tree_flatten(layer.state)
        if hasattr(array, "nbytes")
    )


class MlxLmPair:
    """A pair loaded by ``mlx_lm.load``."""

    def __init__(
        self, target: Any, draft: Any, tokenizer: Any, draft_tokenizer: Any, info: PairInfo
    ) -> None:
        self.target = target
        self.draft = draft
        self.tokenizer = tokenizer
        self.draft_tokenizer = draft_tokenizer
        self.info = info

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """Prompt ids as ``mlx_lm.generate`` makes them; see ``Pair.encode``."""
        with _engine_errors("the prompt cannot be turned into tokens"):
            templated = bool(
                getattr(self.tokenizer, "has_chat_template", self.tokenizer.chat_template)
            )
            if templated:
                text = self.tokenizer.apply_chat_template(
                    [{"role": "user", "content": text}],
                    tokenize=False,
                    add_generation_prompt=True,
                    **chat_template_args,
                )
            ids = self.tokenizer.encode(text, add_special_tokens=not templated)
        if not ids:
            raise EngineError("the prompt is empty once it is turned into tokens")
        return tuple(int(token) for token in ids)

    def _options(self, decoding: Decoding, max_tokens: int) -> dict[str, Any]:
        from mlx_lm.sample_utils import make_sampler

        return {
            "max_tokens": max_tokens,
            "sampler": make_sampler(temp=decoding.temperature),
            "logits_processors": [],
            "prefill_step_size": decoding.prefill_step_size,
            "kv_bits": decoding.kv_bits,
            "kv_group_size": decoding.kv_group_size,
            "quantized_kv_start": decoding.quantized_kv_start,
        }

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """One run of ``mlx_lm.stream_generate``; see ``Pair.generate``."""
        mx = _import_mlx()
        from mlx_lm import stream_generate

        calls: list[Call] = []
        target, draft = self.target, self.draft
        if observe:
            target = _CallNotes(target, "target", calls)
            draft = _CallNotes(draft, "draft", calls)
        options = self._options(decoding, max_tokens)
        if num_draft_tokens is not None:
            options |= {"draft_model": draft, "num_draft_tokens": num_draft_tokens}
        ids = mx.array(list(prompt))
        mx.eval(ids)
        mx.random.seed(decoding.seed)
        mx.clear_cache()
        mx.reset_peak_memory()
        margins = _Margins() if observe else None
        with _engine_errors("generating failed"), _no_collection():
            tokens, text, flags, times, e2e_s, reason = _drain(
                lambda: stream_generate(target, self.tokenizer, ids, **options), tick, margins
            )
        peak = int(mx.get_peak_memory())
        kv_bytes = largest = None
        if observe:
            caches = [_cache_bytes(side.cache) for side in (target, draft)]
            kv_bytes = (caches[0], caches[1])
            if num_draft_tokens:
                largest = _largest_proposal(target.inputs, len(prompt))
        return Generation(
            tokens=tuple(tokens),
            text="".join(text),
            from_draft=tuple(flags),
            token_times_s=tuple(times),
            e2e_s=e2e_s,
            finish_reason=reason,
            peak_memory_bytes=peak,
            kv_bytes=kv_bytes,
            calls=tuple(calls) if observe else None,
            logprobs=margins.logprobs() if margins else None,
            margins=margins.margins() if margins else None,
            largest_proposal=largest,
        )

    def score(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> Scores | None:
        """One pass of the target over prompt + tokens; see ``Pair.score``."""
        mx = _import_mlx()
        from mlx_lm.models.cache import make_prompt_cache

        ids = [*prompt, *tokens[:-1]]
        first = len(prompt) - 1  # the position whose logits judge the first emitted token
        rows: list[tuple[float, float, float, float]] = []
        with _engine_errors("the teacher-forced pass failed"):
            cache = make_prompt_cache(self.target)
            for start in range(0, len(ids), decoding.prefill_step_size):
                part = ids[start : start + decoding.prefill_step_size]
                logits = self.target(mx.array([part]), cache=cache)[0]
                mx.eval(logits, [layer.state for layer in cache])
                skip = max(first - start, 0)
                if skip < len(part):
                    emitted = tokens[start + skip - first :][: len(part) - skip]
                    rows += _judged(mx, logits[skip:], emitted)
        mx.clear_cache()
        columns = [tuple(column) for column in zip(*rows, strict=True)]
        return Scores(*columns)


def _judged(
    mx: Any, logits: Any, emitted: Sequence[int]
) -> list[tuple[float, float, float, float]]:
    """(log probability, gap, margin, ulp) of each emitted token under its row of logits."""
    bits = {"bfloat16": 7, "float16": 10}.get(str(logits.dtype).rsplit(".", 1)[-1], 23)
    rows = logits.astype(mx.float32)
    top = mx.topk(rows, 2, axis=-1)
    best, second = mx.max(top, axis=-1), mx.min(top, axis=-1)
    chosen = mx.take_along_axis(rows, mx.array([[t] for t in emitted]), axis=-1)[:, 0]
    normalizer = mx.logsumexp(rows, axis=-1)
    ulps = [2.0 ** (math.frexp(value)[1] - 1 - bits) for value in _floats(best)]
    columns = (_floats(x) for x in (chosen - normalizer, best - chosen, best - second))
    return [(*row, ulp) for row, ulp in zip(zip(*columns, strict=True), ulps, strict=True)]


def _floats(array: Any) -> list[float]:
    return [float(value) for value in array.tolist()]


def _largest_proposal(inputs: Sequence[Any], prompt_tokens: int) -> int | None:
    """The largest id among the proposals that the target checked, prompt left out."""
    consumed, largest = 0, None
    for array in inputs:
        length = int(array.shape[-1])
        consumed += length
        if consumed <= prompt_tokens:
            continue
        proposals = min(length - 1, consumed - prompt_tokens)
        if proposals > 0:
            found = int(array[0, -proposals:].max().item())
            largest = found if largest is None else max(largest, found)
    return largest


class _Margins:
    """Log probability and top-2 margin of each token, taken from the responses of the run."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, int]] = []
        self._rows: list[tuple[float, float]] = []

    def note(self, logprobs: Any, token: int) -> None:
        """Keep a response's vector; a batch of them is reduced before they fill the memory."""
        self._kept.append((logprobs, token))
        if len(self._kept) >= _MARGIN_BATCH:
            self._reduce()

    def _reduce(self) -> None:
        import mlx.core as mx

        if not self._kept:
            return
        rows = mx.stack([vector for vector, _ in self._kept]).astype(mx.float32)
        tokens = mx.array([[token] for _, token in self._kept])
        chosen = mx.take_along_axis(rows, tokens, axis=-1)[:, 0]
        top = mx.topk(rows, 2, axis=-1)
        margins = mx.max(top, axis=-1) - mx.min(top, axis=-1)
        self._rows += list(zip(_floats(chosen), _floats(margins), strict=True))
        self._kept.clear()

    def logprobs(self) -> tuple[float, ...]:
        """Natural log probability of each token."""
        self._reduce()
        return tuple(row[0] for row in self._rows)

    def margins(self) -> tuple[float, ...]:
        """Largest less second largest log probability."""
        self._reduce()
        return tuple(row[1] for row in self._rows)


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
    start: Callable[[], Iterator[Any]], tick: Tick | None, margins: _Margins | None
) -> tuple[list[int], list[str], list[bool], list[float], float, str | None]:
    """Run a stream to its end, noting each token and its time. This loop is what is timed."""
    tokens: list[int] = []
    text: list[str] = []
    flags: list[bool] = []
    times: list[float] = []
    reason: str | None = None
    clock = time.perf_counter
    next_tick = 1.0 if tick else _NEVER
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
    return tokens, text, flags, times, clock() - begin, reason


class MlxLmEngine:
    """Loads pairs with ``mlx_lm.load`` on mlx's default device."""

    name = "mlx-lm"

    def describe(self) -> EngineInfo:
        """Versions, device and memory limit; see ``Engine.describe``."""
        mx = _import_mlx()
        device = mx.default_device()
        details = _device_details(mx)
        versions = {name: v for name in _VERSIONED if (v := _version(name))}
        recommended = details.get("max_recommended_working_set_size")
        if recommended and device.type == mx.gpu:
            limit, origin = int(recommended), "the device's recommended working set"
        else:
            import psutil

            limit, origin = int(psutil.virtual_memory().total), "the machine's memory"
        kind = "GPU" if device.type == mx.gpu else "CPU"
        name = details.get("device_name") or details.get("architecture") or ""
        return EngineInfo(versions, f"{kind} {name}".strip(), limit, origin, details)

    def load(self, inputs: Inputs) -> MlxLmPair:
        """Load both models; see ``Engine.load``."""
        if inputs.target is None or inputs.draft is None:
            raise EngineError("no pair was given")
        _import_mlx()
        with _engine_errors("mlx-lm cannot be imported"):
            import mlx_lm  # noqa: F401  # a broken install is told apart from a broken model
        target, tokenizer, target_info = _load(inputs.target, "target", inputs.trust_remote_code)
        draft, draft_tokenizer, draft_info = _load(inputs.draft, "draft", inputs.trust_remote_code)
        info = PairInfo(target_info, draft_info)
        return MlxLmPair(target, draft, tokenizer, draft_tokenizer, info)


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


def _load(ref: ModelRef, role: str, trust_remote_code: bool) -> tuple[Any, Any, ModelInfo]:
    import mlx.core as mx
    import mlx_lm

    accepts = inspect.signature(mlx_lm.load).parameters
    options: dict[str, Any] = {"tokenizer_config": {"trust_remote_code": trust_remote_code}}
    if "trust_remote_code" in accepts:
        options["trust_remote_code"] = trust_remote_code
    with _engine_errors(f"the {role} {ref.label} cannot be loaded"):
        name = str(ref.directory or ref.name)
        if ref.revision and "revision" in accepts:
            options["revision"] = ref.revision
        elif ref.revision:  # mlx-lm before 0.29
            from huggingface_hub import snapshot_download

            name = snapshot_download(ref.name, revision=ref.revision)
        if ref.directory and (problem := _not_whole(ref.directory)):
            raise EngineError(f"the {role} {ref.label} cannot be loaded: {problem}")
        model, tokenizer = mlx_lm.load(name, **options)
        mx.eval(model.parameters())
        return model, tokenizer, _model_info(ref, model, _model_directory(ref))


def _model_directory(ref: ModelRef) -> Path | None:
    """Where the files of a loaded model lie."""
    if ref.directory:
        return ref.directory
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(ref.name, "config.json", revision=ref.revision)
    return Path(config).parent if isinstance(config, str) else None


def _model_info(ref: ModelRef, model: Any, directory: Path | None) -> ModelInfo:
    from mlx.utils import tree_flatten
    from mlx_lm.utils import get_total_parameters

    arrays = [array for _, array in tree_flatten(model.parameters())]
    plain = [array for array in arrays if str(array.dtype) != "mlx.core.uint32"]
    dtypes: dict[str, int] = {}
    for array in plain:
        dtype = str(array.dtype).rsplit(".", 1)[-1]
        dtypes[dtype] = dtypes.get(dtype, 0) + array.nbytes
    bits = {f"{module.bits}-bit" for _, module in model.named_modules() if hasattr(module, "bits")}
    return ModelInfo(
        name=ref.label,
        bytes=sum(array.nbytes for array in arrays),
        parameters=int(get_total_parameters(model)),
        dtype=max(dtypes, key=dtypes.__getitem__) if dtypes else "none",
        quantization=", ".join(sorted(bits)) or None,
        digest=_digest(directory) if directory else "unknown",
        revision=directory.name if directory and ref.directory is None else None,
        embedding_rows=_embedding_rows(model),
    )


def _embedding_rows(model: Any) -> int | None:
    """Rows of the first token embedding; None where the model shows none."""
    for _, module in model.named_modules():
        if type(module).__name__.endswith("Embedding") and hasattr(module, "weight"):
            return int(module.weight.shape[0])
    return None


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
        if size > path.stat().st_size - 8:
            return b""
        return file.read(size)


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

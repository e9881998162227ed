"""Failing cases saved as JSON, and run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config.layers import DECODING_FIELDS, Key, Layer, Setting, checked
from .config.plan import Inputs
from .config.prompt_file import prompt_of
from .config.spec import ConfigError, Invalid, found, nearest, text
from .config.yaml_file import read_utf8
from .files import file_stem, write_whole

if TYPE_CHECKING:
    from .measure.evidence import CaseEvidence, Evidence

SCHEMA = "specgate-case/1"
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "pair": ("target", "draft"),
    "decoding": ("num_draft_tokens", *DECODING_FIELDS, "chat_template_args"),
    "prompt": ("id", "prompt", "kind"),
}
# keys that cases of an earlier release do not have yet: their defaults held then
_LATER = {
    ("decoding", name)
    for name in (
        *("max_kv_size", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("logit_bias", "ignore_eos", "top_p", "top_k", "min_p", "min_tokens_to_keep"),
        *("xtc_probability", "xtc_threshold"),
    )
}
_REPLAYED = ("schema", "engine", *_SECTIONS)


def save_case(
    directory: Path, case: CaseEvidence, inputs: Inputs, environment: Mapping[str, Any]
) -> Path:
    """Write one case: what was asked, both outputs, and where they part.

    Args:
        directory: made when missing; the file's name comes from the prompt's id, with a digest
            behind it where a case of that id lies there which replays something else.
        case: a prompt with its arms.
        inputs: what it was generated with.
        environment: recorded beside it; a replay does not read it.

    Raises:
        OSError: it cannot be written.
    """
    if inputs.target is None or inputs.draft is None:
        raise ValueError("a case needs a pair")
    decoding = {name: getattr(inputs.decoding, name) for name in DECODING_FIELDS}
    decoding["max_tokens"] = case.prompt.max_tokens
    document = {
        "schema": SCHEMA,
        "pair": {"target": inputs.target.label, "draft": inputs.draft.label},
        "engine": inputs.engine,
        "decoding": {
            "num_draft_tokens": list(inputs.num_draft_tokens),
            **decoding,
            "chat_template_args": dict(inputs.chat_template_args),
        },
        "prompt": {"id": case.prompt.id, "kind": case.prompt.kind, "prompt": case.prompt.text},
        "prompt_tokens": list(case.tokens),
        "first_difference": {
            f"k={parity.num_draft_tokens}": parity.first_difference for parity in case.parity()
        },
        "arms": {
            name: {
                "tokens": list(arm.generation.tokens),
                "text": arm.generation.text,
                "finish_reason": arm.generation.finish_reason,
                "from_draft": list(arm.generation.from_draft),
                "broken_invariant": arm.broken,
            }
            for name, arm in case.arms.items()
        },
        "environment": dict(environment),
    }
    path = _place(directory, case.prompt.id, document)
    write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


def _place(directory: Path, prompt_id: str, document: Mapping[str, Any]) -> Path:
    """Two pairs, or two sets of options, do not write over each other's case of one id."""
    ours = json.loads(json.dumps({name: document[name] for name in _REPLAYED}))  # no tuples
    path = directory / f"{file_stem(prompt_id)}.json"
    try:
        known = json.loads(read_utf8(path))
    except (ConfigError, ValueError, RecursionError):  # none there, or none that could be replayed
        return path
    if not isinstance(known, dict) or {name: known.get(name) for name in _REPLAYED} == ours:
        return path
    digest = hashlib.sha256(json.dumps(ours, sort_keys=True).encode()).hexdigest()[:8]
    return path.with_name(f"{path.stem}-{digest}.json")


def read_case(path: Path) -> tuple[Layer, str]:
    """The settings of a saved case, and the engine it ran on.

    Raises:
        ConfigError: not a saved case, or one of a newer version; names the file and the key.
    """
    try:
        document = json.loads(read_utf8(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a saved case: not JSON: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ConfigError(
            f"{path}: not a saved case: schema must be {SCHEMA!r}, found {found(schema)}"
        )
    parts = {name: _section(document, path, name) for name in _SECTIONS}
    layer: dict[Key, Setting] = {}
    for section in ("pair", "decoding"):
        for name, value in parts[section].items():
            layer[section, name] = checked(section, name, value, str(path), path.parent)
            if section == "pair" and value is None:
                raise ConfigError(f"{path}: pair.{name} must be text, found {found(value)}")
    if "engine" not in document:
        raise ConfigError(f"{path}: not a whole saved case: engine is missing")
    try:
        max_tokens = layer["decoding", "max_tokens"].value
        saved = prompt_of({**parts["prompt"], "max_tokens": max_tokens})
    except Invalid as error:
        raise ConfigError(f"{path}: not a whole saved case: {error}") from None
    try:
        engine = text()(document["engine"])
    except Invalid as error:
        raise ConfigError(f"{path}: engine {error}") from None
    layer["prompts", "set"] = Setting((saved,), str(path), path.parent)
    return layer, engine


def _section(document: dict[str, Any], path: Path, section: str) -> dict[str, Any]:
    """Its keys, each of them there and none besides: every one decides the output."""
    names, given = _SECTIONS[section], document.get(section)
    part: dict[str, Any] = given if isinstance(given, dict) else {}
    for name in names:
        if name not in part and (section, name) not in _LATER:
            raise ConfigError(f"{path}: not a whole saved case: {section}.{name} is missing")
    for name in part:
        if name not in names:
            raise ConfigError(
                f"{path}: unknown key {section}.{name}{nearest(name, names)} "
                f"(allowed: {', '.join(names)})"
            )
    return part


def replay(path: Path | str, *, preflight: bool = True) -> Evidence:
    """Run a saved case again, outside pytest: every arm once, and how they compare.

    Args:
        path: a file under ``.specgate/failures``.
        preflight: check the pair first; what that finds ends the replay.

    Raises:
        ConfigError: not a saved case.
        EngineError: the pair cannot be loaded, or generating failed.
    """
    from .config.build import Builder
    from .config.options import Options
    from .engines import builtin_engines
    from .engines.base import EngineError
    from .gates import builtin_gates
    from .measure.store import Store
    from .measure.watch import Silent
    from .prompts import builtin

    layer, engine = read_case(Path(path))
    options = Options({}, {}, engine=engine)
    builder = Builder(options, {gate.name: gate for gate in builtin_gates()}, builtin)
    inputs, _ = builder.inputs({}, layer)
    if engine not in (engines := builtin_engines()):
        raise ConfigError(f"{path}: engine {engine!r} is not built in; use pytest --spec-replay")
    store = Store(engines, Silent(), lambda _: None, preflight=preflight)
    evidence = store.campaign(inputs).parity_pass(inputs)
    if error := evidence.cases[0].error:
        raise EngineError(error)
    return evidence

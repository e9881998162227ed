"""The baseline file, schema ``specgate-baseline/1``: plain values, checked when they are read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import gt
from typing import TYPE_CHECKING, Any

from ..config.layers import DECODING_FIELDS
from ..config.plan import Decoding, Inputs
from ..engines.base import ModelInfo, PairInfo
from ..measure.blocks import Blocks
from ..measure.evidence import AGAIN, PLAIN, ArmEvidence, CaseEvidence
from ..measure.trial import Trial

if TYPE_CHECKING:
    from ..gates.base import Verdict

NAME, VERSION = "specgate-baseline", 1
SCHEMA = f"{NAME}/{VERSION}"
_DIGITS = 7
_MODEL = ("name", "bytes", "parameters", "dtype", "quantization", "digest", "revision")
_TRIAL = (
    *("round", "tokens", "ttft_s", "decode_s", "e2e_s", "rest_tokens", "rest_s"),
    *("peak_memory_bytes", "accepted"),
)
_CENSORED = ("max_tokens", "eos", "closed")
_ARM = re.compile(r"plain|k=[1-9]\d{0,3}", re.ASCII)
_MOST = 2**53  # whole numbers beyond it are no floats any more
_SHORTEST, _LONGEST = 1e-9, 1e9  # seconds; nothing outside was ever timed
# how a file of an older version becomes one of the next; none is older yet
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


class BaselineError(Exception):
    """A baseline cannot be read or written; the text is for the user."""


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """Tokens proposed and accepted block by block; ``censored`` says what cut the last one."""

    proposed: tuple[int, ...]
    accepted: tuple[int, ...]
    censored: str | None = None

    @classmethod
    def of(cls, blocks: Blocks) -> StoredBlocks:
        """The blocks of one output."""
        return cls(
            tuple(block.proposed for block in blocks.blocks),
            tuple(block.accepted for block in blocks.blocks),
            blocks.blocks[-1].censored if blocks.blocks else None,
        )


@dataclass(frozen=True, slots=True)
class StoredArm:
    """One path of one prompt.

    Attributes:
        tokens, text: of the parity pass.
        blocks: None on the plain path.
        trials: that were timed.
    """

    tokens: tuple[int, ...]
    text: str
    blocks: StoredBlocks | None = None
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredCase:
    """One prompt.

    Attributes:
        prompt: digest of its text.
        ids: digest of its token ids, which a chat template or a tokenizer can change.
        arms: ``plain`` and ``k=N``.
    """

    kind: str
    prompt: str
    ids: str
    max_tokens: int
    arms: Mapping[str, StoredArm]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a session measured, as it is stored.

    Attributes:
        environment: recorded facts, plain JSON.
        models: ``target`` and ``draft``, the fields of ``ModelInfo`` that are kept.
        decoding: options of both paths.
        cases: prompt id -> case.
        verdicts: gate, subject, status, observed and limit of each.
    """

    environment: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    engine: str
    decoding: Mapping[str, Any]
    cases: Mapping[str, StoredCase]
    verdicts: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def prompts_digest(self) -> str:
        """Of the whole prompt set."""
        return _digest([[name, case.prompt, case.max_tokens] for name, case in self.cases.items()])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def baseline_of(
    cases: Iterable[CaseEvidence],
    inputs: Inputs,
    pair: PairInfo | None,
    facts: Mapping[str, Any],
    verdicts: Iterable[Verdict] = (),
) -> Baseline:
    """The evidence of this session, as it would be stored."""
    decoding: dict[str, Any] = {
        name: getattr(inputs.decoding, name) for name in DECODING_FIELDS if name != "max_tokens"
    }
    decoding["logit_bias"] = [list(entry) for entry in inputs.decoding.logit_bias]
    return Baseline(
        environment=facts,
        models={
            "target": _model(pair.target if pair else None),
            "draft": _model(pair.draft if pair else None),
        },
        engine=inputs.engine,
        decoding={**decoding, "chat_template_args": dict(inputs.chat_template_args)},
        cases={
            case.prompt.id: StoredCase(
                case.prompt.kind,
                _digest(case.prompt.text),
                _digest(list(case.tokens)),
                case.prompt.max_tokens or 0,
                {name: _arm(arm) for name, arm in case.arms.items() if name != AGAIN},
            )
            for case in sorted(cases, key=lambda case: case.prompt.id)  # as workers end is no order
            if not case.error
        },
        verdicts=tuple(
            {
                "gate": verdict.gate,
                "subject": verdict.subject,
                "status": verdict.status,
                "observed": verdict.observed,
                "limit": verdict.limit,
            }
            for verdict in verdicts
        ),
    )


def _model(info: ModelInfo | None) -> dict[str, Any]:
    return {} if info is None else {name: getattr(info, name) for name in _MODEL}


def _arm(arm: ArmEvidence) -> StoredArm:
    blocks = StoredBlocks.of(arm.blocks) if arm.blocks is not None else None
    return StoredArm(tuple(arm.generation.tokens), arm.generation.text, blocks, arm.trials)


# -- writing -----------------------------------------------------------------------------------


def dumps(baseline: Baseline) -> str:
    """The file: keys in a fixed order, a list a line, so that changes are small under git.

    Raises:
        ValueError, TypeError: it holds what is no plain JSON value.
    """
    document = {
        "schema": SCHEMA,
        "environment": _sorted(baseline.environment),
        "engine": baseline.engine,
        "pair": {role: dict(model) for role, model in baseline.models.items()},
        "prompts_digest": baseline.prompts_digest,
        "decoding": dict(baseline.decoding),
        "trial_columns": list(_TRIAL),
        "cases": {name: _case_document(case) for name, case in baseline.cases.items()},
        "verdicts": {f"{v['gate']} {v['subject']}": dict(v) for v in baseline.verdicts},
    }
    return _lines({**document, "digest": _content_digest(document)}, "") + "\n"


def _content_digest(document: Mapping[str, Any]) -> str:
    """Of all that the file holds, however it is laid out."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return value


def _lines(value: Any, indent: str) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    inner = indent + " "
    entries = (f"{inner}{json.dumps(key)}: {_lines(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def _case_document(case: StoredCase) -> dict[str, Any]:
    plain = case.arms.get(PLAIN)
    return {
        "kind": case.kind,
        "prompt": case.prompt,
        "ids": case.ids,
        "max_tokens": case.max_tokens,
        "arms": {
            name: _arm_document(arm, plain if name != PLAIN else None)
            for name, arm in case.arms.items()
        },
    }


def _arm_document(arm: StoredArm, plain: StoredArm | None) -> dict[str, Any]:
    """An output that equals the plain one is not written twice."""
    same = plain is not None and (plain.tokens, plain.text) == (arm.tokens, arm.text)
    output: dict[str, Any] = {"as_plain": True}
    if not same:
        output = {"tokens": list(arm.tokens), "text": arm.text}
    blocks = arm.blocks
    if blocks is not None:
        output["blocks"] = {
            "proposed": list(blocks.proposed),
            "accepted": list(blocks.accepted),
            "censored": blocks.censored,
        }
    return {**output, "trials": [_trial_row(trial) for trial in arm.trials]}


def _trial_row(trial: Trial) -> list[Any]:
    rest = trial.past_first_block or (None, None)
    row = [trial.round, trial.tokens, trial.ttft_s, trial.decode_s, trial.e2e_s, *rest]
    row += [trial.peak_memory_bytes, trial.accepted]
    return [float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value for value in row]


# -- reading -----------------------------------------------------------------------------------


def loads(text: str) -> Baseline:
    """Read a file.

    Raises:
        BaselineError: not a baseline, of a newer version, or damaged; names the key.
    """
    try:
        document = json.loads(text, parse_constant=_no_number)
        if not isinstance(document, dict):
            raise BaselineError("not a baseline: the file must hold an object")
        version = _version(document)
        whole = document.get("digest") == _content_digest(document)
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"not a baseline: not JSON: {error}") from None
    if not whole:
        raise BaselineError(
            "damaged: its content is not what was written (the digest differs); take the file from "
            "git or store it again"
        )
    return _read(migrated(document, version))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _read(document: dict[str, Any]) -> Baseline:
    reader = _Reader(document, "")
    columns = reader.get("trial_columns", list)
    if columns != list(_TRIAL):
        raise BaselineError(f"damaged: trial_columns must be {', '.join(_TRIAL)}")
    cases = reader.part("cases")
    return Baseline(
        environment=reader.get("environment", dict),
        models={role: _models(reader.part("pair"), role) for role in ("target", "draft")},
        engine=reader.get("engine", str),
        decoding=reader.get("decoding", dict),
        cases={name: _read_case(cases.part(name)) for name in cases.document},
        verdicts=tuple(_verdicts(reader.part("verdicts"))),
    )


def _version(document: Mapping[str, Any]) -> int:
    schema = document.get("schema")
    name, _, number = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != NAME or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise BaselineError(f"not a baseline: schema must be {SCHEMA!r}, found {schema!r:.80}")
    version = int(number)
    if version > VERSION:
        raise BaselineError(
            f"schema {schema} is newer than this plugin knows ({SCHEMA}): update pytest-specgate"
        )
    return version


def migrated(document: dict[str, Any], version: int) -> dict[str, Any]:
    """The document in today's schema.

    Raises:
        BaselineError: there never was such a version.
    """
    while version < VERSION:
        if version not in MIGRATIONS:
            raise BaselineError(f"not a baseline: there never was a schema {NAME}/{version}")
        document = MIGRATIONS[version](document)
        version += 1
    return document


@dataclass(frozen=True, slots=True)
class _Reader:
    """A part of the document, and where it stands."""

    document: dict[str, Any]
    place: str

    def get(self, key: str, kind: type) -> Any:
        value = self.document.get(key)
        if type(value) is not kind:
            raise self.damaged(key, f"{value!r:.40}")
        return value

    def part(self, key: str) -> _Reader:
        return _Reader(self.get(key, dict), f"{self.place}{key}.")

    def damaged(self, key: str, found: str) -> BaselineError:
        return BaselineError(f"damaged: {self.place}{key} is missing or wrong (found {found})")


def _models(pair: _Reader, role: str) -> dict[str, Any]:
    model = pair.part(role)
    model.get("digest", str)
    return model.document


def _verdicts(verdicts: _Reader) -> Iterable[Mapping[str, Any]]:
    for name in verdicts.document:
        part = verdicts.part(name)
        for key in ("gate", "subject", "status"):
            part.get(key, str)
        yield part.document


def _read_case(case: _Reader) -> StoredCase:
    arms = case.part("arms")
    read: dict[str, StoredArm] = {}
    for name in sorted(arms.document, key=PLAIN.__ne__):  # others may say that they are as plain
        if not _ARM.fullmatch(name):
            raise arms.damaged(name, "no arm: plain or k=N")
        read[name] = _read_arm(arms.part(name), read.get(PLAIN), plain=name == PLAIN)
    return StoredCase(
        case.get("kind", str),
        case.get("prompt", str),
        case.get("ids", str),
        case.get("max_tokens", int),
        read,
    )


def _read_arm(arm: _Reader, plain_arm: StoredArm | None, *, plain: bool) -> StoredArm:
    if arm.document.get("as_plain") is True and plain_arm is not None:
        tokens, text = plain_arm.tokens, plain_arm.text
    else:
        tokens, text = tuple(arm.get("tokens", list)), arm.get("text", str)
        if not tokens or not _whole(tokens):
            raise arm.damaged("tokens", "no list of whole numbers")
    blocks = None if plain else _read_blocks(arm.part("blocks"))
    trials = tuple(_read_trial(arm, row) for row in arm.get("trials", list))
    return StoredArm(tokens, text, blocks, trials)


def _read_blocks(blocks: _Reader) -> StoredBlocks:
    proposed, accepted = (blocks.get(name, list) for name in ("proposed", "accepted"))
    for name, numbers in (("proposed", proposed), ("accepted", accepted)):
        if not _whole(numbers):
            raise blocks.damaged(name, "no list of whole numbers")
    if len(accepted) != len(proposed) or any(map(gt, accepted, proposed)):
        raise blocks.damaged("accepted", "more than was proposed")
    censored = blocks.document.get("censored")
    if censored is not None and censored not in _CENSORED:
        raise blocks.damaged("censored", f"{censored!r:.40}")
    return StoredBlocks(tuple(proposed), tuple(accepted), censored)


def _whole(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {int} and (
        not values or (min(values) >= 0 and max(values) <= _MOST)
    )


def _seconds(value: Any, least: float = 0) -> bool:
    return type(value) in (int, float) and least <= value <= _LONGEST


def _read_trial(arm: _Reader, row: Any) -> Trial:
    if not isinstance(row, list) or len(row) != len(_TRIAL):
        raise arm.damaged("trials", f"{row!r:.40}")
    number, tokens, ttft, decode, e2e, rest_tokens, rest, peak, accepted = row
    counts = [0 if value is None else value for value in (rest_tokens, peak, accepted)]
    sound = (
        _whole((number, tokens, *counts))
        and (decode is None or _seconds(decode))
        and (rest is None or _seconds(rest))
        and _seconds(ttft, _SHORTEST)
        and _seconds(e2e, _SHORTEST)
        and number > 0
        and tokens > 0
        and rest_tokens != 0
    )
    if not sound:
        raise arm.damaged("trials", f"{row!r:.40}")
    past = (rest_tokens, float(rest)) if rest_tokens is not None and rest is not None else None
    return Trial(number, tokens, float(ttft), decode, float(e2e), past, peak, accepted)


def same_decoding(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the decoding options that differ; one that is not stored had its default."""
    defaults = {name: getattr(Decoding(), name) for name in DECODING_FIELDS}
    defaults |= {"logit_bias": [], "chat_template_args": {}}
    names = dict.fromkeys([*then, *now])
    return [
        name
        for name in names
        if then.get(name, defaults.get(name)) != now.get(name, defaults.get(name))
    ]


def exact_under(baseline: Baseline, case: CaseEvidence, pair: PairInfo) -> str | None:
    """The stored versions, where these models answered this prompt alike on every path then."""
    known = baseline.cases.get(case.prompt.id)
    models = (pair.target.digest, pair.draft.digest)
    if known is None or models != tuple(m["digest"] for m in baseline.models.values()):
        return None
    wanted = (_digest(case.prompt.text), case.prompt.max_tokens)
    outputs = {(arm.tokens, arm.text) for arm in known.arms.values()}
    if wanted != (known.prompt, known.max_tokens) or len(known.arms) < 2 or len(outputs) > 1:
        return None
    versions = baseline.environment.get("versions")
    if not isinstance(versions, Mapping):
        return None
    return ", ".join(f"{name} {versions[name]}" for name in ("mlx-lm", "mlx") if name in versions)

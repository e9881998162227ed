"""What a baseline holds, schema ``specgate-baseline/1``: plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..config.layers import DECODING_FIELDS
from ..config.plan import Decoding, Inputs
from ..engines.base import ModelInfo, PairInfo
from ..measure.blocks import Blocks
from ..measure.evidence import AGAIN, ArmEvidence, CaseEvidence
from ..measure.trial import Trial

if TYPE_CHECKING:
    from ..gates.base import Verdict

NAME, VERSION = "specgate-baseline", 1
SCHEMA = f"{NAME}/{VERSION}"
_MODEL = ("name", "bytes", "parameters", "dtype", "quantization", "digest", "revision")


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

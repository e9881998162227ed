"""The JSON report, schema ``specgate-report/1``; docs/report-json.md documents it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from ..config.layers import DECODING_FIELDS
from ..config.plan import ModelRef
from ..engines.base import ModelInfo
from ..files import write_whole
from ..gates.base import Verdict
from ..measure.blocks import Blocks
from ..measure.evidence import ArmEvidence, CaseEvidence
from ..stats import NoiseFloor
from .checklist import checklist
from .session_report import MeasuredPair, SessionReport

SCHEMA = "specgate-report/1"


def report_document(report: SessionReport) -> dict[str, Any]:
    """The report as plain JSON values."""
    first = _pair(report.measured[0]) if report.measured else {}
    return {
        "schema": SCHEMA,
        "status": report.status,
        "environment": dict(report.environment),
        "pair": first.get("pair"),
        "decoding": first.get("decoding"),
        "trials": first.get("trials"),
        "acceptance": first.get("acceptance"),
        "noise": first.get("noise"),
        "cases": first.get("cases", []),
        "further_pairs": [_pair(pair) for pair in report.measured[1:]],
        "false_alarm_at_most": report.false_alarm,
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
        "checklist": [
            {"name": check.name, "state": check.state, "note": check.note}
            for check in checklist(report)
        ],
    }


def write_json(report: SessionReport, path: Path) -> None:
    """Write the report.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    text = json.dumps(report_document(report), indent=1, ensure_ascii=True, allow_nan=False)
    write_whole(path, text + "\n")


def _model(info: ModelInfo | None, ref: ModelRef | None) -> dict[str, Any]:
    if info is None:
        return {"name": ref.label if ref else None}
    return {name: getattr(info, name) for name in ModelInfo.__dataclass_fields__}


def _pair(measured: MeasuredPair) -> dict[str, Any]:
    inputs, info = measured.inputs, measured.info
    return {
        "pair": {
            "target": _model(info.target if info else None, inputs.target),
            "draft": _model(info.draft if info else None, inputs.draft),
            "engine": inputs.engine,
        },
        "decoding": {
            "num_draft_tokens": list(inputs.num_draft_tokens),
            **{name: getattr(inputs.decoding, name) for name in DECODING_FIELDS},
            "chat_template_args": dict(inputs.chat_template_args),
        },
        "trials": {"run": measured.trials[0], "at_most": measured.trials[1]},
        "acceptance": {f"k={a.num_draft_tokens}": a.document() for a in measured.acceptance()},
        "noise": _noise(measured.noise),
        "cases": [_case(case) for case in measured.cases],
    }


def _noise(floor: NoiseFloor | None) -> dict[str, Any] | None:
    if floor is None:
        return None
    return {
        "variation": floor.variation,
        "ratio": floor.ratio.value,
        "ratio_interval": list(floor.ratio.interval),
        "drift_per_round": floor.drift.log,
        "drift_error": floor.drift.error,
        "smallest_effect": floor.smallest_effect,
    }


def _case(case: CaseEvidence) -> dict[str, Any]:
    return {
        "id": case.prompt.id,
        "kind": case.prompt.kind,
        "max_tokens": case.prompt.max_tokens,
        "prompt_tokens": len(case.tokens),
        "error": case.error,
        "first_difference": {
            f"k={parity.num_draft_tokens}": parity.first_difference for parity in case.parity()
        }
        if case.arms
        else {},
        "draft_choices": list(case.choices) if case.choices is not None else None,
        "arms": {name: _arm(arm) for name, arm in case.arms.items()},
    }


def _arm(arm: ArmEvidence) -> dict[str, Any]:
    generation = arm.generation
    caches = generation.kv_bytes
    return {
        "tokens": list(generation.tokens),
        "text": generation.text,
        "finish_reason": generation.finish_reason,
        "kv_bytes": {"target": caches[0], "draft": caches[1]} if caches else None,
        "broken_invariant": arm.broken,
        "unstable": arm.unstable,
        "trials": [
            {
                "round": trial.round,
                "tokens": trial.tokens,
                "accepted": trial.accepted,
                "ttft_s": trial.ttft_s,
                "decode_s": trial.decode_s,
                "e2e_s": trial.e2e_s,
                "decode_tokens_per_s": trial.decode_tokens_per_s,
                "peak_memory_bytes": trial.peak_memory_bytes,
            }
            for trial in arm.trials
        ],
        "blocks": _blocks(arm.blocks) if arm.blocks is not None else None,
    }


def _blocks(blocks: Blocks) -> dict[str, Any]:
    return {
        **blocks.figures(),
        "accept_lengths": list(blocks.accept_lengths),
        "censored": [
            {"reason": b.censored, "proposed": b.proposed, "accepted": b.accepted}
            for b in blocks.blocks
            if b.censored
        ],
    }


def _finite(value: Any) -> Any:
    """The value with null for what is no number of JSON: a gap to a token that cannot be."""
    if isinstance(value, Mapping):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _verdict(verdict: Verdict) -> Any:
    document = {
        "gate": verdict.gate,
        "subject": verdict.subject,
        "item": verdict.item,
        "status": verdict.status,
        "kind": verdict.kind,
        "observed": verdict.observed,
        "limit": verdict.limit,
        "unit": verdict.unit,
        "samples": verdict.samples,
        "spread": list(verdict.spread) if verdict.spread else None,
        "reason": verdict.reason,
        "details": list(verdict.details),
        "advice": list(verdict.advice),
        "evidence": dict(verdict.evidence),
        "false_alarm": verdict.false_alarm,
    }
    return _finite(document)

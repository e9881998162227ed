"""A baseline as the text of its file."""

from __future__ import annotations

from typing import Any

from ..measure.evidence import PLAIN
from ..measure.trial import Trial
from .document import SCHEMA, Baseline, StoredArm, StoredCase
from .layout import laid_out
from .reading import TRIAL_COLUMNS

_DIGITS = 7


def dumps(baseline: Baseline) -> str:
    """The file, laid out so that changes are small under git.

    Raises:
        ValueError, TypeError: it holds what is no plain JSON value.
    """
    return laid_out(
        {
            "schema": SCHEMA,
            "environment": baseline.environment,
            "engine": baseline.engine,
            "pair": {role: dict(model) for role, model in baseline.models.items()},
            "prompts_digest": baseline.prompts_digest,
            "decoding": dict(baseline.decoding),
            "trial_columns": list(TRIAL_COLUMNS),
            "cases": {name: _case_document(case) for name, case in baseline.cases.items()},
            "verdicts": {f"{v['gate']} {v['subject']}": dict(v) for v in baseline.verdicts},
        }
    )


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

"""Outputs that fail a check, saved as JSON so that they can be looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .config.plan import Inputs
from .files import file_stem, write_whole
from .measure.evidence import CaseEvidence, arm_name
from .measure.further import seed_of

SCHEMA = "specgate-quality/1"


def save_outputs(
    directory: Path,
    case: CaseEvidence,
    failing: Iterable[Mapping[str, Any]],
    inputs: Inputs,
    environment: Mapping[str, Any],
) -> Path:
    """Write the failing outputs of one prompt, each with what its checks say.

    Args:
        directory: made when missing; the file is ``quality-ID-k3.json`` for three draft tokens.
        case: the prompt with its outputs.
        failing: of ``Verdict.evidence["failing"]``, those of this prompt.
        inputs: what it was generated with.
        environment: recorded beside it.

    Raises:
        OSError: it cannot be written.
    """
    said: dict[tuple[int, str], list[dict[str, str]]] = {}
    for one in failing:
        messages = said.setdefault((one["sample"], one["arm"]), [])
        messages.append({"check": one["check"], "message": one["message"]})
    pairs = case.pairs()
    seed = inputs.decoding.seed
    document = {
        "schema": SCHEMA,
        "pair": {
            "target": inputs.target.label if inputs.target else None,
            "draft": inputs.draft.label if inputs.draft else None,
        },
        "num_draft_tokens": list(inputs.num_draft_tokens),
        "temperature": inputs.decoding.temperature,
        "prompt": {"id": case.prompt.id, "kind": case.prompt.kind, "prompt": case.prompt.text},
        "outputs": [
            {
                "arm": arm,
                "sample": sample,
                "seed": seed if sample == 1 else seed_of(seed, case.prompt.id, sample),
                "failed": messages,
                "finish_reason": pairs[sample - 1][arm].finish_reason,
                "text": pairs[sample - 1][arm].text,
                "tokens": list(pairs[sample - 1][arm].tokens),
            }
            for (sample, arm), messages in said.items()
        ],
        "environment": dict(environment),
    }
    ks = "-".join(arm_name(k).replace("=", "") for k in inputs.num_draft_tokens)
    path = directory / f"quality-{file_stem(case.prompt.id)}-{ks}.json"
    write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path

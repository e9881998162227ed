"""Made-up stored sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_specgate.baseline.compare import Compared, Figure, compare
from pytest_specgate.baseline.document import Baseline, StoredArm, baseline_of
from pytest_specgate.gates.baseline import BaselineGate
from pytest_specgate.measure.evidence import CaseEvidence
from tests.fakes import make_inputs, pair_info, timed_case

MACHINE = {
    "chip": "paper",
    "architecture": "arm64",
    "cpu_count": 8,
    "memory_bytes": 2**34,
    "device": "GPU of paper",
}
FACTS: Mapping[str, Any] = {
    **MACHINE,
    "os": "macOS 15.1",
    "recorded_at": "2026-01-01T00:00:00+00:00",
    "versions": {"mlx": "0.31.3", "mlx-lm": "0.31.1"},
}
EVEN = (1.0,) * 6
NOISY = (1.0, 1.01, 0.99, 1.005, 0.995, 1.0)


def stored(*cases: CaseEvidence, facts: Mapping[str, Any] = FACTS, **decoding: Any) -> Baseline:
    """These cases as they would be stored."""
    prompts = tuple(case.prompt for case in cases)
    return baseline_of(cases, make_inputs(prompts, **decoding), pair_info(), facts)


def mix(
    speedup: float = 2.0, noise: Sequence[float] = NOISY, prompts: int = 6, **arm: Any
) -> list[CaseEvidence]:
    """Prompts of 1, 2, ... seconds, so much faster with the draft; plain trials have the noise."""
    return [
        timed_case(
            f"p{i}",
            [i * value for value in noise],
            [i * value / speedup for value in reversed(noise)],
            kind="python",
            **arm,
        )
        for i in range(1, prompts + 1)
    ]


def with_arm(baseline: Baseline, prompt: str, arm: str, **changes: Any) -> Baseline:
    """One arm changed."""
    case = baseline.cases[prompt]
    arms = {**case.arms, arm: replace(case.arms[arm], **changes)}
    return replace(baseline, cases={**baseline.cases, prompt: replace(case, arms=arms)})


def without_arm(baseline: Baseline, prompt: str, arm: str) -> Baseline:
    """One arm taken out."""
    case = baseline.cases[prompt]
    arms = {name: kept for name, kept in case.arms.items() if name != arm}
    return replace(baseline, cases={**baseline.cases, prompt: replace(case, arms=arms)})


def each_arm(baseline: Baseline, arm: str, change: Any) -> Baseline:
    """The arm of every prompt changed by a function."""
    for name, case in baseline.cases.items():
        changed: StoredArm = change(case.arms[arm])
        arms = {**case.arms, arm: changed}
        baseline = replace(baseline, cases={**baseline.cases, name: replace(case, arms=arms)})
    return baseline


def compared(then: Baseline, now: Baseline, **limits: Any) -> Compared:
    """k = 3, with the default limits but these, written as in a gates file."""
    given = {name: BaselineGate.options[name](value) for name, value in limits.items()}
    return compare(then, now, {**BaselineGate.defaults, **given}, 3)


def figure(name: str, found: Compared) -> Figure:
    """One figure by its name."""
    (one,) = [figure for figure in found.figures if figure.name == name]
    return one


def signed(document: Mapping[str, Any]) -> str:
    """A file whose digest is that of its content, whatever that is."""
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({**content, "digest": digest})

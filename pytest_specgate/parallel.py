"""Under pytest-xdist: what a worker may time, and how its findings reach the one that reports."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from .config.plan import Inputs, Prompt
from .gates.base import Verdict
from .measure.evidence import ArmEvidence, CaseEvidence
from .report.session_report import WORST_FIRST, MeasuredPair

GROUP = "specgate-timed"
_KEY = "specgate"
_IGNORES_GROUPS = (
    "other workers may time as well: pytest-xdist ignores groups in this mode (or at this version: "
    "pytest-dev/pytest-xdist#1386). Run with --dist loadgroup or, to be sure, without -n"
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What one process measured and judged.

    Attributes:
        used: some test was given a pair, whether or not a gate judged it.
        facts: the recorded environment; None where nothing was loaded.
        places: item -> file and line that asked for it.
    """

    verdicts: tuple[Verdict, ...] = ()
    measured: tuple[MeasuredPair, ...] = ()
    used: bool = False
    facts: Mapping[str, Any] | None = None
    places: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)


def is_worker(config: pytest.Config) -> bool:
    """This process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def why_untimed(item: pytest.Item) -> str | None:
    """Why this item may not time anything, or None.

    Where groups hold, xdist has written the group behind the item's id. That is looked at rather
    than the mode's name: with pytest 9.2 and xdist 3.8 ``loadgroup`` itself ignores groups.
    """
    config = item.config
    if not is_worker(config) or config.workerinput["workercount"] < 2:  # type: ignore[attr-defined]  # xdist's
        return None
    return None if GROUP in item.nodeid.rpartition("@")[2] else _IGNORES_GROUPS


def hand_over(config: pytest.Config, findings: Findings) -> None:
    """At the end of a worker."""
    config.workeroutput[_KEY] = pickle.dumps(findings)  # type: ignore[attr-defined]  # xdist's


def handed_over(node: Any) -> Findings | None:
    """What a worker left; None where it died before."""
    data = getattr(node, "workeroutput", {}).get(_KEY)
    return pickle.loads(data) if data else None


def joined(parts: Iterable[Findings]) -> Findings:
    """All findings as if one process had made them; the worst of several verdicts of one item."""
    parts = list(parts)
    verdicts: dict[tuple[str, str, str], Verdict] = {}
    for verdict in (v for part in parts for v in part.verdicts):
        known = verdicts.setdefault((verdict.item, verdict.gate, verdict.subject), verdict)
        if WORST_FIRST.index(verdict.status) < WORST_FIRST.index(known.status):
            verdicts[verdict.item, verdict.gate, verdict.subject] = verdict
    groups: dict[str, list[MeasuredPair]] = {}
    for part in parts:
        for pair in part.measured:
            groups.setdefault(_group(pair.inputs), []).append(pair)
    facts = [part.facts for part in parts if part.facts]
    most = max(facts, key=len, default=None)  # of one that has loaded the pair
    used = any(part.used for part in parts)
    measured = tuple(map(_one_pair, groups.values()))
    places = {item: place for part in parts for item, place in part.places.items()}
    return Findings(tuple(verdicts.values()), measured, used, most, places)


def _group(inputs: Inputs) -> str:
    decoding = replace(inputs.decoding, max_tokens=0)  # each prompt has its own
    kept = replace(
        inputs,
        prompts=(),
        num_draft_tokens=(),
        decoding=decoding,
        alone={},
        follow_up="",
        samples=1,
    )
    return repr(kept)


def _one_pair(pairs: list[MeasuredPair]) -> MeasuredPair:
    first = pairs[0]
    cases: dict[Prompt, CaseEvidence] = {}
    for pair in pairs:
        for case in pair.cases:
            known = cases.get(case.prompt)
            cases[case.prompt] = _one_case(known, case) if known else case
    ks = {k for pair in pairs for k in pair.inputs.num_draft_tokens}
    return replace(
        first,
        inputs=replace(first.inputs, num_draft_tokens=tuple(sorted(ks))),
        info=next((pair.info for pair in pairs if pair.info), None),
        cases=tuple(cases.values()),
        noise=next((pair.noise for pair in pairs if pair.noise), None),
        trials=max(pair.trials for pair in pairs),
    )


def _one_case(one: CaseEvidence, other: CaseEvidence) -> CaseEvidence:
    """Each arm as the worker saw it that ran the most rounds of it."""
    arms: dict[str, ArmEvidence] = {**one.arms}
    for name, arm in other.arms.items():
        if name not in arms or len(arm.trials) > len(arms[name].trials):
            arms[name] = arm
    return replace(one, arms=arms, error=one.error or other.error)

"""Everything that a report may show, complete before any report is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..config.plan import Inputs
from ..engines.base import PairInfo
from ..gates.base import Status, Verdict
from ..measure.acceptance import Acceptance, acceptances
from ..measure.evidence import CaseEvidence
from ..measure.kinds import KindRow, kind_rows
from ..stats import NoiseFloor, chance_of_false_alarm

WORST_FIRST: tuple[Status, ...] = ("failed", "inconclusive", "skipped", "passed")
SessionStatus = Literal["passed", "failed", "inconclusive", "incomplete", "nothing judged"]


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """What one pair, with one set of options, was measured on.

    ``trials`` are those that were timed, and the most that could have been.
    """

    inputs: Inputs
    info: PairInfo | None
    cases: tuple[CaseEvidence, ...]
    noise: NoiseFloor | None = None
    trials: tuple[int, int] = (0, 0)

    @property
    def scanned(self) -> bool:
        """Its draft was run over plain outputs, as ``--spec-scan`` does."""
        return any(case.choices is not None for case in self.cases)

    def acceptance(self) -> list[Acceptance]:
        """Acceptance whole, of each k that was measured; of every k where it was scanned."""
        return acceptances(self.cases, self.inputs.num_draft_tokens)


@dataclass(frozen=True, slots=True)
class GateRow:
    """One line of the gate table: a verdict, or all verdicts of a gate that judges each prompt."""

    name: str
    status: Status
    observed: str
    limit: str
    evidence: str


@dataclass(frozen=True)
class SessionReport:
    """What a session measured and judged.

    Attributes:
        status: of the whole session; ``incomplete`` after an interrupt.
        environment: recorded facts, plain JSON.
        measured: a pair each, in the order they were asked for.
        verdicts: in the order they were reached.
        item_names: gate -> the name of its test item.
        quiet: what is undecided is not explained to a person, as the user wished.
        stored: the file of the baseline that this session was stored as; None where it was not.
        places: item -> the file that asked for it, relative to the rootdir, and its line from 0.
    """

    status: SessionStatus
    environment: Mapping[str, Any]
    measured: tuple[MeasuredPair, ...]
    verdicts: tuple[Verdict, ...]
    item_names: Mapping[str, str]
    quiet: bool = False
    stored: str | None = None
    places: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)

    @property
    def false_alarm(self) -> float:
        """At most this chance that any verdict is a false failure."""
        return chance_of_false_alarm([verdict.false_alarm for verdict in self.verdicts])

    @property
    def decided(self) -> bool:
        """No verdict is open."""
        return all(verdict.status != "inconclusive" for verdict in self.verdicts)

    @property
    def whole_verdicts(self) -> list[Verdict]:
        """Without those that another one sums up."""
        return [v for v in self.verdicts if not {"severity", "figure"} & {*v.evidence}]

    def kind_rows(self) -> list[KindRow]:
        """One row a prompt kind and speculative arm, pair by pair."""
        return [
            row
            for pair in self.measured
            if not pair.scanned
            for row in kind_rows(pair.cases, pair.inputs.num_draft_tokens)
        ]

    def ranked(self) -> list[tuple[MeasuredPair, list[Acceptance]]]:
        """The drafts of a scan with every k, most tokens a target pass first, smaller ones first.

        They are compared at the first k that was asked for.
        """

        def rank(row: tuple[MeasuredPair, list[Acceptance]]) -> tuple[float, int]:
            pair, found = row
            passes = found[pair.inputs.num_draft_tokens[0] - 1].blocks.tokens_per_target_pass
            return -(passes or 0.0), pair.info.draft.bytes if pair.info else 0

        scanned = [(pair, pair.acceptance()) for pair in self.measured if pair.scanned]
        return sorted(scanned, key=rank)

    def gate_rows(self) -> list[GateRow]:
        """One row a gate and subject; per-prompt verdicts of a gate share one row."""
        rows = []
        verdicts = self.whole_verdicts
        several = len({v.subject for v in verdicts if v.subject.startswith("k=")}) > 1
        for gate in dict.fromkeys(verdict.gate for verdict in verdicts):
            name = self.item_names.get(gate, gate).replace("_", " ")
            of_gate = [verdict for verdict in verdicts if verdict.gate == gate]
            prompts = _worst_by_subject(of_gate)
            if "pair" in prompts:
                rows.append(_row(name, prompts["pair"]))
            elif prompts:
                rows.append(_prompts_row(name, list(prompts.values())))
            items = {v.item.partition("[")[0] for v in of_gate}
            for verdict in of_gate:
                if verdict.subject not in prompts:
                    label = f"{name} {verdict.subject}" if several else name
                    if len(items) > 1 and not verdict.item.startswith("gates.y"):
                        label = f"{label} {verdict.item.rpartition('::')[2]}"
                    rows.append(_row(label, verdict))
        return rows


def session_status(verdicts: Iterable[Verdict], *, interrupted: bool) -> SessionStatus:
    """The worst of all verdicts; an interrupt stands above them."""
    found = {verdict.status for verdict in verdicts}
    if interrupted:
        return "incomplete"
    for status in ("failed", "inconclusive", "passed"):
        if status in found:
            return status
    return "nothing judged"


def _worst_by_subject(verdicts: list[Verdict]) -> dict[str, Verdict]:
    """A prompt that several items asked for counts once, with its worst verdict."""
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.subject.startswith("k="):
            continue
        known = worst.setdefault(verdict.subject, verdict)
        if WORST_FIRST.index(verdict.status) < WORST_FIRST.index(known.status):
            worst[verdict.subject] = verdict
    return worst


def _row(name: str, verdict: Verdict) -> GateRow:
    return GateRow(
        name, verdict.status, verdict.observed_text, verdict.limit_text, verdict.evidence_text
    )


def _prompts_row(name: str, verdicts: list[Verdict]) -> GateRow:
    passed = sum(verdict.status == "passed" for verdict in verdicts)
    found = {verdict.status for verdict in verdicts}
    status: Status = next(s for s in ("failed", "inconclusive", "passed", "skipped") if s in found)
    limit = verdicts[0].limit_text
    tokens = sum(verdict.samples for verdict in verdicts)
    return GateRow(
        name,
        status,
        f"{passed} of {len(verdicts)} {limit if limit != '-' else 'passed'}",
        limit,
        f"{tokens:,} tokens",
    )

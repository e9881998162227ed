"""One page from a session: what the template shows, and the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...baseline.tables import CHANGES, FIGURES, NOTHING
from ...config.layers import DECODING_FIELDS
from ...files import write_whole
from ...gates.base import Status, Verdict
from ...measure.kinds import kind_rows
from ...text import gigabytes, shown_lines
from .. import words
from ..checklist import checklist
from ..session_report import WORST_FIRST, GateRow, MeasuredPair, SessionReport
from .differences import Difference, differences, failed_case
from .embedded import embedded
from .figures import pair_figures
from .plots import Plot, plots

MOST_BYTES = 4_900_000
_IN_FULL = 20  # failures of a gate, whose outputs are compared word by word
_LONG = 20  # rows; a longer list is folded
_MOST_ROWS = 5_000  # of prompts, a pair
_MOST_DRAWN = 6  # pairs


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed verdict with the outputs that differ, where there are some."""

    name: str
    verdict: Verdict
    reason: str
    observed: str | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class VerdictGroup:
    """All verdicts of one status; a long list is folded."""

    status: Status
    folded: bool
    rows: tuple[tuple[str, Verdict], ...]


@dataclass(frozen=True, slots=True)
class KindTable:
    """The prompts of one kind, a row each (and each k)."""

    kind: str
    prompts: int
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PairSection:
    """One pair: its models and options, its kinds of prompts, its plots."""

    title: str
    models: tuple[tuple[str, ...], ...]
    options: tuple[tuple[str, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kinds: tuple[KindTable, ...]
    rows_left_out: int
    plots: tuple[Plot, ...]
    notes: tuple[str, ...]


def write_html(report: SessionReport, path: Path) -> None:
    """Write the report.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    write_whole(path, page(report))


def page(report: SessionReport) -> str:
    """The whole file; its raw figures are cut where it would be larger than 5 MB."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        # outputs may hold what turns text around, or has no shape
        if isinstance(value, str) and not isinstance(value, Markup) and not value.isprintable():
            return shown_lines(value)
        return value

    environment = Environment(
        loader=PackageLoader("pytest_specgate.report.html", "."),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # plots are made here, of figures alone; nothing else goes into the page as it is
    environment.filters["markup"] = Markup
    template = environment.get_template("report.html.j2")
    mark = "@specgate-figures@"
    found = _context(report)
    without = template.render(**found, figures=mark, left_out=())
    size = len(without.encode("utf-8"))
    block = embedded(report, MOST_BYTES - size)
    if block.left_out:
        without = template.render(**found, figures=mark, left_out=block.left_out)
    before, _, after = without.rpartition(mark)
    return f"{before}{block.text}{after}"


def _context(report: SessionReport) -> dict[str, Any]:
    first, rest = _failures(report)
    rows = sorted(report.gate_rows(), key=lambda row: WORST_FIRST.index(row.status))
    return {
        "report": report,
        "recorded": report.environment.get("recorded_at", ""),
        "versions": words.versions(report.environment),
        "subtitle": _subtitle(report),
        "gates_header": words.GATES,
        "gates": rows,
        "counts": _counts(rows),
        "failures": first,
        "more_failures": rest,
        "undecided": [
            (words.undecided(report, v), v.advice)
            for v in report.whole_verdicts
            if v.status == "inconclusive" and not report.quiet
        ],
        "groups": list(_groups(report)),
        "baselines": [v for v in report.whole_verdicts if "compared" in v.evidence],
        "sweeps": [
            (v, words.sweep_table(v.evidence))
            for v in report.whole_verdicts
            if "candidates" in v.evidence
        ],
        "sweep_header": words.SWEEP,
        "qualities": [
            (v, words.quality_rows(v)) for v in report.whole_verdicts if words.quality_rows(v)
        ],
        "quality_header": words.QUALITY,
        "changes_header": CHANGES,
        "figures_header": FIGURES,
        "nothing_changed": NOTHING,
        "pairs": [_pair(report, number, pair) for number, pair in enumerate(report.measured)],
        "checklist": checklist(report),
        "facts": list(_facts(report.environment)),
        "distributions": sorted(
            map(_distribution, dict(report.environment.get("distributions", {})).items())
        ),
        "ends": words.ends(report),
    }


def _subtitle(report: SessionReport) -> str:
    """Target and draft, and how many pairs more."""
    pairs = [pair.inputs for pair in report.measured if pair.inputs.target and pair.inputs.draft]
    if not pairs:
        return "no pair was measured"
    first = pairs[0]
    assert first.target is not None
    assert first.draft is not None
    names = words.model_name(first.target, "target"), words.model_name(first.draft, "draft")
    more = f", and {len(pairs) - 1} more" if len(pairs) > 1 else ""
    return f"{names[0]} with the draft {names[1]}{more}"


def _counts(rows: list[GateRow]) -> list[tuple[Status, int]]:
    found = [(status, sum(row.status == status for row in rows)) for status in WORST_FIRST]
    return [(status, number) for status, number in found if number]


def _failures(report: SessionReport) -> tuple[list[Failure], list[Failure]]:
    """The first of each gate, in full, and the rest in short."""
    seen: Counter[str] = Counter()
    first: list[Verdict] = []
    rest: list[Verdict] = []
    for verdict in report.whole_verdicts:
        if verdict.status == "failed":
            (first if seen[verdict.gate] < _IN_FULL else rest).append(verdict)
            seen[verdict.gate] += 1
    return list(_told(report, first, least=False)), list(_told(report, rest, least=True))


def _told(report: SessionReport, failed: Iterable[Verdict], *, least: bool) -> Iterator[Failure]:
    for verdict in failed:
        case = failed_case(report, verdict) if verdict.gate == "parity" else None
        yield Failure(
            words.verdict_name(report, verdict),
            verdict,
            verdict.reason.removeprefix(f"{verdict.kind}: "),  # which stands before it
            words.observed(verdict),
            tuple(differences(case, least=least)) if case is not None else (),
        )


def _groups(report: SessionReport) -> Iterator[VerdictGroup]:
    for status in WORST_FIRST:
        rows = tuple(
            (words.verdict_name(report, v), v) for v in report.verdicts if v.status == status
        )
        if rows:
            yield VerdictGroup(status, len(rows) > _LONG, rows)


def _pair(report: SessionReport, number: int, pair: MeasuredPair) -> PairSection:
    inputs = pair.inputs
    header, rows = words.kind_table(kind_rows(pair.cases, inputs.num_draft_tokens))
    kinds, left_out = _kinds(pair)
    drawn = number < _MOST_DRAWN
    notes = [words.noise(pair.noise), words.spared(pair.trials, decided=report.decided)]
    if not drawn:
        notes.append(f"Plots are drawn of the first {_MOST_DRAWN} pairs.")
    return PairSection(
        title="" if len(report.measured) == 1 else f"Pair {number + 1} of {len(report.measured)}",
        models=tuple(_models(pair)),
        options=tuple(_options(pair)),
        header=tuple(header),
        rows=tuple(map(tuple, rows)),
        kinds=kinds,
        rows_left_out=left_out,
        plots=tuple(plots(pair_figures(pair, report.verdicts), f"pair{number + 1}"))
        if drawn
        else (),
        notes=tuple(note for note in notes if note),
    )


def _models(pair: MeasuredPair) -> Iterator[tuple[str, ...]]:
    for role in ("target", "draft"):
        ref = getattr(pair.inputs, role)
        info = getattr(pair.info, role) if pair.info else None
        if ref is None:
            continue
        known = (
            (gigabytes(info.bytes), f"{info.parameters:,}", words.dtype(info), info.revision or "-")
            if info
            else ("-",) * 4
        )
        yield role, ref.label, *known, info.digest[:12] if info else "-"


def _options(pair: MeasuredPair) -> Iterator[tuple[str, str]]:
    yield "num_draft_tokens", ", ".join(map(str, pair.inputs.num_draft_tokens))
    for name in DECODING_FIELDS:
        value = getattr(pair.inputs.decoding, name)
        if value not in (None, ()):
            yield name, str(value)
    if pair.inputs.chat_template_args:
        yield "chat_template_args", str(dict(pair.inputs.chat_template_args))
    yield "engine", pair.inputs.engine


def _kinds(pair: MeasuredPair) -> tuple[tuple[KindTable, ...], int]:
    """A table a kind of prompts, and how many rows there was no room for."""
    tables, room, left_out = [], _MOST_ROWS, 0
    for kind in dict.fromkeys(case.prompt.kind for case in pair.cases):
        cases = [case for case in pair.cases if case.prompt.kind == kind]
        named = [
            (case.prompt.id, row)
            for case in cases
            for row in kind_rows([case], pair.inputs.num_draft_tokens)
        ]
        header, body = words.kind_table([row for _, row in named])
        several = header[1] == "k"
        rows = [
            (name, *(cells[1:] if several else cells[2:]))
            for (name, _), cells in zip(named, body, strict=True)
        ]
        left_out += max(0, len(rows) - room)
        kept = rows[:room]
        room -= len(kept)
        if kept:
            columns = ("prompt", *(header[1:] if several else header[2:]))
            tables.append(KindTable(kind, len(cases), columns, tuple(kept)))
    return tuple(tables), left_out


def _facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if name in ("distributions", "recorded_at"):  # the header has the time
            continue
        if isinstance(value, Mapping):
            text = ", ".join(f"{key} {part}" for key, part in value.items())
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        elif name.endswith("_bytes") and isinstance(value, int | float):
            text, name = gigabytes(value), name.removesuffix("_bytes")
        else:
            text = "-" if value is None else str(value)
        yield name.replace("_", " "), text or "-"


def _distribution(item: tuple[str, Any]) -> str:
    return f"{item[0]} {item[1]}"

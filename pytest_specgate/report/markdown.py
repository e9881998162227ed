"""The report for issues, pull requests and the summary of a job, in GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..baseline.tables import CHANGES, FIGURES, NOTHING
from ..files import write_whole
from ..gates.base import Verdict
from ..gates.words import acceptance
from ..markdown_text import code_block, escaped, in_html, inline, table
from ..text import count, gigabytes
from . import words
from .checklist import checklist
from .session_report import SessionReport

_MOST_FAILURES = 20  # told in full; a comment on GitHub holds 65,536 characters
_MARKS = {"yes": "[x]", "no": "[ ]", "not measured": "[?]"}


def write_markdown(report: SessionReport, path: Path) -> None:
    """Write the report.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    write_whole(path, markdown(report))


def markdown(report: SessionReport) -> str:
    """The verdict first, then what was measured, what failed and why."""
    parts = [
        [f"## specgate: {report.status}"],
        _pairs(report),
        _gates(report),
        *(_baseline(v) for v in report.whole_verdicts if "compared" in v.evidence),
        *(_sweep(v) for v in report.whole_verdicts if "candidates" in v.evidence),
        _kinds(report),
        *_drafts(report),
        *(_quality(v) for v in report.whole_verdicts),
        *_failures(report),
        *_undecided(report),
        *_noise(report),
        _acceptance(report),
        _checklist(report),
        *([escaped(line)] for line in words.ends(report)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _pairs(report: SessionReport) -> list[str]:
    rows: list[Sequence[str]] = []
    for pair in report.measured:
        target, draft = pair.inputs.target, pair.inputs.draft
        if pair.info is None or target is None or draft is None:
            continue
        ks = ", ".join(map(str, pair.inputs.num_draft_tokens))
        for role, ref, info, k in (
            ("target", target, pair.info.target, ""),
            ("draft", draft, pair.info.draft, ks),
        ):
            name = words.model_name(ref, role)
            rows.append((role, name, gigabytes(info.bytes), words.dtype(info), k))
    lines = table(("pair", "model", "size", "dtype", "k"), rows) if rows else []
    known = words.versions(report.environment)
    return [*lines, *([""] if lines and known else []), *([escaped(known)] if known else [])]


def _gates(report: SessionReport) -> list[str]:
    rows = [(r.name, r.status, r.observed, r.limit, r.evidence) for r in report.gate_rows()]
    return ["### Gates", "", *table(words.GATES, rows)] if rows else []


def _baseline(verdict: Verdict) -> list[str]:
    """What changed, then each figure on both sides."""
    found = verdict.evidence
    lines = [f"### Against {inline(found['compared'])} ({inline(verdict.subject)})", ""]
    changes = [(c["name"], c["then"] or "-", c["now"] or "-") for c in found["changes"]]
    lines += table(CHANGES, changes) if changes else [NOTHING]
    figures = [
        (f["name"], f["status"], f["then"], f["now"], f["change"], f["limit"])
        for f in found["figures"]
    ]
    lines += ["", *table(FIGURES, figures)] if figures else []
    apart = found["not_comparable"]
    return [*lines, *([""] if apart else []), *(f"- not comparable: {inline(w)}" for w in apart)]


def _sweep(verdict: Verdict) -> list[str]:
    """The candidates, and what is recommended."""
    lines = ["### Sweep", "", *table(words.SWEEP, words.sweep_table(verdict.evidence))]
    said = [f"- {escaped(line)}" for line in verdict.details]
    return [*lines, *([""] if said else []), *said]


def _kinds(report: SessionReport) -> list[str]:
    rows = report.kind_rows()
    return ["### Kinds of prompts", "", *table(*words.kind_table(rows))] if rows else []


def _drafts(report: SessionReport) -> Iterator[list[str]]:
    """The ranking of a scan, and each draft at the k that was asked for."""
    header, rows = words.scan_table(report)
    if rows:
        yield ["### Drafts", "", words.SCANNED, "", *table(header, rows)]
    for verdict in report.verdicts:
        if verdict.gate == "scan" and verdict.status != "failed":
            yield _folded(verdict.subject, verdict.details)


def _acceptance(report: SessionReport) -> list[str]:
    """Acceptance whole, of each pair and k."""
    pairs = (pair for pair in report.measured if not pair.scanned)
    found = [acceptance(each) for pair in pairs for each in pair.acceptance()]
    return _folded("Acceptance", [line for lines in found for line in lines]) if found else []


def _folded(summary: str, lines: Sequence[str]) -> list[str]:
    head = ["<details>", f"<summary>{in_html(summary)}</summary>", ""]
    return [*head, *code_block(lines), "", "</details>"]


def _quality(verdict: Verdict) -> list[str]:
    rows = words.quality_rows(verdict)
    title = f"### Quality ({inline(verdict.subject)})"
    return [title, "", *table(words.QUALITY, rows)] if rows else []


def _failures(report: SessionReport) -> Iterator[list[str]]:
    failed = [verdict for verdict in report.whole_verdicts if verdict.status == "failed"]
    if failed:
        yield ["### Failed"]
    for verdict in failed[:_MOST_FAILURES]:
        name = in_html(words.verdict_name(report, verdict))
        lines = [
            "<details>",
            f"<summary><b>{name}</b>: {in_html(verdict.reason)}</summary>",
            "",
        ]
        if figures := words.observed(verdict):
            lines += [escaped(figures), ""]
        if verdict.details:
            lines += [*code_block(verdict.details), ""]
        lines += [f"- {escaped(line)}" for line in verdict.advice]
        yield [*lines, *([""] if verdict.advice else []), "</details>"]
    if more := len(failed[_MOST_FAILURES:]):
        yield [f"... and {count(more, 'verdict')} more: `--spec-report json:PATH` has them all."]


def _undecided(report: SessionReport) -> Iterator[list[str]]:
    undecided = [v for v in report.whole_verdicts if v.status == "inconclusive"]
    if undecided and not report.quiet:
        yield ["### Undecided"]
        yield [
            f"- {escaped(' '.join((words.undecided(report, verdict), *verdict.advice)))}"
            for verdict in undecided
        ]


def _noise(report: SessionReport) -> Iterator[list[str]]:
    for pair in report.measured:
        for line in (words.noise(pair.noise), words.spared(pair.trials, decided=report.decided)):
            if line:
                yield [escaped(line)]


def _checklist(report: SessionReport) -> list[str]:
    lines = [f"- {_MARKS[check.state]} {inline(check.text)}" for check in checklist(report)]
    return ["### Decision checklist", "", *lines]

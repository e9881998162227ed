"""The section after pytest's own summary: pure functions from a report to lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest

from ..baseline.tables import CHANGES, FIGURES, NOTHING
from ..gates.base import Verdict
from ..gates.words import acceptance
from ..measure.kinds import KindRow
from ..text import gigabytes, shown
from . import words
from .checklist import checklist
from .session_report import SessionReport

_LEAST_WIDTH = 80  # narrower terminals wrap by themselves
_LIMIT = 3  # its column in the gate table
_LONGEST_PART = 16  # of a limit that stays on one line
_JOIN = "\N{NO-BREAK SPACE}"


def explanation(name: str, verdict: Verdict) -> str:
    """A verdict in words: one sentence, the evidence, what to do.

    Args:
        name: of the item, such as ``parity[sum-02]``.
        verdict: usually failed.
    """
    # the sentence stays on one line: pytest's short summary shows the first line alone
    lines = [shown(f"{name} {verdict.status}: {verdict.reason}")]
    if figures := words.observed(verdict):
        lines.append(shown(f"  {figures}"))
    lines += [shown(f"  {line}") for line in verdict.details]
    for number, line in enumerate(verdict.advice):
        lines += textwrap.wrap(
            shown(line),
            78,
            initial_indent="  To do: " if number == 0 else "  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


_COLOURS = {"passed": "green", "failed": "red", "inconclusive": "yellow", "skipped": "yellow"}
_VERDICT = re.compile(rf"^(\S.*?  )({'|'.join(_COLOURS)})(?=  |$)")


def coloured(line: str, markup: Callable[..., str]) -> str:
    """A line of the gate table with its verdict in colour.

    Args:
        line: of the section.
        markup: ``TerminalWriter.markup``, which does nothing where colour is off.
    """
    return _VERDICT.sub(
        lambda row: row[1] + markup(row[2], **{_COLOURS[row[2]]: True}), line, count=1
    )


def summary_lines(report: SessionReport, width: int, *, whole: bool = False) -> list[str]:
    """The whole section, readable at 80 columns, all of specgate's own words in ASCII.

    Args:
        report: of the session.
        width: of the terminal.
        whole: show acceptance by position, quarter of the output and kind too.
    """
    width = max(width, _LEAST_WIDTH)
    lines = _environment(report, width)
    for verdict in report.whole_verdicts:
        if "compared" in verdict.evidence:
            lines += _against_baseline(verdict, width)
    if report.verdicts:
        lines += ["", *_gate_table(report, width)]
    for verdict in report.whole_verdicts:
        if "candidates" in verdict.evidence:
            lines += _sweep(verdict, width)
    rows = report.kind_rows()
    if rows:
        lines += ["", *_kind_table(rows, width)]
    lines += _scan(report, width)
    for pair in report.measured if whole else ():
        for found in () if pair.scanned else pair.acceptance():
            lines += ["", *_indented("acceptance", acceptance(found), width)]
    for verdict in report.whole_verdicts:
        if quality := words.quality_rows(verdict):
            title = shown(f"quality: outputs that pass every check ({verdict.subject})")
            lines += ["", title, "", *_table(words.QUALITY, _safe(quality), range(1, 5))]
    for pair in report.measured:
        for line in (words.noise(pair.noise), words.spared(pair.trials, decided=report.decided)):
            lines += ["", *_wrapped(line, width)] if line else []
    for verdict in report.whole_verdicts:
        if verdict.status == "inconclusive" and not report.quiet:
            lines += ["", *_wrapped(shown(words.undecided(report, verdict)), width)]
            for advice in verdict.advice:
                lines += _wrapped(f"  {shown(advice)}", width)
    for line in words.ends(report):
        lines += ["", line]
    return lines


def _scan(report: SessionReport, width: int) -> list[str]:
    """The drafts of a scan in a table, then each of them whole; failed ones were told before."""
    header, rows = words.scan_table(report)
    if not rows:
        return []
    columns = list(zip(header, *rows, strict=True))
    room = max(width - sum(max(map(len, column)) + 2 for column in columns[1:]), 8)
    named = [[_cut(shown(name), room), *cells] for name, *cells in rows]
    lines = ["", words.SCANNED, "", *_table(header, named, range(1, len(header)))]
    for verdict in report.verdicts:
        if verdict.gate == "scan" and verdict.status != "failed":
            lines += ["", *_indented(shown(verdict.subject), verdict.details, width)]
    return lines


def _indented(head: str, details: Sequence[str], width: int) -> list[str]:
    return [head, *(part for line in details for part in _wrapped(f"  {shown(line)}", width))]


_MARKS = {"yes": "[x]", "no": "[ ]", "not measured": "[?]"}


def checklist_lines(report: SessionReport, width: int) -> list[str]:
    """What is to be known before a pair is put to use, a line each."""
    lines = ["", "Decision checklist"]
    for check in checklist(report):
        line = shown(f"{_MARKS[check.state]} {check.text}")
        lines += textwrap.wrap(
            line,
            max(width, _LEAST_WIDTH),
            subsequent_indent=" " * 4,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _against_baseline(verdict: Verdict, width: int) -> list[str]:
    """What changed since the baseline, then each figure beside the stored one."""
    found = verdict.evidence
    lines = ["", shown(f"{verdict.gate} {found['compared']} ({verdict.subject})")]
    rows = [[c["name"], c["then"] or "-", c["now"] or "-"] for c in found["changes"]]
    if rows:
        names = max(len("what changed"), *(len(shown(row[0])) for row in rows))
        room = max((width - names - 4) // 2, 8)
        rows = [[name, *(_cut(cell, room) for cell in cells)] for name, *cells in _safe(rows)]
        lines += ["", *_table(CHANGES, rows, ())]
    else:
        lines.append(NOTHING)
    figures = [
        [f["name"], f["status"], f["then"], f["now"], f["change"].split(" [")[0], f["limit"]]
        for f in found["figures"]
    ]
    if figures:
        figures = _safe(figures)
        columns = list(zip(FIGURES, *figures, strict=True))[1:]
        room = max(width - sum(max(map(len, column)) + 2 for column in columns), 8)
        figures = [[_cut(name, room), *cells] for name, *cells in figures]
        lines += ["", *_table(FIGURES, figures, ())]
    for reason in found["not_comparable"]:
        lines += _wrapped(shown(f"not comparable: {reason}"), width)
    return lines


def _sweep(verdict: Verdict, width: int) -> list[str]:
    """The candidates of a sweep, and what is recommended."""
    rows = _safe(words.sweep_table(verdict.evidence))
    lines = ["", *_table(words.SWEEP, rows, range(1, 8))]
    for line in verdict.details:
        lines += _wrapped(shown(line), width)
    return lines


def _safe(rows: list[list[str]]) -> list[list[str]]:
    return [[shown(cell) for cell in row] for row in rows]


def _wrapped(text: str, width: int) -> list[str]:
    indent = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _environment(report: SessionReport, width: int) -> list[str]:
    lines: list[str] = []
    for pair in report.measured:
        if pair.info is None or pair.inputs.target is None or pair.inputs.draft is None:
            continue
        ks = ", ".join(map(str, pair.inputs.num_draft_tokens))
        names = (
            words.model_name(pair.inputs.target, "target"),
            words.model_name(pair.inputs.draft, "draft"),
        )
        wide = max(map(len, names))
        for role, name, info, end in (
            ("target", names[0], pair.info.target, ""),
            ("draft", names[1], pair.info.draft, f"   k = {ks}"),
        ):
            size, dtype = gigabytes(info.bytes), words.dtype(info)
            line = f"{role:<7} {shown(name):<{wide}}  {size:>9}  {dtype}{end}"
            if not (pair.scanned and role == "target" and lines):  # one target, many drafts
                lines.append(line)
    if line := shown(words.versions(report.environment)):
        lines += _wrapped(line, width)
    return lines


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    from tabulate import tabulate

    # the header goes in as a row: tabulate would pad a real one by two more columns
    text = tabulate(
        [list(header), *(list(row) for row in rows)],
        tablefmt="plain",
        colalign=["right" if i in right else "left" for i in range(len(header))],
        disable_numparse=True,
    )
    return [line.rstrip() for line in str(text).splitlines()]


def _gate_table(report: SessionReport, width: int) -> list[str]:
    rows = [
        [shown(cell) for cell in (row.name, row.status, row.observed, row.limit, row.evidence)]
        for row in report.gate_rows()
    ]
    for row in rows:
        row[_LIMIT] = _joined_parts(row[_LIMIT])
    widths = [max(map(len, column)) for column in zip(words.GATES, *rows, strict=True)]
    longest = max(len(word) for row in rows for word in row[_LIMIT].split(" "))
    for column, least in ((4, 12), (_LIMIT, min(longest, _LONGEST_PART)), (2, 16), (0, 12)):
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = max(min(widths[column], least), widths[column] - max(over, 0))
    folded = []
    for row in rows:
        cells = [textwrap.wrap(cell, room) or [""] for cell, room in zip(row, widths, strict=True)]
        folded += [list(line) for line in zip_longest(*cells, fillvalue="")]
    return [line.replace(_JOIN, " ") for line in _table(words.GATES, folded, ())]


def _joined_parts(limits: str) -> str:
    """``<= 1.00x, <= 0.25 s`` with blanks that fold only behind a comma."""
    parts = limits.split(", ")
    return ", ".join(p.replace(" ", _JOIN) if len(p) < _LONGEST_PART else p for p in parts)


def _kind_table(rows: Sequence[KindRow], width: int) -> list[str]:
    header, body = words.kind_table(rows)
    columns = list(zip(header, *body, strict=True))
    room = max(width - sum(max(map(len, column)) + 2 for column in columns[1:]), 8)
    named = [[_cut(shown(kind), room), *cells] for kind, *cells in body]
    return _table(header, named, range(1, 8))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 2]}.."

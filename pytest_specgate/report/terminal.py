"""The section after pytest's own summary: pure functions from a report to lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ..config.plan import ModelRef
from ..engines.base import ModelInfo
from ..gates.base import Verdict
from ..measure.kinds import KindRow
from ..stats import NoiseFloor
from ..text import gigabytes, shown
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
    if verdict.limit_text not in ("-", "exact") and verdict.observed_text != "-":
        lines.append(shown(f"  observed {verdict.observed_text}, limit {verdict.limit_text}"))
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


def summary_lines(report: SessionReport, width: int) -> list[str]:
    """The whole section, readable at 80 columns, all of specgate's own words in ASCII."""
    width = max(width, _LEAST_WIDTH)
    lines = _environment(report, width)
    for verdict in report.whole_verdicts:
        if "baseline" in verdict.evidence:
            lines += _against_baseline(verdict, width)
    if report.verdicts:
        lines += ["", *_gate_table(report, width)]
    rows = report.kind_rows()
    if rows:
        lines += ["", *_kind_table(rows, width)]
    for pair in report.measured:
        lines += _noise(pair.noise, width) + _spared(pair.trials)
    for verdict in report.whole_verdicts:
        if verdict.status == "inconclusive" and not report.quiet:
            lines += ["", *_wrapped(shown(_undecided(report, verdict)), width)]
            for advice in verdict.advice:
                lines += _wrapped(f"  {shown(advice)}", width)
    if report.false_alarm:
        chance = f"{report.false_alarm:.1%}"
        lines += ["", f"Chance of a false alarm in this session: at most {chance}."]
    if report.status == "incomplete":
        lines += ["", "Interrupted: incomplete, this is what was measured until then."]
    elif report.status == "nothing judged":
        lines += ["", "No gate was judged."]
    return lines


def _against_baseline(verdict: Verdict, width: int) -> list[str]:
    """What changed since the baseline, then each figure beside the stored one."""
    found = verdict.evidence
    lines = ["", shown(f"baseline {found['baseline']} ({verdict.subject})")]
    rows = [[c["name"], c["then"] or "-", c["now"] or "-"] for c in found["changes"]]
    if rows:
        names = max(len("what changed"), *(len(shown(row[0])) for row in rows))
        room = max((width - names - 4) // 2, 8)
        rows = [[name, *(_cut(cell, room) for cell in cells)] for name, *cells in _safe(rows)]
        lines += ["", *_table(["what changed", "then", "now"], rows, ())]
    else:
        lines.append("nothing changed in environment, models, prompts and decoding")
    figures = [
        [f["name"], f["status"], f["then"], f["now"], f["change"].split(" [")[0], f["limit"]]
        for f in found["figures"]
    ]
    if figures:
        header = ["figure", "verdict", "stored", "now", "change", "limit"]
        figures = _safe(figures)
        columns = list(zip(header, *figures, strict=True))[1:]
        room = max(width - sum(max(map(len, column)) + 2 for column in columns), 8)
        figures = [[_cut(name, room), *cells] for name, *cells in figures]
        lines += ["", *_table(header, figures, ())]
    for reason in found["not_comparable"]:
        lines += _wrapped(shown(f"not comparable: {reason}"), width)
    return lines


def _safe(rows: list[list[str]]) -> list[list[str]]:
    return [[shown(cell) for cell in row] for row in rows]


def _noise(floor: NoiseFloor | None, width: int) -> list[str]:
    if floor is None:
        return []
    low, high = floor.ratio.interval
    least, most = (floor.drift.log + side * 1.96 * floor.drift.error for side in (-1, 1))
    text = (
        f"noise: plain against plain {floor.ratio.value:.2f}x [{low:.2f}, {high:.2f}], CV "
        f"{floor.variation:.1%} a trial, drift {floor.drift.log:+.2%} [{least:+.2%}, {most:+.2%}] "
        f"a round; the smallest slowdown that is found here: {floor.smallest_effect:.1%}"
    )
    return ["", *_wrapped(text, width)]


def _spared(trials: tuple[int, int]) -> list[str]:
    ran, most = trials
    if not 0 < ran < most:
        return []
    return ["", f"{ran:,} of at most {most:,} timed trials were run: rounds end once decided."]


def _undecided(report: SessionReport, verdict: Verdict) -> str:
    name = report.item_names.get(verdict.gate, verdict.gate).replace("_", " ")
    return f"{name} ({verdict.subject}) is undecided: {verdict.reason}."


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
    lines = []
    for pair in report.measured:
        if pair.info is None or pair.inputs.target is None or pair.inputs.draft is None:
            continue
        ks = ", ".join(map(str, pair.inputs.num_draft_tokens))
        names = (_model_name(pair.inputs.target, "target"), _model_name(pair.inputs.draft, "draft"))
        wide = max(map(len, names))
        for role, name, info, end in (
            ("target", names[0], pair.info.target, ""),
            ("draft", names[1], pair.info.draft, f"   k = {ks}"),
        ):
            lines.append(
                f"{role:<7} {shown(name):<{wide}}  {gigabytes(info.bytes):>9}  {_dtype(info)}{end}"
            )
    if line := _versions(report.environment):
        lines += _wrapped(line, width)
    return lines


def _model_name(ref: ModelRef, role: str) -> str:
    """The short name; with its folder where it only repeats the role."""
    if ref.short == role and ref.directory:
        return f"{ref.directory.parent.name}/{role}"
    return ref.short


def _dtype(info: ModelInfo) -> str:
    return f"{info.dtype}/{info.quantization}" if info.quantization else info.dtype


def _versions(environment: Mapping[str, Any]) -> str:
    versions = environment.get("versions", {})
    parts = [f"{name} {versions[name]}" for name in ("mlx", "mlx-lm") if name in versions]
    memory = environment.get("memory_bytes")
    parts += [str(environment[key]) for key in ("device", "os") if environment.get(key)]
    if memory:
        parts.append(f"{memory / 2**30:.0f} GiB")
    if "power" in environment:
        parts.append(f"on {environment['power']}")
    return shown(", ".join(parts))


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
    header = ("gate", "verdict", "observed", "limit", "evidence")
    rows = [
        [shown(cell) for cell in (row.name, row.status, row.observed, row.limit, row.evidence)]
        for row in report.gate_rows()
    ]
    for row in rows:
        row[_LIMIT] = _joined_parts(row[_LIMIT])
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    longest = max(len(word) for row in rows for word in row[_LIMIT].split(" "))
    for column, least in ((4, 12), (_LIMIT, min(longest, _LONGEST_PART)), (2, 16), (0, 12)):
        over = sum(widths) + 2 * (len(widths) - 1) - width
        widths[column] = max(min(widths[column], least), widths[column] - max(over, 0))
    folded = []
    for row in rows:
        cells = [textwrap.wrap(cell, room) or [""] for cell, room in zip(row, widths, strict=True)]
        folded += [list(line) for line in zip_longest(*cells, fillvalue="")]
    return [line.replace(_JOIN, " ") for line in _table(header, folded, ())]


def _joined_parts(limits: str) -> str:
    """``<= 1.00x, <= 0.25 s`` with blanks that fold only behind a comma."""
    parts = limits.split(", ")
    return ", ".join(p.replace(" ", _JOIN) if len(p) < _LONGEST_PART else p for p in parts)


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _kind_table(rows: Sequence[KindRow], width: int) -> list[str]:
    several = len({row.num_draft_tokens for row in rows}) > 1
    second = "k" if several else "prompts"
    header = [
        "kind",
        second,
        "plain tok/s",
        "spec tok/s",
        "speedup",
        "accepted",
        "mean len",
        "TTFT",
    ]
    body = [
        [
            str(row.num_draft_tokens if several else row.prompts),
            _figure(row.plain_tokens_per_s, ".1f"),
            _figure(row.speculative_tokens_per_s, ".1f"),
            _figure(row.speedup, ".2f"),
            _figure(row.acceptance_rate, ".2f"),
            _figure(row.mean_accept_length, ".2f"),
            "-" if row.ttft_s is None else f"{row.ttft_s:.2f} s",
        ]
        for row in rows
    ]
    others = sum(max(map(len, column)) + 2 for column in zip(header[1:], *body, strict=True))
    room = max(width - others, 8)
    named = [[_cut(shown(row.kind), room), *cells] for row, cells in zip(rows, body, strict=True)]
    return _table(header, named, range(1, 8))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 2]}.."

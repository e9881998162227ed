"""Comparisons as lines: for a terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..markdown_text import inline, table
from ..text import count, gigabytes, shown
from .compare import Compared
from .document import Baseline

CHANGES = ("what changed", "before", "after")
FIGURES = ("figure", "verdict", "before", "after", "change", "limit")
NOTHING = "nothing changed in environment, models, prompts and decoding"


def change_rows(compared: Compared) -> list[list[str]]:
    """A row a fact that differs."""
    return [[shown(c.name), shown(c.then or "-"), shown(c.now or "-")] for c in compared.changes]


def figure_rows(compared: Compared) -> list[list[str]]:
    """A row a figure."""
    return [
        [shown(cell) for cell in (f.name, f.status, f.then, f.now, f.change, f.limit)]
        for f in compared.figures
    ]


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two spaces apart."""
    from tabulate import tabulate

    text = tabulate([list(header), *map(list, rows)], tablefmt="plain", disable_numparse=True)
    return [line.rstrip() for line in text.splitlines()]


def compared_lines(compared: Compared, title: str) -> list[str]:
    """What changed first, so that cause stands beside effect; then the figures."""
    lines = [shown(title), ""]
    rows = change_rows(compared)
    lines += plain_table(CHANGES, rows) if rows else [NOTHING]
    if compared.figures:
        lines += ["", *plain_table(FIGURES, figure_rows(compared))]
    lines += ["", *(f"not comparable: {shown(reason)}" for reason in compared.apart)]
    lines += [
        f"{figure.name} {figure.status}: {shown(figure.reason)}"
        for figure in compared.figures
        if figure.status in ("failed", "inconclusive")
    ]
    return lines


def markdown_of(compared: Compared, title: str) -> list[str]:
    """The same for an issue, a pull request or a job's summary."""
    lines = [f"### {inline(title)}", ""]
    rows = change_rows(compared)
    lines += table(CHANGES, rows) if rows else [NOTHING]
    if compared.figures:
        lines += ["", *table(FIGURES, figure_rows(compared))]
    lines += ["", *(f"- **not comparable**: {inline(reason)}" for reason in compared.apart)]
    lines += [
        f"- **{inline(figure.name)} {figure.status}**: {inline(figure.reason)}"
        for figure in compared.figures
        if figure.status in ("failed", "inconclusive")
    ]
    return lines


def shown_baseline(baseline: Baseline) -> list[str]:
    """What a file holds, at a glance."""
    versions = baseline.environment.get("versions")
    known: Mapping[str, object] = versions if isinstance(versions, Mapping) else {}
    lines = [
        f"recorded  {baseline.environment.get('recorded_at', 'unknown')}",
        f"versions  {', '.join(f'{name} {version}' for name, version in known.items())}",
        f"machine   {baseline.environment.get('chip', 'unknown')}",
    ]
    for role, model in baseline.models.items():
        size = model.get("bytes")
        bytes_text = gigabytes(size) if type(size) is int and 0 < size < 2**60 else "unknown size"
        lines.append(f"{role:<9} {model.get('name')}  {bytes_text}  digest {model['digest']:.12}")
    arms = sorted({name for case in baseline.cases.values() for name in case.arms})
    trials = sum(len(arm.trials) for case in baseline.cases.values() for arm in case.arms.values())
    lines += [
        f"prompts   {len(baseline.cases)} ({baseline.prompts_digest}), arms {', '.join(arms)}",
        f"trials    {trials:,}",
        f"verdicts  {count(len(baseline.verdicts), 'verdict')}",
    ]
    rows = [
        [str(v.get(key, "-")) for key in ("gate", "subject", "status", "observed", "limit")]
        for v in baseline.verdicts
    ]
    return [*map(shown, lines), *(shown(f"          {' '.join(row)}") for row in rows)]

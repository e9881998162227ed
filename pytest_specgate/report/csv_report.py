"""The timed trials as a table for other programs: a row a trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from ..files import write_whole
from .session_report import SessionReport

COLUMNS = (
    *("pair", "target", "draft", "prompt", "kind", "arm", "round", "tokens"),
    *("ttft_s", "decode_s", "e2e_s", "decode_tokens_per_s", "peak_memory_bytes", "accepted"),
)


def write_csv(report: SessionReport, path: Path) -> None:
    """Write the trials as RFC 4180 has it: CR LF ends a row, what is not there is empty.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(_rows(report))
    # half a surrogate pair has no UTF-8
    write_whole(path, text.getvalue().encode("utf-8", "backslashreplace").decode("utf-8"))


def _rows(report: SessionReport) -> Iterator[tuple[object, ...]]:
    """Pairs are numbered from 1: one may be measured with several sets of options."""
    for number, pair in enumerate(report.measured, start=1):
        names = [ref.label if ref else None for ref in (pair.inputs.target, pair.inputs.draft)]
        for case in pair.cases:
            for arm, evidence in case.arms.items():
                for trial in evidence.trials:
                    yield (
                        *(number, *names, case.prompt.id, case.prompt.kind, arm),
                        *(trial.round, trial.tokens),
                        *(trial.ttft_s, trial.decode_s, trial.e2e_s, trial.decode_tokens_per_s),
                        *(trial.peak_memory_bytes, trial.accepted),
                    )

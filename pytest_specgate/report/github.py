"""Within GitHub Actions: the summary of the job, and failures at their line. Elsewhere nothing."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..gates.base import Verdict
from ..text import shown
from . import words
from .markdown import markdown
from .session_report import SessionReport


def add_to_summary(report: SessionReport, environ: Mapping[str, str]) -> str | None:
    """Append the Markdown report where the job's summary is gathered.

    Returns:
        What there is to say of it; None outside GitHub.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return None
    text = markdown(report).encode("utf-8")
    try:
        with Path(path).open("ab") as file:  # other steps' text may lack its last line end
            file.write(b"\n" + text)
    except OSError as error:
        return f"the job's summary could not be written: {error}"
    return "the report is in the job's summary"


def error_lines(report: SessionReport, root: Path, environ: Mapping[str, str]) -> list[str]:
    """A workflow command for each failed verdict; none outside GitHub.

    Args:
        report: its places are relative to root.
        root: the rootdir of pytest.
        environ: of the process.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        return []
    workspace = environ.get("GITHUB_WORKSPACE")
    base = Path(workspace) if workspace and root.is_relative_to(workspace) else root
    return [
        _command(report, verdict, dict(_where(report.places.get(verdict.item), root, base)))
        for verdict in report.whole_verdicts
        if verdict.status == "failed"
    ]


def _where(
    place: tuple[str, int | None] | None, root: Path, base: Path
) -> Iterator[tuple[str, str]]:
    """File and line from 1; nothing for a file outside the checkout, such as the built-in gates."""
    if place is None:
        return
    file = Path(os.path.normpath(root / place[0]))
    if not file.is_relative_to(base):
        return
    yield "file", file.relative_to(base).as_posix()
    if place[1] is not None:
        yield "line", str(place[1] + 1)


def _command(report: SessionReport, verdict: Verdict, properties: dict[str, str]) -> str:
    lines = [verdict.reason, words.observed(verdict), *verdict.advice]
    message = "\n".join(shown(line) for line in lines if line)
    properties["title"] = shown(f"specgate: {words.verdict_name(report, verdict)} failed")
    parts = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {parts}::{_data(message)}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes a message."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """As it escapes a property, which ends at a colon or a comma."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")

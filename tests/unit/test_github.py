"""Within GitHub Actions: lines that GitHub reads. Outside: none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_specgate.gates.base import Verdict
from pytest_specgate.report.github import add_to_summary, error_lines
from pytest_specgate.report.markdown import markdown
from pytest_specgate.report.session_report import SessionReport

from .test_reports import FAILURE, SPEEDUP, make_report

ROOT = Path("/checkout/sub")
GITHUB = {"GITHUB_ACTIONS": "true"}
SLOW = replace(
    SPEEDUP,
    status="failed",
    reason="too slow by 10%:\r\n really, yes",
    observed_text="1.05x",
    advice=("Try another draft.",),
    item="gates.yaml::speedup",
)


def report_of(*verdicts: Verdict, place: tuple[str, int | None] | None = None) -> SessionReport:
    """A session in which each of these was asked for at one place."""
    places = {verdict.item: place for verdict in verdicts} if place else {}
    return make_report(*verdicts, places=places)


def test_a_failure_at_its_line() -> None:
    """Lines from 1; %, line ends, colons and commas as GitHub wants them."""
    (line,) = error_lines(report_of(SPEEDUP, SLOW, place=("gates.yaml", 6)), ROOT, GITHUB)
    assert line == (
        "::error file=gates.yaml,line=7,title=specgate%3A speedup (k=3) failed::"
        "too slow by 10%25:\\r\\n really, yes%0Aobserved 1.05x, limit >= 1.15x%0ATry another draft."
    )


def test_properties_are_escaped() -> None:
    """They end at a colon or a comma."""
    odd = replace(FAILURE, subject="a:b,c%", item="x")
    (line,) = error_lines(report_of(odd, place=("a,b%.yaml", 0)), ROOT, GITHUB)
    assert line.startswith(
        "::error file=a%2Cb%25.yaml,line=1,title=specgate%3A parity[a%3Ab%2Cc%25] failed::"
    )


@pytest.mark.parametrize(
    ("place", "workspace", "where"),
    [
        (("gates.yaml", None), None, "file=gates.yaml,"),
        (("gates.yaml", 6), "/checkout", "file=sub/gates.yaml,line=7,"),
        (("../gates.yaml", 6), "/checkout", "file=gates.yaml,line=7,"),
        (("gates.yaml", 6), "/elsewhere", "file=gates.yaml,line=7,"),
        (("../../env/gates.yaml", 6), "/checkout", ""),
        (("/env/gates.yaml", 6), None, ""),
        (None, None, ""),
    ],
)
def test_files(place: tuple[str, int | None] | None, workspace: str | None, where: str) -> None:
    """Relative to the checkout; the built-in gates are in none."""
    environ = {**GITHUB, **({"GITHUB_WORKSPACE": workspace} if workspace else {})}
    (line,) = error_lines(report_of(SLOW, place=place), ROOT, environ)
    assert line.startswith(f"::error {where}title=")


def test_a_part_is_not_told_beside_its_whole() -> None:
    """Findings and figures stand in the verdict that sums them up."""
    part = replace(SLOW, evidence={"figure": "speedup"})
    assert error_lines(report_of(part), ROOT, GITHUB) == []


@pytest.mark.parametrize("environ", [{}, {"GITHUB_ACTIONS": ""}, {"GITHUB_ACTIONS": "false"}])
def test_outside_github(environ: dict[str, str]) -> None:
    """Nothing."""
    assert error_lines(report_of(SLOW), ROOT, environ) == []
    assert add_to_summary(report_of(SLOW), {**environ, "GITHUB_STEP_SUMMARY": ""}) is None
    assert add_to_summary(report_of(SLOW), environ) is None


def test_the_summary_is_appended(tmp_path: Path) -> None:
    """Behind what other steps have written, whose last line may have no end."""
    path, report = tmp_path / "summary", report_of(SLOW)
    path.write_text("# tests", encoding="utf-8")
    assert add_to_summary(report, {"GITHUB_STEP_SUMMARY": str(path)}) is not None
    assert path.read_text(encoding="utf-8") == f"# tests\n{markdown(report)}"


def test_a_summary_that_cannot_be_written(tmp_path: Path) -> None:
    """Is said; nobody asked for it, so the session stays what it is."""
    note = add_to_summary(report_of(SLOW), {"GITHUB_STEP_SUMMARY": str(tmp_path)})
    assert note is not None
    assert note.startswith("the job's summary could not be written: ")

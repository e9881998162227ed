"""The table of trials: a row each, exact figures, any text."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from pytest_specgate.report.csv_report import write_csv
from pytest_specgate.report.session_report import SessionReport
from tests.fakes import make_arm, make_case, timed_case

from .test_reports import make_report

HEADER = (
    "pair,target,draft,prompt,kind,arm,round,tokens,ttft_s,decode_s,e2e_s,decode_tokens_per_s,"
    "peak_memory_bytes,accepted"
)
PAIR = "1,mlx-community/Qwen2.5-7B-Instruct-4bit,mlx-community/Qwen2.5-0.5B-Instruct-4bit"


def rows(report: SessionReport, path: Path) -> list[dict[str, str]]:
    """What a reader of CSV finds."""
    write_csv(report, path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_a_trial(tmp_path: Path) -> None:
    """Seconds, bytes and tokens as they were measured; accepted is empty on the plain path."""
    ours = make_arm(3, [0.5])
    ours = replace(ours, trials=tuple(replace(trial, accepted=2) for trial in ours.trials))
    case = make_case("a", make_arm(None, [2.0, 4.0]), ours, kind="json")
    write_csv(make_report(cases=(case,)), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes().decode().split("\r\n") == [
        HEADER,
        f"{PAIR},a,json,plain,1,4,0.5,1.5,2.0,2.0,10000000000,",
        f"{PAIR},a,json,plain,2,4,1.0,3.0,4.0,1.0,10000000000,",
        f"{PAIR},a,json,k=3,1,4,0.125,0.375,0.5,8.0,10000000000,2",
        "",
    ]


def test_pairs_are_numbered(tmp_path: Path) -> None:
    """One pair with two sets of options is two."""
    report = make_report(cases=(timed_case("a", [1.0], [0.5]),))
    twice = replace(report, measured=report.measured * 2)
    found = rows(twice, tmp_path / "out.csv")
    assert [(row["pair"], row["arm"]) for row in found] == [
        ("1", "plain"),
        ("1", "k=3"),
        ("2", "plain"),
        ("2", "k=3"),
    ]


def test_any_text_is_one_field(tmp_path: Path) -> None:
    """Line ends of both kinds, quotes, commas; half a surrogate pair as its escape."""
    odd = 'a\nb\r\nc\rd, "e" = 水'
    case = timed_case(odd, [1.0], [0.5], kind="half \ud800")
    for row in rows(make_report(cases=(case,)), tmp_path / "out.csv"):
        assert row["prompt"] == odd
        assert row["kind"] == "half \\ud800"


def test_figures_that_are_not_there(tmp_path: Path) -> None:
    """Empty, not a zero; without any trial the header alone."""
    case = timed_case("a", [1.0], [1.0], tokens=(1,), flags=[True], peak=None)
    for row in rows(make_report(cases=(case,)), tmp_path / "out.csv"):
        assert row["decode_s"] == row["decode_tokens_per_s"] == row["peak_memory_bytes"] == ""
        assert row["e2e_s"] == "1.0"
    assert rows(make_report(measured=()), tmp_path / "out.csv") == []

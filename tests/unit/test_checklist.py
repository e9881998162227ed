"""The decision checklist: each line ticked, crossed, and not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding
from pytest_specgate.gates.base import Verdict
from pytest_specgate.prompts import builtin
from pytest_specgate.report.checklist import Check, checklist
from pytest_specgate.report.json_report import report_document
from pytest_specgate.report.session_report import SessionReport
from pytest_specgate.report.terminal import checklist_lines
from tests.fakes import GB, make_arm, make_case, pair_info, timed_case

from .test_reports import LATENCY, MEMORY, PARITY, SPEEDUP, TARGET, make_report

PREFLIGHT = Verdict("preflight", "pair", "passed", "nothing found", samples=10)
NAMES = (
    "tokenizers equal",
    "draft clearly smaller, acceptance not poor",
    "plain baseline warm and repeated",
    "sweep over num_draft_tokens",
    "TTFT, decode and e2e apart",
    "memory and swap safe",
    "greedy parity",
    "quality of sampled tasks",
    "median and p95 better on the real prompt mix",
    "baseline stored for the next upgrade",
)
TOKENIZERS, DRAFT, PLAIN, SWEEP, TIMES, SAFE, GREEDY, QUALITY, FASTER, STORED = NAMES
FAST = replace(LATENCY, status="passed")
SAFE_MEMORY = replace(MEMORY, evidence={"swap_growth_bytes": 0})
SWEPT = (
    make_case(
        "a",
        make_arm(None, [1.6] * 5),
        *(make_arm(k, [0.8] * 5, flags=[True, True, True, False]) for k in (1, 3, 5)),
    ),
)


def finding(subject: str, severity: str) -> Verdict:
    """A part of the pre-flight verdict."""
    evidence = {"severity": severity, "prompt": None}
    return Verdict("preflight", subject, "passed", f"{subject} is odd", evidence=evidence)


def on_engine(report: SessionReport, **inputs: Any) -> SessionReport:
    """The same with other inputs of its one pair."""
    (pair,) = report.measured
    changed = replace(pair, inputs=replace(pair.inputs, **{"engine": "mlx-lm", **inputs}))
    return replace(report, measured=(changed,))


def line(report: SessionReport, name: str) -> Check:
    """One line by its name."""
    (found,) = (check for check in checklist(report) if check.name == name)
    return found


ALL = (PREFLIGHT, *PARITY, SPEEDUP, FAST, SAFE_MEMORY)

GOLDEN = """
Decision checklist
[x] tokenizers equal: 10 checks
[x] draft clearly smaller, acceptance not poor: 1.00 GB against 8.00 GB,
    acceptance 1.000
[x] plain baseline warm and repeated: 5 rounds after a warm-up
[x] sweep over num_draft_tokens: k = 1, 3, 5
[x] TTFT, decode and e2e apart: from one clock, on both paths
[x] memory and swap safe: 10.80 GB (draft +1.80 GB), swap +0.0 MB
[x] greedy parity: 3 prompts, token for token
[?] quality of sampled tasks: not measured, the gate quality, with
    decoding.temperature above 0, measures it
[x] median and p95 better on the real prompt mix: k=3
[x] baseline stored for the next upgrade: main
"""


def test_all_that_can_be_ticked() -> None:
    """Every line, folded at 80 columns."""
    report = on_engine(make_report(*ALL, cases=SWEPT, stored="main"))
    assert "\n".join(checklist_lines(report, 80)) + "\n" == GOLDEN


def test_an_empty_session_has_measured_nothing() -> None:
    """And every line says what would."""
    report = make_report(measured=(), status="nothing judged")
    checks = checklist(report)
    assert [check.name for check in checks] == list(NAMES)
    assert {check.state for check in checks} == {"not measured"}
    assert [check.note for check in checks] == [
        "the gate preflight measures it",
        "the gate acceptance measures it",
        "the gate speedup measures it",
        "--spec-num-draft-tokens 1,2,3,5,8 with the gate speedup measures it",
        "the gate speedup measures it",
        "the gate memory measures it",
        "the gate parity measures it",
        "the gate quality, with decoding.temperature above 0, measures it",
        "the gates speedup and latency measure it",
        "--spec-save-baseline NAME stores it",
    ]


@pytest.mark.parametrize(
    ("parts", "engine", "state", "note"),
    [
        ([finding("draft tokenizer", "note")], "mlx-lm", "yes", "10 checks"),
        ([finding("draft tokenizer", "error")], "mlx-lm", "no", "draft tokenizer is odd"),
        ([finding("same ids", "warning")], "mlx-lm", "not measured", "same ids is odd"),
        ([finding("isolated pair", "note")], "mlx-lm", "not measured", "--spec-isolate"),
        ([], "other", "not measured", "the engine other shows no tokenizers"),
    ],
)
def test_tokenizers(parts: list[Verdict], engine: str, state: str, note: str) -> None:
    """Ticked only where they were compared."""
    report = on_engine(make_report(PREFLIGHT, *parts), engine=engine)
    found = line(report, TOKENIZERS)
    assert found.state == state
    assert note in found.note


def test_a_preflight_that_broke_compared_nothing() -> None:
    """The pair could not be loaded."""
    broken = Verdict("preflight", "pair", "failed", "no such model")
    found = line(on_engine(make_report(broken)), TOKENIZERS)
    assert (found.state, found.note) == ("not measured", "no such model")


def test_a_draft_that_is_not_smaller() -> None:
    """More than half of the target's bytes, or the target itself."""
    report = make_report(cases=SWEPT)
    info = pair_info()
    large = replace(info, draft=replace(info.draft, bytes=5 * GB))
    measured = (replace(report.measured[0], info=large),)
    found = line(replace(report, measured=measured), DRAFT)
    assert (found.state, found.note) == ("no", "5.00 GB against 8.00 GB")
    itself = on_engine(report, target=TARGET, draft=TARGET)
    assert line(itself, DRAFT).note == "the draft is the target itself"


def test_poor_acceptance() -> None:
    """By its gate where that judged, else by the gate's default, at the k that has most of it."""
    poor = (timed_case("a", [1.6] * 5, [0.8] * 5),)
    found = line(make_report(cases=poor), DRAFT)
    assert found.state == "no"
    assert found.note.startswith("0.400 of the proposed tokens are accepted")
    passed = Verdict("acceptance", "k=3", "passed", "acceptance rate 0.400")
    failed = replace(passed, status="failed", reason="too few")
    assert line(make_report(passed, cases=poor), DRAFT).state == "yes"
    assert line(make_report(failed, cases=SWEPT), DRAFT).note == "too few"
    at_k5 = replace(failed, subject="k=5")
    assert line(make_report(passed, at_k5, cases=SWEPT), DRAFT).state == "yes"


def test_rounds_of_the_plain_path() -> None:
    """One is no repetition."""
    once = (timed_case("a", [1.6], [0.8]),)
    assert line(make_report(cases=once), PLAIN).state == "no"
    untimed = (timed_case("a", [], []),)
    assert line(make_report(cases=untimed), PLAIN).state == "not measured"


def test_two_k_are_no_sweep() -> None:
    """Nor are three that were not timed."""
    for seconds, ks in (([0.8] * 5, (1, 3)), ([], (1, 3, 5))):
        arms = [make_arm(k, seconds) for k in ks]
        cases = (make_case("a", make_arm(None, [1.6] * 5), *arms),)
        assert line(make_report(cases=cases), SWEEP).state == "not measured"


def test_single_tokens_have_no_decode() -> None:
    """So the three are not apart."""
    case = timed_case("a", [1.0] * 5, [1.0] * 5, tokens=(1,), flags=[True])
    assert line(make_report(cases=(case,)), TIMES).state == "no"


@pytest.mark.parametrize(
    ("verdict", "state", "note"),
    [
        (replace(SAFE_MEMORY, status="failed", reason="swap grew"), "no", "swap grew"),
        (
            replace(SAFE_MEMORY, status="inconclusive", reason="no round"),
            "not measured",
            "no round",
        ),
        (replace(SAFE_MEMORY, evidence={}), "not measured", "swap is not known"),
    ],
)
def test_memory(verdict: Verdict, state: str, note: str) -> None:
    """A pass without a look at swap is none."""
    found = line(make_report(verdict), SAFE)
    assert found.state == state
    assert note in found.note


def test_parity() -> None:
    """Prompts that failed are counted once; near ties that were let through are no equality."""
    failed = replace(PARITY[0], status="failed")
    found = line(make_report(failed, *PARITY), GREEDY)
    assert (found.state, found.note) == ("no", "1 of 3 prompts failed")
    ties = replace(PARITY[0], evidence={"near_ties": 2})
    found = line(make_report(ties, *PARITY[1:]), GREEDY)
    assert (found.state, found.note) == ("no", "2 near ties let through")
    skipped = replace(PARITY[0], status="inconclusive", reason="out of time")
    found = line(make_report(skipped, *PARITY[1:]), GREEDY)
    assert (found.state, found.note) == ("not measured", "out of time")


@pytest.mark.parametrize("inputs", [{"decoding": Decoding(temperature=0.7)}, {"parity": "scored"}])
def test_what_is_not_greedy_parity(inputs: dict[str, Any]) -> None:
    """Sampled outputs, and those that no plain output was compared with."""
    report = on_engine(make_report(*PARITY), **inputs)
    assert line(report, GREEDY).state == "not measured"


def test_faster_takes_both_figures_at_one_k() -> None:
    """A sweep may have slow ends."""
    slow = replace(SPEEDUP, status="failed", reason="slow", subject="k=5")
    found = line(make_report(SPEEDUP, FAST, slow, replace(FAST, subject="k=5")), FASTER)
    assert (found.state, found.note) == ("yes", "k=3")
    found = line(make_report(slow, replace(FAST, subject="k=5")), FASTER)
    assert (found.state, found.note) == ("no", "slow")
    found = line(make_report(SPEEDUP, LATENCY), FASTER)
    assert found.state == "not measured"
    assert found.note.startswith("latency is undecided")
    assert line(make_report(SPEEDUP), FASTER).note == "the gate latency measures it"


def test_built_in_prompts_are_nobody_s_mix() -> None:
    """However fast they are."""
    (prompt, *_) = builtin("core") or ()
    case = replace(timed_case("a", [1.6] * 5, [0.8] * 5), prompt=prompt)
    found = line(make_report(SPEEDUP, FAST, cases=(case,)), FASTER)
    assert found.state == "not measured"
    assert "--spec-prompts FILE" in found.note


def test_an_earlier_baseline() -> None:
    """Compared with it, it is there; where it could not be read, it is not."""
    judged = Verdict("baseline", "k=3", "failed", "slower", evidence={"compared": "main"})
    found = line(make_report(judged), STORED)
    assert (found.state, found.note) == ("yes", "main, of an earlier session")
    missing = Verdict("baseline", "k=3", "failed", "no such file")
    assert line(make_report(missing), STORED).state == "not measured"


def test_it_stands_in_the_json_report() -> None:
    """Name, state and note of every line."""
    document = report_document(make_report(*PARITY))
    assert [check["name"] for check in document["checklist"]] == list(NAMES)
    assert document["checklist"][6] == {
        "name": GREEDY,
        "state": "yes",
        "note": "3 prompts, token for token",
    }
    assert document["checklist"][7]["state"] == "not measured"

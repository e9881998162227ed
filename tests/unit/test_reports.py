"""Reports from made-up sessions: exact lines, exact keys, files that are whole or not there."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.build import Builder
from pytest_specgate.config.options import Options
from pytest_specgate.config.plan import Decoding, Inputs, ModelRef, Prompt
from pytest_specgate.config.spec import ConfigError
from pytest_specgate.files import file_stem, write_whole
from pytest_specgate.gates import builtin_gates
from pytest_specgate.gates.base import Status, Verdict
from pytest_specgate.measure.evidence import CaseEvidence
from pytest_specgate.prompts import builtin
from pytest_specgate.report.json_report import report_document, write_json
from pytest_specgate.report.junit import properties
from pytest_specgate.report.session_report import (
    MeasuredPair,
    SessionReport,
    SessionStatus,
    session_status,
)
from pytest_specgate.report.terminal import explanation, summary_lines
from pytest_specgate.saved_case import read_case, save_case
from tests.fakes import (
    failed_case,
    make_arm,
    make_case,
    make_inputs,
    pair_info,
    timed_case,
)

ITEMS = {gate.name: gate.item for gate in builtin_gates()}
ENVIRONMENT: Mapping[str, Any] = {
    "versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2", "pytest": "9"},
    "device": "GPU of paper",
    "os": "macOS 26.2",
    "memory_bytes": 36 * 2**30,
    "power": "mains",
}
TARGET = ModelRef("mlx-community/Qwen2.5-7B-Instruct-4bit")
DRAFT = ModelRef("mlx-community/Qwen2.5-0.5B-Instruct-4bit")

# four tokens a trial: seconds a token are 0.4, 0.8 and 0.4 plain, 0.2, 0.2 and 0.1 speculative
EXPLAIN_1 = timed_case("zh-01", [1.6] * 5, [0.8] * 5, kind="explain")
EXPLAIN_2 = timed_case("zh-02", [3.2] * 5, [0.8] * 5, kind="explain")
PYTHON = make_case(
    "py-01",
    make_arm(None, [1.6] * 5),
    make_arm(3, [0.4] * 5, flags=[True, True, True, False]),
    kind="python",
)

PARITY = [
    Verdict(
        "parity",
        name,
        "passed",
        "4 tokens equal",
        4.0,
        4.0,
        "tokens",
        4,
        observed_text="exact",
        limit_text="exact",
        evidence_text="4 tokens",
    )
    for name in ("zh-01", "zh-02", "py-01")
]
SPEEDUP = Verdict(
    "speedup",
    "k=3",
    "passed",
    "3.17x as fast",
    3.17,
    1.15,
    "x",
    15,
    (3.1, 3.25),
    "3.17x [3.10, 3.25]",
    ">= 1.15x",
    "3 prompts, 5 rounds",
)
LATENCY = Verdict(
    "latency",
    "k=3",
    "inconclusive",
    "p95 cannot be estimated from 15 trials in 5 rounds: it takes 60 trials an arm in at least 2 "
    "rounds",
    limit=1.0,
    unit="x",
    samples=15,
    observed_text="0.80 s (max of 15)",
    limit_text="<= 1.00x",
    evidence_text="15 trials an arm",
    advice=("With 3 prompts that is --spec-rounds 20; or give more prompts.",),
)
MEMORY = Verdict(
    "memory",
    "k=3",
    "passed",
    "peak 10.80 GB",
    10.8,
    None,
    "GB",
    15,
    observed_text="10.80 GB (draft +1.80 GB)",
    limit_text=">= 10% free",
    evidence_text="headroom 46%",
    evidence={"ratio": 1.2, "headroom": 0.46},
)
VERDICTS = (*PARITY, SPEEDUP, LATENCY, MEMORY)


def make_report(
    *verdicts: Verdict,
    status: SessionStatus = "inconclusive",
    cases: tuple[CaseEvidence, ...] = (EXPLAIN_1, EXPLAIN_2, PYTHON),
    ks: tuple[int, ...] = (3,),
    **more: Any,
) -> SessionReport:
    """A session on one pair."""
    prompts = tuple(case.prompt for case in cases)
    inputs = replace(make_inputs(prompts, *ks), target=TARGET, draft=DRAFT)
    report = SessionReport(
        status=status,
        environment=ENVIRONMENT,
        measured=(MeasuredPair(inputs, pair_info(), cases),),
        verdicts=verdicts,
        item_names=ITEMS,
    )
    return replace(report, **more)


# -- terminal --------------------------------------------------------------------------------------

GOLDEN = """\
target  Qwen2.5-7B-Instruct-4bit      8.00 GB  bfloat16/4-bit
draft   Qwen2.5-0.5B-Instruct-4bit    1.00 GB  bfloat16   k = 3
mlx 0.32.4, mlx-lm 0.32.2, GPU of paper, macOS 26.2, 36 GiB, on mains

gate         verdict       observed                   limit        evidence
parity       passed        3 of 3 exact               exact        12 tokens
speedup      passed        3.17x [3.10, 3.25]         >= 1.15x     3 prompts, 5
                                                                   rounds
latency p95  inconclusive  0.80 s (max of 15)         <= 1.00x     15 trials an
                                                                   arm
memory       passed        10.80 GB (draft +1.80 GB)  >= 10% free  headroom 46%

kind     prompts  plain tok/s  spec tok/s  speedup  accepted  mean len    TTFT
explain        2          1.9         5.0     3.00      0.40      1.00  0.20 s
python         1          2.5        10.0     4.00      1.00      3.00  0.10 s

latency p95 (k=3) is undecided: p95 cannot be estimated from 15 trials in 5
  rounds: it takes 60 trials an arm in at least 2 rounds.
  With 3 prompts that is --spec-rounds 20; or give more prompts.
"""


def test_the_section_at_80_columns() -> None:
    """Every line and every number.

    explain: plain 2.5 and 1.25 tok/s, median 1.875; speedup 2 and 4, median 3; each prompt has
    5 proposed and 2 accepted tokens in two blocks of one accepted token each. python: 3 of 3.
    """
    assert "\n".join(summary_lines(make_report(*VERDICTS), 80)) + "\n" == GOLDEN


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_too_long_and_all_is_ascii(width: int) -> None:
    """The default gates on a sweep of one k, decided and undecided."""
    lines = summary_lines(make_report(*VERDICTS), width)
    assert max(map(len, lines)) <= width
    assert all(line.isascii() for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_long_evidence_is_folded() -> None:
    """Into the last column, nothing lost."""
    words = "24 prompts of 4 kinds, 12 rounds"
    report = make_report(replace(SPEEDUP, evidence_text=words), MEMORY, cases=())
    lines = summary_lines(report, 80)
    start = next(i for i, line in enumerate(lines) if line.startswith("speedup"))
    column = lines[start - 1].index("evidence")
    folded = [lines[start][column:]]
    for line in lines[start + 1 :]:
        if line[:column].strip():
            break
        folded.append(line[column:])
    assert len(folded) > 1
    assert " ".join(folded) == words
    assert max(map(len, lines)) <= 80


def test_limits_fold_behind_a_comma_alone() -> None:
    """``<= 0.25 s`` stays whole, however little room there is."""
    limits = "<= 1.00x, <= 0.25 s, >= 10% free"
    report = make_report(
        replace(
            SPEEDUP, limit_text=limits, observed_text="observed " * 6, evidence_text="much " * 9
        )
    )
    lines = summary_lines(report, 80)
    start = next(i for i, line in enumerate(lines) if line.startswith("speedup"))
    begin, end = (lines[start - 1].index(word) for word in ("limit", "evidence"))
    column = [line[begin:end].strip() for line in lines[start : start + 3]]
    assert column == ["<= 1.00x,", "<= 0.25 s,", ">= 10% free"]
    assert max(map(len, lines)) <= 80
    assert all(line.isascii() for line in lines)


def test_a_limit_in_many_words_is_folded() -> None:
    """Of a gate of another plugin: the table keeps its width."""
    words = "at most one in a thousand tokens, and never two in a row"
    report = make_report(replace(SPEEDUP, limit_text=words, evidence_text="much " * 9))
    lines = summary_lines(report, 80)
    assert max(map(len, lines)) <= 80
    assert all(line.isascii() for line in lines)


def test_several_k_are_told_apart() -> None:
    """Rows carry their k in both tables."""
    both = [make_arm(k, [0.8] * 5) for k in (1, 5)]
    cases = (make_case("a", make_arm(None, [1.6] * 5), *both, kind="json"),)
    verdicts = [replace(SPEEDUP, subject=f"k={k}") for k in (1, 5)]
    report = make_report(*PARITY[:1], *verdicts, cases=cases, ks=(1, 5))
    assert [row.name for row in report.gate_rows()] == ["parity", "speedup k=1", "speedup k=5"]
    assert [(row.kind, row.num_draft_tokens) for row in report.kind_rows()] == [
        ("json", 1),
        ("json", 5),
    ]
    lines = summary_lines(report, 80)
    assert lines[1].endswith("   k = 1, 5")
    header, *kinds = (line.split() for line in lines[-3:])
    assert header[:2] == ["kind", "k"]
    assert [row[:2] for row in kinds] == [["json", "1"], ["json", "5"]]


def test_figures_that_are_not_there() -> None:
    """Before any round: a dash, not a zero."""
    case = make_case("a", make_arm(None), make_arm(3), kind="json")
    lines = summary_lines(make_report(PARITY[0], cases=(case,)), 80)
    assert lines[-1].split() == ["json", "1", "-", "-", "-", "0.40", "1.00", "-"]


def test_failed_prompts_stand_in_no_row() -> None:
    """They have no arms."""
    report = make_report(cases=(EXPLAIN_1, failed_case("a", "no kernel")))
    assert [(row.kind, row.prompts) for row in report.kind_rows()] == [("explain", 1)]


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ("incomplete", "Interrupted: incomplete, this is what was measured until then."),
        ("nothing judged", "No gate was judged."),
    ],
)
def test_the_end_of_the_section(status: SessionStatus, last: str) -> None:
    """What the verdicts alone do not tell."""
    assert summary_lines(make_report(status=status), 80)[-1] == last


def test_nothing_measured() -> None:
    """No pair was loaded: no empty tables."""
    report = make_report(measured=(), environment={}, status="nothing judged")
    assert summary_lines(report, 80) == ["", "No gate was judged."]


def test_names_of_models_cannot_drive_the_terminal() -> None:
    """Kinds and environment facts neither."""
    case = make_case("a", make_arm(None), make_arm(3), kind="a\x1b[31m\nb")
    environment = {"versions": {"mlx": "1\x1b[2J"}, "device": "GPU\r\n"}
    lines = summary_lines(make_report(cases=(case,), environment=environment), 80)
    assert all(line.isprintable() for line in lines)
    assert "mlx 1\\x1b[2J, GPU\\r\\n" in lines


def verdicts_of(*statuses: Status, gate: str = "parity") -> list[Verdict]:
    """One a status."""
    return [Verdict(gate, f"p{i}", status, "because") for i, status in enumerate(statuses)]


def test_session_status_is_the_worst() -> None:
    """An interrupt stands above all; without a verdict nothing was judged."""
    cases: list[tuple[list[Verdict], bool, SessionStatus]] = [
        (verdicts_of("passed", "failed", "inconclusive"), False, "failed"),
        (verdicts_of("passed", "inconclusive", "skipped"), False, "inconclusive"),
        (verdicts_of("passed", "skipped"), False, "passed"),
        (verdicts_of("skipped"), False, "nothing judged"),
        ([], False, "nothing judged"),
        (verdicts_of("failed"), True, "incomplete"),
    ]
    for verdicts, interrupted, status in cases:
        assert session_status(verdicts, interrupted=interrupted) == status


def test_prompts_share_a_row() -> None:
    """The worst of them is its verdict, the passed ones are counted, tokens add up."""
    failed = replace(PARITY[2], status="failed", samples=100)
    (row,) = make_report(PARITY[0], PARITY[1], failed).gate_rows()
    assert (row.name, row.status) == ("parity", "failed")
    assert (row.observed, row.limit, row.evidence) == ("2 of 3 exact", "exact", "108 tokens")
    (row,) = make_report(PARITY[0], replace(PARITY[1], status="inconclusive")).gate_rows()
    assert (row.status, row.observed) == ("inconclusive", "1 of 2 exact")


def test_prompts_that_were_all_skipped() -> None:
    """No pass, no failure: the row says so."""
    (row,) = make_report(*verdicts_of("skipped", "skipped")).gate_rows()
    assert (row.status, row.observed) == ("skipped", "0 of 2 passed")
    (row,) = make_report(*verdicts_of("skipped", "passed")).gate_rows()
    assert (row.status, row.observed) == ("passed", "1 of 2 passed")


def asked_by(item: str, *verdicts: Verdict) -> list[Verdict]:
    """The same verdicts as this item recorded them."""
    return [replace(verdict, item=item) for verdict in verdicts]


def test_a_prompt_that_a_marker_asked_for_too_counts_once() -> None:
    """Three prompts of gates.yaml, two of them once more by a marker: three, with their tokens."""
    of_gates = [v for p in PARITY for v in asked_by(f"gates.yaml::parity[{p.subject}]", p)]
    of_marker = asked_by("test_own.py::test_it", *PARITY[:2])
    for verdicts in ([*of_gates, *of_marker], [*of_marker, *of_gates]):
        (row,) = make_report(*verdicts).gate_rows()
        assert (row.name, row.status) == ("parity", "passed")
        assert (row.observed, row.evidence) == ("3 of 3 exact", "12 tokens")


def test_a_gate_that_several_items_asked_for_is_told_apart() -> None:
    """A row each: the one of gates.yaml under the gate's name, a test's with its own."""
    slow = replace(SPEEDUP, status="failed", limit_text=">= 50.00x")
    verdicts = [
        *asked_by("gates.yaml::speedup", SPEEDUP),
        *asked_by("tests/test_own.py::TestIt::test_fast", slow),
        *asked_by("gates.yaml::memory", MEMORY),
    ]
    rows = make_report(*verdicts).gate_rows()
    assert [(row.name, row.status, row.limit) for row in rows] == [
        ("speedup", "passed", ">= 1.15x"),
        ("speedup test_fast", "failed", ">= 50.00x"),
        ("memory", "passed", ">= 10% free"),
    ]
    lines = summary_lines(make_report(*verdicts), 120)
    (row_of_test,) = (line for line in lines if "test_fast" in line)
    assert row_of_test.split()[:3] == ["speedup", "test_fast", "failed"]


def test_a_gate_that_one_test_alone_asked_for_needs_no_name_of_it() -> None:
    """There is nothing to tell it apart from."""
    (row,) = make_report(*asked_by("test_own.py::test_fast", SPEEDUP)).gate_rows()
    assert row.name == "speedup"
    both = [replace(SPEEDUP, subject=f"k={k}", item=f"gates.yaml::speedup[k={k}]") for k in (1, 5)]
    rows = make_report(*both).gate_rows()
    assert [row.name for row in rows] == ["speedup k=1", "speedup k=5"]


FAILURE = Verdict(
    "parity",
    "sum-02",
    "failed",
    "from output token 7 on the speculative text is not the target's own (k = 1)",
    observed=7.0,
    limit=12.0,
    observed_text="differs",
    limit_text="exact",
    details=(
        "plain  the second clause limits the |supplier's liability",
        "spec   the second clause limits the |the buyer shall",
        "first difference   7 (k = 1)",
    ),
    advice=(
        "Do not rely on this pair's speculative output; run without the draft, and keep the saved "
        "case.",
        "Replay: pytest --spec-replay .specgate/failures/sum-02.json",
    ),
)


def test_a_failure_in_words() -> None:
    """One sentence, the evidence, what to do."""
    assert explanation("parity[sum-02]", FAILURE) == (
        "parity[sum-02] failed: from output token 7 on the speculative text is not the target's "
        "own (k = 1)\n"
        "  plain  the second clause limits the |supplier's liability\n"
        "  spec   the second clause limits the |the buyer shall\n"
        "  first difference   7 (k = 1)\n"
        "  To do: Do not rely on this pair's speculative output; run without the draft,\n"
        "  and keep the saved case.\n"
        "  Replay: pytest --spec-replay .specgate/failures/sum-02.json"
    )


def test_a_failed_figure_in_words() -> None:
    """Observed and limit stand under the sentence."""
    slow = replace(
        SPEEDUP,
        status="failed",
        reason="the speculative path is 1.05x as fast as the plain path, the limit is 1.15x",
        observed_text="1.05x [1.04, 1.06]",
        advice=("Try another draft.",),
    )
    assert explanation("speedup", slow) == (
        "speedup failed: the speculative path is 1.05x as fast as the plain path, the limit is "
        "1.15x\n"
        "  observed 1.05x [1.04, 1.06], limit >= 1.15x\n"
        "  To do: Try another draft."
    )


def test_an_engine_message_in_words() -> None:
    """Escaped, without figures that are not there."""
    broken = Verdict("parity", "a", "failed", "generating failed: \x1b[31mboom\x1b[0m\nline 2")
    assert explanation("parity[a]", broken) == (
        "parity[a] failed: generating failed: \\x1b[31mboom\\x1b[0m\\nline 2"
    )


def test_a_long_path_is_not_broken() -> None:
    """The command can be copied."""
    command = f"Replay: pytest --spec-replay .specgate/failures/{'x-' * 60}.json"
    text = explanation("parity[a]", replace(FAILURE, advice=(command,)))
    assert f".specgate/failures/{'x-' * 60}.json" in text.splitlines()[-1]


# -- JUnit -----------------------------------------------------------------------------------------


def test_properties_of_a_verdict() -> None:
    """A property a figure; the spread only where there is one."""
    assert list(properties(SPEEDUP)) == [
        ("specgate_gate", "speedup"),
        ("specgate_subject", "k=3"),
        ("specgate_status", "passed"),
        ("specgate_observed", 3.17),
        ("specgate_limit", 1.15),
        ("specgate_unit", "x"),
        ("specgate_samples", 15),
        ("specgate_spread", "3.1..3.25"),
        ("specgate_reason", "3.17x as fast"),
    ]
    names = [name for name, _ in properties(LATENCY, "spec")]
    assert names[0] == "spec_gate"
    assert "spec_spread" not in names


# -- JSON ------------------------------------------------------------------------------------------


def strict(text: str) -> Any:
    """JSON without NaN and infinities."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_report_has_the_promised_keys(tmp_path: Path) -> None:
    """The keys that other programs read."""
    write_json(make_report(*VERDICTS), tmp_path / "out.json")
    document = strict((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert {"schema", "status", "environment", "pair", "decoding", "cases", "verdicts"} <= set(
        document
    )
    assert document["schema"] == "specgate-report/1"
    assert document["status"] == "inconclusive"
    assert document["environment"] == dict(ENVIRONMENT)
    assert document["pair"]["target"]["name"] == "org/target"
    assert document["pair"]["draft"]["bytes"] == 10**9
    assert document["decoding"]["num_draft_tokens"] == [3]
    assert {field.name for field in fields(Decoding)} <= set(document["decoding"])
    assert [case["id"] for case in document["cases"]] == ["zh-01", "zh-02", "py-01"]
    case = document["cases"][2]
    assert {"id", "kind", "prompt_tokens", "arms"} <= set(case)
    assert (case["kind"], case["prompt_tokens"]) == ("python", 8)
    assert list(case["arms"]) == ["plain", "k=3"]
    for arm in case["arms"].values():
        assert {"tokens", "text", "finish_reason", "trials", "blocks"} <= set(arm)
        assert (arm["tokens"], arm["text"], arm["finish_reason"]) == (
            [1, 2, 3, 4],
            "bcde",
            "length",
        )
        assert len(arm["trials"]) == 5
        for trial in arm["trials"]:
            assert {"ttft_s", "decode_s", "e2e_s", "peak_memory_bytes"} <= set(trial)
    assert case["arms"]["plain"]["blocks"] is None
    trial = case["arms"]["k=3"]["trials"][0]
    assert trial["e2e_s"] == 0.4
    assert trial["ttft_s"] == pytest.approx(0.1)
    assert trial["decode_s"] == pytest.approx(0.3)
    assert trial["peak_memory_bytes"] == 10**10
    blocks = case["arms"]["k=3"]["blocks"]
    assert (blocks["proposed"], blocks["accepted"]) == (3, 3)
    assert blocks["accept_lengths"] == [3]
    assert blocks["position_accepted"] == blocks["position_proposed"] == [1, 1, 1]
    verdict = document["verdicts"][3]
    assert {"gate", "subject", "status", "observed", "limit", "unit", "samples", "reason"} <= set(
        verdict
    )
    assert (verdict["gate"], verdict["subject"], verdict["status"]) == ("speedup", "k=3", "passed")
    assert (verdict["observed"], verdict["limit"], verdict["unit"]) == (3.17, 1.15, "x")
    assert verdict["samples"] == 15
    assert verdict["spread"] == [3.1, 3.25]


def test_acceptance_whole() -> None:
    """Over all cases of a pair, each k: in the JSON report, and on a terminal that is asked to."""
    report = make_report(*VERDICTS)
    found = report_document(report)["acceptance"]
    assert list(found) == ["k=3"]
    one = found["k=3"]
    assert (one["accepted"], one["proposed"], one["histogram"]) == (7, 13, [0, 4, 0, 1])
    assert [part["proposed"] for part in one["quarters"]] == [9, 0, 4, 0]
    assert {kind: of["accepted"] for kind, of in one["kinds"].items()} == {
        "explain": 4,
        "python": 3,
    }
    plain, whole = summary_lines(report, 80), summary_lines(report, 80, whole=True)
    more = [line for line in whole if line not in plain]
    assert more == [
        "acceptance",
        "  k = 3: accepted 7 of 13 proposed tokens (0.54) in 5 blocks",
        "  mean accept length 1.40, 2.40 tokens a target pass",
        "  accept lengths: 0 x 0, 1 x 4, 2 x 0, 3 x 1",
        "  by position: 1.00 0.20 0.33",
        "  by quarter: 0.56 - 0.50 -",
        "  by kind: explain 0.40, python 1.00",
    ]


def test_censored_blocks_are_listed() -> None:
    """Their proposals count, their lengths stay out of the histogram."""
    arm = make_arm(3, flags=[False, True, True, True])
    document = report_document(make_report(cases=(make_case("a", make_arm(None), arm),)))
    blocks = document["cases"][0]["arms"]["k=3"]["blocks"]
    assert blocks["count"] == 2
    assert blocks["proposed"] == 6
    assert blocks["accept_lengths"] == [0]
    assert blocks["censored"] == [{"reason": "max_tokens", "proposed": 3, "accepted": 3}]


def test_a_failed_prompt_keeps_its_reason() -> None:
    """No arms, no first difference, the error."""
    document = report_document(make_report(cases=(failed_case("a", "no kernel"),)))
    (case,) = document["cases"]
    assert (case["error"], case["arms"], case["first_difference"]) == ("no kernel", {}, {})


def test_a_difference_is_in_the_report() -> None:
    """By k."""
    case = make_case("a", make_arm(None), make_arm(1), make_arm(3, tokens=(1, 2, 9, 4)))
    document = report_document(make_report(cases=(case,)))
    assert document["cases"][0]["first_difference"] == {"k=1": None, "k=3": 2}


def test_an_empty_session_is_a_whole_report(tmp_path: Path) -> None:
    """Nothing measured, nothing judged: the same keys."""
    report = make_report(measured=(), status="nothing judged")
    write_json(report, tmp_path / "out.json")
    document = strict((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (document["cases"], document["verdicts"], document["pair"]) == ([], [], None)


def test_figures_that_json_has_no_number_for(tmp_path: Path) -> None:
    """A gap of -inf, an interval without bounds, a path of another project's: strict JSON."""
    odd = replace(
        PARITY[0],
        observed=math.nan,
        spread=(-math.inf, math.inf),
        evidence={"gaps": [1.0, math.inf], "3": {"where": Path("x")}},
    )
    write_json(make_report(verdicts=(odd,)), tmp_path / "out.json")
    (verdict,) = strict((tmp_path / "out.json").read_text(encoding="utf-8"))["verdicts"]
    assert (verdict["observed"], verdict["spread"]) == (None, [None, None])
    assert verdict["evidence"] == {"gaps": [1.0, None], "3": {"where": "x"}}


def test_a_pair_that_was_not_loaded_has_its_name() -> None:
    """As the user named it."""
    report = make_report()
    measured = replace(report.measured[0], info=None)
    document = report_document(replace(report, measured=(measured, measured)))
    assert document["pair"]["target"] == {"name": "mlx-community/Qwen2.5-7B-Instruct-4bit"}
    assert len(document["further_pairs"]) == 1


def test_single_tokens_give_strict_json(tmp_path: Path) -> None:
    """No decode: null, not NaN."""
    case = timed_case("a", [1.0], [1.0], tokens=(1,), flags=[True])
    write_json(make_report(cases=(case,)), tmp_path / "out.json")
    document = strict((tmp_path / "out.json").read_text(encoding="utf-8"))
    trial = document["cases"][0]["arms"]["k=3"]["trials"][0]
    assert trial["decode_s"] is None
    assert trial["decode_tokens_per_s"] is None


ODD_TEXT = "lone \ud800 \udfff null \x00 escape \x1b[31m \u2028 水 🙂 \uffff 'quote\" \\ \x7f"


def test_any_text_survives_the_report(tmp_path: Path) -> None:
    """Lone surrogates, null bytes, separators: what the model said is what is read."""
    case = make_case("a", make_arm(None, text=ODD_TEXT), make_arm(3, text=ODD_TEXT))
    write_json(make_report(cases=(case,)), tmp_path / "out.json")
    raw = (tmp_path / "out.json").read_bytes()
    assert raw.isascii()
    assert raw.endswith(b"}\n")
    arms = strict(raw.decode())["cases"][0]["arms"]
    assert arms["plain"]["text"] == arms["k=3"]["text"] == ODD_TEXT


# -- files -----------------------------------------------------------------------------------------


def test_write_whole_makes_folders_and_replaces(tmp_path: Path) -> None:
    """UTF-8, exactly, over what was there."""
    path = tmp_path / "new" / "folder" / "out.json"
    write_whole(path, "one\r\n")
    write_whole(path, "水\n")
    assert path.read_bytes() == "水\n".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["out.json"]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    """Not the private mode of a temporary file: CI steps of another user read it."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "out.json", "x")
        assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o640
        assert os.umask(0o027) == 0o027  # as it was
    finally:
        os.umask(before)


def fail(*_: object) -> None:
    """A full disk."""
    raise OSError(28, "No space left on device")


def interrupt(*_: object) -> None:
    """Ctrl-C at the worst moment."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("how", [fail, interrupt])
def test_a_write_that_breaks_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, how: Callable[..., None]
) -> None:
    """Never half a file, never a temporary one."""
    path = tmp_path / "out.json"
    path.write_text("the old report", encoding="utf-8")
    if step == "fsync":
        monkeypatch.setattr(os, "fsync", how)
    else:
        monkeypatch.setattr(Path, "replace", how)
    with pytest.raises((OSError, KeyboardInterrupt)):
        write_whole(path, "new " * 10_000)
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "the old report"
    assert list(tmp_path.iterdir()) == [path]


def test_text_that_is_not_utf8_leaves_the_old_file(tmp_path: Path) -> None:
    """A lone surrogate in raw text."""
    path = tmp_path / "out.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "x" * 100_000 + "\ud800")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    """An OSError, and the folder with all in it stays."""
    target = tmp_path / "out.json"
    target.mkdir()
    (target / "mine").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match=r"out\.json"):
        write_json(make_report(*VERDICTS), target)
    assert list(tmp_path.iterdir()) == [target]
    assert list(target.iterdir()) == [target / "mine"]


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    """An OSError as well."""
    (tmp_path / "folder").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder" / "out.json", "x")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_write_follows_a_link(tmp_path: Path) -> None:
    """The link stays a link; what it names is replaced, made where it is not there yet."""
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "report.json"
    link, chain = tmp_path / "out.json", tmp_path / "chain.json"
    link.symlink_to("real/report.json")  # names nothing yet
    chain.symlink_to(link)
    for path, text in ((link, "one"), (chain, "two"), (real, "three")):
        write_whole(path, text)
        assert real.read_text(encoding="utf-8") == text
        assert (link.is_symlink(), chain.is_symlink(), real.is_symlink()) == (True, True, False)
    assert link.readlink() == Path("real/report.json")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "chain.json",
        "out.json",
        "real",
        "report.json",
    ]


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    """By itself or by another one, as a file or as a folder: an OSError, and all links stay."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to").symlink_to("fro")
    (tmp_path / "fro").symlink_to("to")
    before = {path: path.readlink() for path in tmp_path.iterdir()}
    for name in ("loop", "to", "loop/out.json"):
        with pytest.raises(OSError, match="loop" if name != "to" else "to"):
            write_whole(tmp_path / name, "x")
    assert {path: path.readlink() for path in tmp_path.iterdir()} == before


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    """The file lands where the link leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link" / "out.json", "x")
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["out.json"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_stays_a_pipe(tmp_path: Path, linked: bool) -> None:
    """Its reader gets the text; it is not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if linked:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    read: list[str] = []
    reader = threading.Thread(
        target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True
    )
    reader.start()
    write_whole(path, "水 " * 50_000)  # more than a pipe holds at once
    reader.join(timeout=30)
    assert read == ["水 " * 50_000]
    assert pipe.is_fifo()
    assert sorted(tmp_path.iterdir()) == sorted({pipe, path})


def test_a_device_is_written_to_through_a_link(tmp_path: Path) -> None:
    """Such as /dev/stdout: here the near end of a terminal of our own, which nobody would miss."""
    far, near = os.openpty()
    try:
        device = Path(os.ttyname(near))
        link = tmp_path / "out.json"
        link.symlink_to(device)
        write_whole(link, "text")
        assert os.read(far, 100) == b"text"
        assert (link.is_symlink(), device.is_char_device()) == (True, True)
        assert list(tmp_path.iterdir()) == [link]
    finally:
        os.close(near)
        os.close(far)


@pytest.mark.parametrize(("length", "fits"), [(200, True), (250, True), (255, True), (256, False)])
def test_a_long_file_name(tmp_path: Path, length: int, fits: bool) -> None:
    """As long as the file system allows; beyond it an OSError, and nothing is left behind."""
    path = tmp_path / ("x" * (length - 5) + ".json")
    if fits:
        write_whole(path, "text")
        assert path.read_text(encoding="utf-8") == "text"
        assert list(tmp_path.iterdir()) == [path]
        return
    with pytest.raises(OSError, match="name too long"):
        write_whole(path, "text")
    assert list(tmp_path.iterdir()) == []


ODD_IDS = (
    "",
    "A",
    "a",
    "ZH-01",
    "Zh-01",
    "\ud800",
    "\udfff",
    "\ud83d\ude42",
    "a\ud800",
    "../../x",
    "..",
    ".",
    "...",
    "/",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a b",
    "a  b",
    "a\tb",
    "a\nb",
    "a\x00b",
    "-rf",
    ".hidden",
    "trailing.",
    "con:aux",
    "水",
    "火",
    "cafe\u0301",
    "caf\u00e9",
    "x" * 79,
    "x" * 80,
    "x" * 81,
    "x" * 500,
    "水" * 200,
    "$(reboot)",
    "a-b",
    "a_b",
    "a.b",
    "zh-01",
)


@pytest.mark.parametrize("name", ODD_IDS)
def test_a_stem_is_a_plain_file_name(name: str, tmp_path: Path) -> None:
    """No separator, no leading dot or dash, not too long, and it can be written."""
    stem = file_stem(name)
    assert set(stem) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert stem[0] not in ".-"
    assert len(stem) <= 100
    write_whole(tmp_path / f"{stem}.json", "x")
    assert [entry.name for entry in tmp_path.iterdir()] == [f"{stem}.json"]


def test_different_ids_have_different_stems() -> None:
    """Also those that look alike once they are made plain; plain ones stay as they are."""
    assert len({file_stem(name).lower() for name in ODD_IDS}) == len(ODD_IDS)
    for name in ("zh-01", "a_b", "a.b", "x" * 80):
        assert file_stem(name) == name
    assert file_stem("a b") == file_stem("a b")


# -- saved cases -----------------------------------------------------------------------------------

WHOLE = Inputs(
    target=ModelRef("org/target", None, "v2"),
    draft=ModelRef("org/draft"),
    prompts=(Prompt("sum-02", "Summarise: 水\x00\n", "summary", 77),),
    num_draft_tokens=(1, 3),
    decoding=Decoding(
        max_tokens=77,
        temperature=0.0,
        seed=5,
        prefill_step_size=512,
        kv_bits=4,
        kv_group_size=32,
        quantized_kv_start=10,
    ),
    engine="mlx-lm",
    chat_template_args={"enable_thinking": False, "names": ["a", None, 1.5]},
)
PARTED = replace(
    make_case("sum-02", make_arm(None, text=ODD_TEXT), make_arm(3, tokens=(1, 2, 9, 4))),
    prompt=WHOLE.prompts[0],
)


def restored(path: Path) -> Inputs:
    """The inputs that a saved case makes, with no other setting."""
    layer, engine = read_case(path)
    gates = {gate.name: gate for gate in builtin_gates()}
    inputs, _ = Builder(Options({}, {}, engine=engine), gates, builtin).inputs({}, layer)
    return inputs


def test_a_case_is_saved_and_read(tmp_path: Path) -> None:
    """Everything that decides the output comes back as it was."""
    path = save_case(tmp_path / "failures", PARTED, WHOLE, ENVIRONMENT)
    assert path == tmp_path / "failures" / "sum-02.json"
    assert restored(path) == WHOLE


@pytest.mark.parametrize(
    "options",
    [
        {"max_kv_size": 64},
        {"repetition_penalty": 1.3},
        {"presence_penalty": -0.5, "frequency_penalty": 1.0},
        {"logit_bias": ((0, 2.5), (5, -10.0))},
        {"logit_bias": ()},
    ],
)
def test_a_case_with_options_of_the_sampler(tmp_path: Path, options: dict[str, Any]) -> None:
    """JSON has texts for keys and no tuples; what is read is what was saved, and saved again."""
    inputs = replace(WHOLE, decoding=replace(WHOLE.decoding, **options))
    path = save_case(tmp_path, PARTED, inputs, {})
    assert restored(path) == inputs
    assert save_case(tmp_path, PARTED, restored(path), {}) == path


def test_a_case_of_local_models(tmp_path: Path) -> None:
    """Directories come back as whole paths, wherever the case is read."""
    for name in ("target", "draft"):
        (tmp_path / name).mkdir()
    target, draft = (ModelRef.parse(name, tmp_path) for name in ("target", "draft"))
    path = save_case(tmp_path / "f", PARTED, replace(WHOLE, target=target, draft=draft), {})
    inputs = restored(path)
    assert inputs.target is not None
    assert inputs.draft is not None
    assert inputs.target.directory == target.directory
    assert inputs.draft.directory == draft.directory


def test_the_budget_is_the_prompts_own(tmp_path: Path) -> None:
    """Where it differs from the one of the decoding options."""
    inputs = replace(WHOLE, decoding=replace(WHOLE.decoding, max_tokens=256))
    assert restored(save_case(tmp_path, PARTED, inputs, {})) == WHOLE


def test_what_a_case_holds(tmp_path: Path) -> None:
    """Both outputs and where they part, for a person or another program."""
    path = save_case(tmp_path, PARTED, WHOLE, ENVIRONMENT)
    document = strict(path.read_text(encoding="utf-8"))
    assert document["schema"] == "specgate-case/1"
    assert document["first_difference"] == {"k=3": 2}
    assert document["prompt_tokens"] == list(range(8))
    assert document["arms"]["plain"]["text"] == ODD_TEXT
    assert document["arms"]["k=3"]["tokens"] == [1, 2, 9, 4]
    assert document["arms"]["k=3"]["from_draft"] == [True, False, True, False]
    assert document["environment"] == dict(ENVIRONMENT)


def test_an_id_cannot_leave_the_folder(tmp_path: Path) -> None:
    """The name of the file comes from the id, its place does not."""
    odd = replace(PARTED, prompt=replace(WHOLE.prompts[0], id="../../etc/x"))
    path = save_case(tmp_path / "failures", odd, WHOLE, {})
    assert path.parent == tmp_path / "failures"
    assert restored(path).prompts[0].id == "../../etc/x"


OTHERS: Mapping[str, Inputs] = {
    "pair": replace(WHOLE, draft=ModelRef("org/other")),
    "k": replace(WHOLE, num_draft_tokens=(5,)),
    "decoding": replace(WHOLE, decoding=replace(WHOLE.decoding, kv_bits=8)),
    "engine": replace(WHOLE, engine="mine"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_two_cases_of_one_id_are_both_kept(tmp_path: Path, what: str) -> None:
    """What replays something else gets a name of its own; the same again goes where it was."""
    for _ in range(2):
        first = save_case(tmp_path, PARTED, WHOLE, ENVIRONMENT)
        second = save_case(tmp_path, PARTED, OTHERS[what], ENVIRONMENT)
        assert first == tmp_path / "sum-02.json"
        assert re.fullmatch(r"sum-02-[0-9a-f]{8}\.json", second.name)
        assert set(tmp_path.iterdir()) == {first, second}
    assert restored(first) == WHOLE
    assert restored(second) == OTHERS[what]


def test_a_case_with_tuples_goes_where_it_was(tmp_path: Path) -> None:
    """JSON has lists alone."""
    inputs = replace(WHOLE, chat_template_args={"names": ("a", "b")})
    paths = {save_case(tmp_path, PARTED, inputs, {}) for _ in range(2)}
    assert paths == set(tmp_path.iterdir()) == {tmp_path / "sum-02.json"}


def test_another_text_of_one_id_is_kept_apart(tmp_path: Path) -> None:
    """An id may stand for one text in a file and another one in a marker."""
    save_case(tmp_path, PARTED, WHOLE, {})
    prompt = replace(WHOLE.prompts[0], text="another")
    save_case(tmp_path, replace(PARTED, prompt=prompt), WHOLE, {})
    texts = {restored(path).prompts[0].text for path in tmp_path.iterdir()}
    assert texts == {WHOLE.prompts[0].text, "another"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000], ids=repr)
def test_what_is_no_case_gives_way_to_one(tmp_path: Path, data: bytes) -> None:
    """Cut short by a full disk, say."""
    (tmp_path / "sum-02.json").write_bytes(data)
    assert save_case(tmp_path, PARTED, WHOLE, {}) == tmp_path / "sum-02.json"
    assert restored(tmp_path / "sum-02.json") == WHOLE


def saved(tmp_path: Path) -> dict[str, Any]:
    """A whole case as a document."""
    document: dict[str, Any] = json.loads(
        save_case(tmp_path, PARTED, WHOLE, {}).read_text(encoding="utf-8")
    )
    return document


def refused(tmp_path: Path, document: Any) -> str:
    """The message about a document."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_case(path)
    assert str(path) in str(error.value)
    return str(error.value)


# options that came after the first release
LATER = (
    *("max_kv_size", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "ignore_eos", "top_p", "top_k", "min_p", "min_tokens_to_keep"),
    *("xtc_probability", "xtc_threshold"),
)
FIRST = tuple(field.name for field in fields(Decoding) if field.name not in LATER)
NEEDED = {
    "pair": ("target", "draft"),
    "decoding": ("num_draft_tokens", *FIRST, "chat_template_args"),
    "prompt": ("id", "prompt", "kind"),
}


@pytest.mark.parametrize(
    ("section", "key"), [(section, key) for section, keys in NEEDED.items() for key in keys]
)
def test_a_case_with_a_key_missing(tmp_path: Path, section: str, key: str) -> None:
    """Each key decides the output, so none has a default here; file, section and key are named."""
    document = saved(tmp_path)
    del document[section][key]
    message = refused(tmp_path, document)
    assert message == (
        f"{tmp_path / 'case.json'}: not a whole saved case: {section}.{key} is missing"
    )


def test_a_case_of_an_earlier_release(tmp_path: Path) -> None:
    """What it cannot have had its default then."""
    document = saved(tmp_path)
    for key in LATER:
        del document["decoding"][key]
    path = tmp_path / "case.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    layer, _ = read_case(path)
    assert not {("decoding", key) for key in LATER} & {*layer}
    assert ("decoding", "seed") in layer


@pytest.mark.parametrize("section", NEEDED)
def test_a_case_with_a_section_missing(tmp_path: Path, section: str) -> None:
    """The first key of it is named."""
    document = saved(tmp_path)
    del document[section]
    message = refused(tmp_path, document)
    assert message.endswith(f": not a whole saved case: {section}.{NEEDED[section][0]} is missing")


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [
        (
            "decoding",
            "mirostat",
            "unknown key decoding.mirostat (allowed: num_draft_tokens, max_tokens, ",
        ),
        (
            "decoding",
            "prefil_step_size",
            "decoding.prefil_step_size; did you mean 'prefill_step_size'? (allowed: ",
        ),
        ("pair", "engine", "unknown key pair.engine (allowed: target, draft)"),
        (
            "prompt",
            "promt",
            "prompt.promt; did you mean 'prompt'? (allowed: id, prompt, kind)",
        ),
    ],
)
def test_a_case_with_a_key_of_a_newer_version(
    tmp_path: Path, section: str, key: str, words: str
) -> None:
    """It would decide the output there, so leaving it out would replay something else."""
    document = saved(tmp_path)
    document[section][key] = 0.9
    assert words in refused(tmp_path, document)


def test_a_case_without_an_engine(tmp_path: Path) -> None:
    """The key is named, as is what it holds."""
    document = saved(tmp_path)
    assert refused(tmp_path, {**document, "engine": 3}).endswith(
        "case.json: engine must be text, found 3 (allowed: text)"
    )
    del document["engine"]
    assert refused(tmp_path, document).endswith(": not a whole saved case: engine is missing")


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_case_without_a_model(tmp_path: Path, role: str) -> None:
    """null would leave the model to another place; a replay is of this pair."""
    document = saved(tmp_path)
    document["pair"][role] = None
    assert refused(tmp_path, document).endswith(f": pair.{role} must be text, found nothing (null)")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("id", "a::b", ("id must be", "without '::'", "found 'a::b'")),
        ("id", "", ("id is empty",)),
        ("id", 1, ("id must be text", "found 1")),
        ("id", "a\x1b[31m", ("id must be", "printable", "found 'a\\x1b[31m'")),
        ("id", "\ud800", ("id is not valid Unicode text",)),
        ("prompt", "", ("prompt is empty",)),
        ("prompt", None, ("prompt must be text", "nothing (null)")),
        ("kind", 3, ("kind must be text", "found 3")),
    ],
)
def test_a_case_with_a_wrong_prompt(
    tmp_path: Path, key: str, value: Any, words: tuple[str, ...]
) -> None:
    """As in a prompt file."""
    document = saved(tmp_path)
    document["prompt"][key] = value
    message = refused(tmp_path, document)
    assert "not a whole saved case: " in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], True], ids=repr)
@pytest.mark.parametrize("section", ["pair", "decoding", "prompt"])
def test_a_case_with_a_wrong_section(tmp_path: Path, section: str, value: Any) -> None:
    """Not a mapping."""
    assert refused(tmp_path, {**saved(tmp_path), section: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_draft_tokens", [0]),
        ("num_draft_tokens", [17]),
        ("num_draft_tokens", []),
        ("max_tokens", None),
        ("max_tokens", -1),
        ("temperature", "warm"),
        ("kv_bits", 7),
        ("chat_template_args", [1]),
    ],
)
def test_a_case_with_a_wrong_option(tmp_path: Path, key: str, value: Any) -> None:
    """The option is named."""
    document = saved(tmp_path)
    document["decoding"][key] = value
    assert key in refused(tmp_path, document)


@pytest.mark.parametrize("document", [None, [], "x", 1, {}, {"schema": None}], ids=repr)
def test_other_json_is_not_a_case(tmp_path: Path, document: Any) -> None:
    """The schema that was expected is named."""
    assert "schema must be 'specgate-case/1'" in refused(tmp_path, document)


def test_a_case_of_a_newer_version(tmp_path: Path) -> None:
    """Refused, with what was found."""
    message = refused(tmp_path, {**saved(tmp_path), "schema": "specgate-case/2"})
    assert "specgate-case/2" in message


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"schema": "specgate-case/1"'],
    ids=["empty", "one brace", "UTF-16 mark", "nested", "cut"],
)
def test_a_file_that_is_not_json(tmp_path: Path, data: bytes) -> None:
    """Cut short, not UTF-8, nested beyond reason."""
    path = tmp_path / "case.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"case\.json"):
        read_case(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Named."""
    with pytest.raises(ConfigError, match=r"none\.json"):
        read_case(tmp_path / "none.json")


def test_every_cut_of_a_case_is_refused(tmp_path: Path) -> None:
    """A file that lost its end, wherever."""
    whole = save_case(tmp_path, PARTED, WHOLE, {}).read_bytes()
    path = tmp_path / "case.json"
    for length in range(0, len(whole) - 2, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError):
            read_case(path)

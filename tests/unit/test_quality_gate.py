"""gates/quality.py: what is judged, by which checks, and what each verdict says."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.checks import Check, builtin_checks
from pytest_specgate.config.checks import ready
from pytest_specgate.config.plan import CheckConfig, Prompt
from pytest_specgate.engines.base import Generation
from pytest_specgate.gates.base import Verdict, judged
from pytest_specgate.gates.quality import QualityGate, checks_of
from pytest_specgate.measure.evidence import CaseEvidence, Evidence
from pytest_specgate.report.checklist import checklist
from pytest_specgate.report.markdown import markdown
from pytest_specgate.report.session_report import SessionReport
from pytest_specgate.report.terminal import summary_lines
from pytest_specgate.saved_outputs import save_outputs
from tests.fakes import failed_case, make_arm, make_case, make_evidence, make_inputs, make_prompts

GATE = QualityGate()
CHECKS = builtin_checks()


def config(name: str, options: Any = None) -> CheckConfig:
    """A check as a plan holds it."""
    return ready(CheckConfig(name, options, "prompts.jsonl, line 1"), CHECKS)


JSON = (config("json"),)


def case(
    name: str,
    plain: str,
    speculative: str | None = None,
    *,
    kind: str = "json",
    checks: tuple[CheckConfig, ...] | None = JSON,
    further: Sequence[tuple[str, str]] = (),
) -> CaseEvidence:
    """A prompt whose paths gave these texts; further samples as pairs."""
    if speculative is None:
        speculative = plain
    made = make_case(name, make_arm(None, text=plain), make_arm(3, text=speculative), kind=kind)
    prompt = replace(made.prompt, checks=checks)
    plain_run, other = made.plain.generation, made.speculative[0].generation
    runs: dict[str, tuple[Generation, ...]] = {
        "plain": tuple(replace(plain_run, text=one) for one, _ in further),
        "k=3": tuple(replace(other, text=two) for _, two in further),
    }
    return replace(made, prompt=prompt, further=runs)


def judge(
    *cases: CaseEvidence, temperature: float = 0.0, gate: QualityGate = GATE, **options: Any
) -> Verdict:
    """The verdict with these options."""
    evidence: Evidence = make_evidence(*cases, temperature=temperature)
    return judged(gate, evidence, {**gate.defaults, **options}, "k=3")


GOOD, BAD = '{"a": 1}', "Sure! {"


# -- greedy ----------------------------------------------------------------------------------------


def test_greedy_outputs_that_all_pass() -> None:
    verdict = judge(case("a", GOOD), case("b", GOOD, kind="other"))
    assert verdict.status == "passed"
    assert verdict.reason == "2 of 2 speculative outputs pass every check (plain 2)"
    assert verdict.observed_text == "2 of 2 (plain 2 of 2)"
    assert verdict.limit_text == ">= 100%, loss <= 5%"
    assert (verdict.observed, verdict.limit, verdict.samples) == (1.0, 1.0, 2)
    assert verdict.false_alarm == 0
    assert verdict.evidence["failing"] == []
    assert [row["kind"] for row in verdict.evidence["quality"]] == ["json", "other"]


def test_one_output_that_fails_on_both_paths() -> None:
    verdict = judge(case("a", GOOD), case("b", BAD))
    assert verdict.status == "failed"
    assert verdict.reason == "1 of 2 speculative outputs pass every check, the limit is 100%"
    assert "b, both paths: json: not JSON at line 1, column 1: Expecting value" in verdict.details
    assert [(one["prompt"], one["arm"]) for one in verdict.evidence["failing"]] == [
        ("b", "plain"),
        ("b", "k=3"),
    ]


def test_a_rate_below_the_whole_is_a_fact_of_greedy_outputs() -> None:
    cases = [case(f"p{i}", GOOD) for i in range(19)]
    assert judge(*cases, case("b", BAD), min_pass=0.95).status == "passed"
    assert judge(*cases[:18], case("b", BAD), min_pass=0.95).status == "failed"


def test_greedy_outputs_that_are_worse_than_the_plain_ones() -> None:
    verdict = judge(case("a", GOOD), case("b", GOOD, BAD), min_pass=None)
    assert verdict.status == "failed"
    assert verdict.reason == (
        "of 2 pairs of outputs 1 passed on the plain path alone and 0 on the speculative path "
        "alone, the limit is a loss of 5%"
    )
    assert any(line.startswith("b, speculative: json: ") for line in verdict.details)
    assert judge(case("a", GOOD), case("b", BAD, GOOD), min_pass=None).status == "passed"


def test_a_prompt_that_failed_parity_is_judged_too() -> None:
    """What its output is worth is just what is asked."""
    verdict = judge(case("a", GOOD), case("b", GOOD, '{"a": 2}'))
    assert (verdict.status, verdict.samples) == ("passed", 2)


# -- sampled ---------------------------------------------------------------------------------------


def test_few_samples_are_inconclusive() -> None:
    """And it is said how many would do."""
    cases = [case(f"p{i}", GOOD) for i in range(24)]
    verdict = judge(*cases, temperature=0.7)
    assert verdict.status == "inconclusive"
    assert verdict.reason.endswith(": 24 outputs a path are too few to tell")
    assert verdict.advice == ("samples: 3 would decide it at these rates.",)
    assert verdict.false_alarm == pytest.approx(0.02)
    assert any(line.startswith("difference   +0.0% [") for line in verdict.details)


def test_more_samples_of_each_prompt_decide() -> None:
    more = [(GOOD, GOOD)] * 2
    cases = [case(f"p{i}", GOOD, further=more) for i in range(24)]
    verdict = judge(*cases, temperature=0.7, samples=3)
    assert (verdict.status, verdict.samples) == ("passed", 72)
    assert verdict.evidence["quality"][0]["prompts"] == 24


def test_samples_that_fail_are_named() -> None:
    verdict = judge(
        case("a", GOOD, further=[(GOOD, GOOD), (GOOD, BAD)]), temperature=0.7, samples=3
    )
    assert verdict.status == "failed"  # with a limit of 100 % a single one is enough
    assert any(line.startswith("a, sample 3, speculative: json") for line in verdict.details)
    assert verdict.evidence["failing"][0]["sample"] == 3


def test_samples_on_one_path_alone_do_not_count() -> None:
    """As where time ran out between the two."""
    one = case("a", GOOD, further=[(GOOD, GOOD)])
    half = replace(one, further={"plain": one.further["plain"]})
    assert judge(half, temperature=0.7).samples == 1


def test_a_rate_too_near_its_limit() -> None:
    cases = [case(f"p{i}", GOOD if i < 16 else BAD) for i in range(20)]
    options: dict[str, Any] = {"min_pass": 0.8, "tolerance": 0.001, "not_worse": None}
    verdict = judge(*cases, temperature=0.7, **options)
    assert verdict.status == "inconclusive"
    assert "no number of samples" in verdict.advice[0]


def test_a_loss_of_sampled_outputs() -> None:
    cases = [case(f"p{i}", GOOD, BAD if i < 9 else GOOD) for i in range(24)]
    verdict = judge(*cases, temperature=0.7, min_pass=None)
    assert verdict.status == "failed"
    assert "24 pairs of outputs 9 passed on the plain path alone" in verdict.reason


# -- what is judged --------------------------------------------------------------------------------


def test_the_checks_of_a_prompt() -> None:
    """Its own line's, else its kind's, else those of its set; an empty list is none at all."""
    own, kind, usual = (config("json"),), (config("finish"),), (config("python"),)
    options = {**GATE.defaults, "checks": {"json": kind}}
    prompt = Prompt("a", "x", "json", 8, own, usual)
    assert checks_of(prompt, options) == own
    assert checks_of(replace(prompt, checks=None), options) == kind
    assert checks_of(replace(prompt, checks=None, kind="other"), options) == usual
    assert checks_of(replace(prompt, checks=()), options) == ()


def test_no_checks_at_all_is_never_green() -> None:
    verdict = judge(case("a", GOOD, checks=None), case("b", GOOD, checks=(), kind="x"))
    assert verdict.status == "failed"
    assert verdict.reason == "nothing to judge: no prompt has a check"
    assert "(kinds here: json, x)" in verdict.advice[0]


def test_prompts_without_checks_are_named() -> None:
    verdict = judge(case("a", GOOD), case("b", BAD, checks=None))
    assert verdict.status == "passed"
    assert "not judged: 1 prompt without checks (b)" in verdict.details


def test_what_could_not_be_generated_holds_up_nothing() -> None:
    """Failed where it has checks; a prompt that would not be judged is named."""
    broken = failed_case("z", "the kernel broke")
    verdict = judge(case("a", GOOD), replace(broken, prompt=replace(broken.prompt, checks=JSON)))
    assert (verdict.status, verdict.reason) == ("failed", "generating broke: z, the kernel broke")
    verdict = judge(case("a", GOOD), replace(broken, prompt=replace(broken.prompt, checks=())))
    assert verdict.status == "passed"
    assert "left out: z (the kernel broke)" in verdict.details


def test_without_a_plain_output() -> None:
    """As in parity's mode scored."""
    made = case("a", GOOD)
    verdict = judge(replace(made, arms={"k=3": made.arms["k=3"]}))
    assert verdict.status == "failed"
    assert "Parity in the mode scored makes no plain output" in verdict.advice[0]


def test_a_check_at_fault_fails_the_item() -> None:
    broken = Check("mine", lambda output, options: 1 / 0)  # type: ignore[arg-type, return-value]  # a wrong one
    gate = QualityGate({"mine": broken})
    verdict = judge(case("a", GOOD, checks=(CheckConfig("mine", {}),)), gate=gate, min_pass=0.1)
    assert verdict.status == "failed"
    assert verdict.reason == (
        "the check 'mine' is at fault, at a: it broke on an output: ZeroDivisionError: "
        "division by zero"
    )


def test_only_so_many_failures_are_shown() -> None:
    verdict = judge(*(case(f"p{i}", BAD) for i in range(25)))
    assert "and 5 more lines" in verdict.details
    assert len(verdict.evidence["failing"]) == 50


# -- before anything is generated ------------------------------------------------------------------


def test_complaints() -> None:
    inputs = make_inputs(make_prompts("a"), 3)
    assert GATE.complaint(GATE.defaults, inputs) is None
    none = {**GATE.defaults, "min_pass": None, "not_worse": None}
    assert "give min_pass or not_worse" in (GATE.complaint(none, inputs) or "")
    several = {**GATE.defaults, "samples": 3}
    assert "at temperature 0 all samples are one" in (GATE.complaint(several, inputs) or "")
    warm = make_inputs(make_prompts("a"), 3, temperature=0.7)
    assert GATE.complaint(several, warm) is None
    assert GATE.asks(several, warm).samples == 3


def test_complaints_of_checks() -> None:
    of_kind = {**GATE.defaults, "checks": {"json": (config("length"),)}}
    inputs = make_inputs(make_prompts("a"), 3)
    assert GATE.complaint(of_kind, inputs) == (
        "checks of the kind 'json': length: give min or max: with neither there is nothing to judge"
    )
    prompt = replace(inputs.prompts[0], checks=(config("length"),))
    assert (GATE.complaint(GATE.defaults, replace(inputs, prompts=(prompt,))) or "").startswith(
        "prompts.jsonl, line 1: length: give min or max"
    )


# -- what is saved and shown -----------------------------------------------------------------------


def test_failing_outputs_are_saved(tmp_path: Path) -> None:
    """With the check's own message, and the seed that makes the output again."""
    made = case("zh 1", GOOD, BAD, further=[(GOOD, BAD)])
    verdict = judge(made, temperature=0.7)
    inputs = make_inputs((made.prompt,), 3, temperature=0.7, seed=11)
    path = save_outputs(tmp_path, made, verdict.evidence["failing"], inputs, {"os": "x"})
    assert path.name.startswith("quality-zh-1-")
    assert path.name.endswith("-k3.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema"] == "specgate-quality/1"
    first, second = document["outputs"]
    assert (first["arm"], first["sample"], first["seed"], first["text"]) == ("k=3", 1, 11, BAD)
    assert (second["sample"], second["seed"] == 11) == (2, False)
    (failed,) = first["failed"]
    assert failed["check"] == "json"
    assert failed["message"].startswith("not JSON at line 1")


def report(verdict: Verdict) -> SessionReport:
    """A session of this verdict."""
    return SessionReport("passed", {}, (), (verdict,), {"quality": "quality"})


def test_the_section_of_the_reports() -> None:
    verdict = judge(case("a", GOOD), case("b", GOOD, BAD), case("c", GOOD, kind="x"), min_pass=0.1)
    lines = summary_lines(report(verdict), 80)
    at = lines.index("quality: outputs that pass every check (k=3)")
    assert lines[at + 2 : at + 5] == [
        "kind  prompts  outputs  plain passed  spec passed",
        "json        2        2             2            1",
        "x           1        1             1            1",
    ]
    text = markdown(report(verdict))
    assert "### Quality (k=3)" in text
    assert "| json | 2 | 2 | 2 | 1 |" in text


@pytest.mark.parametrize(
    ("temperature", "texts", "state", "note"),
    [
        (0.7, (GOOD, GOOD), "yes", "60 of 60 (plain 60 of 60)"),
        (0.7, (GOOD, BAD), "no", "0 of 60 speculative outputs pass"),
        (0.0, (GOOD, GOOD), "not measured", "greedy output passes; decoding.temperature above 0"),
        (0.0, (BAD, BAD), "no", "0 of 60 speculative outputs pass"),
    ],
)
def test_the_line_of_the_checklist(
    temperature: float, texts: tuple[str, str], state: str, note: str
) -> None:
    verdict = judge(*(case(f"p{i}", *texts) for i in range(60)), temperature=temperature)
    (found,) = (c for c in checklist(report(verdict)) if c.name == "quality of sampled tasks")
    assert found.state == state
    assert found.note.startswith(note)


def test_an_undecided_verdict_in_the_checklist() -> None:
    verdict = Verdict("quality", "k=3", "inconclusive", "no time was left")
    (found,) = (c for c in checklist(report(verdict)) if c.name == "quality of sampled tasks")
    assert (found.state, found.note) == ("not measured", "no time was left")


def test_prompts_with_checks_reach_other_processes(tmp_path: Path) -> None:
    """As the findings of a worker of pytest-xdist do; a schema goes with them."""
    (tmp_path / "s.json").write_text("{}", encoding="utf-8")
    made = ready(CheckConfig("json", "s.json", "here", tmp_path), CHECKS)
    prompt = Prompt("a", "x", "json", 8, (made,))
    assert pickle.loads(pickle.dumps(prompt)).checks == (made,)

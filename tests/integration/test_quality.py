"""The gate quality in whole sessions: real models of known output, samples, and wrong checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Gate
from tests.integration.test_examples import copy
from tests.models import saying

import_module("pytest_specgate.session")  # pytester would import it anew in each test

ORDER = (
    '{"id":"A-17",',
    '"items":[',
    '{"name":"lamp",',
    '"quantity":2,',
    '"price":24.5}',
    "],",
    '"total":49}',
)
OTHER_TOTAL = (*ORDER[:-1], '"total":50}')
NO_PRICE = (*ORDER[:4], '"cost":24.5}', *ORDER[5:])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """pair(*pieces): a model that says them, and a draft that errs once."""

    def make(*pieces: str) -> Path:
        swapped = (*pieces[:3], pieces[4], pieces[3], *pieces[5:])
        return saying(tmp_path_factory.mktemp("said"), *pieces, draft=swapped)

    return make


class TestJsonService:
    """examples/json_service as it stands, on a model that says one order whatever it is asked."""

    ONLY = ("-k", "quality", "gates.yaml")

    def prepare(self, pytester: pytest.Pytester) -> None:
        """The example with the prompts of its orders alone."""
        copy("json_service", pytester)
        path = pytester.path / "prompts.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines()[:2]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def test_good_orders_pass(
        self, pytester: pytest.Pytester, gate: Gate, pair: Callable[..., Path]
    ) -> None:
        self.prepare(pytester)
        result, report = gate(pair(*ORDER), *self.ONLY)
        result.assert_outcomes(passed=1, deselected=3)
        arms = report["cases"][0]["arms"]
        assert {arm["text"] for arm in arms.values()} == {"".join(ORDER)}
        assert {arm["finish_reason"] for arm in arms.values()} == {"stop"}
        assert 0 < arms["k=3"]["blocks"]["acceptance_rate"] < 1
        result.stdout.fnmatch_lines(
            ["quality *passed *2 of 2 (plain 2 of 2)*", "order *2 *2 *2 *2"]
        )

    def test_a_total_that_does_not_add_up_fails(
        self, pytester: pytest.Pytester, gate: Gate, pair: Callable[..., Path]
    ) -> None:
        """Found by the check in the example's conftest; saved with its message."""
        self.prepare(pytester)
        result, report = gate(pair(*OTHER_TOTAL), *self.ONLY)
        result.assert_outcomes(failed=1, deselected=3)
        message = "the total is 50, the items add up to 49"
        result.stdout.fnmatch_lines(
            [
                "quality failed: 0 of 2 speculative outputs pass every check, the limit is 100%",
                f"*order-1, both paths: total_adds_up: {message}",
            ]
        )
        result.stdout.no_fnmatch_line("*Traceback*")
        (verdict,) = (v for v in report["verdicts"] if v["gate"] == "quality")
        assert len(verdict["evidence"]["failing"]) == 4
        folder = pytester.path / ".specgate" / "failures"
        saved = json.loads((folder / "quality-order-1-k3.json").read_text(encoding="utf-8"))
        assert saved["outputs"][1]["text"] == "".join(OTHER_TOTAL)
        assert saved["outputs"][1]["failed"] == [{"check": "total_adds_up", "message": message}]

    def test_an_order_that_leaves_the_schema_fails(
        self, pytester: pytest.Pytester, gate: Gate, pair: Callable[..., Path]
    ) -> None:
        self.prepare(pytester)
        result, _ = gate(pair(*NO_PRICE), *self.ONLY)
        result.assert_outcomes(failed=1, deselected=3)
        result.stdout.fnmatch_lines(["*order-1, both paths: json: at $.items?0?: *price*"])

    def test_all_of_it_is_collected(
        self, pytester: pytest.Pytester, gate: Gate, pair: Callable[..., Path]
    ) -> None:
        copy("json_service", pytester)
        result, _ = gate(pair(*ORDER), "--collect-only", "-q", "gates.yaml")
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines(["gates.yaml::quality"])


# -- a scripted engine: samples, faults ------------------------------------------------------------

CONFTEST = """
import pytest
from dataclasses import replace
from pytest_specgate import Check, specgate_check
from tests.fakes import FakeEngine, FakePair, Script

SEEDS = []

class Pair(FakePair):
    def generate(self, prompt, decoding, **more):
        made = super().generate(prompt, decoding, **more)
        SEEDS.append(decoding.seed)
        return replace(made, text=TEXTS(len(self.made), more["num_draft_tokens"]))

def TEXTS(number, k):
    return '{"a": 1}'

PAIR = Pair()

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_engines():
    return {"fake": lambda: FakeEngine(PAIR)}

@pytest.hookimpl(optionalhook=True)
def pytest_specgate_checks():
    return [Check("of_a_plugin", lambda output, options: None)]

@specgate_check("mine")
def mine(output, word="a"):
    return None if word in output.text else f"no {word}"
"""
OPTIONS = ("--spec-target=t", "--spec-draft=d", "--spec-engine=fake", "--spec-report=json:out.json")
HEAD = """\
version: 1
prompts: {file: prompts.jsonl}
decoding: {max_tokens: 8, temperature: 0.7}
gates:
"""

Session = Callable[..., tuple[pytest.RunResult, dict[str, Any]]]


@pytest.fixture
def session(pytester: pytest.Pytester) -> Session:
    """session(quality, prompts, conftest): a session with this gate and these lines."""
    pytester.mkdir("t")
    pytester.mkdir("d")

    def run(
        quality: str = "{}",
        *prompts: str,
        more: str = "",
        options: tuple[str, ...] = (),
        head: str = HEAD,
    ) -> tuple[pytest.RunResult, dict[str, Any]]:
        pytester.makeconftest(CONFTEST + more)
        lines = prompts or ('{"id": "a", "prompt": "say a", "checks": ["json", "mine"]}',)
        (pytester.path / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        text = f"{head}  quality: {quality}\n"
        (pytester.path / "gates.yaml").write_text(text, encoding="utf-8")
        result = pytester.runpytest(*OPTIONS, *options)
        path = pytester.path / "out.json"
        return result, json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    return run


def quality_of(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict."""
    (verdict,) = (v for v in report["verdicts"] if v["gate"] == "quality")
    found: dict[str, Any] = verdict
    return found


def test_samples_of_each_path(session: Session) -> None:
    """As many as asked, a seed each, the same on both paths."""
    shows = "\ndef pytest_unconfigure():\n    print('SEEDS', SEEDS)\n"
    result, report = session("{samples: 60}", more=shows)
    result.assert_outcomes(passed=1)
    assert quality_of(report)["samples"] == 60
    (line,) = (line for line in result.outlines if line.startswith("SEEDS"))
    seeds = json.loads(line.partition(" ")[2])
    assert len(seeds) == 120
    assert seeds[0] == seeds[1] == 20260928
    assert seeds[::2] == seeds[1::2]
    assert len(set(seeds)) == 60
    result.stdout.fnmatch_lines("*120 generations planned*")


def test_few_samples_are_inconclusive(session: Session) -> None:
    result, report = session("{samples: 5}")
    assert result.ret == pytest.ExitCode.OK
    assert quality_of(report)["status"] == "inconclusive"
    result.stdout.fnmatch_lines("*samples: 60 would decide it at these rates.")


def test_a_sample_that_breaks_is_told(session: Session) -> None:
    """The item fails; the prompt's other gates are not spoiled."""
    more = """
from pytest_specgate import EngineError
PAIR.raises = {("say a", "k=3", 4): EngineError("no memory")}
"""
    result, report = session("{samples: 60, min_pass: 0.5, not_worse: null}", more=more)
    verdict = quality_of(report)
    assert verdict["status"] == "failed"
    assert verdict["reason"] == "generating broke: a, sample 5, k=3: no memory"
    assert report["cases"][0]["error"] is None
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_check_that_raises_fails_the_item(session: Session) -> None:
    more = """
@specgate_check("wrong")
def wrong(output):
    return output.nothing
"""
    result, _ = session("{}", '{"id": "a", "prompt": "say a", "checks": ["wrong"]}', more=more)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*the check 'wrong' is at fault, at a: it broke on an output: *")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_catastrophic_pattern_is_stopped_and_reported(session: Session) -> None:
    more = "\ndef TEXTS(number, k):\n    return 'a' * 40 + '!'\n"
    prompt = '{"id": "a", "prompt": "say a", "checks": [{"regex": "(a|aa)+$"}]}'
    result, _ = session("{}", prompt, more=more)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*a, both paths: regex: the pattern *backtracks without end")


def test_checks_of_kinds_and_of_plugins(session: Session) -> None:
    """A prompt's own win; an empty list is none at all."""
    result, report = session(
        "{checks: {k: [of_a_plugin, {mine: zzz}]}, min_pass: 0.1, not_worse: null}",
        '{"id": "a", "kind": "k", "prompt": "say a"}',
        '{"id": "b", "kind": "k", "prompt": "say b", "checks": ["of_a_plugin"]}',
        '{"id": "c", "kind": "k", "prompt": "say c", "checks": []}',
    )
    verdict = quality_of(report)
    assert {one["prompt"] for one in verdict["evidence"]["failing"]} == {"a"}
    assert verdict["samples"] == 2
    assert any("without checks (c)" in line for line in verdict["details"])
    assert "no zzz" in verdict["evidence"]["failing"][0]["message"]
    assert result.ret == pytest.ExitCode.OK


def test_the_marker(session: Session, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from pytest_specgate import spec_quality

        @spec_quality(min_pass=0.05, not_worse=None, checks={"other": ["json"]})
        def test_it(): ...
        """
    )
    result, _ = session("{}", options=("test_the_marker.py", "--strict-markers"))
    result.assert_outcomes(passed=1)


WRONG = {
    '{"id": "a", "prompt": "x", "checks": ["jsn"]}': (
        "prompts.jsonl, line 1 (a): checks: no check 'jsn'; did you mean 'json'? (allowed: json, "
    ),
    '{"id": "a", "prompt": "x", "checks": [{"json": {"schema": "no.json"}}]}': (
        "prompts.jsonl, line 1 (a): checks: json.schema no such file: "
    ),
    '{"id": "a", "prompt": "x", "checks": {"json": {}}}': (
        "prompts.jsonl, line 1: checks must be a list of checks such as "
    ),
    '{"id": "a", "prompt": "x", "checks": [{"regex": "("}]}': (
        "prompts.jsonl, line 1 (a): checks: regex.pattern '(' is no regular expression"
    ),
    '{"id": "a", "prompt": "x", "checks": [{"length": {}}]}': (
        "gates.yaml, line 5: quality: *prompts.jsonl, line 1 (a): length: give min or max"
    ),
    '{"id": "a", "prompt": "x", "checks": [{"mine": {"wrd": 1}}]}': (
        "mine has no option 'wrd'; did you mean 'word'?"
    ),
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_checks_are_usage_errors(session: Session, line: str) -> None:
    result, _ = session("{}", line)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    words = WRONG[line].split("*")
    assert all(word in " ".join(result.errlines) for word in words)
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("quality", "says"),
    [
        ("{checks: {k: [jsn]}}", "line 5: quality.checks of the kind 'k': no check 'jsn'"),
        ("{min_pass: 2}", "line 5: quality.min_pass must be > 0 and <= 1, found 2"),
        ("{min_pass: null, not_worse: null}", "line 5: quality: give min_pass or not_worse"),
        ("{checks: {k: [{json: none.json}]}}", "json.schema no such file: "),
        ("{sample: 3}", "line 5: 'quality' has no option 'sample'; did you mean 'samples'?"),
    ],
)
def test_wrong_options_are_usage_errors(session: Session, quality: str, says: str) -> None:
    result, _ = session(quality)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert says in " ".join(result.errlines)


def test_samples_at_temperature_0_are_a_usage_error(session: Session) -> None:
    result, _ = session("{samples: 3}", head=HEAD.replace("0.7", "0"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "at temperature 0 all samples are one" in " ".join(result.errlines)


def test_no_check_anywhere_is_never_green(session: Session) -> None:
    result, _ = session("{}", '{"id": "a", "prompt": "say a"}')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("quality failed: nothing to judge: no prompt has a check")

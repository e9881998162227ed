"""Whole sessions: what is collected, judged, shown and written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_specgate.demo.constructed import PairRecipe

from ..conftest import ConstructedPair
from .conftest import Gate

QUICK = PairRecipe(agreement=0.85, target_layers=2)
LIMITS = (
    "gates: {parity: {}, speedup: {min: 0.01, margin: 0.5}, latency: {p95_max_ratio: 99}, "
    "memory: {}}"
)


@pytest.fixture
def pair(constructed: Callable[[PairRecipe], ConstructedPair]) -> Path:
    """A quick pair that is exact."""
    return constructed(QUICK)[0]


def options_for(pair: Path) -> tuple[str, ...]:
    """Both models as options."""
    return "--spec-target", f"{pair}/target", "--spec-draft", f"{pair}/draft"


def write_gates(pytester: pytest.Pytester, text: str, name: str = "gates.yaml") -> Path:
    """A gates file in the session's folder."""
    path = pytester.path / name
    path.write_text(f"version: 1\n{text}\n", encoding="utf-8")
    return path


def test_every_gate_of_a_file_is_an_item(
    gate: Gate, pair: Path, pytester: pytest.Pytester, prompts: Callable[..., str]
) -> None:
    """Per-prompt items first, then the gates over all prompts; figures in JSON and JUnit alike."""
    prompts(**{f"p{i}": f"Say {i}." for i in range(6)})
    write_gates(
        pytester,
        f"prompts: {{file: prompts.jsonl}}\ndecoding: {{max_tokens: 8}}\n"
        f"measure: {{min_rounds: 10, max_rounds: 10}}\n{LIMITS}",
    )
    result, report = gate(pair, "-v", "--junitxml=out.xml")
    result.assert_outcomes(passed=9)
    assert result.ret == 0
    names = [f"gates.yaml::parity[[]p{i}[]]*PASSED*" for i in range(6)]
    gates = [f"gates.yaml::{name}*PASSED*" for name in ("speedup", "latency_p95", "memory")]
    result.stdout.fnmatch_lines([*names, *gates])
    assert [v["gate"] for v in report["verdicts"]] == ["parity"] * 6 + [
        "speedup",
        "latency",
        "memory",
    ]
    speedup = report["verdicts"][6]
    assert (speedup["subject"], speedup["samples"], speedup["unit"]) == ("k=3", 60, "x")
    for case in report["cases"]:
        for arm in case["arms"].values():
            assert len(arm["trials"]) == 10
            assert [trial["round"] for trial in arm["trials"]] == list(range(1, 11))
            for trial in arm["trials"]:
                assert 0 < trial["ttft_s"] <= trial["e2e_s"]
                assert trial["ttft_s"] + trial["decode_s"] <= trial["e2e_s"]
                assert trial["peak_memory_bytes"] > report["pair"]["target"]["bytes"]
    root = ElementTree.parse(pytester.path / "out.xml").getroot()
    found = {
        case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in root.iter("testcase")
    }
    assert found["speedup"]["specgate_observed"] == str(speedup["observed"])
    assert found["speedup"]["specgate_status"] == "passed"
    assert found["parity[p0]"]["specgate_subject"] == "p0"


def test_one_gate_by_its_name(gate: Gate, pair: Path, pytester: pytest.Pytester) -> None:
    """``gates.yaml::memory`` runs that gate alone."""
    write_gates(pytester, f"prompts: {{builtin: smoke}}\ndecoding: {{max_tokens: 4}}\n{LIMITS}")
    result, report = gate(pair, "gates.yaml::parity[json-01]", "gates.yaml::parity[python-02]")
    result.assert_outcomes(passed=2)
    assert [v["subject"] for v in report["verdicts"]] == ["json-01", "python-02"]
    assert [case["id"] for case in report["cases"]] == ["json-01", "python-02"]


@pytest.mark.parametrize(
    ("arguments", "collected"),
    [
        ((), {"tests/test_own.py", "gates.yaml"}),
        (("tests",), {"tests/test_own.py"}),
        (("tests", "--spec-gates", "other.yaml"), {"tests/test_own.py", "other.yaml"}),
        (("gates.yaml",), {"gates.yaml"}),
        ((".",), {"tests/test_own.py", "gates.yaml"}),
        (("--spec-gates", "other.yaml"), {"tests/test_own.py", "other.yaml"}),
    ],
)
def test_which_files_are_collected(
    pair: Path, pytester: pytest.Pytester, arguments: tuple[str, ...], collected: set[str]
) -> None:
    """The rootdir's gates file runs beside testpaths; with paths, only what they name."""
    write_gates(pytester, "gates: {memory: {}}")
    write_gates(pytester, "gates: {speedup: {}}", "other.yaml")
    pytester.makeini("[pytest]\ntestpaths = tests\n")
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_a(): pass\n")
    result = pytester.runpytest(*options_for(pair), "--collect-only", "-q", *arguments)
    assert result.ret == 0
    seen = [line for line in result.outlines if "::" in line]
    assert {line.split("::")[0] for line in seen} == collected
    assert len(seen) == len(set(seen)) == len(collected)
    assert not (pytester.path / ".specgate").exists()


def test_a_plain_session_never_picks_up_a_gates_file(pytester: pytest.Pytester) -> None:
    """Without a pair a file of that name is another program's business."""
    pytester.path.joinpath("gates.yaml").write_text("not: ours\n")
    pytester.makepyfile("def test_a(): pass")
    result = pytester.runpytest()
    result.assert_outcomes(passed=1)
    assert "specgate:" not in result.stdout.str()


def test_the_built_in_gates_run_where_there_is_no_file(
    pair: Path, pytester: pytest.Pytester
) -> None:
    """The four default gates over the core prompts, under the name gates.yaml."""
    result = pytester.runpytest(*options_for(pair), "--collect-only", "-q")
    lines = [line for line in result.outlines if line.startswith("gates.yaml::")]
    assert lines[0] == "gates.yaml::preflight"
    assert [line.split("::")[1] for line in lines[-3:]] == ["speedup", "latency_p95", "memory"]
    assert sum("::parity[" in line for line in lines) == len(lines) - 4 >= 24


def test_several_numbers_of_draft_tokens(
    gate: Gate, pair: Path, pytester: pytest.Pytester, prompts: Callable[..., str]
) -> None:
    """An item a number for the gates over all prompts; the plain arm is measured once."""
    write_gates(pytester, LIMITS.replace(", latency: {p95_max_ratio: 99}", ""))
    result, report = gate(
        pair,
        *("--spec-prompts", prompts(a="Say a."), "--spec-max-tokens", "8"),
        *("--spec-num-draft-tokens", "2,5", "--spec-rounds", "5", "-v"),
    )
    result.assert_outcomes(passed=5)
    for name in ("speedup", "memory"):
        for k in (2, 5):
            result.stdout.fnmatch_lines([f"gates.yaml::{name}[[]k={k}[]]*PASSED*"])
    arms = report["cases"][0]["arms"]
    assert {name: len(arm["trials"]) for name, arm in arms.items()} == dict.fromkeys(
        ("plain", "k=2", "k=5"), 5
    )


def test_markers_and_fixtures_share_what_was_measured(
    gate: Gate, pair: Path, pytester: pytest.Pytester
) -> None:
    """A project's own tests: markers judge, fixtures give the pair, the evidence, a comparison."""
    pytester.makepyfile(
        """
        import pytest
        from pytest_specgate import spec_acceptance, spec_inputs, spec_parity, spec_speedup

        pytestmark = spec_inputs(prompts=["Say a.", "Say b."], max_tokens=12)

        @spec_parity
        @spec_acceptance(min=0.3)
        def test_exact(spec_evidence):
            assert spec_evidence.acceptance_rate > 0.3
            assert spec_evidence.exact
            assert spec_evidence.speedup is None

        @spec_speedup(min=0.01)
        @spec_inputs(min_rounds=5, max_rounds=5)
        def test_fast(spec_evidence, spec_prompts):
            assert [len(c.plain.trials) for c in spec_evidence.cases] == [5, 5]
            assert [p.text for p in spec_prompts] == ["Say a.", "Say b."]

        @spec_speedup(min=50)
        @spec_acceptance(min=0.999)
        @spec_inputs(min_rounds=7, max_rounds=7)
        def test_red():
            raise AssertionError("the body does not run after a failed gate")

        def test_by_hand(spec_pair, spec_compare, spec_environment):
            result = spec_compare("Say c.", max_tokens=9, num_draft_tokens=4)
            assert result.parity.exact and result.parity.first_difference is None
            assert len(result.plain.tokens) == 9
            assert result.blocks.proposed >= result.blocks.accepted
            assert result.speedup is None
            assert spec_compare("Say c.", max_tokens=4, rounds=2).speedup > 0
            import mlx.nn
            assert isinstance(spec_pair.target, mlx.nn.Module)
            assert spec_pair.tokenizer.encode("a")
            assert spec_environment["versions"]["mlx-lm"]
        """
    )
    write_gates(pytester, "gates: {parity: {}}", "unused.yaml")
    own = "test_markers_and_fixtures_share_what_was_measured.py"
    result, report = gate(pair, own, "--strict-markers")
    result.assert_outcomes(passed=3, failed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*speedup failed: the speculative path is *x as fast as the plain path, the limit is 50*"]
    )
    result.stdout.fnmatch_lines(["acceptance failed: *the limit is 1.00*"])
    assert "AssertionError: the body does not run" not in result.stdout.str()
    statuses = {(v["gate"], v["status"]) for v in report["verdicts"]}
    assert {("parity", "passed"), ("speedup", "failed"), ("acceptance", "failed")} <= statuses


def test_undecided_is_its_own_word(gate: Gate, pair: Path, prompts: Callable[..., str]) -> None:
    """Too few rounds decide nothing: exit 0, but never shown as passed."""
    result, report = gate(
        pair,
        *("--spec-prompts", prompts(a="Say a."), "--spec-max-tokens", "6", "--spec-rounds", "2"),
        *("-k", "speedup or latency"),
    )
    assert result.ret == 0
    assert report["status"] == "inconclusive"
    result.stdout.fnmatch_lines(["*=== 3 deselected, 2 inconclusive in *"])
    result.stdout.fnmatch_lines(["speedup (k=3) is undecided: 2 rounds cannot decide: it takes 5."])
    result.stdout.fnmatch_lines(["*p95 cannot be estimated from 2 trials*"])


def test_engine_that_ignores_the_draft_is_red(
    gate: Gate, pair: Path, pytester: pytest.Pytester
) -> None:
    """Equal output proves nothing when the draft was never called."""
    pytester.makeconftest(
        """
        import pytest

        class Forgetful:
            name = "forgetful"

            def __init__(self):
                from pytest_specgate.engines.mlx_lm import MlxLmEngine
                self.real = MlxLmEngine()

            def describe(self):
                return self.real.describe()

            def load(self, inputs):
                pair = self.real.load(inputs)
                generate = pair.generate
                def plain(prompt, decoding, *, num_draft_tokens, **more):
                    return generate(prompt, decoding, num_draft_tokens=None, **more)
                pair.generate = plain
                return pair

        @pytest.hookimpl(optionalhook=True)
        def pytest_specgate_engines():
            return {"forgetful": Forgetful}
        """
    )
    write_gates(pytester, "gates: {parity: {}, acceptance: {min: 0}, speedup: {min: 0.01}}")
    result, report = gate(
        pair,
        *("--spec-engine", "forgetful", "--spec-prompts", "smoke", "--spec-max-tokens", "4"),
        *("-k", "json-01 or speedup or acceptance", "--spec-rounds", "1"),
    )
    assert result.ret == 1
    assert {v["status"] for v in report["verdicts"]} == {"failed"}
    assert all("nothing was drafted" in v["reason"] for v in report["verdicts"])


@pytest.mark.parametrize("fault", ["missing", "truncated", "no weights"])
def test_a_broken_model_is_one_clear_paragraph(
    pair: Path, pytester: pytest.Pytester, fault: str
) -> None:
    """A model that cannot be loaded fails its items with mlx-lm's own message, no traceback."""
    broken = pytester.path / "broken"
    broken.mkdir()
    for file in (pair / "target").iterdir():
        broken.joinpath(file.name).write_bytes(file.read_bytes())
    weights = broken / "model.safetensors"
    match fault:
        case "missing":
            broken.joinpath("config.json").unlink()
        case "truncated":
            weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
        case _:
            weights.unlink()
    result = pytester.runpytest(
        *("--spec-target", str(broken), "--spec-draft", f"{pair}/draft", "--spec-prompts", "smoke"),
        *("-k", "json-01 or speedup"),
    )
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [f"parity[[]json-01[]] failed: the target {broken} cannot be loaded: *"]
    )
    assert "Traceback" not in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


def test_interrupt_keeps_what_was_measured(pair: Path, pytester: pytest.Pytester) -> None:
    """Ctrl-C in the middle: the report is printed and written, marked incomplete, exit 2."""
    write_gates(
        pytester, "measure: {min_rounds: 500, max_rounds: 500}\ngates: {parity: {}, speedup: {}}"
    )
    pytester.makeconftest(
        """
        import pathlib, pytest, signal

        # ignored where a shell has put the tests into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)

        @pytest.hookimpl(optionalhook=True)
        def pytest_specgate_trial_finished(trial, prompt, arm):
            if trial.round == 2:
                pathlib.Path("measuring").touch()
        """
    )
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", *options_for(pair), "--spec-prompts", "smoke"),
            *("--spec-max-tokens", "8", "--spec-report", "json:out.json"),
        ],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (pytester.path / "measuring").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert "Interrupted: incomplete, this is what was measured until then." in output
    assert "12 of 12 exact" in output
    report = json.loads((pytester.path / "out.json").read_text())
    assert report["status"] == "incomplete"
    assert len(report["cases"]) == 12
    for case in report["cases"]:
        assert len({len(arm["trials"]) for arm in case["arms"].values()}) == 1
    assert sorted(p.name for p in pytester.path.iterdir() if p.suffix == ".part") == []


def test_the_demo_pair_is_exact(gate: Gate, pytester: pytest.Pytester) -> None:
    """--spec-demo with no path runs the gates alone, on smoke prompts of at most 48 tokens."""
    pytester.makepyfile("def test_own(): raise AssertionError")
    result, report = gate(None, "--spec-demo", "-k", "parity")
    result.assert_outcomes(passed=12)
    assert result.ret == 0
    assert {case["kind"] for case in report["cases"]} == {"explain", "python", "json", "summary"}
    assert report["decoding"]["num_draft_tokens"] == [3]
    blocks = [case["arms"]["k=3"]["blocks"] for case in report["cases"]]
    rate = sum(b["accepted"] for b in blocks) / sum(b["proposed"] for b in blocks)
    assert 0.6 < rate < 0.8
    assert all(len(c["arms"]["plain"]["tokens"]) <= 48 for c in report["cases"])


def test_a_demo_folder_that_cannot_be_written(gate: Gate, pytester: pytest.Pytester) -> None:
    """The folder is to blame, not the engine."""
    folder = pytester.mkdir(".pytest_cache") / "d"
    folder.write_text("a file, not a folder")
    result, report = gate(None, "--spec-demo", "-k", "parity", "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (error,) = {case["error"] for case in report["cases"]}
    assert error.startswith(f"the demo pair cannot be built: its folder {folder}/specgate-demo-")
    assert " cannot be written: " in error
    shown = result.stdout.str()
    assert error in shown
    assert "broke" not in shown
    assert "Traceback" not in shown


def test_a_report_that_cannot_be_written_is_red(
    gate: Gate, pair: Path, pytester: pytest.Pytester, prompts: Callable[..., str]
) -> None:
    """The file was asked for: an exit code of 0 would say it is there."""
    (pytester.path / "blocked").write_text("a file, not a folder")
    result = pytester.runpytest(
        *options_for(pair),
        *("--spec-prompts", prompts(a="Say a."), "--spec-max-tokens", "4", "-k", "parity"),
        *("--spec-report", "json:blocked/out.json"),
    )
    assert result.ret in (1, 4)
    assert "cannot be written" in result.stdout.str() + result.stderr.str()
    assert "Traceback" not in result.stdout.str()


def test_a_model_outside_the_project_does_not_move_its_root(
    pair: Path, pytester: pytest.Pytester
) -> None:
    """pytest takes a directory on its command line for a test path; the project keeps its own."""
    pytester.makeini("[pytest]\ntestpaths = own\nmarkers = mine: of this project\n")
    own = pytester.mkdir("own")
    own.joinpath("test_own.py").write_text("def test_a(request): print(request.config.rootpath)\n")
    write_gates(pytester, "gates: {memory: {}}")
    for options in (options_for(pair), (f"--spec-target={pair}/target", *options_for(pair)[2:])):
        result = pytester.runpytest(*options, "-k", "test_a", "-s")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([f"rootdir: {pytester.path}", "configfile: tox.ini"])
        result.stdout.fnmatch_lines([f"*{pytester.path}"])

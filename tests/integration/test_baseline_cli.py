"""``python -m pytest_specgate``: two files compared, one shown, one migrated, with no model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_specgate.__main__ import main
from pytest_specgate.baseline.document import Baseline
from pytest_specgate.baseline.writing import dumps
from tests.baselines import FACTS, mix, stored

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with no gates file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, name: str, baseline: Baseline) -> str:
    """A file with this baseline."""
    (folder / name).write_text(dumps(baseline), encoding="utf-8")
    return name


def test_compare(folder: Path, capsys: Capture) -> None:
    """0 where nothing is worse, 1 where a figure is, with what changed first."""
    then = put(folder, "a.json", stored(*mix()))
    facts = {**FACTS, "versions": {"mlx": "9"}}
    same = put(folder, "b.json", stored(*mix(), facts=facts))
    worse = put(folder, "c.json", stored(*mix(1.8)))
    assert main(["compare", then, same]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.json -> b.json (k=3)"
    starts = [line.split("  ")[0] for line in lines]
    assert starts.index("what changed") < starts.index("mlx") < starts.index("figure")
    assert main(["compare", then, worse]) == 1
    assert "speedup failed: 2.00x before, 1.80x after" in capsys.readouterr().out


def test_compare_by_the_limits_of_a_gates_file(folder: Path, capsys: Capture) -> None:
    """Named, or that of the current folder."""
    files = [put(folder, "a.json", stored(*mix())), put(folder, "b.json", stored(*mix(1.8)))]
    text = "version: 1\ngates:\n  baseline: {speedup: -20%, p95: null}\n"
    (folder / "wide.yaml").write_text(text, encoding="utf-8")
    assert main(["compare", *files, "--gates", "wide.yaml"]) == 0
    assert main(["compare", *files]) == 1
    (folder / "wide.yaml").rename(folder / "gates.yaml")
    assert main(["compare", *files]) == 0
    (folder / "gates.yaml").write_text(text.replace("-20%", "+5%"), encoding="utf-8")
    capsys.readouterr()
    assert main(["compare", *files]) == 4
    assert "for the worse" in capsys.readouterr().err


def test_an_arm_that_is_gone_is_named(folder: Path, capsys: Capture) -> None:
    """Not silently dropped."""
    files = [put(folder, "a.json", stored(*mix(k=5))), put(folder, "b.json", stored(*mix()))]
    assert main(["compare", *files]) == 1
    out = capsys.readouterr().out
    assert "not comparable: k=3 is not stored" in out
    assert "not comparable: k=5 is not measured now" in out


def test_nothing_stored(folder: Path, capsys: Capture) -> None:
    """Never green."""
    file = put(folder, "a.json", stored())
    assert main(["compare", file, file]) == 1
    assert "there is nothing to compare" in capsys.readouterr().out


def test_markdown(folder: Path, capsys: Capture) -> None:
    """Tables whose rows have as many cells as the header, whatever a file holds."""
    evil = "a|b\n</td><script> `c` | d"
    then = put(folder, "a.json", stored(*mix()))
    now = put(folder, "b.json", stored(*mix(1.8), facts={**FACTS, "os": evil}))
    assert main(["compare", then, now, "--markdown"]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4, 7}
    assert not any(re.search(r"(?<!\\)<[A-Za-z/!?]", line) for line in lines)
    assert any("a\\|b\\\\n\\</td" in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            [],
            ["odd"],
            ["compare", "a.json"],
            ["compare", "a.json", "no.json"],
            ["show", "no.json"],
        ),
        ["compare", "a.json", "a.json", "--gates", "no.yaml"],
        ["migrate", "no.json"],
    ],
)
def test_a_wrong_call(folder: Path, capsys: Capture, arguments: list[str]) -> None:
    """Exit 4."""
    put(folder, "a.json", stored(*mix()))
    assert main(arguments) == 4
    assert capsys.readouterr().err


@pytest.mark.parametrize("command", [["compare", "a.json"], ["show"], ["migrate"]])
def test_a_file_that_is_no_baseline(folder: Path, capsys: Capture, command: list[str]) -> None:
    """Exit 1, one line, the file as it was."""
    put(folder, "a.json", stored(*mix()))
    (folder / "b.json").write_text("{}", encoding="utf-8")
    assert main([*command, "b.json"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("ERROR: b.json: not a baseline: schema must be ")
    assert (folder / "b.json").read_text(encoding="utf-8") == "{}"


def test_show(folder: Path, capsys: Capture) -> None:
    """At a glance."""
    assert main(["show", put(folder, "a.json", stored(*mix()))]) == 0
    out = capsys.readouterr().out
    for words in ("mlx 0.31.3", "machine   paper", "8.00 GB", "arms k=3, plain", "trials    72"):
        assert words in out


def test_migrate(folder: Path) -> None:
    """Today's schema is written as it would be today."""
    file = folder / put(folder, "a.json", stored(*mix()))
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert main(["migrate", "a.json"]) == 0
    assert file.read_bytes() == before.encode()


def test_nothing_heavy_is_imported(folder: Path) -> None:
    """Neither mlx nor transformers is needed to compare."""
    file = put(folder, "a.json", stored(*mix()))
    code = (
        "import sys; from pytest_specgate.__main__ import main\n"
        f"assert main(['compare', {file!r}, {file!r}]) == 0\n"
        "heavy = {'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'torch'} & {*sys.modules}\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr

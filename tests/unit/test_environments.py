"""Environments to measure against: what is installed, what is kept, and how it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from pytest_specgate.engines import environments
from pytest_specgate.engines.base import EngineError
from pytest_specgate.engines.environments import is_requirement, pins, python_of


class Installer:
    """Notes commands; makes what ``venv`` would; fails those that hold a word."""

    def __init__(self, *fails_with: str) -> None:
        self.commands: list[list[str]] = []
        self._fails_with = fails_with

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        wrong = any(word in part for part in command for word in self._fails_with)
        return subprocess.CompletedProcess(command, int(wrong), "", "no matching  version\n")

    @property
    def installs(self) -> list[list[str]]:
        """What was asked for in each install, without the installer's own words."""
        return [
            [part for part in command[command.index("install") + 1 :] if part[0] != "-"]
            for command in self.commands
            if "install" in command
        ]


def test_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One factor at a time: the backend stays, and so do the versions beside mlx-lm."""
    monkeypatch.setattr(environments, "backend", lambda: "cpu")
    run = Installer()
    python = python_of("mlx-lm==0.31.1", tmp_path, run)
    assert python == python_of("mlx-lm==0.31.1", tmp_path, run)
    (installed,) = run.installs
    now = [f"{name}=={metadata.version(name)}" for name in ("mlx", "transformers", "tokenizers")]
    assert installed[-5:] == ["mlx-lm==0.31.1", "mlx[cpu]", *now]
    assert python_of("mlx-lm==0.30.7", tmp_path, run) != python


def test_versions_that_the_requirement_forbids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First transformers and tokenizers are let go, then mlx."""
    monkeypatch.setattr(environments, "backend", lambda: None)
    run = Installer("transformers==", "mlx==")
    python_of("mlx-lm==0.28.0", tmp_path, run)
    kept = [[part.split("==")[0] for part in asked if "==" in part] for asked in run.installs]
    assert [names[-3:] for names in kept] == [
        ["mlx", "transformers", "tokenizers"],
        ["mlx-lm", "mlx"],
        ["mlx-lm"],
    ]


def test_a_package_that_is_named_is_not_kept() -> None:
    """Its own version is the factor."""
    assert "mlx" not in pins(["mlx-lm==0.32.2", "mlx>=0.30"])
    assert "mlx" in pins(["mlx-lm==0.32.2"])
    assert "transformers" not in pins(["transformers == 5.0"])


def test_what_cannot_be_installed(tmp_path: Path) -> None:
    """The installer's own words; nothing is taken for whole, and the next try begins afresh."""
    run = Installer("mlx-lm")
    with pytest.raises(EngineError, match=r"installing mlx-lm==9\.9 failed: no matching version"):
        python_of("mlx-lm==9.9", tmp_path, run)
    good = Installer()
    python_of("mlx-lm==9.9", tmp_path, good)
    assert len(good.installs) == 1


def test_without_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """venv and pip do it."""
    monkeypatch.setattr("shutil.which", lambda _: None)
    run = Installer()
    python = python_of("mlx-lm==0.31.1", tmp_path, run)
    venv, install = run.commands
    assert venv[1:3] == ["-m", "venv"]
    assert install[:4] == [str(python), "-m", "pip", "install"]


def test_a_requirements_file(tmp_path: Path) -> None:
    """Given to the installer as it is; what it names is not kept."""
    file = tmp_path / "candidate.txt"
    file.write_text("mlx-lm==0.31.1\nmlx==0.31.1\n")
    run = Installer()
    python_of(file, tmp_path / "environments", run)
    (command,) = [c for c in run.commands if "install" in c]
    assert command[command.index("-r") + 1] == str(file)
    assert not any(part.startswith("mlx==") for part in command)


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        ("mlx-lm==0.32.2", True),
        ("mlx-lm", True),
        ("mlx-lm>=0.31,<0.32", True),
        ("mlx-lm==0.32.2 mlx==0.31.0", True),
        ("mlx-lm @ git+https://example.org/mlx-lm", True),
        ("requirements.txt", False),
        ("../x", False),
        ("", False),
    ],
)
def test_requirements(text: str, yes: bool) -> None:
    assert is_requirement(text) is yes

"""A worker on the other end of ssh: a server on this machine's loopback, with keys of its own."""

from __future__ import annotations

import gc
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specgate.engines.base import EngineError
from pytest_specgate.engines.isolated import IsolatedEngine
from tests.models import dense_config, save_pair

from .conftest import Gate

SERVER = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")


def _key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The spec of a gateway over ssh to this interpreter."""
    if not SERVER or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        pytest.skip("needs sshd, ssh and ssh-keygen (Debian: openssh-server)")
    folder = tmp_path_factory.mktemp("ssh")
    folder.chmod(0o700)
    host, user, port = _key(folder / "host"), _key(folder / "user"), _free_port()
    if os.geteuid() == 0:
        # a server started by hand as root wants the folder that its service would make
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {user}.pub\nStrictModes no\nPasswordAuthentication no\n"
    )
    (folder / "config").write_text(
        f"Host loop\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {user}\n  IdentitiesOnly yes\n  BatchMode yes\n  LogLevel ERROR\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    )
    log = folder / "log"
    with log.open("w") as file:
        server = subprocess.Popen([SERVER, "-D", "-e", "-f", folder / "sshd_config"], stderr=file)
    try:
        for _ in range(100):
            answer = subprocess.run(
                ["ssh", "-F", folder / "config", "loop", "true"], capture_output=True, text=True
            )
            if answer.returncode == 0:
                break
            if server.poll() is not None:
                pytest.skip(f"no ssh server can be started here: {log.read_text()[-200:]}")
            time.sleep(0.05)
        else:
            pytest.skip(f"nobody can log in here over ssh: {answer.stderr[-200:]}")
        yield f"ssh=loop//ssh_config={folder / 'config'}//python={sys.executable}"
    finally:
        server.terminate()
        server.wait(timeout=20)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense pair, whose draft is refused now and then."""
    return save_pair(tmp_path_factory.mktemp("dense"), dense_config(), noise=0.1)


def test_the_pair_is_gated_over_ssh(
    pytester: pytest.Pytester, gate: Gate, pair: Path, loopback: str
) -> None:
    """The same verdicts, and the report says where the worker was."""
    (pytester.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "Say it."}\n')
    (pytester.path / "gates.yaml").write_text("version: 1\ngates: {preflight: {}, parity: {}}\n")
    result, report = gate(
        *(pair, "--spec-max-tokens", "8", "--spec-prompts", "prompts.jsonl"),
        *("--spec-isolate", loopback),
    )
    assert result.ret == 0
    assert {v["status"] for v in report["verdicts"]} == {"passed"}
    assert report["environment"]["device_details"]["worker_gateway"] == loopback


def test_the_other_environment_is_over_ssh(
    pytester: pytest.Pytester, gate: Gate, pair: Path, loopback: str
) -> None:
    """Both sides give the same outputs and the same acceptance."""
    (pytester.path / "prompts.jsonl").write_text('{"id": "a", "prompt": "Say it."}\n')
    (pytester.path / "gates.yaml").write_text(
        "version: 1\ngates: {against: {speedup: null, e2e: null, plain_e2e: null}}\n"
    )
    result, report = gate(
        *(pair, "--spec-max-tokens", "8", "--spec-prompts", "prompts.jsonl"),
        *("--spec-rounds", "5:5", "--spec-against", loopback),
    )
    assert result.ret == 0
    (verdict,) = [v for v in report["verdicts"] if v["subject"] == "k=3"]
    figures = {f["name"]: f["status"] for f in verdict["evidence"]["figures"]}
    assert figures["output"] == figures["acceptance other"] == "passed"


def test_a_host_that_is_not_there(gate: Gate, pair: Path, loopback: str) -> None:
    """One paragraph, and no traceback."""
    result, _ = gate(pair, "--spec-isolate", loopback.replace("ssh=loop", "ssh=127.0.0.1 -p 1"))
    assert result.ret == 1
    result.stdout.fnmatch_lines("*the gateway ssh=* cannot be opened: *")
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_gateway_that_does_not_come_up_leaves_nothing_open() -> None:
    """Its pipes are closed at once, not in some later test."""
    engine = IsolatedEngine("ssh=127.0.0.1 -p 1 -o BatchMode=yes//python=nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EngineError, match="cannot be opened"):
            engine.describe()
        before = sys.unraisablehook
        seen: list[object] = []
        sys.unraisablehook = seen.append
        try:
            gc.collect()
        finally:
            sys.unraisablehook = before
    engine.close()
    assert seen == []

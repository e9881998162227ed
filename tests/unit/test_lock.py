"""One lock a machine: beside each other while generating, alone while timing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_specgate.config.plan import Measure
from pytest_specgate.gates.latency import LatencyGate
from pytest_specgate.gates.memory import MemoryGate
from pytest_specgate.gates.speedup import SpeedupGate
from pytest_specgate.measure.lock import Busy, MachineLock, lock_path
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from tests.fakes import FakeEngine, make_inputs, make_prompts

HOLD = """
import sys
from pathlib import Path
from pytest_specgate.measure.lock import MachineLock
lock = MachineLock(Path(sys.argv[1]))
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.readline()
"""

Other = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Other]:
    """other("alone" or "together"): a process that holds the lock until a line comes."""
    started = []

    def start(how: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "machine.lock"), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def lock(tmp_path: Path) -> MachineLock:
    """Of the same machine; does not wait long."""
    return MachineLock(tmp_path / "machine.lock", most_wait_s=0.2)


def test_together(other: Other, lock: MachineLock) -> None:
    other("together")
    with lock.together(), lock.together():
        pass


@pytest.mark.parametrize(("theirs", "ours"), [("alone", "together"), ("alone", "alone")])
def test_nobody_beside_one_who_times(
    other: Other, lock: MachineLock, theirs: str, ours: str
) -> None:
    other(theirs)
    with pytest.raises(Busy, match=r"others were at work on this machine for 0\.2 s"):
        getattr(lock, ours)().__enter__()


def test_timing_waits_for_those_who_generate(other: Other, lock: MachineLock) -> None:
    process = other("together")
    with pytest.raises(Busy), lock.alone():
        pytest.fail("somebody else is there")
    process.communicate("\n")
    with lock.alone():
        pass


def test_a_dead_holder_holds_nothing(other: Other, lock: MachineLock) -> None:
    process = other("alone")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with lock.alone():
        pass


def test_alone_within_together(other: Other, lock: MachineLock) -> None:
    """What is held together is given up meanwhile, and taken again: two may want it in turn."""
    with lock.together():
        with lock.alone():
            pass
        other("together")
        with pytest.raises(Busy), lock.alone():
            pytest.fail("somebody else is there")


def test_one_who_waits_is_told_once_and_not_overtaken(other: Other, tmp_path: Path) -> None:
    """Those who come later wait behind one who wants to be alone."""
    path = tmp_path / "machine.lock"
    first, later, told = other("together"), MachineLock(path, most_wait_s=0.1), []

    def waiting() -> None:
        told.append(True)
        with pytest.raises(Busy), later.together():
            pytest.fail("overtaken")
        first.communicate("\n")

    with MachineLock(path, waiting=waiting).alone():
        pass
    assert told == [True]


def test_a_busy_machine_leaves_the_timing_gates_undecided(other: Other, lock: MachineLock) -> None:
    """Parity needs no quiet and is there; nothing was timed, and the gates say why."""
    inputs = make_inputs(make_prompts("a", "b"), 3)
    store = Store({"fake": FakeEngine}, Silent(), lambda _: None, preflight=False, lock=lock)
    other("together")
    evidence = store.campaign(inputs).rounds(inputs, Measure(), lambda _: ())
    assert evidence.exact
    assert evidence.rounds == 0
    for gate in (SpeedupGate(), LatencyGate(), MemoryGate()):
        verdict = gate.judge(evidence, gate.defaults, "k=3")
        assert verdict.status == "inconclusive"
        assert "others were at work on this machine" in verdict.reason


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session of the machine finds the same one; each chosen CUDA device has its own."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    assert lock_path().name == "specgate.lock"
    assert lock_path("ssh=mac//python=python3.12").name == "specgate-ssh-mac-python-python3.12.lock"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert lock_path().name == "specgate-1.lock"

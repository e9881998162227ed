"""Baselines on disk: whole or not there, whatever ends the process or fills the disk."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_specgate.baseline.document import BaselineError
from pytest_specgate.baseline.files import Place, read, write
from pytest_specgate.baseline.writing import dumps
from tests.baselines import mix, stored

OLD, NEW = stored(*mix(prompts=1)), stored(*mix(prompts=2))
MEANWHILE = "another session has written it meanwhile; it is kept"


def left(folder: Path) -> list[str]:
    """Names of all files there."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A baseline that is there already."""
    path = tmp_path / "a.json"
    write(Place.of(path, update=False), OLD)
    return path


def test_it_is_written_and_read(tmp_path: Path) -> None:
    """Folders are made; nothing else is left; permissions are the user's own."""
    path = tmp_path / "deep" / "er" / "a.json"
    write(Place.of(path, update=False), OLD)
    assert path.read_text(encoding="utf-8") == dumps(OLD)
    assert left(path.parent) == ["a.json"]
    assert dumps(read(path)) == dumps(OLD)
    current = os.umask(0o077)
    try:
        write(Place.of(tmp_path / "b.json", update=False), OLD)
    finally:
        os.umask(current)
    assert (tmp_path / "b.json").stat().st_mode & 0o777 == 0o600


def test_it_is_replaced(old: Path) -> None:
    """Where that was asked for."""
    write(Place.of(old, update=True), NEW)
    assert old.read_text(encoding="utf-8") == dumps(NEW)
    assert left(old.parent) == ["a.json"]


@pytest.mark.parametrize("before", [False, True])
def test_the_second_of_two_sessions_says_so(tmp_path: Path, before: bool) -> None:
    """The first one's file stays whole, whether or not one was there before both."""
    path = tmp_path / "a.json"
    if before:
        write(Place.of(path, update=False), stored(*mix(prompts=3)))
    first, second = (Place.of(path, update=before) for _ in range(2))
    write(first, OLD)
    with pytest.raises(BaselineError, match=MEANWHILE):
        write(second, NEW)
    assert path.read_text(encoding="utf-8") == dumps(OLD)
    assert left(tmp_path) == ["a.json"]


@pytest.mark.parametrize("before", [False, True])
def test_sessions_that_save_at_the_same_moment(tmp_path: Path, before: bool) -> None:
    """Of eight one wins, and its file is whole."""
    path = tmp_path / "a.json"
    if before:
        write(Place.of(path, update=False), OLD)
    sides = [stored(*mix(prompts=n)) for n in range(1, 9)]
    places = [Place.of(path, update=before) for _ in sides]
    start, results = threading.Barrier(len(sides)), {}

    def save(number: int) -> None:
        start.wait()
        try:
            write(places[number], sides[number])
            results[number] = ""
        except BaselineError as error:
            results[number] = str(error)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(len(sides))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, words in results.items() if not words]
    assert sum(MEANWHILE in words for words in results.values()) == len(sides) - 1
    assert path.read_text(encoding="utf-8") == dumps(sides[winner])
    assert left(tmp_path) == ["a.json"]


KILLED = """
import os, sys, time
from pathlib import Path
from pytest_specgate.baseline.files import Place, write
from tests.baselines import mix, stored

def stop(*_):
    print("now", flush=True)
    time.sleep(600)

setattr(os, sys.argv[2], stop)
write(Place.of(Path(sys.argv[1]), update=True), stored(*mix(prompts=2)))
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_killed_while_it_saves(old: Path, step: str) -> None:
    """The old file is whole, the next session saves as ever; what is left goes with a later one."""
    here = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(old), step],
        stdout=subprocess.PIPE,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(here)},
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGKILL)
    assert old.read_text(encoding="utf-8") == dumps(OLD)
    write(Place.of(old, update=True), NEW)
    assert old.read_text(encoding="utf-8") == dumps(NEW)

    (part,) = old.parent.glob(".specgate-*.part")  # it could be another session's, still at work
    an_hour_ago = old.stat().st_mtime - 3600
    os.utime(part, (an_hour_ago, an_hour_ago))
    write(Place.of(old, update=True), OLD)
    assert left(old.parent) == ["a.json"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(options, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    """Its name and why; the old file is whole and no temporary is left."""
    path = small_disk / "a.json"
    write(Place.of(path, update=False), OLD)
    with pytest.raises(BaselineError, match="cannot be written: No space left on device"):
        write(Place.of(path, update=True), stored(*mix(prompts=200)))
    assert path.read_text(encoding="utf-8") == dumps(OLD)
    assert left(small_disk) == ["a.json"]


@pytest.mark.parametrize("update", [False, True])
def test_a_write_that_fails(
    tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    """The same where no small disk can be mounted."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = old if update else tmp_path / "b.json"
    with pytest.raises(BaselineError, match=f"{path}: cannot be written: No space left on device"):
        write(Place.of(path, update=update), NEW)
    assert old.read_text(encoding="utf-8") == dumps(OLD)
    assert left(tmp_path) == ["a.json"]


def test_a_folder_that_is_none(old: Path) -> None:
    """A file stands where the folder should; and one that cannot be made."""
    for path in (old / "b.json", Path("/proc/none/b.json")):
        place = Place.of(path, update=False)
        with pytest.raises(BaselineError, match="cannot be written: "):
            write(place, NEW)
    assert left(old.parent) == ["a.json"]


def test_what_is_no_json_is_not_written(tmp_path: Path) -> None:
    """A figure of another plugin's gate may be anything."""
    for value in (float("nan"), object()):
        baseline = stored(*mix(prompts=1), facts={"figure": value})
        with pytest.raises(BaselineError, match="cannot be written as JSON: "):
            write(Place.of(tmp_path / "a.json", update=False), baseline)
    assert left(tmp_path) == []


def test_a_link_is_followed(tmp_path: Path, old: Path) -> None:
    """As a cache of CI has it."""
    link = tmp_path / "link.json"
    link.symlink_to(old)
    write(Place.of(link, update=True), NEW)
    assert link.is_symlink()
    assert old.read_text(encoding="utf-8") == dumps(NEW)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "not a baseline: not UTF-8 text"),
        (b"", "not a baseline: not JSON: "),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, words: str) -> None:
    """The path stands first."""
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BaselineError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: {words}")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Nor a traceback."""
    with pytest.raises(BaselineError, match="cannot be read: Is a directory"):
        read(tmp_path)

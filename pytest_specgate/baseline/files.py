"""Where baselines lie: one whole file each, never half written, never overwritten unasked."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..files import write_whole
from .document import Baseline, BaselineError
from .reading import loads
from .writing import dumps


@dataclass(frozen=True, slots=True)
class Place:
    """A file to be written at the end of a session, as it was found at its start.

    Attributes:
        path: of the file.
        update: it may replace the one that was there.
        found: inode and time of that one; None where there was none.
    """

    path: Path
    update: bool
    found: tuple[int, int] | None

    @classmethod
    def of(cls, path: Path, *, update: bool) -> Place:
        """The place as it is now."""
        return cls(path, update, _stamp(path))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:  # not there; or out of reach, which is told when it is written
        return None
    return stat.st_ino, stat.st_mtime_ns


def read(path: Path) -> Baseline:
    """The baseline of a file.

    Raises:
        BaselineError: it is not there, or not a whole baseline; says what to do.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise BaselineError(f"{path}: not a baseline: not UTF-8 text") from None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        with _uncollected():
            return loads(text)
    except BaselineError as error:
        raise BaselineError(f"{path}: {error}") from None


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles: each would walk all that was read of a large file so far."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def write(place: Place, baseline: Baseline) -> None:
    """Write the file whole; what was there before stays until then.

    Raises:
        BaselineError: it cannot be written, or another session has written it meanwhile.
    """
    path = place.path

    def unchanged() -> None:
        if _stamp(path) != place.found:
            raise BaselineError(f"{path}: another session has written it meanwhile; it is kept")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _folder_locked(path.parent):
            write_whole(path, dumps(baseline), ready=unchanged)
    except OSError as error:
        raise BaselineError(f"{path}: cannot be written: {error.strerror or error}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise BaselineError(f"{path}: cannot be written as JSON: {error}") from None


@contextmanager
def _folder_locked(folder: Path) -> Iterator[None]:
    """Two sessions that end at once look and rename one after the other."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: the look before the rename is left
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

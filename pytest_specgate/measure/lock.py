"""One lock per machine and device: what is timed runs alone, everything else runs together."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_POLL_S = 0.05
MOST_WAIT_S = 3600.0


class Busy(Exception):
    """Others did not leave the machine in time; the text is for the user."""


def lock_path(elsewhere: str = "") -> Path:
    """Where the lock of this machine lies.

    All users and sessions share it, so it does not depend on TMPDIR. The CPU and the GPU of a
    machine share its memory, so they share the lock too; only a choice among several CUDA devices
    makes locks of their own.

    Args:
        elsewhere: name of another machine that is measured from here.
    """
    common = Path("/tmp")
    folder = common if os.access(common, os.W_OK) else Path(tempfile.gettempdir())
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    words = [word for word in (elsewhere, device) if word]
    name = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(["specgate", *words]))
    return folder / f"{name[:100]}.lock"


class MachineLock:
    """Held together by processes that generate, alone by one that times.

    A second file is the turnstile: whoever waits to be alone holds it, so that those who come
    later wait behind him and he is not overtaken for ever. Locks of a process end with it.
    """

    def __init__(
        self,
        path: Path,
        *,
        waiting: Callable[[], None] = lambda: None,
        most_wait_s: float = MOST_WAIT_S,
    ) -> None:
        """Nothing is opened yet.

        Args:
            path: of the lock file; made when missing, never removed.
            waiting: called once when somebody else is in the way.
            most_wait_s: seconds to wait before ``Busy``.
        """
        self._path = path
        self._waiting = waiting
        self._most_wait_s = most_wait_s
        self._together = 0
        self._file: int | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Beside others who generate; waits for one who times.

        Raises:
            Busy: he did not end in time.
        """
        if self._together == 0:
            self._enter()
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            if self._together == 0:
                self._leave()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else generates or times; inside ``together`` that is given up meanwhile.

        Raises:
            Busy: others did not end in time.
        """
        self._leave()
        with ExitStack() as stack:
            if self._together:
                stack.callback(self._enter)
            with self._opened(self._path.with_suffix(".turn")) as turnstile:
                self._take(turnstile, fcntl.LOCK_EX)
                with self._opened(self._path) as file:
                    self._take(file, fcntl.LOCK_EX)
                    yield

    def _enter(self) -> None:
        with self._opened(self._path.with_suffix(".turn")) as turnstile:
            self._take(turnstile, fcntl.LOCK_EX)
            file = _open(self._path)
            try:
                self._take(file, fcntl.LOCK_SH)
            except BaseException:
                os.close(file)
                raise
            self._file = file

    def _leave(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        file = _open(path)
        try:
            yield file
        finally:
            os.close(file)

    def _take(self, file: int, how: int) -> None:
        deadline, told = time.monotonic() + self._most_wait_s, False
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"others were at work on this machine for {self._most_wait_s:g} s "
                        f"(lock {self._path})"
                    ) from None
            else:
                return
            if not told:
                self._waiting()
                told = True
            time.sleep(_POLL_S)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        pass
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    with suppress(PermissionError):
        os.fchmod(file, 0o666)  # for another user's session too, whatever our umask
    return file

"""Runs inside a gateway: starts one worker, passes lines both ways, and says how it ended.

Its source is sent to the other side, which has nothing but Python: execnet reports every death of
its own process as the same EOFError, so the worker is a child of that process, whose return code
is then known.

From the other end of the channel come the worker's source, then a line for each request; None, or
the channel's end, ends the worker. Back go ``{"started": pid, "gateway": pid}``, the worker's lines
as bytes, and at last ``{"ended": return code, "stderr": text}``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO, Any

_KEPT = 20_000  # characters of what a worker wrote to stderr

# reads as many bytes of source as the first line says, and leaves the rest of stdin to the worker
_BOOT = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; read = sys.stdin.buffer; "
    "exec(compile(read.read(int(read.readline())), 'worker.py', 'exec'))"
)


def supervise(channel: Any) -> None:
    """Run one worker until it or the channel ends."""
    source: bytes = channel.receive()
    worker = subprocess.Popen(
        [sys.executable, "-c", _BOOT, "specgate-worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to pytest, which then ends the worker
    )
    try:
        channel.send({"started": worker.pid, "gateway": os.getpid()})
        pump = threading.Thread(target=_pump, args=(worker, channel), daemon=True)
        pump.start()
        _write(worker, b"%d\n" % len(source) + source)
        for line in iter(channel.receive, None):
            _write(worker, line)
    except EOFError:
        pass
    finally:
        worker.kill()
        worker.wait()


def _write(worker: subprocess.Popen[bytes], data: bytes) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(data)
        worker.stdin.flush()
    except OSError:
        pass  # it is gone, which the pump reports


def _pump(worker: subprocess.Popen[bytes], channel: Any) -> None:
    assert worker.stdout is not None
    assert worker.stderr is not None
    words: list[bytes] = []
    listener = threading.Thread(target=_listen, args=(worker.stderr, words), daemon=True)
    listener.start()
    try:
        for line in worker.stdout:
            channel.send(line)
        code = worker.wait()
        listener.join(1)  # a process that the worker started may still hold it open
        text = b"".join(words).decode("utf-8", "replace")
        channel.send({"ended": code, "stderr": text[-_KEPT:]})
    except OSError:
        pass  # the other end has closed the channel


def _listen(stream: IO[bytes], words: list[bytes]) -> None:
    for line in stream:
        words.append(line)
        del words[:-500]


if __name__ == "__channelexec__":
    supervise(channel)  # type: ignore[name-defined]  # noqa: F821  # execnet puts it there

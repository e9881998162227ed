"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PREFIX, _SUFFIX = ".specgate-", ".part"
_ABANDONED_S = 600  # a write takes less than a second: what is older has lost its writer


def write_whole(path: Path, text: str, ready: Callable[[], None] | None = None) -> None:
    """Write UTF-8 text: to a temporary file beside it, synced to disk, then renamed into place.

    A link is followed; what is no ordinary file (a pipe, ``/dev/stdout``) is written to as it is.
    Temporary files that a killed writer left in the folder ten minutes ago or earlier are removed.

    Args:
        path: of the file.
        text: that it is to hold.
        ready: called last before the rename; what it raises stops that.

    Raises:
        OSError: nothing is left behind then.
    """
    path = _followed(path) if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        if ready is not None:
            ready()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _remove_abandoned(path)


def _remove_abandoned(written: Path) -> None:
    for other in written.parent.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            # by the clock of the file system, which is not always this machine's
            if written.stat().st_mtime - other.stat().st_mtime > _ABANDONED_S:
                other.unlink()


def _followed(link: Path) -> Path:
    try:
        path = link.resolve()
    except RuntimeError:  # up to Python 3.12
        path = link
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(link))
    return path


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def file_stem(name: str) -> str:
    """A file name for any id: plain ids as they are, others made plain and told apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80]
    if plain and plain == name.lower():  # file systems that fold case would mix up A and a
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain or 'prompt'}-{digest}"

"""Files that are either whole or not there."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write UTF-8 text: to a temporary file beside it, synced to disk, then renamed into place.

    Raises:
        OSError: nothing is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def file_stem(name: str) -> str:
    """A file name for any id: plain ids as they are, others made plain and told apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80]
    if plain == name:
        return plain
    return f"{plain or 'prompt'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

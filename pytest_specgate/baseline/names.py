"""Names of baselines: plain words, so that none leads out of its folder."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(".specgate") / "baselines"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def is_name(text: str) -> bool:
    """A plain word; everything else names a path."""
    return bool(_NAME.fullmatch(text)) and not text.endswith(".json") and ".." not in text

"""Text from outside, made safe to show."""

from __future__ import annotations

import unicodedata

# control, format, surrogate, private, unassigned; line and paragraph separators
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shown(text: str) -> str:
    """The text on one line, safe for a terminal: characters without a shape are escaped."""
    return "".join(
        ascii(char)[1:-1] if unicodedata.category(char) in _ESCAPED else char for char in text
    )

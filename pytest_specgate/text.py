"""How figures are worded, alike everywhere, and how text from outside is made safe to show."""

from __future__ import annotations

import unicodedata

# control, format, surrogate, private, unassigned; line and paragraph separators
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shown(text: str) -> str:
    """The text on one line, safe for a terminal: characters without a shape are escaped."""
    return "".join(
        ascii(char)[1:-1] if unicodedata.category(char) in _ESCAPED else char for char in text
    )


def shown_lines(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(map(shown, text.split("\n")))


def in_a_line(error: Exception) -> str:
    """What was raised: its type, and what it says on one line of at most 600 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"


def count(number: int, noun: str) -> str:
    """``1 prompt``, ``24 prompts``, ``6,144 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def gigabytes(size: float) -> str:
    """Decimal gigabytes, as mlx-lm prints them; megabytes under one hundredth of a gigabyte."""
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.1f} MB"

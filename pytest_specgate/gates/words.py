"""How figures are worded, alike in every gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..measure.evidence import Evidence


def count(number: int, noun: str) -> str:
    """``1 prompt``, ``24 prompts``, ``6,144 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def gigabytes(size: float) -> str:
    """Decimal gigabytes, as mlx-lm prints them; megabytes under one hundredth of a gigabyte."""
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.1f} MB"


def excluded(evidence: Evidence) -> tuple[str, ...]:
    """Lines that name the prompts which no timing gate may judge, and why.

    Also those whose acceptance varied from run to run, which is no property of the prompt then.
    """
    lines = []
    for case in evidence.cases:
        for arm in case.speculative:
            least, most = arm.accepted or (0, 0)
            if least < most:
                lines.append(
                    f"acceptance varies: {case.prompt.id} ({least} to {most} accepted tokens, "
                    f"k = {arm.num_draft_tokens})"
                )
        if case in evidence.usable:
            continue
        why = "its output differs"
        for arm in case.arms.values():
            if arm.drafted is False:
                why = "nothing was drafted"
            why = arm.unstable or arm.broken or why
        if case.error:
            why = "generating failed"
        lines.append(f"left out: {case.prompt.id} ({why})")
    return tuple(lines)

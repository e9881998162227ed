"""Does each prompt fit?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .finding import Finding, Subject


def fits_the_context(subject: Subject) -> Iterator[Finding]:
    """prompt + max_tokens against the positions that either model was made for."""
    for role, model in (("target", subject.pair.target), ("draft", subject.pair.draft)):
        most = _positions(model)
        if most is None:
            continue
        for prompt, length in subject.lengths():
            if length > most:
                yield Finding(
                    "error" if role == "target" else "warning",
                    f"{role} context",
                    f"prompt + max_tokens is {length} tokens, the model was made for {most}",
                    "Shorten the prompt or lower max_tokens.",
                    prompt.id,
                )


def _positions(model: Any) -> int | None:
    found = getattr(getattr(model, "args", None), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None

"""Blocks for every number of draft tokens, replayed from one pass of the draft. Pure.

While its proposals match, the draft's context is the plain output itself, so what it would propose
at a position is its greedy choice there when it reads prompt + plain output. That holds under
greedy decoding and where parity does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..config.plan import MAX_DRAFT_TOKENS, Decoding, Prompt
from ..engines.base import Generation
from .blocks import Blocks, count_blocks
from .record import budget_of

if TYPE_CHECKING:
    from .evidence import CaseEvidence

EVERY_K = tuple(range(1, MAX_DRAFT_TOKENS + 1))
RANKED_K = (1, 2, 3, 5, 8)
_UNLIKE_GREEDY = (
    *("temperature", "kv_bits", "max_kv_size", "repetition_penalty", "presence_penalty"),
    *("frequency_penalty", "logit_bias"),
)


def unlike_greedy(decoding: Decoding) -> str | None:
    """The option under which one pass of a draft does not tell what it would propose."""
    return next((name for name in _UNLIKE_GREEDY if getattr(decoding, name)), None)


def replay(matches: Sequence[bool], k: int, max_tokens: int, finish_reason: str | None) -> Blocks:
    """The blocks that mlx-lm would make of an output, without the speculative path.

    At position i a block proposes ``min(k, max_tokens - i)`` tokens and accepts the run of matches
    from i up to that many; the target's own token follows. mlx-lm drafts on past the end of the
    text, and those proposals count; it emits nothing after it, so that the block is censored where
    the end itself was accepted.

    Args:
        matches: does the draft choose the plain output's token, one a token, the final
            end-of-text token included.
        k: num_draft_tokens.
        max_tokens: the budget of the output.
        finish_reason: of the plain run.
    """
    flags: list[bool] = []
    while len(flags) < len(matches):
        start = len(flags)
        end = min(start + min(k, max_tokens - start), len(matches))
        while len(flags) < end and matches[len(flags)]:
            flags.append(True)
        if len(flags) < len(matches):
            flags.append(False)
    return count_blocks(
        flags, num_draft_tokens=k, max_tokens=max_tokens, finish_reason=finish_reason
    )


@dataclass(frozen=True, slots=True)
class Forced:
    """The plain output of one prompt, and what one draft chose at each token of it.

    ``max_tokens`` is the prompt's budget.
    """

    prompt: Prompt
    plain: Generation
    choices: tuple[int, ...]
    max_tokens: int

    @property
    def matches(self) -> tuple[bool, ...]:
        """Did the draft choose the token, one a token."""
        return tuple(
            chosen == token for chosen, token in zip(self.choices, self.plain.tokens, strict=True)
        )

    def blocks(self, k: int) -> Blocks:
        """Of a speculative run with so many draft tokens."""
        return replay(self.matches, k, self.max_tokens, self.plain.finish_reason)


@dataclass(frozen=True, slots=True)
class Missed:
    """A token of the plain outputs that the draft did not choose; its text is for a person."""

    token: int
    missed: int
    seen: int
    text: str = ""


def forced_of(cases: Iterable[CaseEvidence]) -> list[Forced]:
    """The outputs that a draft was run over; none outside a scan."""
    return [
        Forced(case.prompt, case.plain.generation, case.choices, budget_of(case.prompt))
        for case in cases
        if case.choices is not None
    ]


def missed_tokens(outputs: Iterable[Forced], most: int) -> tuple[Missed, ...]:
    """The tokens that the draft misses most often, at most so many, their texts still unknown."""
    seen: Counter[int] = Counter()
    missed: Counter[int] = Counter()
    for output in outputs:
        seen.update(output.plain.tokens)
        missed.update(
            token
            for token, match in zip(output.plain.tokens, output.matches, strict=True)
            if not match
        )
    return tuple(Missed(token, count, seen[token]) for token, count in missed.most_common(most))

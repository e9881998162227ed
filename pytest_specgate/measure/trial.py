"""One timed generation."""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.base import Generation
from .blocks import Blocks


@dataclass(frozen=True, slots=True)
class Trial:
    """One timed generation; all times in seconds.

    Attributes:
        round: from 1.
        tokens: emitted.
        ttft_s: to the first token. On the speculative path it holds the draft's prefill and a
            whole first block.
        decode_s: from the first token to the last; None for a single token.
        e2e_s: from the call to its end.
        past_first_block: (tokens, seconds) after the first block had arrived, for honest decode
            speed; None when there was nothing after it.
        peak_memory_bytes: high-water mark of this trial, weights included.
        accepted: proposed tokens that the target took; None on the plain path.
    """

    round: int
    tokens: int
    ttft_s: float
    decode_s: float | None
    e2e_s: float
    past_first_block: tuple[int, float] | None
    peak_memory_bytes: int | None
    accepted: int | None = None

    @property
    def seconds_per_token(self) -> float:
        """e2e over emitted tokens."""
        return self.e2e_s / max(self.tokens, 1)

    @property
    def time_per_output_token_s(self) -> float | None:
        """(e2e - TTFT) / (n - 1); None for a single token."""
        return (self.e2e_s - self.ttft_s) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens a second after the first block."""
        if self.past_first_block is None or self.past_first_block[1] <= 0:
            return None
        return self.past_first_block[0] / self.past_first_block[1]


def trial_of(generation: Generation, round_number: int, blocks: Blocks | None) -> Trial:
    """The times of one run.

    Args:
        generation: a run that emitted at least one token.
        round_number: from 1.
        blocks: of this run; None on the plain path.
    """
    first_block = blocks.first_block if blocks is not None else 1
    times = generation.token_times_s
    count = len(times)
    rest = None
    if count > first_block:
        rest = (count - first_block, times[-1] - times[first_block - 1])
    return Trial(
        round=round_number,
        tokens=count,
        ttft_s=times[0],
        decode_s=times[-1] - times[0] if count > 1 else None,
        e2e_s=generation.e2e_s,
        past_first_block=rest,
        peak_memory_bytes=generation.peak_memory_bytes,
        accepted=blocks.accepted if blocks is not None else None,
    )

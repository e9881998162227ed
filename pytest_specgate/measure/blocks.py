"""Blocks of speculative decoding, counted exactly, twice, without patching mlx-lm.

``count_blocks`` walks the ``from_draft`` flags of the responses; ``blocks_from_calls`` reads the
lengths and cache offsets of the model calls. They must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any, Literal

from ..engines.base import Call, Generation

Censored = Literal["max_tokens", "eos", "closed"]
QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Block:
    """One draft-then-verify iteration: proposed p tokens, accepted a of them (0 <= a <= p).

    ``censored`` says what cut the block before the target's own token closed it. Its acceptance is
    then a lower bound, and it stays out of the accept-length histogram.
    """

    proposed: int
    accepted: int
    censored: Censored | None = None

    @property
    def rejected(self) -> bool:
        """The target refused a proposal of this block."""
        return self.censored is None and self.accepted < self.proposed


@dataclass(frozen=True, slots=True)
class Blocks:
    """All blocks of one output.

    Attributes:
        blocks: in the order of generation.
        emitted: tokens of the output, the target's own included.
    """

    blocks: tuple[Block, ...] = ()
    emitted: int = 0

    @property
    def first_block(self) -> int:
        """Tokens of the first block, which arrive together."""
        if not self.blocks:
            return 1
        return self.blocks[0].accepted + (self.blocks[0].censored is None)

    @property
    def proposed(self) -> int:
        """Tokens proposed, those of censored blocks included."""
        return sum(block.proposed for block in self.blocks)

    @property
    def accepted(self) -> int:
        """Proposed tokens that stand in the output."""
        return sum(block.accepted for block in self.blocks)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed; falls as num_draft_tokens grows. None when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def draft_share(self) -> float | None:
        """accepted / emitted: the share of the output that came from the draft."""
        return self.accepted / self.emitted if self.emitted else None

    @property
    def token_acceptance(self) -> float | None:
        """The per-token acceptance alpha, accepted / (accepted + blocks that rejected).

        The maximum-likelihood estimate under independent acceptance when proposals after the first
        rejection are never judged (censoring): unlike the acceptance rate it does not fall with k.
        """
        judged = self.accepted + sum(block.rejected for block in self.blocks)
        return self.accepted / judged if judged else None

    @property
    def accept_lengths(self) -> tuple[int, ...]:
        """a of every block that was not censored, in order."""
        return tuple(block.accepted for block in self.blocks if block.censored is None)

    @property
    def mean_accept_length(self) -> float | None:
        """Mean of accept_lengths; None when every block was censored."""
        lengths = self.accept_lengths
        return sum(lengths) / len(lengths) if lengths else None

    @property
    def tokens_per_target_pass(self) -> float | None:
        """emitted / number of verify passes."""
        return self.emitted / len(self.blocks) if self.blocks else None

    @property
    def position_proposed(self) -> tuple[int, ...]:
        """How often position i (from 1) of a block was proposed."""
        proposed = [block.proposed for block in self.blocks]
        return _above(proposed, max(proposed, default=0))

    @property
    def position_accepted(self) -> tuple[int, ...]:
        """How often position i (from 1) of a block was accepted."""
        most = max((block.proposed for block in self.blocks), default=0)
        return _above([block.accepted for block in self.blocks], most)

    @property
    def position_acceptance(self) -> tuple[float, ...]:
        """P(position i accepted, given proposed), i from 1; a refusal refuses all behind it."""
        return tuple(
            accepted / proposed
            for accepted, proposed in zip(
                self.position_accepted, self.position_proposed, strict=True
            )
        )

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many blocks accepted 0, 1, 2, ... tokens; those that were censored left out."""
        lengths = Counter(self.accept_lengths)
        return tuple(lengths[length] for length in range(max(lengths, default=-1) + 1))

    def quarters(self) -> tuple[Blocks, ...]:
        """Four parts of one output; a block belongs to the quarter that its first token is in.

        Of outputs that were joined by ``+`` take the quarters first, and join those.
        """
        parts: list[list[Block]] = [[] for _ in range(QUARTERS)]
        tokens = [0] * QUARTERS
        start = 0
        for block in self.blocks:
            quarter = start * QUARTERS // self.emitted
            emitted = block.accepted + (block.censored is None)
            parts[quarter].append(block)
            tokens[quarter] += emitted
            start += emitted
        return tuple(Blocks(tuple(p), n) for p, n in zip(parts, tokens, strict=True))

    def figures(self) -> dict[str, Any]:
        """Every figure by its name, as plain JSON values."""
        return {
            "count": len(self.blocks),
            "emitted": self.emitted,
            "proposed": self.proposed,
            "accepted": self.accepted,
            "acceptance_rate": self.acceptance_rate,
            "token_acceptance": self.token_acceptance,
            "draft_share": self.draft_share,
            "mean_accept_length": self.mean_accept_length,
            "tokens_per_target_pass": self.tokens_per_target_pass,
            "histogram": list(self.histogram),
            "position_accepted": list(self.position_accepted),
            "position_proposed": list(self.position_proposed),
        }


def _above(values: Iterable[int], most: int) -> tuple[int, ...]:
    """How many values are above 0, 1, ... most - 1."""
    counts = Counter(values)
    above = list(accumulate(counts[value] for value in range(most, 0, -1)))
    return tuple(reversed(above))


def joined(outputs: Iterable[Blocks | None]) -> Blocks:
    """The blocks of several outputs; None has none."""
    known = [blocks for blocks in outputs if blocks is not None]
    return Blocks(
        tuple(chain.from_iterable(blocks.blocks for blocks in known)),
        sum(blocks.emitted for blocks in known),
    )


def count_blocks(
    from_draft: Sequence[bool],
    *,
    num_draft_tokens: int,
    max_tokens: int,
    finish_reason: str | None,
) -> Blocks:
    """Blocks from the ``from_draft`` flags of one speculative run, one flag an emitted token.

    A block proposes ``min(num_draft_tokens, max_tokens - emitted)``; its run of True flags, at
    most that many, is what it accepted; the next False flag is the target's own token.

    Args:
        from_draft: flags in order, the flag of a final end-of-text token included.
        num_draft_tokens: k of the run.
        max_tokens: its budget.
        finish_reason: ``length``, ``stop``, or None for a run that was closed early.
    """
    blocks: list[Block] = []
    emitted, total = 0, len(from_draft)
    cut: Censored = {"length": "max_tokens", "stop": "eos"}.get(finish_reason or "", "closed")  # type: ignore[assignment]  # the values are the literals
    while emitted < total:
        proposed = min(num_draft_tokens, max_tokens - emitted)
        accepted = 0
        while accepted < proposed and emitted + accepted < total and from_draft[emitted + accepted]:
            accepted += 1
        emitted += accepted
        if emitted < total:
            emitted += 1
            blocks.append(Block(proposed, accepted))
        else:
            blocks.append(Block(proposed, accepted, cut))
    return Blocks(tuple(blocks), total)


def blocks_of(generation: Generation, k: int | None, max_tokens: int) -> Blocks | None:
    """Blocks by the flags of a run; None on the plain path."""
    if k is None:
        return None
    return count_blocks(
        generation.from_draft,
        num_draft_tokens=k,
        max_tokens=max_tokens,
        finish_reason=generation.finish_reason,
    )


def broken_ledger(generation: Generation, prompt_tokens: int) -> str | None:
    """How what the target's cache holds at the end differs from the output; None where it agrees.

    A token that was not drafted comes out before the target has read it, so a sound cache holds
    all but that one. Costs nothing while the run is timed.
    """
    if generation.held is None or not generation.tokens:
        return None
    sound = sound_length(generation, prompt_tokens)
    least, most = generation.held
    if least == most == sound:
        return None
    held = f"{least}" if least == most else f"{least} to {most}"
    return f"the target's cache holds {held} tokens at the end, the output makes it {sound}"


def sound_length(generation: Generation, prompt_tokens: int) -> int:
    """Tokens that the target's cache should hold at the end of a speculative run."""
    return prompt_tokens - 1 + len(generation.tokens) + bool(generation.from_draft[-1])


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """A block as the model calls show it; accepted is None for the last one."""

    proposed: int
    draft_calls: int
    accepted: int | None = None


def blocks_from_calls(calls: Sequence[Call], prompt_tokens: int) -> list[SeenBlock]:
    """The blocks of one speculative run, from the shapes of its model calls.

    Each side first consumes prompt - 1 tokens; that is prefill, told by cumulative length. The
    first verify pass may still hold the rest of the prompt (mlx-lm 0.28), so later positions come
    from cache offsets: a later target call of L tokens verifies L - 1 proposals, and with s the
    position of the newest token known before a block, the next call's offset is s + accepted + 1.

    Args:
        calls: in the order they were made, both models.
        prompt_tokens: length of the prompt.
    """
    blocks: list[SeenBlock] = []
    consumed = {"target": 0, "draft": 0}
    newest, drafted = prompt_tokens - 1, 0
    for call in calls:
        consumed[call.model] += call.length
        if consumed[call.model] < prompt_tokens:
            continue
        if call.model == "draft":
            drafted += 1
            continue
        if not blocks:
            proposed = consumed["target"] - prompt_tokens
        elif call.offset is None:
            proposed = call.length - 1
        else:
            blocks[-1] = replace(blocks[-1], accepted=call.offset - newest - 1)
            newest = call.offset
            proposed = call.length - 1
        blocks.append(SeenBlock(proposed, drafted))
        drafted = 0
    return blocks


def broken_invariant(
    blocks: Blocks, calls: Sequence[Call], prompt_tokens: int, *, num_draft_tokens: int
) -> str | None:
    """Where the two counts disagree, in one sentence; None when they agree.

    Args:
        blocks: what the flags say.
        calls: what the model calls say.
        prompt_tokens: length of the prompt.
        num_draft_tokens: k of the run.
    """
    seen = blocks_from_calls(calls, prompt_tokens)
    if len(seen) != len(blocks.blocks):
        return (
            f"the flags make {len(blocks.blocks)} blocks (k = {num_draft_tokens}), the model "
            f"calls {len(seen)}"
        )
    for number, (block, call) in enumerate(zip(blocks.blocks, seen, strict=True), start=1):
        if not block.proposed == call.proposed == call.draft_calls:
            return (
                f"block {number}: {block.proposed} to propose, {call.draft_calls} draft calls, "
                f"{call.proposed} checked by the target"
            )
        if call.accepted is not None and call.accepted != block.accepted:
            return (
                f"block {number}: {block.accepted} accepted, but the target's cache moved on by "
                f"{call.accepted + 1} (not rewound)"
            )
    return None

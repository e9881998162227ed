"""The speedup of every k, predicted from what passes cost and which proposals are accepted."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ..engines.base import DepthCosts, PassCosts
from ..stats.prediction import (
    BlockCosts,
    accepted_whole,
    break_even,
    expected_seconds,
    interpolate,
    predicted_seconds,
    tokens_per_block,
)
from .blocks import Blocks, joined
from .evidence import Evidence

MOST = 16  # num_draft_tokens

Origin = Literal["blocks", "positions"]


@dataclass(frozen=True, slots=True)
class Output:
    """What one prompt gave.

    Attributes:
        prompt: its id.
        kind: of the prompt.
        prompt_tokens: its length.
        emitted: tokens of the output on the plain path.
        blocks: k -> blocks of the output, replayed or of a run.
        measured: k -> plain / speculative e2e, median of its rounds.
    """

    prompt: str
    kind: str
    prompt_tokens: int
    emitted: int
    blocks: Mapping[int, Blocks]
    measured: Mapping[int, float] = field(default_factory=dict)

    @property
    def depth(self) -> float:
        """Tokens that the caches hold at the middle of the output."""
        return self.prompt_tokens + self.emitted / 2

    @property
    def pooled(self) -> Blocks:
        """The blocks of every k."""
        return joined(self.blocks.values())


def outputs_of(evidence: Evidence) -> list[Output]:
    """The timed cases of measured evidence, which may hold several k."""
    ratios = {k: evidence.for_arm(k).ratios() for k in evidence.num_draft_tokens}
    return [
        Output(
            prompt=case.prompt.id,
            kind=case.prompt.kind,
            prompt_tokens=len(case.tokens),
            emitted=len(case.plain.generation.tokens),
            blocks={
                arm.num_draft_tokens: arm.blocks
                for arm in case.speculative
                if arm.num_draft_tokens and arm.blocks is not None
            },
            measured={
                k: statistics.median(of_prompt[case.prompt.id])
                for k, of_prompt in ratios.items()
                if of_prompt.get(case.prompt.id)
            },
        )
        for case in evidence.timed
    ]


def position_acceptance(blocks: Blocks) -> tuple[float, ...]:
    """Acceptance at position 1, 2, ... of a block, given that those before it were accepted.

    A proposal that the end of the output kept from being judged does not count. The positions end
    before the first that was never judged.
    """
    found: list[float] = []
    for position in range(max((block.proposed for block in blocks.blocks), default=0)):
        accepted = sum(block.accepted > position for block in blocks.blocks)
        refused = sum(block.rejected and block.accepted == position for block in blocks.blocks)
        if not accepted + refused:
            break
        found.append(accepted / (accepted + refused))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PredictedK:
    """What is predicted of one number of draft tokens.

    Attributes:
        num_draft_tokens: k.
        origin: from the ``blocks`` of this k itself, or, where a prompt has none, from the
            acceptance at each ``positions`` of its other blocks, beyond the last known as there.
        tokens_per_block: mean over all blocks.
        speedup: plain / speculative e2e, median over the prompts.
        by_kind: prompt kind -> the same over its prompts.
        verify: a target pass over k + 1 tokens, a plain token's time being 1.
        rest: of a block, in the same unit; below 0 where passes overlap.
        break_even: acceptance at which decoding is as fast as plain; None where none is.
        break_even_gate: acceptance at which it is faster by the gate's limit.
        shares: of the time of all blocks: draft, verify, rest.
        measured: plain / speculative e2e, median over the prompts that were timed with this k.
        error: predicted / measured - 1, over those prompts.
    """

    num_draft_tokens: int
    origin: Origin
    tokens_per_block: float
    speedup: float
    by_kind: Mapping[str, float]
    verify: float
    rest: float
    break_even: float | None
    break_even_gate: float | None
    shares: tuple[float, float, float]
    measured: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Prediction:
    """Predicted speedups, and what they are made of.

    Attributes:
        depth: tokens in the caches for which the costs are stated: the median over the prompts.
        plain_s: seconds a token on the plain path, the unit of the costs.
        draft: c, a draft step.
        draft_after_whole: a draft step that reads two tokens.
        target: v, a target pass over 1, 2, ... 17 tokens.
        alpha: acceptance a token, censoring allowed for; None where nothing was judged.
        positions: acceptance at each position of a block, given those before it.
        rows: one a k.
        errors: (prompt, k) -> predicted / measured - 1.
    """

    depth: float
    plain_s: float
    draft: float
    draft_after_whole: float
    target: tuple[float, ...]
    alpha: float | None
    positions: tuple[float, ...]
    rows: tuple[PredictedK, ...]
    errors: Mapping[tuple[str, int], float]

    @cached_property
    def error(self) -> float | None:
        """Median of the absolute errors over prompts and k; None where nothing was measured."""
        return statistics.median(map(abs, self.errors.values())) if self.errors else None

    @cached_property
    def best(self) -> PredictedK | None:
        """The row with the largest predicted speedup; the smallest such k."""
        return max(self.rows, key=lambda row: row.speedup, default=None)


def costs_at(costs: PassCosts, depth: float) -> BlockCosts:
    """The parts of a block at a context depth: between the depths that were timed, linearly.

    The rest of a block is what the engine's own loop takes beyond its passes, linearly between the
    numbers of draft tokens at which the loop was timed.
    """
    each = [_at_one(at) for at in costs.depths]
    depths = [float(at.depth) for at in costs.depths]

    def here(values: Iterable[float]) -> float:
        return interpolate(list(zip(depths, values, strict=True)), depth)

    return BlockCosts(
        plain=here(at.plain for at in each),
        draft=here(at.draft for at in each),
        draft_after_whole=here(at.draft_after_whole for at in each),
        target=tuple(map(here, zip(*(at.target for at in each), strict=True))),
        rest=tuple(map(here, zip(*(at.rest for at in each), strict=True))),
    )


def _at_one(at: DepthCosts) -> BlockCosts:
    draft, after_whole = at.draft_s
    target = tuple(interpolate(at.target_s, width) for width in range(1, MOST + 2))
    passes = BlockCosts(at.plain_s, draft, after_whole, target, (0.0,) * (MOST + 1))
    ks = [float(loop.num_draft_tokens) for loop in at.loops]
    rests = [
        loop.block_s - passes.block(loop.num_draft_tokens, after_whole=loop.whole)
        for loop in at.loops
    ]
    rest = tuple(interpolate(list(zip(ks, rests, strict=True)), k) for k in range(MOST + 1))
    return BlockCosts(at.plain_s, draft, after_whole, target, rest)


def predict(costs: PassCosts, outputs: Sequence[Output], *, least: float) -> Prediction:
    """Predict every k from 1 to 16.

    Args:
        costs: of the pair.
        outputs: of the prompts; those of which no block was judged are left out.
        least: the speedup that the gate asks for.
    """
    usable = [output for output in outputs if position_acceptance(output.pooled)]
    depth = statistics.median([output.depth for output in usable]) if usable else 0.0
    at = costs_at(costs, depth)
    pooled = joined(output.pooled for output in usable)
    made = [_Predicted(output, costs) for output in usable]
    rows = [_row(k, made, at, least) for k in range(1, MOST + 1)] if made else []
    return Prediction(
        depth=depth,
        plain_s=at.plain,
        draft=at.draft / at.plain,
        draft_after_whole=at.draft_after_whole / at.plain,
        target=tuple(seconds / at.plain for seconds in at.target),
        alpha=pooled.token_acceptance,
        positions=position_acceptance(pooled),
        rows=tuple(rows),
        errors={
            (each.output.prompt, k): each.speedup(k) / measured - 1
            for each in made
            for k, measured in each.output.measured.items()
        },
    )


class _Predicted:
    """One prompt: seconds on either path, and what they go into."""

    def __init__(self, output: Output, costs: PassCosts) -> None:
        self.output = output
        self._costs = at = costs_at(costs, output.depth)
        self._alpha = position_acceptance(output.pooled)
        length = output.prompt_tokens
        plain = interpolate([(first.prompt_tokens, first.plain_s) for first in costs.first], length)
        ours = [(first.prompt_tokens, first.speculative_s) for first in costs.first]
        # the first token of the plain path takes a step, that of the other a block of one proposal
        self._plain_start = plain - at.plain
        self._start = interpolate(ours, length) - at.block(1)

    def speedup(self, k: int) -> float:
        """plain / speculative e2e a token."""
        output, blocks = self.output, self.output.blocks.get(k)
        plain = self._plain_start + output.emitted * self._costs.plain
        if blocks is None:
            seconds = expected_seconds(output.emitted, self._alpha, k, self._costs, self._start)
            return plain / seconds
        pairs = [(block.proposed, block.accepted) for block in blocks.blocks]
        seconds = predicted_seconds(pairs, self._costs, self._start)
        return (plain / output.emitted) / (seconds / blocks.emitted)

    def tokens(self, k: int) -> tuple[float, float]:
        """(tokens, blocks)."""
        if (blocks := self.output.blocks.get(k)) is not None:
            return float(blocks.emitted), float(len(blocks.blocks))
        return float(self.output.emitted), self.output.emitted / tokens_per_block(self._alpha, k)

    def parts(self, k: int) -> tuple[float, float, float]:
        """Seconds of all blocks: draft, verify, rest."""
        at, blocks = self._costs, self.output.blocks.get(k)
        extra = at.draft_after_whole - at.draft
        if blocks is None:
            _, count = self.tokens(k)
            draft = k * at.draft + extra * accepted_whole(self._alpha, k)
            return count * draft, count * at.target[k], count * at.rest[k]
        proposed = [block.proposed for block in blocks.blocks]
        wholes = sum(block.proposed == block.accepted for block in blocks.blocks[:-1])
        return (
            sum(proposed) * at.draft + wholes * extra,
            sum(at.target[p] for p in proposed),
            sum(at.rest[p] for p in proposed),
        )


def _row(k: int, made: Sequence[_Predicted], at: BlockCosts, least: float) -> PredictedK:
    speedups = [(each.output.kind, each.speedup(k)) for each in made]
    timed = [
        (each.output.measured[k], each.speedup(k)) for each in made if k in each.output.measured
    ]
    measured = statistics.median(found for found, _ in timed) if timed else None
    tokens, blocks = (
        sum(column) for column in zip(*(each.tokens(k) for each in made), strict=True)
    )
    parts = [sum(column) for column in zip(*(each.parts(k) for each in made), strict=True)]
    c, v, o = at.draft / at.plain, at.target[k] / at.plain, at.rest[k] / at.plain
    extra = (at.draft_after_whole - at.draft) / at.plain
    draft, verify, rest = (part / sum(parts) for part in parts)
    return PredictedK(
        num_draft_tokens=k,
        origin="blocks" if all(k in each.output.blocks for each in made) else "positions",
        tokens_per_block=tokens / blocks,
        speedup=statistics.median(found for _, found in speedups),
        by_kind={
            kind: statistics.median(found for of, found in speedups if of == kind)
            for kind in dict.fromkeys(of for of, _ in speedups)
        },
        verify=v,
        rest=o,
        break_even=break_even(k, c, v, o, after_whole=extra),
        break_even_gate=break_even(k, c, v, o, least=least, after_whole=extra),
        shares=(draft, verify, rest),
        measured=measured,
        error=statistics.median(found for _, found in timed) / measured - 1 if measured else None,
    )

"""What the tokens of one path say of the law they were drawn by, over all prompts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..engines.base import Generation, SampledScores
from ..measure.blocks import Blocks, blocks_of
from ..measure.diagnosis import TIMES_FLOOR, TIMES_ULP, WIDEST_TIE
from ..measure.evidence import CaseEvidence
from ..stats.sampling import log_mean_exp, other_temperature, unchecked_proposals


@dataclass(frozen=True, slots=True)
class Place:
    """One token that the law cannot explain: nats that it is off by, beside what is let through."""

    prompt: str
    token: int
    off: float
    allowed: float
    from_draft: bool


@dataclass(frozen=True, slots=True)
class PathLaw:
    """One path against the target's law, over all prompts.

    Attributes:
        tokens: that were judged.
        floor: nats; the largest |log probability one by one - in one pass| of the plain path.
        off: tokens whose returned log probability is not the target's own.
        outside: tokens that the filters of the sampler leave out.
        temperature: ln of the evidence for another temperature.
        unchecked: ln of the evidence for proposals accepted without a check; None on the plain
            path.
        surprise: mean of -ln p of the tokens, in nats.
    """

    tokens: int
    floor: float
    off: tuple[Place, ...]
    outside: tuple[Place, ...]
    temperature: float
    unchecked: float | None
    surprise: float

    @property
    def evidence(self) -> float:
        """ln of all evidence against the law; its mean is at most 1 where the law holds."""
        both = [self.temperature] + ([] if self.unchecked is None else [self.unchecked])
        return log_mean_exp(both)

    def other(self, chance: float) -> bool:
        """The tokens were drawn by another law: some cannot come from it, or hardly all of them.

        Args:
            chance: of saying so where the law holds, at most.
        """
        return bool(self.outside) or self.evidence >= -math.log(chance)


def floor_of_plain(cases: Iterable[CaseEvidence], arm: str) -> float:
    """The noise floor in nats, over all prompts."""
    return max((d for case in cases for d in _distances(case, arm)), default=0.0)


def _distances(case: CaseEvidence, arm: str) -> list[float]:
    law, own = case.laws[arm], case.draws[arm, 0][0].logprobs
    return [abs(a - b) for a, b in zip(own or law.logprobs, law.logprobs, strict=True)]


def path_law(cases: Iterable[CaseEvidence], arm: str, k: int | None, floor: float) -> PathLaw:
    """Judge a path.

    Args:
        cases: each with the law of the arm.
        arm: its name.
        k: its number of draft tokens; None for the plain path.
        floor: of the plain path.
    """
    off: list[Place] = []
    outside: list[Place] = []
    drawn: list[float] = []
    flags: list[bool] = []
    proposed: list[bool] = []
    tempered: list[list[float]] = []
    for case in cases:
        ours, law = case.draws[arm, 0][0], case.laws[arm]
        blocks = blocks_of(ours, k, case.prompt.max_tokens or len(ours.tokens))
        off += _places(case, ours, law, _distances(case, arm), floor)
        outside += _places(case, ours, law, law.outside, floor)
        drawn += law.drawn
        flags += ours.from_draft
        proposed += positions_proposed(blocks) if blocks else [False] * len(law.drawn)
        tempered = tempered or [[] for _ in law.tempered]
        for longer, row in zip(tempered, law.tempered, strict=True):
            longer += row
    return PathLaw(
        tokens=len(drawn),
        floor=floor,
        off=tuple(off),
        outside=tuple(outside),
        temperature=other_temperature(drawn, tempered),
        unchecked=unchecked_proposals(drawn, flags, proposed) if any(proposed) else None,
        surprise=-math.fsum(drawn) / max(len(drawn), 1),
    )


def _places(
    case: CaseEvidence,
    output: Generation,
    law: SampledScores,
    distances: Iterable[float],
    floor: float,
) -> Iterator[Place]:
    for number, (distance, ulp) in enumerate(zip(distances, law.ulps, strict=True)):
        allowed = min(max(TIMES_FLOOR * floor, TIMES_ULP * ulp), WIDEST_TIE)
        if distance > allowed:
            yield Place(case.prompt.id, number, distance, allowed, output.from_draft[number])


def positions_proposed(blocks: Blocks) -> list[bool]:
    """For each emitted token whether the draft had proposed one for its position."""
    found: list[bool] = []
    for block in blocks.blocks:
        found += [True] * block.accepted
        if block.censored is None:  # the target's own token: in place of a proposal, or behind all
            found.append(block.rejected)
    return found

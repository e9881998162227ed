"""Acceptance over several outputs, whole: all together, by quarter of the output, by kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .blocks import Blocks, joined
from .evidence import CaseEvidence, arm_name
from .replay import EVERY_K, Forced, forced_of


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance at one number of draft tokens.

    Attributes:
        blocks: of all outputs.
        quarters: the same by the quarter of its output that a block begins in.
        kinds: the same by kind of prompt.
    """

    num_draft_tokens: int
    blocks: Blocks = field(default_factory=Blocks)
    quarters: tuple[Blocks, ...] = ()
    kinds: tuple[tuple[str, Blocks], ...] = ()

    def document(self) -> dict[str, Any]:
        """All figures as plain JSON values."""
        return {
            **self.blocks.figures(),
            "quarters": [quarter.figures() for quarter in self.quarters],
            "kinds": {kind: blocks.figures() for kind, blocks in self.kinds},
        }


def acceptance_of(k: int, outputs: Iterable[tuple[str, Blocks]]) -> Acceptance:
    """All figures of one number of draft tokens.

    Args:
        k: num_draft_tokens.
        outputs: (kind of prompt, blocks) of each output, in the order of the prompts.
    """
    known = list(outputs)
    kinds = {
        kind: joined(blocks for of, blocks in known if of == kind)
        for kind in dict.fromkeys(kind for kind, _ in known)
    }
    quarters = [blocks.quarters() for _, blocks in known]
    return Acceptance(
        k,
        joined(blocks for _, blocks in known),
        tuple(map(joined, zip(*quarters, strict=True))),
        tuple(kinds.items()),
    )


def replayed(outputs: Iterable[Forced], k: int) -> Acceptance:
    """Of one draft that was run over plain outputs."""
    return acceptance_of(k, [(output.prompt.kind, output.blocks(k)) for output in outputs])


def acceptances(cases: Sequence[CaseEvidence], ks: Iterable[int]) -> list[Acceptance]:
    """Of each k that was measured; of every k where the draft was run over plain outputs.

    Args:
        cases: of one pair.
        ks: each k that was asked for.
    """
    if outputs := forced_of(cases):
        return [replayed(outputs, k) for k in EVERY_K]
    found = []
    for k in ks:
        arms = [(case.prompt.kind, case.arms.get(arm_name(k))) for case in cases]
        blocks = [(kind, arm.blocks) for kind, arm in arms if arm and arm.blocks is not None]
        found += [acceptance_of(k, blocks)] if blocks else []
    return found

"""What the fixture ``spec_compare`` gives to a test."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.plan import Decoding
from ..engines.base import Generation
from .blocks import Blocks
from .evidence import CaseEvidence, Evidence, Parity


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt on both paths, as ``spec_compare`` returns it."""

    case: CaseEvidence
    parity: Parity
    decoding: Decoding

    @property
    def plain(self) -> Generation:
        """The plain output."""
        return self.case.plain.generation

    @property
    def speculative(self) -> Generation:
        """The speculative output."""
        return self.case.speculative[0].generation

    @property
    def blocks(self) -> Blocks:
        """Blocks of the speculative output."""
        return self.case.speculative[0].blocks or Blocks()

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed."""
        return self.blocks.acceptance_rate

    @property
    def speedup(self) -> float | None:
        """Median plain / speculative e2e; None when no rounds were asked for."""
        return Evidence((self.case,), self.decoding).speedup

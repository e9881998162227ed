"""What the rules share: an estimate on a log scale, and the three decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Decision = Literal["passed", "failed", "inconclusive"]

TINY = 1e-12  # an error of zero would divide by zero


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure on a log scale with its standard error."""

    log: float
    error: float

    @property
    def value(self) -> float:
        """The figure itself."""
        return math.exp(self.log)

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, by the normal approximation on the log scale."""
        return math.exp(self.log - 1.96 * self.error), math.exp(self.log + 1.96 * self.error)


@dataclass(frozen=True, slots=True)
class Level(Estimate):
    """An estimate that may rest on the wrong one of two groups of rounds.

    Attributes:
        below: how far ``log`` falls if it does; see ``Centres``.
        above: how far it rises.
    """

    below: float = 0.0
    above: float = 0.0

"""Do two arms draw by one law? A permutation test over the cells of several prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

Cell = tuple[Hashable, ...]
PERMUTATIONS = 9999
LEAST_IN_CELL = 10  # draws of both arms; rarer outputs share a cell,
LEAST_SHARE = 0.03  # and so do those of a smaller share: each cell takes power from the others
POWER = 0.95


@dataclass(frozen=True, slots=True)
class TwoSample:
    """Two arms compared over the same prompts.

    Attributes:
        p_value: the chance of a statistic as large where both arms draw by one law; exact.
        draws: of the first and of the second arm, all prompts together.
        cells: that are told apart, all prompts together.
        distance: total-variation distance between the arms' shares of these cells, the mean over
            prompts; two arms of one law have some too.
        chance_distance: what two arms of one law showed in the permutations, in the mean.
        seen: the smallest total-variation distance between cells that is found in 95 % of sessions
            at the level; infinite without draws.
    """

    p_value: float
    draws: tuple[int, int]
    cells: int
    distance: float
    chance_distance: float
    seen: float


def cells_of(outputs: Sequence[Sequence[Hashable]]) -> list[Cell]:
    """The cell of each output: itself where it is frequent, else its frequent prefix.

    Which arm an output is of is not looked at, so that a permutation test stays exact.

    Args:
        outputs: first tokens; those that end early are shorter.
    """
    least = max(LEAST_IN_CELL, LEAST_SHARE * len(outputs))
    found: list[Cell | None] = [None] * len(outputs)
    for length in range(max(map(len, outputs), default=0), 0, -1):
        open_ones = [i for i, cell in enumerate(found) if cell is None]
        counted = Counter(tuple(outputs[i][:length]) for i in open_ones)
        for i in open_ones:
            prefix = tuple(outputs[i][:length])
            if counted[prefix] >= least:
                found[i] = prefix
    return [cell if cell is not None else () for cell in found]


def compare_samples(
    first: Sequence[Sequence[Sequence[Hashable]]],
    second: Sequence[Sequence[Sequence[Hashable]]],
    level: float,
    seed: int,
) -> TwoSample:
    """Compare two arms.

    The statistic is Pearson's, the sum over prompts and cells of the squared difference of shares
    over the pooled share, weighted by the draws; labels are exchanged within each prompt.

    Args:
        first, second: for each prompt the outputs of an arm.
        level: of the test that ``seen`` is of.
        seed: of the permutations.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    observed, permuted = 0.0, np.zeros(PERMUTATIONS)
    distance, by_chance, prompts, cells, freedom, weight = 0.0, 0.0, 0, 0, 0, 0.0
    for ours, theirs in zip(first, second, strict=True):
        if not ours or not theirs:
            continue
        tables = _counts(ours, theirs)
        pooled, n, m = tables.sum(axis=0), len(ours), len(theirs)
        drawn = rng.multivariate_hypergeometric(pooled, n, size=PERMUTATIONS)
        shares = pooled / (n + m)
        weight += n * m / (n + m)

        def gap(counts: Any, pooled: Any = pooled, n: int = n, m: int = m) -> Any:
            return counts / n - (pooled - counts) / m

        factor = n * m / (n + m)
        observed += float((factor * gap(tables[0]) ** 2 / shares).sum())
        permuted += (factor * gap(drawn) ** 2 / shares).sum(axis=1)
        distance += float(np.abs(gap(tables[0])).sum()) / 2
        by_chance += float(np.abs(gap(drawn)).sum(axis=1).mean()) / 2
        prompts += 1
        cells += len(pooled)
        freedom += max(len(pooled) - 1, 1)  # where all is one cell, another one could appear
    as_large = int((permuted >= observed * (1 - 1e-9)).sum())
    return TwoSample(
        p_value=(1 + as_large) / (1 + PERMUTATIONS),
        draws=(sum(map(len, first)), sum(map(len, second))),
        cells=cells,
        distance=distance / max(prompts, 1),
        chance_distance=by_chance / max(prompts, 1),
        seen=smallest_distance(freedom, weight, level),
    )


def _counts(ours: Sequence[Sequence[Hashable]], theirs: Sequence[Sequence[Hashable]]) -> Any:
    """(2, cells) draws of both arms."""
    import numpy as np

    cells = cells_of([*ours, *theirs])
    names = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    table = np.zeros((2, len(names)), dtype=np.int64)
    for number, cell in enumerate(cells):
        table[int(number >= len(ours)), names[cell]] += 1
    return table


def smallest_distance(freedom: int, weight: float, level: float) -> float:
    """The smallest total-variation distance that the test finds with the power ``POWER``.

    The worst direction at a given distance d is the one that scales half of the cells by 1 + 2d and
    half by 1 - 2d: by Cauchy and Schwarz the noncentrality is at least 4 d^2 times the weight.

    Args:
        freedom: degrees of freedom, those of all prompts.
        weight: sum over prompts of n m / (n + m).
        level: chance of a false alarm.
    """
    if not freedom or not weight:
        return math.inf
    limit = freedom * _wilson_hilferty(freedom, NormalDist().inv_cdf(1 - level))
    low, high = 0.0, 10.0 * (limit + 10)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _power(limit, freedom, middle) >= POWER else (middle, high)
    return math.sqrt(high / (4 * weight))


def _wilson_hilferty(freedom: float, deviate: float) -> float:
    """A quantile of chi squared over its degrees of freedom."""
    step = 2 / (9 * freedom)
    return float((1 - step + deviate * math.sqrt(step)) ** 3)


def _power(limit: float, freedom: int, noncentrality: float) -> float:
    """The chance that noncentral chi squared exceeds a limit (Sankaran's cube-root form)."""
    mean = freedom + noncentrality
    spread = freedom + 2 * noncentrality
    h = 1 - 2 * mean * (freedom + 3 * noncentrality) / (3 * spread**2)
    p = spread / mean**2
    m = (h - 1) * (1 - 3 * h)
    centre = 1 + h * p * (h - 1 - (2 - h) * m * p / 2)
    error = h * math.sqrt(2 * p) * (1 + m * p / 2)
    return 1 - NormalDist().cdf(((limit / mean) ** h - centre) / error)

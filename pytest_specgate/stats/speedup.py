"""Is the speedup at least a limit? A robust centre a prompt, and a look after each round.

The rules compare paired trials on a log scale. Prompts are blocks and rounds are replicates: with
greedy decoding a prompt's acceptance is a property of the prompt, not noise. Every function here
takes any number of leading axes, so that a simulation decides by the very code of a gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .common import TINY, Decision, Level

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_ROUNDS = 5
LEAST_ROUNDS_TO_FAIL_ALONE = 7
_MEDIAN_DIFFERENCE = 0.9539  # median |x - y| of two standard normal variables
_REACH = 4.0  # of the biweight, in spreads: 91 % efficient on normal noise
_STEPS = 5  # of its iteration; the centre then moves by less than a tenth of its error


@dataclass(frozen=True, slots=True)
class Centres:
    """The estimate of one look; each field has the leading axes of what it was made from.

    Attributes:
        log: mean over prompts of the centre of the log ratios.
        error: its standard error.
        below: how far ``log`` falls when every prompt whose rounds form two groups of about equal
            size has its centre in the lower group.
        above: how far it rises with the centre in the upper group.
    """

    log: Floats
    error: Floats
    below: Floats
    above: Floats


def _spreads(logs: Floats) -> Floats:
    import numpy as np

    first, second = np.triu_indices(logs.shape[-1], k=1)
    middle = np.median(np.abs(logs[..., first] - logs[..., second]), axis=-1)
    return np.asarray(middle / _MEDIAN_DIFFERENCE)


def prompt_spread(values: Sequence[float]) -> float:
    """Standard deviation of one prompt's rounds from the median difference of pairs of rounds."""
    import numpy as np

    return float(_spreads(np.asarray(values, dtype=float))) if len(values) > 1 else 0.0


def speedup_centres(logs: Floats) -> Centres:
    """The speedup over a prompt mix: the mean of the prompts' robust centres.

    A prompt's centre is Tukey's biweight of its rounds, begun at their median, with the spread s_j
    (median difference of pairs of rounds / 0.9539) held within 0.7 and 1.4 times the median spread
    of all prompts: five rounds alone tell little of a spread. Its variance is the sum of squares of
    the rounds' influences over R (R - 1). The standard error is the larger of the one from these
    variances and the standard deviation over rounds of the mean influence / sqrt(R), which sees
    what all prompts of a round share.

    Where rounds that got no weight lie on one side and are all but as many as those that did, the
    median may have picked the wrong group: with 5 % of trials doubled three of five rounds do so in
    one prompt of 500, which moves the mean of 12 prompts by 6 %. ``below`` and ``above`` say how
    far the estimate would move then.

    Args:
        logs: of plain / speculative seconds, shape (..., J prompts, R >= 2 rounds).
    """
    import numpy as np

    prompts, rounds = logs.shape[-2:]
    spreads = _spreads(logs)
    typical = np.median(spreads, axis=-1, keepdims=True)
    reach = _REACH * np.maximum(np.clip(spreads, 0.7 * typical, 1.4 * typical), TINY)[..., None]
    centre = np.median(logs, axis=-1, keepdims=True)
    for _ in range(_STEPS):
        weights = np.clip(1 - ((logs - centre) / reach) ** 2, 0, None) ** 2
        total = np.maximum(weights.sum(axis=-1, keepdims=True), TINY)
        centre = (weights * logs).sum(axis=-1, keepdims=True) / total

    rest = logs - centre
    square = (rest / reach) ** 2
    inside = square < 1
    weights = np.where(inside, (1 - square) ** 2, 0)
    slope = np.where(inside, (1 - square) * (1 - 5 * square), 0).mean(axis=-1)
    # few rounds can make the slope vanish by chance, and the influence without bound
    slope = np.maximum(np.maximum(slope, weights.mean(axis=-1) / 2), TINY)
    influence = rest * weights / slope[..., None]
    variances = (influence**2).sum(axis=-1) / (rounds * (rounds - 1))
    within = np.sqrt(variances.sum(axis=-1)) / prompts
    between = influence.mean(axis=-2).std(axis=-1, ddof=1) / math.sqrt(rounds)

    def shift(far: NDArray[np.bool_]) -> Floats:
        many = far.sum(axis=-1)
        torn = (many >= 2) & (many >= inside.sum(axis=-1) - 1)
        middle = np.where(far, rest, 0).sum(axis=-1) / np.maximum(many, 1)
        return np.asarray(np.where(torn, np.abs(middle), 0).mean(axis=-1))

    return Centres(
        centre[..., 0].mean(axis=-1),
        np.maximum(np.maximum(within, between), TINY),
        shift(~inside & (rest < 0)),
        shift(~inside & (rest > 0)),
    )


def thresholds(prompts: int, rounds: int) -> tuple[float, float]:
    """Standard errors from the limit at which a look passes, and fails.

    Both grow where the error itself rests on few differences, as Student's t does. A single prompt
    has no others to take its spread from, and fails from round 7 on. The figures come from
    ``benchmarks/decisions.py``.
    """
    few = 1 + 3 / (prompts * (rounds - 1))
    if prompts > 1:
        return 2.45 * few, 2.85 * few
    return 2.2 * few, 3.6 * few if rounds >= LEAST_ROUNDS_TO_FAIL_ALONE else math.inf


def speedup_verdicts(
    centres: Centres, prompts: int, rounds: int, least: float, margin: float
) -> NDArray[np.int8]:
    """1 passed, -1 failed, 0 inconclusive, one a look.

    Passed when the estimate lies so many errors above least / (1 + margin), failed when it lies so
    many below least; a prompt that is torn between two groups counts with the group that speaks
    against the verdict. Nothing is decided before round 5.
    """
    import numpy as np

    verdicts = np.zeros(np.shape(centres.log), dtype=np.int8)
    if rounds < LEAST_ROUNDS:
        return verdicts
    above, below = thresholds(prompts, rounds)
    distance = centres.log - math.log(least)
    verdicts[-(distance + centres.above) >= below * centres.error] = -1
    verdicts[distance - centres.below + math.log1p(margin) >= above * centres.error] = 1
    return verdicts


def _logs(ratios: Sequence[Sequence[float]]) -> Floats:
    import numpy as np

    return np.asarray(np.log(np.asarray(ratios, dtype=float)))


def median_speedup(ratios: Sequence[Sequence[float]]) -> Level:
    """Speedup over a prompt mix, as ``speedup_centres`` has it.

    Args:
        ratios: plain / speculative seconds, one row of R >= 2 rounds for each of J >= 1 prompts.
    """
    centres = speedup_centres(_logs(ratios))
    return Level(*map(float, (centres.log, centres.error, centres.below, centres.above)))


def decide_speedup(ratios: Sequence[Sequence[float]], least: float, margin: float) -> Decision:
    """Is the speedup at least ``least``? One look of a sequence with a look after each round.

    Over all looks of rounds 5 to 12, CV 2 to 10 % a trial and up to 5 % of trials doubled: at most
    1 % failed at the limit, at most 5 % passed at least / (1 + margin).

    Args:
        ratios: as for ``median_speedup``.
        least: the limit, such as 1.15.
        margin: share by which a miss is not told from a hit, such as 0.03.
    """
    prompts, rounds = len(ratios), len(ratios[0])
    if rounds < LEAST_ROUNDS:
        return "inconclusive"
    verdict = int(speedup_verdicts(speedup_centres(_logs(ratios)), prompts, rounds, least, margin))
    return "passed" if verdict > 0 else "failed" if verdict < 0 else "inconclusive"

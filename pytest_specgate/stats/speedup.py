"""Is the speedup at least a limit? A robust centre a prompt, and a look after each round.

The rules compare paired trials on a log scale. Prompts are blocks and rounds are replicates: with
greedy decoding a prompt's acceptance is a property of the prompt, not noise. What disturbs a
machine makes trials longer, never shorter, so a pair counts for more where both of its trials are
among the quick ones of their arms. Every function here takes any number of leading axes, so that a
simulation decides by the very code of a gate.
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

Rows = Sequence[Sequence[float]]
LEAST_ROUNDS = 5
LEAST_ROUNDS_TO_FAIL_ALONE = 7
_MEDIAN_DIFFERENCE = 0.9539  # median |x - y| of two standard normal variables
_REACH = 4.0  # of the biweight, in spreads: 91 % efficient on normal noise
_STEPS = 5  # of its iteration; the centre then moves by less than a tenth of its error
_FIRST_QUARTILE = 0.4506  # of |x - y| of two standard normal variables
_QUIET = 6.0  # spreads of a trial above the quick ones, where a pair counts half
_ONE_SIDED = 1.5  # standard errors by which one arm may be disturbed more than the other
_CHOSEN = 1.03  # error of a centre with such weights over the one that they show, normal noise


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


def quietness(first: Floats, second: Floats) -> Floats:
    """Weights of pairs of trials: 1 where neither trial was disturbed, towards 0 the longer it was.

    1 / (1 + (d / 6s)^2), where d is by how much the log seconds of a trial exceed the second
    quickest round of its arm and prompt (0 for the quicker ones), the larger of both arms: the
    quickest of a few rounds may be an outlier itself. s is the spread of a trial in the noisier
    arm, since by the calmer one's measure the usual noise of the other were a disturbance, and its
    quick rounds alone would count. Of an arm it is the first quartile of the differences of pairs
    of rounds / 0.4506 (Rousseeuw and Croux 1993), of the prompt itself, but held within 0.8 and
    1.25 times that of all prompts.

    Where one arm is disturbed more than the other, by more than 1.5 standard errors of the sum of
    the differences of their weights, that is its own cost and no trouble of the machine: then all
    weights are 1.

    Args:
        first, second: log seconds of both arms, shape (..., J prompts, R >= 2 rounds).
    """
    import numpy as np

    one, other = np.triu_indices(first.shape[-1], k=1)

    def spread(arm: Floats) -> Floats:
        differences = np.abs(arm[..., one] - arm[..., other])
        own = np.quantile(differences, 0.25, axis=-1)
        every = differences.reshape(*differences.shape[:-2], -1)
        shared = np.quantile(every, 0.25, axis=-1)[..., None]
        return np.asarray(np.clip(own, 0.8 * shared, 1.25 * shared) / _FIRST_QUARTILE)

    most = np.maximum(np.maximum(spread(first), spread(second)), TINY)[..., None]
    delays = [
        np.maximum(arm - np.partition(arm, 1, axis=-1)[..., 1:2], 0) for arm in (first, second)
    ]
    ours, theirs = (1 / (1 + (delay / (_QUIET * most)) ** 2) for delay in delays)
    more = (ours - theirs).sum(axis=(-2, -1), keepdims=True)
    by_chance = np.sqrt(((ours - theirs) ** 2).sum(axis=(-2, -1), keepdims=True))
    return np.asarray(np.where(np.abs(more) > _ONE_SIDED * by_chance, 1, np.minimum(ours, theirs)))


def _weighted_median(values: Floats, weights: Floats) -> Floats:
    """Over the last axis, which is kept; the middle of both where two values share the half."""
    import numpy as np

    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    share = np.take_along_axis(weights, order, axis=-1).cumsum(axis=-1)
    half = share[..., -1:] / 2
    ends = [
        np.take_along_axis(ordered, reached.argmax(axis=-1)[..., None], axis=-1)
        for reached in (share >= half - TINY, share > half + TINY)
    ]
    return np.asarray((ends[0] + ends[1]) / 2)


def speedup_centres(logs: Floats, quiet: Floats | None = None) -> Centres:
    """The speedup over a prompt mix: the mean of the prompts' robust centres.

    A prompt's centre is Tukey's biweight of its rounds, begun at their median, with the spread s_j
    (median difference of pairs of rounds / 0.9539) held within 0.7 and 1.4 times the median spread
    of all prompts: five rounds alone tell little of a spread. Its variance is the sum of squares of
    the rounds' influences over R (R - 1). The standard error is the larger of the one from these
    variances and the standard deviation over rounds of the mean influence / sqrt(R), which sees
    what all prompts of a round share. Rounds may have weights, of the median too; the error then
    grows by 3 %, since the weights hang together with what they weigh.

    Where rounds that got no weight lie on one side and are all but as many as those that did, the
    median may have picked the wrong group: with 5 % of trials doubled three of five rounds do so in
    one prompt of 500, which moves the mean of 12 prompts by 6 %. ``below`` and ``above`` say how
    far the estimate would move then.

    Args:
        logs: of plain / speculative seconds, shape (..., J prompts, R >= 2 rounds).
        quiet: weights of the rounds from ``quietness``, of the same shape; all alike where only
            ratios are known.
    """
    import numpy as np

    prompts, rounds = logs.shape[-2:]
    given = np.ones_like(logs) if quiet is None else quiet
    spreads = _spreads(logs)
    typical = np.median(spreads, axis=-1, keepdims=True)
    reach = _REACH * np.maximum(np.clip(spreads, 0.7 * typical, 1.4 * typical), TINY)[..., None]
    centre = _weighted_median(logs, given)
    for _ in range(_STEPS):
        weights = given * np.clip(1 - ((logs - centre) / reach) ** 2, 0, None) ** 2
        total = np.maximum(weights.sum(axis=-1, keepdims=True), TINY)
        centre = (weights * logs).sum(axis=-1, keepdims=True) / total

    rest = logs - centre
    square = (rest / reach) ** 2
    inside = square < 1
    weights = given * np.where(inside, (1 - square) ** 2, 0)
    slope = given * np.where(inside, (1 - square) * (1 - 5 * square), 0)
    # few rounds can make the slope vanish by chance, and the influence without bound
    steep = np.maximum(np.maximum(slope.mean(axis=-1), weights.mean(axis=-1) / 2), TINY)
    influence = rest * weights / steep[..., None]
    variances = (influence**2).sum(axis=-1) / (rounds * (rounds - 1))
    within = np.sqrt(variances.sum(axis=-1)) / prompts
    between = influence.mean(axis=-2).std(axis=-1, ddof=1) / math.sqrt(rounds)
    error = np.maximum(within, between) * (1 if quiet is None else _CHOSEN)

    def shift(far: NDArray[np.bool_]) -> Floats:
        many = np.where(far, given, 0).sum(axis=-1)
        near, number = np.where(inside, given, 0).sum(axis=-1), inside.sum(axis=-1)
        all_but_one = near * (1 - 1 / np.maximum(number, 1))
        torn = (far.sum(axis=-1) >= 2) & (many >= all_but_one - TINY)
        middle = np.where(far, given * rest, 0).sum(axis=-1) / np.maximum(many, TINY)
        return np.asarray(np.where(torn, np.abs(middle), 0).mean(axis=-1))

    return Centres(
        centre[..., 0].mean(axis=-1),
        np.maximum(error, TINY),
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
    return 2.3 * few, 3.6 * few if rounds >= LEAST_ROUNDS_TO_FAIL_ALONE else math.inf


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


def _logs(rows: Rows) -> Floats:
    import numpy as np

    return np.asarray(np.log(np.asarray(rows, dtype=float)))


def _centres(ratios: Rows, weights: Rows | None) -> Centres:
    import numpy as np

    quiet = None if weights is None else np.asarray(weights, dtype=float)
    return speedup_centres(_logs(ratios), quiet)


def median_speedup(ratios: Rows, weights: Rows | None = None) -> Level:
    """Speedup over a prompt mix, as ``speedup_centres`` has it.

    Args:
        ratios: plain / speculative seconds, one row of R >= 2 rounds for each of J >= 1 prompts.
        weights: of the rounds, from ``Paired``; all alike where only ratios are known.
    """
    centres = _centres(ratios, weights)
    return Level(*map(float, (centres.log, centres.error, centres.below, centres.above)))


def decide_speedup(
    ratios: Rows, least: float, margin: float, weights: Rows | None = None
) -> Decision:
    """Is the speedup at least ``least``? One look of a sequence with a look after each round.

    Over all looks of rounds 5 to 12, CV 2 to 10 % a trial and up to 5 % of trials doubled: at most
    1 % failed at the limit, at most 5 % passed at least / (1 + margin).

    Args:
        ratios: as for ``median_speedup``.
        least: the limit, such as 1.15.
        margin: share by which a miss is not told from a hit, such as 0.03.
        weights: as for ``median_speedup``.
    """
    prompts, rounds = len(ratios), len(ratios[0])
    if rounds < LEAST_ROUNDS:
        return "inconclusive"
    verdict = int(speedup_verdicts(_centres(ratios, weights), prompts, rounds, least, margin))
    return "passed" if verdict > 0 else "failed" if verdict < 0 else "inconclusive"


class Paired:
    """Trials of two arms in the same rounds: their ratios, and how quiet each pair was.

    Attributes:
        ratios: first / second, one row of rounds for each prompt.
        weights: of the rounds, from ``quietness``; None for a single round.
    """

    def __init__(self, seconds: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Weigh the pairs.

        Args:
            seconds: of (first, second), one row of equally many rounds for each prompt.
        """
        self.ratios = [[first / second for first, second in row] for row in seconds]
        self.weights: Rows | None = None
        if self.rounds > 1:
            first, second = (_logs([[pair[i] for pair in row] for row in seconds]) for i in (0, 1))
            self.weights = quietness(first, second).tolist()

    @property
    def prompts(self) -> int:
        """How many rows there are."""
        return len(self.ratios)

    @property
    def rounds(self) -> int:
        """Of each prompt."""
        return len(self.ratios[0]) if self.ratios else 0

    def speedup(self) -> Level:
        """As ``median_speedup``, of at least two rounds."""
        return median_speedup(self.ratios, self.weights)

    def decide(self, least: float, margin: float) -> Decision:
        """As ``decide_speedup``; inconclusive where there is no round."""
        if not self.rounds:
            return "inconclusive"
        return decide_speedup(self.ratios, least, margin, self.weights)

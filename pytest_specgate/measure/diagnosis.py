"""What a difference between the two paths means: measured signals, and the kind they point to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from ..engines.base import Call, Generation, Scores
from .blocks import sound_length

Kind = Literal[
    "near-tie",
    "cache-corruption",
    "options-differ",
    "out-of-range-ids",
    "non-deterministic",
    "unexplained",
]

TIMES_FLOOR = 4.0  # a gap within so many noise floors is rounding
TIMES_ULP = 2.0  # or within so many steps of the logits' own dtype
WIDEST_TIE = 1.0  # nats; a real fault shows more


@dataclass(frozen=True, slots=True)
class Check:
    """The teacher-forced check of one output.

    Attributes:
        scores: what the target says of each emitted token.
        floor: the noise floor in nats: the largest |log probability one by one - in one pass| of
            the plain path's own tokens, or an estimate of it where there is no plain output.
        ties: positions where another token is larger, but within the tolerance.
        wide: positions where the emitted token cannot be the target's choice.
    """

    scores: Scores
    floor: float
    ties: tuple[int, ...]
    wide: tuple[int, ...]

    @property
    def largest_gap(self) -> float:
        """Nats that the worst token lies below the target's choice."""
        return max(self.scores.gaps, default=0.0)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was run again because a speculative output differs.

    Attributes:
        plain_repeats: the plain path gave its output again.
        speculative_repeats: the speculative path gave its own output again.
        zero_draft_equal: the speculative path without proposals (k = 0) equals the plain one.
        differences: k -> first output token that differs from the plain path; None where equal.
        drift: target cache offset less what prompt and emitted tokens make it, before each block.
        check: of the speculative output; None where the engine cannot score.
        stuck: the target's caches that a probe could not rewind at the length held when the outputs
            parted; None where there was nothing to probe. The draft's are left out: they cannot
            change the output.
    """

    plain_repeats: bool
    speculative_repeats: bool
    zero_draft_equal: bool
    differences: Mapping[int, int | None]
    drift: tuple[tuple[int, int], ...]
    check: Check | None
    stuck: tuple[str, ...] | None = None


def floor_of(generation: Generation, scores: Scores) -> float:
    """The noise floor in nats, from a plain run's own log probabilities and one pass over them."""
    pairs = zip(generation.logprobs or (), scores.logprobs, strict=False)
    return max((abs(own - scored) for own, scored in pairs), default=0.0)


def floor_without_plain(generation: Generation, scores: Scores) -> float:
    """An estimate of the noise floor from a speculative run alone.

    Sixteen medians of the same differences: a corruption of few tokens cannot widen it, and one of
    most tokens shows gaps above the hard cap.
    """
    pairs = zip(generation.logprobs or (), scores.logprobs, strict=False)
    return 16 * median([abs(own - scored) for own, scored in pairs] or [0.0])


def check_of(generation: Generation, scores: Scores, floor: float, *, sampled: bool) -> Check:
    """Judge each emitted token on the prefix that was really there.

    Greedy: how far it lies below the target's choice. Sampled: how far the log probability that
    the run returned lies from the target's own.
    """
    distances: Sequence[float] = scores.gaps
    if sampled:
        returned = generation.logprobs or scores.logprobs
        distances = [abs(a - b) for a, b in zip(returned, scores.logprobs, strict=True)]
    ties, wide = [], []
    for position, (distance, ulp) in enumerate(zip(distances, scores.ulps, strict=True)):
        if distance > min(max(TIMES_FLOOR * floor, TIMES_ULP * ulp), WIDEST_TIE):
            wide.append(position)
        elif distance > 0 and not sampled:
            ties.append(position)
    return Check(scores, floor, tuple(ties), tuple(wide))


def cache_drift(
    calls: Sequence[Call], accepted: Sequence[int], prompt_tokens: int
) -> tuple[tuple[int, int], ...]:
    """(emitted tokens, drift of the target's cache) before each block of one speculative run.

    A cache that is rewound to what the output holds drifts by 0. The first block may still hold
    the rest of the prompt, so it counts as 0. Empty where the cache tells no offset.

    Args:
        calls: in order, both models.
        accepted: of each block, by the output's flags.
        prompt_tokens: length of the prompt.
    """
    drift: list[tuple[int, int]] = []
    consumed = emitted = 0
    for call in calls:
        if call.model == "draft":
            continue
        consumed += call.length
        if consumed < prompt_tokens or len(drift) >= len(accepted):
            continue
        if call.offset is None:
            return ()
        known = prompt_tokens - 1 + emitted
        drift.append((emitted, call.offset - known if drift else 0))
        emitted += accepted[len(drift) - 1] + 1
    return tuple(drift)


def drift_at_end(generation: Generation, prompt_tokens: int) -> tuple[tuple[int, int], ...]:
    """(emitted tokens, drift) at the end of a run, of the layer that is furthest off."""
    if generation.held is None:
        return ()
    sound = sound_length(generation, prompt_tokens)
    return ((len(generation.tokens), max((h - sound for h in generation.held), key=abs)),)


def kind_of(diagnosis: Diagnosis, largest_proposal: int | None, rows: int | None) -> Kind:
    """Which kind the signals point to; the surest signal is asked first.

    Args:
        diagnosis: of a greedy output that differs.
        largest_proposal: the largest id the draft proposed.
        rows: of the target's embedding.
    """
    if not diagnosis.plain_repeats:
        return "non-deterministic"
    if largest_proposal is not None and rows is not None and largest_proposal >= rows:
        return "out-of-range-ids"
    if not diagnosis.speculative_repeats:
        return "non-deterministic"
    if not diagnosis.zero_draft_equal:
        return "options-differ"
    if any(drift for _, drift in diagnosis.drift):
        return "cache-corruption"
    if diagnosis.check is not None and not diagnosis.check.wide:
        return "near-tie"
    if diagnosis.stuck or moves_earlier(diagnosis.differences):
        return "cache-corruption"
    return "unexplained"


def moves_earlier(differences: Mapping[int, int | None]) -> bool:
    """The first difference comes sooner as k grows; rounding would leave it where it is."""
    found = [at for _, at in sorted(differences.items()) if at is not None]
    falling = all(later <= sooner for sooner, later in pairwise(found))
    return len(found) > 1 and falling and found[-1] < found[0]

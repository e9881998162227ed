"""What is run beside the two paths themselves: one option alone, a second turn, other seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..config.plan import Decoding
from ..engines.base import EngineError, Generation, Scores, Turns, Unsupported
from .diagnosis import TIMES_FLOOR, WIDEST_TIE, Check, check_of

LOGIT_BIAS = "logit_bias"


@dataclass(frozen=True, slots=True)
class OptionRun:
    """One decoding option alone, on both paths of one prompt.

    Attributes:
        option, value: of ``Decoding``; a bias is put on the first token of the plain output.
        num_draft_tokens: of the speculative path.
        plain, speculative: observed outputs; None where one could not be made.
        floor: the largest |log probability of one path - of the other| without the option, in nats.
        error: why there is no output.
        unusable: not even the plain path takes the option, with this model and release.
    """

    option: str
    value: float
    num_draft_tokens: int
    plain: Generation | None = None
    speculative: Generation | None = None
    floor: float = 0.0
    error: str | None = None
    unusable: bool = False

    @property
    def first_difference(self) -> int | None:
        """Index of the first output token that differs; None where the ids are equal."""
        if self.plain is None or self.speculative is None:
            return None
        return first_difference(self.plain.tokens, self.speculative.tokens)

    @property
    def near_tie(self) -> bool:
        """At the first difference the best two tokens lie within rounding of each other."""
        first = self.first_difference
        if first is None or self.plain is None or self.speculative is None:
            return False
        most = min(TIMES_FLOOR * self.floor, WIDEST_TIE)
        both = (self.plain.margins or (), self.speculative.margins or ())
        return all(first < len(margins) and margins[first] <= most for margins in both)


@dataclass(frozen=True, slots=True)
class TurnRun:
    """A second turn of one path with the prompt cache kept.

    Attributes:
        turns: what was generated; None where it could not be.
        check: the teacher-forced check of the second turn's output, where it differs from a fresh
            run's.
        error: why there are no turns.
    """

    turns: Turns | None = None
    check: Check | None = None
    error: str | None = None


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """Index of the first token that differs; an output that ends early differs where it ends."""
    return next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        None if len(ours) == len(theirs) else min(len(ours), len(theirs)),
    )


def floor_between(plain: Generation, speculative: Generation) -> float:
    """Noise between the paths in nats: the largest difference of log probabilities, token by token.

    Over the tokens that both outputs begin with.
    """
    first = first_difference(plain.tokens, speculative.tokens)
    pairs = zip(plain.logprobs or (), speculative.logprobs or (), strict=False)
    return max((abs(a - b) for a, b in list(pairs)[:first]), default=0.0)


def with_option(decoding: Decoding, option: str, value: float, first_token: int) -> Decoding:
    """The decoding options with one of them set; a bias is put on the given token."""
    if option == LOGIT_BIAS:
        return replace(decoding, logit_bias=((first_token, value),))
    changed: dict[str, Any] = {option: value}
    return replace(decoding, **changed)


def seed_of(seed: int, prompt_id: str, sample: int) -> int:
    """The seed of one further sample: another for each prompt, so that their draws do not agree."""
    text = f"{seed}/{sample}/{prompt_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")


def option_run(
    generate: Callable[[int | None], Generation],
    option: str,
    value: float,
    k: int,
    *,
    floor: float,
) -> OptionRun:
    """Run both paths with the option set."""
    try:
        plain = generate(None)
    except EngineError as error:
        return OptionRun(option, value, k, error=str(error), unusable=True)
    try:
        return OptionRun(option, value, k, plain, generate(k), floor)
    except EngineError as error:
        unusable = isinstance(error, Unsupported)
        return OptionRun(option, value, k, plain, error=str(error), unusable=unusable)


def turn_run(
    second_turn: Callable[[], Turns],
    score: Callable[[tuple[int, ...], Generation], Scores | None],
    *,
    floor: float,
) -> TurnRun:
    """Run both turns, and check the second one where it differs from a fresh run."""
    try:
        turns = second_turn()
        if turns.second is None or turns.second.tokens == turns.fresh.tokens:
            return TurnRun(turns)
        scores = score(turns.prompt, turns.second)
    except EngineError as error:
        return TurnRun(error=str(error))
    check = check_of(turns.second, scores, floor, sampled=False) if scores else None
    return TurnRun(turns, check)

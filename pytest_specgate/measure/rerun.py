"""What is run again when an output differs, so that the difference can be named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..config.plan import MAX_DRAFT_TOKENS, ParityMode
from ..engines.base import EngineError, Generation, Scores
from .diagnosis import (
    Diagnosis,
    cache_drift,
    check_of,
    drift_at_end,
    floor_of,
    floor_without_plain,
)
from .evidence import ArmEvidence, Parity, compare


@dataclass(frozen=True, slots=True)
class Rerun:
    """One prompt, ready to be run again.

    Attributes:
        generate: k -> a further run; None for the plain path.
        score: the teacher-forced pass over an output; None where the engine has none.
        prompt_tokens: length of the prompt.
        again: k -> the further run of it. Kept for the prompt: several k that fail ask for the same
            ones.
        stuck: (tokens held, k) -> the target's caches that cannot be rewound there; None where the
            engine shows none.
    """

    generate: Callable[[int | None], Generation]
    score: Callable[[Generation], Scores | None]
    prompt_tokens: int
    again: dict[int | None, Generation] = field(default_factory=dict)
    stuck: Callable[[int, int], tuple[str, ...] | None] = lambda held, k: None

    def explained(
        self, arm: ArmEvidence, plain: Generation | None, mode: ParityMode, *, sampled: bool
    ) -> ArmEvidence:
        """A speculative arm with its teacher-forced check, or the diagnosis of its difference.

        Raises:
            EngineError: in mode ``scored``, where the engine cannot score.
        """
        if mode == "scored":
            scores = self.score(arm.generation)
            if scores is None:
                raise EngineError("this engine cannot score an output, as mode scored needs")
            floor = floor_without_plain(arm.generation, scores)
            return replace(arm, check=check_of(arm.generation, scores, floor, sampled=sampled))
        if plain is None or arm.num_draft_tokens is None:
            return arm
        parity = compare(plain, arm.generation, arm.num_draft_tokens)
        if sampled or (parity.exact and not arm.broken):
            return arm
        try:
            return replace(arm, diagnosis=self._diagnosis(arm, plain, parity))
        except EngineError:  # the difference stands, told without its kind
            return arm

    def _diagnosis(self, arm: ArmEvidence, plain: Generation, parity: Parity) -> Diagnosis:
        k = parity.num_draft_tokens
        differences = {k: parity.first_difference}
        for other in (0, 1, min(2 * k + 1, MAX_DRAFT_TOKENS)):
            if other not in differences:
                differences[other] = compare(plain, self._run(other), other).first_difference
        # a block that came before the first difference held no more than this
        parted = parity.first_difference
        emitted = len(arm.generation.tokens) if parted is None else parted
        accepted = [block.accepted for block in arm.blocks.blocks] if arm.blocks else []
        check, scores = None, self.score(arm.generation)
        if scores is not None:
            of_plain = self.score(plain)
            floor = floor_of(plain, of_plain) if of_plain else 0.0
            check = check_of(arm.generation, scores, floor, sampled=False)
        return Diagnosis(
            plain_repeats=self._repeats(None, plain),
            speculative_repeats=self._repeats(k, arm.generation),
            zero_draft_equal=differences.pop(0) is None,
            differences=dict(sorted(differences.items())),
            drift=(
                *cache_drift(arm.generation.calls or (), accepted, self.prompt_tokens),
                *drift_at_end(arm.generation, self.prompt_tokens),
            ),
            check=check,
            stuck=self.stuck(self.prompt_tokens + emitted + k, k),
        )

    def _repeats(self, k: int | None, generation: Generation) -> bool:
        again = self._run(k)
        return again.tokens == generation.tokens and again.text == generation.text

    def _run(self, k: int | None) -> Generation:
        if k not in self.again:
            self.again[k] = self.generate(k)
        return self.again[k]

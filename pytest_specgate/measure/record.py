"""What is known of one prompt, arm by arm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ..config.plan import ParityMode, Prompt
from ..engines.base import Generation
from .evidence import PLAIN, ArmEvidence, CaseEvidence, arm_name

CaseKey = tuple[str, str, int]


@dataclass
class Record:
    """One prompt with its budget: what was asked of it and what is known.

    Attributes:
        wanted: k -> the least rounds that some gate wants; 0 for parity alone.
        errors: arm -> why it is not there, or could not be timed.
        warmed: further warm-up passes are behind it.
    """

    prompt: Prompt
    mode: ParityMode
    wanted: dict[int, int] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    arms: dict[str, ArmEvidence] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    warmed: bool = False

    @property
    def least_rounds(self) -> int:
        return max(self.wanted.values(), default=0)

    @property
    def rounds(self) -> int:
        return len(self.arms[PLAIN].trials) if PLAIN in self.arms else 0

    def case(self, names: Collection[str] | None = None) -> CaseEvidence:
        """What is known of these arms (default: all)."""
        wanted = [PLAIN, *(arm_name(k) for k in sorted(self.wanted))]
        order = [name for name in wanted if names is None or name in names]
        errors = [self.errors[name] for name in order if name in self.errors]
        arms = {name: self.arms[name] for name in order if name in self.arms}
        error = errors[0] if errors else None
        late = any(name in self.errors for name in arms)
        return CaseEvidence(self.prompt, self.tokens, arms, error, self.mode, late)


def key_of(prompt: Prompt) -> CaseKey:
    return prompt.id, prompt.text, budget_of(prompt)


def budget_of(prompt: Prompt) -> int:
    if prompt.max_tokens is None:
        raise ValueError(f"prompt {prompt.id!r} has no max_tokens: resolve the inputs first")
    return prompt.max_tokens


def malformed(generation: Generation) -> str | None:
    """What a generation lacks to be measured by, whoever made it."""
    tokens, times = generation.tokens, generation.token_times_s
    if not tokens:
        return "nothing was generated: it gave no token at all"
    if not len(tokens) == len(generation.from_draft) == len(times):
        return (
            f"{len(tokens)} tokens, {len(generation.from_draft)} from_draft flags and "
            f"{len(times)} token times should be as many"
        )
    if not 0 < times[0] <= times[-1] <= generation.e2e_s:
        return f"times out of order: {times[0]} s, {times[-1]} s, {generation.e2e_s} s in all"
    return None


def unlike(timed: Generation, observed: Generation, number: int) -> str | None:
    """How a timed run differs from the parity pass."""
    if timed.tokens == observed.tokens and timed.text == observed.text:
        return None
    first = next(
        (i for i, (a, b) in enumerate(zip(timed.tokens, observed.tokens, strict=False)) if a != b),
        min(len(timed.tokens), len(observed.tokens)),
    )
    return f"{pass_name(number)} differs from the parity pass at output token {first}"


def pass_name(number: int) -> str:
    """A timed round by its number; what is thrown away has none."""
    return f"round {number}" if number else "a further warm-up pass"

"""What is known of one prompt, arm by arm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import isnan

from ..config.plan import Inputs, Measure, ParityMode, Prompt
from ..config.spec import Invalid, Spec, boolean, found, integer, number, optional
from ..engines.base import Generation, SampledScores, Scores
from .blocks import broken_ledger
from .evidence import AGAIN, PLAIN, ArmEvidence, CaseEvidence, arm_name, in_step
from .further import OptionRun, TurnRun, floor_between

CaseKey = tuple[str, str, int]


@dataclass
class Record:
    """One prompt with its budget: what was asked of it and what is known.

    Attributes:
        wanted: k -> the least rounds that some gate wants; 0 for parity alone.
        errors: arm -> why it is not there, or could not be timed.
        warmed: further warm-up passes are behind it.
        alone: (option, value, k) -> its runs.
        turns: (arm, what is said in the second turn) -> its runs.
        further: arm -> its outputs with other seeds, the second sample first.
        samples: outputs an arm that some gate wants.
        broke_in_sample: which of them could not be made, and why; no further one is tried.
        again: k -> what was run again to name a difference.
        twin: the same prompt in the other environment, where two are measured side by side.
        rivals: the same prompt with each further draft of a sweep.
        plain_of: where this is one of them: whose plain arm it shares.
        carried: rounds taken over from an earlier session's sample.
        carried_to: number of the last of them.
        granted: rounds that may be run beyond the most, as an undecided gate is run again.
        choices: the draft's own choice in place of each token of the plain output, in a scan.
        draws: (arm, number, most tokens) -> output drawn with a seed of its own.
        laws: arm -> by which law the target would have drawn its first whole output.
        not_drawn: arm -> why its draws or its law are not there.
    """

    prompt: Prompt
    mode: ParityMode
    wanted: dict[int, int] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    arms: dict[str, ArmEvidence] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    warmed: bool = False
    alone: dict[tuple[str, float, int], OptionRun] = field(default_factory=dict)
    turns: dict[tuple[str, str], TurnRun] = field(default_factory=dict)
    further: dict[str, list[Generation]] = field(default_factory=dict)
    samples: int = 1
    broke_in_sample: str | None = None
    again: dict[int | None, Generation] = field(default_factory=dict)
    twin: Record | None = None
    rivals: list[Record] = field(default_factory=list)
    plain_of: Record | None = None
    carried: int = 0
    carried_to: int = 0
    granted: int = 0
    choices: tuple[int, ...] | None = None
    draws: dict[tuple[str, int, int], Generation] = field(default_factory=dict)
    laws: dict[str, SampledScores] = field(default_factory=dict)
    not_drawn: dict[str, str] = field(default_factory=dict)

    @property
    def least_rounds(self) -> int:
        return max(self.wanted.values(), default=0)

    @property
    def rounds(self) -> int:
        return len(self.arms[PLAIN].trials) if PLAIN in self.arms else 0

    @property
    def last_round(self) -> int:
        """Number of the round that was run last."""
        return self.arms[PLAIN].trials[-1].round if self.rounds else 0

    def peak(self, k: int) -> int:
        """Highest peak memory of any trial of one arm, in bytes; 0 where none was seen."""
        arm = self.arms.get(arm_name(k))
        return max((t.peak_memory_bytes or 0 for t in arm.trials), default=0) if arm else 0

    def least_of(self, measure: Measure) -> int:
        """Rounds that are run before any gate is asked."""
        return self.carried + 1 if self.carried else measure.min_rounds

    def most_of(self, measure: Measure) -> int:
        """Rounds that are run at most; a sample that is continued gets as many more."""
        return self.carried + self.granted + measure.max_rounds

    @property
    def beside(self) -> tuple[Record, ...]:
        """This one, then its twin or rivals: all that one round holds."""
        return (self, *self.rivals) if self.twin is None else (self, self.twin)

    @property
    def plain_arms(self) -> dict[str, ArmEvidence]:
        """The plain arms, its own or those that it shares."""
        arms = (self.plain_of or self).arms
        return {name: arms[name] for name in (PLAIN, AGAIN) if name in arms}

    def floor(self, k: int) -> float:
        """Noise between the paths, from the outputs of the parity pass; see ``floor_between``."""
        plain, arm = self.arms.get(PLAIN), self.arms.get(arm_name(k))
        if plain is None or arm is None:
            return 0.0
        return floor_between(plain.generation, arm.generation)

    def alone_of(self, inputs: Inputs) -> tuple[OptionRun, ...]:
        """The runs of the options that these inputs try alone, k by k."""
        keys = ((o, v, k) for k in inputs.num_draft_tokens for o, v in inputs.alone.items())
        return tuple(self.alone[key] for key in keys if key in self.alone)

    def turns_of(self, inputs: Inputs) -> dict[str, TurnRun]:
        """Arm -> its second turn, as far as these inputs ask for it."""
        names = [PLAIN, *map(arm_name, inputs.num_draft_tokens)]
        keys = ((name, inputs.follow_up) for name in names)
        return {key[0]: self.turns[key] for key in keys if key in self.turns}

    def further_of(self, inputs: Inputs) -> dict[str, tuple[Generation, ...]]:
        """Arm -> its outputs with other seeds, as far as these inputs ask for them."""
        names = [PLAIN, *map(arm_name, inputs.num_draft_tokens)]
        kept = inputs.samples - 1
        return {n: tuple(self.further[n][:kept]) for n in names if n in self.further}

    def case(self, names: Collection[str] | None = None) -> CaseEvidence:
        """What is known of these arms, their trials paired; of all arms by default, as they are."""
        wanted = [PLAIN, AGAIN, *(arm_name(k) for k in sorted(self.wanted))]
        order = [name for name in wanted if names is None or name in names]
        errors = [self.errors[name] for name in order if name in self.errors]
        known = {**self.plain_arms, **self.arms}
        arms = {name: known[name] for name in order if name in known}
        if names is not None:
            arms = in_step(arms)
        error = errors[0] if errors else None
        late = any(name in self.errors for name in arms)
        draws: dict[tuple[str, int], list[Generation]] = {}
        for key in sorted(key for key in self.draws if key[0] in order):
            draws.setdefault((key[0], key[2]), []).append(self.draws[key])
        return CaseEvidence(
            self.prompt,
            self.tokens,
            arms,
            error,
            self.mode,
            late,
            draws={key: tuple(drawn) for key, drawn in draws.items()},
            laws={name: law for name, law in self.laws.items() if name in order},
            not_drawn=next((self.not_drawn[n] for n in order if n in self.not_drawn), None),
            choices=self.choices,
        )


def key_of(prompt: Prompt) -> CaseKey:
    return prompt.id, prompt.text, budget_of(prompt)


def budget_of(prompt: Prompt) -> int:
    if prompt.max_tokens is None:
        raise ValueError(f"prompt {prompt.id!r} has no max_tokens: resolve the inputs first")
    return prompt.max_tokens


_VALUES: Mapping[str, Spec] = {
    "tokens": integer(0),
    "from_draft": boolean(),
    "token_times_s": number(),
}


def malformed(generation: object) -> str | None:
    """What a generation lacks to be measured by, whoever made it."""
    if not isinstance(generation, Generation):
        return f"it gave {found(generation)} where a Generation is due"
    for name, spec in _VALUES.items():
        values = getattr(generation, name)
        if not isinstance(values, tuple | list):
            return f"{name} must be a tuple, found {found(values)}"
        try:
            for value in values:
                spec.check(value)
        except Invalid as error:
            return f"{name} {error}"
    try:
        number().check(generation.e2e_s)
    except Invalid as error:
        return f"e2e_s {error}"
    if not isinstance(generation.text, str):
        return f"text must be text, found {found(generation.text)}"
    try:
        optional(integer(0)).check(generation.peak_memory_bytes)
        for size in generation.kv_bytes if generation.kv_bytes is not None else (0, 0):
            integer(0).check(size)
    except (Invalid, TypeError) as error:
        return f"peak_memory_bytes and kv_bytes are counts of bytes, or None: {error}"
    if generation.kv_bytes is not None and len(generation.kv_bytes) != 2:
        return "kv_bytes are two counts, the target's and the draft's"
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


def malformed_scores(scores: object, tokens: int) -> str | None:
    """What the teacher-forced pass over so many tokens lacks to judge by."""
    if not isinstance(scores, Scores):
        return f"it gave {found(scores)} where Scores are due"
    for name in ("logprobs", "gaps", "margins", "ulps"):
        values = getattr(scores, name)
        if not isinstance(values, tuple | list) or len(values) != tokens:
            return f"{name} must be a tuple of {tokens} numbers, found {found(values)}"
        for value in values:
            if not isinstance(value, int | float) or isinstance(value, bool) or isnan(value):
                return f"{name} must be numbers, found {found(value)}"
    return None


def malformed_choices(choices: object, tokens: int) -> str | None:
    """What the choices of a draft in place of so many tokens lack to be compared with them."""
    if not isinstance(choices, tuple | list) or len(choices) != tokens:
        return f"the draft's choices must be a tuple of {tokens} ids, found {found(choices)}"
    try:
        for token in choices:
            integer(0).check(token)
    except Invalid as error:
        return f"the draft's choices {error}"
    return None


def malformed_law(law: object, tokens: int, ratios: int) -> str | None:
    """What the law of so many tokens, and so many other temperatures, lacks to judge by."""
    if not isinstance(law, SampledScores):
        return f"it gave {found(law)} where SampledScores are due"
    columns = {name: getattr(law, name) for name in ("logprobs", "ulps", "drawn", "outside")}
    if not isinstance(law.tempered, tuple | list) or len(law.tempered) != ratios:
        return f"tempered must be a tuple of {ratios} tuples, found {found(law.tempered)}"
    columns.update((f"tempered[{number}]", row) for number, row in enumerate(law.tempered))
    for name, values in columns.items():
        if not isinstance(values, tuple | list) or len(values) != tokens:
            return f"{name} must be a tuple of {tokens} numbers, found {found(values)}"
        for value in values:
            if not isinstance(value, int | float) or isinstance(value, bool) or isnan(value):
                return f"{name} must be numbers, found {found(value)}"
    return None


def malformed_prompt(tokens: object) -> str | None:
    """Why these are no ids of a prompt."""
    if not isinstance(tokens, tuple | list) or not tokens:
        return f"it gave {found(tokens)} where the ids of a prompt are due"
    try:
        for token in tokens:
            integer(0).check(token)
    except Invalid as error:
        return f"the ids of a prompt {error}"
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


def unsound(timed: Generation, prompt_tokens: int, number: int) -> str | None:
    """What the cache ledger of a timed run says, where it does not balance."""
    broken = broken_ledger(timed, prompt_tokens)
    return f"{pass_name(number)}: {broken}" if broken else None


def pass_name(number: int) -> str:
    """A timed round by its number; what is thrown away has none."""
    return f"round {number}" if number else "a further warm-up pass"

"""What was measured: plain values that gates judge and reports show."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..config.plan import Decoding, Inputs, ParityMode, Prompt
from ..engines.base import EngineInfo, Generation, PairInfo, SampledScores
from ..preflight import Preflight
from ..stats import NoiseFloor, Paired, noise_floor
from .blocks import Blocks, joined
from .diagnosis import Check, Diagnosis
from .further import OptionRun, TurnRun, first_difference
from .trial import Trial

if TYPE_CHECKING:
    from ..baseline import Reference
    from .forecast import Forecast
    from .fresh import FreshPeak
    from .replay import Missed

Side = Literal["here", "there"]
"""This environment, or the other one that is measured beside it."""

PLAIN = "plain"
AGAIN = "plain again"


def arm_name(num_draft_tokens: int | None) -> str:
    """``plain``, or ``k=3``."""
    return PLAIN if num_draft_tokens is None else f"k={num_draft_tokens}"


@dataclass(frozen=True, slots=True)
class ArmEvidence:
    """One path of one prompt: the output of the parity pass, its blocks, and the timed trials.

    Attributes:
        num_draft_tokens: k, or None for the plain path.
        generation: of the parity pass; its times do not count.
        blocks: None on the plain path.
        drafted: the draft model was really called; None where the engine cannot see it.
        broken: an invariant of the block counts that does not hold, in words.
        unstable: a timed round whose output was not the parity pass's, in words.
        check: the teacher-forced check, where outputs are compared by it alone.
        diagnosis: what was run again, where the output differs.
    """

    num_draft_tokens: int | None
    generation: Generation
    blocks: Blocks | None = None
    drafted: bool | None = None
    broken: str | None = None
    unstable: str | None = None
    trials: tuple[Trial, ...] = ()
    check: Check | None = None
    diagnosis: Diagnosis | None = None

    @property
    def only_ties(self) -> bool:
        """Every token is the target's choice, or within rounding of it."""
        check = self.check or (self.diagnosis.check if self.diagnosis else None)
        return check is not None and not check.wide

    @property
    def accepted(self) -> tuple[int, int] | None:
        """(fewest, most) accepted tokens of any run; None on the plain path."""
        if self.blocks is None:
            return None
        counts = [
            self.blocks.accepted,
            *(t.accepted for t in self.trials if t.accepted is not None),
        ]
        return min(counts), max(counts)


@dataclass(frozen=True, slots=True)
class Parity:
    """Plain against speculative output of one prompt.

    ``first_difference`` is the index of the first output token that differs (an output that ends
    early differs where it ends); None when the ids are equal.
    """

    num_draft_tokens: int
    tokens_equal: bool
    text_equal: bool
    first_difference: int | None

    @property
    def exact(self) -> bool:
        """Ids and text are equal, nothing normalised."""
        return self.tokens_equal and self.text_equal


def compare(plain: Generation, speculative: Generation, num_draft_tokens: int) -> Parity:
    """Parity of two outputs."""
    first = first_difference(plain.tokens, speculative.tokens)
    return Parity(num_draft_tokens, first is None, plain.text == speculative.text, first)


def in_step(arms: Mapping[str, ArmEvidence]) -> dict[str, ArmEvidence]:
    """One speculative arm beside the plain one, in the rounds alone that both were part of.

    An arm that was decided early missed the rest. Several arms stay as they are.
    """
    if sum(arm.num_draft_tokens is not None for arm in arms.values()) != 1:
        return dict(arms)
    common = set.intersection(*({trial.round for trial in arm.trials} for arm in arms.values()))
    return {
        name: replace(arm, trials=tuple(t for t in arm.trials if t.round in common))
        for name, arm in arms.items()
    }


@dataclass(frozen=True, slots=True)
class CaseEvidence:
    """One prompt with its arms, ``plain`` and ``k=N``.

    ``error`` says why an arm that was asked for is not there, or could not be timed, which is then
    ``broke_in_round``: parity was judged before, so no other gate tells it. ``mode`` is how outputs
    are compared. In mode ``scored`` the plain arm is there only where it was timed. ``alone`` are
    options tried one at a time, ``turns`` the second turn of each arm, and ``further`` its outputs
    with other seeds, where a gate asked for them; ``broke_in_sample`` says why one of those is not
    there. ``choices`` are the draft's own in place of each token of the plain output, in a scan.
    ``draws`` are outputs drawn with many seeds, in the order of these, by (arm, most tokens; 0
    for the prompt's budget); ``laws`` say by which law the target would have drawn an arm's first
    whole sample; ``not_drawn`` why a part of either is not there.
    """

    prompt: Prompt
    tokens: tuple[int, ...] = ()
    arms: Mapping[str, ArmEvidence] = field(default_factory=dict)
    error: str | None = None
    mode: ParityMode = "exact"
    broke_in_round: bool = False
    alone: tuple[OptionRun, ...] = ()
    turns: Mapping[str, TurnRun] = field(default_factory=dict)
    choices: tuple[int, ...] | None = None
    further: Mapping[str, tuple[Generation, ...]] = field(default_factory=dict)
    broke_in_sample: str | None = None
    draws: Mapping[tuple[str, int], tuple[Generation, ...]] = field(default_factory=dict)
    laws: Mapping[str, SampledScores] = field(default_factory=dict)
    not_drawn: str | None = None

    @property
    def plain(self) -> ArmEvidence:
        """The plain arm."""
        return self.arms[PLAIN]

    @property
    def speculative(self) -> tuple[ArmEvidence, ...]:
        """The speculative arms, k rising."""
        return tuple(arm for arm in self.arms.values() if arm.num_draft_tokens is not None)

    def cut_to(self, names: Collection[str]) -> CaseEvidence:
        """The same with these arms alone."""
        return replace(
            self,
            arms=in_step({name: arm for name, arm in self.arms.items() if name in names}),
            alone=tuple(run for run in self.alone if arm_name(run.num_draft_tokens) in names),
            turns={name: run for name, run in self.turns.items() if name in names},
            further={name: runs for name, runs in self.further.items() if name in names},
            draws={key: drawn for key, drawn in self.draws.items() if key[0] in names},
            laws={name: law for name, law in self.laws.items() if name in names},
        )

    def pairs(self) -> list[dict[str, Generation]]:
        """Arm -> output, sample by sample: those of the parity pass, then those of further seeds.

        As many as every arm has; the second plain arm of --spec-noise is none of them.
        """
        arms = {name: arm for name, arm in self.arms.items() if name != AGAIN}
        columns = [[arm.generation, *self.further.get(name, ())] for name, arm in arms.items()]
        return [dict(zip(arms, row, strict=True)) for row in zip(*columns, strict=False)]

    def parity(self) -> tuple[Parity, ...]:
        """One comparison a speculative arm; none without a plain output."""
        if PLAIN not in self.arms:
            return ()
        return tuple(
            compare(self.plain.generation, arm.generation, arm.num_draft_tokens)
            for arm in self.speculative
            if arm.num_draft_tokens is not None
        )

    def sound_arm(self, arm: ArmEvidence, *, sampled: bool) -> bool:
        """Fit to be timed: it drafted, its invariants hold and, when greedy, it equals plain."""
        if arm.broken or arm.unstable or arm.drafted is False:
            return False
        if arm.num_draft_tokens is None:
            return True
        if self.mode != "exact" and arm.only_ties:
            return True
        if sampled:
            return self.mode != "scored"
        return (
            PLAIN in self.arms
            and compare(self.plain.generation, arm.generation, arm.num_draft_tokens).exact
        )

    def sound(self, *, sampled: bool) -> bool:
        """Generated, and every arm is sound."""
        return not self.error and all(
            self.sound_arm(arm, sampled=sampled) for arm in self.arms.values()
        )


@dataclass(frozen=True, slots=True)
class Against:
    """The same prompts in the same rounds, under another interpreter.

    Attributes:
        name: of the other environment, as the user gave it.
        cases: as those of the evidence.
        engine: its versions and device; None before it was loaded.
        pair: the models as it loaded them.
        facts: the recorded environment of this session.
    """

    name: str
    cases: tuple[CaseEvidence, ...]
    engine: EngineInfo | None
    pair: PairInfo | None
    facts: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Evidence:
    """What the gates of one plan, marker or call may judge.

    Attributes:
        cases: one a prompt, in the order of the prompt set.
        sampled: temperature > 0, so outputs need not be equal.
        preflight: what was found before anything was generated; None where it was not asked.
        swap_growth_bytes: swap used after the last round less that before the first.
        unmeasured: why something that was asked for is not there: others at work on the machine, or
            a time budget that is used up.
        reference: the stored session that this one is judged against; None where none was named.
        inputs: what it was measured with.
        against: the other environment, where two are measured side by side.
        carried: rounds that an earlier session has run, whose undecided sample is continued.
        forecast: what a prediction is made from, after a sweep.
        rivals: that of each further draft of a sweep, beside the same plain arm.
        fresh_peak: peak memory seen again in a process of its own, where a gate asked for it.
        missed: the tokens that the draft misses most, in a scan.
    """

    cases: tuple[CaseEvidence, ...]
    decoding: Decoding
    pair: PairInfo | None = None
    engine: EngineInfo | None = None
    swap_growth_bytes: int | None = None
    preflight: Preflight | None = None
    unmeasured: str | None = None
    carried: int = 0
    reference: Reference | None = None
    inputs: Inputs | None = None
    against: Against | None = None
    fresh_peak: FreshPeak | None = None
    rivals: tuple[Evidence, ...] = ()
    forecast: Forecast | None = None
    missed: tuple[Missed, ...] = ()

    @property
    def sampled(self) -> bool:
        """Outputs are drawn, not greedy."""
        return self.decoding.temperature > 0

    @cached_property
    def usable(self) -> tuple[CaseEvidence, ...]:
        """Cases that generated and, when greedy, whose every arm equals the plain output."""
        return tuple(case for case in self.cases if case.sound(sampled=self.sampled))

    @cached_property
    def timed(self) -> tuple[CaseEvidence, ...]:
        """Usable cases with a trial at least on every arm."""
        return tuple(
            case
            for case in self.usable
            if PLAIN in case.arms
            and case.speculative
            and all(arm.trials for arm in (case.plain, *case.speculative))
        )

    @cached_property
    def rounds(self) -> int:
        """Rounds that every arm of every timed case was part of."""
        counts = (len(arm.trials) for case in self.timed for arm in (case.plain, *case.speculative))
        return min(counts, default=0)

    def for_arm(self, num_draft_tokens: int) -> Evidence:
        """The same, cut to the plain arm and one number of draft tokens."""
        keep = (PLAIN, AGAIN, arm_name(num_draft_tokens))
        cases = (case.cut_to(keep) for case in self.cases)
        return replace(self, cases=tuple(cases))

    @cached_property
    def num_draft_tokens(self) -> tuple[int, ...]:
        """Every k that was measured."""
        arms = (arm for case in self.cases for arm in case.speculative)
        return tuple(sorted({arm.num_draft_tokens for arm in arms if arm.num_draft_tokens}))

    def _one_arm(self) -> None:
        if len(self.num_draft_tokens) > 1:
            raise ValueError(
                f"figures of k = {', '.join(map(str, self.num_draft_tokens))} do not mix: "
                "cut the evidence with for_arm(k) first"
            )

    @cached_property
    def blocks(self) -> Blocks:
        """All speculative blocks of all cases.

        Raises:
            ValueError: more than one k was measured.
        """
        return self._blocks(self.cases)

    @cached_property
    def usable_blocks(self) -> Blocks:
        """The blocks of the usable cases alone.

        Raises:
            ValueError: more than one k was measured.
        """
        return self._blocks(self.usable)

    def _blocks(self, cases: tuple[CaseEvidence, ...]) -> Blocks:
        self._one_arm()
        return joined(arm.blocks for case in cases for arm in case.speculative)

    @property
    def drafted(self) -> bool:
        """The draft model took part; where the engine cannot see calls, its tokens must show."""
        arms = [arm for case in self.cases if not case.error for arm in case.speculative]
        seen = [arm.drafted for arm in arms if arm.drafted is not None]
        return any(seen) if seen else any(any(arm.generation.from_draft) for arm in arms)

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / proposed over all cases."""
        return self.blocks.acceptance_rate

    @property
    def draft_share(self) -> float | None:
        """accepted / emitted over all cases."""
        return self.blocks.draft_share

    @property
    def exact(self) -> bool:
        """Every case generated, and every arm equals the plain output."""
        return bool(self.cases) and all(
            not case.error and all(parity.exact for parity in case.parity()) for case in self.cases
        )

    def costs(self) -> dict[str, list[tuple[float, float]]]:
        """prompt id -> (plain, speculative) e2e seconds of each round.

        Sampled outputs differ in length, so there they are seconds a token.

        Raises:
            ValueError: more than one k was measured.
        """
        self._one_arm()

        def cost(trial: Trial) -> float:
            return trial.seconds_per_token if self.sampled else trial.e2e_s

        return {
            case.prompt.id: [
                (cost(p), cost(s)) for p, s in zip(case.plain.trials, arm.trials, strict=True)
            ]
            for case in self.timed
            for arm in case.speculative
        }

    def ratios(self) -> dict[str, list[float]]:
        """prompt id -> plain / speculative of each round, as in ``costs``; above 1 the draft pays.

        Raises:
            ValueError: more than one k was measured.
        """
        return {name: [plain / ours for plain, ours in row] for name, row in self.costs().items()}

    def paired(self) -> Paired:
        """The complete rounds of ``costs``.

        Raises:
            ValueError: more than one k was measured.
        """
        return Paired([row[: self.rounds] for row in self.costs().values()])

    def noise(self, most_rounds: int) -> NoiseFloor | None:
        """The machine's own noise floor, from two plain arms; None where only one was timed.

        Args:
            most_rounds: that are run, for the smallest effect that can be decided.
        """
        rows = [
            (case.plain.trials, case.arms[AGAIN].trials)
            for case in self.timed
            if AGAIN in case.arms
        ]
        rounds = min((len(trials) for row in rows for trials in row), default=0)
        if rounds < 3:
            return None
        first, second = (
            [[trial.e2e_s for trial in row[side][:rounds]] for row in rows] for side in (0, 1)
        )
        return noise_floor(first, second, max(most_rounds, rounds))

    @property
    def speedup(self) -> float | None:
        """Median plain / speculative e2e of all paired trials; None before timed rounds.

        Raises:
            ValueError: more than one k was measured.
        """
        ratios = [ratio for of_prompt in self.ratios().values() for ratio in of_prompt]
        return statistics.median(ratios) if ratios else None

"""The session's one store of evidence: what was generated once is not generated again."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from .. import preflight
from ..config.plan import MAX_DRAFT_TOKENS, Inputs, Measure, ParityMode, Prompt
from ..engines.base import Engine, EngineError, EngineInfo, Generation, Pair, Scores, Tick
from ..preflight import Preflight
from .blocks import broken_invariant, count_blocks
from .diagnosis import Diagnosis, cache_drift, check_of, floor_of, floor_without_plain
from .evidence import (
    PLAIN,
    ArmEvidence,
    CaseEvidence,
    Evidence,
    Trial,
    arm_name,
    compare,
    trial_of,
)
from .machine import swap_used_bytes

Result = TypeVar("Result")
CaseKey = tuple[str, str, int]
Wants = Callable[[Evidence], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """Where the measurement stands, for progress.

    Attributes:
        prompt: id of the prompt.
        arm: ``plain`` or ``k=N``.
        round: 0 in the warm-up pass, which is the parity pass.
        rounds: the least that will be run.
        remaining_s: estimate for everything still planned; None before the first trial.
    """

    prompt: str
    arm: str
    round: int
    rounds: int
    remaining_s: float | None


class Watcher(Protocol):
    """Told of what happens, between trials, so that watching costs the trials nothing."""

    def running(self) -> AbstractContextManager[None]: ...
    def loading(self, inputs: Inputs) -> None: ...
    def trial_started(self, step: Step) -> Tick | None: ...
    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None: ...
    def prompt_finished(self, prompt: Prompt, remaining_s: float | None) -> None: ...


@dataclass
class _Record:
    """One prompt with its budget: what was asked of it and what is known."""

    prompt: Prompt
    mode: ParityMode
    wanted: dict[int, int] = field(default_factory=dict)  # k -> least rounds, 0 for parity alone
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


class Campaign:
    """Everything measured with one pair and one set of decoding options.

    Prompts register first, so that one round serves every gate: the plain arm is shared by all k.
    """

    def __init__(self, inputs: Inputs, store: Store) -> None:
        self._inputs = inputs
        self._store = store
        self._records: dict[CaseKey, _Record] = {}
        self._checked: tuple[int, Preflight] | None = None
        self._spent: dict[bool, list[float]] = {False: [], True: []}

    def register(self, inputs: Inputs, *, rounds: int) -> None:
        """Say what will be asked for, before anything is generated; 0 rounds for parity alone."""
        for prompt in inputs.prompts:
            record = self._records.setdefault(_key(prompt), _Record(prompt, inputs.parity))
            for k in inputs.num_draft_tokens:
                record.wanted[k] = max(record.wanted.get(k, 0), rounds)

    @property
    def prompts(self) -> int:
        """Prompts registered."""
        return len(self._records)

    @property
    def num_draft_tokens(self) -> tuple[int, ...]:
        """Every k that was asked for."""
        return tuple(sorted({k for record in self._records.values() for k in record.wanted}))

    def cases(self) -> tuple[CaseEvidence, ...]:
        """All that was generated, every arm, in the order of registration."""
        return tuple(r.case() for r in self._records.values() if r.arms or r.errors)

    def planned_trials(self, measure: Measure) -> tuple[int, int]:
        """(least, most) trials that the registered prompts will take, warm-up included."""
        arms = sum(len(record.wanted) + 1 for record in self._records.values())
        timed = sum(
            1 + sum(rounds > 0 for rounds in record.wanted.values())
            for record in self._records.values()
            if record.least_rounds
        )
        extra = measure.warmup - 1
        return (
            arms + timed * (measure.min_rounds + extra),
            arms + timed * (measure.max_rounds + extra),
        )

    def preflight_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with the findings of the pre-flight check, nothing generated."""
        self.register(inputs, rounds=0)
        try:
            self._preflight(self._store.pair(self._inputs))
        except EngineError as error:
            for prompt in inputs.prompts:
                self._records[_key(prompt)].errors.setdefault(PLAIN, str(error))
        return self.evidence(inputs)

    def _preflight(self, pair: Pair) -> Preflight | None:
        """Checked once for all prompts registered by then, and again when more came."""
        if not self._store.preflight:
            return None
        if self._checked is not None and self._checked[0] == len(self._records):
            return self._checked[1]
        tokens = {}
        for record in self._records.values():
            if not record.tokens and PLAIN not in record.errors:
                try:
                    record.tokens = self._encoded(pair, record)
                except EngineError as error:
                    record.errors[PLAIN] = str(error)
            tokens[record.prompt.id] = record.tokens
        wanted = {k for record in self._records.values() for k in record.wanted}
        inputs = replace(
            self._inputs,
            prompts=tuple(record.prompt for record in self._records.values()),
            num_draft_tokens=tuple(sorted(wanted)),
        )
        found = preflight.run(pair, inputs, tokens, self._store.engine_info)
        self._checked = (len(self._records), found)
        return found

    def _encoded(self, pair: Pair, record: _Record) -> tuple[int, ...]:
        return self._store.guarded(
            self._inputs,
            lambda: pair.encode(record.prompt.text, self._inputs.chat_template_args),
        )

    def parity_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with one observed output an arm for each prompt of inputs."""
        self.register(inputs, rounds=0)
        for prompt in inputs.prompts:
            self._observe(self._records[_key(prompt)])
        return self.evidence(inputs)

    def rounds(self, inputs: Inputs, measure: Measure, wants: Wants) -> Evidence:
        """Evidence with timed rounds: the minimum, then more while ``wants`` says so."""
        self.register(inputs, rounds=measure.min_rounds)
        timed = [record for record in self._records.values() if record.least_rounds]
        for record in timed:
            self._observe(record)
        asked = [self._records[_key(prompt)] for prompt in inputs.prompts]
        for record in timed:
            for _ in range(0 if record.warmed else measure.warmup - 1):
                self._round([record], 0)
            record.warmed = True
        while alive := [record for record in asked if self._timed_arms(record)]:
            done = min(record.rounds for record in alive)
            if done >= measure.max_rounds:
                break
            if done >= measure.min_rounds and not wants(self.evidence(inputs)):
                break
            behind = [r for r in timed if self._timed_arms(r) and r.rounds <= done]
            self._round(behind, done + 1)
        return self.evidence(inputs)

    def evidence(self, inputs: Inputs) -> Evidence:
        """What is known of these prompts and numbers of draft tokens now, generating nothing."""
        keep = {PLAIN, *map(arm_name, inputs.num_draft_tokens)}
        cases = []
        for prompt in inputs.prompts:
            record = self._records.get(_key(prompt))
            if record is not None and (record.arms or record.errors):
                cases.append(replace(record.case(keep), prompt=prompt))
        return Evidence(
            cases=tuple(cases),
            decoding=inputs.decoding,
            pair=self._store.pair_info(self._inputs),
            engine=self._store.engine_info,
            swap_growth_bytes=self._store.swap_growth(),
            preflight=self._checked[1] if self._checked else None,
        )

    def _observe(self, record: _Record) -> None:
        """The warm-up pass of one prompt: the arms that are wanted and not there yet."""
        names: dict[str, int | None] = {arm_name(k): k for k in sorted(record.wanted)}
        if record.mode != "scored" or record.least_rounds:
            names = {PLAIN: None, **names}
        missing = {
            n: k for n, k in names.items() if n not in record.arms and n not in record.errors
        }
        if not missing or PLAIN in record.errors:
            return
        if record.rounds:  # an arm that comes late is paired in rounds of its own
            record.arms = {name: replace(arm, trials=()) for name, arm in record.arms.items()}
        for name, k in missing.items():
            try:
                pair = self._store.pair(self._inputs)
                found = self._preflight(pair)
                if found is not None and (problem := found.error(record.prompt.id)):
                    raise EngineError(problem)
                record.tokens = record.tokens or self._encoded(pair, record)
                generation = self._generate(pair, record, k, 0, observe=True)
                arm = self._arm(generation, k, record.prompt, len(record.tokens))
                record.arms[name] = self._explained(pair, record, arm)
            except EngineError as error:
                where = "" if k is None else f"with the draft ({name}): "
                record.errors[name] = f"{where}{error}"
                if k is None:
                    return
        self._store.watcher.prompt_finished(record.prompt, self._remaining())

    def _arm(
        self, generation: Generation, k: int | None, prompt: Prompt, prompt_tokens: int
    ) -> ArmEvidence:
        if k is None:
            return ArmEvidence(None, generation)
        blocks = count_blocks(
            generation.from_draft,
            num_draft_tokens=k,
            max_tokens=_budget(prompt),
            finish_reason=generation.finish_reason,
        )
        drafted, broken = None, None
        if generation.calls is not None:
            drafted = any(call.model == "draft" for call in generation.calls)
            if drafted:
                broken = broken_invariant(
                    blocks, generation.calls, prompt_tokens, num_draft_tokens=k
                )
        return ArmEvidence(k, generation, blocks, drafted, broken)

    def _explained(self, pair: Pair, record: _Record, arm: ArmEvidence) -> ArmEvidence:
        """The arm with its teacher-forced check, or with the diagnosis of its difference."""
        k, sampled = arm.num_draft_tokens, self._inputs.decoding.temperature > 0
        if k is None:
            return arm
        if record.mode == "scored":
            scores = self._score(pair, record, arm.generation)
            if scores is None:
                raise EngineError(f"the engine {self._inputs.engine} cannot score: mode scored")
            floor = floor_without_plain(arm.generation, scores)
            return replace(arm, check=check_of(arm.generation, scores, floor, sampled=sampled))
        plain = record.arms[PLAIN].generation
        parity = compare(plain, arm.generation, k)
        if sampled or (parity.exact and not arm.broken):
            return arm
        differences = {k: parity.first_difference}
        for other in (0, 1, min(2 * k + 1, MAX_DRAFT_TOKENS)):
            if other not in differences:
                probe = self._generate(pair, record, other, 0)
                differences[other] = compare(plain, probe, other).first_difference
        accepted = [block.accepted for block in arm.blocks.blocks] if arm.blocks else []
        scores = self._score(pair, record, arm.generation)
        check = None
        if scores is not None:
            of_plain = self._score(pair, record, plain)
            floor = floor_of(plain, of_plain) if of_plain else 0.0
            check = check_of(arm.generation, scores, floor, sampled=False)
        return replace(
            arm,
            diagnosis=Diagnosis(
                plain_repeats=self._repeats(pair, record, None, plain),
                speculative_repeats=self._repeats(pair, record, k, arm.generation),
                zero_draft_equal=differences.pop(0) is None,
                differences=dict(sorted(differences.items())),
                drift=cache_drift(arm.generation.calls or (), accepted, len(record.tokens)),
                check=check,
            ),
        )

    def _repeats(self, pair: Pair, record: _Record, k: int | None, generation: Generation) -> bool:
        again = self._generate(pair, record, k, 0)
        return again.tokens == generation.tokens and again.text == generation.text

    def _score(self, pair: Pair, record: _Record, generation: Generation) -> Scores | None:
        return self._store.guarded(
            self._inputs,
            lambda: pair.score(record.tokens, generation.tokens, self._inputs.decoding),
        )

    def _round(self, records: list[_Record], number: int) -> None:
        """Every arm of every record once, back to back in shuffled order; 0 is thrown away."""
        shuffled = random.Random(f"{self._inputs.decoding.seed}:{number}")
        shuffled.shuffle(records := list(records))
        gc.collect()
        for record in records:
            names = self._timed_arms(record)
            shuffled.shuffle(names)
            if names:
                self._round_of(record, names, number)

    def _round_of(self, record: _Record, names: list[str], number: int) -> None:
        trials: dict[str, Trial] = {}
        for name in names:
            arm = record.arms[name]
            try:
                pair = self._store.pair(self._inputs)
                generation = self._generate(pair, record, arm.num_draft_tokens, number)
            except EngineError as error:
                record.errors[name] = f"{name}, round {number}: {error}"
                return
            problem = _unlike(generation, arm.generation, number)
            if problem and self._inputs.decoding.temperature == 0:
                record.arms[name] = replace(arm, unstable=arm.unstable or problem)
            trials[name] = trial_of(generation, number, arm.first_block)
            if number:
                self._store.watcher.trial_finished(trials[name], record.prompt, name)
        if number:
            # all arms at once, so that an interrupt leaves only whole rounds
            for name, trial in trials.items():
                arm = record.arms[name]
                record.arms[name] = replace(arm, trials=(*arm.trials, trial))

    def _generate(
        self, pair: Pair, record: _Record, k: int | None, number: int, *, observe: bool = False
    ) -> Generation:
        step = Step(record.prompt.id, arm_name(k), number, record.least_rounds, self._remaining())
        tick = self._store.watcher.trial_started(step)
        begin = time.perf_counter()
        generation = self._store.guarded(
            self._inputs,
            lambda: pair.generate(
                record.tokens,
                self._inputs.decoding,
                max_tokens=_budget(record.prompt),
                num_draft_tokens=k,
                observe=observe,
                tick=tick,
            ),
        )
        self._spent[k is not None].append(time.perf_counter() - begin)
        if problem := _malformed(generation):
            raise EngineError(f"the engine {self._inputs.engine}: {problem}")
        return generation

    def _timed_arms(self, record: _Record) -> list[str]:
        """The plain arm and every sound one that a timing gate wants; none without a draft's."""
        if PLAIN not in record.arms or PLAIN in record.errors:
            return []
        case, sampled = record.case(), self._inputs.decoding.temperature > 0
        names = [
            name
            for k, rounds in sorted(record.wanted.items())
            if rounds
            and (name := arm_name(k)) in record.arms
            and name not in record.errors
            and case.sound_arm(record.arms[name], sampled=sampled)
        ]
        plain_holds = case.sound_arm(record.arms[PLAIN], sampled=sampled)
        return [PLAIN, *names] if names and plain_holds else []

    def _remaining(self) -> float | None:
        """Seconds for all that is planned at least, from the mean cost of either path so far."""
        plain = self._spent[False]
        if not plain:
            return None
        mean = {
            speculative: sum(costs) / len(costs) if costs else sum(plain) / len(plain)
            for speculative, costs in self._spent.items()
        }
        total = 0.0
        for record in self._records.values():
            arms = [k for k in record.wanted if arm_name(k) not in record.arms]
            total += (PLAIN not in record.arms) * mean[False] + len(arms) * mean[True]
            if not record.least_rounds or (record.arms and not self._timed_arms(record)):
                continue
            timed = sum(rounds > 0 for rounds in record.wanted.values())
            rounds = max(0, record.least_rounds - record.rounds)
            total += rounds * (mean[False] + timed * mean[True])
        return total


def _key(prompt: Prompt) -> CaseKey:
    return prompt.id, prompt.text, _budget(prompt)


def _budget(prompt: Prompt) -> int:
    if prompt.max_tokens is None:
        raise ValueError(f"prompt {prompt.id!r} has no max_tokens: resolve the inputs first")
    return prompt.max_tokens


def _malformed(generation: Generation) -> str | None:
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


def _unlike(timed: Generation, observed: Generation, number: int) -> str | None:
    """How a timed run differs from the parity pass."""
    if timed.tokens == observed.tokens and timed.text == observed.text:
        return None
    first = next(
        (i for i, (a, b) in enumerate(zip(timed.tokens, observed.tokens, strict=False)) if a != b),
        min(len(timed.tokens), len(observed.tokens)),
    )
    where = f"round {number}" if number else "a further warm-up pass"
    return f"{where} differs from the parity pass at output token {first}"


class Store:
    """Campaigns by what they depend on, and the one pair that is loaded."""

    def __init__(
        self,
        engines: Mapping[str, Callable[[], Engine]],
        watcher: Watcher,
        prepare: Callable[[Inputs], None],
        *,
        preflight: bool = True,
    ) -> None:
        """Keep the parts; nothing is loaded yet.

        Args:
            engines: name -> factory.
            watcher: told of progress.
            prepare: called before a pair is loaded, to make what is missing on disk.
            preflight: check each pair before anything is generated with it.
        """
        self.watcher = watcher
        self.preflight = preflight
        self._factories = engines
        self._prepare = prepare
        self._engines: dict[str, Engine] = {}
        self._campaigns: dict[Any, Campaign] = {}
        self._loaded: tuple[Any, Pair] | None = None
        self._unloadable: dict[Any, EngineError] = {}
        self._infos: dict[Any, Any] = {}
        self._swap_before: int | None = None
        self.engine_info: EngineInfo | None = None

    def campaign(self, inputs: Inputs) -> Campaign:
        """The campaign that measures with this pair and these options."""
        decoding = replace(inputs.decoding, max_tokens=0)
        key = (*_pair_key(inputs), decoding, _frozen(inputs), inputs.parity)
        if key not in self._campaigns:
            self._campaigns[key] = Campaign(inputs, self)
        return self._campaigns[key]

    def fresh_campaign(self, inputs: Inputs) -> Campaign:
        """A campaign of its own that shares the loaded pair but no evidence."""
        return Campaign(inputs, self)

    def campaigns(self) -> Iterable[Campaign]:
        """All campaigns, in the order they were asked for."""
        return self._campaigns.values()

    def pair(self, inputs: Inputs) -> Pair:
        """The loaded pair; one at a time is kept.

        Raises:
            EngineError: it cannot be loaded; said once, then remembered.
        """
        key = _pair_key(inputs)
        if key in self._unloadable:
            raise self._unloadable[key]
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None
            gc.collect()
            if self._swap_before is None:
                self._swap_before = swap_used_bytes()
            self.watcher.loading(inputs)
            try:
                pair = self.guarded(inputs, lambda: self._load(inputs))
            except EngineError as error:
                self._unloadable[key] = error
                raise
            self._infos[key] = pair.info
            self._loaded = (key, pair)
        return self._loaded[1]

    def _load(self, inputs: Inputs) -> Pair:
        engine = self._engine(inputs.engine)
        self.engine_info = engine.describe()
        self._prepare(inputs)
        return engine.load(inputs)

    @staticmethod
    def guarded(inputs: Inputs, call: Callable[[], Result]) -> Result:
        """The result of an engine's method; whatever it raises becomes one clear sentence.

        Raises:
            EngineError: with the engine's own message.
        """
        try:
            return call()
        except EngineError:
            raise
        except Exception as error:
            message = " ".join(str(error).split())[:600]
            name = type(error).__name__
            raise EngineError(f"the engine {inputs.engine} broke: {name}: {message}") from error

    def pair_info(self, inputs: Inputs) -> Any:
        """What the pair is, once it was loaded."""
        return self._infos.get(_pair_key(inputs))

    def swap_growth(self) -> int | None:
        """Swap used now less that before the first pair was loaded."""
        now = swap_used_bytes()
        if now is None or self._swap_before is None:
            return None
        return now - self._swap_before

    def close(self) -> None:
        """End what engines have started outside this process."""
        for engine in self._engines.values():
            close = getattr(engine, "close", None)
            if close is not None:
                close()

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = self._factories[name]()
        return self._engines[name]


def _pair_key(inputs: Inputs) -> tuple[Any, ...]:
    return inputs.engine, inputs.target, inputs.draft, inputs.trust_remote_code


def _frozen(inputs: Inputs) -> str:
    return repr(sorted(inputs.chat_template_args.items()))


class Silent:
    """A watcher that shows nothing."""

    def running(self) -> AbstractContextManager[None]:
        """Nothing around a measurement."""
        return nullcontext()

    def loading(self, inputs: Inputs) -> None:
        """Nothing."""

    def trial_started(self, step: Step) -> Tick | None:
        """Nothing."""

    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None:
        """Nothing."""

    def prompt_finished(self, prompt: Prompt, remaining_s: float | None) -> None:
        """Nothing."""

"""Everything measured with one pair and one set of decoding options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..config.plan import Inputs, Measure
from ..engines.base import EngineError
from ..preflight import Preflight
from ..stats import NoiseFloor
from .drawn import draw, drawn_from, note_laws
from .evidence import AGAIN, PLAIN, Against, CaseEvidence, Evidence, Side, arm_name
from .forecast import Forecast, forecast
from .fresh import FreshPeak, fresh_peak
from .further import option_run, seed_of, turn_run, with_option
from .lock import Busy
from .observer import Observer, arm_of
from .record import CaseKey, Record, key_of
from .rounds import Rounds
from .runner import Runner
from .scan import missed, scan

if TYPE_CHECKING:
    from .store import Store

Wants = Callable[[Evidence], Collection[int]]
"""The numbers of draft tokens that another round is wanted of."""


class Campaign:
    """Everything measured with one pair and one set of decoding options.

    Prompts register first, so that one round serves every gate: the plain arm is shared by all k.
    """

    def __init__(self, inputs: Inputs, store: Store, *, alone: bool = False) -> None:
        """Nothing is generated yet.

        Args:
            inputs: the pair and its decoding options.
            store: that keeps the loaded pair.
            alone: shares no evidence, so an earlier session's sample does not count either.
        """
        self._inputs = inputs
        self._store = store
        # a sample is that of one draft
        self._samples = None if alone or inputs.rivals else store.samples
        self._records: dict[CaseKey, Record] = {}
        self._unmeasured: str | None = None
        self._forecasts: dict[Runner, Forecast] = {}
        self._fresh_peaks: dict[tuple[Side, int], FreshPeak] = {}
        self._began = False
        self._runner = Runner(inputs, store, self._remaining, store.pair)
        self._observer = Observer(inputs, store, self._runner, self._records, self._remaining)
        if store.against is not None:
            self._others = [Runner(inputs, store, self._remaining, store.other_pair)]
        else:
            rivals = inputs.each_draft[1:]
            self._others = [Runner(i, store, self._remaining, store.rival_pair) for i in rivals]
        self._rounds = Rounds(
            self._runner,
            self._others,
            store.watcher,
            store.budget,
            seed=inputs.decoding.seed,
            sampled=inputs.decoding.temperature > 0,
            crowded=lambda: bool(inputs.rivals) and store.crowded,
        )

    def register(self, inputs: Inputs, *, rounds: int) -> None:
        """Say what will be asked for, before anything is generated; 0 rounds for parity alone."""
        for prompt in inputs.prompts:
            record = self._records.setdefault(key_of(prompt), Record(prompt, inputs.parity))
            for k in inputs.num_draft_tokens:
                record.wanted[k] = max(record.wanted.get(k, 0), rounds)
            record.samples = max(record.samples, inputs.samples)
            if self._store.against is not None and record.twin is None:
                record.twin = Record(prompt, inputs.parity, record.wanted)
            if inputs.configured and not record.rivals:
                record.rivals = [
                    Record(prompt, inputs.parity, record.wanted, plain_of=record)
                    for _ in self._others
                    if self._store.against is None
                ]

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
        arms = sum(
            (len(record.wanted) + 1) * record.samples + len(record.wanted) * len(record.rivals)
            for record in self._records.values()
        )
        plain = 2 if self._store.noise else 1
        timed = sum(
            plain + sum(rounds > 0 for rounds in record.wanted.values()) * (1 + len(record.rivals))
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
            self._observer.preflight(self._runner.pair)
        except EngineError as error:
            for prompt in inputs.prompts:
                self._records[key_of(prompt)].errors.setdefault(PLAIN, str(error))
        return self.evidence(inputs)

    def parity_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with one observed output an arm for each prompt of inputs."""
        self.register(inputs, rounds=0)
        for prompt in inputs.prompts:
            self._observe(self._records[key_of(prompt)])
        return self.evidence(inputs)

    def options_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with each option of ``inputs.alone`` tried by itself, on both paths."""
        self.parity_pass(inputs)
        for record in self._generated(inputs):
            first = next(iter(record.arms.values())).generation.tokens[0]
            for k in inputs.num_draft_tokens:
                for option, value in inputs.alone.items():
                    if (option, value, k) in record.alone:
                        continue
                    decoding = with_option(inputs.decoding, option, value, first)
                    record.alone[option, value, k] = option_run(
                        partial(self._runner.generate, record, observe=True, decoding=decoding),
                        option,
                        value,
                        k,
                        floor=record.floor(k),
                    )
        return self.evidence(inputs)

    def reuse_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with a second turn of each arm, its prompt cache kept."""
        self.parity_pass(inputs)
        for record in self._generated(inputs):
            for k in (None, *inputs.num_draft_tokens):
                key = arm_name(k), inputs.follow_up
                if key not in record.turns:
                    record.turns[key] = turn_run(
                        partial(self._runner.second_turn, record, inputs.follow_up, k),
                        self._runner.score,
                        floor=max(map(record.floor, inputs.num_draft_tokens)),
                    )
        return self.evidence(inputs)

    def look_again(self, inputs: Inputs, side: Side) -> Evidence:
        """Evidence with the peak memory of a fresh process, of the prompt that took the most.

        Args:
            inputs: of one number of draft tokens, timed.
            side: this environment, or the other one.
        """
        (k,) = inputs.num_draft_tokens
        if (side, k) not in self._fresh_peaks:
            records = [self._records[key_of(prompt)] for prompt in inputs.prompts]
            sides = [twin for r in records if (twin := r if side == "here" else r.twin)]
            record = max(sides, key=lambda record: record.peak(k))
            make = self._store.afresh(side)
            self._fresh_peaks[side, k] = fresh_peak(make, self._inputs, record, k)
        return replace(self.evidence(inputs), fresh_peak=self._fresh_peaks[side, k])

    def scan_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with plain outputs and the draft's own choices, and one speculative output."""
        self.register(inputs, rounds=0)
        records = [self._records[key_of(prompt)] for prompt in inputs.prompts]

        def check() -> Preflight:
            return self._observer.preflight(self._runner.pair)

        self._unmeasured = scan(records, inputs, self._store, self._runner, check, arm_of)
        return replace(self.evidence(inputs), missed=missed(records, self._runner))

    def samples_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with ``inputs.samples`` outputs an arm, a seed each, as far as time allows."""
        self.parity_pass(inputs)
        for sample in range(2, inputs.samples + 1):
            for record in self._generated(inputs):
                if record.broke_in_sample:
                    continue
                seed = seed_of(inputs.decoding.seed, record.prompt.id, sample)
                decoding = replace(inputs.decoding, seed=seed)
                for k in (None, *inputs.num_draft_tokens):
                    known = record.further.setdefault(arm_name(k), [])
                    if len(known) >= sample - 1:
                        continue
                    if problem := self._store.budget.exceeded_by(self._runner.cost(k) or 0.0):
                        self._unmeasured = problem
                        return self.evidence(inputs)
                    try:
                        known.append(self._runner.generate(record, k, decoding=decoding))
                    except EngineError as error:
                        record.broke_in_sample = f"sample {sample}, {arm_name(k)}: {error}"
                        break
        return self.evidence(inputs)

    def distribution_pass(self, inputs: Inputs) -> Evidence:
        """Evidence with the outputs of ``inputs.draws``, and the target's law at tokens of some.

        Each arm has seeds of its own; the law is that of every arm's first whole output.
        """
        self.parity_pass(inputs)
        for wanted in inputs.draws:
            records = drawn_from(self._generated(inputs), wanted)
            problem = draw(records, wanted, inputs, self._runner.generate, self._store.budget)
            self._unmeasured = problem or self._unmeasured
        for record in self._generated(inputs):
            note_laws(record, inputs, self._runner.law)
        return self.evidence(inputs)

    def _observe(self, record: Record, other: Runner | None = None) -> None:
        """Once; see ``Observer.observe``."""
        self._unmeasured = self._observer.observe(record, other) or self._unmeasured

    def _generated(self, inputs: Inputs) -> list[Record]:
        records = (self._records[key_of(prompt)] for prompt in inputs.prompts)
        return [record for record in records if record.arms and not record.errors]

    def rounds(self, inputs: Inputs, measure: Measure, wants: Wants) -> Evidence:
        """Evidence with timed rounds: the least, then more of the arms that ``wants`` names."""
        self.register(inputs, rounds=measure.min_rounds)
        records = [record for record in self._records.values() if record.least_rounds]
        for record in records:
            self._observe(record)
            for runner, one in zip(self._others, record.beside[1:], strict=False):
                self._observe(one, runner)
        asked = [self._records[key_of(prompt)] for prompt in inputs.prompts]
        self._go_on_with_samples(records)
        try:
            with self._store.alone():
                stopped = self._rounds.run(
                    records,
                    asked,
                    inputs.num_draft_tokens,
                    measure,
                    lambda: wants(self.evidence(inputs)),
                )
                if inputs.configured and not stopped:
                    self._forecast(inputs)
        except Busy as busy:
            stopped = str(busy)
        self._unmeasured = stopped or self._unmeasured
        return self.evidence(inputs)

    def _forecast(self, inputs: Inputs) -> None:
        """Once, after the rounds of a sweep, for each draft."""
        evidence = self.evidence(inputs)
        for runner, one in zip(
            (self._runner, *self._others), (evidence, *evidence.rivals), strict=False
        ):
            if runner not in self._forecasts:
                self._forecasts[runner] = forecast(runner, one)

    def _go_on_with_samples(self, records: list[Record]) -> None:
        """Once, before anything is timed: what an undecided session before this one has timed."""
        if self._samples is not None and not self._began:
            timed = [(record, names) for record in records if (names := self._rounds.arms(record))]
            self._samples.take_over(timed, self._inputs, self._store.pair_info(self._inputs))
        self._began = True

    def keep_sample(self, *, undecided: bool) -> None:
        """For the next session: the trials of undecided gates; nothing once they are decided.

        Raises:
            OSError: it cannot be written.
        """
        records = [record for record in self._records.values() if record.rounds]
        if self._samples is None or not records:
            return
        info = self._store.pair_info(self._inputs)
        if undecided:
            self._samples.keep(records, self._inputs, info)
        else:
            self._samples.discard(self._inputs, info)

    def grant(self, inputs: Inputs, rounds: int) -> None:
        """An undecided gate is run again: so many rounds more, on top of its sample."""
        for prompt in inputs.prompts:
            self._records[key_of(prompt)].granted += rounds

    def forget(self, inputs: Inputs) -> None:
        """A failed gate is run again: these prompts are generated and timed afresh."""
        for prompt in inputs.prompts:
            record = self._records[key_of(prompt)]
            self._records[key_of(prompt)] = Record(prompt, record.mode, record.wanted)

    def trials(self, measure: Measure) -> tuple[int, int]:
        """(timed trials that this session has run, the most that it could have)."""
        records = [record for record in self._records.values() if record.rounds]
        ran = sum(
            sum(trial.round > record.carried_to for trial in arm.trials)
            for record in records
            for arm in record.arms.values()
        )
        most = sum(
            (record.most_of(measure) - record.carried)
            * sum(bool(arm.trials) for arm in record.arms.values())
            for record in records
        )
        return ran, most

    def most_rounds(self, inputs: Inputs, measure: Measure) -> int:
        """Rounds that these prompts may reach, an earlier sample and what was granted included."""
        records = (self._records.get(key_of(prompt)) for prompt in inputs.prompts)
        return max(
            (record.most_of(measure) for record in records if record), default=measure.max_rounds
        )

    def noise(self, measure: Measure) -> NoiseFloor | None:
        """The machine's noise floor, where the plain path was timed twice."""
        inputs = replace(
            self._inputs, prompts=tuple(record.prompt for record in self._records.values())
        )
        found = (
            self.evidence(replace(inputs, num_draft_tokens=(k,))).noise(measure.max_rounds)
            for k in self.num_draft_tokens
        )
        return next((floor for floor in found if floor is not None), None)

    def evidence(self, inputs: Inputs) -> Evidence:
        """What is known of these prompts and numbers of draft tokens now, generating nothing."""
        keep = {PLAIN, AGAIN, *map(arm_name, inputs.num_draft_tokens)}
        cases = []
        for prompt in inputs.prompts:
            record = self._records.get(key_of(prompt))
            if record is not None and (record.arms or record.errors):
                case = replace(
                    record.case(keep),
                    prompt=prompt,
                    alone=record.alone_of(inputs),
                    turns=record.turns_of(inputs),
                    further=record.further_of(inputs),
                    broke_in_sample=record.broke_in_sample if inputs.samples > 1 else None,
                )
                cases.append(case)
        return Evidence(
            cases=tuple(cases),
            decoding=inputs.decoding,
            pair=self._store.pair_info(self._inputs),
            engine=self._store.engine_info,
            swap_growth_bytes=self._store.swap_growth(),
            preflight=self._observer.checked,
            unmeasured=self._unmeasured,
            carried=self._carried(inputs),
            reference=self._store.reference,
            against=self._against(inputs, keep),
            rivals=self._rival_evidence(inputs, keep),
            forecast=self._forecasts.get(self._runner),
            inputs=inputs,
        )

    def _rival_evidence(self, inputs: Inputs, keep: set[str]) -> tuple[Evidence, ...]:
        """What each further draft of a sweep gave, beside the same plain arm."""
        found = []
        for number, one in enumerate(inputs.each_draft[1:] if inputs.configured else ()):
            records = (self._records.get(key_of(prompt)) for prompt in inputs.prompts)
            cases = tuple(
                record.rivals[number].case(keep)
                for record in records
                if record is not None and record.rivals and record.arms
            )
            info = self._store.pair_info(one)
            found.append(
                Evidence(
                    *(cases, inputs.decoding, info, self._store.engine_info),
                    inputs=one,
                    forecast=self._forecasts.get(self._others[number]),
                )
            )
        return tuple(found)

    def _against(self, inputs: Inputs, keep: set[str]) -> Against | None:
        """What the other environment gave for the same prompts."""
        other = self._store.against
        if other is None:
            return None
        twins = (r.twin for p in inputs.prompts if (r := self._records.get(key_of(p))))
        cases = tuple(twin.case(keep) for twin in twins if twin and (twin.arms or twin.errors))
        store = self._store
        return Against(other.name, cases, store.other_engine, store.other_info, store.facts)

    def _carried(self, inputs: Inputs) -> int:
        records = (self._records.get(key_of(prompt)) for prompt in inputs.prompts)
        return max((record.carried for record in records if record), default=0)

    def _remaining(self) -> float | None:
        """Seconds for all that is planned at least, from the mean cost of either path so far."""
        plain, speculative = self._runner.cost(None), self._runner.cost(0)
        scanned = any(record.choices is not None for record in self._records.values())
        if plain is None or speculative is None or scanned:
            return None
        total = 0.0
        for record in self._records.values():
            arms = [k for k in record.wanted if arm_name(k) not in record.arms]
            total += (PLAIN not in record.arms) * plain + len(arms) * speculative
            if not record.least_rounds or (record.arms and not self._rounds.arms(record)):
                continue
            timed = sum(rounds > 0 for rounds in record.wanted.values())
            rounds = max(0, record.least_rounds - record.rounds)
            total += rounds * (plain * (1 + self._store.noise) + timed * speculative)
        return total

"""Everything measured with one pair and one set of decoding options."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .. import preflight
from ..config.plan import Decoding, Inputs, Measure, Prompt
from ..engines.base import EngineError, Generation, KeepsCaches, Pair, Scores, Turns
from ..preflight import Preflight
from .blocks import Blocks, broken_invariant, broken_ledger, count_blocks
from .evidence import PLAIN, ArmEvidence, CaseEvidence, Evidence, Trial, arm_name, trial_of
from .further import option_run, turn_run, with_option
from .lock import Busy
from .record import (
    CaseKey,
    Record,
    budget_of,
    key_of,
    malformed,
    malformed_prompt,
    malformed_scores,
    pass_name,
    unlike,
    unsound,
)
from .rerun import Rerun
from .watch import Step

if TYPE_CHECKING:
    from .store import Store

Wants = Callable[[Evidence], bool]


class Campaign:
    """Everything measured with one pair and one set of decoding options.

    Prompts register first, so that one round serves every gate: the plain arm is shared by all k.
    """

    def __init__(self, inputs: Inputs, store: Store) -> None:
        self._inputs = inputs
        self._store = store
        self._records: dict[CaseKey, Record] = {}
        self._checked: tuple[int, Preflight] | None = None
        self._busy: str | None = None
        self._spent: dict[bool, list[float]] = {False: [], True: []}

    def register(self, inputs: Inputs, *, rounds: int) -> None:
        """Say what will be asked for, before anything is generated; 0 rounds for parity alone."""
        for prompt in inputs.prompts:
            record = self._records.setdefault(key_of(prompt), Record(prompt, inputs.parity))
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
                self._records[key_of(prompt)].errors.setdefault(PLAIN, str(error))
        return self.evidence(inputs)

    def _preflight(self, pair: Pair) -> Preflight:
        """Checked once for all prompts registered by then, and again when more came."""
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

    def _encoded(self, pair: Pair, record: Record) -> tuple[int, ...]:
        tokens = self._store.guarded(
            self._inputs,
            lambda: pair.encode(record.prompt.text, self._inputs.chat_template_args),
        )
        self._accept(malformed_prompt(tokens))
        return tokens

    def _accept(self, problem: str | None) -> None:
        """Refuse what an engine gave, where there is a problem with it."""
        if problem:
            raise EngineError(f"the engine {self._inputs.engine}: {problem}")

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
                        partial(self._with_decoding, record, decoding),
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
                    pair = self._store.pair(self._inputs)
                    record.turns[key] = turn_run(
                        partial(self._second_turn, pair, record, inputs.follow_up, k),
                        partial(self._score, pair),
                        floor=max(map(record.floor, inputs.num_draft_tokens)),
                    )
        return self.evidence(inputs)

    def _generated(self, inputs: Inputs) -> list[Record]:
        records = (self._records[key_of(prompt)] for prompt in inputs.prompts)
        return [record for record in records if record.arms and not record.errors]

    def _with_decoding(self, record: Record, decoding: Decoding, k: int | None) -> Generation:
        pair = self._store.pair(self._inputs)
        return self._generate(pair, record, k, 0, observe=True, decoding=decoding)

    def _score(self, pair: Pair, prompt: Sequence[int], generation: Generation) -> Scores | None:
        scores = self._store.guarded(
            self._inputs, lambda: pair.score(prompt, generation.tokens, self._inputs.decoding)
        )
        if scores is not None:
            self._accept(malformed_scores(scores, len(generation.tokens)))
        return scores

    def _second_turn(self, pair: Pair, record: Record, follow_up: str, k: int | None) -> Turns:
        inputs = self._inputs
        if not isinstance(pair, KeepsCaches):
            raise EngineError(f"the engine {inputs.engine} cannot keep a prompt cache")
        keeps: KeepsCaches = pair
        return self._store.guarded(
            inputs,
            lambda: keeps.second_turn(
                record.tokens,
                (record.prompt.text, follow_up),
                inputs.decoding,
                max_tokens=budget_of(record.prompt),
                num_draft_tokens=k,
                chat_template_args=inputs.chat_template_args,
            ),
        )

    def rounds(self, inputs: Inputs, measure: Measure, wants: Wants) -> Evidence:
        """Evidence with timed rounds: the minimum, then more while ``wants`` says so."""
        self.register(inputs, rounds=measure.min_rounds)
        timed = [record for record in self._records.values() if record.least_rounds]
        for record in timed:
            self._observe(record)
            self._pair_late_arms(record)
        try:
            with self._store.alone():
                self._timed(inputs, measure, wants, timed)
        except Busy as busy:
            self._busy = str(busy)
        return self.evidence(inputs)

    def _timed(self, inputs: Inputs, measure: Measure, wants: Wants, timed: list[Record]) -> None:
        asked = [self._records[key_of(prompt)] for prompt in inputs.prompts]
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

    def evidence(self, inputs: Inputs) -> Evidence:
        """What is known of these prompts and numbers of draft tokens now, generating nothing."""
        keep = {PLAIN, *map(arm_name, inputs.num_draft_tokens)}
        cases = []
        for prompt in inputs.prompts:
            record = self._records.get(key_of(prompt))
            if record is not None and (record.arms or record.errors):
                alone, turns = record.alone_of(inputs), record.turns_of(inputs)
                cases.append(replace(record.case(keep), prompt=prompt, alone=alone, turns=turns))
        return Evidence(
            cases=tuple(cases),
            decoding=inputs.decoding,
            pair=self._store.pair_info(self._inputs),
            engine=self._store.engine_info,
            swap_growth_bytes=self._store.swap_growth(),
            preflight=self._checked[1] if self._checked else None,
            busy=self._busy,
        )

    def _observe(self, record: Record) -> None:
        """The warm-up pass of one prompt: the arms that are wanted and not there yet."""
        names: dict[str, int | None] = {arm_name(k): k for k in sorted(record.wanted)}
        if record.mode != "scored" or record.least_rounds:
            names = {PLAIN: None, **names}
        missing = {
            n: k for n, k in names.items() if n not in record.arms and n not in record.errors
        }
        if not missing or PLAIN in record.errors:
            return
        for name, k in missing.items():
            try:
                pair = self._store.pair(self._inputs)
                if self._store.preflight:
                    found = self._preflight(pair)
                    if PLAIN in record.errors:
                        return
                    if problem := found.error(record.prompt.id):
                        raise EngineError(problem)
                record.tokens = record.tokens or self._encoded(pair, record)
                generation = self._generate(pair, record, k, 0, observe=True)
                arm = self._arm(generation, k, record.prompt, len(record.tokens))
                record.arms[name] = arm
                if k is not None:
                    record.arms[name] = self._rerun(pair, record).explained(
                        arm,
                        record.arms[PLAIN].generation if PLAIN in record.arms else None,
                        record.mode,
                        sampled=self._inputs.decoding.temperature > 0,
                    )
            except EngineError as error:
                where = "" if k is None else f"with the draft ({name}): "
                record.errors[name] = f"{where}{error}"
                if k is None:
                    return
        self._store.watcher.prompt_finished(record.prompt, self._remaining())

    def _pair_late_arms(self, record: Record) -> None:
        """An arm that is timed later than the others is paired with them in rounds anew."""
        if any(len(record.arms[name].trials) < record.rounds for name in self._timed_arms(record)):
            record.arms = {name: replace(arm, trials=()) for name, arm in record.arms.items()}

    def _arm(
        self, generation: Generation, k: int | None, prompt: Prompt, prompt_tokens: int
    ) -> ArmEvidence:
        blocks = _blocks_of(generation, k, prompt)
        if k is None or blocks is None:
            return ArmEvidence(None, generation)
        drafted, broken = None, None
        if generation.calls is not None:
            drafted = any(call.model == "draft" for call in generation.calls)
            if drafted:
                broken = broken_invariant(
                    blocks, generation.calls, prompt_tokens, num_draft_tokens=k
                )
        broken = broken or broken_ledger(generation, prompt_tokens)
        return ArmEvidence(k, generation, blocks, drafted, broken)

    def _rerun(self, pair: Pair, record: Record) -> Rerun:
        return Rerun(
            generate=lambda k: self._generate(pair, record, k, 0),
            score=partial(self._score, pair, record.tokens),
            prompt_tokens=len(record.tokens),
            again=record.again,
            stuck=lambda held, k: preflight.stuck(pair, held, k),
        )

    def _round(self, records: list[Record], number: int) -> None:
        """Every arm of every record once, back to back in shuffled order; 0 is thrown away."""
        shuffled = random.Random(f"{self._inputs.decoding.seed}:{number}")
        shuffled.shuffle(records := list(records))
        gc.collect()
        for record in records:
            names = self._timed_arms(record)
            shuffled.shuffle(names)
            if names:
                self._round_of(record, names, number)

    def _round_of(self, record: Record, names: list[str], number: int) -> None:
        trials: dict[str, Trial] = {}
        for name in names:
            arm = record.arms[name]
            try:
                pair = self._store.pair(self._inputs)
                generation = self._generate(pair, record, arm.num_draft_tokens, number)
            except EngineError as error:
                record.errors[name] = f"{name}, {pass_name(number)}: {error}"
                return
            blocks = _blocks_of(generation, arm.num_draft_tokens, record.prompt)
            problem = None
            if self._inputs.decoding.temperature == 0:
                problem = unlike(generation, arm.generation, number)
            problem = problem or unsound(generation, len(record.tokens), number)
            if problem:
                record.arms[name] = replace(arm, unstable=arm.unstable or problem)
            trials[name] = trial_of(generation, number, blocks)
            if number:
                self._store.watcher.trial_finished(trials[name], record.prompt, name)
        if number:
            # all arms at once, so that an interrupt leaves only whole rounds
            for name, trial in trials.items():
                arm = record.arms[name]
                record.arms[name] = replace(arm, trials=(*arm.trials, trial))

    def _generate(
        self,
        pair: Pair,
        record: Record,
        k: int | None,
        number: int,
        *,
        observe: bool = False,
        decoding: Decoding | None = None,
    ) -> Generation:
        step = Step(record.prompt.id, arm_name(k), number, record.least_rounds, self._remaining())
        tick = self._store.watcher.trial_started(step)
        begin = time.perf_counter()
        generation = self._store.guarded(
            self._inputs,
            lambda: pair.generate(
                record.tokens,
                decoding or self._inputs.decoding,
                max_tokens=budget_of(record.prompt),
                num_draft_tokens=k,
                observe=observe,
                tick=tick,
            ),
        )
        self._spent[k is not None].append(time.perf_counter() - begin)
        self._accept(malformed(generation))
        return generation

    def _timed_arms(self, record: Record) -> list[str]:
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


def _blocks_of(generation: Generation, k: int | None, prompt: Prompt) -> Blocks | None:
    """Blocks by the flags of a run; None on the plain path."""
    if k is None:
        return None
    return count_blocks(
        generation.from_draft,
        num_draft_tokens=k,
        max_tokens=budget_of(prompt),
        finish_reason=generation.finish_reason,
    )

"""Timed rounds: every arm of every prompt once, back to back, in shuffled order."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..config.plan import Measure
from ..engines.base import EngineError
from .blocks import blocks_of
from .evidence import PLAIN, arm_name
from .record import Record, budget_of, pass_name, unlike, unsound
from .trial import Trial, trial_of

if TYPE_CHECKING:
    from .budget import Budget
    from .runner import Runner
    from .watch import Watcher

Undecided = Callable[[], Collection[int]]


class Rounds:
    """Times records until nobody wants another round, the most is reached, or time is up."""

    def __init__(
        self,
        runner: Runner,
        others: Sequence[Runner],
        watcher: Watcher,
        budget: Budget,
        *,
        seed: int,
        sampled: bool,
        crowded: Callable[[], bool],
    ) -> None:
        """Nothing is run yet.

        Args:
            runner: of the pair.
            others: of the pair in the other environment, or of each further draft; in the order of
                ``Record.beside``.
            watcher: told of each trial.
            budget: of the session; a round that would not fit is not begun.
            seed: of the order in which prompts and arms are run.
            sampled: outputs are drawn, so they need not equal the parity pass's.
            crowded: not all drafts fit into memory, so the arms of one stay together in a round.
        """
        self._crowded = crowded
        self._runners = (runner, *others)
        self._watcher = watcher
        self._budget = budget
        self._seed = seed
        self._sampled = sampled
        self._stopped: str | None = None

    def run(
        self,
        records: Sequence[Record],
        asked: Sequence[Record],
        ks: Collection[int],
        measure: Measure,
        undecided: Undecided,
    ) -> str | None:
        """Time every record in step.

        Args:
            records: all that any gate wants timed.
            asked: those that this measurement is about.
            ks: numbers of draft tokens that it is about.
            measure: warm-up passes, least and most rounds of each prompt's arms.
            undecided: asked from the least on; the numbers of draft tokens to go on with.

        Returns:
            why it stopped before the gates were content, or None.
        """
        for record in records:
            for _ in range(0 if record.warmed else measure.warmup - 1):
                self._round([record], 0)
            record.warmed = True
        while alive := self._with_arms(asked, ks):
            wanted, among = None, records
            short = [r for r in alive if self._done([r], ks) < r.least_of(measure)]
            if short:
                done = self._done(short, ks)
            else:
                wanted = undecided()
                among = [
                    record
                    for record in self._with_arms(records, wanted)
                    if self._done([record], wanted) < record.most_of(measure)
                ]
                if not among:
                    return None
                done = self._done(among, wanted)
            self._stopped = None
            behind = [r for r in among if self.arms(r) and self._done([r], self._ks(r)) <= done]
            if not self._round(behind, 1 + max(r.last_round for r in behind), done, wanted):
                return self._stopped
        return None

    def _with_arms(self, records: Sequence[Record], ks: Collection[int]) -> list[Record]:
        names = {arm_name(k) for k in ks}
        return [record for record in records if names & {*self.arms(record)}]

    def _ks(self, record: Record) -> set[int]:
        ks = (record.arms[name].num_draft_tokens for name in self.arms(record))
        return {k for k in ks if k is not None}

    def _done(self, records: Sequence[Record], ks: Collection[int]) -> int:
        """Rounds that every arm of these numbers of draft tokens was part of."""
        names = {arm_name(k) for k in ks}
        return min(
            len(one.arms[name].trials)
            for record in records
            for one in record.beside
            for name in self.arms(one)
            if name in names
        )

    def arms(self, record: Record) -> list[str]:
        """The plain arm and every sound one that a timing gate wants; none without a draft's."""
        plain = record.plain_arms
        if PLAIN not in plain or (record.plain_of or record).errors.keys() & {*plain}:
            return []
        case = record.case()
        names = [
            name
            for k, rounds in sorted(record.wanted.items())
            if rounds
            and (name := arm_name(k)) in record.arms
            and name not in record.errors
            and case.sound_arm(record.arms[name], sampled=self._sampled)
        ]
        plain_holds = all(case.sound_arm(arm, sampled=self._sampled) for arm in plain.values())
        own = plain if record.plain_of is None else {}
        return [*own, *names] if names and plain_holds else []

    def _round(
        self,
        records: Sequence[Record],
        number: int,
        done: int | None = None,
        ks: Collection[int] | None = None,
    ) -> bool:
        """One round; number 0 is thrown away.

        Args:
            records: that it holds.
            number: of the round.
            done: arms with more rounds than these are left out; None for every arm.
            ks: numbers of draft tokens to go on with; None for all.

        Returns:
            something was run, and the budget allowed all of it.
        """
        ran = False
        shuffled = random.Random(f"{self._seed}:{number}")
        shuffled.shuffle(records := list(records))
        gc.collect()
        for record in records:
            entries = [
                (runner, one, name)
                for runner, one in zip(self._runners, record.beside, strict=False)
                for name in self._behind(one, done, ks)
            ]
            if not entries:
                continue
            if not any(one is record for _, one, _ in entries):
                # rivals alone are behind: what they are compared with is run beside them
                entries += [(self._runners[0], record, name) for name in record.plain_arms]
            shuffled.shuffle(entries)
            if self._crowded():
                order = {runner: place for place, (runner, _, _) in enumerate(entries)}
                entries.sort(key=lambda entry: order[entry[0]])  # each draft is loaded once
            cost = sum(run.cost(one.arms[n].num_draft_tokens) or 0.0 for run, one, n in entries)
            if problem := self._budget.exceeded_by(cost):
                self._stopped = problem
                return False
            self._round_of(entries, number)
            ran = True
        return ran

    def _behind(self, record: Record, done: int | None, ks: Collection[int] | None) -> list[str]:
        """The arms that a round holds: the speculative ones that lack it, with the plain ones."""
        kept = None if ks is None else {*map(arm_name, ks)}
        names = self.arms(record)
        plain = [name for name in names if record.arms[name].num_draft_tokens is None]
        behind = [
            name
            for name in names
            if name not in plain
            and (done is None or len(record.arms[name].trials) <= done)
            and (kept is None or name in kept)
        ]
        return [*plain, *behind] if behind else []

    def _round_of(self, entries: Sequence[tuple[Runner, Record, str]], number: int) -> None:
        """These arms once each, in this order."""
        trials: list[tuple[Record, str, Trial]] = []
        for runner, record, name in entries:
            arm = record.arms[name]
            try:
                generation = runner.generate(record, arm.num_draft_tokens, number)
            except EngineError as error:
                record.errors[name] = f"{name}, {pass_name(number)}: {error}"
                return
            blocks = blocks_of(generation, arm.num_draft_tokens, budget_of(record.prompt))
            problem = None if self._sampled else unlike(generation, arm.generation, number)
            problem = problem or unsound(generation, len(record.tokens), number)
            if problem:
                record.arms[name] = replace(arm, unstable=arm.unstable or problem)
            trials.append((record, name, trial := trial_of(generation, number, blocks)))
            if number:
                self._watcher.trial_finished(trial, record.prompt, name)
        if number:
            # all arms at once, so that an interrupt leaves only whole rounds
            for record, name, trial in trials:
                arm = record.arms[name]
                record.arms[name] = replace(arm, trials=(*arm.trials, trial))

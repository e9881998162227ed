"""The warm-up pass, which is the parity pass: each arm of a prompt once, observed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .. import preflight
from ..config.plan import Inputs, Prompt
from ..engines.base import EngineError, Generation, Pair
from ..preflight import Preflight
from .blocks import blocks_of, broken_invariant, broken_ledger
from .evidence import AGAIN, PLAIN, ArmEvidence, arm_name
from .record import CaseKey, Record, budget_of
from .rerun import Rerun
from .runner import Runner

if TYPE_CHECKING:
    from .store import Store


class Observer:
    """Observes one prompt after the other, and has each pair checked before anything runs."""

    def __init__(
        self,
        inputs: Inputs,
        store: Store,
        runner: Runner,
        records: Mapping[CaseKey, Record],
        remaining: Callable[[], float | None],
    ) -> None:
        """Nothing is generated yet.

        Args:
            inputs: the pair and its decoding options.
            store: that keeps the loaded pair.
            runner: of the pair.
            records: all that are registered, also later on.
            remaining: seconds for all that is planned, for progress.
        """
        self._inputs = inputs
        self._store = store
        self._runner = runner
        self._records = records
        self._remaining = remaining
        self._checked: tuple[int, Preflight] | None = None
        self._rivals_checked: dict[Runner, Preflight] = {}

    @property
    def checked(self) -> Preflight | None:
        """What the pre-flight check found; None before it."""
        return self._checked[1] if self._checked else None

    def _wanted(self) -> tuple[int, ...]:
        return tuple(sorted({k for record in self._records.values() for k in record.wanted}))

    def _preflight_of(self, record: Record, runner: Runner) -> Preflight:
        """Of the pair, or of one with a further draft."""
        if record.plain_of is None:
            return self.preflight(runner.pair)
        if runner not in self._rivals_checked:
            tokens = {one.prompt.id: one.tokens for one in self._records.values()}
            prompts = tuple(one.prompt for one in self._records.values())
            inputs = replace(runner.inputs, prompts=prompts, num_draft_tokens=self._wanted())
            found = preflight.run(runner.pair, inputs, tokens, self._store.engine_info)
            self._rivals_checked[runner] = found
        return self._rivals_checked[runner]

    def preflight(self, pair: Pair) -> Preflight:
        """Checked once for all prompts registered by then, and again when more came."""
        if self._checked is not None and self._checked[0] == len(self._records):
            return self._checked[1]
        tokens = {}
        for record in self._records.values():
            if PLAIN not in record.errors:
                try:
                    self._runner.encode(record)
                except EngineError as error:
                    record.errors[PLAIN] = str(error)
            tokens[record.prompt.id] = record.tokens
        inputs = replace(
            self._inputs,
            prompts=tuple(record.prompt for record in self._records.values()),
            num_draft_tokens=self._wanted(),
        )
        found = preflight.run(pair, inputs, tokens, self._store.engine_info)
        self._checked = (len(self._records), found)
        return found

    def observe(self, record: Record, other: Runner | None = None) -> str | None:
        """The warm-up pass of one prompt: the arms that are wanted and not there yet.

        Args:
            record: of the prompt.
            other: of the other environment, whose pair is not checked first, or of a further draft.

        Returns:
            why there is no time for it, or None.
        """
        runner = other or self._runner
        names: dict[str, int | None] = {arm_name(k): k for k in sorted(record.wanted)}
        if record.plain_of is None and (record.mode != "scored" or record.least_rounds):
            names = {PLAIN: None, **names}
        missing = {
            n: k for n, k in names.items() if n not in record.arms and n not in record.errors
        }
        lost = record.plain_of is not None and PLAIN not in record.plain_arms
        if not missing or PLAIN in record.errors or lost:
            return None
        cost = sum(runner.cost(k) or 0.0 for k in missing.values())
        if problem := self._store.budget.exceeded_by(cost):
            return problem
        for name, k in missing.items():
            try:
                if self._store.preflight and (other is None or record.plain_of):
                    found = self._preflight_of(record, runner)
                    if PLAIN in record.errors:
                        return None
                    if problem := found.error(record.prompt.id):
                        raise EngineError(problem)
                runner.encode(record)
                generation = runner.generate(record, k, observe=True)
                arm = arm_of(generation, k, record.prompt, len(record.tokens))
                record.arms[name] = arm
                if k is not None:
                    record.arms[name] = _rerun(record, runner).explained(
                        arm,
                        plain[PLAIN].generation if (plain := record.plain_arms) else None,
                        record.mode,
                        sampled=self._inputs.decoding.temperature > 0,
                    )
            except EngineError as error:
                where = "" if k is None else f"with the draft ({name}): "
                record.errors[name] = f"{where}{error}"
                if k is None:
                    return None
        if self._store.noise and other is None and PLAIN in record.arms:
            record.arms.setdefault(AGAIN, record.arms[PLAIN])
        if record.plain_of is None:
            self._store.watcher.prompt_finished(record.prompt, self._remaining())
        return None


def arm_of(
    generation: Generation, k: int | None, prompt: Prompt, prompt_tokens: int
) -> ArmEvidence:
    """An observed output with its blocks, counted twice."""
    blocks = blocks_of(generation, k, budget_of(prompt))
    if k is None or blocks is None:
        return ArmEvidence(None, generation)
    drafted, broken = None, None
    if generation.calls is not None:
        drafted = any(call.model == "draft" for call in generation.calls)
        if drafted:
            broken = broken_invariant(blocks, generation.calls, prompt_tokens, num_draft_tokens=k)
    broken = broken or broken_ledger(generation, prompt_tokens)
    return ArmEvidence(k, generation, blocks, drafted, broken)


def _rerun(record: Record, runner: Runner) -> Rerun:
    return Rerun(
        generate=partial(runner.generate, record),
        score=partial(runner.score, record.tokens),
        prompt_tokens=len(record.tokens),
        again=record.again,
        stuck=lambda held, k: preflight.stuck(runner.pair, held, k),
    )

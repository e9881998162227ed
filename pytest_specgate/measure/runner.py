"""Runs one loaded pair: guarded, checked, shown to the watcher, its cost kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..config.plan import Decoding, Inputs
from ..engines.base import (
    Costs,
    Drafts,
    EngineError,
    Generation,
    KeepsCaches,
    KnowsItsLaw,
    Pair,
    PassCosts,
    SampledScores,
    Scores,
    Turns,
)
from ..stats.sampling import TEMPERATURE_RATIOS
from .evidence import arm_name
from .record import (
    Record,
    budget_of,
    malformed,
    malformed_choices,
    malformed_law,
    malformed_prompt,
    malformed_scores,
)
from .watch import Step

if TYPE_CHECKING:
    from .store import Store


class Runner:
    """What a campaign lets its pair do."""

    def __init__(
        self,
        inputs: Inputs,
        store: Store,
        remaining: Callable[[], float | None],
        load: Callable[[Inputs], Pair],
    ) -> None:
        """Nothing is loaded yet.

        Args:
            inputs: the pair and its decoding options.
            store: that keeps the loaded pair.
            remaining: seconds for all that is planned, for progress.
            load: of the store: its pair, or that of the other environment.
        """
        self._load = load
        self.inputs = inputs
        self._store = store
        self._remaining = remaining
        self._spent: dict[bool, list[float]] = {False: [], True: []}

    @property
    def pair(self) -> Pair:
        """The loaded pair.

        Raises:
            EngineError: it cannot be loaded.
        """
        return self._load(self.inputs)

    def cost(self, k: int | None) -> float | None:
        """Mean seconds of a run of one path so far; of the plain one where there is no other."""
        spent = self._spent[k is not None] or self._spent[False]
        return sum(spent) / len(spent) if spent else None

    def encode(self, record: Record) -> tuple[int, ...]:
        """Prompt ids; made once."""
        if not record.tokens:
            tokens = self._store.guarded(
                self.inputs,
                lambda: self.pair.encode(record.prompt.text, self.inputs.chat_template_args),
            )
            self._accept(malformed_prompt(tokens))
            record.tokens = tokens
        return record.tokens

    def generate(
        self,
        record: Record,
        k: int | None,
        number: int = 0,
        *,
        observe: bool = False,
        decoding: Decoding | None = None,
        max_tokens: int | None = None,
    ) -> Generation:
        """One run of a prompt.

        Args:
            record: of the prompt.
            k: None for the plain path.
            number: of the round; 0 where it is not timed.
            observe: see ``Pair.generate``.
            decoding: in place of the campaign's own.
            max_tokens: in place of the prompt's budget; what such a run costs is not noted.

        Raises:
            EngineError: it broke, or gave what no engine should.
        """
        step = Step(record.prompt.id, arm_name(k), number, record.least_rounds, self._remaining())
        tick = self._store.watcher.trial_started(step)

        def run() -> Generation:
            return self.pair.generate(
                record.tokens,
                decoding or self.inputs.decoding,
                max_tokens=max_tokens or budget_of(record.prompt),
                num_draft_tokens=k,
                observe=observe,
                tick=tick,
            )

        # the first run after loading pages the weights in, and is no trial
        if self._loads_again(number):
            self._store.guarded(self.inputs, run)
        begin = time.perf_counter()
        generation = self._store.guarded(self.inputs, run)
        if max_tokens is None:
            self._spent[k is not None].append(time.perf_counter() - begin)
        self._accept(malformed(generation))
        return generation

    def _loads_again(self, number: int) -> bool:
        """Load the pair if it is not there; was it loaded for this very trial?"""
        self._store.guarded(self.inputs, lambda: self.pair)
        return self._store.just_loaded(self.inputs) and number > 0

    def score(self, prompt: Sequence[int], generation: Generation) -> Scores | None:
        """The teacher-forced pass over an output; None where the engine has none."""
        scores = self._store.guarded(
            self.inputs, lambda: self.pair.score(prompt, generation.tokens, self.inputs.decoding)
        )
        if scores is not None:
            self._accept(malformed_scores(scores, len(generation.tokens)))
        return scores

    def law(self, record: Record, generation: Generation) -> SampledScores:
        """By which law the target would have drawn an output.

        Raises:
            EngineError: it broke, or the engine cannot tell.
        """
        inputs, pair = self.inputs, self.pair
        if not isinstance(pair, KnowsItsLaw):
            raise EngineError(f"the engine {inputs.engine} does not tell the target's law")
        knows: KnowsItsLaw = pair
        law = self._store.guarded(
            inputs,
            lambda: knows.score_sampled(
                record.tokens, generation.tokens, inputs.decoding, TEMPERATURE_RATIOS
            ),
        )
        self._accept(malformed_law(law, len(generation.tokens), len(TEMPERATURE_RATIOS)))
        return law

    def second_turn(self, record: Record, follow_up: str, k: int | None) -> Turns:
        """Two turns of a prompt with the prompt cache kept.

        Raises:
            EngineError: it broke, or the engine cannot keep a cache.
        """
        inputs, pair = self.inputs, self.pair
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

    def _drafts(self) -> Drafts:
        """The pair, where it shows what its draft would choose.

        Raises:
            EngineError: it does not.
        """
        if not isinstance(pair := self.pair, Drafts):
            engine = self.inputs.engine
            raise EngineError(f"the engine {engine} cannot show what its draft would choose")
        return pair

    def choices(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[int, ...]:
        """The draft's own choice in place of each token of a plain output.

        Raises:
            EngineError: it broke, or the engine cannot tell.
        """
        pair, decoding = self._drafts(), self.inputs.decoding
        choices = self._store.guarded(self.inputs, lambda: pair.choices(prompt, tokens, decoding))
        self._accept(malformed_choices(choices, len(tokens)))
        return tuple(choices)

    def spell(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """The text of each token.

        Raises:
            EngineError: it broke, or the engine cannot tell.
        """
        pair = self._drafts()
        texts = self._store.guarded(self.inputs, lambda: pair.spell(tokens))
        if len(texts) != len(tokens):
            self._accept(f"{len(texts)} texts of {len(tokens)} tokens")
        return tuple(map(str, texts))

    def pass_costs(
        self, prompt: Sequence[int], *, depths: Sequence[int], prompt_lengths: Sequence[int]
    ) -> PassCosts:
        """Seconds of single passes; see ``Costs.pass_costs``.

        Raises:
            EngineError: it broke, or the engine cannot time them.
        """
        pair, inputs = self.pair, self.inputs
        if not isinstance(pair, Costs):
            raise EngineError(f"the engine {inputs.engine} cannot time single passes")
        able: Costs = pair
        return self._store.guarded(
            inputs,
            lambda: able.pass_costs(
                prompt, inputs.decoding, depths=depths, prompt_lengths=prompt_lengths
            ),
        )

    def _accept(self, problem: str | None) -> None:
        """Refuse what an engine gave, where there is a problem with it."""
        if problem:
            raise EngineError(f"the engine {self.inputs.engine}: {problem}")

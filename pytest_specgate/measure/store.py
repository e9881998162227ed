"""The session's one store of evidence: what was generated once is not generated again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.plan import Inputs
from ..config.spec import found
from ..engines.base import Engine, EngineError, EngineInfo, Pair, PairInfo
from ..text import in_a_line
from .budget import Budget
from .campaign import Campaign
from .evidence import Side
from .lock import MachineLock
from .machine import swap_used_bytes
from .samples import Samples
from .scan import PlainOutputs
from .watch import Watcher

if TYPE_CHECKING:
    from ..baseline import Reference

Result = TypeVar("Result")

_FILLED = 0.8  # of the device's memory, by weights


@dataclass(frozen=True, slots=True)
class Other:
    """Another environment: its name, and what makes the engine that works there."""

    name: str
    make: Callable[[], Engine]


class Store:
    """Campaigns by what they depend on, and the one pair that is loaded."""

    def __init__(
        self,
        engines: Mapping[str, Callable[[], Engine]],
        watcher: Watcher,
        prepare: Callable[[Inputs], None],
        *,
        preflight: bool = True,
        lock: MachineLock | None = None,
        budget: Budget | None = None,
        noise: bool = False,
        samples: Samples | None = None,
        reference: Reference | None = None,
        against: Other | None = None,
        fresh: Callable[[], Engine] | None = None,
        facts: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Keep the parts; nothing is loaded yet.

        Args:
            engines: name -> factory.
            watcher: told of progress.
            prepare: called before a pair is loaded, to make what is missing on disk.
            preflight: generate nothing where the pre-flight check finds an error; without it the
                check is made only for a gate that asks for it.
            lock: held while something is generated, alone while it is timed; None for no lock.
            budget: seconds for all that is measured; None for no limit.
            noise: time the plain path twice in every round, for the machine's own noise.
            samples: of undecided gates of earlier sessions; None where none are kept.
            reference: the stored session that this one is judged against.
            against: another environment that is measured in the same rounds.
            fresh: makes the engine in a process of its own; None where that cannot be.
            facts: the recorded environment.
        """
        self._lock = lock
        self.budget = budget or Budget()
        self.noise = noise
        self.samples = samples
        self.reference = reference
        self.against = against
        self._fresh = fresh
        self.facts = facts
        self.other_engine: EngineInfo | None = None
        self.other_info: PairInfo | None = None
        self._other: tuple[Any, Pair] | None = None
        self._other_engine: Engine | None = None
        self.watcher = watcher
        self.preflight = preflight
        self._factories = engines
        self._prepare = prepare
        self._engines: dict[str, Engine] = {}
        self._campaigns: dict[Any, Campaign] = {}
        self.plain_outputs: PlainOutputs = {}
        self._loaded: tuple[Any, Pair] | None = None
        self._unloadable: dict[Any, EngineError] = {}
        self._infos: dict[Any, Any] = {}
        self._rivals: dict[Any, Pair] = {}
        self._rival_engines: list[Engine] = []
        self._cold: set[Any] = set()
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
        return Campaign(inputs, self, alone=True)

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
                pair, info = self.guarded(inputs, lambda: self._load(inputs))
            except EngineError as error:
                self._unloadable[key] = error
                raise
            self._infos[key] = info
            self._loaded = (key, pair)
        return self._loaded[1]

    def _load(self, inputs: Inputs) -> tuple[Pair, PairInfo]:
        engine = self._engine(inputs.engine)
        self.engine_info = _given(inputs, engine.describe(), EngineInfo)
        self._prepare(inputs)
        pair = engine.load(inputs)
        if pair is None:
            raise EngineError(f"the engine {inputs.engine}: load gave nothing where a pair is due")
        return pair, _given(inputs, pair.info, PairInfo)

    def other_pair(self, inputs: Inputs) -> Pair:
        """The same pair, loaded in the other environment.

        Raises:
            EngineError: it cannot be loaded there; names the environment.
        """
        if self.against is None:
            raise EngineError("there is no other environment")
        key, name = _pair_key(inputs), self.against.name
        if self._other is None or self._other[0] != key:
            self._other = None
            try:
                self.watcher.loading(inputs)
                if self._other_engine is None:
                    self._other_engine = self.against.make()
                engine = self._other_engine
                self.other_engine = self.guarded(inputs, engine.describe)
                pair = self.guarded(inputs, lambda: engine.load(inputs))
            except EngineError as error:
                raise EngineError(f"{name}: {error}") from error
            self.other_info = pair.info
            self._other = (key, pair)
        return self._other[1]

    def rival_pair(self, inputs: Inputs) -> Pair:
        """The pair with a further draft; the target is kept once, and all drafts of a sweep.

        Where they would not fit together one of the further ones is kept at a time.

        Raises:
            EngineError: it cannot be loaded.
        """
        key = _pair_key(inputs)
        if key in self._unloadable:
            raise self._unloadable[key]
        if key not in self._rivals:
            if self.crowded:
                self._rivals.clear()
                gc.collect()
            self.watcher.loading(inputs)
            engine = self._engine(inputs.engine)
            if getattr(engine, "holds_one", False):
                engine = self._factories[inputs.engine]()
                self._rival_engines.append(engine)
            try:
                pair = self.guarded(inputs, lambda: engine.load(inputs))
            except EngineError as error:
                self._unloadable[key] = error
                raise
            self._infos[key] = pair.info
            self._rivals[key] = pair
            self._cold.add(key)
        return self._rivals[key]

    @property
    def crowded(self) -> bool:
        """Target, all drafts seen so far and one more take over four fifths of the device's memory.

        The rest is for caches and working memory.
        """
        limit = self.engine_info.memory_limit_bytes if self.engine_info else 0
        drafts = [info.draft.bytes for info in self._infos.values()]
        if not limit or not drafts:
            return False
        target = max(info.target.bytes for info in self._infos.values())
        return bool(target + sum(drafts) + max(drafts) > _FILLED * limit)

    def just_loaded(self, inputs: Inputs) -> bool:
        """This pair has not run since it was loaded; said once."""
        key = _pair_key(inputs)
        fresh = key in self._cold
        self._cold.discard(key)
        return fresh

    def afresh(self, side: Side) -> Callable[[], Engine] | None:
        """What makes an engine in a process of its own, in either environment."""
        if side == "here":
            return self._fresh
        return self.against.make if self.against else None

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
            raise EngineError(f"the engine {inputs.engine} broke: {in_a_line(error)}") from error

    @property
    def used(self) -> bool:
        """A pair was loaded, or could not be."""
        return bool(self._infos or self._unloadable)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what is generated, beside others who do.

        Raises:
            Busy: somebody who times did not end in time.
        """
        with self._lock.together() if self._lock else nullcontext():
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Around what is timed: nobody else is at work meanwhile.

        Raises:
            Busy: others did not end in time.
        """
        with self._lock.alone() if self._lock else nullcontext():
            yield

    def pair_info(self, inputs: Inputs) -> Any:
        """What the pair is, once it was loaded."""
        return self._infos.get(_pair_key(inputs))

    def swap_growth(self) -> int | None:
        """Swap used now less that before the first pair was loaded."""
        now = swap_used_bytes()
        if now is None or self._swap_before is None:
            return None
        return now - self._swap_before

    def close(self) -> list[str]:
        """End what engines have started outside this process; a line for each that would not."""
        complaints = []
        for engine in (*self._engines.values(), *self._rival_engines, self._other_engine):
            close = getattr(engine, "close", None)
            if close is None:
                continue
            try:
                close()
            except Exception as error:  # an engine of another plugin; the others still have to end
                complaints.append(f"an engine could not be ended: {in_a_line(error)}")
        return complaints

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = self._factories[name]()
        return self._engines[name]


def _given(inputs: Inputs, value: Any, kind: type[Result]) -> Result:
    if not isinstance(value, kind):
        raise EngineError(
            f"the engine {inputs.engine}: it gave {found(value)} where {kind.__name__} is due"
        )
    return value


def _pair_key(inputs: Inputs) -> tuple[Any, ...]:
    return inputs.engine, inputs.target, inputs.draft, inputs.trust_remote_code


def _frozen(inputs: Inputs) -> str:
    return repr(sorted(inputs.chat_template_args.items()))

"""Engines with one fault each, that no option of the plugin could make. Prompts are token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from pytest_specgate import Engine
from pytest_specgate.config.plan import Decoding, Inputs
from pytest_specgate.engines.base import Generation, Tick
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from tests.models import noisy

LONGEST_VERIFY = 17  # rows: the most proposals there are, and the token before them
WIDE_EVERY = 50


class IdsPair(MlxLmPair):
    """A prompt is its token ids in figures; nothing else is changed."""

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """The ids that the text says."""
        return tuple(int(part) for part in text.split())

    def encode_turns(
        self,
        texts: tuple[str, str, str],
        said: Sequence[int],
        chat_template_args: Mapping[str, Any],
    ) -> Sequence[int]:
        """What was said, and the ids that follow it."""
        return [*said, *self.encode(texts[2], chat_template_args)]


class PenaltyPair(IdsPair):
    """A repetition penalty on both paths."""

    def more_options(self) -> dict[str, Any]:
        """One logits processor."""
        from mlx_lm.sample_utils import make_logits_processors

        return {"logits_processors": make_logits_processors(repetition_penalty=1.3)}


class BiasPair(IdsPair):
    """A logit bias on both paths."""

    def more_options(self) -> dict[str, Any]:
        """One logits processor."""
        from mlx_lm.sample_utils import make_logits_processors

        return {"logits_processors": make_logits_processors(logit_bias={5: 3.0, 300: -3.0})}


class _PathPair(IdsPair):
    """Knows which path is asked for."""

    drafted = False

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """Note the path, then run it."""
        self.drafted = num_draft_tokens is not None
        return super().generate(
            prompt,
            decoding,
            max_tokens=max_tokens,
            num_draft_tokens=self._proposals(num_draft_tokens),
            observe=observe,
            tick=tick,
        )

    def _proposals(self, asked: int | None) -> int | None:
        return asked


class RandomPair(_PathPair):
    """Temperature 0.7 left on in the speculative path, drawn anew each time."""

    _draws = count(1)

    def more_options(self) -> dict[str, Any]:
        """A sampler that draws, on one path."""
        return {"sampler": self._draw} if self.drafted else {}

    def _draw(self, logprobs: Any) -> Any:
        import mlx.core as mx

        return mx.random.categorical(logprobs / 0.7, key=mx.random.key(next(self._draws)))


class HotPair(_PathPair):
    """Temperature 1 on the speculative path, whatever was asked for."""

    def more_options(self) -> dict[str, Any]:
        """mlx-lm's own sampler, on one path."""
        from mlx_lm.sample_utils import make_sampler

        return {"sampler": make_sampler(temp=1.0)} if self.drafted else {}


class HotPlainPair(HotPair):
    """The same on the plain path."""

    def more_options(self) -> dict[str, Any]:
        """On the other path."""
        self.drafted = not self.drafted
        return super().more_options()


class UncheckedPair(_PathPair):
    """One proposal in fifty is accepted whatever the target drew."""

    share = 0.02

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """Note the options, then run it."""
        from mlx_lm.sample_utils import make_sampler

        self._draw, self._proposals_drawn = make_sampler(temp=decoding.temperature), list[Any]()
        return super().generate(
            prompt,
            decoding,
            max_tokens=max_tokens,
            num_draft_tokens=num_draft_tokens,
            observe=observe,
            tick=tick,
        )

    def more_options(self) -> dict[str, Any]:
        """A sampler that at times gives back the proposal."""
        return {"sampler": self._sample} if self.drafted else {}

    def _sample(self, logprobs: Any) -> Any:
        import mlx.core as mx

        drawn = self._draw(logprobs)
        if len(logprobs) == 1:  # a proposal
            self._proposals_drawn.append(drawn)
            return drawn
        proposed = mx.concatenate([*self._proposals_drawn[1 - len(logprobs) :], drawn[-1:]])
        return mx.where(mx.random.uniform(shape=drawn.shape) < self.share, proposed, drawn)


class ShortCachePair(_PathPair):
    """On the speculative path both caches lack the prompt's last token but one."""

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """Run it with a shorter prompt."""
        if num_draft_tokens is not None:
            prompt = [*prompt[:-2], prompt[-1]]
        return super().generate(
            prompt,
            decoding,
            max_tokens=max_tokens,
            num_draft_tokens=num_draft_tokens,
            observe=observe,
            tick=tick,
        )


class IgnoringPair(_PathPair):
    """Never passes the draft model on."""

    def _proposals(self, asked: int | None) -> int | None:
        return None


class FlakyPair(_PathPair):
    """A draft whose weights are drawn anew for each run."""

    def __init__(self, *parts: Any) -> None:
        from mlx.utils import tree_flatten

        super().__init__(*parts)
        self._weights = dict(tree_flatten(self.draft.parameters()))
        self._draws = count(1)

    def _proposals(self, asked: int | None) -> int | None:
        if asked is not None:
            drawn = next(self._draws)
            weights = noisy(self._weights, 0.1 * (drawn % 4), drawn)
            self.draft.load_weights(list(weights.items()))
        return asked


class Altered:
    """Stands in for a target and changes its logits by (logits, offset, rows of the pass)."""

    def __init__(self, model: Any, change: Callable[[Any, int], Any]) -> None:
        self._model = model
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache") or args[0]
        offset = int(cache[0].offset)
        return self._change(self._model(inputs, *args, **kwargs), offset)


class NearTiePair(IdsPair):
    """Rounding that depends on the number of rows: two logits move apart by eps at most.

    The teacher-forced pass, as wide as no block, rounds in a way of its own.
    """

    eps = 1e-2

    def __init__(self, target: Any, *parts: Any) -> None:
        super().__init__(Altered(target, self._round), *parts)

    def _round(self, logits: Any, offset: int) -> Any:
        import mlx.core as mx
        import numpy as np

        rows, size = logits.shape[-2:]
        if rows == 1:
            return logits
        kernel = self._kernel(rows)
        noise = np.stack(
            [np.random.default_rng([kernel, offset + i]).random(size) for i in range(rows)]
        )
        return logits + (self.eps * mx.array(noise - 0.5)).astype(logits.dtype)

    def _kernel(self, rows: int) -> int:
        return 1 if rows <= LONGEST_VERIFY else 2


class SharedTiePair(NearTiePair):
    """The same, but every pass of more than one row rounds alike, as one kernel would."""

    def _kernel(self, rows: int) -> int:
        return 1


class SmallTiePair(NearTiePair):
    eps = 1e-3


class LargeTiePair(NearTiePair):
    eps = 1e-1


class WideFaultPair(IdsPair):
    """One row in fifty of the verify passes is another row altogether."""

    def __init__(self, target: Any, *parts: Any) -> None:
        super().__init__(Altered(target, self._spoil), *parts)

    def _spoil(self, logits: Any, offset: int) -> Any:
        import mlx.core as mx

        rows = logits.shape[-2]
        if not 1 < rows <= LONGEST_VERIFY:
            return logits
        spoilt = [(offset + row) % WIDE_EVERY == 17 for row in range(rows)]
        return mx.where(mx.array(spoilt)[:, None], -logits, logits)


class MuseumEngine(MlxLmEngine):
    """The mlx-lm engine with another pair."""

    pair: type[MlxLmPair] = IdsPair

    def load(self, inputs: Inputs) -> MlxLmPair:
        """Load as ever, then put the fault in."""
        made = super().load(inputs)
        return self.pair(made.target, made.draft, made.tokenizer, made.draft_tokenizer, made.info)


PAIRS: Mapping[str, type[MlxLmPair]] = {
    "museum": IdsPair,
    "penalty": PenaltyPair,
    "logit-bias": BiasPair,
    "random-target": RandomPair,
    "hot": HotPair,
    "hot-plain": HotPlainPair,
    "unchecked": UncheckedPair,
    "short-cache": ShortCachePair,
    "ignoring": IgnoringPair,
    "flaky": FlakyPair,
    "near-tie": NearTiePair,
    "near-tie-shared": SharedTiePair,
    "near-tie-small": SmallTiePair,
    "near-tie-large": LargeTiePair,
    "wide-fault": WideFaultPair,
}


def engines() -> dict[str, Callable[[], Engine]]:
    """Name -> factory, for ``pytest_specgate_engines``."""
    return {name: type(name, (MuseumEngine,), {"pair": pair}) for name, pair in PAIRS.items()}

"""The mlx-lm engine, in this process: what ``worker`` does, in the types of ``base``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from ..config.plan import Decoding, Inputs, ModelRef
from . import worker
from .base import (
    Call,
    DepthCosts,
    EngineError,
    EngineInfo,
    FirstToken,
    Generation,
    LoopCost,
    ModelInfo,
    PairInfo,
    PassCosts,
    SampledScores,
    Scores,
    Tick,
    Turns,
    Unsupported,
)


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except worker.Unsupported as failure:
        raise Unsupported(str(failure)) from failure
    except worker.Failure as failure:
        raise EngineError(str(failure)) from failure


def reference(ref: ModelRef) -> dict[str, str | None]:
    """A model as ``worker.load`` takes it."""
    directory = str(ref.directory) if ref.directory else None
    return {
        "name": ref.name,
        "directory": directory,
        "revision": ref.revision,
        "label": ref.label,
    }


def options(decoding: Decoding, max_tokens: int) -> dict[str, Any]:
    """Decoding options as ``worker.generate`` takes them."""
    return {**asdict(decoding), "max_tokens": max_tokens}


def generation_of(found: Mapping[str, Any]) -> Generation:
    """The answer of ``worker.generate``, frozen."""
    frozen: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in found.items()
    }
    if "calls" in found:
        frozen["calls"] = tuple(Call(*call) for call in found["calls"])
        frozen["kv_bytes"] = tuple(found["kv_bytes"])
    return Generation(**frozen)


def turns_of(found: Mapping[str, Any]) -> Turns:
    """The answer of ``worker.second_turn``, frozen."""
    return Turns(
        first=generation_of(found["first"]),
        prompt=tuple(found["prompt"]),
        kept=found["kept"],
        held=tuple(found["held"]) if found["held"] else None,
        fresh=generation_of(found["fresh"]),
        second=generation_of(found["second"]) if found["second"] else None,
        problem=found["problem"],
    )


def scores_of(found: Mapping[str, Sequence[float]]) -> Scores:
    """The answer of ``worker.score``, frozen."""
    return Scores(**{name: tuple(values) for name, values in found.items()})


def costs_of(found: Mapping[str, Any]) -> PassCosts:
    """The answer of ``worker.pass_costs``, frozen, depths and lengths rising."""
    depths = (
        DepthCosts(
            depth=each["depth"],
            plain_s=each["plain_s"],
            draft_s=tuple(each["draft_s"]),
            target_s=tuple((width, seconds) for width, seconds in each["target_s"]),
            loops=tuple(LoopCost(*loop) for loop in each["loops"]),
        )
        for each in found["depths"]
    )
    first = (FirstToken(*each) for each in found["first_s"])
    return PassCosts(
        tuple(sorted(depths, key=lambda each: each.depth)),
        tuple(sorted(first, key=lambda each: each.prompt_tokens)),
    )


def sampled_scores_of(found: Mapping[str, Any]) -> SampledScores:
    """The answer of ``worker.score_sampled``, frozen."""
    frozen = {name: tuple(values) for name, values in found.items()}
    frozen["tempered"] = tuple(map(tuple, found["tempered"]))
    return SampledScores(**frozen)


class MlxLmPair:
    """A pair loaded by ``mlx_lm.load``."""

    def __init__(
        self, target: Any, draft: Any, tokenizer: Any, draft_tokenizer: Any, info: PairInfo
    ) -> None:
        self.target = target
        self.draft = draft
        self.tokenizer = tokenizer
        self.draft_tokenizer = draft_tokenizer
        self.info = info

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """Prompt ids as ``mlx_lm.generate`` makes them; see ``Pair.encode``."""
        with _engine_errors():
            return tuple(worker.encode(self.tokenizer, text, chat_template_args))

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
        """One run of ``mlx_lm.stream_generate``; see ``Pair.generate``."""
        with _engine_errors():
            found = worker.generate(
                self.target,
                self.draft,
                self.tokenizer,
                prompt,
                options(decoding, max_tokens),
                num_draft_tokens=num_draft_tokens,
                observe=observe,
                tick=tick,
                more=self.more_options(),
            )
        return generation_of(found)

    def more_options(self) -> dict[str, Any]:
        """Further keyword arguments of ``stream_generate``, for a pair derived from this one."""
        return {}

    def second_turn(
        self,
        prompt: Sequence[int],
        texts: tuple[str, str],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        chat_template_args: Mapping[str, Any],
    ) -> Turns:
        """Two turns with one prompt cache; see ``KeepsCaches.second_turn``."""
        with _engine_errors():
            found = worker.second_turn(
                self.target,
                self.draft,
                self.tokenizer,
                prompt,
                options(decoding, max_tokens),
                num_draft_tokens=num_draft_tokens,
                turns=lambda said, answer: self.encode_turns(
                    (texts[0], answer, texts[1]), said, chat_template_args
                ),
                more=self.more_options(),
            )
        return turns_of(found)

    def encode_turns(
        self,
        texts: tuple[str, str, str],
        said: Sequence[int],
        chat_template_args: Mapping[str, Any],
    ) -> Sequence[int]:
        """Prompt ids of a second turn: of a prompt, its answer and what follows."""
        return worker.encode_turns(self.tokenizer, texts, said, chat_template_args)

    def score(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> Scores | None:
        """One pass of the target over prompt + tokens; see ``Pair.score``."""
        with _engine_errors():
            found = worker.score(self.target, prompt, tokens, decoding.prefill_step_size)
        return scores_of(found)

    def choices(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> tuple[int, ...]:
        """One pass of the draft over prompt + tokens; see ``Drafts.choices``."""
        with _engine_errors():
            step = decoding.prefill_step_size
            return tuple(worker.choices(self.draft, prompt, tokens, step))

    def spell(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """Texts by the target's tokenizer; see ``Drafts.spell``."""
        with _engine_errors():
            return tuple(worker.spell(self.tokenizer, tokens))

    def pass_costs(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        depths: Sequence[int],
        prompt_lengths: Sequence[int],
        rounds: int = 5,
    ) -> PassCosts:
        """Seconds of single passes; see ``Costs.pass_costs``."""
        with _engine_errors():
            found = worker.pass_costs(
                self.target,
                self.draft,
                self.tokenizer,
                prompt,
                options(decoding, max_tokens=1),
                depths=depths,
                prompt_lengths=prompt_lengths,
                rounds=rounds,
            )
        return costs_of(found)

    def score_sampled(
        self,
        prompt: Sequence[int],
        tokens: Sequence[int],
        decoding: Decoding,
        ratios: Sequence[float],
    ) -> SampledScores:
        """The same with the law of the sampler; see ``KnowsItsLaw.score_sampled``."""
        with _engine_errors():
            found = worker.score_sampled(
                self.target, prompt, tokens, options(decoding, len(tokens)), ratios
            )
        return sampled_scores_of(found)


class MlxLmEngine:
    """Loads pairs with ``mlx_lm.load`` on mlx's default device."""

    name = "mlx-lm"

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._loader = worker.Loader()

    def describe(self) -> EngineInfo:
        """Versions, device and memory limit; see ``Engine.describe``."""
        with _engine_errors():
            return EngineInfo(**worker.describe())

    def load(self, inputs: Inputs) -> MlxLmPair:
        """Load both models; see ``Engine.load``."""
        if inputs.target is None or inputs.draft is None:
            raise EngineError("no pair was given")
        with _engine_errors():
            (target, tokenizer, info), (draft, draft_tokenizer, draft_info) = self._loader.load(
                reference(inputs.target), reference(inputs.draft), inputs.trust_remote_code
            )
        pair = PairInfo(ModelInfo(**info), ModelInfo(**draft_info))
        return MlxLmPair(target, draft, tokenizer, draft_tokenizer, pair)

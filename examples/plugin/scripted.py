"""An engine without a model: output, acceptance and times follow a script.

It is a template for an engine of your own, and quick and exact enough to test gates with. Replace
``ScriptedEngine.load`` and ``ScriptedPair.generate`` by calls of what really generates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_specgate import Decoding, EngineError, Generation
from pytest_specgate.config.plan import Inputs, ModelRef
from pytest_specgate.engines.base import EngineInfo, ModelInfo, PairInfo, Tick

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
PREFILL_S, TARGET_S, DRAFT_S = 0.050, 0.020, 0.002
VERIFY_S = 0.001  # what each proposed token adds to a pass of the target
MISS_EVERY = 5  # the draft is wrong about each fifth token of the output


def script(prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The output for a prompt, token by token: it depends on every token of the prompt."""
    start = sum(place * token for place, token in enumerate(prompt, 1))
    return tuple((start + step * step) % len(ALPHABET) for step in range(count))


def is_guessed(position: int) -> bool:
    """Whether the draft proposes the right token at this position of the output."""
    return position % MISS_EVERY != MISS_EVERY - 1


def plain_run(count: int) -> tuple[list[bool], list[float]]:
    """(from_draft, token times) of the plain path: one pass of the target a token."""
    return [False] * count, [PREFILL_S + TARGET_S * (i + 1) for i in range(count)]


def speculative_run(count: int, num_draft_tokens: int) -> tuple[list[bool], list[float]]:
    """(from_draft, token times) of the speculative path: the tokens of a block come together."""
    flags: list[bool] = []
    times: list[float] = []
    now = 2 * PREFILL_S
    while len(flags) < count:
        proposed = min(num_draft_tokens, count - len(flags))
        now += proposed * (DRAFT_S + VERIFY_S) + TARGET_S
        accepted = 0
        while accepted < proposed and is_guessed(len(flags) + accepted):
            accepted += 1
        block = [True] * accepted + [False]  # the last one is the target's own token
        flags += block[: count - len(flags)]
        times += [now] * (len(flags) - len(times))
    return flags, times


class ScriptedPair:
    """A pair of two names; implements ``pytest_specgate.Pair``."""

    target = draft = tokenizer = None  # whatever a test may want to look at

    def __init__(self, info: PairInfo) -> None:
        self.info = info

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """One token a byte."""
        if not text:
            raise EngineError("the prompt is empty")
        return tuple(text.encode())

    def score(self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding) -> None:
        """There is no model to ask; a difference is then told without its kind."""

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
        """Follow the script. Calls and cache sizes are left out: this engine cannot see any."""
        tokens = script(prompt, max_tokens)
        if num_draft_tokens is None:
            flags, times = plain_run(max_tokens)
        else:
            flags, times = speculative_run(max_tokens, num_draft_tokens)
        return Generation(
            tokens=tokens,
            text="".join(ALPHABET[token] for token in tokens),
            from_draft=tuple(flags),
            token_times_s=tuple(times),
            e2e_s=times[-1],
            finish_reason="length",
        )


class ScriptedEngine:
    """Loads any two names; implements ``pytest_specgate.Engine``."""

    name = "scripted"

    def describe(self) -> EngineInfo:
        """What the recorded environment says of this engine."""
        return EngineInfo(
            versions={"scripted": "1"},
            device="none: the times are scripted",
            memory_limit_bytes=1_000_000_000,
            memory_limit_origin="the script",
        )

    def load(self, inputs: Inputs) -> ScriptedPair:
        """A pair of the two names."""
        if inputs.target is None or inputs.draft is None:
            raise EngineError("no pair was given")
        return ScriptedPair(PairInfo(_info(inputs.target, 1_000_000), _info(inputs.draft, 100_000)))


def _info(model: ModelRef, parameters: int) -> ModelInfo:
    return ModelInfo(
        name=model.label,
        bytes=parameters * 4,
        parameters=parameters,
        dtype="float32",
        quantization=None,
        digest=f"scripted-{parameters}",
    )

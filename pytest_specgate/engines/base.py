"""The engine protocol and its types. Nothing here imports mlx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ..config.plan import Decoding, Inputs


class EngineError(Exception):
    """A pair cannot be loaded, or a generation broke; the text is for the user."""


class Unsupported(EngineError):
    """The engine, at this release, does not have the option that was asked for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One forward pass: which model, how many tokens went in, the cache's offset before it."""

    model: Literal["target", "draft"]
    length: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Generation:
    """What one path emitted for one prompt, with the times of one run.

    Attributes:
        tokens: emitted ids, a final end-of-text id included.
        text: all text segments joined, nothing normalised.
        from_draft: a flag a token; all False on the plain path.
        token_times_s: seconds from the start of the call to each token.
        e2e_s: seconds from the start of the call to its end.
        finish_reason: ``length`` or ``stop``.
        peak_memory_bytes: the allocator's high-water mark of this run, weights included.
        kv_bytes: key-value caches at the end, target's and draft's; None unless observed.
        calls: every model call, draft's and target's; None unless observed or where the engine
            cannot see them.
        logprobs: natural log probability of each token, as the run itself returned it; None unless
            observed.
        margins: largest less second largest log probability at each position; None unless
            observed.
        largest_proposal: the largest token id that the draft proposed; None unless observed.
        held: fewest and most tokens that the layers of the target's cache hold at the end; None on
            the plain path, and where the engine cannot see it.
    """

    tokens: tuple[int, ...]
    text: str
    from_draft: tuple[bool, ...]
    token_times_s: tuple[float, ...]
    e2e_s: float
    finish_reason: str | None
    peak_memory_bytes: int | None = None
    kv_bytes: tuple[int, int] | None = None
    calls: tuple[Call, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    margins: tuple[float, ...] | None = None
    largest_proposal: int | None = None
    held: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """Two turns of one path with the prompt cache kept between them, and the second run afresh.

    Attributes:
        first: with a prompt cache that the caller made.
        prompt: ids of the second turn, whole.
        kept: how many of them the cache is said to hold already, so that they are not fed again.
        held: fewest and most that the layers of the target's cache really hold; None where none
            counts, or nothing could be kept.
        fresh: the second turn with fresh caches.
        second: with the kept cache; None where that could not be generated.
        problem: why not.
    """

    first: Generation
    prompt: tuple[int, ...]
    kept: int
    held: tuple[int, int] | None
    fresh: Generation
    second: Generation | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What the target says of emitted tokens in one pass over prompt + tokens.

    Each position is judged on the prefix that was really there, so the figures hold after a first
    difference as well. One value a token; natural logs.

    Attributes:
        logprobs: of the emitted tokens.
        gaps: largest log probability less the emitted token's; 0 where it is the argmax.
        margins: largest less second largest.
        ulps: spacing of the logits' dtype at the largest logit.
    """

    logprobs: tuple[float, ...]
    gaps: tuple[float, ...]
    margins: tuple[float, ...]
    ulps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LoopCost:
    """The engine's own speculative loop at one number of draft tokens.

    Attributes:
        num_draft_tokens: k; every block proposed as many.
        block_s: seconds a block, all that the loop does between two target passes included.
        whole: share of the timed blocks whose proposals were all accepted. The draft's first step
            of the block after such a one reads two tokens.
        emitted: tokens a block.
    """

    num_draft_tokens: int
    block_s: float
    whole: float
    emitted: float


@dataclass(frozen=True, slots=True)
class DepthCosts:
    """Seconds of single passes while the caches hold ``depth`` tokens.

    Attributes:
        depth: tokens.
        plain_s: a token of the engine's own plain loop, all that it does between two tokens
            included.
        draft_s: a draft step that reads one token, and one that reads two.
        target_s: (width, seconds) of a target pass over as many tokens, widths rising from 1 to 17;
            those between are left to interpolation.
        loops: of the speculative loop, k rising.
    """

    depth: int
    plain_s: float
    draft_s: tuple[float, float]
    target_s: tuple[tuple[int, float], ...]
    loops: tuple[LoopCost, ...]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Seconds from the call to the first token, on either path; one token is proposed."""

    prompt_tokens: int
    plain_s: float
    speculative_s: float


@dataclass(frozen=True, slots=True)
class PassCosts:
    """What single passes of a pair cost on this machine; the lower quartile of bursts.

    Attributes:
        depths: context depths, rising.
        first: of prompts of several lengths, rising.
    """

    depths: tuple[DepthCosts, ...]
    first: tuple[FirstToken, ...]


@dataclass(frozen=True, slots=True)
class SampledScores:
    """By which law the target would have drawn emitted tokens, in one pass over prompt + tokens.

    The law is that of the decoding options: penalties and bias, filters, temperature. Each position
    is judged on the prefix that was really there. One value a token; natural logs.

    Attributes:
        logprobs: of the emitted tokens before filters and temperature, as mlx-lm returns them.
        ulps: spacing of the logits' dtype at the largest logit.
        drawn: log probability with which the sampler draws the token; for one that the filters
            leave out, that of the least likely one they keep.
        outside: nats by which the token lies beyond what the filters keep; 0 where it is kept.
        tempered: for each ratio that was asked for, the log probability under the law whose
            temperature is the configured one times the ratio.
    """

    logprobs: tuple[float, ...]
    ulps: tuple[float, ...]
    drawn: tuple[float, ...]
    outside: tuple[float, ...]
    tempered: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What one loaded model is.

    Attributes:
        name: as the user named it.
        bytes: its weights in memory.
        parameters: number of weights, quantised ones unpacked.
        embedding_rows: rows of the token embedding; larger ids read past its end.
        dtype: of the unquantised weights, such as ``bfloat16``.
        quantization: such as ``4-bit``, or None.
        digest: SHA-256 over config, tokenizer files and the headers of the weight files. It tells
            models apart; it does not read the weights themselves.
        revision: the hub's commit, for a model of a hub.
    """

    name: str
    bytes: int
    parameters: int
    dtype: str
    quantization: str | None
    digest: str
    revision: str | None = None
    embedding_rows: int | None = None


@dataclass(frozen=True, slots=True)
class PairInfo:
    """Both models of a loaded pair."""

    target: ModelInfo
    draft: ModelInfo


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine's part of the environment.

    Attributes:
        versions: package -> version, of what computes.
        device: what it runs on, in words.
        memory_limit_bytes: what the device recommends as the most to use, or the machine's memory
            where it recommends nothing.
        memory_limit_origin: which of the two, in words.
    """

    versions: Mapping[str, str]
    device: str
    memory_limit_bytes: int
    memory_limit_origin: str
    details: Mapping[str, Any] = field(default_factory=dict)


Tick = Callable[[int, float], float]
"""Called as tick(tokens so far, seconds since the start); returns when to call it next."""


class Pair(Protocol):
    """A loaded pair."""

    @property
    def info(self) -> PairInfo: ...
    @property
    def target(self) -> Any: ...
    @property
    def draft(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """Prompt ids: through the target's chat template where it has one.

        Raises:
            EngineError: the template or tokenizer refuses the text, or the ids are empty.
        """
        ...

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
        """One run with fresh caches; plain when num_draft_tokens is None.

        Args:
            prompt: ids, at least one.
            decoding: passed whole to either path; its max_tokens gives way to the argument.
            max_tokens: at least 1.
            num_draft_tokens: k, None for the plain path, or 0 for the speculative path without
                proposals, which only the diagnosis of a difference asks for.
            observe: note model calls, cache sizes and log probabilities; the times of such a run
                do not count.
            tick: for progress, called between tokens.

        Raises:
            EngineError: with the engine's own message.
        """
        ...

    def score(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> Scores | None:
        """One teacher-forced pass of the target over prompt + tokens; None where there is none.

        Raises:
            EngineError: with the engine's own message.
        """
        ...


@runtime_checkable
class KeepsCaches(Protocol):
    """A pair whose prompt cache can be kept for a second turn; what the gate ``reuse`` needs."""

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
        """Generate, keep the prompt cache as a server does, and go on with a second turn.

        Args:
            prompt: ids of the first turn.
            texts: what the user says in either turn.
            decoding, max_tokens, num_draft_tokens: as for ``Pair.generate``, in both turns.
            chat_template_args: of the second turn, as for ``Pair.encode``.

        Raises:
            EngineError: with the engine's own message.
        """
        ...


@runtime_checkable
class Drafts(Protocol):
    """A pair that shows what its draft alone would choose; what ``--spec-scan`` needs."""

    def choices(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> tuple[int, ...]:
        """The draft's greedy choice in place of each token, in one pass over prompt + tokens.

        Args:
            prompt: ids, at least one.
            tokens: the plain output, at least one.
            decoding: greedy, without penalties and bias.

        Raises:
            EngineError: with the engine's own message.
        """
        ...

    def spell(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """The text of each token by itself.

        Raises:
            EngineError: with the engine's own message.
        """
        ...


@runtime_checkable
class Costs(Protocol):
    """A pair whose single passes can be timed; what the prediction needs."""

    def pass_costs(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        depths: Sequence[int],
        prompt_lengths: Sequence[int],
        rounds: int = 5,
    ) -> PassCosts:
        """Time draft steps, target passes of 1 to 17 tokens, both loops and both prefills.

        Args:
            prompt: ids of real text, repeated to the lengths that are asked for.
            decoding: as for ``Pair.generate``.
            depths: tokens that the caches hold, at least 1 each, in any order.
            prompt_lengths: of the prompts whose first token is timed.
            rounds: all that is timed runs once in each; its lower quartile is kept.

        Raises:
            EngineError: caches that cannot be rewound at a depth; or the engine's own message.
        """
        ...


@runtime_checkable
class KnowsItsLaw(Protocol):
    """A pair that tells by which law its target draws; what the gate ``distribution`` needs."""

    def score_sampled(
        self,
        prompt: Sequence[int],
        tokens: Sequence[int],
        decoding: Decoding,
        ratios: Sequence[float],
    ) -> SampledScores:
        """One teacher-forced pass of the target over prompt + tokens.

        Args:
            prompt, tokens: ids, at least one each.
            decoding: its temperature is above 0.
            ratios: of other temperatures over that one.

        Raises:
            EngineError: with the engine's own message.
        """
        ...


class Engine(Protocol):
    """Loads pairs, and says what it runs on."""

    @property
    def name(self) -> str: ...

    def describe(self) -> EngineInfo:
        """Versions, device, memory limit.

        Raises:
            EngineError: the engine's packages are not there; says what to install.
        """
        ...

    def load(self, inputs: Inputs) -> Pair:
        """Load target and draft, weights evaluated.

        Pairs are loaded one after the other; the target of the one before may be used again. An
        engine whose earlier pairs do not outlive a load says so by ``holds_one = True``.

        Raises:
            EngineError: names the model and holds the loader's own message.
        """
        ...

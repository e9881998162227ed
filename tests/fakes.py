"""An engine whose outputs, times and failures are scripted, and evidence with known trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from typing import Any, Literal

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef, Prompt
from pytest_specgate.engines.base import (
    Call,
    EngineError,
    EngineInfo,
    Generation,
    ModelInfo,
    PairInfo,
    Tick,
)
from pytest_specgate.measure.blocks import Blocks, count_blocks
from pytest_specgate.measure.evidence import ArmEvidence, CaseEvidence, Evidence, arm_name
from pytest_specgate.measure.trial import Trial

GB = 10**9
Prefill = Literal["new", "old"]
Where = tuple[str, str, int]  # prompt text, arm, how often that arm had run before


# -- the loop of mlx-lm, on integers ---------------------------------------------------------------


@dataclass
class Walk:
    """One speculative run as mlx-lm makes it: flags, calls, and the true blocks."""

    flags: list[bool] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    blocks: list[tuple[int, int, str | None]] = field(default_factory=list)
    finish_reason: str | None = None


class _Cache:
    """A cache is its length here: what goes in is noted, what is refused is cut off."""

    def __init__(
        self, model: Literal["target", "draft"], calls: list[Call], *, counts: bool
    ) -> None:
        self.model: Literal["target", "draft"] = model
        self.calls, self.counts, self.length = calls, counts, 0

    def feed(self, tokens: int) -> None:
        """One forward pass."""
        offset = self.length if self.counts else None
        self.calls.append(Call(self.model, tokens, offset))
        self.length += tokens

    def prefill(self, prompt_tokens: int, step: int, form: Prefill) -> int:
        """Feed the prompt in chunks; what is left for the first block."""
        left = prompt_tokens
        while left > (1 if form == "new" else step):
            chunk = min(step, left - 1) if form == "new" else step
            self.feed(chunk)
            left -= chunk
        return left


def walk(
    matches: Sequence[bool],
    *,
    k: int,
    max_tokens: int,
    prompt_tokens: int = 5,
    ends_at: int | None = None,
    closed_at: int | None = None,
    step: int = 2048,
    form: Prefill = "new",
    target_offsets: bool = True,
    draft_offsets: bool = True,
) -> Walk:
    """Run the draft-then-verify loop.

    Args:
        matches: output position -> the draft proposes the target's token there; repeated at need.
        k: num_draft_tokens.
        max_tokens: the budget.
        prompt_tokens: length of the prompt.
        ends_at: output position of the end-of-text token.
        closed_at: tokens after which the stream is closed by its reader.
        step: prefill_step_size.
        form: ``new`` prefills all but one prompt token, ``old`` (mlx-lm 0.28) only whole steps.
        target_offsets: the target's cache knows its offset.
        draft_offsets: the draft's cache knows its offset.
    """
    out = Walk()
    target = _Cache("target", out.calls, counts=target_offsets)
    draft = _Cache("draft", out.calls, counts=draft_offsets)
    draft_input = draft.prefill(prompt_tokens, step, form)
    target_input = target.prefill(prompt_tokens, step, form)

    def emit(from_draft: bool) -> str | None:
        """One token to the reader; why it was the last one."""
        out.flags.append(from_draft)
        if ends_at is not None and len(out.flags) == ends_at + 1:
            out.finish_reason = "stop"
            return "eos"
        if len(out.flags) == max_tokens:
            out.finish_reason = "length"
            return "max_tokens"
        return "closed" if len(out.flags) == closed_at else None

    while True:
        proposed = min(k, max_tokens - len(out.flags))
        for _ in range(proposed):
            draft.feed(draft_input)
            draft_input = 1
        target.feed(target_input + proposed)
        accepted, end = 0, None
        while end is None and accepted < proposed and matches[len(out.flags) % len(matches)]:
            accepted += 1
            end = emit(True)
        if end is not None:
            out.blocks.append((proposed, accepted, end))
            return out
        end = emit(False)
        out.blocks.append((proposed, accepted, None))
        if end is not None:
            return out
        target_input = 1
        draft_input = 2 if accepted == proposed else 1
        target.length -= proposed - accepted
        draft.length -= max(proposed - accepted - 1, 0)


# -- the fake engine -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """What the target says to one prompt.

    Attributes:
        tokens: its greedy output, longer than any budget unless it ends.
        matches: for ``walk``.
        ends: the last token is the end of text.
        wrong: arm -> what that path says instead.
    """

    tokens: tuple[int, ...] = tuple(range(100, 400))
    matches: tuple[bool, ...] = (True, True, False)
    ends: bool = False
    wrong: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def text_of(tokens: Iterable[int]) -> str:
    """A letter a token."""
    return "".join(chr(ord("a") + token % 26) for token in tokens)


def steady(prompt: str, arm: str, number: int) -> float:
    """Seconds a token: plain 0.2, speculative 0.1."""
    return 0.2 if arm == "plain" else 0.1


@dataclass
class FakePair:
    """A pair that says what its scripts say, in the seconds they say.

    Attributes:
        scripts: prompt text -> script; others get ``Script()``.
        seconds: (prompt, arm, number) -> seconds a token. The number counts from 0, so with
            warmup 1 it is the number of the round, and 0 the parity pass.
        peaks: arm -> peak memory.
        raises: what a call raises, a KeyboardInterrupt as well.
        unstable: what a call says instead.
        ignores_draft: the speculative path runs the target alone.
        sees_calls: model calls are noted when observed.
        made: (prompt, arm) of every call of generate, failed ones included.
    """

    scripts: Mapping[str, Script] = field(default_factory=dict)
    seconds: Callable[[str, str, int], float] = steady
    peaks: Mapping[str, int | None] = field(default_factory=dict)
    raises: Mapping[Where, BaseException] = field(default_factory=dict)
    unstable: Mapping[Where, tuple[int, ...]] = field(default_factory=dict)
    ignores_draft: bool = False
    sees_calls: bool = True
    made: list[tuple[str, str]] = field(default_factory=list)
    target: Any = "the target"
    draft: Any = "the draft"
    tokenizer: Any = "the tokenizer"

    @property
    def info(self) -> PairInfo:
        """8 GB and 1 GB."""
        return pair_info()

    @property
    def counted(self) -> Counter[tuple[str, str]]:
        """(prompt, arm) -> how often it ran."""
        return Counter(self.made)

    def encode(self, text: str, chat_template_args: Mapping[str, Any]) -> tuple[int, ...]:
        """A token a byte, so that the prompt can be told again."""
        if not text:
            raise EngineError("the prompt is empty once it is turned into tokens")
        return tuple(text.encode())

    def score(self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding) -> None:
        """No teacher-forced pass here."""

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
        """The scripted output, in scripted time."""
        text, arm = bytes(prompt).decode(), arm_name(num_draft_tokens)
        number = self.counted[text, arm]
        self.made.append((text, arm))
        where = (text, arm, number)
        if where in self.raises:
            raise self.raises[where]
        script = self.scripts.get(text, Script())
        tokens = self.unstable.get(where, script.wrong.get(arm, script.tokens))[:max_tokens]
        stopped = script.ends and tokens[-1:] == script.tokens[-1:]
        flags: Sequence[bool] = [False] * len(tokens)
        calls: list[Call] = plain_calls(len(prompt), len(tokens))
        if num_draft_tokens is not None and not self.ignores_draft and tokens:
            run = walk(
                script.matches,
                k=num_draft_tokens,
                max_tokens=max_tokens,
                prompt_tokens=len(prompt),
                ends_at=len(tokens) - 1 if len(tokens) < max_tokens or stopped else None,
            )
            flags, calls = run.flags, run.calls
        pace = self.seconds(text, arm, number)
        times = tuple(accumulate(repeat(pace, len(tokens))))
        return Generation(
            tokens=tokens,
            text=text_of(tokens),
            from_draft=tuple(flags),
            token_times_s=times,
            e2e_s=times[-1] if times else pace,
            finish_reason="stop" if stopped or len(tokens) < max_tokens else "length",
            peak_memory_bytes=self.peaks.get(arm, 10 * GB),
            kv_bytes=(2 * 10**8, 10**8) if observe else None,
            calls=tuple(calls) if observe and self.sees_calls else None,
        )


def plain_calls(prompt_tokens: int, emitted: int) -> list[Call]:
    """Prefill of all but one token, then a call a token."""
    calls = [Call("target", prompt_tokens - 1, 0)] if prompt_tokens > 1 else []
    return calls + [Call("target", 1, prompt_tokens - 1 + i) for i in range(emitted)]


@dataclass
class FakeEngine:
    """Hands out one pair, or refuses; counts how often it was asked."""

    pair: FakePair = field(default_factory=FakePair)
    refuses: Mapping[str, str] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    name: str = "fake"

    def describe(self) -> EngineInfo:
        """A made-up device."""
        return engine_info()

    def load(self, inputs: Inputs) -> FakePair:
        """The pair, unless the target's name is among those refused."""
        assert inputs.target is not None
        self.loads.append(inputs.target.name)
        if inputs.target.name in self.refuses:
            raise EngineError(self.refuses[inputs.target.name])
        return self.pair


# -- values ----------------------------------------------------------------------------------------


def pair_info(target_bytes: int = 8 * GB, draft_bytes: int = 1 * GB) -> PairInfo:
    """Two models of these sizes."""
    return PairInfo(
        ModelInfo("org/target", target_bytes, 7_000_000_000, "bfloat16", "4-bit", "t" * 64),
        ModelInfo("org/draft", draft_bytes, 500_000_000, "bfloat16", None, "d" * 64, "abc"),
    )


def engine_info(memory_limit_bytes: int = 20 * GB) -> EngineInfo:
    """A made-up device."""
    return EngineInfo(
        {"mlx": "0.1", "mlx-lm": "0.2"}, "GPU of paper", memory_limit_bytes, "as the test says"
    )


def make_prompts(*ids: str, kind: str = "other", max_tokens: int = 8) -> tuple[Prompt, ...]:
    """Prompts with these ids; the text is ``say`` and the id."""
    return tuple(Prompt(name, f"say {name}", kind, max_tokens) for name in ids)


def make_inputs(
    prompts: tuple[Prompt, ...], *ks: int, target: str = "org/target", **decoding: Any
) -> Inputs:
    """Inputs for the fake engine."""
    return Inputs(
        target=ModelRef(target),
        draft=ModelRef("org/draft"),
        prompts=prompts,
        num_draft_tokens=ks or (3,),
        decoding=Decoding(**decoding),
        engine="fake",
    )


def make_trial(number: int, tokens: int, e2e_s: float, peak: int | None = 10 * GB) -> Trial:
    """A trial with an even pace; a single token has no decode."""
    pace = e2e_s / tokens
    several = tokens > 1
    return Trial(
        round=number,
        tokens=tokens,
        ttft_s=pace,
        decode_s=e2e_s - pace if several else None,
        e2e_s=e2e_s,
        past_first_block=(tokens - 1, e2e_s - pace) if several else None,
        peak_memory_bytes=peak,
    )


def make_arm(
    k: int | None,
    seconds: Sequence[float] = (),
    *,
    tokens: Sequence[int] = (1, 2, 3, 4),
    text: str | None = None,
    flags: Sequence[bool] | None = None,
    drafted: bool | None = True,
    peak: int | None = 10 * GB,
    broken: str | None = None,
    unstable: str | None = None,
) -> ArmEvidence:
    """An arm whose trials took these seconds; flags default to one accepted, one not."""
    if flags is None:
        flags = [k is not None and i % 2 == 0 for i in range(len(tokens))]
    generation = Generation(
        tokens=tuple(tokens),
        text=text_of(tokens) if text is None else text,
        from_draft=tuple(flags),
        token_times_s=tuple(float(i + 1) for i in range(len(tokens))),
        e2e_s=float(len(tokens)),
        finish_reason="length",
        peak_memory_bytes=peak,
        kv_bytes=(2 * 10**8, 10**8),
    )
    blocks: Blocks | None = None
    if k is not None:
        blocks = count_blocks(
            flags, num_draft_tokens=k, max_tokens=len(tokens), finish_reason="length"
        )
    return ArmEvidence(
        num_draft_tokens=k,
        generation=generation,
        blocks=blocks,
        drafted=drafted if k is not None else None,
        broken=broken,
        unstable=unstable,
        trials=tuple(
            make_trial(number, max(len(tokens), 1), value, peak)
            for number, value in enumerate(seconds, start=1)
        ),
    )


def make_case(name: str, *arms: ArmEvidence, kind: str = "other") -> CaseEvidence:
    """A prompt of eight tokens with these arms."""
    (prompt,) = make_prompts(name, kind=kind)
    return CaseEvidence(
        prompt, tuple(range(8)), {arm_name(arm.num_draft_tokens): arm for arm in arms}
    )


def failed_case(name: str, error: str) -> CaseEvidence:
    """A prompt that could not be generated."""
    (prompt,) = make_prompts(name)
    return CaseEvidence(prompt, error=error)


def timed_case(
    name: str,
    plain: Sequence[float],
    speculative: Sequence[float],
    *,
    k: int = 3,
    kind: str = "other",
    **arm: Any,
) -> CaseEvidence:
    """A prompt with both arms exact and these end-to-end seconds."""
    return make_case(name, make_arm(None, plain, **arm), make_arm(k, speculative, **arm), kind=kind)


def make_evidence(
    *cases: CaseEvidence,
    temperature: float = 0.0,
    pair: PairInfo | None = None,
    engine: EngineInfo | None = None,
    swap_growth_bytes: int | None = 0,
) -> Evidence:
    """Evidence on the made-up device."""
    return Evidence(
        cases=cases,
        decoding=Decoding(temperature=temperature),
        pair=pair or pair_info(),
        engine=engine or engine_info(),
        swap_growth_bytes=swap_growth_bytes,
    )

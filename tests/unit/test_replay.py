"""Blocks replayed from one pass of the draft, against loops written for these tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_specgate.config.plan import Prompt
from pytest_specgate.engines.base import Generation
from pytest_specgate.measure.acceptance import acceptance_of, acceptances
from pytest_specgate.measure.blocks import Block, Blocks, joined
from pytest_specgate.measure.evidence import CaseEvidence
from pytest_specgate.measure.replay import Forced, Missed, missed_tokens, replay
from tests.fakes import make_arm, make_case, walk

END = 0


@given(
    matches=st.lists(st.booleans(), min_size=40, max_size=40),
    k=st.integers(1, 16),
    max_tokens=st.integers(1, 40),
    ends_at=st.none() | st.integers(0, 39),
)
def test_blocks_of_the_loop(
    matches: list[bool], k: int, max_tokens: int, ends_at: int | None
) -> None:
    """Proposed, accepted and what cut the last block, for any budget and any end."""
    run = walk(matches, k=k, max_tokens=max_tokens, ends_at=ends_at)
    told = replay(matches[: len(run.flags)], k, max_tokens, run.finish_reason)
    assert [(b.proposed, b.accepted, b.censored) for b in told.blocks] == run.blocks
    assert told.emitted == len(run.flags)


@dataclass(frozen=True)
class Models:
    """A target and a draft whose next token hangs on all that stands before it."""

    seed: int
    agreement: int

    def target(self, context: tuple[int, ...]) -> int:
        """One of five tokens; the end is one of them."""
        return hash((self.seed, context)) % 5

    def draft(self, context: tuple[int, ...]) -> int:
        """The target's token in so many of ten contexts."""
        right = hash((context, self.seed)) % 10 < self.agreement
        return (self.target(context) + (not right)) % 5


Cut = Literal["max_tokens", "eos"]


def speculate(
    models: Models, prompt: tuple[int, ...], k: int, max_tokens: int
) -> tuple[tuple[int, ...], list[Block]]:
    """Draft and verify token by token: each side sees what it would really see."""
    out: tuple[int, ...] = ()
    blocks: list[Block] = []
    while True:
        room = min(k, max_tokens - len(out))
        guesses: tuple[int, ...] = ()
        for _ in range(room):
            guesses = (*guesses, models.draft((*prompt, *out, *guesses)))
        accepted, cut = 0, None
        while cut is None and accepted < room:
            if models.target((*prompt, *out)) != guesses[accepted]:
                break
            out, accepted = (*out, guesses[accepted]), accepted + 1
            cut = ended(out, max_tokens)
        blocks.append(Block(room, accepted, cut))
        if cut is not None:
            return out, blocks
        out = (*out, models.target((*prompt, *out)))
        if ended(out, max_tokens):
            return out, blocks


def ended(out: tuple[int, ...], max_tokens: int) -> Cut | None:
    """Why nothing follows."""
    if out[-1] == END:
        return "eos"
    return "max_tokens" if len(out) == max_tokens else None


@given(
    seed=st.integers(0, 10_000),
    agreement=st.integers(0, 10),
    k=st.integers(1, 16),
    max_tokens=st.integers(1, 30),
)
def test_one_pass_over_the_plain_output_tells_what_is_drafted(
    seed: int, agreement: int, k: int, max_tokens: int
) -> None:
    """The draft's choices on the true prefix give the blocks of a loop that drafts on its own."""
    models, prompt = Models(seed, agreement), (1, 2, 3)
    plain: tuple[int, ...] = ()
    while not plain or ended(plain, max_tokens) is None:
        plain = (*plain, models.target((*prompt, *plain)))
    output, blocks = speculate(models, prompt, k, max_tokens)
    assert output == plain
    choices = [models.draft((*prompt, *plain[:i])) for i in range(len(plain))]
    matches = [a == b for a, b in zip(choices, plain, strict=True)]
    reason = "stop" if plain[-1] == END else "length"
    assert replay(matches, k, max_tokens, reason) == Blocks(tuple(blocks), len(plain))


@pytest.mark.parametrize(
    ("matches", "reason", "blocks"),
    [
        # the end is proposed and accepted: what was drafted behind it counts as proposed
        ("TT", "stop", [Block(4, 2, "eos")]),
        # the draft does not see the end coming: the target's own token closes the block
        ("TF", "stop", [Block(4, 1)]),
        # the budget ends where a block does
        ("TTTTTT", "length", [Block(4, 4), Block(1, 1, "max_tokens")]),
        ("TTTTTF", "length", [Block(4, 4), Block(1, 0)]),
    ],
)
def test_ends_by_hand(matches: str, reason: str, blocks: list[Block]) -> None:
    """k = 4, a budget of 6; the fifth match of a block is the target's own token."""
    told = replay([char == "T" for char in matches], 4, 6, reason)
    assert list(told.blocks)[-len(blocks) :] == blocks


def output_of(text: str, tokens: tuple[int, ...], kind: str = "other") -> Forced:
    """An output of these tokens with matches written as letters."""
    choices = tuple(
        token if char == "T" else token + 1 for token, char in zip(tokens, text, strict=True)
    )
    count = len(tokens)
    generation = Generation(tokens, "", (False,) * count, (1.0,) * count, 2.0, "length")
    return Forced(Prompt("a", "a", kind), generation, choices, count)


def test_tokens_missed_most() -> None:
    """Those missed most often first, with how often they stood in an output."""
    outputs = [output_of("TFFT", (7, 7, 8, 9)), output_of("FTF", (7, 9, 8))]
    assert missed_tokens(outputs, 9) == (Missed(7, 2, 3), Missed(8, 2, 2))
    assert missed_tokens(outputs, 1) == (Missed(7, 2, 3),)
    assert missed_tokens([output_of("TT", (1, 2))], 9) == ()


def test_acceptance_by_kind_and_quarter() -> None:
    """A block counts in the quarter that its first token is in; outputs are cut one by one."""
    first = output_of("TTFTFFFF", tuple(range(8)), "json").blocks(2)
    second = output_of("FFFF", tuple(range(4)), "text").blocks(2)
    assert first.blocks == (Block(2, 2), Block(2, 1), *[Block(2, 0)] * 2, Block(1, 0))
    assert [part.blocks for part in first.quarters()] == [
        (Block(2, 2),),
        (Block(2, 1),),
        (Block(2, 0),),
        (Block(2, 0), Block(1, 0)),
    ]
    found = acceptance_of(2, [("json", first), ("text", second)])
    assert found.blocks == joined([first, second])
    assert dict(found.kinds) == {"json": first, "text": second}
    assert joined(found.quarters).proposed == found.blocks.proposed
    assert [part.emitted for part in second.quarters()] == [1, 1, 1, 1]


def test_quarters_of_an_output() -> None:
    """Five tokens at the start, three one by one."""
    blocks = Blocks((Block(4, 4), Block(3, 0), Block(2, 0), Block(1, 0)), 8)
    parts = blocks.quarters()
    assert [part.blocks for part in parts] == [
        (Block(4, 4),),
        (),
        (Block(3, 0),),
        (Block(2, 0), Block(1, 0)),
    ]
    assert [part.emitted for part in parts] == [5, 0, 1, 2]
    assert [part.blocks for part in Blocks().quarters()] == [()] * 4


def test_histogram_and_positions() -> None:
    """A censored block is no accept length; a position is judged where it was proposed."""
    blocks = Blocks((Block(3, 3), Block(3, 0), Block(3, 1), Block(2, 2, "eos")), 9)
    assert blocks.histogram == (1, 1, 0, 1)
    assert blocks.position_acceptance == (3 / 4, 2 / 4, 1 / 3)
    assert (Blocks().histogram, Blocks().position_acceptance) == ((), ())
    figures = blocks.figures()
    assert figures["histogram"] == [1, 1, 0, 1]
    assert (figures["proposed"], figures["accepted"], figures["emitted"]) == (11, 6, 9)
    assert figures["tokens_per_target_pass"] == 9 / 4


def test_acceptances_of_what_was_measured() -> None:
    """Each k where its arm is there; every k where the draft was run over plain outputs."""
    case = make_case("a", make_arm(None), make_arm(3), kind="json")
    (found,) = acceptances([case], (1, 3))
    assert found.num_draft_tokens == 3
    assert [kind for kind, _ in found.kinds] == ["json"]
    scanned = CaseEvidence(case.prompt, case.tokens, {"plain": case.plain}, choices=(1, 2, 9, 4))
    every = acceptances([scanned], (3,))
    assert [each.num_draft_tokens for each in every] == list(range(1, 17))
    assert every[1].blocks.blocks == (Block(2, 2), Block(2, 1, "max_tokens"))

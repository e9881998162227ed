"""Blocks are counted from flags and from calls, against a block loop written for these tests."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_specgate.engines.base import Call
from pytest_specgate.measure.blocks import (
    Block,
    Blocks,
    SeenBlock,
    blocks_from_calls,
    broken_invariant,
    count_blocks,
    joined,
)
from tests.fakes import Prefill, Walk, walk

_CASES = range(400)
_BATCH = 50
_batches = pytest.mark.parametrize("first", _CASES[::_BATCH])


@dataclass(frozen=True)
class Drawn:
    """One run drawn at random, and what was drawn."""

    run: Walk
    k: int
    max_tokens: int
    prompt_tokens: int

    @property
    def counted(self) -> Blocks:
        """What the code under test makes of the flags."""
        return count_blocks(
            self.run.flags,
            num_draft_tokens=self.k,
            max_tokens=self.max_tokens,
            finish_reason=self.run.finish_reason,
        )


def draw(seed: int, **fixed: Any) -> Drawn:
    """A run from a seed: budget, k, agreement, prompt length, and now and then an early end."""
    rng = random.Random(seed)
    k, max_tokens = rng.randint(1, 8), rng.randint(1, 40)
    agreement = rng.choice([0.0, 0.3, 0.6, 0.9, 1.0])
    early = rng.choice(["ends_at", "closed_at", "no", "no"])
    options: dict[str, Any] = {
        "matches": [rng.random() < agreement for _ in range(max_tokens)],
        "prompt_tokens": rng.randint(1, 30),
        "step": rng.choice([1, 4, 7, 2048]),
        "form": rng.choice(["new", "old"]),
    }
    if early != "no":
        options[early] = rng.randint(early == "closed_at", max_tokens)
    options |= fixed
    run = walk(k=k, max_tokens=max_tokens, **options)
    return Drawn(run, k, max_tokens, options["prompt_tokens"])


@_batches
def test_flags_give_the_true_blocks(first: int) -> None:
    """Proposed, accepted and what cut a block, block by block."""
    for seed in _CASES[first : first + _BATCH]:
        drawn = draw(seed)
        counted = drawn.counted
        blocks = [(b.proposed, b.accepted, b.censored) for b in counted.blocks]
        assert blocks == drawn.run.blocks, f"seed {seed}"
        assert counted.emitted == len(drawn.run.flags), f"seed {seed}"


@_batches
def test_sums_agree(first: int) -> None:
    """Every figure is the sum, the list or the quotient of the true blocks."""
    for seed in _CASES[first : first + _BATCH]:
        check_sums(draw(seed))


def check_sums(drawn: Drawn) -> None:
    """Against the true blocks of one run."""
    counted, true = drawn.counted, drawn.run.blocks
    assert counted.proposed == sum(p for p, _, _ in true)
    assert counted.accepted == sum(a for _, a, _ in true) == sum(drawn.run.flags)
    assert counted.accept_lengths == tuple(a for _, a, cut in true if cut is None)
    assert counted.position_proposed == tuple(
        sum(p >= i for p, _, _ in true) for i in range(1, max(p for p, _, _ in true) + 1)
    )
    assert counted.position_accepted == tuple(
        sum(a >= i for _, a, _ in true) for i in range(1, len(counted.position_proposed) + 1)
    )
    assert sum(counted.position_proposed) == counted.proposed
    assert sum(counted.position_accepted) == counted.accepted
    # every token is an accepted proposal or the target's own, one of which closes a block
    assert counted.emitted == counted.accepted + len(counted.accept_lengths)
    assert counted.tokens_per_target_pass == counted.emitted / len(true)


def test_the_cases_are_varied() -> None:
    """The random cases hold every way in which a run can end, and both ends of the range of k."""
    drawn = [draw(seed) for seed in _CASES]
    assert {cut for d in drawn for *_, cut in d.run.blocks} == {None, "max_tokens", "eos", "closed"}
    assert {d.k for d in drawn} == set(range(1, 9))
    cut = [p for d in drawn for p, _, _ in d.run.blocks if p < d.k]
    assert len(cut) > 50
    assert any(d.run.finish_reason == "stop" and not d.run.flags[-1] for d in drawn)
    assert sum(len(d.run.blocks) for d in drawn) > 2000


# -- by hand -----------------------------------------------------------------------------------


def flags_of(text: str) -> list[bool]:
    """``TTF`` -> [True, True, False]."""
    return [char == "T" for char in text]


def count(text: str, *, k: int, max_tokens: int, finish: str | None = "length") -> Blocks:
    """Blocks of flags written as letters."""
    return count_blocks(
        flags_of(text), num_draft_tokens=k, max_tokens=max_tokens, finish_reason=finish
    )


def test_an_output_without_a_false_is_cut_into_blocks() -> None:
    """All True up to the budget: the cap closes what no False closes."""
    blocks = count("TTT", k=3, max_tokens=3)
    assert blocks.blocks == (Block(3, 3, "max_tokens"),)
    assert blocks.accept_lengths == ()
    assert blocks.mean_accept_length is None
    assert blocks.acceptance_rate == 1.0


def test_a_budget_that_ends_inside_a_block_of_trues() -> None:
    """The last block may only propose what the budget leaves, here 2 of k = 4."""
    blocks = count("TTTTFTT", k=4, max_tokens=7)
    assert blocks.blocks == (Block(4, 4), Block(2, 2, "max_tokens"))
    # read as "Trues up to a False" this would be 4 + 4 proposed, or one block of 6
    assert (blocks.proposed, blocks.accepted) == (6, 6)


def test_the_bonus_token_fills_the_budget() -> None:
    """The target's own token as the last of the budget closes its block: nothing is censored."""
    assert count("TTF", k=2, max_tokens=3).blocks == (Block(2, 2),)
    assert count("TTFF", k=2, max_tokens=4).blocks == (Block(2, 2), Block(1, 0))


def test_end_of_text_as_a_draft_token_is_censored() -> None:
    """The target's token never came."""
    blocks = count("TFTT", k=3, max_tokens=9, finish="stop")
    assert blocks.blocks == (Block(3, 1), Block(3, 2, "eos"))
    assert blocks.accept_lengths == (1,)


def test_end_of_text_as_the_targets_own_token_is_not() -> None:
    """It closed the block as any other token does."""
    assert count("TFTF", k=3, max_tokens=9, finish="stop").blocks == (Block(3, 1), Block(3, 1))


def test_a_run_closed_early() -> None:
    """No finish reason: the block in hand is censored, a whole one is not."""
    assert count("FTT", k=4, max_tokens=9, finish=None).blocks[-1] == Block(4, 2, "closed")
    assert count("FTF", k=4, max_tokens=9, finish=None).blocks[-1] == Block(4, 1)


def test_no_output() -> None:
    """Nothing divided by zero."""
    blocks = count("", k=3, max_tokens=8, finish=None)
    assert blocks == Blocks()
    assert (blocks.proposed, blocks.accepted, blocks.emitted) == (0, 0, 0)
    assert blocks.acceptance_rate is None
    assert blocks.draft_share is None
    assert blocks.token_acceptance is None
    assert blocks.mean_accept_length is None
    assert blocks.tokens_per_target_pass is None
    assert blocks.position_proposed == blocks.position_accepted == ()


def test_the_three_shares_are_three_figures() -> None:
    """acceptance rate, draft share and per-token acceptance of one output, by hand.

    k = 4, budget 12: TTF (4 proposed, 2 accepted), F (4, 0), TTTTF (4, 4), TTT (3 left, 3, cut).
    """
    blocks = count("TTFFTTTTFTTT", k=4, max_tokens=12)
    assert blocks.blocks == (Block(4, 2), Block(4, 0), Block(4, 4), Block(3, 3, "max_tokens"))
    assert (blocks.proposed, blocks.accepted, blocks.emitted) == (15, 9, 12)
    assert blocks.acceptance_rate == 9 / 15
    assert blocks.draft_share == 9 / 12
    assert blocks.token_acceptance == 9 / (9 + 2)  # two blocks rejected a proposal
    assert blocks.accept_lengths == (2, 0, 4)
    assert blocks.mean_accept_length == 2.0
    assert blocks.tokens_per_target_pass == 3.0
    assert blocks.position_proposed == (4, 4, 4, 3)
    assert blocks.position_accepted == (3, 3, 2, 1)


def test_the_rate_falls_with_k_where_the_draft_is_the_same() -> None:
    """One draft, right at every second token: accepted / proposed falls, alpha and share do not."""
    alternating = [True, False]
    rates, alphas, shares = [], [], []
    for k in (1, 2, 4, 8):
        run = walk(alternating, k=k, max_tokens=400)
        blocks = count_blocks(
            run.flags, num_draft_tokens=k, max_tokens=400, finish_reason=run.finish_reason
        )
        rates.append(blocks.acceptance_rate)
        alphas.append(blocks.token_acceptance)
        shares.append(blocks.draft_share)
    # k = 1: T then the target's token, no proposal is ever refused; k > 1: one of k is accepted
    assert rates[0] == 1.0
    assert rates[1:] == pytest.approx([1 / 2, 1 / 4, 1 / 8], abs=0.01)
    assert alphas[0] == 1.0
    assert alphas[1:] == pytest.approx([1 / 2] * 3, abs=0.01)
    assert shares == [0.5] * 4


def test_outputs_are_joined() -> None:
    """Blocks and tokens add up, so that rates of a mix weigh every proposal alike."""
    one, other = count("TTF", k=2, max_tokens=3), count("F", k=4, max_tokens=9, finish=None)
    both = joined([one, None, other])
    assert both.blocks == (Block(2, 2), Block(4, 0))
    assert both.emitted == 4
    assert both.acceptance_rate == 2 / 6
    assert both.position_proposed == (2, 2, 1, 1)
    assert both.position_accepted == (1, 1, 0, 0)


# -- from the calls ----------------------------------------------------------------------------


@_batches
def test_calls_and_flags_agree(first: int) -> None:
    """Both forms of prefill, long and short prompts, chunks of 1, 4, 7 and 2048."""
    for seed in _CASES[first : first + _BATCH]:
        drawn = draw(seed)
        seen = blocks_from_calls(drawn.run.calls, drawn.prompt_tokens)
        true = drawn.run.blocks
        assert [(b.proposed, b.draft_calls) for b in seen] == [(p, p) for p, _, _ in true], seed
        assert [b.accepted for b in seen[:-1]] == [a for _, a, _ in true[:-1]], seed
        assert seen[-1].accepted is None
        assert explain(drawn) is None, seed


def explain(drawn: Drawn, calls: list[Call] | None = None) -> str | None:
    """What the check says of a run, or of the run with other calls."""
    return broken_invariant(
        drawn.counted,
        drawn.run.calls if calls is None else calls,
        drawn.prompt_tokens,
        num_draft_tokens=drawn.k,
    )


@pytest.mark.parametrize("form", ["new", "old"])
@pytest.mark.parametrize("prompt_tokens", [1, 2, 4, 5, 8, 9, 21])
def test_prompts_around_the_chunk_size(prompt_tokens: int, form: Prefill) -> None:
    """A one-token prompt, one chunk exactly, one more, many."""
    drawn = draw(7, prompt_tokens=prompt_tokens, step=4, form=form)
    assert explain(drawn) is None
    assert len(blocks_from_calls(drawn.run.calls, prompt_tokens)) == len(drawn.run.blocks)


def test_the_first_verify_pass_of_028_holds_the_prompt() -> None:
    """mlx-lm 0.28 prefills whole steps only: 5 prompt tokens and 3 proposals in one call."""
    run = walk([True], k=3, max_tokens=8, prompt_tokens=5, form="old")
    assert run.calls[:4] == [
        Call("draft", 5, 0),
        Call("draft", 1, 5),
        Call("draft", 1, 6),
        Call("target", 8, 0),
    ]
    assert blocks_from_calls(run.calls, 5) == [SeenBlock(3, 3, 3), SeenBlock(3, 3)]


def test_the_new_form_by_hand() -> None:
    """k = 2, the second proposal refused: the target is rewound by one, the draft is not."""
    run = walk([True, False], k=2, max_tokens=4, prompt_tokens=3)
    assert run.calls == [
        Call("draft", 2, 0),
        Call("target", 2, 0),
        Call("draft", 1, 2),
        Call("draft", 1, 3),
        Call("target", 3, 2),
        Call("draft", 1, 4),
        Call("draft", 1, 5),
        Call("target", 3, 4),
    ]
    assert blocks_from_calls(run.calls, 3) == [SeenBlock(2, 2, 1), SeenBlock(2, 2)]


@pytest.mark.parametrize(
    "blind",
    [{"target_offsets": False}, {"draft_offsets": False}, {"target_offsets": False, "form": "old"}],
)
def test_caches_without_an_offset_still_count(blind: dict[str, Any]) -> None:
    """State-space layers have no offset: proposals are checked, acceptance comes from the flags."""
    for seed in range(40):
        drawn = draw(seed, **blind)
        seen = blocks_from_calls(drawn.run.calls, drawn.prompt_tokens)
        assert [b.proposed for b in seen] == [p for p, _, _ in drawn.run.blocks]
        if "target_offsets" in blind:
            assert {b.accepted for b in seen} == {None}
        assert explain(drawn) is None


# -- faults are named --------------------------------------------------------------------------


def faulty_run(form: Prefill = "new") -> Drawn:
    """Four blocks of k = 3: accepted 1, 0, 2, 1."""
    matches = [True, False, False, True, True, False, True, False]
    run = walk(matches, k=3, max_tokens=8, prompt_tokens=6, form=form)
    assert run.blocks == [(3, 1, None), (3, 0, None), (3, 2, None), (2, 1, None)]
    return Drawn(run, 3, 8, 6)


def told(drawn: Drawn, calls: list[Call]) -> tuple[list[int], str]:
    """The numbers of the message in order, and the message."""
    message = explain(drawn, calls)
    assert message is not None
    return [int(number) for number in re.findall(r"\d+", message)], message


@pytest.mark.parametrize("form", ["new", "old"])
def test_a_cache_that_is_not_rewound(form: Prefill) -> None:
    """Refused proposals stay in the target's cache: every later offset is too large."""
    drawn = faulty_run(form)
    verifies = [i for i, call in enumerate(drawn.run.calls) if call.model == "target"]
    calls = list(drawn.run.calls)
    for i in verifies[-3:]:
        offset = calls[i].offset
        assert offset is not None
        calls[i] = replace(calls[i], offset=offset + 2)
    numbers, message = told(drawn, calls)
    assert numbers == [1, 1, 4]  # block 1, 1 accepted, moved on by 4
    assert "not rewound" in message


def test_a_cache_that_is_not_rewound_later_on() -> None:
    """The block that broke it is named."""
    drawn = faulty_run()
    last = max(i for i, call in enumerate(drawn.run.calls) if call.model == "target")
    calls = list(drawn.run.calls)
    calls[last] = replace(calls[last], offset=(calls[last].offset or 0) + 1)
    numbers, message = told(drawn, calls)
    assert numbers == [3, 2, 4]  # block 3, 2 accepted, moved on by 4
    assert "not rewound" in message


def test_a_draft_called_too_seldom() -> None:
    """The target checked three proposals, the draft made two."""
    drawn = faulty_run()
    drafts = [i for i, call in enumerate(drawn.run.calls) if call.model == "draft"]
    calls = [call for i, call in enumerate(drawn.run.calls) if i != drafts[-4]]
    numbers, message = told(drawn, calls)
    assert numbers == [3, 3, 2, 3]  # block 3, 3 to propose, 2 draft calls, 3 checked
    assert "draft" in message


def test_a_target_that_checks_too_few() -> None:
    """One proposal was never verified."""
    drawn = faulty_run()
    last = max(i for i, call in enumerate(drawn.run.calls) if call.model == "target")
    calls = list(drawn.run.calls)
    calls[last] = replace(calls[last], length=2)
    numbers, message = told(drawn, calls)
    assert numbers == [4, 2, 2, 1]  # block 4, 2 to propose, 2 draft calls, 1 checked
    assert "target" in message


def test_a_missing_target_call() -> None:
    """The blocks do not even pair up."""
    drawn = faulty_run()
    last = max(i for i, call in enumerate(drawn.run.calls) if call.model == "target")
    calls = [call for i, call in enumerate(drawn.run.calls) if i != last]
    numbers, message = told(drawn, calls)
    assert numbers == [4, 3, 3]  # 4 blocks by the flags, k = 3, 3 by the calls
    assert "blocks" in message


def test_no_calls_at_all() -> None:
    """An empty list is a disagreement, not an agreement."""
    assert told(faulty_run(), [])[0] == [4, 3, 0]


def test_flags_that_lie_are_found() -> None:
    """One accepted token flagged as the target's own: the two counts part."""
    lies = 0
    for seed in range(60):
        drawn = draw(seed, ends_at=None, closed_at=None)
        flags = list(drawn.run.flags)
        early = [i for i, flag in enumerate(flags[: len(flags) // 2]) if flag]
        if early:
            lies += 1
            flags[early[0]] = False
            lying = replace(drawn, run=replace(drawn.run, flags=flags))
            assert explain(lying) is not None, f"seed {seed}"
    assert lies > 30

"""Outputs that end early, and text that is split inside a character."""

from __future__ import annotations

from dataclasses import replace

from .cases import CASES
from .conftest import Visit
from .pairs import EMOJI_TEXT


def test_end_of_text_first(visit: Visit) -> None:
    """One token, no division by zero."""
    seen = visit("eos-first")
    assert (seen.exit, seen.parity) == (0, "passed")
    for arm in seen.case["arms"].values():
        assert len(arm["tokens"]) == 1
        assert arm["finish_reason"] == "stop"
        assert all(trial["decode_s"] is None for trial in arm["trials"])
    assert seen.verdict("speedup")["status"] == "inconclusive"


def test_end_of_text_in_a_block(visit: Visit) -> None:
    """The block is cut by the end of text, so it says nothing of accept lengths."""
    seen = visit("eos-in-block")
    assert (seen.exit, seen.parity) == (0, "passed")
    arm = seen.case["arms"]["k=8"]
    assert len(arm["tokens"]) == 6
    blocks = arm["blocks"]
    assert [cut["reason"] for cut in blocks["censored"]] == ["eos"]
    assert sum(blocks["accept_lengths"]) == blocks["count"] - 1


def test_budget_cut(visit: Visit) -> None:
    """k is larger than what may still be emitted."""
    seen = visit("budget-cut")
    assert (seen.exit, seen.parity) == (0, "passed")
    blocks = seen.case["arms"]["k=8"]["blocks"]
    assert [cut["reason"] for cut in blocks["censored"]] == ["max_tokens"]
    assert blocks["proposed"] <= 5 + 4 + 3 + 2 + 1


def test_one_token(visit: Visit) -> None:
    """No time between tokens."""
    seen = visit("one-token")
    assert (seen.exit, seen.parity) == (0, "passed")
    trials = [t for arm in seen.case["arms"].values() for t in arm["trials"]]
    assert trials
    assert all(t["decode_s"] is None and t["decode_tokens_per_s"] is None for t in trials)


def test_split_characters(visit: Visit) -> None:
    """Each token is one byte of a character: the text is whole, and equal."""
    seen = visit("emoji-split")
    assert (seen.exit, seen.parity) == (0, "passed")
    arms = seen.case["arms"]
    assert arms["plain"]["text"] == arms["k=3"]["text"]
    assert arms["plain"]["text"].startswith(EMOJI_TEXT * 2)
    blocks = arms["k=3"]["blocks"]
    assert 0 < blocks["accepted"] < blocks["proposed"]


def test_ends_that_are_ignored(visit: Visit) -> None:
    """Every output is as long as its budget, the token that would end it included."""
    row = CASES["eos-in-block"]
    whole, cut = (
        visit(replace(row, decoding=f"ignore_eos: {given}")) for given in ("true", "false")
    )
    for seen, tokens, reason in ((whole, 24, "length"), (cut, 6, "stop")):
        assert (seen.exit, seen.parity) == (0, "passed")
        for arm in seen.case["arms"].values():
            assert (len(arm["tokens"]), arm["finish_reason"]) == (tokens, reason)
    assert whole.case["arms"]["plain"]["tokens"][5] == cut.case["arms"]["plain"]["tokens"][5]

"""measure/record.py: what is known of a prompt, and what no engine may give."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Prompt
from pytest_specgate.engines.base import Generation, Scores
from pytest_specgate.measure.record import (
    Record,
    budget_of,
    key_of,
    malformed,
    malformed_prompt,
    malformed_scores,
    pass_name,
    unlike,
)
from tests.fakes import make_arm, make_prompts

GOOD = Generation(
    tokens=(5, 6, 7),
    text="abc",
    from_draft=(False, True, False),
    token_times_s=(0.5, 0.5, 1.0),
    e2e_s=1.0,
    finish_reason="length",
)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, None),
        ({"tokens": [5, 6, 7]}, None),
        ({"token_times_s": (1, 1, 1), "e2e_s": 1}, None),
        ({"text": ""}, None),
        (
            {"tokens": (), "from_draft": (), "token_times_s": ()},
            "nothing was generated: it gave no token at all",
        ),
        (
            {"tokens": (5, 6)},
            "2 tokens, 3 from_draft flags and 3 token times should be as many",
        ),
        ({"tokens": (5, -6, 7)}, "tokens must be at least 0, found -6"),
        ({"tokens": (5, 6.0, 7)}, "tokens must be a whole number, found 6.0"),
        ({"tokens": "abc"}, "tokens must be a tuple, found the text 'abc'"),
        ({"from_draft": None}, "from_draft must be a tuple, found nothing (null)"),
        ({"from_draft": (0, 1, 0)}, "from_draft must be true or false, found 0"),
        (
            {"token_times_s": (0.5, None, 1.0)},
            "token_times_s must be a number, found nothing (null)",
        ),
        (
            {"token_times_s": (0.5, math.nan, 1.0)},
            "token_times_s must be a finite number, found nan",
        ),
        ({"e2e_s": math.inf}, "e2e_s must be a finite number, found inf"),
        ({"e2e_s": "1"}, "e2e_s must be a number, found the text '1'"),
        ({"e2e_s": 0.9}, "times out of order: 0.5 s, 1.0 s, 0.9 s in all"),
        ({"token_times_s": (0.0, 0.5, 1.0)}, "times out of order: 0.0 s, 1.0 s, 1.0 s in all"),
        ({"peak_memory_bytes": 5, "kv_bytes": (0, 7)}, None),
        ({"kv_bytes": [3, 4]}, None),
        (
            {"peak_memory_bytes": "5 GB"},
            "peak_memory_bytes and kv_bytes are counts of bytes, or None: "
            "must be a whole number, found the text '5 GB'",
        ),
        (
            {"peak_memory_bytes": -1},
            "peak_memory_bytes and kv_bytes are counts of bytes, or None: "
            "must be at least 0, found -1",
        ),
        (
            {"kv_bytes": (1.5, 2)},
            "peak_memory_bytes and kv_bytes are counts of bytes, or None: "
            "must be a whole number, found 1.5",
        ),
        (
            {"kv_bytes": 7},
            "peak_memory_bytes and kv_bytes are counts of bytes, or None: "
            "'int' object is not iterable",
        ),
        ({"kv_bytes": (1,)}, "kv_bytes are two counts, the target's and the draft's"),
        ({"text": None}, "text must be text, found nothing (null)"),
        ({"text": b"abc"}, "text must be text, found b'abc'"),
    ],
)
def test_a_generation_that_cannot_be_measured_by(more: dict[str, Any], words: str | None) -> None:
    """The first thing that is wrong with it, or None."""
    assert malformed(replace(GOOD, **more)) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "nothing (null)"), ({}, "a mapping"), ((), "a list"), ("x", "the text 'x'")],
)
def test_what_is_no_generation(value: object, words: str) -> None:
    """Of whatever type."""
    assert malformed(value) == f"it gave {words} where a Generation is due"


SCORES = Scores((-1.0, -1.0), (0.0, math.inf), (0.5, 0.5), (0.1, 0.1))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (SCORES, None),
        ({}, "it gave a mapping where Scores are due"),
        (replace(SCORES, gaps=(0.0,)), "gaps must be a tuple of 2 numbers, found a list"),
        (replace(SCORES, gaps=(0.0, math.nan)), "gaps must be numbers, found nan"),
        (
            replace(SCORES, margins=(True, 0.5)),
            "margins must be numbers, found true, a truth value",
        ),
    ],
)
def test_scores_that_cannot_be_judged_by(value: object, words: str | None) -> None:
    """Of two tokens. A gap without an end is one: the target forbids that token."""
    assert malformed_scores(value, 2) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((1, 2), None),
        ([0], None),
        ((), "it gave a list where the ids of a prompt are due"),
        ("ab", "it gave the text 'ab' where the ids of a prompt are due"),
        ((1, True), "the ids of a prompt must be a whole number, found true, a truth value"),
    ],
)
def test_ids_that_are_none(value: object, words: str | None) -> None:
    """Whole numbers, at least one."""
    assert malformed_prompt(value) == words


@pytest.mark.parametrize(
    ("tokens", "text", "number", "words"),
    [
        ((5, 6, 7), "abc", 3, None),
        ((5, 9, 7), "abc", 3, "round 3 differs from the parity pass at output token 1"),
        ((5, 6), "ab", 3, "round 3 differs from the parity pass at output token 2"),
        ((5, 6, 7, 8), "abcd", 3, "round 3 differs from the parity pass at output token 3"),
        ((5, 6, 7), "abd", 1, "round 1 differs from the parity pass at output token 3"),
        (
            (9, 6, 7),
            "abc",
            0,
            "a further warm-up pass differs from the parity pass at output token 0",
        ),
    ],
)
def test_a_timed_run_unlike_the_parity_pass(
    tokens: tuple[int, ...], text: str, number: int, words: str | None
) -> None:
    """Where it differs first; an output that ends early differs where it ends."""
    assert unlike(replace(GOOD, tokens=tokens, text=text), GOOD, number) == words


def test_the_name_of_a_pass() -> None:
    """Round 0 is none."""
    assert [pass_name(number) for number in (0, 1, 12)] == [
        "a further warm-up pass",
        "round 1",
        "round 12",
    ]


def test_the_key_of_a_prompt() -> None:
    """Its id, its text and its budget; its kind decides no output."""
    prompt = Prompt("a", "say a", "json", 8)
    assert key_of(prompt) == key_of(replace(prompt, kind="other")) == ("a", "say a", 8)
    assert budget_of(prompt) == 8
    with pytest.raises(ValueError, match="prompt 'a' has no max_tokens"):
        budget_of(replace(prompt, max_tokens=None))


def test_what_is_known_of_a_prompt() -> None:
    """Arms in the order of k, cut to those asked for; the first error of them."""
    (prompt,) = make_prompts("a")
    arms = {"k=5": make_arm(5, [1.0]), "plain": make_arm(None, [2.0]), "k=1": make_arm(1, [1.0])}
    record = Record(prompt, "exact", {5: 4, 1: 0, 3: 9}, (1, 2), arms, {"k=3": "no kernel"})
    assert (record.least_rounds, record.rounds) == (9, 1)
    case = record.case()
    assert list(case.arms) == ["plain", "k=1", "k=5"]
    assert (case.error, case.broke_in_round) == ("no kernel", False)
    part = record.case({"plain", "k=5"})
    assert (list(part.arms), part.error) == (["plain", "k=5"], None)
    record.errors = {"k=5": "round 2: no kernel"}
    assert (record.case().error, record.case().broke_in_round) == ("round 2: no kernel", True)


def test_nothing_is_known_of_a_prompt() -> None:
    """No arm, no round, nothing asked for."""
    (prompt,) = make_prompts("a")
    record = Record(prompt, "scored")
    assert (record.least_rounds, record.rounds) == (0, 0)
    assert (dict(record.case().arms), record.case().error, record.case().mode) == (
        {},
        None,
        "scored",
    )

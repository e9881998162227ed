"""A measurement is right when it equals what the constructed pair is known to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pytest_specgate.demo.constructed import Oracle, PairRecipe

from ..conftest import ConstructedPair
from .conftest import Gate

KS = (1, 2, 3, 5, 8)
MAX_TOKENS = 40


@dataclass
class Expected:
    """Blocks of one run, counted by walking the oracle's two tables."""

    tokens: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    accept_lengths: list[int] = field(default_factory=list)
    position_proposed: list[int] = field(default_factory=lambda: [0] * 8)
    position_accepted: list[int] = field(default_factory=lambda: [0] * 8)


def walk(oracle: Oracle, last: int, k: int) -> Expected:
    """What mlx-lm must do, block by block."""
    out, end = Expected(), 0
    while len(out.tokens) < MAX_TOKENS and (not out.tokens or out.tokens[-1] != end):
        room = min(k, MAX_TOKENS - len(out.tokens))
        guesses, here = [], last
        for _ in range(room):
            guesses.append(here := oracle.draft_next[here])
        hits, ended = 0, False
        while hits < room and guesses[hits] == oracle.target_next[last]:
            last, hits = guesses[hits], hits + 1
            out.tokens.append(last)
            if last == end:
                ended = True
                break
        out.proposed += room
        out.accepted += hits
        for i in range(room):
            out.position_proposed[i] += 1
            out.position_accepted[i] += i < hits
        if not ended and len(out.tokens) < MAX_TOKENS:
            out.accept_lengths.append(hits)
            out.tokens.append(last := oracle.target_next[last])
    return out


@pytest.mark.parametrize("ends", [False, True], ids=["endless", "ends"])
@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.8, 1.0])
def test_blocks_equal_the_oracle(
    gate: Gate,
    prompts: Callable[..., str],
    constructed: Callable[[PairRecipe], ConstructedPair],
    agreement: float,
    ends: bool,
) -> None:
    """Tokens, acceptance and histogram of every k, to the last digit."""
    folder, oracle = constructed(
        PairRecipe(agreement=agreement, target_layers=2, ends=ends, seed=int(ends))
    )
    result, report = gate(
        folder,
        *("--spec-prompts", prompts(one="Say what a list is.", two="水為什麼會結冰")),
        *("--spec-num-draft-tokens", ",".join(map(str, KS)), "--spec-max-tokens", str(MAX_TOKENS)),
        *("-k", "parity"),
    )
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    assert report["status"] == "passed"
    for case in report["cases"]:
        plain = case["arms"]["plain"]["tokens"]
        before_first = [
            t for t in range(len(oracle.target_next)) if oracle.target_next[t] == plain[0]
        ]
        assert len(before_first) >= 1
        last = before_first[0]
        assert plain == oracle.greedy(last, MAX_TOKENS)
        for k in KS:
            arm, known = case["arms"][f"k={k}"], walk(oracle, last, k)
            blocks = arm["blocks"]
            assert arm["tokens"] == known.tokens == plain
            assert blocks["proposed"] == known.proposed
            assert blocks["accepted"] == known.accepted
            assert blocks["accept_lengths"] == known.accept_lengths
            wide = len(blocks["position_proposed"])
            assert blocks["position_proposed"] == known.position_proposed[:wide]
            assert blocks["position_accepted"] == known.position_accepted[:wide]
            assert known.position_proposed[wide:] == [0] * (8 - wide)
            assert arm["broken_invariant"] is None


def test_a_draft_that_is_always_wrong_is_shown_not_hidden(
    gate: Gate, constructed: Callable[[PairRecipe], ConstructedPair], prompts: Callable[..., str]
) -> None:
    """Acceptance 0: the output is right, the acceptance gate is red, the figure is there."""
    folder, _ = constructed(PairRecipe(agreement=0.0, target_layers=2))
    result, report = gate(
        folder,
        *("--spec-prompts", prompts(one="Say what a list is."), "--spec-max-tokens", "24"),
        *("--spec-gates", _gates("gates: {parity: {}, acceptance: {min: 0.1}}")),
    )
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    acceptance = next(v for v in report["verdicts"] if v["gate"] == "acceptance")
    assert (acceptance["status"], acceptance["observed"]) == ("failed", 0.0)
    assert report["cases"][0]["arms"]["k=3"]["blocks"]["accepted"] == 0
    result.stdout.fnmatch_lines(["*accepts 0.000 of the proposed tokens, the limit is 0.10*"])


def _gates(text: str) -> str:
    from pathlib import Path

    path = Path("own-gates.yaml")
    path.write_text(f"version: 1\n{text}\n", encoding="utf-8")
    return str(path)

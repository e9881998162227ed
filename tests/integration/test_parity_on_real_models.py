"""Pairs with real faults turn the session red, and a saved case shows them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specgate import replay

from .conftest import Gate

SHORT = ("--spec-max-tokens", "60", "-k", "parity")
ANYWAY = "--spec-no-preflight"  # which would see the window coming


def test_window_crossed_is_red_and_replays(
    gate: Gate,
    window_pairs: dict[int, Path],
    prompts: Callable[..., str],
    pytester: pytest.Pytester,
) -> None:
    """A sliding cache that cannot be rewound: both texts, the case saved, seen again."""
    options = ("--spec-prompts", prompts(crossed="abc"), "--spec-num-draft-tokens", "1,3,5", *SHORT)
    result, report = gate(window_pairs[24], ANYWAY, *options)
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "parity[[]crossed[]] failed: cache-corruption: the target's cache stops rewinding*",
            "*plain  *|*",
            "*spec   *|*",
            "*first difference *(k = 1)*(k = 3)*(k = 5)*",
            "*plain ids *|*",
            "*Replay: pytest --spec-replay .specgate/failures/crossed.json*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    (case,) = report["cases"]
    first = case["first_difference"]
    assert first["k=5"] <= first["k=3"] <= first["k=1"]
    plain, spec = case["arms"]["plain"]["tokens"], case["arms"]["k=3"]["tokens"]
    assert plain[: first["k=3"]] == spec[: first["k=3"]]
    assert plain[first["k=3"]] != spec[first["k=3"]]
    assert "not rewound" in case["arms"]["k=3"]["broken_invariant"]

    saved = pytester.path / ".specgate" / "failures" / "crossed.json"
    assert json.loads(saved.read_text())["first_difference"] == first
    again = pytester.runpytest(ANYWAY, "--spec-replay", str(saved))
    assert again.ret == 1
    again.assert_outcomes(failed=1)
    evidence = replay(saved, preflight=False)
    assert not evidence.exact
    assert {
        f"k={p.num_draft_tokens}": p.first_difference for p in evidence.cases[0].parity()
    } == first


def test_window_not_crossed_is_green(
    gate: Gate,
    window_pairs: dict[int, Path],
    prompts: Callable[..., str],
    pytester: pytest.Pytester,
) -> None:
    """The same model with a window that is never full."""
    options = ("--spec-prompts", prompts(inside="abc"), "--spec-num-draft-tokens", "1,3,5", *SHORT)
    result, report = gate(window_pairs[512], *options)
    assert result.ret == 0
    result.assert_outcomes(passed=1)
    assert not (pytester.path / ".specgate").exists()
    blocks = report["cases"][0]["arms"]["k=3"]["blocks"]
    assert 0 < blocks["accepted"] < blocks["proposed"]


def test_a_prompt_that_fails_parity_is_not_timed(
    gate: Gate, window_pairs: dict[int, Path], prompts: Callable[..., str]
) -> None:
    """Speed of a wrong output means nothing: no trial, and the timing gates are not green."""
    options = ("--spec-prompts", prompts(crossed="abc"), "--spec-max-tokens", "40")
    result, report = gate(window_pairs[24], ANYWAY, *options, "--spec-rounds", "2")
    assert result.ret == 1
    statuses = {v["gate"]: v["status"] for v in report["verdicts"] if v["gate"] != "preflight"}
    assert statuses == dict.fromkeys(("parity", "speedup", "latency", "memory"), "failed")
    assert all(arm["trials"] == [] for arm in report["cases"][0]["arms"].values())
    result.stdout.fnmatch_lines(
        ["*none of 1 prompts gave an output on both paths that can be trusted*"]
    )


def test_no_case_is_written_outside_its_folder(
    gate: Gate,
    window_pairs: dict[int, Path],
    prompts: Callable[..., str],
    pytester: pytest.Pytester,
) -> None:
    """An id is a name, not a path."""
    names = ["../../x", "a/b", "zh 一", "con:1", ".hidden"]
    before = set(pytester.path.parent.iterdir())
    options = ("--spec-prompts", prompts(**dict.fromkeys(names, "abc")), "--spec-max-tokens", "40")
    result, _ = gate(window_pairs[24], ANYWAY, *options, "-k", "parity")
    assert result.ret == 1
    folder = pytester.path / ".specgate" / "failures"
    saved = list(folder.iterdir())
    assert {path.resolve().parent for path in saved} == {folder.resolve()}
    assert set(pytester.path.parent.iterdir()) == before
    assert sorted(json.loads(p.read_text())["prompt"]["id"] for p in saved) == sorted(names)

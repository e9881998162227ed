"""Caches that cannot be rewound."""

from __future__ import annotations

from importlib import import_module

import pytest

from .conftest import Visit


def test_window_crossed(visit: Visit) -> None:
    """Pre-flight names the window and the length, and nothing is generated."""
    seen = visit("window-crossed")
    assert seen.exit == 1
    assert seen.parity == "failed"
    assert seen.kind is None
    assert [line for line in seen.preflight_errors if "target cache" in line] == [
        "error case: target cache: its RotatingKVCache (window 24) cannot be rewound once it is "
        "full, and prompt + max_tokens is 87 tokens"
    ]
    assert seen.case["arms"] == {}


def test_window_crossed_all_the_same(visit: Visit) -> None:
    """The output parts sooner for larger k, which is no rounding; pre-flight's error stays."""
    seen = visit("window-crossed-short", preflight=False)
    assert seen.exit == 1
    assert (seen.parity, seen.kind) == ("failed", "cache-corruption")
    assert seen.first_difference == {"k=1": 17, "k=3": 15, "k=5": 13}
    assert seen.verdict("parity")["evidence"]["rewind_probe"] == ["RotatingKVCache"]
    assert seen.preflight_errors
    assert "stops rewinding" in seen.text


def test_window_not_crossed(visit: Visit) -> None:
    """The same text length under a wide window: no finding, exact."""
    seen = visit("window-not-crossed")
    assert (seen.exit, seen.parity, seen.kind) == (0, "passed", None)
    assert seen.preflight_errors == []
    assert not any("cache" in line for line in seen.preflight)
    blocks = seen.case["arms"]["k=3"]["blocks"]
    assert 0 < blocks["accepted"] < blocks["proposed"]


@pytest.mark.parametrize("preflight", [True, False])
def test_window_self_draft(visit: Visit, preflight: bool) -> None:
    """Nothing is rejected, so the text is equal; the session is red all the same."""
    seen = visit("window-self-draft", preflight=preflight)
    assert seen.exit == 1
    assert len(seen.preflight_errors) == 2
    assert any("no cache is ever rewound" in line for line in seen.preflight)
    assert seen.parity == ("failed" if preflight else "passed")


def test_prompt_over_window(visit: Visit) -> None:
    """A prompt that fills the window by itself."""
    seen = visit("prompt-over-window")
    assert (seen.exit, seen.parity) == (1, "failed")
    assert any("prompt + max_tokens is 72" in line for line in seen.preflight_errors)
    seen = visit("prompt-over-window", preflight=False)
    assert (seen.parity, seen.kind) == ("failed", "cache-corruption")
    assert seen.first_difference["k=3"] in range(4)


@pytest.mark.parametrize("case", ["hybrid-target", "ssm-target"])
def test_target_with_a_state(visit: Visit, case: str) -> None:
    """Refused before anything is generated; else mlx-lm itself refuses it (since 0.31.2)."""
    seen = visit(case)
    assert (seen.exit, seen.parity) == (1, "failed")
    assert "error target cache: its ArraysCache cannot be rewound" in seen.preflight_errors
    assert seen.case["arms"] == {}
    seen = visit(case, preflight=False)
    assert (seen.exit, seen.parity) == (1, "failed")
    assert seen.preflight_errors


@pytest.mark.parametrize(
    ("case", "cache"),
    [("hybrid-target", "ArraysCache"), ("ssm-target", "ArraysCache")],
)
def test_target_with_a_state_let_through(
    visit: Visit, case: str, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mlx-lm up to 0.31.1 did: a state has no offset to drift, but the probe sees it."""
    generate = import_module("mlx_lm.generate")  # the name mlx_lm.generate is a function
    monkeypatch.setattr(generate, "can_trim_prompt_cache", lambda _: True)
    seen = visit(case, preflight=False)
    assert (seen.exit, seen.parity, seen.kind) == (1, "failed", "cache-corruption")
    assert seen.verdict("parity")["evidence"]["rewind_probe"] == [cache]
    assert f"rewind probe       {cache} cannot be rewound at the first difference" in seen.text


def test_draft_with_a_state(visit: Visit) -> None:
    """mlx-lm takes it without a word; the output is equal and little is accepted."""
    seen = visit("ssm-draft")
    assert (seen.exit, seen.parity) == (1, "failed")
    assert seen.preflight_errors == ["error draft cache: its ArraysCache cannot be rewound"]
    seen = visit("ssm-draft", preflight=False)
    assert (seen.exit, seen.parity, seen.kind) == (1, "passed", None)
    assert seen.preflight_errors
    assert seen.case["arms"]["k=3"]["blocks"]["acceptance_rate"] < 0.2

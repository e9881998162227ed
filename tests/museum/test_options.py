"""Options that reach one path only, and sampling left on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cases import CASES
from .conftest import Visit


def test_penalty(visit: Visit) -> None:
    """The speculative path's processors see the prompt's last token alone."""
    seen = visit(replace(CASES["penalty"], k="1,3"))
    assert (seen.exit, seen.parity, seen.kind) == (1, "failed", "options-differ")
    assert seen.first_difference == {"k=1": 3, "k=3": 3}
    assert seen.preflight_errors == []


@pytest.mark.parametrize("case", ["penalty-one-token-prompt", "logit-bias"])
def test_processors_that_hold(visit: Visit, case: str) -> None:
    """A prompt of one token hides nothing, and a bias needs no context."""
    seen = visit(case)
    assert (seen.exit, seen.parity, seen.kind) == (0, "passed", None)
    assert seen.preflight_errors == []


def test_random_target(visit: Visit) -> None:
    """Temperature in one path: it does not give its own output again."""
    seen = visit("random-target")
    assert (seen.exit, seen.parity, seen.kind) == (1, "failed", "non-deterministic")
    assert seen.preflight_errors == []


def test_no_limit(visit: Visit) -> None:
    """mlx-lm's speculative path cannot: refused as a wrong option."""
    seen = visit("no-limit")
    assert seen.exit == 4
    assert seen.report == {}


def test_empty_prompt(visit: Visit) -> None:
    """Nothing to continue: refused before a model is loaded."""
    seen = visit("empty-prompt")
    assert seen.exit == 4
    assert seen.report == {}

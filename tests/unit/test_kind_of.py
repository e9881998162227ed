"""Which kind the signals of a difference point to, and which signal is asked first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.engines.base import Call, Scores
from pytest_specgate.measure.diagnosis import Check, Diagnosis, Kind, cache_drift, kind_of

ROWS = 1024
WIDE = Check(Scores((-1.0,), (3.0,), (3.0,), (1e-7,)), floor=1e-6, ties=(), wide=(0,))
TIE = replace(WIDE, wide=(), ties=(0,))
NO_SIGNAL = Diagnosis(
    plain_repeats=True,
    speculative_repeats=True,
    zero_draft_equal=True,
    differences={1: 9, 3: 9, 7: 9},
    drift=((0, 0), (3, 0)),
    check=WIDE,
    stuck=(),
)
STUCK = ("ArraysCache",)


@pytest.mark.parametrize(
    ("signals", "kind"),
    [
        ({}, "unexplained"),
        ({"stuck": None}, "unexplained"),
        ({"stuck": STUCK}, "cache-corruption"),
        ({"differences": {1: 17, 3: 15, 7: 13}}, "cache-corruption"),
        ({"drift": ((0, 0), (3, 2))}, "cache-corruption"),
        ({"check": TIE}, "near-tie"),
        ({"check": TIE, "stuck": STUCK}, "near-tie"),
        ({"zero_draft_equal": False, "stuck": STUCK}, "options-differ"),
        ({"speculative_repeats": False, "stuck": STUCK}, "non-deterministic"),
        ({"plain_repeats": False, "stuck": STUCK}, "non-deterministic"),
    ],
)
def test_kind(signals: dict[str, Any], kind: Kind) -> None:
    """A cache that cannot be rewound explains only what no surer signal does."""
    assert kind_of(replace(NO_SIGNAL, **signals), largest_proposal=5, rows=ROWS) == kind


def test_ids_out_of_range() -> None:
    """Asked before the repeats: what is read past the end may be anything."""
    broken = replace(NO_SIGNAL, speculative_repeats=False, stuck=STUCK)
    assert kind_of(broken, largest_proposal=ROWS, rows=ROWS) == "out-of-range-ids"


def test_drift() -> None:
    """Offsets of the target's calls against what prompt and emitted tokens make them."""
    offsets = (0, 6, 8)
    calls = [Call("target", length, at) for length, at in zip((6, 4, 4), offsets, strict=True)]
    assert cache_drift(calls, (1, 1), prompt_tokens=7) == ((0, 0), (2, 0))
    calls[-1] = Call("target", 4, 10)
    assert cache_drift(calls, (1, 1), prompt_tokens=7) == ((0, 0), (2, 2))


def test_drift_of_a_state() -> None:
    """A cache without an offset shows no ledger, which is not a constant one."""
    assert cache_drift([Call("target", 6, None), Call("target", 4, None)], (1,), 7) == ()

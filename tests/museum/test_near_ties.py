"""Rounding is told from a fault: by its size, and never the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_specgate.config.plan import ParityMode

from .campaigns import inputs_of, judged, kinds, measured, prompt_ids
from .conftest import Visit
from .pairs import pair_folder

TOKENS = 60


@pytest.mark.parametrize(
    ("pair", "engine", "eps", "prompts"),
    [
        ("flat", "near-tie-small", 1e-3, 4),
        ("dense", "near-tie", 1e-2, 5),
        ("dense", "near-tie-large", 1e-1, 3),
    ],
)
def test_rounding_is_named(
    museum_models: Path, pair: str, engine: str, eps: float, prompts: int
) -> None:
    """At least 95 % of the outputs that part are near ties, within the eps that was put in."""
    texts = [prompt_ids(i, 5 + i) for i in range(prompts)]
    folder = pair_folder(museum_models, pair)
    inputs = inputs_of(folder, texts, k=(2,), max_tokens=TOKENS, engine=engine, mode="tie_aware")
    evidence = measured(inputs)
    exact, aware = judged(evidence), judged(evidence, "tie_aware")
    parted = [name for name, verdict in exact.items() if verdict.status == "failed"]
    assert parted
    ties = [name for name in parted if exact[name].kind == "near-tie"]
    assert len(ties) >= 0.95 * len(parted)
    for case in evidence.cases:
        diagnosis = case.arms["k=2"].diagnosis
        if case.prompt.id in ties:
            assert diagnosis is not None
            assert diagnosis.check is not None
            assert diagnosis.check.largest_gap <= 2 * eps
            verdict = aware[case.prompt.id]
            assert (verdict.status, verdict.kind) == ("passed", "near-tie")
            assert verdict.evidence["near_ties"] >= 1
            assert "near tie" in verdict.reason
        else:
            assert aware[case.prompt.id].status == exact[case.prompt.id].status


def test_a_fault_is_never_rounding(museum_models: Path) -> None:
    """As rare as rounding, but wide: failed in both modes, and called something else."""
    texts = [prompt_ids(i, 5 + i) for i in range(4)]
    folder = pair_folder(museum_models, "dense")
    evidence = measured(
        inputs_of(folder, texts, k=(3,), max_tokens=40, engine="wide-fault", mode="tie_aware")
    )
    modes: tuple[ParityMode, ...] = ("exact", "tie_aware")
    for mode in modes:
        named = kinds(judged(evidence, mode).values())
        assert len(named) == len(texts)
        assert "near-tie" not in named


def test_near_tie_in_a_session(visit: Visit) -> None:
    """Exact fails and names it; the first difference does not depend on k."""
    seen = visit("near-tie")
    assert (seen.exit, seen.parity, seen.kind) == (1, "failed", "near-tie")
    first = seen.first_difference
    assert first["k=1"] is not None
    assert len(set(first.values())) == 1
    assert seen.preflight_errors == []


@pytest.mark.parametrize("case", ["near-tie-aware", "near-tie-shared"])
def test_near_tie_let_through(visit: Visit, case: str) -> None:
    """tie_aware passes, and says how many it let through."""
    seen = visit(case)
    assert (seen.exit, seen.parity, seen.kind) == (0, "passed", "near-tie")
    verdict = seen.verdict("parity")
    assert verdict["evidence"]["near_ties"] >= 1
    assert "near tie" in verdict["reason"]


@pytest.mark.parametrize("case", ["wide-fault", "wide-fault-aware"])
def test_wide_fault_in_a_session(visit: Visit, case: str) -> None:
    """Red in either mode."""
    seen = visit(case)
    assert (seen.exit, seen.parity) == (1, "failed")
    assert seen.kind == "unexplained"
    assert seen.verdict("parity")["evidence"]["rewind_probe"] == []
    assert seen.preflight_errors == []

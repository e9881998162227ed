"""Drafts that are wrong, ignored, or speak another vocabulary."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .cases import CASES
from .conftest import Visit
from .sessions import Outcome


def test_larger_vocabulary(visit: Visit) -> None:
    """Refused before anything is generated."""
    seen = visit("vocab-larger-draft")
    assert (seen.exit, seen.parity) == (1, "failed")
    (error,) = seen.preflight_errors
    assert "4096 embedding rows, the target has 256" in error
    assert seen.case["arms"] == {}


def test_larger_vocabulary_all_the_same(
    pytester: pytest.Pytester,
    museum_models: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """In a process of its own, since ids out of range may end it: told, or dead, never green."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))
    arguments = CASES["vocab-larger-draft"].arguments(museum_models, pytester.path, preflight=False)
    result = pytester.run(sys.executable, "-m", "pytest", *arguments)
    seen = Outcome.read(int(result.ret), pytester.path, result.stdout.str())
    assert seen.exit != 0
    if seen.report:
        assert (seen.parity, seen.kind) in {("failed", "out-of-range-ids"), ("passed", None)}
        assert seen.preflight_errors


def test_smaller_vocabulary(visit: Visit) -> None:
    """It cannot propose some tokens; the text is right."""
    seen = visit("vocab-smaller-draft")
    assert (seen.exit, seen.parity) == (0, "passed")
    assert any(
        line.startswith("warning draft vocabulary: 200 embedding rows") for line in seen.preflight
    )


def test_always_wrong(visit: Visit) -> None:
    """Right text, and an acceptance of 0 that is shown."""
    seen = visit("draft-always-wrong")
    assert (seen.exit, seen.parity) == (1, "passed")
    blocks = seen.case["arms"]["k=5"]["blocks"]
    assert (blocks["accepted"], blocks["acceptance_rate"]) == (0, 0.0)
    assert blocks["proposed"] > 0
    assert seen.verdict("speedup")["status"] != "passed"
    acceptance = seen.verdict("acceptance")
    assert (acceptance["status"], acceptance["observed"]) == ("failed", 0.0)
    assert "accepted 0 of" in seen.text


def test_nothing_drafted(visit: Visit) -> None:
    """An engine that leaves the draft out is not a pass."""
    seen = visit("nothing-drafted")
    assert (seen.exit, seen.parity) == (1, "failed")
    assert "nothing was drafted" in seen.verdict("parity")["reason"]


def test_flaky_draft(visit: Visit) -> None:
    """The text does not depend on the draft."""
    seen = visit("flaky-draft")
    assert (seen.exit, seen.parity, seen.kind) == (0, "passed", None)


def test_shifted_tokenizer(visit: Visit) -> None:
    """Ids that mean other text: the first text and its ids are shown."""
    seen = visit("tokenizer-shifted")
    assert (seen.exit, seen.parity) == (1, "failed")
    (error,) = seen.preflight_errors
    assert error.startswith("error draft tokenizer: ")
    ours, theirs = (side.split("]")[0].split() for side in error.split("[")[1:3])
    assert [int(n) + 1 for n in ours] == [int(n) for n in theirs]
    seen = visit("tokenizer-shifted", preflight=False)
    assert (seen.exit, seen.parity) == (1, "passed")
    assert seen.preflight_errors


def test_other_template(visit: Visit) -> None:
    """A note: only the target's is used."""
    seen = visit("template-differs")
    assert (seen.exit, seen.parity) == (0, "passed")
    assert any(line.startswith("note draft chat template") for line in seen.preflight)
    assert seen.preflight_errors == []


def test_truncated_weights(visit: Visit) -> None:
    """One paragraph, no traceback."""
    seen = visit("truncated-weights")
    assert (seen.exit, seen.parity) == (1, "failed")
    assert "model.safetensors is cut short" in seen.verdict("parity")["reason"]
    assert "Traceback" not in seen.text

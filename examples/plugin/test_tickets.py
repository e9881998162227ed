"""Tests of a project that extends specgate; the last one needs no specgate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tickets import TICKETS

if TYPE_CHECKING:
    from pytest_specgate import Evidence


@pytest.mark.spec_median_ttft(max_seconds=0.2)
def test_first_token_of_a_ticket(spec_evidence: Evidence) -> None:
    """The project's own gate as a marker."""
    assert {case.prompt.kind for case in spec_evidence.cases} == {"ticket"}
    assert spec_evidence.acceptance_rate is not None
    assert 0.5 < spec_evidence.acceptance_rate < 1


@pytest.mark.spec_acceptance(min=0.6)
@pytest.mark.spec_inputs(prompts="tickets", num_draft_tokens=[1, 5])
def test_few_and_many_draft_tokens(spec_evidence: Evidence) -> None:
    """Gates of both kinds share one engine and one store of evidence."""
    assert spec_evidence.exact


def test_tickets_end_like_sentences() -> None:
    """An ordinary test of the project."""
    assert all(text.endswith((".", "?")) for text in TICKETS.values())

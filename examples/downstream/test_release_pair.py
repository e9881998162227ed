"""What this project asks of its pair before a release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_specgate import spec_inputs, spec_parity, spec_speedup

if TYPE_CHECKING:
    from pytest_specgate import Evidence, Prompt

PROMPT = "def fibonacci(n: int) -> list[int]:"


@spec_parity
@spec_speedup(min=1.15)
def test_release_pair(spec_evidence: Evidence) -> None:
    """Exact and faster; the markers judge, the body looks further at the same evidence."""
    for k in spec_evidence.num_draft_tokens:  # figures of several k do not mix
        rate = spec_evidence.for_arm(k).acceptance_rate
        assert rate is not None
        assert rate > 0.5


def test_one_prompt_by_hand(spec_compare: Callable[..., Any]) -> None:
    """One prompt on both paths, for what no gate asks."""
    result = spec_compare(PROMPT, max_tokens=48, num_draft_tokens=4)
    assert result.parity.exact
    assert result.plain.text == result.speculative.text
    assert len(result.blocks.blocks) < len(result.plain.tokens), "the draft saved no target pass"


@spec_parity
@spec_inputs(prompts="prompts.jsonl", kinds=["python", "json"])
def test_structured_output(spec_evidence: Evidence, spec_prompts: tuple[Prompt, ...]) -> None:
    """The kinds that a parser reads, untimed: exact, and the draft is of some use to each."""
    assert len(spec_evidence.cases) == len(spec_prompts)
    for case in spec_evidence.cases:
        for arm in case.speculative:
            assert any(arm.generation.from_draft), f"no token of {case.prompt.id} came from it"

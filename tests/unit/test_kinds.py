"""measure/kinds.py: medians of each kind of prompt."""

from __future__ import annotations

from pytest_specgate.measure.kinds import KindRow, kind_rows
from tests.fakes import failed_case, make_arm, make_case, timed_case


def test_the_figures_of_a_kind() -> None:
    """Four tokens a trial, so three after the first: medians over all trials of both prompts.

    Seconds a trial are 4, 4, 8, 8 plain and 2, 2, 2, 2 speculative; ratios 2, 2, 4, 4. Each prompt
    has 5 proposed and 2 accepted tokens, in two blocks of one accepted token each.
    """
    cases = [
        timed_case("a", [4.0, 4.0], [2.0, 2.0], kind="json"),
        timed_case("b", [8.0, 8.0], [2.0, 2.0], kind="json"),
    ]
    (row,) = kind_rows(cases, (3,))
    assert row == KindRow(
        kind="json",
        num_draft_tokens=3,
        prompts=2,
        plain_tokens_per_s=0.75,
        speculative_tokens_per_s=2.0,
        speedup=3.0,
        acceptance_rate=0.4,
        mean_accept_length=1.0,
        ttft_s=0.5,
    )


def test_a_row_for_each_k_and_kind_in_the_order_of_the_prompts() -> None:
    """Only of cases that hold both arms."""
    cases = [
        make_case("a", make_arm(None), make_arm(1), make_arm(5), kind="python"),
        make_case("b", make_arm(None), make_arm(1), kind="json"),
        make_case("c", make_arm(5), kind="scored"),
        failed_case("d", "no kernel"),
    ]
    rows = kind_rows(cases, (1, 5, 7))
    assert [(row.num_draft_tokens, row.kind, row.prompts) for row in rows] == [
        (1, "python", 1),
        (1, "json", 1),
        (5, "python", 1),
    ]


def test_figures_that_are_not_there() -> None:
    """Before any round; of a single token there is no decode, only an end-to-end ratio."""
    (row,) = kind_rows([make_case("a", make_arm(None), make_arm(3))], (3,))
    figures = (row.plain_tokens_per_s, row.speculative_tokens_per_s, row.speedup, row.ttft_s)
    assert figures == (None, None, None, None)
    (row,) = kind_rows([timed_case("a", [1.0], [0.5], tokens=(1,))], (3,))
    assert (row.plain_tokens_per_s, row.speculative_tokens_per_s) == (None, None)
    assert (row.speedup, row.ttft_s) == (2.0, 0.5)


def test_nothing_was_measured() -> None:
    """No row."""
    assert kind_rows([], (3,)) == []
    assert kind_rows([make_case("a", make_arm(None), make_arm(3))], ()) == []

"""Likelihood ratios against a law, and two arms compared by permutations."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from pytest_specgate.stats.sampling import (
    TEMPERATURE_RATIOS,
    UNCHECKED_SHARES,
    beyond_chance,
    log_mean_exp,
    other_temperature,
    unchecked_proposals,
)
from pytest_specgate.stats.twosample import (
    LEAST_IN_CELL,
    cells_of,
    compare_samples,
    smallest_distance,
)

LAW = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])


def tempered(law: np.ndarray, ratio: float) -> np.ndarray:
    """The same law at another temperature."""
    raised = np.power(law, 1 / ratio)
    return np.asarray(raised / raised.sum())


def temperature_evidence(tokens: np.ndarray) -> float:
    """ln of the evidence of tokens under LAW."""
    rows = [np.log(tempered(LAW, ratio))[tokens].tolist() for ratio in TEMPERATURE_RATIOS]
    return other_temperature(np.log(LAW)[tokens].tolist(), rows)


# -- likelihood ratios -----------------------------------------------------------------------------


def test_the_mean_of_the_temperature_evidence_is_one() -> None:
    """Exactly, over all outputs of three tokens: that is what bounds the false alarms."""
    total = 0.0
    for index in np.ndindex(5, 5, 5):
        tokens = np.array(index)
        total += LAW[tokens].prod() * math.exp(temperature_evidence(tokens))
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("draft", [np.array([0.1, 0.2, 0.3, 0.2, 0.2]), LAW[::-1], LAW])
def test_the_mean_of_the_evidence_for_unchecked_proposals_is_one(draft: np.ndarray) -> None:
    """Whatever the draft's own law is, for a proposal, and nothing is said where there is none."""
    total = 0.0
    for token in range(5):
        own = [math.log(LAW[token])]
        accepted = math.exp(unchecked_proposals(own, [True], [True]))
        refused = math.exp(unchecked_proposals(own, [False], [True]))
        total += LAW[token] * (draft[token] * accepted + (1 - draft[token]) * refused)
        assert unchecked_proposals(own, [False], [False]) == pytest.approx(0)
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("ratio", [0.1, 0.7, 1.5, 2.0])
def test_another_temperature_is_found(ratio: float) -> None:
    """With 600 tokens, and not where the law is the configured one."""
    rng = np.random.default_rng(1)
    other = rng.choice(5, 600, p=tempered(LAW, ratio))
    assert temperature_evidence(other) > math.log(1000)
    assert temperature_evidence(rng.choice(5, 600, p=LAW)) < math.log(1000)


def test_one_impossible_proposal_is_enough() -> None:
    """A token of e^-30 among sure ones; one that the target itself drew counts against it."""
    own = [-0.1] * 20 + [-30.0]
    proposed = [True] * 21
    assert unchecked_proposals(own, proposed, proposed) > math.log(10**9)
    assert unchecked_proposals(own, [*proposed[:20], False], proposed) < math.log(10)
    assert len(UNCHECKED_SHARES) > 1


def test_means_of_logs() -> None:
    """Large ones do not overflow; a chance is 1 at most."""
    assert log_mean_exp([1000.0, 1000.0]) == pytest.approx(1000)
    assert log_mean_exp([0.0, -math.inf]) == pytest.approx(-math.log(2))
    assert log_mean_exp([-math.inf, -math.inf]) == -math.inf
    assert beyond_chance([math.log(1000)]) == pytest.approx(0.001)
    assert beyond_chance([-5.0]) == 1


# -- cells -----------------------------------------------------------------------------------------


def test_rare_outputs_share_the_cell_of_their_prefix() -> None:
    """Whole where frequent, else by a frequent prefix, else all together; ends are outputs too."""
    often = [(1, 2)] * LEAST_IN_CELL
    prefix = [(3, n) for n in range(LEAST_IN_CELL)]
    rare = [(n, n) for n in range(50, 55)]
    short = [(4,)] * LEAST_IN_CELL
    counted = Counter(cells_of([*often, *prefix, *rare, *short]))
    assert counted == {(1, 2): 10, (3,): 10, (): 5, (4,): 10}
    assert cells_of([]) == []


def test_a_cell_holds_three_in_a_hundred() -> None:
    """The more draws, the more a cell of its own takes."""
    outputs = [(0,)] * 970 + [(1,)] * 29 + [(2,)]
    assert Counter(cells_of(outputs)) == {(0,): 970, (): 30}


# -- two arms --------------------------------------------------------------------------------------


def arm(law: np.ndarray, draws: int, rng: np.random.Generator) -> list[list[tuple[int, ...]]]:
    """Two prompts of draws."""
    return [[(int(x),) for x in rng.choice(len(law), draws, p=law)] for _ in range(2)]


def test_one_law_is_found_different_as_often_as_the_level_says() -> None:
    """Exact: of 300 pairs of arms at 5 %, 8 to 25 (99.5 % of binomial counts)."""
    rng = np.random.default_rng(2)
    found = [
        compare_samples(arm(LAW, 60, rng), arm(LAW, 60, rng), 0.05, n).p_value for n in range(300)
    ]
    assert 6 <= sum(p <= 0.05 for p in found) <= 26
    assert min(found) >= 1e-4


def test_the_stated_distance_is_found_in_95_of_100() -> None:
    """In the worst direction: half of the cells scaled up, half down."""
    rng = np.random.default_rng(3)
    law, draws, level = np.full(6, 1 / 6), 500, 0.01
    seen = smallest_distance(2 * 5, 2 * draws / 2, level)
    assert seen == pytest.approx(0.125, abs=0.001)
    other = law * (1 + 2 * seen * np.array([1, -1, 1, -1, 1, -1]))
    tests = [
        compare_samples(arm(law, draws, rng), arm(other, draws, rng), level, n) for n in range(100)
    ]
    assert {test.seen for test in tests} == {seen}
    assert sum(test.p_value <= level for test in tests) >= 88


def test_figures_of_a_comparison() -> None:
    """Distances are means over prompts; a prompt without draws does not count."""
    first = [[(1,)] * 80 + [(2,)] * 20, []]
    second = [[(1,)] * 60 + [(2,)] * 40, [(1,)] * 5]
    test = compare_samples(first, second, 0.01, 1)
    assert test.draws == (100, 105)
    assert test.cells == 2
    assert test.distance == pytest.approx(0.2)
    assert 0 < test.chance_distance < 0.1
    assert test.p_value < 0.01
    assert compare_samples(first, second, 0.01, 1) == test


def test_nothing_drawn() -> None:
    """No figure, no alarm, no power."""
    test = compare_samples([[]], [[]], 0.01, 1)
    assert (test.p_value, test.draws, test.distance, test.seen) == (1, (0, 0), 0, math.inf)


def test_one_cell_still_has_power() -> None:
    """Where all draws are alike, another output could have appeared."""
    test = compare_samples([[(1,)] * 500], [[(1,)] * 500], 0.01, 1)
    assert (test.p_value, test.cells) == (1, 1)
    assert 0 < test.seen < 0.2

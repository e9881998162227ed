"""Which candidate is recommended, and that nothing is claimed beyond the noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_specgate.config.plan import Inputs
from pytest_specgate.gates.recommended import RecommendedGate
from pytest_specgate.measure.choice import Candidate, Choice, choose, loss, still_open
from pytest_specgate.measure.evidence import CaseEvidence, Evidence
from tests.fakes import make_arm, make_case, make_evidence, make_inputs

TRUTHS: Mapping[str, Mapping[int, float]] = {
    "rises": {1: 1.2, 2: 1.35, 3: 1.45, 5: 1.55, 8: 1.7},
    "peaks early": {1: 1.3, 2: 1.42, 3: 1.35, 5: 1.2, 8: 1.0},
    "peaks late": {1: 1.2, 2: 1.4, 3: 1.55, 5: 1.7, 8: 1.6},
    "falls": {1: 1.1, 2: 1.0, 3: 0.95, 5: 0.85, 8: 0.7},
    "never pays": {1: 0.9, 2: 0.85, 3: 0.8, 5: 0.7, 8: 0.6},
}


def candidates(
    truth: Mapping[int, float], rng: np.random.Generator, *, noise: float = 0.04, rounds: int = 12
) -> list[Candidate]:
    """Eight prompts of two kinds, every candidate in the same rounds."""
    plain = np.exp(rng.normal(0, noise, (8, rounds)))
    found = []
    for k, speedup in truth.items():
        ours = np.exp(rng.normal(0, noise, (8, rounds))) / speedup
        costs = {
            f"p{j}": {r + 1: (float(plain[j, r]), float(ours[j, r])) for r in range(rounds)}
            for j in range(8)
        }
        kinds = {f"p{j}": "python" if j % 2 else "prose" for j in range(8)}
        found.append(Candidate("draft", k, costs, kinds))
    return found


def chosen(truth: Mapping[int, float], seed: int = 1, **more: Any) -> Choice:
    return choose(candidates(truth, np.random.default_rng(seed), **more), 3, "draft")


@pytest.mark.parametrize("name", TRUTHS)
def test_the_true_best_is_found(name: str) -> None:
    """Or one within 2 % of it, in nine of ten sweeps; never one that is beaten."""
    truth, right = TRUTHS[name], 0
    for seed in range(60):
        choice = chosen(truth, seed)
        assert choice.mix is not None
        right += truth[choice.mix.best.num_draft_tokens] >= max(truth.values()) * 0.98
        assert choice.mix.best not in choice.beaten
    assert right >= 54


def test_none_pays() -> None:
    """The best of those that lose is no recommendation."""
    mix = chosen(TRUTHS["never pays"]).mix
    assert mix is not None
    assert (mix.best.num_draft_tokens, mix.pays) == (1, "failed")


def test_the_one_in_use_stays_where_none_is_better_for_certain() -> None:
    """Equal candidates: k = 3 is advised because it is in use, else the fewest tokens."""
    even = dict.fromkeys((1, 2, 3, 5, 8), 1.5)
    found = candidates(even, np.random.default_rng(4))
    for configured, advised in ((3, 3), (8, 8), (4, 1)):
        mix = choose(found, configured, "draft").mix
        assert mix is not None
        assert mix.advised.num_draft_tokens == advised
        assert len(mix.equals) == 4


def test_the_worst_kind() -> None:
    """Best in the mean, and best where it gains least."""
    found = candidates({2: 1.4, 5: 1.5}, np.random.default_rng(2), noise=0.01)
    two, five = found
    costs = {
        name: {
            r: (p, s * (1.5 if five.kinds[name] == "prose" else 0.65)) for r, (p, s) in c.items()
        }
        for name, c in five.costs.items()
    }
    choice = choose([two, replace(five, costs=costs)], 2, "draft")
    assert choice.mix is not None
    assert choice.mix.best.num_draft_tokens == 5
    assert choice.worst_kind is two
    assert choice.kinds["prose"].best.num_draft_tokens == 2
    assert choice.kinds["python"].best.num_draft_tokens == 5


def test_what_is_left_out_is_never_the_best() -> None:
    """A faster one beyond the limit of memory, and a sweep where all are."""
    found = candidates({1: 1.2, 3: 1.8}, np.random.default_rng(3))
    large = [replace(one, excluded="too large") for one in found]
    choice = choose([found[0], large[1]], 3, "draft")
    assert choice.mix is not None
    assert choice.mix.best.num_draft_tokens == 1
    assert choose(large, 3, "draft").mix is None


def test_rounds_go_on_for_those_alone_that_could_matter() -> None:
    """Not for one that is beaten, nor for one that loses nothing for certain."""
    clear = {1: 1.0, 2: 1.2, 3: 1.6}
    assert still_open(chosen(clear), 0.03) == set()
    close = {1: 1.0, 3: 1.6, 5: 1.58}
    assert still_open(chosen(close, noise=0.1, rounds=5), 0.01) == {3, 5}
    even = {3: 1.6, 5: 1.6}
    assert still_open(chosen(even, noise=0.005), 0.03) == set()
    assert still_open(Choice((), None), 0.03) == set()


def test_rounds_that_one_of_them_missed_do_not_count() -> None:
    """An arm that ended early is compared in its own rounds."""
    one, two = candidates({1: 1.2, 3: 1.3}, np.random.default_rng(5), noise=0.01)
    slow = {
        name: {r: (p, s * (9 if r > 6 else 1)) for r, (p, s) in rounds.items()}
        for name, rounds in two.costs.items()
    }
    short = replace(one, costs={n: dict(list(c.items())[:6]) for n, c in one.costs.items()})
    late = replace(two, costs=slow)
    assert short.against(late).rounds == 6
    assert loss(short, late, 0.0) == "failed"


# -- the gate --------------------------------------------------------------------------------------

GATE = RecommendedGate()


def swept(seconds: Mapping[int, float], *, rounds: int = 6, **inputs: Any) -> Evidence:
    """Four prompts whose plain path takes a second."""
    rng = np.random.default_rng(7)

    def row(mean: float) -> tuple[float, ...]:
        return tuple(float(v) for v in mean * np.exp(rng.normal(0, 0.005, rounds)))

    cases = [
        make_case(
            f"p{i}", make_arm(None, row(1.0)), *(make_arm(k, row(s)) for k, s in seconds.items())
        )
        for i in range(4)
    ]
    return with_inputs(cases, **inputs)


def with_inputs(cases: list[CaseEvidence], **inputs: Any) -> Evidence:
    asked = make_inputs(tuple(case.prompt for case in cases))
    asked = replace(asked, sweep=(1, 3, 5), **inputs).swept()
    return replace(make_evidence(*cases), inputs=asked)


@pytest.mark.parametrize(
    ("seconds", "status", "reason"),
    [
        ({1: 0.9, 3: 0.6, 5: 0.8}, "passed", "k=3 is the best"),
        ({1: 0.9, 3: 0.602, 5: 0.6}, "passed", "no candidate is faster than k=3 by 3%"),
        ({1: 0.9, 3: 0.7, 5: 0.6}, "failed", "k=5 is faster than k=3 by 16"),
    ],
)
def test_the_verdict(seconds: dict[int, float], status: str, reason: str) -> None:
    verdict = GATE.judge(swept(seconds), GATE.defaults, "pair")
    assert verdict.status == status
    assert verdict.reason.startswith(reason)
    assert [row["num_draft_tokens"] for row in verdict.evidence["candidates"]] == [1, 3, 5]


def test_too_few_rounds_decide_nothing() -> None:
    verdict = GATE.judge(swept({1: 0.9, 3: 0.7, 5: 0.6}, rounds=3), GATE.defaults, "pair")
    assert verdict.status == "inconclusive"
    assert "cannot be told apart" in verdict.reason


def test_limits_of_memory_and_p95() -> None:
    """The one in use is beyond a limit: failed, whatever its speed."""
    evidence = swept({1: 0.9, 3: 0.6, 5: 0.8})
    verdict = GATE.judge(evidence, {**GATE.defaults, "max_gb": 1}, "pair")
    assert verdict.status == "failed"
    assert "no candidate keeps to the limits" in verdict.reason
    slow = swept({1: 0.9, 3: 1.4, 5: 0.8}, rounds=16)
    verdict = GATE.judge(slow, {**GATE.defaults, "p95_max_ratio": 1.0}, "pair")
    assert verdict.status == "failed"
    assert verdict.reason.startswith("k=3: its p95 is 1.4")
    assert any("k=3 left out" in line for line in verdict.details)


def test_an_arm_that_is_not_sound_is_left_out() -> None:
    """k = 5 differs from the plain output: it is fast, and no candidate."""
    wrong = make_arm(5, (0.5,) * 6, tokens=(1, 2, 3, 9, 9, 9, 9, 9))
    cases = [
        make_case(f"p{i}", make_arm(None, (1.0,) * 6), make_arm(3, (0.6,) * 6), wrong)
        for i in range(4)
    ]
    verdict = GATE.judge(with_inputs(cases), GATE.defaults, "pair")
    assert verdict.status == "passed"
    left = [row["excluded"] for row in verdict.evidence["candidates"]]
    assert left[-1] == "p0, p1, p2: its output is not the plain one"


def test_the_worst_kind_is_the_objective() -> None:
    """What fails then is judged against the steadiest."""
    rows = {"prose": {1: 0.8, 3: 1.0, 5: 0.9}, "python": {1: 0.8, 3: 0.5, 5: 0.7}}
    cases = [
        make_case(
            f"{kind}{i}",
            make_arm(None, (1.0,) * 6),
            *(make_arm(k, (s,) * 6) for k, s in row.items()),
            kind=kind,
        )
        for kind, row in rows.items()
        for i in range(2)
    ]
    mean, worst = (
        GATE.judge(with_inputs(cases, objective=objective), GATE.defaults, "pair")
        for objective in ("median_speedup", "worst_kind")
    )
    assert (mean.status, mean.reason) == ("passed", "k=3 is the best")
    assert worst.status == "failed"
    assert worst.reason.startswith("k=1 is faster than k=3 by 25.0%")
    assert worst.reason.endswith(" for prose")
    assert any(line.startswith("whose worst kind is best: k=1") for line in worst.details)


def test_several_in_use_cannot_be_judged() -> None:
    assert GATE.complaint(GATE.defaults, Inputs(num_draft_tokens=(1, 3))) is not None
    assert GATE.complaint(GATE.defaults, Inputs(num_draft_tokens=(3,))) is None

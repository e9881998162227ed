"""Rounds end, whatever the plan, the gates and the engine do: some hundreds of small plans."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_specgate.config.plan import Inputs, Measure
from pytest_specgate.engines.base import Engine, EngineError
from pytest_specgate.measure import rounds
from pytest_specgate.measure.budget import Budget
from pytest_specgate.measure.campaign import Campaign
from pytest_specgate.measure.evidence import AGAIN, PLAIN, Evidence, arm_name
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from tests.fakes import FakeEngine, FakePair, Script, Where, make_inputs, make_prompts

KS = (1, 2, 3, 5)
IDS = ("a", "b", "c")
WRONG = (100, 101, 9, 9, 9, 9, 9, 9)
MOST_CALLS = 3000  # of any plan here, many times over


@pytest.fixture(autouse=True)
def no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rounds need not look through the heap of the whole test session."""
    monkeypatch.setattr(rounds, "gc", SimpleNamespace(collect=lambda: 0))


@dataclass
class Counted(FakePair):
    """A pair that gives up in an endless loop, and whose generations take a second of a clock."""

    now: float = 0.0

    def clock(self) -> float:
        """A second a generation, ten milliseconds a look."""
        self.now += 0.01
        return self.now

    def generate(self, *args: Any, **options: Any) -> Any:
        """As scripted."""
        self.now += 1.0
        if len(self.made) > MOST_CALLS:
            raise KeyboardInterrupt  # what no guard catches
        return super().generate(*args, **options)


@dataclass
class Plan:
    """One measurement: calls of ``rounds`` on one campaign, with gates that want what they want."""

    seed: int
    noise: bool
    temperature: float
    budget_s: float | None
    pair: Counted
    early: list[tuple[Inputs, Measure]]
    calls: list[tuple[Inputs, Measure]]
    wants: random.Random = field(default_factory=random.Random)

    def campaign(self) -> Campaign:
        """On a store of its own."""
        store = Store(
            {"fake": lambda: FakeEngine(self.pair)},
            Silent(),
            lambda _: None,
            budget=Budget(self.budget_s, self.pair.clock),
            noise=self.noise,
        )
        return store.campaign(self.calls[0][0])


def make_plan(seed: int) -> Plan:
    """A plan of one to three prompts, one to three k, faults of every kind, one to four calls."""
    draw = random.Random(seed)
    prompts = make_prompts(*IDS[: draw.randint(1, 3)])
    temperature = draw.choice((0.0, 0.0, 0.0, 0.7))

    def inputs() -> Inputs:
        some = tuple(p for p in prompts if draw.random() < 0.8) or prompts[:1]
        ks = sorted(draw.sample(KS, draw.randint(1, 3)))
        return make_inputs(some, *ks, temperature=temperature)

    def measure() -> Measure:
        least = draw.randint(1, 4)
        return Measure(draw.randint(1, 2), least, least + draw.randint(0, 4))

    arms = [PLAIN, *map(arm_name, KS)]

    def where() -> Where:
        return f"say {draw.choice(IDS)}", draw.choice(arms), draw.randint(0, 12)

    scripts = {
        f"say {name}": Script(
            tokens=tuple(range(100, 100 + draw.randint(1, 8))),
            ends=draw.random() < 0.3,
            wrong={arm_name(k): WRONG for k in KS if draw.random() < 0.1},
        )
        for name in IDS
    }
    raises: Mapping[Where, BaseException] = {
        where(): draw.choice((EngineError("no"), ValueError("broke"), MemoryError()))
        for _ in range(draw.choice((0, 0, 1, 3)))
    }
    calls = [(inputs(), measure()) for _ in range(draw.randint(1, 4))]
    return Plan(
        seed,
        noise=draw.random() < 0.4,
        temperature=temperature,
        budget_s=draw.choice((None, None, None, 0.5, float(draw.randint(1, 80)))),
        pair=Counted(
            scripts,
            raises=raises,
            unstable={where(): (7, 8, 9) for _ in range(draw.choice((0, 0, 1, 3)))},
            ignores_draft=draw.random() < 0.05,
            sees_calls=draw.random() < 0.8,
        ),
        early=[call for call in calls if draw.random() < 0.6],
        calls=calls,
        wants=random.Random(seed),
    )


def some_gate(draw: random.Random) -> Callable[[Evidence], set[int]]:
    """Wants any k, also such as were never measured; sometimes always the same ones."""
    stubborn = draw.choice((None, None, {3}, {1, 2, 3, 5}, {16}))

    def wants(_: Evidence) -> set[int]:
        if stubborn is not None:
            return stubborn
        return {k for k in (*KS, 7) if draw.random() < 0.5}

    return wants


def check(plan: Plan, campaign: Campaign, most: int) -> None:
    """Every arm within the most, paired by round with the plain one, each round once."""
    for case in campaign.cases():
        plain = [t.round for t in case.arms[PLAIN].trials] if PLAIN in case.arms else []
        assert plain == sorted(set(plain)), plan
        for name, arm in case.arms.items():
            numbers = [trial.round for trial in arm.trials]
            assert numbers == sorted(set(numbers)), plan
            assert set(numbers) <= set(plain), plan
            assert len(numbers) <= most or name in (PLAIN, AGAIN), plan
            if name == AGAIN:
                assert numbers == plain, plan
        if not plan.noise:
            assert AGAIN not in case.arms


@pytest.mark.parametrize("block", range(4))
def test_rounds_end(block: int) -> None:
    """Whatever was registered late, broke, was unsound, or did not fit into the budget."""
    for seed in range(25 * block, 25 * block + 25):
        plan = make_plan(seed)
        campaign = plan.campaign()
        for inputs, measure in plan.early:
            campaign.register(inputs, rounds=measure.min_rounds)
        most = 0
        for inputs, measure in plan.calls:
            most = max(most, measure.max_rounds)
            evidence = campaign.rounds(inputs, measure, some_gate(plan.wants))
            check(plan, campaign, most)
            for k in inputs.num_draft_tokens:
                alone = campaign.evidence(replace(inputs, num_draft_tokens=(k,)))
                for case in alone.cases:
                    several = {len(arm.trials) for arm in case.arms.values()}
                    assert len(several) <= 1 or not case.speculative, plan
                alone.ratios()
            if plan.budget_s is None:
                for case in evidence.timed:
                    counts = [len(arm.trials) for arm in case.speculative]
                    assert min(counts) >= measure.min_rounds, plan
        if plan.budget_s is not None:
            # what was begun may last longer than the mean, but not a round longer
            assert len(plan.pair.made) <= plan.budget_s + 40, plan


def test_the_plans_are_not_all_alike() -> None:
    """Errors in rounds, unsound arms, late arms, budgets that end: each comes up."""
    seen = {"broke": 0, "unstable": 0, "stopped": 0, "again": 0, "rounds": 0}
    for seed in range(100):
        plan = make_plan(seed)
        campaign = plan.campaign()
        for inputs, measure in plan.calls:
            evidence = campaign.rounds(inputs, measure, some_gate(plan.wants))
            seen["broke"] += any(case.broke_in_round for case in evidence.cases)
            seen["stopped"] += evidence.unmeasured is not None
            seen["rounds"] += evidence.rounds > measure.min_rounds
        for case in campaign.cases():
            seen["unstable"] += any(arm.unstable for arm in case.arms.values())
            seen["again"] += bool(AGAIN in case.arms and case.arms[AGAIN].trials)
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize("fault", ["raises", "unstable"])
def test_the_second_plain_run_breaks(fault: str) -> None:
    """It is the plain path: that prompt is not timed any more, the other goes on."""
    inputs = make_inputs(make_prompts("a", "b"), 3)
    for number in range(1, 7):
        pair = FakePair()
        where: Where = ("say a", "plain", number)
        if fault == "raises":
            pair.raises = {where: EngineError("no")}
        else:
            pair.unstable = {where: (1, 2, 3)}
        engines: dict[str, Callable[[], Engine]] = {"fake": partial(FakeEngine, pair)}
        store = Store(engines, Silent(), lambda _: None, noise=True)
        evidence = store.campaign(inputs).rounds(inputs, Measure(1, 5, 5), lambda _: ())
        assert [case.prompt.id for case in evidence.timed] == ["b"]
        assert evidence.rounds == 5
        # the parity pass, the rounds before, and the round that broke
        assert pair.counted["say a", "plain"] <= number + 2
        assert pair.counted["say b", "plain"] == 1 + 2 * 5


def test_more_rounds_for_one_prompt_alone() -> None:
    """What was granted to one is not run for the others; what was forgotten begins afresh."""
    inputs = make_inputs(make_prompts("a", "b"), 3)
    pair = FakePair()
    store = Store({"fake": lambda: FakeEngine(pair)}, Silent(), lambda _: None)
    campaign = store.campaign(inputs)
    measure, only_a = Measure(1, 2, 3), inputs.only(inputs.prompts[0])

    def trials() -> list[int]:
        evidence = campaign.rounds(inputs, measure, lambda _: {3})
        return [len(arm.trials) for case in evidence.cases for arm in case.speculative]

    assert trials() == [3, 3]
    campaign.grant(only_a, 4)
    assert trials() == [7, 3]
    campaign.forget(only_a)
    assert trials() == [3, 3]
    assert pair.counted == {("say a", arm): 2 + 7 + 3 for arm in ("plain", "k=3")} | {
        ("say b", arm): 1 + 3 for arm in ("plain", "k=3")
    }

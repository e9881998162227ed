"""What is generated, how often and in which order: the store on a pair that counts its calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, cast

import pytest

from pytest_specgate.config.plan import Inputs, Measure, Prompt
from pytest_specgate.engines.base import EngineError, EngineInfo, Generation, Scores
from pytest_specgate.gates import builtin_gates
from pytest_specgate.gates.base import Gate, Verdict
from pytest_specgate.measure.campaign import Wants
from pytest_specgate.measure.evidence import Evidence
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.trial import Trial
from pytest_specgate.measure.watch import Silent, Step
from tests.fakes import FakeEngine, FakePair, Script, make_inputs, make_prompts

GATES = {gate.name: gate for gate in builtin_gates()}
FIVE = Measure(warmup=1, min_rounds=5, max_rounds=5)
WRONG = Script(wrong={"k=3": (100, 101, 9, 9, 9, 9, 9, 9)})


class Recorder(Silent):
    """Notes what a watcher is told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.trials: list[tuple[int, str, str]] = []
        self.loads = 0

    def loading(self, inputs: Inputs) -> None:
        """Count."""
        self.loads += 1

    def trial_started(self, step: Step) -> None:
        """Note."""
        self.steps.append(step)

    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None:
        """Note round, prompt and arm."""
        self.trials.append((trial.round, prompt.id, arm))


@dataclass
class Bench:
    """A store with its doubles."""

    pair: FakePair = field(default_factory=FakePair)
    refuses: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watcher = Recorder()
        self.engine = FakeEngine(self.pair, self.refuses)
        self.prepared: list[Inputs] = []
        self.store = Store({"fake": lambda: self.engine}, self.watcher, self.prepared.append)

    def rounds(self, inputs: Inputs, measure: Measure = FIVE) -> Evidence:
        """The rounds of a measurement that no gate wants more of."""
        return self.store.campaign(inputs).rounds(inputs, measure, lambda _: ())

    def parity(self, inputs: Inputs) -> Evidence:
        """The parity pass alone."""
        return self.store.campaign(inputs).parity_pass(inputs)

    def known(self, inputs: Inputs, k: int) -> Evidence:
        """What is known of one k, generating nothing."""
        inputs = replace(inputs, num_draft_tokens=(k,))
        return self.store.campaign(inputs).evidence(inputs)


def never(_: Evidence) -> tuple[int, ...]:
    """No gate wants another round."""
    return ()


def always(evidence: Evidence) -> tuple[int, ...]:
    """A gate that never has enough."""
    return evidence.num_draft_tokens


def until(rounds: int) -> Wants:
    """A gate that is content after so many rounds."""
    return lambda evidence: evidence.num_draft_tokens if evidence.rounds < rounds else ()


def judge(name: str, evidence: Evidence, **options: Any) -> Verdict:
    """The verdict of a gate with default options but these."""
    gate: Gate = GATES[name]
    subject = evidence.cases[0].prompt.id if gate.scope == "prompt" else "k"
    return gate.judge(evidence, {**gate.defaults, **options}, subject)


def trials_of(evidence: Evidence) -> dict[str, dict[str, int]]:
    """prompt -> arm -> number of trials."""
    return {
        case.prompt.id: {name: len(arm.trials) for name, arm in case.arms.items()}
        for case in evidence.cases
    }


# -- generated once --------------------------------------------------------------------------------


def test_two_gates_share_what_was_generated() -> None:
    """Parity, then two gates with rounds: one observed run and five trials an arm, no more."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    bench.parity(inputs)
    first = bench.rounds(inputs)
    second = bench.rounds(inputs)
    bench.parity(inputs)
    assert first == replace(second, swap_growth_bytes=first.swap_growth_bytes)
    assert bench.pair.counted == {
        (text, arm): 6 for text in ("say a", "say b") for arm in ("plain", "k=3")
    }
    assert bench.engine.loads == ["org/target"]
    assert bench.prepared == [inputs]


def test_the_plain_arm_is_shared_by_all_k() -> None:
    """Four items, one a number of draft tokens, registered beforehand: six plain runs."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 1, 2, 3, 5)
    bench.store.campaign(inputs).register(inputs, rounds=5)
    for k in inputs.num_draft_tokens:
        evidence = bench.rounds(replace(inputs, num_draft_tokens=(k,)))
        assert trials_of(evidence) == {"a": {"plain": 5, f"k={k}": 5}}
    assert bench.pair.counted == {
        ("say a", arm): 6 for arm in ("plain", "k=1", "k=2", "k=3", "k=5")
    }


def test_one_more_k_after_the_parity_pass() -> None:
    """Only the missing arm is generated; arms stand in the order of k."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 5)
    bench.parity(inputs)
    evidence = bench.parity(replace(inputs, num_draft_tokens=(1, 5)))
    assert bench.pair.made == [("say a", "plain"), ("say a", "k=5"), ("say a", "k=1")]
    assert list(evidence.cases[0].arms) == ["plain", "k=1", "k=5"]


def test_a_late_k_is_timed_with_the_plain_path_anew() -> None:
    """Its trials are paired with plain ones: those run again, an arm that has its own does not."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    early = bench.rounds(inputs)
    both = replace(inputs, num_draft_tokens=(3, 5))
    late = bench.rounds(replace(both, num_draft_tokens=(5,)).only(inputs.prompts[0]))
    assert trials_of(late) == {"a": {"plain": 5, "k=5": 5}}
    evidence = bench.store.campaign(both).evidence(both)
    assert trials_of(evidence)["a"] == {"plain": 10, "k=3": 5, "k=5": 5}
    (case, other), (before, _) = evidence.cases, early.cases
    for k, rounds in ((3, [1, 2, 3, 4, 5]), (5, [6, 7, 8, 9, 10])):
        for arm in evidence.for_arm(k).cases[0].arms.values():
            assert [trial.round for trial in arm.trials] == rounds
    assert bench.pair.counted[("say a", "plain")] == 1 + 5 + 5
    assert bench.pair.counted[("say a", "k=3")] == 1 + 5
    assert bench.pair.counted[("say a", "k=5")] == 1 + 5
    assert case.plain.generation == before.plain.generation  # the parity pass holds
    assert list(other.arms) == ["plain", "k=3"]  # of the other prompt nothing was asked
    assert bench.pair.counted[("say b", "plain")] == 1 + 5


def test_a_late_k_for_parity_alone_leaves_the_trials() -> None:
    """Nothing is timed anew until a gate wants the late k timed."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 3)
    before = bench.rounds(inputs)
    late = replace(inputs, num_draft_tokens=(5,))
    bench.parity(late)
    evidence = bench.store.campaign(inputs).evidence(inputs)
    assert trials_of(evidence) == trials_of(before) == {"a": {"plain": 5, "k=3": 5}}
    assert bench.pair.counted["say a", "plain"] == 1 + 5
    assert trials_of(bench.rounds(late)) == {"a": {"plain": 5, "k=5": 5}}
    assert trials_of(bench.known(inputs, 3)) == {"a": {"plain": 5, "k=3": 5}}
    assert bench.pair.counted["say a", "plain"] == 1 + 5 + 5
    assert bench.pair.counted["say a", "k=5"] == 1 + 5


def test_a_late_k_for_every_prompt_fills_whole_rounds() -> None:
    """The rounds after it hold every prompt and every arm."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    bench.rounds(inputs)
    bench.watcher.trials.clear()
    evidence = bench.rounds(replace(inputs, num_draft_tokens=(5,)))
    assert evidence.rounds == 5
    assert {prompt: set(arms.values()) for prompt, arms in trials_of(evidence).items()} == {
        "a": {5},
        "b": {5},
    }
    for order in orders(bench).values():
        assert Counter(order) == Counter(
            (prompt, arm) for prompt in "ab" for arm in ("plain", "k=5")
        )


def test_evidence_is_cut_to_what_was_asked() -> None:
    """One prompt of two, one arm of two."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 1, 3)
    bench.parity(inputs)
    part = replace(inputs, num_draft_tokens=(3,)).only(inputs.prompts[1])
    evidence = bench.store.campaign(inputs).evidence(part)
    assert [case.prompt.id for case in evidence.cases] == ["b"]
    assert list(evidence.cases[0].arms) == ["plain", "k=3"]
    assert evidence.pair == bench.pair.info
    assert evidence.engine == bench.engine.describe()


def test_equal_prompts_under_two_ids_are_generated_apart() -> None:
    """Each id has a run of its own; so has another budget."""
    bench = Bench()
    prompts = (
        Prompt("one", "same", "x", 8),
        Prompt("two", "same", "y", 8),
        Prompt("long", "same", "x", 16),
    )
    evidence = bench.parity(make_inputs(prompts, 3))
    assert [case.prompt.id for case in evidence.cases] == ["one", "two", "long"]
    assert [len(case.plain.generation.tokens) for case in evidence.cases] == [8, 8, 16]
    assert bench.pair.counted == {("same", "plain"): 3, ("same", "k=3"): 3}


def test_campaigns_are_told_apart_by_their_options() -> None:
    """Another temperature, seed or template measures anew; another budget or prompt does not."""
    store, inputs = Bench().store, make_inputs(make_prompts("a"), 3)
    same = [
        replace(inputs, num_draft_tokens=(5,)),
        replace(inputs, decoding=replace(inputs.decoding, max_tokens=9)),
        replace(inputs, prompts=make_prompts("b")),
    ]
    other = [
        replace(inputs, decoding=replace(inputs.decoding, temperature=0.5)),
        replace(inputs, decoding=replace(inputs.decoding, seed=1)),
        replace(inputs, chat_template_args={"enable_thinking": False}),
        make_inputs(inputs.prompts, 3, target="org/another"),
    ]
    assert {id(store.campaign(i)) for i in [inputs, *same]} == {id(store.campaign(inputs))}
    assert len({id(store.campaign(i)) for i in [inputs, *other]}) == 5
    assert len(list(store.campaigns())) == 5


def test_a_fresh_campaign_shares_the_pair_alone() -> None:
    """Generated again, not loaded again."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 3)
    bench.parity(inputs)
    bench.store.fresh_campaign(inputs).parity_pass(inputs)
    assert bench.pair.counted[("say a", "plain")] == 2
    assert len(bench.engine.loads) == 1


# -- rounds ----------------------------------------------------------------------------------------


def orders(bench: Bench) -> dict[int, list[tuple[str, str]]]:
    """round -> (prompt, arm) in the order of the trials."""
    return {
        number: [(prompt, arm) for _, prompt, arm in group]
        for number, group in groupby(bench.watcher.trials, key=lambda trial: trial[0])
    }


def six_rounds(seed: int) -> dict[int, list[tuple[str, str]]]:
    """Four prompts on four arms."""
    bench = Bench()
    inputs = make_inputs(make_prompts("a", "b", "c", "d"), 1, 3, 5, seed=seed)
    bench.rounds(inputs, Measure(1, 6, 6))
    return orders(bench)


def test_every_round_has_each_arm_once() -> None:
    """Once a prompt, the arms of a prompt back to back."""
    rounds = six_rounds(1)
    assert list(rounds) == [1, 2, 3, 4, 5, 6]
    for order in rounds.values():
        assert set(Counter(order).values()) == {1}
        assert len(order) == 4 * 4
        assert len([prompt for prompt, _ in groupby(order, key=lambda pair: pair[0])]) == 4


def test_orders_differ_between_rounds_and_repeat_with_the_seed() -> None:
    """Prompts and arms are both shuffled."""
    first, again, other = six_rounds(1), six_rounds(1), six_rounds(2)
    assert first == again
    assert first != other
    assert len({tuple(order) for order in first.values()}) == 6
    assert len({tuple(dict.fromkeys(p for p, _ in order)) for order in first.values()}) > 1
    of_a = [tuple(arm for prompt, arm in order if prompt == "a") for order in first.values()]
    assert len(set(of_a)) > 1
    assert len({arms.index("plain") for arms in of_a}) > 1  # plain is not always first


def test_the_times_are_those_of_the_rounds() -> None:
    """The parity pass took 99 s a token and does not count; ratios are exact."""

    def seconds(prompt: str, arm: str, number: int) -> float:
        if number == 0:
            return 99.0
        return 0.25 * number if arm == "plain" else 0.125

    bench = Bench(FakePair(seconds=seconds))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    assert evidence.ratios() == {"a": [2.0, 4.0, 6.0, 8.0, 10.0]}
    assert evidence.speedup == 6.0
    plain = evidence.cases[0].plain.trials
    assert [trial.round for trial in plain] == [1, 2, 3, 4, 5]
    assert [trial.e2e_s for trial in plain] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert [trial.ttft_s for trial in plain] == [0.25, 0.5, 0.75, 1.0, 1.25]
    assert plain[0].decode_s == 1.75
    assert plain[0].decode_tokens_per_s == 4.0


def test_decode_speed_begins_past_the_first_block() -> None:
    """k = 3, two of three accepted and the target's own: three tokens came at once."""
    bench = Bench(FakePair(seconds=lambda *_: 0.5))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    (arm,) = evidence.cases[0].speculative
    assert arm.blocks is not None
    assert arm.blocks.first_block == 3
    assert arm.trials[0].past_first_block == (5, 2.5)
    assert evidence.cases[0].plain.trials[0].past_first_block == (7, 3.5)


def test_the_parity_pass_keeps_its_own_output() -> None:
    """Caches and calls are those of the observed run, blocks are counted from it."""
    evidence = Bench().rounds(make_inputs(make_prompts("a"), 3))
    (arm,) = evidence.cases[0].speculative
    assert arm.generation.kv_bytes == (2 * 10**8, 10**8)
    assert arm.generation.calls is not None
    assert arm.drafted is True
    assert arm.broken is None
    assert arm.blocks is not None
    # matches True, True, False: 3 proposed and 2 accepted, twice, then 2 left and both accepted
    assert [(b.proposed, b.accepted) for b in arm.blocks.blocks] == [(3, 2), (3, 2), (2, 2)]
    assert evidence.acceptance_rate == 6 / 8
    assert evidence.draft_share == 6 / 8
    assert evidence.exact


def test_wants_is_asked_from_the_minimum_on() -> None:
    """It sees the rounds so far, and its no ends them."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    seen: list[int] = []

    def wants(evidence: Evidence) -> tuple[int, ...]:
        seen.append(evidence.rounds)
        return (3,) if evidence.rounds < 8 else ()

    evidence = bench.store.campaign(inputs).rounds(inputs, Measure(1, 5, 12), wants)
    assert seen == [5, 6, 7, 8]
    assert evidence.rounds == 8
    assert bench.pair.counted[("say a", "k=3")] == 9


def test_the_maximum_of_rounds_holds() -> None:
    """However much a gate wants."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 3)
    evidence = bench.store.campaign(inputs).rounds(inputs, Measure(1, 5, 7), always)
    assert evidence.rounds == 7
    assert bench.pair.counted[("say a", "plain")] == 8


def test_a_second_gate_continues_the_rounds_of_the_first() -> None:
    """Five are there; the next asks for three more."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 3)
    campaign = bench.store.campaign(inputs)
    campaign.rounds(inputs, Measure(1, 5, 12), never)
    evidence = campaign.rounds(inputs, Measure(1, 5, 12), until(8))
    assert [trial.round for trial in evidence.cases[0].plain.trials] == list(range(1, 9))
    assert bench.pair.counted[("say a", "plain")] == 9


def test_registered_prompts_are_timed_together() -> None:
    """One round holds the prompts of every gate, so that drift falls on all alike."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    campaign = bench.store.campaign(inputs)
    campaign.register(inputs, rounds=5)
    campaign.rounds(inputs.only(inputs.prompts[0]), FIVE, never)
    assert trials_of(campaign.evidence(inputs)) == {
        "a": {"plain": 5, "k=3": 5},
        "b": {"plain": 5, "k=3": 5},
    }
    made = len(bench.pair.made)
    campaign.rounds(inputs.only(inputs.prompts[1]), FIVE, never)
    assert len(bench.pair.made) == made


def test_prompts_for_parity_alone_are_not_timed() -> None:
    """Registered without rounds."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    campaign = bench.store.campaign(inputs)
    campaign.register(inputs.only(inputs.prompts[1]), rounds=0)
    campaign.rounds(inputs.only(inputs.prompts[0]), FIVE, never)
    assert ("say b", "plain") not in bench.pair.counted
    bench.parity(inputs)
    assert bench.pair.counted[("say b", "plain")] == 1


@pytest.mark.parametrize("warmup", [1, 2, 4])
def test_warm_up_passes_are_thrown_away(warmup: int) -> None:
    """The first is the parity pass; the others are run like rounds, and not told of."""

    def seconds(prompt: str, arm: str, number: int) -> float:
        return 99.0 if number < warmup else 0.1

    bench, inputs = Bench(FakePair(seconds=seconds)), make_inputs(make_prompts("a", "b"), 3)
    evidence = bench.rounds(inputs, Measure(warmup, 5, 5))
    assert set(bench.pair.counted.values()) == {warmup + 5}
    assert trials_of(evidence) == {name: {"plain": 5, "k=3": 5} for name in "ab"}
    assert max(t.e2e_s for c in evidence.cases for t in c.plain.trials) < 1
    assert {number for number, *_ in bench.watcher.trials} == {1, 2, 3, 4, 5}
    made = len(bench.pair.made)
    bench.rounds(inputs, Measure(warmup, 5, 5))
    assert len(bench.pair.made) == made  # warm stays warm


def test_steps_tell_where_it_stands() -> None:
    """Round 0 is the warm-up pass; the time left is known after the first trial."""
    bench = Bench()
    bench.rounds(make_inputs(make_prompts("a"), 3), Measure(1, 2, 2))
    steps = bench.watcher.steps
    assert [step.round for step in steps] == [0, 0, 1, 1, 2, 2]
    assert {step.rounds for step in steps} == {2}
    assert [step.arm for step in steps[:2]] == ["plain", "k=3"]
    assert steps[0].remaining_s is None
    assert all(step.remaining_s is not None for step in steps[1:])


def test_an_arm_that_is_decided_is_not_run_on() -> None:
    """k = 1 is content at the minimum, k = 3 at eight; each is paired with its plain runs."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 1, 3)
    campaign = bench.store.campaign(inputs)
    k3 = replace(inputs, num_draft_tokens=(3,))

    def wants(_: Evidence) -> tuple[int, ...]:
        return (3,) if campaign.evidence(k3).rounds < 8 else ()

    campaign.rounds(inputs, Measure(1, 5, 12), wants)
    assert bench.pair.counted[("say a", "k=1")] == 1 + 5
    assert bench.pair.counted[("say a", "k=3")] == 1 + 8
    assert bench.pair.counted[("say a", "plain")] == 1 + 8
    for k, rounds in ((1, 5), (3, 8)):
        evidence = campaign.evidence(replace(inputs, num_draft_tokens=(k,)))
        assert evidence.rounds == rounds
        assert trials_of(evidence)["a"] == {"plain": rounds, f"k={k}": rounds}
    assert campaign.evidence(inputs).rounds == 5


def test_an_arm_that_was_dropped_and_is_wanted_again() -> None:
    """It is paired with the plain runs of its own rounds alone."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 1, 3)
    campaign = bench.store.campaign(inputs)
    one, three = (replace(inputs, num_draft_tokens=(k,)) for k in (1, 3))
    campaign.register(inputs, rounds=5)
    campaign.rounds(three, Measure(1, 5, 8), until(8))
    evidence = campaign.rounds(one, Measure(1, 5, 7), until(7))
    (case,) = evidence.cases
    assert [t.round for t in case.plain.trials] == [1, 2, 3, 4, 5, 9, 10]
    assert [t.round for t in case.speculative[0].trials] == [1, 2, 3, 4, 5, 9, 10]
    assert campaign.evidence(three).rounds == 8


@pytest.mark.parametrize("warmup", [1, 2, 3])
def test_planned_trials_are_those_that_are_made(warmup: int) -> None:
    """Least where no gate wants more, most where one always does; parity prompts included."""
    for wants, index in ((never, 0), (always, 1)):
        bench, inputs = Bench(), make_inputs(make_prompts("a", "b", "c"), 1, 3)
        timed = replace(inputs, prompts=inputs.prompts[:2])
        measure = Measure(warmup, 5, 7)
        campaign = bench.store.campaign(inputs)
        campaign.register(inputs, rounds=0)
        campaign.register(timed, rounds=5)
        planned = campaign.planned_trials(measure)
        campaign.parity_pass(inputs)
        campaign.rounds(timed, measure, wants)
        assert planned[index] == len(bench.pair.made)
        assert planned == (3 * 3 + 2 * 3 * (5 + warmup - 1), 3 * 3 + 2 * 3 * (7 + warmup - 1))


# -- what must not be timed ------------------------------------------------------------------------


def test_a_prompt_that_fails_parity_is_never_timed() -> None:
    """One observed run an arm, and what its diagnosis runs again; the others go on."""
    bench = Bench(FakePair({"say b": WRONG}))
    evidence = bench.store.campaign(inputs := make_inputs(make_prompts("a", "b"), 3)).rounds(
        inputs, Measure(1, 5, 12), until(6)
    )
    assert bench.pair.counted == {
        ("say a", "plain"): 7,
        ("say a", "k=3"): 7,
        ("say b", "plain"): 2,
        ("say b", "k=3"): 2,
        ("say b", "k=0"): 1,
        ("say b", "k=1"): 1,
        ("say b", "k=7"): 1,
    }
    assert all(arm.trials == () for arm in evidence.cases[1].arms.values())
    assert [case.prompt.id for case in evidence.timed] == ["a"]
    assert evidence.rounds == 6
    assert not evidence.exact


AT_FIVE = {"say b": Script(wrong={"k=5": (100, 101, 9, 9, 9, 9, 9, 9)})}


def test_several_k_that_fail_share_what_is_run_again() -> None:
    """Plain and k = 0 once a prompt, also for a k that comes late; each k once more at most."""
    wrong = (100, 101, 9, 9, 9, 9, 9, 9)
    script = Script(wrong={f"k={k}": wrong for k in (1, 3, 5)})
    bench, inputs = Bench(FakePair({"say a": script})), make_inputs(make_prompts("a"), 1, 3)
    bench.parity(inputs)
    evidence = bench.parity(replace(inputs, num_draft_tokens=(1, 3, 5)))
    assert bench.pair.counted == {
        ("say a", "plain"): 2,
        ("say a", "k=0"): 1,
        ("say a", "k=1"): 2,
        ("say a", "k=3"): 2,
        ("say a", "k=5"): 2,
        ("say a", "k=7"): 1,
        ("say a", "k=11"): 1,
    }
    found = [arm.diagnosis for arm in evidence.cases[0].speculative]
    assert [d.differences if d else None for d in found] == [
        {1: 2, 3: 2},
        {1: 2, 3: 2, 7: None},
        {1: 2, 5: 2, 11: None},
    ]
    for diagnosis in found:
        assert diagnosis is not None
        assert (diagnosis.plain_repeats, diagnosis.speculative_repeats) == (True, True)
        assert diagnosis.zero_draft_equal


def test_a_prompt_that_is_wrong_at_one_k_is_timed_and_judged_at_the_other() -> None:
    """k = 5 parts on one prompt: k = 3 is judged on both, k = 5 on the other alone."""
    bench, inputs = Bench(FakePair(AT_FIVE)), make_inputs(make_prompts("a", "b"), 3, 5)
    evidence = bench.rounds(inputs)
    assert trials_of(evidence) == {
        "a": {"plain": 5, "k=3": 5, "k=5": 5},
        "b": {"plain": 5, "k=3": 5, "k=5": 0},
    }
    assert bench.pair.counted[("say b", "k=5")] == 2  # observed, and once more for its diagnosis
    three, five = bench.known(inputs, 3), bench.known(inputs, 5)
    assert [case.prompt.id for case in three.timed] == ["a", "b"]
    assert [case.prompt.id for case in five.timed] == ["a"]
    for name in ("speedup", "memory"):
        whole, part = judge(name, three), judge(name, five)
        assert (whole.status, part.status) == ("passed", "passed")
        assert (whole.samples, part.samples) == (10, 5)
        assert not any("left out" in line for line in whole.details)
        assert "left out: b (its output differs)" in part.details
    assert judge("acceptance", three).samples == 2 * (3 + 3 + 2)
    assert judge("acceptance", five).samples == 5 + 5 + 2
    (parity,) = (
        judge("parity", bench.store.campaign(inputs).evidence(inputs.only(prompt)))
        for prompt in inputs.prompts[1:]
    )
    assert parity.kind == "unexplained"  # repeats, k = 0 equal, no scores, no move with k
    assert parity.reason.startswith("unexplained: from output token 2 on ")
    assert parity.reason.endswith("(k = 5)")


def test_only_the_arms_that_a_timing_gate_wants_are_timed() -> None:
    """k = 5 is there for parity: one run a prompt."""
    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3, 5)
    timed = replace(inputs, num_draft_tokens=(3,))
    campaign = bench.store.campaign(inputs)
    campaign.register(inputs, rounds=0)
    campaign.register(timed, rounds=5)
    planned = campaign.planned_trials(FIVE)
    bench.parity(inputs)
    bench.rounds(timed)
    for text in ("say a", "say b"):
        assert bench.pair.counted[text, "k=5"] == 1
        assert bench.pair.counted[text, "plain"] == bench.pair.counted[text, "k=3"] == 6
    assert planned == (len(bench.pair.made),) * 2 == (2 * 3 + 2 * 2 * 5,) * 2
    assert {arm for _, _, arm in bench.watcher.trials} == {"plain", "k=3"}


def test_an_arm_that_did_not_draft_is_not_timed() -> None:
    """The other k drafted: that one is judged, the other one is named."""

    @dataclass
    class ForgetsFive(FakePair):
        """With k = 5 it runs the target alone."""

        def generate(self, *args: Any, **options: Any) -> Generation:
            """The script, without a draft at k = 5."""
            self.ignores_draft = options["num_draft_tokens"] == 5
            return super().generate(*args, **options)

    bench, inputs = Bench(ForgetsFive()), make_inputs(make_prompts("a"), 3, 5)
    evidence = bench.rounds(inputs)
    assert trials_of(evidence) == {"a": {"plain": 5, "k=3": 5, "k=5": 0}}
    assert [arm.drafted for arm in evidence.cases[0].speculative] == [True, False]
    assert judge("speedup", bench.known(inputs, 3)).status == "passed"
    failed = judge("speedup", bench.known(inputs, 5))
    assert (failed.status, failed.reason) == (
        "failed",
        "nothing was drafted: the draft model was never called",
    )


def test_sampled_outputs_differ_and_are_timed() -> None:
    """At temperature > 0 the two paths draw differently, and each round may as well."""
    pair = FakePair({"say a": WRONG}, unstable={("say a", "plain", 2): (7, 8, 9)})
    evidence = Bench(pair).rounds(make_inputs(make_prompts("a"), 3, temperature=0.7))
    assert trials_of(evidence) == {"a": {"plain": 5, "k=3": 5}}
    assert evidence.cases[0].plain.unstable is None
    assert evidence.cases[0].plain.trials[1].tokens == 3
    assert len(evidence.timed) == 1


@pytest.mark.parametrize("arm", ["plain", "k=3"])
def test_an_unstable_round_is_recorded_and_the_last(arm: str) -> None:
    """Round 2 says something else from token 3 on: that is told, and nothing is timed again."""
    odd = (100, 101, 102, 9, 9, 9, 9, 9)
    bench = Bench(FakePair(unstable={("say b", arm, 2): odd}))
    inputs = make_inputs(make_prompts("a", "b"), 3)
    evidence = bench.rounds(inputs)
    case = evidence.cases[1]
    assert case.arms[arm].unstable == ("round 2 differs from the parity pass at output token 3")
    assert [name for name, a in case.arms.items() if a.unstable] == [arm]
    assert bench.pair.counted[("say b", arm)] == 3
    assert bench.pair.counted[("say a", arm)] == 6
    made = len(bench.pair.made)
    bench.rounds(inputs)
    assert len(bench.pair.made) == made
    assert [c.prompt.id for c in evidence.timed] == ["a"]


@pytest.mark.parametrize("arm", ["plain", "k=3"])
def test_an_unstable_further_warm_up_pass_is_recorded(arm: str) -> None:
    """The second pass says something else: it was no round, but no figure of the path holds."""
    odd = (100, 101, 102, 9, 9, 9, 9, 9)
    bench = Bench(FakePair(unstable={("say b", arm, 1): odd}))
    evidence = bench.rounds(make_inputs(make_prompts("a", "b"), 3), Measure(2, 5, 5))
    case = evidence.cases[1]
    words = "a further warm-up pass differs from the parity pass at output token 3"
    assert {name: a.unstable for name, a in case.arms.items() if a.unstable} == {arm: words}
    assert trials_of(evidence) == {"a": {"plain": 5, "k=3": 5}, "b": {"plain": 0, "k=3": 0}}
    assert bench.pair.counted[("say b", arm)] == 2
    verdict = judge("speedup", evidence)
    assert (verdict.status, verdict.reason) == ("failed", f"not deterministic: b, {arm}: {words}")


def test_a_sampled_warm_up_pass_may_say_something_else() -> None:
    """At temperature > 0 that is no fault."""
    bench = Bench(FakePair(unstable={("say a", "k=3", 1): (7, 8, 9)}))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3, temperature=0.7), Measure(2, 5, 5))
    assert trials_of(evidence) == {"a": {"plain": 5, "k=3": 5}}
    assert all(arm.unstable is None for arm in evidence.cases[0].arms.values())


def test_an_output_that_ends_earlier_in_a_round_is_unstable() -> None:
    """It differs where it ends."""
    bench = Bench(FakePair(unstable={("say a", "plain", 1): (100, 101)}))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    assert evidence.cases[0].plain.unstable == (
        "round 1 differs from the parity pass at output token 2"
    )


@pytest.mark.parametrize(
    ("arm", "error"), [("plain", "no kernel"), ("k=3", "with the draft (k=3): no kernel")]
)
def test_an_engine_error_in_the_parity_pass(arm: str, error: str) -> None:
    """The path is named; the prompt is not tried again, the others are measured."""
    bench = Bench(FakePair(raises={("say a", arm, 0): EngineError("no kernel")}))
    inputs = make_inputs(make_prompts("a", "b"), 3)
    evidence = bench.rounds(inputs)
    bench.rounds(inputs)
    bench.parity(inputs)
    assert evidence.cases[0].error == error
    assert bench.pair.counted[("say a", arm)] == 1
    assert [case.prompt.id for case in evidence.timed] == ["b"]
    assert evidence.rounds == 5


def test_an_engine_error_in_a_round() -> None:
    """The round is named; the prompt is out, the others go on."""
    bench = Bench(FakePair(raises={("say a", "k=3", 3): EngineError("out of memory")}))
    inputs = make_inputs(make_prompts("a", "b"), 3)
    evidence = bench.rounds(inputs)
    bench.rounds(inputs)
    assert evidence.cases[0].error == "k=3, round 3: out of memory"
    assert bench.pair.counted[("say a", "k=3")] == 4
    assert [case.prompt.id for case in evidence.timed] == ["b"]
    assert evidence.rounds == 5


@pytest.mark.parametrize("number", [0, 3])
def test_an_engine_error_at_one_k_keeps_the_other_arms(number: int) -> None:
    """In the parity pass or in round 3: plain and k = 3 are timed and judged as if k = 5 were not.

    The round that broke is run again without it.
    """
    bench = Bench(FakePair(raises={("say a", "k=5", number): EngineError("no kernel")}))
    inputs = make_inputs(make_prompts("a", "b"), 3, 5)
    evidence = bench.rounds(inputs)
    made = len(bench.pair.made)
    bench.rounds(inputs)
    bench.parity(inputs)
    assert len(bench.pair.made) == made  # not tried again
    words = "k=5, round 3: no kernel" if number else "with the draft (k=5): no kernel"
    assert [case.error for case in evidence.cases] == [words, None]
    whole = {"plain": 5, "k=3": 5}
    assert trials_of(evidence) == {
        "a": {**whole, "k=5": 2} if number else whole,
        "b": {**whole, "k=5": 5},
    }
    assert [trial.round for trial in evidence.cases[0].plain.trials] == [1, 2, 3, 4, 5]
    three, five = bench.known(inputs, 3), bench.known(inputs, 5)
    assert [case.error for case in three.cases] == [None, None]
    assert [case.prompt.id for case in three.timed] == ["a", "b"]
    assert [case.error for case in five.cases] == [words, None]
    assert [case.prompt.id for case in five.timed] == ["b"]
    assert judge("speedup", three).evidence_text == "2 prompts, 5 rounds"
    part = judge("speedup", five)
    if number:  # parity was judged before, so this gate has to tell it
        assert (part.status, part.samples) == ("failed", 0)
        assert part.reason == f"generating broke while it was timed: a, {words}"
    else:
        assert (part.status, part.evidence_text) == ("passed", "1 prompt, 5 rounds")
        assert part.details == ("left out: a (generating failed)",)
    parity = judge("parity", bench.store.campaign(inputs).evidence(inputs.only(inputs.prompts[0])))
    assert (parity.status, parity.reason) == ("failed", words)


def test_an_engine_error_on_the_plain_path_leaves_nothing_to_compare() -> None:
    """No speculative arm is tried; the error stands in every k."""
    bench = Bench(FakePair(raises={("say a", "plain", 0): EngineError("no kernel")}))
    inputs = make_inputs(make_prompts("a"), 3, 5)
    bench.rounds(inputs)
    assert bench.pair.made == [("say a", "plain")]
    for k in (3, 5):
        (case,) = bench.known(inputs, k).cases
        assert (case.error, case.arms) == ("no kernel", {})
        assert judge("speedup", bench.known(inputs, k)).reason == (
            "nothing could be generated: no kernel"
        )


# -- engines that break ----------------------------------------------------------------------------

BROKEN: Mapping[str, tuple[Exception, str]] = {
    "ValueError": (ValueError("no such thing"), "ValueError: no such thing"),
    "RuntimeError": (
        RuntimeError("[metal::malloc]\n  too\tlarge"),
        "RuntimeError: [metal::malloc] too large",
    ),
    "KeyError": (KeyError("k"), "KeyError: 'k'"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize(("arm", "where"), [("plain", ""), ("k=3", "with the draft (k=3): ")])
def test_whatever_an_engine_raises_is_one_sentence(what: str, arm: str, where: str) -> None:
    """The kind of the exception and its message; the other prompts go on."""
    error, words = BROKEN[what]
    bench = Bench(FakePair(raises={("say a", arm, 0): error}))
    evidence = bench.rounds(make_inputs(make_prompts("a", "b"), 3))
    assert [case.error for case in evidence.cases] == [
        f"{where}the engine fake broke: {words}",
        None,
    ]
    assert [case.prompt.id for case in evidence.timed] == ["b"]


@pytest.mark.parametrize("error", [MemoryError(), AssertionError(), StopIteration(), Exception()])
def test_an_exception_without_a_message(error: Exception) -> None:
    """Its kind is all there is to tell."""
    bench = Bench(FakePair(raises={("say a", "plain", 0): error}))
    (case,) = bench.parity(make_inputs(make_prompts("a"), 3)).cases
    assert case.error is not None
    assert case.error.startswith(f"the engine fake broke: {type(error).__name__}")


def test_an_engine_that_breaks_in_a_round() -> None:
    """The round is named."""
    bench = Bench(FakePair(raises={("say a", "k=3", 2): ValueError("no such thing")}))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    assert evidence.cases[0].error == (
        "k=3, round 2: the engine fake broke: ValueError: no such thing"
    )


def test_an_engine_that_breaks_in_a_further_warm_up_pass() -> None:
    """It is thrown away, so it is no round."""
    bench = Bench(FakePair(raises={("say a", "k=3", 1): EngineError("out of memory")}))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3), Measure(2, 5, 5))
    assert evidence.cases[0].error == "k=3, a further warm-up pass: out of memory"


def test_a_long_message_of_an_engine_is_cut() -> None:
    """600 characters of it."""
    bench = Bench(FakePair(raises={("say a", "plain", 0): ValueError("x" * 10_000)}))
    (case,) = bench.parity(make_inputs(make_prompts("a"), 3)).cases
    assert case.error == f"the engine fake broke: ValueError: {'x' * 600}"


@pytest.mark.parametrize("step", ["describe", "load", "encode"])
def test_an_engine_that_breaks_before_it_generates(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every prompt tells why; what cannot be loaded is not tried again."""
    calls: list[str] = []

    def broken(*_: object) -> EngineInfo:
        calls.append(step)
        raise ValueError("no such thing")

    bench, inputs = Bench(), make_inputs(make_prompts("a", "b"), 3)
    monkeypatch.setattr(bench.pair if step == "encode" else bench.engine, step, broken)
    evidence = bench.parity(inputs)
    words = "the engine fake broke: ValueError: no such thing"
    assert [case.error for case in evidence.cases] == [words, words]
    bench.rounds(inputs)
    assert len(calls) == (2 if step == "encode" else 1)
    assert bench.pair.made == []


def test_an_engine_that_cannot_even_be_made() -> None:
    """Its factory raises."""

    def factory() -> FakeEngine:
        raise ModuleNotFoundError("No module named 'mine'")

    store = Store({"fake": factory}, Recorder(), lambda _: None)
    with pytest.raises(EngineError) as caught:
        store.pair(make_inputs(make_prompts("a"), 3))
    assert str(caught.value) == (
        "the engine fake broke: ModuleNotFoundError: No module named 'mine'"
    )


def test_an_interrupt_is_no_fault_of_the_engine() -> None:
    """Ctrl-C while loading passes through, and the pair can be loaded later on."""
    bench, inputs = Bench(), make_inputs(make_prompts("a"), 3)
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(_: Inputs) -> FakePair:
            raise KeyboardInterrupt

        patch.setattr(bench.engine, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.store.pair(inputs)
    assert bench.store.pair(inputs) is bench.pair


@dataclass
class BentPair(FakePair):
    """A pair whose generations are bent on one arm."""

    bend: Callable[[Any], Any] = lambda generation: generation
    arm: str = "plain"

    def generate(self, *args: Any, **options: Any) -> Any:
        """The script, bent."""
        generation = super().generate(*args, **options)
        return self.bend(generation) if self.made[-1][1] == self.arm else generation


LENGTHS = "{} tokens, {} from_draft flags and {} token times should be as many"
BENT: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "a flag too few": (
        lambda g: replace(g, from_draft=g.from_draft[:-1]),
        LENGTHS.format(8, 7, 8),
    ),
    "no flags": (lambda g: replace(g, from_draft=()), LENGTHS.format(8, 0, 8)),
    "a time too many": (
        lambda g: replace(g, token_times_s=(*g.token_times_s, g.e2e_s)),
        LENGTHS.format(8, 8, 9),
    ),
    "no times": (lambda g: replace(g, token_times_s=()), LENGTHS.format(8, 8, 0)),
    "a token too few": (lambda g: replace(g, tokens=g.tokens[:-1]), LENGTHS.format(7, 8, 8)),
    "no time in all": (
        lambda g: replace(g, e2e_s=0.0),
        "times out of order: 0.5 s, 4.0 s, 0.0 s in all",
    ),
    "less time than the tokens took": (
        lambda g: replace(g, e2e_s=3.9),
        "times out of order: 0.5 s, 4.0 s, 3.9 s in all",
    ),
    "a first token in no time": (
        lambda g: replace(g, token_times_s=(0.0, *g.token_times_s[1:])),
        "times out of order: 0.0 s, 4.0 s, 4.0 s in all",
    ),
    "times that run backwards": (
        lambda g: replace(g, token_times_s=g.token_times_s[::-1]),
        "times out of order: 4.0 s, 0.5 s, 4.0 s in all",
    ),
    "times that are no numbers": (
        lambda g: replace(g, token_times_s=(float("nan"),) * 8),
        "token_times_s must be a finite number, found nan",
    ),
    "one time that is no number": (
        lambda g: replace(g, token_times_s=(*g.token_times_s[:3], None, *g.token_times_s[4:])),
        "token_times_s must be a number, found nothing (null)",
    ),
    "one time without an end": (
        lambda g: replace(g, token_times_s=(*g.token_times_s[:3], math.inf, *g.token_times_s[4:])),
        "token_times_s must be a finite number, found inf",
    ),
    "null for times": (
        lambda g: replace(g, token_times_s=None),
        "token_times_s must be a tuple, found nothing (null)",
    ),
    "a time in all that is no number": (
        lambda g: replace(g, e2e_s=float("nan")),
        "e2e_s must be a finite number, found nan",
    ),
    "a time in all without an end": (
        lambda g: replace(g, e2e_s=math.inf),
        "e2e_s must be a finite number, found inf",
    ),
    "null for the time in all": (
        lambda g: replace(g, e2e_s=None),
        "e2e_s must be a number, found nothing (null)",
    ),
    "null for text": (lambda g: replace(g, text=None), "text must be text, found nothing (null)"),
    "tokens that are text": (
        lambda g: replace(g, tokens=("a",) * 8),
        "tokens must be a whole number, found the text 'a'",
    ),
    "flags that are numbers": (
        lambda g: replace(g, from_draft=(1,) * 8),
        "from_draft must be true or false, found 1",
    ),
    "nothing": (lambda g: None, "it gave nothing (null) where a Generation is due"),
    "a mapping": (lambda g: {"tokens": g.tokens}, "it gave a mapping where a Generation is due"),
}


@pytest.mark.parametrize("what", BENT)
@pytest.mark.parametrize(("arm", "where"), [("plain", ""), ("k=3", "with the draft (k=3): ")])
def test_a_generation_that_cannot_be_measured_by(what: str, arm: str, where: str) -> None:
    """Refused with what is wrong, rather than counted into a figure."""
    bend, words = BENT[what]
    bench = Bench(BentPair(seconds=lambda *_: 0.5, bend=bend, arm=arm))
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    assert evidence.cases[0].error == f"{where}the engine fake: {words}"
    assert evidence.timed == ()
    assert bench.pair.counted["say a", arm] == 1


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (None, "it gave nothing (null) where the ids of a prompt are due"),
        ((), "it gave a list where the ids of a prompt are due"),
        (("a",), "the ids of a prompt must be a whole number, found the text 'a'"),
    ],
)
def test_a_prompt_that_is_encoded_to_no_ids(
    tokens: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, and nothing generated."""
    bench = Bench()
    monkeypatch.setattr(bench.pair, "encode", lambda *_: tokens)
    evidence = bench.rounds(make_inputs(make_prompts("a"), 3))
    assert evidence.cases[0].error == f"the engine fake: {words}"
    assert bench.pair.made == []


GOOD = Scores((0.0,) * 8, (0.0,) * 8, (1.0,) * 8, (0.01,) * 8)
NOT_EIGHT = "must be a tuple of 8 numbers, found "


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((), "it gave a list where Scores are due"),
        (replace(GOOD, gaps=(0.0,) * 7), f"gaps {NOT_EIGHT}a list"),
        (replace(GOOD, ulps=cast(Any, None)), f"ulps {NOT_EIGHT}nothing (null)"),
        (replace(GOOD, gaps=(math.nan,) * 8), "gaps must be numbers, found nan"),
        (replace(GOOD, logprobs=cast(Any, (None,) * 8)), "logprobs must be numbers, found nothing"),
    ],
)
def test_scores_that_cannot_be_judged_by(
    scores: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap that is no number would pass for a tie."""
    bench = Bench()
    monkeypatch.setattr(bench.pair, "score", lambda *_: scores)
    evidence = bench.parity(replace(make_inputs(make_prompts("a"), 3), parity="scored"))
    assert (evidence.cases[0].error or "").startswith(
        f"with the draft (k=3): the engine fake: {words}"
    )


def raises(*_: object) -> None:
    """As an engine would that was never run."""
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("owner", "name", "value", "words"),
    [
        ("engine", "describe", lambda: None, ": it gave nothing (null) where EngineInfo is due"),
        ("engine", "describe", raises, " broke: ValueError: no such thing"),
        ("engine", "load", lambda _: None, ": load gave nothing where a pair is due"),
        ("engine", "load", lambda _: 5, " broke: AttributeError: 'int' object has no attribute"),
        ("pair", "info", property(lambda _: None), ": it gave nothing (null) where PairInfo is"),
        ("pair", "info", property(raises), " broke: ValueError: no such thing"),
    ],
)
def test_a_pair_that_is_none(
    owner: str, name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, told of every prompt."""
    bench = Bench()
    monkeypatch.setattr(bench.engine if owner == "engine" else FakePair, name, value)
    evidence = bench.rounds(make_inputs(make_prompts("a", "b"), 3))
    for case in evidence.cases:
        assert (case.error or "").startswith(f"the engine fake{words}")
    assert evidence.pair is None


def test_a_prompt_that_cannot_be_encoded() -> None:
    """The tokenizer's message, and nothing generated."""
    bench = Bench()
    evidence = bench.parity(make_inputs((Prompt("a", "", "x", 8),), 3))
    assert evidence.cases[0].error == "the prompt is empty once it is turned into tokens"
    assert bench.pair.made == []


def test_an_engine_that_gives_no_token() -> None:
    """An error, not an output of zero tokens."""
    evidence = Bench(FakePair({"say a": Script(tokens=())})).rounds(
        make_inputs(make_prompts("a"), 3)
    )
    assert "nothing was generated" in (evidence.cases[0].error or "")


def test_a_pair_that_cannot_be_loaded_is_tried_once() -> None:
    """Three prompts, two gates, one attempt; every prompt tells why."""
    bench = Bench(refuses={"org/target": "the target org/target cannot be loaded: no such file"})
    inputs = make_inputs(make_prompts("a", "b", "c"), 3)
    bench.parity(inputs)
    evidence = bench.rounds(inputs)
    assert bench.engine.loads == ["org/target"]
    assert [case.error for case in evidence.cases] == [bench.refuses["org/target"]] * 3
    assert bench.pair.made == []
    assert evidence.pair is None
    with pytest.raises(EngineError, match="cannot be loaded"):
        bench.store.pair(inputs)


def test_an_unloadable_pair_is_tried_once_for_ever() -> None:
    """Bad, good, bad: the good one stays loaded, the bad one says again what it said."""
    bench = Bench(refuses={"org/bad": "the target org/bad cannot be loaded: no such file"})
    good, bad = (
        make_inputs(make_prompts("a"), 3, target=f"org/{name}") for name in ("good", "bad")
    )
    errors = []
    for inputs in (bad, good, bad, good, bad):
        if inputs is good:
            assert bench.store.pair(inputs) is bench.pair
            continue
        with pytest.raises(EngineError) as caught:
            bench.store.pair(inputs)
        errors.append(str(caught.value))
    assert errors == [bench.refuses["org/bad"]] * 3
    assert bench.engine.loads == ["org/bad", "org/good"]
    assert bench.watcher.loads == 2
    assert [case.error for case in bench.rounds(bad).cases] == [bench.refuses["org/bad"]]
    assert [case.error for case in bench.rounds(good).cases] == [None]
    assert bench.engine.loads == ["org/bad", "org/good"]


def test_one_pair_is_held_at_a_time() -> None:
    """Another pair takes its place; coming back loads anew."""
    bench = Bench()
    for target in ("org/one", "org/two", "org/two", "org/one"):
        bench.store.pair(make_inputs(make_prompts("a"), 3, target=target))
    assert bench.engine.loads == ["org/one", "org/two", "org/one"]
    assert bench.watcher.loads == 3


def test_a_draft_that_is_ignored_shows() -> None:
    """No draft call was made: the arm says so, and no block count is blamed."""
    evidence = Bench(FakePair(ignores_draft=True)).parity(make_inputs(make_prompts("a"), 3))
    (arm,) = evidence.cases[0].speculative
    assert arm.drafted is False
    assert arm.broken is None
    assert not evidence.drafted
    assert evidence.exact


def test_an_engine_that_sees_no_calls() -> None:
    """Whether it drafted is told by the flags."""
    evidence = Bench(FakePair(sees_calls=False)).parity(make_inputs(make_prompts("a"), 3))
    (arm,) = evidence.cases[0].speculative
    assert (arm.drafted, arm.broken) == (None, None)
    assert evidence.drafted
    blind = FakePair({"say a": Script(matches=(False,))}, sees_calls=False)
    assert not Bench(blind).parity(make_inputs(make_prompts("a"), 3)).drafted


def test_prompts_need_a_budget() -> None:
    """Inputs must be resolved first; this is a fault of the caller."""
    inputs = make_inputs((Prompt("a", "say a"),), 3)
    with pytest.raises(ValueError, match="max_tokens"):
        Bench().parity(inputs)


# -- interrupts ------------------------------------------------------------------------------------


def interrupted_at(where: tuple[str, str, int], **more: Any) -> tuple[Bench, Inputs]:
    """Three prompts on two speculative arms, interrupted there."""
    bench = Bench(FakePair(raises={where: KeyboardInterrupt()}, **more))
    inputs = make_inputs(make_prompts("a", "b", "c"), 1, 3)
    with pytest.raises(KeyboardInterrupt):
        bench.rounds(inputs)
    return bench, inputs


@pytest.mark.parametrize("prompt", ["a", "b", "c"])
@pytest.mark.parametrize("arm", ["plain", "k=1", "k=3"])
def test_an_interrupt_leaves_only_whole_rounds(prompt: str, arm: str) -> None:
    """In the middle of round 3: every arm of a prompt has two trials, or every arm three."""
    bench, inputs = interrupted_at((f"say {prompt}", arm, 3))
    evidence = bench.store.campaign(inputs).evidence(inputs)
    counts = trials_of(evidence)
    assert set(counts[prompt].values()) == {2}
    for arms in counts.values():
        assert len(set(arms.values())) == 1
        assert set(arms.values()) <= {2, 3}
    assert evidence.rounds == 2
    assert len(evidence.timed) == 3


def test_rounds_go_on_after_an_interrupt() -> None:
    """Prompts that were ahead wait for the others: five trials each, in order."""
    bench, inputs = interrupted_at(("say b", "k=1", 3))
    evidence = bench.rounds(inputs)
    for case in evidence.cases:
        for arm in case.arms.values():
            assert [trial.round for trial in arm.trials] == [1, 2, 3, 4, 5]
    assert bench.pair.counted[("say b", "k=1")] == 7  # one of them was interrupted


def test_an_interrupt_in_the_parity_pass() -> None:
    """The arms that were whole stay; nothing was timed, and the rest follows when asked again."""
    bench, inputs = interrupted_at(("say b", "k=3", 0))
    campaign = bench.store.campaign(inputs)
    arms = {case.prompt.id: list(case.arms) for case in campaign.cases()}
    assert arms == {"a": ["plain", "k=1", "k=3"], "b": ["plain", "k=1"]}
    assert campaign.evidence(inputs).rounds == 0
    assert [case.prompt.id for case in bench.rounds(inputs).timed] == ["a", "b", "c"]

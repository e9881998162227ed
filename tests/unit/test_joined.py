"""What several workers found, as if one process had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_specgate.config.plan import Inputs
from pytest_specgate.gates.base import Status, Verdict
from pytest_specgate.measure.evidence import CaseEvidence
from pytest_specgate.parallel import Findings, joined
from pytest_specgate.report.session_report import MeasuredPair
from pytest_specgate.stats import noise_floor
from tests.fakes import failed_case, make_arm, make_case, make_inputs, make_prompts, pair_info

INPUTS = make_inputs(make_prompts("a", "b"), 3)


def measured(*cases: CaseEvidence, inputs: Inputs = INPUTS, **more: Any) -> Findings:
    """One worker with one pair."""
    return Findings(measured=(MeasuredPair(inputs, pair_info(), cases, **more),))


def test_nothing() -> None:
    """No worker, or workers that did nothing."""
    assert joined([]) == Findings()
    assert joined([Findings(), Findings()]) == Findings()


def test_prompts_of_several_workers() -> None:
    """Side by side, in the order in which they came."""
    one = measured(make_case("a", make_arm(None), make_arm(3)))
    other = measured(make_case("b", make_arm(None), make_arm(3)))
    (pair,) = joined([one, other]).measured
    assert [case.prompt.id for case in pair.cases] == ["a", "b"]
    assert pair.inputs.num_draft_tokens == (3,)


def test_the_arm_with_more_trials_wins() -> None:
    """Arm by arm: only one worker has timed, others have observed."""
    seen = make_case("a", make_arm(None), make_arm(3), make_arm(5))
    timed = make_case("a", make_arm(None, [1.0, 1.1]), make_arm(3, [0.5, 0.6]))
    for order in ([seen, timed], [timed, seen]):
        (pair,) = joined(map(measured, order)).measured
        (case,) = pair.cases
        counts = {name: len(arm.trials) for name, arm in case.arms.items()}
        assert counts == {"plain": 2, "k=3": 2, "k=5": 0}
        assert case.arms["k=3"].trials == timed.arms["k=3"].trials


def test_an_error_of_one_worker_stays() -> None:
    """It is told, whatever another one could generate."""
    whole = make_case("a", make_arm(None), make_arm(3))
    for order in ([failed_case("a", "no"), whole], [whole, failed_case("a", "no")]):
        (pair,) = joined(map(measured, order)).measured
        (case,) = pair.cases
        assert case.error == "no"
        assert {*case.arms} == {"plain", "k=3"}


def test_numbers_of_draft_tokens_are_united() -> None:
    """Each once, rising; another pair, or other options, stay apart."""
    findings = [
        measured(make_case("a", make_arm(None)), inputs=replace(INPUTS, num_draft_tokens=ks))
        for ks in ((5,), (1, 3), (3,))
    ]
    elsewhere = measured(make_case("a"), inputs=make_inputs(INPUTS.prompts, 7, target="org/other"))
    warm = measured(make_case("a"), inputs=make_inputs(INPUTS.prompts, 7, temperature=0.5))
    pairs = joined([*findings, elsewhere, warm]).measured
    assert [pair.inputs.num_draft_tokens for pair in pairs] == [(1, 3, 5), (7,), (7,)]


def test_what_gates_try_alone_is_no_other_pair() -> None:
    """The inputs of the gates options and reuse differ in what is run beside the paths."""
    findings = [
        measured(make_case("a"), inputs=inputs)
        for inputs in (
            INPUTS,
            replace(INPUTS, alone={"kv_bits": 8}),
            replace(INPUTS, follow_up="Go on."),
        )
    ]
    assert len(joined(findings).measured) == 1


def test_the_budget_of_the_file_is_no_other_pair() -> None:
    """Each prompt has its own; the campaign is one whatever max_tokens stands beside it."""
    other = replace(INPUTS, decoding=replace(INPUTS.decoding, max_tokens=7))
    pairs = joined([measured(make_case("a")), measured(make_case("b"), inputs=other)]).measured
    assert len(pairs) == 1


def test_noise_trials_and_models_of_the_one_that_has_them() -> None:
    """The one that timed, or that has loaded the pair."""
    floor = noise_floor([[1.0, 1.1, 1.2]], [[1.1, 1.0, 1.2]])
    parts = [
        Findings(measured=(MeasuredPair(INPUTS, None, (make_case("a"),)),)),
        measured(make_case("a"), noise=floor, trials=(20, 48)),
        measured(make_case("b")),
    ]
    for order in (parts, parts[::-1]):
        (pair,) = joined(order).measured
        assert (pair.info, pair.noise, pair.trials) == (pair_info(), floor, (20, 48))


def test_a_verdict_of_the_same_item_counts_once() -> None:
    """As with ``--dist each``; other items, subjects and gates stay."""

    def verdict(**changed: Any) -> Verdict:
        return replace(Verdict("parity", "a", "passed", "equal", item="g::parity[a]"), **changed)

    several = [
        verdict(),
        verdict(subject="b", item="g::parity[b]"),
        verdict(gate="speedup"),
        verdict(item="test_own.py::test_it"),
    ]
    parts = [Findings(tuple(several)), Findings(tuple(several[:2]), used=True)]
    found = joined(parts)
    assert found.verdicts == tuple(several)
    assert found.used


def test_the_verdict_of_one_that_could_judge() -> None:
    """The worst stands where workers came to different ones."""
    good = Verdict("parity", "a", "passed", "equal", item="g::parity[a]")
    statuses: tuple[Status, ...] = ("failed", "inconclusive", "skipped")
    for status in statuses:
        bad = replace(good, status=status)
        for order in ([good, bad], [bad, good]):
            (kept,) = joined([Findings((verdict,)) for verdict in order]).verdicts
            assert kept.status == status


def test_the_fullest_environment() -> None:
    """Of a worker that has loaded the pair; the others know less."""
    found = joined([Findings(), Findings(facts={"os": 1}), Findings(facts={"os": 1, "mlx": 2})])
    assert found.facts == {"os": 1, "mlx": 2}

"""What became of a stored session: facts, outputs, and each figure against its limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.baseline.changes import Change
from pytest_specgate.baseline.compare import LEAST_MEMORY, compare
from pytest_specgate.baseline.document import Baseline, StoredArm, StoredBlocks
from pytest_specgate.baseline.reading import loads
from pytest_specgate.baseline.tables import compared_lines, markdown_of
from pytest_specgate.baseline.writing import dumps
from pytest_specgate.gates.baseline import BaselineGate
from pytest_specgate.measure.fresh import FreshPeak
from tests.baselines import (
    EVEN,
    FACTS,
    NOISY,
    compared,
    each_arm,
    figure,
    mix,
    stored,
    with_arm,
    without_arm,
)
from tests.fakes import GB, make_arm, make_case, timed_case

THEN = stored(*mix())


def test_nothing_changed() -> None:
    """Judged figures pass, those without a limit are shown."""
    found = compared(THEN, THEN)
    assert (found.changes, found.apart) == ((), ())
    assert found.common == tuple(THEN.cases)
    assert [(one.name, one.status) for one in found.figures] == [
        ("output", "passed"),
        ("acceptance python", "passed"),
        ("speedup", "passed"),
        ("p95", "passed"),
        ("ttft", "not judged"),
        ("decode", "not judged"),
        ("e2e", "not judged"),
        ("memory", "passed"),
    ]
    assert "nothing changed in environment, models, prompts and decoding" in compared_lines(
        found, "t"
    )


def test_a_file_in_between_changes_nothing() -> None:
    """Seven digits are enough."""
    found = compared(loads(dumps(THEN)), THEN)
    assert [one.status for one in found.figures if one.limit != "-"] == ["passed"] * 5


# -- outputs ---------------------------------------------------------------------------------------

OTHER, THIRD = {"tokens": (1, 2, 9, 4)}, {"tokens": (1, 7, 9, 4)}
THREE_WAY: dict[str, tuple[Any, Any, str, str]] = {
    "same": (None, None, "passed", "the outputs are the stored ones"),
    "alike": (OTHER, OTHER, "failed", "the model's own output is another one, and speculative dec"),
    "speculative": (None, OTHER, "failed", "the plain output is the stored one: speculative"),
    "plain": (OTHER, None, "failed", "the plain output changed, and the speculative one did not"),
    "apart": (OTHER, THIRD, "failed", "both outputs changed, and they differ from each other"),
    "text alone": (None, {"text": "zz"}, "failed", "the plain output is the stored one: spec"),
}


@pytest.mark.parametrize("what", THREE_WAY)
def test_which_output_changed(what: str) -> None:
    """Each kind means something else, and names the prompt."""
    plain, ours, status, words = THREE_WAY[what]
    now = THEN
    for arm, changes in (("plain", plain), ("k=3", ours)):
        now = with_arm(now, "p2", arm, **changes) if changes else now
    one = figure("output", compared(THEN, now))
    assert one.status == status
    assert one.reason.startswith(words)
    assert one.now == ("6 of 6 same" if status == "passed" else "5 of 6 same")
    assert one.reason.endswith(": p2") == (status == "failed")
    assert figure("output", compared(THEN, now, output="any")).status == "not judged"


def test_the_worst_kind_is_the_reason() -> None:
    """A wrong speculative path is not hidden by prompts that changed with the model."""
    now = with_arm(with_arm(THEN, "p1", "plain", **OTHER), "p1", "k=3", **OTHER)
    now = with_arm(now, "p3", "k=3", **OTHER)
    now = with_arm(with_arm(now, "p4", "plain", **OTHER), "p4", "k=3", **THIRD)
    one = figure("output", compared(THEN, now))
    assert one.reason == "both outputs changed, and they differ from each other: p4"


# -- acceptance ------------------------------------------------------------------------------------


def accepting(baseline: Baseline, prompt: str, accepted: int) -> Baseline:
    """100 proposed, so many accepted."""
    return with_arm(baseline, prompt, "k=3", blocks=StoredBlocks((100,), (accepted,)))


def two_kinds(python: int, prose: int) -> Baseline:
    """A prompt of each kind."""
    cases = [timed_case("a", EVEN, EVEN, kind="python"), timed_case("b", EVEN, EVEN, kind="prose")]
    return accepting(accepting(stored(*cases), "a", python), "b", prose)


@pytest.mark.parametrize(
    ("now", "status"), [(60, "passed"), (57, "passed"), (56, "failed"), (50, "failed")]
)
def test_acceptance_of_each_kind(now: int, status: str) -> None:
    """A fall of 0.03 is let through, no more; it does not hide behind the other kind."""
    found = compared(two_kinds(60, 50), two_kinds(now, 90))
    one = figure("acceptance python", found)
    assert one.status == status
    assert (one.then, one.now, one.limit) == ("0.600", f"0.{now}0", "-0.03")
    assert figure("acceptance prose", found).status == "passed"


def test_acceptance_without_a_limit() -> None:
    """Shown."""
    one = figure(
        "acceptance python", compared(two_kinds(60, 50), two_kinds(10, 50), acceptance=None)
    )
    assert (one.status, one.change) == ("not judged", "-0.500")


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speedup", "status"), [(2.0, "passed"), (2.4, "passed"), (1.8, "failed")])
@pytest.mark.parametrize("facts", [FACTS, {**FACTS, "chip": "steel"}])
def test_ratios_are_judged_on_any_machine(speedup: float, status: str, facts: Any) -> None:
    """10 % slower than stored is found."""
    found = compared(THEN, stored(*mix(speedup), facts=facts))
    assert figure("speedup", found).status == status
    assert figure("p95", found).status == status


def test_noise_leaves_it_undecided() -> None:
    """With the error of each side."""
    loud = [1.0, 1.2, 0.8, 1.1, 0.9, 1.05]
    one = figure("speedup", compared(THEN, stored(*mix(1.93, loud))))
    assert one.status == "inconclusive"
    assert one.errors is not None
    assert one.errors[0] < one.errors[1]


LIMITS = {"ttft": "+5%", "decode": "-5%", "e2e": "+5%"}


@pytest.mark.parametrize(("factor", "status"), [(1.0, "passed"), (1.2, "failed"), (0.8, "passed")])
def test_seconds_on_the_same_machine(factor: float, status: str) -> None:
    """Both arms slower: the ratio holds, the seconds do not."""
    now = stored(*mix(2.0, [value * factor for value in NOISY]))
    found = compared(THEN, now, **LIMITS)
    assert {name: figure(name, found).status for name in LIMITS} == dict.fromkeys(LIMITS, status)
    assert figure("speedup", found).status == "passed"


def test_seconds_on_another_machine() -> None:
    """Shown, with why they are not judged."""
    now = stored(*mix(2.0, [value * 2 for value in NOISY]), facts={**FACTS, "cpu_count": 4})
    found = compared(THEN, now, **LIMITS)
    for name in LIMITS:
        one = figure(name, found)
        assert one.status == "not judged"
        assert one.reason == "another machine: seconds cannot be compared"
        assert one.limit == LIMITS[name]


@pytest.mark.parametrize(("then", "now", "which"), [(6, 1, "measured now"), (1, 6, "stored")])
def test_one_round_alone(then: int, now: int, which: str) -> None:
    """Nothing can be said of a spread; no figure without a limit is made up."""
    found = compared(stored(*mix(2.0, NOISY[:then])), stored(*mix(2.0, NOISY[:now])))
    assert [(one.name, one.status) for one in found.figures] == [
        ("output", "passed"),
        ("acceptance python", "passed"),
        ("speedup", "inconclusive"),
        ("p95", "inconclusive"),
        ("memory", "passed"),
    ]
    assert figure("speedup", found).reason == f"fewer than two timed rounds are {which}"


def test_a_prompt_that_was_not_timed() -> None:
    """The others are judged, and it is named."""
    now = with_arm(THEN, "p3", "k=3", trials=())
    one = figure("speedup", compared(THEN, now))
    assert one.status == "passed"
    assert one.reason.endswith("; left out, not timed on both sides: p3")


def test_outputs_of_one_token() -> None:
    """They have no decode speed: a limit on it is not silently dropped."""
    then = stored(*mix(tokens=(7,)))
    one = figure("decode", compared(then, then, decode="-5%"))
    assert (one.status, one.limit) == ("not judged", "-5%")
    assert "it is not defined" in one.reason
    assert "decode" not in [one.name for one in compared(then, then).figures]


def test_a_limit_that_lets_everything_through() -> None:
    """A speedup of 2 cannot fall by 3: the per cent sign was forgotten."""
    one = figure("speedup", compared(THEN, THEN, speedup=-3))
    assert one.status == "failed"
    assert one.reason.startswith("the limit -3 lets every figure through: ")


def test_sampled_outputs_are_compared_by_the_token() -> None:
    """Longer ones on one path are no slowdown."""

    def longer(arm: StoredArm) -> StoredArm:
        trials = [replace(t, tokens=t.tokens * 2, e2e_s=t.e2e_s * 2) for t in arm.trials]
        return replace(arm, trials=tuple(trials))

    sides = [stored(*mix(), temperature=1.0), each_arm(THEN, "k=3", longer)]
    sides[1] = replace(sides[1], decoding=sides[0].decoding)
    assert figure("speedup", compared(*sides, output="any")).status == "passed"
    greedy = replace(sides[1], decoding=THEN.decoding)
    assert figure("speedup", compared(THEN, greedy)).status == "failed"


def test_prompts_whose_decode_is_not_always_defined() -> None:
    """One trial of one block alone: its prompt has a round less, and the others are cut to that."""

    def shorter(arm: StoredArm) -> StoredArm:
        first, *rest = arm.trials
        return replace(arm, trials=(replace(first, past_first_block=None), *rest))

    then, now = stored(*mix()), stored(*mix())
    arm = shorter(now.cases["p1"].arms["k=3"])
    now = with_arm(now, "p1", "k=3", trials=arm.trials)
    one = figure("decode", compared(then, now, decode="5%"))
    assert one.status in ("passed", "inconclusive")
    assert one.now.endswith(" tok/s")


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("then", "now", "status"),
    [
        (10 * GB, 10 * GB + 10**8, "passed"),
        (10 * GB, 10 * GB + 10**8 + 1, "failed"),
        (10**8, 10**8 + LEAST_MEMORY, "passed"),  # 1 % would be less
        (10**8, 10**8 + LEAST_MEMORY + 1, "failed"),
        (10 * GB, 5 * GB, "passed"),
    ],
)
def test_memory(then: int, now: int, status: str) -> None:
    """1 %, but never less than the allocator's own 16 MiB."""
    found = compared(stored(*mix(peak=then)), stored(*mix(peak=now)))
    assert figure("memory", found).status == status


@pytest.mark.parametrize(
    ("fresh", "status", "words"),
    [
        (FreshPeak(10 * GB), "passed", "12.00 GB after, 10.00 GB in a fresh process"),
        (FreshPeak(12 * GB), "failed", "12.00 GB after, 12.00 GB in a fresh process"),
        (FreshPeak(None, "it ended"), "failed", "12.00 GB after, not seen again: it ended"),
    ],
)
def test_memory_seen_again(fresh: FreshPeak, status: str, words: str) -> None:
    """A fresh process decides; where it says nothing, the first look stands."""
    then, now = stored(*mix(peak=10 * GB)), stored(*mix(peak=12 * GB))
    one = figure("memory", compare(then, now, BaselineGate.defaults, 3, fresh=fresh))
    assert (one.status, one.reason) == (status, f"10.00 GB before, {words}")


def test_memory_of_another_machine() -> None:
    """Shown alone."""
    now = stored(*mix(peak=20 * GB), facts={**FACTS, "device": "another"})
    one = figure("memory", compared(THEN, now))
    assert (one.status, one.now) == ("not judged", "20.00 GB")


@pytest.mark.parametrize(
    ("then", "now", "words"), [(None, GB, "stored"), (GB, None, "measured now")]
)
def test_memory_that_one_side_does_not_have(then: Any, now: Any, words: str) -> None:
    """Its limit is not silently dropped."""
    one = figure("memory", compared(stored(*mix(peak=then)), stored(*mix(peak=now))))
    assert (one.status, one.reason) == ("not judged", f"no peak memory is {words}")


# -- not comparable --------------------------------------------------------------------------------


def other_model(baseline: Baseline) -> Baseline:
    """Another draft."""
    draft = {**baseline.models["draft"], "digest": "e" * 64}
    return replace(baseline, models={**baseline.models, "draft": draft})


def other_prompt(baseline: Baseline) -> Baseline:
    """Another text of one id."""
    case = replace(baseline.cases["p2"], prompt="0" * 16)
    return replace(baseline, cases={**baseline.cases, "p2": case})


def shorter(baseline: Baseline) -> Baseline:
    """Another budget of one prompt."""
    case = replace(baseline.cases["p2"], max_tokens=4)
    return replace(baseline, cases={**baseline.cases, "p2": case})


APART: dict[str, tuple[Callable[[Baseline], Baseline], str]] = {
    "model": (other_model, f"the draft is another model (digest {'d' * 12}, now {'e' * 12})"),
    "decoding": (
        lambda b: replace(b, decoding={**b.decoding, "seed": 7}),
        "the decoding differs: seed",
    ),
    "text": (other_prompt, "1 prompt of another text or max_tokens: p2"),
    "budget": (shorter, "1 prompt of another text or max_tokens: p2"),
    "missing": (lambda b: stored(*mix(prompts=5)), "1 prompt stored and not measured now: p6"),
    "new": (lambda b: stored(*mix(prompts=7)), "1 prompt measured and not stored: p7"),
    "none": (
        lambda b: replace(b, cases={}),
        "6 prompts stored and not measured now: p1, p2, p3, p",
    ),
    "arm": (lambda b: without_arm(b, "p2", "k=3"), "k=3 is not measured now for 1 prompt: p2"),
    "plain": (lambda b: without_arm(b, "p2", "plain"), "plain is not measured now for 1 prompt"),
}


@pytest.mark.parametrize("what", APART)
def test_not_comparable(what: str) -> None:
    """Named; no figure is given that would look like a comparison."""
    change, words = APART[what]
    found = compared(THEN, change(THEN))
    assert found.figures == ()
    assert len(found.apart) == 1
    assert found.apart[0].startswith(words)


def test_another_number_of_draft_tokens() -> None:
    """The stored session did not have it."""
    now = stored(*mix(k=5))
    found = compared(now, THEN)
    assert found.apart == ("k=3 is not stored",)
    assert found.figures == ()


def test_many_prompts_are_counted() -> None:
    """Five are named."""
    found = compared(stored(*mix(prompts=60)), stored(*mix(prompts=50)))
    assert found.apart == ("10 prompts stored and not measured now: p51, p52, p53, p54, p55, ...",)


# -- what changed ----------------------------------------------------------------------------------


def test_facts_that_changed() -> None:
    """Versions first, then the machine, then models, prompts and tokens."""
    versions = {"mlx": "0.32.4", "mlx-lm": "0.31.1", "numpy": "2"}
    facts = {**FACTS, "versions": versions, "os": "macOS 26.0", "recorded_at": "later"}
    now = stored(*mix(), facts=facts)
    models = {**now.models, "draft": {**now.models["draft"], "revision": "def"}}
    ids = replace(now.cases["p2"], ids="0" * 16)
    now = replace(now, models=models, engine="other", cases={**now.cases, "p2": ids})
    found = compared(THEN, now)
    assert found.changes == (
        Change("mlx", "0.31.3", "0.32.4"),
        Change("numpy", None, "2"),
        Change("os", "macOS 15.1", "macOS 26.0"),
        Change("draft revision", "abc", "def"),
        Change("engine", "fake", "other"),
        Change("prompt tokens", "stored", "differ for 1 prompt"),
    )
    assert found.apart == ()
    lines = compared_lines(found, "a -> b")
    assert lines[:2] == ["a -> b", ""]
    assert lines[2].split("  ")[0] == "what changed"
    starts = [line.split(" ")[0] for line in lines]
    assert starts.index("mlx") < starts.index("figure") < starts.index("speedup")


def test_prompts_and_decoding_that_changed() -> None:
    """Told as facts too, beside the reason why nothing can be compared."""
    found = compared(THEN, stored(*mix(prompts=7), temperature=0.5))
    assert [change.name for change in found.changes] == ["prompts", "temperature"]
    assert found.changes[0].now is not None
    assert found.changes[0].now.startswith("7 (")
    assert found.changes[1] == Change("temperature", "0.0", "0.5")


def test_markdown_cannot_be_broken_by_a_cell() -> None:
    """Pipes, tags, line ends and code of names from outside."""
    evil = "a|b\n<img src=x> `c` [d](e) \u202e"
    now = stored(*mix(), facts={**FACTS, "os": evil})
    case = make_case("x|y\n# <b>", make_arm(None, EVEN), make_arm(3, EVEN))
    now = replace(now, cases={**now.cases, **stored(case).cases})
    lines = markdown_of(compared(THEN, now), evil)
    assert all("\n" not in line for line in lines)
    assert not any(re.search(r"(?<!\\)<[A-Za-z/!?]", line) or "\u202e" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("| os |")]
    assert row.replace("\\|", "").count("|") == 4
    assert "\\`c\\`" in row

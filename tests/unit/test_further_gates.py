"""The gates that run more than the two paths: options tried alone, and a second turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Inputs
from pytest_specgate.engines.base import EngineError, Generation, Scores, Turns, Unsupported
from pytest_specgate.gates.base import Verdict, judged
from pytest_specgate.gates.options import OptionsGate
from pytest_specgate.gates.reuse import ReuseGate
from pytest_specgate.measure.diagnosis import Check
from pytest_specgate.measure.evidence import CaseEvidence, Evidence
from pytest_specgate.measure.further import (
    OptionRun,
    TurnRun,
    floor_between,
    option_run,
    turn_run,
    with_option,
)
from tests.fakes import (
    failed_case,
    make_arm,
    make_case,
    make_evidence,
    make_inputs,
    make_prompts,
    text_of,
)

OPTIONS, REUSE = OptionsGate(), ReuseGate()
SAME, OTHER, SHORT = (1, 2, 3, 4), (1, 2, 9, 4), (1, 2)


def output(
    *tokens: int, kv: int | None = 1000, margins: tuple[float, ...] | None = None, **more: Any
) -> Generation:
    """An observed output; kv is what the target's cache holds, in bytes."""
    return Generation(
        tokens=tokens,
        text=text_of(tokens),
        from_draft=(False,) * len(tokens),
        token_times_s=tuple(float(i + 1) for i in range(len(tokens))),
        e2e_s=float(len(tokens)),
        finish_reason="length",
        peak_memory_bytes=None,
        kv_bytes=None if kv is None else (kv, 10),
        margins=margins,
        **more,
    )


def run(
    option: str = "repetition_penalty",
    plain: Generation | None = None,
    speculative: Generation | None = None,
    *,
    value: float = 1.3,
    k: int = 3,
    **more: Any,
) -> OptionRun:
    """An option that both paths follow, unless said otherwise."""
    plain, ours = plain or output(*SAME), speculative or output(*SAME)
    return OptionRun(option, value, k, plain, ours, **more)


def case_with(*runs: OptionRun, **turns: TurnRun) -> CaseEvidence:
    """A prompt whose two paths agree, and what was run beside them."""
    case = make_case("a", make_arm(None, tokens=SAME), make_arm(3, tokens=SAME))
    return replace(case, alone=runs, turns=turns)


def judge_options(*runs: OptionRun) -> Verdict:
    """The verdict on one prompt."""
    evidence = make_evidence(case_with(*runs))
    return OPTIONS.judge(evidence, OPTIONS.defaults, "a")


# -- options ---------------------------------------------------------------------------------------


def test_options_that_both_paths_take() -> None:
    """Each has its line."""
    verdict = judge_options(run(), run("logit_bias", value=-10.0), run("kv_bits", value=8, k=5))
    assert (verdict.status, verdict.reason) == ("passed", "3 options alone, equal on both paths")
    assert (verdict.observed_text, verdict.limit_text) == ("3 of 3 equal", "equal")
    assert (verdict.samples, verdict.kind) == (12, None)
    assert [line.split() for line in verdict.details] == [
        ["repetition_penalty", "1.3", "(k", "=", "3)", "equal"],
        ["logit_bias", "-10", "(k", "=", "3)", "equal"],
        ["kv_bits", "8", "(k", "=", "5)", "equal"],
    ]


@pytest.mark.parametrize(("tokens", "first"), [(OTHER, 2), (SHORT, 2), ((9,), 0)])
def test_an_option_that_one_path_drops(tokens: tuple[int, ...], first: int) -> None:
    """Named with k and the place; others that fail are counted."""
    wrong = run(speculative=output(*tokens))
    verdict = judge_options(run("kv_bits", value=8), wrong)
    words = f"repetition_penalty, k = 3: the paths part at output token {first}"
    assert (verdict.status, verdict.kind) == ("failed", "options-differ")
    assert verdict.reason == words
    assert verdict.observed_text == "1 of 2 equal"
    assert verdict.evidence == {
        "kv_bits, k = 3": {"fault": None, "first_difference": None},
        "repetition_penalty, k = 3": {
            "fault": f"the paths part at output token {first}",
            "first_difference": first,
        },
    }
    more = judge_options(
        wrong, replace(wrong, num_draft_tokens=5), replace(wrong, option="kv_bits")
    )
    assert more.reason == f"{words}; 2 further options"


@pytest.mark.parametrize(
    ("margins", "floor", "status"),
    [
        ((5.0, 5.0, 0.04, 5.0), 0.01, "passed"),
        ((5.0, 5.0, 0.0401, 5.0), 0.01, "failed"),
        ((5.0, 5.0, 1.0, 5.0), 9.0, "passed"),
        ((5.0, 5.0, 1.1, 5.0), 9.0, "failed"),
        ((0.0, 0.0), 9.0, "failed"),
        (None, 9.0, "failed"),
    ],
)
def test_a_near_tie_is_let_through(
    margins: tuple[float, ...] | None, floor: float, status: str
) -> None:
    """Four times the noise between the paths, a nat at the most; both paths must see it."""
    plain, ours = output(*SAME, margins=margins), output(*OTHER, margins=margins)
    verdict = judge_options(run(plain=plain, speculative=ours, floor=floor), run("kv_bits"))
    assert verdict.status == status
    if status == "passed":
        assert verdict.reason == "2 options alone, equal on both paths but for 1 near tie"
        assert verdict.details[0].endswith("equal but for a near tie")
    sure = output(*OTHER, margins=(5.0, 5.0, 5.0, 5.0))
    assert judge_options(run(plain=plain, speculative=sure, floor=floor)).status == "failed"


@pytest.mark.parametrize("option", ["max_kv_size", "kv_bits"])
@pytest.mark.parametrize(
    ("plain", "ours", "path"),
    [(1000, 1501, "speculative"), (1501, 1000, "plain"), (0, 10, "speculative")],
)
def test_a_cache_option_without_effect(option: str, plain: int, ours: int, path: str) -> None:
    """The text agrees by luck; the bytes do not."""
    verdict = judge_options(run(option, output(*SAME, kv=plain), output(*SAME, kv=ours), value=8))
    small, large = sorted((plain, ours))
    words = (
        f"it has no effect on the {path} path, whose target cache holds {large:,} bytes, not "
        f"{small:,}"
    )
    assert verdict.reason == f"{option}, k = 3: the text agrees, but {words}"
    parted = judge_options(run(option, output(*SAME, kv=plain), output(*OTHER, kv=ours), value=8))
    assert parted.reason == f"{option}, k = 3: the paths part at output token 2: {words}"


@pytest.mark.parametrize(
    ("option", "plain", "ours"),
    [
        ("kv_bits", 1000, 1500),
        ("kv_bits", None, 9000),
        ("kv_bits", 9000, None),
        ("repetition_penalty", 1000, 9000),
        ("kv_bits", 0, 0),
    ],
)
def test_bytes_that_say_nothing(option: str, plain: int | None, ours: int | None) -> None:
    """Padding, an engine that shows no cache, an option of another kind, caches without bytes."""
    verdict = judge_options(run(option, output(*SAME, kv=plain), output(*SAME, kv=ours)))
    assert verdict.status == "passed"


def test_an_option_that_one_path_refuses() -> None:
    """Its own words."""
    broken = OptionRun("kv_bits", 8, 3, output(*SAME), error="no such kernel")
    verdict = judge_options(run(), broken)
    assert (verdict.status, verdict.reason) == ("failed", "kv_bits, k = 3: no such kernel")
    silent = judge_options(OptionRun("kv_bits", 8, 3, output(*SAME)))
    assert silent.reason == "kv_bits, k = 3: nothing was generated"


def test_an_option_that_not_even_the_plain_path_takes() -> None:
    """Not judged, but told; where all are so, the gate is skipped and never green."""
    unusable = OptionRun("kv_bits", 8, 3, error="heads of 12", unusable=True)
    verdict = judge_options(run(), unusable)
    assert (verdict.status, verdict.observed_text) == ("passed", "1 of 1 equal")
    assert verdict.details[1].endswith("not judged: heads of 12")
    alone = judge_options(unusable)
    assert (alone.status, alone.reason) == (
        "skipped",
        "the plain path takes none of these options",
    )


@pytest.mark.parametrize("gate", [OPTIONS, REUSE])
def test_nothing_to_look_at(gate: OptionsGate | ReuseGate) -> None:
    """An error, nothing drafted, nothing run, no prompt: failed each; no time for it: undecided."""
    undrafted = make_case("a", make_arm(None), make_arm(3, flags=[False] * 4, drafted=False))
    found = [
        gate.judge(make_evidence(*cases), gate.defaults, "a")
        for cases in ([failed_case("a", "it broke")], [undrafted], [case_with()], [])
    ]
    assert [verdict.status for verdict in found] == ["failed"] * 4
    assert [verdict.reason.partition(":")[0] for verdict in found] == [
        "it broke",
        "nothing was drafted",
        "no option was tried" if gate is OPTIONS else "no second turn was generated",
        "nothing was generated",
    ]
    late = replace(make_evidence(), unmeasured="no time")
    verdict = judged(gate, late, gate.defaults, "a")
    assert (verdict.gate, verdict.subject, verdict.status, verdict.reason) == (
        gate.name,
        "a",
        "inconclusive",
        "no time",
    )


def test_options_complains() -> None:
    """Of nothing to try, and of sampled output."""
    inputs = make_inputs(make_prompts("a"), 3)
    assert OPTIONS.complaint(OPTIONS.defaults, inputs) is None
    none: dict[str, Any] = dict.fromkeys(OPTIONS.defaults)
    assert "give one of repetition_penalty, " in (OPTIONS.complaint(none, inputs) or "")
    sampled = make_inputs(make_prompts("a"), 3, temperature=0.5)
    for gate in (OPTIONS, REUSE):
        assert "temperature 0, found 0.5" in (gate.complaint(gate.defaults, sampled) or "")
    assert REUSE.complaint(REUSE.defaults, inputs) is None


def test_what_the_gates_ask_for() -> None:
    """An option set to nothing is left out."""
    inputs = make_inputs(make_prompts("a"), 3)
    asked: Inputs = OPTIONS.asks({**OPTIONS.defaults, "kv_bits": None, "max_kv_size": None}, inputs)
    assert asked.alone == {
        "repetition_penalty": 1.3,
        "presence_penalty": 1.0,
        "frequency_penalty": 1.0,
        "logit_bias": -10.0,
    }
    assert REUSE.asks({"follow_up": "And now?"}, inputs).follow_up == "And now?"


def test_a_run_of_an_option() -> None:
    """Which path refused decides whether it can be judged."""

    def generate(*errors: EngineError | None) -> Any:
        def path(k: int | None) -> Generation:
            if error := errors[k is not None]:
                raise error
            return output(*SAME)

        return path

    whole = option_run(generate(None, None), "kv_bits", 8, 3, floor=0.5)
    assert (whole.error, whole.unusable, whole.floor, whole.first_difference) == (
        None,
        False,
        0.5,
        None,
    )
    neither = option_run(generate(EngineError("no"), None), "kv_bits", 8, 3, floor=0)
    assert (neither.error, neither.unusable, neither.plain) == ("no", True, None)
    one = option_run(generate(None, EngineError("no")), "kv_bits", 8, 3, floor=0)
    assert (one.error, one.unusable) == ("no", False)
    assert one.plain is not None
    cannot = option_run(generate(None, Unsupported("old release")), "kv_bits", 8, 3, floor=0)
    assert (cannot.error, cannot.unusable) == ("old release", True)


def test_one_option_alone() -> None:
    """A bias lies on the first token of the plain output."""
    decoding = make_inputs((), 3).decoding
    assert with_option(decoding, "kv_bits", 8, 5) == replace(decoding, kv_bits=8)
    assert with_option(decoding, "logit_bias", -9.0, 5).logit_bias == ((5, -9.0),)


def test_the_noise_between_the_paths() -> None:
    """Over what both outputs begin with."""
    plain = output(*SAME, logprobs=(-0.1, -0.2, -0.3, -0.4))
    assert floor_between(plain, replace(plain, logprobs=(-0.1, -0.25, -0.3, -0.4))) == (
        pytest.approx(0.05)
    )
    parted = output(*OTHER, logprobs=(-0.1, -0.2, -9.0, -9.0))
    assert floor_between(plain, parted) == 0
    assert floor_between(plain, output(*SAME)) == 0


# -- reuse -----------------------------------------------------------------------------------------

LONG = tuple(range(20, 26))


def turns(
    first: tuple[int, ...] = SAME,
    second: tuple[int, ...] | None = LONG,
    *,
    kept: int = 12,
    held: tuple[int, int] | None = (12, 12),
    problem: str | None = None,
) -> Turns:
    """Two turns after which the cache holds what it is said to hold."""
    return Turns(
        first=output(*first),
        prompt=tuple(range(15)),
        kept=kept,
        held=held,
        fresh=output(*LONG),
        second=output(*second) if second is not None else None,
        problem=problem,
    )


def check(*wide: int) -> Check:
    """With these tokens beyond rounding."""
    ones = (0.0,) * len(LONG)
    return Check(Scores(ones, ones, ones, ones), 0.01, (), wide)


def judge_reuse(**runs: TurnRun) -> Verdict:
    """The verdict on one prompt; ``k3`` stands for ``k=3``."""
    named = {name.replace("k", "k="): turn for name, turn in runs.items()}
    return REUSE.judge(make_evidence(case_with(**named)), REUSE.defaults, "a")


def test_a_second_turn_that_agrees() -> None:
    """On both paths; the counts are in the report."""
    verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(turns()))
    assert verdict.status == "passed"
    assert verdict.reason == "the second turn equals a fresh run on 2 paths"
    assert (verdict.observed_text, verdict.samples) == ("2 of 2 paths", 12)
    assert verdict.evidence["k=3"] == {
        "said_to_hold": 12,
        "holds": [12, 12],
        "last_token_drafted": False,
        "first_difference": None,
        "wide_tokens": 0,
    }


@pytest.mark.parametrize("held", [None, (12, 12)])
def test_rounding_is_let_through(held: tuple[int, int] | None) -> None:
    """It is counted; what no check has seen is no rounding."""
    parted = turns(second=(20, 21, 7, 23, 24, 25), held=held)
    verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(parted, check()))
    assert verdict.status == "passed"
    assert verdict.reason.endswith("on 2 paths but for 1 near tie")
    for seen in (None, check(2)):
        verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(parted, seen))
        assert (verdict.status, verdict.kind) == ("failed", "cache-corruption")
        assert verdict.reason == (
            "speculative path (k = 3): the second turn differs from a fresh run from token 2 on"
        )


@pytest.mark.parametrize(
    ("held", "short"),
    [
        ((11, 11), "the kept cache is 1 token short"),
        ((9, 9), "the kept cache is 3 tokens short"),
        ((14, 14), "the kept cache holds 14 tokens of the 12 it is said to hold"),
        ((10, 12), "the kept cache holds 10 to 12 tokens of the 12 it is said to hold"),
    ],
)
def test_a_cache_that_holds_something_else(held: tuple[int, int], short: str) -> None:
    """Though the text agrees, and beside a text that does not."""
    path = "speculative path (k = 3)"
    verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(turns(held=held)))
    assert verdict.reason == f"{path}: the second turn agrees, but {short}"
    parted = TurnRun(turns(second=(7,), held=held), check(0))
    verdict = judge_reuse(k3=parted)
    assert verdict.reason == (
        f"{path}: the second turn differs from a fresh run from token 0 on: {short}"
    )
    assert verdict.kind == "cache-corruption"


def test_a_second_turn_that_breaks() -> None:
    """With the kept cache; before the first turn; and on the plain path."""
    broken = turns(second=None, problem="offset 12")
    verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(broken))
    assert verdict.reason.endswith("the second turn broke with the kept cache: offset 12")
    assert verdict.evidence["k=3"]["first_difference"] == 0
    verdict = judge_reuse(plain=TurnRun(error="no cache here"), k3=TurnRun(turns()))
    assert (verdict.reason, verdict.kind) == ("plain path: no cache here", None)
    assert verdict.evidence["plain"] == {"error": "no cache here"}
    assert verdict.observed_text == "1 of 2 paths"
    assert judge_reuse(plain=TurnRun()).reason == "plain path: nothing was generated"


def test_a_first_turn_that_differs_with_a_cache_of_the_callers() -> None:
    """From the parity pass's own output, at once or where it ends early."""
    for first, at in ((OTHER, 2), (SHORT, 2)):
        verdict = judge_reuse(plain=TurnRun(turns()), k3=TurnRun(turns(first=first)))
        assert verdict.reason == (
            "speculative path (k = 3): with a prompt_cache of the caller's own the first turn "
            f"differs from token {at} on"
        )


def test_a_run_of_two_turns() -> None:
    """Checked where they part, and only there."""
    asked: list[tuple[int, ...]] = []

    def score(prompt: tuple[int, ...], generation: Generation) -> Scores | None:
        asked.append(prompt)
        ones = (0.0,) * len(generation.tokens)
        return Scores(ones, ones, ones, ones)

    assert turn_run(turns, score, floor=0.1) == TurnRun(turns())
    assert turn_run(lambda: turns(second=None), score, floor=0.1).check is None
    assert asked == []
    parted = turn_run(lambda: turns(second=(20, 7)), score, floor=0.1)
    assert parted.check is not None
    assert asked == [tuple(range(15))]

    def refuse() -> Turns:
        raise EngineError("cannot keep it")

    assert turn_run(refuse, score, floor=0.1) == TurnRun(error="cannot keep it")
    assert turn_run(lambda: turns(second=(1,)), lambda *_: None, floor=0.1).check is None


def test_evidence_of_one_arm_has_its_runs_alone() -> None:
    """Cut to k = 3, the runs of k = 5 are left out."""
    case = replace(
        case_with(run(), run(k=5)),
        turns={"plain": TurnRun(turns()), "k=3": TurnRun(turns()), "k=5": TurnRun(turns())},
    )
    (cut,) = Evidence((case,), make_inputs((), 3).decoding).for_arm(3).cases
    assert [one.num_draft_tokens for one in cut.alone] == [3]
    assert [*cut.turns] == ["plain", "k=3"]

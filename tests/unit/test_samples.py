"""The sample of an undecided measurement: what it depends on, and what is read of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.plan import Inputs, Measure
from pytest_specgate.engines.base import PairInfo
from pytest_specgate.measure.evidence import Evidence
from pytest_specgate.measure.samples import Samples
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from tests.fakes import FakeEngine, FakePair, Script, make_inputs, make_prompts, pair_info

SIX = Measure(warmup=1, min_rounds=5, max_rounds=6)
FACTS: dict[str, Any] = {"versions": {"mlx": "1"}, "chip": "paper", "host": "here"}
INPUTS = make_inputs(make_prompts("a", "b"), 3)


def always(evidence: Evidence) -> tuple[int, ...]:
    """A gate that never has enough."""
    return evidence.num_draft_tokens


def session(
    folder: Path,
    inputs: Inputs = INPUTS,
    *,
    pair: FakePair | None = None,
    facts: dict[str, Any] = FACTS,
    undecided: bool | None = True,
    noise: bool = False,
) -> Evidence:
    """A session's measurement; its sample is kept, or (None) the session judged nothing."""
    store = Store(
        {"fake": lambda: FakeEngine(pair or FakePair())},
        Silent(),
        lambda _: None,
        samples=Samples(folder, lambda: facts),
        noise=noise,
    )
    campaign = store.campaign(inputs)
    evidence = campaign.rounds(inputs, SIX, always)
    if undecided is not None:
        campaign.keep_sample(undecided=undecided)
    return evidence


def rounds_of(evidence: Evidence) -> list[list[int]]:
    """The numbers of the rounds of each speculative arm."""
    return [[t.round for t in arm.trials] for case in evidence.cases for arm in case.speculative]


def test_it_goes_on(tmp_path: Path) -> None:
    """Rounds are numbered on; as many more as a session runs."""
    assert session(tmp_path).carried == 0
    for most in (12, 18):
        evidence = session(tmp_path)
        assert rounds_of(evidence) == [[*range(1, most + 1)]] * 2
        assert (evidence.rounds, evidence.carried) == (most, most - 6)
    assert len([*tmp_path.iterdir()]) == 1


def test_its_trials_are_those_of_the_earlier_session(tmp_path: Path) -> None:
    """Every figure of a trial, and of a single token the gaps that it has."""
    prompts = (*make_prompts("a"), *make_prompts("b", max_tokens=1))
    inputs = make_inputs(prompts, 3)
    first, second = session(tmp_path, inputs), session(tmp_path, inputs)
    for before, after in zip(first.cases, second.cases, strict=True):
        for name, arm in before.arms.items():
            assert after.arms[name].trials[:6] == arm.trials
            assert len(after.arms[name].trials) == 12


def test_decided_it_is_forgotten(tmp_path: Path) -> None:
    """The file is gone."""
    session(tmp_path)
    session(tmp_path, undecided=False)
    assert [*tmp_path.iterdir()] == []
    assert session(tmp_path, undecided=None).rounds == 6
    assert [*tmp_path.iterdir()] == []


def other_decoding(**options: Any) -> Inputs:
    """INPUTS with another option."""
    return replace(INPUTS, decoding=replace(INPUTS.decoding, **options))


OTHERS: dict[str, Inputs] = {
    "seed": other_decoding(seed=1),
    "temperature": other_decoding(temperature=0.5),
    "top_p": other_decoding(top_p=0.9),
    "top_k": other_decoding(top_k=5),
    "min_p": other_decoding(min_p=0.1),
    "min_tokens_to_keep": other_decoding(min_tokens_to_keep=2),
    "xtc_probability": other_decoding(xtc_probability=0.5),
    "xtc_threshold": other_decoding(xtc_threshold=0.2),
    "prefill_step_size": other_decoding(prefill_step_size=64),
    "kv_bits": other_decoding(kv_bits=8),
    "kv_group_size": other_decoding(kv_group_size=32),
    "quantized_kv_start": other_decoding(quantized_kv_start=5),
    "max_kv_size": other_decoding(max_kv_size=64),
    "repetition_penalty": other_decoding(repetition_penalty=1.1),
    "presence_penalty": other_decoding(presence_penalty=1.0),
    "frequency_penalty": other_decoding(frequency_penalty=1.0),
    "logit_bias": other_decoding(logit_bias=((5, -1.0),)),
    "ignore_eos": other_decoding(ignore_eos=True),
    "template": replace(INPUTS, chat_template_args={"a": True}),
    "text": replace(INPUTS, prompts=(INPUTS.prompts[0], replace(INPUTS.prompts[1], text="say it"))),
    "id": replace(INPUTS, prompts=(INPUTS.prompts[0], replace(INPUTS.prompts[1], id="c"))),
    "budget": replace(
        INPUTS, prompts=(INPUTS.prompts[0], replace(INPUTS.prompts[1], max_tokens=7))
    ),
    "one prompt more": make_inputs(make_prompts("a", "b", "c"), 3),
    "one k more": make_inputs(make_prompts("a", "b"), 3, 5),
    "another k": make_inputs(make_prompts("a", "b"), 5),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_measurement_begins_afresh(tmp_path: Path, other: str) -> None:
    """Also where only some of the prompts, or of the arms, are known."""
    session(tmp_path)
    evidence = session(tmp_path, OTHERS[other])
    assert {tuple(rounds) for rounds in rounds_of(evidence)} == {(1, 2, 3, 4, 5, 6)}
    assert evidence.carried == 0


def test_every_decoding_option_is_tried() -> None:
    """A new option of Decoding is to tell samples apart too."""
    names = set(INPUTS.decoding.__dataclass_fields__) - {"max_tokens"}
    assert names <= OTHERS.keys()


def with_models(**changed: Any) -> FakePair:
    """A pair whose target is another model."""

    class Other(FakePair):
        @property
        def info(self) -> PairInfo:
            """Of another target."""
            return PairInfo(replace(pair_info().target, **changed), pair_info().draft)

    return Other()


@pytest.mark.parametrize("changed", [{"digest": "x" * 64}, {"bytes": 5}])
def test_another_model_begins_afresh(tmp_path: Path, changed: dict[str, Any]) -> None:
    """By its digest; the size of its weights tells quantisations apart where an engine has none."""
    session(tmp_path)
    assert session(tmp_path, pair=with_models(**changed)).rounds == 6


@pytest.mark.parametrize(
    ("facts", "rounds"),
    [
        ({**FACTS, "versions": {"mlx": "2"}}, 6),
        ({**FACTS, "chip": "stone"}, 6),
        ({**FACTS, "power": "battery"}, 6),
        ({**FACTS, "host": "elsewhere"}, 12),
    ],
)
def test_the_environment_that_times_depend_on(
    tmp_path: Path, facts: dict[str, Any], rounds: int
) -> None:
    """Versions, machine and power; nothing else that is recorded."""
    session(tmp_path)
    assert session(tmp_path, facts=facts).rounds == rounds


def test_another_output_begins_afresh(tmp_path: Path) -> None:
    """The same ids with another text as well."""
    session(tmp_path)
    other = FakePair({"say b": Script(tokens=tuple(range(7, 90)))})
    assert session(tmp_path, pair=other, undecided=None).rounds == 6
    assert session(tmp_path).rounds == 12


def test_fewer_prompts_and_arms_go_on(tmp_path: Path) -> None:
    """All that is to be timed is known."""
    session(tmp_path, make_inputs(make_prompts("a", "b"), 3, 5), noise=True)
    evidence = session(tmp_path, make_inputs(make_prompts("b"), 5))
    assert rounds_of(evidence) == [[*range(1, 13)]]


def test_the_plain_path_twice_begins_afresh(tmp_path: Path) -> None:
    """Rounds with one plain run tell nothing of the noise, and so they would not count."""
    session(tmp_path)
    evidence = session(tmp_path, noise=True)
    assert evidence.rounds == 6
    assert session(tmp_path, noise=True).rounds == 12


def test_a_prompt_that_cannot_be_timed_is_no_hindrance(tmp_path: Path) -> None:
    """It was none before either."""
    pair = FakePair({"say b": Script(wrong={"k=3": (100, 101, 9, 9, 9, 9, 9, 9)})})
    session(tmp_path, pair=pair)
    evidence = session(tmp_path, pair=pair)
    assert rounds_of(evidence) == [[*range(1, 13)], []]


def test_a_fresh_campaign_has_no_sample(tmp_path: Path) -> None:
    """``spec_compare`` gives the rounds that it was asked for."""
    session(tmp_path)
    store = Store(
        {"fake": FakeEngine}, Silent(), lambda _: None, samples=Samples(tmp_path, lambda: FACTS)
    )
    evidence = store.fresh_campaign(INPUTS).rounds(INPUTS, SIX, lambda _: ())
    assert (evidence.rounds, evidence.carried) == (5, 0)


def test_what_was_run_is_of_this_session(tmp_path: Path) -> None:
    """The earlier session has counted its own."""
    for _ in range(3):
        store = Store(
            {"fake": FakeEngine}, Silent(), lambda _: None, samples=Samples(tmp_path, lambda: FACTS)
        )
        campaign = store.campaign(INPUTS)
        campaign.rounds(INPUTS, SIX, always)
        assert campaign.trials(SIX) == (24, 24)
        campaign.keep_sample(undecided=True)


# -- files that are none of ours -------------------------------------------------------------------


def set_trial(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Change one figure of one trial."""

    def change(cases: dict[str, Any]) -> None:
        next(iter(cases.values()))["k=3"]["trials"][2][name] = value

    return change


def drop(document: dict[str, Any], name: str) -> None:
    """Of the first case."""
    del next(iter(document.values()))[name]


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text for a number": set_trial("e2e_s", "fast"),
    "nan": set_trial("e2e_s", float("nan")),
    "zero": set_trial("e2e_s", 0),
    "negative": set_trial("ttft_s", -1.0),
    "truth": set_trial("tokens", True),
    "nothing": set_trial("round", None),
    "a pair of three": set_trial("past_first_block", [1, 2, 3]),
    "no pair": set_trial("past_first_block", 3),
    "twice": set_trial("round", 2),
    "a round that plain has not": set_trial("round", 99),
    "peak": set_trial("peak_memory_bytes", "much"),
    "no arm": lambda cases: drop(cases, "k=3"),
    "no plain arm": lambda cases: drop(cases, "plain"),
    "a list for a case": lambda cases: cases.update({key: [1] for key in cases}),
    "nothing for a case": lambda cases: cases.update(dict.fromkeys(cases)),
    "no trials": lambda cases: next(iter(cases.values()))["k=3"].update(trials=[]),
    "a number for trials": lambda cases: next(iter(cases.values()))["k=3"].update(trials=7),
    "numbers for trials": lambda cases: next(iter(cases.values()))["k=3"].update(trials=[7]),
    "no output": lambda cases: next(iter(cases.values()))["k=3"].pop("output"),
    "no cases": lambda cases: cases.clear(),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_damaged_sample(tmp_path: Path, how: str) -> None:
    """None of it counts; the session writes its own."""
    session(tmp_path)
    (path,) = tmp_path.iterdir()
    document = json.loads(path.read_text(encoding="utf-8"))
    BROKEN[how](document["cases"])
    path.write_text(json.dumps(document), encoding="utf-8")
    assert session(tmp_path).rounds == 6
    assert session(tmp_path).rounds == 12


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "specgate-sample/2", "cases": {}}',
        b'{"schema": "specgate-sample/1"}',
        b'{"schema": "specgate-sample/1", "cases": [1]}',
        b'{"schema": "specgate-sample/1", "cases": 3}',
        b'{"schema": "specgate-sample/1", "cases": null}',
    ],
    ids=repr,
)
def test_a_file_that_is_no_sample(tmp_path: Path, data: bytes) -> None:
    """The measurement begins afresh."""
    session(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(data)
    assert session(tmp_path).rounds == 6
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == "specgate-sample/1"


def test_no_folder() -> None:
    """Nothing is kept, nothing is found."""
    samples = Samples(None, lambda: FACTS)
    store = Store({"fake": FakeEngine}, Silent(), lambda _: None, samples=samples)
    campaign = store.campaign(INPUTS)
    assert campaign.rounds(INPUTS, SIX, always).rounds == 6
    campaign.keep_sample(undecided=True)
    campaign.keep_sample(undecided=False)

"""The scan of a session: what is generated how often, and what its one gate says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef
from pytest_specgate.engines.base import Drafts, EngineError, EngineInfo
from pytest_specgate.gates.base import Verdict, judged
from pytest_specgate.gates.scan import ScanGate
from pytest_specgate.items import named_drafts
from pytest_specgate.measure.budget import Budget
from pytest_specgate.measure.evidence import Evidence
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from tests.fakes import FakePair, Script, engine_info, make_inputs, make_prompts

PATTERNS = {"org/good": (True, True, True, False), "org/poor": (False, False, True)}


@dataclass
class DraftPair(FakePair):
    """A fake pair that also shows what its draft would choose; ``lies`` where it is not so."""

    lies: bool = False
    chosen: list[int] = field(default_factory=list)

    def choices(
        self, prompt: Sequence[int], tokens: Sequence[int], decoding: Decoding
    ) -> tuple[int, ...]:
        """The token itself where the script says that it matches."""
        matches = self.scripts.get(bytes(prompt).decode(), Script()).matches
        self.chosen.append(len(tokens))
        return tuple(
            token if matches[i % len(matches)] != self.lies else token + 1
            for i, token in enumerate(tokens)
        )

    def spell(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """The id in brackets."""
        return tuple(f"<{token}>" for token in tokens)


@dataclass
class DraftEngine:
    """A pair a draft, whose matches follow its pattern."""

    pairs: dict[str, FakePair] = field(default_factory=dict)
    patterns: Mapping[str, tuple[bool, ...]] = field(default_factory=lambda: dict(PATTERNS))
    texts: tuple[str, ...] = ()
    kind: type[FakePair] = DraftPair
    more: Mapping[str, Any] = field(default_factory=dict)
    name: str = "fake"

    def describe(self) -> EngineInfo:
        """A made-up device."""
        return engine_info()

    def load(self, inputs: Inputs) -> FakePair:
        """The pair of a draft; the same one when it is asked for again."""
        assert inputs.draft is not None
        draft = inputs.draft.name
        if draft not in self.patterns:
            raise EngineError(f"the draft {draft} cannot be loaded: it is not there")
        script = Script(matches=self.patterns[draft])
        scripts = dict.fromkeys(self.texts, script)
        return self.pairs.setdefault(draft, self.kind(scripts=scripts, **self.more))


PROMPTS = (*make_prompts("a", max_tokens=9), *make_prompts("b", kind="json", max_tokens=12))
GATE = ScanGate()


def inputs_of(*drafts: str, k: int = 3) -> Inputs:
    """Both prompts, and these drafts."""
    first, *others = map(ModelRef, drafts)
    return replace(make_inputs(PROMPTS, k), draft=first, rivals=tuple(others))


def engine_of(**more: Any) -> DraftEngine:
    """An engine that knows both prompts."""
    return DraftEngine(texts=tuple(p.text for p in PROMPTS), **more)


def store_of(engine: DraftEngine, **more: Any) -> Store:
    """A store with that engine alone."""
    return Store({"fake": lambda: engine}, Silent(), lambda _: None, **more)


def scanned(store: Store, inputs: Inputs) -> list[tuple[Evidence, Verdict]]:
    """Evidence and verdict of each draft."""
    found = []
    for one in inputs.each_draft:
        evidence = store.campaign(one).scan_pass(one)
        found.append((evidence, judged(GATE, evidence, {}, "it")))
    return found


def test_a_pair_of_the_fakes_is_what_it_seems() -> None:
    """The capability is told by its methods."""
    assert isinstance(DraftPair(), Drafts)
    assert not isinstance(FakePair(), Drafts)


def test_plain_outputs_are_made_once_for_all_drafts() -> None:
    """One a prompt; then a pass a prompt and one real run, of the longest output, a draft."""
    engine = engine_of()
    found = scanned(store_of(engine), inputs_of("org/good", "org/poor"))
    good, poor = engine.pairs["org/good"], engine.pairs["org/poor"]
    assert good.counted == {("say a", "plain"): 1, ("say b", "plain"): 1, ("say b", "k=3"): 1}
    assert poor.counted == {("say b", "k=3"): 1}
    assert isinstance(good, DraftPair)
    assert isinstance(poor, DraftPair)
    assert good.chosen == poor.chosen == [9, 12]
    assert [verdict.status for _, verdict in found] == ["passed", "passed"]


def test_what_the_verdict_tells() -> None:
    """Figures of the blocks, counted by hand: 3 of 18 in nine tokens, 4 of 24 in twelve."""
    (_, good), (_, verdict) = scanned(store_of(engine_of()), inputs_of("org/good", "org/poor"))
    assert good.observed == 1.0  # three proposals, and every fourth token is the target's own
    assert verdict.observed == 7 / 42
    assert verdict.samples == 21
    assert verdict.evidence["checked"] == ["b"]
    assert verdict.evidence["k"] == 3
    assert verdict.details == (
        "k = 3: accepted 7 of 42 proposed tokens (0.17) in 16 blocks",
        "mean accept length 0.36, 1.31 tokens a target pass",
        "accept lengths: 0 x 9, 1 x 5",
        "by position: 0.44 0.00 0.00",
        "by quarter: 0.11 0.11 0.22 0.33",
        "by kind: other 0.17, json 0.17",
        "missed most: " + ", ".join(f"'<{t}>' 2 of 2" for t in (100, 101, 103, 104, 106)),
    )
    assert good.evidence["missed"][0] == {"id": 103, "text": "<103>", "missed": 2, "seen": 2}


def test_a_scan_is_not_repeated() -> None:
    """Asked again, everything is there."""
    engine = engine_of()
    store, inputs = store_of(engine), inputs_of("org/good")
    first, second = scanned(store, inputs), scanned(store, inputs)
    assert sum(engine.pairs["org/good"].counted.values()) == 3
    assert first[0][1] == second[0][1]


def test_a_real_run_with_other_blocks_fails() -> None:
    """The block where they part, both ways; the figures are there all the same."""
    ((_, verdict),) = scanned(store_of(engine_of(more={"lies": True})), inputs_of("org/good"))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "the real run of b (k = 3) made other blocks than one pass of the draft tells: block 1 has "
        "3 of 3 accepted, foretold were 0 of 3 accepted"
    )
    assert verdict.observed is not None
    assert "parity" in verdict.advice[0]


def test_a_real_run_with_another_output_fails() -> None:
    """Replay holds only where parity does."""
    wrong = {("say b", "k=3", 0): (100, 101, 9, *range(103, 112))}
    ((_, verdict),) = scanned(store_of(engine_of(more={"unstable": wrong})), inputs_of("org/good"))
    assert verdict.status == "failed"
    assert (
        verdict.reason == "the real run of b (k = 3) differs from the plain output from token 2 on"
    )


def test_a_real_run_that_breaks() -> None:
    """The engine's own words."""
    broken = {("say b", "k=3", 0): EngineError("no kernel")}
    ((_, verdict),) = scanned(store_of(engine_of(more={"raises": broken})), inputs_of("org/good"))
    assert verdict.status == "failed"
    assert verdict.reason == "1 prompt could not be scanned (b): with the draft (k=3): no kernel"


def test_an_engine_that_cannot() -> None:
    """It is said so; nothing is green."""
    ((_, verdict),) = scanned(store_of(engine_of(kind=FakePair)), inputs_of("org/good"))
    assert verdict.status == "failed"
    assert verdict.reason == (
        "nothing could be scanned: the engine fake cannot show what its draft would choose"
    )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ((1, 2), "the draft's choices must be a tuple of 9 ids, found a list"),
        (None, "the draft's choices must be a tuple of 9 ids, found nothing (null)"),
        (("a",) * 9, "the draft's choices must be a whole number"),
    ],
)
def test_choices_that_are_none(choices: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine of another project."""
    monkeypatch.setattr(DraftPair, "choices", lambda *_: choices)
    ((_, verdict),) = scanned(store_of(engine_of()), inputs_of("org/good"))
    assert verdict.status == "failed"
    assert words in verdict.reason


def test_texts_that_cannot_be_told_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids are enough."""
    monkeypatch.setattr(DraftPair, "spell", lambda *_: ("one",))
    ((evidence, verdict),) = scanned(store_of(engine_of()), inputs_of("org/good"))
    assert verdict.status == "passed"
    assert {entry.text for entry in evidence.missed} == {""}


def test_a_draft_that_cannot_be_loaded_costs_the_others_nothing() -> None:
    """Its own item fails."""
    (_, bad), (_, good) = scanned(store_of(engine_of()), inputs_of("org/none", "org/good"))
    assert bad.status == "failed"
    assert "org/none cannot be loaded" in bad.reason
    assert good.status == "passed"


def test_no_time_is_left() -> None:
    """Undecided, with that reason, whether or not some prompts were reached."""
    for early, done in ((1, 0), (2, 1)):
        clock = iter([0.0] * early + [9.0] * 99)
        store = store_of(engine_of(), budget=Budget(5.0, clock=clock.__next__))
        ((evidence, verdict),) = scanned(store, inputs_of("org/good"))
        assert verdict.status == "inconclusive"
        assert "--spec-budget" in verdict.reason
        assert len(evidence.cases) == done


@pytest.mark.parametrize(
    "decoding",
    [
        {"temperature": 0.7},
        {"kv_bits": 8},
        {"max_kv_size": 64},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"logit_bias": ((1, 2.0),)},
    ],
)
def test_options_under_which_one_pass_tells_nothing(decoding: dict[str, Any]) -> None:
    """The option is named, before any model is loaded."""
    (name,) = decoding
    inputs = replace(inputs_of("org/good"), decoding=Decoding(**decoding))
    assert f"decoding.{name}" in str(GATE.complaint({}, inputs))
    assert GATE.complaint({}, inputs_of("org/good")) is None


def test_names_of_drafts() -> None:
    """The last part; the whole name where several end alike."""
    found = named_drafts(inputs_of("org/good", "other/good", "org/poor"))
    assert [name for _, name in found] == ["org/good", "other/good", "poor"]
    assert [one.draft.name for one, _ in found if one.draft] == [
        "org/good",
        "other/good",
        "org/poor",
    ]
    assert all(one.rivals == () for one, _ in found)

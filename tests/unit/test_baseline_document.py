"""The baseline file: written and read alike, small under git, and never believed when damaged."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_specgate.baseline import document, layout, reading
from pytest_specgate.baseline.compare import compare
from pytest_specgate.baseline.document import Baseline, BaselineError
from pytest_specgate.baseline.reading import loads
from pytest_specgate.baseline.tables import compared_lines, markdown_of, shown_baseline
from pytest_specgate.baseline.writing import dumps
from pytest_specgate.gates.base import Verdict
from pytest_specgate.gates.baseline import BaselineGate
from tests.baselines import FACTS, compared, mix, signed, stored, with_arm
from tests.fakes import failed_case, make_arm, make_case, make_inputs, pair_info

WHOLE = stored(*mix(prompts=2))
TEXT = dumps(WHOLE)
DOCUMENT: dict[str, Any] = json.loads(TEXT)


# -- writing ---------------------------------------------------------------------------------------


def rounded(baseline: Baseline) -> Baseline:
    """As it is after one time through a file."""
    return loads(dumps(baseline))


def test_what_is_written_is_read() -> None:
    """Times have seven digits in the file; all else is equal."""
    once = rounded(WHOLE)
    assert rounded(once) == once
    assert dumps(once) == TEXT
    assert replace(once, cases={}) == replace(WHOLE, cases={})
    for name, case in WHOLE.cases.items():
        for arm, kept in case.arms.items():
            found = once.cases[name].arms[arm]
            assert replace(found, trials=()) == replace(kept, trials=())
            times = [trial.e2e_s for trial in kept.trials]
            assert [trial.e2e_s for trial in found.trials] == pytest.approx(times, rel=1e-6)


def test_the_file_is_the_same_each_time() -> None:
    """Facts in any order; a newline at the end; ASCII, so that no editor changes it."""
    again = stored(*mix(prompts=2), facts=dict(reversed(list(FACTS.items()))))
    assert dumps(again) == TEXT
    assert TEXT.endswith("}\n")
    assert not TEXT.endswith("\n\n")
    assert TEXT.isascii()


def test_a_small_change_is_a_small_diff() -> None:
    """One output of many: its line, its text, and the digest of the file."""
    now = with_arm(stored(*mix(prompts=40)), "p7", "plain", tokens=(1, 2, 3, 9), text="xyz")
    now = with_arm(now, "p7", "k=3", tokens=(1, 2, 3, 9), text="xyz")
    lines = difflib.unified_diff(
        dumps(stored(*mix(prompts=40))).splitlines(), dumps(now).splitlines(), n=0
    )
    added = [line for line in lines if line[0] == "+" and line[:3] != "+++"]
    assert [line.split('"')[1] for line in added] == ["text", "tokens", "digest"]


@pytest.mark.parametrize("text", ["\ud83d", "grüße, 世界", '\x00\u2028\r\n\\"', ""])
def test_any_text_survives(text: str) -> None:
    """Lone surrogates, as a tokenizer can give, too."""
    now = with_arm(WHOLE, "p1", "k=3", text=text)
    assert rounded(now).cases["p1"].arms["k=3"].text == text


def test_prompts_of_any_name() -> None:
    """Ids of prompts are the user's."""
    name = 'a "b"\n\ud800 ü'
    now = replace(WHOLE, cases={name: WHOLE.cases["p1"]})
    assert list(rounded(now).cases) == [name]


def test_equal_outputs_are_written_once() -> None:
    """The speculative one only where it differs."""
    assert TEXT.count('"as_plain": true') == 2
    assert TEXT.count('"tokens":') == 2
    assert dumps(with_arm(WHOLE, "p1", "k=3", text="other")).count('"tokens":') == 3


def test_what_could_not_be_generated_is_not_stored() -> None:
    """Nor the second plain arm that only tells the noise."""
    case = make_case("a", make_arm(None, (1.0,)), make_arm(3, (1.0,)))
    case = replace(case, arms={**case.arms, "plain again": case.arms["plain"]})
    found = stored(case, failed_case("b", "no"))
    assert {name: list(case.arms) for name, case in found.cases.items()} == {"a": ["plain", "k=3"]}


def test_verdicts_are_kept() -> None:
    """Gate, subject, status and both figures."""
    verdict = Verdict("speedup", "k=3", "passed", "because", observed=1.5, limit=1.15)
    found = document.baseline_of((), make_inputs(()), pair_info(), FACTS, [verdict])
    (kept,) = rounded(found).verdicts
    assert kept == {
        "gate": "speedup",
        "subject": "k=3",
        "status": "passed",
        "observed": 1.5,
        "limit": 1.15,
    }


# -- reading ---------------------------------------------------------------------------------------


def changed(**parts: Any) -> str:
    """The document with these parts, its digest right."""
    return signed({**DOCUMENT, **parts})


def in_arm(**parts: Any) -> str:
    """The plain arm of one prompt with these parts."""
    case = DOCUMENT["cases"]["p1"]
    arms = {**case["arms"], "plain": {**case["arms"]["plain"], **parts}}
    return changed(cases={**DOCUMENT["cases"], "p1": {**case, "arms": arms}})


def in_trial(column: str, value: Any) -> str:
    """The first trial with another value."""
    rows = [list(row) for row in DOCUMENT["cases"]["p1"]["arms"]["plain"]["trials"]]
    rows[0][DOCUMENT["trial_columns"].index(column)] = value
    return in_arm(trials=rows)


def wrong(key: str) -> str:
    """What is said of a part of the plain arm."""
    return f"damaged: cases.p1.arms.plain.{key} is missing or wrong (found "


DAMAGED: dict[str, tuple[str, str]] = {
    "empty": ("", "not a baseline: not JSON: "),
    "cut": (TEXT[: len(TEXT) // 2], "not a baseline: not JSON: "),
    "deep": ("[" * 100_000, "not a baseline: not JSON: "),
    "digits": ("9" * 10_000, "not a baseline: not JSON: "),
    "NaN": ('{"a": NaN}', "not a baseline: not JSON: NaN is no number"),
    "list": ("[]", "not a baseline: the file must hold an object"),
    "foreign": ('{"schema": "benchmark/1"}', "schema must be 'specgate-baseline/1', found 'bench"),
    "no schema": ("{}", "schema must be 'specgate-baseline/1', found None"),
    "newer": (
        '{"schema": "specgate-baseline/2"}',
        "schema specgate-baseline/2 is newer than this plugin knows (specgate-baseline/1): "
        "update pytest-specgate",
    ),
    "schema 0": (changed(schema="specgate-baseline/0"), "never was a schema specgate-baseline/0"),
    "odd number": ('{"schema": "specgate-baseline/\u0661"}', "schema must be"),
    "edited": (TEXT.replace("paper", "steel"), "damaged: its content is not what was written"),
    "no digest": (
        json.dumps({key: value for key, value in DOCUMENT.items() if key != "digest"}),
        "damaged: its content is not what was written",
    ),
    "no cases": (changed(cases=None), "damaged: cases is missing or wrong (found None)"),
    "columns": (changed(trial_columns=[]), "damaged: trial_columns must be round, tokens"),
    "model": (changed(pair={"target": {}}), "pair.target.digest is missing or wrong"),
    "verdict": (changed(verdicts={"a": {"status": "passed"}}), "verdicts.a.gate is missing"),
    "no tokens": (in_arm(tokens=[]), wrong("tokens")),
    "token": (in_arm(tokens=[1, 2.5]), wrong("tokens")),
    "truth": (in_arm(tokens=[True]), wrong("tokens")),
    "alike itself": (in_arm(as_plain=True, tokens=None), wrong("tokens")),
    "no row": (in_arm(trials=["abcdefghi"]), wrong("trials")),
    "short row": (in_arm(trials=[[1, 2]]), wrong("trials")),
    "negative": (in_trial("e2e_s", -1.0), wrong("trials.e2e_s")),
    "zero": (in_trial("ttft_s", 0), wrong("trials.ttft_s")),
    "no rest": (in_trial("rest_tokens", 0), wrong("trials.rest_tokens")),
    "endless": (in_trial("e2e_s", 10**400), wrong("trials.e2e_s")),
    "memory": (in_trial("peak_memory_bytes", 10**400), wrong("trials.peak_memory_bytes")),
    "no count": (in_trial("accepted", False), wrong("trials.accepted")),
    "no time": (in_trial("decode_s", ""), wrong("trials.decode_s")),
    "text time": (in_trial("e2e_s", "1"), wrong("trials.e2e_s")),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_named(what: str) -> None:
    """The key and what to do, on one line."""
    text, words = DAMAGED[what]
    with pytest.raises(BaselineError) as raised:
        loads(text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("blocks", "key"),
    [
        ({"proposed": [3], "accepted": [4]}, "blocks.accepted"),
        ({"proposed": [3, 3], "accepted": [3]}, "blocks.accepted"),
        ({"proposed": ["3"], "accepted": [3]}, "blocks.proposed"),
        ({"proposed": [-1], "accepted": [-2]}, "blocks.proposed"),
        ({"proposed": [3], "accepted": [3], "censored": "odd"}, "blocks.censored"),
        ({"proposed": [3], "accepted": [3], "censored": []}, "blocks.censored"),
        ([], "blocks"),
    ],
)
def test_damaged_blocks_are_named(blocks: Any, key: str) -> None:
    """More accepted than proposed, or no such reason of a cut."""
    case = DOCUMENT["cases"]["p1"]
    arms = {**case["arms"], "k=3": {**case["arms"]["k=3"], "blocks": blocks}}
    text = changed(cases={"p1": {**case, "arms": arms}})
    with pytest.raises(BaselineError, match=rf"cases\.p1\.arms\.k=3\.{key} is missing or wrong"):
        loads(text)


@pytest.mark.parametrize("name", ["k=", "k=x", "k=0", "odd", "k=3 ", ""])
def test_an_arm_of_no_such_name(name: str) -> None:
    """The number of draft tokens is read from it."""
    case = DOCUMENT["cases"]["p1"]
    arms = {"plain": case["arms"]["plain"], name: case["arms"]["k=3"]}
    with pytest.raises(BaselineError, match="no arm: plain or k=N"):
        loads(changed(cases={"p1": {**case, "arms": arms}}))


def test_layout_is_no_damage() -> None:
    """Another order of keys, or indentation by an editor, says the same."""
    assert loads(json.dumps(DOCUMENT, indent=4, sort_keys=True).replace("\n", "\r\n")) is not None


def test_a_file_as_it_was_written_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To encode it takes longer than all else that is done to read a large file."""
    now = with_arm(WHOLE, "p1", "k=3", text='\n "digest": "\\": é,\u2028')
    for baseline in (WHOLE, now, replace(WHOLE, cases={}), replace(WHOLE, environment={"9": {}})):
        text = dumps(baseline)
        with monkeypatch.context() as patch:
            patch.setattr(layout, "_digest", lambda _: pytest.fail("encoded again"))
            assert loads(text) is not None


@pytest.mark.parametrize(("old", "new"), [('os": ', 'os" : '), ("macOS 15", "macOS  15")])
def test_space_between_is_layout_and_space_within_is_content(old: str, new: str) -> None:
    """By the content that was written, not by what a line looks like."""
    text = TEXT.replace(old, new)
    assert text != TEXT
    assert used(text) == (loads(TEXT) if new[-1] == " " else None)


def test_space_in_a_key_is_content() -> None:
    """A key that holds what ends keys elsewhere."""
    odd = dumps(replace(WHOLE, environment={'a": 1': 2}))
    assert loads(odd).environment == {'a": 1': 2}
    assert used(odd.replace('a\\": 1', 'a\\":1')) is None
    odd = dumps(replace(WHOLE, environment={'a":1': 2}))
    assert used(odd.replace('a\\":1": ', 'a\\": 1":')) == loads(odd)


def test_whole_seconds_are_seconds() -> None:
    """JSON of another writer may drop the point."""
    (trial, *_) = loads(in_trial("e2e_s", 3)).cases["p1"].arms["plain"].trials
    assert (trial.e2e_s, type(trial.e2e_s)) == (3.0, float)


def test_an_older_schema_goes_through_its_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is that of the file as it was written."""
    monkeypatch.setattr(reading, "MIGRATIONS", {0: lambda old: {**old, "engine": "migrated"}})
    assert loads(changed(schema="specgate-baseline/0")).engine == "migrated"


def test_an_option_that_is_not_stored_had_its_default() -> None:
    """Files from before the option came stay comparable."""
    decoding = {key: value for key, value in DOCUMENT["decoding"].items() if key != "kv_bits"}
    assert decoding != DOCUMENT["decoding"]
    old = loads(changed(decoding=decoding))
    assert compared(old, WHOLE).apart == ()
    warmer = stored(*mix(prompts=2), kv_bits=8)
    assert compared(old, warmer).apart == ("the decoding differs: kv_bits",)


# -- fuzz ------------------------------------------------------------------------------------------

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from([10**400, -(10**400), 1e308, 5e-324, 2**63]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def used(text: str) -> Baseline | None:
    """All that is ever done with a file; None where it is refused."""
    try:
        found = loads(text)
    except BaselineError:
        return None
    limits = {**BaselineGate.defaults, "e2e": BaselineGate.options["e2e"]("5%")}
    for then, now in ((found, WHOLE), (WHOLE, found)):
        result = compare(then, now, limits, 3)
        assert compared_lines(result, "t")
        assert markdown_of(result, "t")
    assert shown_baseline(found)
    assert loads(dumps(found)).cases.keys() == found.cases.keys()
    return found


@settings(FUZZ, max_examples=60)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(TEXT)), st.integers(0, 6), st.text(max_size=4)), max_size=4
    )
)
def test_fuzz_characters(edits: list[tuple[int, int, str]]) -> None:
    """Some characters become others: refused, or nothing of the content has changed."""
    text = TEXT
    for at, width, new in edits:
        text = text[:at] + new + text[at + width :]
    found = used(text)
    assert found is None or found == loads(TEXT)


@FUZZ
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 3))
def test_fuzz_truncated(end: int, kept: int) -> None:
    """Cut anywhere, or with a hole."""
    text = TEXT[:end] + TEXT[len(TEXT) - kept :] if kept else TEXT[:end]
    found = used(text)
    assert found is None or found == loads(TEXT)


def walk(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all parts."""
    keys: Any = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = range(len(value))
    deeper = (walk(value[key], (*path, key)) for key in keys)
    return [path, *(found for paths in deeper for found in paths)]


PATHS = walk(DOCUMENT)[1:]


@FUZZ
@given(path=st.sampled_from(PATHS), value=VALUES, drop=st.booleans(), sign=st.booleans())
def test_fuzz_types(path: tuple[Any, ...], value: Any, drop: bool, sign: bool) -> None:
    """Any part of any type, or gone; with the digest of the new content, or the old one."""
    document = json.loads(TEXT)
    part = document
    for key in path[:-1]:
        part = part[key]
    if drop:
        del part[path[-1]]
    else:
        part[path[-1]] = value
    found = used(signed(document) if sign else json.dumps(document))
    if not sign:
        assert found is None or json.dumps(document, sort_keys=True) == json.dumps(
            DOCUMENT, sort_keys=True
        )


@FUZZ
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_fuzz_anything(content: bytes) -> None:
    """No file of ours."""
    assert used(content.decode("utf-8", "replace")) is None

"""Command line > marker > a prompt's own line > gates file > ini > default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.build import DEFAULT_GATES, Builder
from pytest_specgate.config.gates_file import default_gates_file, read_gates_file
from pytest_specgate.config.keys import MARKER_INPUTS, SECTIONS
from pytest_specgate.config.layers import SWEPT, Key, Layer, Layers, Setting, checked
from pytest_specgate.config.markers import gate_configs, inputs_layer
from pytest_specgate.config.options import Options, read_options
from pytest_specgate.config.plan import Decoding, Inputs, Measure, ModelRef, Prompt
from pytest_specgate.config.spec import ConfigError
from pytest_specgate.gates import builtin_gates
from pytest_specgate.prompts import builtin

import_module("pytest_specgate.session")  # pytester would import it anew in each test

GATES = {gate.name: gate for gate in builtin_gates()}
PLACES = ("command line", "marker", "gates file", "ini")  # highest first
SETS = {
    name: tuple(Prompt(f"{name}-{n}", f"text of {name}") for n in range(2))
    for name in ("s0", "s1", "s2", "s3", "core")
}


def layer(origin: str, **settings: Any) -> dict[Key, Setting]:
    """section__key=value as a layer of checked settings."""
    made: dict[Key, Setting] = {}
    for name, value in settings.items():
        section, key = name.split("__")
        if (section, key) == ("prompts", "set"):
            made[section, key] = Setting(value, origin, Path())
        else:
            made[section, key] = checked(section, key, value, origin, Path())
    return made


def builder(
    command_line: Layer | None = None,
    ini: Layer | None = None,
    demo: tuple[ModelRef, ModelRef] | None = None,
) -> Builder:
    """A builder whose prompt sets are SETS."""
    return Builder(Options(command_line or {}, ini or {}), GATES, SETS.get, demo)


def resolved(layers: Mapping[str, Layer]) -> tuple[Inputs, Measure]:
    """What is measured where each place says what it says."""
    none: Layer = {}
    made = builder(layers.get("command line"), layers.get("ini"))
    return made.inputs(layers.get("marker", none), layers.get("gates file", none))


# -- every key, straight through the layers --------------------------------------------------------

# section__key -> one value a place (highest first), then the default
VALUES: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "decoding__max_tokens": (1, 2, 3, 4, 256),
    "decoding__num_draft_tokens": (1, (2, 5), 3, 4, (3,)),
    "decoding__temperature": (0.1, 0.2, 0.3, 0.4, 0.0),
    "decoding__top_p": (0.1, 0.2, 0.3, 0.4, 1.0),
    "decoding__top_k": (1, 2, 3, 4, 0),
    "decoding__min_p": (0.1, 0.0, 0.3, 1.0, 0.0),
    "decoding__min_tokens_to_keep": (2, 3, 4, 5, 1),
    "decoding__xtc_probability": (0.1, 0.0, 0.3, 1.0, 0.0),
    "decoding__xtc_threshold": (0.2, 0.0, 0.3, 0.5, 0.1),
    "decoding__seed": (1, 2, 3, 0, 20260928),
    "decoding__prefill_step_size": (1, 2, 3, 4, 2048),
    "decoding__kv_bits": (8, None, 6, 4, None),
    "decoding__kv_group_size": (32, 64, 128, 32, 64),
    "decoding__quantized_kv_start": (1, 2, 3, 4, 0),
    "decoding__max_kv_size": (64, None, 32, 16, None),
    "decoding__repetition_penalty": (1.1, None, 1.3, 1.4, None),
    "decoding__presence_penalty": (-1.0, None, 0.5, 1.0, None),
    "decoding__frequency_penalty": (-1.0, None, 0.5, 1.0, None),
    "decoding__ignore_eos": (True, False, True, True, False),
    "decoding__logit_bias": (((1, 2.0),), (), ((3, -1.0), (5, 2.0)), ((7, 1.0),), ()),
    "decoding__chat_template_args": ({"a": 1}, {"b": 2}, {}, {"c": 3}, {}),
    "sweep__num_draft_tokens": ((1, 2), (3,), (4, 5), (6,), ()),
    "sweep__objective": (
        *("worst_kind", "median_speedup", "worst_kind", "worst_kind", "median_speedup"),
    ),
    "sweep__per_kind": (False, True, False, False, True),
    "measure__min_rounds": (1, 2, 3, 4, 5),
    "measure__max_rounds": (21, 22, 23, 24, 12),
    "measure__warmup": (2, 3, 4, 5, 1),
    "prompts__set": ("s0", "s1", "s2", "s3", "core"),
    "pair__target": ("a/zero", "a/one", "a/two", "a/three", None),
    "pair__draft": ("b/zero", "b/one", "b/two", "b/three", None),
}


def _got(name: str, inputs: Inputs, measure: Measure) -> Any:
    """The figure behind a key in what is measured."""
    section, key = name.split("__")
    if section == "pair":
        model = getattr(inputs, key)
        return model.name if model else None
    if section == "prompts":
        return inputs.prompts[0].id.rpartition("-")[0]
    if section == "measure":
        return getattr(measure, key)
    if section == "sweep":
        return getattr(inputs, SWEPT[key])
    if key in ("num_draft_tokens", "chat_template_args"):
        return getattr(inputs, key)
    if key == "max_tokens":
        assert {prompt.max_tokens for prompt in inputs.prompts} == {inputs.decoding.max_tokens}
    return getattr(inputs.decoding, key)


def _expected(name: str, value: Any) -> Any:
    return (value,) if name == "decoding__num_draft_tokens" and isinstance(value, int) else value


def _partner(name: str) -> dict[str, Any]:
    """The other half of a pair, which is no half elsewhere."""
    other = {"pair__target": "pair__draft", "pair__draft": "pair__target"}.get(name)
    return {other: "other/half"} if other else {}


def test_every_key_is_here() -> None:
    keys = {f"{section}__{key}" for section, specs in SECTIONS.items() for key in specs}
    keys -= {"prompts__builtin", "prompts__file", "prompts__kinds"}  # below
    assert {*VALUES} - {"prompts__set"} == keys


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("highest", range(len(PLACES)))
def test_the_highest_place_wins(name: str, highest: int) -> None:
    """All places from the highest named down to the ini say something different."""
    layers = {
        place: layer(place, **{name: value})
        for place, value in zip(PLACES, VALUES[name], strict=False)
    }
    for place in PLACES[:highest]:
        del layers[place]
    layers["ini"] |= layer("ini", **_partner(name))
    inputs, measure = resolved(layers)
    assert _got(name, inputs, measure) == _expected(name, VALUES[name][highest])


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_each_place_alone_beats_the_default(name: str, place: str) -> None:
    value = VALUES[name][PLACES.index(place)]
    inputs, measure = resolved({place: layer(place, **{name: value}, **_partner(name))})
    assert _got(name, inputs, measure) == _expected(name, value)


@pytest.mark.parametrize("name", VALUES)
def test_default(name: str) -> None:
    inputs, measure = resolved({})
    assert _got(name, inputs, measure) == VALUES[name][-1]


@pytest.mark.parametrize("name", VALUES)
def test_find_names_the_place_that_wins(name: str) -> None:
    section, key = name.split("__")
    made = [
        layer(place, **{name: value}) for place, value in zip(PLACES, VALUES[name], strict=False)
    ]
    for highest, place in enumerate(PLACES):
        rest: list[Layer] = [{} for _ in range(highest)] + list(made[highest:])
        found = Layers(*rest).find(section, key)
        assert found is not None
        assert found.origin == place
    assert Layers({}, {}, {}, {}).find(section, key) is None


def test_keys_do_not_hide_each_other() -> None:
    """A place that sets one key leaves the others to the places below it."""
    inputs, measure = resolved(
        {
            "command line": layer("cli", decoding__max_tokens=1),
            "marker": layer("marker", decoding__seed=2, pair__draft="b/marker"),
            "gates file": layer("file", decoding__kv_bits=4, measure__min_rounds=2),
            "ini": layer("ini", pair__target="a/ini", decoding__max_tokens=9, decoding__seed=9),
        }
    )
    assert inputs.decoding == Decoding(max_tokens=1, seed=2, kv_bits=4)
    assert inputs.target == ModelRef("a/ini")
    assert inputs.draft == ModelRef("b/marker")
    assert measure == Measure(min_rounds=2)


def test_both_halves_of_a_pair_may_come_from_different_places() -> None:
    for target, draft in [(a, b) for a in PLACES for b in PLACES if a != b]:
        inputs, _ = resolved(
            {
                target: layer(target, pair__target="a/target"),
                draft: layer(draft, pair__draft="b/draft"),
            }
        )
        assert inputs.has_pair


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("half", "other"), [("target", "draft"), ("draft", "target")])
def test_half_a_pair_is_named_where_it_stands(place: str, half: str, other: str) -> None:
    with pytest.raises(ConfigError, match=f"^{place}: a {half} without a {other}: "):
        resolved({place: layer(place, **{f"pair__{half}": "a/b"})})


def test_null_switches_off_what_a_lower_place_sets() -> None:
    inputs, _ = resolved(
        {
            "marker": layer("marker", pair__target=None, pair__draft=None, decoding__kv_bits=None),
            "gates file": layer("file", pair__target="a/b", pair__draft="c/d", decoding__kv_bits=4),
        }
    )
    assert not inputs.has_pair
    assert inputs.decoding.kv_bits is None


def test_null_in_a_gates_file_sets_nothing(tmp_path: Path) -> None:
    """There it is how the commented default is written: the ini file still names the pair."""
    path = tmp_path / "gates.yaml"
    path.write_text(
        "version: 1\npair: {target: null, draft: null}\ndecoding: {kv_bits: null, seed: 4}\n",
        encoding="utf-8",
    )
    file, _ = read_gates_file(path, GATES)
    assert {key: setting.value for key, setting in file.items()} == {("decoding", "seed"): 4}
    ini = layer("ini", pair__target="a/ini", pair__draft="b/ini", decoding__kv_bits=8)
    inputs, _ = resolved({"gates file": file, "ini": ini})
    assert (inputs.target, inputs.draft) == (ModelRef("a/ini"), ModelRef("b/ini"))
    assert (inputs.decoding.kv_bits, inputs.decoding.seed) == (8, 4)


# -- the package's own gates file ------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*VALUES} - {"decoding__temperature"}))
def test_the_built_in_gates_file_ranks_below_the_ini_file(name: str) -> None:
    """Its settings are the defaults; only its gates are new."""
    value = VALUES[name][PLACES.index("ini")]
    made = builder(ini=layer("ini", **{name: value}, **_partner(name)))
    plan = made.plan(default_gates_file(), builtin=True)
    assert _got(name, plan.inputs, plan.measure) == _expected(name, value)
    assert plan.settings == {}
    names = ["preflight", "parity", "speedup", "latency", "memory"]
    names += ["recommended"] if name == "sweep__num_draft_tokens" else []
    assert [gate.name for gate in plan.gates] == names


def test_the_built_in_gates_file_says_what_the_defaults_are() -> None:
    """Whoever copies it changes nothing by that."""
    made = Builder(Options({}, {}), GATES, builtin)
    copied, own = (made.plan(default_gates_file(), builtin=b) for b in (False, True))
    assert (copied.inputs, copied.measure) == (own.inputs, own.measure) == made.inputs({}, {})
    assert {gate.name: gate.options for gate in own.gates} == {
        name: gate.defaults for name, gate in GATES.items() if name in DEFAULT_GATES
    }
    assert {*GATES} - {*DEFAULT_GATES} == {
        *(
            "acceptance",
            "reuse",
            "options",
            "quality",
            "distribution",
            "ttft",
            "tpot",
            "baseline",
            "against",
        ),
        "recommended",
    }


def test_a_copied_gates_file_ranks_above_the_ini_file(tmp_path: Path) -> None:
    """It is the project's own then, word for word the same."""
    path = tmp_path / "gates.yaml"
    path.write_bytes(default_gates_file().read_bytes())
    ini = layer("ini", decoding__max_tokens=9, measure__max_rounds=99)
    plan = Builder(Options({}, ini), GATES, builtin).plan(path)
    assert (plan.inputs.decoding.max_tokens, plan.measure.max_rounds) == (256, 12)


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [({"measure__min_rounds": 20}, (20, 20)), ({"measure__max_rounds": 3}, (3, 3))],
)
def test_a_marker_moves_the_default_rounds_of_the_built_in_gates_file(
    settings: dict[str, int], rounds: tuple[int, int]
) -> None:
    """5 and 12 stand in that file, but they are no limits that anyone set."""
    made = builder()
    file = made.plan(default_gates_file(), builtin=True).settings
    _, measure = made.inputs(layer("marker", **settings), file)
    assert (measure.min_rounds, measure.max_rounds) == rounds


# -- a prompt's own line ---------------------------------------------------------------------------

OWN = (Prompt("own", "x", max_tokens=33), Prompt("none", "y"))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("command line", "marker", "gates file", "ini"), [1, 1]),
        (("command line", "gates file"), [1, 1]),
        (("marker", "gates file", "ini"), [2, 2]),
        (("gates file", "ini"), [33, 3]),
        (("ini",), [33, 4]),
        ((), [33, 256]),
    ],
)
def test_max_tokens_of_a_prompt(places: tuple[str, ...], expected: list[int]) -> None:
    layers: dict[str, dict[Key, Setting]] = {
        place: layer(place, decoding__max_tokens=PLACES.index(place) + 1) for place in places
    }
    layers.setdefault("ini", {}).update(layer("ini", prompts__set=OWN))
    inputs, _ = resolved(layers)
    assert [prompt.max_tokens for prompt in inputs.prompts] == expected


# -- prompts and their kinds -----------------------------------------------------------------------

KINDS = (Prompt("j", "x", "json"), Prompt("p", "y", "python"), Prompt("t", "z", "text"))


@pytest.mark.parametrize("place", ["command line", "marker"])
def test_a_set_named_above_replaces_the_file_and_its_kinds(place: str) -> None:
    inputs, _ = resolved(
        {
            place: layer(place, prompts__set="s0"),
            "gates file": layer("file", prompts__builtin="s2", prompts__kinds=["python"]),
        }
    )
    assert inputs.prompts[0].id == "s0-0"


def test_kinds_of_a_marker_cut_the_prompts_of_the_file() -> None:
    made = Builder(Options({}, {}), GATES, lambda name: KINDS)
    file = layer("file", prompts__builtin="any", prompts__kinds=["json", "text"])
    assert [p.id for p in made.inputs({}, file)[0].prompts] == ["j", "t"]
    marker = layer("marker", prompts__kinds="python")
    assert [p.id for p in made.inputs(marker, file)[0].prompts] == ["p"]
    assert [p.id for p in made.inputs(marker, {})[0].prompts] == ["p"]


def test_kinds_of_a_marker_cut_a_set_of_the_command_line() -> None:
    """The test is about its kinds, whatever the set; those of the file belong to the file's set."""
    made = Builder(Options(layer("cli", prompts__set="any"), {}), GATES, lambda name: KINDS)
    marker, file = layer("marker", prompts__kinds="json"), layer("file", prompts__kinds="python")
    assert [p.id for p in made.inputs(marker, {})[0].prompts] == ["j"]
    assert [p.id for p in made.inputs(marker, file)[0].prompts] == ["j"]
    assert [p.id for p in made.inputs({}, file)[0].prompts] == ["j", "p", "t"]


def test_kinds_are_named_where_they_stand() -> None:
    marker = layer("marker", prompts__kinds=["pythn"])
    with pytest.raises(ConfigError, match=r"^marker: prompts\.kinds: no prompt is of kind 'pythn'"):
        builder().inputs(marker, layer("file", prompts__builtin="s2"))


# -- rounds ----------------------------------------------------------------------------------------


def test_rounds_that_cross_between_places_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_rounds \(4\) is below min_rounds \(9\)"):
        resolved(
            {
                "marker": layer("marker", measure__min_rounds=9),
                "gates file": layer("file", measure__max_rounds=4),
            }
        )


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [({"measure__min_rounds": 30}, (30, 30)), ({"measure__max_rounds": 2}, (2, 2))],
)
@pytest.mark.parametrize("place", PLACES)
def test_a_default_gives_way(place: str, settings: dict[str, int], rounds: tuple[int, int]) -> None:
    _, measure = resolved({place: layer(place, **settings)})
    assert (measure.min_rounds, measure.max_rounds) == rounds


# -- the demo and a call ---------------------------------------------------------------------------


def test_demo_is_a_command_line_that_its_own_options_beat() -> None:
    pair = ModelRef("demo target", Path("t")), ModelRef("demo draft", Path("d"))
    sets = {**SETS, "smoke": OWN}
    file = layer("file", pair__target="a/b", pair__draft="c/d", decoding__max_tokens=9)
    made = Builder(Options({}, {}), GATES, sets.get, pair)
    inputs, _ = made.inputs({}, file)
    assert (inputs.target, inputs.draft) == pair
    assert [(p.id, p.max_tokens) for p in inputs.prompts] == [("own", 32), ("none", 32)]
    given = layer("cli", prompts__set="s0", decoding__max_tokens=5)
    made = Builder(Options(given, {}), GATES, sets.get, pair)
    inputs, _ = made.inputs({}, file)
    assert (inputs.target, inputs.draft) == pair
    assert [(p.id, p.max_tokens) for p in inputs.prompts] == [("s0-0", 5), ("s0-1", 5)]


def test_arguments_of_a_call_beat_everything() -> None:
    made = builder(layer("cli", decoding__max_tokens=5, decoding__num_draft_tokens=5))
    call = made.call_layer("text", 7, 2, 4, "here")
    file = layer("file", decoding__max_tokens=3, measure__min_rounds=6, measure__max_rounds=9)
    inputs, measure = made.inputs(call, file, call=True)
    assert (measure.min_rounds, measure.max_rounds) == (4, 4)
    assert [(p.text, p.max_tokens) for p in inputs.prompts] == [("text", 7)]
    assert inputs.num_draft_tokens == (2,)
    call = made.call_layer("text", None, None, 0, "here")
    inputs, measure = made.inputs(call, file, call=True)
    assert (measure.min_rounds, measure.max_rounds) == (6, 9)
    assert inputs.prompts[0].max_tokens == 5
    assert inputs.num_draft_tokens == (5,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", None, None, 0), "the prompt must be text that is not empty, found the text ''"),
        ((None, None, None, 0), "the prompt must be text that is not empty, found nothing (null)"),
        ((10**5000, None, None, 0), "the prompt must be text that is not empty, found a number"),
        (("x", 0, None, 0), "max_tokens must be at least 1, found 0"),
        (("x", True, None, 0), "max_tokens must be a whole number, found true"),
        (("x", None, 17, 0), "num_draft_tokens must be at most 16, found 17"),
        (("x", None, [1, 3], 0), "num_draft_tokens must be a whole number, found a list"),
        (("x", None, None, "3"), "rounds must be a whole number, found the text '3'"),
        (("x", None, None, 1.5), "rounds must be a whole number, found 1.5"),
        (("x", None, None, True), "rounds must be a whole number, found true"),
        (("x", None, None, None), "rounds must be a whole number, found nothing (null)"),
        (("x", None, None, -1), "rounds must be at least 0, found -1 (allowed: 0 to 1000)"),
        (("x", None, None, 1001), "rounds must be at most 1000, found 1001"),
        (("x", None, None, 10**5000), "rounds must be at most 1000, found a number of too many"),
    ],
)
def test_wrong_argument_of_a_call(arguments: tuple[Any, Any, Any, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        builder().call_layer(*arguments, "test_x.py:3: test_x: spec_compare")
    assert str(caught.value).startswith(f"test_x.py:3: test_x: spec_compare: {words}")


# -- from what a user writes -----------------------------------------------------------------------


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """Folders for models, and one prompt file a place; each with a line that has max_tokens."""
    for place in ("cli", "marker", "file", "ini"):
        for role in ("target", "draft"):
            pytester.mkdir(f"{place}-{role}")
        pytester.path.joinpath(f"{place}.jsonl").write_text(
            f'{{"id": "{place}", "prompt": "x", "max_tokens": 33}}\n'
            f'{{"id": "{place}-none", "prompt": "y"}}\n',
            encoding="utf-8",
        )
    return pytester


# what a user writes in each place, highest first; then what is measured for each, and by default
WRITTEN: dict[str, tuple[tuple[list[str], str, str, str], list[Any]]] = {
    "max_tokens": (
        (
            ["--spec-max-tokens=1"],
            "max_tokens=2",
            "decoding: {max_tokens: 3}",
            "specgate_max_tokens = 4",
        ),
        [1, 2, 3, 4, 256],
    ),
    "num_draft_tokens": (
        (
            ["--spec-num-draft-tokens=1,4"],
            "num_draft_tokens=2",
            "decoding: {num_draft_tokens: [3, 5]}",
            "specgate_num_draft_tokens = 4",
        ),
        [(1, 4), (2,), (3, 5), (4,), (3,)],
    ),
    "rounds": (
        (
            ["--spec-rounds", "1:21"],
            "min_rounds=2, max_rounds=22",
            "measure: {min_rounds: 3, max_rounds: 23}",
            "specgate_rounds = 4:24",
        ),
        [(1, 21), (2, 22), (3, 23), (4, 24), (5, 12)],
    ),
    "prompts": (
        (
            ["--spec-prompts", "cli.jsonl"],
            "prompts='marker.jsonl'",
            "prompts: {file: file.jsonl}",
            "specgate_prompts = ini.jsonl",
        ),
        ["cli", "marker", "file", "ini", "explain-01"],
    ),
    "pair": (
        (
            ["--spec-target=cli-target", "--spec-draft=cli-draft"],
            "target='marker-target', draft='marker-draft'",
            "pair: {target: file-target, draft: file-draft}",
            "specgate_target = ini-target\nspecgate_draft = ini-draft",
        ),
        [(f"{p}-target", f"{p}-draft") for p in ("cli", "marker", "file", "ini")] + [(None, None)],
    ),
    "chat_template_args": (
        (
            ["--spec-chat-template-args", '{"a": 1}'],
            "chat_template_args={'b': 2}",
            "decoding: {chat_template_args: {c: 3}}",
            'specgate_chat_template_args = {"d": 4}',
        ),
        [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}, {}],
    ),
}


def measured(
    pytester: pytest.Pytester, args: list[str], marker: str, gates: str, ini: str
) -> tuple[Inputs, Measure]:
    """What a marked test measures where each place holds the given text."""
    path = pytester.path / "mine.yaml"
    path.write_text(f"version: 1\n{gates}\n", encoding="utf-8")
    file, _ = read_gates_file(path, GATES)
    pytester.makefile(".ini", pytest=f"[pytest]\n{ini}\n")
    module = pytester.getmodulecol(
        f"import pytest\n@pytest.mark.spec_inputs({marker})\ndef test_it(): pass\n", args
    )
    (item,) = pytester.genitems([module])
    made = Builder(read_options(module.config, ("json",)), GATES, builtin)
    return made.inputs(inputs_layer(item, pytester.path), file)


def _figure(name: str, inputs: Inputs, measure: Measure) -> Any:
    match name:
        case "max_tokens":
            return inputs.decoding.max_tokens
        case "rounds":
            return measure.min_rounds, measure.max_rounds
        case "prompts":
            return inputs.prompts[0].id
        case "pair":
            return tuple(
                model and model.directory and model.directory.name
                for model in (inputs.target, inputs.draft)
            )
    return getattr(inputs, name)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("highest", range(len(PLACES) + 1))
def test_what_is_written_highest_wins(project: pytest.Pytester, name: str, highest: int) -> None:
    (args, marker, gates, ini), values = WRITTEN[name]
    inputs, measure = measured(
        project,
        args if highest < 1 else [],
        marker if highest < 2 else "",
        gates if highest < 3 else "",
        ini if highest < 4 else "",
    )
    assert _figure(name, inputs, measure) == values[highest]


@pytest.mark.parametrize(
    ("highest", "expected"),
    [(0, [1, 1]), (1, [2, 2]), (2, [33, 3]), (3, [33, 4]), (4, [33, 256])],
)
def test_written_max_tokens_and_a_prompt_line(
    project: pytest.Pytester, highest: int, expected: list[int]
) -> None:
    (args, marker, gates, ini), _ = WRITTEN["max_tokens"]
    inputs, _ = measured(
        project,
        args if highest < 1 else [],
        "prompts='marker.jsonl'" + (f", {marker}" if highest < 2 else ""),
        gates if highest < 3 else "",
        ini if highest < 4 else "",
    )
    assert [prompt.max_tokens for prompt in inputs.prompts] == expected


def test_relative_paths_start_where_they_are_written(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line from the current folder, the ini from its own, the file from its own."""
    below = project.mkdir("below")
    for role in ("cli-target", "file-draft"):
        (below / role).mkdir()
    project.makefile(
        ".ini", pytest="[pytest]\nspecgate_target = ini-target\nspecgate_prompts = ini.jsonl\n"
    )
    path = below / "gates.yaml"
    path.write_text("version: 1\npair: {draft: file-draft}\n", encoding="utf-8")
    file, _ = read_gates_file(path, GATES)
    monkeypatch.chdir(below)
    inputs, _ = Builder(read_options(project.parseconfig(), ()), GATES, builtin).inputs({}, file)
    assert inputs.target == ModelRef("ini-target", project.path / "ini-target")
    assert inputs.draft == ModelRef("file-draft", below / "file-draft")
    assert inputs.prompts[0].id == "ini"
    options = read_options(project.parseconfig("--spec-target=cli-target"), ())
    inputs, _ = Builder(options, GATES, builtin).inputs({}, file)
    assert inputs.target == ModelRef("cli-target", below / "cli-target")


# -- options that are no setting of a plan ---------------------------------------------------------


def options_of(pytester: pytest.Pytester, ini: str, *args: str) -> Options:
    """Options as read from an ini file and a command line."""
    pytester.makefile(".ini", pytest=f"[pytest]\n{ini}\n")
    return read_options(pytester.parseconfig(*args), ("json", "text"))


def test_defaults_of_the_options(pytester: pytest.Pytester) -> None:
    made = options_of(pytester, "")
    assert made == Options({}, {}, engine_origin=made.engine_origin)
    assert made.engine == "mlx-lm"
    assert not made.names_pair


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "True", "ON"])
@pytest.mark.parametrize("name", ["require", "trust_remote_code"])
def test_truth_in_the_ini_file(pytester: pytest.Pytester, name: str, word: str) -> None:
    assert getattr(options_of(pytester, f"specgate_{name} = {word}"), name)


@pytest.mark.parametrize("word", ["false", "0", "no", "off"])
@pytest.mark.parametrize("name", ["require", "trust_remote_code"])
def test_a_flag_beats_the_ini_file(pytester: pytest.Pytester, name: str, word: str) -> None:
    ini = f"specgate_{name} = {word}"
    assert not getattr(options_of(pytester, ini), name)
    assert getattr(options_of(pytester, ini, f"--spec-{name.replace('_', '-')}"), name)


def test_engine(pytester: pytest.Pytester) -> None:
    assert options_of(pytester, "specgate_engine = mine").engine == "mine"
    assert options_of(pytester, "specgate_engine = mine", "--spec-engine=other").engine == "other"


def test_gates_file(pytester: pytest.Pytester) -> None:
    mine, other = (pytester.path / name for name in ("mine.yaml", "other.yaml"))
    mine.touch()
    other.touch()
    assert options_of(pytester, "specgate_gates = mine.yaml").gates == mine
    assert options_of(pytester, "specgate_gates = mine.yaml", "--spec-gates=other.yaml").gates == (
        other
    )


def test_reports_of_the_command_line_replace_those_of_the_ini_file(
    pytester: pytest.Pytester,
) -> None:
    ini = "specgate_report = json:a.json text:b.txt"
    made = options_of(pytester, ini).reports
    assert [(r.kind, r.path.name) for r in made] == [("json", "a.json"), ("text", "b.txt")]
    made = options_of(pytester, ini, "--spec-report=json:c.json", "--spec-report=text:d").reports
    assert [(r.kind, r.path.name) for r in made] == [("json", "c.json"), ("text", "d")]


@pytest.mark.parametrize("role", ["target", "draft"])
def test_either_role_in_either_place_names_a_pair(pytester: pytest.Pytester, role: str) -> None:
    assert options_of(pytester, f"specgate_{role} = a/b").names_pair
    assert options_of(pytester, "", f"--spec-{role}=a/b").names_pair
    assert options_of(pytester, "", "--spec-demo").names_pair
    assert not options_of(pytester, "specgate_max_tokens = 3", "--spec-rounds=3").names_pair


# -- markers ---------------------------------------------------------------------------------------

NESTED = """
import pytest
pytestmark = [
    pytest.mark.spec_inputs(max_tokens=1, seed=1, num_draft_tokens=1),
    pytest.mark.spec_speedup(min=1.1),
    pytest.mark.spec_memory(max_gb=3),
]

@pytest.mark.spec_inputs(max_tokens=2, seed=2)
@pytest.mark.spec_speedup(min=1.2)
class TestIt:
    @pytest.mark.spec_inputs(max_tokens=3)
    @pytest.mark.spec_speedup(min=1.3)
    def test_function(self): pass

    def test_class(self): pass

def test_module(): pass
"""


def test_the_closest_marker_wins_for_each_argument(pytester: pytest.Pytester) -> None:
    items = {item.name: item for item in pytester.getitems(NESTED)}
    expected = {
        "test_function": (3, 2, (1,), 1.3),
        "test_class": (2, 2, (1,), 1.2),
        "test_module": (1, 1, (1,), 1.1),
    }
    for name, item in items.items():
        inputs, _ = builder().inputs(inputs_layer(item, pytester.path), {})
        configs = {config.name: config for config in gate_configs(item, GATES, {})}
        assert list(configs) == ["speedup", "memory"]
        assert expected[name] == (
            inputs.decoding.max_tokens,
            inputs.decoding.seed,
            inputs.num_draft_tokens,
            configs["speedup"].options["min"],
        )


def test_a_marker_starts_from_the_gates_file(pytester: pytest.Pytester) -> None:
    """An argument wins over the file's option; what neither sets is the gate's default."""
    item = pytester.getitem(
        "import pytest\n@pytest.mark.spec_speedup(min=1.5)\ndef test_it(): pass\n", "test_it"
    )
    base = {"speedup": {**GATES["speedup"].defaults, "min": 1.4, "margin": 0.2}}
    (config,) = gate_configs(item, GATES, base)
    assert config.options == {"min": 1.5, "margin": 0.2, "statistic": "median"}
    (config,) = gate_configs(item, GATES, {})
    assert config.options == {**GATES["speedup"].defaults, "min": 1.5}


@pytest.mark.parametrize(
    ("arguments", "rounds"),
    [
        ("min_rounds=20", (20, 20)),
        ("max_rounds=3", (3, 3)),
        ("min_rounds=20, max_rounds=30", (20, 30)),
        ("min_rounds=6", (6, 12)),
    ],
)
def test_one_bound_of_a_marker_moves_the_default_of_the_other(
    pytester: pytest.Pytester, arguments: str, rounds: tuple[int, int]
) -> None:
    _, measure = measured(pytester, [], arguments, "", "")
    assert (measure.min_rounds, measure.max_rounds) == rounds


def test_every_argument_of_the_marker_reaches_what_is_measured(pytester: pytest.Pytester) -> None:
    values = {
        key: VALUES["__".join(key)][1] for key in MARKER_INPUTS.values() if key[0] != "prompts"
    }
    arguments = ", ".join(
        f"{name}={values[key]!r}" for name, key in MARKER_INPUTS.items() if key in values
    )
    item = pytester.getitem(
        f"import pytest\n@pytest.mark.spec_inputs(prompts=['one', 'two'], {arguments})\n"
        "def test_it(): pass\n",
        "test_it",
    )
    made = inputs_layer(item, pytester.path)
    assert {key: setting.value for key, setting in made.items() if key in values} == values
    inputs, _ = builder().inputs(made, {})
    assert [prompt.text for prompt in inputs.prompts] == ["one", "two"]
    assert {field.name for field in fields(Decoding)} <= {key for _, key in values}


NO_TOKENS = ("9" * 5000, 10**5000, True, None, "", "-1", -1, 1.0, (1,))


@pytest.mark.parametrize("token", NO_TOKENS, ids=map(str, range(len(NO_TOKENS))))
def test_a_bias_on_no_token(token: Any) -> None:
    """A wrong key is a wrong value, however long."""
    with pytest.raises(ConfigError, match=r"^here: decoding.logit_bias must be a mapping"):
        checked("decoding", "logit_bias", [(token, 1.0)], "here", Path())

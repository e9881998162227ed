"""Gates and prompt files: each fault is answered with file, line, key, found and allowed."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_specgate.config.build import Builder
from pytest_specgate.config.gates_file import default_gates_file, read_gates_file
from pytest_specgate.config.keys import SECTIONS
from pytest_specgate.config.options import Options
from pytest_specgate.config.plan import MAX_DRAFT_TOKENS, Plan, Prompt
from pytest_specgate.config.prompt_file import read_prompts
from pytest_specgate.config.spec import ConfigError
from pytest_specgate.gates import builtin_gates
from pytest_specgate.prompts import NAMES, builtin

DATA = Path(__file__).parents[1] / "data" / "config"
GATES = {gate.name: gate for gate in builtin_gates()}
TOP = ("version", *SECTIONS, "gates")

Refused = Callable[..., str]


def plan(path: Path) -> Plan:
    """The plan of a gates file alone: no command line, no ini."""
    return Builder(Options({}, {}), GATES, builtin).plan(path)


def complaint(path: Path, line: int | None, *words: str) -> str:
    """The message about a file; it begins with the place and holds all words."""
    read: Callable[[Path], Any] = read_prompts if path.suffix == ".jsonl" else plan
    with pytest.raises(ConfigError) as caught:
        read(path)
    message = str(caught.value)
    place = f"{path}, line {line}: " if line else f"{path}: "
    assert message.startswith(place), message
    for word in words:
        assert word in message
    return message


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """(content, line, words): a gates file is refused; gives the message."""

    def check(content: str | bytes, line: int | None, *words: str) -> str:
        path = tmp_path / "gates.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return complaint(path, line, *words)

    return check


@pytest.fixture
def accepted(tmp_path: Path) -> Callable[[str | bytes], Plan]:
    """A gates file that is right; gives its plan."""

    def check(content: str | bytes) -> Plan:
        path = tmp_path / "gates.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return plan(path)

    return check


# -- the case files --------------------------------------------------------------------------------

REFUSED: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "unknown-top-key.yaml": (2, ("unknown key 'gate'", "did you mean 'gates'?", "allowed:", *TOP)),
    "unknown-gate.yaml": (3, ("no gate 'speedpu'", "did you mean 'speedup'?", *GATES)),
    "unknown-gate-option.yaml": (
        3,
        ("'speedup' has no option 'minimum'", "did you mean 'min'?", *GATES["speedup"].options),
    ),
    "wrong-type.yaml": (3, ("speedup.min must be a number", "found the text 'fast'", "allowed:")),
    "negative-limit.yaml": (3, ("speedup.min must be > 0", "found -1")),
    "nan-limit.yaml": (3, ("latency.p95_max_ratio must be a finite number", "found nan")),
    "bool-for-number.yaml": (3, ("speedup.min must be a number", "found true")),
    "norway.yaml": (2, ("prompts.kinds must be text", "found false", "a bare", "quotes")),
    "tabs.yaml": (3, ("not valid YAML", "a tab")),
    "duplicate-key.yaml": (4, ("'speedup' is given twice", "first on line 3")),
    "not-a-mapping.yaml": (1, ("the file must be a mapping", "version: 1")),
    "empty.yaml": (None, ("the file is empty", "version: 1", "gates:")),
    "newer-version.yaml": (1, ("version 99 is newer than this plugin knows (1)",)),
    "no-version.yaml": (None, ("version is missing", "'version: 1'")),
    "python-object.yaml": (
        2,
        ("tag !!python/object/apply:os.system is not allowed", "nothing was run"),
    ),
    "alias-bomb.yaml": (2, ("unknown key 'a'", *TOP)),
    "zero-draft-tokens.yaml": (
        2,
        ("decoding.num_draft_tokens must be at least 1", "found 0", "0 drafts nothing"),
    ),
    "huge-draft-tokens.yaml": (
        2,
        (f"decoding.num_draft_tokens must be at most {MAX_DRAFT_TOKENS}", "found 1000000"),
    ),
    "rounds-crossed.yaml": (2, ("max_rounds (3) is below min_rounds (10)",)),
    "temperature-with-exact.yaml": (
        4,
        ("exact parity needs temperature 0", "found 0.7", "set decoding.temperature to 0.0"),
    ),
    "missing-prompt-file.yaml": (2, ("nowhere.jsonl not found", str(DATA / "nowhere.jsonl"))),
    "latin1.yaml": (2, ("byte 0xe9 is not UTF-8",)),
    "prompts-bad-json.jsonl": (2, ("not JSON at column 38",)),
    "prompts-duplicate-id.jsonl": (2, ("id 'a' is already on line 1",)),
    "prompts-empty-prompt.jsonl": (1, ("prompt is empty",)),
    "prompts-lone-surrogate.jsonl": (
        1,
        ("prompt is not valid Unicode text", "half of a surrogate pair"),
    ),
    "prompts-unknown-field.jsonl": (1, ("unknown field 'promt'", "did you mean 'prompt'?")),
    "prompts-bad-max.jsonl": (
        1,
        ("max_tokens must be a whole number", "found the text 'many'", ">= 1"),
    ),
    "prompts-none.jsonl": (None, ("no prompts in the file",)),
}

ACCEPTED: dict[str, tuple[Prompt, ...]] = {
    "prompts-null-byte.jsonl": (Prompt("a", "x\0y"),),
    "prompts-id-path.jsonl": (Prompt("../../x", "x"),),
    "prompts-bom-crlf.jsonl": (Prompt("a", "x"), Prompt("b", "y")),
}


def test_every_case_file_has_its_answer() -> None:
    assert {path.name for path in DATA.iterdir()} == {*REFUSED, *ACCEPTED}


@pytest.mark.parametrize("name", REFUSED)
def test_case_file_is_refused(name: str) -> None:
    line, words = REFUSED[name]
    complaint(DATA / name, line, *words)


@pytest.mark.parametrize("name", ACCEPTED)
def test_case_file_is_accepted(name: str) -> None:
    assert read_prompts(DATA / name) == ACCEPTED[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_prompt_file_through_a_gates_file(
    name: str, accepted: Callable[[str | bytes], Plan]
) -> None:
    path = DATA / name
    inputs = accepted(f"version: 1\nprompts: {{file: '{path}'}}\n").inputs
    assert [prompt.text for prompt in inputs.prompts] == [p.text for p in ACCEPTED[name]]


def test_default_gates_file_is_right() -> None:
    made = plan(default_gates_file())
    names = ["preflight", "parity", "speedup", "latency", "memory"]
    assert [gate.name for gate in made.gates] == names
    assert not made.inputs.has_pair


# -- every key of every section --------------------------------------------------------------------

_TEXT_KEYS = {
    ("pair", "target"),
    ("pair", "draft"),
    *(("prompts", key) for key in ("builtin", "file", "kinds")),
}
# what stands in the file -> how the message names it
_WRONG = {
    "true": "found true",
    ".nan": "found nan",
    "[[1]]": "found a list",
    "fast": "found the text 'fast'",
    "{a: 1}": "found a mapping",
    "null": "found nothing (null)",
}


def _is_right(section: str, key: str, value: str) -> bool:
    if value == "fast":
        return (section, key) in _TEXT_KEYS
    if value == "true":
        return key in ("ignore_eos", "per_kind")
    if value == "null":
        return "null" in SECTIONS[section][key].allowed
    return value == "{a: 1}" and key == "chat_template_args"


def test_a_bias_is_for_token_ids(refused: Refused) -> None:
    for value in ("{'1': b}", "{'-1': 2}", "[[1, 2], [1, 3]]", "[[1, 2], ['1', 3]]"):
        refused(
            f"version: 1\ndecoding:\n  logit_bias: {value}\n",
            3,
            "decoding.logit_bias must",
            "(allowed: a mapping of token ids to numbers)",
        )


_KEYS = [(section, key) for section, specs in SECTIONS.items() for key in specs]
_WRONG_SETTINGS = [
    (section, key, value)
    for (section, key), value in itertools.product(_KEYS, _WRONG)
    if not _is_right(section, key, value)
]


@pytest.mark.parametrize(("section", "key", "value"), _WRONG_SETTINGS)
def test_wrong_type_in_a_section(refused: Refused, section: str, key: str, value: str) -> None:
    spec = SECTIONS[section][key]
    refused(
        f"version: 1\n{section}:\n  {key}: {value}\n",
        3,
        f"{section}.{key} must be ",
        _WRONG[value],
        f"(allowed: {spec.allowed})",
    )


@pytest.mark.parametrize(("section", "key"), _KEYS)
def test_misspelt_key_in_a_section(refused: Refused, section: str, key: str) -> None:
    refused(
        f"version: 1\n{section}:\n\n  {key}x: 1\n",
        4,
        f"'{section}' has no key '{key}x'",
        f"did you mean '{key}'?",
        f"(allowed: {', '.join(SECTIONS[section])})",
    )


@pytest.mark.parametrize(("section", "key"), _KEYS)
def test_key_given_twice_in_a_section(refused: Refused, section: str, key: str) -> None:
    value = {"pair": "null", "prompts": "core"}.get(section, "1")
    if key == "chat_template_args":
        value = "{}"
    elif key == "kv_bits":
        value = "4"
    elif key == "kv_group_size":
        value = "64"
    refused(
        f"version: 1\n{section}:\n  {key}: {value}\n  {key}: {value}\n",
        4,
        f"'{key}' is given twice",
        "first on line 3",
    )


@pytest.mark.parametrize("section", [*SECTIONS, "gates"])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", "nothing (null)"),
        ("[]", "a list"),
        ("core", "the text 'core'"),
        ("1", "1"),
        ("no", "false"),
    ],
)
def test_section_that_is_no_mapping(refused: Refused, section: str, value: str, found: str) -> None:
    refused(f"version: 1\n\n{section}: {value}\n", 3, f"{section} must be a mapping, found {found}")


@pytest.mark.parametrize("top", TOP)
def test_top_key_given_twice(refused: Refused, top: str) -> None:
    value = "1" if top == "version" else "{}"
    lines = [] if top == "version" else ["version: 1"]
    lines += [f"{top}: {value}", "# between", f"{top}: {value}"]
    first = len(lines) - 2
    refused("\n".join(lines), first + 2, f"'{top}' is given twice", f"first on line {first}")


@pytest.mark.parametrize("top", TOP)
def test_misspelt_top_key(refused: Refused, top: str) -> None:
    refused(
        f"version: 1\n\n{top}x: {{}}\n",
        3,
        f"unknown key '{top}x'",
        f"did you mean '{top}'?",
        f"(allowed: {', '.join(TOP)})",
    )


# -- every option of every gate --------------------------------------------------------------------

_OPTIONS = [(gate, option) for gate in GATES for option in GATES[gate].options]


@pytest.mark.parametrize(
    ("gate", "option", "value"),
    [
        (gate, option, value)
        for (gate, option), value in itertools.product(_OPTIONS, _WRONG)
        if not (value == "null" and "null" in GATES[gate].options[option].allowed)
        and not (value == "fast" and GATES[gate].options[option].allowed == "text")
        and not (value == "{a: 1}" and option == "checks")  # a mapping is right there
    ],
)
def test_wrong_type_in_a_gate(refused: Refused, gate: str, option: str, value: str) -> None:
    spec = GATES[gate].options[option]
    refused(
        f"version: 1\ngates:\n  {gate}:\n    {option}: {value}\n",
        4,
        f"{gate}.{option} must be ",
        _WRONG[value],
        f"(allowed: {spec.allowed})",
    )


@pytest.mark.parametrize(("gate", "option"), _OPTIONS)
def test_misspelt_option_of_a_gate(refused: Refused, gate: str, option: str) -> None:
    refused(
        f"version: 1\ngates:\n  {gate}:\n    {option}x: 1\n",
        4,
        f"'{gate}' has no option '{option}x'",
        f"did you mean '{option}'?",
        f"(allowed: {', '.join(GATES[gate].options)})",
    )


@pytest.mark.parametrize(("gate", "option"), _OPTIONS)
def test_option_given_twice_in_a_gate(refused: Refused, gate: str, option: str) -> None:
    value = GATES[gate].defaults[option]
    given = "null" if value is None else getattr(value, "text", value)
    refused(
        f"version: 1\ngates:\n  {gate}:\n    {option}: {given}\n    {option}: {given}\n",
        5,
        f"'{option}' is given twice",
        "first on line 4",
    )


@pytest.mark.parametrize(
    ("gate", "option"),
    [key for key in _OPTIONS if GATES[key[0]].options[key[1]].allowed.startswith("a number >")],
)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-0.001", "found -0.001"),
        ("-.inf", "must be a finite number, found -inf"),
        (".inf", "must be a finite number, found inf"),
        ("1" + "0" * 400, "must be a finite number, found a number of too many digits"),
    ],
)
def test_number_of_a_gate_out_of_bounds(
    refused: Refused, gate: str, option: str, value: str, words: str
) -> None:
    refused(
        f"version: 1\ngates:\n  {gate}:\n    {option}: {value}\n",
        4,
        f"{gate}.{option} must be ",
        words,
        f"(allowed: {GATES[gate].options[option].allowed})",
    )


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("exact", "the text 'exact'"),
        ("[1.15]", "a list"),
        ("1.15", "1.15"),
        ("yes", "true"),
    ],
)
def test_gate_that_is_no_mapping(refused: Refused, gate: str, value: str, found: str) -> None:
    refused(
        f"version: 1\ngates:\n  {gate}: {value}\n",
        3,
        f"gates.{gate} must be a mapping of options",
        f"found {found}",
    )


@pytest.mark.parametrize("gate", sorted({*GATES} - {"ttft"}))
@pytest.mark.parametrize("value", ["{}", "", "null"])
def test_gate_without_options_has_its_defaults(
    accepted: Callable[[str | bytes], Plan], gate: str, value: str
) -> None:
    warm = "temperature: 0.7" if gate == "distribution" else ""
    text = f"version: 1\ndecoding: {{{warm}}}\ngates:\n  {gate}: {value}\n"
    (config,) = accepted(text).gates
    assert config.name == gate
    assert config.options == GATES[gate].defaults
    assert config.origin.endswith("gates.yaml, line 4")


def test_a_gate_of_sampled_output_at_temperature_0(refused: Refused) -> None:
    """There is nothing that it could judge."""
    refused("version: 1\ngates:\n  distribution: {}\n", 3, "nothing is drawn at temperature 0")


def test_a_gate_that_needs_a_limit(refused: Refused) -> None:
    """The first token comes later with any draft: how much later is for its user to say."""
    refused("version: 1\ngates:\n  ttft: {}\n", 3, "ttft: give p95_max_ratio or p95_max_seconds")


@pytest.mark.parametrize("value", ["{}", "{ }", "{} # none"])
def test_empty_gates(refused: Refused, value: str) -> None:
    refused(f"version: 1\ngates: {value}\n", 2, "gates is empty", "nothing would be judged", *GATES)


@pytest.mark.parametrize(
    ("gate", "options", "words"),
    [
        ("latency", "p95_max_ratio: null", ("p95_max_ratio or p95_max_seconds", "nothing")),
        ("memory", "headroom: null, max_swap_growth_gb: null", ("max_gb", "max_ratio", "nothing")),
    ],
)
def test_gate_whose_limits_are_all_off(
    refused: Refused, gate: str, options: str, words: tuple[str, ...]
) -> None:
    refused(f"version: 1\ngates:\n  {gate}: {{{options}}}\n", 3, f"{gate}: give ", *words)


# -- bounds and what does not go together ----------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("decoding: {num_draft_tokens: -1}", ("num_draft_tokens must be at least 1", "found -1")),
        ("decoding: {num_draft_tokens: [1, 17]}", ("must be at most 16", "found 17")),
        ("decoding: {num_draft_tokens: []}", ("num_draft_tokens must not be empty",)),
        ("decoding: {num_draft_tokens: [3, 1, 3]}", ("must not repeat a number", "[3, 1, 3]")),
        ("decoding: {num_draft_tokens: [1, true]}", ("a whole number", "found true")),
        ("decoding: {num_draft_tokens: 3.0}", ("a whole number", "found 3.0")),
        ("decoding: {num_draft_tokens: '3'}", ("a whole number", "found the text '3'")),
        ("decoding: {max_tokens: 0}", ("max_tokens must be at least 1", "found 0", "a limit")),
        ("decoding: {max_tokens: -1}", ("max_tokens must be at least 1", "found -1")),
        ("decoding: {temperature: -0.1}", ("temperature must be >= 0", "found -0.1")),
        ("decoding: {temperature: .inf}", ("temperature must be a finite number", "found inf")),
        ("decoding: {seed: -1}", ("seed must be at least 0", "found -1")),
        ("decoding: {seed: 9223372036854775808}", ("seed must be at most 9223372036854775807",)),
        ("decoding: {prefill_step_size: 0}", ("prefill_step_size must be at least 1", "found 0")),
        ("decoding: {kv_bits: 7}", ("kv_bits must be one of 2, 3, 4, 5, 6, 8, found 7", "8, null")),
        ("decoding: {kv_bits: 4.0}", ("kv_bits must be one of 2, 3, 4, 5, 6, 8, found 4.0",)),
        ("decoding: {kv_bits: 1}", ("kv_bits must be one of 2, 3, 4, 5, 6, 8, found 1",)),
        ("decoding: {kv_group_size: 1}", ("kv_group_size must be one of 32, 64, 128, found 1",)),
        ("decoding: {kv_group_size: 16}", ("kv_group_size must be one of 32, 64, 128, found 16",)),
        ("decoding: {kv_group_size: 64.0}", ("must be one of 32, 64, 128, found 64.0",)),
        ("decoding: {quantized_kv_start: -1}", ("quantized_kv_start must be at least 0",)),
        ("decoding: {chat_template_args: {1: x}}", ("keys must be text", "found 1", "quotes")),
        ("measure: {warmup: 0}", ("warmup must be at least 1", "the parity pass")),
        ("measure: {warmup: 11}", ("warmup must be at most 10", "found 11")),
        ("measure: {min_rounds: 0}", ("min_rounds must be at least 1", "found 0")),
        ("measure: {max_rounds: 1001}", ("max_rounds must be at most 1000", "found 1001")),
        ("measure: {max_rounds: 4, min_rounds: 5}", ("max_rounds (4) is below min_rounds (5)",)),
        ("prompts: {builtin: cor}", ("no set named 'cor'", "did you mean 'core'?", *NAMES)),
        ("prompts: {builtin: ' '}", ("prompts.builtin must not be empty",)),
        ("prompts: {file: ''}", ("prompts.file must not be empty",)),
        ("prompts: {file: .}", ("prompts.file: . not found",)),
        ("prompts: {kinds: []}", ("prompts.kinds must not be empty",)),
        ("prompts: {kinds: [json, 1]}", ("prompts.kinds must be text in every entry", "found 1")),
        ("prompts: {kinds: on}", ("prompts.kinds", "found true")),
        (
            "prompts: {kinds: [json, pythn]}",
            ("no prompt is of kind 'pythn'", "did you mean 'python'?", "present: ", "json"),
        ),
        (
            "prompts: {builtin: smoke, kinds: nowhere}",
            ("no prompt is of kind 'nowhere'", "present: "),
        ),
        ("prompts: {builtin: core, file: p.jsonl}", ("prompts.builtin or prompts.file, not both",)),
        ("prompts: {file: p.jsonl, builtin: core}", ("prompts.builtin or prompts.file, not both",)),
        ("pair: {target: a/b}", ("a target without a draft", "--spec-draft", "pair.draft")),
        ("pair: {draft: a/b, target: null}", ("a draft without a target", "--spec-target")),
        ("pair: {target: nowhere, draft: a/b}", ("target: no such directory", "nowhere", "owner/")),
        ("pair: {target: a/b, draft: nowhere}", ("draft: no such directory", "nowhere", "owner/")),
        ("pair: {target: ' ', draft: a/b}", ("pair.target must not be empty",)),
    ],
)
def test_value_that_is_not_allowed(refused: Refused, setting: str, words: tuple[str, ...]) -> None:
    refused(f"# a comment\nversion: 1\n\n{setting}\n", 4, *words)


@pytest.mark.parametrize(
    ("key", "values"), [("kv_bits", (2, 3, 4, 5, 6, 8)), ("kv_group_size", (32, 64, 128))]
)
def test_sizes_that_mlx_can_quantise_to(
    accepted: Callable[[str | bytes], Plan], key: str, values: tuple[int, ...]
) -> None:
    for value in values:
        decoding = accepted(f"version: 1\ndecoding: {{{key}: {value}}}\n").inputs.decoding
        assert getattr(decoding, key) == value


@pytest.mark.parametrize("setting", ["pair: {target: null, draft: ~}", "decoding: {kv_bits: null}"])
def test_null_sets_nothing(tmp_path: Path, setting: str) -> None:
    """A place below may still say something: the key is as if it were not there."""
    path = tmp_path / "gates.yaml"
    path.write_text(f"version: 1\n{setting}\n", encoding="utf-8")
    assert read_gates_file(path, GATES) == ({}, None)


@pytest.mark.parametrize(
    ("setting", "rounds"),
    [
        ("{min_rounds: 20}", (20, 20)),
        ("{max_rounds: 3}", (3, 3)),
        ("{min_rounds: 2}", (2, 12)),
        ("{min_rounds: 4, max_rounds: 4}", (4, 4)),
        ("{}", (5, 12)),
    ],
)
def test_one_bound_of_the_rounds_moves_the_default_of_the_other(
    accepted: Callable[[str | bytes], Plan], setting: str, rounds: tuple[int, int]
) -> None:
    measure = accepted(f"version: 1\nmeasure: {setting}\n").measure
    assert (measure.min_rounds, measure.max_rounds) == rounds


def test_kinds_cut_the_prompts(accepted: Callable[[str | bytes], Plan]) -> None:
    inputs = accepted("version: 1\nprompts: {builtin: smoke, kinds: [json, python]}\n").inputs
    assert {prompt.kind for prompt in inputs.prompts} == {"json", "python"}
    assert [p.id for p in inputs.prompts] == [
        p.id for p in builtin("smoke") or () if p.kind in ("json", "python")
    ]


def test_temperature_is_allowed_where_nothing_compares_outputs(
    accepted: Callable[[str | bytes], Plan],
) -> None:
    made = accepted("version: 1\ndecoding: {temperature: 0.7}\ngates: {speedup: {}}\n")
    assert made.inputs.decoding.temperature == 0.7


# -- version ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("", "version must be 1, found nothing (null)"),
        ("'1'", "version must be 1, found the text '1'"),
        ("1.0", "version must be 1, found 1.0"),
        ("1e0", "version must be 1, found the text '1e0'"),
        ("true", "version must be 1, found true"),
        ("0", "version must be 1, found 0"),
        ("-1", "version must be 1, found -1"),
        (".inf", "version must be 1, found inf"),
        (".nan", "version must be 1, found nan"),
        ("[1]", "version must be 1, found a list"),
        ("{}", "version must be 1, found a mapping"),
        ("2", "version 2 is newer than this plugin knows (1)"),
        ("9" * 18, f"version {'9' * 18} is newer than this plugin knows (1)"),
        ("9" * 30, "version a number of too many digits is newer than this plugin knows (1)"),
        (f"-{'9' * 30}", "version must be 1, found a number of too many digits"),
        ("2026-01-01", "is read as a date by YAML: put it in quotes"),
        ("!!python/name:os.system x", "tag !!python/name:os.system is not allowed"),
    ],
)
def test_version_of_the_wrong_kind(refused: Refused, version: str, words: str) -> None:
    refused(f"# first\nversion: {version}\n", 2, words)


@pytest.mark.parametrize("content", ["{}", "pair: {}", "gates: {parity: {}}\n"])
def test_version_is_missing(refused: Refused, content: str) -> None:
    refused(content, None, "version is missing", "'version: 1'")


# -- YAML ------------------------------------------------------------------------------------------


NOTHING = ["", "\n", "   \n", "# a comment\n", b"\xef\xbb\xbf", "null", "~", "---", "--- null\n"]


@pytest.mark.parametrize("content", [*NOTHING, "# first\nnull\n", "# first\n~\n", "---\n...\n"])
def test_file_that_holds_nothing(refused: Refused, content: str | bytes) -> None:
    refused(content, None, "the file is empty", "a minimal one is", "version: 1", "gates:")


@pytest.mark.parametrize(
    "content", ["text", "3", "true", "[]", "- version: 1", "'null'", "''", "'~'"]
)
def test_root_that_is_no_mapping(refused: Refused, content: str) -> None:
    refused(f"# first\n{content}\n", 2, "the file must be a mapping", "version: 1", "gates:")


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("gates: [\n", 3, ("not valid YAML",)),
        ("gates: {parity: {}\nmeasure: {}\n", 3, ("not valid YAML",)),
        ("gates: 'parity\n", 3, ("not valid YAML",)),
        ("  gates: {}\n", 2, ("not valid YAML",)),
        ("gates:\n  parity: {}\n\tspeedup: {}\n", 4, ("not valid YAML", "a tab")),
        ("decoding: *other\n", 2, ("not valid YAML", "alias 'other'")),
        ("gates: {parity: {}}\n---\nversion: 1\n", 3, ("not valid YAML", "document")),
        ("gates: @parity\n", 2, ("not valid YAML",)),
        ("gates: %parity\n", 2, ("not valid YAML",)),
    ],
)
def test_malformed_yaml(refused: Refused, content: str, line: int, words: tuple[str, ...]) -> None:
    message = refused(f"version: 1\n{content}", line, *words)
    assert "Error" not in message


@pytest.mark.parametrize(
    ("content", "line", "name", "first"),
    [
        ("gates: {parity: {}, parity: {}}", 2, "parity", 2),
        ("gates:\n  parity: {}\n  speedup: {}\n  parity: {}", 5, "parity", 3),
        ("decoding:\n  chat_template_args:\n    a: 1\n    a: 1", 5, "a", 4),
        ("decoding:\n  chat_template_args: {a: {b: [{c: 1,\n    c: 2}]}}", 4, "c", 3),
        ("decoding:\n  'seed': 1\n  \"seed\": 1", 4, "seed", 3),
    ],
)
def test_key_given_twice(refused: Refused, content: str, line: int, name: str, first: int) -> None:
    refused(f"version: 1\n{content}\n", line, f"'{name}' is given twice", f"first on line {first}")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("gates: {1: {}}", "found 1"),
        ("gates: {1.5: {}}", "found 1.5"),
        ("gates: {true: {}}", "found "),
        ("gates: {null: {}}", "found "),
        ("gates: {[parity]: {}}", "found a list or a mapping"),
        ("gates: {{parity: x}: {}}", "found a list or a mapping"),
        ("[version]: 1", "found a list or a mapping"),
        ("no: {}", "found "),
        ("gates: {speedup: {1: 2}}", "found 1"),
        ("pair: {1: x}", "found 1"),
        ("decoding: {chat_template_args: {a: {off: 1}}}", "found "),
    ],
)
def test_key_that_is_no_text(refused: Refused, content: str, found: str) -> None:
    refused(f"version: 1\n{content}\n", 2, "keys must be text", found)


@pytest.mark.parametrize(
    "content",
    [
        "gates: &own {parity: *own}",
        "gates: &own {parity: {mode: *own}}",
        "decoding: {num_draft_tokens: &own [1, *own]}",
        "decoding: {chat_template_args: &own {a: *own}}",
        "decoding: {chat_template_args: &own {a: [{b: *own}]}}",
        "prompts: {kinds: &own [json, *own]}",
        "measure: &own {warmup: *own}",
        "pair: &own {target: [*own]}",
    ],
)
def test_alias_that_contains_itself(refused: Refused, content: str) -> None:
    refused(f"version: 1\n{content}\n", 2, "an alias that contains itself")


@pytest.mark.parametrize(
    "content",
    [
        "gates: &own {*own : 1}",
        "gates: &own {[*own]: 1}",
        "gates: &own {? {a: *own} : 1}",
        "gates: {parity: &own {*own : 1}}",
        "decoding: &own {*own : 1}",
        "decoding: {chat_template_args: &own {*own : 1}}",
        "decoding: {chat_template_args: {a: &own {[*own]: 1}}}",
        "&own [*own]: 1",
        "? {version: 1}\n: 1",
        "{[version]: 1}",
        "{? {version: 1} : 1, version: 1}",
    ],
)
def test_key_that_is_a_list_or_a_mapping(tmp_path: Path, content: str) -> None:
    """An alias of the mapping that it stands in too: told at its line, without a look inside."""
    path = tmp_path / "gates.yaml"
    flow = content.startswith("{")
    path.write_text(content if flow else f"version: 1\n{content}\n", encoding="utf-8")
    complaint(path, 1 if flow else 2, "keys must be text, found a list or a mapping")


_PLACES = (
    "decoding: {{seed: {}}}",
    "decoding: {{max_tokens: {}}}",
    "decoding: {{num_draft_tokens: [1, {}]}}",
    "decoding: {{temperature: {}}}",
    "decoding: {{kv_bits: {}}}",
    "decoding: {{kv_group_size: {}}}",
    "pair: {{target: {}, draft: a/b}}",
    "prompts: {{builtin: {}}}",
    "prompts: {{kinds: [json, {}]}}",
    "measure: {{min_rounds: {}}}",
    "gates: {{speedup: {{min: {}}}}}",
    "gates: {{latency: {{p95_max_seconds: {}}}}}",
    "gates: {{parity: {{mode: {}}}}}",
    "gates: {{parity: {}}}",
    "gates: {}",
    "decoding: {}",
)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("!!bool abc", "'abc' cannot be read as bool"),
        ("!!int ''", "'' cannot be read as int"),
        ("!!int '-'", "'-' cannot be read as int"),
        ("!!int 0b2", "'0b2' cannot be read as int"),
        ("!!float ''", "'' cannot be read as float"),
        ("!!float '1:x'", "'1:x' cannot be read as float"),
        ("1" * 5000, f"'{'1' * 40}' cannot be read as int"),
    ],
)
def test_scalar_that_its_tag_does_not_fit(
    refused: Refused, place: str, value: str, words: str
) -> None:
    refused(f"version: 1\n{place.format(value)}\n", 2, words)


@pytest.mark.parametrize("place", [place for place in _PLACES if "mode" not in place])
@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "-0x" + "f" * 5000, "0" + "7" * 5000])
def test_number_of_too_many_digits(refused: Refused, place: str, number: str) -> None:
    """Python would refuse to write it out: it is named, not shown."""
    message = refused(f"version: 1\n{place.format(number)}\n", 2, "must ")
    assert "found a number of too many digits" in message
    assert len(message) < 500


@pytest.mark.parametrize("number", ["0b1" + "0" * 63, "9223372036854775808"])
def test_whole_number_just_too_large(refused: Refused, number: str) -> None:
    """From 2 ** 63 on; the largest below it is shown."""
    words = "max_tokens must be at most 9223372036854775807, found a number of too many digits"
    refused(f"version: 1\ndecoding: {{max_tokens: {number}}}\n", 2, words)
    words = "warmup must be at most 10, found 9223372036854775807"
    refused("version: 1\nmeasure: {warmup: 9223372036854775807}\n", 2, words)


@pytest.mark.parametrize("digits", ["0x" + "f" * 5000, "0b" + "1" * 70])
def test_version_of_too_many_digits(refused: Refused, digits: str) -> None:
    words = "version a number of too many digits is newer than this plugin knows (1)"
    refused(f"version: {digits}\n", 1, words)
    refused(f"version: -{digits}\n", 1, "version must be 1, found a number of too many digits")


@pytest.mark.parametrize("depth", [100, *range(200, 600, 25), 900, 1500])
def test_nesting_through_aliases(tmp_path: Path, depth: int) -> None:
    """No bracket stands inside another one, yet the value is that deep: one clear message."""
    lists = ["&a0 [x]", *(f"&a{n} [*a{n - 1}]" for n in range(1, depth))]
    path = tmp_path / "gates.yaml"
    path.write_text(
        f"version: 1\ngates: {{parity: {{mode: [{', '.join(lists)}]}}}}\n"
        f"decoding:\n  chat_template_args: {{deep: *a{depth - 1}}}\n",
        encoding="utf-8",
    )
    if depth >= 900:
        complaint(path, 4, "nested too deeply")
    elif depth > 200:  # where Python's own limit lies depends on the caller
        with pytest.raises(ConfigError) as caught:
            plan(path)
        assert any(
            words in str(caught.value)
            for words in ("line 4: nested too deeply", "line 2: more than 10000 values")
        )
    elif depth == 200:  # what is deep is allowed here; what is wrong is the gate
        complaint(path, 2, "more than 10000 values in one entry")
    else:
        complaint(path, 2, "parity.mode must be one of exact", "found a list")


def _bomb(levels: int) -> str:
    """Ten to the power of levels + 1 values in one line."""
    lists = ["&a0 [" + ",".join("x" * 10) + "]"]
    lists += [f"&a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, levels + 1)]
    return "[" + ", ".join(lists) + "]"


@pytest.mark.parametrize(
    "setting",
    [
        "prompts:\n  kinds: {}",
        "decoding:\n  num_draft_tokens: {}",
        "decoding:\n  chat_template_args: {}",
        "decoding:\n  seed: {}",
        "measure:\n  warmup: {}",
        "pair:\n  target: {}",
        "gates:\n  parity: {}",
    ],
)
def test_alias_bomb_in_an_allowed_key(refused: Refused, setting: str) -> None:
    content = "version: 1\n" + setting.format(_bomb(5)) + "\n"
    _in_little_memory(lambda: refused(content, 3, "more than 10000 values"))


@pytest.mark.parametrize("setting", ["gates:\n  {}: parity", "gates:\n  ? {}\n  : parity"])
def test_alias_bomb_for_a_key(refused: Refused, setting: str) -> None:
    content = "version: 1\n" + setting.format(_bomb(5)) + "\n"
    words = "keys must be text, found a list or a mapping"
    _in_little_memory(lambda: refused(content, 3, words))


def _in_little_memory(check: Callable[[], object]) -> None:
    """A million values would take far more."""
    tracemalloc.start()
    try:
        check()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6


def test_alias_bomb_in_a_chat_template_argument(refused: Refused) -> None:
    settings = f"decoding:\n  chat_template_args:\n    names: {_bomb(5)}\n"
    refused(f"version: 1\n{settings}", 4, "more than 10000 values")


def test_plain_aliases_are_fine(accepted: Callable[[str | bytes], Plan]) -> None:
    made = accepted("version: 1\ngates: {speedup: {margin: &one 0.1}, memory: {headroom: *one}}\n")
    again = accepted(
        "version: 1\ndecoding: {num_draft_tokens: &k [1, 3], chat_template_args: {ks: *k}}\n"
    )
    assert made.gates[0].options["margin"] == made.gates[1].options["headroom"] == 0.1
    assert again.inputs.num_draft_tokens == (1, 3)
    assert again.inputs.chat_template_args == {"ks": [1, 3]}


@pytest.mark.parametrize("content", ["{a: " * 1000, "[" * 1000, "{a: " * 1000 + "1" + "}" * 1000])
def test_nested_beyond_reason(refused: Refused, content: str) -> None:
    refused(f"version: 1\ndecoding: {content}\n", None, "nested too deeply")


def test_nesting_within_reason(accepted: Callable[[str | bytes], Plan]) -> None:
    content = "{a: " * 30 + "1" + "}" * 30
    inputs = accepted(f"version: 1\ndecoding: {{chat_template_args: {content}}}\n").inputs
    value: Any = inputs.chat_template_args
    for _ in range(30):
        value = value["a"]
    assert value == 1


@pytest.mark.parametrize(
    "setting",
    [
        "decoding: {seed: 2026-01-01}",
        "decoding: {seed: 2026-01-01 10:00:00}",
        "decoding: {num_draft_tokens: [2026-01-01]}",
        "decoding: {chat_template_args: {today: 2026-01-01}}",
        "pair: {target: 2026-01-01}",
        "pair: {2026-01-01: x}",
        "prompts: {kinds: [2026-01-01]}",
        "gates: {speedup: {min: 2026-01-01}}",
        "gates: {2026-01-01: {}}",
        "2026-01-01: x",
    ],
)
def test_timestamp(refused: Refused, setting: str) -> None:
    refused(f"version: 1\n{setting}\n", 2, "2026-01-01", "read as a date", "put it in quotes")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{a: .nan}", "decoding.chat_template_args must hold plain JSON values alone: "),
        ("{a: [1, {b: -.inf}]}", "decoding.chat_template_args must hold plain JSON values alone: "),
        ("{a: 1, b: {c: 1, c: 1}}", "'c' is given twice (first on line 2)"),
        ("{a: 1, a: 1}", "'a' is given twice (first on line 2)"),
        ("{a: {1: x}}", "keys must be text, found 1"),
        ("[a]", "decoding.chat_template_args must be a mapping with text keys, found a list"),
        ("{a: !!python/name:os.system x}", "tag !!python/name:os.system is not allowed"),
    ],
)
def test_chat_template_argument_that_is_no_plain_json(
    refused: Refused, value: str, words: str
) -> None:
    refused(f"version: 1\ndecoding: {{chat_template_args: {value}}}\n", 2, words)


def test_date_in_quotes_is_text(accepted: Callable[[str | bytes], Plan]) -> None:
    made = accepted("version: 1\ndecoding: {chat_template_args: {today: '2026-01-01'}}\n")
    assert made.inputs.chat_template_args == {"today": "2026-01-01"}


@pytest.mark.parametrize(
    ("setting", "tag"),
    [
        ("decoding: {seed: !!python/object/apply:os.getpid []}", "!!python/object/apply:os.getpid"),
        ("decoding: {seed: !!python/name:os.system x}", "!!python/name:os.system"),
        ("gates: !!python/object:x.Y {parity: {}}", "!!python/object:x.Y"),
        ("gates: {parity: !!set {mode}}", "!!set"),
        ("gates: {!!python/name:os.system x: {}}", "!!python/name:os.system"),
        ("prompts: {kinds: !!omap [a: 1]}", "!!omap"),
        ("pair: {target: !!binary aGk=}", "!!binary"),
        ("pair: {target: !local x}", "local"),
        ("pair: {target: =}", "!!value"),
        ("gates: {<<: {parity: {}}}", "!!merge"),
        ("<<: {gates: {}}", "!!merge"),
    ],
)
def test_tag_that_is_not_plain_data(refused: Refused, setting: str, tag: str) -> None:
    refused(f"version: 1\n{setting}\n", 2, tag, "not allowed", "nothing was run")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("!!int abc", "'abc' cannot be read as int"),
        ("!!int ''", "'' cannot be read as int"),
        ("!!int 1.5", "'1.5' cannot be read as int"),
        ("!!float abc", "'abc' cannot be read as float"),
        ("!!float ''", "'' cannot be read as float"),
        ("!!bool abc", "'abc' cannot be read as bool"),
        ("!!bool ''", "'' cannot be read as bool"),
        ("9" * 5000, f"'{'9' * 40}' cannot be read as int"),
        ("!!str 1", "decoding.seed must be a whole number, found the text '1'"),
    ],
)
def test_plain_tag_on_a_value_that_is_none(refused: Refused, value: str, words: str) -> None:
    refused(f"version: 1\ndecoding:\n  seed: {value}\n", 3, words)


# -- encoding --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"version: 1\n\n# caf\xe9\n", 3, "0xe9"),
        (b"\xff\xfe" + "version: 1\n".encode("utf-16-le"), 1, "0xff"),
        (b"version: 1\ngates: {\x80: 1}\n", 2, "0x80"),
        (b"version: 1\n# cut short \xf0\x9f\x98", 2, "0xf0"),
        (b"version: 1\n# a surrogate \xed\xa0\x80\n", 2, "0xed"),
    ],
)
def test_not_utf8(refused: Refused, content: bytes, line: int, byte: str) -> None:
    refused(content, line, f"byte {byte} is not UTF-8", "allowed: UTF-8")


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("\0", "U+0000"),
        ("\x01", "U+0001"),
        ("\x0c", "U+000C"),
        ("\x1b[31m", "U+001B"),
        ("\x7f", "U+007F"),
        ("\x80", "U+0080"),
        ("\ufffe", "U+FFFE"),
    ],
)
@pytest.mark.parametrize("before", ["", "# ", "pair: {target: '", "text: "])
def test_control_character(refused: Refused, character: str, name: str, before: str) -> None:
    message = refused(
        f"version: 1\n\n{before}{character}\n", 3, f"the character {name} is not allowed"
    )
    assert message.isprintable()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_mark(
    accepted: Callable[[str | bytes], Plan], refused: Refused, end: str, mark: bytes
) -> None:
    right = f"version: 1{end}gates:{end}  speedup: {{min: 1.2}}{end}"
    assert accepted(mark + right.encode()).gates[0].options["min"] == 1.2
    wrong = f"version: 1{end}{end}gate: {{}}{end}"
    refused(mark + wrong.encode(), 3, "unknown key 'gate'", "did you mean 'gates'?")


@pytest.mark.parametrize("character", ["\\e[31m", "\\0", "\\x07", "\\ud800"])
@pytest.mark.parametrize(
    "setting",
    ['"{}": 1', 'gates: {{"{}": 1}}', 'pair: {{"{}": 1}}', 'prompts: {{builtin: "{}"}}'],
)
def test_escaped_control_character_is_shown_escaped(
    refused: Refused, setting: str, character: str
) -> None:
    message = refused(f"version: 1\n{setting.format(character)}\n", 2, "allowed:")
    assert message.isprintable()


def test_unreadable_file(tmp_path: Path) -> None:
    complaint(tmp_path / "none.yaml", None, "cannot be read", "No such file")
    complaint(tmp_path / "none.jsonl", None, "cannot be read", "No such file")
    (tmp_path / "folder.yaml").mkdir()
    complaint(tmp_path / "folder.yaml", None, "cannot be read", "directory")


# -- prompt files ----------------------------------------------------------------------------------

Lines = Callable[..., Path]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """Write a prompt file."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "prompts.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


FIRST = '{"id": "first", "prompt": "x"}\n\n'
LONG = "a" * 201


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # not an object
        ('["id", "prompt"]', ("must be an object", "found a list")),
        ('"text"', ("must be an object", "found the text 'text'")),
        ("3", ("must be an object", "found 3")),
        ("null", ("must be an object", "found nothing (null)")),
        ("true", ("must be an object", "found true")),
        ("NaN", ("must be an object", "found nan")),
        # not JSON
        ("{'id': 'a'}", ("not JSON at column 2",)),
        ('{"id": "a", "prompt": "x",}', ("not JSON at column 27",)),
        ('{"id": "a", "prompt": "x"} {}', ("not JSON at column 28",)),
        ("# a comment", ("not JSON at column 1",)),
        ('{"id": "a", "prompt": "x\ty"}', ("not JSON at column 25", "control character")),
        ('{"id": "a", "prompt": "x\0y"}', ("not JSON at column 25", "control character")),
        # keys
        ("{}", ("id is missing", "needed: id and prompt")),
        ('{"id": "a"}', ("prompt is missing", "needed: id and prompt")),
        ('{"prompt": "x"}', ("id is missing", "needed: id and prompt")),
        ('{"id": "a", "prompt": "x", "id": "b"}', ("'id' is given twice",)),
        ('{"id": "a", "prompt": "x", "prompt": "x"}', ("'prompt' is given twice",)),
        ('{"id": "a", "prompt": {"x": 1, "x": 1}}', ("'x' is given twice",)),
        (
            '{"id": "a", "prompt": "x", "maxtokens": 3}',
            ("unknown field 'maxtokens'", "did you mean 'max_tokens'?", "id, kind, prompt"),
        ),
        ('{"id": "a", "prompt": "x", "\\u001b[31m": 1}', ("unknown field '\\x1b[31m'",)),
        # id
        ('{"id": 1, "prompt": "x"}', ("id must be text", "found 1")),
        ('{"id": 1.5, "prompt": "x"}', ("id must be text", "found 1.5")),
        ('{"id": true, "prompt": "x"}', ("id must be text", "found true")),
        ('{"id": null, "prompt": "x"}', ("id must be text", "found nothing (null)")),
        ('{"id": ["a"], "prompt": "x"}', ("id must be text", "found a list")),
        ('{"id": {"a": 1}, "prompt": "x"}', ("id must be text", "found a mapping")),
        ('{"id": NaN, "prompt": "x"}', ("id must be text", "found nan")),
        ('{"id": "", "prompt": "x"}', ("id is empty",)),
        ('{"id": " ", "prompt": "x"}', ("id is empty",)),
        ('{"id": "a::b", "prompt": "x"}', ("without '::'", "found 'a::b'")),
        ('{"id": "a\\nb", "prompt": "x"}', ("printable", "found 'a\\nb'")),
        ('{"id": "a\\u001b[31m", "prompt": "x"}', ("printable", "found 'a\\x1b[31m'")),
        ('{"id": "a\u2028", "prompt": "x"}', ("printable", "found 'a\\u2028'")),
        ('{"id": "\\ud800", "prompt": "x"}', ("id is not valid Unicode text",)),
        (f'{{"id": "{LONG}", "prompt": "x"}}', ("at most 200", "found 'aaaa")),
        ('{"id": "first", "prompt": "y"}', ("id 'first' is already on line 1",)),
        # prompt and kind
        ('{"id": "a", "prompt": 1}', ("prompt must be text", "found 1")),
        ('{"id": "a", "prompt": null}', ("prompt must be text", "found nothing (null)")),
        ('{"id": "a", "prompt": ["x"]}', ("prompt must be text", "found a list")),
        ('{"id": "a", "prompt": "\\udc00"}', ("prompt is not valid Unicode text",)),
        ('{"id": "a", "prompt": "x", "kind": 1}', ("kind must be text", "found 1")),
        ('{"id": "a", "prompt": "x", "kind": null}', ("kind must be text", "nothing (null)")),
        ('{"id": "a", "prompt": "x", "kind": ""}', ("kind is empty",)),
        ('{"id": "a", "prompt": "x", "kind": "\\ud83d"}', ("kind is not valid Unicode text",)),
    ],
)
def test_wrong_prompt_line(lines: Lines, line: str, words: tuple[str, ...]) -> None:
    complaint(lines(f"{FIRST}{line}\n"), 3, *words)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "must be at least 1, found 0"),
        ("-1", "must be at least 1, found -1"),
        ("1.0", "must be a whole number, found 1.0"),
        ("true", "must be a whole number, found true"),
        ('"8"', "must be a whole number, found the text '8'"),
        ("[8]", "must be a whole number, found a list"),
        ("{}", "must be a whole number, found a mapping"),
        ("NaN", "must be a whole number, found nan"),
        ("1e400", "must be a whole number, found inf"),
        ("-Infinity", "must be a whole number, found -inf"),
    ],
)
def test_wrong_max_tokens_of_a_prompt(lines: Lines, value: str, words: str) -> None:
    line = f'{{"id": "a", "prompt": "x", "max_tokens": {value}}}'
    complaint(lines(f"{FIRST}{line}\n"), 3, f"max_tokens {words}", ">= 1")


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "a", "prompt": "x", "max_tokens": ' + "9" * 5000 + "}",
        '{"id": "a", "prompt": ' + "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a": ' * 100_000,
    ],
    ids=["huge number", "open lists", "lists", "objects"],
)
def test_json_beyond_reason(lines: Lines, line: str) -> None:
    message = complaint(lines(f"{FIRST}{line}\n"), 3, "not JSON that can be read")
    assert len(message) < 1000


def test_deep_json_within_reason_is_still_no_text(lines: Lines) -> None:
    line = '{"id": "a", "prompt": ' + "[" * 100 + "]" * 100 + "}"
    complaint(lines(f"{FIRST}{line}\n"), 3, "prompt must be text", "found a list")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("\u2028", "\u2028"),
        ("\u2029", "\u2029"),
        ("\x85", "\x85"),
        ("\\u2028", "\u2028"),
        ("\\n", "\n"),
        ("\\u0000", "\0"),
    ],
)
def test_line_break_inside_a_text_breaks_no_line(lines: Lines, written: str, text: str) -> None:
    first = f'{{"id": "a", "prompt": "x{written}y"}}'
    made = read_prompts(lines(f'{first}\n{{"id": "b", "prompt": "z"}}\n'))
    assert [prompt.text for prompt in made] == [f"x{text}y", "z"]
    complaint(lines(f"{first}\n{first}\n"), 2, "id 'a' is already on line 1")


@pytest.mark.parametrize(
    "name", ["a", "A-1", "zh-01", "é 日本", "a[b]", "a:b", "../x", "a" * 200, "'\"", "😀"]
)
def test_id_that_is_allowed(lines: Lines, name: str) -> None:
    escaped = name.replace('"', '\\"')
    (prompt,) = read_prompts(lines(f'{{"id": "{escaped}", "prompt": "x", "kind": "k"}}\n'))
    assert prompt == Prompt(name, "x", "k")


def test_null_max_tokens_is_none_given(lines: Lines) -> None:
    (prompt,) = read_prompts(lines('{"id": "a", "prompt": "x", "max_tokens": null}\n'))
    assert prompt.max_tokens is None


@pytest.mark.parametrize("content", ["", "\n", " \t\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_prompt_file_without_a_prompt(lines: Lines, content: str | bytes) -> None:
    complaint(lines(content), None, "no prompts in the file", '"id"', '"prompt"')


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (FIRST.encode() + b'{"id": "b", "prompt": "\xe9"}\n', 3, "0xe9"),
        (b"\xff\xfe" + FIRST.encode("utf-16-le"), 1, "0xff"),
    ],
)
def test_prompt_file_that_is_not_utf8(lines: Lines, content: bytes, line: int, byte: str) -> None:
    complaint(lines(content), line, f"byte {byte} is not UTF-8")


def test_fault_of_a_prompt_file_is_named_there(tmp_path: Path) -> None:
    """Not at the line of the gates file that names it."""
    gates, prompts = tmp_path / "gates.yaml", tmp_path / "mine" / "p.jsonl"
    prompts.parent.mkdir()
    prompts.write_text(f'{FIRST}{{"id": "first"}}\n', encoding="utf-8")
    gates.write_text("version: 1\nprompts: {file: mine/p.jsonl}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        plan(gates)
    assert str(caught.value).startswith(f"{prompts}, line 3: prompt is missing")
    prompts.write_text(FIRST, encoding="utf-8")
    assert [prompt.id for prompt in plan(gates).inputs.prompts] == ["first"]

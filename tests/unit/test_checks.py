"""checks/: what each check lets through, what it says of the rest, and that none can hang."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_specgate.checks import Check, builtin_checks
from pytest_specgate.checks.base import CheckFault, Output, Stalled, message_of
from pytest_specgate.checks.examine import MOST_STALLS, Examiner, Problem
from pytest_specgate.checks.json_check import begins_document
from pytest_specgate.checks.language import simplified_only
from pytest_specgate.checks.own import marked_checks, specgate_check
from pytest_specgate.checks.python_check import begins_code
from pytest_specgate.config.checks import by_kind, configs, listed, ready
from pytest_specgate.config.plan import CheckConfig, Prompt
from pytest_specgate.config.spec import ConfigError, Invalid
from pytest_specgate.prompts import builtin

CHECKS = builtin_checks()
ENDLESS = ("(a|aa)+$", "a" * 40 + "!")  # backtracks for hours


def output(
    text: str = "", *, tokens: tuple[int, ...] = (1, 2, 3), finish: str | None = "stop"
) -> Output:
    """An output of a prompt of kind k."""
    return Output(text, tokens, finish, "p1", "k", "say it")


def said(name: str, given: Any, text: str = "", base: Path = Path(), **more: Any) -> str | None:
    """What a check with these options says."""
    options = CHECKS[name].checked(given, base)
    return message_of(CHECKS[name], output(text, **more), options)


# -- json ------------------------------------------------------------------------------------------

FENCED = '```json\n{"a": 1}\n```'


@pytest.mark.parametrize(
    ("given", "text", "says"),
    [
        ({}, '{"a": [1, 2.5, null, true, "x"]}', None),
        ({}, " \n[1]\n", None),
        ({}, "7", None),
        ({}, FENCED, None),
        ({}, f"Here it is:\n{FENCED}\nEnjoy.", None),
        ({}, "```\n[1]\n```", None),
        ({}, "~~~~json\n[1]\n~~~\n~~~~\n", "in the fenced block: not JSON at line 2"),
        ({}, f"{FENCED}\n{FENCED}", "2 fenced blocks where one JSON document is due"),
        ({}, "```python\nx = 1\n```", "not JSON at line 1, column 1"),
        ({}, '{"a": 1} {"b": 2}', "not JSON at line 1, column 10: Extra data"),
        ({}, '{"a": 1', "not JSON at line 1, column 8"),
        ({}, "", "not JSON at line 1, column 1"),
        ({}, "[NaN]", "not JSON that can be read: NaN is no JSON"),
        ({"fenced": False}, FENCED, "not JSON at line 1, column 1"),
        ({"fenced": False}, "[1]", None),
        ({"fenced": True}, FENCED, None),
        ({"fenced": True}, "[1]", "it holds no fenced JSON block"),
        ({"fenced": True}, "```json\n[1", "in the fenced block: not JSON at line 1"),
    ],
)
def test_json(given: Any, text: str, says: str | None) -> None:
    message = said("json", given, text)
    assert message is None if says is None else (message or "").startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [("[" * 100_000, "not JSON that can be read"), ("9" * 5000, "not JSON that can be read")],
)
def test_json_bombs_are_failures(text: str, says: str) -> None:
    """Brackets beyond the recursion limit, and a number beyond the limit of digits."""
    assert (said("json", {}, text) or "").startswith(says)
    assert (said("json", {"cut": "begins"}, text, finish="length") or "").startswith(says)


WHOLE = ' {"a\\u00e9\\\\": [1, -2.5e3, true, null, "x\\"y"], "b": {"c": false}}'


@pytest.mark.parametrize("end", range(len(WHOLE) + 1))
def test_every_beginning_of_a_document_is_one(end: int) -> None:
    assert begins_document(WHOLE[:end])
    cut = said("json", {"cut": "begins"}, WHOLE[:end], finish="length")
    assert cut is None


@pytest.mark.parametrize(
    "text", ["Sure! {", '{"a" 1', "[1,,", '{"a": 1}}', "{a", "[tru e", '"\\x', "[}"]
)
def test_what_begins_no_document(text: str) -> None:
    assert not begins_document(text)
    assert said("json", {"cut": "begins"}, text, finish="length")


def test_a_beginning_counts_only_where_it_was_cut() -> None:
    assert said("json", {"cut": "begins"}, "[1", finish="stop")
    assert said("json", {"cut": "fail"}, "[1", finish="length")
    assert said("json", {"cut": "begins"}, "```json\n[1", finish="length") is None
    assert said("json", {"cut": "begins"}, "```json\n[1\n```\nAnd", finish="length")


@pytest.fixture
def schema(tmp_path: Path) -> Callable[..., Any]:
    """schema(document): options with that schema."""

    def write(document: Any, **more: Any) -> dict[str, Any]:
        (tmp_path / "s.json").write_text(json.dumps(document), encoding="utf-8")
        return CHECKS["json"].checked({"schema": "s.json", **more}, tmp_path)

    return write


def judged(options: Mapping[str, Any], document: Any) -> str | None:
    """What the check json says of a document."""
    return message_of(CHECKS["json"], output(json.dumps(document)), options)


def test_a_schema(schema: Callable[..., Any]) -> None:
    options = schema(
        {
            "type": "object",
            "required": ["id", "total"],
            "properties": {"total": {"type": "number", "minimum": 0}, "id": {"pattern": "^A-"}},
            "patternProperties": {"^x_": {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    assert CHECKS["json"].complaint(options) is None
    assert judged(options, {"id": "A-1", "total": 2, "x_a": 1}) is None
    assert judged(options, {"id": "A-1"}) == "at $: 'total' is a required property"
    assert judged(options, {"id": "A-1", "total": -1}) == (
        "at $.total: -1 is less than the minimum of 0"
    )
    assert judged(options, {"id": "B", "total": 1}) == "at $.id: 'B' does not match '^A-'"
    assert "at $.x_a: 'q' is not of type" in (
        judged(options, {"id": "A-", "total": 1, "x_a": "q"}) or ""
    )
    assert judged(options, {"id": "A-", "total": 1, "more": 1}) == "at $: unexpected: 'more'"
    assert "(and 1 more)" in (judged(options, {"id": "B", "total": -1}) or "")


def test_a_schema_in_a_fence_and_for_further_properties(schema: Callable[..., Any]) -> None:
    options = schema({"additionalProperties": {"type": "string"}})
    text = '```json\n{"a": 1}\n```'
    assert message_of(CHECKS["json"], output(text), options) == (
        "in the fenced block: at $.a: 1 is not of type 'string'"
    )
    assert judged(options, {"a": "b"}) is None
    assert judged(options, [1]) is None


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "additionalProperties"])
def test_a_pattern_of_a_schema_cannot_hang(schema: Callable[..., Any], keyword: str) -> None:
    pattern, text = ENDLESS
    document: Any = text if keyword == "pattern" else {text: 1}
    rules: dict[str, Any] = {
        "pattern": {"pattern": pattern},
        "patternProperties": {"patternProperties": {pattern: {}}},
        "additionalProperties": {
            "additionalProperties": False,
            "patternProperties": {pattern: {}},
        },
    }
    with pytest.raises(Stalled, match="backtracks without end"):
        judged(schema(rules[keyword]), document)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"type": "strin"}, "is no JSON Schema: at $.type"),
        ({"pattern": "("}, "is no JSON Schema: at $.pattern: '(' is not a 'regex'"),
        ({"patternProperties": {"(": {}}}, "is no JSON Schema: at $.patternProperties"),
        ({"$ref": "https://example.org/x.json"}, "leads out of the file, and nothing is fetched"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "leads out of the file"),
        ({"$ref": "#/$defs/none"}, "names nothing in the file"),
        ({"unevaluatedProperties": False, "patternProperties": {"a": {}}}, "is not taken"),
    ],
)
def test_a_schema_that_cannot_be_used(schema: Callable[..., Any], document: Any, says: str) -> None:
    assert says in (CHECKS["json"].complaint(schema(document)) or "")


@pytest.mark.parametrize(
    "document",
    [
        True,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}},
        {
            "$id": "https://example.org/a",
            "$ref": "https://example.org/a#/$defs/a",
            "$defs": {"a": {}},
        },
        {"properties": {"$ref": {"type": "string"}}, "const": {"$ref": "https://example.org"}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a",
            "definitions": {"a": {}},
        },
    ],
)
def test_a_schema_that_can_be_used(schema: Callable[..., Any], document: Any) -> None:
    options = schema(document)
    assert CHECKS["json"].complaint(options) is None
    assert judged(options, 1) is None or "const" in document


def test_a_schema_without_end_is_a_failure(schema: Callable[..., Any]) -> None:
    options = schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})
    assert "nests too deeply" in (judged(options, 1) or "")


def test_a_reference_that_is_found_out_late_is_a_fault(schema: Callable[..., Any]) -> None:
    """Nested ids are not followed before anything is generated."""
    inner = {"$id": "https://example.org/b", "$ref": "#/none"}
    options = schema({"$id": "https://example.org/a", "items": inner})
    assert CHECKS["json"].complaint(options) is None
    with pytest.raises(CheckFault, match="'/none' does not exist"):
        judged(options, [1])


def test_nothing_is_fetched(schema: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the complaint was not asked for."""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("fetched"))
    with pytest.raises(CheckFault, match=r"example\.org"):
        judged(schema({"$ref": "https://example.org/x.json"}), 1)


def test_jsonschema_that_is_not_there(
    schema: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_specgate.checks.json_check.find_spec", lambda name: None)
    assert CHECKS["json"].complaint(schema({})) == (
        "a schema takes the package jsonschema: pip install 'pytest-specgate[quality]'"
    )
    assert CHECKS["json"].complaint(CHECKS["json"].checked({}, Path())) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "json.schema no such file: "),
        ("{\n", "line 2: not JSON"),
        ("[]", "a schema is an object, found a list"),
        ("9" * 5000, "not JSON that can be read"),
    ],
)
def test_a_schema_file_that_is_none(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "s.json").write_text(content, encoding="utf-8")
    with pytest.raises(Invalid) as caught:
        CHECKS["json"].checked({"schema": "s.json"}, tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path / "s.json") in str(caught.value)


# -- python ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text", "says"),
    [
        ({}, "def f(x):\n    return x\n", None),
        ({}, "Sure:\n\n```python\nx = 1\n```\nThat is all.", None),
        ({}, "```py\nx = 1\n```\n```python3\ny = 2\n```", None),
        ({}, "```\nx = 1\n```", None),
        ({}, "```bash\nls -l\n```\n```python\nx = 1\n```", None),
        (
            {},
            "```python\nx = 1\n```\n```python\nx = = 1\n```",
            "in fenced block 2: no Python at line 1",
        ),
        ({}, "```python\nx = = 1\n```", "no Python at line 1: "),
        ({}, "Sure, here it is.", "no Python at line 1: "),
        ({}, "", "it holds no code"),
        ({}, "```python\n\n```", "it holds no code"),
        ({}, "x = '\0'", "no Python"),
        ({}, "x = " + "9" * 5000, "no Python"),
        ({}, "return 1", None),
        ({"compile": True}, "return 1", "no Python at line 1: 'return' outside function"),
        ({"compile": True}, "def f():\n    return 1", None),
        ({}, 'x = "\\d"', None),
        ({"fenced": False}, "```python\nx = 1\n```", "no Python at line 1"),
        ({"fenced": True}, "x = 1", "it holds no fenced Python block"),
        ({}, "x = 1 # " + "y" * 1_000_000, "1,000,008 characters of code are not parsed"),
    ],
)
def test_python(given: Any, text: str, says: str | None) -> None:
    message = said("python", given, text)
    assert message is None if says is None else (message or "").startswith(says)


def test_python_is_never_executed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')\nimport os\nos._exit(3)\n"
    assert said("python", {"compile": True}, code) is None
    assert not mark.exists()


@pytest.mark.parametrize(
    "code",
    [
        "(" * 5000,
        "-" * 100_000 + "1",
        "not " * 50_000 + "x",
        "a" + ".a" * 50_000,
        "f" + "()" * 50_000,
        "[" * 150 + "]" * 150,
        "lambda: " * 20_000 + "1",
        "".join(f"{' ' * i}if x:\n" for i in range(300)),
        "x = 2 ** 2 ** 2 ** 2 ** 2 ** 2 ** 2",
        "x = 'a' * 10 ** 10",
    ],
    ids=range(10),
)
def test_python_bombs_do_no_harm(code: str) -> None:
    """Nested beyond what the compiler takes, and constants that would fill the memory."""
    message = said("python", {"compile": True}, code)
    assert message is None or message.startswith(("no Python", "it nests too deeply"))


@pytest.mark.parametrize(
    "code",
    [
        "def f(a",
        "def f(a):\n    retur",
        'def f():\n    """A doc',
        "x = {\n  'a': 1,\n  'b",
        "class A:\n",
        "x = 1\ny = 'abc",
        "",
    ],
)
def test_code_that_was_cut(code: str) -> None:
    assert begins_code(code)
    assert said("python", {"cut": "begins"}, code, finish="length") is None
    assert said("python", {"cut": "begins"}, f"```python\n{code}", finish="length") is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "code", ["x = '\\d'", "x = '\\d'\nif x", "x = 1 is 1\ny = '", "assert (1, 2)\nf("]
)
def test_warnings_of_the_compiler_are_no_fault(code: str) -> None:
    """Even in a project that makes errors of its own warnings."""
    assert said("python", {"cut": "begins", "compile": True}, code, finish="length") is None


@pytest.mark.parametrize("code", ["Sure! Here it is", "x = = 1\ny", "def f(:\n    pass\nz"])
def test_what_begins_no_code(code: str) -> None:
    assert not begins_code(code)
    assert said("python", {"cut": "begins"}, code, finish="length")
    assert said("python", {}, code, finish="length")


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "text", "says"),
    [
        ("contains", "total", "the total is 3", None),
        ("contains", ["a", "b", "Z"], "ab", "it does not contain 'Z'"),
        ("contains", ["x", "y"], "ab", "it does not contain 'x', 'y'"),
        ("contains", {"text": "STRASSE", "ignore_case": True}, "Straße", None),
        ("regex", r"\d{3}", "abc123", None),
        ("regex", r"^\d", "abc", r"nothing matches '^\\d'"),
        ("regex", r"(?i)ABC", "xabc", None),
        ("not_regex", "sorry", "fine", None),
        ("not_regex", "(?i)sorry", "So Sorry", "'(?i)sorry' matches 'Sorry' at character 3"),
        ("length", {"min": 3, "max": 3}, "", None),
        ("length", {"min": 4}, "", "3 tokens, the min is 4"),
        ("length", {"max": 2}, "", "3 tokens, the max is 2"),
        ("length", {"max": 2, "unit": "characters"}, "abc", "3 characters, the max is 2"),
        ("length", {"min": 1, "unit": "characters"}, "", "0 characters, the min is 1"),
        ("finish", None, "", None),
    ],
)
def test_texts(name: str, given: Any, text: str, says: str | None) -> None:
    assert said(name, given, text) == says


def test_how_it_ended() -> None:
    assert said("finish", {}, finish="length") == "max_tokens cut it after 3 tokens"
    assert said("finish", {}, finish=None) == (
        "nothing says that it stopped by itself (finish_reason None)"
    )


@pytest.mark.parametrize("name", ["regex", "not_regex"])
def test_a_pattern_cannot_hang(name: str) -> None:
    """It is stopped, and said so."""
    pattern, text = ENDLESS
    with pytest.raises(Stalled, match=r"stopped after 0\.25 s on a text of 41 characters"):
        said(name, pattern, text)


# -- language --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text", "says"),
    [
        ("Han", "天空是藍色的 ok", None),
        ("Han", "The sky is blue 天", "8% of its 13 letters are Han, the least is 50%"),
        ({"script": "Han", "min_share": 0.05}, "The sky is blue 天", None),
        ("Latin", "Zoë 2026!", None),
        ("Cyrillic", "Привет", None),
        ("Latin", "2026, 🎌", "it holds no letter"),
        ({"max_simplified": 0}, "這是繁體中文 後面的裡面", None),
        (
            {"max_simplified": 0},
            "这是中文",
            "1 of its characters are Simplified Chinese alone (这)",
        ),
        ({"max_simplified": 1}, "这是中文", None),
        (
            {"max_simplified": 0},
            "会议国会",
            "4 of its characters are Simplified Chinese alone (会议国)",
        ),
    ],
)
def test_language(given: Any, text: str, says: str | None) -> None:
    message = said("language", given, text)
    assert message is None if says is None else (message or "").startswith(says)


def test_characters_of_both_are_not_simplified_alone() -> None:
    known = simplified_only()
    assert not known & set("后里台只干着群峰床秘")
    assert set("这们国说时会来对过还开关车东门") - set("来") <= known
    for prompt in builtin("core") or ():
        if prompt.kind == "explain":
            assert not known & set(prompt.text)


# -- no_repetition ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (tuple(range(500)), None),
        ((7,) * 31, None),
        ((1, 2, *(7,) * 32), "from token 2 on one token stand there 32 times in a row"),
        ((1, 2, 3, *(8, 9) * 16), "from token 3 on 2 tokens stand there 16 times in a row"),
        ((8, 9) * 15, None),
        (tuple(range(64)) * 4, "from token 0 on 64 tokens stand there 4 times in a row"),
        (tuple(range(64)) * 3, None),
        (tuple(range(65)) * 5, None),
        ((1, 1, 1, 2, 1, 1, 1, 3) * 4, "from token 0 on 8 tokens stand there 4 times in a row"),
        ((0x10FFFF + 5, 0xD800) * 20, "from token 0 on 2 tokens stand there 20 times in a row"),
        ((), None),
    ],
    ids=range(11),
)
def test_loops(tokens: tuple[int, ...], says: str | None) -> None:
    assert said("no_repetition", {}, tokens=tokens) == says


def test_what_a_loop_is_can_be_set() -> None:
    tokens = (1, *(8, 9) * 3)
    assert said("no_repetition", {"times": 3, "span": 6}, tokens=tokens)
    assert said("no_repetition", {"times": 3, "span": 7}, tokens=tokens) is None
    assert said("no_repetition", {"times": 3, "span": 6, "longest": 1}, tokens=tokens) is None


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("json", {"schemas": 1}, "json has no option 'schemas'; did you mean 'schema'? (allowed: "),
        ("json", {"fenced": "yes"}, "json.fenced must be true, false or either, found the text"),
        ("json", {"cut": 1}, "json.cut must be one of fail, begins"),
        ("json", ["a"], "json.schema must be the path of a JSON Schema, found a list"),
        ("python", "yes", "python must be a mapping of options (or {}), found the text 'yes'"),
        ("python", {"compile": 1}, "python.compile must be true or false, found 1"),
        ("contains", None, "contains.text is missing (allowed: a list of texts)"),
        ("contains", [], "contains.text must not be empty"),
        ("contains", [1], "contains.text must be text in every entry, found 1"),
        ("regex", {}, "regex.pattern is missing"),
        ("regex", "(", "regex.pattern '(' is no regular expression: missing )"),
        ("regex", "", "regex.pattern must be text that is not empty"),
        ("length", {"unit": "words"}, "length.unit must be one of tokens, characters"),
        ("length", {"max": 0}, "length.max must be at least 1"),
        ("language", "Klingon", "language.script must be the name of a Unicode script, found"),
        ("language", "H)n", "language.script must be the name of a script, found"),
        ("language", {"min_share": 0}, "language.min_share must be > 0"),
        ("no_repetition", {"times": 1}, "no_repetition.times must be at least 2"),
        ("finish", {"x": 1}, "finish has no option 'x' (allowed: none: it takes no option)"),
    ],
)
def test_wrong_options(name: str, given: Any, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        CHECKS[name].checked(given, Path())
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("length", {}, "give min or max"),
        ("length", {"min": 3, "max": 2}, "min (3) is above max (2)"),
        ("language", {}, "give script or max_simplified"),
        ("length", {"min": 2}, None),
        ("finish", {}, None),
    ],
)
def test_options_that_cannot_judge(name: str, given: Any, says: str | None) -> None:
    complaint = CHECKS[name].complaint(CHECKS[name].checked(given, Path()))
    assert complaint is None if says is None else (complaint or "").startswith(says)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("json", "must be a list of checks such as "),
        ([1], "found 1 among its entries"),
        ([{}], "found a mapping of 0 keys among its entries"),
        ([{"json": {}, "python": {}}], "found a mapping of 2 keys among its entries"),
    ],
)
def test_no_list_of_checks(value: Any, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        listed(value, "here", Path())


def test_lists_of_checks() -> None:
    made = listed(["json", {"contains": "x"}, {"finish": None}], "here", Path("/f"))
    assert made == (
        CheckConfig("json", None, "here", Path("/f")),
        CheckConfig("contains", "x", "here", Path("/f")),
        CheckConfig("finish", None, "here", Path("/f")),
    )
    assert ready(made[1], CHECKS).options == {"ignore_case": False, "text": ("x",)}
    assert ready(ready(made[1], CHECKS), CHECKS) == ready(made[1], CHECKS)
    for name, says in (("jsn", "no check 'jsn'; did you mean 'json'"), ([], "no check")):
        with pytest.raises(Invalid, match=says):
            ready(CheckConfig(name), CHECKS)  # type: ignore[arg-type]  # what JSON may hold
    with pytest.raises(Invalid, match="must be CheckConfigs, found a list"):
        configs(["json"], "here")
    assert configs([CheckConfig("json")], "here")[0].origin == "here"


def test_checks_by_kind(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}", encoding="utf-8")
    spec = by_kind(CHECKS).at(tmp_path)
    made = spec({"json": [{"json": "s.json"}], "other": []})
    assert made["json"][0].options["schema"].path == tmp_path / "s.json"
    assert made["other"] == ()
    for value, says in (
        ([], "must be a mapping of prompt kinds to checks, found a list"),
        ({"json": "json"}, "of the kind 'json': must be a list of checks"),
        ({"json": ["x"]}, "of the kind 'json': no check 'x'"),
    ):
        with pytest.raises(Invalid, match=says):
            spec(value)


# -- own checks ------------------------------------------------------------------------------------


def plugin(*functions: Any) -> ModuleType:
    """A module, as pytest keeps a conftest, that holds these functions."""
    module = ModuleType("conftest")
    for number, function in enumerate(functions):
        setattr(module, f"f{number}", function)
    return module


def own(function: Any, name: str = "mine") -> Check:
    """The check that a function becomes."""
    return marked_checks([object(), plugin(specgate_check(name)(function), len, 7)])[name]


def test_a_check_of_ones_own() -> None:
    check = own(lambda output, word, least=2: None if output.text.count(word) >= least else "few")
    assert check.checked("x", Path()) == {"word": "x", "least": 2}
    assert message_of(check, output("xx"), {"word": "x", "least": 2}) is None
    assert message_of(check, output("x"), {"word": "x", "least": 2}) == "few"
    with pytest.raises(Invalid, match=r"mine\.word is missing"):
        check.checked({}, Path())
    with pytest.raises(Invalid, match="mine has no option 'leas'; did you mean 'least'"):
        check.checked({"word": "x", "leas": 1}, Path())


def test_the_decorator_leaves_the_function_as_it_was() -> None:
    def longer(output: Output) -> str | None:
        return None

    assert specgate_check("longer")(longer) is longer


def test_an_assertion_is_a_message() -> None:
    def checks(output: Output) -> None:
        assert output.text, "it is empty"

    def bare(output: Output) -> None:
        raise AssertionError

    def fails(output: Output) -> None:
        pytest.fail("not so")

    assert message_of(own(checks), output(""), {}) == "it is empty"
    assert message_of(own(checks), output("x"), {}) is None
    assert message_of(own(bare), output(), {}) == "an assertion of the check failed"
    assert message_of(own(fails), output(), {}) == "not so"


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (True, "it gave true, a truth value where a message, or None, is due"),
        (False, "it gave false, a truth value where"),
        ("", "it gave the text '' where"),
        (3, "it gave 3 where"),
        ([], "it gave a list where"),
    ],
)
def test_rubbish_is_a_fault(result: Any, says: str) -> None:
    with pytest.raises(CheckFault, match=says):
        message_of(own(lambda output: result), output(), {})


def test_a_check_that_raises_is_a_fault() -> None:
    with pytest.raises(CheckFault, match="it broke on an output: ZeroDivisionError: "):
        message_of(own(lambda output: str(1 // 0)), output(), {})

    def deep(output: Output) -> str:
        return deep(output)

    assert message_of(own(deep), output(), {}) == (
        "it nests too deeply to be checked (RecursionError)"
    )


def test_own_checks_that_are_made_wrongly() -> None:
    def fine() -> Any:
        return lambda output: None

    def keyword(*, output: Output) -> None: ...

    one: Any = specgate_check("a")(fine())
    for functions, says in (
        ((one, specgate_check("a")(fine())), "the check 'a' is also made in"),
        ((specgate_check("not a name")(fine()),), "takes the name of the check"),
        ((specgate_check(fine())(fine()),), "takes the name of the check"),
        ((specgate_check("a")(lambda: None),), "the check 'a' must take an output"),
        ((specgate_check("a")(keyword),), "the check 'a' must take an output"),
    ):
        with pytest.raises(ConfigError, match=says) as caught:
            marked_checks([plugin(*functions)])
        assert __file__ in str(caught.value)


def test_one_function_in_two_conftests_is_one_check() -> None:
    """As where one imports it from the other."""

    def one(output: Output) -> None: ...

    shared = specgate_check("a")(one)
    assert list(marked_checks([plugin(shared), plugin(shared)])) == ["a"]


# -- examiner --------------------------------------------------------------------------------------


def test_equal_outputs_are_checked_once() -> None:
    seen: list[str] = []

    def notes(output: Output) -> str | None:
        seen.append(output.text)
        return "bad" if output.text else None

    examiner = Examiner({"mine": own(notes)})
    config = (CheckConfig("mine", {}),)
    for _ in range(3):
        assert examiner.problems(config, output("x")) == (Problem("mine", "bad"),)
        assert examiner.problems(config, output("")) == ()
    assert seen == ["x", ""]


def test_a_check_that_stalls_is_given_up() -> None:
    """So that a thousand outputs do not take a thousand times its patience."""
    pattern, text = ENDLESS
    examiner = Examiner(CHECKS)
    configs = (
        ready(CheckConfig("regex", pattern), CHECKS),
        ready(CheckConfig("contains", "a"), CHECKS),
    )
    found = [examiner.problems(configs, output(text + str(i))) for i in range(MOST_STALLS + 2)]
    assert all(len(problems) == 1 for problems in found)
    messages = [problem.message for (problem,) in found]
    assert all("backtracks without end" in m for m in messages[:MOST_STALLS])
    assert set(messages[MOST_STALLS:]) == {"not tried: it was stopped on 3 outputs before"}


def test_a_fault_names_check_and_prompt() -> None:
    examiner = Examiner({"mine": own(lambda output: 1)})
    with pytest.raises(CheckFault, match="the check 'mine' is at fault, at p1: it gave 1 where"):
        examiner.problems((CheckConfig("mine", {}),), output())


# -- the built-in prompts --------------------------------------------------------------------------


def test_the_built_in_prompts_carry_checks() -> None:
    """For each kind, and all of them can be used."""
    prompts: tuple[Prompt, ...] = builtin("core") or ()
    kinds = {prompt.kind: [c.name for c in prompt.usual_checks] for prompt in prompts}
    assert kinds == {
        "explain": ["language", "no_repetition"],
        "python": ["python", "no_repetition"],
        "json": ["json", "no_repetition"],
        "summary": ["language", "length", "no_repetition"],
    }
    for prompt in prompts:
        assert prompt.checks is None
        for config in prompt.usual_checks:
            made = ready(config, CHECKS)
            assert CHECKS[made.name].complaint(made.options) is None


def test_nothing_of_weight_is_imported() -> None:
    """By the package of checks itself."""
    import subprocess

    code = (
        "import sys, pytest_specgate.checks; "
        "print([n for n in ('jsonschema', 'regex', 'numpy', 'mlx') if n in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"

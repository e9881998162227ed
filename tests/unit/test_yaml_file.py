"""config/yaml_file.py: values that know their line, and nothing but plain data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_specgate.config.spec import ConfigError
from pytest_specgate.config.yaml_file import Located, load, read_utf8


def written(folder: Path, text: str | bytes) -> Path:
    """A file of that content."""
    path = folder / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def root(folder: Path, text: str) -> Located:
    """The root node of that content."""
    found = load(written(folder, text))
    assert found is not None
    return found


def test_values_know_their_lines(tmp_path: Path) -> None:
    """From 1, keys and values apart."""
    node = root(tmp_path, "a: 1\nb:\n  - x\n  - 2.5\nc: {d: null, e: true}\n")
    path = tmp_path / "file.yaml"
    assert node.is_mapping
    assert [(name, key.line, value.line) for name, key, value in node.items()] == [
        ("a", 1, 1),
        ("b", 2, 3),
        ("c", 5, 5),
    ]
    assert node.value() == {"a": 1, "b": ["x", 2.5], "c": {"d": None, "e": True}}
    (_, key, value) = list(node.items())[1]
    assert (key.origin, value.origin) == (f"{path}, line 2", f"{path}, line 3")
    assert str(value.error("wrong")) == f"{path}, line 3: wrong"
    assert not value.is_mapping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1_000", 1000),
        ("a: 0x10", 16),
        ("a: -0.5", -0.5),
        ("a: .inf", float("inf")),
        ("a: yes", True),
        ("a: 'yes'", "yes"),
        ("a: ~", None),
        ("a:", None),
        ("a: |\n  two\n  lines\n", "two\nlines\n"),
        ("a: &x [1]\nb: *x", [1]),
        ("a: [[1], {b: [2]}]", [[1], {"b": [2]}]),
    ],
)
def test_plain_values(tmp_path: Path, text: str, value: object) -> None:
    """As YAML 1.1 reads them."""
    assert repr(root(tmp_path, text).value()["a"]) == repr(value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "~", "\ufeff"])
def test_a_file_that_holds_nothing(tmp_path: Path, text: str) -> None:
    """None, not an empty mapping."""
    assert load(written(tmp_path, text)) is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice (first on line 1)"),
        ("a: {b: 1,\n b: 2}", 2, "'b' is given twice (first on line 1)"),
        ("1: x", 1, "keys must be text, found 1: put it in quotes"),
        ("a: 1\nyes: x", 2, "keys must be text, found true, a truth value: put it in quotes"),
        ("? [a]\n: 1", 1, "keys must be text, found a list or a mapping"),
        ("a: 1\nb: 2026-09-28", 2, "'2026-09-28' is read as a date by YAML: put it in quotes"),
        ("a: !!python/name:os.system x", 1, "the tag !!python/name:os.system is not allowed: "),
        ("a:\n  - !mine x", 2, "the tag !!!mine is not allowed: "),
        ("a: !!set {x}", 1, "the tag !!set is not allowed: "),
        ("a: !!binary eA==", 1, "the tag !!binary is not allowed: "),
        ("a: !!int x", 1, "'x' cannot be read as int"),
        ("a: !!float x", 1, "'x' cannot be read as float"),
        ("a: !!bool x", 1, "'x' cannot be read as bool"),
        (f"a: {'9' * 5000}", 1, f"'{'9' * 40}' cannot be read as int"),
        ("a: &x [*x]", 1, "an alias that contains itself"),
        ("a: &x {b: *x}", 1, "an alias that contains itself"),
        ("\na: [" + "1, " * 10_000 + "]", 2, "more than 10000 values in one entry"),
    ],
)
def test_what_is_no_plain_value(tmp_path: Path, text: str, line: int, words: str) -> None:
    """File and line are named; nothing was constructed."""
    node = root(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        node.value()
    assert str(caught.value).startswith(f"{tmp_path / 'file.yaml'}, line {line}: {words}")


def test_an_alias_twice_is_no_loop(tmp_path: Path) -> None:
    """It is the same value in two places."""
    assert root(tmp_path, "a: &x {b: 1}\nc: [*x, *x]").value() == {
        "a": {"b": 1},
        "c": [{"b": 1}, {"b": 1}],
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1", 1, "not valid YAML: "),
        ("a: 1\n\tb: 2", 2, "not valid YAML: a tab: YAML allows only spaces for indentation"),
        ("a: 1\nb: *x", 2, "not valid YAML: found undefined alias 'x'"),
        ("a: 1\n b: 2", 2, "not valid YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2", 2, "not valid YAML: but found another document"),
        ("a: 1\nb: \x07", 2, "the character U+0007 is not allowed in YAML"),
    ],
)
def test_what_is_not_yaml(tmp_path: Path, text: str, line: int, words: str) -> None:
    """The line of the mistake."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: {words}")


def test_what_is_nested_beyond_reason(tmp_path: Path) -> None:
    """Two of its own words, no traceback of the parser."""
    path = written(tmp_path, "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: nested too deeply"


def test_text_of_a_file(tmp_path: Path) -> None:
    """Without a byte-order mark, line ends as they are."""
    assert read_utf8(written(tmp_path, b"\xef\xbb\xbfa\r\n\xe6\xb0\xb4")) == "a\r\n水"


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    """The byte and its line."""
    path = written(tmp_path, b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError) as caught:
        read_utf8(path)
    assert str(caught.value) == (
        f"{path}, line 2: byte 0xe9 is not UTF-8 "
        "(allowed: UTF-8 text; save the file in that encoding)"
    )


@pytest.mark.parametrize(
    ("name", "words"), [("none.yaml", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    """What the system says."""
    with pytest.raises(ConfigError) as caught:
        read_utf8(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: cannot be read: {words}"

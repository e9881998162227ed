"""Reads YAML so that every value still knows its line: nothing is constructed but plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .spec import ConfigError, found

_PLAIN = "tag:yaml.org,2002:"
_SCALARS = {_PLAIN + name for name in ("null", "bool", "int", "float", "str")}
_MOST_VALUES = 10_000


@dataclass(frozen=True)
class Located:
    """A YAML node with the file it stands in."""

    path: Path
    node: yaml.Node

    @property
    def line(self) -> int:
        """Line number, from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def origin(self) -> str:
        """File and line, as messages begin."""
        return f"{self.path}, line {self.line}"

    def error(self, message: str) -> ConfigError:
        """An error that names file and line."""
        return ConfigError(f"{self.origin}: {message}")

    @property
    def is_mapping(self) -> bool:
        """The node is a mapping of this file's plain kind."""
        return isinstance(self.node, yaml.MappingNode) and self.node.tag == _PLAIN + "map"

    def items(self) -> Iterator[tuple[str, Located, Located]]:
        """(key, the key's place, the value) of a mapping.

        Raises:
            ConfigError: a key is not text, or is given twice.
        """
        seen: dict[str, int] = {}
        for key_node, value_node in self.node.value:
            key = Located(self.path, key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise key.error("keys must be text, found a list or a mapping")
            name = key.value()
            if not isinstance(name, str):
                raise key.error(f"keys must be text, found {found(name)}: put it in quotes")
            if name in seen:
                raise key.error(f"{name!r} is given twice (first on line {seen[name]})")
            seen[name] = key.line
            yield name, key, Located(self.path, value_node)

    def value(self) -> Any:
        """The node as plain Python data.

        Raises:
            ConfigError: a tag that is not plain data, or more than 10,000 values.
        """
        try:
            return self._value([0], set())
        except RecursionError:
            raise self.error("nested too deeply") from None

    def _value(self, count: list[int], open_nodes: set[int]) -> Any:
        count[0] += 1
        if count[0] > _MOST_VALUES:
            raise self.error(f"more than {_MOST_VALUES} values in one entry")
        node = self.node
        if id(node) in open_nodes:
            raise self.error("an alias that contains itself")
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
            try:
                return _construct(node)
            except (ValueError, OverflowError, KeyError, IndexError, TypeError):
                tag = node.tag.removeprefix(_PLAIN)
                raise self.error(f"{node.value[:40]!r} cannot be read as {tag}") from None
        if isinstance(node, yaml.SequenceNode) and node.tag == _PLAIN + "seq":
            inside = open_nodes | {id(node)}
            return [Located(self.path, n)._value(count, inside) for n in node.value]
        if self.is_mapping:
            inside = open_nodes | {id(node)}
            return {key: place._value(count, inside) for key, _, place in self.items()}
        tag = node.tag.removeprefix(_PLAIN)
        if tag == "timestamp":
            raise self.error(f"{node.value!r} is read as a date by YAML: put it in quotes")
        raise self.error(
            f"the tag !!{tag} is not allowed: only plain values, lists and mappings "
            "(nothing was run)"
        )


def _construct(node: yaml.ScalarNode) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


def read_utf8(path: Path) -> str:
    """The text of a file, without a byte-order mark.

    Raises:
        ConfigError: unreadable, or not UTF-8 (names the byte and its line).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8 "
            "(allowed: UTF-8 text; save the file in that encoding)"
        ) from None


def load(path: Path) -> Located | None:
    """The root node of a YAML file; None when it holds nothing.

    Raises:
        ConfigError: not UTF-8, not YAML, or nested beyond reason; file and line are named.
    """
    content = read_utf8(path)
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = content.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{path}, line {line}: the character U+{ord(content[error.position]):04X} "
            "is not allowed in YAML"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = error.problem or error.context or "not YAML"
        if mark and content[mark.index : mark.index + 1] == "\t":
            problem = "a tab: YAML allows only spaces for indentation"
        raise ConfigError(f"{path}, line {line}: not valid YAML: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None
    if root is None or root.tag == f"{_PLAIN}null":
        return None
    return Located(path, root)

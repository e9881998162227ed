"""Is the output one JSON document, and does it keep to a schema?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from ..config.spec import BasedSpec, Invalid, found, one_of, path_of
from ..config.yaml_file import read_utf8
from .base import Check, CheckFault, Output
from .fences import blocks_in, fenced_option
from .patterns import search

# what may follow a text that was cut, before its brackets are closed
_HALF_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{0,3})?\Z")
_MOST_ERRORS = 100
_WORDS = ("true", "false", "null")
_REST = ("", "null", ":null", '"":null', "0", *(w[i:] for w in _WORDS for i in range(1, len(w))))


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A JSON Schema: where it lies, and its text."""

    path: Path
    text: str


def _schema_option() -> BasedSpec:
    def check(value: Any, base: Path) -> SchemaFile | None:
        if value is None or isinstance(value, SchemaFile):
            return value
        if not isinstance(value, str) or not value.strip():
            raise Invalid(f"must be the path of a JSON Schema, found {found(value)}")
        path = path_of(value, base)
        if not path.is_file():
            raise Invalid(f"no such file: {path}")
        try:
            text = read_utf8(path)
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise Invalid(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{path}: not JSON that can be read: {error}") from None
        if not isinstance(document, dict | bool):
            raise Invalid(f"{path}: a schema is an object, found {found(document)}")
        return SchemaFile(path, text)

    return BasedSpec(check, "a JSON Schema file, null")


def _json(output: Output, options: Mapping[str, Any]) -> str | None:
    text, where, cut = output.text, "", output.cut
    if options["fenced"] is not False:
        inside = blocks_in(text, "json", "jsonc", "json5")
        if len(inside) > 1:
            return f"{len(inside)} fenced blocks where one JSON document is due"
        if inside:
            text, where, cut = inside[0].text, "in the fenced block: ", cut and not inside[0].closed
        elif options["fenced"] is True:
            return "it holds no fenced JSON block"
    try:
        document = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        if cut and options["cut"] == "begins" and begins_document(text):
            return None
        return f"{where}not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return f"{where}not JSON that can be read: {error}"
    if options["schema"] is None:
        return None
    problem = _violation(options["schema"], document)
    return where + problem if problem else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def begins_document(text: str) -> bool:
    """Could this be the beginning of one JSON document?"""
    brackets, in_string, escaped = "", False, False
    for char in text:
        if escaped:
            escaped = False
        elif in_string:
            in_string, escaped = char != '"', char == "\\"
        elif char == '"':
            in_string = True
        elif char in "{[":
            brackets += "}" if char == "{" else "]"
        elif char in "}]":
            brackets = brackets[:-1]
    begun = [text + '"', _HALF_ESCAPE.sub("", text) + '"'] if in_string else [text]
    return any(_parses(one + rest + brackets[::-1]) for one in begun for rest in _REST)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _violation(schema: SchemaFile, document: Any) -> str | None:
    """Where a document leaves the schema, worst first.

    Raises:
        CheckFault: the schema refers to something that is not in it.
        Stalled: a pattern of it was stopped.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        errors = list(islice(_validator(schema.text).iter_errors(document), _MOST_ERRORS))
    except Unresolvable as error:
        raise CheckFault(f"{schema.path}: {error}") from error
    if not errors:
        return None
    worst = best_match(iter(errors))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"at {worst.json_path}: {worst.message[:300]}{more}"


@lru_cache(maxsize=64)
def _validator(text: str) -> Any:
    """The validator of a schema; its patterns cannot hang, and it fetches nothing.

    jsonschema searches with ``re``, which cannot be stopped.
    """
    from jsonschema import validators
    from jsonschema_specifications import REGISTRY

    schema = json.loads(text)
    extend: Any = validators.extend
    usual: Any = validators.validator_for(schema, default=validators.Draft202012Validator)
    ours = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    known = {name: rule for name, rule in ours.items() if name in usual.VALIDATORS}
    return extend(usual, known)(schema, registry=REGISTRY)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and search(pattern, instance) is None:
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, rules: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, dict):
        for pattern, inner in rules.items():
            for name, value in instance.items():
                if search(pattern, name) is not None:
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    extra = [
        name
        for name in instance
        if name not in schema.get("properties", {})
        and not any(search(pattern, name) is not None for pattern in patterns)
    ]
    if isinstance(inner, dict):
        for name in extra:
            yield from validator.descend(instance[name], inner, path=name)
    elif not inner and extra:
        names = ", ".join(map(repr, extra))
        yield ValidationError(f"unexpected: {names}"[:300])


def _complaint(options: Mapping[str, Any]) -> str | None:
    """Why its schema cannot be used."""
    schema = options["schema"]
    if schema is None:
        return None
    missing = [name for name in ("jsonschema", "referencing") if find_spec(name) is None]
    if missing:
        return "a schema takes the package jsonschema: pip install 'pytest-specgate[quality]'"
    return _schema_problem(schema)


@lru_cache(maxsize=64)
def _schema_problem(schema: SchemaFile) -> str | None:
    from jsonschema.exceptions import SchemaError

    document = json.loads(schema.text)
    try:
        validator = _validator(schema.text)
        type(validator).check_schema(document)
    except SchemaError as error:
        return f"{schema.path} is no JSON Schema: at {error.json_path}: {error.message[:200]}"
    except (RecursionError, ValueError) as error:
        return f"{schema.path} is no JSON Schema that can be read: {error}"[:300]
    keywords = list(_keywords(document))
    names = {name for name, _ in keywords}
    if {"unevaluatedProperties", "patternProperties"} <= names:
        return (
            f"{schema.path}: unevaluatedProperties beside patternProperties is not taken: its "
            "patterns could not be stopped"
        )
    ids = {value for name, value in keywords if name in ("$id", "id") and isinstance(value, str)}
    for name, value in keywords:
        if name in ("$ref", "$dynamicRef") and isinstance(value, str):
            place = value.partition("#")[0]
            if place and place not in ids and "json-schema.org" not in place:
                return (
                    f"{schema.path}: {name} {value[:100]!r} leads out of the file, and nothing is "
                    "fetched: put what it names under $defs"
                )
    return _loose_end(validator, document, keywords, schema) if len(ids) < 2 else None


def _loose_end(validator: Any, document: Any, keywords: Any, schema: SchemaFile) -> str | None:
    from referencing.exceptions import Unresolvable

    for name, value in keywords:
        if name == "$ref" and isinstance(value, str):
            try:
                validator._resolver.lookup(value)
            except Unresolvable:
                return f"{schema.path}: {name} {value[:100]!r} names nothing in the file"
    return None


def _keywords(part: Any) -> Iterator[tuple[str, Any]]:
    """(keyword, value) of a schema and all that is inside it, but for plain values."""
    stack = [part]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield from part.items()
            stack += [v for name, v in part.items() if name not in ("const", "enum", "examples")]
        elif isinstance(part, list):
            stack += part


JSON = Check(
    "json",
    _json,
    {"schema": _schema_option(), "fenced": fenced_option(), "cut": one_of("fail", "begins")},
    {"schema": None, "fenced": "either", "cut": "fail"},
    short="schema",
    complaint=_complaint,
)

"""Prompt files: JSON Lines, ``{"id", "kind", "prompt", "max_tokens", "checks"}`` a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .checks import configs, listed
from .keys import MAX_TOKENS
from .plan import Prompt
from .spec import ConfigError, Invalid, found, nearest, unique_keys
from .yaml_file import read_utf8

_FIELDS = ("id", "kind", "prompt", "max_tokens", "checks")
_LONGEST_ID = 200


def is_unicode(text: str) -> bool:
    """No half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text_field(entry: dict[str, Any], name: str) -> str:
    value = entry[name]
    if not isinstance(value, str):
        raise Invalid(f"{name} must be text, found {found(value)}")
    if not (value if name == "prompt" else value.strip()):
        raise Invalid(f"{name} is empty")
    if not is_unicode(value):
        raise Invalid(f"{name} is not valid Unicode text (half of a surrogate pair)")
    return value


def prompt_of(entry: Any, origin: str = "a prompt", base: Path = Path()) -> Prompt:
    """The prompt that one JSON object describes.

    Args:
        entry: the object.
        origin: its place, for what is found wrong with its checks later.
        base: the folder that relative paths in its checks start from.

    Raises:
        Invalid: names the field, what was found and what is allowed.
    """
    if not isinstance(entry, dict):
        raise Invalid(f"must be an object with {', '.join(_FIELDS)}; found {found(entry)}")
    for key in entry:
        if key not in _FIELDS:
            raise Invalid(
                f"unknown field {key!r}{nearest(key, _FIELDS)} (allowed: {', '.join(_FIELDS)})"
            )
    for key in ("id", "prompt"):
        if key not in entry:
            raise Invalid(f"{key} is missing (needed: id and prompt)")
    name = _text_field(entry, "id")
    if len(name) > _LONGEST_ID or not name.isprintable() or "::" in name:
        raise Invalid(
            f"id must be at most {_LONGEST_ID} printable characters without '::', "
            f"found {name[:40]!r}"
        )
    max_tokens = entry.get("max_tokens")
    if max_tokens is not None:
        try:
            max_tokens = MAX_TOKENS(max_tokens)
        except Invalid as error:
            raise Invalid(f"max_tokens {error}") from None
    kind = _text_field(entry, "kind") if "kind" in entry else "other"
    text, checks = _text_field(entry, "prompt"), entry.get("checks")
    if checks is not None:
        try:
            checks = listed(checks, f"{origin} ({name})", base)
        except Invalid as error:
            raise Invalid(f"checks {error}") from None
    return Prompt(name, text, kind, max_tokens, checks)


def checked_prompts(prompts: Iterable[Any]) -> tuple[Prompt, ...]:
    """Prompts that code made, checked like the lines of a file.

    Raises:
        Invalid: one is no Prompt, is not allowed, or repeats an id.
    """
    checked: list[Prompt] = []
    for prompt in prompts:
        if not isinstance(prompt, Prompt):
            raise Invalid(f"must be Prompts, found {found(prompt)}")
        entry = {"id": prompt.id, "prompt": prompt.text, "kind": prompt.kind}
        plain = prompt_of({**entry, "max_tokens": prompt.max_tokens})
        checks = prompt.checks
        if checks is not None:
            checks = configs(checks, f"the prompt {prompt.id!r}")
        usual = configs(prompt.usual_checks, f"the prompt {prompt.id!r}")
        checked.append(replace(plain, checks=checks, usual_checks=usual))
        if sum(known.id == prompt.id for known in checked) > 1:
            raise Invalid(f"id {prompt.id!r} is given twice")
    return tuple(checked)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """All prompts of a file, in order; blank lines, CRLF and a byte-order mark are fine.

    Raises:
        ConfigError: names file, line, field and what is allowed; also for a file with no prompt.
    """
    prompts: list[Prompt] = []
    first_line: dict[str, int] = {}
    # not splitlines(): that would also break at U+2028, which JSON allows inside a text
    for number, line in enumerate(read_utf8(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, object_pairs_hook=unique_keys)
            prompt = prompt_of(entry, f"{path}, line {number}", path.parent)
        except json.JSONDecodeError as error:
            raise ConfigError(
                f"{path}, line {number}: not JSON at column {error.colno}: {error.msg}"
            ) from None
        except Invalid as error:
            raise ConfigError(f"{path}, line {number}: {error}") from None
        except (RecursionError, ValueError) as error:
            raise ConfigError(
                f"{path}, line {number}: not JSON that can be read: {error}"
            ) from None
        if prompt.id in first_line:
            raise ConfigError(
                f"{path}, line {number}: id {prompt.id!r} is already on line "
                f"{first_line[prompt.id]}"
            )
        first_line[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise ConfigError(
            f"{path}: no prompts in the file (needed: at least one line such as "
            '{"id": "a", "kind": "python", "prompt": "Write ...", "max_tokens": 128})'
        )
    return tuple(prompts)

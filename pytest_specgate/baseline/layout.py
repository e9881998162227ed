"""The text of a baseline: JSON laid out for git, with the digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGEST = ',\n "digest": "'


def laid_out(document: Mapping[str, Any]) -> str:
    """The parts in this order, sorted by key within, a list a line, the digest last.

    Raises:
        ValueError, TypeError: it holds what is no plain JSON value.
    """
    content = {key: _sorted(part) for key, part in document.items()}
    return _lines({**content, "digest": _digest(content)}, "") + "\n"


def taken_up(text: str) -> tuple[Any, bool]:
    """The document, and whether its content is that of its digest, however it is laid out.

    Raises:
        ValueError, RecursionError: not JSON.
    """
    content, digest = _compact(text)
    if hashlib.sha256(content.encode()).hexdigest() == digest:
        return {**_parsed(content), "digest": digest}, True
    document = _parsed(text)
    whole = isinstance(document, dict) and document.get("digest") == _digest(document)
    return document, whole


def _digest(document: Mapping[str, Any]) -> str:
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _compact(text: str) -> tuple[str, str]:
    """What ``_digest`` is taken of, and the digest, where the text is as ``laid_out`` leaves it.

    Of any other text it is something else that has another digest. To encode a large document again
    takes longer than all else that is done to read it.
    """
    if not text.isascii():
        return "", ""
    head, _, digest = text.rpartition(_DIGEST)
    parts = sorted(head.removeprefix('{\n "').split(',\n "'))
    lines = ('{"' + ',\n"'.join(parts) + "}").split("\n")
    content = "".join([line.lstrip(" ").replace('": ', '":', 1) for line in lines])
    return content, digest.partition('"')[0]


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return value


def _lines(value: Any, indent: str) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    inner = indent + " "
    entries = (f"{inner}{json.dumps(key)}: {_lines(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"

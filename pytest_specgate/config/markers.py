"""Marker arguments, checked at collection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..gates.base import Gate
from .gates_file import gate_options
from .keys import MARKER_INPUTS, SECTIONS
from .layers import Key, Layer, Setting
from .plan import GateConfig, Prompt
from .prompt_file import checked_prompts
from .spec import ConfigError, Invalid, found, nearest

INPUTS = "spec_inputs"
_INPUT_NAMES = ("prompts", *MARKER_INPUTS)


def item_origin(item: pytest.Item, marker: str) -> str:
    """``test_x.py:12: test_pair: spec_speedup``: where a wrong marker is found."""
    path, line, name = item.reportinfo()
    where = f"{path}:{line + 1}" if line is not None else str(path)
    return f"{where}: {name}: {marker}"


def gate_markers(item: pytest.Item, gates: Mapping[str, Gate]) -> dict[str, pytest.Mark]:
    """Gate name -> its closest marker on the item, in the order of the gates."""
    found_marks = {name: item.get_closest_marker(f"spec_{name}") for name in gates}
    return {name: mark for name, mark in found_marks.items() if mark is not None}


def _keywords(mark: pytest.Mark, origin: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    if mark.args:
        raise ConfigError(
            f"{origin} takes no positional argument, found {found(mark.args[0])} "
            f"(allowed: {', '.join(f'{name}=' for name in allowed)})"
        )
    for name in mark.kwargs:
        if name not in allowed:
            raise ConfigError(
                f"{origin} has no argument {name!r}{nearest(name, allowed)} "
                f"(allowed: {', '.join(allowed)})"
            )
    return dict(mark.kwargs)


def gate_configs(
    item: pytest.Item, gates: Mapping[str, Gate], base: Mapping[str, Mapping[str, Any]]
) -> tuple[GateConfig, ...]:
    """The gates that an item's markers ask for.

    Args:
        item: a collected test.
        gates: the registry.
        base: gate -> options of the gates file, which a marker's arguments win over.

    Raises:
        ConfigError: a wrong argument; names file, line, argument and the allowed ones.
    """
    configs = []
    for name, mark in gate_markers(item, gates).items():
        origin = item_origin(item, f"spec_{name}")
        gate = gates[name]
        given = _keywords(mark, origin, tuple(gate.options))
        folder = item.config.rootpath
        options = gate_options(gate, given, origin, base.get(name, {}), folder)
        configs.append(GateConfig(name, options, origin))
    return tuple(configs)


def _prompts(value: Any) -> str | tuple[Prompt, ...]:
    if isinstance(value, str) and value.strip():
        return value
    why = f"found {found(value)}"
    if isinstance(value, list | tuple) and value:
        try:
            return checked_prompts(
                Prompt(f"prompt-{number}", entry) if isinstance(entry, str) else entry
                for number, entry in enumerate(value, 1)
            )
        except Invalid as error:
            why = str(error)
    raise Invalid(
        "must be core, smoke, a prompt file, or a list of texts or of Prompts with different ids; "
        f"{why}"
    )


def inputs_layer(item: pytest.Item, rootdir: Path) -> Layer:
    """The settings of the markers ``spec_inputs``; the closest one wins for each argument.

    Raises:
        ConfigError: a wrong argument.
    """
    layer: dict[Key, Setting] = {}
    for mark in item.iter_markers(INPUTS):
        origin = item_origin(item, INPUTS)
        for name, value in _keywords(mark, origin, _INPUT_NAMES).items():
            if name == "prompts":
                try:
                    setting = Setting(_prompts(value), origin, rootdir)
                except Invalid as error:
                    raise ConfigError(f"{origin}: prompts {error}") from None
                layer.setdefault(("prompts", "set"), setting)
                continue
            section, key = MARKER_INPUTS[name]
            try:
                checked_value = SECTIONS[section][key](value)
            except Invalid as error:
                raise ConfigError(f"{origin}: {name} {error}") from None
            layer.setdefault((section, key), Setting(checked_value, origin, rootdir))
    return layer

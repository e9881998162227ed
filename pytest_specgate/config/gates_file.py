"""Reads ``gates.yaml`` into a layer of settings and a list of gates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..gates.base import Gate
from .keys import SECTIONS, VERSION
from .layers import Key, Setting, checked
from .plan import GateConfig
from .spec import ConfigError, Invalid, found, nearest
from .yaml_file import Located, load

_TOP = ("version", *SECTIONS, "gates")
_MINIMAL = "a minimal one is:\n  version: 1\n  gates: {parity: {}, speedup: {min: 1.15}}"


def default_gates_file() -> Path:
    """The gates that are judged where a project has no gates file.

    Installed, it lies in the package; in a source checkout the repository's own file is used.
    """
    packaged = Path(__file__).parents[1] / "gates.yaml"
    return packaged if packaged.exists() else Path(__file__).parents[2] / "gates.yaml"


def gate_options(
    gate: Gate, given: Mapping[str, Any], origin: str, base: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """All options of a gate: the given ones checked, the rest from base, then from its defaults.

    Args:
        gate: that has them.
        given: option -> value.
        origin: their place.
        base: options of a place below.
        folder: that relative paths start from.

    Raises:
        ConfigError: an option the gate does not have, or a value it does not take.
    """
    options = {**gate.defaults, **base}
    for key, value in given.items():
        if key not in gate.options:
            raise ConfigError(
                f"{origin}: {gate.name!r} has no option {key!r}{nearest(key, gate.options)} "
                f"(allowed: {', '.join(gate.options)})"
            )
        try:
            options[key] = gate.options[key].at(folder)(value)
        except Invalid as error:
            raise ConfigError(f"{origin}: {gate.name}.{key} {error}") from None
    return options


def read_gates_file(
    path: Path, gates: Mapping[str, Gate]
) -> tuple[dict[Key, Setting], tuple[GateConfig, ...] | None]:
    """Settings and gates of one file; None for the gates where it names none.

    Raises:
        ConfigError: names file, line, key, what was found, what is allowed, and the nearest name.
    """
    root = load(path)
    if root is None:
        raise ConfigError(f"{path}: the file is empty; {_MINIMAL}")
    if not root.is_mapping:
        root.value()  # a tag that is not allowed has its own message
        raise root.error(f"the file must be a mapping of keys to values; {_MINIMAL}")
    entries: dict[str, Located] = {}
    for name, key, value in root.items():
        if name not in _TOP:
            raise key.error(
                f"unknown key {name!r}{nearest(name, _TOP)} (allowed: {', '.join(_TOP)})"
            )
        entries[name] = value
    if "version" not in entries:
        raise ConfigError(f"{path}: version is missing: add 'version: {VERSION}'")
    _check_version(entries["version"])
    layer: dict[Key, Setting] = {}
    for section, specs in SECTIONS.items():
        if section not in entries:
            continue
        for name, key, value in _section(entries[section], section):
            if name not in specs:
                raise key.error(
                    f"{section!r} has no key {name!r}{nearest(name, specs)} "
                    f"(allowed: {', '.join(specs)})"
                )
            plain = value.value()
            setting = checked(section, name, plain, value.origin, path.parent)
            if plain is not None:  # null sets nothing: a place below may
                layer[section, name] = setting
    if ("prompts", "builtin") in layer and ("prompts", "file") in layer:
        raise layer["prompts", "file"].error("give prompts.builtin or prompts.file, not both")
    if "gates" not in entries:
        return layer, None
    return layer, _gates(entries["gates"], gates, path.parent)


def _check_version(value: Located) -> None:
    version = value.value()
    if isinstance(version, bool) or not isinstance(version, int):
        raise value.error(f"version must be {VERSION}, found {found(version)}")
    if version > VERSION:
        raise value.error(f"version {found(version)} is newer than this plugin knows ({VERSION})")
    if version < VERSION:
        raise value.error(f"version must be {VERSION}, found {found(version)}")


def _section(place: Located, name: str) -> list[tuple[str, Located, Located]]:
    if not place.is_mapping:
        raise place.error(f"{name} must be a mapping, found {found(place.value())}")
    return list(place.items())


def _gates(place: Located, gates: Mapping[str, Gate], folder: Path) -> tuple[GateConfig, ...]:
    configs = []
    for name, key, value in _section(place, "gates"):
        if name not in gates:
            raise key.error(f"no gate {name!r}{nearest(name, gates)} (allowed: {', '.join(gates)})")
        gate = gates[name]
        options: dict[str, Any] = dict(gate.defaults)
        if not (value.is_mapping or value.value() is None):
            raise value.error(
                f"gates.{name} must be a mapping of options (or {{}}), found {found(value.value())}"
            )
        for option, option_key, option_value in value.items() if value.is_mapping else ():
            given = {option: option_value.value()}
            options = gate_options(gate, given, option_key.origin, options, folder)
        configs.append(GateConfig(name, options, key.origin))
    if not configs:
        raise place.error(f"gates is empty: nothing would be judged (allowed: {', '.join(gates)})")
    return tuple(configs)

"""Settings from several places, merged by precedence into what is measured.

Command line > marker > a prompt's own line > gates file > ini > default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .keys import SECTIONS
from .plan import Decoding, Inputs, Measure, ModelRef, Prompt
from .prompt_file import read_prompts
from .spec import ConfigError, Invalid, nearest, path_of


@dataclass(frozen=True, slots=True)
class Setting:
    """A checked value, where it was set, and the folder its relative paths start from."""

    value: Any
    origin: str
    base: Path

    def error(self, message: str) -> ConfigError:
        """An error that begins with the place of this setting."""
        return ConfigError(f"{self.origin}: {message}")


Key = tuple[str, str]
Layer = Mapping[Key, Setting]
PromptSource = Callable[[str], Sequence[Prompt] | None]

# key of the section sweep -> field of Inputs
SWEPT = {"num_draft_tokens": "sweep", "objective": "objective", "per_kind": "per_kind"}

DECODING_FIELDS = tuple(field.name for field in fields(Decoding))


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one plan; None where a place says nothing."""

    command_line: Layer
    marker: Layer
    file: Layer
    ini: Layer

    def find(self, section: str, key: str) -> Setting | None:
        """The setting that wins."""
        for layer in (self.command_line, self.marker, self.file, self.ini):
            if (section, key) in layer:
                return layer[section, key]
        return None

    def fixed_max_tokens(self) -> int | None:
        """max_tokens where it beats a prompt's own line."""
        for layer in (self.command_line, self.marker):
            if ("decoding", "max_tokens") in layer:
                return int(layer["decoding", "max_tokens"].value)
        return None


def checked(section: str, key: str, value: Any, origin: str, base: Path) -> Setting:
    """One setting of SECTIONS, checked.

    Raises:
        ConfigError: names the origin, the key, what was found and what is allowed.
    """
    try:
        return Setting(SECTIONS[section][key](value), origin, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {section}.{key} {error}") from None


def _models(layers: Layers, role: str) -> tuple[ModelRef, ...]:
    """The models of a role: at most one target, and the draft before its rivals."""
    setting = layers.find("pair", role)
    if setting is None or setting.value is None:
        return ()
    if isinstance(setting.value, ModelRef):
        return (setting.value,)
    names = (setting.value,) if isinstance(setting.value, str) else setting.value
    try:
        models = tuple(ModelRef.parse(name, setting.base) for name in names)
    except Invalid as error:
        raise setting.error(f"{role}: {error}") from None
    if len({model.label for model in models}) != len(models):
        raise setting.error(f"{role}: must not repeat a model")
    return models


def _path(setting: Setting, text: str) -> Path:
    try:
        return path_of(text, setting.base)
    except Invalid as error:
        raise setting.error(f"prompts: {error}") from None


def _named_prompts(setting: Setting, name: str, source: PromptSource) -> tuple[Prompt, ...]:
    prompts = source(name)
    if prompts is None:
        path = _path(setting, name)
        if not path.is_file():
            raise setting.error(
                f"prompt set {name!r} not found: no built-in set of that name "
                f"(core, smoke) and no file {path}"
            )
        return read_prompts(path)
    return tuple(prompts)


def _prompts(layers: Layers, source: PromptSource) -> tuple[Prompt, ...]:
    """The prompts of the first layer that names some, cut to the wanted kinds.

    A marker's kinds hold for any set; those of a file or ini key for the set named there or below.
    """
    kinds: Setting | None = layers.marker.get(("prompts", "kinds"))
    prompts: tuple[Prompt, ...] | None = None
    where: Setting | None = None
    for layer in (layers.command_line, layers.marker, layers.file, layers.ini):
        kinds = kinds or layer.get(("prompts", "kinds"))
        if (named := layer.get(("prompts", "set"))) is not None:
            where = named
            if isinstance(named.value, str):
                prompts = _named_prompts(named, named.value, source)
            else:
                prompts = tuple(named.value)
        elif (builtin := layer.get(("prompts", "builtin"))) is not None:
            where, found = builtin, source(builtin.value)
            if found is None:
                raise builtin.error(
                    f"prompts.builtin: no set named {builtin.value!r}"
                    f"{nearest(builtin.value, ('core', 'smoke'))} "
                    "(allowed: core, smoke, or a set that a plugin offers)"
                )
            prompts = tuple(found)
        elif (file := layer.get(("prompts", "file"))) is not None:
            where, path = file, _path(file, file.value)
            if not path.is_file():
                raise file.error(f"prompts.file: {file.value} not found (looked for {path})")
            prompts = read_prompts(path)
        if prompts is not None:
            break
    if prompts is None:
        prompts = tuple(source("core") or ())
    if kinds is not None:
        present = sorted({prompt.kind for prompt in prompts})
        for kind in kinds.value:
            if kind not in present:
                raise kinds.error(
                    f"prompts.kinds: no prompt is of kind {kind!r}{nearest(kind, present)} "
                    f"(present: {', '.join(present)})"
                )
        prompts = tuple(prompt for prompt in prompts if prompt.kind in kinds.value)
    if not prompts:
        origin = where.origin if where else "prompts"
        raise ConfigError(f"{origin}: the prompt set is empty: there is nothing to gate")
    return prompts


def _measure(layers: Layers) -> Measure:
    values = {
        key: setting.value
        for key in SECTIONS["measure"]
        if (setting := layers.find("measure", key)) is not None
    }
    low, high = layers.find("measure", "min_rounds"), layers.find("measure", "max_rounds")
    measure = Measure(**values)
    if measure.max_rounds < measure.min_rounds:
        if low is not None and high is not None:
            raise high.error(
                f"max_rounds ({measure.max_rounds}) is below min_rounds ({measure.min_rounds})"
            )
        # only one was set: the other's default gives way
        measure = replace(
            measure,
            **({"max_rounds": measure.min_rounds} if high is None else {"min_rounds": high.value}),
        )
    return measure


def resolve(
    layers: Layers, source: PromptSource, *, engine: str, trust_remote_code: bool
) -> tuple[Inputs, Measure]:
    """What is measured, from all layers.

    Raises:
        ConfigError: a model or prompt file that is not there, rounds that cross, an empty set.
    """
    given = {
        key: setting.value
        for key in DECODING_FIELDS
        if (setting := layers.find("decoding", key)) is not None
    }
    decoding = Decoding(**given)
    fixed = layers.fixed_max_tokens()
    prompts = tuple(
        replace(prompt, max_tokens=fixed or prompt.max_tokens or decoding.max_tokens)
        for prompt in _prompts(layers, source)
    )
    drafts = _models(layers, "draft")
    inputs = Inputs(
        target=next(iter(_models(layers, "target")), None),
        draft=next(iter(drafts), None),
        rivals=drafts[1:],
        prompts=prompts,
        decoding=decoding,
        engine=engine,
        trust_remote_code=trust_remote_code,
    )
    if (tokens := layers.find("decoding", "num_draft_tokens")) is not None:
        inputs = replace(inputs, num_draft_tokens=tokens.value)
    for key, name in SWEPT.items():
        if (setting := layers.find("sweep", key)) is not None:
            inputs = replace(inputs, **{name: setting.value})
    if (template := layers.find("decoding", "chat_template_args")) is not None:
        inputs = replace(inputs, chat_template_args=template.value)
    return inputs, _measure(layers)

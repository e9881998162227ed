"""Lists of checks, as prompt files, gates files and markers give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .plan import CheckConfig, Prompt
from .spec import BasedSpec, ConfigError, Invalid, found, nearest

if TYPE_CHECKING:
    from ..checks import Check

_FORM = 'must be a list of checks such as [{"json": {"schema": "order.schema.json"}}, "finish"]'


def listed(value: Any, origin: str, base: Path) -> tuple[CheckConfig, ...]:
    """The checks of a list whose entries are a name, or one name with its options.

    Names and options are looked at later, when all checks are known.

    Raises:
        Invalid: no such list.
    """
    if not isinstance(value, list | tuple):
        raise Invalid(f"{_FORM}, found {found(value)}")
    made = []
    for entry in value:
        if isinstance(entry, str):
            made.append(CheckConfig(entry, None, origin, base))
        elif isinstance(entry, dict) and len(entry) == 1:
            ((name, options),) = entry.items()
            made.append(CheckConfig(name, options, origin, base))
        else:
            several = f" of {len(entry)} keys" if isinstance(entry, dict) else ""
            raise Invalid(f"{_FORM}, found {found(entry)}{several} among its entries")
    return tuple(made)


def configs(value: Any, origin: str) -> tuple[CheckConfig, ...]:
    """The checks that code gives a prompt; where they say no place, this one.

    Raises:
        Invalid: something else than CheckConfigs.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(c, CheckConfig) for c in value):
        raise Invalid(f"{origin}: checks must be CheckConfigs, found {found(value)}")
    return tuple(replace(config, origin=config.origin or origin) for config in value)


def ready(config: CheckConfig, checks: Mapping[str, Check]) -> CheckConfig:
    """The same with every option checked.

    Raises:
        Invalid: no check of that name, or an option it does not take.
    """
    name = config.name
    if not isinstance(name, str) or name not in checks:
        raise Invalid(f"no check {name!r}{nearest(name, checks)} (allowed: {', '.join(checks)})")
    return replace(config, options=checks[name].checked(config.options, config.base))


def ready_prompts(prompts: Iterable[Prompt], checks: Mapping[str, Check]) -> tuple[Prompt, ...]:
    """The same prompts, every option of their checks checked.

    Raises:
        ConfigError: names file, line, prompt, check and what is allowed.
    """

    def of(configs: tuple[CheckConfig, ...]) -> tuple[CheckConfig, ...]:
        made = []
        for config in configs:
            try:
                made.append(ready(config, checks))
            except Invalid as error:
                raise ConfigError(f"{config.origin}: checks: {error}") from None
        return tuple(made)

    return tuple(
        replace(
            prompt,
            checks=None if prompt.checks is None else of(prompt.checks),
            usual_checks=of(prompt.usual_checks),
        )
        if prompt.checks or prompt.usual_checks
        else prompt
        for prompt in prompts
    )


def by_kind(checks: Mapping[str, Check]) -> BasedSpec:
    """A mapping of prompt kinds to lists of checks."""

    def check(value: Any, base: Path) -> dict[str, tuple[CheckConfig, ...]]:
        if not isinstance(value, dict) or not all(isinstance(kind, str) for kind in value):
            raise Invalid(f"must be a mapping of prompt kinds to checks, found {found(value)}")
        made = {}
        for kind, entries in value.items():
            try:
                made[kind] = tuple(ready(c, checks) for c in listed(entries, kind, base))
            except Invalid as error:
                raise Invalid(f"of the kind {kind!r}: {error}") from None
        return made

    return BasedSpec(check, 'prompt kinds and their checks, such as {json: ["json", "finish"]}')

"""Checks of a project's own: functions with ``@specgate_check`` in a conftest or plugin."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from ..config.spec import ConfigError, Spec
from .base import Check, Output

_MARK = "_specgate_check"

Function = TypeVar("Function", bound=Callable[..., Any])


def specgate_check(name: str) -> Callable[[Function], Function]:
    """Make a function a check: it gets an ``Output`` and says what is wrong, or None.

    An assertion that fails in it says it as well. Its further parameters are the options that a
    prompt's line may give; those without a default must be given. It must stand in a conftest that
    pytest reads first (the one in the rootdir, or beside a path on the command line) or in a
    plugin.

    Args:
        name: that prompts and gates files give.
    """

    def mark(function: Function) -> Function:
        setattr(function, _MARK, name)
        return function

    return mark


def marked_checks(plugins: Iterable[object]) -> dict[str, Check]:
    """The checks that these conftests and plugins mark, by name.

    Raises:
        ConfigError: a name that is none, or is given twice; a function that takes no output.
    """
    found: dict[str, FunctionType] = {}
    for plugin in plugins:
        values = vars(plugin).values() if isinstance(plugin, ModuleType) else ()
        for function in values:
            if not isinstance(function, FunctionType) or _MARK not in vars(function):
                continue
            name = vars(function)[_MARK]
            if not isinstance(name, str) or not name.isidentifier():
                raise ConfigError(
                    f"{_place(function)}: @specgate_check takes the name of the check, such as "
                    f'"total_adds_up", found {name!r}'[:300]
                )
            if (other := found.setdefault(name, function)) is not function:
                raise ConfigError(
                    f"{_place(function)}: the check {name!r} is also made in {_place(other)}: "
                    "give each its own name"
                )
    return {name: _check(name, function) for name, function in found.items()}


def _place(function: FunctionType) -> str:
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


def _check(name: str, function: FunctionType) -> Check:
    first, *rest = inspect.signature(function).parameters.values() or (None,)
    named = [p for p in rest if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise ConfigError(f"{_place(function)}: the check {name!r} must take an output")

    def run(output: Output, options: Mapping[str, Any]) -> str | None:
        said: str | None = function(output, **options)
        return said

    anything = Spec(lambda value: value, "any value")
    return Check(
        name,
        run,
        {p.name: anything for p in named},
        {p.name: p.default for p in named if p.default is not p.empty},
        short=named[0].name if named else None,
    )

"""Puts outputs through checks, each distinct output once, and stops what would hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..config.plan import CheckConfig
from .base import Check, CheckFault, Output, Stalled, message_of

MOST_STALLS = 3  # then a check is not tried on further outputs


@dataclass(frozen=True, slots=True)
class Problem:
    """What one check says of one output."""

    check: str
    message: str


class Examiner:
    """The checks of one verdict; outputs that are equal are checked once."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        """Nothing is checked yet.

        Args:
            checks: by name, all those that a config may name.
        """
        self._checks = checks
        self._known: dict[tuple[int, Output], str | None] = {}
        self._stalls: Counter[int] = Counter()

    def problems(self, configs: Sequence[CheckConfig], output: Output) -> tuple[Problem, ...]:
        """What these checks find wrong, in their order.

        Raises:
            CheckFault: a check is at fault; names it.
        """
        said = ((config.name, self._message(config, output)) for config in configs)
        return tuple(Problem(name, message) for name, message in said if message is not None)

    def _message(self, config: CheckConfig, output: Output) -> str | None:
        key = id(config), output
        if key not in self._known:
            self._known[key] = self._fresh(config, output)
        return self._known[key]

    def _fresh(self, config: CheckConfig, output: Output) -> str | None:
        if self._stalls[id(config)] >= MOST_STALLS:
            return f"not tried: it was stopped on {MOST_STALLS} outputs before"
        try:
            return message_of(self._checks[config.name], output, config.options)
        except Stalled as stalled:
            self._stalls[id(config)] += 1
            return str(stalled)
        except CheckFault as fault:
            raise CheckFault(
                f"the check {config.name!r} is at fault, at {output.prompt_id}: {fault}"
            ) from fault

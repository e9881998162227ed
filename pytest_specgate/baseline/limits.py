"""How far a figure may change for the worse: ``5%``, ``-0.03``, as pytest-benchmark has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from ..config.spec import Invalid, Spec, found, number

Worse = Literal["+", "-"]
_FORM = re.compile(r"([+-]?)(\d+(?:\.\d+)?|\.\d+)\s*(%?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest change for the worse.

    Attributes:
        amount: a share of the stored figure where it is relative, else in the figure's own unit.
        relative: written with a per cent sign.
        worse: which way is worse.
    """

    amount: float
    relative: bool
    worse: Worse

    @property
    def text(self) -> str:
        """As it is written."""
        amount = f"{self.amount * 100:g}%" if self.relative else f"{self.amount:g}"
        return f"{self.worse}{amount}"

    def worst(self, then: float) -> float:
        """The worst figure that is let through."""
        change = self.amount * then if self.relative else self.amount
        return then - change if self.worse == "-" else then + change


def limit(worse: Worse) -> Spec:
    """A change for the worse; the sign may be left out, but must not say the opposite."""
    allowed = f"such as {worse}5% or {worse}0.1, or null for no limit"

    def check(value: Any) -> Limit | None:
        if value is None or isinstance(value, Limit):
            return value
        if not isinstance(value, str):
            try:
                value = f"{number().check(value):.12f}"
            except Invalid:
                raise Invalid(f"must be a change, found {found(value)}") from None
        form = _FORM.fullmatch(value.strip())
        if form is None:
            raise Invalid(f"must be a change, found {found(value)}")
        sign, amount, percent = form.groups()
        if sign and sign != worse:
            raise Invalid(
                f"must be a change for the worse, which is {worse!r}, found {found(value)}"
            )
        size = float(amount)
        if size > (1000 if percent else 1e9):
            raise Invalid(f"must be a change, found {found(value)}")
        return Limit(size / 100 if percent else size, bool(percent), worse)

    return Spec(check, allowed)

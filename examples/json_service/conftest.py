"""A check of this project's own, by the name that gates.yaml gives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_specgate import specgate_check

if TYPE_CHECKING:
    from pytest_specgate import Output


@specgate_check("total_adds_up")
def total_adds_up(output: Output, tolerance: float = 0.01) -> str | None:
    """What a schema cannot say; None where there is nothing to say."""
    try:
        order = json.loads(output.text)
        due = sum(item["quantity"] * item["price"] for item in order["items"])
        total = float(order["total"])
    except (ValueError, TypeError, KeyError):
        return None  # the check json says it
    if abs(total - due) > tolerance:
        return f"the total is {total:g}, the items add up to {due:g}"
    return None

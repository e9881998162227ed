"""The figures of a verdict as properties, which pytest writes into JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator

from ..gates.base import Verdict


def properties(verdict: Verdict, prefix: str = "specgate") -> Iterator[tuple[str, object]]:
    """(name, value) pairs for ``item.user_properties``."""
    yield f"{prefix}_gate", verdict.gate
    yield f"{prefix}_subject", verdict.subject
    yield f"{prefix}_status", verdict.status
    yield f"{prefix}_observed", verdict.observed
    yield f"{prefix}_limit", verdict.limit
    yield f"{prefix}_unit", verdict.unit
    yield f"{prefix}_samples", verdict.samples
    if verdict.spread:
        yield f"{prefix}_spread", f"{verdict.spread[0]:.6g}..{verdict.spread[1]:.6g}"
    yield f"{prefix}_reason", verdict.reason

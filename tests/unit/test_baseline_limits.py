"""Limits of a baseline, as they are written."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_specgate.baseline.limits import Limit, limit
from pytest_specgate.baseline.names import is_name
from pytest_specgate.config.spec import Invalid


@pytest.mark.parametrize(
    ("worse", "value", "text", "worst"),
    [
        ("-", "-5%", "-5%", 1.9),
        ("-", "5%", "-5%", 1.9),
        ("-", " 5 % ", "-5%", 1.9),
        ("-", "2.5%", "-2.5%", 1.95),
        ("-", -0.03, "-0.03", 1.97),
        ("-", 0.03, "-0.03", 1.97),
        ("-", "0.1", "-0.1", 1.9),
        ("-", ".5", "-0.5", 1.5),
        ("-", 0, "-0", 2.0),
        ("-", 1e-05, "-1e-05", 1.99999),
        ("+", "+5%", "+5%", 2.1),
        ("+", "5%", "+5%", 2.1),
        ("+", 1, "+1", 3.0),
        ("+", "250%", "+250%", 7.0),
    ],
)
def test_forms(worse: Any, value: Any, text: str, worst: float) -> None:
    """The sign may be left out; a share of the stored figure, or the figure's own unit."""
    checked = limit(worse)(value)
    assert isinstance(checked, Limit)
    assert checked.text == text
    assert checked.worst(2.0) == pytest.approx(worst)
    assert limit(worse)(checked) == checked


def test_null_is_no_limit() -> None:
    """The figure is shown."""
    assert limit("-")(None) is None


@pytest.mark.parametrize(
    "value",
    [
        *("", "5 percent", "%", "five", "--5%", "5%%", "1e3", "inf", "nan", "\u0665%", "1_0"),
        *(True, [], {}, float("nan"), float("inf"), 10**5000, "9" * 5000, 2e9, "1001%"),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_no_change(value: Any) -> None:
    """It says what is allowed."""
    with pytest.raises(Invalid) as raised:
        limit("+")(value)
    assert str(raised.value).startswith("must be a change, found ")
    assert str(raised.value).endswith("(allowed: such as +5% or +0.1, or null for no limit)")


@pytest.mark.parametrize(("worse", "value"), [("-", "+5%"), ("+", "-5%"), ("+", -0.1)])
def test_a_change_for_the_better_is_no_limit(worse: Any, value: Any) -> None:
    """Speedup may not be asked to rise."""
    with pytest.raises(Invalid, match=f"for the worse, which is '[{worse}]', found"):
        limit(worse)(value)


@pytest.mark.parametrize("name", ["nightly", "v0.31.3", "A-b_c", "7"])
def test_names(name: str) -> None:
    """Plain words."""
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", ".hidden", "x.json", "a..b", "a b", "ü", "a\n", "-x", "a" * 101]
)
def test_what_is_no_name(name: str) -> None:
    """It might lead out of the folder."""
    assert not is_name(name)

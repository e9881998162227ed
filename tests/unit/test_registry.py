"""registry.py: what comes with specgate, what plugins add, and where an engine may run."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_specgate.config.option_values import Isolation
from pytest_specgate.config.spec import ConfigError
from pytest_specgate.engines.isolated import IsolatedEngine
from pytest_specgate.gates.acceptance import AcceptanceGate
from pytest_specgate.gates.base import BaseGate
from pytest_specgate.gates.speedup import SpeedupGate
from pytest_specgate.registry import Registry
from tests.fakes import FakeEngine


class Length(BaseGate):
    """A gate of another plugin."""

    name = "length"


class Faster(SpeedupGate):
    """One that takes the place of a built-in gate."""


def config(
    *, gates: Any = (), engines: Any = (), reports: Any = (), checks: Any = (), plugins: Any = ()
) -> pytest.Config:
    """A configuration whose hooks answer so, one entry a plugin."""
    hook = SimpleNamespace(
        pytest_specgate_gates=lambda: list(gates),
        pytest_specgate_engines=lambda: list(engines),
        pytest_specgate_report=lambda: list(reports),
        pytest_specgate_checks=lambda: list(checks),
    )
    manager = SimpleNamespace(get_plugins=lambda: set(plugins))
    return cast(pytest.Config, SimpleNamespace(hook=hook, pluginmanager=manager))


BUILT_IN = [
    *("preflight", "parity", "speedup", "latency", "memory", "acceptance"),
    *(
        "reuse",
        "options",
        "quality",
        "distribution",
        "ttft",
        "tpot",
        "baseline",
        "against",
        "recommended",
    ),
]
ISOLATION = Isolation("popen", "--spec-isolate popen", 7.0)


def test_what_comes_with_specgate() -> None:
    """Gates in the order of the report."""
    registry = Registry.gather(config())
    assert list(registry.gates) == BUILT_IN
    assert list(registry.engines) == ["mlx-lm"]
    assert list(registry.reports) == ["csv", "html", "json", "markdown"]
    assert registry.isolation is None


def test_what_plugins_add() -> None:
    """Behind what comes with specgate, plugin by plugin."""
    engine = FakeEngine()

    def write(*_: object) -> None:
        """Nothing."""

    registry = Registry.gather(
        config(
            gates=[[], [Length()]],
            engines=[{"one": lambda: engine}, {"two": FakeEngine}],
            reports=[{"html": write}],
        )
    )
    assert list(registry.gates) == [*BUILT_IN, "length"]
    assert list(registry.engines) == ["mlx-lm", "one", "two"]
    assert registry.engines["one"]() is engine
    assert registry.reports["html"] is write


def test_a_plugin_takes_the_place_of_what_it_names() -> None:
    """In the order that was there."""
    registry = Registry.gather(config(gates=[[Faster()]], engines=[{"mlx-lm": FakeEngine}]))
    assert list(registry.gates) == BUILT_IN
    assert type(registry.gates["speedup"]) is Faster
    assert type(registry.gates["acceptance"]) is AcceptanceGate
    assert isinstance(registry.engines["mlx-lm"](), FakeEngine)


class Twin(BaseGate):
    """Its item is named like that of another gate."""

    name, item = "twin", "latency_p95"


def test_two_gates_of_one_item_name_are_refused() -> None:
    """pytest would run one of the two items alone, and the other limit would not be judged."""
    with pytest.raises(ConfigError) as caught:
        Registry.gather(config(gates=[[Twin()]]))
    assert str(caught.value) == (
        "the gates 'latency' and 'twin' have one item name, 'latency_p95': give each its own"
    )


def test_an_isolated_registry_has_no_other_engine() -> None:
    """The same gates and reports; the engine is made, not started."""
    registry = Registry.gather(config(engines=[{"mine": FakeEngine}]))
    isolated = registry.isolated(ISOLATION)
    assert list(isolated.engines) == ["mlx-lm"]
    assert isinstance(isolated.engines["mlx-lm"](), IsolatedEngine)
    assert isolated == replace(registry, engines=isolated.engines, isolation=ISOLATION)
    assert list(registry.engines) == ["mlx-lm", "mine"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [(["jinja2"], "jinja2"), (["jinja2", "matplotlib"], "jinja2 and matplotlib")],
)
def test_the_html_report_needs_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], words: str
) -> None:
    """Said at once, with what installs it; no other report needs it."""
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    registry = Registry.gather(config())
    with pytest.raises(ConfigError) as error:
        registry.check_report("html", "--spec-report html:a.html")
    assert str(error.value) == (
        f"--spec-report html:a.html: the html report needs {words}: "
        "pip install 'pytest-specgate[report]'"
    )
    for kind in ("json", "markdown", "csv"):
        registry.check_report(kind, "x")


def test_another_html_report_needs_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's own."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    Registry.gather(config(reports=[{"html": lambda *_: None}])).check_report("html", "x")


def test_the_html_report_with_its_extra() -> None:
    """Nothing to say."""
    Registry.gather(config()).check_report("html", "x")


def test_an_engine_that_is_there() -> None:
    """Nothing is said."""
    registry = Registry.gather(config(engines=[{"mine": FakeEngine}]))
    for name in ("mlx-lm", "mine"):
        registry.check_engine(name, "--spec-engine")
    registry.isolated(ISOLATION).check_engine("mlx-lm", "--spec-engine")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlx_lm", "no engine 'mlx_lm'; did you mean 'mlx-lm'? (allowed: mlx-lm, mine)"),
        ("zzz", "no engine 'zzz' (allowed: mlx-lm, mine)"),
    ],
)
def test_an_engine_that_is_not_there(name: str, words: str) -> None:
    """The nearest name, and all that are allowed."""
    registry = Registry.gather(config(engines=[{"mine": FakeEngine}]))
    with pytest.raises(ConfigError) as caught:
        registry.check_engine(name, "pytest.ini: specgate_engine")
    assert str(caught.value) == f"pytest.ini: specgate_engine: {words}"


def test_an_engine_that_cannot_be_isolated() -> None:
    """The option that asks for it is named, not the engine's."""
    registry = Registry.gather(config(engines=[{"mine": FakeEngine}])).isolated(ISOLATION)
    with pytest.raises(ConfigError) as caught:
        registry.check_engine("mine", "--spec-engine")
    assert str(caught.value) == (
        "--spec-isolate popen: the engine 'mine' cannot run in a process of its own "
        "(allowed: mlx-lm)"
    )

"""Pairs of known truth, built once a session, and engines that are quick."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_specgate.demo.constructed import Oracle, PairRecipe, build

pytest_plugins = ["pytester"]

ConstructedPair = tuple[Path, Oracle]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The whole suite, asked for by ``pytest`` alone, runs on two workers, a file on one."""
    whole = not config.invocation_params.args and not hasattr(config, "workerinput")
    if whole and config.pluginmanager.hasplugin("xdist"):
        config.option.numprocesses, config.option.dist = 2, "loadfile"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole sessions first: with the quick files last, no worker is left with a long one alone."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/unit/"))


@pytest.fixture(autouse=True, scope="module")
def nothing_old_to_collect() -> None:
    """Every round of a measurement collects garbage; what was imported by now never is any."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def short_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single passes are timed for their form here, not for their figures."""
    monkeypatch.setattr("pytest_specgate.engines.worker._BURST_S", 0.001)


@pytest.fixture(autouse=True)
def outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sessions under test write nothing into the job that may be running these tests."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def constructed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[PairRecipe], ConstructedPair]:
    """recipe -> (folder with ``target`` and ``draft``, oracle); each recipe is built once."""
    built: dict[PairRecipe, ConstructedPair] = {}

    def make(recipe: PairRecipe) -> ConstructedPair:
        if recipe not in built:
            folder = tmp_path_factory.mktemp("pair")
            built[recipe] = folder, build(folder, recipe)
        return built[recipe]

    return make

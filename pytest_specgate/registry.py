"""Gates, engines, checks and reports: what comes with specgate, and what others add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from .checks import Check, builtin_checks
from .checks.own import marked_checks
from .config.option_values import Isolation
from .config.spec import ConfigError, nearest
from .engines import builtin_engines
from .engines.base import Engine
from .gates import builtin_gates
from .gates.base import Gate
from .report import SessionReport, builtin_reports
from .report.html import MODULES, write_html


@dataclass(frozen=True, slots=True)
class Registry:
    """All of each, by name; what a plugin adds may replace what comes with specgate."""

    gates: Mapping[str, Gate]
    engines: Mapping[str, Callable[[], Engine]]
    reports: Mapping[str, Callable[[SessionReport, Path], None]]
    checks: Mapping[str, Check]
    isolation: Isolation | None = None

    @classmethod
    def gather(cls, config: pytest.Config) -> Registry:
        """Ask the hooks.

        Raises:
            ConfigError: two gates whose items would have one name, of which pytest runs one; a
                check that is made wrongly, or twice.
        """
        hook = config.hook
        checks = _checks(config)
        external = [gate for gates in hook.pytest_specgate_gates() for gate in gates]
        engines = dict(builtin_engines())
        for more_engines in hook.pytest_specgate_engines():
            engines.update(more_engines)
        reports = dict(builtin_reports())
        for more_reports in hook.pytest_specgate_report():
            reports.update(more_reports)
        gates = {gate.name: gate for gate in [*builtin_gates(checks), *external]}
        named: dict[str, str] = {}
        for gate in gates.values():
            if (other := named.setdefault(gate.item, gate.name)) != gate.name:
                raise ConfigError(
                    f"the gates {other!r} and {gate.name!r} have one item name, {gate.item!r}: "
                    "give each its own"
                )
        return cls(gates, engines, reports, checks)

    def isolated(self, isolation: Isolation) -> Registry:
        """The same with the mlx-lm engine in a process of its own, and no engine that cannot be."""
        from .engines.isolated import IsolatedEngine

        def make() -> Engine:
            return IsolatedEngine(isolation.spec, isolation.timeout_s)

        return replace(self, engines={"mlx-lm": make}, isolation=isolation)

    def afresh(self, name: str) -> Callable[[], Engine] | None:
        """What makes this engine in a process of its own; None where that cannot be."""
        if self.isolation:
            return self.engines.get(name)
        apart = self.isolated(Isolation("popen", ""))
        own = self.engines.get(name) is builtin_engines().get(name)
        return apart.engines.get(name) if own else None

    def scanning(self) -> Registry:
        """The same with the one gate of ``--spec-scan``, which no other session has."""
        from .gates.scan import ScanGate

        return replace(self, gates={**self.gates, ScanGate.name: ScanGate()})

    def check_report(self, kind: str, origin: str) -> None:
        """Is what a report is made with installed?

        Raises:
            ConfigError: no.
        """
        missing = [name for name in MODULES if find_spec(name) is None]
        if missing and self.reports[kind] is write_html:
            raise ConfigError(
                f"{origin}: the {kind} report needs {' and '.join(missing)}: "
                "pip install 'pytest-specgate[report]'"
            )

    def check_engine(self, name: str, origin: str) -> None:
        """Is there an engine of that name, and can it run where it is to?

        Raises:
            ConfigError: no.
        """
        if self.isolation and name not in self.engines:
            raise ConfigError(
                f"{self.isolation.origin}: the engine {name!r} cannot run in a process of its own "
                f"(allowed: {', '.join(self.engines)})"
            )
        if name not in self.engines:
            raise ConfigError(
                f"{origin}: no engine {name!r}{nearest(name, self.engines)} "
                f"(allowed: {', '.join(self.engines)})"
            )


def _checks(config: pytest.Config) -> dict[str, Check]:
    """The checks that come with specgate, those of plugins, and those that conftests mark."""
    known = builtin_checks()
    for more in config.hook.pytest_specgate_checks():
        known |= {check.name: check for check in more}
    return known | marked_checks(config.pluginmanager.get_plugins())

"""The end of a session: reports, the stored baseline, what is run again, the last words."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from . import parallel
from .baseline.document import BaselineError, baseline_of
from .baseline.files import Place, write
from .config.options import Options
from .gates.base import Verdict
from .judging import Judge
from .measure.store import Store
from .registry import Registry
from .report.github import add_to_summary, error_lines
from .report.session_report import SessionReport, session_status
from .report.terminal import checklist_lines, coloured, summary_lines
from .text import in_a_line, shown


class Ending:
    """What is made of a session when its last test is over."""

    def __init__(
        self,
        config: pytest.Config,
        options: Options,
        registry: Registry,
        store: Store,
        judge: Judge,
    ) -> None:
        """The place of a baseline is looked at now: somebody may write to it meanwhile."""
        self._config = config
        self._options = options
        self._registry = registry
        self._store = store
        self._judge = judge
        self._workers: list[parallel.Findings] = []
        self._report: SessionReport | None = None
        self._notes: list[str] = []
        save = options.save_baseline
        self._save = Place.of(save.path, update=save.update) if save else None

    def take_over(self, node: Any) -> None:
        """A worker of pytest-xdist has ended."""
        if (found := parallel.handed_over(node)) is not None:
            self._workers.append(found)
        else:
            self._notes.append("a worker ended early: what it had measured is lost")

    def _findings(self) -> parallel.Findings:
        own = parallel.Findings(
            self._judge.verdicts,
            self._judge.measured(),
            self._store.used,
            places=self._judge.places,
        )
        return parallel.joined([own, *self._workers]) if self._workers else own

    def finish(self, exitstatus: int) -> bool:
        """End engines, write the reports asked for; False when the session may not be green."""
        self._notes += [shown(words) for words in self._store.close()]
        if self._config.option.collectonly or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return True
        try:
            self._judge.keep_samples()
        except OSError as error:
            self._notes.append(shown(f"the undecided sample could not be kept: {error}"))
        found = self._findings()
        if parallel.is_worker(self._config):
            facts = self._judge.facts() if found.used else None
            parallel.hand_over(self._config, replace(found, facts=facts))
            return True
        self._remember(found.verdicts)
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        idle = self._options.require and not found.verdicts and not found.used
        if not (found.verdicts or found.measured or self._options.reports or idle or self._save):
            return True
        self._report = SessionReport(
            status=session_status(found.verdicts, interrupted=interrupted),
            environment=found.facts or self._judge.facts(),
            measured=found.measured,
            verdicts=found.verdicts,
            quiet=self._options.on_inconclusive == "pass",
            item_names={name: gate.item for name, gate in self._registry.gates.items()},
            places=found.places,
        )
        if idle:
            self._notes.append(
                "ERROR: --spec-require: nothing was judged: what was collected was skipped"
            )
        written = self._save_baseline(exitstatus)
        if written and self._save:
            self._report = replace(self._report, stored=self._save.path.stem)
        for request in self._options.reports:
            try:
                self._registry.reports[request.kind](self._report, request.path)
                self._notes.append(shown(f"{request.kind} report: {request.path}"))
            except OSError as error:
                written = False
                self._notes.append(shown(f"ERROR: {request.origin}: cannot be written: {error}"))
            except Exception as error:  # of another plugin; the verdicts and other reports stand
                written = False
                self._notes.append(
                    shown(f"ERROR: {request.origin}: its writer broke: {in_a_line(error)}")
                )
        if note := add_to_summary(self._report, os.environ):
            self._notes.append(shown(note))
        return written and not idle

    def _save_baseline(self, exitstatus: int) -> bool:
        """Store the session; False where that was asked for and could not be done."""
        if self._save is None or self._options.save_baseline is None or self._report is None:
            return True
        report = self._report
        whole = exitstatus == pytest.ExitCode.OK and report.status != "failed"
        problem = None
        if not whole and not self._options.save_baseline.anyway:
            why = report.status if report.status in ("failed", "incomplete") else "not green"
            problem = f"the session is {why} (--spec-keep-failed-baseline stores it all the same)"
        elif not any(case.arms for pair in report.measured for case in pair.cases):
            problem = "nothing was measured"
        elif len(report.measured) > 1:
            problem = f"it takes one pair with one set of options, found {len(report.measured)}"
        if problem:
            self._notes.append(f"ERROR: no baseline was stored: {problem}")
            return False
        (pair,) = report.measured
        found = baseline_of(pair.cases, pair.inputs, pair.info, report.environment, report.verdicts)
        try:
            write(self._save, found)
        except BaselineError as error:
            self._notes.append(shown(f"ERROR: --spec-save-baseline: {error}"))
            return False
        self._notes.append(shown(f"baseline: {self._save.path}"))
        return True

    def _remember(self, verdicts: Iterable[Verdict]) -> None:
        """An undecided item is worth running again: ``--lf`` selects it beside the failed ones."""
        again = getattr(self._config.pluginmanager.get_plugin("lfplugin"), "lastfailed", None)
        if isinstance(again, dict):
            again |= {v.item: True for v in verdicts if v.status == "inconclusive"}

    def summarize(self, reporter: Any) -> None:
        """Write the section behind pytest's own summary."""
        if self._report is None:
            return
        reporter.ensure_newline()
        reporter.section("specgate")
        writer = self._config.get_terminal_writer()
        whole = self._config.option.verbose > 0
        lines = summary_lines(self._report, writer.fullwidth, whole=whole)
        if self._options.checklist:
            lines += checklist_lines(self._report, writer.fullwidth)
        for line in [*lines, *self._notes]:
            reporter.write_line(coloured(line, writer.markup))
        for line in error_lines(self._report, self._config.rootpath, os.environ):
            reporter.write_line(line)

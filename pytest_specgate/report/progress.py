"""Progress for a person: one live line on a terminal, a rare line on a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from ..config.plan import Inputs, Prompt
from ..engines.base import Tick
from ..measure.trial import Trial
from ..measure.watch import Step
from ..text import shown

_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[K"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_LEAST_ROOM = 20
_LINE_EVERY_S = 60.0
_TICK_S = 1.0


def duration(seconds: float) -> str:
    """``8 s``, ``3 min``, ``1 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Tells a person where the measurement stands, and the hooks what is finished.

    The live line is written behind pytest's own text on the same line: cursor saved, text,
    cursor restored, so that pytest goes on writing where it was.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Decide once between the live line, rare lines, and nothing."""
        self._config = config
        self._capture: Any = config.pluginmanager.get_plugin("capturemanager")
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        verbosity = config.option.verbose
        terminal = self._reporter is not None and self._reporter.isatty
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        self._live = bool(terminal and not dumb and not os.environ.get("CI"))
        # with -v pytest's own line a test is the progress, and ours would cut it in two
        self._lines = bool(self._reporter is not None and not self._live and verbosity == 0)
        self._shown = False
        self._lines_left = 0
        self._next_line = 0.0
        self._rates: dict[str, float] = {}
        self._remaining: float | None = None

    def expect(self, prompts: int) -> None:
        """At most one line a prompt will be written on a pipe."""
        self._lines_left = prompts

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a measurement: leaves pytest's line as it was."""
        try:
            yield
        finally:
            self._erase()

    def waiting(self) -> None:
        """Somebody else times on this machine, or must end before we may."""
        self._show("waiting for others at work on this machine")

    def loading(self, inputs: Inputs) -> None:
        """A pair is being loaded."""
        names = [ref.short for ref in (inputs.target, inputs.draft) if ref]
        self._show(f"loading {' + '.join(names)}")

    def trial_started(self, step: Step) -> Tick | None:
        """Show the trial that starts; the answer shows its speed while it runs."""
        where = f"round {step.round}/{step.rounds}" if step.round else "warm-up"
        self._remaining = step.remaining_s
        left = f", {duration(step.remaining_s)} left" if step.remaining_s is not None else ""
        head = f"{step.prompt} {where} {step.arm}"
        rate = self._rates.get(step.arm)
        self._show(f"{head}{f' {rate:.0f} tok/s' if rate else ''}{left}")
        if not self._live:
            return None

        def tick(tokens: int, seconds: float) -> float:
            self._rates[step.arm] = tokens / seconds
            self._show(f"{head} {tokens / seconds:.0f} tok/s{left}")
            return seconds + _TICK_S

        return tick

    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None:
        """Remember the speed, and pass the trial on to the hook."""
        self._rates[arm] = trial.tokens / trial.e2e_s
        self._config.hook.pytest_specgate_trial_finished(
            trial=trial, prompt=prompt, arm=arm, config=self._config
        )
        self._line(f"round {trial.round}, {prompt.id}")

    def prompt_finished(self, prompt: Prompt, remaining_s: float | None) -> None:
        """The warm-up pass of a prompt is over."""
        self._remaining = remaining_s
        if not self._next_line:  # the first one says how long it takes; the rest is for the rounds
            self._line(prompt.id)

    def _line(self, what: str) -> None:
        now = time.monotonic()
        if not self._lines or not self._lines_left or now < self._next_line:
            return
        if self._remaining is None or self._remaining < 1:
            return
        self._lines_left -= 1
        self._next_line = now + _LINE_EVERY_S
        with self._uncaptured():
            self._reporter.write_line(
                f"specgate: {what} done, about {duration(self._remaining)} left"
            )

    def _uncaptured(self) -> Any:
        return self._capture.global_and_fixture_disabled() if self._capture else nullcontext()

    def _show(self, text: str) -> None:
        if not self._live:
            return
        writer = self._config.get_terminal_writer()
        room = writer.fullwidth - writer.width_of_current_line - 2
        if room < _LEAST_ROOM:
            return
        line = shown(text).encode("ascii", "replace").decode()[:room]
        self._write(f"{_SAVE}{_NO_WRAP}{_CLEAR} {line}{_WRAP}{_RESTORE}")
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._write(_CLEAR)
            self._shown = False

    def _write(self, codes: str) -> None:
        with self._uncaptured():
            sys.stdout.write(codes)
            sys.stdout.flush()

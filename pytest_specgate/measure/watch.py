"""Who is told of a measurement while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ..config.plan import Inputs, Prompt
from ..engines.base import Tick
from .trial import Trial


@dataclass(frozen=True, slots=True)
class Step:
    """Where the measurement stands, for progress.

    Attributes:
        prompt: id of the prompt.
        arm: ``plain`` or ``k=N``.
        round: 0 in the warm-up pass, which is the parity pass.
        rounds: the least that will be run.
        remaining_s: estimate for everything still planned; None before the first trial.
    """

    prompt: str
    arm: str
    round: int
    rounds: int
    remaining_s: float | None


class Watcher(Protocol):
    """Told of what happens, between trials, so that watching costs the trials nothing."""

    def running(self) -> AbstractContextManager[None]: ...
    def waiting(self) -> None: ...
    def loading(self, inputs: Inputs) -> None: ...
    def trial_started(self, step: Step) -> Tick | None: ...
    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None: ...
    def prompt_finished(self, prompt: Prompt, remaining_s: float | None) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def running(self) -> AbstractContextManager[None]:
        """Nothing around a measurement."""
        return nullcontext()

    def waiting(self) -> None:
        """Nothing."""

    def loading(self, inputs: Inputs) -> None:
        """Nothing."""

    def trial_started(self, step: Step) -> Tick | None:
        """Nothing."""

    def trial_finished(self, trial: Trial, prompt: Prompt, arm: str) -> None:
        """Nothing."""

    def prompt_finished(self, prompt: Prompt, remaining_s: float | None) -> None:
        """Nothing."""

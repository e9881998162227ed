"""What a check says, and what it looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..config.plan import Inputs, Prompt
from ..engines.base import EngineInfo, Pair

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact of the pre-flight check.

    Attributes:
        severity: ``error`` fails the pair, or the one prompt it is about.
        subject: model and check, such as ``target cache``.
        message: one line of what.
        advice: one line of what to do.
        prompt: id of the prompt that it is about; None for the pair.
    """

    severity: Severity
    subject: str
    message: str
    advice: str
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Preflight:
    """All findings, how many checks were made, and the seconds they took."""

    findings: tuple[Finding, ...]
    checks: int
    seconds: float

    def error(self, prompt: str) -> str | None:
        """Why nothing may be generated for this prompt, or None."""
        for finding in self.findings:
            if finding.severity == "error" and finding.prompt in (None, prompt):
                return f"pre-flight: {finding.subject}: {finding.message}. {finding.advice}"
        return None


@dataclass(frozen=True, slots=True)
class Subject:
    """What the checks look at."""

    pair: Pair
    inputs: Inputs
    tokens: Mapping[str, Sequence[int]]
    engine: EngineInfo | None

    def lengths(self) -> list[tuple[Prompt, int]]:
        """(prompt, prompt tokens + max_tokens) of the prompts that have tokens."""
        return [
            (prompt, len(self.tokens[prompt.id]) + (prompt.max_tokens or 0))
            for prompt in self.inputs.prompts
            if prompt.id in self.tokens
        ]

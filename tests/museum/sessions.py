"""What a session said of one case, read from its JSON report."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """One session.

    Attributes:
        exit: pytest's exit code.
        report: the JSON report; empty where none was written.
        text: the terminal's.
    """

    exit: int
    report: Mapping[str, Any]
    text: str = ""

    @classmethod
    def read(cls, exit_code: int, folder: Path, text: str = "") -> Outcome:
        """From the folder that the session ran in."""
        path = folder / "out.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(int(exit_code), report, text)

    def verdict(self, gate: str) -> Mapping[str, Any]:
        """The gate's own verdict, its parts left out; empty where it did not judge."""
        found = [v for v in self.report.get("verdicts", ()) if v["gate"] == gate]
        return next((v for v in found if v["subject"] in ("pair", "case", "k=3", "k=5")), {})

    @property
    def parity(self) -> str:
        """Status of the parity gate."""
        return str(self.verdict("parity").get("status", "none"))

    @property
    def kind(self) -> str | None:
        """What parity calls the difference."""
        return self.verdict("parity").get("kind")

    @property
    def preflight(self) -> list[str]:
        """The findings, one line each, that begins with the severity."""
        return [" ".join(line.split()) for line in self.verdict("preflight").get("details", ())]

    @property
    def preflight_errors(self) -> list[str]:
        """The findings that stop a pair."""
        return [line for line in self.preflight if line.startswith("error")]

    @property
    def case(self) -> Mapping[str, Any]:
        """The case itself."""
        return dict(self.report["cases"][0])

    @property
    def first_difference(self) -> dict[str, int | None]:
        """arm -> first output token that differs."""
        return dict(self.case["first_difference"])

    def in_words(self) -> str:
        """For a table: the parity verdict, its kind, and whether pre-flight objects."""
        if not self.report:
            return f"no report (exit {self.exit})"
        reason = str(self.verdict("parity").get("reason", ""))
        if reason.startswith("pre-flight: "):
            return f"stopped by pre-flight: {reason.split(': ')[1]}"
        if ended := re.search(r"ended by \w+|no answer within \S+ s", self.case["error"] or ""):
            return f"worker: {ended[0]}"
        if self.case["error"]:
            error = next((w for w in reason.split() if w.endswith("Error:")), "at loading")
            return f"refused: {error.rstrip(':')}"
        kind = f"/{self.kind}" if self.kind else ""
        first = sorted({at for at in self.first_difference.values() if at is not None})
        where = f" at {', '.join(map(str, first))}" if first else ""
        errors = " (pre-flight: error)" if self.preflight_errors else ""
        return f"{self.parity}{kind}{where}{errors}"

"""Samples of undecided gates, kept between sessions so that the next one goes on with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..config.plan import Inputs
from ..engines.base import Generation, PairInfo
from ..files import write_whole
from .evidence import ArmEvidence, Trial
from .record import Record, budget_of

SCHEMA = "specgate-sample/1"
# what a time depends on; the rest of the recorded environment may differ
_FACTS = (
    *("versions", "chip", "architecture", "cpu_count", "memory_bytes", "os", "python", "device"),
    *("power", "low_power_mode"),
)


@dataclass(frozen=True, slots=True)
class Samples:
    """A folder with a file for each sample, named by a digest of all that it depends on.

    Attributes:
        folder: None where nothing is kept.
        facts: the recorded environment.
    """

    folder: Path | None
    facts: Callable[[], Mapping[str, Any]]

    def take_over(self, records: Iterable[Record], inputs: Inputs, pair: PairInfo | None) -> None:
        """Give records the trials of an earlier session, all of them or none.

        Their outputs must be those of this session's parity pass, token by token.
        """
        records = list(records)
        stored = self._read(inputs, pair)
        if not stored or any(record.rounds for record in records):
            return
        found = [_arms(record, stored.get(_key(record), {})) for record in records]
        if not all(found):
            return
        for record, arms in zip(records, found, strict=True):
            record.arms = {**record.arms, **arms}
            record.carried = record.rounds

    def keep(self, records: Iterable[Record], inputs: Inputs, pair: PairInfo | None) -> None:
        """Keep the trials of an undecided measurement.

        Raises:
            OSError: the folder cannot be written.
        """
        if self.folder is None:
            return
        cases = {_key(record): _stored(record) for record in records if record.rounds}
        document = {"schema": SCHEMA, "cases": cases}
        write_whole(self._path(inputs, pair), json.dumps(document) + "\n")

    def discard(self, inputs: Inputs, pair: PairInfo | None) -> None:
        """Forget it: the gates were decided, and the next session begins afresh."""
        if self.folder is not None:
            self._path(inputs, pair).unlink(missing_ok=True)

    def _read(self, inputs: Inputs, pair: PairInfo | None) -> Mapping[str, Any]:
        if self.folder is None:
            return {}
        try:
            document = json.loads(self._path(inputs, pair).read_text(encoding="utf-8"))
            return document["cases"] if document["schema"] == SCHEMA else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # none, or not one of ours: the measurement begins afresh

    def _path(self, inputs: Inputs, pair: PairInfo | None) -> Path:
        assert self.folder is not None
        facts = self.facts()
        depends = {
            "environment": {name: facts.get(name) for name in _FACTS},
            "models": [pair.target.digest, pair.draft.digest] if pair else None,
            "engine": inputs.engine,
            "decoding": asdict(replace(inputs.decoding, max_tokens=0)),
            "chat_template_args": dict(inputs.chat_template_args),
            "parity": inputs.parity,
        }
        text = json.dumps(depends, sort_keys=True, default=str)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _key(record: Record) -> str:
    prompt = record.prompt
    text = json.dumps([prompt.id, prompt.text, budget_of(prompt), list(record.tokens)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _output(generation: Generation) -> str:
    text = json.dumps([list(generation.tokens), generation.text])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _stored(record: Record) -> dict[str, Any]:
    return {
        name: {
            "output": _output(arm.generation),
            "trials": [asdict(trial) for trial in arm.trials],
        }
        for name, arm in record.arms.items()
    }


def _arms(record: Record, stored: Mapping[str, Any]) -> dict[str, ArmEvidence]:
    """The record's arms with the stored trials; none where an output is another one."""
    arms = {}
    for name, arm in record.arms.items():
        kept = stored.get(name)
        if kept is None:
            continue
        if kept["output"] != _output(arm.generation):
            return {}
        arms[name] = replace(arm, trials=tuple(_trial(fields) for fields in kept["trials"]))
    return arms


def _trial(fields: Mapping[str, Any]) -> Trial:
    first = fields["past_first_block"]
    return Trial(**{**fields, "past_first_block": tuple(first) if first else None})

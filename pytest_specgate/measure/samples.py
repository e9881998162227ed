"""Samples of undecided gates, kept between sessions so that the next one goes on with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..config.plan import Inputs
from ..config.spec import Spec, integer, number, optional
from ..engines.base import Generation, PairInfo
from ..files import write_whole
from .evidence import PLAIN, ArmEvidence
from .record import Record, budget_of
from .trial import Trial

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

    def take_over(
        self,
        timed: Sequence[tuple[Record, Sequence[str]]],
        inputs: Inputs,
        pair: PairInfo | None,
    ) -> None:
        """Give records the trials of an earlier session, all of them or none.

        Their outputs must be those of this session's parity pass, token by token.

        Args:
            timed: what this session is to time, a prompt each, and its arms.
            inputs, pair: that the sample depends on.
        """
        stored = self._read(inputs, pair)
        if not stored or any(record.rounds for record, _ in timed):
            return
        try:
            found = [_arms(record, names, stored[_key(record)]) for record, names in timed]
        except (KeyError, TypeError, ValueError):
            return  # another prompt, arm or output, or not as we write it: begin afresh
        for (record, _), arms in zip(timed, found, strict=True):
            record.arms = {**record.arms, **arms}
            record.carried = record.rounds
            record.carried_to = record.last_round

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
            return dict(document["cases"]) if document["schema"] == SCHEMA else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}  # none, or not one of ours: the measurement begins afresh

    def _path(self, inputs: Inputs, pair: PairInfo | None) -> Path:
        assert self.folder is not None
        facts = self.facts()
        depends = {
            "environment": {name: facts.get(name) for name in _FACTS},
            "models": [[model.digest, model.bytes] for model in (pair.target, pair.draft)]
            if pair
            else None,
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


def _arms(
    record: Record, names: Iterable[str], stored: Mapping[str, Any]
) -> dict[str, ArmEvidence]:
    """These arms of a record with the stored trials.

    Raises:
        KeyError: an arm was not timed then.
        TypeError, ValueError: its output was another one, or a trial is malformed.
    """
    arms = {}
    for name in names:
        arm, kept = record.arms[name], stored[name]
        trials = tuple(_trial(fields) for fields in kept["trials"])
        if kept["output"] != _output(arm.generation) or not trials:
            raise ValueError(f"{name} gave another output, or was not timed")
        rounds = [trial.round for trial in trials]
        if rounds != sorted({*rounds}):
            raise ValueError(f"rounds out of order: {rounds}")
        arms[name] = replace(arm, trials=trials)
    plain = {trial.round for trial in arms[PLAIN].trials}
    if any(trial.round not in plain for arm in arms.values() for trial in arm.trials):
        raise ValueError("a round without its plain run")
    return arms


_WHOLE, _SECONDS = integer(1), number(above=0)
_FIELDS: Mapping[str, Spec] = {
    "round": _WHOLE,
    "tokens": _WHOLE,
    "ttft_s": _SECONDS,
    "decode_s": optional(number(least=0)),
    "e2e_s": _SECONDS,
    "peak_memory_bytes": optional(integer(0)),
    "accepted": optional(integer(0)),
}


def _trial(fields: Mapping[str, Any]) -> Trial:
    """Raises KeyError, TypeError or ValueError for what ``asdict`` never gave."""
    values = {name: spec(fields[name]) for name, spec in _FIELDS.items()}
    if (rest := fields["past_first_block"]) is not None:
        tokens, seconds = rest
        rest = _WHOLE(tokens), number(least=0)(seconds)
    return Trial(**values, past_first_block=rest)

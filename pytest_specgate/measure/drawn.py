"""Outputs drawn with many seeds, and by which law the target would have drawn them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..config.plan import Draws, Inputs
from ..engines.base import EngineError, Generation, SampledScores
from .budget import Budget
from .evidence import AGAIN, PLAIN, arm_name
from .record import Record


def derived_seed(seed: int, prompt: str, arm: str, number: int) -> int:
    """A seed of its own for each output: no two arms share one, so their draws are independent."""
    said = f"{seed}\0{prompt}\0{arm}\0{number}".encode()
    return int.from_bytes(hashlib.sha256(said).digest()[:8], "big") >> 1


def drawn_from(records: Sequence[Record], wanted: Draws) -> list[Record]:
    """As many records as are wanted, spread evenly."""
    count = min(wanted.prompts or len(records), len(records))
    return [records[number * len(records) // count] for number in range(count)]


def numbers(wanted: Draws, ks: Sequence[int]) -> list[tuple[str, int | None, int]]:
    """(arm, k, how many outputs) of one prompt."""
    again = wanted.seeds // 2 if wanted.control else 0
    plain = [(PLAIN, wanted.seeds - again), (AGAIN, again)]
    return [(name, None, n) for name, n in plain if n] + [
        (arm_name(k), k, wanted.seeds) for k in ks
    ]


def draw(
    records: Sequence[Record],
    wanted: Draws,
    inputs: Inputs,
    generate: Callable[..., Generation],
    budget: Budget,
) -> str | None:
    """Generate what is wanted and not there yet; why it ended early, or None.

    The first whole output of an arm is observed, so that its log probabilities are known.

    Args:
        records: whose prompts were generated before.
        wanted: how many outputs, and how long.
        inputs: the arms, and the options with the seed that others are derived from.
        generate: of the runner.
        budget: what would not fit into it is not begun.
    """
    slowest = 0.0
    for record in records:
        if problem := budget.exceeded_by(slowest):
            return problem
        begin = time.perf_counter()
        for name, k, count in numbers(wanted, inputs.num_draft_tokens):
            for number in range(count):
                key = name, number, wanted.tokens
                if key in record.draws or name in record.not_drawn:
                    continue
                seed = derived_seed(inputs.decoding.seed, record.prompt.id, name, number)
                try:
                    record.draws[key] = generate(
                        record,
                        k,
                        observe=not (wanted.tokens or number),
                        decoding=replace(inputs.decoding, seed=seed),
                        max_tokens=wanted.tokens or None,
                    )
                except EngineError as error:
                    record.not_drawn[name] = str(error)
        slowest = max(slowest, time.perf_counter() - begin)
    return None


def note_laws(
    record: Record, inputs: Inputs, law: Callable[[Record, Generation], SampledScores]
) -> None:
    """The law at each token of the first whole output, on the plain path and for each k."""
    for name in (PLAIN, *map(arm_name, inputs.num_draft_tokens)):
        output = record.draws.get((name, 0, 0))
        if output is not None and name not in record.laws and name not in record.not_drawn:
            try:
                record.laws[name] = law(record, output)
            except EngineError as error:
                record.not_drawn[name] = str(error)

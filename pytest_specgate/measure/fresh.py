"""A second look at peak memory, in a process that has done nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..config.plan import Inputs
from ..engines.base import Engine, EngineError
from .record import Record, budget_of

NO_PEAK = "the engine reports none"


@dataclass(frozen=True, slots=True)
class FreshPeak:
    """What a fresh process gave.

    Attributes:
        bytes: peak of one warm run of the speculative path; None where it could not be had.
        problem: why not.
    """

    bytes: int | None
    problem: str | None = None


def fresh_peak(
    make: Callable[[], Engine] | None, inputs: Inputs, record: Record, k: int
) -> FreshPeak:
    """Load the pair afresh and run one prompt twice; the second run counts.

    Args:
        make: an engine in a process of its own; None where this one cannot be run so.
        inputs: the pair and its decoding options.
        record: of the prompt.
        k: num_draft_tokens.
    """
    if make is None:
        return FreshPeak(None, f"the engine {inputs.engine} cannot run in a process of its own")
    engine = make()
    try:
        pair = engine.load(inputs)
        for _ in range(2):
            generation = pair.generate(
                record.tokens,
                inputs.decoding,
                max_tokens=budget_of(record.prompt),
                num_draft_tokens=k,
            )
    except EngineError as error:
        return FreshPeak(None, str(error))
    finally:
        close = getattr(engine, "close", None)
        if close is not None:
            close()
    peak = generation.peak_memory_bytes
    return FreshPeak(peak) if peak else FreshPeak(None, NO_PEAK)

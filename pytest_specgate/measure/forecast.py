"""What a prediction is made from, measured after the rounds of a sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..engines.base import EngineError, PassCosts
from .evidence import CaseEvidence, Evidence
from .prediction import Output, outputs_of
from .record import budget_of
from .replay import EVERY_K, Forced, unlike_greedy
from .runner import Runner


@dataclass(frozen=True, slots=True)
class Forecast:
    """The costs of single passes, and the blocks that they are counted over.

    Attributes:
        costs: None where they could not be timed.
        outputs: of the timed prompts; with the blocks of every k where the draft was asked.
        problem: why there are no costs.
    """

    costs: PassCosts | None
    outputs: tuple[Output, ...] = ()
    problem: str | None = None


def forecast(runner: Runner, evidence: Evidence) -> Forecast:
    """Time single passes, and replay the blocks of every k where outputs are greedy.

    Args:
        runner: of the pair.
        evidence: of the rounds, with every k that was timed.
    """
    timed = {case.prompt.id: case for case in evidence.timed}
    lengths = sorted(len(case.tokens) for case in timed.values())
    if not lengths:
        return Forecast(None, problem="no prompt was timed")
    longest = max(timed.values(), key=lambda case: len(case.tokens))
    furthest = max(len(c.tokens) + len(c.plain.generation.tokens) for c in timed.values())
    try:
        costs = runner.pass_costs(
            longest.tokens,
            depths=sorted({lengths[0], furthest}),
            prompt_lengths=sorted({lengths[0], lengths[len(lengths) // 2], lengths[-1]}),
        )
    except EngineError as error:
        return Forecast(None, problem=str(error))
    outputs = [_with_every_k(o, timed[o.prompt], runner, evidence) for o in outputs_of(evidence)]
    return Forecast(costs, tuple(outputs))


def _with_every_k(output: Output, case: CaseEvidence, runner: Runner, evidence: Evidence) -> Output:
    """Exact where the draft's own choices tell; else the blocks of what was timed."""
    plain = case.plain.generation
    if unlike_greedy(evidence.decoding) or not all(parity.exact for parity in case.parity()):
        return output
    try:
        choices = runner.choices(case.tokens, plain.tokens)
    except EngineError:
        return output
    forced = Forced(case.prompt, plain, choices, budget_of(case.prompt))
    return replace(output, blocks={k: forced.blocks(k) for k in EVERY_K})

"""Many prompts on one loaded pair: the parity gate's verdicts without a session for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef, ParityMode, Prompt
from pytest_specgate.gates import builtin_gates
from pytest_specgate.gates.base import Verdict
from pytest_specgate.measure.evidence import Evidence
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent

from .engines import engines


def prompt_ids(seed: int, length: int, rows: int = 1024) -> str:
    """Token ids from a seed, as the museum's engines read them."""
    import random

    draw = random.Random(seed)
    return " ".join(str(draw.randrange(20, rows)) for _ in range(length))


def inputs_of(
    folder: Path,
    prompts: Iterable[str],
    *,
    k: Sequence[int],
    max_tokens: int,
    engine: str = "museum",
    mode: ParityMode = "exact",
) -> Inputs:
    """Inputs of the pair of a folder."""
    return Inputs(
        ModelRef(str(folder / "target"), folder / "target"),
        ModelRef(str(folder / "draft"), folder / "draft"),
        tuple(Prompt(f"p{i}", text, max_tokens=max_tokens) for i, text in enumerate(prompts)),
        tuple(k),
        Decoding(max_tokens=max_tokens),
        engine,
        parity=mode,
    )


def measured(inputs: Inputs) -> Evidence:
    """One output an arm for each prompt; pre-flight has its say."""
    return Store(engines(), Silent(), lambda _: None).campaign(inputs).parity_pass(inputs)


def judged(evidence: Evidence, mode: ParityMode = "exact") -> dict[str, Verdict]:
    """prompt id -> what the parity gate says in a mode."""
    (gate,) = (gate for gate in builtin_gates() if gate.name == "parity")
    options: Mapping[str, object] = {**gate.defaults, "mode": mode}
    return {
        case.prompt.id: gate.judge(replace(evidence, cases=(case,)), options, case.prompt.id)
        for case in evidence.cases
    }


def kinds(verdicts: Iterable[Verdict]) -> list[str | None]:
    """What the failed ones are called."""
    return [verdict.kind for verdict in verdicts if verdict.status == "failed"]

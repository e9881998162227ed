"""Predicted against measured speedup on constructed pairs of three agreements.

For each pair: rounds of the plain path and every k on several prompts, in shuffled order, and in
their middle the passes timed singly. Predicted twice: from the blocks of every k, which greedy
replay gives exactly, so that the costs alone are predicted; and from the blocks of k = 3, by way of
the acceptance at each position. On a CPU give it one core (``taskset -c 1``): the models are too
small to be worth waking another. ``--cpu-time`` counts CPU seconds on both sides in place of wall
seconds, for a machine that is busy with other work; on an idle core the two are the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tabulate import tabulate

from pytest_specgate.config.plan import Decoding, Inputs, ModelRef, Prompt
from pytest_specgate.demo.constructed import PairRecipe, build
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from pytest_specgate.measure.blocks import Blocks, blocks_of
from pytest_specgate.measure.prediction import Output, Prediction, predict
from pytest_specgate.prompts import builtin

AGREEMENTS = (0.5, 0.8, 1.0)
KS = (1, 2, 3, 5, 8)
FROM = 3  # the k whose blocks give the acceptance a position
LEAST = 1.15
MOST = 0.10  # median absolute error


def _prompts(count: int) -> list[Prompt]:
    """One prompt of each kind in turn, 32 to 64 tokens each."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in builtin("smoke") or ():
        kinds.setdefault(prompt.kind, []).append(prompt)
    turns = [p for row in zip(*kinds.values(), strict=False) for p in row]
    return [
        Prompt(p.id, p.text, p.kind, 32 + 32 * number // max(count - 1, 1))
        for number, p in enumerate(turns[:count])
    ]


def _pair(folder: Path, agreement: float) -> MlxLmPair:
    build(folder, PairRecipe(agreement=agreement, target_layers=8, draft_layers=1))
    refs = ModelRef("target", folder / "target"), ModelRef("draft", folder / "draft")
    return MlxLmEngine().load(Inputs(*refs))


def compared(
    agreement: float, prompts: Sequence[Prompt], rounds: int, cost_rounds: int
) -> tuple[Prediction, Prediction]:
    """Measure one pair and predict it: from the blocks of every k, and from those of one."""
    order, decoding = random.Random(agreement), Decoding()
    with tempfile.TemporaryDirectory() as name:
        pair = _pair(Path(name), agreement)
        ids = {prompt.id: pair.encode(prompt.text, {}) for prompt in prompts}
        times: dict[tuple[str, int | None], list[float]] = {}
        blocks: dict[tuple[str, int], Blocks] = {}

        def one_round() -> None:
            for prompt in prompts:
                for k in order.sample((None, *KS), len(KS) + 1):
                    tokens = prompt.max_tokens or 0
                    run = pair.generate(
                        ids[prompt.id], decoding, max_tokens=tokens, num_draft_tokens=k
                    )
                    times.setdefault((prompt.id, k), []).append(run.e2e_s)
                    if k is not None and (found := blocks_of(run, k, tokens)):
                        blocks[prompt.id, k] = found

        one_round()
        times.clear()  # that was warm-up
        for _ in range(rounds // 2):
            one_round()
        lengths = sorted(len(each) for each in ids.values())
        costs = pair.pass_costs(
            max(ids.values(), key=len),
            decoding,
            depths=(lengths[0], lengths[-1] + 64),
            prompt_lengths=(lengths[0], lengths[len(lengths) // 2], lengths[-1]),
            rounds=cost_rounds,
        )
        for _ in range(rounds - rounds // 2):
            one_round()
    outputs = [
        Output(
            prompt=prompt.id,
            kind=prompt.kind,
            prompt_tokens=len(ids[prompt.id]),
            emitted=blocks[prompt.id, KS[0]].emitted,
            blocks={k: blocks[prompt.id, k] for k in KS},
            measured={
                k: median(
                    plain / ours
                    for plain, ours in zip(times[prompt.id, None], times[prompt.id, k], strict=True)
                )
                for k in KS
            },
        )
        for prompt in prompts
    ]
    few = [replace(output, blocks={FROM: output.blocks[FROM]}) for output in outputs]
    return predict(costs, outputs, least=LEAST), predict(costs, few, least=LEAST)


def _rows(agreement: float, blocks: Prediction, positions: Prediction) -> list[list[str]]:
    rows = []
    for ours, theirs in zip(blocks.rows, positions.rows, strict=True):
        if ours.measured is None or ours.error is None or theirs.error is None:
            continue
        even = "never" if ours.break_even is None else f"{ours.break_even:.2f}"
        rows.append(
            [
                f"{agreement:g}",
                str(ours.num_draft_tokens),
                f"{ours.measured:.3f}",
                f"{ours.speedup:.3f}",
                f"{ours.error:+.1%}",
                f"{theirs.speedup:.3f}",
                f"{theirs.error:+.1%}",
                even,
                " ".join(f"{share:.0%}" for share in ours.shares),
            ]
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the errors; 1 when either median is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cost-rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.cpu_time:
        time.perf_counter = time.process_time  # which the engine and mlx-lm read their clock by
    prompts = _prompts(chosen.prompts)
    rows: list[list[str]] = []
    errors: dict[str, list[float]] = {"blocks": [], "positions": []}
    for agreement in AGREEMENTS:
        blocks, positions = compared(agreement, prompts, chosen.rounds, chosen.cost_rounds)
        rows += _rows(agreement, blocks, positions)
        for name, found in (("blocks", blocks), ("positions", positions)):
            errors[name] += map(abs, found.errors.values())
        widths = " ".join(f"{found:.2f}" for found in blocks.target)
        print(f"agreement {agreement:g}: alpha {blocks.alpha:.3f}, c {blocks.draft:.3f}", end=", ")
        print(f"v(1..17) {widths}, plain {blocks.plain_s * 1e3:.2f} ms a token", flush=True)
    headers = ["agreement", "k", "measured", "by blocks", "error", "by k = 3", "error"]
    print(
        tabulate(rows, headers=[*headers, "break-even", "draft verify rest"], disable_numparse=True)
    )
    worst = 0.0
    for name, every in errors.items():
        middle = median(every)
        worst = max(worst, middle)
        print(
            f"from {name:<9} median absolute error {middle:.1%}, largest {max(every):.1%}, over "
            f"{len(every)} figures (prompt, k); at most {MOST:.0%}"
        )
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())

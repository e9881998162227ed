"""Is the number of draft tokens that a sweep recommends the best one?

Five pairs whose true speedup is known for every number of draft tokens: which proposals match is
drawn once, the blocks follow exactly, and a block costs what its draft steps and its verify pass
cost. Whole sweeps are run by the campaign and the gate themselves, on an engine that takes these
seconds with noise: CV 5 % a trial, 5 % of trials doubled.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from decisions import markdown

from pytest_specgate.config.plan import SWEEP, Inputs, Measure, Prompt
from pytest_specgate.gates.recommended import RecommendedGate
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from tests.fakes import FakeEngine, FakePair, Script, make_inputs

TOKENS, PROMPTS, CONFIGURED = 64, 12, 3
DRAFT = 0.12  # seconds of a draft step, in target steps of one token
VERIFY = {1: 1.0, 2: 1.15, 3: 1.25, 4: 1.4, 6: 1.7, 9: 2.2}  # of a target pass of so many tokens
AGREEMENTS = (0.3, 0.55, 0.75, 0.88, 0.97)
VARIATION, DOUBLED = 0.05, 0.05


def seconds(matches: tuple[bool, ...], k: int | None) -> float:
    """What one output costs, without noise."""
    if k is None:
        return float(TOKENS)
    emitted = total = 0.0
    while emitted < TOKENS:
        proposed = min(k, TOKENS - int(emitted))
        run = 0
        while run < proposed and matches[int(emitted) + run]:
            run += 1
        width = min(w for w in VERIFY if w >= proposed + 1)
        total += proposed * DRAFT + VERIFY[width]
        emitted += run + 1
    return total


def pair_of(agreement: float, number: int) -> tuple[dict[str, Script], dict[int, float]]:
    """Scripts of all prompts, and the true speedup of each number of draft tokens."""
    draw = random.Random(f"{agreement} {number}")
    rows = {
        f"say {i}": tuple(draw.random() < agreement for _ in range(TOKENS)) for i in range(PROMPTS)
    }
    tokens = tuple(range(1, TOKENS + 1))
    scripts = {text: Script(tokens=tokens, matches=row) for text, row in rows.items()}
    truth = {}
    for k in SWEEP:
        product = 1.0
        for row in rows.values():
            product *= seconds(row, None) / seconds(row, k)
        truth[k] = product ** (1 / PROMPTS)
    return scripts, truth


def run(scripts: dict[str, Script], seed: int) -> dict[str, Any]:
    """One sweep; the evidence of its verdict."""

    def pace(text: str, arm: str, number: int) -> float:
        draw = random.Random(f"{seed} {text} {arm} {number}")
        k = None if arm == "plain" else int(arm.removeprefix("k="))
        exact = seconds(scripts[text].matches, k) / TOKENS
        noisy = exact * (1 + draw.gauss(0, VARIATION))
        return noisy * (2 if draw.random() < DOUBLED else 1)

    pair = FakePair(scripts=scripts, seconds=pace, sees_calls=False)
    prompts = tuple(Prompt(f"p{i}", text, "other", TOKENS) for i, text in enumerate(scripts))
    asked: Inputs = replace(make_inputs(prompts, CONFIGURED), sweep=SWEEP)
    gate, measure = RecommendedGate(), Measure()
    inputs = gate.own(asked)
    store = Store({"fake": lambda: FakeEngine(pair)}, Silent(), lambda _: None, preflight=False)
    evidence = store.campaign(inputs).rounds(
        inputs, measure, lambda seen: gate.wanted_arms(seen, gate.defaults, measure.max_rounds)
    )
    return dict(gate.judge(evidence, gate.defaults, "pair").evidence)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=40, help="sweeps a pair (%(default)s)")
    chosen = parser.parse_args()
    rows, right = [], 0
    for number, agreement in enumerate(AGREEMENTS):
        scripts, truth = pair_of(agreement, number)
        found: Counter[int] = Counter()
        advised: Counter[int] = Counter()
        rounds = 0
        for seed in range(chosen.runs):
            evidence = run(scripts, seed)
            found[evidence["mix"]["best"]["num_draft_tokens"]] += 1
            advised[evidence["mix"]["advised"]["num_draft_tokens"]] += 1
            rounds += sum(row["rounds"] for row in evidence["candidates"])
        most = max(truth.values())
        good = sum(times for k, times in found.items() if truth[k] >= 0.98 * most)
        right += good
        rows.append(
            [
                f"{agreement:g}",
                ", ".join(f"{k}: {value:.2f}x" for k, value in truth.items()),
                ", ".join(f"{k} ({times})" for k, times in found.most_common()),
                ", ".join(f"{k} ({times})" for k, times in advised.most_common()),
                f"{good / chosen.runs:.0%}",
                f"{rounds / chosen.runs / len(SWEEP):.1f}",
            ]
        )
    head = ("agreement", "true speedup", "best found", "advised", "within 2 %", "mean rounds")
    print(markdown(head, rows))
    print(f"\n{right / (len(AGREEMENTS) * chosen.runs):.1%} of all sweeps (limit 90 %)")


if __name__ == "__main__":
    main()

"""A sweep beside the loop that people run today, on the embedded pair, in one run.

The loop: for each prompt and number of draft tokens one ``mlx_lm.generate`` process with the draft
and one without, a warm-up and the same number of trials of each. Then the same sweep inside one
process, beside the sum of its own generations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_specgate import demo
from pytest_specgate.config.plan import SWEEP, Decoding, Inputs, Measure, ModelRef, Prompt
from pytest_specgate.demo.constructed import build
from pytest_specgate.engines.base import Generation
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from pytest_specgate.prompts import builtin

TOKENS = 32


class Summed(MlxLmPair):
    """Adds up what its generations take.

    Attributes:
        seconds: so far.
    """

    seconds = 0.0

    def generate(self, prompt: Sequence[int], decoding: Decoding, **how: Any) -> Generation:
        """See ``Pair.generate``."""
        begin = time.perf_counter()
        made = super().generate(prompt, decoding, **how)
        Summed.seconds += time.perf_counter() - begin
        return made


class SummedEngine(MlxLmEngine):
    """Loads such a pair."""

    def load(self, inputs: Inputs) -> MlxLmPair:
        """See ``Engine.load``."""
        pair = super().load(inputs)
        pair.__class__ = Summed
        return pair


def seconds_of(command: Sequence[str]) -> float:
    """Wall time of a command that must succeed."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # a gate may fail; that is no matter here
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-800:]}")
    return time.perf_counter() - begin


def loop(target: str, draft: str, prompts: Sequence[Prompt], trials: int) -> float:
    """What people run today."""
    total = 0.0
    for prompt in prompts:
        plain = [sys.executable, "-m", "mlx_lm", "generate", "--model", target, "--temp", "0"]
        plain += ["--max-tokens", str(TOKENS), "--prompt", prompt.text]
        for k in SWEEP:
            drafted = [*plain, "--draft-model", draft, "--num-draft-tokens", str(k)]
            for command in (plain, drafted):
                total += sum(seconds_of(command) for _ in range(trials + 1))
    return total


def sweep(folder: Path, target: str, draft: str, prompts: Sequence[Prompt], rounds: int) -> float:
    """The whole command, from the start of the interpreter to the reports."""
    lines = (json.dumps({"id": p.id, "kind": p.kind, "prompt": p.text}) for p in prompts)
    (folder / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "gates.yaml").write_text("version: 1\ngates: {recommended: {}}\n", encoding="utf-8")
    return seconds_of(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={folder}"),
            *(f"--spec-target={target}", f"--spec-draft={draft}", "--spec-sweep"),
            *(f"--spec-prompts={folder}/prompts.jsonl", f"--spec-max-tokens={TOKENS}"),
            *(f"--spec-rounds={rounds}:{rounds}", str(folder / "gates.yaml")),
        ]
    )


def overhead(target: ModelRef, draft: ModelRef, prompts: Sequence[Prompt], rounds: int) -> float:
    """Wall time of all rounds over the sum of their generations; loading is not part of it."""
    budgets = tuple(Prompt(p.id, p.text, p.kind, TOKENS) for p in prompts)
    inputs = Inputs(target, draft, budgets, SWEEP, Decoding(max_tokens=TOKENS))
    store = Store({"mlx-lm": SummedEngine}, Silent(), lambda _: None)
    store.pair(inputs)
    begin = time.perf_counter()
    store.campaign(inputs).rounds(inputs, Measure(1, rounds, rounds), lambda _: ())
    return (time.perf_counter() - begin) / Summed.seconds


def main() -> None:
    """Both ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5, help="trials of each (%(default)s)")
    parser.add_argument("--prompts", type=int, default=4, help="of the set smoke (%(default)s)")
    chosen = parser.parse_args()
    prompts = (builtin("smoke") or ())[:: 12 // chosen.prompts][: chosen.prompts]
    with tempfile.TemporaryDirectory() as name:
        build(Path(name), demo.recipe())
        target, draft = demo.demo_pair(Path(name))
        print(f"overhead {overhead(target, draft, prompts, chosen.rounds):.3f} (limit 1.05)")
        ours = sweep(Path(name), target.label, draft.label, prompts, chosen.rounds)
        print(f"sweep {ours:.1f} s", flush=True)
        theirs = loop(target.label, draft.label, prompts, chosen.rounds)
        print(f"loop {theirs:.1f} s; sweep / loop {ours / theirs:.3f} (limit 0.25)")


if __name__ == "__main__":
    main()

"""Cost of a large baseline: size of its file, seconds and memory to load and to compare it.

1,000 prompts of 512 tokens, two arms, 12 rounds. Each figure comes from a process of its own: CPU
seconds, which are those of the clock on an idle machine, and the peak memory of interpreter, numpy
and both loaded files together.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pytest_specgate.baseline.compare import compare
from pytest_specgate.baseline.document import Baseline, StoredArm, StoredBlocks, StoredCase
from pytest_specgate.baseline.files import Place, read, write
from pytest_specgate.gates.baseline import BaselineGate
from pytest_specgate.measure.blocks import count_blocks
from pytest_specgate.measure.trial import Trial

CASES, TOKENS, ROUNDS, K = 1000, 512, 12, 3
MOST_SECONDS, MOST_MEMORY, MOST_FILE = 1.0, 200e6, 20e6


def trial(rng: random.Random, number: int, seconds: float, *, drafted: bool) -> Trial:
    """One trial of about so many seconds, 5 % of noise."""
    seconds *= rng.lognormvariate(0, 0.05)
    first = seconds / TOKENS
    peak = 10**10 + rng.randrange(10**6)
    accepted = 300 if drafted else None
    rest = (TOKENS - 1, seconds - first)
    return Trial(number, TOKENS, first, seconds - first, seconds, rest, peak, accepted)


def made_up(seed: int) -> Baseline:
    """Outputs that are the same for every seed, times that are not."""
    outputs, times = random.Random(0), random.Random(seed)
    cases = {}
    for number in range(CASES):
        tokens = tuple(outputs.randrange(150_000) for _ in range(TOKENS))
        text = "".join(outputs.choice("abcdefgh ijkl\n") for _ in range(4 * TOKENS))
        flags = [outputs.random() < 0.6 for _ in range(TOKENS)]
        blocks = count_blocks(flags, num_draft_tokens=K, max_tokens=TOKENS, finish_reason="length")
        plain, ours = (
            tuple(trial(times, r, s, drafted=s == 2.0) for r in range(1, ROUNDS + 1))
            for s in (4.0, 2.0)
        )
        arms = {
            "plain": StoredArm(tokens, text, None, plain),
            f"k={K}": StoredArm(tokens, text, StoredBlocks.of(blocks), ours),
        }
        cases[f"p{number:04}"] = StoredCase("other", f"{number:016x}", "0" * 16, TOKENS, arms)
    models = {role: {"digest": role * 10} for role in ("target", "draft")}
    return Baseline({"versions": {"mlx": "1"}}, models, "fake", {}, cases)


def measured(folder: Path) -> dict[str, float]:
    """Load both files and compare them, in this process."""
    # numpy loads these two when they are first used; its import is no part of what is measured
    import numpy.ma
    import numpy.random  # noqa: F401

    began = time.process_time()
    then = read(folder / "a.json")
    loaded = time.process_time()
    now = read(folder / "b.json")
    both = time.process_time()
    found = compare(then, now, BaselineGate.defaults, K)
    ended = time.process_time()
    assert len(found.common) == CASES
    assert {figure.status for figure in found.figures} <= {"passed", "not judged"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "load_s": loaded - began,
        "compare_s": ended - both,
        "peak_bytes": peak * (1 if sys.platform == "darwin" else 1024),
    }


def main() -> int:
    """Print the figures; 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.inside:
        print(json.dumps(measured(chosen.inside)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, file in enumerate(("a.json", "b.json")):
            write(Place.of(folder / file, update=False), made_up(seed))
        size = (folder / "a.json").stat().st_size
        runs = []
        for _ in range(chosen.runs):
            command = [sys.executable, __file__, "--inside", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append(json.loads(done.stdout))
    runs.sort(key=lambda run: float(run["load_s"] + run["compare_s"]))
    middle = runs[len(runs) // 2]
    seconds, peak = middle["load_s"] + middle["compare_s"], max(r["peak_bytes"] for r in runs)
    print(f"file              {size / 1e6:6.1f} MB (limit {MOST_FILE / 1e6:.0f})")
    print(f"load one          {middle['load_s']:6.2f} s")
    print(f"compare           {middle['compare_s']:6.2f} s")
    print(f"load and compare  {seconds:6.2f} s (limit {MOST_SECONDS:.0f})")
    print(f"peak, two loaded  {peak / 1e6:6.0f} MB (limit {MOST_MEMORY / 1e6:.0f})")
    return int(size > MOST_FILE or seconds > MOST_SECONDS or peak > MOST_MEMORY)


if __name__ == "__main__":
    sys.exit(main())

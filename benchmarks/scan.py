"""One pass of a draft against real runs: equal blocks at every k, and what the pass costs.

The demo target with drafts of agreement 0.5, 0.85 and 1, on the prompts of ``smoke``. Each replay
is compared with a real speculative run, block for block, at k = 1 to 16; the passes of each draft
are timed in turn with the plain decodes of the same prompts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_specgate.engines.mlx_lm import MlxLmPair

MOST = 0.05  # of the time of the plain decodes
AGREEMENTS = (0.5, 0.85, 1.0)


def scanned(pair: MlxLmPair, tokens: int, rounds: int, most_k: int) -> tuple[int, int, float]:
    """(runs that are equal, runs in all, seconds of passes over seconds of plain decodes)."""
    from pytest_specgate.config.plan import Decoding
    from pytest_specgate.measure.blocks import blocks_of
    from pytest_specgate.measure.replay import Forced
    from pytest_specgate.prompts import builtin

    decoding, equal, runs = Decoding(), 0, 0
    plain_s, pass_s = [0.0] * rounds, [0.0] * rounds
    for prompt in builtin("smoke") or ():
        ids = pair.encode(prompt.text, {})
        for number in range(-1, rounds):  # the first one is warm-up
            plain = pair.generate(ids, decoding, max_tokens=tokens, num_draft_tokens=None)
            begin = time.perf_counter()
            choices = pair.choices(ids, plain.tokens, decoding)
            if number >= 0:
                pass_s[number] += time.perf_counter() - begin
                plain_s[number] += plain.token_times_s[-1] - plain.token_times_s[0]
        forced = Forced(prompt, plain, choices, tokens)
        for k in range(1, most_k + 1):
            real = pair.generate(ids, decoding, max_tokens=tokens, num_draft_tokens=k)
            equal += forced.blocks(k) == blocks_of(real, k, tokens)
            runs += 1
    return equal, runs, median(a / b for a, b in zip(pass_s, plain_s, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a draft; 1 when a block differs or a pass costs more than the limit."""
    from pytest_specgate.config.plan import Inputs, ModelRef
    from pytest_specgate.demo import recipe
    from pytest_specgate.demo.constructed import build
    from pytest_specgate.engines.mlx_lm import MlxLmEngine

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most-k", type=int, default=16)
    chosen = parser.parse_args(arguments)
    failed, engine = False, MlxLmEngine()
    with tempfile.TemporaryDirectory() as name:
        target = ModelRef("demo target", Path(name) / "1" / "target")
        for agreement in AGREEMENTS:
            folder = Path(name) / f"{agreement:g}"
            build(folder, replace(recipe(), agreement=agreement))  # the target is always the same
        for agreement in AGREEMENTS:
            draft = ModelRef(f"draft {agreement:g}", Path(name) / f"{agreement:g}" / "draft")
            pair = engine.load(Inputs(target, draft))
            equal, runs, ratio = scanned(pair, chosen.tokens, chosen.rounds, chosen.most_k)
            failed |= equal != runs or ratio > MOST
            print(
                f"{draft.name:<10} {equal} of {runs} runs equal block for block, "
                f"k = 1 to {chosen.most_k}; draft passes over plain decodes {ratio:.4f}, at most "
                f"{MOST}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

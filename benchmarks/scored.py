"""What the teacher-forced check costs: ``pair.score`` against plain decode of the same tokens.

Mode ``scored`` runs no plain decode, so this ratio is what it saves. The demo target is built in a
temporary folder; both sides are timed in turn, and the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

MOST = 0.35  # of the time of a plain decode, on a CPU


def measured(tokens: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of (plain decodes, teacher-forced passes), in turn, after one of each as warm-up."""
    from pytest_specgate.config.plan import Decoding, Inputs
    from pytest_specgate.demo import demo_pair, recipe
    from pytest_specgate.demo.constructed import build
    from pytest_specgate.engines.mlx_lm import MlxLmEngine
    from pytest_specgate.prompts import builtin

    (prompt, *_) = builtin("core") or ()
    decoding, plain, scored = Decoding(), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), recipe())
        pair = MlxLmEngine().load(Inputs(*demo_pair(Path(folder))))
        ids = pair.encode(prompt.text, {})
        for number in range(rounds + 1):
            found = pair.generate(ids, decoding, max_tokens=tokens, num_draft_tokens=None)
            begin = time.perf_counter()
            scores = pair.score(ids, found.tokens, decoding)
            seconds = time.perf_counter() - begin
            if scores is None or not len(scores.gaps) == len(found.tokens) == tokens:
                raise SystemExit(f"{len(found.tokens)} tokens of {tokens}, or not all scored")
            if number:
                plain.append(found.token_times_s[-1] - found.token_times_s[0])
                scored.append(seconds)
    return plain, scored


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both medians and their ratio; 1 when it is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args(arguments)
    plain, scored = measured(chosen.tokens, chosen.rounds)
    ratio = median(scored) / median(plain)
    for name, seconds in (("plain", plain), ("scored", scored)):
        spread = f"{min(seconds):.4f} .. {max(seconds):.4f}"
        print(f"{name:<7} median {median(seconds):.4f} s ({spread}), {chosen.tokens} tokens")
    print(f"scored / plain {ratio:.3f}, at most {MOST}")
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())

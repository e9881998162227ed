"""Whole sessions of the speedup gate on the embedded pair, without pytest.

The pair is loaded once. Every session has a fresh campaign: warm-up pass, rounds in the gate's own
order and number, the gate's own verdict at a limit of 1. Both arms take the same path, the plain
one unless told otherwise; a planted slowdown waits on the arm that stands for the speculative one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_specgate import demo
from pytest_specgate.config.plan import Decoding, Inputs, Measure, Prompt
from pytest_specgate.demo.constructed import build
from pytest_specgate.engines.base import Generation, Tick
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from pytest_specgate.gates.speedup import SpeedupGate
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from pytest_specgate.prompts import builtin

K = 3
OPTIONS: Mapping[str, Any] = {"min": 1.0, "statistic": "median", "margin": 0.03}
VERDICTS = ("failed", "passed", "inconclusive")


class BothAlike(MlxLmPair):
    """One path on either arm; the speculative arm then waits a share of its own time.

    Attributes:
        path: num_draft_tokens of the path, None for the plain one.
        wait_share: of the time of the call.
    """

    path: int | None = None
    wait_share = 0.0

    def generate(
        self,
        prompt: Sequence[int],
        decoding: Decoding,
        *,
        max_tokens: int,
        num_draft_tokens: int | None,
        observe: bool = False,
        tick: Tick | None = None,
    ) -> Generation:
        """See ``Pair.generate``; on the plain path every second flag is set: none would fail."""
        made = super().generate(
            prompt,
            decoding,
            max_tokens=max_tokens,
            num_draft_tokens=self.path,
            observe=observe,
            tick=tick,
        )
        if num_draft_tokens is None:
            return made
        wait = self.wait_share * made.e2e_s
        until = time.perf_counter() + wait
        # asleep for most of it, awake at the end: a sleep alone is too long by a tenth of a ms
        time.sleep(max(0.0, wait - 0.001))
        while time.perf_counter() < until:
            pass
        made = replace(made, e2e_s=made.e2e_s + wait)
        if self.path is not None:
            return made
        flags = tuple(i % 2 == 0 for i in range(len(made.tokens)))
        return replace(made, from_draft=flags, calls=None)


def interval(count: int, total: int) -> tuple[float, float]:
    """95 % by Clopper and Pearson."""
    from scipy.stats import binomtest

    found = binomtest(count, total).proportion_ci(0.95, method="exact")
    return float(found.low), float(found.high)


def session(store: Store, inputs: Inputs, measure: Measure) -> tuple[str, int]:
    """(verdict, rounds) of one session."""
    gate = SpeedupGate()
    evidence = store.fresh_campaign(inputs).rounds(
        inputs,
        measure,
        lambda seen: (K,) if gate.wants_rounds(seen, OPTIONS, measure.max_rounds) else (),
    )
    verdict = gate.judge(evidence, OPTIONS, f"k={K}")
    if verdict.observed is None:
        raise SystemExit(f"a session measured nothing: {verdict.reason}")
    return verdict.status, evidence.rounds


def add_mix(parser: argparse.ArgumentParser) -> None:
    """The options of ``mix``."""
    parser.add_argument("--prompts", type=int, default=12, help="how many (%(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of an output (%(default)s)")
    parser.add_argument("--characters", type=int, help="of a prompt at most (default: all)")


def mix(chosen: argparse.Namespace) -> tuple[Prompt, ...]:
    """The first of the set ``smoke``, or of ``core`` where it has too few."""
    smoke = builtin("smoke") or ()
    prompts = smoke if chosen.prompts <= len(smoke) else builtin("core") or ()
    return tuple(
        Prompt(p.id, p.text[: chosen.characters], p.kind, chosen.tokens)
        for p in prompts[: chosen.prompts]
    )


def described(chosen: argparse.Namespace) -> str:
    """The mix in words."""
    cut = f", their text cut to {chosen.characters} characters" if chosen.characters else ""
    return f"{chosen.prompts} prompts of {chosen.tokens} tokens{cut}"


def run(chosen: argparse.Namespace) -> None:
    """Both kinds of sessions, a row each; one session, one line on standard error.

    Args:
        chosen: the options of ``mix``; ``sessions``, ``planted`` (half as many where it is None),
            ``wait_share``, ``speculative``, ``first`` (the seed of the first session).
    """
    planted = chosen.sessions // 2 if chosen.planted is None else chosen.planted
    with tempfile.TemporaryDirectory() as name:
        build(Path(name), demo.recipe())
        target, draft = demo.demo_pair(Path(name))
        inputs = Inputs(target, draft, mix(chosen), (K,), Decoding(max_tokens=chosen.tokens))
        loaded = MlxLmEngine().load(inputs)
        pair = BothAlike(
            loaded.target, loaded.draft, loaded.tokenizer, loaded.draft_tokenizer, loaded.info
        )

        pair.path = K if chosen.speculative else None
        path = "speculative" if chosen.speculative else "plain"

        class Loaded(MlxLmEngine):
            def load(self, inputs: Inputs) -> MlxLmPair:
                return pair

        store = Store({"mlx-lm": Loaded}, Silent(), lambda _: None, preflight=False)
        print(
            f"{described(chosen)}; limit {OPTIONS['min']}, margin {OPTIONS['margin']:.0%}; 95 % "
            "intervals by Clopper and Pearson\n"
        )
        rows = {
            f"{path} against {path}": 0.0,
            f"planted +{chosen.wait_share:.0%}": chosen.wait_share,
        }
        seen: dict[str, list[tuple[str, int, float]]] = {label: [] for label in rows}
        begin = time.perf_counter()
        try:
            counts = dict(zip(rows, (chosen.sessions, planted), strict=True))
            for number, label in enumerate(alternating(counts), chosen.first):
                pair.wait_share, started = rows[label], time.perf_counter()
                # another seed, another order of prompts and arms
                decoding = replace(inputs.decoding, seed=number)
                status, rounds = session(store, replace(inputs, decoding=decoding), Measure())
                seen[label].append((status, rounds, time.perf_counter() - started))
                print(label, number, *seen[label][-1], file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: what was seen until then\n")
        print_table(seen)
        print(f"\n{(time.perf_counter() - begin) / 60:.1f} min after loading")


def alternating(counts: Mapping[str, int]) -> Iterator[str]:
    """Each label so often as asked, spread evenly: a drift of the machine meets every row."""
    places = ((i / count, label) for label, count in counts.items() for i in range(count))
    return (label for _, label in sorted(places))


def print_table(seen: Mapping[str, Sequence[tuple[str, int, float]]]) -> None:
    """A row each: what became of its sessions, with intervals."""
    print("| arm | sessions | failed | passed | inconclusive | mean rounds | seconds each |")
    print("|---|---|---|---|---|---|---|")
    for label, results in seen.items():
        if not results:
            continue
        count = len(results)
        cells = []
        for status in VERDICTS:
            times = sum(verdict == status for verdict, *_ in results)
            low, high = interval(times, count)
            cells.append(f"{times} ({low:.1%} to {high:.1%})")
        rounds = sum(number for _, number, _ in results) / count
        each = sum(seconds for *_, seconds in results) / count
        row = [label, str(count), *cells, f"{rounds:.1f}", f"{each:.1f}"]
        print(f"| {' | '.join(row)} |", flush=True)

"""Whole sessions of the gate ``against`` on the embedded pair: the same environment twice.

Both sides are workers of this interpreter, each in a process of its own, as ``--spec-against``
has them. The pair is loaded once a side. In a planted session the other side's speculative trials
take a share longer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo_sessions import K, add_mix, alternating, described, mix, print_table

from pytest_specgate import demo
from pytest_specgate.config.plan import Decoding, Inputs, Measure
from pytest_specgate.demo.constructed import build
from pytest_specgate.engines.base import Generation
from pytest_specgate.engines.isolated import IsolatedEngine, IsolatedPair
from pytest_specgate.environment import environment
from pytest_specgate.gates.against import AgainstGate
from pytest_specgate.measure.store import Other, Store
from pytest_specgate.measure.watch import Silent


class Slower(IsolatedPair):
    """Its speculative trials take a share longer, each token of them.

    Attributes:
        share: of the time of the call.
    """

    share = 0.0

    def generate(self, prompt: Sequence[int], decoding: Decoding, **how: Any) -> Generation:
        """See ``Pair.generate``."""
        made = super().generate(prompt, decoding, **how)
        if how["num_draft_tokens"] is None:
            return made
        factor = 1 + self.share
        times = tuple(seconds * factor for seconds in made.token_times_s)
        return replace(made, token_times_s=times, e2e_s=made.e2e_s * factor)


class SlowerEngine(IsolatedEngine):
    """Loads such a pair."""

    def load(self, inputs: Inputs) -> IsolatedPair:
        """See ``Engine.load``."""
        pair = super().load(inputs)
        pair.__class__ = Slower
        return pair


def session(store: Store, inputs: Inputs) -> tuple[str, int]:
    """(verdict, rounds) of one session at default limits and rounds."""
    gate, measure = AgainstGate(), Measure()
    evidence = store.fresh_campaign(inputs).rounds(
        inputs,
        measure,
        lambda seen: (K,) if gate.wants_rounds(seen, gate.defaults, measure.max_rounds) else (),
    )
    verdict = gate.judge(evidence, gate.defaults, f"k={K}")
    if not evidence.rounds:
        raise SystemExit(f"a session measured nothing: {verdict.reason}")
    return verdict.status, evidence.rounds


def main() -> None:
    """Both kinds of sessions, a row each; one session, one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=50, help="with no change (%(default)s)")
    parser.add_argument("--planted", type=int, default=40, help="slower ones (%(default)s)")
    parser.add_argument("--share", type=float, default=0.10, help="how much (%(default)s)")
    add_mix(parser)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        build(Path(name), demo.recipe())
        target, draft = demo.demo_pair(Path(name))
        decoding = Decoding(max_tokens=chosen.tokens)
        inputs = Inputs(target, draft, mix(chosen), (K,), decoding)
        ours, other = IsolatedEngine("popen"), SlowerEngine("popen")
        store = Store(
            {"mlx-lm": lambda: ours},
            Silent(),
            lambda _: None,
            preflight=False,
            against=Other("the same environment", lambda: other),
            facts=lambda: environment(None),
        )
        rows = {"no change": 0.0, f"planted +{chosen.share:.0%}": chosen.share}
        seen: dict[str, list[tuple[str, int, float]]] = {label: [] for label in rows}
        counts = dict(zip(rows, (chosen.sessions, chosen.planted), strict=True))
        begin = time.perf_counter()
        try:
            for number, label in enumerate(alternating(counts)):
                Slower.share, started = rows[label], time.perf_counter()
                decoding = replace(inputs.decoding, seed=number)
                status, rounds = session(store, replace(inputs, decoding=decoding))
                seen[label].append((status, rounds, time.perf_counter() - started))
                print(label, number + 1, *seen[label][-1], file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print("interrupted: what was seen until then\n")
        finally:
            store.close()
        print(f"{described(chosen)}; two workers, default limits and rounds\n")
        print_table(seen)
        print(f"\n{(time.perf_counter() - begin) / 60:.1f} min")


if __name__ == "__main__":
    main()

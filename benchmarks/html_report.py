"""The HTML report of many prompts: seconds to build it and bytes that it takes.

The session is made up, with the figures of a real one: two outputs of 256 tokens a prompt and
number of draft tokens, 12 rounds, some prompts that failed parity.
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

MOST_SECONDS, MOST_BYTES = 10.0, 5_000_000
KINDS = ("explain", "python", "json", "summary")


def session(prompts: int, ks: Sequence[int], failed: int) -> object:
    """A session of so many prompts, of which the first ``failed`` differ on every path."""
    from pytest_specgate.gates import builtin_gates
    from pytest_specgate.gates.base import judged
    from pytest_specgate.measure.evidence import Evidence
    from pytest_specgate.report.session_report import MeasuredPair, SessionReport
    from tests.fakes import make_arm, make_case, make_inputs, pair_info

    draw = random.Random(1)
    gates = {gate.name: gate for gate in builtin_gates()}
    cases = []
    for number in range(prompts):
        tokens = [draw.randrange(150_000) for _ in range(256)]
        text = " ".join(f"word{token % 997}" for token in tokens)
        plain = make_arm(None, [draw.gauss(6, 0.2) for _ in range(12)], tokens=tokens, text=text)
        arms = [plain]
        for k in ks:
            flags = [draw.random() < 0.7 for _ in tokens]
            other = number < failed
            arms.append(
                make_arm(
                    k,
                    [] if other else [draw.gauss(4, 0.2) for _ in range(12)],
                    tokens=[*tokens[:100], *(t + 1 for t in tokens[100:])] if other else tokens,
                    text=f"{text[:400]}{text[500:]}" if other else text,
                    flags=flags,
                )
            )
        cases.append(make_case(f"prompt-{number:04d}", *arms, kind=KINDS[number % len(KINDS)]))
    whole = tuple(cases)
    inputs = make_inputs(tuple(case.prompt for case in whole), *ks)
    evidence = Evidence(whole, inputs.decoding, pair_info(), inputs=inputs)
    parity = gates["parity"]
    verdicts = [
        judged(parity, replace(evidence, cases=(c,)), dict(parity.defaults), c.prompt.id)
        for c in whole
    ]
    for k in ks:
        for name in ("speedup", "latency", "acceptance"):
            gate = gates[name]
            verdicts.append(judged(gate, evidence.for_arm(k), dict(gate.defaults), f"k={k}"))
    return SessionReport(
        status="failed" if failed else "passed",
        environment={"versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2"}, "device": "made up"},
        measured=(MeasuredPair(inputs, pair_info(), whole),),
        verdicts=tuple(verdicts),
        item_names={name: gate.item for name, gate in gates.items()},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both figures of each session; 1 when one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="folder to keep the files in")
    chosen = parser.parse_args(arguments)
    from pytest_specgate.report.html import write_html
    from pytest_specgate.report.session_report import SessionReport

    over = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        for ks, failed in (((3,), 0), ((1, 2, 3, 5, 8), 0), ((1, 3, 5), chosen.prompts)):
            report = session(chosen.prompts, ks, failed)
            assert isinstance(report, SessionReport)
            path = folder / f"k{'-'.join(map(str, ks))}-failed{failed}.html"
            begin, busy = time.perf_counter(), time.process_time()
            write_html(report, path)
            seconds, size = time.perf_counter() - begin, path.stat().st_size
            busy = time.process_time() - busy
            over |= seconds >= MOST_SECONDS or size >= MOST_BYTES
            print(
                f"{chosen.prompts:,} prompts, k = {', '.join(map(str, ks))}, {failed:,} failed: "
                f"{seconds:.1f} s ({busy:.1f} s of CPU), {size:,} bytes"
            )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())

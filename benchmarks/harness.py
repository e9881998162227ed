"""What measuring costs beside the generations themselves, on the embedded pair.

``trial``: one timed trial inside the harness against a bare loop over ``stream_generate`` with the
same options, alternating. ``gate``: wall seconds of a whole session of gates against the sum of
its own generations, and of the same generations made by the bare loop; both after loading.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from pytest_specgate import demo
from pytest_specgate.config.plan import Decoding, Inputs, Measure, Prompt
from pytest_specgate.engines.mlx_lm import MlxLmEngine, MlxLmPair
from pytest_specgate.gates import builtin_gates
from pytest_specgate.measure.evidence import Evidence
from pytest_specgate.measure.store import Store
from pytest_specgate.measure.watch import Silent
from pytest_specgate.prompts import builtin

TOKENS, K, ROUNDS = 40, 3, 5


def bare(pair: MlxLmPair, ids: tuple[int, ...], k: int | None) -> float:
    """Wall seconds of the loop a user would write."""
    import mlx.core as mx
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_sampler

    options: dict[str, Any] = {"max_tokens": TOKENS, "sampler": make_sampler(temp=0.0)}
    options |= {"prefill_step_size": 2048}
    if k is not None:
        options |= {"draft_model": pair.draft, "num_draft_tokens": k}
    prompt = mx.array(list(ids))
    mx.eval(prompt)
    begin = time.perf_counter()
    for response in stream_generate(pair.target, pair.tokenizer, prompt, **options):
        response.token  # noqa: B018  # a user reads it
    return time.perf_counter() - begin


def trials(pair: MlxLmPair, ids: tuple[int, ...], pairs: int) -> None:
    """One timed trial inside the harness over the bare loop."""
    for k in (None, K):
        ratios, control = [], []
        for number in range(pairs):
            runs = {}
            names = ["bare", "bare again", "harness"]
            for name in names if number % 2 else reversed(names):
                if name == "harness":
                    runs[name] = pair.generate(
                        ids, Decoding(), max_tokens=TOKENS, num_draft_tokens=k
                    ).e2e_s
                else:
                    runs[name] = bare(pair, ids, k)
            ratios.append(runs["harness"] / runs["bare"])
            control.append(runs["bare again"] / runs["bare"])
        path = "plain" if k is None else f"k={k}"
        print(
            f"trial {path:<6} harness / bare {statistics.median(ratios):.4f}, "
            f"control bare / bare {statistics.median(control):.4f} ({pairs} pairs)"
        )


def gate(pair: MlxLmPair, inputs: Inputs) -> None:
    """A whole gate over the bare calls that it needs: the same trials, one load."""

    class Loaded(MlxLmEngine):
        def load(self, inputs: Inputs) -> MlxLmPair:
            return pair

    ids = {p.id: pair.encode(p.text, {}) for p in inputs.prompts}
    store = Store({"mlx-lm": Loaded}, Silent(), lambda _: None)
    measure = Measure(1, ROUNDS, ROUNDS)
    gates = {g.name: g for g in builtin_gates() if g.name in ("parity", "speedup", "latency")}
    bare_seconds = gate_seconds = 0.0
    begin = time.perf_counter()
    store.pair(inputs)
    gate_seconds -= time.perf_counter() - begin
    for half in range(2):  # the bare calls before and after, so that drift falls on both
        begin = time.perf_counter()
        for _ in range((ROUNDS + 1) // 2):
            for prompt in inputs.prompts:
                for k in (None, K):
                    bare(pair, ids[prompt.id], k)
        bare_seconds += time.perf_counter() - begin
        if half == 0:
            begin = time.perf_counter()
            evidence: Evidence = store.campaign(inputs).rounds(inputs, measure, lambda _: ())
            for name, judge in gates.items():
                if name == "parity":
                    for prompt in inputs.prompts:
                        one = store.campaign(inputs).evidence(inputs.only(prompt))
                        judge.judge(one, judge.defaults, prompt.id)
                else:
                    judge.judge(evidence, judge.defaults, f"k={K}")
            gate_seconds = time.perf_counter() - begin
    print(
        f"gate  {gate_seconds:.2f} s over bare calls {bare_seconds:.2f} s: "
        f"{gate_seconds / bare_seconds:.4f} ({len(inputs.prompts)} prompts, {ROUNDS} rounds + 1)"
    )


def main() -> None:
    """Run both on the embedded pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        from pytest_specgate.demo.constructed import build

        build(Path(name), demo.recipe())
        target, draft = demo.demo_pair(Path(name))
        prompts = tuple(Prompt(p.id, p.text, p.kind, TOKENS) for p in builtin("smoke") or ())
        inputs = Inputs(target, draft, prompts, (K,))
        pair = MlxLmEngine().load(inputs)
        ids = pair.encode(prompts[0].text, {})
        bare(pair, ids, None)
        bare(pair, ids, K)
        trials(pair, ids, arguments.pairs)
        for _ in range(arguments.repeats):
            gate(pair, inputs)


if __name__ == "__main__":
    main()

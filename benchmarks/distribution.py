"""What the gate ``distribution`` finds: planted faults, its power, and its false alarms.

``--faults N`` runs each planted fault, and the sound pair, N times with other seeds. ``--power N``
computes the exact law of the demo pair's first two tokens, plants a total-variation distance of 0.1
by mixing, and simulates N sessions of the default number of seeds. ``--alarms N`` runs N sound
tiny pairs, each of other weights, through the whole gate with few seeds; its level does not depend
on their number.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_specgate.gates.base import Verdict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# pair -> temperature, prompts, tokens: 256 tokens of about a nat of entropy; 768 whose every second
# proposal is refused, since only these tell whether one was checked
RUNS = {"dense": (0.3, 8, 32), "half": (1.5, 16, 48)}
# fault -> pair, engine of the museum, kind
FAULTS = {
    "none": ("dense", "museum", None),
    "none, half of the proposals wrong": ("half", "museum", None),
    "logprobs of a cache one token short": ("dense", "short-cache", "logprobs-differ"),
    "temperature 1 for 0.3, speculative path": ("dense", "hot", "sampler-differs"),
    "temperature 1 for 0.3, plain path": ("dense", "hot-plain", "sampler-differs"),
    "2 % of proposals accepted unchecked": ("half", "unchecked", "unchecked-drafts"),
}
DISTANCE = 0.1
DEMO_TEMPERATURES = (1.0, 2.0, 2.5)
MOST_ALARMS, LEAST_POWER = 0.01, 0.95


def interval(count: int, total: int) -> str:
    """The share with its 95 % interval by Clopper and Pearson."""
    from scipy.stats import binomtest

    found = binomtest(count, total).proportion_ci(0.95, method="exact")
    return f"{count} of {total} ({found.low:.1%} to {found.high:.1%})"


def verdict_of(
    folder: Path, engine: str, seed: int, size: tuple[float, int, int], few: dict[str, Any]
) -> Verdict:
    """One run of the gate on the pair of a folder, at this temperature, prompts and tokens."""
    from pytest_specgate.config.plan import Decoding
    from pytest_specgate.gates.distribution import DistributionGate
    from pytest_specgate.measure.store import Store
    from pytest_specgate.measure.watch import Silent
    from tests.museum.campaigns import inputs_of, prompt_ids
    from tests.museum.engines import engines

    temperature, prompts, tokens = size
    gate = DistributionGate()
    options = {**gate.defaults, **few}
    texts = [prompt_ids(1000 * seed + i, 5 + i) for i in range(prompts)]
    inputs = inputs_of(folder, texts, k=(3,), max_tokens=tokens, engine=engine)
    decoding = Decoding(max_tokens=tokens, temperature=temperature, seed=seed)
    inputs = gate.asks(options, replace(inputs, decoding=decoding))
    campaign = Store(engines(), Silent(), lambda _: None, preflight=False).campaign(inputs)
    return gate.judge(campaign.distribution_pass(inputs), options, "k=3")


def faults(runs: int) -> bool:
    """The table of planted faults; were all caught, and nothing else?"""
    from pytest_specgate.demo.constructed import PairRecipe, build
    from tests.museum.pairs import pair_folder

    right = True
    print(f"| planted fault | failed by its tokens, of {runs} runs | as |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folders = {"dense": pair_folder(Path(name), "dense"), "half": Path(name) / "half"}
        build(folders["half"], PairRecipe(agreement=0.5, target_layers=2))
        for fault, (pair, engine, kind) in FAULTS.items():
            # so small a chance of an alarm by the draws that the tokens decide
            few = {"seeds": 20, "prompts": 1, "distance": 1.0, "false_alarm": 0.001}
            found = [
                verdict_of(folders[pair], engine, seed, RUNS[pair], few) for seed in range(runs)
            ]
            kinds = Counter(verdict.kind for verdict in found)
            caught = sum(v.status == "failed" and v.kind != "draws-differ" for v in found)
            right &= kinds == {kind: runs}
            words = ", ".join(f"{one or 'passed'} {n}" for one, n in kinds.items())
            print(f"| {fault} | {caught} | {words} |", flush=True)
    return right


class JointLaw:
    """The exact law of the first two tokens after a prompt, of a target that reads one token alone.

    The demo target does: so the second token's law needs no prompt.
    """

    def __init__(self, target: Any, prompt: Sequence[int]) -> None:
        import mlx.core as mx
        import numpy as np

        def logits(rows: list[list[int]]) -> Any:
            return np.array(target(mx.array(rows))[:, -1, :].astype(mx.float32))

        self._first = logits([list(prompt)])
        self.size = self._first.shape[-1]
        self._second = logits([[token] for token in range(self.size)])
        if not np.allclose(self._second[prompt[-1]], self._first[0], atol=1e-3):
            raise SystemExit("this target reads more than the last token")

    def at(self, temperature: float) -> None:
        """Set ``joint``, the chances of all pairs of tokens in a row."""
        import numpy as np

        first, second = (
            np.exp((one - one.max(axis=-1, keepdims=True)) / temperature).astype(np.float64)
            for one in (self._first, self._second)
        )
        joint = first.T / first.sum() * second / second.sum(axis=-1, keepdims=True)
        self.joint = joint.ravel()

    def cells(self, summed: Any, rng: Any, count: int) -> list[tuple[int, int]]:
        """Draws by a law over the same cells, whose cumulative sum is given."""
        import numpy as np

        drawn = np.searchsorted(summed, rng.random(count) * summed[-1], side="right")
        return [divmod(int(cell), self.size) for cell in np.minimum(drawn, len(summed) - 1)]


def planted(ours: JointLaw, other: JointLaw) -> dict[str, Any]:
    """Name -> a law at the distance ``DISTANCE`` of ours."""
    import numpy as np

    apart = np.abs(ours.joint - other.joint).sum() / 2
    mixed = ours.joint + (other.joint - ours.joint) * DISTANCE / apart
    moved = ours.joint.copy()
    top = moved.argmax()
    moved[top] = 0
    moved *= 1 + DISTANCE / moved.sum() if moved.sum() > DISTANCE else 0
    if moved.sum() == 0:  # all but one token are rarer than the distance
        moved = ours.joint * (1 - DISTANCE)
        moved[(top + 1) % len(moved)] += DISTANCE
    else:
        moved[top] = ours.joint[top] - DISTANCE
    return {"another prompt's law mixed in": mixed, "from the likeliest cell to all others": moved}


def power(sessions: int) -> bool:
    """How often the default number of seeds sees the distance, and fails without it."""
    import numpy as np

    from pytest_specgate.config.plan import Inputs
    from pytest_specgate.demo import demo_pair, recipe
    from pytest_specgate.demo.constructed import build
    from pytest_specgate.engines.mlx_lm import MlxLmEngine
    from pytest_specgate.gates.distribution import DRAWN, DistributionGate
    from pytest_specgate.prompts import builtin
    from pytest_specgate.stats.twosample import compare_samples

    options = DistributionGate.defaults
    seeds, level = options["seeds"], options["false_alarm"] * DRAWN
    right = True
    print(f"\n{options['prompts']} prompts, {seeds} seeds an arm, level {level:.2%}")
    print("| temperature | planted | distance | p at most the level | stated power |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        build(Path(name), recipe())
        pair = MlxLmEngine().load(Inputs(*demo_pair(Path(name))))
        prompts = list(builtin("smoke") or ())
        spread = [
            prompts[i * len(prompts) // options["prompts"]] for i in range(options["prompts"])
        ]
        laws = [JointLaw(pair.target, pair.encode(p.text, {})) for p in spread]
        for temperature in DEMO_TEMPERATURES:
            for law in laws:
                law.at(temperature)
            arms = [planted(law, laws[i - 1]) for i, law in enumerate(laws)]
            for kind in ("nothing", *arms[0]):
                rng = np.random.default_rng(0)
                caught, seen = 0, []
                chosen = [
                    law.joint if kind == "nothing" else arm[kind]
                    for law, arm in zip(laws, arms, strict=True)
                ]
                apart = max(
                    np.abs(law.joint - one).sum() / 2 for law, one in zip(laws, chosen, strict=True)
                )
                sums = [
                    (np.cumsum(law.joint), np.cumsum(one))
                    for law, one in zip(laws, chosen, strict=True)
                ]
                for session in range(sessions):
                    plain, ours = (
                        [
                            law.cells(both[side], rng, seeds)
                            for law, both in zip(laws, sums, strict=True)
                        ]
                        for side in (0, 1)
                    )
                    test = compare_samples(plain, ours, level, session)
                    caught += test.p_value <= level
                    seen.append(test.seen)
                if kind != "nothing":
                    right &= caught >= LEAST_POWER * sessions
                print(
                    f"| {temperature:g} | {kind} | {apart:.3f} | {interval(caught, sessions)} "
                    f"| {np.median(seen):.3f} in 95 % |",
                    flush=True,
                )
    return right


def alarms(runs: int) -> bool:
    """Sound tiny pairs of other weights each."""
    from tests.models import dense_config, save_pair

    begin, failed, others = time.monotonic(), 0, Counter[str]()
    config = {**dense_config(), "num_hidden_layers": 1}
    for run in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = save_pair(Path(name), config, noise=0.1, seed=run)
            few = {"seeds": 20, "prompts": 2, "distance": 1.0}
            verdict = verdict_of(folder, "museum", run, (0.3, 2, 8), few)
        failed += verdict.status == "failed"
        others[verdict.status] += 1
        if verdict.status != "passed":
            print(f"run {run}: {verdict.status}: {verdict.reason}", flush=True)
        if (run + 1) % 25 == 0 or run + 1 == runs:
            seconds = time.monotonic() - begin
            words = ", ".join(f"{status} {n}" for status, n in others.items())
            print(f"false alarms {interval(failed, run + 1)}; {words}; {seconds:.0f} s", flush=True)
    return failed <= MOST_ALARMS * runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, or all; 1 where a figure misses what it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int)
    parser.add_argument("--power", type=int)
    parser.add_argument("--alarms", type=int)
    chosen = parser.parse_args(arguments)
    asked = {"faults": chosen.faults, "power": chosen.power, "alarms": chosen.alarms}
    if not any(asked.values()):
        asked = {"faults": 20, "power": 400, "alarms": 300}
    parts = {"faults": faults, "power": power, "alarms": alarms}
    right = [parts[name](number) for name, number in asked.items() if number]
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())

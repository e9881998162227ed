"""How often the decisions err: tables of simulated sessions, and sessions of the embedded pair.

``--demo`` runs whole sessions of the speedup gate on the embedded pair instead: two equal arms, and
a planted slowdown of one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import demo_sessions
from today import BLOCK_DRIFT, TOOLS, first_estimator, first_rule

from pytest_specgate.stats import Centres, speedup_centres
from tests.simulation import (
    MARGIN,
    MOST_ROUNDS,
    Floats,
    Noise,
    Shares,
    change_sessions,
    p95_sessions,
    speedup_sessions,
)

# true speedup over the limit; the third is where the error of a false pass is stated
EFFECTS = {"+3 %": 1.03, "at the limit": 1.0, "-3 %": 1 / (1 + MARGIN), "-6 %": 1 / 1.06}
CONTINUED = {name: EFFECTS[name] for name in ("at the limit", "-3 %")}
PROMPTS, VARIATIONS, DOUBLED = (1, 4, 12, 24), (0.02, 0.05, 0.10), (0.05, 0.0)
BATCH = 2000  # sessions at a time: bounds the memory


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def merged(parts: Sequence[Shares]) -> Shares:
    """Of batches of equal size."""
    count = len(parts)
    return Shares(
        sum(p.failed for p in parts) / count,
        sum(p.passed for p in parts) / count,
        sum(p.rounds for p in parts) / count,
    )


def both_rules(
    rng: np.random.Generator, noise: Noise, prompts: int, runs: int
) -> tuple[list[Shares], list[Shares]]:
    """(this rule, the first one), an effect each, on the very same sessions."""
    ours, first = [], []
    for _ in range(-(-runs // BATCH)):
        arms = noise.arms(rng, (min(runs, BATCH), prompts, MOST_ROUNDS))
        ours.append(speedup_sessions(arms, EFFECTS.values()))
        first.append(
            speedup_sessions(arms, EFFECTS.values(), estimator=first_estimator, rule=first_rule)
        )
    return (
        [merged(cell) for cell in zip(*ours, strict=True)],
        [merged(cell) for cell in zip(*first, strict=True)],
    )


def speedup_tables(rng: np.random.Generator, runs: int) -> None:
    """Every cell, this rule and the first one."""
    rows: dict[str, list[list[str]]] = {"this rule": [], "the first rule": []}
    for doubled in DOUBLED:
        for prompts in PROMPTS:
            for variation in VARIATIONS:
                cells = both_rules(rng, Noise(variation, doubled), prompts, runs)
                label = [f"{doubled:.0%}", str(prompts), f"{variation:.0%}"]
                for name, shares in zip(rows, cells, strict=True):
                    rows[name].append([*label, *map(str, shares)])
    for name, body in rows.items():
        print(f"\n{name}: % failed/passed/inconclusive, mean rounds ({runs} sessions a cell)\n")
        print(markdown(["doubled", "J", "CV", *EFFECTS], body))


def continued_table(rng: np.random.Generator, runs: int) -> None:
    """Undecided samples that up to three further sessions go on with; 5 % of trials doubled."""
    most = [MOST_ROUNDS * sessions for sessions in range(1, 5)]
    rows = []
    for prompts, variation in ((1, 0.05), (4, 0.05), (4, 0.10), (12, 0.05), (12, 0.10)):
        plain, ours = Noise(variation).arms(rng, (runs, prompts, most[-1]))
        looks = [
            speedup_sessions((plain[..., :rounds], ours[..., :rounds]), CONTINUED.values())
            for rounds in most
        ]
        for effect, cells in zip(CONTINUED, zip(*looks, strict=True), strict=True):
            rows.append([str(prompts), f"{variation:.0%}", effect, *map(str, cells)])
    print(f"\nContinued: % failed/passed/inconclusive, mean rounds ({runs} samples a cell)\n")
    print(markdown(["J", "CV", "truth", *(f"{rounds} rounds" for rounds in most)], rows))


def p95_table(seed: int | None, runs: int) -> None:
    """No change, at the end of the tolerance, and 10 % slower; 60 trials an arm."""
    rows = []
    for noise in (Noise(0.03, 0.0), Noise(0.05, 0.0), Noise(0.05)):
        cells = [
            p95_sessions(noise, effect, sessions=runs, prompts=12, rounds=5, seed=seed)
            for effect in (1.0, 1.05, 1.1)
        ]
        rows.append([f"{noise.variation:.0%}", f"{noise.doubled:.0%}", *map(str, cells)])
    print(f"\np95: % failed/passed/inconclusive, rounds ({runs} sessions a cell), 12 prompts\n")
    print(markdown(["CV", "doubled", "no change", "+5 %", "+10 %"], rows))


def of_ratios(before: Floats, after: Floats) -> Centres:
    """As the gate ``against`` has it, whose changes of a speedup are ratios of four trials."""
    return speedup_centres(before - after)


def change_tables(rng: np.random.Generator, runs: int) -> None:
    """Against another environment, paired; and against a stored session. Limit 5 % slower."""
    effects = {"no change": 1.0, "at the limit": 1.05, "+10 %": 1.1}
    paired, stored = [], []
    for prompts in (1, 4, 12):
        for variation in VARIATIONS:
            noise, label = Noise(variation), [str(prompts), f"{variation:.0%}"]
            arms = noise.arms(rng, (runs, prompts, MOST_ROUNDS))
            truths = [1.05 / effect for effect in effects.values()]
            shares = speedup_sessions(arms, truths, estimator=of_ratios, margin=0.0)
            paired.append([*label, *map(str, shares)])
            cells = [
                change_sessions(
                    noise,
                    effect,
                    sessions=min(runs, 500),
                    prompts=prompts,
                    stored_rounds=8,
                    seed=int(rng.integers(2**32)),
                )
                for effect in effects.values()
            ]
            stored.append([*label, *map(str, cells)])
    words = "% failed/passed/inconclusive, mean rounds; 5 % of trials doubled"
    print(f"\nAgainst another environment: {words} ({runs} sessions a cell)\n")
    print(markdown(["J", "CV", *effects], paired))
    print(f"\nAgainst a stored session of 8 rounds: {words} ({min(runs, 500)} sessions a cell)\n")
    print(markdown(["J", "CV", *effects], stored))


def tools_table(rng: np.random.Generator, runs: int) -> None:
    """What people use today, on 12 rounds of 12 prompts."""
    rows = []
    for variation in VARIATIONS:
        noise, shape = Noise(variation), (runs, 12, MOST_ROUNDS)
        plain, speculative = noise.log_seconds(rng, shape), noise.log_seconds(rng, shape)
        drift = rng.normal(0, BLOCK_DRIFT * 2**0.5, (runs, 1, 1))
        for name, (tool, blocks) in TOOLS.items():
            cells = []
            for effect in EFFECTS.values():
                seconds: Floats = speculative - np.log(effect) + (drift if blocks else 0)
                failed = float(tool(plain, seconds).mean())
                cells.append(f"{100 * failed:.1f}/{100 - 100 * failed:.1f}")
            rows.append([name, f"{variation:.0%}", *cells])
    print(
        f"\nToday's tools: % failed/passed, 12 prompts, 12 rounds, 5 % doubled ({runs} sessions)\n"
    )
    print(markdown(["tool", "CV", *EFFECTS], rows))


def plots(rng: np.random.Generator, runs: int, folder: Path) -> None:
    """Verdicts and rounds over the true effect, as SVG; J = 12, CV 5 %, 5 % doubled."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "specgate", "font.size": 9}
    from matplotlib import pyplot

    effects = np.exp(np.linspace(-0.08, 0.06, 57))
    arms = Noise(0.05).arms(rng, (runs, 12, MOST_ROUNDS))
    ours = speedup_sessions(arms, effects)
    first = speedup_sessions(arms, effects, estimator=first_estimator, rule=first_rule)
    percent = 100 * (effects - 1)

    figure, axes = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    for name, colour in (("failed", "#c33"), ("passed", "#283"), ("inconclusive", "#a80")):
        axes.plot(percent, [100 * getattr(s, name) for s in ours], color=colour, label=name)
        axes.plot(percent, [100 * getattr(s, name) for s in first], color=colour, ls=":", lw=1)
    axes.axvline(0, color="#888", lw=0.8)
    axes.axvline(100 / (1 + MARGIN) - 100, color="#888", lw=0.8, ls="--")
    axes.set(xlabel="true speedup over the limit, %", ylabel="% of sessions")
    axes.legend(frameon=False, title="dotted: first rule")
    figure.savefig(folder / "operating-curve.svg", metadata={"Date": None})

    figure, axes = pyplot.subplots(figsize=(6, 2.8), layout="constrained")
    axes.plot(percent, [s.rounds for s in ours], color="#247", label="this rule")
    axes.plot(percent, [s.rounds for s in first], color="#247", ls=":", lw=1, label="first rule")
    axes.set(xlabel="true speedup over the limit, %", ylabel="mean rounds", ylim=(4, 12.5))
    axes.legend(frameon=False)
    figure.savefig(folder / "mean-rounds.svg", metadata={"Date": None})


def main() -> None:
    """Print the tables, draw the plots, or run sessions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=BATCH, help="sessions a cell (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the simulation (default: a fresh one)")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write the plots there")
    parser.add_argument("--demo", action="store_true", help="sessions of the embedded pair instead")
    parser.add_argument("--sessions", type=int, default=100, help="of two equal arms")
    parser.add_argument("--planted", type=int, help="with the slowdown (default: half as many)")
    parser.add_argument(
        "--speculative", action="store_true", help="both arms take the speculative path: shorter"
    )
    parser.add_argument("--wait-share", type=float, default=0.06, help="the slowdown: %(default)s")
    parser.add_argument("--first", type=int, default=0, help="seed of the first session")
    demo_sessions.add_mix(parser)
    chosen = parser.parse_args()
    if chosen.demo:
        demo_sessions.run(chosen)
        return
    rng = np.random.default_rng(chosen.seed)
    speedup_tables(rng, chosen.runs)
    continued_table(rng, chosen.runs)
    p95_table(chosen.seed, chosen.runs)
    change_tables(rng, chosen.runs)
    tools_table(rng, chosen.runs)
    if chosen.plots:
        plots(rng, chosen.runs, chosen.plots)


if __name__ == "__main__":
    main()

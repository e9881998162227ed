"""The museum under several releases of mlx-lm: a table of release, case, verdict and kind.

The models are saved once, with the current release, and loaded under every release, since random
initialisation differs between them. Environments are made with uv. ``--clean N`` also looks for
false alarms in N runs of sound pairs, ``--near-ties N`` only counts what rounding and a planted
fault are called until N outputs of each have parted; both in the current environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# release -> the day whose dependencies it is run with; None for the newest
RELEASES: Mapping[str, str | None] = {
    "0.28.4": "2025-12-10",
    "0.30.7": "2026-02-20",
    "0.31.1": "2026-03-20",
    "0.31.3": "2026-05-05",
    "newest": None,
}
MLX = "mlx[cpu]" if sys.platform == "linux" else "mlx"
NEEDS = (MLX, "execnet", "pytest>=8.2", "pluggy", "psutil", "pyyaml", "tabulate")
# pre-flight stops these: what comes of them without it differs between releases
STOPPED = (
    "window-crossed-short",
    "prompt-over-window",
    "hybrid-target",
    "ssm-target",
    "ssm-draft",
    "vocab-larger-draft",
    "tokenizer-shifted",
)
OFF = " (no pre-flight)"
# what is simulated, on which pair, by which engine of the museum, with which k
ROUNDING = (
    ("rounding, eps 1e-3", "flat", "near-tie-small", 2),
    ("rounding, eps 1e-2", "dense", "near-tie", 2),
    ("rounding, eps 1e-1", "dense", "near-tie-large", 2),
)
PLANTED = (
    ("fault in 1 row of 50", "flat", "wide-fault", 3),
    ("fault in 1 row of 50", "dense", "wide-fault", 3),
)
NAMED = 0.95  # the least share of parted outputs to be called near ties
BATCH, MOST_PROMPTS = 10, 20  # prompts at once, and for each parted output that is wanted


def save_models(models: Path) -> None:
    """Every pair, once."""
    from tests.museum.pairs import BUILDERS, pair_folder

    for name in BUILDERS:
        pair_folder(models, name)


def make_environment(folder: Path, release: str, day: str | None) -> Path:
    """A virtual environment with one release and this project; gives its python."""
    python = folder / "bin" / "python"
    wanted = "mlx-lm" if day is None else f"mlx-lm=={release}"
    until = [] if day is None else ["--exclude-newer", day]
    install = ["uv", "pip", "install", "--quiet", "--python", str(python)]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for command in (
        ["uv", "venv", "--quiet", "--python", version, str(folder)],
        [*install, wanted, *NEEDS, *until],
        [*install, "--no-deps", str(ROOT)],
    ):
        subprocess.run(command, check=True)
    return python


def visit(python: Path, models: Path, name: str, *, preflight: bool) -> str:
    """One case under one interpreter, in words."""
    from tests.museum.cases import CASES
    from tests.museum.sessions import Outcome

    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        arguments = CASES[name].arguments(models, here, preflight=preflight)
        # the folder of the project holds the museum
        ended = subprocess.run(
            [str(python), "-m", "pytest", "--rootdir", place, *arguments],
            cwd=here,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode < 0:
            return f"ended by signal {-ended.returncode}"
        return Outcome.read(ended.returncode, here).in_words()


def rows() -> list[tuple[str, bool]]:
    """(case, with pre-flight) of every row."""
    from tests.museum.cases import CASES

    return [
        (name, preflight)
        for name in CASES
        for preflight in ((True, False) if name in STOPPED else (True,))
    ]


def table(seen: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: a row a case, a column a release; a cell like the one before it is a ditto."""
    releases = list(seen)
    lines = [f"| case | {' | '.join(releases)} |", "|---" * (len(releases) + 1) + "|"]
    for row in next(iter(seen.values())):
        cells = [seen[release][row] for release in releases]
        same = ['"' if i and cell == cells[i - 1] else cell for i, cell in enumerate(cells)]
        lines.append(f"| {row} | {' | '.join(same)} |")
    return "\n".join(lines)


def clean_runs(runs: int) -> int:
    """The exit code of the clean pairs' tests, at so many runs."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/museum/test_clean_pairs.py"],
        cwd=ROOT,
        env={**os.environ, "SPECGATE_CLEAN_RUNS": str(runs)},
        check=False,
    ).returncode


def near_ties(models: Path, wanted: int) -> int:
    """Print what so many parted outputs are called; 1 where rounding passes for a fault or back."""
    from tests.museum.campaigns import inputs_of, judged, kinds, measured, prompt_ids
    from tests.museum.pairs import pair_folder

    wrong = 0
    print("| simulated | pair | prompts | parted | near-tie | share | others |")
    print("|---" * 7 + "|", flush=True)
    for what, pair, engine, k in (*ROUNDING, *PLANTED):
        folder, prompts, named = pair_folder(models, pair), 0, list[str | None]()
        while len(named) < wanted and prompts < MOST_PROMPTS * wanted:
            texts = [prompt_ids(prompts + i, 5 + (prompts + i) % 40) for i in range(BATCH)]
            inputs = inputs_of(folder, texts, k=(k,), max_tokens=60, engine=engine)
            named += kinds(judged(measured(inputs)).values())
            prompts += BATCH
        parted, ties = len(named), named.count("near-tie")
        others = ", ".join(sorted({str(kind) for kind in named} - {"near-tie"})) or "none"
        share = f"{ties / parted:.1%}" if parted else "-"
        print(
            f"| {what} | {pair} | {prompts} | {parted} | {ties} | {share} | {others} |", flush=True
        )
        rounded = (what, pair, engine, k) in ROUNDING
        wrong += parted < wanted or (ties < NAMED * parted if rounded else ties > 0)
    return int(wrong > 0)


def told_apart(seen: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What the table must show of the releases and does not."""
    wrong = []
    for release, cells in seen.items():
        number = (1,) if release == "newest" else tuple(map(int, release.split(".")))
        state = "refused" if number >= (0, 31, 2) else "failed/cache-corruption"
        alike = (0, 31, 2) <= number < (0, 32)  # neither path's processors see the prompt
        known = {
            f"hybrid-target{OFF}": state,
            f"ssm-target{OFF}": state,
            "penalty": "passed" if alike else "failed/options-differ",
        }
        wrong += [
            f"{row} under {release}: {cells[row]}"
            for row, words in known.items()
            if row in cells and not cells[row].startswith(words)
        ]
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments, run the museum under each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--releases", default=",".join(RELEASES), help="of: %(default)s")
    parser.add_argument("--cases", help="only these cases, comma between (default: all)")
    parser.add_argument("--environments", type=Path, help="keep and reuse them here")
    parser.add_argument("--json", type=Path, help="write the table's cells here")
    parser.add_argument("--clean", type=int, default=0, metavar="N", help="runs of sound pairs")
    parser.add_argument("--near-ties", type=int, default=0, metavar="N", help="parted outputs")
    chosen = parser.parse_args(arguments)
    cases = chosen.cases.split(",") if chosen.cases else [name for name, _ in rows()]
    with tempfile.TemporaryDirectory() as place:
        models = Path(place) / "models"
        if chosen.near_ties:
            return near_ties(models, chosen.near_ties)
        save_models(models)
        environments = chosen.environments or Path(place) / "environments"
        seen: dict[str, dict[str, str]] = {}
        for release in chosen.releases.split(","):
            folder = (environments / release).resolve()
            python = folder / "bin" / "python"
            if not python.exists():
                make_environment(folder, release, RELEASES[release])
            cells = seen[release] = {}
            for name, preflight in rows():
                if name in cases:
                    row = name if preflight else name + OFF
                    cells[row] = visit(python, models, name, preflight=preflight)
                    print(f"{release:<8} {row:<40} {cells[row]}", file=sys.stderr, flush=True)
    print(table(seen))
    if chosen.json:
        chosen.json.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    wrong = told_apart(seen)
    for line in wrong:
        print(f"NOT AS KNOWN: {line}")
    return int(bool(wrong)) or (clean_runs(chosen.clean) if chosen.clean else 0)


if __name__ == "__main__":
    sys.exit(main())

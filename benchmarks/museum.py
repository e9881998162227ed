"""The museum under several releases of mlx-lm: a table of release, case, verdict and kind.

The models are saved once, with the current release, and loaded under every release, since random
initialisation differs between them. Environments are made with uv. ``--clean N`` also looks for
false alarms in N runs of sound pairs, in the current environment.
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
NEEDS = (MLX, "pytest>=8.2", "pluggy", "psutil", "pyyaml", "tabulate")
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


def told_apart(seen: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What the table must show of a hybrid target and does not."""
    row, wrong = f"hybrid-target{OFF}", []
    for release, cells in seen.items():
        refused = release == "newest" or tuple(map(int, release.split("."))) >= (0, 31, 2)
        found = cells.get(row, "")
        if not found.startswith("refused" if refused else "failed/cache-corruption"):
            wrong.append(f"{row} under {release}: {found}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments, run the museum under each, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--releases", default=",".join(RELEASES), help="of: %(default)s")
    parser.add_argument("--cases", help="only these cases, comma between (default: all)")
    parser.add_argument("--environments", type=Path, help="keep and reuse them here")
    parser.add_argument("--json", type=Path, help="write the table's cells here")
    parser.add_argument("--clean", type=int, default=0, metavar="N", help="runs of sound pairs")
    chosen = parser.parse_args(arguments)
    cases = chosen.cases.split(",") if chosen.cases else [name for name, _ in rows()]
    with tempfile.TemporaryDirectory() as place:
        models = Path(place) / "models"
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
    wrong = told_apart(seen) if "hybrid-target" in cases else []
    for line in wrong:
        print(f"NOT AS KNOWN: {line}")
    return int(bool(wrong)) or (clean_runs(chosen.clean) if chosen.clean else 0)


if __name__ == "__main__":
    sys.exit(main())

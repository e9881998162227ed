"""``python -m pytest_specgate``: compare, show and migrate stored baselines without any model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .baseline.compare import compare
from .baseline.document import Baseline, BaselineError
from .baseline.files import Place, read, write
from .baseline.tables import compared_lines, markdown_of, shown_baseline
from .config.gates_file import read_gates_file
from .config.spec import ConfigError
from .gates import builtin_gates
from .measure.evidence import PLAIN

USAGE = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0; 1 where a figure is worse than its limit or a file is no baseline; 4 for a wrong call.
    """
    parser = argparse.ArgumentParser(prog="python -m pytest_specgate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="judge B against A")
    comparing.add_argument("then", type=Path, metavar="A.json")
    comparing.add_argument("now", type=Path, metavar="B.json")
    comparing.add_argument("--markdown", action="store_true", help="tables for a pull request")
    comparing.add_argument(
        "--gates", type=Path, help="gates file with the limits (default: gates.yaml, if there)"
    )
    for name, text in (("show", "what a file holds"), ("migrate", "write it in today's schema")):
        commands.add_parser(name, help=text).add_argument("file", type=Path)
    try:
        chosen = parser.parse_args(arguments)
    except SystemExit as end:
        return USAGE if end.code else 0
    try:
        if chosen.command == "compare":
            return _compare(chosen.then, chosen.now, chosen.gates, markdown=chosen.markdown)
        if chosen.command == "show":
            print("\n".join(shown_baseline(_baseline(chosen.file))))
            return 0
        return _migrate(chosen.file)
    except ConfigError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return USAGE
    except BaselineError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1


def _baseline(path: Path) -> Baseline:
    if not path.is_file():
        raise ConfigError(f"no such file: {path}")
    return read(path)


def _limits(path: Path | None) -> Mapping[str, Any]:
    """Of the gate ``baseline`` in a gates file, or its defaults."""
    gates = {gate.name: gate for gate in builtin_gates()}
    file = path or Path("gates.yaml")
    if path is None and not file.is_file():
        return gates["baseline"].defaults
    if not file.is_file():
        raise ConfigError(f"--gates: no such file: {file}")
    _, configs = read_gates_file(file, gates)
    named = [config.options for config in configs or () if config.name == "baseline"]
    return named[0] if named else gates["baseline"].defaults


def _compare(then: Path, now: Path, gates: Path | None, *, markdown: bool) -> int:
    stored, found, limits = _baseline(then), _baseline(now), _limits(gates)
    arms = {
        name
        for side in (stored, found)
        for case in side.cases.values()
        for name in case.arms
        if name != PLAIN
    }
    worse = not arms
    for arm in sorted(arms, key=lambda name: int(name.partition("=")[2])):
        compared = compare(stored, found, limits, int(arm.partition("=")[2]))
        lines = markdown_of if markdown else compared_lines
        print("\n".join(lines(compared, f"{then} -> {now} ({arm})")))
        worse |= bool(compared.apart or not compared.figures)
        worse |= any(figure.status == "failed" for figure in compared.figures)
    if not arms:
        print("no prompt is stored: there is nothing to compare")
    return int(worse)


def _migrate(path: Path) -> int:
    place = Place.of(path, update=True)
    write(place, _baseline(path))
    print(f"{path}: written in today's schema")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the plugin costs a session that does not use it: CPU seconds of ``pytest --collect-only``.

Pairs of runs alternate, so that drift of the machine falls on both sides; a control pair (off
against off) shows how far apart two equal commands lie.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path


def cpu_seconds(folder: Path, *options: str) -> float:
    """User and system seconds of one collection."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, str(folder)]
    silent = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(
        sys.executable,
        command,
        {**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        file_actions=[(os.POSIX_SPAWN_DUP2, silent, 1), (os.POSIX_SPAWN_DUP2, silent, 2)],
    )
    _, status, usage = os.wait4(pid, 0)
    os.close(silent)
    if os.waitstatus_to_exitcode(status) not in (0, 5):
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the ratios with their 95 % intervals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100)
    pairs = parser.parse_args().pairs
    no_gate, no_benchmark = ("-p", "no:specgate"), ("-p", "no:benchmark")
    arms = {
        "off": (*no_gate, *no_benchmark),
        "off again": (*no_gate, *no_benchmark),
        "specgate": no_benchmark,
        "pytest-benchmark": no_gate,
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").write_text("")
        (folder / "pytest.ini").write_text("[pytest]\n")
        for options in arms.values():
            cpu_seconds(folder, *options)
        for number in range(pairs):
            order = list(arms) if number % 2 else list(reversed(arms))
            for arm in order:
                seconds[arm].append(cpu_seconds(folder, *arms[arm]))
    print(
        f"{pairs} alternating pairs, CPU seconds of one collection; off: median "
        f"{statistics.median(seconds['off']):.4f} s"
    )
    for arm in ("off again", "specgate", "pytest-benchmark"):
        ratios = sorted(a / b for a, b in zip(seconds[arm], seconds["off"], strict=True))
        middle = statistics.median(ratios)
        # order statistics of the median, normal approximation of the binomial
        reach = int(0.98 * pairs**0.5) + 1
        low, high = ratios[max(pairs // 2 - reach, 0)], ratios[min(pairs // 2 + reach, pairs - 1)]
        added = statistics.median(seconds[arm]) - statistics.median(seconds["off"])
        print(f"{arm:<17} / off  {middle:.4f}  [{low:.4f}, {high:.4f}]  {added * 1e3:+.1f} ms")


if __name__ == "__main__":
    main()

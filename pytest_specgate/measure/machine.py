"""Facts of the machine: what it is, its swap, its power. Each probe can be replaced by a double.

The macOS probes read ``sysctl``, ``sw_vers`` and ``pmset``; they have not been verified on a Mac
yet. On Linux everything comes from /proc and psutil.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

Run = Callable[[list[str]], str | None]


def run_command(command: list[str]) -> str | None:
    """Standard output of a short command; None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def swap_used_bytes() -> int | None:
    """Swap in use now; None where it cannot be told."""
    import psutil

    try:
        return int(psutil.swap_memory().used)
    except (OSError, RuntimeError):  # containers without the files psutil reads
        return None


def _linux_chip() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return None


def _mac_facts(run: Run) -> dict[str, Any]:
    power = run(["pmset", "-g", "batt"]) or ""
    settings = run(["pmset", "-g"]) or ""
    displays = run(["system_profiler", "SPDisplaysDataType"]) or ""
    cores = [line.partition(":")[2].strip() for line in displays.splitlines() if "Cores" in line]
    facts: dict[str, Any] = {
        "chip": run(["sysctl", "-n", "machdep.cpu.brand_string"]),
        "gpu_cores": int(cores[0]) if cores and cores[0].isdigit() else None,
        "os": f"macOS {run(['sw_vers', '-productVersion']) or platform.mac_ver()[0]}",
    }
    if "AC Power" in power:
        facts["power"] = "mains"
    elif "Battery Power" in power:
        facts["power"] = "battery"
    for line in settings.splitlines():
        if line.split()[:1] == ["lowpowermode"]:
            facts["low_power_mode"] = line.split()[-1] == "1"
    return facts


def _linux_facts() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "chip": _linux_chip() or platform.processor() or platform.machine(),
        "os": f"{platform.system()} {platform.release()}",
    }
    for supply in sorted(Path("/sys/class/power_supply").glob("*")):
        try:
            kind = (supply / "type").read_text().strip()
            state = (supply / ("online" if kind == "Mains" else "status")).read_text().strip()
        except OSError:
            continue
        if kind == "Mains":
            facts["power"] = "mains" if state == "1" else "battery"
    return facts


def machine_facts(run: Run = run_command) -> dict[str, Any]:
    """Chip, cores, memory, OS, Python, and on a laptop the power source and low-power mode."""
    import psutil

    facts = _mac_facts(run) if sys.platform == "darwin" else _linux_facts()
    return {
        **{name: value for name, value in facts.items() if value is not None},
        "architecture": platform.machine(),
        "cpu_count": psutil.cpu_count(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "python": platform.python_version(),
    }


def distributions() -> Mapping[str, str]:
    """Every installed distribution and its version, by name."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found[name.lower().replace("_", "-")] = distribution.version
    return dict(sorted(found.items()))

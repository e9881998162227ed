"""Values of single options: durations, gateways, environments, files and folders."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..baseline.names import is_name
from ..engines.environments import is_interpreter, is_requirement
from .spec import ConfigError, Invalid, found, nearest, number, path_of


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """``--spec-report KIND:PATH``."""

    kind: str
    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class BaselineOption:
    """``--spec-baseline``: its file, the name as it was given, and where."""

    name: str
    path: Path
    origin: str


@dataclass(frozen=True, slots=True)
class AgainstOption:
    """``--spec-against``: a gateway to an interpreter, or what an environment is to be made of.

    Attributes:
        name: as the user gave it.
        spec: of an execnet gateway; None where an environment has to be made first.
        requirement: requirements in one line, or a file of them; None for a gateway.
    """

    name: str
    origin: str
    spec: str | None = None
    requirement: str | Path | None = None


@dataclass(frozen=True, slots=True)
class SaveOption:
    """``--spec-save-baseline``: where to, and what may be done there."""

    path: Path
    origin: str
    update: bool = False
    anyway: bool = False


@dataclass(frozen=True, slots=True)
class Isolation:
    """``--spec-isolate``: an execnet spec, where it was asked for, and seconds a call may take."""

    spec: str
    origin: str
    timeout_s: float | None = None


_GATEWAYS = ("popen", "ssh", "socket", "vagrant_ssh")  # the kinds that execnet has


def names_gateway(text: str) -> bool:
    """Does this look like the spec of an execnet gateway?"""
    return any(part.split("=")[0] in _GATEWAYS for part in text.split("//"))


_SECONDS = number(above=0, most=1e6)


def isolation_of(spec: tuple[str, str] | None, timeout: tuple[str, str] | None) -> Isolation | None:
    """What (text, origin) of both options say."""
    if spec is None:
        if timeout is not None:
            raise ConfigError(
                f"{timeout[1]}: needs --spec-isolate: a generation in pytest's own process cannot "
                "be ended"
            )
        return None
    text, origin = spec
    if not names_gateway(text):
        raise ConfigError(
            f"{origin}: must be an execnet spec, found {found(text)} (allowed: popen, "
            "popen//python=PATH, ssh=HOST//python=PATH and the like)"
        )
    try:
        _checked_spec(text)
    except (AttributeError, ValueError, IndexError) as error:
        raise ConfigError(f"{origin}: not an execnet spec: {error}") from None
    return Isolation(text, origin, _seconds(*timeout) if timeout else None)


def _checked_spec(text: str) -> None:
    import execnet

    spec = execnet.XSpec(text)
    if spec.via or spec.installvia:
        raise ValueError("via and installvia need a gateway of another session")


def _seconds(text: str, origin: str) -> float:
    try:
        if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*", text, re.ASCII):
            raise Invalid(f"must be a number of seconds, found {found(text)}")
        return float(_SECONDS(float(text)))
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None


_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?|(\d+)", re.ASCII)


def duration(text: str, origin: str) -> float:
    """Seconds of ``10m``, ``90s``, ``1h30m`` or a bare number of seconds."""
    parts = _PARTS.fullmatch(text.strip()) if len(text) < 20 else None
    counts = [int(part or 0) for part in parts.groups()] if parts else []
    total = sum(count * unit for count, unit in zip(counts, (3600.0, 60, 1, 1), strict=False))
    if not 0 < total <= 1e6:
        raise ConfigError(
            f"{origin}: must be a duration such as 10m, 90s or 1h30m, found {found(text)}"
        )
    return total


def baseline_option(
    given: tuple[str, str] | None, folder: Path, bases: Mapping[str, Path]
) -> BaselineOption | None:
    if given is None:
        return None
    text, origin = given
    if is_name(text):
        return BaselineOption(text, folder / f"{text}.json", origin)
    path = existing_file(text, origin, bases[origin])
    assert path is not None
    return BaselineOption(path.stem, path, origin)


def against_option(
    given: tuple[str, str] | None, bases: Mapping[str, Path]
) -> AgainstOption | None:
    """``mlx-lm==0.32.2``, ``python=PATH``, a requirements file, or an execnet spec."""
    if given is None:
        return None
    text, origin = given[0].strip(), given[1]
    base = bases.get(origin, Path())
    if text.startswith("python="):
        path = path_of(text.removeprefix("python="), base)
        if not is_interpreter(path):
            raise ConfigError(f"{origin}: no interpreter: {path}")
        return AgainstOption(text, origin, f"popen//python={path}")
    if names_gateway(text):
        try:
            _checked_spec(text)
        except (AttributeError, ValueError, IndexError) as error:
            raise ConfigError(f"{origin}: not an execnet spec: {error}") from None
        return AgainstOption(text, origin, text)
    if is_requirement(text):
        return AgainstOption(text, origin, requirement=text)
    file = existing_file(text, origin, base) if text.endswith(".txt") else None
    if file is None:
        raise ConfigError(
            f"{origin}: must be a requirement such as 'mlx-lm==0.32.2', python=PATH, a "
            f"requirements file, or an execnet spec, found {found(text)}"
        )
    return AgainstOption(text, origin, requirement=file)


def save_option(name: str | None, folder: Path, *, update: bool, anyway: bool) -> SaveOption | None:
    origin = "--spec-save-baseline"
    if name is None:
        for flag, given in (("update", update), ("keep-failed", anyway)):
            if given:
                raise ConfigError(f"--spec-{flag}-baseline: needs {origin} NAME")
        return None
    if not is_name(name):
        raise ConfigError(
            f"{origin}: must be a plain word of letters, digits, '.', '_' and '-', found "
            f"{found(name)}; --spec-baseline-dir names the folder"
        )
    path = folder / f"{name}.json"
    if path.exists() and not update:
        raise ConfigError(
            f"{origin}: {path} is there already: add --spec-update-baseline to replace it"
        )
    return SaveOption(path, origin, update, anyway)


def report_request(text: str, kinds: Collection[str], origin: str, base: Path) -> ReportRequest:
    kind, colon, path = text.partition(":")
    if not colon or not path.strip():
        raise ConfigError(f"{origin}: must be KIND:PATH such as json:gate.json, found {text!r}")
    if kind not in kinds:
        raise ConfigError(
            f"{origin}: no report of kind {kind!r}{nearest(kind, kinds)} "
            f"(allowed: {', '.join(sorted(kinds))})"
        )
    try:
        target = path_of(path, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None
    if target.is_dir():
        raise ConfigError(f"{origin}: {target} is a directory; name a file")
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{origin}: cannot be written: {folder} is not a folder to write to")
    return ReportRequest(kind, target, origin)


def folder_of(text: str, origin: str, base: Path) -> Path:
    try:
        path = path_of(text, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not text.strip() or (path.exists() and not path.is_dir()):
        raise ConfigError(f"{origin}: no folder: {path}")
    return path


def existing_file(text: str | None, origin: str, base: Path) -> Path | None:
    if text is None:
        return None
    try:
        path = path_of(text, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not text.strip() or not path.is_file():
        raise ConfigError(f"{origin}: no such file: {path}")
    return path.resolve()

"""Command-line options and their ini twins: declared here, read here, nowhere else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ..baseline.names import FOLDER, is_name
from ..engines.environments import is_interpreter, is_requirement
from .keys import MAX_TOKENS
from .layers import Key, Layer, Setting, checked
from .plan import SWEEP
from .spec import ConfigError, Invalid, found, nearest, number, one_of, path_of, unique_keys

Parsed = dict[Key, Any]
ALL_SWEPT = ",".join(map(str, SWEEP))


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


OnInconclusive = Literal["fail", "warn", "pass"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """``--spec-isolate``: an execnet spec, where it was asked for, and seconds a call may take."""

    spec: str
    origin: str
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and ini file say, parsed; the pair may still be missing."""

    command_line: Layer
    ini: Layer
    engine: str = "mlx-lm"
    engine_origin: str = "default"
    gates: Path | None = None
    replay: Path | None = None
    demo: bool = False
    require: bool = False
    no_preflight: bool = False
    trust_remote_code: bool = False
    isolation: Isolation | None = None
    on_inconclusive: OnInconclusive = "warn"
    baseline: BaselineOption | None = None
    save_baseline: SaveOption | None = None
    against: AgainstOption | None = None
    noise: bool = False
    checklist: bool = False
    scan: bool = False
    budget_s: float | None = None
    reports: tuple[ReportRequest, ...] = field(default=())

    @property
    def names_pair(self) -> bool:
        """A model stands on the command line or in the ini file, so the session is to gate."""
        return self.demo or any(
            ("pair", role) in layer
            for layer in (self.command_line, self.ini)
            for role in ("target", "draft")
        )


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise Invalid(f"must be a whole number, found {found(text)}")
    return int(text)


def _draft_tokens(text: str) -> Parsed:
    return {("decoding", "num_draft_tokens"): [_whole(part) for part in text.split(",")]}


def _sweep(text: str) -> Parsed:
    return {("sweep", "num_draft_tokens"): [_whole(part) for part in text.split(",")]}


def _max_tokens(text: str) -> Parsed:
    try:
        return {("decoding", "max_tokens"): MAX_TOKENS(_whole(text))}
    except Invalid as error:
        raise Invalid(f"max_tokens {error}") from None


def _rounds(text: str) -> Parsed:
    low, colon, high = text.partition(":")
    try:
        least, most = _whole(low), _whole(high if colon else low)
    except Invalid:
        raise Invalid(f"must be MIN or MIN:MAX, found {found(text)}") from None
    return {("measure", "min_rounds"): least, ("measure", "max_rounds"): most}


def _template_args(text: str) -> Parsed:
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except Invalid:
        raise
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f'must be a JSON object such as {{"enable_thinking": false}}: {error}'
        ) from None
    if not isinstance(value, dict):
        raise Invalid(f"must be a JSON object, found {found(value)}")
    return {("decoding", "chat_template_args"): value}


def _drafts(text: str) -> Parsed:
    first, *others = text.split("\n")
    return {("pair", "draft"): [first, *others] if others else first}


def _as_it_is(section: str, key: str) -> Callable[[str], Parsed]:
    return lambda text: {(section, key): text}


# option stem -> how its text becomes settings
_SETTINGS: dict[str, Callable[[str], Parsed]] = {
    "target": _as_it_is("pair", "target"),
    "draft": _drafts,
    "num_draft_tokens": _draft_tokens,
    "sweep": _sweep,
    "max_tokens": _max_tokens,
    "prompts": _as_it_is("prompts", "set"),
    "rounds": _rounds,
    "chat_template_args": _template_args,
}


def _flag(name: str) -> str:
    return f"--spec-{name.replace('_', '-')}"


def _layer(texts: dict[str, str], origin: Callable[[str], str], base: Path) -> Layer:
    layer: dict[Key, Setting] = {}
    for name, text in texts.items():
        try:
            if not text.strip():
                raise Invalid("must not be empty")
            parsed = _SETTINGS[name](text)
        except Invalid as error:
            raise ConfigError(f"{origin(name)}: {error}") from None
        for (section, key), value in parsed.items():
            if (section, key) == ("prompts", "set"):
                layer[section, key] = Setting(value, origin(name), base)
            else:
                layer[section, key] = checked(section, key, value, origin(name), base)
    return layer


def _ini(config: pytest.Config, name: str) -> str | None:
    try:
        value = config.getini(f"specgate_{name}")
    except (TypeError, pytest.UsageError) as error:
        raise ConfigError(
            f"{config.inipath}: specgate_{name} must be text; in a [tool.pytest] table put numbers "
            f'and truth values in quotes, as in specgate_{name} = "3" ({error})'
        ) from None
    return value if value is None or isinstance(value, str) else str(value)


_TRUTH = {"1": True, "true": True, "yes": True, "on": True}
_TRUTH |= {"0": False, "false": False, "no": False, "off": False}


def _truth(name: str, flag: bool | None, ini: str | None, ini_place: str) -> bool:
    if flag is not None:
        return flag
    if ini is None:
        return False
    if ini.strip().lower() not in _TRUTH:
        raise ConfigError(f"{ini_place}specgate_{name}: must be true or false, found {found(ini)}")
    return _TRUTH[ini.strip().lower()]


_GATEWAYS = ("popen", "ssh", "socket", "vagrant_ssh")  # the kinds that execnet has


def names_gateway(text: str) -> bool:
    """Does this look like the spec of an execnet gateway?"""
    return any(part.split("=")[0] in _GATEWAYS for part in text.split("//"))


_SECONDS = number(above=0, most=1e6)


def _isolation(spec: tuple[str, str] | None, timeout: tuple[str, str] | None) -> Isolation | None:
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


def _duration(text: str, origin: str) -> float:
    """Seconds of ``10m``, ``90s``, ``1h30m`` or a bare number of seconds."""
    parts = _PARTS.fullmatch(text.strip()) if len(text) < 20 else None
    counts = [int(part or 0) for part in parts.groups()] if parts else []
    total = sum(count * unit for count, unit in zip(counts, (3600.0, 60, 1, 1), strict=False))
    if not 0 < total <= 1e6:
        raise ConfigError(
            f"{origin}: must be a duration such as 10m, 90s or 1h30m, found {found(text)}"
        )
    return total


def _baseline(
    given: tuple[str, str] | None, folder: Path, bases: Mapping[str, Path]
) -> BaselineOption | None:
    if given is None:
        return None
    text, origin = given
    if is_name(text):
        return BaselineOption(text, folder / f"{text}.json", origin)
    path = _file(text, origin, bases[origin])
    assert path is not None
    return BaselineOption(path.stem, path, origin)


def _against(given: tuple[str, str] | None, bases: Mapping[str, Path]) -> AgainstOption | None:
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
    file = _file(text, origin, base) if text.endswith(".txt") else None
    if file is None:
        raise ConfigError(
            f"{origin}: must be a requirement such as 'mlx-lm==0.32.2', python=PATH, a "
            f"requirements file, or an execnet spec, found {found(text)}"
        )
    return AgainstOption(text, origin, requirement=file)


def _save_baseline(
    name: str | None, folder: Path, *, update: bool, anyway: bool
) -> SaveOption | None:
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


_TIMED = ("replay", "rounds", "noise", "against", "baseline", "save_baseline")


def _scanning(options: Options, given: list[str]) -> Options:
    """With ``--spec-scan`` nothing is timed and no gate judged, whatever the ini file says.

    Args:
        options: as they were read.
        given: options of timing and judging that stand on the command line.
    """
    if not options.scan:
        return options
    if given:
        raise ConfigError(
            f"--spec-scan times nothing and judges no gate: leave out {_flag(given[0])}"
        )
    return replace(options, noise=False, against=None, baseline=None)


_ON_INCONCLUSIVE = one_of("fail", "warn", "pass")


def _on_inconclusive(given: tuple[str, str] | None) -> Any:
    if given is None:
        return "warn"
    try:
        return _ON_INCONCLUSIVE(given[0])
    except Invalid as error:
        raise ConfigError(f"{given[1]}: {error}") from None


def _report(text: str, kinds: Collection[str], origin: str, base: Path) -> ReportRequest:
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


def _folder(text: str, origin: str, base: Path) -> Path:
    try:
        path = path_of(text, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not text.strip() or (path.exists() and not path.is_dir()):
        raise ConfigError(f"{origin}: no folder: {path}")
    return path


def _file(text: str | None, origin: str, base: Path) -> Path | None:
    if text is None:
        return None
    try:
        path = path_of(text, base)
    except Invalid as error:
        raise ConfigError(f"{origin}: {error}") from None
    if not text.strip() or not path.is_file():
        raise ConfigError(f"{origin}: no such file: {path}")
    return path.resolve()


def read_options(config: pytest.Config, report_kinds: Collection[str]) -> Options:
    """Parse every option and ini key of specgate.

    Raises:
        ConfigError: a wrong value, or options that exclude each other.
    """

    def option(name: str) -> Any:
        return config.getoption(f"spec_{name}")

    here = config.invocation_params.dir
    ini_base = config.inipath.parent if config.inipath else config.rootpath
    ini_texts = {
        name: text.rstrip("\n") for name in _SETTINGS if (text := _ini(config, name)) is not None
    }
    cli_texts = {name: option(name) for name in _SETTINGS if option(name) is not None}
    if "draft" in cli_texts:
        cli_texts["draft"] = "\n".join(cli_texts["draft"])  # as the ini file has several
    demo = bool(option("demo"))
    replay = _file(option("replay"), "--spec-replay", here)
    if demo and ("target" in cli_texts or "draft" in cli_texts):
        raise ConfigError(
            "--spec-demo brings its own pair: leave out --spec-target and --spec-draft"
        )
    if demo and replay:
        raise ConfigError("--spec-replay names its own pair: leave out --spec-demo")
    ini_place = f"{config.inipath}: " if config.inipath else "ini option "
    engine_ini, report_ini = _ini(config, "engine"), _ini(config, "report")
    engine = option("engine") if option("engine") is not None else engine_ini
    gates_path = _file(option("gates"), "--spec-gates", here)
    if gates_path is None:
        gates_path = _file(_ini(config, "gates"), f"{ini_place}specgate_gates", ini_base)
    reports = [
        _report(text, report_kinds, f"--spec-report {text}", here)
        for text in option("report") or ()
    ]
    if not reports and report_ini is not None:
        origin = f"{ini_place}specgate_report"
        parts = report_ini.split() or [""]
        reports = [_report(part, report_kinds, origin, ini_base) for part in parts]

    def text_and_origin(name: str) -> tuple[str, str] | None:
        if (text := option(name)) is not None:
            return text, _flag(name)
        text = _ini(config, name)
        return None if text is None else (text, f"{ini_place}specgate_{name}")

    bases = {_flag("baseline"): here, f"{ini_place}specgate_baseline": ini_base}
    bases |= {_flag("against"): here, f"{ini_place}specgate_against": ini_base}
    folder = config.rootpath / FOLDER
    if (where := option("baseline_dir")) is not None:
        folder = _folder(where, "--spec-baseline-dir", here)
    elif (where := _ini(config, "baseline_dir")) is not None:
        folder = _folder(where, f"{ini_place}specgate_baseline_dir", ini_base)

    options = Options(
        command_line=_layer(cli_texts, _flag, here),
        ini=_layer(ini_texts, lambda name: f"{ini_place}specgate_{name}", ini_base),
        engine="mlx-lm" if engine is None else engine,
        engine_origin=f"{ini_place}specgate_engine"
        if option("engine") is None
        else "--spec-engine",
        gates=gates_path,
        replay=replay,
        demo=demo,
        require=_truth("require", option("require"), _ini(config, "require"), ini_place),
        no_preflight=_truth(
            "no_preflight", option("no_preflight"), _ini(config, "no_preflight"), ini_place
        ),
        trust_remote_code=_truth(
            "trust_remote_code",
            option("trust_remote_code"),
            _ini(config, "trust_remote_code"),
            ini_place,
        ),
        isolation=_isolation(text_and_origin("isolate"), text_and_origin("timeout")),
        on_inconclusive=_on_inconclusive(text_and_origin("on_inconclusive")),
        baseline=_baseline(text_and_origin("baseline"), folder, bases),
        against=_against(text_and_origin("against"), bases),
        save_baseline=_save_baseline(
            option("save_baseline"),
            folder,
            update=bool(option("update_baseline")),
            anyway=bool(option("keep_failed_baseline")),
        ),
        noise=_truth("noise", option("noise"), _ini(config, "noise"), ini_place),
        checklist=_truth("checklist", option("checklist"), _ini(config, "checklist"), ini_place),
        scan=_truth("scan", option("scan"), _ini(config, "scan"), ini_place),
        budget_s=_duration(*budget) if (budget := text_and_origin("budget")) else None,
        reports=tuple(reports),
    )
    return _scanning(options, [name for name in _TIMED if option(name)])

"""Command-line options and their ini twins: declared here, read here, nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ..baseline.names import FOLDER
from .keys import MAX_TOKENS
from .layers import Key, Layer, Setting, checked
from .option_values import (
    AgainstOption,
    BaselineOption,
    Isolation,
    ReportRequest,
    SaveOption,
    against_option,
    baseline_option,
    duration,
    existing_file,
    folder_of,
    isolation_of,
    report_request,
    save_option,
)
from .plan import SWEEP
from .spec import ConfigError, Invalid, found, one_of, unique_keys

Parsed = dict[Key, Any]
ALL_SWEPT = ",".join(map(str, SWEEP))


OnInconclusive = Literal["fail", "warn", "pass"]


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


_TIMED = ("replay", "rounds", "sweep", "noise", "against", "baseline", "save_baseline")


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
    replay = existing_file(option("replay"), "--spec-replay", here)
    if demo and ("target" in cli_texts or "draft" in cli_texts):
        raise ConfigError(
            "--spec-demo brings its own pair: leave out --spec-target and --spec-draft"
        )
    if demo and replay:
        raise ConfigError("--spec-replay names its own pair: leave out --spec-demo")
    ini_place = f"{config.inipath}: " if config.inipath else "ini option "
    engine_ini, report_ini = _ini(config, "engine"), _ini(config, "report")
    engine = option("engine") if option("engine") is not None else engine_ini
    gates_path = existing_file(option("gates"), "--spec-gates", here)
    if gates_path is None:
        gates_path = existing_file(_ini(config, "gates"), f"{ini_place}specgate_gates", ini_base)
    reports = [
        report_request(text, report_kinds, f"--spec-report {text}", here)
        for text in option("report") or ()
    ]
    if not reports and report_ini is not None:
        origin = f"{ini_place}specgate_report"
        parts = report_ini.split() or [""]
        reports = [report_request(part, report_kinds, origin, ini_base) for part in parts]

    def text_and_origin(name: str) -> tuple[str, str] | None:
        if (text := option(name)) is not None:
            return text, _flag(name)
        text = _ini(config, name)
        return None if text is None else (text, f"{ini_place}specgate_{name}")

    bases = {_flag("baseline"): here, f"{ini_place}specgate_baseline": ini_base}
    bases |= {_flag("against"): here, f"{ini_place}specgate_against": ini_base}
    folder = config.rootpath / FOLDER
    if (where := option("baseline_dir")) is not None:
        folder = folder_of(where, "--spec-baseline-dir", here)
    elif (where := _ini(config, "baseline_dir")) is not None:
        folder = folder_of(where, f"{ini_place}specgate_baseline_dir", ini_base)

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
        isolation=isolation_of(text_and_origin("isolate"), text_and_origin("timeout")),
        on_inconclusive=_on_inconclusive(text_and_origin("on_inconclusive")),
        baseline=baseline_option(text_and_origin("baseline"), folder, bases),
        against=against_option(text_and_origin("against"), bases),
        save_baseline=save_option(
            option("save_baseline"),
            folder,
            update=bool(option("update_baseline")),
            anyway=bool(option("keep_failed_baseline")),
        ),
        noise=_truth("noise", option("noise"), _ini(config, "noise"), ini_place),
        checklist=_truth("checklist", option("checklist"), _ini(config, "checklist"), ini_place),
        scan=_truth("scan", option("scan"), _ini(config, "scan"), ini_place),
        budget_s=duration(*budget) if (budget := text_and_origin("budget")) else None,
        reports=tuple(reports),
    )
    return _scanning(options, [name for name in _TIMED if option(name)])

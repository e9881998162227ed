"""Builds the plans of a session from its options and gates files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import Check, builtin_checks
from ..gates.base import Gate
from .checks import ready_prompts
from .gates_file import read_gates_file
from .keys import CALL_ROUNDS, MAX_TOKENS, ONE_DRAFT_TOKENS, SECTIONS
from .layers import Key, Layer, Layers, PromptSource, Setting, resolve
from .options import Options
from .plan import GateConfig, Inputs, Measure, ModelRef, Plan, Prompt
from .spec import ConfigError, Invalid, Spec, found


@dataclass(frozen=True)
class Builder:
    """What every plan of a session shares.

    Attributes:
        options: the command line and ini file.
        gates: the registry.
        source: prompt set name -> prompts, or None.
        demo: target and draft of the embedded pair, where it was asked for.
        checks: that prompts may name; those that come with specgate by default.
    """

    options: Options
    gates: Mapping[str, Gate]
    source: PromptSource
    demo: tuple[ModelRef, ModelRef] | None = None
    checks: Mapping[str, Check] = field(default_factory=builtin_checks)

    def _command_line(self) -> Layer:
        if self.demo is None:
            return self.options.command_line
        target, draft = self.demo
        origin, here = "--spec-demo", Path()
        layer: dict[Key, Setting] = {
            ("pair", "target"): Setting(target, origin, here),
            ("pair", "draft"): Setting(draft, origin, here),
            ("prompts", "set"): Setting("smoke", origin, here),
            ("decoding", "max_tokens"): Setting(32, origin, here),
        }
        return {**layer, **self.options.command_line}

    def inputs(self, marker: Layer, file: Layer, *, call: bool = False) -> tuple[Inputs, Measure]:
        """What is measured, by precedence.

        Args:
            marker: of a test.
            file: of the gates file.
            call: the marker layer holds the arguments of a call, which win over everything.

        Raises:
            ConfigError: half a pair, a model or file that is not there, rounds that cross.
        """
        command_line = self._command_line()
        if call:
            command_line = {**command_line, **marker}
        layers = Layers(command_line, marker, file, self.options.ini)
        inputs, measure = resolve(
            layers,
            self.source,
            engine=self.options.engine,
            trust_remote_code=self.options.trust_remote_code,
        )
        self._check_drafts(layers, inputs)
        for role, other in (("target", "draft"), ("draft", "target")):
            setting = layers.find("pair", role)
            if setting is not None and setting.value is not None and not inputs.has_pair:
                raise setting.error(
                    f"a {role} without a {other}: give --spec-{other} as well (or pair.{other} in "
                    "the gates file); a gate compares the target alone with both together"
                )
        return replace(inputs, prompts=ready_prompts(inputs.prompts, self.checks)), measure

    def _check_drafts(self, layers: Layers, inputs: Inputs) -> None:
        """Several drafts are for what compares them."""
        setting = layers.find("pair", "draft")
        if inputs.rivals and (against := self.options.against):
            found = 1 + len(inputs.rivals)
            raise ConfigError(f"{against.origin}: takes one draft, found {found}")
        compared = self.options.scan or any(layers.find("sweep", key) for key in SECTIONS["sweep"])
        if setting is not None and inputs.rivals and not compared:
            raise setting.error(
                f"{1 + len(inputs.rivals)} drafts: a gate judges one pair; --spec-scan ranks "
                "drafts without timing, --spec-sweep times them"
            )

    def plan(self, path: Path, *, builtin: bool = False) -> Plan:
        """The plan of one gates file.

        Args:
            path: of the file.
            builtin: it is the package's own; its settings are the defaults, below the ini file.

        Raises:
            ConfigError: names file, line and key.
        """
        layer, gates = read_gates_file(path, self.gates)
        if builtin:
            layer = {}
        inputs, measure = self.inputs({}, layer)
        if self.options.scan:
            gates = (GateConfig(SCAN, {}, "--spec-scan"),)
        elif gates is None:
            warm = layer.get(("decoding", "temperature"))  # all that a default gate may refuse
            origin = warm.origin if warm else str(path)
            gates = tuple(
                GateConfig(name, dict(gate.defaults), origin)
                for name, gate in self.gates.items()
                if name in DEFAULT_GATES
            )
        for name, asked in (("baseline", self.options.baseline), ("against", self.options.against)):
            if asked and not any(gate.name == name for gate in gates):
                gates = (*gates, GateConfig(name, dict(self.gates[name].defaults), asked.origin))
        swept = next((s for (section, _), s in layer.items() if section == "sweep"), None)
        swept = self._command_line().get(SWEEP_KEY) or swept or self.options.ini.get(SWEEP_KEY)
        if swept and not any(gate.name == "recommended" for gate in gates):
            own = dict(self.gates["recommended"].defaults)
            gates = (*gates, GateConfig("recommended", own, swept.origin))
        gates = tuple(map(partial(_with_limits, gates), gates))
        plan = Plan(self.asked_by(gates, inputs), measure, gates, path, layer)
        self.check(gates, inputs)
        return plan

    def asked_by(self, gates: tuple[GateConfig, ...], inputs: Inputs) -> Inputs:
        """The same inputs, with what these gates want measured in ways of their own."""
        for gate in gates:
            inputs = self.gates[gate.name].asks(gate.options, inputs)
        return inputs

    def check(self, gates: tuple[GateConfig, ...], inputs: Inputs) -> None:
        """Ask each gate whether it can judge these inputs.

        Raises:
            ConfigError: it cannot; names where the gate was asked for.
        """
        for gate in gates:
            if complaint := self.gates[gate.name].complaint(gate.options, inputs):
                raise ConfigError(f"{gate.origin}: {gate.name}: {complaint}")

    def call_layer(
        self,
        text: str,
        max_tokens: int | None,
        num_draft_tokens: int | None,
        rounds: int,
        origin: str,
    ) -> Layer:
        """The arguments of one ``spec_compare`` call as settings; of rounds none where 0.

        Raises:
            ConfigError: an argument is not allowed.
        """
        if not isinstance(text, str) or not text:
            raise ConfigError(
                f"{origin}: the prompt must be text that is not empty, found {found(text)}"
            )

        def setting(name: str, spec: Spec, value: Any) -> Setting:
            try:
                return Setting(spec(value), origin, Path())
            except Invalid as error:
                raise ConfigError(f"{origin}: {name} {error}") from None

        layer = {("prompts", "set"): Setting((Prompt("compared", text),), origin, Path())}
        if max_tokens is not None:
            layer["decoding", "max_tokens"] = setting("max_tokens", MAX_TOKENS, max_tokens)
        if num_draft_tokens is not None:
            one = setting("num_draft_tokens", ONE_DRAFT_TOKENS, num_draft_tokens)
            layer["decoding", "num_draft_tokens"] = replace(one, value=(one.value,))
        exactly = setting("rounds", CALL_ROUNDS, rounds)
        if exactly.value:
            layer["measure", "min_rounds"] = layer["measure", "max_rounds"] = exactly
        return layer


def _with_limits(gates: tuple[GateConfig, ...], gate: GateConfig) -> GateConfig:
    """What is recommended keeps to the limits of the file's other gates where it has none."""
    if gate.name != "recommended":
        return gate
    options = dict(gate.options)
    for name, theirs, key in (
        ("latency", "p95_max_ratio", "p95_max_ratio"),
        ("memory", "max_gb", "max_gb"),
        ("speedup", "min", "min_speedup"),
    ):
        of_other = next((other.options for other in gates if other.name == name), {})
        if options[key] is None:
            options[key] = of_other.get(theirs)
    return replace(gate, options=options)


SWEEP_KEY = ("sweep", "num_draft_tokens")
SCAN = "scan"  # the one gate of a scan
DEFAULT_GATES = ("preflight", "parity", "speedup", "latency", "memory")


def base_options(plan: Plan | None) -> dict[str, Mapping[str, Any]]:
    """Gate -> options that the gates file sets, for markers to start from."""
    return {gate.name: gate.options for gate in plan.gates} if plan else {}

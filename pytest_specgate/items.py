"""The gates file as a collector: each gate, and each prompt of a per-prompt gate, is an item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .config.plan import GateConfig, Inputs, Plan
from .config.spec import ConfigError
from .text import shown_lines

if TYPE_CHECKING:
    from .session import SpecSession


class GateFailed(Exception):
    """A verdict of a gate item; shown without a traceback."""


class GatesFile(pytest.File):
    """A gates file, or a saved case that is replayed."""

    plan: Plan
    spec: SpecSession

    @classmethod
    def make(
        cls, parent: pytest.Collector, path: Path, plan: Plan, spec: SpecSession, nodeid: str | None
    ) -> GatesFile:
        """The collector of one plan; nodeid replaces a path that is not the user's own."""
        named: dict[str, Any] = {"nodeid": nodeid} if nodeid else {}
        collector: GatesFile = cls.from_parent(parent, path=path, **named)
        collector.plan, collector.spec = plan, spec
        return collector

    def collect(self) -> Iterator[GateItem]:
        """Per-prompt items first, so that the gates over all prompts read what is there."""
        plan, registry = self.plan, self.spec.registry.gates
        for config in plan.gates:
            if registry[config.name].scope == "pair":
                own = registry[config.name].own(plan.inputs)
                yield self._item(config, own, "pair", None)
        for config in plan.gates:
            if registry[config.name].scope == "prompt":
                for prompt in plan.inputs.prompts:
                    yield self._item(config, plan.inputs.only(prompt), prompt.id, prompt.id)
        for config in plan.gates:
            if registry[config.name].scope == "draft":
                for inputs, name in named_drafts(plan.inputs):
                    yield self._item(config, inputs, name, name)
        several = len(plan.inputs.num_draft_tokens) > 1
        for config in plan.gates:
            if registry[config.name].scope == "arm":
                for k in plan.inputs.num_draft_tokens:
                    inputs = replace(plan.inputs, num_draft_tokens=(k,))
                    subject = f"k={k}"
                    yield self._item(config, inputs, subject, subject if several else None)

    def _item(
        self, config: GateConfig, inputs: Inputs, subject: str, suffix: str | None
    ) -> GateItem:
        name = self.spec.registry.gates[config.name].item
        item: GateItem = GateItem.from_parent(self, name=f"{name}[{suffix}]" if suffix else name)
        item.config_of_gate, item.inputs, item.subject = config, inputs, subject
        self.spec.group(item, (config,))
        return item


def named_drafts(inputs: Inputs) -> list[tuple[Inputs, str]]:
    """Each draft with its name: the last part of it, or all of it where several end alike."""
    drafts = [one for one in inputs.each_draft if one.draft is not None]
    return list(zip(drafts, inputs.draft_names, strict=True))


class GateItem(pytest.Item):
    """One gate on one subject: a prompt, a draft, or a number of draft tokens."""

    config_of_gate: GateConfig
    inputs: Inputs
    subject: str

    @property
    def plan(self) -> Plan:
        """The plan of the file that this item stands in."""
        assert isinstance(self.parent, GatesFile)
        return self.parent.plan

    @property
    def spec(self) -> SpecSession:
        """The session's state."""
        assert isinstance(self.parent, GatesFile)
        return self.parent.spec

    def setup(self) -> None:
        """Fail where a pair is required and there is none."""
        self.spec.need_pair(self)

    def runtest(self) -> None:
        """Measure what is not measured yet, and judge."""
        verdict = self.spec.judge.item(self)
        if verdict.status == "failed":
            raise GateFailed(self.spec.judge.explain(verdict))
        self.spec.settle([verdict], named=False)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The verdict's own words; a traceback only for a fault of specgate itself."""
        if isinstance(excinfo.value, GateFailed | ConfigError):
            return shown_lines(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The line of the gates file that asked for this gate."""
        _, _, line = self.config_of_gate.origin.rpartition("line ")
        return self.path, int(line) - 1 if line.isdigit() else None, self.name

"""Measures what an item needs, asks the gate, and keeps the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from .baseline.document import exact_under
from .config.plan import GateConfig, Inputs, Measure
from .environment import environment, plain_json
from .gates.base import Gate, Verdict, judged
from .items import GateItem
from .measure.campaign import Campaign, Wants
from .measure.evidence import CaseEvidence, Evidence
from .measure.lock import Busy
from .measure.store import Store
from .parallel import why_untimed
from .registry import Registry
from .report.junit import properties
from .report.session_report import WORST_FIRST, MeasuredPair
from .report.terminal import explanation
from .saved_case import save_case
from .saved_outputs import save_outputs
from .text import count


class Judge:
    """The verdicts of one session, and the store that the evidence comes from."""

    def __init__(self, config: pytest.Config, registry: Registry, store: Store) -> None:
        """Nothing is measured yet."""
        self._config = config
        self._gates = registry.gates
        self._store = store
        self._progress = store.watcher
        self._selected: list[GateItem] = []
        self._verdicts: dict[tuple[str, str, str], Verdict] = {}
        self._measured: dict[int, tuple[Campaign, Inputs]] = {}
        self._environment: dict[str, Any] | None = None
        self._timed: dict[int, set[tuple[str, str, str]]] = {}
        self._rounds: dict[int, Measure] = {}
        self.places: dict[str, tuple[str, int | None]] = {}

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """In the order they were reached; a rerun replaces the earlier one."""
        return tuple(self._verdicts.values())

    def measured(self) -> tuple[MeasuredPair, ...]:
        """Everything generated, a pair with its options each."""
        return tuple(
            MeasuredPair(
                replace(inputs, num_draft_tokens=campaign.num_draft_tokens),
                self._store.pair_info(inputs),
                campaign.cases(),
                campaign.noise(measure := self._rounds.get(id(campaign), Measure())),
                campaign.trials(measure),
            )
            for campaign, inputs in self._measured.values()
            if campaign.cases()
        )

    def expect(
        self, item: pytest.Item, inputs: Inputs, measure: Measure, gates: list[Gate]
    ) -> None:
        """Register what a selected item will ask for, so that one round serves every gate."""
        if isinstance(item, GateItem):
            self._selected.append(item)
        if inputs.has_pair:
            timed = any(gate.needs == "rounds" for gate in gates)
            campaign = self.campaign(inputs)
            rounds = measure.min_rounds if timed else 0
            campaign.register(inputs, rounds=rounds)
            if not isinstance(item, GateItem):
                for gate in gates:
                    campaign.register(gate.own(inputs), rounds=rounds)
            if timed:
                self._rounds[id(campaign)] = measure

    def campaign(self, inputs: Inputs) -> Campaign:
        """The campaign of these inputs, kept for the report."""
        campaign = self._store.campaign(inputs)
        self._measured.setdefault(id(campaign), (campaign, inputs))
        return campaign

    def measure(
        self,
        inputs: Inputs,
        measure: Measure,
        gate: Gate | None,
        wants: Wants = lambda _: (),
        untimed: str | None = None,
    ) -> Evidence:
        """Evidence as the gate needs it; one pass of either path where no gate asks.

        Args:
            inputs, measure: what is measured.
            gate: that asks.
            wants: further rounds.
            untimed: why nothing may be timed.
        """
        campaign = self.campaign(inputs)
        with self._progress.running(), self.together():
            if gate is not None and gate.needs == "rounds":
                if untimed:
                    return replace(campaign.parity_pass(inputs), unmeasured=untimed)
                return campaign.rounds(inputs, measure, wants)
            passes = {
                "preflight": campaign.preflight_pass,
                "options": campaign.options_pass,
                "reuse": campaign.reuse_pass,
                "scan": campaign.scan_pass,
                "samples": campaign.samples_pass,
                "distribution": campaign.distribution_pass,
            }
            return passes.get(gate.needs if gate else "", campaign.parity_pass)(inputs)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what is generated; fails the test where somebody who times does not end."""
        try:
            with self._store.together():
                yield
        except Busy as busy:
            pytest.fail(str(busy), pytrace=False)

    def item(self, item: GateItem) -> Verdict:
        """The verdict of one gate item."""
        gate, options = self._gates[item.config_of_gate.name], item.config_of_gate.options
        campaign = self.campaign(item.inputs)
        self._run_again(item, gate, item.subject, item.inputs, item.plan.measure)
        peers = [
            (self._gates[other.config_of_gate.name], other)
            for other in self._selected
            if self.campaign(other.inputs) is campaign
        ]

        def wants(_: Evidence) -> set[int]:
            return {
                k
                for peer, other in peers
                if peer.needs == "rounds"
                for k in peer.wanted_arms(
                    campaign.evidence(other.inputs),
                    other.config_of_gate.options,
                    campaign.most_rounds(other.inputs, other.plan.measure),
                )
            }

        untimed = why_untimed(item)
        evidence = self.measure(item.inputs, item.plan.measure, gate, wants, untimed)
        verdict = self._judged(gate, evidence, options, item.subject, item.inputs)
        return self._record(item, verdict, item.inputs)

    def _judged(
        self,
        gate: Gate,
        evidence: Evidence,
        options: Mapping[str, Any],
        subject: str,
        inputs: Inputs,
    ) -> Verdict:
        """The verdict, where it says so after a second look in a fresh process."""
        verdict = judged(gate, evidence, options, subject)
        side = gate.wants_second_look(verdict)
        if side is None:
            return verdict
        with self._progress.running(), self.together():
            evidence = self.campaign(inputs).look_again(inputs, side)
        return judged(gate, evidence, options, subject)

    def _run_again(
        self, item: pytest.Item, gate: Gate, subject: str, inputs: Inputs, measure: Measure
    ) -> None:
        """A rerun within the session: undecided goes on with its sample, failed starts afresh."""
        before = self._verdicts.get((item.nodeid, gate.name, subject))
        if before is None:
            return
        if before.status == "failed":
            self.campaign(inputs).forget(inputs)
        elif before.status == "inconclusive" and gate.needs == "rounds":
            self.campaign(inputs).grant(inputs, measure.max_rounds)

    def keep_samples(self) -> None:
        """At the end of the session: the trials of undecided gates, where none of them failed.

        Where nothing timed was judged, as after an interrupt, an earlier sample stays.

        Raises:
            OSError: they cannot be written.
        """
        for key, (campaign, _) in self._measured.items():
            if found := {self._verdicts[name].status for name in self._timed.get(key, ())}:
                campaign.keep_sample(undecided="inconclusive" in found and "failed" not in found)

    def markers(
        self, item: pytest.Item, configs: Iterable[GateConfig], inputs: Inputs, measure: Measure
    ) -> list[Verdict]:
        """Judge every gate marker of a test.

        Fails the test, with all failed verdicts in words, when there are any.
        """
        verdicts: list[Verdict] = []
        for config in sorted(configs, key=lambda c: self._gates[c.name].scope != "prompt"):
            gate = self._gates[config.name]
            for part, subject in _parts(gate, inputs):
                self._run_again(item, gate, subject, part, measure)
                most = self.campaign(part).most_rounds(part, measure)

                def wants(
                    evidence: Evidence,
                    gate: Gate = gate,
                    options: Mapping[str, Any] = config.options,
                    most: int = most,
                ) -> Collection[int]:
                    return gate.wanted_arms(evidence, options, most)

                evidence = self.measure(part, measure, gate, wants, why_untimed(item))
                verdict = self._judged(gate, evidence, config.options, subject, part)
                verdicts.append(self._record(item, verdict, part))
        failed = [verdict for verdict in verdicts if verdict.status == "failed"]
        if failed:
            pytest.fail("\n\n".join(map(self.explain, failed)), pytrace=False)
        return verdicts

    def explain(self, verdict: Verdict) -> str:
        """A verdict in words."""
        gate = self._gates[verdict.gate]
        named = gate.scope in ("prompt", "draft")
        name = f"{gate.item}[{verdict.subject}]" if named else gate.item
        return explanation(name, verdict)

    def facts(self) -> Mapping[str, Any]:
        """The recorded environment, gathered once."""
        if self._environment is None:
            facts = environment(self._store.engine_info)
            hook = self._config.hook
            hook.pytest_specgate_environment(environment=facts, config=self._config)
            self._environment = {name: plain_json(value) for name, value in facts.items()}
        return self._environment

    def _record(self, item: pytest.Item, verdict: Verdict, inputs: Inputs) -> Verdict:
        """Keep a verdict, save a failing case, set the item's properties, tell the hook."""
        self.places[item.nodeid] = item.location[:2]
        if verdict.status == "failed" and verdict.gate == "parity":
            verdict = self._save_failure(verdict, inputs)
        if verdict.evidence.get("failing"):
            verdict = self._save_outputs(verdict, inputs)
        for part in verdict.parts:
            key = (item.nodeid, part.gate, part.subject)
            self._verdicts[key] = replace(part, item=item.nodeid)
        verdict = replace(verdict, item=item.nodeid, parts=())
        key = (item.nodeid, verdict.gate, verdict.subject)
        self._verdicts[key] = verdict
        if self._gates[verdict.gate].needs == "rounds":
            self._timed.setdefault(id(self.campaign(inputs)), set()).add(key)
        if isinstance(item, GateItem):
            others = [entry for entry in item.user_properties if entry[0][:9] != "specgate_"]
            item.user_properties[:] = [*others, *properties(verdict)]
        else:
            name = self._gates[verdict.gate].item
            prefix = f"specgate_{name}[{verdict.subject}]"
            statuses = [v.status for (node, *_), v in self._verdicts.items() if node == item.nodeid]
            status = min(statuses, key=WORST_FIRST.index)
            others = [
                (key, value)
                for key, value in item.user_properties
                if key != "specgate_status" and not key.startswith(f"{prefix}_")
            ]
            item.user_properties[:] = [
                *others,
                *properties(verdict, prefix),
                ("specgate_status", status),
            ]
        self._config.hook.pytest_specgate_verdict(verdict=verdict, config=self._config)
        return verdict

    def _save_failure(self, verdict: Verdict, inputs: Inputs) -> Verdict:
        evidence = self._store.campaign(inputs).evidence(inputs)
        cases = [case for case in evidence.cases if case.prompt.id == verdict.subject]
        if not cases or cases[0].error:
            return verdict
        directory = self._config.rootpath / ".specgate" / "failures"
        try:
            path = save_case(directory, cases[0], inputs, self.facts())
        except OSError as error:
            note = f"the case could not be saved: {error}"
            return replace(verdict, details=(*verdict.details, note))
        here = self._config.invocation_params.dir
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        command = f"Replay: pytest --spec-replay {shlex.quote(str(shown))}"
        good = self._known_good(cases[0], inputs)
        return replace(verdict, advice=(*verdict.advice, *good, command))

    def _save_outputs(self, verdict: Verdict, inputs: Inputs) -> Verdict:
        """Every output that fails a check, a file a prompt; a passed verdict may have some too."""
        failing: list[Mapping[str, Any]] = verdict.evidence["failing"]
        directory = self._config.rootpath / ".specgate" / "failures"
        ids = {one["prompt"] for one in failing}
        try:
            for case in self._store.campaign(inputs).evidence(inputs).cases:
                of_prompt = [one for one in failing if one["prompt"] == case.prompt.id]
                if of_prompt:
                    save_outputs(directory, case, of_prompt, inputs, self.facts())
            note = f"saved: {count(len(ids), 'prompt')} in .specgate/failures/quality-*.json"
        except OSError as error:
            note = f"the failing outputs could not be saved: {error}"
        return replace(verdict, details=(*verdict.details, note))

    def _known_good(self, case: CaseEvidence, inputs: Inputs) -> tuple[str, ...]:
        """The versions under which a stored session was exact here, if one is at hand."""
        reference, info = self._store.reference, self._store.pair_info(inputs)
        if reference is None or reference.baseline is None or info is None:
            return ()
        versions = exact_under(reference.baseline, case, info)
        return (f"It was exact under {versions} (baseline {reference.name}).",) if versions else ()


def _parts(gate: Gate, inputs: Inputs) -> list[tuple[Inputs, str]]:
    """(inputs, subject) of each verdict that a gate gives on these inputs."""
    if gate.scope == "pair":
        return [(gate.own(inputs), "pair")]
    if gate.scope == "prompt":
        return [(inputs.only(prompt), prompt.id) for prompt in inputs.prompts]
    return [(replace(inputs, num_draft_tokens=(k,)), f"k={k}") for k in inputs.num_draft_tokens]

"""The decision checklist: what is to be known before a pair is put to use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..gates.acceptance import AcceptanceGate
from ..gates.base import Verdict
from ..measure.blocks import joined
from ..measure.evidence import PLAIN
from ..measure.trial import Trial
from ..preflight.resources import CLEARLY_SMALLER
from ..prompts import builtin
from ..text import count, gigabytes
from .session_report import MeasuredPair, SessionReport

State = Literal["yes", "no", "not measured"]
LEAST_SWEEP = 3  # values of k; fewer show no rise and fall


@dataclass(frozen=True, slots=True)
class Check:
    """One line; ``note`` is the evidence, or what would measure it."""

    name: str
    state: State
    note: str

    @property
    def text(self) -> str:
        """The line without its mark."""
        return f"{self.name}: {'' if self.state == 'yes' else f'{self.state}, '}{self.note}"


def checklist(report: SessionReport) -> list[Check]:
    """Every line, in the order in which a pair is chosen."""
    lines = {
        "tokenizers equal": _tokenizers,
        "draft clearly smaller, acceptance not poor": _draft,
        "plain baseline warm and repeated": _plain,
        "sweep over num_draft_tokens": _sweep,
        "TTFT, decode and e2e apart": _times,
        "memory and swap safe": _memory,
        "greedy parity": _parity,
        "quality of sampled tasks": _quality,
        "median and p95 better on the real prompt mix": _faster,
        "baseline stored for the next upgrade": _stored,
    }
    return [Check(name, *judge(report)) for name, judge in lines.items()]


Found = tuple[State, str]


def _of(report: SessionReport, gate: str) -> list[Verdict]:
    return [verdict for verdict in report.whole_verdicts if verdict.gate == gate]


def _by_gate(*gates: str) -> Found:
    one = len(gates) == 1
    words = f"the gate {gates[0]} measures" if one else f"the gates {' and '.join(gates)} measure"
    return "not measured", f"{words} it"


def _tokenizers(report: SessionReport) -> Found:
    verdicts = _of(report, "preflight")
    if not verdicts:
        return _by_gate("preflight")
    findings = [v for v in report.verdicts if v.gate == "preflight" and "severity" in v.evidence]
    for finding in findings:
        if finding.subject == "draft tokenizer" and finding.evidence["severity"] == "error":
            return "no", finding.reason
    for finding in findings:
        if finding.subject == "isolated pair":
            return "not measured", "run -k preflight once without --spec-isolate"
        if finding.subject == "same ids":
            return "not measured", finding.reason
    others = {pair.inputs.engine for pair in report.measured} - {"mlx-lm"}
    if others:
        return "not measured", f"the engine {', '.join(sorted(others))} shows no tokenizers"
    if any(verdict.samples == 0 for verdict in verdicts):
        return "not measured", verdicts[0].reason
    return "yes", count(sum(verdict.samples for verdict in verdicts), "check")


def _draft(report: SessionReport) -> Found:
    infos = [pair.info for pair in report.measured if pair.info]
    rates = [rate for pair in report.measured if (rate := _best_rate(pair)) is not None]
    if not infos or not rates:
        return _by_gate("acceptance")
    for pair in report.measured:
        if pair.inputs.target == pair.inputs.draft:
            return "no", "the draft is the target itself"
    for info in infos:
        sizes = f"{gigabytes(info.draft.bytes)} against {gigabytes(info.target.bytes)}"
        if info.draft.bytes > CLEARLY_SMALLER * info.target.bytes:
            return "no", sizes
    failed = [v for v in _of(report, "acceptance") if v.status == "failed"]
    judged = _of(report, "acceptance")
    if judged and len(failed) == len(judged):
        return "no", failed[0].reason
    least = AcceptanceGate.defaults["min"]
    if not judged and min(rates) < least:
        return "no", f"{min(rates):.3f} of the proposed tokens are accepted, {least:g} is usual"
    return "yes", f"{sizes}, acceptance {min(rates):.3f}"


def _best_rate(pair: MeasuredPair) -> float | None:
    """accepted / proposed at the k that has most of it: it falls as k grows."""
    arms = [arm for case in pair.cases for arm in case.arms.values() if arm.blocks is not None]
    rates = []
    for k in {arm.num_draft_tokens for arm in arms}:
        blocks = joined(arm.blocks for arm in arms if arm.num_draft_tokens == k)
        rates += [blocks.acceptance_rate] if blocks.acceptance_rate is not None else []
    return max(rates, default=None)


def _trials(report: SessionReport, *, plain: bool) -> list[tuple[Trial, ...]]:
    """The trials of each arm that has some."""
    return [
        arm.trials
        for pair in report.measured
        for case in pair.cases
        for name, arm in case.arms.items()
        if arm.trials and (name == PLAIN if plain else arm.num_draft_tokens is not None)
    ]


def _plain(report: SessionReport) -> Found:
    arms = _trials(report, plain=True)
    if not arms:
        return _by_gate("speedup")
    rounds = min(map(len, arms))
    if rounds < 2:
        return "no", "a single round; --spec-rounds 5:12 repeats it"
    return "yes", f"{count(rounds, 'round')} after a warm-up"


def _sweep(report: SessionReport) -> Found:
    found = [
        {
            arm.num_draft_tokens
            for case in pair.cases
            for arm in case.arms.values()
            if arm.num_draft_tokens is not None and arm.trials
        }
        for pair in report.measured
    ]
    ks = sorted(k for k in max(found, key=len, default=set()) if k is not None)
    if len(ks) < LEAST_SWEEP:
        return "not measured", "--spec-num-draft-tokens 1,2,3,5,8 with the gate speedup measures it"
    return "yes", f"k = {', '.join(map(str, ks))}"


def _times(report: SessionReport) -> Found:
    for plain in (True, False):
        arms = _trials(report, plain=plain)
        if not arms:
            return _by_gate("speedup")
        if not any(trial.decode_s is not None for trials in arms for trial in trials):
            return "no", "every output is a single token; --spec-max-tokens gives more"
    return "yes", "from one clock, on both paths"


def _memory(report: SessionReport) -> Found:
    verdicts = _of(report, "memory")
    for verdict in verdicts:
        if verdict.status == "failed":
            return "no", verdict.reason
    for verdict in verdicts:
        if verdict.status != "passed":
            return "not measured", verdict.reason
    if not verdicts:
        return _by_gate("memory")
    grown = [verdict.evidence.get("swap_growth_bytes") for verdict in verdicts]
    known = [size for size in grown if size is not None]
    if len(known) < len(grown):
        return "not measured", f"{verdicts[0].observed_text}, but swap is not known"
    return "yes", f"{verdicts[0].observed_text}, swap +{gigabytes(max(0, *known))}"


def _parity(report: SessionReport) -> Found:
    if any(pair.inputs.decoding.temperature > 0 for pair in report.measured):
        return "not measured", "decoding.temperature: 0 in gates.yaml measures it"
    if any(pair.inputs.parity == "scored" for pair in report.measured):
        return "not measured", "parity: {mode: exact} in gates.yaml measures it"
    verdicts = _of(report, "parity")
    if not verdicts:
        return _by_gate("parity")
    prompts = {verdict.subject for verdict in verdicts}
    if failed := {verdict.subject for verdict in verdicts if verdict.status == "failed"}:
        return "no", f"{len(failed)} of {count(len(prompts), 'prompt')} failed"
    if ties := sum(verdict.evidence.get("near_ties", 0) for verdict in verdicts):
        return "no", f"{count(ties, 'near tie')} let through"
    for verdict in verdicts:
        if verdict.status != "passed":
            return "not measured", verdict.reason
    return "yes", f"{count(len(prompts), 'prompt')}, token for token"


def _quality(report: SessionReport) -> Found:
    verdicts = _of(report, "quality")
    if not verdicts:
        return "not measured", "the gate quality, with decoding.temperature above 0, measures it"
    for verdict in verdicts:
        if verdict.status == "failed":
            return "no", verdict.reason
    for verdict in verdicts:
        if verdict.status != "passed":
            return "not measured", verdict.reason
    if not any(verdict.evidence["sampled"] for verdict in verdicts):
        return "not measured", "greedy output passes; decoding.temperature above 0 samples"
    return "yes", verdicts[0].observed_text


def _faster(report: SessionReport) -> Found:
    speedup, latency = _of(report, "speedup"), _of(report, "latency")
    if not speedup or not latency:
        missing = [name for name, of in (("speedup", speedup), ("latency", latency)) if not of]
        return _by_gate(*missing)
    ks = list(dict.fromkeys(verdict.subject for verdict in (*speedup, *latency)))
    at = {k: [v for v in (*speedup, *latency) if v.subject == k] for k in ks}
    good = [k for k in ks if all(v.status == "passed" for v in at[k])]
    bad = [v for k in ks for v in at[k] if v.status == "failed"]
    if not good and {v.subject for v in bad} == set(ks):
        return "no", bad[0].reason
    if not good:
        first = next(v for v in (*speedup, *latency) if v.status not in ("passed", "failed"))
        return "not measured", f"{first.gate} is undecided; more --spec-rounds decide it"
    where = ", ".join(good)
    if not _own_prompts(report.measured):
        return "not measured", f"{where} is, on built-in prompts; --spec-prompts FILE takes yours"
    return "yes", where


def _own_prompts(measured: Iterable[MeasuredPair]) -> bool:
    """Some prompt is none of those that come with specgate."""
    known = {prompt.text for prompt in builtin("core") or ()}
    return any(case.prompt.text not in known for pair in measured for case in pair.cases)


def _stored(report: SessionReport) -> Found:
    if report.stored:
        return "yes", report.stored
    names = [v.evidence["compared"] for v in _of(report, "baseline") if "compared" in v.evidence]
    if names:
        return "yes", f"{names[0]}, of an earlier session"
    return "not measured", "--spec-save-baseline NAME stores it"

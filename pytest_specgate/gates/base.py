"""What a gate is, and what it says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from ..config.spec import found

if TYPE_CHECKING:
    from ..config.plan import Inputs
    from ..config.spec import Spec
    from ..measure.evidence import Evidence, Side

Status = Literal["passed", "failed", "inconclusive", "skipped"]
Scope = Literal["pair", "prompt", "arm", "draft"]
Needs = Literal[
    "preflight", "parity", "options", "reuse", "samples", "distribution", "scan", "rounds"
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says of one limit.

    ``observed``, ``limit`` and ``spread`` (a 95 % interval) are in ``unit``; the ``*_text`` fields
    are the same figures as a person reads them. ``reason`` is one sentence; ``details`` are lines
    of evidence and ``advice`` lines of what to do, both for a person. ``item`` is the node id of
    the test item that asked, set when the verdict is recorded. ``kind`` is the diagnosis of a
    parity failure; ``parts`` are verdicts that this one sums up, reported beside it.
    ``false_alarm`` is the most that the chance of a false failure was, the truth at the limit.
    """

    gate: str
    subject: str
    status: Status
    reason: str
    observed: float | None = None
    limit: float | None = None
    unit: str = ""
    samples: int = 0
    spread: tuple[float, float] | None = None
    observed_text: str = "-"
    limit_text: str = "-"
    evidence_text: str = ""
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    item: str = ""
    kind: str | None = None
    parts: tuple[Verdict, ...] = ()
    false_alarm: float = 0.0


class Gate(Protocol):
    """A limit on measured evidence.

    Attributes:
        name: the key in gates.yaml and in the marker ``spec_<name>``.
        item: the name of its test item; differs from name where a gate judges one figure of many.
        options: option -> how it is checked. An option left out gets ``defaults``.
        scope: ``pair`` for one item, ``prompt`` for one a prompt, ``arm`` for one a number of
            draft tokens, ``draft`` for one a draft.
        needs: ``preflight`` (nothing generated), ``parity`` (one pass over each path), that and
            ``options`` tried alone, the ``reuse`` of prompt caches or further ``samples``, outputs
            drawn with many seeds and the target's law (``distribution``), ``scan`` (plain outputs
            and a pass of the draft over them), or ``rounds`` (timed trials).
    """

    @property
    def name(self) -> str: ...
    @property
    def item(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Spec]: ...
    @property
    def defaults(self) -> Mapping[str, Any]: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def needs(self) -> Needs: ...

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Why these options cannot be judged on these inputs, or None. Asked before any model."""
        ...

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """The same inputs, with what this gate wants measured in a way of its own."""
        ...

    def judge(self, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
        """The verdict on evidence that is cut to one prompt, or to one number of draft tokens."""
        ...

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """Another round, of most_rounds in all, could still change the verdict."""
        ...

    def wanted_arms(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> Collection[int]:
        """The numbers of draft tokens of which another round could change the verdict."""
        ...

    def own(self, inputs: Inputs) -> Inputs:
        """What an item of this gate measures, of the inputs of its plan or marker."""
        ...

    def wants_second_look(self, verdict: Verdict) -> Side | None:
        """Where peak memory is to be seen again, in a fresh process, before this verdict stands."""
        ...


class BaseGate:
    """What most gates share; a gate of your own needs ``name``, ``options`` and ``judge``."""

    name = ""
    item = ""
    options: Mapping[str, Spec] = {}
    defaults: Mapping[str, Any] = {}
    scope: Scope = "arm"
    needs: Needs = "rounds"

    def __init_subclass__(cls) -> None:
        """The item is named like the gate unless it says otherwise."""
        if "item" not in vars(cls):
            cls.item = cls.name

    def complaint(self, options: Mapping[str, Any], inputs: Inputs) -> str | None:
        """Nothing to complain of."""
        return None

    def asks(self, options: Mapping[str, Any], inputs: Inputs) -> Inputs:
        """Nothing of its own."""
        return inputs

    def wants_rounds(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> bool:
        """The minimum of rounds is enough."""
        return False

    def wanted_arms(
        self, evidence: Evidence, options: Mapping[str, Any], most_rounds: int
    ) -> Collection[int]:
        """All of the evidence, while ``wants_rounds``."""
        wants = self.wants_rounds(evidence, options, most_rounds)
        return evidence.num_draft_tokens if wants else ()

    def own(self, inputs: Inputs) -> Inputs:
        """The very same."""
        return inputs

    def wants_second_look(self, verdict: Verdict) -> Side | None:
        """No figure of it is memory."""
        return None

    def failed(self, subject: str, reason: str, *advice: str, **more: Any) -> Verdict:
        """A failed verdict of this gate."""
        return Verdict(self.name, subject, "failed", reason, advice=advice, **more)


def judged(gate: Gate, evidence: Evidence, options: Mapping[str, Any], subject: str) -> Verdict:
    """A gate's verdict; undecided where there was no time to generate anything that it judges.

    A gate of another project may give something that is no verdict of its own: that is failed.
    """
    if evidence.unmeasured and not evidence.cases and gate.needs != "preflight":
        return Verdict(gate.name, subject, "inconclusive", evidence.unmeasured)
    verdict: object = gate.judge(evidence, options, subject)
    if not isinstance(verdict, Verdict):
        problem = f"it gave {found(verdict)} where a Verdict is due"
    elif verdict.gate != gate.name:
        problem = f"its verdict names the gate {verdict.gate!r}"
    elif verdict.status not in get_args(Status):
        problem = f"its verdict has the status {verdict.status!r}"
    else:
        return verdict
    return Verdict(gate.name, subject, "failed", f"the gate {gate.name} is at fault: {problem}")


def nothing_drafted(evidence: Evidence) -> tuple[str, tuple[str, ...]] | None:
    """Why these outputs are not those of a speculative run that went well, and what to do."""
    broken = [case for case in evidence.cases if case.error]
    if broken and len(broken) == len(evidence.cases):
        return f"nothing could be generated: {broken[0].error}", ()
    for case in evidence.cases:
        if case.broke_in_round:
            return f"generating broke while it was timed: {case.prompt.id}, {case.error}", ()
        for name, arm in case.arms.items():
            if arm.unstable:
                return f"not deterministic: {case.prompt.id}, {name}: {arm.unstable}", (
                    "The same path gave two outputs at temperature 0; no figure of it holds.",
                )
    if not evidence.drafted:
        return "nothing was drafted: the draft model was never called", (
            "Check that the engine passes the draft model on; without it nothing is gained.",
        )
    return None


def nothing_to_judge(evidence: Evidence) -> tuple[str, tuple[str, ...]] | None:
    """Why no figure of this evidence may turn a gate green, and what to do; None when some may.

    Cases that failed parity do not count: they are not timed, and their gain is no gain.
    """
    if problem := nothing_drafted(evidence):
        return problem
    usable = evidence.usable
    if not usable:
        return (
            f"nothing to judge: none of {len(evidence.cases)} prompts gave an output on both paths "
            "that can be trusted",
            ("See the parity verdicts: speed and memory of a wrong output mean nothing.",),
        )
    if not any(arm.generation.tokens for case in usable for arm in case.arms.values()):
        return "nothing was generated: every output is empty", (
            "Check the prompts and max_tokens, and that the first token is not always the end.",
        )
    return None

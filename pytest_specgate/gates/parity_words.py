"""How a parity failure reads: one sentence, both texts, the signals, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from ..measure.diagnosis import moves_earlier
from ..text import shown

if TYPE_CHECKING:
    from ..engines.base import Generation, PairInfo
    from ..measure.diagnosis import Diagnosis
    from ..measure.evidence import ArmEvidence, CaseEvidence

_AROUND = 5

ADVICE: Mapping[str, str] = {
    "cache-corruption": "Keep prompt + max_tokens under the model's attention window, or switch "
    "the draft off for this model. It is a fault of how caches are rewound: report it to mlx-lm "
    "with the saved case.",
    "near-tie": "Nothing is corrupted. Accept it with parity: {mode: tie_aware}, or use a wider "
    "dtype for the logits if the text must not change.",
    "options-differ": "An option reaches one of mlx-lm's two paths only (a logits processor, "
    "max_kv_size): leave it out, or run without the draft.",
    "out-of-range-ids": "Draft and target do not share a vocabulary: use a draft of the same "
    "family.",
    "non-deterministic": "Set temperature to 0 on both paths; look for other programs on the "
    "device, or kernels that do not promise an order.",
    "unexplained": "Do not rely on this pair's speculative output. No known signal fits: report it "
    "to mlx-lm with the saved case.",
}


def sentence(kind: str | None, case: CaseEvidence, arm: ArmEvidence, first: int) -> str:
    """What happened, in one sentence that begins after the kind."""
    diagnosis = arm.diagnosis
    where = f"from output token {first} on the speculative text is not the target's own"
    name = f"k = {arm.num_draft_tokens}"
    if diagnosis is None:
        return f"{where} ({name})"
    match kind:
        case "cache-corruption":
            moved = [emitted for emitted, drift in diagnosis.drift if drift]
            if moved:
                held = len(case.tokens) + moved[0]
                return f"the target's cache stops rewinding once {held} tokens are held ({name})"
            if diagnosis.stuck:
                caches = " and ".join(diagnosis.stuck)
                return f"the target's {caches} cannot be rewound: {where} ({name})"
            return f"{where}, and sooner for larger k ({name})"
        case "near-tie":
            parted = f"the outputs part at token {first}"
            margins = diagnosis.check.scores.margins if diagnosis.check else ()
            if first >= len(margins):  # an output that only ends sooner has no token there
                return parted
            return f"{parted}, where the best two lie {margins[first]:.2g} nats apart"
        case "options-differ":
            return f"the speculative path differs from token {first} on even without proposals"
        case "out-of-range-ids":
            return f"the draft proposes id {arm.generation.largest_proposal}, beyond the target's"
        case "non-deterministic":
            path = "plain" if not diagnosis.plain_repeats else "speculative"
            return f"the {path} path gave two outputs for the same input"
    return f"{where} ({name})"


def continuations(case: CaseEvidence, arm: ArmEvidence) -> list[str]:
    """Both texts around the first character that differs."""
    plain, speculative = case.plain.generation.text, arm.generation.text
    at = next(
        (i for i, (a, b) in enumerate(zip(plain, speculative, strict=False)) if a != b),
        min(len(plain), len(speculative)),
    )
    start = max(0, at - 32)
    lead = "... " if start else ""
    return [
        f"{label}  {lead}{shown(text[start:at])}|{shown(text[at : at + 32])}"
        for label, text in (("plain", plain), ("spec ", speculative))
    ]


def token_ids(case: CaseEvidence, arm: ArmEvidence, first: int) -> list[str]:
    """The ids around the first token that differs."""
    return [_ids("plain ids", case.plain, first), _ids("spec ids", arm, first)]


def _ids(label: str, arm: ArmEvidence, first: int) -> str:
    tokens = arm.generation.tokens
    before = " ".join(map(str, tokens[max(0, first - _AROUND) : first]))
    after = " ".join(map(str, tokens[first : first + _AROUND])) or "(end)"
    return f"{label:<18} {before} | {after}"


def first_differences(case: CaseEvidence, arm: ArmEvidence) -> str:
    """Where each k parts, the measured ones and those run for the diagnosis."""
    found = {p.num_draft_tokens: p.first_difference for p in case.parity() if not p.tokens_equal}
    moves = ""
    if arm.diagnosis is not None:
        found |= arm.diagnosis.differences
        if moves_earlier(arm.diagnosis.differences):
            moves = ": moves with k, so not rounding"
    at = ", ".join(
        f"{'none' if first is None else first} (k = {k})" for k, first in sorted(found.items())
    )
    return f"first difference   {at}{moves}"


def signals(
    kind: str | None, case: CaseEvidence, arm: ArmEvidence, pair: PairInfo | None
) -> list[str]:
    """The evidence rows."""
    diagnosis = arm.diagnosis
    if diagnosis is None:
        return [f"block counts       {arm.broken}"] if arm.broken else []
    again = [
        f"plain {'equal' if diagnosis.plain_repeats else 'differs'}",
        f"speculative {'equal' if diagnosis.speculative_repeats else 'differs'}",
        f"k = 0 {'equal' if diagnosis.zero_draft_equal else 'differs'}",
    ]
    rows = [f"run again          {', '.join(again)}"]
    if diagnosis.check is not None:
        rows += _gaps(diagnosis, case, arm)
    rows.append(f"cache ledger       {_ledger(diagnosis)}")
    if diagnosis.stuck is not None:
        stuck = " and ".join(diagnosis.stuck)
        probed = f"{stuck} cannot be rewound" if stuck else "rewound"
        rows.append(f"rewind probe       {probed} at the first difference")
    largest = arm.generation.largest_proposal
    if kind == "out-of-range-ids" and pair is not None:
        rows.append(f"largest proposal   {largest}, embedding rows {pair.target.embedding_rows}")
    return rows


def _gaps(diagnosis: Diagnosis, case: CaseEvidence, arm: ArmEvidence) -> list[str]:
    check = diagnosis.check
    assert check is not None
    first = next((f for f in diagnosis.differences.values() if f is not None), 0)
    own = diagnosis.differences.get(arm.num_draft_tokens or 0)
    at = min(first if own is None else own, len(check.scores.margins) - 1)
    usual = median(case.plain.generation.margins or (0.0,))
    return [
        f"top-2 gap there    {check.scores.margins[at]:.2g} nats, usually {usual:.2g}, "
        f"noise floor {check.floor:.2g}",
        f"teacher-forced     {len(check.wide)} of {len(check.scores.gaps)} tokens wrong, widest "
        f"gap {check.largest_gap:.2g} nats",
    ]


def _ledger(diagnosis: Diagnosis) -> str:
    moved = [(emitted, drift) for emitted, drift in diagnosis.drift if drift]
    if not diagnosis.drift:
        return "not seen"
    if not moved:
        return "constant"
    values = [drift for _, drift in moved]
    return f"+0 until token {moved[0][0]}, then {min(values):+d} .. {max(values):+d}"


def evidence_of(diagnosis: Diagnosis, generation: Generation, rows: int | None) -> dict[str, Any]:
    """The signals as plain JSON."""
    check = diagnosis.check
    drifts = [drift for _, drift in diagnosis.drift]
    return {
        "plain_repeats": diagnosis.plain_repeats,
        "speculative_repeats": diagnosis.speculative_repeats,
        "zero_draft_equal": diagnosis.zero_draft_equal,
        "first_difference": {f"k={k}": at for k, at in diagnosis.differences.items()},
        "cache_drift": {"least": min(drifts), "most": max(drifts)} if drifts else None,
        "rewind_probe": list(diagnosis.stuck) if diagnosis.stuck is not None else None,
        "noise_floor": check.floor if check else None,
        "widest_gap": check.largest_gap if check else None,
        "wide_tokens": len(check.wide) if check else None,
        "near_ties": len(check.ties) if check else None,
        "largest_proposal": generation.largest_proposal,
        "embedding_rows": rows,
    }

"""What differs between two sessions beside their figures: facts, models, prompts, decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure.evidence import PLAIN
from ..text import count
from .document import Baseline, StoredCase, same_decoding

# what makes two machines one: facts that do not change from day to day
MACHINE = ("chip", "architecture", "cpu_count", "memory_bytes", "device", "gpu_cores")


_FACTS = (*MACHINE, "os", "python", "power", "low_power_mode")


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs; None where a side does not have it."""

    name: str
    then: str | None
    now: str | None


def changes(then: Baseline, now: Baseline) -> Iterable[Change]:
    """Versions first, then machine, models, prompts and decoding; what is equal is left out."""
    rows = [
        *_of(then.environment.get("versions"), now.environment.get("versions"), None),
        *_of(then.environment, now.environment, _FACTS),
    ]
    for role in ("target", "draft"):
        parts = ("name", "revision", "digest", "quantization", "dtype")
        rows += _of(then.models[role], now.models[role], parts, f"{role} ")
    rows += _of({"engine": then.engine}, {"engine": now.engine}, None)
    old, new = ({"prompts": f"{len(s.cases)} ({s.prompts_digest})"} for s in (then, now))
    rows += _of(old, new, None)
    templates = sum(
        then.cases[name].ids != case.ids and then.cases[name].prompt == case.prompt
        for name, case in now.cases.items()
        if name in then.cases
    )
    if templates:
        rows.append(Change("prompt tokens", "stored", f"differ for {count(templates, 'prompt')}"))
    rows += [
        Change(name, _text(then.decoding.get(name)), _text(now.decoding.get(name)))
        for name in same_decoding(then.decoding, now.decoding)
    ]
    return rows


def _of(then: Any, now: Any, names: Iterable[str] | None, prefix: str = "") -> list[Change]:
    old, new = (value if isinstance(value, Mapping) else {} for value in (then, now))
    return [
        Change(f"{prefix}{name}", _text(old.get(name)), _text(new.get(name)))
        for name in (dict.fromkeys([*old, *new]) if names is None else names)
        if old.get(name) != new.get(name)
    ]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:60]


def same_machine(then: Baseline, now: Baseline) -> bool:
    """Absolute seconds and bytes may be compared."""
    return all(then.environment.get(name) == now.environment.get(name) for name in MACHINE)


def apart_of(then: Baseline, now: Baseline, arm: str) -> list[str]:
    """Why nothing of one side may be compared with the other."""
    found = [
        f"the {role} is another model (digest {str(then.models[role].get('digest'))[:12]}, now "
        f"{str(now.models[role].get('digest'))[:12]})"
        for role in ("target", "draft")
        if then.models[role].get("digest") != now.models[role].get("digest")
    ]
    if differ := same_decoding(then.decoding, now.decoding):
        found.append(f"the decoding differs: {', '.join(differ)}")
    missing = [name for name in then.cases if name not in now.cases]
    changed = [
        name
        for name, case in now.cases.items()
        if name in then.cases
        and (case.prompt, case.max_tokens) != (then.cases[name].prompt, then.cases[name].max_tokens)
    ]
    new = [name for name in now.cases if name not in then.cases]
    for names, words in (
        (missing, "stored and not measured now"),
        (changed, "of another text or max_tokens"),
        (new, "measured and not stored"),
    ):
        if names:
            found.append(f"{count(len(names), 'prompt')} {words}: {shortened(names)}")
    for name in (PLAIN, arm):
        for side, words in ((then, "stored"), (now, "measured now")):
            without = [prompt for prompt, case in side.cases.items() if name not in case.arms]
            if without and len(without) == len(side.cases):
                found.append(f"{name} is not {words}")
            elif without:
                prompts = count(len(without), "prompt")
                found.append(f"{name} is not {words} for {prompts}: {shortened(without)}")
    return found


def shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def same_case(then: StoredCase | None, now: StoredCase, arm: str) -> bool:
    return (
        then is not None
        and (then.prompt, then.max_tokens) == (now.prompt, now.max_tokens)
        and all(name in case.arms for case in (then, now) for name in (PLAIN, arm))
    )

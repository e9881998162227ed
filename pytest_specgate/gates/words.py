"""What several gates say alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..text import count

if TYPE_CHECKING:
    from ..measure.acceptance import Acceptance
    from ..measure.evidence import Evidence


def excluded(evidence: Evidence) -> tuple[str, ...]:
    """Lines that name the prompts which no timing gate may judge, and why.

    Also those whose acceptance varied from run to run, which is no property of the prompt then,
    and why something was not even generated.
    """
    lines = []
    for case in evidence.cases:
        for arm in case.speculative:
            least, most = arm.accepted or (0, 0)
            if least < most:
                lines.append(
                    f"acceptance varies: {case.prompt.id} ({least} to {most} accepted tokens, "
                    f"k = {arm.num_draft_tokens})"
                )
        if case in evidence.usable:
            continue
        why = "its output differs"
        for arm in case.arms.values():
            if arm.drafted is False:
                why = "nothing was drafted"
            why = arm.unstable or arm.broken or why
        if case.error:
            why = "generating failed"
        lines.append(f"left out: {case.prompt.id} ({why})")
    if evidence.unmeasured:
        lines.append(f"not all was measured: {evidence.unmeasured}")
    return tuple(lines)


def acceptance(found: Acceptance) -> tuple[str, ...]:
    """Lines that show acceptance at one number of draft tokens whole."""
    blocks = found.blocks
    lengths, passes = blocks.mean_accept_length, blocks.tokens_per_target_pass
    means = f"mean accept length {_figure(lengths)}, {_figure(passes)} tokens a target pass"
    sizes = (f"{length} x {size:,}" for length, size in enumerate(blocks.histogram))
    kinds = (f"{kind} {_figure(of.acceptance_rate)}" for kind, of in found.kinds)
    return (
        f"k = {found.num_draft_tokens}: accepted {blocks.accepted:,} of {blocks.proposed:,} "
        f"proposed tokens ({_figure(blocks.acceptance_rate)}) in "
        f"{count(len(blocks.blocks), 'block')}",
        means,
        f"accept lengths: {', '.join(sizes) or '-'}",
        f"by position: {' '.join(map(_figure, blocks.position_acceptance)) or '-'}",
        f"by quarter: {' '.join(_figure(of.acceptance_rate) for of in found.quarters)}",
        f"by kind: {', '.join(kinds)}",
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def too_short(evidence: Evidence) -> tuple[str, ...]:
    """Lines that name the timed prompts of which some trial gave one token, and so no decode."""
    return tuple(
        f"too short to time: {case.prompt.id} (1 token): its decode time is not defined"
        for case in evidence.timed
        if any(trial.decode_s is None for arm in case.arms.values() for trial in arm.trials)
    )


def carried(evidence: Evidence) -> tuple[str, ...]:
    """A line where rounds of an earlier session count."""
    if not evidence.carried:
        return ()
    return (f"goes on with {count(evidence.carried, 'round')} of an earlier, undecided session",)


def unfinished(evidence: Evidence) -> str:
    """What ends the reason of an undecided verdict, where there was no time for more."""
    return f"; {evidence.unmeasured}" if evidence.unmeasured else ""


def untimed(evidence: Evidence) -> str:
    """Why there is no complete round."""
    return evidence.unmeasured or "no round was completed"


def noise_floor_line(evidence: Evidence, rounds: int, finest: float, name: str) -> tuple[str, ...]:
    """A line where a limit is finer than what plain against plain shows to be decidable.

    Args:
        evidence: with two plain arms (--spec-noise); without, nothing can be said.
        rounds: the most that are run.
        finest: share that the gate tells apart, such as 0.03.
        name: of that option.
    """
    floor = evidence.noise(rounds)
    if floor is None or floor.smallest_effect <= finest:
        return ()
    return (
        f"finer than the noise: {name} is {finest:.1%}, and {floor.smallest_effect:.1%} is the "
        f"smallest slowdown that these prompts and {rounds} rounds find on this machine",
    )

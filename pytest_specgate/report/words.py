"""What every report for a person says alike: names, sentences, and the cells of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..config.plan import ModelRef
from ..engines.base import ModelInfo
from ..gates.base import Verdict
from ..measure.kinds import KindRow
from ..measure.replay import RANKED_K
from ..stats import NoiseFloor
from ..text import gigabytes
from .session_report import SessionReport

GATES = ("gate", "verdict", "observed", "limit", "evidence")
SCANNED = "Acceptance, and tokens a target pass, of each draft; nothing was timed."
_FIGURES = ("plain tok/s", "spec tok/s", "speedup", "accepted", "mean len", "TTFT")


def model_name(ref: ModelRef, role: str) -> str:
    """The short name; with its folder where it only repeats the role."""
    if ref.short == role and ref.directory:
        return f"{ref.directory.parent.name}/{role}"
    return ref.short


def dtype(info: ModelInfo) -> str:
    """``bfloat16/4-bit``, or the dtype alone."""
    return f"{info.dtype}/{info.quantization}" if info.quantization else info.dtype


def versions(environment: Mapping[str, Any]) -> str:
    """Versions and machine; empty where nothing is known."""
    known = environment.get("versions", {})
    parts = [f"{name} {known[name]}" for name in ("mlx", "mlx-lm") if name in known]
    memory = environment.get("memory_bytes")
    parts += [str(environment[key]) for key in ("device", "os") if environment.get(key)]
    if memory:
        parts.append(f"{memory / 2**30:.0f} GiB")
    if "power" in environment:
        parts.append(f"on {environment['power']}")
    return ", ".join(parts)


def verdict_name(report: SessionReport, verdict: Verdict) -> str:
    """``parity[sum-02]``, ``speedup (k=3)``, ``preflight``."""
    name = report.item_names.get(verdict.gate, verdict.gate)
    if verdict.subject == "pair":
        return name
    if verdict.subject.startswith("k="):
        return f"{name} ({verdict.subject})"
    return f"{name}[{verdict.subject}]"


def observed(verdict: Verdict) -> str | None:
    """Figure and limit side by side; None where the sentence says it all."""
    if verdict.limit_text in ("-", "exact") or verdict.observed_text == "-":
        return None
    return f"observed {verdict.observed_text}, limit {verdict.limit_text}"


def undecided(report: SessionReport, verdict: Verdict) -> str:
    """Why a verdict is inconclusive."""
    name = report.item_names.get(verdict.gate, verdict.gate).replace("_", " ")
    return f"{name} ({verdict.subject}) is undecided: {verdict.reason}."


def kind_table(rows: Sequence[KindRow]) -> tuple[list[str], list[list[str]]]:
    """Header and rows; the kind is the first column, a figure that is not there a dash."""
    several = len({row.num_draft_tokens for row in rows}) > 1
    body = [
        [
            row.kind,
            str(row.num_draft_tokens if several else row.prompts),
            _figure(row.plain_tokens_per_s, ".1f"),
            _figure(row.speculative_tokens_per_s, ".1f"),
            _figure(row.speedup, ".2f"),
            _figure(row.acceptance_rate, ".2f"),
            _figure(row.mean_accept_length, ".2f"),
            "-" if row.ttft_s is None else f"{row.ttft_s:.2f} s",
        ]
        for row in rows
    ]
    return ["kind", "k" if several else "prompts", *_FIGURES], body


SWEEP = ("k", "speedup", "95 %", "predicted", "p95", "accepted", "peak", "rounds", "")


def sweep_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Rows of the candidates of a sweep; the last cell says what became of each."""
    several = len({row["draft"] for row in found["candidates"]}) > 1
    rows = []
    for row in found["candidates"]:
        low, high = row["interval"] or (None, None)
        k = str(row["num_draft_tokens"])
        rows.append(
            [
                f"{row['draft']} {k}" if several else k,
                "-" if row["speedup"] is None else f"{row['speedup']:.2f}x",
                "-" if low is None else f"{low:.2f} to {high:.2f}",
                _predicted(row, found),
                "-" if row["p95_ratio"] is None else f"{row['p95_ratio']:.2f}x",
                _figure(row["acceptance_rate"], ".2f"),
                row["peak"] or "-",
                str(row["rounds"]),
                _standing(row, found),
            ]
        )
    return rows


def _predicted(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    rows = found["predictions"].get(row["draft"], {}).get("rows")
    return f"{rows[row['num_draft_tokens'] - 1]['speedup']:.2f}x" if rows else "-"


def _standing(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    name = {"draft": row["draft"], "num_draft_tokens": row["num_draft_tokens"]}
    mix = found["mix"]
    notes = ["in use"] if name == found["configured"] else []
    if row["excluded"]:
        notes.append("left out")
    elif row["beaten"]:
        notes.append("beaten")
    elif mix and name == mix["advised"]:
        notes.append("recommended")
    return ", ".join(notes)


def scan_table(report: SessionReport) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a draft each, the best one first; empty where nothing was scanned."""
    body, ks = [], dict.fromkeys(RANKED_K)
    rows = report.ranked()
    for pair, _ in rows:
        ks |= dict.fromkeys(pair.inputs.num_draft_tokens[:1])
    for pair, found in rows:
        k, draft = pair.inputs.num_draft_tokens[0], pair.inputs.draft
        passes = (found[each - 1].blocks.tokens_per_target_pass for each in sorted(ks))
        body.append(
            [
                model_name(draft, "draft") if draft else "-",
                gigabytes(pair.info.draft.bytes) if pair.info else "-",
                _figure(found[k - 1].blocks.acceptance_rate, ".3f"),
                *(_figure(each, ".2f") for each in passes),
            ]
        )
    first = rows[0][0].inputs.num_draft_tokens[0] if rows else 0
    return ["draft", "size", f"accepted k={first}", *(f"k={each}" for each in sorted(ks))], body


QUALITY = ("kind", "prompts", "outputs", "plain passed", "spec passed")


def quality_rows(verdict: Verdict) -> list[list[str]]:
    """A row a prompt kind, of how many outputs pass every check; none of another gate's verdict."""
    return [
        [
            kind["kind"],
            f"{kind['prompts']:,}",
            f"{kind['outputs']:,}",
            f"{kind['plain_passed']:,}",
            f"{kind['speculative_passed']:,}",
        ]
        for kind in verdict.evidence.get("quality", ())
    ]


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def noise(floor: NoiseFloor | None) -> str | None:
    """What plain against plain shows; None where it was not timed twice."""
    if floor is None:
        return None
    low, high = floor.ratio.interval
    least, most = (floor.drift.log + side * 1.96 * floor.drift.error for side in (-1, 1))
    return (
        f"noise: plain against plain {floor.ratio.value:.2f}x [{low:.2f}, {high:.2f}], CV "
        f"{floor.variation:.1%} a trial, drift {floor.drift.log:+.2%} [{least:+.2%}, {most:+.2%}] "
        f"a round; the smallest slowdown that is found here: {floor.smallest_effect:.1%}"
    )


def spared(trials: tuple[int, int], *, decided: bool) -> str | None:
    """That rounds ended early; None where they did not."""
    ran, most = trials
    if not 0 < ran < most:
        return None
    why = ": rounds end once decided" if decided else ""
    return f"{ran:,} of at most {most:,} timed trials were run{why}."


def ends(report: SessionReport) -> list[str]:
    """The last sentences: the chance of a false alarm, and what the verdicts do not tell."""
    lines = []
    if report.false_alarm:
        chance = f"{report.false_alarm:.1%}"
        lines.append(f"Chance of a false alarm in this session: at most {chance}.")
    if report.status == "incomplete":
        lines.append("Interrupted: incomplete, this is what was measured until then.")
    elif report.status == "nothing judged":
        lines.append("No gate was judged.")
    return lines

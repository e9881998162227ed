"""The plots of one pair: each from figures, with a legend, a caption and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...text import count, gigabytes
from .drawing import (
    HATCHES,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    SERIES,
    SMALL,
    WIDE,
    box_sample,
    colour,
    dash,
    drawn,
    limits,
    line_sample,
    marker,
    name_rows,
    quiet_matplotlib,
    series,
    with_names,
)
from .figures import Acceptances, BlockTime, Latencies, PairFigures, SpeedupFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...measure.memory import MemoryParts


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure of the page.

    Attributes:
        title, caption: in words; the title has what is drawn, the caption what it says.
        svgs: markup, safe to be put into a page as it is.
        legend: (markup of a sample, its name); names are still to be escaped.
        header, rows: the same figures as a table.
    """

    title: str
    caption: str
    svgs: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plots(figures: PairFigures, name: str) -> list[Plot]:
    """Everything of one pair that can be drawn.

    Args:
        figures: of the pair.
        name: that no other pair of the page has; ids within the SVGs begin with it.
    """
    found: list[Plot] = []
    with quiet_matplotlib():
        if figures.speedup is not None:
            found.append(_speedup(figures.speedup, f"{name}-speedup"))
        if figures.latencies:
            found.append(_latency(figures.latencies, f"{name}-latency"))
        if figures.acceptances:
            found.append(_lengths(figures.acceptances, f"{name}-lengths"))
            found.append(_positions(figures.acceptances, f"{name}-positions"))
        if figures.block_times:
            found.append(_block_times(figures.block_times, f"{name}-blocks"))
        if figures.memory:
            found.append(_memory(figures.memory, f"{name}-memory"))
    return found


# -- each plot -------------------------------------------------------------------------------------


def _speedup(figure: SpeedupFigure, name: str) -> Plot:
    ks = sorted({k for row in figure.rows for k, _ in row.points})
    draw = _speedup_over_k if len(ks) > 1 else _speedup_by_kind
    whole = figure.rows[0]
    k, best = max(whole.points, key=lambda point: point[1].value)
    low, high = best.interval
    over = f", highest at k = {k}" if len(ks) > 1 else f" with k = {k}"
    caption = (
        f"Plain over speculative end-to-end seconds of {count(whole.prompts, 'prompt')}{over}: "
        f"{best.value:.2f}x [{low:.2f}, {high:.2f}]. Bars are 95 % intervals. Above 1 the draft "
        "pays."
    )
    if figure.kinds_left_out:
        caption += f" {count(figure.kinds_left_out, 'kind')} more in the table of kinds."
    legend = [
        (line_sample(colour(i), marker(i), dash(i)), row.name)
        for i, row in enumerate(figure.rows if len(ks) > 1 else ())
    ]
    if figure.predicted and len(ks) > 1:
        legend.append((line_sample("var(--muted)", "", (1, 2)), "predicted"))
    if figure.limit is not None:
        legend.append((line_sample("var(--fail)", "", (3, 2)), f"limit {figure.limit:g}x"))
    return Plot(
        "Speedup over num_draft_tokens" if len(ks) > 1 else "Speedup",
        caption,
        (draw(figure, name, caption),),
        tuple(legend),
        ("prompts", "k", "speedup", "95 % interval"),
        tuple(
            (row.name, str(k), f"{e.value:.3f}x", "{:.3f} to {:.3f}".format(*e.interval))
            for row in figure.rows
            for k, e in row.points
        )
        + tuple(("predicted", str(k), f"{value:.3f}x", "") for k, value in figure.predicted),
    )


def _speedup_over_k(figure: SpeedupFigure, name: str, words: str) -> str:
    def draw(axes: Axes) -> None:
        ks = sorted({k for row in figure.rows for k, _ in row.points})
        for number, row in reversed([*enumerate(figure.rows)]):
            xs = [k for k, _ in row.points]
            values = [estimate.value for _, estimate in row.points]
            line: dict[str, Any] = {
                "color": series(number),
                "marker": marker(number),
                "linestyle": (0, dash(number)) if dash(number) else "-",
                "linewidth": 1.0 if number else 2.0,
                "markersize": 4 if number else 6,
            }
            if number:
                axes.plot(xs, values, **line)
                continue
            bounds = [estimate.interval for _, estimate in row.points]
            reach = [
                [v - low for v, (low, _) in zip(values, bounds, strict=True)],
                [high - v for v, (_, high) in zip(values, bounds, strict=True)],
            ]
            axes.errorbar(xs, values, yerr=reach, capsize=3, elinewidth=1.4, **line)
        if figure.predicted:
            over, foretold = zip(*figure.predicted, strict=True)
            axes.plot(over, foretold, color=MUTED, linewidth=1.6, linestyle=(0, (1, 2)))
        limits(axes.axhline, figure.limit)
        axes.set_xticks(ks)
        axes.set_xlabel("num_draft_tokens k (tokens)")
        axes.set_ylabel("speedup, plain / speculative (x)")

    return drawn(draw, name, "Speedup over num_draft_tokens", words)


def _speedup_by_kind(figure: SpeedupFigure, name: str, words: str) -> str:
    def draw(axes: Axes) -> None:
        for number, row in enumerate(figure.rows):
            ((_, estimate),) = row.points
            low, high = estimate.interval
            axes.errorbar(
                [estimate.value],
                [number],
                xerr=[[estimate.value - low], [high - estimate.value]],
                color=series(0 if number == 0 else 1),
                marker=MARKERS[0 if number == 0 else 1],
                markersize=6 if number == 0 else 5,
                linestyle="none",
                capsize=3,
                elinewidth=1.4,
            )
        limits(axes.axvline, figure.limit)
        name_rows(axes, len(figure.rows))
        axes.set_xlabel("speedup, plain / speculative end-to-end seconds (x)")

    size = WIDE[0], 1.1 + 0.28 * len(figure.rows)
    svg = drawn(draw, name, "Speedup of each kind of prompts", words, size)
    return with_names(svg, [row.name for row in figure.rows])


def _latency(rows: Sequence[Latencies], name: str) -> Plot:
    def draw(axes: Axes) -> None:
        for number, row in enumerate(rows):
            xs, ys = zip(*row.points, strict=True)
            axes.plot(
                (xs[0], *xs),
                (0, *ys),
                drawstyle="steps-post",
                color=series(number),
                linestyle=(0, dash(number)) if dash(number) else "-",
                linewidth=1.6,
            )
            at = 0.95 if row.honest else 1.0
            axes.plot(
                [row.p95],
                [at],
                color=series(number),
                marker=marker(number),
                markersize=7,
                markeredgecolor=PAPER,
                linestyle="none",
                zorder=3,
                clip_on=False,
            )
        if any(row.honest for row in rows):
            axes.axhline(0.95, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        axes.set_ylim(0, 1.02)
        axes.set_xlim(left=0)
        axes.set_xlabel("end-to-end seconds of a trial (s)")
        axes.set_ylabel("share of trials at or below")

    tails = ", ".join(f"{row.arm} {row.p95:.3g} s" for row in rows)
    marked = " and ".join(dict.fromkeys(row.tail for row in rows))
    caption = f"All timed trials of each path. Marked is {marked}: {tails}."
    if not all(row.honest for row in rows):
        caption += " A p95 takes 60 trials; with fewer the largest is marked."
    return Plot(
        "End-to-end latency of both paths",
        caption,
        (drawn(draw, name, "Cumulative distribution of end-to-end seconds", caption),),
        tuple((line_sample(colour(i), marker(i), dash(i)), row.arm) for i, row in enumerate(rows)),
        ("path", "trials", "median", "p95, or the largest"),
        tuple(
            (row.arm, f"{row.trials:,}", f"{row.median:.4g} s", f"{row.p95:.4g} s ({row.tail})")
            for row in rows
        ),
    )


def _lengths(rows: Sequence[Acceptances], name: str) -> Plot:
    shares = [[n / max(1, sum(row.lengths)) for n in row.lengths] for row in rows]
    top = max(max(of_row) for of_row in shares)
    svgs = []
    for row, of_row in zip(rows, shares, strict=True):

        def draw(axes: Axes, row: Acceptances = row, heights: Sequence[float] = of_row) -> None:
            axes.bar(range(len(heights)), heights, color=SERIES[0], width=0.8)
            if row.mean is not None:
                axes.axvline(row.mean, color=INK, linewidth=1.2, linestyle=(0, (3, 2)))
            axes.set_ylim(0, top * 1.08 or 1)
            axes.set_xticks(range(0, len(heights), 1 if len(heights) < 10 else 2))
            axes.grid(visible=False, axis="x")
            axes.set_xlabel("accept length (tokens)")
            axes.set_ylabel("share of blocks")
            axes.set_title(f"k = {row.num_draft_tokens}", fontsize=9, color=INK)

        mean = "-" if row.mean is None else f"{row.mean:.2f}"
        words = f"{count(sum(row.lengths), 'block')}, mean accept length {mean} tokens."
        title = f"Accept lengths at k = {row.num_draft_tokens}"
        size = SMALL if len(rows) > 1 else WIDE
        svgs.append(drawn(draw, f"{name}-{row.num_draft_tokens}", title, words, size))
    censored = sum(row.censored for row in rows)
    caption = "Proposed tokens that the target took, a block."
    if censored:
        caption += f" {count(censored, 'block')} cut by the end of an output left out."
    longest = max(len(row.lengths) for row in rows)
    return Plot(
        "Accept lengths",
        caption,
        tuple(svgs),
        (
            (box_sample("var(--s1)"), "share of blocks"),
            (line_sample("var(--ink)", "", (3, 2)), "mean"),
        ),
        ("k", "mean", *map(str, range(longest))),
        tuple(
            (
                str(row.num_draft_tokens),
                "-" if row.mean is None else f"{row.mean:.2f}",
                *(f"{n:,}" for n in row.lengths),
                *[""] * (longest - len(row.lengths)),
            )
            for row in rows
        ),
    )


def _positions(rows: Sequence[Acceptances], name: str) -> Plot:
    longest = max(len(row.positions) for row in rows)

    def draw(axes: Axes) -> None:
        for number, row in enumerate(rows, start=1):
            axes.plot(
                range(1, len(row.positions) + 1),
                [accepted / proposed for proposed, accepted in row.positions],
                color=series(number),
                marker=marker(number),
                linestyle=(0, dash(number)) if dash(number) else "-",
                linewidth=1.4,
                markersize=5,
                clip_on=False,
            )
        axes.set_ylim(0, 1)
        axes.set_xticks(range(1, longest + 1))
        axes.set_xlabel("position in the block (token)")
        axes.set_ylabel("accepted / proposed")

    caption = "How often the proposal at each position of a block is accepted, given proposed."
    return Plot(
        "Acceptance by position",
        caption,
        (drawn(draw, name, "Acceptance by position", caption),),
        tuple(
            (line_sample(colour(i), marker(i), dash(i)), f"k = {row.num_draft_tokens}")
            for i, row in enumerate(rows, start=1)
        ),
        ("k", *(f"position {i}" for i in range(1, longest + 1))),
        tuple(
            (
                str(row.num_draft_tokens),
                *(f"{accepted:,} of {proposed:,}" for proposed, accepted in row.positions),
                *[""] * (longest - len(row.positions)),
            )
            for row in rows
        ),
    )


def _block_times(rows: Sequence[BlockTime], name: str) -> Plot:
    labels = ("draft steps", "target pass", "rest")
    parts = [(row.draft_s, row.verify_s, max(0.0, row.rest_s)) for row in rows]

    def draw(axes: Axes) -> None:
        for number, of_row in enumerate(parts):
            left = 0.0
            for part, seconds in enumerate(of_row):
                axes.barh(
                    number,
                    seconds * 1e3,
                    left=left,
                    height=0.62,
                    color=SERIES[part],
                    edgecolor=PAPER,
                    hatch=HATCHES[part],
                    linewidth=0.8,
                )
                left += seconds * 1e3
        name_rows(axes, len(rows))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("time of a block (ms)")

    caption = "Where the time of a whole block goes, from passes that were timed singly."
    if any(row.rest_s < 0 for row in rows):
        caption += " Where passes run into each other the rest is below 0, and not drawn."
    names = [f"k = {row.num_draft_tokens}" for row in rows]
    svg = drawn(draw, name, "Time of a block", caption, (WIDE[0], 1.1 + 0.3 * len(rows)))
    return Plot(
        "Time of a block",
        caption,
        (with_names(svg, names),),
        tuple(
            (box_sample(f"var(--s{part})", part - 1), label)
            for part, label in enumerate(labels, start=1)
        ),
        ("k", *labels),
        tuple(
            (
                str(row.num_draft_tokens),
                *(f"{s * 1e3:.2f} ms" for s in (row.draft_s, row.verify_s, row.rest_s)),
            )
            for row in rows
        ),
    )


def _memory(bars: Sequence[tuple[str, MemoryParts]], name: str) -> Plot:
    labels = ("target weights", "draft weights", "KV caches", "working")
    sizes = [(p.target_weights, p.draft_weights, p.caches, p.working) for _, p in bars]
    most = max(map(sum, sizes))
    unit, scale = ("GB", 1e9) if most >= 1e8 else ("MB", 1e6)

    def draw(axes: Axes) -> None:
        for number, parts in enumerate(sizes):
            left = 0.0
            for part, size in enumerate(parts):
                axes.barh(
                    number,
                    size / scale,
                    left=left,
                    height=0.62,
                    color=SERIES[part],
                    edgecolor=PAPER,
                    hatch=HATCHES[part],
                    linewidth=0.8,
                )
                left += size / scale
        name_rows(axes, len(bars))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"peak memory ({unit})")

    caption = "The highest peak of each path. The draft's weights lie idle on the plain path."
    size = WIDE[0], 1.1 + 0.3 * len(bars)
    svg = drawn(draw, name, "Peak memory in parts", caption, size)
    return Plot(
        "Peak memory",
        caption,
        (with_names(svg, [arm for arm, _ in bars]),),
        tuple(
            (box_sample(f"var(--s{part})", part - 1), label)
            for part, label in enumerate(labels, start=1)
        ),
        ("path", *labels, "peak"),
        tuple(
            (arm, *map(gigabytes, parts), gigabytes(sum(parts)))
            for (arm, _), parts in zip(bars, sizes, strict=True)
        ),
    )

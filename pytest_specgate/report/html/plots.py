"""Plots as SVG that lies in a page: colours are the page's, so that it can be dark or printed.

No text from outside reaches matplotlib: what it cannot draw it would warn of. Legends are the
page's own; names on an axis stand in by number and are put in afterwards.
"""

from __future__ import annotations

import html
import io
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from ...text import count, gigabytes, shown
from .figures import Acceptances, BlockTime, Latencies, PairFigures, SpeedupFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...measure.memory import MemoryParts

_WIDE, _SMALL = (4.0, 2.8), (2.2, 1.9)  # inches
_LONGEST_NAME = 18  # columns of a name on an axis
_INK, _MUTED, _GRID, _PAPER, _LIMIT = "#010101", "#020202", "#030303", "#040404", "#060606"
_SERIES = tuple(f"#0501{number:02x}" for number in range(1, 8))
_COLOURS = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _GRID: "var(--line)",
    _PAPER: "var(--card)",
    _LIMIT: "var(--fail)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(_SERIES, start=1)},
}
_MARKERS = "os^DvPX"
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 2), (7, 2, 2, 2))
_HATCHES = ("", "//", "\\\\", "xx")
_SHAPES = {
    "o": '<circle cx="16" cy="7" r="3.6"/>',
    "s": '<path d="M12.6 3.6h6.8v6.8h-6.8z"/>',
    "^": '<path d="M16 2.6l4.2 7.6h-8.4z"/>',
    "D": '<path d="M16 2l5 5-5 5-5-5z"/>',
    "v": '<path d="M16 11.4l4.2-7.6h-8.4z"/>',
    "P": '<path d="M14.6 2.6h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3z"/>',
    "X": '<path d="M13 2.4l3 3 3-3 1.6 1.6-3 3 3 3-1.6 1.6-3-3-3 3-1.6-1.6 3-3-3-3z"/>',
}
_RC = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib; the page puts its own in its place
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "hatch.color": _PAPER,
    "hatch.linewidth": 0.8,
}


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
    with _quiet_matplotlib():
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
        (_line_sample(_colour(i), _marker(i), _dash(i)), row.name)
        for i, row in enumerate(figure.rows if len(ks) > 1 else ())
    ]
    if figure.predicted and len(ks) > 1:
        legend.append((_line_sample("var(--muted)", "", (1, 2)), "predicted"))
    if figure.limit is not None:
        legend.append((_line_sample("var(--fail)", "", (3, 2)), f"limit {figure.limit:g}x"))
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
                "color": _series(number),
                "marker": _marker(number),
                "linestyle": (0, _dash(number)) if _dash(number) else "-",
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
            axes.plot(over, foretold, color=_MUTED, linewidth=1.6, linestyle=(0, (1, 2)))
        _limits(axes.axhline, figure.limit)
        axes.set_xticks(ks)
        axes.set_xlabel("num_draft_tokens k (tokens)")
        axes.set_ylabel("speedup, plain / speculative (x)")

    return _svg(draw, name, "Speedup over num_draft_tokens", words)


def _speedup_by_kind(figure: SpeedupFigure, name: str, words: str) -> str:
    def draw(axes: Axes) -> None:
        for number, row in enumerate(figure.rows):
            ((_, estimate),) = row.points
            low, high = estimate.interval
            axes.errorbar(
                [estimate.value],
                [number],
                xerr=[[estimate.value - low], [high - estimate.value]],
                color=_series(0 if number == 0 else 1),
                marker=_MARKERS[0 if number == 0 else 1],
                markersize=6 if number == 0 else 5,
                linestyle="none",
                capsize=3,
                elinewidth=1.4,
            )
        _limits(axes.axvline, figure.limit)
        _name_rows(axes, len(figure.rows))
        axes.set_xlabel("speedup, plain / speculative end-to-end seconds (x)")

    size = _WIDE[0], 1.1 + 0.28 * len(figure.rows)
    svg = _svg(draw, name, "Speedup of each kind of prompts", words, size)
    return _with_names(svg, [row.name for row in figure.rows])


def _latency(rows: Sequence[Latencies], name: str) -> Plot:
    def draw(axes: Axes) -> None:
        for number, row in enumerate(rows):
            xs, ys = zip(*row.points, strict=True)
            axes.plot(
                (xs[0], *xs),
                (0, *ys),
                drawstyle="steps-post",
                color=_series(number),
                linestyle=(0, _dash(number)) if _dash(number) else "-",
                linewidth=1.6,
            )
            at = 0.95 if row.honest else 1.0
            axes.plot(
                [row.p95],
                [at],
                color=_series(number),
                marker=_marker(number),
                markersize=7,
                markeredgecolor=_PAPER,
                linestyle="none",
                zorder=3,
                clip_on=False,
            )
        if any(row.honest for row in rows):
            axes.axhline(0.95, color=_MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
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
        (_svg(draw, name, "Cumulative distribution of end-to-end seconds", caption),),
        tuple(
            (_line_sample(_colour(i), _marker(i), _dash(i)), row.arm) for i, row in enumerate(rows)
        ),
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
            axes.bar(range(len(heights)), heights, color=_SERIES[0], width=0.8)
            if row.mean is not None:
                axes.axvline(row.mean, color=_INK, linewidth=1.2, linestyle=(0, (3, 2)))
            axes.set_ylim(0, top * 1.08 or 1)
            axes.set_xticks(range(0, len(heights), 1 if len(heights) < 10 else 2))
            axes.grid(visible=False, axis="x")
            axes.set_xlabel("accept length (tokens)")
            axes.set_ylabel("share of blocks")
            axes.set_title(f"k = {row.num_draft_tokens}", fontsize=9, color=_INK)

        mean = "-" if row.mean is None else f"{row.mean:.2f}"
        words = f"{count(sum(row.lengths), 'block')}, mean accept length {mean} tokens."
        title = f"Accept lengths at k = {row.num_draft_tokens}"
        size = _SMALL if len(rows) > 1 else _WIDE
        svgs.append(_svg(draw, f"{name}-{row.num_draft_tokens}", title, words, size))
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
            (_box_sample("var(--s1)"), "share of blocks"),
            (_line_sample("var(--ink)", "", (3, 2)), "mean"),
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
                color=_series(number),
                marker=_marker(number),
                linestyle=(0, _dash(number)) if _dash(number) else "-",
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
        (_svg(draw, name, "Acceptance by position", caption),),
        tuple(
            (_line_sample(_colour(i), _marker(i), _dash(i)), f"k = {row.num_draft_tokens}")
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
                    color=_SERIES[part],
                    edgecolor=_PAPER,
                    hatch=_HATCHES[part],
                    linewidth=0.8,
                )
                left += seconds * 1e3
        _name_rows(axes, len(rows))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("time of a block (ms)")

    caption = "Where the time of a whole block goes, from passes that were timed singly."
    if any(row.rest_s < 0 for row in rows):
        caption += " Where passes run into each other the rest is below 0, and not drawn."
    names = [f"k = {row.num_draft_tokens}" for row in rows]
    svg = _svg(draw, name, "Time of a block", caption, (_WIDE[0], 1.1 + 0.3 * len(rows)))
    return Plot(
        "Time of a block",
        caption,
        (_with_names(svg, names),),
        tuple(
            (_box_sample(f"var(--s{part})", part - 1), label)
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
                    color=_SERIES[part],
                    edgecolor=_PAPER,
                    hatch=_HATCHES[part],
                    linewidth=0.8,
                )
                left += size / scale
        _name_rows(axes, len(bars))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"peak memory ({unit})")

    caption = "The highest peak of each path. The draft's weights lie idle on the plain path."
    size = _WIDE[0], 1.1 + 0.3 * len(bars)
    svg = _svg(draw, name, "Peak memory in parts", caption, size)
    return Plot(
        "Peak memory",
        caption,
        (_with_names(svg, [arm for arm, _ in bars]),),
        tuple(
            (_box_sample(f"var(--s{part})", part - 1), label)
            for part, label in enumerate(labels, start=1)
        ),
        ("path", *labels, "peak"),
        tuple(
            (arm, *map(gigabytes, parts), gigabytes(sum(parts)))
            for (arm, _), parts in zip(bars, sizes, strict=True)
        ),
    )


# -- styles ----------------------------------------------------------------------------------------


def _series(number: int) -> str:
    """The plain path, or all prompts, in the colour of text."""
    return _INK if number == 0 else _SERIES[(number - 1) % len(_SERIES)]


def _colour(number: int) -> str:
    return _COLOURS[_series(number)]


def _marker(number: int) -> str:
    return _MARKERS[number % len(_MARKERS)]


def _dash(number: int) -> tuple[float, ...]:
    """Colour, marker and dash together tell 28 series apart."""
    return _DASHES[(number % len(_MARKERS) + number // len(_MARKERS)) % len(_DASHES)]


def _limits(line: Callable[..., object], limit: float | None) -> None:
    line(1.0, color=_MUTED, linewidth=0.8)
    if limit is not None:
        line(limit, color=_LIMIT, linewidth=1.2, linestyle=(0, (3, 2)))


def _name_rows(axes: Axes, rows: int) -> None:
    axes.set_yticks(range(rows), [_stand_in(i) for i in range(rows)])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _stand_in(number: int) -> str:
    """As wide as the longest name may be."""
    return f"row {number} ".ljust(_LONGEST_NAME, "n")


def _with_names(svg: str, names: Sequence[str]) -> str:
    for number, name in enumerate(names):
        svg = svg.replace(f">{_stand_in(number)}<", f">{html.escape(_cut(shown(name)))}<")
    return svg


def _cut(name: str) -> str:
    width, kept = 0, ""
    for char in name:
        width += 2 if east_asian_width(char) in "WF" else 1
        if width > _LONGEST_NAME:
            return f"{kept[:-1]}\N{HORIZONTAL ELLIPSIS}"
        kept += char
    return kept


def _line_sample(colour: str, marker: str, dash: Sequence[float]) -> str:
    dashes = f' stroke-dasharray="{" ".join(f"{part * 1.4:g}" for part in dash)}"' if dash else ""
    line = f'<path d="M1 7h30" fill="none" stroke-width="1.8"{dashes}/>'
    style = f'style="color:{colour}" stroke="currentColor" fill="currentColor"'
    shape = _SHAPES.get(marker, "").replace("/>", ' stroke="none"/>')
    return f'<svg class="sample" viewBox="0 0 32 14" aria-hidden="true" {style}>{line}{shape}</svg>'


def _box_sample(colour: str, hatch: int = 0) -> str:
    lines = (
        "",
        '<path d="M4 12L14 2M12 12L22 2M20 12L30 2"/>',
        '<path d="M2 2L12 12M10 2L20 12M18 2L28 12"/>',
        '<path d="M4 12L14 2M12 12L22 2M20 12L30 2M4 2L14 12M12 2L22 12M20 2L30 12"/>',
    )[hatch]
    box = f'<path d="M2 2h28v10h-28z" stroke="none" style="fill:{colour}"/>'
    return (
        '<svg class="sample" viewBox="0 0 32 14" aria-hidden="true" fill="none" '
        f'style="stroke:var(--card)">{box}{lines}</svg>'
    )


# -- matplotlib ------------------------------------------------------------------------------------


@contextmanager
def _quiet_matplotlib() -> Iterator[None]:
    """Its own defaults with ours on top, whatever the user's matplotlibrc says.

    Where its caches cannot be written, or a matplotlibrc is wrong, it would say so on stderr.
    """
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        import matplotlib as mpl

        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(_RC)
            yield
    finally:
        logger.setLevel(level)


def _svg(
    draw: Callable[[Axes], None],
    name: str,
    title: str,
    words: str,
    size: tuple[float, float] = _WIDE,
) -> str:
    """Draw one set of axes; the result can lie in a page beside others.

    Args:
        draw: onto the axes.
        name: that no other plot of the page has.
        title, words: what is seen, for who does not see it.
        size: in inches.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as NewFigure

    figure: Figure = NewFigure(figsize=size, layout="constrained", facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    draw(axes)
    out = io.StringIO()
    mpl.rcParams["svg.hashsalt"] = name  # ids come from it
    FigureCanvasSVG(figure).print_svg(
        out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    return _inline(out.getvalue(), name, title, words)


def _inline(text: str, name: str, title: str, words: str) -> str:
    """The svg element alone: the page's colours and font, no ids but those that are referred to."""
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<style.*?</style>|<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<g id=\"[^\"]*\"", "<g", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    for colour, css in _COLOURS.items():
        text = text.replace(colour, css)
    text = re.sub(r"\s*\n\s*", " ", text)
    head = re.search(r'viewBox="[^"]*"', text)
    inside = text[text.index(">") + 1 :]
    label = (
        f'<title id="{name}-t">{html.escape(title)}</title>'
        f'<desc id="{name}-d">{html.escape(words)}</desc>'
    )
    view = head[0] if head else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'class="plot" {view} role="img" aria-labelledby="{name}-t {name}-d">{label}{inside}'
    )

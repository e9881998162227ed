"""SVG that lies in a page: colours are the page's, so that it can be dark or printed.

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
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from ...text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, SMALL = (4.0, 2.8), (2.2, 1.9)  # inches
_LONGEST_NAME = 18  # columns of a name on an axis
# matplotlib knows no variables of a style sheet: these stand in for them
INK, MUTED, _GRID, PAPER, _LIMIT = "#010101", "#020202", "#030303", "#040404", "#060606"
SERIES = tuple(f"#0501{number:02x}" for number in range(1, 8))
_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    _GRID: "var(--line)",
    PAPER: "var(--card)",
    _LIMIT: "var(--fail)",
    **{colour: f"var(--s{number})" for number, colour in enumerate(SERIES, start=1)},
}
MARKERS = "os^DvPX"
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2), (2, 2), (7, 2, 2, 2))
HATCHES = ("", "//", "\\\\", "xx")
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
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.color": PAPER,
    "hatch.linewidth": 0.8,
}


def series(number: int) -> str:
    """The plain path, or all prompts, in the colour of text."""
    return INK if number == 0 else SERIES[(number - 1) % len(SERIES)]


def colour(number: int) -> str:
    return _COLOURS[series(number)]


def marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def dash(number: int) -> tuple[float, ...]:
    """Colour, marker and dash together tell 28 series apart."""
    return _DASHES[(number % len(MARKERS) + number // len(MARKERS)) % len(_DASHES)]


def limits(line: Callable[..., object], limit: float | None) -> None:
    line(1.0, color=MUTED, linewidth=0.8)
    if limit is not None:
        line(limit, color=_LIMIT, linewidth=1.2, linestyle=(0, (3, 2)))


def name_rows(axes: Axes, rows: int) -> None:
    axes.set_yticks(range(rows), [_stand_in(i) for i in range(rows)])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _stand_in(number: int) -> str:
    """As wide as the longest name may be."""
    return f"row {number} ".ljust(_LONGEST_NAME, "n")


def with_names(svg: str, names: Sequence[str]) -> str:
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


def line_sample(colour: str, marker: str, dash: Sequence[float]) -> str:
    dashes = f' stroke-dasharray="{" ".join(f"{part * 1.4:g}" for part in dash)}"' if dash else ""
    line = f'<path d="M1 7h30" fill="none" stroke-width="1.8"{dashes}/>'
    style = f'style="color:{colour}" stroke="currentColor" fill="currentColor"'
    shape = _SHAPES.get(marker, "").replace("/>", ' stroke="none"/>')
    return f'<svg class="sample" viewBox="0 0 32 14" aria-hidden="true" {style}>{line}{shape}</svg>'


def box_sample(colour: str, hatch: int = 0) -> str:
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
def quiet_matplotlib() -> Iterator[None]:
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


def drawn(
    draw: Callable[[Axes], None],
    name: str,
    title: str,
    words: str,
    size: tuple[float, float] = WIDE,
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

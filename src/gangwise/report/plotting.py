"""Figures: a table of numbers and the panels it is drawn in, for a page or for a file.

The numbers are a tidy table with a row per point: its panel, its line (such as a policy), ``x`` (a
number, or a text for bars), the mean over seeds, and the ends of its interval or null. Figures are
drawn with matplotlib's objects and no global state; the same numbers give the same SVG, byte for
byte. A policy has one colour and one line style in every figure and table of a page. Colours keep
their distance for readers who do not see all hues.

matplotlib is imported where something is drawn: a command that prints tables does without.

Plots of a page are SVG elements that follow its colours, fonts and width. Lines, bands and ends of
intervals are tagged ``data-line``, ``data-band`` and ``data-ends`` with their numbers, so that a
page can hide and read them; ``data-axes`` has the limits of both axes, where these are in the
drawing, and whether they are logarithmic. Files are drawn from the same numbers, on the same axes.
"""

from __future__ import annotations

import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from markupsafe import Markup, escape

from gangwise.study.statistics import number, scale_for

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1b1b1d", "#6b6b70", "#e3e1dc"
"""Text, secondary text and rules on white; a page may put its own in their place."""

COLOURS = (
    ("#0a6db5", "#58b0f2"),
    ("#cf5a00", "#ff9147"),
    ("#00896a", "#2cc79f"),
    ("#b8478b", "#ee8cc6"),
    ("#8f7a00", "#d9c13c"),
    ("#3f3a9e", "#a09cf5"),
    ("#a3243b", "#ff7d8d"),
    ("#3a9fc9", "#8fd9f7"),
    ("#6d7f1e", "#b3cc4f"),
    ("#7a5a48", "#c9a68f"),
)
"""Each colour twice: for a white background and for a black one."""

RANKED: tuple[tuple[float, tuple[float, ...]], ...] = (
    (2.4, ()),
    (1.9, (6.0, 2.0)),
    (1.8, (4.5, 1.6, 1.0, 1.6)),
    (1.9, (1.2, 1.6)),
)
"""Width and dashes of neighbours in a ranking, so that lines that coincide can be told apart."""


@dataclass(frozen=True)
class Style:
    """Style of a line, drawn later, and so on top, with a higher ``order``."""

    index: int  # of COLOURS; −1 for grey
    width: float = 1.7  # in points; of a panel of dots, their diameter
    dashes: tuple[float, ...] = ()  # on and off, in line widths; none for a solid line
    order: int = 2

    @property
    def colour(self) -> str:
        return MUTED if self.index < 0 else COLOURS[self.index][0]

    @property
    def variable(self) -> str:
        return "muted" if self.index < 0 else f"c{self.index}"


Looks = Mapping[str, Style]
"""The style of each line by its name; the position of a name is the number of its tag."""

REFERENCE = Style(-1, 1.1, (7.0, 4.0), 90)
"""How comparators are drawn."""


def plain_styles(names: Iterable[str]) -> dict[str, Style]:
    """Coloured in the order of the names, dashed from the second round on."""
    return {
        name: Style(i % len(COLOURS), dashes=() if i < len(COLOURS) else (3.7, 1.6))
        for i, name in enumerate(names)
    }


def ranked_styles(names: Iterable[str]) -> dict[str, Style]:
    """Neighbours in rank differ in their dashes too, and sparser dashes lie on top."""
    styles = {}
    for rank, name in enumerate(names):
        # Shifted by one in each round of colours, so that no two lines share both.
        pattern = (rank + rank // len(COLOURS)) % len(RANKED)
        styles[name] = Style(rank % len(COLOURS), *RANKED[pattern], 10 * pattern + 100)
    return styles


COLUMNS = ("panel", "line", "x", "mean", "low", "high")

WIDTH, HEIGHT, DPI = 4.3, 3.1, 150
MOST_IN_A_ROW = 3
LEGEND_ROW, LEGEND_ROWS = 0.19, 3
"""Height of a row of the legend in inches, and the rows that fit without a taller figure."""
COLUMN_WIDTHS = {1: 3.45, 2: 7.1}
"""Width of a figure that fills one or both columns of a paper, in inches."""
COLUMN_WIDTH = COLUMN_WIDTHS[1]


@dataclass(frozen=True)
class Panel:
    """Axes of a picture: ``name`` as in the column ``panel``, labels with units.

    Kinds: lines with a band; points with error bars, joined; the same, not joined (dots); a
    distribution function (steps); bars side by side, for an ``x`` that is text; a map of shares,
    whose lines are rows.
    """

    name: str
    x: str
    y: str
    kind: Literal["curve", "points", "dots", "steps", "bars", "map"] = "curve"
    log_x: bool = False
    log_y: bool = False
    level: float | None = None  # where to draw a thin horizontal line
    settled: float | None = None  # the vertical axis fits the means from this x on
    ends: tuple[float, float] | None = None  # of the horizontal axis, whatever is drawn
    choices: tuple[str, ...] = ()  # names of the places 0, 1, … of the horizontal axis


def points(rows: Iterable[Sequence[Any]]) -> pl.DataFrame:
    table = pl.DataFrame(list(rows), schema=COLUMNS, orient="row", infer_schema_length=None)
    return table.with_columns(pl.col("mean", "low", "high").cast(pl.Float64))


def draw(
    title: str,
    numbers: pl.DataFrame,
    panels: Sequence[Panel],
    looks: Looks | None = None,
    width: float | None = None,
    caption: str = "",
) -> Figure:
    """The picture of a table of numbers: panels side by side, the title above, a legend below.

    Lines are coloured in the order of the table unless ``looks`` says otherwise. With a ``width``
    in inches, panels stand below one another, or two side by side where it is that of both columns
    of a paper (:data:`COLUMN_WIDTHS`). The caption stands above the legend.
    """
    from matplotlib.figure import Figure

    # Four panels stand two by two.
    across = 2 if len(panels) == 4 else min(len(panels), MOST_IN_A_ROW)
    size = (across * WIDTH if across > 1 else 1.6 * WIDTH, HEIGHT)
    if width is not None:
        across = 1 if width < COLUMN_WIDTHS[2] else min(len(panels), 2)
        size = (width, 0.72 * min(width / across, WIDTH))
    down = -(-len(panels) // across)
    with plot_settings():
        figure = Figure((size[0], down * size[1] + 0.9), facecolor="white", layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, panel in zip(grid, panels):
            _panel(axes, numbers, panel, looks, panel.name if len(panels) > 1 else "")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _name_lines(figure, title, grid[: len(panels)], width is not None, caption)
    return figure


def looks_of(numbers: pl.DataFrame, looks: Looks | None) -> Looks:
    """Looks of the lines of a table: as asked for, or coloured in their order."""
    names = numbers["line"].unique(maintain_order=True).to_list()
    if looks is None:
        return plain_styles(names)
    return {name: look for name, look in looks.items() if name in names}


def _panel(
    axes: Axes, numbers: pl.DataFrame, panel: Panel, looks: Looks | None, title: str
) -> None:
    part = numbers.filter(pl.col("panel") == panel.name)
    lines = _by_line(part.iter_rows())[panel.name]
    of_kind = {"bars": _bars, "map": _map}.get(panel.kind, _lines)
    of_kind(axes, part, looks_of(numbers, looks), panel)
    shown, unit = dict[str, Axis](), ""
    if panel.kind != "map":
        shown["y"], unit = _vertical(lines, panel, 0.0, 1.0)
    if panel.kind not in ("map", "bars"):
        shown["x"] = _across(lines, panel, 0.0)
    # On a small figure a longer label would not fit: ticks show a logarithmic scale.
    unit = "" if panel.log_y else unit
    style_axes(axes, panel.x, ", ".join(filter(None, (panel.y, unit))), title)
    for name, axis in shown.items():
        ticks, labels = [at for at, _ in axis.ticks], [label for _, label in axis.ticks]
        limits: dict[str, Any] = {f"{name}scale": "log" if axis.log else "linear"}
        limits |= {f"{name}lim": (axis.low, axis.high), f"{name}ticks": ticks}
        axes.set(**limits, **{f"{name}ticklabels": labels})
        axes.minorticks_off()
    axes.grid(visible=panel.kind != "map", axis="y")
    if panel.level is not None:
        axes.axhline(panel.level, color=MUTED, linewidth=0.8, zorder=1)


def _name_lines(
    figure: Figure, title: str, shown: Iterable[Axes], small: bool, caption: str
) -> None:
    size = {"fontsize": 8.5 if small else 11.5, "weight": "bold", "wrap": small}
    figure.suptitle(title, x=0.01, ha="left", color=INK, parse_math=False, **size)
    named: dict[str, Artist] = {}
    for axes in shown:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            # A line that several panels have is named once.
            named.setdefault(label, handle)
    width, height = figure.get_size_inches()
    column = max(1.7, 0.7 + 0.07 * max(map(len, named), default=0))
    columns = max(min(len(named), int(width / column)), 1)
    # A legend of more rows makes the figure taller.
    further = max(0, -(-len(named) // columns) - LEGEND_ROWS)
    lines = wrap(caption, int(width * 14))
    figure.set_size_inches(width, height + LEGEND_ROW * further + 0.15 * len(lines))
    about: dict[str, Any] = {"title": "\n".join(lines), "title_fontsize": 8.2} if lines else {}
    about |= {"loc": "outside lower left", "frameon": False, "ncols": columns, "alignment": "left"}
    figure.legend(list(named.values()), list(named), fontsize=7.5 if small else 9, **about)


def _lines(axes: Axes, part: pl.DataFrame, looks: Looks, panel: Panel) -> None:
    step: Any = "post" if panel.kind == "steps" else None
    for tag, (name, look) in enumerate(looks.items()):
        line = part.filter(pl.col("line") == name).sort("x")
        if line.is_empty():
            continue
        x, mean = line["x"].to_numpy(), line["mean"].to_numpy()
        low, high = (line[end].to_numpy().astype(np.float64) for end in ("low", "high"))
        drawn: dict[str, Any] = {"color": look.colour, "label": name, "gid": f"line{tag}"}
        drawn |= {"linestyle": (0, look.dashes) if look.dashes else "solid", "zorder": look.order}
        if panel.kind in ("points", "dots"):
            if panel.kind == "points":
                drawn |= {"markersize": 3.5, "linewidth": 1.3}
            else:
                drawn |= {"markersize": look.width, "linestyle": "", "markeredgewidth": 0}
            axes.plot(x, mean, marker="o", **drawn)
            # One seed has no interval.
            sure = np.isfinite(low)
            ends = (x[sure], low[sure], high[sure])
            axes.vlines(*ends, color=look.colour, linewidth=1.0, gid=f"ends{tag}")
            continue
        how = "default" if step is None else "steps-post"
        axes.plot(x, mean, linewidth=look.width, drawstyle=how, **drawn)
        # A band with gaps would join what is apart.
        if np.isfinite(low).all():
            band: dict[str, Any] = {"color": look.colour, "alpha": 0.09, "linewidth": 0}
            axes.fill_between(x, low, high, step=step, gid=f"band{tag}", **band)


def _bars(axes: Axes, part: pl.DataFrame, looks: Looks, panel: Panel) -> None:
    places = part["x"].cast(pl.String).unique(maintain_order=True).to_list()
    names = set(part["line"].to_list())
    shown = [(tag, *item) for tag, item in enumerate(looks.items()) if item[0] in names]
    width = 0.8 / max(len(shown), 1)
    for i, (tag, name, look) in enumerate(shown):
        line = part.filter(pl.col("line") == name)
        at = np.array([places.index(str(x)) for x in line["x"]]) + (i + 0.5) * width - 0.4
        how: dict[str, Any] = {"color": look.colour, "hatch": "////" if look.dashes else ""}
        how |= {"edgecolor": "white", "linewidth": 0, "label": name, "gid": f"line{tag}"}
        if panel.log_y:  # on which a bar has no foot
            axes.plot(
                at, line["mean"].to_numpy(), "o", color=look.colour, label=name, clip_on=False
            )
        else:
            axes.bar(at, line["mean"].to_numpy(), width * 0.92, **how)
        for place, low, high in zip(at, line["low"], line["high"]):
            if low is not None and high is not None:
                axes.vlines(place, low, high, color=INK, linewidth=1.0, gid=f"ends{tag}")
    if len("".join(places)) > 48 and "\n" not in "".join(places):  # they would meet
        wide = max(48 // len(places), 7)
        places = [fill(place, wide, break_long_words=False) for place in places]
    axes.set_xticks(range(len(places)), places)
    axes.set_xlim(-0.5, max(len(places) - 0.5, 0.5))


def _map(axes: Axes, part: pl.DataFrame, looks: Looks, panel: Panel) -> None:
    names = part["line"].unique(maintain_order=True).to_list()
    share = part["mean"].to_numpy().reshape(len(names), -1)
    x = part["x"].to_numpy()[: share.shape[1]]
    colour = [int(COLOURS[0][0][i : i + 2], 16) / 255 for i in (1, 3, 5)]
    # One colour, with the share as its opacity.
    pixels = np.broadcast_to([*colour, 1.0], (*share.shape, 4)).copy()
    pixels[..., 3] = share
    # A single column needs some width, too.
    wide = (x[-1] - x[0]) / max(x.size - 1, 1) or 1.0
    ends = (x[0] - wide / 2, x[-1] + wide / 2, len(names) - 0.5, -0.5)
    axes.imshow(pixels, aspect="auto", interpolation="none", extent=ends)
    # More than twelve names do not fit.
    every = -(-len(names) // 12)
    axes.set_yticks(range(0, len(names), every), [short(name) for name in names[::every]])


def short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:5]}…{name[-6:]}"


def style_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Labels, spines, ticks and grid of axes: the horizontal axis is drawn, values have a grid."""
    if title:
        axes.set_title(title, loc="left", fontsize=10, color=INK, parse_math=False)
    axes.set_xlabel(x, color=INK, parse_math=False)
    axes.set_ylabel(y, color=INK, parse_math=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(which="both", color=MUTED, labelcolor=INK, length=3, labelsize=9)
    axes.tick_params(axis="y", which="both", length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")


def image(figure: Figure, ending: Literal["png", "svg", "pdf"]) -> bytes:
    """A figure as a PNG, SVG or PDF document; without the date, the same numbers give the same."""
    buffer = io.BytesIO()
    undated = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    with plot_settings():
        figure.savefig(buffer, format=ending, dpi=DPI, metadata=undated.get(ending))
    return buffer.getvalue()


def plot_settings() -> AbstractContextManager[None]:
    """Matplotlib's settings under which an SVG has no random names, and text that stays text."""
    from matplotlib import rc_context

    return rc_context(
        {
            "svg.hashsalt": "gangwise",
            "svg.fonttype": "none",
            # TrueType, as journals ask for; the default is Type 3.
            "pdf.fonttype": 42,
            "font.family": ["sans-serif"],
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 9.5,
            "axes.unicode_minus": True,
            "path.simplify": True,
        }
    )


WIDE, HIGH = 360.0, 223.0
"""Size of a drawing in its own units, in which letters are 9.5 high; a page scales it."""

LARGEST, SMALLEST = 530, 335
"""Pixels of the page between which a drawing is as wide as there is room."""

LETTER = 5.3  # mean width of a letter


class Point(NamedTuple):
    """A point of a line: ``x`` is a number, or a text for bars; ends are None without interval."""

    x: Any
    mean: float
    low: float | None
    high: float | None


Lines = Mapping[str, Sequence[Point]]


class Axis(NamedTuple):
    """Limits of an axis, the places of its ends in the drawing, and its ticks with their labels."""

    low: float
    high: float
    begin: float
    stop: float
    log: bool
    ticks: Sequence[tuple[float, str]]

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
        share = (value - low) / (high - low)
        # Far outside, points stay outside, though not so far that a drawing cannot have them.
        return self.begin + (self.stop - self.begin) * min(max(share, -1.0), 2.0)

    def inside(self, value: float) -> float:
        return self.at(min(max(value, self.low), self.high))


def round_ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten that span an interval in few steps.

    >>> round_ticks(-1.0, 8.0), round_ticks(0.0, 0.31)
    ([-2.0, 0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.1, 0.2, 0.3, 0.4])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = [power * unit for unit in (1, 2, 2.5, 5, 10)]
    step = next(s for s in steps if (high - low) / s <= most + 1e-9)
    step = float(max(math.ceil(step), 1)) if whole else step
    # A limit that is a tick but for rounding needs no further one.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


def labels_of(ticks: Sequence[float], by: float = 1.0) -> list[str]:
    """Ticks with as many decimals as they need.

    >>> labels_of([0.0, 0.25, 0.5]), labels_of([0.0, 20_000.0], 1000.0)
    (['0.00', '0.25', '0.50'], ['0', '20'])
    """
    values = [tick / by for tick in ticks]
    decimals = next((d for d in range(8) if all(abs(round(v, d) - v) < 1e-9 for v in values)), 8)
    return [number(value, decimals) for value in values]


def _by_line(numbers: Iterable[Sequence[Any]]) -> Mapping[str, Lines]:
    """The points of each line of each panel."""
    lines: dict[str, dict[str, list[Point]]] = defaultdict(lambda: defaultdict(list))
    for panel, line, *point in numbers:
        lines[panel][line].append(Point(*point))
    return lines


def plots(
    numbers: Iterable[Sequence[Any]], panels: Sequence[Panel], looks: Looks, title: str
) -> list[Markup]:
    """Drawings of a table, rows of panel, line, x, mean and ends: an SVG element for each panel."""
    lines, several = _by_line(numbers), len(panels) > 1
    return [_plot(lines[p.name], p, looks, p.name if several else "", title) for p in panels]


def _plot(lines: Lines, panel: Panel, looks: Looks, heading: str, title: str) -> Markup:
    bars = panel.kind == "bars"
    top = 18.0 if heading else 6.0
    places = (
        list(dict.fromkeys(str(p.x) for points in lines.values() for p in points)) if bars else []
    )
    names = [_rows(place, max(int(290 / len(places) / LETTER), 6)) for place in places]
    below = 20.0 + 11.0 * max(1, *map(len, names), 0) - 11.0 * (not panel.x)
    vertical, unit = _vertical(lines, panel, HIGH - below, top)
    left = 24.0 + LETTER * max(len(label) for _, label in vertical.ticks)
    if bars:
        ticks = [(float(i), "") for i in range(len(places))]
        across = Axis(-0.5, max(len(places) - 0.5, 0.5), left, WIDE - 6.0, False, ticks)
    else:
        across = _across(lines, panel, left)
    parts = _frame(across, vertical, panel, unit, heading)
    parts += [_text(across.at(i), vertical.begin + 12, rows) for i, rows in enumerate(names)]
    framed = len(parts)
    drawn = [(tag, name, look) for tag, (name, look) in enumerate(looks.items()) if lines.get(name)]
    # The last is on top; tags and places are by the order of names.
    for i, (tag, name, look) in sorted(enumerate(drawn), key=lambda item: item[1][2].order):
        if bars:
            shift = (i + 0.5) / len(drawn) * 0.8 - 0.4
            points = [p._replace(x=places.index(str(p.x)) + shift) for p in lines[name]]
            wide = 0.8 / len(drawn) * 0.92 * (across.stop - across.begin) / max(len(places), 1)
            parts += _bar_marks(points, across, vertical, tag, look, wide)
        else:
            parts += _line(sorted(lines[name]), across, vertical, panel.kind, tag, look)
    if panel.settled is not None:  # what an inner element has beyond its edges is not drawn
        box = f"{left:.1f} {top:g} {across.stop - left:.1f} {vertical.begin - top:.1f}"
        sizes = dict(zip(("x", "y", "width", "height"), box.split()))
        edges = " ".join(f'{key}="{size}"' for key, size in sizes.items())
        parts[framed:] = [
            f'<svg {edges} viewBox="{box}" aria-hidden="true">',
            *parts[framed:],
            "</svg>",
        ]
    axes = ""
    if not bars and not panel.choices:
        ends = (across.low, across.high, vertical.low, vertical.high)
        place = (across.begin, across.stop, vertical.begin, vertical.stop)
        shown = [f"{end:.8g}" for end in ends] + [f"{at:.2f}" for at in place]
        axes = f' data-axes="{" ".join([*shown, f"{across.log:d}", f"{vertical.log:d}"])}"'
    style = f"max-width:{LARGEST}px;min-width:{SMALLEST}px"
    head = f'<svg viewBox="0 0 {WIDE:g} {HIGH:g}"{axes} style="{style}" role="img"'
    head += f' aria-label="{escape(title)}" font-size="9.5" fill="var(--ink)">'
    return Markup(head + "".join(parts) + "</svg>")


def _rows(text: str, wide: int) -> list[str]:
    """A name below bars in rows, broken between words."""
    return wrap(text.replace("\n", " ").strip(), wide, break_long_words=False) or [""]


def _values(lines: Lines, panel: Panel) -> list[float]:
    """Values that the vertical axis must show: means, and finite ends of intervals."""
    settled = -math.inf if panel.settled is None else panel.settled
    points = [p for of_line in lines.values() for p in of_line]
    # Where nothing lies beyond it, all points count.
    points = [p for p in points if isinstance(p.x, str) or p.x >= settled] or points
    means = [p.mean for p in points if p.mean is not None and math.isfinite(p.mean)]
    ends = [
        end for p in points for end in (p.low, p.high) if end is not None and math.isfinite(end)
    ]
    if panel.settled is None or not means:
        return means + ends
    # Bands of few seeds are wide: they may take half as much room again on either side.
    room = (max(means) - min(means) or abs(max(means)) or 1.0) / 2
    return means + [min(max(end, min(means) - room), max(means) + room) for end in ends]


def _axis_limits(values: Sequence[float], panel: Panel) -> tuple[float, float, bool]:
    values = [*values, *([] if panel.level is None else [panel.level])]
    positive = [value for value in values if value > 0]
    if panel.log_y and positive:
        low, high = min(positive), max(positive)
        # One power of ten at least, or there would be no tick.
        return 10.0 ** math.floor(math.log10(low)), max(high * 1.2, low * 10), True
    if panel.kind in ("bars", "steps"):
        # Bars and steps stand on 0.
        values = [*values, 0.0]
    low, high = min(values, default=0.0), max(values, default=1.0)
    # Values that are all the same need an axis of some width.
    if high - low < 1e-12 * max(abs(high), 1e-300):
        low, high = (low, low + 1.0) if low >= 0 else (low - 1.0, low)
    return low, high, False


def _vertical(lines: Lines, panel: Panel, bottom: float, top: float) -> tuple[Axis, str]:
    """The vertical axis, and the unit that its labels are in."""
    low, high, log = _axis_limits(_values(lines, panel), panel)
    if log:
        ticks = _log_ticks(low, high)
        return Axis(low, high, bottom, top, True, [(t, f"{t:,g}") for t in ticks]), "log scale"
    ticks = round_ticks(low, high)
    by, unit = scale_for((ticks[0], ticks[-1]))
    labels = labels_of(ticks, by)
    return Axis(ticks[0], ticks[-1], bottom, top, False, [*zip(ticks, labels)]), unit


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone where there are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    units = (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [unit * 10.0**power for power in powers for unit in units]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def _across(lines: Lines, panel: Panel, left: float) -> Axis:
    right = WIDE - 12.0
    if panel.choices:
        ticks = [(float(i), choice) for i, choice in enumerate(panel.choices)]
        return Axis(-0.6, len(panel.choices) - 0.4, left, right, False, ticks)
    xs = [p.x for points in lines.values() for p in points] or [0.0, 1.0]
    low, high = map(float, (min(xs), max(xs)) if panel.ends is None else panel.ends)
    if panel.log_x and low > 0:
        if high <= low:
            low, high = low / 2, low * 2
        at = _log_ticks(low, high)
        # So few values have a tick each.
        if panel.kind == "points" and len(set(xs)) < 8:
            at = sorted({float(x) for x in xs})
        room = (high / low) ** 0.04
        labels = [(tick, f"{tick:,g}") for tick in at]
        return Axis(low / room, high * room, left, right, True, labels)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if panel.kind in ("points", "dots"):
        # Dots at the ends would be cut in half.
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    elif panel.settled is not None and low > 0:
        low = 0.0
    whole = all(isinstance(x, int) for x in xs)
    at = [t for t in round_ticks(low, high, 6, whole) if low - 1e-9 <= t <= high + 1e-9]
    return Axis(low, high, left, right, False, [*zip(at, labels_of(at))])


def _text(x: float, y: float, rows: Sequence[str], anchor: str = "middle") -> str:
    spans = [
        f'<tspan x="{x:.1f}" dy="{11 * (i > 0)}">{escape(r)}</tspan>' for i, r in enumerate(rows)
    ]
    return f'<text y="{y:.1f}" text-anchor="{anchor}">{"".join(spans)}</text>'


def _frame(across: Axis, vertical: Axis, panel: Panel, unit: str, heading: str) -> list[str]:
    """Rules, ticks, labels of both axes, and the name of the panel."""
    left, right, bottom = across.begin, across.stop, vertical.begin
    rules = "".join(f"M{left:.1f} {vertical.at(t):.1f}H{right:.1f}" for t, _ in vertical.ticks)
    parts = [f'<path d="{rules}" stroke="var(--rule)" stroke-width=".8"/>']
    marks = "".join(f"M{across.at(t):.1f} {bottom:.1f}v3" for t, label in across.ticks if label)
    parts.append(
        f'<path d="M{left:.1f} {bottom:.1f}H{right:.1f}{marks}" stroke="var(--muted)" '
        'stroke-width=".8"/>'
    )
    if panel.level is not None:
        at = vertical.at(panel.level)
        parts.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="var(--muted)"/>')
    parts += [_text(left - 5, vertical.at(t) + 3.3, [label], "end") for t, label in vertical.ticks]
    parts += [_text(across.at(t), bottom + 12, [label]) for t, label in across.ticks if label]
    if panel.x:
        parts.append(_text((left + right) / 2, HIGH - 4, [panel.x]))
    if label := ", ".join(filter(None, (panel.y, unit))):
        middle = (bottom + vertical.stop) / 2
        turned = f'<g transform="translate(9 {middle:.1f}) rotate(-90)">{_text(0, 0, [label])}</g>'
        parts.append(turned)
    return parts + [_text(0, 10, [heading], "start")] * bool(heading)


def _ends(points: Sequence[Point], across: Axis, vertical: Axis, tag: int, colour: str) -> str:
    drawn = "".join(
        f"M{across.at(p.x):.1f} {vertical.inside(p.low):.1f}V{vertical.inside(p.high):.1f}"
        for p in points
        if p.low is not None and p.high is not None and math.isfinite(p.low + p.high)
    )
    if not drawn:
        return ""
    return f'<g data-ends="{tag}"><path d="{drawn}" stroke="{colour}" stroke-width="1"/></g>'


def _bar_marks(
    points: Sequence[Point], across: Axis, vertical: Axis, tag: int, look: Style, wide: float
) -> list[str]:
    """Bars side by side; marks where the axis is logarithmic, on which a bar has no foot."""
    colour, foot = f"var(--{look.variable})", vertical.at(max(vertical.low, 0.0))
    shapes = []
    for p in points:
        x, y = across.at(p.x), vertical.at(p.mean)
        if vertical.log:
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>')
        else:
            size = f'width="{wide:.1f}" height="{abs(foot - y):.1f}"'
            shapes.append(f'<rect x="{x - wide / 2:.1f}" y="{min(y, foot):.1f}" {size}/>')
    # Bars have no dashes: what would have some is paler.
    faint = ' fill-opacity=".55"' if look.dashes else ""
    drawn = f'<g data-line="{tag}" fill="{colour}"{faint}>{"".join(shapes)}</g>'
    return [drawn, _ends(points, across, vertical, tag, colour if vertical.log else "var(--ink)")]


def _line(
    points: Sequence[Point], across: Axis, vertical: Axis, kind: str, tag: int, look: Style
) -> list[str]:
    colour, parts = f"var(--{look.variable})", []
    sure = [p for p in points if p.mean is not None and math.isfinite(p.mean)]
    places = [(across.at(p.x), vertical.at(p.mean)) for p in sure]
    if kind == "steps":  # each value holds until the next x
        stairs = [((b[0], a[1]), b) for a, b in pairwise(places)]
        places = [*places[:1], *(corner for pair in stairs for corner in pair)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    marks = ""
    if kind in ("points", "dots"):
        radius = max(look.width / 2, 1.9)
        marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>' for x, y in places)
        parts.append(_ends(sure, across, vertical, tag, colour))
    elif sure and all(p.low is not None and math.isfinite(p.low) for p in sure):
        highs = [(across.at(p.x), vertical.at(float(p.high or p.mean))) for p in sure]
        lows = [(across.at(p.x), vertical.at(float(p.low or 0.0))) for p in reversed(sure)]
        around = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [*highs, *lows])
        parts.append(f'<g data-band="{tag}"><path d="{around}Z" fill="{colour}"/></g>')
    dashes = " ".join(f"{on * look.width:.1f}" for on in look.dashes)
    stroke = f'stroke="{colour}" stroke-width="{1.3 if kind == "points" else look.width:g}"'
    stroke += f' stroke-dasharray="{dashes}"' if dashes else ""
    drawn = "" if kind == "dots" else f'<path d="{path}" fill="none" {stroke}/>'
    parts.append(f'<g data-line="{tag}" fill="{colour}">{drawn}{marks}</g>')
    return parts

"""The plotting dialect: colours and line styles, panels of lines or bars, direct labels.

Figures are drawn with matplotlib's objects and no global state; the same numbers give the same SVG,
byte for byte. The numbers of a picture of panels are a tidy table with a row per point:

=========  ====================================================
column     meaning
=========  ====================================================
panel      which panel
line       which line, such as a policy
x          position: a number, or a text for bars
mean       mean over seeds
low, high  ends of its interval; null where there is none
=========  ====================================================

A policy has one colour and one line style in every figure and table of a page. Colours keep their
distance for readers who do not see all hues. Lines that coincide stay distinguishable: neighbours
in rank differ in dash pattern, and sparser patterns lie on top.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

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
"""Pairs: on white, on black."""

LINES = ((2.4, ()), (1.9, (6.0, 2.0)), (1.8, (4.5, 1.6, 1.0, 1.6)), (1.9, (1.2, 1.6)))


@dataclass(frozen=True)
class Style:
    """How a policy is drawn.

    Attributes
    ----------
    index : int
        Which of :data:`COLOURS`; −1 for the grey of comparators.
    width : float
        Line width in points.
    dashes : tuple of float
        On and off lengths in line widths; empty for a solid line.
    order : int
        Higher is drawn later, on top.
    """

    index: int
    width: float
    dashes: tuple[float, ...]
    order: int

    @property
    def colour(self) -> str:
        """The colour on white."""
        return MUTED if self.index < 0 else COLOURS[self.index][0]

    @property
    def variable(self) -> str:
        """What a page calls the colour, on light and on dark."""
        return "muted" if self.index < 0 else f"c{self.index}"


DASHES = (7.0, 4.0)
REFERENCE = Style(-1, 1.1, DASHES, 90)
"""How comparators are drawn."""


def plain_styles(names: Sequence[str]) -> dict[str, Style]:
    """Coloured in the order of the names, dashed from the second round on: as sweeps are drawn."""
    return {
        name: Style(i % len(COLOURS), 1.9, () if i < len(COLOURS) else (3.7, 1.6), i)
        for i, name in enumerate(names)
    }


COLUMNS = ("panel", "line", "x", "mean", "low", "high")

WIDTH, HEIGHT, DPI = 4.3, 3.1, 150
MOST_IN_A_ROW = 3
LEGEND_ROW, LEGEND_ROWS = 0.19, 3
"""Height of a row of the legend, in inches; how many there is room for at the usual height."""


@dataclass(frozen=True)
class Panel:
    """Axes of a picture.

    Parameters
    ----------
    name : str
        As in the column ``panel``.
    x, y : str
        Labels of the axes, with units.
    kind : {"curve", "points", "steps", "bars"}
        Lines with a band; points with error bars, joined; a distribution function; bars side by
        side, for an ``x`` that is text.
    log_x, log_y : bool
    level : float, optional
        Where to draw a thin horizontal line.
    """

    name: str
    x: str
    y: str
    kind: Literal["curve", "points", "steps", "bars"] = "curve"
    log_x: bool = False
    log_y: bool = False
    level: float | None = None


def draw(title: str, numbers: pl.DataFrame, panels: Sequence[Panel]) -> Figure:
    """The picture of a table of numbers.

    Parameters
    ----------
    title : str
    numbers : polars.DataFrame
        Columns as the module says.
    panels : sequence of Panel
    """
    with settled():
        return _panels(title, numbers, panels)


PAGE_WIDTH, PAGE_HEIGHT = 5.0, 3.1
"""Of a plot on a page, in inches: it fits a narrow screen, for what it is a plot of is told beside
it."""


def plots(numbers: pl.DataFrame, panels: Sequence[Panel]) -> tuple[tuple[str, ...], Looks]:
    """A table of numbers for a page: a plot for each panel, and how each line looks.

    Lines are tagged, so that a page can name, hide and read them; see :func:`plot_text`.
    """
    lines = numbers["line"].unique(maintain_order=True).to_list()
    found = []
    with settled():
        for panel in panels:
            figure = Figure((PAGE_WIDTH, PAGE_HEIGHT), facecolor="white", layout="constrained")
            axes = figure.subplots()
            part = numbers.filter(pl.col("panel") == panel.name)
            title = panel.name if len(panels) > 1 else ""
            _panel(axes, part, lines, panel, title)
            found.append(plot_text(figure, axes, panel.kind != "bars"))
    return tuple(found), {name: _look(i) for i, name in enumerate(lines)}


Looks = dict[str, Style]
"""How lines are drawn, by their names, in the order of their tags."""


def _look(i: int) -> Style:
    """The look of a line of a panel."""
    return Style(i % len(COLOURS), 1.7, () if i < len(COLOURS) else (3.7, 1.6), i)


def plot_text(figure: Figure, axes: Axes, readable: bool = True) -> str:
    """The SVG of a figure of one panel, with what a page needs to read values off it.

    The attribute ``data-axes`` has the limits of both axes, where these are in the drawing, and
    whether they are logarithmic. Lines and bands are tagged ``line0``, ``band0`` and so on.
    """
    text = svg_text(figure)
    if not readable:
        return text
    width, height = 72 * figure.get_size_inches()
    box = axes.get_position()
    across, up = axes.get_xlim(), axes.get_ylim()
    where = (width * box.x0, width * box.x1, height * (1 - box.y0), height * (1 - box.y1))
    log = (axes.get_xscale() == "log", axes.get_yscale() == "log")
    told = [*(f"{end:.8g}" for end in (*across, *up)), *(f"{at:.2f}" for at in where)]
    told += [str(int(each)) for each in log]
    return text.replace("<svg ", f'<svg data-axes="{" ".join(told)}" ', 1)


def _panels(title: str, numbers: pl.DataFrame, panels: Sequence[Panel]) -> Figure:
    across = 2 if len(panels) == 4 else min(len(panels), MOST_IN_A_ROW)
    down = -(-len(panels) // across)
    width = across * WIDTH if across > 1 else 1.6 * WIDTH
    figure = Figure(figsize=(width, down * HEIGHT + 0.9), facecolor="white", layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    lines = numbers["line"].unique(maintain_order=True).to_list()
    for axes, panel in zip(grid, panels):
        part = numbers.filter(pl.col("panel") == panel.name)
        _panel(axes, part, lines, panel, panel.name if len(panels) > 1 else "")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    name_lines(figure, title, grid[: len(panels)])
    return figure


def _panel(axes: Axes, part: pl.DataFrame, lines: Sequence[str], panel: Panel, title: str) -> None:
    _bars(axes, part, lines) if panel.kind == "bars" else _lines(axes, part, lines, panel)
    dress(axes, panel.x, panel.y, title)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.level is not None:
        axes.axhline(panel.level, color=MUTED, linewidth=0.8, zorder=1)
    if panel.log_x and panel.kind == "points":
        at = part["x"].unique().sort().to_list()
        axes.set_xticks(at, [f"{x:,g}" for x in at])
        axes.minorticks_off()


def name_lines(figure: Figure, title: str, shown: Iterable[Axes]) -> None:
    """Put a title above a picture and a legend below it, which makes it taller where it is long."""
    figure.suptitle(
        title, x=0.01, ha="left", color=INK, fontsize=11.5, weight="bold", parse_math=False
    )
    named: dict[str, Artist] = {}
    for axes in shown:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            named.setdefault(label, handle)
    width, height = figure.get_size_inches()
    columns = max(min(len(named), int(width / _column(named))), 1)
    further = max(0, -(-len(named) // columns) - LEGEND_ROWS)
    figure.set_size_inches(width, height + LEGEND_ROW * further)
    figure.legend(
        handles=list(named.values()),
        labels=list(named),
        loc="outside lower left",
        frameon=False,
        fontsize=9,
        ncols=columns,
    )


def _column(names: Iterable[str]) -> float:
    """Width of a column of the legend, in inches."""
    return max(1.7, 0.7 + 0.07 * max(map(len, names), default=0))


def _lines(axes: Axes, part: pl.DataFrame, lines: Sequence[str], panel: Panel) -> None:
    for i, name in enumerate(lines):
        line = part.filter(pl.col("line") == name).sort("x")
        if line.is_empty():
            continue
        x, mean = line["x"].to_numpy(), line["mean"].to_numpy()
        low, high = line["low"].to_numpy(), line["high"].to_numpy()
        colour = COLOURS[i % len(COLOURS)][0]
        dashes = "solid" if i < len(COLOURS) else "dashed"
        if panel.kind == "points":
            known = np.isfinite(low.astype(np.float64))
            axes.plot(
                x,
                mean,
                marker="o",
                color=colour,
                markersize=3.5,
                linewidth=1.3,
                label=name,
                linestyle=dashes,
                gid=f"line{i}",
            )
            ends = (x[known], low[known], high[known])
            axes.vlines(*ends, color=colour, linewidth=1.0, gid=f"ends{i}")
            continue
        style = "steps-post" if panel.kind == "steps" else "default"
        axes.plot(
            x,
            mean,
            color=colour,
            linewidth=1.7,
            label=name,
            drawstyle=style,
            linestyle=dashes,
            gid=f"line{i}",
        )
        if np.isfinite(low.astype(np.float64)).all():
            axes.fill_between(
                x,
                low,
                high,
                color=colour,
                alpha=0.09,
                linewidth=0,
                step="post" if panel.kind == "steps" else None,
                gid=f"band{i}",
            )


def _bars(axes: Axes, part: pl.DataFrame, lines: Sequence[str]) -> None:
    places = part["x"].cast(pl.String).unique(maintain_order=True).to_list()
    shown = [name for name in lines if name in part["line"].to_list()]
    width = 0.8 / max(len(shown), 1)
    for i, name in enumerate(shown):
        line = part.filter(pl.col("line") == name)
        at = np.array([places.index(str(x)) for x in line["x"]]) + (i + 0.5) * width - 0.4
        mean = line["mean"].to_numpy()
        i = lines.index(name)
        hatch = "" if i < len(COLOURS) else "////"
        axes.bar(
            at,
            mean,
            width * 0.92,
            color=COLOURS[i % len(COLOURS)][0],
            label=name,
            hatch=hatch,
            edgecolor="white",
            linewidth=0,
            gid=f"line{i}",
        )
        for place, low, high in zip(at, line["low"], line["high"]):
            if low is not None and high is not None:
                axes.vlines(place, low, high, color=INK, linewidth=1.0, gid=f"ends{i}")
    axes.set_xticks(range(len(places)), places)


def dress(axes: Axes, x: str, y: str, title: str = "") -> None:
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


def image(figure: Figure, ending: Literal["png", "svg"]) -> bytes:
    """A figure as a PNG or SVG document."""
    buffer = io.BytesIO()
    with settled():
        undated = {"Date": None, "Creator": None} if ending == "svg" else None
        figure.savefig(buffer, format=ending, dpi=DPI, metadata=undated)
    return buffer.getvalue()


def svg_text(figure: Figure) -> str:
    """A figure as an SVG document."""
    return image(figure, "svg").decode()


def settled() -> AbstractContextManager[None]:
    """Matplotlib's settings under which an SVG has no random names, and text that stays text."""
    return rc_context(
        {
            "svg.hashsalt": "gangwise",
            "svg.fonttype": "none",
            "font.family": ["sans-serif"],
            "font.sans-serif": ["DejaVu Sans"],
            "font.size": 9.5,
            "axes.unicode_minus": True,
            "path.simplify": True,
        }
    )


# Direct labels at the right end of lines


_LONGEST = 26
_LEADER, _SAMPLE, _TEXT = 0.035, 0.105, 0.12
"""Where leader, line sample and text end or begin, right of the axes, in widths of the axes."""


@dataclass(frozen=True)
class Label:
    """The name of a line, the height where the line ends, and how the line looks."""

    height: float
    text: str
    colour: str
    width: float
    dashes: tuple[float, ...]


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Heights as near as can be to the wanted ones, in the same order, at least a gap apart.

    The gap shrinks when there are too many labels between ``low`` and ``high``.

    >>> [round(x, 2) for x in apart([0.5, 0.5, 0.9], 0.1, 0.0, 1.0)]
    [0.45, 0.55, 0.9]
    """
    n = len(wanted)
    if n > 1:
        gap = min(gap, (high - low) / (n - 1))
    order = sorted(range(n), key=lambda i: wanted[i])
    # Groups of labels that touch, each around the mean of its wanted heights; merged on overlap.
    groups: list[list[float]] = []
    for i in order:
        groups.append([wanted[i]])
        while len(groups) > 1 and _top(groups[-2], gap) + gap > _start(groups[-1], gap):
            groups[-2:] = [groups[-2] + groups[-1]]
    heights = [_start(group, gap) + j * gap for group in groups for j in range(len(group))]
    heights = [max(y, low + j * gap) for j, y in enumerate(heights)]
    heights = [min(y, high - (n - 1 - j) * gap) for j, y in enumerate(heights)]
    found = [0.0] * n
    for i, height in zip(order, heights):
        found[i] = height
    return found


def _start(group: Sequence[float], gap: float) -> float:
    """Lowest height of a group whose members stand a gap apart around their mean."""
    return sum(group) / len(group) - (len(group) - 1) * gap / 2


def _top(group: Sequence[float], gap: float) -> float:
    return _start(group, gap) + (len(group) - 1) * gap


def place_labels(figure: Figure, axes: Axes, labels: Sequence[Label]) -> None:
    """Write each label right of the axes, with a sample of its line and a leader to its end."""
    low, high = axes.get_ylim()
    box = axes.get_position()
    points = figure.get_figheight() * 72 * box.height
    size = float(np.clip(points / max(len(labels), 1) / 1.35, 6.0, 9.0))
    # Higher ranks come first; on a tie the better policy is to stand higher.
    ordered = list(reversed(labels))
    ends = [min(max((label.height - low) / (high - low), 0.0), 1.0) for label in ordered]
    places = apart(ends, 1.35 * size / points, 0.0, 1.0)
    for label, end, place in zip(ordered, ends, places):
        leader = Line2D([1.005, _LEADER + 1], [end, place], color=GRID, linewidth=0.8)
        sample = Line2D([_LEADER + 1.005, _SAMPLE + 1], [place, place], color=label.colour)
        sample.set_linewidth(label.width)
        if label.dashes:
            sample.set_dashes(label.dashes)
        for line in (leader, sample):
            line.set_transform(axes.transAxes)
            line.set_clip_on(False)
            axes.add_line(line)
        axes.text(
            1 + _TEXT,
            place,
            _short(label.text),
            transform=axes.transAxes,
            color=INK,
            fontsize=size,
            va="center",
            parse_math=False,
        )


def _short(text: str) -> str:
    """A name that fits beside the axes; its beginning and its end tell names apart."""
    if len(text) <= _LONGEST:
        return text
    half = (_LONGEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"

"""One way to draw every artefact: panels of lines, each a mean with its 95 % confidence interval.

The numbers of an artefact are a tidy table with a row per point:

=========  ====================================================
column     meaning
=========  ====================================================
panel      which panel
line       which line, such as a policy
x          position: a number, or a text for bars
mean       mean over seeds
low, high  ends of its interval; null where there is none
=========  ====================================================
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from gangwise.core.errors import StoreError
from gangwise.report.palette import COLOURS, GRID, INK, MUTED

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    import polars as pl
    from matplotlib.figure import Figure

    across = 2 if len(panels) == 4 else min(len(panels), MOST_IN_A_ROW)
    down = -(-len(panels) // across)
    width = across * WIDTH if across > 1 else 1.6 * WIDTH
    figure = Figure(figsize=(width, down * HEIGHT + 0.9), facecolor="white", layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    lines = numbers["line"].unique(maintain_order=True).to_list()
    for axes, panel in zip(grid, panels):
        part = numbers.filter(pl.col("panel") == panel.name)
        _bars(axes, part, lines) if panel.kind == "bars" else _lines(axes, part, lines, panel)
        dress(axes, panel, title=len(panels) > 1)
        if panel.log_x and panel.kind == "points":
            at = part["x"].unique().sort().to_list()
            axes.set_xticks(at, [f"{x:,g}" for x in at])
            axes.minorticks_off()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    name_lines(figure, title, grid[: len(panels)])
    return figure


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
    import polars as pl

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
            )
            axes.vlines(x[known], low[known], high[known], color=colour, linewidth=1.0)
            continue
        style = "steps-post" if panel.kind == "steps" else "default"
        axes.plot(
            x, mean, color=colour, linewidth=1.7, label=name, drawstyle=style, linestyle=dashes
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
            )


def _bars(axes: Axes, part: pl.DataFrame, lines: Sequence[str]) -> None:
    import polars as pl

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
        )
        for place, low, high in zip(at, line["low"], line["high"]):
            if low is not None and high is not None:
                axes.vlines(place, low, high, color=INK, linewidth=1.0)
    axes.set_xticks(range(len(places)), places)


def dress(axes: Axes, panel: Panel, title: bool) -> None:
    """Labels, scales, ticks and grid of a panel."""
    if title:
        axes.set_title(panel.name, loc="left", fontsize=10, color=INK, parse_math=False)
    axes.set_xlabel(panel.x, color=INK, parse_math=False)
    axes.set_ylabel(panel.y, color=INK, parse_math=False)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.level is not None:
        axes.axhline(panel.level, color=MUTED, linewidth=0.8, zorder=1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(color=MUTED, labelcolor=INK, length=3, labelsize=9)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a picture as PNG and as SVG, the same bytes for the same numbers."""
    written = []
    with _settled():
        for suffix in (".png", ".svg"):
            path = stem.with_name(stem.name + suffix)
            try:
                figure.savefig(path, dpi=DPI, metadata=None if suffix == ".png" else _UNDATED)
            except OSError as error:
                raise StoreError(f"cannot write {path}: {error}") from error
            written.append(path)
    return written


def svg_text(figure: Figure) -> str:
    """A picture as an SVG document, the same text for the same numbers."""
    buffer = io.StringIO()
    with _settled():
        figure.savefig(buffer, format="svg", metadata=_UNDATED)
    return buffer.getvalue()


_UNDATED = {"Date": None, "Creator": None}


def _settled() -> AbstractContextManager[None]:
    """Matplotlib's settings under which an SVG has no random names, and text that stays text."""
    from matplotlib import rc_context

    return rc_context({"svg.hashsalt": "gangwise", "svg.fonttype": "none"})

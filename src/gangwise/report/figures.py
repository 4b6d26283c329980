"""The four figures of a comparison, as PNG and as SVG.

Drawn with matplotlib's objects and no global state. The same comparison gives the same SVG, byte
for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gangwise.experiments.compare import Comparison
from gangwise.report import curves
from gangwise.report.curves import Curve
from gangwise.report.labels import Label, place_labels
from gangwise.report.numbers import number, scale_for
from gangwise.report.palette import GRID, INK, MUTED, Style, styles
from gangwise.report.sentences import figure_title, seeds_text

_SETTINGS = {
    "svg.hashsalt": "gangwise",
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.unicode_minus": True,
    "path.simplify": True,
}
_WIDTH, _HEIGHT, _DPI = 8.6, 4.3, 150
_DASHES = (7.0, 4.0)
_SETTLED = 0.05
"""Axes are fitted to what lies after this part of the slots: the first few averages jump."""


def draw(comparison: Comparison, directory: Path | str) -> list[Path]:
    """Draw ``average-reward``, ``cumulative-reward``, ``ratio`` and ``regret``.

    A figure that has nothing to show is left out: ``ratio`` with one policy or where rewards are
    not positive, ``regret`` without a comparator.

    Parameters
    ----------
    comparison : Comparison
    directory : path
        An existing folder.

    Returns
    -------
    list of Path
        A PNG and an SVG for each figure.
    """
    directory = Path(directory)
    written = []
    with rc_context(_SETTINGS):  # type: ignore[arg-type]  # matplotlib's keys are a Literal type
        for stem, figure in _figures(comparison).items():
            for suffix in (".png", ".svg"):
                path = directory / f"{stem}{suffix}"
                metadata = {"Date": None, "Creator": None} if suffix == ".svg" else None
                figure.savefig(path, dpi=_DPI, metadata=metadata)
                written.append(path)
    return written


def _figures(comparison: Comparison) -> dict[str, Figure]:
    looks = styles(comparison)
    best = next(iter(looks))
    names = comparison.comparator_names
    average = {p: curves.average_reward(comparison, p) for p in looks}
    total = {p: curves.cumulative_reward(comparison, p) for p in looks}
    over = {p: curves.ratio(comparison, best, p) for p in looks if p != best}
    over = {p: curve for p, curve in over.items() if np.isfinite(curve.mean[-1])}
    found = {
        "average-reward": _figure(
            comparison,
            "average-reward",
            average,
            looks,
            "average reward per slot",
            {name: curves.comparator_average(comparison, name) for name in names},
            settle=True,
        ),
        "cumulative-reward": _figure(
            comparison, "cumulative-reward", total, looks, "reward, summed over slots"
        ),
    }
    if over:
        found["ratio"] = _figure(
            comparison, "ratio", over, looks, f"{best} ÷ other policy", level=1.0, settle=True
        )
    if names:
        curve = {p: curves.regret(comparison, p, names[0]) for p in looks}
        references = {"√t, for shape": shape} if (shape := _root(curve)) else {}
        found["regret"] = _figure(
            comparison, "regret", curve, looks, "regret, summed over slots", references, level=0.0
        )
    return found


def _root(regret: dict[str, Curve]) -> Curve | None:
    """A multiple of √t through the end of the largest regret, if that is positive."""
    largest = max(regret.values(), key=lambda curve: float(curve.mean[-1]))
    if largest.mean[-1] <= 0:
        return None
    grid = np.unique(np.linspace(1, largest.slots[-1], 200).round().astype(np.int64))
    return Curve(grid, largest.mean[-1] * np.sqrt(grid / grid[-1]), None)


def _figure(
    comparison: Comparison,
    stem: str,
    lines: dict[str, Curve],
    looks: dict[str, Style],
    unit: str,
    references: dict[str, Curve] | None = None,
    level: float | None = None,
    settle: bool = False,
) -> Figure:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    axes = figure.add_axes((0.09, 0.115, 0.61, 0.68))
    if level is not None:
        axes.axhline(level, color=MUTED, linewidth=0.8, zorder=1)
    labels = []
    for name, curve in (references or {}).items():
        line = Line2D(curve.slots, curve.mean, color=MUTED, linewidth=1.1, zorder=90)
        line.set_dashes(_DASHES)
        axes.add_line(line)
        labels.append(Label(float(curve.mean[-1]), name, MUTED, 1.1, _DASHES))
    for name, curve in lines.items():
        look_of = looks[name]
        line = Line2D(
            curve.slots,
            curve.mean,
            color=look_of.colour,
            linewidth=look_of.width,
            zorder=look_of.order,
            solid_capstyle="round",
        )
        if look_of.dashes:
            line.set_dashes(look_of.dashes)
        axes.add_line(line)
        if curve.half is not None:
            axes.fill_between(
                curve.slots,
                curve.mean - curve.half,
                curve.mean + curve.half,
                color=look_of.colour,
                alpha=0.12 if len(lines) < 6 else 0.05,
                linewidth=0,
                zorder=2,
            )
        end = float(curve.mean[-1])
        labels.append(Label(end, name, look_of.colour, look_of.width, look_of.dashes))
    shown = [*lines.values(), *(references or {}).values()]
    axes.set_xlim(0, comparison.slots if comparison.slots > 1 else 2)
    axes.set_ylim(*_limits(shown, comparison.slots * _SETTLED if settle else 0, level))
    _dress(figure, axes, comparison, stem, unit)
    place_labels(figure, axes, labels)
    return figure


def _dress(figure: Figure, axes: Axes, comparison: Comparison, stem: str, unit: str) -> None:
    """Title, axis labels, ticks and grid."""
    many = len(comparison.seeds) > 1
    band = f"mean of {seeds_text(comparison)}, band: 95 % confidence" if many else "one seed"
    scale, scale_name = scale_for(axes.get_ylim())
    unit = f"{unit}, {scale_name}" if scale_name else unit
    left, top = 0.02, axes.get_position().y1
    figure.text(
        left,
        0.94,
        figure_title(comparison, stem),
        color=INK,
        parse_math=False,
        fontsize=11.5,
        weight="bold",
    )
    figure.text(left, 0.885, f"{comparison.scenario.name}; {band}", color=MUTED, parse_math=False)
    figure.text(left, top + 0.03, unit, color=INK, parse_math=False)
    axes.set_xlabel("slot", color=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(color=MUTED, labelcolor=INK, length=3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    steps = [1, 2, 2.5, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=steps))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=steps))
    for axis, divisor in ((axes.xaxis, 1.0), (axes.yaxis, scale)):
        ticks = axis.get_ticklocs() / divisor
        decimals = next((d for d in range(9) if np.allclose(ticks, ticks.round(d), 1e-6, 0)), 9)
        axis.set_major_formatter(
            FuncFormatter(lambda value, _, by=divisor, d=decimals: number(value / by, d))
        )


def _limits(shown: Sequence[Curve], after: float, level: float | None) -> tuple[float, float]:
    """Room for the means, and for their bands up to as much again on either side."""
    means, low, high = [], [], []
    for curve in shown:
        late = (curve.slots >= after) & np.isfinite(curve.mean)
        means.append(curve.mean[late])
        if curve.half is not None:
            low.append((curve.mean - curve.half)[late])
            high.append((curve.mean + curve.half)[late])
    middle = np.concatenate(means)
    bottom, top = float(middle.min()), float(middle.max())
    if level is not None:
        bottom, top = min(bottom, level), max(top, level)
    span = top - bottom or abs(top) or 1.0
    if low:
        bottom = max(min(bottom, float(np.concatenate(low).min())), bottom - span / 2)
        top = min(max(top, float(np.concatenate(high).max())), top + span / 2)
    return bottom - 0.04 * span, top + 0.04 * span

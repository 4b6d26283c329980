"""Pictures of a trace, as PNG and as SVG: arrivals, request sizes, lifetimes, load.

The same trace gives the same SVG, byte for byte.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gangwise.report.palette import COLOURS, GRID, INK, MUTED
from gangwise.report.trace_numbers import Distribution, arrivals, lifetimes, load, sizes
from gangwise.traces.tables import Tables, period

_SETTINGS = {
    "svg.hashsalt": "gangwise",
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.unicode_minus": True,
}
_DPI, _PANEL, _HEIGHT = 150, 4.3, 3.3
_COLOUR = {"cpu": COLOURS[0][0], "mem": COLOURS[1][0], "gpu": COLOURS[2][0]}
_WORD = {"cpu": "CPU", "mem": "memory", "gpu": "GPUs"}
_NAMES = {
    1.0: "second",
    10.0: "10 seconds",
    60.0: "minute",
    300.0: "5 minutes",
    3600.0: "hour",
    86400.0: "day",
    604800.0: "week",
}


@dataclass(frozen=True)
class Drawn:
    """What was drawn.

    Attributes
    ----------
    captions : dict
        What each picture is made of, by file name without ending.
    left_out : dict
        Why a picture was not drawn.
    """

    captions: dict[str, str]
    left_out: dict[str, str]


def draw(tables: Tables, directory: Path | str) -> Drawn:
    """Draw ``arrivals``, ``sizes``, ``lifetimes`` and ``load`` into an existing folder.

    A picture that has nothing to show is left out.
    """
    captions, left_out = {}, {}
    pictures = {"arrivals": _arrivals, "sizes": _sizes, "lifetimes": _lifetimes, "load": _load}
    with rc_context(_SETTINGS):  # type: ignore[arg-type]  # matplotlib's keys are a Literal type
        for stem, picture in pictures.items():
            made = picture(tables)
            if isinstance(made, str):
                left_out[stem] = made
                continue
            figure, captions[stem] = made
            for suffix in (".png", ".svg"):
                metadata = {"Date": None, "Creator": None} if suffix == ".svg" else None
                figure.savefig(Path(directory) / f"{stem}{suffix}", dpi=_DPI, metadata=metadata)
    return Drawn(captions, left_out)


def _arrivals(tables: Tables) -> tuple[Figure, str] | str:
    found = arrivals(tables)
    if found is None:
        return "no request has a time of creation"
    bin_name = _NAMES.get(found.width, period(found.width))
    caption = (
        f"{_requests(tables)}; {found.counts.sum():,} have a time of creation and are counted here "
        f"by {bin_name}."
    )
    if found.cycle is None:
        caption += " No daily cycle: fewer than two whole days."
    else:
        caption += (
            f" Right: mean over {found.days} whole days, counted from the start of the trace, "
            "which need not be midnight."
        )
    figure, panels = _figure(
        f"{tables.trace}: arrivals", 1 if found.cycle is None else 2, caption, wide=True
    )
    starts = found.first + found.width * np.arange(found.counts.size + 1)
    scale, unit = _clock(starts[-1])
    panels[0].stairs(found.counts, starts / scale, fill=True, color=_COLOUR["cpu"], linewidth=0)
    _dress(panels[0], f"{unit} since the start of the trace", f"requests created per {bin_name}")
    panels[0].set_xlim(starts[0] / scale, starts[-1] / scale)
    panels[0].set_ylim(0, None)
    if found.cycle is not None:
        panels[1].stairs(found.cycle, np.arange(25), fill=True, color=_COLOUR["mem"], linewidth=0)
        _dress(panels[1], "hour of each day of the trace", "requests created per hour, mean")
        panels[1].set_xticks(range(0, 25, 6))
        panels[1].set_xlim(0, 24)
        panels[1].set_ylim(0, None)
    return figure, caption


def _sizes(tables: Tables) -> tuple[Figure, str] | str:
    found = sizes(tables)
    if not found:
        return "no request says what it asks for"
    caption = (
        f"Share of {_requests(tables)} of which a task asks for at most so much; a request counts "
        "once, however many tasks it has."
    )
    unknown = [
        f"{d.unknown:,} do not say how much {_WORD[n]}" for n, d in found.items() if d.unknown
    ]
    if unknown:
        caption += f" Left out: {_and(unknown)}."
    figure, panels = _figure(f"{tables.trace}: request sizes", len(found), caption)
    for axes, (name, distribution) in zip(panels, found.items()):
        _steps(axes, distribution, _COLOUR[name])
        _dress(axes, f"{_WORD[name]} of a task ({tables.units[name]})", "share of requests")
        if distribution.zeros:
            axes.text(
                0.98,
                0.04,
                f"{100 * distribution.zeros:.3g} % ask for none",
                color=MUTED,
                transform=axes.transAxes,
                ha="right",
            )
    return figure, caption


def _lifetimes(tables: Tables) -> tuple[Figure, str] | str:
    found = lifetimes(tables)
    if not found.known:
        return "no request has both times"
    last = tables.jobs["deleted"].max()
    until_end = int((tables.jobs["deleted"] == last).sum())
    caption = (
        f"Share of {_requests(tables)} that last at most so long, from creation to deletion, "
        f"waiting included. {until_end:,} end with the last deletion of all and may last longer."
    )
    if found.unknown:
        caption += f" {found.unknown:,} without both times are left out."
    if found.zeros:
        caption += f" {100 * found.zeros:.2g} % last 0 s and are not on the axis."
    figure, [axes] = _figure(f"{tables.trace}: lifetimes", 1, caption)
    if found.values[-1] > 0:
        _steps(axes, found, _COLOUR["cpu"], always_log=True)
    middle = float(found.values[np.searchsorted(found.share, 0.5)])
    _dress(axes, "lifetime in seconds", "share of requests")
    axes.text(
        0.98,
        0.04,
        f"half last at most {period(middle)}",
        color=MUTED,
        ha="right",
        transform=axes.transAxes,
    )
    return figure, caption


def _load(tables: Tables) -> tuple[Figure, str] | str:
    found = load(tables)
    if found is None:
        return "no request has both times"
    if not found.requested:
        return "no request says what it asks for"
    bins = len(found.edges) - 1
    caption = (
        f"What {_requests(tables)} ask for from creation to deletion, as means over {bins} "
        f"bins of {period(round(float(np.diff(found.edges)[0]), 1))}."
    )
    without = [_WORD[name] for name in found.requested if name not in found.capacity]
    if found.capacity:
        totals = [
            f"{total:,.7g} {tables.units[n]} ({_WORD[n]})" for n, total in found.capacity.items()
        ]
        caption += f" Capacity is that of all {len(tables.servers):,} servers: {_and(totals)}."
    if without:
        caption += f" Capacity of {_and(without)} is not known here: amounts, not shares."
    figure, panels = _figure(f"{tables.trace}: load", len(found.requested), caption)
    scale, unit = _clock(found.edges[-1])
    for axes, (name, requested) in zip(panels, found.requested.items()):
        total = found.capacity.get(name)
        shown = requested if total is None else 100 * requested / total
        axes.stairs(shown, found.edges / scale, color=_COLOUR[name], linewidth=1.3, baseline=None)
        of = tables.units[name] if total is None else "% of capacity"
        _dress(axes, f"{unit} since the start of the trace", f"{_WORD[name]} requested, {of}")
        axes.set_xlim(found.edges[0] / scale, found.edges[-1] / scale)
        axes.set_ylim(0, None)
    return figure, caption


def _figure(title: str, panels: int, caption: str, wide: bool = False) -> tuple[Figure, list[Axes]]:
    """Panels side by side between a title and what the picture is made of."""
    width = max(panels * _PANEL, 6.4 if panels == 1 else 0.0) + 2.0 * wide
    lines = textwrap.wrap(caption, int(width * 14.5))
    below = 0.16 * len(lines) + 0.15
    height = _HEIGHT + 0.35 + below
    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, below / height, 1, 1 - (below + 0.35) / height))  # type: ignore[call-arg]  # of the constrained layout that was asked for
    ratios = [2.2, 1] if wide and panels == 2 else [1] * panels
    axes = figure.subplots(1, panels, squeeze=False, width_ratios=ratios)[0]
    figure.text(
        0.012, 1 - 0.25 / height, title, color=INK, fontsize=11.5, weight="bold", parse_math=False
    )
    figure.text(
        0.012,
        0.08 / height,
        "\n".join(lines),
        color=MUTED,
        fontsize=8.2,
        va="bottom",
        parse_math=False,
    )
    return figure, list(axes)


def _steps(axes: Axes, found: Distribution, colour: str, always_log: bool = False) -> None:
    positive = found.values > 0
    values, share = found.values[positive], found.share[positive]
    low = found.zeros
    if always_log or values[-1] > 20 * values[0]:
        axes.set_xscale("log")
        edge = values[0] / 1.3
    else:
        edge = 0.0
    axes.step(
        [edge, *values, values[-1] * 1.05],
        [low, *share, share[-1]],
        where="post",
        color=colour,
        linewidth=1.6,
    )
    if axes.get_xscale() == "linear":
        axes.set_xlim(0, None)
    axes.set_ylim(0, 1.02)


def _dress(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK)
    axes.set_title(y, color=INK, fontsize=9.5, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(color=MUTED, labelcolor=INK, length=3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _clock(end: float) -> tuple[float, str]:
    """Seconds of a unit in which a time reads well, and its name."""
    return next(
        (size, name)
        for size, name in (
            (86400.0, "days"),
            (3600.0, "hours"),
            (60.0, "minutes"),
            (1.0, "seconds"),
        )
        if end >= 2 * size or size == 1
    )


def _requests(tables: Tables) -> str:
    jobs = tables.jobs
    said = f"{len(jobs):,} requests"
    if "job" in jobs.columns:
        said += f" of {jobs['job'].n_unique():,} jobs"
    return said


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

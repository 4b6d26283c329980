"""Pictures of a trace, as PNG and as SVG, and their numbers: arrivals, sizes, lifetimes, load.

A row of ``tables.jobs`` is a request of equal tasks. Requests without times are left out where
times are needed, and requests that are not known where these are. The same trace gives the same
SVG, byte for byte.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gangwise.core.arrays import Floats, Ints
from gangwise.core.files import write_whole
from gangwise.report.plotting import COLOURS, INK, MUTED, dress, image, settled
from gangwise.traces.tables import Tables, device_totals
from gangwise.traces.work import period, work

QUANTITIES = ("cpu", "mem", "gpu")
HOUR, DAY = 3600.0, 86400.0
WIDTHS = (1.0, 10.0, 60.0, 300.0, HOUR, DAY, 7 * DAY)
FEWEST_BINS, MOST_BINS = 48, 10_000
FEWEST_DAYS = 2


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Requests created over time.

    Attributes
    ----------
    width : float
        Seconds of a bin.
    first : float
        Start of the first bin, in seconds since the start of the trace; a multiple of ``width``.
    counts : ndarray of int64, shape [n]
        Requests created in each bin.
    cycle : ndarray of float64, shape [24], or None
        Mean requests in each hour of the day, over whole days, counted from the start of the trace;
        None when there are fewer than two.
    days : int
        Whole days that ``cycle`` is a mean over.
    """

    width: float
    first: float
    counts: Ints
    cycle: Floats | None
    days: int


@dataclass(frozen=True, eq=False)
class Distribution:
    """How often values up to a value occur.

    Attributes
    ----------
    values : ndarray of float64, shape [n]
        Distinct, ascending.
    share : ndarray of float64, shape [n]
        Share of the requests whose value is at most this.
    known, unknown : int
        Requests with a value, and without.
    """

    values: Floats
    share: Floats
    known: int
    unknown: int

    @property
    def zeros(self) -> float:
        """Share of the requests whose value is 0."""
        return float(self.share[0]) if self.known and self.values[0] == 0 else 0.0


@dataclass(frozen=True, eq=False)
class Load:
    """What is requested over time.

    Attributes
    ----------
    edges : ndarray of float64, shape [n + 1]
        Of the bins, in seconds since the start of the trace.
    requested : mapping of str to ndarray of float64, shape [n]
        Mean over each bin of what is held of ``cpu``, ``mem`` and ``gpu``, in their units, while
        jobs run; those of which nothing is requested are absent.
    capacity : mapping of str to float
        Total of all servers; those that are not known are absent.
    """

    edges: Floats
    requested: dict[str, Floats]
    capacity: dict[str, float]


def arrivals(tables: Tables) -> Arrivals | None:
    """Requests created in each hour, or in shorter bins of a short trace; None without times."""
    created = tables.jobs["created"].drop_nulls().to_numpy()
    if not created.size:
        return None
    width = _width(float(np.ptp(created)))
    place = np.floor(created / width).astype(np.int64)
    counts = np.bincount(place - place.min())
    hours = np.floor(created / HOUR).astype(np.int64)
    begin, end = -(-hours.min() // 24), (hours.max() + 1) // 24  # whole days
    days, cycle = int(max(end - begin, 0)), None
    if days >= FEWEST_DAYS:
        whole = hours[(hours >= 24 * begin) & (hours < 24 * end)]
        cycle = np.bincount(whole % 24, minlength=24) / days
    return Arrivals(width, float(place.min() * width), counts, cycle, days)


def sizes(tables: Tables) -> dict[str, Distribution]:
    """What a task requests of each quantity; those of which no task requests any are absent."""
    found = {name: _distribution(tables.jobs[name]) for name in QUANTITIES}
    return {name: d for name, d in found.items() if d.known and d.values[-1] > 0}


def lifetimes(tables: Tables) -> Distribution:
    """Seconds that requests ran; from creation to deletion where the format tells no start."""
    return _distribution(work(tables.jobs)["run"])


def load(tables: Tables, bins: int = 400) -> Load | None:
    """Requests of each quantity over time, exact means over equal bins; None without times."""
    held_for = work(tables.jobs)
    jobs = tables.jobs.filter(held_for["run"].is_not_null())
    held_for = held_for.drop_nulls("run")
    begin = held_for["begin"].to_numpy()
    end = begin + held_for["run"].to_numpy()
    if not len(jobs) or end.max() <= begin.min():
        return None
    edges = np.linspace(begin.min(), end.max(), bins + 1)
    tasks = jobs["tasks"].fill_null(1).to_numpy() if "tasks" in jobs.columns else 1.0
    requested = {}
    for name in QUANTITIES:
        asked = jobs[name].fill_null(0).to_numpy() * tasks
        if asked.any():
            held = _since(edges, begin, asked) - _since(edges, end, asked)
            requested[name] = np.diff(held) / np.diff(edges)
    totals = device_totals(tables)
    return Load(edges, requested, {n: totals[n] for n in requested if totals.get(n, 0) > 0})


def _width(span: float) -> float:
    """An hour, unless that makes too few bins or too many."""
    shorter = [width for width in WIDTHS if width < HOUR and span / HOUR < FEWEST_BINS]
    for width in reversed(shorter):
        if span / width >= FEWEST_BINS:
            return width
    longer = [width for width in WIDTHS if width >= HOUR and span / width <= MOST_BINS]
    return shorter[0] if shorter else longer[0] if longer else span / MOST_BINS


def _since(times: Floats, starts: Floats, asked: Floats) -> Floats:
    """Σ asked · (time − start) over those that started before each time."""
    order = np.argsort(starts, kind="stable")
    starts, asked = starts[order], asked[order]
    before = np.searchsorted(starts, times)
    amount = np.concatenate([[0.0], np.cumsum(asked)])[before]
    moment = np.concatenate([[0.0], np.cumsum(asked * starts)])[before]
    held: Floats = amount * times - moment
    return held


def _distribution(column: pl.Series) -> Distribution:
    known = column.drop_nulls().to_numpy()
    values, counts = np.unique(known, return_counts=True)
    share = np.cumsum(counts) / max(known.size, 1)
    return Distribution(values.astype(np.float64), share, known.size, len(column) - known.size)


_PANEL, _HEIGHT = 4.3, 3.3
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
class Pictures:
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


def draw_trace(tables: Tables, directory: Path | str) -> Pictures:
    """Draw ``arrivals``, ``sizes``, ``lifetimes`` and ``load`` into an existing folder.

    A picture that has nothing to show is left out.
    """
    captions, left_out = {}, {}
    pictures = {"arrivals": _arrivals, "sizes": _sizes, "lifetimes": _lifetimes, "load": _load}
    with settled():
        for stem, picture in pictures.items():
            made = picture(tables)
            if isinstance(made, str):
                left_out[stem] = made
                continue
            figure, captions[stem] = made
            for ending in ("png", "svg"):
                write_whole(Path(directory, f"{stem}.{ending}"), image(figure, ending))
    return Pictures(captions, left_out)


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
    dress(panels[0], f"{unit} since the start of the trace", "", f"requests created per {bin_name}")
    panels[0].set_xlim(starts[0] / scale, starts[-1] / scale)
    panels[0].set_ylim(0, None)
    if found.cycle is not None:
        panels[1].stairs(found.cycle, np.arange(25), fill=True, color=_COLOUR["mem"], linewidth=0)
        dress(panels[1], "hour of each day of the trace", "", "requests created per hour, mean")
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
        dress(axes, f"{_WORD[name]} of a task ({tables.units[name]})", "", "share of requests")
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
        return "of no request it is known how long it ran"
    last = tables.jobs["deleted"].max()
    until_end = int((tables.jobs["deleted"] == last).sum())
    caption = (
        f"Share of {_requests(tables)} that run at most so long, {_span(tables)}. {until_end:,} "
        "end with the last deletion of all and may last longer."
    )
    if found.unknown:
        caption += f" {found.unknown:,} that never ran, or whose times are not known, are left out."
    if found.zeros:
        caption += f" {100 * found.zeros:.2g} % last 0 s and are not on the axis."
    figure, [axes] = _figure(f"{tables.trace}: lifetimes", 1, caption)
    if found.values[-1] > 0:
        _steps(axes, found, _COLOUR["cpu"], always_log=True)
    middle = float(found.values[np.searchsorted(found.share, 0.5)])
    dress(axes, "lifetime in seconds", "", "share of requests")
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
        return "of no request it is known how long it ran"
    if not found.requested:
        return "no request says what it asks for"
    bins = len(found.edges) - 1
    caption = (
        f"What {_requests(tables)} hold {_span(tables)}, as means over {bins} "
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
        dress(axes, f"{unit} since the start of the trace", "", f"{_WORD[name]} requested, {of}")
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


def _span(tables: Tables) -> str:
    """From when to when devices are held."""
    if "started" in tables.jobs.columns:
        return "from start to end, without the time that they waited"
    return "from creation to deletion, waiting included"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

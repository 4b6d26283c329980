"""Pictures of a trace, as PNG and as SVG, and their numbers: arrivals, sizes, lifetimes, load.

A row of ``tables.jobs`` is a request of equal tasks. Requests without times are left out where
times are needed, and requests that are not known where these are. The same trace gives the same
SVG, byte for byte.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.files import write_whole
from gangwise.jobs.metrics import over_bins
from gangwise.logs.tables import Tables, device_totals, work
from gangwise.notation import duration
from gangwise.report.page import phrase, sentence_case
from gangwise.report.plotting import Panel, draw, image, plain_styles, points
from gangwise.study.statistics import enumerated

QUANTITIES = {"cpu": "CPU", "mem": "memory", "gpu": "GPUs"}
HOUR, DAY = 3600.0, 86400.0
WIDTHS = {1.0: "second", 10.0: "10 seconds", 60.0: "minute", 300.0: "5 minutes"}
WIDTHS |= {HOUR: "hour", DAY: "day", 7 * DAY: "week"}
"""Widths of the bins of arrivals, in seconds."""

FEWEST_BINS, MOST_BINS = 48, 10_000
FEWEST_DAYS = 2


class ArrivalCounts(NamedTuple):
    """Requests created over time, and in each hour of a day."""

    width: float  # seconds of a bin
    first: float  # start of the first bin since the start of the trace; a multiple of `width`
    counts: Ints  # [n] requests created in each bin
    cycle: Floats | None  # [24] mean requests in each hour of whole days; None of fewer than two
    days: int  # that `cycle` is a mean over, counted from the start of the trace


class Distribution(NamedTuple):
    """Distribution of a value: the share of the requests whose value is at most it."""

    values: Floats  # [n] distinct, ascending
    share: Floats  # [n]
    known: int  # requests with a value
    unknown: int  # and without

    @property
    def zeros(self) -> float:
        return float(self.share[0]) if self.known and self.values[0] == 0 else 0.0


class Load(NamedTuple):
    """Load over time: what is requested while jobs run, in the units of the trace."""

    edges: Floats  # [n + 1] of the bins, in seconds since the start of the trace
    requested: dict[str, Floats]  # [n] mean of each quantity of which anything is requested
    capacity: dict[str, float]  # of all servers, where it is known


Rows = list[tuple[Any, ...]]
Picture = tuple[Rows, list[Panel], str]
"""Points, panels and caption."""


def arrivals(tables: Tables) -> ArrivalCounts | None:
    """Requests created in each hour, or in shorter bins of a short trace; None without times."""
    created = tables.jobs["created"].drop_nulls().to_numpy()
    if not created.size:
        return None
    width = _width(float(np.ptp(created)))
    place = np.floor(created / width).astype(np.int64)
    counts = np.bincount(place - place.min())
    hours = np.floor(created / HOUR).astype(np.int64)
    # Only whole days: a part of one would tilt the cycle.
    begin, end = -(-hours.min() // 24), (hours.max() + 1) // 24  # whole days
    days, cycle = int(max(end - begin, 0)), None
    if days >= FEWEST_DAYS:
        full = hours[(hours >= 24 * begin) & (hours < 24 * end)]
        cycle = (np.bincount(full % 24, minlength=24) / days).astype(np.float64)
    return ArrivalCounts(width, float(place.min() * width), counts, cycle, days)


def sizes(tables: Tables) -> dict[str, Distribution]:
    """Requests of a task by quantity; those of which no task requests any are absent."""
    spreads = {name: _distribution(tables.jobs[name]) for name in QUANTITIES}
    return {name: d for name, d in spreads.items() if d.known and d.values[-1] > 0}


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
    # A request that gives no number of tasks is of one.
    tasks = jobs["tasks"].fill_null(1).to_numpy() if "tasks" in jobs.columns else 1.0
    requested = {}
    for name in QUANTITIES:
        # What a request does not say counts as nothing.
        wanted = jobs[name].fill_null(0).to_numpy() * tasks
        if wanted.any():
            requested[name] = over_bins(edges, begin, end, wanted)
    totals = device_totals(tables)
    return Load(edges, requested, {n: totals[n] for n in requested if totals.get(n, 0) > 0})


def _width(span: float) -> float:
    """Seconds of a bin: hours and more where these give enough bins, else what is shorter."""
    if span / HOUR < FEWEST_BINS:
        # The widest of them that still gives enough bins.
        shorter = (width for width in reversed(WIDTHS) if width < HOUR)
        return next((width for width in shorter if span / width >= FEWEST_BINS), 1.0)
    longer = (width for width in WIDTHS if width >= HOUR)
    return next((width for width in longer if span / width <= MOST_BINS), span / MOST_BINS)


def _distribution(column: pl.Series) -> Distribution:
    numbers = column.drop_nulls().to_numpy()
    values, counts = np.unique(numbers, return_counts=True)
    share = np.cumsum(counts) / max(numbers.size, 1)
    return Distribution(values.astype(np.float64), share, numbers.size, len(column) - numbers.size)


def draw_trace(tables: Tables, directory: Path | str) -> tuple[dict[str, str], dict[str, str]]:
    """Draw ``arrivals``, ``sizes``, ``lifetimes`` and ``load`` into an existing folder.

    Gives what each picture is made of, and why others have nothing to show and were not drawn.
    """
    captions, left_out = {}, {}
    looks = plain_styles(["requests", *QUANTITIES.values()])
    for stem, (title, picture) in PICTURES.items():
        drawn = picture(tables)
        if isinstance(drawn, str):
            left_out[stem] = drawn
            continue
        rows, panels, captions[stem] = drawn
        heading = f"{tables.trace}: {title}"
        figure = draw(heading, points(rows), panels, looks, caption=captions[stem])
        for ending in ("png", "svg"):
            write_whole(Path(directory, f"{stem}.{ending}"), image(figure, ending))
    return captions, left_out


def _steps(panel: str, line: str, edges: Floats, values: Floats | Ints) -> Rows:
    """Values [n] between edges [n + 1] as the points of steps; the last one is held to its edge."""
    ys = np.append(values, values[-1])
    return [(panel, line, x, y, None, None) for x, y in zip(edges.tolist(), ys.tolist())]


def _arrivals(tables: Tables) -> Picture | str:
    counts = arrivals(tables)
    if counts is None:
        return "no request has a time of creation"
    bin_name = WIDTHS.get(counts.width, duration(counts.width))
    total = f"{counts.counts.sum():,}"
    caption = phrase("arrivals", requests=_requests(tables), known=total, bin=bin_name)
    edges = counts.first + counts.width * np.arange(counts.counts.size + 1.0)
    scale, unit = _clock(edges[-1])
    panel = f"requests created per {bin_name}"
    rows = _steps(panel, "requests", edges / scale, counts.counts)
    panels = [_panel(panel, f"{unit} since the start of the trace")]
    if counts.cycle is None:
        caption += " No daily cycle: fewer than two whole days."
    else:
        caption += f" {phrase('daily cycle', days=counts.days)}"
        panel = "requests created per hour, mean"
        hours = np.linspace(0.0, 24.0, 25)
        rows += _steps(panel, "requests", hours, counts.cycle)
        panels.append(_panel(panel, "hour of each day of the trace", ends=(0.0, 24.0)))
    return rows, panels, caption


def _sizes(tables: Tables) -> Picture | str:
    spreads = sizes(tables)
    if not spreads:
        return "no request says what it asks for"
    caption = phrase("sizes", requests=_requests(tables))
    names = {QUANTITIES[name]: spread for name, spread in spreads.items()}
    if unknown := [f"{d.unknown:,} do not say how much {n}" for n, d in names.items() if d.unknown]:
        caption += f" Left out: {enumerated(unknown)}."
    if none := [f"{100 * d.zeros:.3g} % ask for no {n}" for n, d in names.items() if d.zeros]:
        caption += f" {sentence_case(enumerated(none))}."
    rows, panels = [], []
    for name, spread in spreads.items():
        shown = QUANTITIES[name]
        positive = spread.values[spread.values > 0]
        # On a linear axis the largest would press all others together.
        wide = bool(positive[-1] > 20 * positive[0])
        axis = f"{shown} of a task ({tables.units[name]})"
        panels.append(_panel(shown, axis, "share of requests", wide))
        rows += _distribution_steps(shown, shown, spread, wide)
    return rows, panels, caption


def _distribution_steps(panel: str, line: str, found: Distribution, log: bool) -> Rows:
    """A distribution function as steps; on a logarithmic axis what is 0 is left of it."""
    positive = found.values > 0
    values, share = found.values[positive], found.share[positive]
    # A little to the left of the smallest, where a logarithmic axis has room.
    edges = np.concatenate([[values[0] / 1.3 if log else 0.0], values, [values[-1] * 1.05]])
    return _steps(panel, line, edges, np.concatenate([[found.zeros], share]))


def _lifetimes(tables: Tables) -> Picture | str:
    spread = lifetimes(tables)
    if not spread.known:
        return "of no request it is known how long it ran"
    # Requests that are deleted in the last instant were there when the trace ended.
    end = tables.jobs["deleted"].max()
    until_end = int((tables.jobs["deleted"] == end).sum())
    says = {"requests": _requests(tables), "span": _span(tables), "last": f"{until_end:,}"}
    # The first value that half of all do not exceed: the median.
    middle = float(spread.values[np.searchsorted(spread.share, 0.5)])
    caption = phrase("lifetimes", **says, middle=duration(middle))
    if spread.unknown:
        caption += (
            f" {spread.unknown:,} that never ran, or whose times are not known, are left out."
        )
    if spread.zeros:
        caption += f" {100 * spread.zeros:.2g} % last 0 s and are not on the axis."
    panel = _panel("lifetimes", "lifetime in seconds", "share of requests", True)
    timed = spread.values[-1] > 0
    rows = _distribution_steps(panel.name, "requests", spread, True) if timed else []
    return rows, [panel], caption


def _load(tables: Tables) -> Picture | str:
    drawn = load(tables)
    if drawn is None:
        return "of no request it is known how long it ran"
    if not drawn.requested:
        return "no request says what it asks for"
    width = duration(round(float(np.diff(drawn.edges)[0]), 1))
    says = {"requests": _requests(tables), "span": _span(tables), "bins": len(drawn.edges) - 1}
    caption = phrase("load", **says, width=width)
    amounts = [
        f"{total:,.7g} {tables.units[n]} ({QUANTITIES[n]})" for n, total in drawn.capacity.items()
    ]
    if amounts:
        caption += (
            f" Capacity is that of all {len(tables.servers):,} servers: {enumerated(amounts)}."
        )
    if without := [QUANTITIES[name] for name in drawn.requested if name not in drawn.capacity]:
        caption += f" Capacity of {enumerated(without)} is not known here: amounts, not shares."
    scale, unit = _clock(drawn.edges[-1])
    rows, panels = [], []
    for name, requested in drawn.requested.items():
        total = drawn.capacity.get(name)
        axis = tables.units[name] if total is None else "% of capacity"
        panels.append(_panel(QUANTITIES[name], f"{unit} since the start of the trace", axis))
        shown = requested if total is None else 100 * requested / total
        rows += _steps(QUANTITIES[name], QUANTITIES[name], drawn.edges / scale, shown)
    return rows, panels, caption


PICTURES: dict[str, tuple[str, Callable[[Tables], Picture | str]]] = {
    "arrivals": ("arrivals", _arrivals),
    "sizes": ("request sizes", _sizes),
    "lifetimes": ("lifetimes", _lifetimes),
    "load": ("load requested", _load),
}
"""Each with its title, and what makes it, or says why there is none."""


def _panel(
    name: str, x: str, y: str = "", log: bool = False, ends: tuple[float, float] | None = None
) -> Panel:
    # From the beginning on: the axis fits all that is drawn.
    return Panel(name, x, y, "steps", log, level=0.0, settled=-np.inf, ends=ends)


def _clock(end: float) -> tuple[float, str]:
    units = {"days": DAY, "hours": HOUR, "minutes": 60.0, "seconds": 1.0}
    return next((size, name) for name, size in units.items() if end >= 2 * size or size == 1)


def _requests(tables: Tables) -> str:
    jobs = tables.jobs
    jobs_of = f" of {jobs['job'].n_unique():,} jobs" if "job" in jobs.columns else ""
    return f"{len(jobs):,} requests{jobs_of}"


def _span(tables: Tables) -> str:
    if "started" in tables.jobs.columns:
        return "from start to end, without the time that they waited"
    return "from creation to deletion, waiting included"

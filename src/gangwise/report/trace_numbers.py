"""The numbers behind the pictures of a trace: arrivals, request sizes, lifetimes, load.

A row of ``tables.jobs`` is a request of equal tasks. Requests without times are left out where
times are needed, and requests that are not known where these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.traces.tables import device_totals

if TYPE_CHECKING:
    import polars as pl

    from gangwise.traces.tables import Tables


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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
        Mean over each bin of what is requested of ``cpu``, ``mem`` and ``gpu``, in their units,
        from creation to deletion; those of which nothing is requested are absent.
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
    """Seconds from creation to deletion."""
    return _distribution(tables.jobs["deleted"] - tables.jobs["created"])


def load(tables: Tables, bins: int = 400) -> Load | None:
    """Requests of each quantity over time, exact means over equal bins; None without times."""
    jobs = tables.jobs.drop_nulls(["created", "deleted"])
    created, deleted = jobs["created"].to_numpy(), jobs["deleted"].to_numpy()
    if not len(jobs) or deleted.max() <= created.min():
        return None
    edges = np.linspace(created.min(), deleted.max(), bins + 1)
    tasks = jobs["tasks"].fill_null(1).to_numpy() if "tasks" in jobs.columns else 1.0
    requested = {}
    for name in QUANTITIES:
        asked = jobs[name].fill_null(0).to_numpy() * tasks
        if asked.any():
            held = _since(edges, created, asked) - _since(edges, deleted, asked)
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

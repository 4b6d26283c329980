"""How far two traces are apart, such as a twin and what it is a twin of, quantity by quantity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.logs.tables import Tables
from gangwise.logs.twins import DAY, HOUR

LONG, MANY = 14.0, 10
"""Days that a trace must have before weekdays are compared, and hours before jobs per hour are."""
DIGITS = 9
"""Decimals of numbers that count: loaders multiply and divide to get them."""


class Apart(NamedTuple):
    """Distance of a quantity.

    ``kind`` is KS, the Kolmogorov-Smirnov distance of numbers, or TV, the total variation distance
    of categories; both are from 0 to 1. ``means`` and ``medians`` are those of the first trace
    divided by those of the second; nan for categories, and where the second's is 0.
    """

    kind: str
    value: float
    means: float = float("nan")
    medians: float = float("nan")


@dataclass(frozen=True)
class Distance:
    """Distances by quantity, and the quantities that only one of the traces has."""

    apart: dict[str, Apart]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{'quantity':<20s}{'':4s}{'distance':>9s}{'means':>10s}{'medians':>10s}"]
        for name, (kind, value, means, medians) in self.apart.items():
            ratios = (f"{r:>10.3g}" if np.isfinite(r) else f"{'-':>10s}" for r in (means, medians))
            lines.append(f"{name:<20s}{kind:<4s}{value:>9.3f}{''.join(ratios)}")
        if self.missing:
            lines.append(f"in one trace only: {', '.join(self.missing)}")
        return "\n".join(lines)


def distance(first: Tables, second: Tables, *, skip: float = 0.01) -> Distance:
    """Compare two traces, such as a twin and what it is a twin of.

    Parameters
    ----------
    skip : float
        Arrivals are compared from when this share of the jobs have been created on: traces tend to
        start with a few jobs that were there before.

    Returns
    -------
    Distance
        Of numbers, over the rows of ``jobs``: ``cpu``, ``mem``, ``gpu``, ``tasks``, ``lifetime``,
        ``wait`` (from creation to start) and ``parents`` (names in ``after``); over the jobs:
        ``rows per job``, ``gap`` (time to the next job) and ``jobs per hour``, of at least 10
        hours. Of categories: ``models`` that a row may use, ``hour`` of the day and, where both
        last 14 days, ``weekday`` of creation, and ``machines`` by model and capacities.

    Examples
    --------
    >>> from gangwise.logs.twins import twin
    >>> one, other = (twin("alibaba-gpu-v2023", seed, days=7) for seed in (0, 1))
    >>> distance(one, other).apart["machines"]
    Apart(kind='TV', value=0.0, means=nan, medians=nan)
    """
    one, other = (_numbers(each, skip) | _categories(each, skip) for each in (first, second))
    apart = {name: _apart(one[name], other[name]) for name in one if name in other}
    return Distance(apart, tuple(name for name in one | other if name not in apart))


def kolmogorov_smirnov(first: Floats, second: Floats) -> float:
    """Largest difference of the two empirical distribution functions.

    >>> kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.5
    """
    every = np.concatenate([first, second])
    shares = (
        np.searchsorted(np.sort(values), every, side="right") / len(values)
        for values in (first, second)
    )
    return float(np.abs(np.subtract(*shares)).max())


def total_variation(first: dict[str, float], second: dict[str, float]) -> float:
    """Half the sum of the differences of the shares.

    >>> total_variation({"a": 3, "b": 1}, {"a": 1, "c": 1})
    0.5
    """
    totals = sum(first.values()), sum(second.values())
    return 0.5 * sum(
        abs(first.get(name, 0) / totals[0] - second.get(name, 0) / totals[1])
        for name in sorted(first.keys() | second.keys())  # one order, one sum
    )


Quantity = Floats | dict[str, float]
"""Numbers, or how many there are of each category."""


def _apart(first: Quantity, second: Quantity) -> Apart:
    if isinstance(first, dict):
        assert isinstance(second, dict)  # both of one name
        return Apart("TV", total_variation(first, second))
    one, other = np.asarray(first), np.asarray(second)
    ratios = [
        float(mean / by) if by else float("nan")
        for mean, by in ((np.mean(one), np.mean(other)), (np.median(one), np.median(other)))
    ]
    return Apart("KS", kolmogorov_smirnov(one, other), *ratios)


def _arrivals(tables: Tables, skip: float) -> Floats:
    """Times at which jobs were created, ascending; a job is created with its first row."""
    jobs = tables.jobs.filter(pl.col("created").is_not_null())
    if "job" in jobs.columns:
        jobs = jobs.group_by("job").agg(pl.col("created").min())
    times = np.sort(jobs["created"].to_numpy())
    return times[int(skip * len(times)) :]


def _numbers(tables: Tables, skip: float) -> dict[str, Quantity]:
    jobs = tables.jobs
    if jobs.is_empty():
        return {}
    asked = {
        "cpu": pl.col("cpu"),
        "mem": pl.col("mem"),
        "gpu": pl.col("gpu"),
        "lifetime": pl.col("deleted") - pl.col("created"),
    }
    if "tasks" in jobs.columns:
        asked["tasks"] = pl.col("tasks")
    if "started" in jobs.columns:
        asked["wait"] = pl.col("started") - pl.col("created")
    if "after" in jobs.columns:
        names = pl.col("after").str.count_matches("|", literal=True) + 1
        asked["parents"] = pl.when(pl.col("after") == "").then(0).otherwise(names)
    found: dict[str, Quantity] = {
        name: jobs.select(what.cast(pl.Float64).round(DIGITS).alias("value"))["value"]
        .drop_nulls()
        .to_numpy()
        for name, what in asked.items()
    }
    if "job" in jobs.columns:
        found["rows per job"] = jobs.group_by("job").len()["len"].cast(pl.Float64).to_numpy()
    times = _arrivals(tables, skip)
    if len(times) > 1:
        hours = ((times - times[0]) // HOUR).astype(np.int64)
        found["gap"] = np.diff(times)
        if hours[-1] >= MANY:  # the last hour may not be a whole one
            counts = np.bincount(hours)[:-1]
            found["jobs per hour"] = counts.astype(np.float64)
    return {name: values for name, values in found.items() if len(values)}


def _categories(tables: Tables, skip: float) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    if not tables.jobs.is_empty():
        times = _arrivals(tables, skip)
        found["models"] = _counts(tables.jobs["models"])
        found["hour"] = _counts(pl.Series(times % DAY // HOUR))
        if len(times) and times[-1] - times[0] >= LONG * DAY:
            found["weekday"] = _counts(pl.Series(times // DAY % 7))
    if not tables.servers.is_empty():
        shape = pl.concat_str("model", "cpu", "mem", "gpu", separator=" ")
        found["machines"] = _counts(tables.servers.select(shape).to_series())
    return found


def _counts(names: pl.Series) -> dict[str, float]:
    values, counts = np.unique(names.drop_nulls().to_numpy(), return_counts=True)
    return {str(value): float(count) for value, count in zip(values, counts)}

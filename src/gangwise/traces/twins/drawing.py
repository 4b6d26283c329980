"""Synthetic twins: drawn from a seed, taken for what a folder lacks, and held against the trace.

:func:`twin` draws one; :func:`completed` fills in the servers or jobs that files do not have;
:func:`distance` tells how far two traces are apart, quantity by quantity.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError, TraceError, UnknownName
from gangwise.core.simulation import Streams
from gangwise.traces.io.account import Stage
from gangwise.traces.tables import Tables, name_of
from gangwise.traces.twins.calibration import DAY, HOUR, Calibration, calibration, servers_of
from gangwise.traces.twins.requests import draw_requests

MOST_JOBS = 20_000_000
COLUMNS: tuple[str, ...] = ("row", "name", "job", "cpu", "mem", "gpu", "tasks", "models")
COLUMNS += ("created", "deleted", "started", "after")


def twin(
    name: str,
    seed: int = 0,
    *,
    servers: int | None = None,
    days: float | None = None,
    jobs_per_day: float | None = None,
    **options: Any,
) -> Tables:
    """A synthetic twin of a trace.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    seed : int
        The same seed and arguments give the same tables.
    servers : int, optional
        So many, each kind with its share. None: as many as the twin has by default.
    days : float, optional
        Its length. None: that of the twin by default.
    jobs_per_day : float, optional
        None: the rate of the trace times the share of its servers that there are, so that the load
        stays the same.
    **options
        Settings of one twin, see its page.

    Raises
    ------
    UnknownName
        For a twin or option that does not exist.
    ScenarioError
        For a number that makes no sense.

    Examples
    --------
    >>> tables = twin("alibaba-gpu-v2023", seed=1, servers=100, days=2)
    >>> len(tables.servers), tables.jobs.columns[:6]
    (100, ['row', 'name', 'cpu', 'mem', 'gpu', 'models'])
    >>> tables.jobs.equals(twin("alibaba-gpu-v2023", seed=1, servers=100, days=2).jobs)
    True
    """
    made = calibration(name)
    for option in options:
        if option not in made.options:
            known = ["servers", "days", "jobs_per_day", *made.options]
            raise UnknownName(f"setting of the twin of {name}", option, known)
    servers = made.servers or made.size if servers is None else servers
    days = made.days if days is None else days
    if jobs_per_day is None:
        jobs_per_day = made.jobs_per_day * servers / made.size
    _check(name, seed, servers, days, jobs_per_day)
    rng = Streams.of(seed).workload
    created = made.arrivals.draw(rng, jobs_per_day, days)
    if not len(created):
        raise ScenarioError(
            f"the twin of {name} has no job in {days:g} days at {jobs_per_day:g} "
            "jobs per day: make it longer or the rate higher"
        )
    jobs = _finish(draw_requests(made, rng, created, options), days * DAY, made.whole)
    label = f"twin of {name}, seed {seed}"
    notes = (
        f"a synthetic twin, no real trace: {made.reproduces}; it leaves out {made.leaves_out}",
        _distances(made),
    )
    tables = Tables(
        f"twin-{name}",
        servers_of(made.machines, servers),
        jobs,
        (Stage(label, len(jobs), len(jobs), {}),),
        {},
        notes,
        dict(made.units),
    )
    return replace(tables, digests={label: digest(tables)})


def _check(name: str, seed: int, servers: int, days: float, jobs_per_day: float) -> None:
    numbers = int | float
    for what, value, sense in (
        ("seed", seed, isinstance(seed, int) and seed >= 0),
        ("servers", servers, isinstance(servers, int) and 1 <= servers <= 1_000_000),
        ("days", days, isinstance(days, numbers) and 0 < days <= 3660),
        ("jobs_per_day", jobs_per_day, isinstance(jobs_per_day, numbers) and jobs_per_day > 0),
    ):
        if not sense or value == math.inf:
            raise ScenarioError(f"the twin of {name}: {what} is {value!r}, which is out of range")
    if days * jobs_per_day > MOST_JOBS:
        raise ScenarioError(
            f"the twin of {name} would have about {days * jobs_per_day:.0f} jobs, and at most "
            f"{MOST_JOBS} are drawn: choose fewer days, servers or jobs_per_day"
        )


def _finish(rows: pl.DataFrame, end: float, whole: bool) -> pl.DataFrame:
    """Rows as a loader gives them: jobs that are still there end with the trace."""
    if whole:  # a row may start long after its job, yet before the end
        start = pl.min_horizontal(pl.col("created").floor(), pl.lit(end - 1.0))
        rows = rows.with_columns(created=start.clip(lower_bound=0.0))
    rows = rows.with_columns(
        deleted=pl.min_horizontal(pl.col("created") + pl.col("lifetime"), pl.lit(end))
    ).sort("created", "at", maintain_order=True)
    if "wait" in rows.columns:
        start = pl.col("created") + pl.col("wait")
        rows = rows.with_columns(started=pl.when(start <= end).then(start))
    rows = rows.with_columns(
        row=pl.int_range(1, pl.len() + 1),
        job=pl.format("job-{}", "at"),
        name=pl.col("name") if "name" in rows.columns else pl.format("job-{}", "at"),
    )
    left = () if "after" in rows.columns else ("job",)  # where every row is a job
    return rows.select(name for name in COLUMNS if name in rows.columns and name not in left)


def _distances(made: Calibration) -> str:
    if not made.within:
        return "how far its jobs are from the trace is not known: it is not tested against files"
    found = ", ".join(f"{name} {value:g}" for name, value in made.within.items())
    return (
        "distance to the real trace at most, Kolmogorov-Smirnov for numbers and total variation "
        f"for categories, by test: {found}"
    )


def digest(tables: Tables) -> str:
    """SHA-256 of what is in the tables, so that results of different twins are told apart."""
    found = hashlib.sha256()
    for frame in (tables.servers, tables.jobs):
        for column in frame.iter_columns():
            found.update(column.name.encode())
            values = column.fill_null(np.nan) if column.dtype.is_float() else column
            data = values.to_numpy()
            found.update("\n".join(data).encode() if data.dtype == object else data.tobytes())
    return found.hexdigest()


def completed(
    tables: Tables, *, servers: bool = False, jobs: bool = False, seed: int = 0, **knobs: Any
) -> Tables:
    """Real tables with the servers or the jobs of the twin, where the files have none.

    ``servers`` and ``jobs`` say what to take; ``knobs`` are those of :func:`twin`.

    Raises
    ------
    TraceError
        When the files have what is to be taken from the twin: nothing real is replaced.

    Examples
    --------
    >>> from dataclasses import replace
    >>> real = twin("google-2011", days=0.1)
    >>> without = replace(real, trace="google-2011", servers=real.servers.clear())
    >>> whole = completed(without, servers=True, seed=3)
    >>> len(whole.servers), whole.notes[-1][:35]
    (12583, 'the servers are those of a syntheti')
    """
    for wanted, there, what in ((servers, tables.servers, "servers"), (jobs, tables.jobs, "jobs")):
        if wanted and not there.is_empty():
            raise TraceError(
                f"the files of {tables.trace} have {what} of their own, "
                "and none are taken from its twin"
            )
    if not (servers or jobs):
        return tables
    made = twin(tables.trace, seed, **knobs)
    taken = " and ".join(["servers"] * servers + ["jobs"] * jobs)
    label = f"{taken} of the {made.stages[0].name}"
    own = replace(
        made,
        servers=made.servers if servers else made.servers.clear(),
        jobs=made.jobs if jobs else made.jobs.clear(),
    )
    about = "; ".join(made.notes) if jobs else "the mix of machines is the published one"
    note = f"the {taken} are those of a synthetic twin, not of the files; {about}"
    found = replace(
        tables, digests={**tables.digests, label: digest(own)}, notes=(*tables.notes, note)
    )
    if servers:
        found = replace(found, servers=own.servers)
    if jobs:
        stages = (*tables.stages, Stage(label, len(own.jobs), len(own.jobs), {}))
        found = replace(found, jobs=own.jobs, stages=stages, units=made.units)
    return found


def completed_from(reader: Any, what: str, knobs: dict[str, Any]) -> Tables:
    """Tables of a reader whose folder lacks servers or jobs, with those of the twin.

    ``what`` is ``servers`` or ``jobs``; arguments of the twin, such as ``twin_seed``, are taken out
    of ``knobs``.
    """
    if what not in ("servers", "jobs"):
        raise ScenarioError(f"complete is {what!r}; choose servers or jobs")
    own = _own(knobs, ["twin_seed", *(("days", "jobs_per_day") if what == "jobs" else ())])
    name, seed = name_of(reader), own.pop("seed", 0)
    calibration(name)  # whether there is a twin
    if what == "servers":
        return completed(reader.scan(), servers=True, seed=seed)
    report = reader.fidelity()  # it does not need jobs
    if report.jobs:
        return completed(reader.scan(), jobs=True, seed=seed)
    made = twin(name, seed, days=1.0)
    servers = reader.servers() if hasattr(reader, "servers") else made.servers.clear()
    real = Tables(
        name, servers, made.jobs.clear(), report.stages, report.digests, report.notes, report.units
    )
    return completed(real, jobs=True, servers=servers.is_empty(), seed=seed, **own)


def open_twin(path: str, knobs: dict[str, Any]) -> Tables:
    """The twin that ``twin:NAME`` names; its arguments are taken out of ``knobs``."""
    return twin(path.removeprefix("twin:"), **_own(knobs, arguments(path)))


def arguments(path: str) -> list[str]:
    """Names of the arguments that ``twin:NAME`` takes, where it stands for a path."""
    own = list(inspect.signature(twin).parameters)[2:-1]
    return ["twin_seed", *own, *calibration(path.removeprefix("twin:")).options]


def _own(knobs: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Arguments of a twin, taken out of ``knobs``; the seed is there as ``twin_seed``."""
    return {name.removeprefix("twin_"): knobs.pop(name) for name in names if name in knobs}


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
    >>> from gangwise.traces.twins import twin
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

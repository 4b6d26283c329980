"""Synthetic twins, drawn from a seed."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.simulation import Streams
from gangwise.traces.fidelity import Stage
from gangwise.traces.trace import Tables
from gangwise.traces.twins.calibration import DAY, Calibration, servers_of

if TYPE_CHECKING:
    import polars as pl


NAMES = ("alibaba-gpu-v2020", "alibaba-gpu-v2023", "alibaba-v2018", "google-2011")
MOST_JOBS = 20_000_000
COLUMNS = (
    "row",
    "name",
    "job",
    "cpu",
    "mem",
    "gpu",
    "tasks",
    "models",
    "created",
    "deleted",
    "started",
    "after",
)


def calibration(name: str) -> Calibration:
    """What the twin of a trace is drawn from.

    Raises
    ------
    UnknownName
        For a trace without a twin.
    """
    if name not in NAMES:
        raise UnknownName("twin", name, list(NAMES))
    module = import_module(f"gangwise.traces.twins.{name.replace('-', '_')}")
    found: Calibration = module.CALIBRATION
    return found


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
    _sensible(name, seed, servers, days, jobs_per_day)
    rng = Streams.of(seed).workload
    created = made.arrivals.draw(rng, jobs_per_day, days)
    if not len(created):
        raise ScenarioError(
            f"the twin of {name} has no job in {days:g} days at {jobs_per_day:g} "
            "jobs per day: make it longer or the rate higher"
        )
    jobs = _finish(made.requests(rng, created, **options), days * DAY, made.whole)
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


def _sensible(name: str, seed: int, servers: int, days: float, jobs_per_day: float) -> None:
    for what, value, sense in (
        ("seed", seed, isinstance(seed, int) and seed >= 0),
        ("servers", servers, isinstance(servers, int) and 1 <= servers <= 1_000_000),
        ("days", days, isinstance(days, int | float) and 0 < days <= 3660),
        (
            "jobs_per_day",
            jobs_per_day,
            isinstance(jobs_per_day, int | float) and 0 < jobs_per_day < math.inf,
        ),
    ):
        if not sense:
            raise ScenarioError(f"the twin of {name}: {what} is {value!r}, which makes no sense")
    if days * jobs_per_day > MOST_JOBS:
        raise ScenarioError(
            f"the twin of {name} would have about {days * jobs_per_day:.0f} jobs, and at most "
            f"{MOST_JOBS} are drawn: choose fewer days, servers or jobs_per_day"
        )


def _finish(rows: pl.DataFrame, end: float, whole: bool) -> pl.DataFrame:
    """Rows as a loader gives them: jobs that are still there end with the trace."""
    import polars as pl

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

"""Synthetic twins: :func:`twin` draws one, :func:`completed` fills in what a folder lacks."""

from __future__ import annotations

import hashlib
import inspect
import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.errors import ScenarioError, TraceError, UnknownName
from gangwise.core.simulation import Streams
from gangwise.traces.io.account import Stage
from gangwise.traces.tables import Tables, name_of
from gangwise.traces.twins.calibration import DAY, Calibration, calibration, servers_of
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

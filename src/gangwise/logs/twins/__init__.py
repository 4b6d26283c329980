"""Synthetic twins of public traces, for users who have none of the files.

A twin has the :class:`~gangwise.logs.tables.Tables` that the reader of the trace gives, drawn of
a seed and from a few published or counted numbers: the mix of machines, how much jobs request, how
long they last, when they arrive. Each says what it reproduces and what it leaves out, and how far
it may be from the real files, which tests check where the files are present.

:func:`twin` draws one, :func:`completed` fills in what a folder lacks. What the jobs of a twin
request, a function draws from the tables of its ``.toml`` and the times ``created`` at which jobs
arrive: the rows of ``jobs``, with ``at`` (number of the job, from 0) and ``lifetime`` (seconds from
creation on).
"""

from __future__ import annotations

import hashlib
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, TraceError, UnknownName
from gangwise.core.simulation import Streams
from gangwise.logs.reading import Stage
from gangwise.logs.tables import Tables

__all__ = ["NAMES", "arguments", "calibration", "completed", "open_twin", "twin"]

HOUR, DAY = 3600.0, 86400.0
NAMES = ("alibaba-gpu-v2020", "alibaba-gpu-v2023", "alibaba-v2018", "google-2011")


class Cdf(NamedTuple):
    """A distribution on the numbers from 0 by a few points of its distribution function.

    ``shares[i]`` of the probability is at most ``values[i]``. Between the points the distribution
    function is linear in the logarithm of the value; what ``shares`` leave at either end has the
    first or the last value.
    """

    values: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Cdf:
        """The distribution through these points (value, share)."""
        return cls(*zip(*points))

    def draw(self, rng: np.random.Generator, size: int, *, whole: bool = False) -> Floats:
        """Draw, shape [size]; ``whole`` numbers keep their shares at the points exactly.

        >>> few = Cdf((0, 1, 8), (0.25, 0.5, 1)).draw(np.random.default_rng(0), 10_000, whole=True)
        >>> [float((few <= bound).mean().round(1)) for bound in (0, 1, 2, 4, 8)]
        [0.3, 0.5, 0.7, 0.8, 1.0]
        """
        u, values = rng.random(size), np.array(self.values, dtype=np.float64)
        # Below the smallest value the logarithm needs some number; half of
        # it, or the half to round up.
        least = 0.5 if whole else values[values > 0].min(initial=1.0) / 2
        drawn = np.exp(np.interp(u, self.shares, np.log(np.maximum(values, least))))
        if whole:
            # Rounded up after drawing: the share at each point is kept exactly.
            drawn = np.ceil(drawn - 1e-9)
        return np.where(u <= self.shares[0], values[0], drawn)


class Kind(NamedTuple):
    """A number of equal machines, whose GPUs are all of one model."""

    number: int
    model: str
    cpu: float
    mem: float
    gpu: float = 0.0


class ArrivalProcess(NamedTuple):
    """Arrivals of jobs: gaps drawn one by one, stretched by the hour, the weekday and the day.

    ``gaps`` are in any unit, since only their ratios count; None for exponential ones, a Poisson
    process. ``hours`` are the relative rates of the 24 hours of a day,
    the first at time 0, and ``weekdays`` of seven days; empty for equal ones. ``spread`` is the
    standard deviation of the logarithm of a factor that each day draws.
    """

    gaps: Cdf | None = None
    hours: Sequence[float] = ()
    weekdays: Sequence[float] = ()
    spread: float = 0.0

    def draw(self, rng: np.random.Generator, per_day: float, days: float) -> Floats:
        """Times in seconds, ascending, from 0 to ``days``.

        >>> steady = ArrivalProcess(Cdf((1.0,), (1.0,))).draw(np.random.default_rng(0), 4, 2.1)
        >>> steady / 3600
        array([ 6., 12., 18., 24., 30., 36., 42., 48.])
        """
        # Hours are the finest grain of the rates.
        at = np.arange(int(np.ceil(days * 24)))
        rate = _relative(self.hours, at) * _relative(self.weekdays, at // 24)
        factor = np.exp(self.spread * rng.standard_normal(int(np.ceil(days))))
        # A log-normal factor of mean 1: without the division spread would add jobs.
        rate *= (factor / np.exp(self.spread**2 / 2))[at // 24] * per_day / 24
        # A process of rate 1 is drawn, and its times are mapped to those at which so many jobs are
        # expected to have come.
        edges = np.append(at.astype(np.float64), days * 24) * HOUR
        passed = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges) / HOUR)])
        # The mean of gaps is drawn with a seed of its own, so that it does
        # not depend on the user's.
        mean = self.gaps.draw(np.random.default_rng(0), 100_000).mean() if self.gaps else 1.0
        time = np.zeros(0)
        # In chunks, since how many are needed is not known before.
        while not len(time) or time[-1] < passed[-1]:
            size = int(passed[-1] / 4) + 64
            gaps = self.gaps.draw(rng, size) / mean if self.gaps else rng.exponential(1.0, size)
            time = np.concatenate([time, np.cumsum(gaps) + (time[-1] if len(time) else 0.0)])
        # Interpolated in each hour, where the rate is constant.
        arrived: Floats = np.interp(time[time < passed[-1]], passed, edges)
        return arrived


@dataclass(frozen=True)
class TwinParameters:
    """The numbers that the twin of a trace is drawn from, and what it is good for."""

    name: str  # registered name of the trace
    units: Mapping[str, str]  # units of ``cpu``, ``mem`` and ``gpu``
    machines: tuple[Kind, ...]  # all of them, as published
    arrivals: ArrivalProcess
    jobs_per_day: float  # with all of the machines
    tables: Mapping[str, Any]  # numbers of its requests, see :mod:`gangwise.logs.twins`
    reproduces: str
    leaves_out: str
    days: float  # length by default
    servers: int | None = None  # number by default; None for all of the machines
    whole: bool = True  # times are whole seconds
    # Settings of its own: the name of each, and what it is.
    options: Mapping[str, str] = field(default_factory=dict)
    # The distance to the real trace that tests allow, by quantity; empty when there is nothing to
    # test against.
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(kind.number for kind in self.machines)


@cache
def calibration(name: str) -> TwinParameters:
    """Parameters of the twin of a trace.

    Raises UnknownName for a trace without a twin.
    """
    if name not in NAMES:
        raise UnknownName("twin", name, list(NAMES))
    numbers = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    machines = tuple(Kind(*kind) for kind in numbers.pop("machines"))
    arrivals = numbers.pop("arrivals", {})
    if "gaps" in arrivals:
        arrivals["gaps"] = Cdf.of(arrivals["gaps"])
    return TwinParameters(name, machines=machines, arrivals=ArrivalProcess(**arrivals), **numbers)


def servers_of(machines: Sequence[Kind], servers: int) -> pl.DataFrame:
    """Servers, each kind with its share of them, to the nearest whole number.

    >>> servers_of([Kind(3, "T4", 96, 512, 2), Kind(1, "", 32, 64)], 8)["model"].to_list()
    ['T4', 'T4', 'T4', 'T4', 'T4', 'T4', '', '']
    """
    # Largest remainders: whole numbers of each kind, as near to its share as possible.
    exact = np.array([kind.number for kind in machines], dtype=np.float64)
    exact *= servers / exact.sum()
    counts = np.floor(exact + 1e-9).astype(np.int64)
    short = servers - int(counts.sum())
    # Stable: ties go to the kind that is listed first.
    counts[np.argsort(-(exact - counts), kind="stable")[:short]] += 1
    row = np.arange(1, servers + 1)
    data: dict[str, Any] = {"row": row, "name": [f"server-{i:05d}" for i in row]}
    data["model"] = np.repeat([kind.model for kind in machines], counts)
    for name in ("cpu", "mem", "gpu"):
        data[name] = np.repeat([float(getattr(kind, name)) for kind in machines], counts)
    return pl.DataFrame(data)


def choose(rng: np.random.Generator, weights: Sequence[float] | Floats, size: int) -> Ints:
    """Indices, each with a probability in proportion to its weight, shape [size]."""
    p = np.asarray(weights, dtype=np.float64)
    drawn: Ints = rng.choice(len(p), size, p=p / p.sum())
    return drawn


def draw_rows(rng: np.random.Generator, rows: Sequence[Sequence[float]], size: int) -> Floats:
    """Rows drawn by the weight in their last column, without it; shape [size, columns - 1]."""
    table = np.array(rows, dtype=np.float64)
    drawn: Floats = table[choose(rng, table[:, -1], size), :-1]
    return drawn


def _relative(rates: Sequence[float], at: Ints) -> Floats:
    if not rates:
        return np.ones(len(at))
    return np.asarray(rates, dtype=np.float64)[at % len(rates)] / float(np.mean(rates))


Z90 = 1.2816  # the 90 % point of the standard normal distribution


def gpu_v2020(made: TwinParameters, rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """Tasks: gangs and single instances, each on one GPU model, as with ``models = "assigned"``."""
    t, n = made.tables, len(created)
    gang = np.ceil(np.exp(rng.normal(t["gang"][0], t["gang"][1], n)))
    kinds = [kind for kind in made.machines if kind.gpu]
    gpu = draw_rows(rng, t["gpus"], n)[:, 0]
    # A model is taken in proportion to its GPUs that are allocated, see the table.
    weight = [
        kind.number * kind.gpu * t["allocated"]["strong" if kind.model in t["strong"] else "weak"]
        for kind in kinds
    ]
    room = np.array([kind.gpu for kind in kinds])
    on = choose(rng, weight, n)
    large = [w * (kind.gpu >= 8) for w, kind in zip(weight, kinds)]
    # A request that is larger than a machine of the model goes to one with 8 GPUs.
    on = np.where(gpu > room[on], choose(rng, large, n), on)  # to where it fits
    model = np.array([kind.model for kind in kinds])[on]
    strong = np.isin(model, t["strong"])
    # The wait is log-normal, through its median and its 90 % point.
    median, most = (np.where(strong, *pair) for pair in zip(t["wait"]["strong"], t["wait"]["weak"]))
    wait = median * np.exp(np.log(most / median) / Z90 * rng.standard_normal(n))
    wait = np.minimum(wait, t["longest_wait"]).round()
    cores = np.array([kind.cpu for kind in kinds])[on]
    # Of the mean m of a log-normal distribution, the mean of the logarithm is ln m - σ² / 2.
    log_mean, sigma = np.log(t["mean_seconds"]) - t["sigma"] ** 2 / 2, t["sigma"]
    single = t["single_share"] * t["instances"] / t["tasks"]  # share of the tasks
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": wait + np.ceil(np.exp(rng.normal(log_mean, sigma, n))),
            "cpu": np.minimum(draw_rows(rng, t["cores"], n)[:, 0], cores),
            "mem": draw_rows(rng, t["gib"], n)[:, 0],
            "gpu": gpu,
            "tasks": np.where(rng.random(n) < single, 1.0, np.maximum(gang, 2.0)),
            "models": model,
        }
    )


def gpu_v2023(
    made: TwinParameters, rng: np.random.Generator, created: Floats, *, constrained: float = 0.0
) -> pl.DataFrame:
    """Pods: common requests, and others by class; a share with GPUs is ``constrained``."""
    if not (isinstance(constrained, int | float) and 0 <= constrained <= 1):
        raise ScenarioError(f"constrained is {constrained!r}; it must be a share, from 0 to 1")
    t, n = made.tables, len(created)
    common, rare = _common(rng, t, n)
    gpu = np.where(rare, draw_rows(rng, t["gpus"], n)[:, 0], common[:, 2])
    group = np.select([gpu == 0, gpu < 1, gpu == 1], [0, 1, 2], 3)
    classes = [t["classes"][name] for name in ("none", "part", "one", "several")]

    def by_class(quantity: str, whole: bool = False) -> Floats:
        drawn = [Cdf.of(table[quantity]).draw(rng, n, whole=whole) for table in classes]
        return np.asarray(np.choose(group, drawn))

    cores = by_class("cores") * np.maximum(gpu, 1)
    cpu = np.where(rare, cores.round(1), common[:, 0])
    gib = by_class("gib")
    model = np.array([kind.model for kind in made.machines])
    on = choose(rng, [kind.number * kind.gpu for kind in made.machines], n)
    bound = (gpu > 0) & (rng.random(n) < constrained)
    # no kind of machine of the drawn model may hold the pod: it is then free to use any
    most = {m: max(k.gpu for k in made.machines if k.model == m) for m in model}
    bound &= gpu <= np.array([most[m] for m in model])[on]
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "lifetime": by_class("seconds", whole=True),
            "cpu": cpu,
            "mem": np.where(rare, (cpu * gib).round(2), common[:, 1]),
            "gpu": gpu,
            "models": np.where(bound, model[on], ""),
        }
    )


def google_2011(made: TwinParameters, rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """Jobs, each of which makes one request of equal tasks."""
    t, n = made.tables, len(created)
    table = {name: Cdf.of(points) for name, points in t["tables"].items()}
    common, rare = _common(rng, t, n)
    gang = rng.random(n) < np.where(rare, *reversed(t["several"]))
    wait = table["wait"].draw(rng, n)
    single, several = (table[f"seconds_{size}"].draw(rng, n) for size in ("one", "several"))
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": np.maximum(np.where(gang, several, single), wait),
            "cpu": np.where(rare, table["cpu"].draw(rng, n), common[:, 0]),
            "mem": np.where(rare, table["mem"].draw(rng, n), common[:, 1]),
            "gpu": np.zeros(n),
            "tasks": np.where(gang, table["tasks"].draw(rng, n, whole=True), 1.0),
            "models": pl.repeat("", n, eager=True),
        }
    )


def _common(rng: np.random.Generator, t: Mapping[str, Any], n: int) -> tuple[Floats, Bools]:
    """A common request for each job, shape [n, 3], and whether the job makes another instead."""
    rows = draw_rows(rng, t["common"], n)
    return rows, rng.random(n) < t["others"] / (t["others"] + sum(row[-1] for row in t["common"]))


def v2018(
    made: TwinParameters, rng: np.random.Generator, created: Floats, *, sizes: str = "published"
) -> pl.DataFrame:
    """Tasks of jobs, some of them after others; rows of a job are numbered from 0."""
    t = made.tables
    if sizes not in t["sizes"]:
        raise ScenarioError(f"sizes is {sizes!r}; choose among {', '.join(t['sizes'])}")
    rows = Cdf.of(t["sizes"][sizes]).draw(rng, len(created), whole=True).astype(np.int64)
    at = np.repeat(np.arange(len(created)), rows)
    number = np.arange(len(at)) - np.repeat(np.cumsum(rows) - rows, rows)
    share = 1.0 if sizes == "sample" else t["with_order"] / t["with_several"]
    ordered = rng.random(len(created)) < share
    small = rows[at] <= t["small"]
    drawn = [_rows_of_v2018(rng, t["rows"][size], len(at)) for size in ("small", "large")]
    column = {name: np.where(small, drawn[0][name], drawn[1][name]) for name in drawn[0]}
    parents = np.minimum(column.pop("parents").astype(np.int64), number)
    # The second row of a job with an order always waits for the first, else there would be none.
    parents = np.where(number == 1, 1, parents) * ordered[at]
    offset = np.where(number == 0, 0.0, column.pop("offset"))
    chained = (rng.random(len(at)) < t["chain"]) & (rows[at] <= t["most_chained"])
    names, parent_names = _precedence(rng, number, parents, chained)
    return pl.DataFrame(
        {
            "at": at,
            "created": created[at] + offset,
            **column,
            "wait": np.zeros(len(at)),
            "gpu": np.zeros(len(at)),
            "models": pl.repeat("", len(at), eager=True),
            "name": names,
            "after": parent_names,
        }
    )


def _rows_of_v2018(rng: np.random.Generator, t: Mapping[str, Any], n: int) -> dict[str, Floats]:
    def draw(name: str) -> Floats:
        return Cdf.of(t[name]).draw(rng, n, whole=True)

    tasks, single, gang = draw("tasks"), draw("one"), draw("many")
    requests = draw_rows(rng, t["common"], n)
    return {
        "cpu": requests[:, 0],
        "mem": requests[:, 1],
        "tasks": tasks,
        "lifetime": np.where(tasks == 1, single, gang),
        "parents": draw("parents"),
        "offset": draw("offset"),
    }


def _precedence(
    rng: np.random.Generator, number: Ints, parents: Ints, chained: Bools
) -> tuple[pl.Series, pl.Series]:
    """Names with the numbers of the parents in them, as in the trace, and the parents' names.

    The parents of a row are drawn among those before it, each once; of chained rows the first is
    the row just before it.
    """
    # Each edge: the child, and a parent drawn among the rows before it in its job.
    child = np.repeat(np.arange(len(number)), parents)
    back = np.floor(rng.random(len(child)) * number[child]).astype(np.int64)
    leading = np.diff(child, prepend=-1) > 0
    parent = child - 1 - np.where(leading & chained[child], 0, back)
    edges = pl.DataFrame({"child": child, "parent": parent}).unique().sort("child", "parent")
    own = pl.Series("number", number + 1).cast(pl.String)
    numbers = edges.with_columns(of=own.gather(edges["parent"]))
    joined = numbers.group_by("child", maintain_order=True).agg(pl.col("of").str.join("_"))
    every = pl.DataFrame({"child": np.arange(len(number)), "own": own})
    # Names as the trace writes them: a letter, the own number, those of the parents.
    letters = every.join(joined, on="child", how="left", maintain_order="left").select(
        name=pl.when(pl.col("of").is_null())
        .then(pl.format("M{}", "own"))
        .otherwise(pl.format("R{}_{}", "own", "of"))
    )["name"]
    named = edges.with_columns(name=letters.gather(edges["parent"]))
    joined_to = named.group_by("child", maintain_order=True).agg(pl.col("name").str.join("|"))
    complete = every.join(joined_to, on="child", how="left", maintain_order="left")
    return letters, complete["name"].fill_null("")


DRAWN: Mapping[str, Callable[..., pl.DataFrame]] = {
    "alibaba-gpu-v2020": gpu_v2020,
    "alibaba-gpu-v2023": gpu_v2023,
    "alibaba-v2018": v2018,
    "google-2011": google_2011,
}


MAX_JOBS = 20_000_000
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
    """A synthetic twin of a trace; the same seed and arguments give the same tables.

    ``name`` is one of :data:`NAMES`. ``servers`` are so many, each kind with its share, and
    ``days`` the length; by default those of the twin. ``jobs_per_day`` is by default the rate of
    the trace times the share of its servers that there are, so that the load stays the same.
    ``options`` are settings of one twin, see its page. Raises UnknownName for a twin or option that
    does not exist, ScenarioError for a number that makes no sense.

    >>> tables = twin("alibaba-gpu-v2023", seed=1, servers=100, days=2)
    >>> len(tables.servers), tables.jobs.columns[:6]
    (100, ['row', 'name', 'cpu', 'mem', 'gpu', 'models'])
    >>> tables.jobs.equals(twin("alibaba-gpu-v2023", seed=1, servers=100, days=2).jobs)
    True
    """
    drawn = calibration(name)
    for option in options:
        if option not in drawn.options:
            accepted = ["servers", "days", "jobs_per_day", *drawn.options]
            raise UnknownName(f"setting of the twin of {name}", option, accepted)
    servers = drawn.servers or drawn.size if servers is None else servers
    days = drawn.days if days is None else days
    if jobs_per_day is None:
        jobs_per_day = drawn.jobs_per_day * servers / drawn.size
    _check(name, seed, servers, days, jobs_per_day)
    # The stream of workloads: the same seed gives the same jobs whatever else is drawn.
    rng = Streams.of(seed).workload
    created = drawn.arrivals.draw(rng, jobs_per_day, days)
    if not len(created):
        raise ScenarioError(
            f"the twin of {name} has no job in {days:g} days at {jobs_per_day:g} "
            "jobs per day: make it longer or the rate higher"
        )
    jobs = _finish(DRAWN[drawn.name](drawn, rng, created, **options), days * DAY, drawn.whole)
    label = f"twin of {name}, seed {seed}"
    distances = "how far its jobs are from the trace is not known: it is not tested against files"
    if drawn.within:
        distances = (
            "distance to the real trace at most, Kolmogorov-Smirnov for numbers and total "
            "variation for categories, by test: "
        ) + ", ".join(f"{quantity} {value:g}" for quantity, value in drawn.within.items())
    notes = (
        f"a synthetic twin, no real trace: {drawn.reproduces}; it leaves out {drawn.leaves_out}",
        distances,
    )
    stage, machines = (Stage(label, len(jobs), len(jobs), {}), servers_of(drawn.machines, servers))
    tables = Tables(f"twin-{name}", machines, jobs, (stage,), {}, notes, dict(drawn.units))
    return replace(tables, digests={label: digest(tables)})


def _check(name: str, seed: int, servers: int, days: float, jobs_per_day: float) -> None:
    numbers = int | float
    for about, value, sense in (
        ("seed", seed, isinstance(seed, int) and seed >= 0),
        ("servers", servers, isinstance(servers, int) and 1 <= servers <= 1_000_000),
        ("days", days, isinstance(days, numbers) and 0 < days <= 3660),
        ("jobs_per_day", jobs_per_day, isinstance(jobs_per_day, numbers) and jobs_per_day > 0),
    ):
        if not sense or value == math.inf:
            raise ScenarioError(f"the twin of {name}: {about} is {value!r}, which is out of range")
    # Bounded before anything is drawn, since memory goes with the number of jobs.
    if days * jobs_per_day > MAX_JOBS:
        raise ScenarioError(
            f"the twin of {name} would have about {days * jobs_per_day:.0f} jobs, and at most "
            f"{MAX_JOBS} are drawn: choose fewer days, servers or jobs_per_day"
        )


def _finish(rows: pl.DataFrame, end: float, whole: bool) -> pl.DataFrame:
    """Rows as a reader gives them: jobs that have not ended end with the trace."""
    if whole:  # a row may start long after its job, yet before the end
        start = pl.min_horizontal(pl.col("created").floor(), pl.lit(end - 1.0))
        rows = rows.with_columns(created=start.clip(lower_bound=0.0))
    rows = rows.with_columns(
        deleted=pl.min_horizontal(pl.col("created") + pl.col("lifetime"), pl.lit(end))
    ).sort("created", "at", maintain_order=True)
    if "wait" in rows.columns:
        start = pl.col("created") + pl.col("wait")
        # A start behind the end of the trace is not in it.
        rows = rows.with_columns(started=pl.when(start <= end).then(start))
    rows = rows.with_columns(
        row=pl.int_range(1, pl.len() + 1),
        job=pl.format("job-{}", "at"),
        name=pl.col("name") if "name" in rows.columns else pl.format("job-{}", "at"),
    )
    absent = () if "after" in rows.columns else ("job",)  # where every row is a job
    return rows.select(name for name in COLUMNS if name in rows.columns and name not in absent)


def digest(tables: Tables) -> str:
    """SHA-256 of what is in the tables, so that results of different twins are told apart."""
    sha = hashlib.sha256()
    for frame in (tables.servers, tables.jobs):
        # Column by column, with names: tables that differ in any are told apart.
        for column in frame.iter_columns():
            sha.update(column.name.encode())
            values = column.fill_null(np.nan) if column.dtype.is_float() else column
            # NaN has one pattern of bits here, null has none.
            data = values.to_numpy()
            sha.update("\n".join(data).encode() if data.dtype == object else data.tobytes())
    return sha.hexdigest()


def completed(tables: Tables, what: str, knobs: dict[str, Any] | None = None) -> Tables:
    """Real tables with the ``servers`` or ``jobs`` of the twin, where the files have none.

    Jobs come with the twin's servers where the files have none of these either. Arguments of the
    twin, such as ``twin_seed``, are taken out of ``knobs``.

    Raises ScenarioError for another ``what``; TraceError when the files have what is to be taken
    from the twin: nothing real is replaced.

    >>> from dataclasses import replace
    >>> real = twin("google-2011", days=0.1)
    >>> without = replace(real, trace="google-2011", servers=real.servers.clear())
    >>> whole = completed(without, "servers", {"twin_seed": 3})
    >>> len(whole.servers), whole.notes[-1][:35]
    (12583, 'the servers are those of a syntheti')
    """
    if what not in ("servers", "jobs"):
        raise ScenarioError(f"complete is {what!r}; choose servers or jobs")
    if not (tables.servers if what == "servers" else tables.jobs).is_empty():
        raise TraceError(
            f"the files of {tables.trace} have {what} of their own, "
            "and none are taken from its twin"
        )
    jobs, servers = what == "jobs", what == "servers" or tables.servers.is_empty()
    own = _own(knobs or {}, ["twin_seed", *("days", "jobs_per_day") * jobs])
    drawn = twin(tables.trace, **own)
    parts = " and ".join(["servers"] * servers + ["jobs"] * jobs)
    label = f"{parts} of the {drawn.stages[0].name}"
    about = "; ".join(drawn.notes) if jobs else "the mix of machines is the published one"
    note = f"the {parts} are those of a synthetic twin, not of the files; {about}"
    if not servers:
        drawn = replace(drawn, servers=drawn.servers.clear())
    if not jobs:
        drawn = replace(drawn, jobs=drawn.jobs.clear())
    digests = {**tables.digests, label: digest(drawn)}
    filled = replace(tables, digests=digests, notes=(*tables.notes, note))
    if servers:
        filled = replace(filled, servers=drawn.servers)
    if jobs:
        stages = (*tables.stages, Stage(label, len(drawn.jobs), len(drawn.jobs), {}))
        # Units are the twin's, for its jobs are counted in them.
        filled = replace(filled, jobs=drawn.jobs, stages=stages, units=drawn.units, no_jobs="")
    return filled


def open_twin(path: str, knobs: dict[str, Any]) -> Tables:
    """The twin that ``twin:NAME`` names; its arguments are taken out of ``knobs``."""
    return twin(path.removeprefix("twin:"), **_own(knobs, arguments(path)))


def arguments(path: str) -> list[str]:
    """Names of the arguments that ``twin:NAME`` takes, where it stands for a path."""
    # The name and the seed come first; the options of each twin come last.
    own = list(inspect.signature(twin).parameters)[2:-1]
    return ["twin_seed", *own, *calibration(path.removeprefix("twin:")).options]


def _own(knobs: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Arguments of a twin, taken out of ``knobs``; the seed is there as ``twin_seed``."""
    return {name.removeprefix("twin_"): knobs.pop(name) for name in names if name in knobs}

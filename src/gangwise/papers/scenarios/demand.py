"""From the tables of a trace to what its jobs ask of which servers, slot by slot.

Steps, in order; each is a setting of :class:`Steps`, and what it leaves out or changes is in the
fidelity report:

1. servers: all, or a proportional sample, or so many of a stated shape;
2. requests: rows whose time or request is not known are left out; a row that asks for several equal
   tasks counts as one job, or as its tasks;
3. window: jobs before the first ``skip`` of them are left out; slots start on whole multiples of
   ``slot`` since the start of the trace;
4. fit: jobs that no server can hold whole, on a GPU model they may use, are left out;
5. job types: jobs are grouped as below;
6. channels: a job type fits on every server that can hold one of its jobs whole;
7. arrivals: creations per job type and slot, as an indicator or capped, thinned by ``keep``.

A job lasts one slot in both families that are built of this; its run time enters the implied load
of the report only. A slot is near the median run time, so that what a job is given is near what it
had. Jobs that never started are left out: they held nothing.

*Job types* out of many different requests:

- Jobs that request exactly the same are one *request*; requests are ranked by how many jobs make
  them (ties: the smaller one first), so the order of the rows never matters.
- Requests fall into classes that must not mix: with GPUs or without, and which GPU models may be
  used. The most frequent request of each class becomes a job type (largest classes first), and then
  the most frequent of all the others, until there are as many job types as asked for.
- Every other request joins the nearest job type of its class. Distance is Euclidean in
  ln(request / largest server + 0.01), over cores, memory and GPUs: ratios matter, and below a
  hundredth of the largest server they cease to.

A job type requests what the request it was founded by does, so it is a request that occurs, and it
fits where those jobs fit. Jobs of a class that got no job type have none.

*Units*: the reward of OGASched is not scale-free: utilities are concave in devices and overhead is
linear, so memory in GiB, whose numbers are large, outweighs GPUs, whose numbers are small. Shares
make device types comparable: the largest server has ``scale`` of cores and of memory, and the
server with the most GPUs has ``scale`` of GPUs. All GPU models share one unit, so a GPU is a GPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import AfterValidator, ConfigDict, Field, field_validator

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.settings import Count, StrictSettings
from gangwise.core.terminal import phrases
from gangwise.core.workload import Cluster
from gangwise.logs import tables as trace_tables
from gangwise.logs.reading import Stage, leave_out, reasons
from gangwise.logs.twins import NAMES as TWINS
from gangwise.notation import duration, seconds

phrase = phrases("gangwise.papers.scenarios")

Duration = Annotated[str | float, AfterValidator(lambda value: seconds(value) and value)]
Skip = Annotated[float, Field(ge=0, lt=1)]


class Steps(StrictSettings):
    """The steps that every family with job types takes, see :mod:`.demand`."""

    model_config = ConfigDict(allow_inf_nan=False)

    job_types: Count = 10
    servers: Count | None = None
    machines: Count | None = None
    shape: tuple[float, float, float] | None = None
    model: str = ""
    tasks: Literal["each", "whole", "one"] | None = None
    slot: Duration | None = None
    skip: Skip = 0.0
    keep: float = Field(1.0, ge=0, le=1)
    repeat: bool = True
    contention: float = Field(1.0, gt=0)

    @field_validator("shape")
    @classmethod
    def _positive(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not (min(value) >= 0 and 0 < max(value) < 1e12):
            raise ValueError("write (cpu, mem, gpu), none negative and at least one positive")
        return value


FLOOR = 0.01
QUANTITIES = ("cpu", "mem", "gpu")


@dataclass(frozen=True, eq=False)
class Grouping:
    """Job types, and which of them stands for each job."""

    # Cores, GiB and GPUs of each job type, the most frequently requested first, shape [L, 3].
    requests: Floats
    models: tuple[str, ...]  # GPU models each may use, joined by ``|``; empty for any
    job_type: Ints  # job type of each job; -1 where its class has none, shape [N]
    # How far a job is from its job type: the largest ratio between what the two request of
    # anything, each plus 0.01 of the largest server; 1 when equal, nan without a job type, shape
    # [N].
    factor: Floats

    @property
    def names(self) -> tuple[str, ...]:
        names: list[str] = []
        for (cpu, mem, gpu), models in zip(self.requests, self.models):
            name = f"{cpu:.6g}cpu-{mem:.6g}mem" + (f"-{gpu:.6g}gpu" if gpu else "")
            name += f"-{models}" if models else ""
            alike = sum(earlier == name or earlier.startswith(f"{name}~") for earlier in names)
            # Requests that print alike in six digits still need names of their own.
            names.append(f"{name}~{alike + 1}" if alike else name)
        return tuple(names)


def group_jobs(
    requests: Floats,
    models: Sequence[str],
    largest: Floats,
    job_types: int,
    weight: Ints | None = None,
) -> Grouping:
    """Group N jobs into at most ``job_types`` job types, as the module says.

    ``requests`` are cores, GiB and GPUs [N, 3]; ``models`` the GPU models each may use, sorted and
    joined by ``|``, empty for any; ``largest`` the most of each that a server has [3]; ``weight``
    how many jobs each stands for [N].

    >>> requests = np.array([[4.0, 8, 0], [4, 8, 0], [5, 8, 0], [4, 8, 1]])
    >>> grouping = group_jobs(requests, [""] * 4, np.array([64.0, 256, 8]), job_types=2)
    >>> grouping.names, grouping.job_type
    (('4cpu-8mem', '4cpu-8mem-1gpu'), array([0, 0, 0, 1]))
    """
    # Requests with GPUs and without, and for other GPU models, never share a job type.
    kinds = sorted(set(zip(models, (requests[:, 2] > 0).tolist())))
    position = {kind: i for i, kind in enumerate(kinds)}
    code = [position[kind] for kind in zip(models, (requests[:, 2] > 0).tolist())]
    # Exactly equal requests are one row from here on: traces have thousands of jobs of each.
    distinct, request_of = np.unique(np.column_stack([requests, code]), axis=0, return_inverse=True)
    request_of = request_of.reshape(-1)
    count = np.bincount(request_of, weights=weight)
    belongs = distinct[:, 3].astype(np.int64)  # class of each distinct request
    # The most frequent first; distinct requests are sorted, so that ties do not depend on rows.
    rank = np.lexsort((np.arange(len(distinct)), -count))
    size = np.bincount(belongs, weights=count)
    # A founder for each class, as far as there are job types, then the most frequent others.
    founders: list[int] = []
    for kind in np.lexsort((np.arange(size.size), -size))[:job_types]:
        founders.append(int(rank[belongs[rank] == kind][0]))
    founders += [int(d) for d in rank if d not in founders][: job_types - len(founders)]
    founders.sort(key=lambda d: (-count[d], d))

    # Ratios count, and below a hundredth of the largest server they cease to.
    share = distinct[:, :3] / np.where(largest > 0, largest, 1.0)
    place = np.log(share + FLOOR)
    apart = place[:, None, :] - place[None, founders, :]  # [distinct, L, 3]
    distance = np.round(np.sqrt((apart**2).sum(axis=2)), 9)  # the same ties on every machine
    distance[belongs[:, None] != belongs[None, founders]] = np.inf
    nearest = distance.argmin(axis=1)
    own = np.arange(len(distinct))
    factor = np.exp(np.abs(apart[own, nearest]).max(axis=1))
    homeless = np.isinf(distance[own, nearest])
    nearest[homeless], factor[homeless] = -1, np.nan
    return Grouping(
        distinct[founders, :3],
        tuple(kinds[belongs[d]][0] for d in founders),
        nearest[request_of].astype(np.int64),
        factor[request_of],
    )


def fits(requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]) -> Bools:
    """Whether a server has all that is requested, its GPUs of an allowed model, shape [N, R].

    ``requests`` [N, 3] and ``capacity`` [R, 3] are cores, GiB and GPUs; ``allowed`` GPU models are
    joined by ``|``, empty for any; a server without GPUs has an empty ``model``.

    >>> fits(
    ...     np.array([[1.0, 1, 1], [1, 1, 0]]),
    ...     ["A|B", ""],
    ...     np.array([[2.0, 2, 2], [2, 2, 2], [2, 2, 0]]),
    ...     ["A", "C", ""],
    ... )
    array([[ True, False, False],
           [ True,  True,  True]])
    """
    kinds, kind = np.unique(np.asarray(model, dtype=np.str_), return_inverse=True)
    sets, set_of = np.unique(np.asarray(allowed, dtype=np.str_), return_inverse=True)
    # By distinct models and sets: traces have few of them and millions of jobs.
    may = np.array([[not s or m in s.split("|") for m in kinds] for s in sets], dtype=bool)
    room = (requests[:, None, :] <= capacity[None, :, :] * (1 + 1e-12)).all(axis=2)
    reachable = may[set_of.reshape(-1)][:, kind.reshape(-1)] | (requests[:, 2] == 0)[:, None]
    return np.asarray(room & reachable)


def fits_somewhere(
    requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]
) -> Bools:
    """Whether any server can hold each request whole, shape [N]; see :func:`fits`."""
    kinds = sorted(set(zip(model, map(tuple, capacity.tolist()))))
    shapes = np.array([shape for _, shape in kinds])
    result = np.zeros(len(requests), dtype=bool)
    for begin in range(0, len(requests), 4096):  # bounded memory
        part = slice(begin, begin + 4096)
        result[part] = fits(requests[part], allowed[part], shapes, [m for m, _ in kinds]).any(1)
    return result


def sample_servers(tables: trace_tables.Tables, servers: int) -> trace_tables.Tables:
    """Keep so many servers that every kind (GPU model, shape) has its share, by largest remainder.

    Of a kind, the first by name are kept. Kinds with too few servers for a place in the sample
    are not in it.

    Raises ScenarioError when there are fewer servers than that.
    """
    total = len(tables.servers)
    if servers > total:
        raise ScenarioError(f"a sample of {servers} servers was asked for; the trace has {total}")
    kind = ["model", *QUANTITIES]
    kinds = tables.servers.group_by(kind).len("number").sort(kind)
    exact = kinds["number"].to_numpy() * servers / total
    places = np.floor(exact).astype(np.int64)
    # Largest remainder; stable, so that kinds with equal remainders go by their names.
    order = np.argsort(-(exact - places), kind="stable")
    places[order[: servers - int(places.sum())]] += 1
    # Rank within the kind, by name: the first so many of each are kept.
    sampled = (
        tables.servers.join(kinds.with_columns(places=places), on=kind, how="left")
        .sort("name")
        .filter(pl.int_range(pl.len()).over(kind) < pl.col("places"))
        .select(tables.servers.columns)
    )
    return replace(tables, servers=sampled)


def stated_servers(
    tables: trace_tables.Tables,
    machines: int | None,
    shape: tuple[float, float, float] | None,
    model: str,
) -> trace_tables.Tables:
    """Tables with ``machines`` equal servers of one shape instead of those of the trace.

    Raises TraceError when one of the two numbers is not stated; says what to set.
    """
    if machines is None or shape is None:
        none = tables.servers.is_empty()
        units = ", ".join(tables.units[name] for name in QUANTITIES)
        largest = tables.jobs.select(QUANTITIES).max().fill_null(0.0).row(0)
        most = ", ".join(f"{size:.3g}" for size in largest)
        reason = phrase("no servers" if none else "half stated")
        todo = phrase("state servers", why=reason, units=units, most=most)
        todo += phrase("complete servers") * (none and tables.trace in TWINS)
        notes = (note for note in tables.notes if note.startswith(trace_tables.NO_SERVERS))
        raise TraceError("; ".join([todo, *notes]))
    width = len(str(machines - 1))
    servers = pl.DataFrame(
        {
            "row": range(1, machines + 1),
            "name": [f"machine-{r:0{width}d}" for r in range(machines)],
            "model": [(model or "gpu") if shape[2] > 0 else ""] * machines,
            **{name: [float(size)] * machines for name, size in zip(QUANTITIES, shape)},
        }
    )
    return replace(tables, servers=servers, events=None)


def in_units(
    servers: pl.DataFrame, grouping: Grouping, scale: float | None
) -> tuple[Cluster, Floats]:
    """The cluster, and the requests of its job types, in one unit per device type.

    The largest server has ``scale`` of each device type; None: quantities as they are. Device types
    are ``cpu``, ``mem`` and ``gpu:MODEL``, sorted by model, none that no server has; a job type
    requests its GPUs of every model that it may use, since a server has one model at most.
    """
    capacity = servers.select(QUANTITIES).to_numpy()
    model = np.array(servers["model"].to_list(), dtype=np.str_)
    largest = capacity.max(axis=0)
    factor = np.ones(3)
    if scale is not None:
        # One factor for all GPU models, of the server with the most GPUs of any.
        factor[largest > 0] = scale / largest[largest > 0]
    capacity, requests = capacity * factor, grouping.requests * factor
    columns = [(QUANTITIES[k], capacity[:, k], requests[:, k]) for k in (0, 1) if largest[k] > 0]
    for gpu in np.unique(model[capacity[:, 2] > 0]).tolist():
        may = [not models or gpu in models.split("|") for models in grouping.models]
        gpus = np.where(model == gpu, capacity[:, 2], 0.0)
        columns.append((f"gpu:{gpu}", gpus, np.where(may, requests[:, 2], 0.0)))
    device, have_all, want_all = zip(*columns)
    cluster = Cluster(np.column_stack(have_all), device, tuple(servers["name"].to_list()))
    return cluster, np.column_stack(want_all)


def mean_contention(
    cluster: Cluster, requests: Floats, mask: Bools, rate: Floats
) -> dict[str, float]:
    """Mean contention: the request of a mean slot's jobs from a server, as a share of what it has.

    The further below 1, the more jobs get all that they request, and the less policies can differ.

    ``requests`` are [L, K], ``mask`` the channels [L, R], ``rate`` jobs of each type per slot [L].
    By device type, the mean over the servers that have any.

    >>> cluster = Cluster(np.array([[8.0], [4.0]]), ("cpu",))
    >>> mean_contention(cluster, np.array([[2.0]]), np.array([[True, True]]), np.array([0.5]))
    {'cpu': 0.1875}
    """
    wanted = mask.T.astype(np.float64) @ (rate[:, None] * requests)
    present = cluster.capacity > 0
    share = np.where(present, wanted / np.where(present, cluster.capacity, 1.0), 0.0)
    mean = share.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    return dict(zip(cluster.devices, mean.tolist()))


def contested_share(cluster: Cluster, requests: Floats, mask: Bools, counts: Ints) -> float:
    """Share of the slots with arrivals in which jobs ask for more of some server than it has.

    ``requests`` are [L, K], ``mask`` the channels [L, R], ``counts`` jobs [slots, L].

    >>> cluster, channels = Cluster(np.array([[8.0], [4.0]]), ("cpu",)), np.array([[True, True]])
    >>> contested_share(cluster, np.array([[3.0]]), channels, np.array([[1], [2], [0]]))
    0.5
    """
    busy = counts[counts.any(axis=1)]
    if not len(busy):
        return 0.0
    # Slots with the same arrivals, and servers alike, are looked at once each.
    slots = np.unique(busy, axis=0, return_counts=True)
    kinds = np.unique(np.column_stack([cluster.capacity, mask.T]), axis=0)
    K = cluster.capacity.shape[1]
    short = np.zeros(len(slots[0]), dtype=bool)
    for kind in kinds:  # servers that have the same, and the same channels
        capacity, on = kind[:K], kind[K:] > 0
        wanted = slots[0] @ (requests * on[:, None])
        short |= (wanted > capacity * (1 + 1e-12)).any(axis=1, where=capacity > 0)
    return float(slots[1][short].sum() / slots[1].sum())


MAX_SLOTS = 1_000_000
WINDOW = 5_000  # slots of a window at most, where the length of a slot is chosen for it
LENGTHS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Seconds of a slot that is chosen."""
CHANNELS = 100_000
"""Channels at most, where it is chosen how many jobs of a type may come in a slot."""


@dataclass(frozen=True, eq=False)
class SlotDemand:
    """Job types of a trace, the servers that they fit on, and their arrivals."""

    servers: pl.DataFrame  # as in :class:`~gangwise.logs.tables.Tables`, sorted by name
    grouping: Grouping  # job types, and the job type of every job that is played
    names: tuple[str, ...]  # names of the job types
    fits: Bools  # whether a server can hold a job of the type whole, shape [L, R]
    # Jobs of each job type created in each slot, before ``keep``; no slots where the files have no
    # jobs, so that each job type arrives in a slot with probability ``keep``, shape [slots, L].
    counts: Ints
    slot: float  # length of a slot, in seconds
    lifetime: Floats  # median run time, in seconds; nan when not known, shape [L]
    fidelity: trace_tables.Fidelity  # what was read, left out and changed up to here

    def rows(self, keep: float) -> list[dict[str, Any]]:
        """A row per job type, for tables: requests, servers that fit, arrivals, run times."""
        rate = self.counts.mean(axis=0) if len(self.counts) else np.ones(len(self.names))
        return [
            {
                "job_type": name,
                **dict(zip(QUANTITIES, map(float, self.grouping.requests[l]))),
                "models": self.grouping.models[l],
                "fits_on": int(self.fits[l].sum()),
                "arrivals_per_slot": float(keep * rate[l]),
                "median_run_s": (None if np.isnan(self.lifetime[l]) else float(self.lifetime[l])),
            }
            for l, name in enumerate(self.names)
        ]


class TraceScenarioBase(ABC):
    family: ClassVar[str]
    name: str
    settings: Any
    _fidelity: trace_tables.Fidelity

    @abstractmethod
    def _contents(self) -> tuple[np.ndarray[Any, Any], ...]: ...

    def describe(self) -> dict[str, Any]:
        """The settings, and what they were applied to: the files, and what was made of them."""
        return {
            "trace": self._fidelity.trace,
            "files": dict(self._fidelity.digests),
            "workload": trace_tables.fingerprint(*self._contents()),
            **self.settings.model_dump(mode="json"),
        }

    def fidelity(self) -> trace_tables.Fidelity:
        return self._fidelity


def demand_of(tables: trace_tables.Tables, settings: Steps, most: int | None = 1) -> SlotDemand:
    """Demand of a trace: its jobs after all steps.

    At most ``most`` jobs of one type may arrive in a slot, others are left out; None: as many as
    come, but no more than makes :data:`CHANNELS`.

    Raises TraceError when there are no servers, or none of the jobs can be played; says why.
    """
    base, account = trace_tables.of_tables(tables), _Account()
    usable = _servers(tables, settings, account)
    capacity = usable.servers.select(QUANTITIES).to_numpy()
    model = usable.servers["model"].to_list()
    how = settings.tasks or ("whole" if len(capacity) == 1 else "each")
    jobs = _jobs(usable, how, account)
    start, length, slots = _window(jobs, settings, account)
    jobs = account.keep(
        "window", jobs, f"created before the window, {start:.0f} s", jobs["created"] >= start
    )
    able = fits_somewhere(
        jobs.select(QUANTITIES).to_numpy(), jobs["models"].to_list(), capacity, model
    )
    if not able.any():
        raise TraceError(f"no job of the trace can be played: {account.why(jobs, capacity)}")
    jobs = account.keep("fit", jobs, "fits on no server", able)
    grouping = group_jobs(
        jobs.select(QUANTITIES).to_numpy(),
        jobs["models"].to_list(),
        capacity.max(axis=0),
        settings.job_types,
        jobs["weight"].to_numpy(),
    )
    reason = "no job type for its choice of GPU models; raise job_types"
    typed = grouping.job_type >= 0
    jobs = account.keep("job types", jobs, reason, typed)
    grouping = replace(grouping, job_type=grouping.job_type[typed], factor=grouping.factor[typed])
    account.notes.append(_grouping_note(jobs, grouping))
    fit = fits(grouping.requests, grouping.models, capacity, model)
    slot = ((jobs["created"].to_numpy() - start) // length).astype(np.int64)
    creations = np.zeros((slots, len(grouping.requests)), dtype=np.int64)
    np.add.at(creations, (slot, grouping.job_type), jobs["weight"].to_numpy())
    limit = most_jobs_per_slot(creations, fit.sum(axis=1)) if most is None else most
    counts = np.minimum(creations, limit)
    over = jobs["row"].to_numpy()[(creations > limit)[slot, grouping.job_type]]
    _arrivals(creations, counts, limit, over, settings, account)
    end = start + slots * length
    # Of each row, the share of its jobs that are played.
    share = (counts / np.maximum(creations, 1))[slot, grouping.job_type]
    if how == "one":
        share = share / jobs["tasks"].to_numpy()
    hours = jobs["hours"].to_numpy()
    device, _ = trace_tables.counted_device(tables.jobs, tables.units)
    granted = counts @ grouping.requests[:, QUANTITIES.index(device)] * length / 3600
    by_slot = settings.keep * np.column_stack(
        [np.bincount(slot, share, slots), np.bincount(slot, hours * share, slots), granted]
    )
    played, played_hours, given_hours = map(float, by_slot.sum(axis=0))
    fidelity = replace(
        base,
        stages=(*base.stages, *account.stages),
        first=start,
        last=end,
        servers=len(capacity),
        jobs=int(counts.sum()),
        capacity=trace_tables.device_totals(usable),
        load=trace_tables.implied_load(replace(tables, servers=usable.servers), start, end),
        notes=(*base.notes, *account.notes),
        kept=trace_tables.kept_of(tables, played, played_hours, by_slot, given=given_hours),
    )
    run, types = jobs["run"].to_numpy(), grouping.job_type
    lifetime = np.array([_median(run[types == l]) for l in range(len(fit))])
    arrivals = (fit, counts, length, lifetime)
    return SlotDemand(usable.servers, grouping, grouping.names, *arrivals, fidelity)


@dataclass
class _Account:
    stages: list[Stage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def keep(
        self, step: str, jobs: pl.DataFrame, why: str, keep: Bools | pl.Series
    ) -> pl.DataFrame:
        inside, lost = jobs.filter(keep), jobs.filter(~keep)
        dropped = {why: (int(lost["weight"].sum()), _first(lost))} if len(lost) else {}
        weight = int(jobs["weight"].sum())
        self.stages.append(Stage(step, weight, int(inside["weight"].sum()), dropped))
        return inside

    def why(self, jobs: pl.DataFrame, capacity: Floats) -> str:
        fit = {"fits on no server": (int(jobs["weight"].sum()), _first(jobs))}
        causes = [reasons(dropped) for *_, dropped in self.stages if dropped] + [reasons(fit)]
        lacking = (q for k, q in enumerate(QUANTITIES) if not capacity[:, k].any())
        if none := [q for q in lacking if jobs[q].to_numpy().any()]:
            causes.append(f"the servers have no {' and no '.join(none)}, which jobs request")
        return "; ".join(causes)


def _first(jobs: pl.DataFrame) -> int:
    return int(jobs["row"].to_numpy().min())


def _servers(tables: trace_tables.Tables, s: Steps, account: _Account) -> trace_tables.Tables:
    number = len(tables.servers)
    if s.machines is not None or not number:
        tables = stated_servers(tables, s.machines, s.shape, s.model)
        unused = phrase("not used", number=number) * bool(number)
        account.notes.append(phrase("stated", machines=s.machines) + unused)
        number = len(tables.servers)
    unknown = sum(tables.servers[name].null_count() for name in QUANTITIES)
    if unknown:
        account.notes.append(phrase("no capacity", unknown=unknown))
    tables = replace(tables, servers=tables.servers.sort("name").fill_null(0.0))
    if s.servers is not None:
        tables = sample_servers(tables, s.servers)
        account.notes.append(phrase("sampled", servers=s.servers, number=number))
    if tables.events is not None and len(tables.events):
        account.notes.append(phrase("always there", times=len(tables.events)))
    return tables


def _jobs(tables: trace_tables.Tables, how: str, account: _Account) -> pl.DataFrame:
    """Rows whose time of creation and request are known.

    Columns are ``row``, ``created``, ``cpu``, ``mem``, ``gpu``, ``models``, ``tasks``; ``hours``,
    device-hours that all tasks of the row ran; ``run``, seconds, nan where it is not known; and
    ``weight``, how many jobs the row counts as: one, or with ``how = each`` its tasks.

    Raises TraceError when no row is left.
    """
    if tables.no_jobs:
        raise TraceError(tables.no_jobs)
    rows = tables.jobs
    device, _ = trace_tables.counted_device(rows, tables.units)
    tasks = pl.col("tasks").fill_null(1) if "tasks" in rows.columns else pl.lit(1)
    ran = trace_tables.work(rows)["run"]
    several_of = [name for name in ("job", "after") if name in rows.columns]
    jobs = rows.select(
        *("row", "created", *QUANTITIES, "models", *several_of),
        tasks=tasks.cast(pl.Int64).clip(lower_bound=1),
        hours=pl.Series(trace_tables.device_hours(rows, device)),
        run=ran.fill_null(np.nan),
        never=ran.is_null() if "started" in rows.columns else pl.lit(False),
    )
    rules = [
        ("it is not known when it was created", pl.col("created").is_null()),
        *((f"its request of {q} is not known", pl.col(q).is_null()) for q in QUANTITIES),
        ("it requests nothing", pl.sum_horizontal(QUANTITIES) == 0),
        ("it never started", pl.col("never")),
    ]
    jobs, stage = leave_out("requests", jobs, rules)
    if jobs.is_empty():
        reason = reasons(stage.dropped) or "there are none"
        raise TraceError(f"no job of the trace can be played: {reason}")
    if stage.dropped:
        account.stages.append(stage)
    if "job" in several_of and (number := jobs["job"].n_unique()) < len(jobs):
        waits = " and waits for no other" if "after" in several_of else ""
        account.notes.append(phrase("several requests", requests=len(jobs), jobs=number) + waits)
    return _weighted(jobs, how, account)


def _weighted(jobs: pl.DataFrame, how: str, account: _Account) -> pl.DataFrame:
    """Rows with ``weight``, the number of jobs that each counts as, and the request of one."""
    several, total = jobs.filter(pl.col("tasks") > 1), int(jobs["tasks"].sum())
    alone = jobs.with_columns(weight=pl.lit(1, pl.Int64))
    if several.is_empty():
        return alone
    if how == "one":
        reason = "of a row with several tasks, which counts as one job (tasks = one)"
        lost = {reason: (total - len(jobs), _first(several))}
        account.stages.append(Stage("tasks", total, len(jobs), lost))
        return alone
    so_many = phrase("several tasks", several=len(several), rows=len(jobs))
    account.notes.append(so_many + phrase(how, total=total))
    if how == "each":
        return jobs.with_columns(weight="tasks")
    return alone.with_columns(pl.col(q) * pl.col("tasks") for q in QUANTITIES)


def _window(jobs: pl.DataFrame, s: Steps, account: _Account) -> tuple[float, float, int]:
    """Start of the window and length of a slot, in seconds, and how many slots there are."""
    created, run = jobs["created"].to_numpy(), jobs["run"].to_numpy()
    at, end = float(np.sort(created)[int(s.skip * len(created))]), created.max()
    usual = _median(np.where(run > 0, run, np.nan))
    median = 3600.0 if np.isnan(usual) else usual
    # Jobs last one slot here, so a slot near the median run time gives them about what they had.
    length = slot_near(median, end - at) if s.slot is None else seconds(s.slot)
    # On a whole multiple of the slot, so that skipping more jobs does not shift the slots.
    start = np.floor(at / length) * length
    slots = np.floor((end - start) / length) + 1
    if slots > MAX_SLOTS:
        about = {"start": start, "end": end, "slots": slots, "length": duration(length)}
        raise TraceError(phrase("too many slots", most=MAX_SLOTS, **about))
    about = {"start": start, "at": duration(start), "slots": slots, "length": duration(length)}
    known = phrase("median run", median=duration(round(median, 1))) * (usual == median)
    account.notes.append(phrase("window", skip=100 * s.skip, **about) + known)
    return float(start), length, int(slots)


def _arrivals(
    asked: Ints, counts: Ints, most: int, over: Ints, s: Steps, account: _Account
) -> None:
    how = getattr(s, "arrivals", "indicator")
    reason = f"more than {most} of its job type in the slot (arrivals = {how})"
    total, played = int(asked.sum()), int(counts.sum())
    # The first row that is left out, for whoever looks it up in the file.
    lost = {reason: (total - played, int(over.min()))} if total > played else {}
    account.stages.append(Stage("arrivals", total, played, lost))
    busy = float((counts > 0).any(axis=1).mean())
    mean = phrase("arrivals", per_slot=played / len(counts), busy=100 * busy, keep=s.keep)
    account.notes += [mean + phrase("repeat") * s.repeat, phrase("one slot")]


def _grouping_note(jobs: pl.DataFrame, grouping: Grouping) -> str:
    requests, weight = jobs.select(QUANTITIES).to_numpy(), jobs["weight"].to_numpy()
    factor = grouping.factor
    exact = 100 * float((factor == 1) @ weight / weight.sum())
    requested, granted = weight @ requests, weight @ grouping.requests[grouping.job_type]
    shares = {q: 100 * g / a for q, g, a in zip(QUANTITIES, granted, requested) if a > 0}
    totals = ", ".join(f"{share:.3g} % of the {name}" for name, share in shares.items())
    order = np.argsort(factor)
    reached = np.cumsum(weight[order]) >= 0.95 * weight.sum()
    far = factor[order][np.flatnonzero(reached)[0]]
    types, kinds = len(grouping.requests), len(np.unique(requests, axis=0))
    reach = {"exact": exact, "far": far, "farthest": factor.max(), "totals": totals}
    return phrase("grouping", types=types, requests=kinds, **reach)


def slot_near(median: float, span: float) -> float:
    """The length nearest to a median run time that cuts a window into few enough slots.

    >>> slot_near(70.0, 86400.0), slot_near(70.0, 30 * 86400.0), slot_near(3.0, 1e9)
    (60.0, 600.0, 259200.0)
    """
    able = [length for length in LENGTHS if span / length < WINDOW]
    if not able:
        return float(np.ceil(span / WINDOW / 86400) * 86400)
    return float(min(able, key=lambda length: abs(np.log(length / median))))


def most_jobs_per_slot(counts: Ints, fit: Ints) -> int:
    """The most jobs of a type in a slot that keep a problem within :data:`CHANNELS`.

    ``counts`` are jobs [slots, L], ``fit`` the channels of each type [L].

    >>> most_jobs_per_slot(np.array([[1, 0], [9, 4]]), np.array([50, 50]))
    9
    >>> most_jobs_per_slot(np.array([[1, 0], [9, 4]]), np.array([25_000, 50]))
    3
    """
    peak = counts.max(axis=0)
    most = 1
    while most < peak.max() and np.minimum(peak, most + 1) @ fit <= CHANNELS:
        most += 1
    return most


def _median(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")

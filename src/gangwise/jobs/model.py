"""Jobs, nodes and what happens to them: the tables that a simulation plays.

Amounts of devices are whole thousandths (int64), as Kubernetes counts them: books balance exactly.
Times are seconds from any common origin. Jobs are kept in the order of (submission, row of the
log), which is also the order that breaks every tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, Tabular
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import require_options

ALONE = "node"
"""Device type of which a job that has its nodes alone takes all, see :mod:`~.whole_nodes`."""

# ----------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True)
class Node:
    """A machine.

    Attributes
    ----------
    devices : mapping
        How many of each device type.
    labels : mapping
        What jobs may ask for: GPU model, rack, …
    rate : float or mapping
        Declared rate, of all job types or by job type (1 for those not named).
    """

    name: str
    devices: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)
    rate: float | Mapping[str, float] = 1.0


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a cluster.

    Attributes
    ----------
    names : tuple of str [N]
    devices : tuple of str [K]
    capacity : ndarray [N, K]
        Thousandths of devices.
    labels : tuple of mappings [N]
    rates : tuple [N]
        Declared rates, as in :class:`Node`.
    shared : str, optional
        Device type of which a task may take a part of one (a GPU): its devices are told apart, at
        most 63 on a node. None: only their number counts.
    pools : mapping
        Name of a pool, which Slurm calls a partition → its nodes, by their places.

    Examples
    --------
    >>> Nodes.alike(64, {"gpu": 8}).capacity.sum(axis=0)
    array([512000])
    >>> len(Nodes.pool(128))
    1
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    capacity: Ints
    labels: tuple[Mapping[str, str], ...]
    rates: tuple[float | Mapping[str, float], ...]
    shared: str | None = None
    pools: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ScenarioError("two nodes have the same name; give each its own")
        if self.capacity.shape != (len(self.names), len(self.devices)) or not self.names:
            raise ScenarioError(
                f"capacity is {self.capacity.shape} for {len(self.names)} nodes and "
                f"{len(self.devices)} device types; give [N, K] with N ≥ 1"
            )
        if (self.capacity < 0).any():
            n, k = np.argwhere(self.capacity < 0)[0]
            raise ScenarioError(f"node {self.names[n]} has a negative number of {self.devices[k]}")
        if self.shared is not None:
            if self.shared not in self.devices:
                raise ScenarioError(f"no node has {self.shared!r}, the device type to be shared")
            # The shared devices in use are the bits of one int64 mask, whose sign bit is kept free.
            of_it = self.capacity[:, self.devices.index(self.shared)]
            bad = np.flatnonzero((of_it % 1000 != 0) | (of_it > 63_000))
            if bad.size:
                raise ScenarioError(
                    f"node {self.names[bad[0]]} has {of_it[bad[0]] / 1000:g} {self.shared}; shared "
                    "devices are told apart: a whole number, at most 63"
                )

    @classmethod
    def of(cls, nodes: Iterable[Node], shared: str | None = None) -> Nodes:
        """From single nodes; device types in the order of their first mention."""
        nodes = list(nodes)
        devices = tuple(dict.fromkeys(k for node in nodes for k in node.devices))
        # Rounded, not cut: in binary 1.001 * 1000 is 1000.99….
        capacity = [[round(1000 * node.devices.get(k, 0)) for k in devices] for node in nodes]
        return cls(
            tuple(node.name for node in nodes),
            devices,
            np.array(capacity, dtype=np.int64).reshape(len(nodes), len(devices)),
            tuple(node.labels for node in nodes),
            tuple(node.rate for node in nodes),
            shared,
        )

    @classmethod
    def alike(cls, count: int, devices: Mapping[str, float], shared: str | None = None) -> Nodes:
        """``count`` nodes n0, n1, … all alike."""
        return cls.of((Node(f"n{i}", devices) for i in range(count)), shared)

    @classmethod
    def pool(cls, processors: int, device: str = "cpu") -> Nodes:
        """One pool of identical processors, as in most logs of supercomputers."""
        return cls.of([Node("pool", {device: processors})])

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Node]:
        for n, name in enumerate(self.names):
            devices = {k: self.capacity[n, i] / 1000 for i, k in enumerate(self.devices)}
            yield Node(name, devices, self.labels[n], self.rates[n])

    def of_pool(self, name: str) -> Bools:
        """Nodes of a pool [N]; all where the name is empty."""
        mine = np.zeros(len(self), dtype=bool)
        mine[list(self.pools[name]) if name else slice(None)] = True
        return mine

    def declared(self, job_types: Sequence[str]) -> Floats:
        """Declared rates [L, N]."""
        rates = np.ones((len(job_types), len(self)))
        for n, rate in enumerate(self.rates):
            if not isinstance(rate, float) and isinstance(rate, Mapping):
                rates[:, n] = [rate.get(name, 1.0) for name in job_types]
            elif rate != 1.0:
                rates[:, n] = rate
        if not (rates > 0).all():
            raise ScenarioError("a declared rate is not positive; leave out what is not known")
        return rates


# ------------------------------------------------------------------------------------------ jobs


class Shape(NamedTuple):
    """What one task of a job asks for.

    Attributes
    ----------
    demand : tuple [K]
        Thousandths of devices.
    per_node : int
        Most tasks of the job on one node; 0 for as many as fit.
    constraint : tuple of (label, value)
        Labels that a node must have.
    pool : str
        Name of the pool in ``Nodes.pools`` whose nodes alone it may use; empty for all nodes.
    nodes : tuple of (int, int)
        Fewest and most nodes that a job takes under ``slurm``; 0 for any number. Other schedulers
        do not look at it.
    groups : tuple of (int, Shape)
        Of a job whose tasks are unlike: how many tasks of each shape. Its own demand is then that
        of them all, and the job has one such task, which no single node need hold.
    terms : str
        Of a group, what it asks apart from the job, see :class:`Group`.
    """

    demand: tuple[int, ...]
    per_node: int = 0
    constraint: tuple[tuple[str, str], ...] = ()
    pool: str = ""
    nodes: tuple[int, int] = (0, 0)
    groups: tuple[tuple[int, Shape], ...] = ()
    terms: str = ""

    def each(self, change: Callable[[Shape], Shape]) -> Shape:
        """The shape, changed; so are those of its groups."""
        groups = tuple((tasks, shape.each(change)) for tasks, shape in self.groups)
        # Groups have no groups of their own, so one level of recursion ends here.
        return change(self)._replace(groups=groups)

    @property
    def size(self) -> int:
        """How many tasks one of this shape stands for: those of its groups, else itself."""
        return sum(tasks for tasks, _ in self.groups) or 1


class Group(NamedTuple):
    """Tasks of a job that are alike, where others of it are not: its workers, or its head.

    Attributes
    ----------
    tasks : int
    demand : mapping
        Device type → devices that one task asks for.
    per_node : int
        Most tasks of the group on one node; 0 for as many as fit.
    constraint : mapping
        Labels that the nodes must have.
    terms : str
        What it asks apart from the job, in the words of :attr:`Job.terms`: ``features=…``, ``on=``,
        ``not=``; ``pool=NAME``; ``part=I``: its place among components of a heterogeneous job.
    """

    tasks: int
    demand: Mapping[str, float]
    per_node: int = 0
    constraint: Mapping[str, str] = MappingProxyType({})
    terms: str = ""


# Cached: a log has a few distinct texts, and this is asked at every decision.
@cache
def terms_of(text: str) -> dict[str, str]:
    """Terms of a job, by name.

    >>> terms_of("array=12%2,license/ansys=1,features=rack1&fast")
    {'array': '12%2', 'license/ansys': '1', 'features': 'rack1&fast'}
    """
    return dict(term.split("=", 1) for term in text.split(",") if term)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a scheduler sees it: nothing of what it will take in truth.

    Attributes
    ----------
    id : str
    row : int
        Its place in the order of (submission, row of the log).
    submitted, limit, deadline : float
        Seconds; a deadline that is not given is inf.
    expected : float
        Seconds that it is expected to take; NaN where the scheduler believes requests.
    requested : bool
        Whether the limit was asked for. One that was not is the run time, which predictors do not
        look at.
    tasks : int
        All are placed at once, or none; 1 where ``shape`` has groups, which are placed so.
    shape : Shape
        What one task asks for.
    account, pool, qos : str
        Whom it is charged to, the pool (partition) that it was submitted to, and its QOS.
    terms : str
        What else must hold at its start, see :func:`terms_of`: ``array=NAME%N``, at most N jobs of
        that name at once; ``license/NAME=N`` licences held; ``features=…`` of its nodes;
        ``queued=T``: its place in line is that of a job submitted then; ``fewest=N``: it may be
        started with so few of its tasks, and then takes longer by as much as it has fewer (not of
        a job of groups);
        ``nodes=A-B``: fewest and most nodes, 0 for any number; ``on=``, ``not=`` nodes by name,
        bars between them; ``whole=1``: it has its nodes alone, ``whole=memory``: all their memory,
        ``whole=user``: only its user has jobs there; ``contiguous=yes``: side by side,
        ``spread=yes``: one by one in order;
        ``cores=whole``: no two of its processors are threads of one core; ``task=4``: processors
        of a task, of a job that never ran;
        ``size=CxN``: cores and nodes that multifactor priority counts; ``held=C``: cores that it is
        charged for; ``free=cpu:4|mem:8``: what must be free on a node for it to have any of it;
        ``given=N``: nodes that it needed, of those that were free; ``mem=X``: memory that it asked
        for, where it was given other; ``reservation=NAME``; ``pools=A|B``: under ``slurm`` it waits
        in each;
        ``apart=1``: no two groups of its tasks share a node (of a live cluster).
    """

    id: str
    row: int
    submitted: float
    job_type: str
    user: str
    tasks: int
    shape: Shape
    limit: float
    deadline: float
    budget: float
    priority: float
    requested: bool = True
    expected: float = math.nan
    account: str = ""
    pool: str = ""
    qos: str = ""
    terms: str = ""

    @property
    def groups(self) -> tuple[tuple[int, Shape], ...]:
        """How many tasks of each shape it has."""
        return self.shape.groups or ((self.tasks, self.shape),)

    @property
    def fewest(self) -> int:
        """With how many of its tasks it may be started."""
        # Groups have different shapes, so no subset of them is the same job made smaller.
        if not self.terms or self.shape.groups:
            return self.tasks
        return int(terms_of(self.terms).get("fewest", self.tasks))

    @property
    def apart(self) -> bool:
        """Whether no two groups of its tasks share a node."""
        return bool(self.terms) and "apart" in terms_of(self.terms)

    @property
    def length(self) -> float:
        """Seconds that the job takes as far as anybody knows: as expected, or as requested."""
        # NaN, not 0, marks "no prediction": a predicted run time of 0 is a prediction.
        return self.limit if math.isnan(self.expected) else self.expected


@dataclass(frozen=True)
class Account:
    """What became of the jobs that were read: none is lost silently.

    Attributes
    ----------
    read : int
    set_aside : mapping
        Reason → rows of the log (as given, from 0) that are not played.
    noted : mapping
        What was assumed → how many jobs it concerns.

    Examples
    --------
    >>> jobs = Jobs.of(submit=[0, 5, -1], run=[10, 20, 30], tasks=[1, 0, 2])
    >>> for line in jobs.account.lines():
    ...     print(line)
    1 of 3 jobs are played
    set aside: 1 submitted at a negative time (row 2)
    set aside: 1 with no task (row 1)
    assumed: 1 without a requested limit: the run time is taken for it
    """

    read: int
    set_aside: Mapping[str, Ints]
    noted: Mapping[str, int]

    @property
    def played(self) -> int:
        return self.read - sum(rows.size for rows in self.set_aside.values())

    def lines(self) -> list[str]:
        lines = [f"{self.played:,} of {self.read:,} jobs are played"]
        for reason, rows in self.set_aside.items():
            shown = ", ".join(map(str, rows[:3])) + (", …" if rows.size > 3 else "")
            lines.append(f"set aside: {rows.size:,} {reason} (row{'s' * (rows.size > 1)} {shown})")
        return lines + [f"assumed: {n:,} {assumption}" for assumption, n in self.noted.items()]


class Columns(TypedDict, total=False):
    """Columns that :meth:`Jobs.of` can do without."""

    id: npt.ArrayLike
    limit: npt.ArrayLike
    per_node: npt.ArrayLike
    constraint: Sequence[Mapping[str, str]] | None
    type: npt.ArrayLike | None
    user: npt.ArrayLike | None
    deadline: npt.ArrayLike
    budget: npt.ArrayLike
    priority: npt.ArrayLike
    after: Mapping[Any, Sequence[Any]] | None
    groups: Mapping[Any, Sequence[Group]] | None
    recorded_start: npt.ArrayLike
    recorded_end: npt.ArrayLike
    withdrawn: npt.ArrayLike
    censored: npt.ArrayLike
    early: npt.ArrayLike
    charged: npt.ArrayLike | None
    pool: npt.ArrayLike | None
    qos: npt.ArrayLike | None
    terms: npt.ArrayLike | None


_NAMED = {  # columns of names: fields for the place of each name and the names, a Job's; default
    "type": ("type", "types", "job_type", "job"),
    "user": ("user", "users", "user", "user"),
    "charged": ("charged", "accounts", "account", ""),
    "pool": ("pool", "pools", "pool", ""),
    "qos": ("qos", "qoses", "qos", ""),
    "terms": ("term", "terms", "terms", ""),
}
_USUAL = {"limit": np.nan, "per_node": 0.0, "deadline": np.inf, "budget": np.inf, "priority": 0.0}
_USUAL |= {"recorded_start": np.nan, "recorded_end": np.nan, "withdrawn": np.inf}
_USUAL |= {"censored": 0.0, "early": 0.0}


@dataclass(frozen=True, eq=False, repr=False)
class Jobs(Tabular):
    """Many jobs, one array a column [J], in the order of (submission, row of the log).

    Built by :meth:`of`, which sets aside what cannot be played and says so in ``account``.

    Attributes
    ----------
    row : ndarray
        Row of the log.
    run : ndarray
        Hidden: seconds of work on a node of rate 1.
    tasks : ndarray
        Size of the gang; 1 where its shape has groups (:attr:`sizes` counts their tasks).
    shape, type, user, charged, pool, qos, term : ndarray
        Places in ``shapes``, ``types``, ``users``, ``accounts``, ``pools``, ``qoses``, ``terms``.
    after_from, after : ndarray
        Job j comes after the jobs ``after[after_from[j]:after_from[j+1]]``.
    recorded_start, recorded_end : ndarray
        As it happened, NaN where the log does not say.
    withdrawn : ndarray
        Seconds: when a job that never started left the line; inf for all others.
    censored : ndarray
        Whether a job still ran when the log ended: its run time is what is known of it.
    early : ndarray
        Whether a job ran already when the log begins: it is submitted when it started, and how long
        it waited counts in no mean.
    requested : ndarray
        Whether the limit was asked for; where it was not, it is the run time.
    """

    id: npt.NDArray[Any]
    row: Ints
    submit: Floats
    run: Floats
    limit: Floats
    tasks: Ints
    shape: Ints
    type: Ints
    user: Ints
    deadline: Floats
    budget: Floats
    priority: Floats
    after_from: Ints
    after: Ints
    recorded_start: Floats
    recorded_end: Floats
    withdrawn: Floats
    censored: npt.NDArray[np.bool_]
    early: npt.NDArray[np.bool_]
    devices: tuple[str, ...]
    shapes: tuple[Shape, ...]
    types: tuple[str, ...]
    users: tuple[str, ...]
    account: Account
    requested: npt.NDArray[np.bool_]
    charged: Ints
    pool: Ints
    qos: Ints
    accounts: tuple[str, ...]
    pools: tuple[str, ...]
    qoses: tuple[str, ...]
    term: Ints
    terms: tuple[str, ...]

    @classmethod
    def of(
        cls,
        submit: npt.ArrayLike,
        run: npt.ArrayLike,
        tasks: npt.ArrayLike = 1,
        demand: Mapping[str, npt.ArrayLike] | None = None,
        **more: Unpack[Columns],
    ) -> Jobs:
        """From columns in the log's order; a scalar stands for a column of it.

        Parameters
        ----------
        submit, run : array_like
            Seconds; NaN where missing.
        tasks : array_like
            Size of the gang.
        demand : mapping
            Device type → devices that one task asks for (default: one ``cpu``).

        Other Parameters
        ----------------
        limit, deadline, budget : array_like
            Seconds; NaN where missing. A missing limit becomes the run time, and is noted.
        per_node : array_like
            Most tasks on one node, 0 for as many as fit, 1 for one a node.
        constraint : sequence of mappings, optional
            Labels that the nodes must have, a mapping for each job.
        type, user : array_like, optional
            Names; what is learned is learned by type.
        after : mapping, optional
            Id → ids of jobs that must have ended before.
        groups : mapping, optional
            Id → groups of tasks, each with its own devices, of a job whose tasks are unlike: all
            start at once. Its row says nothing of ``tasks``, ``demand``, ``per_node`` and
            ``constraint`` then.
        withdrawn, censored, early : array_like
            Seconds, inf for a job that was not withdrawn before it started; whether a job still ran
            when the log ended, and whether it ran already when the log begins.
        charged, pool, qos, terms : array_like, optional
            Names of accounts, of pools (partitions) and of QOS; and what :class:`Job` has.

        Examples
        --------
        >>> jobs = Jobs.of(submit=[3, 0], run=[10, 5], tasks=[1, 2], demand={"gpu": [0.5, 1]})
        >>> jobs.id, jobs.shapes
        (array([1, 0]), (Shape(demand=(500,), ...), Shape(demand=(1000,), ...)))

        A head with two workers:

        >>> ray = Group(1, {"cpu": 4}), Group(2, {"cpu": 8, "gpu": 4})
        >>> jobs = Jobs.of(submit=[0], run=[9], id=["ray"], groups={"ray": ray})
        >>> jobs.sizes, jobs.devices, jobs.shapes[0].demand
        (array([3]), ('cpu', 'gpu'), (20000, 8000))
        """
        given, J = dict[str, Any](more), np.asarray(submit).size
        require_options(given, Columns)
        id = given.get("id")
        # Copied: the caller's array may change later.
        ids = np.arange(J) if id is None else np.array(id)
        if ids.shape != (J,):
            raise ScenarioError(f"{J} jobs have {ids.size} ids")
        numbers = {"submit": submit, "run": run}
        numbers |= {name: given.get(name, usual) for name, usual in _USUAL.items()}
        columns = {name: _column(values, J) for name, values in numbers.items()}
        columns |= {"id": ids, "tasks": _column(tasks, J, whole=True)}
        demand = {"cpu": 1.0} if demand is None else dict(demand)
        # Groups first: they write the total demand of their rows, which the log then judges.
        of_groups = _Groups.of(given, columns, demand) if given.get("groups") else None
        log = _Log(columns, demand)
        if id is not None:
            log.reject(_repeated(ids), "whose id came before")
        if of_groups is not None:
            of_groups.judge(log)
        return log.jobs(given.get("constraint"), given.get("after") or {}, given, of_groups)

    @classmethod
    def seen(cls, jobs: Sequence[Job], devices: tuple[str, ...]) -> Jobs:
        """Jobs as a scheduler sees them, in their order; demands are over these device types."""

        def coded(names: Iterable[Any]) -> tuple[Ints, tuple[Any, ...]]:
            codes_of: dict[Any, int] = {}
            codes = [codes_of.setdefault(name, len(codes_of)) for name in names]
            return np.array(codes, dtype=np.int64), tuple(codes_of) or ("",)

        columns: dict[str, Any] = {"submit": np.array([job.submitted for job in jobs], float)}
        for name in ("id", "row", "tasks", "limit", "deadline", "budget", "priority"):
            columns[name] = np.array([getattr(job, name) for job in jobs])
        for place, several, own, _ in (*_NAMED.values(), ("shape", "shapes", "shape", "")):
            columns[place], columns[several] = coded(getattr(job, own) for job in jobs)
        # One array for both recorded columns is safe: a frozen `Jobs` never writes into them.
        none = np.full(len(jobs), np.nan)
        return cls(
            **columns,
            run=np.zeros(len(jobs)),  # hidden
            requested=np.array([job.requested for job in jobs], dtype=bool),
            after_from=np.zeros(len(jobs) + 1, dtype=np.int64),
            after=np.zeros(0, dtype=np.int64),
            recorded_start=none,
            recorded_end=none,
            withdrawn=np.full(len(jobs), np.inf),
            censored=np.zeros(len(jobs), dtype=bool),
            early=np.zeros(len(jobs), dtype=bool),
            devices=devices,
            account=Account(len(jobs), {}, {}),
        )

    def __len__(self) -> int:
        return self.submit.size

    @property
    def grouped(self) -> Bools:
        """Jobs whose tasks are unlike [J], or [1] where none are."""
        # Compiled code reads a mask of one element as "no job has groups".
        several = [bool(shape.groups) for shape in self.shapes]
        return np.array(several)[self.shape] if any(several) else np.zeros(1, dtype=bool)

    @property
    def sizes(self) -> Ints:
        """Tasks of each job, of all its groups [J]."""
        if not self.grouped.any():
            return self.tasks
        of_shape: Ints = np.array([shape.size for shape in self.shapes])
        return self.tasks * of_shape[self.shape]

    def columns(self) -> dict[str, Any]:
        """One array a column, names and devices written out.

        Devices are of one task; of a job of groups, of them all.
        """
        optional = {"account": (self.accounts, self.charged), "pool": (self.pools, self.pool)}
        optional |= {"qos": (self.qoses, self.qos), "terms": (self.terms, self.term)}
        demand = self.demand(self.devices)[self.shape] / 1000
        return {
            "id": self.id.astype(str),
            "submit": self.submit,
            "run": self.run,
            "limit": self.limit,
            "tasks": self.sizes,
            **{kind: demand[:, k] for k, kind in enumerate(self.devices)},
            "type": np.array(self.types)[self.type],
            "user": np.array(self.users)[self.user],
            **{name: np.array(names)[of] for name, (names, of) in optional.items() if any(names)},
            "deadline": self.deadline,
            "budget": self.budget,
            "priority": self.priority,
            "recorded_start": self.recorded_start,
            "recorded_end": self.recorded_end,
        }

    def __repr__(self) -> str:
        return f"Jobs({len(self):,} jobs of {len(self.users):,} users, {', '.join(self.devices)})"

    def demand(self, devices: Sequence[str]) -> Ints:
        """Thousandths of each of these device types that a task of each shape asks for [S, K]."""
        demand = np.zeros((len(self.shapes), len(devices)), dtype=np.int64)
        for k, device in enumerate(devices):
            if device in self.devices:
                place = self.devices.index(device)
                demand[:, k] = [shape.demand[place] for shape in self.shapes]
        return demand

    def shapes_on(self, devices: tuple[str, ...]) -> tuple[Shape, ...]:
        """The shapes with their demand over these device types; any others are left out."""
        if devices == self.devices:
            return self.shapes
        at = [self.devices.index(kind) if kind in self.devices else -1 for kind in devices]

        def on(shape: Shape) -> Shape:
            return shape._replace(demand=tuple(shape.demand[k] if k >= 0 else 0 for k in at))

        return tuple(shape.each(on) for shape in self.shapes)

    def job(self, j: int) -> Job:
        """Job j as a scheduler sees it."""
        return Job(
            str(self.id[j]),
            j,
            float(self.submit[j]),
            self.types[self.type[j]],
            self.users[self.user[j]],
            int(self.tasks[j]),
            self.shapes[self.shape[j]],
            float(self.limit[j]),
            float(self.deadline[j]),
            float(self.budget[j]),
            float(self.priority[j]),
            bool(self.requested[j]),
            account=self.accounts[self.charged[j]],
            pool=self.pools[self.pool[j]],
            qos=self.qoses[self.qos[j]],
            terms=self.terms[self.term[j]],
        )


class _Log:
    """Columns in the log's order, and which of the rows can be played."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]], demand: Mapping[str, npt.ArrayLike]):
        self.columns, self.devices = columns, tuple(demand)
        self.size = J = columns["id"].size
        self.good = np.ones(J, dtype=bool)
        self.set_aside: dict[str, Ints] = {}
        self.noted: dict[str, int] = {}
        submit, run, tasks = columns["submit"], columns["run"], columns["tasks"]
        started, ended = (one_for_all(columns[f"recorded_{end}"]) for end in ("start", "end"))
        # NaN compares as False, so `submit < 0` skips rows that the line before has rejected.
        with np.errstate(invalid="ignore"):
            self.reject(~np.isfinite(submit), "without a submission time")
            self.reject(submit < 0, "submitted at a negative time")
            self.reject(ended < started, "that ended before they started")
            self.reject(~np.isfinite(run), "without a run time")
            self.reject(run < 0, "with a negative run time")
            self.reject(~np.isfinite(tasks) | (tasks < 1), "with no task")
            if tasks.dtype.kind == "f":
                self.reject(tasks != np.floor(tasks), "with a part of a task")
            odd, self.demand = np.zeros(1, dtype=bool), []
            for values in demand.values():
                amount = one_for_all(_column(values, J))
                finite = np.isfinite(amount)
                odd = odd | ~finite | (amount < 0)
                # NaN and inf have no int64; such rows are rejected below, whatever stands for them.
                self.demand.append(np.where(finite, np.rint(amount * 1000), 0).astype(np.int64))
            self.reject(odd, "with a missing or negative number of devices")
            nothing = sum(self.demand, np.zeros(1, dtype=np.int64)) == 0
            self.reject(nothing, "that ask for no device")

    def reject(self, bad: npt.NDArray[Any], reason: str) -> None:
        """Set rows aside that no earlier reason has set aside."""
        # A row is counted under its first reason alone, so the counts add up to the jobs set aside.
        rows = np.flatnonzero(bad & self.good)
        if rows.size:
            self.set_aside[reason] = rows
            self.good[rows] = False

    def note(self, what: str, count: int) -> None:
        """Note what was assumed of so many jobs, if of any."""
        if count:
            self.noted[what] = count

    def jobs(
        self,
        constraint: Sequence[Mapping[str, str]] | None,
        after: Mapping[Any, Sequence[Any]],
        names: Mapping[str, npt.ArrayLike | None],
        groups: _Groups | None,
    ) -> Jobs:
        """The rows that are played, in the order of (submission, row); ``names`` are columns."""
        predecessors = self._dependencies(after)
        submit, J = self.columns["submit"], self.size
        order = np.flatnonzero(self.good)
        in_order = order.size == J and bool((submit[1:] >= submit[:-1]).all())
        if not in_order:
            # Stable: jobs of one instant stay in the order of their rows.
            order = order[np.argsort(submit[order], kind="stable")]
        count = order.size

        def chosen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            """Those that are played, in their order; one value that stands for all stays one."""
            # Stride 0 marks a scalar; it stays a view, so equal values take no memory.
            if values.strides == (0,):
                return np.broadcast_to(values[:1], (count,)) if count else values[:0].copy()
            return values if in_order else values[order]

        c: dict[str, Any] = {name: chosen(values) for name, values in self.columns.items()}
        # NaN > 0 is False: the test catches a missing limit as well as one of 0.
        run, missing = c["run"], ~(c["limit"] > 0)
        limit = np.where(missing, run, c["limit"])
        self.note("without a requested limit: the run time is taken for it", int(missing.sum()))
        self.note("ran longer than they requested", int((run > limit).sum()))
        demand = [values if values.size == 1 else chosen(values) for values in self.demand]
        per_node = one_for_all(c.pop("per_node"))
        c["shape"], c["shapes"] = _shapes(demand, per_node, constraint, order, groups)
        # Predecessors become places in the new order; rows that are not played get no place.
        c["after_from"], c["after"] = reordered(*predecessors, order)
        for name, (place, several, _, default) in _NAMED.items():
            c[place], c[several] = _names(names.get(name), J, order, default)
        c |= {"limit": limit, "tasks": np.asarray(c["tasks"], dtype=np.int64)}
        c |= {name: np.asarray(c[name], dtype=bool) for name in ("censored", "early")}
        c["run"] = np.array(run) if run.strides == (0,) else run
        c["requested"] = ~missing if missing.any() else np.broadcast_to(True, missing.shape)
        account = Account(J, self.set_aside, self.noted)
        return Jobs(**c, row=order, devices=self.devices, account=account)

    def _dependencies(self, after: Mapping[Any, Sequence[Any]]) -> tuple[Ints, Ints]:
        """Rows that each row comes after, without those that are not there and without cycles."""
        ids, J = self.columns["id"], self.size
        if not after:
            return np.zeros(J + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        # Reversed, so that of rows with the same id the first wins; the others are set aside.
        row_of = {name: int(i) for i, name in reversed(list(enumerate(ids.tolist())))}
        predecessors: list[list[int]] = [[] for _ in range(J)]
        unknown = 0
        for name, earlier in after.items():
            if name not in row_of:
                unknown += len(earlier)
                continue
            # A predecessor named twice counts once.
            rows = [row_of.get(job, -1) for job in dict.fromkeys(earlier)]
            unknown += rows.count(-1)
            predecessors[row_of[name]] += [row for row in rows if row >= 0]
        self.note("dependencies on jobs that are not in the log: dropped", unknown)
        # Jobs on a cycle would wait for ever; those behind it only lose that dependency.
        bad = np.zeros(J, dtype=bool)
        bad[_on_cycles(predecessors)] = True
        self.reject(bad, "that come after one another in a circle")
        playable = [[row for row in rows if self.good[row]] for rows in predecessors]
        dropped = [len(b) - len(k) for b, k, good in zip(predecessors, playable, self.good) if good]
        self.note("dependencies on jobs that were set aside: dropped", sum(dropped))
        lengths = np.array([len(rows) for rows in playable], dtype=np.int64)
        flat = np.array([row for rows in playable for row in rows], dtype=np.int64)
        return np.concatenate([[0], np.cumsum(lengths)]), flat


class _Groups:
    """Rows of jobs whose tasks are unlike, and the shapes of their groups."""

    def __init__(self, J: int) -> None:
        self.code = np.zeros(J, dtype=np.int64)  # place in `several`
        self.several: dict[tuple[tuple[int, Shape], ...], int] = {(): 0}
        self.odd = np.zeros(J, dtype=bool)
        self.unknown = 0

    @classmethod
    def of(
        cls,
        given: dict[str, Any],
        columns: dict[str, npt.NDArray[Any]],
        demand: dict[str, npt.ArrayLike],
    ) -> _Groups:
        """Enter into columns and demand what the groups of each job ask for together.

        Groups that ask for the same are one; a job of one group is a job like any other.
        """
        ids, J = columns["id"], columns["id"].size
        found, row_of = cls(J), {name: i for i, name in reversed(list(enumerate(ids.tolist())))}
        every = [group for some in given["groups"].values() for group in some]
        for kind in dict.fromkeys(kind for group in every for kind in group.demand):
            demand.setdefault(kind, 0.0)
        # Columns of their own, which are changed below.
        for name in ("tasks", "per_node"):
            columns[name] = np.array(columns[name])
        for kind, values in demand.items():
            demand[kind] = np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (J,)))
        labels = given.get("constraint")
        # Copied into a list, since rows of jobs with groups are rewritten.
        if labels is not None or any(group.constraint for group in every):
            given["constraint"] = labels = list(labels or [{}] * J)
        for name, groups in given["groups"].items():
            if name not in row_of:
                found.unknown += 1
            else:
                found.enter(row_of[name], groups, columns, demand, labels)
        return found

    def enter(
        self,
        row: int,
        groups: Sequence[Group],
        columns: dict[str, npt.NDArray[Any]],
        demand: dict[str, Any],
        labels: list[Mapping[str, str]] | None,
    ) -> None:
        """Let a row be the job of these groups."""
        # Keyed by shape, so equal groups merge; insertion order is the order of placement.
        tasks_of: dict[Shape, int] = {}
        for group in groups:
            amounts = [float(group.demand.get(kind, 0)) for kind in demand]
            if group.tasks < 1 or not all(0 <= a < math.inf for a in amounts) or not any(amounts):
                self.odd[row] = True
                return
            asked = tuple(round(1000 * amount) for amount in amounts)
            labels_of = tuple(sorted(group.constraint.items()))
            shape = Shape(asked, group.per_node, labels_of, terms=group.terms)
            tasks_of[shape] = tasks_of.get(shape, 0) + int(group.tasks)
        if not tasks_of:
            self.odd[row] = True
            return
        several = tuple((tasks, shape) for shape, tasks in tasks_of.items())
        (tasks, shape), *further = several
        if not further:
            columns["tasks"][row], columns["per_node"][row] = tasks, shape.per_node
            asked = shape.demand
        else:
            # One task of the total demand: it need not fit on a node.
            columns["tasks"][row], columns["per_node"][row] = 1, 0
            asked = tuple(
                sum(tasks * shape.demand[k] for tasks, shape in several) for k in range(len(demand))
            )
            self.code[row] = self.several.setdefault(several, len(self.several))
        for kind, amount in zip(demand, asked):
            demand[kind][row] = amount / 1000
        if labels is not None:  # what all groups ask of nodes, the job does
            shared = set.intersection(*(set(shape.constraint) for shape in tasks_of))
            labels[row] = dict(sorted(shared))

    def judge(self, log: _Log) -> None:
        """Set aside what cannot be played, and note what was dropped."""
        log.reject(self.odd, "with a group that has no task or asks for no device")
        log.note("groups of jobs that are not in the log: dropped", self.unknown)


def reordered(starts: Ints, rows: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Dependencies of some jobs in their order, from those of rows; −1 for a row left out."""
    if not rows.size:
        # A view: J + 1 zeros that take 8 bytes.
        return np.broadcast_to(np.int64(0), (order.size + 1,)), rows
    place = np.full(starts.size - 1, -1)
    place[order] = np.arange(order.size)
    of_jobs = np.concatenate([rows[:0], *(rows[starts[i] : starts[i + 1]] for i in order)])
    return np.concatenate([[0], np.cumsum(np.diff(starts)[order])]), place[of_jobs]


def _repeated(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Rows whose id an earlier row has."""
    if ids.dtype.kind in "iu" and bool((ids[1:] > ids[:-1]).all()):
        # Rising numbers cannot repeat: the common case, answered without a sort.
        return np.zeros(1, dtype=bool)
    if ids.dtype.kind == "O":  # numbers take less room than a set of the ids
        hashes = np.sort(np.fromiter(map(hash, ids), np.int64, ids.size))
        if not (hashes[1:] == hashes[:-1]).any():
            return np.zeros(1, dtype=bool)
    # Equal hashes may still be different ids, so only this exact test decides.
    twice = np.ones(ids.size, dtype=bool)
    # `return_index` gives the first row of each id.
    twice[np.unique(ids, return_index=True)[1]] = False
    return twice


def _column(values: npt.ArrayLike, J: int, whole: bool = False) -> npt.NDArray[Any]:
    """A column of its own [J]; of a scalar a view of one value, which takes no room.

    With ``whole``, whole numbers stay so.
    """
    given = np.asarray(values)
    given = np.array(given, np.int64 if whole and given.dtype.kind in "iu" else np.float64)
    return given if given.shape == (J,) else np.broadcast_to(given, (J,))


def one_for_all(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The one value of a column that a scalar stands for [1]; any other column as it is."""
    return column[:1] if column.strides == (0,) else column


def _on_cycles(before: list[list[int]]) -> list[int]:
    """Rows on a cycle: strongly connected components of more than one row, or with a loop."""
    # Each after rows before it: no cycle, as in nearly every log, which then needs no SciPy.
    if all(max(earlier, default=-1) < row for row, earlier in enumerate(before)):
        return []
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    J = len(before)
    rows = [row for row, earlier in enumerate(before) for _ in earlier]
    columns = [row for earlier in before for row in earlier]
    graph = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(J, J))
    _, component = connected_components(graph, connection="strong")
    size = np.bincount(component, minlength=J)
    # A job after itself is a component of one row, which the size does not show.
    loops = {row for row, earlier in enumerate(before) if row in earlier}
    return [row for row in range(J) if size[component[row]] > 1 or row in loops]


def _shapes(
    demand: list[Ints],
    per_node: npt.NDArray[Any],
    constraint: Sequence[Mapping[str, str]] | None,
    order: Ints,
    groups: _Groups | None,
) -> tuple[Ints, tuple[Shape, ...]]:
    """Number the distinct rows of demand, tasks per node, constraint and groups.

    Columns are [J] or [1].
    """
    J, K = order.size, len(demand)
    columns = [*demand, np.maximum(np.nan_to_num(per_node), 0).astype(np.int64)]
    named: list[tuple[tuple[str, str], ...]] = [()]
    # `order` holds the places of played rows; constraints are still in the log's order.
    if constraint is not None:
        constraints = [tuple(sorted(constraint[i].items())) for i in order]
        named = list(dict.fromkeys(constraints)) or [()]
        number = {c: i for i, c in enumerate(named)}
        columns.append(np.array([number[c] for c in constraints], dtype=np.int64))
    several: tuple[tuple[tuple[int, Shape], ...], ...] = ((),)
    if groups is not None:
        several = tuple(groups.several)
        columns.append(groups.code[order])
    code = np.broadcast_to(np.int64(0), (J,))
    representative = np.zeros(min(J, 1), dtype=np.int64)
    for values in columns:
        # A column with one value does not split any class.
        if values.size < J or (values == values[:1]).all():
            continue
        different, inverse = np.unique(values, return_inverse=True)
        # Renumbered after every column: codes stay below J, so products stay below J² < 2**63.
        _, representative, code = np.unique(
            code * different.size + inverse, return_index=True, return_inverse=True
        )
    distinct = [np.broadcast_to(values, (J,))[representative].tolist() for values in columns]
    shapes = tuple(
        Shape(
            tuple(row[:K]),
            row[K],
            named[row[K + 1]] if constraint is not None else (),
            groups=several[row[-1]] if groups is not None else (),
        )
        for row in zip(*distinct)
    )
    return code, shapes


def _names(
    values: npt.ArrayLike | None, J: int, order: Ints, default: str
) -> tuple[Ints, tuple[str, ...]]:
    if values is None:
        return np.broadcast_to(np.int64(0), (order.size,)), (default,)
    column = np.broadcast_to(np.asarray(values), (J,))
    if order.size < J or (order[:-1] > order[1:]).any():
        # Names are coded after jobs are dropped: a name that only dropped jobs had gets no code.
        column = column[order]
    if column.dtype.kind == "O":  # a few names many times: sorted without the repetitions
        few = sorted(set(column))
        number = {name: code for code, name in enumerate(few)}
        codes = np.fromiter(map(number.__getitem__, column), np.int64, column.size)
        return codes, tuple(str(name) for name in few) or (default,)
    names, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names) or (default,)


# ----------------------------------------------------------------------------------- hidden truth


class DistanceCosts(Protocol):
    """What being apart costs gangs, as :class:`gangwise.jobs.distance.Distance` has it."""

    @property
    def levels(self) -> tuple[str, ...]: ...

    def factor(self, types: Ints, tasks: Ints) -> Floats: ...

    def on_nodes(self, jobs: Jobs, nodes: Nodes) -> Any: ...


@dataclass(frozen=True, eq=False)
class Conditions:
    """What a scheduler never sees: rates, noise, failures to come.

    Attributes
    ----------
    rates : ndarray [L, N], optional
        True rates, in the order of ``Jobs.types`` and of the nodes; all 1 where not given.
    noise : ndarray [J], optional
        Factor on each job's rate, in the order of ``Jobs``.
    downs, ups : sequence of (seconds, node)
        When nodes fail, with everything on them, and come back. One that joins under way is down
        from time 0.
    drains : sequence of (seconds, node)
        From then on nothing more starts there; what runs goes on.
    cancels : sequence of (seconds, job)
        When jobs, by their place in the order of ``Jobs``, are withdrawn: before they are
        submitted, while they wait or while they run. Jobs after them need not wait any more.
    factors : sequence of (seconds, node, factor)
        From then on all rates of the node are ``rates × factor``.
    distance : Distance, optional
        What being apart costs gangs, see :mod:`gangwise.jobs.distance`.
    """

    rates: Floats | None = None
    noise: Floats | None = None
    downs: Sequence[tuple[float, int]] = ()
    ups: Sequence[tuple[float, int]] = ()
    factors: Sequence[tuple[float, int, float]] = ()
    drains: Sequence[tuple[float, int]] = ()
    cancels: Sequence[tuple[float, int]] = ()
    distance: DistanceCosts | None = None

"""Jobs, nodes and what happens to them: the tables that a simulation plays.

Amounts of devices are whole thousandths (int64), as Kubernetes counts them: books balance exactly.
Times are seconds from any common origin. Jobs are kept in the order of (submission, row of the
log), which is also the order that breaks every tie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.frames import Tabular

Bools = npt.NDArray[np.bool_]


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
            has = {k: self.capacity[n, i] / 1000 for i, k in enumerate(self.devices)}
            yield Node(name, has, self.labels[n], self.rates[n])

    def declared(self, job_types: Sequence[str]) -> Floats:
        """Declared rates [L, N]."""
        rates = np.ones((len(job_types), len(self)))
        for n, rate in enumerate(self.rates):
            if isinstance(rate, Mapping):
                rates[:, n] = [rate.get(name, 1.0) for name in job_types]
            else:
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
    """

    demand: tuple[int, ...]
    per_node: int = 0
    constraint: tuple[tuple[str, str], ...] = ()


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
    tasks : int
        All are placed at once, or none.
    shape : Shape
        What one task asks for.
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
        """Jobs left."""
        return self.read - sum(rows.size for rows in self.set_aside.values())

    def lines(self) -> list[str]:
        """To be printed."""
        lines = [f"{self.played:,} of {self.read:,} jobs are played"]
        for reason, rows in self.set_aside.items():
            shown = ", ".join(map(str, rows[:3])) + (", …" if rows.size > 3 else "")
            lines.append(f"set aside: {rows.size:,} {reason} (row{'s' * (rows.size > 1)} {shown})")
        return lines + [f"assumed: {n:,} {what}" for what, n in self.noted.items()]


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
    shape, type, user : ndarray
        Places in ``shapes``, ``types`` and ``users``.
    after_from, after : ndarray
        Job j comes after the jobs ``after[after_from[j]:after_from[j+1]]``.
    recorded_start, recorded_end : ndarray
        As it happened, NaN where the log does not say.
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
    devices: tuple[str, ...]
    shapes: tuple[Shape, ...]
    types: tuple[str, ...]
    users: tuple[str, ...]
    account: Account

    @classmethod
    def of(
        cls,
        submit: npt.ArrayLike,
        run: npt.ArrayLike,
        tasks: npt.ArrayLike = 1,
        demand: Mapping[str, npt.ArrayLike] | None = None,
        *,
        id: npt.ArrayLike | None = None,
        limit: npt.ArrayLike = np.nan,
        per_node: npt.ArrayLike = 0,
        constraint: Sequence[Mapping[str, str]] | None = None,
        type: npt.ArrayLike | None = None,
        user: npt.ArrayLike | None = None,
        deadline: npt.ArrayLike = np.inf,
        budget: npt.ArrayLike = np.inf,
        priority: npt.ArrayLike = 0.0,
        after: Mapping[Any, Sequence[Any]] | None = None,
        recorded_start: npt.ArrayLike = np.nan,
        recorded_end: npt.ArrayLike = np.nan,
    ) -> Jobs:
        """From columns in the log's order; a scalar stands for a column of it.

        Parameters
        ----------
        submit, run, limit, deadline, budget : array_like
            Seconds; NaN where missing. A missing limit becomes the run time, and is noted.
        tasks : array_like
            Size of the gang.
        demand : mapping
            Device type → devices that one task asks for (default: one ``cpu``).
        per_node : array_like
            Most tasks on one node, 0 for as many as fit, 1 for one a node.
        constraint : sequence of mappings, optional
            Labels that the nodes must have, a mapping for each job.
        type, user : array_like, optional
            Names; what is learned is learned by type.
        after : mapping, optional
            Id → ids of jobs that must have ended before.

        Examples
        --------
        >>> jobs = Jobs.of(submit=[3, 0], run=[10, 5], tasks=[1, 2], demand={"gpu": [0.5, 1]})
        >>> jobs.id, jobs.shapes
        (array([1, 0]), (Shape(demand=(500,), ...), Shape(demand=(1000,), ...)))
        """
        submit = np.array(submit, dtype=np.float64)
        J = submit.size
        run, limit_given = _column(run, J), _column(limit, J)
        many, most = _column(tasks, J, whole=True), _column(per_node, J)
        started, ended = _column(recorded_start, J), _column(recorded_end, J)
        demand = {"cpu": 1.0} if demand is None else demand
        devices = tuple(demand)
        asked = [_once(_column(demand[k], J)) for k in devices]
        ids = np.arange(J) if id is None else np.array(id)
        if ids.shape != (J,):
            raise ScenarioError(f"{J} jobs have {ids.size} ids")

        set_aside: dict[str, Ints] = {}
        good = np.ones(J, dtype=bool)

        def reject(bad: npt.NDArray[Any], reason: str) -> None:
            rows = np.flatnonzero(bad & good)
            if rows.size:
                set_aside[reason] = rows
                good[rows] = False

        with np.errstate(invalid="ignore"):
            reject(~np.isfinite(submit), "without a submission time")
            reject(submit < 0, "submitted at a negative time")
            reject(_once(ended) < _once(started), "that ended before they started")
            reject(~np.isfinite(run), "without a run time")
            reject(run < 0, "with a negative run time")
            reject(~np.isfinite(many) | (many < 1), "with no task")
            if many.dtype.kind == "f":
                reject(many != np.floor(many), "with a part of a task")
            odd, thousandths = np.zeros(1, dtype=bool), []
            for amount in asked:
                told = np.isfinite(amount)
                odd = odd | ~told | (amount < 0)
                thousandths.append(np.where(told, np.rint(amount * 1000), 0).astype(np.int64))
            reject(odd, "with a missing or negative number of devices")
            reject(sum(thousandths, np.zeros(1, dtype=np.int64)) == 0, "that ask for no device")
        if id is not None:
            rising = ids.dtype.kind in "iu" and bool((ids[1:] > ids[:-1]).all())
            twice = np.zeros(1, dtype=bool)
            if not rising:
                twice = np.ones(J, dtype=bool)
                twice[np.unique(ids, return_index=True)[1]] = False
            reject(twice, "whose id came before")

        noted: dict[str, int] = {}
        after_from, after_rows = _dependencies(ids, after or {}, good, reject, noted)
        order = np.flatnonzero(good)
        in_order = order.size == J and bool((submit[1:] >= submit[:-1]).all())
        if not in_order:
            order = order[np.argsort(submit[order], kind="stable")]
        kept = order.size

        def chosen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            """Those that are played, in their order; one value that stands for all stays one."""
            if values.strides == (0,):
                return np.broadcast_to(values[:1], (kept,)) if kept else values[:0].copy()
            return values if in_order else values[order]

        run = chosen(run)
        missing = ~(chosen(limit_given) > 0)
        limits = np.where(missing, run, chosen(limit_given))
        if missing.any():
            noted["without a requested limit: the run time is taken for it"] = int(missing.sum())
        longer = int((run > limits).sum())
        if longer:
            noted["ran longer than they requested"] = longer

        shape, shapes = _shapes(
            [values if values.size == 1 else chosen(values) for values in thousandths],
            _once(chosen(most)),
            constraint,
            order,
        )
        types, names = _names(type, J, order, "job")
        users, user_names = _names(user, J, order, "user")
        starts, flat = np.broadcast_to(np.int64(0), (kept + 1,)), after_rows
        if after_rows.size:
            place = np.full(J, -1)
            place[order] = np.arange(kept)
            starts = np.concatenate([[0], np.cumsum(np.diff(after_from)[order])])
            flat = place[
                np.concatenate([after_rows[after_from[i] : after_from[i + 1]] for i in order])
            ]
        return cls(
            chosen(ids),
            order,
            chosen(submit),
            np.array(run) if run.strides == (0,) else run,
            limits,
            np.asarray(chosen(many), dtype=np.int64),
            shape,
            types,
            users,
            chosen(_column(deadline, J)),
            chosen(_column(budget, J)),
            chosen(_column(priority, J)),
            starts,
            flat,
            chosen(started),
            chosen(ended),
            devices,
            shapes,
            names,
            user_names,
            Account(J, set_aside, noted),
        )

    def __len__(self) -> int:
        return self.submit.size

    def columns(self) -> dict[str, Any]:
        """One array a column, names and devices written out; devices are of one task."""
        demand = np.array([shape.demand for shape in self.shapes])[self.shape] / 1000
        return {
            "id": self.id.astype(str),
            "submit": self.submit,
            "run": self.run,
            "limit": self.limit,
            "tasks": self.tasks,
            **{kind: demand[:, k] for k, kind in enumerate(self.devices)},
            "type": np.array(self.types)[self.type],
            "user": np.array(self.users)[self.user],
            "deadline": self.deadline,
            "budget": self.budget,
            "priority": self.priority,
            "recorded_start": self.recorded_start,
            "recorded_end": self.recorded_end,
        }

    def __repr__(self) -> str:
        return f"Jobs({len(self):,} jobs of {len(self.users):,} users, {', '.join(self.devices)})"

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
        )


def _column(values: npt.ArrayLike, J: int, whole: bool = False) -> npt.NDArray[Any]:
    """A column of its own [J]; of a scalar a view of one value, which takes no room.

    With ``whole``, whole numbers stay so.
    """
    given = np.asarray(values)
    given = np.array(given, np.int64 if whole and given.dtype.kind in "iu" else np.float64)
    return given if given.shape == (J,) else np.broadcast_to(given, (J,))


def _once(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The one value of a column that a scalar stands for [1]; any other column as it is."""
    return column[:1] if column.strides == (0,) else column


def _dependencies(
    ids: npt.NDArray[Any],
    after: Mapping[Any, Sequence[Any]],
    good: Bools,
    reject: Any,
    noted: dict[str, int],
) -> tuple[Ints, Ints]:
    """Rows that each row comes after, without those that are not there and without cycles."""
    J = ids.size
    if not after:
        return np.zeros(J + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    row_of = {name: int(i) for i, name in reversed(list(enumerate(ids.tolist())))}
    before: list[list[int]] = [[] for _ in range(J)]
    unknown = 0
    for name, earlier in after.items():
        if name not in row_of:
            unknown += len(earlier)
            continue
        for other in dict.fromkeys(earlier):
            if other in row_of:
                before[row_of[name]].append(row_of[other])
            else:
                unknown += 1
    if unknown:
        noted["dependencies on jobs that are not in the log: dropped"] = unknown
    # Kahn's order; what is left over lies on a cycle or behind one. Only cycles are set aside:
    # leaves are peeled off from the other end as well.
    cyclic = _on_cycles(before)
    bad = np.zeros(J, dtype=bool)
    bad[cyclic] = True
    reject(bad, "that come after one another in a circle")
    dropped = 0
    for row in range(J):
        kept = [other for other in before[row] if good[other]]
        dropped += (len(before[row]) - len(kept)) if good[row] else 0
        before[row] = kept
    if dropped:
        noted["dependencies on jobs that were set aside: dropped"] = dropped
    lengths = np.array([len(b) for b in before], dtype=np.int64)
    flat = np.array([other for b in before for other in b], dtype=np.int64)
    return np.concatenate([[0], np.cumsum(lengths)]), flat


def _on_cycles(before: list[list[int]]) -> list[int]:
    """Rows on a cycle: strongly connected components of more than one row, or with a loop."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    J = len(before)
    rows = [row for row, others in enumerate(before) for _ in others]
    columns = [other for others in before for other in others]
    graph = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(J, J))
    _, component = connected_components(graph, connection="strong")
    size = np.bincount(component, minlength=J)
    loops = {row for row, others in enumerate(before) if row in others}
    return [row for row in range(J) if size[component[row]] > 1 or row in loops]


def _shapes(
    demand: list[Ints],
    per_node: npt.NDArray[Any],
    constraint: Sequence[Mapping[str, str]] | None,
    order: Ints,
) -> tuple[Ints, tuple[Shape, ...]]:
    """Number the distinct rows of (demand, tasks per node, constraint); columns are [J] or [1]."""
    J, K = order.size, len(demand)
    columns = [*demand, np.maximum(np.nan_to_num(per_node), 0).astype(np.int64)]
    named: list[tuple[tuple[str, str], ...]] = [()]
    if constraint is not None:
        asked = [tuple(sorted(constraint[i].items())) for i in order]
        named = list(dict.fromkeys(asked)) or [()]
        number = {c: i for i, c in enumerate(named)}
        columns.append(np.array([number[c] for c in asked], dtype=np.int64))
    code = np.broadcast_to(np.int64(0), (J,))
    first = np.zeros(min(J, 1), dtype=np.int64)
    for values in columns:
        if values.size < J or (values == values[:1]).all():
            continue
        different, inverse = np.unique(values, return_inverse=True)
        _, first, code = np.unique(
            code * different.size + inverse, return_index=True, return_inverse=True
        )
    of = [np.broadcast_to(values, (J,))[first].tolist() for values in columns]
    shapes = tuple(
        Shape(tuple(row[:K]), row[K], named[row[K + 1]] if constraint is not None else ())
        for row in zip(*of)
    )
    return code, shapes


def _names(
    values: npt.ArrayLike | None, J: int, order: Ints, default: str
) -> tuple[Ints, tuple[str, ...]]:
    if values is None:
        return np.broadcast_to(np.int64(0), (order.size,)), (default,)
    column = np.broadcast_to(np.asarray(values), (J,))[order]
    names, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names) or (default,)


# ----------------------------------------------------------------------------------- hidden truth


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
    """

    rates: Floats | None = None
    noise: Floats | None = None
    downs: Sequence[tuple[float, int]] = ()
    ups: Sequence[tuple[float, int]] = ()
    factors: Sequence[tuple[float, int, float]] = ()
    drains: Sequence[tuple[float, int]] = ()
    cancels: Sequence[tuple[float, int]] = ()

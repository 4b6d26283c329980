"""The boundary between a scheduler and a real cluster, on which one service acts at a time.

An engine runs jobs where it is asked to and reports what happened. It decides nothing: the
scheduler says which job starts where, the service keeps its own books of free devices. Both are
compared with ``nodes()`` and ``jobs()`` every few seconds, and what the engine says counts.

Rules that every engine keeps (``tests/engines/conformance.py`` tries each of them):

- ``place`` is all or nothing. The adapter validates it before the cluster sees it and raises
  :class:`Rejected`. Placing the same attempt of a job again is no error and starts nothing twice.
- Accepted is not started: ``started`` is an event, and may never come. ``preempt`` un-places.
- An attempt carries the number that ``place`` was given, and the cluster itself remembers it:
  a service that was killed finds it in ``jobs()``.
- Events come at least once, perhaps late, perhaps in another order; they are the same event if
  (kind, job, attempt, node) is the same. ``measured`` alone is new each time.
- Nothing is known without a measurement: a rank that did not report is left out, never counted
  as zero. Times of events are the cluster's (perhaps whole seconds) and train nothing; rates come
  from the ranks' own monotonic clocks.
- A cluster that does not answer raises :class:`EngineError`; the next call may work again.

Amounts of devices are whole thousandths, as in the scheduler's books.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from gangwise.core.errors import Rejected
from gangwise.engines import intake
from gangwise.engines.intake import Malformed, Quarantine, read_file

Ending = Literal["finished", "failed", "killed", "cancelled"]
"""``failed``: the job's own command did not succeed; ``killed``: at its limit."""
EventKind = Literal["submitted", "started", "measured", Ending, "preempted", "node_down", "node_up"]
"""``preempted``: taken off its nodes by the scheduler, or because a node died (the cause says
which, the detail in words); the job is pending again."""

Cause = Literal["released", "node_failed"]
"""Why a job is off its nodes: it was taken off (by the scheduler, a user, an operator, or because
a Binding failed), or a node of its own failed. Schedulers are told of the second as a failure."""

Phase = Literal["pending", "placed", "running", Ending]
ENDED: frozenset[Phase] = frozenset(get_args(Ending))
KINDS: frozenset[str] = frozenset(get_args(EventKind))
PHASES: frozenset[str] = frozenset(get_args(Phase))
CAUSES: frozenset[str] = frozenset(get_args(Cause))
ATTEMPTS = 10**9
AFTER, RESERVED = "it waits for its dependency", "reserved: "
"""How the reasons begin of a job that comes after another, and of a node that is reserved."""
NONE = (math.inf,)
NOT_KNOWN = (math.nan,)


class Capabilities(NamedTuple):
    """Capabilities of a kind of cluster."""

    start_latency: float  # seconds from ``place`` to the first rank, usually
    exact_split: bool = True
    """A node gets exactly the tasks that it was given. Otherwise the nodes are as placed, the
    cluster divides the tasks among them as it likes, and ``jobs()`` says how it did."""
    at_once: int = 1  # how many calls of ``place`` may run, each in a thread of its own


@dataclass(frozen=True)
class EngineNode:
    """A machine as the cluster describes it."""

    name: str
    devices: Mapping[str, int]  # thousandths of each device type that jobs may use
    labels: Mapping[str, str] = field(default_factory=dict)
    """What jobs may ask for, and what declared rates are looked up by."""
    up: bool = True  # whether it takes tasks now: not down, drained, cordoned or silent
    reason: str = ""  # why it is not up

    def __post_init__(self) -> None:
        intake.name(self.name, "its name")
        intake.table(self.devices, "devices", intake.amount)
        intake.table(self.labels, "labels", _any_name)
        # For people to read: it is cut where a name would be refused.
        object.__setattr__(self, "reason", intake.clean_text(self.reason))


class TaskGroup(NamedTuple):
    """Tasks that ask for the same, of a gang whose tasks are unlike: its workers, or its head."""

    tasks: int
    demand: Mapping[str, int]  # thousandths of each device type that one task asks for
    per_node: int  # most tasks of the group on one node, 0 for as many as fit
    constraint: Mapping[str, str]  # labels that nodes must have


@dataclass(frozen=True)
class EngineJob:
    """Job as a user submitted it; times in seconds since 1970."""

    id: str  # the cluster's own, unique for ever
    job_type: str
    user: str
    submitted: float
    tasks: int  # ranks of the gang
    demand: Mapping[str, int]  # thousandths of each device type that one task asks for
    per_node: int = 0  # most tasks on one node, 0 for as many as fit
    constraint: Mapping[str, str] = field(default_factory=dict)  # labels that nodes must have
    limit: float = math.inf  # seconds that the user requested
    deadline: float = math.inf
    priority: float = 0.0
    work: float = math.nan  # seconds of work on a node of rate 1, where the user declared it
    groups: tuple[TaskGroup, ...] = ()
    """Of a gang whose tasks are unlike, see :meth:`of_groups`; empty where they are alike."""
    apart: bool = False  # no two groups share a node

    @classmethod
    def of_groups(cls, groups: Iterable[TaskGroup], **about: Any) -> EngineJob:
        """A gang of one or several groups of tasks, which start together.

        Of several, ``tasks`` counts all and ``demand`` is what they ask for together.
        """
        groups = tuple(groups)
        if len(groups) == 1:
            return cls(**groups[0]._asdict(), **about)
        # What all groups hold together, for whoever counts devices and not tasks.
        total = Counter[str]()
        for group in groups:
            for device, amount in group.demand.items():
                total[device] += amount * group.tasks
        return cls(tasks=sum(g.tasks for g in groups), demand=dict(total), groups=groups, **about)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> EngineJob:
        """From its fields as JSON keeps them, among others; the journals of 0.2 lack some."""
        return cls(**{f.name: row[f.name] for f in fields(cls) if f.name in row})

    @property
    def parts(self) -> tuple[TaskGroup, ...]:
        """Its groups; one where all tasks are alike."""
        alike = TaskGroup(self.tasks, self.demand, self.per_node, self.constraint)
        return self.groups or (alike,)

    def __post_init__(self) -> None:
        groups = tuple(TaskGroup(*group) for group in self.groups)  # lists, where JSON kept them
        object.__setattr__(self, "groups", groups)
        intake.name(self.id, "its id")
        intake.name(self.job_type, "its type")
        intake.name(self.user, "its user", empty=True)
        intake.number(self.submitted, "the time of its submission")
        intake.whole(self.tasks, "its number of tasks", 1)
        for part in self.parts:
            intake.whole(part.tasks, "its number of tasks", 1)
            intake.table(part.demand, "what it asks for:", intake.amount)
            # A task without devices would fit on any node, any number of times.
            if not any(part.demand.values()):
                raise intake.Malformed("it asks for no device")
            intake.whole(part.per_node, "its number of tasks on a node")
            intake.table(part.constraint, "its constraint", _any_name)
        intake.number(self.limit, "its time limit", also=NONE)
        intake.number(self.deadline, "its deadline", also=NONE)
        intake.number(self.priority, "its priority", -1e15, 1e15)
        intake.number(self.work, "its work", 0.0, 1e15, also=NOT_KNOWN)


class Placed(NamedTuple):
    """Tasks of a job on a node, and the numbers of the devices that they use there, where known."""

    node: str
    tasks: int
    devices: tuple[int, ...] = ()
    group: int = 0  # its place among the groups of a job whose tasks are unlike


class RankReport(NamedTuple):
    """Measurements of one rank of itself."""

    node: str
    rank: int
    work: float  # units done so far: the command's own, or seconds at rate 1
    seconds: float  # in which they were done, by the rank's monotonic clock


@dataclass(frozen=True)
class EngineEvent:
    """Something that happened on the cluster."""

    kind: EventKind
    time: float  # seconds since 1970, by the cluster's clock
    job: str = ""  # empty for events of nodes
    attempt: int = 0  # as given to ``place``; 0 where the job was never placed
    node: str = ""  # for events of nodes
    ranks: tuple[RankReport, ...] = ()  # of ``measured`` and of ends: those that reported
    detail: str = ""  # for people; nothing is decided by it
    cause: Cause = "released"  # of ``preempted``

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise intake.Malformed(f"an event is of the kind {intake.quoted(self.kind)}")
        intake.number(self.time, "the time of an event")
        intake.name(self.job, "the job of an event", empty=True)
        intake.whole(self.attempt, "the attempt of an event", 0, ATTEMPTS)
        intake.name(self.node, "the node of an event", empty=True)
        object.__setattr__(self, "detail", intake.clean_text(self.detail))


@dataclass(frozen=True)
class Status:
    """A row of the cluster's table of jobs."""

    job: EngineJob
    phase: Phase  # ``placed`` is accepted and not yet started
    attempt: int = 0  # number of its latest placement, 0 for none
    placed: tuple[Placed, ...] = ()
    """Where it runs or is to run; where it ran, if it has ended and the cluster remembers."""
    started: float = math.nan  # by the cluster's clock, as ``ended``
    ended: float = math.nan
    detail: str = ""
    foreign: bool = False  # another scheduler placed it: it takes devices, and is not ours to touch
    cause: Cause = "released"  # why it is pending after it was placed

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise intake.Malformed(f"its phase is {intake.quoted(self.phase)}")
        if self.cause not in CAUSES:
            raise intake.Malformed(f"the cause of its end is {intake.quoted(self.cause)}")
        intake.whole(self.attempt, "its attempt", 0, ATTEMPTS)
        for p in self.placed:
            intake.name(p.node, "a node that it is on")
            intake.whole(p.tasks, f"its number of tasks on {p.node}", 1)
            intake.whole(p.group, "the group of its tasks", 0, len(self.job.parts) - 1)
            for device in p.devices:
                intake.whole(device, f"a device of it on {p.node}")
        intake.number(self.started, "its start", also=NOT_KNOWN)
        intake.number(self.ended, "its end", also=NOT_KNOWN)
        object.__setattr__(self, "detail", intake.clean_text(self.detail))


class Engine(Protocol):
    """A cluster. Every method may raise :class:`EngineError` when it does not answer."""

    @property
    def name(self) -> str:
        """Kind of cluster, as in ``--engine``."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def quarantine(self) -> Quarantine:
        """Rows of the cluster that could not be read."""

    def nodes(self) -> list[EngineNode]:
        """All nodes of the cluster, up or not."""

    def jobs(self) -> list[Status]:
        """Jobs that wait or run, and those that ended in the last minutes at least."""

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        """Start a pending job on exactly these nodes, whole.

        Returns when the cluster has accepted it. The attempt that runs already, on the same
        nodes, is accepted again. Raises Rejected when it cannot be: then nothing was started.
        """

    def preempt(self, job: str) -> None:
        """Take a placed or running job off its nodes; it is pending again.

        One that is pending or has ended is left as it is.
        """

    def cancel(self, job: str) -> None:
        """End a job for good. One that has ended is left as it is."""

    def events(self, timeout: float) -> list[EngineEvent]:
        """Events since the last call; waits at most ``timeout`` seconds for something."""

    def close(self) -> None:
        """Disconnect from the cluster. Jobs run on."""


def _any_name(value: object, what: str) -> str:
    return intake.name(value, what, empty=True)


def tasks_by_node(placed: Iterable[Placed]) -> dict[tuple[str, int], int]:
    """Node and group → how many tasks of the group the node gets.

    >>> tasks_by_node([Placed("n1", 2), Placed("n2", 1), Placed("n1", 1)])
    {('n1', 0): 3, ('n2', 0): 1}
    """
    count = Counter[tuple[str, int]]()
    for p in placed:
        count[p.node, p.group] += p.tasks
    return dict(count)


def check_placement(
    status: Status, placed: Sequence[Placed], nodes: Iterable[EngineNode], table: Iterable[Status]
) -> None:
    """Raise Rejected unless the cluster, as it is now, can take this placement of a job.

    ``table`` has all jobs, or those on the nodes in question; those placed or running hold devices.

    >>> node = EngineNode("n1", {"gpu": 4000})
    >>> job = EngineJob("7", "train", "bio", 0.0, tasks=2, demand={"gpu": 2000})
    >>> waits = Status(job, "pending")
    >>> check_placement(waits, [Placed("n1", 2)], [node], [waits])
    >>> check_placement(waits, [Placed("n1", 1)], [node], [waits])
    Traceback (most recent call last):
    gangwise.core.errors.Rejected: job 7 has 2 tasks, 1 are placed; all or none
    """
    job = status.job
    if status.phase != "pending":
        raise Rejected(f"job {job.id} is {status.phase}, not pending")
    if any(p.tasks < 1 for p in placed):
        raise Rejected(f"job {job.id} gets fewer than one task on a node")
    parts, count = job.parts, Counter[int]()
    for p in placed:
        count[p.group] += p.tasks
    for g, part in enumerate(parts):
        # What is left over after the last group is of groups that the job does not have.
        if count.pop(g, 0) != part.tasks or (count and g == len(parts) - 1):
            total = sum(p.tasks for p in placed if p.group == g)
            which = f" in group {g}" if job.groups else ""
            raise Rejected(
                f"job {job.id} has {part.tasks} tasks{which}, {total} are placed; all or none"
            )
    # Only the nodes in question: a cluster has thousands, and many placements come at once.
    names = {p.node for p in placed}
    by_name = {node.name: node for node in nodes if node.name in names}
    # Free devices are counted afresh from the cluster's table: the scheduler's books may be behind.
    free = {name: Counter(node.devices) for name, node in by_name.items()}
    # As many pairs as nodes: then no node has tasks of two groups.
    on = {(p.node, p.group) for p in placed}
    if job.apart and len(on) > len({node for node, _ in on}):
        raise Rejected(f"job {job.id} has groups of tasks that must not share a node")
    for holder in table:
        if holder.phase not in ("placed", "running") or holder.job.id == job.id:
            continue
        for p in holder.placed:
            if p.node in free:
                for device, amount in holder.job.parts[p.group].demand.items():
                    free[p.node][device] -= amount * p.tasks
    for p in placed:
        node = by_name.get(p.node)
        if node is None:
            raise Rejected(f"job {job.id} is placed on node {p.node}, which is not there")
        if not node.up:
            reason = f" ({node.reason})" if node.reason else ""
            raise Rejected(f"job {job.id} is placed on node {p.node}, which is not up{reason}")
        part = parts[p.group]
        for label, value in part.constraint.items():
            if node.labels.get(label) != value:
                raise Rejected(f"job {job.id} asks for {label}={value}, which {p.node} has not")
        for device, amount in part.demand.items():
            if free[p.node][device] < amount * p.tasks:
                raise Rejected(
                    f"job {job.id} needs {amount * p.tasks / 1000:g} {device} on node {p.node}, "
                    f"where {free[p.node][device] / 1000:g} are free"
                )
            # Pieces of one placement may be on the same node, and count together.
            free[p.node][device] -= amount * p.tasks
    # By node: several pieces may name the same one.
    for (name, g), tasks in tasks_by_node(placed).items():
        if parts[g].per_node and tasks > parts[g].per_node:
            most = parts[g].per_node
            raise Rejected(f"job {job.id} allows {most} tasks a node, {name} gets {tasks}")


def events_between(
    old: Status | None, row: Status, ranks: Callable[[Status], tuple[RankReport, ...]]
) -> list[EngineEvent]:
    """Events of a job between two looks at its row; ``old`` is None for a new one.

    ``ranks`` gives the reports of the ranks of its latest attempt, for an event that ends it.
    """
    events: list[EngineEvent] = []
    at, name = time.time(), row.job.id
    if old is None or (old.foreign and not row.foreign and row.phase == "pending"):  # ours now
        events.append(EngineEvent("submitted", row.job.submitted, name))
    if old is None:
        # As if it had waited before it was seen, so that all that it went through becomes events.
        old = Status(row.job, "pending", row.attempt if row.phase == "pending" else 0)
    if old.phase in ENDED:
        return events
    # A job may be placed, fail and wait again between two looks: its attempt tells.
    was_placed = old.phase in ("placed", "running")
    off: int | None = None
    if was_placed and (row.phase == "pending" or row.attempt != old.attempt):
        off = old.attempt
    elif row.phase == "pending" and row.attempt > old.attempt:  # came and went between looks
        off = row.attempt
    if off is not None:
        detail, cause = row.detail, row.cause
        events.append(EngineEvent("preempted", at, name, off, detail=detail, cause=cause))
    # Of a gang that is placed, some ranks may have started: it starts with the last of them.
    begun = row.phase == "running" or (row.phase in ENDED and not math.isnan(row.started))
    if begun and not (old.phase == "running" and old.attempt == row.attempt):
        since = at if math.isnan(row.started) else row.started
        events.append(EngineEvent("started", since, name, row.attempt))
    if row.phase == "pending" or row.phase == "placed" or row.phase == "running":
        return events
    end = at if math.isnan(row.ended) else row.ended
    return [*events, EngineEvent(row.phase, end, name, row.attempt, "", ranks(row), row.detail)]


class Changes:
    """Turns looks at a cluster's table into events, for engines that get no events themselves.

    A client that has just been opened has seen nothing yet, so it reports everything again.
    ``ranks`` gives the reports of the ranks of a job's latest attempt.
    """

    def __init__(self, ranks: Callable[[Status], tuple[RankReport, ...]]):
        self._ranks = ranks
        self.table: dict[str, Status] = {}  # of the last look, as ``_up``
        self._up: dict[str, bool] = {}
        self._reports: dict[str, tuple[RankReport, ...]] = {}

    def look(self, table: dict[str, Status], up: dict[str, bool]) -> list[EngineEvent]:
        """Events between the last look and this one; ``up`` says which nodes are."""
        at = time.time()
        events: list[EngineEvent] = []
        for name, is_up in up.items():
            # A node counts as up before it was seen: one that is down at first is news.
            if self._up.get(name, True) != is_up:
                events.append(EngineEvent("node_up" if is_up else "node_down", at, node=name))
        # A node that is listed no more is down, whatever it was.
        events += [EngineEvent("node_down", at, node=name) for name in self._up if name not in up]
        for name, row in table.items():
            events += events_between(self.table.get(name), row, self._ranks)
        for name, earlier in self.table.items():
            if name not in table and earlier.phase not in ENDED:
                detail = "the cluster no longer knows it"
                events.append(EngineEvent("failed", at, name, earlier.attempt, detail=detail))
        self.table, self._up = table, up
        running = [r for r in table.values() if r.phase == "running" and not r.foreign]
        # Only of jobs that run now: what others reported is dropped here.
        reports, self._reports = self._reports, {}
        for row in running:
            earlier_ranks = reports.get(row.job.id, ())
            # A report may be away for a moment, while its folder cannot be
            # read: the last ones stand.
            ranks = self._reports[row.job.id] = self._ranks(row) or earlier_ranks
            if ranks != earlier_ranks:
                events.append(EngineEvent("measured", at, row.job.id, row.attempt, ranks=ranks))
        return events


# Reports of ranks. Ranks write into a folder that others may write to as well, so only what a rank
# of this job may have written counts: a regular file of bounded size, owned by the job's user,
# under the name of a rank that the job has. Nothing is waited for.

REPORT_BYTES = 64 * 1024  # a rank that writes a longer report writes nonsense
RANKS = 4096  # of so many ranks of a job, the first ones, reports are read


def read_reports(
    folder: Path | str, job: str, run: int, ranks: int, owner: int | None
) -> tuple[RankReport, ...]:
    """Reports of the ranks of one start of a job, by rank; those that make no sense are left out.

    ``run`` is the cluster's number of this start, ``owner`` the uid of the job's user: only files
    of this user count, and none where the user is not known.
    """
    # The name becomes a part of a path.
    if owner is None or "/" in job:
        return ()
    names = (f"{folder}/{job}.{run}.{rank}.json" for rank in range(min(ranks, RANKS)))
    reports = (read_report(path, owner) for path in names)
    return tuple(report for report in reports if report is not None)


def read_report(path: Path | str, owner: int | None) -> RankReport | None:
    """One report; None where it is missing, not of its owner, says nothing, or makes no sense.

    ``owner`` is None where any will do.
    """
    try:
        file = read_file(path, REPORT_BYTES)
        if file is None or owner not in (None, file.owner):
            return None
        content = json.loads(file.content)
        report = RankReport(
            intake.name(content["node"], "its node"),
            intake.whole(content["rank"], "its rank"),
            float(content["work"]),
            float(content["seconds"]),
        )
    except (OSError, Malformed, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    # NaN, zero and infinity say nothing of a speed, and would spoil what is learned.
    rate = report.work / report.seconds if report.seconds > 0 else math.nan
    return report if 0 < rate < math.inf else None

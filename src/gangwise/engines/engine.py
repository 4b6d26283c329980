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

What clusters, users and ranks wrote is data, and some of it is hostile. Nodes, jobs, rows and
events check themselves as they are made, whichever engine makes them; so does a job that is read
back from the journal. An engine reads each row on its own: one that cannot be read is
*quarantined*, which means left alone and named, and the others count. Files that users write are
opened by :func:`read_file`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

from gangwise.core.errors import EngineError, Rejected

NAME = 600  # characters of a name
LONGEST_TEXT = 1000  # characters of what a cluster says; the rest is cut
ENTRIES = 10_000  # labels or device types of a node, or of a job's constraint
TASKS = 1_000_000  # ranks of a job
AMOUNT = 10**12  # thousandths of a device; times TASKS it is below 2⁶³
LATEST = 1e11  # seconds since 1970, in the year 5138; longer than any limit
KEPT = 1000  # names that are kept of each kind; all are counted

T = TypeVar("T")
Row = TypeVar("Row")


class Malformed(EngineError):  # noqa: N818 - what the row is
    """A row makes no sense; the message says which field of it."""


# Values


def name(value: Any, what: str, empty: bool = False) -> str:
    """A name: text that can be written as UTF-8, of bounded length, without NUL."""
    if not isinstance(value, str):
        raise Malformed(f"{what} is {quoted(value)}, not text")
    if not value and not empty:
        raise Malformed(f"{what} is empty")
    if len(value) > NAME:
        raise Malformed(f"{what} has {len(value)} characters; at most {NAME}")
    # JSON can hold lone surrogates, which no UTF-8 text has.
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        raise Malformed(f"{what} is {quoted(value)}, which is not UTF-8 text")
    return value


def whole(value: Any, what: str, least: int = 0, most: int = TASKS) -> int:
    # True is an int in Python, and no count.
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{what} is {quoted(value)}, not a whole number")
    if not least <= value <= most:
        raise Malformed(f"{what} is {quoted(value)}; give {least} to {most}")
    return value


def number(
    value: Any, what: str, least: float = 0.0, most: float = LATEST, also: tuple[float, ...] = ()
) -> float:
    """A number within bounds, or one of ``also`` (inf, NaN), which mean that there is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Malformed(f"{what} is {quoted(value)}, not a number")
    # NaN is equal to nothing, itself included.
    if not least <= value <= most and not any(
        value == special or (value != value and special != special) for special in also
    ):
        raise Malformed(f"{what} is {quoted(value)}; give {least:g} to {most:g}")
    return value


def table(value: Any, what: str, check: Callable[[Any, str], Any]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Malformed(f"{what} is {quoted(value)}, not a table")
    if len(value) > ENTRIES:
        raise Malformed(f"{what} has {len(value)} entries; at most {ENTRIES}")
    for key, entry in value.items():
        check(entry, f"{what} {name(key, f'a name in {what}')}")
    return value


def amount(value: Any, what: str) -> int:
    return whole(value, what, 0, AMOUNT)


def thousandths(value: Any, what: str) -> int:
    """A number of devices in thousandths; more than none is at least one thousandth."""
    exact = number(value, what, 0.0, AMOUNT / 1000) * 1000
    rounded = round(exact)
    if exact > 0 and rounded < 1:
        raise Malformed(f"{what} is {quoted(value)}; give at least a thousandth")
    return rounded


def quoted(value: Any) -> str:
    """Quote what others wrote, in a message: short, and text whatever it is."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception as error:  # huge whole numbers, for one, have no text
        text = f"a {type(value).__name__} ({type(error).__name__})"
    short = text if len(text) <= 60 else text[:57] + "..."
    return ascii(short) if isinstance(value, str) else short


def clean_text(value: Any) -> str:
    """Text of a cluster for people, cut to size; bytes that are no text become question marks."""
    text = value if isinstance(value, str) else quoted(value)
    return text[:LONGEST_TEXT].encode(errors="replace").decode()


# Files


class Written(NamedTuple):
    content: bytes
    owner: int


def read_file(path: Path | str, most: int) -> Written | None:
    """A regular file of bounded size, without waiting for anybody; None where it is not there.

    A user may put there a FIFO without a writer, a link to a device, a folder, or any size;
    they raise Malformed.
    """
    # Without O_NONBLOCK opening a FIFO would wait for a writer who never comes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _STRANGE:
            raise Malformed(f"{os.path.basename(path)} is a link, or not a file") from None
        raise
    try:
        # The open file is judged and not its name, which may lead elsewhere by now.
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Malformed(f"{os.path.basename(path)} is not a regular file")
        if about.st_size > most:
            raise Malformed(f"{os.path.basename(path)} has {about.st_size} bytes; at most {most}")
        return Written(os.read(handle, most), about.st_uid)
    finally:
        os.close(handle)


def read_json(path: Path | str, most: int) -> Any:
    """The JSON of a file, read by :func:`read_file`; None where it is missing or empty.

    It is empty where the owner of a lock was killed before it wrote its name.
    """
    file = read_file(path, most)
    if file is None or not file.content:
        return None
    try:
        return json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{os.path.basename(path)} is not JSON: {clean_text(str(error))}") from None


# Of a link with O_NOFOLLOW (ELOOP, on BSD EMLINK), a socket (ENXIO), and a folder.
_STRANGE = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)


# Quarantine


class Quarantine:
    """Records that cannot be read, by kind (``job``, ``node``, …) and name, and why."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()  # how many of each kind ever came in
        self._why: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def put(self, kind: str, name: Any, why: BaseException | str) -> None:
        if isinstance(why, BaseException) and not isinstance(why, EngineError):
            why = f"{type(why).__name__}: {why}"
        with self._lock:
            reasons = self._why.setdefault(kind, {})
            name = clean_text(name)[:NAME]
            self.total[kind] += name not in reasons
            # Bounded, since whoever writes rows could fill the memory with names.
            if len(reasons) < KEPT or name in reasons:
                reasons[name] = clean_text(str(why))

    def clear(self, kind: str, name: str) -> None:
        with self._lock:
            self._why.get(kind, {}).pop(clean_text(name)[:NAME], None)

    def read(
        self, kind: str, name: str, do: Callable[[], T], passes: tuple[type[Exception], ...] = ()
    ) -> T | None:
        """The result of ``do``; None where it fails, and then its error is kept here.

        ``passes`` are errors that say that the cluster does not answer.
        """
        try:
            result = do()
        except Exception as error:
            # A cluster that does not answer says nothing about the row.
            if isinstance(error, passes) and not isinstance(error, Malformed | Rejected):
                raise
            self.put(kind, name, error)
            return None
        self.clear(kind, name)
        return result

    def read_all(
        self,
        kind: str,
        rows: Iterable[Row],
        read: Callable[[Row], T | None],
        name_of: Callable[[Row], Any],
        before: Mapping[str, T] | None = None,
    ) -> list[T]:
        """Read all rows of a kind; those that cannot be read are kept here, with the reason.

        Of one that could be read ``before``, what it was then stands. Raises EngineError when the
        cluster does not answer meanwhile.
        """
        results, bad = [], Quarantine()
        for place, row in enumerate(rows):
            try:
                if (result := read(row)) is not None:
                    results.append(result)
            except Exception as error:
                if isinstance(error, EngineError) and not isinstance(error, Malformed | Rejected):
                    raise
                try:
                    label = clean_text(name_of(row))
                except Exception:
                    label = ""
                bad.put(kind, label or f"row {place + 1}", error)
                if before and label in before:
                    results.append(before[label])
        with self._lock:
            # A whole list replaces what was kept of its kind: rows that can be read again are out.
            old_reasons, reasons = self._why.get(kind, {}), bad._why.get(kind, {})
            self.total[kind] += len(reasons.keys() - old_reasons.keys())
            self._why[kind] = reasons
        return results

    def rows(self) -> list[dict[str, str]]:
        with self._lock:
            return [
                {"kind": kind, "name": name, "why": f"left alone: unreadable, because {reason}"}
                for kind, rows in self._why.items()
                for name, reason in rows.items()
            ]


def distinct(rows: Iterable[T], key: Callable[[T], str], left: Quarantine, kind: str) -> list[T]:
    """One row for each name; where rows of one name differ, none of them is taken."""
    by_name: dict[str, T] = {}
    twice = set()
    for row in rows:
        # The same row twice is one row: only a contradiction makes both of them doubtful.
        if by_name.setdefault(key(row), row) != row:
            twice.add(key(row))
    for name in twice:
        del by_name[name]
        left.put(kind, name, "it is listed more than once")
    return list(by_name.values())


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
        name(self.name, "its name")
        table(self.devices, "devices", amount)
        table(self.labels, "labels", _any_name)
        # For people to read: it is cut where a name would be refused.
        object.__setattr__(self, "reason", clean_text(self.reason))


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
        name(self.id, "its id")
        name(self.job_type, "its type")
        name(self.user, "its user", empty=True)
        number(self.submitted, "the time of its submission")
        whole(self.tasks, "its number of tasks", 1)
        for part in self.parts:
            whole(part.tasks, "its number of tasks", 1)
            table(part.demand, "what it asks for:", amount)
            # A task without devices would fit on any node, any number of times.
            if not any(part.demand.values()):
                raise Malformed("it asks for no device")
            whole(part.per_node, "its number of tasks on a node")
            table(part.constraint, "its constraint", _any_name)
        number(self.limit, "its time limit", also=NONE)
        number(self.deadline, "its deadline", also=NONE)
        number(self.priority, "its priority", -1e15, 1e15)
        number(self.work, "its work", 0.0, 1e15, also=NOT_KNOWN)


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
            raise Malformed(f"an event is of the kind {quoted(self.kind)}")
        number(self.time, "the time of an event")
        name(self.job, "the job of an event", empty=True)
        whole(self.attempt, "the attempt of an event", 0, ATTEMPTS)
        name(self.node, "the node of an event", empty=True)
        object.__setattr__(self, "detail", clean_text(self.detail))


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
            raise Malformed(f"its phase is {quoted(self.phase)}")
        if self.cause not in CAUSES:
            raise Malformed(f"the cause of its end is {quoted(self.cause)}")
        whole(self.attempt, "its attempt", 0, ATTEMPTS)
        for p in self.placed:
            name(p.node, "a node that it is on")
            whole(p.tasks, f"its number of tasks on {p.node}", 1)
            whole(p.group, "the group of its tasks", 0, len(self.job.parts) - 1)
            for device in p.devices:
                whole(device, f"a device of it on {p.node}")
        number(self.started, "its start", also=NOT_KNOWN)
        number(self.ended, "its end", also=NOT_KNOWN)
        object.__setattr__(self, "detail", clean_text(self.detail))


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
    return name(value, what, empty=True)


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
            name(content["node"], "its node"),
            whole(content["rank"], "its rank"),
            float(content["work"]),
            float(content["seconds"]),
        )
    except (OSError, Malformed, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    # NaN, zero and infinity say nothing of a speed, and would spoil what is learned.
    rate = report.work / report.seconds if report.seconds > 0 else math.nan
    return report if 0 < rate < math.inf else None

"""What the service knows, as a pure function of what has happened: a fold over records.

Everything that reaches the scheduler goes through :meth:`Ledger.apply` as a record of plain
values, in one order, and is written to the journal. So the ledger of a service that was killed is
its last checkpoint and the records since; and a recorded run, applied again, decides the same.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import numpy as np

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.engines import engine
from gangwise.jobs import books as job_books
from gangwise.jobs import choice, schedule
from gangwise.jobs.model import Job, Node, Nodes, Shape
from gangwise.jobs.scheduler import Composed, copy_of, create_scheduler

Record = tuple[Any, ...]  # Kind, time, and what the kind says; plain values, which JSON keeps
KINDS = {
    *("nodes", "job", "found", "started", "moved", "back", "rejected", "aside", "ended"),
    *("measured", "round", "pause", "every", "again"),
}
"""Kinds of records; the method of that name with an underscore takes one in."""

TYPES = 256  # so many job types are kept apart; later ones are one type, "other"
NO_LIMIT = 86_400.0  # seconds assumed of a job that requested no limit
FIRST = 3  # gangs of a job type that set the unit of its work
IMPLAUSIBLE = math.log(100.0)  # a log rate further from that of its node's label is no measurement
REMEMBERED = 50_000  # jobs that have ended and whose late events are still recognised
BACKOFF = 2.0  # seconds that a job waits after its first rejection; each further one doubles them


@dataclass
class ActiveJob:
    """A job that waits or runs, and its state."""

    asked: engine.EngineJob
    row: int
    phase: Literal["waiting", "placed", "running"] = "waiting"
    attempt: int = 0  # of its latest placement
    placed: tuple[engine.Placed, ...] = ()
    begun: float = math.nan  # when the attempt was placed, then when it started
    held: float = math.nan  # since when it holds its devices: when it was placed
    by: str = ""  # what placed it: "scheduler", "baseline" or "others"
    measured: bool = False
    rejected: int = 0
    until: float = -math.inf  # rejected lately: not offered to the scheduler before
    why: str = ""
    first: float = math.nan
    job: Job | None = field(default=None, compare=False)
    """As the scheduler sees it, over the device types that there are now."""
    possible: bool = True  # whether all nodes together, empty and up, could take it


@dataclass(frozen=True)
class Intent:
    """A decision: what the cluster is to do."""

    kind: Literal["place", "preempt"]
    job: str
    attempt: int
    placed: tuple[engine.Placed, ...]
    by: str


@dataclass(frozen=True)
class Ended:
    """A job that is over, as a row of the history."""

    asked: engine.EngineJob
    outcome: str
    attempt: int
    placed: tuple[engine.Placed, ...]
    started: float
    ended: float
    first: float
    held: float
    by: str
    rate: float


@dataclass
class Ledger:
    """Nodes, jobs and books, and a scheduler that hears of their changes."""

    scheduler: Any
    baseline: Any = "fcfs+easy+best-fit"
    every: int = 0  # of so many jobs, one goes to the nodes that the baseline chooses; 0: none
    rates: Mapping[str, float] = field(default_factory=dict)
    """Declared rate of nodes by ``label=value``; 1 where none fits."""
    act: bool = True  # whether jobs are placed here; otherwise they are only followed
    books: job_books.Books | None = None
    empty: job_books.Books | None = None  # of all nodes, up and free
    node_index: dict[str, int] = field(default_factory=dict)  # node → its place in the books
    jobs: dict[str, ActiveJob] = field(default_factory=dict)
    hosts: dict[str, engine.EngineNode] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    types_bound: int = -1  # how many job types the schedulers know of
    outcomes: OrderedDict[str, str] = field(default_factory=OrderedDict)
    """How jobs ended, so that their late events are recognised."""
    wake_times: dict[str, float] = field(default_factory=dict)
    """When the scheduler wants to be asked again about a job."""
    scales: dict[str, float] = field(default_factory=dict)
    """Job type → units of its work per second at rate 1."""
    unscaled: dict[str, list[tuple[float, job_books.Rate]]] = field(default_factory=dict)
    """Job type → what its first gangs measured, until they set that scale."""
    latest_rates: dict[str, float] = field(default_factory=dict)  # of running jobs
    implausible: int = 0  # measurements that were left out
    rounds: int = 0  # recorded rounds applied
    diverged: int = 0  # those of them in which this scheduler decided otherwise
    rows: int = 0  # jobs submitted so far
    now: float = 0.0
    last_look: float = 0.0  # when running jobs could move last
    intents: list[Intent] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    changed: bool = False  # whether a round of decisions is due
    paused: bool = False

    def __post_init__(self) -> None:
        self.scheduler = create_scheduler(self.scheduler)
        self.baseline = create_scheduler(self.baseline)
        for decider in (self.scheduler, self.baseline):
            if _rates_of(decider) == "oracle":
                raise ScenarioError("true rates are known in simulations only: choose learned")
        if self.every and not hasattr(self.baseline, "choice"):
            raise ScenarioError("the baseline chooses nodes: name one such as fcfs+easy+best-fit")

    @property
    def open_books(self) -> job_books.Books:
        """The books; there are none before the first node was seen."""
        assert self.books is not None
        return self.books

    # Taking in

    def apply(self, record: Record) -> None:
        """Take in a record. What does not fit what is known (twice, late) changes nothing."""
        kind, instant, *arguments = record
        if kind not in KINDS:
            raise engine.Malformed(f"there is no record of the kind {engine.quoted(kind)}")
        # Time never goes back, for a scheduler sees differences of times.
        self.now = max(self.now, engine.number(instant, "its time"))
        getattr(self, f"_{kind}")(*arguments)

    def _nodes(self, rows: Sequence[Sequence[Any]]) -> None:
        """All nodes as they are now: name, devices, labels, up, reason. Gone ones stay, down."""
        hosts = {
            r[0]: engine.EngineNode(r[0], dict(r[1]), dict(r[2]), bool(r[3]), r[4]) for r in rows
        }
        if hosts == self.hosts:
            return
        old_hosts, self.hosts = self.hosts, hosts
        self.changed = True
        devices = {name: (h.devices, h.labels) for name, h in hosts.items()}
        old_devices = {name: (h.devices, h.labels) for name, h in old_hosts.items()}
        if devices != old_devices:
            try:
                self._open()
            except Exception:
                self.hosts = old_hosts  # so that they are taken in again
                raise
        if self.books is None:
            return
        for n, name in enumerate(self.books.nodes.names):
            up = hosts[name].up
            if bool(self.books.up[n]) != up:
                self._set_up(n, up)

    def _job(self, row: Mapping[str, Any]) -> None:
        job = engine.EngineJob.of_row(row)
        if job.id in self.jobs or job.id in self.outcomes:
            return
        self.rows += 1
        self.jobs[job.id] = ActiveJob(job, self.rows)
        job_type = self._type(job)
        if job_type not in self.types:
            self.types.append(job_type)
        # Kept from before _open, which itself reports jobs that came before any node did.
        books = self.books
        if not set(job.demand) <= set(self._devices()):
            self._open()
        if books is not None:
            self._report(job_books.Event("submitted", self.now, self._as_job(self.jobs[job.id])))
        self.changed = True

    def _again(self, row: Mapping[str, Any], attempt: int) -> None:
        """A job is there although it had ended: a wrong end is taken back, or it was requeued."""
        if self.outcomes.pop(row["id"], None) is not None:
            self._job(row)
            # Attempts go on: a late event of an earlier placement is still recognised as old.
            self.jobs[row["id"]].attempt = attempt

    def _found(self, name: str, attempt: int, placed: Sequence[Sequence[Any]]) -> None:
        """The cluster placed a job, or had placed it before the service began."""
        active = self.jobs.get(name)
        if active is None or active.phase != "waiting":
            return
        active.attempt = attempt
        self._take(active, _placed(placed), "others")
        # Such a scheduler keeps a queue of its own, in which the job would still wait.
        if isinstance(self.scheduler, Composed) and self.books is not None:
            self.scheduler.queue.started(self._as_job(active), self.books, self.now)

    def _started(self, name: str, attempt: int) -> None:
        active = self.jobs.get(name)
        if active is None or active.phase != "placed" or attempt != active.attempt:
            return
        active.phase, active.begun = "running", self.now
        # The wait of a job ends at its first start, however often it starts again.
        if math.isnan(active.first):
            active.first = self.now
        running = self.open_books.running
        running[name] = replace(running[name], begun=self.now)
        self.changed = True

    def _moved(self, name: str, attempt: int, placed: Sequence[Sequence[Any]]) -> None:
        """The cluster divided the tasks among the nodes in another way."""
        active = self.jobs.get(name)
        if active is None or active.phase == "waiting" or attempt != active.attempt:
            return
        # First what was held is given back: some of it may be held again.
        self._hold(active, active.placed, 1)
        active.placed = _placed(placed)
        _, pieces = self._hold(active, active.placed)
        running = self.open_books.running[name]
        self.open_books.running[name] = replace(running, pieces=pieces)

    def _back(self, name: str, attempt: int, why: str, cause: engine.Cause) -> None:
        """Off its nodes, waiting again: preempted, un-placed, or its node died."""
        active = self.jobs.get(name)
        if active is None or active.phase == "waiting" or attempt < active.attempt:
            return
        self._give_back(active, "failed" if cause == "node_failed" else "preempted")
        active.phase, active.placed, active.why, active.attempt = "waiting", (), why, attempt
        self.changed = True

    def _rejected(self, name: str, attempt: int, why: str) -> None:
        """The cluster refused a placement: as if it had never been decided."""
        active = self.jobs.get(name)
        if active is None or active.phase == "waiting" or attempt != active.attempt:
            return
        self._give_back(active, "preempted", counts=False)
        active.phase, active.placed = "waiting", ()
        active.why = f"the cluster refused it: {why}"
        # Doubled each time, to four minutes: what is refused now is likely refused again soon.
        active.until = self.now + BACKOFF * 2.0 ** min(active.rejected, 7)
        active.rejected += 1
        self.wake_times[name] = active.until
        self.changed = True

    def _aside(self, name: str, until: float, why: str) -> None:
        """A waiting job is not offered to the scheduler for a while."""
        active = self.jobs.get(name)
        if active is not None and active.phase == "waiting":
            # It was held by hand: its wait begins with its release, not with its submission.
            if active.until == math.inf > until:
                active.asked, active.job = replace(active.asked, submitted=self.now), None
            active.until = self.wake_times[name] = until
            active.why = f"left alone{' for a while' if until < math.inf else ''}: {why}"
            self.changed = True

    def mend(self) -> None:
        """Open new books after a record that failed half-way, from the jobs' own states."""
        if self.books is not None:
            running = self.books.running
            # The states of jobs are what a record changes first, so the books follow them.
            for name in running.keys() - {n for n, k in self.jobs.items() if k.phase != "waiting"}:
                del running[name]
            for name, active in self.jobs.items():
                if name not in running:
                    active.phase, active.placed = "waiting", ()
        self._open()

    def _ended(
        self,
        name: str,
        outcome: str,
        attempt: int,
        ranks: Sequence[Sequence[Any]] = (),
        started: float | None = None,
        ended: float | None = None,
    ) -> None:
        """A job is over; ``started`` and ``ended`` are given where it came and went unseen."""
        active = self.jobs.get(name)
        # An end of an earlier attempt, heard late, says nothing of the present one.
        if active is None or outcome not in engine.ENDED or attempt < active.attempt:
            return
        rate = math.nan
        if active.phase != "waiting":
            rate = self._learn(active, ranks, ended=outcome == "finished")
            self._give_back(active, "finished" if outcome == "finished" else "killed")
        del self.jobs[name]
        self.wake_times.pop(name, None)
        self.latest_rates.pop(name, None)
        self.outcomes[name] = outcome
        # Late events of jobs that ended long ago are not recognised; they fit no job, and change
        # nothing.
        while len(self.outcomes) > REMEMBERED:
            self.outcomes.popitem(last=False)
        start = active.begun if active.phase == "running" else math.nan
        start = start if started is None else started
        end = self.now if ended is None else ended
        first_start = start if math.isnan(active.first) else active.first
        held_since = active.held if started is None else started
        row = (active.asked, outcome, active.attempt, active.placed)
        self.ended.append(Ended(*row, start, end, first_start, held_since, active.by, rate))
        self.changed = True

    def _measured(self, name: str, attempt: int, ranks: Sequence[Sequence[Any]]) -> None:
        active = self.jobs.get(name)
        if active is not None and active.phase == "running" and attempt == active.attempt:
            self._learn(active, ranks, ended=False)

    def _round(self, decided: Sequence[Sequence[Any]] | None = None) -> None:
        """One round of decisions; they become intents, and the books have them already.

        ``decided`` is what a recorded round came to: that is what holds, whatever this scheduler
        would have.
        """
        count = len(self.intents)
        try:
            self._decisions()
        except Exception:
            # A round counts whole or not at all: what it had placed is taken back.
            self._take_back(count)
            raise
        if decided is None:
            return
        self.rounds += 1
        wanted = [Intent(k, j, a, _placed(p), by) for k, j, a, p, by in decided]
        # A recorded round is what the cluster got. Where this scheduler (edited since, say)
        # decides otherwise, its decisions are taken back and the recorded ones are applied.
        if self.intents[count:] == wanted:
            return
        self.diverged += 1
        self._take_back(count)
        for intent in wanted:
            active = self.jobs.get(intent.job)
            if active is not None and intent.kind == "place" and active.phase == "waiting":
                active.attempt = intent.attempt
                self._take(active, intent.placed, intent.by)
            self.intents.append(intent)

    def _take_back(self, before: int) -> None:
        # Backwards, as each was taken on top of those before it.
        for mine in reversed(self.intents[before:]):
            active = self.jobs[mine.job]
            if mine.kind == "place":
                self._give_back(active, "preempted", counts=False)
                active.phase, active.placed, active.attempt = "waiting", (), mine.attempt - 1
        del self.intents[before:]

    def _pause(self, paused: bool) -> None:
        self.paused, self.changed = bool(paused), True

    def _every(self, every: int) -> None:
        """An operator sets how many jobs go where the baseline has them."""
        self.every = int(every)

    def _decisions(self) -> None:
        self.changed = False
        if self.books is None:
            return
        self._bind()
        if not self.act or self.paused:
            self.scheduler.place(
                job_books.Queue([]), self.books, self.now
            )  # it hears of the events
            self.books.events.clear()
            return
        for name in [name for name, at in self.wake_times.items() if at <= self.now]:
            del self.wake_times[name]
        # A round begins anew at most once for each job that the baseline places.
        for _ in range(len(self.jobs) + 1):
            if not self._decide():
                break

    def _decide(self) -> bool:
        """Whether the round must go on: a job of the baseline was placed on the way."""
        waiting = self._waiting()
        if not waiting:
            self._look_around()
            return False
        actions = self.scheduler.place(job_books.Queue(waiting), self.open_books, self.now)
        self.open_books.events.clear()
        freeing = False
        for i, action in enumerate(actions):
            if isinstance(action, job_books.Place) and freeing:
                # A preempted job holds its devices until the cluster lets it go.
                self._undone(action)  # its nodes may not be free before the cluster says so
                continue
            if isinstance(action, job_books.Ask):
                self.wake_times[action.job] = action.at
                continue
            active = self.jobs.get(action.job)
            if active is None:
                raise InfeasibleDecision(f"the scheduler acts on {action.job}, which is not there")
            if isinstance(action, job_books.Preempt):
                self._unplace(active)
                freeing = True
                continue
            # By the order of submission and not by chance, so that a replay
            # sends the same jobs there.
            if self.every <= 0 or active.row % self.every:
                self._place(active, action.tasks, "scheduler")
                continue
            job = self._as_job(active)
            # Where the baseline has no room, the scheduler's own nodes hold: the
            # comparison delays no job.
            chosen = choice.placed(self.baseline.choice, job, self.open_books, self.now)
            self._place(active, action.tasks if chosen is None else chosen[0], "baseline")
            # The scheduler planned the rest of the round around nodes that the baseline did not
            # take, so the round begins anew.
            for later in actions[i + 1 :]:  # planned around nodes that were then not taken
                if isinstance(later, job_books.Place):
                    self._undone(later)
            return True
        return False

    def _undone(self, action: job_books.Place) -> None:
        """Report that a job is off the nodes that the scheduler chose, where it never was."""
        if (active := self.jobs.get(action.job)) is not None:
            self._report(job_books.Event("preempted", self.now, self._as_job(active)))

    def _look_around(self) -> None:
        """While no job waits, running jobs may move."""
        look = float(getattr(self.scheduler, "look", math.inf))
        if self.books is None or self.now < self.last_look + look:
            return
        self.last_look = self.now
        actions = self.scheduler.migrations(self.books, self.now)
        self.books.events.clear()
        for action in actions:
            if isinstance(action, job_books.Preempt):  # placed again once the cluster has let it go
                self._unplace(self.jobs[action.job])

    def due(self) -> float:
        """Time of the next round if nothing happens; inf for none."""
        look = float(getattr(self.scheduler, "look", math.inf))
        running = self.books is not None and bool(self.books.running)
        looks = self.last_look + look if running else math.inf
        return min(min(self.wake_times.values(), default=math.inf), looks)

    # What is shown

    def explain(self, name: str) -> job_books.Explanation:
        """Reasons for which a job waits; raises UnknownName for a job that does not."""
        active = self.jobs.get(name)
        if active is not None and active.phase == "waiting":
            text, since, until = "", active.asked.submitted, math.inf
            kinds = {k for host in self.hosts.values() for k, n in host.devices.items() if n}
            if self.paused:
                text, since = "an operator has paused placing", self.now
            elif cannot := [k for k in active.asked.demand if k not in kinds]:
                text = f"no node has {', '.join(cannot)}"
            elif active.asked.groups and (refuses := schedule.refuses_groups(self.scheduler)):
                text = f"its tasks are unlike, and {refuses} does not place such jobs"
            elif not active.possible:
                text = "it is larger than the cluster, or than its nodes with the labels asked for"
            elif active.until > self.now:
                text, since, until = active.why, self.now, active.until
            if text:
                cause = "after" * text.startswith(engine.AFTER)
                return job_books.Explanation(name, text, (), since, until, cause=cause)
        self._bind()
        found: job_books.Explanation = self.scheduler.explain(name)
        if active is not None and self.books is not None and found.cause == "away":
            # With the reserved nodes it would have room, so that the
            # reservation is what it waits for.
            reserved = [
                self.hosts[n].reason.startswith(engine.RESERVED) for n in self.books.nodes.names
            ]
            if self.books.if_up(np.array(reserved)).has_room(self._as_job(active)):
                return replace(found, cause="reservation")
        return found

    def would(self) -> dict[str, tuple[engine.Placed, ...]]:
        """Starts that the scheduler would make now, were it to decide; it is not asked itself."""
        if self.books is None or not (waiting := self._waiting()):
            return {}
        self._bind()
        # A copy decides on a copy of the books, so that the scheduler itself learns nothing of it.
        actions = copy_of(self.scheduler).place(
            job_books.Queue(waiting), self.books.copy(), self.now
        )
        return {
            a.job: self._named(self._as_job(self.jobs[a.job]), a.tasks)
            for a in actions
            if isinstance(a, job_books.Place)
        }

    def slow_nodes(self) -> list[Any]:
        """Nodes that are slower than their label says, where the scheduler learns rates."""
        rates = self.learned
        return list(rates.slow_nodes()) if hasattr(rates, "slow_nodes") and rates.state else []

    @property
    def learned(self) -> Any:
        """Beliefs of the scheduler about rates, where it chooses nodes by them; else None."""
        return _rates_of(self.scheduler)

    def taken(self) -> tuple[list[Intent], list[Ended]]:
        intents, ended = self.intents, self.ended
        self.intents, self.ended = [], []
        return intents, ended

    # Inside

    def _devices(self) -> tuple[str, ...]:
        return () if self.books is None else self.books.nodes.devices

    def _open(self) -> None:
        """New books over the nodes as they are, with the jobs that run; none without a node."""
        if not self.hosts:
            return
        old_books = self.books
        # Books are made anew for other nodes or device types; what refers to places in the old ones
        # goes.
        self.unscaled.clear()  # they name nodes by their place
        # Types that only jobs ask for become a column of zeros: nodes and
        # shapes have the same axes.
        amounts = {k: 0.0 for active in self.jobs.values() for k in active.asked.demand}
        nodes = Nodes.of(
            Node(
                name,
                {k: host.devices.get(k, 0) / 1000 for k in {**dict(host.devices), **amounts}},
                dict(host.labels),
                self._declared(host),
            )
            for name, host in self.hosts.items()
        )
        self.books = job_books.Books.opened(nodes)
        self.empty = job_books.Books.opened(nodes)
        self.node_index = {name: n for n, name in enumerate(nodes.names)}
        # Shapes are tuples over the device types, which may be others now.
        for active in self.jobs.values():
            active.job = None
        if old_books is not None:
            self.books.events.extend(old_books.events)
        else:  # jobs that came before any node did
            for active in self.jobs.values():
                self._report(job_books.Event("submitted", self.now, self._as_job(active)))
        for n, name in enumerate(nodes.names):
            if not self.hosts[name].up:
                self.books.up[n] = False
                self.books.free[n] = 0
        # A running job holds its devices in the new books, too; a node that
        # is gone has none to hold.
        for name in old_books.running if old_books is not None else ():
            active = self.jobs[name]
            job, pieces = self._hold(active, active.placed)
            self.books.running[name] = job_books.Running(job, pieces, active.begun, 0.0)
        # Nodes have other places now: the schedulers are bound anew, though no job type came.
        # Nodes have other places now: the schedulers are bound anew, though no job type came.
        self.types_bound = -1
        self._bind()

    def _bind(self) -> None:
        """Give the schedulers nodes and job types: once a round, as it costs types × nodes."""
        if self.books is not None and self.types_bound != len(self.types):
            for decider in (self.scheduler, self.baseline):
                decider.resize(self.books.nodes, tuple(self.types))
            self.types_bound = len(self.types)

    def _declared(self, host: engine.EngineNode) -> float:
        """The declared rate of a node, by the first of its labels that has one; else 1."""
        labels = (f"{label}={value}" for label, value in host.labels.items())
        return float(next((self.rates[label] for label in labels if label in self.rates), 1.0))

    def _type(self, asked: engine.EngineJob) -> str:
        has_room = asked.job_type in self.types or len(self.types) < TYPES
        return asked.job_type if has_room else "other"

    def _as_job(self, active: ActiveJob) -> Job:
        if active.job is not None:
            return active.job
        a = active.asked
        tasks, shape = shape_of(a, self._devices())
        limit = a.limit if math.isfinite(a.limit) and a.limit > 0 else NO_LIMIT
        identity = (a.id, active.row, a.submitted, self._type(a), a.user)
        about = limit, a.deadline, math.inf, a.priority
        active.job = Job(*identity, tasks, shape, *about, terms="apart=1" * a.apart)
        if self.empty is not None:
            # Asked once: with all devices free, or never.
            active.possible = self.empty.has_room(active.job)
        return active.job

    def _waiting(self) -> list[Job]:
        # A scheduler that refuses unlike tasks never sees such jobs; ``explain`` says so.
        alike = bool(schedule.refuses_groups(self.scheduler))
        return [
            job
            for active in self.jobs.values()
            if active.phase == "waiting"
            and active.until <= self.now
            and (job := self._as_job(active)).shape.demand
            and active.possible
            and not (alike and job.shape.groups)
        ]

    def pieces(self, placed: Sequence[engine.Placed]) -> tuple[job_books.Piece, ...]:
        """Pieces in the books; of a job of groups, those of one come before those of the next."""
        at = self.node_index
        ordered = sorted(placed, key=lambda p: p.group)
        return tuple((at[p.node], p.tasks, 0) for p in ordered if p.node in at)

    def _hold(
        self, active: ActiveJob, placed: Sequence[engine.Placed], sign: int = -1
    ) -> tuple[Job, tuple[job_books.Piece, ...]]:
        """Take or give back devices on nodes that are up; one that is down has nothing free."""
        job, books = self._as_job(active), self.open_books
        parts = job.shape.groups or ((job.tasks, job.shape),)
        for p in placed:
            n = self.node_index.get(p.node)
            if n is not None and books.up[n]:
                books.take(parts[p.group][1], [(n, p.tasks, 0)], sign)
        return job, self.pieces(placed)

    def _set_up(self, n: int, up: bool) -> None:
        books = self.open_books
        books.up[n] = up
        # A node that is down has nothing free; when it comes back, what runs there is taken off
        # again.
        books.free[n] = books.capacity[n] if up else 0
        if up:
            for running in books.running.values():
                for shape, pieces in job_books.of_groups(running.job.shape, running.pieces):
                    books.take(shape, [p for p in pieces if p[0] == n])
        self._report(job_books.Event("node_up" if up else "node_down", self.now, node=n))

    def _take(self, active: ActiveJob, placed: tuple[engine.Placed, ...], by: str) -> None:
        job, pieces = self._hold(active, placed)
        self.open_books.running[job.id] = job_books.Running(job, pieces, self.now, 0.0)
        active.phase, active.placed, active.by = "placed", placed, by
        active.begun = active.held = self.now
        active.measured = False
        self._report(job_books.Event("started", self.now, job, pieces=pieces))
        self.changed = True

    def _place(self, active: ActiveJob, tasks: Sequence[tuple[int, int]], by: str) -> None:
        job = self._as_job(active)
        if sum(c for _, c in tasks) != active.asked.tasks or active.phase != "waiting":
            count = active.asked.tasks
            raise InfeasibleDecision(f"job {job.id} has {count} tasks, placed are {tasks}")
        placed = self._named(job, tasks)
        active.attempt += 1
        self._take(active, placed, by)
        used = [d for d, amount in enumerate(job.shape.demand) if amount]  # others may overbook
        if any(self.open_books.free[n, d] < 0 for n, _ in tasks for d in used):
            raise InfeasibleDecision(f"job {job.id} is placed on {placed}, where no room is")
        self.intents.append(Intent("place", job.id, active.attempt, placed, by))

    def _named(self, job: Job, tasks: Sequence[tuple[int, int]]) -> tuple[engine.Placed, ...]:
        names = self.open_books.nodes.names
        return tuple(
            engine.Placed(names[n], int(c), group=g)
            for g, (_, mine) in enumerate(job_books.of_groups(job.shape, tasks))
            for n, c in mine
        )

    def _unplace(self, active: ActiveJob) -> None:
        """Ask the cluster to take a job off its nodes; it is off when the cluster says so."""
        if active.phase != "waiting":
            self.intents.append(
                Intent("preempt", active.asked.id, active.attempt, active.placed, "scheduler")
            )

    def _give_back(
        self,
        active: ActiveJob,
        kind: Literal["finished", "killed", "failed", "preempted"],
        counts: bool = True,
    ) -> None:
        """Free a job's devices; without ``counts`` it never really used them."""
        running = self.open_books.running.pop(active.asked.id)
        self._hold(active, active.placed, 1)
        pieces = running.pieces if counts else ()
        self._report(job_books.Event(kind, self.now, running.job, pieces=pieces))

    def _report(self, event: job_books.Event) -> None:
        if self.books is not None:
            self.books.events.append(event)

    # Learning

    def _learn(self, active: ActiveJob, ranks: Sequence[Sequence[Any]], ended: bool) -> float:
        """Pass on to the scheduler what ranks measured; return the gang's rate, NaN if unknown."""
        by_node: dict[str, list[float]] = {}
        for node, _, work, seconds in ranks:
            if work > 0 and seconds > 0:
                by_node.setdefault(str(node), []).append(work / seconds)
        declared = active.asked.work
        # Without reports, the declared work over the run time is the rate of a job on one node; on
        # several, which was the slowest is not known.
        if not by_node and ended and declared > 0 and len({p.node for p in active.placed}) == 1:
            elapsed = self.now - active.begun  # not wrapped: only what all of it took
            if elapsed > 0:
                by_node[active.placed[0].node] = [declared / elapsed]
        mine = {p.node for p in active.placed if p.node in self.node_index}
        rate_of = {self.node_index[name]: min(v) for name, v in by_node.items() if name in mine}
        self.implausible += len(by_node) - len(rate_of)
        if not rate_of or active.phase != "running":
            return math.nan
        nodes, rates, is_first = tuple(rate_of), tuple(rate_of.values()), not active.measured
        rate = job_books.Rate(
            self._as_job(active), nodes, rates, active.begun, self.now, is_first, ended
        )
        active.measured = True
        if declared > 0:  # units are seconds at rate 1
            return self._observe(rate, 1.0)
        return self._in_units(rate)

    def _in_units(self, rate: job_books.Rate) -> float:
        """Units of a job type become seconds at rate 1 by what its first gangs did.

        Their median says how many units a second has, so that one slow node does not.
        """
        kind = rate.job.job_type
        if (scale := self.scales.get(kind)) is not None:
            return self._observe(rate, scale)
        # A log rate less that of its label is the unit of the work, the same on every node.
        logs = [math.log(r) - self._label(n) for n, r in zip(rate.nodes, rate.rates)]
        unscaled = self.unscaled.setdefault(kind, [])
        unscaled.append((median(logs), rate))
        # The median gang sets the scale, so that one slow node among the first does not.
        if len({r.job.id for _, r in unscaled}) < FIRST:
            return math.nan
        scale = self.scales[kind] = math.exp(median(log for log, _ in unscaled))
        # This gang's measurement was appended last.
        return [self._observe(late, scale) for _, late in self.unscaled.pop(kind)][-1]

    def _label(self, n: int) -> float:
        rate = self.open_books.nodes.rates[n]
        return math.log(rate) if isinstance(rate, float) else 0.0

    def _observe(self, rate: job_books.Rate, scale: float) -> float:
        N = len(self.open_books.free)
        pairs = [
            (n, r / scale)
            for n, r in zip(rate.nodes, rate.rates)
            # A rate that is off its label by more than this is no speed but a wrong report.
            if n < N and abs(math.log(r / scale) - self._label(n)) < IMPLAUSIBLE
        ]
        self.implausible += len(rate.nodes) - len(pairs)
        if not pairs:
            return math.nan
        # A gang is as fast as its slowest node.
        self.latest_rates[rate.job.id] = min(r for _, r in pairs)
        if getattr(self.scheduler, "learns", True):
            # The job's type may be new since the last round, and has no
            # estimate before it is bound.
            self._bind()
            nodes, rates = tuple(n for n, _ in pairs), tuple(r for _, r in pairs)
            self.scheduler.observe(replace(rate, nodes=nodes, rates=rates))
            self.changed = True
        return self.latest_rates[rate.job.id]


def _rates_of(scheduler: Any) -> Any:
    return getattr(getattr(scheduler, "choice", None), "rates", None)


def _placed(rows: Sequence[Sequence[Any]]) -> tuple[engine.Placed, ...]:
    return tuple(
        engine.Placed(
            engine.name(r[0], "a node that it is on"),
            engine.whole(r[1], "its number of tasks there", 1),
            tuple(r[2]) if len(r) > 2 else (),
            engine.whole(r[3], "the group of its tasks") if len(r) > 3 else 0,
        )
        for r in rows
    )


def shape_of(asked: engine.EngineJob, devices: Sequence[str]) -> tuple[int, Shape]:
    """Tasks and shape of a job over device types; of groups, one task that stands for all."""
    parts = [
        (
            part.tasks,
            Shape(
                tuple(part.demand.get(k, 0) for k in devices),
                part.per_node,
                tuple(sorted(part.constraint.items())),
            ),
        )
        for part in asked.parts
    ]
    if not asked.groups:
        return parts[0]
    return 1, Shape(tuple(asked.demand.get(k, 0) for k in devices), groups=tuple(parts))

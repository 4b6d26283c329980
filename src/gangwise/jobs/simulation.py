"""Simulation of jobs on nodes under a scheduler, event by event.

All events of an instant are taken in first — ends, then nodes, then submissions, then
measurements — and one round of decisions follows. A job of run time 0 ends at its instant and
opens another round there. Compiled code keeps time, books and events, see
:mod:`gangwise.jobs.event_kernels`. Combinations of built-in parts decide in compiled code as well;
any other scheduler decides in Python, on the same state.
"""

import math
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.jobs import compiled, event_kernels, kernels, model, queues, tenancy
from gangwise.jobs.books import (
    Ask,
    Books,
    Event,
    EventKind,
    Piece,
    Place,
    Preempt,
    Queue,
    Rate,
    Running,
    of_groups,
)
from gangwise.jobs.choice import FGD, ByRate
from gangwise.jobs.schedule import Options, Schedule, Tables, refuses_groups
from gangwise.jobs.scheduler import Composed, create_scheduler, name_of
from gangwise.sites import slurm_passes
from gangwise.sites.site import Site

# Of what the feed reports: of jobs up to WAS_PREEMPTED, then of nodes, in the order of the numbers.
_KINDS: tuple[EventKind, ...] = ("submitted", "finished", "killed", "cancelled", "failed")
_KINDS += ("preempted", "node_up", "node_down", "node_drained")


def simulate_jobs(
    jobs: model.Jobs,
    nodes: model.Nodes,
    scheduler: Any = "fcfs+easy+best-fit",
    conditions: model.Conditions | None = None,
    options: Options | None = None,
    *,
    site: Site | None = None,
    engine: Literal["auto", "compiled", "plain"] = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Schedule:
    """Play jobs on nodes under a scheduler.

    Parameters
    ----------
    scheduler : str or Scheduler
        A name such as ``"fcfs+easy+best-fit"``, or an object.
    conditions : Conditions, optional
        Hidden rates, noise and failures; by default every rate is 1 and nothing fails.
    options : Options, optional
    site : Site, optional
        Pools, caps, windows without capacity, and what a start takes, see
        :mod:`gangwise.sites.site`.
    engine : {"auto", "compiled", "plain"}
        Where it is decided: in compiled code wherever the scheduler has only built-in parts, else
        in Python. ``plain`` has built-in parts decide in Python as well, as the live service does;
        the schedule is the same, and a test of it.
    progress : callable, optional
        Called now and then with jobs ended and jobs in all.

    Raises
    ------
    InfeasibleDecision
        When a scheduler starts what does not fit; names time, job, node and device.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1], limit=[10, 10, 5])
    >>> schedule = simulate_jobs(jobs, Nodes.pool(4), "fcfs+easy+first-fit")
    >>> schedule.start
    array([ 0., 10.,  2.])
    """
    conditions = conditions or model.Conditions()
    options = options or Options()
    scheduler = create_scheduler(scheduler)
    if site is not None:
        jobs, nodes, conditions = site.placed(jobs, nodes, conditions)
        options = site.options(options)
    tables = tables_of(jobs, nodes, scheduler, conditions, options)
    if engine != "plain" and slurm_passes.compiles(scheduler):
        return slurm_passes.play(tables, scheduler, progress)
    rules = compiled.built_in(scheduler, nodes, tables.options)
    if engine == "compiled" and rules is None:
        raise ScenarioError("only combinations of built-in parts run compiled; use engine='plain'")
    if engine != "plain" and rules is not None:
        return compiled.play_compiled(tables, scheduler, rules, progress)
    return JobSimulation(tables, scheduler).run(progress)


def tables_of(
    jobs: model.Jobs,
    nodes: model.Nodes,
    scheduler: Any,
    conditions: model.Conditions,
    options: Options,
) -> Tables:
    """Tables of what a scheduler is to play, which is given the options."""
    # Arrays limit themselves in the log (`%N`): their caps are read off the jobs.
    options = replace(options, caps=(*options.caps, *tenancy.of_arrays(jobs)))
    require_playable(scheduler, nodes, options)
    return Tables.of(jobs, nodes, conditions, options, refuses_groups(scheduler))


def require_playable(scheduler: Any, nodes: model.Nodes, options: Options) -> None:
    """Give a scheduler the options of a simulation; ScenarioError where it cannot be played."""
    if not isinstance(scheduler, Composed):
        return
    scheduler.limits = options.limits
    scheduler.restart = options.restart
    scheduler.enforced = options.enforced
    # Raises where the combination of parts makes no sense.
    _ = scheduler.expects
    if type(scheduler.choice) is FGD and nodes.shared is None:
        raise ScenarioError(
            "fgd looks at single devices, of which tasks take parts; here no task does, so choose "
            "best-fit (in Python: build Nodes with shared='gpu')"
        )


class JobSimulation:
    """A simulation in which a scheduler decides in Python, instant by instant.

    Compiled code keeps the state and takes in events; the books are views on that state. Pickles
    between instants.
    """

    def __init__(self, tables: Tables, scheduler: Any):
        t = tables
        self.tables = t
        self.scheduler = scheduler
        learns = bool(getattr(scheduler, "learns", True))
        rules = compiled.outside(t.options, learns, float(getattr(scheduler, "look", math.inf)))
        self.given, pieces = compiled.inputs(t, rules)
        self.state = x = compiled.initial_state(t, rules, pieces, feeds=True)
        room = x.room
        cluster = t.nodes, t.nodes.capacity, room.free, room.device, x.up
        self.books = Books(*cluster, {}, [], t.options.caps, t.hours, t.options.tenancy)
        # With the instant, it tells a move (preempt, then place at once) from a start.
        self.moved = "", -1.0  # the job that was preempted last, and when
        self.tally = self.books.tally()
        self.waiting: list[model.Job] = []
        self.rows: dict[str, int] = {}
        self.seconds = 0.0
        if isinstance(scheduler, Composed) and isinstance(scheduler.queue, queues.Multifactor):
            scheduler.queue.bind(t)
        scheduler.resize(t.nodes, t.jobs.types)
        choice = getattr(scheduler, "choice", None)
        if isinstance(choice, ByRate) and choice.rates == "oracle":
            choice.reveal(t.log_rates, x.log_factor, t.distance)
        if isinstance(scheduler, Composed) and scheduler.expects[0] == "true":
            scheduler.reveal(t)

    @property
    def now(self) -> float:
        """The instant, in seconds; −1 before the first."""
        return float(self.state.at.now)

    @property
    def jobs(self) -> kernels.Rows:
        """The state of each job, see :data:`gangwise.jobs.kernels.RUN`."""
        return self.state.jobs

    def run(self, progress: Callable[[int, int], None] | None = None) -> Schedule:
        at = self.state.at
        while self.step():
            # Instants of few events are short: a report each would cost more than they do.
            if progress is not None and at.instants % 10_000 == 0:
                progress(int(at.ended), len(self.tables.jobs))
        return self.schedule()

    def step(self) -> bool:
        """One instant: its events, then a round. False when nothing is left to happen."""
        if not self._advance():
            return False
        instant = self.now
        if self.waiting:
            self.state.at.rounds += 1
            for action in self._decisions(instant):
                self.act(action)
        if self.state.at.looks:
            self._look_around(instant)
        return True

    def _advance(self) -> bool:
        # Arrays that are full are made larger, and the same step goes on.
        while (status := self._call(kernels.ADVANCE)) == event_kernels.MORE_ROOM:
            self.state = compiled.more_room(self.state)
        return status != event_kernels.DONE

    def _decisions(self, now: float) -> list[Any]:
        return self._timed(lambda: self.scheduler.place(Queue(self.waiting), self.books, now))

    def _timed(self, decide: Callable[[], Iterable[Any]]) -> list[Any]:
        began = time.perf_counter()
        actions = list(decide())
        self.seconds += time.perf_counter() - began
        self.books.events.clear()
        return actions

    def _observe(self, rate: Rate) -> None:
        self.scheduler.observe(rate)

    def _look_around(self, now: float) -> None:
        """Running jobs are measured again; while no job waits, some may move."""
        self._call(kernels.LOOK_AROUND)
        # Moves are for idle moments: a waiting job has the first claim on free devices.
        if not self.waiting:
            for action in self._timed(lambda: self.scheduler.migrations(self.books, now)):
                self.act(action)

    # What happened

    def _call(self, what: int, j: int = 0, count: int = 0, value: float = 0.0) -> int:
        """One step in compiled code, whose events are then reported."""
        status: int = event_kernels.outside(self.given, self.state, what, j, count, value)
        x, position = self.state, 0
        for kind, item, is_first, ended in x.feed[: x.at.fed].tolist():
            if kind == kernels.ENTERED_QUEUE:
                self._enter(item)
            elif kind == kernels.MEASURED:
                # A measurement is reported before the job leaves, so its pieces are still known.
                running = self.books.running[str(self.tables.jobs.id[item])]
                rates = tuple(x.fed_rates[position : position + len(running.pieces)].tolist())
                position += len(rates)
                nodes = tuple(n for n, _, _ in running.pieces)
                times = float(x.jobs["since"][item]), self.now
                self._observe(Rate(running.job, nodes, rates, *times, bool(is_first), bool(ended)))
            elif kind <= kernels.WAS_PREEMPTED:
                self._leave(item, _KINDS[kind])
            else:
                self.books.events.append(Event(_KINDS[kind], self.now, node=item))
        return status

    def _enter(self, j: int) -> None:
        job = self.tables.job(j)
        self.rows[job.id] = j
        if not self.waiting or self.waiting[-1].row < j:
            self.waiting.append(job)
        else:
            # A requeued job goes back to its place by submission.
            insort(self.waiting, job, key=lambda other: other.row)
        self.books.events.append(Event("submitted", self.now, job))

    def _leave(self, j: int, kind: EventKind) -> None:
        """A job gave its devices back, or was withdrawn while it waited."""
        running = self.books.running.pop(str(self.tables.jobs.id[j]), None)
        if running is None:
            event = Event(kind, self.now, self.waiting.pop(self._place_in_queue(j)))
        else:
            self.tally.take(running.job, -1)
            self._resize(j, int(self.tables.jobs.tasks[j]))
            event = Event(kind, self.now, running.job, pieces=running.pieces)
        self.books.events.append(event)

    def _place_in_queue(self, j: int) -> int:
        return next(i for i, job in enumerate(self.waiting) if job.row == j)

    # What is decided

    def act(self, action: Any) -> None:
        """Do at this instant what the scheduler, or a caller that steps, has decided."""
        # A caller may name a job that is not there: −1 has no phase.
        instant = self.now
        name = getattr(action, "job", None)
        j = self.rows.get(name, -1) if isinstance(name, str) else -1
        phase = int(self.state.jobs["phase"][j]) if j >= 0 else -1
        fault = ""
        if isinstance(action, Ask):
            if phase == kernels.WAITING and not action.at > instant:
                fault = f"asked to be called at {action.at:g} s, which is not later"
        elif isinstance(action, Preempt):
            if phase != kernels.RUNNING:
                fault = f"job {name} is preempted but not running"
        elif not isinstance(action, Place):
            fault = f"{action!r} is no Place, Preempt or Ask"
        elif phase != kernels.WAITING:
            fault = f"job {name} is placed but not waiting"
        if fault:
            raise InfeasibleDecision(f"at {instant:g} s: {fault}")
        if isinstance(action, Place):
            self._start(j, action)
        elif isinstance(action, Preempt):
            self._preempt(j, action.how)
        # An idle ask with nothing to come would repeat for ever.
        elif phase == kernels.WAITING and not (action.idle and self._nothing_to_come()):
            self._call(kernels.ASK, j, value=float(action.at))

    def _nothing_to_come(self) -> bool:
        """Whether no job runs, none is submitted later, and no other event is due."""
        at, inputs = self.state.at, self.given
        over = at.next_event == inputs.events.size and at.next_job == inputs.jobs.size
        return bool(over and at.running == 0)

    def _preempt(self, j: int, how: str) -> None:
        at = self.state.at
        self.moved = str(self.tables.jobs.id[j]), self.now
        # Room is made before the kernel writes, for as many pieces as all running jobs have.
        full = at.cuts + 2 > self.state.cuts.size
        if full or at.cut_pieces + at.pieces > self.state.cut_pieces.size:
            self.state = compiled.more_room(self.state)
        self._call(kernels.PREEMPT, j)
        x, t = self.state, self.tables
        if how != "keep":
            every = t.options.checkpoint
            work = float(t.work[j] - x.jobs["left"][j])
            # Whole checkpoints of work are saved; inf saves nothing, 0 everything.
            saved = 0.0 if every == math.inf else work // every * every if every else work
            s = t.jobs.shape[j]
            dominant = t.cluster.shapes["dominant"][s]
            x.jobs["left"][j] = t.work[j] - saved
            x.lost[j] += (work - saved) * t.cluster.demand[s, dominant] * t.jobs.tasks[j] / 1000.0
        if how == "cancel":  # an event of this instant, before its next round
            # It becomes an event, so that cancelling has one way in.
            event = np.array([(self.now, 0.0, j, kernels.CANCEL)], dtype=kernels.EVENT)
            events = np.insert(self.given.events, int(at.next_event), event)
            self.given = self.given._replace(events=events)

    def _start(self, j: int, action: Place) -> None:
        i = self._place_in_queue(j)
        job, instant = self.waiting[i], self.now
        for fault in self._faults(job, action, self.books):
            raise InfeasibleDecision(f"at {instant:g} s: job {job.id} {fault}")
        # Without pieces, the books say which devices: fractions the fullest, wholes the first.
        pieces = action.pieces or self.books.tell_apart(job.shape, action.tasks)
        pieces = self._try(j, pieces)
        del self.waiting[i]
        # An elastic job that starts with fewer tasks is longer by as much.
        total = sum(count for _, count in action.tasks)
        if total < job.tasks and not job.shape.groups:
            job = replace(job, tasks=total)
            self._resize(j, total)
        self._call(kernels.PLACE, j, len(pieces))
        overhead = float(self.state.jobs["overhead"][j]) + self.tables.options.latency
        self.books.running[job.id] = Running(job, pieces, instant, overhead)
        self.tally.take(job)
        self.books.events.append(Event("started", instant, job, pieces=pieces))

    def _resize(self, j: int, tasks: int) -> None:
        """Give job j so many tasks, and as much work as before in all."""
        row, t = self.given.jobs[j : j + 1], self.tables
        if row["tasks"] == tasks:
            # Without a change nothing is divided, so nothing is rounded.
            return
        self.state.jobs["left"][j] *= float(row["tasks"][0]) / tasks
        longer = float(t.jobs.tasks[j]) / tasks
        row["tasks"], row["work"] = tasks, t.work[j] * longer
        # A limit that nobody asked for is the run time, and grows with it; a request stays.
        row["limit"] = t.jobs.limit[j] * (1.0 if t.jobs.requested[j] else longer)

    def _try(self, j: int, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Hand pieces to compiled code; several on a node become one."""
        every: list[Piece] = []
        for shape, mine in of_groups(self.tables.shapes[self.tables.jobs.shape[j]], pieces):
            # Fractions stay apart: each piece is on a device of its own.
            if not 0 < self.books.of_shared(shape) < 1000:
                on: dict[int, tuple[int, int]] = {}
                for n, c, mask in mine:
                    count, used = on.get(n, (0, 0))
                    on[n] = count + c, used | mask
                mine = [(int(n), int(c), int(mask)) for n, (c, mask) in on.items()]
            every += mine
        pieces = tuple(every)
        for i, (n, c, mask) in enumerate(pieces):
            self.state.tried[i] = mask, n, c
        return pieces

    def _faults(self, job: model.Job, action: Place, books: Books) -> Iterator[str]:
        """Faults of a start: parts of a gang, closed hours, caps, devices that are in use."""
        # A move in closed hours is no start.
        if self.moved != (job.id, self.now) and books.opens(job, self.now) > self.now:
            yield f"is placed in {self.tables.hours.why(job.row, self.now)}"
        if (cap := self.tally.holds(job)) is not None:
            yield f"is placed beyond the {cap.describe(str(cap.name(job)))}"
        for n, c in action.tasks:
            if not 0 <= n < len(books.free) or c < 1:
                yield f"gets {c} tasks on node {n}"
        total, size = sum(c for _, c in action.tasks), job.tasks * job.shape.size
        if not (size if job.shape.groups else job.fewest) <= total <= size:
            yield f"has {size} tasks, {total} are placed; all or none"
        if not job.shape.groups:
            yield from self._faults_of(job, action, books)
            return
        # Each group finds what those before it have left.
        trial, parts = books.copy(), of_groups(job.shape, action.pieces)
        for (tasks, shape), (_, mine) in zip(job.groups, of_groups(job.shape, action.tasks)):
            if sum(c for _, c in mine) != tasks:
                yield f"has a group of {tasks} tasks, which are not placed one after another"
                return
            pieces = tuple(next(parts)[1]) if action.pieces else ()
            # Tried one by one on a copy, as the groups start at the same instant.
            group, part = replace(job, tasks=tasks, shape=shape), Place(job.id, tuple(mine), pieces)
            yield from self._faults_of(group, part, trial)
            trial.take(shape, pieces or trial.tell_apart(shape, mine))

    def _faults_of(self, job: model.Job, action: Place, books: Books) -> Iterator[str]:
        """Faults of the places of tasks that are alike."""
        nodes, shape = books.nodes, job.shape
        counts: dict[int, int] = {}
        for n, c in action.tasks:
            counts[n] = counts.get(n, 0) + c
        in_pieces: dict[int, int] = {}
        for n, c, _ in action.pieces:
            in_pieces[n] = in_pieces.get(n, 0) + c
        if action.pieces and in_pieces != counts:
            yield "has other numbers of tasks on nodes in its pieces than in its tasks"
        for n, c in counts.items():
            name, labels = nodes.names[n], nodes.labels[n]
            if not books.up[n]:
                yield f"is placed on node {name}, which is down or drains"
            if shape.per_node and c > shape.per_node:
                yield f"gets {c} tasks on node {name}; at most {shape.per_node} may be"
            for label, value in shape.constraint:
                if labels.get(label) != value:
                    yield f"asks for {label}={value}; node {name} is not that"
            if shape.pool and n not in nodes.pools[shape.pool]:
                yield f"is of pool {shape.pool}; node {name} is not in it"
            for k, d in enumerate(shape.demand):
                if c * d > books.free[n, k]:
                    takes = f"takes {c * d / 1000:g} {nodes.devices[k]} on node {name}"
                    yield f"{takes}, where {books.free[n, k] / 1000:g} are free"
        if nodes.shared is None:
            return
        # Device by device: a fraction takes part of one, whole ones no other's.
        amount, free = books.of_shared(shape), books.device.copy()
        for n, c, mask in action.pieces or books.tell_apart(shape, action.tasks):
            used = [g for g in range(mask.bit_length()) if mask >> g & 1]
            wanted = 0 if amount == 0 else (1 if amount < 1000 else c * (amount // 1000))
            if len(used) != wanted:
                yield f"gets {len(used)} {nodes.shared} for {c} tasks"
            for g in used:
                free[n, g] -= c * amount if amount < 1000 else 1000
                if free[n, g] < 0:
                    yield f"takes more of {nodes.shared} {g} of node {nodes.names[n]} than is free"

    def schedule(self) -> Schedule:
        t, x = self.tables, self.state
        # The schedule keeps these arrays; the simulation may go on.
        copies = {name: getattr(x, name).copy() for name in ("start", "end", "lost", "promised")}
        return compiled.outcome(
            t,
            self.given.jobs["piece_from"].copy(),
            x._replace(**copies),
            t.describe(name_of(self.scheduler), "decided in Python"),
            self.seconds,
        )

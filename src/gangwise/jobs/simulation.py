"""What would have happened: jobs on nodes under a scheduler, event by event.

All events of an instant are taken in first — ends, then nodes, then submissions, then
measurements — and one round of decisions follows. A job of run time 0 ends at its instant and
opens another round there. Combinations of built-in parts run whole inside compiled code; a
scheduler of your own runs in a plain loop under the same rules, and both give the same schedule.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import insort
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.jit import is_compiled
from gangwise.jobs import event_kernels, kernels
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
)
from gangwise.jobs.choice import ByRate
from gangwise.jobs.compiled import built_in, play_compiled
from gangwise.jobs.kernels import (
    CANCELLED,
    FINISHED,
    KILLED,
    RUNNING,
    SET_ASIDE,
    UNSUBMITTED,
    WAITING,
)
from gangwise.jobs.model import Conditions, Job, Jobs, Nodes
from gangwise.jobs.schedule import Options, Schedule, Tables, name_of
from gangwise.jobs.scheduler import Composed, create_scheduler

FEW = 2_500
"""Jobs that are played in plain Python rather than waiting for a compiler."""


def simulate_jobs(
    jobs: Jobs,
    nodes: Nodes,
    scheduler: Any = "fcfs+easy+best-fit",
    conditions: Conditions | None = None,
    options: Options | None = None,
    *,
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
    engine : {"auto", "compiled", "plain"}
        ``auto`` is compiled wherever the scheduler has only built-in parts; for up to
        :data:`FEW` jobs only if the code is there already, for compiling takes longer than
        playing them. Both give the same schedule.
    progress : callable, optional
        Called now and then with jobs ended and jobs in all.

    Raises
    ------
    InfeasibleDecision
        When a scheduler starts what does not fit; names time, job, node and device.

    Examples
    --------
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1], limit=[10, 10, 5])
    >>> schedule = simulate_jobs(jobs, Nodes.pool(4), "fcfs+easy+first-fit")
    >>> schedule.start
    array([ 0., 10.,  2.])
    """
    conditions = conditions or Conditions()
    options = options or Options()
    scheduler = create_scheduler(scheduler)
    if isinstance(scheduler, Composed):
        scheduler.limits = options.limits
        scheduler.restart = options.restart
    tables = Tables.of(jobs, nodes, conditions, options)
    rules = built_in(scheduler, nodes, options)
    if engine == "compiled" and rules is None:
        raise ScenarioError("only combinations of built-in parts run compiled; use engine='plain'")
    if engine == "auto" and len(jobs) <= FEW and not is_compiled(event_kernels.play):
        engine = "plain"
    if engine != "plain" and rules is not None:
        return play_compiled(tables, scheduler, rules, progress)
    return PlainSimulation(tables, scheduler).run(progress)


class PlainSimulation:
    """The rules in plain Python, for any scheduler. Pickles between instants."""

    def __init__(self, tables: Tables, scheduler: Any):
        t = tables
        self.tables = t
        self.scheduler = scheduler
        self.learns = getattr(scheduler, "learns", True)
        self.books = Books.opened(t.nodes)
        self.now = -1.0
        self.look = float(getattr(scheduler, "look", math.inf))
        J = len(t.jobs)
        self.phase = np.where(t.aside, SET_ASIDE, 0).astype(np.int8)
        self.left = t.work.astype(float).tolist()
        self.wants = t.wants.tolist()
        self.first = np.full(J, np.nan)
        self.begun = np.full(J, np.nan)
        self.end = np.full(J, np.nan)
        self.attempts = np.zeros(J, dtype=np.int64)
        self.lost = np.zeros(J)
        self.overhead = [0.0] * J
        self.since = [0.0] * J
        self.speed = [1.0] * J
        self.finish = [math.inf] * J
        self.timer: dict[int, float] = {}
        self.pieces: dict[int, tuple[Piece, ...]] = {}
        self.factor = np.zeros(len(t.nodes))
        self.waiting: list[Job] = []
        self.rows: dict[str, int] = {}
        self.next_job = 0
        self.next_event = 0
        self.heap: list[tuple[float, int]] = []
        self.timers: list[tuple[float, int]] = []
        self.cuts: list[tuple[int, float, float, int, tuple[Piece, ...]]] = []
        self.counts = dict.fromkeys(
            ("instants", "rounds", "tests", "kills", "requeues", "preemptions", "cancellations"), 0
        )
        self.seconds = 0.0
        self.after: list[list[int]] = [[] for _ in range(J)] if t.jobs.after.size else []
        for j in range(J if t.jobs.after.size else 0):
            for i in range(t.jobs.after_from[j], t.jobs.after_from[j + 1]):
                self.after[t.jobs.after[i]].append(j)
        self.ended = int(t.aside.sum())
        # The same demands over the nodes' device types, for jobs that know fewer.
        self.shapes = [
            s._replace(demand=tuple(t.demand[i].tolist())) for i, s in enumerate(t.jobs.shapes)
        ]
        scheduler.resize(t.nodes, t.jobs.types)
        choice = getattr(scheduler, "choice", None)
        if isinstance(choice, ByRate) and choice.rates == "oracle":
            choice.reveal(t.log_rates, self.factor)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Schedule:
        """To the end."""
        while self.step():
            if progress is not None and self.counts["instants"] % 10_000 == 0:
                progress(self.ended, len(self.tables.jobs))
        return self.schedule()

    def step(self) -> bool:
        """One instant: its events, then a round. False when nothing is left to happen."""
        now = self._next_instant()
        if now == math.inf or self.ended == len(self.tables.jobs):
            return False
        looks = False
        if self.look < math.inf and self.books.running:
            due = (math.floor(self.now / self.look) + 1) * self.look
            looks = due <= now
            now = min(now, due)
        self.now = now
        self.counts["instants"] += 1
        self._events(now)
        if self.waiting:
            self.counts["rounds"] += 1
            for action in self._decisions(now):
                self._act(action, now)
        if looks:
            self._look_around(now)
        return True

    def _decisions(self, now: float) -> list[Any]:
        """A round: what the scheduler wants."""
        began = time.perf_counter()
        actions = list(self.scheduler.place(Queue(self.waiting), self.books, now))
        self.seconds += time.perf_counter() - began
        self.books.events.clear()
        return actions

    def _tell(self, rate: Rate) -> None:
        """A measurement reaches the scheduler."""
        self.scheduler.observe(rate)

    def act(self, action: Any) -> None:
        """Do at this instant what whoever steps the simulation has decided."""
        self._act(action, self.now)

    def _look_around(self, now: float) -> None:
        """Running jobs are measured again; while nobody waits, some may move."""
        after = self.tables.options.measured_after
        for j in sorted(self.rows[name] for name in self.books.running):
            if self.begun[j] + after <= now and self.begun[j] + self.overhead[j] < now:
                self._measure(j, now, first=False, ended=False)
        if self.waiting:
            return
        began = time.perf_counter()
        actions = self.scheduler.migrations(self.books, now)
        self.seconds += time.perf_counter() - began
        self.books.events.clear()
        for action in actions:
            self._act(action, now)

    def _next_instant(self) -> float:
        t = self.tables
        now = math.inf
        while self.heap and not self._holds(*self.heap[0]):
            heapq.heappop(self.heap)
        if self.heap:
            now = self.heap[0][0]
        while self.timers and self.timer.get(self.timers[0][1]) != self.timers[0][0]:
            heapq.heappop(self.timers)
        if self.timers:
            now = min(now, self.timers[0][0])
        while self.next_job < len(t.jobs) and self.phase[self.next_job] != UNSUBMITTED:
            self.next_job += 1
        if self.next_job < len(t.jobs):
            now = min(now, float(t.jobs.submit[self.next_job]))
        if self.next_event < t.event_time.size:
            now = min(now, float(t.event_time[self.next_event]))
        return now

    def _holds(self, time: float, j: int) -> bool:
        return bool(self.phase[j] == RUNNING and self.finish[j] == time)

    def _events(self, now: float) -> None:
        t = self.tables
        while self.heap and self.heap[0][0] <= now:
            at, j = heapq.heappop(self.heap)
            if self._holds(at, j):
                self._finish(j, now)
        while self.next_event < t.event_time.size and t.event_time[self.next_event] <= now:
            e = self.next_event
            self.next_event += 1
            kind, which = int(t.event_kind[e]), int(t.event_node[e])
            if kind == kernels.CANCEL:
                self._cancel(which, now)
            else:
                self._node_event(kind, which, float(t.event_value[e]), now)
        while self.next_job < len(t.jobs) and t.jobs.submit[self.next_job] <= now:
            j = self.next_job
            self.next_job += 1
            if self.phase[j] != UNSUBMITTED:
                continue
            if self.wants[j]:
                self.phase[j] = kernels.HELD
            else:
                self._enter(j, now)
        while self.timers and self.timers[0][0] <= now:
            at, j = heapq.heappop(self.timers)
            if self.timer.get(j) == at:
                del self.timer[j]
                if self.phase[j] == RUNNING:
                    self._measure(j, now, first=True, ended=False)

    def _enter(self, j: int, now: float) -> None:
        job = self.tables.jobs.job(j)
        if self.tables.jobs.devices != self.tables.nodes.devices:
            job = _with_shape(job, self.shapes[self.tables.jobs.shape[j]])
        self.phase[j] = WAITING
        self.rows[job.id] = j
        self.timer.pop(j, None)
        if not self.waiting or self.waiting[-1].row < j:
            self.waiting.append(job)
        else:
            insort(self.waiting, job, key=lambda other: other.row)
        self.books.events.append(Event("submitted", now, job))

    def _act(self, action: Any, now: float) -> None:
        name = getattr(action, "job", None)
        j = self.rows.get(name, -1) if isinstance(name, str) else -1
        if isinstance(action, Ask):
            if j >= 0 and self.phase[j] == WAITING:
                if not action.at > now:
                    raise InfeasibleDecision(
                        f"at {now:g} s: asked to be called at {action.at:g} s, which is not later"
                    )
                self.timer[j] = action.at
                heapq.heappush(self.timers, (action.at, j))
            return
        if isinstance(action, Preempt):
            if j < 0 or self.phase[j] != RUNNING:
                raise InfeasibleDecision(f"at {now:g} s: job {name} is preempted but not running")
            self._interrupt(j, now, "preempted")
            return
        if not isinstance(action, Place):
            raise InfeasibleDecision(f"at {now:g} s: {action!r} is no Place, Preempt or Ask")
        if j < 0 or self.phase[j] != WAITING:
            raise InfeasibleDecision(f"at {now:g} s: job {name} is placed but not waiting")
        self._start(j, action, now)

    def _start(self, j: int, action: Place, now: float) -> None:
        t, books = self.tables, self.books
        i = next(i for i, job in enumerate(self.waiting) if job.row == j)
        job = self.waiting[i]
        self._check(job, action, now)
        pieces = action.pieces or books.tell_apart(job.shape, action.tasks)
        books.take(job.shape, pieces)
        del self.waiting[i]
        self.phase[j] = RUNNING
        self.timer.pop(j, None)
        self.attempts[j] += 1
        self.begun[j] = now
        if math.isnan(self.first[j]):
            self.first[j] = now
        self.since[j] = now + self.overhead[j]
        self.pieces[j] = pieces
        books.running[job.id] = Running(job, pieces, now, self.overhead[j])
        self.speed[j] = self._speed(j)
        self._schedule_end(j)
        lasts = t.event_time.size > 0 or now + t.options.measured_after < self.finish[j]
        if self.learns and lasts:
            self.timer[j] = now + t.options.measured_after
            heapq.heappush(self.timers, (self.timer[j], j))
        books.events.append(Event("started", now, job, pieces=pieces))

    def _check(self, job: Job, action: Place, now: float) -> None:
        """Gangs are whole, and nothing is taken that is not free."""
        books = self.books
        where = f"at {now:g} s: job {job.id}"
        counts: dict[int, int] = {}
        for n, c in action.tasks:
            if not 0 <= n < len(books.free) or c < 1:
                raise InfeasibleDecision(f"{where} gets {c} tasks on node {n}")
            counts[n] = counts.get(n, 0) + c
        if sum(counts.values()) != job.tasks:
            raise InfeasibleDecision(
                f"{where} has {job.tasks} tasks, {sum(counts.values())} are placed; all or none"
            )
        if action.pieces:
            told: dict[int, int] = {}
            for n, c, _ in action.pieces:
                told[n] = told.get(n, 0) + c
            if told != counts:
                raise InfeasibleDecision(f"{where}: pieces and tasks say different things")
        for n, c in counts.items():
            name = books.nodes.names[n]
            if not books.up[n]:
                raise InfeasibleDecision(
                    f"{where} is placed on node {name}, which is down or drains"
                )
            if job.shape.per_node and c > job.shape.per_node:
                raise InfeasibleDecision(
                    f"{where} gets {c} tasks on node {name}; at most {job.shape.per_node} may be"
                )
            has = books.nodes.labels[n]
            for label, value in job.shape.constraint:
                if has.get(label) != value:
                    raise InfeasibleDecision(
                        f"{where} asks for {label}={value}; node {name} is not that"
                    )
            for k, d in enumerate(job.shape.demand):
                if c * d > books.free[n, k]:
                    raise InfeasibleDecision(
                        f"{where} takes {c * d / 1000:g} {books.nodes.devices[k]} on node {name}, "
                        f"where {books.free[n, k] / 1000:g} are free"
                    )
        shared = books.nodes.shared
        if shared is not None:
            amount = job.shape.demand[books.nodes.devices.index(shared)]
            left = books.device.copy()
            for n, c, mask in action.pieces or books.tell_apart(job.shape, action.tasks):
                used = [g for g in range(mask.bit_length()) if mask >> g & 1]
                wanted = 0 if amount == 0 else (1 if amount < 1000 else c * (amount // 1000))
                if len(used) != wanted:
                    raise InfeasibleDecision(f"{where}: {len(used)} {shared} for {c} tasks")
                for g in used:
                    left[n, g] -= c * amount if amount < 1000 else 1000
                    if left[n, g] < 0:
                        raise InfeasibleDecision(
                            f"{where} takes more of {shared} {g} of node {books.nodes.names[n]} "
                            "than is free"
                        )

    def _speed(self, j: int) -> float:
        t = self.tables
        if t.log_rates.size == 0:
            return 1.0
        rates = t.log_rates[t.jobs.type[j]]
        slowest = min(float(rates[n] + self.factor[n]) for n, _, _ in self.pieces[j])
        return math.exp(slowest + float(t.log_noise[j]))

    def _schedule_end(self, j: int) -> None:
        end = self.since[j] + self.left[j] / self.speed[j]
        o = self.tables.options
        if o.enforced and o.limits == "wall-clock":
            end = min(end, float(self.begun[j] + self.tables.jobs.limit[j]))
        self.finish[j] = end
        heapq.heappush(self.heap, (end, j))

    def _measure(self, j: int, now: float, first: bool, ended: bool) -> None:
        t = self.tables
        running = self.books.running[str(t.jobs.id[j])]
        rates = []
        for n, _, _ in self.pieces[j]:
            if t.log_rates.size:
                log = t.log_rates[t.jobs.type[j], n] + self.factor[n] + t.log_noise[j]
                rates.append(math.exp(float(log)))
            else:
                rates.append(1.0)
        nodes = tuple(n for n, _, _ in self.pieces[j])
        begun = float(self.since[j])
        self._tell(Rate(running.job, nodes, tuple(rates), begun, now, first, ended))

    def _leave(self, j: int, now: float, kind: Any) -> Job:
        running = self.books.running.pop(str(self.tables.jobs.id[j]))
        self.books.take(running.job.shape, self.pieces[j], sign=1)
        self.books.events.append(Event(kind, now, running.job, pieces=self.pieces[j]))
        return running.job

    def _finish(self, j: int, now: float) -> None:
        t = self.tables
        own = self.since[j] + self.left[j] / self.speed[j]
        if self.learns and now > self.since[j]:
            measured = self.begun[j] + t.options.measured_after
            self._measure(j, now, first=bool(now <= measured), ended=own <= now)
        killed = own > now or bool(t.doomed[j])
        self._leave(j, now, "killed" if killed else "finished")
        self.timer.pop(j, None)
        self.end[j] = now
        self.phase[j] = KILLED if killed else FINISHED
        self.counts["kills"] += killed
        self._let_follow(j, now)

    def _let_follow(self, j: int, now: float) -> None:
        """Job j has ended: those that come after it and nothing else may wait now."""
        self.ended += 1
        for k in self.after[j] if self.after else ():
            self.wants[k] -= 1
            if self.wants[k] == 0 and self.phase[k] == kernels.HELD:
                self._enter(k, now)

    def _cancel(self, j: int, now: float) -> None:
        """Job j is withdrawn, whether it was submitted, waits or runs."""
        phase = self.phase[j]
        if phase > RUNNING:
            return
        if phase == RUNNING:
            if self.learns and now > self.since[j]:
                measured = self.begun[j] + self.tables.options.measured_after
                self._measure(j, now, first=bool(now <= measured), ended=False)
            self._leave(j, now, "cancelled")
            self.end[j] = now
        elif phase == WAITING:
            i = next(i for i, job in enumerate(self.waiting) if job.row == j)
            self.books.events.append(Event("cancelled", now, self.waiting.pop(i)))
        self.timer.pop(j, None)
        self.phase[j] = CANCELLED
        self.counts["cancellations"] += 1
        self._let_follow(j, now)

    def _interrupt(self, j: int, now: float, kind: Literal["failed", "preempted"]) -> None:
        t, o = self.tables, self.tables.options
        size = t.jobs.tasks[j] * t.demand[t.jobs.shape[j], t.dominant[t.jobs.shape[j]]] / 1000.0
        left = max(self.left[j] - max(now - self.since[j], 0.0) * self.speed[j], 0.0)
        if kind == "failed":
            done = float(t.work[j]) - left
            kept = done
            if o.checkpoint == math.inf:
                kept = 0.0
            elif o.checkpoint > 0.0:
                kept = math.floor(done / o.checkpoint) * o.checkpoint
            self.lost[j] += (done - kept) * size
            left = float(t.work[j]) - kept
        self.lost[j] += min(now - self.begun[j], self.overhead[j]) * size
        why = 0 if kind == "failed" else 1
        self.cuts.append((j, float(self.begun[j]), now, why, self.pieces[j]))
        self._leave(j, now, kind)
        del self.pieces[j]
        self.left[j] = left
        self.overhead[j] = o.restart
        self.counts["requeues" if kind == "failed" else "preemptions"] += 1
        self._enter(j, now)

    def _node_event(self, kind: int, n: int, value: float, now: float) -> None:
        """A node fails, drains, comes back, or changes its rate by a factor (its logarithm).

        What is free on a node that drains is what is free less all it has: as jobs there end,
        nothing.
        """
        books = self.books
        if kind in (kernels.DOWN, kernels.FACTOR):
            if kind == kernels.FACTOR:
                self.factor[n] = value
            there = sorted(
                self.rows[name]
                for name, running in books.running.items()
                if any(m == n for m, _, _ in running.pieces)
            )
            for j in there:
                if kind == kernels.DOWN:
                    self._interrupt(j, now, "failed")
                else:
                    self._change_speed(j, now)
            if kind == kernels.FACTOR:
                return
        if books.up[n] == (kind == kernels.UP):
            return
        books.up[n] = kind == kernels.UP
        sign = 1 if kind == kernels.UP else -1
        books.free[n] += sign * books.capacity[n]
        books.device[n] += sign * Books.opened(books.nodes).device[n]
        names: dict[int, EventKind] = {
            kernels.UP: "node_up",
            kernels.DOWN: "node_down",
            kernels.DRAIN: "node_drained",
        }
        books.events.append(Event(names[kind], now, node=n))

    def _change_speed(self, j: int, now: float) -> None:
        speed = self._speed(j)
        if speed == self.speed[j]:
            return
        if now > self.since[j]:
            worked = (now - self.since[j]) * self.speed[j]
            self.left[j] = max(self.left[j] - worked, 0.0)
            self.since[j] = now
        self.speed[j] = speed
        self._schedule_end(j)

    def schedule(self) -> Schedule:
        """What has happened so far."""
        t = self.tables
        J = len(t.jobs)
        counts = np.array([len(self.pieces.get(j, ())) for j in range(J)], dtype=np.int64)
        flat = [p for j in range(J) for p in self.pieces.get(j, ())]
        cut = [p for c in self.cuts for p in c[4]]
        lengths = [len(c[4]) for c in self.cuts]
        return Schedule(
            t.jobs,
            t.nodes,
            self.first,
            self.end,
            self.begun,
            self.phase,
            self.attempts,
            self.lost,
            np.full(J, np.inf),
            np.cumsum(counts) - counts,
            counts,
            np.array([p[0] for p in flat], dtype=np.int64),
            np.array([p[1] for p in flat], dtype=np.int64),
            {
                "job": np.array([c[0] for c in self.cuts], dtype=np.int64),
                "begun": np.array([c[1] for c in self.cuts]),
                "end": np.array([c[2] for c in self.cuts]),
                "why": np.array([c[3] for c in self.cuts], dtype=np.int64),
                "from": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                "node": np.array([p[0] for p in cut], dtype=np.int64),
                "tasks": np.array([p[1] for p in cut], dtype=np.int64),
            },
            self.counts,
            self.seconds,
            t.account,
            t.told(name_of(self.scheduler), "plain"),
        )


def _with_shape(job: Job, shape: Any) -> Job:
    return Job(
        job.id,
        job.row,
        job.submitted,
        job.job_type,
        job.user,
        job.tasks,
        shape,
        job.limit,
        job.deadline,
        job.budget,
        job.priority,
    )

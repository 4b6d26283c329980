"""Slurm's passes once more, plainly: lists and whole arrays, each question asked anew.

The main loop and backfilling as :mod:`gangwise.jobs.slurm_passes` describes them, with preemption
as :mod:`gangwise.jobs.preemption` does; a scheduler of its own, to be played by `simulate_jobs`.
It chooses nodes as the passes in Python do; compiled passes have code of their own for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats
from gangwise.core.registry import create
from gangwise.jobs.books import Ask, Books, Piece, Place, Preempt, Queue, Running
from gangwise.jobs.caps import Tally
from gangwise.jobs.choice import Tasks
from gangwise.jobs.gang_passes import Consecutive
from gangwise.jobs.model import Job, terms_of
from gangwise.jobs.scheduler import Action, Composed
from gangwise.jobs.tenancy import Tenancy


def windows(books: Books, ends: dict[str, float], now: float) -> list[tuple[float, Books]]:
    """Books as they will be if running jobs end when expected: now, and a window at a time."""
    found, then, window = [(now, books)], books.copy(), 30.0
    left = sorted(((ends[name], name) for name in books.running), reverse=True)
    while left:
        until = left[-1][0] + window
        while left and left[-1][0] <= until:
            time, name = left.pop()
            then.take(books.running[name].job.shape, books.running[name].pieces, sign=1)
        found.append((max(time, float(np.nextafter(now, np.inf))), then.copy()))  # not free yet
        window *= 2
    return found


class Reserved(NamedTuple):
    """Nodes held for a job that waits [N], from when to when."""

    begin: float
    end: float
    nodes: Bools


@dataclass
class PlainPasses(Composed):
    """The scheduler ``slurm``, with its parameters."""

    choice: Any = field(default_factory=Consecutive)
    depth: int = 100
    order: str = "fcfs"
    interval: float = 30.0
    resolution: float = 60.0
    window: float = 86_400.0
    tested: int = 500
    _passed: float = field(default=-np.inf, init=False, repr=False)
    _due: bool = field(default=False, init=False, repr=False)
    _changed: bool = field(default=True, init=False, repr=False)
    _line: list[Job] = field(default_factory=list, init=False, repr=False)
    # Who was preempted: by whom, until when it may not start, and where it was suspended.
    _gave_way: dict[str, tuple[str, float, tuple[Piece, ...]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.queue = create("scheduler", self.order).queue
        super().__post_init__()

    def place(self, queue: Queue, books: Books, now: float) -> list[Action]:
        """The main loop; then backfilling, where it is due."""
        for event in books.events:
            if event.time < now:
                self._change(event.time)
        self._elapse(now)
        self._take_in(books)
        self.queue.take_in(books)
        trial = books.copy()
        keys = np.argsort(self._keys(queue, books, now), kind="stable")
        order = [queue[i] for i in keys.tolist()]
        names = {job.id for job in order}
        self._gave_way = {name: of for name, of in self._gave_way.items() if name in names}
        ends = {name: max(end, now) for name, end in self._expected_ends(trial, now).items()}
        tally = trial.tally()
        actions = self._resume(order, trial, ends, now, tally)
        actions += self._main_loop(order, trial, ends, now, tally)
        left = [job for job in order if job.id not in trial.running]
        late = any(
            end <= now for end in ends.values()
        )  # past its limit: it may free nodes any time
        # A pass on the same jobs as the last finds nothing that it did not: time only runs out.
        self._changed |= bool(books.events) or late or order != self._line
        if left and self.tested and now >= self._passed + self.interval:
            self._passed, self._line = now, order
            if self._changed:
                actions += self._backfill(left[: self.tested], trial, ends, now, tally)
            self._changed = False
            left = [job for job in left if job.id not in trial.running]
        # While anyone waits backfilling comes again; and when who was preempted may start.
        asks = [(self._passed + self.interval, job.id) for job in left[: bool(self.tested)]]
        asks += [(at, name) for name, (_, at, _) in self._gave_way.items() if now < at < np.inf]
        actions += [Ask(asks[0][1], min(asks)[0])] if asks else []
        self._due = True
        return actions

    def _keys(self, queue: Queue, books: Books, now: float) -> Floats:
        """Of the order; without priorities, who was not eligible at first kept its place."""
        if self.order != "fcfs":
            return np.asarray(self.queue.keys(queue, books, now))
        return np.array([float(terms_of(j.terms).get("queued", j.submitted)) for j in queue])

    def _change(self, time: float) -> None:
        """Something happened while nobody waited: backfilling has its clock all the same.

        It comes ``interval`` seconds after it last came, or later, as soon as anything has changed.
        """
        self._elapse(time)
        self._due = time < self._passed + self.interval
        if not self._due:
            self._passed = time

    def _elapse(self, now: float) -> None:
        if self._due and self._passed + self.interval < now:
            self._passed, self._due = self._passed + self.interval, False

    def _resume(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """Those who were suspended go on, the first in line first, once their nodes are free."""
        actions: list[Action] = []
        for job in order if self._gave_way else ():
            _, _, pieces = self._gave_way.get(job.id, ("", 0.0, ()))
            if pieces and books.up[[n for n, _, _ in pieces]].all() and not tally.holds(job):
                books.take(job.shape, pieces)
                on = [n for n, _, _ in pieces]
                free = (books.free[on] >= 0).all() and (books.device[on] >= 0).all()
                books.take(job.shape, pieces, sign=1)
                if free:
                    tasks = [(n, c) for n, c, _ in pieces]
                    actions.append(self._start(job, tasks, books, ends, now, tally, pieces))
        return actions

    def _may_start(self, job: Job, now: float, tally: Tally) -> bool:
        _, until, pieces = self._gave_way.get(job.id, ("", now, ()))
        return until <= now and not pieces and tally.holds(job) is None

    def _main_loop(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        actions: list[Action] = []
        closed = np.zeros(len(books.free), dtype=bool)
        for job in order[: self.depth]:
            mine = books.nodes.of_pool(job.shape.pool)
            able = not (closed | ~mine).all() and self._may_start(job, now, tally)
            if not able or job.id in books.running:
                continue
            open_ = replace(books, up=books.up & ~closed)
            chosen = self.choice.place(job, open_, now)
            if chosen is None:
                room = self._make_room(job, open_, now)
                chosen, others = room or (None, [])
                actions += self._give_way(job, others, books, ends, now, tally)
            if chosen is None:
                closed |= mine
            else:
                actions.append(self._start(job, chosen, books, ends, now, tally))
        return actions

    def _make_room(self, job: Job, books: Books, now: float) -> tuple[Any, list[Running]] | None:
        tenancy = books.tenancy
        if tenancy is None or not tenancy.preemption.by:
            return None
        return make_room(job, books, tenancy, self.choice, now)

    def _give_way(
        self,
        job: Job,
        others: Sequence[Running],
        books: Books,
        ends: dict[str, float],
        now: float,
        tally: Tally,
    ) -> list[Action]:
        """Take others off their nodes for a job."""
        actions: list[Action] = []
        for running in others:
            name = running.job.id
            books.take(running.job.shape, running.pieces, sign=1)
            tally.take(running.job, -1)
            del books.running[name], ends[name]
            how = way_of(books.tenancy or Tenancy(), running.job)
            again = now + books.tenancy.preemption.again if books.tenancy else now
            asleep = running.pieces if how == "suspend" else ()
            self._gave_way[name] = job.id, np.inf if how == "cancel" else again, asleep
            lost: Any = "keep" if asleep else how
            actions.append(Preempt(name, lost))
        return actions

    def _start(
        self,
        job: Job,
        chosen: Tasks,
        books: Books,
        ends: dict[str, float],
        now: float,
        tally: Tally,
        pieces: tuple[Piece, ...] = (),
    ) -> Place:
        pieces = pieces or books.tell_apart(job.shape, chosen)
        books.take(job.shape, pieces)
        tally.take(job)
        ends[job.id] = now + job.limit
        return self._started(job, chosen, pieces, books, now)

    def _backfill(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """One pass: start what fits now beside reservations made before it, reserve for others."""
        actions: list[Action] = []
        reserved: list[Reserved] = []
        ahead: list[tuple[float, Books]] = []
        for job in order:
            if not self._may_start(job, now, tally):
                continue
            ahead = ahead or windows(books, ends, now)
            found = self._first_time(job, ahead, reserved, now)
            room = None
            if found is None or found[0] > now:
                busy = _busy(reserved, job, now, len(books.free))
                room = self._make_room(job, replace(books, up=books.up & ~busy), now)
            if room:
                chosen, others = room
                actions += self._give_way(job, others, books, ends, now, tally)
                found = now, chosen
            if found is None:
                continue
            time, chosen = found
            if time <= now:
                actions.append(self._start(job, chosen, books, ends, now, tally))
                ahead = []
            elif time <= now + self.window:
                nodes = np.isin(np.arange(len(books.free)), [n for n, _ in chosen])
                times = self._rounded(time), self._rounded(time + job.limit)
                reserved.append(Reserved(*times, nodes))
        return actions

    def _first_time(
        self, job: Job, ahead: list[tuple[float, Books]], reserved: list[Reserved], now: float
    ) -> tuple[float, Tasks] | None:
        """When a job fits beside the reservations, and where; None for never.

        Tried now, then each time that a reservation begins or ends: without nodes that are reserved
        while it would run.
        """
        after = now
        while after < np.inf:
            later = min((t for r in reserved for t in r[:2] if t > after), default=np.inf)
            busy = _busy(reserved, job, after, len(ahead[0][1].free))
            time, chosen = self._first(job, ahead, busy, now)
            time = max(time, after)
            if chosen is not None and time <= later:
                on, until = [n for n, _ in chosen], self._rounded(time + job.limit)
                begin = self._rounded(time) if time > now else time
                if not any(
                    r.nodes[on].any() and r.begin < until and r.end > begin for r in reserved
                ):
                    return time, chosen
                later = time if time > after else later
            after = later
        return None

    def _first(
        self, job: Job, ahead: list[tuple[float, Books]], busy: Bools, now: float
    ) -> tuple[float, Tasks | None]:
        """When a job fits on nodes that are not busy [N], and where; infinity for never."""
        for time, books in ahead:
            chosen = self.choice.place(job, replace(books, up=books.up & ~busy), now)
            if chosen is not None:
                return time, chosen
        return np.inf, None

    def _rounded(self, time: float) -> float:
        return time // self.resolution * self.resolution


def _busy(reserved: Sequence[Reserved], job: Job, after: float, count: int) -> Bools:
    """Of so many nodes, those that are reserved while a job would run that starts then [N]."""
    busy = np.zeros(count, dtype=bool)
    for r in reserved:
        if r.begin <= after + job.limit and r.end > after:
            busy |= r.nodes
    return busy


# ---------------------------------------------------------------------------------- who gives way


def way_of(tenancy: Tenancy, job: Job) -> str:
    """How a job gives way: requeue, cancel or suspend; off: it does not."""
    rules = tenancy.preemption
    table: Any = tenancy.qos if rules.by == "qos" else tenancy.pools
    name = job.qos if rules.by == "qos" else job.pool
    own = next((each.preempted for each in table if each.name == name), "")
    return str(own or rules.how) if rules.by else "off"


def rank_of(tenancy: Tenancy, job: Job) -> float:
    """By which those who give way are ordered: priority of the QOS, or tier of the pool."""
    if tenancy.preemption.by == "qos":
        return next((q.priority for q in tenancy.qos if q.name == job.qos), 0.0)
    return next((pool.tier for pool in tenancy.pools if pool.name == job.pool), 1)


def gives_way(tenancy: Tenancy, running: Running, job: Job, now: float) -> bool:
    """Whether a job that runs may be preempted for another now."""
    rules, other = tenancy.preemption, running.job
    mine = next((qos for qos in tenancy.qos if qos.name == other.qos), None)
    if rules.by == "qos":
        theirs = next((qos.preempts for qos in tenancy.qos if qos.name == job.qos), ())
        above = other.qos in theirs
    else:
        above = rank_of(tenancy, job) > rank_of(tenancy, other)
    exempt = rules.exempt if mine is None or mine.exempt is None else mine.exempt
    how = way_of(tenancy, other)
    rested = now > running.begun and now >= running.begun + exempt * (how != "suspend")
    return above and rested and how != "off"


def make_room(
    job: Job, books: Books, tenancy: Tenancy, choice: Any, now: float
) -> tuple[Any, list[Running]] | None:
    """Where a job would run, and who gives way to it; None where nobody can make room."""
    rules, nodes = tenancy.preemption, books.nodes.of_pool(job.shape.pool)
    able = [
        running
        for running in books.running.values()
        if nodes[list(nodes_of(running))].any() and gives_way(tenancy, running, job, now)
    ]
    if rules.youngest_first:
        able.sort(key=lambda running: -running.begun)
    else:
        able.sort(key=lambda r: (rank_of(tenancy, r.job), len(nodes_of(r))))
    order, chosen, on, taken = able, None, set[int](), 0
    for attempt in range(rules.reorder + 2):
        if attempt:
            order = _reordered(order, taken, on, rules.strict)
            if len(able) <= attempt:
                break
        free, taken, found = books.copy(), 0, None
        while found is None and taken < len(order):
            free.take(order[taken].job.shape, order[taken].pieces, sign=1)
            found = choice.place(job, free, now)
            taken += 1
        if found is None:
            break
        chosen, on = found, {n for n, _ in found}
    if chosen is None:
        return None
    return chosen, [running for running in able if on & nodes_of(running)]


def nodes_of(running: Running) -> set[int]:
    return {n for n, _, _ in running.pieces}


def _reordered(order: Sequence[Running], taken: int, on: set[int], strict: bool) -> list[Running]:
    """The last of those taken away first; ``strict``: then as before, else by nodes shared."""
    others = list(order[: taken - 1])
    if not strict:
        others.sort(key=lambda running: -len(nodes_of(running) & on))
    return [order[taken - 1], *others, *order[taken:]]

"""Slurm's passes under gang scheduling, decided in Python: who is suspended keeps its cores.

The main loop and backfilling of :mod:`gangwise.jobs.slurm_passes` where the site has
PreemptMode=SUSPEND,GANG. Cores are told apart there, see :mod:`gangwise.jobs.gang_rows`, which
compiled passes do not do: a month of such a site takes minutes, not seconds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.registry import create
from gangwise.jobs.books import Ask, Books, Piece, Place, Preempt, Queue, Running
from gangwise.jobs.caps import Tally, having
from gangwise.jobs.choice import Tasks, fill, pieces_of
from gangwise.jobs.gang_rows import Rows, way_of
from gangwise.jobs.model import Job, Nodes, Shape, terms_of
from gangwise.jobs.scheduler import Action, Composed, _Round
from gangwise.jobs.tenancy import Tenancy

FIRST_WINDOW = 30.0
"""Seconds of running jobs whose ends are looked at together; each time twice as many."""


@dataclass
class Consecutive:
    """Of runs of nodes side by side that hold the gang, that with least free, its first nodes.

    A single task takes the node of the run with least free. Where no run holds all, all of the one
    with most free is taken, and so on. As select/cons_tres does without a topology. Nodes of the
    smallest weight are taken first, then those of the next.
    """

    name: ClassVar[str] = "consecutive"

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        fits = books.fits(job.shape)
        if int(fits.sum()) < job.tasks:
            return None
        free, nodes = books.free[:, books.dominant(job.shape)], books.nodes
        asked = next((k for k, _ in job.shape.constraint if "*" in k or "[" in k), "")
        if "*" not in asked:
            inside = re.fullmatch(r"\[([^\[\]()&]*)\]", asked)  # all of one feature, the first
            for feature in inside[1].split("|") if inside else ():
                if found := _lightest(job.tasks, fits * _have(nodes, feature), free, nodes):
                    return found
            return None if inside else _lightest(job.tasks, fits, free, nodes)
        chosen, fits = Tasks(), fits.copy()
        for feature, count in re.findall(r"([^\[\]&|*]+)(?:\*(\d+))?", asked):
            some = _lightest(int(count or 1), fits * _have(nodes, feature), free, nodes)
            if some is None:
                return None
            chosen += some
            fits[[n for n, _ in some]] = 0
        left = job.tasks - sum(count for _, count in chosen)
        others = _lightest(left, fits, free, nodes) if left > 0 else Tasks()
        return None if others is None else chosen + others


@lru_cache(64)
def _have(nodes: Nodes, feature: str) -> Bools:
    """Nodes with a feature [N]."""
    return np.array([having(feature, has.get("features", "")) for has in nodes.labels])


@lru_cache(8)
def _weights(nodes: Nodes) -> tuple[Bools, ...]:
    """Nodes of each weight [N], the smallest first."""
    weight = np.array([int(has.get("weight", 1)) for has in nodes.labels])
    return tuple(weight == w for w in np.unique(weight))


def _lightest(tasks: int, fits: Ints, free: Ints, nodes: Nodes) -> Tasks | None:
    """Nodes for so many tasks: of the smallest weight first, then of the next."""
    if int(fits.sum()) < tasks:
        return None
    chosen = Tasks()
    for mine in _weights(nodes):
        here = np.where(mine, fits, 0)
        some = min(tasks, int(here.sum()))
        chosen += _consecutive(some, here, free) if some else ()
        tasks -= some
    return chosen


def _consecutive(tasks: int, fits: Ints, free: Ints) -> Tasks:
    """Of runs of nodes that have room, those that hold so many tasks."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], fits > 0, [0]]).astype(np.int8)))
    runs = [(int(free[a:b].sum()), a, b) for a, b in zip(edges[::2], edges[1::2])]
    left, chosen = tasks, Tasks()
    while left > 0:
        enough = [run for run in runs if int(fits[run[1] : run[2]].sum()) >= left]
        run = min(enough, key=lambda r: r[0]) if enough else max(runs, key=lambda r: r[0])
        runs.remove(run)
        among = range(run[1], run[2])
        tightest = sorted(among, key=lambda n: int(free[n]))
        chosen += fill(left, fits, tightest if left == 1 else among)
        left = tasks - sum(count for _, count in chosen)
    return chosen


class Ahead:
    """Books as they will be, if running jobs end when expected: now, and a window at a time.

    Each window is twice as long as the last. They hold until a pass starts or preempts a job.
    """

    def __init__(
        self, books: Books, ends: dict[str, float], now: float, rows: Rows, rank: float = -np.inf
    ):
        books = rows.view(books, rank)
        self.times, self.books, self._fits = [now], [books], dict[Shape, Ints]()
        then, window, gone = books.copy(), FIRST_WINDOW, list[str]()
        asleep = {n: max(h.end, now) for n, h in rows.held.items() if h.asleep and h.tier >= rank}
        left = [(ends[name], name) for name in books.running if rows.shows(name, rank)]
        left = sorted([*left, *((end, name) for name, end in asleep.items())], reverse=True)
        while left:
            first = left[-1][0]
            while left and left[-1][0] <= first + window:
                time, name = left.pop()
                running = books.running.get(name) or rows.held[name]
                then.take(running.job.shape, running.pieces, sign=1)
                gone.append(name)
            then = rows.view(then, rank, gone)
            self.times.append(max(time, float(np.nextafter(now, np.inf))))  # not free yet
            self.books.append(then.copy())
            window *= 2

    def windows(self, job: Job, idle: Bools) -> list[int]:
        """Windows in which nodes that are idle [N] take all tasks, if one looks at each by itself.

        No choice of nodes places the job in another.
        """
        if job.shape not in self._fits:
            self._fits[job.shape] = np.stack([books.fits(job.shape) for books in self.books])
        fits = self._fits[job.shape]
        return [int(k) for k in np.flatnonzero(fits[:, idle].sum(axis=1) >= job.tasks)]

    def first(self, job: Job, busy: Bools, choice: Any, now: float) -> tuple[float, Tasks | None]:
        """When a job fits on nodes that are not busy [N], and where; infinity for never."""
        for k in self.windows(job, ~busy):
            books = self.books[k]
            chosen = choice.place(job, replace(books, up=books.up & ~busy), now)
            if chosen is not None:
                return self.times[k], chosen
        return np.inf, None


class Reserved(NamedTuple):
    """Nodes held for a job that waits [N], from when to when."""

    begin: float
    end: float
    nodes: Bools


@dataclass
class GangPasses(Composed):
    """The scheduler of :class:`gangwise.jobs.slurm_passes.SlurmPasses` under gang scheduling."""

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
    _rows: Rows = field(default_factory=Rows, init=False, repr=False)

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
        self._rows.take_in(trial, names, ends)
        self._last, tally = _Round(trial, now, ends, [*order]), trial.tally()
        actions = self._resume(trial, ends, now, tally)
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
        # Who was suspended may have made room for one below it.
        actions += self._resume(trial, ends, now, tally)
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
        self, books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """Those who were suspended go on, the first in line first, once their cores are free."""
        actions: list[Action] = []
        for name in self._rows.wake(books):
            held = self._rows.held[name]
            tasks = [(n, c) for n, c, _ in held.pieces]
            actions.append(self._start(held.job, tasks, books, ends, now, tally, held.pieces))
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
        if books.tenancy is None or not self._rows.held:
            return None
        return self._rows.make_room(job, books, books.tenancy, self.choice, now)

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
            self._rows.suspend(name, now - running.begun)
            tally.take(running.job, -1)
            del books.running[name], ends[name]
            how = way_of(books.tenancy or Tenancy(), running.job)
            again = now + books.tenancy.preemption.again if books.tenancy else now
            asleep = running.pieces if how == "suspend" else ()
            self._gave_way[name] = job.id, np.inf if how == "cancel" else again, asleep
            lost: Any = "keep" if asleep else how
            actions.append(Preempt(name, lost))
            if self._last is not None:
                self._last.order.append(running.job)
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
        pieces = pieces or pieces_of(self.choice, job, chosen, books)
        if job.id not in self._rows.held:
            books.take(job.shape, pieces)
        tally.take(job)
        ends[job.id] = now + job.limit
        self._rows.start(job, pieces, books, ends)
        return self._started(job, chosen, pieces, books, now)

    def _backfill(
        self, order: Sequence[Job], books: Books, ends: dict[str, float], now: float, tally: Tally
    ) -> list[Action]:
        """One pass: start what fits now beside reservations made before it, reserve for others."""
        actions: list[Action] = []
        reserved: list[Reserved] = []
        ahead: Ahead | None = None
        for job in order:
            if not self._may_start(job, now, tally):
                continue
            ahead = ahead or Ahead(books, ends, now, self._rows)
            found = self._first_time(job, ahead, reserved, now)
            room = None
            if found is None or found[0] > now:
                busy = _busy(reserved, job, now, len(books.free))
                room = self._make_room(job, replace(books, up=books.up & ~busy), now)
            if room:
                chosen, others = room
                actions += self._give_way(job, others, books, ends, now, tally)
                found = now, chosen
            elif (rank := self._rows.above(job, books.tenancy)) and (not found or found[0] > now):
                found = self._first_time(
                    job, Ahead(books, ends, now, self._rows, rank), reserved, now
                )
            if found is None:
                continue
            time, chosen = found
            if time <= now:
                actions.append(self._start(job, chosen, books, ends, now, tally))
                ahead = None
            elif time <= now + self.window:
                nodes = np.isin(np.arange(len(books.free)), [n for n, _ in chosen])
                times = self._rounded(time), self._rounded(time + job.limit)
                reserved.append(Reserved(*times, nodes))
        return actions

    def _first_time(
        self, job: Job, ahead: Ahead, reserved: list[Reserved], now: float
    ) -> tuple[float, Tasks] | None:
        """When a job fits beside the reservations, and where; None for never.

        Tried now, then each time that a reservation begins or ends: without nodes that are reserved
        while it would run.
        """
        nodes = len(ahead.books[0].free)
        able = ahead.windows(job, np.ones(nodes, dtype=bool))
        bounds = [*sorted({t for r in reserved for t in r[:2] if t > now}), np.inf]
        after = now if able else np.inf
        while after < np.inf:
            later = bounds[bisect_right(bounds, after)]
            if later < ahead.times[able[0]]:  # nor does it fit by then without any reservation
                after = later
                continue
            time, chosen = ahead.first(job, _busy(reserved, job, after, nodes), self.choice, now)
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

    def _held_back(self, job: Job, last: _Round) -> tuple[str, float]:
        other, until, pieces = self._gave_way.get(job.id, ("", -np.inf, ()))
        if pieces:
            mine, every = {n for n, _, _ in pieces}, last.books.running.values()
            ends = [last.ends[r.job.id] for r in every if mine & {n for n, _, _ in r.pieces}]
            said = f"it is suspended for job {other}, and goes on where it was"
            return said, max([last.now, *ends])
        if until > last.now:
            return f"it was preempted for job {other}, and may start again then", until
        return super()._held_back(job, last)

    def _rounded(self, time: float) -> float:
        return time // self.resolution * self.resolution


def _busy(reserved: Sequence[Reserved], job: Job, after: float, count: int) -> Bools:
    """Of so many nodes, those that are reserved while a job would run that starts then [N]."""
    busy = np.zeros(count, dtype=bool)
    for r in reserved:
        if r.begin <= after + job.limit and r.end > after:
            busy |= r.nodes
    return busy

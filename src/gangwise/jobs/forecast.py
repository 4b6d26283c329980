"""When waiting jobs will start: a distribution, from many futures that are played.

A future draws what is not known: how long running jobs still take, how long waiting ones will, and
who comes meanwhile — a stretch of the log's own past at the same time of day, for later jobs may
pass or stand ahead. The rules then decide in compiled code from the very state of the moment, and
the starts in all futures are the distribution. What such distributions have been worth so far
corrects them (:class:`Calibration`), as in Kuleshov, Fenner and Ermon (2018): run times of a user's
jobs are alike, which independent draws do not know.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.jobs import kernels, round_kernels
from gangwise.jobs.books import Books, Piece
from gangwise.jobs.compiled import (
    _nothing_believed,
    built_in,
    initial_state,
    inputs,
    more_room,
    plans_of,
)
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Schedule, Tables, name_of
from gangwise.jobs.scheduler import create_scheduler

DAY = 86_400.0
DRAWS = 100
"""Futures that are played."""
DAYS = 28
"""From so many days back those are drawn who come."""
COMING = 600, 4000
"""Jobs to come in a future: so many at least, and at most those of three days."""
RECENT = 20_000
"""Jobs that ended last, from which run times are drawn."""
STRETCHES = 50
"""Stretches of the past that one future has at most."""
CHUNK = 128
"""Instants that are played before it is looked whether all have started."""
CLASSES = 600.0, 3600.0, 6 * 3600.0
"""Seconds: forecasts are told apart by how far ahead their median is."""
NO_RULES = "fcfs+easy+best-fit"
"""Rules assumed of a scheduler that does not decide in compiled code."""


class Moment(NamedTuple):
    """Who runs where and who waits.

    Attributes
    ----------
    running, waiting : ndarray
        Rows of the jobs, those that wait in the order of their submission.
    begun : ndarray
        Since when each running job runs.
    pieces : sequence
        Of each running job.
    books : Books
        What is free, and which nodes are up.
    """

    now: float
    running: Ints
    begun: Floats
    pieces: Sequence[tuple[Piece, ...]]
    waiting: Ints
    books: Books


def moment_of(
    jobs: Jobs,
    nodes: Nodes,
    now: float,
    begun: Floats,
    end: Floats,
    playable: Bools,
    schedule: Schedule | None = None,
) -> Moment:
    """The moment of a log or a schedule at a time.

    Where no schedule says on which nodes jobs run, each takes the first that have room; those for
    which there is none are left out.
    """
    with np.errstate(invalid="ignore"):
        runs = playable & (begun <= now) & (end > now)
        waits = playable & (jobs.submit <= now) & ~(begun <= now) & ~(end <= now)
    books = Books.opened(nodes)
    rows = np.flatnonzero(runs)
    kept: list[int] = []
    pieces: list[tuple[Piece, ...]] = []
    for j in rows[np.argsort(begun[rows], kind="stable")].tolist():
        job = jobs.job(j)
        shape = job.shape
        if jobs.devices != nodes.devices:
            asked = dict(zip(jobs.devices, shape.demand))
            shape = shape._replace(demand=tuple(asked.get(k, 0) for k in nodes.devices))
        tasks = schedule.placed(j) if schedule is not None else _somewhere(books, shape, job.tasks)
        if tasks:
            pieces.append(books.tell_apart(shape, tasks))
            books.take(shape, pieces[-1])
            kept.append(j)
    running = np.array(kept, dtype=np.int64)
    return Moment(now, running, begun[running], pieces, np.flatnonzero(waits), books)


def _somewhere(books: Books, shape: Any, tasks: int) -> list[tuple[int, int]]:
    """The first nodes that have room for so many tasks; none where there is too little."""
    fits = books.fits(shape)
    before = np.cumsum(fits) - fits
    takes = np.clip(tasks - before, 0, fits)
    on = np.flatnonzero(takes)
    return list(zip(on.tolist(), takes[on].tolist())) if takes.sum() == tasks else []


# ------------------------------------------------------------------------------------ what is drawn


class RunTimes:
    """Run times as jobs had them: the like of the same user, of the user, of all (Kaplan–Meier).

    Each level counts by how many jobs it has. Those that still run count for what they have run by
    now; without them the long ones would be missing.

    Parameters
    ----------
    run, end : ndarray [J]
        How long each job ran and when it ended; what had not ended by then is not looked at.
    """

    LAST = 20, 40, 200
    TRUST = 1.0, 4.0, 0.0

    def __init__(self, jobs: Jobs, run: Floats, end: Floats, moment: Moment):
        self.jobs = jobs
        with np.errstate(invalid="ignore"):
            ended = np.flatnonzero((end <= moment.now) & np.isfinite(run))
        ended = ended[np.argsort(end[ended], kind="stable")][-RECENT:]
        self._limit = np.maximum(jobs.limit, 1.0)
        self._like: dict[tuple[int, ...], list[tuple[int, float]]] = {}
        self._runs: dict[tuple[int, ...], list[tuple[int, float]]] = {}
        ages = (moment.now - moment.begun).tolist()
        for j, lasted in zip(ended.tolist(), run[ended].tolist()):
            self._enter(self._like, j, lasted)
        for j, age in zip(moment.running.tolist(), ages):
            self._enter(self._runs, j, age)

    def _enter(self, into: dict[Any, list[tuple[int, float]]], j: int, seconds: float) -> None:
        for key in self._keys(j):
            into.setdefault(key, []).append((j, seconds / float(self._limit[j])))

    def _keys(self, j: int) -> tuple[tuple[int, ...], ...]:
        user, limit = int(self.jobs.user[j]), float(self._limit[j])
        size = int(2 * np.log2(limit))
        return (user, size, int(limit), int(self.jobs.tasks[j])), (user, size), (size,)

    def draw(self, j: int, age: float, many: int, rng: np.random.Generator) -> Floats:
        """Run times of a job that has run for ``age`` seconds, many draws."""
        limit, values, weights, left = float(self._limit[j]), [], [], 1.0
        for key, last, trust in zip(self._keys(j), self.LAST, self.TRUST):
            ended = [ratio for _, ratio in self._like.get(key, ())[-last:]]
            still = [ratio for i, ratio in self._runs.get(key, ())[-last:] if i != j]
            if ended:
                share = left * len(ended) / (len(ended) + trust)
                left -= share
                value, weight = _kaplan_meier(ended, still)
                values.append(value * limit)
                weights.append(share * weight)
        if values:
            value, weight = np.concatenate(values), np.concatenate(weights)
            weight = np.where(value > age, weight, 0.0)
            if (total := weight.sum()) > 1e-6:
                return np.asarray(rng.choice(value, many, p=weight / total))
        most = max(limit, 1.5 * age)  # nothing like it ever ran so long
        return np.minimum(age / np.maximum(rng.random(many), 1e-3) + 1.0, most + 1.0)


def _kaplan_meier(ended: list[float], still: list[float]) -> tuple[Floats, Floats]:
    """Values and weights of a distribution, of which some values are only known to be larger.

    What is left when the largest is such a one lies at 1, the limit, or behind it.
    """
    value = np.array([*ended, *still])
    if not still:
        return value, np.full(value.size, 1.0 / value.size)
    event = np.arange(value.size) < len(ended)
    order = np.lexsort((~event, value))
    value, event = value[order], event[order]
    survival = np.cumprod(np.where(event, 1.0 - 1.0 / (value.size - np.arange(value.size)), 1.0))
    weight = -np.diff(survival, prepend=1.0)
    return np.append(value, max(1.0, 1.2 * value[-1])), np.append(weight, survival[-1])


def coming(submit: Floats, now: float, jobs: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Who comes: rows of past jobs, and when each comes, from stretches of whole days back.

    A log younger than two days has stretches of any length.
    """
    past = int(np.searchsorted(submit, now, side="right"))
    age = now - float(submit[0]) if past else 0.0
    rows: list[Ints] = []
    times: list[Floats] = []
    time = now
    for _ in range(STRETCHES):
        if age <= 0 or sum(map(len, rows)) >= jobs:
            break
        if age >= 2 * DAY:
            back = DAY * float(rng.integers(1, min(int(age / DAY), DAYS) + 1))
            back += DAY * np.ceil((time - now) / DAY)
            back = min(back, time - float(submit[0]))
        else:
            back = time - now + float(rng.uniform(0.1, 1.0)) * age
        low = int(np.searchsorted(submit[:past], time - back, side="right"))
        rows.append(np.arange(low, past))
        times.append(submit[low:past] + back)
        time = now + back
    if not rows:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    return np.concatenate(rows)[:jobs], np.concatenate(times)[:jobs]


# ---------------------------------------------------------------------------------------- futures


class Forecaster:
    """Plays what may come of a moment under rules.

    Parameters
    ----------
    jobs, nodes : Jobs, Nodes
        All jobs of the log; of those submitted later nothing is looked at.
    scheduler : str or Scheduler
        The rules assumed. Nodes count as alike: a choice by rates becomes best-fit.

    Attributes
    ----------
    assumed : str
        The rules, in words.
    """

    def __init__(
        self, jobs: Jobs, nodes: Nodes, scheduler: Any = NO_RULES, options: Options | None = None
    ):
        self.tables = Tables.of(jobs, nodes, Conditions(), options or Options())
        made = create_scheduler(scheduler)
        rules = built_in(made, nodes, self.tables.options)
        self.assumed = name_of(made)
        if rules is None or rules.queue == kernels.MULTIFACTOR:
            why = (
                "which decides in Python" if rules is None else "whose use of the past is not known"
            )
            made, was = create_scheduler(NO_RULES), self.assumed
            rules = built_in(made, nodes, self.tables.options)
            self.assumed = f"{NO_RULES} (in place of {was}, {why})"
        assert rules is not None
        if rules.choice == kernels.BY_RATE:
            plain: dict[str, Any] = {"rates": kernels.LABELS, "waits": False, "look": np.inf}
            rules = rules._replace(choice=kernels.BEST_FIT, **plain)
            self.assumed += " with nodes alike"
        if made.expects[0] != "requested":
            self.assumed += ", ends as requested"
        self.rules = rules._replace(limits_of_work=False, slack=np.inf)
        self._beliefs = _nothing_believed()

    def starts(
        self,
        moment: Moment,
        run: Floats,
        end: Floats,
        draws: int = DRAWS,
        rng: np.random.Generator | None = None,
    ) -> Floats:
        """When each waiting job starts, in every future [draws, W]; inf for not at all.

        ``run``, ``end``: how long each job ran and when it ended, of those that had by then.
        """
        if not moment.waiting.size:
            return np.zeros((draws, 0))
        rng = rng or np.random.default_rng(0)
        jobs, now = self.tables.jobs, moment.now
        times = RunTimes(jobs, run, end, moment)
        here = np.concatenate([moment.running, moment.waiting])
        age = np.concatenate([now - moment.begun, np.zeros(moment.waiting.size)])
        known = np.stack(
            [times.draw(j, a, draws, rng) for j, a in zip(here.tolist(), age.tolist())], axis=1
        )
        seen = jobs.submit[: np.searchsorted(jobs.submit, now, side="right")]
        week = seen.size - np.searchsorted(seen, now - 7 * DAY)
        many = int(np.clip(3 * week / 7, *COMING)) + 2 * moment.waiting.size
        with np.errstate(invalid="ignore"):
            over = end <= now
        found = np.empty((draws, moment.waiting.size))
        for i in range(draws):
            rows, when = coming(seen, now, many, rng)
            keep = ~self.tables.aside[rows]
            rows, when = rows[keep], when[keep]
            lasts = np.where(over[rows], run[rows], 0.0)
            for m in np.flatnonzero(~over[rows]).tolist():
                lasts[m] = times.draw(int(rows[m]), 0.0, 1, rng)[0]
            found[i] = self._play(moment, rows, when, np.concatenate([known[i], lasts]))
        return found

    def promised(self, moment: Moment) -> Floats:
        """When each waiting job starts if all take as long as requested and nobody comes [W]."""
        if not moment.waiting.size:
            return np.zeros(0)
        here = np.concatenate([moment.running, moment.waiting])
        asked = np.maximum(self.tables.jobs.limit[here], 0.0)
        return self._play(moment, here[:0], np.zeros(0), asked)

    def _play(self, moment: Moment, rows: Ints, when: Floats, run: Floats) -> Floats:
        """One future: when each waiting job starts."""
        R, W = moment.running.size, moment.waiting.size
        of = np.concatenate([moment.running, moment.waiting, rows])
        jobs = self.tables.jobs
        submit = np.concatenate([jobs.submit[of[: R + W]], when])
        names = "id", "row", "limit", "tasks", "shape", "type", "user", "deadline", "priority"
        taken: dict[str, Any] = {n: np.ascontiguousarray(getattr(jobs, n)[of]) for n in names}
        none = np.zeros(of.size, dtype=np.int64)
        taken |= {"after_from": np.zeros(of.size + 1, dtype=np.int64), "after": none[:0]}
        tables = replace(
            self.tables,
            jobs=replace(jobs, submit=submit, run=run, **taken),
            aside=none > 0,
            work=run,
            doomed=none > 0,
            wants=none,
        )
        given, pieces = inputs(tables, self.rules)
        state = initial_state(tables, self.rules, pieces)
        _resume(given, state, moment, run)
        plans = plans_of(state)
        started = state.start[R : R + W]
        while not np.isfinite(started).all():
            status = round_kernels.play(given, state, self._beliefs, plans, CHUNK)
            if status == round_kernels.DONE:
                break
            if status == round_kernels.MORE_ROOM:
                state = more_room(state)
        return started.copy()


def _resume(g: kernels.Given, x: kernels.State, moment: Moment, run: Floats) -> None:
    """Bring a fresh state to a moment: its running jobs are the first rows, then who waits."""
    now, books, R, W = moment.now, moment.books, moment.running.size, moment.waiting.size
    x.room.free[:], x.room.device[:], x.up[:] = books.free, books.device, books.up
    for block in range(len(x.room.top)):
        low = block * kernels.BLOCK
        x.room.top[block] = books.free[low : low + kernels.BLOCK].max(axis=0)
    x.total[:] = np.maximum(books.free, 0).sum(axis=0)
    at, runs = x.at, x.jobs
    ends = np.maximum(moment.begun + run[:R], now)
    if g.rules.enforced:
        ends = np.minimum(ends, np.maximum(moment.begun + g.jobs["limit"][:R], now))
    row = np.arange(R)
    for name, value in {
        "phase": kernels.RUNNING,
        "since": now,
        "begun": moment.begun,
        "left": ends - now,
        "finish": ends,
        "expect": moment.begun + g.jobs["limit"][:R],
        "attempts": 1,
        "pieces": [len(each) for each in moment.pieces],
        "running_at": row,
    }.items():
        runs[name][:R] = value
    for j, each in enumerate(moment.pieces):
        first = int(g.jobs["piece_from"][j])
        for i, (node, tasks, mask) in enumerate(each):
            x.out[first + i] = mask, node, tasks
    x.start[:R] = moment.begun
    x.running[:R] = row
    by_end = np.lexsort((row, ends))
    x.ends["time"][:R], x.ends["item"][:R] = ends[by_end], by_end
    if x.order.size:
        x.order["time"][:R], x.order["item"][:R] = runs["expect"][:R], row
        at.entered = R
    at.pieces = runs["pieces"][:R].sum()
    at.running = at.ends = R
    runs["phase"][R : R + W] = kernels.WAITING
    rank = g.jobs["rank"][R : R + W].astype(np.int64)
    np.bitwise_or.at(x.words, rank >> 6, np.left_shift(np.int64(1), rank & 63))
    word = np.flatnonzero(x.words)
    np.bitwise_or.at(x.summary, word >> 6, np.left_shift(np.int64(1), word & 63))
    at.waiting, at.next_job, at.now = W, R + W, now
    at.lowest, at.again, at.half, at.void = 0, 1, 1, 1


# ------------------------------------------------------------------------------------ calibration


@dataclass
class Calibration:
    """What shares of the starts came before each quantile that was told, and the correction.

    Attributes
    ----------
    seen : list of list of float
        By class of :data:`CLASSES`: where in the distribution told each start lay (PIT).
    """

    PRIOR = 20
    """Starts of all classes that count in each, and starts that are where they should be."""

    seen: list[list[float]] = field(default_factory=lambda: [[] for _ in range(len(CLASSES) + 1)])

    @property
    def known(self) -> int:
        """How many starts it has learned from."""
        return sum(map(len, self.seen))

    @staticmethod
    def class_of(ahead: float) -> int:
        """Class of a forecast whose median is so many seconds ahead."""
        return int(np.searchsorted(CLASSES, ahead, side="right"))

    def learn(self, starts: Floats, now: float, start: float, rng: np.random.Generator) -> None:
        """A job for which ``starts`` were drawn [draws] has started."""
        below, ties = (starts < start).mean(), (starts == start).mean()
        place = float(below + rng.random() * ties)
        insort(self.seen[self.class_of(float(np.median(starts)) - now)], place)

    def quantiles(self, starts: Floats, now: float, levels: Sequence[float]) -> Floats:
        """Quantiles of starts that were drawn [draws], corrected."""
        seen = self.seen[self.class_of(float(np.median(starts)) - now)]
        even = np.linspace(0.0, 1.0, self.PRIOR + 1)
        everywhere = np.quantile(np.concatenate([*self.seen, even]), even)
        wanted = np.quantile(np.concatenate([seen, everywhere]), levels)
        found: Floats = np.quantile(starts, wanted, method="higher")
        return found

"""Forecasts of starts of waiting jobs: distributions, from many futures that are simulated.

A future draws what is not known: how long running jobs still take, how long waiting ones will, and
which jobs arrive — a stretch of the log's own past at the same time of day, for later jobs may
pass or stand ahead. The rules then decide in compiled code from the very state of the moment, and
the starts in all futures are the distribution. What such distributions have been worth so far
corrects them (:class:`Calibration`), as in Kuleshov, Fenner and Ermon (2018).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import kernel
from gangwise.jobs import compiled, kernels, round_kernels
from gangwise.jobs.books import Books, Piece
from gangwise.jobs.model import Conditions, Jobs, Nodes
from gangwise.jobs.run_times import RunTimes, distribution, ended, expect, quantile_within, state_of
from gangwise.jobs.schedule import Options, Schedule, Tables, placed_shapes
from gangwise.jobs.scheduler import create_scheduler, name_of
from gangwise.jobs.tenancy import of_arrays

DAY = 86_400.0
DRAWS = 100  # futures that are played
DAYS = 28  # from so many days back those are drawn who come
COMING = 600, 4000  # jobs to come in a future: so many at least, and at most those of three days
ALIKE = 0.2
"""Correlation of the normal scores of run times of a user's jobs; on KTH-SP2, LLNL-Atlas and
NASA-iPSC .13 to .25 from one submission to the next."""
STRETCHES = 50  # stretches of the past that one future has at most
CHUNK = 128  # instants that are played before it is looked whether all have started
NO_RULES = "fcfs+easy+best-fit"
"""Rules assumed of a scheduler that does not decide in compiled code."""


class Moment(NamedTuple):
    """State of a cluster at a time: running jobs with their nodes, and waiting jobs."""

    now: float
    running: Ints  # rows of the jobs
    begun: Floats  # since when each of these runs
    pieces: Sequence[tuple[Piece, ...]]  # of each of these
    waiting: Ints  # rows, in the order of their submission
    books: Books  # what is free, and which nodes are up


def waiting_at(jobs: Jobs, now: float, begun: Floats, end: Floats) -> Bools:
    """Jobs that wait at a time [J]: submitted, neither begun nor withdrawn before it.

    Those that waited when the log ended wait at that time, too.
    """
    with np.errstate(invalid="ignore"):
        left_line = (begun <= now) | (end <= now) | (jobs.withdrawn < now)
    return np.asarray((jobs.submit <= now) & ~left_line)


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
    # NaN where a job never began or has not ended, which compares as false.
    with np.errstate(invalid="ignore"):
        runs = playable & (begun <= now) & (end > now)
        waits = playable & waiting_at(jobs, now, begun, end)
    books = Books.opened(nodes)
    rows = np.flatnonzero(runs)
    placed_rows: list[int] = []
    pieces: list[tuple[Piece, ...]] = []
    shapes = placed_shapes(jobs, nodes)
    # In the order of their starts: who began first had the first choice of nodes.
    for j in rows[np.argsort(begun[rows], kind="stable")].tolist():
        shape, tasks_of_job = shapes[jobs.shape[j]], int(jobs.tasks[j])
        tasks = schedule.placed(j) if schedule is not None else books.somewhere(shape, tasks_of_job)
        if tasks:
            pieces.append(books.tell_apart(shape, tasks))
            books.take(shape, pieces[-1])
            placed_rows.append(j)
    running = np.array(placed_rows, dtype=np.int64)
    return Moment(now, running, begun[running], pieces, np.flatnonzero(waits), books)


# ------------------------------------------------------------------------------------ what is drawn


class History:
    """Run times as jobs had them: the learned distribution as of any time (``run_times``).

    Jobs ran for ``run`` seconds [J] and ended at ``end`` [J]; of what had not ended by a time
    nothing is learned.
    """

    def __init__(self, jobs: Jobs, run: Floats, end: Floats):
        self.jobs, self.run, self.end = jobs, run, end
        over = np.flatnonzero(np.isfinite(end) & np.isfinite(run))
        # Ends that are known, and all submissions: what the predictor is told, in order.
        times = np.concatenate([end[over], jobs.submit])
        submits = np.arange(times.size) >= over.size
        job = np.concatenate([over, np.arange(len(jobs))])
        # Of one instant, ends before submissions: who ends now is known to who comes now.
        order = np.lexsort((job, submits, times))
        self.when, self.submits, self.job = times[order], submits[order], job[order]
        self.at = times.size + 1

    def by(self, now: float) -> RunTimes:
        """The state of the predictor at a time; cheap where times rise from call to call."""
        until = int(np.searchsorted(self.when, now, side="right"))
        # Time went back: the predictor forgets nothing, so it is told everything anew.
        if until < self.at:
            self.times, self.at = state_of(self.jobs, "learned"), 0
        span = slice(self.at, until)
        follow(self.times, self.when[span], self.submits[span], self.job[span], self.run)
        self.at = until
        return self.times


@kernel
def follow(r: RunTimes, when: Floats, submits: Bools, job: Ints, run: Floats) -> None:
    """Tell a predictor of submissions and ends of jobs, in order."""
    for e in range(when.size):
        if submits[e]:
            expect(r, job[e], when[e])
        else:
            ended(r, job[e], run[job[e]], True, when[e])


@kernel
def normal_levels(scores: Floats) -> Floats:
    """The standard normal distribution function of scores, Φ(z) = erfc(−z ÷ √2) ÷ 2."""
    levels = np.empty_like(scores)
    for d in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            levels[d, j] = 0.5 * math.erfc(-scores[d, j] / math.sqrt(2.0))
    return levels


@kernel
def draw(r: RunTimes, rows: Ints, age: Floats, now: float, levels: Floats, known: Floats) -> None:
    """Run times of jobs that have run for ``age``, at levels [draws, R], into ``known``.

    Of one that outlived its request P(T > t) = age / t, up to half as long again.
    """
    for i in range(rows.size):
        j = rows[i]
        distribution(r, j, now)
        for d in range(levels.shape[0]):
            if age[i] < r.request[j]:
                known[d, i] = quantile_within(r, j, levels[d, i], age[i])
            else:
                # Quantile of P(T > t) = age / t, a Pareto tail, at most half as long again.
                known[d, i] = min(age[i] / max(1.0 - levels[d, i], 1e-3), 1.5 * age[i]) + 1.0


def coming(submit: Floats, now: float, jobs: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Jobs to come: rows of past jobs, and when each comes, from stretches of whole days back.

    A log younger than two days has stretches of any length.
    """
    # Only submissions up to now may be drawn from.
    past = int(np.searchsorted(submit, now, side="right"))
    age = now - float(submit[0]) if past else 0.0
    rows: list[Ints] = []
    times: list[Floats] = []
    time = now
    for _ in range(STRETCHES):
        if age <= 0 or sum(map(len, rows)) >= jobs:
            break
        if age >= 2 * DAY:
            # A stretch of whole days back begins at the same time of day.
            back = DAY * float(rng.integers(1, min(int(age / DAY), DAYS) + 1))
            back += DAY * np.ceil((time - now) / DAY)
            back = min(back, time - float(submit[0]))
        else:
            # A stretch that ends now, from a tenth to all of a young log.
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
    """Futures of a moment under the rules of a scheduler, which ``assumed`` names.

    It is given all jobs of the log, and looks at nothing of those submitted later. Nodes count as
    alike: a choice by rates becomes best-fit.
    """

    def __init__(
        self, jobs: Jobs, nodes: Nodes, scheduler: Any = NO_RULES, options: Options | None = None
    ):
        # Who will be withdrawn is not known, so everybody stays.
        staying = replace(jobs, withdrawn=np.full(len(jobs), np.inf))
        options = options or Options()
        # Arrays limit themselves, here as in a simulation.
        options = replace(options, caps=(*options.caps, *of_arrays(jobs)))
        self.tables = Tables.of(staying, nodes, Conditions(), options)
        decider = create_scheduler(scheduler)
        rules = compiled.built_in(decider, nodes, self.tables.options)
        self.assumed = name_of(decider)
        if rules is None or rules.queue in (kernels.FAIR_SHARE, kernels.MULTIFACTOR):
            reason = (
                "which decides in Python" if rules is None else "whose use of the past is not known"
            )
            decider, name = create_scheduler(NO_RULES), self.assumed
            rules = compiled.built_in(decider, nodes, self.tables.options)
            self.assumed = f"{NO_RULES} (in place of {name}, {reason})"
        assert rules is not None
        # What was learned of rates is not in the log; without it all nodes are taken as alike.
        if rules.choice == kernels.BY_RATE:
            plain: dict[str, Any] = {"rates": kernels.LABELS, "waits": False, "look": np.inf}
            rules = rules._replace(choice=kernels.BEST_FIT, **plain)
            self.assumed += " with nodes alike"
        if decider.expects[0] != "requested":
            self.assumed += ", ends as requested"
        self.decider, self.rules = decider, rules._replace(limits_of_work=False, slack=np.inf)

    def starts(
        self, moment: Moment, history: History, draws: int, rng: np.random.Generator
    ) -> Floats:
        """Starts of waiting jobs in every future [draws, W], in seconds; inf for never."""
        if not moment.waiting.size:
            return np.zeros((draws, 0))
        jobs, at = self.tables.jobs, moment.now
        times = history.by(at)
        present = np.concatenate([moment.running, moment.waiting])
        age = np.concatenate([at - moment.begun, np.zeros(moment.waiting.size)])
        runs = np.empty((draws, present.size))
        users, user = np.unique(jobs.user[present], return_inverse=True)
        # Run times of a user are alike: part of each normal score is common to his jobs.
        # A Gaussian copula: correlated normal scores, whose Φ are uniform levels.
        scores = np.sqrt(ALIKE) * rng.standard_normal((draws, users.size))[:, user]
        scores += np.sqrt(1.0 - ALIKE) * rng.standard_normal(runs.shape)
        draw(times, present, age, at, normal_levels(scores), runs)
        submitted = jobs.submit[: np.searchsorted(jobs.submit, at, side="right")]
        # As many come as in three days, by the submissions of the week before.
        week = submitted.size - np.searchsorted(submitted, at - 7 * DAY)
        expected = int(np.clip(3 * week / 7, *COMING)) + 2 * moment.waiting.size
        with np.errstate(invalid="ignore"):
            # Past jobs drawn again run as long as they did, if that is known by now.
            over = (history.end <= at) & np.isfinite(history.run)
        starts = np.empty((draws, moment.waiting.size))
        for i in range(draws):
            rows, due = coming(submitted, at, expected, rng)
            keep = ~self.tables.aside[rows]
            # Jobs that can never run here would wait in every future.
            rows, due = rows[keep], due[keep]
            lasts = np.where(over[rows], history.run[rows], 0.0)
            open_ = np.flatnonzero(~over[rows])
            row = np.empty((1, open_.size))
            draw(times, rows[open_], np.zeros(open_.size), at, rng.random(row.shape), row)
            lasts[open_] = row[0]
            starts[i] = self._play(moment, rows, due, np.concatenate([runs[i], lasts]))
        return starts

    def promised(self, moment: Moment) -> Floats:
        """Starts of waiting jobs if all take as long as requested and no job comes [W]."""
        if not moment.waiting.size:
            return np.zeros(0)
        present = np.concatenate([moment.running, moment.waiting])
        limits = np.maximum(self.tables.jobs.limit[present], 0.0)
        return self._play(moment, present[:0], np.zeros(0), limits)

    def _play(self, moment: Moment, rows: Ints, when: Floats, run: Floats) -> Floats:
        """Starts of waiting jobs in one future [W]."""
        R, W = moment.running.size, moment.waiting.size
        row = np.concatenate([moment.running, moment.waiting, rows])
        jobs = self.tables.jobs
        submit = np.concatenate([jobs.submit[row[: R + W]], when])
        names = "id", "row", "limit", "tasks", "shape", "type", "user", "deadline", "priority"
        columns: dict[str, Any] = {n: np.ascontiguousarray(getattr(jobs, n)[row]) for n in names}
        none, claims, hours = np.zeros(row.size, np.int64), self.tables.claims, self.tables.hours
        columns |= {"after_from": np.zeros(row.size + 1, dtype=np.int64), "after": none[:0]}
        tables = replace(
            self.tables,
            jobs=replace(jobs, submit=submit, run=run, **columns),
            aside=none > 0,
            work=run,
            doomed=none > 0,
            wants=none,
            claims=claims._replace(of_job=np.broadcast_to(claims.of_job, len(jobs))[row]),
            hours=replace(hours, of_job=np.broadcast_to(hours.of_job, len(jobs))[row]),
        )
        fixed, state, prior = compiled.prepared(tables, self.decider, self.rules)
        _resume(fixed, state, moment, run)
        # Orders count submissions from the first that can be played.
        state.at.origin = jobs.submit[np.argmin(self.tables.aside)]
        started = state.start[R : R + W]
        fixed, state, beliefs = compiled.only_used(fixed, state, prior)
        # Played until all who wait have started, however long the rest of the future would take.
        while not np.isfinite(started).all():
            status = round_kernels.play(fixed, state, beliefs, CHUNK)
            if status == round_kernels.DONE:
                break
            if status == round_kernels.MORE_ROOM:
                state = compiled.more_room(state)
        return started + self.tables.options.latency


def _resume(g: kernels.Inputs, x: kernels.State, moment: Moment, run: Floats) -> None:
    """Bring a fresh state to a moment: running jobs are the first rows, then those that wait."""
    time, at, R = moment.now, x.at, moment.running.size
    row, waiting = np.arange(R), np.arange(R, R + moment.waiting.size)
    held = dict(enumerate(moment.pieces))
    compiled.resume(g, x, moment.books, time, row, moment.begun, waiting, held)
    # What should have ended by now is expected to end at once.
    ends = np.maximum(moment.begun + run[:R], time)
    if g.rules.enforced:
        ends = np.minimum(ends, np.maximum(moment.begun + g.jobs["limit"][:R], time))
    what_goes_on = {"since": time, "left": ends - time, "finish": ends, "attempts": 1}
    for name, value in what_goes_on.items():
        x.jobs[name][:R] = value
    x.start[:R] = moment.begun
    # Events of nodes up to now are in the books already.
    at.next_event = np.searchsorted(g.events["time"], time, side="right")
    # A list in order is a heap.
    by_end = np.lexsort((row, ends))
    x.ends["time"][:R], x.ends["item"][:R], at.ends = ends[by_end], by_end, R


# ------------------------------------------------------------------------------------ calibration


@dataclass
class StartCalibration:
    """Recalibration of forecasts by the places of starts in earlier ones (PIT).

    Who still waits counts as censored: where in its distribution the present lies, and later
    (Kaplan and Meier 1958). Without them only the early starts of a burst would be known. A start
    outside of all futures has a place, too (:func:`_place`): rules of the cluster that are not
    modelled delay everybody, in all futures alike.
    """

    PRIOR = 10  # starts from everywhere that count, and starts that are where they should be
    HALF = 7 * DAY  # a forecast counts half as much after so long: logs change
    ALIKE = 3.0  # the less alike medians are, the less a forecast counts: exp(-1/2) at three times

    # Of each forecast: seconds to its median, when it was made, the place of the start, and whether
    # the job had started.
    seen: list[tuple[float, float, float, bool]] = field(default_factory=list)

    @property
    def known(self) -> int:
        return sum(started for *_, started in self.seen)

    def learn(
        self, starts: Floats, made: float, start: float, now: float, rng: np.random.Generator
    ) -> None:
        """Enter the start of a job whose ``starts`` were drawn [draws], if it came by ``now``."""
        started = start <= now
        # Of equal draws a started job's place is drawn among them, so that places are uniform.
        place = _place(starts, made, min(start, now), rng.random() if started else 1.0)
        self.seen.append((float(np.median(starts)) - made, made, place, started))

    def quantiles(self, starts: Floats, now: float, levels: Sequence[float]) -> Floats:
        """Quantiles of starts that were drawn [draws], corrected."""
        ahead, made_at, place, began = np.array(self.seen, dtype=np.float64).reshape(-1, 4).T
        even, unit = (np.arange(self.PRIOR) + 0.5) / self.PRIOR, np.ones(self.PRIOR)
        # A forecast counts by its age, and by how alike the predicted waits are.
        recent = 0.5 ** (np.maximum(now - made_at, 0.0) / self.HALF)
        times = np.clip(ahead, 1.0, 1e9) / np.clip(np.median(starts) - now, 1.0, 1e9)
        alike = np.exp(-0.5 * (np.log(times) / np.log(self.ALIKE)) ** 2)

        def at(prior: Floats, weight: Floats, wanted: Any) -> Floats:
            weighs = weight > 1e-9  # none of weight 0 may be left at risk
            points = np.concatenate([place[weighs], prior]), np.concatenate([began[weighs], unit])
            return censored_levels(*points, np.concatenate([weight[weighs], unit]), wanted)

        corrected = at(at(even, recent, even), recent * alike, levels)
        return np.array([_time_at(starts, now, float(quantile)) for quantile in corrected])


def _place(starts: Floats, made: float, time: float, part: float) -> float:
    """Place of a time among the starts drawn: their share before it, and of equal ones a part.

    Before all of them it is minus the share of the way from the first one back to the moment of the
    forecast; after all of them 1 and the seconds since the last.
    """
    earliest, latest = float(starts.min()), float(starts.max())
    if time > latest:
        return 1.0 + time - latest
    if time < earliest:
        return -(earliest - time) / (earliest - made)
    return float((starts < time).mean() + part * (starts == time).mean())


def _time_at(starts: Floats, now: float, place: float) -> float:
    """The time at a place, see :func:`_place`."""
    earliest, latest = float(starts.min()), float(starts.max())
    if place > 1.0:
        return latest + place - 1.0
    if place < 0.0 and earliest < np.inf:
        return earliest + max(place, -1.0) * (earliest - now)
    return float(np.quantile(starts, max(place, 0.0), method="higher"))


def censored_levels(place: Floats, came: Floats, weight: Floats, levels: Any) -> Floats:
    """Quantiles of places of which some are only known to be passed: Kaplan-Meier."""
    order = np.lexsort((-came, place))
    place, weight, starts = place[order], weight[order], came[order] > 0
    # Kaplan-Meier: at each start the share of those at risk that starts there.
    at_risk = np.cumsum(weight[::-1])[::-1]
    below = 1.0 - np.cumprod(1.0 - starts * weight / at_risk)
    level_before = np.concatenate([[0.0], below[:-1]])
    middle = ((below + level_before) / 2.0)[starts]  # half of a point's own step
    least, most = min(0.0, place[0]), max(1.0, place[-1])
    ends = np.concatenate([[0.0], middle, [1.0]]), np.concatenate([[least], place[starts], [most]])
    return np.asarray(np.interp(levels, *ends))

"""Metrics of a schedule: waiting, completion, slowdown, utilisation, what was lost, fairness.

Everything is a pure function of an :class:`Outcome`: when each job was submitted, started and
ended, what it held, and where. A simulated :class:`~gangwise.jobs.simulation.Schedule` is one
(:meth:`Outcome.of`), and so is what a log recorded (:meth:`Outcome.recorded`), so that *as it
happened* is measured alike.

======================  ============================================================================
waiting                 first start − submission, of all jobs that started
completion              end − submission, of the jobs that did their work: not of those that still
                        ran when the log ended, whose work is not known
bounded slowdown        max(1, completion / max(run, 10 s)), run = end − last start; of these too
makespan                last end − first submission
utilisation             device-seconds held / (devices · makespan), of a device type
goodput                 the same of what was held for work that was done and kept
killed, cancelled,      jobs that did not do their work, and what their last attempts held in
unfinished              device-seconds
failed, preempted       attempts cut short by a node's failure or by the scheduler, and the same
thrown away             device-seconds of jobs that did not do their work, and lost to restarts
lost to stragglers      devices · seconds · max(0, 1 − rate / declared rate) of every task: its own
                        node is slower than its label says, or another task of its gang is
lost to restarts        work done again after a failure or a preemption, and what restarts cost
idle while waiting      devices that were free while a job waited that asks for no more than these:
                        an upper bound of what fragmentation costs, for order and reservations hold
                        devices free as well
======================  ============================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, Tabular
from gangwise.core.errors import NothingEnded
from gangwise.core.jit import kernel
from gangwise.jobs.books import of_groups
from gangwise.jobs.kernels import CANCELLED, FINISHED, KILLED, RUNNING, SET_ASIDE
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.schedule import Schedule, placed_shapes

SHORTEST = 10.0
"""Seconds: jobs that ran for less count as this long in the bounded slowdown."""

ENDINGS = ("killed", "failed", "cancelled", "preempted", "unfinished")
"""Ways in which work ends before it is done: at the job's limit, with a node, by its user, by the
scheduler, or not until the last job has ended."""

SIZES = 6  # of jobs, up to which each is a group of its own
LAST, FAILED, PREEMPTED = -1, 0, 1
"""Why an attempt ended: with its job, or before, as :attr:`Schedule.cuts` has it."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Tasks of one attempt of a job on one node, [P]."""

    job: Ints
    node: Ints
    tasks: Ints
    begin: Floats  # seconds
    end: Floats
    why: Ints  # LAST of the last attempt; the others were cut short: FAILED or PREEMPTED
    held: Floats  # seconds, since when devices are held: the start latency before they begin


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Tabular):
    """What became of jobs on nodes; as a table, a row for each job.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1])
    >>> outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4)), "fcfs+easy")
    >>> outcome.waiting, round(outcome.utilisation["cpu"], 4)
    (array([0., 9., 0.]), 0.6875)
    """

    name: str  # the scheduler, or ``as it happened``
    jobs: Jobs  # as played
    nodes: Nodes
    start: Floats  # [J] seconds, as the next two; NaN where a job never started, or never ended
    last_start: Floats
    end: Floats
    demand: Floats  # [J, K] devices of each of the nodes' types that all tasks together hold
    pieces: Pieces | None  # where; None where the log does not say
    lost: Floats  # [J] device-seconds, of the job's dominant type, of work that was done again
    clean: Bools  # [J] ran through in one attempt to their own end: their rates are known
    # How each job ended [J], as in jobs.kernels; None where that is not known: all jobs that ended
    # count as having done their work.
    phase: npt.NDArray[np.int8] | None = None
    decisions: int = 0  # rounds of them
    seconds: float = float("nan")  # spent on them; NaN where it is not known
    description: str = ""  # what was played, in a line

    def columns(self) -> dict[str, Any]:
        """The columns of the jobs, their start, end, waiting and completion; how they ended."""
        given = self.jobs.columns()
        return {
            "scheduler": np.full(len(self.jobs), self.name),
            **{k: column for k, column in given.items() if not k.startswith("recorded_")},
            "start": self.start,
            "last_start": self.last_start,
            "end": self.end,
            "waiting": self.waiting,
            "completion": self.completion,
            "lost": self.lost,
            "ended": self.ended_as,
        }

    def __repr__(self) -> str:
        did = int(self.finished.sum())
        return f"Outcome({self.name}, {did:,} of {len(self.jobs):,} jobs did their work)"

    @classmethod
    def of(cls, schedule: Schedule, name: str, restart: float = 0.0) -> Outcome:
        """What a simulation did; ``restart`` is what it took for the seconds a restart costs."""
        jobs, nodes = schedule.jobs, schedule.nodes
        demand, lost, pieces = held_devices(jobs, nodes), schedule.lost, _pieces(schedule)
        restarted = (schedule.attempts > 1) & np.isfinite(schedule.end)
        if restart > 0 and restarted.any():  # what was lost of attempts cut short is there already
            spent = np.minimum(schedule.end - schedule.last_start, restart)
            # Fewer tasks held fewer devices than the demand says: divided by the factor.
            spent /= longer_by(jobs, pieces, schedule.end - schedule.last_start)
            lost = lost + np.where(restarted, spent, 0.0) * _dominant(demand, nodes)
        return cls(
            name,
            jobs,
            nodes,
            schedule.start,
            schedule.last_start,
            schedule.end,
            demand,
            pieces,
            lost,
            (schedule.phase == FINISHED) & (schedule.attempts == 1),
            _phase(schedule),
            schedule.counts["rounds"],
            schedule.seconds,
            schedule.description,
        )

    @classmethod
    def recorded(cls, jobs: Jobs, nodes: Nodes) -> Outcome | None:
        """The recorded schedule; None where the log has no starts and ends."""
        start, end = jobs.recorded_start, jobs.recorded_end
        if not (np.isfinite(start) & np.isfinite(end)).any():
            return None
        lost, clean = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=bool)
        demand = held_devices(jobs, nodes)
        return cls("as it happened", jobs, nodes, start, start, end, demand, None, lost, clean)

    # Of each job

    @cached_property
    def ended(self) -> Bools:
        """Jobs that started and ended, in whichever way, [J]."""
        # With `started`: a withdrawn job may have an end, when it left the line.
        ended: Bools = self.started & np.isfinite(self.end)
        return ended

    @cached_property
    def finished(self) -> Bools:
        """Jobs that did their work, [J]: completion and slowdown are theirs."""
        return self.ended if self.phase is None else self.ended & (self.phase == FINISHED)

    @cached_property
    def timed(self) -> Bools:
        """Jobs whose completion counts in means, [J]: finished, submitted while the log lasted."""
        return self.finished & ~self.jobs.early

    @cached_property
    def queued(self) -> Bools:
        """Jobs whose wait counts in means, [J]: started, submitted while the log lasted."""
        return self.started & ~self.jobs.early

    @cached_property
    def started(self) -> Bools:
        """Jobs that started, [J]; waiting is defined for them.

        A job that was withdrawn before its start, as recorded, never does: where there was room for
        it earlier, it only leaves the line, for how long it would have run is not known.
        """
        started: Bools = np.isfinite(self.start) & np.isinf(self.jobs.withdrawn)
        return started

    @property
    def ended_as(self) -> npt.NDArray[np.str_]:
        """How each job ended, in a word, [J]; empty where that is not known."""
        if self.phase is None:
            return np.full(len(self.jobs), "")
        words = {FINISHED: "finished", KILLED: "killed", CANCELLED: "cancelled"}
        words |= {SET_ASIDE: "set aside"}
        every = [words.get(phase, "unfinished") for phase in range(max(words) + 1)]
        return np.array(every)[self.phase]

    @property
    def waiting(self) -> Floats:
        """Seconds from submission to the first start [J]."""
        return self.start - self.jobs.submit

    @property
    def completion(self) -> Floats:
        """Seconds from submission to the end, [J]."""
        return self.end - self.jobs.submit

    @property
    def slowdown(self) -> Floats:
        """Bounded slowdown, [J]: max(1, completion / max(run, 10 s))."""
        run = np.maximum(self.end - self.last_start, SHORTEST)
        return np.maximum(1.0, self.completion / run)

    @property
    def missed(self) -> Bools:
        """Jobs that have a deadline and did not do their work by it, [J]."""
        met = self.finished & (self.end <= self.jobs.deadline)
        late: Bools = np.isfinite(self.jobs.deadline) & ~met
        return late

    # Of all

    @cached_property
    def span(self) -> tuple[float, float]:
        """Time of the first submission and of the last end."""
        if not self.ended.any():
            text = (
                f"{self.name}: no job fits on the nodes, or none ended: there is nothing to measure"
            )
            raise NothingEnded(text)
        return float(self.jobs.submit.min()), float(np.nanmax(self.end))

    @property
    def makespan(self) -> float:
        return self.span[1] - self.span[0]

    @cached_property
    def device_seconds(self) -> Floats:
        """Device-seconds held, of each device type, [K]; attempts cut short as well."""
        if self.pieces is None:
            run = np.where(self.ended, self.end - self.last_start, 0.0)
            # Without pieces a job holds its whole demand; with fewer tasks it took as much longer.
            return np.asarray((run / self._longer) @ self.demand)
        return self._held_by(True)

    def _held_by(self, chosen: Bools | bool) -> Floats:
        """Device-seconds [K] that the chosen pieces [P] held."""
        pieces = self.pieces
        assert pieces is not None
        seconds = pieces.tasks * (pieces.end - pieces.held)
        return np.asarray((chosen * seconds) @ self.per_piece)

    @cached_property
    def _longer(self) -> Floats:
        return longer_by(self.jobs, self.pieces, self.end - self.last_start)

    @property
    def per_task(self) -> Floats:
        """Devices of each type that a task holds, [J, K]."""
        return np.asarray(self.demand / self.jobs.tasks[:, None])

    @cached_property
    def per_piece(self) -> Floats:
        """Devices of each type that a task of each piece holds, [P, K]."""
        pieces = self.pieces
        assert pieces is not None
        # Right for jobs of like tasks; groups ask for different amounts and are put right one by
        # one.
        amounts = self.per_task[pieces.job]
        if self.jobs.grouped.any():
            mine = np.flatnonzero(self.jobs.grouped[pieces.job])
            shapes = placed_shapes(self.jobs, self.nodes)
            # Groups hold different devices; their pieces come in the order of placing.
            for begin, past in runs_of(pieces.job[mine], pieces.begin[mine]):
                rows = mine[begin:past].tolist()
                shape, tasks = (
                    shapes[self.jobs.shape[pieces.job[rows[0]]]],
                    pieces.tasks[rows].tolist(),
                )
                for part, group in of_groups(shape, zip(rows, tasks)):
                    amounts[[row for row, _ in group]] = np.array(part.demand) / 1000
        return amounts

    @cached_property
    def capacity(self) -> Floats:
        """Devices of each type, [K]."""
        return np.asarray(self.nodes.capacity.sum(axis=0) / 1000)

    @property
    def utilisation(self) -> dict[str, float]:
        """Share of each device type that was held over the makespan."""
        return self._shares(self.device_seconds)

    @property
    def goodput(self) -> dict[str, float]:
        """Share of each device type that was held for work that was done and kept.

        What was held, less what was thrown away, less what stragglers cost, and less what was held
        while jobs that did their work were about to start.
        """
        lost = self.stragglers() + self.thrown_away
        if (pieces := self.pieces) is not None and (pieces.held < pieces.begin).any():
            seconds = self.finished[pieces.job] * pieces.tasks * (pieces.begin - pieces.held)
            lost = lost + seconds @ self.per_piece
        return self._shares(self.device_seconds - lost)

    def _shares(self, device_seconds: Floats) -> dict[str, float]:
        whole = self.capacity * self.makespan
        return {
            name: float(used / all_) if all_ > 0 else float("nan")
            for name, used, all_ in zip(self.nodes.devices, device_seconds, whole)
        }

    # What was lost, in device-seconds of each device type

    @cached_property
    def rates(self) -> Floats:
        """Mean rate at which each job did its work in its last attempt, [J]; NaN if unknown.

        Work over seconds: the rate of its slowest task, with the noise of the job.
        """
        run = self.end - self.last_start
        measured = self.ended & self.clean & (run > 0) & (self.jobs.run > 0)
        rates: Floats = np.full(len(self.jobs), np.nan)
        rates[measured] = self.jobs.run[measured] / run[measured]
        return rates * self._longer

    def stragglers(self) -> Floats:
        """Device-seconds lost since gangs ran slower than the labels of their nodes say, [K].

        Σ over last attempts of tasks · devices · seconds · max(0, 1 − rate / declared rate). Jobs
        that were cut short or killed are left out: their rate is not known.
        """
        if self.pieces is None:
            return np.zeros(len(self.nodes.devices))
        pieces, rates = self.pieces, self.rates
        declared = self.nodes.declared(self.jobs.types)[self.jobs.type[pieces.job], pieces.node]
        # A node that was faster than its label loses nothing; unknown rates lose nothing either.
        share = np.nan_to_num(np.clip(1 - rates[pieces.job] / declared, 0.0, 1.0))
        lost = np.where(pieces.why == LAST, share * pieces.tasks * (pieces.end - pieces.begin), 0.0)
        return np.asarray(lost @ self.per_piece)

    def restarts(self, of: Bools | None = None) -> Floats:
        """Device-seconds of work done again after failures and preemptions, and of restarts, [K].

        Of some jobs [J], or of all.
        """
        if not self.lost.any():
            return np.zeros(len(self.nodes.devices))
        # `lost` is of the dominant type; the others were lost for as long.
        per_job = _dominant(self.demand, self.nodes)
        seconds = np.divide(self.lost, per_job, out=np.zeros(len(self.jobs)), where=per_job > 0)
        return np.asarray((seconds if of is None else np.where(of, seconds, 0.0)) @ self.demand)

    @cached_property
    def thrown_away(self) -> Floats:
        """Device-seconds wasted, [K].

        All that jobs held which did not do their work, and of the others what was lost to restarts.
        """
        lost = self.restarts(self.finished)
        if self.phase is None or self.pieces is None:
            return lost
        did = self.finished[self.pieces.job]
        return lost if did.all() else self._held_by(~did) + lost

    @cached_property
    def endings(self) -> dict[str, tuple[float, Floats]]:
        """By each of :data:`ENDINGS`: its number and device-seconds [K]; NaN where not known.

        Killed, cancelled and unfinished are jobs, with what their last attempts held; failed and
        preempted are attempts, whatever became of their jobs. So every device-second held belongs
        to one of these, or to the last attempt of a job that did its work.
        """
        if self.phase is None or self.pieces is None:
            unknown = np.full(len(self.nodes.devices), np.nan)
            return {name: (float("nan"), unknown) for name in ENDINGS}
        pieces = self.pieces
        jobs = {
            "killed": self.phase == KILLED,
            "cancelled": self.phase == CANCELLED,
            "unfinished": self.phase <= RUNNING,
        }
        endings = {}
        for name in ENDINGS:
            if name in jobs:
                count = int(jobs[name].sum())
                mine = jobs[name][pieces.job] & (pieces.why == LAST) if count else jobs[name]
            else:
                mine = pieces.why == (FAILED if name == "failed" else PREEMPTED)
                # An attempt has a piece for each node; job and begin tell attempts apart.
                count = len(set(zip(pieces.job[mine].tolist(), pieces.begin[mine].tolist())))
            # Mostly there is none, and a product over a million jobs takes its time.
            amounts = self._held_by(mine) if count else np.zeros(len(self.nodes.devices))
            endings[name] = float(count), amounts
        return endings

    @property
    def until_left(self) -> float:
        """Mean sojourn time: seconds from submission until a job left, killed ones too.

        Lower bounds of jobs that may be killed are compared with it.
        """
        return float(self.completion[self.ended].mean())

    def idle_while_waiting(self, device: str) -> float:
        """Device-seconds idle while a job waited that asks for no more than what was idle.

        Jobs that ask for none of the device type are left out.
        """
        k = self.nodes.devices.index(device)
        asks = self.demand[:, k]
        # Who starts at once waits for no time: where it begins to hold devices, it is an event.
        mine = np.flatnonzero(self.ended & (asks > 0) & (self.start > self.jobs.submit))
        if not mine.size:
            return 0.0
        size, rank = np.unique(asks[mine], return_inverse=True)
        begin, end, amount = self._held_between(k)
        # Waiting begins and ends; devices are taken and given back.
        times = np.concatenate([self.jobs.submit[mine], self.start[mine], begin, end])
        waiting = np.zeros(size.size, dtype=np.int64)
        # Of an instant, only what is left after it counts: the interval has no length before. Its
        # order matters to the last digit where sums of amounts are rounded.
        exact = bool((amount == np.rint(amount)).all())
        order = np.argsort(times, kind=None if exact else "stable")
        return float(
            _idle_while_waiting(order, times, rank, amount, size, waiting, float(self.capacity[k]))
        )

    def _held_between(self, k: int) -> tuple[Floats, Floats, Floats]:
        """Beginnings, ends and amounts of every hold of a device type."""
        if self.pieces is None:
            on = np.flatnonzero(self.ended)
            return self.last_start[on], self.end[on], (self.demand[:, k] / self._longer)[on]
        pieces = self.pieces
        return pieces.held, pieces.end, pieces.tasks * self.per_piece[:, k]

    # Over time

    def over_time(self, device: str, edges: Floats) -> Floats:
        """Devices of a type held, means over the bins between edges, [bins]."""
        return over_bins(edges, *self._held_between(self.nodes.devices.index(device)))

    def waiting_jobs(self, edges: Floats) -> Floats:
        """How many jobs waited, means over the bins between edges, [bins]."""
        on = self.ended
        return over_bins(edges, self.jobs.submit[on], self.start[on], np.ones(int(on.sum())))

    # Fairness

    def _of_users(self, of: Floats, on: Bools) -> Floats:
        """Mean of a value [J] over each user's jobs of those that are ``on`` [J]."""
        count = np.bincount(self.jobs.user[on])
        # Users without such a job would divide by zero.
        with_jobs = count > 0
        means: Floats = np.bincount(self.jobs.user[on], of[on])[with_jobs] / count[with_jobs]
        return means[np.isfinite(means)]

    @property
    def worst_users(self) -> float:
        """Mean waiting of the worst tenth of the users, at least one, by their mean waiting."""
        # A tenth rounded down: with fewer than 20 users the worst one alone.
        means = np.sort(self._of_users(self.waiting, self.queued))
        return float(means[-max(1, means.size // 10) :].mean())

    @property
    def unfairness(self) -> float:
        """1 − Jain's index of the users' mean bounded slowdowns: 0 where all fare alike."""
        x = self._of_users(self.slowdown, self.timed)
        return float(1 - x.sum() ** 2 / (x.size * (x**2).sum())) if x.size else float("nan")

    def times(self, on: Bools) -> dict[str, float]:
        """Completion and slowdown of some jobs: mean, median and 95th percentile."""
        return spread("completion", self.completion[on]) | spread("slowdown", self.slowdown[on])

    def summary(self) -> dict[str, float]:
        """The numbers of a row of a table; seconds and device-hours.

        Keys: ``jobs`` that were played, ``finished`` of them that did their work; the number of
        each of :data:`ENDINGS`; ``waiting``, ``completion`` and ``slowdown`` with ``.mean``,
        ``.median`` and ``.p95``; ``makespan``, ``deadlines missed``, ``worst users``,
        ``unfairness``, ``microseconds per decision``; and for each device type ``utilisation.``,
        ``goodput.`` and device-hours: ``stragglers.``, ``restarts.``, ``idle.``, ``thrown away.``,
        and of each of :data:`ENDINGS`.
        """
        return dict(self._summary)

    @cached_property
    def _summary(self) -> dict[str, float]:  # the run, the bound, the tables and the page ask
        played = self.ended if self.phase is None else self.phase != SET_ASIDE
        summary = {"jobs": float(played.sum()), "finished": float(self.finished.sum())}
        summary |= {name: count for name, (count, _) in self.endings.items()}
        summary |= spread("waiting", self.waiting[self.queued])
        summary |= self.times(self.timed)
        summary["makespan"] = self.makespan
        summary["deadlines missed"] = float(self.missed.sum())
        summary["worst users"] = self.worst_users
        summary["unfairness"] = self.unfairness
        rounds = self.decisions or float("nan")
        summary["microseconds per decision"] = 1e6 * self.seconds / rounds
        utilisation, goodput = self.utilisation, self.goodput
        seconds: dict[str, Any] = {
            "stragglers": self.stragglers(),
            "restarts": self.restarts(),
            "idle": [self.idle_while_waiting(device) for device in self.nodes.devices],
            "thrown away": self.thrown_away,
            **{name: held for name, (_, held) in self.endings.items()},
        }
        for k, device in enumerate(self.nodes.devices):
            summary[f"utilisation.{device}"] = utilisation[device]
            summary[f"goodput.{device}"] = goodput[device]
            summary |= {f"{name}.{device}": float(of[k]) / 3600 for name, of in seconds.items()}
        return summary


def _phase(schedule: Schedule) -> npt.NDArray[np.int8]:
    """How each job ended [J], where the log says that it was withdrawn, or ran on."""
    phase, jobs = schedule.phase, schedule.jobs
    phase = np.where(np.isfinite(jobs.withdrawn) & (phase == FINISHED), CANCELLED, phase)
    return np.where(jobs.censored & (phase == FINISHED), RUNNING, phase).astype(np.int8)


def held_devices(jobs: Jobs, nodes: Nodes) -> Floats:
    """Devices of each of the nodes' types that all tasks of a job together hold, [J, K]."""
    demand = jobs.demand(nodes.devices) / 1000
    return np.asarray(demand[jobs.shape] * jobs.tasks[:, None])


def longer_by(jobs: Jobs, pieces: Pieces | None, ran: Floats) -> Floats:
    """Factor by which jobs took longer with fewer tasks than they ask for, [J], or [1] of 1.

    Of pieces, the tasks of the last attempt count; as recorded, the seconds that it ``ran`` [J].
    """
    if not any("fewest=" in text for text in jobs.terms):
        return np.ones(1)
    # Only jobs that allow fewer tasks can have had fewer; groups of unlike tasks have no one
    # number.
    may = np.array(["fewest=" in text for text in jobs.terms])[jobs.term] & ~jobs.grouped
    run, recorded = ran, jobs.run
    if pieces is not None:
        final = pieces.why == LAST
        recorded = np.bincount(pieces.job[final], pieces.tasks[final], len(jobs)).astype(np.float64)
        run = jobs.tasks.astype(np.float64)
    comparable = may & (recorded > 0) & np.isfinite(run)
    return np.divide(run, recorded, out=np.ones(len(jobs)), where=comparable)


def _dominant(demand: Floats, nodes: Nodes) -> Floats:
    """Devices of the type of which a job holds the largest share of the cluster, [J]."""
    # A device type that no node has would divide by zero.
    total = np.maximum(nodes.capacity.sum(axis=0) / 1000, 1e-9)
    dominant = np.argmax(demand / total, axis=1)
    return np.asarray(demand[np.arange(len(demand)), dominant])


def spread(name: str, values: Floats) -> dict[str, float]:
    """Mean, median and 95th percentile.

    >>> spread("x", np.arange(101.0))
    {'x.mean': 50.0, 'x.median': 50.0, 'x.p95': 95.0}
    """
    found = [float("nan")] * 3
    if values.size:
        found = [float(values.mean()), *map(float, np.percentile(values, [50, 95]))]
    return {f"{name}.{statistic}": x for statistic, x in zip(("mean", "median", "p95"), found)}


def by_group(outcome: Outcome, group: Ints, of: Floats) -> Mapping[int, float]:
    """Mean of a value [J] over the jobs that queued, by their ``group`` [J]."""
    on = outcome.queued
    jobs = np.bincount(group[on])
    mean = np.bincount(group[on], of[on]) / np.maximum(jobs, 1)
    return {g: float(mean[g]) for g in np.flatnonzero(jobs).tolist()}


def size_groups(sizes: Floats) -> tuple[Ints, list[str]]:
    """Jobs by size: each size of its own where there are few, powers of two otherwise.

    >>> size_groups(np.array([1.0, 2.0, 1.0, 8.0]))
    (array([0, 1, 0, 2]), ['1', '2', '8'])
    >>> size_groups(np.arange(1.0, 21.0))[1]
    ['1', '2', '3 to 4', '5 to 8', '9 to 16', '17 to 20']
    """
    different, rank = np.unique(sizes, return_inverse=True)
    if different.size <= SIZES:
        return rank.astype(np.int64), [f"{size:g}" for size in different]
    # Slightly less than the logarithm: exact powers of two stay in the lower class.
    power = np.ceil(np.log2(np.maximum(different, 1e-3)) - 1e-9).astype(np.int64)
    groups, group = np.unique(power, return_inverse=True)
    while groups.size > SIZES + 2:  # the smallest together
        power = np.maximum(power, groups[1])
        groups, group = np.unique(power, return_inverse=True)
    names = []
    for g in range(groups.size):
        low, high = different[group == g].min(), different[group == g].max()
        names.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return group[rank].astype(np.int64), names


def runs_of(*columns: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """First and past row of each run of rows that are alike in all columns.

    >>> runs_of(np.array([5, 5, 7]), np.array([1, 2, 2]))
    [(0, 1), (1, 2), (2, 3)]
    """
    begins = np.any([np.diff(column) != 0 for column in columns], axis=0)
    edges = [0, *(1 + np.flatnonzero(begins)).tolist(), columns[0].size]
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def jobs_as_rows(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Indices start[i] … start[i] + count[i] − 1 of all i, one after another, and their i.

    >>> jobs_as_rows(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    job = np.repeat(np.arange(count.size), count)
    offset = np.concatenate([[0], np.cumsum(count)])[:-1]
    # Places within each i count from 0: subtract where its rows begin.
    return start[job] + np.arange(job.size) - offset[job], job


def _pieces(schedule: Schedule) -> Pieces:
    """Last attempts, then those that were cut short.

    What still runs has held its devices until the last end that is known.
    """
    begun, end = schedule.last_start, schedule.end
    # Where no end is known at all, such a job has held its devices for no time.
    if (running := schedule.phase == RUNNING).any():
        # A job that runs at the end of the simulation has an end of NaN, which would drop its use.
        last_end = np.fmax.reduce(np.append(end, schedule.cuts["end"]), initial=-np.inf)
        end = np.where(running, np.fmax(begun, last_end), end)
    jobs = np.flatnonzero(np.isfinite(end) & np.isfinite(begun))
    rows, job = jobs_as_rows(schedule.piece_from[jobs], schedule.piece_count[jobs])
    job_of_piece = jobs[job]
    cuts = schedule.cuts
    starts = cuts["from"]
    cut_rows, cut = jobs_as_rows(starts[:-1], np.diff(starts))
    return Pieces(
        np.concatenate([job_of_piece, cuts["job"][cut]]).astype(np.int64),
        np.concatenate([schedule.piece_node[rows], cuts["node"][cut_rows]]).astype(np.int64),
        np.concatenate([schedule.piece_tasks[rows], cuts["tasks"][cut_rows]]).astype(np.int64),
        np.concatenate([begun[job_of_piece], cuts["begun"][cut]]),
        np.concatenate([end[job_of_piece], cuts["end"][cut]]),
        np.concatenate([np.full(job_of_piece.size, LAST), cuts["why"][cut]]).astype(np.int64),
        np.concatenate([schedule.held[job_of_piece], cuts["held"][cut]]),
    )


def held_until(times: Floats, starts: Floats, amounts: Floats) -> Floats:
    """Σ amount · (time − start) over those that started before each time."""
    order = np.argsort(starts, kind="stable")
    starts, amounts = starts[order], amounts[order]
    # Only what started before counts; prefix sums answer all times at once.
    begun = np.searchsorted(starts, times)
    amount = np.concatenate([[0.0], np.cumsum(amounts)])[begun]
    moment = np.concatenate([[0.0], np.cumsum(amounts * starts)])[begun]
    total: Floats = amount * times - moment
    return total


def over_bins(edges: Floats, begin: Floats, end: Floats, amounts: Floats) -> Floats:
    """Means of amounts held from their begin to their end, over the bins between edges."""
    # Held between two times = held since the starts, less held since the ends.
    amount = held_until(edges, begin, amounts) - held_until(edges, end, amounts)
    return np.asarray(np.diff(amount) / np.diff(edges))


@kernel
def _idle_while_waiting(
    order: Ints,
    times: Floats,
    rank: Ints,
    amount: Floats,
    size: Floats,
    waiting: Ints,
    capacity: float,
) -> float:
    """∫ of what is idle while the smallest waiting job asks for no more.

    ``times`` are when jobs begin to wait, when they end to, [J] each, when devices are taken and
    when they are given back, [P] each; ``order`` is theirs. Sizes have their ``rank`` [J], holds
    their ``amount`` [P]. ``waiting`` counts jobs by rank, none at first.
    """
    J, P = rank.size, amount.size
    smallest, idle, total, i = size.size, capacity, 0.0, 0
    while i < times.size:
        clock = times[order[i]]
        while i < times.size and times[order[i]] == clock:
            event = order[i]
            if event < 2 * J:
                row = rank[event if event < J else event - J]
                waiting[row] += 1 if event < J else -1
                if row < smallest:
                    smallest = row
            else:
                event -= 2 * J
                # Sums of rounded amounts may miss a fit by a little: hence 1e-9 below.
                idle += amount[event - P] if event >= P else -amount[event]
            i += 1
        # Ranks below the smallest have no waiting job.
        while smallest < size.size and waiting[smallest] == 0:
            smallest += 1
        if i < times.size and smallest < size.size and size[smallest] <= idle + 1e-9:
            total += max(idle, 0.0) * (times[order[i]] - clock)
    return total

"""What a schedule was worth: waiting, completion, slowdown, utilisation, what was lost, fairness.

Everything is a pure function of an :class:`Outcome`: when each job was submitted, started and
ended, what it held, and where. A simulated :class:`~gangwise.jobs.simulation.Schedule` is one
(:meth:`Outcome.of`), and so is what a log recorded (:meth:`Outcome.recorded`), so that *as it
happened* stands in the same tables.

======================  ============================================================================
waiting                 first start − submission
completion              end − submission
bounded slowdown        max(1, completion / max(run, 10 s)), with run = end − last start
makespan                last end − first submission
utilisation             device-seconds held / (devices · makespan), of a device type
goodput                 the same of what was held and not lost
lost to stragglers      devices · seconds · max(0, 1 − rate / declared rate) of every task: its own
                        node is slower than its label says, or another task of its gang is
lost to restarts        work done again after a failure or a preemption
idle while waiting      devices that were free while a job waited that asks for no more than these:
                        an upper bound of what fragmentation costs, for order and reservations hold
                        devices free as well
======================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.frames import Tabular
from gangwise.core.jit import kernel
from gangwise.jobs.kernels import FINISHED
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.schedule import Schedule

SHORTEST = 10.0
"""Seconds: jobs that ran for less count as this long in the bounded slowdown."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Tasks of one attempt of a job on one node, [P].

    Attributes
    ----------
    job, node, tasks : ndarray of int64
    begin, end : ndarray of float64
        Seconds.
    whole : ndarray of bool
        Of the attempt that ended the job; the others were cut short.
    """

    job: Ints
    node: Ints
    tasks: Ints
    begin: Floats
    end: Floats
    whole: Bools


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(Tabular):
    """What became of jobs on nodes; as a table, a row for each job.

    Attributes
    ----------
    name : str
        The scheduler, or ``as it happened``.
    jobs, nodes
        As played.
    start, last_start, end : ndarray of float64, shape [J]
        Seconds; NaN where the job never started, or never ended.
    demand : ndarray of float64, shape [J, K]
        Devices of each of the nodes' types that all tasks together hold.
    pieces : Pieces or None
        Where; None where the log does not say.
    lost : ndarray of float64, shape [J]
        Device-seconds, of the job's dominant type, of work that was done again.
    clean : ndarray of bool, shape [J]
        Jobs that ran through in one attempt to their own end: their rates are known.
    decisions : int
        Rounds of decisions.
    seconds : float
        Spent on them; NaN where it is not known.
    told : str
        What was played, in a line.

    Examples
    --------
    >>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
    >>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1])
    >>> outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(4)), "fcfs+easy")
    >>> outcome.waiting, round(outcome.utilisation["cpu"], 4)
    (array([0., 9., 0.]), 0.6875)
    """

    name: str
    jobs: Jobs
    nodes: Nodes
    start: Floats
    last_start: Floats
    end: Floats
    demand: Floats
    pieces: Pieces | None
    lost: Floats
    clean: Bools
    decisions: int = 0
    seconds: float = float("nan")
    told: str = ""

    def columns(self) -> dict[str, Any]:
        """The columns of the jobs, and their start, end, waiting and completion; seconds."""
        of_jobs = {
            name: column
            for name, column in self.jobs.columns().items()
            if not name.startswith("recorded_")
        }
        found = {"start": self.start, "last_start": self.last_start, "end": self.end}
        return {
            "scheduler": np.full(len(self.jobs), self.name),
            **of_jobs,
            **found,
            "waiting": self.waiting,
            "completion": self.completion,
            "lost": self.lost,
        }

    def __repr__(self) -> str:
        ended = int(np.isfinite(self.end).sum())
        return f"Outcome({self.name}, {ended:,} of {len(self.jobs):,} jobs ended)"

    @classmethod
    def of(cls, schedule: Schedule, name: str) -> Outcome:
        """What a simulation did."""
        jobs, nodes = schedule.jobs, schedule.nodes
        return cls(
            name,
            jobs,
            nodes,
            schedule.start,
            schedule.last_start,
            schedule.end,
            held_devices(jobs, nodes),
            _pieces(schedule),
            schedule.lost,
            (schedule.phase == FINISHED) & (schedule.attempts == 1),
            schedule.counts["rounds"],
            schedule.seconds,
            schedule.told,
        )

    @classmethod
    def recorded(cls, jobs: Jobs, nodes: Nodes) -> Outcome | None:
        """As it happened; None where the log has no starts and ends."""
        start, end = jobs.recorded_start, jobs.recorded_end
        if not (np.isfinite(start) & np.isfinite(end)).any():
            return None
        lost, clean = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=bool)
        demand = held_devices(jobs, nodes)
        return cls("as it happened", jobs, nodes, start, start, end, demand, None, lost, clean)

    # Of each job

    @cached_property
    def ended(self) -> Bools:
        """Jobs that started and ended, [J]; the others are in no mean."""
        found: Bools = np.isfinite(self.start) & np.isfinite(self.end)
        return found

    @property
    def waiting(self) -> Floats:
        """Seconds from submission to the first start, [J]."""
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
        """Jobs that have a deadline and did not end by it, [J]."""
        late: Bools = np.isfinite(self.jobs.deadline) & ~(self.end <= self.jobs.deadline)
        return late

    # Of all

    @cached_property
    def span(self) -> tuple[float, float]:
        """First submission and last end."""
        if not self.ended.any():
            raise ScenarioError(f"{self.name}: no job ended, there is nothing to measure")
        return float(self.jobs.submit.min()), float(np.nanmax(self.end))

    @property
    def makespan(self) -> float:
        """Seconds from the first submission to the last end."""
        return self.span[1] - self.span[0]

    @cached_property
    def device_seconds(self) -> Floats:
        """Device-seconds held, of each device type, [K]; attempts cut short as well."""
        if self.pieces is None:
            run = np.where(self.ended, self.end - self.last_start, 0.0)
            return np.asarray(run @ self.demand)
        pieces = self.pieces
        each = pieces.tasks * (pieces.end - pieces.begin)
        return np.asarray(each @ self.per_task[pieces.job])

    @property
    def per_task(self) -> Floats:
        """Devices of each type that a task holds, [J, K]."""
        return np.asarray(self.demand / self.jobs.tasks[:, None])

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
        """Share of each device type that was held and not lost to stragglers or restarts."""
        return self._shares(self.device_seconds - self.stragglers() - self.restarts())

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
        known = self.ended & self.clean & (run > 0) & (self.jobs.run > 0)
        found: Floats = np.full(len(self.jobs), np.nan)
        found[known] = self.jobs.run[known] / run[known]
        return found

    def stragglers(self, noise: Floats | None = None) -> Floats:
        """Device-seconds lost since gangs ran slower than the labels of their nodes say, [K].

        Σ over last attempts of tasks · devices · seconds · max(0, 1 − rate / declared rate). Jobs
        that were cut short or killed are left out: their rate is not known.

        Parameters
        ----------
        noise : ndarray of float64, shape [J], optional
            Factor on each job's rate that is no node's doing.
        """
        if self.pieces is None:
            return np.zeros(len(self.nodes.devices))
        rates = self.rates if noise is None else self.rates / noise
        of = self.pieces
        declared = self.nodes.declared(self.jobs.types)[self.jobs.type[of.job], of.node]
        share = np.nan_to_num(np.clip(1 - rates[of.job] / declared, 0.0, 1.0))
        each = np.where(of.whole, share * of.tasks * (of.end - of.begin), 0.0)
        return np.asarray(each @ self.per_task[of.job])

    def restarts(self) -> Floats:
        """Device-seconds of work that was done again after failures and preemptions, [K]."""
        # `lost` is of the dominant type; the others were lost for as long.
        total = np.maximum(self.capacity, 1e-9)
        dominant = np.argmax(self.demand / total, axis=1)
        held = self.demand[np.arange(len(self.jobs)), dominant]
        seconds = np.divide(self.lost, held, out=np.zeros(len(self.jobs)), where=held > 0)
        return np.asarray(seconds @ self.demand)

    def idle_while_waiting(self, device: str) -> float:
        """Device-seconds idle while a job waited that asks for no more than what was idle.

        Parameters
        ----------
        device : str
            A device type; jobs that ask for none of it are left out.
        """
        k = self.nodes.devices.index(device)
        asks = self.demand[:, k]
        mine = np.flatnonzero(self.ended & (asks > 0))
        if not mine.size:
            return 0.0
        size, rank = np.unique(asks[mine], return_inverse=True)
        begin, end = self._held_between(k)
        amount = begin[1]
        # Waiting begins and ends; devices are taken and given back.
        times = np.concatenate([self.jobs.submit[mine], self.start[mine], begin[0], end])
        kinds = np.repeat([0, 1, 2, 3], [mine.size, mine.size, end.size, end.size])
        values = np.concatenate([rank, rank, amount, amount]).astype(np.float64)
        waiting = np.zeros(size.size, dtype=np.int64)
        # Of an instant, only what is left after it counts: the interval has no length before.
        order = np.argsort(times, kind="stable")
        return float(
            _idle_while_waiting(
                times[order], kinds[order], values[order], size, waiting, self.capacity[k]
            )
        )

    def _held_between(self, k: int) -> tuple[tuple[Floats, Floats], Floats]:
        """Beginnings with amounts, and ends, of every hold of a device type."""
        if self.pieces is None:
            on = np.flatnonzero(self.ended)
            return (self.last_start[on], self.demand[on, k]), self.end[on]
        of = self.pieces
        return (of.begin, of.tasks * self.per_task[of.job, k]), of.end

    # Over time

    def over_time(self, device: str, edges: Floats) -> Floats:
        """Devices of a type held, means over the bins between edges, [bins]."""
        (begin, amount), end = self._held_between(self.nodes.devices.index(device))
        held = _held_until(edges, begin, amount) - _held_until(edges, end, amount)
        return np.asarray(np.diff(held) / np.diff(edges))

    def waiting_jobs(self, edges: Floats) -> Floats:
        """How many jobs waited, means over the bins between edges, [bins]."""
        on = self.ended
        one = np.ones(int(on.sum()))
        since, until = self.jobs.submit[on], self.start[on]
        held = _held_until(edges, since, one) - _held_until(edges, until, one)
        return np.asarray(np.diff(held) / np.diff(edges))

    # Fairness

    def users(self, of: Floats) -> Floats:
        """Means over the jobs of each user of something of each job, [U]; NaN without a job."""
        on = self.ended
        count = np.bincount(self.jobs.user[on], minlength=len(self.jobs.users))
        total = np.bincount(self.jobs.user[on], of[on], minlength=len(self.jobs.users))
        means: Floats = np.full(count.size, np.nan)
        return np.divide(total, count, out=means, where=count > 0)

    @property
    def worst_users(self) -> float:
        """Mean waiting of the worst tenth of the users, at least one, by their mean waiting."""
        means = np.sort(_known(self.users(self.waiting)))
        return float(means[-max(1, means.size // 10) :].mean())

    @property
    def unfairness(self) -> float:
        """1 − Jain's index of the users' mean bounded slowdowns: 0 where all fare alike."""
        x = _known(self.users(self.slowdown))
        return float(1 - x.sum() ** 2 / (x.size * (x**2).sum()))

    def summary(self) -> dict[str, float]:
        """The numbers of a row of a table; seconds and device-hours.

        Keys: ``jobs``, ``not ended``, ``waiting``, ``completion`` and ``slowdown`` with ``.mean``,
        ``.median`` and ``.p95``, ``makespan``, ``deadlines missed``, ``worst users``,
        ``unfairness``, ``microseconds per decision``, and for each device type ``utilisation.``,
        ``goodput.``, ``stragglers.``, ``restarts.`` and ``idle.`` (device-hours).
        """
        on = self.ended
        found: dict[str, float] = {"jobs": float(on.sum()), "not ended": float((~on).sum())}
        of_jobs = {
            "waiting": self.waiting,
            "completion": self.completion,
            "slowdown": self.slowdown,
        }
        for name, values in of_jobs.items():
            found |= spread(name, values[on])
        found["makespan"] = self.makespan
        found["deadlines missed"] = float(self.missed.sum())
        found["worst users"] = self.worst_users
        found["unfairness"] = self.unfairness
        found["microseconds per decision"] = (
            1e6 * self.seconds / self.decisions if self.decisions else float("nan")
        )
        stragglers, restarts = self.stragglers(), self.restarts()
        utilisation, goodput = self.utilisation, self.goodput
        for k, device in enumerate(self.nodes.devices):
            found[f"utilisation.{device}"] = utilisation[device]
            found[f"goodput.{device}"] = goodput[device]
            found[f"stragglers.{device}"] = float(stragglers[k]) / 3600
            found[f"restarts.{device}"] = float(restarts[k]) / 3600
            found[f"idle.{device}"] = self.idle_while_waiting(device) / 3600
        return found


def held_devices(jobs: Jobs, nodes: Nodes) -> Floats:
    """Devices of each of the nodes' types that all tasks of a job together hold, [J, K]."""
    per_shape = np.zeros((len(jobs.shapes), len(nodes.devices)))
    for s, shape in enumerate(jobs.shapes):
        for device, amount in zip(jobs.devices, shape.demand):
            if device in nodes.devices:
                per_shape[s, nodes.devices.index(device)] = amount / 1000
    found: Floats = per_shape[jobs.shape] * jobs.tasks[:, None]
    return found


def spread(name: str, values: Floats) -> dict[str, float]:
    """Mean, median and 95th percentile.

    >>> spread("x", np.arange(101.0))
    {'x.mean': 50.0, 'x.median': 50.0, 'x.p95': 95.0}
    """
    if not values.size:
        return {f"{name}.{which}": float("nan") for which in ("mean", "median", "p95")}
    middle, high = np.percentile(values, [50, 95])
    return {
        f"{name}.mean": float(values.mean()),
        f"{name}.median": float(middle),
        f"{name}.p95": float(high),
    }


def by_group(outcome: Outcome, group: Ints, of: Floats) -> Mapping[int, dict[str, float]]:
    """Mean, median and p95 of something of each job, over the ended jobs of each group.

    Parameters
    ----------
    outcome : Outcome
    group : ndarray of int64, shape [J]
    of : ndarray of float64, shape [J]
    """
    on = outcome.ended
    return {
        int(g): spread("of", of[on & (group == g)]) | {"jobs": float((on & (group == g)).sum())}
        for g in np.unique(group[on])
    }


def size_groups(sizes: Floats, most: int = 6) -> tuple[Ints, list[str]]:
    """Jobs by size: each size of its own where there are few, powers of two otherwise.

    >>> size_groups(np.array([1.0, 2.0, 1.0, 8.0]))
    (array([0, 1, 0, 2]), ['1', '2', '8'])
    >>> size_groups(np.arange(1.0, 21.0))[1]
    ['1', '2', '3 to 4', '5 to 8', '9 to 16', '17 to 20']
    """
    different, rank = np.unique(sizes, return_inverse=True)
    if different.size <= most:
        return rank.astype(np.int64), [f"{size:g}" for size in different]
    power = np.ceil(np.log2(np.maximum(different, 1e-3)) - 1e-9).astype(np.int64)
    groups, of = np.unique(power, return_inverse=True)
    while groups.size > most + 2:  # the smallest together
        power = np.maximum(power, groups[1])
        groups, of = np.unique(power, return_inverse=True)
    names = []
    for g in range(groups.size):
        low, high = different[of == g].min(), different[of == g].max()
        names.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return of[rank].astype(np.int64), names


def jobs_as_rows(start: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Indices start[i] … start[i] + count[i] − 1 of all i, one after another, and their i.

    >>> jobs_as_rows(np.array([5, 9]), np.array([2, 1]))
    (array([5, 6, 9]), array([0, 0, 1]))
    """
    of = np.repeat(np.arange(count.size), count)
    before = np.concatenate([[0], np.cumsum(count)])[:-1]
    return start[of] + np.arange(of.size) - before[of], of


def _pieces(schedule: Schedule) -> Pieces:
    """Last attempts, then those that were cut short."""
    done = np.isfinite(schedule.end) & np.isfinite(schedule.last_start)
    jobs = np.flatnonzero(done)
    rows, of = jobs_as_rows(schedule.piece_from[jobs], schedule.piece_count[jobs])
    last = jobs[of]
    cuts = schedule.cuts
    first = cuts["from"]
    cut_rows, cut = jobs_as_rows(first[:-1], np.diff(first))
    return Pieces(
        np.concatenate([last, cuts["job"][cut]]).astype(np.int64),
        np.concatenate([schedule.piece_node[rows], cuts["node"][cut_rows]]).astype(np.int64),
        np.concatenate([schedule.piece_tasks[rows], cuts["tasks"][cut_rows]]).astype(np.int64),
        np.concatenate([schedule.last_start[last], cuts["begun"][cut]]),
        np.concatenate([schedule.end[last], cuts["end"][cut]]),
        np.repeat([True, False], [last.size, cut.size]),
    )


def _held_until(times: Floats, starts: Floats, amounts: Floats) -> Floats:
    """Σ amount · (time − start) over those that started before each time."""
    order = np.argsort(starts, kind="stable")
    starts, amounts = starts[order], amounts[order]
    before = np.searchsorted(starts, times)
    amount = np.concatenate([[0.0], np.cumsum(amounts)])[before]
    moment = np.concatenate([[0.0], np.cumsum(amounts * starts)])[before]
    held: Floats = amount * times - moment
    return held


def _known(values: Floats) -> Floats:
    known: Floats = values[np.isfinite(values)]
    return known


@kernel
def _idle_while_waiting(
    times: Floats, kinds: Ints, values: Floats, size: Floats, waiting: Ints, capacity: float
) -> float:
    """∫ of what is idle while the smallest waiting job asks for no more.

    Events in the order of time: a job begins (0) or ends (1) to wait, with the rank of its size;
    devices are taken (2) or given back (3). ``waiting`` counts jobs by rank, none at first.
    """
    smallest, idle, total, i = size.size, capacity, 0.0, 0
    while i < times.size:
        now = times[i]
        while i < times.size and times[i] == now:
            kind, value = kinds[i], values[i]
            if kind < 2:
                rank = int(value)
                waiting[rank] += 1 if kind == 0 else -1
                if rank < smallest:
                    smallest = rank
            else:
                idle += value if kind == 3 else -value
            i += 1
        # Ranks below the smallest have nobody waiting.
        while smallest < size.size and waiting[smallest] == 0:
            smallest += 1
        if i < times.size and smallest < size.size and size[smallest] <= idle + 1e-9:
            total += max(idle, 0.0) * (times[i] - now)
    return total

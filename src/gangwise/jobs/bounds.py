"""Lower bounds on mean completion time: what no scheduler can beat.

Four bounds. The first three hold for every schedule, with preemption and migration, too; the last
for schedules without. The largest that holds counts. Completion time is from submission to end,
C_j - r_j. A job that comes after others counts as submitted at the end of the longest chain of best
run times p* before it, and has waited until then.

*Alone*: every job by itself on its best nodes, Σ_j p_j* / J.

*Shortest remaining processing time (SRPT)*: one fast machine of the speed V of all nodes together
serves what has least left, with preemption. At every moment it has ended as many jobs as any
schedule can have (Schrage 1968), so that its k-th end is no later than the k-th end of any
schedule; nor is the k-th of the ends r_j + p_j*. So Σ_k max of the two is below Σ_j C_j.

*Busy time*: on that machine the mean busy times M_j of the jobs obey
Σ_{j∈S} u_j M_j ≥ u(S) (min r(S) + u(S) / 2V) for every set S of jobs, with u_j device-seconds of
work and V device-seconds of work per second. That linear programme is a polymatroid, so serving the
smallest u_j first, with preemption, solves it (Goemans, Queyranne, Schulz, Skutella, Wang 2002).
And C_j ≥ M_j + p_j*/2: no job works faster than on its best nodes, so M_j is largest, for a given
C_j, where all its work is done in the last p_j* seconds.

*Lagrangian dual*: a device-second on node n in period t costs λ[n, t] ≥ 0. Every job picks its
start and nodes by itself, and what all devices would have earned is taken back:

    L(λ) = Σ_j min over starts s ≥ r_j and gangs of (C_j - r_j + Σ_tasks ∫ d λ[n(task), ·] dt)
           - Σ_{n,t} capacity_n λ[n, t] Δ.

A feasible schedule pays for at most all devices, so L(λ) is below its Σ (C_j - r_j), whatever the
prices. They are found by a subgradient method: more where devices were overbooked, less where
they were free. With λ = 0 the dual is the first bound. A gang runs at the rate of its slowest task
from its start to its end: it is never preempted, never moves, and its nodes never fail. Where a
schedule has any of these, the dual is of the best schedule without them.

Of a job of groups of unlike tasks, the group that holds most devices stands for the job: the others
only make it slower, later and dearer. What they hold counts as work beside in the second bound and
the third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import inlined_kernel, lean_kernel
from gangwise.jobs.kernels import DUE, Rows, pop, push

int64: Any = np.int64
MOMENTUM = 0.7  # share of the last direction that the next one keeps

MOST_PRICED = 200_000
"""Jobs up to which prices are searched without --bound: a step costs 0.4 µs a job."""


@dataclass(frozen=True, eq=False)
class BoundedJobs:
    """Jobs and nodes as the bounds see them: one device type, that of which there is too little.

    A kind is jobs of one job type, task size and label constraint.
    """

    submit: Floats  # [J] seconds
    work: Floats  # [J] seconds on a node of rate 1
    tasks: Ints  # [J]
    devices: Floats  # [J] devices that each task holds
    kind: Ints  # [J] row of ``rate`` and ``room``
    rate: Floats  # [C, N] work per second of each kind on each node; where rates move, the highest
    room: Ints  # [C, N] tasks of a kind that an empty node holds; 0 where the kind may not run
    capacity: Floats  # [N] devices of each node
    after_from: Ints | None = None  # job j comes after after[after_from[j]:after_from[j + 1]]
    after: Ints | None = None
    beside: Floats | None = None  # [J] devices that its other groups hold for as long

    def __post_init__(self) -> None:
        if self.submit.size == 0:
            raise ScenarioError("bounds: there are no jobs")
        short = np.flatnonzero(self.room.sum(axis=1)[self.kind] < self.tasks)
        if short.size:
            raise ScenarioError(
                f"bounds: {short.size} jobs fit on no nodes, the first is row {short[0]}; "
                "set them aside"
            )

    @cached_property
    def best_rates(self) -> Floats:
        """Rate of every job alone on its best nodes, shape [J]."""
        order = np.argsort(-self.rate, axis=1, kind="stable")
        fits = np.cumsum(np.take_along_axis(self.room, order, axis=1), axis=1)
        sorted_rates = np.take_along_axis(self.rate, order, axis=1)
        # All kinds are searched at once: those of each lie above those of the kinds before.
        C, N = fits.shape
        # The numbers of a kind are below `apart`, so one sorted array holds all kinds.
        apart = int(fits.max()) + int(self.tasks.max()) + 1
        above = apart * np.arange(C)
        at = np.searchsorted((fits + above[:, None]).ravel(), self.tasks + above[self.kind])
        return np.asarray(sorted_rates[self.kind, at - N * self.kind])

    @cached_property
    def release(self) -> Floats:
        """Seconds [J] before which no job can start: r'_j = max(r_j, max_{i before j} r'_i + p_i*).

        The submission, or the end of the longest chain of jobs before it, each on its best nodes.
        """
        release = self.submit
        if self.after is None or self.after_from is None or self.after.size == 0:
            return release
        # Longest paths by relaxation: NaN ≠ NaN starts the loop, and a fixed point ends it.
        later = np.repeat(np.arange(self.submit.size), np.diff(self.after_from))
        alone, predecessors = self.work / self.best_rates, np.full(release.size, np.nan)
        while (
            release != predecessors
        ).any():  # Jobs.of sets circles aside, so that this comes to an end
            predecessors, release = release, release.copy()
            np.maximum.at(release, later, (predecessors + alone)[self.after])
        return release


@dataclass(frozen=True, eq=False)
class LowerBound:
    """A certified lower bound on mean completion time, in seconds.

    ``prices`` of a device-second prove ``dual``: anyone can evaluate them. Price t is of the time
    from origin + t · period to origin + (t + 1) · period.
    """

    alone: float  # the four bounds
    srpt: float
    busy_time: float
    dual: float
    prices: Floats  # [N, T]; T = 0 where none were searched: all are 0
    origin: float
    period: float
    steps: int  # subgradient steps taken

    @property
    def searched(self) -> bool:
        return bool(self.prices.shape[1] > 0)

    @property
    def mean_completion(self) -> float:
        """The largest of all, in seconds: of schedules without preemption and migration."""
        return max(self.preemptive, self.dual)

    @property
    def preemptive(self) -> float:
        """The largest of those that hold for every schedule, in seconds."""
        return max(self.alone, self.srpt, self.busy_time)


class Certified(NamedTuple):
    """Lower bounds on mean completion time, in seconds: one for each seed, or none."""

    values: tuple[float, ...] = ()  # of schedules without preemption and migration
    preemptive: tuple[float, ...] = ()  # of all; none where an older gangwise stored them
    priced: bool = True  # whether prices were searched

    @classmethod
    def of(cls, bounds: Sequence[LowerBound]) -> Certified:
        values = tuple(bound.mean_completion for bound in bounds)
        searched = all(bound.searched for bound in bounds)
        return cls(values, tuple(bound.preemptive for bound in bounds), searched)


NO_BOUNDS = Certified()


def alone_bound(jobs: BoundedJobs) -> float:
    """Mean completion time if every job had the cluster for itself."""
    return float((jobs.release - jobs.submit + jobs.work / jobs.best_rates).mean())


def srpt_bound(jobs: BoundedJobs) -> float:
    """Shortest remaining processing time on one fast machine, and every job alone, end by end."""
    completion, _ = _served(jobs, shrinks=True)
    alone = jobs.release + jobs.work / jobs.best_rates
    # Both sequences of k-th ends are bounds for every k, so their maximum is.
    bound = float((np.maximum(np.sort(completion), np.sort(alone)) - np.sort(jobs.submit)).mean())
    return bound - 1e-9 * (abs(bound) + 1.0)  # less what sums of floating-point numbers may lose


def busy_time_bound(jobs: BoundedJobs) -> float:
    """The busy-time linear programme, solved by smallest work first with preemption."""
    _, busy = _served(jobs, shrinks=False)
    return float((busy + 0.5 * jobs.work / jobs.best_rates - jobs.submit).mean())


def _served(jobs: BoundedJobs, shrinks: bool) -> tuple[Floats, Floats]:
    """Ends and mean busy times [J] on one machine of the speed of all nodes together."""
    # A device works at no more than the highest rate of its node.
    fastest = np.where(jobs.room > 0, jobs.rate, 0.0).max(axis=0)
    speed = float(jobs.capacity @ fastest)
    volume = jobs.tasks * jobs.devices * jobs.work
    if jobs.beside is not None:
        volume = volume + jobs.beside * jobs.work
    release = jobs.release
    moment, completion = np.zeros(volume.size), release.copy()
    order, heap = np.argsort(release, kind="stable"), np.zeros(volume.size, dtype=DUE)
    _serve(release, order, volume.copy(), speed, shrinks, heap, moment, completion)
    # A job without work has no busy time; its mean is taken as its release.
    busy = np.where(volume > 0, moment / np.where(volume > 0, volume, 1.0), release)
    return completion, busy


@lean_kernel
def _serve(
    release: Floats,
    order: Ints,
    left: Floats,
    speed: float,
    shrinks: bool,
    heap: Rows,
    moment: Floats,
    done: Floats,
) -> None:
    """Serve the jobs, in ``order`` of release: the smallest first, of equal ones the first.

    A job that comes interrupts a larger one; how large that is, is its work in all, or what is left
    of it if it ``shrinks``. ``left`` [J] is worked off; ``moment`` [J] becomes ∫ t over the work
    done, in work units, ``done`` [J] when a job ends.
    """
    waiting = int64(0)
    clock, i = 0.0, 0
    while i < order.size or waiting > 0:
        if waiting == 0:
            clock = max(clock, release[order[i]])
        elif shrinks:  # what was served last is first in the heap, and stays so with less left
            heap[0].time = left[heap[0].item]
        while i < order.size and release[order[i]] <= clock:
            waiting = push(heap, waiting, left[order[i]], order[i])
            i += 1
        j = heap[0].item
        until = release[order[i]] if i < order.size else np.inf
        end = min(clock + left[j] / speed, until)
        # Compared as durations: clock + left / speed may round to clock.
        if left[j] / speed <= until - clock:
            moment[j] += left[j] * (clock + 0.5 * left[j] / speed)
            left[j] = 0.0
            done[j] = end
            waiting = pop(heap, waiting)
        else:
            moment[j] += (end - clock) * speed * 0.5 * (clock + end)
            left[j] -= (end - clock) * speed
        clock = end


def lower_bound(
    jobs: BoundedJobs,
    period: float = 900.0,
    steps: int = 200,
    above: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> LowerBound:
    """Certify a lower bound on mean completion time.

    Parameters
    ----------
    period : float
        Seconds that share a price.
    steps : int
        Subgradient steps. With none, prices are not searched: the dual bound is the first one.
    above : float, optional
        Mean completion time of any schedule without preemption and migration, which sets the
        length of the steps; without it they are guessed. No step is taken once the prices prove it
        but for a millionth.
    progress : callable, optional
        Called with the number of steps taken.

    Examples
    --------
    Two jobs of 10 seconds on one node with one device: one of them waits.

    >>> ones, tasks, kind = np.ones(2), np.array([1, 1]), np.array([0, 0])
    >>> rate, room = np.array([[1.0]]), np.array([[1]])
    >>> jobs = BoundedJobs(0 * ones, 10 * ones, tasks, ones, kind, rate, room, ones[:1])
    >>> bound = lower_bound(jobs, period=1.0, steps=400, above=15.0)
    >>> bound.alone, bound.busy_time, bool(14.5 < bound.mean_completion <= 15)
    (10.0, 15.0, True)
    """
    origin, alone = float(jobs.submit.min()), alone_bound(jobs)
    all_schedules = alone, srpt_bound(jobs), busy_time_bound(jobs)
    if steps == 0:
        none = np.zeros((jobs.capacity.size, 0))
        return LowerBound(*all_schedules, alone, none, origin, period, 0)
    # Prices reach as far as the last job may run, and the work left then takes.
    longest = (jobs.work / jobs.best_rates).max()
    backlog = (jobs.tasks * jobs.devices * jobs.work / jobs.best_rates).sum()
    # Somewhat long, never short: prices beyond the horizon are 0, which is valid but weak.
    horizon = jobs.release.max() + longest - origin + backlog / jobs.capacity.sum()
    prices = np.zeros((jobs.capacity.size, int(np.ceil(horizon / period)) + 1))
    priced = _priced(jobs, prices, origin, period)
    top, steps = _search(priced, jobs, steps, above, progress)
    return LowerBound(*all_schedules, top, prices, origin, period, steps)


def _priced(jobs: BoundedJobs, prices: Floats, origin: float, period: float) -> _Priced:
    c, (N, T) = jobs, prices.shape
    order = np.argsort(-np.where(c.room > 0, c.rate, -1.0), axis=1, kind="stable")
    of_jobs = c.release, c.work, c.tasks, c.devices, c.kind, c.rate, c.room, order
    price, summed = np.zeros((2, T + 1, N))
    space = np.empty((N, T)), np.empty(N), np.empty(N, np.int64)
    return _Priced(*of_jobs, prices, price, summed, origin, period, *space)


def _search(
    x: _Priced,
    jobs: BoundedJobs,
    steps: int,
    above: float | None,
    progress: Callable[[int], None] | None,
) -> tuple[float, int]:
    """Subgradient method: the largest L(λ) ÷ J and the steps taken; leaves its λ in ``x.held``."""
    held, J = x.held, jobs.submit.size
    waited = float((x.release - jobs.submit).sum())
    available = jobs.capacity[:, None] * x.period
    enough = np.inf if above is None else (1 - 1e-6) * above
    top, best = -np.inf, held.copy()
    patience = max(3, min(10, steps // 20))  # where few steps are left, none can be wasted
    aim, since, direction = 1.0, 0, np.zeros_like(held)
    for step in range(steps + 1):
        x.price[:-1] = held.T
        np.cumsum(x.price[:-1] * x.period, axis=0, out=x.summed[1:])
        x.use[:] = 0.0
        # L(λ) = what all jobs pay at their cheapest, less what all devices would earn.
        value = (waited + _relaxed(x) - float((jobs.capacity * x.summed[-1]).sum())) / J
        if value > top:
            since = 0 if value > top + 1e-4 * abs(top) else since + 1
            top = value
            best[:] = held
        else:
            since += 1
        if since >= patience:  # the steps are too long for what is left to gain
            aim, since = 0.5 * aim, 0
            held[:] = best
            direction[:] = 0.0
        slope = x.use - available
        # Prices at 0 cannot fall: without these components the step is shorter than it need be.
        slope[(held <= 0) & (slope < 0)] = 0.0
        if step == steps or not slope.any() or top >= enough:
            break
        # Deflected by the steps before, so that jobs of a kind do not all flee the same period.
        direction = slope + MOMENTUM * direction
        # Polyak's step: as far as the gap over the squared length of the subgradient.
        length = float((direction * direction).sum())
        gap = (above - value if above is not None else 0.2 * abs(value) + 1e-9) * J
        # At least a thousandth: `above` may be wrong and below the dual, then the gap is negative.
        held += aim * max(gap, 1e-3 * abs(value) * J) / length * direction
        np.maximum(held, 0.0, out=held)
        if progress is not None:
            progress(step + 1)
    held[:] = best
    return top - 1e-9 * (abs(top) + 1.0), step  # less what sums of floating-point numbers may lose


class _Priced(NamedTuple):
    """Jobs, nodes and prices as the kernels want them."""

    release: Floats  # [J], as the next four
    work: Floats
    tasks: Ints
    devices: Floats
    kind: Ints
    rate: Floats  # [C, N]
    room: Ints  # [C, N]
    order: Ints  # [C, N] nodes by falling rate, those without room last
    held: Floats  # [N, T] λ
    price: Floats  # [T + 1, N] λ by period; none behind the last
    summed: Floats  # [T + 1, N] ∫ λ from the origin
    origin: float
    period: float
    use: Floats  # [N, T] device-seconds booked
    cost: Floats  # [N] of nodes, and how many tasks of a gang each of the fastest has
    chosen: Ints


@inlined_kernel
def _period(x: _Priced, at: float) -> tuple[int, float]:
    """The period of a time, and the seconds of it that are over."""
    periods = (at - x.origin) / x.period
    t = min(int(periods), x.held.shape[1])
    return t, (periods - t) * x.period


@inlined_kernel
def _book(x: _Priced, n: int, begin: float, end: float, devices: float) -> None:
    """Add ``devices`` from ``begin`` to ``end`` to the device-seconds used in each period."""
    T = x.use.shape[1]
    b, e = (begin - x.origin) / x.period, (end - x.origin) / x.period
    # The last period is clipped: beyond the horizon nothing has a price.
    for t in range(min(int(b), T), min(int(e) + 1, T)):
        x.use[n, t] += devices * x.period * max(min(e, t + 1.0) - max(b, float(t)), 0.0)


@inlined_kernel
def _cheapest(
    x: _Priced, j: int, level: int, begin: float, end: float, takes: float, best: float
) -> float:
    """Price of the cheapest nodes for gang j among its ``level`` + 1 fastest; fills ``chosen``.

    Infinite where ``takes`` plus the price is no less than ``best``. One task is on the slowest.
    """
    room, order = x.room[x.kind[j]], x.order[x.kind[j]]
    # On each node ∫ λ[n, t] dt from begin to end.
    (i, over), (k, end_over) = _period(x, begin), _period(x, end)
    # One task needs no search: its only node at this level is the slowest one.
    if x.tasks[j] == 1:
        n = order[level]
        low = x.summed[i, n] + over * x.price[i, n]
        return float(x.devices[j] * (x.summed[k, n] + end_over * x.price[k, n] - low))
    for n in range(x.cost.size):
        low = x.summed[i, n] + over * x.price[i, n]
        x.cost[n] = x.summed[k, n] + end_over * x.price[k, n] - low
    x.chosen[: level + 1] = 0
    # Tasks go to the cheapest of the open nodes, each filled to its room: exact, as costs add up.
    total, remaining = 0.0, x.tasks[j]
    while remaining > 0:
        least = 0
        for q in range(1, level + 1):
            if x.cost[order[q]] < x.cost[order[least]]:
                least = q
        cost = x.cost[order[least]]
        # The other tasks cost as much as on this node, or more; less what rounding may add.
        if takes + (total + remaining * x.devices[j] * cost) * (1 - 1e-12) >= best:
            return np.inf
        x.chosen[least] = min(remaining, room[order[least]])
        total += x.chosen[least] * x.devices[j] * cost
        remaining -= x.chosen[least]
        x.cost[order[least]] = np.inf
    return total


@inlined_kernel
def _best_start(x: _Priced, j: int) -> tuple[float, float, float, int]:
    """Least of C_j - r_j plus price over starts and gangs; its start, end and level.

    With a gang and its rate fixed, completion time plus price is piecewise linear in the start:
    the least value is at the release, or where start or end lies between two periods.
    """
    N, c, r, m = x.room.shape[1], x.kind[j], x.release[j], x.tasks[j]
    best, best_start, best_end, best_level = np.inf, r, r, -1
    fit = 0
    for q in range(N):
        n = x.order[c, q]
        if x.room[c, n] == 0:
            break
        fit += x.room[c, n]
        following = x.order[c, min(q + 1, N - 1)]
        tied = q + 1 < N and x.room[c, following] > 0 and x.rate[c, following] == x.rate[c, n]
        # A gang at this level: the slowest node is the q-th fastest, so all up to the last of
        # the same rate are open to it.
        if fit < m or (m > 1 and tied):
            continue
        span = x.work[j] / x.rate[c, n]
        # Completion time alone exceeds the best cost; prices are never negative.
        if span >= best:
            break  # slower levels only take longer
        earliest = int(np.ceil((r - x.origin) / x.period))
        ended = int(np.ceil((r + span - x.origin) / x.period))
        for case in range(3):
            k = 0
            while True:
                if case == 0:
                    s = r
                elif case == 1:
                    s = x.origin + (earliest + k) * x.period
                else:
                    s = x.origin + (ended + k) * x.period - span
                s = max(s, r)
                # Starts only get later from here, so the time alone ends the search.
                if s - r + span >= best or (case == 0 and k > 0):
                    break
                price = _cheapest(x, j, q, s, s + span, s - r + span, best)
                if s - r + span + price < best:
                    best = s - r + span + price
                    best_start, best_end, best_level = s, s + span, q
                k += 1
    return best, best_start, best_end, best_level


@lean_kernel
def _relaxed(x: _Priced) -> float:
    """Σ_j min over starts and gangs of C_j - r_j plus price; books the minimisers in use."""
    total = 0.0
    for j in range(x.release.size):
        best, start, end, level = _best_start(x, j)
        total += best
        order = x.order[x.kind[j]]
        if x.tasks[j] == 1:
            _book(x, order[level], start, end, x.devices[j])
        else:
            # Recomputed: `chosen` holds the last gang tried, not the best.
            _cheapest(x, j, level, start, end, 0.0, np.inf)
            for q in range(level + 1):
                if x.chosen[q] > 0:
                    _book(x, order[q], start, end, x.chosen[q] * x.devices[j])
    return total

"""Elastic and divisible jobs: gangs whose number of tasks may change while they run.

An *elastic* job runs on any number of tasks from its minimum to its maximum, faster on more:

    speed = s(n) / n · Σ over its tasks of rate[job type, node],    s(n) = n / (1 + κ (n - 1)),

where κ, the overhead of one more task, belongs to the job type and is hidden. Its work is what it
would do in its run time on the tasks that it asked for, at rate 1. A *divisible* job, a pool of
independent tasks, has κ = 0, a deadline at which it leaves, perhaps a budget, and is worth
(done / work) ** exponent. Everything else is as in :mod:`gangwise.jobs.simulation`, whose loop
plays these jobs as well: events of an instant first, then one round.

Four schedulers decide numbers of tasks: :class:`EqualShares`, :class:`ElasticOGASched` (gradient
ascent on the gains of the jobs present, OGASched (9)–(11), with gain curves that it learns),
:class:`PlanShares` (receding-horizon water-filling of :mod:`gangwise.approximation_jobs.plan`), and
whatever rigid scheduler, which gives every job the tasks it asked for.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.approximation_jobs.plan import NONE, Demand, plan_shares
from gangwise.core.arrays import Floats, Ints
from gangwise.core.cluster import Channels, Cluster
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.gain_overhead.ascent import Ascent
from gangwise.gain_overhead.problem import GainOverheadProblem, Utilities
from gangwise.jobs.books import Books, Explanation, Place, Queue, Rate, Running
from gangwise.jobs.choice import fill
from gangwise.jobs.explanations import Waits
from gangwise.jobs.kernels import KILLED, RUNNING, WAITING
from gangwise.jobs.model import Conditions, Job, Jobs, Nodes
from gangwise.jobs.schedule import Options, Schedule, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import PlainSimulation

RIGID, ELASTIC, DIVISIBLE = range(3)


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the tasks of a running job: so many on each node from now on."""

    job: str
    tasks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Terms:
    """What everyone may know of jobs whose tasks may change, in the order of ``Jobs``.

    Attributes
    ----------
    kind : ndarray of int64, shape [J]
        0 rigid, 1 elastic, 2 divisible.
    minimum, maximum : ndarray of int64, shape [J]
        Tasks; rigid jobs have those that they asked for.
    exponent : ndarray of float64, shape [J]
        Of the utility (done / work) ** exponent of divisible jobs, in (0, 1].
    price : ndarray of float64, shape [N]
        Of a task for a second on each node.
    """

    kind: Ints
    minimum: Ints
    maximum: Ints
    exponent: Floats
    price: Floats

    @classmethod
    def of(
        cls,
        jobs: Jobs,
        nodes: Nodes,
        kind: int | Ints,
        most: float = 4.0,
        exponent: float = 0.5,
        price: Floats | float = 0.0,
    ) -> Terms:
        """From 1 task to ``most`` times what each job asked for."""
        J = len(jobs)
        kinds = np.broadcast_to(np.asarray(kind, dtype=np.int64), (J,)).copy()
        free = kinds != RIGID
        upper = np.maximum(np.floor(most * jobs.tasks).astype(np.int64), jobs.tasks)
        return cls(
            kinds,
            np.where(free, 1, jobs.tasks),
            np.where(free, upper, jobs.tasks),
            np.full(J, exponent),
            np.broadcast_to(np.asarray(price, dtype=np.float64), (len(nodes),)).copy(),
        )

    def check(self, jobs: Jobs, nodes: Nodes) -> None:
        """Raise ScenarioError where terms make no sense; names the job."""
        if self.kind.shape != (len(jobs),) or self.price.shape != (len(nodes),):
            raise ScenarioError("terms: kinds are of jobs [J], prices of nodes [N]")
        bad = (
            (self.minimum < 1)
            | (self.minimum > jobs.tasks)
            | (self.maximum < jobs.tasks)
            | ~((self.exponent > 0) & (self.exponent <= 1))
            | ((self.kind == DIVISIBLE) & ~np.isfinite(jobs.deadline))
        )
        if bad.any():
            j = int(np.flatnonzero(bad)[0])
            raise ScenarioError(
                f"terms of job {jobs.id[j]}: it asks for {jobs.tasks[j]} tasks, may have "
                f"{self.minimum[j]} to {self.maximum[j]}, exponent {self.exponent[j]:g}, deadline "
                f"{jobs.deadline[j]:g}; minimum ≤ tasks ≤ maximum, 0 < exponent ≤ 1, and a "
                "divisible job has a deadline"
            )


class Progress(NamedTuple):
    """What is known of a job under way: work done in all, money spent."""

    done: float
    spent: float


@dataclass(slots=True)
class MalleableBooks(Books):
    """Books that also say how far every job has got, by id."""

    progress: dict[str, Progress] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MalleableSchedule:
    """What happened.

    Attributes
    ----------
    schedule : Schedule
        Pieces are those that each job had last.
    done : ndarray of float64, shape [J]
        Share of the work that was done when the job left.
    spent : ndarray of float64, shape [J]
    utility : ndarray of float64, shape [J]
        done ** exponent for divisible jobs; 1 for others that ended by themselves, else 0.
    device_seconds : ndarray of float64, shape [J]
    resizes : int
    """

    schedule: Schedule
    done: Floats
    spent: Floats
    utility: Floats
    device_seconds: Floats
    resizes: int


def speedup(tasks: Any, overhead: Any) -> Any:
    """Gain curve s(n) = n / (1 + κ (n - 1)), concave in n."""
    return tasks / (1.0 + overhead * (tasks - 1.0))


def simulate_malleable(
    jobs: Jobs,
    nodes: Nodes,
    scheduler: Any,
    terms: Terms,
    overhead: Floats | float = 0.0,
    conditions: Conditions | None = None,
    options: Options | None = None,
) -> MalleableSchedule:
    """Play jobs whose tasks may change under a scheduler.

    Parameters
    ----------
    scheduler : str or Scheduler
        ``"ogasched"``, ``"equal-shares"``, ``"plan"``, or any rigid scheduler by name.
    overhead : ndarray of shape [L] or float
        κ of each job type, hidden; 0 for divisible jobs whatever is given.

    Examples
    --------
    One job alone takes every device; a second one halves that.

    >>> jobs = Jobs.of(submit=[0, 50], run=[100, 100], tasks=1)
    >>> nodes = Nodes.pool(4)
    >>> found = simulate_malleable(jobs, nodes, "equal-shares", Terms.of(jobs, nodes, ELASTIC))
    >>> found.schedule.end, found.resizes
    (array([25., 75.]), 0)
    """
    terms.check(jobs, nodes)
    kappa = np.broadcast_to(np.asarray(overhead, dtype=np.float64), (len(jobs.types),))
    if not ((kappa >= 0) & (kappa <= 1)).all():
        raise ScenarioError("the overhead of one more task is a share, from 0 to 1")
    if isinstance(scheduler, str) and scheduler in SCHEDULERS:
        scheduler = SCHEDULERS[scheduler]()
    scheduler = create_scheduler(scheduler)
    options = options or Options()
    if hasattr(scheduler, "limits"):
        scheduler.limits = options.limits
    tables = Tables.of(jobs, nodes, conditions or Conditions(), options)
    of_job = np.where(terms.kind == ELASTIC, kappa[jobs.type], 0.0)
    free = terms.kind != RIGID
    work = np.where(free, tables.work * speedup(jobs.tasks, of_job), tables.work)
    simulation = MalleableSimulation(replace(tables, work=work), scheduler, terms, of_job)
    return simulation.outcome()


class MalleableSimulation(PlainSimulation):
    """The loop of :class:`~gangwise.jobs.simulation.PlainSimulation` with tasks that change."""

    def __init__(self, tables: Tables, scheduler: Any, terms: Terms, overhead: Floats):
        self.terms, self.kappa = terms, overhead
        self.free_size = terms.kind != RIGID
        J = len(tables.jobs)
        self.spent, self.device_seconds = np.zeros(J), np.zeros(J)
        self.resizes = 0
        self.deadlines: list[tuple[float, int]] = []
        self.settled = np.zeros(J)  # until when money and devices are counted
        super().__init__(tables, scheduler)
        b = self.books
        self.books = MalleableBooks(b.nodes, b.capacity, b.free, b.device, b.up, b.running, [])
        if hasattr(scheduler, "agree"):
            scheduler.agree(terms)

    # Time

    def step(self) -> bool:
        """One instant; a round also where nobody waits but someone could grow."""
        now = self._next_instant()
        if now == math.inf or self.ended == len(self.tables.jobs):
            return False
        self.now = now
        self.counts["instants"] += 1
        self._events(now)
        if self.waiting or any(self.free_size[j] for j in self._running()):
            self.counts["rounds"] += 1
            self._report(now)
            actions = self.scheduler.place(Queue(self.waiting), self.books, now)
            self.books.events.clear()
            for action in actions:
                self._act(action, now)
        return True

    def _running(self) -> list[int]:
        return [running.job.row for running in self.books.running.values()]

    def _next_instant(self) -> float:
        while self.deadlines and self.phase[self.deadlines[0][1]] not in (WAITING, RUNNING):
            heapq.heappop(self.deadlines)
        now = super()._next_instant()
        return min(now, self.deadlines[0][0]) if self.deadlines else now

    def _events(self, now: float) -> None:
        super()._events(now)
        while self.deadlines and self.deadlines[0][0] <= now:
            _, j = heapq.heappop(self.deadlines)
            if self.phase[j] == WAITING:  # it leaves without having been served to its end
                self.waiting = [job for job in self.waiting if job.row != j]
                self.phase[j], self.end[j] = KILLED, now
                self.ended += 1

    def _enter(self, j: int, now: float) -> None:
        super()._enter(j, now)
        if self.terms.kind[j] == DIVISIBLE:
            heapq.heappush(self.deadlines, (float(self.tables.jobs.deadline[j]), j))

    # Tasks that change

    def _tasks(self, j: int) -> int:
        return sum(c for _, c, _ in self.pieces[j])

    def _check(self, job: Job, action: Place, now: float) -> None:
        n = sum(c for _, c in action.tasks)
        low, high = int(self.terms.minimum[job.row]), int(self.terms.maximum[job.row])
        if self.free_size[job.row] and not low <= n <= high:
            raise InfeasibleDecision(
                f"at {now:g} s: job {job.id} gets {n} tasks; it may have {low} to {high}"
            )
        super()._check(replace(job, tasks=n) if self.free_size[job.row] else job, action, now)

    def _start(self, j: int, action: Place, now: float) -> None:
        self.settled[j] = now
        super()._start(j, action, now)

    def _act(self, action: Any, now: float) -> None:
        if not isinstance(action, Resize):
            super()._act(action, now)
            return
        j = self.rows.get(action.job, -1)
        if j < 0 or self.phase[j] != RUNNING or not self.free_size[j]:
            raise InfeasibleDecision(f"at {now:g} s: job {action.job} is resized but not running")
        running = self.books.running[action.job]
        self._settle(j, now)
        self.books.take(running.job.shape, self.pieces[j], sign=1)
        self._check(running.job, Place(action.job, action.tasks), now)
        pieces = self.books.tell_apart(running.job.shape, action.tasks)
        self.books.take(running.job.shape, pieces)
        if now > self.since[j]:
            self.left[j] = max(self.left[j] - (now - self.since[j]) * self.speed[j], 0.0)
        self.pieces[j] = pieces
        self.since[j] = now + self.tables.options.restart
        self.lost[j] += self.tables.options.restart * self._size(j)
        self.books.running[action.job] = Running(running.job, pieces, running.begun, 0.0)
        self.speed[j] = self._speed(j)
        self.resizes += 1
        self._schedule_end(j)

    def _speed(self, j: int) -> float:
        if not self.free_size[j]:
            return super()._speed(j)
        return float(sum(c * rate for rate, c in self._rates(j)))

    def _rates(self, j: int) -> list[tuple[float, int]]:
        """Work per second of one task of each piece, with what the others cost it."""
        t, n = self.tables, self._tasks(j)
        share = float(speedup(n, self.kappa[j])) / n
        rates = []
        for node, c, _ in self.pieces[j]:
            log = 0.0
            if t.log_rates.size:
                log = t.log_rates[t.jobs.type[j], node] + self.factor[node] + t.log_noise[j]
            rates.append((share * math.exp(float(log)), c))
        return rates

    def _size(self, j: int) -> float:
        t = self.tables
        kind = t.dominant[t.jobs.shape[j]]
        return self._tasks(j) * float(t.demand[t.jobs.shape[j], kind]) / 1000.0

    def _cost(self, j: int) -> float:
        return float(sum(c * self.terms.price[node] for node, c, _ in self.pieces[j]))

    def _settle(self, j: int, now: float) -> None:
        self.device_seconds[j] += (now - self.settled[j]) * self._size(j)
        self.spent[j] += (now - self.settled[j]) * self._cost(j)
        self.settled[j] = now

    def _schedule_end(self, j: int) -> None:
        super()._schedule_end(j)
        if self.terms.kind[j] != DIVISIBLE:
            return
        t, cost = self.tables, self._cost(j)
        stop = float(t.jobs.deadline[j])
        if cost > 0:
            stop = min(stop, self.settled[j] + (float(t.jobs.budget[j]) - self.spent[j]) / cost)
        if stop < self.finish[j]:
            self.finish[j] = max(stop, float(self.settled[j]))
            heapq.heappush(self.heap, (self.finish[j], j))

    def _finish(self, j: int, now: float) -> None:
        if self.free_size[j]:
            self._settle(j, now)
            if now > self.since[j]:
                self.left[j] = max(self.left[j] - (now - self.since[j]) * self.speed[j], 0.0)
                self.since[j] = now
            if self.left[j] <= 1e-9 * self.tables.work[j]:
                self.left[j] = 0.0
        super()._finish(j, now)

    def _interrupt(self, j: int, now: float, kind: Any) -> None:
        if self.free_size[j]:
            self._settle(j, now)
        super()._interrupt(j, now, kind)

    def _measure(self, j: int, now: float, first: bool, ended: bool) -> None:
        if not self.free_size[j]:
            super()._measure(j, now, first, ended)
            return
        running = self.books.running[str(self.tables.jobs.id[j])]
        rates = tuple(rate for rate, _ in self._rates(j))
        nodes = tuple(node for node, _, _ in self.pieces[j])
        self.scheduler.observe(Rate(running.job, nodes, rates, self.since[j], now, first, ended))

    def _report(self, now: float) -> None:
        """Progress of every job that may change, as its ranks report it."""
        progress = {}
        ids, work = self.tables.jobs.id, self.tables.work
        for j in [*self._running(), *(job.row for job in self.waiting)]:
            if self.free_size[j]:
                done, spent = work[j] - self.left[j], self.spent[j]
                if self.phase[j] == RUNNING:
                    done += max(now - self.since[j], 0.0) * self.speed[j]
                    spent += (now - self.settled[j]) * self._cost(j)
                progress[str(ids[j])] = Progress(float(done), float(spent))
        self.books.progress = progress  # type: ignore[attr-defined]  # they are MalleableBooks

    def outcome(self) -> MalleableSchedule:
        """Play to the end."""
        schedule = self.run()
        work = self.tables.work
        left = np.array(self.left)
        ended = np.isfinite(self.end) & (self.phase != KILLED)
        left[ended & ~self.free_size] = 0.0
        done = np.where(work > 0, 1.0 - left / np.where(work > 0, work, 1.0), ended.astype(float))
        utility = np.where(
            self.terms.kind == DIVISIBLE,
            np.clip(done, 0.0, 1.0) ** self.terms.exponent,
            ended.astype(float),
        )
        return MalleableSchedule(
            schedule, done, self.spent, utility, self.device_seconds, self.resizes
        )


# Schedulers


@dataclass
class SharedOut(ABC):
    """What the schedulers below share: from numbers of tasks to whole tasks on nodes.

    Parameters
    ----------
    slack : float
        A running job is resized only if its number would change by more than this share: a resize
        costs a restart.
    """

    slack: float = 0.25
    _terms: Terms | None = field(default=None, init=False, repr=False)
    _waits: Waits = field(default_factory=Waits, init=False, repr=False)

    def agree(self, terms: Terms) -> None:
        """Hear how far tasks may change."""
        self._terms = terms

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Declared rates are believed."""
        self._types = {name: l for l, name in enumerate(job_types)}
        self._declared = nodes.declared(job_types)

    def observe(self, rate: Rate) -> None:  # noqa: B027 - to learn is allowed, not required
        """Nothing is learned."""

    def explain(self, job: str) -> Explanation:
        """Too little was left for the fewest tasks that it may have."""
        return self._waits.explain(job)

    @abstractmethod
    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats:
        """Numbers of tasks, as real numbers, that the jobs should have now."""

    def place(self, queue: Queue, books: MalleableBooks, now: float) -> list[Place | Resize]:
        """Shrink, then grow and start, in the order of submission."""
        if self._terms is None:
            raise ScenarioError("this scheduler decides numbers of tasks: use simulate_malleable")
        terms = self._terms
        running = {r.job.id: r for r in books.running.values()}
        jobs = sorted([*(r.job for r in running.values()), *queue], key=lambda job: job.row)
        low = terms.minimum[[job.row for job in jobs]]
        high = terms.maximum[[job.row for job in jobs]]
        wanted = whole_tasks(
            np.clip(self.want(jobs, books, now), 0, high), low, high, self._supply(jobs, books)
        )
        trial = books.copy()
        actions: list[Place | Resize] = []
        grow: list[tuple[Job, int]] = []
        left: list[Job] = []
        for job, n in zip(jobs, wanted.tolist()):
            held = running.get(job.id)
            if held is None:
                grow.append((job, n))
                continue
            has = sum(c for _, c, _ in held.pieces)
            draining = any(not books.up[node] for node, _, _ in held.pieces)
            if terms.kind[job.row] == RIGID or n == 0 or draining:
                continue
            if n < has * (1 - self.slack):
                tasks = self._shrunk(job, held, n)
                trial.take(job.shape, held.pieces, sign=1)
                trial.take(job.shape, trial.tell_apart(job.shape, tasks))
                actions.append(Resize(job.id, tasks))
            elif n > has * (1 + self.slack):
                grow.append((job, n))
        # Jobs that have nothing go first.
        for job, n in sorted(grow, key=lambda pair: pair[0].id in running):
            held = running.get(job.id)
            least = int(terms.minimum[job.row]) if held is None else 0
            more = n - (0 if held is None else sum(c for _, c, _ in held.pieces))
            found = self._fit(job, max(more, least), trial)
            count = sum(c for _, c in found)
            if (held is None and count < least) or count == 0:
                if held is None:
                    left.append(job)
                continue
            pieces = trial.tell_apart(job.shape, found)
            trial.take(job.shape, pieces)
            if held is None:
                trial.running[job.id] = Running(job, pieces, now, 0.0)
                actions.append(Place(job.id, found))
            elif count >= self.slack * (n - more):
                both: dict[int, int] = {}
                for node, c in [*((node, c) for node, c, _ in held.pieces), *found]:
                    both[node] = both.get(node, 0) + c
                actions.append(Resize(job.id, tuple(sorted(both.items()))))
        self._waits.look(left, trial, now, "others have the tasks that it could have", np.inf)
        return actions

    def _supply(self, jobs: list[Job], books: Books) -> float:
        """How many tasks fit on the whole cluster, of the mean size of those present."""
        if not jobs:
            return 0.0
        kind = books.dominant(jobs[0].shape)
        per_task = np.mean([max(job.shape.demand[kind], 1) for job in jobs])
        return float((books.capacity[:, kind] * books.up).sum() / per_task)

    def _fit(self, job: Job, n: int, trial: Books) -> tuple[tuple[int, int], ...]:
        """Up to n tasks on the fastest nodes that have room, the fullest of these first."""
        fits = trial.fits(job.shape)
        rates = self._declared[self._types[job.job_type]]
        kind = trial.dominant(job.shape)
        return tuple(fill(n, fits, np.lexsort((trial.free[:, kind], -rates))))

    def _shrunk(self, job: Job, held: Running, n: int) -> tuple[tuple[int, int], ...]:
        """The n tasks on the fastest nodes that it has."""
        rates = self._declared[self._types[job.job_type]]
        has: dict[int, int] = {}
        for node, c, _ in held.pieces:
            has[node] = has.get(node, 0) + c
        fits = np.zeros(rates.size, dtype=np.int64)
        fits[list(has)] = list(has.values())
        return tuple(fill(n, fits, np.argsort(-rates, kind="stable")))


def whole_tasks(wanted: Floats, low: Ints, high: Ints, supply: float) -> Ints:
    """Round numbers of tasks, largest remainder first, to at least ``low`` or 0.

    >>> whole_tasks(np.array([1.5, 2.7, 0.3]), np.ones(3, int), np.full(3, 9), 4).tolist()
    [1, 3, 0]
    """
    found = np.floor(wanted + 1e-9).astype(np.int64)
    found[found < low] = 0
    left = int(min(supply, wanted.sum() + 1e-9) - found.sum())
    for i in np.argsort(-(wanted - found), kind="stable"):
        need = int(low[i]) if found[i] == 0 else 1
        if need <= left and found[i] + need <= high[i] and wanted[i] > found[i]:
            found[i] += need
            left -= need
    return found


@dataclass
class EqualShares(SharedOut):
    """Equipartition: every job the same number of devices, as far as it can use them."""

    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats:
        """Max-min fair: what one job cannot use goes to the others."""
        terms = self._terms
        assert terms is not None
        high = terms.maximum[[job.row for job in jobs]].astype(np.float64)
        left, share = self._supply(jobs, books), np.zeros(len(jobs))
        for place, i in enumerate(np.argsort(high, kind="stable")):
            share[i] = min(high[i], left / (len(jobs) - place))
            left -= share[i]
        return share


@dataclass
class ElasticOGASched(SharedOut):
    """OGASched on the jobs present: ascent on their gains, OGASched (9)–(11), then whole tasks.

    The reward is Σ_j w_j s_j(n_j): the share of its work that each job does in a second, s_j at the
    gain curve believed of its job type and w_j one over the work expected to be left of it. The
    ascent begins where it was the last time and takes ``steps`` projected steps.

    Parameters
    ----------
    steps : int
    fraction : float
        Length of the first step, as a share of the cluster; the i-th is 1 / (1 + i) of it.
    prior : float
        Overhead κ believed of a job type of which nothing was measured.
    part : float
        Work expected to be left of a job is never less than this share of its limit.
    """

    slack: float = 0.5
    steps: int = 24
    fraction: float = 0.5
    prior: float = 0.05
    part: float = 0.3
    _held: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _sums: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def observe(self, rate: Rate) -> None:
        """Regress κ of the job type: rate · (1 + κ (n - 1)) = what the label says.

        With r the declared over the measured rate, r - 1 = κ (n - 1) + noise.
        """
        n = self._sizes.get(rate.job.id, 0)
        if n < 2:
            return
        declared = self._declared[self._types[rate.job.job_type], list(rate.nodes)]
        ratio = float(np.mean(declared / np.asarray(rate.rates)))
        sums = self._sums.setdefault(rate.job.job_type, np.array([4.0 * self.prior, 4.0]))
        sums += [(n - 1) * (ratio - 1.0), (n - 1.0) ** 2]

    def overhead(self, job_type: str) -> float:
        """κ as believed."""
        sums = self._sums.get(job_type)
        return self.prior if sums is None else float(np.clip(sums[0] / sums[1], 0.0, 1.0))

    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats:
        """Climb Σ_j w_j s_j(n_j) over 0 ≤ n_j ≤ maximum, Σ n_j ≤ supply."""
        terms = self._terms
        assert terms is not None
        rows = [job.row for job in jobs]
        self._sizes = {r.job.id: sum(c for _, c, _ in r.pieces) for r in books.running.values()}
        high = terms.maximum[rows].astype(np.float64)
        kappa = np.where(
            terms.kind[rows] == ELASTIC, [self.overhead(job.job_type) for job in jobs], 0.0
        )
        asked = np.array([float(job.tasks) for job in jobs])
        limit = np.array([job.limit for job in jobs])
        expected = limit * speedup(asked, kappa)
        done = np.array([books.progress.get(job.id, Progress(0.0, 0.0)).done for job in jobs])
        weight = 1.0 / np.maximum(np.maximum(expected - done, self.part * expected), 1.0)
        supply = self._supply(jobs, books)
        start = np.array([self._held.get(job.id, 1.0) for job in jobs])
        y = climb_gains(
            start, weight / weight.max(), kappa, high, supply, self.steps, self.fraction
        )
        self._held = {job.id: float(n) for job, n in zip(jobs, y)}
        return y


def climb_gains(
    start: Floats,
    weight: Floats,
    kappa: Floats,
    high: Floats,
    supply: float,
    steps: int,
    fraction: float,
) -> Floats:
    """Projected gradient ascent on Σ_j w_j s_j(n_j), OGASched (11), with its exact projection.

    The projection onto {0 ≤ n ≤ high, Σ n ≤ supply} is that of a problem with one server of
    ``supply`` devices and a job type for each job.

    Examples
    --------
    Of two like jobs and 8 devices each gets 4; where more tasks cost one of them, the other more.

    >>> two = np.ones(2)
    >>> climb_gains(two, two, 0.1 * two, 8 * two, 8.0, 200, 0.5).round(2)
    array([4., 4.])
    >>> y = climb_gains(two, two, np.array([0.0, 0.5]), 8 * two, 8.0, 200, 0.5)
    >>> bool(y[0] > 7)
    True
    """
    n = weight.size
    problem = GainOverheadProblem(
        Cluster(np.array([[max(supply, 1e-9)]]), ("tasks",)),
        requests=high[:, None].copy(),
        channels=Channels.of_mask(np.ones((n, 1), dtype=bool)),
        utilities=Utilities.of("linear", np.ones((1, 1))),
        overhead=np.zeros(1),
    )
    ascent, everyone = Ascent(problem, start[:, None]), np.ones(n, dtype=np.int64)
    ascent.climb(0.0, everyone)
    for i in range(steps):
        held = ascent.y[:, 0]
        # s'(n) = (1 - κ) / (1 + κ (n - 1))², OGASched (9) for this gain
        slope = weight * (1.0 - kappa) / (1.0 + kappa * (held - 1.0)) ** 2
        ascent.gradient[:, 0] = slope / max(float(slope.max()), 1e-300)
        ascent.climb(fraction * supply / (1.0 + i), everyone)
    return np.array(ascent.y[:, 0])


@dataclass
class PlanShares(SharedOut):
    """Divisible jobs by receding-horizon water-filling: shares of :func:`plan_shares`.

    Time is in units of ``slot`` seconds; a machine is one task's place at its node's price.

    Parameters
    ----------
    slot : float
    """

    slot: float = 60.0

    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats:
        """Machines that each job's plan to its deadline takes now."""
        terms = self._terms
        assert terms is not None
        rows = [job.row for job in jobs]
        work = np.array([max(job.limit * job.tasks, 1e-9) for job in jobs])  # as users declare it
        progress = [books.progress.get(job.id, Progress(0.0, 0.0)) for job in jobs]
        done = np.array([p.done for p in progress])
        slots = np.array([max((job.deadline - now) / self.slot, 1.0) for job in jobs])
        exponent = terms.exponent[rows]
        kind = books.dominant(jobs[0].shape)
        per_task = np.mean([max(job.shape.demand[kind], 1) for job in jobs])
        room = (books.capacity[:, kind] * books.up / per_task).astype(np.int64)
        node = np.repeat(np.arange(room.size), room)
        # Where nothing has a price, machines cost the same and money never binds.
        priced = bool((terms.price > 0).any())
        prices = (terms.price[node] if priced else np.ones(node.size)) * self.slot
        rates = self._declared.mean(axis=0)[node] * self.slot
        money = np.array([job.budget - p.spent for job, p in zip(jobs, progress)])
        if not priced:
            money = np.full(len(jobs), np.inf)
        high = terms.maximum[rows]
        money = np.minimum(np.maximum(money, 0.0), high * prices.max(initial=1.0) * slots)
        shares = plan_shares(
            Demand(
                np.zeros(len(jobs), dtype=np.int64),
                work**-exponent,
                exponent,
                NONE,
                done,
                work,
                money,
                slots,
            ),
            prices,
            rates,
            np.argsort(-rates / prices, kind="stable").astype(np.int64),
        )
        found = np.minimum(shares.machines, high)
        # An even pace leaves nothing for surprises: idle places go to the earliest deadlines.
        left = node.size - found.sum()
        for i in np.argsort([job.deadline for job in jobs], kind="stable"):
            more = min(max(left, 0.0), high[i] - found[i])
            found[i] += more
            left -= more
        return np.asarray(found)


SCHEDULERS = {"equal-shares": EqualShares, "ogasched": ElasticOGASched, "plan": PlanShares}
"""Schedulers of numbers of tasks by name."""

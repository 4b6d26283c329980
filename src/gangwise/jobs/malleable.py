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
:class:`PlanShares` (receding-horizon water-filling of
:mod:`gangwise.approximation_jobs.baselines`), and whatever rigid scheduler, which gives every job
the tasks it asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gangwise.approximation_jobs.baselines import NONE, Demand, plan_shares
from gangwise.core.arrays import Floats, Ints
from gangwise.core.cluster import Channels, Cluster
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.gain_overhead.ascent import Ascent
from gangwise.gain_overhead.problem import GainOverheadProblem, Utilities
from gangwise.jobs import kernels
from gangwise.jobs.books import Books, EventKind, Explanation, Place, Queue, Rate, Running
from gangwise.jobs.choice import fill
from gangwise.jobs.explanations import Waits
from gangwise.jobs.kernels import KILLED
from gangwise.jobs.model import Conditions, Job, Jobs, Nodes
from gangwise.jobs.schedule import Options, Schedule, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import JobSimulation

RIGID, ELASTIC, DIVISIBLE = range(3)


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the tasks of a running job: so many on each node from now on."""

    job: str
    tasks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Terms:
    """What everyone may know of jobs [J] whose tasks may change, in the order of ``Jobs``."""

    kind: Ints  # RIGID, ELASTIC or DIVISIBLE
    minimum: Ints  # tasks; rigid jobs have those that they asked for
    maximum: Ints
    exponent: Floats  # of the utility (done / work) ** exponent of divisible jobs, in (0, 1]
    price: Floats  # [N] of a task for a second on each node

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

    done: float = 0.0
    spent: float = 0.0


@dataclass(slots=True)
class MalleableBooks(Books):
    """Books that also say how far every job has got, by id."""

    progress: dict[str, Progress] = field(default_factory=dict)

    def progress_of(self, jobs: Sequence[Job]) -> tuple[Floats, Floats]:
        """Work done and money spent of each job."""
        known = [self.progress.get(job.id, Progress()) for job in jobs]
        return np.array([p.done for p in known]), np.array([p.spent for p in known])


@dataclass(frozen=True, eq=False)
class MalleableSchedule:
    """What happened; arrays are of jobs [J]."""

    schedule: Schedule  # pieces are those that each job had last
    done: Floats  # share of the work that was done when the job left
    spent: Floats
    utility: Floats  # done ** exponent if divisible, else whether the job ended by itself: 1 or 0
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
    if options.caps or options.closed:
        raise ScenarioError(
            "caps and closed hours are not kept where tasks change; play rigid jobs under them"
        )
    if hasattr(scheduler, "limits"):
        scheduler.limits = options.limits
    tables = Tables.of(jobs, nodes, conditions or Conditions(), options)
    of_job = np.where(terms.kind == ELASTIC, kappa[jobs.type], 0.0)
    free = terms.kind != RIGID
    work = np.where(free, tables.work * speedup(jobs.tasks, of_job), tables.work)
    simulation = MalleableSimulation(replace(tables, work=work), scheduler, terms, of_job)
    return simulation.outcome()


class MalleableSimulation(JobSimulation):
    """The loop of :class:`~gangwise.jobs.simulation.JobSimulation` with tasks that change."""

    def __init__(self, tables: Tables, scheduler: Any, terms: Terms, overhead: Floats):
        self.terms = terms
        self.free_size = terms.kind != RIGID
        J = len(tables.jobs)
        self.spent, self.device_seconds = np.zeros(J), np.zeros(J)
        self.resizes = 0
        self.settled = np.zeros(J)  # until when money and devices are counted
        drag = np.where(self.free_size, overhead, np.nan)
        super().__init__(_leaving(tables, terms), scheduler, terms.maximum, drag)
        b = self.books
        self.books = MalleableBooks(b.nodes, b.capacity, b.free, b.device, b.up, b.running, [])
        if hasattr(scheduler, "agree"):
            scheduler.agree(terms)

    def _round_is_due(self) -> bool:
        """A round is also due where a running job could grow."""
        running = self.books.running.values()
        return bool(self.waiting) or any(self.free_size[r.job.row] for r in running)

    def _decisions(self, now: float) -> list[Any]:
        self._report(now)
        return super()._decisions(now)

    def _check(self, job: Job, action: Place, books: Books) -> None:
        if self.free_size[job.row]:
            n = sum(c for _, c in action.tasks)
            low, high = int(self.terms.minimum[job.row]), int(self.terms.maximum[job.row])
            if not low <= n <= high:
                raise InfeasibleDecision(
                    f"at {self.now:g} s: job {job.id} gets {n} tasks; it may have {low} to {high}"
                )
            job = replace(job, tasks=n)
        super()._check(job, action, books)

    def _start(self, j: int, action: Place) -> None:
        self.settled[j] = self.now
        self._stop(j, action.tasks)
        super()._start(j, action)

    def act(self, action: Any) -> None:
        """Carry out the decisions of this instant."""
        if not isinstance(action, Resize):
            super().act(action)
            return
        running, now = self.books.running.get(action.job), self.now
        if running is None or not self.free_size[running.job.row]:
            raise InfeasibleDecision(f"at {now:g} s: job {action.job} is resized but not running")
        job, j = running.job, running.job.row
        self._settle(j, running.pieces)
        trial = self.books.copy()
        trial.take(job.shape, running.pieces, sign=1)
        self._check(job, Place(action.job, action.tasks), trial)
        pieces = self._try(j, trial.tell_apart(job.shape, action.tasks))
        self._stop(j, action.tasks)
        self._call(kernels.RESIZE, j, len(pieces), self._size(j, pieces))
        self.books.running[action.job] = Running(job, pieces, running.begun, 0.0)
        self.resizes += 1

    def _size(self, j: int, pieces: Sequence[tuple[int, ...]]) -> float:
        t = self.tables
        kind = t.dominant[t.jobs.shape[j]]
        return sum(p[1] for p in pieces) * float(t.demand[t.jobs.shape[j], kind]) / 1000.0

    def _cost(self, pieces: Sequence[tuple[int, ...]]) -> float:
        return float(sum(p[1] * self.terms.price[p[0]] for p in pieces))

    def _settle(self, j: int, pieces: Sequence[tuple[int, ...]]) -> None:
        gone = self.now - self.settled[j]
        self.device_seconds[j] += gone * self._size(j, pieces)
        self.spent[j] += gone * self._cost(pieces)
        self.settled[j] = self.now

    def _stop(self, j: int, tasks: Sequence[tuple[int, ...]]) -> None:
        """When a divisible job leaves on these tasks: at its deadline, or out of money."""
        if self.terms.kind[j] != DIVISIBLE:
            return
        jobs, cost = self.tables.jobs, self._cost(tasks)
        self.state.stop[j] = jobs.deadline[j]
        if cost > 0:
            lasts = self.settled[j] + (float(jobs.budget[j]) - self.spent[j]) / cost
            self.state.stop[j] = min(self.state.stop[j], lasts)

    def _leave(self, j: int, kind: EventKind) -> None:
        running = self.books.running.get(str(self.tables.jobs.id[j]))
        if self.free_size[j] and running is not None:
            self._settle(j, running.pieces)
        super()._leave(j, kind)

    def _report(self, now: float) -> None:
        """Progress of every job that may change, as its ranks report it."""
        x, work = self.state.jobs, self.tables.work
        progress = {}
        running = self.books.running.values()
        for job, pieces in [
            *((r.job, r.pieces) for r in running),
            *((w, ()) for w in self.waiting),
        ]:
            j = job.row
            if self.free_size[j]:
                done, spent = work[j] - x["left"][j], self.spent[j]
                if pieces:
                    done += max(now - x["since"][j], 0.0) * x["speed"][j]
                    spent += (now - self.settled[j]) * self._cost(pieces)
                progress[job.id] = Progress(float(done), float(spent))
        self.books.progress = progress  # type: ignore[attr-defined]  # they are MalleableBooks

    def outcome(self) -> MalleableSchedule:
        """Play to the end."""
        schedule, work = self.run(), self.tables.work
        left = self.jobs["left"].copy()
        ended = np.isfinite(schedule.end) & (schedule.phase != KILLED)
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


def _leaving(t: Tables, terms: Terms) -> Tables:
    """With the deadlines of divisible jobs among what happens: those that wait leave there."""
    leaves = np.flatnonzero((terms.kind == DIVISIBLE) & ~t.aside)
    expire = np.zeros(leaves.size, dtype=kernels.EVENT)
    expire["time"], expire["item"] = t.jobs.deadline[leaves], leaves
    expire["kind"] = kernels.EXPIRE
    events = np.concatenate([t.events, expire])
    return replace(t, events=events[np.argsort(events["time"], kind="stable")])


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
        """Set how far the number of tasks may change."""
        self._terms = terms

    @property
    def terms(self) -> Terms:
        """How far the number of tasks may change."""
        if self._terms is None:
            raise ScenarioError("this scheduler decides numbers of tasks: use simulate_malleable")
        return self._terms

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None:
        """Bind to nodes and job types; their declared rates are believed."""
        self._types = {name: l for l, name in enumerate(job_types)}
        self._declared = nodes.declared(job_types)

    def observe(self, rate: Rate) -> None:  # noqa: B027 - to learn is allowed, not required
        ...

    def explain(self, job: str) -> Explanation:
        """Why a job waits: too little was left for the fewest tasks that it may have."""
        return self._waits.explain(job)

    @abstractmethod
    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats: ...

    def place(self, queue: Queue, books: MalleableBooks, now: float) -> list[Place | Resize]:
        """Shrink, then grow and start, in the order of submission."""
        terms = self.terms
        running = {r.job.id: r for r in books.running.values()}
        jobs = sorted([*(r.job for r in running.values()), *queue], key=lambda job: job.row)
        low = terms.minimum[[job.row for job in jobs]]
        high = terms.maximum[[job.row for job in jobs]]
        wanted = whole_tasks(
            np.clip(self.want(jobs, books, now), 0, high), low, high, self._supply(jobs, books)
        )
        trial = books.copy()
        actions: list[Place | Resize] = []
        grow: list[tuple[Job, int, int]] = []  # job, tasks wanted, tasks held
        left: list[Job] = []
        for job, n in zip(jobs, wanted.tolist()):
            held = running.get(job.id)
            if held is None:
                grow.append((job, n, 0))
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
                grow.append((job, n, has))
        for job, n, has in sorted(grow, key=lambda each: each[2] > 0):  # who has nothing goes first
            least = 0 if has else int(terms.minimum[job.row])
            found = self._fit(job, max(n - has, least), trial)
            count = sum(c for _, c in found)
            if count == 0 or count < least:
                left += [] if has else [job]
                continue
            pieces = trial.tell_apart(job.shape, found)
            trial.take(job.shape, pieces)
            if not has:
                trial.running[job.id] = Running(job, pieces, now, 0.0)
                actions.append(Place(job.id, found))
            elif count >= self.slack * has:
                both = Counter(dict(found))
                for node, c, _ in running[job.id].pieces:
                    both[node] += c
                actions.append(Resize(job.id, tuple(sorted(both.items()))))
        self._waits.look(left, trial, now, "others have the tasks that it could have", np.inf)
        return actions

    def _supply(self, jobs: list[Job], books: Books) -> float:
        """How many tasks fit on the whole cluster, of the mean size of those present."""
        if not jobs:
            return 0.0
        capacity, per_task = self._sizes_of(jobs, books)
        return float(capacity.sum() / per_task)

    def _sizes_of(self, jobs: list[Job], books: Books) -> tuple[Ints, float]:
        """What nodes that are up have [N], and mean tasks ask, of the first job's dominant type."""
        kind = books.dominant(jobs[0].shape)
        per_task = np.mean([max(job.shape.demand[kind], 1) for job in jobs])
        return books.capacity[:, kind] * books.up, float(per_task)

    def _fit(self, job: Job, n: int, trial: Books) -> tuple[tuple[int, int], ...]:
        """Up to n tasks on the fastest nodes that have room, the fullest of these first."""
        fits = trial.fits(job.shape)
        rates = self._declared[self._types[job.job_type]]
        kind = trial.dominant(job.shape)
        return tuple(fill(n, fits, np.lexsort((trial.free[:, kind], -rates))))

    def _shrunk(self, job: Job, held: Running, n: int) -> tuple[tuple[int, int], ...]:
        """The n tasks on the fastest of its nodes."""
        rates = self._declared[self._types[job.job_type]]
        fits = np.zeros(rates.size, dtype=np.int64)
        for node, c, _ in held.pieces:
            fits[node] += c
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
        high = self.terms.maximum[[job.row for job in jobs]].astype(np.float64)
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
        """The believed overhead κ."""
        sums = self._sums.get(job_type)
        return self.prior if sums is None else float(np.clip(sums[0] / sums[1], 0.0, 1.0))

    def want(self, jobs: list[Job], books: MalleableBooks, now: float) -> Floats:
        terms = self.terms
        rows = [job.row for job in jobs]
        self._sizes = {r.job.id: sum(c for _, c, _ in r.pieces) for r in books.running.values()}
        high = terms.maximum[rows].astype(np.float64)
        kappa = np.where(
            terms.kind[rows] == ELASTIC, [self.overhead(job.job_type) for job in jobs], 0.0
        )
        asked = np.array([float(job.tasks) for job in jobs])
        limit = np.array([job.limit for job in jobs])
        expected = limit * speedup(asked, kappa)
        done, _ = books.progress_of(jobs)
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
        terms = self.terms
        rows = [job.row for job in jobs]
        work = np.array([max(job.limit * job.tasks, 1e-9) for job in jobs])  # as users declare it
        done, spent = books.progress_of(jobs)
        slots = np.array([max((job.deadline - now) / self.slot, 1.0) for job in jobs])
        exponent = terms.exponent[rows]
        capacity, per_task = self._sizes_of(jobs, books)
        room = (capacity / per_task).astype(np.int64)
        node = np.repeat(np.arange(room.size), room)
        # Where nothing has a price, machines cost the same and money never binds.
        priced = bool((terms.price > 0).any())
        prices = (terms.price[node] if priced else np.ones(node.size)) * self.slot
        rates = self._declared.mean(axis=0)[node] * self.slot
        money = np.array([job.budget for job in jobs]) - spent if priced else np.inf
        high = terms.maximum[rows]
        money = np.minimum(np.maximum(money, 0.0), high * prices.max(initial=1.0) * slots)
        none = np.zeros(len(jobs), dtype=np.int64)
        demand = Demand(none, work**-exponent, exponent, NONE, done, work, money, slots)
        cheapest = np.argsort(-rates / prices, kind="stable").astype(np.int64)
        shares = plan_shares(demand, prices, rates, cheapest)
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

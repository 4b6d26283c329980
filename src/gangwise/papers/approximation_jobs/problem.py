"""The problem of OPM §III: jobs, utilities, machines and prices, and service rates drawn as in §VI.

"Machine" is the paper's word for a server. The paper counts slots from 1 and gangwise from 0: the
paper's slot t is our slot t − 1. A job is active in the paper's slots a_j + 1, …, d_j, which are
our slots ``range(arrival, deadline)``; its lifetime is d_j − a_j slots in both.

A utility f_j(X) of the work done is concave and worth 0 without any. The slope of v X^β is infinite
there, so that it is not Lipschitz and Theorems 2 and 3 do not cover it; policies that follow slopes
evaluate them at a floor.

Active jobs keep their row of the table that policies see while they last. Its memory grows with the
most jobs that were ever active at once, not with how many came and went.

Rates θ_i^t are the work that a task does on machine i in slot t, OPM §III. A rate process or a
workload of jobs is a description; its ``stream`` is one realisation, drawn from a generator of its
own. Streams pickle, and drawing n slots and then m gives the same as drawing n + m. Where a process
knows its expected rates, ``means`` [M], in work per slot, is the θ_i that the paper prices machines
by.

The paper takes arrivals and deadlines of jobs from a trace; :class:`SyntheticJobs` draws them.
Budgets and values are the paper's: B_j = q_j (d_j − a_j) with q_j uniform in [2, 100] for 1000
machines (in proportion for other numbers), v_j uniform in [1, 5], and f_j(X) = v_j X^β.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.workload import Cluster, SlotStream
from gangwise.papers.approximation_jobs import kernels

POWER, LOG, SATURATING = range(3)
"""Codes of the forms in the kernels."""

SLACK = 1e-9  # of a budget, so that one of k prices pays k tasks whatever the rounding


class Utility(Protocol):
    """Utility of work: increasing, concave, 0 at 0."""

    @property
    def code(self) -> tuple[int, float, float]:
        """Form, scale v and shape, for kernels."""

    def value(self, work: float) -> float:
        """f(X) in units of utility, X in units of work (a machine of rate 1 for one slot)."""


@dataclass(frozen=True)
class Power(arrays.Checked):
    """f(X) = v X^β, 0 < β ≤ 1: the utility of §VI.

    Examples
    --------
    >>> Power(3.0, 0.5).value(4.0)
    6.0
    """

    v: arrays.Positive = 1.0
    beta: arrays.PositiveShare = 0.5  # above 1 it is not concave

    @property
    def code(self) -> tuple[int, float, float]:
        return POWER, self.v, self.beta

    def value(self, work: float) -> float:
        return self.v * math.pow(work, self.beta)


@dataclass(frozen=True)
class _Scaled(arrays.Checked):
    """Utilities v φ(X / s) of the work X in units of s."""

    v: arrays.Positive = 1.0
    s: arrays.Positive = 1.0
    form: ClassVar[int]

    @property
    def code(self) -> tuple[int, float, float]:
        return self.form, self.v, self.s


class Log(_Scaled):
    """f(X) = v log(1 + X / s).

    Examples
    --------
    >>> round(Log(2.0, 10.0).value(10.0), 3)
    1.386
    """

    form = LOG

    def value(self, work: float) -> float:
        return self.v * math.log1p(work / self.s)


class Saturating(_Scaled):
    """f(X) = v (1 − exp(−X / s)): accuracy that approaches v.

    Examples
    --------
    >>> round(Saturating(1.0, 10.0).value(10.0), 3)
    0.632
    """

    form = SATURATING

    def value(self, work: float) -> float:
        # expm1, log1p: exact to the last digits also where the work is small beside s.
        return -self.v * math.expm1(-work / self.s)


@dataclass(frozen=True)
class Job:
    """One approximation job.

    Parameters
    ----------
    id : str or int
        Unique among the jobs that are active at the same time.
    arrival, deadline : int
        a_j and d_j: the job may run in our slots ``range(arrival, deadline)``.
    budget : float
        B_j: what its tasks may cost in total, in units of price.
    utility : Utility
        f_j, of the work done by the deadline.

    Raises
    ------
    ScenarioError
        Names the job and what is wrong with it.

    Examples
    --------
    >>> Job("sgd", arrival=3, deadline=10, budget=14.0).pace
    2.0
    """

    id: str | int
    arrival: int
    deadline: int
    budget: float
    utility: Utility = field(default_factory=Power)

    def __post_init__(self) -> None:
        for name, slot in (("arrival", self.arrival), ("deadline", self.deadline)):
            if not hasattr(slot, "__index__"):
                raise ScenarioError(f"job {self.id!r}: {name} is {slot!r}; slots are whole numbers")
        # A job runs in the slots from its arrival to before its deadline.
        if self.deadline <= self.arrival:
            raise ScenarioError(
                f"job {self.id!r}: its deadline, slot {self.deadline}, is not after its arrival, "
                f"slot {self.arrival}; it could never run"
            )
        arrays.check_numbers("(0, inf)", **{f"job {self.id!r}: budget": self.budget})

    @property
    def lifetime(self) -> int:
        return self.deadline - self.arrival

    @property
    def pace(self) -> float:
        """β_j = B_j / (d_j − a_j) of OPM (64): the budget of one slot."""
        return self.budget / self.lifetime


@dataclass(frozen=True, eq=False)
class ApproximationProblem:
    """Machines, and what a task on each of them costs in one slot.

    Parameters
    ----------
    prices : ndarray of shape [M]
        p_i, in units of price per task and slot. The paper has p_i ≤ 1 without loss of generality:
        prices and budgets divided by the largest leave OPM (P1) as it is.
    machines : tuple of str, optional
        Names; ``machine-0`` … when not given.
    horizon : int, optional
        T, if the policy may know it.
    enforce : bool
        Whether tasks that a job's budget cannot pay are not executed. Section VI enforces budgets;
        Theorems 2 and 3 bound by how much they are exceeded when they are not.

    Raises
    ------
    ScenarioError
        Names the machine at fault.

    Examples
    --------
    >>> ApproximationProblem([1.0, 0.5]).machines
    ('machine-0', 'machine-1')
    """

    prices: Floats
    machines: tuple[str, ...] = ()
    horizon: int | None = None
    enforce: bool = True

    def __post_init__(self) -> None:
        prices = np.array(self.prices, dtype=np.float64, ndmin=1)
        if prices.ndim != 1 or not prices.size:
            raise ScenarioError(f"prices are one number per machine; their shape is {prices.shape}")
        names = self.machines or tuple(f"machine-{i}" for i in range(prices.size))
        if len(names) != prices.size or len(set(names)) != prices.size:
            raise ScenarioError(
                f"{prices.size} prices need {prices.size} different machine names; got {len(names)}"
            )
        # T is for step sizes such as 1 / √T; a policy that needs it says so where there is none.
        if self.horizon is not None and self.horizon < 1:
            raise ScenarioError(f"horizon is {self.horizon}; it must be a slot or more")
        arrays.check_amount(prices, lambda i: f"machine {names[i]!r}: price")
        prices.setflags(write=False)
        # One free machine is fine; of free ones alone everybody has all, and nothing is to be
        # decided.
        if not prices.any():
            raise ScenarioError("every machine is free; budgets then mean nothing: set prices")
        arrays.keep(self, prices=prices, machines=tuple(names))

    @property
    def M(self) -> int:
        return int(self.prices.size)

    @property
    def cluster(self) -> Cluster:
        """The machines as servers with one device type, for tools that serve all families."""
        # One unit of one device type, since a machine runs one task at a time, OPM (3).
        return Cluster(np.ones((self.M, 1)), ("task",), self.machines)


@dataclass(frozen=True, slots=True)
class JobTable:
    """Active jobs as policies see them; entries of rows that are not in ``rows`` mean nothing.

    ``rows`` [n] are the table rows of the n active jobs, ascending. A job keeps its row while it is
    active; the row may then go to another job. All other columns have shape [C]: ``arrival`` a_j,
    ``deadline`` d_j, ``budget`` B_j, ``cost`` and ``work`` X_j so far, as far as feedback has
    reported it, and the form (``kind``, ``v``, ``shape``) of the utility for kernels.
    """

    rows: Ints
    jobs: tuple[Job | None, ...]
    arrival: Ints
    deadline: Ints
    budget: Floats
    cost: Floats
    work: Floats
    kind: Ints
    v: Floats
    shape: Floats

    @property
    def size(self) -> int:
        return len(self.jobs)


class ActiveJobs:
    """Table of active jobs, the environment's side of :class:`JobTable`.

    ``active`` are the rows in use, ascending; ``work`` is what was really done, ``reported`` what
    feedback has delivered of it; ``serial`` tells apart the jobs that have used a row, 0 for none.
    """

    def __init__(self) -> None:
        self.jobs: list[Job | None] = []
        self.active = np.empty(0, np.int64)
        self.arrival, self.deadline, self.kind, self.serial = np.zeros((4, 0), np.int64)
        self.life, self.budget, self.v, self.shape = np.zeros((4, 0))
        self.cost, self.work, self.reported = np.zeros((3, 0))
        self._row: dict[str | int, int] = {}
        self._free: list[int] = []  # a heap, so that the lowest free row is given out
        self._count = 0

    def _grow(self) -> None:
        before = len(self.jobs)
        # Columns become new arrays: views that policies hold keep what they showed.
        added = max(16, before)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray) and name != "active":
                setattr(self, name, np.concatenate((column, np.zeros(added, column.dtype))))
        self.jobs.extend([None] * added)
        self._free.extend(range(before, before + added))
        heapq.heapify(self._free)

    def add(self, job: Job) -> int:
        if job.id in self._row:
            raise ScenarioError(
                f"job {job.id!r} arrives in slot {job.arrival} while a job of the same id is still "
                "active; ids of jobs that run at the same time must differ"
            )
        # The table doubles, so that adding a job takes constant time in the mean.
        if not self._free:
            self._grow()
        j = heapq.heappop(self._free)
        self._row[job.id], self.jobs[j] = j, job
        self._count += 1
        self.arrival[j], self.deadline[j], self.serial[j] = job.arrival, job.deadline, self._count
        self.life[j], self.budget[j] = job.lifetime, job.budget
        self.kind[j], self.v[j], self.shape[j] = job.utility.code
        # The row may have been another job's.
        self.cost[j] = self.work[j] = self.reported[j] = 0.0
        return j

    def remove(self, j: int) -> Job:
        job = self.jobs[j]
        assert job is not None
        del self._row[job.id]
        # Columns keep what they had: readers go by ``rows`` and by serial 0.
        self.jobs[j], self.serial[j] = None, 0
        heapq.heappush(self._free, j)
        return job

    def refresh(self) -> None:
        self.active = np.array(sorted(self._row.values()), dtype=np.int64)

    def view(self) -> JobTable:
        """What policies see: read-only, without copying."""
        columns = (self.arrival, self.deadline, self.budget, self.cost, self.reported)
        utility = (self.kind, self.v, self.shape)
        active, jobs = arrays.read_only(self.active), tuple(self.jobs)
        return JobTable(active, jobs, *map(arrays.read_only, (*columns, *utility)))


def slopes_at(jobs: JobTable, rows: Ints, work: Floats) -> Floats:
    """f_j'(X_j) of the jobs in table rows ``rows`` [n] at positive work [n]."""
    slopes = np.empty(rows.size)
    arguments = arrays.read_only(rows), jobs.kind, jobs.v, jobs.shape, arrays.read_only(work)
    kernels.slopes(*arguments, slopes)
    return slopes


BLOCK = 64  # slots generated at a time


class RateStream(Protocol):
    def draw(self, slots: int) -> Floats:
        """θ_i^t of the next slots, shape [slots, M], within [0, 1], in work per slot."""


class RateProcess(Protocol):
    """Service rates of the machines, slot by slot (§III)."""

    @property
    def size(self) -> int:
        """M, the number of machines that there are rates for."""

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""


class StationaryRates(RateProcess, Protocol):
    @property
    def means(self) -> Floats:
        """Expected rates, shape [M], in work per slot."""


@dataclass(frozen=True, eq=False)
class IidRates:
    """Independent rates with given means, as Assumption 1 has it.

    Parameters
    ----------
    means : ndarray of shape [M]
        θ_i, within [0, 1].
    concentration : float
        Rates are Beta distributed with a + b = ``concentration``; 0 makes them Bernoulli.

    Examples
    --------
    >>> IidRates([0.0, 1.0]).stream(np.random.default_rng(0)).draw(2)
    array([[0., 1.],
           [0., 1.]])
    """

    means: Floats
    concentration: float = 0.0

    def __post_init__(self) -> None:
        means = np.array(self.means, dtype=np.float64, ndmin=1)
        bad = np.flatnonzero(~((means >= 0) & (means <= 1)))
        if means.ndim != 1 or bad.size:
            at = f"machine {bad[0]}: mean rate is {means[bad[0]]}; " if means.ndim == 1 else ""
            raise ScenarioError(f"{at}mean rates are one number per machine, within [0, 1]")
        arrays.check_numbers("[0, inf)", concentration=self.concentration)
        arrays.keep(self, means=means)

    @property
    def size(self) -> int:
        return int(self.means.size)

    def stream(self, rng: np.random.Generator) -> RateStream:
        return SlotStream(self._draw, rng)

    def _draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        shape = slots, self.means.size
        if self.concentration == 0:
            return (rng.random(shape) < self.means).astype(np.float64)
        # Beta(a, b) has mean a / (a + b); both must be positive, also where a mean is 0 or 1.
        a, b = self.means * self.concentration, (1.0 - self.means) * self.concentration
        return rng.beta(np.clip(a, 1e-9, None), np.clip(b, 1e-9, None), shape)


class _GammaStream:
    """Stream of rates of Gamma periods, generated :data:`BLOCK` slots at a time."""

    def __init__(self, process: GammaPeriods, rng: np.random.Generator):
        self.process, self.rng = process, rng
        M = process.machines
        self._rest = np.empty((0, M))
        self._shape = np.array([process.down[0], process.up[0]])
        self._scale = np.array([process.down[1], process.up[1]]) * process.time_scale
        if process.stationary:
            # A period met at a fixed time is one picked in proportion to its length.
            self.up: Bools = rng.random(M) < process.availability
            self.left = rng.random(M) * self._lengths(self.up, biased=1)
        else:
            self.up = np.ones(M, dtype=np.bool_)
            self.left = self._lengths(self.up)
        self.left -= 0.5  # of the period under way, counted from the midpoint of the slot
        # Where in its range the rate of the period under way lies, if periods have one rate.
        self.share = rng.random(M)

    def _lengths(self, up: Bools, biased: int = 0) -> Floats:
        """Lengths of new periods, in slots."""
        kind = up.astype(np.intp)
        lengths: Floats = self.rng.standard_gamma(self._shape[kind] + biased)
        lengths *= self._scale[kind]
        return lengths

    def block(self) -> Floats:
        """Rates of the next ``BLOCK`` slots."""
        p, M = self.process, self.process.machines
        up = np.empty((BLOCK, M), dtype=np.bool_)
        share = np.empty((BLOCK, M)) if p.per_period else self.rng.random((BLOCK, M))
        state = self.left, self.up, self.share, self._shape, self._scale, np.empty(M, np.int64)
        kernels.draw_periods(self.rng, kernels.Periods(*state), p.per_period, up, share)
        low = np.where(up, p.up_rate[0], p.down_rate[0])
        high = np.where(up, p.up_rate[1], p.down_rate[1])
        # Uniform in the range of the state: one uniform number serves either.
        rates: Floats = low + share * (high - low)
        return rates

    def draw(self, slots: int) -> Floats:
        parts, drawn = [self._rest], len(self._rest)
        while drawn < slots:
            # Whole blocks: slots asked for at a time must not change what is drawn.
            parts.append(self.block())
            drawn += BLOCK
        rates = np.concatenate(parts)
        self._rest = rates[slots:].copy()
        return rates[:slots]


@dataclass(frozen=True)
class GammaPeriods(arrays.Checked):
    """Available and unavailable periods with Gamma lengths, independently per machine (§VI).

    ``up`` and ``down`` are shape k and scale θ of the lengths of available and unavailable periods,
    in units of time: the fits of Kondo et al. that the paper uses. The rate is uniform in
    ``up_rate`` or ``down_rate``, one per slot, or one per period with ``per_period``.
    ``time_scale`` are slots per unit of time; the paper does not say, and 1 makes half of the
    unavailable periods shorter than a slot. ``stationary`` begins in the stationary distribution,
    otherwise every machine begins an available period.

    The state of a slot is that of the process at the slot's midpoint. For shape k and scale θ the
    length-biased length is Gamma with shape k + 1, and the period under way is cut at a uniform
    point of it.

    Examples
    --------
    >>> process = GammaPeriods(1000)
    >>> round(process.availability, 10), round(float(process.means[0]), 10)
    (0.8087727348, 0.6970181879)
    >>> process.stream(np.random.default_rng(0)).draw(10).shape
    (10, 1000)
    """

    machines: arrays.PositiveInt
    up: tuple[float, float] = (0.34, 94.35)
    down: tuple[float, float] = (0.19, 39.92)
    up_rate: Annotated[tuple[float, float], "[0, 1]"] = (0.7, 1.0)
    down_rate: Annotated[tuple[float, float], "[0, 1]"] = (0.0, 0.1)
    time_scale: arrays.Positive = 1.0
    stationary: bool = True
    per_period: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, (shape, scale) in (("up", self.up), ("down", self.down)):
            arrays.check_numbers(
                "(0, inf)", **{f"shape of {name}": shape, f"scale of {name}": scale}
            )

    @property
    def size(self) -> int:
        return self.machines

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _GammaStream(self, rng)

    @property
    def availability(self) -> float:
        """Share of time that a machine is available: mean lengths over their sum."""
        up, down = self.up[0] * self.up[1], self.down[0] * self.down[1]
        return up / (up + down)

    @property
    def means(self) -> Floats:
        a = self.availability
        # The middle of a range is the mean of a uniform rate.
        mean = a * sum(self.up_rate) / 2 + (1 - a) * sum(self.down_rate) / 2
        return np.full(self.machines, mean)


@dataclass(frozen=True, eq=False)
class ReplayedRates:
    """Replayed rates of a table of shape [slots, M], which begins again after its last slot."""

    table: Floats

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.float64, ndmin=2)
        if not table.size:
            raise ScenarioError("a table of rates needs a slot and a machine")
        arrays.keep(self, table=table)

    @property
    def size(self) -> int:
        return int(self.table.shape[1])

    def stream(self, rng: np.random.Generator) -> RateStream:
        return SlotStream(self._draw, rng)

    def _draw(self, first: int, slots: int, rng: np.random.Generator) -> Floats:
        return self.table[np.arange(first, first + slots) % len(self.table)]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """Relabelled rates of another process: its machine ``order[i]`` is now called ``i``."""

    process: RateProcess
    order: Ints

    @property
    def size(self) -> int:
        return self.process.size

    def stream(self, rng: np.random.Generator) -> RateStream:
        return _RelabelledStream(self.process.stream(rng), self.order)


@dataclass
class _RelabelledStream:
    inner: RateStream
    order: Ints

    def draw(self, slots: int) -> Floats:
        return np.ascontiguousarray(self.inner.draw(slots)[:, self.order])


Pricing = Literal["population", "realised"]
PAPER_MACHINES = 1000  # M of §VI, for which q is stated


class JobStream(Protocol):
    def draw(self, slots: int) -> Sequence[Sequence[Job]]:
        """Jobs that arrive in each of the next slots: ``slots`` entries, empty where none does.

        ``job.arrival`` is the slot that it is in, counted from the stream's beginning.
        """


class JobWorkload(Protocol):
    def stream(self, rng: np.random.Generator) -> JobStream:
        """Start one realisation."""


@dataclass(frozen=True, eq=False)
class ReplayedJobs:
    """Replayed jobs: a given list, each arriving in its slot.

    Raises
    ------
    ScenarioError
        For a job that arrives before slot 0, and for two jobs of one id whose times overlap; says
        where in the list they are.

    Examples
    --------
    >>> stream = ReplayedJobs([Job("b", 1, 3, 1.0)]).stream(np.random.default_rng(0))
    >>> [len(jobs) for jobs in stream.draw(3)]
    [0, 1, 0]
    """

    jobs: Sequence[Job]

    def __post_init__(self) -> None:
        order = sorted(range(len(self.jobs)), key=lambda n: self.jobs[n].arrival)
        deadlines: dict[str | int, int] = {}
        for n in order:
            job = self.jobs[n]
            if job.arrival < 0:
                raise ScenarioError(
                    f"job {job.id!r}, entry {n} of the list, arrives in slot {job.arrival}; slots "
                    "are counted from 0"
                )
            before = deadlines.setdefault(job.id, n)
            # The same id may come again once the first is over, as in logs whose numbers start
            # anew.
            if before != n and self.jobs[before].deadline > job.arrival:
                raise ScenarioError(
                    f"entries {before} and {n} of the list are both called {job.id!r}, and the "
                    f"second arrives in slot {job.arrival} before the first is over; ids of jobs "
                    "that may run at the same time must differ"
                )
            deadlines[job.id] = n
        arrays.keep(self, jobs=tuple(self.jobs[n] for n in order))

    def stream(self, rng: np.random.Generator) -> JobStream:
        return SlotStream(self._draw, rng)

    def _draw(self, first: int, slots: int, rng: np.random.Generator) -> list[Sequence[Job]]:
        slot = np.arange(first, first + slots + 1)
        # Jobs are sorted by arrival, so that those of a slot lie between two places.
        at = np.searchsorted([job.arrival for job in self.jobs], slot).tolist()
        return [self.jobs[a:b] for a, b in pairwise(at)]


@dataclass(frozen=True)
class PoissonJobs(arrays.Checked):
    """Poisson arrivals with geometric lifetimes and utilities v X^β.

    Parameters
    ----------
    rate : float
        Mean arrivals per slot.
    lifetime : float
        Mean lifetime in slots.
    pace : (float, float)
        β_j is uniform in this range, in units of price per slot.
    value : (float, float)
        v is uniform in this range.
    beta : float
        β of the utility.
    """

    rate: arrays.NonNegative
    lifetime: arrays.OneOrMore = 20.0
    pace: Annotated[tuple[float, float], "(0, inf)"] = (1.0, 4.0)
    value: Annotated[tuple[float, float], "(0, inf)"] = (1.0, 5.0)
    beta: arrays.PositiveShare = 0.5

    def stream(self, rng: np.random.Generator) -> JobStream:
        return _PoissonStream(self, rng)


@dataclass
class _PoissonStream:
    workload: PoissonJobs
    rng: np.random.Generator
    slot: int = 0
    number: int = 0

    def draw(self, slots: int) -> list[list[Job]]:
        w, drawn = self.workload, []
        for _ in range(slots):
            jobs = []
            for _ in range(self.rng.poisson(w.rate)):
                # Geometric: how long a job has been there says nothing of how long it stays.
                life = int(self.rng.geometric(1.0 / w.lifetime))
                budget = self.rng.uniform(*w.pace) * life
                utility = Power(self.rng.uniform(*w.value), w.beta)
                jobs.append(Job(self.number, self.slot, self.slot + life, budget, utility))
                # Ids never come again, so that jobs of one run are told apart after they left, too.
                self.number += 1
            drawn.append(jobs)
            self.slot += 1
        return drawn


def bounded_pareto(
    rng: np.random.Generator, shape: float, low: float, high: float, size: int
) -> Floats:
    """Draw from a Pareto distribution cut at ``high``, by inversion of its distribution function.

    >>> bounded_pareto(np.random.default_rng(0), 1.1, 50, 1500, 3).round(1)
    array([121. ,  66. ,  51.9])
    """
    u = rng.random(size)
    # F(x) = (1 − (low / x)^k) / (1 − (low / high)^k), solved for x at F = u.
    return np.asarray(low * (1.0 - u * (1.0 - (low / high) ** shape)) ** (-1.0 / shape))


def price_machines(
    rates: StationaryRates, pricing: Pricing, slots: int, rng: np.random.Generator
) -> Floats:
    """Prices p_i [M], "two times of the mean service rate" (§VI), per task and slot.

    The paper does not say whose mean. ``population``: the expected rate, one price for all machines
    of a kind. ``realised``: the mean over the ``slots`` slots of the run, machine by machine; then
    no machine is better value than another, and knowing mean rates earns nothing. For it ``rng`` is
    the generator that the run's rates are drawn from, as it begins; it is used up.

    >>> price_machines(GammaPeriods(2), "population", 0, np.random.default_rng(0)).round(4)
    array([1.394, 1.394])
    """
    if pricing not in get_args(Pricing):
        raise ScenarioError(f"pricing is {pricing!r}; choose population or realised")
    if pricing == "population":
        return 2.0 * rates.means
    if slots < 1:
        raise ScenarioError("realised prices need the number of slots of the run")
    stream, total, remaining = rates.stream(rng), np.zeros(rates.size), slots
    # In parts, so that the memory does not grow with the run.
    while remaining > 0:
        drawn = stream.draw(min(remaining, 4096))
        total += drawn.sum(axis=0)
        remaining -= len(drawn)
    # A machine whose rates were all zero would be free, and its price could not be divided by.
    return np.maximum(2.0 * total / slots, 1e-6)


def paper_jobs(
    rng: np.random.Generator,
    arrivals: npt.ArrayLike,
    deadlines: npt.ArrayLike,
    machines: int,
    beta: float = 0.5,
    q: tuple[float, float] = (2.0, 100.0),
    value: tuple[float, float] = (1.0, 5.0),
    names: Sequence[str | int] | None = None,
) -> list[Job]:
    """Jobs with the budgets and utilities of §VI, for given arrivals and deadlines, in slots [n].

    Budgets are q (d - a) M / 1000. Two numbers are drawn per job, in the order of the jobs, so that
    leaving the last jobs out changes none of the others.
    """
    a, d = np.asarray(arrivals, dtype=np.int64), np.asarray(deadlines, dtype=np.int64)
    # Two columns, a row for each job: the n-th job has the same numbers however many follow.
    u = rng.random((a.size, 2))
    pace = (q[0] + u[:, 0] * (q[1] - q[0])) * machines / PAPER_MACHINES
    v = value[0] + u[:, 1] * (value[1] - value[0])
    ids = range(a.size) if names is None else names
    return [
        Job(name, int(a[n]), int(d[n]), float(pace[n] * (d[n] - a[n])), Power(float(v[n]), beta))
        for n, name in enumerate(ids)
    ]


def load_of(jobs: Sequence[Job], prices: npt.ArrayLike, slots: int) -> float:
    """Σ_j B_j / (T Σ_i p_i): budgets as a share of what all machines cost over all slots."""
    return sum(job.budget for job in jobs) / (slots * float(np.sum(prices)))


@dataclass(frozen=True)
class SyntheticJobs(arrays.Checked):
    """Synthetic jobs, added until their budgets reach a load.

    ``load`` is Σ B / (p M T), for a mean ``price`` p of a machine; the last job may exceed it. Jobs
    arrive during the share ``last`` of the slots: ``poisson`` arrivals are independent and uniform,
    given their number; ``bursty`` ones uniform over on-periods, of exponential length with mean
    ``burst`` slots, which make up the share ``duty`` of the time. ``lifetime`` is shape, least and
    most, in slots, of bounded Pareto lifetimes d - a; deadlines are cut at T. ``beta``, ``q`` and
    ``value`` are as in :func:`paper_jobs`.

    Examples
    --------
    >>> workload = SyntheticJobs(machines=100, slots=1000, price=1.394, load=0.8)
    >>> jobs = workload.jobs(np.random.default_rng(0))
    >>> round(load_of(jobs, np.full(100, 1.394), 1000), 2)
    0.8
    """

    machines: arrays.PositiveInt
    slots: arrays.PositiveInt
    price: arrays.Positive
    load: Annotated[float, "(0, 1000)"] = 1.5
    arrivals: Literal["poisson", "bursty"] = "poisson"
    burst: arrays.Positive = 100.0
    duty: arrays.PositiveShare = 0.3
    lifetime: tuple[float, float, float] = (1.1, 50.0, 1500.0)
    last: arrays.PositiveShare = 0.95
    beta: float = 0.5
    q: Annotated[tuple[float, float], "(0, inf)"] = (2.0, 100.0)
    value: Annotated[tuple[float, float], "(0, inf)"] = (1.0, 5.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        shape, low, high = self.lifetime
        if not (shape > 0 and 1 <= low < high):
            raise ScenarioError(
                f"lifetime is {self.lifetime}; it is (shape, least, most) with a positive shape "
                "and 1 ≤ least < most"
            )

    def jobs(self, rng: np.random.Generator) -> list[Job]:
        times, work = rng.spawn(2)  # apart, so that other budgets meet the same arrivals
        on = self._on_periods(times) if self.arrivals == "bursty" else None
        wanted, jobs, number = self.load * self.price * self.machines * self.slots, [], 0
        while wanted > 0:
            u, life = times.random(), bounded_pareto(times, *self.lifetime, size=1)[0]
            at = u * self.last * self.slots if on is None else _within(on, u)
            a = min(int(at), self.slots - 1)
            # Cut at T, as a log that ends cuts the last jobs.
            d = min(a + max(round(float(life)), 1), self.slots)
            jobs += paper_jobs(
                work, [a], [d], self.machines, self.beta, self.q, self.value, [number]
            )
            wanted -= jobs[-1].budget
            number += 1
        jobs.sort(key=lambda job: job.arrival)
        return [
            Job(n, job.arrival, job.deadline, job.budget, job.utility) for n, job in enumerate(jobs)
        ]

    def stream(self, rng: np.random.Generator) -> JobStream:
        return ReplayedJobs(self.jobs(rng)).stream(rng)

    def _on_periods(self, rng: np.random.Generator) -> Floats:
        """Beginnings and ends of the on-periods within the time of arrivals, shape [n, 2]."""
        end, at, periods = self.last * self.slots, 0.0, []
        # A mean of on-periods and one of off-periods: exponential
        # lengths, so that bursts have no memory.
        off = self.burst * (1.0 - self.duty) / self.duty  # then on / (on + off) is the duty
        on = rng.random() < self.duty
        while at < end:
            length = float(rng.exponential(self.burst if on else off)) if on or off else 0.0
            if on:
                periods.append((at, min(at + length, end)))
            at, on = at + length, not on
        return np.array(periods or [(0.0, end)])


def _within(periods: Floats, share: float) -> float:
    """The time at a share of the total length of some periods."""
    ends = np.cumsum(periods[:, 1] - periods[:, 0])
    at = share * ends[-1]
    n = min(int(np.searchsorted(ends, at, side="right")), len(periods) - 1)
    return float(periods[n, 1] - (ends[n] - at))

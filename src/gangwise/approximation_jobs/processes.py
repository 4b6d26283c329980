"""What comes from outside: service rates, jobs, machines that come and go.

Each is a description whose ``stream`` is one realisation, drawn from a generator of its own.
Streams pickle, and drawing n slots and then m gives the same as drawing n + m. Here are the
contracts and the plainest implementation of each.

What a run is fed with, drawn some slots ahead: rates, jobs, and delays of feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import ApproximationProblem, Job, Power
from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError
from gangwise.core.feedback import Delivery
from gangwise.core.simulation import Streams


class RateStream(Protocol):
    """One realisation of the service rates."""

    def draw(self, slots: int) -> Floats:
        """θ_i^t of the next slots, shape [slots, M], within [0, 1], in work per slot."""


class RateProcess(Protocol):
    """Service rates of the machines, slot by slot (§III)."""

    @property
    def size(self) -> int:
        """M, how many machines it has rates for."""

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""


class JobStream(Protocol):
    """One realisation of the jobs."""

    def draw(self, slots: int) -> Sequence[Sequence[Job]]:
        """Jobs that arrive in each of the next slots: ``slots`` entries, empty where none does.

        ``job.arrival`` is the slot that it is in, counted from the stream's beginning.
        """


class JobWorkload(Protocol):
    """A description of the jobs that arrive."""

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Start one realisation."""


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
        if not (np.isfinite(self.concentration) and self.concentration >= 0):
            raise ScenarioError(f"concentration is {self.concentration}; it must not be negative")
        object.__setattr__(self, "means", means)

    @property
    def size(self) -> int:
        """How many machines."""
        return int(self.means.size)

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""
        return _IidStream(self, rng)


@dataclass
class _IidStream:
    process: IidRates
    rng: np.random.Generator

    def draw(self, slots: int) -> Floats:
        means, c = self.process.means, self.process.concentration
        if c == 0:
            return (self.rng.random((slots, means.size)) < means).astype(np.float64)
        a = np.clip(means * c, 1e-9, None)
        b = np.clip((1.0 - means) * c, 1e-9, None)
        return self.rng.beta(a, b, (slots, means.size))


@dataclass(frozen=True, eq=False)
class ReplayedRates:
    """Rates from a table of shape [slots, M]; it begins again after its last slot."""

    table: Floats

    def __post_init__(self) -> None:
        table = np.array(self.table, dtype=np.float64, ndmin=2)
        if not table.size:
            raise ScenarioError("a table of rates needs a slot and a machine")
        object.__setattr__(self, "table", table)

    @property
    def size(self) -> int:
        """How many machines."""
        return int(self.table.shape[1])

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start at the first slot."""
        return _ReplayedRates(self.table)


@dataclass
class _ReplayedRates:
    table: Floats
    position: int = 0

    def draw(self, slots: int) -> Floats:
        index = np.arange(self.position, self.position + slots) % len(self.table)
        self.position += slots
        return self.table[index]


@dataclass(frozen=True, eq=False)
class Relabelled:
    """The rates of another process, with its machine ``order[i]`` now called ``i``."""

    process: RateProcess
    order: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        """How many machines."""
        return self.process.size

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start the other process."""
        return _RelabelledStream(self.process.stream(rng), self.order)


@dataclass
class _RelabelledStream:
    inner: RateStream
    order: npt.NDArray[np.int64]

    def draw(self, slots: int) -> Floats:
        return np.ascontiguousarray(self.inner.draw(slots)[:, self.order])


@dataclass(frozen=True)
class PoissonJobs:
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

    rate: float
    lifetime: float = 20.0
    pace: tuple[float, float] = (1.0, 4.0)
    value: tuple[float, float] = (1.0, 5.0)
    beta: float = 0.5

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rate) and self.rate >= 0):
            raise ScenarioError(f"arrival rate is {self.rate}; it must not be negative")
        if not (np.isfinite(self.lifetime) and self.lifetime >= 1):
            raise ScenarioError(f"mean lifetime is {self.lifetime}; it must be a slot or more")
        for name, (low, high) in (("pace", self.pace), ("value", self.value)):
            if not 0 < low <= high < np.inf:
                raise ScenarioError(f"{name} is {(low, high)}; it must be a positive range")
        Power(beta=self.beta)  # raises for a power that is not concave

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Start one realisation."""
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
                life = int(self.rng.geometric(1.0 / w.lifetime))
                budget = self.rng.uniform(*w.pace) * life
                utility = Power(self.rng.uniform(*w.value), w.beta)
                jobs.append(Job(self.number, self.slot, self.slot + life, budget, utility))
                self.number += 1
            drawn.append(jobs)
            self.slot += 1
        return drawn


@dataclass(frozen=True, eq=False)
class ReplayedJobs:
    """A given list of jobs, each arriving in its slot.

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
        last: dict[str | int, int] = {}
        for n in order:
            job = self.jobs[n]
            if job.arrival < 0:
                raise ScenarioError(
                    f"job {job.id!r}, entry {n} of the list, arrives in slot {job.arrival}; slots "
                    "are counted from 0"
                )
            before = last.setdefault(job.id, n)
            if before != n and self.jobs[before].deadline > job.arrival:
                raise ScenarioError(
                    f"entries {before} and {n} of the list are both called {job.id!r}, and the "
                    f"second arrives in slot {job.arrival} before the first is over; ids of jobs "
                    "that may run at the same time must differ"
                )
            last[job.id] = n
        object.__setattr__(self, "jobs", tuple(self.jobs[n] for n in order))

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Start at slot 0."""
        return _ReplayedJobs(self.jobs)


@dataclass
class _ReplayedJobs:
    jobs: Sequence[Job]
    slot: int = 0
    next: int = 0

    def draw(self, slots: int) -> list[list[Job]]:
        drawn = []
        for _ in range(slots):
            first = self.next
            while self.next < len(self.jobs) and self.jobs[self.next].arrival == self.slot:
                self.next += 1
            drawn.append(list(self.jobs[first : self.next]))
            self.slot += 1
        return drawn


@dataclass(frozen=True)
class Outage:
    """A machine that is away in the slots ``range(first, back)``."""

    machine: int
    first: int
    back: int = field(default=2**62)

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.back:
            raise ScenarioError(
                f"machine {self.machine} is away from slot {self.first} until it is back in slot "
                f"{self.back}; it must be 0 ≤ first < back"
            )


BLOCK = 256  # slots drawn at a time


def split(noise: np.random.Generator) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the rates, and of the fate of feedback."""
    rates, fate = noise.spawn(2)
    return rates, fate


def rate_generator(seed: int) -> np.random.Generator:
    """The generator that the rates of a run are drawn from, as it begins."""
    return split(Streams.of(seed).noise)[0]


@dataclass(eq=False)
class Inputs:
    """Blocks of rates, jobs and delays; slots are asked for in order.

    Raises
    ------
    ScenarioError
        For rates outside [0, 1] or for the wrong number of machines, and for jobs that come in
        another slot than they say or could never run; names the slot, and the machine or job.
    """

    problem: ApproximationProblem
    rates: RateStream
    jobs: JobStream
    delivery: Delivery
    fate: np.random.Generator
    _first: int = 0
    _rates: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    _jobs: Sequence[Sequence[Job]] = ()
    _delays: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def at(self, slot: int) -> tuple[npt.NDArray[np.float64], Sequence[Job], int]:
        """Rates θ_i^t [M], the jobs that arrive, and the delay of feedback (−1: lost)."""
        while slot >= self._first + len(self._rates):
            self._first += len(self._rates)
            self._draw()
        n = slot - self._first
        return self._rates[n], self._jobs[n], int(self._delays[n])

    def _draw(self) -> None:
        rates = np.asarray(self.rates.draw(BLOCK), dtype=np.float64)
        if rates.shape != (BLOCK, self.problem.M):
            raise ScenarioError(
                f"rates from slot {self._first} on have shape {rates.shape}; expected {BLOCK} "
                f"slots by {self.problem.M} machines"
            )
        bad = np.argwhere(~((rates >= 0) & (rates <= 1)))
        if len(bad):
            t, i = bad[0]
            raise ScenarioError(
                f"slot {self._first + t}, machine {self.problem.machines[i]!r}: rate is "
                f"{rates[t, i]}; rates lie in [0, 1]"
            )
        jobs = self.jobs.draw(BLOCK)
        for n, each in enumerate(jobs):
            for job in each:
                if job.arrival != self._first + n:
                    raise ScenarioError(
                        f"job {job.id!r} comes in slot {self._first + n}, but says that it arrives "
                        f"in slot {job.arrival}"
                    )
                self.problem.admit(job)
        self._rates, self._jobs = rates, jobs
        self._delays = self.delivery.draw(BLOCK, self.fate)

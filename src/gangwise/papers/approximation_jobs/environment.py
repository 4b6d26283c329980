"""Environment of approximation jobs: jobs come and go, tasks run at the machines' rates.

Only machines that ran a task report their rate (semi-bandit feedback), late or never if so wished.
:class:`ApproximationInstance` describes a world, :class:`ApproximationEnvironment` plays it, and
:class:`ApproximationFamily` serves the tools that work for all families alike.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.contracts import InstanceBase, Outcome, Timing
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.simulation import Streams
from gangwise.core.workload import Delivery, Mailbox
from gangwise.papers.approximation_jobs import kernels
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.estimators import Estimator, make_estimator


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of a slot, before the decision.

    Attributes
    ----------
    jobs : JobTable
        The active jobs, with what they have cost, and the work that feedback has reported.
    arrived, departed : ndarray of int64
        Table rows that were given out, and freed, since the last slot. A row may be in both: its
        job left and another one got it. Jobs depart at their deadline.
    available : ndarray of bool, shape [M]
        Machines that are there in this slot.
    """

    slot: int
    jobs: problems.JobTable
    arrived: Ints
    departed: Ints
    available: Bools


BLOCK = 256  # slots that inputs are drawn ahead


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


def rate_generator(seed: int) -> np.random.Generator:
    """The generator that the rates of a run are drawn from, as it begins."""
    # As ``Inputs`` spawns it: realised prices and comparators meet the rates of the run itself.
    return Streams.of(seed).noise.spawn(2)[0]


class Inputs:
    """Blocks of rates, jobs and delays of a run; slots are asked for in order.

    ScenarioError for rates outside [0, 1] or for the wrong number of machines, and for jobs that
    come in another slot than they say; names the slot, and the machine or job.
    """

    def __init__(
        self,
        instance: ApproximationInstance,
        workload: np.random.Generator,
        noise: np.random.Generator,
    ):
        # Delays have a stream of their own, so that late feedback leaves the rates alone.
        rates, self.fate = noise.spawn(2)
        self.problem, self.delivery = instance.problem, instance.delivery
        self.rates, self.jobs = instance.rates.stream(rates), instance.jobs.stream(workload)
        self._first = 0
        self._rates = np.empty((0, 0))

    def at(self, slot: int) -> tuple[Floats, Sequence[problems.Job], int]:
        """Rates θ_i^t [M], the jobs that arrive, and the delay of feedback (−1: lost)."""
        while slot >= self._first + len(self._rates):
            self._first += len(self._rates)
            self._draw()
        n = slot - self._first
        return self._rates[n], self._jobs[n], int(self._delays[n])

    def _draw(self) -> None:
        # Rates and jobs may be of users' classes: they are checked before anything is played.
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
        for n, arriving in enumerate(jobs):
            for job in arriving:
                if job.arrival != self._first + n:
                    raise ScenarioError(
                        f"job {job.id!r} comes in slot {self._first + n}, but says that it arrives "
                        f"in slot {job.arrival}"
                    )
        self._rates, self._jobs = rates, jobs
        self._delays = self.delivery.draw(BLOCK, self.fate)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Semi-bandit feedback of ``slot``, maybe not the last one: machines that ran a task.

    ``machines`` [n] are ascending, ``rates`` [n] their θ_i^t, in work per task and slot.
    """

    slot: int
    machines: Ints
    rates: Floats


def tasks_of(
    problem: problems.ApproximationProblem,
    rows: problems.ActiveJobs,
    available: Bools,
    slot: int,
    decision: npt.ArrayLike,
) -> tuple[Ints, Ints]:
    """Table rows and machines of the tasks of a decision, if OPM (3) holds.

    The decision [M] is a table row or −1 for every machine. InfeasibleDecision names the slot, and
    the machine or job at fault.
    """
    x = np.asarray(decision)
    if x.shape != (problem.M,) or not np.issubdtype(x.dtype, np.integer):
        raise InfeasibleDecision(
            f"slot {slot}: the decision has shape {x.shape} and type {x.dtype}; expected a "
            f"table row (or -1) for each of {problem.M} machines, as integers"
        )
    machine = np.flatnonzero(x != -1)
    row = x[machine].astype(np.int64)
    away = ~available[machine]
    if away.any():
        name = problem.machines[machine[away][0]]
        raise InfeasibleDecision(f"slot {slot}: machine {name!r} is not available")
    size = rows.serial.size
    # A row may have been freed since the policy saw it.
    if row.size and (row.min() < 0 or row.max() >= size or not rows.serial[row].all()):
        empty = ~np.isin(row, rows.active)
        name = problem.machines[machine[empty][0]]
        raise InfeasibleDecision(
            f"slot {slot}, machine {name!r}: no active job has table row {row[empty][0]}"
        )
    return row, machine


COLUMNS = ("arrival", "deadline", "budget", "cost", "work", "utility")
"""Of the results of a run, one entry per job."""


@dataclass(kw_only=True)
class RateLearning:
    """Base of policies that estimate the machines' rates: parameters of estimators, learning.

    The parameters are those of :func:`~gangwise.papers.estimators.make_estimator`.
    """

    kappa: float = 0.5
    window: int = 20
    tau: float = 30.0
    rate: float = 0.7

    def _make(self, estimator: str | Estimator, gamma: float) -> Estimator:
        return make_estimator(estimator, gamma, self.kappa, self.window, self.tau, self.rate)

    def _estimate_rates(
        self, estimator: str | Estimator, gamma: float, machines: int, rng: np.random.Generator
    ) -> None:
        self._rates = self._make(estimator, gamma)
        self._rates.start(machines, rng)

    def learn(self, feedback: tuple[Feedback, ...]) -> None:
        for report in feedback:
            self._rates.learn(report.slot, report.machines, report.rates)


@dataclass(eq=False)
class ApproximationEnvironment:
    """Plays jobs and rates. Built by :class:`ApproximationInstance`.

    A decision names for every machine the table row of the job that it runs a task of, or −1,
    int [M]: constraint OPM (3) cannot be broken.

    The reward of a slot is Σ_j f_j(X_j after it) − f_j(X_j before it), so that rewards add up to
    the overall utility Σ_j f_j(X_j). Metrics: ``average_utility``, the same for the utility per
    slot of OPM (6), (d − a) f(X / (d − a)); ``work``; ``cost``; ``jobs`` active; ``busy`` machines;
    ``refused`` tasks that a budget could not pay; ``displaced`` machines that a job still active
    lost, ``swaps`` those of them that another job got, ``net_moves`` Σ_j min(lost, gained);
    ``fit`` Σ_j g_j = cost − Σ_j β_j, OPM (64), which adds up to OPM (8) over whole lifetimes, and
    ``over``, the part of the cost that exceeds budgets, Σ_j (C_j − B_j)⁺ in the end.
    """

    instance: ApproximationInstance
    metrics: tuple[str, ...] = (
        "average_utility",
        "work",
        "cost",
        "jobs",
        "busy",
        "refused",
        "displaced",
        "swaps",
        "net_moves",
        "fit",
        "over",
    )
    rows: problems.ActiveJobs = field(init=False, repr=False)
    _finished: array[float] = field(init=False, repr=False)
    _observation: Observation | None = field(init=False, repr=False, default=None)

    @property
    def problem(self) -> problems.ApproximationProblem:
        return self.instance.problem

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        self._inputs = Inputs(self.instance, workload, noise)
        self.rows, self._finished = problems.ActiveJobs(), array("d")
        self._mailbox = Mailbox[tuple[Feedback, Ints, Floats, Ints]]()
        self._before = np.full(self.problem.M, -1, np.int64)  # the table row that each machine ran
        self._observation, self._out = None, np.zeros(2)
        # Sized anew with the table, at the first arrival.
        self._limit = self._worked = np.zeros(0)
        self._moved = np.zeros((2, 0), np.int64)
        self._pace = 0.0

    def _turnover(self, slot: int, new: Sequence[problems.Job]) -> tuple[Ints, Ints]:
        """Remove jobs at their deadline, add those that come; returns rows added and removed."""
        rows = self.rows
        # Leaving comes first, so that a row freed now can be given out in the same slot.
        departed = rows.active[rows.deadline[rows.active] <= slot].tolist()
        for j in departed:
            self._finished.extend(self._result(j))
            rows.remove(j)
        if departed:  # what they had is not lost to anybody still there
            self._before[np.isin(self._before, departed)] = -1
        arrived = [rows.add(job) for job in new]
        if departed or arrived:
            rows.refresh()
            self._pace = float((rows.budget[rows.active] / rows.life[rows.active]).sum())
            self._worked = np.zeros(len(rows.jobs))  # the table may have grown
            # Work space of the count of migrations, which leaves it at zero after every slot.
            self._moved = np.zeros((2, len(rows.jobs)), np.int64)
            self._limit = rows.budget * (1.0 + problems.SLACK)
            if not self.problem.enforce:
                self._limit = np.full(len(rows.jobs), np.inf)
        return np.array(arrived, dtype=np.int64), np.array(departed, dtype=np.int64)

    def observe(self, slot: int, timing: Timing) -> Observation:
        if timing == "reserve":
            raise ScenarioError(
                "policies of this family see the jobs before they decide; set timing to react"
            )
        # A policy may look twice in a slot; arrivals and departures are booked once.
        if self._observation is None or self._observation.slot != slot:
            arrived, departed = self._turnover(slot, self._inputs.at(slot)[1])
            available = self.instance.available(slot)
            self._observation = Observation(slot, self.rows.view(), arrived, departed, available)
        return self._observation

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Run the tasks, work OPM (1), as far as budgets OPM (4) pay them; report what is due."""
        problem, rows = self.problem, self.rows
        available = self.observe(slot, "react").available
        rate, _, delay = self._inputs.at(slot)
        row, machine = tasks_of(problem, rows, available, slot, decision)
        over, paid = self._over(), np.empty(row.size, dtype=bool)  # before anything is paid
        # Tasks are paid in the order of machines, as far as the budget of their job goes.
        cost, refused = kernels.execute(
            row, machine, problem.prices, rate, self._limit, rows.cost, self._worked, paid
        )
        if refused:
            row, machine = row[paid], machine[paid]
        # What budgets refused did not run, and reports nothing.
        rates = rate[machine]
        feedback = Feedback(slot, machine, rates)
        worked, active = float(self._worked.sum()), rows.active
        gain, average = self._gain()
        running = np.full(problem.M, -1, np.int64)
        running[machine] = row
        metrics = (
            average,
            worked,
            cost,
            float(active.size),
            float(feedback.machines.size),
            float(refused),
            *map(float, kernels.count_migrations(self._before, running, *self._moved)),
            cost - self._pace,
            self._over() - over,
        )
        self._before = running
        return Outcome(gain, self._deliver(delay, feedback, row, rates), metrics)

    def _deliver(
        self, delay: int, feedback: Feedback, row: Ints, work: Floats
    ) -> tuple[Feedback, ...]:
        """Post the feedback of a slot; returns all that arrives by now.

        What arrives also reports the work done for jobs that are still there: ``work`` [n] of the
        task of table row ``row`` [n].
        """
        rows, arrived = self.rows, []
        # Serial numbers go along: by the time of delivery a row may have passed to another job.
        parcel = (feedback, row, work, rows.serial[row])
        for report, row, work, serial in self._mailbox.exchange(feedback.slot, delay, parcel):
            still = rows.serial[row] == serial
            rows.reported += np.bincount(row[still], work[still], minlength=rows.reported.size)
            arrived.append(report)
        return tuple(arrived)

    def _over(self) -> float:
        # Enforced budgets are never exceeded, but for the slack of rounding.
        if self.problem.enforce:
            return 0.0
        active = self.rows.active
        over = self.rows.cost[active] - self.rows.budget[active]
        return float(np.maximum(over, 0.0).sum())

    def _gain(self) -> tuple[float, float]:
        rows = self.rows
        utility = rows.kind, rows.v, rows.shape
        kernels.utility_gains(rows.active, *utility, rows.life, self._worked, rows.work, self._out)
        return float(self._out[0]), float(self._out[1])

    def _result(self, j: int) -> tuple[float, ...]:
        """Values of ``COLUMNS`` for the job in row j."""
        job, cost, work = self.rows.jobs[j], self.rows.cost[j], self.rows.work[j]
        assert job is not None
        utility = job.utility.value(work) if work > 0 else 0.0
        return job.arrival, job.deadline, job.budget, cost, work, utility

    def results(self) -> dict[str, Floats]:
        """Arrival, deadline, budget, cost, work OPM (2) and utility of every job so far, [jobs].

        In the order in which they left, those still active last.
        """
        both = self._finished[:]
        for j in self.rows.active.tolist():
            both.extend(self._result(j))
        table = np.array(both, dtype=np.float64).reshape(-1, len(COLUMNS))
        return dict(zip(COLUMNS, table.T))


@dataclass(frozen=True, eq=False)
class ApproximationInstance(InstanceBase):
    """Machines and prices, their rates, the jobs, and what goes wrong.

    Parameters
    ----------
    rates : RateProcess
        Hidden from policies.
    delivery : Delivery
        Delay and loss of feedback.
    outages : tuple of Outage
        Machines that are away for some slots.

    Examples
    --------
    >>> from gangwise import create_policy, simulate
    >>> from gangwise.papers.approximation_jobs.problem import ApproximationProblem
    >>> from gangwise.papers.approximation_jobs.problem import IidRates
    >>> from gangwise.papers.approximation_jobs.problem import PoissonJobs
    >>> problem = ApproximationProblem([1.0, 0.5])
    >>> instance = ApproximationInstance(problem, IidRates([0.5, 0.9]), PoissonJobs(0.3))
    >>> simulate(instance, create_policy("fair"), slots=5, seed=0).slots
    5
    """

    problem: problems.ApproximationProblem
    rates: problems.RateProcess
    jobs: problems.JobWorkload
    delivery: Delivery = field(default_factory=Delivery)
    outages: tuple[Outage, ...] = ()
    family: str = "approximation_jobs"
    comparators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rates.size != self.problem.M:
            raise ScenarioError(
                f"rates are given for {self.rates.size} machines; there are {self.problem.M}"
            )
        for outage in self.outages:
            if not 0 <= outage.machine < self.problem.M:
                raise ScenarioError(
                    f"there is no machine {outage.machine} to be away; there are {self.problem.M}"
                )

    def environment(self) -> ApproximationEnvironment:
        return ApproximationEnvironment(self)

    def available(self, slot: int) -> Bools:
        """Machines that are there in a slot, shape [M]; asked in every slot, so without a loop."""
        available = np.ones(self.problem.M, dtype=bool)
        machine, away_from, back = self._away
        # Outages of one machine may overlap: it is there where none covers the slot.
        available[machine[(away_from <= slot) & (slot < back)]] = False
        return available

    @cached_property
    def _away(self) -> Ints:
        """Machine, first slot and slot back of each outage, shape [3, outages]."""
        away = [(outage.machine, outage.first, outage.back) for outage in self.outages]
        return np.array(away, dtype=np.int64).reshape(-1, 3).T

    def without_absent(self, rates: Floats, first: int) -> Floats:
        """The same rates [slots, M], from slot ``first`` on, with 0 for machines that are away."""
        for outage in self.outages:
            low, high = max(outage.first - first, 0), max(outage.back - first, 0)
            rates[low:high, outage.machine] = 0.0
        return rates

    def rates_of(self, slots: int, seed: int) -> Iterator[Floats]:
        """Rates of a run, drawn again ``BLOCK`` slots at a time; of machines that are away, 0."""
        stream = self.rates.stream(rate_generator(seed))
        for begin in range(0, slots, BLOCK):
            yield self.without_absent(np.array(stream.draw(BLOCK)[: slots - begin]), begin)

    def history(self, slots: int, seed: int) -> tuple[Floats, list[problems.Job]]:
        """Rates [slots, M] and jobs of a run: what its policies meet, drawn again."""
        return np.concatenate(list(self.rates_of(slots, seed))), self.jobs_of(slots, seed)

    def jobs_of(self, slots: int, seed: int) -> list[problems.Job]:
        """Jobs of a run, drawn again."""
        source = self.jobs.stream(Streams.of(seed).workload)
        # Whole blocks, as a run draws them, so that the generator gives the same jobs.
        drawn = [jobs for _ in range(0, slots, BLOCK) for jobs in source.draw(BLOCK)]
        return [job for jobs in drawn[:slots] for job in jobs]


@dataclass(frozen=True)
class ApproximationFamily:
    name: str = "approximation_jobs"

    def fuzz(self, rng: np.random.Generator) -> ApproximationInstance:
        """A small instance: odd prices and utilities, machines that go, delays."""
        M = int(rng.integers(1, 9))
        prices = rng.uniform(0.05, 1.5, M)
        # Equal prices: nothing but names tells machines apart, which is where ties are broken.
        if rng.random() < 0.3:
            prices[:] = prices[0]
        problem = problems.ApproximationProblem(
            prices, horizon=64, enforce=bool(rng.random() < 0.7)
        )
        jobs: list[problems.Job] = []
        at = int(rng.integers(0, 2))
        while at < 40:
            for _ in range(int(rng.integers(0, 4))):
                life = int(rng.integers(1, 10))
                # From a fiftieth of what all machines cost for a job's life to twice as much.
                budget = float(rng.uniform(0.02, 2.0) * prices.sum() * life)
                jobs.append(problems.Job(len(jobs), at, at + life, budget, self._utility(rng)))
            at += int(rng.integers(1, 4))
        outages = [Outage(i, 2, 6) for i in range(M) if rng.random() < 0.2]
        delivery = Delivery(float(rng.integers(1, 4))) if rng.random() < 0.3 else Delivery()
        rates = problems.IidRates(rng.random(M), float(rng.choice([0.0, 4.0])))
        return ApproximationInstance(
            problem, rates, problems.ReplayedJobs(jobs), delivery, tuple(outages)
        )

    def _utility(self, rng: np.random.Generator) -> problems.Utility:
        v, beta = float(rng.uniform(1, 5)), float(rng.uniform(0.3, 1.0))
        forms: list[problems.Utility] = [
            problems.Power(v, beta),
            problems.Log(v, 2.0),
            problems.Saturating(v, 4.0),
        ]
        return forms[int(rng.integers(3))]

    def relabel_servers(
        self, instance: ApproximationInstance, order: Ints
    ) -> ApproximationInstance:
        """The same instance with machine ``order[i]`` now called ``i``."""
        base, place = instance.problem, np.argsort(order)
        problem = replace(base, prices=base.prices[order])
        outages = tuple(replace(o, machine=int(place[o.machine])) for o in instance.outages)
        rates = problems.Relabelled(instance.rates, order)
        return replace(instance, problem=problem, rates=rates, outages=outages)

    def relabel_decision(
        self, instance: ApproximationInstance, order: Ints, decision: Ints
    ) -> npt.NDArray[np.float64]:
        return np.asarray(decision, dtype=np.float64)[..., order]

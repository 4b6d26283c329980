r"""What everything known in advance would have earned: comparators, dynamic regret, fit.

Two comparators, both bounds on P1 with tasks that may be split (so no real plan earns more):

- ``known_rates``: the rates of every slot, the strongest one;
- ``known_means``: rates replaced by their means, as (7) has it. It is *not* an upper bound for one
  run of correlated rates, and regret against it may be negative.

An optimum over whole lifetimes has no reward in a slot: its total is spread evenly over the slots,
which gives totals and shares their meaning and curves none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.inputs import BLOCK, rate_generator
from gangwise.approximation_jobs.optimum import Optimum, optimise
from gangwise.approximation_jobs.problem import Job
from gangwise.approximation_jobs.programme import Programme
from gangwise.core.environment import Comparator
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.streams import Streams

if TYPE_CHECKING:
    from gangwise.approximation_jobs.results import Results
    from gangwise.core.run import Run

__all__ = [
    "COMPARATORS",
    "ComparedInstance",
    "Known",
    "dynamic_regret",
    "fit",
    "offline_comparator",
    "offline_optimum",
]

Floats = npt.NDArray[np.float64]

Known = Literal["rates", "means"]
COMPARATORS = ("known_means", "known_rates")
"""Names; the strongest last."""
CLOSE = 0.005
"""The relative gap at which a comparator is close enough; it is certified and reported."""


def offline_optimum(
    instance: ApproximationInstance,
    slots: int,
    seed: int,
    known: Known = "rates",
    average: bool = False,
    tolerance: float = 1e-6,
    iterations: int = 25,
) -> Optimum:
    """The offline optimum of a run, with a certified gap.

    Parameters
    ----------
    instance : ApproximationInstance
        With machines that hold one task.
    slots, seed : int
        The run: its jobs and rates are drawn again, the rates never all at once.
    known : {"rates", "means"}
        Every slot's rates, or each machine's mean: that of the process if it tells (``means``),
        else the mean over the run.
    average : bool
        The objective of (6), Σ (d - a) f(X / (d - a)), rather than the overall utility Σ f(X).
    tolerance, iterations
        See :func:`~gangwise.approximation_jobs.optimum.optimise`.

    Raises
    ------
    ScenarioError
        For machines with capacities, for which there is no bound yet, or free machines.

    Examples
    --------
    >>> from gangwise.approximation_jobs.environment import ApproximationInstance
    >>> from gangwise.approximation_jobs.problem import ApproximationProblem, Job
    >>> from gangwise.approximation_jobs.processes import IidRates, ReplayedJobs
    >>> jobs = ReplayedJobs([Job(0, 0, 10, budget=4.0)])
    >>> instance = ApproximationInstance(ApproximationProblem([1.0]), IidRates([1.0]), jobs)
    >>> round(offline_optimum(instance, slots=10, seed=0).bound, 6)
    2.0
    """
    if known not in get_args(Known):
        raise UnknownName("kind of knowledge", str(known), list(get_args(Known)))
    problem = instance.problem
    if problem.capacity is not None:
        raise ScenarioError(
            "there is no offline optimum for machines with capacities (§V-C); compare policies "
            "with each other, or leave out capacity"
        )
    blocks = _rates(instance, slots, seed)
    if known == "means":
        blocks = _constant(_means(instance, slots, seed), instance, slots)
    jobs, ends = _jobs(instance, slots, seed)
    programme = Programme(jobs, problem.prices, blocks, slots, average, ends)
    return optimise(programme, tolerance, iterations)


def offline_comparator(
    instance: ApproximationInstance, name: str, slots: int, seed: int, sample: int | None = None
) -> Comparator:
    """``known_rates`` or ``known_means`` as a comparator; ``sample`` is not needed.

    Raises
    ------
    UnknownName
        For any other name.
    """
    if name not in COMPARATORS:
        raise UnknownName("comparator", name, list(COMPARATORS))
    known: Known = "rates" if name == "known_rates" else "means"
    best = offline_optimum(instance, slots, seed, known, tolerance=CLOSE)
    return Comparator(name, np.arange(slots), np.full(slots, best.bound / slots), best.gap)


@dataclass(frozen=True, eq=False)
class ComparedInstance(ApproximationInstance):
    """An instance whose runs can be held against the offline comparators."""

    comparators: tuple[str, ...] = COMPARATORS

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """``known_means`` or ``known_rates`` on the slots of a run."""
        return offline_comparator(self, name, slots, seed, sample)


def dynamic_regret(run: Run, known: Known = "means", optimum: Optimum | None = None) -> float:
    """Reg_T of (6), signed: the comparator's Σ (d - a) f(X / (d - a)) less the run's.

    The comparator's side is a certified upper bound, so the regret is not understated.

    Parameters
    ----------
    run : Run
        Of this family.
    known : {"means", "rates"}
        (7) takes the means.
    optimum : Optimum, optional
        The ``offline_optimum(..., average=True)`` of the run, if it is at hand.
    """
    if optimum is None:
        optimum = offline_optimum(run.instance, run.slots, run.seed, known, average=True)  # type: ignore[arg-type]  # a run of this family has an instance of it
    return optimum.bound - float(run.metrics["average_utility"].sum())


def fit(results: Results) -> tuple[float, float]:
    """Fit_T of (8), signed, and the sum of its positive parts, in units of price.

    In (8) what one job leaves unspent makes up for what another overspends; in the second number it
    does not.

    Examples
    --------
    >>> from gangwise.approximation_jobs.results import Results
    >>> results = Results()
    >>> results.add(Job("a", 0, 4, budget=8.0), cost=9.0, work=4.0)
    >>> results.add(Job("b", 0, 4, budget=8.0), cost=5.0, work=4.0)
    >>> fit(results)
    (-2.0, 1.0)
    """
    over = results["cost"] - results["budget"]
    return float(over.sum()), float(np.maximum(over, 0.0).sum())


def _jobs(
    instance: ApproximationInstance, slots: int, seed: int
) -> tuple[list[Job], list[int]]:
    """The jobs of a run, and the slots that they end before: deadlines, or when they leave."""
    source, left = instance.jobs.stream(Streams.of(seed).workload), slots
    found: list[Job] = []
    while left > 0:
        found += [job for each in source.draw(min(left, BLOCK)) for job in each]
        left -= BLOCK
    ends = [instance.leave.get(job.id, job.deadline) for job in found]
    ends = [
        end if job.arrival < end < job.deadline else job.deadline for job, end in zip(found, ends)
    ]
    return found, ends


def _rates(instance: ApproximationInstance, slots: int, seed: int) -> Iterator[Floats]:
    """Rates of a run, BLOCK slots at a time; of machines that are away, 0."""
    stream = instance.rates.stream(rate_generator(seed))
    for first in range(0, slots, BLOCK):
        rates = np.array(stream.draw(BLOCK)[: slots - first])
        yield _without(rates, instance, first)


def _without(rates: Floats, instance: ApproximationInstance, first: int) -> Floats:
    for outage in instance.outages:
        low, high = max(outage.first - first, 0), max(outage.back - first, 0)
        rates[low:high, outage.machine] = 0.0
    return rates


def _means(instance: ApproximationInstance, slots: int, seed: int) -> Floats:
    known = getattr(instance.rates, "means", None)
    if known is not None:
        return np.asarray(known, dtype=np.float64)
    total = np.zeros(instance.problem.M)
    for block in _rates(instance, slots, seed):
        total += block.sum(axis=0)
    return total / slots


def _constant(means: Floats, instance: ApproximationInstance, slots: int) -> Iterator[Floats]:
    for first in range(0, slots, BLOCK):
        rates = np.tile(means, (min(BLOCK, slots - first), 1))
        yield _without(rates, instance, first)

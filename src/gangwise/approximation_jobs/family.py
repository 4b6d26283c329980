"""The approximation-jobs family, for the tools that serve all families alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.processes import IidRates, Outage, Relabelled, ReplayedJobs
from gangwise.approximation_jobs.utilities import Log, Power, Saturating, Utility
from gangwise.core.delivery import Delivery

__all__ = ["ApproximationFamily"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ApproximationFamily:
    """Fuzzing and relabelling of :class:`ApproximationInstance`."""

    name: str = "approximation_jobs"

    def fuzz(self, rng: np.random.Generator) -> ApproximationInstance:
        """A small instance: odd prices and utilities, jobs that leave, machines that go, delays."""
        M = int(rng.integers(1, 9))
        prices = rng.uniform(0.05, 1.5, M)
        if rng.random() < 0.3:
            prices[:] = prices[0]
        problem = ApproximationProblem(prices, horizon=64, enforce=bool(rng.random() < 0.7))
        jobs: list[Job] = []
        at = int(rng.integers(0, 2))
        while at < 40:
            for _ in range(int(rng.integers(0, 4))):
                life = int(rng.integers(1, 10))
                budget = float(rng.uniform(0.02, 2.0) * prices.sum() * life)
                jobs.append(Job(len(jobs), at, at + life, budget, self._utility(rng)))
            at += int(rng.integers(1, 4))
        leave = {
            job.id: int(rng.integers(job.arrival, job.deadline + 1))
            for job in jobs if rng.random() < 0.2
        }  # fmt: skip
        outages = [Outage(i, 2, 6) for i in range(M) if rng.random() < 0.2]
        delivery = Delivery(float(rng.integers(1, 4))) if rng.random() < 0.3 else Delivery()
        rates = IidRates(rng.random(M), float(rng.choice([0.0, 4.0])))
        return ApproximationInstance(
            problem, rates, ReplayedJobs(jobs), delivery, leave, tuple(outages)
        )

    def _utility(self, rng: np.random.Generator) -> Utility:
        v = float(rng.uniform(1, 5))
        forms: list[Utility] = [Power(v, float(rng.uniform(0.3, 1.0))), Log(v, 2.0),
                                Saturating(v, 4.0)]  # fmt: skip
        return forms[int(rng.integers(3))]

    def relabel_servers(
        self, instance: ApproximationInstance, order: Ints
    ) -> ApproximationInstance:
        """The same instance with machine ``order[i]`` now called ``i``."""
        base, place = instance.problem, np.argsort(order)
        capacity = None if base.capacity is None else base.capacity[order]
        problem = replace(base, prices=base.prices[order], capacity=capacity)
        outages = tuple(replace(o, machine=int(place[o.machine])) for o in instance.outages)
        rates = Relabelled(instance.rates, order)
        return replace(instance, problem=problem, rates=rates, outages=outages)

    def relabel_decision(
        self, instance: ApproximationInstance, order: Ints, decision: Ints
    ) -> npt.NDArray[np.float64]:
        """A decision for ``instance`` as it reads after relabelling."""
        return np.asarray(decision, dtype=np.float64)[..., order]

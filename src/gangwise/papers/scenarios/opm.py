"""Scenarios of OPS/OPM §VI on synthetic jobs, and of its theorems.

On synthetic jobs (``opm-default-v1``) arrivals are Poisson with bounded Pareto lifetimes, added
until budgets reach a load, where the paper takes arrivals and deadlines from a public trace
(``opm-google-v1``, :mod:`gangwise.papers.slots.approximation_jobs`). Where the paper leaves
something open, the setting says so, because it decides the result: with every machine priced at
twice its own mean rate (``pricing = realised``), knowing mean rates is worth nothing; with one
price for all (``population``) an estimate earns what it can tell about up and down periods, whose
length in slots (``time_scale``) is not stated either.

In the setting of Theorem 2, Theorem 3 and Corollary 1 (``opm-theorem-v1``) the optimum is known and
budgets are not kept. All jobs are there from slot 0 to slot T, rates are independent between slots
with fixed means, and OPS/OPM (7) is a small programme in closed form. Utilities are Lipschitz
unless the square root is asked for, which the theorems do not cover. Tasks that a budget cannot pay
run all the same, since what the theorems bound is by how much budgets are exceeded.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from gangwise.core.settings import Count, SlotCount, StrictSettings
from gangwise.core.simulation import Streams
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.approximation_jobs import workloads
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, rate_generator
from gangwise.papers.approximation_jobs.offline import COMPARATORS
from gangwise.papers.scenarios import drawing


class OPMSettings(drawing.JobDraws):
    machines: Count = 100
    slots: SlotCount = 5000
    load: float = Field(1.5, gt=0)
    lifetime: tuple[float, float, float] = (1.1, 50.0, 1500.0)
    arrivals: Literal["poisson", "bursty"] = "poisson"
    enforce: bool = True


class OPMScenario(drawing.DrawnScenario[OPMSettings]):
    """Synthetic jobs of OPS/OPM §VI: draws instances as :class:`OPMSettings` says."""

    family = "approximation_jobs"
    version = "opm-default-v1"
    settings_model = OPMSettings

    def instance(self, seed: int) -> ApproximationInstance:
        """The instance of a seed; jobs and rates are drawn as a run of this seed draws them."""
        s = self.settings
        rates = workloads.GammaPeriods(s.machines, time_scale=s.time_scale, per_period=s.per_period)
        prices = workloads.price_machines(rates, s.pricing, s.slots, rate_generator(seed))
        drawn = s.model_dump(include={"beta", "q", "value", "lifetime"})
        price = float(np.mean(prices))
        jobs = workloads.SyntheticJobs(s.machines, s.slots, price, s.load, s.arrivals, **drawn)
        problem = problems.ApproximationProblem(prices, horizon=s.slots, enforce=s.enforce)
        return ApproximationInstance(problem, rates, jobs, comparators=COMPARATORS)


def _at_most_one(value: tuple[float, float]) -> tuple[float, float]:
    if value[1] > 1:
        raise ValueError("must be at most 1")
    return value


PositiveShare = Annotated[drawing.PositiveRange, AfterValidator(_at_most_one)]


class TheoremSettings(StrictSettings):
    machines: Count = 20
    slots: SlotCount = 4000
    jobs: Count = 1
    rho: float = Field(0.3, gt=0, le=1)
    utility: Literal["log", "sqrt"] = "log"
    value: drawing.PositiveRange = (0.5, 1.0)
    rate: PositiveShare = (0.1, 0.9)
    price: PositiveShare = (0.5, 1.0)


class OPMTheoremScenario(drawing.DrawnScenario[TheoremSettings]):
    """The setting of the theorems: draws instances as :class:`TheoremSettings` says."""

    family = "approximation_jobs"
    version = "opm-theorem-v1"
    settings_model = TheoremSettings

    def instance(self, seed: int) -> ApproximationInstance:
        s, rng = self.settings, Streams.of(seed).instance
        means, prices = rng.uniform(*s.rate, s.machines), rng.uniform(*s.price, s.machines)
        values = rng.uniform(*s.value, s.jobs) if s.jobs > 1 else np.ones(1)
        budget = s.rho * s.machines * s.slots / s.jobs
        utilities: list[problems.Utility] = [
            problems.Log(v, 1.0) if s.utility == "log" else problems.Power(v, 0.5)
            for v in values.tolist()
        ]
        jobs = [problems.Job(n, 0, s.slots, budget, f) for n, f in enumerate(utilities)]
        problem = problems.ApproximationProblem(prices, horizon=s.slots, enforce=False)
        replayed = workloads.ReplayedJobs(jobs)
        return ApproximationInstance(
            problem, workloads.IidRates(means), replayed, comparators=COMPARATORS
        )

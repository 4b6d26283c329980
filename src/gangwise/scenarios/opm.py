"""Scenarios of OPS/OPM §VI, on synthetic jobs and on the Google trace, and of its theorems.

On synthetic jobs (``opm-default-v1``) arrivals are Poisson with bounded Pareto lifetimes, added
until budgets reach a load, where the paper takes arrivals and deadlines from a public trace. Where
the paper leaves something open, the setting says so, because it decides the result: with every
machine priced at twice its own mean rate (``pricing = realised``), knowing mean rates is worth
nothing; with one price for all (``population``) an estimate earns what it can tell about up and
down periods, whose length in slots (``time_scale``) is not stated either.

On the trace (``opm-google-v1``) jobs run on 1000 unreliable machines. The trace gives arrivals and
ends; everything else is drawn, as the settings state. Two things that the paper does not say are
decided here. *Time*: the window of 10 hours is the 50,000 units of time that the rates are
generated for, so that a slot is 0.72 s; a job arrives in the slot that it is submitted in, and its
deadline is the first slot that begins after its end, one slot later at least. *Budgets* are of the
lifetime that is left in the window, for jobs that outlast it.
:mod:`gangwise.traces.slots.approximation_jobs` makes the same of any trace.

In the setting of Theorem 2, Theorem 3 and Corollary 1 (``opm-theorem-v1``) the optimum is known and
budgets are not kept. All jobs are there from slot 0 to slot T, rates are independent between slots
with fixed means, and OPS/OPM (7) is a small programme in closed form. Utilities are Lipschitz
unless the square root is asked for, which the theorems do not cover. Tasks that a budget cannot pay
run all the same, since what the theorems bound is by how much budgets are exceeded.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.execution import rate_generator
from gangwise.approximation_jobs.offline import COMPARATORS
from gangwise.approximation_jobs.problem import ApproximationProblem, Job, Log, Power, Utility
from gangwise.approximation_jobs.rates import GammaPeriods, IidRates
from gangwise.approximation_jobs.workloads import ReplayedJobs, SyntheticJobs, price_machines
from gangwise.core.errors import ScenarioError
from gangwise.core.limits import Count, SlotCount
from gangwise.core.simulation import Streams
from gangwise.scenarios.drawing import DrawnScenario


class OPMSettings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: Count = Field(100, description="M; 1000 in the paper")
    slots: SlotCount = Field(5000, description="T; 50000 in the paper")
    load: float = Field(
        1.5,
        gt=0,
        description="Σ B / (p M T): jobs are added until it is reached. "
        "Above 1 machines are short, well below it budgets are",
    )
    beta: float = Field(0.5, gt=0, le=1, description="f(X) = v X^β")
    value: tuple[float, float] = Field((1.0, 5.0), description="v: uniform")
    q: tuple[float, float] = Field(
        (2.0, 100.0), description="budget B = q (d − a) M / 1000; q: uniform"
    )
    lifetime: tuple[float, float, float] = Field(
        (1.1, 50.0, 1500.0), description="d − a: bounded Pareto with this shape, least and most"
    )
    arrivals: Literal["poisson", "bursty"] = Field(
        "poisson", description="over the first 95 % of the slots; bursty: only in on-periods"
    )
    pricing: Literal["population", "realised"] = Field(
        "population",
        description="price: twice the expected rate of all machines, or twice the "
        "mean rate that each machine has in the run",
    )
    time_scale: float = Field(1.0, gt=0, description="slots per unit of the Gamma lengths")
    per_period: bool = Field(False, description="one rate per period rather than per slot")
    enforce: bool = Field(True, description="tasks that a budget cannot pay are not executed")


class OPMScenario(DrawnScenario[OPMSettings]):
    """Draws instances as :class:`OPMSettings` says.

    Examples
    --------
    >>> scenario = OPMScenario(machines=20, slots=200, pricing="realised")
    >>> scenario.instance(seed=0).problem.M
    20
    """

    family = "approximation_jobs"
    version = "opm-default-v1"
    settings_model = OPMSettings

    def instance(self, seed: int) -> ApproximationInstance:
        """The instance of a seed; jobs and rates are drawn as a run of this seed draws them."""
        s = self.settings
        rates = GammaPeriods(s.machines, time_scale=s.time_scale, per_period=s.per_period)
        prices = price_machines(rates, s.pricing, s.slots, rate_generator(seed))
        jobs = SyntheticJobs(
            s.machines,
            s.slots,
            float(np.mean(prices)),
            s.load,
            s.arrivals,
            beta=s.beta,
            q=s.q,
            value=s.value,
            lifetime=s.lifetime,
        )
        problem = ApproximationProblem(prices, horizon=s.slots, enforce=s.enforce)
        return ApproximationInstance(problem, rates, jobs, comparators=COMPARATORS)


class TheoremSettings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: Count = Field(20, description="M")
    slots: SlotCount = Field(4000, description="T")
    jobs: Count = Field(1, description="N: 1 for OPS; all arrive in slot 0, deadline T")
    rho: float = Field(
        0.3, gt=0, le=1, description="ρ of Theorem 2: Σ B / (M T); jobs have equal budgets"
    )
    utility: Literal["log", "sqrt"] = Field(
        "log", description="v ln(1 + X), which is Lipschitz with π = v, or v √X, which is not"
    )
    value: tuple[float, float] = Field((0.5, 1.0), description="v: uniform; 1 for a single job")
    rate: tuple[float, float] = Field(
        (0.1, 0.9), description="mean rates: uniform; a task does one unit of work or none"
    )
    price: tuple[float, float] = Field((0.5, 1.0), description="prices: uniform")


class OPMTheoremScenario(DrawnScenario[TheoremSettings]):
    """Draws instances as :class:`TheoremSettings` says.

    Examples
    --------
    >>> scenario = OPMTheoremScenario(machines=10, slots=100, rho=0.2)
    >>> [job.budget for job in scenario.instance(seed=0).jobs.jobs]
    [200.0]
    """

    family = "approximation_jobs"
    version = "opm-theorem-v1"
    settings_model = TheoremSettings

    def __init__(self, *, name: str = "", **settings: Any):
        super().__init__(name=name, **settings)
        s = self.settings
        for what, (low, high), top in (
            ("value", s.value, np.inf),
            ("rate", s.rate, 1.0),
            ("price", s.price, 1.0),
        ):
            if not 0 < low <= high <= top:
                raise ScenarioError(
                    f"scenario {self.name!r}: {what} is {(low, high)}; it must be a positive "
                    "range, " + ("at most 1" if top == 1 else "the smaller number first")
                )

    def instance(self, seed: int) -> ApproximationInstance:
        """The instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        means, prices = rng.uniform(*s.rate, s.machines), rng.uniform(*s.price, s.machines)
        values = rng.uniform(*s.value, s.jobs) if s.jobs > 1 else np.ones(1)
        budget = s.rho * s.machines * s.slots / s.jobs
        jobs = [Job(n, 0, s.slots, budget, self._utility(float(v))) for n, v in enumerate(values)]
        problem = ApproximationProblem(prices, horizon=s.slots, enforce=False)
        replayed = ReplayedJobs(jobs)
        return ApproximationInstance(problem, IidRates(means), replayed, comparators=COMPARATORS)

    def _utility(self, v: float) -> Utility:
        return Log(v, 1.0) if self.settings.utility == "log" else Power(v, 0.5)

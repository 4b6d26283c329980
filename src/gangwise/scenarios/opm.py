"""The scenario of §VI of the OPM paper on synthetic jobs.

The paper takes arrivals and deadlines from a public trace; here they are Poisson arrivals with
bounded Pareto lifetimes, added until budgets reach a load. Where the paper leaves something open,
the setting says so, because it decides the result: with every machine priced at twice its own mean
rate (``pricing = realised``), knowing mean rates is worth nothing; with one price for all
(``population``) an estimate earns what it can tell about up and down periods, whose length in slots
(``time_scale``) is not stated either.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from gangwise.approximation_jobs.inputs import rate_generator
from gangwise.approximation_jobs.offline import ComparedInstance
from gangwise.approximation_jobs.problem import ApproximationProblem
from gangwise.approximation_jobs.rates import GammaPeriods
from gangwise.approximation_jobs.workloads import SyntheticJobs, price_machines
from gangwise.scenarios.drawn import DrawnScenario, checked

__all__ = ["OPMScenario", "Settings"]


class Settings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: PositiveInt = Field(100, description="M; 1000 in the paper")
    slots: PositiveInt = Field(5000, description="T; 50000 in the paper")
    load: float = Field(1.5, gt=0, description="Σ B / (p M T): jobs are added until it is reached. "
                        "Above 1 machines are short, well below it budgets are")  # fmt: skip
    beta: float = Field(0.5, gt=0, le=1, description="f(X) = v X^β")
    value: tuple[float, float] = Field((1.0, 5.0), description="v: uniform")
    q: tuple[float, float] = Field((2.0, 100.0), description="budget B = q (d − a) M / 1000; q: "
                                   "uniform")  # fmt: skip
    lifetime: tuple[float, float, float] = Field(
        (1.1, 50.0, 1500.0), description="d − a: bounded Pareto with this shape, least and most"
    )
    arrivals: Literal["poisson", "bursty"] = Field(
        "poisson", description="over the first 95 % of the slots; bursty: only in on-periods"
    )
    pricing: Literal["population", "realised"] = Field(
        "population", description="price: twice the expected rate of all machines, or twice the "
        "mean rate that each machine has in the run",
    )  # fmt: skip
    time_scale: float = Field(1.0, gt=0, description="slots per unit of the Gamma lengths")
    per_period: bool = Field(False, description="one rate per period rather than per slot")
    enforce: bool = Field(True, description="tasks that a budget cannot pay are not executed")


class OPMScenario(DrawnScenario[Settings]):
    """Draws instances as :class:`Settings` says.

    Parameters
    ----------
    **settings
        Fields of :class:`Settings`.

    Raises
    ------
    ScenarioError
        Names the setting at fault.

    Examples
    --------
    >>> scenario = OPMScenario(machines=20, slots=200, pricing="realised")
    >>> scenario.instance(seed=0).problem.M
    20
    """

    family = "approximation_jobs"

    def __init__(self, *, name: str = "opm-default-v1", **settings: Any):
        super().__init__(name, checked(Settings, name, settings))

    def instance(self, seed: int) -> ComparedInstance:
        """The instance of a seed; jobs and rates are drawn as a run of this seed draws them."""
        s = self.settings
        rates = GammaPeriods(s.machines, time_scale=s.time_scale, per_period=s.per_period)
        prices = price_machines(rates, s.pricing, s.slots, rate_generator(seed))
        jobs = SyntheticJobs(
            s.machines, s.slots, float(np.mean(prices)), s.load, s.arrivals, beta=s.beta, q=s.q,
            value=s.value, lifetime=s.lifetime,
        )  # fmt: skip
        problem = ApproximationProblem(prices, horizon=s.slots, enforce=s.enforce)
        return ComparedInstance(problem, rates, jobs)

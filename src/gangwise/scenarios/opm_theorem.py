"""The setting of Theorem 2, Theorem 3 and Corollary 1: the optimum is known, budgets are not kept.

All jobs are there from slot 0 to slot T, rates are independent between slots with fixed means, and
(7) is a small programme in closed form. Utilities are Lipschitz unless the square root is asked
for, which the theorems do not cover. Tasks that a budget cannot pay run all the same, since what
the theorems bound is by how much budgets are exceeded.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from gangwise.approximation_jobs.offline import ComparedInstance
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.processes import IidRates, ReplayedJobs
from gangwise.approximation_jobs.utilities import Log, Power, Utility
from gangwise.core.errors import ScenarioError
from gangwise.core.streams import Streams
from gangwise.scenarios.drawn import DrawnScenario, checked

__all__ = ["OPMTheoremScenario", "Settings"]


class Settings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machines: PositiveInt = Field(20, description="M")
    slots: PositiveInt = Field(4000, description="T")
    jobs: PositiveInt = Field(1, description="N: 1 for OPS; all arrive in slot 0, deadline T")
    rho: float = Field(0.3, gt=0, le=1, description="ρ of Theorem 2: Σ B / (M T); jobs have equal "
                       "budgets")  # fmt: skip
    utility: Literal["log", "sqrt"] = Field(
        "log", description="v ln(1 + X), which is Lipschitz with π = v, or v √X, which is not"
    )
    value: tuple[float, float] = Field((0.5, 1.0), description="v: uniform; 1 for a single job")
    rate: tuple[float, float] = Field(
        (0.1, 0.9), description="mean rates: uniform; a task does one unit of work or none"
    )
    price: tuple[float, float] = Field((0.5, 1.0), description="prices: uniform")


class OPMTheoremScenario(DrawnScenario[Settings]):
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
    >>> scenario = OPMTheoremScenario(machines=10, slots=100, rho=0.2)
    >>> [job.budget for job in scenario.instance(seed=0).jobs.jobs]
    [200.0]
    """

    family = "approximation_jobs"

    def __init__(self, *, name: str = "opm-theorem-v1", **settings: Any):
        s = checked(Settings, name, settings)
        for what, (low, high), top in (("value", s.value, np.inf), ("rate", s.rate, 1.0),
                                       ("price", s.price, 1.0)):  # fmt: skip
            if not 0 < low <= high <= top:
                raise ScenarioError(
                    f"scenario {name!r}: {what} is {(low, high)}; it must be a positive range, "
                    + ("at most 1" if top == 1 else "the smaller number first")
                )
        super().__init__(name, s)

    def instance(self, seed: int) -> ComparedInstance:
        """The instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        means, prices = rng.uniform(*s.rate, s.machines), rng.uniform(*s.price, s.machines)
        values = rng.uniform(*s.value, s.jobs) if s.jobs > 1 else np.ones(1)
        budget = s.rho * s.machines * s.slots / s.jobs
        jobs = [Job(n, 0, s.slots, budget, self._utility(float(v))) for n, v in enumerate(values)]
        problem = ApproximationProblem(prices, horizon=s.slots, enforce=False)
        return ComparedInstance(problem, IidRates(means), ReplayedJobs(jobs))

    def _utility(self, v: float) -> Utility:
        return Log(v, 1.0) if self.settings.utility == "log" else Power(v, 0.5)

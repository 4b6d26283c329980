"""Gang scenarios for OGASched §3.5, drawn from a generator that states every distribution.

The paper defines gangs but runs no experiment with them, so everything here is our choice. Servers,
utilities, overhead and arrivals are those of ``ogasched-default-v1``. A task's request is a part of
a *model server*, drawn among those that its job type connects to, so that it fits there at least.
Contention is set by how many job types want the same servers.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.streams import Streams
from gangwise.core.workload import BernoulliArrivals, OnOffArrivals
from gangwise.gain_overhead.gang.environment import GangInstance
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.gain_overhead.utilities import Utilities
from gangwise.scenarios.drawn import DrawnScenario, checked, device_names, require_range
from gangwise.scenarios.gangs import draw_gangs
from gangwise.scenarios.ogasched import DEVICES, KINDS, OUR_MOST

__all__ = ["GangScenario", "GangSettings"]


class GangSettings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_types: PositiveInt = Field(10, description="|L|")
    servers: PositiveInt = Field(128, description="|R|")
    most: tuple[PositiveInt, ...] = Field(
        OUR_MOST, min_length=1, description="capacity of a server of device type k: uniform "
        "integer in 0..most[k], at least 1 of the first",
    )  # fmt: skip
    tasks: tuple[PositiveInt, PositiveInt] = Field(
        (2, 6), description="|Q_l|: uniform integer; m_l: uniform integer in 1..|Q_l|"
    )
    share: tuple[float, float] = Field(
        (0.2, 0.8), description="request of a task: for each device type, a uniform part of its "
        "model server's capacity, rounded down to whole devices, at least 1 of the first; the "
        "model server is uniform among those that the job type connects to",
    )  # fmt: skip
    equal: float = Field(
        0.5, ge=0, le=1, description="probability that all tasks of a job type are alike"
    )
    channels: PositiveInt = Field(
        16, description="servers that each job type connects to: so many (or all, if the pool is "
        "smaller), uniform without replacement from the pool",
    )  # fmt: skip
    contention: float = Field(
        5.0, gt=0, description="job types that want the same server, on average: the pool is "
        "job_types · channels / contention servers (but no fewer than channels and no more than "
        "there are), uniform among all; the others serve nobody",
    )  # fmt: skip
    alpha: tuple[float, float] = Field((1.0, 1.5), description="α of each server and device type: "
                                       "uniform")  # fmt: skip
    beta: tuple[float, float] = Field((0.3, 0.5), description="β of each device type: uniform")
    utility: Literal["mixed", "linear", "log", "reciprocal", "poly"] = Field(
        "mixed", description="mixed: uniform among the four, per server and device type"
    )
    rho: float = Field(0.7, ge=0, le=1, description="probability that a job of a type arrives")
    arrivals: Literal["bernoulli", "bursts"] = Field(
        "bernoulli", description="bursts: Bernoulli(ρ) while on, geometric on and off periods of "
        "mean 20 slots",
    )  # fmt: skip
    time_limit: float = Field(
        60.0, gt=0, description="seconds that a comparator may think about one programme"
    )
    slots: PositiveInt = Field(300, description="T unless told otherwise")

    @model_validator(mode="after")
    def _ranges(self) -> GangSettings:
        require_range("alpha", self.alpha, positive=True)
        for name in ("beta", "share", "tasks"):
            require_range(name, getattr(self, name))
        if self.share[1] > 1:
            raise ValueError("share must not exceed 1, or tasks would fit on no server")
        return self


class GangScenario(DrawnScenario[GangSettings]):
    """Draws instances as :class:`GangSettings` says.

    Parameters
    ----------
    **settings
        Fields of :class:`GangSettings`.

    Raises
    ------
    ScenarioError
        Names the setting at fault.

    Examples
    --------
    >>> instance = GangScenario(servers=12, job_types=5).instance(seed=0)
    >>> instance.problem.cluster.capacity.shape, instance.problem.L
    ((12, 6), 5)
    """

    family = "gain_overhead_gang"

    def __init__(self, *, name: str = "ogasched-gang-v1", **settings: Any):
        super().__init__(name, checked(GangSettings, name, settings))

    def instance(self, seed: int) -> GangInstance:
        """Draw the instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, len(s.most)
        gangs = draw_gangs(s, rng)
        kind = (
            rng.integers(0, len(KINDS), (R, K))
            if s.utility == "mixed"
            else np.full((R, K), KINDS.index(s.utility))
        )
        problem = GangProblem(
            Cluster(gangs.capacity, device_names(DEVICES, K)),
            gangs.job_type,
            gangs.requests,
            rng.integers(1, gangs.tasks + 1),
            Channels.of_mask(gangs.mask),
            Utilities(kind, rng.uniform(*s.alpha, (R, K))),
            rng.uniform(*s.beta, K),
        )
        rho = np.full(L, s.rho)
        workload = OnOffArrivals(rho) if s.arrivals == "bursts" else BernoulliArrivals(rho)
        return GangInstance(problem, workload, s.time_limit)


def small_scenario(**settings: Any) -> GangScenario:
    """``ogasched-gang-small-v1``: a size at which every slot's optimum is found in no time."""
    small = {"job_types": 5, "servers": 12, "most": OUR_MOST[:3], "channels": 6}
    return GangScenario(name="ogasched-gang-small-v1", **{**small, **settings})

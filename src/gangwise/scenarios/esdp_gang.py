"""Gang scenarios for ESDP §3.4, drawn from a generator that states every distribution.

The paper states the model and runs no experiment with it. Sizes, mean utilities and their noise are
those of its §4: 40 servers, 8 job types, 3 device types, Z ~ N(μ, μ/2) with μ ~ U(0.1, 1). Its
supply costs exceed its utilities, so here they are 0.3 of the mean utility on average, and what is
left is clipped to [0, 1]. Servers, tasks and contention are our choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.streams import Streams
from gangwise.core.workload import BernoulliArrivals
from gangwise.fluctuating_speeds.gang.environment import GangSpeedsInstance
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.speeds import NormalSpeeds
from gangwise.scenarios.drawn import DrawnScenario, checked, device_names, require_range
from gangwise.scenarios.esdp import DEVICES
from gangwise.scenarios.gangs import draw_gangs

__all__ = ["ESDPGangScenario", "ESDPGangSettings", "small_scenario"]


class ESDPGangSettings(BaseModel):
    """Parameters of the generator, with the distribution of everything it draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_types: PositiveInt = Field(8, description="|L|")
    servers: PositiveInt = Field(40, description="|R|")
    most: tuple[PositiveInt, ...] = Field(
        (24, 48, 16), min_length=1, description="capacity of a server of device type k: uniform "
        "integer in 0..most[k], at least 1 of the first",
    )  # fmt: skip
    tasks: tuple[PositiveInt, PositiveInt] = Field(
        (2, 6), description="|Q_l|: uniform integer; m_l: uniform integer in 1..|Q_l|"
    )
    share: tuple[float, float] = Field(
        (0.3, 0.9), description="request of a task: for each device type, a uniform part of its "
        "model server's capacity, rounded down, at least 1 of the first; the model server is "
        "uniform among those that the job type connects to",
    )  # fmt: skip
    equal: float = Field(
        0.5, ge=0, le=1, description="probability that all tasks of a job type are alike"
    )
    channels: PositiveInt = Field(
        10, description="servers that each job type connects to (or all, if the pool is smaller), "
        "uniform without replacement from the pool",
    )  # fmt: skip
    contention: float = Field(
        4.0, gt=0, description="job types that want the same server, on average: the pool is "
        "job_types · channels / contention servers (no fewer than channels, no more than there "
        "are), uniform among all",
    )  # fmt: skip
    mean: tuple[float, float] = Field((0.1, 1.0), description="μ of each channel: uniform")
    spread: float = Field(0.5, ge=0, description="standard deviation of Z over μ")
    cost: float = Field(
        0.3, ge=0, description="mean supply cost over mean μ; the cost of a channel is the sum "
        "over device types of N(1, 0.2²), cut off at 0, and so scaled",
    )  # fmt: skip
    rho: float = Field(0.7, ge=0, le=1, description="probability that a job of a type arrives")
    time_limit: float = Field(
        20.0, gt=0, description="seconds that a comparator may think about one programme"
    )
    slots: PositiveInt = Field(2000, description="T unless told otherwise")

    @model_validator(mode="after")
    def _ranges(self) -> ESDPGangSettings:
        require_range("mean", self.mean, positive=True)
        for name in ("share", "tasks"):
            require_range(name, getattr(self, name))
        if self.share[1] > 1:
            raise ValueError("share must not exceed 1, or tasks would fit on no server")
        return self


class ESDPGangScenario(DrawnScenario[ESDPGangSettings]):
    """Draws instances as :class:`ESDPGangSettings` says.

    Parameters
    ----------
    **settings
        Fields of :class:`ESDPGangSettings`.

    Raises
    ------
    ScenarioError
        Names the setting at fault.

    Examples
    --------
    >>> instance = ESDPGangScenario(servers=12, job_types=5).instance(seed=0)
    >>> instance.problem.cluster.capacity.shape, instance.problem.L
    ((12, 3), 5)
    """

    family = "fluctuating_speeds_gang"

    def __init__(self, *, name: str = "esdp-gang-v1", **settings: Any):
        super().__init__(name, checked(ESDPGangSettings, name, settings))

    def instance(self, seed: int) -> GangSpeedsInstance:
        """Draw the instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        L, K = s.job_types, len(s.most)
        gangs = draw_gangs(s, rng)
        minimum = rng.integers(1, gangs.tasks + 1)
        channels = Channels.of_mask(gangs.mask)
        speeds = NormalSpeeds(rng.uniform(*s.mean, len(channels)), s.spread)
        cost = np.maximum(rng.normal(1.0, 0.2, (len(channels), K)), 0.0).sum(axis=1)
        cost *= s.cost * speeds.mean.mean() / max(float(cost.mean()), 1e-12)
        problem = GangSpeedsProblem(
            Cluster(gangs.capacity, device_names(DEVICES, K)), gangs.job_type, gangs.requests,
            minimum, channels, cost,
        )  # fmt: skip
        return GangSpeedsInstance(
            problem, BernoulliArrivals(np.full(L, s.rho)), speeds, Scale.of("clip", speeds, cost),
            time_limit=s.time_limit,
        )  # fmt: skip

def small_scenario(**settings: Any) -> ESDPGangScenario:
    """``esdp-gang-small-v1``: a size at which every slot's optimum is found in no time."""
    small = {
        "job_types": 5, "servers": 8, "channels": 6, "tasks": (2, 4), "share": (0.2, 0.6),
        "contention": 4.0,
    }  # fmt: skip
    return ESDPGangScenario(name="esdp-gang-small-v1", **{**small, **settings})

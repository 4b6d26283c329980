"""Scenarios of OGASched §4, and of OGASched §3.5 with gangs: every distribution is stated.

Table 1 gives sizes, α, β, ρ and the contention level, but neither the machines nor the requests:
those come from a selection of trace rows that is not published. Here they are uniform integers per
device type; the ranges are our choice (``ogasched-default-v1``), picked so that device types are
comparable and the baselines earn what Table 2 reports, or those of the authors' early code
(``ogasched-authors-v2``, requests continuous), where memory, up to 512 units, dominates everything.
``ogasched-authors-v1`` has other ranges, which were mistaken for theirs.

The paper defines gangs but runs no experiment with them, so everything there is our choice
(``ogasched-gang-v1``). Servers, utilities, overhead and arrivals are those of
``ogasched-default-v1``. A task's request is a part of a *model server*, drawn among those that its
job type connects to, so that it fits there at least. Contention is set by how many job types want
the same servers.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from gangwise.core.arrays import Floats
from gangwise.core.cluster import Channels, Cluster
from gangwise.core.feedback import Delivery
from gangwise.core.limits import Count, SlotCount
from gangwise.core.settings import require_range
from gangwise.core.simulation import Streams
from gangwise.core.workload import BernoulliArrivals, BinomialArrivals, OnOffArrivals, Workload
from gangwise.gain_overhead.environment import GainOverheadInstance
from gangwise.gain_overhead.problem import GainOverheadProblem, Utilities
from gangwise.gangs.environment import GangInstance
from gangwise.gangs.problem import GangProblem
from gangwise.scenarios import drawing
from gangwise.scenarios.drawing import DrawnScenario, device_names, draw_gangs

DEVICES = ("cpu", "mem", "gpu", "npu", "tpu", "fpga")
KINDS = ("linear", "log", "reciprocal", "poly")
OUR_MOST = (24, 48, 16, 16, 16, 8)
GUESSED_MOST = (64, 512, 16, 16, 8, 4)
AUTHORS_LEAST, AUTHORS_MOST = (1, 2, 0, 0, 0, 0), (128, 512, 64, 8, 8, 4)


class RewardSettings(BaseModel):
    """Settings of gain and overhead, of jobs and of gangs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alpha: tuple[float, float] = Field(
        (1.0, 1.5), description="α of each server and device type: uniform"
    )
    beta: tuple[float, float] = Field((0.3, 0.5), description="β of each device type: uniform")
    utility: Literal["mixed", "linear", "log", "reciprocal", "poly"] = Field(
        "mixed", description="mixed: uniform among the four, per server and device type"
    )

    @model_validator(mode="after")
    def _rewards(self) -> Self:
        require_range("alpha", self.alpha, positive=True)
        require_range("beta", self.beta)
        return self


class Settings(RewardSettings):
    """Parameters of the generator, with the distribution of everything it draws."""

    job_types: Count = Field(10, description="|L|")
    servers: Count = Field(128, description="|R|")
    most: tuple[Count, ...] = Field(
        OUR_MOST,
        min_length=1,
        description="capacity of a server, and request of a job before "
        "contention, of device type k: uniform integer in least[k]..most[k]",
    )
    least: tuple[NonNegativeInt, ...] = Field(
        (), description="least[k] of the above; all 0 where nothing is given"
    )
    requests: Literal["integer", "continuous"] = Field(
        "integer", description="continuous: requests are uniform in [least[k], most[k]]"
    )
    contention: float = Field(10.0, gt=0, description="multiplies every request")
    density: float = Field(
        2.5,
        gt=0,
        description="mean channels per server: each (job type, server) is a channel "
        "with probability density/|L|; a job type without any gets one server, uniform",
    )
    rho: float = Field(0.7, ge=0, le=1, description="probability that a job of a type arrives")
    arrivals: Literal["bernoulli", "multiple", "bursts"] = Field(
        "bernoulli",
        description="bernoulli: one job at most; multiple: binomial(most_jobs, ρ) "
        "jobs; bursts: Bernoulli(ρ) while on, geometric on and off periods of mean 20 slots",
    )
    most_jobs: Count = Field(3, description="J_l for arrivals = multiple")
    moving: float = Field(
        0.0,
        ge=0,
        description="charge for each device that a job gets anew while it stays; jobs stay with "
        "arrivals = bursts and rho = 1, 20 slots on average",
    )
    delay: float = Field(0.0, ge=0, description="slots until feedback comes")
    delay_kind: Literal["constant", "geometric"] = Field("constant")
    loss: float = Field(0.0, ge=0, le=1, description="probability that feedback never comes")
    slots: SlotCount = Field(2000, description="T unless told otherwise")

    @model_validator(mode="after")
    def _ranges(self) -> Settings:
        if self.least and (
            len(self.least) != len(self.most)
            or any(low > high for low, high in zip(self.least, self.most))
        ):
            raise ValueError(
                f"least {self.least} must be one number for each of most {self.most}, none larger"
            )
        if self.density > self.job_types:
            raise ValueError(f"density {self.density} exceeds the {self.job_types} job types")
        return self


class OGASchedScenario(DrawnScenario[Settings]):
    """Scenario of OGASched §4: draws instances as :class:`Settings` says.

    Examples
    --------
    >>> instance = OGASchedScenario(servers=16, job_types=4).instance(seed=0)
    >>> instance.problem.cluster.capacity.shape
    (16, 6)
    """

    family = "gain_overhead"
    version = "ogasched-default-v1"
    settings_model = Settings

    def instance(self, seed: int) -> GainOverheadInstance:
        """Draw the instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, len(s.most)
        most = np.array(s.most)
        least = np.array(s.least or (0,) * K)
        capacity = rng.integers(least, most + 1, (R, K)).astype(np.float64)
        requests = (
            rng.uniform(least, most, (L, K))
            if s.requests == "continuous"
            else rng.integers(least, most + 1, (L, K)).astype(np.float64)
        )
        requests[~requests.any(axis=1), 0] = 1.0
        problem = draw_problem(s, rng, capacity, requests * s.contention, s.density, s.moving)
        late = Delivery(s.delay, s.delay_kind, s.loss)
        return GainOverheadInstance(problem, self._workload(L), late)

    def _workload(self, L: int) -> Workload:
        s = self.settings
        rho = np.full(L, s.rho)
        if s.arrivals == "multiple":
            return BinomialArrivals(rho, np.full(L, s.most_jobs))
        return OnOffArrivals(rho) if s.arrivals == "bursts" else BernoulliArrivals(rho)


def draw_problem(
    s: RewardSettings,
    rng: np.random.Generator,
    capacity: Floats,
    requests: Floats,
    density: float,
    moving: float = 0.0,
) -> GainOverheadProblem:
    """Channels, utilities and overhead, drawn as :class:`Settings` says.

    Parameters
    ----------
    capacity : ndarray of shape [R, K]
    requests : ndarray of shape [L, K]
        With contention.
    density : float
        Mean channels per server.
    moving : float
        See :class:`Settings`.
    """
    (R, K), L = capacity.shape, len(requests)
    mask = rng.random((L, R)) < density / L
    lonely = ~mask.any(axis=1)
    mask[lonely, rng.integers(0, R, L)[lonely]] = True
    kind = (
        rng.integers(0, len(KINDS), (R, K))
        if s.utility == "mixed"
        else np.full((R, K), KINDS.index(s.utility))
    )
    return GainOverheadProblem(
        Cluster(capacity, device_names(DEVICES, K)),
        requests,
        Channels.of_mask(mask),
        Utilities(kind, rng.uniform(*s.alpha, (R, K))),
        rng.uniform(*s.beta, (K,)),
        moving=moving,
    )


def authors_scenario(**settings: Any) -> OGASchedScenario:
    """``ogasched-authors-v2``: the device ranges of the authors' early code."""
    ranges = {"least": AUTHORS_LEAST, "most": AUTHORS_MOST, "requests": "continuous"}
    return OGASchedScenario(name="ogasched-authors-v2", **{**ranges, **settings})


def guessed_scenario(**settings: Any) -> OGASchedScenario:
    """``ogasched-authors-v1``: what v2 was taken to be; kept so that its results can be found."""
    return OGASchedScenario(name="ogasched-authors-v1", **{"most": GUESSED_MOST, **settings})


class OGASchedGangSettings(drawing.GangSettings, RewardSettings):
    """Parameters of the generator, with the distribution of everything it draws."""

    job_types: drawing.JobTypes = 10
    servers: drawing.Servers = 128
    most: drawing.GangCapacity = OUR_MOST
    share: drawing.Share = (0.2, 0.8)
    channels: drawing.ManyChannels = 16
    contention: drawing.Contention = 5.0
    arrivals: Literal["bernoulli", "bursts"] = Field(
        "bernoulli",
        description="bursts: Bernoulli(ρ) while on, geometric on and off periods of mean 20 slots",
    )
    time_limit: drawing.TimeLimit = 60.0
    slots: drawing.Horizon = 300


class GangScenario(DrawnScenario[OGASchedGangSettings]):
    """Scenario of OGASched §3.5: draws instances as :class:`OGASchedGangSettings` says.

    Examples
    --------
    >>> instance = GangScenario(servers=12, job_types=5).instance(seed=0)
    >>> instance.problem.cluster.capacity.shape, instance.problem.L
    ((12, 6), 5)
    """

    family = "gain_overhead_gang"
    version = "ogasched-gang-v1"
    settings_model = OGASchedGangSettings

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

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

from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from gangwise.core.arrays import Floats
from gangwise.core.settings import Count, SlotCount
from gangwise.core.simulation import Streams
from gangwise.core.workload import BinomialArrivals, Channels, Cluster
from gangwise.papers.gain_overhead.problem import (
    GainOverheadInstance,
    GainOverheadProblem,
    Utilities,
)
from gangwise.papers.gangs.environment import GangInstance
from gangwise.papers.gangs.problem import GangProblem
from gangwise.papers.scenarios import drawing

DEVICES = ("cpu", "mem", "gpu", "npu", "tpu", "fpga")
OUR_MOST = (24, 48, 16, 16, 16, 8)
AUTHORS_MOST = (128, 512, 64, 8, 8, 4)


class OGASchedSettings(drawing.RewardSettings, drawing.FeedbackSettings):
    job_types: Count = 10
    servers: Count = 128
    most: tuple[Count, ...] = Field(OUR_MOST, min_length=1)
    least: tuple[NonNegativeInt, ...] = ()
    requests: Literal["integer", "continuous"] = "integer"
    contention: float = Field(10.0, gt=0)
    density: float = Field(2.5, gt=0)
    rho: drawing.Rho = 0.7
    arrivals: Literal["bernoulli", "multiple", "bursts"] = "bernoulli"
    most_jobs: Count = 3
    moving: float = Field(0.0, ge=0)
    slots: SlotCount = 2000

    @model_validator(mode="after")
    def _ranges(self) -> OGASchedSettings:
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


class OGASchedScenario(drawing.DrawnScenario[OGASchedSettings]):
    """Scenario of OGASched §4: draws instances as :class:`OGASchedSettings` says."""

    family = "gain_overhead"
    version = "ogasched-default-v1"
    settings_model = OGASchedSettings

    def instance(self, seed: int) -> GainOverheadInstance:
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
        workload = drawing.arrivals_of(s.arrivals, s.rho, L)
        if s.arrivals == "multiple":
            workload = BinomialArrivals(np.full(L, s.rho), np.full(L, s.most_jobs))
        return GainOverheadInstance(problem, workload, s.delivery)


def draw_problem(
    s: drawing.RewardSettings,
    rng: np.random.Generator,
    capacity: Floats,
    requests: Floats,
    density: float,
    moving: float = 0.0,
) -> GainOverheadProblem:
    """Channels, utilities and overhead, drawn as :class:`OGASchedSettings` says.

    ``capacity`` is of shape [R, K], and ``requests``, with contention, of shape [L, K].
    """
    (R, K), L = capacity.shape, len(requests)
    channels = drawing.draw_channels(rng, (L, R), density / L)
    kind = s.draw_kinds(rng, (R, K))
    utilities, beta = Utilities(kind, rng.uniform(*s.alpha, (R, K))), rng.uniform(*s.beta, (K,))
    cluster = Cluster(capacity, drawing.device_names(DEVICES, K))
    return GainOverheadProblem(cluster, requests, channels, utilities, beta, moving=moving)


class OGASchedGangSettings(drawing.GangSettings, drawing.RewardSettings):
    job_types: Count = 10
    servers: Count = 128
    most: drawing.GangCapacity = OUR_MOST
    share: tuple[float, float] = (0.2, 0.8)
    channels: Count = 16
    contention: PositiveFloat = 5.0
    arrivals: drawing.Bursts = "bernoulli"
    time_limit: PositiveFloat = 60.0
    slots: SlotCount = 300


class GangScenario(drawing.DrawnScenario[OGASchedGangSettings]):
    """Scenario of OGASched §3.5: draws instances as :class:`OGASchedGangSettings` says."""

    family = "gain_overhead_gang"
    version = "ogasched-gang-v1"
    settings_model = OGASchedGangSettings

    def instance(self, seed: int) -> GangInstance:
        s, rng = self.settings, Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, len(s.most)
        gangs = drawing.draw_gangs(s, rng)
        kind = s.draw_kinds(rng, (R, K))
        cluster = Cluster(gangs.capacity, drawing.device_names(DEVICES, K))
        tasks = (gangs.job_type, gangs.requests, rng.integers(1, gangs.tasks + 1))
        utilities = Utilities(kind, rng.uniform(*s.alpha, (R, K)))
        beta, channels = rng.uniform(*s.beta, K), Channels.of_mask(gangs.mask)
        problem = GangProblem(cluster, *tasks, channels, utilities, beta)
        return GangInstance(problem, drawing.arrivals_of(s.arrivals, s.rho, L), s.time_limit)

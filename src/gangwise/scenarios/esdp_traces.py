"""ESDP on measured speeds: throughputs of jobs on GPU models, and iteration times of real workers.

Both need a folder with the public files (see the modules under ``gangwise.traces``); what the files
do not say is drawn, as the settings state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from gangwise.core.cluster import Channels
from gangwise.core.errors import ScenarioError
from gangwise.core.streams import Streams
from gangwise.core.workload import BernoulliArrivals
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.pool import Pool
from gangwise.fluctuating_speeds.replayed import ReplayedSpeeds
from gangwise.fluctuating_speeds.speeds import NormalSpeeds
from gangwise.scenarios.drawn import DrawnScenario, checked
from gangwise.traces.gavel_throughputs import GavelThroughputs
from gangwise.traces.measured_speeds import (
    pooled_instance,
    relative_throughput,
    scarce,
    some_of,
)
from gangwise.traces.mini_batch_time import MiniBatchTime

__all__ = ["GavelScenario", "GavelSettings", "MiniBatchScenario", "MiniBatchSettings"]


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str = Field("", description="where the files of the trace are")
    fraction: float = Field(
        0.5, gt=0, description="c_k = fraction · Σ_e a_k, at least the largest request"
    )
    rho: float = Field(0.9, ge=0, le=1, description="probability that a job of a type arrives")
    cost_share: float = Field(
        0.3, ge=0, description="supply costs the same per GPU; the mean cost of a channel is this "
        "share of the mean utility",
    )  # fmt: skip
    slots: PositiveInt = Field(2000, description="T unless told otherwise")


class GavelSettings(_Common):
    """Parameters, with the distribution of everything that is drawn."""

    job_types: PositiveInt = Field(8, description="jobs of the table, uniform without replacement")
    servers: PositiveInt = Field(
        40, description="each of one GPU model, as many of each as possible, in random order"
    )
    density: float = Field(
        0.1, gt=0, le=1, description="probability that a (job type, server) on which the job runs "
        "is a channel; a job type without any gets one of these servers, uniform",
    )  # fmt: skip
    spread: float = Field(
        0.25, ge=0, description="σ / μ of a channel: normal; the table has no variances, so this "
        "is our choice",
    )  # fmt: skip


class MiniBatchSettings(_Common):
    """Parameters, with the distribution of everything that is drawn."""

    blocks: PositiveInt = Field(
        1, description="1: a speed is drawn from all that was recorded of a worker; more: the "
        "slots walk through so many blocks of the record, which keeps its drift",
    )  # fmt: skip


def _described(files: Mapping[str, str], settings: _Common) -> dict[str, Any]:
    """Which files, by their contents: where they are is not a part of a scenario."""
    return {"files": dict(files), **settings.model_dump(mode="json", exclude={"folder"})}


def _folder(name: str, settings: _Common, what: str) -> str:
    if not settings.folder:
        raise ScenarioError(f"scenario {name!r} needs folder=, a folder with {what}")
    return settings.folder


class GavelScenario(DrawnScenario[GavelSettings]):
    """Measured throughputs: job types are jobs of Gavel's table, servers are of a GPU model.

    The mean utility of a channel is the job's throughput on the server's model relative to its best
    model. Device types are the GPU models; a channel holds as many GPUs as its job was measured on.

    Parameters
    ----------
    folder : path
        With ``simulation_throughputs.json``, plain or gzipped.
    **settings
        Fields of :class:`GavelSettings`.
    """

    family = "fluctuating_speeds"

    def __init__(self, *, name: str = "esdp-gavel-v1", **settings: Any):
        super().__init__(name, checked(GavelSettings, name, settings))
        self.table = GavelThroughputs(_folder(name, self.settings, "simulation_throughputs.json"))
        if self.settings.job_types > len(self.table.jobs):
            raise ScenarioError(
                f"scenario {name!r}: the table has {len(self.table.jobs)} jobs that run somewhere; "
                f"{self.settings.job_types} job types were asked for"
            )

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        """Draw the instance of a seed."""
        s, table, rng = self.settings, self.table, Streams.of(seed).instance
        L, R, models = s.job_types, s.servers, self.table.models
        jobs = [table.jobs[i] for i in rng.permutation(len(table.jobs))[:L]]
        model = rng.permutation(np.arange(R) % len(models))
        speed = relative_throughput(table, jobs)[:, model]
        for l in np.flatnonzero(~(speed > 0).any(axis=1)):
            raise ScenarioError(
                f"job {jobs[l]} runs on none of the {R} servers; have {len(models)} or more"
            )
        mask = some_of(speed > 0, s.density, rng)
        channels = Channels.of_mask(mask)
        requests = np.zeros((len(channels), len(models)))
        gpus = np.array([float(job.gpus) for job in jobs])
        requests[np.arange(len(channels)), model[channels.server]] = gpus[channels.job_type]
        mean = speed[channels.job_type, channels.server]
        servers = tuple(f"{models[m]}-{r}" for r, m in enumerate(model))
        names = tuple(f"{job.name} x {job.gpus}" for job in jobs)
        return pooled_instance(
            Pool(scarce(requests, s.fraction), models, servers), requests, channels, names,
            NormalSpeeds(mean, s.spread), float(mean.mean()), s.cost_share,
            BernoulliArrivals(np.full(L, s.rho)),
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """The settings, and the file that they were applied to."""
        return _described({self.table.file.name: self.table.digest}, self.settings)


class MiniBatchScenario(DrawnScenario[MiniBatchSettings]):
    """Recorded iteration times: job types are jobs, servers are their workers' places.

    Each worker is a server of its own with one channel, from its job. The utility of a channel is
    the worker's recorded speed relative to the fastest iteration of its job; it holds what the
    worker requested of a GPU.

    Parameters
    ----------
    folder : path
        With ``job_1_norm.csv`` and so on, plain or gzipped.
    **settings
        Fields of :class:`MiniBatchSettings`.
    """

    family = "fluctuating_speeds"

    def __init__(self, *, name: str = "esdp-mini-batch-v1", **settings: Any):
        super().__init__(name, checked(MiniBatchSettings, name, settings))
        self.trace = MiniBatchTime(_folder(name, self.settings, "job_1_norm.csv and so on"))

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        """The recorded workers; only arrivals and draws depend on the seed."""
        s, workers = self.settings, self.trace.workers
        jobs = tuple(dict.fromkeys(w.job for w in workers))
        mask = np.array([[w.job == job for w in workers] for job in jobs])
        speeds = ReplayedSpeeds([w.speed for w in workers], s.blocks, s.slots)
        mean = float(np.mean([w.speed.mean() for w in workers]))
        requests = np.array([[w.gpus] for w in workers])
        pool = Pool(scarce(requests, s.fraction), ("gpu",), tuple(w.name for w in workers))
        return pooled_instance(
            pool, requests, Channels.of_mask(mask), jobs, speeds, mean, s.cost_share,
            BernoulliArrivals(np.full(len(jobs), s.rho)),
        )  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """The settings, and the files that they were applied to."""
        return _described(self.trace.digests, self.settings)

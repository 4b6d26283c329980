"""Scenarios of the papers, drawn or on rows of traces: OGASched §4 and §3.5, ESDP §4 and §3.4, OPM
§VI.

Table 1 of OGASched gives sizes, α, β, ρ and the contention level, but neither the machines nor the
requests: those come from a selection of trace rows that is not published. Here they are uniform
integers per device type; the ranges are our choice (``ogasched-default-v1``), picked so that
device types are comparable and the baselines earn what Table 2 reports, or those of the authors'
early code (``ogasched-authors-v2``, requests continuous), where memory, up to 512 units, dominates
everything. ``ogasched-authors-v1`` has other ranges, which were mistaken for theirs.

The paper defines gangs but runs no experiment with them, so everything there is our choice
(``ogasched-gang-v1``). Servers, utilities, overhead and arrivals are those of
``ogasched-default-v1``. A task's request is a part of a *model server*, drawn among those that its
job type connects to, so that it fits there at least. Contention is set by how many job types want
the same servers.

Table 3 of ESDP gives sizes, density, ρ, the law of the utilities and bounds "2 and 1" on A and c.
Two of its numbers cannot be taken at their word. Capacities of 1 or 2 for the whole cluster would
let one or two of some 32 channels on, which contradicts α = 0.5: they are a fraction of the total
request here (``capacity`` has the other readings). Three costs around 0.5 for each channel exceed
what any channel brings: they are scaled by one factor, and the net utility is normalised
(see :mod:`gangwise.papers.fluctuating_speeds.problem`).

ESDP states gangs and runs no experiment with them. Sizes, mean utilities and their noise are
those of ESDP §4: 40 servers, 8 job types, 3 device types, Z ~ N(μ, μ/2) with μ ~ U(0.1, 1). Its
supply costs exceed its utilities, so here they are 0.3 of the mean utility on average, and what is
left is clipped to [0, 1]. Servers, tasks and contention are our choice.

Measured speeds are iteration times of real workers, in a folder of public files; what these do not
say is drawn, as the settings state.

On synthetic jobs of OPM (``opm-default-v1``) arrivals are Poisson with bounded Pareto lifetimes,
added until budgets reach a load, where the paper takes arrivals and deadlines from a public trace
(``opm-google-v1``, :mod:`gangwise.papers.scenarios.approximation_jobs`). Where the paper leaves
something open, the setting says so, because it decides the result: with every machine priced at
twice its own mean rate (``pricing = realised``), knowing mean rates is worth nothing; with one
price for all (``population``) an estimate earns what it can tell about up and down periods, whose
length in slots (``time_scale``) is not stated either.

In the setting of Theorem 2, Theorem 3 and Corollary 1 (``opm-theorem-v1``) the optimum is known and
budgets are not kept. All jobs are there from slot 0 to slot T, rates are independent between slots
with fixed means, and OPS/OPM (7) is a small programme in closed form. Utilities are Lipschitz
unless the square root is asked for, which the theorems do not cover. Tasks that a budget cannot pay
run all the same, since what the theorems bound is by how much budgets are exceeded.

OGASched §4 and ESDP §4 take machines and jobs from cluster-trace-v2018 and cluster-trace-gpu-v2020.
Which rows is not published ("carefully selected from the trace to reflect heterogeneity"), so every
choice is a setting of :class:`RowSettings`. Neither trace has NPUs, TPUs or FPGAs, and v2018 has no
GPUs: what OGASched has of those on its servers, and its jobs request, is drawn. So are channels,
utilities, costs and overhead, as in ``ogasched-default-v1`` and ``esdp-default-v1``.

Machines are complete in the files. Of v2018 there are the rows of some jobs with precedence; of
gpu-v2020 no rows of jobs, unless the folder has them: then those of its synthetic twin are taken
(:mod:`gangwise.logs.twins`), and those of the twins for all without a folder.

Scenario files, in TOML, are a scenario with other settings, a trace, or a cluster of your own.
``docs/how-to/scenario-file.md`` shows the first and the last; a file with ``trace`` (files of a
trace, a path from this file on) may have ``family``, ``format`` and ``[settings]``, the arguments
of :func:`~gangwise.papers.scenarios.opening.open_trace`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from gangwise.core import contracts, errors, registry, settings, simulation
from gangwise.core import workload as workloads
from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import Count, SlotCount, StrictSettings, errors_of, read_toml
from gangwise.core.simulation import Streams
from gangwise.core.workload import (
    BernoulliArrivals,
    BinomialArrivals,
    Channels,
    Cluster,
    JobType,
    ReplayedArrivals,
    Server,
    Workload,
)
from gangwise.logs.formats.alibaba_v2018 import AlibabaV2018
from gangwise.logs.formats.tabular import reader as tabular
from gangwise.logs.formats.training import MiniBatchTime
from gangwise.logs.twins import completed, twin
from gangwise.papers.approximation_jobs import offline
from gangwise.papers.approximation_jobs import problem as problems
from gangwise.papers.approximation_jobs.environment import ApproximationInstance, rate_generator
from gangwise.papers.fluctuating_speeds import problem as speed_kinds
from gangwise.papers.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.papers.gain_overhead.problem import (
    GainOverheadInstance,
    GainOverheadProblem,
    Utilities,
)
from gangwise.papers.gangs.policies import GangInstance, GangSpeedsInstance
from gangwise.papers.gangs.problem import GangProblem, GangSpeedsProblem
from gangwise.papers.scenarios import drawing
from gangwise.papers.scenarios.drawing import DrawnScenario, RewardSettings, Rho
from gangwise.papers.scenarios.opening import limited_capacity, open_trace, pooled_instance

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
        s, rng = self.settings, simulation.Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, len(s.most)
        most = np.array(s.most)
        least = np.array(s.least or (0,) * K)
        capacity = rng.integers(least, most + 1, (R, K)).astype(np.float64)
        requests = (
            rng.uniform(least, most, (L, K))
            if s.requests == "continuous"
            else rng.integers(least, most + 1, (L, K)).astype(np.float64)
        )
        # A job type that requests nothing would never hold a device.
        requests[~requests.any(axis=1), 0] = 1.0
        problem = draw_problem(s, rng, capacity, requests * s.contention, s.density, s.moving)
        workload = drawing.arrivals_of(s.arrivals, s.rho, L)
        if s.arrivals == "multiple":
            # OGASched §3.4: J_l chances in a slot, each a job with ρ.
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
    # Density is job types per server (OGASched Table 2), so each
    # channel has the probability density / L.
    channels = drawing.draw_channels(rng, (L, R), density / L)
    # In this order: the draws of a seed are part of the scenario's version.
    kind = s.draw_kinds(rng, (R, K))
    utilities, beta = Utilities(kind, rng.uniform(*s.alpha, (R, K))), rng.uniform(*s.beta, (K,))
    cluster = Cluster(capacity, drawing.device_names(DEVICES, K))
    return GainOverheadProblem(cluster, requests, channels, utilities, beta, moving=moving)


class OGASchedGangSettings(drawing.GangSettings, drawing.RewardSettings):
    job_types: Count = 10
    servers: Count = 128
    most: drawing.GangCapacity = OUR_MOST
    share: drawing.TaskShare = (0.2, 0.8)
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
        s, rng = self.settings, simulation.Streams.of(seed).instance
        L, R, K = s.job_types, s.servers, len(s.most)
        gangs = drawing.draw_gangs(s, rng)
        kind = s.draw_kinds(rng, (R, K))
        cluster = Cluster(gangs.capacity, drawing.device_names(DEVICES, K))
        # m_l is uniform between one task and all of them.
        tasks = (gangs.job_type, gangs.requests, rng.integers(1, gangs.tasks + 1))
        utilities = Utilities(kind, rng.uniform(*s.alpha, (R, K)))
        beta, channels = rng.uniform(*s.beta, K), Channels.of_mask(gangs.mask)
        problem = GangProblem(cluster, *tasks, channels, utilities, beta)
        return GangInstance(problem, drawing.arrivals_of(s.arrivals, s.rho, L), s.time_limit)


# ESDP


class ESDPSettings(drawing.FeedbackSettings):
    job_types: Count = 8
    servers: Count = 40
    devices: Count = 3
    density: float = Field(0.1, gt=0, le=1)
    requests: drawing.Counts = (1, 2)
    capacity: Literal["fraction", "normalised", "literal"] = "fraction"
    fraction: float = Field(0.5, gt=0)
    rho: drawing.Rho = 0.9
    arrivals: drawing.Bursts = "bernoulli"
    speeds: Literal["normal", "bernoulli", "beta", "jumping", "waving"] = "normal"
    mean: settings.PositiveRange = (0.1, 1.0)
    spread: float = Field(0.5, ge=0)
    period: SlotCount = 1000
    amplitude: float = Field(0.5, ge=0, le=1)
    cost: Literal["linear", "per-channel"] = "linear"
    cost_share: float | None = Field(0.3, ge=0)
    payment: float = Field(0.0, ge=0)
    normalise: Literal["clip", "affine", "none"] = "clip"
    slots: SlotCount = 2000

    @model_validator(mode="after")
    def _ranges(self) -> ESDPSettings:
        if self.speeds in ("bernoulli", "beta") and self.mean[1] > 1:
            raise ValueError(f"mean must not exceed 1 where speeds are {self.speeds}")
        return self


class ESDPScenario(drawing.DrawnScenario[ESDPSettings]):
    """Scenario of ESDP §4: draws instances as :class:`ESDPSettings` says."""

    family = "fluctuating_speeds"
    version = "esdp-default-v1"
    settings_model = ESDPSettings

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        s, rng = self.settings, simulation.Streams.of(seed).instance
        R = s.servers
        channels = drawing.draw_channels(rng, (s.job_types, R), s.density)
        E = len(channels)
        requests, workload = self._requests(rng, channels.job_type)
        unit = self._unit(rng)
        capacity = {
            "fraction": np.maximum(
                (s.fraction * requests.sum(axis=0)).round(), requests.max(axis=0)
            ),
            # The bounds 1 and 2 of Table 3 per channel, times α|E|
            # with α = 1/2: as many as can be on.
            "normalised": (unit * 0.5 * E).round(),
            "literal": np.floor(unit + 0.5),
        }[s.capacity]
        mean = rng.uniform(*s.mean, E)
        # Both kinds of cost are drawn whichever is used, so that
        # what follows is the same for either.
        price = np.maximum(rng.normal(0.5, 0.1, s.devices), 0.0)
        prices = np.maximum(rng.normal(0.5, 0.1, requests.shape), 0.0)
        cost = (
            speed_kinds.linear_cost(requests, price) if s.cost == "linear" else prices.sum(axis=1)
        )
        if s.cost_share is not None:
            # One factor for all channels keeps the proportions of Table 3's costs.
            cost *= s.cost_share * float(mean.mean()) / cost.mean()
        speeds = self._speeds(rng, mean)
        servers = tuple(f"server-{r}" for r in range(R))
        problem = speed_kinds.FluctuatingSpeedsProblem(
            speed_kinds.Pool(capacity, drawing.device_names(DEVICES[:3], s.devices), servers),
            requests,
            channels,
            cost,
        )
        scale, payment = (
            speed_kinds.Scale.of(s.normalise, speeds, cost),
            s.payment * float(mean.mean()),
        )
        return FluctuatingSpeedsInstance(problem, workload, speeds, scale, s.delivery, payment)

    def _requests(self, rng: np.random.Generator, job_type: Ints) -> tuple[Floats, Workload]:
        """Requests of the channels of these job types, shape [E, K], and the workload."""
        s = self.settings
        low, high = s.requests
        requests = rng.integers(low, high + 1, (job_type.size, s.devices)).astype(np.float64)
        return requests, drawing.arrivals_of(s.arrivals, s.rho, s.job_types)

    def _unit(self, rng: np.random.Generator) -> Floats:
        """Capacities between the bounds 1 and 2 of Table 3, shape [K]."""
        return rng.uniform(1.0, 2.0, self.settings.devices)

    def _speeds(self, rng: np.random.Generator, mean: Floats) -> speed_kinds.Speeds:
        s = self.settings
        if s.speeds == "bernoulli":
            return speed_kinds.BernoulliSpeeds(mean)
        if s.speeds == "beta":
            # A Beta of mean 1 has no noise and no second parameter.
            return speed_kinds.BetaSpeeds(np.minimum(mean, 0.99))
        if s.speeds == "jumping":
            # At least two pieces, even in a run shorter than a period.
            begins = np.arange(0, max(s.slots, s.period + 1), s.period)
            # The first piece has the means that costs were scaled by.
            later = rng.uniform(*s.mean, (begins.size - 1, mean.size))
            return speed_kinds.PiecewiseSpeeds(np.vstack([mean, later]), begins, s.spread)
        if s.speeds == "waving":
            return speed_kinds.WavingSpeeds(
                mean, rng.random(mean.size), s.amplitude, s.period, s.spread
            )
        return speed_kinds.NormalSpeeds(mean, s.spread)


class ESDPGangSettings(drawing.GangSettings):
    job_types: Count = 8
    servers: Count = 40
    most: drawing.GangCapacity = (24, 48, 16)
    share: drawing.TaskShare = (0.3, 0.9)
    channels: Count = 10
    contention: PositiveFloat = 4.0
    mean: settings.PositiveRange = (0.1, 1.0)
    spread: float = Field(0.5, ge=0)
    cost: float = Field(0.3, ge=0)
    task_cost: float = Field(0.0, ge=0)
    time_limit: PositiveFloat = 20.0
    slots: SlotCount = 2000


class ESDPGangScenario(drawing.DrawnScenario[ESDPGangSettings]):
    """Scenario of ESDP §3.4: draws instances as :class:`ESDPGangSettings` says."""

    family = "fluctuating_speeds_gang"
    version = "esdp-gang-v1"
    settings_model = ESDPGangSettings

    def instance(self, seed: int) -> GangSpeedsInstance:
        s, rng = self.settings, simulation.Streams.of(seed).instance
        L, K = s.job_types, len(s.most)
        gangs = drawing.draw_gangs(s, rng)
        minimum = rng.integers(1, gangs.tasks + 1)
        channels = Channels.of_mask(gangs.mask)
        speeds = speed_kinds.NormalSpeeds(rng.uniform(*s.mean, len(channels)), s.spread)
        # N(0.5, 0.1) of Table 3 up to a factor, which the next line sets.
        cost = np.maximum(rng.normal(1.0, 0.2, (len(channels), K)), 0.0).sum(axis=1)
        cost *= s.cost * speeds.mean.mean() / max(float(cost.mean()), 1e-12)
        scale = speed_kinds.Scale.of("clip", speeds, cost)
        # A task's own cost is in proportion to what it requests, in units of the largest server.
        share = (gangs.requests / np.maximum(gangs.capacity.max(axis=0), 1.0)).sum(axis=1)
        task_cost = (
            s.task_cost * speeds.mean.mean() / (scale.high - scale.low) * share / share.mean()
        )
        cluster, requests = (
            Cluster(gangs.capacity, drawing.device_names(DEVICES[:3], K)),
            gangs.requests,
        )
        problem = GangSpeedsProblem(
            cluster, gangs.job_type, requests, minimum, channels, cost, task_cost=task_cost
        )
        return GangSpeedsInstance(
            problem, BernoulliArrivals(np.full(L, s.rho)), speeds, scale, time_limit=s.time_limit
        )


class MiniBatchSettings(StrictSettings):
    folder: str = ""
    fraction: float = Field(0.5, gt=0)
    rho: drawing.Rho = 0.9
    cost_share: float = Field(0.3, ge=0)
    slots: SlotCount = 2000
    order: Literal["recorded", "drawn"] = "recorded"
    blocks: Count = 1

    @model_validator(mode="after")
    def _blocks(self) -> MiniBatchSettings:
        if self.blocks > 1 and self.order == "recorded":
            raise ValueError("blocks are for order=drawn; the order of the record needs none")
        return self


class MiniBatchScenario(drawing.DrawnScenario[MiniBatchSettings]):
    """Mini-batches: recorded iteration times; job types are jobs, servers their workers' places.

    Each worker is a server of its own with one channel, from its job. The utility of a channel is
    the worker's recorded speed relative to the fastest iteration of its job; it holds what the
    worker requested of a GPU.

    ``folder`` is one with ``job_1_norm.csv`` and so on, plain or gzipped.
    """

    version = "esdp-mini-batch-v1"
    settings_model = MiniBatchSettings
    family = "fluctuating_speeds"

    def __init__(self, *, name: str = "", **settings: Any):
        super().__init__(name=name, **settings)
        folder = self.settings.folder
        if not folder:
            needs = "a folder with job_1_norm.csv and so on"
            raise errors.ScenarioError(f"scenario {self.name!r} needs folder=, {needs}")
        self.trace = MiniBatchTime(folder)

    def describe(self) -> dict[str, Any]:
        """The settings, and the files by their contents: where they are is no part of it."""
        files = dict(self.trace.digests)
        return {"files": files, **self.settings.model_dump(mode="json", exclude={"folder"})}

    def instance(self, seed: int) -> FluctuatingSpeedsInstance:
        """The recorded workers; arrivals, and where their records begin, depend on the seed."""
        s, workers = self.settings, self.trace.workers
        jobs = tuple(dict.fromkeys(w.job for w in workers))
        # A worker is a server with one channel: that of its own job.
        mask = np.array([[w.job == job for w in workers] for job in jobs])
        series, group = [w.speed for w in workers], np.array([jobs.index(w.job) for w in workers])
        speeds: speed_kinds.Speeds = (
            speed_kinds.RecordedSpeeds.anywhere(series, group, simulation.Streams.of(seed).instance)
            if s.order == "recorded"
            else speed_kinds.ReplayedSpeeds(series, s.blocks, s.slots)
        )
        requests = np.array([[w.gpus] for w in workers])
        pool = speed_kinds.Pool(
            limited_capacity(requests, s.fraction), ("gpu",), tuple(w.name for w in workers)
        )
        return pooled_instance(
            pool,
            requests,
            Channels.of_mask(mask),
            jobs,
            speeds,
            s.cost_share * float(np.mean([w.speed.mean() for w in workers])),
            BernoulliArrivals(np.full(len(jobs), s.rho)),
        )


# OPS and OPM


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
        rates = problems.GammaPeriods(s.machines, time_scale=s.time_scale, per_period=s.per_period)
        # Realised prices need the rates that a run with this seed will meet.
        prices = problems.price_machines(rates, s.pricing, s.slots, rate_generator(seed))
        drawn = s.model_dump(include={"beta", "q", "value", "lifetime"})
        # Load is a share of what all machines cost: with realised prices, of their mean.
        price = float(np.mean(prices))
        jobs = problems.SyntheticJobs(s.machines, s.slots, price, s.load, s.arrivals, **drawn)
        problem = problems.ApproximationProblem(prices, horizon=s.slots, enforce=s.enforce)
        return ApproximationInstance(problem, rates, jobs, comparators=offline.COMPARATORS)


PositiveShare = Annotated[tuple[float, float], settings.within("(0, 1]")]


class TheoremSettings(StrictSettings):
    machines: Count = 20
    slots: SlotCount = 4000
    jobs: Count = 1
    rho: float = Field(0.3, gt=0, le=1)
    utility: Literal["log", "sqrt"] = "log"
    value: settings.PositiveRange = (0.5, 1.0)
    rate: PositiveShare = (0.1, 0.9)
    price: PositiveShare = (0.5, 1.0)


class OPMTheoremScenario(drawing.DrawnScenario[TheoremSettings]):
    """The setting of the theorems: draws instances as :class:`TheoremSettings` says."""

    family = "approximation_jobs"
    version = "opm-theorem-v1"
    settings_model = TheoremSettings

    def instance(self, seed: int) -> ApproximationInstance:
        s, rng = self.settings, simulation.Streams.of(seed).instance
        means, prices = rng.uniform(*s.rate, s.machines), rng.uniform(*s.price, s.machines)
        # A single job's factor changes nothing but the unit of the regret.
        values = rng.uniform(*s.value, s.jobs) if s.jobs > 1 else np.ones(1)
        # ρ = B / (M T) of Theorem 2, shared by the jobs.
        budget = s.rho * s.machines * s.slots / s.jobs
        utilities: list[problems.Utility] = [
            problems.Log(v, 1.0) if s.utility == "log" else problems.Power(v, 0.5)
            for v in values.tolist()
        ]
        jobs = [problems.Job(n, 0, s.slots, budget, f) for n, f in enumerate(utilities)]
        problem = problems.ApproximationProblem(prices, horizon=s.slots, enforce=False)
        replayed = problems.ReplayedJobs(jobs)
        return ApproximationInstance(
            problem, problems.IidRates(means), replayed, comparators=offline.COMPARATORS
        )


class JobTypeSpec(StrictSettings):
    name: settings.Name
    requests: dict[str, float]
    arrival: float = Field(ge=0, le=1)
    most: Count = 1
    servers: list[str] | None = None


class UtilitySpec(StrictSettings):
    kind: Literal["linear", "log", "reciprocal", "poly"] = "log"
    alpha: PositiveFloat = 1.0


class ClusterFile(StrictSettings):
    """A scenario file with a cluster and job types of its own."""

    name: settings.Name
    slots: SlotCount = 1000
    servers: list[settings.Group] = Field(min_length=1)
    job_types: list[JobTypeSpec] = Field(min_length=1)
    overhead: dict[str, float] = Field({})
    utility: dict[str, UtilitySpec] = Field({})


class FixedScenario:
    """A scenario file with its own cluster: only arrivals depend on the seed."""

    family = "gain_overhead"

    def __init__(self, file: ClusterFile):
        self.file, self.name, self.slots = file, file.name, file.slots
        # Checked before the problem is built: a typing error may ask for millions.
        servers = sum(group.count for group in file.servers)
        settings.require_count(f"the number of servers of {file.name!r}", servers)
        cells = servers * len(file.job_types)
        settings.require_memory(
            settings.BYTES * cells,
            f"{file.name!r} of {cells} job types times servers",
            "fewer of them",
        )
        self._problem = _problem(file)

    def describe(self) -> dict[str, Any]:
        return self.file.model_dump(mode="json")

    def instance(self, seed: int) -> GainOverheadInstance:
        """The cluster, with arrivals that depend on the seed of the run."""
        types = self.file.job_types
        workload = BinomialArrivals(
            np.array([j.arrival for j in types]), np.array([j.most for j in types])
        )
        return GainOverheadInstance(self._problem, workload)


def _problem(file: ClusterFile) -> GainOverheadProblem:
    servers = [Server(name, group.devices) for group in file.servers for name in group.names]
    cluster = Cluster.of(servers)
    names = tuple(j.name for j in file.job_types)
    requests = workloads.request_matrix(
        [JobType(j.name, j.requests) for j in file.job_types], cluster.devices
    )
    # A channel has to be allowed by the file, and one job has to fit on the server whole.
    fits = Channels.by_fit(cluster, requests, names)
    mask = np.zeros(fits.shape, dtype=bool)
    mask[fits.job_type, fits.server] = True
    position = {name: r for r, name in enumerate(cluster.servers)}
    # A file names servers one by one, or a group of equal ones.
    groups = {g.name: [position[n] for n in g.names] for g in file.servers}
    for l, job_type in enumerate(file.job_types):
        if job_type.servers is not None:
            allowed = np.zeros(fits.shape[1], dtype=bool)
            for server in job_type.servers:
                if server in groups:
                    allowed[groups[server]] = True
                elif server in position:
                    allowed[position[server]] = True
                else:
                    raise errors.UnknownName("server", server, [*groups, *cluster.servers])
            mask[l] &= allowed
    for table in (file.overhead, file.utility):
        for device in table:
            if device not in cluster.devices:
                raise errors.UnknownName("device type", device, list(cluster.devices))
    utility = [file.utility.get(device, UtilitySpec()) for device in cluster.devices]
    R = len(cluster.servers)
    return GainOverheadProblem(
        cluster,
        requests,
        Channels.of_mask(mask),
        Utilities.of([[u.kind for u in utility]] * R, [[u.alpha for u in utility]] * R),
        np.array([file.overhead.get(device, 0.0) for device in cluster.devices]),
        names,
    )


def read_scenario(path: Path | str, settings: dict[str, Any] | None = None) -> contracts.Scenario:
    """Read a scenario file.

    ``settings`` win over those of a file with ``base`` or ``trace``; other files have none. Raises
    ScenarioError, which names the file and the entry at fault.
    """
    path = Path(path)
    content = read_toml(path)
    with errors_of(path):
        if "base" in content:
            arguments = _known(content, settings, base=str)
            scenario: contracts.Scenario = registry.create("scenario", content["base"], **arguments)
            return scenario
        if "trace" in content:
            arguments = _known(content, settings, trace=str, format=str, family=str)
            family = arguments.pop("family", content.get("family", ""))
            form = content.get("format", "")
            return open_trace(
                # Settings given by the caller win over those of the file.
                path.parent / content["trace"],
                trace=form,
                family=family,
                **arguments,
            )
        if settings:
            raise errors.ScenarioError(
                "settings can be changed only where the file names a base or a trace"
            )
        return FixedScenario(ClusterFile(**content))


def _known(
    content: dict[str, Any], settings: dict[str, Any] | None, **kinds: type
) -> dict[str, Any]:
    """Check that a file has these entries only; returns its settings, over which others win."""
    kinds["settings"] = dict
    for entry in sorted(set(content) - set(kinds)):
        raise errors.UnknownName("entry", entry, list(kinds))
    for entry, kind in kinds.items():
        if not isinstance(content.get(entry, kind()), kind):
            expected = "a text in quotes" if kind is str else "a table"
            raise errors.ScenarioError(f"{entry} is {content[entry]!r}; it must be {expected}")
    return {**content.get("settings", {}), **(settings or {})}


TRACES = {"v2018": "alibaba-v2018", "gpu-v2020": "alibaba-gpu-v2020"}
QUANTITIES = ("cpu", "mem", "gpu")
V2018_MEMORY = 512.0
"""GiB that 100, the memory of a machine of v2018, is taken to be: that of most of gpu-v2020."""
FLOOR = 1e-3
"""Added to shares before their logarithm is taken, in which rows are near or far."""


class RowSettings(StrictSettings):
    """Selection of rows of the traces, which the papers do not publish."""

    folder: str = ""
    machines: Literal["both", "gpu-v2020", "v2018"] = "both"
    jobs: Literal["both", "gpu-v2020", "v2018"] = "both"
    rows: Literal["varied", "uniform", "first"] = "varied"
    tasks: Literal["one", "whole"] = "one"


class TraceRows(NamedTuple):
    """Machines [M, 3] and jobs [N, 3] of a trace: cores, GiB and GPUs; when jobs came, ascending"""

    machines: Floats
    requests: Floats
    tasks: Floats
    created: Floats


@lru_cache(maxsize=8)
def rows_of(trace: str, folder: str) -> TraceRows:
    """All rows of a trace; what its files do not have is that of its synthetic twin."""
    place = Path(folder) / TRACES[trace]
    if not folder:
        tables = twin(TRACES[trace])
    elif trace == "v2018":
        tables = AlibabaV2018(place).scan()
    else:
        tables = tabular(TRACES[trace])(place).scan()
        tables = completed(tables, "jobs") if tables.jobs.is_empty() else tables
    # v2018 gives memory in per cent of a machine; GiB make it comparable with gpu-v2020.
    gib = np.array([1.0, V2018_MEMORY / 100 if trace == "v2018" else 1.0, 1.0])
    asks = pl.sum_horizontal(QUANTITIES) > 0
    # Ties by row, so that the order of the files does not matter.
    jobs = tables.jobs.drop_nulls(["created", *QUANTITIES]).filter(asks).sort("created", "row")
    if jobs.is_empty() or tables.servers.is_empty():
        raise ScenarioError(f"{place} has no machines, or no jobs of which the requests are known")
    return TraceRows(
        tables.servers.sort("row").select(QUANTITIES).fill_null(0.0).to_numpy() * gib,
        jobs.select(QUANTITIES).to_numpy() * gib,
        np.maximum(jobs["tasks"].fill_null(1).to_numpy().astype(np.float64), 1.0),
        jobs["created"].to_numpy().astype(np.float64),
    )


def largest_machine(folder: str) -> Floats:
    """The most cores, GiB and GPUs that any machine of either trace has."""
    most = [rows_of(trace, folder).machines.max(axis=0) for trace in TRACES]
    return np.asarray(np.max(most, axis=0))


def k_centres(points: Floats, weight: Ints, number: int) -> Ints:
    """k-centre: the heaviest point, and then always the one that is farthest from those chosen.

    ``points`` are [N, D]; they are chosen again where there are fewer than ``number``.

    >>> k_centres(np.array([[0.0], [1.0], [9.0], [5.0]]), np.array([1, 3, 1, 1]), 3).tolist()
    [1, 2, 3]
    """
    chosen = [int(np.argmax(weight))]
    away = np.abs(points - points[chosen[0]]).max(axis=1)
    while len(chosen) < min(number, len(points)):
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, np.abs(points - points[chosen[-1]]).max(axis=1))
    # np.resize repeats from the beginning where there are fewer points than centres.
    return np.resize(np.array(chosen, dtype=np.int64), number)


def alternate_between(which: str, number: int) -> dict[str, Ints]:
    """Places of each trace among so many: every other one where both are asked for.

    >>> alternate_between("both", 5)
    {'gpu-v2020': array([0, 2, 4]), 'v2018': array([1, 3])}
    """
    names = ["gpu-v2020", "v2018"] if which == "both" else [which]
    return {name: np.arange(i, number, len(names)) for i, name in enumerate(names)}


def select_machines(s: RowSettings, number: int, rng: np.random.Generator) -> Floats:
    """Cores, GiB and GPUs of the selected machines [number, 3]; rows come again if too few."""
    capacity = np.zeros((number, 3))
    for trace, places in alternate_between(s.machines, number).items():
        machines = rows_of(trace, s.folder).machines
        if s.rows == "varied":
            kinds = np.unique(machines, axis=0)
            # Each distinct machine as often as any other, however many of it the trace has.
            capacity[places] = rng.permutation(np.resize(kinds, (places.size, 3)))
        elif s.rows == "uniform":
            capacity[places] = machines[np.resize(rng.permutation(len(machines)), places.size)]
        else:
            capacity[places] = machines[np.arange(places.size) % len(machines)]
    return capacity


def select_jobs(
    s: RowSettings, number: int, rng: np.random.Generator, slots: int
) -> tuple[Floats, Ints]:
    """Requests of the job types [L, 3], and how many jobs of each came in each slot [slots, L].

    All of a trace's time is cut into so many slots, if any; a row of it is a job of the type that
    it is nearest to.
    """
    requests = np.zeros((number, 3))
    counts = np.zeros((slots, number), dtype=np.int64)
    largest = largest_machine(s.folder)
    for trace, places in alternate_between(s.jobs, number).items():
        rows = rows_of(trace, s.folder)
        wanted = rows.requests
        if s.tasks == "whole":
            # What all tasks of a job request together; no more than one machine can have.
            wanted = np.minimum(wanted * rows.tasks[:, None], largest)
        if s.rows == "varied":
            distinct, count = np.unique(wanted, axis=0, return_counts=True)
            chosen = distinct[k_centres(_place(distinct, largest), count, places.size)]
        elif s.rows == "uniform":
            chosen = wanted[np.resize(rng.permutation(len(wanted)), places.size)]
        else:
            chosen = wanted[np.arange(places.size) % len(wanted)]
        requests[places] = chosen
        if slots:
            near = _nearest(_place(wanted, largest), _place(chosen, largest))
            since = rows.created - rows.created[0]
            # The last job came at the very end of the trace: into the last slot, not one behind it.
            slot = np.minimum(since / max(since[-1], 1.0) * slots, slots - 1).astype(np.int64)
            np.add.at(counts, (slot, places[near]), 1)
    return requests, counts


def _place(requests: Floats, largest: Floats) -> Floats:
    return np.asarray(np.log(requests / largest + FLOOR))


def _nearest(points: Floats, centres: Floats) -> Ints:
    """The nearest centre of each point; equal ones take turns, row by row."""
    away = np.abs(points[:, None, :] - centres[None]).max(axis=2)
    # Equal job types share the jobs of their rows instead of the first having all.
    ties = away <= away.min(axis=1, keepdims=True) + 1e-12
    turn = np.arange(len(points)) % ties.sum(axis=1)
    return np.asarray((np.cumsum(ties, axis=1) == turn[:, None] + 1).argmax(axis=1))


def arrivals(counts: Ints, rho: float) -> Workload:
    """Bernoulli(ρ), or on the slots [slots, L] of the trace in which a job of the type came."""
    if not len(counts):
        return BernoulliArrivals(np.full(counts.shape[1], rho))
    return ReplayedArrivals(np.minimum(counts, 1), rho, repeat=True)


RowArrivals = Literal["bernoulli", "trace"]


class OGASchedRowSettings(RowSettings, RewardSettings):
    job_types: Count = 10
    servers: Count = 128
    units: Literal["share", "raw"] = "share"
    contention: float = Field(10.0, gt=0)
    density: float = Field(2.5, gt=0)
    rho: Rho = 0.7
    arrivals: RowArrivals = "bernoulli"
    slots: SlotCount = 2000


class OGASchedRowsScenario(DrawnScenario[OGASchedRowSettings]):
    """OGASched §4 on rows of the traces: selects and draws as :class:`OGASchedRowSettings` says.

    Devices that the traces do not have are drawn as in ``ogasched-default-v1``, or of the authors'
    ranges where units are raw.
    """

    family = "gain_overhead"
    version = "ogasched-alibaba-v1"
    settings_model = OGASchedRowSettings

    def describe(self) -> dict[str, Any]:
        return _described(self.settings)

    def instance(self, seed: int) -> GainOverheadInstance:
        s, rng = self.settings, Streams.of(seed).instance
        slots = s.slots if s.arrivals == "trace" else 0
        wanted, counts = select_jobs(s, s.job_types, rng, slots)
        machines = select_machines(s, s.servers, rng)
        # Shares: the largest machine of either trace becomes the largest of ogasched-default-v1.
        unit = np.array(OUR_MOST[:3]) / largest_machine(s.folder)
        unit = unit if s.units == "share" else np.ones(3)
        most = np.array((OUR_MOST if s.units == "share" else AUTHORS_MOST)[3:])
        drawn = [
            rng.integers(0, most + 1, (n, 3)).astype(np.float64) for n in (s.servers, s.job_types)
        ]
        capacity = np.hstack([machines * unit, drawn[0]])
        requests = np.hstack([wanted * unit, drawn[1]])
        problem = draw_problem(s, rng, capacity, requests * s.contention, s.density)
        return GainOverheadInstance(problem, arrivals(counts, s.rho))


class ESDPRowSettings(RowSettings, ESDPSettings):
    devices: Literal[3] = 3
    limits: Literal["linear", "ranked"] = "linear"
    arrivals: RowArrivals = "bernoulli"  # type: ignore[assignment]  # other choices


class ESDPRowsScenario(ESDPScenario):
    """ESDP §4 on rows of the traces: selects and draws as :class:`ESDPRowSettings` says.

    The servers share a fraction of all requests; with capacity = normalised what the selected
    machines have in all, scaled to the paper's bounds 1 and 2, times |E| / 2; literal: 2 of each.
    """

    version = "esdp-alibaba-v1"
    settings_model = ESDPRowSettings
    settings: ESDPRowSettings

    def describe(self) -> dict[str, Any]:
        return _described(self.settings)

    def _requests(self, rng: np.random.Generator, job_type: Ints) -> tuple[Floats, Workload]:
        s = self.settings
        slots = s.slots if s.arrivals == "trace" else 0
        requests, counts = select_jobs(s, s.job_types, rng, slots)
        if s.limits == "ranked":
            # Ranks spread evenly between the bounds what a few large
            # requests would crowd at the lower one.
            ranks = [np.unique(column, return_inverse=True)[1] for column in requests.T]
            requests = np.column_stack(ranks).astype(np.float64)
        bounded = bounds(requests, float(s.requests[0]), float(s.requests[1]))
        return bounded[job_type], arrivals(counts, s.rho)

    def _unit(self, rng: np.random.Generator) -> Floats:
        s = self.settings
        if s.capacity == "literal":
            return np.full(3, 2.0)  # less than the largest request would shut job types out
        return bounds(select_machines(s, s.servers, rng).sum(axis=0)[:, None], 1.0, 2.0)[:, 0]


def bounds(values: Floats, low: float, high: float) -> Floats:
    """Each column mapped linearly to [low, high]; one in which all are the same to the middle.

    >>> bounds(np.array([[0.0, 4.0], [5.0, 4.0], [10.0, 4.0]]), 1, 2)
    array([[1. , 1.5],
           [1.5, 1.5],
           [2. , 1.5]])
    """
    least, most = values.min(axis=0), values.max(axis=0)
    wide = most > least
    # The inner where keeps columns without a range from dividing by zero.
    share = np.where(wide, (values - least) / np.where(wide, most - least, 1.0), 0.5)
    return np.asarray(low + (high - low) * share)


def _described(settings: RowSettings) -> dict[str, Any]:
    """Settings and the number of rows there are, so that twins and files differ."""
    classes = {
        trace: [len(rows.machines), len(rows.requests), float(rows.requests.sum())]
        for trace in TRACES
        for rows in [rows_of(trace, settings.folder)]
    }
    return {"files": classes, **settings.model_dump(mode="json", exclude={"folder"})}

"""Scenarios of OGASched §4 and ESDP §4 on rows of the Alibaba traces, selected in stated ways.

Both papers take machines and jobs from cluster-trace-v2018 and cluster-trace-gpu-v2020. Which rows
is not published ("carefully selected from the trace to reflect heterogeneity"), so every choice is
a setting of :class:`RowSettings`. Neither trace has NPUs, TPUs or FPGAs, and v2018 has no GPUs:
what OGASched has of those on its servers, and its jobs request, is drawn. So are channels,
utilities, costs and overhead, as in ``ogasched-default-v1`` and ``esdp-default-v1``.

Machines are complete in the files. Of v2018 there are the rows of some jobs with precedence; of
gpu-v2020 no rows of jobs, unless the folder has them: then those of its synthetic twin are taken
(:mod:`gangwise.logs.twins`), and those of the twins for all without a folder.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import Count, SlotCount, StrictSettings
from gangwise.core.simulation import Streams
from gangwise.core.workload import BernoulliArrivals, ReplayedArrivals, Workload
from gangwise.logs.formats.alibaba_v2018 import AlibabaV2018
from gangwise.logs.formats.tabular import reader as tabular
from gangwise.logs.twins import completed, twin
from gangwise.papers.gain_overhead.problem import GainOverheadInstance
from gangwise.papers.scenarios.drawing import DrawnScenario, RewardSettings, Rho
from gangwise.papers.scenarios.drawn import (
    AUTHORS_MOST,
    OUR_MOST,
    ESDPScenario,
    ESDPSettings,
    draw_problem,
)

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

"""From measured speeds to problems of fluctuating speeds: utilities of channels, capacity, cost.

Two sources, both relative: a job's throughput on a GPU model over that on its best model
(:mod:`gangwise.traces.gavel_throughputs`), and a worker's iterations per time over those of the
fastest iteration of its job (:mod:`gangwise.traces.mini_batch_time`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels
from gangwise.core.errors import TraceError
from gangwise.core.feedback import Delivery
from gangwise.core.workload import Workload
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem, Pool, Scale, linear_cost
from gangwise.fluctuating_speeds.speeds import Speeds
from gangwise.traces.gavel_throughputs import GavelThroughputs, Job
from gangwise.traces.mini_batch_time import MiniBatchTime
from gangwise.traces.trace import Tables, Trace

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Measured = GavelThroughputs | MiniBatchTime


def measured(trace: Trace | Tables, where: str) -> Measured | None:
    """Measured speeds at a place; those that the trace holds, if none is given.

    Parameters
    ----------
    trace : Trace or Tables
    where : str
        A file of throughputs, a folder of recorded iteration times, ``drawn`` for none, or empty.

    Raises
    ------
    TraceError
        When there are none at the place, or they cannot be read.
    """
    if where == "drawn":
        return None
    if where:
        return _at(Path(where))
    source = getattr(trace, "source", None)
    tables = () if source is None else [table.name for table in source.form.tables]
    if source is None or "mini_batch_times" not in tables or not source.has("mini_batch_times"):
        return None
    folder = source.files("mini_batch_times")[0].parent
    if not folder.is_dir():
        raise TraceError(
            "recorded iteration times are read from the published files, not from a converted "
            "trace: give their folder as speeds=PATH, or speeds=drawn",
            source.path,
        )
    return MiniBatchTime(folder)


def _at(path: Path) -> Measured:
    if path.is_dir() and any(path.glob("job_*_norm.csv*")):
        return MiniBatchTime(path)
    if path.exists():
        return GavelThroughputs(path)
    raise TraceError("there is no such file or folder of measured speeds", path)


def digests_of(found: Measured | None) -> dict[str, str]:
    """SHA-256 of the files."""
    if isinstance(found, GavelThroughputs):
        return {found.file.name: found.digest}
    return {} if found is None else dict(found.digests)


def relative_throughput(table: GavelThroughputs, jobs: Sequence[Job]) -> Floats:
    """Throughput of jobs on each model of the table, 1 on their best; 0 where they do not run.

    Returns
    -------
    ndarray of shape [jobs, models]
    """
    speed = np.array([[table.throughput.get((m, job), 0.0) for m in table.models] for job in jobs])
    return np.asarray(speed / speed.max(axis=1, keepdims=True))


def some_of(able: Mask, density: float, rng: np.random.Generator) -> Mask:
    """Each possible channel with a probability; a job type without any gets one, uniform.

    Parameters
    ----------
    able : ndarray of bool, shape [L, R]
        Where a job type can run; somewhere at least.
    """
    mask = (rng.random(able.shape) < density) & able
    for l in np.flatnonzero(~mask.any(axis=1)):
        mask[l, rng.choice(np.flatnonzero(able[l]))] = True
    return mask


def scarce(requests: Floats, fraction: float) -> Floats:
    """c_k = fraction · Σ_e a_k, at least the largest request; requests of shape [E, K]."""
    return np.asarray(np.maximum(fraction * requests.sum(axis=0), requests.max(axis=0)))


def pooled_instance(
    pool: Pool,
    requests: Floats,
    channels: Channels,
    job_types: tuple[str, ...],
    speeds: Speeds,
    mean: float,
    cost_share: float,
    workload: Workload,
    delivery: Delivery | None = None,
) -> FluctuatingSpeedsInstance:
    """An instance in which supply costs the same per device.

    Parameters
    ----------
    requests : ndarray of shape [E, K]
    mean : float
        Mean utility of the channels, before cost.
    cost_share : float
        The mean cost of a channel, as a share of it.
    """
    cost = linear_cost(requests, np.ones(requests.shape[1]))
    cost *= cost_share * mean / cost.mean()
    problem = FluctuatingSpeedsProblem(pool, requests, channels, cost, job_types)
    scale = Scale.of("clip", speeds, cost)
    return FluctuatingSpeedsInstance(problem, workload, speeds, scale, delivery or Delivery())

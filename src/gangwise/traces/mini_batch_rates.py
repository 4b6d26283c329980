"""Rates of machines from the measured iteration times of training jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gangwise.approximation_jobs.rates import MeasuredRates
from gangwise.core.errors import UnknownName
from gangwise.traces.mini_batch_time import MiniBatchTime


def mini_batch_rates(
    machines: int, folder: Path | str, job: str = "job-4", shift: bool = True
) -> MeasuredRates:
    """Rates from measured mini-batch times (see :mod:`gangwise.traces.mini_batch_time`).

    Machine i goes at the speed of worker i mod W of a training job: 1 is the job's fastest
    iteration. The longest common stretch of its workers is replayed.

    Raises
    ------
    TraceError
        When the folder cannot be read.
    UnknownName
        For a job that it does not hold.
    """
    trace = MiniBatchTime(folder)
    speeds = [worker.speed for worker in trace.workers if worker.job == job]
    if not speeds:
        raise UnknownName("mini-batch-time job", job, sorted(trace.tables))
    length = min(speed.size for speed in speeds)
    return MeasuredRates(machines, np.column_stack([s[:length] for s in speeds]), shift)

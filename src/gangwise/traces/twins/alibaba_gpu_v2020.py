"""The twin of Alibaba cluster-trace-gpu-v2020 (PAI).

The machines are those of ``pai_machine_spec``. The jobs rest on what is published of the trace:
W = Weng et al., "MLaaS in the Wild" (USENIX NSDI 2022); R = the README of the trace; S = the log
of its simulator, which runs 20000 of its jobs. What is published are a few points of each
distribution; what lies between them is our choice, and is marked so.

===================================================================  ============================
1.2 million tasks with 7.5 million instances in two months           W
85 % of the instances are gang-scheduled, 20 % need over 100 GPUs    W
an instance requests at most 12 cores, 59 GiB and 1 GPU in 95 of     W
100 cases, more than twice the median
a task of 6 cores, 29.3 GiB and half a GPU, taken as the median      R
the mean job takes 5038.7 s (completion less wait, all schedulers)   S
waiting: median 113 s and 90 % within 13709 s on V100; 11 s and      W
360 s on lesser GPUs
74 % of the GPUs of weak machines are allocated, 49 % of strong      W
===================================================================  ============================
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.traces.tables import UNITS
from gangwise.traces.twins.calibration import Arrivals, Calibration, Kind, choose

NAME = "alibaba-gpu-v2020"
MACHINES = (
    Kind(798, "P100", 64, 512, 2),
    Kind(497, "T4", 96, 512, 2),
    Kind(280, "MISC", 96, 512, 8),
    Kind(135, "V100M32", 96, 384, 8),
    Kind(83, "", 96, 512),
    Kind(59, "V100", 96, 512, 8),
    Kind(45, "V100", 96, 384, 8),
)
TASKS_PER_DAY = 1.2e6 / 62
ONE = 0.15 * 7.5 / 1.2
"""Share of the tasks with one instance: the 15 % of the instances that are in no gang, 6.25 of
which are in a task on average."""
GANG = (4.276, 0.57)
"""Mean and standard deviation of the logarithm of the instances of a gang. Log-normal is our
choice; then 85 instances on average, (6.25 - ONE) / (1 - ONE), and 20 % of all instances in gangs
of more than 100 GPUs leave no other."""
CORES = {1.0: 0.02, 2.0: 0.08, 4.0: 0.2, 6.0: 0.3, 8.0: 0.18, 12.0: 0.175, 24.0: 0.035, 64.0: 0.01}
GIB = {
    2.0: 0.02,
    8.0: 0.13,
    15.0: 0.15,
    29.3: 0.3,
    40.0: 0.15,
    59.0: 0.205,
    120.0: 0.035,
    300.0: 0.01,
}
"""Medians of 6 and 29.3, and 95 % at most 12 and 59, are published; the rest is our choice."""
GPUS = {0.25: 0.27, 0.5: 0.38, 1.0: 0.31, 2.0: 0.02, 4.0: 0.01, 8.0: 0.01}
"""Median 0.5 and 95 % at most 1 are published; the shares are our choice."""
LIFETIME = (np.log(5038.7) - 1.6**2 / 2, 1.6)
"""Mean and standard deviation of the logarithm of seconds: the mean is published, log-normal and
1.6 (a median of 1401 s, 90 % within 3 h) are our choice."""
ALLOCATED = {"V100": 0.49, "V100M32": 0.49}
"""Share of the GPUs of a model that is allocated, elsewhere 0.74: how tasks spread over models."""
WAIT = {True: (113.0, 13709.0), False: (11.0, 360.0)}
"""Median and 90 % point of the wait in seconds, on V100 and elsewhere; log-normal is our choice."""
LONGEST_WAIT = 86400.0
"""Our choice: without it the mean wait on V100 would be over a day."""
Z90 = 1.2816


def requests(rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """Tasks: gangs and single instances, each on one GPU model, as with ``models = "assigned"``."""
    n = len(created)
    gang = np.ceil(np.exp(rng.normal(*GANG, n)))
    kinds = [kind for kind in MACHINES if kind.gpu]
    gpu = _among(rng, GPUS, n)
    weight = [kind.number * kind.gpu * ALLOCATED.get(kind.model, 0.74) for kind in kinds]
    room = np.array([kind.gpu for kind in kinds])
    on = choose(rng, weight, n)
    large = [w * (kind.gpu >= 8) for w, kind in zip(weight, kinds)]
    on = np.where(gpu > room[on], choose(rng, large, n), on)  # to where it fits
    model = np.array([kind.model for kind in kinds])[on]
    strong = np.isin(model, list(ALLOCATED))
    median, most = (np.where(strong, *pair) for pair in zip(WAIT[True], WAIT[False]))
    wait = median * np.exp(np.log(most / median) / Z90 * rng.standard_normal(n))
    wait = np.minimum(wait, LONGEST_WAIT).round()
    cores = np.array([kind.cpu for kind in kinds])[on]
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": wait + np.ceil(np.exp(rng.normal(*LIFETIME, n))),
            "cpu": np.minimum(_among(rng, CORES, n), cores),
            "mem": _among(rng, GIB, n),
            "gpu": gpu,
            "tasks": np.where(rng.random(n) < ONE, 1.0, np.maximum(gang, 2.0)),
            "models": model,
        }
    )


def _among(rng: np.random.Generator, shares: dict[float, float], n: int) -> Floats:
    chosen: Floats = np.array(list(shares))[choose(rng, list(shares.values()), n)]
    return chosen


CALIBRATION = Calibration(
    NAME,
    UNITS,
    MACHINES,
    Arrivals(),
    jobs_per_day=TASKS_PER_DAY,
    requests=requests,
    days=2.0,
    reproduces="every machine; of the jobs the published rate, share and mean of gangs, the "
    "published points of requests, mean run time and waits by GPU model",
    leaves_out="the hours of the day and days of the week (arrivals are Poisson), jobs of "
    "several tasks and tasks without GPUs, users, failures, any dependence between quantities",
    within={"machines": 0.0},
)

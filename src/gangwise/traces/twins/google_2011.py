"""The twin of Google ClusterData 2011, version 2.1.

The machines are those of Reiss et al., "Heterogeneity and Dynamicity of Clouds at Scale" (SoCC
2012), Table 1. Requests, tasks per job and waits are counted in the 956 requests of the first
1.4 hours of ``task_events``; arrivals in the first 13.9 hours of ``job_events``, which begin at
19:00 on the cell's clock. Lifetimes are Kaplan-Meier estimates of the former, since one job in
seven outlasts the 1.4 hours, with the tail of the latter.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.traces.twins.calibration import Arrivals, Calibration, Cdf, Kind, Shape, typical

NAME = "google-2011"
MACHINES = (
    Kind(6732, "", 0.5, 0.5),
    Kind(3863, "", 0.5, 0.25),
    Kind(1001, "", 0.5, 0.75),
    Kind(795, "", 1.0, 1.0),
    Kind(126, "", 0.25, 0.25),
    Kind(52, "", 0.5, 0.12),
    Kind(5, "", 0.5, 0.03),
    Kind(5, "", 0.5, 0.97),
    Kind(3, "", 1.0, 0.5),
    Kind(1, "", 0.5, 0.06),
)
SHAPES = (
    Shape(0, 0.0001554, 0, 105),
    Shape(0.03125, 0.0159, 0, 55),
    Shape(0.0625, 0.01244, 0, 44),
    Shape(0.02499, 0.03339, 0, 42),
    Shape(0.006248, 0.04773, 0, 32),
    Shape(0.006248, 0.001554, 0, 32),
    Shape(0.0625, 0.04773, 0, 31),
    Shape(0.006248, 0.004662, 0, 26),
    Shape(0.006248, 0.002796, 0, 25),
    Shape(0.03125, 0.01125, 0, 23),
    Shape(0.0125, 0.004662, 0, 20),
    Shape(0.006248, 0.001865, 0, 20),
    Shape(0.02499, 0.02545, 0, 18),
    Shape(0.0625, 0.007767, 0, 17),
    Shape(0.009369, 0.01244, 0, 15),
    Shape(0.006248, 0.0318, 0, 15),
    Shape(0.006248, 0.01244, 0, 14),
    Shape(0.006248, 0.003109, 0, 14),
    Shape(0.0625, 0.006218, 0, 12),
    Shape(0.0625, 0.004662, 0, 11),
)
"""The 20 most common requests of a task, 60 % of the jobs; 385 others are drawn by quantity."""
OTHER = 385
OTHER_CPU = Cdf(
    (
        0,
        0.003124,
        0.00769,
        0.008667,
        0.009369,
        0.01097,
        0.01268,
        0.0249,
        0.02798,
        0.03125,
        0.0415,
        0.04999,
        0.05688,
        0.0625,
        0.07812,
        0.0813,
        0.125,
        0.2407,
    ),
    (
        0.0104,
        0.052,
        0.2208,
        0.2286,
        0.3065,
        0.3117,
        0.4286,
        0.4623,
        0.4831,
        0.6286,
        0.6494,
        0.6935,
        0.7013,
        0.8442,
        0.8545,
        0.961,
        0.9922,
        1,
    ),
)
OTHER_MEM = Cdf(
    (
        6.199e-05,
        0.001554,
        0.002594,
        0.003109,
        0.003746,
        0.003975,
        0.004478,
        0.004662,
        0.01282,
        0.01514,
        0.0159,
        0.0199,
        0.0318,
        0.06335,
        0.0636,
        0.08301,
        0.09094,
        0.1335,
    ),
    (
        0.0078,
        0.0338,
        0.1558,
        0.2545,
        0.2571,
        0.3065,
        0.3247,
        0.374,
        0.587,
        0.5922,
        0.6805,
        0.6857,
        0.7922,
        0.8104,
        0.8519,
        0.8727,
        0.9662,
        1,
    ),
)
MANY = (0.0998, 0.4)
"""Share of the jobs with several tasks, among common requests and among others."""
TASKS = Cdf(
    (2, 3, 4, 8, 10, 11, 13, 14, 30, 32, 46, 50, 105, 200, 602, 1049, 1050, 2100),
    (
        0.2227,
        0.2464,
        0.3175,
        0.3744,
        0.4313,
        0.4834,
        0.4976,
        0.5355,
        0.5877,
        0.6161,
        0.6635,
        0.7299,
        0.7678,
        0.8152,
        0.8483,
        0.849,
        0.9763,
        1,
    ),
)
LIFETIME_ONE = Cdf(
    (
        15.47,
        22.93,
        26.55,
        28.81,
        35.29,
        36.95,
        42.87,
        99.82,
        122.3,
        203.7,
        240.7,
        372.4,
        516.3,
        707,
        3167,
        12750,
        43182,
        2505600,
    ),
    (
        0.0014,
        0.0378,
        0.1012,
        0.1633,
        0.2594,
        0.2973,
        0.3421,
        0.4504,
        0.5183,
        0.6085,
        0.6628,
        0.7404,
        0.7756,
        0.8674,
        0.9721,
        0.9893,
        0.9943,
        1,
    ),
)
LIFETIME_MANY = Cdf(
    (
        22.05,
        76.74,
        97.95,
        106.7,
        110.1,
        150.8,
        206,
        227.4,
        274.2,
        298,
        518.7,
        551.9,
        701.2,
        2063,
        3602,
        12750,
        43182,
        2505600,
    ),
    (
        0.0047,
        0.0216,
        0.076,
        0.1066,
        0.1433,
        0.1678,
        0.2963,
        0.382,
        0.4248,
        0.5043,
        0.6073,
        0.6486,
        0.7315,
        0.8298,
        0.9249,
        0.967,
        0.982,
        1,
    ),
)
"""Seconds; beyond 3600 s by job events of 13.9 h, beyond 12 h up to 29 days our choice."""
WAIT = Cdf(
    (0.6767, 0.8945, 1.353, 1.423, 1.604, 1.731, 1.892, 2.094, 2.437, 3.636, 20.66, 41.89),
    (0.0011, 0.0788, 0.1061, 0.1652, 0.512, 0.6597, 0.7571, 0.8249, 0.8775, 0.93, 0.9606, 1),
)
GAPS = Cdf(
    (
        1.47e-07,
        2.06e-07,
        2.27e-07,
        3.42e-07,
        0.000334,
        0.000434,
        0.00116,
        0.00253,
        0.0103,
        0.12,
        0.146,
        0.187,
        0.263,
        0.387,
        3.24,
        4.98,
        7.11,
        18.05,
    ),
    (
        0.0002,
        0.0162,
        0.0392,
        0.0504,
        0.067,
        0.0826,
        0.1998,
        0.2574,
        0.3029,
        0.316,
        0.3343,
        0.3809,
        0.4148,
        0.5042,
        0.9256,
        0.9698,
        0.991,
        1,
    ),
)
HOURS = (635, 745, 742, 816, 784, 1232, 898, 764, 529, 642, 683, 617, 681, 784, *[754] * 10)
"""Jobs in each hour from 19:00 on; of the last ten hours there are no files, so the mean."""


def requests(rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """One request of equal tasks for each job."""
    n = len(created)
    common = typical(rng, SHAPES, n)
    other = rng.random(n) < OTHER / (OTHER + sum(shape.number for shape in SHAPES))
    many = rng.random(n) < np.where(other, MANY[1], MANY[0])
    wait = WAIT.draw(rng, n)
    one, several = (table.draw(rng, n) for table in (LIFETIME_ONE, LIFETIME_MANY))
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": np.maximum(np.where(many, several, one), wait),
            "cpu": np.where(other, OTHER_CPU.draw(rng, n), common[:, 0]),
            "mem": np.where(other, OTHER_MEM.draw(rng, n), common[:, 1]),
            "gpu": np.zeros(n),
            "tasks": np.where(many, TASKS.draw(rng, n, whole=True), 1.0),
            "models": pl.repeat("", n, eager=True),
        }
    )


CALIBRATION = Calibration(
    NAME,
    {"cpu": "NCU", "mem": "NMU", "gpu": "GPUs"},
    MACHINES,
    Arrivals(GAPS, HOURS),
    jobs_per_day=18_085,
    requests=requests,
    days=1.0,
    whole=False,
    reproduces="the published machines, requests, tasks per job, lifetimes by one or several "
    "tasks, waits, gaps between arrivals and 14 of the 24 hours of the day",
    leaves_out="jobs that were there before, jobs of several kinds of tasks, evictions and other "
    "failures, users and priorities, machines that come and go, days of the week",
    within={"cpu": 0.11, "mem": 0.08, "lifetime": 0.1, "tasks": 0.05, "wait": 0.07, "gap": 0.09},
)

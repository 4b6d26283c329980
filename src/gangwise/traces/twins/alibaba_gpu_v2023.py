"""The twin of Alibaba cluster-trace-gpu-v2023.

All numbers are counted in the node list ``openb_node_list_all_node`` and the pod list
``openb_pod_list_default``: the machines are all of the former's, the rest is of the pods created
from day 118 on, 7730 of 8152: in the first 115 days there are 27, and then they get more.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError
from gangwise.traces.tables import UNITS
from gangwise.traces.twins.calibration import (
    Arrivals,
    Calibration,
    Cdf,
    Kind,
    Shape,
    choose,
    typical,
)

NAME = "alibaba-gpu-v2023"
MACHINES = (
    Kind(549, "G2", 96, 384, 8),
    Kind(387, "T4", 104, 512, 2),
    Kind(129, "", 32, 256),
    Kind(107, "P100", 16, 120, 2),
    Kind(59, "", 96, 512),
    Kind(39, "G3", 128, 768, 8),
    Kind(30, "", 96, 384),
    Kind(28, "V100M16", 32, 128, 4),
    Kind(23, "", 32, 128),
    Kind(22, "", 64, 512),
    Kind(22, "P100", 64, 256, 2),
    Kind(21, "V100M32", 96, 768, 8),
    Kind(20, "", 104, 512),
    Kind(19, "V100M16", 8, 32, 1),
    Kind(17, "T4", 96, 384, 4),
    Kind(10, "", 32, 64),
    Kind(9, "V100M32", 48, 368, 4),
    Kind(8, "", 64, 256),
    Kind(7, "V100M16", 64, 256, 8),
    Kind(4, "", 64, 128),
    Kind(3, "P100", 8, 60, 1),
    Kind(3, "", 104, 768),
    Kind(2, "P100", 8, 60, 2),
    Kind(2, "A10", 128, 1024, 1),
    Kind(1, "", 96, 768),
    Kind(1, "", 104, 192),
    Kind(1, "V100M16", 82, 336, 8),
)
SHAPES = (
    Shape(3.152, 5600 / 1024, 0.81, 1037),
    Shape(11.3, 48, 1, 857),
    Shape(11.4, 47, 1, 532),
    Shape(11.908, 46, 0.47, 366),
    Shape(12.5, 56, 0, 353),
    Shape(3.152, 5600 / 1024, 1, 351),
    Shape(8, 30517 / 1024, 0.47, 336),
    Shape(32, 48, 0, 284),
    Shape(11.908, 46, 0.65, 237),
    Shape(18.708, 63, 1, 234),
    Shape(9.81, 41560 / 1024, 1, 191),
    Shape(15.7, 57, 1, 156),
    Shape(8, 30517 / 1024, 0, 155),
    Shape(11.908, 46, 1, 147),
    Shape(12, 24, 1, 145),
    Shape(15.4, 50, 0, 117),
    Shape(4, 22888 / 1024, 0.32, 110),
    Shape(4, 24, 1, 100),
    Shape(16.5, 50, 0, 94),
    Shape(14.2, 57, 1, 93),
)
"""The 20 most common requests, 76 % of the pods."""
OTHER = 1835
"""Pods with other requests: their GPUs, and cores and GiB drawn by class of pod."""
OTHER_GPUS = {
    1.0: 857,
    0.32: 200,
    0.23: 129,
    0.46: 109,
    0.59: 74,
    0.55: 68,
    0.16: 67,
    0.0: 57,
    0.22: 51,
    0.37: 47,
    8.0: 40,
    0.81: 26,
    0.11: 21,
    0.48: 18,
    2.0: 16,
    4.0: 15,
    0.65: 14,
    0.33: 7,
    0.35: 6,
    0.05: 6,
}
CORES = (
    Cdf((8, 10, 11.4, 12, 16, 20, 32), (0.386, 0.404, 0.596, 0.667, 0.895, 0.912, 1)),
    Cdf((1, 2, 3.15, 4, 4.15, 6, 8, 12), (0.0282, 0.0306, 0.118, 0.547, 0.714, 0.866, 0.993, 1)),
    Cdf(
        (1, 7, 11.3, 11.8, 12, 14.9, 16.4, 24.2),
        (0.0175, 0.105, 0.347, 0.424, 0.663, 0.673, 0.902, 1),
    ),
    Cdf((3, 7, 8, 8.02, 8.1, 11, 15, 15.1), (0.0423, 0.0563, 0.141, 0.394, 0.62, 0.845, 0.887, 1)),
)
"""Cores for each GPU (in all, below one GPU): no GPU, a share of one, one, several."""
GIB = (
    Cdf(
        (0.95, 1, 1.91, 2, 3.2, 4.77, 4.91, 7.63),
        (0.0175, 0.105, 0.491, 0.632, 0.649, 0.772, 0.965, 1),
    ),
    Cdf(
        (1, 1.5, 1.95, 2.49, 3, 3.73, 4.97, 7.45),
        (0.0518, 0.0671, 0.156, 0.378, 0.404, 0.748, 0.76, 1),
    ),
    Cdf((0, 1, 1.91, 2, 3.53, 4.02, 5.06, 8), (0.00117, 0.007, 0.167, 0.376, 0.41, 0.67, 0.695, 1)),
    Cdf(
        (2.41, 3.64, 4, 4.01, 4.19, 5.2, 6, 10.67),
        (0.0282, 0.225, 0.563, 0.789, 0.803, 0.915, 0.958, 1),
    ),
)
"""GiB for each core, by the same classes."""
LIFETIME = (
    Cdf(
        (
            10,
            54,
            107,
            144,
            147,
            152,
            155,
            176,
            186,
            512,
            941,
            1932,
            1980,
            2700,
            3825,
            12870,
            28940,
            1276176,
        ),
        (
            0.0009,
            0.0104,
            0.0623,
            0.1142,
            0.1377,
            0.2547,
            0.284,
            0.3085,
            0.367,
            0.5142,
            0.6453,
            0.7472,
            0.7679,
            0.8198,
            0.8547,
            0.9057,
            0.9962,
            1,
        ),
    ),
    Cdf(
        (
            0,
            11,
            26,
            52,
            85,
            141,
            269,
            532,
            610,
            926,
            952,
            1335,
            3252,
            5758,
            15330,
            30628,
            79992,
            982167,
        ),
        (
            0.0003,
            0.0228,
            0.0484,
            0.095,
            0.1618,
            0.2524,
            0.4097,
            0.5402,
            0.5787,
            0.6485,
            0.6744,
            0.7531,
            0.8556,
            0.8995,
            0.9563,
            0.979,
            0.9957,
            1,
        ),
    ),
    Cdf(
        (
            1,
            23,
            38,
            70,
            111,
            182,
            222,
            299,
            536,
            623,
            1192,
            2181,
            3589,
            4683,
            8417,
            17172,
            39440,
            2342266,
        ),
        (
            0.0008,
            0.0057,
            0.0188,
            0.0636,
            0.1283,
            0.2157,
            0.2858,
            0.3655,
            0.4496,
            0.4903,
            0.6121,
            0.7453,
            0.8174,
            0.8875,
            0.9345,
            0.9675,
            0.9825,
            1,
        ),
    ),
    Cdf(
        (
            23,
            35,
            41,
            62,
            115,
            118,
            137,
            179,
            427,
            450,
            497,
            553,
            1072,
            2268,
            2361,
            4410,
            27404,
            977324,
        ),
        (
            0.0282,
            0.0423,
            0.1127,
            0.1549,
            0.169,
            0.1972,
            0.2113,
            0.2958,
            0.3521,
            0.3944,
            0.4085,
            0.507,
            0.5915,
            0.6338,
            0.662,
            0.7465,
            0.8732,
            1,
        ),
    ),
)
"""Seconds from creation to deletion, by the same classes; Kaplan-Meier for pods that are there at
the end of the trace."""
GAPS = Cdf(
    (
        0,
        0.0014,
        0.0032,
        0.0199,
        0.0567,
        0.0927,
        0.114,
        0.1675,
        0.3212,
        0.5508,
        0.7914,
        1.147,
        1.8931,
        2.3547,
        3.3118,
        5.2909,
        7.6956,
        37.372,
    ),
    (
        0.0252,
        0.0268,
        0.037,
        0.1016,
        0.1506,
        0.1863,
        0.2081,
        0.2637,
        0.3847,
        0.5104,
        0.6064,
        0.7145,
        0.8429,
        0.8895,
        0.9449,
        0.9832,
        0.9947,
        1,
    ),
)
"""Gaps between creations, with the hour of the day and the day's own count divided out."""
HOURS = (
    495,
    436,
    351,
    411,
    409,
    302,
    278,
    316,
    225,
    140,
    203,
    197,
    146,
    145,
    129,
    250,
    286,
    414,
    517,
    445,
    329,
    415,
    392,
    499,
)
WEEKDAYS = (290.2, 302.4, 136.0, 198.0, 292.2, 238.0, 244.6)
"""Pods per day by day of the trace modulo 7; which weekdays they are is not known."""
SPREAD = 0.33
"""What is left of the variation of the pods per day, 0.41, without weekdays (0.23) and gaps."""


def requests(
    rng: np.random.Generator, created: Floats, *, constrained: float = 0.0
) -> pl.DataFrame:
    """Pods: common requests, and others by class; a share with GPUs is ``constrained``."""
    if not (isinstance(constrained, int | float) and 0 <= constrained <= 1):
        raise ScenarioError(f"constrained is {constrained!r}; it must be a share, from 0 to 1")
    n = len(created)
    asked = typical(rng, SHAPES, n)
    rare = rng.random(n) < OTHER / (OTHER + sum(shape.number for shape in SHAPES))
    gpus = np.array(list(OTHER_GPUS))[choose(rng, list(OTHER_GPUS.values()), n)]
    gpu = np.where(rare, gpus, asked[:, 2])
    group = np.select([gpu == 0, gpu < 1, gpu == 1], [0, 1, 2], 3)
    cores = np.choose(group, [table.draw(rng, n) for table in CORES]) * np.maximum(gpu, 1)
    cpu = np.where(rare, cores.round(1), asked[:, 0])
    gib = np.choose(group, [table.draw(rng, n) for table in GIB])
    model = np.array([kind.model for kind in MACHINES])
    on = choose(rng, [kind.number * kind.gpu for kind in MACHINES], n)
    bound = (gpu > 0) & (rng.random(n) < constrained)
    # no kind of machine of the drawn model may hold the pod: it is then free to use any
    most = {m: max(k.gpu for k in MACHINES if k.model == m) for m in model}
    bound &= gpu <= np.array([most[m] for m in model])[on]
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "lifetime": np.choose(group, [table.draw(rng, n, whole=True) for table in LIFETIME]),
            "cpu": cpu,
            "mem": np.where(rare, (cpu * gib).round(2), asked[:, 1]),
            "gpu": gpu,
            "models": np.where(bound, model[on], ""),
        }
    )


CALIBRATION = Calibration(
    NAME,
    UNITS,
    MACHINES,
    Arrivals(GAPS, HOURS, WEEKDAYS, SPREAD),
    jobs_per_day=246.5,
    requests=requests,
    days=31.0,
    options={"constrained": "share of the pods with GPUs that must have one GPU model"},
    reproduces="every machine, the pods' requests with their correlation, lifetimes by number of "
    "GPUs, gaps between arrivals, the hours of the day and days of the week",
    leaves_out="the sparse 115 days before the busy month, failures and pending pods, users, the "
    "drift of the arrivals over the weeks, and repeated requests in a row",
    within={
        "cpu": 0.07,
        "mem": 0.07,
        "gpu": 0.03,
        "lifetime": 0.03,
        "gap": 0.07,
        "jobs per hour": 0.16,
        "models": 0.0,
        "hour": 0.06,
        "weekday": 0.14,
        "machines": 0.0,
    },
)

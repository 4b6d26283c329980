"""The twin of the batch jobs of Alibaba cluster-trace-v2018.

The trace has 4,201,014 jobs with 14,295,731 tasks (rows here) in 8 days, 59.5 % of the jobs with
several and 48.3 % with a precedence; 3.4 tasks on average, median 2, 90 % at most 7, 99 % at most
21, the most 1002. Those are counts of others over the whole of ``batch_task``. What a row requests,
its instances, how long it takes and how many it waits for are counted in 54,994 rows of 2,112 jobs
with precedence, apart for jobs of up to eight rows and for larger ones. That sample was made by
size of job, so it says nothing of sizes (``sizes="sample"`` draws its sizes, to compare the rest),
and little of arrivals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.traces.twins.calibration import Arrivals, Calibration, Cdf, Kind, Shape, typical

NAME = "alibaba-v2018"
MACHINES = (Kind(4033, "", 96, 100),)
SIZES = {
    "published": Cdf(
        (1, 2, 4, 7, 21, 60, 100, 1002), (0.405, 0.7, 0.84, 0.9, 0.99, 0.9997, 0.99999, 1)
    ),
    "sample": Cdf(
        (1, 2, 4, 7, 10, 13, 16, 21, 31, 50, 61, 62, 63, 86, 90, 91, 134, 203),
        (
            0.0014,
            0.0966,
            0.3082,
            0.4318,
            0.4763,
            0.5866,
            0.6515,
            0.7093,
            0.7472,
            0.759,
            0.8243,
            0.8523,
            0.8589,
            0.9115,
            0.9242,
            0.9403,
            0.9976,
            1,
        ),
    ),
}
"""Rows per job; of the published, the points 1, 7 and 21, the median and the mean are counted."""
WITH_ORDER = 0.483 / 0.595
"""Share of the jobs with several rows that have a precedence among them."""
HOURS = (
    83,
    108,
    88,
    109,
    103,
    146,
    100,
    146,
    71,
    92,
    79,
    91,
    60,
    55,
    75,
    94,
    97,
    103,
    58,
    79,
    79,
    82,
    55,
    59,
)
"""Jobs of the sample by hour; it was not drawn for that."""
MOST_SMALL = 8
CHAIN, MOST_CHAINED = 0.6, 32
"""Share of the rows that wait for the row just before them, in jobs of up to so many rows: chains
are then nearly as long as in the sample."""


class Rows(NamedTuple):
    """Rows of jobs of a size.

    ``one`` and ``many`` are seconds of rows with one and with several instances; ``parents`` is of
    the third row of a job and later ones: the second waits for the first.
    """

    shapes: tuple[Shape, ...]
    tasks: Cdf
    one: Cdf
    many: Cdf
    parents: Cdf
    offset: Cdf


SMALL = Rows(
    (
        Shape(0.5, 0.2, 0, 871),
        Shape(1, 0.3, 0, 834),
        Shape(1, 0.39, 0, 658),
        Shape(1, 0.49, 0, 463),
        Shape(0.5, 0.39, 0, 287),
        Shape(0.5, 0.3, 0, 152),
        Shape(1, 0.59, 0, 115),
        Shape(0.5, 0.59, 0, 89),
        Shape(1, 0.2, 0, 82),
        Shape(0.5, 0.15, 0, 55),
        Shape(0.5, 0.49, 0, 52),
        Shape(1, 0.25, 0, 36),
    ),
    tasks=Cdf(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 21, 89, 101, 177, 512, 2020, 13717, 42188),
        (
            0.6195,
            0.6379,
            0.7083,
            0.7152,
            0.7368,
            0.7456,
            0.7637,
            0.7696,
            0.7837,
            0.7952,
            0.8339,
            0.8939,
            0.9045,
            0.9275,
            0.9715,
            0.9925,
            0.999,
            1,
        ),
    ),
    one=Cdf(
        (0, 1, 2, 3, 4, 6, 9, 24, 36, 45, 60, 111, 136, 306, 332, 415, 552, 2058),
        (
            0.0994,
            0.3022,
            0.3995,
            0.5269,
            0.6083,
            0.6926,
            0.7555,
            0.8528,
            0.8769,
            0.8993,
            0.9195,
            0.9363,
            0.9471,
            0.9625,
            0.9763,
            0.9875,
            0.9944,
            1,
        ),
    ),
    many=Cdf(
        (0, 2, 3, 5, 8, 13, 17, 18, 22, 47, 55, 65, 109, 178, 393, 707, 1271, 5700),
        (
            0.0077,
            0.0855,
            0.1331,
            0.2221,
            0.3266,
            0.4121,
            0.4681,
            0.4877,
            0.5116,
            0.6657,
            0.7071,
            0.7344,
            0.7947,
            0.869,
            0.9446,
            0.9776,
            0.993,
            1,
        ),
    ),
    parents=Cdf((0, 1, 2, 3, 4, 7), (0.3017, 0.761, 0.9466, 0.9903, 0.999, 1)),
    offset=Cdf(
        (0, 1, 2, 3, 6, 15, 30, 188, 747, 1048, 5429),
        (0.845, 0.8654, 0.8686, 0.8796, 0.905, 0.9439, 0.9611, 0.9854, 0.9943, 0.9993, 1),
    ),
)
LARGE = Rows(
    (
        Shape(0.5, 0.2, 0, 16047),
        Shape(1, 0.49, 0, 13864),
        Shape(1, 0.3, 0, 6669),
        Shape(1, 0.39, 0, 4502),
        Shape(1, 0.59, 0, 3396),
        Shape(0.5, 0.39, 0, 2917),
        Shape(0.5, 0.3, 0, 2246),
        Shape(0.5, 0.59, 0, 460),
        Shape(1, 0.35, 0, 283),
        Shape(0.5, 0.49, 0, 274),
        Shape(1, 0.2, 0, 245),
        Shape(1, 0.79, 0, 95),
    ),
    tasks=Cdf(
        (1, 2, 3, 4, 6, 11, 12, 13, 33, 91, 218, 278, 507, 513, 623, 1248, 6298, 66395),
        (
            0.706,
            0.7281,
            0.7876,
            0.7946,
            0.8175,
            0.8597,
            0.8614,
            0.8704,
            0.9099,
            0.9399,
            0.9579,
            0.9668,
            0.9746,
            0.9792,
            0.9852,
            0.9964,
            0.999,
            1,
        ),
    ),
    one=Cdf(
        (0, 2, 3, 4, 5, 6, 8, 9, 14, 30, 44, 76, 215, 303, 385, 455, 1120, 2916),
        (
            0.0108,
            0.1227,
            0.2037,
            0.3091,
            0.3804,
            0.4272,
            0.5201,
            0.5495,
            0.6367,
            0.7436,
            0.7817,
            0.8212,
            0.8748,
            0.911,
            0.9491,
            0.9624,
            0.9922,
            1,
        ),
    ),
    many=Cdf(
        (0, 2, 3, 6, 10, 29, 35, 47, 89, 158, 174, 219, 333, 409, 870, 1255, 2684, 6338),
        (
            0.0011,
            0.0363,
            0.0708,
            0.162,
            0.2464,
            0.5056,
            0.5571,
            0.6186,
            0.7151,
            0.7889,
            0.8109,
            0.8451,
            0.8968,
            0.9153,
            0.9501,
            0.9756,
            0.9952,
            1,
        ),
    ),
    parents=Cdf(
        (0, 1, 2, 3, 4, 5, 7, 10, 14, 15, 16, 18),
        (0.2435, 0.8352, 0.9159, 0.9632, 0.9712, 0.9816, 0.9878, 0.9921, 0.9934, 0.9961, 0.9979, 1),
    ),
    offset=Cdf(
        (0, 1, 4, 9, 14, 39, 60, 241, 312, 346, 362, 385, 514, 688, 840, 1105, 1295, 5173),
        (
            0.5944,
            0.737,
            0.7557,
            0.7788,
            0.799,
            0.8308,
            0.852,
            0.8823,
            0.8937,
            0.9062,
            0.9083,
            0.9197,
            0.9506,
            0.9627,
            0.9668,
            0.9868,
            0.9934,
            1,
        ),
    ),
)


def requests(
    rng: np.random.Generator, created: Floats, *, sizes: str = "published"
) -> pl.DataFrame:
    """Tasks of jobs, some of them after others; rows of a job are numbered from 0."""
    if sizes not in SIZES:
        raise ScenarioError(f"sizes is {sizes!r}; choose among {', '.join(SIZES)}")
    rows = SIZES[sizes].draw(rng, len(created), whole=True).astype(np.int64)
    at = np.repeat(np.arange(len(created)), rows)
    number = np.arange(len(at)) - np.repeat(np.cumsum(rows) - rows, rows)
    ordered = rng.random(len(created)) < (1.0 if sizes == "sample" else WITH_ORDER)
    small = rows[at] <= MOST_SMALL
    drawn = {True: _draw(rng, SMALL, len(at)), False: _draw(rng, LARGE, len(at))}
    column = {name: np.where(small, drawn[True][name], drawn[False][name]) for name in drawn[True]}
    parents = np.minimum(column.pop("parents").astype(np.int64), number)
    parents = np.where(number == 1, 1, parents) * ordered[at]
    offset = np.where(number == 0, 0.0, column.pop("offset"))
    chained = (rng.random(len(at)) < CHAIN) & (rows[at] <= MOST_CHAINED)
    names, after = _precedence(rng, number, parents, chained)
    return pl.DataFrame(
        {
            "at": at,
            "created": created[at] + offset,
            **column,
            "wait": np.zeros(len(at)),
            "gpu": np.zeros(len(at)),
            "models": pl.repeat("", len(at), eager=True),
            "name": names,
            "after": after,
        }
    )


def _draw(rng: np.random.Generator, rows: Rows, n: int) -> dict[str, Floats]:
    tasks = rows.tasks.draw(rng, n, whole=True)
    one, many = (table.draw(rng, n, whole=True) for table in (rows.one, rows.many))
    asked = typical(rng, rows.shapes, n)
    return {
        "cpu": asked[:, 0],
        "mem": asked[:, 1],
        "tasks": tasks,
        "lifetime": np.where(tasks == 1, one, many),
        "parents": rows.parents.draw(rng, n, whole=True),
        "offset": rows.offset.draw(rng, n, whole=True),
    }


def _precedence(
    rng: np.random.Generator, number: Ints, parents: Ints, chained: Bools
) -> tuple[pl.Series, pl.Series]:
    """Names with the numbers of the parents in them, as in the trace, and the parents' names.

    The parents of a row are drawn among those before it, each once; of chained rows the first is
    the row just before it.
    """
    child = np.repeat(np.arange(len(number)), parents)
    back = np.floor(rng.random(len(child)) * number[child]).astype(np.int64)
    first = np.diff(child, prepend=-1) > 0
    parent = child - 1 - np.where(first & chained[child], 0, back)
    edges = pl.DataFrame({"child": child, "parent": parent}).unique().sort("child", "parent")
    own = pl.Series("number", number + 1).cast(pl.String)
    numbers = edges.with_columns(of=own.gather(edges["parent"]))
    joined = numbers.group_by("child", maintain_order=True).agg(pl.col("of").str.join("_"))
    every = pl.DataFrame({"child": np.arange(len(number)), "own": own})
    letters = every.join(joined, on="child", how="left", maintain_order="left").select(
        name=pl.when(pl.col("of").is_null())
        .then(pl.format("M{}", "own"))
        .otherwise(pl.format("R{}_{}", "own", "of"))
    )["name"]
    before = edges.with_columns(name=letters.gather(edges["parent"]))
    after = before.group_by("child", maintain_order=True).agg(pl.col("name").str.join("|"))
    found = every.join(after, on="child", how="left", maintain_order="left")
    return letters, found["name"].fill_null("")


CALIBRATION = Calibration(
    NAME,
    {"cpu": "cores", "mem": "% of max", "gpu": "GPUs"},
    MACHINES,
    Arrivals(hours=HOURS),
    jobs_per_day=4_201_014 / 8,
    requests=requests,
    servers=400,
    days=1.0,
    options={"sizes": "rows per job: published, or as in the sample of jobs with precedence"},
    reproduces="the machines, the published sizes of jobs and share with a precedence, and by size "
    "of job the requests, instances, lifetimes, parents and start times of the rows",
    leaves_out="containers, machines that come and go, failures, bursts of arrivals, days of the "
    "week, and how the rows of a job resemble each other",
    within={
        "cpu": 0.01,
        "mem": 0.01,
        "gpu": 0.0,
        "lifetime": 0.02,
        "tasks": 0.01,
        "parents": 0.02,
        "rows per job": 0.04,
        "hour": 0.08,
        "machines": 0.0,
    },
)

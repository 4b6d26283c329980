"""What the jobs of each twin request: how the numbers of its ``.toml`` are drawn from.

Each function takes the tables of its twin (:attr:`Calibration.tables`), a generator and the times
``created`` at which jobs arrive, and gives the rows of ``jobs``: ``at`` (number of the job, from
0), ``created``, ``lifetime`` (seconds from creation on), ``cpu``, ``mem``, ``gpu``, ``models``, and
where the format has them ``tasks``, ``wait``, ``name`` and ``after``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.traces.twins.calibration import Calibration, Cdf, choose, counted

Z90 = 1.2816  # the 90 % point of the standard normal distribution


def draw_requests(
    made: Calibration, rng: np.random.Generator, created: Floats, options: Mapping[str, Any]
) -> pl.DataFrame:
    return DRAWN[made.name](made, rng, created, **options)


def gpu_v2020(made: Calibration, rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """Tasks: gangs and single instances, each on one GPU model, as with ``models = "assigned"``."""
    t, n = made.tables, len(created)
    gang = np.ceil(np.exp(rng.normal(t["gang"][0], t["gang"][1], n)))
    kinds = [kind for kind in made.machines if kind.gpu]
    gpu = counted(rng, t["gpus"], n)[:, 0]
    weight = [
        kind.number * kind.gpu * t["allocated"]["strong" if kind.model in t["strong"] else "weak"]
        for kind in kinds
    ]
    room = np.array([kind.gpu for kind in kinds])
    on = choose(rng, weight, n)
    large = [w * (kind.gpu >= 8) for w, kind in zip(weight, kinds)]
    on = np.where(gpu > room[on], choose(rng, large, n), on)  # to where it fits
    model = np.array([kind.model for kind in kinds])[on]
    strong = np.isin(model, t["strong"])
    median, most = (np.where(strong, *pair) for pair in zip(t["wait"]["strong"], t["wait"]["weak"]))
    wait = median * np.exp(np.log(most / median) / Z90 * rng.standard_normal(n))
    wait = np.minimum(wait, t["longest_wait"]).round()
    cores = np.array([kind.cpu for kind in kinds])[on]
    # Of the mean m of a log-normal distribution, the mean of the logarithm is ln m - σ² / 2.
    log_mean, sigma = np.log(t["mean_seconds"]) - t["sigma"] ** 2 / 2, t["sigma"]
    single = t["single_share"] * t["instances"] / t["tasks"]  # share of the tasks
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": wait + np.ceil(np.exp(rng.normal(log_mean, sigma, n))),
            "cpu": np.minimum(counted(rng, t["cores"], n)[:, 0], cores),
            "mem": counted(rng, t["gib"], n)[:, 0],
            "gpu": gpu,
            "tasks": np.where(rng.random(n) < single, 1.0, np.maximum(gang, 2.0)),
            "models": model,
        }
    )


def gpu_v2023(
    made: Calibration, rng: np.random.Generator, created: Floats, *, constrained: float = 0.0
) -> pl.DataFrame:
    """Pods: common requests, and others by class; a share with GPUs is ``constrained``."""
    if not (isinstance(constrained, int | float) and 0 <= constrained <= 1):
        raise ScenarioError(f"constrained is {constrained!r}; it must be a share, from 0 to 1")
    t, n = made.tables, len(created)
    asked, rare = _common(rng, t, n)
    gpu = np.where(rare, counted(rng, t["gpus"], n)[:, 0], asked[:, 2])
    group = np.select([gpu == 0, gpu < 1, gpu == 1], [0, 1, 2], 3)
    classes = [t["classes"][name] for name in ("none", "part", "one", "several")]

    def by_class(quantity: str, whole: bool = False) -> Floats:
        drawn = [Cdf.of(each[quantity]).draw(rng, n, whole=whole) for each in classes]
        return np.asarray(np.choose(group, drawn))

    cores = by_class("cores") * np.maximum(gpu, 1)
    cpu = np.where(rare, cores.round(1), asked[:, 0])
    gib = by_class("gib")
    model = np.array([kind.model for kind in made.machines])
    on = choose(rng, [kind.number * kind.gpu for kind in made.machines], n)
    bound = (gpu > 0) & (rng.random(n) < constrained)
    # no kind of machine of the drawn model may hold the pod: it is then free to use any
    most = {m: max(k.gpu for k in made.machines if k.model == m) for m in model}
    bound &= gpu <= np.array([most[m] for m in model])[on]
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "lifetime": by_class("seconds", whole=True),
            "cpu": cpu,
            "mem": np.where(rare, (cpu * gib).round(2), asked[:, 1]),
            "gpu": gpu,
            "models": np.where(bound, model[on], ""),
        }
    )


def google_2011(made: Calibration, rng: np.random.Generator, created: Floats) -> pl.DataFrame:
    """One request of equal tasks for each job."""
    t, n = made.tables, len(created)
    table = {name: Cdf.of(points) for name, points in t["tables"].items()}
    common, other = _common(rng, t, n)
    many = rng.random(n) < np.where(other, *reversed(t["several"]))
    wait = table["wait"].draw(rng, n)
    one, several = (table[f"seconds_{size}"].draw(rng, n) for size in ("one", "several"))
    return pl.DataFrame(
        {
            "at": np.arange(n),
            "created": created,
            "wait": wait,
            "lifetime": np.maximum(np.where(many, several, one), wait),
            "cpu": np.where(other, table["cpu"].draw(rng, n), common[:, 0]),
            "mem": np.where(other, table["mem"].draw(rng, n), common[:, 1]),
            "gpu": np.zeros(n),
            "tasks": np.where(many, table["tasks"].draw(rng, n, whole=True), 1.0),
            "models": pl.repeat("", n, eager=True),
        }
    )


def _common(rng: np.random.Generator, t: Mapping[str, Any], n: int) -> tuple[Floats, Bools]:
    """A common request for each job, shape [n, 3], and whether the job makes another instead."""
    asked = counted(rng, t["common"], n)
    return asked, rng.random(n) < t["others"] / (t["others"] + sum(row[-1] for row in t["common"]))


def v2018(
    made: Calibration, rng: np.random.Generator, created: Floats, *, sizes: str = "published"
) -> pl.DataFrame:
    """Tasks of jobs, some of them after others; rows of a job are numbered from 0."""
    t = made.tables
    if sizes not in t["sizes"]:
        raise ScenarioError(f"sizes is {sizes!r}; choose among {', '.join(t['sizes'])}")
    rows = Cdf.of(t["sizes"][sizes]).draw(rng, len(created), whole=True).astype(np.int64)
    at = np.repeat(np.arange(len(created)), rows)
    number = np.arange(len(at)) - np.repeat(np.cumsum(rows) - rows, rows)
    share = 1.0 if sizes == "sample" else t["with_order"] / t["with_several"]
    ordered = rng.random(len(created)) < share
    small = rows[at] <= t["small"]
    drawn = [_rows_of_v2018(rng, t["rows"][size], len(at)) for size in ("small", "large")]
    column = {name: np.where(small, drawn[0][name], drawn[1][name]) for name in drawn[0]}
    parents = np.minimum(column.pop("parents").astype(np.int64), number)
    parents = np.where(number == 1, 1, parents) * ordered[at]
    offset = np.where(number == 0, 0.0, column.pop("offset"))
    chained = (rng.random(len(at)) < t["chain"]) & (rows[at] <= t["most_chained"])
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


def _rows_of_v2018(rng: np.random.Generator, t: Mapping[str, Any], n: int) -> dict[str, Floats]:
    def draw(name: str) -> Floats:
        return Cdf.of(t[name]).draw(rng, n, whole=True)

    tasks, one, many = draw("tasks"), draw("one"), draw("many")
    asked = counted(rng, t["common"], n)
    return {
        "cpu": asked[:, 0],
        "mem": asked[:, 1],
        "tasks": tasks,
        "lifetime": np.where(tasks == 1, one, many),
        "parents": draw("parents"),
        "offset": draw("offset"),
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


DRAWN: Mapping[str, Callable[..., pl.DataFrame]] = {
    "alibaba-gpu-v2020": gpu_v2020,
    "alibaba-gpu-v2023": gpu_v2023,
    "alibaba-v2018": v2018,
    "google-2011": google_2011,
}

"""The precedence of batch tasks, which Alibaba cluster-trace-v2018 writes into their names.

``M1`` waits for nothing, ``J3_1_2`` for tasks 1 and 2 of its job; letters mean nothing, and a
parent may have the higher number. ``task_...`` is independent. Names are cut at 50 characters: the
last number of a cut name may be a part of a longer one, and parents after it are lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from gangwise.traces.dag import Dag


LONGEST = 50
NAME = r"^[A-Za-z]+(\d{1,18})(?:_\d{1,18})*_?$"


def edges_of(tasks: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Edges that names tell, and how many names or parents something is the matter with.

    Parameters
    ----------
    tasks : polars.DataFrame
        ``job``, ``name``, and ``used``: whether the task is used, or can only be missed as a
        parent.

    Returns
    -------
    edges : polars.DataFrame
        ``child`` and ``parent``: used tasks, numbered from 0 in their order. A task that waits for
        a number which two tasks of its job have waits for both.
    counts : mapping of str to int
        Of used tasks. ``dag``: names that tell precedence; ``other``: names of neither kind, taken
        as independent; ``cut``: names that may be incomplete; ``doubtful``: last parents of those,
        left out; ``lost``: parents that the job does not have; ``unused``: parents that are not
        used; ``shared``: tasks whose number another task of the job has too.

    Examples
    --------
    >>> import polars as pl
    >>> names = ["J1_3_2", "M2", "M3_2", "task_Nzg3"]
    >>> edges, counts = edges_of(pl.DataFrame({"job": "j_1", "name": names, "used": True}))
    >>> edges.rows()
    [(0, 1), (0, 2), (2, 1)]
    """
    import polars as pl

    name, used = pl.col("name"), pl.col("used")
    named = tasks.select(
        "job",
        "name",
        "used",
        index=pl.when(used).then(used.cum_sum().cast(pl.Int64) - 1),
        id=name.str.extract(NAME, 1).cast(pl.Int64),
        cut=(name.str.len_chars() >= LONGEST) | name.str.ends_with("_"),
    )
    dag = named.filter(pl.col("id").is_not_null())
    mine = dag.filter("used")
    tokens = name.str.split("_").list.slice(1)
    said = mine.select(
        "job",
        child="index",
        doubtful=pl.col("cut") & ~name.str.ends_with("_"),
        id=pl.when("cut").then(tokens.list.head(tokens.list.len() - 1)).otherwise(tokens),
    )
    waits = said.explode("id").filter(pl.col("id").is_not_null())
    waits = waits.select("job", "child", pl.col("id").cast(pl.Int64)).unique()
    known = dag.select("job", "id", "used", parent="index")
    edges = waits.join(known, on=["job", "id"], how="left").sort("child", "parent")
    counts = {
        "dag": len(mine),
        "other": named.filter(
            used & pl.col("id").is_null() & ~name.str.starts_with("task_")
        ).height,
        "cut": int(mine["cut"].sum()),
        "doubtful": int(said["doubtful"].sum()),
        "lost": edges["used"].null_count(),
        "unused": edges.filter(~used).height,
        "shared": int(mine.select(pl.struct("job", "id").is_duplicated().sum()).item()),
    }
    return edges.filter("used").select("child", "parent"), counts


def after(names: pl.Series, dag: Dag) -> pl.Series:
    """Names of the parents of each task, in the order of their rows, joined by ``|``."""
    import polars as pl

    edges = pl.DataFrame({"child": dag.child, "name": names.gather(dag.parent)})
    joined = edges.group_by("child", maintain_order=True).agg(pl.col("name").str.join("|"))
    tasks = pl.DataFrame({"child": pl.arange(len(names), dtype=pl.Int64, eager=True)})
    found = tasks.join(joined, on="child", how="left", maintain_order="left")
    return found["name"].fill_null("").alias("after")

"""Tables of a trace written by hand."""

from __future__ import annotations

import polars as pl

from gangwise.logs.reading import Stage
from gangwise.logs.tables import UNITS, Tables

NUMBERS = ("cpu", "mem", "gpu", "created", "deleted")


def tables(jobs, servers=(), events=None, units=UNITS, digests=None, **columns) -> Tables:
    """Rows (name, cpu, mem, gpu, created, deleted), and (name, model, cpu, mem, gpu) of servers."""
    names = ["name", *NUMBERS]
    frame = pl.DataFrame(
        jobs, orient="row", schema={n: pl.Float64 if n in NUMBERS else pl.String for n in names}
    ).with_row_index("row", offset=1)
    frame = frame.with_columns(
        pl.col("row").cast(pl.Int64), models=pl.Series(columns.pop("models", [""] * len(jobs)))
    )
    frame = frame.with_columns(**{name: pl.Series(values) for name, values in columns.items()})
    there = pl.DataFrame(
        list(servers),
        orient="row",
        schema={
            "name": pl.String,
            "model": pl.String,
            "cpu": pl.Float64,
            "mem": pl.Float64,
            "gpu": pl.Float64,
        },
    ).with_row_index("row", offset=1)
    log = None
    if events is not None:
        log = pl.DataFrame(events, orient="row", schema=["time", "server", "up"])
    return Tables(
        "made",
        there,
        frame,
        (Stage("jobs.csv", len(jobs), len(jobs), {}),),
        digests or {"jobs.csv": "0" * 64},
        ("a note",),
        dict(units),
        log,
    )

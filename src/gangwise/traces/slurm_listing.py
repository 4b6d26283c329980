"""Jobs of a text listing of ``sacct``, by the columns that its header names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage, leave_out
from gangwise.traces.formats import Format, TableFile
from gangwise.traces.json_records import beginning
from gangwise.traces.schema import Column, Schema
from gangwise.traces.slurm_notation import seconds_of
from gangwise.traces.source import Source
from gangwise.traces.text import split_line

if TYPE_CHECKING:
    import polars as pl


NAME = "slurm-sacct"
COMMAND = (
    "sacct -a -X -P --format=JobID,User,State,Submit,Start,End,ReqTRES,AllocTRES,NNodes,NodeList"
)
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d{1,10}"
NEVER = "Unknown|None|N/A"
TRES = r"[^=,|]+=\d+(?:\.\d+)?[KMGTP]?(?:,[^=,|]+=\d+(?:\.\d+)?[KMGTP]?)*,?"


def _text(name: str, pattern: str = "", *also: str, needed: bool = False) -> Column:
    return Column(name, number=False, empty=True, pattern=pattern, needed=needed, also=also)


SACCT = Schema(
    "sacct listing",
    (
        Column(
            "JobID",
            number=False,
            pattern=r"\d+(?:_(?:\d+|\[.*\]?))?(?:\+\d+)?(?:\..+)?",
            also=("JobIDRaw",),
        ),
        Column("Submit", number=False, pattern=TIME),
        _text("Start", f"{TIME}|{NEVER}", needed=True),
        _text("End", f"{TIME}|{NEVER}"),
        _text("Elapsed", r"(?:(?:\d+-)?\d+:)?\d+:\d+(?:\.\d+)?"),
        _text("State"),
        _text("User"),
        _text("ReqTRES", TRES),
        _text("AllocTRES", TRES),
        _text("ReqMem", r"\d+(?:\.\d+)?[KMGTP]?[nc]?"),
        Column("NNodes", whole=True, empty=True, needed=False, also=("AllocNodes", "ReqNodes")),
        _text("NodeList"),
    ),
    separator="|",
    unique="JobID",
)
FORMAT = Format(
    NAME,
    "Slurm accounting",
    "https://slurm.schedmd.com/sacct.html",
    "your own",
    (TableFile("jobs", SACCT, needed=True, gives="jobs, as a listing or as JSON"),),
)


def is_listing(file: Path) -> bool:
    """Whether the first line names columns of sacct, with bars between them."""
    first = beginning(file).split("\n", 1)[0]
    fields = [field.strip() for field in split_line(first, "|") or []]
    names = ("JobID", "JobIDRaw"), ("Submit", "Start", "End", "State", "ReqTRES", "AllocTRES")
    return all(any(name in fields for name in group) for group in names)


def read_listing(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str]]:
    """Allocations of a text listing, as published or converted, and the stages of it."""
    import polars as pl

    source = Source(file, FORMAT, strict=strict)
    if source.converted is None:
        _check(file)
    read = source.read("jobs")
    blank = [
        pl.lit("").alias(c.name)
        for c in SACCT.columns
        if not c.number and c.name not in read.frame.columns
    ]
    frame = read.frame.with_columns(blank)
    if "NNodes" not in frame.columns:
        frame = frame.with_columns(NNodes=pl.lit(None, pl.Float64))
    frame, steps = leave_out(
        "allocations",
        frame,
        [
            (
                "a step, whose job has a row of its own",
                pl.col("JobID").str.contains(".", literal=True),
            )
        ],
    )
    end = pl.coalesce(
        _seconds("End"),
        _seconds("Start")
        + pl.when(pl.col("End") == "").then(
            pl.col("Elapsed").map_elements(_elapsed, return_dtype=pl.Float64)
        ),
    )
    nodes = pl.col("NNodes").cast(pl.Int64)
    frame = frame.select(
        "row",
        name="JobID",
        user="User",
        status=pl.col("State").str.split(" ").list.first(),
        submit=_seconds("Submit"),
        start=_seconds("Start"),
        end=end,
        req="ReqTRES",
        alloc="AllocTRES",
        memory="ReqMem",
        nodes=pl.when(nodes > 0).then(nodes),
        hosts="NodeList",
    )
    return frame, (*read.stages, steps), read.digests


def _check(file: Path) -> None:
    """Raise when columns are missing without which nothing can be made of the listing."""
    header = [field.strip() for field in split_line(beginning(file).split("\n", 1)[0], "|") or []]
    missing = [c.name for c in SACCT.columns if c.needed and c.name not in SACCT.place(header)]
    if "End" not in header and "Elapsed" not in header:
        missing.append("End")
    if not {"ReqTRES", "AllocTRES"} & set(header):
        missing.append("ReqTRES")
    if missing:
        raise TraceError(
            f"the sacct listing has no {' and no '.join(missing)}; run {COMMAND}", file, 1
        )


def _seconds(column: str) -> pl.Expr:
    """Seconds since 1970 of a local time, as if it were UTC, or of seconds since 1970."""
    import polars as pl

    time = pl.col(column).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="ms")
    number = pl.col(column).cast(pl.Float64, strict=False)
    return pl.coalesce(time.dt.epoch("s").cast(pl.Float64), pl.when(number > 0).then(number))


def _elapsed(text: str) -> float | None:
    return seconds_of(text) if text else None

"""Tables of jobs that were pending: one row for each job at each instant at which one looked.

Sites that keep what ``squeue`` or ``sprio`` said, beside what accounting says of the same jobs
later, have such tables; Compute Canada's are published. Columns are known by their names. Only what
was known at the instant may be used: columns that say what a job asked for, who asked, its
priority and shares, and what stood above it and ran. Of a column that stands there twice, as NAME_x
and NAME_y, the second is that of the instant.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError
from gangwise.logs.text import Blocks, first_lines, scan_parquet
from gangwise.sites.wait_history import PendingJobs

WORDS = tomllib.loads(Path(__file__).with_name("guess.toml").read_text(encoding="utf-8"))
NOW, SUBMIT, START, ELIGIBLE, ID, GROUPS, KNOWN = map(str.split, WORDS["pending"].values())
FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


def pending_files(path: Path | str) -> list[Path]:
    """Files of tables of pending jobs at a path; none if there are none."""
    path = Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [f for f in files if f.suffix in (".parquet", ".csv") and f.is_file() and _is_one(f)]


def _is_one(file: Path) -> bool:
    columns = next(csv.reader(first_lines(file, 1)), [])
    return all(_first(columns, names) for names in (NOW, SUBMIT, START))


def _read(file: Path) -> pl.DataFrame:
    try:
        if file.suffix == ".parquet":
            return scan_parquet(file).collect()
        # Types are inferred from many rows: a column may be empty for thousands.
        return pl.read_csv(Blocks(file).whole(), infer_schema_length=10_000)
    except pl.exceptions.PolarsError as error:
        problem = str(error).split("\n")[0]
        raise TraceError(
            f"the table of pending jobs cannot be read ({problem}); correct it, or leave it out",
            file,
        ) from error


def _first(columns: Sequence[str], names: Sequence[str]) -> str:
    return next((name for name in names if name in columns), "")


def open_pending(files: Sequence[Path]) -> PendingJobs:
    """Jobs that were pending, in the order of instants; TraceError for a time that is none."""
    # Tables of different months may differ in columns and types.
    table = pl.concat([_read(file) for file in files], how="diagonal_relaxed")
    columns = table.columns
    if name := _first(columns, ID):  # a job may stand in two tables of one instant
        table = table.unique([name, _first(columns, NOW)], keep="first", maintain_order=True)
    instant, submit, start = (_seconds(table, _first(columns, n)) for n in (NOW, SUBMIT, START))
    if np.isnan(instant).any() or np.isnan(submit).any():
        raise TraceError(
            f"{int(np.isnan(instant + submit).sum())} rows lack an instant or a submission"
        )
    # Only jobs that were in line at the instant.
    waits = ~(start <= instant) & (submit <= instant)
    features: dict[str, Any] = {
        "waited": instant - submit,
        "weekday": instant // 86400 % 7,
        "hour": instant % 86400 // 3600,
    }
    if eligible := _first(columns, ELIGIBLE):
        # When a job that waits for another, or for a time, will be eligible is not known yet.
        since = instant - _seconds(table, eligible)
        features |= {
            "eligible": (since >= 0) * 1.0,
            # Not yet eligible is unknown rather than a negative time.
            "eligible for": np.where(since >= 0, since, np.nan),
        }
    groups = {}
    for column in columns:
        name = column.removesuffix("_y")
        # The one of the instant is `_y`; `_x` is that of the end, which nobody knew then.
        if column.endswith("_x") and f"{column.removesuffix('_x')}_y" in columns:
            continue
        name = name.removesuffix("_x")
        if name in GROUPS:
            groups[name] = table[column].cast(pl.String).rank("dense").to_numpy().astype(np.int64)
        elif name.startswith((*KNOWN,)) or name.endswith("_poll"):
            if table[column].dtype.is_numeric():
                features[name] = table[column].cast(pl.Float64).fill_null(np.nan).to_numpy()
            elif "tres" in name:
                features |= _tres(table[column])
    for code in groups:
        # How many of the same group wait at the instant: competition within it.
        together = table.select(pl.len().over(_first(columns, NOW), pl.Series(code, groups[code])))
        features[f"waiting by {code}"] = together.to_series().cast(pl.Float64).to_numpy()
    ids = table[_first(columns, ID)] if _first(columns, ID) else pl.Series(np.arange(len(table)))
    never = np.full(len(table), np.inf)
    pending = PendingJobs(
        ids.cast(pl.String).to_numpy(),
        instant,
        np.where(np.isnan(start), np.inf, start),
        never,
        features,
        groups,
    )
    order = np.flatnonzero(waits)
    # Sorted by instant, with ties in the order of rows.
    return pending.at(order[np.argsort(instant[order], kind="stable")])


def _tres(column: pl.Series) -> dict[str, Floats]:
    """Amounts of trackable resources as Slurm writes them: cpu=4,mem=16G,gres/gpu=1,node=1."""
    amounts = {}
    for kind in ("node", "gres/gpu", "billing"):
        amount = column.str.extract(rf"(?:^|,){kind}=(\d+)", 1).cast(pl.Float64)
        amounts[kind] = amount.fill_null(0.0).to_numpy()
    return amounts


def _seconds(table: pl.DataFrame, column: str) -> Floats:
    """Times in seconds; NaN where a row has none."""
    values = table[column]
    if values.dtype == pl.String:
        for form in FORMATS:
            parsed = values.str.to_datetime(form, strict=False)
            # The first form that fits any; the rest become NaN.
            if parsed.null_count() < len(values):
                values = parsed
                break
        else:
            text = values.drop_nulls().head(1).to_list()
            raise TraceError(f"column {column} holds no times that are understood, such as {text}")
    if values.dtype.is_temporal():
        values = values.dt.epoch("ms") / 1000
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()

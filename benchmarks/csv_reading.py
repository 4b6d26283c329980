"""Reading CSV with an account of every row, against polars and DuckDB alone: ratios in one run.

    python -m benchmarks.csv_reading [--rows 2000000]

A plain file, one in which every field is quoted, one with a bad row in a thousand,
``batch_instance`` of Alibaba v2018 (14 columns, made from its schema), and files of blank lines,
all made here. polars and DuckDB are told the types and check nothing else; DuckDB is left out
where it is not installed (``pip install duckdb``). CPU seconds of one thread, best of three: other
processes count little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from gangwise.traces.formats.alibaba_v2018 import FORMAT as V2018
from gangwise.traces.io.blocks import Blocks
from gangwise.traces.io.reading import read_table
from gangwise.traces.io.schema import Column, Schema

try:
    import duckdb
except ImportError:
    duckdb = None  # type: ignore[assignment]  # optional here

SCHEMA = Schema(
    "list",
    (
        Column("name", number=False),
        Column("count", whole=True),
        Column("share", empty=True),
        Column("note", number=False, empty=True),
    ),
    header=False,
)
INSTANCES = V2018.table("batch_instance").schema


def best(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the fastest of a few runs."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def instance(i: int) -> str:
    """A row of batch_instance."""
    start = 80_000 + i * 7 % 500_000
    return (
        f"ins_{i * 7919 % 10**8},M{1 + i % 19},j_{i // 30},{1 + i % 12},Terminated,{start},"
        f"{start + 7 + i % 900},m_{1 + i * 7 % 4034},1,1,{i % 397 / 4},{i % 997 / 4},"
        f"0.0{i % 9},0.{i % 31}\n"
    )


KINDS: Mapping[str, tuple[Schema, Callable[[int], str]]] = {
    "plain": (SCHEMA, lambda i: f"job{i % 1000},{i % 77},0.5,text\n"),
    "quoted": (SCHEMA, lambda i: f'"job{i % 1000}","{i % 77}","0.5","te,xt"\n'),
    "a bad row in 1000": (
        SCHEMA,
        lambda i: f"job{i % 1000},{'many' if i % 1000 == 5 else 7},0.5,text\n",
    ),
    "batch_instance": (INSTANCES, instance),
}


def with_polars(file: Path, schema: Schema) -> Any:
    """The file read by polars alone; where a number is none, as text."""
    types = {c.name: pl.Float64 if c.number else pl.String for c in schema.columns}
    try:
        return pl.read_csv(file, has_header=False, schema=types)
    except pl.exceptions.PolarsError:
        return pl.read_csv(file, has_header=False, schema=dict.fromkeys(types, pl.String))


def with_duckdb(file: Path, schema: Schema) -> Any:
    """The file read by DuckDB alone, what it refuses stored."""
    types = {c.name: "DOUBLE" if c.number else "VARCHAR" for c in schema.columns}
    connection = duckdb.connect(config={"threads": 1})
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    return connection.execute(
        f"CREATE TABLE rows AS SELECT * FROM read_csv('{file}', header=false, delim=',', "
        f"quote='\"', columns={{{columns}}}, store_rejects=true)"
    )


def main() -> None:
    """Print a line for each file."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=2_000_000)
    n = options.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        for kind, (schema, row) in KINDS.items():
            file.write_text("".join(map(row, range(n))))
            ours = best(lambda s=schema: read_table(file, s))
            said = f"{kind:<18s} {n / ours / 1e6:6.2f} M rows/s"
            said += f", {ours / best(lambda s=schema: with_polars(file, s)):6.2f} times polars"
            if duckdb is not None:
                theirs = best(lambda s=schema: with_duckdb(file, s))
                said += f", {ours / theirs:6.2f} times DuckDB"
            print(said, flush=True)
        sizes, taken = (8, 16, 32), []
        for size in sizes:
            file.write_bytes(b"a,1,,\n" + b"\n" * (size << 20) + b"b,1,,\n")
            taken.append(best(lambda: sum(block.rows for block in Blocks(file)), 1))
        for size, seconds in zip(sizes, taken):
            print(f"{size} MiB of newlines  {seconds:6.2f} s")
        slope = np.polyfit(np.log(sizes), np.log(taken), 1)[0]
        print(f"exponent of newlines {slope:.2f}")


if __name__ == "__main__":
    main()

"""Reading CSV with an account of every row, against polars and DuckDB alone: ratios in one run.

    python -m benchmarks.csv_reading [--rows 2000000]
    python -m benchmarks.csv_reading --rejects

A plain file, one in which every field is quoted, one with a bad row in a thousand,
``batch_instance`` of Alibaba v2018 (14 columns, made from its schema), and files of blank lines,
all made here. polars and DuckDB are told the types and check nothing else; DuckDB is left out
where it is not installed (``pip install 'gangwise[benchmarks]'``). CPU seconds of one thread, best
of three: other processes count little.

With ``--rejects``, what each says of rows that cannot be right, one kind at a time among sound
ones: whether a library's own reader with rejects could give the account of every row.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from gangwise.logs.formats.alibaba_v2018 import FORMAT as V2018
from gangwise.logs.reading import Column, Schema, read_table
from gangwise.logs.text import Blocks

try:
    import duckdb
except ImportError:
    duckdb = None

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


BAD: Mapping[str, bytes] = {
    "text in a column of numbers": b"bad,many,0.5,x\n",
    "a field too few": b"bad,1,0.5\n",
    "a field too many": b"bad,1,0.5,x,y\n",
    "a blank line": b"\n",
    "a quote inside of a field": b'b"ad,1,0.5,x\n',
    "a quote that is not closed": b'"bad,1,0.5,x\n',
    "bytes that are not UTF-8": b"b\xffd,1,0.5,x\n",
    "nan": b"bad,nan,0.5,x\n",
    "1e400": b"bad,1,1e400,x\n",
    "a negative amount": b"bad,-1,0.5,x\n",
    "half of a count": b"bad,1.5,0.5,x\n",
    "nothing where something must be": b"bad,,0.5,x\n",
}
"""Rows that the schema of the list refuses, among rows that it does not."""


def ours_says(file: Path) -> str:
    """Rows kept of ten sound ones, and why others are not."""
    table = read_table(file, SCHEMA)
    why = "; ".join(f"row {row}: {reason}" for reason, (_, row) in table.stage.dropped.items())
    return f"{len(table.frame)} kept; {why or 'nothing said'}"


def polars_says(file: Path) -> str:
    """What polars makes of it where it is told to leave out what is wrong."""
    types = {c.name: pl.Float64 if c.number else pl.String for c in SCHEMA.columns}
    try:
        frame = pl.read_csv(
            file, has_header=False, schema=types, ignore_errors=True, truncate_ragged_lines=True
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        return f"nothing read: {str(error).splitlines()[0]:.60}"
    odd = frame.filter(~pl.col("name").str.starts_with("job").fill_null(False))
    return f"{len(frame)} kept; among them {odd.rows()!r:.60}"


def duckdb_says(file: Path) -> str:
    """What DuckDB makes of it, and what it stores among its rejects."""
    connection = duckdb.connect(config={"threads": 1})
    names = ", ".join(
        f"'{c.name}': '{'DOUBLE' if c.number else 'VARCHAR'}'" for c in SCHEMA.columns
    )
    try:
        rows = connection.execute(
            f"SELECT * FROM read_csv('{file}', header=false, delim=',', quote='\"', "
            f"columns={{{names}}}, auto_detect=false, store_rejects=true)"
        ).fetchall()
        lost = connection.execute("SELECT line, error_type FROM reject_errors").fetchall()
    except duckdb.Error as error:
        return f"nothing read: {str(error).splitlines()[0]:.60}"
    odd = [row for row in rows if not str(row[0]).startswith("job")]
    said = "; ".join(f"row {line}: {kind}" for line, kind in lost) or "nothing said"
    return f"{len(rows)} kept{f', among them {odd!r:.60}' if odd else ''}; {said}"


def rejects() -> None:
    """Print what each reader says of each kind of bad row."""
    good = [b"job%d,%d,0.5,text\n" % (n, n) for n in range(1, 11)]
    readers = [("ours", ours_says), ("polars", polars_says)]
    readers += [("DuckDB", duckdb_says)] if duckdb is not None else []
    with tempfile.TemporaryDirectory() as folder:
        for kind, row in BAD.items():
            file = Path(folder, "rows.csv")
            file.write_bytes(b"".join([*good[:5], row, *good[5:]]))
            print(kind)
            for name, says in readers:
                print(f"  {name:<7s} {says(file)}")
        file = Path(folder, "rows.csv.gz")
        packed = gzip.compress(b"".join(good) * 10_000)
        file.write_bytes(packed[: len(packed) // 2])
        print("a gzip file that is cut short")
        for name, says in readers:
            print(f"  {name:<7s} {says(file)}")


def main() -> None:
    """Print a line for each file."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--rejects", action="store_true")
    given = options.parse_args()
    if given.rejects:
        rejects()
        return
    n = given.rows
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

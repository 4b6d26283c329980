"""Reading CSV with an account of every row, against polars alone: ratios in one run.

    python -m benchmarks.csv_reading [--rows 2000000]

A plain file, one in which every field is quoted, one with a bad row in a thousand, and one of blank
lines, all made here. polars checks nothing and infers its types; best of three.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from gangwise.traces.io.blocks import Blocks
from gangwise.traces.io.reading import read_table
from gangwise.traces.io.schema import Column, Schema

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


def best(work: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of a few runs."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main() -> None:
    """Print a line for each file."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=2_000_000)
    n = options.parse_args().rows
    kinds = {
        "plain": lambda i: f"job{i % 1000},{i % 77},0.5,text\n",
        "quoted": lambda i: f'"job{i % 1000}","{i % 77}","0.5","te,xt"\n',
        "a bad row in 1000": lambda i: f"job{i % 1000},{'many' if i % 1000 == 5 else 7},0.5,text\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        for kind, row in kinds.items():
            file.write_text("".join(map(row, range(n))))
            alone = best(lambda: pl.read_csv(file, has_header=False, infer_schema=False))
            ours = best(lambda: read_table(file, SCHEMA))
            print(f"{kind:<18s} {n / ours / 1e6:6.2f} M rows/s, {ours / alone:6.2f} times polars")
        for size in (8, 32):
            file.write_bytes(b"a,1,,\n" + b"\n" * (size << 20) + b"b,1,,\n")
            taken = best(lambda: sum(block.rows for block in Blocks(file)), 1)
            print(f"{size} MiB of newlines  {taken:6.2f} s")


if __name__ == "__main__":
    main()

"""Conversion of traces to Parquet: rows per second of one core, and memory.

    python -m benchmarks.traces [--rows 20000000] [--samples FOLDER] [--folder FOLDER]

Three tables are inflated to that many rows, gzipped, in a temporary folder (about 6 GB at 20
million rows): ``batch_task`` of Alibaba v2018 and ``pai_machine_spec`` of gpu-v2020 from the
published samples in FOLDER, where it is given; ``batch_instance`` (14 columns), with rows made from
its schema. Each conversion is a process of its own with one polars thread; times are process times,
so that other processes on the machine count little. The bounds are measured in the same process on
its first 8 MiB block: plain ``polars.read_csv`` of text that is in memory, without any check, and
gzip alone. Then polars' own ``scan_csv`` of the gzip file is sunk into one Parquet file, packed
alike and unchecked.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

ROWS_MADE = 200_000
TABLES = {
    "batch_task": "alibaba-v2018",
    "batch_instance": "alibaba-v2018",
    "pai_machine_spec": "alibaba-gpu-v2020",
}


def batch_instance(rng, n):
    """Rows by the schema of v2018."""
    start = rng.integers(80_000, 600_000, n)
    task = rng.integers(1, 20, n)
    usage = rng.gamma(2.0, 30.0, (4, n)).round(2)
    for i in range(n):
        yield (
            f"ins_{rng.integers(10**8)}",
            f"M{task[i]}",
            f"j_{i // 30}",
            1 + task[i] % 12,
            "Terminated",
            start[i],
            start[i] + task[i] * 7,
            f"m_{1 + i * 7 % 4034}",
            1,
            1,
            *usage[:, i],
        )


def sample(path, header):
    """Rows of a published sample."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = list(csv.reader(text.splitlines()))
    return rows[1:] if header else rows


def inflate(table, rows, samples, folder):
    """Write a gzip file of so many rows; the rows made or sampled, again and again."""
    if table == "batch_task":
        one = sample(samples / "alibaba-v2018" / "batch_task_selected_DAGs.csv.gz", True)
    elif table == "pai_machine_spec":
        one = sample(samples / "alibaba-gpu-v2020" / "pai_machine_spec.csv", False) * 100
    else:
        one = list(batch_instance(np.random.default_rng(1), ROWS_MADE))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(one)
    plain = text.getvalue().encode()
    packed, times = gzip.compress(plain, 6), -(-rows // len(one))
    file = folder / f"{table}.csv.gz"
    with file.open("wb") as out:
        for _ in range(times):
            out.write(packed)
    return file, times * len(one), times * len(plain)


def measure(table, file, out):
    """Convert a file in this process."""
    import polars as pl

    from gangwise.traces.convert import convert
    from gangwise.traces.format import Format, declared
    from gangwise.traces.io import blocks

    form = declared(TABLES[table])
    used = form.table(table)  # names come again here
    used = replace(used, schema=replace(used.schema, unique=""))
    form = Format(form.name, form.title, "", "", (used,))
    begin, wall = time.process_time(), time.perf_counter()
    made = convert(file, out, form)
    seconds, wall = time.process_time() - begin, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stage = made.stages[table][0]
    stream = blocks.Blocks(file)
    begin = time.process_time()
    for _ in zip(range(1 << 10), stream._pieces(stream._open())):
        pass
    unpack = (time.process_time() - begin) / stream.stored
    block = next(iter(blocks.Blocks(file)))
    types = {c.name: pl.Float64 if c.number else pl.String for c in used.schema.columns}
    times = []
    for _ in range(10):
        begin = time.process_time()
        pl.read_csv(block.data, has_header=False, schema=types, quote_char=None)
        times.append(time.process_time() - begin)
    begin, clock = time.process_time(), time.perf_counter()
    pl.scan_csv(file, has_header=False, schema=types, quote_char=None).sink_parquet(
        out / "plain.parquet", compression="zstd", compression_level=1, statistics=False
    )
    sink, sink_wall = time.process_time() - begin, time.perf_counter() - clock
    return {
        "sink": sink,
        "sink_wall": sink_wall,
        "rows": stage.read,
        "dropped": stage.read - stage.kept,
        "seconds": seconds,
        "wall": wall,
        "peak_mib": peak,
        "read_csv": float(np.median(times)) / block.rows * stage.read,
        "unpack": unpack * file.stat().st_size,
        "library": blocks.inflate.__name__,
    }


def main():
    """Inflate, convert, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--samples", type=Path, default=os.environ.get("GANGWISE_TRACES"))
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        table, file, out = arguments.one
        print(json.dumps(measure(table, Path(file), Path(out))))
        return
    print(
        "| table | rows | bytes a row | rows/s of one core | MB/s | peak RSS | gzip alone | "
        "plain `read_csv` | all / bounds | of polars' scan and sink: CPU, clock |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for table in arguments.tables:
        if table in ("batch_task", "pai_machine_spec") and arguments.samples is None:
            continue
        folder = Path(tempfile.mkdtemp(dir=arguments.folder))
        try:
            if shutil.disk_usage(folder).free < 600 * arguments.rows:
                sys.exit(f"{folder} has too little room for {arguments.rows} rows")
            file, rows, size = inflate(table, arguments.rows, arguments.samples, folder)
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.traces", "--one", table, file, folder / "out"],
                env={**os.environ, "POLARS_MAX_THREADS": "1"},
                stdout=subprocess.PIPE,
                check=True,
            )
            got = json.loads(run.stdout)
            assert got["rows"] == rows
            bound = got["unpack"] + got["read_csv"]
            print(
                f"| `{table}` | {rows:,} | {size / rows:.0f} | {rows / got['seconds']:,.0f} | "
                f"{size / got['seconds'] / 1e6:.0f} | {got['peak_mib']:.0f} MiB | "
                f"{got['unpack'] / rows * 1e6:.2f} µs | {got['read_csv'] / rows * 1e6:.2f} µs | "
                f"{got['seconds'] / bound:.2f} | {got['seconds'] / got['sink']:.2f}, "
                f"{got['wall'] / got['sink_wall']:.2f} |",
                flush=True,
            )
            print(got, file=sys.stderr)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()

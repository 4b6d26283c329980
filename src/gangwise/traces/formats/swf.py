"""Standard Workload Format (``swf.toml``), of the Parallel Workloads Archive: read and written."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from gangwise.core.clock import Clock
from gangwise.core.errors import ScenarioError, StoreError, TraceError
from gangwise.traces.format import all_files, declared
from gangwise.traces.formats.tabular import Section
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.io.blocks import Commented
from gangwise.traces.io.json_records import beginning
from gangwise.traces.io.reading import Reading
from gangwise.traces.io.schema import Column, Schema
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "swf"
FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "processors",
    "processor_time",
    "memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding",
    "think",
)
TYPES = ("user", "group", "application", "queue", "partition")
"""Fields that may tell the type of a job."""
WHOLE = ("job", "processors", "requested_processors", "status", "preceding", *TYPES)
SWF = Schema(
    f"{NAME} log",
    tuple(
        Column(name, whole=name in WHOLE, least=0 if name in ("job", "submit") else -1)
        for name in FIELDS
    ),
    header=False,
    separator=" ",
)
HEADER = re.compile(r";\s*(\w+):\s*(.*?)\s*$")


def is_swf(file: Path) -> bool:
    """Whether most lines at the start of a file that are no comments are 18 numbers."""
    lines = beginning(file).split("\n")
    rows = [line.split() for line in lines[:-1] or lines if line.strip()[:1] not in ("", ";")][:20]
    good = [len(row) == len(FIELDS) and all(map(_number, row)) for row in rows]
    return 2 * sum(good) > len(good)


def _number(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d+(?:\.\d*)?", text) is not None


class StandardWorkload(Reader):
    FORMAT = declared(NAME)

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        return any(is_swf(file) for file in all_files(Path(path)))

    def _read(self) -> Tables:
        path = self.source.path
        files = [f for f in all_files(path) if f == path or is_swf(f)]
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise TraceError(
                f"one log in the Standard Workload Format is needed here, and there are {names}: "
                "name the file",
                path,
            )
        [file] = files
        blocks, section = Commented(file, b";", squeeze=True), Section(self.FORMAT.mapping["jobs"])
        reading = Reading(file, SWF, strict=self.source.strict, blocks=blocks)
        # Numbers take more room than jobs, which are made of each batch.
        jobs = pl.concat([section.select(frame) for frame in reading])
        reading.check_used(len(jobs))
        stages = [Stage(file.name, reading.read, len(jobs), dict(reading.dropped))]
        again = ~pl.col("job").is_first_distinct()
        for name, why, lost in (
            ("jobs", "a part of a job, which has a row for the whole", pl.col("status") == "part"),
            ("numbers", "its number was used before", again),
        ):
            jobs, stage = leave_out(name, jobs, [(why, lost)])
            stages += [stage] * bool(stage.dropped)
        if jobs.is_empty():
            why = reasons(*(stage.dropped for stage in stages[1:]))
            raise TraceError(f"no job can be used: {why}", file)
        header = header_of(blocks.comments)
        notes = section.notes(jobs.with_columns(before=pl.col("created").shift(1)))
        if header.get("Acknowledge"):
            notes.append(f"acknowledge: {header['Acknowledge']}")
        return Tables(
            NAME,
            _pool(header),
            jobs.drop("job", "allocated", "thinks"),
            tuple(stages),
            {file.name: reading.blocks.digest()},
            tuple(notes),
            clock=clock_of(header),
        )


def header_of(comments: Sequence[str]) -> dict[str, str]:
    """Fields of the header, the first of each name.

    >>> header_of(["; MaxProcs: 128", ";", "; Note: a", "; Note: b"])
    {'MaxProcs': '128', 'Note': 'a'}
    """
    found: dict[str, str] = {}
    for comment in comments:
        if match := HEADER.match(comment.strip()):
            found.setdefault(match[1], match[2])
    return found


def clock_of(header: Mapping[str, str]) -> Clock | None:
    """Where time 0 lies, in the zone of the site if the header has one that is known here.

    >>> clock_of({"UnixStartTime": "345600", "TimeZone": "3600"})
    Clock(epoch=345600.0, zone='3600')
    """
    if not header.get("UnixStartTime", "").isdecimal():
        return None
    clock = Clock(float(header["UnixStartTime"]), header.get("TimeZoneString") or "UTC")
    try:
        return clock if "TimeZoneString" in header and clock.tz else _by_offset(clock, header)
    except ScenarioError:
        return _by_offset(clock, header)


def _by_offset(clock: Clock, header: Mapping[str, str]) -> Clock:
    ahead = header.get("TimeZone", "")
    return Clock(clock.epoch, ahead if ahead.lstrip("-").isdecimal() else "UTC")


def _pool(header: Mapping[str, str]) -> pl.DataFrame:
    for name in ("MaxProcs", "MaxNodes"):
        if (text := header.get(name, "")).isdecimal() and 0 < int(text) < 2**40:
            return server_table([(1, "pool", "", float(text), 0.0, 0.0)])
    return server_table()


def write_swf(
    path: Path, jobs: pl.DataFrame, header: Mapping[str, object], notes: Sequence[str]
) -> None:
    """Write a log, gzipped where the name ends in ``.gz``.

    ``jobs`` has columns of :data:`FIELDS`, null where not known; those that are absent are not
    known at all. Numbers are rounded to whole ones. ``header`` has its fields in order.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    unknown = pl.lit(-1, pl.Int64)
    rows = jobs.select(
        (pl.col(name).round(0).cast(pl.Int64).fill_null(-1) if name in jobs.columns else unknown)
        .cast(pl.String)
        .alias(name)
        for name in FIELDS
    )
    lines = ["; Version: 2.2", *(f"; {name}: {value}" for name, value in header.items())]
    lines += [f"; Note: {' '.join(note.split())}" for note in notes]
    lines += rows.select(pl.concat_str(pl.all(), separator=" ")).to_series().to_list()
    data = ("\n".join(lines) + "\n").encode()
    try:
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error

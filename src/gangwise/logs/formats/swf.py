"""Standard Workload Format (``swf.toml``), of the Parallel Workloads Archive."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl

from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.settings import Clock
from gangwise.logs.format import all_files, declared
from gangwise.logs.formats.tabular import TableMapping
from gangwise.logs.io.reading import PART, Column, Schema, TableReader, leave_out, reasons
from gangwise.logs.io.text import Commented, beginning
from gangwise.logs.tables import Reader, Tables, server_table

NAME = "swf"
NO_SUBMISSION = "submit is negative"  # as it is of parts after the first, which are no jobs
FORMAT = declared(NAME)
FIELDS, WHOLE = (tuple(FORMAT.mapping["fields"][which]) for which in ("all", "whole"))
# -1 stands for what is not known; only job numbers cannot be so.
COLUMNS = tuple(
    Column(name, whole=name in WHOLE, least=0 if name == "job" else -1) for name in FIELDS
)
SWF = Schema(f"{NAME} log", COLUMNS, header=False, separator=" ")
HEADER = re.compile(r";\s*(\w+):\s*(.*?)\s*$")


def is_swf(file: Path) -> bool:
    """Whether most lines at the start of a file that are no comments begin with 18 numbers."""
    rows = _rows(file)
    number, width = re.compile(r"[-+]?\d+(?:\.\d*)?"), len(FIELDS)
    good = [len(row) >= width and all(map(number.fullmatch, row[:width])) for row in rows]
    return 2 * sum(good) > len(good)


def _rows(file: Path) -> list[list[str]]:
    # The last line may be cut off.
    lines = beginning(file).split("\n")
    rows = [line for line in lines[:-1] or lines if line.strip()[:1] not in ("", ";")]
    # Some logs write comments behind numbers.
    return [line.replace(";", " ").split() for line in rows[:20]]


class StandardWorkload(Reader):
    FORMAT = FORMAT

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
        blocks = Commented(file, b";", squeeze=True)
        section = TableMapping(self.FORMAT.mapping["jobs"])
        widths = [len(row) for row in _rows(file)]
        wider = len({*widths}) == 1 and widths[0] < 100  # a log, and no list of numbers
        extra = range(len(FIELDS) + 1, widths[0] + 1 if wider else 0)
        spare = tuple(Column(f"field {n}", number=False, empty=True) for n in extra)
        schema = replace(SWF, columns=(*SWF.columns, *spare))
        # Columns behind the 18 of the format are read as text, and not used.
        reading = TableReader(file, schema, strict=self.source.strict, blocks=blocks)
        # Numbers take more room than jobs, which are made of each batch.
        jobs = pl.concat([section.select(frame) for frame in reading])
        stages = [reading.stage()]
        repeated = ~pl.col("job").is_first_distinct()
        for name, reason, lost in (
            ("jobs", PART, pl.col("status") == "part"),
            ("submissions", NO_SUBMISSION, pl.col("created") < 0),
            ("numbers", "its number was used before", repeated),
        ):
            jobs, stage = leave_out(name, jobs, [(reason, lost)])
            stages += [stage] * bool(stage.dropped)
        if jobs.is_empty():
            reason = reasons(*(stage.dropped for stage in stages[1:]))
            raise TraceError(f"no job can be used: {reason}", file)
        header = header_of(blocks.comments)
        notes = section.notes(jobs.with_columns(before=pl.col("created").shift(1)))
        if spare:
            notes.append(f"rows have {extra[-1]} fields, of which the first 18 are read")
        if header.get("Acknowledge"):
            notes.append(f"acknowledge: {header['Acknowledge']}")
        sizes_told = [header.get(name, "") for name in ("MaxProcs", "MaxNodes")]
        # Processors, or nodes where those are not told; 2^40 and more are no cluster.
        size = [float(text) for text in sizes_told if text.isdecimal() and 0 < int(text) < 2**40]
        pool = server_table((1, "pool", "", processors, 0.0, 0.0) for processors in size[:1])
        account = (tuple(stages), {file.name: reading.blocks.digest()}, tuple(notes))
        jobs = jobs.drop("job", "allocated", "thinks")
        return Tables(NAME, pool, jobs, *account, clock=clock_of(header))


def header_of(comments: Sequence[str]) -> dict[str, str]:
    """Fields of the header, the first of each name.

    >>> header_of(["; MaxProcs: 128", ";", "; Note: a", "; Note: b"])
    {'MaxProcs': '128', 'Note': 'a'}
    """
    fields: dict[str, str] = {}
    for comment in comments:
        if match := HEADER.match(comment.strip()):
            fields.setdefault(match[1], match[2])
    return fields


def clock_of(header: Mapping[str, str]) -> Clock | None:
    """The clock of a log, in the time zone of the site where the header names a known one.

    >>> clock_of({"UnixStartTime": "345600", "TimeZone": "3600"})
    Clock(epoch=345600.0, zone='3600')
    """
    if not header.get("UnixStartTime", "").isdecimal():
        return None
    # The zone by name knows its changes of clocks; the number of seconds does not.
    epoch = float(header["UnixStartTime"])
    if "TimeZoneString" in header:
        clock = Clock(epoch, header["TimeZoneString"] or "UTC")
        with suppress(ScenarioError):
            if clock.tz:  # raises where the zone is not known
                return clock
    # A number of seconds east of Greenwich; other texts say nothing.
    ahead = header.get("TimeZone", "")
    return Clock(epoch, ahead if ahead.lstrip("-").isdecimal() else "UTC")

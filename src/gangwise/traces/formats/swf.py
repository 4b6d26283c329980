r"""Standard Workload Format (SWF 2.2), of the Parallel Workloads Archive: read and written.

Described at https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. Lines that begin with ``;``
are comments, and the first of them a header such as ``; MaxProcs: 128``; every other line is a job,
18 numbers with blanks between them, -1 where something is not known:

==========================  =================================================================
field                       meaning here
==========================  =================================================================
1 job, 2 submit, 3 wait     a number; seconds since the log began; seconds in the queue
4 run                       seconds from start to end
5 processors                allocated; asked for where field 8 is -1
8, 9, 10 requested          processors (tasks, one processor each), seconds, KB per processor
11 status                   1 completed, 0 failed, 5 cancelled; 2, 3, 4: a part of a job
12 to 16                    user, group, application, queue, partition, by number
17 preceding, 18 think      the job that must end before, and seconds from then to submission
==========================  =================================================================

Rows may be in any order. Fields 6 and 7, processor time and memory used, are not read on. The
processors are one pool: ``MaxProcs`` of them, or ``MaxNodes``.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from gangwise.core.errors import StoreError, TraceError
from gangwise.traces.format import Format, all_files
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.io.blocks import Commented
from gangwise.traces.io.json_records import beginning
from gangwise.traces.io.reading import Reading
from gangwise.traces.io.schema import Column, Schema
from gangwise.traces.tables import Reader, Tables, server_table

NAME = "swf"
KB = 2.0**20
"""In a GiB."""
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
STATUSES = {-1: "", 0: "failed", 1: "completed", 2: "part", 3: "part", 4: "part", 5: "cancelled"}
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
FORMAT = Format(
    NAME,
    "Standard Workload Format",
    "https://www.cs.huji.ac.il/labs/parallel/workload/",
    "free with acknowledgement, see the log",
    (),
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
    r"""Reader of a log in the Standard Workload Format.

    Parameters
    ----------
    path : path
        The log, plain or gzipped, or a folder with one.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no log, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.swf")
    ...     size = file.write_text(
    ...         "; MaxProcs: 128\n"
    ...         "  1  0  5 60 4 -1 -1 8 120 -1 1 3 1 -1 2 -1 -1 -1\n"
    ...         "  2 10 -1 -1 4 -1 -1 -1 -1 -1 5 3 1 -1 2 -1  1 -1\n"
    ...     )
    ...     tables = StandardWorkload(file).scan()
    >>> tables.jobs.select("name", "tasks", "created", "started", "deleted", "limit").rows()
    [('1', 8, 0.0, 5.0, 65.0, 120.0), ('2', 4, 10.0, None, None, None)]
    >>> tables.servers["cpu"].to_list()
    [128.0]
    """

    FORMAT = FORMAT

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        """Whether a file, or a file of a folder, is such a log."""
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
        reading = Reading(file, SWF, strict=self.source.strict, blocks=blocks)
        frames = list(reading)
        raw = pl.concat(frames)
        reading.check_used(len(raw))
        read = Stage(file.name, reading.read, len(raw), dict(reading.dropped))
        kept, parts = leave_out("jobs", raw, [(PART, pl.col("status").is_between(2, 4))])
        again = ("its number was used before", ~pl.col("job").is_first_distinct())
        kept, twice = leave_out("numbers", kept, [again])
        lost = tuple(stage for stage in (parts, twice) if stage.dropped)
        if kept.is_empty():
            why = reasons(*(stage.dropped for stage in lost))
            raise TraceError(f"no job can be used: {why}", file)
        return Tables(
            NAME,
            _pool(header_of(blocks.comments)),
            _jobs(kept),
            (read, *lost),
            {file.name: reading.blocks.digest()},
            tuple(_notes(kept, blocks.comments)),
        )


PART = "a part of a job, which has a row for the whole"


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


def _pool(header: Mapping[str, str]) -> pl.DataFrame:
    for name in ("MaxProcs", "MaxNodes"):
        if (text := header.get(name, "")).isdecimal() and 0 < int(text) < 2**40:
            return server_table([(1, "pool", "", float(text), 0.0, 0.0)])
    return server_table()


def _known(name: str) -> pl.Expr:
    """A field, null where it is -1."""
    return pl.when(pl.col(name) >= 0).then(pl.col(name))


def _jobs(raw: pl.DataFrame) -> pl.DataFrame:
    asked = pl.when(pl.col("requested_processors") > 0).then("requested_processors")
    started = pl.col("submit") + _known("wait")
    whole = {name: _known(name).cast(pl.Int64).cast(pl.String).fill_null("") for name in TYPES}
    return raw.select(
        "row",
        name=pl.col("job").cast(pl.Int64).cast(pl.String),
        cpu=pl.lit(1.0),
        mem=pl.when(pl.col("requested_memory") > 0)
        .then(pl.col("requested_memory") / KB)
        .otherwise(0.0),
        gpu=pl.lit(0.0),
        tasks=pl.coalesce(asked, _known("processors")).cast(pl.Int64),
        models=pl.lit(""),
        created="submit",
        deleted=pl.coalesce(started, "submit") + _known("run"),
        started=started,
        status=pl.col("status").cast(pl.Int64).replace_strict(STATUSES, default=""),
        elapsed=_known("run"),
        limit=pl.when(pl.col("requested_time") > 0).then("requested_time"),
        preceding=pl.when(pl.col("preceding") > 0)
        .then(pl.col("preceding").cast(pl.Int64).cast(pl.String))
        .otherwise(pl.lit("")),
        **whole,
    )


def _notes(raw: pl.DataFrame, comments: Sequence[str]) -> Iterator[str]:
    late = int((raw["submit"] < raw["submit"].shift(1)).sum())
    for count, text in (
        (late, "rows are submitted earlier than the row before them"),
        (int((raw["wait"] < 0).sum()), "jobs do not say how long they waited"),
        (int((raw["run"] < 0).sum()), "jobs have no run time"),
        (
            int(((raw["requested_time"] > 0) & (raw["run"] > raw["requested_time"])).sum()),
            "jobs ran longer than they requested",
        ),
        (
            int((raw["requested_processors"] <= 0).sum()),
            "jobs do not say how many processors they asked for; those allocated are taken",
        ),
        (
            int(((raw["preceding"] > 0) & (raw["think"] >= 0)).sum()),
            "jobs were submitted a think time after another ended; they are submitted when the log "
            "says, whenever that one ends in a replay (think times are not played)",
        ),
    ):
        if count:
            yield f"{count} {text}"
    acknowledge = header_of(comments).get("Acknowledge")
    if acknowledge:
        yield f"acknowledge: {acknowledge}"


def write_swf(
    path: Path, jobs: pl.DataFrame, header: Mapping[str, object], notes: Sequence[str]
) -> None:
    """Write a log, gzipped where the name ends in ``.gz``.

    Parameters
    ----------
    path : path
    jobs : polars.DataFrame
        Columns of :data:`FIELDS`, null where not known; those that are absent are not known at all.
        Numbers are rounded to whole ones.
    header : mapping
        Fields of the header, in order.
    notes : sequence of str

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

"""Traces that are tables: a TOML file of this folder says what they hold and what it means.

Sections of such a file, whose head says where the trace comes from:

``[tables.NAME]``
    A file as published: its columns, and what makes a row bad; see
    :func:`~gangwise.logs.format.declared`.
``[options.NAME]``
    An argument of the reader: ``default``, and ``choices`` or ``least`` and ``most``. ``$NAME``
    stands for its value below.
``[files]``
    Arguments of the reader that name files, each with the tables that the file may be.
``beside``
    Where a file is named as the trace: the other tables are looked for beside it.
``alone``
    What to do where only servers are here; without it that is an error.
``or``
    Sections like ``[jobs]`` that are used where the tables of ``[jobs]`` are not here. One with
    ``only`` needs that option, and says ``why``; ``unread`` is noted where it is here and not used.
``[jobs]``, ``[servers]``
    The ``table`` that they are made of, and ``columns`` as
    :class:`~gangwise.logs.tables.Tables` has them. ``with`` adds columns before, one after the
    other (of a list, the first whose columns are here); ``leave_out`` gives a reason for each
    condition under which a row is left out (``{column}`` in it is what the row has there);
    ``notes`` tell what a reader of a result must know, each a text, or ``{ text, count }``, which
    is told where the count is not 0. ``repeat`` makes as many equal servers as it says;
    ``[servers.log]`` is of :func:`server_log`. ``join`` adds columns of other tables, and ``fill``
    puts a value where a condition holds, and notes it.

The Standard Workload Format (``swf.toml``) of the Parallel Workloads Archive is such a table under
a header of comments, which say what the columns leave out: :class:`StandardWorkload`.

A reader of its own may take any section: ``[facts]`` has notes on what such a reader counts.

Values are names of columns, or SQL as polars reads it (a number with a point is a decimal there:
write whole ones). What refers to a column that the file may lack is left out where it does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.errors import ScenarioError, TraceError
from gangwise.core.settings import Clock
from gangwise.logs import format as formats
from gangwise.logs import reading as readings
from gangwise.logs.format import Format, Read, TraceFiles
from gangwise.logs.reading import Column, Rule, Schema, Stage, TableReader
from gangwise.logs.tables import UNITS, Reader, Tables, server_table
from gangwise.logs.text import Commented, beginning, split_names

NUMBERS = ("cpu", "mem", "gpu", "created", "started", "deleted")
NEEDED: Mapping[str, Any] = {"cpu": 0.0, "mem": 0.0, "gpu": 0.0, "models": "", "model": ""}
"""Columns that tables always have, and what stands there where the file does not say."""


class TableMapping:
    """A section ``[jobs]`` or ``[servers]`` of a mapping, with the options of a reader."""

    def __init__(self, spec: Mapping[str, Any], options: Mapping[str, Any] | None = None):
        self.spec, self.options = spec, options or {}

    def sql(self, text: str, frame: pl.DataFrame) -> pl.Expr | None:
        """The expression; None where the frame lacks a column of it."""
        if text.isidentifier():
            return pl.col(text) if text in frame.columns else None
        expression = _with_options(text, self.options)
        # A file may lack columns that are not needed; what rests on them is left out.
        return expression if {*expression.meta.root_names()} <= {*frame.columns} else None

    def holds(self, condition: str) -> bool:
        """Whether a condition is true of the options."""
        return bool(pl.select(_with_options(condition, self.options)).item())

    def make(
        self, frame: pl.DataFrame, path: Path
    ) -> tuple[pl.DataFrame, tuple[Stage, ...], list[str]]:
        """The rows that can be used, in the columns of the mapping; what was left out; notes.

        Raises TraceError when there are none; ``path`` is where they were looked for.
        """
        spec = self.spec
        stages: tuple[Stage, ...] = ()
        frame = self.extended(frame)
        if rules := self.rules(frame):
            # Rows are left out after `with`, whose columns the rules may use.
            frame, stage = readings.leave_out(spec["stage"], frame, rules)
            if frame.is_empty():
                raise TraceError(f"{spec['none']}: {readings.reasons(stage.dropped)}", path)
            if stage.dropped or spec.get("always"):
                stages = (stage,)
        return self.select(frame), stages, self.notes(frame)

    def extended(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The frame and the columns ``with`` it, each the first of its texts that can be had."""
        # One after the other, for later columns may use earlier ones.
        for name, text in self.spec.get("with", {}).items():
            values = [self.sql(sql, frame) for sql in ([text] if isinstance(text, str) else text)]
            # Of several texts the first whose columns the file has.
            if (value := next((v for v in values if v is not None), None)) is not None:
                frame = frame.with_columns(value.alias(name))
        return frame

    def rules(self, frame: pl.DataFrame) -> list[Rule]:
        """Reasons to leave out a row, and what is true of such rows."""
        rules: list[Rule] = []
        for reason, text in self.spec.get("leave_out", {}).items():
            broken, columns = self.sql(text, frame), re.findall(r"\{(\w+)\}", reason)
            if broken is not None:
                # polars formats braces by order, so that names are taken out.
                template = pl.format(re.sub(r"\{\w+\}", "{}", reason), *columns)
                rules.append((template if columns else reason, broken))
        return rules

    def select(self, frame: pl.DataFrame) -> pl.DataFrame:
        columns, wanted = [pl.col("row")], self.spec["columns"]
        # Tables have devices and models whatever the mapping says.
        always = ("cpu", "mem", "gpu", "model" if "model" in wanted else "models")
        for name, text in {**wanted, **{n: "" for n in always if n not in wanted}}.items():
            value = self.sql(text, frame) if text else None
            # Devices that a file does not have are none; other columns are simply not there.
            if value is None and name in NEEDED:
                value = pl.lit(NEEDED[name])
            if value is not None:
                # Integers of a file must not overflow in products.
                value = value.cast(pl.Float64) if name in NUMBERS else value
                columns.append(value.alias(name))
        selected = frame.select(columns)
        if not self.spec.get("sort_models"):
            return selected
        # `A| B` and `B|A` are the same models, and must be of one job type.
        names = pl.col("models").str.split("|").list.eval(pl.element().str.strip_chars())
        names = names.list.unique().list.sort().list.join("|")
        return selected.with_columns(names.str.strip_chars("|"))

    def notes(self, frame: pl.DataFrame) -> list[str]:
        notes = []
        for note in self.spec.get("notes", ()):
            entry = {"text": note} if isinstance(note, str) else note
            if "if" in entry and not self.holds(entry["if"]):
                continue
            texts = [entry["count"]] if "count" in entry else entry.get("counts", [])
            counts = [value for text in texts if (value := self.sql(text, frame)) is not None]
            totals = [frame.select(count).to_series() for count in counts]
            # A condition is counted, a number is taken as it is.
            numbers = [s.sum() if s.dtype == pl.Boolean else s[0] for s in totals]
            # A note on a column that the file lacks would be wrong.
            if len(numbers) < len(texts) or None in numbers:
                continue
            # A note is told where its first count is not 0.
            if not texts or numbers[0] or entry.get("always"):
                notes.append(entry["text"].format(*numbers))
        return notes


def _with_options(text: str, options: Mapping[str, Any]) -> pl.Expr:
    values = {f"${name}": _literal(value) for name, value in options.items()}
    return _sql(re.sub(r"\$\w+", lambda found: values.get(found[0], found[0]), text))


_sql = cache(pl.sql_expr)  # the same few texts for every batch


def _literal(value: Any) -> str:
    if isinstance(value, str):
        # Quotes are doubled, as in SQL; options come from users.
        return "'" + value.replace("'", "''") + "'"
    return ", ".join(map(_literal, value)) if isinstance(value, tuple) else f"{value:.17g}"


def seconds(column: Column) -> pl.Expr:
    """Seconds since 1970 of a written time, without its fraction; as if it were UTC without a zone.

    Null where it is none of the ways in which the column may write one.
    """
    # Fractions of a second are cut off, so that one way of writing fits times with and without.
    text = pl.col(column.name).str.replace(r"\.\d+", "")
    times = (text.str.to_datetime(way, strict=False, time_unit="ms") for way in column.times)
    return pl.coalesce(time.dt.epoch("s") for time in times).cast(pl.Float64).alias(column.name)


def server_log(
    frame: pl.DataFrame, log: TableMapping
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Stage, ...]]:
    """Servers, and when they come and go, from a log of their states.

    ``[servers.log]`` has the columns ``server`` and ``time``, and conditions: ``up`` (it is there
    from then on), ``sized`` (the row tells what the server has; the last such row counts) and
    ``first`` (it was there before its first row); and ``never``, the reason to leave out a server
    that has no row of its size. Returns the row of each server that counts, ``time server up`` of
    what comes and goes, and the account of servers.
    """
    spec = log.spec
    server, time = spec["server"], spec["time"]
    # States in order of time; equal times in the order of the files.
    rows = frame.sort(time, "part", "row")
    rows = rows.with_columns(log.sql(spec[name], rows).alias(name) for name in ("up", "sized"))  # type: ignore[union-attr]  # of columns that are needed
    # A server keeps the place of the row that gave its size.
    sizes = rows.filter("sized").group_by(server, maintain_order=True).last().sort("row")
    was_up = pl.col("up").shift(1).over(server, order_by=pl.int_range(pl.len()))
    # Before its first row a server is in the state opposite to what that row changes.
    was_up = pl.coalesce(was_up, log.sql(spec["first"], rows))
    sized = pl.col(server).is_in(sizes[server].to_list())
    # Only changes are events: repeated states say nothing new.
    events = rows.filter(sized & (pl.col("up") != was_up))
    every = rows.group_by(server).agg(pl.col("row").min())
    _, stage = readings.leave_out("machines", every, [(spec["never"], ~sized)])
    return sizes, events.select(time=time, server=server, up="up"), (stage,)


class TabularReader(Reader):
    """Reader of a trace that is described by a TOML file.

    ``path`` is a folder with the tables, or a file of one; ``options`` are those of the file, and
    paths of its ``[files]``. Raises TraceError when a table is missing or cannot be read, no row of
    it can be used, or for an option that cannot be.
    """

    def __init__(self, path: Path | str | None = None, *, strict: bool = False, **options: Any):
        files, has_path = self.FORMAT.mapping.get("files", {}), path is not None
        named_files = {name: Path(options[name]) for name in files if options.get(name) is not None}
        if not has_path and not (files and len(named_files) == len(files)):
            arguments = " and ".join(f"{name}=" for name in files)
            raise TraceError("give a directory" + f", or both {arguments}" * bool(files))
        # Files named one by one are found wherever they are.
        path = Path(path or ".")
        named = {self._table_of(file, files[name]): file for name, file in named_files.items()}
        if self.FORMAT.mapping.get("beside") and path.is_file():
            every = [table.name for table in self.FORMAT.tables]
            jobs = self.FORMAT.mapping["jobs"]["table"]
            # The jobs come first, where a file could be several tables.
            named.setdefault(
                self._table_of(path, sorted(every, key=lambda name: name != jobs)), path
            )
            path = path.parent
        self.source = TraceFiles(path, self.FORMAT, named=named, strict=strict)
        self.options = checked(self.FORMAT, options)

    def _table_of(self, file: Path, tables: Sequence[str]) -> str:
        """Name, of some tables, of the one that a file is; the first where it cannot be told."""
        names_of = [table.name for _, table in formats.recognise(file, [self.FORMAT])]
        return next((name for name in tables if name in names_of), tables[0])

    def section(self, name: str) -> TableMapping:
        return TableMapping(self.FORMAT.mapping.get(name, {}), self.options)

    def _jobs(self) -> TableMapping:
        sections = [self.section(name) for name in ("jobs", *self.FORMAT.mapping.get("or", ()))]
        named = [section for section in sections if section.spec["table"] in self.source.named]
        # Tables that are named count first, then the sections in their order.
        order = sorted(sections, key=lambda section: section not in named)
        return next((s for s in order if not self._missing_tables(s)), sections[0])

    def _missing_tables(self, section: TableMapping) -> list[str]:
        joined = [join["table"] for join in section.spec.get("join", ()) if "unless" not in join]
        return [t for t in (*joined, section.spec["table"]) if not self.source.has(t)]

    def _read(self) -> Tables:
        jobs = self._jobs()
        if (absent := self._missing_tables(jobs)) and "alone" in self.FORMAT.mapping:
            # The publisher packs each table by its name.
            files = " and ".join(f"{table}.tar.gz" for table in absent)
            reason = (
                f"no {' and no '.join(absent)} here, so there are no jobs to play; download "
                f"{files} {self.FORMAT.mapping['alone']}"
            )
            servers, _, stages, digests, notes = self._servers()
            none = pl.DataFrame(schema={"row": pl.Int64, **dict.fromkeys(UNITS, pl.Float64)})
            return Tables(
                self.FORMAT.name, servers, none, stages, digests, tuple(notes), no_jobs=reason
            )
        if "only" in jobs.spec:
            files_here = self.source.files(jobs.spec["table"])
            if len(files_here) > 1 or not self.options[jobs.spec["only"]]:
                raise TraceError(jobs.spec["why"], files_here[0], 1)
        return self.tables_of(jobs)

    def tables_of(self, jobs: TableMapping) -> Tables:
        mapping, notes = self.FORMAT.mapping, list[str]()
        for name in mapping.get("or", ()):
            spec = mapping[name]
            if "unread" in spec and jobs.spec is not spec and self.source.has(spec["table"]):
                notes.append(spec["unread"])
        servers, events, stages, digests, about = self._servers()
        joined = self._joined(jobs)
        frame = joined.frame
        for entry in jobs.spec.get("fill", ()):
            condition = jobs.sql(entry["where"], frame)
            if condition is None:
                continue
            if count := int(frame.select(condition.fill_null(False).sum()).item()):
                notes.append(f"{count} {entry['text']}")
                filled = pl.when(condition).then(entry["by"]).otherwise(entry["column"])
                frame = frame.with_columns(filled.alias(entry["column"]))
        columns = self.FORMAT.table(jobs.spec["table"]).schema.columns
        times = [c for c in columns if c.times and c.name in frame.columns]
        # Written times become seconds here, before rules compare them.
        frame = frame.with_columns(map(seconds, times))
        rows, left_out, remarks = jobs.make(frame, self.source.path)
        notes += remarks
        servers_first = mapping.get("servers", {}).get("notes_first")
        every_note = (*about, *notes) if servers_first else (*notes, *about)
        account = ((*stages, *joined.stages, *left_out), {**digests, **joined.digests}, every_note)
        units = {**UNITS, **mapping.get("units", {})}
        return Tables(self.FORMAT.name, servers, rows, *account, units, events)

    def _joined(self, jobs: TableMapping) -> Read:
        reads, frames = [], []
        for join in jobs.spec.get("join", ()):
            # `unless` is a condition of options under which the join is not needed.
            needed = "unless" not in join or jobs.holds(join["unless"])
            if not needed and not self.source.has(join["table"]):
                continue
            reads.append(self.source.read(join["table"]))
            joined, named = reads[-1].frame, join["columns"].items()
            sql_of = {name: jobs.sql(sql, joined) for name, sql in named}
            columns = [sql.alias(name) for name, sql in sql_of.items() if sql is not None]
            frames.append((join["on"], reads[-1].frame.select(join["on"], *columns)))
        # Files that are always joined are accounted for before the main one.
        at = sum("unless" not in join for join in jobs.spec.get("join", ()))
        main = self.source.read(jobs.spec["table"])
        reads.insert(at, main)
        # Left, in the order of the main table: rows without a partner stay, with nulls.
        for on, frame in frames:
            main.frame = main.frame.join(frame, on=on, how="left", maintain_order="left")
        return Read(
            main.frame,
            tuple(stage for part in reads for stage in part.stages),
            {name: digest for part in reads for name, digest in part.digests.items()},
        )

    def _servers(
        self,
    ) -> tuple[
        pl.DataFrame, pl.DataFrame | None, tuple[Stage, ...], Mapping[str, str], Sequence[str]
    ]:
        section = self.section("servers")
        spec = section.spec
        if "table" not in spec or not (spec.get("needed") or self.source.has(spec["table"])):
            return server_table(), None, (), {}, [spec["missing"]] if "missing" in spec else []
        table = self.source.read(spec["table"])
        frame, events, stages = table.frame, None, table.stages
        if "log" in spec:
            frame, events, log_stages = server_log(frame, TableMapping(spec["log"], self.options))
            stages = (*stages, *log_stages)
        notes = section.notes(frame)
        # Its rows have numbers from 1, for they stand in no file.
        if "repeat" in spec:
            # The publisher says how many servers there are, all alike.
            number = frame.select(_with_options(spec["repeat"], self.options)).item()
            frame = pl.DataFrame({"row": np.arange(1, int(number) + 1)})
        return section.select(frame), events, stages, table.digests, notes


def checked(form: Format, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a reader, completed by those that are not given.

    Raises TraceError for a value that cannot be.
    """
    values = {}
    for name, entry in form.mapping.get("options", {}).items():
        value = options.get(name, entry["default"])
        # An option of several values is a tuple whatever the user wrote.
        if isinstance(entry["default"], list):
            value = split_names(value) or ("",)
        for choice in value if isinstance(value, tuple) else (value,):
            if "choices" in entry and choice not in entry["choices"]:
                choices = ", ".join(entry["choices"])
                raise TraceError(f"{name} is {choice!r}; choose among {choices}")
            if "least" in entry and not entry["least"] <= choice <= entry["most"]:
                raise TraceError(
                    f"{name} is {choice!r}; give a number from {entry['least']:g} to "
                    f"{entry['most']:g}"
                )
        values[name] = value
    return values


@cache
def reader(name: str) -> type[TabularReader]:
    """The reader of the trace that ``NAME.toml`` of this folder, or another file, describes."""
    form = formats.declared(name)
    parameters = [inspect.Parameter("path", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    # Signatures are shown by help and checked where options are given.
    for option in (*form.mapping.get("files", {}), *form.mapping.get("options", {}), "strict"):
        parameters.append(inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None))
    own: dict[str, Any] = {
        "FORMAT": form,
        "__signature__": inspect.Signature(parameters),
        "__doc__": f"Reader of {form.title}; see :class:`TabularReader`.",
    }
    # One class per format, made once, so that classes compare equal.
    return type(form.name, (TabularReader,), own)


def __getattr__(name: str) -> Any:
    """The reader of a registered name, as ``module:attribute`` asks for it."""
    if (formats.FORMATS / f"{name}.toml").is_file():
        module, _, attribute = formats.declared(name).mapping.get("reader", "").partition(":")
        return getattr(import_module(module), attribute) if module else reader(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


NO_SUBMISSION = "submit is negative"  # as it is of parts after the first, which are no jobs
SWF_FORMAT = formats.declared("swf")
SWF_FIELDS, WHOLE = (tuple(SWF_FORMAT.mapping["fields"][which]) for which in ("all", "whole"))
# -1 stands for what is not known; only job numbers cannot be so.
COLUMNS = tuple(
    Column(name, whole=name in WHOLE, least=0 if name == "job" else -1) for name in SWF_FIELDS
)
SWF = Schema("swf log", COLUMNS, header=False, separator=" ")
HEADER = re.compile(r";\s*(\w+):\s*(.*?)\s*$")


def is_swf(file: Path) -> bool:
    """Whether most lines at the start of a file that are no comments begin with 18 numbers."""
    rows = _rows(file)
    number, width = re.compile(r"[-+]?\d+(?:\.\d*)?"), len(SWF_FIELDS)
    good = [len(row) >= width and all(map(number.fullmatch, row[:width])) for row in rows]
    return 2 * sum(good) > len(good)


def _rows(file: Path) -> list[list[str]]:
    # The last line may be cut off.
    lines = beginning(file).split("\n")
    rows = [line for line in lines[:-1] or lines if line.strip()[:1] not in ("", ";")]
    # Some logs write comments behind numbers.
    return [line.replace(";", " ").split() for line in rows[:20]]


class StandardWorkload(Reader):
    FORMAT = SWF_FORMAT

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        return any(is_swf(file) for file in formats.all_files(Path(path)))

    def _read(self) -> Tables:
        path = self.source.path
        files = [f for f in formats.all_files(path) if f == path or is_swf(f)]
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
        extra = range(len(SWF_FIELDS) + 1, widths[0] + 1 if wider else 0)
        spare = tuple(Column(f"field {n}", number=False, empty=True) for n in extra)
        schema = replace(SWF, columns=(*SWF.columns, *spare))
        # Columns behind the 18 of the format are read as text, and not used.
        reading = TableReader(file, schema, strict=self.source.strict, blocks=blocks)
        # Numbers take more room than jobs, which are made of each batch.
        jobs = pl.concat([section.select(frame) for frame in reading])
        stages = [reading.stage()]
        repeated = ~pl.col("job").is_first_distinct()
        for name, reason, lost in (
            ("jobs", readings.PART, pl.col("status") == "part"),
            ("submissions", NO_SUBMISSION, pl.col("created") < 0),
            ("numbers", "its number was used before", repeated),
        ):
            jobs, stage = readings.leave_out(name, jobs, [(reason, lost)])
            stages += [stage] * bool(stage.dropped)
        if jobs.is_empty():
            reason = readings.reasons(*(stage.dropped for stage in stages[1:]))
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
        return Tables("swf", pool, jobs, *account, clock=clock_of(header))


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

"""Your own files, CSV, JSON or Parquet, with a mapping in TOML that says which column is what.

The page ``docs/traces/own-csv.md`` shows one; ``gangwise trace guess FILE`` drafts one.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from gangwise import notation
from gangwise.core.errors import TraceError, UnknownName
from gangwise.core.settings import UNIX, Clock, fault_text
from gangwise.logs import reading
from gangwise.logs.formats.tabular import TableMapping
from gangwise.logs.tables import Reader, Tables, server_table
from gangwise.logs.text import Blocks, Commented, RecordLines, first_lines, split_line

NAME = "csv"
DEVICES = ("cpu", "mem", "gpu")
TIMES = ("created", "deleted", "started")
# Checked as numbers where they are read; a time that is written out is text until then.
NUMBERS = ("cpu", "mem", "gpu", "tasks", "duration", "wait", "limit", "priority", *TIMES)
"""Fields that are numbers, unless a time is written out."""
EMPTY = (
    *("models", "model", "started", "wait", "status", "user", "limit", "priority", "hosts", "type"),
    *("partition", "account", "qos", "gang"),
)
"""Fields that may be empty."""
WRITTEN = {"quantity": notation.QUANTITY, "clock": notation.CLOCK}
"""Units that stand in the cells, and what they look like."""
WHITESPACE = "whitespace"
LARGEST = 1e12  # more seconds or devices than that are a mistake
MEANING = tomllib.loads(Path(__file__).parents[1].joinpath("own-csv.toml").read_text("utf-8"))
"""How mapped columns become jobs and servers, as sections of :mod:`.formats.tabular`."""


class _MappingModel(BaseModel):
    # A misspelled entry must be an error, or a column would silently not be read.
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mapped(_MappingModel):
    """Source of a value: a column, or the same value for every row.

    ``scale`` multiplies a number; ``unit`` is what it counts (``MiB``, ``hours``), or how it is
    written (``quantity``: 500m, 16Gi; ``clock``: 1-02:03:04). ``time`` is how a time is written, as
    in ``strptime``, and ``zone`` the time zone that it is of. ``empty`` is what an empty cell
    stands for. ``per`` says whether devices are of a task or of all tasks of the job. ``listed`` is
    the device's name in a list such as Slurm's ``cpu=4,mem=16G,gres/gpu=2`` or ``gpu:a100:2``.
    """

    column: str = ""
    value: float | str | None = None
    scale: float = 1.0
    time: str = ""
    zone: str = ""
    unit: str = ""
    empty: float | str | None = None
    listed: str = ""
    per: Literal["", "task", "job"] = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        # The short form, a name alone, is a column, and a number alone a constant.
        if isinstance(given, str):
            return {"column": given}
        # bool is an int in Python, and `true` no amount.
        if isinstance(given, bool):
            raise ValueError("give a column, a number or a table, not true or false")
        return {"value": given} if isinstance(given, int | float) else given

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        # Contradictions within one entry, each with what to write instead.
        if bool(self.column) == (self.value is not None):
            raise ValueError('give a column ("cores") or a value ({ value = 4 }), one of the two')
        if self.time and self.scale != 1.0:
            raise ValueError("a time that is written out has no scale")
        if not (isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale}; it must be a positive number")
        if self.unit and (self.time or self.unit not in (*notation.UNITS, *WRITTEN)):
            names = ", ".join([*notation.UNITS, *WRITTEN])
            raise ValueError(f"unit is {self.unit!r}; there are {names}, and none for a time")
        if self.zone:
            # A zone in the text decides; a second one would contradict it.
            if not self.time or "%z" in self.time:
                raise ValueError("a zone is of a time that is written out without one (time =)")
            try:
                ZoneInfo(self.zone)
            # zoneinfo raises OSError for names that are folders, such as `Europe`.
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise ValueError(f"{self.zone!r} is no time zone, as in Europe/Berlin") from None
        if self.listed and (self.time or self.unit or not self.column):
            raise ValueError("listed names a device in the lists of a column, without time or unit")
        if self.empty is not None and (self.time or not self.column):
            raise ValueError("empty is for the cells of a column, and not of a time")
        return self


class _Columns(_MappingModel):
    cpu: Mapped | None = None
    mem: Mapped | None = None
    gpu: Mapped | None = None

    def given(self) -> dict[str, Mapped]:
        return {name: mapped for name, mapped in self if mapped is not None}

    @model_validator(mode="after")
    def _of_their_kind(self) -> Self:
        columns = self.given()
        ends = {"deleted", "duration"} & {*columns}
        if isinstance(self, JobColumns) and not ends:
            raise ValueError("give deleted or duration")
        # Of start (or wait), end and duration two tell the third.
        if len({"started", "wait"} & {*columns}) + len(ends) > 2 or {"started", "wait"} <= {
            *columns
        }:
            raise ValueError("give two of deleted, duration, and started or wait")
        if not {*DEVICES} & {*columns}:
            raise ValueError("give at least one of cpu, mem and gpu")
        for name, mapped in columns.items():
            # A negative constant would be subtracted from a cluster.
            value = 0.0 if mapped.value is None or name not in NUMBERS else mapped.value
            if isinstance(value, str) or not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; it must be a number, zero or larger")
            if mapped.time and name not in TIMES:
                raise ValueError(f"{name} is no point in time, so time = means nothing there")
            if (mapped.per or mapped.listed) and name not in DEVICES:
                key = "per" if mapped.per else "listed"
                raise ValueError(f"{name} is no device, so {key} = means nothing there")
            if name in NUMBERS and isinstance(mapped.empty, str):
                raise ValueError(f"empty is {mapped.empty!r}; {name} is a number")
            if name not in NUMBERS and mapped.unit:
                raise ValueError(f"{name} is no number, so unit = means nothing there")
        # Times that are written out and plain seconds cannot be compared.
        dated = [name for name in TIMES if name in columns and columns[name].time]
        plain = [name for name in TIMES if name in columns and not columns[name].time]
        if dated and plain:
            raise ValueError(
                f"{dated[0]} is written out (time =) and {plain[0]} is a number of "
                "seconds: write both in the same way"
            )
        return self


class JobColumns(_Columns):
    name: Mapped
    created: Mapped
    deleted: Mapped | None = None
    duration: Mapped | None = None
    tasks: Mapped | None = None
    models: Mapped | None = None
    started: Mapped | None = None
    wait: Mapped | None = None
    job: Mapped | None = None
    gang: Mapped | None = None
    status: Mapped | None = None
    user: Mapped | None = None
    limit: Mapped | None = None
    priority: Mapped | None = None
    hosts: Mapped | None = None
    partition: Mapped | None = None
    account: Mapped | None = None
    qos: Mapped | None = None
    type: Mapped | None = None


class ServerColumns(_Columns):
    name: Mapped
    model: Mapped | None = None


class _File(_MappingModel):
    file: str
    format: Literal["csv", "json-lines", "json"] = "csv"
    records: str = ""
    separator: str = ","
    comment: str = ""
    header: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."

    @field_validator("separator")
    @classmethod
    def _one_character(cls, text: str) -> str:
        if text != WHITESPACE and (len(text) != 1 or text in '"\r\n'):
            raise ValueError("a separator is one character, or whitespace")
        return text

    @model_validator(mode="after")
    def _of_its_format(self) -> Self:
        if self.header is not None and (self.format != "csv" or not self.header):
            raise ValueError("header lists the columns of a CSV file that does not name them")
        if self.header and len(set(self.header)) < len(self.header):
            raise ValueError("header names a column twice")
        if self.decimal == "," and (self.format != "csv" or self.separator != ";"):
            raise ValueError('decimal = "," is of CSV with separator = ";"')
        if self.records and self.format != "json":
            raise ValueError('records is the key of the list in format = "json"')
        return self

    def blocks(self, file: Path) -> Blocks:
        # A document is one value, so that it is read whole and its records written as lines.
        if self.format == "json":
            return RecordLines(file, self.records)
        if self.comment or self.separator == WHITESPACE:
            comment = self.comment.encode()
            return Commented(file, comment, self.separator == WHITESPACE, self.decimal == ",")
        # With a decimal comma every line is rewritten, so that it is read as a number.
        return Commented(file, b"", commas=True) if self.decimal == "," else Blocks(file)


class JobFile(_File):
    per: Literal["task", "job"] = "task"
    open_end: Literal["drop", "last"] = "drop"
    columns: JobColumns


class ServerFile(_File):
    columns: ServerColumns


class MappingFile(_MappingModel):
    trace: str
    jobs: JobFile
    servers: ServerFile | None = None


def is_mapping(path: Path) -> bool:
    """Whether a file is TOML that has ``trace`` and ``[jobs]``, as no scenario file has."""
    # The ending decides first: other files are not opened.
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "trace" in content and isinstance(content.get("jobs"), dict)


def read_mapping(path: Path) -> MappingFile:
    """The mapping; raises TraceError that names the entry at fault, and what was probably meant."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise TraceError(f"the mapping cannot be read: {problem}", path) from error
    if content.get("trace") != NAME:
        raise TraceError(f'a mapping has trace = "{NAME}", not {content.get("trace")!r}', path)
    try:
        return MappingFile(**content)
    except ValidationError as error:
        # A misspelled name is told first: other errors often follow from it.
        worst = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        place = [str(part) for part in worst["loc"]]
        message = fault_text(worst)
        if worst["type"] == "extra_forbidden":
            model: Any = {"jobs": JobFile, "servers": ServerFile}.get(place[0], MappingFile)
            # The model in which the entry stands, for names that come near it.
            if place[1:2] == ["columns"]:
                model = Mapped if len(place) > 3 else model.model_fields["columns"].annotation
            message = str(UnknownName("entry", place[-1], list(model.model_fields)))
        raise TraceError(f"{'.'.join(place)}: {message}", path) from error


class OwnCsv(Reader):
    """Reader of the files that a mapping, a TOML file, describes.

    TraceError names the entry of the mapping, or the file and the row, at fault.
    """

    def __init__(self, path: Path | str, *, strict: bool = False):
        self.path, self.strict, self.notes = Path(path), strict, list[str]()
        self.mapping = read_mapping(self.path)

    @staticmethod
    def recognise(path: Path | str) -> bool:
        return is_mapping(Path(path))

    def _read(self) -> Tables:
        mapping, notes = self.mapping, self.notes.copy()
        jobs, stages, digests = self._table("jobs", mapping.jobs)
        servers = server_table()
        if mapping.servers is not None:
            servers, server_stages, digest = self._table("servers", mapping.servers)
            stages, digests = (*server_stages, *stages), {**digest, **digests}
        for section, table in (("jobs", mapping.jobs), ("servers", mapping.servers)):
            absent = [d for d in DEVICES if table and d not in table.columns.given()]
            if absent and not self.notes:
                notes.append(f"{section} have no {' and no '.join(absent)} in the mapping; it is 0")
        notes += TableMapping(MEANING["jobs"]).notes(jobs)
        # A zone that changes its clocks has an hour twice.
        if zones := {h.zone for h in mapping.jobs.columns.given().values() if h.zone}:
            notes.append(
                f"times are of {' and '.join(sorted(zones))}; of an hour that comes twice, the "
                "first is taken"
            )
        # Smaller numbers count from the log's own beginning, and not from 1970.
        clock = Clock(self.first, next(iter(zones), "UTC")) if self.first > UNIX else None
        return Tables(NAME, servers, jobs, stages, digests, tuple(notes), clock=clock)

    def _table(
        self, what: str, spec: JobFile | ServerFile
    ) -> tuple[pl.DataFrame, tuple[reading.Stage, ...], dict[str, str]]:
        file = self.path.parent / spec.file
        if not file.is_file():
            raise TraceError(f"{what}.file is {spec.file!r}: there is no such file", self.path)
        roles = spec.columns.given()
        # A column that the file lacks is an error of the mapping, not of each row.
        header = _header(file, spec)
        for key, mapped in roles.items():
            if mapped.column and header and mapped.column not in header:
                close = get_close_matches(mapped.column, header, n=1, cutoff=0.5)
                hint = f"; did you mean {close[0]!r}?" if close else "."
                if len(header) == 1 and mapped.column in header[0]:
                    hint = (
                        "; which character is between the columns? Add separator = to the mapping."
                    )
                raise TraceError(
                    f"{what}.columns.{key} is the column {mapped.column!r}, which {file.name} does "
                    f"not have{hint} It has {', '.join(header) or 'no columns'}",
                    self.path,
                )
        table = reading.read_table(
            file, _schema(what, spec), strict=self.strict, blocks=spec.blocks(file)
        )
        frame, section = self._valued(table.frame, what, roles), TableMapping(MEANING[what])
        # What only shows once units and times are read.
        bad: list[reading.Rule] = [
            # A time that is not read is null; one that may be empty tells no fault.
            (f"{key} is not a time as in {mapped.time!r}", pl.col(key).is_null())
            for key, mapped in roles.items()
            if mapped.time and key != "started" and not _may_be_empty(key, mapped, spec)
        ]
        bad += section.rules(frame)
        # Plain numbers were checked when they were read, those with a unit in the cell were not.
        with_unit = [key for key, mapped in roles.items() if mapped.unit in WRITTEN]
        bad += [(f"{key} is negative", pl.col(key) < 0) for key in with_unit]
        if self.strict:
            reading.refuse(file, frame, bad)
        sound, checked = reading.leave_out(what, frame, bad)
        if sound.is_empty():
            raise TraceError(
                f"none of the rows can be used: {reading.reasons(checked.dropped)}", file
            )
        # A stage without losses is not worth a line.
        stages = (table.stage, checked) if checked.dropped else (table.stage,)
        extended = section.extended(sound)
        if what == "jobs":
            # Time 0 of the tables is the first submission.
            self.first = float(sound["created"].min() or 0.0)  # type: ignore[arg-type]  # seconds
        if isinstance(spec, JobFile):
            if "tasks" in extended.columns:  # devices of each task, where the file has totals
                total = [q for q in DEVICES if q in roles and (roles[q].per or spec.per) == "job"]
                extended = extended.with_columns(pl.col(q) / pl.col("tasks") for q in total)
            if spec.open_end == "last":
                times = [name for name in TIMES if name in extended.columns]
                extended = extended.with_columns(
                    # Unfinished is what had no end; both read the column as it was before.
                    deleted=pl.col("deleted").fill_null(pl.max_horizontal(pl.col(times).max())),
                    unfinished=pl.col("deleted").is_null(),
                )
        return section.select(extended), stages, {table.file.name: table.digest}

    def _valued(self, frame: pl.DataFrame, what: str, given: Mapping[str, Mapped]) -> pl.DataFrame:
        fields = [pl.col("row")]
        for key, mapped in given.items():
            fields.append(_value(key, mapped).alias(key))
            if mapped.time:
                # polars checks a format only when it runs, so it runs once here, for the message.
                try:
                    frame.select(fields[-1])
                except pl.exceptions.PolarsError as error:  # also for a zone given twice
                    raise TraceError(
                        f"{what}.columns.{key}: {mapped.time!r} is no way to write a time "
                        f"({str(error).splitlines()[0]})",
                        self.path,
                    ) from error
        return frame.select(fields)


def amount_listed(text: pl.Expr, name: str, *, mem: bool = False) -> pl.Expr:
    """The amount of a device in lists as Slurm writes them; null where a list lacks it.

    The total counts where it is listed beside its types, else the sum of the types. Memory is in
    GiB, of a number without a unit in MiB.

    >>> frame = pl.DataFrame(
    ...     {"t": ["cpu=4,gres/gpu=3,gres/gpu:a=3", "gpu:a:2,gpu:b:1", "mem=512M"]}
    ... )
    >>> frame.select(amount_listed(pl.col("t"), "gres/gpu")).to_series().to_list()
    [3.0, 3.0, None]
    >>> frame.select(amount_listed(pl.col("t"), "mem", mem=True)).to_series().to_list()
    [None, None, 0.5]
    """
    bare = re.escape(name.removeprefix("gres/"))
    start = rf"(?:^|,)(?:gres[/:])?{bare}"
    if mem:
        parts = text.str.extract_groups(rf"{start}[=:]([\d.]+)([KMGTPE]?)").struct
        # Slurm writes K for KiB; without a letter it is MiB.
        unit = parts.field("2").replace_strict(
            {k: v / 2**30 for k, v in BINARY.items()}, default=2.0**-10, return_dtype=pl.Float64
        )
        return parts.field("1").cast(pl.Float64, strict=False) * unit
    # A total beside its types would count them twice.
    total = text.str.extract(rf"{start}[=:](\d+(?:\.\d+)?)(?:,|\(|$)", 1)
    typed = text.str.extract_all(rf"{bare}:[A-Za-z_][\w.-]*[=:]\d+").list.eval(
        pl.element().str.extract(r"(\d+)$", 1).cast(pl.Float64)
    )
    # No type at all is null, and not zero: the list may not be of this device.
    kinds = pl.when(typed.list.len() > 0).then(typed.list.sum())
    return pl.coalesce(total.cast(pl.Float64, strict=False), kinds)


BINARY = {unit: 1024.0**power for power, unit in enumerate("KMGTPE", 1)}


def _header(file: Path, spec: _File) -> list[str]:
    """Names of the columns; none where a JSON document is one long line."""
    if spec.header is not None or spec.format == "json":
        return list(spec.header or ())
    comment = spec.comment or "\n"  # no line begins so
    rows = [line for line in first_lines(file) if line.strip()]
    header = next((line for line in rows if not line.lstrip().startswith(comment)), "")
    if spec.format == "json-lines":
        return json_paths(header)
    if spec.separator == WHITESPACE:
        return header.split()
    return [field.strip() for field in split_line(header, spec.separator) or [] if header]


def json_paths(line: str) -> list[str]:
    """Paths of the values of a JSON object, in its order; none of what is no object.

    >>> json_paths('{"id": 1, "size": {"cpu": 2, "mem": 3}, "tags": [1]}')
    ['id', 'size.cpu', 'size.mem', 'tags']
    """
    try:
        record = json.loads(line)
    except ValueError:
        return []
    return list(_leaves(record, "")) if isinstance(record, dict) else []


def _leaves(held: dict[str, Any], before: str) -> Iterator[str]:
    for name, value in held.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _may_be_empty(key: str, held: Mapped, spec: _File) -> bool:
    open_end = isinstance(spec, JobFile) and spec.open_end == "last"
    return key in EMPTY or held.empty is not None or (open_end and key in ("deleted", "duration"))


def _schema(what: str, spec: JobFile | ServerFile) -> reading.Schema:
    columns: dict[str, reading.Column] = {}
    for key, mapped in spec.columns.given().items():
        as_text = bool(mapped.time or mapped.listed) or mapped.unit in WRITTEN
        number, name = key in NUMBERS and not as_text, _stored(mapped.column)
        # One column may serve two roles, but is read in one way.
        if name in columns and columns[name].number != number:
            raise TraceError(
                f"{what}.columns.{key}: the column {mapped.column!r} is text in one "
                "place of the mapping and a number in another"
            )
        if mapped.column:
            empty = _may_be_empty(key, mapped, spec)
            pattern = WRITTEN.get(mapped.unit, "")
            # The bound is of the value after scaling; a small unit allows
            # larger numbers in the cell.
            most = LARGEST / min(mapped.scale * notation.UNITS.get(mapped.unit, 1.0), 1.0)
            columns[name] = reading.Column(
                name, number=number, empty=empty, pattern=pattern, most=most, also=(mapped.column,)
            )
    unique = _stored(spec.columns.name.column) if what == "servers" else ""
    listed = tuple(columns.values())
    # Columns of no interest are there by their place, since the file names none.
    if spec.header is not None:
        filler = [reading.Column(_stored(name), number=False, empty=True) for name in spec.header]
        listed = tuple(columns.get(column.name, column) for column in filler)
    return reading.Schema(
        f"{what} file",
        listed,
        header=spec.header is None and spec.format == "csv",
        separator=" " if spec.separator == WHITESPACE else spec.separator,
        unique=unique,
        json=spec.format != "csv",
        missing=spec.missing,
    )


def _stored(column: str) -> str:
    # Apart from names of roles, which a frame has as well.
    return f"column {column}"


def _value(key: str, held: Mapped) -> pl.Expr:
    if held.value is not None:
        return pl.lit(float(held.value) if key in NUMBERS else str(held.value))
    column = pl.col(_stored(held.column))
    # An hour that clocks show twice is taken to be the first; one that they skip is none.
    if held.time:
        time = column.str.to_datetime(held.time, strict=False, time_unit="us")
        # Local times become UTC: an hour that is skipped is null, and the row bad.
        if held.zone:
            time = time.dt.replace_time_zone(
                held.zone, ambiguous="earliest", non_existent="null"
            ).dt.convert_time_zone("UTC")
        # Microseconds as floats are exact until the year 2255.
        return time.dt.epoch("us").cast(pl.Float64) / 1e6
    if key not in NUMBERS:
        blank = str(held.empty) if held.empty is not None else ""
        return pl.when(column == "").then(pl.lit(blank)).otherwise(column)
    if held.listed:
        column = amount_listed(column, held.listed, mem=key == "mem")
    elif held.unit == "quantity":
        column = notation.quantity(column) * (notation.UNITS["bytes"] if key == "mem" else 1.0)
    elif held.unit == "clock":
        column = notation.clock(column)
    # Scale and unit together turn cells into seconds, GiB or devices.
    number: pl.Expr = column * (held.scale * notation.UNITS.get(held.unit, 1.0))
    return number if held.empty is None else number.fill_null(float(held.empty))

"""Your own CSV files, with a mapping in TOML that says which column is what.

.. code-block:: toml

    trace = "csv"

    [jobs]
    file = "jobs.csv"                   # beside this file, unless a whole path
    separator = ";"                     # a comma by default

    [jobs.columns]
    name = "id"                         # a column
    cpu = "cores"
    mem = { column = "ram_mb", scale = 0.0009765625 }            # to GiB
    gpu = { value = 0 }                 # the same for all; a plain number will do: gpu = 0
    created = { column = "submit", time = "%Y-%m-%d %H:%M:%S" }  # seconds without time=
    duration = "run_s"                  # or deleted =

    [servers]
    file = "servers.csv"

    [servers.columns]
    name = "host"
    cpu = "cores"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from gangwise.core.errors import TraceError
from gangwise.traces.io.account import Stage, leave_out, reasons, refuse
from gangwise.traces.io.reading import read_table
from gangwise.traces.io.schema import Column, Schema
from gangwise.traces.io.text import first_lines, split_line
from gangwise.traces.tables import Fidelity, Tables, of_tables, server_table

NAME = "csv"
TIMES = ("created", "deleted", "started")
NUMBERS = ("cpu", "mem", "gpu", "tasks", "duration", "limit", "priority", *TIMES)
"""Fields that are numbers, unless a time is written out."""
EMPTY = ("models", "model", "started", "status", "user", "limit", "priority", "hosts", "type")
"""Fields that may be empty."""
OTHERS = ("tasks", "job", "elapsed", *EMPTY[2:])
"""Columns of jobs, where the mapping has them."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mapped(_Strict):
    """Where a value comes from: a column, or the same value for every row.

    ``scale`` multiplies a number; ``time`` is how a time is written, as in ``strptime``.
    """

    column: str = ""
    value: float | str | None = None
    scale: float = 1.0
    time: str = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"column": given}
        if isinstance(given, bool):
            raise ValueError("give a column, a number or a table, not true or false")
        return {"value": given} if isinstance(given, int | float) else given

    @model_validator(mode="after")
    def _one_of_them(self) -> Mapped:
        if bool(self.column) == (self.value is not None):
            raise ValueError('give a column ("cores") or a value ({ value = 4 }), one of the two')
        if self.time and self.scale != 1.0:
            raise ValueError("a time that is written out has no scale")
        if not (isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale}; it must be a positive number")
        return self


class _Columns(_Strict):
    """Columns of a table: a field each."""

    def given(self) -> dict[str, Mapped]:
        """Those that are in the mapping."""
        return {name: held for name, held in self if held is not None}

    def _of_their_kind(self) -> None:
        given = self.given()
        for name, held in given.items():
            value = 0.0 if held.value is None or name not in NUMBERS else held.value
            if isinstance(value, str) or not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; it must be a number, zero or larger")
            if held.time and name not in TIMES:
                raise ValueError(f"{name} is no point in time, so time = means nothing there")
        written = [name for name in TIMES if name in given and given[name].time]
        plain = [name for name in TIMES if name in given and not given[name].time]
        if written and plain:
            raise ValueError(
                f"{written[0]} is written out (time =) and {plain[0]} is a number of "
                "seconds: write both in the same way"
            )


class JobColumns(_Columns):
    """What a job has."""

    name: Mapped
    created: Mapped
    deleted: Mapped | None = None
    duration: Mapped | None = None
    cpu: Mapped | None = None
    mem: Mapped | None = None
    gpu: Mapped | None = None
    tasks: Mapped | None = None
    models: Mapped | None = None
    started: Mapped | None = None
    job: Mapped | None = None
    status: Mapped | None = None
    user: Mapped | None = None
    limit: Mapped | None = None
    priority: Mapped | None = None
    hosts: Mapped | None = None
    type: Mapped | None = None

    @model_validator(mode="after")
    def _enough(self) -> JobColumns:
        if (self.deleted is None) == (self.duration is None):
            raise ValueError("give deleted or duration, one of the two")
        _some_device(self.cpu, self.mem, self.gpu)
        self._of_their_kind()
        return self


class ServerColumns(_Columns):
    """What a server has."""

    name: Mapped
    cpu: Mapped | None = None
    mem: Mapped | None = None
    gpu: Mapped | None = None
    model: Mapped | None = None

    @model_validator(mode="after")
    def _enough(self) -> ServerColumns:
        _some_device(self.cpu, self.mem, self.gpu)
        self._of_their_kind()
        return self


def _some_device(*devices: Mapped | None) -> None:
    if not any(devices):
        raise ValueError("give at least one of cpu, mem and gpu")


class _File(_Strict):
    file: str
    separator: str = ","

    @field_validator("separator")
    @classmethod
    def _one_character(cls, text: str) -> str:
        if len(text) != 1 or text in '"\r\n':
            raise ValueError("a separator is one character")
        return text


class JobFile(_File):
    """The file of jobs."""

    columns: JobColumns


class ServerFile(_File):
    """The file of servers."""

    columns: ServerColumns


class MappingFile(_Strict):
    """A mapping as a whole."""

    trace: str
    jobs: JobFile
    servers: ServerFile | None = None


def is_mapping(path: Path) -> bool:
    """Whether a file is TOML that has ``trace`` and ``[jobs]``, as no scenario file has."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "trace" in content and isinstance(content.get("jobs"), dict)


def read_mapping(path: Path) -> MappingFile:
    """The mapping, checked.

    Raises
    ------
    TraceError
        Names the entry at fault, and what was probably meant.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise TraceError(f"the mapping cannot be read: {why}", path) from error
    if content.get("trace") != NAME:
        raise TraceError(f'a mapping has trace = "{NAME}", not {content.get("trace")!r}', path)
    try:
        return MappingFile(**content)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        where = [str(part) for part in first["loc"]]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            model: Any = {"jobs": JobFile, "servers": ServerFile}.get(where[0], MappingFile)
            if where[1:2] == ["columns"]:
                model = Mapped if len(where) > 3 else model.model_fields["columns"].annotation
            known = list(model.model_fields)
            close = get_close_matches(where[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? " if close else ""
            message = f"there is no such entry; {hint}There are {', '.join(known)}"
        raise TraceError(f"{'.'.join(where)}: {message}", path) from error


class OwnCsv:
    r"""Reader of CSV files that a mapping describes.

    Parameters
    ----------
    path : path
        The mapping, a TOML file.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        Names the entry of the mapping, or the file and the row, at fault.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "jobs.csv").write_text("id,cores,submit,run_s\na,4,100,60\n")
    ...     mapping = Path(folder, "mapping.toml")
    ...     size = mapping.write_text(
    ...         'trace = "csv"\n[jobs]\nfile = "jobs.csv"\n[jobs.columns]\n'
    ...         'name = "id"\ncpu = "cores"\ncreated = "submit"\nduration = "run_s"\n'
    ...     )
    ...     OwnCsv(mapping).scan().jobs.select("name", "cpu", "created", "deleted").rows()
    [('a', 4.0, 0.0, 60.0)]
    """

    def __init__(self, path: Path | str, *, strict: bool = False):
        self.path, self.strict = Path(path), strict
        self.mapping = read_mapping(self.path)
        self._tables: Tables | None = None

    @staticmethod
    def recognise(path: Path | str) -> bool:
        """Whether a file is a mapping: a TOML file that has ``trace`` and ``[jobs]``."""
        return is_mapping(Path(path))

    def scan(self) -> Tables:
        """Read the files, once."""
        if self._tables is None:
            self._tables = self._read()
        return self._tables

    def fidelity(self) -> Fidelity:
        """What was read and what was left out."""
        return of_tables(self.scan())

    def _read(self) -> Tables:
        mapping, notes = self.mapping, []
        jobs, stages, digests = self._table("jobs", mapping.jobs)
        if mapping.servers is None:
            servers = server_table()
        else:
            found, more, digest = self._table("servers", mapping.servers)
            servers = _server_table(found)
            stages, digests = (*more, *stages), {**digest, **digests}
        for what, table in (("jobs", mapping.jobs), ("servers", mapping.servers)):
            absent = [d for d in ("cpu", "mem", "gpu") if table and d not in table.columns.given()]
            if absent:
                notes.append(f"{what} have no {' and no '.join(absent)} in the mapping; it is 0")
        return Tables(NAME, servers, _job_table(jobs), stages, digests, tuple(notes))

    def _table(
        self, what: str, spec: JobFile | ServerFile
    ) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str]]:
        """A file by its mapping: ``row`` and the fields of the mapping."""
        file = self.path.parent / spec.file
        if not file.is_file():
            raise TraceError(f"{what}.file is {spec.file!r}: there is no such file", self.path)
        given = spec.columns.given()
        header = _header(file, spec.separator)
        for key, held in given.items():
            if held.column and held.column not in header:
                close = get_close_matches(held.column, header, n=1, cutoff=0.5)
                hint = f"; did you mean {close[0]!r}?" if close else "."
                raise TraceError(
                    f"{what}.columns.{key} is the column {held.column!r}, which {file.name} does "
                    f"not have{hint} It has {', '.join(header) or 'no columns'}",
                    self.path,
                )
        table = read_table(file, _schema(what, spec), strict=self.strict)
        frame = self._valued(table.frame, what, given)
        bad = _rules(what, frame, given)
        if self.strict:
            refuse(file, frame, bad)
        kept, checked = leave_out(what, frame, bad)
        if kept.is_empty():
            raise TraceError(f"none of the rows can be used: {reasons(checked.dropped)}", file)
        dropped = {why: (n, row) for why, (n, row) in table.dropped.items()}
        stage = Stage(table.file.name, table.read, len(table.frame), dropped)
        stages = (stage, checked) if checked.dropped else (stage,)
        return kept, stages, {table.file.name: table.digest}

    def _valued(self, frame: pl.DataFrame, what: str, given: Mapping[str, Mapped]) -> pl.DataFrame:
        """``row`` and the fields of the mapping."""
        fields = [pl.col("row")]
        for key, held in given.items():
            fields.append(_value(key, held).alias(key))
            if held.time:
                try:
                    frame.select(fields[-1])
                except pl.exceptions.PolarsError as error:
                    raise TraceError(
                        f"{what}.columns.{key}: {held.time!r} is no way to write a time "
                        f"({str(error).splitlines()[0]})",
                        self.path,
                    ) from error
        return frame.select(fields)


def _header(file: Path, separator: str) -> list[str]:
    lines = first_lines(file, 1)
    return [field.strip() for field in split_line(lines[0], separator) or []] if lines else []


def _schema(what: str, spec: JobFile | ServerFile) -> Schema:
    """The columns that the mapping names, each once."""
    columns: dict[str, Column] = {}
    for key, held in spec.columns.given().items():
        number, name = key in NUMBERS and not held.time, _stored(held)
        if name in columns and columns[name].number != number:
            raise TraceError(
                f"{what}.columns.{key}: the column {held.column!r} is text in one "
                "place of the mapping and a number in another"
            )
        if held.column:
            empty = key in EMPTY
            columns[name] = Column(name, number=number, empty=empty, also=(held.column,))
    unique = _stored(spec.columns.name) if what == "servers" else ""
    return Schema(f"{what} file", tuple(columns.values()), separator=spec.separator, unique=unique)


def _stored(held: Mapped) -> str:
    """What a column of the file is called once it is read: never like one of ours."""
    return f"column {held.column}"


def _value(key: str, held: Mapped) -> pl.Expr:
    if held.value is not None:
        return pl.lit(float(held.value) if key in NUMBERS else str(held.value))
    if held.time:
        time = pl.col(_stored(held)).str.to_datetime(held.time, strict=False, time_unit="us")
        return time.dt.epoch("us").cast(pl.Float64) / 1e6
    column = pl.col(_stored(held))
    return column * held.scale if key in NUMBERS else column


def _rules(
    what: str, frame: pl.DataFrame, given: Mapping[str, Mapped]
) -> list[tuple[str, pl.Expr]]:
    """What makes a row of the mapped table bad."""
    rules = [
        (f"{key} is not a time as in {held.time!r}", pl.col(key).is_null())
        for key, held in given.items()
        if held.time and key != "started"
    ]
    for key in ("deleted", "started"):
        if key in given:
            rules.append((f"{key} is before created", pl.col(key) < pl.col("created")))
    if "tasks" in given:
        whole = (pl.col("tasks") >= 1) & (pl.col("tasks") == pl.col("tasks").floor())
        rules.append(("tasks is not a whole number of at least 1", ~whole))
    if what == "servers" and "model" in given and "gpu" in given:
        rules.append(
            ("gpu is positive and model is empty", (pl.col("gpu") > 0) & (pl.col("model") == ""))
        )
    return rules


def _job_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Jobs in seconds since the first creation."""
    if "duration" in frame.columns:
        begun = pl.col("created")
        if "started" in frame.columns:  # waiting is no part of how long it takes
            begun = pl.coalesce("started", "created")
            frame = frame.with_columns(elapsed=pl.when(pl.col("started") >= 0).then("duration"))
        frame = frame.with_columns(deleted=begun + pl.col("duration"))
    frame = _with_devices(frame)
    if "models" in frame.columns:  # any order, once each
        models = pl.col("models").str.split("|").list.eval(pl.element().str.strip_chars())
        frame = frame.with_columns(models=models.list.unique().list.sort().list.join("|"))
    else:
        frame = frame.with_columns(models=pl.lit(""))
    times = [name for name in ("created", "deleted", "started") if name in frame.columns]
    frame = frame.with_columns(pl.col(times) - pl.col("created").min())
    first = ["row", "name", "cpu", "mem", "gpu", "models", "created", "deleted"]
    others = [name for name in OTHERS if name in frame.columns]
    frame = frame.select(*first, *others)
    return frame.with_columns(pl.col("tasks").cast(pl.Int64)) if "tasks" in others else frame


def _server_table(frame: pl.DataFrame) -> pl.DataFrame:
    frame = _with_devices(frame)
    model = pl.col("model") if "model" in frame.columns else pl.lit("gpu")
    model = pl.when(pl.col("gpu") > 0).then(model).otherwise(pl.lit(""))
    return frame.with_columns(model=model).select("row", "name", "model", "cpu", "mem", "gpu")


def _with_devices(frame: pl.DataFrame) -> pl.DataFrame:
    absent = [name for name in ("cpu", "mem", "gpu") if name not in frame.columns]
    return frame.with_columns(pl.lit(0.0).alias(name) for name in absent)

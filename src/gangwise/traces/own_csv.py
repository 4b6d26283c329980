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

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.csv_mapping import (
    NAME,
    NUMBERS,
    JobFile,
    Mapped,
    ServerFile,
    is_mapping,
    read_mapping,
)
from gangwise.traces.fidelity import Fidelity, Stage, leave_out, reasons, refuse
from gangwise.traces.load import of_tables
from gangwise.traces.schema import Column, Schema
from gangwise.traces.tables import read_table
from gangwise.traces.text import first_lines, split_line
from gangwise.traces.trace import Tables, server_table

if TYPE_CHECKING:
    import polars as pl


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
        import polars as pl

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
            empty = key in ("models", "model", "started", "status", "user")
            columns[name] = Column(name, number=number, empty=empty, also=(held.column,))
    unique = _stored(spec.columns.name) if what == "servers" else ""
    return Schema(f"{what} file", tuple(columns.values()), separator=spec.separator, unique=unique)


def _stored(held: Mapped) -> str:
    """What a column of the file is called once it is read: never like one of ours."""
    return f"column {held.column}"


def _value(key: str, held: Mapped) -> pl.Expr:
    import polars as pl

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
    import polars as pl

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
    import polars as pl

    if "duration" in frame.columns:
        frame = frame.with_columns(deleted=pl.col("created") + pl.col("duration"))
    frame = _with_devices(frame)
    if "models" in frame.columns:  # any order, once each
        models = pl.col("models").str.split("|").list.eval(pl.element().str.strip_chars())
        frame = frame.with_columns(models=models.list.unique().list.sort().list.join("|"))
    else:
        frame = frame.with_columns(models=pl.lit(""))
    times = [name for name in ("created", "deleted", "started") if name in frame.columns]
    frame = frame.with_columns(pl.col(times) - pl.col("created").min())
    first = ["row", "name", "cpu", "mem", "gpu", "models", "created", "deleted"]
    others = [n for n in ("tasks", "job", "started", "status", "user") if n in frame.columns]
    frame = frame.select(*first, *others)
    return frame.with_columns(pl.col("tasks").cast(pl.Int64)) if "tasks" in others else frame


def _server_table(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    frame = _with_devices(frame)
    model = pl.col("model") if "model" in frame.columns else pl.lit("gpu")
    model = pl.when(pl.col("gpu") > 0).then(model).otherwise(pl.lit(""))
    return frame.with_columns(model=model).select("row", "name", "model", "cpu", "mem", "gpu")


def _with_devices(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    absent = [name for name in ("cpu", "mem", "gpu") if name not in frame.columns]
    return frame.with_columns(pl.lit(0.0).alias(name) for name in absent)

"""Traces that are tables: a TOML file of this folder says what they hold and what it means.

Sections of such a file, whose head says where the trace comes from:

``[tables.NAME]``
    A file as published: its columns, and what makes a row bad; see
    :func:`~gangwise.traces.format.declared`.
``[options.NAME]``
    An argument of the reader: ``default``, and ``choices`` or ``least`` and ``most``. ``$NAME``
    stands for its value below.
``[jobs]``, ``[servers]``
    The ``table`` that they are made of, and ``columns`` as
    :class:`~gangwise.traces.tables.Tables` has them. ``with`` adds columns before, one after the
    other; ``leave_out`` gives a reason for each condition under which a row is left out
    (``{column}`` in it is what the row has there); ``notes`` tell what a reader of a result must
    know, each a text, or ``{ text, count }``, which is told where the count is not 0. ``repeat``
    makes as many equal servers as it says; ``[servers.log]`` is of :func:`server_log`.

Values are names of columns, or SQL as polars reads it (a number with a point is a decimal there:
write whole ones). What refers to a column that the file may lack is left out where it does.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import FORMATS, Format, declared
from gangwise.traces.io.account import Rule, Stage, leave_out, reasons
from gangwise.traces.io.schema import Column
from gangwise.traces.io.text import named
from gangwise.traces.source import Read, Source
from gangwise.traces.tables import UNITS, Reader, Tables, server_table

NUMBERS = ("cpu", "mem", "gpu", "created", "started", "deleted")
NEEDED: Mapping[str, Any] = {"cpu": 0.0, "mem": 0.0, "gpu": 0.0, "models": "", "model": ""}
"""Columns that tables always have, and what stands there where the file does not say."""


class Made(NamedTuple):
    frame: pl.DataFrame
    stages: tuple[Stage, ...]
    notes: list[str]


class Section:
    """A section ``[jobs]`` or ``[servers]`` of a mapping, with the options of a reader."""

    def __init__(self, spec: Mapping[str, Any], options: Mapping[str, Any] | None = None):
        self.spec, self.options = spec, options or {}

    def sql(self, text: str, frame: pl.DataFrame) -> pl.Expr | None:
        """The expression; None where the frame lacks a column of it."""
        if text.isidentifier():
            return pl.col(text) if text in frame.columns else None
        found = _of_options(text, self.options)
        return found if {*found.meta.root_names()} <= {*frame.columns} else None

    def make(self, frame: pl.DataFrame, path: Path) -> Made:
        """The rows that can be used, in the columns of the mapping.

        Raises
        ------
        TraceError
            When there are none; ``path`` is where they were looked for.
        """
        spec = self.spec
        stages: tuple[Stage, ...] = ()
        for name, text in spec.get("with", {}).items():
            if (value := self.sql(text, frame)) is not None:
                frame = frame.with_columns(value.alias(name))
        if rules := self.rules(frame):
            frame, stage = leave_out(spec["stage"], frame, rules)
            if frame.is_empty():
                raise TraceError(f"{spec['none']}: {reasons(stage.dropped)}", path)
            if stage.dropped or spec.get("always"):
                stages = (stage,)
        return Made(self.select(frame), stages, self.notes(frame))

    def rules(self, frame: pl.DataFrame) -> list[Rule]:
        """Reasons to leave out a row, and what is true of such rows."""
        found: list[Rule] = []
        for reason, text in self.spec.get("leave_out", {}).items():
            broken, columns = self.sql(text, frame), re.findall(r"\{(\w+)\}", reason)
            if broken is not None:
                template = pl.format(re.sub(r"\{\w+\}", "{}", reason), *columns)
                found.append((template if columns else reason, broken))
        return found

    def select(self, frame: pl.DataFrame) -> pl.DataFrame:
        columns = [pl.col("row")]
        for name, text in self.spec["columns"].items():
            value = self.sql(text, frame)
            if value is None and name in NEEDED:
                value = pl.lit(NEEDED[name])
            if value is not None:
                value = value.cast(pl.Float64) if name in NUMBERS else value
                columns.append(value.alias(name))
        made = frame.select(columns)
        return made.with_columns(sorted_models()) if self.spec.get("sort_models") else made

    def notes(self, frame: pl.DataFrame) -> list[str]:
        found = []
        for note in self.spec.get("notes", ()):
            entry = {"text": note} if isinstance(note, str) else note
            if "if" in entry and not pl.select(_of_options(entry["if"], self.options)).item():
                continue
            texts = [entry["count"]] if "count" in entry else entry.get("counts", [])
            counts = [value for text in texts if (value := self.sql(text, frame)) is not None]
            numbers = [_total(frame.select(count).to_series()) for count in counts]
            if len(numbers) < len(texts) or None in numbers:
                continue
            if not texts or numbers[0] or entry.get("always"):
                found.append(entry["text"].format(*numbers))
        return found


def _total(found: pl.Series) -> Any:
    """How many rows a condition is true of, or the one value of anything else."""
    return found.sum() if found.dtype == pl.Boolean else found[0]


def _of_options(text: str, options: Mapping[str, Any]) -> pl.Expr:
    """SQL in which options have their values."""
    values = {f"${name}": _literal(value) for name, value in options.items()}
    return _sql(re.sub(r"\$\w+", lambda found: values.get(found[0], found[0]), text))


_sql = cache(pl.sql_expr)  # the same few texts for every batch


def _literal(value: Any) -> str:
    """An option as SQL has it."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return ", ".join(map(_literal, value)) if isinstance(value, tuple) else f"{value:.17g}"


def sorted_models() -> pl.Expr:
    """GPU models in ``models``, joined by ``|``: sorted, each once, none of them empty."""
    each = pl.col("models").str.split("|").list.eval(pl.element().str.strip_chars())
    return each.list.unique().list.sort().list.join("|").str.strip_chars("|").alias("models")


def seconds(column: Column) -> pl.Expr:
    """Seconds since 1970 of a written time, without its fraction; as if it were UTC without a zone.

    Null where it is none of the ways in which the column may write one.
    """
    text = pl.col(column.name).str.replace(r"\.\d+", "")
    times = (text.str.to_datetime(way, strict=False, time_unit="ms") for way in column.times)
    return pl.coalesce(time.dt.epoch("s") for time in times).cast(pl.Float64).alias(column.name)


def server_log(
    frame: pl.DataFrame, log: Section
) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Stage, ...]]:
    """Servers, and when they come and go, from a log of their states.

    ``[servers.log]`` has the columns ``server`` and ``time``, and conditions: ``up`` (it is there
    from then on), ``sized`` (the row tells what the server has; the last such row counts) and
    ``first`` (it was there before its first row); and ``never``, the reason to leave out a server
    that has no row of its size.

    Returns
    -------
    DataFrame
        The row of each server that counts.
    DataFrame
        ``time server up``.
    tuple of Stage
    """
    spec = log.spec
    server, time = spec["server"], spec["time"]
    rows = frame.sort(time, "part", "row")
    rows = rows.with_columns(log.sql(spec[name], rows).alias(name) for name in ("up", "sized"))  # type: ignore[union-attr]  # of columns that are needed
    last = rows.filter("sized").group_by(server, maintain_order=True).last().sort("row")
    before = pl.col("up").shift(1).over(server, order_by=pl.int_range(pl.len()))
    before = pl.coalesce(before, log.sql(spec["first"], rows))
    known = pl.col(server).is_in(last[server].to_list())
    events = rows.filter(known & (pl.col("up") != before))
    every = rows.group_by(server).agg(pl.col("row").min())
    _, stage = leave_out("machines", every, [(spec["never"], ~known)])
    return last, events.select(time=time, server=server, up="up"), (stage,)


class Tabular(Reader):
    """Reader of a trace that is described by a TOML file.

    Parameters
    ----------
    path, strict
        As of :class:`~gangwise.traces.tables.Reader`, and so for all readers.
    **options
        Those of the file.

    Raises
    ------
    TraceError
        When a table is missing or cannot be read, no row of it can be used, or for an option that
        cannot be.
    """

    def __init__(self, path: Path | str, *, strict: bool = False, **options: Any):
        super().__init__(path, strict=strict)
        self.options = checked(self.FORMAT, options)

    def section(self, name: str) -> Section:
        return Section(self.FORMAT.mapping.get(name, {}), self.options)

    def _read(self) -> Tables:
        return self.tables_of(self._table(self.FORMAT.mapping["jobs"]["table"]))

    def _table(self, name: str) -> Read:
        return self.source.read(name)

    def tables_of(self, read: Read, section: str = "jobs", before: Sequence[str] = ()) -> Tables:
        """Tables of the jobs that were read, and of the servers that are here.

        ``before`` are notes that come before those of the section.
        """
        jobs = self.section(section)
        servers, events, stages, digests, notes = self._servers()
        times = [c for c in self._columns(jobs) if c.times and c.name in read.frame.columns]
        made = jobs.make(read.frame.with_columns(map(seconds, times)), self.source.path)
        told = [*before, *made.notes]
        first = self.FORMAT.mapping.get("servers", {}).get("notes_first")
        return Tables(
            self.FORMAT.name,
            servers,
            made.frame,
            (*stages, *read.stages, *made.stages),
            {**digests, **read.digests},
            (*notes, *told) if first else (*told, *notes),
            {**UNITS, **self.FORMAT.mapping.get("units", {})},
            events,
        )

    def _columns(self, section: Section) -> Sequence[Column]:
        return self.FORMAT.table(section.spec["table"]).schema.columns

    def _servers(
        self,
    ) -> tuple[
        pl.DataFrame, pl.DataFrame | None, tuple[Stage, ...], Mapping[str, str], Sequence[str]
    ]:
        """Servers, events of them, stages, digests and notes."""
        section, source = self.section("servers"), self.source
        spec, path = section.spec, source.path
        if spec.get("beside") and not (path.is_dir() or source.converted):
            source = Source(path.parent, self.FORMAT, strict=source.strict)
        if "table" not in spec or not source.has(spec["table"]):
            return server_table(), None, (), {}, [spec["missing"]] if "missing" in spec else []
        read = self._table(spec["table"]) if source is self.source else source.read(spec["table"])
        frame, events, stages = read.frame, None, read.stages
        if "log" in spec:
            frame, events, more = server_log(frame, Section(spec["log"], self.options))
            stages = (*stages, *more)
        notes = section.notes(frame)
        if "repeat" in spec:
            number = frame.select(_of_options(spec["repeat"], self.options)).item()
            frame = pl.DataFrame({"row": np.arange(1, int(number) + 1)})
        return section.select(frame), events, stages, read.digests, notes


def checked(form: Format, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a reader, completed by those that are not given.

    Raises
    ------
    TraceError
        For a value that cannot be.
    """
    found = {}
    for name, entry in form.mapping.get("options", {}).items():
        value = options.get(name, entry["default"])
        if isinstance(entry["default"], list):
            value = named(value) or ("",)
        for one in value if isinstance(value, tuple) else (value,):
            if "choices" in entry and one not in entry["choices"]:
                known = ", ".join(entry["choices"])
                raise TraceError(f"{name} is {one!r}; choose among {known}")
            if "least" in entry and not entry["least"] <= one <= entry["most"]:
                raise TraceError(
                    f"{name} is {one!r}; give a number from {entry['least']:g} to {entry['most']:g}"
                )
        found[name] = value
    return found


@cache
def reader(name: str) -> type[Tabular]:
    """The reader of the trace that ``NAME.toml`` of this folder, or another file, describes."""
    form = declared(name)
    parameters = [inspect.Parameter("path", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for option in (*form.mapping.get("options", {}), "strict"):
        parameters.append(inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None))
    own: dict[str, Any] = {
        "FORMAT": form,
        "__signature__": inspect.Signature(parameters),
        "__doc__": f"Reader of {form.title}; see :class:`Tabular`.",
    }
    return type(form.name, (Tabular,), own)


def __getattr__(name: str) -> Any:
    """The reader of a registered name, as ``module:attribute`` asks for it."""
    if (FORMATS / f"{name}.toml").is_file():
        module, _, attribute = declared(name).mapping.get("reader", "").partition(":")
        return getattr(import_module(module), attribute) if module else reader(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What every trace format is read into, and what a reader of a format offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gangwise.traces.fidelity import UNITS, Fidelity, Stage
from gangwise.traces.formats import Format, files_of, recognise
from gangwise.traces.load import of_tables
from gangwise.traces.source import Source

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Tables:
    """Servers and jobs of a trace, in one shape whatever the format.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    servers : polars.DataFrame
        ``row`` (line of the file), ``name``, ``model`` (of its GPUs; empty when it has none),
        ``cpu``, ``mem`` and ``gpu``, in the units below. No rows when the files do not say.
    jobs : polars.DataFrame
        A row per request: what a job asks for equal tasks.

        - ``row``, ``name``
        - ``cpu``, ``mem``, ``gpu`` (fractions allowed): of each task
        - ``tasks``: how many; 1 when absent
        - ``models``: sorted GPU models it may use, joined by ``|``; empty for any
        - ``created``, ``deleted``: seconds since the start of the trace
        - ``job``: the job it is a part of; absent when every row is a job
        - ``after``: names of the rows of its job that must end first, joined by ``|``; absent when
          the format has no such thing
        - ``started`` (seconds, null when it never ran), ``status``, ``user``: where the format has
          them
    stages : tuple of Stage
        The files read, and what was left out of each.
    digests : mapping of str to str
        SHA-256 of each file.
    notes : tuple of str
        What a reader of a result must know.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``; cores, GiB and GPUs unless the publisher rescaled them.
    events : polars.DataFrame or None
        Servers that come and go: ``time`` (seconds), ``server`` (its name), ``up``; None when the
        format does not say.
    """

    trace: str
    servers: pl.DataFrame
    jobs: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))
    events: pl.DataFrame | None = None


def server_table(rows: Iterable[tuple[Any, ...]] = ()) -> pl.DataFrame:
    """:attr:`Tables.servers` from tuples in the order of its columns; of no servers by default."""
    import polars as pl

    text, number = pl.String, pl.Float64
    columns = {
        "row": pl.Int64,
        "name": text,
        "model": text,
        "cpu": number,
        "mem": number,
        "gpu": number,
    }
    return pl.DataFrame(list(rows), schema=columns, orient="row")


class Trace(Protocol):
    """A reader of one trace format; its constructor takes a directory or a file first."""

    @staticmethod
    def recognise(path: Path | str) -> bool:
        """Whether a file, or a file of a directory, has this format, by its first bytes."""

    def scan(self) -> Tables:
        """Read the files."""

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and what the trace asks of its cluster."""


def name_of(trace: Trace | Tables) -> str:
    """Registered name of the format."""
    if isinstance(trace, Tables):
        return trace.trace
    form: Format | None = getattr(trace, "FORMAT", None)
    return form.name if form is not None else trace.fidelity().trace


class Reader(ABC):
    """What readers have in common: a format, whose files are found and read once.

    Parameters
    ----------
    path : path
        A directory with the files of the trace, or one of them.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.
    """

    FORMAT: ClassVar[Format]

    def __init__(self, path: Path | str, *, strict: bool = False):
        self.source = Source(path, self.FORMAT, strict=strict)

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        """Whether a file, or a file of a directory, has this format, by its first lines."""
        return any(recognise(file, [cls.FORMAT]) for file in files_of(Path(path)))

    @cached_property
    def tables(self) -> Tables:
        """Servers and jobs, read once."""
        return self._read()

    def scan(self) -> Tables:
        """Servers and jobs, read once."""
        return self.tables

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and what the trace asks of its cluster."""
        return of_tables(self.tables)

    @abstractmethod
    def _read(self) -> Tables: ...

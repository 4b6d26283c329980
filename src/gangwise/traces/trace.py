"""What every trace format is read into, and what a reader of a format offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gangwise.traces.fidelity import Fidelity, Stage

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Tables", "Trace"]


@dataclass(frozen=True)
class Tables:
    """Servers and jobs of a trace, in one shape whatever the format.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    servers : polars.DataFrame
        ``row`` (line of the file), ``name``, ``model`` (of its GPUs; empty when it has none),
        ``cpu`` (cores), ``mem`` (GiB), ``gpu`` (GPUs).
    jobs : polars.DataFrame
        ``row``, ``name``, ``cpu`` (cores), ``mem`` (GiB), ``gpu`` (GPUs, fractions allowed),
        ``models`` (sorted GPU models it may use, joined by ``|``; empty for any), ``created`` and
        ``deleted`` (seconds since the start of the trace).
    stages : tuple of Stage
        The files read, and what was left out of each.
    digests : mapping of str to str
        SHA-256 of each file.
    notes : tuple of str
        What a reader of a result must know.
    """

    trace: str
    servers: pl.DataFrame
    jobs: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Trace(Protocol):
    """A reader of one trace format; its constructor takes a directory or a file first."""

    @staticmethod
    def recognise(path: Path | str) -> bool:
        """Whether a file, or a file of a directory, has this format, by its first bytes."""

    def scan(self) -> Tables:
        """Read the files."""

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and what the trace asks of its cluster."""

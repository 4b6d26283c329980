"""What an inspection of a path finds: traces, tables, rows, and files that are nothing known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gangwise.traces.fidelity import Fidelity, reason_lines, reasons_plain


@dataclass(frozen=True)
class FoundFile:
    """A file of a table.

    Attributes
    ----------
    name : str
        Below the path that was inspected.
    table : str
    stored : int
        Bytes, as they are stored.
    share : float
        Of these bytes, how much was read: 1 for all of them.
    read, kept : int or None
        Rows; None where the reader of the whole trace counts them (``fidelity``).
    dropped : mapping of str to (int, int)
        Reason to (rows left out, the first of them).
    sha256 : str
        Of the file as it is stored; empty unless all of it was read.
    as_published : bool or None
        Whether that is the digest that the publisher gives; None when none is given.
    unlike : tuple of str
        Tables of other traces that it could be mistaken for, and what speaks against each.
    problem : str
        Why it could not be read; else empty.
    """

    name: str
    table: str
    stored: int
    share: float
    read: int | None
    kept: int | None
    dropped: Mapping[str, tuple[int, int]]
    sha256: str = ""
    as_published: bool | None = None
    unlike: tuple[str, ...] = ()
    problem: str = ""

    def lines(self) -> list[str]:
        """What a report says of it."""
        said = f"  {self.name}: {self.table}, {_size(self.stored)}"
        if self.share < 1:
            said += f", of which {_percent(self.share)} was read"
        if self.read is not None:
            said += f"; {self.read:,} rows read, {self.kept:,} kept"
        found = [said, *reason_lines(self.dropped)]
        found += [f"    not {other}" for other in self.unlike]
        if self.as_published is not None:
            found.append(
                "    its SHA-256 is the published one"
                if self.as_published
                else "    its SHA-256 is NOT the published one: download it again, or it was "
                "packed anew"
            )
        return [*found, f"    cannot be read: {self.problem}"] if self.problem else found


@dataclass(frozen=True)
class MissingTable:
    """A table of a trace that is not there, and what is not known for want of it."""

    name: str
    needed: bool
    gives: str


@dataclass(frozen=True)
class FoundTrace:
    """A trace, or some tables of one.

    Attributes
    ----------
    name : str
        Registered name of the format.
    title, published, licence : str
        The last two are empty where there are no published files.
    files : tuple of FoundFile
    missing : tuple of MissingTable
    fidelity : Fidelity or None
        What a reader makes of the files; None when it was not asked, or cannot.
    problem : str
        Why there is no ``fidelity``; else empty.
    """

    name: str
    title: str
    published: str
    licence: str
    files: tuple[FoundFile, ...]
    missing: tuple[MissingTable, ...]
    fidelity: Fidelity | None = None
    problem: str = ""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.title}"]
        if self.published:
            lines.append(f"  published: {self.published}; {self.licence}")
        for file in self.files:
            lines += file.lines()
        for table in self.missing:
            what = "not here, and needed" if table.needed else "not here"
            lines.append(f"  {table.name}: {what}" + f" (gives {table.gives})" * bool(table.gives))
        if self.fidelity is not None:
            lines += ["as it is read:", *(f"  {line}" for line in str(self.fidelity).split("\n"))]
        else:
            lines.append(f"not read as a trace: {self.problem}")
        return "\n".join(lines)


@dataclass(frozen=True)
class UnknownFile:
    """A file that is no known table.

    Attributes
    ----------
    name : str
    starts : str
        Its first line, cut short; or what it is where it is no text.
    near : str
        The table that it has most of, and why it is none; else empty.
    """

    name: str
    starts: str
    near: str

    def __str__(self) -> str:
        return f"  {self.name}: {self.starts}" + f"\n    {self.near}" * bool(self.near)


@dataclass(frozen=True)
class Inspection:
    """What is at a path.

    Attributes
    ----------
    path : Path
    kind : str
        What the path is as a whole, such as ``a converted trace``; empty for files as published.
    everything : bool
        All rows were read, not a sample.
    traces : tuple of FoundTrace
    unknown : tuple of UnknownFile
    """

    path: Path
    kind: str
    everything: bool
    traces: tuple[FoundTrace, ...]
    unknown: tuple[UnknownFile, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        plain = asdict(self)
        plain["path"] = str(self.path)
        for trace, found in zip(plain["traces"], self.traces):
            trace["fidelity"] = None if found.fidelity is None else found.fidelity.to_dict()
            for file in trace["files"]:
                file["dropped"] = reasons_plain(file["dropped"])
        return plain

    def __str__(self) -> str:
        parts = [f"{self.path}: " + (self.kind or _what(self))]
        if not self.everything:
            parts.append("this is much to read: the start of each large file was; --all reads all")
        parts += [str(trace) for trace in self.traces]
        if self.unknown:
            parts.append("\n".join(["not recognised:", *map(str, self.unknown)]))
        return "\n\n".join(parts)


def _what(found: Inspection) -> str:
    files = sum(len(trace.files) for trace in found.traces)
    said = f"{files} {'file' if files == 1 else 'files'} recognised"
    names = ", ".join(trace.name for trace in found.traces)
    return f"{said} ({names})" if names else said


def _size(stored: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if stored >= size:
            return f"{stored / size:.3g} {unit}"
    return f"{stored} bytes"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"

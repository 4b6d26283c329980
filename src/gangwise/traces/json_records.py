"""Traces published as one JSON document: a list of records, and the account of each of them.

The document is read whole, so it must fit into memory. A record's row is its place in the list,
counted from 1: unlike a line of a CSV file, a record may span many lines or none of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangwise.core.errors import TraceError
from gangwise.traces.blocks import Blocks
from gangwise.traces.fidelity import Stage, reasons
from gangwise.traces.text import ENOUGH_FOR_A_HEADER, read_text


@dataclass(frozen=True)
class Records:
    """The records of a file, unchecked, and the SHA-256 of the file as it is stored."""

    file: Path
    digest: str
    records: list[Any]


def beginning(path: Path) -> str:
    """How the text of a file begins, however long its lines are; empty when unreadable."""
    try:
        data = Blocks(path).start(ENOUGH_FOR_A_HEADER)
    except TraceError:
        return ""
    return data.decode("utf-8-sig", errors="replace").lstrip()


def read_records(path: Path, key: str = "") -> Records:
    r"""The records of a JSON file, plain or gzipped.

    Parameters
    ----------
    path : path
    key : str
        The list is the value of this key of one object; empty: the list is the whole document.

    Raises
    ------
    TraceError
        When the file cannot be read, is cut short, or holds no such list; names the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.json")
    ...     size = file.write_text('{"jobs": [{"id": 1}, {"id": 2}]}')
    ...     read_records(file, "jobs").records
    [{'id': 1}, {'id': 2}]
    """
    text, digest = read_text(path)
    text = text.rstrip()
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"this is not JSON: {error.msg} at character {error.colno} of the line"
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            what = "the JSON is cut short; what is missing cannot be known, so get it again"
        raise TraceError(what, path, error.lineno) from error
    except RecursionError as error:
        raise TraceError("the JSON document is nested too deeply to be a trace", path) from error
    if key:
        if not isinstance(found, dict) or key not in found:
            raise TraceError(f"the JSON document has no key {key!r}", path)
        found = found[key]
    if not isinstance(found, list):
        where = f"under {key!r}" if key else "in the JSON document"
        raise TraceError(f"a list of records is needed {where}, not {type(found).__name__}", path)
    if not found:
        raise TraceError("the list of records is empty", path)
    return Records(path, digest, found)


@dataclass
class Account:
    """What became of each record or row.

    Parameters
    ----------
    file : Path
    strict : bool
        Raise at the first bad one.
    dropped : dict
        Reason to (how many, the first row).
    """

    file: Path
    strict: bool = False
    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)

    def refuse(self, row: int, reason: str, held: object = "") -> None:
        """Leave out a bad record, or raise with ``strict``."""
        if self.strict:
            shown = f" ({held!r:.80})" if held != "" else ""
            raise TraceError(
                f"{reason}{shown}; correct it, or read without strict to leave such out",
                self.file,
                row,
            )
        self.leave_out(row, reason)

    def leave_out(self, row: int, reason: str) -> None:
        """Leave out a record that is as published, but cannot be used."""
        count, first = self.dropped.get(reason, (0, row))
        self.dropped[reason] = (count + 1, min(first, row))

    def stage(self, name: str, read: int) -> Stage:
        """The account as a stage of the fidelity report."""
        kept = read - sum(count for count, _ in self.dropped.values())
        return Stage(name, read, kept, dict(self.dropped))

    def require(self, kept: int, what: str) -> None:
        """Raise when nothing is left."""
        if not kept:
            raise TraceError(f"no {what} can be used: {reasons(self.dropped)}", self.file)

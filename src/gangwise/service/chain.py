"""Lines in a chain: each carries its own digest and names the one before it.

A line that was changed does not fit its digest; one that was lost, added or moved does not fit its
neighbours. A chain may begin with an *anchor*, which stands for the lines before it that were
dropped as too old.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.core.files import write_whole

FAULTS = (sqlite3.Error, ValueError, OverflowError, MemoryError)
"""What reading a damaged file of SQLite's raises: its messages, too, may be no UTF-8."""
START = "0" * 32  # what the first line of all comes after


@contextmanager
def as_store_error(path: Path) -> Iterator[None]:
    """Raise a StoreError that names the file, whatever fails in reading or writing it."""
    try:
        yield
    except StoreError:
        raise
    except (OSError, LookupError, TypeError, *FAULTS) as error:
        raise StoreError(f"{path}: {error}") from error


@dataclass(frozen=True)
class Line:
    """A link of the chain, as it stands in a file: digest, number, ``after``, body."""

    number: int  # one more than that of the line before
    after: str  # digest of the line before
    body: str  # JSON

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.number} {self.after} {self.body}".encode()).hexdigest()[:32]

    @cached_property
    def link(self) -> str:
        """What the next line comes after: an anchor stands for the last line that was dropped."""
        anchor = self.anchor
        return str(anchor["after"]) if anchor else self.digest

    @property
    def anchor(self) -> dict[str, Any] | None:
        if not self.body.startswith('{"anchor"'):
            return None
        found: dict[str, Any] = json.loads(self.body)["anchor"]
        return found

    def __str__(self) -> str:
        return f"{self.digest} {self.number} {self.after} {self.body}"

    @classmethod
    def of(cls, text: object) -> Line | None:
        """The line in a text; None where it is not as it was written."""
        words = text.split(" ", 3) if isinstance(text, str) else []
        if len(words) != 4 or not (words[1].isascii() and words[1].isdigit()):
            return None
        line = cls(int(words[1][:18]), words[2], words[3])
        return line if str(line) == text else None


class ChainFile:
    """A file of lines that only grows; a line is on the disk when ``append`` returns."""

    def __init__(self, path: Path):
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = self._was = os.fstat(self._file).st_size

    def append(self, line: Line) -> None:
        """Write after the last line that counts; what a failure left there is written over."""
        data = memoryview(f"{line}\n".encode())
        os.ftruncate(self._file, self._end)
        at = self._end
        while data:
            written = os.pwrite(self._file, data, at)
            at, data = at + written, data[written:]
        os.fdatasync(self._file)
        self._was, self._end = self._end, at

    def take_back(self) -> None:
        """The last line does not count: what it describes was not done."""
        self._end = self._was
        with suppress(OSError):  # else the next line is written over it
            os.ftruncate(self._file, self._end)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_file(path: Path) -> list[Line | None]:
    """Lines of a file, without one that was cut off while it was written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    return [Line.of(text) for text in data.decode(errors="replace").split("\n")[:-1]]


def write_file(path: Path, lines: Iterable[object]) -> None:
    write_whole(path, "".join(f"{line}\n" for line in lines), 0o600)


def merged(*copies: Iterable[Line | None]) -> tuple[list[Line], list[tuple[int, int]]]:
    """One chain out of damaged copies, and the numbers (first, last) of lines that none has.

    >>> first = Line(1, START, "{}")
    >>> second = Line(2, first.link, "{}")
    >>> third = Line(3, second.link, "{}")
    >>> merged([first, None, third], [first, second]) == ([first, second, third], [])
    True
    >>> merged([first, None, third], [first])[1]
    [(2, 2)]
    """
    there: dict[int, list[Line]] = {}
    for copy in copies:
        for line in copy:
            if line is not None and line not in there.setdefault(line.number, []):
                there[line.number].append(line)
    if not there:
        return [], []
    anchors = [n for n, lines in there.items() if any(line.anchor for line in lines)]
    number = max(anchors, default=1)
    chain: list[Line] = []
    lost: list[tuple[int, int]] = []
    for at in sorted(n for n in there if n >= number):
        if at > number:
            lost.append((number, at - 1))
        after = chain[-1].link if chain else START
        lines = sorted(there[at], key=lambda one: (one.anchor is None, one.after != after))
        chain.append(lines[0])
        number = at + 1
    return chain, lost

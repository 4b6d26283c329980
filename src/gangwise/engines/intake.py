"""Checks at the boundary: what clusters, users and ranks wrote is data, and some of it is hostile.

Nodes, jobs, rows and events check themselves as they are made (:mod:`gangwise.engines.engine`), by
the functions here, whichever engine makes them; so does a job that is read back from the journal.
An engine reads each row on its own: one that cannot be read is *quarantined*, which means left
alone and named, and the others count. Files that users write are opened by :func:`read_file`.
"""

import errno
import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gangwise.core.errors import EngineError, Rejected

NAME = 600  # characters of a name
LONGEST_TEXT = 1000  # characters of what a cluster says; the rest is cut
ENTRIES = 10_000  # labels or device types of a node, or of a job's constraint
TASKS = 1_000_000  # ranks of a job
AMOUNT = 10**12  # thousandths of a device; times TASKS it is below 2⁶³
LATEST = 1e11  # seconds since 1970, in the year 5138; longer than any limit
KEPT = 1000  # names that are kept of each kind; all are counted

T = TypeVar("T")
Row = TypeVar("Row")


class Malformed(EngineError):  # noqa: N818 - what the row is
    """A row makes no sense; the message says which field of it."""


# Values


def name(value: Any, what: str, empty: bool = False) -> str:
    """A name: text that can be written as UTF-8, of bounded length, without NUL."""
    if not isinstance(value, str):
        raise Malformed(f"{what} is {quoted(value)}, not text")
    if not value and not empty:
        raise Malformed(f"{what} is empty")
    if len(value) > NAME:
        raise Malformed(f"{what} has {len(value)} characters; at most {NAME}")
    # JSON can hold lone surrogates, which no UTF-8 text has.
    if "\0" in value or (not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value)):
        raise Malformed(f"{what} is {quoted(value)}, which is not UTF-8 text")
    return value


def whole(value: Any, what: str, least: int = 0, most: int = TASKS) -> int:
    # True is an int in Python, and no count.
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{what} is {quoted(value)}, not a whole number")
    if not least <= value <= most:
        raise Malformed(f"{what} is {quoted(value)}; give {least} to {most}")
    return value


def number(
    value: Any, what: str, least: float = 0.0, most: float = LATEST, also: tuple[float, ...] = ()
) -> float:
    """A number within bounds, or one of ``also`` (inf, NaN), which mean that there is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Malformed(f"{what} is {quoted(value)}, not a number")
    # NaN is equal to nothing, itself included.
    if not least <= value <= most and not any(
        value == special or (value != value and special != special) for special in also
    ):
        raise Malformed(f"{what} is {quoted(value)}; give {least:g} to {most:g}")
    return value


def table(value: Any, what: str, check: Callable[[Any, str], Any]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Malformed(f"{what} is {quoted(value)}, not a table")
    if len(value) > ENTRIES:
        raise Malformed(f"{what} has {len(value)} entries; at most {ENTRIES}")
    for key, entry in value.items():
        check(entry, f"{what} {name(key, f'a name in {what}')}")
    return value


def amount(value: Any, what: str) -> int:
    return whole(value, what, 0, AMOUNT)


def thousandths(value: Any, what: str) -> int:
    """A number of devices in thousandths; more than none is at least one thousandth."""
    exact = number(value, what, 0.0, AMOUNT / 1000) * 1000
    rounded = round(exact)
    if exact > 0 and rounded < 1:
        raise Malformed(f"{what} is {quoted(value)}; give at least a thousandth")
    return rounded


def quoted(value: Any) -> str:
    """Quote what others wrote, in a message: short, and text whatever it is."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception as error:  # huge whole numbers, for one, have no text
        text = f"a {type(value).__name__} ({type(error).__name__})"
    short = text if len(text) <= 60 else text[:57] + "..."
    return ascii(short) if isinstance(value, str) else short


def clean_text(value: Any) -> str:
    """Text of a cluster for people, cut to size; bytes that are no text become question marks."""
    text = value if isinstance(value, str) else quoted(value)
    return text[:LONGEST_TEXT].encode(errors="replace").decode()


# Files


class Written(NamedTuple):
    content: bytes
    owner: int


def read_file(path: Path | str, most: int) -> Written | None:
    """A regular file of bounded size, without waiting for anybody; None where it is not there.

    A user may put there a FIFO without a writer, a link to a device, a folder, or any size;
    they raise Malformed.
    """
    # Without O_NONBLOCK opening a FIFO would wait for a writer who never comes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _STRANGE:
            raise Malformed(f"{os.path.basename(path)} is a link, or not a file") from None
        raise
    try:
        # The open file is judged and not its name, which may lead elsewhere by now.
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise Malformed(f"{os.path.basename(path)} is not a regular file")
        if about.st_size > most:
            raise Malformed(f"{os.path.basename(path)} has {about.st_size} bytes; at most {most}")
        return Written(os.read(handle, most), about.st_uid)
    finally:
        os.close(handle)


def read_json(path: Path | str, most: int) -> Any:
    """The JSON of a file, read by :func:`read_file`; None where it is missing or empty.

    It is empty where the owner of a lock was killed before it wrote its name.
    """
    file = read_file(path, most)
    if file is None or not file.content:
        return None
    try:
        return json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{os.path.basename(path)} is not JSON: {clean_text(str(error))}") from None


# Of a link with O_NOFOLLOW (ELOOP, on BSD EMLINK), a socket (ENXIO), and a folder.
_STRANGE = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)


# Quarantine


class Quarantine:
    """Records that cannot be read, by kind (``job``, ``node``, …) and name, and why."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()  # how many of each kind ever came in
        self._why: dict[str, dict[str, str]] = {}
        self._lock = threading.Lock()

    def put(self, kind: str, name: Any, why: BaseException | str) -> None:
        if isinstance(why, BaseException) and not isinstance(why, EngineError):
            why = f"{type(why).__name__}: {why}"
        with self._lock:
            reasons = self._why.setdefault(kind, {})
            name = clean_text(name)[:NAME]
            self.total[kind] += name not in reasons
            # Bounded, since whoever writes rows could fill the memory with names.
            if len(reasons) < KEPT or name in reasons:
                reasons[name] = clean_text(str(why))

    def clear(self, kind: str, name: str) -> None:
        with self._lock:
            self._why.get(kind, {}).pop(clean_text(name)[:NAME], None)

    def read(
        self, kind: str, name: str, do: Callable[[], T], passes: tuple[type[Exception], ...] = ()
    ) -> T | None:
        """The result of ``do``; None where it fails, and then its error is kept here.

        ``passes`` are errors that say that the cluster does not answer.
        """
        try:
            result = do()
        except Exception as error:
            # A cluster that does not answer says nothing about the row.
            if isinstance(error, passes) and not isinstance(error, Malformed | Rejected):
                raise
            self.put(kind, name, error)
            return None
        self.clear(kind, name)
        return result

    def read_all(
        self,
        kind: str,
        rows: Iterable[Row],
        read: Callable[[Row], T | None],
        name_of: Callable[[Row], Any],
        before: Mapping[str, T] | None = None,
    ) -> list[T]:
        """Read all rows of a kind; those that cannot be read are kept here, with the reason.

        Of one that could be read ``before``, what it was then stands. Raises EngineError when the
        cluster does not answer meanwhile.
        """
        results, bad = [], Quarantine()
        for place, row in enumerate(rows):
            try:
                if (result := read(row)) is not None:
                    results.append(result)
            except Exception as error:
                if isinstance(error, EngineError) and not isinstance(error, Malformed | Rejected):
                    raise
                try:
                    label = clean_text(name_of(row))
                except Exception:
                    label = ""
                bad.put(kind, label or f"row {place + 1}", error)
                if before and label in before:
                    results.append(before[label])
        with self._lock:
            # A whole list replaces what was kept of its kind: rows that can be read again are out.
            old_reasons, reasons = self._why.get(kind, {}), bad._why.get(kind, {})
            self.total[kind] += len(reasons.keys() - old_reasons.keys())
            self._why[kind] = reasons
        return results

    def rows(self) -> list[dict[str, str]]:
        with self._lock:
            return [
                {"kind": kind, "name": name, "why": f"left alone: unreadable, because {reason}"}
                for kind, rows in self._why.items()
                for name, reason in rows.items()
            ]


def distinct(rows: Iterable[T], key: Callable[[T], str], left: Quarantine, kind: str) -> list[T]:
    """One row for each name; where rows of one name differ, none of them is taken."""
    by_name: dict[str, T] = {}
    twice = set()
    for row in rows:
        # The same row twice is one row: only a contradiction makes both of them doubtful.
        if by_name.setdefault(key(row), row) != row:
            twice.add(key(row))
    for name in twice:
        del by_name[name]
        left.put(kind, name, "it is listed more than once")
    return list(by_name.values())

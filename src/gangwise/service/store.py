"""What the service writes down before it acts, in one file of SQLite's, and whether it is sound.

Each commit is a row of the table ``commits``, whose line carries its own digest and the digest of
the line before, and is on the disk before anything is acted upon or promised. The other tables
follow from the lines, so that they can be made again. Tables::

    commits   number, last, time, line   all that reached the scheduler, in order: the last record
                                         up to a line, and its time
    intents   job, attempt, kind, state  what was decided: intended → accepted → started → ended,
                                         or rejected, or undone
    history   one row for each job that ended
    known     names of the jobs that wait or run
    requests  id, what, value, state     what operators ask for: accepted → done, or refused
    views     name → JSON                what the service shows; made anew, and not in the chain

An intent is committed as ``intended`` before it is sent to the cluster. Operators' requests are
written by the process of the API, and answered in the commit that has their effect. The file
``head`` repeats the seal of the last line: it waits for no disk, and shows after a kill whether
SQLite has all that was committed, for SQLite itself drops the end of a damaged write-ahead log
without a word.

:class:`Report` checks that a folder is as it was written. All in the file but the views follows
from the chain: it is worked out again and compared. Nothing is trusted from a row on that is
damaged or missing. Views carry seals of their own, checkpoints are signed, and where one is damaged
an earlier one and the journal since serve. What is lost, the cluster's table fills in when the
service starts: which jobs wait and run, though not which have ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gangwise.core import files, simulation
from gangwise.core.errors import StoreError
from gangwise.core.files import Tree, sealed_line, unsealed
from gangwise.service.ledger import Ended, Intent, Record

# Lines in a chain: each carries its own digest and names the one before it. A line that was changed
# does not fit its digest; one that was lost, added or moved does not fit its neighbours. A chain
# may begin with an *anchor*, which stands for the lines before it that were dropped as too old.

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
class ChainLine:
    """A link of the chain, as it stands in a file: digest, number, ``after``, body."""

    number: int  # one more than that of the line before
    after: str  # digest of the line before
    body: str  # JSON

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.number} {self.after} {self.body}".encode()).hexdigest()[:32]

    @cached_property
    def link(self) -> str:
        """Link of the next line: an anchor stands for the last line that was dropped."""
        anchor = self.anchor
        return str(anchor["after"]) if anchor else self.digest

    @property
    def anchor(self) -> dict[str, Any] | None:
        if not self.body.startswith('{"anchor"'):
            return None
        anchor: dict[str, Any] = json.loads(self.body)["anchor"]
        return anchor

    @property
    def begins(self) -> bool:
        """Whether a chain may begin with it."""
        return self.anchor is not None or (self.number, self.after) == (1, START)

    def follows(self, line: ChainLine) -> bool:
        return (self.number, self.after) == (line.number + 1, line.link)

    def __str__(self) -> str:
        return f"{self.digest} {self.number} {self.after} {self.body}"

    @classmethod
    def of(cls, text: object) -> ChainLine | None:
        """The line in a text; None where it is not as it was written."""
        words = text.split(" ", 3) if isinstance(text, str) else []
        if len(words) != 4 or not (words[1].isascii() and words[1].isdigit()):
            return None
        # No number of ours has more digits; the comparison refuses what was cut.
        line = cls(int(words[1][:18]), words[2], words[3])
        return line if str(line) == text else None


def unbroken(rows: Iterable[tuple[int, object]]) -> tuple[list[ChainLine], str]:
    """Lines up to the first that is damaged or does not follow the one before; what is wrong there.

    >>> first = ChainLine(1, START, "{}")
    >>> second = ChainLine(2, first.link, "{}")
    >>> third = ChainLine(3, second.link, "{}")
    >>> unbroken((line.number, str(line)) for line in (first, second)) == ([first, second], "")
    True
    >>> unbroken((line.number, str(line)) for line in (first, third))[1]
    'commit 2 is damaged or missing'
    """
    chain: list[ChainLine] = []
    try:
        for number, text in rows:
            line = ChainLine.of(text)
            if chain:
                number = chain[-1].number + 1
            if line is None or not (line.follows(chain[-1]) if chain else line.begins):
                return chain, f"commit {number} is damaged or missing"
            chain.append(line)
    except FAULTS as error:
        return chain, str(error) or type(error).__name__
    return chain, ""


# The folder

OWN = re.compile(
    r"(service|wishes)\.sqlite(\.new)?(-wal|-shm|-journal)?|journal\.log|head|lock|heartbeat"
    r"|ledger\.checkpoint(\.1)?"
)
"""Files of a service. SQLite opens some by their names, and follows links."""


def check_files(folder: Path | str) -> None:
    """Raise StoreError where a file of a service's folder is a link, or not a regular file."""
    tree = Tree(folder)
    with as_store_error(tree.path):
        for name in tree.names():
            if OWN.fullmatch(name):
                tree.check(name)


def own_folder(folder: Path) -> list[str]:
    """Make the folder of a service, or see that only its owner may write into it; what was done.

    Raises StoreError where that cannot be mended.
    """
    with as_store_error(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        about = folder.stat()
        mode = stat.S_IMODE(about.st_mode)
        # A user who may write into the folder could make a chain that fits, so others may not.
        if not mode & stat.S_IWOTH:
            return []
        foreign = sorted(
            name.name for name in folder.iterdir() if name.lstat().st_uid != about.st_uid
        )
        if about.st_uid != os.getuid() or foreign:
            whose = f"holds {foreign[0]} of another user" if foreign else "is another user's"
            raise StoreError(
                f"{folder} can be written by everybody (mode {mode:04o}) and {whose}: name a "
                "folder of your own with --state, such as one below it"
            )
        folder.chmod(mode & ~(stat.S_IWGRP | stat.S_IWOTH))
        return [f"{folder} could be written by everybody (mode {mode:04o}); now by its owner alone"]


# The file


class Database(sqlite3.Connection):
    """A file of SQLite's that raises where it can no longer be written, as after a fault of a disk.

    SQLite maps ``-shm`` into memory, reading too, and the kernel ends a process (SIGBUS) that
    writes into a mapped file which has become read-only.
    """

    shared: str | None = None  # name of ``-shm``, where it may be written

    @classmethod
    def of(cls, path: Path, uri: str = "") -> Database:
        name, timeout = uri or str(path), BUSY
        how: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
        db = sqlite3.connect(name, timeout, uri=bool(uri), factory=cls, **how)
        if os.access(path, os.W_OK):
            db.shared = f"{path}-shm"
        return db

    def execute(self, *given: Any) -> sqlite3.Cursor:
        if self.shared and os.path.exists(self.shared) and not os.access(self.shared, os.W_OK):
            raise sqlite3.OperationalError("it can no longer be written: a read-only disk?")
        return super().execute(*given)


SCHEMA = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
FILE = "service.sqlite"
HEAD = "head"
VERSION = "3"
BUSY = 1.0  # seconds that a commit waits for another process that holds the file
ROWS = 1_000_000  # rows of a table that one commit may add: they are numbered by it
OPEN_REQUESTS = 1000  # so many may wait for their answer

What = Literal["cancel", "pause", "every"]


class OperatorRequest(NamedTuple):
    """Request of an operator; times are in seconds since 1970."""

    id: int
    what: str
    value: Any
    state: str  # "accepted": on the disk and not yet done; then "done" or "refused"
    asked: float  # when it was accepted
    told: float | None  # when it was answered
    detail: str  # why it was refused


class ServiceStore:
    """The service's file, ``read_only`` for looking while a service writes.

    Raises StoreError when it cannot be opened or is of another version, and from every method when
    the file is locked, the disk is full, or it fails otherwise.
    """

    def __init__(self, path: Path | str, read_only: bool = False):
        self.path = Path(path)
        self._head = -1
        self._durable: bool | None = None
        if read_only and not self.path.exists():
            raise StoreError(
                f"{self.path} is not there: no service has run in this folder; start one with "
                "gangwise serve, or name its folder with --state"
            )
        with as_store_error(self.path):
            if str(path) == ":memory:":
                uri = "file::memory:"
            else:
                check_files(self.path.parent)
                if not read_only:
                    # Made with its mode before SQLite opens it, which would make it by the umask.
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                uri = f"{self.path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
                self._opened = os.stat(self.path)
            self._db = Database.of(self.path, uri)
            if not read_only:
                # Readers go on while a commit is written, and a commit waits for none of them.
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.executescript(SCHEMA)
                self._db.execute("INSERT OR IGNORE INTO about VALUES('version', ?)", (VERSION,))
            version = self.about("version")
            if version == VERSION:
                self._read_end()
                if not read_only and uri != "file::memory:":
                    flags = os.O_RDWR | os.O_CREAT
                    self._head = Tree(self.path.parent).open(HEAD, flags, 0o600)
        if version != VERSION:
            self._db.close()
            advice = "gangwise serve takes it over" if version == "2" else "move it away"
            raise StoreError(f"{self.path} is of version {version}, not {VERSION}; {advice}")

    def _read_end(self) -> None:
        """Number, digest, last record and time of the last commit."""
        self._end = (0, START, 0, 0.0)
        row = self._db.execute(
            "SELECT number, line, last, time FROM commits ORDER BY number DESC LIMIT 1"
        ).fetchone()
        if row is not None:
            if (line := ChainLine.of(row[1])) is None:
                raise StoreError(f"{self.path}: the last commit is damaged; gangwise verify")
            self._end = (line.number, line.link, row[2], row[3])

    def in_place(self) -> bool:
        """Whether the file is the one that was opened, and was not emptied since."""
        try:
            about = os.stat(self.path)
            return os.path.samestat(about, self._opened) and about.st_size > 0
        except OSError:
            return False

    def close(self) -> None:
        self._db.close()
        if self._head >= 0:
            os.close(self._head)
            self._head = -1

    def about(self, name: str) -> str | None:
        """A setting that the service wrote down, or the version of the file."""
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def commit(
        self,
        records: Sequence[tuple[int, Record]] = (),
        intents: Iterable[tuple[float, Intent]] = (),
        states: Iterable[tuple[str, float, str, str, int, str]] = (),
        ended: Iterable[Ended] = (),
        views: Iterable[tuple[str, Any]] = (),
        about: Iterable[tuple[str, str]] = (),
        know: Iterable[str] | None = None,
        requests: Iterable[OperatorRequest] = (),
        answers: Iterable[tuple[int, str, str]] = (),
    ) -> None:
        """Write all of this or nothing; but for views, it is on the disk afterwards.

        ``states`` are (state, time, kind, job, attempt, detail): an intent comes to a state.
        ``know`` are the jobs that wait or run, from now on. ``answers`` are (request, state,
        detail).
        """
        with as_store_error(self.path):
            parts = {
                "records": [[seq, r[1], r[0], list(r[2:])] for seq, r in records],
                "intents": [[i.job, i.attempt, i.kind, i.placed, i.by, at] for at, i in intents],
                "states": list(states),
                "ended": [_history(e) for e in ended],
                "about": list(about),
                "requests": list(requests),
                "answers": [[state, time.time(), text, n] for n, state, text in answers],
            }
            body: dict[str, Any] = {name: part for name, part in parts.items() if part}
            # An empty list of known jobs is news: none waits or runs any more.
            if know is not None:
                body["know"] = list(know)
            shown = [(n, sealed_line({"name": n, "view": view}).decode()) for n, view in views]
            with self._transaction(durable=bool(body)):
                if body:
                    self._append(body)
                self._db.executemany("INSERT OR REPLACE INTO views VALUES(?, ?)", shown)

    @contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[None]:
        """One transaction, on the disk at its end where ``durable``."""
        with as_store_error(self.path):
            # Views need not outlive a loss of power, and so wait for no disk.
            if durable is not self._durable:
                self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            # The lock for writing at once: two processes that read first and then write would each
            # wait for the other.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                (newest,) = self._db.execute("SELECT MAX(number) FROM commits").fetchone()
                if newest != self._end[0]:  # another process has written since, or it was undone
                    self._read_end()
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.rollback()
        if self._head >= 0 and durable:
            seal = sealed_line({"number": self._end[0], "link": self._end[1]})
            with suppress(OSError):  # an older one accuses nobody
                os.pwrite(self._head, b"%-99b\n" % seal, 0)

    def _append(self, body: dict[str, Any]) -> None:
        self._take_in(ChainLine(self._end[0] + 1, self._end[1], json.dumps(body)))

    def ask(self, what: What, value: Any) -> int:
        """Write an operator's request to the disk and return its number."""
        with self._transaction():
            (waiting, newest) = self._db.execute(
                "SELECT TOTAL(state = 'accepted'), COALESCE(MAX(id), 0) FROM requests"
            ).fetchone()
            if waiting >= OPEN_REQUESTS:
                raise StoreError(
                    f"{OPEN_REQUESTS} requests wait for their answer; does the service run?"
                )
            number = int(newest) + 1
            request = OperatorRequest(number, what, value, "accepted", time.time(), None, "")
            self._append({"requests": [request]})
        return number

    def requests(self, where: str, *values: Any) -> list[OperatorRequest]:
        columns = ", ".join(OperatorRequest._fields)
        rows = self.rows(f"SELECT {columns} FROM requests WHERE {where} ORDER BY id", *values)
        return [OperatorRequest(**row) for row in rows]

    def _take_in(self, line: ChainLine) -> None:
        body = json.loads(line.body)
        _, _, last_record, time = self._end
        if (anchor := body.get("anchor")) is not None:
            last_record, time = anchor["last"], anchor["time"]
            self._db.executemany(f"INSERT INTO intents VALUES({_MARKS})", anchor["intents"])
            body["know"] = anchor["known"]
            body["about"] = [pair for pair in anchor["about"] if pair[0] != "version"]
            body["requests"] = anchor.get("requests", ())
        records = body.get("records", ())
        if records:
            last_record, time = records[-1][:2]
        self._db.execute(
            "INSERT INTO commits VALUES(?, ?, ?, ?)", (line.number, last_record, time, str(line))
        )
        self._db.executemany(
            "INSERT INTO intents(seq, job, attempt, kind, placed, by, state, decided) "
            "VALUES(?, ?, ?, ?, ?, ?, 'intended', ?)",
            (
                # An intent's number is that of its commit times ROWS, so that it is the same when
                # SQLite is made again from the lines.
                (line.number * ROWS + n, job, attempt, kind, json.dumps(placed), by, t)
                for n, (job, attempt, kind, placed, by, t) in enumerate(body.get("intents", ()))
            ),
        )
        # Only an intent that has not ended comes to another state.
        for state, at, kind, job, attempt, detail in body.get("states", ()):
            column = state if state in ("accepted", "started") else "ended"
            self._db.execute(
                f"UPDATE intents SET state = ?, {column} = ?, "
                "detail = CASE WHEN ? = '' THEN detail ELSE ? END "
                "WHERE job = ? AND attempt = ? AND kind = ? AND ended IS NULL",
                (state, at, detail, detail, job, attempt, kind),
            )
        ends = [(kind, args[0]) for _, _, kind, args in records if kind in ("ended", "again")]
        # A job may end and come back within one commit: only the latest of both counts.
        latest = {what if kind == "ended" else what["id"]: kind for kind, what in ends}
        resumed = [(job,) for job, kind in latest.items() if kind == "again"]
        ended = body.get("ended", ())
        self._db.executemany(
            f"INSERT OR REPLACE INTO history VALUES({_MARKS}, ?)",
            ((line.number * ROWS + n, *row) for n, row in enumerate(ended)),
        )
        if (know := body.get("know")) is not None:
            self._db.execute("DELETE FROM known")
            self._db.executemany("INSERT OR IGNORE INTO known VALUES(?)", ((k,) for k in know))
        submitted = [(r[3][0]["id"],) for r in records if r[2] == "job"]
        self._db.executemany("INSERT OR IGNORE INTO known VALUES(?)", submitted)
        self._db.executemany("DELETE FROM known WHERE job = ?", ((row[0],) for row in ended))
        self._db.executemany("DELETE FROM history WHERE job = ?", resumed)
        self._db.executemany("INSERT OR IGNORE INTO known VALUES(?)", resumed)
        self._db.executemany("INSERT OR REPLACE INTO about VALUES(?, ?)", body.get("about", ()))
        for number, what, value, *state in body.get("requests", ()):
            self._db.execute(
                "INSERT OR REPLACE INTO requests VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                (number, line.number, what, json.dumps(value), *state),
            )
        for answer in body.get("answers", ()):
            self._db.execute(
                "UPDATE requests SET line = ?, state = ?, told = ?, detail = ? WHERE id = ?",
                (line.number, *answer),
            )
        self._end = line.number, line.link, last_record, time

    def copy(self, lines: Iterable[ChainLine]) -> None:
        """Take in lines of another file, under their numbers."""
        with self._transaction():
            for line in lines:
                self._take_in(line)

    def last(self) -> int:
        return self._end[2]

    def records(
        self, after: int = 0, skip: Callable[[int, str], None] | None = None
    ) -> Iterator[tuple[int, Record]]:
        """Records of the journal after number ``after``, in order.

        ``skip`` is called with rows that are no records, and why; without it they are an error. So
        is a line that is not as it was written.
        """
        link, number = None, 0
        for text in self._lines(after):
            line = ChainLine.of(text)
            if line is None or link not in (None, line.after):
                place = f"after commit {number}" if number else "at its beginning"
                raise StoreError(
                    f"{self.path} is damaged {place}; gangwise verify {self.path.parent} --repair"
                )
            link, number = line.link, line.number
            for seq, at, kind, arguments in json.loads(line.body).get("records", ()):
                if seq <= after:
                    continue
                try:
                    record = (kind, at, *arguments)
                except TypeError as error:
                    if skip is None:
                        raise StoreError(f"{self.path}: record {seq}: {error}") from None
                    skip(seq, str(error))
                else:
                    yield seq, record

    def _lines(self, after: int) -> Iterator[object]:
        with as_store_error(self.path), closing(self._db.cursor()) as cursor:
            query = "SELECT line FROM commits WHERE last > ? ORDER BY number"
            yield from (line for (line,) in cursor.execute(query, (after,)))

    def knows(self, job: str) -> bool:
        return bool(self.rows("SELECT job FROM known WHERE job = ?", job))

    def forget(self, seq: int, before: float) -> None:
        """Drop commits up to record ``seq`` that are older than a time; an anchor stands for them.

        Intents that ended before, and jobs that ended in those commits, go with them.
        """
        with self._transaction():
            (cut,) = self._db.execute(
                "SELECT MAX(number) FROM commits WHERE last <= ? AND time < ?", (seq, before)
            ).fetchone()
            # The last line stays: the next one names it.
            if cut is not None and cut != self._end[0]:
                self._drop(cut, before)

    def _drop(self, cut: int, before: float) -> None:
        run = self._db.execute
        upto = (cut + 1) * ROWS
        last_record, time, text = run(
            "SELECT last, time, line FROM commits WHERE number = ?", (cut,)
        ).fetchone()
        if (line := ChainLine.of(text)) is None:
            raise StoreError(f"{self.path}: commit {cut} is damaged; gangwise verify")
        run("DELETE FROM intents WHERE seq < ? AND ended < ?", (upto, before))
        run("DELETE FROM history WHERE seq < ?", (upto,))
        run("DELETE FROM commits WHERE number <= ?", (cut,))
        # The newest stays, so that no number is given twice.
        answered = "line <= ? AND told IS NOT NULL AND id < (SELECT MAX(id) FROM requests)"
        run(f"DELETE FROM requests WHERE {answered}", (cut,))
        run("UPDATE requests SET line = ? WHERE line < ?", (cut, cut))
        anchor = {
            "after": line.link,
            "last": last_record,
            "time": time,
            "known": [name for (name,) in run("SELECT job FROM known ORDER BY rowid")],
            "intents": run("SELECT * FROM intents WHERE seq < ? ORDER BY seq", (upto,)).fetchall(),
            "about": run("SELECT * FROM about ORDER BY rowid").fetchall(),
            "requests": self.requests("1"),
        }
        body = json.dumps({"anchor": anchor})
        # The anchor has the number of the last line that it stands for, so that numbers go on
        # without a gap.
        row = (cut, last_record, time, str(ChainLine(cut, line.link, body)))
        run("INSERT INTO commits VALUES(?, ?, ?, ?)", row)

    def open_intents(self) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT job, attempt, kind, by, state, accepted FROM intents "
            "WHERE state IN ('intended', 'accepted', 'started') ORDER BY seq"
        )

    def view(self, name: str) -> Any:
        """A view; None where it was never written."""
        rows = self.rows("SELECT body AS sealed FROM views WHERE name = ?", name)
        if not rows:
            return None
        content = unsealed(str(rows[0]["sealed"]).encode(errors="replace"))
        if content is None or content["name"] != name:
            raise StoreError(f"{self.path}: the view of {name} is damaged; it is made anew")
        return content["view"]

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query as dictionaries; JSON columns are decoded."""
        try:
            cursor = self._db.execute(query, values)
            names = [c[0] for c in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            for row in rows:
                for column in ("placed", "body", "value"):
                    if column in row:
                        row[column] = json.loads(row[column])
        except json.JSONDecodeError as error:
            place = f"row {row.get('seq', '?')} of intents or history, {column}"
            raise StoreError(f"{self.path}: {place}: {error}") from error
        except (TypeError, *FAULTS) as error:
            raise StoreError(f"{self.path}: {error}") from error
        return rows


_MARKS = ", ".join("?" * 12)


def _history(e: Ended) -> tuple[Any, ...]:
    a = e.asked
    body = json.dumps({**asdict(a), "placed": e.placed, "attempt": e.attempt, "held": e.held})
    times = (a.submitted, e.first, e.started, e.ended)
    return (a.id, a.job_type, a.user, *times, a.tasks, e.outcome, e.by, e.rate, body)


def is_recording(path: Path | str) -> bool:
    """Whether a service has run in this folder."""
    return (Path(path) / FILE).is_file()


CHECKPOINTS = ("ledger.checkpoint", "ledger.checkpoint.1")  # the last, and the one before
TABLES = ("commits", "intents", "history", "known", "requests", "about", "sqlite_master")
NEW = f"{FILE}.new"  # made in full, and then renamed
JOURNAL, REQUESTS = "journal.log", "wishes.sqlite"
"""Files of version 2: a second copy of each commit, and operators' requests."""
HEADER = b"SQLite format 3\0" + bytes([16, 0, 2, 2, 0, 64, 32, 32])
"""How SQLite's file begins: pages of 4096 bytes, a write-ahead log."""


@dataclass
class Report:
    """Report on what is whole, damaged or lost in a service's folder."""

    folder: Path
    commits: int = 0  # that are whole
    damaged: list[str] = field(default_factory=list)  # files, and what is wrong with them
    lost: list[str] = field(default_factory=list)  # what can no longer be trusted
    _files: set[str] = field(default_factory=set)
    _chain: list[ChainLine] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.lost

    def wrong(self, file: str, what: object) -> None:
        self.damaged.append(f"{file}: {what}")
        self._files.add(file)


def is_state(folder: Path | str) -> bool:
    names = (FILE, HEAD, NEW, JOURNAL)
    return any((Path(folder) / name).exists() for name in names)


def examine(folder: Path | str) -> Report:
    """Look whether all is as it was written; raises StoreError when files cannot be read at all."""
    check_files(folder)
    report = Report(Path(folder))
    # The head before the file: a service that runs may commit between the two.
    head = _read_head(report)
    _check_file(report, head)
    for name in CHECKPOINTS:
        if (report.folder / name).exists():
            try:
                simulation.check_checkpoint(report.folder / name)
            except StoreError as error:
                report.wrong(name, error)
    return report


def _read_head(report: Report) -> dict[str, Any]:
    """Number and digest of the last commit, as they were noted beside the file."""
    path = report.folder / HEAD
    if not path.exists() or not (text := files.read_whole(path)):
        return {"number": 0}
    if (head := files.unsealed(text)) is None:
        report.wrong(HEAD, "it is not as it was written")
    return head or {"number": 0}


def _check_file(report: Report, head: dict[str, Any]) -> None:
    """The chain, up to its first damage or to where its head disagrees; then all other tables."""
    path = report.folder / FILE
    tables: dict[str, list[Any]] = {}
    newest, fault = 0, ""
    if not path.exists():
        report.wrong(FILE, "it is missing")
        path = report.folder / NEW  # a repair was killed
    else:
        with open(path, "rb") as raw:
            # A damaged header changes how SQLite reads the rest.
            if (start := raw.read(24)) and start != HEADER:
                report.wrong(FILE, "its header is not SQLite's")
    try:
        with _opened(path) as db:
            # One transaction for all tables: a service that runs may commit between two reads.
            db.execute("BEGIN")
            if (version := dict(_rows(db, "about")).get("version")) in ("1", "2"):
                advice = "gangwise serve takes it over" if version == "2" else "move it away"
                raise StoreError(f"{path} is of version {version}; {advice}")
            report._chain, fault = unbroken(_lines(db))
            (newest,) = db.execute("SELECT COALESCE(MAX(number), 0) FROM commits").fetchone()
            tables = {table: _rows(db, table) for table in (*TABLES, "views")}
            checks = [row[0] for row in db.execute("PRAGMA integrity_check")]
            fault = fault or str(checks[0]) * (checks != ["ok"])
    except FAULTS as error:
        fault = fault or str(error) or type(error).__name__
    chain = report._chain
    numbers = {line.number: line.link for line in chain}
    end = chain[-1].number if chain else 0
    if numbers.get(head["number"], head.get("link")) != head.get("link"):
        fault = f"commit {head['number']} is another than was written"
        end = head["number"] - 1
        report._chain = chain = [line for line in chain if line.number <= end]
    elif head["number"] > end and not fault:
        fault = f"its last commits are missing, up to {head['number']}"
    report.commits = len(chain)
    if (newest := max(newest, head["number"])) > end:
        report.lost.append(f"commits {end + 1} to {newest}")
    if fault:
        report.wrong(FILE, fault)
    elif FILE not in report._files:
        _check_tables(report, tables)


def _opened(path: Path) -> closing[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, isolation_level=None))


def _lines(db: sqlite3.Connection) -> Iterator[tuple[int, object]]:
    # The rows as the table has them, not as an index has them, which may be damaged by itself.
    yield from db.execute("SELECT number, line FROM commits NOT INDEXED ORDER BY number")


def _rows(db: sqlite3.Connection, table: str) -> list[Any]:
    columns = "type, name, tbl_name, sql" if table == "sqlite_master" else "*"
    by = "type, name" if table == "sqlite_master" else "1"
    return db.execute(f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {by}").fetchall()


def _check_tables(report: Report, tables: dict[str, list[Any]]) -> None:
    """All other tables against what the chain says."""
    with closing(ServiceStore(":memory:")) as rebuilt:
        # Play the lines into an empty database: all tables must come out as they are stored.
        rebuilt.copy(report._chain)
        for table in TABLES:
            if tables[table] != _rows(rebuilt._db, table):
                report.wrong(FILE, f"the table {table} is not what the journal says")
                return
    for name, body in tables["views"]:
        if (files.unsealed(str(body).encode(errors="replace")) or {}).get("name") != name:
            report.wrong(FILE, f"the view of {name}")


def repair(report: Report) -> list[str]:
    """Make the folder whole again, and say what was done; no service may work in it meanwhile.

    A damaged file is kept next to its place, as ``.damaged``.
    """
    folder, actions = report.folder, []
    if FILE in report._files:
        if (folder / FILE).exists() or not (folder / NEW).exists():
            _make(folder, report._chain)
        _put_in_place(folder, "damaged")
        actions.append(f"{FILE} is made again from {report.commits} commits")
    elif HEAD in report._files:
        with closing(ServiceStore(folder / FILE)) as store:
            store.copy(())  # which notes its end
        actions.append(f"{HEAD} is written again")
    for name in CHECKPOINTS:
        if name in report._files:
            _set_aside(folder / name, "damaged")
            actions.append(f"{name} is set aside: an earlier one serves, or the journal")
    return actions


def _make(
    folder: Path, chain: list[ChainLine], requests: list[OperatorRequest] | None = None
) -> None:
    """Make a new file of a chain, beside the old one."""
    for end in ("", "-wal", "-shm"):  # of one that was killed while it did so
        (folder / f"{NEW}{end}").unlink(missing_ok=True)
    with closing(ServiceStore(folder / NEW)) as store:
        store.copy(chain)
        if requests:
            store.commit(requests=requests)


def _put_in_place(folder: Path, why: str) -> None:
    # Killed between the two, a repair finds the new one, which is whole, and no old one.
    _set_aside(folder / FILE, why)
    os.replace(folder / NEW, folder / FILE)
    files.Tree(folder).flush()


def _set_aside(path: Path, why: str) -> None:
    """Rename a file, and the logs that SQLite keeps beside it: under no name that is taken."""
    names = (f"{path}.{why}{f'.{n}' if n else ''}" for n in count())
    aside = next(name for name in names if not os.path.lexists(name))
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{end}", f"{aside}{end}")


def take_over(folder: Path) -> list[str]:
    """Make the one file of what version 2 wrote, once; its own files are kept as ``.old``."""
    if not (folder / JOURNAL).exists():
        return []
    check_files(folder)
    texts = files.read_whole(folder / JOURNAL).decode(errors="replace").split("\n")[:-1]
    copies = [unbroken((0, text) for text in texts)]
    requests, notes = list[OperatorRequest](), list[str]()
    for path in (folder / FILE, folder / f"{FILE}.old"):
        with suppress(*FAULTS), _opened(path) as db:
            copies.append(unbroken(_lines(db)))
    # The two copies mend each other: the one that goes on for longer counts.
    chain, fault = max(copies, key=lambda copy: copy[0][-1].number if copy[0] else 0)
    notes += [f"of version 2, and damaged in both copies: {fault}"] * bool(fault)
    with suppress(*FAULTS), _opened(folder / REQUESTS) as db:
        for number, text in db.execute("SELECT id, sealed FROM wishes ORDER BY id"):
            if (request := files.unsealed(str(text).encode(errors="replace"))) is None:
                notes.append(f"request {number} is damaged, and left out")
            else:
                requests.append(OperatorRequest(**request))
    _make(folder, chain, requests)
    _put_in_place(folder, "old")
    _set_aside(folder / REQUESTS, "old")
    _set_aside(folder / JOURNAL, "old")  # the last, for without it all was taken over
    return [
        f"{len(chain)} commits and {len(requests)} requests of version 2 are taken over",
        *notes,
    ]


def mend(folder: Path | str) -> list[str]:
    """Make a folder whole before a service opens it, and say what was wrong and done.

    Raises StoreError when something is lost: then nothing is changed.
    """
    if not is_state(folder):
        return []
    imported = take_over(Path(folder))
    report = examine(folder)
    if report.lost:
        raise StoreError(
            f"{folder} is damaged, and lost is {', '.join(report.lost)}; see gangwise verify "
            f"{folder}, and with --repair the cluster's table fills in who waits and runs"
        )
    return [*imported, *report.damaged, *repair(report)]

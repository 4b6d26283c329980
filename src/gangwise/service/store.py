"""What the service writes down before it acts: one SQLite file, WAL, every commit on the disk.

Tables::

    journal   seq, time, kind, body      all that reached the scheduler, in order
    intents   job, attempt, kind, state  what was decided: intended → accepted → started → ended,
                                         or rejected, or undone
    history   one row for each job that ended
    views     name → JSON                what the service is at, for whoever looks

An intent is committed as ``intended`` before the cluster is told.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.service.ledger import Ended, Intent, Record

SCHEMA = """
CREATE TABLE IF NOT EXISTS journal(
    seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS intents(
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL,
    placed TEXT NOT NULL, by TEXT NOT NULL, state TEXT NOT NULL, decided REAL NOT NULL,
    accepted REAL, started REAL, ended REAL, detail TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS intents_of_job ON intents(job, attempt);
CREATE INDEX IF NOT EXISTS intents_by_state ON intents(state);
CREATE TABLE IF NOT EXISTS history(
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, job_type TEXT NOT NULL, user TEXT NOT NULL,
    submitted REAL NOT NULL, first REAL, started REAL, ended REAL NOT NULL, tasks INTEGER NOT NULL,
    outcome TEXT NOT NULL, by TEXT NOT NULL, rate REAL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_by_end ON history(ended);
CREATE TABLE IF NOT EXISTS views(name TEXT PRIMARY KEY, time REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS about(name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
VERSION = "1"
BUSY = 1.0
"""Seconds that a commit waits for others who hold the file."""


class Store:
    """The service's file.

    Parameters
    ----------
    path : path
    read_only : bool
        For looking while a service writes.

    Raises
    ------
    StoreError
        When it cannot be opened, or is of another version.
    """

    def __init__(self, path: Path | str, read_only: bool = False):
        self.path = Path(path)
        if read_only and not self.path.exists():
            raise StoreError(
                f"{self.path} is not there: no service has run in this folder; start one with "
                "gangwise serve, or name its folder with --state"
            )
        try:
            mode = "ro" if read_only else "rwc"
            self._db = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY,
                isolation_level=None,
                check_same_thread=False,
            )
            if not read_only:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.executescript(SCHEMA)
                self._db.execute("INSERT OR IGNORE INTO about VALUES('version', ?)", (VERSION,))
            version = self.about("version")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        if version != VERSION:
            raise StoreError(f"{self.path} is of version {version}, not {VERSION}; move it away")

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def about(self, name: str) -> str | None:
        """A setting that is kept."""
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def commit(
        self,
        records: Sequence[tuple[int, Record]] = (),
        intents: Iterable[tuple[float, Intent]] = (),
        states: Iterable[tuple[str, float, str, str, int, str]] = (),
        ended: Iterable[Ended] = (),
        views: Iterable[tuple[str, float, Any]] = (),
        about: Iterable[tuple[str, str]] = (),
    ) -> None:
        """All of it or nothing.

        Parameters
        ----------
        records : sequence of (seq, record)
            One that is there already stays as it is.
        states : iterable of (state, time, kind, job, attempt, detail)
            Intents of a job's attempt come to a state at a time.

        Raises
        ------
        StoreError
            When the file is locked, the disk is full, or it fails otherwise.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany(
                    "INSERT OR IGNORE INTO journal VALUES(?, ?, ?, ?)",
                    ((seq, r[1], r[0], json.dumps(r[2:])) for seq, r in records),
                )
                self._db.executemany(
                    "INSERT INTO intents(job, attempt, kind, placed, by, state, decided) "
                    "VALUES(?, ?, ?, ?, ?, 'intended', ?)",
                    (
                        (i.job, i.attempt, i.kind, json.dumps(i.placed), i.by, now)
                        for now, i in intents
                    ),
                )
                for state, time, kind, job, attempt, detail in states:
                    column = state if state in ("accepted", "started") else "ended"
                    self._db.execute(
                        f"UPDATE intents SET state = ?, {column} = ?, "
                        "detail = CASE WHEN ? = '' THEN detail ELSE ? END "
                        "WHERE job = ? AND attempt = ? AND kind = ? AND ended IS NULL",
                        (state, time, detail, detail, job, attempt, kind),
                    )
                self._db.executemany(
                    "INSERT OR IGNORE INTO history(job, job_type, user, submitted, first, started, "
                    "ended, tasks, outcome, by, rate, body) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
                    (_history(e) for e in ended),
                )
                self._db.executemany(
                    "INSERT OR REPLACE INTO views VALUES(?, ?, ?)",
                    ((name, time, json.dumps(body)) for name, time, body in views),
                )
                self._db.executemany("INSERT OR REPLACE INTO about VALUES(?, ?)", about)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def last(self) -> int:
        """Number of the last record."""
        return int(self._one("SELECT COALESCE(MAX(seq), 0) FROM journal"))

    def records(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        """Records of the journal, in order."""
        with closing(self._db.cursor()) as cursor:
            cursor.execute(
                "SELECT seq, time, kind, body FROM journal WHERE seq > ? ORDER BY seq", (after,)
            )
            for seq, time, kind, body in cursor:
                yield seq, (kind, time, *json.loads(body))

    def forget(self, seq: int, before: float) -> None:
        """Drop records up to ``seq`` that are older than a time, and intents and jobs as old."""
        self._execute("DELETE FROM journal WHERE seq <= ? AND time < ?", seq, before)
        self._execute("DELETE FROM intents WHERE ended < ?", before)
        self._execute("DELETE FROM history WHERE ended < ?", before)

    def open_intents(self) -> list[dict[str, Any]]:
        """Those not known to be over."""
        return self.rows(
            "SELECT * FROM intents WHERE state IN ('intended', 'accepted', 'started') ORDER BY seq"
        )

    def view(self, name: str) -> tuple[float, Any] | None:
        """A view and when it was made."""
        row = self._db.execute("SELECT time, body FROM views WHERE name = ?", (name,)).fetchone()
        return None if row is None else (float(row[0]), json.loads(row[1]))

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query, by column; JSON is decoded."""
        try:
            cursor = self._db.execute(query, values)
            names = [c[0] for c in cursor.description]
            found = [dict(zip(names, row, strict=True)) for row in cursor]
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        for row in found:
            for column in ("placed", "body"):
                if column in row:
                    row[column] = json.loads(row[column])
        return found

    def _execute(self, query: str, *values: Any) -> None:
        try:
            self._db.execute(query, values)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    def _one(self, query: str) -> Any:
        try:
            return self._db.execute(query).fetchone()[0]
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error


def _history(e: Ended) -> tuple[Any, ...]:
    a = e.asked
    body = json.dumps({**asdict(a), "placed": e.placed, "attempt": e.attempt, "held": e.held})
    times = (a.submitted, e.first, e.started, e.ended)
    return (a.id, a.job_type, a.user, *times, a.tasks, e.outcome, e.by, e.rate, body)

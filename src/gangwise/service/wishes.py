"""What operators ask of the service: on the disk before it is promised, answered after it is done.

The process of the API writes a wish, the service's loop reads it, does it, commits, and only then
answers. Killed anywhere between, it finds the wish again; doing one twice changes nothing. A file
of its own, so that neither process waits for what the other writes elsewhere.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gangwise.core.errors import StoreError
from gangwise.core.files import sealed_line, unsealed
from gangwise.service.chain import FAULTS, as_store_error

FILE = "wishes.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS wishes(
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, told REAL, sealed TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS wishes_by_state ON wishes(state);
"""
OPEN_WISHES = 1000  # so many may wait for their answer
KEPT = 30 * 86_400.0  # seconds for which answers are kept

What = Literal["cancel", "pause", "every"]


class Wish(NamedTuple):
    """What an operator asked for; times in seconds since 1970."""

    id: int
    what: str
    value: Any
    state: str  # "accepted": on the disk and not yet done; then "done" or "refused"
    asked: float  # when it was accepted
    told: float | None  # when it was answered
    detail: str  # why it was refused


class Wishes:
    """The file of wishes of a service's folder, for any of its processes.

    Every method raises StoreError when the file cannot be opened, read or written.
    """

    def __init__(self, folder: Path | str):
        self.path = Path(folder) / FILE
        with as_store_error(self.path):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                self.path, timeout=1.0, isolation_level=None, check_same_thread=False
            )
            self._db.text_factory = partial(str, encoding="utf-8", errors="replace")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def add(self, what: What, value: Any) -> int:
        """Write a wish to the disk and return its number."""
        now = time.time()
        if self._all("SELECT COUNT(*) FROM wishes WHERE state = 'accepted'")[0][0] >= OPEN_WISHES:
            raise StoreError(f"{OPEN_WISHES} wishes wait for their answer; does the service run?")
        kept = "told IS NULL OR told >= ? OR id = (SELECT MAX(id) FROM wishes)"  # no gaps
        self._all(
            f"DELETE FROM wishes WHERE id < (SELECT MIN(id) FROM wishes WHERE {kept})", now - KEPT
        )
        with self._change():
            new = "INSERT INTO wishes(state, sealed) VALUES('accepted', '') RETURNING id"
            wish = Wish(int(self._all(new)[0][0]), what, value, "accepted", now, None, "")
            self._put(wish)
        return wish.id

    def open(self) -> list[Wish]:
        return self._wishes("state = 'accepted' ORDER BY id")

    def get(self, number: int) -> Wish | None:
        found = self._wishes("id = ?", number)
        return found[0] if found else None

    def answer(self, answers: Iterable[tuple[int, str, str]]) -> None:
        with self._change():
            for number, state, detail in answers:
                for wish in self._wishes("id = ?", number):
                    self._put(wish._replace(state=state, told=time.time(), detail=detail))

    def damaged(self) -> list[str]:
        rows = self._all("SELECT id, state, told, sealed FROM wishes ORDER BY id")
        last = self._all("SELECT MAX(seq) FROM sqlite_sequence")[0][0]
        there = {row[0] for row in rows}
        if last is not None and not len(there) <= last < OPEN_WISHES + max(there, default=0):
            return ["its count of wishes"]
        gaps = set(range(min(there), last + 1)) - there if there else {last} - {None}
        wrong = [
            row[0]
            for row in rows
            if (w := _unsealed(row[3])) is None or (w.id, w.state, w.told) != row[:3]
        ]
        checks = [row[0] for row in self._all("PRAGMA integrity_check") if row[0] != "ok"]
        return [f"wish {number}" for number in sorted(gaps | set(wrong))] + checks

    def lost(self) -> list[str]:
        """Wishes of which no whole row is left; a row's seal says its number, too."""
        rows = self._all("SELECT rowid, sealed FROM wishes")
        last = self._all("SELECT MAX(seq) FROM sqlite_sequence")[0][0]
        if rows and last is None:
            raise StoreError(f"{self.path}: its count of wishes is gone")
        kept = {wish.id for _, sealed in rows if (wish := _unsealed(sealed))}
        unread = {number for number, sealed in rows if _unsealed(sealed) is None}
        first = min(kept | unread, default=last or 1)
        return [f"wish {n}" for n in sorted({*range(max(first, 1), (last or 0) + 1)} - kept)]

    def whole(self) -> list[Wish]:
        found = []
        with suppress(*FAULTS), closing(self._db.execute("SELECT sealed FROM wishes")) as rows:
            found += [wish for (sealed,) in rows if (wish := _unsealed(sealed)) is not None]
        return found

    def restore(self, wishes: Iterable[Wish]) -> None:
        with self._change():
            for wish in wishes:
                self._all("INSERT INTO wishes(id, state, sealed) VALUES(?, '', '')", wish.id)
                self._put(wish)

    def _put(self, wish: Wish) -> None:
        query = "UPDATE wishes SET state = ?, told = ?, sealed = ? WHERE id = ?"
        sealed = sealed_line(wish._asdict()).decode()
        self._all(query, wish.state, wish.told, sealed, wish.id)

    @contextmanager
    def _change(self) -> Iterator[None]:
        self._all("BEGIN IMMEDIATE")
        try:
            yield
            self._all("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.rollback()

    def _wishes(self, where: str, *values: Any) -> list[Wish]:
        found = []
        for number, sealed in self._all(f"SELECT id, sealed FROM wishes WHERE {where}", *values):
            if (wish := _unsealed(sealed)) is None:
                raise StoreError(f"{self.path}: wish {number} is damaged; gangwise verify")
            found.append(wish)
        return found

    def _all(self, query: str, *values: Any) -> list[Any]:
        with as_store_error(self.path), closing(self._db.execute(query, values)) as cursor:
            return cursor.fetchall()


def _unsealed(text: object) -> Wish | None:
    found = unsealed(text.encode(errors="replace")) if isinstance(text, str) else None
    return None if found is None else Wish(**found)

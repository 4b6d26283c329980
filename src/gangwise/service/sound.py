"""Checks of a service's folder: is it as it was written, and how it is restored.

The rows of SQLite's table ``commits`` are a chain, and all else in the file but the views follows
from them: it is worked out again and compared. Nothing is trusted from a row on that is damaged or
missing. Views carry seals of their own, checkpoints are signed, and where one is damaged an earlier
one and the journal since serve. What is lost, the cluster's table fills in when the service starts:
which jobs wait and run, though not which have ended.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from gangwise.core import files, simulation
from gangwise.core.errors import StoreError
from gangwise.service import store as stores

CHECKPOINTS = ("ledger.checkpoint", "ledger.checkpoint.1")  # the last, and the one before
TABLES = ("commits", "intents", "history", "known", "requests", "about", "sqlite_master")
NEW = f"{stores.FILE}.new"  # made in full, and then renamed
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
    _chain: list[stores.ChainLine] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.lost

    def wrong(self, file: str, what: object) -> None:
        self.damaged.append(f"{file}: {what}")
        self._files.add(file)


def is_state(folder: Path | str) -> bool:
    names = (stores.FILE, stores.HEAD, NEW, JOURNAL)
    return any((Path(folder) / name).exists() for name in names)


def examine(folder: Path | str) -> Report:
    """Look whether all is as it was written; raises StoreError when files cannot be read at all."""
    stores.check_files(folder)
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
    path = report.folder / stores.HEAD
    if not path.exists() or not (text := files.read_whole(path)):
        return {"number": 0}
    if (head := files.unsealed(text)) is None:
        report.wrong(stores.HEAD, "it is not as it was written")
    return head or {"number": 0}


def _check_file(report: Report, head: dict[str, Any]) -> None:
    """The chain, up to its first damage or to where its head disagrees; then all other tables."""
    path = report.folder / stores.FILE
    tables: dict[str, list[Any]] = {}
    newest, fault = 0, ""
    if not path.exists():
        report.wrong(stores.FILE, "it is missing")
        path = report.folder / NEW  # a repair was killed
    else:
        with open(path, "rb") as raw:
            # A damaged header changes how SQLite reads the rest.
            if (start := raw.read(24)) and start != HEADER:
                report.wrong(stores.FILE, "its header is not SQLite's")
    try:
        with _opened(path) as db:
            # One transaction for all tables: a service that runs may commit between two reads.
            db.execute("BEGIN")
            if (version := dict(_rows(db, "about")).get("version")) in ("1", "2"):
                advice = "gangwise serve takes it over" if version == "2" else "move it away"
                raise StoreError(f"{path} is of version {version}; {advice}")
            report._chain, fault = stores.unbroken(_lines(db))
            (newest,) = db.execute("SELECT COALESCE(MAX(number), 0) FROM commits").fetchone()
            tables = {table: _rows(db, table) for table in (*TABLES, "views")}
            checks = [row[0] for row in db.execute("PRAGMA integrity_check")]
            fault = fault or str(checks[0]) * (checks != ["ok"])
    except stores.FAULTS as error:
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
        report.wrong(stores.FILE, fault)
    elif stores.FILE not in report._files:
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
    with closing(stores.ServiceStore(":memory:")) as rebuilt:
        # Play the lines into an empty database: all tables must come out as they are stored.
        rebuilt.copy(report._chain)
        for table in TABLES:
            if tables[table] != _rows(rebuilt._db, table):
                report.wrong(stores.FILE, f"the table {table} is not what the journal says")
                return
    for name, body in tables["views"]:
        if (files.unsealed(str(body).encode(errors="replace")) or {}).get("name") != name:
            report.wrong(stores.FILE, f"the view of {name}")


def repair(report: Report) -> list[str]:
    """Make the folder whole again, and say what was done; no service may work in it meanwhile.

    A damaged file is kept next to its place, as ``.damaged``.
    """
    folder, actions = report.folder, []
    if stores.FILE in report._files:
        if (folder / stores.FILE).exists() or not (folder / NEW).exists():
            _make(folder, report._chain)
        _put_in_place(folder, "damaged")
        actions.append(f"{stores.FILE} is made again from {report.commits} commits")
    elif stores.HEAD in report._files:
        with closing(stores.ServiceStore(folder / stores.FILE)) as store:
            store.copy(())  # which notes its end
        actions.append(f"{stores.HEAD} is written again")
    for name in CHECKPOINTS:
        if name in report._files:
            _set_aside(folder / name, "damaged")
            actions.append(f"{name} is set aside: an earlier one serves, or the journal")
    return actions


def _make(
    folder: Path,
    chain: list[stores.ChainLine],
    requests: list[stores.OperatorRequest] | None = None,
) -> None:
    """Make a new file of a chain, beside the old one."""
    for end in ("", "-wal", "-shm"):  # of one that was killed while it did so
        (folder / f"{NEW}{end}").unlink(missing_ok=True)
    with closing(stores.ServiceStore(folder / NEW)) as store:
        store.copy(chain)
        if requests:
            store.commit(requests=requests)


def _put_in_place(folder: Path, why: str) -> None:
    # Killed between the two, a repair finds the new one, which is whole, and no old one.
    _set_aside(folder / stores.FILE, why)
    os.replace(folder / NEW, folder / stores.FILE)
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
    stores.check_files(folder)
    texts = files.read_whole(folder / JOURNAL).decode(errors="replace").split("\n")[:-1]
    copies = [stores.unbroken((0, text) for text in texts)]
    requests, notes = list[stores.OperatorRequest](), list[str]()
    for path in (folder / stores.FILE, folder / f"{stores.FILE}.old"):
        with suppress(*stores.FAULTS), _opened(path) as db:
            copies.append(stores.unbroken(_lines(db)))
    # The two copies mend each other: the one that goes on for longer counts.
    chain, fault = max(copies, key=lambda copy: copy[0][-1].number if copy[0] else 0)
    notes += [f"of version 2, and damaged in both copies: {fault}"] * bool(fault)
    with suppress(*stores.FAULTS), _opened(folder / REQUESTS) as db:
        for number, text in db.execute("SELECT id, sealed FROM wishes ORDER BY id"):
            if (request := files.unsealed(str(text).encode(errors="replace"))) is None:
                notes.append(f"request {number} is damaged, and left out")
            else:
                requests.append(stores.OperatorRequest(**request))
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

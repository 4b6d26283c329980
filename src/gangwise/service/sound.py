"""Checks of a service's folder: is it as it was written, and how it is restored.

The lines in ``journal.log`` and in SQLite are the same chain, and all else that SQLite has follows
from them: it is worked out again and compared. What one of the two has lost, the other has.
Operators' requests and views carry seals of their own, checkpoints are signed, and where one is
damaged an earlier one and the journal since serve. What is lost of both, the cluster's table fills
in when the service starts: which jobs wait and run, though not which have ended.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from gangwise.core import files, simulation
from gangwise.core.errors import StoreError
from gangwise.service import store as stores
from gangwise.service.state import REQUESTS_FILE, OperatorRequests

CHECKPOINTS = ("ledger.checkpoint", "ledger.checkpoint.1")  # the last, and the one before
TABLES = ("commits", "intents", "history", "known", "about", "sqlite_master")
HEAD = b"SQLite format 3\0" + bytes([16, 0, 2, 2, 0, 64, 32, 32])
"""How SQLite's file begins: pages of 4096 bytes, a write-ahead log."""


@dataclass
class Report:
    """Report on what is whole, damaged or lost in a service's folder."""

    folder: Path
    commits: int = 0  # that are whole
    damaged: list[str] = field(default_factory=list)  # files, and what is wrong with them
    behind: int = 0  # commits that SQLite has not yet: its writer was killed, or lost power
    lost: list[str] = field(default_factory=list)  # what no copy has
    _files: set[str] = field(default_factory=set)
    _chain: list[stores.ChainLine] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.damaged and not self.lost

    def wrong(self, file: str, what: object) -> None:
        self.damaged.append(f"{file}: {what}")
        self._files.add(file)


def is_state(folder: Path | str) -> bool:
    return any((Path(folder) / name).exists() for name in (stores.FILE, stores.LINES))


def examine(folder: Path | str) -> Report:
    """Look whether all is as it was written; raises StoreError when files cannot be read at all."""
    stores.check_files(folder)
    report = Report(Path(folder))
    stored, failed = _stored(report.folder / stores.FILE)
    lines = stores.read_file(report.folder / stores.LINES)
    by_text = {str(line): line for line in lines if line is not None}
    inside = [
        by_text.get(row[3]) or stores.ChainLine.of(row[3]) for row in stored.get("commits", ())
    ]
    # The two copies mend each other; a gap is what neither has.
    chain, gaps = stores.merged(lines, inside)
    report.commits, report._chain = len(chain), chain
    report.lost = [f"commits {low} to {high}" for low, high in gaps]
    _check_lines(report, lines)
    _check_tables(report, stored, failed, inside)
    for name in CHECKPOINTS:
        if (report.folder / name).exists():
            try:
                simulation.check_checkpoint(report.folder / name)
            except StoreError as error:
                report.wrong(name, error)
    _check_requests(report)
    return report


def _stored(path: Path) -> tuple[dict[str, list[Any]], str]:
    """Rows of the tables as they are at one moment, and what could not be read."""
    tables: dict[str, list[Any]] = {}
    if not path.exists():
        return tables, "it is missing"
    try:
        with open(path, "rb") as raw:
            # A damaged header changes how SQLite reads the rest, so it is compared first.
            if (head := raw.read(24)) and head != HEAD:
                return tables, "its header is not SQLite's"
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as file:
            # One transaction for all tables: a service that runs may commit between two reads.
            file.execute("BEGIN")
            if ("version", "1") in (about := file.execute("SELECT * FROM about").fetchall()):
                raise StoreError(f"{path} is of version {dict(about)['version']}; move it away")
            for table in TABLES:
                tables[table] = _rows(file, table)
            tables["views"] = file.execute("SELECT name, body FROM views").fetchall()
            checks = [row[0] for row in file.execute("PRAGMA integrity_check")]
            return tables, "" if checks == ["ok"] else str(checks[0])
    except StoreError:
        raise
    except (OSError, *stores.FAULTS) as error:
        return tables, str(error) or type(error).__name__


def _rows(file: sqlite3.Connection, table: str) -> list[Any]:
    # The rows as the table has them, not as an index has them, which may be damaged by itself.
    columns = "type, name, tbl_name, sql" if table == "sqlite_master" else "*"
    by = "type, name" if table == "sqlite_master" else "1"  # by the primary key
    return file.execute(f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {by}").fetchall()


def _check_lines(report: Report, lines: list[stores.ChainLine | None]) -> None:
    chain = report._chain
    if not chain:
        if any(line is None for line in lines):
            report.wrong(stores.LINES, "no line is as it was written")
        return
    number = chain[0].number
    intact = [line for line in lines if line is not None]
    if not lines:
        report.wrong(stores.LINES, "it is missing, or empty")
    elif None in lines:
        report.wrong(stores.LINES, f"{lines.count(None)} lines were changed")
        # Lines behind the last intact one were written after it, and neither copy has them.
        over = len(lines) - 1 - max((i for i, line in enumerate(lines) if line), default=-1)
        if over and intact and intact[-1].number == chain[-1].number:
            newest = chain[-1].number
            report.lost.append(f"commits {newest + 1} to {newest + over}")
    elif (
        any(b.after != a.link for a, b in pairwise(intact))
        or [line for line in intact if line.number > number] != chain[1:]
        or all(line.number != number for line in intact)
    ):
        report.wrong(stores.LINES, "lines are missing")


def _check_tables(
    report: Report, stored: dict[str, list[Any]], failed: str, inside: list[stores.ChainLine | None]
) -> None:
    """SQLite's tables against what the lines say, up to the last that it has."""
    chain = report._chain
    if failed:
        if (report.folder / stores.FILE).exists() or chain:
            report.wrong(stores.FILE, failed)
        if not chain and (report.folder / stores.FILE).exists():
            report.lost.append("every commit")
        return
    # What SQLite has not heard of yet is no damage, so it is judged by the lines that it has.
    newest = max((line.number for line in inside if line), default=0)
    stored_count = sum(line.number <= newest for line in chain)
    rebuilt = stores.ServiceStore(":memory:")
    try:
        # Play the lines into an empty database: all other tables must come out as they are stored.
        rebuilt.roll_forward(chain[:stored_count])
        for table in TABLES:
            if stored[table] != _rows(rebuilt._db, table):
                report.wrong(stores.FILE, f"the table {table} is not what the journal says")
                return
    finally:
        rebuilt.close()
    report.behind = len(chain) - stored_count
    for name, body in stored["views"]:
        if (files.unsealed(str(body).encode(errors="replace")) or {}).get("name") != name:
            report.wrong(stores.FILE, f"the view of {name}")


def _check_requests(report: Report) -> None:
    if not (report.folder / REQUESTS_FILE).exists():
        return
    try:
        with closing(OperatorRequests(report.folder)) as file:
            try:
                wrong = file.damaged()
            except (StoreError, TypeError, *stores.FAULTS) as error:
                wrong = [str(error)]
            for fault in wrong:
                report.wrong(REQUESTS_FILE, fault)
            if wrong:
                report.lost += file.lost()
    except (StoreError, TypeError, *stores.FAULTS) as error:
        report.wrong(REQUESTS_FILE, error)
        report.lost.append("what operators asked for, perhaps")


def repair(report: Report) -> list[str]:
    """Make the folder whole again, and say what was done; no service may work in it meanwhile.

    A damaged file is kept next to its place, as ``.damaged``.
    """
    folder, actions = report.folder, []
    chain = report._chain
    # Numbers and links are made anew, so that what is left is a chain without gaps.
    if report.lost:  # what is left becomes a chain of its own
        rebuilt: list[stores.ChainLine] = []
        for line in chain:
            number, link = (
                (rebuilt[-1].number + 1, rebuilt[-1].link) if rebuilt else (1, stores.START)
            )
            is_anchor = not rebuilt and line.anchor is not None
            rebuilt.append(line if is_anchor else stores.ChainLine(number, link, line.body))
        chain = rebuilt
    # The lines of both copies first, under their old numbers: from then on the journal alone has
    # all that is left, and a death at any later point loses nothing and doubles nothing.
    if stores.LINES in report._files or chain != report._chain:
        with suppress(FileNotFoundError):
            shutil.copy(folder / stores.LINES, folder / f"{stores.LINES}.damaged")
        stores.write_file(folder / stores.LINES, report._chain)
        actions.append(f"{stores.LINES} is written again, {len(chain)} commits")
    if stores.FILE in report._files or chain != report._chain:
        _set_aside(folder / stores.FILE)
        if chain != report._chain:
            stores.write_file(folder / stores.LINES, chain)
        with closing(stores.ServiceStore(folder / stores.FILE)) as store:
            store.roll_forward(chain)
        actions.append(f"{stores.FILE} is made again from {len(chain)} commits")
    elif report.behind:
        with closing(stores.ServiceStore(folder / stores.FILE)) as store:
            store.roll_forward(chain[len(chain) - report.behind :])
        actions.append(
            f"{stores.FILE} had not heard of the last {report.behind} commits, and now has"
        )
    if REQUESTS_FILE in report._files:
        intact = []
        with suppress(StoreError), closing(OperatorRequests(folder)) as file:
            intact = file.whole()
        _set_aside(folder / REQUESTS_FILE)
        with closing(OperatorRequests(folder)) as file:
            file.restore(intact)
        actions.append(f"{REQUESTS_FILE} is made again with {len(intact)} requests")
    for name in CHECKPOINTS:
        if name in report._files:
            _set_aside(folder / name)
            actions.append(f"{name} is set aside: an earlier one serves, or the journal")
    return actions


def _set_aside(path: Path) -> None:
    # A log that is left behind would be written into the new file.
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        os.replace(path, path.with_name(f"{path.name}.damaged"))


def mend(folder: Path | str) -> list[str]:
    """Make a folder whole before a service opens it, and say what was wrong and done.

    Raises StoreError when something is lost that no copy has: then nothing is changed.
    """
    if not is_state(folder):
        return []
    report = examine(folder)
    if report.lost:
        raise StoreError(
            f"{folder} is damaged, and lost is {', '.join(report.lost[:5])}; see gangwise verify "
            f"{folder}, and with --repair the cluster's table fills in who waits and runs"
        )
    return [*report.damaged, *repair(report)]

"""What a service shows, also in words for the terminal; what operators may ask of it, and who may.

What operators ask for is on the disk before it is promised, and answered after it is done. The
process of the API writes a request, the service's loop reads it, does it, commits, and only then
answers. Killed anywhere between, it finds the request again; doing one twice changes nothing.
Requests have a file of their own, so that neither process waits for what the other writes
elsewhere.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich import box
from rich.table import Table

from gangwise.core import files, terminal
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.engines.background import age
from gangwise.notation.units import roughly
from gangwise.service.store import FAULTS, FILE, Database, ServiceStore, as_store_error, check_files


class ServiceState:
    """State of a service, by its files, whichever process it runs in; plain values.

    Raises StoreError when no service has run in this folder.
    """

    def __init__(self, folder: Path | str):
        self._store = ServiceStore(Path(folder) / FILE, read_only=True)
        self._requests = OperatorRequests(folder)
        self._lock = threading.Lock()

    def view(self, name: str) -> Any:
        with self._lock:
            stored = self._store.view(name)
        return None if stored is None else stored[1]

    def age(self) -> float:
        """Seconds since the service last said anything; inf where it never did, or not since the
        machine was started. No change of a clock changes them.
        """
        return silence(self.view("health"))

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The latest decisions, newest first."""
        return self._rows("SELECT * FROM intents ORDER BY seq DESC LIMIT ?", limit)

    def latencies(self, until: str, bounds: Sequence[float]) -> tuple[list[float], float]:
        """Placements that were accepted or started within each bound, all of them; summed time."""
        # TOTAL gives 0.0 over no rows, where SUM gives NULL.
        within = ", ".join(f"TOTAL(x <= {bound}) AS w{i}" for i, bound in enumerate(bounds))
        # A column's name cannot be bound as a value: it comes from this
        # table and never from a caller.
        column = {"accepted": "accepted", "started": "started"}[until]
        (row,) = self._rows(
            f"SELECT {within}, COUNT(*) AS n, TOTAL(x) AS total FROM "
            f"(SELECT {column} - decided AS x FROM intents WHERE kind = 'place' AND x IS NOT NULL)"
        )
        return [*(row[f"w{i}"] for i in range(len(bounds))), float(row["n"])], row["total"]

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        """Jobs that ended since a time, latest first."""
        query = "SELECT * FROM history WHERE ended >= ? ORDER BY ended DESC LIMIT ?"
        return self._rows(query, since, limit)

    def job(self, name: str) -> dict[str, Any]:
        """One job, waiting, running or ended; raises UnknownName for one that is not known."""
        rows = [*(self.view("queue") or ()), *(self.view("running") or ())]
        for row in rows:
            if row["job"] == name:
                return dict(row)
        for row in self.view("held") or ():
            if row["job"] == name:
                return {**row, "phase": "held"}
        ended = self._rows("SELECT * FROM history WHERE job = ?", name)
        if not ended:
            raise UnknownName("job", name, [row["job"] for row in rows[:50]])
        return {**ended[0], "phase": ended[0]["outcome"]}

    def knows(self, job: str) -> bool:
        with self._lock:
            return self._store.knows(job)

    def add_request(self, what: What, value: Any) -> int:
        with self._lock:
            return self._requests.add(what, value)

    def get_request(self, number: int) -> OperatorRequest | None:
        with self._lock:
            return self._requests.get(number)

    def close(self) -> None:
        self._store.close()
        self._requests.close()

    def _rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return self._store.rows(query, *values)


def silence(health: Mapping[str, Any] | None) -> float:
    """Seconds since a service showed its health; inf where it has not since the machine started."""
    return age((health or {}).get("heard") or ())


REQUESTS_FILE = "wishes.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS wishes(
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, told REAL, sealed TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS wishes_by_state ON wishes(state);
"""
OPEN_REQUESTS = 1000  # so many may wait for their answer
KEPT = 10_000  # requests that are kept, counted from the latest; by no clock

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


class OperatorRequests:
    """The file of operators' requests of a service's folder, for any of its processes.

    Every method raises StoreError when the file cannot be opened, read or written.
    """

    def __init__(self, folder: Path | str):
        self.path = Path(folder) / REQUESTS_FILE
        with as_store_error(self.path):
            check_files(folder)
            # With its mode before SQLite opens it, which would make it by the umask.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = Database.of(self.path)
            # A damaged file has damaged text, which must be read to be reported.
            self._db.text_factory = partial(str, encoding="utf-8", errors="replace")
            self._db.execute("PRAGMA journal_mode=WAL")
            # Unlike the service's own file, this one has no second copy: each
            # request waits for the disk.
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(SCHEMA)

    def close(self) -> None:
        self._db.close()

    def add(self, what: What, value: Any) -> int:
        """Write a request to the disk and return its number."""
        instant = time.time()
        if self._all("SELECT COUNT(*) FROM wishes WHERE state = 'accepted'")[0][0] >= OPEN_REQUESTS:
            raise StoreError(
                f"{OPEN_REQUESTS} requests wait for their answer; does the service run?"
            )
        # Only the oldest go: a gap between numbers would count as a lost request.
        keep = "state = 'accepted' OR id > (SELECT MAX(id) FROM wishes) - ?"  # no gaps
        self._all(f"DELETE FROM wishes WHERE id < (SELECT MIN(id) FROM wishes WHERE {keep})", KEPT)
        # The number is part of what is sealed, so that the row is there before its seal.
        with self._change():
            insert = "INSERT INTO wishes(state, sealed) VALUES('accepted', '') RETURNING id"
            request = OperatorRequest(
                int(self._all(insert)[0][0]), what, value, "accepted", instant, None, ""
            )
            self._put(request)
        return request.id

    def open(self) -> list[OperatorRequest]:
        return self._read("state = 'accepted' ORDER BY id")

    def get(self, number: int) -> OperatorRequest | None:
        requests = self._read("id = ?", number)
        return requests[0] if requests else None

    def answer(self, answers: Iterable[tuple[int, str, str]]) -> None:
        with self._change():
            for number, state, detail in answers:
                for request in self._read("id = ?", number):
                    self._put(request._replace(state=state, told=time.time(), detail=detail))

    def damaged(self) -> list[str]:
        """Damaged requests: their numbers, or the count of them."""
        rows = self._all("SELECT id, state, told, sealed FROM wishes ORDER BY id")
        top = self._all("SELECT MAX(seq) FROM sqlite_sequence")[0][0]
        ids = {row[0] for row in rows}
        # The counter of SQLite stands in a row of its own, which may be the damaged one.
        if top is not None and not len(ids) <= top < OPEN_REQUESTS + max(ids, default=0):
            return ["its count of requests"]
        gaps = set(range(min(ids), top + 1)) - ids if ids else {top} - {None}
        wrong = [
            row[0]
            for row in rows
            if (w := _unsealed(row[3])) is None or (w.id, w.state, w.told) != row[:3]
        ]
        checks = [row[0] for row in self._all("PRAGMA integrity_check") if row[0] != "ok"]
        return [f"request {number}" for number in sorted(gaps | set(wrong))] + checks

    def lost(self) -> list[str]:
        """Requests of which no whole row is left; a row's seal has its number, too."""
        rows = self._all("SELECT rowid, sealed FROM wishes")
        newest = self._all("SELECT MAX(seq) FROM sqlite_sequence")[0][0]
        if rows and newest is None:
            raise StoreError(f"{self.path}: its count of requests is gone")
        intact = {request.id for _, sealed in rows if (request := _unsealed(sealed))}
        unread = {number for number, sealed in rows if _unsealed(sealed) is None}
        # Numbers have no gaps, so that what lies between the oldest and the newest was there.
        oldest = min(intact | unread, default=newest or 1)
        return [
            f"request {n}" for n in sorted({*range(max(oldest, 1), (newest or 0) + 1)} - intact)
        ]

    def whole(self) -> list[OperatorRequest]:
        """Requests that are as they were written, however much of the file can still be read."""
        requests = []
        # A damaged file may fail at any row; the rows before it count.
        with suppress(*FAULTS), closing(self._db.execute("SELECT sealed FROM wishes")) as rows:
            requests += [
                request for (sealed,) in rows if (request := _unsealed(sealed)) is not None
            ]
        return requests

    def restore(self, requests: Iterable[OperatorRequest]) -> None:
        with self._change():
            for request in requests:
                self._all("INSERT INTO wishes(id, state, sealed) VALUES(?, '', '')", request.id)
                self._put(request)

    def _put(self, request: OperatorRequest) -> None:
        query = "UPDATE wishes SET state = ?, told = ?, sealed = ? WHERE id = ?"
        sealed = files.sealed_line(request._asdict()).decode()
        self._all(query, request.state, request.told, sealed, request.id)

    @contextmanager
    def _change(self) -> Iterator[None]:
        # The lock for writing at once: two that read first and then write
        # would each wait for the other.
        self._all("BEGIN IMMEDIATE")
        try:
            yield
            self._all("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.rollback()

    def _read(self, where: str, *values: Any) -> list[OperatorRequest]:
        requests = []
        for number, sealed in self._all(f"SELECT id, sealed FROM wishes WHERE {where}", *values):
            if (request := _unsealed(sealed)) is None:
                raise StoreError(f"{self.path}: request {number} is damaged; gangwise verify")
            requests.append(request)
        return requests

    def _all(self, query: str, *values: Any) -> list[Any]:
        with as_store_error(self.path), closing(self._db.execute(query, values)) as cursor:
            return cursor.fetchall()


def _unsealed(text: object) -> OperatorRequest | None:
    fields = files.unsealed(text.encode(errors="replace")) if isinstance(text, str) else None
    return None if fields is None else OperatorRequest(**fields)


# Who may ask: tokens of two roles, and clients on this host

Role = Literal["reader", "operator"]


def read_tokens(file: Path | str) -> dict[str, Role]:
    """Roles by the SHA-256 of their tokens, from lines ``reader TOKEN`` and ``operator TOKEN``.

    Raises ScenarioError when others may read the file, or a line is not of that form.
    """
    path = Path(file)
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ScenarioError(f"{path}: tokens cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ScenarioError(f"{path}: others may read these tokens; chmod 600 {path}")
    roles: dict[str, Role] = {}
    for row, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            # A shorter one could be guessed, at the rate at which the API answers.
            continue
        role = words[0]
        if len(words) != 2 or role not in ("reader", "operator") or len(words[1]) < 16:
            raise ScenarioError(
                f"{path}, row {row}: write 'reader TOKEN' or 'operator TOKEN', with at least 16 "
                "characters in a token"
            )
        # Digests only: a dump of this process does not show a token.
        roles[digest(words[1])] = "reader" if role == "reader" else "operator"
    return roles


def digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


STALE = 10.0  # seconds without a word, or an answer of the cluster, after which none is well
VIEWS = ("health", "nodes", "queue", "running", "slow", "held", "unreadable", "account")


def devices(amounts: Mapping[str, float]) -> str:
    """Amounts of devices in words, without zeros.

    >>> devices({"gpu": 4.0, "cpu": 0.5})
    '4 gpu + 0.5 cpu'
    """
    return " + ".join(f"{amount:g} {kind}" for kind, amount in amounts.items() if amount)


def asks(row: Mapping[str, Any], times: str) -> str:
    """Request of a job, group by group.

    >>> asks(
    ...     {"groups": [{"tasks": 1, "demand": {"cpu": 4}}, {"tasks": 8, "demand": {"gpu": 1}}]},
    ...     " × ",
    ... )
    '1 × 4 cpu and 8 × 1 gpu'
    """
    groups = row.get("groups") or [row]
    return " and ".join(f"{g['tasks']}{times}{devices(g['demand'])}" for g in groups)


def expected(row: Mapping[str, Any], now: float) -> str:
    """Time until a waiting job starts: with an even chance, and in nine cases of ten.

    >>> expected({"p50": 100.0, "p90": 7300.0}, 40.0), expected({"p50": None}, 40.0)
    ('60 s, 9 in 10 by 2.0 h', '?')
    """
    if row.get("p50") is None:
        return "?"
    p50, p90 = (roughly(max(row[name] - now, 0.0)) for name in ("p50", "p90"))
    return f"{p50}, 9 in 10 by {p90}"


def present(health: Mapping[str, Any]) -> float:
    """Time now, in seconds since 1970, by the clock of the service that all its times are of."""
    since = silence(health)
    return health["now"] + since if "now" in health and math.isfinite(since) else time.time()


def in_terminal(views: Mapping[str, Any]) -> Iterator[Any]:
    """Lines and tables of ``gangwise top``."""
    health = views.get("health") or {}
    at = present(health)
    mode = "acts on" if health.get("mode") == "act" else "watches"
    yield (
        f"gangwise {mode} {health.get('engine', '?')} with {health.get('scheduler', '?')}: "
        f"{health.get('running', 0) + health.get('placed', 0)} run, "
        f"{health.get('waiting', 0)} wait"
    )
    if health and (silent := silence(health)) > STALE:
        yield f"the service has said nothing for {roughly(silent)}"
    for part, trouble in (health.get("troubles") or {}).items():
        yield f"{part} has been failing for {roughly(at - trouble['since'])}: {trouble['what']}"
    if account := views.get("account"):
        yield account["told"]
    if slow := views.get("slow"):
        yield "slower than their label: " + ", ".join(
            f"{s['node']} by {100 * s['slower']:.0f} % "
            f"({100 * s['low']:.0f} to {100 * s['high']:.0f})"
            for s in slow
        )
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_edge": False, "title_justify": "left"}
    columns = ["node", "free", "of", "speed by label", "speed ÷ label (95 %)"]
    table = Table(*columns, title="\nNodes", **look)
    for node in (views.get("nodes") or [])[:100]:
        speed = "not known"
        if "factor" in node:
            speed = f"{node['factor']:.2f} ({node['low']:.2f} to {node['high']:.2f})"
        state = "" if node["up"] else f"down: {node['reason']}"
        free = state or devices(node["free"]) or "nothing"
        declared = node["declared"]
        table.add_row(node["name"], free, devices(node["devices"]), f"{declared:g}", speed)
    yield table
    columns = ["job", "user", "asks", "waits", "why", "starts in"]
    table = Table(*columns, title="\nWaiting", **look)
    for row in (views.get("queue") or [])[:30]:
        reason = row["why"]
        if row.get("would"):
            reason = "would start on " + ", ".join(node for node, _ in row["would"])
        waited = roughly(at - row["submitted"])
        table.add_row(row["job"], row["user"], asks(row, " × "), waited, reason, expected(row, at))
    yield table
    for row in (views.get("held") or [])[:10]:
        yield explained(row)
    for row in (views.get("unreadable") or [])[:10]:
        if row["kind"] != "job":  # these are held
            yield f"{row['kind']} {row['name']} is {row['why']}"


def explained(row: Mapping[str, Any]) -> str:
    """Sentence on why a job waits, or where it runs or ran."""
    instant = time.time()
    if "phase" not in row and "outcome" not in row:
        of_cause = f"; {terminal.cause_words(c, 'meaning')}" if (c := row.get("cause")) else ""
        return f"job {row['job']} is held: {row['why']}{of_cause}"
    if "outcome" in row:
        began = row["started"]
        nodes = ", ".join(f"{p[0]} ({p[1]})" for p in row["body"]["placed"])
        ran = f" on {nodes} for {roughly(row['ended'] - began)}" if began else ""
        waited = (
            f", after waiting {roughly(row['first'] - row['submitted'])}" if row["first"] else ""
        )
        return f"job {row['job']} has {row['outcome']}{ran}{waited}"
    asked = asks(row, " tasks of ")
    if row["phase"] != "waiting":
        nodes = ", ".join(f"{node} ({tasks})" for node, tasks in row["nodes"])
        verb = "runs" if row["phase"] == "running" else "was placed and has not started"
        speed = f", at {row['rate']:.2f} of a node of rate 1" if row.get("rate") else ""
        line = f"job {row['job']} ({asked}) {verb} on {nodes} for {roughly(instant - row['since'])}"
        return f"{line}{speed}; placed by {row['by']}, attempt {row['attempt']}"
    lines = [
        f"job {row['job']} ({asked}) waits for {roughly(instant - row['submitted'])}",
        f"  because   {row['why']}, for {roughly(instant - row['since'])}",
    ]
    if cause := row.get("cause"):
        lines.append(f"  that is   {terminal.cause_words(cause, 'meaning')}")
    if row.get("users"):
        kept = "kept for" if cause == "kept" else "held by "
        lines.append(f"  {kept}  jobs of {', '.join(row['users'][:5])}")
    if row["where"]:
        lines.append(f"  room on   {', '.join(row['where'])}")
    if row.get("frees"):
        lines.append(f"  frees it  the end of {', '.join(row['frees'][:5])}")
    if row.get("p50") is not None:
        lines.append(f"  starts    in {expected(row, instant)}")
    if row.get("would"):
        lines.append("  it would start now on " + ", ".join(node for node, _ in row["would"]))
    return "\n".join(lines)

"""What a service shows, also in words for the terminal; what operators may ask of it, and who may.

What operators ask for is on the disk before it is promised, and answered with what it does. The
process of the API writes a request, the service's loop reads it, does it, and commits its effect
and the answer at once. Killed anywhere between, it finds the request again; doing one twice changes
nothing.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.table import Table

from gangwise.core import terminal
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.engines.background import age
from gangwise.notation import roughly
from gangwise.service.store import FILE, OperatorRequest, ServiceStore, What


class ServiceState(ServiceStore):
    """State of a service, by its file, whichever process it runs in; plain values.

    Raises StoreError when no service has run in this folder.
    """

    def __init__(self, folder: Path | str):
        super().__init__(Path(folder) / FILE, read_only=True)
        self._lock = threading.Lock()  # threads of the API share it

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return super().rows(query, *values)

    def age(self) -> float:
        """Seconds since the service last said anything; inf where it never did, or not since the
        machine was started. No change of a clock changes them.
        """
        return silence(self.view("health"))

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        """The latest decisions, newest first."""
        return self.rows("SELECT * FROM intents ORDER BY seq DESC LIMIT ?", limit)

    def latencies(self, until: str, bounds: Sequence[float]) -> tuple[list[float], float]:
        """Placements that were accepted or started within each bound, all of them; summed time."""
        # TOTAL gives 0.0 over no rows, where SUM gives NULL.
        within = ", ".join(f"TOTAL(x <= {bound}) AS w{i}" for i, bound in enumerate(bounds))
        # A column's name cannot be bound as a value: it comes from this
        # table and never from a caller.
        column = {"accepted": "accepted", "started": "started"}[until]
        (row,) = self.rows(
            f"SELECT {within}, COUNT(*) AS n, TOTAL(x) AS total FROM "
            f"(SELECT {column} - decided AS x FROM intents WHERE kind = 'place' AND x IS NOT NULL)"
        )
        return [*(row[f"w{i}"] for i in range(len(bounds))), float(row["n"])], row["total"]

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        """Jobs that ended since a time, latest first."""
        query = "SELECT * FROM history WHERE ended >= ? ORDER BY ended DESC LIMIT ?"
        return self.rows(query, since, limit)

    def job(self, name: str) -> dict[str, Any]:
        """One job, waiting, running or ended; raises UnknownName for one that is not known."""
        rows = self.shown()
        for row in rows:
            if row["job"] == name:
                return row
        ended = self.rows("SELECT * FROM history WHERE job = ?", name)
        if not ended:
            raise UnknownName("job", name, [row["job"] for row in rows[:50]])
        return {**ended[0], "phase": ended[0]["outcome"]}

    def shown(self) -> list[dict[str, Any]]:
        """Jobs that wait, are held, or run: the first of them."""
        held_rows = [{**row, "phase": "held"} for row in self.view("held") or ()]
        return [*(self.view("queue") or ()), *held_rows, *(self.view("running") or ())]

    def add_request(self, what: What, value: Any) -> int:
        # Never into a file that was put in the place of the service's own.
        if not self.in_place():
            raise StoreError(f"{self.path} is not the file that it was")
        with closing(ServiceStore(self.path)) as store:
            return store.ask(what, value)

    def get_request(self, number: int) -> OperatorRequest | None:
        return next(iter(self.requests("id = ?", number)), None)


def silence(health: Mapping[str, Any] | None) -> float:
    """Seconds since a service showed its health; inf where it has not since the machine started."""
    return age((health or {}).get("heard") or ())


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
        yield explained({**row, "phase": "held"}, at)
    for row in (views.get("unreadable") or [])[:10]:
        if row["kind"] != "job":  # these are held
            yield f"{row['kind']} {row['name']} is {row['why']}"


def explained(row: Mapping[str, Any], instant: float) -> str:
    """Sentence on why a job waits, or where it runs or ran, at a time of the service's clock."""
    if row["phase"] == "held":
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

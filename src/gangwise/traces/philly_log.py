"""The jobs of a Philly job log, record by record; see :mod:`gangwise.traces.philly`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gangwise.traces.json_records import Account

if TYPE_CHECKING:
    import polars as pl


TIME = "%Y-%m-%d %H:%M:%S"
STATUSES = ("Pass", "Killed", "Failed")
EPOCH = datetime(1970, 1, 1)


@dataclass
class Jobs:
    """The jobs of the log, in seconds since 1970 as if their times were UTC."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=dict)
    uneven: int = 0
    running: int = 0

    def add(self, row: int, record: Any, account: Account) -> None:
        """Read one job, or account for why not."""
        try:
            job = _job(record)
        except _BadError as bad:
            account.refuse(row, bad.reason, bad.held)
            return
        if job["name"] in self.ids:
            account.refuse(row, "jobid was used before", job["name"])
            return
        self.ids.add(job["name"])
        for detail in job.pop("details"):
            for ip, gpus in detail:
                self.seen.setdefault(ip, set()).update(gpus)
        first = job.pop("first")
        if first is None:
            account.leave_out(row, "no attempt is recorded, so its GPUs are not known")
        elif not first:
            account.leave_out(row, "its first attempt records no GPUs")
        elif job["created"] is None:
            account.leave_out(row, "no submitted_time is recorded")
        else:
            parts = sorted(Counter(first.values()).items(), reverse=True)
            self.uneven += len(parts) > 1
            self.running += job["deleted"] is None
            self.rows += [{"row": row, **job, "gpu": float(n), "tasks": k} for n, k in parts]

    def notes(self) -> list[str]:
        """What a reader of the table must know."""
        found = []
        if self.uneven:
            found.append(
                f"{self.uneven} jobs have different numbers of GPUs on their servers; each number "
                "is a row of its own"
            )
        if self.running:
            found.append(
                f"{self.running} jobs have no end_time on their last attempt; they last until the "
                "last time in the job log"
            )
        return found

    def table(self) -> pl.DataFrame:
        """Jobs, in seconds since the first submission."""
        import polars as pl

        times = ["created", "started", "deleted"]
        texts = dict.fromkeys(["name", "user", "status"], pl.String)
        numbers = dict.fromkeys(["gpu", *times], pl.Float64)
        kinds = {"row": pl.Int64, "tasks": pl.Int64, **texts, **numbers}
        jobs = pl.DataFrame(self.rows, schema=kinds)
        last = pl.max_horizontal(pl.col(times).max())
        jobs = jobs.with_columns(pl.col("deleted").fill_null(last))
        return jobs.with_columns(pl.col(times) - pl.col("created").min()).select(
            "row",
            "name",
            cpu=pl.lit(0.0),
            mem=pl.lit(0.0),
            gpu="gpu",
            tasks="tasks",
            models=pl.lit(""),
            created="created",
            deleted="deleted",
            job="name",
            started="started",
            status="status",
            user="user",
        )


class _BadError(Exception):
    """A record that is not as published."""

    def __init__(self, reason: str, held: object = ""):
        self.reason, self.held = reason, held


def _job(record: Any) -> dict[str, Any]:
    """One record, checked: ``first`` is GPUs by server, None without an attempt."""
    if not isinstance(record, dict):
        raise _BadError("the record is not an object", record)
    name, attempts = record.get("jobid"), record.get("attempts")
    if not isinstance(name, str) or not name:
        raise _BadError("jobid is missing or no text", name)
    if record.get("status") not in STATUSES:
        raise _BadError("status is not Pass, Killed or Failed", record.get("status"))
    if not isinstance(attempts, list) or not all(isinstance(a, dict) for a in attempts):
        raise _BadError("attempts is not a list of objects", attempts)
    created = _time(record, "submitted_time")
    spans = [(_time(a, "start_time"), _time(a, "end_time")) for a in attempts]
    details = [list(_detail(attempt)) for attempt in attempts]
    for start, end in spans:
        if start is not None and end is not None and end < start:
            raise _BadError("an attempt ends before it starts", name)
    known = [time for span in spans for time in span if time is not None]
    if created is not None and known and min(known) < created:
        raise _BadError("an attempt is before submitted_time", name)
    held: Counter[str] = Counter()
    for ip, gpus in details[0] if details else []:
        held[ip] += len(gpus)
    return {
        "name": name,
        "user": record["user"] if isinstance(record.get("user"), str) else "",
        "status": record["status"],
        "created": created,
        "started": spans[0][0] if spans else None,
        "deleted": spans[-1][1] if spans else None,
        "details": details,
        "first": {ip: n for ip, n in held.items() if n} if attempts else None,
    }


def _time(record: dict[str, Any], key: str) -> float | None:
    text = record.get(key)
    if text in (None, "", "None"):
        return None
    try:
        return (datetime.strptime(text, TIME) - EPOCH).total_seconds()
    except (TypeError, ValueError):
        raise _BadError(f"{key} is not a time such as 2017-10-07 01:11:39", text) from None


def _detail(attempt: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Servers of an attempt and the GPUs that it had there."""
    for part in attempt.get("detail") or []:
        ip, gpus = (part.get("ip"), part.get("gpus")) if isinstance(part, dict) else (None, None)
        if not isinstance(ip, str) or not isinstance(gpus, list):
            raise _BadError("detail is not a list of servers with their GPUs", part)
        yield ip, [str(gpu) for gpu in gpus]

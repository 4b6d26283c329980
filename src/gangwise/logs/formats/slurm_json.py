"""Jobs of Slurm as JSON: ``sacct --json`` (21.08 and later), and ``squeue --json`` of a moment.

From 23.02 on numbers are ``{"set": …, "infinite": …, "number": …}`` and states are lists; both
are read. https://slurm.schedmd.com/rest_api.html
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.logs.io.reading import RowAccount, Stage
from gangwise.logs.io.text import beginning, read_records
from gangwise.notation.slurm import YEAR

NOT_OVER = ("RUNNING", "SUSPENDED", "PENDING", "COMPLETING", "CONFIGURING", "STOPPED")
"""States of jobs whose end is to come."""


def read_sacct_json(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
    """Allocations of a JSON document of sacct or squeue, its stage, digest and notes."""
    found = read_records(file, "jobs")
    moment = re.search(r'"last_update":\s*(?:\{[^{}]*"number":\s*)?(\d+)', beginning(file))
    now = float(moment[1]) if moment else None
    account, rows, steps = RowAccount(file, strict), [], 0
    for row, record in enumerate(found.records, 1):
        try:
            job = _queued(record, now) if "submit_time" in record else _job(record)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            missing = error if isinstance(error, _MissingError) else "fields of a job"
            account.refuse(row, f"the record has no usable {missing}")
            continue
        held = record.get("steps")
        steps += len(held) if isinstance(held, list) else 0
        rows.append({"row": row, **job})
    account.require(len(rows), "job")
    texts = [
        "name",
        "user",
        "status",
        "req",
        "alloc",
        "memory",
        "hosts",
        "partition",
        "qos",
        "account",
        "application",
    ]
    texts += ["features", "line"]
    schema = {
        "row": pl.Int64,
        "nodes": pl.Int64,
        **dict.fromkeys(["submit", "start", "end", "elapsed", "limit", "eligible"], pl.Float64),
        **dict.fromkeys(texts, pl.String),
    }
    notes = [f"{steps} steps are inside their jobs, and not read"] if steps else []
    stage = account.stage(file.name, len(found.records))
    return pl.DataFrame(rows, schema=schema), (stage,), {file.name: found.digest}, notes


class _MissingError(ValueError): ...


def _job(record: dict[str, Any]) -> dict[str, Any]:
    time, lists = record["time"], record["tres"]
    submit = _number(time.get("submission"))
    if not submit:
        raise _MissingError("time.submission")
    state = (record.get("state") or {}).get("current") or ""
    memory = (record.get("required") or {}).get("memory")
    limit = _limit(time.get("limit"))
    return {
        "name": _name(record),
        "user": str(record.get("user") or (record.get("association") or {}).get("user") or ""),
        "status": "+".join(state) if isinstance(state, list) else str(state).split(" ")[0],
        "submit": submit,
        "start": _number(time.get("start")) or None,
        "end": _number(time.get("end")) or None,
        "eligible": _number(time.get("eligible")) or None,
        "features": str(record.get("constraints") or ""),
        "line": str(record.get("submit_line") or ""),
        "req": _tres(lists.get("requested")),
        "alloc": _tres(lists.get("allocated")),
        "memory": f"{memory:d}" if isinstance(memory, int) and 0 < memory < 2**62 else "",
        "nodes": int(_number(record.get("allocation_nodes")) or 0) or None,
        "hosts": str(record.get("nodes") or ""),
        "elapsed": _number(time.get("elapsed")),
        "limit": limit,
        "partition": str(record.get("partition") or ""),
        "qos": str(record.get("qos") or ""),
        "account": str(record.get("account") or ""),
        "application": str(record.get("name") or ""),
    }


WORDS_OF_SQUEUE = {
    "tasks": "ntasks",
    "cpus_per_task": "cpus-per-task",
    "tasks_per_node": "ntasks-per-node",
    "nice": "nice",
    "required_nodes": "nodelist",
    "excluded_nodes": "exclude",
    "dependency": "dependency",
    "licenses": "licenses",
    "resv_name": "reservation",
}
"""Fields of a job of ``squeue --json`` that are options of sbatch."""


def _queued(record: dict[str, Any], now: float | None) -> dict[str, Any]:
    """A job of ``squeue --json``; one that waits has no start, and one that runs no end.

    Options are said in the words of sbatch. ``now`` is the moment of the listing.
    """
    submit = _number(record["submit_time"])
    if not submit:
        raise _MissingError("submit_time")
    told = record.get("job_state") or ""
    status = "+".join(told) if isinstance(told, list) else str(told)
    waits, over = "PENDING" in status, not any(state in status for state in NOT_OVER)
    start = None if waits else _number(record.get("start_time")) or None
    hosts = str(record.get("nodes") or "")
    requested = str(record.get("tres_req_str") or "")
    asked = re.search(r"\bnode=(\d+)", requested)  # the number that squeue shows is a guess
    count, high = (int(_number(record.get(name)) or 0) for name in ("node_count", "max_nodes"))
    low = int(asked[1]) if asked else count
    words = [f"--nodes={low}-{high}"] if high else []
    for name, option in WORDS_OF_SQUEUE.items():
        held = record.get(name)
        text = held if isinstance(held, str) else f"{_number_or_none(held):.0f}"
        text = re.sub(r"\([^()]*\)", "", text)  # of a dependency: whether it is fulfilled
        words += [f"--{option}={text}"] if text not in ("", "0", "nan") else []
    shared = str([record.get("exclusive"), record.get("shared")]).lower()
    if re.search(r"'(exclusive|true|none)'", shared):  # shared with none, as 22.05 says it
        words.append("--exclusive")
    limit = _limit(record.get("time_limit"))
    return {
        "name": _name(
            {
                "job_id": record.get("job_id"),
                "array": {
                    "job_id": record.get("array_job_id"),
                    "task_id": record.get("array_task_id"),
                    "task": record.get("array_task_string"),
                },
                "het": {
                    "job_id": record.get("het_job_id"),
                    "job_offset": record.get("het_job_offset"),
                },
            }
        ),
        "user": str(record.get("user_name") or ""),
        "status": status,
        "submit": submit,
        "start": start,
        "end": _number(record.get("end_time")) or None if over else None,
        "eligible": _number(record.get("eligible_time")) or None,
        "features": str(record.get("features") or ""),
        "line": " ".join(["sbatch", *words]),
        "req": requested,
        "alloc": "" if waits else str(record.get("tres_alloc_str") or ""),
        "memory": "",
        "nodes": (low if waits else count) or None,
        "hosts": "" if waits else hosts,
        "elapsed": now - start if now and start and not over else None,
        "limit": limit,
        "partition": str(record.get("partition") or ""),
        "qos": str(record.get("qos") or ""),
        "account": str(record.get("account") or ""),
        "application": str(record.get("name") or ""),
    }


def _number_or_none(held: Any) -> float:
    """A number of JSON, which may be below 0; NaN where there is none."""
    if isinstance(held, int | float) and not isinstance(held, bool):
        return float(held)
    try:
        found = _number(held)
    except _MissingError:
        found = None
    return math.nan if found is None else found


def _limit(minutes: Any) -> float | None:
    """Seconds of a limit in minutes, a year for none."""
    if isinstance(minutes, dict) and minutes.get("infinite"):
        return YEAR
    number = _number(minutes)
    return None if number is None else 60 * number


def _name(record: dict[str, Any]) -> str:
    """The id as sacct prints it: ``7``, ``7_3`` of an array, ``7+1`` of a heterogeneous job."""
    array, het = record.get("array") or {}, record.get("het") or {}
    if _number(array.get("job_id")):
        task = _number(array.get("task_id"))
        of = int(_number(array["job_id"]) or 0)
        if task is not None:
            return f"{of}_{int(task)}"
        if array.get("task"):
            return f"{of}_[{array['task']}]"
    if _number(het.get("job_id")):
        offset = int(_number(het.get("job_offset")) or 0)
        return f"{int(_number(het['job_id']) or 0)}+{offset}"
    job = _number(record.get("job_id"))
    if not job:
        raise _MissingError("job_id")
    return str(int(job))


def _number(held: Any) -> float | None:
    if isinstance(held, dict):
        held = held.get("number") if held.get("set") and not held.get("infinite") else None
    if held is None:
        return None
    if isinstance(held, bool) or not isinstance(held, int | float) or not 0 <= held < 2**53:
        raise _MissingError(f"number where {held!r:.20} is")
    return float(held)


def _tres(items: Any) -> str:
    found = []
    for item in items or []:
        count = _number(item.get("count"))
        if count is not None and item["type"] != "energy":
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            unit = "M" if name == "mem" else ""
            found.append(f"{name}={count:.0f}{unit}")
    return ",".join(found)

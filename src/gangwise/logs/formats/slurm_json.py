"""Jobs of Slurm as JSON: ``sacct --json`` (21.08 and later), and ``squeue --json`` of a moment.

https://slurm.schedmd.com/rest_api.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.logs.io.reading import MALFORMED, RowAccount, Stage
from gangwise.logs.io.text import beginning, read_records, without_collecting
from gangwise.notation import slurm as notation
from gangwise.notation import units

NOT_OVER = ("RUNNING", "SUSPENDED", "PENDING", "COMPLETING", "CONFIGURING", "STOPPED")
"""States of jobs whose end is to come."""
TEXTS = {
    "partition": "partition",
    "qos": "qos",
    "account": "account",
    "application": "name",
    "hosts": "nodes",
    "user": "user",
    "features": "constraints",
    "line": "submit_line",
}
"""Columns of text, and their fields of sacct."""
COLUMNS = {
    "row": pl.Int64,
    "nodes": pl.Int64,
    **dict.fromkeys(("submit", "start", "end", "elapsed", "limit", "eligible"), pl.Float64),
    **dict.fromkeys(("name", "status", "req", "alloc", "memory", *TEXTS), pl.String),
}


@without_collecting()
def read_sacct_json(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
    """Allocations of a JSON document of sacct or squeue, its stage, digest and notes."""
    document = read_records(file, "jobs")
    # Versions write it as a number, or as an object with a number in it.
    moment = re.search(r'"last_update":\s*(?:\{[^{}]*"number":\s*)?(\d+)', beginning(file))
    listed_at = float(moment[1]) if moment else None
    account, rows, steps = RowAccount(file, strict), [], 0
    for row, record in enumerate(document.records, 1):
        try:
            # Both documents have a list `jobs`; only squeue's has flat names of times.
            job = _queued(record, listed_at) if "submit_time" in record else _job(record)
        except MALFORMED as error:
            missing = error if isinstance(error, _MissingError) else "fields of a job"
            account.refuse(row, f"the record has no usable {missing}")
            continue
        of_job = record.get("steps")
        steps += len(of_job) if isinstance(of_job, list) else 0
        rows.append({"row": row, **job})
    account.require(len(rows), "job")
    notes = [f"{steps} steps are inside their jobs, and not read"] if steps else []
    stage = account.stage(file.name, len(document.records))
    return pl.DataFrame(rows, schema=COLUMNS), (stage,), {file.name: document.digest}, notes


class _MissingError(ValueError): ...


def _texts(record: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    return {column: str(record.get(field) or "") for column, field in fields.items()}


def _times(record: Mapping[str, Any], suffix: str, submit: str) -> dict[str, float | None]:
    """Times of a job; 0 stands for what has not come."""
    names = ("start", "end", "eligible")
    times = {name: _number(record.get(f"{name}{suffix}")) or None for name in names}
    label = submit if suffix else f"time.{submit}"
    return {"submit": _needed(record.get(submit), label), **times}


def _needed(value: Any, name: str) -> float:
    if not (number := _number(value)):
        raise _MissingError(name)
    return number


def _status(states: Any) -> str:
    # Older versions give one text, newer ones a list of states.
    return "+".join(states) if isinstance(states, list) else str(states or "").split(" ")[0]


def _job(record: dict[str, Any]) -> dict[str, Any]:
    time, lists = record["time"], record["tres"]
    job = _texts(record, TEXTS) | _times(time, "", "submission")
    memory = (record.get("required") or {}).get("memory")
    job["user"] = job["user"] or str((record.get("association") or {}).get("user") or "")
    return {
        **job,
        "name": _name(record, record.get("array") or {}, record.get("het") or {}),
        "status": _status((record.get("state") or {}).get("current")),
        "req": _tres(lists.get("requested")),
        "alloc": _tres(lists.get("allocated")),
        # Above 2^62 Slurm says that there is no number, or that it is of each core.
        "memory": f"{memory:d}" if isinstance(memory, int) and 0 < memory < 2**62 else "",
        # The number of nodes of a job that waits is 0.
        "nodes": int(_number(record.get("allocation_nodes")) or 0) or None,
        "elapsed": _number(time.get("elapsed")),
        "limit": _limit(time.get("limit")),
    }


def _queued(record: dict[str, Any], now: float | None) -> dict[str, Any]:
    """A job of ``squeue --json``; one that waits has no start, and one that runs no end.

    Options are said in the words of sbatch. ``now`` is the moment of the listing.
    """
    job = _texts(record, TEXTS | {"user": "user_name", "features": "features"})
    job |= _times(record, "_time", "submit_time")
    status = _status(record.get("job_state"))
    waits, over = "PENDING" in status, not any(state in status for state in NOT_OVER)
    requested = str(record.get("tres_req_str") or "")
    nodes_asked = re.search(r"\bnode=(\d+)", requested)  # the number that squeue shows is a guess
    count, high = (int(_number(record.get(name)) or 0) for name in ("node_count", "max_nodes"))
    # max_nodes is 0 where no upper bound was asked for.
    low = int(nodes_asked[1]) if nodes_asked else count
    # The start of a job that waits is a forecast, and the end of one that runs its limit.
    job |= {"start": None, "hosts": ""} if waits else {}
    job |= {} if over else {"end": None}
    start = job["start"]
    # The names differ from sacct's: they are brought into one form.
    array = {key: record.get(f"array_{key}") for key in ("job_id", "task_id")}
    array["task"] = record.get("array_task_string")
    nodes = [f"--nodes={low}-{high}"] if high else []
    het = {key: record.get(f"het_{key}") for key in ("job_id", "job_offset")}
    return {
        **job,
        "name": _name(record, array, het),
        "status": status,
        "line": " ".join(["sbatch", *nodes, *_options(record)]),
        "req": requested,
        "alloc": "" if waits else str(record.get("tres_alloc_str") or ""),
        "memory": "",
        "nodes": (low if waits else count) or None,
        # At the moment of the listing a job that runs has run since its start.
        "elapsed": now - start if now and start and not over else None,
        "limit": _limit(record.get("time_limit")),
    }


def _options(record: Mapping[str, Any]) -> list[str]:
    """Options of sbatch for what a job of squeue asked for."""
    options = []
    for name, option in notation.WORDS["options"]["of_squeue"].items():
        value = notation.json_value(record.get(name))
        if isinstance(value, str):
            text = re.sub(r"\([^()]*\)", "", value)  # of a dependency: whether it is fulfilled
        else:  # niceness may be below 0
            text = f"{value:.0f}" if isinstance(value, int | float) else ""
        options += [f"--{option}={text}"] if text not in ("", "0", "inf", "nan") else []
    # Words for it changed between versions; any of them counts.
    shared = str([record.get("exclusive"), record.get("shared")]).lower()
    if re.search(r"'(exclusive|true|none)'", shared):  # shared with none, as 22.05 says it
        options.append("--exclusive")
    return options


def _limit(minutes: Any) -> float | None:
    """Seconds of a limit in minutes, a year for none."""
    # Infinity is how UNLIMITED is read.
    if notation.json_value(minutes) == math.inf:
        return units.YEAR
    number = _number(minutes)
    return None if number is None else 60 * number


def _name(record: Mapping[str, Any], array: Mapping[str, Any], het: Mapping[str, Any]) -> str:
    """The id as sacct prints it: ``7``, ``7_3`` of an array, ``7+1`` of a heterogeneous job."""
    # Of a job of no array these are 0 or null.
    if together := int(_number(array.get("job_id")) or 0):
        if (task := _number(array.get("task_id"))) is not None:
            return f"{together}_{int(task)}"
        if array.get("task"):
            return f"{together}_[{array['task']}]"
    if together := int(_number(het.get("job_id")) or 0):
        return f"{together}+{int(_number(het.get('job_offset')) or 0)}"
    return str(int(_needed(record.get("job_id"), "job_id")))


def _number(value: Any) -> float | None:
    value = notation.json_value(value)
    if value is None or value == math.inf:
        return None
    # bool is an int in Python; and beyond 2^53 a float is not exact.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise _MissingError(f"number where {value!r:.20} is")
    return float(value)


def _tres(items: Any) -> str:
    texts = []
    for item in items or []:
        count = _number(item.get("count"))
        # Energy is used and not asked for.
        if count is not None and item["type"] != "energy":
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            # Memory is counted in MiB there.
            texts.append(f"{name}={count:.0f}{'M' if name == 'mem' else ''}")
    return ",".join(texts)

"""Jobs of ``sacct --json``, in the columns that the text listing is read into.

Structures differ by version (21.08 to 24.11 and the data parsers in between); described at
https://slurm.schedmd.com/rest_api.html under the job of the accounting database. What is needed
of a job is the same in all: ids, times, TRES lists. A record without it is bad.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangwise.traces.fidelity import Stage
from gangwise.traces.json_records import Account, beginning, read_records

if TYPE_CHECKING:
    import polars as pl


def is_sacct_json(file: Path) -> bool:
    """Whether a file begins as the JSON of sacct does; that of squeue has no submission."""
    start = beginning(file)
    return start.startswith("{") and '"jobs"' in start and '"submission"' in start


def read_sacct_json(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
    """Allocations of a JSON document, its stage, digest and notes."""
    import polars as pl

    found = read_records(file, "jobs")
    account, rows, ids, steps = Account(file, strict), [], set(), 0
    for row, record in enumerate(found.records, 1):
        try:
            job = _job(record)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            account.refuse(row, f"the record has no usable {_at_fault(error)}")
            continue
        if job["name"] in ids:
            account.refuse(row, "job_id was used before", job["name"])
            continue
        ids.add(job["name"])
        held = record.get("steps")
        steps += len(held) if isinstance(held, list) else 0
        rows.append({"row": row, **job})
    account.require(len(rows), "job")
    texts = ["name", "user", "status", "req", "alloc", "memory", "hosts"]
    schema = {
        "row": pl.Int64,
        "nodes": pl.Int64,
        **dict.fromkeys(["submit", "start", "end"], pl.Float64),
        **dict.fromkeys(texts, pl.String),
    }
    notes = [f"{steps} steps are inside their jobs, and not read"] if steps else []
    stage = account.stage(file.name, len(found.records))
    return pl.DataFrame(rows, schema=schema), (stage,), {file.name: found.digest}, notes


class _MissingError(ValueError):
    """A value that a job must have."""


def _at_fault(error: Exception) -> str:
    return str(error) if isinstance(error, _MissingError) else "fields of a job"


def _job(record: dict[str, Any]) -> dict[str, Any]:
    time, lists = record["time"], record["tres"]
    submit = _number(time.get("submission"))
    if not submit:
        raise _MissingError("time.submission")
    state = (record.get("state") or {}).get("current") or ""
    memory = (record.get("required") or {}).get("memory")
    return {
        "name": _name(record),
        "user": str(record.get("user") or (record.get("association") or {}).get("user") or ""),
        "status": "+".join(state) if isinstance(state, list) else str(state).split(" ")[0],
        "submit": submit,
        "start": _number(time.get("start")) or None,
        "end": _number(time.get("end")) or None,
        "req": _tres(lists.get("requested")),
        "alloc": _tres(lists.get("allocated")),
        "memory": f"{memory:d}" if isinstance(memory, int) and 0 < memory < 2**62 else "",
        "nodes": int(_number(record.get("allocation_nodes")) or 0) or None,
        "hosts": str(record.get("nodes") or ""),
    }


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
    """A number, plain or with a mark whether it is set."""
    if isinstance(held, dict):
        held = held.get("number") if held.get("set") and not held.get("infinite") else None
    if held is None:
        return None
    if isinstance(held, bool) or not isinstance(held, int | float) or not 0 <= held < 2**53:
        raise _MissingError(f"number where {held!r:.20} is")
    return float(held)


def _tres(items: Any) -> str:
    """A TRES list as sacct writes it in text."""
    found = []
    for item in items or []:
        count = _number(item.get("count"))
        if count is not None and item["type"] != "energy":
            name = f"{item['type']}/{item['name']}" if item.get("name") else item["type"]
            unit = "M" if name == "mem" else ""
            found.append(f"{name}={count:.0f}{unit}")
    return ",".join(found)

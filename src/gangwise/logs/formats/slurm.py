"""Slurm accounting (``slurm-sacct.toml``): what ``sacct`` prints, as text or as JSON.

A record of an allocation is a run of a job; steps (``123.batch``) are counted and left out. Of a
job that was requeued each run comes after the one before it. What a job asks for is in
:mod:`~gangwise.logs.formats.slurm_submit`.

JSON is that of ``sacct --json`` (21.08 and later), and of ``squeue --json`` of a moment:
https://slurm.schedmd.com/rest_api.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from gangwise import notation
from gangwise.core.errors import TraceError
from gangwise.core.settings import UNIX, Clock
from gangwise.logs import reading
from gangwise.logs import text as file_text
from gangwise.logs.format import FOR_PEOPLE, declared, holds, is_for_people, only_file, reads_as
from gangwise.logs.formats.slurm_submit import TaskRequest, request, with_array_tasks, with_terms
from gangwise.logs.formats.tabular import TableMapping
from gangwise.logs.tables import NO_SERVERS, Reader, Tables, server_table

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


@file_text.without_collecting()
def read_sacct_json(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[reading.Stage, ...], dict[str, str], list[str]]:
    """Allocations of a JSON document of sacct or squeue, its stage, digest and notes."""
    document = file_text.read_records(file, "jobs")
    # Versions write it as a number, or as an object with a number in it.
    moment = re.search(
        r'"last_update":\s*(?:\{[^{}]*"number":\s*)?(\d+)', file_text.beginning(file)
    )
    listed_at = float(moment[1]) if moment else None
    account, rows, steps = reading.RowAccount(file, strict), [], 0
    for row, record in enumerate(document.records, 1):
        try:
            # Both documents have a list `jobs`; only squeue's has flat names of times.
            job = _queued(record, listed_at) if "submit_time" in record else _job(record)
        except reading.MALFORMED as error:
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
        return notation.YEAR
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


NAME = "slurm-sacct"
SACCT, LISTING = declared(NAME).table("jobs").schema, declared(NAME).mapping["listing"]
COMMAND, OPEN_XDMOD = LISTING["command"], LISTING["open_xdmod"]


def listing_schema(columns: str) -> reading.Schema:
    """The schema of a listing without a header, from the names of its columns in their order.

    Raises TraceError when a column is missing without which nothing can be made of the listing.
    """
    names = [name.strip() for name in columns.replace(",", "|").split("|") if name.strip()]
    _require(names, "the list of columns")
    # Columns that are not read still take their place in a row.
    at = {place: name for name, place in SACCT.place(names).items()}
    column_of = {column.name: column for column in SACCT.columns}
    every = (
        column_of[at[i]]
        if i in at
        else reading.Column(f"column {i + 1}, {name}", number=False, empty=True, needed=False)
        for i, name in enumerate(names)
    )
    return replace(SACCT, columns=tuple(every), header=False)


def is_listing(file: Path, columns: str = OPEN_XDMOD) -> bool:
    """Whether the first line names columns of sacct, with bars between them; or has these."""
    header = file_text.beginning(file).split("\n", 1)[0]
    return _names_columns(header) or reads_as(listing_schema(columns), [header])


def looks_like_one(lines: Sequence[str]) -> bool:
    """Whether lines have the fields of sacct, in any order: a job, a state, dates, a TRES list.

    >>> looks_like_one(["7|ann|COMPLETED|2025-01-06T08:10:00|billing=8,cpu=8,node=1"])
    True
    """
    patterns = {column.name: column.pattern for column in SACCT.columns}
    kinds = [patterns["JobID"], patterns["Submit"], "[A-Z_]{4,}(?: by .*)?"]
    kinds.append("(?:billing|cpu|mem|node|gres/[^=]+)=[^,]+(?:,.*)?")
    row = next((line for line in lines if line), "")
    fields = row.split(separator_of(row))
    return all(any(re.fullmatch(kind, field) for field in fields) for kind in kinds)


def separator_of(first: str) -> str:
    """The character between the names of columns; a bar where the line names none.

    >>> separator_of("JobID^User^Submit"), separator_of("12|a|b")
    ('^', '|')
    """
    # The character that stands between JobID and its neighbour.
    match = re.search(r"\bJobID(?:Raw)?([^\w\s(\"])\w|\w([^\w\s(\"])JobID(?:Raw)?\b", first)
    return (match[1] or match[2]) if match else "\t" if "\t" in first else "|"


class RepairedRows(file_text.Blocks):
    """The blocks of a listing in which rows with too many separators are repaired if possible.

    The surplus separators are taken to be inside the one field for which every field then matches
    its column. With several such fields, or none, the row stays as it is and counts as bad.
    """

    def __init__(self, path: Path, schema: reading.Schema, names: Sequence[str]):
        super().__init__(path)
        self.schema, self.repaired = schema, 0
        place = {at: name for name, at in schema.place(names).items()}
        column_of = {
            # A column without a pattern of its own may have one for this purpose alone.
            c.name: replace(c, pattern=c.pattern or LISTING["patterns"].get(c.name, ""))
            for c in schema.columns
        }
        self.columns = [column_of.get(place.get(i, "")) for i in range(len(names))]

    def __iter__(self) -> Iterator[file_text.Block]:
        mark, usual = self.schema.separator, len(self.columns) - 1
        for block in super().__iter__():
            # As many separators as there should be: nothing to repair, without looking at a line.
            if block.data.count(mark.encode()) == block.rows * usual:
                yield block
                continue
            # Bytes that are not UTF-8 must come out as they went in.
            lines = block.data.decode("utf-8", "surrogateescape").split("\n")
            for n, line in enumerate(lines):
                if line.count(mark) > usual and '"' not in line:
                    lines[n] = self._repair(line.split(mark), mark)
            data = "\n".join(lines).encode("utf-8", "surrogateescape")
            yield block._replace(data=data)

    def _repair(self, parts: list[str], mark: str) -> str:
        surplus, fits = len(parts) - len(self.columns), []
        for n, column in enumerate(self.columns):
            # A field that must look like something has no separator inside.
            if column is not None and column.pattern:
                continue
            inside = mark.join(parts[n : n + surplus + 1])
            row = [*parts[:n], inside, *parts[n + surplus + 1 :]]
            if all(c is None or holds(c, field.strip()) for c, field in zip(self.columns, row)):
                fits.append((n, inside))
        # Two ways to repair would be a guess.
        if len(fits) != 1:
            return mark.join(parts)
        self.repaired, [(n, inside)] = self.repaired + 1, fits
        # In quotes, so that the CSV reader takes it as one field.
        return mark.join([*parts[:n], f'"{inside}"', *parts[n + surplus + 1 :]])


def _names_columns(first: str) -> bool:
    fields = [field.strip() for field in file_text.split_line(first, separator_of(first)) or []]
    names = ("JobID", "JobIDRaw"), ("Submit", "Start", "End", "State", "ReqTRES", "AllocTRES")
    return all(any(name in fields for name in group) for group in names)


def read_listing(
    file: Path, strict: bool, columns: str = OPEN_XDMOD
) -> tuple[pl.DataFrame, tuple[reading.Stage, ...], dict[str, str], list[str]]:
    """Allocations of a text listing, its stages, digest and notes."""
    notes: list[str] = []
    header, schema = file_text.beginning(file).split("\n", 1)[0], listing_schema(columns)
    names = [name.strip() for name in columns.replace(",", "|").split("|") if name.strip()]
    if _names_columns(header):
        schema = replace(SACCT, separator=separator_of(header))
        names = [name.strip() for name in file_text.split_line(header, schema.separator) or []]
        _require(names, "the listing", file)
    blocks = RepairedRows(file, schema, names)
    table = reading.read_table(file, schema, strict=strict, blocks=blocks)
    frame = table.frame
    if blocks.repaired:
        text = f"{blocks.repaired} rows have {schema.separator} inside a field"
        notes.append(f"{text}: the only one in which all others are as their columns ask")
    columns_here = {*frame.columns}
    texts = [column.name for column in SACCT.columns if not column.number]
    # A column that the listing lacks is empty, as one that it has may be.
    frame = frame.with_columns(pl.lit("").alias(name) for name in texts if name not in columns_here)
    numbers = [column.name for column in SACCT.columns if column.number]
    blank = (pl.lit(None, pl.Float64).alias(name) for name in numbers if name not in columns_here)
    frame = frame.with_columns(blank)
    # Old versions of Slurm count in columns of their own.
    if not {"ReqTRES", "AllocTRES"} & columns_here:
        frame = frame.with_columns(ReqTRES=_in_words("Req"), AllocTRES=_in_words("Alloc"))
    if {"TotalCPU", "MaxRSS", "TRESUsageInTot"} & columns_here:
        frame = frame.with_columns(**_used())
    # Steps are parts of jobs: 123.batch, 123.0.
    step = pl.col("JobID").str.contains(".", literal=True)
    frame, steps = reading.leave_out("allocations", frame, [(reading.STEP, step)])
    frame = frame.with_columns(
        _seconds(frame[name]) for name in ("Submit", "Eligible", "Start", "End")
    )
    # Elapsed leaves out the time in which a job was suspended.
    ran = pl.coalesce(notation.clock(pl.col("Elapsed")), "ElapsedRaw")
    # A job that still runs has no end, though its elapsed time is told.
    over = "End" not in columns_here or ~pl.col("State").is_in(NOT_OVER)
    end = pl.coalesce("End", pl.when(over).then(pl.col("Start") + ran))
    nodes = pl.col("NNodes").cast(pl.Int64)
    frame = frame.select(
        "row",
        name="JobID",
        user="User",
        status=pl.col("State").str.split(" ").list.first(),
        submit="Submit",
        start="Start",
        end=end,
        req="ReqTRES",
        alloc="AllocTRES",
        memory="ReqMem",
        nodes=pl.when(nodes > 0).then(nodes),
        hosts="NodeList",
        elapsed=ran,
        limit=pl.coalesce(
            # A year stands for no limit: longer than any job.
            pl.when(pl.col("Timelimit") == "UNLIMITED").then(notation.YEAR),
            notation.clock(pl.col("Timelimit")),
            60.0 * pl.col("TimelimitRaw").cast(pl.Float64, strict=False),
        ),
        eligible="Eligible",
        features="Constraints",
        line="SubmitLine",
        **{name: name for name in frame.columns if name.startswith("used_")},
        **{name: pl.col(column) for column, name in LISTING["types"].items()},
    )
    return frame, (table.stage, steps), {file.name: table.digest}, notes


def _used() -> dict[str, pl.Expr]:
    """Cores, GiB and GPUs that jobs used, of their own rows or the steps that used most."""
    job, in_all = pl.col("JobID").str.split(".").list.first(), pl.col("TRESUsageInTot")
    # ElapsedRaw is in seconds, for listings without the clock text.
    ran = pl.coalesce(notation.clock(pl.col("Elapsed")), "ElapsedRaw")
    texts = in_all.str.extract(r"\bmem=([^,]+)"), pl.col("MaxRSS")
    # sacct writes K for KiB, without the i that the parser of quantities needs.
    sizes = [notation.quantity(text.str.replace(r"([KMGTP])$", "${1}i")) / 2**30 for text in texts]
    percent = in_all.str.extract(r"\bgres/gpuutil=(\d+(?:\.\d+)?)").cast(pl.Float64)
    cores = notation.clock(pl.col("TotalCPU")) / pl.when(ran > 0).then(ran)
    used = {"used_cpu": cores, "used_mem": pl.coalesce(sizes), "used_gpu": percent / 100}
    # Steps use; the job's own row often says nothing.
    return {name: amount.max().over(job) for name, amount in used.items()}


def _require(names: Sequence[str], where: str, file: Path | None = None) -> None:
    places = SACCT.place(names)
    missing = [c.name for c in SACCT.columns if c.needed and c.name not in places]
    # Without any of these nobody knows how long a job ran.
    if not {"End", "Elapsed", "ElapsedRaw"} & {*names}:
        missing.append("End")
    if not {"ReqTRES", "AllocTRES"} & set(names) and not {"NNodes", "NCPUS"} & places.keys():
        missing.append("ReqTRES")
    if missing:
        raise TraceError(
            f"{where} of sacct has no {' and no '.join(missing)}; run {COMMAND}",
            file,
            None if file is None else 1,
        )


FORMAT = declared(NAME)
# Known both with a header and in the order that Open XDMoD writes.
_LISTING = replace(FORMAT.table("jobs"), also=(listing_schema(OPEN_XDMOD),))
FORMAT = replace(FORMAT, tables=(_LISTING, FORMAT.table("nodes")))
JOBS = TableMapping(FORMAT.mapping["jobs"])


def _is_json(file: Path) -> bool:
    return FORMAT.table("jobs").is_begun(file_text.beginning(file))


def _in_words(kind: str) -> pl.Expr:
    """A TRES list of what columns of older versions count; a node is a core where none does.

    ``AllocGRES`` and ``ReqGRES`` are of each node.
    """
    nodes = pl.col("NNodes").cast(pl.Int64).fill_null(0)
    wanted, second = ("ReqCPUS", "NCPUS") if kind == "Req" else ("NCPUS", "ReqCPUS")
    cores = pl.coalesce(wanted, second, pl.when(nodes > 0).then(nodes)).cast(pl.Int64)
    per_node = pl.col(f"{kind}GRES").str.extract(r"gpu:(?:[^:,()]+:)?(\d+)").cast(pl.Int64)
    text = pl.format("cpu={}", cores)
    text += pl.when(nodes > 0).then(pl.format(",node={}", nodes)).otherwise(pl.lit(""))
    gpus = pl.format(",gres/gpu={}", per_node * nodes.clip(1))
    return (text + pl.when(per_node > 0).then(gpus).otherwise(pl.lit(""))).fill_null("")


DATE = "%Y-%m-%dT%H:%M:%S"


def _seconds(times: pl.Series) -> pl.Series:
    """Seconds since 1970 of a local time, as if it were UTC; of one with its offset from UTC; or
    of seconds since 1970.

    >>> _seconds(pl.Series(["1970-01-01T00:01:00", "1970/01/01-01:01:00+01:00", "60"])).to_list()
    [60.0, 60.0, 60.0]
    """
    times = times.cast(pl.String)
    number = times.cast(pl.Float64, strict=False)
    # Zero stands for a time that has not come.
    number = number.to_frame().select(pl.when(pl.first() > 0).then(pl.first())).to_series()
    # One form fits nearly all; the costly expression is for the rest.
    parsed = times.str.to_datetime(DATE, strict=False, time_unit="ms").dt.epoch("s")
    if (parsed.is_null() & number.is_null() & times.str.contains(r"^\d")).any():
        parts = times.str.extract_groups(
            r"^(\d{4})[-/](\d\d)[-/](\d\d)[T -](\d\d:\d\d:\d\d)(?:([+-])(\d\d):?(\d\d)|Z)?$"
        ).struct.unnest()
        date = pl.format("{}-{}-{}T{}", *parts.columns[:4])
        date = date.str.to_datetime(DATE, strict=False, time_unit="ms").dt.epoch("s")
        hours, minutes = (pl.col(c).cast(pl.Int64).fill_null(0) for c in parts.columns[5:])
        ahead = pl.when(pl.col(parts.columns[4]) == "-").then(-1).otherwise(1)
        # Where clocks are ahead of UTC, the same text is an earlier instant.
        parsed = parts.select(date - ahead * (3600 * hours + 60 * minutes)).to_series()
    parsed = parsed.cast(pl.Float64)
    return pl.select(pl.coalesce(parsed, number)).to_series().alias(times.name)


class SlurmSacct(Reader):
    """Reader of ``sacct`` output, with the nodes of ``scontrol show node`` where they are given.

    The jobs of several files in a folder (by month, say) are put together. A job is its number
    and its submission; of its records without a run the last is used, and of those that ran each,
    one after the other. ``nodes`` is the output of ``scontrol show node`` (with or without
    ``-o``), by default the one file beside the jobs that is such; accounting lists none. ``tres``
    says what a job asks for: what it holds (``held``: ReqTRES, what AllocTRES has beyond that, and
    SubmitLine), ReqTRES alone (``requested``) or AllocTRES alone (``allocated``), in equal parts
    on its nodes. Where the one is empty, the other is taken, and the report says how often.
    ``columns`` are those of a listing without a header, as given to ``--format``.
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        nodes: Path | str | None = None,
        tres: str = "held",
        columns: str = OPEN_XDMOD,
        strict: bool = False,
    ):
        if tres not in ("held", "requested", "allocated"):
            raise TraceError(f"tres is {tres!r}; choose held, requested or allocated")
        super().__init__(path, strict=strict)
        self.nodes, self.tres = None if nodes is None else Path(nodes), tres
        self.columns = columns
        # Raises at once for columns that cannot be, rather than when files are read.
        listing_schema(columns)

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        path = Path(path)
        # Rows in an order that is not known are refused by the reader, which says what to do.
        unnamed = path.is_file() and looks_like_one(file_text.first_lines(path, 20))
        return unnamed or any(_is_json(file) or is_listing(file) for file in _files(path))

    def _read(self) -> Tables:
        files = [
            file
            for file in _files(self.source.path)
            if _is_json(file) or is_listing(file, self.columns)
        ]
        if not files:
            candidates = _files(self.source.path)
            for file in candidates:
                if is_for_people(file_text.first_lines(file, 2)):
                    raise TraceError(FOR_PEOPLE, file)
                if looks_like_one(file_text.first_lines(file, 20)):
                    raise TraceError(
                        "these look like rows of sacct without a header, in an order that is not "
                        f"known; name their columns: --set trace={NAME} --set columns=JobID,User,…",
                        file,
                    )
            names = ", ".join(f.name for f in candidates[:12]) or "nothing"
            raise TraceError(
                f"no sacct output here; make it with {COMMAND} > jobs.txt; found {names}",
                self.source.path,
            )
        strict = self.source.strict
        raw, stages, digests, notes = self._all_files(files)
        file = files[0] if len(files) == 1 else self.source.path
        raw, stage = _usable(raw, file, strict)
        raw, unclear = _named_hosts(raw, file, strict)
        # The number of names, where no column gives it.
        hosts = pl.col("hosts").str.count_matches("|", literal=True).cast(pl.Int64) + 1
        raw = raw.with_columns(
            nodes=pl.coalesce("nodes", pl.when(pl.col("hosts") != "").then(hosts))
        )
        raw, named = with_terms(raw)
        # Of several partitions that a job asked for the first counts until it starts.
        raw = raw.with_columns(partition=pl.col("partition").str.split(",").list.first())
        if raw["name"].str.contains("+", literal=True).any():  # components start together
            raw = raw.with_columns(job=pl.col("name").str.replace(r"\+\d+", ""))
        start = float(raw["submit"].min())  # type: ignore[arg-type]  # a number: rows have times
        jobs, requests, request_notes = self._requests(raw, file)
        servers, node_stages, node_digests, about = self._nodes(jobs)
        every_stage = (*node_stages, *stages, stage, requests)
        notes = [*notes, *JOBS.notes(jobs), *unclear, *named, *request_notes, *about]
        digests = {**node_digests, **digests}
        # Local times are taken as they are printed: so are those of the site's own files.
        of_log = Clock(start, "UTC") if start > UNIX else None
        rows = JOBS.select(jobs)
        if (out := jobs["out_of_line"]).any():
            # The withdrawal of such a job tells nothing of the line.
            rows = rows.with_columns(deleted=pl.when(~out).then("deleted"))
            notes.append(f"{int(out.sum())} jobs never became eligible, and were never in line")
        return Tables(NAME, servers, rows, every_stage, digests, tuple(notes), clock=of_log)

    def _all_files(
        self, files: Sequence[Path]
    ) -> tuple[pl.DataFrame, tuple[reading.Stage, ...], dict[str, str], list[str]]:
        """Allocations of all files; rows are counted through them, in the order of their names."""
        strict, offset, listings = self.source.strict, 0, False
        frames, begins = [], []
        stages: list[reading.Stage] = []
        digests: dict[str, str] = {}
        notes: list[str] = []
        for file in files:
            if _is_json(file):
                raw, file_stages, digest, remarks = read_sacct_json(file, strict)
            else:
                raw, file_stages, digest, remarks = read_listing(file, strict, self.columns)
                listings = True
            notes += remarks
            # Rows are counted on, so that a row has one number in the account of all files.
            frames.append(raw.with_columns(pl.col("row") + offset))
            stages += [
                stage._replace(
                    dropped={text: (n, row + offset) for text, (n, row) in stage.dropped.items()}
                )
                for stage in file_stages
            ]
            digests |= digest
            begins.append(f"{file.name} from {offset + 1}")
            # One more than rows, for the header of the file.
            offset += file_stages[0].read + 1
        if listings:
            notes.append(
                "times are local times of the cluster; some that are compared across a change "
                "of the clocks are an hour off (SLURM_TIME_FORMAT=%s avoids it)"
            )
        every = with_array_tasks(pl.concat(frames, how="diagonal_relaxed"))
        if len(files) > 1:
            notes.append(f"rows are counted through the files: {', '.join(begins)}")
        if every.select("name", "submit").is_duplicated().any():
            # The same number and submission may be the same run in the listings of two months.
            # A run has a start and an end; of what has none, the last record says most.
            run = pl.when(pl.col("end").is_not_null()).then("start")
            ran = run.is_not_null().any().over("name", "submit")
            newest = pl.struct("name", "submit", run.alias("run")).is_last_distinct()
            every, repeated = reading.leave_out(
                "records", every, [(reading.EARLIER, ~newest | (ran & run.is_null()))]
            )
            stages.append(repeated)
        return every, tuple(stages), digests, notes

    def _requests(
        self, raw: pl.DataFrame, file: Path
    ) -> tuple[pl.DataFrame, reading.Stage, list[str]]:
        main, second = ("alloc", "req") if self.tres == "allocated" else ("req", "alloc")
        silent = (pl.col("req") != "") & ~pl.col("req").str.contains("gres/", literal=True)
        by_both = self.tres == "held"
        if by_both and raw["req"].str.contains("gres/gpu", literal=True).any():
            # Requests name GPUs here: others were given those of whole nodes, and asked for none.
            bare = pl.col("alloc").str.replace_all(r",?gres/gpu[^,]*", "")
            raw = raw.with_columns(alloc=pl.when(silent).then(bare).otherwise("alloc"))
        raw = raw.with_columns(
            gpus_given=silent & pl.col("alloc").str.contains("gres/gpu", literal=True) & by_both,
            other=(pl.col(main) == "") & (pl.col(second) != ""),
        )
        key = ["req", "alloc", "nodes", "memory", "sizes"]
        # Many jobs ask for the same: each kind is parsed once.
        kinds = raw.select(key).unique(maintain_order=True)
        parsed = [_request(self.tres, *row) for row in kinds.rows()]
        number, text = pl.Float64, pl.String
        dtypes = [number, number, number, text, pl.Int64, pl.Int64, text, pl.Boolean, text]
        names = ["cpu", "mem", "gpu", "models", "tasks", "per_node", "more", "beyond", "why"]
        kinds = kinds.hstack(pl.DataFrame(parsed, schema=dict(zip(names, dtypes)), orient="row"))
        # The left table keeps its order, and nulls are equal: nodes may be unknown.
        jobs = raw.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
        unclear = kinds["why"].drop_nulls().unique().to_list()
        rules = [(reason, pl.col("why") == reason) for reason in unclear]
        if self.source.strict:
            reading.refuse(file, jobs, rules)
        jobs, stage = reading.leave_out("requests", jobs, rules)
        if jobs.is_empty():
            raise TraceError(
                f"no job says what it asks for: {reading.reasons(stage.dropped)}; run {COMMAND}",
                file,
            )
        # Parts are not to be more than the whole: thousandths, as they are counted, rounded down.
        several = pl.col("per_node") != 1
        rounded = (
            # A crumb is added first, so that 0.3 is not rounded down to 0.299.
            pl.when(several).then((pl.col(c) * 1000 + 1e-6).floor() / 1000).otherwise(c).alias(c)
            for c in ("cpu", "mem")
        )
        jobs = jobs.with_columns(rounded)
        joint = pl.concat_list("terms", "more").list.eval(pl.element().filter(pl.element() != ""))
        jobs = jobs.with_columns(terms=joint.list.join(","))
        if not (jobs["terms"] != "").any():
            jobs = jobs.drop("terms")
        asking = TableMapping(FORMAT.mapping["requests"], {"tres": self.tres})
        return jobs, stage, asking.notes(jobs)

    def _nodes(
        self, jobs: pl.DataFrame
    ) -> tuple[pl.DataFrame, tuple[reading.Stage, ...], dict[str, str], list[str]]:
        file = self.nodes
        if file is None:
            folder = self.source.path if self.source.path.is_dir() else self.source.path.parent
            lists = [f for f in _files(folder) if FORMAT.table("nodes").fits(f)]
            choose = "choose one with nodes="
            file = only_file(lists, "the node list", self.source.path, choose)
        if file is None:
            note = (
                f"{NO_SERVERS}sacct does not list nodes; give the output of scontrol show node "
                "-o as nodes=PATH"
            )
            return server_table(), (), {}, [note]
        servers, stage, digest = read_nodes(file, self.source.strict)
        named = {name for text in jobs["hosts"].unique() for name in text.split("|") if name}
        # The log may name nodes that were taken away since; their jobs cannot be placed there.
        absent = len(named - set(servers["name"].to_list()))
        notes = [f"{absent} nodes of NodeList are not in the node list"] if absent else []
        return servers, (stage,), {file.name: digest}, notes


NOWHERE = ("None", "None assigned", "(null)")  # a NodeList of no nodes


def _files(path: Path) -> list[Path]:
    """The file, or those of the folder: not of folders in it, which may be of another cluster."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))


def _usable(raw: pl.DataFrame, file: Path, strict: bool) -> tuple[pl.DataFrame, reading.Stage]:
    bad = JOBS.rules(raw)
    if strict:
        reading.refuse(file, raw, bad)
    array = (
        "a part of an array that has not started, of which not all tasks are told",
        # `7_[1-9]` that could not be told apart into tasks.
        pl.col("name").str.contains("[", literal=True),
    )
    sound, stage = reading.leave_out("jobs", raw, [array, *bad])
    if sound.is_empty():
        reason = reading.reasons(stage.dropped) or "there are steps only"
        raise TraceError(f"no job can be used: {reason}", file)
    return sound, stage


def _request(
    tres: str, req: str, alloc: str, nodes: int | None, memory: str, sizes: str
) -> tuple[object, ...]:
    """Request of a job, whether it holds more cores than that, and why that is not known."""
    if not (req or alloc):
        problem: str | None = "neither ReqTRES nor AllocTRES says what it asks for"
    else:
        try:
            # Two requests: what it holds, and what it asked for, to tell whether it holds more.
            if tres == "held":
                holding = request(req, alloc, nodes, memory, sizes)
                wanted = request(req or alloc, "", nodes, memory)
                return (*holding, holding.cpu * holding.tasks > wanted.cpu * wanted.tasks, None)
            return (
                *request(
                    (req or alloc) if tres == "requested" else (alloc or req), "", nodes, memory
                ),
                False,
                None,
            )
        except ValueError as error:
            problem = str(error)
    return (*(None,) * len(TaskRequest._fields), None, problem)


def _named_hosts(raw: pl.DataFrame, file: Path, strict: bool) -> tuple[pl.DataFrame, list[str]]:
    """Node lists with every name written out, ``|`` between them, and which are none.

    A job that was assigned no nodes never started: its Start is the time that it was cancelled.
    """
    nowhere = pl.col("hosts").is_in(NOWHERE)
    raw = raw.with_columns(
        # Slurm gives a job that was cancelled in the queue a Start all the same.
        pl.when(~nowhere).then(pl.col(name)).alias(name)
        for name in ("start", "elapsed")
    )
    # Each list is written out once.
    lists, wrong = {"": ""}, []
    for text in raw["hosts"].unique(maintain_order=True):
        # A list may be broken off by the width of a column.
        try:
            lists[text] = "|".join(notation.expand_nodes(text))
        except ValueError:
            lists[text] = ""
            wrong.append(text)
    with_names = raw.with_columns(pl.col("hosts").replace_strict(lists, return_dtype=pl.String))
    if not wrong:
        return with_names, []
    bad = raw.filter(pl.col("hosts").is_in(wrong))
    if strict:
        reading.refuse(file, raw, [("NodeList is no list of nodes", pl.col("hosts").is_in(wrong))])
    row, text = bad.sort("row").select("row", "hosts").row(0)
    return with_names, [
        f"{len(bad)} jobs have a NodeList that is no list of nodes ({text!r:.60}, first in "
        f"row {row}); where they ran is not known"
    ]


# Nodes, as scontrol prints them


def read_nodes(file: Path, strict: bool) -> tuple[pl.DataFrame, reading.Stage, str]:
    """Servers, the account of them, and the SHA-256 of the file.

    It is what scontrol prints, or a configuration, in which ``DEFAULT`` holds for nodes after it.
    ``Key=Value`` pairs are ``CPUTot`` (cores, or hardware threads where Slurm counts those),
    ``RealMemory`` in MiB, ``Gres`` such as ``gpu:a100:4(S:0-1)`` or ``(null)``.
    """
    text, digest = file_text.read_text(file)
    # With -o a node is a line; without, its lines after the first are indented.
    nodes: list[tuple[int, str]] = []
    for row, line in enumerate(file_text.split_lines(text), 1):
        # The first line may be of a file that begins in the middle; it is refused below.
        if line.startswith("NodeName=") or not nodes:
            nodes.append((row, line))
        else:
            nodes[-1] = (nodes[-1][0], f"{nodes[-1][1]} {line}")
    account, names, rows = reading.RowAccount(file, strict), set(), []
    default: dict[str, str] = {}
    for row, node in _each_node(nodes):
        # Only the keys that are read, as others may hold blanks and equal signs.
        pairs = default | dict(re.findall(rf"(?:^|\s)({'|'.join(OF_NODE)})=(\S+)", node))
        name, memory, cores = pairs.pop("NodeName", ""), pairs.get("RealMemory"), _cores(pairs)
        if name == "DEFAULT":
            default = pairs
        elif not name or cores is None or memory is None:
            account.refuse(row, "NodeName, CPUTot or RealMemory is missing", node)
        elif not (cores.isdecimal() and memory.isdecimal()):
            account.refuse(row, "CPUTot or RealMemory is not a number", node)
        elif name in names:
            account.refuse(row, "NodeName was used before", name)
        # A node with several GPU models cannot be said in one row of servers.
        elif len(kinds := notation.gpus(pairs.get("Gres", ""))) > 1:
            names.add(name)
            account.leave_out(row, "the node has GPUs of several models")
        else:
            names.add(name)
            model, count = next(iter(kinds.items()), ("", 0))
            # A count without a model is of GPUs of some model.
            model = model or "gpu" * bool(count)
            rows.append((row, name, model, float(cores), float(memory) / 1024, float(count)))
    account.require(len(rows), "node")
    return server_table(rows), account.stage(file.name, len(nodes)), digest


OF_NODE = (
    *("NodeName", "CPUTot", "CPUs", "Procs", "Sockets", "SocketsPerBoard", "Boards"),
    *("CoresPerSocket", "ThreadsPerCore", "RealMemory", "Gres"),
)


def _each_node(nodes: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Nodes one by one: a configuration has several in one line."""
    for row, node in nodes:
        # `NodeName=n[1-4]` is four nodes of one line.
        several = re.search(r"(?:^|\s)NodeName=(\S*\[\S*)", node)
        try:
            names = notation.expand_nodes(several[1]) if several else []
        except notation.NotationError:
            names = []
        for name in names:
            yield row, node.replace(several[1], name, 1)  # type: ignore[index]  # names are found
        if not names:
            yield row, node


def _cores(pairs: Mapping[str, str]) -> str | None:
    """Processors of a node; of a configuration also from its sockets."""
    # CPUTot is what scontrol prints; CPUs and Procs are of configurations.
    counted = (pairs[name] for name in ("CPUTot", "CPUs", "Procs") if name in pairs)
    if (cores := next(counted, None)) is not None:
        return cores
    sizes = [pairs.get(name, "1") for name in OF_NODE[4:9]]
    # At least one of the two must be there, else every node would have one core.
    if not {"Sockets", "CoresPerSocket"} & {*pairs} or not all(map(str.isdecimal, sizes)):
        return None
    return str(math.prod(map(int, sizes)))

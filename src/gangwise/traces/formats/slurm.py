"""Slurm accounting (``slurm-sacct.toml``): what ``sacct`` prints, as text or as JSON.

A record of an allocation is a job; steps (``123.batch``) are counted and left out. A task is a
node of the job, and asks for an equal part of the total, since accounting does not say how uneven
the parts were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import FOR_PEOPLE, declared, holds, is_for_people, reads_as
from gangwise.traces.formats.slurm_notation import (
    TaskRequest,
    expand_nodes,
    read_nodes,
    request,
    with_terms,
)
from gangwise.traces.formats.tabular import TableMapping
from gangwise.traces.io.blocks import Block, Blocks
from gangwise.traces.io.reading import (
    EARLIER,
    STEP,
    Column,
    RowAccount,
    Schema,
    Stage,
    leave_out,
    read_table,
    reasons,
    refuse,
)
from gangwise.traces.io.text import beginning, clock, first_lines, read_records, split_line
from gangwise.traces.tables import NO_SERVERS, Reader, Tables, server_table

NAME = "slurm-sacct"
COMMAND = (
    "sacct -a -X -P --format=JobID,User,State,Submit,Start,End,ReqTRES,AllocTRES,NNodes,NodeList"
)
TYPES = {"Partition": "partition", "QOS": "qos", "Account": "account", "JobName": "application"}
"""Columns that may tell the type of a job."""


SACCT = declared(NAME).table("jobs").schema
OPEN_XDMOD = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|GID|User|UID|Submit|Eligible|Start|End|"
    "Elapsed|ExitCode|State|NNodes|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|JobName"
)
"""Columns that Open XDMoD asks sacct for, and stores without a header."""


def listing_schema(columns: str) -> Schema:
    """The schema of a listing without a header, from the names of its columns in their order.

    Raises TraceError when a column is missing without which nothing can be made of the listing.
    """
    names = [name.strip() for name in columns.replace(",", "|").split("|") if name.strip()]
    _require(names, "the list of columns")
    at = {place: name for name, place in SACCT.place(names).items()}
    of = {column.name: column for column in SACCT.columns}
    every = (
        of[at[i]]
        if i in at
        else Column(f"column {i + 1}, {name}", number=False, empty=True, needed=False)
        for i, name in enumerate(names)
    )
    return replace(SACCT, columns=tuple(every), header=False)


def is_listing(file: Path, columns: str = OPEN_XDMOD) -> bool:
    """Whether the first line names columns of sacct, with bars between them; or has these."""
    first = beginning(file).split("\n", 1)[0]
    return _names_columns(first) or reads_as(listing_schema(columns), [first])


def separator_of(first: str) -> str:
    """The character between the names of columns; a bar where the line names none.

    >>> separator_of("JobID^User^Submit"), separator_of("12|a|b")
    ('^', '|')
    """
    found = re.search(r"\bJobID(?:Raw)?([^\w\s(\"])\w|\w([^\w\s(\"])JobID(?:Raw)?\b", first)
    return (found[1] or found[2]) if found else "\t" if "\t" in first else "|"


WORDS = {"State": r"[A-Z_]*(?: by \S+)?", "Timelimit": r"[\w:-]*"}
WORDS |= dict.fromkeys(("User", "Account", "Partition", "QOS", "NodeList"), r"[\w.@$+,\[\] ()-]*")
"""Patterns of fields that hold free text, but never the separator of a listing."""


class RepairedRows(Blocks):
    """The blocks of a listing in which rows with too many separators are repaired if possible.

    The surplus separators are taken to be inside the one field for which every field then matches
    its column. With several such fields, or none, the row stays as it is and counts as bad.
    """

    def __init__(self, path: Path, schema: Schema, names: Sequence[str]):
        super().__init__(path)
        self.schema, self.repaired = schema, 0
        place = {at: name for name, at in schema.place(names).items()}
        of = {
            c.name: replace(c, pattern=c.pattern or WORDS.get(c.name, "")) for c in schema.columns
        }
        self.columns = [of.get(place.get(i, "")) for i in range(len(names))]

    def __iter__(self) -> Iterator[Block]:
        mark, usual = self.schema.separator, len(self.columns) - 1
        for block in super().__iter__():
            if block.data.count(mark.encode()) == block.rows * usual:
                yield block
                continue
            lines = block.data.decode("utf-8", "surrogateescape").split("\n")
            for n, line in enumerate(lines):
                if line.count(mark) > usual and '"' not in line:
                    lines[n] = self._repair(line.split(mark), mark)
            data = "\n".join(lines).encode("utf-8", "surrogateescape")
            yield block._replace(data=data)

    def _repair(self, parts: list[str], mark: str) -> str:
        surplus, found = len(parts) - len(self.columns), []
        for n, held in enumerate(self.columns):
            if held is not None and held.pattern:
                continue
            inside = mark.join(parts[n : n + surplus + 1])
            row = [*parts[:n], inside, *parts[n + surplus + 1 :]]
            if all(c is None or holds(c, field.strip()) for c, field in zip(self.columns, row)):
                found.append((n, inside))
        if len(found) != 1:
            return mark.join(parts)
        self.repaired, [(n, inside)] = self.repaired + 1, found
        return mark.join([*parts[:n], f'"{inside}"', *parts[n + surplus + 1 :]])


def _names_columns(first: str) -> bool:
    fields = [field.strip() for field in split_line(first, separator_of(first)) or []]
    names = ("JobID", "JobIDRaw"), ("Submit", "Start", "End", "State", "ReqTRES", "AllocTRES")
    return all(any(name in fields for name in group) for group in names)


def read_listing(
    file: Path, strict: bool, columns: str = OPEN_XDMOD
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
    """Allocations of a text listing, its stages, digest and notes."""
    notes: list[str] = []
    first, schema = beginning(file).split("\n", 1)[0], listing_schema(columns)
    names = [name.strip() for name in columns.replace(",", "|").split("|") if name.strip()]
    if _names_columns(first):
        schema = replace(SACCT, separator=separator_of(first))
        names = [name.strip() for name in split_line(first, schema.separator) or []]
        _require(names, "the listing", file)
    blocks = RepairedRows(file, schema, names)
    table = read_table(file, schema, strict=strict, blocks=blocks)
    frame = table.frame
    if blocks.repaired:
        why = f"{blocks.repaired} rows have {schema.separator} inside a field"
        notes.append(f"{why}: the only one in which all others are as their columns ask")
    given = {*frame.columns}
    texts = [column.name for column in SACCT.columns if not column.number]
    frame = frame.with_columns(pl.lit("").alias(name) for name in texts if name not in given)
    if "NNodes" not in given:
        frame = frame.with_columns(NNodes=pl.lit(None, pl.Float64))
    elif not {"ReqTRES", "AllocTRES"} & given:  # as FastSim dumps a log: whole nodes
        one = pl.format("cpu={},node={}", *[pl.col("NNodes").cast(pl.Int64)] * 2)
        some = pl.col("NNodes") > 0
        frame = frame.with_columns(ReqTRES=pl.when(some).then(one).otherwise(pl.lit("")))
    step = pl.col("JobID").str.contains(".", literal=True)
    frame, steps = leave_out("allocations", frame, [(STEP, step)])
    ran = pl.when(pl.col("Elapsed") != "").then(clock(pl.col("Elapsed")))
    end = pl.coalesce(_seconds("End"), _seconds("Start") + pl.when(pl.col("End") == "").then(ran))
    nodes = pl.col("NNodes").cast(pl.Int64)
    frame = frame.select(
        "row",
        name="JobID",
        user="User",
        status=pl.col("State").str.split(" ").list.first(),
        submit=_seconds("Submit"),
        start=_seconds("Start"),
        end=end,
        req="ReqTRES",
        alloc="AllocTRES",
        memory="ReqMem",
        nodes=pl.when(nodes > 0).then(nodes),
        hosts="NodeList",
        elapsed=ran,
        limit=clock(pl.col("Timelimit")),
        eligible=_seconds("Eligible"),
        features="Constraints",
        line="SubmitLine",
        **{name: pl.col(column) for column, name in TYPES.items()},
    )
    return frame, (table.stage, steps), {file.name: table.digest}, notes


def _require(names: Sequence[str], where: str, file: Path | None = None) -> None:
    there = SACCT.place(names)
    missing = [c.name for c in SACCT.columns if c.needed and c.name not in there]
    if "End" not in names and "Elapsed" not in names:
        missing.append("End")
    if not {"ReqTRES", "AllocTRES"} & set(names) and "NNodes" not in there:
        missing.append("ReqTRES")
    if missing:
        raise TraceError(
            f"{where} of sacct has no {' and no '.join(missing)}; run {COMMAND}",
            file,
            None if file is None else 1,
        )


FORMAT = declared(NAME)
_LISTING = replace(FORMAT.table("jobs"), also=(listing_schema(OPEN_XDMOD),))
FORMAT = replace(FORMAT, tables=(_LISTING, FORMAT.table("nodes")))
JOBS = TableMapping(FORMAT.mapping["jobs"])


def _is_json(file: Path) -> bool:
    return FORMAT.table("jobs").is_begun(beginning(file))


def _seconds(column: str) -> pl.Expr:
    """Seconds since 1970 of a local time, as if it were UTC, or of seconds since 1970."""
    time = pl.col(column).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="ms")
    number = pl.col(column).cast(pl.Float64, strict=False)
    return pl.coalesce(time.dt.epoch("s").cast(pl.Float64), pl.when(number > 0).then(number))


def read_sacct_json(
    file: Path, strict: bool
) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
    """Allocations of a JSON document, its stage, digest and notes."""
    found = read_records(file, "jobs")
    account, rows, ids, steps = RowAccount(file, strict), [], set(), 0
    for row, record in enumerate(found.records, 1):
        try:
            job = _job(record)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            missing = error if isinstance(error, _MissingError) else "fields of a job"
            account.refuse(row, f"the record has no usable {missing}")
            continue
        if job["name"] in ids:
            account.refuse(row, "job_id was used before", job["name"])
            continue
        ids.add(job["name"])
        held = record.get("steps")
        steps += len(held) if isinstance(held, list) else 0
        rows.append({"row": row, **job})
    account.require(len(rows), "job")
    texts = ["name", "user", "status", "req", "alloc", "memory", "hosts", *TYPES.values()]
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
    limit = _number(time.get("limit"))  # minutes
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
        "limit": None if limit is None else 60 * limit,
        "partition": str(record.get("partition") or ""),
        "qos": str(record.get("qos") or ""),
        "account": str(record.get("account") or ""),
        "application": str(record.get("name") or ""),
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


class SlurmSacct(Reader):
    """Reader of ``sacct`` output, with the nodes of ``scontrol show node`` where they are given.

    The jobs of several files in a folder (by month, say) are put together; of a job that is in
    several, the last record is used. ``nodes`` is the output of ``scontrol show node`` (with or
    without ``-o``), by default the one file beside the jobs that is such; accounting lists none.
    ``tres`` says what a job asks for: ReqTRES (``requested``) or AllocTRES (``allocated``; whole
    nodes, where they are given whole). Where the one is empty, the other is taken, and the report
    says how often; so are GPUs that ReqTRES does not name (old versions never do). ``columns`` are
    those of a listing without a header, as given to ``--format``.
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        nodes: Path | str | None = None,
        tres: str = "requested",
        columns: str = OPEN_XDMOD,
        strict: bool = False,
    ):
        if tres not in ("requested", "allocated"):
            raise TraceError(f"tres is {tres!r}; choose requested or allocated")
        super().__init__(path, strict=strict)
        self.nodes, self.tres = None if nodes is None else Path(nodes), tres
        self.columns = columns
        listing_schema(columns)

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        return any(_is_json(file) or is_listing(file) for file in _files(Path(path)))

    def _read(self) -> Tables:
        files = [
            file
            for file in _files(self.source.path)
            if _is_json(file) or is_listing(file, self.columns)
        ]
        if not files:
            here = _files(self.source.path)
            for file in here:
                if is_for_people(first_lines(file, 2)):
                    raise TraceError(FOR_PEOPLE, file)
            found = ", ".join(f.name for f in here[:12]) or "nothing"
            raise TraceError(
                f"no sacct output here; make it with {COMMAND} > jobs.txt; found {found}",
                self.source.path,
            )
        strict = self.source.strict
        raw, stages, digests, notes = self._all_files(files)
        file = files[0] if len(files) == 1 else self.source.path
        raw, stage = _usable(raw, file, strict)
        raw, unclear = _named_hosts(raw, file, strict)
        raw = with_terms(raw)
        jobs, asked, more = self._requests(raw, file)
        servers, node_stages, node_digests, about = self._nodes(jobs)
        every_stage = (*node_stages, *stages, stage, asked)
        notes = [*notes, *JOBS.notes(jobs), *unclear, *more, *about]
        digests = {**node_digests, **digests}
        return Tables(NAME, servers, JOBS.select(jobs), every_stage, digests, tuple(notes))

    def _all_files(
        self, files: Sequence[Path]
    ) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
        """Allocations of all files; rows are counted through them, in the order of their names."""
        strict, before, listings = self.source.strict, 0, False
        frames, begins = [], []
        stages: list[Stage] = []
        digests: dict[str, str] = {}
        notes: list[str] = []
        for file in files:
            if _is_json(file):
                raw, more, digest, remarks = read_sacct_json(file, strict)
            else:
                raw, more, digest, remarks = read_listing(file, strict, self.columns)
                listings = True
            notes += remarks
            frames.append(raw.with_columns(pl.col("row") + before))
            stages += [
                stage._replace(
                    dropped={why: (n, row + before) for why, (n, row) in stage.dropped.items()}
                )
                for stage in more
            ]
            digests |= digest
            begins.append(f"{file.name} from {before + 1}")
            before += more[0].read + 1
        if listings:
            notes.append(
                "times are local times of the cluster; some that are compared across a change "
                "of the clocks are an hour off (SLURM_TIME_FORMAT=%s avoids it)"
            )
        every = pl.concat(frames, how="diagonal_relaxed")
        if len(files) > 1:
            notes.append(f"rows are counted through the files: {', '.join(begins)}")
            later = pl.struct("name", "submit").is_last_distinct()
            every, again = leave_out("records", every, [(EARLIER, ~later)])
            stages.append(again)
        return every, tuple(stages), digests, notes

    def _requests(self, raw: pl.DataFrame, file: Path) -> tuple[pl.DataFrame, Stage, list[str]]:
        first, second = ("req", "alloc") if self.tres == "requested" else ("alloc", "req")
        hosts = pl.col("hosts").str.count_matches("|", literal=True).cast(pl.Int64) + 1
        gpus = pl.col("alloc").str.extract_all(r"gres/gpu(?::[^=,|]+)?=\d+")
        silent = (pl.col("req") != "") & ~pl.col("req").str.contains("gres/", literal=True)
        gpus_given = silent & (gpus.list.len() > 0) & (first == "req")
        raw = raw.with_columns(
            asked=pl.when(pl.col(first) == "")
            .then(second)
            .when(gpus_given)
            .then(pl.concat_str(first, pl.lit(","), gpus.list.join(",")))
            .otherwise(first),
            gpus_given=gpus_given,
            other=(pl.col(first) == "") & (pl.col(second) != ""),
            nodes=pl.coalesce("nodes", pl.when(pl.col("hosts") != "").then(hosts)),
        )
        key = ["asked", "nodes", "memory"]
        kinds = raw.select(key).unique(maintain_order=True)
        found = [_request(*row) for row in kinds.rows()]
        dtypes = [pl.Float64, pl.Float64, pl.Float64, pl.String, pl.Int64, pl.String]
        names = ["cpu", "mem", "gpu", "models", "tasks", "why"]
        kinds = kinds.hstack(pl.DataFrame(found, schema=dict(zip(names, dtypes)), orient="row"))
        jobs = raw.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
        unclear = kinds["why"].drop_nulls().unique().to_list()
        rules = [(why, pl.col("why") == why) for why in unclear]
        if self.source.strict:
            refuse(file, jobs, rules)
        jobs, stage = leave_out("requests", jobs, rules)
        if jobs.is_empty():
            raise TraceError(
                f"no job says what it asks for: {reasons(stage.dropped)}; run {COMMAND}", file
            )
        asking = TableMapping(FORMAT.mapping["requests"], {"tres": self.tres})
        return jobs, stage, asking.notes(jobs)

    def _nodes(
        self, jobs: pl.DataFrame
    ) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
        file = self.nodes
        if file is None:
            folder = self.source.path if self.source.path.is_dir() else self.source.path.parent
            found = [f for f in _files(folder) if FORMAT.table("nodes").fits(f)]
            if len(found) > 1:
                names = ", ".join(f.name for f in found)
                raise TraceError(
                    f"{len(found)} files could be the node list: {names}; choose one with nodes=",
                    self.source.path,
                )
            file = found[0] if found else None
        if file is None:
            note = (
                f"{NO_SERVERS}sacct does not list nodes; give the output of scontrol show node "
                "-o as nodes=PATH"
            )
            return server_table(), (), {}, [note]
        servers, stage, digest = read_nodes(file, self.source.strict)
        named = {name for text in jobs["hosts"].unique() for name in text.split("|") if name}
        absent = len(named - set(servers["name"].to_list()))
        notes = [f"{absent} nodes of NodeList are not in the node list"] if absent else []
        return servers, (stage,), {file.name: digest}, notes


NOWHERE = ("None", "None assigned", "(null)")  # a NodeList of no nodes


def _files(path: Path) -> list[Path]:
    """The file, or those of the folder: not of folders in it, which may be of another cluster."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))


def _usable(raw: pl.DataFrame, file: Path, strict: bool) -> tuple[pl.DataFrame, Stage]:
    bad = JOBS.rules(raw)
    if strict:
        refuse(file, raw, bad)
    array = (
        "a part of an array that has not started: one record of several jobs",
        pl.col("name").str.contains("[", literal=True),
    )
    kept, stage = leave_out("jobs", raw, [array, *bad])
    if kept.is_empty():
        why = reasons(stage.dropped) or "there are steps only"
        raise TraceError(f"no job can be used: {why}", file)
    return kept, stage


def _request(text: str, nodes: int | None, memory: str) -> tuple[object, ...]:
    nothing = (None,) * len(TaskRequest._fields)
    if not text:
        return (*nothing, "neither ReqTRES nor AllocTRES says what it asks for")
    try:
        return (*request(text, nodes, memory), None)
    except ValueError as error:
        return (*nothing, str(error))


def _named_hosts(raw: pl.DataFrame, file: Path, strict: bool) -> tuple[pl.DataFrame, list[str]]:
    """Node lists with every name written out, ``|`` between them, and which are none.

    A job that was assigned no nodes never started: its Start is the time that it was cancelled.
    """
    nowhere = pl.col("hosts").is_in(NOWHERE)
    raw = raw.with_columns(
        pl.when(~nowhere).then(pl.col(name)).alias(name) for name in ("start", "elapsed")
    )
    lists, wrong = {"": ""}, []
    for text in raw["hosts"].unique(maintain_order=True):
        try:
            lists[text] = "|".join(expand_nodes(text))
        except ValueError:
            lists[text] = ""
            wrong.append(text)
    found = raw.with_columns(pl.col("hosts").replace_strict(lists, return_dtype=pl.String))
    if not wrong:
        return found, []
    bad = raw.filter(pl.col("hosts").is_in(wrong))
    if strict:
        refuse(file, raw, [("NodeList is no list of nodes", pl.col("hosts").is_in(wrong))])
    row, text = bad.sort("row").select("row", "hosts").row(0)
    return found, [
        f"{len(bad)} jobs have a NodeList that is no list of nodes ({text!r:.60}, first in "
        f"row {row}); where they ran is not known"
    ]

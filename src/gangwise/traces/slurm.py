"""Slurm accounting: what ``sacct`` prints, as text or as JSON, and the nodes of ``scontrol``.

::

    columns=JobID,User,State,Submit,Start,End,ReqTRES,AllocTRES,NNodes,NodeList
    sacct -a -X -P -S 2024-01-01 -E now --format=$columns > jobs.txt
    scontrol show node -o > nodes.txt

Fields are described at https://slurm.schedmd.com/sacct.html. Text has ``|`` between the fields
(``-P``, or ``-p`` with one more at the end) and any choice of columns that has the needed ones.
``sacct --json`` (Slurm 21.08 and later) is one object whose ``jobs`` have ``job_id``, ``array``,
``het``, ``state.current`` (a text, later a list), ``time.submission``, ``.start`` and ``.end`` in
seconds since 1970, ``tres.requested`` and ``.allocated`` (``type``, ``name``, ``count``; memory in
MiB), ``allocation_nodes``, ``nodes`` and ``steps``; later versions write some numbers as
``{"set": true, "infinite": false, "number": 7}``.

A record of an allocation is a job; steps (``123.batch``) are counted and left out. A task is a
node of the job, and asks for an equal part of the total, since accounting does not say how uneven
the parts were.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage, leave_out, reasons, refuse
from gangwise.traces.manifest import manifest_of
from gangwise.traces.slurm_json import is_sacct_json, read_sacct_json
from gangwise.traces.slurm_listing import COMMAND, FORMAT, NAME, is_listing, read_listing
from gangwise.traces.slurm_nodes import is_node_list, read_nodes
from gangwise.traces.slurm_notation import Request, expand_nodes, request
from gangwise.traces.trace import Reader, Tables, server_table

if TYPE_CHECKING:
    import polars as pl


class SlurmSacct(Reader):
    r"""Reader of ``sacct`` output, with the nodes of ``scontrol show node`` where they are given.

    Parameters
    ----------
    path : path
        The output of sacct, or a folder with it.
    nodes : path, optional
        Output of ``scontrol show node`` (with or without ``-o``); by default the one file beside
        the jobs that is such. Without one there are no servers: accounting does not list nodes.
    tres : {"requested", "allocated"}
        What a job asks for: ReqTRES or AllocTRES (whole nodes, where they are given whole). Where
        the one is empty, the other is taken, and the report says how often.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no such file, or columns are missing; says what to ask sacct for.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.txt")
    ...     size = file.write_text(
    ...         "JobID|Submit|Start|End|State|ReqTRES\n"
    ...         "7|2024-01-01T00:00:00|2024-01-01T00:00:30|2024-01-01T00:02:00|COMPLETED|"
    ...         "cpu=8,gres/gpu=2,mem=16G,node=2\n"
    ...         "7.batch|2024-01-01T00:00:30|2024-01-01T00:00:30|2024-01-01T00:02:00|COMPLETED|\n"
    ...     )
    ...     jobs = SlurmSacct(file).scan().jobs
    >>> jobs.select("name", "cpu", "mem", "gpu", "tasks", "started", "deleted").rows()
    [('7', 4.0, 8.0, 1.0, 2, 30.0, 120.0)]
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        nodes: Path | str | None = None,
        tres: str = "requested",
        strict: bool = False,
    ):
        if tres not in ("requested", "allocated"):
            raise TraceError(f"tres is {tres!r}; choose requested or allocated")
        super().__init__(path, strict=strict)
        self.nodes, self.tres = None if nodes is None else Path(nodes), tres

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        """Whether a file, or a file of a folder, begins as sacct output does."""
        path = Path(path)
        if manifest_of(path) is not None:
            return super().recognise(path)
        return any(is_sacct_json(file) or is_listing(file) for file in _files(path))

    def _read(self) -> Tables:
        if self.source.converted is not None:
            [file] = self.source.files("jobs")
        else:
            file = self._only(
                [f for f in _files(self.source.path) if is_sacct_json(f) or is_listing(f)],
                "sacct output",
            )
        strict = self.source.strict
        if is_sacct_json(file):
            raw, stages, digests, notes = read_sacct_json(file, strict)
        else:
            raw, stages, digests = read_listing(file, strict)
            notes = [
                "times are local times of the cluster; some that are compared across a change "
                "of the clocks are an hour off (SLURM_TIME_FORMAT=%s avoids it)"
            ]
        raw, stage = _usable(raw, file, strict)
        jobs, asked, more = self._requests(raw, file)
        servers, node_stages, node_digests, about = self._nodes(jobs)
        jobs, timing = _relative(jobs)
        return Tables(
            NAME,
            servers,
            jobs,
            (*node_stages, *stages, stage, asked),
            {**node_digests, **digests},
            (*notes, *timing, *more, *about),
        )

    def _requests(self, raw: pl.DataFrame, file: Path) -> tuple[pl.DataFrame, Stage, list[str]]:
        """What each job asks for, each way of asking looked at once."""
        import polars as pl

        first, second = ("req", "alloc") if self.tres == "requested" else ("alloc", "req")
        raw = raw.with_columns(
            asked=pl.when(pl.col(first) != "").then(first).otherwise(second),
            other=(pl.col(first) == "") & (pl.col(second) != ""),
            nodes=pl.coalesce(
                "nodes", pl.col("hosts").map_elements(_count_nodes, return_dtype=pl.Int64)
            ),
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
        notes = []
        if jobs["other"].sum():
            notes.append(
                f"{jobs['other'].sum()} jobs have an empty {NAMES[first]}; what they ask "
                f"for is their {NAMES[second]}"
            )
        if (jobs["mem"] == 0).sum():
            notes.append(
                f"{(jobs['mem'] == 0).sum()} jobs do not say how much memory they ask for; it is 0"
            )
        return jobs, stage, notes

    def _nodes(
        self, jobs: pl.DataFrame
    ) -> tuple[pl.DataFrame, tuple[Stage, ...], dict[str, str], list[str]]:
        """Servers of the node list, where there is one."""
        file = self.nodes
        if file is None:
            folder = self.source.path if self.source.path.is_dir() else self.source.path.parent
            found = [f for f in _files(folder) if is_node_list(f)]
            file = self._only(found, "node list", "nodes=") if found else None
        if file is None:
            note = (
                "no servers: sacct does not list nodes; give the output of scontrol show node "
                "-o as nodes=PATH"
            )
            return server_table(), (), {}, [note]
        servers, stage, digest = read_nodes(file, self.source.strict)
        named = {name for text in jobs["hosts"].unique() for name in _nodes_of(text)}
        absent = len(named - set(servers["name"].to_list()))
        notes = [f"{absent} nodes of {NAMES['hosts']} are not in the node list"] if absent else []
        return servers, (stage,), {file.name: digest}, notes

    def _only(self, found: list[Path], what: str, argument: str = "") -> Path:
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f.name for f in found)
            hint = f"choose one with {argument}" if argument else "keep one, or name the file"
            raise TraceError(
                f"{len(found)} files could be the {what}: {names}; {hint}", self.source.path
            )
        here = _files(self.source.path)
        names = ", ".join(f.name for f in here[:12]) or "nothing"
        raise TraceError(
            f"no {what} here; make it with {COMMAND} > jobs.txt; found {names}", self.source.path
        )


NAMES = {"req": "ReqTRES", "alloc": "AllocTRES", "hosts": "NodeList"}


def _files(path: Path) -> list[Path]:
    """The file, or those of the folder: not of folders in it, which may be of another cluster."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))


def _usable(raw: pl.DataFrame, file: Path, strict: bool) -> tuple[pl.DataFrame, Stage]:
    """Jobs whose times can be right."""
    import polars as pl

    bad = [
        ("Submit is not a date that exists", pl.col("submit").is_null()),
        ("End is before Start", pl.col("end") < pl.col("start")),
        ("Start is before Submit", pl.col("start") < pl.col("submit")),
        ("End is before Submit", pl.col("end") < pl.col("submit")),
    ]
    if strict:
        refuse(file, raw, bad)
    array = (
        "a part of an array that has not started: one record of several jobs",
        pl.col("name").str.contains("[", literal=True),
    )
    kept, stage = leave_out("jobs", raw, [array, *bad])
    if kept.is_empty():
        said = reasons(stage.dropped) or "there are steps only"
        raise TraceError(f"no job can be used: {said}", file)
    return kept, stage


def _relative(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Jobs in seconds since the first submission; those that have not ended last until the end."""
    import polars as pl

    times = ["submit", "start", "end"]
    notes = []
    open_ended, waiting = jobs["end"].null_count(), jobs["start"].null_count()
    if open_ended:
        notes.append(f"{open_ended} jobs have not ended; they last until the last time in the file")
    if waiting:
        notes.append(f"{waiting} jobs never started")
    last = pl.max_horizontal(pl.col(times).max())
    jobs = jobs.with_columns(pl.col("end").fill_null(last))
    jobs = jobs.with_columns(pl.col(times) - pl.col("submit").min())
    return jobs.select(
        "row",
        "name",
        "cpu",
        "mem",
        "gpu",
        "tasks",
        "models",
        created="submit",
        deleted="end",
        started="start",
        status="status",
        user="user",
    ), notes


def _request(text: str, nodes: int | None, memory: str) -> tuple[object, ...]:
    """The request, or nothing and why."""
    nothing = (None,) * len(Request._fields)
    if not text:
        return (*nothing, "neither ReqTRES nor AllocTRES says what it asks for")
    try:
        return (*request(text, nodes, memory), None)
    except ValueError as error:
        return (*nothing, str(error))


def _nodes_of(text: str) -> list[str]:
    try:
        return expand_nodes(text)
    except ValueError:
        return []


def _count_nodes(text: str) -> int | None:
    return len(_nodes_of(text)) or None

"""Alibaba cluster-trace-gpu-v2020 (``alibaba-gpu-v2020.toml``): PAI, two months of jobs on GPUs.

The seven tables have no header row; ``pai_TABLE.header`` beside them holds the names of the
columns. Missing fields are empty, and a time of 0 is missing too. The simulator's job list and the
mini-batch times have a header.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import declared, recognise
from gangwise.traces.formats.tabular import Tabular, checked
from gangwise.traces.io.text import first_lines, split_line
from gangwise.traces.source import Read, Source
from gangwise.traces.tables import Fidelity, Tables, of_tables

FORMAT = declared("alibaba-gpu-v2020")
FILLED = {
    "inst_num": 1.0,
    "plan_cpu": 0.0,
    "plan_mem": 0.0,
    "plan_gpu": 0.0,
    "submit_time": 1.0,
    "num_inst": 1.0,
    "num_cpu": 0.0,
    "num_gpu": 0.0,
}
"""What Alibaba's own simulator reads where a field is empty."""
JOBS, TASKS, TAGS = "pai_job_table", "pai_task_table", "pai_group_tag_table"
SIMULATOR = "simulator_jobs"
EMPTY = {"row": pl.Int64, **dict.fromkeys(FORMAT.mapping["simulator"]["columns"], pl.Float64)}


def known(column: str) -> pl.Expr:
    """A time; null where it is empty or 0."""
    return pl.when(pl.col(column) > 0).then(column)


class AlibabaGpuV2020(Tabular):
    """Reader of machines and of jobs: the job and task tables, or the simulator's job list.

    Parameters
    ----------
    path : path
        A folder with the tables, or one of them, with the others beside it.
    statuses : sequence of str
        Statuses of the tasks that are used, among Terminated, Failed, Running and Waiting; or one
        text, separated by ``|``. Only Terminated is a success.
    models : {"assigned", "requested"}
        GPU models that a task may use: the one it ran on (``gpu_type``), or the one it asked for
        (``gpu_type_spec`` of ``pai_group_tag_table``; any where that is empty).
    missing : {"drop", "fill"}
        What becomes of tasks whose requests or number are empty: left out, or read as Alibaba's own
        simulator does, requests as 0 and numbers as 1 (and, in its job list, an empty submission
        as 1 s and a duration that is not positive as 1 s).
    simulator : path, optional
        The simulator's job list, to be read in place of the tables. One that lies among the files
        is read when the tables are not there. ``statuses`` and ``models`` do not apply to it: it
        has neither a status nor a request for a model, and ``gpu_type`` is used.
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str,
        *,
        statuses: Sequence[str] | str = ("Terminated",),
        models: str = "assigned",
        missing: str = "drop",
        simulator: Path | str | None = None,
        strict: bool = False,
    ):
        given = {"statuses": statuses, "models": models, "missing": missing}
        self.options = checked(FORMAT, given)
        path = Path(path)
        if path.is_file() and [t.name for _, t in recognise(path, [FORMAT])] == [SIMULATOR]:
            simulator = simulator or path
        self.named = {} if simulator is None else {SIMULATOR: Path(simulator)}
        folder = path.parent if path.is_file() else path
        self.source = Source(folder, FORMAT, named=self.named, strict=strict)

    def servers(self) -> pl.DataFrame:
        """The machines alone, which need no jobs to be there."""
        return self._machines().servers

    def waits(self) -> pl.DataFrame:
        """How long jobs waited: from submission to the launch of their first task.

        Returns
        -------
        DataFrame
            ``job``, ``created`` and ``wait``, in seconds, a row for each job of any status for
            which both times are known, in order of the job table. A few jobs may have started
            before they were submitted, by the files: their wait is negative.
        """
        jobs = self._table(JOBS, "job_name", "start_time").frame
        tasks = self._table(TASKS, "job_name", "start_time").frame
        first = tasks.group_by("job_name").agg(started=known("start_time").min())
        jobs = jobs.select(pl.col("job_name").alias("job"), created=known("start_time"))
        joined = jobs.join(first, left_on="job", right_on="job_name", maintain_order="left")
        created, started = pl.col("created"), pl.col("started")
        origin = pl.lit(jobs["created"].min(), pl.Float64)
        return joined.select("job", created - origin, wait=started - created).drop_nulls()

    def fidelity(self) -> Fidelity:
        """What was read and what was left out; of the machines alone when there are no jobs."""
        return of_tables(self._machines()) if self._absent() else super().fidelity()

    def _absent(self) -> list[str]:
        """Tables that are missing for want of jobs; none when there are jobs."""
        absent = [table for table in (JOBS, TASKS) if not self.source.has(table)]
        return [] if self.source.has(SIMULATOR) else absent

    def _machines(self) -> Tables:
        servers, _, stages, digests, notes = self._servers()
        none = pl.DataFrame(schema=EMPTY)
        return Tables(FORMAT.name, servers, none, stages, digests, tuple(notes))

    def _read(self) -> Tables:
        absent = self._absent()
        if absent:
            raise TraceError(
                f"no {' and no '.join(absent)} here, so there are no jobs to play; download "
                f"{' and '.join(f'{table}.tar.gz' for table in absent)} (see "
                "https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/data), or put the "
                "job list of its simulator here, or take the jobs of its synthetic twin with "
                "complete=jobs; recorded iteration times need no jobs in the family "
                "fluctuating_speeds, and the machines alone are read by servers() and fidelity()",
                self.source.path,
            )
        if SIMULATOR in self.named or not (self.source.has(JOBS) and self.source.has(TASKS)):
            read = self.source.read(SIMULATOR)
            return self.tables_of(read, "simulator", self._filled(read, SIMULATOR))
        read, notes = self._tasks(), []
        if self.source.has(SIMULATOR):
            notes.append("the simulator's job list here is not read: ask for it by simulator=")
        return self.tables_of(read, "jobs", [*notes, *self._filled(read, TASKS)])

    def _tasks(self) -> Read:
        """The rows of the task table, with the submission of their jobs and their group tags."""
        jobs, tasks = self._table(JOBS), self._table(TASKS)
        created = jobs.frame.select(
            "job_name", "inst_id", "user", created=known("start_time")
        ).with_columns(origin=pl.col("created").min())
        frame = tasks.frame.with_columns(started=known("start_time"), deleted=known("end_time"))
        frame = frame.join(created, on="job_name", how="left", maintain_order="left")
        reads = [jobs, tasks]
        if self.options["models"] == "requested" or self.source.has(TAGS):
            reads.append(self._table(TAGS))
            tag = reads[-1].frame.select("inst_id", "gpu_type_spec", "group", "workload")
            frame = frame.join(tag, on="inst_id", how="left", maintain_order="left")
        model = "gpu_type_spec" if self.options["models"] == "requested" else "gpu_type"
        return Read(
            frame.with_columns(model=model),
            tuple(stage for read in reads for stage in read.stages),
            {name: digest for read in reads for name, digest in read.digests.items()},
        )

    def _filled(self, read: Read, table: str) -> list[str]:
        """Fill empty fields as the simulator does, where that is asked for; and notes of it."""
        frame, fill = read.frame, self.options["missing"] == "fill"
        rules = [
            (name, pl.col(name).is_null(), by, f"empty fields of {name} are read as {by:g}")
            for name, by in FILLED.items()
            if fill and name in frame.columns
        ]
        if table == TASKS:
            none = pl.col("plan_gpu").is_null() & (pl.col("gpu_type") == "CPU")
            text = "tasks of gpu_type CPU have no plan_gpu: they request none"
            rules.insert(0, ("plan_gpu", none, 0.0, text))
        elif fill:
            text = "durations are not positive and read as 1 s"
            rules.append(("duration", pl.col("duration") <= 0, 1.0, text))
        notes = []
        for name, where, by, text in rules:
            if count := int(frame.select(where.fill_null(False).sum()).item()):
                notes.append(f"{count} {text}")
                filled = pl.when(where).then(by).otherwise(name)
                frame = frame.with_columns(filled.alias(name))
        read.frame = frame
        return notes

    def _table(self, table: str, *only: str) -> Read:
        """Read a table, or some columns, if its columns agree with the header file beside it."""
        columns = [column.name for column in FORMAT.table(table).schema.columns]
        for folder in (self.source.path, *sorted(self.source.path.glob("*/"))):
            file = folder / f"{table}.header"
            if not file.is_file():
                continue
            lines = first_lines(file, 1)
            names = [name.strip() for name in split_line(lines[0]) or []] if lines else []
            for n, (name, expected) in enumerate(zip(names, columns), 1):
                if name != expected:
                    raise TraceError(
                        f"column {n} is called {name!r}, and {expected!r} is read: these are not "
                        f"the columns of the {FORMAT.table(table).schema.name} known here",
                        file,
                        1,
                    )
            if len(names) != len(columns):
                raise TraceError(
                    f"{len(names)} columns are named, and {len(columns)} are read: "
                    f"{', '.join(columns)}",
                    file,
                    1,
                )
        return self.source.read(table, only or None)

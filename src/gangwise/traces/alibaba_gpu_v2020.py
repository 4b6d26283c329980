"""Alibaba cluster-trace-gpu-v2020 (PAI): two months of training and inference jobs on GPUs.

Published by Alibaba with "MLaaS in the Wild" (USENIX NSDI 2022); get it from
https://github.com/alibaba/clusterdata, folder ``cluster-trace-gpu-v2020``, licence CC-BY-4.0.

===================================  ============================================================
column                               meaning here
===================================  ============================================================
machine_spec ``cap_cpu``, ``_mem``   device types ``cpu`` in cores and ``mem`` in GiB
machine_spec ``cap_gpu``             GPUs of its ``gpu_type``; ``CPU`` stands for none
task ``inst_num``                    tasks of the request
task ``plan_cpu``, ``plan_gpu``      per cent of a core and of a GPU, of each
task ``plan_mem``                    GiB, of each
task ``gpu_type``                    the model it ran on; ``MISC`` stands for several old ones
task ``start_time``, ``end_time``    launch and end; empty or 0 where not known
job ``start_time``                   submission
group_tag ``gpu_type_spec``          the model it asked for; empty for any
===================================  ============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.alibaba_gpu_v2020_jobs import (
    MISC,
    SHAPE,
    counted,
    known,
    of_simulator_jobs,
    of_tasks,
)
from gangwise.traces.alibaba_gpu_v2020_schemas import FORMAT, STATUSES
from gangwise.traces.fidelity import Fidelity, reasons
from gangwise.traces.formats import recognise
from gangwise.traces.load import of_tables
from gangwise.traces.named_files import NamedFiles
from gangwise.traces.source import Read
from gangwise.traces.text import first_lines, named, split_line
from gangwise.traces.trace import Reader, Tables, server_table

if TYPE_CHECKING:
    import polars as pl


JOBS, TASKS, TAGS, MACHINES = (
    "pai_job_table",
    "pai_task_table",
    "pai_group_tag_table",
    "pai_machine_spec",
)
SIMULATOR = "simulator_jobs"
MODELS, MISSING = ("assigned", "requested"), ("drop", "fill")


class AlibabaGpuV2020(Reader):
    r"""Reader of machines and of jobs: the job and task tables, or the simulator's job list.

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
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When a file is missing or cannot be read; says which, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name, text in {
    ...     "pai_machine_spec": "82e5,T4,96,512,2\n",
    ...     "pai_job_table": "4b3f,8cb3,5854,Terminated,1000.0,1400.0\n",
    ...     "pai_task_table": "4b3f,worker,2.0,Terminated,1060.0,1400.0,600.0,29.3,50.0,T4\n",
    ... }.items():
    ...     size = Path(folder.name, f"{name}.csv").write_text(text)
    >>> trace = AlibabaGpuV2020(folder.name)
    >>> trace.scan().jobs.select("tasks", "cpu", "gpu", "models", "created", "deleted").rows()
    [(2.0, 6.0, 0.5, 'T4', 0.0, 400.0)]
    >>> trace.waits()["wait"].to_list()
    [60.0]
    >>> folder.cleanup()
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
        given = Path(path)
        self.statuses = named(statuses)
        self.models, self.missing = models, missing
        chosen: list[tuple[str, str, tuple[str, ...]]] = [
            ("models", models, MODELS),
            ("missing", missing, MISSING),
            *(("statuses", status, STATUSES) for status in self.statuses or ("",)),
        ]
        for knob, value, allowed in chosen:
            if value not in allowed:
                raise TraceError(f"{knob} is {value!r}; choose among {', '.join(allowed)}")
        if given.is_file() and [t.name for _, t in recognise(given, [FORMAT])] == [SIMULATOR]:
            simulator = simulator or given
        self.named = {} if simulator is None else {SIMULATOR: Path(simulator)}
        folder = given.parent if given.is_file() else given
        self.source = NamedFiles(folder, FORMAT, named=self.named, strict=strict)

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
        import polars as pl

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

    def _read(self) -> Tables:
        absent = self._absent()
        if absent:
            raise TraceError(
                f"no {' and no '.join(absent)} here, so there are no jobs to play; download "
                f"{' and '.join(f'{table}.tar.gz' for table in absent)} (see "
                "https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/data), or put the "
                "job list of its simulator here, or take the jobs of its synthetic twin with "
                "complete=jobs; recorded "
                "iteration times need no jobs in the family fluctuating_speeds, and the machines "
                "alone are read by servers() and fidelity()",
                self.source.path,
            )
        machines = self._machines()
        notes = list(machines.notes)
        if SIMULATOR in self.named or not (self.source.has(JOBS) and self.source.has(TASKS)):
            found = of_simulator_jobs(self.source.read(SIMULATOR), self.missing)
        else:
            tagged = self.models == "requested" or self.source.has(TAGS)
            found = of_tasks(
                self._table(JOBS),
                self._table(TASKS),
                self._table(TAGS) if tagged else None,
                self.statuses,
                self.models,
                self.missing,
            )
            if self.source.has(SIMULATOR):
                notes.append("the simulator's job list here is not read: ask for it by simulator=")
        if found.frame.is_empty():
            why = reasons(found.stages[-1].dropped)
            raise TraceError(f"no job can be used: {why}", self.source.path)
        return replace(
            machines,
            jobs=found.frame,
            stages=(*machines.stages, *found.stages),
            digests={**machines.digests, **found.digests},
            notes=(*notes, *found.notes),
        )

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

    def _machines(self) -> Tables:
        import polars as pl

        no_jobs = pl.DataFrame(schema=dict.fromkeys(SHAPE, pl.Float64))
        if not self.source.has(MACHINES):
            return Tables(FORMAT.name, server_table(), no_jobs, ())
        read = self._table(MACHINES)
        model = pl.when(pl.col("gpu_type") != "CPU").then("gpu_type").otherwise(pl.lit(""))
        servers = read.frame.select(
            "row",
            pl.col("machine").alias("name"),
            model.alias("model"),
            pl.col("cap_cpu").alias("cpu"),
            pl.col("cap_mem").alias("mem"),
            pl.col("cap_gpu").alias("gpu"),
        )
        return Tables(
            FORMAT.name,
            servers,
            no_jobs,
            read.stages,
            read.digests,
            tuple(counted(servers, pl.col("model") == "MISC", f"servers {MISC}")),
        )

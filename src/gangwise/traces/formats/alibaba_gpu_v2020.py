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

The seven tables have no header row; ``pai_TABLE.header`` beside them holds the names of the
columns. Missing fields are empty, and a time of 0 is missing too. The simulator's job list and the
mini-batch times have a header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile, recognise
from gangwise.traces.formats.measured_speeds import TABLE as MINI_BATCH_TIMES
from gangwise.traces.formats.measured_speeds import VARIATION
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.io.text import first_lines, named, split_line
from gangwise.traces.source import NamedFiles, Read
from gangwise.traces.tables import Fidelity, Reader, Tables, of_tables, server_table

NAME = "alibaba-gpu-v2020"
STATUSES = ("Terminated", "Failed", "Running", "Waiting")
HEX = "[0-9a-f]+"


def _text(name: str, pattern: str = "", empty: bool = False) -> Column:
    return Column(name, number=False, pattern=pattern, empty=empty)


def _numbers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, empty=True) for name in names)


def _ends_early() -> pl.Expr:
    known = (value("start_time") > 0) & (value("end_time") > 0)
    return known & (value("end_time") < value("start_time"))


def _both(first: str, second: str, broken: Callable[[], pl.Expr], reason: str) -> Check:
    return Check(reason, (first, second), broken)


JOB, TASK, STATUS = _text("job_name", HEX), _text("task_name"), _text("status", "|".join(STATUSES))
MODEL = "[A-Z][A-Z0-9]*"
TIMES = _numbers("start_time", "end_time")
EARLY = Check("end_time is before start_time", ("start_time", "end_time"), _ends_early)

JOB_TABLE = Schema(
    f"{NAME} pai_job_table",
    (JOB, _text("inst_id", HEX), _text("user", HEX, empty=True), STATUS, *TIMES),
    header=False,
    unique="job_name",
    checks=(EARLY,),
)
TASK_TABLE = Schema(
    f"{NAME} pai_task_table",
    (
        JOB,
        TASK,
        Column("inst_num", whole=True, least=1, empty=True),
        STATUS,
        *TIMES,
        *_numbers("plan_cpu", "plan_mem", "plan_gpu"),
        _text("gpu_type", MODEL, empty=True),
    ),
    header=False,
    checks=(
        EARLY,
        _both(
            "plan_gpu",
            "gpu_type",
            lambda: (value("plan_gpu") > 0) & (value("gpu_type") == "CPU"),
            "plan_gpu is positive and gpu_type is CPU",
        ),
    ),
)
INSTANCES = Schema(
    f"{NAME} pai_instance_table",
    (
        JOB,
        TASK,
        _text("inst_name", HEX, empty=True),
        _text("worker_name", HEX, empty=True),
        _text("inst_id", HEX),
        _text("status", "[A-Z][a-z]+"),
        *TIMES,
        _text("machine", HEX, empty=True),
    ),
    header=False,
    checks=(EARLY,),
)
SENSORS = Schema(
    f"{NAME} pai_sensor_table",
    (
        JOB,
        TASK,
        _text("worker_name", HEX, empty=True),
        _text("inst_id", HEX),
        _text("machine", HEX, empty=True),
        _text("gpu_name", empty=True),
        *(
            Column(name, empty=True, most=1e18)
            for name in (
                "cpu_usage",
                "gpu_wrk_util",
                "avg_mem",
                "max_mem",
                "avg_gpu_wrk_mem",
                "max_gpu_wrk_mem",
                "read",
                "write",
                "read_count",
                "write_count",
            )
        ),
    ),
    header=False,
)
GROUPS = Schema(
    f"{NAME} pai_group_tag_table",
    (
        _text("inst_id", HEX),
        _text("user", HEX, empty=True),
        _text("gpu_type_spec", MODEL, empty=True),
        _text("group", HEX, empty=True),
        _text("workload", empty=True),
    ),
    header=False,
    unique="inst_id",
)
MACHINE_SPEC = Schema(
    f"{NAME} pai_machine_spec",
    (
        _text("machine", HEX),
        _text("gpu_type", MODEL),
        Column("cap_cpu"),
        Column("cap_mem"),
        Column("cap_gpu", whole=True),
    ),
    header=False,
    unique="machine",
    checks=(
        _both(
            "gpu_type",
            "cap_gpu",
            lambda: (value("gpu_type") == "CPU") & (value("cap_gpu") > 0),
            "gpu_type is CPU and cap_gpu is positive",
        ),
        _both(
            "gpu_type",
            "cap_gpu",
            lambda: (value("gpu_type") != "CPU") & (value("cap_gpu") == 0),
            "cap_gpu is 0 and gpu_type is not CPU",
        ),
    ),
)
METRICS = Schema(
    f"{NAME} pai_machine_metric",
    (
        _text("worker_name", HEX, empty=True),
        _text("machine", HEX, empty=True),
        *TIMES,
        *(
            Column(name, empty=True, most=1e18)
            for name in (
                "machine_cpu_iowait",
                "machine_cpu_kernel",
                "machine_cpu_usr",
                "machine_gpu",
                "machine_load_1",
                "machine_net_receive",
                "machine_num_worker",
                "machine_cpu",
            )
        ),
    ),
    header=False,
    checks=(EARLY,),
)
ESTIMATES = ("wait_time", "user_dur", "user_gpu_dur", "group_dur", "group_gpu_dur")
SIMULATOR_JOBS = Schema(
    f"{NAME} job list of the simulator",
    (
        _text("job_id"),
        Column("num_inst", whole=True, least=1, empty=True),
        *_numbers("submit_time", "num_cpu", "num_gpu"),
        _text("gpu_type", MODEL, empty=True),
        Column("duration", least=-1e12),
        _text("user", empty=True),
        *(Column(name, least=-1e12, empty=True, needed=False) for name in ESTIMATES),
    ),
    checks=(
        _both(
            "num_gpu",
            "gpu_type",
            lambda: (value("num_gpu") > 0) & (value("gpu_type") == "CPU"),
            "num_gpu is positive and gpu_type is CPU",
        ),
    ),
)

FORMAT = Format(
    NAME,
    "Alibaba PAI: jobs, tasks and instances on 1,897 machines with GPUs of five kinds",
    "https://github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2020",
    "CC-BY-4.0",
    (
        TableFile("pai_machine_spec", MACHINE_SPEC, "pai_machine_spec", gives="servers"),
        TableFile(
            "pai_job_table",
            JOB_TABLE,
            "pai_job_table",
            needed=True,
            gives="when jobs were submitted",
        ),
        TableFile(
            "pai_task_table", TASK_TABLE, "pai_task_table", needed=True, gives="what jobs request"
        ),
        TableFile(
            "pai_group_tag_table",
            GROUPS,
            "pai_group_tag_table",
            gives="the GPU model that a job asked for",
        ),
        TableFile(
            "pai_instance_table",
            INSTANCES,
            "pai_instance_table",
            gives="single instances, which nothing uses yet",
        ),
        TableFile(
            "pai_sensor_table",
            SENSORS,
            "pai_sensor_table",
            gives="measured use, which nothing uses yet",
        ),
        TableFile(
            "pai_machine_metric",
            METRICS,
            "pai_machine_metric",
            gives="measured load of servers, which nothing uses yet",
        ),
        TableFile(
            "simulator_jobs",
            SIMULATOR_JOBS,
            r"pai_job_\w*estimate_\w+",
            gives="jobs, in place of the job and task tables",
        ),
        MINI_BATCH_TIMES,
        VARIATION,
    ),
    span="two months (July and August 2020)",
    size="1.4 GB packed",
)


SHAPE = ("row", "name", "job", "cpu", "mem", "gpu", "tasks", "models", "created", "deleted")
TASK_FIELDS = ("inst_num", "plan_cpu", "plan_mem", "plan_gpu")
SIMULATOR_FIELDS = ("submit_time", "num_inst", "num_cpu", "num_gpu")
MISC = "with GPUs of type MISC, older models under one name; it is read as one model"


class Jobs(NamedTuple):
    """Requests, and what came of the files that they are from; the last stage is of requests."""

    frame: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: dict[str, str]
    notes: tuple[str, ...]


def of_tasks(
    jobs: Read, tasks: Read, tags: Read | None, statuses: Sequence[str], models: str, missing: str
) -> Jobs:
    """A request for each row of the task table; arguments as of the reader."""
    submitted = jobs.frame.select("job_name", "inst_id", "user", created=known("start_time"))
    frame = tasks.frame.with_columns(started=known("start_time"), deleted=known("end_time"))
    frame = frame.join(submitted, on="job_name", how="left", maintain_order="left")
    if tags is not None:
        tag = tags.frame.select("inst_id", "gpu_type_spec", "group", "workload")
        frame = frame.join(tag, on="inst_id", how="left", maintain_order="left")
    no_gpu = pl.col("plan_gpu").is_null() & (pl.col("gpu_type") == "CPU")
    notes = counted(frame, no_gpu, "tasks of gpu_type CPU have no plan_gpu: they request none")
    frame = frame.with_columns(plan_gpu=pl.when(no_gpu).then(0.0).otherwise("plan_gpu"))
    frame, filled = _filled(frame, TASK_FIELDS, missing)
    goes_on = pl.col("status").is_in(["Running", "Waiting"])
    kept, stage = leave_out(
        "tasks",
        frame,
        [
            *(
                (f"status is {status}, not one of those asked for", pl.col("status") == status)
                for status in STATUSES
                if status not in statuses
            ),
            ("its job has no row in pai_job_table", pl.col("inst_id").is_null()),
            ("its job has no time of submission", pl.col("created").is_null()),
            ("it has no end_time", pl.col("deleted").is_null() & ~goes_on),
            ("it ended before its job was submitted", pl.col("deleted") < pl.col("created")),
            *_empty(TASK_FIELDS),
            (
                "it requests no devices at all",
                pl.col("plan_cpu") + pl.col("plan_mem") + pl.col("plan_gpu") == 0,
            ),
        ],
    )
    origin = pl.lit(submitted["created"].min(), pl.Float64)
    latest = frame.select(pl.max_horizontal(pl.col("created", "started", "deleted").max()))
    gpus, asked = pl.col("plan_gpu") > 0, models == "requested"
    model = "gpu_type_spec" if asked else "gpu_type"
    notes += [
        *filled,
        *_shifted(submitted["created"]),
        "the trace's own times, read as Unix time in UTC+8, have the true time of day and the true "
        "day of the week; the date is not true",
        "GPU models are those that tasks asked for (gpu_type_spec), any where they did not"
        if asked
        else "GPU models are those that tasks ran on (gpu_type)",
        *counted(kept, gpus & (pl.col(model) == "MISC"), f"tasks {MISC}"),
        *counted(
            kept,
            gpus & (pl.col(model).fill_null("") == ""),
            f"tasks use GPUs and have no {model}: any model will do",
        ),
        *counted(
            kept,
            ~gpus & ~pl.col("gpu_type").is_in(["", "CPU"]),
            "tasks ran on servers with GPUs and requested none: any server will do",
        ),
        *counted(kept, pl.col("started").is_null() & ~goes_on, "tasks have no start_time"),
        *counted(
            kept,
            pl.col("started") < pl.col("created"),
            "tasks started before their job was submitted; they are kept as they are",
        ),
        *counted(
            kept,
            pl.col("deleted").is_null(),
            "tasks that run or wait have no end_time: they end with the trace",
        ),
    ]
    requests = kept.with_columns(
        pl.col("task_name").alias("name"),
        pl.col("job_name").alias("job"),
        pl.col("inst_num").alias("tasks"),
        (pl.col("plan_cpu") / 100).alias("cpu"),
        pl.col("plan_mem").alias("mem"),
        (pl.col("plan_gpu") / 100).alias("gpu"),
        _models(model, gpus),
        pl.col("created") - origin,
        pl.col("started") - origin,
        pl.col("deleted").fill_null(pl.lit(latest.item(), pl.Float64)) - origin,
        unfinished=pl.col("deleted").is_null(),
    )
    reads = [jobs, tasks] if tags is None else [jobs, tasks, tags]
    more = [] if tags is None else ["group", "workload"]
    return Jobs(
        requests.select(*SHAPE, "started", "status", "user", "unfinished", *more),
        (*(stage for read in reads for stage in read.stages), stage),
        {name: digest for read in reads for name, digest in read.digests.items()},
        tuple(notes),
    )


def of_simulator_jobs(read: Read, missing: str) -> Jobs:
    """A request for each row of the simulator's job list."""
    frame, notes = _filled(read.frame, SIMULATOR_FIELDS, missing)
    if missing == "fill":
        short = pl.col("duration") <= 0
        notes += counted(frame, short, "durations are not positive and read as 1 s")
        frame = frame.with_columns(duration=pl.when(short).then(1.0).otherwise("duration"))
    kept, stage = leave_out(
        "jobs",
        frame,
        [
            *_empty(SIMULATOR_FIELDS),
            ("duration is negative", pl.col("duration") < 0),
            ("it requests no devices at all", pl.col("num_cpu") + pl.col("num_gpu") == 0),
        ],
    )
    gpus = pl.col("num_gpu") > 0
    created = pl.col("submit_time") - pl.col("submit_time").min()
    requests = kept.select(
        "row",
        pl.col("job_id").alias("name"),
        pl.col("job_id").alias("job"),
        pl.col("num_cpu").alias("cpu"),
        pl.lit(0.0).alias("mem"),
        pl.col("num_gpu").alias("gpu"),
        pl.col("num_inst").alias("tasks"),
        _models("gpu_type", gpus),
        created.alias("created"),
        (created + pl.col("duration")).alias("deleted"),
        "user",
    )
    notes += [
        *_shifted(kept["submit_time"]),
        "the simulator's job list says nothing of memory: every request of it is 0",
        "it says nothing of when jobs started: they last for their duration from submission on",
        *counted(kept, gpus & (pl.col("gpu_type") == "MISC"), f"jobs {MISC}"),
        *counted(
            kept,
            gpus & (pl.col("gpu_type") == ""),
            "jobs use GPUs and have no gpu_type: any model will do",
        ),
    ]
    return Jobs(requests, (*read.stages, stage), read.digests, tuple(notes))


def known(column: str) -> pl.Expr:
    """A time; null where it is empty or 0."""
    return pl.when(pl.col(column) > 0).then(column)


def counted(frame: pl.DataFrame, which: pl.Expr, what: str) -> list[str]:
    """A note of how many rows something is true of; none when it is true of none."""
    count = int(frame.select(which.fill_null(False).sum()).item())
    return [f"{count} {what}"] if count else []


def _models(column: str, gpus: pl.Expr) -> pl.Expr:
    named = gpus & (pl.col(column) != "CPU")
    return pl.when(named).then(column).otherwise(pl.lit("")).alias("models")


def _shifted(times: pl.Series) -> list[str]:
    earliest = times.drop_nulls().to_numpy()
    return (
        [
            f"times are the trace's own less {earliest.min():.10g} s, so that the first "
            f"submission is "
            "at 0 s"
        ]
        if earliest.size
        else []
    )


def _empty(columns: Sequence[str]) -> list[tuple[str, pl.Expr]]:
    return [(f"{name} is empty", pl.col(name).is_null()) for name in columns]


def _filled(
    frame: pl.DataFrame, columns: Sequence[str], missing: str
) -> tuple[pl.DataFrame, list[str]]:
    """Empty fields filled as the simulator does, when asked for, and how many there were."""
    notes = []
    for name in columns if missing == "fill" else ():
        by = 1.0 if name in ("inst_num", "num_inst", "submit_time") else 0.0
        empty = pl.col(name).is_null()
        notes += counted(frame, empty, f"empty fields of {name} are read as {by:g}")
        frame = frame.with_columns(pl.col(name).fill_null(by))
    return frame, notes


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
        for knob, held, allowed in chosen:
            if held not in allowed:
                raise TraceError(f"{knob} is {held!r}; choose among {', '.join(allowed)}")
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

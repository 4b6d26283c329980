"""Jobs of Alibaba cluster-trace-gpu-v2020: from its tables, or from its simulator's job list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gangwise.traces.alibaba_gpu_v2020_schemas import STATUSES
from gangwise.traces.fidelity import Stage, leave_out
from gangwise.traces.source import Read

if TYPE_CHECKING:
    import polars as pl


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
    import polars as pl

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
    )
    reads = [jobs, tasks] if tags is None else [jobs, tasks, tags]
    more = [] if tags is None else ["group", "workload"]
    return Jobs(
        requests.select(*SHAPE, "started", "status", "user", *more),
        (*(stage for read in reads for stage in read.stages), stage),
        {name: digest for read in reads for name, digest in read.digests.items()},
        tuple(notes),
    )


def of_simulator_jobs(read: Read, missing: str) -> Jobs:
    """A request for each row of the simulator's job list."""
    import polars as pl

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
    import polars as pl

    return pl.when(pl.col(column) > 0).then(column)


def counted(frame: pl.DataFrame, which: pl.Expr, what: str) -> list[str]:
    """A note of how many rows something is true of; none when it is true of none."""
    count = int(frame.select(which.fill_null(False).sum()).item())
    return [f"{count} {what}"] if count else []


def _models(column: str, gpus: pl.Expr) -> pl.Expr:
    import polars as pl

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
    import polars as pl

    return [(f"{name} is empty", pl.col(name).is_null()) for name in columns]


def _filled(
    frame: pl.DataFrame, columns: Sequence[str], missing: str
) -> tuple[pl.DataFrame, list[str]]:
    """Empty fields filled as the simulator does, when asked for, and how many there were."""
    import polars as pl

    notes = []
    for name in columns if missing == "fill" else ():
        by = 1.0 if name in ("inst_num", "num_inst", "submit_time") else 0.0
        empty = pl.col(name).is_null()
        notes += counted(frame, empty, f"empty fields of {name} are read as {by:g}")
        frame = frame.with_columns(pl.col(name).fill_null(by))
    return frame, notes

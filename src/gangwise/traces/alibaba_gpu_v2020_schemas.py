"""The files of Alibaba cluster-trace-gpu-v2020 (PAI): tables, columns, and what they must hold.

The seven tables have no header row; ``pai_TABLE.header`` beside them holds the names of the
columns. Missing fields are empty, and a time of 0 is missing too. The simulator's job list and the
mini-batch times have a header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gangwise.traces.formats import Format, TableFile
from gangwise.traces.mini_batch_time import TABLE as MINI_BATCH_TIMES
from gangwise.traces.mini_batch_time import VARIATION
from gangwise.traces.schema import Check, Column, Schema, value

if TYPE_CHECKING:
    import polars as pl


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

JOBS = Schema(
    f"{NAME} pai_job_table",
    (JOB, _text("inst_id", HEX), _text("user", HEX, empty=True), STATUS, *TIMES),
    header=False,
    unique="job_name",
    checks=(EARLY,),
)
TASKS = Schema(
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
MACHINES = Schema(
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
SIMULATOR = Schema(
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
        TableFile("pai_machine_spec", MACHINES, "pai_machine_spec", gives="servers"),
        TableFile(
            "pai_job_table", JOBS, "pai_job_table", needed=True, gives="when jobs were submitted"
        ),
        TableFile(
            "pai_task_table", TASKS, "pai_task_table", needed=True, gives="what jobs request"
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
            SIMULATOR,
            r"pai_job_\w*estimate_\w+",
            gives="jobs, in place of the job and task tables",
        ),
        MINI_BATCH_TIMES,
        VARIATION,
    ),
    span="two months (July and August 2020)",
    size="1.4 GB packed",
)

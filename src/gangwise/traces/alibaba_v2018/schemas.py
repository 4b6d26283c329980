"""What the files of Alibaba cluster-trace-v2018 hold: six tables, none with a header."""

from __future__ import annotations

from gangwise.traces.formats import Format, TableFile
from gangwise.traces.schema import Check, Column, Schema, value

NAME = "alibaba-v2018"
PERCENTAGES = (
    "cpu_util_percent",
    "mem_util_percent",
    "mem_gps",
    "net_in",
    "net_out",
    "disk_io_percent",
)
"""Measurements from 0 to 100; what is outside is invalid (the publisher writes -1 or 101)."""

_MACHINE = Column("machine_id", number=False, pattern=r"m_\d+")
_CONTAINER = Column("container_id", number=False, pattern=r"c_\d+")
_JOB = Column("job_name", number=False, pattern=r"j_\d+")
_STATUS = Column("status", number=False, pattern="[A-Za-z_]+")
_TIME = Column("time_stamp")
_TASK = (
    Column("task_type", number=False, empty=True),
    _STATUS,
    Column("start_time", empty=True),
    Column("end_time", empty=True),
)


def _measured(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, least=-1e12, empty=True) for name in names)


MACHINE_META = Schema(
    f"{NAME} machine_meta",
    (
        _MACHINE,
        _TIME,
        Column("failure_domain_1", number=False, empty=True),
        Column("failure_domain_2", number=False, empty=True),
        Column("cpu_num", whole=True, least=1, most=1e6),
        Column("mem_size", most=100),
        _STATUS,
    ),
    header=False,
)
MACHINE_USAGE = Schema(
    f"{NAME} machine_usage",
    (
        _MACHINE,
        _TIME,
        *_measured(
            "cpu_util_percent",
            "mem_util_percent",
            "mem_gps",
            "mkpi",
            "net_in",
            "net_out",
            "disk_io_percent",
        ),
    ),
    header=False,
)
CONTAINER_META = Schema(
    f"{NAME} container_meta",
    (
        _CONTAINER,
        _MACHINE,
        _TIME,
        Column("app_du", number=False),
        _STATUS,
        Column("cpu_request"),
        Column("cpu_limit", empty=True),
        Column("mem_size", most=100),
    ),
    header=False,
)
CONTAINER_USAGE = Schema(
    f"{NAME} container_usage",
    (
        _CONTAINER,
        _MACHINE,
        _TIME,
        *_measured(
            "cpu_util_percent",
            "mem_util_percent",
            "cpi",
            "mem_gps",
            "mpki",
            "net_in",
            "net_out",
            "disk_io_percent",
        ),
    ),
    header=False,
)
BATCH_TASK = Schema(
    f"{NAME} batch_task",
    (
        Column("task_name", number=False),
        Column("instance_num", whole=True, empty=True),
        _JOB,
        *_TASK,
        Column("plan_cpu", empty=True),
        Column("plan_mem", empty=True, most=100),
    ),
    header=False,
    checks=(
        Check(
            "end_time is before start_time",
            ("start_time", "end_time"),
            lambda: (value("end_time") > 0) & (value("end_time") < value("start_time")),
        ),
    ),
)
BATCH_INSTANCE = Schema(
    f"{NAME} batch_instance",
    (
        Column("instance_name", number=False),
        Column("task_name", number=False),
        _JOB,
        *_TASK,
        Column("machine_id", number=False, pattern=r"m_\d+", empty=True),
        Column("seq_no", empty=True),
        Column("total_seq_no", empty=True),
        *_measured("cpu_avg", "cpu_max", "mem_avg", "mem_max"),
    ),
    header=False,
)
FORMAT = Format(
    NAME,
    "Alibaba cluster trace 2018",
    "https://github.com/alibaba/clusterdata (folder cluster-trace-v2018)",
    "for research and study, on the publisher's terms",
    (
        TableFile("machine_meta", MACHINE_META, "machine_meta", gives="servers"),
        TableFile(
            "machine_usage", MACHINE_USAGE, "machine_usage", gives="measured load of servers"
        ),
        TableFile("container_meta", CONTAINER_META, "container_meta", gives="containers"),
        TableFile(
            "container_usage",
            CONTAINER_USAGE,
            "container_usage",
            gives="measured load of containers",
        ),
        TableFile("batch_task", BATCH_TASK, "batch_task", needed=True, gives="batch jobs"),
        TableFile(
            "batch_instance",
            BATCH_INSTANCE,
            "batch_instance",
            gives="single instances, which nothing uses yet",
        ),
    ),
    span="8 days",
    size="48 GB packed, 280 GB unpacked",
    sha256={
        "batch_instance.tar.gz": "e73e5a9326669aa079ba20048ddd759383cabe1fe3e58620aa75bd034e2450c6",
        "batch_task.tar.gz": "7c4b32361bd1ec2083647a8f52a6854a03bc125ca5c202652316c499fbf978c6",
        "container_meta.tar.gz": "febd75e693d1f208a8941395e7faa7e466e50d21c256eff12a815b7e2fa2053f",
        "container_usage.tar.gz": (
            "b4bd3b1b82f5407c1b0dd47fe736ff5152c4b016a9c30cb26f988e2d1c5e5031"
        ),
        "machine_meta.tar.gz": "b5b1b786b22cd413a3674b8f2ebfb2f02fac991c95df537f363ef2797c8f6d55",
        "machine_usage.tar.gz": "3e6ee87fd204bb85b9e234c5c75a5096580fdabc8f085b224033080090753a7a",
    },
    checksums="README.md of the folder cluster-trace-v2018",
)

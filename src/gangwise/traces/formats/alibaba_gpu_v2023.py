"""Alibaba cluster-trace-gpu-v2023: nodes with GPUs of several models, and pods that share them.

Published by Alibaba with "Beware of Fragmentation" (USENIX ATC 2023); get it from
https://github.com/alibaba/clusterdata, folder ``cluster-trace-gpu-v2023``, subject to its terms.

==================  =======================================================================
column              meaning here
==================  =======================================================================
node ``cpu_milli``  thousandths of a core: device type ``cpu``, in cores
node ``memory_mib`` device type ``mem``, in GiB
node ``gpu``        GPUs of its ``model``: device type ``gpu:MODEL``
pod ``num_gpu``     GPUs requested, each to ``gpu_milli`` thousandths
pod ``gpu_spec``    GPU models it may use, ``A|B``; empty for any
pod ``*_time``      seconds since the start of the trace
==================  =======================================================================
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import Format, TableFile, files_of, has_usual_name, recognise
from gangwise.traces.io.schema import Check, Column, Schema, value
from gangwise.traces.io.text import header_of
from gangwise.traces.source import NamedFiles
from gangwise.traces.tables import Reader, Tables

NAME = "alibaba-gpu-v2023"
TIMES = ("creation_time", "deletion_time")


NODES = Schema(
    f"{NAME} node list",
    (
        Column("sn", number=False),
        Column("cpu_milli"),
        Column("memory_mib"),
        Column("gpu", whole=True),
        Column("model", number=False, empty=True),
    ),
    unique="sn",
    checks=(
        Check(
            "gpu is positive and model is empty",
            ("gpu", "model"),
            lambda: (value("gpu") > 0) & (value("model") == ""),
        ),
        Check(
            "the node has no devices at all",
            ("cpu_milli", "memory_mib", "gpu"),
            lambda: value("cpu_milli") + value("memory_mib") + value("gpu") == 0,
        ),
    ),
)
_REQUESTS = (
    Column("name", number=False),
    Column("cpu_milli"),
    Column("memory_mib"),
    Column("num_gpu", whole=True),
    Column("gpu_milli", most=1000),
)
PODS = Schema(
    f"{NAME} pod list",
    (
        *_REQUESTS,
        Column("gpu_spec", number=False, empty=True),
        Column("creation_time"),
        Column("deletion_time"),
        Column("scheduled_time", empty=True, needed=False),
        Column("qos", number=False, empty=True, needed=False),
        Column("pod_phase", number=False, empty=True, needed=False),
    ),
    unique="name",
    checks=(
        Check(
            "deletion_time is before creation_time",
            ("creation_time", "deletion_time"),
            lambda: value("deletion_time") < value("creation_time"),
        ),
        Check(
            "num_gpu is positive and gpu_milli is 0",
            ("num_gpu", "gpu_milli"),
            lambda: (value("num_gpu") > 0) & (value("gpu_milli") == 0),
        ),
        Check(
            "gpu_milli is positive and num_gpu is 0",
            ("num_gpu", "gpu_milli"),
            lambda: (value("num_gpu") == 0) & (value("gpu_milli") > 0),
        ),
        Check(
            "the pod requests no devices at all",
            ("cpu_milli", "memory_mib", "num_gpu"),
            lambda: value("cpu_milli") + value("memory_mib") + value("num_gpu") == 0,
        ),
    ),
)
UNTIMED = Schema(f"{NAME} pod list without times", _REQUESTS, absent=TIMES)
FORMAT = Format(
    NAME,
    "Alibaba: nodes with GPUs of several models, and pods that share them",
    "https://github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2023",
    "the terms of the repository alibaba/clusterdata",
    (
        TableFile("nodes", NODES, "openb_node_list_all_node", needed=True, gives="servers"),
        TableFile("pods", PODS, "openb_pod_list_default", needed=True, gives="jobs"),
        TableFile(
            "pods_without_times",
            UNTIMED,
            r"openb_pod_list_multigpu\d+",
            parts=True,
            gives="requests without times, which nothing uses yet",
        ),
    ),
    span="149 days",
)


class AlibabaGpuV2023(Reader):
    r"""Reader of a node list and a pod list.

    Parameters
    ----------
    path : path, optional
        A directory that holds both, or one of the two, with the other beside it. Of several pod
        lists, ``openb_pod_list_default.csv`` is read, else the only one that has times.
    nodes, pods : path, optional
        The files themselves.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When the files cannot be found or read; says which, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> nodes, pods = Path(folder.name, "nodes.csv"), Path(folder.name, "pods.csv")
    >>> size = nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,2,T4\n")
    >>> size = pods.write_text(
    ...     "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
    ...     "p,4000,4096,1,500,,0,60\n"
    ... )
    >>> AlibabaGpuV2023(folder.name).scan().jobs.select("cpu", "mem", "gpu").rows()
    [(4.0, 4.0, 0.5)]
    >>> folder.cleanup()
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        nodes: Path | str | None = None,
        pods: Path | str | None = None,
        strict: bool = False,
    ):
        if path is None and (nodes is None or pods is None):
            raise TraceError("give a directory, or both nodes= and pods=")
        folder = Path(path or ".")
        if not folder.exists():
            raise TraceError("there is no such file or directory", folder)
        given = {"nodes": nodes, "pods": pods}
        made = NamedFiles(
            folder,
            FORMAT,
            named={name: Path(f) for name, f in given.items() if f is not None},
            strict=strict,
        )
        if made.converted is not None:
            self.nodes, self.pods = (_one(folder, name, made.files(name)) for name in given)
            self.source = made
            return
        if folder.is_file():
            if nodes is None and "nodes" in _tables_of(folder):
                nodes = folder
            elif pods is None:
                pods = folder
            folder = folder.parent
        self.nodes = Path(nodes) if nodes is not None else _only(folder, "nodes")
        self.pods = Path(pods) if pods is not None else _only(folder, "pods")
        named = {"nodes": self.nodes, "pods": self.pods}
        self.source = NamedFiles(folder, FORMAT, named=named, strict=strict)

    def _read(self) -> Tables:
        if _tables_of(self.pods) == ["pods_without_times"]:
            raise TraceError(
                "this pod list has no creation_time and deletion_time (as published, the four "
                "multigpu lists have none), so when its jobs arrive is not known; choose a pod "
                "list with times, such as openb_pod_list_default.csv",
                self.pods,
                1,
            )
        nodes, pods = self.source.read("nodes"), self.source.read("pods")
        spec = pl.col("gpu_spec").str.split("|")
        spec = spec.list.eval(pl.element().str.strip_chars()).list.unique().list.sort()
        jobs = pods.frame.select(
            "row",
            "name",
            pl.col("cpu_milli") / 1000,
            pl.col("memory_mib") / 1024,
            pl.col("num_gpu") * pl.col("gpu_milli") / 1000,
            pl.when(pl.col("num_gpu") > 0)
            .then(spec.list.join("|").str.strip_chars("|"))
            .otherwise(pl.lit("")),
            *TIMES,
        )
        jobs.columns = ["row", "name", "cpu", "mem", "gpu", "models", "created", "deleted"]
        jobs = jobs.with_columns(
            pods.frame[column].alias(name)
            for column, name in (
                ("scheduled_time", "started"),
                ("pod_phase", "status"),
                ("qos", "qos"),
            )
            if column in pods.frame.columns
        )
        if "status" in jobs.columns:
            at_the_end = pl.col("deleted") == pl.col("deleted").max()
            jobs = jobs.with_columns(unfinished=(pl.col("status") == "Running") & at_the_end)
        servers = nodes.frame.select(
            "row",
            pl.col("sn").alias("name"),
            pl.when(pl.col("gpu") > 0).then("model").otherwise(pl.lit("")).alias("model"),
            (pl.col("cpu_milli") / 1000).alias("cpu"),
            (pl.col("memory_mib") / 1024).alias("mem"),
            "gpu",
        )
        return Tables(
            NAME, servers, jobs, (*nodes.stages, *pods.stages), {**nodes.digests, **pods.digests}
        )


def _tables_of(file: Path) -> list[str]:
    return [table.name for _, table in recognise(file, [FORMAT])]


def _only(folder: Path, name: str) -> Path:
    """The one file of a directory that holds a table."""
    table, files = FORMAT.table(name), files_of(folder)
    fit = [file for file in files if name in _tables_of(file)]
    fit = [file for file in fit if has_usual_name(file, table)] or fit
    if not fit:
        other = "pods" if name == "nodes" else "nodes"
        near = [file for file in files if other not in _tables_of(file)]
        near.sort(key=lambda file: -len(table.schema.place(header_of(file))))
        needed = sum(column.needed for column in table.schema.columns)
        if near and 2 * len(table.schema.place(header_of(near[0]))) > needed:
            return near[0]  # reading it says what is wrong with it
    return _one(folder, name, fit)


def _one(folder: Path, name: str, fit: list[Path]) -> Path:
    schema = FORMAT.table(name).schema
    if len(fit) > 1:
        raise TraceError(
            f"{len(fit)} files could be the {schema.name}: {', '.join(f.name for f in fit)}; "
            f"choose one with {name}=",
            folder,
        )
    if not fit:
        raise TraceError(
            f"no {schema.name} here: no file has the columns "
            f"{', '.join(c.name for c in schema.columns if c.needed)}; found "
            f"{', '.join(f.name for f in files_of(folder)) or 'no .csv or .csv.gz file'}; "
            f"name the file with {name}=",
            folder,
        )
    return fit[0]

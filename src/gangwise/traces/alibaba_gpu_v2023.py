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

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Fidelity, Stage, of_tables
from gangwise.traces.schema import Check, Column, Schema, value
from gangwise.traces.tables import Table, read_table
from gangwise.traces.text import header_of
from gangwise.traces.trace import Tables

__all__ = ["AlibabaGpuV2023"]

NAME = "alibaba-gpu-v2023"
USUAL_PODS = "openb_pod_list_default.csv"


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
        Check("gpu is positive and model is empty", ("gpu", "model"),
              lambda: (value("gpu") > 0) & (value("model") == "")),
        Check("the node has no devices at all", ("cpu_milli", "memory_mib", "gpu"),
              lambda: value("cpu_milli") + value("memory_mib") + value("gpu") == 0),
    ),
)  # fmt: skip
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
    ),
    unique="name",
    checks=(
        Check("deletion_time is before creation_time", ("creation_time", "deletion_time"),
              lambda: value("deletion_time") < value("creation_time")),
        Check("num_gpu is positive and gpu_milli is 0", ("num_gpu", "gpu_milli"),
              lambda: (value("num_gpu") > 0) & (value("gpu_milli") == 0)),
        Check("gpu_milli is positive and num_gpu is 0", ("num_gpu", "gpu_milli"),
              lambda: (value("num_gpu") == 0) & (value("gpu_milli") > 0)),
        Check("the pod requests no devices at all", ("cpu_milli", "memory_mib", "num_gpu"),
              lambda: value("cpu_milli") + value("memory_mib") + value("num_gpu") == 0),
    ),
)  # fmt: skip
UNTIMED = Schema(f"{NAME} pod list without times", _REQUESTS)


class AlibabaGpuV2023:
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
        folder, self.strict = Path(path or "."), strict
        if path is not None and not folder.exists():
            raise TraceError("there is no such file or directory", folder)
        if folder.is_file():
            header = header_of(folder)
            if nodes is None and NODES.matches(header):
                nodes = folder
            elif pods is None:
                pods = folder
            folder = folder.parent
        self.nodes = Path(nodes) if nodes is not None else _only(folder, NODES, "nodes")
        self.pods = Path(pods) if pods is not None else _only(folder, PODS, "pods", USUAL_PODS)
        self._tables: Tables | None = None

    @staticmethod
    def recognise(path: Path | str) -> bool:
        """Whether a file, or some file of a directory, has the header of a node or pod list."""
        return any(
            schema.matches(header_of(file))
            for file in _files(Path(path))
            for schema in (NODES, PODS, UNTIMED)
        )

    def scan(self) -> Tables:
        """Read both files, once."""
        if self._tables is None:
            self._tables = self._read()
        return self._tables

    def fidelity(self) -> Fidelity:
        """What was read and what was left out."""
        return of_tables(self.scan())

    def _read(self) -> Tables:
        import polars as pl

        if {column.name for column in _REQUESTS} == set(header_of(self.pods)):
            raise TraceError(
                "this pod list has no creation_time and deletion_time (as published, the four "
                "multigpu lists have none), so when its jobs arrive is not known; choose a pod "
                f"list with times, such as {USUAL_PODS}", self.pods, 1,
            )  # fmt: skip
        nodes = read_table(self.nodes, NODES, others=(PODS, UNTIMED), strict=self.strict)
        pods = read_table(self.pods, PODS, others=(NODES,), strict=self.strict)
        spec = pl.col("gpu_spec").str.split("|")
        spec = spec.list.eval(pl.element().str.strip_chars()).list.unique().list.sort()
        jobs = pods.frame.select(
            "row", "name", pl.col("cpu_milli") / 1000, pl.col("memory_mib") / 1024,
            pl.col("num_gpu") * pl.col("gpu_milli") / 1000,
            pl.when(pl.col("num_gpu") > 0).then(spec.list.join("|").str.strip_chars("|"))
            .otherwise(pl.lit("")),
            "creation_time", "deletion_time",
        )  # fmt: skip
        jobs.columns = ["row", "name", "cpu", "mem", "gpu", "models", "created", "deleted"]
        servers = nodes.frame.select(
            "row", pl.col("sn").alias("name"),
            pl.when(pl.col("gpu") > 0).then("model").otherwise(pl.lit("")).alias("model"),
            (pl.col("cpu_milli") / 1000).alias("cpu"), (pl.col("memory_mib") / 1024).alias("mem"),
            "gpu",
        )  # fmt: skip
        return Tables(
            NAME, servers, jobs, (_stage(nodes), _stage(pods)),
            {table.file.name: table.digest for table in (nodes, pods)},
        )  # fmt: skip


def _stage(table: Table) -> Stage:
    return Stage(table.file.name, table.read, len(table.frame), dict(table.dropped))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.name.lower().endswith((".csv", ".csv.gz")))


def _only(folder: Path, schema: Schema, argument: str, usual: str = "") -> Path:
    """The one file of a directory that has a schema's header."""
    files = _files(folder)
    fit = [f for f in files if schema.matches(header_of(f))]
    for name in (usual, f"{usual}.gz"):
        if usual and folder / name in fit:
            return folder / name
    if len(fit) == 1:
        return fit[0]
    if fit:
        raise TraceError(
            f"{len(fit)} files could be the {schema.name}: {', '.join(f.name for f in fit)}; "
            f"choose one with {argument}=", folder,
        )  # fmt: skip
    others = [other for other in (NODES, PODS) if other is not schema]
    near = [f for f in files if not any(other.matches(header_of(f)) for other in others)]
    near.sort(key=lambda f: -len(schema.place(header_of(f))))
    if near and 2 * len(schema.place(header_of(near[0]))) > len(schema.columns):
        return near[0]  # reading it says what is wrong with it
    raise TraceError(
        f"no {schema.name} here: no file has the columns "
        f"{', '.join(c.name for c in schema.columns)}; found "
        f"{', '.join(f.name for f in files) or 'no .csv or .csv.gz file'}; "
        f"name the file with {argument}=", folder,
    )  # fmt: skip

"""Alibaba cluster-trace-gpu-v2023 (``alibaba-gpu-v2023.toml``): which files are read.

There are several pod lists, of which one is read, and some of them have no times.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import declared, files_of, has_usual_name, recognise
from gangwise.traces.formats.tabular import Tabular
from gangwise.traces.io.text import header_of
from gangwise.traces.source import Source
from gangwise.traces.tables import Tables

FORMAT = declared("alibaba-gpu-v2023")


class AlibabaGpuV2023(Tabular):
    """Reader of a node list and a pod list.

    Parameters
    ----------
    path : path, optional
        A directory that holds both, or one of the two, with the other beside it. Of several pod
        lists, ``openb_pod_list_default.csv`` is read, else the only one that has times.
    nodes, pods : path, optional
        The files themselves.
    untimed : bool
        Take a pod list without times, too: all pods are created and deleted at 0 s.
    """

    FORMAT = FORMAT

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        nodes: Path | str | None = None,
        pods: Path | str | None = None,
        strict: bool = False,
        untimed: bool = False,
    ):
        self.untimed, self.options = untimed, {}
        if path is None and (nodes is None or pods is None):
            raise TraceError("give a directory, or both nodes= and pods=")
        folder = Path(path or ".")
        if not folder.exists():
            raise TraceError("there is no such file or directory", folder)
        given = {name: Path(f) for name, f in (("nodes", nodes), ("pods", pods)) if f is not None}
        self.source = Source(folder, FORMAT, named=given, strict=strict)
        if self.source.converted is not None:
            found = {name: self.source.files(name) for name in ("nodes", "pods")}
            self.nodes, self.pods = (_one(folder, name, files) for name, files in found.items())
            return
        if folder.is_file():
            if "nodes" not in given and "nodes" in _tables_of(folder):
                given["nodes"] = folder
            else:
                given.setdefault("pods", folder)
            folder = folder.parent
        self.nodes = given.get("nodes") or _only(folder, "nodes")
        self.pods = given.get("pods") or _only(folder, "pods")
        named = {"nodes": self.nodes, "pods": self.pods, "pods_without_times": self.pods}
        self.source = Source(folder, FORMAT, named=named, strict=strict)

    def _read(self) -> Tables:
        timeless = _tables_of(self.pods) == ["pods_without_times"]
        if timeless and not self.untimed:
            raise TraceError(
                "this pod list has no creation_time and deletion_time (as published, the four "
                "multigpu lists have none), so when its jobs arrive is not known; choose a pod "
                "list with times, such as openb_pod_list_default.csv, or fill the cluster with "
                "them: gangwise replay FILE --until-full",
                self.pods,
                1,
            )
        read = self.source.read("pods_without_times" if timeless else "pods")
        if timeless:
            at_zero = {name: pl.lit(0.0) for name in ("creation_time", "deletion_time")}
            read.frame = read.frame.with_columns(gpu_spec=pl.lit(""), **at_zero)
        return self.tables_of(read)


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

"""Servers from ``scontrol show node``, with ``-o`` or without.

``Key=Value`` pairs, described at https://slurm.schedmd.com/scontrol.html: ``NodeName``, ``CPUTot``
(cores, or hardware threads where Slurm counts those), ``RealMemory`` in MiB, and ``Gres`` such as
``gpu:a100:4(S:0-1)``, ``gpu:2``, whose model is then called ``gpu``, or ``(null)``. It is what the
cluster has when the command is run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.traces.fidelity import Stage
from gangwise.traces.json_records import Account, beginning
from gangwise.traces.text import read_text, split_lines
from gangwise.traces.trace import server_table

if TYPE_CHECKING:
    import polars as pl


def is_node_list(file: Path) -> bool:
    """Whether a file begins with a node."""
    return beginning(file).startswith("NodeName=")


def read_nodes(file: Path, strict: bool) -> tuple[pl.DataFrame, Stage, str]:
    """Servers, the account of them, and the SHA-256 of the file."""
    text, digest = read_text(file)
    nodes: list[tuple[int, str]] = []
    for row, line in enumerate(split_lines(text), 1):
        if line.startswith("NodeName=") or not nodes:
            nodes.append((row, line))
        else:
            nodes[-1] = (nodes[-1][0], f"{nodes[-1][1]} {line}")
    account, names, rows = Account(file, strict), set(), []
    for row, node in nodes:
        held = {
            key: re.search(rf"(?:^|\s){key}=(\S+)", node)
            for key in ("NodeName", "CPUTot", "RealMemory", "Gres")
        }
        name, cores, memory = (held[key] for key in ("NodeName", "CPUTot", "RealMemory"))
        if name is None or cores is None or memory is None:
            account.refuse(row, "NodeName, CPUTot or RealMemory is missing", node)
        elif not (cores[1].isdecimal() and memory[1].isdecimal()):
            account.refuse(row, "CPUTot or RealMemory is not a number", node)
        elif name[1] in names:
            account.refuse(row, "NodeName was used before", name[1])
        else:
            names.add(name[1])
            try:
                kinds = gpus(held["Gres"][1] if held["Gres"] else "(null)")
            except ValueError as error:
                account.refuse(row, str(error), name[1])
                continue
            if len(kinds) > 1:
                account.leave_out(row, "the node has GPUs of several models")
                continue
            model, count = next(iter(kinds.items()), ("", 0))
            model = model or "gpu" * bool(count)
            rows.append(
                (row, name[1], model, float(cores[1]), float(memory[1]) / 1024, float(count))
            )
    account.require(len(rows), "node")
    return server_table(rows), account.stage(file.name, len(nodes)), digest


def gpus(gres: str) -> dict[str, int]:
    """GPUs by model in a list of generic resources; the model is empty where none is named.

    Raises
    ------
    ValueError
        When a count is none.

    Examples
    --------
    >>> gpus("gpu:a100:4(S:0-1),lscratch:3200"), gpus("gpu:2"), gpus("(null)")
    ({'a100': 4}, {'': 2}, {})
    """
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        kind, *rest = item.split(":")
        if kind != "gpu":
            continue
        model, count = (rest[0], rest[1]) if len(rest) == 2 else ("", rest[0] if rest else "1")
        if not count.isdecimal():
            raise ValueError(f"Gres has {item!r}, which is no count of GPUs")
        if int(count):
            found[model] = found.get(model, 0) + int(count)
    return found

"""What Slurm writes: node lists, trackable resources (TRES), memory, its nodes.

Node lists as in https://slurm.schedmd.com/scontrol.html (``show hostnames``), the rest as in
https://slurm.schedmd.com/sacct.html; memory of old versions (before 21.08) ends in ``n``, per
node, or ``c``, per core: https://manpages.ubuntu.com/manpages/focal/man1/sacct.1.html.
``scontrol show node`` prints ``Key=Value`` pairs: ``CPUTot`` (cores, or hardware threads where
Slurm counts those), ``RealMemory`` in MiB, ``Gres`` such as ``gpu:a100:4(S:0-1)`` or ``(null)``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import prod
from pathlib import Path

import polars as pl

from gangwise.logs.io.reading import RowAccount, Stage
from gangwise.logs.io.text import read_text, split_lines
from gangwise.logs.tables import server_table

MAX_NODES = 1 << 16
YEAR = 365 * 86_400.0
"""Seconds for which Slurm plans a job without a limit."""
GIB = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
"""GiB in a unit; without one, memory is in MiB."""
PER_CORE = 2.0**31 / 1024
"""GiB: old versions add 2^31 MiB to an amount that is per core, and may print the sum."""


def expand_nodes(text: str) -> list[str]:
    """Names in a node list; none for ``None assigned`` and the like.

    ValueError: When brackets or ranges make no sense, or there are more than 65,536 names.

    >>> expand_nodes("gpu[08-10,12],login")
    ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login']
    >>> expand_nodes("r[1-2]n[1,3]")
    ['r1n1', 'r1n3', 'r2n1', 'r2n3']
    """
    if text.strip() in ("", "None", "None assigned", "(null)", "N/A"):
        return []
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+|[,\[\]]", text.strip()):
        if part in "[]":
            raise ValueError(f"brackets do not match in {text!r}")
        if part != ",":
            names += _expand(part)
            if len(names) > MAX_NODES:
                raise ValueError(f"more than {MAX_NODES} nodes in {text!r:.60}")
    return names


def fold_nodes(names: Iterable[str]) -> str:
    """A node list of names, as :func:`expand_nodes` reads it.

    >>> fold_nodes(["n8", "n9", "n10", "n12", "login"])
    'login,n[8-9],n[10,12]'
    """
    numbers, parts = defaultdict(list), []
    for name in names:
        head = name.rstrip("0123456789")
        numbers[head, len(name)].append(name[len(head) :])
    for (head, _), found in sorted(numbers.items()):
        runs = groupby(enumerate(sorted(found)), lambda each: int(each[1] or 0) - each[0])
        ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
        text = ",".join(first + f"-{last}" * (last > first) for first, last in ends)
        parts.append(head + (f"[{text}]" if len(found) > 1 else text))
    return ",".join(parts)


def _expand(part: str) -> list[str]:
    names = [""]
    for literal, inside in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", part):
        endings = [literal] if literal else _ranges(inside)
        if len(names) * len(endings) > MAX_NODES:
            raise ValueError(f"more than {MAX_NODES} nodes in {part!r:.60}")
        names = [name + ending for name in names for ending in endings]
    return names


def _ranges(inside: str) -> list[str]:
    """``08-10,12`` to ``08 09 10 12``: numbers are as wide as the first of their range."""
    found: list[str] = []
    for piece in inside.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", piece.strip())
        if match is None:
            raise ValueError(f"[{inside}] is no list of numbers and ranges")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MAX_NODES:
            raise ValueError(f"the range {piece.strip()} is backwards or too long")
        found += [f"{n:0{len(match[1])}d}" for n in range(first, last + 1)]
    return found


def gib(text: str) -> float:
    """GiB of an amount of memory such as ``16G``, ``515538M`` or ``4000``, which is MiB.

    ValueError: When it is no amount.

    >>> gib("16G"), gib("512M"), gib("2048"), gib("1.5T")
    (16.0, 0.5, 2.0, 1536.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no amount of memory")
    return float(match[1]) * GIB[match[2]]


def tres(text: str) -> dict[str, str]:
    """Names and amounts of a TRES list, as they are written.

    ValueError: When a piece is not ``name=amount``, or a name is there twice.

    >>> tres("cpu=4,gres/gpu:a100=2,mem=16G")
    {'cpu': '4', 'gres/gpu:a100': '2', 'mem': '16G'}
    """
    found: dict[str, str] = {}
    for piece in filter(None, text.strip().split(",")):
        name, equals, amount = piece.partition("=")
        if not (name and equals and amount) or name in found:
            raise ValueError(f"{piece!r} is no TRES such as cpu=4")
        found[name] = amount
    return found


def number_of(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is no count")
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")


def read_nodes(file: Path, strict: bool) -> tuple[pl.DataFrame, Stage, str]:
    """Servers, the account of them, and the SHA-256 of the file.

    It is what scontrol prints, or a configuration, in which ``DEFAULT`` holds for nodes after it.
    """
    text, digest = read_text(file)
    nodes: list[tuple[int, str]] = []
    for row, line in enumerate(split_lines(text), 1):
        if line.startswith("NodeName=") or not nodes:
            nodes.append((row, line))
        else:
            nodes[-1] = (nodes[-1][0], f"{nodes[-1][1]} {line}")
    account, names, rows = RowAccount(file, strict), set(), []
    default: dict[str, str] = {}
    for row, node in _each_node(nodes):
        held = default | dict(re.findall(rf"(?:^|\s)({'|'.join(OF_NODE)})=(\S+)", node))
        name, memory, cores = held.pop("NodeName", ""), held.get("RealMemory"), _cores(held)
        if name == "DEFAULT":
            default = held
        elif not name or cores is None or memory is None:
            account.refuse(row, "NodeName, CPUTot or RealMemory is missing", node)
        elif not (cores.isdecimal() and memory.isdecimal()):
            account.refuse(row, "CPUTot or RealMemory is not a number", node)
        elif name in names:
            account.refuse(row, "NodeName was used before", name)
        else:
            names.add(name)
            try:
                kinds = gpus(held.get("Gres", "(null)"))
            except ValueError as error:
                account.refuse(row, str(error), name)
                continue
            if len(kinds) > 1:
                account.leave_out(row, "the node has GPUs of several models")
                continue
            model, count = next(iter(kinds.items()), ("", 0))
            model = model or "gpu" * bool(count)
            rows.append((row, name, model, float(cores), float(memory) / 1024, float(count)))
    account.require(len(rows), "node")
    return server_table(rows), account.stage(file.name, len(nodes)), digest


OF_NODE = (
    *("NodeName", "CPUTot", "CPUs", "Procs", "Sockets", "SocketsPerBoard", "Boards"),
    *("CoresPerSocket", "ThreadsPerCore", "RealMemory", "Gres"),
)


def _each_node(nodes: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Nodes one by one: a configuration has several in one line."""
    for row, node in nodes:
        found = re.search(r"(?:^|\s)NodeName=(\S*\[\S*)", node)
        try:
            names = expand_nodes(found[1]) if found else []
        except ValueError:
            names = []
        for name in names:
            yield row, node.replace(found[1], name, 1)  # type: ignore[index]  # names are found
        if not names:
            yield row, node


def _cores(held: Mapping[str, str]) -> str | None:
    """Processors of a node; of a configuration also from its sockets."""
    if any(name in held for name in ("CPUTot", "CPUs", "Procs")):
        return held.get("CPUTot") or held.get("CPUs") or held.get("Procs")
    sizes = [held.get(name, "1") for name in OF_NODE[4:9]]
    if not {"Sockets", "CoresPerSocket"} & {*held} or not all(map(str.isdecimal, sizes)):
        return None
    return str(prod(map(int, sizes)))


def gpus(gres: str) -> dict[str, int]:
    """GPUs by model in a list of generic resources; the model is empty where none is named.

    ValueError: When a count is none.

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

"""What Slurm writes: node lists, trackable resources (TRES), memory, its nodes, submit lines.

Node lists as in https://slurm.schedmd.com/scontrol.html (``show hostnames``), the rest as in
https://slurm.schedmd.com/sacct.html; memory of old versions (before 21.08) ends in ``n``, per
node, or ``c``, per core: https://manpages.ubuntu.com/manpages/focal/man1/sacct.1.html.
``scontrol show node`` prints ``Key=Value`` pairs: ``CPUTot`` (cores, or hardware threads where
Slurm counts those), ``RealMemory`` in MiB, ``Gres`` such as ``gpu:a100:4(S:0-1)`` or ``(null)``.

Beyond devices, jobs wait for other jobs, licences, their array, features of nodes. ``SubmitLine``
of sacct is the line that was typed (21.08 and later): options in a script, after ``#SBATCH``, are
not in it. ``Eligible`` is when a job might have started, as far as dependencies, begin times, holds
and ``%N`` of arrays go. https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import polars as pl

from gangwise.traces.io.reading import RowAccount, Stage
from gangwise.traces.io.text import read_text, split_lines
from gangwise.traces.tables import server_table

MAX_NODES = 1 << 16
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


class TaskRequest(NamedTuple):
    """Request of each of equal tasks: cores, GiB, GPUs and the GPU models named."""

    cpu: float
    mem: float
    gpu: float
    models: str
    tasks: int


def request(text: str, nodes: int | None = None, memory: str = "") -> TaskRequest:
    """The request of a job: a task per node, each with an equal part of the total.

    ``text`` is ReqTRES or AllocTRES, totals over the nodes. ``nodes`` stand in for ``node=``, and
    ``memory``, ReqMem with ``n`` (per node) or ``c`` (per core) at its end, for ``mem=``.

    ValueError: When there are no cores, no nodes, or an amount is none.

    >>> request("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2")
    TaskRequest(cpu=4.0, mem=32.0, gpu=2.0, models='a100', tasks=2)
    >>> request("cpu=8,node=2", memory="4000Mc").mem
    15.625
    """
    held = tres(text)
    if "cpu" not in held:
        raise ValueError("the TRES list names no cpu")
    cpu = _count(held["cpu"])
    tasks = int(_count(held["node"])) if "node" in held else nodes
    if not tasks:
        raise ValueError("the number of nodes is not known")
    if "mem" in held:
        mem = gib(held["mem"])
    else:
        per = tasks if memory.endswith("n") else cpu if memory.endswith("c") else 1
        amount = gib(memory.rstrip("nc")) if memory else 0.0
        if amount >= PER_CORE:
            per, amount = cpu, amount - PER_CORE
        mem = per * amount
    kinds = {name[9:]: _count(n) for name, n in held.items() if name.startswith("gres/gpu:")}
    gpu = _count(held["gres/gpu"]) if "gres/gpu" in held else sum(kinds.values())
    models = "|".join(sorted(name for name, n in kinds.items() if n)) if gpu else ""
    return TaskRequest(cpu / tasks, mem / tasks, gpu / tasks, models, tasks)


def _count(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is no count")
    return float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")


def read_nodes(file: Path, strict: bool) -> tuple[pl.DataFrame, Stage, str]:
    """Servers, the account of them, and the SHA-256 of the file."""
    text, digest = read_text(file)
    nodes: list[tuple[int, str]] = []
    for row, line in enumerate(split_lines(text), 1):
        if line.startswith("NodeName=") or not nodes:
            nodes.append((row, line))
        else:
            nodes[-1] = (nodes[-1][0], f"{nodes[-1][1]} {line}")
    account, names, rows = RowAccount(file, strict), set(), []
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


WANTED = {"d": "dependency", "a": "array", "L": "licenses", "b": "begin", "H": "hold"}
WANTED |= {"C": "constraint"}
ALONE = re.compile(
    "-[hHkOsQvVWIuXZEl]|--(hold|no-|parsable|requeue|exclusive|overcommit|oversubscribe|quiet|wait$"
    "|verbose|contiguous|spread-job|reboot|nice|propagate|x11|get-user-env|immediate|pty|label)"
)
"""Options without a value, or with one only behind =."""
SEEN = 2.0
"""Seconds within which Slurm looks at a job that came: no sooner is it eligible."""


def submitted(line: str) -> dict[str, str]:
    """Options on a line of sbatch, srun or salloc, by their long names, up to the script.

    >>> submitted("sbatch -N 2 --array=1-9%3 -d afterok:7 --hold run.sh -a 5")
    {'N': '2', 'array': '1-9%3', 'dependency': 'afterok:7', 'hold': ''}
    """
    found: dict[str, str] = {}
    words = iter(line.split()[1:])
    for word in words:
        if not re.match("--?[a-zA-Z]", word) or word == "--wrap":
            break
        long = word.startswith("--")
        name, equals, value = word[2:].partition("=") if long else (word[1], "", word[2:])
        if not (equals or value or ALONE.match(word)):
            value = next(words, "")
        found[name if long else WANTED.get(name, name)] = value
    return found


def awaited(asked: str, name: str, tasks: dict[str, list[str]]) -> list[str] | None:
    """Jobs that must have ended before, of a dependency; None where that is not all it says.

    ``tasks`` are the jobs of each number. Whether a job must have succeeded is not asked: who ran
    after it shows that it had.

    >>> awaited("afterok:7,afterany:8_2", "9", {"7": ["7_1", "7_2"], "8_2": ["8_2"]})
    ['7_1', '7_2', '8_2']
    >>> awaited("afterok:7?afterany:8", "9", {}) is awaited("after:7+10", "9", {}) is None
    True
    """
    found: list[str] = []
    for part in asked.split(","):
        kind, *jobs = part.split(":")
        for job in jobs:
            at = f"{job}_{name.partition('_')[2]}" if kind == "aftercorr" else job
            if at not in tasks:  # the log does not say when it ended
                return None
            found += tasks[at]
        if "?" in part or not re.fullmatch("after(ok|any|notok|corr)|singleton", kind):
            return None
    return found


def terms(asked: dict[str, str], name: str, features: str, request: str) -> str:
    """Terms of a job, as :class:`gangwise.jobs.model.Job` has them."""
    found = dict(re.findall(r"(license/[^=,]+)=(\d+)", request))
    for licence, number in re.findall(r"([^,;|:=]+)(?:[:=](\d+))?", asked.get("licenses", "")):
        found.setdefault(f"license/{licence}", number or "1")
    if most := re.search(r"%(\d+)$", asked.get("array", "")):
        found["array"] = f"{name.partition('_')[0]}%{most[1]}"
    if wanted := features or asked.get("constraint", ""):
        found["features"] = wanted.strip("()").replace(",", "&")
    return ",".join(map("=".join, found.items()))


def with_terms(raw: pl.DataFrame) -> pl.DataFrame:
    """Jobs with ``preceding``, those that each waits for, and ``terms``.

    Where what a job waited for is not played, it is submitted when it became eligible: ``late``.
    """
    columns = [pl.col(name).fill_null("") for name in ("name", "line", "features", "req", "alloc")]
    columns += [pl.concat_str("user", pl.lit("/"), "application", ignore_nulls=True)]
    rows, before, held = raw.select(columns).rows(), [""] * len(raw), [False] * len(raw)
    tasks, alike = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for name, *_ in rows:
        for key in dict.fromkeys((name, name.partition("_")[0])):
            tasks[key].append(name)
    own, played = [""] * len(raw), [False] * len(raw)
    for i in raw["submit"].arg_sort().to_list():
        name, line, features, req, alloc, title = rows[i]
        asked = submitted(line) if line else {}
        own[i] = terms(asked, name, features, req or alloc)
        held[i], played[i] = "hold" in asked, "array=" in own[i]
        if dependency := asked.get("dependency", ""):
            others = awaited(dependency, name, tasks)
            if others is not None and "singleton" in dependency:
                others += alike.pop(title, [])  # later ones come after this one
            played[i] |= others is not None and not {"begin", "hold"} & {*asked}
            before[i] = "|".join(others or ())
        alike[title].append(name)
    later = (pl.col("eligible") > pl.col("submit") + SEEN) & ~pl.Series(played, dtype=pl.Boolean)
    later &= (pl.col("eligible") <= pl.col("start")) | pl.col("start").is_null()
    came, late = raw["submit"], raw.select(late=later.fill_null(False))["late"]
    submit = pl.when(late).then("eligible").otherwise("submit")
    raw = raw.with_columns(submit=submit, preceding=pl.Series(before), terms=pl.Series(own))
    first: float = raw["submit"].min()  # type: ignore[assignment]  # a number: rows have times
    for i in late.arg_true().to_list():
        if not held[i]:  # one that was held goes to the end of the line
            own[i] += "," * bool(own[i]) + f"queued={came[i] - first:g}"
    raw = raw.with_columns(late=late, terms=pl.Series(own)).drop("eligible", "line", "features")
    blank = [name for name in ("preceding", "terms") if not (raw[name] != "").any()]
    return raw.drop(*blank, *["late"] * (not late.any()))

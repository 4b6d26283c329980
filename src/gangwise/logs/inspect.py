"""Inspecting a path: which trace it is, which tables, what of it can be used, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from gangwise import logs
from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError
from gangwise.logs import format
from gangwise.logs.reading import reason_lines, reasons_plain
from gangwise.logs.tables import Fidelity, Tables, implied_load, of_tables, period_of
from gangwise.logs.text import Blocks, first_lines
from gangwise.notation import duration

if TYPE_CHECKING:  # it takes half a second, which inspecting files needs nothing of
    from gangwise.logs.jobs import JobLog


@dataclass(frozen=True)
class FoundFile:
    """A file of a table; its name is below the path that was inspected, sizes are in bytes."""

    name: str
    table: str
    stored: int
    share: float  # share of the stored bytes that was read: 1 for all
    read: int | None  # rows; None where the reader of the whole trace counts them (``fidelity``)
    kept: int | None  # None as well where lines of a sample were counted
    dropped: Mapping[str, tuple[int, int]]  # reason to (rows left out, the first of them)
    sha256: str = ""  # empty unless all of it was read
    as_published: bool | None = None  # whether the publisher gives it; None where none is given
    unlike: tuple[str, ...] = ()  # other tables that it is like, and what speaks against each
    problem: str = ""  # why it could not be read

    @property
    def rows(self) -> float:
        """Rows in all; of a sample, as many as the share of the bytes suggests."""
        # A sample of no bytes would divide by zero.
        return float("nan") if self.read is None else self.read / max(self.share, 1e-9)

    def lines(self) -> list[str]:
        text = f"  {self.name}: {self.table}, {_size(self.stored)}"
        if self.share < 1:
            begin = _size(round(self.share * self.stored))
            rest = _size(round((1 - self.share) * self.stored))
            text += f", of which the first {begin} was read and the last {rest} was not"
        if self.read is not None:
            text += f"; {self.read:,} rows read" + f", {self.kept or 0:,} kept" * (
                self.kept is not None
            )
        if self.share < 1 and self.read:
            text += f"; by this sample about {float(f'{self.rows:.2g}'):,.0f} rows in all"
        lines = [text, *reason_lines(self.dropped)]
        lines += [f"    not {table}" for table in self.unlike]
        if self.as_published is not None:
            lines.append(
                "    its SHA-256 is the published one"
                if self.as_published
                else "    its SHA-256 is NOT the published one: download it again, or it was "
                "packed anew"
            )
        return [*lines, f"    cannot be read: {self.problem}"] if self.problem else lines


@dataclass(frozen=True)
class MissingTable:
    name: str
    needed: bool
    gives: str


@dataclass(frozen=True)
class FoundTrace:
    """A trace at the path, or those of its tables that are there."""

    name: str
    title: str
    published: str  # empty, as ``licence``, where there are no published files
    licence: str
    files: tuple[FoundFile, ...]
    missing: tuple[MissingTable, ...]
    fidelity: Fidelity | None = None  # None where it was not asked for, or cannot be read
    problem: str = ""  # why there is no ``fidelity``

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.title}"]
        if self.published:
            lines.append(f"  published: {self.published}; {self.licence}")
        for file in self.files:
            lines += file.lines()
        for table in self.missing:
            status = "not here, and needed" if table.needed else "not here"
            lines.append(
                f"  {table.name}: {status}" + f" (gives {table.gives})" * bool(table.gives)
            )
        if self.fidelity is not None:
            lines += ["as it is read:", *(f"  {line}" for line in str(self.fidelity).split("\n"))]
        else:
            lines.append(f"not read as a trace: {self.problem}")
        return "\n".join(lines)


@dataclass(frozen=True)
class UnknownFile:
    """A file that is no known table, and the one that it is nearest to."""

    name: str
    starts: str  # its first line, cut short; or what it is where it is no text
    near: str  # the table that it has most of, and why it is none
    hint: str = ""  # what to do with it

    def __str__(self) -> str:
        details = "".join(f"\n    {text}" for text in (self.near, self.hint) if text)
        return f"  {self.name}: {self.starts}{details}"


@dataclass(frozen=True)
class Inspection:
    """Content of a path: traces with their files and tables, and files that are none."""

    path: Path
    kind: str  # such as ``a synthetic twin``; empty for files as published
    everything: bool  # all rows were read, not a sample
    traces: tuple[FoundTrace, ...]
    unknown: tuple[UnknownFile, ...]

    @property
    def usable(self) -> bool:
        return bool(self.kind) or any(
            any(
                (file.read if file.kept is None else file.kept) and not file.problem
                for file in trace.files
            )
            or (trace.fidelity is not None and trace.fidelity.jobs + trace.fidelity.servers > 0)
            for trace in self.traces
        )

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["path"] = str(self.path)
        for trace, report in zip(plain["traces"], self.traces):
            trace["fidelity"] = None if report.fidelity is None else report.fidelity.to_dict()
            for file in trace["files"]:
                file["dropped"] = reasons_plain(file["dropped"])
        return plain

    def __str__(self) -> str:
        files = sum(len(trace.files) for trace in self.traces)
        names = ", ".join(trace.name for trace in self.traces)
        text = f"{files} {'file' if files == 1 else 'files'} recognised" + f" ({names})" * bool(
            names
        )
        parts = [f"{self.path}: {self.kind or text}"]
        if not self.everything:
            parts.append(
                f"this is much to read: of each large file the first {SAMPLE >> 20} MiB of text "
                "were read, for most packings are unpacked from their start alone; --all reads all"
            )
        parts += [str(trace) for trace in self.traces]
        if self.unknown:
            parts.append("\n".join(["not recognised:", *map(str, self.unknown)]))
        return "\n\n".join(parts)


def _size(stored: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if stored >= size:
            return f"{stored / size:.3g} {unit}"
    return f"{stored} bytes"


LARGE = 128 << 20  # bytes of files, as they are stored, above which a sample is read
LONG = 1 << 30  # bytes of their text, unpacked, above which a sample is read
SAMPLE = 32 << 20  # bytes of text that are read of a large file
Progress = Callable[[str, int, int], None]


class _Found(NamedTuple):
    file: Path
    name: str
    table: format.TableFile | None


def inspect(
    path: Path | str,
    *,
    strict: bool = False,
    everything: bool = False,
    progress: Progress | None = None,
    **knobs: Any,
) -> Inspection:
    """Recognise files by what they hold, and account for their rows.

    ``path`` is a file, or a folder of files and of folders with files; or tables that were saved,
    or ``twin:NAME``. With ``strict``, the first bad row is an error. Unless ``everything`` is to be
    read, only the start of files is where there is much. ``progress`` is called with what is done,
    bytes read, and bytes in all; ``knobs`` are arguments of the reader that tells servers, jobs and
    load, or of the twin.

    Raises TraceError when there is nothing at the path; with ``strict``, at the first bad row;
    UnknownName for an argument that the reader or the twin does not have.
    """
    path = Path(path)
    if kind := logs.without_reader(path):
        tables = logs.open_tables(path, **knobs)
        ready = FoundTrace(tables.trace, kind, "", "", (), (), of_tables(tables))
        return Inspection(path, kind, True, (ready,), ())
    if not path.exists():
        raise TraceError("there is no such file or directory", path)
    registered = logs.registered_traces()
    files = format.all_files(path)
    if not files:
        raise TraceError("there are no files here", path)
    by_trace: dict[str, list[_Found]] = {}
    unknown = []
    for file in files:
        if (found_as := _recognised(file, registered)) is None:
            unknown.append(_unknown(file, path, registered))
        else:
            by_trace.setdefault(found_as[0], []).append(found_as[1])
    # Sizes as stored, for reading takes as long as they are.
    total = sum(f.file.stat().st_size for group in by_trace.values() for f in group)
    packed = [f.file for group in by_trace.values() for f in group]
    # Small logs are read whole, large ones by the start of each file.
    everything = everything or (total <= LARGE and text_bytes(packed, LONG) <= LONG)
    report = _Report(path, strict, everything, total, progress, knobs)
    traces = [report.trace(t, by_trace[t.name]) for t in registered if t.name in by_trace]
    return Inspection(path, "", everything, tuple(traces), tuple(unknown))


@dataclass
class _Report:
    path: Path
    strict: bool
    everything: bool
    total: int
    progress: Progress | None
    knobs: dict[str, Any]
    done: int = 0

    def trace(self, trace: logs.RegisteredTrace, found: Sequence[_Found]) -> FoundTrace:
        files, form = [self._file(trace, item) for item in found], trace.form
        fidelity, problem = None, "only a sample was read, which says nothing of servers and load"
        if self.everything:
            # A mapping is a file by itself, whose folder is no trace.
            path = self.path if form.tables else found[0].file
            try:
                reader = logs.open_reader(path, trace=trace.name, strict=self.strict, **self.knobs)
                fidelity, problem = reader.fidelity(), ""
            except TraceError as error:
                # An error with a row is a bad row, which strict asks for; others are told below.
                if self.strict and error.row is not None:
                    raise
                problem = str(error)
        present = {item.name for item in found}
        missing = tuple(
            MissingTable(t.name, t.needed, t.gives) for t in form.tables if t.name not in present
        )
        about = (trace.name, form.title, form.published, form.licence)
        return FoundTrace(*about, tuple(files), missing, fidelity, problem)

    def _lines(self, name: str, item: _Found, stored: int) -> FoundFile:
        """A file whose rows the reader of the whole trace counts; of a sample, its lines."""
        # The reader of the whole trace counts them better than lines do.
        if self.everything:
            return FoundFile(name, item.name, stored, 1.0, None, None, {})
        blocks, rows, problem = Blocks(item.file), 0, ""
        try:
            for block in blocks:
                rows += block.rows
                if blocks.unpacked >= SAMPLE:
                    break
        except TraceError as error:
            problem = str(error).removeprefix(f"{item.file}: ")
        # A sample is never told as all of a file, however soon a bomb was taken in.
        share = min(blocks.stored / stored, 1.0 - 1e-6) if blocks.unpacked >= SAMPLE else 1.0
        return FoundFile(name, item.name, stored, share, rows, None, {}, problem=problem)

    def _file(self, trace: logs.RegisteredTrace, item: _Found) -> FoundFile:
        # Names are told below the path, as a user typed it.
        stored = item.file.stat().st_size
        name = item.file.name if item.file == self.path else str(item.file.relative_to(self.path))
        if item.table is None:
            return self._lines(name, item, stored)
        source = format.TraceFiles(item.file, trace.form, strict=self.strict)
        reading = source.reading(item.name, item.file)
        blocks, problem, ended = reading.blocks, "", False
        try:
            for _ in reading:
                if self.progress is not None:
                    self.progress("reading", self.done + blocks.stored, self.total)
                if not self.everything and blocks.unpacked >= SAMPLE:
                    break
            else:
                ended = True
        except TraceError as error:
            if self.strict:
                raise
            problem = str(error).removeprefix(f"{item.file}: ")
        self.done += stored
        digest, published = (
            blocks.digest() if ended else "",
            trace.form.sha256.get(item.file.name),
        )
        equal = published == digest if digest and published else None
        share = 1.0 if ended or not stored else blocks.stored / stored
        share = share if ended else min(share, 1.0 - 1e-6)  # all of a bomb is soon taken in
        rows = (reading.read, reading.kept, reading.dropped)
        unlike = tuple(_unlike(item, trace.form))
        return FoundFile(name, item.name, stored, share, *rows, digest, equal, unlike, problem)


def text_bytes(files: Iterable[Path], most: int) -> float:
    """Bytes of the text of files, about, by the start of each that is packed; stops at ``most``."""
    total = 0.0
    for file in files:
        stored = file.stat().st_size
        blocks = Blocks(file)
        text = float(stored)
        # What a packed file holds is judged by its first 32 MiB.
        if blocks.packed:
            try:
                unpacked = len(blocks.start(SAMPLE))
            except TraceError:  # of a damaged file it is told where it is read
                continue
            if unpacked == SAMPLE:  # what is all taken in for so little text has no known end
                text = unpacked * stored / blocks.stored if blocks.stored < stored else 2 * most
            else:
                text = unpacked
        total += text
        if total > most:
            break
    return total


def _recognised(file: Path, known: Sequence[logs.RegisteredTrace]) -> tuple[str, _Found] | None:
    """The trace that a file is of, and its table."""
    lines = first_lines(file)
    for form, table in format.recognise(file, [trace.form for trace in known]):
        return form.name, _Found(file, table.name, table if table.layout(lines) else None)
    # Formats whose files no schema describes have a test of their own.
    for trace in known:
        if trace.reader.recognise(file):
            return trace.name, _Found(file, "jobs" if trace.form.tables else "mapping", None)
    return None


def _unlike(item: _Found, form: format.Format) -> Iterable[str]:
    lines = first_lines(item.file)
    for foreign in (
        trace.form for trace in logs.registered_traces() if trace.form.name != form.name
    ):
        for table in foreign.tables:
            # Only tables of the same name can be mistaken for each other.
            alike = table.name == item.name and bool(table.schema.columns)
            if alike and (difference := format.likeness(table.schema, lines).why):
                yield f"{foreign.name} {table.name}: {difference}"


def _unknown(file: Path, path: Path, known: Sequence[logs.RegisteredTrace]) -> UnknownFile:
    name = file.name if file == path else str(file.relative_to(path))
    try:
        blocks = Blocks(file)
        # One block is read, which shows damage at the start of the file.
        for _ in zip(range(1), blocks):
            pass
        lines = first_lines(file)
    except TraceError as error:
        return UnknownFile(name, str(error).removeprefix(f"{file}: "), "")
    if blocks.damage and not lines:
        return UnknownFile(name, blocks.damage, "")
    kind = format.looks_like(lines)
    if kind and kind != "JSON":
        return UnknownFile(name, kind, "")
    # The table that the file has most of may be what was meant.
    near = format.nearest(lines, [trace.form for trace in known])
    text = "" if near is None else f"nearest to {near[0].name} {near[1].name}: {near[2].why}"
    if lines[0].startswith("{") and "batch size" in "\n".join(lines)[:2000]:
        text = (
            "throughputs as Gavel publishes them, no trace: --set speeds=FILE of a trace reads it"
        )
    # JSON or rows of equal width may be a log that a mapping can describe.
    fields = lines[0].lstrip().startswith(("{", "["))  # JSON, or rows of as many fields
    for separator in (",", ";", "\t", "|") if len(lines) > 1 else ():
        widths = {line.count(separator) for line in lines[:3]}
        fields |= len(widths) == 1 and separator in lines[0]
    hint = ""
    if fields and "Gavel" not in text:
        hint = f"if it is a log of your own: gangwise trace guess {file} drafts a mapping"
    return UnknownFile(name, f"starts {lines[0]!r:.100}", text, hint)


def summary(log: JobLog, tables: Tables, bins: int = 12) -> dict[str, Any]:
    """Statistics of a log made of ``tables``, ready for JSON: load, sizes, waits, runs, users.

    Times are in seconds; ``None`` where the log does not say. ``implied_load`` is that of the whole
    log (:func:`~gangwise.logs.tables.implied_load`), as ``gangwise trace inspect`` has it, and
    ``load`` that of each of ``bins`` equal periods; they count jobs that cannot be played, too.
    """
    # How long a job had waited that ran when the log begins is not known; who was withdrawn did not
    # run.
    early, stayed = pl.Series(log.jobs.early), pl.Series(np.isinf(log.jobs.withdrawn))
    # Waits count of the jobs that came while the log was kept.
    waits = pl.when(~early).then(pl.col("start") - pl.col("submit"))
    rows, nodes = log.rows.with_columns(wait=waits), log.nodes
    wait = rows["wait"].drop_nulls()
    waited, ran = float(wait.sum()), float(rows["run"].sum())
    device = log.played.device
    capacity = log.total(device)
    since, until = period_of(tables.jobs)
    # A period of no length would make bins of no width.
    edges = np.linspace(since, max(until, since + 1.0), bins + 1)

    def load(start: float, end: float) -> float | None:
        return implied_load(tables, start, end, {device: capacity})[device] if capacity else None

    size = rows["tasks"].to_numpy() * rows[device].to_numpy()
    limit_over_run = rows["limit"] / rows["run"].replace(0.0, None)
    total = float(rows["hours"].sum())
    by_user = (
        rows.group_by("user", maintain_order=True)
        # Ties by name, so that the list does not change from run to run.
        .agg(jobs=pl.len(), hours=pl.col("hours").sum(), wait=pl.col("wait").mean())
        .sort("hours", "user", descending=[True, False])
    )
    return {
        "jobs": len(rows),
        "nodes": len(nodes),
        "devices": {name: log.total(name) for name in nodes.devices},
        "device": device,
        "memory_unit": tables.units.get("mem", ""),
        "unlike": int(log.jobs.grouped.sum()),
        "job_type": {"column": log.job_type, "types": len(log.jobs.types)},
        "from_s": since,
        "to_s": until,
        "implied_load": load(since, until),
        "load": [load(*between) for between in pairwise(edges.tolist())],
        "load_edges_s": edges.tolist(),
        "sizes": _sizes(size),
        "run": _spread(rows["run"].filter(stayed)),
        "wait": _spread(wait),
        "waiting_share": None if wait.is_empty() else waited and waited / (waited + ran),
        "limit_over_run": _spread(limit_over_run.drop_nulls()),
        "users": by_user.height,
        "top_users": [
            {**user, "share": user["hours"] / total if total else None}
            for user in by_user.head(8).to_dicts()
        ],
        "dependencies": int(log.jobs.after.size),
        "recorded_nodes": int((np.diff(log.host_from) > 0).sum()),
    }


def _spread(values: pl.Series) -> dict[str, float] | None:
    if values.is_empty():
        return None
    numbers = values.to_numpy()
    names = ("median", "p90", "p95", "p99", "most")
    return {
        "mean": float(numbers.mean()),
        **dict(zip(names, np.quantile(numbers, [0.5, 0.9, 0.95, 0.99, 1]).tolist())),
    }


def _sizes(size: Floats) -> list[dict[str, float]]:
    # Sizes by powers of two: 0, up to 1, 2, 4, …
    power = np.where(size > 0, np.ceil(np.log2(np.maximum(size, 1e-9)) - 1e-9), -2).clip(-1)
    # -2 stands for jobs of no device.
    power = np.where(size > 0, power, -2).astype(np.int64)
    counted = zip(*(column.tolist() for column in np.unique(power, return_counts=True)))
    return [{"most": 0.0 if p == -2 else 2.0**p, "jobs": n} for p, n in counted]


def report(log: JobLog, facts: Mapping[str, Any]) -> str:
    """A :func:`summary` as text for a terminal; the first line is how much of the log is played."""
    start, end = facts["from_s"], facts["to_s"]
    named = {"mem": f"{facts['memory_unit']} of memory".strip()}
    named |= {"gpu": "GPUs", "cpu": "cores"}
    devices = ", ".join(f"{n:,.6g} {named.get(q, q)}" for q, n in facts["devices"].items())
    lines = [
        log.played.line,
        *log.played.warnings,
        "",
        f"{_counted(facts['jobs'])} in {duration(end - start)} on "
        f"{_counted(facts['nodes'], 'node')} ({devices}); "
        f"{_counted(facts['job_type']['types'], 'job type')}, by {log.job_type}"
        + f"; {facts['unlike']:,} jobs have unlike tasks, which start together"
        * bool(facts["unlike"]),
    ]
    if facts["implied_load"] is not None:
        lines.append(
            f"load: {100 * facts['implied_load']:.3g} % of {facts['device']} in use in the mean of "
            "the whole log; over time:"
        )
        loads = [load or 0.0 for load in facts["load"]]
        # Bars of at most 40 characters.
        scale = 40 / max(1.0, *loads)
        for at, share in zip(facts["load_edges_s"], loads):
            passed = duration(round(at - facts["load_edges_s"][0], 1))
            lines.append(f"  {passed:>11s} {100 * share:6.1f} % " + "▇" * round(scale * share))
    lines.append(f"sizes ({facts['device']} per job):")
    for size in facts["sizes"]:
        lines.append(f"  up to {size['most']:<8g} {_counted(size['jobs'], width=9)}")
    for name, label in (("run", "run time"), ("wait", "wait")):
        spread, text = facts[name], "not recorded"
        if spread is not None:
            shown = ("mean", "median", "p95", "most")
            text = ", ".join(f"{stat} {duration(round(spread[stat], 1))}" for stat in shown)
        lines.append(f"{label:<9s} {text}")
    if facts["waiting_share"] is not None:
        lines.append(f"waiting is {100 * facts['waiting_share']:.3g} % of the time in the system")
    if facts["limit_over_run"] is not None:
        over = facts["limit_over_run"]
        median = f"{over['median']:,.{0 if over['median'] >= 100 else 1}f}"
        lines.append(f"limits are {median} times the run time (median)")
    lines.append(f"users: {facts['users']:,}")
    for user in facts["top_users"][:5]:
        waited = "" if user["wait"] is None else f", mean wait {duration(round(user['wait'], 1))}"
        lines.append(
            f"  {user['user'] or '(not named)':<16.16s} {_counted(user['jobs'], width=8)} "
            f"{100 * (user['share'] or 0):5.1f} % of {log.played.unit}-hours{waited}"
        )
    if facts["dependencies"]:
        lines.append(f"dependencies: {facts['dependencies']:,}")
    if facts["recorded_nodes"]:
        lines.append(f"nodes they ran on are known of {_counted(facts['recorded_nodes'])}")
    lines += [f"note: {note}" for note in log.played.notes]
    return "\n".join(lines)


def _counted(n: int, noun: str = "job", width: int = 0) -> str:
    """Number and noun, as wide in a column where it is one."""
    return f"{n:>{width},} {noun}{'s' if n != 1 else ' ' * bool(width)}"

"""What is at a path: which trace, which tables, what of it can be used, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import TraceError
from gangwise.traces.blocks import Blocks
from gangwise.traces.converted import Converted, stages_of
from gangwise.traces.fidelity import Fidelity
from gangwise.traces.findings import FoundFile, FoundTrace, Inspection, MissingTable, UnknownFile
from gangwise.traces.formats import Format, TableFile, all_files, recognise
from gangwise.traces.known import WITHOUT_SCHEMA, KnownTrace, known_traces
from gangwise.traces.likeness import likeness, looks_like, nearest
from gangwise.traces.load import of_tables
from gangwise.traces.manifest import MANIFEST, Manifest, manifest_of
from gangwise.traces.opening import open_reader, open_tables, without_reader
from gangwise.traces.source import Source
from gangwise.traces.text import first_lines

LARGE = 128 << 20
"""Bytes of files, as they are stored, above which a sample is read."""
SAMPLE = 32 << 20
"""Bytes of text that are read of a large file."""
MANY = 5_000_000
"""Rows of a converted trace above which they are not read."""
Progress = Callable[[int, int], None]


class _Found(NamedTuple):
    """A file, and the table that it is; without one, of which only the reader knows more."""

    file: Path
    name: str
    table: TableFile | None


def inspect(
    path: Path | str,
    *,
    strict: bool = False,
    everything: bool = False,
    progress: Progress | None = None,
    **knobs: Any,
) -> Inspection:
    r"""Recognise files by what they hold, and account for their rows.

    Parameters
    ----------
    path : path
        A file, a folder of files and of folders with files, or a converted trace; or tables that
        were saved, or ``twin:NAME``.
    strict : bool
        Raise at the first bad row rather than count it.
    everything : bool
        Read all rows, however many. Otherwise the start of files is read where there is much.
    progress : callable, optional
        Called with bytes read and bytes in all.
    **knobs
        Arguments of the reader that tells servers, jobs and load, or of the twin.

    Raises
    ------
    TraceError
        When there is nothing at the path; with ``strict``, at the first bad row.
    UnknownName
        For an argument that the reader or the twin does not have.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "tasks.csv").write_text(
    ...         "100,160,1,1,2,Terminated,1,0.01\n120,90,1,2,1,Failed,1,0.01\n"
    ...     )
    ...     found = inspect(folder)
    >>> [file] = found.traces[0].files
    >>> found.traces[0].name, file.table, file.read, *file.dropped
    ('alibaba-v2017', 'batch_task', 2, 'end_time is before create_time')
    >>> print(*file.unlike)
    alibaba-v2018 batch_task: its rows have 9 fields, these have 8; field 3, job_name, is '1' ...
    """
    path = Path(path)
    if kind := without_reader(path):
        made = open_tables(path, **knobs)
        ready = FoundTrace(made.trace, kind, "", "", (), (), of_tables(made))
        return Inspection(path, kind, True, (ready,), ())
    if not path.exists():
        raise TraceError("there is no such file or directory", path)
    known = known_traces()
    folder = path.parent if path.name == MANIFEST else path
    manifest = manifest_of(folder) if folder.is_dir() else None
    if manifest is not None:
        trace = next((t for t in known if t.name == manifest.format), None)
        if trace is None or trace.form is None:
            raise TraceError(
                f"a converted trace of {manifest.format}, which is not known here", folder
            )
        found = _converted(folder, manifest, trace, strict, everything, knobs)
        return Inspection(path, "a converted trace", True, (found,), ())
    files = all_files(path)
    if not files:
        raise TraceError("there are no files here", path)
    by_trace: dict[str, list[_Found]] = {}
    unknown = []
    for file in files:
        tables = _tables_of(file, known)
        for name, table, what in tables[:1]:
            by_trace.setdefault(name, []).append(_Found(file, what, table))
        if not tables:
            unknown.append(_unknown(file, path, known))
    total = sum(f.file.stat().st_size for found in by_trace.values() for f in found)
    everything = everything or total <= LARGE
    report = _Report(path, strict, everything, total, progress, knobs)
    traces = [report.trace(t, by_trace[t.name]) for t in known if t.name in by_trace]
    return Inspection(path, "", everything, tuple(traces), tuple(unknown))


class _Report:
    """Reads the files of traces, and reports."""

    def __init__(
        self,
        path: Path,
        strict: bool,
        everything: bool,
        total: int,
        progress: Progress | None,
        knobs: dict[str, Any],
    ):
        self.path, self.strict, self.everything, self.knobs = path, strict, everything, knobs
        self.total, self.progress, self.done = total, progress, 0

    def trace(self, trace: KnownTrace, found: Sequence[_Found]) -> FoundTrace:
        files = [self._file(trace, item) for item in found]
        here = {item.name for item in found}
        form = trace.form
        missing = [
            MissingTable(table.name, table.needed, table.gives)
            for table in (form.tables if form else ())
            if table.name not in here
        ]
        missing += [
            MissingTable(table.name, table.needed, table.gives)
            for table in WITHOUT_SCHEMA
            if table.trace == trace.name and table.name not in {*here, *(m.name for m in missing)}
        ]
        fidelity, problem = None, "only a sample was read, which says nothing of servers and load"
        if self.everything:
            alone = found[0].file if trace.form is None else self.path
            fidelity, problem = _fidelity(trace, alone, self.strict, self.knobs)
        return _found(trace, files, missing, fidelity, problem)

    def _file(self, trace: KnownTrace, item: _Found) -> FoundFile:
        stored = item.file.stat().st_size
        name = item.file.name if item.file == self.path else str(item.file.relative_to(self.path))
        if item.table is None:
            return FoundFile(name, item.name, stored, 1.0, None, None, {})
        assert trace.form is not None  # it has the table
        blocks = Blocks(item.file)
        source = Source(item.file, trace.form, strict=self.strict)
        reading = source.reading(item.name, item.file, blocks=blocks)
        kept, problem, whole = 0, "", False
        try:
            for batch in reading:
                kept += len(batch)
                if self.progress is not None:
                    self.progress(self.done + blocks.stored, self.total)
                if not self.everything and blocks.unpacked >= SAMPLE:
                    break
            else:
                whole = True
        except TraceError as error:
            if self.strict:
                raise
            problem = str(error).removeprefix(f"{item.file}: ")
        self.done += stored
        digest = blocks.digest() if whole else ""
        wanted = trace.form.sha256.get(item.file.name)
        return FoundFile(
            name,
            item.name,
            stored,
            1.0 if whole or not stored else blocks.stored / stored,
            reading.read,
            kept,
            dict(reading.dropped),
            digest,
            None if not digest or wanted is None else wanted == digest,
            tuple(_unlike(item, trace.form)),
            problem,
        )


def _tables_of(file: Path, known: Sequence[KnownTrace]) -> list[tuple[str, TableFile | None, str]]:
    """What a file could be: trace, table and its name."""
    for other in WITHOUT_SCHEMA:
        if other.fits(file):
            return [(other.trace, None, other.name)]
    likely = recognise(file, [trace.form for trace in known if trace.form is not None])
    if likely:
        return [(form.name, table, table.name) for form, table in likely]
    return [(t.name, None, "mapping") for t in known if t.form is None and t.reader.recognise(file)]


def _unlike(item: _Found, form: Format) -> Iterable[str]:
    """Tables of the same name of other traces, and why the file is not theirs."""
    lines = first_lines(item.file)
    for other in (trace.form for trace in known_traces()):
        for table in other.tables if other is not None and other.name != form.name else ():
            if table.name == item.name and (why := likeness(table.schema, lines).why):
                yield f"{other.name} {table.name}: {why}"  # type: ignore[union-attr]  # it has tables


def _unknown(file: Path, path: Path, known: Sequence[KnownTrace]) -> UnknownFile:
    name = file.name if file == path else str(file.relative_to(path))
    try:
        for _ in zip(range(1), Blocks(file)):
            pass
        lines = first_lines(file)
    except TraceError as error:
        return UnknownFile(name, str(error).removeprefix(f"{file}: "), "")
    what = looks_like(lines)
    if what and what != "JSON":
        return UnknownFile(name, what, "")
    near = nearest(lines, [trace.form for trace in known if trace.form is not None])
    said = "" if near is None else f"nearest to {near[0].name} {near[1].name}: {near[2].why}"
    if lines[0].startswith("{") and "batch size" in "\n".join(lines)[:2000]:
        said = "throughputs as Gavel publishes them, no trace: read by the scenario esdp-gavel-v1"
    return UnknownFile(name, f"starts {lines[0]!r:.100}", said)


def _fidelity(
    trace: KnownTrace, path: Path, strict: bool, knobs: dict[str, Any]
) -> tuple[Fidelity | None, str]:
    """What the reader makes of it, or why it makes nothing."""
    try:
        return open_reader(path, trace=trace.name, strict=strict, **knobs).fidelity(), ""
    except TraceError as error:
        if strict and error.row is not None:
            raise
        return None, str(error)


def _converted(
    folder: Path,
    manifest: Manifest,
    trace: KnownTrace,
    strict: bool,
    everything: bool,
    knobs: dict[str, Any],
) -> FoundTrace:
    form, files = trace.form, []
    assert form is not None  # it was converted
    for table, found in manifest.tables.items():
        for file, stage in zip(found, stages_of(found)):
            files.append(
                FoundFile(
                    f"{table}/{file.name}",
                    table,
                    file.size,
                    1.0
                    if file.sha256
                    else (file.chunks[-1].stored / file.size if file.chunks else 0.0),
                    stage.read,
                    stage.kept,
                    dict(stage.dropped),
                    file.sha256,
                    file.sha256 == form.sha256[file.name]
                    if file.sha256 and file.name in form.sha256
                    else None,
                )
            )
    missing = [
        MissingTable(t.name, t.needed, t.gives)
        for t in form.tables
        if t.name not in manifest.tables
    ]
    rows = sum(file.kept or 0 for file in files)
    fidelity, problem = (
        None,
        (
            f"{rows:,} rows are many to read; the account above is complete, --all adds servers "
            f"and "
            "load"
        ),
    )
    if not manifest.complete:
        problem = (
            "the conversion is not complete; run gangwise trace convert again, it goes on "
            "from where it stopped"
        )
    elif everything or rows <= MANY:
        if strict:
            for table in manifest.tables:
                Converted(folder, manifest, form).account(table, strict)
        fidelity, problem = _fidelity(trace, folder, strict, knobs)
    return _found(trace, files, missing, fidelity, problem)


def _found(
    trace: KnownTrace,
    files: Sequence[FoundFile],
    missing: Sequence[MissingTable],
    fidelity: Fidelity | None,
    problem: str,
) -> FoundTrace:
    form = trace.form
    title = form.title if form else trace.summary
    return FoundTrace(
        trace.name,
        title,
        form.published if form else "nowhere: your own files",
        form.licence if form else "your own",
        tuple(files),
        tuple(missing),
        fidelity,
        problem,
    )

"""A trace as published, converted to Parquet: as fast as it streams by, in constant memory.

Published traces are large gzip files that must be read from the start. Converted once, a table is
read column by column. A conversion may be stopped at any time, even killed: run again, it goes on
with the first chunk that is not complete, and the result is the same.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from gangwise.core.errors import StoreError, TraceError
from gangwise.core.files import remove_orphans, write_whole
from gangwise.traces.format import MANIFEST, Chunk, Format, Manifest, SourceFile, all_files
from gangwise.traces.io import blocks as cut
from gangwise.traces.io.account import Stage, reason_lines, reasons_plain
from gangwise.traces.io.blocks import Blocks
from gangwise.traces.io.reading import Dropped, Reading
from gangwise.traces.registered import WITHOUT_SCHEMA, reader_of, without_reader
from gangwise.traces.source import Source, stages_of

CHUNK_ROWS = 1_000_000
CHUNK_BYTES = 256 << 20  # of the unpacked text; a chunk ends with the block in which it has either
ROW_GROUP = 1 << 17
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Conversion:
    """What a conversion made.

    Attributes
    ----------
    stages : mapping of str to tuple of Stage
        Rows read, kept and dropped, file by file, for each table.
    resumed : bool
        Part of it was there already.
    copied : tuple of str
        Files that are no table of rows, beside it as they were.
    """

    folder: Path
    format: str
    stages: dict[str, tuple[Stage, ...]]
    resumed: bool
    copied: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        tables = {
            table: [
                {**stage._asdict(), "dropped": reasons_plain(stage.dropped)} for stage in stages
            ]
            for table, stages in self.stages.items()
        }
        return {
            "folder": str(self.folder),
            "format": self.format,
            "resumed": self.resumed,
            "copied": list(self.copied),
            "tables": tables,
        }

    def __str__(self) -> str:
        lines = [f"{self.format}, converted into {self.folder}"]
        for table, stages in self.stages.items():
            for stage in stages:
                lines.append(f"  {table}, {stage.name}: {stage.read} read, {stage.kept} kept")
                lines += reason_lines(stage.dropped)
        lines += [f"  {name}: copied, since it is no table of rows" for name in self.copied]
        return "\n".join(lines)


def convert(
    path: Path | str,
    out: Path | str,
    form: Format | None = None,
    *,
    trace: str = "",
    strict: bool = False,
    progress: Progress | None = None,
    rows: int = CHUNK_ROWS,
) -> Conversion:
    r"""Convert every table of a trace to Parquet, or go on with it.

    Parameters
    ----------
    path : path
        A directory with the files of the trace, or one of them.
    out : path
        A folder that is empty, or not there yet, or holds an unfinished conversion of this trace.
        ``TABLE/part-NNNNN.parquet`` (``row`` and the columns: whole numbers as Int64 where all of a
        chunk are, other numbers as Float64, text as String) and ``gangwise-trace.json`` are
        written there.
    form, trace
        The format, or its registered name; by default it is recognised.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.
    progress : callable, optional
        Called after every block with bytes done and bytes in all, as they are stored.

    Raises
    ------
    TraceError
        When the trace is not recognised or cannot be read, or its jobs are one JSON document, which
        is read whole.
    StoreError
        When the result cannot be written, or the folder holds something else.

    Examples
    --------
    >>> import tempfile
    >>> from gangwise.traces.format import TableFile
    >>> from gangwise.traces.io.schema import Column, Schema
    >>> nodes = Schema("node list", (Column("sn", number=False), Column("gpu", whole=True)))
    >>> form = Format("small", "A small trace", "", "", (TableFile("nodes", nodes),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "nodes.csv").write_text("sn,gpu\na,8\nb,many\n")
    ...     made = convert(folder, Path(folder, "converted"), form)
    ...     Source(made.folder, form).read("nodes").frame.rows()
    [(2, 'a', 8.0, 0)]
    >>> made.stages["nodes"][0].dropped
    {'gpu is not a number': Dropped(rows=1, first=3)}
    """
    path, out = Path(path), Path(out)
    form = form or _format(path, trace)
    source = Source(path, form, strict=strict)
    if source.converted is not None:
        raise TraceError("this trace is converted already", path)
    others = _others(path, form)
    files = {t.name: found for t in form.tables if (found := source.files(t.name))}
    if not files:
        raise TraceError(f"no table of {form.name} is here", path)
    manifest = _begun(out, form, files, rows)
    for folder in (out, *(out / table for table in files)):
        remove_orphans(folder)
    records = [file for found in manifest.tables.values() for file in found]
    resumed, total, done = any(r.chunks for r in records), sum(r.size for r in records), 0
    for table, found in files.items():
        for number, record in enumerate(manifest.tables[table]):
            if not record.sha256:
                report = partial(_report_progress, progress, done, total) if progress else None
                _convert_file(source, table, found[number], record, manifest, out, report)
            done += record.size
    try:
        for file in others:
            shutil.copyfile(file, out / file.name)
    except OSError as error:
        raise StoreError(f"cannot write to {out}: {error.strerror or error}") from error
    manifest.complete = True
    manifest.save(out)
    stages = {table: tuple(stages_of(found)) for table, found in manifest.tables.items()}
    return Conversion(out, form.name, stages, resumed, tuple(file.name for file in others))


def _convert_file(
    source: Source,
    table: str,
    path: Path,
    record: SourceFile,
    manifest: Manifest,
    out: Path,
    report: Callable[[int], None] | None,
) -> None:
    last = record.chunks[-1] if record.chunks else Chunk("", 0, 0, 0, 0, 0, "")
    blocks = Blocks(path, manifest.block, (last.stored, last.sha256) if last.stored else None)
    reading = source.reading(table, path, exact=True, blocks=blocks, skip=last.blocks)
    reading.read = record.read
    reading.dropped = {why: Dropped(*count) for why, count in record.dropped.items()}
    unique = reading.schema.unique
    if unique:
        for chunk in record.chunks:
            name = out / table / chunk.name
            reading.seen.update(pl.read_parquet(name, columns=[unique])[unique].to_list())
    batches: list[pl.DataFrame] = []
    for batch in reading:
        if len(batch):
            batches.append(batch)
        if report is not None:
            report(blocks.stored)
        large = blocks.unpacked - last.unpacked >= CHUNK_BYTES
        if batches and (large or sum(map(len, batches)) >= manifest.rows):
            last = _write_chunk(batches, reading, table, record, manifest, out)
            _account(reading, record, manifest, out)
    if batches:
        _write_chunk(batches, reading, table, record, manifest, out)
    reading.check_used(record.kept)
    record.sha256 = blocks.digest()
    _account(reading, record, manifest, out)


def _write_chunk(
    batches: list[pl.DataFrame],
    reading: Reading,
    table: str,
    record: SourceFile,
    manifest: Manifest,
    out: Path,
) -> Chunk:
    number, blocks = sum(len(file.chunks) for file in manifest.tables[table]), reading.blocks
    chunk = Chunk(
        f"part-{number:05d}.parquet",
        sum(map(len, batches)),
        reading.line,
        blocks.count,
        blocks.unpacked,
        blocks.stored,
        blocks.digest(),
    )
    frame = pl.concat(batches, how="vertical_relaxed")
    batches.clear()
    how: Any = {"compression": "zstd", "compression_level": 1, "row_group_size": ROW_GROUP}
    # Chunks are read whole, so that statistics of their parts are of no use.
    write_whole(
        out / table / chunk.name, lambda file: frame.write_parquet(file, statistics=False, **how)
    )
    record.chunks.append(chunk)
    return chunk


def _account(reading: Reading, record: SourceFile, manifest: Manifest, out: Path) -> None:
    record.read = reading.read
    record.dropped = {why: list(count) for why, count in reading.dropped.items()}
    manifest.save(out)


def _report_progress(progress: Progress, done: int, total: int, stored: int) -> None:
    progress(done + stored, total)


def _begun(out: Path, form: Format, files: dict[str, list[Path]], rows: int) -> Manifest:
    """The manifest of an unfinished conversion of the same files."""
    now = {
        table: [SourceFile(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in found]
        for table, found in files.items()
    }
    try:
        for table in now:
            (out / table).mkdir(parents=True, exist_ok=True)
            for left in (out / table).glob("*.unfinished"):
                left.unlink()
        if not (out / MANIFEST).is_file():
            strange = [
                item.name
                for item in out.iterdir()
                if item.name not in now and not item.name.startswith(MANIFEST)
            ]
            if strange:
                raise StoreError(
                    f"{out} holds something else ({strange[0]}); choose an empty folder"
                )
            manifest = Manifest(form.name, now, cut.BLOCK, rows)
            manifest.save(out)
            return manifest
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot write to {out}: {error.strerror or error}") from error
    manifest = Manifest.load(out)
    again = "; convert into an empty folder, or delete this one"
    if manifest.format != form.name:
        raise StoreError(f"{out} holds a conversion of {manifest.format}, not {form.name}{again}")
    named = {t: [file.name for file in found] for t, found in manifest.tables.items()}
    if named != {t: [file.name for file in found] for t, found in now.items()}:
        raise StoreError(f"{out} holds a conversion of other files than are here now{again}")
    for table, found in manifest.tables.items():
        for before, path, after in zip(found, files[table], now[table]):
            changed = before.size != after.size
            if not changed and before.sha256 and before.modified != after.modified:
                with path.open("rb") as stored:
                    changed = hashlib.file_digest(stored, "sha256").hexdigest() != before.sha256
            if changed:
                raise StoreError(f"{path} has changed since {out} was begun{again}")
            missing = [c.name for c in before.chunks if not (out / table / c.name).is_file()]
            if missing:
                raise StoreError(f"{missing[0]} is missing from {out / table}{again}")
    return manifest


def _format(path: Path, trace: str) -> Format:
    if kind := without_reader(path):
        raise TraceError(f"this is {kind}: there is nothing to convert", path)
    form: Format | None = getattr(reader_of(path, trace), "FORMAT", None)
    if form is None:
        raise TraceError(
            "files of your own, with a mapping, are read as they are; there is nothing to convert",
            path,
        )
    return form


def _others(path: Path, form: Format) -> list[Path]:
    """Files beside the tables that are no tables of rows, and are read as they are."""
    tables = [table for table in WITHOUT_SCHEMA if table.trace == form.name]
    for table in (table for table in tables if table.needed):
        for file in all_files(path):
            if table.fits(file):
                raise TraceError(
                    f"this is the {table.name} of {form.name}, which is read whole: there is "
                    "nothing to convert, read it as it is",
                    file,
                )
    folder = path if path.is_dir() else path.parent
    beside = [file for file in all_files(folder) if file.parent == folder] if tables else []
    return [file for file in beside if any(t.fits(file) for t in tables)]

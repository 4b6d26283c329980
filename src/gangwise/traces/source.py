"""The files of a trace, table by table: found, read, and every row accounted for.

A trace may be as it was published, with some files named by the user, or converted
(:mod:`gangwise.traces.convert`): what is read is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import (
    FORMATS,
    MANIFEST,
    Chunk,
    Format,
    Manifest,
    SourceFile,
    all_files,
    declared,
    files_of,
    has_usual_name,
    manifest_of,
    recognise,
)
from gangwise.traces.io.account import Stage
from gangwise.traces.io.reading import Dropped, Reading
from gangwise.traces.io.text import first_lines, header_of


class Converted:
    """The tables of a converted trace, or of the one published file of it that is called ``only``.

    Raises TraceError when the conversion is not complete, or of another format.
    """

    def __init__(self, folder: Path, manifest: Manifest, form: Format, only: str = ""):
        self.folder, self.manifest, self.form, self.only = folder, manifest, form, only
        if manifest.format != form.name:
            raise TraceError(
                f"this is a converted trace of {manifest.format}, not {form.name}", folder
            )
        if not manifest.complete:
            raise TraceError(
                "the conversion is not complete; run it again, it goes on from where it stopped",
                folder,
            )

    def files(self, table: str) -> list[Path]:
        return [self.folder / table / file.name for file in self._of(table)]

    def account(self, table: str, strict: bool) -> tuple[list[Stage], dict[str, str]]:
        """The account and the digest of each file; ``strict`` raises when a row was left out."""
        stages = stages_of(self._of(table))
        for path, stage in zip(self.files(table), stages):
            for why, (_, row) in stage.dropped.items():
                if strict:
                    raise TraceError(
                        f"{why}; correct the row and convert the trace again, or read without "
                        "strict to leave such rows out",
                        path,
                        row,
                    )
        return stages, {file.name: file.sha256 for file in self._of(table)}

    def batches(self, table: str, columns: Sequence[str] | None) -> Iterator[pl.DataFrame]:
        """Chunk after chunk, with ``part``; numbers as Float64. Only what is wanted is read."""
        for number, file in enumerate(self._of(table)):
            for chunk in file.chunks:
                scan = self._scan(table, number, chunk)
                if columns is not None:
                    scan = scan.select(n for n in columns if n in scan.collect_schema())
                frame = scan.collect()
                if len(frame) != chunk.rows:
                    raise TraceError(
                        f"{len(frame)} rows are here, and {chunk.rows} were written; "
                        "convert the trace again",
                        self.folder / table / chunk.name,
                    )
                yield frame

    def _of(self, table: str) -> list[SourceFile]:
        found = self.manifest.tables.get(table, [])
        return [file for file in found if self.only in ("", file.name)]

    def _scan(self, table: str, number: int, chunk: Chunk) -> pl.LazyFrame:
        path = self.folder / table / chunk.name
        if not path.is_file():
            raise TraceError("this chunk of the converted trace is missing; convert it again", path)
        numbers = [c.name for c in self.form.table(table).schema.columns if c.number]
        return pl.scan_parquet(path).with_columns(
            pl.col("^(" + "|".join(map(re.escape, numbers)) + ")$").cast(pl.Float64),
            pl.lit(number, pl.Int64).alias("part"),
        )


def converted(path: Path, form: Format) -> Converted | None:
    """The converted trace that a path is: its folder, its manifest, or a file of a table in it."""
    folder = path.parent if path.name == MANIFEST else path
    manifest = manifest_of(folder)
    if manifest is not None:
        return Converted(folder, manifest, form)
    if not path.exists():
        manifest = manifest_of(path.parent.parent)
        named = [] if manifest is None else manifest.tables.get(path.parent.name, [])
        if manifest is not None and path.name in [file.name for file in named]:
            return Converted(path.parent.parent, manifest, form, path.name)
    return None


def stages_of(files: list[SourceFile]) -> list[Stage]:
    return [
        Stage(
            file.name,
            file.read,
            file.kept,
            {why: Dropped(*count) for why, count in file.dropped.items()},
        )
        for file in files
    ]


PART = re.compile(r"part-(\d+)-of-(\d+)\.")


@dataclass
class Read:
    """What was read of a table.

    ``frame`` has ``part`` (number of the file, from 0), ``row`` (line of that file) and the columns
    of the schema: numbers as Float64, null where missing; text without surrounding blanks.
    ``stages`` count rows read, kept and dropped, ``digests`` are SHA-256, both file by file.
    """

    frame: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: dict[str, str]


@dataclass
class Batches:
    """Rows of a table, batch after batch, in constant memory; iterate once.

    ``stages`` and ``digests`` are of the files that were read to their end, ``unpacked`` counts the
    bytes of text so far (0 of a converted trace).
    """

    frames: Iterator[pl.DataFrame]
    stages: list[Stage]
    digests: dict[str, str]
    unpacked: int = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self.frames


class Source:
    """The files of one trace.

    Parameters
    ----------
    path : path
        A directory with the files, or one of them; or the folder of a converted trace.
    named : mapping of str to Path
        Files by table, which are read whatever is in them.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.
    most_rows, most_bytes : int
        Larger tables, by rows kept or bytes unpacked, are not read into memory from the published
        files: they must be converted first.

    Attributes
    ----------
    converted : Converted or None
        The converted trace, if it is one.

    Raises
    ------
    TraceError
        When there is no such file or directory, or it is a converted trace of another format.
    """

    def __init__(
        self,
        path: Path | str,
        form: Format,
        *,
        named: Mapping[str, Path] | None = None,
        strict: bool = False,
        most_rows: int = 20_000_000,
        most_bytes: int = 4 << 30,
    ):
        self.path, self.form, self.strict = Path(path), form, strict
        self.most_rows, self.most_bytes = most_rows, most_bytes
        self.converted: Converted | None = converted(self.path, form)
        self.named = dict(named or {})
        if self.converted is None and not self.path.exists():
            raise TraceError("there is no such file or directory", self.path)
        if self.named and self.converted is not None:
            raise TraceError(
                "this trace is converted, with the files it was made of; name no others "
                f"({', '.join(f.name for f in self.named.values())}), or read the published files",
                self.path,
            )

    def files(self, table: str) -> list[Path]:
        """Files of a table, in order of their parts; empty when there are none.

        Of a converted trace, the name of each published file in the folder of the table: there is
        no such file, but a source of it reads what came of it. Raises TraceError when a part is
        missing or here twice, or several files could be the table.
        """
        if table in self.named:
            return [self.named[table]]
        if self.converted is not None:
            return self.converted.files(table)
        wanted = self.form.table(table)
        if wanted.several:  # whatever they are called; those of folders in it may be of another log
            here = [f for f in all_files(self.path) if self.path in (f, f.parent)]
            return [f for f in here if wanted.layout(first_lines(f))]
        found = [f for f in files_of(self.path) if wanted.layout(first_lines(f))]
        usual = [f for f in found if has_usual_name(f, wanted)]
        found = usual or found
        if wanted.parts:
            return _in_parts(found)
        if len(found) > 1:
            raise TraceError(
                f"{len(found)} files could be the table {table}: "
                f"{', '.join(f.name for f in found)}; keep one here, or name "
                f"{self._argument(table)}",
                self.path,
            )
        return found

    def has(self, table: str) -> bool:
        return bool(self.files(table))

    def _argument(self, table: str) -> str:
        files = self.form.mapping.get("files", {}).items()
        return next(
            (f"it with {name}=" for name, each in files if table in each), "the file itself"
        )

    def read(self, table: str, columns: Sequence[str] | None = None) -> Read:
        """Read a table and keep ``columns``; the others are checked all the same.

        Raises TraceError when there is no file of it, or it cannot be read; with ``strict``, at the
        first bad row.
        """
        rows, frames = 0, []
        batches = self.batches(table, columns)
        for frame in batches:
            rows += len(frame)
            frames.append(frame)
            if self.converted is None and rows > self.most_rows:
                self._too_large(f"{self.most_rows} rows")
            if batches.unpacked > self.most_bytes:
                self._too_large(f"{self.most_bytes} bytes")
        return Read(pl.concat(frames, how="diagonal"), tuple(batches.stages), batches.digests)

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Batches:
        files = self.files(table) or self._nearly(table)
        if not files:
            self.missing(table)
        wanted = None if columns is None else ["row", *columns, "part"]
        if self.converted is not None:
            return Batches(
                self.converted.batches(table, wanted), *self.converted.account(table, self.strict)
            )
        account = Batches(iter(()), [], {})
        account.frames = self._published(table, files, account)
        if wanted is not None:
            account.frames = _chosen(account.frames, wanted)
        return account

    def missing(self, *tables: str) -> NoReturn:
        files = files_of(self.path)
        others = [declared(f.stem) for f in FORMATS.glob("*.toml") if f.stem != self.form.name]
        for file in files:
            for form, table in recognise(file, others)[:1]:
                raise TraceError(
                    f"this looks like {table.name} of {form.name}, not like {self.form.name}; read "
                    f"it with trace={form.name!r}",
                    file,
                )
        here = ", ".join(f.name for f in files[:12]) or "nothing that can be read"
        raise TraceError(
            f"no file of the table {' or '.join(tables)} of {self.form.name} here; found {here}; "
            f"name {self._argument(tables[0])}",
            self.path,
        )

    def _nearly(self, table: str) -> list[Path]:
        schema = self.form.table(table).schema
        if not (schema.header and schema.separator == ","):
            return []
        needed = sum(column.needed for column in schema.columns)
        near = {file: len(schema.place(header_of(file))) for file in files_of(self.path)}
        most = max(near, key=lambda file: near[file], default=None)
        known = most and any(t.layout(first_lines(most)) for t in self.form.tables)
        return [most] if most and not known and 2 * near[most] > needed else []

    def reading(self, table: str, file: Path, **how: Any) -> Reading:
        wanted = self.form.table(table)
        schema = wanted.layout(first_lines(file)) or wanted.schema
        others = [other.schema for other in self.form.tables if other.name != table]
        return Reading(file, schema, others=others, strict=self.strict, **how)

    def _published(self, table: str, files: list[Path], to: Batches) -> Iterator[pl.DataFrame]:
        for number, file in enumerate(files):
            reading, kept, before = self.reading(table, file), 0, to.unpacked
            for batch in reading:
                kept += len(batch)
                to.unpacked = before + reading.blocks.unpacked
                yield batch.with_columns(pl.lit(number, pl.Int64).alias("part"))
            reading.check_used(kept)
            to.stages.append(Stage(file.name, reading.read, kept, dict(reading.dropped)))
            to.digests[file.name] = reading.blocks.digest()

    def _too_large(self, than: str) -> NoReturn:
        raise TraceError(
            f"the table is larger than {than}; convert the trace first, which takes little memory, "
            f"and read the result: gangwise trace convert {self.path} FOLDER",
            self.path,
        )


def _chosen(frames: Iterator[pl.DataFrame], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    for frame in frames:
        yield frame.select(name for name in columns if name in frame.columns)


def _in_parts(files: list[Path]) -> list[Path]:
    """Parts in order; none may be missing in the middle or be here twice."""
    numbered: dict[int, Path] = {}
    for file in files:
        match = PART.match(file.name)
        number = int(match[1]) if match else len(numbered)
        if number in numbered:
            raise TraceError(
                f"part {number:05d} is here twice, as {numbered[number].name} and {file.name}; "
                "keep one",
                file.parent,
            )
        numbered[number] = file
    order = sorted(numbered)
    for before, after in pairwise(order):
        if after != before + 1:
            raise TraceError(
                f"part {before + 1:05d} is missing, before {numbered[after].name}; download it, "
                "or keep only the parts before it",
                numbered[after].parent,
            )
    return [numbered[n] for n in order]

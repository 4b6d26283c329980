"""The files of a trace, table by table: found, read, and every row accounted for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import polars as pl

from gangwise.core.errors import TraceError
from gangwise.traces.format import (
    FORMATS,
    Format,
    all_files,
    declared,
    files_of,
    has_usual_name,
    recognise,
)
from gangwise.traces.io.account import Stage
from gangwise.traces.io.reading import Reading
from gangwise.traces.io.text import first_lines, header_of

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


class Batches:
    """Rows of a table, batch after batch, in constant memory; iterate once.

    ``stages`` and ``digests`` are of the files that were read to their end.
    """

    def __init__(self, readings: list[Reading]):
        self.readings = readings
        self.stages: list[Stage] = []
        self.digests: dict[str, str] = {}

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for number, reading in enumerate(self.readings):
            for batch in reading:
                yield batch.with_columns(pl.lit(number, pl.Int64).alias("part"))
            self.stages.append(reading.stage())
            self.digests[reading.path.name] = reading.blocks.digest()


class Source:
    """The files of one trace, in a folder, or one of them.

    Files that are ``named`` by table are read whatever is in them; with ``strict``, the first bad
    row is an error rather than left out and reported. Raises TraceError when there is no such file
    or directory.
    """

    def __init__(
        self,
        path: Path | str,
        form: Format,
        *,
        named: Mapping[str, Path] | None = None,
        strict: bool = False,
    ):
        self.path, self.form, self.strict = Path(path), form, strict
        self.named = dict(named or {})
        if not self.path.exists():
            raise TraceError("there is no such file or directory", self.path)

    def files(self, table: str) -> list[Path]:
        """Files of a table, in order of their parts; empty when there are none.

        Raises TraceError when a part is missing or here twice, or several files could be the table.
        """
        if table in self.named:
            return [self.named[table]]
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

    def read(self, table: str) -> Read:
        """Read a table.

        Raises TraceError when there is no file of it, or it cannot be read; with ``strict``, at the
        first bad row.
        """
        batches = self.batches(table)
        frame = pl.concat(batches, how="diagonal")
        return Read(frame, tuple(batches.stages), batches.digests)

    def batches(self, table: str) -> Batches:
        files = self.files(table) or self._nearly(table)
        if not files:
            self.missing(table)
        return Batches([self.reading(table, file) for file in files])

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

    def reading(self, table: str, file: Path) -> Reading:
        wanted = self.form.table(table)
        schema = wanted.layout(first_lines(file)) or wanted.schema
        return Reading(file, schema, strict=self.strict)


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

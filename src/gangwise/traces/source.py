"""The files of a trace, table by table: found, read, and every row accounted for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage
from gangwise.traces.formats import Format, TableFile, files_of, has_usual_name, reads_as
from gangwise.traces.tables import Table, read_table
from gangwise.traces.text import first_lines

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Read", "Source"]

PART = re.compile(r"part-(\d+)-of-(\d+)\.")


@dataclass(frozen=True)
class Read:
    """What was read of a table.

    Attributes
    ----------
    frame : polars.DataFrame
        ``part`` (number of the file, from 0), ``row`` (line of that file) and the columns of the
        schema: numbers as Float64, null where missing; text without surrounding blanks.
    stages : tuple of Stage
        Rows read, kept and dropped, file by file.
    digests : dict
        SHA-256 of each file.
    """

    frame: pl.DataFrame
    stages: tuple[Stage, ...]
    digests: dict[str, str]


class Source:
    """The files of one trace.

    Parameters
    ----------
    path : path
        A directory with the files, or one of them.
    form : Format
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no such file or directory.
    """

    def __init__(self, path: Path | str, form: Format, *, strict: bool = False):
        self.path, self.form, self.strict = Path(path), form, strict
        if not self.path.exists():
            raise TraceError("there is no such file or directory", self.path)

    def files(self, table: str) -> list[Path]:
        """Files of a table, in order of their parts; empty when there are none.

        Raises
        ------
        TraceError
            When a part is missing or here twice, or several files could be the table.
        """
        wanted = self.form.table(table)
        found = [f for f in files_of(self.path) if self._is(f, wanted)]
        usual = [f for f in found if has_usual_name(f, wanted)]
        found = usual or found
        if wanted.parts:
            return _in_parts(found)
        if len(found) > 1:
            raise TraceError(
                f"{len(found)} files could be the table {table}: "
                f"{', '.join(f.name for f in found)}; keep one here, or name the file itself",
                self.path,
            )
        return found

    def has(self, table: str) -> bool:
        """Whether there is a file of the table."""
        return bool(self.files(table))

    def read(self, table: str) -> Read:
        """Read a table.

        Raises
        ------
        TraceError
            When there is no file of it, or it cannot be read; with ``strict``, at the first bad
            row.
        """
        import polars as pl

        files = self.files(table)
        if not files:
            here = ", ".join(f.name for f in files_of(self.path)[:12]) or "nothing that can be read"
            raise TraceError(f"no file of the table {table} of {self.form.name} here; found {here}",
                             self.path)  # fmt: skip
        schema = self.form.table(table).schema
        others = [other.schema for other in self.form.tables if other.name != table]
        tables = [read_table(f, schema, others=others, strict=self.strict) for f in files]
        part = pl.lit(0, pl.Int64).alias("part")
        frames = [t.frame.with_columns(part + n) for n, t in enumerate(tables)]
        return Read(
            pl.concat(frames, how="diagonal"), tuple(_stage(t) for t in tables),
            {t.file.name: t.digest for t in tables},
        )  # fmt: skip

    def _is(self, file: Path, table: TableFile) -> bool:
        lines = first_lines(file)
        return bool(lines) and reads_as(table.schema, lines)


def _stage(table: Table) -> Stage:
    return Stage(table.file.name, table.read, len(table.frame), dict(table.dropped))


def _in_parts(files: list[Path]) -> list[Path]:
    """Parts in order; none may be missing in the middle or be here twice."""
    numbered: dict[int, Path] = {}
    for file in files:
        match = PART.match(file.name)
        number = int(match[1]) if match else len(numbered)
        if number in numbered:
            raise TraceError(
                f"part {number:05d} is here twice, as {numbered[number].name} and {file.name}; "
                "keep one", file.parent,
            )  # fmt: skip
        numbered[number] = file
    order = sorted(numbered)
    for before, after in pairwise(order):
        if after != before + 1:
            raise TraceError(
                f"part {before + 1:05d} is missing, before {numbered[after].name}; download it, "
                "or keep only the parts before it", numbered[after].parent,
            )  # fmt: skip
    return [numbered[n] for n in order]

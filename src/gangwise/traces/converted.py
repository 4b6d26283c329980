"""A converted trace, read as if it were the published files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Stage
from gangwise.traces.formats import Format
from gangwise.traces.manifest import MANIFEST, Chunk, Manifest, SourceFile, manifest_of
from gangwise.traces.tables import Dropped

if TYPE_CHECKING:
    import polars as pl


class Converted:
    """The tables of a converted trace.

    Parameters
    ----------
    folder : Path
    manifest : Manifest
    form : Format
    only : str
        The one published file whose rows are wanted; empty for all.

    Raises
    ------
    TraceError
        When the conversion is not complete, or of another format.
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
        """The published files of a table, as names in the folder of the table."""
        return [self.folder / table / file.name for file in self._of(table)]

    def account(self, table: str, strict: bool) -> tuple[list[Stage], dict[str, str]]:
        """The account and the digest of each file.

        Raises
        ------
        TraceError
            With ``strict``, when a row was left out: names the first.
        """
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
        import polars as pl

        path = self.folder / table / chunk.name
        if not path.is_file():
            raise TraceError("this chunk of the converted trace is missing; convert it again", path)
        numbers = [c.name for c in self.form.table(table).schema.columns if c.number]
        return pl.scan_parquet(path).with_columns(
            pl.col("^(" + "|".join(map(_escaped, numbers)) + ")$").cast(pl.Float64),
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
    """The account of each file."""
    return [
        Stage(
            file.name,
            file.read,
            file.kept,
            {why: Dropped(*count) for why, count in file.dropped.items()},
        )
        for file in files
    ]


def _escaped(name: str) -> str:
    import re

    return re.escape(name)

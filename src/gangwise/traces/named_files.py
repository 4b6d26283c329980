"""The files of a trace of which some were named by the user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gangwise.core.errors import TraceError
from gangwise.traces.formats import Format
from gangwise.traces.source import Source


class NamedFiles(Source):
    """A source in which the file of a table may be named, and is then read whatever is in it.

    Parameters
    ----------
    path : path
        Where the other tables are looked for.
    form : Format
    named : mapping of str to Path
        Files by table.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no such path, or files are named beside a converted trace, which has its own.
    """

    def __init__(
        self, path: Path | str, form: Format, *, named: Mapping[str, Path], strict: bool = False
    ):
        super().__init__(path, form, strict=strict)
        self.named = dict(named)
        if self.named and self.converted is not None:
            raise TraceError(
                "this trace is converted, with the files it was made of; name no others "
                f"({', '.join(f.name for f in self.named.values())}), or read the published files",
                self.path,
            )

    def files(self, table: str) -> list[Path]:
        """The file that was named; otherwise those that hold the table."""
        return [self.named[table]] if table in self.named else super().files(table)

"""What a converted trace holds: its chunks, the files they come from, and every row's account.

A converted trace is a folder with ``gangwise-trace.json`` and, for each table, a folder of chunks,
``TABLE/part-NNNNN.parquet``. The manifest is replaced whole after every chunk, so that it never
names a chunk that is not complete.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gangwise.core.errors import TraceError
from gangwise.core.files import write_whole

MANIFEST = "gangwise-trace.json"
VERSION = 1


@dataclass(frozen=True)
class Chunk:
    """Rows that follow one another in a file.

    Attributes
    ----------
    name : str
        File name in the folder of the table.
    rows : int
    line : int
        The last line of the file that was looked at for it.
    blocks, unpacked : int
        Blocks of the file up to its end, and their bytes.
    stored : int
        Bytes of the file, as it is stored, that were read by then.
    sha256 : str
        Of those bytes.
    """

    name: str
    rows: int
    line: int
    blocks: int
    unpacked: int
    stored: int
    sha256: str


@dataclass
class SourceFile:
    """A file of the trace as published, and how far it is converted.

    Attributes
    ----------
    name : str
    size, modified : int
        Bytes, and time of last change in nanoseconds.
    sha256 : str
        Of the file as it is stored; empty until all of it is converted.
    read : int
        Rows looked at.
    dropped : dict
        Reason to [how many, the first row].
    chunks : list of Chunk
    """

    name: str
    size: int
    modified: int
    sha256: str = ""
    read: int = 0
    dropped: dict[str, list[int]] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Rows that are in chunks."""
        return sum(chunk.rows for chunk in self.chunks)


@dataclass
class Manifest:
    """The manifest of a converted trace.

    Attributes
    ----------
    format : str
        Registered name of the trace's format.
    tables : dict
        The files of each table, in order.
    block, rows : int
        Bytes of a block and rows of a chunk, about.
    complete : bool
    """

    format: str
    tables: dict[str, list[SourceFile]]
    block: int
    rows: int
    complete: bool = False

    def save(self, folder: Path) -> None:
        """Replace the manifest of a folder."""
        text = json.dumps({"gangwise_trace": VERSION, **asdict(self)}, indent=1)
        write_whole(folder / MANIFEST, text)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of a folder.

        Raises
        ------
        TraceError
            When it is not one, or of another version.
        """
        file = folder / MANIFEST
        try:
            plain = json.loads(file.read_text())
            version = plain.pop("gangwise_trace")
            tables = plain.pop("tables")
            if version != VERSION:
                raise TraceError(
                    "another version of gangwise converted this trace; convert it "
                    "again into an empty folder",
                    file,
                )
            return cls(
                tables={name: [_file(f) for f in files] for name, files in tables.items()}, **plain
            )
        except OSError as error:
            raise TraceError(f"the manifest cannot be read ({error.strerror})", file) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(
                f"this is not the manifest of a converted trace ({error!r}); convert the trace "
                "again into an empty folder",
                file,
            ) from error


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of a converted trace, if a folder is one."""
    return Manifest.load(path) if (path / MANIFEST).is_file() else None


def _file(plain: dict[str, object]) -> SourceFile:
    chunks = plain.pop("chunks")
    return SourceFile(chunks=[Chunk(**chunk) for chunk in chunks], **plain)  # type: ignore[arg-type, attr-defined]  # JSON: a wrong type is a TypeError, which load reports

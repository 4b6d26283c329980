r"""The text of a trace file: unpacked and cut into lines as it streams by, decoded, and recognised.

A file may be plain, packed with gzip (of one member or several), bzip2 or xz, or a tar or zip
archive, whose members are read one after another as if they were one file; UTF-16 is read as UTF-8,
and the table of a Parquet file as CSV. Every block ends with a line end,
``\n`` whatever the file uses, and holds the same bytes however the file is packed; so block
number and line number mean the same in every run. The digest of the stored bytes is made on the
way. A gzip file that is cut short gives the lines before that place, and says so; one that is
damaged elsewhere is an error, for what was unpacked before the damage shows may be wrong already.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gc
import hashlib
import json
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from gangwise.core.errors import TraceError
from gangwise.core.terminal import tell

inflate: Any = zlib
with suppress(ImportError):  # unpacks more than twice as fast, where it is installed
    inflate = import_module("isal.isal_zlib")


BLOCK = 4 << 20
"""Size of a block in unpacked bytes."""
STORED = 1 << 14
"""Bytes read from the file at a time."""
LONGEST_LINE = 64 << 20
WHOLE = 4 << 30
"""Most bytes of text that are read in one piece."""
FREE = 1 << 30
"""Bytes of text up to which a file may unpack to any multiple of its size."""
EXPANSION = "GANGWISE_MOST_EXPANSION"
MOST_EXPANSION = 200
"""How many times as large as the file its text may be; logs are packed to a tenth or a fiftieth."""
ROWS = "GANGWISE_MOST_ROWS"
MOST_ROWS = 500_000_000
"""Most rows of a file. Environment variables of these two names raise them."""
SHOWN = 64 << 20
"""Bytes of text after which reading a file is reported: it takes a second or so."""
BEHIND = "the {} file has bytes behind its check sum that cannot be unpacked"
GZIP = b"\x1f\x8b"
PACKED: Mapping[bytes, tuple[str, Callable[[], Any]]] = {
    GZIP: ("gzip", lambda: inflate.decompressobj(31)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ": ("xz", lzma.LZMADecompressor),
}
"""First bytes of a packed file: the kind of packing, and what unpacks it."""
UNZIPPING = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError),
    *(RuntimeError, NotImplementedError),  # for a password, and for a method that it cannot unpack
)
"""What Python raises where an archive is damaged, or cannot be unpacked."""
TABLE_ROWS = 50_000
"""Rows of a Parquet file that are written as CSV at a time."""
ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK = 128 << 10
"""Most bytes of text in a block of zstd."""


def regular(path: Path) -> Path:
    """The path, unless it is something that must not be opened: a pipe, a device, a socket."""
    with suppress(OSError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = "a pipe (FIFO)" if stat.S_ISFIFO(mode) else "a device or a socket"
            raise TraceError(f"this is {kind} and no file: write it to a file, and name that", path)
    return path


# An empty variable counts as not set, as shells write `NAME= command`.
def limit_of(name: str, usual: int) -> int:
    """A limit that the user has raised; TraceError where that is no whole number."""
    text = os.environ.get(name, "") or str(usual)
    if not text.isdecimal():
        raise TraceError(f"{name}={text}: give a whole number, such as {usual}")
    return int(text)


def check_expansion(path: Path, unpacked: int, stored: int, most: int) -> None:
    # Small files are exempt: a few repeated lines pack to a thousandth without any harm.
    if unpacked > max(FREE, most * stored):
        raise TraceError(
            f"the file has {stored:,} bytes and unpacks to more than {most} times as many, which "
            f"logs do not and bombs do; if it is to be read, set {EXPANSION} to more",
            path,
        )


def scan_parquet(path: Path) -> pl.LazyFrame:
    """A Parquet file, unless its values, of 8 bytes each, are far more than the file.

    Groups of its rows are unpacked as a whole, and how many rows a group has the file decides.
    """
    # Only the footer is read for both; no row is unpacked yet.
    table = pl.scan_parquet(path)
    rows, width = table.select(pl.len()).collect().item(), len(table.collect_schema())
    most = limit_of(EXPANSION, MOST_EXPANSION)
    check_expansion(path, 8 * rows * width, path.stat().st_size, most)
    return table


class Block(NamedTuple):
    r"""Whole lines, each with its ``\n``.

    ``rows`` of them, from number ``line`` on (counted from 1). ``opens``: they begin the file, or a
    member of the archive, so that the first may be a header.
    """

    data: bytes
    rows: int
    line: int
    opens: bool


class _Bytes(Protocol):
    def read(self, size: int) -> bytes: ...


class Blocks:
    r"""The blocks of a file; iterate once.

    ``size`` is that of a block, about. While iterating, TraceError tells of a file that is not
    there, cannot be read, is no text, or is written to while it is read.

    Attributes
    ----------
    stored, unpacked : int
        Bytes of the file, and bytes of the blocks so far.
    damage : str
        What is wrong with the packing, once that place is reached; else empty.
    torn : int
        Number of the line that was cut by the damage, which is in no block; 0 for none.

    Examples
    --------
    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "x.csv.gz")
    ...     size = file.write_bytes(gzip.compress(b"a,b\r\n1,2\r\n\r\n"))
    ...     list(Blocks(file))
    [Block(data=b'a,b\n1,2\n', rows=2, line=1, opens=True)]
    """

    def __init__(self, path: Path, size: int | None = None):
        self.path, self.size = path, size or BLOCK
        self.stored = self.unpacked = self.torn = 0
        self.damage = ""
        self._line = 1
        self._reported = 0
        self._most_rows = limit_of(ROWS, MOST_ROWS)
        self._most_expansion = limit_of(EXPANSION, MOST_EXPANSION)
        self._digest = hashlib.sha256()

    def digest(self) -> str:
        """SHA-256 of the bytes of the file read so far; after the last block, of the file."""
        return self._digest.hexdigest()

    @property
    def packed(self) -> bool:
        with self._open() as file:
            start = file.read(6)
        return any(start.startswith(magic) for magic in (*PACKED, ZSTD))

    def start(self, size: int) -> bytes:
        """The first bytes of the text, without cutting them into blocks."""
        with self._open() as file:
            for text in self._texts(file):
                return text.read(size)
        return b""

    def whole(self) -> bytes:
        """All of the text in one piece, instead of blocks: its lines may be of any length."""
        pieces, total = list[bytes](), 0
        with self._open() as file:
            # The size is of the open file, so that a new file of this name
            # does not confuse the check.
            status = os.fstat(file.fileno())
            for text in self._texts(file):
                while piece := text.read(self.size):
                    pieces.append(piece)
                    # Checked piece by piece: a bomb is refused before its text is in memory.
                    self._check_expansion(total := total + len(piece), status.st_size)
                    if total > WHOLE:
                        problem = (
                            f"the file unpacks to more than {WHOLE >> 30} GiB of text, and is "
                        )
                        raise TraceError(f"{problem}a document that must be read whole", self.path)
            self._finish(file, status)
        return b"".join(pieces).removeprefix(b"\xef\xbb\xbf")

    def __iter__(self) -> Iterator[Block]:
        with self._open() as file:
            status = os.fstat(file.fileno())
            for text in self._texts(file):
                for block in self._cut(text):
                    self._check_expansion(self.unpacked, status.st_size)
                    if self._line - 1 > self._most_rows:
                        raise TraceError(
                            f"the file has more than {self._most_rows:,} rows; if all are wanted, "
                            f"set {ROWS} to more",
                            self.path,
                        )
                    if self.unpacked > self._reported + SHOWN:
                        self._reported = self.unpacked
                        tell(f"reading {self.path.name}", self.stored, status.st_size)
                    yield block
            self._finish(file, status)

    def _check_expansion(self, unpacked: int, stored: int) -> None:
        check_expansion(self.path, unpacked, stored, self._most_expansion)

    def _finish(self, file: IO[bytes], before: os.stat_result) -> None:
        # What follows an archive's end is read as well, so that the digest is of the whole file.
        while self._stored(file, STORED):
            pass
        status = os.fstat(file.fileno())
        # A writer that replaced bytes in place keeps the size, so the time of the change counts,
        # too.
        if (before.st_size, before.st_mtime_ns) != (status.st_size, status.st_mtime_ns) or (
            self.stored != before.st_size
        ):
            raise TraceError(
                f"the file changed while it was read (it had {before.st_size:,} bytes, "
                f"{self.stored:,} were read, now it has {status.st_size:,}): rows would be counted "
                "wrongly; copy it, and read the copy",
                self.path,
            )

    def _open(self) -> IO[bytes]:
        try:
            return regular(self.path).open("rb")
        except FileNotFoundError as error:
            raise TraceError("there is no such file", self.path) from error
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> TraceError:
        return TraceError(f"the file cannot be read ({error.strerror or error})", self.path)

    def _stored(self, file: IO[bytes], size: int) -> bytes:
        try:
            data = file.read(size)
        except OSError as error:
            raise self._unreadable(error) from error
        self._digest.update(data)
        self.stored += len(data)
        return data

    def _texts(self, file: IO[bytes]) -> Iterator[_Bytes]:
        # gzip and its like are unpacked first, since a tar archive is often inside; the kinds that
        # need to seek (Parquet, zip) are read again from the path.
        stream: Any = _Pieces(self._pieces(file))
        start = stream.read(512)
        stream.put_back(start)
        # What the first bytes say decides, whatever the file is called.
        if start.startswith(b"PAR1"):
            yield _Pieces(self._table())
            return
        if start.startswith(b"PK\x03\x04"):
            yield from self._members()
            return
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            # A pair of surrogates may be split between pieces: only an
            # incremental decoder joins them.
            pieces = iter(partial(stream.read, STORED), b"")
            texts = codecs.iterdecode(pieces, "utf-16", "replace")
            yield _Pieces(text.encode() for text in texts)
            return
        if start.startswith(ZSTD):
            yield _Pieces(self._lines(file))
            return
        # A tar archive has its mark behind the head of its first member, not at its start.
        if start[257:262] != b"ustar":
            yield stream
            return
        try:
            # A stream cannot go back, so `r|` reads members in the order they lie in.
            with tarfile.open(fileobj=stream, mode="r|", bufsize=STORED) as archive:
                for member in archive:
                    # Tools of macOS add a file `._NAME` beside each, which is no table.
                    hidden = member.name.rsplit("/", 1)[-1].startswith(".")
                    if member.isfile() and member.size and not hidden:
                        opened = archive.extractfile(member)
                        assert opened is not None  # it is a file
                        yield opened
            # What is left behind the last member is drained, so that damage there is found as well.
            while stream.read(STORED):
                pass
        except (tarfile.TarError, EOFError) as error:
            self.damage = self.damage or f"the tar archive is cut short or damaged ({error})"

    def _members(self) -> Iterator[_Bytes]:
        try:
            # The sizes are those that the archive's directory claims; a member that holds
            # more fails its check sum.
            with zipfile.ZipFile(self.path) as archive:
                total = sum(member.file_size for member in archive.infolist())
                self._check_expansion(total, self.path.stat().st_size)
                for member in archive.infolist():
                    hidden = member.filename.rsplit("/", 1)[-1].startswith((".", "__MACOSX"))
                    if member.file_size and not (hidden or "__MACOSX/" in member.filename):
                        with archive.open(member) as opened:
                            yield _Pieces(self._unzipped(opened))
        except UNZIPPING as error:
            raise TraceError(f"the zip archive cannot be unpacked ({error})", self.path) from error

    def _unzipped(self, member: IO[bytes]) -> Iterator[bytes]:
        # Damage shows where a member is read, which is outside the generator that opened it.
        try:
            yield from iter(partial(member.read, STORED), b"")
        except UNZIPPING as error:
            raise TraceError(f"the zip archive cannot be unpacked ({error})", self.path) from error

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """The text of a zstd file: polars unpacks it as a stream, and its blocks say how far."""
        with self.path.open("rb") as second:
            pieces = list(zstd_blocks(second))
        size = sum(piece.given for piece in pieces)  # a line without an end is not streamed
        self._check_expansion(size, os.fstat(file.fileno()).st_size)
        # The share of the text is taken for the share of the blocks, for the report of progress.
        share = sum(piece.most for piece in pieces) / max(size, 1)
        # A separator that no log has, and no quotes: each line is one field, whatever is in it.
        layout: Any = {"has_header": False, "separator": "\x1f", "quote_char": None}
        text_read = upto = block = 0
        try:
            lines = pl.scan_csv(self.path, **layout, new_columns=["line"], infer_schema=False)
            # polars gives the lines without their ends, and an empty line as null.
            for batch in lines.collect_batches():
                text = "\n".join([*batch["line"].fill_null("").to_list(), ""]).encode()
                text_read += len(text)
                # The file is hashed along as far as the blocks so far reach;
                # polars reads it on its own.
                while upto < share * text_read and block < len(pieces):
                    upto += pieces[block].most
                    self._stored(file, max(pieces[block].end - self.stored, 0))
                    block += 1
                yield text
        except pl.exceptions.NoDataError:
            return
        except (pl.exceptions.PolarsError, OSError) as error:
            raise TraceError(f"the zstd file cannot be unpacked ({error})", self.path) from error

    def _table(self) -> Iterator[bytes]:
        """A Parquet file as CSV: times in ISO 8601, lengths of time in seconds, lists with bars."""
        try:
            table = scan_parquet(self.path)
            written = [_written(name, kind) for name, kind in table.collect_schema().items()]
            # A slice of the whole would make polars read on; those who recognise files want little.
            begin = table.head(TABLE_ROWS).collect()  # for what looks at the beginning alone
            rest = table.slice(TABLE_ROWS).collect_batches(chunk_size=TABLE_ROWS)
            text, stored = 0, self.path.stat().st_size
            for rows in chain([begin], rest):
                frame = rows.select(written)
                # One text, stored once, may stand in every row.
                texts = frame.select(pl.col(pl.String).str.len_bytes().sum())
                text += sum(texts.row(0)) if texts.width else 0
                self._check_expansion(text, stored)
                # Only the first batch names the columns: the batches are one CSV file.
                yield frame.write_csv(include_header=rows is begin).encode()
        except (pl.exceptions.PolarsError, OSError) as error:
            problem = str(error).split("\n")[0]
            raise TraceError(f"the Parquet file cannot be read ({problem})", self.path) from error

    def _pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        data = self._stored(file, STORED)
        packed = next((how for magic, how in PACKED.items() if data.startswith(magic)), None)
        if packed is None:
            while data:
                yield data
                data = self._stored(file, STORED)
            return
        kind, opened = packed
        # Packed files may be several members one after another.
        member, begun = opened(), True
        # A piece of gzip unpacks to a thousand times its size at most; others are cut.
        most = () if kind == "gzip" else (self.size,)
        while data or not getattr(member, "needs_input", True):
            try:
                piece = member.decompress(data, *most)
            except (zlib.error, inflate.error, lzma.LZMAError, OSError) as error:
                # The first member is the file itself: what zlib gave before the error may be wrong.
                # Bytes behind a complete member, whose check sum held, do no harm to what it gave.
                if begun:
                    raise TraceError(
                        f"the {kind} file is damaged ({error}); lines before that place may be "
                        "other than those packed, so none are given; download it again",
                        self.path,
                    ) from error
                self.damage = BEHIND.format(kind)
                return
            if piece:
                begun = True
                yield piece
            data = b""
            if member.eof:
                # Tapes and some tools pad a packed file with zeros, between members and at its end.
                data = member.unused_data.lstrip(b"\0")
                while not data and (piece_read := self._stored(file, STORED)):
                    data = piece_read.lstrip(b"\0")
                if not data:
                    return
                # A member that has given nothing yet may be no member at all.
                member, begun = opened(), False
            # gzip takes all that it is given; bzip2 and xz keep what they have no room to unpack.
            if getattr(member, "needs_input", True):
                data = data or self._stored(file, STORED)
        self.damage = f"the {kind} file is cut short" if begun else BEHIND.format(kind)

    def _cut(self, text: _Bytes) -> Iterator[Block]:
        opens, carried, blank = True, b"", list[bytes]()
        while True:
            try:
                fresh = text.read(self.size)
            except (tarfile.TarError, EOFError) as error:
                self.damage = self.damage or f"the tar archive is cut short ({error})"
                fresh = b""
            data = carried + fresh
            if opens:
                # Some editors of Windows write the mark; it would be part
                # of the first column's name.
                data = data.removeprefix(b"\xef\xbb\xbf")
            # A short piece is the last: all streams here give what was asked for until their end.
            at_end = len(fresh) < self.size
            lone_return = b""
            # A return at the very end may belong to a line feed in the next piece.
            if b"\r" in data:
                if data.endswith(b"\r") and not at_end:
                    data, lone_return = data[:-1], b"\r"
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            # A line that damage cut must not look whole, so it gets no end and is in no block.
            if at_end and not self.damage and data and not data.endswith(b"\n"):
                data += b"\n"
            end_of_lines = data.rfind(b"\n") + 1
            complete = len(data[:end_of_lines].rstrip())
            end = data.index(b"\n", complete) + 1 if complete else 0
            # Blank lines count as rows only where something follows; at the
            # end of a file they are none.
            if end:
                lines = b"".join([*blank, data[:end]])
                rows = int(np.count_nonzero(np.frombuffer(lines, np.uint8) == ord("\n")))
                block = Block(lines, rows, self._line, opens)
                self._line += rows
                self.unpacked += len(lines)
                opens, blank = False, []
                yield block
            if end_of_lines > end:
                blank.append(data[end:end_of_lines])  # blank lines wait for what follows
            # What follows the last line end belongs to the next block.
            carried = data[end_of_lines:] + lone_return
            if at_end:
                break
            waiting = sum(map(len, blank))
            # Both bounds are of memory: a file without line ends would be read into one block.
            if max(len(carried), waiting) > LONGEST_LINE:
                subject = "blank lines are" if waiting > LONGEST_LINE else "the line is"
                raise TraceError(
                    f"{subject} longer than {LONGEST_LINE >> 20} MiB: this is not a table in text",
                    self.path,
                    self._line,
                )
        if self.damage and carried.strip():
            self.torn = self._line + b"".join(blank).count(b"\n") + carried.rstrip().count(b"\n")


class ZstdBlock(NamedTuple):
    """A block of a zstd file: most bytes of its text, and the place in the file where it ends.

    ``given`` is the size of a whole frame's text, at its first block, where its head gives that;
    else it is ``most``.
    """

    most: int
    end: int
    given: int


def zstd_blocks(file: IO[bytes]) -> Iterator[ZstdBlock]:
    """Blocks of the frames of a zstd file (RFC 8878), by their heads; ends where it is cut short.

    A block has at most 128 KiB of text, and as much as the window.
    """
    while len(magic := file.read(4)) == 4:
        # Frames 0x184D2A50 to …5F hold what others have added; they have no text.
        if magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5:  # a frame that is skipped
            file.seek(int.from_bytes(file.read(4), "little"), os.SEEK_CUR)
            continue
        head = file.read(1)
        if magic != ZSTD or not head:
            return
        # Bits of the descriptor: 0 to 1 the dictionary's number, 2 a check sum, 5 one segment, 6 to
        # 7 the width of the content's size.
        # Frame header: single segment, size of the window, of the dictionary id and of the content.
        single = head[0] >> 5 & 1
        window = file.read(1) if not single else b""
        file.seek((0, 1, 2, 4)[head[0] & 3], os.SEEK_CUR)  # number of its dictionary
        width = (single, 2, 4, 8)[head[0] >> 6]
        # RFC 8878 adds 256 to a size of two bytes, for smaller ones need one byte.
        content_size = int.from_bytes(file.read(width), "little") + 256 * (width == 2)
        largest = ZSTD_BLOCK
        if window:
            base = 1 << 10 + (window[0] >> 3)
            # The window has a base, a power of two, and eighths of it.
            largest = min(largest, base + base // 8 * (window[0] & 7))
        is_last = False
        while not is_last:
            if len(about := file.read(3)) < 3:
                return
            number = int.from_bytes(about, "little")
            is_last, kind, size = bool(number & 1), number >> 1 & 3, number >> 3
            end = file.seek(1 if kind == 1 else size, os.SEEK_CUR)  # one byte that is repeated
            # Raw and repeated blocks tell their size; a packed one only that of its packed bytes.
            text = largest if kind == 2 else size
            yield ZstdBlock(text, end, content_size if width else text)
            # The size of the content counts once a frame, at the first of its blocks.
            content_size = 0
        file.seek(4 * (head[0] >> 2 & 1), os.SEEK_CUR)  # its check sum


class _Pieces:
    def __init__(self, pieces: Iterator[bytes]):
        self._pieces, self._have = pieces, bytearray()

    def put_back(self, data: bytes) -> None:
        self._have[:0] = data

    def read(self, size: int) -> bytes:
        while len(self._have) < size and (piece := next(self._pieces, b"")):
            self._have += piece
        data = bytes(self._have[:size])
        del self._have[:size]
        return data


class Commented(Blocks):
    """The blocks of a file without its comments (lines that begin with ``mark``) and blank lines.

    ``squeeze`` puts one blank between fields, however many there are; ``commas`` writes numbers
    between semicolons with a decimal point; ``comments`` are those met.
    """

    def __init__(self, path: Path, mark: bytes, squeeze: bool = False, commas: bool = False):
        super().__init__(path)
        self.mark, self.squeeze, self.comments = mark, squeeze, list[str]()
        self.commas = commas

    def __iter__(self) -> Iterator[Block]:
        opens = True
        for block in super().__iter__():
            line = block.line
            lines = block.data[:-1].split(b"\n")
            for whole_rows, run in groupby(lines, self._is_row):
                texts = list(run)
                if whole_rows:
                    if self.commas:
                        texts = [with_points(text) for text in texts]
                    if self.squeeze:
                        # A mark in the middle of a row begins no comment: it counts as a blank.
                        texts = [
                            b" ".join(text.replace(self.mark or b" ", b" ").split())
                            for text in texts
                        ]
                    yield Block(b"\n".join(texts) + b"\n", len(texts), line, opens)
                    opens = False
                else:
                    self.comments += [text.decode("utf-8", "replace") for text in texts]
                # Numbers of lines are those of the file, comments
                # included, as an editor shows them.
                line += len(texts)

    def _is_row(self, text: bytes) -> bool:
        text = text.lstrip()
        return bool(text) and not (self.mark and text.startswith(self.mark))


def with_points(line: bytes) -> bytes:
    """A line whose fields ``1,5`` between semicolons are ``1.5``, as numbers are read.

    >>> with_points(b'a;1,5;-2,25;"3,0";x,1;4')
    b'a;1.5;-2.25;"3.0";x,1;4'
    """
    # Only a field that is a number as a whole is one, so a text with commas stays as it is.
    return re.sub(rb'(?<![^;])(\s*"?[-+]?\d+),(\d+"?\s*)(?=;|$)', rb"\1.\2", line)


def _written(name: str, kind: pl.DataType) -> pl.Expr:
    value = pl.col(name)
    if isinstance(kind, pl.Datetime):
        zone = "%z" if kind.time_zone else ""
        # One form for all: what polars would write depends on the unit of the column.
        return value.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{zone}")
    if isinstance(kind, pl.Duration):
        return value.dt.total_microseconds() / 1e6
    if isinstance(kind, pl.List | pl.Array) and kind.inner.is_float():
        value = pl.lit("").alias(name)  # a vector, and no names
    elif isinstance(kind, pl.List | pl.Array):
        value = value.cast(pl.List(pl.String)).list.join("|")
    elif isinstance(kind, pl.Struct):
        value = value.struct.json_encode()
    elif isinstance(kind, pl.Binary):  # of no use in a table of jobs
        value = pl.lit("").alias(name)
    elif isinstance(kind, pl.Float32 | pl.Float64):
        # Written as NaN it would be a value that is no number, and the row bad.
        return value.fill_nan(None)
    elif kind.is_numeric() or isinstance(kind, pl.Boolean | pl.Date):
        return value
    # Every row is one line here, so a text must not break it.
    return value.cast(pl.String).str.replace_all(r"[\r\n]+", " ")


ENOUGH_FOR_A_HEADER = 1 << 16


def read_text(path: Path) -> tuple[str, str]:
    """Text of a small file, plain or gzipped, and the SHA-256 of the file as it is stored.

    Bytes that are not UTF-8 become U+FFFD; TraceError tells of a file that is damaged or no text.
    """
    blocks = Blocks(path)
    data = blocks.whole()
    if blocks.damage:
        raise TraceError(f"{blocks.damage}; download it again", path)
    return data.decode("utf-8", errors="replace"), blocks.digest()


def start_of(path: Path) -> bytes:
    """The start of the text of a file, unpacked; empty when unreadable.

    It is kept, so that a file that many formats look at is opened once, until it changes.
    """
    try:
        stat = path.stat()
    except OSError:
        return b""
    return _start(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=2048)
def _start(path: Path, *version: int) -> bytes:
    try:
        return Blocks(path).start(ENOUGH_FOR_A_HEADER)
    except TraceError:
        return b""


def first_lines(path: Path, lines: int = 20) -> list[str]:
    """Lines from the start of a file, read without the rest of it; empty when unreadable."""
    data = start_of(path)
    # A line that the bound has cut would read as a bad row.
    # A line that the limit cuts is not judged.
    if len(data) == ENOUGH_FOR_A_HEADER:
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # the last line is cut off
    return split_lines(data.decode("utf-8-sig", errors="replace"))[:lines]


def header_of(path: Path) -> list[str]:
    """Fields of the first line, read without the rest of the file; empty when unreadable."""
    lines = first_lines(path, 1)
    return [field.strip() for field in split_line(lines[0]) or []] if lines else []


def split_lines(text: str) -> list[str]:
    r"""Lines as an editor shows them; empty ones at the end are left out.

    >>> split_lines("a,b\r\n1,2\r\n\r\n")
    ['a,b', '1,2']
    """
    # Old Macs ended lines with a return alone; the order of the two keeps CR LF one end.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def split_line(line: str, separator: str = ",") -> list[str] | None:
    """Fields of one line; None when its quotes do not match.

    >>> split_line('a,"b,c"'), split_line('a,"b')
    (['a', 'b,c'], None)
    """
    # The usual case, without a parser: csv takes ten times as long.
    if '"' not in line:
        return line.split(separator)
    try:
        # Without `strict` csv would take a quote that is never closed for the end of the file.
        return next(csv.reader([line], delimiter=separator, strict=True))
    except csv.Error:
        return None


def split_names(names: Sequence[str] | str) -> tuple[str, ...]:
    """Names that were given as such, or in one text, separated by bars or commas.

    >>> split_names("Terminated|Failed"), split_names(("Running",))
    (('Terminated', 'Failed'), ('Running',))
    """
    parts = re.split(r"[|,]", names) if isinstance(names, str) else names
    return tuple(name.strip() for name in parts)


def listed(names: Sequence[str], most: int = 60) -> str:
    """Names for a message, which stays short whatever a file holds."""
    rest_text = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + rest_text


@dataclass(frozen=True)
class Records:
    """The records of a file, unchecked, and the SHA-256 of the file as it is stored."""

    file: Path
    digest: str
    records: list[Any]


def beginning(path: Path) -> str:
    """The beginning of a file's text, however long its lines are; empty when unreadable."""
    return start_of(path).decode("utf-8-sig", errors="replace").lstrip()


def read_records(path: Path, key: str = "") -> Records:
    """The records of a JSON file, plain or gzipped.

    The list is under ``key`` (``a.b`` is key ``b`` of the object under ``a``), or the whole
    document. Raises TraceError, with the line, when the file cannot be read, is cut short, or holds
    no such list.
    """
    value, digest = document(path)
    # A key with a point in it, such as `a.b`, stands for itself where the object has it.
    for name in [key] if isinstance(value, dict) and key in value else key.split("."):
        # The key itself may have a point; else it is a path.
        if name:
            if not isinstance(value, dict) or name not in value:
                raise TraceError(f"the JSON document has no key {key!r}", path)
            value = value[name]
    if not isinstance(value, list):
        place = f"under {key!r}" if key else "in the JSON document"
        raise TraceError(f"a list of records is needed {place}, not {type(value).__name__}", path)
    if not value:
        raise TraceError("the list of records is empty", path)
    return Records(path, digest, value)


def lists_of_records(path: Path) -> dict[str, list[Any]]:
    """The lists of objects in a document, by their keys as :func:`read_records` takes them."""
    root, _ = document(path)
    lists: dict[str, list[Any]] = {}
    inside = [("", root)]
    # A loop rather than recursion: a document may be nested deeper than Python's stack.
    while inside:
        key, node = inside.pop()
        if isinstance(node, list) and node and isinstance(node[0], dict):
            lists[key] = node
        elif isinstance(node, dict):
            inside += [(f"{key}.{name}" if key else name, value) for name, value in node.items()]
    if not lists:
        raise TraceError("there is no list of objects in the JSON document", path)
    return lists


@contextmanager
def without_collecting() -> Iterator[None]:
    """The garbage collector held off: what is made of records is no garbage.

    To look through all of it again and again is not linear.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@without_collecting()
def document(path: Path, lines: bool = False) -> tuple[Any, str]:
    """A JSON document, plain or gzipped, and the SHA-256 of the file as it is stored.

    With ``lines`` an object a line is a list of them.
    """
    text, digest = read_text(path)
    text = text.rstrip()
    try:
        # Two objects on two lines are no JSON document; one alone is, and is read as such.
        if lines and re.match(r"\{.*\}\s*\n\s*\{", text):
            return json.loads(
                f"[{','.join(filter(None, map(str.strip, text.split(chr(10)))))}]"
            ), digest
        return json.loads(text), digest
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg} at character {error.colno} of the line"
        # An error at the very end means that the text stops, not that it is wrong.
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            problem = "the JSON is cut short; what is missing cannot be known, so get it again"
        raise TraceError(problem, path, error.lineno) from error
    except RecursionError as error:
        raise TraceError("the JSON document is nested too deeply to be a trace", path) from error


class RecordLines(Blocks):
    """The records of a document as lines, an object a line; its row is its place in the list."""

    def __init__(self, path: Path, key: str = ""):
        super().__init__(path)
        self._key, self._whole = key, ""

    def digest(self) -> str:
        # The digest is of the file; the lines made here are stored nowhere.
        return self._whole

    def __iter__(self) -> Iterator[Block]:
        source = read_records(self.path, self._key)
        self._whole, self.stored = source.digest, self.path.stat().st_size
        for start in range(0, len(source.records), RECORDS):
            records = source.records[start : start + RECORDS]
            # json.dumps writes no line feed, so that each record is one line.
            data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
            self.unpacked += len(data)
            yield Block(data, len(records), start + 1, start == 0)


RECORDS = 10_000  # in a block
NOT_UTF8 = "the text is not UTF-8"
NOT_AN_OBJECT = "the line is not a JSON object"
DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""Leaves numbers as they are written."""


def fields_of_json(line: str, names: Sequence[str]) -> tuple[list[str], str | None]:
    """The text of each field, and why there are none.

    Field ``b`` of object ``a`` is named ``a.b``. What is absent or null is empty; truth values are
    ``true`` and ``false``; a list or an object is its JSON.

    >>> fields_of_json(
    ...     '{"time": 1e3, "size": {"cpus": "0.5"}, "after": [1, 2], "alloc": true}',
    ...     ["time", "size.cpus", "size.memory", "after", "alloc"],
    ... )
    (['1e3', '0.5', '', '[1,2]', 'true'], None)
    >>> fields_of_json("[1]", ["time"])
    ([''], 'the line is not a JSON object')
    """
    record, problem = _object(line)
    if problem is not None:
        return [""] * len(names), problem
    texts = []
    for name in names:
        value: Any = record
        for field in name.split("."):
            # A path that leads through a list or a text leads nowhere: the field is empty.
            value = value.get(field) if isinstance(value, dict) else None
        texts.append(value if isinstance(value, str) else _text(value, line, name))
    return texts, None


def _object(line: str) -> tuple[dict[str, Any], str | None]:
    if "\ufffd" in line:
        return {}, NOT_UTF8
    if not line.strip():
        return {}, "the line is empty"
    try:
        # Numbers stay texts, since a float would lose digits of long ids and 1e3 would change.
        record = DECODER.decode(line)
        if "\\u" in line:
            json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair has no bytes
    except UnicodeEncodeError:
        return {}, NOT_UTF8
    except (ValueError, RecursionError):
        return {}, NOT_AN_OBJECT
    return (record, None) if isinstance(record, dict) else ({}, NOT_AN_OBJECT)


def _text(value: Any, line: str, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    value = json.loads(line)  # its numbers as numbers
    for field in name.split("."):
        value = value[field]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

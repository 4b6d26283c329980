r"""The lines of a trace file, in blocks: unpacked and cut as they stream by, in constant memory.

A file may be plain, gzip (of one member or several), or a tar archive, gzipped or not, whose
members are read one after another as if they were one file. Every block ends with a line end,
``\n`` whatever the file uses, and holds the same bytes however the file is packed; so block
number and line number mean the same in every run. The digest of the stored bytes is made on the
way. A gzip file that is cut short gives the lines before that place, and says so; one that is
damaged elsewhere is an error, for what was unpacked before the damage shows may be wrong already.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from gangwise.core.errors import TraceError

inflate: Any = zlib
with suppress(ImportError):  # unpacks more than twice as fast, where it is installed
    inflate = import_module("isal.isal_zlib")


BLOCK = 4 << 20
"""Bytes of a block, unpacked."""
STORED = 1 << 16
"""Bytes read from the file at a time."""
LONGEST_LINE = 64 << 20
BEHIND = "the gzip file has bytes behind its check sum that cannot be unpacked"
GZIP = b"\x1f\x8b"
NOT_TEXT = (
    (b"PK\x03\x04", "a zip archive (or a spreadsheet)"),
    (b"\xfd7zXZ", "packed with xz"),
    (b"(\xb5/\xfd", "packed with zstd"),
    (b"BZh", "packed with bzip2"),
    (b"PAR1", "a Parquet file"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


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

    ``size`` is that of a block, about. ``known`` is a number of bytes, and the digest that the
    first of so many had before. While iterating, TraceError tells of a file that is not there,
    cannot be read, is no text, is written to while it is read, or is not the one that is known.

    Attributes
    ----------
    count, stored, unpacked : int
        Blocks, bytes of the file, and bytes of the blocks so far.
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

    def __init__(self, path: Path, size: int | None = None, known: tuple[int, str] | None = None):
        self.path, self.size, self._known = path, size or BLOCK, known
        self.count = self.stored = self.unpacked = self.torn = 0
        self.damage = ""
        self._line = 1
        self._digest = hashlib.sha256()

    def digest(self) -> str:
        """SHA-256 of the bytes of the file read so far; after the last block, of the file."""
        return self._digest.hexdigest()

    def start(self, size: int) -> bytes:
        """The first bytes of the text, without cutting them into blocks."""
        with self._open() as file:
            for text in self._texts(file):
                return text.read(size)
        return b""

    def whole(self) -> bytes:
        """All of the text in one piece, instead of blocks: its lines may be of any length."""
        pieces: list[bytes] = []
        with self._open() as file:
            before = os.fstat(file.fileno())
            for text in self._texts(file):
                while piece := text.read(self.size):
                    pieces.append(piece)
            self._finish(file, before)
        return b"".join(pieces).removeprefix(b"\xef\xbb\xbf")

    def __iter__(self) -> Iterator[Block]:
        with self._open() as file:
            before = os.fstat(file.fileno())
            for text in self._texts(file):
                yield from self._cut(text)
            self._finish(file, before)

    def _finish(self, file: IO[bytes], before: os.stat_result) -> None:
        """Read what follows the text, and see that the file is still what it was."""
        while self._stored(file, STORED):
            pass
        self._same(before, os.fstat(file.fileno()))

    def _same(self, before: os.stat_result, after: os.stat_result) -> None:
        """Raise when the file was written to while it was read."""
        if not stat.S_ISREG(before.st_mode):
            return
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or (
            self.stored != before.st_size
        ):
            raise TraceError(
                f"the file changed while it was read (it had {before.st_size:,} bytes, "
                f"{self.stored:,} were read, now it has {after.st_size:,}): rows would be counted "
                "wrongly; copy it, and read the copy",
                self.path,
            )

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
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
        if self._known and self.stored == self._known[0] and self.digest() != self._known[1]:
            raise TraceError("the file has changed since its first rows were read", self.path)
        return data

    def _texts(self, file: IO[bytes]) -> Iterator[_Bytes]:
        """The text of the file, or of every member of the archive that it is."""
        whole: Any = _Pieces(self._pieces(file))
        start = whole.read(512)
        whole.put_back(start)
        for magic, what in NOT_TEXT:
            if start.startswith(magic):
                raise TraceError(
                    f"this is {what}; a CSV file in UTF-8, or gzip of it, is read", self.path
                )
        if start[257:262] != b"ustar":
            yield whole
            return
        try:
            with tarfile.open(fileobj=whole, mode="r|", bufsize=STORED) as archive:
                for member in archive:
                    hidden = member.name.rsplit("/", 1)[-1].startswith(".")
                    if member.isfile() and member.size and not hidden:
                        opened = archive.extractfile(member)
                        assert opened is not None  # it is a file
                        yield opened
            while whole.read(STORED):
                pass
        except (tarfile.TarError, EOFError) as error:
            self.damage = self.damage or f"the tar archive is cut short or damaged ({error})"

    def _pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        data = self._stored(file, STORED)
        if not data.startswith(GZIP):
            while data:
                yield data
                data = self._stored(file, STORED)
            return
        member, begun = inflate.decompressobj(31), True
        while data:
            try:
                piece = member.decompress(data)
            except (zlib.error, inflate.error) as error:
                if begun:
                    raise TraceError(
                        f"the gzip file is damaged ({error}); lines before that place may be other "
                        "than those packed, so none are given; download it again",
                        self.path,
                    ) from error
                self.damage = BEHIND
                return
            if piece:
                begun = True
                yield piece
            data = b""
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
                while not data and (more := self._stored(file, STORED)):
                    data = more.lstrip(b"\0")
                if not data:
                    return
                member, begun = inflate.decompressobj(31), False
            data = data or self._stored(file, STORED)
        self.damage = "the gzip file is cut short" if begun else BEHIND

    def _cut(self, text: _Bytes) -> Iterator[Block]:
        """Blocks of one text; blank lines at its end are left out."""
        opens, carried, blank = True, b"", list[bytes]()
        while True:
            try:
                fresh = text.read(self.size)
            except (tarfile.TarError, EOFError) as error:
                self.damage = self.damage or f"the tar archive is cut short ({error})"
                fresh = b""
            data = carried + fresh
            if opens:
                data = data.removeprefix(b"\xef\xbb\xbf")
            last = len(fresh) < self.size
            held = b""
            if b"\r" in data:
                if data.endswith(b"\r") and not last:
                    data, held = data[:-1], b"\r"
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if last and not self.damage and data and not data.endswith(b"\n"):
                data += b"\n"
            whole = data.rfind(b"\n") + 1
            end = whole
            if data[whole - 2 : whole - 1].isspace() or whole < 2:  # blank lines at the end
                said = len(data[:whole].rstrip())
                end = data.index(b"\n", said) + 1 if said else 0
            if end:
                lines = b"".join([*blank, data[:end]])
                rows = int(np.count_nonzero(np.frombuffer(lines, np.uint8) == ord("\n")))
                block = Block(lines, rows, self._line, opens)
                self._line += rows
                self.unpacked += len(lines)
                self.count += 1
                opens, blank = False, []
                yield block
            if whole > end:
                blank.append(data[end:whole])  # blank lines wait for what follows
            carried = data[whole:] + held
            if last:
                break
            waiting = sum(map(len, blank))
            if max(len(carried), waiting) > LONGEST_LINE:
                what = "blank lines are" if waiting > LONGEST_LINE else "the line is"
                raise TraceError(
                    f"{what} longer than {LONGEST_LINE >> 20} MiB: this is not a table in text",
                    self.path,
                    self._line,
                )
        if self.damage and carried.strip():
            self.torn = self._line + b"".join(blank).count(b"\n") + carried.rstrip().count(b"\n")


class _Pieces:
    def __init__(self, pieces: Iterator[bytes]):
        self._pieces = pieces
        self._have: list[bytes] = []

    def put_back(self, data: bytes) -> None:
        self._have.insert(0, data)

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes, unless the file ends."""
        total = sum(map(len, self._have))
        while total < size and (piece := next(self._pieces, b"")):
            self._have.append(piece)
            total += len(piece)
        over = total - size
        if over <= 0:
            data, self._have = b"".join(self._have), []
        elif over < len(self._have[-1]):  # as a rule: of all pieces but the last
            last = self._have.pop()
            data = b"".join([*self._have, last[: len(last) - over]])
            self._have = [last[len(last) - over :]]
        else:
            whole = b"".join(self._have)
            data, self._have = whole[:size], [whole[size:]]
        return data


class Commented(Blocks):
    """The blocks of a file without its comments (lines that begin with ``mark``) and blank lines.

    ``squeeze`` puts one blank between fields, however many there are; ``comments`` are those met.
    """

    def __init__(self, path: Path, mark: bytes, *, squeeze: bool = False):
        super().__init__(path)
        self.mark, self.squeeze, self.comments = mark, squeeze, list[str]()

    def __iter__(self) -> Iterator[Block]:
        opens = True
        for block in super().__iter__():
            line = block.line
            if self.squeeze and self.mark and self.mark not in block.data:
                data = squeezed(block.data)
                if not data.startswith(b"\n") and b"\n\n" not in data:  # every line is a row
                    yield Block(data, block.rows, line, opens)
                    opens = False
                    continue
            lines = block.data[:-1].split(b"\n")
            for said, run in groupby(lines, self._is_row):
                some = list(run)
                if said:
                    if self.squeeze:
                        some = [b" ".join(text.split()) for text in some]
                    yield Block(b"\n".join(some) + b"\n", len(some), line, opens)
                    opens = False
                else:
                    self.comments += [text.decode("utf-8", "replace") for text in some]
                line += len(some)

    def _is_row(self, text: bytes) -> bool:
        text = text.lstrip()
        return bool(text) and not (self.mark and text.startswith(self.mark))


def squeezed(data: bytes) -> bytes:
    r"""Lines with one blank between fields, and none around them.

    >>> squeezed(b"  1\t  2 \n3 4\n \n")
    b'1 2\n3 4\n\n'
    """
    text = np.frombuffer(data, np.uint8)
    blank = _BLANK[text]
    before = np.empty(text.size, dtype=bool)  # a blank or a line end stands before
    before[:1] = True
    np.equal(text[:-1], ord("\n"), out=before[1:])
    before[1:] |= blank[:-1]
    kept = text[~(blank & before)]
    kept = np.where(_BLANK[kept], np.uint8(ord(" ")), kept) if _other_blanks(data) else kept
    return kept.tobytes().replace(b" \n", b"\n")


def _other_blanks(data: bytes) -> bool:
    return any(blank in data for blank in (b"\t", b"\v", b"\f"))


_BLANK = np.zeros(256, dtype=bool)
_BLANK[list(b" \t\v\f")] = True

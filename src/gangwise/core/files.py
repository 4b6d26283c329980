"""Atomic, sealed files and folders of results: everything that gangwise writes goes through here.

- A file is written beside its place, flushed, and renamed, and the folder is flushed: whoever
  looks, even after a power cut, sees the old file or the new one.
- Files that belong together are published together (:meth:`Folder.publish`). All are on the disk
  before the first is renamed, and what they replace is gone before the first appears, so that a new
  summary never stands beside an old page. Whoever opens the folder next completes a publication
  that was cut short.
- ``.gangwise/`` in the folder holds the registry of its own files with their digests, its locks and
  its checkpoints. A file that is read is compared with its digest (:meth:`Folder.read`). Only
  registered files are ever replaced or removed.
- A lock (:meth:`Folder.lock`) admits one writer. The kernel releases it when its holder dies; the
  holder's process, host and command are kept beside it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, NamedTuple

from gangwise.core.errors import StoreError

STATE = ".gangwise"  # the folder, in a folder of results, of what is not a result

CHECKPOINTS = f"{STATE}/checkpoints"

Content = bytes | str | Callable[[IO[bytes]], object]
"""What is written: bytes, text (as UTF-8), or a function that writes to a binary file."""

ORPHAN = re.compile(r"\.gangwise-([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.part")
"""An unfinished file: host, process and a random number."""

LONGEST_NAME = 240  # longest file name, in bytes; systems take 255
REGISTRY_TIMEOUT = 60.0  # seconds to wait for another process that writes a line into the registry


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_whole(path: Path | str, content: Content, mode: int = 0o666) -> None:
    """Write one file, all or nothing: beside its place, flushed, renamed.

    Raises StoreError when it cannot be written; what was there before is still there.
    """
    path = Path(path)
    data = _bytes(content)
    with _as_store_error("write", path):
        os.makedirs(path.parent, exist_ok=True)
        _rename_into_place(write_side_file(path.parent, data, mode), path)


def remove_orphans(folder: Path) -> list[Path]:
    """Remove unfinished files of processes of this machine that are dead."""
    removed = []
    with _as_store_error("clean", folder):
        for name in _names(folder):
            if _orphaned(name):
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)
                    removed.append(folder / name)
    return removed


class Seal(NamedTuple):
    """Digest and size (bytes) of a folder's own file, and the publication that it belongs to."""

    sha256: str
    size: int
    part_of: str = ""

    @classmethod
    def of(cls, data: bytes, part_of: str = "") -> Seal:
        return cls(digest_of(data), len(data), part_of)

    def fits(self, data: bytes) -> bool:
        return len(data) == self.size and digest_of(data) == self.sha256


@dataclass(frozen=True)
class Verification:
    """What is right and wrong in a folder of results; names are relative to it.

    Own files are ``whole``, ``damaged`` or ``missing``; gangwise did not write the ``unknown``
    ones, or lost their entry. ``unfinished`` are checkpoints, publications that were cut short, and
    unfinished files of dead processes.
    """

    whole: list[str]
    damaged: list[str]
    missing: list[str]
    unknown: list[str]
    unfinished: list[str]

    @property
    def sound(self) -> bool:
        return not (self.damaged or self.missing)


class Cleaned(NamedTuple):
    """What :meth:`Folder.clean` removed, and the unknown files that it left; relative names."""

    removed: list[str]
    left: list[str]


@dataclass
class Publication:
    folder: Folder
    name: str
    staged: dict[str, tuple[Path, Seal]] = field(default_factory=dict)

    def write(self, name: str, content: Content) -> str:
        """Stage a file; returns its digest."""
        data = _bytes(content)
        place = self.folder.place(name)
        self.folder.refuse_to_replace(name)
        with _as_store_error("write", place):
            os.makedirs(self.folder.state, exist_ok=True)
            side = write_side_file(self.folder.state, data)
        self.staged[name] = side, Seal.of(data, self.name)
        return self.staged[name][1].sha256


class Folder:
    """A folder of results.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     folder = Folder(path)
    ...     with folder.lock(), folder.publish("results") as new:
    ...         digest = new.write("summary.json", "{}")
    ...         _ = new.write("page.html", f"numbers: {digest[:8]}")
    ...     folder.read("page.html"), folder.verify().whole
    (b'numbers: 44136fa3', ['page.html', 'summary.json'])
    """

    _held: ClassVar[set[tuple[str, int, int]]] = set()

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.state = self.path / STATE
        self._known = _Registry()

    # Locks

    @contextmanager
    def lock(self, name: str = "folder", command: str = "") -> Iterator[None]:
        """Keep other writers out; the thread that holds the lock may take it again.

        Whoever takes it first completes a publication that was cut short, and removes unfinished
        files of dead processes. ``name`` is ``folder`` for all of it, or a file that is written
        into it; ``command`` is told to those who find it locked.

        Raises StoreError when another process holds it; names process, host and command.
        """
        path = self.state / "locks" / f"{digest_of(name.encode())[:16]}.lock"
        mine = (os.path.abspath(path), os.getpid(), threading.get_ident())
        if mine in self._held:
            yield
            return
        with _as_store_error("lock", self.path):
            os.makedirs(path.parent, exist_ok=True)
            handle = lock_file(path)
        holder = path.with_suffix(".json")
        if handle is None:
            raise StoreError(
                f"{self.path} is in use{_lock_holder(holder)}; wait for it to end, or give "
                "another folder"
            )
        self._held.add(mine)
        try:
            about = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "command": command or " ".join(sys.argv[:4]),
                "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
            write_whole(holder, json.dumps(about))
            for folder in (path.parent, self.path / CHECKPOINTS):
                remove_orphans(folder)
            if name == "folder":
                self.recover()
            if not self._announced.exists():
                remove_orphans(self.state)
            yield
        finally:
            self._held.discard(mine)
            with suppress(OSError):
                os.unlink(holder)
            os.close(handle)

    # The registry of own files

    def own(self) -> dict[str, Seal]:
        return {name: seals[-1] for name, seals in self._registry().items()}

    def place(self, name: str) -> Path:
        """Where a file is; names are relative, with slashes, and stay inside the folder."""
        parts = PurePosixPath(name)
        long = any(len(part.encode()) > LONGEST_NAME for part in parts.parts)
        if not parts.parts or parts.is_absolute() or ".." in parts.parts or "\n" in name or long:
            raise StoreError(f"{name[:LONGEST_NAME]!r} cannot be the name of a file in {self.path}")
        return self.path / parts

    def checkpoint(self, name: str) -> Path:
        self.place(name)
        return self.path / CHECKPOINTS / name

    def refuse_to_replace(self, name: str) -> None:
        """Raise StoreError where a file that gangwise did not write would be lost.

        Where the registry has lost entries, the file may be gangwise's own: it is renamed instead.
        """
        path = self.place(name)
        if name in self._registry() or not os.path.lexists(path):
            return
        if not self._lost_entries():
            raise StoreError(
                f"{path} would be replaced, but it is not a file that gangwise wrote "
                "there; move it away, or give another folder"
            )
        with _as_store_error("set aside", path):
            os.replace(path, path.with_name(f"{path.name}.set-aside-{secrets.token_hex(4)}"))
            _flush_folder(path.parent)

    def _lost_entries(self) -> bool:
        """Whether the registry is empty, or has lines that were torn or flipped."""
        path = self.state / "files"
        if not path.exists():
            return False
        with self._registry_lock(), _as_store_error("read", path):
            lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
        return not lines or any(unsealed(line) is None for line in lines)

    def _registry(self) -> dict[str, list[Seal]]:
        """All seals of each file, the last one last.

        A seal is written before its file is in place, so an earlier one may be the true one.
        """
        path = self.state / "files"
        try:
            with path.open("rb") as file:
                self._known.follow(file)
        except FileNotFoundError:
            self._known = _Registry()
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        return self._known.seals

    def _enter(self, entries: Iterable[tuple[str, Seal | None]]) -> None:
        """Append seals to the registry; None strikes a file out."""
        lines = [
            sealed_line({"file": name, "seal": seal and seal._asdict()}) for name, seal in entries
        ]
        path = self.state / "files"
        with self._registry_lock(), _as_store_error("write", path):
            new = not path.exists()
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                _write(handle, b"".join(b"\n" + line for line in lines) + b"\n")  # a torn line ends
                os.fsync(handle)
            finally:
                os.close(handle)
            if new:
                _flush_folder(self.state)

    @contextmanager
    def _registry_lock(self) -> Iterator[None]:
        path = self.state / "files.lock"
        until = time.monotonic() + REGISTRY_TIMEOUT
        with _as_store_error("lock", self.path):
            os.makedirs(self.state, exist_ok=True)
            while (handle := lock_file(path)) is None:
                if time.monotonic() > until:
                    raise StoreError(f"{path} stays locked; see which process uses {self.path}")
                time.sleep(0.01)
        try:
            yield
        finally:
            os.close(handle)

    # Reading and writing

    def write(self, name: str, content: Content, replace: bool = False) -> Path:
        """Write one file, whole and sealed.

        With ``replace``, also in place of a file that is not registered: its name says what it is.

        Raises StoreError when it cannot be written, or would replace a file of somebody else.
        """
        path = self.place(name)
        if not replace:
            self.refuse_to_replace(name)
        data = _bytes(content)
        with _as_store_error("write", path):
            os.makedirs(path.parent, exist_ok=True)
            os.makedirs(self.state, exist_ok=True)
            side = write_side_file(self.state, data)
            try:
                self._enter([(name, Seal.of(data))])
            except BaseException:
                with suppress(OSError):
                    os.unlink(side)
                raise
            _rename_into_place(side, path)
        return path

    def read(self, name: str) -> bytes:
        """A file as it was written.

        Raises StoreError when it is missing, or its digest is not what was written.
        """
        path = self.place(name)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        seals = self._registry().get(name)
        if seals and not any(seal.fits(data) for seal in seals):
            raise StoreError(
                f"{path} is damaged: it is not what was written (SHA-256 {digest_of(data)[:16]}, "
                f"not {seals[-1].sha256[:16]}); run the command that made it again"
            )
        return data

    def read_text(self, name: str) -> str:
        return self.read(name).decode()

    def whole(self, name: str) -> bool:
        """Whether a file is there, registered, and as it was written."""
        if name not in self._registry():
            return False
        try:
            self.read(name)
        except StoreError:
            return False
        return True

    def remove(self, name: str) -> bool:
        """Remove a registered file; returns whether it was there."""
        if name not in self._registry():
            return False
        path, there = self.place(name), True
        with _as_store_error("remove", path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                there = False
            self._enter([(name, None)])
        return there

    @contextmanager
    def publish(self, name: str) -> Iterator[Publication]:
        """Publish files together, in place of the last publication of this name.

        Nothing changes unless all of them are on the disk.

        Raises StoreError when one cannot be written, or would replace a file of somebody else.
        """
        new = Publication(self, name)
        with self.lock():
            try:
                yield new
                if new.staged:
                    self._announce(new)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(self._announced)
                for side, _ in new.staged.values():
                    with suppress(OSError):
                        os.unlink(side)
                raise
            self.recover()

    def _announce(self, new: Publication) -> None:
        """From here on the publication will be completed, by another process if need be."""
        stale = [
            name
            for name, seal in self.own().items()
            if seal.part_of == new.name and name not in new.staged
        ]
        files = {n: {"side": side.name, "seal": s._asdict()} for n, (side, s) in new.staged.items()}
        write_whole(self._announced, sealed_line({"files": files, "stale": stale}))

    @property
    def _announced(self) -> Path:
        return self.state / "publication"

    def recover(self) -> bool:
        """Complete a publication that was cut short, if there was one. Needs the lock."""
        path = self._announced
        if not path.exists():
            return False
        plan = unsealed(path.read_bytes())
        if plan is None:
            raise StoreError(
                f"{path} is damaged while results were being published; remove it, "
                "and run the command again"
            )
        seals = {name: Seal(**about["seal"]) for name, about in plan["files"].items()}
        waiting = {name: self.state / about["side"] for name, about in plan["files"].items()}
        waiting = {n: side for n, side in waiting.items() if _fits(seals[n], side)}
        in_place = {name for name in seals if _fits(seals[name], self.place(name))}
        with _as_store_error("publish", self.path):
            if waiting.keys() | in_place == seals.keys():
                self._enter(seals.items())
                self._complete(waiting, in_place, plan["stale"])
            os.unlink(path)  # otherwise the disk lost some of it, and nothing was replaced yet
        return True

    def _complete(self, waiting: dict[str, Path], in_place: set[str], stale: list[str]) -> None:
        going = [*stale, *(name for name in waiting if name not in in_place)]
        if len(going) > 1:  # first all that is old, then all that is new
            for name in going:
                with suppress(FileNotFoundError):
                    os.unlink(self.place(name))
            for folder in {self.place(name).parent for name in going}:
                if folder.is_dir():
                    _flush_folder(folder)
        for name, side in waiting.items():
            os.makedirs(self.place(name).parent, exist_ok=True)
            os.replace(side, self.place(name))
        for folder in {self.place(name).parent for name in waiting}:
            _flush_folder(folder)
        if stale:
            self._enter([(name, None) for name in stale])

    # What the commands verify and clean do

    def verify(self) -> Verification:
        """Compare every own file with its seal; changes nothing."""
        own = self.own()
        there = [name for name in sorted(own) if self.place(name).exists()]
        whole = [name for name in there if self.whole(name)]
        damaged, missing = sorted(set(there) - set(whole)), sorted(set(own) - set(there))
        unknown = [name for name in self._files() if name not in own]
        return Verification(whole, damaged, missing, unknown, sorted(self._unfinished()))

    def clean(self, everything: bool = False) -> Cleaned:
        """Remove leftovers and damaged files, or all own files and the state."""
        with self.lock():
            found, own = self.verify(), self.own()
            removed = [name for name in (own if everything else found.damaged) if self.remove(name)]
            if not everything and found.missing:
                self._enter([(name, None) for name in found.missing])
            with _as_store_error("clean", self.path):
                for name in self._unfinished():
                    with suppress(FileNotFoundError):
                        os.unlink(self.path / name)
                        removed.append(name)
                if everything:
                    self._remove_state({above for name in own for above in Path(name).parents})
        return Cleaned(removed, found.unknown)

    def _remove_state(self, folders: set[Path]) -> None:
        """Remove ``.gangwise``, and folders of own files that are empty now."""
        for name in ("files", "files.lock", "study", "study.db"):  # the last two of a tuning
            with suppress(FileNotFoundError):
                os.unlink(self.state / name)
        for name in _names(self.state / "locks"):
            os.unlink(self.state / "locks" / name)
        state = {Path(CHECKPOINTS), Path(STATE, "locks"), Path(STATE)}
        for folder in sorted(folders | state | {Path()}, key=lambda p: -len(p.parts)):
            with suppress(OSError):  # not empty, or not there
                os.rmdir(self.path / folder)

    def _files(self) -> list[str]:
        """Names of the files that are no state, sorted, without folders of results inside it."""
        found = []
        for base, folders, files in os.walk(self.path):
            here = Path(base)
            folders[:] = [f for f in folders if f != STATE and not (here / f / STATE).is_dir()]
            found += [(here / name).relative_to(self.path).as_posix() for name in files]
        return sorted(found)

    def _unfinished(self) -> list[str]:
        checkpoints = [f"{CHECKPOINTS}/{name}" for name in _names(self.path / CHECKPOINTS)]
        sides = [f"{STATE}/{name}" for name in _names(self.state) if _orphaned(name)]
        return checkpoints + sides + [f"{STATE}/publication"] * self._announced.exists()


def find_folders(path: Path) -> list[Folder]:
    """A folder of results and those inside it, outermost first; raises StoreError for none."""
    if not path.is_dir():
        raise StoreError(f"{path} is not a folder")
    states = sorted(p.parent for p in path.rglob(STATE) if p.is_dir())
    if not states:
        raise StoreError(
            f"{path} is not a folder of results: it has no {STATE}; if it is a copy, copy "
            f"{STATE} too"
        )
    return [Folder(each) for each in states]


class _Registry:
    def __init__(self) -> None:
        self.seals: dict[str, list[Seal]] = {}
        self._file, self._read = -1, 0

    def follow(self, file: IO[bytes]) -> None:
        about = os.fstat(file.fileno())
        if about.st_ino != self._file or about.st_size < self._read:
            self.seals, self._file, self._read = {}, about.st_ino, 0  # another file
        if about.st_size == self._read:
            return
        file.seek(self._read)
        new = file.read()
        end = new.rfind(b"\n") + 1
        self._read += end
        for line in new[:end].split(b"\n"):
            entry = unsealed(line)
            if entry is None:  # torn or flipped: the file that it names becomes an unknown one
                continue
            if entry["seal"] is None:
                self.seals.pop(entry["file"], None)
            else:
                self.seals.setdefault(entry["file"], []).append(Seal(**entry["seal"]))


# What is done to the disk


def _bytes(content: Content) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes):
        return content
    buffer = io.BytesIO()
    content(buffer)
    return buffer.getvalue()


def _host() -> str:
    return digest_of(socket.gethostname().encode())[:8]


def write_side_file(folder: Path, data: bytes, mode: int = 0o666) -> Path:
    """Write and flush a file beside those of a folder, to be renamed into place."""
    side = folder / f".gangwise-{_host()}-{os.getpid()}-{secrets.token_hex(4)}.part"
    handle = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            _write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(side)
        raise
    return side


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = os.write(handle, left)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        left = left[written:]


def _rename_into_place(side: Path, path: Path) -> None:
    try:
        os.replace(side, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(side)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    if sys.platform == "win32":  # which flushes names by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
            raise
    finally:
        os.close(handle)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _orphaned(name: str) -> bool:
    """Whether a file is unfinished and its writer, on this machine, is dead."""
    match = ORPHAN.fullmatch(name)
    return match is not None and match[1] == _host() and not _alive(int(match[2]))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is someone else's
        return True
    return True


def lock_file(path: Path, mode: int = 0o666) -> int | None:
    """Lock a file for as long as the handle is open; None when another process has it.

    The kernel lets go of it when the process dies.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return None
        raise
    return handle


def _lock_holder(holder: Path) -> str:
    try:
        about = json.loads(holder.read_bytes())
        return (
            f" by process {about['pid']} on {about['host']} ({about['command']}), since "
            f"{about['since']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return " by another process"


def sealed_line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x " % zlib.crc32(text) + text


def unsealed(line: bytes) -> dict[str, Any] | None:
    check, _, text = line.strip().partition(b" ")
    if not text or check != b"%08x" % zlib.crc32(text):
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def _fits(seal: Seal, path: Path) -> bool:
    try:
        return seal.fits(path.read_bytes())
    except FileNotFoundError:
        return False


@contextmanager
def _as_store_error(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "; make room, and run the same again: what is finished is not done twice"
        raise StoreError(f"cannot {what} {path}: {error.strerror or error}{hint}") from error

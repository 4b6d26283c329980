"""Atomic, sealed files and folders of results: everything that gangwise writes goes through here.

- A file is written next to its place, flushed, and renamed, and the folder is flushed: a
  reader, even after a power cut, sees the old file or the new one.
- Files that belong together are published together (:meth:`Folder.publish`). All are on the disk
  before the first is renamed, and what they replace is gone before the first appears, so that a new
  summary never stands beside an old page. The next command on the folder completes a publication
  that was cut short.
- ``.gangwise/`` in the folder holds the registry of its own files with their digests, its locks and
  its checkpoints. A file that is read is compared with its digest (:meth:`Folder.read`). Only
  registered files are ever replaced or removed, and nothing is reached through a link
  (:class:`Tree`): all of this may have come out of an archive.
- A lock (:meth:`Folder.lock`) admits one writer. The kernel releases it when its holder dies; the
  holder's process, host and command are kept with it.
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
import stat
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
REGISTRY = f"{STATE}/files"
ANNOUNCED = f"{STATE}/publication"
LOCKS = f"{STATE}/locks"

Content = bytes | str | Callable[[IO[bytes]], object]
"""What is written: bytes, text (as UTF-8), or a function that writes to a binary file."""

ORPHAN = re.compile(r"\.gangwise-([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.part")
"""An unfinished file: host, process and a random number."""

LONGEST_NAME = 240  # longest file name, in bytes; systems take 255
REGISTRY_TIMEOUT = 60.0  # seconds to wait for another process that writes a line into the registry


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_whole(path: Path | str, content: Content, mode: int = 0o666) -> None:
    """Write one file, all or nothing: next to its place, flushed, renamed.

    Raises StoreError when it cannot be written; what was there before is still there.
    """
    data = _bytes(content)
    with as_store_error("write", Path(path)):
        tree, name = _rooted(Path(path))
        side = write_side_file(tree, _above(name), data, mode)
        with _none_left(tree, side):
            tree.replace(side, name)
        tree.flush(_above(name))


def read_whole(path: Path | str) -> bytes:
    """The content of a regular file; raises StoreError where it cannot be read."""
    with as_store_error("read", Path(path)):
        tree, name = _rooted(Path(path))
        return tree.read(name)


def _rooted(path: Path) -> tuple[Tree, str]:
    """Folder that a user named, and the name below it; of a state, the folder of results."""
    above = path.parts.index(STATE) if STATE in path.parts[:-1] else len(path.parts) - 1
    return Tree(Path(*path.parts[:above])), "/".join(path.parts[above:])


def _remove_orphans(tree: Tree, folder: str) -> None:
    """Remove unfinished files of processes of this machine that are dead."""
    with as_store_error("clean", tree.path / folder):
        for name in tree.names(folder):
            if _orphaned(name):
                tree.drop(f"{folder}/{name}")


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
    """Verification of a folder of results; names are relative to it.

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
    """Result of :meth:`Folder.clean`: files removed, and unknown ones left; relative names."""

    removed: list[str]
    left: list[str]


@dataclass
class Publication:
    folder: Folder
    name: str
    staged: dict[str, tuple[str, Seal]] = field(default_factory=dict)

    def write(self, name: str, content: Content) -> str:
        """Stage a file; returns its digest."""
        data = _bytes(content)
        self.folder.refuse_to_replace(name)
        with as_store_error("write", self.folder.place(name)):
            # In the state's folder: names of results must not appear before all of them can.
            side = write_side_file(self.folder.tree, STATE, data)
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
        self.tree = Tree(self.path)
        self._known = _Registry()

    # Locks

    @contextmanager
    def lock(self, name: str = "folder", command: str = "") -> Iterator[None]:
        """Keep other writers out; the thread that holds the lock may take it again.

        Its first holder completes a publication that was cut short, and removes unfinished
        files of dead processes. ``name`` is ``folder`` for all of it, or a file that is written
        into it; those who find it locked read ``command``.

        Raises StoreError when another process holds it; names process, host and command.
        """
        stem = f"{LOCKS}/{digest_of(name.encode())[:16]}"
        # By thread as well: two threads of a process are two writers.
        mine = (os.path.abspath(self.path / stem), os.getpid(), threading.get_ident())
        # Taken again by its holder: through a second handle the lock would look like another's.
        if mine in self._held:
            yield
            return
        with as_store_error("lock", self.path):
            handle = _locked(self.tree.open(f"{stem}.lock", os.O_RDWR | os.O_CREAT))
        if handle is None:
            holder = self._lock_holder(f"{stem}.json")
            reason = f"is in use{holder}; wait for it to end, or give another folder"
            raise StoreError(f"{self.path} {reason}")
        self._held.add(mine)
        try:
            about = {"pid": os.getpid(), "host": socket.gethostname()}
            about["command"] = command or " ".join(sys.argv[:4])
            about["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
            write_whole(self.path / f"{stem}.json", json.dumps(about))
            for folder in (LOCKS, CHECKPOINTS):
                _remove_orphans(self.tree, folder)
            if name == "folder":
                self.recover()
            if self.tree.status(ANNOUNCED) is None:
                _remove_orphans(self.tree, STATE)
            yield
        finally:
            self._held.discard(mine)
            with suppress(OSError, StoreError):
                self.tree.unlink(f"{stem}.json")
            os.close(handle)

    def _lock_holder(self, name: str) -> str:
        try:
            form = " by process {pid} on {host} ({command}), since {since}"
            return form.format(**json.loads(self.tree.read(name)))
        except (OSError, StoreError, ValueError, KeyError, TypeError):
            return " by another process"

    # The registry of own files

    def own(self) -> dict[str, Seal]:
        return {name: seals[-1] for name, seals in self._registry().items()}

    def place(self, name: str) -> Path:
        """Path of a file; names are relative, with slashes, and stay inside the folder."""
        if not _is_name(name):
            raise StoreError(f"{name[:LONGEST_NAME]!r} cannot be the name of a file in {self.path}")
        return self.path / name

    def checkpoint(self, name: str) -> Path:
        self.place(name)
        return self.path / CHECKPOINTS / name

    def forget_checkpoint(self, name: str) -> None:
        with as_store_error("remove", self.checkpoint(name)):
            self.tree.drop(f"{CHECKPOINTS}/{name}")

    def is_there(self, name: str) -> bool:
        """Whether there is anything by this name: a file, or a link, which is never followed."""
        self.place(name)
        return self.tree.status(name) is not None

    def refuse_to_replace(self, name: str) -> None:
        """Raise StoreError where a file that gangwise did not write would be lost.

        Where the registry has lost entries, the file may be gangwise's own: it is renamed instead.
        """
        path = self.place(name)
        if name in self._registry() or not self.is_there(name):
            return
        if not self._lost_entries():
            reason = "would be replaced, but it is not a file that gangwise wrote there"
            raise StoreError(f"{path} {reason}; move it away, or give another folder")
        with as_store_error("set aside", path):
            self.tree.replace(name, f"{name}.set-aside-{secrets.token_hex(4)}")
            self.tree.flush(_above(name))

    def _lost_entries(self) -> bool:
        """Whether the registry is empty, or has lines that were torn or flipped."""
        if self.tree.status(REGISTRY) is None:
            return False
        with self._registry_lock(), as_store_error("read", self.path / REGISTRY):
            lines = [line for line in self.tree.read(REGISTRY).split(b"\n") if line.strip()]
        return not lines or any(_entry(line) is None for line in lines)

    def _registry(self) -> dict[str, list[Seal]]:
        """All seals of each file, the last one last.

        A seal is written before its file is in place, so an earlier one may be the true one.
        """
        with as_store_error("read", self.path / REGISTRY):
            try:
                with os.fdopen(self.tree.open(REGISTRY), "rb") as file:
                    self._known.follow(file)
            except FileNotFoundError:
                self._known = _Registry()
        return self._known.seals

    def _enter(self, entries: Iterable[tuple[str, Seal | None]]) -> None:
        """Append seals to the registry; None strikes a file out."""
        lines = [
            sealed_line({"file": name, "seal": seal and seal._asdict()}) for name, seal in entries
        ]
        # Lines are appended under a lock of their own: runs of one study write at the same time.
        with self._registry_lock(), as_store_error("write", self.path / REGISTRY):
            is_new = self.tree.status(REGISTRY) is None
            handle = self.tree.open(REGISTRY, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            _write(handle, b"".join(b"\n" + line for line in lines) + b"\n")  # a torn line ends
            if is_new:
                self.tree.flush(STATE)

    @contextmanager
    def _registry_lock(self) -> Iterator[None]:
        name = f"{REGISTRY}.lock"
        until = time.monotonic() + REGISTRY_TIMEOUT
        with as_store_error("lock", self.path):
            while (handle := _locked(self.tree.open(name, os.O_RDWR | os.O_CREAT))) is None:
                if time.monotonic() > until:
                    hint = f"stays locked; see which process uses {self.path}"
                    raise StoreError(f"{self.path / name} {hint}")
                time.sleep(0.01)
        with os.fdopen(handle, "rb"):
            yield

    # Reading and writing

    def write(self, name: str, content: Content, replace: bool = False) -> Path:
        """Write one file, whole and sealed.

        With ``replace``, also in place of a file that is not registered: its name says what it is.

        Raises StoreError when it cannot be written, or would replace a file that gangwise did not
        write.
        """
        path = self.place(name)
        if not replace:
            self.refuse_to_replace(name)
        with as_store_error("write", path):
            side = write_side_file(self.tree, STATE, data := _bytes(content))
            with _none_left(self.tree, side):
                self._enter([(name, Seal.of(data))])
                self.tree.replace(side, name)
            self.tree.flush(_above(name))
        return path

    def read(self, name: str) -> bytes:
        """A file as it was written.

        Raises StoreError when it is missing, or its digest is not what was written.
        """
        with as_store_error("read", path := self.place(name)):
            data = self.tree.read(name)
        # After the file: its seal is written before it, so that a new file finds its seal.
        seals = self._registry().get(name)
        if seals and not any(seal.fits(data) for seal in seals):
            digests = f"SHA-256 {digest_of(data)[:16]}, not {seals[-1].sha256[:16]}"
            reason = f"it is not what was written ({digests})"
            raise StoreError(f"{path} is damaged: {reason}; run the command that made it again")
        return data

    def whole(self, name: str) -> bool:
        """Whether a file is there, registered, and as it was written."""
        with suppress(StoreError):
            return name in self._registry() and isinstance(self.read(name), bytes)
        return False

    def remove(self, name: str) -> bool:
        """Remove a registered file; returns whether it was there."""
        if name not in self._registry():
            return False
        with as_store_error("remove", self.place(name)):
            existed = self.tree.drop(name)
            self._enter([(name, None)])
        return existed

    @contextmanager
    def publish(self, name: str) -> Iterator[Publication]:
        """Publish files together, in place of the last publication of this name.

        Nothing changes unless all of them are on the disk.

        Raises StoreError when one cannot be written, or would replace a file that gangwise did not
        write.
        """
        publication = Publication(self, name)
        with self.lock():
            try:
                yield publication
                if publication.staged:
                    self._announce(publication)
            except BaseException:
                self.tree.drop(ANNOUNCED)
                for side, _ in publication.staged.values():
                    with suppress(OSError):
                        self.tree.unlink(side)
                raise
            self.recover()

    def _announce(self, new: Publication) -> None:
        """Announce a publication: from here on it will be completed, by any process."""
        # What the last publication of this name had and the new one lacks would stand beside it as
        # if it belonged.
        own = {name for name, seal in self.own().items() if seal.part_of == new.name}
        stale = sorted(own - new.staged.keys())
        files = {
            name: {"side": PurePosixPath(side).name, "seal": seal._asdict()}
            for name, (side, seal) in new.staged.items()
        }
        write_whole(self.path / ANNOUNCED, sealed_line({"files": files, "stale": stale}))

    def recover(self) -> bool:
        """Complete a publication that was cut short, if there was one. Needs the lock."""
        with as_store_error("publish", self.path):
            try:
                data = self.tree.read(ANNOUNCED)
            except FileNotFoundError:
                return False
            if (plan := _plan(data)) is None:
                reason = "is damaged while results were being published"
                todo = "remove it, and run the command again"
                raise StoreError(f"{self.path / ANNOUNCED} {reason}; {todo}")
            sides, seals, stale = plan
            waiting = {n: side for n, side in sides.items() if self._fits(seals[n], side)}
            in_place = {name for name in seals if self._fits(seals[name], name)}
            # Every file is there, in its place or next to it: the publication is completed.
            # Otherwise the disk lost some before any was renamed, and the old files stay.
            if waiting.keys() | in_place == seals.keys():
                for name in waiting.keys() - in_place:
                    self.refuse_to_replace(name)
                # The seals are written first: a file that is in place and has no seal would be a
                # stranger's.
                self._enter(seals.items())
                self._complete(waiting, in_place, [name for name in stale if name in self.own()])
            self.tree.unlink(ANNOUNCED)  # else the disk lost some, and nothing was replaced yet
        return True

    def _fits(self, seal: Seal, name: str) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            return seal.fits(self.tree.read(name))
        return False

    def _complete(self, waiting: dict[str, str], in_place: set[str], stale: list[str]) -> None:
        going = [*stale, *(name for name in waiting if name not in in_place)]
        if len(going) > 1:  # first all that is old, then all that is new
            for name in going:
                self.tree.drop(name)
            for folder in {_above(name) for name in going}:
                with suppress(FileNotFoundError):
                    self.tree.flush(folder)
        for name, side in waiting.items():
            self.tree.replace(side, name)
        for folder in {_above(name) for name in waiting}:
            self.tree.flush(folder)
        if stale:
            self._enter([(name, None) for name in stale])

    # What the commands verify and clean do

    def verify(self) -> Verification:
        """Compare every own file with its seal; changes nothing."""
        own = self.own()
        missing = [name for name in sorted(own) if not self.is_there(name)]
        intact = [name for name in sorted(own) if self.whole(name)]
        damaged = sorted(own.keys() - intact - set(missing))
        unknown = [name for name in self._files() if name not in own]
        return Verification(intact, damaged, missing, unknown, sorted(self._unfinished()))

    def clean(self, everything: bool = False) -> Cleaned:
        """Remove leftovers and damaged files, or all own files and the state."""
        with self.lock():
            state, own = self.verify(), self.own()
            removed = [name for name in (own if everything else state.damaged) if self.remove(name)]
            if not everything and state.missing:
                self._enter([(name, None) for name in state.missing])
            with as_store_error("clean", self.path):
                removed += filter(self.tree.drop, self._unfinished())
                if everything:
                    self._remove_state({above for name in own for above in Path(name).parents})
        return Cleaned(removed, state.unknown)

    def _remove_state(self, folders: set[Path]) -> None:
        """Remove ``.gangwise``, and folders of own files that are empty now."""
        names = [REGISTRY, f"{REGISTRY}.lock", f"{STATE}/study", f"{STATE}/study.db"]  # of a tuning
        for name in names + self._inside(LOCKS):
            self.tree.drop(name)
        folders |= {Path(CHECKPOINTS), Path(LOCKS), Path(STATE)}
        for folder in sorted(folders - {Path()}, key=lambda p: -len(p.parts)):
            with suppress(OSError):  # not empty, or not there
                self.tree.rmdir(folder.as_posix())
        with suppress(OSError):
            os.rmdir(self.path)

    def _files(self) -> list[str]:
        """Names of the files that are no state, sorted, without folders of results inside it."""
        names = []
        for base, folders, files in os.walk(self.path):
            place = Path(base)
            links = [f for f in folders if os.path.islink(place / f)]
            folders[:] = [f for f in folders if f != STATE and not (place / f / STATE).is_dir()]
            names += [(place / name).relative_to(self.path).as_posix() for name in files + links]
        return sorted(names)

    def _inside(self, folder: str) -> list[str]:
        """Files in a folder of the state; folders there are nothing of gangwise's."""
        names = [f"{folder}/{name}" for name in self.tree.names(folder)]
        return [n for n in names if (at := self.tree.status(n)) and not stat.S_ISDIR(at.st_mode)]

    def _unfinished(self) -> list[str]:
        sides = [name for name in self._inside(STATE) if _orphaned(PurePosixPath(name).name)]
        announced = [ANNOUNCED] * (self.tree.status(ANNOUNCED) is not None)
        return self._inside(CHECKPOINTS) + sides + announced


def find_folders(path: Path) -> list[Folder]:
    """A folder of results and those inside it, outermost first; raises StoreError for none.

    Folders behind links are not looked for.
    """
    if not path.is_dir():
        raise StoreError(f"{path} is not a folder")
    # Links are not followed by os.walk, so that no folder is found twice.
    states = sorted(Path(base) for base, folders, _ in os.walk(path) if STATE in folders)
    if not states:
        reason = f"is not a folder of results: it has no {STATE}"
        raise StoreError(f"{path} {reason}; if it is a copy, copy {STATE} too")
    return [Folder(state) for state in states]


def _above(name: str) -> str:
    return str(PurePosixPath(name).parent)


def _is_name(name: object) -> bool:
    """Whether a name is relative and stays inside the folder, and files can be called so."""
    if not isinstance(name, str) or "\n" in name or "\0" in name:
        return False
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        return False
    with suppress(UnicodeEncodeError):  # half of a surrogate
        return all(len(os.fsencode(part)) <= LONGEST_NAME for part in path.parts)
    return False


def _seal(value: object) -> Seal | None:
    """A seal out of JSON; None where it is none."""
    if not isinstance(value, dict) or not {"sha256", "size"} <= value.keys() <= set(Seal._fields):
        return None
    seal = Seal(**value)
    fits = isinstance(seal.sha256, str) and isinstance(seal.size, int)
    return seal if fits and isinstance(seal.part_of, str) else None


def _entry(line: bytes) -> tuple[str, Seal | None] | None:
    """A line of the registry: a file, and its seal or None; None where it is no such line."""
    entry = unsealed(line)
    if entry is None or not _is_name(name := entry.get("file")):
        return None
    seal = _seal(entry.get("seal"))
    return (str(name), seal) if seal or entry.get("seal", 0) is None else None


def _plan(line: bytes) -> tuple[dict[str, str], dict[str, Seal], list[str]] | None:
    """An announced publication: the side file and the seal of each file, and files that go.

    None where it is damaged, or names what no publication has staged.
    """
    plan = unsealed(line) or {}
    files, stale = plan.get("files"), plan.get("stale")
    if not isinstance(files, dict) or not isinstance(stale, list):
        return None
    sides, seals = dict[str, str](), dict[str, Seal]()
    for name, about in files.items():
        about = about if isinstance(about, dict) else {}
        side, seal = str(about.get("side")), _seal(about.get("seal"))
        if seal is None or not ORPHAN.fullmatch(side) or not _is_name(name):
            return None
        sides[name], seals[name] = f"{STATE}/{side}", seal
    return (sides, seals, stale) if all(map(_is_name, stale)) else None


class _Registry:
    def __init__(self) -> None:
        self.seals: dict[str, list[Seal]] = {}
        self._file, self._read = -1, 0

    def follow(self, file: IO[bytes]) -> None:
        about = os.fstat(file.fileno())
        # The registry only grows; one that is shorter, or another file, is read from its beginning.
        if about.st_ino != self._file or about.st_size < self._read:
            self.seals, self._file, self._read = {}, about.st_ino, 0  # another file
        if about.st_size == self._read:
            return
        file.seek(self._read)
        data = file.read()
        end = data.rfind(b"\n") + 1
        # What follows the last line break is being written by another process, and is read next
        # time.
        self._read += end
        for line in data[:end].split(b"\n"):
            entry = _entry(line)
            if entry is None:  # torn or flipped: the file that it names becomes an unknown one
                continue
            name, seal = entry
            if seal is None:
                self.seals.pop(name, None)
            else:
                self.seals.setdefault(name, []).append(seal)


# What is done to the disk


def _bytes(content: Content) -> bytes:
    if isinstance(content, str | bytes):
        return content.encode() if isinstance(content, str) else content
    buffer = io.BytesIO()
    content(buffer)
    return buffer.getvalue()


def _host() -> str:
    return digest_of(socket.gethostname().encode())[:8]


def write_side_file(tree: Tree, folder: str, data: bytes, mode: int = 0o666) -> str:
    """Write and flush a file next to those of a folder, to be renamed into place; its name."""
    side = f"{folder}/.gangwise-{_host()}-{os.getpid()}-{secrets.token_hex(4)}.part"
    handle = tree.open(side, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with _none_left(tree, side):
        _write(handle, data)
    return side


def _write(handle: int, data: bytes) -> None:
    """Write all of it, flush, and close the file."""
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _none_left(tree: Tree, side: str) -> Iterator[None]:
    """Remove a side file where it does not come into its place."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            tree.unlink(side)
        raise


def _orphaned(name: str) -> bool:
    """Whether a file is unfinished and its writer, on this machine, is dead."""
    match = ORPHAN.fullmatch(name)
    # Only a process of this machine can be asked for by its number.
    if match is None or match[1] != _host():
        return False
    try:
        # Signal 0 is sent to no process; it only asks whether there is one.
        os.kill(int(match[2]), 0)
    except (OSError, OverflowError) as error:
        return not isinstance(error, PermissionError)  # that is someone else's
    return False


def lock_file(path: Path, mode: int = 0o666) -> int | None:
    """Lock a file for as long as the handle is open; None when another process has it.

    The kernel lets go of it when the process dies.
    """
    return _locked(Tree(path.parent).open(path.name, os.O_RDWR | os.O_CREAT, mode))


def _locked(handle: int) -> int | None:
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


def sealed_line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x " % zlib.crc32(text) + text


def unsealed(line: bytes) -> dict[str, Any] | None:
    check, _, text = line.strip().partition(b" ")
    if not text or check != b"%08x" % zlib.crc32(text):
        return None
    with suppress(ValueError, RecursionError):
        return entry if isinstance(entry := json.loads(text), dict) else None
    return None


@contextmanager
def as_store_error(what: str, path: Path) -> Iterator[None]:
    """A StoreError for what the system cannot do with a path."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; make room, and run the same again: what is finished is not done twice" * full
        raise StoreError(f"cannot {what} {path}: {error.strerror or error}{hint}") from error


@contextmanager
def torn(path: Path, remedy: str, *more: type[Exception]) -> Iterator[None]:
    """A StoreError, with what mends it, for a file whose content is not what it should be."""
    faults = (OSError, ValueError, LookupError, TypeError, AttributeError)
    try:
        yield
    except faults + more as error:
        text = " ".join(str(error).split()[:15])  # those of pydantic are long
        raise StoreError(f"cannot read {path}: {text}; {remedy}") from error


# Folders reached by handle: nothing below a folder is read, written or removed through a link. The
# user names a folder; what lies below it is opened part by part from the handle of the folder above
# (``openat``), without following links (``O_NOFOLLOW``) and without waiting (``O_NONBLOCK``), and
# counts only if it is a folder or a regular file. A file that is written in place must have one
# name: a second one (a hard link) may lie outside. Everything else is refused by name.


BY_HANDLE = os.open in os.supports_dir_fd  # not on Windows, where each part is looked at instead
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | _SAFE

Place = tuple[int | None, str]
"""A name and the handle of its folder; without handles, None and the whole path."""


class Tree:
    """A folder and what lies below it.

    Names are relative, with slashes. Raises StoreError for what is a link, or neither a folder nor
    a regular file; and OSError as the functions of :mod:`os` do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     os.symlink("/etc", f"{path}/runs")
    ...     Tree(path).read("runs/passwd")
    Traceback (most recent call last):
    gangwise.core.errors.StoreError: .../runs is a link; ... remove it, or put ... in its place
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)

    @contextmanager
    def _folder(self, name: str, make: bool = False) -> Iterator[Place]:
        """The place of a folder below; with ``make``, it and those above it are made."""
        if make and not os.path.isdir(self.path):
            if os.path.lexists(self.path):
                raise StoreError(f"{self.path} is no folder; give a folder, or another name")
            os.makedirs(self.path, exist_ok=True)
        parts = PurePosixPath(name).parts
        if ".." in parts or PurePosixPath(name).is_absolute():
            raise StoreError(f"{name!r} does not lie in {self.path}")
        if not BY_HANDLE:
            path = self.path
            for part in parts:
                path /= part
                self._refuse_link(path)
                if make:
                    path.mkdir(exist_ok=True)
            yield None, str(path)
            return
        handle, path = os.open(self.path, os.O_RDONLY | _FOLDER & ~os.O_NOFOLLOW), self.path
        try:
            for part in parts:
                path /= part
                try:
                    below = self._below(handle, part, make)
                except OSError:
                    self._refuse_link(path)
                    raise
                os.close(handle)
                handle = below
            yield handle, ""
        finally:
            os.close(handle)

    def _below(self, handle: int, part: str, make: bool) -> int:
        try:
            return os.open(part, os.O_RDONLY | _FOLDER, dir_fd=handle)
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(part, dir_fd=handle)
        return os.open(part, os.O_RDONLY | _FOLDER, dir_fd=handle)

    @contextmanager
    def _place(self, name: str, make: bool = False) -> Iterator[Place]:
        place = PurePosixPath(name)
        if not place.name or place.name == "..":
            raise StoreError(f"{name!r} does not lie in {self.path}")
        with self._folder(str(place.parent), make) as (handle, path):
            yield handle, place.name if BY_HANDLE else os.path.join(path, place.name)

    def _refuse_link(self, path: Path) -> None:
        if os.path.islink(path):
            raise StoreError(
                f"{path} is a link; gangwise follows none below {self.path}, for it would read or "
                "change what lies elsewhere: remove it, or put what it points to in its place"
            )

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
        """A handle of a regular file; one that is opened for writing has no second name."""
        path = self.path / name
        with self._place(name, make=bool(flags & os.O_CREAT)) as (folder, base):
            try:
                handle = os.open(base, flags | _SAFE, mode, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.EMLINK):
                    self._refuse_link(path)
                if error.errno == errno.ENXIO:  # a FIFO without a reader, a socket
                    raise StoreError(f"{path} is not a regular file; remove it") from None
                raise
        try:
            self._refuse_strange(path, os.fstat(handle), flags & (os.O_WRONLY | os.O_RDWR) != 0)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _refuse_strange(self, path: Path, about: os.stat_result, written: bool) -> None:
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(about.st_mode):
            raise StoreError(f"{path} is not a regular file; remove it")
        if written and about.st_nlink > 1:
            raise StoreError(
                f"{path} has {about.st_nlink} names (hard links), and writing would change the "
                "file under all of them: put a copy in its place"
            )

    def check(self, name: str) -> None:
        """Raise StoreError for what :meth:`open` refuses to write, of a file that others open."""
        if (about := self.status(name)) is not None:
            self._refuse_link(self.path / name)
            self._refuse_strange(self.path / name, about, written=True)

    def check_folder(self, name: str) -> None:
        """Raise StoreError where a folder below is a link."""
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(name):
            pass

    def read(self, name: str) -> bytes:
        with os.fdopen(self.open(name), "rb") as file:
            return file.read()

    def status(self, name: str) -> os.stat_result | None:
        """Status of a file, folder or link (never of its target); None where there is nothing."""
        try:
            with self._place(name) as (folder, base):
                return os.stat(base, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, name: str = "") -> list[str]:
        """Names in a folder, sorted; none where it is no folder."""
        try:
            with self._folder(name) as (handle, path):
                return sorted(os.listdir(path if handle is None else handle))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself; raises OSError for a folder."""
        with self._place(name) as (folder, base):
            os.unlink(base, dir_fd=folder)

    def drop(self, name: str) -> bool:
        """Remove a file, or a link itself; returns whether it was there."""
        try:
            self.unlink(name)
        except FileNotFoundError:
            return False
        return True

    def rmdir(self, name: str) -> None:
        with self._place(name) as (folder, base):
            os.rmdir(base, dir_fd=folder)

    def replace(self, name: str, to: str) -> None:
        """Rename; what stood there is gone, a link as well."""
        with self._place(name) as (folder, base), self._place(to, make=True) as (above, goal):
            os.replace(base, goal, src_dir_fd=folder, dst_dir_fd=above)

    def flush(self, name: str = "") -> None:
        """Bring the names in a folder to the disk."""
        if sys.platform == "win32":  # which flushes names by itself
            return
        with self._folder(name) as (handle, _):
            try:
                os.fsync(handle or 0)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot
                    raise

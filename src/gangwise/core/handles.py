"""Folders reached by handle: nothing below a folder is read, written or removed through a link.

A folder of results, or of a service, may come out of an archive, and archives keep links. The user
names a folder; what lies below it is opened part by part from the handle of the folder above
(``openat``), without following links (``O_NOFOLLOW``) and without waiting (``O_NONBLOCK``), and
counts only if it is a folder or a regular file. A file that is written in place must have one name:
a second one (a hard link) may lie outside. Everything else is refused by name.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from gangwise.core.errors import StoreError

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
        """What a name stands for, a link for itself; None where there is nothing."""
        try:
            with self._place(name) as (folder, base):
                return os.stat(base, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, name: str = "") -> list[str]:
        """What is in a folder, sorted; nothing where it is no folder."""
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

"""A file system that fails: the calls of gangwise.core.files, counted, and one of them spoilt.

Everything that gangwise writes goes through a handful of functions of :mod:`os` in that module.
They are replaced by functions that count, and that do something else at one number:

- ``no space``, ``I/O error``: the call fails, later ones work.
- ``killed``: nothing is done from that call on, not even tidying up, as after SIGKILL.
- ``torn``: as killed, in the middle of a write: half of the data is on the disk.
- ``power cut``: as killed, and what was not flushed is lost: files are empty, names are forgotten.
- ``lost flush``: flushes of files do nothing from that call on; then the power is cut at the end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gangwise.core import files

FAULTS = ("no space", "I/O error", "killed", "torn", "power cut", "lost flush")
COUNTED = ("open", "write", "fsync", "replace", "unlink", "makedirs", "mkdir")


class Killed(BaseException):
    """The process is no more."""


class FailingOs:
    """:mod:`os` as the file layer sees it."""

    def __init__(self, fault: str = "", at: int = -1):
        self.fault, self.at = fault, at
        self.calls: list[str] = []
        self.dead = False
        self.unflushed: dict[int, Path] = {}  # by inode
        self.opened: dict[int, Path] = {}
        self.names: list[tuple[Path, Path]] = []  # renames that no flush of a folder has secured

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in (*COUNTED, "close"):
            return real

        def call(*given: Any, **named: Any) -> Any:
            return self._call(name, real, *given, **named)

        return call

    def _call(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name == "open" and given[1] & os.O_DIRECTORY and not self.dead:
            handle: int = real(*given, **named)  # as part of reaching a file, and not counted
            return handle
        if self.dead:
            if name == "close":
                return real(*given)
            raise Killed
        if name == "close":
            self.opened.pop(given[0], None)
            return real(*given)
        number = len(self.calls)
        self.calls.append(name)
        if number == self.at:
            if self.fault == "no space":
                raise OSError(errno.ENOSPC, "No space left on device")
            if self.fault == "I/O error":
                raise OSError(errno.EIO, "Input/output error")
            if self.fault == "torn" and name == "write":
                real(given[0], bytes(given[1])[: len(given[1]) // 2])
            if self.fault != "lost flush":
                self.dead = True
                raise Killed
        if name == "fsync":  # which takes long, and what it is for is played here
            if self.fault != "lost flush" or number < self.at:
                self.unflushed.pop(os.fstat(given[0]).st_ino, None)
            return None
        found = real(*given, **named)
        self._remember(name, found, given, named)
        return found

    def _remember(self, name: str, found: Any, given: tuple[Any, ...], named: Any) -> None:
        if name == "open":
            self.opened[found] = _path(found)
        elif name == "write":
            self.unflushed[os.fstat(given[0]).st_ino] = self.opened[given[0]]
        elif name == "replace":
            path = _path(named["dst_dir_fd"]) / given[1]
            if os.stat(path).st_ino in self.unflushed:
                self.unflushed[os.stat(path).st_ino] = path

    def cut_the_power(self) -> None:
        """What was not flushed is gone: files written since are empty."""
        for inode, path in self.unflushed.items():
            if path.exists() and os.stat(path).st_ino == inode:
                data = path.read_bytes()
                # An appended file keeps what was flushed; its last line is torn.
                path.write_bytes(
                    data[: data[:-1].rfind(b"\n") + 5] if path.name == "files" else b""
                )


def _path(handle: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{handle}"))


@contextmanager
def failing(fault: str = "", at: int = -1) -> Iterator[FailingOs]:
    """Let the calls of the file layer fail; a process that is killed ends the block silently."""
    disk = FailingOs(fault, at)
    held = set(files.Folder._held)
    files.os = disk
    try:
        yield disk
    except Killed:
        pass
    finally:
        files.os = os
        files.Folder._held.clear()
        files.Folder._held.update(held)
        for handle in list(disk.opened):  # the kernel closes the files of a dead process
            with suppress(OSError):
                os.close(handle)
        if fault in ("power cut", "lost flush"):
            disk.cut_the_power()


def calls_of(work: Callable[[], Any]) -> list[str]:
    """The calls that a piece of work makes when nothing fails."""
    with failing() as disk:
        work()
    return disk.calls

"""Compiled inner loops.

Every kernel is a module-level function, so that its machine code is cached on disk: the first use
on a machine compiles, later processes load. Kernels allocate nothing; callers pass work space.
Each has a plain twin in ``tests/reference``.

Compiled code on disk, safe under several processes.

numba numbers the files of a kernel's signatures and enters a number before it writes the file. Two
processes that compile two signatures at once may take the same number, and one that looks between
the two steps may load what an older version left under it: code of another signature. Here a file
is named after all that it depends on, and is written first. Of two processes that enter theirs at
once, one entry may be lost; that signature is compiled again some day. Files end with their
digest; a damaged one counts as absent.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TypeVar, cast

import numba
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher


def _as_bytes(stamp: Any) -> bytes:
    """What numba knows a source file by: a digest, or in older versions its time and size."""
    return stamp if isinstance(stamp, bytes) else repr(stamp).encode()


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel.

    numba takes compiled code for fresh while the text of the kernel's own file is unchanged. Here
    the files of the kernels that it calls, which are compiled into it, count as well.
    """

    @classmethod
    def of(cls, dispatcher: Any) -> KernelFiles:
        """Instead of the files that numba gave a kernel."""
        files = cls.__new__(cls)
        vars(files).update(vars(dispatcher._cache._cache_file))
        called = {
            _as_bytes(files._source_stamp),
            repr(sorted(dispatcher.targetoptions.items())).encode(),
        }
        for other in dispatcher.py_func.__globals__.values():
            if isinstance(other, Dispatcher):
                cache = vars(other)["_cache"]
                called.add(_as_bytes(getattr(cache, "_cache_file", files)._source_stamp))
        files._source_stamp = hashlib.sha256(b"".join(sorted(called))).digest()
        return files

    def save(self, key: Any, data: Any) -> None:
        """Write compiled code, then enter it; without room on the disk, do without."""
        what = repr((self._version, self._source_stamp, key))
        name = self._data_name_pattern.format(number=0).removesuffix(".0.nbc")
        name = f"{name}.{hashlib.sha256(what.encode()).hexdigest()[:16]}.nbc"
        files: Any = self
        with suppress(OSError):
            files._save_data(name, data)
            overloads = files._load_index()
            overloads[key] = name
            files._save_index(overloads)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[IO[bytes]]:
        """What is written ends with its digest: damaged code would crash the process."""
        plain: Any = super()
        buffer = io.BytesIO()
        with plain._open_for_write(filepath) as file:
            yield buffer
            data = buffer.getvalue()
            file.write(data + hashlib.sha256(data).digest())

    def _load_index(self) -> dict[Any, str]:
        """Names of data by key; nothing where the file is damaged, or of another source."""
        data = _whole(self._index_path)
        if data is None:
            return {}
        stream = io.BytesIO(data)
        if pickle.load(stream) != self._version:
            return {}
        stamp, overloads = pickle.load(stream)
        found: dict[Any, str] = overloads if stamp == self._source_stamp else {}
        return found

    def _load_data(self, name: str) -> Any:
        files: Any = self
        data = _whole(files._data_path(name))
        return None if data is None else pickle.loads(data)


def _whole(path: str) -> bytes | None:
    """The content of a file that ends with its digest; None where it is not what was written."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    data, digest = content[:-32], content[-32:]
    return data if hashlib.sha256(data).digest() == digest else None


F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function on first use and cache it on disk."""
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    compiled._cache._cache_file = KernelFiles.of(compiled)
    return cast(F, compiled)


def is_compiled(function: Callable[..., object]) -> bool:
    """Whether a kernel's machine code is there, in this process or on disk."""
    compiled: Any = function
    return bool(compiled.overloads or compiled._cache._cache_file._load_index())


def lean_kernel(function: F) -> F:
    """A kernel that counts no references to arrays: for those that pass many, and make none.

    Counting costs a locked instruction for every array at every call; here an array of a caller
    outlives the call, so that there is nothing to count. A lean kernel must not allocate.
    """
    return _lean(function, inlined=False)


def inlined_kernel(function: F) -> F:
    """A lean kernel that becomes a part of its callers: for what is called all the time."""
    return _lean(function, inlined=True)


def _lean(function: F, inlined: bool) -> F:
    njit: Any = numba.njit  # its types know nothing of _nrt
    compiled: Any = njit(
        cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=inlined
    )(function)
    compiled._cache._cache_file = KernelFiles.of(compiled)
    return cast(F, compiled)


def on_compile(tell: Callable[[str], None]) -> None:
    """Call ``tell`` with a kernel's name whenever one is compiled rather than loaded."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            tell(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            return

    listen: Callable[..., None] = event.register
    listen("numba:compile", Listener())

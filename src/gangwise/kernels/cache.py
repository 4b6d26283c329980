"""Compiled code on disk, safe under several processes.

numba numbers the files of a kernel's signatures and enters a number before it writes the file. Two
processes that compile two signatures at once may take the same number, and one that looks between
the two steps may load what an older version left under it: code of another signature. Here a file
is named after all that it depends on, and is written first. Of two processes that enter theirs at
once, one entry may be lost; that signature is compiled again some day.
"""

from __future__ import annotations

import hashlib
from typing import Any

from numba.core.caching import IndexDataCacheFile

__all__ = ["KernelFiles"]


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel."""

    @classmethod
    def of(cls, dispatcher: Any) -> KernelFiles:
        """Instead of the files that numba gave a kernel."""
        files = cls.__new__(cls)
        vars(files).update(vars(dispatcher._cache._cache_file))
        return files

    def save(self, key: Any, data: Any) -> None:
        """Write compiled code, then enter it."""
        what = repr((self._version, self._source_stamp, key))
        name = self._data_name_pattern.format(number=0).removesuffix(".0.nbc")
        name = f"{name}.{hashlib.sha256(what.encode()).hexdigest()[:16]}.nbc"
        files: Any = self
        files._save_data(name, data)
        overloads = files._load_index()
        overloads[key] = name
        files._save_index(overloads)

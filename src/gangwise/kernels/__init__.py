"""Compiled inner loops.

Every kernel is a module-level function, so that its machine code is cached on disk: the first use
on a machine compiles, later processes load. Kernels allocate nothing; callers pass work space.
Each has a plain twin in ``tests/reference``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from gangwise.kernels.cache import KernelFiles

__all__ = ["Floats", "Ints", "kernel", "on_compile"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function on first use and cache it on disk."""
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
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

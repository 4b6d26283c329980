"""Several simulations as rows of one memory, which kernels open one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from gangwise.core.arrays import Ints
from gangwise.core.jit import Pinned, Reference, inlined_kernel
from gangwise.jobs.kernels import CUT, PIECE, State

LINE = 8
"""Words of eight bytes that are read from memory at once: where an array begins."""


def joined(join: Callable[[Sequence[Any]], Any], each: Sequence[Any]) -> Any:
    """Nested named tuples with their arrays joined; other fields are those of the first."""
    example = each[0]
    if isinstance(example, tuple):
        return type(example)(*(joined(join, fields) for fields in zip(*each)))
    return join(each) if isinstance(example, np.ndarray | np.record) else example


def stacked(each: Sequence[Any]) -> tuple[Any, Ints]:
    """Nested named tuples as one whose arrays have an axis more, and their memory [E, words].

    A row of memory holds all arrays of one. Shorter ones end with zeros, which nothing points at.
    """
    shapes: list[tuple[int, ...]] = []

    def longest(arrays: Sequence[Any]) -> None:
        shapes.append(tuple(np.max([np.shape(array) for array in arrays], axis=0).astype(int)))
        sizes.append(-(-int(np.prod(shapes[-1])) * arrays[0].dtype.itemsize // (8 * LINE)) * LINE)

    sizes: list[int] = []
    joined(longest, each)
    memory = np.zeros((len(each), sum(sizes)), np.int64)
    places = iter(zip(shapes, np.cumsum([0, *sizes]).tolist()))

    def filled(arrays: Sequence[Any]) -> Any:
        shape, word = next(places)
        stack = np.ndarray(
            (len(arrays), *shape),
            arrays[0].dtype,
            memory,
            8 * word,
            (memory.strides[0], *np.empty(shape, arrays[0].dtype).strides),
        )
        for i, array in enumerate(arrays):
            place: Any = (i, *map(slice, np.shape(array)))
            stack[place] = array
        return stack

    return joined(filled, each), memory


def row(stack: Any, i: int) -> Any:
    """Row i of every array in nested named tuples; what is no array is of all rows."""
    if isinstance(stack, tuple):
        return type(stack)(*(row(part, i) for part in stack))
    return stack[i] if isinstance(stack, np.ndarray) else stack


def pinned(rows: Sequence[Any]) -> tuple[Sequence[Pinned], Ints]:
    """Named tuples of the same types, each pinned, and their addresses for :data:`opened_at`."""
    each = [Pinned(of) for of in rows]
    return each, np.array([of.address for of in each], dtype=np.int64)


def _opened_at(typing_context: Any, pinned: Any, address: Any) -> Any:
    def pointer(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[1], values[0].type)

    return Reference(pinned.fields)(pinned, types.int64), pointer


opened_at: Any = intrinsic(_opened_at)
"""The reference to one of several that are :func:`pinned`: ``opened_at(the first, address)``."""


@inlined_kernel
def copy_words(of: Ints, to: Ints) -> None:
    """Copy a row of memory to another."""
    for w in range(of.size):
        to[w] = of[w]


def never_cut(state: State, jobs: int, pieces: int) -> State:
    """The state of a play in which no node fails, so that no attempt is cut short."""
    room: dict[str, Any] = {
        "cuts": np.zeros(jobs + 2, CUT),
        "cut_pieces": np.zeros(pieces + 1, PIECE),
    }
    return state._replace(**room)

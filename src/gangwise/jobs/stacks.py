"""States of several simulations as one, whose arrays have one axis more; and one of them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from gangwise.core.arrays import Ints
from gangwise.core.jit import Reference, copy_bytes, inner_kernel, referenced
from gangwise.jobs.kernels import CUT, PIECE, State

LEAN: Any = {"_nrt": False, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def row(stack: Any, i: int) -> Any:
    """Row i of every array in nested named tuples; what is no array is of all rows."""
    if isinstance(stack, np.ndarray):
        return stack[i]
    if isinstance(stack, tuple):
        return type(stack)(*(row(part, i) for part in stack))
    return stack


@overload(row, inline="always", jit_options=LEAN)  # records cannot be returned
def _row(stack, i):  # type: ignore[no-untyped-def]  # numba compares annotations
    if isinstance(stack, types.NoneType):
        return lambda stack, i: None
    made: dict[str, Any] = {"referenced": referenced}
    text = _written(stack, "stack", made)
    # numba loops over no unlike fields.
    exec(f"def of_row(stack, i):\n    return referenced({text})", made)
    return made["of_row"]


def _written(of: Any, name: str, made: dict[str, Any]) -> str:
    """The source that makes a row of nested named tuples, which are entered in ``made``."""
    if isinstance(of, types.Array):
        return f"{name}[i]"
    of = of.fields if isinstance(of, Reference) else of
    if not isinstance(of, types.NamedTuple | types.NamedUniTuple):
        return name
    made[of.instance_class.__name__] = of.instance_class
    fields = [_written(each, f"{name}.{field}", made) for each, field in zip(of.types, of.fields)]
    return f"{of.instance_class.__name__}({', '.join(fields)})"


def joined(join: Callable[[Sequence[Any]], Any], each: Sequence[Any]) -> Any:
    """Nested named tuples with their arrays joined; other fields are those of the first."""
    example = each[0]
    if isinstance(example, tuple):
        return type(example)(*(joined(join, fields) for fields in zip(*each)))
    return join(each) if isinstance(example, np.ndarray | np.record) else example


def stacked(each: Sequence[Any]) -> Any:
    """Arrays in one with an axis more; shorter ones end with zeros, which nothing points at."""
    arrays = [np.asarray(array) for array in each]
    size = (len(arrays), *np.max([array.shape for array in arrays], axis=0).astype(np.int64))
    stack = np.zeros(size, arrays[0].dtype)
    for i, array in enumerate(arrays):
        place: Any = (i, *(slice(n) for n in array.shape))
        stack[place] = array
    return stack


def arrays_of(stack: Any) -> list[Any]:
    if isinstance(stack, tuple):
        return [array for part in stack for array in arrays_of(part)]
    return [stack] if isinstance(stack, np.ndarray) else []


def never_cut(state: State, jobs: int, pieces: int) -> State:
    """The state of a play in which no node fails, so that no attempt is cut short."""
    room: dict[str, Any] = {
        "cuts": np.zeros(jobs + 2, CUT),
        "cut_pieces": np.zeros(pieces + 1, PIECE),
    }
    return state._replace(**room)


def copies(source: Any, to: Any) -> Ints:
    """What :func:`copy_row` needs to copy rows of stacked arrays to others [A, 3].

    Addresses of both, and the bytes of a row; the arrays must stay where they are.
    """
    pairs = zip(arrays_of(source), arrays_of(to))
    rows = [(one.ctypes.data, other.ctypes.data, other[:1].nbytes) for one, other in pairs]
    return np.array(rows, dtype=np.int64)


@inner_kernel
def copy_row(copies: Ints, i: int, to: int) -> None:
    """Copy row i of all arrays to a row of the others."""
    for a in range(copies.shape[0]):
        size = copies[a, 2]
        copy_bytes(copies[a, 0] + i * size, copies[a, 1] + to * size, size)

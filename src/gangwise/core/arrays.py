"""Array types: one name for each kind of number, used in every signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def read_only(array: npt.NDArray[Any]) -> Any:
    """The same numbers without gaps, not to be written: the one kind that kernels are given.

    Kernels are compiled anew for arrays that can be written, or have gaps.
    """
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view

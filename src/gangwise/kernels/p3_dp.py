"""The paper's dynamic programme, (22)–(27), in place and with one bit of decision per state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["tabulate", "trace"]

Bytes = npt.NDArray[np.uint8]


@kernel
def tabulate(
    upsilon: Ints, sigma: Floats, a: Ints, c: Ints, stride: Ints,
    value: Floats, taken: Bytes, digit: Ints, flag: Bytes,
) -> None:
    """V(s, c', 0) for every s and c', and what was taken on the way.

    ``value`` [C, S], C = Π_k (c_k + 1), receives V, -inf where s is out of reach; ``taken``
    [E, C, ⌈S/8⌉] the decisions. ``stride`` [K] places a capacity c' at Σ_k stride_k c'_k;
    ``digit`` [K] and ``flag`` [8 ⌈S/8⌉] are work space. Channels are outermost and fall, as does
    c' within: a state reads smaller capacities only, which still hold the values of i + 1.
    """
    E, K = a.shape
    C, S = value.shape
    W = taken.shape[2]
    for place in range(C):
        for s in range(S):
            value[place, s] = -np.inf
        value[place, 0] = 0.0
    for i in range(E - 1, -1, -1):
        shift = 0
        for k in range(K):
            digit[k] = c[k]
            shift += stride[k] * a[i, k]
        u, gain = min(upsilon[i], S), sigma[i]
        for place in range(C - 1, -1, -1):
            fits = True
            for k in range(K):
                fits = fits and a[i, k] <= digit[k]
            row = value[place]
            if fits and shift > 0:
                before = value[place - shift]
                first = before[0] + gain
                for s in range(u):
                    flag[s] = 1 if first > row[s] else 0
                    row[s] = first if first > row[s] else row[s]
                for s in range(u, S):
                    later = before[s - u] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            elif fits:  # takes no devices: reads its own row, hence from large s to small
                for s in range(S - 1, -1, -1):
                    later = row[max(s - u, 0)] + gain
                    flag[s] = 1 if later > row[s] else 0
                    row[s] = later if later > row[s] else row[s]
            else:
                for w in range(W):
                    taken[i, place, w] = 0
            if fits:
                for w in range(W):
                    packed = 0
                    for b in range(8):
                        packed |= flag[8 * w + b] << b
                    taken[i, place, w] = packed
            for k in range(K - 1, -1, -1):
                if digit[k] > 0:
                    digit[k] -= 1
                    break
                digit[k] = c[k]


@kernel
def trace(s: int, place: int, upsilon: Ints, shift: Ints, taken: Bytes, chosen: Ints) -> None:
    """Follow the decisions from state (s, c', 0) and write x to ``chosen`` [E]."""
    for i in range(chosen.shape[0]):
        chosen[i] = (taken[i, place, s >> 3] >> (s & 7)) & 1
        if chosen[i] == 1:
            s = max(s - upsilon[i], 0)
            place -= shift[i]

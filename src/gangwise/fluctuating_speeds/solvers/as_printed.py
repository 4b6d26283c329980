"""Algorithm 2 and selection (21) word for word, to show what they do: they schedule nothing.

Two lines are missing. Where a channel is skipped, its x keeps the initial zeros instead of what was
decided behind it; and (21) may select values of s that no x reaches, whose x is zero, too.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

__all__ = ["algorithm_2", "select"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def algorithm_2(
    upsilon: Ints, sigma: Floats, a: Ints, c: Ints, top: int, copy_when_skipped: bool = False
) -> tuple[Floats, Ints]:
    """V(s) and x(s), s = 0, …, ``top``; for a handful of channels, in plain Python.

    Parameters
    ----------
    upsilon, sigma : ndarray of shape [E]
    a : ndarray of shape [E, K]
    c : ndarray of shape [K]
    top : int
    copy_when_skipped : bool
        Add the missing line.

    Returns
    -------
    value : ndarray of shape [top + 1]
    x : ndarray of int64, shape [top + 1, E]

    Examples
    --------
    One server for two channels: the best choice is worth 6, and the printed x is empty.

    >>> two = np.array([0, 0]), np.array([1.0, 6.0]), np.array([[1], [1]]), np.array([1]), 0
    >>> algorithm_2(*two)
    (array([6.]), array([[0, 0]]))
    >>> algorithm_2(*two, copy_when_skipped=True)
    (array([6.]), array([[0, 1]]))
    """
    E = len(upsilon)
    value: dict[tuple[int, tuple[int, ...], int], float] = {}
    x: dict[tuple[int, tuple[int, ...], int], Ints] = {}
    none = np.zeros(E, dtype=np.int64)
    for s in range(top + 1):
        for left in itertools.product(*(range(int(k) + 1) for k in c)):
            value[s, left, E] = 0.0 if s == 0 else -np.inf
            x[s, left, E] = none
            for i in range(E - 1, -1, -1):
                skipped = value[s, left, i + 1]
                x[s, left, i] = x[s, left, i + 1] if copy_when_skipped else none
                value[s, left, i] = skipped
                if not any(left):
                    continue
                less = tuple(max(have - int(take), 0) for have, take in zip(left, a[i]))
                behind = (max(s - int(upsilon[i]), 0), less, i + 1)
                value[s, left, i] = max(value[behind] + sigma[i], skipped)
                if value[s, left, i] != skipped:
                    with_it = x[behind].copy()
                    with_it[i] = 1
                    x[s, left, i] = with_it
                    if (with_it @ a > left).any():
                        value[s, left, i] = skipped
                        x[s, left, i] = x[s, left, i + 1]
    whole = tuple(int(k) for k in c)
    return (
        np.array([value[s, whole, 0] for s in range(top + 1)]),
        np.array([x[s, whole, 0] for s in range(top + 1)]),
    )


def select(sigma: Floats, x: Ints) -> tuple[int, float]:
    """(21) as printed: s* and s* + √(Σ̂²·x(s*)) over every s, reached or not."""
    worth = np.arange(len(x)) + np.sqrt(x @ sigma)
    s = int(worth.argmax())
    return s, float(worth[s])

"""Inner loop of the machines' periods: which are over, and how long the next ones are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["periods"]

Bools = npt.NDArray[np.bool_]


@kernel
def periods(
    rng: np.random.Generator, left: Floats, up: Bools, share: Floats, length: Floats,
    scale: Floats, per_period: bool, over: Ints, ups: Bools, shares: Floats,
) -> None:
    """Go through the slots of a block.

    ``left`` [M] is what is left of each machine's period, ``up`` [M] whether it is available, and
    ``share`` [M] where its rate lies in its range, drawn anew with every period if ``per_period``.
    ``length`` and ``scale`` [2] are the shapes and scales of periods down and up. Writes ``ups``
    and, if ``per_period``, ``shares`` [slots, M]. ``over`` [M] is work space. Random numbers are
    taken in rounds: lengths of all periods that begin, then their shares; again for those that
    were over at once.
    """
    for t in range(ups.shape[0]):
        many = 0
        for i in range(left.size):
            if left[i] <= 0.0:
                over[many] = i
                many += 1
        while many > 0:
            for k in range(many):
                i = over[k]
                up[i] = not up[i]
                now = 1 if up[i] else 0
                left[i] += rng.standard_gamma(length[now]) * scale[now]
            again = 0
            for k in range(many):
                i = over[k]
                if per_period:
                    share[i] = rng.random()
                if left[i] <= 0.0:
                    over[again] = i
                    again += 1
            many = again
        for i in range(left.size):
            ups[t, i] = up[i]
            left[i] -= 1.0
        if per_period:
            for i in range(left.size):
                shares[t, i] = share[i]

"""Inner loops of the fluctuating-speeds family: feedback checked, channels on in a given order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel

FINE, NO_SUCH_CHANNEL, TWICE, NOT_AWAITED, OUT_OF_RANGE = 0, 1, 2, 3, 4


@kernel
def take(channels: Ints, utilities: Floats, awaited: Ints, seen: Ints) -> int:
    """Await a slot's feedback no more. Returns 0, or what is wrong with it: 8 · place + verdict.

    ``awaited`` [E] counts uses of each channel whose feedback has not come, and stays as it is if
    anything is wrong; ``seen`` [E] is work space, all zeros before and after.
    """
    verdict, done, place = 0, 0, 0
    for i in range(channels.size):
        e, u = channels[i], utilities[i]
        if e < 0 or e >= awaited.size:
            verdict = 1
        elif seen[e] != 0:
            verdict = 2
        elif awaited[e] <= 0:
            verdict = 3
        elif not (u >= 0.0 and u <= 1.0):  # catches NaN as well
            verdict = 4
        if verdict != 0:
            place = i
            break
        seen[e] = 1
        done += 1
    for i in range(done):
        seen[channels[i]] = 0
        if verdict == 0:
            awaited[channels[i]] -= 1
    return 8 * place + verdict


@kernel
def switch_on(
    order: Ints,
    requests: Floats,
    capacity: Floats,
    stop: bool,
    left: Floats,
    x: npt.NDArray[np.bool_],
) -> None:
    """Channels in ``order`` are switched on as long as they fit, (2).

    One that does not fit is skipped, or ends it all with ``stop``. ``capacity`` [K] has its
    tolerance added; ``left`` [K] is work space.
    """
    K = capacity.size
    left[:] = capacity
    x[:] = False
    for i in range(order.size):
        e = order[i]
        fits = True
        for k in range(K):
            if requests[e, k] > left[k]:
                fits = False
        if fits:
            x[e] = True
            for k in range(K):
                left[k] -= requests[e, k]
        elif stop:
            break

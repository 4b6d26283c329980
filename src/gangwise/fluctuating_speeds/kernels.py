"""Inner loops of fluctuating speeds: feedback matched to what was played, list scheduling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel

FINE, NO_SUCH_CHANNEL, TWICE, NOT_PENDING, OUT_OF_RANGE = 0, 1, 2, 3, 4


@kernel
def match_feedback(channels: Ints, utilities: Floats, pending: Ints, seen: Ints) -> int:
    """Feedback matching: strike a slot's feedback off. Returns 0, or 8 · place + what is wrong.

    ``pending`` [E] counts uses of each channel whose feedback has not come, and stays as it is if
    anything is wrong; ``seen`` [E] is work space, all zeros before and after.
    """
    verdict, done, place = FINE, 0, 0
    for i in range(channels.size):
        e, u = channels[i], utilities[i]
        if e < 0 or e >= pending.size:
            verdict = NO_SUCH_CHANNEL
        elif seen[e] != 0:
            verdict = TWICE
        elif pending[e] <= 0:
            verdict = NOT_PENDING
        elif not (u >= 0.0 and u <= 1.0):  # catches NaN as well
            verdict = OUT_OF_RANGE
        if verdict != FINE:
            place = i
            break
        seen[e] = 1
        done += 1
    # All or nothing: the counts change only where the whole feedback makes sense.
    for i in range(done):
        seen[channels[i]] = 0
        if verdict == FINE:
            pending[channels[i]] -= 1
    return 8 * place + verdict


@kernel
def list_schedule(
    order: Ints,
    requests: Floats,
    capacity: Floats,
    stop: bool,
    left: Floats,
    x: npt.NDArray[np.bool_],
) -> None:
    """List scheduling: channels in ``order`` are switched on as long as they fit, ESDP (2).

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

"""Arrivals of a run: slot by slot while it is played, or those of many slots at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.core.workload import ArrivalStream

__all__ = ["BLOCK", "ArrivalsBySlot", "first_slots"]

Ints = npt.NDArray[np.int64]

BLOCK = 256  # slots drawn at a time


class ArrivalsBySlot:
    """Arrivals of one slot after the other, drawn some slots ahead.

    Examples
    --------
    >>> from gangwise.core.workload import BernoulliArrivals
    >>> stream = BernoulliArrivals([1.0, 0.0]).stream(np.random.default_rng(0))
    >>> ArrivalsBySlot(stream).at(0)
    array([1, 0])
    """

    def __init__(self, stream: ArrivalStream):
        self._stream, self._first, self._block = stream, 0, np.empty((0, 0), dtype=np.int64)

    def at(self, slot: int) -> Ints:
        """Arrivals of a slot, shape [L], read-only; slots are asked for in order."""
        while slot >= self._first + len(self._block):
            self._first += len(self._block)
            self._block = np.array(self._stream.draw(BLOCK), dtype=np.int64)
            self._block.setflags(write=False)
        row: Ints = self._block[slot - self._first]
        return row


def first_slots(stream: ArrivalStream, slots: int) -> Ints:
    """Arrivals of the first slots of a stream, shape [slots, L]."""
    blocks: list[Ints] = []
    while (missing := slots - sum(map(len, blocks))) > 0:
        blocks.append(np.asarray(stream.draw(missing), dtype=np.int64))
    return np.concatenate(blocks)

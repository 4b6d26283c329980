"""When feedback arrives: at once, after a delay, out of order, or never."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import check_numbers
from gangwise.core.errors import ScenarioError

FeedbackT = TypeVar("FeedbackT")


@dataclass(frozen=True)
class Delivery:
    """Delay and loss of feedback, drawn for every slot whatever was decided.

    ``delay`` is the slots between a decision and its feedback, 0 within the slot; ``geometric``
    delays have it as their mean, so that feedback overtakes. With probability ``loss`` it never
    comes.

    >>> Delivery(2, "geometric", loss=0.2).draw(8, np.random.default_rng(2))
    array([ 0,  2,  2, -1,  1,  2, -1, -1])
    """

    delay: float = 0.0
    kind: Literal["constant", "geometric"] = "constant"
    loss: float = 0.0

    def __post_init__(self) -> None:
        check_numbers("[0, inf)", delay=self.delay)
        check_numbers("[0, 1]", loss=self.loss)
        if self.kind not in ("constant", "geometric"):
            raise ScenarioError(f"a delay is constant or geometric, not {self.kind!r}")
        if self.kind == "constant" and self.delay != int(self.delay):
            raise ScenarioError(f"a constant delay is a whole number of slots, not {self.delay}")

    def draw(self, slots: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Delay of the feedback of each slot; −1 where it is lost."""
        lost = rng.random(slots) < self.loss
        if self.kind == "geometric":
            # Inverse transform, so that one number is used per slot.
            delays = np.floor(
                np.log1p(-rng.random(slots)) / np.log(self.delay / (1.0 + self.delay))
                if self.delay > 0
                else np.zeros(slots)
            ).astype(np.int64)
        else:
            delays = np.full(slots, int(self.delay), dtype=np.int64)
        return np.where(lost, -1, delays)


@dataclass
class Mailbox(Generic[FeedbackT]):
    """Feedback on its way: posted with a delay, handed out when it is due, oldest slot first.

    >>> mailbox = Mailbox[str]()
    >>> [mailbox.exchange(t, delay, f"slot {t}") for t, delay in enumerate([1, -1, 0])]
    [(), ('slot 0',), ('slot 2',)]
    """

    _waiting: list[tuple[int, int, FeedbackT]] = field(default_factory=list)

    def exchange(self, slot: int, delay: int, feedback: FeedbackT) -> tuple[FeedbackT, ...]:
        """Post the feedback of ``slot`` (a delay of −1 loses it) and take what is due by now."""
        if delay == 0 and not self._waiting:
            return (feedback,)
        if delay >= 0:
            heapq.heappush(self._waiting, (slot + delay, slot, feedback))
        due = []
        while self._waiting and self._waiting[0][0] <= slot:
            due.append(heapq.heappop(self._waiting)[2])
        return tuple(due)

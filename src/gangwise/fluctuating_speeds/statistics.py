"""What a learner remembers: how often each channel was felt, and its mean utility, (8)–(9).

The paper's sums run to t and contain what is being decided; here they run over the slots before t
whose feedback has come. Feedback may come in any order and with any delay: utilities are added up
in whole units of 2⁻⁴⁰, so that the sums do not depend on the order, not even in the last bit.
Memory is O(E), for the sliding window O(W E), whatever the number of slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.kernels import speeds as kernels

if TYPE_CHECKING:
    from gangwise.fluctuating_speeds.environment import Feedback
    from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem

__all__ = ["Discounted", "SlidingWindow", "Statistics", "make_statistics"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNIT = float(2**40)
"""Resolution of the sums: 1e-12, with room for eight million uses of a channel."""


class Statistics:
    """Counts n_e (8) and means v̂_e (9) over all slots so far.

    Examples
    --------
    The case worked by hand in the tests: two channels, felt twice and once.

    >>> from gangwise.core.cluster import Channels
    >>> from gangwise.fluctuating_speeds import Feedback, FluctuatingSpeedsProblem, Pool
    >>> problem = FluctuatingSpeedsProblem(
    ...     Pool(np.array([2.0]), ("gpu",), ("a", "b")), np.ones((2, 1)),
    ...     Channels.of_mask(np.eye(2, dtype=bool)), np.zeros(2))
    >>> statistics = Statistics(problem)
    >>> statistics.decided(0, np.array([True, True]))
    >>> statistics.decided(1, np.array([True, False]))
    >>> statistics.learn([Feedback(1, np.array([0]), np.array([0.6]))])
    >>> statistics.learn([Feedback(0, np.array([0, 1]), np.array([0.4, 0.8]))])
    >>> statistics.counts, statistics.means.round(9)
    (array([2., 1.]), array([0.5, 0.8]))
    """

    def __init__(self, problem: FluctuatingSpeedsProblem):
        E = problem.E
        self._problem = problem
        self._counts, self._totals = np.zeros(E, np.int64), np.zeros(E, np.int64)
        self._awaited, self._seen = np.zeros(E, np.int64), np.zeros(E, np.int64)
        self.slot = -1

    @property
    def counts(self) -> Floats:
        """n_e, shape [E]."""
        return self._counts.astype(np.float64)

    @property
    def means(self) -> Floats:
        """v̂_e, shape [E]; 0 where nothing was felt yet."""
        return self._totals / (UNIT * np.maximum(self._counts, 1))

    def horizon(self, t: float) -> float:
        """How many slots the counts stand for at time t: what g(t) is taken at."""
        return t

    def decided(self, slot: int, x: Bools) -> None:
        """These channels are switched on in this slot: their feedback is awaited from now on."""
        self._awaited += x
        self.slot = slot

    def learn(self, feedback: Iterable[Feedback]) -> None:
        """Take in what came, in any order; nothing changes if any of a slot's is refused.

        Raises
        ------
        ScenarioError
            For a channel that was not on (or told already), a utility outside [0, 1] or NaN, or a
            slot still to come; names the channel and the slot.
        """
        for each in feedback:
            channels = np.ascontiguousarray(each.channels, dtype=np.int64)
            utilities = np.ascontiguousarray(each.utilities, dtype=np.float64)
            self._refuse(each.slot, channels, utilities)
            self._absorb(each.slot, channels, utilities)

    def _absorb(self, slot: int, channels: Ints, utilities: Floats) -> None:
        kernels.absorb(
            channels, utilities, UNIT, self._awaited, self._counts, self._totals
        )

    def _refuse(self, slot: int, channels: Ints, utilities: Floats) -> None:
        where = f"feedback of slot {slot}"
        if channels.ndim != 1 or channels.shape != utilities.shape:
            raise ScenarioError(
                f"{where}: {channels.shape} channels and {utilities.shape} utilities; one utility "
                "for each channel is needed"
            )
        if not 0 <= slot <= self.slot:
            raise ScenarioError(f"{where}: the last slot decided is {self.slot}")
        found = kernels.inspect(channels, utilities, self._awaited, self._seen)
        if found == kernels.FINE:
            return
        place, verdict = divmod(found, 8)
        e, u = int(channels[place]), utilities[place]
        if verdict == kernels.NO_SUCH_CHANNEL:
            raise ScenarioError(f"{where}: there is no channel {e}; there are {self._counts.size}")
        name = self._problem.name(e)
        raise ScenarioError({
            kernels.TWICE: f"{where}: {name} is told twice",
            kernels.NOT_AWAITED: f"{where}: {name} was not on, or was told already",
            kernels.OUT_OF_RANGE: f"{where}: {name} has utility {u}; net utilities are normalised "
            "into [0, 1]",
        }[verdict])  # fmt: skip


class Discounted(Statistics):
    """Statistics that fade: what is s slots old counts γˢ, wherever means drift.

    Feedback that comes late is worth what it would be worth had it come at once; sums are floating
    point, so the order matters in the last bits.
    """

    def __init__(self, problem: FluctuatingSpeedsProblem, discount: float):
        if not 0 < discount < 1:
            raise ScenarioError(f"discount is {discount}; it must lie strictly between 0 and 1")
        super().__init__(problem)
        self.discount = discount
        self._weight, self._sum = np.zeros(problem.E), np.zeros(problem.E)

    @property
    def counts(self) -> Floats:
        """Discounted counts, shape [E]; what has all but faded counts as never felt."""
        return np.where(self._weight < 1e-3, 0.0, self._weight)

    @property
    def means(self) -> Floats:
        """Discounted means, shape [E]."""
        return np.where(self._weight < 1e-3, 0.0, self._sum / np.maximum(self._weight, 1e-3))

    def horizon(self, t: float) -> float:
        """(1 − γᵗ) / (1 − γ), the discounted number of slots."""
        return float((1.0 - self.discount**t) / (1.0 - self.discount))

    def decided(self, slot: int, x: Bools) -> None:
        """Everything fades by the slots gone by."""
        fade = self.discount ** (slot - self.slot)
        self._weight *= fade
        self._sum *= fade
        super().decided(slot, x)

    def _absorb(self, slot: int, channels: Ints, utilities: Floats) -> None:
        weight = self.discount ** (self.slot - slot)
        self._awaited[channels] -= 1
        self._weight[channels] += weight
        self._sum[channels] += weight * utilities


class SlidingWindow(Statistics):
    """Statistics over the last ``window`` slots; what is older is forgotten, and stays so."""

    def __init__(self, problem: FluctuatingSpeedsProblem, window: int):
        if window < 1:
            raise ScenarioError(f"window is {window}; it must be a slot or more")
        super().__init__(problem)
        self.window = int(window)
        self._felt = np.zeros((self.window, problem.E), np.int64)
        self._values = np.zeros((self.window, problem.E), np.int64)

    def horizon(self, t: float) -> float:
        """At most the window."""
        return min(t, float(self.window))

    def decided(self, slot: int, x: Bools) -> None:
        """Slots that leave the window are taken off the sums, exactly."""
        for gone in range(max(self.slot + 1, slot - self.window + 1), slot + 1):
            row = gone % self.window
            self._counts -= self._felt[row]
            self._totals -= self._values[row]
            self._felt[row] = 0
            self._values[row] = 0
        super().decided(slot, x)

    def _absorb(self, slot: int, channels: Ints, utilities: Floats) -> None:
        self._awaited[channels] -= 1
        if slot <= self.slot - self.window:
            return
        units = np.round(utilities * UNIT).astype(np.int64)
        row = slot % self.window
        self._felt[row, channels] += 1
        self._values[row, channels] += units
        self._counts[channels] += 1
        self._totals[channels] += units


def make_statistics(
    problem: FluctuatingSpeedsProblem, memory: str, discount: float, window: int
) -> Statistics:
    """``all``, ``discounted`` or ``window``."""
    if memory == "all":
        return Statistics(problem)
    if memory == "discounted":
        return Discounted(problem, discount)
    if memory == "window":
        return SlidingWindow(problem, window)
    raise ScenarioError(f"memory is all, discounted or window, not {memory!r}")

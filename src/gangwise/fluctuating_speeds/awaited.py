"""Which channels' feedback is still to come: a learner takes in no other."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.fluctuating_speeds.environment import Feedback
from gangwise.kernels import speeds as kernels

__all__ = ["Awaited"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Named(Protocol):
    """A problem, as far as it is needed here: its channels have names."""

    @property
    def E(self) -> int:
        """Number of channels."""

    def name(self, e: int) -> str:
        """How messages call a channel."""


class Awaited:
    """Uses of each channel that have not been told yet.

    Feedback may come in any order and with any delay, for each use of a channel once.
    """

    def __init__(self, problem: Named):
        self._problem = problem
        self._awaited, self._seen = np.zeros(problem.E, np.int64), np.zeros(problem.E, np.int64)
        self.slot = -1

    def decided(self, slot: int, x: Bools) -> None:
        """These channels are switched on in this slot: their feedback is awaited from now on."""
        self._awaited += x
        self.slot = slot

    def take(self, feedback: Feedback) -> tuple[Ints, Floats]:
        """Channels and utilities of a slot's feedback, awaited no more.

        Raises
        ------
        ScenarioError
            For a channel that was not on (or told already), a utility outside [0, 1] or NaN, or a
            slot still to come; names the channel and the slot. Nothing has changed then.
        """
        slot = feedback.slot
        channels = np.ascontiguousarray(feedback.channels, dtype=np.int64)
        utilities = np.ascontiguousarray(feedback.utilities, dtype=np.float64)
        where = f"feedback of slot {slot}"
        if channels.ndim != 1 or channels.shape != utilities.shape:
            raise ScenarioError(
                f"{where}: {channels.shape} channels and {utilities.shape} utilities; one utility "
                "for each channel is needed"
            )
        if not 0 <= slot <= self.slot:
            raise ScenarioError(f"{where}: the last slot decided is {self.slot}")
        found = kernels.take(channels, utilities, self._awaited, self._seen)
        if found != kernels.FINE:
            self._refuse(where, channels, utilities, *divmod(found, 8))
        return channels, utilities

    def _refuse(
        self, where: str, channels: Ints, utilities: Floats, place: int, verdict: int
    ) -> None:
        e, u = int(channels[place]), utilities[place]
        if verdict == kernels.NO_SUCH_CHANNEL:
            raise ScenarioError(f"{where}: there is no channel {e}; there are {self._problem.E}")
        name = self._problem.name(e)
        raise ScenarioError({
            kernels.TWICE: f"{where}: {name} is told twice",
            kernels.NOT_AWAITED: f"{where}: {name} was not on, or was told already",
            kernels.OUT_OF_RANGE: f"{where}: {name} has utility {u}; net utilities are normalised "
            "into [0, 1]",
        }[verdict])  # fmt: skip

"""Estimates that forget, for machines whose rates change."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.confidence import CumulativeUCB, upper_bound
from gangwise.approximation_jobs.execution import Feedback
from gangwise.core.errors import ScenarioError

__all__ = ["ChangePointUCB", "Decay", "WindowUCB"]

Floats = npt.NDArray[np.float64]


class WindowUCB:
    """(12)–(14) over the rates of the last ``window`` slots."""

    def __init__(self, window: int = 20, gamma: float = 0.1):
        if window < 1:
            raise ScenarioError(f"window is {window}; it must be a slot or more")
        if not gamma >= 0:
            raise ScenarioError(f"gamma is {gamma}; it must not be negative")
        self.window, self.gamma = int(window), gamma

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        self.rates = np.zeros((self.window, M))
        self.seen = np.zeros((self.window, M))
        self.latest = -1

    def _advance(self, slot: int) -> None:
        """Clear the places of slots that have left the window."""
        for gone in range(max(self.latest + 1, slot - self.window + 1), slot + 1):
            self.rates[gone % self.window] = 0.0
            self.seen[gone % self.window] = 0.0
        self.latest = max(self.latest, slot)

    def estimate(self, slot: int) -> Floats:
        """The upper confidence bound over slot − window … slot − 1."""
        self._advance(slot - 1)
        return upper_bound(self.rates.sum(axis=0), self.seen.sum(axis=0), self.gamma)

    def learn(self, feedback: Feedback) -> None:
        """Feedback older than the window is ignored."""
        self._advance(feedback.slot)
        if feedback.slot > self.latest - self.window:
            place = feedback.slot % self.window
            self.rates[place, feedback.machines] = feedback.rates
            self.seen[place, feedback.machines] = 1.0


class ChangePointUCB(CumulativeUCB):
    """(12)–(14) since the last change, which a two-sided Page–Hinkley test finds per machine.

    A machine is forgotten when its rates have departed from their mean by more than ``threshold``
    in total, not counting departures below ``drift`` per play.
    """

    def __init__(self, threshold: float = 1.0, drift: float = 0.1, gamma: float = 0.1):
        super().__init__(gamma)
        if not (threshold > 0 and drift >= 0):
            raise ScenarioError(
                f"threshold must be positive and drift not negative; got {threshold} and {drift}"
            )
        self.threshold, self.drift = threshold, drift

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        super().start(M, rng)
        self.up, self.down = np.zeros(M), np.zeros(M)

    def learn(self, feedback: Feedback) -> None:
        """Late feedback is taken as it comes."""
        i, rates = feedback.machines, feedback.rates
        seen = self.plays[i] > 0
        departure = np.where(seen, rates - self.total[i] / np.maximum(self.plays[i], 1.0), 0.0)
        self.up[i] = np.maximum(self.up[i] + departure - self.drift, 0.0)
        self.down[i] = np.maximum(self.down[i] - departure - self.drift, 0.0)
        changed = i[(self.up[i] > self.threshold) | (self.down[i] > self.threshold)]
        for array in (self.total, self.plays, self.up, self.down):
            array[changed] = 0.0
        super().learn(feedback)


class Decay:
    """m + (last − m) exp(−age / τ): trust the last rate, and less so the older it is.

    ``m`` is the machine's own mean, drawn towards the mean of all machines as ``pull`` plays would.
    A machine that was never seen is given ``prior``, which is 1 so that it is tried.
    """

    def __init__(self, tau: float = 30.0, pull: float = 30.0, prior: float = 1.0):
        if not (tau > 0 and pull > 0 and 0 <= prior <= 1):
            raise ScenarioError(
                f"tau and pull must be positive and prior in [0, 1]; got {tau}, {pull}, {prior}"
            )
        self.tau, self.pull, self.prior = tau, pull, prior

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        self.total, self.plays = np.zeros(M), np.zeros(M)
        self.last, self.at = np.zeros(M), np.full(M, -1, np.int64)

    def estimate(self, slot: int) -> Floats:
        """The last rate, decayed to the mean."""
        seen = self.at >= 0
        everyone = float(self.total.sum()) / max(float(self.plays.sum()), 1.0)
        mean = (self.total + self.pull * everyone) / (self.plays + self.pull)
        age = np.maximum(slot - 1 - self.at, 0)
        estimate = mean + (self.last - mean) * np.exp(-age / self.tau)
        return np.where(seen, estimate, self.prior)

    def learn(self, feedback: Feedback) -> None:
        """Late feedback counts towards the mean; the last rate stays the latest one."""
        i, rates = feedback.machines, feedback.rates
        self.total[i] += rates
        self.plays[i] += 1.0
        newer = self.at[i] < feedback.slot
        self.last[i[newer]] = rates[newer]
        self.at[i[newer]] = feedback.slot

"""Upper confidence bounds on service rates, (12)–(14), and Thompson sampling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.execution import Feedback
from gangwise.core.errors import ScenarioError

__all__ = ["CumulativeUCB", "Thompson", "confidence_radius", "upper_bound"]

Floats = npt.NDArray[np.float64]


def confidence_radius(mean: npt.ArrayLike, plays: npt.ArrayLike, gamma: float) -> Floats:
    """rad(ν, P) = √(γ ν / P) + γ / P, (14).

    Examples
    --------
    >>> round(float(confidence_radius(0.7, 100, 0.01)), 13)
    0.0084666002653
    """
    plays = np.asarray(plays, dtype=np.float64)
    radius: Floats = np.sqrt(gamma * np.asarray(mean) / plays) + gamma / plays
    return radius


def upper_bound(total: Floats, plays: Floats, gamma: float) -> Floats:
    """θ̂ = min{1, θ̄ + 2 rad(θ̄, n + 1)} with θ̄ = total / (n + 1), (12) and (13)."""
    mean = total / (plays + 1.0)
    bound: Floats = np.minimum(mean + 2.0 * confidence_radius(mean, plays + 1.0, gamma), 1.0)
    return bound


class CumulativeUCB:
    """(12)–(14), or discounted by κ per slot (D-UCB).

    ``gamma`` of the theorems, ln(M T / δ), keeps a machine at 1 for hundreds of plays; 0.1 to 1 is
    practical.

    Examples
    --------
    >>> ucb = CumulativeUCB(gamma=0.01)
    >>> ucb.start(1, np.random.default_rng(0))
    >>> for t in range(99):
    ...     ucb.learn(Feedback(t, np.array([0]), np.array([70 / 99])))
    >>> round(float(ucb.estimate(99)[0]), 12)
    0.716933200531
    """

    def __init__(self, gamma: float = 1.0, kappa: float = 1.0):
        if not gamma >= 0:
            raise ScenarioError(f"gamma is {gamma}; it must not be negative")
        if not 0 < kappa <= 1:
            raise ScenarioError(f"kappa is {kappa}; it must lie in (0, 1]")
        self.gamma, self.kappa = gamma, kappa

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Forget everything."""
        self.total, self.plays, self.slot = np.zeros(M), np.zeros(M), 0
        self.rng = rng

    def _fade(self, slot: int) -> None:
        """Bring the sums to the beginning of a slot."""
        if self.kappa < 1 and slot > self.slot:
            fade = self.kappa ** (slot - self.slot)
            self.total *= fade
            self.plays *= fade
        self.slot = max(slot, self.slot)

    def estimate(self, slot: int) -> Floats:
        """The upper confidence bound."""
        self._fade(slot)
        return upper_bound(self.total, self.plays, self.gamma)

    def learn(self, feedback: Feedback) -> None:
        """Late feedback weighs what it would weigh had it come at once."""
        self._fade(feedback.slot + 1)
        weight = self.kappa ** (self.slot - feedback.slot - 1)
        self.total[feedback.machines] += weight * feedback.rates
        self.plays[feedback.machines] += weight


class Thompson(CumulativeUCB):
    """A draw from Beta(1 + Σθ, 1 + n − Σθ) per machine and slot; forgets by κ per slot."""

    def __init__(self, kappa: float = 1.0):
        super().__init__(0.0, kappa)

    def estimate(self, slot: int) -> Floats:
        """One sample per machine."""
        self._fade(slot)
        good = 1.0 + self.total
        return self.rng.beta(good, np.maximum(1.0 + self.plays - self.total, 1e-9))

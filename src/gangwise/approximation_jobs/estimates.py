"""What a policy makes of the rates that it has seen, (12)–(14), and ways to forget.

Every estimator has O(M) memory and never sees the rate of a machine that ran nothing. Feedback may
come late and in any order. Cumulative averages cannot follow machines that change; with machines
that are up or down for tens of slots ``decay`` reaches more than nine tenths of what full
information would give, and needs no tuning.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.confidence import CumulativeUCB, Thompson, confidence_radius
from gangwise.approximation_jobs.execution import Feedback
from gangwise.approximation_jobs.forgetting import ChangePointUCB, Decay, WindowUCB
from gangwise.core.errors import ScenarioError, UnknownName

__all__ = [
    "ESTIMATORS",
    "ChangePointUCB",
    "Constant",
    "CumulativeUCB",
    "Decay",
    "Estimator",
    "Oracle",
    "Thompson",
    "WindowUCB",
    "confidence_radius",
    "make_estimator",
]

Floats = npt.NDArray[np.float64]


class Estimator(Protocol):
    """Estimates θ̂_i^t from executed tasks."""

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Forget everything."""

    def estimate(self, slot: int) -> Floats:
        """θ̂_i for this slot, shape [M], within [0, 1]. It may be reused by the next call."""

    def learn(self, feedback: Feedback) -> None:
        """Take in the rates of one slot."""


class Constant:
    """The same for all machines: OPM without estimation (§VI)."""

    def __init__(self, rate: float = 0.7):
        if not 0 <= rate <= 1:
            raise ScenarioError(f"the constant rate is {rate}; it must lie in [0, 1]")
        self.rate = rate

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Nothing to forget."""
        self.rates = np.full(M, self.rate)

    def estimate(self, slot: int) -> Floats:
        """The constant."""
        return self.rates

    def learn(self, feedback: Feedback) -> None:
        """Nothing."""


class Oracle:
    """Rates that are given: a mean per machine, or a table [slots, M]. For tests and bounds."""

    def __init__(self, rates: npt.ArrayLike):
        self.table = np.array(rates, dtype=np.float64, ndmin=2)

    def start(self, M: int, rng: np.random.Generator) -> None:
        """Nothing to forget."""

    def estimate(self, slot: int) -> Floats:
        """The row of this slot; the last one from there on."""
        row: Floats = self.table[min(slot, len(self.table) - 1)]
        return row

    def learn(self, feedback: Feedback) -> None:
        """Nothing."""


ESTIMATORS: dict[str, Any] = {
    "ucb": CumulativeUCB,
    "discounted": CumulativeUCB,
    "window": WindowUCB,
    "change-point": ChangePointUCB,
    "thompson": Thompson,
    "decay": Decay,
    "constant": Constant,
}
"""Names that policies accept; ``discounted`` is UCB with κ < 1."""


def make_estimator(
    name: str, gamma: float = 1.0, kappa: float = 0.5, window: int = 20, tau: float = 30.0,
    rate: float = 0.7,
) -> Estimator:
    """An estimator by name; each takes those of the parameters that it has.

    ``thompson`` forgets nothing with κ = 1.

    Raises
    ------
    UnknownName

    Examples
    --------
    >>> type(make_estimator("decay")).__name__
    'Decay'
    """
    if name not in ESTIMATORS:
        raise UnknownName("estimator", name, list(ESTIMATORS))
    arguments: dict[str, dict[str, float]] = {
        "ucb": {"gamma": gamma},
        "discounted": {"gamma": gamma, "kappa": kappa},
        "window": {"gamma": gamma, "window": window},
        "change-point": {"gamma": gamma},
        "thompson": {"kappa": kappa},
        "decay": {"tau": tau},
        "constant": {"rate": rate},
    }
    estimator: Estimator = ESTIMATORS[name](**arguments[name])
    return estimator

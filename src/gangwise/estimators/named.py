"""Estimators and memories by name, as policies accept them."""

from __future__ import annotations

import copy
from collections.abc import Callable

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.estimators.bounds import UCB, UCB1
from gangwise.estimators.change_point import ChangePoint
from gangwise.estimators.decay import Decay
from gangwise.estimators.estimator import Estimator, Mean
from gangwise.estimators.given import Constant
from gangwise.estimators.memory import Discounted, Memory, SlidingWindow
from gangwise.estimators.sampling import BetaSampling, GaussianSampling

__all__ = ["ESTIMATORS", "make_estimator", "make_memory"]

ESTIMATORS = (
    "ucb", "discounted", "window", "change-point", "ucb1", "thompson", "thompson-gaussian",
    "decay", "mean", "constant",
)  # fmt: skip
"""``ucb`` is (12)–(14) over everything so far, the next three are the same over another memory."""


def make_estimator(
    estimator: str | Estimator, gamma: float = 1.0, kappa: float = 0.5, window: int = 20,
    tau: float = 30.0, rate: float = 0.7, coefficient: float = 1.5,
) -> Estimator:
    """An estimator by name, which takes those of the parameters that it has, or a copy of one.

    ``gamma`` is that of (14); ``kappa`` the discount of ``discounted`` and of both kinds of
    Thompson sampling, which forget nothing with κ = 1; ``coefficient`` is for ``ucb1``.

    Raises
    ------
    UnknownName

    Examples
    --------
    >>> make_estimator("decay", tau=10.0)
    Decay(memory=Discounted(discount=1.0), tau=10.0, pull=30.0, prior=1.0)
    """
    if not isinstance(estimator, str):
        return copy.deepcopy(estimator)
    if estimator not in ESTIMATORS:
        raise UnknownName("estimator", estimator, list(ESTIMATORS))
    # Discounted(1) forgets nothing; it adds up in floating point, as results on record were.
    make: dict[str, Callable[[], Estimator]] = {
        "ucb": lambda: UCB(gamma, memory=Discounted(1.0)),
        "discounted": lambda: UCB(gamma, memory=Discounted(kappa)),
        "window": lambda: UCB(gamma, memory=SlidingWindow(window)),
        "change-point": lambda: UCB(gamma, memory=ChangePoint()),
        "ucb1": lambda: UCB1(coefficient),
        "thompson": lambda: BetaSampling(memory=Discounted(kappa)),
        "thompson-gaussian": lambda: GaussianSampling(memory=Discounted(kappa)),
        "decay": lambda: Decay(tau, memory=Discounted(1.0)),
        "mean": Mean,
        "constant": lambda: Constant(rate),
    }
    return make[estimator]()


def make_memory(name: str, discount: float = 0.998, window: int = 20) -> Memory:
    """``all``, ``discounted``, ``window`` or ``change-point``.

    Examples
    --------
    >>> make_memory("window", window=7)
    SlidingWindow(window=7)
    """
    if name == "all":
        return Memory()
    if name == "discounted":
        return Discounted(discount)
    if name == "window":
        return SlidingWindow(window)
    if name == "change-point":
        return ChangePoint()
    raise ScenarioError(f"memory is all, discounted, window or change-point, not {name!r}")

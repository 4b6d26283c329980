"""Estimators of what arms are worth, shared by the families that learn from what they play.

An arm is a machine or a channel; only those played tell their value (semi-bandit feedback). An
estimator (:mod:`~gangwise.estimators.estimators`) is a way to make an estimate over a memory
(:mod:`~gangwise.estimators.memory`) that forgets or does not.
"""

from gangwise.estimators.estimators import (
    ESTIMATORS,
    UCB,
    UCB1,
    BetaSampling,
    Constant,
    Decay,
    DiscountedUCB,
    Estimator,
    GaussianSampling,
    Mean,
    OfMemory,
    Oracle,
    confidence_radius,
    make_estimator,
    make_memory,
    upper_bound,
)
from gangwise.estimators.memory import Discounted, Memory, SlidingWindow

__all__ = ["ESTIMATORS", "UCB", "UCB1", "BetaSampling", "Constant", "Decay"]
__all__ += ["Discounted", "DiscountedUCB", "Estimator", "GaussianSampling", "Mean"]
__all__ += ["Memory", "OfMemory", "Oracle", "SlidingWindow", "confidence_radius", "make_estimator"]
__all__ += ["make_memory", "upper_bound"]

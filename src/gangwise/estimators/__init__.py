"""Estimators of what arms are worth, shared by the families that learn from what they play.

An arm is a machine or a channel; only those played tell their value (semi-bandit feedback). An
estimator is a way to make an estimate (:mod:`.bounds`, :mod:`.sampling`, :mod:`.decay`) over a
memory (:mod:`.memory`) that forgets or does not.
"""

from gangwise.estimators.bounds import UCB, UCB1, confidence_radius, upper_bound
from gangwise.estimators.change_point import ChangePoint
from gangwise.estimators.decay import Decay
from gangwise.estimators.estimator import Estimator, Mean, OfMemory
from gangwise.estimators.given import Constant, Oracle
from gangwise.estimators.memory import Discounted, Memory, SlidingWindow
from gangwise.estimators.named import ESTIMATORS, make_estimator, make_memory
from gangwise.estimators.sampling import BetaSampling, GaussianSampling

__all__ = [
    "ESTIMATORS",
    "UCB",
    "UCB1",
    "BetaSampling",
    "ChangePoint",
    "Constant",
    "Decay",
    "Discounted",
    "Estimator",
    "GaussianSampling",
    "Mean",
    "Memory",
    "OfMemory",
    "Oracle",
    "SlidingWindow",
    "confidence_radius",
    "make_estimator",
    "make_memory",
    "upper_bound",
]

"""Gangs (OGASched §3.5): jobs of several tasks that start together or not at all."""

from gangwise.gain_overhead.gang.baselines import (
    GangBinPacking,
    GangDRF,
    GangFairness,
    GangRandom,
    GangSpreading,
)
from gangwise.gain_overhead.gang.environment import GangEnvironment, GangInstance
from gangwise.gain_overhead.gang.exact import solve
from gangwise.gain_overhead.gang.family import GangFamily
from gangwise.gain_overhead.gang.greedy import GangGreedy
from gangwise.gain_overhead.gang.offline import best_fixed, per_slot_optimum
from gangwise.gain_overhead.gang.ogasched import GangOGASched
from gangwise.gain_overhead.gang.placement import Placement
from gangwise.gain_overhead.gang.problem import GangProblem, GangReward
from gangwise.gain_overhead.gang.solution import GangSolution

__all__ = [
    "GangBinPacking",
    "GangDRF",
    "GangEnvironment",
    "GangFairness",
    "GangFamily",
    "GangGreedy",
    "GangInstance",
    "GangOGASched",
    "GangProblem",
    "GangRandom",
    "GangReward",
    "GangSolution",
    "GangSpreading",
    "Placement",
    "best_fixed",
    "per_slot_optimum",
    "solve",
]

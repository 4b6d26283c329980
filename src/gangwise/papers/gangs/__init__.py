"""Gangs: jobs of several tasks that start together or not at all (OGASched §3.5, ESDP §3.4)."""

from __future__ import annotations

from gangwise.papers.gangs.environment import (
    GangEnvironment,
    GangFamily,
    GangInstance,
    GangSpeedsEnvironment,
    GangSpeedsFamily,
    GangSpeedsInstance,
    best_fixed,
    omniscient,
    per_slot_optimum,
)
from gangwise.papers.gangs.milp import ExactGangs, GangSolution, solve
from gangwise.papers.gangs.placement import FastGangs, GangSolver, Placement
from gangwise.papers.gangs.policies import (
    GangBestFit,
    GangBinPacking,
    GangCUCB,
    GangDRF,
    GangESDP,
    GangFairness,
    GangFirstFit,
    GangGreedy,
    GangMeans,
    GangOGASched,
    GangRandom,
    GangSpreading,
    GangVolcano,
)
from gangwise.papers.gangs.problem import (
    GangPlacementProblem,
    GangProblem,
    GangReward,
    GangSpeedsProblem,
)

__all__ = ["ExactGangs", "FastGangs", "GangBestFit", "GangBinPacking", "GangCUCB", "GangDRF"]
__all__ += ["GangESDP", "GangEnvironment", "GangFairness", "GangFamily", "GangFirstFit"]
__all__ += ["GangGreedy", "GangInstance", "GangMeans", "GangOGASched", "GangPlacementProblem"]
__all__ += ["GangProblem", "GangRandom", "GangReward", "GangSolution", "GangSolver"]
__all__ += ["GangSpeedsEnvironment", "GangSpeedsFamily", "GangSpeedsInstance", "GangSpeedsProblem"]
__all__ += ["GangSpreading", "GangVolcano", "Placement", "best_fixed", "omniscient"]
__all__ += ["per_slot_optimum", "solve"]

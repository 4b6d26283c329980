"""Gangs at fluctuating speeds (ESDP §3.4): all-or-nothing jobs on channels yet to be learned."""

from gangwise.fluctuating_speeds.gang.baselines import GangBestFit, GangFirstFit, GangVolcano
from gangwise.fluctuating_speeds.gang.environment import GangSpeedsEnvironment, GangSpeedsInstance
from gangwise.fluctuating_speeds.gang.exact import ExactGangs
from gangwise.fluctuating_speeds.gang.family import GangSpeedsFamily
from gangwise.fluctuating_speeds.gang.learners import GangCUCB, GangESDP, GangMeans
from gangwise.fluctuating_speeds.gang.offline import omniscient, pseudo_regret
from gangwise.fluctuating_speeds.gang.placement import FastGangs, GangSolver
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem

__all__ = [
    "ExactGangs",
    "FastGangs",
    "GangBestFit",
    "GangCUCB",
    "GangESDP",
    "GangFirstFit",
    "GangMeans",
    "GangSolver",
    "GangSpeedsEnvironment",
    "GangSpeedsFamily",
    "GangSpeedsInstance",
    "GangSpeedsProblem",
    "GangVolcano",
    "omniscient",
    "pseudo_regret",
]

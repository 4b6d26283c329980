"""Fluctuating speeds: channels whose worth is learned while they are used (ESDP).

A job that arrives is spread over channels to servers; every channel brings a utility that
fluctuates around an unknown mean and costs supply. Devices are shared by the whole cluster.
"""

from gangwise.core.delivery import Delivery
from gangwise.fluctuating_speeds.costs import functional_cost, linear_cost
from gangwise.fluctuating_speeds.cucb import CUCB
from gangwise.fluctuating_speeds.drifting import PiecewiseSpeeds, WavingSpeeds
from gangwise.fluctuating_speeds.environment import (
    Feedback,
    FluctuatingSpeedsEnvironment,
    FluctuatingSpeedsInstance,
    Observation,
)
from gangwise.fluctuating_speeds.epsilon_greedy import EpsilonGreedy
from gangwise.fluctuating_speeds.esdp import ESDP, ESDPAsPrinted
from gangwise.fluctuating_speeds.family import FluctuatingSpeedsFamily
from gangwise.fluctuating_speeds.hauf import HAUF, HAUFChannel
from gangwise.fluctuating_speeds.lcf import LCF
from gangwise.fluctuating_speeds.lwtf import LWTF
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.offline import omniscient, pseudo_regret
from gangwise.fluctuating_speeds.pool import Pool
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.random_channels import RandomChannels
from gangwise.fluctuating_speeds.replayed import ReplayedSpeeds
from gangwise.fluctuating_speeds.sequences import DELTAS, EXPLORATIONS
from gangwise.fluctuating_speeds.speeds import (
    BernoulliSpeeds,
    BetaSpeeds,
    NormalSpeeds,
    Speeds,
)
from gangwise.fluctuating_speeds.thompson import ThompsonBeta, ThompsonGaussian
from gangwise.fluctuating_speeds.welfare import Welfare, welfare

__all__ = [
    "CUCB",
    "DELTAS",
    "ESDP",
    "EXPLORATIONS",
    "HAUF",
    "LCF",
    "LWTF",
    "BernoulliSpeeds",
    "BetaSpeeds",
    "Delivery",
    "ESDPAsPrinted",
    "EpsilonGreedy",
    "Feedback",
    "FluctuatingSpeedsEnvironment",
    "FluctuatingSpeedsFamily",
    "FluctuatingSpeedsInstance",
    "FluctuatingSpeedsProblem",
    "HAUFChannel",
    "NormalSpeeds",
    "Observation",
    "PiecewiseSpeeds",
    "Pool",
    "RandomChannels",
    "ReplayedSpeeds",
    "Scale",
    "Speeds",
    "ThompsonBeta",
    "ThompsonGaussian",
    "WavingSpeeds",
    "Welfare",
    "functional_cost",
    "linear_cost",
    "omniscient",
    "pseudo_regret",
    "welfare",
]

"""Fluctuating speeds: channels whose worth is learned while they are used (ESDP).

A job that arrives is spread over channels to servers; every channel brings a utility that
fluctuates around an unknown mean and costs supply. Devices are shared by the whole cluster.
"""

from gangwise.core.workload import Delivery
from gangwise.papers.fluctuating_speeds.environment import (
    Feedback,
    FluctuatingSpeedsEnvironment,
    FluctuatingSpeedsFamily,
    FluctuatingSpeedsInstance,
    Observation,
    omniscient,
    pseudo_regret,
)
from gangwise.papers.fluctuating_speeds.policies import (
    CUCB,
    DELTAS,
    ESDP,
    EXPLORATIONS,
    HAUF,
    LCF,
    LWTF,
    EpsilonGreedy,
    ESDPAsPrinted,
    HAUFChannel,
    RandomChannels,
    ThompsonBeta,
    ThompsonGaussian,
)
from gangwise.papers.fluctuating_speeds.problem import (
    FluctuatingSpeedsProblem,
    Pool,
    Scale,
    linear_cost,
)
from gangwise.papers.fluctuating_speeds.speeds import (
    BernoulliSpeeds,
    BetaSpeeds,
    NormalSpeeds,
    PiecewiseSpeeds,
    RecordedSpeeds,
    ReplayedSpeeds,
    Speeds,
    WavingSpeeds,
)

__all__ = ["CUCB", "DELTAS", "ESDP", "EXPLORATIONS", "HAUF", "LCF", "LWTF", "BernoulliSpeeds"]
__all__ += ["BetaSpeeds", "Delivery", "ESDPAsPrinted", "EpsilonGreedy", "Feedback"]
__all__ += ["FluctuatingSpeedsEnvironment", "FluctuatingSpeedsFamily", "FluctuatingSpeedsInstance"]
__all__ += ["FluctuatingSpeedsProblem", "HAUFChannel", "NormalSpeeds", "Observation"]
__all__ += ["PiecewiseSpeeds", "Pool", "RandomChannels", "RecordedSpeeds", "ReplayedSpeeds"]
__all__ += ["Scale", "Speeds", "ThompsonBeta", "ThompsonGaussian", "WavingSpeeds"]
__all__ += ["linear_cost", "omniscient", "pseudo_regret"]

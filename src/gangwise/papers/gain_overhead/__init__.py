"""Gain minus overhead: OGASched, its rivals and its comparators.

Jobs hold devices on many servers for one slot. More devices on a server add gain with diminishing
returns; the device type that dominates a job's communication costs overhead. Arrivals are unknown.
"""

from gangwise.papers.gain_overhead.offline import best_fixed, per_slot_optimum, regret_bound, solve
from gangwise.papers.gain_overhead.policies import (
    DRF,
    BinPacking,
    DRFAsPrinted,
    Fairness,
    Greedy,
    OGASchedAsPrinted,
    OGASchedReact,
    OGASchedReserve,
    RandomOrder,
    Spreading,
    diameter,
    dominant_shares,
    gradient_bound,
    marginal_greedy,
    project,
    project_as_printed,
    proportional_shares,
)
from gangwise.papers.gain_overhead.problem import (
    LINEAR,
    LOG,
    POLY,
    RECIPROCAL,
    Feedback,
    GainOverheadEnvironment,
    GainOverheadFamily,
    GainOverheadInstance,
    GainOverheadProblem,
    Observation,
    Reward,
    Utilities,
    Utility,
)

__all__ = ["DRF", "LINEAR", "LOG", "POLY", "RECIPROCAL", "BinPacking", "DRFAsPrinted", "Fairness"]
__all__ += ["Feedback", "GainOverheadEnvironment", "GainOverheadFamily", "GainOverheadInstance"]
__all__ += ["GainOverheadProblem", "Greedy", "OGASchedAsPrinted", "OGASchedReact"]
__all__ += ["OGASchedReserve", "Observation", "RandomOrder", "Reward", "Spreading", "Utilities"]
__all__ += ["Utility", "best_fixed", "diameter", "dominant_shares", "gradient_bound"]
__all__ += ["marginal_greedy", "per_slot_optimum", "project", "project_as_printed"]
__all__ += ["proportional_shares", "regret_bound", "solve"]

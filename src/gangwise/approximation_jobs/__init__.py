"""Approximation jobs: partial work is worth something, machines are unreliable, budgets bind.

"Machine" is the word that the paper of OPS and OPM uses for a server, and this family keeps it.
"""

from gangwise.approximation_jobs.baselines import DeadlineAware, Fair, UtilityPerPrice
from gangwise.approximation_jobs.environment import (
    ApproximationEnvironment,
    ApproximationFamily,
    ApproximationInstance,
    Feedback,
    Observation,
    Results,
)
from gangwise.approximation_jobs.opm import OPM, PrimalDual
from gangwise.approximation_jobs.ops import OPS
from gangwise.approximation_jobs.problem import (
    ApproximationProblem,
    Job,
    JobTable,
    Log,
    Own,
    Power,
    Saturating,
    Utility,
)
from gangwise.approximation_jobs.processes import (
    IidRates,
    JobStream,
    JobWorkload,
    Outage,
    PoissonJobs,
    RateProcess,
    RateStream,
    ReplayedJobs,
    ReplayedRates,
)
from gangwise.approximation_jobs.rates import MarkovRates, MeasuredRates, Removals

__all__ = [
    "OPM",
    "OPS",
    "ApproximationEnvironment",
    "ApproximationFamily",
    "ApproximationInstance",
    "ApproximationProblem",
    "DeadlineAware",
    "Fair",
    "Feedback",
    "IidRates",
    "Job",
    "JobStream",
    "JobTable",
    "JobWorkload",
    "Log",
    "MarkovRates",
    "MeasuredRates",
    "Observation",
    "Outage",
    "Own",
    "PoissonJobs",
    "Power",
    "PrimalDual",
    "RateProcess",
    "RateStream",
    "Removals",
    "ReplayedJobs",
    "ReplayedRates",
    "Results",
    "Saturating",
    "Utility",
    "UtilityPerPrice",
]

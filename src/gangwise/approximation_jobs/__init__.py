"""Approximation jobs: partial work is worth something, machines are unreliable, budgets bind.

"Machine" is the word that the paper of OPS and OPM uses for a server, and this family keeps it.
"""

from gangwise.approximation_jobs.changing_rates import MarkovRates, MeasuredRates, Removals
from gangwise.approximation_jobs.deadline_aware import DeadlineAware
from gangwise.approximation_jobs.environment import (
    ApproximationEnvironment,
    ApproximationInstance,
    Observation,
)
from gangwise.approximation_jobs.execution import Feedback
from gangwise.approximation_jobs.fair import Fair
from gangwise.approximation_jobs.family import ApproximationFamily
from gangwise.approximation_jobs.opm import OPM
from gangwise.approximation_jobs.ops import OPS
from gangwise.approximation_jobs.primal_dual import PrimalDual
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
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
from gangwise.approximation_jobs.results import Results
from gangwise.approximation_jobs.table import JobTable
from gangwise.approximation_jobs.utilities import Log, Own, Power, Saturating, Utility
from gangwise.approximation_jobs.utility_per_price import UtilityPerPrice

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

"""Approximation jobs: partial work is worth something, machines are unreliable, budgets bind.

"Machine" is the word that the paper of OPS and OPM uses for a server, and this family keeps it.
"""

from gangwise.papers.approximation_jobs.baselines import DeadlineAware, Fair, UtilityPerPrice
from gangwise.papers.approximation_jobs.environment import (
    ApproximationEnvironment,
    ApproximationFamily,
    ApproximationInstance,
    Feedback,
    Observation,
    Outage,
)
from gangwise.papers.approximation_jobs.opm import OPM, OPS, PrimalDual
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    Job,
    JobTable,
    Log,
    Power,
    Saturating,
    Utility,
)
from gangwise.papers.approximation_jobs.workloads import (
    IidRates,
    JobStream,
    JobWorkload,
    PoissonJobs,
    RateProcess,
    RateStream,
    ReplayedJobs,
    ReplayedRates,
)

__all__ = ["OPM", "OPS", "ApproximationEnvironment", "ApproximationFamily"]
__all__ += ["ApproximationInstance", "ApproximationProblem", "DeadlineAware", "Fair"]
__all__ += ["Feedback", "IidRates", "Job", "JobStream", "JobTable", "JobWorkload", "Log"]
__all__ += ["Observation", "Outage", "PoissonJobs", "Power"]
__all__ += ["PrimalDual", "RateProcess", "RateStream", "ReplayedJobs", "ReplayedRates"]
__all__ += ["Saturating", "Utility", "UtilityPerPrice"]

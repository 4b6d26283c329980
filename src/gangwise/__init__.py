"""Schedulers that learn, for jobs that need many servers at once.

>>> import gangwise
>>> comparison = gangwise.compare("ogasched-default-v1", ["fairness", "drf"], slots=10, seeds=[0])
>>> [row.policy for row in comparison.table()]
['drf', 'fairness']
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING, Any

# numba words and colours an error for each template of an operator that does not match, and catches
# it: a twentieth of a compilation. It reads this when it is imported.
_os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

from gangwise import catalogue as _catalogue  # noqa: F401 - registers the built-in names
from gangwise import moved as _moved  # noqa: F401 - old import paths
from gangwise.core.registry import loaded_on_use

if TYPE_CHECKING:
    from gangwise.core.contracts import (
        Comparator,
        Environment,
        Instance,
        Outcome,
        Policy,
        PolicyBase,
        Scenario,
        clone,
        configuration,
    )
    from gangwise.core.errors import (
        GangwiseError,
        InfeasibleDecision,
        ScenarioError,
        StoreError,
        TraceError,
        UnknownName,
    )
    from gangwise.core.registry import register
    from gangwise.core.simulation import (
        Interrupted,
        PolicyCheckFailed,
        Run,
        Simulation,
        Streams,
        check_policy,
        simulate,
    )
    from gangwise.core.workload import (
        BernoulliArrivals,
        BinomialArrivals,
        Channels,
        Cluster,
        JobType,
        OnOffArrivals,
        ReplayedArrivals,
        Server,
        Workload,
    )
    from gangwise.jobs import Scheduler, SchedulerCheckFailed, check_scheduler, create_scheduler
    from gangwise.report.pages import write_report
    from gangwise.study.compare import Comparison, compare
    from gangwise.study.replay import Replayed, replay
    from gangwise.study.results import Results

__getattr__ = loaded_on_use(__name__, __file__)
__version__ = "0.3.0"

__all__ = ["BernoulliArrivals", "BinomialArrivals", "Channels", "Cluster", "Comparator"]
__all__ += ["Comparison", "Environment", "GangwiseError", "InfeasibleDecision"]
__all__ += ["Instance", "Interrupted", "JobType", "OnOffArrivals", "Outcome", "Policy"]
__all__ += ["PolicyBase", "PolicyCheckFailed", "Replayed", "ReplayedArrivals", "Results", "Run"]
__all__ += ["Scenario", "ScenarioError", "Scheduler", "SchedulerCheckFailed", "Server"]
__all__ += ["Simulation", "StoreError", "Streams", "TraceError", "UnknownName", "Workload"]
__all__ += ["__version__", "check_policy", "check_scheduler", "clone", "compare", "configuration"]
__all__ += ["create_policy", "create_scenario", "create_scheduler", "register", "replay"]
__all__ += ["simulate", "write_report"]


def __dir__() -> list[str]:
    return __all__


def create_policy(specification: str, **arguments: Any) -> Policy[Any, Any, Any]:
    """Build a registered policy, such as ``"ogasched-react:steps=5"``.

    Examples
    --------
    >>> create_policy("ogasched-react:steps=5").steps
    5
    """
    from gangwise.core.registry import create

    policy: Policy[Any, Any, Any] = create("policy", specification, **arguments)
    return policy


def create_scenario(specification: str, **arguments: Any) -> Scenario:
    """Build a registered scenario, such as ``"ogasched-default-v1:contention=1"``.

    Examples
    --------
    >>> create_scenario("ogasched-default-v1", contention=1).describe()["contention"]
    1.0
    """
    from gangwise.core.registry import create

    scenario: Scenario = create("scenario", specification, **arguments)
    return scenario

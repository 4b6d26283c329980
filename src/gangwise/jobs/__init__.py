"""Jobs as a cluster's operators know them: submitted, waiting, placed whole, run, ended.

>>> from gangwise.jobs import Jobs, Nodes, simulate_jobs
>>> jobs = Jobs.of(submit=[0, 1, 2], run=[10, 10, 5], tasks=[3, 2, 1])
>>> simulate_jobs(jobs, Nodes.pool(4), "fcfs+easy+best-fit").start
array([ 0., 10.,  2.])
"""

from typing import TYPE_CHECKING

from gangwise.core.registry import loaded_on_use

if TYPE_CHECKING:
    from gangwise.catalogue import parts, register_part
    from gangwise.jobs.books import (
        Ask,
        Books,
        Event,
        Explanation,
        Place,
        Preempt,
        Queue,
        Rate,
        Running,
    )
    from gangwise.jobs.check import SchedulerCheckFailed, check_scheduler
    from gangwise.jobs.model import Account, Conditions, Group, Job, Jobs, Node, Nodes, Shape
    from gangwise.jobs.schedule import Options, Schedule
    from gangwise.jobs.scheduler import Composed, Scheduler, create_scheduler
    from gangwise.jobs.simulation import simulate_jobs

# Rules of sites build on the modules here, and the simulation on them: which of both packages is
# imported first may not matter.
__getattr__ = loaded_on_use(__name__, __file__)

__all__ = ["Account", "Ask", "Books", "Composed", "Conditions", "Event", "Explanation", "Group"]
__all__ += ["Job", "Jobs", "Node", "Nodes", "Options", "Place", "Preempt", "Queue", "Rate"]
__all__ += ["Running", "Schedule", "Scheduler", "SchedulerCheckFailed", "Shape", "check_scheduler"]
__all__ += ["create_scheduler", "parts", "register_part", "simulate_jobs"]

"""Gang schedulers in use that do not ask how fast a server is: they place what finds room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.policy import Timing
from gangwise.fluctuating_speeds.environment import Feedback, Observation
from gangwise.fluctuating_speeds.gang.placement import ordered
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem, server_order
from gangwise.gain_overhead.gang.placement import job_by_job, server_size
from gangwise.kernels import gang_scored

__all__ = ["GangBestFit", "GangFirstFit", "GangVolcano"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class GangFirstFit:
    """Job by job as listed, each task on the first server with room; the largest servers first.

    A job that falls short of its minimum gives back what it holds, and the next one has it.
    """

    family = "fluctuating_speeds_gang"
    timing: Timing = field(init=False, repr=False, default="react")

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem."""
        self._problem, self._servers = problem, ordered(problem)
        self._size = server_size(problem.gangs)

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        jobs = np.flatnonzero(observation.arrivals)
        order, ends = job_by_job(self._problem.gangs, jobs)
        return self._servers.in_order(order, ends, 0.0, self._size)

    def learn(self, feedback: Iterable[Feedback]) -> None:
        """Nothing is learned."""


@dataclass
class GangBestFit(GangFirstFit):
    """Job by job as listed, the largest task first, each on the server that it fills most.

    Filled is the mean share, over the device types that the task requests, that is handed out with
    the task in place. The largest task is that of the largest share of any server's largest device.
    """

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        """Sort the tasks of each job type once."""
        super().start(problem, rng)
        largest = np.maximum(problem.cluster.capacity.max(axis=0), np.finfo(float).tiny)
        share = (problem.task_requests / largest).max(axis=1)
        self._rank = np.lexsort((-share, problem.task_job_type)).astype(np.int64)

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        servers, jobs = self._servers, np.flatnonzero(observation.arrivals)
        servers.reset()
        gang_scored.job_by_job(servers.gangs, servers.held, jobs, self._rank, 1.0)
        return servers.decision()


@dataclass
class GangVolcano(GangFirstFit):
    """The allocate action of Volcano with its plugins gang, priority, drf and binpack.

    As implemented here, for jobs that last one slot:

    * a queue of the jobs that arrived; first comes a job short of its minimum (gang), then the
      larger priority, then the smaller dominant share of the whole cluster that the job holds at
      the moment (drf), then the job type listed first;
    * the first job places its tasks in their order until it is ready, that is, has its minimum; it
      goes back to the queue, and from then on places one task whenever it comes first;
    * a task goes to the server of the best score: ``binpack`` takes the one that it fills most (the
      mean, over the device types it requests, of used + requested over capacity), and
      ``least-requested`` the one that it fills least; ties go to the larger server;
    * a task that finds no room ends its job: a ready job keeps what it has, another gives it all
      back, and is not tried again in this slot.

    Preemption, queues with quotas, and the other plugins are left out.

    Parameters
    ----------
    score : {"binpack", "least-requested"}
        How servers are scored.
    priority : mapping of str to int, optional
        Of job types by name; 0 where absent.
    """

    score: str = "binpack"
    priority: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.score not in ("binpack", "least-requested"):
            raise ScenarioError(f"score is binpack or least-requested, not {self.score!r}")
        for name, level in dict[str, Any](self.priority).items():
            if not isinstance(level, int):
                raise ScenarioError(f"priority of job type {name!r} is {level!r}; a whole number")

    def start(self, problem: GangSpeedsProblem, rng: np.random.Generator) -> None:
        """Bind to a problem, and look up the priorities."""
        super().start(problem, rng)
        for name in self.priority:
            if name not in problem.job_types:
                raise UnknownName("job type", name, list(problem.job_types))
        level = [self.priority.get(name, 0) for name in problem.job_types]
        self._priority = np.array(level, dtype=np.int64)
        self._total = problem.cluster.capacity[server_order(problem)].sum(axis=0)
        self._done = np.empty(problem.L, dtype=np.int64)
        self._sign = 1.0 if self.score == "binpack" else -1.0

    def decide(self, observation: Observation) -> Ints:
        """Server of each task, -1 for none."""
        servers = self._servers
        servers.reset()
        gang_scored.take_turns(
            servers.gangs, servers.held, self._priority, observation.arrivals, self._total,
            self._sign, self._done,
        )  # fmt: skip
        return servers.decision()

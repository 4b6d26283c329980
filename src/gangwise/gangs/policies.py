"""Gang policies that know the reward: OGASched for gangs, a greedy, and the paper's baselines.

A decision [Q] names the server of each task, -1 for none.

OGASched §3.5 leaves the design of gangs out. Here the ascent of the reactive mode climbs on the
relaxed problem, in which a job type requests Σ_q a_l^q of every server, and its point is rounded:
tasks go where the plan covers them, gangs are completed or rolled back, room that is left is
offered to tasks and jobs that are worth it, and jobs are rebuilt, one and two at a time, where that
raises the reward. The same local search also starts from the gangs that each job type launched
last, and the better of the two is played, so that a search which one slot leaves unfinished goes on
in the next.

No regret bound is known for this policy: the set of decisions is not convex, and the relaxed
problem does not know that a task runs on one server only, so its plan says where a job type may go
rather than how much it will get. On ``ogasched-gang-v1`` most of what this policy earns above the
plain greedy is due to rebuilding and remembering gangs; what starting from the plan adds is within
the noise (-0.6 ± 1.5 % over ten seeds).

The baselines of OGASched §4 under the gang rule are all list scheduling with an order of tasks and
a score of servers. None weighs gains: they place every task that finds room, as the schedulers that
they stand for do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gangwise.core.arrays import Floats, Ints, check_numbers
from gangwise.core.contracts import PolicyBase
from gangwise.gain_overhead.baselines import dominant_shares
from gangwise.gain_overhead.environment import Observation
from gangwise.gain_overhead.ogasched import OGASchedReact
from gangwise.gangs.placement import Placement, job_by_job, round_robin
from gangwise.gangs.problem import GangProblem, relative_size


@dataclass
class GangOGASched(PolicyBase):
    """OGASched for gangs (OGASched §3.5): climb, round the plan to whole gangs, improve them.

    Parameters
    ----------
    steps : int
        Ascent steps in a slot.
    fraction, smoothing : float
        As in :class:`gangwise.gain_overhead.OGASchedReact`.
    least : float
        How much of a task's request the plan must cover on a server for the task to follow it
        there, 0 to 1; what completes a gang, and what is added later, may use any server.
    passes : int
        How often to go over all jobs and rebuild them where that raises the reward, at most.
    remember : bool
        Whether to start from the gangs launched last, too, and play the better outcome.
    """

    steps: int = 10
    fraction: float = 0.4
    smoothing: float = 0.03
    least: float = 1.0
    passes: int = 3
    remember: bool = True
    family = "gain_overhead_gang"

    def __post_init__(self) -> None:
        self._planner = OGASchedReact(
            steps=self.steps, fraction=self.fraction, smoothing=self.smoothing
        )
        check_numbers("[0, 1]", least=self.least)
        check_numbers("[0, inf)", passes=self.passes)

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        self._planner.start(problem.relaxed, rng)
        self._servers = Placement(problem)
        self._memory = np.full(problem.Q, -1, dtype=np.int64)
        self._worth = np.zeros(problem.L)

    def decide(self, observation: Observation) -> Ints:
        plan, x = self._planner.decide(observation), observation.arrived
        servers = self._servers
        servers.reset()
        servers.round_plan(x, plan, self.least)
        played, rewards = self._finish(x)
        if self.remember:  # a second start for the local search: what worked last time
            servers.reset()
            servers.place_remembered(x, self._memory, self._worth)
            again, recalled = self._finish(x)
            if recalled.sum() > rewards.sum() + 1e-9 * (1.0 + abs(rewards.sum())):
                played, rewards = again, recalled
            self._remember(x, played, rewards)
        return np.where(played >= 0, servers.problem.channels.server[played], -1)

    def _finish(self, arrivals: Ints) -> tuple[Ints, Floats]:
        """Use what room is left, improve; the channel of each task, the reward of each job."""
        self._servers.greedy(arrivals)
        self._servers.local_search(arrivals, self.passes)
        return self._servers.held.channel.copy(), self._servers.rewards()

    def _remember(self, arrivals: Ints, played: Ints, rewards: Floats) -> None:
        """Remember what was launched; a job that arrived and was not keeps its gang, but last."""
        problem = self._servers.problem
        launched = np.zeros(problem.L, dtype=bool)
        launched[problem.task_job_type[played >= 0]] = True
        mine = launched[problem.task_job_type]  # all tasks of a job at once, those left out as -1
        self._memory[mine] = played[mine]
        self._worth = np.where(arrivals != 0, rewards, self._worth)  # 0 if it was left out


@dataclass
class GangGreedy(PolicyBase):
    """Greedy: launch the gang with the largest reward, then the next, from empty servers each slot.

    A gang takes the task and server with the largest marginal reward, again and again: up to its
    minimum whatever the sign, then as long as it is positive. Gangs that cannot be completed, or
    are worth less than their overhead, are left out.

    Parameters
    ----------
    passes : int
        How often to go over all jobs afterwards and rebuild them, one and two at a time, where
        that raises the reward; 0 is the plain greedy.
    """

    passes: int = 0
    family = "gain_overhead_gang"

    def __post_init__(self) -> None:
        check_numbers("[0, inf)", passes=self.passes)

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        self._servers = Placement(problem)

    def decide(self, observation: Observation) -> Ints:
        self._servers.reset()
        self._servers.greedy(observation.arrived)
        self._servers.local_search(observation.arrived, self.passes)
        return self._servers.decision()


@dataclass
class GangBinPacking(PolicyBase):
    """BINPACKING for gangs: job by job, each task on the most used server with room."""

    family = "gain_overhead_gang"
    sign: ClassVar[float] = 1.0

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._servers = Placement(problem, weighs_gains=False)
        self._preference = relative_size(problem.cluster.capacity)

    def decide(self, observation: Observation) -> Ints:
        order, ends = self._turns(np.flatnonzero(observation.arrived))
        return self._servers.list_schedule(order, ends, self.sign, self._preference)

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        """Tasks of these jobs in the order of their placement, and where turns end."""
        return job_by_job(self._problem, jobs)


@dataclass
class GangSpreading(GangBinPacking):
    """SPREADING for gangs: job by job, each task on the least used server with room."""

    sign: ClassVar[float] = -1.0


@dataclass
class GangDRF(GangBinPacking):
    """Dominant resource fairness for gangs: jobs by ascending dominant share, largest server first.

    The dominant share is that of all the job's tasks together, of what its servers have together.
    Largest first is first fit in an order of servers that does not depend on what they are called.
    """

    sign: ClassVar[float] = 0.0

    def start(self, problem: GangProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        self._shares = dominant_shares(problem.relaxed)

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        by_share = np.argsort(self._shares[jobs], kind="stable")  # ties as listed
        return job_by_job(self._problem, jobs[by_share])


@dataclass
class GangFairness(GangBinPacking):
    """FAIRNESS for gangs, round-robin: every job places a task, then another, largest server first.

    Fractional shares of a server have no meaning for whole tasks; taking turns is what is left of
    them. Gangs that stay incomplete are rolled back and their room is offered to the others.
    """

    sign: ClassVar[float] = 0.0

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        return round_robin(self._problem, jobs)


@dataclass
class GangRandom(GangBinPacking):
    """Random order of jobs and servers; the floor that others must clear."""

    sign: ClassVar[float] = 0.0
    randomised = True

    def _turns(self, jobs: Ints) -> tuple[Ints, Ints]:
        jobs = self._rng.permutation(jobs)
        self._preference = self._rng.random(self._preference.size)
        return job_by_job(self._problem, jobs)

"""The world of gangs at fluctuating speeds: gangs are placed, channels in use tell their speed.

Feedback is semi-bandit: one observation of Z̃_(l,r)(t) for each channel in use, however many tasks
sit there, because they all meet the same speed of that server in that slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator, Outcome
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem
from gangwise.fluctuating_speeds.world import Feedback, SpeedsEnvironment, SpeedsInstance

__all__ = ["GangSpeedsEnvironment", "GangSpeedsInstance"]


@dataclass(eq=False)
class GangSpeedsEnvironment(SpeedsEnvironment):
    """Plays a workload and speeds. Built by :class:`GangSpeedsInstance`.

    The reward of a slot is the realised net utility Σ_e n_e Z̃_e. Metrics: ``mean_utility``, the
    expectation Σ_e n_e ṽ_e(t) of the same decision (pseudo-regret is the omniscient comparator's
    minus this); ``gain`` Σ n Z and ``cost`` in units of utility before normalisation; ``jobs`` that
    arrived, those ``launched``, their ``tasks``; ``utilisation`` of the servers.
    """

    instance: GangSpeedsInstance
    metrics = ("mean_utility", "gain", "cost", "jobs", "launched", "tasks", "utilisation")

    @property
    def problem(self) -> GangSpeedsProblem:
        """What policies are told."""
        return self.instance.problem

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Play a placement [Q]; say what is known by now."""
        row, problem = self._row(slot), self.problem
        arrivals, placement = self._arrivals[row], np.asarray(decision)
        tasks = problem.tasks_on(arrivals, placement, slot)
        on = np.flatnonzero(tasks)
        n, raw, cost = tasks[on], self._utilities[row, on], problem.cost[on]
        net = self.instance.scale.apply(raw, cost)
        metrics = (
            float(n @ self.means(slot)[on]), float(n @ raw), float(n @ cost),
            float(arrivals.sum()), float(np.unique(problem.channels.job_type[on]).size),
            float(n.sum()), problem.gangs.utilisation(placement),
        )  # fmt: skip
        return Outcome(float(n @ net), self._told(slot, on, net), metrics)


@dataclass(frozen=True, eq=False)
class GangSpeedsInstance(SpeedsInstance):
    """A gang problem, its workload, and what policies are not told.

    Parameters
    ----------
    time_limit : float
        Seconds that a comparator may think about one programme; what it could not prove by then is
        in ``Comparator.gap``.

    The others are those of :class:`~gangwise.fluctuating_speeds.world.SpeedsInstance`.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-gang-small-v1").instance(seed=0)
    >>> simulate(instance, create_policy("gang-first-fit"), slots=5, seed=0).slots
    5
    """

    problem: GangSpeedsProblem
    time_limit: float = 20.0
    family = "fluctuating_speeds_gang"

    def environment(self) -> GangSpeedsEnvironment:
        """A fresh environment."""
        return GangSpeedsEnvironment(self)

    def _omniscient(
        self, slots: int, seed: int, sample: int | None
    ) -> tuple[Comparator, Comparator]:
        from gangwise.fluctuating_speeds.gang.offline import omniscient

        return omniscient(self, slots, seed, sample)

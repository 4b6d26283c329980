"""The world of fluctuating speeds: arrivals are seen, channels are switched on, utilities are felt.

Only channels that were on tell their utility (semi-bandit feedback), late or never if so wished.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Comparator, Outcome
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.world import (
    Feedback,
    Observation,
    SpeedsEnvironment,
    SpeedsInstance,
)

__all__ = ["Feedback", "FluctuatingSpeedsEnvironment", "FluctuatingSpeedsInstance", "Observation"]


@dataclass(eq=False)
class FluctuatingSpeedsEnvironment(SpeedsEnvironment):
    """Plays a workload and speeds. Built by :class:`FluctuatingSpeedsInstance`.

    The reward of a slot is the realised net utility Σ x Z̃. Metrics: ``mean_utility``, the
    expectation Σ x ṽ(t) of the same decision (so that pseudo-regret can be read off without noise);
    ``gain`` Σ x Z and ``cost`` Σ x Σ_k f_k(a_k), in units of utility before normalisation; ``jobs``
    that arrived; ``channels`` that were on.
    """

    instance: FluctuatingSpeedsInstance
    metrics = ("mean_utility", "gain", "cost", "jobs", "channels")

    @property
    def problem(self) -> FluctuatingSpeedsProblem:
        """What policies are told."""
        return self.instance.problem

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Switch channels on; say what is known by now."""
        row, problem = self._row(slot), self.problem
        arrivals = self._arrivals[row]
        x = problem.check(arrivals, decision, slot)
        on = np.flatnonzero(x)
        raw, cost = self._utilities[row, on], problem.cost[on]
        net = self.instance.scale.apply(raw, cost)
        metrics = (
            float(self.means(slot)[on].sum()),
            float(raw.sum()),
            float(cost.sum()),
            float(arrivals.sum()),
            float(on.size),
        )
        return Outcome(float(net.sum()), self._told(slot, on, net), metrics)


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsInstance(SpeedsInstance):
    """A problem, its workload, and what policies are not told.

    Parameters are those of :class:`~gangwise.fluctuating_speeds.world.SpeedsInstance`.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> simulate(instance, create_policy("lcf"), slots=5, seed=0).slots
    5
    """

    problem: FluctuatingSpeedsProblem
    family = "fluctuating_speeds"

    def environment(self) -> FluctuatingSpeedsEnvironment:
        """A fresh environment."""
        return FluctuatingSpeedsEnvironment(self)

    def _omniscient(
        self, slots: int, seed: int, sample: int | None
    ) -> tuple[Comparator, Comparator]:
        from gangwise.fluctuating_speeds.offline import omniscient

        return omniscient(self, slots, seed, sample)

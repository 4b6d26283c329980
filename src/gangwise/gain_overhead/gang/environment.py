"""The world of the gang family: at most one job of each type arrives, and lasts one slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrivals import ArrivalsBySlot, first_slots
from gangwise.core.environment import Comparator, Outcome
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.policy import Timing
from gangwise.core.streams import Streams
from gangwise.core.workload import Workload
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["GangEnvironment", "GangInstance"]

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class GangEnvironment:
    """Plays a workload against a gang problem. Built by :class:`GangInstance`."""

    problem: GangProblem
    workload: Workload
    metrics: tuple[str, ...] = ("gain", "overhead", "utilisation", "jobs", "launched")
    _arrivals: ArrivalsBySlot = field(init=False, repr=False)

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run; this family has no noise besides its arrivals."""
        self._arrivals = ArrivalsBySlot(self.workload.stream(workload))

    def observe(self, slot: int, timing: Timing) -> Observation:
        """The slot's arrivals, but not for a policy that reserves."""
        return Observation(slot, None if timing == "reserve" else self._arrivals.at(slot))

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[Feedback]:
        """Reward of a placement [Q] for the jobs that arrived."""
        arrivals = self._arrivals.at(slot)
        r = self.problem.reward(arrivals, decision, slot)
        metrics = (r.gain, r.overhead, r.utilisation, float(arrivals.sum()), float(r.launched))
        return Outcome(r.reward, Feedback(slot, arrivals), metrics)


@dataclass(frozen=True, eq=False)
class GangInstance:
    """A gang problem and its workload.

    Parameters
    ----------
    problem : GangProblem
    workload : Workload
        At most one job of each type in a slot.
    time_limit : float
        Seconds that an exact comparator may think about one programme; what it could not prove by
        then is in ``Comparator.gap``.

    Raises
    ------
    ScenarioError
        When the workload does not match the job types, or brings several jobs of one type.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-gang-v1:job_types=3,servers=8").instance(seed=0)
    >>> simulate(instance, create_policy("gang-drf"), slots=5, seed=0).slots
    5
    """

    problem: GangProblem
    workload: Workload
    time_limit: float = 60.0
    family: str = "gain_overhead_gang"
    comparators: tuple[str, ...] = ("best_fixed", "per_slot_optimum")

    def __post_init__(self) -> None:
        most = np.asarray(self.workload.most)
        if most.size != self.problem.L:
            raise ScenarioError(
                f"the workload brings {most.size} job types; the problem has {self.problem.L}"
            )
        if (most > 1).any():
            l = int(np.argmax(most > 1))
            raise ScenarioError(
                f"the workload brings up to {most[l]} jobs of type {self.problem.job_types[l]!r} "
                "in one slot, and gangs are scheduled one job per type; list the type several "
                "times under different names instead"
            )

    def environment(self) -> GangEnvironment:
        """A fresh environment."""
        return GangEnvironment(self.problem, self.workload)

    def arrivals(self, slots: int, seed: int) -> Ints:
        """Arrivals of a run, shape [slots, L]: what its policies meet, drawn again."""
        return first_slots(self.workload.stream(Streams.of(seed).workload), slots)

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """``best_fixed`` or ``per_slot_optimum`` on the slots of a run (see :mod:`.offline`)."""
        from gangwise.gain_overhead.gang import offline

        evaluate: dict[str, Any] = {
            "best_fixed": offline.best_fixed,
            "per_slot_optimum": offline.per_slot_optimum,
        }
        if name not in evaluate:
            raise UnknownName("comparator", name, list(evaluate))
        comparator: Comparator = evaluate[name](
            self.problem, self.arrivals(slots, seed), sample, time_limit=self.time_limit
        )
        return comparator

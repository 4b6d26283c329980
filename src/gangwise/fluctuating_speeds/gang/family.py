"""The family of gangs at fluctuating speeds, for the tools that serve all families alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gangwise.core.delivery import Delivery
from gangwise.fluctuating_speeds.gang.environment import GangSpeedsInstance
from gangwise.fluctuating_speeds.gang.problem import GangSpeedsProblem, relabelled
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.speeds import (
    BernoulliSpeeds,
    BetaSpeeds,
    NormalSpeeds,
    Speeds,
    SpeedsInOrder,
)
from gangwise.gain_overhead.gang.family import GangFamily

__all__ = ["GangSpeedsFamily"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GangSpeedsFamily:
    """Fuzzing and relabelling of :class:`GangSpeedsInstance`."""

    name: str = "fluctuating_speeds_gang"

    def fuzz(self, rng: np.random.Generator) -> GangSpeedsInstance:
        """Awkward gangs as in the other family; costs and noise of all kinds, late feedback."""
        base = GangFamily().fuzz(rng)
        p = base.problem
        E = len(p.channels)
        mean = rng.uniform(0.05, 0.95, E)
        kinds: list[Speeds] = [NormalSpeeds(mean), BernoulliSpeeds(mean), BetaSpeeds(mean)]
        speeds = kinds[int(rng.integers(len(kinds)))]
        cost = rng.uniform(0.0, 0.5, E)
        problem = GangSpeedsProblem(
            p.cluster, p.task_job_type, p.task_requests, p.minimum, p.channels, cost
        )
        late = [Delivery(), Delivery(2), Delivery(1.5, "geometric", loss=0.2)]
        return GangSpeedsInstance(
            problem, base.workload, speeds, Scale.of("affine", speeds, cost),
            late[int(rng.integers(len(late)))],
        )  # fmt: skip

    def relabel_servers(self, instance: GangSpeedsInstance, order: Ints) -> GangSpeedsInstance:
        """The same instance with server ``order[i]`` now called ``i``; the same noise."""
        problem, before = relabelled(instance.problem, order)
        return replace(instance, problem=problem, speeds=SpeedsInOrder(instance.speeds, before))

    def relabel_decision(
        self, instance: GangSpeedsInstance, order: Ints, decision: Ints
    ) -> npt.NDArray[np.float64]:
        """A placement for ``instance`` as it reads after relabelling; -1 stays."""
        place = np.append(np.argsort(order), -1)
        return np.asarray(place[np.asarray(decision, dtype=np.int64)], dtype=np.float64)

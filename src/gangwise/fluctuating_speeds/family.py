"""The fluctuating-speeds family, for the tools that serve all families alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels
from gangwise.core.delivery import Delivery
from gangwise.core.workload import BernoulliArrivals, OnOffArrivals, Workload
from gangwise.fluctuating_speeds.drifting import PiecewiseSpeeds, WavingSpeeds
from gangwise.fluctuating_speeds.environment import FluctuatingSpeedsInstance
from gangwise.fluctuating_speeds.normalisation import Scale
from gangwise.fluctuating_speeds.pool import Pool
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.fluctuating_speeds.speeds import BetaSpeeds, NormalSpeeds, Speeds, SpeedsInOrder

__all__ = ["FluctuatingSpeedsFamily"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FluctuatingSpeedsFamily:
    """Fuzzing and relabelling of :class:`FluctuatingSpeedsInstance`."""

    name: str = "fluctuating_speeds"

    def fuzz(self, rng: np.random.Generator) -> FluctuatingSpeedsInstance:
        """A small instance: channels that never fit, absent job types, late or lost feedback.

        Requests and costs are drawn from continuous distributions, so that no two channels are
        alike before anything is known of their speed.
        """
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        mask = rng.random((L, R)) < 0.5
        mask[np.arange(L), rng.integers(0, R, L)] = True
        channels = Channels.of_mask(mask)
        E = len(channels)
        requests = rng.uniform(0.5, 2.5, (E, K)) * (rng.random((E, K)) < 0.9)
        requests[:, 0] = np.maximum(requests[:, 0], rng.uniform(0.1, 0.5, E))
        capacity = requests.sum(axis=0) * rng.choice([0.2, 0.5, 1.1], K)
        problem = FluctuatingSpeedsProblem(
            Pool(
                capacity,
                tuple(f"device-{k}" for k in range(K)),
                tuple(f"server-{r}" for r in range(R)),
            ),
            requests,
            channels,
            rng.uniform(0.0, 0.15, E),
        )
        mean = rng.uniform(0.1, 0.9, E)
        kinds: list[Speeds] = [
            NormalSpeeds(mean),
            BetaSpeeds(mean),
            PiecewiseSpeeds(np.stack([mean, mean[::-1]]), np.array([0, 5])),
            WavingSpeeds(mean, rng.random(E), period=7),
        ]
        speeds = kinds[int(rng.integers(4))]
        scale = Scale.of(str(rng.choice(["clip", "affine"])), speeds, problem.cost)
        deliveries = [Delivery(), Delivery(2), Delivery(1.5, "geometric", loss=0.2)]
        p = rng.choice([0.3, 0.7, 1.0], L)
        workload: Workload = BernoulliArrivals(p) if rng.random() < 0.7 else OnOffArrivals(p, 3, 2)
        return FluctuatingSpeedsInstance(
            problem, workload, speeds, scale, deliveries[int(rng.integers(3))]
        )

    def relabel_servers(
        self, instance: FluctuatingSpeedsInstance, order: Ints
    ) -> FluctuatingSpeedsInstance:
        """The same instance with server ``order[i]`` now called ``i``; noise moves with it."""
        problem = instance.problem
        rows, place = self._rows(problem, order)
        channels = Channels(
            problem.channels.job_type, place[problem.channels.server], problem.channels.shape
        )
        relabelled = replace(
            problem,
            channels=channels,
            requests=problem.requests[rows],
            cost=problem.cost[rows],
        )
        return replace(instance, problem=relabelled, speeds=SpeedsInOrder(instance.speeds, rows))

    def relabel_decision(
        self, instance: FluctuatingSpeedsInstance, order: Ints, decision: npt.ArrayLike
    ) -> Floats:
        """A decision for ``instance`` as it reads after relabelling."""
        return np.asarray(decision, dtype=np.float64)[self._rows(instance.problem, order)[0]]

    def _rows(self, problem: FluctuatingSpeedsProblem, order: Ints) -> tuple[Ints, Ints]:
        place = np.argsort(order)
        channels = problem.channels
        return np.lexsort((channels.job_type, place[channels.server])), place

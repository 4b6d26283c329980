"""The gang family, for the tools that serve all families alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.workload import BernoulliArrivals, OnOffArrivals, Workload
from gangwise.gain_overhead.gang.environment import GangInstance
from gangwise.gain_overhead.gang.problem import GangProblem
from gangwise.gain_overhead.utilities import Utilities

__all__ = ["GangFamily"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GangFamily:
    """Fuzzing and relabelling of :class:`GangInstance`."""

    name: str = "gain_overhead_gang"

    def fuzz(self, rng: np.random.Generator) -> GangInstance:
        """A small instance: tight servers, servers that lack devices, gangs of equal tasks."""
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        capacity = rng.uniform(0, 8, (R, K)) * (rng.random((R, K)) < 0.9)
        capacity[:, 0] = np.maximum(capacity[:, 0], rng.uniform(0.5, 1.0, R))
        mask = rng.random((L, R)) < 0.6
        mask[np.arange(L), rng.integers(0, R, L)] = True
        tasks = rng.integers(1, 6, L)
        requests = [
            self._tasks(rng, capacity[mask[l]], int(tasks[l])) for l in range(L)
        ]
        problem = GangProblem(
            Cluster(capacity, tuple(f"device-{k}" for k in range(K))),
            np.repeat(np.arange(L), tasks),
            np.concatenate(requests),
            rng.integers(1, tasks + 1),
            Channels.of_mask(mask),
            Utilities(rng.integers(0, 4, (R, K)), rng.uniform(0.5, 1.5, (R, K))),
            rng.uniform(0, 0.9, K),
        )
        p = rng.choice([0.0, 0.3, 0.7, 1.0], L)
        kinds: list[Workload] = [BernoulliArrivals(p), OnOffArrivals(p, 3.0, 2.0)]
        return GangInstance(problem, kinds[int(rng.integers(2))])

    def _tasks(
        self, rng: np.random.Generator, servers: npt.NDArray[np.float64], count: int
    ) -> npt.NDArray[np.float64]:
        """Requests of one job type: a part of some server that it connects to."""
        model = servers[rng.integers(0, len(servers), count)]
        requests = model * rng.uniform(0.1, 1.0, model.shape) * (rng.random(model.shape) < 0.8)
        requests[:, 0] = np.maximum(requests[:, 0], 0.1 * model[:, 0])
        if rng.random() < 0.5:
            requests[: count // 2 + 1] = requests[0]
        return np.asarray(requests)

    def relabel_servers(self, instance: GangInstance, order: Ints) -> GangInstance:
        """The same instance with server ``order[i]`` now called ``i``."""
        base = instance.problem
        place = np.argsort(order)
        problem = replace(
            base,
            cluster=replace(base.cluster, capacity=base.cluster.capacity[order]),
            channels=Channels(
                base.channels.job_type, place[base.channels.server], base.channels.shape
            ),
            utilities=replace(
                base.utilities,
                kind=base.utilities.kind[order],
                alpha=base.utilities.alpha[order],
            ),
        )
        return replace(instance, problem=problem)

    def relabel_decision(
        self, instance: GangInstance, order: Ints, decision: Ints
    ) -> npt.NDArray[np.float64]:
        """A placement for ``instance`` as it reads after relabelling; -1 stays."""
        place = np.append(np.argsort(order), -1)
        return np.asarray(place[np.asarray(decision, dtype=np.int64)], dtype=np.float64)

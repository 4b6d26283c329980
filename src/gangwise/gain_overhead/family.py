"""The gain-minus-overhead family, for the tools that serve all families alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels, Cluster
from gangwise.core.workload import BernoulliArrivals, BinomialArrivals, OnOffArrivals, Workload
from gangwise.gain_overhead.environment import GainOverheadInstance
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gain_overhead.utilities import Utilities

__all__ = ["GainOverheadFamily"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GainOverheadFamily:
    """Fuzzing and relabelling of :class:`GainOverheadInstance`."""

    name: str = "gain_overhead"

    def fuzz(self, rng: np.random.Generator) -> GainOverheadInstance:
        """A small instance; some servers lack devices, some job types never come."""
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        capacity = rng.uniform(0, 8, (R, K)) * (rng.random((R, K)) < 0.9)
        capacity[0, 0] = max(capacity[0, 0], 1.0)
        requests = rng.uniform(0, 8, (L, K)) * (rng.random((L, K)) < 0.9)
        requests[:, 0] = np.maximum(requests[:, 0], 0.1)
        mask = rng.random((L, R)) < 0.6
        mask[np.arange(L), rng.integers(0, R, L)] = True
        problem = GainOverheadProblem(
            Cluster(capacity, tuple(f"device-{k}" for k in range(K))),
            requests,
            Channels.of_mask(mask),
            Utilities(rng.integers(0, 4, (R, K)), rng.uniform(0.5, 1.5, (R, K))),
            rng.uniform(0, 0.6, K),
        )
        p = rng.choice([0.0, 0.3, 0.7, 1.0], L)
        kinds: list[Workload] = [
            BernoulliArrivals(p),
            BinomialArrivals(p, rng.integers(1, 4, L)),
            OnOffArrivals(p, 3.0, 2.0),
        ]
        return GainOverheadInstance(problem, kinds[int(rng.integers(3))])

    def relabel_servers(
        self, instance: GainOverheadInstance, order: Ints
    ) -> GainOverheadInstance:
        """The same instance with server ``order[i]`` now called ``i``."""
        base = instance.base
        place = np.argsort(order)
        channels = Channels(
            base.channels.job_type, place[base.channels.server], base.channels.shape
        )
        cluster = replace(base.cluster, capacity=base.cluster.capacity[order])
        utilities = replace(
            base.utilities,
            kind=base.utilities.kind[order],
            alpha=base.utilities.alpha[order],
        )
        problem = replace(base, cluster=cluster, channels=channels, utilities=utilities)
        return replace(instance, base=problem)

    def relabel_decision(
        self, instance: GainOverheadInstance, order: Ints, decision: Floats
    ) -> Floats:
        """A decision for ``instance`` as it reads after relabelling."""
        channels = instance.problem.channels
        place = np.argsort(order)
        rows = np.lexsort((channels.job_type, place[channels.server]))
        return np.asarray(decision)[rows]

"""From the tables of a trace to a gain-minus-overhead problem and its arrivals.

The steps of :mod:`gangwise.traces.slots.demand`, and then, also settings
(:class:`~gangwise.traces.slots.settings.Settings`): units, contention, utilities, overhead. A job
type is connected to every server that can hold one of its jobs whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gangwise.core.cluster import Channels
from gangwise.core.settings import checked
from gangwise.core.simulation import Streams
from gangwise.core.workload import ReplayedArrivals
from gangwise.gain_overhead.environment import GainOverheadInstance
from gangwise.gain_overhead.problem import GainOverheadProblem, Utilities
from gangwise.traces.slots.demand import OfTrace, demand_of
from gangwise.traces.slots.grouping import contested, in_units, rivalry
from gangwise.traces.slots.settings import Settings
from gangwise.traces.tables import Tables, Trace

NO_RIVALS = (
    "jobs never compete: all that the jobs of any slot ask for is there on every server that they "
    "may use, so policies that give what is asked for cannot differ; raise contention, or take "
    "fewer servers or longer slots"
)


class TraceScenario(OfTrace):
    """A trace, played as a scenario: the seed draws utilities, overhead and thinning.

    It takes a reader, or what one has read, and fields of
    :class:`~gangwise.traces.slots.settings.Settings`. ``counts`` [slots, L] are the jobs of each
    type that are created in each slot, before ``keep``; ``mask`` [L, R] says where channels are.

    Raises TraceError when the trace cannot be read or no job of it can be played, and ScenarioError
    for a setting, which it names.
    """

    family = "gain_overhead"

    def __init__(self, trace: Trace | Tables, *, name: str = "", **settings: Any):
        self.tables = tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-v2"
        self.settings = s = checked(Settings, self.name, settings)
        most = 1 if s.arrivals == "indicator" else s.most_jobs  # None: as many as it takes
        self.demand = demand = demand_of(tables, s, most)
        self.counts, self.mask, self.grouping = demand.counts, demand.fits, demand.grouping
        self._cluster, self._requests = in_units(
            demand.servers, demand.grouping, s.scale if s.units == "share" else None
        )
        self._requests *= s.contention
        rate = s.keep * self.counts.mean(axis=0)
        share = rivalry(self._cluster, self._requests, self.mask, rate)
        busy = contested(self._cluster, self._requests, self.mask, self.counts)
        competition = (
            "the jobs of a mean slot request, of a server's devices: "
            + ", ".join(f"{100 * x:.3g} % of {device}" for device, x in share.items())
            + f" (contention = {s.contention:g}); the further below 100 %, the less they compete"
        )
        fidelity = demand.fidelity
        assert fidelity.kept is not None  # there are jobs
        widest = int(self.mask.sum(axis=1).max())
        where = f", on each of up to {widest:,} servers at once" * (widest > 1)
        kept = replace(
            fidelity.kept,
            terms=(
                f"jobs compete in {100 * busy:.3g} % of the slots in which any arrive",
                f"jobs are taken as elastic: one may get its request, or a part of it{where} "
                "(gangwise replay places them whole)",
                "utilities and overhead are drawn",
            ),
            warnings=() if busy else (NO_RIVALS,),
        )
        self._fidelity = replace(fidelity, notes=(*fidelity.notes, competition), kept=kept)

    @property
    def slots(self) -> int:
        return len(self.counts)

    def _made(self) -> tuple[np.ndarray[Any, Any], ...]:
        return self._cluster.capacity, self._requests, self.mask, self.counts

    def instance(self, seed: int) -> GainOverheadInstance:
        s, rng = self.settings, Streams.of(seed).instance
        shape = self._cluster.capacity.shape
        problem = GainOverheadProblem(
            self._cluster,
            self._requests,
            Channels.of_mask(self.mask),
            Utilities(s.draw_kinds(rng, shape), rng.uniform(s.alpha[0], s.alpha[1], shape)),
            rng.uniform(s.beta[0], s.beta[1], shape[1]),
            self.grouping.names,
        )
        return GainOverheadInstance(problem, ReplayedArrivals(self.counts, s.keep, s.repeat))

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
from gangwise.traces.slots.demand import demand_of
from gangwise.traces.slots.grouping import contested, in_units, rivalry
from gangwise.traces.slots.settings import Settings
from gangwise.traces.tables import Fidelity, Tables, Trace, fingerprint

NO_RIVALS = (
    "jobs never compete: all that the jobs of any slot ask for is there on every server that they "
    "may use, so policies that give what is asked for cannot differ; raise contention, or take "
    "fewer servers or longer slots"
)
KINDS = ("linear", "log", "reciprocal", "poly")


class TraceScenario:
    """A trace, played as a scenario: the seed draws utilities, overhead and thinning.

    Parameters
    ----------
    trace : Trace or Tables
        A reader, such as :class:`~gangwise.traces.formats.alibaba_gpu_v2023.AlibabaGpuV2023`.
    name : str, optional
    **settings
        Fields of :class:`~gangwise.traces.slots.settings.Settings`.

    Attributes
    ----------
    tables : Tables
    demand : Demand
    counts : ndarray of int64, shape [slots, L]
        Jobs of each job type created in each slot, before ``keep``.
    mask : ndarray of bool, shape [L, R]
        Channels.
    grouping : Grouping

    Raises
    ------
    TraceError
        When the trace cannot be read or no job of it can be played.
    ScenarioError
        Names the setting at fault.
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
            demand.servers, demand.grouping, s.scale if s.units == "share" else None, demand.units
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
        notes = (*demand.fidelity.notes, competition)
        kept = demand.fidelity.kept
        assert kept is not None  # there are jobs
        widest = int(self.mask.sum(axis=1).max())
        where = f", on each of up to {widest:,} servers at once" * (widest > 1)
        kept = replace(
            kept,
            terms=(
                f"jobs compete in {100 * busy:.3g} % of the slots in which any arrive",
                f"jobs are taken as elastic: one may get its request, or a part of it{where} "
                "(gangwise replay places them whole)",
                "utilities and overhead are drawn",
            ),
            warnings=() if busy else (NO_RIVALS,),
        )
        self._fidelity = replace(demand.fidelity, notes=notes, kept=kept)

    @property
    def slots(self) -> int:
        """Slots in the window."""
        return len(self.counts)

    def describe(self) -> dict[str, Any]:
        """The settings, and what they were applied to: the files, and what was made of them."""
        return {
            "trace": self._fidelity.trace,
            "files": dict(self._fidelity.digests),
            "workload": fingerprint(self._cluster.capacity, self._requests, self.mask, self.counts),
            **self.settings.model_dump(mode="json"),
        }

    def fidelity(self) -> Fidelity:
        """What was read, what was left out at each step, and what the trace asks of the cluster."""
        return self._fidelity

    def instance(self, seed: int) -> GainOverheadInstance:
        """Draw the instance of a seed."""
        s, rng = self.settings, Streams.of(seed).instance
        R, K = self._cluster.capacity.shape
        kind = (
            rng.integers(0, len(KINDS), (R, K))
            if s.utility == "mixed"
            else np.full((R, K), KINDS.index(s.utility))
        )
        problem = GainOverheadProblem(
            self._cluster,
            self._requests,
            Channels.of_mask(self.mask),
            Utilities(kind, rng.uniform(s.alpha[0], s.alpha[1], (R, K))),
            rng.uniform(s.beta[0], s.beta[1], (K,)),
            self.grouping.names,
        )
        return GainOverheadInstance(problem, ReplayedArrivals(self.counts, s.keep, s.repeat))

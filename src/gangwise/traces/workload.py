"""From the tables of a trace to a gain-minus-overhead problem and its arrivals.

Steps, in order; each is a setting of :class:`~gangwise.traces.settings.Settings`, and what a step
leaves out is in the fidelity report:

1. servers: all, or a proportional sample;
2. window: jobs before the first ``skip`` of them are left out; slots start on whole multiples of
   ``slot`` since the start of the trace;
3. fit: jobs that no server can hold whole, on a GPU model they may use, are left out;
4. job types: see :mod:`gangwise.traces.grouping`;
5. channels: a job type is connected to every server that can hold one of its jobs whole;
6. arrivals: creations per job type and slot, as an indicator or capped, then thinned by ``keep``;
7. units, contention, utilities and overhead.

In this family a job lasts one slot; lifetimes enter the implied load of the report and nothing
else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels
from gangwise.core.errors import TraceError
from gangwise.core.streams import Streams
from gangwise.core.workload import ReplayedArrivals
from gangwise.gain_overhead.environment import GainOverheadInstance
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gain_overhead.utilities import Utilities
from gangwise.traces.devices import QUANTITIES, in_units, rivalry
from gangwise.traces.fidelity import Fidelity, Stage, device_totals, implied_load, of_tables, period
from gangwise.traces.fitting import fits, fits_somewhere, sample_servers
from gangwise.traces.grouping import group_jobs
from gangwise.traces.settings import Settings, seconds
from gangwise.traces.trace import Tables, Trace

__all__ = ["TraceScenario"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

KINDS = ("linear", "log", "reciprocal", "poly")
MOST_SLOTS = 1_000_000


class TraceScenario:
    """A trace, played as a scenario: the seed draws utilities, overhead and thinning.

    Parameters
    ----------
    trace : Trace or Tables
        A reader, such as :class:`~gangwise.traces.alibaba_gpu_v2023.AlibabaGpuV2023`.
    name : str, optional
    **settings
        Fields of :class:`~gangwise.traces.settings.Settings`.

    Attributes
    ----------
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
        tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-v1"
        self.settings = Settings.of(f"scenario {self.name!r}", settings)
        self._stages: list[Stage] = []
        self._notes: list[str] = []
        self._build(tables)

    @property
    def slots(self) -> int:
        """Slots in the window."""
        return len(self.counts)

    def describe(self) -> dict[str, Any]:
        """The settings, and which files they were applied to."""
        return {
            "trace": self._fidelity.trace,
            "files": dict(self._fidelity.digests),
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

    def _build(self, tables: Tables) -> None:
        s = self.settings
        base, everything = of_tables(tables), tables
        tables = replace(tables, servers=tables.servers.sort("name"))
        if s.servers is not None:
            tables = sample_servers(tables, s.servers)
            self._notes.append(
                f"{s.servers} of {base.servers} servers, each kind in proportion; arrivals are "
                "those of all, so they meet less of everything than in the trace"
            )
        capacity = tables.servers.select(QUANTITIES).to_numpy()
        model = tables.servers["model"].to_list()
        created = tables.jobs["created"].to_numpy()
        requests = tables.jobs.select(QUANTITIES).to_numpy()
        models, rows = tables.jobs["models"].to_list(), tables.jobs["row"].to_numpy()

        start, slots = self._window(created)
        chosen = self._leave_out(
            "window", created >= start, f"created before the window, {start:.0f} s", rows
        )
        chosen &= self._leave_out(
            "fit", fits_somewhere(requests, models, capacity, model), "fits on no server", rows,
            chosen,
        )  # fmt: skip
        self._require(chosen)
        index = np.flatnonzero(chosen)
        self.grouping = group_jobs(
            requests[index], [models[i] for i in index], capacity.max(axis=0), s.job_types
        )
        typed = np.zeros_like(chosen)
        typed[index] = self.grouping.job_type >= 0
        chosen &= self._leave_out(
            "job types", typed, "no job type for its choice of GPU models; raise job_types", rows,
            chosen,
        )  # fmt: skip
        job_type = self.grouping.job_type[self.grouping.job_type >= 0]
        self._tell_grouping(requests[chosen], job_type)
        self.mask = fits(self.grouping.requests, self.grouping.models, capacity, model)
        self.counts = self._arrivals(created[chosen] - start, job_type, slots, rows[chosen])
        self._cluster, self._requests = in_units(
            tables.servers, self.grouping, s.scale if s.units == "share" else None
        )
        self._requests *= s.contention
        rate = s.keep * self.counts.mean(axis=0)
        share = rivalry(self._cluster, self._requests, self.mask, rate)
        self._notes.append(
            "the jobs of a mean slot request, of a server's devices: "
            + ", ".join(f"{100 * x:.3g} % of {device}" for device, x in share.items())
            + f" (contention = {s.contention:g}); the further below 100 %, the less they compete"
        )
        end = start + len(self.counts) * seconds(s.slot)
        self._fidelity = replace(
            base,
            stages=(*base.stages, *self._stages),
            first=start,
            last=end,
            servers=len(capacity),
            jobs=int(self.counts.sum()),
            capacity=device_totals(tables),
            load=implied_load(replace(everything, servers=tables.servers), start, end),
            notes=(*base.notes, *self._notes),
        )

    def _leave_out(
        self, step: str, keep: Mask, why: str, rows: Ints, among: Mask | None = None
    ) -> Mask:
        """Account for the jobs that a step leaves out."""
        among = np.ones_like(keep) if among is None else among
        lost = among & ~keep
        dropped = {why: (int(lost.sum()), int(rows[lost].min()))} if lost.any() else {}
        self._stages.append(Stage(step, int(among.sum()), int((among & keep).sum()), dropped))
        return keep

    def _require(self, chosen: Mask) -> None:
        if not chosen.any():
            why = "; ".join(f"{n} {r}" for st in self._stages for r, (n, _) in st.dropped.items())
            raise TraceError(f"no job of the trace can be played: {why}")

    def _window(self, created: Floats) -> tuple[float, int]:
        """Start of the window, in seconds, and how many slots it has."""
        s, length = self.settings, seconds(self.settings.slot)
        at = float(np.sort(created)[int(s.skip * len(created))])
        start = np.floor(at / length) * length
        slots = np.floor((created.max() - start) / length) + 1
        if slots > MOST_SLOTS:
            raise TraceError(
                f"the jobs from {start:.0f} s to {created.max():.0f} s take {slots:.0f} slots of "
                f"{period(length)}; at most {MOST_SLOTS} are played: choose a longer slot, or "
                "correct the times"
            )
        self._notes.append(
            f"the window of {slots:.0f} slots of {period(length)} starts at {start:.0f} s "
            f"({period(start)}), where {100 * s.skip:g} % of the jobs have been created (skip)"
        )
        return float(start), int(slots)

    def _arrivals(self, since: Floats, job_type: Ints, slots: int, rows: Ints) -> Ints:
        """Jobs per slot and job type, shape [slots, L]."""
        s = self.settings
        slot = (since // seconds(s.slot)).astype(np.int64)
        counts = np.zeros((slots, len(self.grouping.requests)), dtype=np.int64)
        np.add.at(counts, (slot, job_type), 1)
        most = 1 if s.arrivals == "indicator" else s.most_jobs
        played = np.minimum(counts, most)
        over = (counts > most)[slot, job_type]
        lost = int((counts - played).sum())
        why = f"more than {most} of its job type in the slot (arrivals = {s.arrivals})"
        dropped = {why: (lost, int(rows[over].min()))} if lost else {}
        self._stages.append(Stage("arrivals", int(counts.sum()), int(played.sum()), dropped))
        busy = float((played > 0).any(axis=1).mean())
        self._notes.append(
            f"{played.sum() / len(played):.3g} jobs arrive per slot, in {100 * busy:.3g} % of the "
            f"slots at least one; keep = {s.keep:g} of them are played"
            + (", and the trace begins again after its last slot (repeat)" if s.repeat else "")
        )
        self._notes.append("a job lasts one slot; its lifetime enters the implied load only")
        return played

    def _tell_grouping(self, requests: Floats, job_type: Ints) -> None:
        factor = self.grouping.factor[self.grouping.job_type >= 0]
        exact, far = 100 * float((factor == 1).mean()), np.quantile(factor, 0.95)
        asked, given = requests.sum(axis=0), self.grouping.requests[job_type].sum(axis=0)
        totals = ", ".join(
            f"{100 * g / a:.3g} % of the {name}"
            for name, g, a in zip(QUANTITIES, given, asked)
            if a > 0
        )
        self._notes.append(
            f"{len(self.grouping.requests)} job types stand for "
            f"{len(np.unique(requests, axis=0))} different requests: {exact:.3g} % of the jobs "
            f"request exactly what their job type does, 95 % within a factor of {far:.3g}, the "
            f"farthest {factor.max():.3g}; job types request {totals} that the jobs do"
        )

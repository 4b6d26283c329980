"""From the tables of a trace to what its jobs ask of which servers, slot by slot.

Steps, in order; each is a setting of :class:`~gangwise.traces.settings.Steps`, and what a step
leaves out or changes is in the fidelity report:

1. servers: all, or a proportional sample, or so many of a stated shape;
2. requests: rows whose time or request is not known are left out; a row that asks for several equal
   tasks counts as one job, or as its tasks;
3. window: jobs before the first ``skip`` of them are left out; slots start on whole multiples of
   ``slot`` since the start of the trace;
4. fit: jobs that no server can hold whole, on a GPU model they may use, are left out;
5. job types: see :mod:`gangwise.traces.grouping`;
6. channels: a job type fits on every server that can hold one of its jobs whole;
7. arrivals: creations per job type and slot, as an indicator or capped, thinned by ``keep``.

A job lasts one slot in both families that are built of this; lifetimes are told, and enter the
implied load of the report.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import TraceError
from gangwise.traces.demand import Demand
from gangwise.traces.devices import QUANTITIES
from gangwise.traces.fidelity import Stage, period, reasons
from gangwise.traces.fitting import fits, fits_somewhere, sample_servers, stated_servers
from gangwise.traces.grouping import Grouping, group_jobs
from gangwise.traces.load import device_totals, implied_load, of_tables
from gangwise.traces.settings import Steps, seconds
from gangwise.traces.trace import Tables
from gangwise.traces.usable_jobs import jobs_per_row, known_jobs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MOST_SLOTS = 1_000_000


def demand_of(tables: Tables, settings: Steps, most: int = 1) -> Demand:
    """Take the steps.

    Parameters
    ----------
    tables : Tables
    settings : Steps
    most : int
        Jobs of one type that may arrive in a slot; others are left out.

    Raises
    ------
    TraceError
        When there are no servers, or none of the jobs can be played; says why.
    """
    return _Steps(settings).take(tables, most)


class _Steps:
    """What was left out so far."""

    def __init__(self, settings: Steps):
        self.settings = settings
        self.stages: list[Stage] = []
        self.notes: list[str] = []

    def take(self, tables: Tables, most: int) -> Demand:
        base, everything = of_tables(tables), tables
        tables = self._servers(tables)
        jobs, stages, notes = known_jobs(tables)
        weight, more, said = jobs_per_row(jobs, self.settings.tasks)
        self.stages += [*stages, *more]
        self.notes += [*notes, *said]
        capacity = tables.servers.select(QUANTITIES).to_numpy()
        model = tables.servers["model"].to_list()
        created = jobs["created"].to_numpy()
        requests = jobs.select(QUANTITIES).to_numpy()
        models, rows = jobs["models"].to_list(), jobs["row"].to_numpy()

        start, slots = self._window(created)
        chosen = self._leave_out(
            "window", created >= start, f"created before the window, {start:.0f} s", rows, weight
        )
        chosen &= self._leave_out(
            "fit",
            fits_somewhere(requests, models, capacity, model),
            "fits on no server",
            rows,
            weight,
            chosen,
        )
        if not chosen.any():
            self._refuse(requests, capacity)
        index = np.flatnonzero(chosen)
        grouping = group_jobs(
            requests[index],
            [models[i] for i in index],
            capacity.max(axis=0),
            self.settings.job_types,
            weight[index],
        )
        typed = np.zeros_like(chosen)
        typed[index] = grouping.job_type >= 0
        chosen &= self._leave_out(
            "job types",
            typed,
            "no job type for its choice of GPU models; raise job_types",
            rows,
            weight,
            chosen,
        )
        grouping = grouping.of_typed()
        self._tell_grouping(requests[chosen], grouping, weight[chosen])
        counts = self._arrivals(
            created[chosen] - start, grouping, slots, rows[chosen], weight[chosen], most
        )
        end = start + len(counts) * seconds(self.settings.slot)
        load = implied_load(replace(everything, servers=tables.servers), start, end)
        fidelity = replace(
            base,
            stages=(*base.stages, *self.stages),
            first=start,
            last=end,
            servers=len(capacity),
            jobs=int(counts.sum()),
            capacity=device_totals(tables),
            load=load,
            notes=(*base.notes, *self.notes),
        )
        lasted = (jobs["deleted"] - jobs["created"]).fill_null(np.nan).to_numpy()[chosen]
        return Demand(
            tables.servers,
            grouping,
            grouping.names,
            fits(grouping.requests, grouping.models, capacity, model),
            counts,
            _medians(lasted, grouping),
            tables.units,
            fidelity,
        )

    def _servers(self, tables: Tables) -> Tables:
        s, number = self.settings, len(tables.servers)
        if s.machines is not None or tables.servers.is_empty():
            tables = stated_servers(tables, s.machines, s.shape, s.model)
            self.notes.append(
                f"{s.machines} equal servers are stated (machines, shape)"
                + (f"; the {number} of the trace are not used" if number else "")
            )
            number = len(tables.servers)
        unknown = sum(tables.servers[name].null_count() for name in QUANTITIES)
        if unknown:
            self.notes.append(f"{unknown} capacities are not known and count as none")
        servers = tables.servers.sort("name").fill_null(0.0)
        tables = replace(tables, servers=servers)
        if s.servers is not None:
            tables = sample_servers(tables, s.servers)
            self.notes.append(
                f"{s.servers} of {number} servers, each kind in proportion; arrivals are "
                "those of all, so they meet less of everything than in the trace"
            )
        if tables.events is not None and len(tables.events):
            self.notes.append(
                f"the trace tells {len(tables.events)} times that a server comes or goes; in this "
                "family servers are always there"
            )
        return tables

    def _leave_out(
        self, step: str, keep: Mask, why: str, rows: Ints, weight: Ints, among: Mask | None = None
    ) -> Mask:
        """Account for the jobs that a step leaves out."""
        among = np.ones_like(keep) if among is None else among
        lost = among & ~keep
        dropped = {why: (int(weight[lost].sum()), int(rows[lost].min()))} if lost.any() else {}
        read, kept = int(weight[among].sum()), int(weight[among & keep].sum())
        self.stages.append(Stage(step, read, kept, dropped))
        return keep

    def _refuse(self, requests: Floats, capacity: Floats) -> None:
        why = [reasons(stage.dropped) for stage in self.stages if stage.dropped]
        none = [
            name
            for k, name in enumerate(QUANTITIES)
            if not capacity[:, k].any() and requests[:, k].any()
        ]
        if none:
            why.append(f"the servers have no {' and no '.join(none)}, which jobs request")
        raise TraceError(f"no job of the trace can be played: {'; '.join(why)}")

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
        self.notes.append(
            f"the window of {slots:.0f} slots of {period(length)} starts at {start:.0f} s "
            f"({period(start)}), where {100 * s.skip:g} % of the jobs have been created (skip)"
        )
        return float(start), int(slots)

    def _arrivals(
        self, since: Floats, grouping: Grouping, slots: int, rows: Ints, weight: Ints, most: int
    ) -> Ints:
        """Jobs per slot and job type, shape [slots, L]."""
        s, job_type = self.settings, grouping.job_type
        slot = (since // seconds(s.slot)).astype(np.int64)
        counts = np.zeros((slots, len(grouping.requests)), dtype=np.int64)
        np.add.at(counts, (slot, job_type), weight)
        played = np.minimum(counts, most)
        over = (counts > most)[slot, job_type]
        lost = int((counts - played).sum())
        how = getattr(s, "arrivals", "indicator")
        why = f"more than {most} of its job type in the slot (arrivals = {how})"
        dropped = {why: (lost, int(rows[over].min()))} if lost else {}
        self.stages.append(Stage("arrivals", int(counts.sum()), int(played.sum()), dropped))
        busy = float((played > 0).any(axis=1).mean())
        self.notes.append(
            f"{played.sum() / len(played):.3g} jobs arrive per slot, in {100 * busy:.3g} % of the "
            f"slots at least one; keep = {s.keep:g} of them are played"
            + (", and the trace begins again after its last slot (repeat)" if s.repeat else "")
        )
        self.notes.append("a job lasts one slot; its lifetime enters the implied load only")
        return played

    def _tell_grouping(self, requests: Floats, grouping: Grouping, weight: Ints) -> None:
        factor = grouping.factor
        exact = 100 * float((factor == 1) @ weight / weight.sum())
        asked, given = weight @ requests, weight @ grouping.requests[grouping.job_type]
        totals = ", ".join(
            f"{100 * g / a:.3g} % of the {name}"
            for name, g, a in zip(QUANTITIES, given, asked)
            if a > 0
        )
        order = np.argsort(factor)
        reached = np.cumsum(weight[order]) >= 0.95 * weight.sum()
        far = factor[order][np.flatnonzero(reached)[0]]
        self.notes.append(
            f"{len(grouping.requests)} job types stand for "
            f"{len(np.unique(requests, axis=0))} different requests: {exact:.3g} % of the jobs "
            f"request exactly what their job type does, 95 % within a factor of {far:.3g}, the "
            f"farthest {factor.max():.3g}; job types request {totals} that the jobs do"
        )


def _medians(lasted: Floats, grouping: Grouping) -> Floats:
    """Median of what is known, for each job type."""
    result = np.full(len(grouping.requests), np.nan)
    for l in range(len(result)):
        known = lasted[(grouping.job_type == l) & np.isfinite(lasted)]
        if known.size:
            result[l] = np.median(known)
    return result

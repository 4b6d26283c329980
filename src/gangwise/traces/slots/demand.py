"""From the tables of a trace to what its jobs ask of which servers, slot by slot.

Steps, in order; each is a setting of :class:`~gangwise.traces.slots.settings.Steps`, and what it
leaves out or changes is in the fidelity report:

1. servers: all, or a proportional sample, or so many of a stated shape;
2. requests: rows whose time or request is not known are left out; a row that asks for several equal
   tasks counts as one job, or as its tasks;
3. window: jobs before the first ``skip`` of them are left out; slots start on whole multiples of
   ``slot`` since the start of the trace;
4. fit: jobs that no server can hold whole, on a GPU model they may use, are left out;
5. job types: see :mod:`gangwise.traces.slots.grouping`;
6. channels: a job type fits on every server that can hold one of its jobs whole;
7. arrivals: creations per job type and slot, as an indicator or capped, thinned by ``keep``.

A job lasts one slot in both families that are built of this; run times are told, and enter the
implied load of the report. A slot is near their median, so that what a job is given is near what it
had. Jobs that never started are left out: they held nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import TraceError
from gangwise.traces.io.account import Stage, leave_out, reasons
from gangwise.traces.slots.grouping import (
    QUANTITIES,
    Grouping,
    fits,
    fits_somewhere,
    group_jobs,
    sample_servers,
    stated_servers,
)
from gangwise.traces.slots.settings import Steps, seconds
from gangwise.traces.tables import Fidelity, Tables, device_totals, implied_load, of_tables
from gangwise.traces.work import (
    NO_JOBS,
    OF_EVENTS,
    Kept,
    counted,
    device_hours,
    kept_of,
    period,
    work,
)


@dataclass(frozen=True, eq=False)
class Demand:
    """Job types of a trace, the servers that they fit on, and their arrivals.

    Attributes
    ----------
    servers : polars.DataFrame
        As in :class:`~gangwise.traces.tables.Tables`, by name.
    grouping : Grouping
        Job types, and the job type of every job that is played.
    fits : ndarray of bool, shape [L, R]
        Whether a server can hold a job of the type whole.
    names : tuple of str
        Of the job types.
    counts : ndarray of int64, shape [slots, L]
        Jobs of each job type created in each slot, before ``keep``; no slots where the files have
        no jobs, so that each job type arrives in a slot with probability ``keep``.
    slot : float
        Length of a slot, in seconds.
    lifetime : ndarray of shape [L]
        Median run time, in seconds; nan when not known.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.
    fidelity : Fidelity
        What was read, left out and changed up to here.
    """

    servers: pl.DataFrame
    grouping: Grouping
    names: tuple[str, ...]
    fits: Bools
    counts: Ints
    slot: float
    lifetime: Floats
    units: Mapping[str, str]
    fidelity: Fidelity

    def rows(self, keep: float) -> list[dict[str, Any]]:
        """A row per job type, for tables: requests, servers that fit, arrivals, lifetimes."""
        rate = self.counts.mean(axis=0) if len(self.counts) else np.ones(len(self.names))
        return [
            {
                "job_type": name,
                **dict(zip(QUANTITIES, map(float, self.grouping.requests[l]))),
                "models": self.grouping.models[l],
                "fits_on": int(self.fits[l].sum()),
                "arrivals_per_slot": float(keep * rate[l]),
                "median_run_s": (None if np.isnan(self.lifetime[l]) else float(self.lifetime[l])),
            }
            for l, name in enumerate(self.names)
        ]


def job_filter(tables: Tables) -> tuple[pl.DataFrame, list[Stage], list[str]]:
    """Rows of which it is known when they came and what they ask for.

    Returns
    -------
    DataFrame
        The rows kept.
    list of Stage
        The account of it, when something is left out.
    list of str
        What a reader of a result must know.

    Raises
    ------
    TraceError
        When no row is left.
    """
    unknown = [
        (f"its request of {name} is not known", pl.col(name).is_null()) for name in QUANTITIES
    ]
    never: list[tuple[str, pl.Expr]] = []
    if "started" in tables.jobs.columns:
        ran = work(tables.jobs)["run"].is_not_null()
        never = [("it never started", ~pl.lit(ran))]
    kept, stage = leave_out(
        "requests",
        tables.jobs,
        [
            ("it is not known when it was created", pl.col("created").is_null()),
            *unknown,
            ("it requests nothing", pl.sum_horizontal(QUANTITIES) == 0),
            *never,
        ],
    )
    if kept.is_empty():
        why = reasons(stage.dropped) or "there are none"
        raise TraceError(f"no job of the trace can be played: {why}")
    notes = []
    if "job" in kept.columns and (jobs := kept["job"].n_unique()) < len(kept):
        waits = " and waits for no other" if "after" in kept.columns else ""
        notes.append(
            f"{len(kept)} requests are of {jobs} jobs; in this family each of them is a job of its "
            f"own{waits}"
        )
    return kept, [stage] if stage.dropped else [], notes


def jobs_per_row(
    jobs: pl.DataFrame, tasks: str
) -> tuple[pl.DataFrame, Ints, list[Stage], list[str]]:
    """How many jobs each row counts as: one, or as many as it asks for equal tasks.

    Parameters
    ----------
    jobs : polars.DataFrame
        As in :class:`~gangwise.traces.tables.Tables`.
    tasks : {"each", "whole", "one"}

    Returns
    -------
    DataFrame
        The rows, with what each of those jobs requests.
    ndarray of int64, shape [rows]
    list of Stage, list of str
        As of :func:`job_filter`.
    """
    one = np.ones(len(jobs), dtype=np.int64)
    if "tasks" not in jobs.columns:
        return jobs, one, [], []
    asked: Ints = np.maximum(jobs["tasks"].fill_null(1).to_numpy().astype(np.int64), 1)
    several, total = asked > 1, int(asked.sum())
    if not several.any():
        return jobs, one, [], []
    if tasks == "whole":
        note = (
            f"{int(several.sum())} of {asked.size} rows ask for several equal tasks; such a row is "
            "one job, which requests what they do together (tasks = whole)"
        )
        together = [pl.col(name) * pl.Series(asked) for name in QUANTITIES]
        return jobs.with_columns(together), one, [], [note]
    if tasks == "each":
        note = (
            f"{int(several.sum())} of {asked.size} rows ask for several equal tasks; each task is "
            f"a job, {total} in all (tasks = each)"
        )
        return jobs, asked, [], [note]
    first = int(jobs["row"].to_numpy()[several].min())
    why = "of a row with several tasks, which counts as one job (tasks = one)"
    lost = {why: (total - asked.size, first)}
    return jobs, one, [Stage("tasks", total, asked.size, lost)], []


MOST_SLOTS = 1_000_000
WINDOW = 5_000
"""Slots of a window at most, where the length of a slot is chosen for it."""
LENGTHS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
"""Seconds of a slot that is chosen."""
CHANNELS = 100_000
"""Channels at most, where it is chosen how many jobs of a type may come in a slot."""


def demand_of(tables: Tables, settings: Steps, most: int | None = 1) -> Demand:
    """Take the steps.

    Parameters
    ----------
    tables : Tables
    settings : Steps
    most : int, optional
        Jobs of one type that may arrive in a slot; others are left out. None: as many as come, but
        no more than makes :data:`CHANNELS`.

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
        self.length = 0.0

    def take(self, tables: Tables, most: int | None) -> Demand:
        base, everything = of_tables(tables), tables
        tables = self._servers(tables)
        tables = replace(tables, jobs=tables.jobs.with_row_index("at"))
        jobs, stages, notes = job_filter(tables)
        whole = "whole" if len(tables.servers) == 1 else "each"
        how = self.settings.tasks or whole
        jobs, weight, more, said = jobs_per_row(jobs, how)
        self.stages += [*stages, *more]
        self.notes += [*notes, *said]
        capacity = tables.servers.select(QUANTITIES).to_numpy()
        model = tables.servers["model"].to_list()
        created = jobs["created"].to_numpy()
        requests = jobs.select(QUANTITIES).to_numpy()
        models, rows = jobs["models"].to_list(), jobs["row"].to_numpy()

        run = work(jobs)["run"].fill_null(np.nan).to_numpy()
        start, slots = self._window(created, run)
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
        fit = fits(grouping.requests, grouping.models, capacity, model)
        since = created[chosen] - start
        counts, share = self._arrivals(
            since, grouping, slots, rows[chosen], weight[chosen], most, fit.sum(axis=1)
        )
        end = start + len(counts) * self.length
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
            kept=self._kept(everything, jobs.filter(chosen), since, counts, share, how, grouping),
        )
        return Demand(
            tables.servers,
            grouping,
            grouping.names,
            fit,
            counts,
            self.length,
            _medians(run[chosen], grouping),
            tables.units,
            fidelity,
        )

    def _kept(
        self,
        log: Tables,
        jobs: pl.DataFrame,
        since: Floats,
        counts: Ints,
        share: Floats,
        how: str,
        grouping: Grouping,
    ) -> Kept:
        """How much of the log is played: a ``share`` of each of the rows in the window."""
        device, _ = counted(log.jobs, log.units)
        hours = device_hours(log.jobs, device)[jobs["at"].to_numpy()]
        if how == "one" and "tasks" in jobs.columns:
            share = share / np.maximum(jobs["tasks"].fill_null(1).to_numpy(), 1)
        slot, requests = (since // self.length).astype(np.int64), grouping.requests
        given = counts @ requests[:, QUANTITIES.index(device)] * self.length / 3600
        by_slot = self.settings.keep * np.column_stack(
            [
                np.bincount(slot, share, len(counts)),
                np.bincount(slot, hours * share, len(counts)),
                given,
            ]
        )
        played, played_hours, given_hours = map(float, by_slot.sum(axis=0))
        return kept_of(
            log.trace,
            log.jobs,
            log.units,
            unread=unread_of(log),
            played=played,
            played_hours=played_hours,
            given=given_hours,
            by_slot=by_slot,
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
        self, step: str, keep: Bools, why: str, rows: Ints, weight: Ints, among: Bools | None = None
    ) -> Bools:
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

    def _window(self, created: Floats, run: Floats) -> tuple[float, int]:
        """Start of the window, in seconds, and how many slots it has."""
        s = self.settings
        at = float(np.sort(created)[int(s.skip * len(created))])
        known = run[np.isfinite(run) & (run > 0)]
        median = float(np.median(known)) if known.size else 3600.0
        self.length = length = (
            slot_near(median, created.max() - at) if s.slot is None else seconds(s.slot)
        )
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
            + f"; the median run time is {period(round(median, 1))}"
            * bool(known.size)
        )
        return float(start), int(slots)

    def _arrivals(
        self,
        since: Floats,
        grouping: Grouping,
        slots: int,
        rows: Ints,
        weight: Ints,
        most: int | None,
        fit: Ints,
    ) -> tuple[Ints, Floats]:
        """Jobs per slot and job type, shape [slots, L], and the share of each row in them."""
        s, job_type = self.settings, grouping.job_type
        slot = (since // self.length).astype(np.int64)
        counts = np.zeros((slots, len(grouping.requests)), dtype=np.int64)
        np.add.at(counts, (slot, job_type), weight)
        most = enough(counts, fit) if most is None else most
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
        self.notes.append("a job lasts one slot; its run time enters the implied load only")
        return played, (played / np.maximum(counts, 1))[slot, job_type]

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


def slot_near(median: float, span: float) -> float:
    """The length nearest to a median run time that cuts a window into few enough slots.

    >>> slot_near(70.0, 86400.0), slot_near(70.0, 30 * 86400.0), slot_near(3.0, 1e9)
    (60.0, 600.0, 259200.0)
    """
    able = [length for length in LENGTHS if span / length < WINDOW]
    if not able:
        return float(np.ceil(span / WINDOW / 86400) * 86400)
    return float(min(able, key=lambda length: abs(np.log(length / median))))


def enough(counts: Ints, fit: Ints) -> int:
    """The most jobs of a type in a slot that keep a problem within :data:`CHANNELS`.

    Parameters
    ----------
    counts : ndarray of int64, shape [slots, L]
    fit : ndarray of int64, shape [L]
        Channels of each type.

    Examples
    --------
    >>> enough(np.array([[1, 0], [9, 4]]), np.array([50, 50]))
    9
    >>> enough(np.array([[1, 0], [9, 4]]), np.array([25_000, 50]))
    3
    """
    peak = counts.max(axis=0)
    most = 1
    while most < peak.max() and np.minimum(peak, most + 1) @ fit <= CHANNELS:
        most += 1
    return most


def unread_of(tables: Tables) -> int:
    """Rows that are jobs, and that the reader left out; those of events are not."""
    if tables.trace.removeprefix("twin-") in OF_EVENTS:
        return 0
    return sum(
        count
        for stage in tables.stages
        for why, (count, _) in stage.dropped.items()
        if stage.name != "machines" and not why.startswith(NO_JOBS)
    )


def _medians(lasted: Floats, grouping: Grouping) -> Floats:
    """Median of what is known, for each job type."""
    result = np.full(len(grouping.requests), np.nan)
    for l in range(len(result)):
        known = lasted[(grouping.job_type == l) & np.isfinite(lasted)]
        if known.size:
            result[l] = np.median(known)
    return result

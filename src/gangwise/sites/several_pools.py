"""Jobs that ask for several partitions (``sbatch -p a,b``), which wait in the line of each.

Slurm's queue has an entry for each job and each of its partitions, with the tier and the priority
that it has there; the first that can start takes the job, and the others leave the line. Here such
an entry is a row of its own. The last row of a job is the one that runs: it becomes what the entry
asks for. https://slurm.schedmd.com/sbatch.html#OPT_partition
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from gangwise.core.arrays import Ints
from gangwise.core.jit import inlined_kernel, inner_kernel
from gangwise.jobs import kernels
from gangwise.jobs.event_kernels import enter, leave_queue
from gangwise.jobs.kernels import Inputs, State, int64
from gangwise.jobs.model import Jobs, reordered, terms_of
from gangwise.jobs.schedule import Schedule, Tables
from gangwise.sites.slurm_places import PassState

PER_JOB = [
    *("start", "end", "last_start", "held", "phase", "attempts", "lost", "reserved"),
    *("piece_from", "piece_count"),
]
"""Columns of a schedule with a value of each job."""


def in_each_pool(t: Tables) -> tuple[Tables, Ints]:
    """Tables with a row for each pool that a job asks for and may be in; whose job each row is."""
    texts = [terms_of(text).get("pools", "") for text in t.jobs.terms]
    if not any(texts):
        return t, np.arange(len(t.jobs))
    # Of whole nodes a job has other amounts, which are not known here.
    whole = {pool.name: getattr(pool, "whole", False) for pool in t.options.tenancy.pools}
    shapes, rows, names = [t.jobs.shapes[s] for s in t.jobs.shape], list[int](), list[str]()
    for j, shape in enumerate(shapes):
        wanted = [
            name
            for name in texts[t.jobs.term[j]].split("|")
            if name in t.nodes.pools and whole.get(name) == whole.get(shape.pool)
        ]
        wanted = [shape.pool] if shape.groups or shape.pool not in wanted else wanted
        names += wanted
        rows += [j] * len(wanted)
    of_job, every = np.array(rows), _with_rows(t, np.array(rows), names)
    # A pool whose bounds refuse the job has no entry for it.
    listed = np.flatnonzero(~every.aside | ~np.isin(of_job, of_job[~every.aside]))
    if listed.size < of_job.size:
        every = _with_rows(t, of_job[listed], [names[i] for i in listed])
    return every, of_job[listed]


def _with_rows(t: Tables, rows: Ints, names: list[str]) -> Tables:
    """Tables with these rows of the jobs, each in a pool of its own."""
    jobs, columns = t.jobs, dict[str, Any]()
    for column in fields(Jobs):
        values = getattr(jobs, column.name)
        if isinstance(values, np.ndarray) and not column.name.startswith("after"):
            columns[column.name] = values[rows]
    own = [jobs.shapes[s]._replace(pool=name) for s, name in zip(columns["shape"], names)]
    shapes, pools = dict.fromkeys(own), dict.fromkeys([*jobs.pools, *names])
    for name, every, mine in (("shape", shapes, own), ("pool", pools, names)):
        number = {one: i for i, one in enumerate(every)}
        columns[name] = np.where(
            np.array([bool(one) for one in mine]), [number[one] for one in mine], columns[name]
        )  # a job of no pool of the site keeps its own
    columns["after_from"], columns["after"] = reordered(jobs.after_from, jobs.after, rows)
    jobs = replace(jobs, **columns, shapes=tuple(shapes), pools=tuple(pools))
    noise = t.conditions.noise
    conditions = replace(
        t.conditions,
        noise=None if noise is None else np.asarray(noise)[rows],
        cancels=[(at, int(i)) for at, j in t.conditions.cancels for i in np.flatnonzero(rows == j)],
    )
    return Tables.of(jobs, t.nodes, conditions, t.options)


def of_jobs(t: Tables, played: Schedule, rows: Ints, shape: Ints) -> Schedule:
    """The schedule of the jobs themselves, each of the pool that it ran in.

    ``shape`` are the shapes of the rows at the end.
    """
    if rows.size == len(t.jobs):
        return played
    final = np.flatnonzero(np.diff(rows, append=len(t.jobs)))  # the last row of each job
    every, names = played.jobs, {name: p for p, name in enumerate(played.jobs.pools)}
    own = [every.shapes[s].pool for s in shape[final]]
    pool = np.array([names[n] if n else p for n, p in zip(own, every.pool[final].tolist())])
    jobs = replace(t.jobs, shape=shape[final], shapes=every.shapes, pool=pool, pools=every.pools)
    columns: dict[str, Any] = {name: getattr(played, name)[final] for name in PER_JOB}
    cuts = {**played.cuts, "job": rows[played.cuts["job"]]}
    return replace(played, **columns, jobs=jobs, cuts=cuts, account=t.account)


# ------------------------------------------------------------------------------- in compiled code


@inner_kernel
def become_one(inputs: Inputs, state: State, passes: PassState, j: int) -> int:
    """Row j starts: gives the row of its job, which takes what j asks for; the others leave."""
    entries, o = passes.known, int64(passes.known[j].job)
    if o != j:
        a, b = inputs.jobs[o], inputs.jobs[j]
        a.shape, b.shape = b.shape, a.shape
        a.claim, b.claim = b.claim, a.claim
        a.hours, b.hours = b.hours, a.hours
        entries[o].kind, entries[j].kind = entries[j].kind, entries[o].kind
        entries[o].own, entries[j].own = entries[j].own, entries[o].own
        for k in range(passes.group.shape[0]):
            passes.group[k, o], passes.group[k, j] = passes.group[k, j], passes.group[k, o]
        if state.standing is not None and inputs.rules.queue == kernels.MULTIFACTOR:
            x = state.standing
            x.tier[o], x.tier[j] = x.tier[j], x.tier[o]
            x.score[o], x.score[j] = x.score[j], x.score[o]
            x.bill[o], x.bill[j] = x.bill[j], x.bill[o]
    for k in range(o + 1 - entries[o].rows, o):
        if state.jobs[k].phase == kernels.WAITING:
            leave_queue(inputs, state, int64(k))
            state.jobs[k].phase = kernels.SET_ASIDE
            state.at.ended += 1
    return int(o)


@inlined_kernel
def stand_again(inputs: Inputs, state: State, passes: PassState) -> None:
    """Jobs that lost their nodes, and are not suspended, wait in each of their pools again."""
    at, entries, clock = state.at, passes.known, passes.clock
    if clock.requeued != at.requeues + at.preemptions:
        clock.requeued = at.requeues + at.preemptions
        for k in range(entries.size):
            o = entries[k].job
            back = state.jobs[o].phase == kernels.WAITING and not entries[o].asleep
            if k != o and back and state.jobs[k].phase == kernels.SET_ASIDE:
                entries[k].until = entries[o].until
                enter(inputs, state, int64(k))
                at.ended -= 1
                at.anew = 1  # it may stand in the line still, with an old key

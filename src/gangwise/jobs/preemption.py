"""Who gives way: jobs that run are taken off their nodes for one that comes first, as in Slurm.

By QOS, or by the tiers of pools (PreemptType preempt/qos, preempt/partition_prio). Those that may
be preempted are taken away in order, small ones of low rank first, until the job fits; then they
are put in the order of how many of the nodes found they hold, the last one first, and taken away
anew, so that few are. Whoever holds one of the nodes chosen in the end gives way.
https://slurm.schedmd.com/preempt.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangwise.jobs.books import Books, Running
from gangwise.jobs.model import Job
from gangwise.jobs.tenancy import Tenancy


def way_of(tenancy: Tenancy, job: Job) -> str:
    """How a job gives way: requeue, cancel or suspend; off: it does not."""
    rules = tenancy.preemption
    table: Any = tenancy.qos if rules.by == "qos" else tenancy.pools
    name = job.qos if rules.by == "qos" else job.pool
    own = next((each.preempted for each in table if each.name == name), "")
    return str(own or rules.how) if rules.by else "off"


def rank_of(tenancy: Tenancy, job: Job) -> float:
    """By which those who give way are ordered: priority of the QOS, or tier of the pool."""
    if tenancy.preemption.by == "qos":
        return next((q.priority for q in tenancy.qos if q.name == job.qos), 0.0)
    return next((pool.tier for pool in tenancy.pools if pool.name == job.pool), 1)


def gives_way(tenancy: Tenancy, running: Running, job: Job, now: float) -> bool:
    """Whether a job that runs may be preempted for another now."""
    rules, other = tenancy.preemption, running.job
    mine = next((qos for qos in tenancy.qos if qos.name == other.qos), None)
    if rules.by == "qos":
        theirs = next((qos.preempts for qos in tenancy.qos if qos.name == job.qos), ())
        above = other.qos in theirs
    else:
        above = rank_of(tenancy, job) > rank_of(tenancy, other)
    exempt = rules.exempt if mine is None or mine.exempt is None else mine.exempt
    how = way_of(tenancy, other)
    rested = now > running.begun and now >= running.begun + exempt * (how != "suspend")
    return above and rested and how != "off"


def make_room(
    job: Job, books: Books, tenancy: Tenancy, choice: Any, now: float
) -> tuple[Any, list[Running]] | None:
    """Where a job would run, and who gives way to it; None where nobody can make room."""
    rules, nodes = tenancy.preemption, books.nodes.of_pool(job.shape.pool)
    able = [
        running
        for running in books.running.values()
        if nodes[list(nodes_of(running))].any() and gives_way(tenancy, running, job, now)
    ]
    if rules.youngest_first:
        able.sort(key=lambda running: -running.begun)
    else:
        able.sort(key=lambda r: (rank_of(tenancy, r.job), len(nodes_of(r))))
    order, chosen, on, taken = able, None, set[int](), 0
    for attempt in range(rules.reorder + 2):
        if attempt:
            order = _reordered(order, taken, on, rules.strict)
            if len(able) <= attempt:
                break
        free, taken, found = books.copy(), 0, None
        while found is None and taken < len(order):
            free.take(order[taken].job.shape, order[taken].pieces, sign=1)
            found = choice.place(job, free, now)
            taken += 1
        if found is None:
            break
        chosen, on = found, {n for n, _ in found}
    if chosen is None:
        return None
    return chosen, [running for running in able if on & nodes_of(running)]


def nodes_of(running: Running) -> set[int]:
    return {n for n, _, _ in running.pieces}


def _reordered(order: Sequence[Running], taken: int, on: set[int], strict: bool) -> list[Running]:
    """The last of those taken away first; ``strict``: then as before, else by nodes shared."""
    others = list(order[: taken - 1])
    if not strict:
        others.sort(key=lambda running: -len(nodes_of(running) & on))
    return [order[taken - 1], *others, *order[taken:]]

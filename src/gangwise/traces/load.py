"""What a trace asks of its cluster, and the fidelity report of a trace as it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangwise.traces.fidelity import UNITS, Fidelity

if TYPE_CHECKING:
    import polars as pl

    from gangwise.traces.trace import Tables


def device_totals(tables: Tables) -> dict[str, float]:
    """Capacity of each device type: ``cpu``, ``mem``, ``gpu:MODEL`` sorted, and all GPUs.

    Capacities that are not known count as none. Empty when there are no servers.
    """
    import polars as pl

    servers = tables.servers
    if servers.is_empty():
        return {}
    totals = {name: float(servers[name].sum()) for name in ("cpu", "mem")}
    with_gpus = servers.filter(pl.col("gpu") > 0)
    models = with_gpus.group_by("model").agg(pl.col("gpu").sum()).sort("model")
    totals.update({f"gpu:{model}": float(count) for model, count in models.rows()})
    if len(with_gpus):
        totals["gpu"] = float(with_gpus["gpu"].sum())
    return totals


def implied_load(tables: Tables, first: float, last: float) -> dict[str, float]:
    """Mean over a period of devices requested, as a share of those there.

    A job requests its devices from creation to deletion, whether or not it was running; one whose
    times are not known requests nothing, and neither does a request that is not known. A job that
    may use several GPU models is spread over them in proportion to their GPUs; what it requests of
    models that no server has is in ``gpu`` alone, the total over all models.

    Parameters
    ----------
    tables : Tables
    first, last : float
        The period, in seconds since the start of the trace.

    Returns
    -------
    dict
        Load by device type; device types that the cluster has none of are absent. Empty when there
        are no servers or no jobs.
    """
    import polars as pl

    totals = device_totals(tables)
    if not totals or tables.jobs.is_empty():
        return {}
    jobs = tables.jobs.filter(_timed())
    created, deleted = jobs["created"].to_numpy(), jobs["deleted"].to_numpy()
    share = np.clip(np.minimum(deleted, last) - np.maximum(created, first), 0.0, None)
    share = share / max(last - first, 1.0)
    if "tasks" in jobs.columns:
        share *= jobs["tasks"].fill_null(1).to_numpy()
    asked = {name: jobs[name].fill_null(0).to_numpy() for name in UNITS}
    held = {name: float(share @ asked[name]) for name in UNITS}
    present = {name[4:]: total for name, total in totals.items() if name.startswith("gpu:")}
    held.update({f"gpu:{model}": 0.0 for model in present})
    by_set = jobs.select(pl.col("models").fill_null("")).with_columns(held=share * asked["gpu"])
    for models, amount in by_set.group_by("models").sum().sort("models").rows():
        usable = [m for m in (models.split("|") if models else present) if m in present]
        among = sum(present[m] for m in usable)
        for model in usable:
            held[f"gpu:{model}"] += amount * present[model] / among
    return {name: held[name] / total for name, total in totals.items() if total > 0}


def of_tables(tables: Tables) -> Fidelity:
    """The report of a trace as it was read, over all of its time.

    Servers or jobs may be absent altogether, and times or requests of jobs null: the notes say so.
    """
    first, last, notes = 0.0, 0.0, []
    if tables.servers.is_empty():
        notes.append("the files here do not say which servers there are: no capacity, no load")
    if tables.jobs.is_empty():
        notes.append("there are no jobs in the files here: no period, no load")
    else:
        timed = tables.jobs.filter(_timed())
        if len(timed):
            first = float(timed["created"].to_numpy().min())
            last = float(timed["deleted"].to_numpy().max())
            until_end = int((timed["deleted"] == last).sum())
            notes.append(
                f"{until_end} jobs are deleted at the very end of the trace, at {last:.0f} s: "
                "their true lifetimes may be longer; the implied load counts them until then"
            )
        if len(timed) < len(tables.jobs):
            notes.append(
                f"{len(tables.jobs) - len(timed)} jobs have no time of creation or deletion; the "
                "implied load leaves them out"
            )
        for name in UNITS:
            unknown = tables.jobs[name].null_count()
            if unknown:
                notes.append(
                    f"{unknown} jobs do not say how much {name} they request; the implied load "
                    "counts it as none"
                )
    return Fidelity(
        tables.trace,
        tables.stages,
        first,
        last,
        len(tables.servers),
        len(tables.jobs),
        device_totals(tables),
        implied_load(tables, first, last),
        (*tables.notes, *notes),
        tables.digests,
        tables.units,
    )


def _timed() -> pl.Expr:
    import polars as pl

    return pl.col("created").is_not_null() & pl.col("deleted").is_not_null()

"""Recorded iteration times of training jobs and a list of servers, without a table of jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gangwise.core.errors import TraceError
from gangwise.traces.demand import Demand
from gangwise.traces.devices import QUANTITIES
from gangwise.traces.fitting import fits, sample_servers
from gangwise.traces.grouping import Grouping
from gangwise.traces.load import of_tables
from gangwise.traces.mini_batch_time import MiniBatchTime
from gangwise.traces.settings import Steps
from gangwise.traces.trace import Tables, Trace


def tables_of(trace: Trace | Tables, recorded: bool) -> Tables:
    """What was read; the servers alone, where the speeds of jobs are recorded and nothing else."""
    if isinstance(trace, Tables):
        return trace
    servers = getattr(trace, "servers", None)
    if not recorded or servers is None or (report := trace.fidelity()).jobs:
        return trace.scan()
    import polars as pl

    no_jobs = pl.DataFrame(schema=dict.fromkeys(QUANTITIES, pl.Float64))
    return Tables(
        report.trace, servers(), no_jobs, report.stages, report.digests, report.notes, report.units
    )


def recorded_demand(tables: Tables, record: MiniBatchTime, s: Steps) -> Demand:
    """Recorded jobs as job types, on the servers that have GPUs.

    Raises
    ------
    TraceError
        When none has.
    """
    import polars as pl

    there = tables.servers.filter(pl.col("gpu") > 0)
    if there.is_empty():
        raise TraceError("no server here has GPUs, which the recorded workers requested")
    notes = [
        f"there are no jobs in the files: the {len(record.tables)} recorded jobs are the job "
        f"types, and each arrives in a slot with probability keep = {s.keep:g}",
        "recorded workers requested parts of a GPU; of cores and memory nothing is known",
        f"servers are the {len(there)} of {len(tables.servers)} that have GPUs",
    ]
    tables = replace(tables, servers=there.sort("name").fill_null(0.0))
    if s.servers is not None and s.servers < len(there):
        tables = sample_servers(tables, s.servers)
        notes.append(f"{s.servers} of them are a sample, each kind in proportion")
    jobs = tuple(dict.fromkeys(w.job for w in record.workers))
    share = [max(w.gpus for w in record.workers if w.job == job) for job in jobs]
    requests = np.array([[0.0, 0.0, gpus] for gpus in share])
    L = len(jobs)
    grouping = Grouping(requests, ("",) * L, np.arange(L), np.ones(L))
    capacity, model = tables.servers.select(QUANTITIES).to_numpy(), tables.servers["model"]
    base = of_tables(tables)
    return Demand(
        tables.servers,
        grouping,
        jobs,
        fits(requests, grouping.models, capacity, model.to_list()),
        np.zeros((0, L), dtype=np.int64),
        np.full(L, np.nan),
        tables.units,
        replace(base, notes=(*dict.fromkeys(base.notes), *notes)),
    )

"""``gangwise replay --until-full``: which choice of nodes allocates most of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from gangwise.core.arrays import Floats
from gangwise.core.settings import checked
from gangwise.jobs.filling import POLICIES, Filled, Filling
from gangwise.jobs.model import Nodes
from gangwise.traces import open_tables, reader_arguments, reader_of, without_reader
from gangwise.traces.jobs import JobLog, jobs_of


class Settings(BaseModel):
    """What ``--set`` takes with ``--until-full``: how far to fill, and which nodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    until: float = Field(
        1.3, gt=0, le=100, description="arrivals ask for at most this share of the GPUs"
    )
    gpu_nodes: bool = Field(False, description="leave out nodes without GPUs")


@dataclass(frozen=True, eq=False)
class Fillings:
    """What every policy made of every seed's arrivals.

    ``line`` says what was played and left out, and comes first; ``filled`` has, by policy, one
    result for each seed.
    """

    line: str
    settings: Settings
    seeds: tuple[int, ...]
    filled: dict[str, list[Filled]]

    def at(self, policy: str, arrived: float | None, what: str = "allocated") -> Floats:
        """Per cent allocated or fragmented when so much had arrived (None: at the end) [seeds]."""
        each = [(one.arrived, getattr(one, what)) for one in self.filled[policy]]
        if arrived is None:
            return np.array([values[-1] for _, values in each])
        return np.array([np.interp(arrived, at, values) for at, values in each])

    def curve(self, policy: str, what: str) -> list[float]:
        """Means over seeds at 0, 1, 2, … per cent arrived."""
        most = min(each.arrived.size - 1 for each in self.filled[policy])
        values = [getattr(each, what)[:most] for each in self.filled[policy]]
        return [round(float(x), 4) for x in np.mean(values, axis=0)]

    def as_dict(self) -> dict[str, Any]:
        found = {}
        for policy, each in self.filled.items():
            found[policy] = {
                what: {
                    "at_100": self.at(policy, 100.0, what).tolist(),
                    "at_the_end": self.at(policy, None, what).tolist(),
                    "curve": self.curve(policy, what),
                }
                for what in ("allocated", "fragmented")
            } | {"turned_away": [one.turned_away for one in each]}
        settings = self.settings.model_dump()
        return {"line": self.line, "settings": settings, "seeds": self.seeds, "policies": found}


def fill_trace(
    source: Path | str,
    policies: Sequence[str] = (),
    seeds: Sequence[int] = (),
    settings: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Fillings:
    """Fill the cluster of a trace with its jobs, whenever they came and however long they ran.

    ``source`` is a trace or ``twin:NAME``; a pod list without times will do. By default
    ``policies`` are all of :data:`gangwise.jobs.filling.POLICIES`, and ``seeds`` 0 to 9.
    """
    s = checked(Settings, "--until-full", dict(settings or {}))
    names, seeds = tuple(policies) or POLICIES, tuple(seeds) or tuple(range(10))
    log = untimed(Path(source))
    nodes = with_gpus(log.nodes) if s.gpu_nodes else log.nodes
    filled: dict[str, list[Filled]] = {name: [] for name in names}
    account = log.jobs.account
    for i, seed in enumerate(seeds):
        filling = Filling(log.jobs, nodes, seed, s.until)
        account = filling.account
        for done, name in enumerate(names, i * len(names) + 1):
            filled[name].append(filling.play(name))
            if progress is not None:
                progress("filling", done, len(seeds) * len(names))
    lost = "; ".join(f"{rows.size:,} {why}" for why, rows in account.set_aside.items())
    line = (
        f"{log.played.trace}: {account.played:,} of {log.played.read:,} jobs come in random "
        f"order to {len(nodes):,} nodes, until they ask for {100 * s.until:g} % of the GPUs (drawn "
        "again if they are too few); none ends, and times play no part"
        + f"; left out: {lost}"
        * bool(lost)
    )
    return Fillings(line, s, seeds, filled)


def untimed(source: Path) -> JobLog:
    """All jobs of a trace as if they came at once and took a second."""
    knobs: dict[str, Any] = {}
    if not without_reader(source) and "untimed" in reader_arguments(reader_of(source, "")):
        knobs["untimed"] = True
    tables = open_tables(source, **knobs)
    times = ("started", "elapsed", "status", "unfinished", "limit", "after")
    jobs = tables.jobs.drop(name for name in times if name in tables.jobs.columns)
    jobs = jobs.with_columns(pl.lit(0.0).alias("created"), pl.lit(1.0).alias("deleted"))
    return jobs_of(replace(tables, jobs=jobs))


def with_gpus(nodes: Nodes) -> Nodes:
    keep = np.flatnonzero(nodes.capacity[:, nodes.devices.index("gpu")])
    return replace(
        nodes,
        names=tuple(nodes.names[n] for n in keep),
        capacity=np.ascontiguousarray(nodes.capacity[keep]),
        labels=tuple(nodes.labels[n] for n in keep),
        rates=tuple(nodes.rates[n] for n in keep),
    )

"""How faithfully a trace was read: nothing is left out or changed without a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

    from gangwise.traces.trace import Tables

__all__ = [
    "Fidelity",
    "Stage",
    "device_totals",
    "implied_load",
    "leave_out",
    "of_tables",
    "period",
]

Floats = npt.NDArray[np.float64]
UNITS = {"cpu": "cores", "mem": "GiB", "gpu": "GPUs"}


class Stage(NamedTuple):
    """A file that was read, or a later step that leaves jobs out.

    ``dropped`` maps a reason to (how many, the first row of the file that was).
    """

    name: str
    read: int
    kept: int
    dropped: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Fidelity:
    """What became of a trace.

    Attributes
    ----------
    trace : str
        Registered name of the format.
    stages : tuple of Stage
        Rows read, kept and dropped, file by file and step by step.
    first, last : float
        Seconds since the start of the trace: the period that ``load`` is a mean over. Both 0 when
        there are no jobs, or when their times are not known.
    servers, jobs : int
    capacity : mapping of str to float
        Total of each device type; empty when there are no servers.
    load : mapping of str to float
        Mean over the period of devices requested / devices there, see :func:`implied_load`; empty
        when there are no servers or no jobs.
    notes : tuple of str
    digests : mapping of str to str
        SHA-256 of each file.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.

    Examples
    --------
    >>> report = Fidelity("my-trace", (Stage("pods.csv", 3, 2, {"cpu is negative": (1, 4)}),),
    ...                   0.0, 7200.0, 1, 2, {"cpu": 8.0}, {"cpu": 0.25})
    >>> print(report)
    my-trace: 1 servers, 2 jobs, 0 s to 7200 s (2 h)
      pods.csv: 3 read, 2 kept
               1  cpu is negative (first in row 4)
      device type         capacity  unit     implied load
      cpu                        8  cores          25.0 %
    """

    trace: str
    stages: tuple[Stage, ...]
    first: float
    last: float
    servers: int
    jobs: int
    capacity: Mapping[str, float]
    load: Mapping[str, float]
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=lambda: dict(UNITS))

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        plain = asdict(self)
        plain["stages"] = [
            {
                **stage._asdict(),
                "dropped": {
                    why: {"count": n, "first_row": row} for why, (n, row) in stage.dropped.items()
                },
            }
            for stage in self.stages
        ]
        plain["notes"] = list(self.notes)
        plain["period"] = period(self.last - self.first)
        return plain

    def __str__(self) -> str:
        lines = [
            f"{self.trace}: {self.servers or 'no'} servers, {self.jobs or 'no'} jobs"
            + f", {self.first:.0f} s to {self.last:.0f} s ({period(self.last - self.first)})"
            * bool(self.jobs)
        ]
        for stage in self.stages:
            lines.append(f"  {stage.name}: {stage.read} read, {stage.kept} kept")
            for why, (count, row) in stage.dropped.items():
                lines.append(f"    {count:8d}  {why} (first in row {row})")
        if self.capacity:
            lines.append(
                f"  {'device type':<16s}{'capacity':>12s}  {'unit':<8s}{'implied load':>13s}"
            )
        for device, total in self.capacity.items():
            unit = self.units[device.split(":")[0]]
            load = f"{100 * self.load[device]:.1f} %" if device in self.load else "-"
            lines.append(f"  {device:<16s}{total:12.10g}  {unit:<8s}{load:>13s}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def period(seconds: float) -> str:
    """A duration for people.

    >>> period(12902960.0), period(90.0)
    ('149.3 days', '1.5 min')
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:g} s"


def leave_out(
    name: str, frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]]
) -> tuple[pl.DataFrame, Stage]:
    """Leave out the rows that break a rule, each for the first that it breaks.

    Parameters
    ----------
    name : str
        Of the stage.
    frame : polars.DataFrame
        With a column ``row``.
    rules : sequence of (str, polars.Expr)
        A reason, and what is true of the rows it is a reason for.

    Returns
    -------
    DataFrame
        The rows kept.
    Stage
        The account of it.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"row": [1, 2, 3], "cpu": [4.0, 0.0, None]})
    >>> kept, stage = leave_out("tasks", frame, [("asks for nothing", pl.col("cpu") == 0)])
    >>> kept["row"].to_list(), dict(stage.dropped)
    ([1, 3], {'asks for nothing': (1, 2)})
    """
    import polars as pl

    why = pl.coalesce(
        *(pl.when(broken).then(pl.lit(reason)) for reason, broken in rules), pl.lit(None, pl.String)
    )
    reason = frame.with_columns(reason=why)["reason"]
    kept = frame.filter(reason.is_null())
    lost = frame.select("row", reason=reason).filter(reason.is_not_null())
    counted = lost.group_by("reason").agg(pl.len(), pl.col("row").min()).sort("row", "reason")
    dropped = {text: (count, row) for text, count, row in counted.rows()}
    return kept, Stage(name, len(frame), len(kept), dropped)


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
        tables.trace, tables.stages, first, last, len(tables.servers), len(tables.jobs),
        device_totals(tables), implied_load(tables, first, last), (*tables.notes, *notes),
        tables.digests, tables.units,
    )  # fmt: skip


def _timed() -> pl.Expr:
    import polars as pl

    return pl.col("created").is_not_null() & pl.col("deleted").is_not_null()


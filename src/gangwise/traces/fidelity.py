"""How faithfully a trace was read: nothing is left out or changed without a line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gangwise.traces.account import Stage, reason_lines, reasons_plain

UNITS = {"cpu": "cores", "mem": "GiB", "gpu": "GPUs"}


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
        Mean over the period of devices requested / devices there, see
        :func:`~gangwise.traces.load.implied_load`; empty when there are no servers or no jobs.
    notes : tuple of str
    digests : mapping of str to str
        SHA-256 of each file.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.

    Examples
    --------
    >>> report = Fidelity(
    ...     "my-trace",
    ...     (Stage("pods.csv", 3, 2, {"cpu is negative": (1, 4)}),),
    ...     0.0,
    ...     7200.0,
    ...     1,
    ...     2,
    ...     {"cpu": 8.0},
    ...     {"cpu": 0.25},
    ... )
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
            {**stage._asdict(), "dropped": reasons_plain(stage.dropped)} for stage in self.stages
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
            lines += reason_lines(stage.dropped)
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

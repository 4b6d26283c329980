"""Work and waiting: when jobs held devices, what hours are counted of, and how much is kept.

Waiting is not work. A job is submitted when it was created; it holds its devices from its start,
for as long as the log says that it ran. Where a format does not tell starts, all the time from
creation to deletion is taken for work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats

LOW_SHARE = 0.3  # a share of the jobs, or of their device-hours, below which there is a warning
OF_EVENTS = ("google-2011", "google-2019")  # formats whose files have events, and several to a job


def work(jobs: pl.DataFrame) -> pl.DataFrame:
    """When each row of :attr:`Tables.jobs` held its devices: ``begin`` and ``run``, in seconds.

    Both are null of a job that never ran, or of which it is not known.

    >>> jobs = pl.DataFrame({"created": [0.0, 0.0, 5.0], "deleted": [90.0, 50.0, 9.0]})
    >>> work(jobs).rows()
    [(0.0, 90.0), (0.0, 50.0), (5.0, 4.0)]
    >>> work(jobs.with_columns(started=pl.Series([30.0, None, 5.0]))).rows()
    [(30.0, 60.0), (None, None), (5.0, 4.0)]
    """
    blank = pl.lit(None, pl.Float64)
    waits = "started" in jobs.columns
    started = pl.col("started") if waits else blank
    elapsed = pl.col("elapsed") if "elapsed" in jobs.columns else blank
    begun = pl.max_horizontal("started", "created") if waits else pl.col("created")
    run = pl.coalesce(elapsed, pl.col("deleted") - (started if waits else pl.col("created")))
    if waits:  # a start that is not known, of a job that is known to have run
        begun = pl.when(started.is_not_null()).then(begun).otherwise("created")
    return jobs.select(
        begin=pl.when(run.is_not_null()).then(begun.cast(pl.Float64)), run=run.cast(pl.Float64)
    )


def waits_of(jobs: pl.DataFrame) -> Floats:
    """Seconds from creation to start of the jobs of which both are known; none where no start is.

    >>> waits_of(pl.DataFrame({"created": [0.0, 4.0], "started": [9.0, None]}))
    array([9.])
    """
    if "started" not in jobs.columns:
        return np.zeros(0)
    waited = (pl.col("started") - pl.col("created")).clip(lower_bound=0.0)
    return jobs.select(waited.cast(pl.Float64)).to_series().drop_nulls().to_numpy()


def counted(jobs: pl.DataFrame, units: Mapping[str, str]) -> tuple[str, str]:
    """The device that hours are counted of, and its unit: GPUs where half of the jobs ask for any.

    >>> counted(pl.DataFrame({"cpu": [4.0, 1], "mem": [0.0, 0], "gpu": [1.0, 0]}), {"cpu": "cores"})
    ('gpu', 'GPU')
    """
    known = jobs.select(pl.col("cpu", "mem", "gpu").cast(pl.Float64).fill_nan(0.0).fill_null(0.0))
    asked = {name: int((known[name] != 0).sum()) for name in known.columns}
    if 2 * asked["gpu"] >= len(jobs) or (asked["gpu"] and not asked["cpu"]):
        return "gpu", "GPU"
    if not asked["cpu"]:
        return "mem", "GiB"
    return "cpu", "core" if units["cpu"] == "cores" else units["cpu"]


def device_hours(jobs: pl.DataFrame, device: str) -> Floats:
    """Device-hours that each row ran, all its tasks together; 0 where that is not known.

    >>> jobs = pl.DataFrame({"cpu": [4.0], "tasks": [2], "created": [0.0], "deleted": [7200.0]})
    >>> device_hours(jobs, "cpu")
    array([16.])
    """
    tasks = pl.col("tasks").fill_null(1) if "tasks" in jobs.columns else pl.lit(1)
    amount = jobs.select((pl.col(device).fill_null(0) * tasks).cast(pl.Float64)).to_series()
    hours = (work(jobs)["run"].fill_null(0.0).clip(lower_bound=0.0) * amount / 3600).to_numpy()
    return np.asarray(hours, dtype=np.float64)


def amount_text(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"


def percent_text(part: float, whole: float) -> str:
    """A share that is 100 % only where nothing is missing.

    >>> percent_text(9999, 10000), percent_text(99999, 100000), percent_text(2, 2)
    ('99.99 %', '99.99 %', '100 %')
    >>> percent_text(0, 0)
    '-'
    """
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    if abs(share - 100) < 1e-7:  # sums in another order differ by less
        return "100 %"
    digits = 3 if share < 99.9 else 4
    shown = f"{share:.{digits}g}"
    if share < 100 and shown == "100":
        shown = "99.9" if share < 99.95 else "99.99"
    return f"{shown} %"


def played_text(
    trace: str, jobs: tuple[float, float], hours: tuple[float, float] | None, unit: str, known: bool
) -> str:
    """How much of a log is played: (played, read) of jobs, and of device-hours where there are any.

    ``known`` is whether the device-hours of all jobs are known.
    """
    text = f"{trace}: {percent_text(*jobs)} of {jobs[1]:,.0f} jobs"
    if hours is not None:
        amount = f"{amount_text(hours[1])} {unit}-hours"
        amount = amount if known else f"the {amount} that are known"
        text += f" and {percent_text(*hours)} of {amount}"
    return f"{text} are played"


def period(seconds: float) -> str:
    """A duration for people.

    >>> period(12902960.0), period(90.0)
    ('149.3 days', '1.5 min')
    """
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            many = f"{round(seconds / size, 1):g}"
            return f"{many} {'day' if many == '1' and unit == 'days' else unit}"
    return f"{seconds:g} s"


@dataclass(frozen=True)
class Kept:
    """How much of a log a workload of slots keeps, and on what terms."""

    trace: str  # registered name of the format
    unit: str  # what hours are counted of: GPU, core
    # Jobs of the log, those that could not be read included; and those that are played, in the mean
    # where arrivals are thinned.
    read: float
    played: float
    # Device-hours that the log says jobs ran, and those of the jobs that are played; 0 where what
    # they requested is not known.
    hours: float
    played_hours: float
    # Device-hours that the played jobs hold if each gets what it requests, in the time that it has
    # in slots; None where requests are not used.
    given: float | None
    wait: float | None  # mean wait of the jobs of the log, in seconds; None where it is not known
    waiting: float | None  # share of waiting in the time that jobs were there
    # What must be known of how jobs are taken: elastic, drawn utilities.
    terms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # besides those that follow from the shares
    # ``played``, ``played_hours`` and ``given`` of the jobs that come in each slot of the window,
    # shape [slots, 3].
    by_slot: Floats | None = field(default=None, compare=False, repr=False)
    unread: int = 0  # jobs whose rows could not be read: nobody knows their device-hours

    def in_first(self, slots: int) -> Kept:
        """What is played in so many slots: the beginning of the window, or all of it and more.

        >>> of_slot = np.array([[60, 20.0, 9.0], [15, 10.0, 6.0]])
        >>> kept = Kept("t", "GPU", 100, 75, 40.0, 30.0, 15.0, None, None, (), (), of_slot)
        >>> kept.in_first(1).line
        't: 60 % of 100 jobs and 50 % of 40 GPU-hours are played; given ÷ requested 0.45; waits \
are not known; the first 1 of 2 slots'
        >>> kept.in_first(2) == kept, kept.in_first(5).terms
        (True, ('of 5 slots the log has 2',))
        """
        window = 0 if self.by_slot is None else len(self.by_slot)
        if self.by_slot is None or slots == window:
            return self
        if slots > window:
            return replace(self, terms=(f"of {slots:,} slots the log has {window:,}", *self.terms))
        played, hours, given = map(float, self.by_slot[:slots].sum(axis=0))
        return replace(
            self,
            played=played,
            played_hours=hours,
            given=None if self.given is None else given,
            terms=(f"the first {slots:,} of {window:,} slots", *self.terms),
        )

    @property
    def line(self) -> str:
        """What comes first wherever a result of the log is shown.

        >>> kept = Kept("t", "GPU", 100, 75, 40.0, 30.0, 15.0, 90.0, 0.25, ("values are drawn",))
        >>> kept.line
        't: 75 % of 100 jobs and 75 % of 40 GPU-hours are played; given ÷ requested 0.5; mean wait \
1.5 min, 25 % of the time in the system; values are drawn'
        """
        jobs, hours = (self.played, self.read), (self.played_hours, self.hours)
        known = not self.unread
        parts = [played_text(self.trace, jobs, hours if self.hours else None, self.unit, known)]
        if self.given is not None and self.played_hours > 0:
            parts.append(f"given ÷ requested {self.given / self.played_hours:.2g}")
        if self.wait is None or self.waiting is None:
            parts.append("waits are not known")
        else:
            parts.append(
                f"mean wait {period(round(self.wait, 1))}, {100 * self.waiting:.3g} % of "
                "the time in the system"
            )
        return "; ".join([*parts, *self.terms])

    @property
    def lines(self) -> list[str]:
        jobs = self.played / self.read if self.read else 0.0
        hours = self.played_hours / self.hours if self.hours else 1.0
        little = []
        if min(jobs, hours) < LOW_SHARE:
            what = "jobs" if jobs <= hours else f"{self.unit}-hours"
            little.append(
                f"warning: only {100 * min(jobs, hours):.3g} % of the {what} of the log are "
                "played: who wins here need not win on the log"
            )
        return [self.line, *little, *(f"warning: {text}" for text in self.warnings)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "line": self.line,
            "warnings": [text.removeprefix("warning: ") for text in self.lines[1:]],
            "jobs": {"read": self.read, "played": self.played},
            "device_hours": {
                "unit": self.unit,
                "read": self.hours,
                "played": self.played_hours,
                "given": self.given,
            },
            "mean_wait_s": self.wait,
            "waiting_share": self.waiting,
            "terms": list(self.terms),
        }

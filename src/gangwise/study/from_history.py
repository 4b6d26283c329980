"""When waiting jobs start, from accounting data alone; and how good such forecasts were.

The source is a log of jobs, at instants spread over it, or a table of jobs that were pending
(:mod:`gangwise.logs.pending`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError
from gangwise.logs.pending import instant, open_pending, pending_files
from gangwise.sites.wait_history import LEAST, PendingJobs, forecast_in_order, pending_of
from gangwise.study.explain import ForecastOfLog
from gangwise.study.statistics import count
from gangwise.study.sweep import Progress, silent

INSTANTS = 60  # of a log, at most
APART = 3600.0  # seconds between two of them, at least


class Judged(NamedTuple):
    """How good forecasts were: shares of jobs, and quantiles of p50 as a share of what came."""

    jobs: int
    instants: int
    within_two: float
    within_three: float
    middle: tuple[float, float]  # half of all p50 lie between these shares of the truth
    below_p50: float
    below_p90: float
    waiting: int  # left out: those that had not started when the data end

    def __str__(self) -> str:
        low, high = self.middle
        return (
            f"{count(self.jobs, 'forecast')} at {count(self.instants, 'instant')}, in the order of "
            "time, each from what was known by then: "
            f"{100 * self.within_two:.1f} % of p50 are within a factor of 2 of the time that was "
            f"left, {100 * self.within_three:.1f} % within 3, half of them within "
            f"[{low:.2f}, {high:.2f}] of it; {100 * self.below_p50:.1f} % of jobs started by p50 "
            f"and {100 * self.below_p90:.1f} % by p90"
            + f". {count(self.waiting, 'job')} with no known start left out"
            * bool(self.waiting)
        )


class HistoryForecast(NamedTuple):
    """Forecasts of the jobs that wait at an instant, and how good earlier ones were."""

    found: ForecastOfLog
    judged: Judged | None

    def as_dict(self) -> dict[str, Any]:
        judged = None if self.judged is None else self.judged._asdict()
        return self.found.as_dict() | {"judged": judged}


def forecast_from_history(
    source: Path | str,
    at: str = "",
    judge: bool = False,
    settings: Mapping[str, Any] | None = None,
    advance: Progress = silent,
) -> HistoryForecast:
    """When jobs that wait at an instant will start, learned from the starts known by then.

    Parameters
    ----------
    source : str or Path
        A log of jobs with submission, start and end, or a table of pending jobs or a folder of
        such.
    at : str
        The instant: on the clock of a log in seconds or as ``12d6h``; of a table also a date and
        time. By default the last at which a job waits.
    judge : bool
        Also foretell at each earlier instant, and compare with what came.

    Raises
    ------
    ScenarioError
        When no job waits then, or too few starts are known by then.
    """
    files = pending_files(source) if Path(source).exists() else []
    if files:
        pending = open_pending(files)
        now = instant(at) if at else float(pending.now.max())
        what = f"{count(len(files), 'table')} of pending jobs"
    else:
        pending, now = _of_log(str(source), at, dict(settings or {}))
        what = "the log"
    pending = pending.at(pending.now <= now)
    if not (pending.now == now).any():
        known = np.unique(pending.now)
        near = f"; the instant before is {known[-1]:.0f} s" if known.size else ""
        raise ScenarioError(f"no job waits at {now:.0f} s in {source}{near}")
    instants = np.unique(pending.now)
    asked = () if judge else (now,)
    last, made, truths = None, [], []
    for one in forecast_in_order(pending, asked):
        advance("forecasts", int(np.searchsorted(instants, one.now)), instants.size)
        last = one
        made.append(one.quantiles)
        truths.append(pending.start[one.rows] - one.now)
    if last is None or last.now != now:
        known_starts = int((pending.start <= now).sum())
        raise ScenarioError(
            f"{known_starts} starts of jobs that waited are known by {now:.0f} s; it takes {LEAST}"
        )
    judged = _judged(np.concatenate(made), np.concatenate(truths), len(made)) if judge else None
    used = int(((pending.now < now) & (pending.start <= now)).sum())
    line = (
        f"{count(last.rows.size, 'job waits', 'jobs wait')} at {now:.0f} s. Learned from {used:,} "
        f"earlier waits of {what} that had ended by then; no rules are assumed, and jobs that will "
        "be withdrawn are not foretold"
    )
    return HistoryForecast(ForecastOfLog(now, line, _rows(pending, last)), judged)


def _rows(pending: PendingJobs, last: Any) -> list[dict[str, Any]]:
    rows = []
    for r, (p50, p90) in zip(last.rows.tolist(), last.quantiles.tolist()):
        left = float(pending.start[r] - last.now)
        row = {"job": str(pending.id[r]), "waited": float(pending.features["waited"][r])}
        row |= {"p50": p50, "p90": p90, "started": left if np.isfinite(left) else None}
        rows.append(row)
    return rows


def _judged(quantiles: Floats, left: Floats, instants: int) -> Judged:
    came = np.isfinite(left)
    ratio = quantiles[came, 0] / np.maximum(left[came], 1.0)
    off = np.abs(np.log(ratio))
    low, high = np.quantile(ratio, [0.25, 0.75]).tolist()
    p50, p90 = (left[came, None] <= quantiles[came]).mean(axis=0).tolist()
    return Judged(
        int(came.sum()),
        instants,
        float((off <= np.log(2)).mean()),
        float((off <= np.log(3)).mean()),
        (low, high),
        p50,
        p90,
        int((~came).sum()),
    )


def _of_log(source: str, at: str, settings: dict[str, Any]) -> tuple[PendingJobs, float]:
    """Jobs that waited at instants of a log up to the one asked for, and that instant."""
    from gangwise.jobs.metrics import held_devices
    from gangwise.logs.jobs import open_jobs
    from gangwise.study.changes import instant_of

    log = open_jobs(source, **settings)
    jobs = log.jobs
    if not np.isfinite(jobs.recorded_start).any():
        raise ScenarioError(f"{source} does not say when its jobs started")
    device = log.nodes.devices.index(log.played.device)
    first, last = float(jobs.submit[0]), float(jobs.submit[-1])
    now = instant_of(at, log.clock) if at else last
    if not first <= now <= last:
        raise ScenarioError(
            f"--at {now:g}: jobs of {source} are submitted from {first:g} to {last:g} s"
        )
    many = int(np.clip((now - first) / APART, 1, INSTANTS))
    groups = {"user": jobs.user, "account": jobs.charged, "pool": jobs.pool}
    groups = {name: code for name, code in groups.items() if np.unique(code).size > 1}
    pending = pending_of(
        jobs.submit,
        jobs.recorded_start,
        jobs.recorded_end,
        held_devices(jobs, log.nodes)[:, device],
        jobs.limit,
        groups,
        np.asarray(jobs.id).astype(str),
        np.linspace(first, now, many + 1)[1:],
    )
    return pending, now if at else float(pending.now.max())

"""When waiting jobs start, from accounting data alone; and how good such forecasts were.

The source is a log of jobs, at instants spread over it, or a table of jobs that were pending
(:mod:`gangwise.logs.pending`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core import arrays, errors, wording
from gangwise.logs.pending import instant, open_pending, pending_files
from gangwise.sites.wait_history import LEAST, PendingJobs, forecast_in_order, pending_of
from gangwise.study import explain, sweep
from gangwise.study.statistics import count

phrase = wording.phrases("gangwise.study")

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
        forecasts, instants = count(self.jobs, "forecast"), count(self.instants, "instant")
        shares = ("within_two", "within_three", "below_p50", "below_p90")
        percent = {name: 100 * getattr(self, name) for name in shares}
        ends = dict(zip(("low", "high"), self.middle))
        text = phrase("judged", forecasts=forecasts, instants=instants, **percent, **ends)
        left_out = f". {count(self.waiting, 'job')} with no known start left out"
        return text + left_out * bool(self.waiting)


class HistoryForecast(NamedTuple):
    """Forecasts of the jobs that wait at an instant, and how good earlier ones were."""

    found: explain.ForecastOfLog
    judged: Judged | None

    def as_dict(self) -> dict[str, Any]:
        judged = None if self.judged is None else self.judged._asdict()
        return self.found.as_dict() | {"judged": judged}


def forecast_from_history(
    source: Path | str,
    at: str = "",
    judge: bool = False,
    settings: Mapping[str, Any] | None = None,
    advance: sweep.Progress = sweep.silent,
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
        time = instant(at) if at else float(pending.now.max())
        kind = f"{count(len(files), 'table')} of pending jobs"
    else:
        pending, time = _of_log(str(source), at, dict(settings or {}))
        kind = "the log"
    pending = pending.at(pending.now <= time)
    if not (pending.now == time).any():
        earlier = np.unique(pending.now)
        near = f"; the instant before is {earlier[-1]:.0f} s" if earlier.size else ""
        raise errors.ScenarioError(f"no job waits at {time:.0f} s in {source}{near}")
    instants = np.unique(pending.now)
    only = () if judge else (time,)
    final, levels, truths = None, [], []
    for step in forecast_in_order(pending, only):
        advance("forecasts", int(np.searchsorted(instants, step.now)), instants.size)
        final = step
        levels.append(step.quantiles)
        truths.append(pending.start[step.rows] - step.now)
    if final is None or final.now != time:
        known_starts = int((pending.start <= time).sum())
        raise errors.ScenarioError(
            f"{known_starts} starts of jobs that waited are known by {time:.0f} s; it takes {LEAST}"
        )
    judged = _judged(np.concatenate(levels), np.concatenate(truths), len(levels)) if judge else None
    used = int(((pending.now < time) & (pending.start <= time)).sum())
    waiting = count(final.rows.size, "job waits", "jobs wait")
    line = phrase("from history", waiting=waiting, now=time, used=used, source=kind)
    return HistoryForecast(explain.ForecastOfLog(time, line, _rows(pending, final)), judged)


def _rows(pending: PendingJobs, last: Any) -> list[dict[str, Any]]:
    rows = []
    for r, (p50, p90) in zip(last.rows.tolist(), last.quantiles.tolist()):
        remaining = float(pending.start[r] - last.now)
        row = {"job": str(pending.id[r]), "waited": float(pending.features["waited"][r])}
        row |= {"p50": p50, "p90": p90, "started": remaining if np.isfinite(remaining) else None}
        rows.append(row)
    return rows


def _judged(quantiles: arrays.Floats, left: arrays.Floats, instants: int) -> Judged:
    started = np.isfinite(left)
    ratio = quantiles[started, 0] / np.maximum(left[started], 1.0)
    # Factors: half and twice the truth are equally far off.
    off = np.abs(np.log(ratio))
    low, high = np.quantile(ratio, [0.25, 0.75]).tolist()
    p50, p90 = (left[started, None] <= quantiles[started]).mean(axis=0).tolist()
    return Judged(
        int(started.sum()),
        instants,
        float((off <= np.log(2)).mean()),
        float((off <= np.log(3)).mean()),
        (low, high),
        p50,
        p90,
        int((~started).sum()),
    )


def _of_log(source: str, at: str, settings: dict[str, Any]) -> tuple[PendingJobs, float]:
    """Jobs that waited at instants of a log up to the one asked for, and that instant."""
    from gangwise.jobs.metrics import held_devices
    from gangwise.logs.jobs import open_jobs
    from gangwise.study.changes import instant_of

    log = open_jobs(source, **settings)
    jobs = log.jobs
    if not np.isfinite(jobs.recorded_start).any():
        raise errors.ScenarioError(f"{source} does not say when its jobs started")
    device = log.nodes.devices.index(log.played.device)
    begin, end = float(jobs.submit[0]), float(jobs.submit[-1])
    time = instant_of(at, log.clock) if at else end
    if not begin <= time <= end:
        raise errors.ScenarioError(
            f"--at {time:g}: jobs of {source} are submitted from {begin:g} to {end:g} s"
        )
    instants = int(np.clip((time - begin) / APART, 1, INSTANTS))
    groups = {"user": jobs.user, "account": jobs.charged, "pool": jobs.pool}
    # A group with one member shows nothing.
    groups = {name: code for name, code in groups.items() if np.unique(code).size > 1}
    pending = pending_of(
        jobs.submit,
        jobs.recorded_start,
        jobs.recorded_end,
        held_devices(jobs, log.nodes)[:, device],
        jobs.limit,
        groups,
        np.asarray(jobs.id).astype(str),
        np.linspace(begin, time, instants + 1)[1:],
    )
    return pending, time if at else float(pending.now.max())

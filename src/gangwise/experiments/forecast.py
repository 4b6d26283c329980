"""When the jobs that wait at a time of a log will start, told from what was known by then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError
from gangwise.experiments.replay import replay_source
from gangwise.experiments.replay_scenario import Played, ReplayScenario
from gangwise.experiments.statistics import count
from gangwise.experiments.sweep import Progress, silent
from gangwise.jobs.forecast import (
    DAY,
    DAYS,
    DRAWS,
    NO_RULES,
    Forecaster,
    History,
    Moment,
    StartCalibration,
    moment_of,
)
from gangwise.jobs.model import Jobs
from gangwise.jobs.schedule import Schedule
from gangwise.jobs.scheduler import fresh
from gangwise.jobs.simulation import simulate_jobs

TRIED = 24
"""Earlier instants whose forecasts correct one."""
MOST_JUDGED = 200
"""Waiting jobs of an instant that count in a calibration."""


class Known(NamedTuple):
    """Forecasts at an instant: who waits, the starts drawn [draws, W], and when they started."""

    now: float
    waiting: Any
    starts: Floats
    promised: Floats
    truth: Floats


@dataclass
class Past:
    """A log as it happened, in the simulation or as recorded, in which forecasts are made."""

    played: Played
    scheduler: Any = NO_RULES
    options: Any = None
    recorded: bool = False  # who ran and waited is what the log says, and not the simulation
    draws: int = DRAWS

    def __post_init__(self) -> None:
        jobs, nodes, conditions = self.played
        self.schedule: Schedule | None = None
        if self.recorded:
            self.begun, self.end = jobs.recorded_start, jobs.recorded_end
            if not np.isfinite(self.begun).any():
                raise ScenarioError("the log does not say when its jobs started: omit --recorded")
        else:
            self.schedule = simulate_jobs(
                jobs, nodes, fresh(self.scheduler), conditions, self.options
            )
            self.begun, self.end = self.schedule.last_start, self.schedule.end
        self.forecaster = Forecaster(jobs, nodes, self.scheduler, self.options)
        self.history = History(jobs, self.end - self.begun, self.end)

    def known_at(self, now: float, rng: np.random.Generator) -> Known:
        jobs, nodes, _ = self.played
        can = ~self.forecaster.tables.aside
        moment = moment_of(jobs, nodes, now, self.begun, self.end, can, self.schedule)
        return self.forecast(moment, rng)

    def forecast(self, moment: Moment, rng: np.random.Generator) -> Known:
        starts = self.forecaster.starts(moment, self.history, self.draws, rng)
        promised = self.forecaster.promised(moment)
        return Known(moment.now, moment.waiting, starts, promised, self.begun[moment.waiting])

    def corrected(
        self, instants: Iterable[float], now: float, rng: np.random.Generator
    ) -> StartCalibration:
        """What forecasts at earlier instants, in order, were worth, as is known by ``now``."""
        found = StartCalibration()
        for known in (self.known_at(each, rng) for each in instants):
            for w in rng.permutation(known.waiting.size)[:MOST_JUDGED].tolist():
                found.learn(known.starts[:, w], known.now, float(known.truth[w]), now, rng)
        return found


@dataclass(frozen=True)
class ForecastOfLog:
    """When waiting jobs start.

    A row of each waiting job has ``job``, ``user``, ``tasks``, ``limit``, ``waited``; seconds from
    then on: ``p50``, ``p90``, ``promised`` (if all take as long as requested and nobody comes), and
    ``started``, what came of it, None if nothing did.
    """

    now: float
    basis: str  # what is assumed and what is drawn, in a line
    rows: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {"now": self.now, "basis": self.basis, "jobs": self.rows}


def forecast_log(
    source: str,
    at: float,
    scheduler: str = NO_RULES,
    recorded: bool = False,
    draws: int = DRAWS,
    settings: Mapping[str, Any] | None = None,
    advance: Progress = silent,
) -> ForecastOfLog:
    """When the jobs that wait ``at`` a time of a log, seconds on its clock, will start.

    The log is played under the ``scheduler`` up to then, or taken as ``recorded``, and under it
    from then on. ScenarioError for a time outside of the log, or when nobody waits then.
    """
    scenario = replay_source(source, dict(settings or {})).scenario()
    assert isinstance(scenario, ReplayScenario)
    played = scenario.draw(0)
    submit = played.jobs.submit
    if not submit[0] <= at <= submit[-1]:
        raise ScenarioError(
            f"--at {at:g}: jobs are submitted from {submit[0]:g} to {submit[-1]:g} s "
            f"(day {submit[0] / DAY:.1f} to {submit[-1] / DAY:.1f}) of {source}"
        )
    past = Past(played, scheduler, scenario.options, recorded, draws)
    with np.errstate(invalid="ignore"):
        waits = (submit <= at) & ~(past.begun <= at) & ~past.forecaster.tables.aside
        waits &= ~(past.end <= at)
    if not waits.any():
        later = np.flatnonzero((past.begun > submit) & (submit > at))
        then = f"; the next one waits at {submit[later[0]]:.0f} s" if later.size else ""
        raise ScenarioError(f"--at {at:g}: no job waits then{then}")
    rng = np.random.default_rng(0)
    begin = max(float(submit[0]), at - DAYS * DAY)
    instants = sorted(rng.uniform(begin, at, TRIED).tolist())

    def counted() -> Iterator[float]:
        for i, instant in enumerate(instants):
            advance("forecasts", i, TRIED)
            yield instant

    calibration = past.corrected(counted(), at, rng)
    rows = forecast_rows(played.jobs, past.known_at(at, rng), calibration)
    state = "as recorded" if recorded else f"as {scheduler} has played the log"
    assumed = past.forecaster.assumed
    line = (
        f"{count(len(rows), 'job waits', 'jobs wait')} at {at:.0f} s, {state}. "
        f"{draws} futures under {assumed}: drawn are "
        "run times (learned from jobs that had ended by then) and who comes (from the log's last "
        f"{DAYS} days); {calibration.known:,} starts foretold at {TRIED} earlier instants correct "
        "them"
    )
    return ForecastOfLog(at, line, rows)


def forecast_rows(jobs: Jobs, known: Known, calibration: StartCalibration) -> list[dict[str, Any]]:
    rows = []
    for w, j in enumerate(known.waiting.tolist()):
        job, now = jobs.job(j), known.now
        p50, p90 = calibration.quantiles(known.starts[:, w], now, (0.5, 0.9)) - now
        row = {"job": job.id, "user": job.user, "tasks": job.tasks, "limit": job.limit}
        came = float(known.truth[w] - now)
        row |= {"waited": now - job.submitted, "p50": float(p50), "p90": float(p90)}
        row |= {"promised": float(known.promised[w] - now), "started": came if came > 0 else None}
        rows.append(row)
    return rows

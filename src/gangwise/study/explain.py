"""Single jobs: why one waited in a finished replay, and when those that wait will start.

To explain a job, its run is played again up to the job's end, from its seed, and compared with what
is stored. The scheduler's ``explain(job)`` says why the job waited in every round. Forecasts are
made from what was known by then.

Starts are also forecast from accounting data alone, and those forecasts judged: the source is a
log of jobs, at instants spread over it, or a table of jobs that were pending
(:mod:`gangwise.sites.wait_history`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core import arrays, errors, registry, terminal
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.core.settings import Clock, finite
from gangwise.jobs import kernels, model, schedule
from gangwise.jobs.books import Ask, Books, EventKind, Explanation, Place, Preempt
from gangwise.jobs.choice import ByRate
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.scheduler import fresh
from gangwise.jobs.simulation import JobSimulation, simulate_jobs, tables_of
from gangwise.jobs.waiting import waiting_causes
from gangwise.jobs.waiting_kernels import CAUSES
from gangwise.notation import roughly
from gangwise.sites import forecast as forecasts
from gangwise.sites import wait_history
from gangwise.study import changes, replay, replay_scenario, sweep
from gangwise.study.statistics import count

phrase = terminal.phrases("gangwise.study")

MOST_LISTED = 4  # at most so many nodes or jobs are listed in a sentence


@dataclass
class Explained:
    """The explanation of how long a job waited, and where it ran.

    ``about`` is what was played: scenario, scheduler, seed, job and its times; ``rows`` has a row
    for each time that something changed for the job.
    """

    about: Mapping[str, Any]
    rows: list[dict[str, Any]]
    sentences: list[str]

    def as_dict(self) -> dict[str, Any]:
        about = {"format": "gangwise-explain-1", **self.about}
        content: dict[str, Any] = finite({**about, "rows": self.rows, "sentences": self.sentences})
        return content


def explain_job(
    folder: Path | str, job: str, scheduler: str = "", seed: int | None = None
) -> Explained:
    """Explain why a job, by its id in the log, of a finished replay waited, and where it ran.

    By default it is the first scheduler and the first seed.

    Raises UnknownName for a job or a scheduler that is not there; StoreError when the folder holds
    no replay, or playing it again starts the job at another time.
    """
    replayed = replay.Replayed.open(folder)
    scheduler = scheduler or str(replayed.schedulers[0])
    if scheduler not in replayed.schedulers:
        raise UnknownName("scheduler in these results", scheduler, list(replayed.schedulers))
    seed = replayed.seeds[0] if seed is None else seed
    if seed not in replayed.seeds:
        seeds = ", ".join(map(str, replayed.seeds))
        raise ScenarioError(f"seed {seed} was not played; the seeds are {seeds}")
    scenario = replayed.scenarios[scheduler]
    played = scenario.draw(seed)
    ids = [str(name) for name in played.jobs.id]
    if job not in ids:
        raise UnknownName("job", job, ids[:1000])
    j = ids.index(job)
    decider = fresh(registry.create("scheduler", replayed.scheduler_of(scheduler)))
    options = scenario.options
    tables = tables_of(played.jobs, played.nodes, decider, played.conditions, options)
    simulation = _Following(tables, decider, job)
    # Played again from the start, up to where the job has left.
    while simulation.step() and simulation.jobs[j]["phase"] <= kernels.RUNNING:
        continue
    outcome = replayed.outcomes[scheduler][list(replayed.seeds).index(seed)]
    start, end = float(outcome.start[j]), float(outcome.end[j])
    begun = float(simulation.schedule().start[j])
    # NaN, of a job that never started, is equal to nothing.
    if not (begun == start or (math.isnan(begun) and math.isnan(start))):
        raise StoreError(
            f"played again, job {job} starts at {begun:g} s, and {start:g} s is stored: the folder "
            "was made by other code"
        )
    submitted = float(played.jobs.submit[j])
    about = {"scenario": scenario.settings.source, "scheduler": scheduler, "seed": seed, "job": job}
    about |= {"submitted": submitted, "start": start, "end": end, "waiting": start - submitted}
    tasks = " beside ".join(
        f"{n} task{'s' * (n != 1)} of "
        + " + ".join(f"{d / 1000:g} {kind}" for d, kind in zip(s.demand, played.jobs.devices) if d)
        for n, s in played.jobs.job(j).groups
    )
    since = " and never started."
    if not math.isnan(start):
        ended = "has not ended" if math.isnan(end) else f"ended {roughly(end - start)} after that"
        since = f", started {roughly(start - submitted)} later and {ended}."
    first_sentence = f"Job {job}, {tasks}, was submitted at {_seconds(submitted)}{since}"
    sentences = [first_sentence, *_causes(outcome, played, options, j), *simulation.sentences]
    return Explained(about, simulation.job_rows, sentences)


def _causes(
    outcome: Outcome, played: replay_scenario.ReplayInstance, options: schedule.Options, j: int
) -> list[str]:
    """A sentence that splits the wait of a job by cause, the longest first; none without a wait."""
    if outcome.pieces is None or not outcome.queued[j] or not outcome.waiting[j] > 0:
        return []
    seconds = waiting_causes(outcome, played.conditions, options).seconds[j]
    order = [c for c in np.argsort(-seconds, kind="stable").tolist() if seconds[c] > 0]
    parts = [f"{roughly(seconds[c])}: {terminal.cause_words(CAUSES[c], 'meaning')}" for c in order]
    return [phrase("job causes", parts="; ".join(parts))]


class _Following(JobSimulation):
    def __init__(self, tables: schedule.Tables, scheduler: Any, job: str):
        super().__init__(tables, scheduler)
        self.job, self.job_rows = job, list[dict[str, Any]]()
        self.sentences: list[str] = []
        self._last = ""

    def _decisions(self, now: float) -> list[Any]:
        # The books as the scheduler sees them: its actions change them.
        before = self.books.copy()
        job = next((item for item in self.waiting if item.id == self.job), None)
        actions = super()._decisions(now)
        mine = [item for item in actions if getattr(item, "job", None) == self.job]
        for action in mine:
            if isinstance(action, Place) and job is not None:
                starts = [a for a in actions if isinstance(a, Place) and a is not action]
                self._placed(job, action, before, starts, now)
            elif isinstance(action, Preempt):
                self._note(now, "preempted", "the scheduler takes it off its nodes")
            elif isinstance(action, Ask):
                self._note(now, "holds off", f"to be looked at again by {_seconds(action.at)}")
        placed = {item.job for item in actions if isinstance(item, Place)}
        if job is not None and self.job not in placed:
            self._waits(self.scheduler.explain(self.job), now, placed)
        return actions

    def _note(self, now: float, what: str, why: str, **more: Any) -> None:
        self.job_rows.append({"at": now, "what": what, "why": why, **more})

    def _waits(self, reason: Explanation, now: float, placed: set[str]) -> None:
        # A line where the reason changes, not one a round.
        if reason.constraint == self._last:
            return
        self._last = text = reason.constraint
        if reason.cause:
            text = f"{terminal.cause_words(reason.cause)}: {text}"
        if reason.nodes:
            text += f"; room for a task on {', '.join(reason.nodes[:MOST_LISTED])}"
        if reason.frees:
            text += f"; the end of {', '.join(reason.frees[:MOST_LISTED])} would let it start"
        times = {"cause": reason.cause, "until": reason.until, "expected": reason.start}
        names = ", ".join(sorted(placed)[:MOST_LISTED])
        self._note(now, "waits", text, **times, started_instead=names)

    def _placed(
        self, job: model.Job, action: Place, books: Books, others: list[Place], now: float
    ) -> None:
        self._last = ""
        names = books.nodes.names
        fits = np.sum([books.fits(shape) for _, shape in job.groups], axis=0)
        chosen = {n for n, _ in action.tasks}
        places = ", ".join(f"{names[n]} ({c})" for n, c in action.tasks[:MOST_LISTED])
        count = sum(c for _, c in action.tasks)
        size = job.tasks * job.shape.size
        fewer = f"admitted with {count} of {size} pods, " * (count < size)
        free = [int(n) for n in np.argsort(-fits, kind="stable") if fits[n] and n not in chosen]
        nothing = {"until": None, "expected": None, "started_instead": ""}
        self._note(now, "starts", f"{fewer}on {places}", **nothing)
        choice = getattr(self.scheduler, "choice", None)
        # Nodes that had room and were not chosen say what the choice went by.
        if free and isinstance(choice, ByRate):
            rate_on = {n: choice.rate(job, [(n, 1)], now) for n in [*chosen, *free]}
            slowest = min(rate_on[n] for n in chosen)
            second = max(free, key=lambda n: rate_on[n])
            rates = {"slowest": slowest, "name": names[second], "rate": rate_on[second]}
            rates |= {"room": int(fits[second])}
            self.sentences.append(phrase("by rate", at=_seconds(now), **rates))
        elif free:
            room = ", ".join(f"{names[n]} (for {int(fits[n])})" for n in free[:MOST_LISTED])
            room += f" and {len(free) - MOST_LISTED} more" if len(free) > MOST_LISTED else ""
            preferred = {"choice": getattr(choice, "name", type(choice).__name__)}
            preferred["name"] = names[action.tasks[0][0]]
            self.sentences.append(phrase("by choice", at=_seconds(now), room=room, **preferred))
        else:
            self.sentences.append(f"At {_seconds(now)} no other node had room for a task of it.")
        if others:
            started = ", ".join(sorted(placement.job for placement in others)[:MOST_LISTED])
            self.sentences.append(f"In the same round started: {started}.")

    def _leave(self, j: int, kind: EventKind) -> None:
        if str(self.tables.jobs.id[j]) == self.job and kind == "failed":
            self._note(self.now, "cut short", "one of its nodes failed; it waits again")
        super()._leave(j, kind)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s"


TRIED = 24  # earlier instants whose forecasts correct one
MOST_JUDGED = 200  # waiting jobs of an instant, at most, that count in a calibration


class Forecasts(NamedTuple):
    """Forecasts at an instant: who waits, the starts drawn [draws, W], and when they started."""

    now: float
    waiting: Any
    starts: arrays.Floats
    promised: arrays.Floats
    truth: arrays.Floats


@dataclass
class Past:
    """A log as it happened, in the simulation or as recorded, in which forecasts are made."""

    played: replay_scenario.ReplayInstance
    scheduler: Any = forecasts.NO_RULES
    options: Any = None
    recorded: bool = False  # who ran and waited is what the log says, and not the simulation
    draws: int = forecasts.DRAWS

    def __post_init__(self) -> None:
        jobs, nodes, conditions = self.played
        self.schedule: schedule.Schedule | None = None
        if self.recorded:
            self.begun, self.end = jobs.recorded_start, jobs.recorded_end
            still = np.isfinite(self.begun) & np.isnan(self.end)  # ran when the log ended
            self.end = np.where(still, np.inf, self.end)
            if not np.isfinite(self.begun).any():
                raise ScenarioError("the log does not say when its jobs started: omit --recorded")
        else:
            self.schedule = simulate_jobs(
                jobs, nodes, fresh(self.scheduler), conditions, self.options
            )
            self.begun, self.end = self.schedule.last_start, self.schedule.end
        self.forecaster = forecasts.Forecaster(jobs, nodes, self.scheduler, self.options)
        self.history = forecasts.History(jobs, self.end - self.begun, self.end)

    def known_at(self, now: float, rng: np.random.Generator) -> Forecasts:
        jobs, nodes, _ = self.played
        can = ~self.forecaster.tables.aside
        moment = forecasts.moment_of(jobs, nodes, now, self.begun, self.end, can, self.schedule)
        return self.forecast(moment, rng)

    def forecast(self, moment: forecasts.Moment, rng: np.random.Generator) -> Forecasts:
        starts = self.forecaster.starts(moment, self.history, self.draws, rng)
        promised = self.forecaster.promised(moment)
        truth = self.begun[moment.waiting]
        # One that has not started yet starts later than anything that is known.
        truth = np.where(np.isnan(truth), np.inf, truth)
        return Forecasts(moment.now, moment.waiting, starts, promised, truth)

    def corrected(
        self, instants: Iterable[float], now: float, rng: np.random.Generator
    ) -> forecasts.StartCalibration:
        """The calibration of forecasts at earlier instants, in order, as known by ``now``."""
        fit = forecasts.StartCalibration()
        for drawn in (self.known_at(instant, rng) for instant in instants):
            # A random part: the first ones have waited longest.
            for w in rng.permutation(drawn.waiting.size)[:MOST_JUDGED].tolist():
                if self.played.jobs.withdrawn[drawn.waiting[w]] < now:
                    continue  # when it would have started is not known
                fit.learn(drawn.starts[:, w], drawn.now, float(drawn.truth[w]), now, rng)
        return fit


@dataclass(frozen=True)
class ForecastOfLog:
    """Forecast of the starts of waiting jobs.

    A row of each waiting job has ``job``, ``user``, ``tasks``, ``limit``, ``waited``; seconds from
    then on: ``p50``, ``p90``, ``promised`` (if all take as long as requested and none comes; None
    where no job says how long), and ``started``, what came of it, None if nothing did.
    """

    now: float
    basis: str  # what is assumed and what is drawn, in a line
    rows: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {"now": self.now, "basis": self.basis, "jobs": self.rows}


def forecast_log(
    source: str,
    at: float | str | None,
    scheduler: str = forecasts.NO_RULES,
    recorded: bool = False,
    draws: int = forecasts.DRAWS,
    settings: Mapping[str, Any] | None = None,
    advance: sweep.Progress = sweep.silent,
) -> ForecastOfLog:
    """Forecast starts of the jobs that wait ``at`` a time of a log, seconds on its clock or a date.

    The log is played under the ``scheduler`` up to then, or taken as ``recorded``, and under it
    from then on. Without a time it is the end of the log, as recorded. ScenarioError for a time
    outside of the log, or when no job waits then.
    """
    scenario = replay.replay_source(source, dict(settings or {})).scenario()
    assert isinstance(scenario, replay_scenario.ReplayScenario)
    played = scenario.draw(0)
    submit, end = played.jobs.submit, end_of(played.jobs)
    clock, typed = None if scenario.cluster else scenario.log.clock, at
    if at is None:
        at, recorded = end, True
    if isinstance(at, str):
        at = changes.instant_of(at, clock)
    if not submit[0] <= at <= end:
        first, last = (changes.instant_text(float(time), clock) for time in (submit[0], end))
        raise ScenarioError(f"--at {typed}: {source} is from {first} to {last}")
    past = Past(played, scheduler, scenario.options, recorded, draws)
    waits = (
        forecasts.waiting_at(played.jobs, at, past.begun, past.end) & ~past.forecaster.tables.aside
    )
    if not waits.any():
        later = np.flatnonzero((past.begun > submit) & (submit > at))
        next_one = [changes.instant_text(float(time), clock) for time in submit[later[:1]]]
        hint = f"; the next one waits at {next_one[0]}" if next_one else "; choose a time by --at"
        end_or_then = "at the end of the log, " if typed is None else "at "
        raise ScenarioError(f"{end_or_then}{changes.instant_text(at, clock)}, no job waits{hint}")
    # A fixed seed, so that the same question has the same answer.
    rng = np.random.default_rng(0)
    # Earlier forecasts correct this one: made at instants drawn from the days before.
    begin = max(float(submit[0]), at - forecasts.DAYS * forecasts.DAY)
    instants = sorted(rng.uniform(begin, at, TRIED).tolist())

    def counted() -> Iterator[float]:
        for i, instant in enumerate(instants):
            advance("forecasts", i, TRIED)
            yield instant

    calibration = past.corrected(counted(), at, rng)
    rows = forecast_rows(played.jobs, past.known_at(at, rng), calibration)
    state = "as recorded" if recorded else f"as {scheduler} has played the log"
    assumed = past.forecaster.assumed
    waiting = count(len(rows), "job waits", "jobs wait")
    drawn = {"draws": draws, "assumed": assumed, "days": forecasts.DAYS, "tried": TRIED}
    line = phrase(
        "forecasts",
        waiting=waiting,
        at=changes.instant_text(at, clock),
        state=state,
        known=calibration.known,
        **drawn,
    )
    return ForecastOfLog(at, line, rows)


def end_of(jobs: model.Jobs) -> float:
    """The last time in a log, on its clock."""
    columns = [jobs.submit, jobs.recorded_start + jobs.run, jobs.withdrawn]
    return max(float(times[np.isfinite(times)].max(initial=-np.inf)) for times in columns)


def forecast_rows(
    jobs: model.Jobs, known: Forecasts, calibration: forecasts.StartCalibration
) -> list[dict[str, Any]]:
    rows, asks = [], bool(np.any(jobs.requested))  # else nobody says how long a job may take
    for w, j in enumerate(known.waiting.tolist()):
        job, instant = jobs.job(j), known.now
        p50, p90 = calibration.quantiles(known.starts[:, w], instant, (0.5, 0.9)) - instant
        size = job.tasks * job.shape.size
        limit = job.limit if job.requested else None
        row = {"job": job.id, "user": job.user, "tasks": size, "limit": limit}
        started = float(known.truth[w] - instant)
        row |= {"waited": instant - job.submitted, "p50": float(p50), "p90": float(p90)}
        row |= {"promised": float(known.promised[w] - instant) if asks else None}
        rows.append(row | {"started": started if 0 < started < np.inf else None})
    return rows


INSTANTS = 60  # of a log, at most
APART = 3600.0  # seconds between two of them, at least


class Judged(NamedTuple):
    """Quality of forecasts: shares of jobs, and quantiles of p50 as a share of what came."""

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
    advance: sweep.Progress = sweep.silent,
) -> HistoryForecast:
    """Forecast starts of jobs that wait at an instant, learned from the starts known by then.

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
    files = wait_history.pending_files(source) if Path(source).exists() else []
    if files:
        pending = wait_history.open_pending(files)
        clock: Clock | None = Clock(0.0)
        time = changes.instant_of(at, clock) if at else float(pending.now.max())
        kind = f"{count(len(files), 'table')} of pending jobs"
    else:
        pending, time, clock = _of_log(str(source), at, dict(settings or {}))
        kind = "the log"
    # What is known after the instant is no ground for a forecast at it.
    pending = pending.at(pending.now <= time)
    if not (pending.now == time).any():
        earlier = np.unique(pending.now)
        before = [changes.instant_text(float(now), clock) for now in earlier[-1:]]
        near = f"; the instant before is {before[0]}" if before else ""
        then = changes.instant_text(time, clock)
        raise errors.ScenarioError(f"no job waits at {then} in {source}{near}")
    instants = np.unique(pending.now)
    # To judge takes every instant, to answer only the last.
    only = () if judge else (time,)
    final, levels, truths = None, [], []
    for step in wait_history.forecast_in_order(pending, only):
        advance("forecasts", int(np.searchsorted(instants, step.now)), instants.size)
        final = step
        levels.append(step.quantiles)
        truths.append(pending.start[step.rows] - step.now)
    if final is None or final.now != time:
        known_starts = int((pending.start <= time).sum())
        raise errors.ScenarioError(
            f"{known_starts} starts of jobs that waited are known by "
            f"{changes.instant_text(time, clock)}; it takes {wait_history.LEAST}"
        )
    judged = _judged(np.concatenate(levels), np.concatenate(truths), len(levels)) if judge else None
    # Known by then: jobs that waited earlier and have started since.
    used = int(((pending.now < time) & (pending.start <= time)).sum())
    waiting = count(final.rows.size, "job waits", "jobs wait")
    line = phrase(
        "from history",
        waiting=waiting,
        now=changes.instant_text(time, clock),
        used=used,
        source=kind,
    )
    return HistoryForecast(ForecastOfLog(time, line, _rows(pending, final)), judged)


def _rows(pending: wait_history.PendingJobs, last: Any) -> list[dict[str, Any]]:
    rows = []
    for r, (p50, p90) in zip(last.rows.tolist(), last.quantiles.tolist()):
        remaining = float(pending.start[r] - last.now)
        row = {"job": str(pending.id[r]), "waited": float(pending.features["waited"][r])}
        row |= {"p50": p50, "p90": p90, "started": remaining if np.isfinite(remaining) else None}
        rows.append(row)
    return rows


def _judged(quantiles: arrays.Floats, left: arrays.Floats, instants: int) -> Judged:
    started = np.isfinite(left)
    # A start at once would divide by 0.
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


def _of_log(
    source: str, at: str, settings: dict[str, Any]
) -> tuple[wait_history.PendingJobs, float, Clock | None]:
    """Jobs that waited at instants of a log up to the one asked for, that instant, its clock."""
    from gangwise.jobs.metrics import held_devices
    from gangwise.logs.jobs import open_jobs

    log = open_jobs(source, **settings)
    jobs = log.jobs
    if not np.isfinite(jobs.recorded_start).any():
        raise errors.ScenarioError(f"{source} does not say when its jobs started")
    device = log.nodes.devices.index(log.played.device)
    begin, end = float(jobs.submit[0]), float(jobs.submit[-1])
    time = changes.instant_of(at, log.clock) if at else end
    if not begin <= time <= end:
        raise errors.ScenarioError(
            f"--at {at}: jobs of {source} are submitted from "
            f"{changes.instant_text(begin, log.clock)} to {changes.instant_text(end, log.clock)}"
        )
    # Instants that are closer show the same queue.
    instants = int(np.clip((time - begin) / APART, 1, INSTANTS))
    groups = {"user": jobs.user, "account": jobs.charged, "pool": jobs.pool}
    # A group with one member shows nothing.
    groups = {name: code for name, code in groups.items() if np.unique(code).size > 1}
    pending = wait_history.pending_of(
        jobs.submit,
        jobs.recorded_start,
        jobs.recorded_end,
        held_devices(jobs, log.nodes)[:, device],
        jobs.limit,
        groups,
        np.asarray(jobs.id).astype(str),
        # Without the first instant, at which nobody waits.
        np.linspace(begin, time, instants + 1)[1:],
    )
    return pending, time if at else float(pending.now.max()), log.clock

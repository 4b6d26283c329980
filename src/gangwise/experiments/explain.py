"""Why a job of a finished replay waited, and where it was placed.

The run is played again up to the job's end, from its seed, and compared with what is stored. A
scheduler's ``explain(job)`` says why the job waited in every round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.core.registry import create
from gangwise.core.settings import finite
from gangwise.experiments.replay import Replayed
from gangwise.experiments.statistics import period
from gangwise.jobs.books import Ask, Books, EventKind, Explanation, Place, Preempt
from gangwise.jobs.choice import ByRate
from gangwise.jobs.kernels import RUNNING
from gangwise.jobs.model import Job
from gangwise.jobs.schedule import Tables
from gangwise.jobs.scheduler import Composed, fresh
from gangwise.jobs.simulation import JobSimulation

MOST_LISTED = 4  # at most so many nodes or jobs are listed in a sentence


@dataclass
class Explained:
    """What explains how long a job waited, and where it ran.

    ``about`` is what was played: scenario, scheduler, seed, job and its times; ``rows`` has a row
    for each time that something changed for the job.
    """

    about: Mapping[str, Any]
    rows: list[dict[str, Any]]
    sentences: list[str]

    def as_dict(self) -> dict[str, Any]:
        about = {"format": "gangwise-explain-1", **self.about}
        found: dict[str, Any] = finite({**about, "rows": self.rows, "sentences": self.sentences})
        return found


def explain_job(
    folder: Path | str, job: str, scheduler: str = "", seed: int | None = None
) -> Explained:
    """Why a job, by its id in the log, of a finished replay waited, and where it was placed.

    By default it is the first scheduler and the first seed.

    Raises UnknownName for a job or a scheduler that is not there; StoreError when the folder holds
    no replay, or playing it again starts the job at another time.
    """
    replayed = Replayed.open(folder)
    scheduler = scheduler or str(replayed.schedulers[0])
    if scheduler not in replayed.schedulers:
        raise UnknownName("scheduler in these results", scheduler, list(replayed.schedulers))
    seed = replayed.seeds[0] if seed is None else seed
    if seed not in replayed.seeds:
        known = ", ".join(map(str, replayed.seeds))
        raise ScenarioError(f"seed {seed} was not played; the seeds are {known}")
    scenario = replayed.scenarios[scheduler]
    played = scenario.draw(seed)
    ids = [str(name) for name in played.jobs.id]
    if job not in ids:
        raise UnknownName("job", job, ids[:1000])
    j = ids.index(job)
    decider = fresh(create("scheduler", replayed.scheduler_of(scheduler)))
    options = scenario.options
    if isinstance(decider, Composed):
        decider.limits, decider.restart = options.limits, options.restart
    tables = Tables.of(played.jobs, played.nodes, played.conditions, options)
    simulation = _Following(tables, decider, job)
    while simulation.step() and simulation.jobs[j]["phase"] <= RUNNING:
        continue
    outcome = replayed.outcomes[scheduler][list(replayed.seeds).index(seed)]
    start, end = float(outcome.start[j]), float(outcome.end[j])
    first = float(simulation.schedule().start[j])
    if not (first == start or (math.isnan(first) and math.isnan(start))):
        raise StoreError(
            f"played again, job {job} starts at {first:g} s, and {start:g} s is stored: the folder "
            "was made by other code"
        )
    submitted = float(played.jobs.submit[j])
    about = {"scenario": scenario.settings.source, "scheduler": scheduler, "seed": seed, "job": job}
    about |= {"submitted": submitted, "start": start, "end": end, "waiting": start - submitted}
    shape, n = played.jobs.shapes[played.jobs.shape[j]], int(played.jobs.tasks[j])
    demand = zip(shape.demand, played.jobs.devices)
    asks = " + ".join(f"{amount / 1000:g} {kind}" for amount, kind in demand if amount)
    if math.isnan(start):
        since = " and never started."
    elif math.isnan(end):
        since = f", started {period(start - submitted)} later and has not ended."
    else:
        since = f", started {period(start - submitted)} later"
        since += f" and ended {period(end - start)} after that."
    tasks = f"{n} task{'s' * (n != 1)} of {asks}"
    first_sentence = f"Job {job}, {tasks}, was submitted at {_seconds(submitted)}{since}"
    return Explained(about, simulation.job_rows, [first_sentence, *simulation.sentences])


class _Following(JobSimulation):
    def __init__(self, tables: Tables, scheduler: Any, job: str):
        super().__init__(tables, scheduler)
        self.job, self.job_rows = job, list[dict[str, Any]]()
        self.sentences: list[str] = []
        self._last = ""

    def _decisions(self, now: float) -> list[Any]:
        before = self.books.copy()
        asked = next((each for each in self.waiting if each.id == self.job), None)
        actions = super()._decisions(now)
        mine = [each for each in actions if getattr(each, "job", None) == self.job]
        for action in mine:
            if isinstance(action, Place) and asked is not None:
                others = [a for a in actions if isinstance(a, Place) and a is not action]
                self._placed(asked, action, before, others, now)
            elif isinstance(action, Preempt):
                self._note(now, "preempted", "the scheduler takes it off its nodes")
            elif isinstance(action, Ask):
                self._note(now, "holds off", f"to be looked at again by {_seconds(action.at)}")
        placed = {each.job for each in actions if isinstance(each, Place)}
        if asked is not None and self.job not in placed:
            self._waits(self.scheduler.explain(self.job), now, placed)
        return actions

    def _note(self, now: float, what: str, why: str, **more: Any) -> None:
        self.job_rows.append({"at": now, "what": what, "why": why, **more})

    def _waits(self, reason: Explanation, now: float, placed: set[str]) -> None:
        if reason.constraint == self._last:
            return
        self._last = reason.constraint
        names = ", ".join(sorted(placed)[:MOST_LISTED])
        room = (
            f"; room for a task on {', '.join(reason.nodes[:MOST_LISTED])}" if reason.nodes else ""
        )
        freed = f"; the end of {', '.join(reason.frees[:MOST_LISTED])} would let it start"
        self._note(
            now,
            "waits",
            reason.constraint + room + (freed if reason.frees else ""),
            until=reason.until,
            expected=reason.start,
            started_instead=names,
        )

    def _placed(
        self, job: Job, action: Place, books: Books, others: list[Place], now: float
    ) -> None:
        self._last = ""
        names = books.nodes.names
        fits = books.fits(job.shape)
        chosen = {n for n, _ in action.tasks}
        where = ", ".join(f"{names[n]} ({c})" for n, c in action.tasks[:MOST_LISTED])
        count = sum(c for _, c in action.tasks)
        fewer = f"admitted with {count} of {job.tasks} pods, " * (count < job.tasks)
        rest = [int(n) for n in np.argsort(-fits, kind="stable") if fits[n] and n not in chosen]
        nothing = {"until": None, "expected": None, "started_instead": ""}
        self._note(now, "starts", f"{fewer}on {where}", **nothing)
        choice = getattr(self.scheduler, "choice", None)
        if rest and isinstance(choice, ByRate):
            one = {n: choice.rate(job, [(n, 1)], now) for n in [*chosen, *rest]}
            slowest = min(one[n] for n in chosen)
            second = max(rest, key=lambda n: one[n])
            self.sentences.append(
                f"At {_seconds(now)} its slowest node is believed to do {slowest:.3g} of a node of "
                f"rate 1; the best that was left, {names[second]}, {one[second]:.3g}, with room "
                f"for {int(fits[second])} of its tasks."
            )
        elif rest:
            self.sentences.append(
                f"At {_seconds(now)} there was room as well on "
                + ", ".join(f"{names[n]} (for {int(fits[n])})" for n in rest[:MOST_LISTED])
                + (f" and {len(rest) - MOST_LISTED} more" if len(rest) > MOST_LISTED else "")
                + f"; the choice, {getattr(choice, 'name', type(choice).__name__)}, preferred "
                f"{names[action.tasks[0][0]]}."
            )
        else:
            self.sentences.append(f"At {_seconds(now)} no other node had room for a task of it.")
        if others:
            started = ", ".join(sorted(each.job for each in others)[:MOST_LISTED])
            self.sentences.append(f"In the same round started: {started}.")

    def _leave(self, j: int, kind: EventKind) -> None:
        if str(self.tables.jobs.id[j]) == self.job and kind == "failed":
            self._note(self.now, "cut short", "one of its nodes failed; it waits again")
        super()._leave(j, kind)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s"

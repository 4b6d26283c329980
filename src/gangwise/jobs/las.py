"""Two-dimensional least attained service: jobs that have had least go first, and preempt.

The service that a job has attained is devices × seconds it has run, over all its attempts (Gu et
al., *Tiresias*, NSDI 2019, §3.2). It is cut into levels, so that jobs of a level do not take turns:
in a round, jobs are looked at by (level, submission), and whoever fits on what is left of the
cluster runs. A running job that is passed over is preempted, but only if its devices let another
one start; a restart costs. Nothing is asked of users or predicted: small jobs go fast because they
never reach the lower levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gangwise.core.errors import ScenarioError
from gangwise.jobs.books import Ask, Books, Explanation, Place, Preempt, Queue, Rate, Running
from gangwise.jobs.choice import Tasks, best_fit
from gangwise.jobs.model import Job, Nodes
from gangwise.jobs.queues import Waits


@dataclass
class LeastAttained:
    """Discretised two-dimensional LAS, preemptive.

    Parameters
    ----------
    thresholds : sequence of float
        Device-seconds that part the levels: 1 and 10 device-hours by default.
    pause : float
        Seconds between two rounds in which jobs are preempted.
    """

    thresholds: Sequence[float] = (3600.0, 36000.0)
    pause: float = 60.0
    _attained: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _last: float = field(default=-np.inf, init=False, repr=False)
    _preempted: float = field(default=-np.inf, init=False, repr=False)
    _waits: Waits = field(default_factory=Waits, init=False, repr=False)

    def __post_init__(self) -> None:
        self.thresholds = tuple(float(t) for t in self.thresholds)
        if list(self.thresholds) != sorted(self.thresholds) or min(self.thresholds, default=1) <= 0:
            raise ScenarioError(
                f"las: thresholds are {self.thresholds}; give rising numbers above 0"
            )
        if not self.pause > 0:
            raise ScenarioError(f"las: a pause of {self.pause} s; it must be positive")

    def resize(self, nodes: Nodes, job_types: Sequence[str]) -> None: ...

    def observe(self, rate: Rate) -> None: ...

    def explain(self, job: str) -> Explanation:
        """Why a job waits: jobs that have had less service hold the devices."""
        return self._waits.explain(job)

    def level(self, attained: float) -> int:
        """Level of a job that has had so many device-seconds, 0 first."""
        return int(np.searchsorted(self.thresholds, attained, side="right"))

    def place(self, queue: Queue, books: Books, now: float) -> list[Place | Preempt | Ask]:
        """Run whoever has had least service; others make room."""
        self._account(books, now)
        jobs = [*(r.job for r in books.running.values()), *queue]
        levels = {job.id: self.level(self._attained.get(job.id, 0.0)) for job in jobs}
        actions: list[Place | Preempt | Ask] = []
        may_preempt = now - self._preempted >= self.pause
        trial = books.copy()
        tally = trial.tally()
        stays, gone, left = dict(books.running), list[Running](), list[Job]()
        for job in sorted(queue, key=lambda job: (levels[job.id], job.row)):
            if tally.holds(job) is not None or books.opens(job, now) > now:
                left.append(job)
                continue
            tasks = best_fit(job, trial)
            if tasks is None and may_preempt:
                below = [r for r in stays.values() if levels[r.job.id] > levels[job.id]]
                below.sort(key=lambda r: (-levels[r.job.id], -r.job.row))
                made = with_room(job, below, trial)
                if made is not None:
                    trial, out, tasks = made
                    gone += out
                    for other in out:
                        del stays[other.job.id]
                        tally.take(other.job, -1)
            if tasks is None:
                left.append(job)
                continue
            tally.take(job)
            actions.append(trial.start(job, tasks, now))
        if gone:
            self._preempted = now
        waits = [*left, *(r.job for r in gone)]
        self._waits.look(waits, trial, now, "jobs that have had less come first", np.inf)
        if left:
            first = min(left, key=lambda job: job.row)
            actions.append(Ask(first.id, self._next_look(stays, levels, books, now)))
        return [*(Preempt(r.job.id) for r in gone), *actions]

    def _account(self, books: Books, now: float) -> None:
        """Devices × seconds since the last call, of whoever has been running."""
        for name, held in books.running.items():
            since = max(held.begun, self._last)
            if now > since:
                devices = books.size(held.job)
                self._attained[name] = self._attained.get(name, 0.0) + devices * (now - since)
        for event in books.events:
            if event.job is not None and event.over:
                self._attained.pop(event.job.id, None)
        self._last = now

    def _next_look(
        self, stays: dict[str, Running], levels: dict[str, int], books: Books, now: float
    ) -> float:
        """When the first running job reaches its next level, a pause from now at the earliest."""
        times = []
        for name in stays:
            level = levels[name]
            if level < len(self.thresholds):
                left = self.thresholds[level] - self._attained.get(name, 0.0)
                times.append(now + left / max(books.size(books.running[name].job), 1e-9))
        return max(min(times, default=now + 3600.0), now + self.pause)


def with_room(
    job: Job, below: Sequence[Running], books: Books
) -> tuple[Books, Sequence[Running], Tasks] | None:
    """Books after as many of ``below`` went, in order, as a job needs; None if all are too few."""
    trial = books.copy()
    for count, other in enumerate(below, 1):
        trial.take(other.job.shape, other.pieces, sign=1)
        del trial.running[other.job.id]
        tasks = best_fit(job, trial)
        if tasks is not None:
            return trial, below[:count], tasks
    return None

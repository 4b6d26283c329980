"""Run times, learned: what a job is expected to take, from jobs that have ended by then.

The state of a predictor is one named tuple of arrays, ``RunTimes``, which these functions change in
place. The simulation calls ``expect`` when a job is submitted and ``ended`` when one has ended, in
the order in which this happens in the schedule that is being simulated; ``corrected`` says what is
expected of a job that has run for longer than it was expected to. Compiled schedulers and those
that decide in Python call the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import UnknownName
from gangwise.core.jit import shared_kernel
from gangwise.jobs.books import Running
from gangwise.jobs.model import Job, Jobs
from gangwise.jobs.run_time_memory import (
    BINS,
    Memory,
    believe,
    class_of_user,
    grown_memory,
    locate,
    memory_of,
    quantile_of,
    recalibrate,
    remember,
)

TRUE, LAST_TWO, LEARNED, NOISE, RATIO = range(5)
KINDS: Mapping[str, int] = {
    "ratio": RATIO,
    "learned": LEARNED,
    "last-two": LAST_TWO,
    "true": TRUE,
    "noise": NOISE,
}
"""Predictors by name. ``true`` is an oracle: it is shown what jobs will take. ``noise`` says what a
useless one costs: between a second and the request, or a day, any order of magnitude alike."""
POINT = 0.5
"""The quantile at which `learned` expects an end, before recalibration: to expect too little costs
EASY less than to expect too much, and the recalibrated median schedules worse."""

STEPS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18e3, 36e3, 72e3, 18e4, 36e4)
"""Seconds by which an outlived prediction grows, one after another (Tsafrir et al. 2007)."""
LEAST = 1.0  # seconds that a job is expected to take at least
KEPT, SHORTER = 0.98, 0.3
"""Of ``ratio``: what a job weighs less for each one after it, and what its guess is less in ln
seconds: to expect too little costs EASY less than to expect too much. Chosen on LLNL-Atlas and
lublin_256 by bounded slowdown, which hardly depends on either."""
UNKNOWN = 3600.0  # seconds that run times are compared with where nothing was asked for


class RunTimes(NamedTuple):
    """State of a predictor of run times, for J jobs of U users; arrays are changed in place."""

    kind: int
    steps: bool  # outlived predictions grow by steps, and are not the request at once
    truth: Floats  # [J] seconds, which `true` alone reads; [0] elsewhere
    request: Floats  # [J] seconds, inf where none was asked for
    user: Ints  # [J]
    name: Ints  # [J] job type: the application, or the name of the script
    size: Floats  # [J] devices of the dominant type in all
    expected: Floats  # [J] seconds, as of submission
    all: Floats  # [4] jobs that have ended, their seconds; mean and weight of ln ratios
    last: Floats  # [U, 4] seconds of the user's last job and the one before, NaN; the same two
    memory: Memory  # what `learned` keeps; of no users elsewhere
    at_submission: npt.NDArray[np.float32]  # [J, BINS + 1] masses, class of user


def state_of(
    jobs: Jobs,
    kind: str,
    size: Floats | None = None,
    truth: Floats | None = None,
    steps: bool = False,
) -> RunTimes:
    """The state of a predictor, one of :data:`KINDS`, before anything has ended.

    ``size`` [J] is the devices that each job asks for, by default its tasks; ``truth`` [J] the
    seconds that it will take, for the oracle, by default its run time. With ``steps`` an outlived
    prediction grows by Tsafrir's steps; else the job is expected to take what it asked for.
    """
    J = len(jobs)
    return RunTimes(
        KINDS[kind],
        steps,
        np.array(jobs.run if truth is None else truth) if kind == "true" else np.zeros(0),
        np.where(jobs.requested, jobs.limit, math.inf),
        np.array(jobs.user),
        np.array(jobs.type),
        np.array(jobs.tasks if size is None else size, dtype=np.float64),
        np.zeros(J),
        np.zeros(4),
        np.full((len(jobs.users), 4), np.nan),
        memory_of(np.bincount(jobs.user, minlength=len(jobs.users)) * (kind == "learned")),
        np.zeros((J if kind == "learned" else 0, BINS + 1), np.float32),
    )


@shared_kernel
def distribution(r: RunTimes, j: int, now: float) -> None:
    """Put job j's distribution, by cells of ln seconds, into ``r.memory.mass`` [BINS].

    The kind must be ``learned``. The request does not cut it yet; the next call overwrites it.
    """
    believe(r.memory, r.user[j], r.name[j], r.request[j], r.size[j], now)
    recalibrate(r.memory, class_of_user(r.memory, r.user[j]))


@shared_kernel
def quantile(r: RunTimes, j: int, p: float, elapsed: float, now: float) -> float:
    """Seconds in all that job j takes at most with probability p, when it has run for ``elapsed``.

    What it asked for is the most, unless it has run for longer. The kind must be ``learned``.
    """
    distribution(r, j, now)
    return quantile_within(r, j, p, elapsed)


@shared_kernel
def quantile_within(r: RunTimes, j: int, p: float, elapsed: float) -> float:
    """As :func:`quantile`, of the distribution that was asked for last."""
    seconds = quantile_of(r.memory.mass, p, elapsed)
    return float(max(min(seconds, r.request[j]), elapsed, LEAST))


@shared_kernel
def user_ratio(r: RunTimes, j: int) -> float:
    """The request times the geometric mean of run time ÷ request, of the user's jobs.

    The mean is shrunk towards that of all jobs, and that towards 1 / e, by the weight of one job.
    Recent jobs weigh more.
    """
    own = r.last[r.user[j]]
    weight = own[3] if own[3] > 0.0 else 0.0
    every = (r.all[2] * r.all[3] - 1.0) / (r.all[3] + 1.0)
    ratio = ((own[2] * weight if weight > 0.0 else 0.0) + every) / (weight + 1.0)
    asked = r.request[j] if r.request[j] < math.inf else UNKNOWN
    return float(max(min(asked * math.exp(ratio - SHORTER), r.request[j]), LEAST))


@shared_kernel
def learn_ratio(r: RunTimes, j: int, seconds: float) -> None:
    """Take in run time ÷ request of a job that has ended, into the means of all and of its user."""
    asked = r.request[j] if r.request[j] < math.inf else UNKNOWN
    ratio = math.log(max(seconds, LEAST) / max(asked, LEAST))
    own = r.last[r.user[j]]
    for mean in (r.all, own):
        weight = KEPT * mean[3] if mean[3] > 0.0 else 0.0
        mean[2] = ((mean[2] * weight if weight > 0.0 else 0.0) + ratio) / (weight + 1.0)
        mean[3] = weight + 1.0


@shared_kernel
def expect(r: RunTimes, j: int, now: float) -> float:
    """Seconds that job j, submitted now, is expected to take; no more than it asks for."""
    if r.kind == TRUE:
        return float(max(r.truth[j], LEAST))  # who is expected to take no time is overdue at once
    if r.kind == NOISE:
        part = j * 0.6180339887498949 % 1.0
        return float(max(min(r.request[j], 86_400.0) ** part, LEAST))
    if r.kind == LEARNED:
        believe(r.memory, r.user[j], r.name[j], r.request[j], r.size[j], now)
        for b in range(BINS):
            r.at_submission[j, b] = r.memory.mass[b]
        r.at_submission[j, BINS] = class_of_user(r.memory, r.user[j])
        return quantile_within(r, j, POINT, 0.0)
    if r.kind == RATIO:
        return user_ratio(r, j)
    # The mean of the user's last two; the request until there are two.
    last = 0.5 * (r.last[r.user[j], 0] + r.last[r.user[j], 1])
    seconds = last if last >= 0.0 else r.request[j]
    if seconds == math.inf:
        seconds = r.all[1] / r.all[0] if r.all[0] > 0.0 else 3600.0
    return float(max(min(seconds, r.request[j]), LEAST))


@shared_kernel
def ended(r: RunTimes, j: int, seconds: float, whole: bool, now: float) -> None:
    """Learn that job j has ended, having run for so long.

    ``whole``: it ended by itself. One that was killed or withdrawn would have taken longer.
    """
    if r.kind == LEARNED:
        if whole or seconds >= r.request[j]:  # of others it is only known that they took longer
            mass = r.at_submission[j]
            locate(r.memory, int(mass[BINS]), mass, r.request[j], seconds)
            remember(r.memory, r.user[j], r.name[j], r.request[j], r.size[j], seconds, now)
        return
    if r.kind == RATIO:
        learn_ratio(r, j, seconds)
        return
    r.all[0] += 1.0
    r.all[1] += seconds
    r.last[r.user[j], 1] = r.last[r.user[j], 0]
    r.last[r.user[j], 0] = seconds


@shared_kernel
def corrected(r: RunTimes, j: int, elapsed: float) -> float:
    """Seconds that job j is expected to take in all when it has run for ``elapsed`` and goes on.

    More than ``elapsed``, but for a job that runs for longer than it asked for. It depends on
    nothing but ``elapsed`` and what was known at submission, so it does not matter when one asks.
    """
    seconds = r.expected[j]
    i = 0
    while seconds <= elapsed and seconds < r.request[j]:
        more = STEPS[min(i, len(STEPS) - 1)] * max(i - len(STEPS) + 2, 1)
        known = not r.steps and r.request[j] < math.inf
        seconds = r.request[j] if known else min(r.expected[j] + more, r.request[j])
        i += 1
    return float(seconds)


def nothing() -> RunTimes:
    """The state of no jobs, where nothing is predicted."""
    of_jobs = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    learned = np.zeros(4), np.zeros((0, 4)), memory_of(np.zeros(0, np.int64))
    at_submission = np.zeros((0, BINS + 1), np.float32)
    return RunTimes(LAST_TWO, False, np.zeros(0), *of_jobs, *learned, at_submission)


def grown(r: RunTimes, jobs: int, users: int) -> RunTimes:
    """The same state with room for at least so many jobs and users."""

    def longer(values: Any, size: int, fill: float = 0.0) -> Any:
        rest = np.full((max(size - len(values), 0), *values.shape[1:]), fill, values.dtype)
        return np.concatenate([values, rest])

    of_jobs = "request", "user", "name", "size", "expected", "at_submission"
    more = {name: longer(getattr(r, name), jobs) for name in of_jobs}
    last, memory = longer(r.last, users, np.nan), grown_memory(r.memory, users)
    return r._replace(**more, last=last, memory=memory)


@dataclass
class Expectations:
    """A predictor for a scheduler that decides in Python, which meets jobs one by one."""

    r: RunTimes = field(default_factory=nothing)
    row: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)  # rows of jobs that are over

    @classmethod
    def of(cls, kind: str, steps: bool) -> Expectations:
        if kind not in KINDS:
            raise UnknownName("predictor of run times", kind, list(KINDS))
        return cls(nothing()._replace(kind=KINDS[kind], steps=steps))

    def submitted(self, job: Job, size: float, now: float) -> None:
        """Expect a run time of a job, when it comes for the first time."""
        if job.id in self.row:
            return
        j = self.row[job.id] = self.free.pop() if self.free else len(self.row)
        u = self.users.setdefault(job.user, len(self.users))
        if j >= self.r.expected.size or u >= len(self.r.last):
            self.r = grown(self.r, 2 * j + 64, 2 * u + 16)
        r = self.r
        r.request[j] = job.limit if job.requested else math.inf
        r.user[j], r.name[j] = u, self.names.setdefault(job.job_type, len(self.names))
        r.size[j] = size
        r.expected[j] = expect(r, j, now)

    def ended(self, job: Job, seconds: float, whole: bool, now: float) -> None:
        ended(self.r, self.row[job.id], seconds, whole, now)

    def forget(self, job: Job) -> None:
        if job.id in self.row:
            self.free.append(self.row.pop(job.id))

    def expected(self, job: Job) -> Job:
        if job.id not in self.row:
            return job
        return replace(job, expected=float(self.r.expected[self.row[job.id]]))

    def end(self, running: Running, now: float) -> float:
        j = self.row[running.job.id]
        return running.begun + float(corrected(self.r, j, now - running.begun))

"""Predictors of run times: what a job is expected to take, from jobs that have ended by then.

The state of a predictor is one named tuple of arrays, ``RunTimes``, which these functions change in
place. The simulation calls ``expect`` when a job is submitted and ``ended`` when one has ended, in
the order in which this happens in the schedule that is being simulated; ``corrected`` says what is
expected of a job that has run for longer than it was expected to. Compiled schedulers and those
that decide in Python call the same functions. Of ``learned`` a run time is a distribution, made
from ``PastRuns``.
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
from gangwise.core.jit import by_reference, inner_kernel, lean_kernel
from gangwise.jobs.model import Job, Jobs

# ----------------------------------------------------------- the distribution of a job's run time

# Histograms shrunk towards one another. The logarithm of a run time falls into one of BINS cells,
# and between two centres it counts for both. Four histograms are kept or made, each of fewer jobs,
# which are more alike:
#
# 1. all jobs with about the same request, of which the newest count most;
# 2. the user's last LAST jobs;
# 3. those of them with the same name (the job type);
# 4. those with the same name, request and size.
#
# What is believed of a job is a chain of Dirichlet posteriors. With h the weights of a histogram,
# n their sum and q what the one before it says, p = (h + c q) / (n + c): where nothing is known
# p = q, and h alone counts when there is much. In a histogram the k-th newest job weighs γᵏ, more
# if it has just ended: jobs of a session are alike. Constants were chosen by the continuous ranked
# probability score of ln seconds on LLNL-Atlas, NASA-iPSC and an XDMoD log
# (benchmarks/run_times.py).
#
# The distribution is recalibrated (Kuleshov, Fenner and Ermon 2018): of jobs that have ended it is
# counted in which of CELLS cells of equal probability each run time lay (its PIT), and a cell then
# has the probability with which run times lay in it, apart for users of whom little was known.

BINS, WIDTH = 64, 0.25  # centres are 0, 1/4, …, 63/4 in ln seconds: one second to 80 days
REQUESTS = 48  # classes of requests: none, then half octaves
LAST = 64
FORGET = 0.937  # what a job weighs less, among all, for each one that ended after it
# c of the histogram of all jobs, of those with such a request, and of histograms 2 to 4
UNIFORM, ALL, USER, NAME, SAME = 2.0, 0.57, 1.4, 0.53, 7.9
OF_USER, OF_NAME, OF_SAME = 0.636, 0.683, 0.994  # γ of histograms 2 to 4
BLUR = 0.52  # share of a job's weight that its cell gives to the two beside it
# Weight of a job that ended long ago, where one that just ended has 1; seconds between.
OLD, SESSION = 0.314, 150.0
CELLS = 20  # of equal probability, in which run times are counted
# Jobs with which counting begins, evenly spread; what a job weighs less for each later one.
EVEN, FADE = 20.0, 0.998
TO_THE_END = 0.97  # share of the request from which on a job counts as one that ran to its end


@by_reference
class PastRuns(NamedTuple):
    """What is kept of jobs that have ended, for U users, and work space."""

    first: Ints  # [U + 1] user u's jobs stand at first[u] to first[u + 1], in turn
    ended: Ints  # [U] how many have ended
    length: Floats  # [M] ln seconds, inf where it ran to its request
    request: Floats  # [M] seconds, inf where none was asked for
    size: Floats  # [M]
    name: Ints  # [M]
    when: Floats  # [M] when it ended
    all: Floats  # [REQUESTS, BINS] weights; [0] of all jobs
    weights: Floats  # [3, BINS] work space
    mass: Floats  # [BINS] of the distribution that was asked for last
    places: Floats  # [3, CELLS] jobs by cell; of users with none, up to four, more that had ended


def memory_of(jobs_of_users: Ints) -> PastRuns:
    """A memory in which nothing has ended, for users with so many jobs to come [U]."""
    # No more room than a user has jobs: most users have few.
    starts = np.concatenate([[0], np.cumsum(np.minimum(jobs_of_users, LAST))])
    M = int(starts[-1])
    columns = np.zeros(M), np.zeros(M), np.zeros(M), np.zeros(M, np.int64), np.zeros(M)
    space = np.zeros((REQUESTS, BINS)), np.zeros((3, BINS)), np.zeros(BINS)
    places = np.full((3, CELLS), EVEN / CELLS)
    return PastRuns(starts, np.zeros(len(jobs_of_users), np.int64), *columns, *space, places)


def grown_memory(past: PastRuns, users: int) -> PastRuns:
    """The same memory with room for at least so many users; new ones may have many jobs."""
    added = max(users - past.ended.size, 0)
    # Rows of known users keep their places, so theirs need not be copied.
    starts = np.concatenate([past.first, past.first[-1] + LAST * np.arange(1, added + 1)])
    columns = {"first": starts, "ended": np.concatenate([past.ended, np.zeros(added, np.int64)])}
    for name in ("length", "request", "size", "name", "when"):
        column = getattr(past, name)
        columns[name] = np.concatenate([column, np.zeros(LAST * added, column.dtype)])
    return past._replace(**columns)


@inner_kernel
def class_of(request: float) -> int:
    """Class of a request in ``Memory.all``: its half octave of seconds, 0 where none was asked."""
    if request == math.inf:
        return 0
    # Two classes per doubling of the request.
    return min(REQUESTS - 1, max(1, int(2.0 * math.log2(max(request, 1.0)))))


@inner_kernel
def add(weights: Floats, length: float, weight: float) -> None:
    """Add a job of so many ln seconds to the two cells about it."""
    # Linear weights to both sides: no jump where a run time crosses a border.
    at = min(max(length / WIDTH, 0.0), BINS - 1.001)
    b = int(at)
    weights[b] += weight * (b + 1.0 - at)
    weights[b + 1] += weight * (at - b)


@inner_kernel
def remember(
    past: PastRuns, user: int, name: int, request: float, size: float, seconds: float, now: float
) -> None:
    """Take a job that has ended into the histograms of all, and into its user's last."""
    length = math.log(max(seconds, 1.0))
    c = class_of(request)
    # The whole histogram fades by a job, so the newest counts most.
    for b in range(BINS):
        past.all[0, b] *= FORGET
    add(past.all[0], length, 1.0)
    if c > 0:
        for b in range(BINS):
            past.all[c, b] *= FORGET
        add(past.all[c], length, 1.0)
    # A ring buffer: the oldest of the user's jobs is overwritten.
    i = past.first[user] + past.ended[user] % (past.first[user + 1] - past.first[user])
    # Marked as inf, so that it counts at the limit of whatever is requested later.
    past.length[i] = math.inf if seconds >= TO_THE_END * request else length
    past.request[i], past.size[i], past.name[i], past.when[i] = request, size, name, now
    past.ended[user] += 1


@inner_kernel
def shrink(mass: Floats, weights: Floats, c: float, blur: float) -> None:
    """Put (h + c q) / (n + c) in place of q, with h blurred."""
    n = 0.0
    for b in range(BINS):
        n += weights[b]
    for b in range(BINS):
        # At either end the cell itself stands for the neighbour that is missing.
        beside = 0.5 * (weights[max(b - 1, 0)] + weights[min(b + 1, BINS - 1)])
        mass[b] = ((1.0 - blur) * weights[b] + blur * beside + c * mass[b]) / (n + c)


@inner_kernel
def believe(past: PastRuns, user: int, name: int, request: float, size: float, now: float) -> None:
    """Put into ``mass`` what is believed of a job that is submitted now."""
    mass, weights = past.mass, past.weights
    for b in range(BINS):
        mass[b] = 1.0 / BINS
        weights[0, b] = weights[1, b] = weights[2, b] = 0.0
    c = class_of(request)
    # From all jobs to those most alike; each posterior is the prior of the next.
    shrink(mass, past.all[0], UNIFORM, 0.0)
    if c > 0:
        shrink(mass, past.all[c], ALL, 0.0)
    most = math.log(max(request, 1.0))  # it would have been killed there
    of_user = of_name = of_same = 1.0
    room = past.first[user + 1] - past.first[user]
    # Newest first, since the weight γᵏ falls with k.
    for k in range(min(past.ended[user], room)):
        i = past.first[user] + (past.ended[user] - 1 - k) % room
        length = past.length[i]
        if length == math.inf:  # such a job runs to its request again, whatever that is
            length = most if most < math.inf else math.log(max(past.request[i], 1.0))
        length = min(length, most)
        # Between 1 for a job that ended just now and OLD for one long ago.
        recent = OLD + (1.0 - OLD) * math.exp(min(past.when[i] - now, 0.0) / SESSION)
        add(weights[0], length, of_user * recent)
        of_user *= OF_USER
        if past.name[i] == name:
            add(weights[1], length, of_name * recent)
            of_name *= OF_NAME
            if past.request[i] == request and past.size[i] == size:
                add(weights[2], length, of_same * recent)
                of_same *= OF_SAME
    shrink(mass, weights[0], USER, BLUR)
    shrink(mass, weights[1], NAME, BLUR)
    shrink(mass, weights[2], SAME, BLUR)


@lean_kernel
def at_most(mass: Floats, seconds: float) -> float:
    """Distribution function: P(at most so many seconds); cells are even about their centres."""
    if seconds <= 0.0:
        return 0.0
    at = math.log(seconds) / WIDTH + 0.5
    below = 0.0
    for b in range(BINS):
        if at < b + 1.0:
            return float(below + max(at - b, 0.0) * mass[b])
        below += mass[b]
    return 1.0


@inner_kernel
def class_of_user(past: PastRuns, user: int) -> int:
    """How much is known of a user: nothing, little, more."""
    return int(past.ended[user] > 0) + int(past.ended[user] > 4)


@inner_kernel
def locate(past: PastRuns, c: int, mass: Floats, request: float, seconds: float) -> None:
    """Count in which cell of the distribution told a run time lay; in all that the request cuts."""
    # Just below the request: the cells that it cuts off all lie above.
    low = int(at_most(mass, min(seconds, 0.999999 * request)) * CELLS)
    low = min(low, CELLS - 1)
    # Killed at its request: it may lie in any higher cell, so it counts in each equally.
    high = CELLS if seconds >= request else low + 1
    for k in range(CELLS):
        past.places[c, k] = FADE * past.places[c, k] + (low <= k < high) / (high - low)


@inner_kernel
def recalibrate(past: PastRuns, c: int) -> None:
    """Put G(F) in place of F: G(k / CELLS) is the share of run times in the first k cells."""
    G = past.weights[0]
    G[0] = 0.0
    for k in range(CELLS):
        G[k + 1] = G[k] + past.places[c, k]
    below, previous = 0.0, 0.0
    # Piecewise linear in the cumulated probability, so masses stay positive and sum to 1.
    for b in range(BINS):
        below += past.mass[b]
        k = min(int(below * CELLS), CELLS - 1)
        calibrated = (G[k] + (below * CELLS - k) * past.places[c, k]) / G[CELLS]
        past.mass[b] = calibrated - previous
        previous = calibrated


@lean_kernel
def quantile_of(mass: Floats, p: float, elapsed: float) -> float:
    """Seconds that are not exceeded with probability p by a job that has run for ``elapsed``."""
    below = at_most(mass, elapsed)
    # Conditional on having run for `elapsed`: the quantile of what is left of the distribution.
    wanted = below + p * (1.0 - below)
    below = 0.0
    for b in range(BINS):
        if below + mass[b] >= wanted and mass[b] > 0.0:
            seconds = math.exp((b - 0.5 + (wanted - below) / mass[b]) * WIDTH)
            return max(seconds, elapsed)
        below += mass[b]
    return max(math.exp((BINS - 0.5) * WIDTH), elapsed)


# ------------------------------------------------------------------------------------- predictors

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


@by_reference
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
    memory: PastRuns  # what `learned` keeps; of no users elsewhere
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


@lean_kernel
def distribution(times: RunTimes, j: int, now: float) -> None:
    """Put job j's distribution, by cells of ln seconds, into ``times.memory.mass`` [BINS].

    The kind must be ``learned``. The request does not cut it yet; the next call overwrites it.
    """
    believe(times.memory, times.user[j], times.name[j], times.request[j], times.size[j], now)
    recalibrate(times.memory, class_of_user(times.memory, times.user[j]))


@lean_kernel
def quantile(times: RunTimes, j: int, p: float, elapsed: float, now: float) -> float:
    """Seconds in all that job j takes at most with probability p, when it has run for ``elapsed``.

    What it asked for is the most, unless it has run for longer. The kind must be ``learned``.
    """
    distribution(times, j, now)
    return quantile_within(times, j, p, elapsed)


@lean_kernel
def quantile_within(times: RunTimes, j: int, p: float, elapsed: float) -> float:
    """As :func:`quantile`, of the distribution that was asked for last."""
    seconds = quantile_of(times.memory.mass, p, elapsed)
    return float(max(min(seconds, times.request[j]), elapsed, LEAST))


@lean_kernel
def user_ratio(times: RunTimes, j: int) -> float:
    """The request times the geometric mean of run time ÷ request, of the user's jobs.

    The mean is shrunk towards that of all jobs, and that towards 1 / e, by the weight of one job.
    Recent jobs weigh more.
    """
    own = times.last[times.user[j]]
    weight = own[3] if own[3] > 0.0 else 0.0
    # Prior of ln ratio −1 (a job takes 1/e of its request) with the weight of one job.
    every = (times.all[2] * times.all[3] - 1.0) / (times.all[3] + 1.0)
    ratio = ((own[2] * weight if weight > 0.0 else 0.0) + every) / (weight + 1.0)
    request = times.request[j] if times.request[j] < math.inf else UNKNOWN
    return float(max(min(request * math.exp(ratio - SHORTER), times.request[j]), LEAST))


@lean_kernel
def learn_ratio(times: RunTimes, j: int, seconds: float) -> None:
    """Take in run time ÷ request of a job that has ended, into the means of all and of its user."""
    # NaN > 0 is False below, so a user without jobs starts from nothing.
    request = times.request[j] if times.request[j] < math.inf else UNKNOWN
    ratio = math.log(max(seconds, LEAST) / max(request, LEAST))
    own = times.last[times.user[j]]
    for mean in (times.all, own):
        weight = KEPT * mean[3] if mean[3] > 0.0 else 0.0
        mean[2] = ((mean[2] * weight if weight > 0.0 else 0.0) + ratio) / (weight + 1.0)
        mean[3] = weight + 1.0


@lean_kernel
def expect(times: RunTimes, j: int, now: float) -> float:
    """Seconds that job j, submitted now, is expected to take; no more than it asks for."""
    if times.kind == TRUE:
        # A job that is expected to take no time would be overdue at once.
        return float(max(times.truth[j], LEAST))
    if times.kind == NOISE:
        # Multiples of the golden ratio spread evenly over 0 … 1, without a random stream.
        part = j * 0.6180339887498949 % 1.0
        return float(max(min(times.request[j], 86_400.0) ** part, LEAST))
    if times.kind == LEARNED:
        believe(times.memory, times.user[j], times.name[j], times.request[j], times.size[j], now)
        # Kept for `ended`, which asks in which cell of this distribution the run time fell.
        for b in range(BINS):
            times.at_submission[j, b] = times.memory.mass[b]
        times.at_submission[j, BINS] = class_of_user(times.memory, times.user[j])
        return quantile_within(times, j, POINT, 0.0)
    if times.kind == RATIO:
        return user_ratio(times, j)
    # The mean of the user's last two; the request until there are two.
    # NaN where the user has fewer than two, and NaN >= 0 is False.
    mean = 0.5 * (times.last[times.user[j], 0] + times.last[times.user[j], 1])
    seconds = mean if mean >= 0.0 else times.request[j]
    if seconds == math.inf:
        seconds = times.all[1] / times.all[0] if times.all[0] > 0.0 else 3600.0
    return float(max(min(seconds, times.request[j]), LEAST))


@lean_kernel
def ended(times: RunTimes, j: int, seconds: float, whole: bool, now: float) -> None:
    """Learn that job j has ended, having run for so long.

    ``whole``: it ended by itself. One that was killed or withdrawn would have taken longer.
    """
    if times.kind == LEARNED:
        if whole or seconds >= times.request[j]:  # of others it is only known that they took longer
            mass = times.at_submission[j]
            locate(times.memory, int(mass[BINS]), mass, times.request[j], seconds)
            remember(
                times.memory,
                times.user[j],
                times.name[j],
                times.request[j],
                times.size[j],
                seconds,
                now,
            )
        return
    if times.kind == RATIO:
        learn_ratio(times, j, seconds)
        return
    times.all[0] += 1.0
    times.all[1] += seconds
    times.last[times.user[j], 1] = times.last[times.user[j], 0]
    times.last[times.user[j], 0] = seconds


@lean_kernel
def corrected(times: RunTimes, j: int, elapsed: float) -> float:
    """Seconds that job j is expected to take in all when it has run for ``elapsed`` and goes on.

    More than ``elapsed``, but for a job that runs for longer than it asked for. It depends on
    nothing but ``elapsed`` and what was known at submission, so it does not matter when one asks.
    """
    seconds = times.expected[j]
    i = 0
    while seconds <= elapsed and seconds < times.request[j]:
        # Past the last of the steps, multiples of it: the loop always ends.
        step = STEPS[min(i, len(STEPS) - 1)] * max(i - len(STEPS) + 2, 1)
        to_request = not times.steps and times.request[j] < math.inf
        seconds = (
            times.request[j] if to_request else min(times.expected[j] + step, times.request[j])
        )
        i += 1
    return float(seconds)


def nothing() -> RunTimes:
    """The state of no jobs, where nothing is predicted."""
    of_jobs = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    learned = np.zeros(4), np.zeros((0, 4)), memory_of(np.zeros(0, np.int64))
    at_submission = np.zeros((0, BINS + 1), np.float32)
    return RunTimes(LAST_TWO, False, np.zeros(0), *of_jobs, *learned, at_submission)


def grown(times: RunTimes, jobs: int, users: int) -> RunTimes:
    """The same state with room for at least so many jobs and users."""

    def longer(values: Any, size: int, fill: float = 0.0) -> Any:
        padding = np.full((max(size - len(values), 0), *values.shape[1:]), fill, values.dtype)
        return np.concatenate([values, padding])

    of_jobs = ["request", "user", "name", "size", "expected"]
    # 65 numbers a job, which `learned` alone reads.
    of_jobs += ["at_submission"] * (times.kind == LEARNED)
    of_jobs_grown = {name: longer(getattr(times, name), jobs) for name in of_jobs}
    of_users, memory = longer(times.last, users, np.nan), grown_memory(times.memory, users)
    return times._replace(**of_jobs_grown, last=of_users, memory=memory)


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
        # Rows of jobs that are over are used again, so a long-lived service does not grow. Noise
        # is made from the row, which has to be that of the compiled simulation.
        j = job.row if self.r.kind == NOISE else self.free.pop() if self.free else len(self.row)
        self.row[job.id] = j
        u = self.users.setdefault(job.user, len(self.users))
        if j >= self.r.expected.size or u >= len(self.r.last):
            # Twice as many, so that growing costs a constant time for each job.
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

    def end(self, job: Job, begun: float, now: float) -> float:
        """When a running job is expected to end."""
        return begun + float(corrected(self.r, self.row[job.id], now - begun))

"""Limits of minutes: what the jobs of an account or a QOS may use over time, compiled.

``GrpTRESMins`` and ``GrpWall`` bound what jobs have used, which decays with its half-life, but that
of a QOS with ``NoDecay``; under ``AccountingStorageEnforce=safe`` a job must also be able to reach
its limit. ``GrpTRESRunMins`` bounds what running jobs may use until their limits. Slurm adds up use
every PriorityCalcPeriod, and when a job ends; it compares whole minutes. https://slurm.schedmd.com/resource_limits.html
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inner_kernel
from gangwise.core.settings import DAY
from gangwise.jobs import kernels
from gangwise.jobs.event_kernels import boolean
from gangwise.jobs.kernels import Inputs, State
from gangwise.jobs.queue_kernels import any_between
from gangwise.jobs.schedule import NO_CAP, Claims, Tables
from gangwise.jobs.tenancy import AHEAD, USED, claims

OF_RUNNING, OF_USE, OF_WALL = range(3)
"""What a limit bounds: minutes of jobs that run, of all so far; or their wall time."""
LONGEST = 1e12
"""Seconds of a job without a limit."""


@by_reference
class Minutes(NamedTuple):
    """Limits, and what counts in each of C counters; amounts are devices times seconds."""

    caps: kernels.Caps  # in thousandths of devices and of minutes
    claim: Ints  # [J]
    kind: Ints  # [C]
    stays: Bools  # [C] use that neither decays nor is forgotten
    decay: float  # of other use, per second
    resets: Floats  # times at which it is forgotten
    safe: bool
    period: float  # seconds between the times at which Slurm adds up
    time: Floats  # [1] the last of these times
    used: Floats  # [C] by then, and by jobs that have ended since
    ahead: Floats  # [C] of running jobs, until their limits
    running: Ints  # [J] jobs that count
    size: Ints  # [1] how many


def minutes_of(t: Tables, safe: bool) -> Minutes | None:
    """The limits of minutes of a site; None where it has none."""
    tenancy, J = t.options.tenancy, len(t.jobs)
    if not tenancy.minutes:
        return None
    kinds, bare = list[tuple[int, str]](), []
    for cap in tenancy.minutes:
        word, _, device = cap.of.partition("/")
        kind = OF_RUNNING if word == AHEAD else OF_WALL if device == "jobs" else OF_USE
        kinds.append((kind, word))
        bare.append(replace(cap, of=device))
    of_caps = claims(bare, t.jobs, t.nodes, t.cluster.demand)
    of_each = [counter.max(initial=-1) + 1 for counter, _, _ in of_caps]
    own = Claims.of(bare, of_caps, J)
    until = float(t.jobs.submit.max(initial=0.0)) + 365 * DAY
    return Minutes(
        caps=own.caps,
        claim=own.of_job,
        kind=np.repeat([kind for kind, _ in kinds], of_each),
        stays=np.repeat([word != USED for _, word in kinds], of_each),
        decay=math.log(2.0) / tenancy.priority.half_life,
        resets=tenancy.priority.resets(tenancy.epoch, until),
        safe=safe,
        period=tenancy.priority.period,
        time=np.zeros(1),
        used=np.zeros(own.counters),
        ahead=np.zeros(own.counters),
        running=np.zeros(J, dtype=np.int64),
        size=np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def begin_minutes(inputs: Inputs, minutes: Minutes, j: int) -> None:
    """Job j starts: until its limit its devices count."""
    c, limit = minutes.claim[j], min(inputs.jobs[j].limit, LONGEST)
    for m in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
        minutes.ahead[minutes.caps.counter[m]] += minutes.caps.amount[m] / 1000.0 * limit
    if minutes.caps.starts[c] < minutes.caps.starts[c + 1]:
        minutes.running[minutes.size[0]] = j
        minutes.size[0] += 1


@inner_kernel
def count_until(inputs: Inputs, state: State, minutes: Minutes, until: float, adds: bool) -> None:
    """Count what jobs have used that ended by then, and others too where Slurm adds up then."""
    still, counted = 0, until if adds else minutes.time[0]
    minutes.ahead[:] = 0.0
    for i in range(minutes.size[0]):
        j = minutes.running[i]
        run, c = state.jobs[j], minutes.claim[j]
        end = kernels.NEVER if run.phase == kernels.RUNNING else state.end[j]
        if run.phase == kernels.WAITING:  # it lost its nodes now
            end = state.at.now
        over, limit = end <= until, min(inputs.jobs[j].limit, LONGEST)
        for m in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
            k, devices = minutes.caps.counter[m], minutes.caps.amount[m] / 1000.0
            if over or adds:
                since = max(run.begun, minutes.time[0])
                minutes.used[k] += devices * max(min(end, until) - since, 0.0)
            if not over:
                minutes.ahead[k] += devices * (run.begun + limit - max(run.begun, counted))
        minutes.running[still] = j
        still += not over
    minutes.size[0] = still


@inner_kernel
def add_up(inputs: Inputs, state: State, minutes: Minutes) -> bool:
    """Count what was used since the last round; whether Slurm has added up since."""
    before, undecayed = minutes.time[0], math.exp(-minutes.decay * minutes.period)
    while minutes.time[0] + minutes.period <= state.at.now:
        due = minutes.time[0] + minutes.period
        count_until(inputs, state, minutes, due, boolean(True))
        forgotten = any_between(minutes.resets, minutes.time[0], due)
        for k in range(minutes.used.size):
            if not minutes.stays[k]:
                minutes.used[k] *= 0.0 if forgotten else undecayed
        minutes.time[0] = due
    count_until(inputs, state, minutes, state.at.now, boolean(False))
    return bool(minutes.time[0] > before)


@inner_kernel
def over_minutes(inputs: Inputs, minutes: Minutes, j: int) -> bool:
    """Whether a limit of minutes keeps job j from starting."""
    c = minutes.claim[j]
    for i in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
        k = minutes.caps.counter[i]
        kind, bound = minutes.kind[k], minutes.caps.most[i] / 1000.0
        used = math.floor(minutes.used[k] / 60.0)
        ahead = math.floor(max(minutes.ahead[k], 0.0) / 60.0)
        wanted = minutes.caps.amount[i] / 1000.0 * math.ceil(inputs.jobs[j].limit / 60.0)
        if minutes.caps.most[i] == NO_CAP:  # another limit counts for this job
            continue
        if kind != OF_RUNNING:
            if used >= bound:
                return True
            bound -= used
            ahead *= kind == OF_USE  # of wall time, what running jobs may still use is left out
            if not minutes.safe:
                continue
        if wanted + ahead > bound:
            return True
    return False


@inner_kernel
def fading(minutes: Minutes) -> bool:
    """Whether use is left that decays, so that jobs may come to start though nothing happens."""
    for k in range(minutes.used.size):
        if minutes.decay > 0.0 and not minutes.stays[k] and minutes.used[k] >= 60.0:
            return True
    return minutes.resets.size > 0 and minutes.time[0] < minutes.resets[-1]

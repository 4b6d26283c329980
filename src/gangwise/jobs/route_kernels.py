"""Simulation of several clusters that share all jobs, compiled, and forecasts of starts.

Each cluster is a simulation of all jobs, see :mod:`gangwise.jobs.round_kernels`; a job that goes to
one is withdrawn from the others. A forecast plays a copy of a cluster ahead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import by_reference, inner_kernel, lean_kernel, opened
from gangwise.jobs.compiled import copy_words, opened_at
from gangwise.jobs.event_kernels import PAUSED, cancel, next_instant
from gangwise.jobs.kernels import (
    CANCELLED,
    NEVER,
    UNSUBMITTED,
    WAITING,
    Inputs,
    State,
    following,
    int64,
    smallest,
)
from gangwise.jobs.round_kernels import play
from gangwise.jobs.run_times import LEAST, ended, expect, quantile_of
from gangwise.jobs.start_kernels import schedule_end

UNTIL, FORECAST, SEND, SHARE = range(4)
"""Actions of :func:`step`: play until a time; foresee job j everywhere; send it to a cluster; play
to the end where each job waits in all clusters and starts in the first that can."""

REQUESTED, TRUE = 2.0, 3.0
"""In place of a quantile of run times: all run for as long as requested, or as they will."""


@by_reference
class Cluster(NamedTuple):
    """A cluster, and a copy of it for forecasts."""

    inputs: Inputs
    state: State
    ahead: State
    memory: Ints  # of its state
    memory_ahead: Ints


@by_reference
class Clusters(NamedTuple):
    """What C clusters share."""

    at: Ints  # [C] addresses of the clusters
    times: Any  # RunTimes: what is learned of run times on a cluster of speed 1
    speed: Floats  # [C]
    level: Floats  # [1] quantile of run times, REQUESTED or TRUE
    start: Floats  # [C] when the job foreseen would start, inf where it cannot run
    length: Floats  # [C] how long it would run
    used: Floats  # [C] devices that running and waiting jobs ask for, as a share of the cluster's


@inner_kernel
def one_instant(all: Clusters, inputs: Inputs, state: State, c: int) -> bool:
    """Play the next instant of a cluster; whether there was one."""
    time = next_instant(inputs, state)
    # Learned before the instant is played, since `play` forgets when ended jobs began.
    for m in range(state.at.running):
        j = int64(state.running[m])
        if state.jobs[j].finish <= time:
            # Seconds × speed: run times are learned as on a cluster of speed 1.
            ended(all.times, j, (time - state.jobs[j].begun) * all.speed[c], True, time)
    return bool(play(inputs, state, None, int64(1)) == PAUSED)


@inner_kernel
def believed(all: Clusters, inputs: Inputs, c: int, j: int, age: float) -> float:
    """Seconds that job j takes in all in cluster c, when it has run there for ``age``."""
    # Where a job has outlived what is believed, it is expected to go on for LEAST.
    level, speed, limit = all.level[0], all.speed[c], inputs.jobs[j].limit
    if level == TRUE:
        return float(inputs.jobs[j].work)
    if level == REQUESTED:
        return float(max(limit, age + LEAST))
    # The quantile given the age is asked for in seconds of speed 1 and given back in those of c.
    seconds = quantile_of(all.times.at_submission[j], level, age * speed) / speed
    return float(max(min(seconds, limit), age + LEAST))


@inner_kernel
def foresee(all: Clusters, inputs: Inputs, state: State, c: int, j: int) -> float:
    """When job j, submitted now, starts if all run as long as believed and no other job comes."""
    at, time = state.at, inputs.jobs[j].submit
    # Jobs that come at the same instant but behind j in the log do not count yet.
    k = j + 1
    while k < inputs.jobs.size and inputs.jobs[k].submit <= time:
        state.jobs[k].phase = CANCELLED
        k += 1
    # Ends of running jobs are believed ones from here on: the heap is built anew.
    at.ends = 0
    for m in range(at.running):
        i = int64(state.running[m])
        age = time - state.jobs[i].begun
        state.jobs[i].left = believed(all, inputs, c, i, age) - age
        state.jobs[i].since = time
        schedule_end(inputs, state, i)
    # Waiting jobs get believed lengths as well.
    rank = smallest(state.words, state.summary, at)
    while rank >= 0:
        i = int64(inputs.by_rank[rank])
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
        rank = following(state.words, state.summary, at, rank + 1)
    for i in range(at.next_job, j + 1):  # those of this instant have not been taken in
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
    all.length[c] = believed(all, inputs, c, j, 0.0)
    # Instant by instant until j starts; after the first, no later job may come.
    while state.start[j] == NEVER and play(inputs, state, None, int64(1)) == PAUSED:
        at.next_job = inputs.jobs.size
    return float(state.start[j])


@inner_kernel
def share_used(inputs: Inputs, state: State, j: int) -> float:
    """Devices that running and waiting jobs before job j ask for, as a share of the cluster's."""
    share = 0.0
    for i in range(state.at.next_job, j):  # sent here at this instant
        if state.jobs[i].phase == UNSUBMITTED:
            share += share_of_job(inputs, i)
    for m in range(state.at.running):
        share += share_of_job(inputs, int64(state.running[m]))
    rank = smallest(state.words, state.summary, state.at)
    while rank >= 0:
        share += share_of_job(inputs, int64(inputs.by_rank[rank]))
        rank = following(state.words, state.summary, state.at, rank + 1)
    return share


@inner_kernel
def share_of_job(inputs: Inputs, j: int) -> float:
    shape = inputs.cluster.shapes[inputs.jobs[j].shape]
    demand = inputs.cluster.demand[inputs.jobs[j].shape, shape.dominant]
    return float(inputs.jobs[j].tasks * demand / shape.total)


@inner_kernel
def withdraw(all: Clusters, first: Any, c: int, j: int) -> None:
    """Withdraw job j from all clusters but c."""
    for k in range(all.speed.size):
        cluster = opened_at(first, all.at[k])
        phase = cluster.state.jobs[j].phase
        # A job that runs, or has ended, is no longer in question.
        if k != c and phase in (UNSUBMITTED, WAITING):
            cancel(cluster.inputs, cluster.state, None, j)


@inner_kernel
def share_all(all: Clusters, first: Any) -> None:
    """Play to the end: the first cluster that can start a job has it, ties go to the first."""
    while True:
        c, time = -1, NEVER
        for k in range(all.speed.size):
            cluster = opened_at(first, all.at[k])
            # The earliest instant of all clusters is played next: their clocks stay in step.
            instant = next_instant(cluster.inputs, cluster.state)
            if instant < time:
                c, time = k, instant
        if c < 0:
            return
        cluster = opened_at(first, all.at[c])
        if not one_instant(all, cluster.inputs, cluster.state, c):
            return
        for m in range(cluster.state.at.running):
            j = int64(cluster.state.running[m])
            # It started in this very instant: the others lose it before they play on.
            if cluster.state.jobs[j].begun == cluster.state.at.now:
                withdraw(all, first, c, j)


@lean_kernel
def step(clusters: Any, first: Any, what: int, j: int, chosen: int, time: float) -> None:
    """Do one thing with clusters, see :data:`UNTIL`; the first of them is pinned beside them."""
    all = opened(clusters)
    if what == SHARE:
        share_all(all, first)
    elif what == SEND:
        withdraw(all, first, chosen, j)
    elif what == FORECAST:
        expect(all.times, j, time)
    for c in range(all.speed.size):
        cluster = opened_at(first, all.at[c])
        # Strictly before: events at `time` itself are played after the decision where j goes.
        if what == UNTIL:
            while next_instant(cluster.inputs, cluster.state) < time and one_instant(
                all, cluster.inputs, cluster.state, c
            ):
                pass
            all.used[c] = share_used(cluster.inputs, cluster.state, j)
        elif what == FORECAST:
            all.start[c] = NEVER
            if cluster.state.jobs[j].phase == UNSUBMITTED:
                # The state is one row of memory, so a forecast begins with one copy.
                copy_words(cluster.memory, cluster.memory_ahead)
                all.start[c] = foresee(all, cluster.inputs, cluster.ahead, c, j)

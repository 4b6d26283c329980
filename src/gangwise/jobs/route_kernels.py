"""Several clusters that share the jobs of all, compiled: what happens until a time, and forecasts.

Each cluster is a simulation of all jobs, see :mod:`gangwise.jobs.round_kernels`; a job that goes to
one is withdrawn from the others. A forecast plays a copy of a cluster ahead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import by_reference, inner_kernel, lean_kernel, opened
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
from gangwise.jobs.stacks import copy_row, row
from gangwise.jobs.start_kernels import schedule_end

UNTIL, FORECAST, SEND, SHARE = range(4)
"""What is done: play until a time; foresee job j everywhere; send it to a cluster; play to the end
where each job waits in all clusters and starts in the first that can."""

REQUESTED, TRUE = 2.0, 3.0
"""In place of a quantile of run times: all run for as long as requested, or as they will."""


@by_reference
class Clusters(NamedTuple):
    """C clusters and J jobs."""

    inputs: Inputs  # [C]
    states: State  # [C]
    ahead: State  # [C] for forecasts
    forth: Ints  # copies of states to ahead, see gangwise.jobs.stacks
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
    for m in range(state.at.running):
        j = int64(state.running[m])
        if state.jobs[j].finish <= time:
            ended(all.times, j, (time - state.jobs[j].begun) * all.speed[c], True, time)
    return bool(play(inputs, state, None, int64(1)) == PAUSED)


@inner_kernel
def believed(all: Clusters, inputs: Inputs, c: int, j: int, age: float) -> float:
    """Seconds that job j takes in all in cluster c, when it has run there for ``age``."""
    level, speed, limit = all.level[0], all.speed[c], inputs.jobs[j].limit
    if level == TRUE:
        return float(inputs.jobs[j].work)
    if level == REQUESTED:
        return float(max(limit, age + LEAST))
    seconds = quantile_of(all.times.at_submission[j], level, age * speed) / speed
    return float(max(min(seconds, limit), age + LEAST))


@inner_kernel
def foresee(all: Clusters, inputs: Inputs, state: State, c: int, j: int) -> float:
    """When job j, submitted now, starts if all run as long as believed and no other job comes."""
    at, time = state.at, inputs.jobs[j].submit
    k = j + 1
    while k < inputs.jobs.size and inputs.jobs[k].submit <= time:
        state.jobs[k].phase = CANCELLED
        k += 1
    at.ends = 0
    for m in range(at.running):
        i = int64(state.running[m])
        age = time - state.jobs[i].begun
        state.jobs[i].left = believed(all, inputs, c, i, age) - age
        state.jobs[i].since = time
        schedule_end(inputs, state, i)
    rank = smallest(state.words, state.summary, at)
    while rank >= 0:
        i = int64(inputs.by_rank[rank])
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
        rank = following(state.words, state.summary, at, rank + 1)
    for i in range(at.next_job, j + 1):  # those of this instant have not been taken in
        state.jobs[i].left = believed(all, inputs, c, i, 0.0)
    all.length[c] = believed(all, inputs, c, j, 0.0)
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
def withdraw(all: Clusters, c: int, j: int) -> None:
    """Withdraw job j from all clusters but c."""
    for k in range(all.speed.size):
        state = row(all.states, k)
        phase = state.jobs[j].phase
        if k != c and phase in (UNSUBMITTED, WAITING):
            cancel(row(all.inputs, k), state, None, j)


@inner_kernel
def share_all(all: Clusters) -> None:
    """Play to the end: the first cluster that can start a job has it, ties go to the first."""
    while True:
        c, time = -1, NEVER
        for k in range(all.speed.size):
            instant = next_instant(row(all.inputs, k), row(all.states, k))
            if instant < time:
                c, time = k, instant
        if c < 0:
            return
        state = row(all.states, c)
        if not one_instant(all, row(all.inputs, c), state, c):
            return
        for m in range(state.at.running):
            j = int64(state.running[m])
            if state.jobs[j].begun == state.at.now:
                withdraw(all, c, j)


@inner_kernel
def act(all: Clusters, what: int, j: int, chosen: int, time: float) -> None:
    if what == SHARE:
        share_all(all)
    elif what == SEND:
        withdraw(all, chosen, j)
    elif what == FORECAST:
        expect(all.times, j, time)
    for c in range(all.speed.size):
        inputs, state = row(all.inputs, c), row(all.states, c)
        if what == UNTIL:
            while next_instant(inputs, state) < time and one_instant(all, inputs, state, c):
                pass
            all.used[c] = share_used(inputs, state, j)
        elif what == FORECAST:
            all.start[c] = NEVER
            if state.jobs[j].phase == UNSUBMITTED:
                copy_row(all.forth, c, c)
                all.start[c] = foresee(all, inputs, row(all.ahead, c), c, j)


@lean_kernel
def step(clusters: Any, what: int, j: int, chosen: int, time: float) -> None:
    """Do one thing with clusters that are pinned, see :data:`UNTIL`."""
    act(opened(clusters), what, j, chosen, time)

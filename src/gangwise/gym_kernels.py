"""Many episodes of jobs at once, compiled: decisions taken in, time that goes on, what is seen.

The simulation is that of :mod:`gangwise.jobs.event_kernels`; the states of all environments are one
:class:`~gangwise.jobs.kernels.State` whose arrays have one axis more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel, opened
from gangwise.jobs.event_kernels import DONE, advance
from gangwise.jobs.fit_kernels import block_misses, fits_of
from gangwise.jobs.kernels import BLOCK, Inputs, State, following, int64, opens, smallest
from gangwise.jobs.queue_kernels import capped
from gangwise.jobs.rate_kernels import Beliefs
from gangwise.jobs.stacks import copy_row, row
from gangwise.jobs.start_kernels import find, start

FEATURES = ("waits", "waited", "limit", "nodes", "devices", "fits")
"""Features of a waiting job, each in [0, 1]: whether there is one, the logarithms of seconds waited
and of seconds asked for, tasks per node of the cluster, the share of its devices, whether it fits
now."""

TOTALS = ("free", "waiting", "running", "next end")
"""Features of the cluster: share of devices that are free, logarithms of the numbers of jobs that
wait and run, and of the seconds until the first of these ends if all take what they asked for."""

LOG_SECONDS, LOG_JOBS = math.log1p(1e7), math.log1p(1e5)
"""Logarithms that become 1: of seconds, and of jobs."""

BEGIN = -(2**63)
"""In place of an action: begin the episode that the environment is set to."""


@by_reference
class Views(NamedTuple):
    """What each of B environments shows."""

    plain: bool  # as gangwise/Jobs-v1: plain numbers, and letting time go on is always possible
    shown: Ints  # [B, window] jobs, −1 for none
    seen: Any  # [B, F] the observation
    mask: Bools  # [B, window + 1]
    reward: Floats  # [B, 1] −hours passed × jobs in the system / jobs
    over: Bools  # [B, 1]


@by_reference
class Facts(NamedTuple):
    """What is worked out once of each of E episodes."""

    whole: Floats  # [E, K] amounts of the cluster, at least 1
    limit: Floats  # [E, J] the feature that stands for what a job asks


@by_reference
class Environments(NamedTuple):
    """Episodes, and the environments that play them."""

    bank: Inputs  # [E]
    facts: Facts
    states: State  # [B]
    beliefs: Any  # Beliefs [B]
    views: Views
    episode: Ints  # [B]
    copies: Ints  # of begun episodes to environments, see gangwise.jobs.stacks


@inlined_kernel
def may_start(inputs: Inputs, state: State, beliefs: Beliefs, j: int) -> int:
    """Pieces on which job j can start now, 0 where it cannot."""
    if capped(inputs, state, j) or opens(inputs, j, state.at.now) > state.at.now:
        return 0
    return int(find(inputs, state, beliefs, j))


@inlined_kernel
def has_room(inputs: Inputs, state: State, beliefs: Beliefs, j: int) -> bool:
    """Whether job j can start now; where, is not looked for unless whether depends on it."""
    job, cluster = inputs.jobs[j], inputs.cluster
    s, tasks = int64(job.shape), int64(job.tasks)
    memo = state.memo[s]
    if cluster.devices is not None or (cluster.groups is not None and cluster.shapes[s].groups > 0):
        return may_start(inputs, state, beliefs, j) > 0
    if capped(inputs, state, j) or opens(inputs, j, state.at.now) > state.at.now:
        return False
    if memo.fail_epoch == state.at.epoch and tasks >= memo.fail_tasks:
        return False
    allowed = cluster.allowed[cluster.shapes[s].constraint]
    most, count = min(int64(cluster.shapes[s].per_node), tasks), int64(0)
    for b in range(state.room.top.shape[0]):
        if block_misses(cluster, state.room, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, allowed.size)):
            if allowed[n]:
                count += fits_of(cluster, state.room, s, n, most)
                if count >= tasks:
                    return True
    memo.fail_epoch = state.at.epoch
    memo.fail_tasks = tasks
    return False


@inlined_kernel
def go_on(inputs: Inputs, state: State, beliefs: Beliefs) -> tuple[float, bool]:
    """Go to the next instant at which a job waits: job-seconds that passed, whether all is over."""
    passed = 0.0
    while True:
        before = state.at.now
        present = state.at.waiting + state.at.running
        status = advance(inputs, state, beliefs)
        state.at.fresh = 0
        if before >= 0.0:
            passed += present * (state.at.now - before)
        if status == DONE or state.at.waiting > 0:
            return passed, status == DONE


@inlined_kernel
def describe(inputs: Inputs, facts: Facts, state: State, view: Views, i: int, j: int) -> None:
    """The features of job j, the i-th that waits."""
    at, job, seen = state.at, inputs.jobs[j], view.seen
    waited, row = at.now - job.submit, 6 * i
    seen[row] = 1.0
    seen[row + 2] = facts.limit[j]
    seen[row + 5] = view.mask[i]
    if view.plain:
        share = 0.0
        for k in range(facts.whole.size):
            share = max(share, job.tasks * inputs.cluster.demand[job.shape, k] / facts.whole[k])
        seen[row + 1] = waited / 3600.0
        seen[row + 3] = math.log(job.tasks)
        seen[row + 4] = share
    else:
        shape = inputs.cluster.shapes[job.shape]
        demand = inputs.cluster.demand[job.shape, shape.dominant]
        seen[row + 1] = min(math.log1p(waited) / LOG_SECONDS, 1.0)
        seen[row + 3] = min(job.tasks / state.up.size, 1.0)
        seen[row + 4] = min(job.tasks * demand / shape.total, 1.0)


@inner_kernel
def look(inputs: Inputs, facts: Facts, state: State, beliefs: Any, view: Views) -> None:
    """Fill in what is seen, which actions are possible, and the jobs that they start."""
    at, window, seen, mask = state.at, view.shown.size, view.seen, view.mask
    seen[:] = 0.0
    mask[:] = False
    view.shown[:] = -1
    rank = smallest(state.words, state.summary, at)
    for i in range(min(window, at.waiting)):
        j = inputs.by_rank[rank]
        view.shown[i] = j
        mask[i] = has_room(inputs, state, beliefs, j)
        describe(inputs, facts, state, view, i, j)
        rank = following(state.words, state.summary, at, rank + 1)
    # Jobs that wait while nothing runs and none comes would wait for ever.
    more = view.plain or at.running > 0 or at.next_job < inputs.jobs.size
    mask[window] = more or not mask.any()
    free, end = 1.0, 0.0
    for k in range(state.total.size):
        free = min(free, state.total[k] / facts.whole[k])
    seen[6 * window] = free
    if view.plain:
        seen[6 * window + 1] = math.log1p(at.waiting)
        seen[6 * window + 2] = math.log1p(at.running)
        return
    for m in range(at.running):
        j = state.running[m]
        left = max(state.jobs[j].begun + inputs.jobs[j].limit - at.now, 0.0)
        end = left if m == 0 else min(end, left)
    seen[6 * window + 1] = min(math.log1p(at.waiting) / LOG_JOBS, 1.0)
    seen[6 * window + 2] = min(math.log1p(at.running) / LOG_JOBS, 1.0)
    seen[6 * window + 3] = min(math.log1p(end) / LOG_SECONDS, 1.0)


@inner_kernel
def act(inputs: Inputs, facts: Facts, state: State, beliefs: Any, view: Views, action: int) -> None:
    """Take one decision: start a job, which takes no time, or let time go on.

    Where nothing runs and no job comes, the first job that fits starts instead.
    """
    window = view.shown.size
    job = int64(view.shown[action]) if 0 <= action < window else int64(-1)
    pieces = may_start(inputs, state, beliefs, job) if job >= 0 else 0
    if pieces == 0 and action >= 0 and not view.mask[window]:
        job = int64(view.shown[view.mask.argmax()])
        pieces = may_start(inputs, state, beliefs, job)
    passed, over = 0.0, False
    if pieces > 0:
        start(inputs, state, job, pieces)
    else:
        passed, over = go_on(inputs, state, beliefs)
    if action != BEGIN:  # the time until the first job comes is not counted
        view.reward[0] = -passed / 3600.0 / inputs.jobs.size
        view.over[0] = over
    look(inputs, facts, state, beliefs, view)


@inner_kernel
def step_rows(all: Environments, rows: Ints, actions: Ints) -> None:
    """Take one decision in each of these environments, or begin its episode."""
    for m in range(rows.size):
        i = rows[m]
        e = all.episode[i]
        if actions[i] == BEGIN:
            copy_row(all.copies, e, i)
        act(
            row(all.bank, e),
            row(all.facts, e),
            row(all.states, i),
            row(all.beliefs, i),
            row(all.views, i),
            actions[i],
        )


@lean_kernel
def step(environments: Any, rows: Ints, actions: Ints) -> None:
    """Take one decision in each of these environments, which are pinned, or begin its episode."""
    step_rows(opened(environments), rows, actions)

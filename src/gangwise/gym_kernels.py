"""Many episodes of jobs at once, compiled: decisions taken in, time that goes on, what is seen.

The simulation is that of :mod:`gangwise.jobs.event_kernels`; each environment's state is a row of
memory, see :mod:`gangwise.jobs.compiled`.
"""

import math
from typing import Any, NamedTuple

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs.compiled import copy_words, opened_at
from gangwise.jobs.event_kernels import DONE, advance
from gangwise.jobs.fit_kernels import block_misses, fits_of
from gangwise.jobs.kernels import BLOCK, RUNNING, Inputs, State, following, int64, opens, smallest
from gangwise.jobs.queue_kernels import capped
from gangwise.jobs.rate_kernels import Beliefs
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
class View(NamedTuple):
    """View of an environment: what it shows of itself."""

    plain: bool  # as gangwise/Jobs-v1: plain numbers, and letting time go on is always possible
    shown: Ints  # [window] jobs, −1 for none
    seen: Any  # [F] the observation
    mask: Bools  # [window + 1]
    reward: Floats  # [1] −hours passed × jobs in the system / jobs
    over: Bools  # [1]
    epoch: Ints  # [1] `Counters.epoch` when it was filled in
    first: Ints  # [1] the running job that ends first as requested, −1 for none


@by_reference
class Episode(NamedTuple):
    """Episode: its jobs, what is computed once of them, and how it begins."""

    inputs: Inputs
    asked: Any  # [J, 3] the features of a job that stay: limit, nodes, devices
    whole: Floats  # [K] amounts of the cluster, at least 1
    begun: Ints  # the memory of an environment in which nothing has happened


@by_reference
class Environment(NamedTuple):
    """An environment that plays an episode."""

    state: State
    beliefs: Any  # Beliefs
    shows: Any = None  # View
    memory: Any = None  # Ints: that of state and beliefs


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
    if cluster.groups is not None and cluster.shapes[s].groups > 0:
        return may_start(inputs, state, beliefs, j) > 0
    # Where domains count, room alone does not say whether a gang fits.
    if inputs.topology is not None:
        return may_start(inputs, state, beliefs, j) > 0
    if capped(inputs, state, j) or opens(inputs, j, state.at.now) > state.at.now:
        return False
    # Nothing was given back since a job of this shape with as few tasks had no room.
    if memo.fail_epoch == state.at.epoch and tasks >= memo.fail_tasks:
        return False
    allowed = cluster.allowed[cluster.shapes[s].constraint]
    most, count = min(int64(cluster.shapes[s].per_node), tasks), int64(0)
    for b in range(state.room.top.shape[0]):
        # A block of nodes whose largest free amounts are too small is passed over as a whole.
        if block_misses(cluster, state.room, s, b):
            continue
        for n in range(b * BLOCK, min((b + 1) * BLOCK, allowed.size)):
            if allowed[n]:
                # Up to the number asked for: how many more there are is not counted.
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
        # Before the first event there is no time to count.
        if before >= 0.0:
            # Jobs that were in the system when the time began to
            # pass: none leaves before the next event.
            passed += present * (state.at.now - before)
        if status == DONE or state.at.waiting > 0:
            return passed, status == DONE


@inlined_kernel
def fits_now(
    inputs: Inputs, state: State, beliefs: Beliefs, j: int, before: bool, started: bool
) -> bool:
    """Whether waiting job j fits, which did or did not ``before``, when devices were given back
    last.

    Since then nothing has changed, or a job has ``started`` and took some.
    """
    shape = inputs.cluster.shapes[inputs.jobs[j].shape]
    if inputs.cluster.groups is not None and shape.groups > 0:
        return has_room(inputs, state, beliefs, j)  # other nodes are taken first, and it may fit
    if inputs.hours is not None and inputs.hours.since.size > 0:
        return has_room(inputs, state, beliefs, j)
    return before and (not started or has_room(inputs, state, beliefs, j))


@inlined_kernel
def ends_first(state: State, view: View, job: int) -> float:
    """Seconds until the first running job ends as requested; ``job`` has started, −1 for none."""
    first = view.first[0]
    if job >= 0 and first >= 0:
        # The first to end is still the first, unless the job that has just started ends sooner.
        if state.jobs[job].expect < state.jobs[first].expect:
            first = job
    elif job >= 0 or first < 0 or state.jobs[first].phase != RUNNING:
        first = int64(-1)
        for m in range(state.at.running):
            j = state.running[m]
            if first < 0 or state.jobs[j].expect < state.jobs[first].expect:
                first = j
    view.first[0] = first
    return float(max(state.jobs[first].expect - state.at.now, 0.0)) if first >= 0 else 0.0


@inner_kernel
def look(episode: Episode, state: State, beliefs: Any, view: View, job: int) -> None:
    """Fill in what is seen, which actions are possible, and the jobs that they start.

    ``job`` has just started; −1: time went on. What holds still of jobs that were seen is kept.
    """
    inputs, at, window = episode.inputs, state.at, view.shown.size
    seen, mask, shown, now = view.seen, view.mask, view.shown, at.now
    same, old, any_fits = view.epoch[0] == at.epoch, 0, False
    rank = smallest(state.words, state.summary, at)
    count = min(window, at.waiting)
    for i in range(count):
        j = inputs.by_rank[rank]
        # Both lists are in rank order: one walk finds each job in what was shown before.
        while old < window and shown[old] != j:
            old += 1
        if old < window and same:
            mask[i] = fits_now(inputs, state, beliefs, j, mask[old], job >= 0)
        else:
            mask[i] = has_room(inputs, state, beliefs, j)
        any_fits = any_fits or mask[i]
        at_row = 6 * i
        if old == window or job < 0:
            waited = now - inputs.jobs[j].submit
            seen[at_row + 1] = (
                waited / 3600.0 if view.plain else min(math.log1p(waited) / LOG_SECONDS, 1.0)
            )
        else:
            # A start takes no time, so that waits are as they were.
            seen[at_row + 1] = seen[6 * old + 1]
        shown[i] = j
        seen[at_row] = 1.0
        seen[at_row + 2] = episode.asked[j, 0]
        seen[at_row + 3] = episode.asked[j, 1]
        seen[at_row + 4] = episode.asked[j, 2]
        seen[at_row + 5] = mask[i]
        rank = following(state.words, state.summary, at, rank + 1)
    # Rows behind the first empty one were emptied before.
    for i in range(count, window):
        if shown[i] < 0:
            break
        shown[i] = -1
        mask[i] = False
        seen[6 * i : 6 * i + 6] = 0.0
    view.epoch[0] = at.epoch
    # Jobs that wait while nothing runs and none comes would wait for ever.
    more = view.plain or at.running > 0 or at.next_job < inputs.jobs.size
    mask[window] = more or not any_fits
    free = 1.0
    for k in range(state.total.size):
        # The scarcest device type says how full the cluster is.
        free = min(free, state.total[k] / episode.whole[k])
    seen[6 * window] = free
    if view.plain:
        seen[6 * window + 1] = math.log1p(at.waiting)
        seen[6 * window + 2] = math.log1p(at.running)
        return
    end = ends_first(state, view, job)
    seen[6 * window + 1] = min(math.log1p(at.waiting) / LOG_JOBS, 1.0)
    seen[6 * window + 2] = min(math.log1p(at.running) / LOG_JOBS, 1.0)
    seen[6 * window + 3] = min(math.log1p(end) / LOG_SECONDS, 1.0)


@inner_kernel
def act(episode: Episode, state: State, beliefs: Any, view: View, action: int) -> None:
    """Take one decision: start a job, which takes no time, or let time go on.

    Where nothing runs and no job comes, the first job that fits starts instead.
    """
    inputs, window = episode.inputs, view.shown.size
    job = int64(view.shown[action]) if 0 <= action < window else int64(-1)
    pieces = may_start(inputs, state, beliefs, job) if job >= 0 else 0
    # Letting time go on is no option here, and some job fits, or the mask would allow it.
    if pieces == 0 and action >= 0 and not view.mask[window]:
        job = int64(view.shown[view.mask.argmax()])
        pieces = may_start(inputs, state, beliefs, job)
    passed, over = 0.0, False
    if pieces > 0:
        start(inputs, state, job, pieces)
    else:
        job = int64(-1)
        passed, over = go_on(inputs, state, beliefs)
    if action != BEGIN:  # the time until the first job comes is not counted
        view.reward[0] = -passed / 3600.0 / inputs.jobs.size
        view.over[0] = over
    look(episode, state, beliefs, view, job)


@lean_kernel
def step(
    episode: Any,
    episodes: Ints,
    environment: Any,
    environments: Ints,
    plays: Ints,
    rows: Ints,
    actions: Ints,
) -> None:
    """Take one decision in each of these environments, or begin its episode.

    ``plays`` says which of the ``episodes``; these and environments are addresses, beside the
    first of them, pinned.
    """
    for m in range(rows.size):
        i = rows[m]
        of, here = opened_at(episode, episodes[plays[i]]), opened_at(environment, environments[i])
        if actions[i] == BEGIN:
            # All of an environment is one row of memory, so that an episode begins by one copy.
            copy_words(of.begun, here.memory)
            here.shows.shown[:] = -1
            here.shows.seen[:] = 0.0
            here.shows.mask[:] = False
            here.shows.first[0] = -1
        act(of, here.state, here.beliefs, here.shows, actions[i])

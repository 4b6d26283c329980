"""Many episodes of jobs at once, compiled: decisions taken in, time that goes on, what is seen.

The simulation is that of :mod:`gangwise.jobs.event_kernels`; the states of all environments are one
:class:`~gangwise.jobs.kernels.State` whose arrays have one axis more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import Reference, inlined_kernel, lean_kernel, referenced
from gangwise.jobs.event_kernels import DONE, advance
from gangwise.jobs.kernels import Inputs, State, following, int64, opens, smallest
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

LEAN: Any = {"_nrt": False, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


def row(stack: Any, i: int) -> Any:
    """Row i of every array in nested named tuples; what is no array is of all rows."""
    if isinstance(stack, np.ndarray):
        return stack[i]
    if isinstance(stack, tuple):
        return type(stack)(*(row(part, i) for part in stack))
    return stack


@overload(row, inline="always", jit_options=LEAN)  # records cannot be returned
def _row(stack, i):  # type: ignore[no-untyped-def]  # numba compares annotations
    made: dict[str, Any] = {"referenced": referenced}
    text = _written(stack, "stack", made)
    # numba loops over no unlike fields.
    exec(f"def of_row(stack, i):\n    return referenced({text})", made)
    return made["of_row"]


def _written(of: Any, name: str, made: dict[str, Any]) -> str:
    """The source that makes a row of nested named tuples, which are entered in ``made``."""
    if isinstance(of, types.Array):
        return f"{name}[i]"
    of = of.fields if isinstance(of, Reference) else of
    if not isinstance(of, types.NamedTuple | types.NamedUniTuple):
        return name
    made[of.instance_class.__name__] = of.instance_class
    fields = [_written(each, f"{name}.{field}", made) for each, field in zip(of.types, of.fields)]
    return f"{of.instance_class.__name__}({', '.join(fields)})"


@inlined_kernel
def may_start(inputs: Inputs, state: State, beliefs: Beliefs, j: int) -> int:
    """Pieces on which job j can start now, 0 where it cannot."""
    if capped(inputs, state, j) or opens(inputs, j, state.at.now) > state.at.now:
        return 0
    return int(find(inputs, state, beliefs, j))


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
def look(
    inputs: Inputs, state: State, beliefs: Beliefs, shown: Ints, seen: Any, mask: Bools
) -> None:
    """Fill in what is seen, which actions are possible, and the jobs that they start."""
    at, window = state.at, shown.size
    seen[:] = 0.0
    mask[:] = False
    shown[:] = -1
    rank = smallest(state.words, state.summary, at)
    for i in range(min(window, at.waiting)):
        j = inputs.by_rank[rank]
        shape = inputs.cluster.shapes[inputs.jobs[j].shape]
        tasks = inputs.jobs[j].tasks
        demand = inputs.cluster.demand[inputs.jobs[j].shape, shape.dominant]
        shown[i] = j
        mask[i] = may_start(inputs, state, beliefs, j) > 0
        seen[6 * i] = 1.0
        seen[6 * i + 1] = min(math.log1p(at.now - inputs.jobs[j].submit) / LOG_SECONDS, 1.0)
        seen[6 * i + 2] = min(math.log1p(inputs.jobs[j].limit) / LOG_SECONDS, 1.0)
        seen[6 * i + 3] = min(tasks / state.up.size, 1.0)
        seen[6 * i + 4] = min(tasks * demand / shape.total, 1.0)
        seen[6 * i + 5] = mask[i]
        rank = following(state.words, state.summary, at, rank + 1)
    # Whoever waits while nothing runs and nobody comes would wait for ever.
    mask[window] = at.running > 0 or at.next_job < inputs.jobs.size or not mask.any()
    free, end = 1.0, 0.0
    for k in range(state.total.size):
        total = 0
        for n in range(state.up.size):
            total += inputs.cluster.capacity[n, k]
        free = min(free, state.total[k] / max(total, 1))
    for m in range(at.running):
        j = state.running[m]
        left = max(state.jobs[j].begun + inputs.jobs[j].limit - at.now, 0.0)
        end = left if m == 0 else min(end, left)
    seen[6 * window] = free
    seen[6 * window + 1] = min(math.log1p(at.waiting) / LOG_JOBS, 1.0)
    seen[6 * window + 2] = min(math.log1p(at.running) / LOG_JOBS, 1.0)
    seen[6 * window + 3] = min(math.log1p(end) / LOG_SECONDS, 1.0)


@lean_kernel
def step(
    bank: Inputs,
    states: State,
    beliefs: Beliefs,
    rows: Ints,
    episode: Ints,
    actions: Ints,
    views: tuple[Ints, Any, Bools],
    outcome: tuple[Floats, Bools],
) -> None:
    """Take one decision in each of these environments; ``actions`` below 0 let time go on.

    Where nothing runs and nobody comes, the first job that fits starts instead.

    ``views``: jobs shown [B, window], what is seen [B, 6 window + 4], masks [B, window + 1];
    ``outcome``: −hours passed × jobs in the system / jobs [B], and whether the episode is over [B].
    """
    shown, seen, mask = views
    reward, over = outcome
    for m in range(rows.size):
        i = rows[m]
        g = row(bank, episode[i])
        x = row(states, i)
        job = int64(shown[i, actions[i]]) if 0 <= actions[i] < shown.shape[1] else int64(-1)
        pieces = may_start(g, x, beliefs, job) if job >= 0 else 0
        if pieces == 0 and actions[i] >= 0 and not mask[i, shown.shape[1]]:
            job = int64(shown[i, mask[i].argmax()])
            pieces = may_start(g, x, beliefs, job)
        reward[i] = 0.0
        over[i] = False
        if pieces > 0:
            start(g, x, job, pieces)
        if pieces == 0:
            passed, over[i] = go_on(g, x, beliefs)
            reward[i] = -passed / 3600.0 / g.jobs.size
        look(g, x, beliefs, shown[i], seen[i], mask[i])

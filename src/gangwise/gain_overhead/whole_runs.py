"""Whole runs of the cheap baselines in compiled code: the same kernels, no Python between slots.

A slot of FAIRNESS or DRF takes a few microseconds, and Python around it several times as much. Here
the loop over the slots is a kernel too; it calls the kernels that policy and problem call slot by
slot, in the same order and on the same numbers, so that rewards and metrics are the same to the
bit. The kernels hold no lock of the interpreter: runs of other seeds go on beside it in threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel
from gangwise.core.simulation import Streams
from gangwise.gain_overhead.baselines import (
    DRF,
    BinPacking,
    DRFAsPrinted,
    Fairness,
    RandomOrder,
    Spreading,
)
from gangwise.gain_overhead.environment import GainOverheadInstance
from gangwise.gain_overhead.kernels import (
    evaluate,
    fill_progressively,
    list_schedule,
    list_schedule_in_turns,
    share_proportionally,
)
from gangwise.gain_overhead.problem import TOLERANCE, GainOverheadProblem

COLUMNS = ("reward", "gain", "overhead", "utilisation", "jobs")
"""Of a whole run, slot by slot."""


def play_whole(instance: Any, policy: object, slots: int, seed: int) -> Floats | None:
    """A run of a baseline, shape [slots, 5]: :data:`COLUMNS`; None where it has to be stepped.

    It is for Fairness, DRF, DRF as printed, BinPacking, Spreading and random order themselves,
    built-in utilities, and no charge for moving. Where a decision is infeasible, None as well:
    stepping names it.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=0)
    >>> whole = play_whole(instance, create_policy("drf"), 20, seed=0)
    >>> stepped = simulate(instance, create_policy("drf"), 20, seed=0)
    >>> bool((whole[:, 0] == stepped.rewards).all())
    True
    """
    player = _PLAYERS.get(type(policy))
    if player is None or not isinstance(instance, GainOverheadInstance):
        return None
    problem = instance.problem
    if problem.own_index.size or problem.moving > 0:
        return None
    policy.start(problem, Streams.of(seed).policy)  # type: ignore[attr-defined]  # one of those above
    arrivals = np.ascontiguousarray(instance.arrivals(slots, seed))
    found = np.zeros((slots, len(COLUMNS)))
    settle = (
        problem.utilities.kind,
        problem.utilities.alpha,
        problem.overhead,
        problem.requests,
        problem.cluster.capacity,
        problem.channels.starts,
        problem.channels.job_type,
        TOLERANCE,
        np.empty_like(problem.requests),
        np.empty(3),
    )
    return found if player(policy, problem, arrivals, settle, found) else None


def plays_whole(policy: object) -> bool:
    """Whether runs of a policy may be played whole."""
    return type(policy) in _PLAYERS


def _fairness(
    policy: Any, p: GainOverheadProblem, arrivals: Ints, settle: Any, out: Floats
) -> bool:
    every, y = policy.share == "all", np.empty(p.shape)
    return bool(_play_fairness(arrivals, every, p.upper, np.empty(p.L), settle, y, out))


def _drf(policy: Any, p: GainOverheadProblem, arrivals: Ints, settle: Any, out: Floats) -> bool:
    work = (policy._left, policy._rises, policy._y)
    return bool(
        _play_drf(arrivals, bool(policy.bundles), p.upper, policy._most, settle, *work, out)
    )


def _printed(policy: Any, p: GainOverheadProblem, arrivals: Ints, settle: Any, out: Floats) -> bool:
    order = np.asarray(policy._order, dtype=np.int64)[None]
    return _listed(policy, p, arrivals, order, settle, out)


def _random(policy: Any, p: GainOverheadProblem, arrivals: Ints, settle: Any, out: Floats) -> bool:
    orders = np.full(arrivals.shape, -1, dtype=np.int64)
    for order, x in zip(orders, arrivals):
        came = np.flatnonzero(x)
        order[: came.size] = policy._rng.permutation(came)  # drawn as slot by slot
    return _listed(policy, p, arrivals, orders, settle, out)


def _listed(
    policy: Any, p: GainOverheadProblem, arrivals: Ints, orders: Ints, settle: Any, out: Floats
) -> bool:
    s, chosen = policy._servers, np.empty(p.L, dtype=np.int64)
    lists = (p.upper, p.channels.server, s.of_job_type, s.first)
    return bool(_play_list(arrivals, orders, *lists, settle, s._left, chosen, s._y, out))


def _turns(policy: Any, p: GainOverheadProblem, arrivals: Ints, settle: Any, out: Floats) -> bool:
    s, order = policy._servers, np.arange(p.L)
    given: tuple[Any, ...] = (s._size, p.channels.server, s.of_job_type, s.first, settle)
    given += (s._left, s._score, s._taken, np.empty_like(order), s._y, out)
    return bool(_play_turns(arrivals, order, float(policy.sign), p.upper, *given))


_PLAYERS: dict[type, Callable[..., bool]] = {
    Fairness: _fairness,
    DRF: _drf,
    DRFAsPrinted: _printed,
    BinPacking: _turns,
    Spreading: _turns,
    RandomOrder: _random,
}


@kernel
def _settle(y: Floats, x: Ints, settle: Any, row: Floats) -> bool:
    """Reward and metrics of a slot; False for an infeasible decision."""
    kind, alpha, beta, requests, capacity, starts, job_type, tolerance, total, result = settle
    if evaluate(
        y, x, kind, alpha, beta, requests, capacity, starts, job_type, tolerance, total, result
    ):
        return False
    row[0], row[1], row[2] = result[0] - result[1], result[0], result[1]
    row[3], row[4] = result[2], float(x.sum())
    return True


@kernel
def _came(x: Ints, order: Ints, chosen: Ints) -> int:
    """Job types that arrived, in an order that -1 ends; how many there are."""
    n = 0
    for l in order:
        if l >= 0 and x[l] != 0:
            chosen[n] = l
            n += 1
    return n


@kernel
def _play_fairness(
    arrivals: Ints, every: bool, upper: Floats, weight: Floats, settle: Any, y: Floats, out: Floats
) -> bool:
    requests, capacity, starts, job_type = settle[3], settle[4], settle[5], settle[6]
    for t in range(arrivals.shape[0]):
        for l in range(weight.size):
            weight[l] = 1.0 if every else float(arrivals[t, l])
        share_proportionally(weight, requests, upper, capacity, starts, job_type, y)
        if every:
            for e in range(job_type.size):
                for k in range(y.shape[1]):
                    y[e, k] *= arrivals[t, job_type[e]]
        if not _settle(y, arrivals[t], settle, out[t]):
            return False
    return True


@kernel
def _play_drf(
    arrivals: Ints,
    bundles: bool,
    upper: Floats,
    most: Floats,
    settle: Any,
    left: Floats,
    rises: Ints,
    y: Floats,
    out: Floats,
) -> bool:
    capacity, starts, job_type = settle[4], settle[5], settle[6]
    for t in range(arrivals.shape[0]):
        fill_progressively(
            arrivals[t], bundles, upper, most, capacity, starts, job_type, left, rises, y
        )
        if not _settle(y, arrivals[t], settle, out[t]):
            return False
    return True


@kernel
def _play_list(
    arrivals: Ints,
    orders: Ints,
    upper: Floats,
    server: Ints,
    of_job_type: Ints,
    first: Ints,
    settle: Any,
    left: Floats,
    chosen: Ints,
    y: Floats,
    out: Floats,
) -> bool:
    for t in range(arrivals.shape[0]):
        n = _came(arrivals[t], orders[t % orders.shape[0]], chosen)
        left[:] = settle[4]
        y[:] = 0.0
        list_schedule(chosen[:n], upper, server, of_job_type, first, left, y)
        if not _settle(y, arrivals[t], settle, out[t]):
            return False
    return True


@kernel
def _play_turns(
    arrivals: Ints,
    order: Ints,
    sign: float,
    upper: Floats,
    size: Floats,
    server: Ints,
    of_job_type: Ints,
    first: Ints,
    settle: Any,
    left: Floats,
    score: Floats,
    taken: Ints,
    chosen: Ints,
    y: Floats,
    out: Floats,
) -> bool:
    capacity = settle[4]
    for t in range(arrivals.shape[0]):
        n = _came(arrivals[t], order, chosen)
        left[:] = capacity
        score[:] = 0.0
        taken[:] = 0
        y[:] = 0.0
        list_schedule_in_turns(
            chosen[:n],
            sign,
            upper,
            capacity,
            size,
            server,
            of_job_type,
            first,
            left,
            score,
            taken,
            y,
        )
        if not _settle(y, arrivals[t], settle, out[t]):
            return False
    return True

"""Multifactor priority: the account tree with its decaying use, and what a job's priority is.

The state is one named tuple of arrays, which these functions change in place; compiled schedulers
and those that decide in Python call the same functions. The nodes of the tree are numbered from
the root, 0, so that each comes behind its parent; *leaves* are users within accounts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import shared_kernel

HIGHEST = 2.0**32 - 1.0
"""Priorities are whole numbers of 32 bits, at least 1, as in Slurm."""


class Standing(NamedTuple):
    """Weights, what jobs add by themselves, and A nodes of the tree with D levels of L leaves."""

    age: float  # weight
    fair_share: float  # weight
    max_age: float
    period: float  # seconds between two computations
    decay: float  # of use, per second
    classic: bool
    damping: float
    tier: Ints  # [J] of its pool, from 0
    score: Floats  # [J] of size, pool, QOS, TRES and the job's own priority, weighted
    leaf: Ints  # [J] whom its use is charged to
    bill: Floats  # [J] use per second
    eligible: Floats  # [J] since when a job waits; changes
    parent: Ints  # [A]
    share: Floats  # [A] of the shares of its siblings and its own
    path: Ints  # [A, D] nodes from below the root down to a leaf, −1 behind it
    # what changes
    clock: Floats  # [1] when priorities were computed last
    use: Floats  # [A] of a leaf, as of `since`
    rate: Floats  # [A] of a leaf: use per second
    since: Floats  # [A]
    total: Floats  # [A] use as of `clock`, with that of all below
    level: Floats  # [A] fair tree: share / use among siblings; classic: effective use
    factor: Floats  # [A] of a leaf: fair share from 0 to 1
    order: Ints  # [L] leaves, highest level first


def copy_of(s: Standing) -> Standing:
    """The same, whose changes are its own."""
    own = "eligible", "clock", "use", "rate", "since", "total", "level", "factor", "order"
    return s._replace(**{name: getattr(s, name).copy() for name in own})


@shared_kernel
def decayed(use: float, rate: float, seconds: float, decay: float) -> float:
    """Use after so many seconds at a rate of use, while e^(−decay) of it is left each second."""
    if decay == 0.0:
        return use + rate * seconds
    kept = math.exp(-decay * seconds)
    return use * kept + rate * (1.0 - kept) / decay


@shared_kernel
def use_at(s: Standing, a: int, now: float) -> float:
    """Use of a leaf: it halves every half-life."""
    gone = now - s.since[a]
    if gone <= 0.0 or (s.use[a] == 0.0 and s.rate[a] == 0.0):
        return float(s.use[a])
    return float(decayed(s.use[a], s.rate[a], gone, s.decay))


@shared_kernel
def hold(s: Standing, j: int, sign: float, now: float) -> None:
    """Job j holds its devices from now on (sign 1), or no longer (−1)."""
    a = s.leaf[j]
    s.use[a] = use_at(s, a, now)
    s.since[a] = now
    s.rate[a] += sign * s.bill[j]


@shared_kernel
def tick(s: Standing, now: float) -> bool:
    """Compute fair shares as of the last multiple of the period; False where that is done."""
    due = math.floor(now / s.period) * s.period
    if due <= s.clock[0]:
        return False
    s.clock[0] = due
    if s.fair_share == 0.0:
        return True
    for a in range(s.total.size):
        s.total[a] = 0.0
    for i in range(s.order.size):
        s.total[s.order[i]] = use_at(s, s.order[i], due)
    for a in range(s.total.size - 1, 0, -1):
        s.total[s.parent[a]] += s.total[a]
    if s.classic:
        effective_use(s)
    else:
        fair_tree(s)
    return True


@shared_kernel
def effective_use(s: Standing) -> None:
    """Classic fair share: 2^(−use / shares / damping).

    Use is of all use. An account's weighs on those below it: they count with what they have not
    used of it, by their shares. Shares are of the whole.
    """
    s.factor[0] = 1.0  # shares of the whole, until leaves get theirs
    for a in range(1, s.total.size):
        p = s.parent[a]
        whole = s.factor[p] * s.share[a]
        s.factor[a] = whole
        norm = s.total[a] / s.total[0] if s.total[0] > 0.0 else 0.0
        s.level[a] = norm if p == 0 else norm + (s.level[p] - norm) * s.share[a]
    for i in range(s.order.size):
        a = s.order[i]
        if s.factor[a] > 0.0:
            s.factor[a] = 2.0 ** (-s.level[a] / s.factor[a] / s.damping)


@shared_kernel
def fair_tree(s: Standing) -> None:
    """Fair tree: leaves in the order of share / use among siblings, level by level.

    Siblings that are level are one, so that those below them compare with one another; the rank is
    the same where all levels are, and of a user who is level with an account and its first.
    """
    for a in range(1, s.total.size):
        of = s.total[s.parent[a]]
        part = s.total[a] / of if of > 0.0 else 0.0
        s.level[a] = 0.0
        if s.share[a] > 0.0:
            s.level[a] = s.share[a] / part if part > 0.0 else math.inf
    L = s.order.size
    for i in range(1, L):
        a = s.order[i]
        m = i
        while m > 0 and compare(s, s.order[m - 1], a) > 0:
            s.order[m] = s.order[m - 1]
            m -= 1
        s.order[m] = a
    rank = L
    for i in range(L):
        if i == 0 or abs(compare(s, s.order[i - 1], s.order[i])) == 2:
            rank = L - i
        s.factor[s.order[i]] = rank / L


@shared_kernel
def compare(s: Standing, a: int, b: int) -> int:
    """Which of two leaves comes first: −2 a, 2 b, 0 neither; −1 and 1 where one is nearer the root.

    The latter are level as far as both go.
    """
    for d in range(s.path.shape[1]):
        p, q = s.path[a, d], s.path[b, d]
        if p < 0 or q < 0:
            return int(p >= 0) - int(q >= 0)
        if s.level[p] != s.level[q]:
            return -2 if s.level[p] > s.level[q] else 2
    return 0


@shared_kernel
def key(s: Standing, j: int) -> float:
    """Key of a job that waits; the smallest is first: the tier, then the priority."""
    age = min(max(s.clock[0] - s.eligible[j], 0.0) / s.max_age, 1.0)
    priority = s.age * age + s.fair_share * s.factor[s.leaf[j]] + s.score[j]
    return float(-(s.tier[j] * 2.0**33 + min(max(math.floor(priority), 1.0), HIGHEST)))

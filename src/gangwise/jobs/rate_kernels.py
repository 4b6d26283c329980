"""Compiled parts of what is believed about rates, and of the decisions that rest on it.

The state of a learner is one named tuple of arrays, ``Beliefs``, that these functions change in
place; :mod:`gangwise.jobs.rates` makes it, documents it and asks it. Job types are l, nodes n with
generation g[n]; all rates are logarithms.

Shared factors
--------------
The log rate y of a job j of type l on node n, less the node's label, is

    y = a[l, g[n]] + f[n] + e[l, n] + u[j] + ε,

all independent and normal with mean 0 a priori. Given a, nodes are independent, so that the exact
posterior needs no matrix over nodes: a[·, g] ~ N(μ_g, Σ_g), an L × L matrix per generation, and
f[n] | a ~ N(m_n - h_n·a[·, g[n]], v_n). One observation changes Σ_g by a rank of one (recursive
least squares) and node n's three numbers: O(L²), whatever the number of nodes. e[l, n] is a mean of
residuals, shrunk. The ranks of a gang share u, so they are taken in together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import inlined_kernel, inner_kernel, lean_kernel, shared_kernel

LABELS, MEANS, SHARED = range(3)
"""What is believed: declared rates, a mean per (job type, node), shared factors."""

RANKS = 32
"""Ranks of a gang that are taken in at once."""
BINS = 64
"""Of the ratio of work to limit."""
PRIOR_JOBS = 5.0
"""Jobs that the first guess of that ratio, even, is worth."""


class Constants(NamedTuple):
    """What a learner assumes, and the constants of its decisions."""

    a: float = 0.2  # prior standard deviations of log rates
    f: float = 0.05
    e: float = 0.03
    u: float = 0.1
    epsilon: float = 0.03
    surprise: float = 3.0  # how many standard deviations are one
    jump: float = 0.4  # standard deviation that f[n] may then have moved by
    drift: float = 0.0  # standard deviation that f[n] moves by in an hour unseen
    pack: float = 0.003  # log rate given up to leave one free device less on a node
    caution: float = 0.5  # standard deviations taken off for jobs that are not short
    probe: float = 2.0  # standard deviations added for short jobs
    short: float = 1500.0  # limits below, in seconds at rate 1, are short
    price: float = 4.0  # a wait takes this many times devices wanted ÷ rate of release
    crowd: float = 1.0  # longer by this share for each job waiting
    patience: float = 3600.0  # seconds that a job waits by choice, at most
    memory: float = 1800.0  # seconds over which releases are averaged
    toll: float = 28800.0  # seconds of backlog at which a device-second costs a second; 0: none
    slack: float = 2.0  # it costs nothing where 1 / slack of the devices are idle
    saving: float = 900.0  # seconds that a migration must save
    slowest_only: bool = False  # of a gang, only the slowest rank is seen


class Beliefs(NamedTuple):
    """State of a learner for L job types, N nodes in G generations.

    Attributes
    ----------
    kind : int
        ``LABELS``, ``MEANS`` or ``SHARED``.
    constants : Constants
    labels : ndarray [L, N]
        Logarithms of the declared rates.
    generation : ndarray [N]
    a_mean, a_cov : ndarray [G, L], [G, L, L]
        μ and Σ.
    f_mean, f_slope, f_var, f_time : ndarray [N], [N, L], [N], [N]
        m, h and v; when the node was last seen.
    f_shift, f_cross, f_extra : ndarray [N], [N, L], [N]
        h·μ, Σh and h·Σh of the node's generation, kept up to date for :func:`refresh`.
    e_sum, e_count : ndarray [L, N]
        Residuals; for ``MEANS`` the rates themselves (not their logarithms).
    version, row_version : ndarray [G], [L, G]
        Which entries of the next two are as things are.
    mean, sd : ndarray [L, N]
        Posterior of log rates.
    release, release_time : ndarray [G], [1]
        Devices released per second, averaged over ``memory``.
    backlog, idle, devices : ndarray [G]
        Seconds of work routed to a generation and not yet done, share of its devices that was
        free when last looked at, and their number.
    typical, members, price, charge : ndarray [G]
        Space: mean log rate of the nodes, their number, what a device-second costs, and what a job
        is charged for it in log rate.
    ratio : ndarray [B]
        Finished jobs by work ÷ limit.
    level : ndarray [L, G]
        Sums of ``mean`` over the nodes of a generation.
    seen : ndarray [3]
        Gangs observed; jobs finished, and the bins of their ratios in all.
    work : ndarray
        Space to compute in.
    """

    kind: int
    constants: Constants
    labels: Floats
    generation: Ints
    a_mean: Floats
    a_cov: Floats
    f_mean: Floats
    f_slope: Floats
    f_var: Floats
    f_time: Floats
    f_shift: Floats
    f_cross: Floats
    f_extra: Floats
    e_sum: Floats
    e_count: Floats
    version: Ints
    row_version: Ints
    mean: Floats
    sd: Floats
    level: Floats
    release: Floats
    release_time: Floats
    backlog: Floats
    idle: Floats
    devices: Floats
    typical: Floats
    members: Floats
    price: Floats
    charge: Floats
    ratio: Floats
    seen: Floats
    vector: Floats  # [3 RANKS, L]
    matrix: Floats  # [RANKS + 3, RANKS]
    residual: Floats  # [2 RANKS]


def no_beliefs(
    kind: int,
    labels: Floats,
    generation: Ints,
    generations: int,
    constants: Constants,
    devices: Floats,
) -> Beliefs:
    """The state before anything was seen; ``labels`` are logarithms [L, N]."""
    L, N = labels.shape
    G = generations
    return Beliefs(
        kind=kind,
        constants=constants,
        labels=labels,
        generation=generation,
        a_mean=np.zeros((G, L)),
        a_cov=np.tile(np.eye(L) * constants.a**2, (G, 1, 1)),
        f_mean=np.zeros(N),
        f_slope=np.zeros((N, L)),
        f_var=np.full(N, constants.f**2),
        f_time=np.zeros(N),
        f_shift=np.zeros(N),
        f_cross=np.zeros((N, L)),
        f_extra=np.zeros(N),
        e_sum=np.zeros((L, N)),
        e_count=np.zeros((L, N)),
        version=np.ones(G, dtype=np.int64),
        row_version=np.zeros((L, G), dtype=np.int64),
        mean=np.zeros((L, N)),
        sd=np.zeros((L, N)),
        level=np.zeros((L, G)),
        release=np.zeros(G),
        backlog=np.zeros(G),
        idle=np.zeros(G),
        devices=devices,
        typical=np.zeros(G),
        members=np.bincount(generation, minlength=G).astype(np.float64),
        price=np.zeros(G),
        charge=np.zeros(G),
        release_time=np.zeros(1),
        ratio=np.full(BINS, PRIOR_JOBS / BINS),
        seen=np.zeros(3),
        vector=np.zeros((3 * RANKS, L)),
        matrix=np.zeros((RANKS + 3, RANKS)),
        residual=np.zeros(2 * RANKS),
    )


# --------------------------------------------------------------------------------------- beliefs


@shared_kernel
def believe(b: Beliefs, l: int, now: float, mean: Floats, sd: Floats) -> None:
    """Put mean and sd of the log rate of job type l on every node in ``mean``, ``sd`` [N].

    For ``MEANS``, sd is ESDP's radius √(ln(t + 1) / 2n) (10), inf where n is 0.
    """
    if b.kind == SHARED:
        bring_up_to_date(b, l)
    drift = b.constants.drift * b.constants.drift / 3600.0
    for n in range(mean.size):
        if b.kind == SHARED:
            mean[n] = b.mean[l, n]
            sd[n] = b.sd[l, n]
            if drift > 0.0:
                sd[n] = math.sqrt(sd[n] * sd[n] + drift * max(now - b.f_time[n], 0.0))
        elif b.kind == MEANS and b.e_count[l, n] > 0.0:
            mean[n] = math.log(b.e_sum[l, n] / b.e_count[l, n])
            sd[n] = math.sqrt(0.5 * math.log(b.seen[0] + 2.0) / b.e_count[l, n])
        else:
            mean[n] = b.labels[l, n]
            sd[n] = math.inf if b.kind == MEANS else 0.0


@inlined_kernel
def bring_up_to_date(b: Beliefs, l: int) -> None:
    """Row l of the posterior, where anything was observed since it was looked at."""
    for g in range(b.version.size):
        if b.row_version[l, g] != b.version[g]:
            refresh(b, l)
            break


@inner_kernel
def refresh(b: Beliefs, l: int) -> None:
    """Bring row l of the posterior up to date, where generations were observed since."""
    c = b.constants
    e = c.e * c.e
    ratio = (c.u * c.u + c.epsilon * c.epsilon) / e if e > 0.0 else 0.0
    for n in range(b.generation.size):
        g = b.generation[n]
        if b.row_version[l, g] == b.version[g]:
            continue
        mean = b.labels[l, n] + b.a_mean[g, l] + b.f_mean[n] - b.f_shift[n]
        var = b.f_var[n] + b.a_cov[g, l, l] - 2.0 * b.f_cross[n, l] + b.f_extra[n]
        if e > 0.0:
            mean += b.e_sum[l, n] / (b.e_count[l, n] + ratio)
            var += e * ratio / (b.e_count[l, n] + ratio)
        b.mean[l, n] = mean
        b.sd[l, n] = math.sqrt(max(var, 0.0))
    for g in range(b.version.size):
        b.row_version[l, g] = b.version[g]
        b.level[l, g] = 0.0
    for n in range(b.generation.size):
        b.level[l, b.generation[n]] += b.mean[l, n]


@shared_kernel
def observe(
    b: Beliefs, l: int, nodes: Ints, log_rates: Floats, count: int, first: bool, now: float
) -> None:
    """Learn from one gang: its first ``count`` pieces ran on ``nodes`` at ``log_rates``.

    What was measured before (``first`` false) tells something only if it has changed since: then
    it is a surprise, else it is left alone.
    """
    if b.kind == MEANS:
        if first:
            b.seen[0] += 1.0
            for i in range(count):
                b.e_sum[l, nodes[i]] += math.exp(log_rates[i])
                b.e_count[l, nodes[i]] += 1.0
    elif b.kind == SHARED:
        b.seen[0] += 1.0
        at, left = 0, count
        if b.constants.slowest_only:
            for i in range(1, count):
                if log_rates[i] < log_rates[at]:
                    at = i
            left = 1
        while left > 0:
            k = min(RANKS, left)
            take_in(b, l, nodes, log_rates, at, k, first, now)
            at += k
            left -= k


@inner_kernel
def take_in(
    b: Beliefs, l: int, nodes: Ints, log_rates: Floats, at: int, k: int, first: bool, now: float
) -> None:
    """Recursive least squares of ``k`` ranks from ``at``, at most ``RANKS``, that share u[j].

    Given a, rank i has residual r_i = y_i - a[l] - m_i + h_i·a, with variance s_i = v_i + σ_ε² of
    its own and σ_u² in common. With S = H Σ Hᵀ + diag(s) + σ_u², H_i = e_l - h_i on the columns of
    i's generation, the posterior of a follows from one k × k system; then that of each f given a,
    from its own residual less what the other ranks tell of u.
    """
    c = b.constants
    L = b.a_mean.shape[1]
    H = b.vector
    S = b.matrix
    z = b.residual
    common = c.u * c.u
    noise = c.epsilon * c.epsilon
    e = c.e * c.e
    shrink = (common + noise) / e if e > 0.0 else 0.0
    surprised = False
    for i in range(k):
        n = nodes[at + i]
        g = b.generation[n]
        gone = max(now - b.f_time[n], 0.0)
        b.f_var[n] += c.drift * c.drift * gone / 3600.0
        b.f_time[n] = max(now, b.f_time[n])
        z[i] = log_rates[at + i] - b.labels[l, n] - b.f_mean[n] - b.a_mean[g, l]
        own = noise
        if e > 0.0:
            z[i] -= b.e_sum[l, n] / (b.e_count[l, n] + shrink)
            own += e * shrink / (b.e_count[l, n] + shrink)
        S[RANKS, i] = own
        for m in range(L):
            H[i, m] = -b.f_slope[n, m]
            z[i] += b.f_slope[n, m] * b.a_mean[g, m]
        H[i, l] += 1.0
        var = b.f_var[n] + own + common
        for m in range(L):
            s = 0.0
            for o in range(L):
                s += b.a_cov[g, m, o] * H[i, o]
            H[RANKS + i, m] = s  # Σ Hᵀ
            var += H[i, m] * s
        S[RANKS + 2, i] = var - b.f_var[n] - own - common
        if z[i] * z[i] > c.surprise * c.surprise * var:
            b.f_var[n] += c.jump * c.jump
            surprised = True
    if not first and not surprised:
        return
    for i in range(k):
        gi = b.generation[nodes[at + i]]
        for j in range(i + 1):
            s = common
            if b.generation[nodes[at + j]] == gi:
                for m in range(L):
                    s += H[i, m] * H[RANKS + j, m]
            if i == j:
                s += b.f_var[nodes[at + i]] + S[RANKS, i]
            S[i, j] = s
    for i in range(k):  # S = C Cᵀ in place
        for j in range(i + 1):
            s = S[i, j]
            for m in range(j):
                s -= S[i, m] * S[j, m]
            S[i, j] = math.sqrt(s) if i == j else s / S[j, j]
    # Residuals at the posterior mean of a are wanted below: x = S⁻¹ z, W = C⁻¹ H Σ.
    for i in range(k):
        z[k + i] = z[i]
    for i in range(k):
        s = z[k + i]
        for m in range(i):
            s -= S[i, m] * z[k + m]
        z[k + i] = s / S[i, i]
    G = b.a_mean.shape[0]
    for g in range(G):
        some = False
        for i in range(k):
            mine = b.generation[nodes[at + i]] == g
            some = some or mine
            for m in range(L):
                s = H[RANKS + i, m] if mine else 0.0
                for j in range(i):
                    s -= S[i, j] * H[2 * RANKS + j, m]
                H[2 * RANKS + i, m] = s / S[i, i]
        if not some:
            continue
        b.version[g] += 1
        for i in range(k):
            for m in range(L):
                w = H[2 * RANKS + i, m]
                b.a_mean[g, m] += w * z[k + i]
                for o in range(L):
                    b.a_cov[g, m, o] -= w * H[2 * RANKS + i, o]
        for n in range(b.generation.size):  # the same on h·μ, Σh and h·Σh
            if b.generation[n] == g:
                for i in range(k):
                    s = 0.0
                    for m in range(L):
                        s += b.f_slope[n, m] * H[2 * RANKS + i, m]
                    b.f_shift[n] += s * z[k + i]
                    b.f_extra[n] -= s * s
                    for m in range(L):
                        b.f_cross[n, m] -= s * H[2 * RANKS + i, m]
    # f given a: rank i's residual less E[u | a, the other ranks], linear in a. What ranks in other
    # generations tell is taken at the mean of their a, and its variance counted as their own.
    for i in range(k):  # constants of the residuals: r_i(a) = z0_i - H_i·a
        n = nodes[at + i]
        z[i] = log_rates[at + i] - b.labels[l, n] - b.f_mean[n]
        if e > 0.0:
            z[i] -= b.e_sum[l, n] / (b.e_count[l, n] + shrink)
    for i in range(k):
        S[RANKS + 1, i] = b.f_var[nodes[at + i]] + S[RANKS, i]
    for i in range(k):
        n = nodes[at + i]
        g = b.generation[n]
        r = z[i]
        spread = common
        for m in range(L):
            H[RANKS, m] = H[i, m]
        if common > 0.0 and k > 1:
            precision = 1.0 / common  # of u given the others
            for j in range(k):
                if j != i:
                    other = S[RANKS + 2, j] if b.generation[nodes[at + j]] != g else 0.0
                    precision += 1.0 / (S[RANKS + 1, j] + other)
            spread = 1.0 / precision
            for j in range(k):
                if j == i:
                    continue
                gj = b.generation[nodes[at + j]]
                other = S[RANKS + 2, j] if gj != g else 0.0
                w = spread / (S[RANKS + 1, j] + other)
                r -= w * z[j]
                for m in range(L):
                    if gj == g:
                        H[RANKS, m] -= w * H[j, m]
                    else:
                        r += w * H[j, m] * b.a_mean[gj, m]
        gain = b.f_var[n] / (b.f_var[n] + S[RANKS, i] + spread)
        b.f_mean[n] += gain * r
        for m in range(L):
            b.f_slope[n, m] += gain * H[RANKS, m]
        b.f_var[n] *= 1.0 - gain
        b.f_shift[n] = 0.0
        b.f_extra[n] = 0.0
        for m in range(L):
            s = 0.0
            for o in range(L):
                s += b.a_cov[g, m, o] * b.f_slope[n, o]
            b.f_cross[n, m] = s
            b.f_shift[n] += b.f_slope[n, m] * b.a_mean[g, m]
            b.f_extra[n] += b.f_slope[n, m] * s
    if e > 0.0:
        # e: what is left over, less the gang's u as the ranks together have it.
        u = 0.0
        for i in range(k):
            n = nodes[at + i]
            g = b.generation[n]
            s = log_rates[at + i] - b.labels[l, n] - b.a_mean[g, l] - b.f_mean[n]
            z[i] = s + b.f_shift[n]
            if k > 1:
                u += (s - b.e_sum[l, n] / (b.e_count[l, n] + shrink)) / (k + noise / common)
        for i in range(k):
            b.e_sum[l, nodes[at + i]] += z[i] - u
            b.e_count[l, nodes[at + i]] += 1.0


@shared_kernel
def finished(b: Beliefs, limit: float, work: float, now: float) -> None:
    """Learn how much of its limit a job needs; ``work`` as measured: seconds × the rate seen."""
    B = b.ratio.size
    if limit > 0.0 and limit < math.inf:
        i = min(max(int(work / limit * B), 0), B - 1)
        b.ratio[i] += 1.0
        b.seen[1] += 1.0
        b.seen[2] += i + 0.5


@shared_kernel
def remaining(b: Beliefs, limit: float, done: float) -> float:
    """E[work - done | work > done] from the ratios of work to limit of finished jobs."""
    B = b.ratio.size
    if B == 0:
        return max(limit - done, 0.0)  # nothing is learned: jobs take what they asked for
    if limit <= 0.0:
        return 1.0
    x = done / limit
    if x <= 0.0:
        mean = (PRIOR_JOBS * 0.5 * B + b.seen[2]) / (PRIOR_JOBS + b.seen[1])
        return float(max(mean / B * limit, 1.0))
    if x >= 1.0:
        return 1.0
    at = x * B
    low = int(at)
    part = low + 1.0 - at  # of the first bin
    weight = part * b.ratio[low]
    total = weight * (at + low + 1.0) * 0.5
    for i in range(low + 1, B):
        weight += b.ratio[i]
        total += b.ratio[i] * (i + 0.5)
    if weight <= 0.0:
        return 1.0
    return float(max((total / weight / B - x) * limit, 1.0))


@shared_kernel
def released(b: Beliefs, node: int, devices: float, now: float) -> None:
    """Devices of the dominant type that became free on a node."""
    age(b, now)
    b.release[b.generation[node]] += devices / b.constants.memory


@shared_kernel
def age(b: Beliefs, now: float) -> None:
    """Let the averages of releases fade up to now."""
    gone = now - b.release_time[0]
    if gone > 0.0:
        keep = math.exp(-gone / b.constants.memory)
        for g in range(b.release.size):
            b.release[g] *= keep
            b.backlog[g] = max(b.backlog[g] - gone, 0.0)
        b.release_time[0] = now


@inlined_kernel
def compare(b: Beliefs, l: int, mean: Floats) -> None:
    """Put the mean log rate of each generation's nodes for job type l in ``typical``."""
    if b.kind == SHARED:
        bring_up_to_date(b, l)
        for g in range(b.typical.size):
            b.typical[g] = b.level[l, g]
    else:
        for g in range(b.typical.size):
            b.typical[g] = 0.0
        for n in range(mean.size):
            b.typical[b.generation[n]] += mean[n]
    for g in range(b.typical.size):
        b.typical[g] /= max(b.members[g], 1.0)


@lean_kernel
def submitted(
    b: Beliefs, l: int, tasks: int, devices: float, limit: float, mean: Floats, now: float
) -> None:
    """Route a new job of type l to the generation that suits it best at the prices of the moment.

    ``mean`` is what is believed of nodes [N]; ``SHARED`` knows it.

    The prices are dual variables of the fluid problem: minimise Σ work / rate over shares of each
    job type's work on each generation, while none is asked for more device-seconds per second than
    it has. λ[g] rises by what is routed to g and falls by its capacity: a subgradient step at each
    submission (a virtual queue). So a type that gains little from a fast generation leaves it to
    those that gain much.
    """
    if b.constants.toll <= 0.0:
        return
    age(b, now)
    compare(b, l, mean)
    size = tasks * devices
    best = -1
    least = math.inf
    for g in range(b.backlog.size):
        if b.members[g] > 0.0 and b.devices[g] > 0.0:
            price = b.backlog[g] / b.constants.toll
            cost = math.exp(-b.typical[g]) * (1.0 + size * price)
            if cost < least:
                best, least = g, cost
    if best >= 0:
        takes = math.exp(-b.typical[best]) * remaining(b, limit, 0.0)
        b.backlog[best] += takes * size / b.devices[best]


@inner_kernel
def set_prices(b: Beliefs, free: Floats) -> None:
    """Seconds of others' time that a device-second costs, less where devices are idle."""
    for g in range(b.price.size):
        b.idle[g] = 0.0
    if b.constants.toll <= 0.0:
        return
    for n in range(free.size):
        b.idle[b.generation[n]] += free[n]
    for g in range(b.price.size):
        b.idle[g] /= max(b.devices[g], 1e-9)
        full = max(1.0 - b.constants.slack * b.idle[g], 0.0)
        b.price[g] = full * b.backlog[g] / b.constants.toll


# ------------------------------------------------------------------------------------- decisions


@shared_kernel
def score(
    b: Beliefs, limit: float, size: float, mean: Floats, sd: Floats, free: Floats, out: Floats
) -> None:
    """Worth of each node for a task, larger is better [N].

    Log rate, less what a free device is worth and what the generation's devices cost others (for a
    job of ``size`` devices in all), plus optimism where the job is short: a slow node
    that it finds costs little, and a fast one is good to know. ``MEANS`` is ESDP's index,
    v̂ + √(ln(t + 1) / 2n), of (10), for everybody.
    """
    c = b.constants
    k = c.probe if limit < c.short else -c.caution
    set_prices(b, free)
    for g in range(b.price.size):
        b.charge[g] = math.log(1.0 + size * b.price[g])
    for n in range(out.size):
        if b.kind == MEANS:
            out[n] = math.log(math.exp(mean[n]) + sd[n]) - c.pack * free[n]
        else:
            out[n] = mean[n] + k * sd[n] - c.pack * free[n]
        out[n] -= b.charge[b.generation[n]]


@shared_kernel
def wait(
    b: Beliefs,
    l: int,
    tasks: int,
    devices: float,
    limit: float,
    at: int,
    mean: Floats,
    waiting: int,
    waited: float,
    now: float,
) -> float:
    """Seconds that a gang which could start now, the slowest on node ``at``, had better wait.

    It waits where another generation would cost less: its time there and what its devices cost
    others (:func:`set_prices`, as :func:`score` left it). That generation releases devices at a
    rate ϱ, so the gang would have its own after about price · (1 + crowd · waiting) · tasks ·
    devices / ϱ.
    """
    c = b.constants
    if c.price <= 0.0 or waited > c.patience - 1.0:
        return 0.0
    age(b, now)
    compare(b, l, mean)
    expected = remaining(b, limit, 0.0)
    size = tasks * devices
    here = expected * math.exp(-mean[at]) * (1.0 + size * b.price[b.generation[at]])
    for g in range(b.release.size):
        if b.release[g] <= 0.0 or b.members[g] == 0.0:
            continue
        delay = c.price * (1.0 + c.crowd * waiting) * size / b.release[g]
        if delay + expected * math.exp(-b.typical[g]) * (1.0 + size * b.price[g]) < here:
            return c.patience - waited
    return 0.0


@lean_kernel
def migrate(
    b: Beliefs, l: int, limit: float, done: float, log_rate: float, other: float, restart: float
) -> bool:
    """Whether a job running at ``log_rate`` had better stop and go on at ``other``."""
    left = remaining(b, limit, done)
    return left * (math.exp(-log_rate) - math.exp(-other)) > restart + b.constants.saving

"""Compiled parts of what is believed about rates, and of the decisions that rest on it.

The state of a learner is one named tuple of arrays, ``Beliefs``, that these functions change in
place; :mod:`gangwise.jobs.choice` makes it, documents it and asks it. Job types are l, nodes n with
generation g[n]; all rates are logarithms. The model of shared factors and its recursive least
squares are derived in ``docs/jobs/learning.md``: a[·, g] ~ N(μ_g, Σ_g), and given a, f[n] is
N(m_n - h_n·a[·, g[n]], v_n).

The simulation calls, with the time now in seconds: ``believe`` and ``score`` before each placement;
``wait`` for a gang that could start (one that waits by choice holds nobody back, gets no
reservation, and is asked again in every round); ``observe`` some time after each start and at each
end; ``remaining`` where limits are of work; ``finished``, ``needed`` and ``released`` at ends;
``submitted`` for every new job; ``migrate`` while nobody waits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inlined_kernel, inner_kernel, lean_kernel
from gangwise.jobs import distance
from gangwise.jobs.kernels import Rows, int64, record

LABELS, MEANS, SHARED = range(3)
"""Models of rates: declared rates, a mean per (job type, node), shared factors."""

RANKS = 32
"""Most ranks of a gang in one update."""
BINS = 64
"""Bins of the ratio of work to limit."""
PRIOR_JOBS = 5.0
"""Weight of the prior of that ratio, which is uniform, in jobs."""


@by_reference
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
    wall: float = 10.0  # log rate given up for not being killed at the limit
    loss: float = 4.0  # limits that a job would wait for not being killed at its own
    slowest_only: bool = False  # of a gang, only the slowest rank is seen


RANK = record(
    above=np.float64,  # log rate less the label
    shrunk=np.float64,  # what is believed of e
    noise=np.float64,  # variance of e and ε
    of_type=np.float64,  # variance of H_i·a
    alone=np.float64,  # variance of f, e and ε
    known=np.float64,  # 1 ÷ that
    known_apart=np.float64,  # 1 ÷ (that and `of_type`)
    residual=np.float64,
    solved=np.float64,  # C⁻¹ z
    node=np.int64,
    generation=np.int64,
)


@by_reference
class GangWorkspace(NamedTuple):
    """Work space of the update by the ranks of a gang."""

    ranks: Rows  # RANK [RANKS]
    H: Floats  # [RANKS, L]
    HS: Floats  # [RANKS, L] H Σ
    W: Floats  # [RANKS, L] C⁻¹ H Σ of one generation
    S: Floats  # [RANKS, RANKS], and its factor C
    slope: Floats  # [L]
    along: Floats  # [N] work space, as the next
    spread: Floats  # [N]


class JobRequest(NamedTuple):
    """What a job asks for: job type, devices in all, limit in seconds."""

    type: int
    size: float
    limit: float


@by_reference
class Beliefs(NamedTuple):
    """State of a learner for L job types, N nodes in G generations."""

    kind: int  # LABELS, MEANS or SHARED
    constants: Constants
    walled: bool  # whether jobs are killed at their limit, in seconds of the clock
    labels: Floats  # [L, N] logarithms of the declared rates
    generation: Ints  # [N]
    a_mean: Floats  # [G, L] μ
    a_cov: Floats  # [G, L, L] Σ
    f_mean: Floats  # [N] m
    f_slope: Floats  # [L, N] h
    f_var: Floats  # [N] v
    f_time: Floats  # [N] when the node was last seen
    f_shift: Floats  # [N] h·μ of the node's generation, kept up to date for `refresh`
    f_cross: Floats  # [L, N] Σh
    f_extra: Floats  # [N] h·Σh
    e_sum: Floats  # [L, N] residuals; for MEANS the rates themselves (not their logarithms)
    e_count: Floats  # [L, N]
    version: Ints  # [G] counts what was learned of a generation
    row_version: Ints  # [L, G] the version that `mean` and `sd` are of
    level_version: Ints  # [L, G] the version that `level` is of
    mean: Floats  # [L, N] posterior of log rates
    sd: Floats  # [L, N]
    level: Floats  # [L, G] sums of `mean` over the nodes of a generation
    release: Floats  # [G] devices released per second, averaged over `memory`
    release_time: Floats  # [1]
    backlog: Floats  # [G] seconds of work routed to a generation and not yet done
    idle: Floats  # [G] share of its devices that was free when last looked at
    devices: Floats  # [G] their number
    typical: Floats  # [G] mean log rate of its nodes for the job type last compared
    members: Floats  # [G] number of its nodes
    price: Floats  # [G] what a device-second costs
    charge: Floats  # [G] what the job last scored pays for it in log rate
    ratio: Floats  # [BINS] finished jobs by work ÷ limit
    needs: Floats  # [L, BINS] the same of each job type, killed jobs counted, where limits kill
    above: Floats  # [BINS + 1] jobs of the type last counted from each bin of `needs` on
    seen: Floats  # [3] gangs observed; jobs finished, and the bins of their ratios in all
    gang: GangWorkspace
    near: Any = None  # distance.NearBeliefs


def no_beliefs(
    kind: int,
    labels: Floats,
    generation: Ints,
    generations: int,
    constants: Constants,
    devices: Floats,
) -> Beliefs:
    """The state before anything was seen; ``labels`` are logarithms [L, N]."""
    (L, N), G = labels.shape, generations
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("e_sum", "e_count", "mean", "sd", "f_slope", "f_cross"), (L, N)),
        **dict.fromkeys(("f_mean", "f_time", "f_shift", "f_extra"), (N,)),
        **dict.fromkeys(("release", "backlog", "idle", "typical", "price", "charge"), (G,)),
        "a_mean": (G, L),
        "level": (L, G),
        "release_time": (1,),
        "above": (BINS + 1,),
        "seen": (3,),
    }
    H, HS, W, S = (np.zeros((RANKS, size)) for size in (L, L, L, RANKS))
    return Beliefs(
        kind=kind,
        constants=constants,
        walled=False,
        labels=labels,
        generation=generation,
        a_cov=np.tile(np.eye(L) * constants.a**2, (G, 1, 1)),
        f_var=np.full(N, constants.f**2),
        version=np.ones(G, dtype=np.int64),
        row_version=np.zeros((L, G), dtype=np.int64),
        level_version=np.zeros((L, G), dtype=np.int64),
        devices=devices,
        members=np.bincount(generation, minlength=G).astype(np.float64),
        ratio=np.full(BINS, PRIOR_JOBS / BINS),
        needs=np.full((L, BINS), PRIOR_JOBS / BINS),
        gang=GangWorkspace(
            np.zeros(RANKS, dtype=RANK), H, HS, W, S, np.zeros(L), *np.zeros((2, N))
        ),
        **{name: np.zeros(shape) for name, shape in shapes.items()},
    )


# --------------------------------------------------------------------------------------- beliefs


@lean_kernel
def believe(beliefs: Beliefs, l: int, now: float, mean: Floats, sd: Floats) -> None:
    """Posterior mean and sd of the log rate of job type l on every node, in ``mean``, ``sd`` [N].

    For ``MEANS``, sd is ESDP's radius √(ln(t + 1) / 2n) (10), inf where n is 0.
    """
    if beliefs.kind == SHARED:
        bring_up_to_date(beliefs, l)
        # `drift` is per hour, times are in seconds: variance grows by drift² / 3600 a second.
        drift = beliefs.constants.drift * beliefs.constants.drift / 3600.0
        for n in range(mean.size):
            mean[n] = beliefs.mean[l, n]
            sd[n] = beliefs.sd[l, n]
        if drift > 0.0:
            # Here and not in `sd` itself, which is kept until the next observation.
            for n in range(mean.size):
                sd[n] = math.sqrt(sd[n] * sd[n] + drift * max(now - beliefs.f_time[n], 0.0))
        return
    for n in range(mean.size):
        if beliefs.kind == MEANS and beliefs.e_count[l, n] > 0.0:
            # The logarithm of the mean, not the mean of logarithms: ESDP averages rates.
            mean[n] = math.log(beliefs.e_sum[l, n] / beliefs.e_count[l, n])
            # t + 1 = seen + 2: the decision at hand is the (seen + 1)-th.
            sd[n] = math.sqrt(0.5 * math.log(beliefs.seen[0] + 2.0) / beliefs.e_count[l, n])
        else:
            mean[n] = beliefs.labels[l, n]
            sd[n] = math.inf if beliefs.kind == MEANS else 0.0


@inlined_kernel
def bring_up_to_date(beliefs: Beliefs, l: int) -> None:
    """Refresh row l of the posterior for generations observed since it was last computed."""
    for g in range(beliefs.version.size):
        if beliefs.row_version[l, g] != beliefs.version[g]:
            refresh(beliefs, l, g)
            beliefs.row_version[l, g] = beliefs.version[g]


@inner_kernel
def refresh(beliefs: Beliefs, l: int, g: int) -> None:
    """Compute row l of the posterior anew for the nodes of a generation.

    Loops are short, so that processors do several nodes at once.
    """
    e = beliefs.constants.e * beliefs.constants.e
    ratio = noise_ratio(beliefs)
    labels, cross, total, count = (
        beliefs.labels[l],
        beliefs.f_cross[l],
        beliefs.e_sum[l],
        beliefs.e_count[l],
    )
    of_type, of_type_var = beliefs.a_mean[g, l], beliefs.a_cov[g, l, l]
    # No branch depends on the node, so that both loops become vector instructions. e is shrunk by
    # n / (n + ratio), and its variance falls from σ_e² in the same way.
    row, sd = beliefs.mean[l], beliefs.sd[l]
    for n in range(row.size):
        mean = labels[n] + of_type + beliefs.f_mean[n] - beliefs.f_shift[n]
        if e > 0.0:
            mean += total[n] / (count[n] + ratio)
        row[n] = mean if beliefs.generation[n] == g else row[n]
    for n in range(sd.size):
        var = beliefs.f_var[n] + of_type_var - 2.0 * cross[n] + beliefs.f_extra[n]
        if e > 0.0:
            var += e * ratio / (count[n] + ratio)
        sd[n] = math.sqrt(max(var, 0.0)) if beliefs.generation[n] == g else sd[n]


@lean_kernel
def observe(
    beliefs: Beliefs,
    l: int,
    nodes: Ints,
    log_rates: Floats,
    count: int,
    first: bool,
    now: float,
    tasks: int,
) -> None:
    """Learn from one gang: its first ``count`` pieces ran on ``nodes`` at ``log_rates``.

    It has so many tasks, and what their distance costs it as believed then, is added to its
    ``log_rates``. What was measured before (``first`` false) tells something only if it has changed
    since: then it is a surprise, else it is left alone.
    """
    if not beliefs.constants.slowest_only:
        count = one_by_node(beliefs.gang, nodes, log_rates, count)
    if beliefs.near is not None:
        take_distance_off(beliefs, l, nodes, log_rates, count, first, tasks)
    if beliefs.kind == MEANS:
        if first:
            beliefs.seen[0] += 1.0
            for i in range(count):
                beliefs.e_sum[l, nodes[i]] += math.exp(log_rates[i])
                beliefs.e_count[l, nodes[i]] += 1.0
    elif beliefs.kind == SHARED:
        beliefs.seen[0] += 1.0
        at, remaining = 0, count
        if beliefs.constants.slowest_only:
            for i in range(1, count):
                if log_rates[i] < log_rates[at]:
                    at = i
            remaining = 1
        # More ranks than RANKS are learned in batches, each with a u of its own.
        while remaining > 0:
            k = min(RANKS, remaining)
            take_in(beliefs, l, nodes, log_rates, at, k, first, now)
            at += k
            remaining -= k


@inner_kernel
def one_by_node(work: GangWorkspace, nodes: Ints, log_rates: Floats, count: int) -> int:
    """Let pieces of one gang on one node be one, at their mean log rate; how many are left.

    They share f[n] and e, and are no independent news of it: their number depends on whether
    devices are told apart.
    """
    place, number, kept = work.along, work.spread, 0
    for i in range(count):
        number[nodes[i]] = 0.0
    for i in range(count):
        n = nodes[i]
        if number[n] == 0.0:
            nodes[kept], log_rates[kept], place[n] = n, log_rates[i], kept
            kept += 1
        number[n] += 1.0
        m = int64(place[n])
        # Mean so far, plus its share of the difference: 0 where all are alike.
        log_rates[m] += (log_rates[i] - log_rates[m]) / number[n]
    return kept


@inner_kernel
def take_distance_off(
    beliefs: Beliefs, l: int, nodes: Ints, log_rates: Floats, count: int, first: bool, tasks: int
) -> None:
    """Learn what the distance of a gang costs it, and add that to its ``log_rates``.

    Its nodes are taken for as fast as they are believed to be; u, ε and what is not known of the
    nodes are noise.
    """
    level = distance.level_between(beliefs.near.domain, nodes, count)
    if level == 0:
        return  # nothing is lost on one node
    if first and beliefs.kind == SHARED:
        c, slower, unsure = beliefs.constants, 0.0, 0.0
        bring_up_to_date(beliefs, l)
        for i in range(count):
            slower += (beliefs.mean[l, nodes[i]] - log_rates[i]) / count
            unsure += beliefs.sd[l, nodes[i]] * beliefs.sd[l, nodes[i]] / count
        variance = c.u * c.u + c.epsilon * c.epsilon / count + unsure
        distance.learn_distance(beliefs.near, l, level, tasks, slower, variance)
    distance.believe_costs(beliefs.near, l, tasks)
    for i in range(count):
        log_rates[i] += beliefs.near.cost[level]


@inner_kernel
def take_in(
    beliefs: Beliefs,
    l: int,
    nodes: Ints,
    log_rates: Floats,
    at: int,
    k: int,
    first: bool,
    now: float,
) -> None:
    """Learn from ``k`` ranks from ``at``, at most ``RANKS``, that share u[j], in four steps."""
    ranks = beliefs.gang.ranks
    e = beliefs.constants.e * beliefs.constants.e
    ratio = noise_ratio(beliefs)
    # Residuals are taken against the belief before this gang, for all ranks alike.
    for i in range(k):
        n = nodes[at + i]
        ranks[i].node = n
        ranks[i].generation = beliefs.generation[n]
        ranks[i].above = log_rates[at + i] - beliefs.labels[l, n]
        ranks[i].shrunk = 0.0
        ranks[i].noise = beliefs.constants.epsilon * beliefs.constants.epsilon
        if e > 0.0:
            ranks[i].shrunk = beliefs.e_sum[l, n] / (beliefs.e_count[l, n] + ratio)
            ranks[i].noise += e * ratio / (beliefs.e_count[l, n] + ratio)
    # Most later measurements bring no news; `foresee` tells so without the L × L product.
    near = foresee(beliefs, l, k, now)
    if not first and near:
        return
    surprised = expect(beliefs, k)
    if not first and not surprised:
        return
    learn_types(beliefs, k)
    learn_nodes(beliefs, k)
    if e > 0.0:
        learn_residuals(beliefs, l, k)


@inlined_kernel
def noise_ratio(beliefs: Beliefs) -> float:
    """(σ_u² + σ_ε²) ÷ σ_e², by which residuals are shrunk; 0 where there are none."""
    c = beliefs.constants
    return (c.u * c.u + c.epsilon * c.epsilon) / (c.e * c.e) if c.e * c.e > 0.0 else 0.0


@inner_kernel
def foresee(beliefs: Beliefs, l: int, k: int, now: float) -> bool:
    """Step 1: H_i and innovation of each rank; whether the innovations are surely no surprise,
    whatever the variance of a.

    The variance of f[n] grows where a node was not seen for long.
    """
    c, ranks, H, near = beliefs.constants, beliefs.gang.ranks, beliefs.gang.H, True
    for i in range(k):
        n = ranks[i].node
        g = ranks[i].generation
        # Events may come late: time never runs backwards for a node.
        unseen = max(now - beliefs.f_time[n], 0.0)
        beliefs.f_var[n] += c.drift * c.drift * unseen / 3600.0
        beliefs.f_time[n] = max(now, beliefs.f_time[n])
        z = ranks[i].above - beliefs.f_mean[n] - beliefs.a_mean[g, l] - ranks[i].shrunk
        for m in range(H.shape[1]):
            H[i, m] = -beliefs.f_slope[m, n]
            z += beliefs.f_slope[m, n] * beliefs.a_mean[g, m]
        # z = y − m − H·a with H the unit vector of l less h: f is linear in a.
        H[i, l] += 1.0
        ranks[i].residual = z
        least = beliefs.f_var[n] + ranks[i].noise + c.u * c.u
        # Somewhat less: the variance of a is 0 or more but for rounding.
        near = near and z * z <= 0.999 * c.surprise * c.surprise * least
    return near


@inner_kernel
def expect(beliefs: Beliefs, k: int) -> bool:
    """Step 1: H_i Σ of each rank, and the variance expected; whether any rate is a surprise.

    The variance of f[n] grows by much at a surprise.
    """
    c = beliefs.constants
    ranks, H, HS = beliefs.gang.ranks, beliefs.gang.H, beliefs.gang.HS
    L = beliefs.a_mean.shape[1]
    common = c.u * c.u
    surprised = False
    for i in range(k):
        n = ranks[i].node
        g = ranks[i].generation
        z = ranks[i].residual
        # Innovation variance: f, e and ε of the rank, u of the gang, and a by H Σ Hᵀ.
        var = beliefs.f_var[n] + ranks[i].noise + common
        for m in range(L):
            s = 0.0
            for o in range(L):
                s += beliefs.a_cov[g, m, o] * H[i, o]
            HS[i, m] = s
            var += H[i, m] * s
        ranks[i].of_type = var - beliefs.f_var[n] - ranks[i].noise - common
        if z * z > c.surprise * c.surprise * var:
            # Widened before the update, so that this observation moves f by most of it.
            beliefs.f_var[n] += c.jump * c.jump
            surprised = True
    return surprised


@inner_kernel
def factorise(beliefs: Beliefs, k: int) -> None:
    """Cholesky factor C of S = C Cᵀ, and C⁻¹ z of the residuals z."""
    ranks, S = beliefs.gang.ranks, beliefs.gang.S
    common = beliefs.constants.u * beliefs.constants.u
    for i in range(k):
        for j in range(i + 1):
            s = common
            # Generations are independent a priori, so only ranks of the same one share a.
            if ranks[j].generation == ranks[i].generation:
                for m in range(beliefs.a_mean.shape[1]):
                    s += beliefs.gang.H[i, m] * beliefs.gang.HS[j, m]
            if i == j:
                s += beliefs.f_var[ranks[i].node] + ranks[i].noise
            S[i, j] = s
    # Cholesky, row by row, in place: row i needs rows 0 … i of C alone.
    for i in range(k):
        for j in range(i + 1):
            s = S[i, j]
            for m in range(j):
                s -= S[i, m] * S[j, m]
            S[i, j] = math.sqrt(s) if i == j else s / S[j, j]
    # Forward substitution with the factor.
    for i in range(k):
        s = ranks[i].residual
        for m in range(i):
            s -= S[i, m] * ranks[m].solved
        ranks[i].solved = s / S[i, i]


@inner_kernel
def learn_types(beliefs: Beliefs, k: int) -> None:
    """Step 2: a and Σ of each generation seen, by W = C⁻¹ H Σ: μ += Wᵀ C⁻¹ z, Σ -= Wᵀ W."""
    factorise(beliefs, k)
    ranks, S, W = beliefs.gang.ranks, beliefs.gang.S, beliefs.gang.W
    L = beliefs.a_mean.shape[1]
    for g in range(beliefs.a_mean.shape[0]):
        observed = False
        for i in range(k):
            own = ranks[i].generation == g
            observed = observed or own
            # Forward substitution for C W = H Σ; ranks of other generations have H Σ = 0.
            for m in range(L):
                s = beliefs.gang.HS[i, m] if own else 0.0
                for j in range(i):
                    s -= S[i, j] * W[j, m]
                W[i, m] = s / S[i, i]
        if not observed:
            continue
        # Rows of the posterior computed from an older version are now stale.
        beliefs.version[g] += 1
        for m in range(L):
            for i in range(k):
                beliefs.a_mean[g, m] += W[i, m] * ranks[i].solved
            # Σ is symmetric to the last digit, since products do not depend on their order.
            for o in range(m + 1):
                s = beliefs.a_cov[g, m, o]
                for i in range(k):
                    s -= W[i, m] * W[i, o]
                beliefs.a_cov[g, m, o] = beliefs.a_cov[g, o, m] = s
        for i in range(k):
            # Cached products move with Σ and μ by rank-one steps: O(N L) instead of O(N L²).
            follow(beliefs, g, i)


@inner_kernel
def follow(beliefs: Beliefs, g: int, i: int) -> None:
    """Update h·μ, Σh and h·Σh of a generation's nodes by rank i, several nodes at once."""
    W, along, solved = beliefs.gang.W[i], beliefs.gang.along, beliefs.gang.ranks[i].solved
    L, h, cross = W.size, beliefs.f_slope, beliefs.f_cross
    for n in range(along.size):
        along[n] = 0.0
    # Four types in a pass, and below two: to begin a pass costs as much as what it does.
    for m in range(0, L - 3, 4):
        a, b, c, d = h[m], h[m + 1], h[m + 2], h[m + 3]
        w, x, y, z = W[m], W[m + 1], W[m + 2], W[m + 3]
        for n in range(along.size):
            along[n] = along[n] + a[n] * w + b[n] * x + c[n] * y + d[n] * z
    for m in range(L - L % 4, L):
        a, w = h[m], W[m]
        for n in range(along.size):
            along[n] += a[n] * w
    for n in range(along.size):
        along[n] = along[n] if beliefs.generation[n] == g else 0.0
        beliefs.f_shift[n] += along[n] * solved
        beliefs.f_extra[n] -= along[n] * along[n]
    for m in range(0, L - 1, 2):
        a, b, w, x = cross[m], cross[m + 1], W[m], W[m + 1]
        for n in range(along.size):
            a[n] -= along[n] * w
            b[n] -= along[n] * x
    if L % 2 == 1:
        a, w = cross[L - 1], W[L - 1]
        for n in range(along.size):
            a[n] -= along[n] * w


@inner_kernel
def learn_nodes(beliefs: Beliefs, k: int) -> None:
    """Step 3: f given a, from rank i's residual less E[u | a, the other ranks], linear in a.

    What ranks in other generations tell is taken at the mean of their a, and its variance counted
    as their own.
    """
    ranks = beliefs.gang.ranks
    L = beliefs.a_mean.shape[1]
    for i in range(k):  # residuals as functions of a: r_i(a) = residual_i - H_i·a
        n = ranks[i].node
        ranks[i].residual = ranks[i].above - beliefs.f_mean[n] - ranks[i].shrunk
        ranks[i].alone = beliefs.f_var[n] + ranks[i].noise
        ranks[i].known = 1.0 / ranks[i].alone
        ranks[i].known_apart = 1.0 / (ranks[i].alone + ranks[i].of_type)
    for i in range(k):
        n = ranks[i].node
        r, spread = less_common(beliefs, i, k)
        # Kalman gain: the share of the residual that is the node's own.
        gain = beliefs.f_var[n] / (beliefs.f_var[n] + ranks[i].noise + spread)
        beliefs.f_mean[n] += gain * r
        for m in range(L):
            # Stored as h with f = m − h·a, so the slope of r on a enters with H's sign.
            beliefs.f_slope[m, n] += gain * beliefs.gang.slope[m]
        # Only this node's caches change here; those of others moved in `follow`.
        beliefs.f_var[n] *= 1.0 - gain
        beliefs.f_shift[n] = 0.0
        beliefs.f_extra[n] = 0.0
        for m in range(L):
            s = 0.0
            for o in range(L):
                s += beliefs.a_cov[ranks[i].generation, m, o] * beliefs.f_slope[o, n]
            beliefs.f_cross[m, n] = s
            beliefs.f_shift[n] += beliefs.f_slope[m, n] * beliefs.a_mean[ranks[i].generation, m]
            beliefs.f_extra[n] += beliefs.f_slope[m, n] * s


@inlined_kernel
def less_common(beliefs: Beliefs, i: int, k: int) -> tuple[float, float]:
    """Residual of rank i less what the others tell of u, and the variance of u that is left.

    Its slope on a, with the sign of H, is left in ``slope``.
    """
    ranks, H, slope = beliefs.gang.ranks, beliefs.gang.H, beliefs.gang.slope
    L = slope.size
    g = ranks[i].generation
    r = ranks[i].residual
    spread = beliefs.constants.u * beliefs.constants.u
    # The rank's own residual depends on a by H_i; the others take part of that away.
    for m in range(L):
        slope[m] = H[i, m]
    if spread > 0.0 and k > 1:
        precision = 1.0 / spread  # of u given the others
        for j in range(k):
            if j != i:
                # In its own generation a is given; elsewhere its variance counts.
                alike = ranks[j].generation == g
                precision += ranks[j].known if alike else ranks[j].known_apart
        spread = 1.0 / precision
        for j in range(k):
            if j == i:
                continue
            of_others = ranks[j].of_type if ranks[j].generation != g else 0.0
            w = spread / (ranks[j].alone + of_others)
            # E[u | others] is a precision-weighted mean of their residuals.
            r -= w * ranks[j].residual
            for m in range(L):
                if ranks[j].generation == g:
                    slope[m] -= w * H[j, m]
                else:
                    r += w * H[j, m] * beliefs.a_mean[ranks[j].generation, m]
    return r, spread


@inner_kernel
def learn_residuals(beliefs: Beliefs, l: int, k: int) -> None:
    """Step 4: e is what is left over, less the gang's u as the ranks together have it."""
    ranks = beliefs.gang.ranks
    noise = beliefs.constants.epsilon * beliefs.constants.epsilon
    common = beliefs.constants.u * beliefs.constants.u
    u = 0.0
    for i in range(k):
        n = ranks[i].node
        s = ranks[i].above - beliefs.a_mean[ranks[i].generation, l] - beliefs.f_mean[n]
        ranks[i].residual = s + beliefs.f_shift[n]
        if k > 1:
            # Posterior mean of u with k ranks: the sum over k + σ_ε² / σ_u².
            u += (s - ranks[i].shrunk) / (k + noise / common)
    for i in range(k):
        beliefs.e_sum[l, ranks[i].node] += ranks[i].residual - u
        beliefs.e_count[l, ranks[i].node] += 1.0


@lean_kernel
def finished(beliefs: Beliefs, limit: float, work: float, now: float) -> None:
    """Learn how much of its limit a job needs; ``work`` as measured: seconds × the rate seen."""
    B = beliefs.ratio.size
    if limit > 0.0 and limit < math.inf:
        # Work beyond the limit falls in the last bin: limits are not enforced everywhere.
        i = min(max(int(work / limit * B), 0), B - 1)
        beliefs.ratio[i] += 1.0
        beliefs.seen[1] += 1.0
        beliefs.seen[2] += i + 0.5


@lean_kernel
def needed(beliefs: Beliefs, l: int, limit: float, work: float, killed: bool) -> None:
    """Learn how much of its limit a job of type l needs where jobs are killed at it.

    A killed job needed more than this ``work``, nobody knows how much: it is shared out among the
    bins above, as the jobs there are (redistribution to the right: Efron 1967).
    """
    B = beliefs.needs.shape[1]
    if limit <= 0.0 or limit == math.inf:
        return
    low = min(max(int(work / limit * B), 0), B - 1)
    if killed:
        # Counted before `needs` changes, so that the shares add up to one job.
        count_above(beliefs, l)
        share = 1.0 / beliefs.above[low]
        for i in range(low, B):
            beliefs.needs[l, i] += beliefs.needs[l, i] * share
    else:
        beliefs.needs[l, low] += 1.0


@inner_kernel
def count_above(beliefs: Beliefs, l: int) -> None:
    """Put the number of jobs of type l from each bin of ``needs`` on in ``above``."""
    B = beliefs.needs.shape[1]
    beliefs.above[B] = 0.0
    for i in range(B - 1, -1, -1):
        beliefs.above[i] = beliefs.above[i + 1] + beliefs.needs[l, i]


@inner_kernel
def killed_at(beliefs: Beliefs, log_rate: float) -> float:
    """Probability that a job is killed at its limit at this rate: P(work ÷ limit > rate).

    Of the job type that :func:`count_above` has counted last.
    """
    B = beliefs.above.size - 1
    x = math.exp(log_rate) * B
    if x >= B:
        return 0.0
    # Work is taken as even within a bin, so the bin at x counts in part.
    low = int(x)
    part = (low + 1.0 - x) * (beliefs.above[low] - beliefs.above[low + 1])
    return float((part + beliefs.above[low + 1]) / beliefs.above[0])


@lean_kernel
def remaining(beliefs: Beliefs, limit: float, done: float) -> float:
    """E[work - done | work > done] from the ratios of work to limit of finished jobs."""
    B = beliefs.ratio.size
    if B == 0:
        return max(limit - done, 0.0)  # nothing is learned: jobs take what they asked for
    if limit <= 0.0:
        return 1.0
    x = done / limit
    if x <= 0.0:
        # The mean of all bins from two sums: asked at every submission, it is O(1).
        mean = (PRIOR_JOBS * 0.5 * B + beliefs.seen[2]) / (PRIOR_JOBS + beliefs.seen[1])
        return float(max(mean / B * limit, 1.0))
    if x >= 1.0:
        return 1.0
    at = x * B
    low = int(at)
    # Conditional on work > done: only the part of the bin beyond `at`, with its midpoint.
    part = low + 1.0 - at  # of the first bin
    weight = part * beliefs.ratio[low]
    total = weight * (at + low + 1.0) * 0.5
    for i in range(low + 1, B):
        weight += beliefs.ratio[i]
        total += beliefs.ratio[i] * (i + 0.5)
    if weight <= 0.0:
        return 1.0
    return float(max((total / weight / B - x) * limit, 1.0))


@lean_kernel
def released(beliefs: Beliefs, node: int, devices: float, now: float) -> None:
    """Devices of the dominant type that became free on a node."""
    age(beliefs, now)
    # With the decay of `age` this is a rate: devices per second, averaged over `memory`.
    beliefs.release[beliefs.generation[node]] += devices / beliefs.constants.memory


@lean_kernel
def age(beliefs: Beliefs, now: float) -> None:
    """Let the averages of releases fade up to now."""
    elapsed = now - beliefs.release_time[0]
    if elapsed > 0.0:
        keep = math.exp(-elapsed / beliefs.constants.memory)
        for g in range(beliefs.release.size):
            beliefs.release[g] *= keep
            # A backlog is in seconds of the whole generation, so it shrinks by a second a second.
            beliefs.backlog[g] = max(beliefs.backlog[g] - elapsed, 0.0)
        beliefs.release_time[0] = now


@inlined_kernel
def sum_up(generation: Ints, values: Floats, sums: Floats) -> None:
    """Sum of a value [N] over the nodes of each generation; neighbours are mostly of one."""
    sums[:] = 0.0
    g, total = generation[0], 0.0
    for n in range(generation.size):
        if generation[n] != g:
            sums[g] = total
            g = generation[n]
            total = sums[g]
        total += values[n]
    sums[g] = total


@inlined_kernel
def add_up(beliefs: Beliefs, l: int) -> None:
    """Bring row l of ``level`` up to date."""
    stale = False
    # Changed means are added up anew: running sums would drift in floating point.
    for g in range(beliefs.version.size):
        stale = stale or beliefs.level_version[l, g] != beliefs.version[g]
    if not stale:
        return
    for g in range(beliefs.version.size):
        beliefs.level_version[l, g] = beliefs.version[g]
    sum_up(beliefs.generation, beliefs.mean[l], beliefs.level[l])


@inlined_kernel
def compare(beliefs: Beliefs, l: int, mean: Floats) -> None:
    """Put the mean log rate of each generation's nodes for job type l in ``typical``."""
    if beliefs.kind == SHARED:
        bring_up_to_date(beliefs, l)
        add_up(beliefs, l)
        for g in range(beliefs.typical.size):
            beliefs.typical[g] = beliefs.level[l, g]
    else:
        sum_up(beliefs.generation, mean, beliefs.typical)
    for g in range(beliefs.typical.size):
        # An empty generation has no nodes to average.
        beliefs.typical[g] /= max(beliefs.members[g], 1.0)


@lean_kernel
def submitted(beliefs: Beliefs, asked: JobRequest, mean: Floats, now: float) -> None:
    """Route a new job to the generation that suits it best at the prices of the moment.

    ``mean`` is what is believed of nodes [N]; ``SHARED`` knows it.

    The prices are dual variables of the fluid problem: minimise Σ work / rate over shares of each
    job type's work on each generation, while none is asked for more device-seconds per second than
    it has. λ[g] rises by what is routed to g and falls by its capacity: a subgradient step at each
    submission (a virtual queue). So a type that gains little from a fast generation leaves it to
    those that gain much.
    """
    if beliefs.constants.toll <= 0.0:
        return
    age(beliefs, now)
    compare(beliefs, asked.type, mean)
    best = -1
    least = math.inf
    for g in range(beliefs.backlog.size):
        if beliefs.members[g] > 0.0 and beliefs.devices[g] > 0.0:
            price = beliefs.backlog[g] / beliefs.constants.toll
            # Seconds per unit of work, times one plus the price of the devices that it occupies.
            cost = math.exp(-beliefs.typical[g]) * (1.0 + asked.size * price)
            if cost < least:
                best, least = g, cost
    if best >= 0:
        takes = math.exp(-beliefs.typical[best]) * remaining(beliefs, asked.limit, 0.0)
        beliefs.backlog[best] += takes * asked.size / beliefs.devices[best]


@inner_kernel
def set_prices(beliefs: Beliefs, free: Floats) -> None:
    """Seconds of others' time that a device-second costs, less where devices are idle."""
    beliefs.idle[:] = 0.0
    if beliefs.constants.toll <= 0.0:
        return
    sum_up(beliefs.generation, free, beliefs.idle)
    for g in range(beliefs.price.size):
        beliefs.idle[g] /= max(beliefs.devices[g], 1e-9)
        # Idle devices have no price: taking one delays nobody.
        full = max(1.0 - beliefs.constants.slack * beliefs.idle[g], 0.0)
        beliefs.price[g] = full * beliefs.backlog[g] / beliefs.constants.toll


# ------------------------------------------------------------------------------------- decisions


@lean_kernel
def score(
    beliefs: Beliefs, asked: JobRequest, mean: Floats, sd: Floats, free: Floats, out: Floats
) -> None:
    """Score of each node for a task of a job, larger is better [N]; ``free`` counts its devices.

    Log rate, less what a free device is worth and what the generation's devices cost others, plus
    optimism where the job is short: a slow node that it finds costs little, and a fast one is good
    to know. ``MEANS`` is ESDP's index, v̂ + √(ln(t + 1) / 2n), of (10), for everybody. Where jobs
    are killed at their limits, ``wall`` times the probability of it is taken off, which is more
    than rates differ by: nodes where a job is likely to be killed come last.
    """
    c = beliefs.constants
    # Optimism for short jobs, pessimism for long ones, in standard deviations.
    k = c.probe if asked.limit < c.short else -c.caution
    set_prices(beliefs, free)
    # Less log(1 + price), log rates rank nodes by the cost that `submitted` minimises.
    for g in range(beliefs.price.size):
        beliefs.charge[g] = math.log(1.0 + asked.size * beliefs.price[g])
    if beliefs.kind == MEANS:
        for n in range(out.size):
            out[n] = math.log(math.exp(mean[n]) + sd[n]) - c.pack * free[n]
    else:
        for n in range(out.size):
            out[n] = mean[n] + k * sd[n] - c.pack * free[n]
    for n in range(out.size):
        out[n] -= beliefs.charge[beliefs.generation[n]]
    if beliefs.walled:
        count_above(beliefs, asked.type)
        for n in range(out.size):
            out[n] -= c.wall * killed_at(beliefs, mean[n])


@inner_kernel
def has_allowed(beliefs: Beliefs, g: int, allowed: Bools) -> bool:
    """Whether any node of a generation is one that a job may use."""
    for n in range(allowed.size):  # noqa: SIM110 - generators do not compile
        if allowed[n] and beliefs.generation[n] == g:
            return True
    return False


@lean_kernel
def wait(
    beliefs: Beliefs,
    asked: JobRequest,
    at: int,
    mean: Floats,
    allowed: Bools,
    waiting: int,
    waited: float,
    now: float,
) -> float:
    """Seconds that a gang which could start now, the slowest on node ``at``, had better wait.

    It waits where a generation (its own too) with ``allowed`` nodes [N] costs less: its time there,
    what its devices cost others (:func:`set_prices`, as :func:`score` left it), and where jobs are
    killed at their limits ``loss`` limits times the probability of it. That generation
    releases devices at a rate ϱ, so the gang would have its own after about price ·
    (1 + crowd · waiting) · devices asked for / ϱ.
    """
    c = beliefs.constants
    # A second less: the round after the last wait must not wait again through rounding.
    if c.price <= 0.0 or waited > c.patience - 1.0:
        return 0.0
    age(beliefs, now)
    compare(beliefs, asked.type, mean)
    killed = 0.0
    if beliefs.walled:
        count_above(beliefs, asked.type)
        killed = killed_at(beliefs, mean[at])
    expected = remaining(beliefs, asked.limit, 0.0)
    size = asked.size
    stay = expected * math.exp(-mean[at]) * (1.0 + size * beliefs.price[beliefs.generation[at]])
    for g in range(beliefs.release.size):
        if beliefs.release[g] <= 0.0 or beliefs.members[g] == 0.0:
            continue
        if not has_allowed(beliefs, g, allowed):
            continue
        # Waiting jobs take what is released first, so each adds to the delay.
        delay = c.price * (1.0 + c.crowd * waiting) * size / beliefs.release[g]
        move = delay + expected * math.exp(-beliefs.typical[g]) * (1.0 + size * beliefs.price[g])
        if beliefs.walled:
            move -= c.loss * asked.limit * (killed - killed_at(beliefs, beliefs.typical[g]))
        if move < stay:
            # Until patience ends; an event before then asks again.
            return c.patience - waited
    return 0.0


@lean_kernel
def migrate(
    beliefs: Beliefs, limit: float, done: float, log_rate: float, other: float, restart: float
) -> bool:
    """Whether a job running at ``log_rate`` had better stop and go on at ``other``."""
    remaining_work = remaining(beliefs, limit, done)
    return (
        remaining_work * (math.exp(-log_rate) - math.exp(-other))
        > restart + beliefs.constants.saving
    )

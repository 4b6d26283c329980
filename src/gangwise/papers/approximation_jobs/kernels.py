"""Inner loops of the family: utilities, projection, rounding, execution, placement, periods.

Matrices are [J, M], job by machine: the innermost loops run over machines, so that they are
elementwise, become vector instructions, and add in the same order everywhere. Each is a function of
few arrays: the compiler checks at run time that these do not overlap, and gives up on many.

The projection OPM (P4) for one machine is x_j = (y_j − τ)⁺ with the smallest τ ≥ 0 for which
Σ_j x_j ≤ 1. The sum is convex and falls in τ, so Newton's method reaches the root from the left
without overshooting, and a step from the right lands left of it. It starts from the last slot's τ;
columns that have not got there after ``ITERATIONS`` steps are left to variable fixing. Machines are
taken in stripes of ``STRIPE`` so that a stripe of all jobs stays in the cache; there the jobs lie
one after the other, ``STRIPE`` numbers each, and passes that sum over jobs take ``UNROLLED`` at
once: with distances known to the compiler one read and one write of the sums serve all. Only the
first n rows are used.

The forms of utility are numbered as in :mod:`~gangwise.papers.approximation_jobs.problem`: 0 power,
1 logarithm, 2 saturating.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import kernel
from gangwise.papers.gain_overhead.kernels import threshold_by_fixing

STRIPE = 128
UNROLLED = 4  # jobs that are added up in one pass
ITERATIONS = 12
CLOSE = 1e-12  # of Σ x = 1


# Utilities, OPM §III and §VI


@kernel
def value(kind: int, v: float, shape: float, work: float) -> float:
    """Utility f(X) of work X ≥ 0, OPM §III, in units of utility."""
    if kind == 0:
        # A square root is exact to the last digit, and far cheaper than a power.
        if shape == 0.5:
            return v * math.sqrt(work)
        return float(v * work**shape)
    if kind == 1:
        return v * math.log1p(work / shape)
    return -v * math.expm1(-work / shape)


@kernel
def slope(kind: int, v: float, shape: float, work: float) -> float:
    """Slope f'(X) of a utility; a power below 1 is vertical at X = 0."""
    if kind == 0:
        if shape == 0.5:
            return 0.5 * v / math.sqrt(work)
        return float(shape * v * work ** (shape - 1.0))
    if kind == 1:
        return v / (shape + work)
    return v / shape * math.exp(-work / shape)


@kernel
def slopes(rows: Ints, kind: Ints, v: Floats, shape: Floats, at: Floats, out: Floats) -> None:
    """Slopes of OPM (9), OPM (68): out[n] = f'(at[n]) for the job in table row rows[n]."""
    for n in range(rows.size):
        j = rows[n]
        out[n] = slope(kind[j], v[j], shape[j], at[n])


# The primal step OPM (69) and its projection OPM (P4)


@kernel
def simplex_threshold(y: Floats, n: int, one: Floats, fixed: Ints) -> float:
    """Threshold τ of OPM (P4) for one machine with unprojected values y[:n].

    ``one`` [n] is all infinite.
    """
    total = 0.0
    for j in range(n):
        total += max(y[j], 0.0)
    if total <= 1.0:
        return 0.0
    # Infinite upper bounds: no share is ever full on its own, so the simplex is all that binds.
    return max(threshold_by_fixing(y, one, n, 1.0, fixed), 0.0)


@kernel
def _ascend(x: Floats, rate: Floats, price: Floats, g: float, q: float, y: Floats) -> None:
    """Put y = x + g θ̂ − q p."""
    for w in range(x.size):
        y[w] = x[w] + g * rate[w] - q * price[w]


@kernel
def _sum_above(y: Floats, tau: Floats, held: Floats, count: Floats) -> None:
    """Add (y − τ)⁺, and how many of them are positive, of ``UNROLLED`` jobs one after the other."""
    for w in range(tau.size):
        a = max(y[w] - tau[w], 0.0)
        b = max(y[w + STRIPE] - tau[w], 0.0)
        c = max(y[w + 2 * STRIPE] - tau[w], 0.0)
        d = max(y[w + 3 * STRIPE] - tau[w], 0.0)
        held[w] = held[w] + a + b + c + d
        positive = (1.0 if a > 0.0 else 0.0) + (1.0 if b > 0.0 else 0.0)
        count[w] += positive + (1.0 if c > 0.0 else 0.0) + (1.0 if d > 0.0 else 0.0)


@kernel
def _clear(a: Floats, b: Floats) -> None:
    for w in range(a.size):
        a[w] = 0.0
        b[w] = 0.0


@kernel
def _newton_step(held: Floats, count: Floats, tau: Floats) -> int:
    """One step of Newton's method in every column; returns how many were not there yet."""
    open_columns = 0
    for w in range(held.size):
        before = tau[w]
        # KKT of OPM (P4): the machine is full, or τ = 0 and part of it stays idle.
        settled = (abs(held[w] - 1.0) <= CLOSE) | ((before == 0.0) & (held[w] <= 1.0))
        # The sum falls by ``count`` per unit of τ, until the next share reaches 0.
        after = max(before + (held[w] - 1.0) / max(count[w], 1.0), 0.0)
        # A settled column keeps its τ, so that further steps for the others do not move it.
        tau[w] = before if settled else after
        open_columns += 0 if settled else 1
    return open_columns


@kernel
def _project(y: Floats, tau: Floats, price: Floats, x: Floats, part: Floats) -> None:
    """Put x = (y − τ)⁺, and add p x to ``part``."""
    for w in range(x.size):
        share = max(y[w] - tau[w], 0.0)
        x[w] = share
        part[w] += price[w] * share


class GradientStep(NamedTuple):
    """Gradient step of a slot: shares before it, and what moves them."""

    old: Floats  # [J, M]
    gain: Floats  # [n] α f_j'
    toll: Floats  # [n] α λ_j
    rate: Floats  # [M]
    price: Floats  # [M]


class Projected(NamedTuple):
    """Projection of a slot: shares after it, and what follows from them."""

    new: Floats  # [J, M]
    tau: Floats  # [M] τ of the last slot, and then of this one
    total: Floats  # [M] Σ_j x_j
    spend: Floats  # [J] Σ_i p_i x_j^i


class Stripe(NamedTuple):
    """Work space of :func:`primal_step`, for J a multiple of ``UNROLLED``."""

    y: Floats  # [J STRIPE] unprojected values
    counts: Floats  # [STRIPE]
    part: Floats  # [J, STRIPE]
    column: Floats  # [J]
    free: Floats  # [J] all infinite
    fixed: Ints  # [J]


@kernel
def primal_step(step: GradientStep, exact: bool, answer: Projected, space: Stripe) -> int:
    """Primal step: y_j = x_j + gain_j θ̂_i − toll_j p_i, OPS (18), OPM (69); OPS (19), OPM (P4).

    ``exact`` asks for variable fixing throughout. Returns how many columns were left to it.
    """
    shares_before, gain, toll, rate, price = step
    shares, tau, total, spend = answer
    stripe, count, part, y, free, fixed = space
    n, M, unsettled = gain.size, shares_before.shape[1], 0
    several = UNROLLED * STRIPE
    # Up to the next multiple of four jobs.
    end = (n + UNROLLED - 1) // UNROLLED * several
    for w in range(n * STRIPE, end):  # jobs that make up the last four and hold nothing
        stripe[w] = 0.0
    for j in range(n):
        _clear(part[j], part[j])
    for a in range(0, M, STRIPE):
        b = min(a + STRIPE, M)
        # Views: what is written to them is in ``total`` and ``tau`` already.
        sums, count_, tau_ = total[a:b], count[: b - a], tau[a:b]
        rate_, price_ = rate[a:b], price[a:b]
        for j in range(n):
            _ascend(shares_before[j, a:b], rate_, price_, gain[j], toll[j], stripe[j * STRIPE :])
        _clear(sums, count_)  # Σ_j (y_j − τ)⁺ at the last slot's τ, which is a good guess
        for begin in range(0, end, several):
            _sum_above(stripe[begin : begin + several], tau_, sums, count_)
        # What so many steps have not settled is left to variable fixing below.
        for _ in range(0 if exact else ITERATIONS):
            if _newton_step(sums, count_, tau_) == 0:
                break
            _clear(sums, count_)
            for begin in range(0, end, several):
                _sum_above(stripe[begin : begin + several], tau_, sums, count_)
        for w in range(b - a):
            settled = abs(sums[w] - 1.0) <= CLOSE or (tau_[w] == 0.0 and sums[w] <= 1.0)
            if exact or not settled:  # few columns: gather one and fix its shares one by one
                for j in range(n):
                    y[j] = stripe[j * STRIPE + w]
                tau_[w] = simplex_threshold(y, n, free, fixed)
                sums[w] = 0.0
                for j in range(n):
                    sums[w] += max(y[j] - tau_[w], 0.0)
                unsettled += 1
        for j in range(n):
            _project(stripe[j * STRIPE :], tau_, price_, shares[j, a:b], part[j])
    for j in range(n):
        spend[j] = 0.0
        for w in range(STRIPE):
            spend[j] += part[j, w]
    return unsettled


@kernel
def remove_job(x: Floats, j: int, last: int, total: Floats, holder: Ints) -> None:
    """Departure of job j: its share becomes idle and row ``last`` moves into its place.

    Machines that it held become idle; ``holder`` entries of ``last`` are renumbered.
    """
    for i in range(x.shape[1]):
        total[i] = max(total[i] - x[j, i], 0.0)  # rounding must not leave less than nothing
        x[j, i] = x[last, i]
        x[last, i] = 0.0
        if holder[i] == j:
            holder[i] = -1
        elif holder[i] == last:
            holder[i] = j


# Random rounding, OPS (21) and OPM (72)


@kernel
def sample_fresh(x: Floats, n: int, u: Floats, whole: Floats, holder: Ints) -> None:
    """Random rounding: P(holder_i = j) = x_j^i, −1 (idle) with the rest, OPS (21)–(22), OPM (72).

    ``u`` [M] is uniform; ``whole`` [STRIPE] is work space.
    """
    M = x.shape[1]
    for begin in range(0, M, STRIPE):
        width = min(STRIPE, M - begin)
        for w in range(width):
            whole[w] = 0.0
            holder[begin + w] = 0
        # Inversion: the job whose part of the cumulative shares u falls into, counted rather than
        # searched for, so that nothing branches.
        for j in range(n):
            for w in range(width):
                whole[w] += x[j, begin + w]
                # The number of cumulative sums at or below u is the
                # place of the job that it falls into.
                holder[begin + w] += 1 if whole[w] <= u[begin + w] else 0
        for w in range(width):
            if holder[begin + w] == n:
                holder[begin + w] = -1


@kernel
def sample_coupled(
    old: Floats,
    old_total: Floats,
    x: Floats,
    total: Floats,
    n: int,
    u: Floats,
    again: Floats,
    holder: Ints,
) -> None:
    """Maximal coupling with the last slot's draw: the law of :func:`sample_fresh`, least change.

    ``holder`` [M] drawn from ``old`` becomes one drawn from ``x``: a job stays with probability
    min(1, x_j / old_j), and otherwise the machine goes to a job whose share grew, in proportion to
    (x_j − old_j)⁺. Idle counts as a job of share 1 − ``total``. ``u`` [M] decides who stays,
    ``again`` [M] who follows.
    """
    for i in range(x.shape[1]):
        h = holder[i]
        before = old[h, i] if h >= 0 else 1.0 - old_total[i]
        # What the last holder was drawn with, and what it has now.
        share = x[h, i] if h >= 0 else 1.0 - total[i]
        # u ≥ now / before has probability (1 − x_j / old_j)⁺: j keeps min(old_j, x_j) in all.
        if u[i] * before >= share:
            # Idle grew by what the total fell.
            grown = max(old_total[i] - total[i], 0.0)
            for j in range(n):
                grown += max(x[j, i] - old[j, i], 0.0)
            # Idle counted in, what shrank sets free as much as what grew takes: Σ (x − old) = 0.
            mark, so_far, h = again[i] * grown, 0.0, -1
            for j in range(n):
                so_far += max(x[j, i] - old[j, i], 0.0)
                if so_far > mark:
                    h = j
                    break
            holder[i] = h


# Execution in the environment, lines 7–12 of Algorithm 1


@kernel
def execute(
    row: Ints,
    machine: Ints,
    price: Floats,
    rate: Floats,
    limit: Floats,
    cost: Floats,
    worked: Floats,
    kept: Bools,
) -> tuple[float, int]:
    """Execution of the tasks that budgets can pay, in the order given; Algorithm 1, lines 7–12.

    Work of a slot OPM (1), within budgets OPM (4): task n of table row ``row[n]`` runs on
    ``machine[n]`` unless the row's cost would exceed its ``limit``; ``kept[n]`` says whether it
    ran. ``cost`` and ``worked`` [rows] are added to. Returns what all of it cost, and how many did
    not run.
    """
    spent, refused = 0.0, 0
    for n in range(row.size):
        j, p = row[n], price[machine[n]]
        kept[n] = cost[j] + p <= limit[j]  # line 8: skip what is too dear, and go on
        if kept[n]:
            cost[j] += p
            worked[j] += rate[machine[n]]
            spent += p
        else:
            refused += 1
    return spent, refused


@kernel
def utility_gains(
    rows: Ints,
    kind: Ints,
    v: Floats,
    shape: Floats,
    life: Floats,
    worked: Floats,
    work: Floats,
    out: Floats,
) -> None:
    """Gains in utility: Σ_j f_j(X_j after) − f_j(X_j before), work X_j of OPM (2).

    Adds ``worked`` to ``work`` and leaves it at zero. out[0] is the gain, out[1] the same for the
    utility of OPM (6), (d − a) f(X / (d − a)).
    """
    out[0] = 0.0
    out[1] = 0.0
    for n in range(rows.size):
        j = rows[n]
        # Most active jobs do no work in a slot, and their utility stays.
        if worked[j] > 0.0:
            # d f(X / d) is the lifetime d at its mean work per slot, the objective of OPM (6).
            before, after, d = work[j], work[j] + worked[j], life[j]
            out[0] += value(kind[j], v[j], shape[j], after) - value(kind[j], v[j], shape[j], before)
            out[1] += d * (
                value(kind[j], v[j], shape[j], after / d)
                - value(kind[j], v[j], shape[j], before / d)
            )
            work[j] = after
        worked[j] = 0.0


@kernel
def count_migrations(before: Ints, now: Ints, lost: Ints, gained: Ints) -> tuple[int, int, int]:
    """Migrations between two slots: displaced, swaps and net.

    ``before`` and ``now`` [M] name each machine's table row, −1 none, as ``before`` has it for jobs
    that left. The paper does not say what a migration is. Three counts: tasks that a job still
    active lost on a machine; those of them whose place another task took; and Σ_j min(lost_j,
    gained_j), the tasks that must have moved whatever one calls them. ``lost`` and ``gained``
    [rows] are work space, all zeros before and after.
    """
    displaced, swaps, net = 0, 0, 0
    for i in range(now.size):
        b, n = before[i], now[i]
        if b != n and b >= 0:
            displaced += 1
            lost[b] += 1
            if n >= 0:
                swaps += 1
        if b != n and n >= 0:
            gained[n] += 1
    # Each row that gained counts at the first machine that has it; the others find zeros.
    for i in range(now.size):
        if now[i] >= 0:
            net += min(lost[now[i]], gained[now[i]])
            # Cleared as they are counted, which also leaves the work space at zero.
            lost[now[i]], gained[now[i]] = 0, 0
    for i in range(now.size):
        if before[i] >= 0:
            lost[before[i]] = 0
    return displaced, swaps, net


# Periods up and down, OPM §VI


class Periods(NamedTuple):
    """State of the machines' periods up and down, and the law of their lengths."""

    left: Floats  # [M] of the period under way, in slots
    up: Bools  # [M]
    share: Floats  # [M] where the rate lies in its range
    length: Floats  # [2] shapes of the Gamma lengths of periods down and up
    scale: Floats  # [2]
    over: Ints  # [M] work space


@kernel
def draw_periods(
    rng: np.random.Generator, periods: Periods, per_period: bool, ups: Bools, shares: Floats
) -> None:
    """Alternating renewal process: periods up and down with Gamma lengths, over a block of slots.

    Shares are drawn anew with every period if ``per_period``. Writes ``ups`` and, if
    ``per_period``, ``shares`` [slots, M]. Random numbers are taken in rounds: lengths of all
    periods that begin, then their shares; again for those that were over at once.
    """
    remaining, up, share, length, scale, over = periods
    for t in range(ups.shape[0]):
        count = 0
        for i in range(remaining.size):
            if remaining[i] <= 0.0:
                over[count] = i
                count += 1
        while count > 0:  # a period may be shorter than what is left of the slot
            for k in range(count):
                i = over[k]
                up[i] = not up[i]
                state = 1 if up[i] else 0
                # Added, not set: what the old period ran over belongs to the new one.
                remaining[i] += rng.standard_gamma(length[state]) * scale[state]
            again = 0
            for k in range(count):
                i = over[k]
                if per_period:
                    share[i] = rng.random()
                if remaining[i] <= 0.0:
                    over[again] = i
                    again += 1
            count = again
        for i in range(remaining.size):
            ups[t, i] = up[i]
            remaining[i] -= 1.0
        if per_period:
            for i in range(remaining.size):
                shares[t, i] = share[i]


# The dual of the offline programme. A machine of price p and rate θ in a slot is an offer of p
# money at ρ = θ / p work per money; a job of slope w_j that values its money at λ_j earns
# (w_j ρ − λ_j)⁺ per money there. So the dual needs, for every epoch e (slots with the same active
# jobs) and cell g, the money W and ρ only.


class Offers(NamedTuple):
    """Money on offer by epoch and end of a cell; jobs of epoch e: member[start[e]:start[e + 1]]."""

    start: Ints  # [E + 1]
    member: Ints
    money: Floats  # [E, G]
    rho: Floats  # [E, G] the ρ that it is put at
    real: Floats  # [E, G] the mean ρ of the cells that it is from


@kernel
def offers_hull(w: Floats, lam: Floats, offers: Offers) -> float:
    """Upper hull of bids: Σ_{e,g} W_eg max_{j ∈ J_e} (w_j ρ_eg − λ_j)⁺."""
    start, member, money, rho, _ = offers
    total = 0.0
    for e in range(start.size - 1):
        for g in range(money.shape[1]):
            if money[e, g] <= 0.0:
                continue
            most, r = 0.0, rho[e, g]
            for n in range(start[e], start[e + 1]):
                j = member[n]
                # From 0: money that nobody bids for is not spent.
                most = max(most, w[j] * r - lam[j])
            total += money[e, g] * most
    return total


@kernel
def soft_offers_hull(
    w: Floats, lam: Floats, tau: float, offers: Offers, out: Floats, part: Floats, kept: Ints
) -> float:
    """Upper hull with max softened at temperature τ, and whom its gradient gives the money to.

    Adds the money of each job, and its work at ``real`` per money, to ``out`` [2, N]. Jobs that
    come near the maximum nowhere are passed over. Work space: ``part`` [J + 2, G] and ``kept`` [J]
    for the J jobs of the largest epoch.
    """
    start, member, money, rho, real = offers
    total, G = 0.0, money.shape[1]
    # Bids 18 τ below the best have a weight below e⁻¹⁸, 2e-8: they are left out.
    most, whole, reach = part[kept.size], part[kept.size + 1], -18.0 * tau
    for e in range(start.size - 1):
        r, n = rho[e], 0
        for g in range(G):
            most[g] = 0.0
        for k in range(start[e], start[e + 1]):
            a, b = w[member[k]], lam[member[k]]
            for g in range(G):
                most[g] = max(most[g], a * r[g] - b)
        for g in range(G):  # nobody, whose bid is 0, competes as well: the money may stay unspent
            whole[g] = math.exp(-most[g] / tau)
        for k in range(start[e], start[e + 1]):
            a, b, near = w[member[k]], lam[member[k]], 0
            for g in range(G):
                part[n, g] = a * r[g] - b - most[g]
                near += 1 if part[n, g] > reach else 0
            if near > 0:
                kept[n] = member[k]
                for g in range(G):
                    if part[n, g] > reach:
                        part[n, g] = math.exp(part[n, g] / tau)
                        whole[g] += part[n, g]
                    else:
                        part[n, g] = 0.0
                n += 1
        for g in range(G):
            # τ ln Σ exp(z / τ), with the largest z taken out so that nothing overflows.
            total += money[e, g] * (most[g] + tau * math.log(whole[g]))
            # From here on the money of a cell over its weights: a
            # job's part is this times its weight.
            whole[g] = money[e, g] / whole[g]
        for m in range(n):
            s, x = 0.0, 0.0
            for g in range(G):
                s += whole[g] * part[m, g]
                x += whole[g] * part[m, g] * real[e, g]
            out[0, kept[m]] += s
            out[1, kept[m]] += x
    return total

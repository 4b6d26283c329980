r"""The Lagrangian dual of the offline programme of approximation jobs.

A machine of price p and rate θ in a slot is an offer of p money at ρ = θ/p work per money; a job of
slope w_j that values its money at λ_j earns (w_j ρ - λ_j)⁺ per money there. So the dual needs, for
every epoch e (slots with the same active jobs) and cell g, the money and ρ only:

    Σ_{e,g} W_eg max_{j ∈ J_e} (w_j ρ_eg - λ_j)⁺.
"""

from __future__ import annotations

import math

from gangwise.kernels import Floats, Ints, kernel

__all__ = ["collect", "hull", "soft_hull"]


@kernel
def collect(
    rates: Floats, prices: Floats, epoch: Ints, nodes: Floats, money: Floats, work: Floats
) -> None:
    """Add the offers of some slots, ``rates`` [slots, M], to the cells of their epochs.

    Cell g of ``money`` and ``work`` [E, G - 1] holds offers with nodes[g] ≤ ρ ≤ nodes[g + 1]; slots
    of a negative epoch are passed over.
    """
    T, M = rates.shape
    last = nodes.size - 2
    for t in range(T):
        e = epoch[t]
        if e < 0:
            continue
        for i in range(M):
            rho = rates[t, i] / prices[i]
            low, high = 0, last
            while low < high:
                middle = (low + high + 1) // 2
                if rho >= nodes[middle]:
                    low = middle
                else:
                    high = middle - 1
            money[e, low] += prices[i]
            work[e, low] += rates[t, i]


@kernel
def hull(
    w: Floats, lam: Floats, start: Ints, member: Ints, money: Floats, rho: Floats
) -> float:
    """The sum above; jobs of epoch e are ``member[start[e]:start[e + 1]]``."""
    total = 0.0
    for e in range(start.size - 1):
        for g in range(money.shape[1]):
            if money[e, g] <= 0.0:
                continue
            most, r = 0.0, rho[e, g]
            for n in range(start[e], start[e + 1]):
                j = member[n]
                most = max(most, w[j] * r - lam[j])
            total += money[e, g] * most
    return total


@kernel
def soft_hull(
    w: Floats, lam: Floats, tau: float, start: Ints, member: Ints, money: Floats, rho: Floats,
    real: Floats, spent: Floats, done: Floats, space: Floats, part: Floats, kept: Ints,
) -> float:
    """The sum with max softened at temperature τ, and whom its gradient gives the money to.

    Adds the money of each job, and its work at ``real`` [E, G] per money, to ``spent`` and ``done``
    [N]. Jobs that come near the maximum nowhere are passed over. Work space: ``space`` [2, G];
    ``part`` [J, G] and ``kept`` [J] for the J jobs of the largest epoch.
    """
    total, G = 0.0, money.shape[1]
    most, whole, reach = space[0], space[1], -18.0 * tau
    for e in range(start.size - 1):
        r, n = rho[e], 0
        for g in range(G):
            most[g] = 0.0
        for k in range(start[e], start[e + 1]):
            a, b = w[member[k]], lam[member[k]]
            for g in range(G):
                most[g] = max(most[g], a * r[g] - b)
        for g in range(G):
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
            total += money[e, g] * (most[g] + tau * math.log(whole[g]))
            whole[g] = money[e, g] / whole[g]
        for m in range(n):
            s, x = 0.0, 0.0
            for g in range(G):
                s += whole[g] * part[m, g]
                x += whole[g] * part[m, g] * real[e, g]
            spent[kept[m]] += s
            done[kept[m]] += x
    return total

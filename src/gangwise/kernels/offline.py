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
    spent: Floats, done: Floats, z: Floats,
) -> float:
    """The sum with max softened at temperature τ, and whom its gradient gives the money to.

    Adds the money and the work of each job to ``spent`` and ``done`` [N]; ``z`` [N] is work space.
    """
    total = 0.0
    for e in range(start.size - 1):
        first, last = start[e], start[e + 1]
        for g in range(money.shape[1]):
            if money[e, g] <= 0.0:
                continue
            most, r = 0.0, rho[e, g]
            for n in range(first, last):
                j = member[n]
                z[n - first] = w[j] * r - lam[j]
                most = max(most, z[n - first])
            whole, least = math.exp(-most / tau), most - 18.0 * tau
            for n in range(last - first):
                if z[n] > least:
                    z[n] = math.exp((z[n] - most) / tau)
                    whole += z[n]
                else:
                    z[n] = 0.0
            share = money[e, g] / whole
            for n in range(first, last):
                if z[n - first] > 0.0:
                    j = member[n]
                    spent[j] += share * z[n - first]
                    done[j] += share * z[n - first] * r
            total += money[e, g] * (most + tau * math.log(whole))
    return total

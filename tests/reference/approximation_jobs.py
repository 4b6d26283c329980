"""OPS and OPM in plain Python, one loop per symbol of the paper.

Shares are dictionaries ``x[j, i]``. Nothing here imports the package's own arithmetic.
"""

from __future__ import annotations

import math


def value(kind, v, shape, work):
    """f of a utility: 0 power, 1 logarithm, 2 saturating."""
    if kind == 0:
        return v * work**shape
    if kind == 1:
        return v * math.log(1 + work / shape)
    return v * (1 - math.exp(-work / shape))


def slope(kind, v, shape, work):
    """f' by hand."""
    if kind == 0:
        return v * shape * work ** (shape - 1)
    if kind == 1:
        return v / (shape + work)
    return v / shape * math.exp(-work / shape)


def project(y):
    """argmin ‖z - y‖ over z ≥ 0, Σ z ≤ 1 (P4), by bisection on the multiplier."""

    def clipped(tau):
        return [max(v - tau, 0.0) for v in y]

    if sum(clipped(0.0)) <= 1:
        return clipped(0.0)
    low, high = 0.0, max(y)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(clipped(middle)) > 1 else (low, middle)
    return clipped(low)


def draw(shares, u):
    """Index of the share that u falls into, -1 beyond them all."""
    so_far = 0.0
    for j, share in enumerate(shares):
        so_far += share
        if u < so_far:
            return j
    return -1


def couple(old, new, holder, u, again):
    """Maximal coupling of two categorical laws, idle being the last category."""
    old, new = [*old, 1 - sum(old)], [*new, 1 - sum(new)]
    h = len(old) - 1 if holder < 0 else holder
    if u * old[h] < new[h]:
        return holder
    grown = [max(n - o, 0.0) for o, n in zip(old, new)]
    mark, so_far = again * sum(grown), 0.0
    for j, share in enumerate(grown[:-1]):
        so_far += share
        if so_far > mark:
            return j
    return -1


class PlainOPM:
    """(66)–(73) as printed for jobs with utilities v X^β, without sampling.

    ``step`` is given what was executed in the slot before, and returns the new shares.
    """

    def __init__(self, prices, alpha, mu, rate):
        self.prices, self.alpha, self.mu = prices, alpha, mu
        self.rate = rate  # a function of the machine: its estimate
        self.x, self.lam, self.g = {}, {}, {}

    def step(self, t, jobs, work):
        """``jobs``: name -> (arrival, deadline, budget, v, beta, floor work per slot)."""
        for j in [j for j in self.lam if j not in jobs]:
            del self.lam[j], self.g[j]
        for j, (a, d, budget, _, _, _) in jobs.items():
            spend = sum(p * self.x.get((j, i), 0.0) for i, p in enumerate(self.prices))
            g = spend - budget / (d - a)
            # (73); a new job had x = 0 in this slot and in all before, and g = 0 before it came
            self.lam[j] = max(
                0.0, self.lam.get(j, 0.0) + 2 * self.mu * g - self.mu * self.g.get(j, 0.0)
            )
            self.g[j] = g
        y = {}
        for j, (a, _, _, v, beta, floor) in jobs.items():
            average = max(work[j] / max(t - a, 1), floor)
            for i, p in enumerate(self.prices):
                gradient = slope(0, v, beta, average) * self.rate(i) - self.lam[j] * p
                y[j, i] = self.x.get((j, i), 0.0) + self.alpha * gradient
        self.x = {}
        for i in range(len(self.prices)):
            column = project([y[j, i] for j in jobs])
            for j, share in zip(jobs, column):
                self.x[j, i] = share
        return self.x

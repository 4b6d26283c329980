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
    for _ in range(70):  # high / 2⁷⁰ is below what a float tells apart
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
    """(66)–(73) for jobs with utilities v X^β, without sampling; as printed unless told otherwise.

    ``step`` is given what was executed before the slot, and returns the new shares. ``total``: the
    slope at the work projected for the whole lifetime; ``left``: money left over slots left.
    """

    def __init__(self, prices, alpha, mu, rate, total=False, left=False):
        self.prices, self.alpha, self.mu = prices, alpha, mu
        self.total, self.left = total, left
        self.rate = rate  # a function of the machine: its estimate
        self.x, self.lam, self.g = {}, {}, {}

    def step(self, t, jobs, work, cost=None):
        """``jobs``: name -> (arrival, deadline, budget, v, beta, floor work per slot)."""
        for j in [j for j in self.lam if j not in jobs]:
            del self.lam[j], self.g[j]
        for j, (a, d, budget, _, _, _) in jobs.items():
            spend = sum(p * self.x.get((j, i), 0.0) for i, p in enumerate(self.prices))
            may = (budget - cost[j]) / len(range(t, d)) if self.left else budget / (d - a)
            g = spend - may
            # (73); a new job had x = 0 in this slot and in all before, and g = 0 before it came
            self.lam[j] = max(
                0.0, self.lam.get(j, 0.0) + 2 * self.mu * g - self.mu * self.g.get(j, 0.0)
            )
            self.g[j] = g
        y = {}
        for j, (a, d, _, v, beta, floor) in jobs.items():
            at = max(work[j] / max(t - a, 1), floor)
            if self.total:
                at *= len(range(a, d))
            for i, p in enumerate(self.prices):
                gradient = slope(0, v, beta, at) * self.rate(i) - self.lam[j] * p
                y[j, i] = self.x.get((j, i), 0.0) + self.alpha * gradient
        self.x = {}
        for i in range(len(self.prices)):
            column = project([y[j, i] for j in jobs])
            for j, share in zip(jobs, column):
                self.x[j, i] = share
        return self.x


class PlainOPS:
    """Algorithm 1, lines 3-5, for one job of utility v X^β, with the constants of Theorem 2."""

    def __init__(self, prices, slots, budget, v, beta, delta, floor):
        self.prices, self.slots, self.budget = prices, slots, budget
        self.v, self.beta, self.floor = v, beta, floor
        M = len(prices)
        self.gamma = math.log(M * slots / delta)
        self.mu, self.alpha = math.sqrt(slots) / M, 1 / (2 * math.sqrt(slots))
        self.x, self.lam, self.before, self.t, self.done = [0.0] * M, 0.0, 0.0, 1, 0.0
        self.plays, self.totals = [0] * M, [0.0] * M

    def estimates(self):
        """(12)–(14)."""
        found = []
        for n, total in zip(self.plays, self.totals):
            mean = total / (n + 1)
            radius = math.sqrt(self.gamma * mean / (n + 1)) + self.gamma / (n + 1)
            found.append(min(1.0, mean + 2 * radius))
        return found

    def step(self):
        """x(t) by (18)–(20)."""
        rates = self.estimates()
        g = sum(p * x for p, x in zip(self.prices, self.x)) - self.budget / self.slots
        self.lam = max(0.0, self.lam + 2 * self.mu * g - self.mu * self.before)
        self.before = g
        rise = slope(0, self.v, self.beta, max(self.done / max(self.t - 1, 1), self.floor))
        moved = [
            x + self.alpha * (rise * rate - self.lam * p)
            for x, rate, p in zip(self.x, rates, self.prices)
        ]
        self.x = [min(max(y, 0.0), 1.0) for y in moved]
        self.done += sum(x * rate for x, rate in zip(self.x, rates))
        self.t += 1
        return self.x

    def learn(self, machines, rates):
        for i, rate in zip(machines, rates):
            self.plays[i] += 1
            self.totals[i] += rate


def water_fill(kind, v, shape, done, money, slots, rho, supply):
    """What each job spends in a slot, and η: bisection on η, demands by bisection on the slope."""

    def demand(j, eta):
        if money[j] <= 0:
            return 0.0
        # the last unit of money is worth f'(X + ρ c) ρ; it is spent if that is more than η
        low, high = 0.0, money[j]
        for _ in range(100):
            c = (low + high) / 2
            worth = slope(kind[j], v[j], shape[j], max(done[j] + rho[j] * c, 1e-300)) * rho[j]
            low, high = (c, high) if worth > eta else (low, c)
        return low / slots[j]

    n = len(kind)
    if sum(demand(j, 0.0) for j in range(n)) <= supply:
        return [demand(j, 0.0) for j in range(n)], 0.0
    low, high = 1e-9, 1e9
    for _ in range(100):
        eta = math.sqrt(low * high)
        low, high = (eta, high) if sum(demand(j, eta) for j in range(n)) > supply else (low, eta)
    return [demand(j, high) for j in range(n)], high


def match(want, rows, steep, order, worth, least, holder):
    """Jobs in two groups, one after the other: what is kept, then what is free, best first."""
    left, now = dict(zip(rows, want)), [-1] * len(holder)
    for group, kept in ((rows[:steep], least), (rows[steep:], -1.0)):
        for i in order:
            if holder[i] in group and left[holder[i]] > 0 and now[i] < 0 and worth[i] >= kept:
                now[i] = int(holder[i])
                left[holder[i]] -= 1
        for row in group:
            for i in order:
                if now[i] < 0 and left[row] > 0:
                    now[i] = row
                    left[row] -= 1
    return now

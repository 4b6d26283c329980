"""The gain-minus-overhead family in plain Python, one loop per symbol of the paper.

Decisions are dictionaries ``y[l, r, k]``. Nothing here imports the package's own arithmetic.
"""

from __future__ import annotations

import math

from scipy.optimize import linprog


def value(kind, alpha, y):
    """f of (27)."""
    if kind == 0:
        return alpha * y
    if kind == 1:
        return alpha * math.log(y + 1)
    if kind == 2:
        return 1 / alpha - 1 / (y + alpha)
    return alpha * math.sqrt(y + 1) - alpha


def slope(kind, alpha, y):
    """f' by hand."""
    if kind == 0:
        return alpha
    if kind == 1:
        return alpha / (y + 1)
    if kind == 2:
        return 1 / (y + alpha) ** 2
    return alpha / (2 * math.sqrt(y + 1))


def project_block(z, a, c):
    """argmin ‖y - z‖ over 0 ≤ y ≤ a, Σ y ≤ c, by bisection on the multiplier."""

    def clipped(tau):
        return [min(max(v - tau, 0.0), u) for v, u in zip(z, a)]

    if sum(clipped(0.0)) <= c:
        return clipped(0.0)
    low, high = 0.0, max(z)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(clipped(middle)) > c:
            low = middle
        else:
            high = middle
    return clipped(high)


def project_block_as_printed(z, a, c):
    """Steps 7-31 of Algorithm 1 with sets, S emptied before every pass and B2 put to zero."""
    entries = sorted(range(len(z)), key=lambda l: -z[l])
    y, b1 = [0.0] * len(z), []
    while True:
        b3 = [l for l in entries if l not in b1]
        y = [a[l] if l in b1 else 0.0 for l in range(len(z))]
        while b3:
            half_rho = (sum(z[l] for l in b3) - c + sum(a[l] for l in b1)) / len(b3)  # (13)
            dropped = []
            for position, l in enumerate(b3):
                y[l] = z[l] - half_rho
                if y[l] < 0:
                    dropped = b3[position:]
                    break
            for l in dropped:
                y[l] = 0.0
            b3 = [l for l in b3 if l not in dropped]
            if not dropped:
                break
        if b1 or not entries or y[entries[0]] <= a[entries[0]]:
            return y
        b1 = entries[:1]


def water_level(demands, c):
    """The level at which Σ want · min(1, level / most) is c, by bisection; 1 where all fits."""
    low, high = 0.0, 1.0

    def held(level):
        return sum(want * min(1.0, level / most) for want, most in demands)

    if held(high) <= c:
        return high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) <= c else (low, middle)
    return low


def fill_by_programmes(wants, most, here, c):
    """Max-min fair dominant shares of Leontief jobs: raise the least, fix who cannot rise more."""
    n, fixed = len(here), {}
    uses = [[wants[i][k] / most[l] for i, l in enumerate(here)] for k in range(len(c)) if c[k] > 0]
    room = [v for v in c if v > 0]

    def best(objective, least):
        # shares s_i and the common level t, which those that are not fixed have at least
        n_rows, bounds = [], []
        for i, l in enumerate(here):
            bounds.append((fixed[i], fixed[i]) if i in fixed else (0, most[l]))
            if i not in fixed:
                n_rows.append([-1.0 if j == i else 0.0 for j in range(n)] + [1.0])
        a = [[*row, 0.0] for row in uses] + n_rows
        b = room + [0.0] * len(n_rows)
        found = linprog(objective, A_ub=a, b_ub=b, bounds=[*bounds, (least, None)])
        assert found.status == 0
        return -found.fun

    while len(fixed) < n:
        level = best([0.0] * n + [-1.0], 0.0)
        free = [i for i in range(n) if i not in fixed]
        tops = {
            i: best([-1.0 if j == i else 0.0 for j in range(n)] + [0.0], level - 1e-9) for i in free
        }
        stuck = [i for i in free if tops[i] <= level + 1e-6]
        assert stuck
        fixed.update(dict.fromkeys(stuck, level))
    return {l: fixed[i] for i, l in enumerate(here)}


class Plain:
    """A problem unpacked into plain lists."""

    def __init__(self, problem):
        self.c = problem.cluster.capacity.tolist()
        self.a = problem.requests.tolist()
        self.beta = problem.overhead.tolist()
        self.kind = problem.utilities.kind.tolist()
        self.alpha = problem.utilities.alpha.tolist()
        self.channels = list(
            zip(problem.channels.job_type.tolist(), problem.channels.server.tolist())
        )
        self.L, self.R, self.K = len(self.a), len(self.c), len(self.beta)

    def of_array(self, y):
        """Dictionary of an [E, K] array."""
        return {
            (l, r, k): float(y[e, k])
            for e, (l, r) in enumerate(self.channels)
            for k in range(self.K)
        }

    def servers_of(self, l):
        return [r for m, r in self.channels if m == l]

    def job_types_of(self, r):
        return [l for l, s in self.channels if s == r]

    def total(self, y, l, k):
        return sum(y[l, r, k] for r in self.servers_of(l))

    def reward(self, x, y):
        """(5) with (7)."""
        q = 0.0
        for l in range(self.L):
            if not x[l]:
                continue
            for r in self.servers_of(l):
                for k in range(self.K):
                    q += value(self.kind[r][k], self.alpha[r][k], y[l, r, k])
            q -= max(self.beta[k] * self.total(y, l, k) for k in range(self.K))
        return q

    def gradient(self, x, y):
        """(9)–(10), ties of k* to the smallest k."""
        g = {}
        for l in range(self.L):
            weighted = [self.beta[k] * self.total(y, l, k) for k in range(self.K)]
            star = weighted.index(max(weighted))
            for r in self.servers_of(l):
                for k in range(self.K):
                    d = slope(self.kind[r][k], self.alpha[r][k], y[l, r, k])
                    g[l, r, k] = x[l] * (d - (self.beta[k] if k == star else 0.0))
        return g

    def smoothed_gradient(self, x, y, temperature):
        """(9) with a softmax over β_k S_lk for the maximum, at a share of the largest."""
        g = {}
        for l in range(self.L):
            weighted = [self.beta[k] * self.total(y, l, k) for k in range(self.K)]
            largest = max(weighted)
            parts = [math.exp((w - largest) / (temperature * largest)) for w in weighted]
            for r in self.servers_of(l):
                for k in range(self.K):
                    d = slope(self.kind[r][k], self.alpha[r][k], y[l, r, k])
                    g[l, r, k] = x[l] * (d - self.beta[k] * parts[k] / sum(parts))
        return g

    def project(self, z):
        """Onto (3)–(4)."""
        y = {}
        for r in range(self.R):
            ports = self.job_types_of(r)
            for k in range(self.K):
                block = project_block(
                    [z[l, r, k] for l in ports], [self.a[l][k] for l in ports], self.c[r][k]
                )
                y.update({(l, r, k): v for l, v in zip(ports, block)})
        return y

    def project_as_printed(self, z):
        """Steps 5-31 of Algorithm 1."""
        y = {}
        for r in range(self.R):
            ports = self.job_types_of(r)
            for k in range(self.K):
                block = project_block_as_printed(
                    [z[l, r, k] for l in ports], [self.a[l][k] for l in ports], self.c[r][k]
                )
                y.update({(l, r, k): v for l, v in zip(ports, block)})
        return y

    def ascend(self, x, y, step):
        """(11)."""
        g = self.gradient(x, y)
        return self.project({i: y[i] + step * g[i] for i in y})

    def nothing(self):
        return {(l, r, k): 0.0 for l, r in self.channels for k in range(self.K)}

    def fairness(self, x):
        y = self.nothing()
        for r in range(self.R):
            here = [l for l in self.job_types_of(r) if x[l]]
            for k in range(self.K):
                whole = sum(self.a[l][k] for l in here)
                for l in here:
                    if self.a[l][k] > 0:
                        y[l, r, k] = min(self.a[l][k], self.c[r][k] * self.a[l][k] / whole)
        return y

    def drf_as_printed(self, x):
        shares = []
        for l in range(self.L):
            ratios = []
            for k in range(self.K):
                have = sum(self.c[r][k] for r in self.servers_of(l))
                if self.a[l][k] > 0:
                    ratios.append(self.a[l][k] / have if have > 0 else math.inf)
            shares.append(max(ratios))
        return self.list_schedule(
            [l for l in sorted(range(self.L), key=lambda l: shares[l]) if x[l]]
        )

    def drf(self, x, bundles):
        """Progressive filling: without bundles by bisection, with bundles by linear programmes."""
        y = self.nothing()
        for r in range(self.R):
            kinds = [k for k in range(self.K) if self.c[r][k] > 0]
            wants = {
                l: [min(self.a[l][k], self.c[r][k]) for k in range(self.K)]
                for l in self.job_types_of(r)
                if x[l]
            }
            most = {
                l: max((w[k] / self.c[r][k] for k in kinds), default=0) for l, w in wants.items()
            }
            here = [l for l in wants if most[l] > 0]
            if bundles:
                shares = fill_by_programmes([wants[l] for l in here], most, here, self.c[r])
            for l in here:
                for k in kinds:
                    if bundles:
                        y[l, r, k] = shares[l] / most[l] * wants[l][k]
                    else:
                        level = water_level([(wants[m][k], most[m]) for m in here], self.c[r][k])
                        y[l, r, k] = wants[l][k] * min(1.0, level / most[l])
        return y

    def list_schedule(self, order):
        y = self.nothing()
        left = [row[:] for row in self.c]
        for l in order:
            for r in self.servers_of(l):
                for k in range(self.K):
                    y[l, r, k] = min(self.a[l][k], left[r][k])
                    left[r][k] -= y[l, r, k]
        return y

    def list_schedule_in_turns(self, x, sign):
        """BINPACKING (sign 1) and SPREADING (-1): in turns, the best server not taken yet."""
        y = self.nothing()
        left = [row[:] for row in self.c]
        most = [max(row[k] for row in self.c) for k in range(self.K)]
        size = [sum(row[k] / most[k] for k in range(self.K) if most[k] > 0) for row in self.c]

        def used(r):
            kinds = [k for k in range(self.K) if self.c[r][k] > 0]
            if not kinds:
                return 0.0
            return sum(1 - left[r][k] / self.c[r][k] for k in kinds) / len(kinds)

        waiting = {l: self.servers_of(l) for l in range(self.L) if x[l]}
        while any(waiting.values()):
            for l, servers in waiting.items():
                if not servers:
                    continue
                r = max(servers, key=lambda r: (sign * used(r), size[r], -r))
                servers.remove(r)
                for k in range(self.K):
                    y[l, r, k] = min(self.a[l][k], left[r][k])
                    left[r][k] -= y[l, r, k]
        return y

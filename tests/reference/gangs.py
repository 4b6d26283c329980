"""Slow, obvious gangs: every placement tried, and the placement kernels in plain words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def utility(kind: int, alpha: float, y: float) -> float:
    """(27), one number at a time."""
    return [
        alpha * y,
        alpha * np.log(y + 1),
        1 / alpha - 1 / (y + alpha),
        alpha * np.sqrt(y + 1) - alpha,
    ][kind]


def job_reward(p, l: int, where: Sequence[int]) -> float:
    """Gain minus overhead of one job type, from the formula; built-in utilities."""
    tasks = [q for q in range(p.Q) if p.task_job_type[q] == l and where[q] >= 0]
    K = len(p.overhead)
    gain = 0.0
    for r in {where[q] for q in tasks}:
        for k in range(K):
            devices = sum(p.task_requests[q, k] for q in tasks if where[q] == r)
            gain += utility(p.utilities.kind[r, k], p.utilities.alpha[r, k], devices)
    whole = [sum(p.task_requests[q, k] for q in tasks) for k in range(K)]
    return gain - max(b * s for b, s in zip(p.overhead, whole))


def feasible(p, active: np.ndarray, where: Sequence[int]) -> bool:
    """The rules, one by one."""
    channels = set(zip(p.channels.job_type.tolist(), p.channels.server.tolist()))
    for q, r in enumerate(where):
        l = int(p.task_job_type[q])
        if r != -1 and ((l, r) not in channels or not active[l]):
            return False
    for l in range(p.L):
        placed = sum(r != -1 and p.task_job_type[q] == l for q, r in enumerate(where))
        if 0 < placed < p.minimum[l]:
            return False
    for r in range(len(p.cluster.servers)):
        for k, c in enumerate(p.cluster.capacity[r]):
            used = sum(p.task_requests[q, k] for q in range(p.Q) if where[q] == r)
            if used > c + 1e-9 * (1 + c):
                return False
    return True


def choices(p, active: np.ndarray) -> list[list[int]]:
    """Servers to which each task's job type has a channel, and -1."""
    every = []
    for l in p.task_job_type:
        mine = p.channels.server[p.channels.job_type == l].tolist() if active[l] else []
        every.append([-1, *mine])
    return every


def brute_force(p, weight: np.ndarray) -> float:
    """The largest Σ n_l q_l over all feasible placements."""
    active = np.asarray(weight) > 0
    best = 0.0
    for where in itertools.product(*choices(p, active)):
        worth = sum(n * job_reward(p, l, where) for l, n in enumerate(weight) if n)
        if worth > best and feasible(p, active, where):
            best = worth
    return best


class Plain:
    """Who holds what, recomputed from the placement whenever it is asked for."""

    def __init__(self, p, size: np.ndarray):
        self.p, self.size = p, size
        self.where = [-1] * p.Q

    def tasks(self, l: int) -> range:
        return range(int(self.p.first[l]), int(self.p.first[l + 1]))

    def placed(self, l: int) -> int:
        return sum(self.where[q] >= 0 for q in self.tasks(l))

    def left(self, r: int) -> np.ndarray:
        mine = [q for q in range(self.p.Q) if self.where[q] == r]
        return self.p.cluster.capacity[r] - sum(self.p.task_requests[q] for q in mine)

    def servers(self, q: int) -> list[int]:
        """Servers with room for a task."""
        need = self.p.task_requests[q]
        slack = 1e-11 * (1 + self.p.cluster.capacity)
        return [
            r
            for r in np.flatnonzero(self.p.fits[q]).tolist()
            if (need <= self.left(r) + slack[r]).all()
        ]

    def used(self, r: int) -> float:
        c = self.p.cluster.capacity[r]
        return float((1 - self.left(r)[c > 0] / c[c > 0]).mean())

    def clear(self, l: int) -> None:
        for q in self.tasks(l):
            self.where[q] = -1

    def list_schedule(self, order, ends, sign, preference) -> list[int]:
        out: set[int] = set()
        begin = 0
        for end in ends:
            turn = [int(q) for q in order[begin:end]]
            begin = end
            while True:
                for q in turn:
                    room = self.servers(q)
                    if self.where[q] < 0 and self.p.task_job_type[q] not in out and room:
                        self.where[q] = max(
                            room, key=lambda r: (sign * self.used(r), preference[r], -r)
                        )
                share = [
                    (self.placed(l) / self.p.minimum[l], -i, l)
                    for i, l in enumerate(int(self.p.task_job_type[q]) for q in turn)
                    if l not in out
                ]
                if not share or min(share)[0] >= 1:
                    break
                l = min(share)[2]
                out.add(l)
                self.clear(l)
        return self.where

    def grow(self, l: int) -> bool:
        """Best marginal reward first, up to the minimum; then while it is positive."""
        while True:
            now = job_reward(self.p, l, self.where)
            best = None
            for q in self.tasks(l):
                if self.where[q] >= 0:
                    continue
                for r in self.servers(q):
                    tried = list(self.where)
                    tried[q] = r
                    rise = job_reward(self.p, l, tried) - now
                    if best is None or rise > best[0] + 1e-12:
                        best = (rise, q, r)
            if best is None or (self.placed(l) >= self.p.minimum[l] and best[0] <= 1e-9):
                return self.placed(l) >= self.p.minimum[l]
            self.where[best[1]] = best[2]

    def greedy(self, active: np.ndarray) -> list[int]:
        """The gang with the largest reward first; rewards updated when they come to the top."""

        def launch(l: int) -> float:
            worth = job_reward(self.p, l, self.where) if self.grow(l) else 0.0
            if worth <= 1e-9:
                self.clear(l)
                return 0.0
            return worth

        worth = {}
        for l in np.flatnonzero(active).tolist():
            worth[l] = launch(l)
            self.clear(l)
        while worth and max(worth.values()) > 0:
            l = max(worth, key=lambda j: (worth[j], -j))
            now = launch(l)
            if now >= max((w for j, w in worth.items() if j != l), default=0.0):
                del worth[l]
            else:
                self.clear(l)
                worth[l] = now
        for l in np.flatnonzero(active).tolist():
            if self.placed(l):
                self.grow(l)
        return self.where

"""Slow, obvious gangs at fluctuating speeds: every placement tried; a queue in plain words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tests.reference.gangs import choices, feasible


def worth(p, v, s, where: Sequence[int]) -> float:
    """Σ v + √(Σ s) − Σ d, task by task."""
    edges = list(zip(p.channels.job_type.tolist(), p.channels.server.tolist()))
    at = [edges.index((int(l), int(r))) for l, r in zip(p.task_job_type, where) if r >= 0]
    paid = sum(float(d) for d, r in zip(p.task_cost, where) if r >= 0)
    return sum(float(v[e]) for e in at) + math.sqrt(sum(float(s[e]) for e in at)) - paid


def brute_force(p, v, s, x) -> float:
    """The largest worth over all feasible placements."""
    best = 0.0
    for where in itertools.product(*choices(p, np.asarray(x) > 0)):
        if worth(p, v, s, where) > best and feasible(p, x, where):
            best = worth(p, v, s, where)
    return best


def priced(p, v, x, price) -> tuple[float, np.ndarray]:
    """D(λ), gang by gang, and each job's gain: every set of tasks that is no smaller than m_l."""
    gain = np.zeros(p.L)
    for l in np.flatnonzero(x).tolist():
        best = []
        for q in range(p.Q):
            if p.task_job_type[q] == l:
                best.append(
                    max(
                        float(v[e] - p.task_cost[q] - price[r] @ p.task_requests[q])
                        for e, (j, r) in enumerate(zip(p.channels.job_type, p.channels.server))
                        if j == l and (p.task_requests[q] <= p.cluster.capacity[r] + 1e-9).all()
                    )
                )
        for n in range(int(p.minimum[l]), len(best) + 1):
            for chosen in itertools.combinations(best, n):
                gain[l] = max(gain[l], sum(chosen))
    return float((price * p.cluster.capacity).sum() + gain.sum()), gain


class Plain:
    """Placing by the share that a server is filled to."""

    def __init__(self, p, sign: float):
        self.p, self.sign = p, sign
        self.where = [-1] * p.Q

    def mine(self, l: int) -> list[int]:
        return [q for q in range(self.p.Q) if self.p.task_job_type[q] == l]

    def placed(self, l: int) -> int:
        return sum(self.where[q] >= 0 for q in self.mine(l))

    def ready(self, l: int) -> bool:
        return self.placed(l) >= self.p.minimum[l]

    def used(self, r: int) -> np.ndarray:
        there = [self.p.task_requests[q] for q in range(self.p.Q) if self.where[q] == r]
        return np.sum(there, axis=0) if there else np.zeros(self.p.task_requests.shape[1])

    def put(self, q: int) -> bool:
        """On the server with the best score, if any has room."""
        p, need = self.p, self.p.task_requests[q]
        scores = []
        for e, r in enumerate(p.channels.server.tolist()):
            if p.channels.job_type[e] != p.task_job_type[q]:
                continue
            capacity, after = p.cluster.capacity[r], self.used(r) + need
            if (after <= capacity + 1e-10 * (1 + capacity)).all():
                share = float((after[need > 0] / capacity[need > 0]).mean())
                scores.append((self.sign * share, r))
        if scores:
            self.where[q] = max(scores)[1]
        return bool(scores)

    def clear(self, l: int) -> None:
        for q in self.mine(l):
            self.where[q] = -1

    def best_fit(self, x) -> list[int]:
        largest = self.p.cluster.capacity.max(axis=0)
        for l in np.flatnonzero(x).tolist():
            size = {
                q: max(a / m for a, m in zip(self.p.task_requests[q], largest) if m > 0)
                for q in self.mine(l)
            }
            for q in sorted(size, key=lambda q: (-size[q], q)):
                self.put(q)
            if not self.ready(l):
                self.clear(l)
        return self.where

    def volcano(self, x, priority: Mapping[str, int]) -> list[int]:
        p = self.p
        whole = p.cluster.capacity.sum(axis=0)
        queue = np.flatnonzero(x).tolist()

        def place_in_queue(l: int):
            held = sum(
                (p.task_requests[q] for q in self.mine(l) if self.where[q] >= 0),
                np.zeros(len(whole)),
            )
            share = max((h / w for h, w in zip(held, whole) if w > 0), default=0.0)
            return (self.ready(l), -priority.get(p.job_types[l], 0), share, l)

        while queue:
            l = min(queue, key=place_in_queue)
            queue.remove(l)
            left, room = [q for q in self.mine(l) if self.where[q] < 0], True
            while left and room:
                room = self.put(left[0])
                if room:
                    left.pop(0)
                    if self.ready(l):
                        break
            if not self.ready(l):
                self.clear(l)
            elif left and room:
                queue.append(l)
        return self.where

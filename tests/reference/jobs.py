"""Gangs on nodes, placed task by task as slowly and plainly as possible.

Nothing is shared with the package: cases come as plain lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass
class SlowJob:
    tasks: int
    demand: list[int]  # thousandths, one a device type
    nodes: set[int]  # allowed ones


class SlowCluster:
    """Nodes of so many devices [N][K], the jobs that are known, and where those that run are."""

    def __init__(self, jobs: list[SlowJob], capacity: list[list[int]], shared: int, choice: str):
        self.jobs, self.capacity, self.shared, self.choice = jobs, capacity, shared, choice
        self.where: dict[int, list[tuple[int, tuple[int, ...]]]] = {}  # of each task: node, devices
        self.submitted: set[int] = set()

    def free(self) -> tuple[list, list]:
        """Free amounts, and free thousandths of each shared device; from scratch."""
        free = [list(row) for row in self.capacity]
        device = [[1000] * (row[self.shared] // 1000) for row in self.capacity]
        for j, places in self.where.items():
            for place in places:
                self.put(free, device, j, place)
        return free, device

    def put(self, free: list, device: list, j: int, place: tuple[int, tuple[int, ...]]) -> None:
        n, used = place
        for k, d in enumerate(self.jobs[j].demand):
            free[n][k] -= d
            assert free[n][k] >= 0, "a device twice"
        for g in used:
            device[n][g] -= min(self.jobs[j].demand[self.shared], 1000)
            assert device[n][g] >= 0, "a device twice"

    def devices_for(self, device: list, n: int, j: int) -> tuple[int, ...] | None:
        d = self.jobs[j].demand[self.shared]
        if d == 0:
            return ()
        if d < 1000:
            able = [(have, g) for g, have in enumerate(device[n]) if have >= d]
            return (min(able)[1],) if able else None
        unused = [g for g, have in enumerate(device[n]) if have == 1000][: d // 1000]
        return tuple(unused) if len(unused) == d // 1000 else None

    def ways(self, free: list, device: list, n: int, j: int) -> list:
        """Devices that a task may take on a node: fgd alone has several ways for a fraction."""
        d = self.jobs[j].demand[self.shared] if self.choice == "fgd" else 0
        if 0 < d < 1000:
            return [(n, (g,)) for g, have in enumerate(device[n]) if have >= d]
        used = self.devices_for(device, n, j)
        return [] if used is None else [(n, used)]

    def left_over(self, row: list, n: int, j: int) -> float:
        """Of all device types as shares of the largest node; those not asked for are kept."""
        capacity, K = self.capacity, len(row)
        score = 0.0
        for k, d in enumerate(self.jobs[j].demand):
            score -= row[k] / max(max(other[k] for other in capacity), 1)
            if d == 0:
                score -= K * ((capacity[n][k] > 0) + (row[k] > 0))
        return score

    def gang(self, j: int, free: list, device: list) -> list | None:
        """Places of all tasks, one after another by the rule; None unless all find one."""
        job = self.jobs[j]
        free = [list(row) for row in free]
        device = [list(row) for row in device]
        places: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(job.tasks):
            able = []
            for n in range(len(free)):
                if n not in job.nodes:
                    continue
                if any(d > f for d, f in zip(job.demand, free[n])):
                    continue
                able += self.ways(free, device, n, j)
            if not able:
                return None
            if self.choice == "first-fit":
                rule = lambda place: place[0]  # noqa: E731
            elif self.choice == "best-fit":
                rule = lambda place, free=free: (  # noqa: E731
                    -self.left_over(free[place[0]], place[0], j),
                    place[0],
                )
            else:

                def rule(place, free=free, device=device):
                    n, used = place
                    was = self.fragments(n, free[n], device[n])
                    row, parts = list(free[n]), list(device[n])
                    for i, d in enumerate(job.demand):
                        row[i] -= d
                    for g in used:
                        parts[g] -= min(job.demand[self.shared], 1000)
                    grows = self.fragments(n, row, parts) - was
                    seen = sum(self.jobs[m].tasks for m in self.submitted)
                    level = math.ceil(Fraction(grows, 40 * seen))
                    return level, n, [device[n][g] for g in used], used

            best = min(able, key=rule)
            places.append(best)
            for i, d in enumerate(job.demand):
                free[best[0]][i] -= d
            for g in best[1]:
                device[best[0]][g] -= min(job.demand[self.shared], 1000)
        return places

    def fragments(self, n: int, row: list, parts: list) -> int:
        """F_n over all tasks seen so far; ``parts`` are the free shared devices of the node."""
        total, shared = 0, self.shared
        for m in self.submitted:
            ask, nodes = self.jobs[m].demand, self.jobs[m].nodes
            of_one, many = min(ask[shared], 1000), max(ask[shared] // 1000, 1)
            usable = [p for p in parts if p >= of_one]
            able = n in nodes and all(a <= f for a, f in zip(ask, row))
            if ask[shared] == 0 or not able or len(usable) < many:
                usable = []
            total += self.jobs[m].tasks * (sum(parts) - sum(usable))
        return total

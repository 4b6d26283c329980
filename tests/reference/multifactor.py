"""Slurm's multifactor priority on one pool of processors, as plainly as possible.

At every instant all use is summed anew from all that ever ran, and the account tree is walked by
recursion, as Slurm's documentation tells it; nothing is shared with the package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """A job: what it asks for, and of whom."""

    submit: float
    run: float
    limit: float
    size: int
    user: str
    account: str
    pool: str
    qos: str


@dataclass
class Account:
    """An account with those below it, or a user in it (``user``)."""

    name: str
    shares: float
    user: bool = False
    inner: list[Account] = field(default_factory=list)

    def leaves(self, path: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        if self.user:
            return [(path[-1], self.name)]
        return [leaf for each in self.inner for leaf in each.leaves((*path, self.name))]


@dataclass
class Cluster:
    """Processors, weights by name, pools and QOS with tier, priority and usage factor."""

    processors: int
    weights: dict[str, float]
    max_age: float
    half_life: float
    period: float
    classic: bool
    easy: bool
    root: Account
    pools: dict[str, dict[str, Any]]
    qos: dict[str, dict[str, Any]]
    jobs: list[Asked]
    ageing: list[tuple[tuple[str, ...], bool, int]] = field(default_factory=list)
    """Of accounts, all or each user, how many waiting jobs age at once."""
    start: dict[int, float] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    """Since when a job ages."""

    def use(self, leaf: tuple[str, str], now: float) -> float:
        """Processor-seconds, each worth half after every half-life."""
        total = 0.0
        for j, begun in self.start.items():
            job = self.jobs[j]
            if (job.account, job.user) == leaf and begun < now:
                rate = job.size * self.pools[job.pool]["billing"] * self.qos[job.qos]["factor"]
                end = min(begun + job.run, now)
                if math.isinf(self.half_life):
                    total += rate * (end - begun)
                else:
                    h = self.half_life
                    total += (
                        rate * h / math.log(2) * (2 ** ((end - now) / h) - 2 ** ((begun - now) / h))
                    )
        return total

    def of_all(self, node: Account, account: str, use: dict[tuple[str, str], float]) -> float:
        if node.user:
            return use[account, node.name]
        return sum(self.of_all(each, node.name, use) for each in node.inner)

    def classic_factors(self, use: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
        everything, found = sum(use.values()), {}

        def walk(node: Account, shares: float, effective: float, top: bool) -> None:
            siblings = sum(each.shares for each in node.inner)
            for each in node.inner:
                mine = each.shares / siblings
                used = self.of_all(each, node.name, use) / everything if everything else 0.0
                of_it = used if top else used + (effective - used) * mine
                if each.user:
                    found[node.name, each.name] = 2 ** (-of_it / (shares * mine))
                else:
                    walk(each, shares * mine, of_it, top=False)

        walk(self.root, 1.0, 1.0, top=True)
        return found

    def tree_factors(self, use: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
        """Ranks of users: those of an account with a higher level before all of a lower one."""
        ranks: list[list[tuple[str, str]]] = []

        def level(node: Account, above: Account) -> float:
            all_shares = sum(each.shares for each in above.inner)
            all_use = self.of_all(above, "", use)
            used = self.of_all(node, above.name, use)
            return math.inf if not used else node.shares / all_shares / (used / all_use)

        def walk(nodes: list[tuple[Account, Account]], tied: bool) -> None:
            by_level: dict[float, list[tuple[Account, Account]]] = {}
            for node, above in nodes:
                by_level.setdefault(level(node, above), []).append((node, above))
            for i, value in enumerate(sorted(by_level, reverse=True)):
                users = [(above.name, n.name) for n, above in by_level[value] if n.user]
                joins = tied and i == 0
                if users:
                    if joins:
                        ranks[-1] += users
                    else:
                        ranks.append(users)
                    joins = True
                below = [(each, n) for n, _ in by_level[value] if not n.user for each in n.inner]
                if below:
                    walk(below, joins)

        walk([(each, self.root) for each in self.root.inner], tied=False)
        count, passed, found = len(use), 0, {}
        for users in ranks:
            for leaf in users:
                found[leaf] = (count - passed) / count
            passed += len(users)
        return found

    def order(self, waiting: list[int], now: float) -> list[int]:
        due = now // self.period * self.period
        use = {leaf: self.use(leaf, due) for leaf in self.root.leaves()}
        factors = (self.classic_factors if self.classic else self.tree_factors)(use)
        w = self.weights

        def key(j: int) -> tuple[int, int, int]:
            job = self.jobs[j]
            pool, qos = self.pools[job.pool], self.qos[job.qos]
            age = max(due - self.since.get(j, math.inf), 0)
            priority = w["age"] * min(age / self.max_age, 1)
            priority += w["fair_share"] * factors[job.account, job.user]
            priority += w["job_size"] * (1 + job.size / self.processors) / 2
            priority += (
                w["pool"] * pool["priority"] / max(p["priority"] for p in self.pools.values())
            )
            priority += w["qos"] * qos["priority"] / max(q["priority"] for q in self.qos.values())
            return -pool["tier"], -max(int(priority), 1), j

        return sorted(waiting, key=key)

    def let_age(self, now: float, submitted: float) -> None:
        """Jobs that wait begin to age in turn, while each limit has room for one more."""
        for j, job in enumerate(self.jobs):
            if job.submit > submitted or j in self.since or j in self.start:
                continue
            rivals = [self.jobs[i] for i in self.since if i not in self.start]
            if all(
                job.account not in accounts
                or sum(r.account in accounts and (not each or r.user == job.user) for r in rivals)
                < most
                for accounts, each, most in self.ageing
            ):
                self.since[j] = now

    def play(self) -> list[float]:
        now = -1.0
        while len(self.start) < len(self.jobs):
            ends = [t + self.jobs[j].run for j, t in self.start.items()]
            now = min(t for t in (*ends, *(job.submit for job in self.jobs)) if t > now)
            running = [j for j, t in self.start.items() if t + self.jobs[j].run > now]
            free = self.processors - sum(self.jobs[j].size for j in running)
            waiting = [
                j for j, job in enumerate(self.jobs) if job.submit <= now and j not in self.start
            ]
            for job in self.jobs:
                if job.submit == now:
                    self.let_age(now, now)
            promised, spare = math.inf, -1
            for j in self.order(waiting, now) if waiting else []:
                job = self.jobs[j]
                if spare < 0 and job.size > free:
                    if not self.easy:
                        break
                    there = free
                    for end, size in sorted(
                        (self.start[i] + self.jobs[i].limit, self.jobs[i].size) for i in running
                    ):
                        there += size
                        if there >= job.size and promised == math.inf:
                            promised = end
                        if end <= promised:
                            spare = there - job.size
                elif job.size <= free:
                    late = spare >= 0 and now + job.limit > promised
                    if late and job.size > spare:
                        continue
                    spare -= job.size * late
                    free -= job.size
                    self.start[j] = now
                    running.append(j)
                    self.let_age(now, now)
        return [self.start[j] for j in range(len(self.jobs))]

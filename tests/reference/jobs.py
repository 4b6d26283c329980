"""A cluster simulated second by second, as slowly and plainly as possible.

All times are whole seconds. Every second is walked; every round looks at everything anew; tasks
are placed one after another. Nothing is shared with the package: cases come as plain lists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

NEVER = 10**9


@dataclass
class SlowJob:
    submit: int
    run: int
    limit: int
    tasks: int
    demand: list[int]  # thousandths, one a device type
    per_node: int = 0
    nodes: set[int] | None = None  # allowed ones
    user: int = 0
    deadline: int = NEVER
    priority: int = 0
    after: list[int] = field(default_factory=list)


@dataclass
class SlowCluster:
    capacity: list[list[int]]
    shared: int = -1
    downs: list[tuple[int, int]] = field(default_factory=list)
    ups: list[tuple[int, int]] = field(default_factory=list)
    slow: list[int] = field(default_factory=list)  # seconds that a second of work takes there
    drains: list[tuple[int, int]] = field(default_factory=list)
    cancels: list[tuple[int, int]] = field(default_factory=list)  # when, job

    def events(self) -> list[tuple[int, int]]:
        return self.downs + self.drains + self.ups + self.cancels


class SlowSimulation:
    """Parts of the scheduler by name."""

    def __init__(
        self,
        jobs: list[SlowJob],
        cluster: SlowCluster,
        queue: str,
        backfilling: str,
        choice: str,
        enforced: bool = False,
        checkpoint: int | None = None,
        restart: int = 0,
        depth: int = 10**9,
        labels: list[float] | None = None,
        waits: bool = False,
    ):
        self.jobs, self.cluster = jobs, cluster
        self.queue, self.backfilling, self.choice = queue, backfilling, choice
        self.enforced, self.checkpoint, self.restart = enforced, checkpoint, restart
        self.depth, self.labels = depth, labels
        N = len(cluster.capacity)
        self.up = [True] * N
        J = len(jobs)
        self.start, self.last, self.end = [None] * J, [None] * J, [None] * J
        self.killed = [False] * J
        self.where: dict[int, list[tuple[int, int]]] = {}  # running: of each task (node, device)
        self.nodes: list[list[int]] = [[] for _ in jobs]  # of each task, last attempt
        self.waiting: set[int] = set()
        self.submitted: set[int] = set()
        self.done = [0] * J
        self.over = [0] * J
        self.worked_this_attempt = [0] * J
        self.use = {job.user: 0.0 for job in jobs}
        self.promises: list[tuple[int, int]] = []  # (job, instant), as made
        self.reserved: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self.cancelled: set[int] = set()

    # ------------------------------------------------------------------ what is free

    def free(self, without: set[int] = frozenset()) -> tuple[list, list]:
        """Free amounts, and free thousandths of each shared device; from scratch."""
        c = self.cluster
        free = [list(row) for row in c.capacity]
        device = [[1000] * (row[c.shared] // 1000) if c.shared >= 0 else [] for row in c.capacity]
        for j, places in self.where.items():
            if j not in without:
                for place in places:
                    self.put(free, device, j, place)
        for n, up in enumerate(self.up):
            if not up:
                free[n] = [0] * len(free[n])
                device[n] = [0] * len(device[n])
        return free, device

    def put(self, free: list, device: list, j: int, place: tuple[int, tuple[int, ...]]) -> None:
        n, used = place
        for k, d in enumerate(self.jobs[j].demand):
            free[n][k] -= d
            assert free[n][k] >= 0, "a device twice"
        if self.cluster.shared >= 0:
            d = self.jobs[j].demand[self.cluster.shared]
            for g in used:
                device[n][g] -= min(d, 1000)
                assert device[n][g] >= 0, "a device twice"

    def devices_for(self, device: list, n: int, j: int) -> tuple[int, ...] | None:
        if self.cluster.shared < 0:
            return ()
        d = self.jobs[j].demand[self.cluster.shared]
        if d == 0:
            return ()
        if d < 1000:
            able = [(have, g) for g, have in enumerate(device[n]) if have >= d]
            return (min(able)[1],) if able else None
        unused = [g for g, have in enumerate(device[n]) if have == 1000][: d // 1000]
        return tuple(unused) if len(unused) == d // 1000 else None

    def ways(self, free: list, device: list, n: int, j: int) -> list:
        """Devices that a task may take on a node: fgd alone has several ways for a fraction."""
        d = self.jobs[j].demand[self.cluster.shared] if self.choice == "fgd" else 0
        if 0 < d < 1000:
            return [(n, (g,)) for g, have in enumerate(device[n]) if have >= d]
        used = self.devices_for(device, n, j)
        return [] if used is None else [(n, used)]

    def left_over(self, row: list, n: int, j: int, sign: int) -> float:
        """Of all device types as shares of the largest node; those not asked for are kept."""
        capacity, K = self.cluster.capacity, len(row)
        score = 0.0
        for k, d in enumerate(self.jobs[j].demand):
            score += sign * (row[k] / max(max(other[k] for other in capacity), 1))
            if d == 0:
                score -= K * ((capacity[n][k] > 0) + (row[k] > 0))
        return score

    def dominant(self, j: int) -> int:
        total = [
            max(sum(row[k] for row in self.cluster.capacity), 1)
            for k in range(len(self.jobs[j].demand))
        ]
        shares = [d / t for d, t in zip(self.jobs[j].demand, total)]
        return shares.index(max(shares))

    def gang(self, j: int, free: list, device: list) -> list | None:
        """Places of all tasks, one after another by the rule; None unless all find one."""
        job = self.jobs[j]
        free = [list(row) for row in free]
        device = [list(row) for row in device]
        k = self.dominant(j)
        places: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(job.tasks):
            able = []
            for n in range(len(free)):
                if job.nodes is not None and n not in job.nodes:
                    continue
                if job.per_node and sum(m == n for m, _ in places) >= job.per_node:
                    continue
                if any(d > f for d, f in zip(job.demand, free[n])):
                    continue
                able += self.ways(free, device, n, j)
            if not able:
                return None
            if self.choice == "first-fit":
                rule = lambda place: place[0]  # noqa: E731
            elif self.choice in ("best-fit", "worst-fit"):
                sign = -1 if self.choice == "best-fit" else 1

                def rule(place, free=free, sign=sign):
                    n = place[0]
                    return -self.left_over(free[n], n, j, sign), n
            elif self.choice == "fgd":

                def rule(place, free=free, device=device):
                    n, used = place
                    was = self.fragments(n, free[n], device[n])
                    row, parts = list(free[n]), list(device[n])
                    for i, d in enumerate(job.demand):
                        row[i] -= d
                    for g in used:
                        parts[g] -= min(job.demand[self.cluster.shared], 1000)
                    grows = self.fragments(n, row, parts) - was
                    seen = sum(self.jobs[m].tasks for m in self.submitted)
                    level = math.ceil(Fraction(grows, 40 * seen))
                    return level, n, [device[n][g] for g in used], used
            else:
                rule = lambda place: (  # noqa: E731
                    -(self.labels[place[0]] - 0.003 * (free[place[0]][k] / 1000.0)),
                    place[0],
                )
            best = min(able, key=rule)
            places.append(best)
            for i, d in enumerate(job.demand):
                free[best[0]][i] -= d
            for g in best[1]:
                device[best[0]][g] -= min(job.demand[self.cluster.shared], 1000)
        return places

    def fragments(self, n: int, row: list, parts: list) -> int:
        """F_n over all tasks seen so far; ``parts`` are the free shared devices of the node."""
        total, shared = 0, self.cluster.shared
        for m in self.submitted:
            ask, nodes = self.jobs[m].demand, self.jobs[m].nodes
            of_one, many = min(ask[shared], 1000), max(ask[shared] // 1000, 1)
            usable = [p for p in parts if p >= of_one]
            able = (nodes is None or n in nodes) and all(a <= f for a, f in zip(ask, row))
            if ask[shared] == 0 or not able or len(usable) < many:
                usable = []
            total += self.jobs[m].tasks * (sum(parts) - sum(usable))
        return total

    # ------------------------------------------------------------------ time

    def slowness(self, j: int) -> int:
        slow = self.cluster.slow
        return max(slow[n] for n, _ in self.where[j]) if slow else 1

    def play(self) -> None:
        t = 0
        while not all(map(self.gone, range(len(self.jobs)))) and t < 100_000:
            self.instant(t)
            t += 1
            running = bool(self.where)
            more = any(j not in self.submitted and not self.gone(j) for j in range(len(self.jobs)))
            later = any(when >= t for when, *_ in self.cluster.events())
            if not (running or more or later):
                break  # what waits now waits for ever

    def is_over(self, j: int, t: int) -> bool:
        """A running job has done its work by t, or is at its limit."""
        here = t - self.last[j] - self.over[j]
        if here >= (self.jobs[j].run - self.done[j]) * self.slowness(j):
            return True
        return self.enforced and t - self.last[j] >= self.jobs[j].limit

    def gone(self, j: int) -> bool:
        return self.end[j] is not None or j in self.cancelled

    def instant(self, t: int) -> None:
        nodes_done = False
        while True:
            over = [j for j in sorted(self.where) if self.is_over(j, t)]
            for j in over:
                here = t - self.last[j] - self.over[j]
                self.killed[j] = here < (self.jobs[j].run - self.done[j]) * self.slowness(j)
                del self.where[j]
                self.end[j] = t
            happened = bool(over)
            if not nodes_done:
                nodes_done = True
                happened = self.node_events(t) or happened
                # One withdrawn before it is submitted never comes: no event, so no round.
                comes = (
                    j not in self.cancelled for j, job in enumerate(self.jobs) if job.submit == t
                )
                happened = any(comes) or happened
            for j, job in enumerate(self.jobs):
                if (
                    j not in self.submitted
                    and job.submit <= t
                    and j not in self.cancelled
                    and all(self.gone(i) for i in job.after)
                ):
                    self.submitted.add(j)
                    self.waiting.add(j)
                    happened = True
            if not happened:
                break
            if self.waiting:
                self.round(t)
        for j in self.where:
            k = self.dominant(j)
            total = sum(row[k] for row in self.cluster.capacity)
            self.use[self.jobs[j].user] += self.jobs[j].tasks * self.jobs[j].demand[k] / total

    def node_events(self, t: int) -> bool:
        """Of an instant: nodes fail, then drain, then come back; then jobs are withdrawn."""
        happened = any(when == t for when, *_ in self.cluster.events())
        was = list(self.up)
        for when, n in self.cluster.downs:
            if when == t:
                for j in sorted(self.where):
                    if any(m == n for m, _ in self.where[j]):
                        worked = max(t - self.last[j] - self.over[j], 0) // self.slowness(j)
                        done = self.done[j] + worked
                        if self.checkpoint is None:
                            done = 0
                        elif self.checkpoint > 0:
                            done = done // self.checkpoint * self.checkpoint
                        self.done[j] = done
                        self.over[j] = self.restart
                        del self.where[j]
                        self.nodes[j] = []
                        self.waiting.add(j)
                self.up[n] = False
                if was[n]:
                    self.reserved = {}  # a plan holds while nodes neither come nor go
        for when, n in self.cluster.drains:
            if when == t:
                if self.up[n]:
                    self.reserved = {}
                self.up[n] = False
        for when, n in self.cluster.ups:
            if when == t:
                if not self.up[n]:
                    self.reserved = {}
                self.up[n] = True
        for when, j in self.cluster.cancels:
            if when == t and not self.gone(j):
                self.cancelled.add(j)
                self.waiting.discard(j)
                self.reserved.pop(j, None)
                if j in self.where:
                    del self.where[j]
                    self.end[j] = t
        return happened

    def size(self, j: int) -> float:
        return self.jobs[j].tasks * self.jobs[j].demand[self.dominant(j)] / 1000

    def order(self, t: int) -> list[int]:
        def key(j: int) -> float:
            job = self.jobs[j]
            if self.queue == "fcfs":
                return 0
            if self.queue == "sjf":
                return job.limit
            if self.queue == "edf":
                return job.deadline
            if self.queue == "priority":
                return -job.priority
            if self.queue == "fair-share":
                return self.use[job.user]
            assert self.queue == "wfp3"
            s = (t - job.submit) / max(job.limit, 1)
            return -(s * s * s) * self.size(j)  # rounded as stated, for ties

        return sorted(self.waiting, key=lambda j: (key(j), self.jobs[j].submit, j))

    def run_on(self, j: int, places: list, t: int) -> None:
        self.waiting.discard(j)
        self.where[j] = places
        self.nodes[j] = [n for n, _ in places]
        self.last[j] = t
        if self.start[j] is None:
            self.start[j] = t
        self.free()  # asserts that no device is used twice

    def round(self, t: int) -> None:
        if self.backfilling == "conservative":
            self.conservative(t)
            return
        head = None
        tested = 0
        promised = NEVER
        for j in self.order(t):
            free, device = self.free()
            if head is not None:
                if tested >= self.depth:
                    break
                tested += 1
            places = self.gang(j, free, device)
            if places is None:
                if head is None:
                    if self.backfilling == "none":
                        break
                    head = j
                    promised = self.promise(j, t)
                    self.promises.append((j, promised))
                continue
            if head is not None and t + self.jobs[j].limit > promised:
                self.where[j] = places
                self.last[j], before = t, self.last[j]
                still = self.fits_at(head, promised, t)
                del self.where[j]
                self.last[j] = before
                if not still:
                    continue
            self.run_on(j, places, t)

    def conservative(self, t: int) -> None:
        """In order, each job gets the earliest second at which it fits for its whole limit.

        One that has a second to come keeps it, and its nodes, unless there is an earlier one.
        """
        order = self.order(t)
        self.reserved = {j: r for j, r in self.reserved.items() if j in self.waiting}
        for j in order[: self.depth]:
            kept = self.reserved.pop(j, None)
            limit = self.jobs[j].limit
            horizon = [self.last[i] + self.jobs[i].limit for i in self.where]
            horizon += [s + self.jobs[i].limit for i, (s, _) in self.reserved.items()]
            stop = max([*horizon, t]) + 1
            if kept is not None and kept[0] > t:
                stop = kept[0]
            for when in range(t, stop):
                windows = [self.planned(second, t) for second in range(when, when + max(limit, 1))]
                free = [
                    [min(w[0][n][k] for w in windows) for k in range(len(row))]
                    for n, row in enumerate(windows[0][0])
                ]
                device = [
                    [min(w[1][n][g] for w in windows) for g in range(len(row))]
                    for n, row in enumerate(windows[0][1])
                ]
                places = self.gang(j, free, device)
                if places is not None:
                    break
            else:
                if kept is not None and kept[0] > t:
                    self.reserved[j] = kept
                continue
            self.promises.append((j, when))
            if when == t and self.truly(j, places):
                self.run_on(j, places, t)
            else:
                self.reserved[j] = (when, places)

    def truly(self, j: int, places: list) -> bool:
        """Free in truth, not only expected to be."""
        free, device = self.free()
        for n, used in places:
            for k, d in enumerate(self.jobs[j].demand):
                free[n][k] -= d
                if free[n][k] < 0:
                    return False
            for g in used:
                device[n][g] -= min(self.jobs[j].demand[self.cluster.shared], 1000)
                if device[n][g] < 0:
                    return False
        return True

    def planned(self, second: int, t: int) -> tuple[list, list]:
        """What is free in a second to come if running jobs end when expected."""
        gone = {i for i in self.where if max(self.last[i] + self.jobs[i].limit, t) <= second}
        free, device = self.free(gone)
        for i, (s, places) in self.reserved.items():
            if max(s, t) <= second < s + self.jobs[i].limit:
                for n, used in places:
                    for k, d in enumerate(self.jobs[i].demand):
                        free[n][k] -= d
                    for g in used:
                        device[n][g] -= min(self.jobs[i].demand[self.cluster.shared], 1000)
        return free, device

    def fits_at(self, j: int, when: int, t: int) -> bool:
        """Job j fits at an instant if every running job ends when expected."""
        gone = {i for i in self.where if max(self.last[i] + self.jobs[i].limit, t) <= when}
        return self.gang(j, *self.free(gone)) is not None

    def promise(self, j: int, t: int) -> int:
        """First second at which job j fits if running jobs end when expected, walked one by one."""
        horizon = max([t] + [self.last[i] + self.jobs[i].limit for i in self.where])
        for when in range(t, horizon + 1):
            if self.fits_at(j, when, t):
                return when
        return NEVER

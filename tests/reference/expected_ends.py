"""EASY on one pool of processors with expected ends, as plainly as possible.

Run times are those of the user's last two jobs (Tsafrir et al. 2007). Everything is looked at anew
at every instant; nothing is shared with the package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

STEPS = [60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000]


@dataclass
class Pool:
    """Jobs are (submit, run, processors, request or inf, user), in the order of submission."""

    jobs: list[tuple[float, float, int, float, str]]
    processors: int
    queue: str = "fcfs"  # fcfs, sjf, saf, f1, f2, f3, f4, unicep, aged
    ends: str = "requested"
    passing: str = "queue"
    correction: str = "request"
    slack: float = math.inf
    start: dict[int, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    expected: dict[int, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    kept: dict[int, float] = field(default_factory=dict)

    def length(self, j: int) -> float:
        _, run, _, request, _ = self.jobs[j]
        if self.ends == "requested":
            return request if request < math.inf else run
        return run if self.ends == "true" else self.expected[j]

    def predict(self, j: int) -> None:
        *_, request, user = self.jobs[j]
        own = self.history.setdefault(user, [])
        every = [seconds for others in self.history.values() for seconds in others]
        if len(own) >= 2:
            guess = sum(own[-2:]) / 2
        elif request < math.inf:
            guess = request
        else:
            guess = sum(every) / len(every) if every else 3600.0
        self.expected[j] = max(min(guess, request), 1.0)

    def end(self, j: int, now: float) -> float:
        """When a running job is expected to end."""
        request, long = self.jobs[j][3], self.length(j)
        if self.ends == "learned":
            for more in [*STEPS, *(STEPS[-1] * k for k in range(2, 100))]:
                if self.start[j] + long > now or long >= request:
                    break
                at_once = self.correction == "request" and request < math.inf
                long = request if at_once else min(self.length(j) + more, request)
        return max(self.start[j] + long, now)

    def key(self, j: int, now: float) -> float:
        submit, _, n, _, _ = self.jobs[j]
        r, s, wait = self.length(j), max(submit - self.jobs[0][0], 1.0), now - submit
        return {
            "fcfs": lambda: 0.0,
            "sjf": lambda: r,
            "saf": lambda: r * n,
            "f1": lambda: math.log10(max(r, 1)) * n + 870 * math.log10(s),
            "f2": lambda: max(r, 1) ** 0.5 * n + 25600 * math.log10(s),
            "f3": lambda: max(r, 1) * n + 6860000 * math.log10(s),
            "f4": lambda: max(r, 1) * n**0.5 + 530000 * math.log10(s),
            "unicep": lambda: -wait / (max(math.log2(n), 1e-9) * max(r, 1)),
            "aged": lambda: r - 0.2 * wait,
        }[self.queue]()

    def free(self, then: float, ends: dict[int, float]) -> int:
        """Processors that are free if running jobs end so."""
        return self.processors - sum(self.jobs[j][2] for j, end in ends.items() if end > then)

    def running(self) -> list[int]:
        return [j for j in self.start if j not in self.ended]

    def first(self, need: int, ends: dict[int, float]) -> float:
        return next((t for t in sorted(ends.values()) if self.free(t, ends) >= need), math.inf)

    def round(self, now: float) -> None:
        waiting = [j for j in self.expected if j not in self.start]
        order = sorted(waiting, key=lambda j: (self.key(j, now), j))
        while order:
            need = self.jobs[order[0]][2]
            if self.processors - sum(self.jobs[j][2] for j in self.running()) < need:
                break
            self.start[order.pop(0)] = now
        if not order:
            return
        head, need = order[0], self.jobs[order[0]][2]
        rest = order[1:]
        if self.passing == "shortest":
            rest = sorted(rest, key=lambda j: (self.length(j), j))
        expected = {j: self.end(j, now) for j in self.running()}
        promised = self.first(need, expected)
        asked = {j: max(self.start[j] + self.jobs[j][3], now) for j in self.running()}
        kept = math.inf
        if self.slack < math.inf and self.ends != "requested":
            sure = self.first(need, asked)
            if sure < math.inf:
                submit = self.jobs[head][0]
                self.kept.setdefault(head, sure + min(self.slack, sure - submit))
                kept = max(self.kept[head], sure)
        for j in rest:
            if self.processors - sum(self.jobs[i][2] for i in self.running()) < self.jobs[j][2]:
                continue
            expects = {**expected, j: now + self.length(j)}
            asks = {**asked, j: now + self.jobs[j][3]}
            if promised < math.inf and self.free(promised, expects) < need:
                continue
            if kept < math.inf and self.free(kept, asks) < need:
                continue
            self.start[j] = now
            expected, asked = expects, asks

    def play(self) -> list[float]:
        """Starts of all jobs."""
        while len(self.ended) < len(self.jobs):
            coming = [job[0] for j, job in enumerate(self.jobs) if j not in self.expected]
            now = min([self.start[j] + self.jobs[j][1] for j in self.running()] + coming)
            over = sorted((self.start[j] + self.jobs[j][1], j) for j in self.running())
            for end, j in over:
                if end <= now:
                    self.ended.add(j)
                    self.history.setdefault(self.jobs[j][4], []).append(self.jobs[j][1])
            for j, job in enumerate(self.jobs):
                if job[0] <= now and j not in self.expected:
                    self.predict(j)
            self.round(now)
        return [self.start[j] for j in range(len(self.jobs))]

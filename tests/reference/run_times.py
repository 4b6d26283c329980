"""The distribution of a run time, said plainly: lists of jobs, dictionaries of weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

BINS, WIDTH = 64, 0.25


@dataclass
class PlainMemory:
    """All jobs that have ended, oldest first: (user, name, request, size, seconds, when)."""

    jobs: list[tuple[int, int, float, float, float, float]] = field(default_factory=list)
    cells: list[list[list[float]]] = field(default_factory=lambda: [[], [], []])

    def level(self, user: int) -> int:
        """Whether no job of a user has ended, up to four, or more."""
        known = sum(job[0] == user for job in self.jobs)
        return (known > 0) + (known > 4)

    def locate(self, level: int, mass: list[float], request: float, seconds: float) -> None:
        """Where a run time lay in a distribution: a share of each of twenty cells."""
        low = min(int(20 * below(mass, min(seconds, 0.999999 * request))), 19)
        high = 20 if seconds >= request else low + 1
        self.cells[level].append([(low <= k < high) / (high - low) for k in range(20)])

    def recalibrated(self, level: int, mass: list[float]) -> list[float]:
        """G(F): cells have the probability with which run times lay in them, newest first."""
        seen, G = self.cells[level][::-1], [0.0]
        for k in range(20):
            count = sum(0.998**i * at[k] for i, at in enumerate(seen))
            G.append(G[-1] + count + 0.998 ** len(seen))
        x = [min(20.0 * sum(mass[: b + 1]), 20.0) for b in range(BINS)]
        cut = [min(int(at), 19) for at in x]
        F = [(G[k] + (at - k) * (G[k + 1] - G[k])) / G[20] for k, at in zip(cut, x, strict=True)]
        return [now - before for now, before in zip(F, [0.0, *F[:-1]], strict=True)]

    def mass(self, user: int, name: int, request: float, size: float, now: float) -> list[float]:
        newest = self.jobs[::-1]
        belief = [1 / BINS] * BINS
        belief = posterior(belief, [(0.937**k, job[4]) for k, job in enumerate(newest)], 2.0, 0.0)
        if request < math.inf:
            alike = [job for job in newest if octave(job[2]) == octave(request)]
            seen = [(0.937**k, job[4]) for k, job in enumerate(alike)]
            belief = posterior(belief, seen, 0.57, 0.0)
        own = [job for job in newest if job[0] == user][:64]
        named = [job for job in own if job[1] == name]
        same = [job for job in named if job[2:4] == (request, size)]
        for some, gamma, c in ((own, 0.636, 1.4), (named, 0.683, 0.53), (same, 0.994, 7.9)):
            seen = []
            for k, job in enumerate(some):
                seconds = min(job[4], request)
                if job[4] >= 0.97 * job[2]:  # ran to its request, and would again
                    seconds = request if request < math.inf else job[2]
                recent = 0.314 + 0.686 * math.exp(-(now - job[5]) / 150.0)
                seen.append((gamma**k * recent, seconds))
            belief = posterior(belief, seen, c, 0.52)
        return belief


def below(mass: list[float], seconds: float) -> float:
    """Probability of at most so many seconds; each cell is even about its centre."""
    at = math.log(seconds) / WIDTH + 0.5
    return sum(m * min(max(at - b, 0.0), 1.0) for b, m in enumerate(mass)) if seconds > 0 else 0.0


def octave(request: float) -> int:
    if request == math.inf:
        return 0
    return min(47, max(1, int(2 * math.log2(max(request, 1.0)))))


def posterior(
    before: list[float], seen: list[tuple[float, float]], c: float, blur: float
) -> list[float]:
    """Dirichlet posterior with c of prior weight, of weighted run times."""
    h = [0.0] * BINS
    for weight, seconds in seen:
        at = min(math.log(max(seconds, 1.0)) / WIDTH, BINS - 1.001)
        h[int(at)] += weight * (1 - at % 1)
        h[int(at) + 1] += weight * (at % 1)
    beside = [(h[max(b - 1, 0)] + h[min(b + 1, BINS - 1)]) / 2 for b in range(BINS)]
    n = sum(h)
    return [
        ((1 - blur) * own + blur * near + c * q) / (n + c)
        for own, near, q in zip(h, beside, before, strict=True)
    ]

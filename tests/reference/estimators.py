"""Estimators in plain Python: everything that was told is kept, and every estimate begins anew."""

from __future__ import annotations

import math


class History:
    """Everything that was told, in the order in which it came: (slot, arm, value)."""

    def __init__(self):
        self.told: list[tuple[int, int, float]] = []

    def add(self, slot, arms, values) -> None:
        for arm, value in zip(arms, values):
            self.told.append((slot, int(arm), float(value)))

    def learn(self, feedback) -> None:
        for each in feedback:
            self.add(each.slot, each.channels, each.utilities)

    def of(self, arm: int, since: int = 0) -> list[float]:
        return [v for slot, a, v in self.told if a == arm and slot >= since]

    def count(self, arm: int, since: int = 0) -> int:
        return len(self.of(arm, since))

    def mean(self, arm: int, since: int = 0) -> float:
        mine = self.of(arm, since)
        return sum(mine) / len(mine) if mine else 0.0


def everything(history, arm, slot):
    """Plays and what they brought."""
    mine = history.of(arm)
    return float(len(mine)), sum(mine)


def discounted(kappa):
    def memory(history, arm, slot):
        mine = [(kappa ** (slot - 1 - s), v) for s, a, v in history.told if a == arm]
        return sum(w for w, _ in mine), sum(w * v for w, v in mine)

    return memory


def window(length):
    def memory(history, arm, slot):
        mine = history.of(arm, slot - length)
        return float(len(mine)), sum(mine)

    return memory


def ucb(total, plays, gamma):
    """(12)–(14) of OPS and OPM."""
    mean = total / (plays + 1)
    radius = math.sqrt(gamma * mean / (plays + 1)) + gamma / (plays + 1)
    return min(1.0, mean + 2 * radius)


def ucb1(total, plays, coefficient, slots):
    """Cut off at 1; ``slots`` is how many slots the plays stand for."""
    if not plays:
        return 1.0
    return min(1.0, total / plays + math.sqrt(coefficient * math.log(slots + 1) / max(plays, 1)))


def decay(history, arm, slot, tau, pull, prior):
    mine = [(s, v) for s, a, v in history.told if a == arm]
    if not mine:
        return prior
    everyone = sum(v for _, _, v in history.told) / len(history.told)
    mean = (sum(v for _, v in mine) + pull * everyone) / (len(mine) + pull)
    at, last = max(mine)
    return mean + (last - mean) * math.exp(-max(slot - 1 - at, 0) / tau)

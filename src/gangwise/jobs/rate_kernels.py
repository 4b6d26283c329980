"""Compiled hooks of what is believed about rates; here the simplest ones: labels, and no waiting.

A simulation calls these functions and nothing else. ``Beliefs`` is the whole state of a learner: a
named tuple of arrays that the functions change in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.jit import kernel

__all__ = [
    "Beliefs",
    "believe",
    "finished",
    "migrate",
    "no_beliefs",
    "observe",
    "released",
    "remaining",
    "score",
    "wait",
]


class Beliefs(NamedTuple):
    """State of a learner.

    Attributes
    ----------
    labels : ndarray [L, N]
        Logarithms of the declared rates.
    """

    labels: Floats


def no_beliefs(L: int, N: int) -> Beliefs:
    """Labels all alike."""
    return Beliefs(np.zeros((L, N)))


@kernel
def believe(state: Beliefs, l: int, now: float, mean: Floats, sd: Floats) -> None:
    """Put mean and sd of the log rate of job type l on every node in ``mean``, ``sd`` [N]."""
    for n in range(mean.size):
        mean[n] = state.labels[l, n]
        sd[n] = 0.0


@kernel
def observe(
    state: Beliefs, l: int, nodes: Ints, log_rates: Floats, count: int, first: bool, now: float
) -> None:
    """Learn from one gang: its first ``count`` pieces ran on ``nodes`` at ``log_rates``."""


@kernel
def finished(state: Beliefs, limit: float, work: float, now: float) -> None:
    """Learn how run times relate to limits; ``work`` as measured: seconds × the rate seen."""


@kernel
def released(state: Beliefs, node: int, devices: float, now: float) -> None:
    """Devices of the dominant type that became free on a node."""


@kernel
def remaining(state: Beliefs, limit: float, done: float) -> float:
    """Work expected to be left of a job with a limit that has done some (limits of work only)."""
    return max(limit - done, 0.0)


@kernel
def score(
    state: Beliefs, limit: float, mean: Floats, sd: Floats, free: Floats, out: Floats
) -> None:
    """Worth of each node for a task, larger is better: log rate − 0.003 · free devices [N]."""
    for n in range(out.size):
        out[n] = mean[n] - 0.003 * free[n]


@kernel
def wait(
    state: Beliefs,
    l: int,
    tasks: int,
    devices: float,
    limit: float,
    log_rate: float,
    mean: Floats,
    waiting: int,
    waited: float,
    now: float,
) -> float:
    """Seconds to wait for better nodes than a gang could start on now, at ``log_rate``."""
    return 0.0


@kernel
def migrate(
    state: Beliefs, l: int, limit: float, done: float, log_rate: float, other: float, restart: float
) -> bool:
    """Whether a job running at ``log_rate`` had better stop and go on at ``other``."""
    return False

"""Random instances of P3 with everything that makes trouble."""

from __future__ import annotations

import numpy as np

from gangwise.papers.fluctuating_speeds.solver import P3Solution, P3Solver

EXACT = {"nodes": 1 << 40}
"""Options for branch and bound to its end."""


def solve(v, s, a, c, **options) -> P3Solution:
    """Solve P3 once."""
    return P3Solver(a, c).solve(v, s, **options)


def random_instance(rng: np.random.Generator, most: int = 9, whole: bool = False):
    """v, s, a, c; whole numbers throughout and v ≥ 0 when asked to."""
    E, K = int(rng.integers(0, most + 1)), int(rng.integers(1, 5))
    if whole:
        a = rng.integers(0, 4, (E, K)).astype(float)
        c = rng.integers(0, 7, K).astype(float)
        return rng.integers(0, 5, E).astype(float), rng.integers(0, 20, E).astype(float), a, c
    a = rng.integers(0, 4, (E, K)) * rng.choice([1.0, 0.1, 0.37])
    c = rng.uniform(0, 0.8) * a.sum(axis=0) if rng.random() < 0.8 else rng.integers(0, 5, K) * 1.0
    v = rng.normal(0.2, 0.5, E)
    s = rng.exponential(1, E) * 10.0 ** rng.integers(-5, 4)
    if rng.random() < 0.3:  # ties
        v, s = np.round(2 * v) / 2, np.round(s)
    s[rng.random(E) < rng.choice([0.0, 0.3, 1.0])] = 0.0
    return v, s, a, c


def default_size(rng: np.random.Generator, E: int = 32, K: int = 3, t: int = 2000):
    """An instance such as slot t of the paper's default size."""
    a = rng.integers(1, 3, (E, K)).astype(float)
    c = np.floor(0.5 * a.sum(axis=0))
    v = rng.uniform(0, 1, E)
    return v, np.log(t + 1) / (2 * rng.integers(1, t, E)), a, c

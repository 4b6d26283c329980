"""Change points against clusters that were drawn, and against a search of everything."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise.service.account import FACTORS, FEWEST_JOBS, SURE, speed_changes


def drawn(seed: int, drifts: int, nodes: int = 32, jobs: int = 1500, noise: float = 0.1):
    """Gangs of one to four nodes; some nodes had another speed at first."""
    rng = np.random.default_rng(seed)
    now, times = rng.normal(0.0, 0.3, nodes), np.sort(rng.uniform(0.0, 1.0, jobs))
    gangs = [rng.choice(nodes, rng.integers(1, 5), replace=False).tolist() for _ in times]
    which = rng.choice(nodes, drifts, replace=False)
    other = {int(n): (rng.uniform(0.3, 0.7), rng.choice([-0.7, 0.7])) for n in which}

    def log(node: int, time: float) -> float:
        until, delta = other.get(node, (0.0, 0.0))
        return float(now[node] + (delta if time < until else 0.0))

    rates = [min(log(n, t) for n in gang) for gang, t in zip(gangs, times)]
    believed = [now[gang] for gang in gangs]
    return np.array(rates) + rng.normal(0.0, noise, jobs), times, gangs, believed, other


@pytest.mark.parametrize("seed", range(4))
def test_nodes_that_changed_are_found_and_no_others(seed):
    *given, other = drawn(seed, drifts=3)
    found = {change.node: change for change in speed_changes(*given)}
    assert found.keys() <= other.keys()
    for node, change in found.items():
        until, delta = other[node]
        assert math.log(change.factor) == pytest.approx(delta, abs=0.3)
        assert change.time == pytest.approx(until, abs=0.3)
    assert len(found) >= 2


def test_where_nothing_changed_nothing_is_found():
    """Also where beliefs are off, of each node and type of job in its own way."""
    for seed in range(6):
        rates, times, gangs, believed, _ = drawn(seed, drifts=0)
        assert speed_changes(rates, times, gangs, believed) == []
        off = np.random.default_rng([seed, 1]).normal(0.0, 0.1, (2, 32))
        kind = np.random.default_rng([seed, 2]).integers(0, 2, len(gangs))
        believed = [b + off[l][gang] for b, l, gang in zip(believed, kind, gangs)]
        assert speed_changes(rates, times, gangs, believed) == []
    assert speed_changes(np.zeros(0), np.zeros(0), [], []) == []


@pytest.mark.full
def test_the_first_change_is_the_best_there_is():
    """Every node, time and factor, one by one."""
    rates, times, gangs, believed, _ = drawn(0, drifts=1, nodes=5, jobs=60, noise=0.05)
    rates[7] += 5.0  # a job that nothing explains moves nothing: squares are cut off
    first = speed_changes(rates, times, gangs, believed)[0]
    plain = np.array([min(b) for b in believed])
    sigma = max(1.4826 * np.median(np.abs(rates - plain)), SURE)

    def cost(jobs: list[int], node: int, factor: float) -> float:
        total = 0.0
        for j in jobs:
            logs = [x + (factor if n == node else 0.0) for n, x in zip(gangs[j], believed[j])]
            total += min(((rates[j] - min(logs)) / sigma) ** 2, 9.0)
        return total

    def best(jobs: list[int], node: int) -> tuple[float, float]:
        return min((cost(jobs, node, factor), factor) for factor in FACTORS)

    saved = {}
    for node in range(5):
        mine = [j for j, gang in enumerate(gangs) if node in gang]
        for k in range(FEWEST_JOBS, len(mine) - FEWEST_JOBS + 1):
            early, late = best(mine[:k], node), best(mine[k:], node)
            gain = best(mine, node)[0] - early[0] - late[0]
            middle = (times[mine[k - 1]] + times[mine[k]]) / 2
            saved.setdefault(round(gain, 6), (node, middle, early[1] - late[1]))
    node, middle, delta = saved[max(saved)]
    assert first.node == node
    assert first.time == pytest.approx(middle)
    assert math.log(first.factor) == pytest.approx(delta)

"""Change points against clusters that were drawn, and against a search of everything."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise.service.changes import FACTORS, FEWEST, SURE, changes


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


@pytest.mark.parametrize("seed", range(10))
def test_nodes_that_changed_are_found_and_no_others(seed):
    *given, other = drawn(seed, drifts=3)
    found = {change.node: change for change in changes(*given)}
    assert found.keys() <= other.keys()
    for node, change in found.items():
        until, delta = other[node]
        assert math.log(change.factor) == pytest.approx(delta, abs=0.3)
        assert change.time == pytest.approx(until, abs=0.3)
    assert len(found) >= 2


def test_where_nothing_changed_nothing_is_found():
    assert [changes(*drawn(seed, drifts=0)[:-1]) for seed in range(20)] == [[]] * 20
    assert changes(np.zeros(0), np.zeros(0), [], []) == []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_change_is_the_best_there_is(seed):
    """Every node, time and factor, one by one."""
    rates, times, gangs, believed, _ = drawn(seed, drifts=1, nodes=5, jobs=60, noise=0.05)
    rates[7] += 5.0  # a job that nothing explains moves nothing: squares are cut off
    first = changes(rates, times, gangs, believed)[0]
    plain = np.array([min(b) for b in believed])
    sigma = max(1.4826 * np.median(np.abs(rates - plain)), SURE)

    def cost(node: int, before: int, factor: float) -> float:
        total, seen = 0.0, 0
        for y, gang, b in zip(rates, gangs, believed):
            early = node in gang and seen < before
            seen += node in gang
            at = min(x + (factor if early and n == node else 0.0) for n, x in zip(gang, b))
            total += min(((y - at) / sigma) ** 2, 9.0)
        return total

    tried = {
        (node, before, factor): cost(node, before, factor)
        for node in range(5)
        for before in range(FEWEST, sum(node in gang for gang in gangs))
        for factor in FACTORS
    }
    node, before, factor = min(tried, key=lambda key: tried[key])
    mine = [t for t, gang in zip(times, gangs) if node in gang]
    assert first.node == node
    assert math.log(first.factor) == pytest.approx(factor)
    assert first.time == pytest.approx((mine[before - 1] + mine[before]) / 2)

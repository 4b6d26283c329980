"""The paper's baselines against plain twins, over whole runs."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise import create_policy, create_scenario
from gangwise.papers.fluctuating_speeds.environment import Observation
from tests.papers.fluctuating_speeds.cases import problem, random_instance
from tests.papers.fluctuating_speeds.test_esdp import follow
from tests.reference.fluctuating_speeds import by_job_type, choices, in_turn


def job_type_means(p, history):
    return [
        sum(history.mean(e) for e in range(p.E) if p.channels.job_type[e] == l) for l in range(p.L)
    ]


@pytest.mark.parametrize("name", ["hauf", "hswf", "hauf:stop=True"])
@pytest.mark.parametrize("seed", range(3))
def test_hauf(name, seed):
    """ESDP §4."""
    instance = random_instance(seed)
    p = instance.problem
    for _, arrivals, chosen, history in follow(name, instance, seed, 80):
        score = job_type_means(p, history)
        assert chosen == by_job_type(p, arrivals, score, "stop" in name)


@pytest.mark.parametrize("seed", range(3))
def test_hauf_channel(seed):
    instance = random_instance(seed)
    p = instance.problem
    for _, arrivals, chosen, history in follow("hauf-channel", instance, seed, 80):
        order = sorted(range(p.E), key=lambda e: (-round(history.mean(e), 9), p.cost[e]))
        assert chosen == in_turn(p, arrivals, order)


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_lcf(seed, stop):
    instance = random_instance(seed)
    p = instance.problem
    score = [-p.cost[p.channels.job_type == l].mean() for l in range(p.L)]
    for _, arrivals, chosen, _ in follow(f"lcf:stop={stop}", instance, seed, 80):
        assert chosen == by_job_type(p, arrivals, score, stop)


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_lwtf(seed, stop):
    instance = random_instance(seed)
    p, served = instance.problem, {}
    for t, arrivals, chosen, _ in follow(f"lwtf:stop={stop}", instance, seed, 80):
        waited = [t - served.get(l, -1) for l in range(p.L)]
        assert chosen == by_job_type(p, arrivals, waited, stop)
        served.update((int(p.channels.job_type[e]), t) for e in chosen)


@pytest.mark.parametrize("setting", ["fraction=0.25", "fraction=0.5"])
@pytest.mark.parametrize("name", ["hauf", "lcf", "lwtf"])
def test_every_slot_of_the_default_size_is_the_plain_reading(name, setting):
    """Ties, sums over channels and what is skipped show at 32 channels and not at eight."""
    instance = create_scenario(f"esdp-default-v1:{setting}").instance(100)
    p, served = instance.problem, {}
    cost = [-p.cost[p.channels.job_type == l].mean() for l in range(p.L)]
    for t, arrivals, chosen, history in follow(name, instance, 100, 150):
        waited = [t - served.get(l, -1) for l in range(p.L)]
        score = {"hauf": job_type_means(p, history), "lcf": cost, "lwtf": waited}[name]
        assert chosen == by_job_type(p, arrivals, score)
        served.update((int(p.channels.job_type[e]), t) for e in chosen)


def test_by_hand():
    """Job type 0 is cheap, job type 1 has waited; one of them fits."""
    p = problem([1, 1], 1, cost=[0.1, 0.2])
    lcf, lwtf = create_policy("lcf"), create_policy("lwtf")
    for policy in (lcf, lwtf):
        policy.start(p, np.random.default_rng(0))
    both = np.array([1, 1])
    first = [policy.decide(Observation(0, both)).tolist() for policy in (lcf, lwtf)]
    second = [policy.decide(Observation(1, both)).tolist() for policy in (lcf, lwtf)]
    assert first == [[True, False], [True, False]]
    assert second == [[True, False], [False, True]]


def test_random_tries_everything_and_wastes_nothing():
    instance = random_instance(4)
    p, seen = instance.problem, set()
    for _, arrivals, chosen, _ in follow("random-channels", instance, 4, 300):
        larger = [c for c in choices(p, arrivals) if set(c) > chosen]
        assert not larger
        seen |= chosen
    assert seen == set(range(p.E))

"""Every policy keeps to the contract; contenders do what their papers say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gangwise import ScenarioError, check_policy, create_policy, simulate
from gangwise.core.registry import entries
from gangwise.papers.fluctuating_speeds.environment import Feedback, Observation, pseudo_regret
from tests.papers.fluctuating_speeds.cases import POLICIES, random_instance
from tests.papers.fluctuating_speeds.test_esdp import follow
from tests.reference.estimators import History, decay, discounted
from tests.reference.fluctuating_speeds import best, worth


@pytest.mark.parametrize("name", POLICIES)
def test_contract(name):
    check_policy(create_policy(name), problems=4)


def test_every_registered_policy_is_tried():
    registered = {n for n, e in entries("policy").items() if e.family == "fluctuating_speeds"}
    assert registered == {name.partition(":")[0] for name in POLICIES}


@pytest.mark.parametrize(
    "name", ["esdp", "cucb", "thompson-beta", "thompson-gaussian", "epsilon-greedy"]
)
def test_any_memory_keeps_to_the_contract(name):
    for memory in ("discounted", "window"):
        check_policy(create_policy(f"{name}:memory={memory},discount=0.9,window=5"), problems=2)


def test_cucb_takes_the_best_of_what_its_estimator_says():
    instance, none = random_instance(2, E=7), [0.0] * 7
    policy = "cucb:estimator=decay,tau=4"
    for t, arrivals, chosen, history in follow(policy, instance, 2, 60):
        v = [decay(history, e, t, 4.0, 30.0, 1.0) for e in range(7)]
        s = [0.0 if history.count(e) else math.inf for e in range(7)]
        most, value = best(instance.problem, arrivals, v, s)
        if most:
            assert sum(history.count(e) == 0 for e in chosen) == most
        else:
            assert worth(sorted(chosen), v, none) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_cucb_takes_the_best_of_its_bounds(seed):
    instance, none = random_instance(seed, E=7), [0.0] * 7
    for t, arrivals, chosen, history in follow("cucb:coefficient=0.5", instance, seed, 60):
        n = [history.count(e) for e in range(7)]
        v = [history.mean(e) + math.sqrt(0.5 * math.log(t + 2) / max(n[e], 1)) for e in range(7)]
        s = [0.0 if n[e] else math.inf for e in range(7)]
        most, value = best(instance.problem, arrivals, v, s)
        if most:
            assert sum(n[e] == 0 for e in chosen) == most
        else:
            assert worth(sorted(chosen), v, none) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_maxweight_takes_the_best_of_jobs_that_wait_times_their_bounds(seed):
    p, rng, history = random_instance(seed, E=7).problem, np.random.default_rng(seed), History()
    policy, T, none = create_policy("maxweight:T=64,coefficient=0.5"), 64, [0.0] * 7
    policy.start(p, rng)
    faded = discounted(1 - 8 * math.log(T) / T)
    for t in range(60):
        queue = rng.integers(0, 6, p.L)
        told = [faded(history, e, t) for e in range(7)]
        bound = [
            total / n + min(1, 0.5 * math.sqrt(math.log(T) / n)) if n else 1 for n, total in told
        ]
        v = [queue[p.channels.job_type[e]] * bound[e] for e in range(7)]
        on = np.flatnonzero(policy.decide(Observation(t, queue)))
        _, value = best(p, queue, v, none)
        assert worth(on, v, none) == pytest.approx(value, rel=2e-6)
        feedback = (Feedback(t, on, rng.random(on.size)),)
        policy.learn(feedback)
        history.learn(feedback)


@pytest.mark.full
def test_greedy_takes_the_best_of_its_means_unless_it_explores():
    instance, none = random_instance(1, E=7), [0.0] * 7
    departures = {}
    for name in (
        "epsilon-greedy:epsilon=0",
        "epsilon-greedy:epsilon=0.3",
        "epsilon-greedy-decaying",
    ):
        away = []
        for _, arrivals, chosen, history in follow(name, instance, 3, 400):
            v = [history.mean(e) for e in range(7)]
            s = [0.0 if history.count(e) else math.inf for e in range(7)]
            most, value = best(instance.problem, arrivals, v, s)
            away.append(most == 0 and worth(sorted(chosen), v, none) < value * (1 - 2e-6))
        departures[name] = away
    assert not any(departures["epsilon-greedy:epsilon=0"])
    assert 0.1 < np.mean(departures["epsilon-greedy:epsilon=0.3"]) <= 0.4
    decaying = departures["epsilon-greedy-decaying"]
    assert sum(decaying[:100]) > 3 * sum(decaying[300:])


@pytest.mark.full
def test_thompson_samples_narrow_around_the_means():
    """After many plays of everything both play the best choice for the true means."""
    for name in ("thompson-beta", "thompson-gaussian"):
        curve = pseudo_regret(simulate(random_instance(5), create_policy(name), 3000, 5))
        assert curve[-1] - curve[1999] < 0.25 * curve[999] + 1e-9
        assert curve[-1] > 0


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "esdp",
        "escb",
        "cucb",
        "thompson-beta",
        "thompson-gaussian",
        "epsilon-greedy",
        "epsilon-greedy-decaying",
        "hauf-channel",
    ],
)
def test_learning_beats_chance_by_far(name):
    regret = {
        p: sum(
            pseudo_regret(simulate(random_instance(s, E=12), create_policy(p), 1500, s))[-1]
            for s in range(2)
        )
        for p in (name, "random-channels")
    }
    assert regret[name] < 0.5 * regret["random-channels"]


@pytest.mark.parametrize(
    "name",
    [
        "cucb:coefficient=-1",
        "maxweight:T=2",
        "thompson-gaussian:spread=-1",
        "epsilon-greedy:epsilon=2",
        "epsilon-greedy-decaying:epsilon=-1",
        "thompson-beta:memory=window,window=0",
        "gang-esdp:memory=discounted,discount=2",
    ],
)
def test_bad_arguments(name):
    with pytest.raises(ScenarioError, match=r"is -?\d"):
        create_policy(name)


def test_decaying_epsilon_explores_e_times_as_often_as_one_in_t():
    instance, slots, seeds = random_instance(0, E=7), 400, 12
    explored = np.zeros(slots)
    for seed in range(seeds):
        policy = create_policy("epsilon-greedy-decaying", epsilon=1.0)
        env = instance.environment()
        env.start(*np.random.default_rng(seed).spawn(2))
        policy.start(env.problem, np.random.default_rng(seed))
        schedule, drawn = policy._list.schedule, []
        policy._list.schedule = lambda order, s=schedule, drawn=drawn: drawn.append(1) or s(order)
        for t in range(slots):
            before = len(drawn)
            x = policy.decide(env.observe(t, "react"))
            policy.learn(env.step(t, x).feedback)
            explored[t] += len(drawn) - before
    chance = np.minimum(1.0, 7 / (np.arange(slots) + 1))
    assert (explored[:7] == seeds).all()
    sd = np.sqrt(seeds * (chance * (1 - chance)).sum())
    assert abs(explored.sum() - seeds * chance.sum()) < 4 * sd

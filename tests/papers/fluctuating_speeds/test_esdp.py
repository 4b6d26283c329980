"""ESDP against cases worked by hand, a plain twin, and what its regret should look like."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gangwise import ScenarioError, UnknownName, create_policy, create_scenario, simulate
from gangwise.core.simulation import Streams
from gangwise.core.workload import Delivery
from gangwise.papers.fluctuating_speeds.environment import Feedback, Observation, pseudo_regret
from gangwise.papers.fluctuating_speeds.policies import DELTAS, EXPLORATIONS, delta
from tests.papers.fluctuating_speeds.cases import problem, random_instance
from tests.reference.estimators import History, discounted, window
from tests.reference.fluctuating_speeds import best, choices, worth

HAND = {"g": "default", "alpha": 0.5}  # with two channels, α|E| = 1


def taught(policy, p, story):
    """Start a policy and have it told a story of (x, utilities), whatever it decides itself."""
    policy.start(p, np.random.default_rng(0))
    for t, (x, z) in enumerate(story):
        x = np.array(x, dtype=bool)
        policy._pending.expect(t, x)
        policy.learn((Feedback(t, np.flatnonzero(x), np.array(z)),))
    return policy


def test_hand_case_h3():
    """Two slots by hand: (9), (10), (14), (16)–(18), and the choice for c = 1. ESDP (8)–(10)."""
    story = [((1, 1), (0.4, 0.8)), ((1, 0), (0.6,))]
    p = problem([1, 1], 1)
    exact = taught(create_policy("escb", **HAND), p, story)
    v, s = exact.scores(2)
    g = 4.865261106
    np.testing.assert_allclose(v, [0.5, 0.8], rtol=1e-9)
    np.testing.assert_allclose(s, [g / 4, g / 2], rtol=1e-9)
    np.testing.assert_array_equal(exact.decide(Observation(2, np.array([1, 1]))), [False, True])
    printed = taught(create_policy("esdp-as-printed", **HAND), p, story)
    upsilon, sigma = printed.scores(2)
    np.testing.assert_array_equal(upsilon, [1, 2])
    np.testing.assert_array_equal(sigma, [5, 10])
    np.testing.assert_array_equal(printed.decide(Observation(2, np.array([1, 1]))), [False, True])


def test_hand_case_h7():
    """Switching absent job types off afterwards wastes the slot; Ω(t) does not."""
    p = problem([1, 1], 1)
    story = [((t % 2 == 0, t % 2 == 1), ((0.9, 0.5)[t % 2],)) for t in range(200)]
    seen = Observation(200, np.array([0, 1]))
    printed = taught(create_policy("esdp-as-printed"), p, story)
    np.testing.assert_array_equal(printed.decide(seen), [False, False])
    np.testing.assert_array_equal(
        taught(create_policy("esdp"), p, story).decide(seen), [False, True]
    )


def _index(v, s, correlation, chosen):
    """The optimistic worth of a choice, in the paper's own terms."""
    at = list(chosen)
    apart, together = math.sqrt(s[at].sum()), np.sqrt(s[at]).sum()
    return v[at].sum() + math.sqrt(1 - correlation) * apart + math.sqrt(correlation) * together


@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
def test_the_width_covers_noise_that_correlates_and_the_choice_is_the_widest(correlation):
    for seed in range(8):
        p, rng = random_instance(seed, E=7).problem, np.random.default_rng(seed)
        policy = create_policy("esdp", correlation=correlation)
        story = [(rng.integers(0, 2, 7), 0) for _ in range(12)] + [(np.ones(7), 0)]
        taught(policy, p, [(x, rng.random(int(x.sum()))) for x, _ in story])
        v, s = policy.scores(len(story))
        noise = correlation * np.sqrt(np.outer(s, s)) + (1 - correlation) * np.diag(s)

        index = partial(_index, v, s, correlation)
        every = [c for c in choices(p, np.ones(p.L)) if c]
        for chosen in every:
            x = np.isin(np.arange(7), list(chosen))
            exact = v[x].sum() + math.sqrt(x @ noise @ x)
            assert exact - 1e-9 <= index(chosen)
            assert index(chosen) - v[x].sum() <= math.sqrt(2 * (x @ noise @ x)) + 1e-9
        played = np.flatnonzero(policy.decide(Observation(len(story), np.ones(p.L, dtype=int))))
        assert index(played) == pytest.approx(max(map(index, every)), rel=1e-6)


def test_sequences_are_those_of_the_figures():
    """ESDP (11), ESDP (14)."""
    t, m = 2000.0, 16.0
    inner = math.log(math.log(2001) + 1)
    assert EXPLORATIONS["log"](t, m) == pytest.approx(math.log(2001))
    assert EXPLORATIONS["loglog"](t, m) == pytest.approx(4 * inner * 16)
    assert EXPLORATIONS["default"](t, m) == pytest.approx(math.log(2001) + 4 * inner * 16)
    assert DELTAS["default"](t) == pytest.approx(0.31727, abs=1e-5)
    assert DELTAS["log"](t) == pytest.approx(1 / (math.log(2001) + 1))
    assert DELTAS["loglog-no-plus-one"](1) == pytest.approx(1.90, abs=5e-3)
    assert DELTAS["triple"](t) == pytest.approx(1 / (math.log(inner + 1) + 1))


def follow(name, instance, seed, slots):
    """What a policy decided, with the plain history as it was before each decision."""
    policy, history = create_policy(name), History()
    streams = Streams.of(seed)
    environment = instance.environment()
    environment.start(streams.workload, streams.noise)
    policy.start(environment.problem, streams.policy)
    for t in range(slots):
        seen = environment.observe(t, "react")
        x = policy.decide(seen)
        yield t, seen.arrivals, set(np.flatnonzero(x).tolist()), history
        outcome = environment.step(t, x)
        policy.learn(outcome.feedback)
        history.learn(outcome.feedback)


G = {
    "esdp": lambda t, m: math.log(t + 1),
    "esdp:kappa=0.25": lambda t, m: 0.25 * math.log(t + 1),
    "escb": lambda t, m: math.log(t + 1) + 4 * math.log(math.log(t + 1) + 1) * m,
    "esdp-as-printed": lambda t, m: math.log(t + 1) + 4 * math.log(math.log(t + 1) + 1) * m,
}


@pytest.mark.parametrize("name", G)
@pytest.mark.parametrize("seed", range(3))
def test_every_choice_is_the_best_of_all(name, seed):
    """(9), (10) and P3 recomputed from the whole history, every feasible x tried.

    ESDP Algorithm 1.
    """
    instance = random_instance(seed, E=7)
    if seed == 2:
        instance = replace(instance, delivery=Delivery(2.0, "geometric", loss=0.2))
    p, E = instance.problem, 7
    compared = 0
    for t, arrivals, chosen, history in follow(name, instance, seed, 60):
        n = [history.count(e) for e in range(E)]
        v = [history.mean(e) for e in range(E)]
        g = G[name](t + 1, E / 2)
        s = [g / (2 * n[e]) if n[e] else math.inf for e in range(E)]
        able = arrivals
        if name == "esdp-as-printed":
            inner = math.log(math.log(t + 2) + 1)
            xi = math.ceil(E / 2 * (inner + 1))
            v = [float(math.ceil(xi * u - 1e-9)) for u in v]
            s = [float(math.ceil(xi**2 * w - 1e-9)) if w < math.inf else w for w in s]
            if not arrivals.all():
                continue  # what it switches off afterwards cannot be seen
        most, value = best(p, able, v, s)
        assert tuple(sorted(chosen)) in set(choices(p, arrivals))
        if most:
            assert sum(math.isinf(s[e]) for e in chosen) == most
        else:
            compared += 1
            assert worth(sorted(chosen), v, s) == pytest.approx(value, rel=2e-6, abs=1e-9)
    assert compared > 10


def test_drift_variants_use_their_own_memory():
    instance = random_instance(0, E=6)
    for name, memory in (
        ("esdp-window:window=8", window(8)),
        ("esdp-discounted:discount=0.8", discounted(0.8)),
    ):
        for t, arrivals, chosen, history in follow(name, instance, 1, 50):
            told = [memory(history, e, t) for e in range(6)]
            n = [w if w >= 1e-3 else 0.0 for w, _ in told]
            v = [u / w if w else 0.0 for w, u in told]
            horizon = {"esdp-w": min(t + 1, 8), "esdp-d": (1 - 0.8 ** (t + 1)) / 0.2}
            g = math.log(horizon.get(name[:6], t + 1) + 1)
            s = [g / (2 * n[e]) if n[e] else math.inf for e in range(6)]
            most, value = best(instance.problem, arrivals, v, s)
            if most:
                assert sum(math.isinf(s[e]) for e in chosen) == most
            else:
                assert worth(sorted(chosen), v, s) == pytest.approx(value, rel=2e-6)


def test_noise_that_correlates_entirely_leaves_channels_never_used_first():
    instance = create_scenario("esdp-default-v1:servers=5").instance(seed=0)
    run = simulate(instance, create_policy("esdp:correlation=1"), slots=4, seed=0)
    assert run.metrics["channels"].min() > 0


def test_a_correlation_is_a_share():
    with pytest.raises(ScenarioError, match=r"correlation is 1\.5"):
        create_policy("esdp:correlation=1.5")


def test_a_sequence_of_ones_own():
    assert (
        simulate(
            random_instance(1), create_policy("esdp", g=lambda t, m: math.log(t + 1)), 200, 1
        ).rewards.sum()
        == simulate(random_instance(1), create_policy("esdp"), 200, 1).rewards.sum()
    )
    assert delta(create_policy("esdp-as-printed", delta=lambda t: 0.5).delta)(3) == 0.5
    with pytest.raises(UnknownName, match="sequence g"):
        create_policy("esdp:g=logg")
    with pytest.raises(UnknownName, match="sequence delta"):
        create_policy("esdp-as-printed:delta=trippel")
    with pytest.raises(ScenarioError, match="delta is 0"):
        create_policy("esdp-as-printed:delta=0")
    with pytest.raises(ScenarioError, match="kappa"):
        create_policy("esdp:kappa=-1")


@pytest.fixture(scope="module")
def long_runs():
    """Pseudo-regret curves over 6000 slots of a small instance, two seeds each."""
    curves = {}
    for name in ("esdp", "esdp-as-printed:g=log", "esdp-as-printed", "random-channels"):
        total = np.zeros(6000)
        for seed in range(2):
            scenario = create_scenario("esdp-default-v1:servers=16,job_types=5,rho=0.7")
            total += pseudo_regret(
                simulate(scenario.instance(seed), create_policy(name), 6000, seed)
            )
        curves[name] = total
    return curves


@pytest.mark.full
def test_esdp_learns_and_the_printed_rule_stops_learning(long_runs):
    """Regret of the second half against the first: 1 is linear; logarithmic is about 0.1."""
    for name in ("esdp-as-printed:g=log", "esdp-as-printed"):
        curve = long_runs[name]
        assert (curve[-1] - curve[2999]) / curve[2999] > 0.7
    curve = long_runs["esdp"]
    assert (curve[-1] - curve[2999]) / curve[2999] < 0.35
    assert curve[-1] < 0.2 * long_runs["esdp-as-printed:g=log"][-1]
    assert curve[-1] < 0.05 * long_runs["random-channels"][-1]


@pytest.mark.full
def test_regret_grows_gently_with_delay_and_loss():
    regrets = []
    for delivery in (Delivery(), Delivery(10), Delivery(20.0, "geometric", loss=0.3)):
        total = 0.0
        for seed in range(3):
            instance = replace(
                create_scenario("esdp-default-v1:servers=16").instance(seed), delivery=delivery
            )
            total += pseudo_regret(simulate(instance, create_policy("esdp"), 1500, seed))[-1]
        regrets.append(total / 3)
    at_random = pseudo_regret(
        simulate(
            create_scenario("esdp-default-v1:servers=16").instance(0),
            create_policy("random-channels"),
            1500,
            0,
        )
    )[-1]
    assert regrets[0] < regrets[2] < 0.25 * at_random
    assert regrets[1] < 0.25 * at_random


@pytest.mark.full
def test_drift_variants_follow_a_jump():
    """All means are drawn anew half way: forgetting pays from then on."""
    late = {}
    for name in ("esdp", "esdp-window:window=200", "esdp-discounted:discount=0.99"):
        total = 0.0
        for seed in range(3):
            instance = create_scenario(
                "esdp-default-v1:speeds=jumping,period=1500,slots=3000,servers=20"
            ).instance(seed)
            curve = pseudo_regret(simulate(instance, create_policy(name), 2000, seed))
            total += curve[-1] - curve[1499]
        late[name] = total
    assert late["esdp-window:window=200"] < 0.8 * late["esdp"]
    assert late["esdp-discounted:discount=0.99"] < 0.8 * late["esdp"]

"""OGASched: single steps against the plain twin, the regret guarantee, what the modes promise."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise import check_policy, create_policy, create_scenario, simulate
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import entries
from gangwise.core.workload import BernoulliArrivals, Delivery
from gangwise.papers.gain_overhead import policies
from gangwise.papers.gain_overhead.offline import best_fixed, regret_bound
from gangwise.papers.gain_overhead.policies import Ascent, Step, diameter, gradient_bound, project
from gangwise.papers.gain_overhead.problem import (
    Feedback,
    GainOverheadFamily,
    GainOverheadInstance,
    Observation,
)
from tests.conftest import tiny
from tests.reference.gain_overhead import Plain


@pytest.mark.parametrize(
    "name", [name for name, e in entries("policy").items() if e.family == "gain_overhead"]
)
def test_every_registered_policy_keeps_to_the_contract(name):
    check_policy(create_policy(name), problems=5)


def test_kernels_are_given_arrays_of_the_same_kind_after_a_pickle():
    """They would be compiled anew for arrays that can be written."""
    problem = tiny([[4.0], [8.0]], [[6.0]])
    assert len(problem.layout) == 5  # kept from now on, and in the pickle
    ascent = Ascent(problem, np.zeros(problem.shape))
    again, other = pickle.loads(pickle.dumps((problem, ascent)))
    for array in (*again.layout, *other.layout, other.job_type, other._terms):
        assert not array.flags.writeable


def test_hand_ascent():
    """OGASched Algorithm 1."""
    problem = tiny([[4.0], [8.0]], [[6.0]])
    everyone = np.ones(2, dtype=np.int64)
    for start, step, expected in (([0, 0], 2, [1, 1]), ([4, 1], 10, [4, 2])):
        state = Ascent(problem, np.array(start, dtype=float)[:, None])
        state.slope(np.ones(2), everyone)
        state.climb(step, everyone)
        np.testing.assert_allclose(state.y.ravel(), expected)


def test_reserve_steps_as_the_plain_twin_from_the_same_state():
    """OGASched (11)."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        problem = GainOverheadFamily().fuzz(rng).problem
        plain = Plain(problem)
        policy = create_policy("ogasched-reserve:rule=decay,eta=2.0,decay=0.9")
        policy.start(problem, rng)
        for t in range(6):
            y = policy.decide(Observation(t, None)).copy()
            x = rng.integers(0, 2, problem.L)
            policy.learn([Feedback(t, x)])
            expected = plain.ascend(x, plain.of_array(y), 2.0 * 0.9**t)
            got = plain.of_array(policy.decide(Observation(t + 1, None)))
            for place, v in expected.items():
                assert got[place] == pytest.approx(v, abs=1e-9)


@pytest.mark.parametrize("smoothing", [0.05, 0.5])
def test_react_climbs_as_the_plain_twin_along_the_smoothed_gradient(smoothing):
    compared = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        problem = GainOverheadFamily().fuzz(rng).problem
        plain = Plain(problem)
        policy = create_policy("ogasched-react", steps=2, fraction=0.3, smoothing=smoothing)
        policy.start(problem, rng)
        everyone = np.ones(problem.L, dtype=np.int64)
        y = plain.of_array(policy._ascent.y)
        for i in range(2):
            if min(max(plain.total(y, l, k) for k in range(plain.K)) for l in range(plain.L)) == 0:
                break
            if min(plain.beta) == 0:
                break
            g = plain.smoothed_gradient(everyone, y, smoothing)
            y = plain.project(
                {
                    (l, r, k): y[l, r, k] + 0.3 / (1 + i) * plain.c[r][k] * g[l, r, k]
                    for l, r, k in y
                }
            )
        else:
            compared += 1
            got = plain.of_array(policy.decide(Observation(0, everyone)))
            for place, v in y.items():
                assert got[place] == pytest.approx(v, abs=1e-9)
    assert compared > 20


def test_react_without_memory_forgets_every_slot():
    problem = GainOverheadFamily().fuzz(np.random.default_rng(2)).problem
    everyone = np.ones(problem.L, dtype=np.int64)
    with_memory, without = (
        create_policy("ogasched-react", steps=2, memory=memory) for memory in (True, False)
    )
    for policy in (with_memory, without):
        policy.start(problem, np.random.default_rng(0))
    first = without.decide(Observation(0, everyone)).copy()
    np.testing.assert_array_equal(with_memory.decide(Observation(0, everyone)), first)
    np.testing.assert_array_equal(without.decide(Observation(1, everyone)), first)
    assert (with_memory.decide(Observation(1, everyone)) != first).any()


@pytest.mark.parametrize("moving", [0.0, 0.3])
@pytest.mark.parametrize(
    "name",
    [
        "ogasched-react",
        "ogasched-react:rule=adagrad-norm",
        "ogasched-react:memory=false,smoothing=0",
        "ogasched-reserve:leftover=true",
        "greedy",
    ],
)
def test_leaving_out_the_channels_of_absent_job_types_changes_no_bit(name, moving, monkeypatch):
    played = []
    for channels_of in (
        lambda problem, active: np.flatnonzero(active[problem.channels.job_type]),
        lambda problem, active: None,
    ):
        monkeypatch.setattr(policies, "channels_of", channels_of)
        for seed in range(6):
            rng = np.random.default_rng(seed)
            problem = replace(GainOverheadFamily().fuzz(rng).problem, moving=moving)
            policy = create_policy(name)
            policy.start(problem, rng)
            for t in range(8):
                x = rng.integers(0, 2, problem.L)
                played.append(policy.decide(Observation(t, x)).tobytes())
                policy.learn([Feedback(t, x)])
    half = len(played) // 2
    assert played[:half] == played[half:]
    assert len(set(played)) > half / 2


def staying(moving, seed=1):
    return create_scenario(
        "ogasched-default-v1", servers=16, job_types=5, arrivals="bursts", rho=1.0, moving=moving
    ).instance(seed)


def test_moving_is_charged_for_what_jobs_that_stayed_get_anew():
    instance, charge = staying(0.7), 0.7
    env, policy = instance.environment(), create_policy("drf")
    env.start(*np.random.default_rng(3).spawn(2))
    policy.start(env.problem, np.random.default_rng(0))
    plain, before, had, total = Plain(env.problem), None, [0] * 5, 0.0
    for t in range(60):
        x = env.observe(t, "react").arrivals
        decision = policy.decide(Observation(t, x))
        y = plain.of_array(decision)
        moved = 0.0
        for l, r, k in y:
            if before is not None and x[l] and had[l]:
                moved += max(y[l, r, k] - before[l, r, k], 0.0)
        outcome = env.step(t, decision)
        assert outcome.reward == pytest.approx(plain.reward(x, y) - charge * moved)
        assert dict(zip(env.metrics, outcome.metrics))["moved"] == pytest.approx(moved)
        before, had, total = y, x, total + moved
    assert total > 0
    with pytest.raises(ScenarioError, match="moving is -1"):
        replace(instance.problem, moving=-1.0)


def test_react_holds_what_is_dear_to_move_and_ignores_the_charge_otherwise():
    free, dear = staying(0.0), staying(1e6)
    moved = simulate(dear, create_policy("ogasched-react"), 80, 1).metrics["moved"]
    restless = simulate(dear, create_policy("ogasched-react:hold=false"), 80, 1).metrics["moved"]
    assert moved.sum() < 0.01 * restless.sum()
    for other in ("ogasched-react:hold=false", "ogasched-react"):
        run = simulate(free, create_policy(other), 40, 1)
        unaware = simulate(dear, create_policy("ogasched-react:hold=false"), 40, 1)
        np.testing.assert_array_equal(run.metrics["gain"], unaware.metrics["gain"])
    earned = {
        name: simulate(staying(5.0), create_policy(name), 200, 1).mean_reward
        for name in ("ogasched-react", "ogasched-react:hold=false", "ogasched-react:memory=false")
    }
    assert earned["ogasched-react"] == max(earned.values())


def test_as_printed_carries_the_printed_state_and_plays_its_projection():
    infeasible = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        problem = GainOverheadFamily().fuzz(rng).problem
        plain = Plain(problem)
        policy = create_policy("ogasched-as-printed:eta=3.0,decay=0.9")
        policy.start(problem, rng)
        state = plain.of_array(policy.decide(Observation(0, None)))
        for t in range(6):
            x = rng.integers(0, 2, problem.L)
            policy.learn([Feedback(t, x)])
            g = plain.gradient(x, state)
            state = plain.project_as_printed({i: state[i] + 3.0 * 0.9**t * g[i] for i in state})
            played = plain.project(state)
            infeasible += any(abs(played[i] - state[i]) > 1e-6 for i in state)
            got = plain.of_array(policy.decide(Observation(t + 1, None)))
            for place, v in played.items():
                assert got[place] == pytest.approx(v, abs=1e-8)
    assert infeasible > 20


@pytest.mark.parametrize("name", ["ogasched-reserve", "ogasched-as-printed:decay=1.0"])
def test_a_constant_delay_shifts_what_is_played_and_nothing_is_learned_from_what_is_lost(name):
    rng, slots, delay = np.random.default_rng(4), 30, 7
    problem = GainOverheadFamily().fuzz(rng).problem
    workload = BernoulliArrivals(np.full(problem.L, 0.6))

    def decisions(delivery):
        env = GainOverheadInstance(problem, workload, delivery).environment()
        env.start(np.random.default_rng(1), np.random.default_rng(2))
        policy, played = create_policy(name), []
        policy.start(env.problem, np.random.default_rng(0))
        for t in range(slots):
            played.append(policy.decide(env.observe(t, "reserve")).copy())
            policy.learn(env.step(t, played[-1]).feedback)
        return np.array(played)

    at_once, late = decisions(Delivery()), decisions(Delivery(delay))
    np.testing.assert_array_equal(late[delay:], at_once[:-delay])
    np.testing.assert_array_equal(late[:delay], np.repeat(at_once[:1], delay, axis=0))
    assert (np.ptp(decisions(Delivery(loss=1.0)), axis=0) == 0).all()
    assert (np.ptp(at_once, axis=0) > 0).any()


def test_a_slot_without_arrivals_teaches_nothing():
    problem = tiny([[4.0], [8.0]], [[6.0]])
    policy = create_policy("ogasched-reserve")
    policy.start(problem, np.random.default_rng(0))
    before = policy.decide(Observation(0, None)).copy()
    policy.learn([Feedback(0, np.zeros(2, dtype=np.int64))])
    np.testing.assert_array_equal(policy.decide(Observation(1, None)), before)


def test_react_remembers_absent_job_types_and_gives_them_nothing():
    problem = tiny([[4.0], [8.0]], [[6.0]], kind="log", beta=0.1)
    policy = create_policy("ogasched-react")
    policy.start(problem, np.random.default_rng(0))
    y = policy.decide(Observation(0, np.array([1, 0])))
    assert y[0, 0] > 2.0  # more than its share beside the other
    assert y[1, 0] == 0.0
    alone = policy.decide(Observation(1, np.array([0, 1])))
    assert alone[1, 0] >= 4.0  # begins at what it held before, not at nothing


def small(seed, **settings):
    return create_scenario("ogasched-default-v1", servers=24, job_types=5, **settings).instance(
        seed
    )


def test_leftovers_never_earn_less_than_the_reservations_alone():
    for seed in range(4):
        instance = small(seed)
        reserve = simulate(instance, create_policy("ogasched-reserve"), 120, seed)
        leftover = simulate(instance, create_policy("ogasched-reserve-leftover"), 120, seed)
        assert (leftover.rewards >= reserve.rewards - 1e-9).all()
        assert leftover.mean_reward > reserve.mean_reward


def test_react_comes_close_to_the_optimum_of_every_slot_and_never_above():
    for seed in (11, 12):
        instance = small(seed)
        run = simulate(instance, create_policy("ogasched-react"), 200, seed)
        optimum = instance.comparator("per_slot_optimum", 200, seed)
        assert (run.rewards <= optimum.rewards * (1 + 2e-6) + 1e-9).all()
        assert run.share_of(optimum) > 0.95


def test_no_policy_beats_the_optimum_of_a_slot():
    instance = small(3)
    optimum = instance.comparator("per_slot_optimum", 60, 3)
    for name, entry in entries("policy").items():
        if entry.family == "gain_overhead":
            run = simulate(instance, create_policy(name), 60, 3)
            assert (run.rewards <= optimum.rewards * (1 + 2e-6) + 1e-9).all(), name


def test_regret_of_reserve_is_below_its_guarantees_and_falls_per_slot():
    """OGASched (14)."""
    rates = []
    for slots in (250, 1000, 4000):
        instance = small(5)
        policy = create_policy("ogasched-reserve")
        run = simulate(instance, policy, slots, 5)
        fixed = instance.comparator("best_fixed", slots, 5)
        regret = run.regret(fixed)
        guarantee = math.sqrt(2) * diameter(instance.problem) * math.sqrt(policy._step._squares)
        assert regret <= guarantee
        assert regret <= fixed.bounds["theorem-1"] == regret_bound(instance.problem, slots)
        rates.append(regret / slots)
    assert rates[0] > rates[1] > rates[2]


def test_adversarial_arrivals_stay_below_the_guarantee():
    # Whoever holds more is absent: the arrivals that hurt a reservation most.
    problem = tiny([[6.0], [6.0]], [[6.0]], beta=0.1)
    policy = create_policy("ogasched-reserve")
    policy.start(problem, np.random.default_rng(0))
    earned, arrivals = 0.0, []
    for t in range(2000):
        y = policy.decide(Observation(t, None))
        x = np.array([1, 0]) if y[0, 0] < y[1, 0] else np.array([0, 1])
        earned += problem.reward(x, y).reward
        arrivals.append(x)
        policy.learn([Feedback(t, x)])
    regret = best_fixed(problem, np.array(arrivals)).rewards.sum() - earned
    assert regret <= math.sqrt(2) * diameter(problem) * math.sqrt(policy._step._squares)
    assert regret <= regret_bound(problem, 2000)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_diameter_and_gradient_bound_hold(seed):
    """OGASched (22), OGASched (24), OGASched (25)."""
    rng = np.random.default_rng(seed)
    problem = GainOverheadFamily().fuzz(rng).problem
    points = [project(problem, rng.uniform(-5, 30, problem.shape)) for _ in range(6)]
    widest = max(np.linalg.norm(p - q) for p in points for q in points)
    assert widest <= diameter(problem) + 1e-9
    assert diameter(problem) <= diameter(problem, as_printed=True) + 1e-9
    for y in points:
        norm = math.sqrt(Ascent(problem, y).slope(np.ones(problem.L), np.ones(problem.L, int)))
        assert norm <= gradient_bound(problem) + 1e-9


def test_step_rules_by_hand():
    """OGASched (26)."""
    problem = tiny([[4.0], [8.0]], [[6.0]])  # diameter² = 2 · 6 · min(8, 6) = 72, printed 96
    ada = Step()
    ada.start(problem)
    assert ada.size(0, 0.0) == 0.0
    assert ada.size(1, 4.0) == pytest.approx(math.sqrt(72) / math.sqrt(2 * 4))
    assert ada.size(2, 5.0) == pytest.approx(math.sqrt(72) / math.sqrt(2 * 9))
    assert Step("decay", eta=25, decay=0.5).size(3, 1.0) == pytest.approx(25 / 8)
    theory = Step("theoretical", horizon=100)
    theory.start(problem)
    assert theory.size(0, 9.0) == pytest.approx(math.sqrt(96) / (3 * 10))
    assert theory.size(0, 0.0) == 0.0


def test_printed_projection_is_repaired_before_it_is_played():
    instance = small(0)
    policy = create_policy("ogasched-as-printed")
    run = simulate(instance, policy, 20, 0)
    assert policy.repairs > 0
    assert np.isfinite(run.rewards).all()


def test_bad_arguments_are_refused():
    with pytest.raises(UnknownName, match="adagrad-norm"):
        create_policy("ogasched-reserve:rule=adagrad")
    with pytest.raises(ScenarioError, match="eta is 0"):
        create_policy("ogasched-reserve:eta=0")
    with pytest.raises(ScenarioError, match="steps"):
        create_policy("ogasched-react:steps=0")
    with pytest.raises(UnknownName, match="steps"):
        create_policy("ogasched-react:step=3")

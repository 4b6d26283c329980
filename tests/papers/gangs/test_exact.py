import numpy as np
import pytest

from gangwise import ScenarioError, create_scenario
from gangwise.papers.gain_overhead.problem import Utilities, Utility
from gangwise.papers.gangs import placement as programme
from gangwise.papers.gangs.placement import solve
from gangwise.papers.gangs.policies import best_fixed, per_slot_optimum
from tests.papers.gangs.cases import fuzzed, problem
from tests.reference.gangs import brute_force, feasible


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_exact_agrees_with_every_placement_tried(block):
    for seed in range(30 * block, 30 * block + 30):
        p = fuzzed(seed, most=400)
        weight = np.random.default_rng(seed).integers(0, 4, p.L).astype(float)
        solution = solve(p, weight)
        assert feasible(p, weight > 0, solution.placement)
        assert solution.value == pytest.approx(brute_force(p, weight), abs=1e-6)
        assert solution.gap <= 2e-7 * (1 + solution.value)


def test_the_larger_gang_wins_where_both_do_not_fit():
    p = problem([[4.0]], [[[1], [1]], [[3]]], [2, 1], beta=0.5)
    solution = solve(p, [1, 1])
    np.testing.assert_array_equal(solution.placement, [-1, -1, 0])
    assert solution.value == pytest.approx(1.5)
    assert solve(p, [5, 1]).value == pytest.approx(5 * 1.0)  # by hand: 2 - 0.5 · 2, five times
    assert solve(p, [1, 0]).value == pytest.approx(1.0)


def test_a_gang_below_its_minimum_earns_nothing():
    p = problem([[3.0]], [[[2], [2]]], [2])
    assert solve(p, [1]).value == 0.0
    relaxed = problem([[3.0]], [[[2], [2]]], [1])
    assert solve(relaxed, [1]).value == pytest.approx(2.0)


def test_a_gang_that_is_not_worth_its_overhead_is_left_out():
    # One task gains ln 2 - 0.5 > 0; the pair that must start together loses.
    p = problem([[4.0]], [[[1], [3]]], [2], beta=0.5, utilities=Utilities.of("log", [[1.0]]))
    solution = solve(p, [1])
    np.testing.assert_array_equal(solution.placement, [-1, -1])
    assert solution.value == 0.0


def test_tangents_are_added_until_the_gain_is_true(monkeypatch):
    monkeypatch.setattr(programme, "POINTS", 2)  # tangents at the ends only, to begin with
    own = Utility("saturating", lambda y, a: a * -np.expm1(-y), lambda y, a: a * np.exp(-y))
    rounds = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        requests = rng.uniform(0.2, 1.0, (4, 1))
        p = problem(
            [[2.0], [1.5]],
            [requests[:2], requests[2:]],
            [1, 2],
            beta=0.2,
            utilities=Utilities.of(own, np.ones((2, 1))),
        )
        solution = solve(p, [1, 1])
        rounds.append(solution.rounds)
        worth = [
            sum(p.by_job_type(np.array(where))[0] - p.by_job_type(np.array(where))[1])
            for where in np.ndindex(3, 3, 3, 3)
            for where in [[r - 1 for r in where]]
            if feasible(p, np.ones(2), where)
        ]
        assert solution.value == pytest.approx(max(worth), abs=1e-6)
        assert solution.gap <= 1e-6
    assert max(rounds) > 1


@pytest.mark.full
def test_running_out_of_time_is_admitted():
    p = create_scenario("ogasched-gang-v1:contention=10,rho=1.0,channels=32").instance(1).problem
    hurried = solve(p, np.ones(p.L), time_limit=1e-3)
    assert hurried.gap > 0
    optimum = solve(p, np.ones(p.L), time_limit=60.0)
    assert hurried.value <= optimum.value <= hurried.bound < np.inf
    assert optimum.gap <= 1e-4
    arrivals = np.ones((3, p.L), dtype=np.int64)
    comparator = per_slot_optimum(p, arrivals, time_limit=1e-3)
    assert comparator.gap == pytest.approx(3 * hurried.gap, rel=0.5)
    assert comparator.gap + comparator.rewards.sum() >= 3 * optimum.value


def test_weights_must_fit():
    p = problem([[4.0]], [[[1]]], [1])
    for weight in ([1, 1], [-1.0], [np.nan]):
        with pytest.raises(ScenarioError, match="weights"):
            solve(p, weight)


def test_comparators_against_brute_force():
    p = fuzzed(3, most=200)
    arrivals = np.random.default_rng(0).integers(0, 2, (12, p.L))
    optimum, fixed = per_slot_optimum(p, arrivals), best_fixed(p, arrivals)
    np.testing.assert_allclose(optimum.rewards, [brute_force(p, x) for x in arrivals], atol=1e-6)
    assert fixed.rewards.sum() == pytest.approx(brute_force(p, arrivals.sum(axis=0)), abs=1e-5)
    assert (fixed.rewards <= optimum.rewards + 1e-6).all()
    sampled = per_slot_optimum(p, arrivals, sample=4)
    assert sampled.slots.size == 4
    np.testing.assert_allclose(sampled.rewards, optimum.rewards[sampled.slots], atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_gang_decision_is_one_of_the_relaxed_problem_and_worth_the_same(seed):
    p = fuzzed(seed, most=400)
    x = np.ones(p.L, dtype=np.int64)
    placement = solve(p, x).placement
    relaxed = p.relaxed.reward(x, p.held(placement))  # raises if it is not feasible there
    assert relaxed.reward == pytest.approx(p.reward(x, placement).reward)


def test_equal_tasks_share_their_columns():
    # 3 equal tasks and 1 other on 2 servers: a column for each kind and server, not for each task.
    p = problem([[4.0], [4.0]], [[[1], [1], [1], [2]]], [2])
    assert programme.GangProgramme(p).size == 4
    assert solve(p, [1]).value == pytest.approx(5.0)

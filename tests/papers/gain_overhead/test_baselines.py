"""The heuristics against their plain twins and hand cases."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise import create_policy
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.papers.gain_overhead.offline import per_slot_optimum
from gangwise.papers.gain_overhead.policies import dominant_shares, marginal_greedy
from gangwise.papers.gain_overhead.problem import GainOverheadFamily, Observation
from tests.conftest import tiny
from tests.reference.gain_overhead import Plain


def decide(name, problem, x, seed=0):
    policy = create_policy(name)
    policy.start(problem, np.random.default_rng(seed))
    return policy.decide(Observation(0, np.array(x, dtype=np.int64)))


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("fairness", [1, 1], [2, 4]),
        ("fairness", [0, 1], [0, 6]),
        ("drf", [1, 1], [3, 3]),
        ("drf", [1, 0], [4, 0]),
        ("drf:bundles=true", [1, 1], [3, 3]),
        ("drf-as-printed", [1, 1], [4, 2]),
        ("binpacking", [1, 1], [4, 2]),
        ("spreading", [1, 1], [4, 2]),
        ("fairness:share=all", [0, 1], [0, 4]),
    ],
)
def test_hand_case(name, x, expected):
    problem = tiny([[4.0], [8.0]], [[6.0]])
    y = decide(name, problem, x)
    np.testing.assert_allclose(y.ravel(), expected)
    if x == [1, 1]:
        assert problem.reward(x, y).reward == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("fairness", lambda plain, x: plain.fairness(x)),
        ("drf", lambda plain, x: plain.drf(x, bundles=False)),
        ("drf:bundles=true", lambda plain, x: plain.drf(x, bundles=True)),
        ("drf-as-printed", lambda plain, x: plain.drf_as_printed(x)),
        ("binpacking", lambda plain, x: plain.list_schedule_in_turns(x, 1.0)),
        ("spreading", lambda plain, x: plain.list_schedule_in_turns(x, -1.0)),
    ],
)
@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_agrees_with_the_plain_twin(name, twin, seed):
    """OGASched §4."""
    rng = np.random.default_rng(seed)
    problem = GainOverheadFamily().fuzz(rng).problem
    x = rng.integers(0, 2, problem.L)
    plain = Plain(problem)
    expected, got = twin(plain, x), plain.of_array(decide(name, problem, x))
    for place, v in expected.items():
        assert got[place] == pytest.approx(v, abs=1e-9), place


def test_drf_on_the_example_of_the_paper_that_introduced_it():
    # 9 CPUs and 18 GB; A's tasks need (1, 4), B's (3, 1), as many as may be: A gets 3, B gets 2.
    problem = tiny([[4.5, 18.0], [9.0, 3.0]], [[9.0, 18.0]])
    y = decide("drf:bundles=true", problem, [1, 1])
    np.testing.assert_allclose(y, [[3, 12], [6, 2]])
    # Where nothing is needed in proportion, memory goes on, 18 to 3, when the CPUs are gone.
    y = decide("drf", problem, [1, 1])
    np.testing.assert_allclose(y, [[3, 18 * 18 / 21], [6, 3 * 18 / 21]])


def filled_in_fractions(demands, capacity):
    """Progressive filling with bundles in exact numbers: all that ends at an instant ends there."""
    left, held = [Fraction(c) for c in capacity], [[Fraction(0)] * len(capacity) for _ in demands]
    share = [max(Fraction(d, c) for d, c in zip(w, capacity, strict=True)) for w in demands]
    level, rising = Fraction(0), {l for l in range(len(demands)) if share[l] > 0}
    while rising:
        speed = [sum(demands[l][k] / share[l] for l in rising) for k in range(len(capacity))]
        steps = [share[l] - level for l in rising]
        steps += [left[k] / speed[k] for k in range(len(capacity)) if speed[k] > 0]
        level += min(steps)
        for k in range(len(capacity)):
            left[k] -= min(steps) * speed[k]
            for l in rising:
                held[l][k] += min(steps) * demands[l][k] / share[l]
        gone = [k for k in range(len(capacity)) if left[k] == 0]
        done = {l for l in rising if level == share[l] or any(demands[l][k] for k in gone)}
        rising -= done
    return [[float(v) for v in row] for row in held]


def test_drf_where_a_device_type_runs_out_as_a_job_is_complete():
    problem = tiny([[2.0, 2.0], [4.0, 4.0]], [[4.0, 8.0]])
    np.testing.assert_allclose(decide("drf:bundles=true", problem, [1, 1])[0], [2, 2])
    rng, ties = np.random.default_rng(11), 0
    for _ in range(400):
        L, capacity = int(rng.integers(2, 6)), [int(c) for c in rng.integers(2, 9, 2)]
        demands = [
            [int(rng.integers(k == 0, c + 1)) for k, c in enumerate(capacity)] for _ in range(L)
        ]
        problem = tiny([[float(v) for v in row] for row in demands], [[float(c) for c in capacity]])
        expected = filled_in_fractions(demands, capacity)
        found = decide("drf:bundles=true", problem, [1] * L)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        ties += any(expected[l] == demands[l] for l in range(L))
    assert ties > 100


def test_packing_and_spreading_choose_by_utilisation():
    # Job 0 goes first and takes the larger server 0. Job 1 then follows it there (packing), so that
    # job 0 is first on server 1 too, or takes server 1 (spreading) and leaves job 0 the rest.
    problem = tiny([[3.0], [3.0]], [[6.0], [5.0]])
    assert decide("binpacking", problem, [1, 1]).ravel().tolist() == [3, 3, 3, 2]
    assert decide("spreading", problem, [1, 1]).ravel().tolist() == [3, 3, 2, 3]


def test_dominant_share_of_a_device_that_nobody_has_is_infinite():
    problem = tiny([[1.0, 1.0], [1.0, 0.0]], [[4.0, 0.0]])
    np.testing.assert_allclose(dominant_shares(problem), [np.inf, 0.25])


def test_random_depends_on_its_generator_alone():
    problem = tiny([[4.0]] * 5, [[6.0]])
    draws = {tuple(decide("random", problem, [1] * 5, seed).ravel()) for seed in range(40)}
    assert len(draws) > 5
    first, again = (decide("random", problem, [1] * 5, 3) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_greedy_stops_where_the_marginal_reward_ends():
    # ln(1 + y) - y / 4 is largest at y = 3; a greedy in 1/1000 of 10 devices gets within one part.
    problem = tiny([[10.0]], [[10.0]], beta=0.25, kind="log")
    y = marginal_greedy(problem, np.array([1]), rounds=1000)
    assert y[0, 0] == pytest.approx(3.0, abs=0.0101)


def test_greedy_is_a_rival_that_deserves_its_name():
    rng = np.random.default_rng(5)
    shares = []
    for _ in range(30):
        problem = GainOverheadFamily().fuzz(rng).problem
        x = np.ones((1, problem.L), dtype=np.int64)
        best = per_slot_optimum(problem, x).rewards[0]
        earned = problem.reward(x[0], decide("greedy", problem, x[0])).reward
        assert earned <= best * (1 + 1e-6) + 1e-9
        shares.append(earned / best)
    assert np.mean(shares) > 0.95


def test_the_greedy_keeps_what_is_held_and_drops_the_absent():
    problem = tiny([[5.0], [5.0]], [[6.0]])
    y = marginal_greedy(problem, np.array([1, 0]), np.array([[2.0], [4.0]]))
    np.testing.assert_allclose(y.ravel(), [5.0, 0.0])


@pytest.mark.parametrize(
    "name", ["drf", "drf-as-printed", "fairness", "greedy", "random", "spreading"]
)
def test_policies_that_react_say_so_when_they_are_not_shown_the_arrivals(name):
    policy = create_policy(name)
    policy.start(tiny([[1.0]], [[1.0]]), np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="arrivals"):
        policy.decide(Observation(0, None))


def test_bad_arguments_are_refused():
    with pytest.raises(UnknownName, match="arrived"):
        create_policy("fairness:share=arived")
    with pytest.raises(ScenarioError, match="rounds"):
        create_policy("greedy:rounds=0")

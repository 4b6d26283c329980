import numpy as np
import pytest

from gangwise import ScenarioError, create_scenario
from gangwise.papers.gangs.kernels import best_responses
from gangwise.papers.gangs.placement import ExactGangs, FastGangs, GangSolver, Placement
from tests.papers.gangs.speeds_cases import fuzzed, problem
from tests.reference.gangs import feasible
from tests.reference.gangs_speeds import brute_force, priced, worth


def drawn(seed: int, p):
    rng = np.random.default_rng(seed)
    x = (rng.random(p.L) < 0.8).astype(np.int64)
    return rng.uniform(0, 1, p.E), rng.exponential(0.3, p.E) * (rng.random(p.E) < 0.8), x


@pytest.mark.parametrize("block", range(5))
def test_exact_agrees_with_every_placement_tried(block):
    for seed in range(20 * block, 20 * block + 20):
        p = fuzzed(seed, most=300)
        v, s, x = drawn(seed, p)
        for width in (s, np.zeros(p.E)):
            answer = ExactGangs(p).solve(v, width, x)
            assert feasible(p, x, answer.placement)
            assert answer.value == pytest.approx(worth(p, v, width, answer.placement))
            assert answer.value == pytest.approx(brute_force(p, v, width, x), abs=2e-6)
            assert answer.gap <= 2e-7 * (1 + answer.value)


def test_tasks_that_cost_different_amounts_are_told_apart():
    # Equal requests; room for two of three: the cheap ones, and none that costs what it brings.
    p = problem([[2.0]], [[[1], [1], [1]]], [1], task_cost=[0.5, 0.1, 0.2])
    v, none, x = np.array([0.6]), np.zeros(1), np.array([1])
    for placement in (ExactGangs(p).solve(v, none, x).placement, FastGangs(p).linear(v, x)):
        assert placement.tolist() == [-1, 0, 0]
    answer = ExactGangs(p).solve(np.array([0.15]), none, x)
    assert (answer.placement.tolist(), answer.value) == ([-1, 0, -1], pytest.approx(0.05))
    # A gang of all three costs 0.8 and brings 0.75: it is not launched.
    all_three = problem([[3.0]], [[[1], [1], [1]]], [3], task_cost=[0.5, 0.1, 0.2])
    assert ExactGangs(all_three).solve(np.array([0.25]), none, x).value == 0.0
    assert FastGangs(all_three).linear(np.array([0.25]), x).tolist() == [-1, -1, -1]
    assert FastGangs(all_three).linear(np.array([0.3]), x).tolist() == [0, 0, 0]
    # Nor is it beside a job that is worth more than it loses, and for which there is room as well.
    both = problem([[4.0]], [[[1]], [[1], [1], [1]]], [1, 3], task_cost=[0, 0.5, 0.1, 0.2])
    placement = FastGangs(both).linear(np.array([0.9, 0.25]), np.array([1, 1]))
    assert placement.tolist() == [0, -1, -1, -1]


def test_half_of_the_random_problems_have_costs_of_tasks():
    dear = [fuzzed(seed, most=300).task_cost.any() for seed in range(100)]
    assert 30 < sum(dear) < 70


def test_the_root_is_over_all_channels_together():
    # One GPU each on two servers, one task. Values 0.5 and 0.4; widths 0 and 0.04: 0.4 + 0.2 wins.
    p = problem([[1.0], [1.0]], [[[1]]], [1])
    answer = ExactGangs(p).solve(np.array([0.5, 0.4]), np.array([0.0, 0.04]), np.array([1]))
    assert answer.placement.tolist() == [1]
    assert answer.value == pytest.approx(0.6)
    # Two tasks on widths 0.36 and 0.64: the root of their sum is 1, not 0.6 + 0.8.
    pair = problem([[1.0], [1.0]], [[[1], [1]]], [2])
    value = ExactGangs(pair).solve(np.zeros(2), np.array([0.36, 0.64]), np.array([1])).value
    assert value == pytest.approx(1.0)


def test_tasks_on_one_channel_count_each():
    p = problem([[3.0], [1.0]], [[[1], [1], [1]]], [1])
    answer = ExactGangs(p).solve(np.array([0.3, 0.9]), np.array([0.16, 0.0]), np.array([1]))
    assert sorted(answer.placement.tolist()) == [0, 0, 1]
    assert answer.value == pytest.approx(0.3 * 2 + 0.9 + np.sqrt(2 * 0.16))


def test_a_gang_below_its_minimum_earns_nothing():
    v, s, x = np.array([0.9]), np.zeros(1), np.array([1])
    assert ExactGangs(problem([[3.0]], [[[2], [2]]], [2])).solve(v, s, x).value == 0.0
    assert ExactGangs(problem([[3.0]], [[[2], [2]]], [1])).solve(v, s, x).value == 0.9


def test_the_whole_gang_wins_where_its_parts_would_not():
    # A's best task alone would beat B, but A needs three and B's two bring more than A's three.
    p = problem([[3.0]], [[[1], [1], [1]], [[1.5], [1.5]]], [3, 2])
    solve = ExactGangs(p).solve
    assert solve(np.array([0.5, 0.8]), np.zeros(2), np.array([1, 1])).value == pytest.approx(1.6)
    assert solve(np.array([0.6, 0.8]), np.zeros(2), np.array([1, 1])).value == pytest.approx(1.8)
    assert solve(np.array([0.6, 0.8]), np.zeros(2), np.array([0, 1])).value == pytest.approx(1.6)
    assert solve(np.array([0.6, 0.8]), np.zeros(2), np.array([0, 0])).value == 0.0


def test_running_out_of_time_is_admitted():
    instance = create_scenario("esdp-gang-v1:rho=1.0").instance(1)
    p, v, x = instance.problem, instance.means(0), np.ones(8, dtype=np.int64)
    optimum = ExactGangs(p).solve(v, np.zeros(p.E), x, 60.0)
    hurried = ExactGangs(p).solve(v, np.zeros(p.E), x, 1e-4)
    assert optimum.gap < 1e-5
    assert hurried.gap > 0.1
    assert hurried.value <= optimum.value <= hurried.bound < np.inf


@pytest.mark.full
def test_few_nodes_still_give_a_valid_bound():
    # Tight enough that the root node does not settle it.
    spec = "esdp-gang-v1:job_types=12,contention=8,share=(0.2,0.5)"
    instance = create_scenario(spec).instance(3)
    p, v = instance.problem, instance.means(0)
    x, s = np.ones(p.L, dtype=np.int64), np.random.default_rng(0).uniform(0, 0.3, p.E)
    start = FastGangs(p).solve(v, s, x)
    hurried = ExactGangs(p, nodes=1).solve(v, s, x, start=start)
    assert feasible(p, x, hurried.placement)
    assert hurried.gap > 1e-3  # or the case says nothing
    assert hurried.value >= worth(p, v, s, start) - 1e-9
    more = ExactGangs(p, nodes=60).solve(v, s, x, time_limit=20.0)
    assert more.value <= hurried.bound + 1e-6


def test_values_must_fit():
    p = problem([[4.0], [4.0]], [[[1]]], [1])
    exact, x = ExactGangs(p), np.array([1])
    for v, s in (([1.0], [0.0, 0.0]), ([1.0, np.nan], [0.0, 0.0]), ([1.0, 1.0], [0.0])):
        with pytest.raises(ScenarioError, match="2 finite numbers"):
            exact.solve(np.array(v), np.array(s), x)
    with pytest.raises(ScenarioError, match="'server"):
        exact.solve(np.ones(2), np.array([0.1, -0.1]), x)


def test_fast_placement_is_feasible_bounded_and_mostly_optimal():
    hits = 0
    for seed in range(20):
        p = fuzzed(seed, most=300)
        v, s, x = drawn(seed, p)
        best = brute_force(p, v, np.zeros(p.E), x)
        placement, bound = FastGangs(p).bounded(v, x)
        assert feasible(p, x, placement)
        got = worth(p, v, np.zeros(p.E), placement)
        assert got - 1e-9 <= best <= bound + 1e-9
        hits += got >= best - 1e-9
        rooted = FastGangs(p).solve(v, s, x)
        assert feasible(p, x, rooted)
        assert worth(p, v, s, rooted) <= brute_force(p, v, s, x) + 1e-9
    assert hits >= 18


def test_the_bound_of_prices_is_what_its_formula_says():
    forced = 0
    for seed in range(20):
        p = fuzzed(seed)
        v, _, x = drawn(seed, p)
        price = np.random.default_rng(seed).exponential(0.1, p.cluster.capacity.shape)
        bound, profit, _ = best_responses(Placement(p).arrays, x, v, price)
        expected, gain = priced(p, v, x, price)
        assert bound == pytest.approx(expected)
        assert profit == pytest.approx(gain)
        forced += int(((profit > 0) & (x > 0) & (p.minimum > 1)).sum())
    assert forced > 5  # gangs that may need tasks that lose


def test_rebuilding_never_loses_and_often_wins():
    wins = 0
    for seed in range(15):
        instance = create_scenario("esdp-gang-v1").instance(seed)
        p, v, x = instance.problem, instance.means(0), np.ones(8, dtype=np.int64)
        plain, rebuilt = (v @ p.count(FastGangs(p, n).linear(v, x)) for n in (0, 1))
        assert rebuilt >= plain - 1e-9
        wins += rebuilt > plain + 1e-6
    assert wins >= 5


def test_a_gang_is_built_hardest_task_first_where_easy_ones_would_take_the_only_room():
    # The small task is worth more on server 0, where the large one has its only place.
    p = problem([[4.0], [2.0]], [[[2], [4]]], [2])
    placement = FastGangs(p, passes=0, steps=0).linear(np.array([0.9, 0.5]), np.array([1]))
    assert placement.tolist() == [1, 0]


def test_auto_is_exact_where_it_is_small():
    small, large = problem([[4.0]], [[[1]]], [1]), create_scenario("esdp-gang-v1").instance(1)
    assert GangSolver(small).exact is not None
    assert GangSolver(large.problem).exact is None
    assert GangSolver(large.problem, "exact").exact is not None
    assert GangSolver(small, "fast").exact is None

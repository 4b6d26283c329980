import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import ScenarioError, check_policy, create_policy, create_scenario, simulate
from gangwise.core.registry import entries
from gangwise.core.workload import BernoulliArrivals, BinomialArrivals
from gangwise.papers.gain_overhead.problem import Observation, Utilities
from gangwise.papers.gangs.placement import solve
from gangwise.papers.gangs.policies import GangFamily, GangInstance
from tests.papers.gangs.cases import fuzzed, problem
from tests.reference.gangs import feasible

POLICIES = sorted(n for n, e in entries("policy").items() if e.family == "gain_overhead_gang")
VARIANTS = [
    "gang-greedy:passes=3",
    "gang-ogasched:passes=0",
    "gang-ogasched:least=0.3",
    "gang-ogasched:remember=False",
]


def decide(name: str, p, arrivals) -> np.ndarray:
    policy = create_policy(name)
    policy.start(p, np.random.default_rng(0))
    return policy.decide(Observation(0, np.array(arrivals)))


def test_all_gang_policies_are_registered():
    assert POLICIES == [
        "gang-binpacking",
        "gang-drf",
        "gang-fairness",
        "gang-greedy",
        "gang-ogasched",
        "gang-random",
        "gang-spreading",
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", POLICIES + VARIANTS)
def test_keeps_to_the_contract(name):
    check_policy(create_policy(name), problems=4)


@pytest.mark.full
@pytest.mark.parametrize("name", POLICIES + VARIANTS)
def test_never_beats_the_optimum_of_the_slot(name):
    for seed in range(8):
        instance = GangFamily().fuzz(np.random.default_rng([7, seed]))
        run = simulate(instance, create_policy(name), slots=4, seed=seed)
        optimum = run.comparator("per_slot_optimum")
        assert (run.rewards <= optimum.rewards + 1e-6).all()


@given(st.integers(0, 10_000), st.sampled_from(POLICIES + VARIANTS), st.data())
def test_all_or_nothing(seed, name, data):
    p = fuzzed(seed)
    x = np.array(data.draw(st.lists(st.integers(0, 1), min_size=p.L, max_size=p.L)))
    where = decide(name, p, x)
    assert feasible(p, x, where)
    placed = np.bincount(p.task_job_type[where >= 0], minlength=p.L)
    assert ((placed == 0) | (placed >= p.minimum)).all()
    assert (placed[x == 0] == 0).all()


@pytest.mark.parametrize("name", ["gang-greedy", "gang-ogasched", "gang-greedy:passes=3"])
def test_what_weighs_gains_is_optimal_where_nothing_is_contended(name):
    # Every task has a server to itself: the best is to take all tasks that are worth it.
    p = problem(np.full((6, 1), 4.0), [[[1], [2]], [[3]], [[4], [4]]], [1, 1, 2], beta=0.5)
    assert p.reward([1, 1, 1], decide(name, p, [1, 1, 1])).reward == pytest.approx(
        solve(p, [1, 1, 1]).value
    )


def test_weighing_gains_leaves_out_what_loses_and_baselines_do_not():
    p = problem([[4.0]], [[[4.0]]], [1], beta=1.5)  # gain 4, overhead 6
    assert decide("gang-greedy", p, [1]).tolist() == [-1]
    assert decide("gang-ogasched", p, [1]).tolist() == [-1]
    assert decide("gang-drf", p, [1]).tolist() == [0]


def test_rebuilding_a_pair_lets_one_job_have_the_servers_of_another():
    # A gains 6 on server 0 and 4 on server 1; B gains 4.5 and may use server 0 only. Greedy gives
    # server 0 to A and leaves B out; 4 + 4.5 is better, and no job alone can change it.
    p = problem(
        [[2.0], [2.0]],
        [[[2]], [[1.5]]],
        [1, 1],
        mask=[[1, 1], [1, 0]],
        utilities=Utilities.of("linear", [[3.0], [2.0]]),
    )
    assert decide("gang-greedy", p, [1, 1]).tolist() == [0, -1]
    assert decide("gang-greedy:passes=1", p, [1, 1]).tolist() == [1, 0]
    assert decide("gang-ogasched:passes=1", p, [1, 1]).tolist() == [1, 0]


def test_what_is_remembered_is_never_done_worse():
    def falls_and_rises(**settings):
        falls = rises = 0
        for seed in range(20):
            p = create_scenario("ogasched-gang-small-v1", tasks=(3, 6)).instance(seed).problem
            policy = create_policy("gang-ogasched", passes=1, **settings)
            policy.start(p, np.random.default_rng(0))
            x = np.ones(p.L, dtype=np.int64)
            rewards = [p.reward(x, policy.decide(Observation(t, x))).reward for t in range(6)]
            falls += int((np.diff(rewards) < -1e-6).sum())
            rises += int((np.diff(rewards) > 1e-6).sum())
        return falls, rises

    falls, rises = falls_and_rises()
    assert falls == 0
    assert rises > 0
    assert falls_and_rises(remember=False)[0] > 0  # or the case says nothing


def test_drf_serves_the_smallest_dominant_share_first():
    # Shares of the 6 devices: A 5/6, B 4/6, so B goes first and A does not fit any more.
    p = problem([[6.0]], [[[3], [2]], [[4]]], [2, 1])
    assert decide("gang-drf", p, [1, 1]).tolist() == [-1, -1, 0]
    assert decide("gang-drf", p, [1, 0]).tolist() == [0, 0, -1]


def test_fairness_takes_turns():
    # Six devices: A and B place a task of 2 each, then A another; B's second finds no room.
    p = problem([[6.0]], [[[2], [2], [2]], [[2], [2]]], [1, 1])
    assert decide("gang-fairness", p, [1, 1]).tolist() == [0, 0, -1, 0, -1]
    assert decide("gang-binpacking", p, [1, 1]).tolist() == [0, 0, 0, -1, -1]


def test_packing_and_spreading_differ_in_servers():
    p = problem([[6.0], [5.0]], [[[2], [2]]], [2])
    assert decide("gang-binpacking", p, [1]).tolist() == [0, 0]
    assert decide("gang-spreading", p, [1]).tolist() == [0, 1]


def test_wrong_settings_are_refused():
    for name in ("gang-greedy:passes=-1", "gang-ogasched:least=1.5", "gang-ogasched:steps=0"):
        with pytest.raises(ScenarioError):
            create_policy(name)
    policy = create_policy("gang-ogasched")
    policy.start(problem([[4.0]], [[[1]]], [1]), np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="arrivals"):
        policy.decide(Observation(0, None))


def test_one_job_of_a_type_in_a_slot():
    p = problem([[4.0]], [[[1]], [[2]]], [1, 1])
    with pytest.raises(ScenarioError, match="'job"):
        GangInstance(p, BinomialArrivals(np.full(2, 0.5), np.array([1, 3])))
    with pytest.raises(ScenarioError, match="brings 3"):
        GangInstance(p, BernoulliArrivals(np.full(3, 0.5)))


def test_environment_counts_jobs():
    p = problem([[3.0]], [[[2]], [[2]]], [1, 1])
    run = simulate(GangInstance(p, BernoulliArrivals(np.ones(2))), create_policy("gang-drf"), 3, 0)
    assert run.metrics["jobs"].tolist() == [2.0] * 3
    assert run.metrics["launched"].tolist() == [1.0] * 3
    assert run.metrics["utilisation"] == pytest.approx(2 / 3)
    np.testing.assert_allclose(run.rewards, run.metrics["gain"] - run.metrics["overhead"])


def test_regret_against_both_comparators():
    instance = GangFamily().fuzz(np.random.default_rng(11))
    run = simulate(instance, create_policy("gang-ogasched"), 20, 0)
    fixed, optimum = run.comparator("best_fixed"), run.comparator("per_slot_optimum")
    assert run.regret(optimum) >= -1e-6
    assert run.regret(optimum) >= run.regret(fixed) - 1e-6
    assert optimum.gap < 1e-4

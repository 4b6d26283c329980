import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import (
    GangwiseError,
    ScenarioError,
    UnknownName,
    check_policy,
    create_policy,
    create_scenario,
    simulate,
)
from gangwise.core.registry import entries
from gangwise.papers.fluctuating_speeds.environment import Feedback, Observation, pseudo_regret
from gangwise.papers.gangs.policies import GangSpeedsFamily
from tests.papers.gangs.speeds_cases import fuzzed, problem
from tests.reference.gangs import feasible
from tests.reference.gangs_speeds import Plain, brute_force

FAMILY = "fluctuating_speeds_gang"
POLICIES = sorted(n for n, e in entries("policy").items() if e.family == FAMILY)
VARIANTS = [
    "gang-esdp:solver=fast",
    "gang-esdp:solver=exact,kappa=1",
    "gang-esdp:memory=discounted",
    "gang-cucb:solver=fast",
    "gang-volcano:score=least-requested",
]


def decide(policy, p, arrivals) -> np.ndarray:
    policy = create_policy(policy) if isinstance(policy, str) else policy
    policy.start(p, np.random.default_rng(0))
    return policy.decide(Observation(0, np.array(arrivals)))


def test_all_policies_are_registered():
    assert POLICIES == [
        "gang-best-fit",
        "gang-cucb",
        "gang-esdp",
        "gang-first-fit",
        "gang-means",
        "gang-volcano",
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", POLICIES + VARIANTS)
def test_keeps_to_the_contract(name):
    check_policy(create_policy(name), problems=4)


@given(st.integers(0, 10_000), st.sampled_from(POLICIES + VARIANTS), st.data())
def test_all_or_nothing(seed, name, data):
    p = fuzzed(seed)
    x = np.array(data.draw(st.lists(st.integers(0, 1), min_size=p.L, max_size=p.L)))
    where = decide(name, p, x)
    assert feasible(p, x, where)
    placed = np.bincount(p.task_job_type[where >= 0], minlength=p.L)
    assert ((placed == 0) | (placed >= p.minimum)).all()
    assert (placed[x == 0] == 0).all()


@pytest.mark.full
@pytest.mark.parametrize("name", POLICIES + VARIANTS)
def test_no_policy_beats_the_omniscient_mean_of_the_slot(name):
    for seed in range(6):
        instance = GangSpeedsFamily().fuzz(np.random.default_rng([7, seed]))
        run = simulate(instance, create_policy(name), slots=5, seed=seed)
        best = run.comparator("omniscient")
        assert (run.metrics["mean_utility"] <= best.rewards + best.gap + 1e-6).all()


def test_the_comparator_is_the_best_placement_for_the_means():
    checked = 0
    for seed in range(20):
        instance = GangSpeedsFamily().fuzz(np.random.default_rng([5, seed]))
        p = instance.problem
        degree = np.bincount(p.channels.job_type, minlength=p.L)
        if np.prod(1.0 + degree[p.task_job_type]) > 300:
            continue
        arrivals, _ = instance.history(6, 3)
        best = instance.comparator("omniscient", 6, 3)
        expected = [brute_force(p, instance.means(0), np.zeros(p.E), x) for x in arrivals]
        np.testing.assert_allclose(best.rewards, expected, atol=1e-5)
        sampled = instance.comparator("omniscient", 6, 3, sample=2)
        np.testing.assert_allclose(sampled.rewards, best.rewards[[0, 5]])
        checked += 1
    assert checked > 3
    with pytest.raises(UnknownName, match="omniscient"):
        instance.comparator("omnicient", 6, 3)


def test_the_realised_comparator_has_the_same_mean():
    instance = create_scenario("esdp-gang-small-v1").instance(0)
    mean, realised = (instance.comparator(n, 1500, 0).rewards for n in instance.comparators)
    error = (realised - mean).std() / np.sqrt(1500)
    assert abs(realised.mean() - mean.mean()) < 5 * error
    assert error > 0


@pytest.mark.full
def test_regret_grows_slower_than_that_of_the_baselines():
    learned, fitted = [], []
    for seed in (1, 2, 3):
        instance = create_scenario("esdp-gang-small-v1").instance(seed)
        for name, to in (("gang-esdp:solver=fast", learned), ("gang-best-fit", fitted)):
            run = simulate(instance, create_policy(name), 1200, seed)
            curve = pseudo_regret(run, instance.comparator("omniscient", 1200, seed))
            to.append((curve[299], curve[-1]))
    early, late = np.sum(learned, axis=0)
    assert late < 0.5 * np.sum(fitted, axis=0)[1]
    assert late - early < 3 * early  # linear regret grows by three times as much
    early, late = np.sum(fitted, axis=0)
    assert late - early > 2.5 * early


@pytest.mark.full
def test_every_channel_in_reach_is_tried_and_the_best_is_kept():
    # One task, four servers: the first four slots try them all; then the best one is left seldom.
    p = problem([[4.0], [3.0], [2.0], [1.0]], [[[1]]], [1])
    speed, policy, on = np.array([0.2, 0.3, 0.9, 0.1]), create_policy("gang-esdp"), []
    policy.start(p, np.random.default_rng(0))
    for t in range(200):
        where = policy.decide(Observation(t, np.array([1])))
        e = p.channel_of[0, where]
        policy.learn([Feedback(t, e, speed[e])])
        on.append(int(where[0]))
    assert sorted(on[:4]) == [0, 1, 2, 3]
    assert on.count(2) > 170


def test_cucb_adds_up_its_bounds():
    # Felt once each: 0.2 and 0.3; bounds 0.2 + √(c ln 3) and so on, cut off at 1.
    p = problem([[2.0], [1.0]], [[[1], [1], [1]]], [3])
    policy = create_policy("gang-cucb:coefficient=0.1")
    policy.start(p, np.random.default_rng(0))
    policy.decide(Observation(0, np.array([1])))
    policy.learn([Feedback(0, np.array([0, 1]), np.array([0.2, 0.9]))])
    value, width = policy.index(1)
    assert value == pytest.approx([0.2 + np.sqrt(0.1 * np.log(3)), 1.0])
    assert not width.any()


def test_esdp_index_by_hand():
    # t = 3, channel 0 felt twice (0.4, 0.6), channel 1 never: v̂ 0.5 and 1, g = ln 4.
    p = problem([[1.0], [1.0]], [[[1]]], [1], mask=[[1, 1]])
    policy = create_policy("gang-esdp:kappa=1")
    policy.start(p, np.random.default_rng(0))
    for t, u in enumerate((0.4, 0.6)):
        policy._pending.expect(t, np.array([True, False]))
        policy.learn([Feedback(t, np.array([0]), np.array([u]))])
    value, width = policy.index(2)
    assert value == pytest.approx([0.5, 1.0])
    assert width == pytest.approx([np.log(4) / 4, np.log(4) / 2])


@pytest.mark.parametrize("score", ["binpack", "least-requested"])
def test_volcano_is_its_plain_twin(score):
    rolled_back = 0
    for seed in range(20):
        p = fuzzed(seed)
        rng = np.random.default_rng(seed)
        x = (rng.random(p.L) < 0.8).astype(np.int64)
        levels = {name: int(rng.integers(0, 2)) for name in p.job_types}
        got = decide(create_policy("gang-volcano", score=score, priority=levels), p, x)
        plain = Plain(p, 1.0 if score == "binpack" else -1.0)
        assert got.tolist() == plain.volcano(x, levels)
        rolled_back += sum(plain.placed(int(l)) == 0 for l in np.flatnonzero(x))
    assert rolled_back > 5  # or the cases say nothing about rolling back


def test_best_fit_is_its_plain_twin():
    for seed in range(10):
        p = fuzzed(seed)
        x = (np.random.default_rng(seed).random(p.L) < 0.8).astype(np.int64)
        assert decide("gang-best-fit", p, x).tolist() == Plain(p, 1.0).best_fit(x)


def test_fits_by_hand():
    # First fit takes the largest server, best fit the one that the task fills most.
    p = problem([[6.0], [5.0]], [[[2]], [[3]]], [1, 1])
    assert decide("gang-first-fit", p, [1, 1]).tolist() == [0, 0]
    assert decide("gang-best-fit", p, [1, 1]).tolist() == [1, 1]
    assert decide("gang-volcano", p, [1, 1]).tolist() == [1, 1]
    assert decide("gang-volcano:score=least-requested", p, [1, 1]).tolist() == [0, 1]


def test_volcano_serves_what_is_not_ready_before_the_rest_of_what_is():
    # Five devices. A needs one of its three tasks of 2, B its one of 3: A starts, B starts, and
    # nothing is left for A's second task. Job by job, A would have kept B out.
    p = problem([[5.0]], [[[2], [2], [2]], [[3]]], [1, 1])
    assert decide("gang-volcano", p, [1, 1]).tolist() == [0, -1, -1, 0]
    assert decide("gang-first-fit", p, [1, 1]).tolist() == [0, 0, -1, -1]


def test_volcano_shares_by_drf_and_goes_by_priority_first():
    # Six devices: A holds 2, B 1; the rest goes to B until it holds as much, then to A.
    p = problem([[6.0]], [[[2], [2], [2]], [[1], [1], [1]]], [1, 1])
    assert decide("gang-volcano", p, [1, 1]).tolist() == [0, 0, -1, 0, 0, -1]
    first = create_policy("gang-volcano", priority={"job B": 1})
    assert decide(first, p, [1, 1]).tolist() == [0, -1, -1, 0, 0, 0]


def test_wrong_settings_are_refused():
    for name in (
        "gang-esdp:kappa=-1",
        "gang-esdp:solver=quick",
        "gang-means:passes=-1",
        "gang-cucb:coefficient=-2",
        "gang-volcano:score=best",
    ):
        with pytest.raises(GangwiseError):
            create_policy(name)
    with pytest.raises(ScenarioError, match="'high'"):
        create_policy("gang-volcano", priority={"job A": "high"})
    with pytest.raises(UnknownName, match="mean"):
        decide(
            create_policy("gang-volcano", priority={"jobA": 1}), problem([[1.0]], [[[1]]], [1]), [1]
        )


@pytest.mark.parametrize("name", ["esdp-gang-v1", "esdp-gang-small-v1"])
def test_scenarios_are_what_they_say(name):
    scenario = create_scenario(name)
    one, same, other = (scenario.instance(s) for s in (3, 3, 4))
    p, said = one.problem, scenario.describe()
    assert p.cluster.capacity.shape == (said["servers"], 3)
    assert said["job_types"] == p.L
    assert len(p.channels) == said["job_types"] * said["channels"]
    tasks = np.diff(p.first)
    assert ((tasks >= said["tasks"][0]) & (tasks <= said["tasks"][1])).all()
    assert p.cost.mean() == pytest.approx(0.3 * one.speeds.mean.mean())
    np.testing.assert_array_equal(p.task_requests, same.problem.task_requests)
    assert not np.array_equal(p.cluster.capacity, other.problem.cluster.capacity)
    mean = one.means(0)
    assert (mean >= 0).all()
    assert (mean <= 1).all()
    np.testing.assert_allclose(one.history(4000, 0)[1].mean(axis=0), mean, atol=0.03)
    with pytest.raises(ScenarioError):
        create_scenario(name, share=(0.5, 1.5))
    with pytest.raises(UnknownName, match="contention"):
        create_scenario(name, contension=3)

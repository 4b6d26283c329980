import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise import InfeasibleDecision, ScenarioError, create_scenario
from gangwise.core.workload import BernoulliArrivals, BinomialArrivals, Delivery
from gangwise.papers.fluctuating_speeds.problem import NormalSpeeds, Scale
from gangwise.papers.gangs.policies import GangSpeedsFamily, GangSpeedsInstance, omniscient_in_run
from tests.papers.gangs.speeds_cases import fuzzed, problem
from tests.reference.gangs import feasible


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.data())
def test_feasible_is_what_the_rules_say(seed, data):
    p = fuzzed(seed % 50)
    R = len(p.cluster.servers)
    x = np.array(data.draw(st.lists(st.sampled_from([1, 1, 0]), min_size=p.L, max_size=p.L)))
    where = np.array(data.draw(st.lists(st.integers(-1, R - 1), min_size=p.Q, max_size=p.Q)))
    for l in range(p.L):  # else hardly any is feasible
        if data.draw(st.booleans()):
            where[p.task_job_type == l] = -1
    if feasible(p, x, where):
        counted = p.tasks_on(x, where)
        for e, n in enumerate(counted):
            l, r = p.channels.job_type[e], p.channels.server[e]
            assert n == sum(where[q] == r for q in range(p.Q) if p.task_job_type[q] == l)
    else:
        with pytest.raises(InfeasibleDecision):
            p.tasks_on(x, where)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([0, -1, -1], "slot 3: job type 'job A' has 1 of its tasks placed and needs at least 2"),
        ([0, 0, -1], "slot 3: server 'server 0' has 4 of device type 'a', and 6 were handed out"),
        (
            [-1, -1, 0],
            "slot 3: task 0 of job type 'job B' is placed on server 'server 0', to "
            "which its job type has no channel",
        ),
        ([0, 7, -1], "task 1 of job type 'job A' is placed on server number 7"),
    ],
)
def test_infeasible_decisions_are_named(where, message):
    p = problem([[4.0], [4.0]], [[[3], [3]], [[1]]], [2, 1], mask=[[1, 1], [0, 1]])
    with pytest.raises(InfeasibleDecision, match=message):
        p.tasks_on([1, 1], where, slot=3)


def test_a_job_that_did_not_come_cannot_run():
    p = problem([[4.0]], [[[1]]], [1])
    with pytest.raises(InfeasibleDecision, match="'job"):
        p.tasks_on([0], [0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[4.0]], [[[5]]], [1]), "task 0 of job type 'job A' fits on none .* 5 of device type"),
        (([[4.0]], [[[1]]], [2]), "job type 'job A' needs at least 2 of its 1 tasks"),
        (([[-4.0]], [[[1]]], [1]), "server 'server 0': capacity of device type 'a' is -4"),
        (([[4.0, 1.0]], [[[1, -1]]], [1]), "'job A': request of device type 'b' is -1"),
        (
            ([[4.0], [4.0]], [[[1]]], [1], None, [0.1, np.inf]),
            "channel \\('job A' on 'server 1'\\): supply cost is inf",
        ),
        (([[4.0], [4.0]], [[[1]]], [1], None, [0.1]), "one number for each of 2 channels"),
    ],
)
def test_bad_problems_are_named(arguments, message):
    with pytest.raises(ScenarioError, match=message):
        problem(*arguments)


def test_bad_instances_are_named():
    p = problem([[4.0]], [[[1]], [[2]]], [1, 1])
    speeds = NormalSpeeds(np.full(2, 0.5))
    with pytest.raises(ScenarioError, match="'job"):
        GangSpeedsInstance(p, BinomialArrivals(np.full(2, 0.5), np.array([1, 3])), speeds)
    with pytest.raises(ScenarioError, match="brings 3"):
        GangSpeedsInstance(p, BernoulliArrivals(np.full(3, 0.5)), speeds)
    with pytest.raises(ScenarioError, match="for 1"):
        GangSpeedsInstance(p, BernoulliArrivals(np.ones(2)), NormalSpeeds(np.array([0.5])))


def test_a_slot_by_hand():
    # Without noise Z is 0.8 and 0.4; costs 0.3 and 0.1 leave 0.5 and 0.3, over a span of 0.5.
    """ESDP §3.4."""
    p = problem([[2.0], [2.0]], [[[1], [1], [1]]], [2], cost=[0.3, 0.1])
    speeds = NormalSpeeds(np.array([0.8, 0.4]), spread=0.0)
    instance = GangSpeedsInstance(p, BernoulliArrivals(np.ones(1)), speeds, Scale(0.0, 0.5))
    environment = instance.environment()
    environment.start(np.random.default_rng(0), np.random.default_rng(1))
    outcome = environment.step(0, np.array([0, 1, 0]))
    assert outcome.reward == pytest.approx(2 * 1.0 + 0.6)
    (told,) = outcome.feedback
    assert (told.slot, told.channels.tolist()) == (0, [0, 1])  # once, with two tasks on channel 0
    assert told.utilities == pytest.approx([1.0, 0.6])
    metrics = dict(zip(environment.metrics, outcome.metrics))
    assert metrics == pytest.approx(
        {
            "mean_utility": 2.6,
            "gain": 2.0,
            "cost": 0.7,
            "jobs": 1,
            "launched": 1,
            "tasks": 3,
            "utilisation": 0.75,
        }
    )


def test_a_slot_with_costs_of_tasks_by_hand():
    # As above; the second task costs 0.25 and the third 0.5, in units of Z̃, that is of 0.5.
    p = problem([[2.0], [2.0]], [[[1], [1], [1]]], [2], cost=[0.3, 0.1], task_cost=[0, 0.25, 0.5])
    speeds = NormalSpeeds(np.array([0.8, 0.4]), spread=0.0)
    instance = GangSpeedsInstance(p, BernoulliArrivals(np.ones(1)), speeds, Scale(0.0, 0.5))
    environment = instance.environment()
    environment.start(np.random.default_rng(0), np.random.default_rng(1))
    outcome = environment.step(0, np.array([0, 1, -1]))
    assert outcome.reward == pytest.approx(1.0 + 0.6 - 0.25)
    metrics = dict(zip(environment.metrics, outcome.metrics))
    assert metrics["mean_utility"] == pytest.approx(1.35)
    assert metrics["cost"] == pytest.approx(0.4 + 0.5 * 0.25)
    assert outcome.feedback[0].utilities == pytest.approx([1.0, 0.6])  # what is learned
    best, realised = (omniscient_in_run(instance, 4, 0, None, which) for which in (False, True))
    # 1.0 and 0.75 on the fast server; the third task gains 0.6 − 0.5 on the slow one.
    assert best.rewards == pytest.approx([1.85] * 4)
    assert realised.rewards == pytest.approx([1.85] * 4)


def test_costs_of_tasks_must_fit():
    with pytest.raises(ScenarioError, match="of 2"):
        problem([[4.0]], [[[1], [1]]], [1], task_cost=[0.1])
    with pytest.raises(ScenarioError, match="'job"):
        problem([[4.0]], [[[1], [1]]], [1], task_cost=[0.1, -1.0])


def test_costs_of_tasks_follow_their_requests():
    settings = {"job_types": 4, "servers": 10}
    plain = create_scenario("esdp-gang-v1", **settings).instance(3)
    dear = create_scenario("esdp-gang-v1", task_cost=0.2, **settings).instance(3)
    assert not plain.problem.task_cost.any()
    p, scale = dear.problem, dear.scale
    np.testing.assert_array_equal(p.task_requests, plain.problem.task_requests)
    share = [sum(a / m for a, m in zip(q, p.cluster.capacity.max(axis=0))) for q in p.task_requests]
    assert p.task_cost / share == pytest.approx(np.full(p.Q, p.task_cost[0] / share[0]))
    mean = dear.speeds.mean.mean()
    assert p.task_cost.mean() * (scale.high - scale.low) == pytest.approx(0.2 * mean)


def test_arrivals_and_noise_do_not_depend_on_decisions_and_feedback_is_tagged():
    p = problem([[2.0], [2.0]], [[[1]], [[1]]], [1, 1])
    instance = GangSpeedsInstance(
        p,
        BernoulliArrivals(np.full(2, 0.5)),
        NormalSpeeds(np.full(4, 0.5)),
        Scale(-1.0, 2.0),
        Delivery(2),
    )
    arrivals, utilities = instance.history(300, 9)
    for server in (0, 1):
        from gangwise.core.simulation import Streams

        streams, environment, told = Streams.of(9), instance.environment(), []
        environment.start(streams.workload, streams.noise)
        for t in range(300):
            x = environment.observe(t, "react").arrivals
            np.testing.assert_array_equal(x, arrivals[t])
            feedback = environment.step(t, np.where(x > 0, server, -1)).feedback
            told += [(t, each) for each in feedback]
        assert [each.slot for _, each in told] == list(range(298))
        for t, each in told:
            assert t == each.slot + 2
            np.testing.assert_allclose(each.utilities, utilities[each.slot, each.channels])
            assert (p.channels.server[each.channels] == server).all()


def test_servers_are_ordered_by_what_they_are():
    for seed in range(20):
        instance = GangSpeedsFamily().fuzz(np.random.default_rng(seed))
        R = len(instance.problem.cluster.servers)
        order = np.random.default_rng([seed, 1]).permutation(R)
        moved = GangSpeedsFamily().relabel_servers(instance, order)
        np.testing.assert_array_equal(
            order[moved.problem.server_order], instance.problem.server_order
        )
        old, new = (i.history(5, 0)[1] for i in (instance, moved))
        for e in range(instance.problem.E):
            l, r = instance.problem.channels.job_type[e], instance.problem.channels.server[e]
            f = moved.problem.channel_of[l, np.flatnonzero(order == r)[0]]
            np.testing.assert_array_equal(old[:, e], new[:, f])

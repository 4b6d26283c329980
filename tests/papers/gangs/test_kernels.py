"""The placement kernels against their plain twins, step by step from the same state."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from gangwise.papers.gain_overhead.problem import relative_size
from gangwise.papers.gangs.kernels import job_reward, put, take
from gangwise.papers.gangs.placement import Placement, job_by_job, round_robin
from tests.papers.gangs.cases import fuzzed, problem
from tests.reference import gangs as reference


def size(p):
    return relative_size(p.cluster.capacity)


def assert_books_agree(servers: Placement) -> None:
    """What the kernels carry along is what the placement says."""
    p, held, where = servers.problem, servers.held, servers.decision()
    left = p.cluster.capacity.copy()
    total = np.zeros((p.L, left.shape[1]))
    for q, r in enumerate(where):
        if r >= 0:
            left[r] -= p.task_requests[q]
            total[p.task_job_type[q]] += p.task_requests[q]
    np.testing.assert_allclose(held.left, left, atol=1e-12)
    np.testing.assert_allclose(held.total, total, atol=1e-12)
    np.testing.assert_array_equal(
        held.placed, np.bincount(p.task_job_type[where >= 0], minlength=p.L)
    )
    for l in range(p.L):
        assert job_reward(servers.arrays, held, l) == pytest.approx(
            reference.job_reward(p, l, where), abs=1e-11
        )


@pytest.mark.parametrize("seed", range(4))
def test_put_and_take_keep_the_books(seed):
    p, rng = fuzzed(seed), np.random.default_rng(seed)
    servers = Placement(p)
    for _ in range(40):
        q = int(rng.integers(p.Q))
        if servers.held.channel[q] >= 0:
            take(servers.arrays, servers.held, q)
        else:
            e = p.channel_of[p.task_job_type[q], rng.choice(np.flatnonzero(p.fits[q]))]
            put(servers.arrays, servers.held, q, e)
    assert_books_agree(servers)


@pytest.mark.parametrize("order", [job_by_job, round_robin])
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_list_scheduling_is_its_plain_twin(order, sign):
    rolled_back = 0
    for seed in range(20):
        p, rng = fuzzed(seed), np.random.default_rng(seed)
        jobs = rng.permutation(np.flatnonzero(rng.random(p.L) < 0.8))
        tasks, ends = order(p, jobs)
        preference = rng.random(len(p.cluster.servers))
        servers = Placement(p, weighs_gains=False)
        got = servers.list_schedule(tasks, ends, sign, preference)
        plain = reference.Plain(p, size(p))
        assert got.tolist() == plain.list_schedule(tasks, ends, sign, preference)
        rolled_back += int(sum(plain.placed(int(l)) == 0 for l in jobs))
    assert rolled_back > 5  # or the cases say nothing about rolling back


def test_kernels_are_given_arrays_of_the_same_kind_after_a_pickle():
    again = pickle.loads(pickle.dumps(Placement(fuzzed(0))))
    assert not any(array.flags.writeable for array in again.arrays)


def test_greedy_is_its_plain_twin():
    for seed in range(10):
        p = fuzzed(seed)
        active = (np.random.default_rng(seed).random(p.L) < 0.8).astype(np.int64)
        servers = Placement(p)
        servers.greedy(active)
        got = servers.decision()
        assert_books_agree(servers)
        expected = np.array(reference.Plain(p, size(p)).greedy(active))
        for l in range(p.L):  # equal tasks of a job may trade places
            mine = p.task_job_type == l
            assert reference.job_reward(p, l, got) == pytest.approx(
                reference.job_reward(p, l, expected), abs=1e-9
            )
            assert sorted(got[mine]) == sorted(expected[mine])


def test_improving_never_lowers_the_reward_and_often_raises_it():
    helped = 0
    for seed in range(20):
        p = fuzzed(seed)
        active = np.ones(p.L, dtype=np.int64)
        servers = Placement(p)
        if seed % 2:
            servers.greedy(active)
        else:
            servers.list_schedule(*job_by_job(p, np.arange(p.L)), 0.0, size(p))
        before = p.reward(active, servers.decision()).reward
        times = servers.local_search(active, 3)
        assert_books_agree(servers)
        after = p.reward(active, servers.decision()).reward
        assert after > before if times else after == pytest.approx(before)
        helped += times > 0
    assert helped > 5


def test_round_robin_frees_a_hopeless_gang_for_the_others():
    # A and B need two and three tasks of 2 devices; five devices hold two tasks. Each places one,
    # B is further from its minimum (1/3 < 1/2), is rolled back, and A gets the second place.
    p = problem([[5.0]], [[[2], [2]], [[2], [2], [2]]], [2, 3])
    servers = Placement(p, weighs_gains=False)
    got = servers.list_schedule(*round_robin(p, np.array([0, 1])), 0.0, size(p))
    assert got.tolist() == [0, 0, -1, -1, -1]


def test_job_by_job_rolls_back_before_the_next_job():
    # A holds 2 of the 3 tasks that it needs, so B gets the server.
    p = problem([[5.0]], [[[2], [2], [1.5]], [[4]]], [3, 1])
    servers = Placement(p, weighs_gains=False)
    got = servers.list_schedule(*job_by_job(p, np.array([0, 1])), 0.0, size(p))
    assert got.tolist() == [-1, -1, -1, 0]


def test_most_used_and_least_used_servers():
    # Server 0 is larger; after one task there, it is the most used, server 1 the least.
    p = problem([[6.0], [5.0]], [[[2]], [[2]]], [1, 1])
    servers = Placement(p, weighs_gains=False)
    tasks = job_by_job(p, np.array([0, 1]))
    assert servers.list_schedule(*tasks, 1.0, size(p)).tolist() == [0, 0]
    assert servers.list_schedule(*tasks, -1.0, size(p)).tolist() == [0, 1]


def test_a_plan_is_followed_as_far_as_it_covers_tasks():
    # Both servers gain alike; the plan pays for a whole task on server 1 and half of one on 0.
    p = problem([[4.0], [4.0]], [[[2]]], [1])
    servers = Placement(p)
    plan = np.zeros((2, 1))
    plan[p.channel_of[0, 1]], plan[p.channel_of[0, 0]] = 2.0, 1.0
    servers.round_plan(np.array([1]), plan, 1.0)
    assert servers.decision().tolist() == [1]
    assert plan.sum() == 3.0  # the caller's plan is left alone


@pytest.mark.parametrize(("left", "expected"), [(4.0, [1, 0]), (0.5, [-1, -1])])
def test_a_plan_for_part_of_a_gang_is_completed_or_rolled_back(left, expected):
    # The plan pays for the first task, on server 1; the second has to find room on server 0.
    p = problem([[4.0], [2.0]], [[[2], [1]]], [2])
    servers = Placement(p)
    servers.held.left[0, 0] = left  # the rest is somebody else's
    plan = np.zeros((2, 1))
    plan[p.channel_of[0, 1]] = 2.0
    servers.round_plan(np.array([1]), plan, 1.0)
    assert servers.decision().tolist() == expected


def test_recall_puts_remembered_gangs_back_as_far_as_there_is_room():
    # Server 0 holds A's two tasks or B's one; B is worth more, then A is short of its minimum.
    p = problem([[4.0], [2.0]], [[[2], [2]], [[3]]], [2, 1])
    servers = Placement(p)
    memory = p.channel_of[[0, 0, 1], [0, 0, 0]]
    for worth, x, expected in (
        ([1.0, 2.0], [1, 1], [-1, -1, 0]),
        ([2.0, 1.0], [1, 1], [0, 0, -1]),
        ([1.0, 2.0], [1, 0], [0, 0, -1]),
    ):
        servers.reset()
        servers.place_remembered(np.array(x), memory, np.array(worth))
        assert servers.decision().tolist() == expected
    servers.reset()
    servers.place_remembered(np.array([1, 1]), np.array([-1, memory[1], -1]), np.ones(2))
    assert servers.decision().tolist() == [-1, -1, -1]  # one of two tasks is not a gang

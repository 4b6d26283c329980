import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangwise import InfeasibleDecision, ScenarioError
from gangwise.papers.gain_overhead.problem import Utilities, Utility
from gangwise.papers.gangs.placement import gain_table
from tests.papers.gangs.cases import fuzzed, problem
from tests.reference import gangs as reference


def test_reward_by_hand():
    # Two servers with devices a and b. Job A holds (1, 2) on server 0 and (3, 1) on server 1;
    # job B holds (2, 0) on server 0. Linear with alpha 2 on server 0, log with alpha 1 on server 1.
    p = problem(
        [[4, 4], [4, 4]],
        [[[1, 2], [3, 1]], [[2, 0]]],
        [2, 1],
        beta=[0.5, 1.0],
        utilities=Utilities.of([["linear"] * 2, ["log"] * 2], [[2.0, 2.0], [1.0, 1.0]]),
    )
    result = p.reward([1, 1], np.array([0, 1, 0]))
    gain = 2 * 1 + 2 * 2 + np.log(4) + np.log(2) + 2 * 2
    overhead = max(0.5 * 4, 1.0 * 3) + max(0.5 * 2, 0)
    assert result.gain == pytest.approx(gain)
    assert result.overhead == pytest.approx(overhead)
    assert result.reward == pytest.approx(gain - overhead)
    assert result.launched == 2
    assert result.utilisation == pytest.approx((3 / 4 + 2 / 4 + 3 / 4 + 1 / 4) / 4)


def test_tasks_on_one_server_share_its_concave_gain():
    p = problem([[4], [4]], [[[3], [1]]], [1], utilities=Utilities.of("log", np.ones((2, 1))))
    together, apart = p.reward([1], np.array([0, 0])), p.reward([1], np.array([0, 1]))
    assert together.gain == pytest.approx(np.log(5))
    assert apart.gain == pytest.approx(np.log(4) + np.log(2))


@pytest.mark.parametrize("seed", range(5))
def test_reward_agrees_with_the_formula(seed):
    """OGASched §3.5."""
    p = fuzzed(seed)
    rng = np.random.default_rng(seed)
    where = np.array([rng.choice(np.append(np.flatnonzero(f), -1)) for f in p.fits])
    gain, overhead = p.by_job_type(where)
    expected = [reference.job_reward(p, l, where) for l in range(p.L)]
    np.testing.assert_allclose(gain - overhead, expected, atol=1e-12)


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.data())
def test_feasible_is_what_the_rules_say(seed, data):
    p = fuzzed(seed % 50)
    R = len(p.cluster.servers)
    arrived = np.array(data.draw(st.lists(st.sampled_from([1, 1, 0]), min_size=p.L, max_size=p.L)))
    where = np.array(data.draw(st.lists(st.integers(-1, R - 1), min_size=p.Q, max_size=p.Q)))
    for l in range(p.L):  # else hardly any is feasible
        if data.draw(st.booleans()):
            where[p.task_job_type == l] = -1
    if reference.feasible(p, arrived, where):
        p.reward(arrived, where)
    else:
        with pytest.raises(InfeasibleDecision):
            p.reward(arrived, where)


@pytest.mark.parametrize(
    ("where", "arrived", "words"),
    [
        ([1, 0, -1], [1, 1], ["slot 7", "task 0 of job type 'job A'", "'server-1'", "no channel"]),
        ([0, -1, -1], [1, 1], ["slot 7", "'job A'", "1 of its tasks", "at least 2"]),
        ([0, 0, 0], [1, 1], ["slot 7", "'server-0'", "'a'", "5", "4", "task 0 of job type 'job B"]),
        ([-1, -1, 1], [1, 0], ["slot 7", "task 0 of job type 'job B'", "'server-1'", "no such"]),
        ([0, 0, 2], [1, 1], ["slot 7", "server number 2"]),
        ([0, 0, -2], [1, 1], ["slot 7", "server number -2"]),
        ([0, 0], [1, 1], ["slot 7", "shape (2,)"]),
        ([0.0, 0.0, -1.0], [1, 1], ["slot 7", "float64"]),
    ],
)
def test_infeasible_decisions_are_named(where, arrived, words):
    p = problem([[4], [4]], [[[1], [2]], [[2]]], [2, 1], mask=[[1, 0], [1, 1]])
    with pytest.raises(InfeasibleDecision) as error:
        p.reward(arrived, np.array(where), slot=7)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("jobs", "minimum", "words"),
    [
        ([[[5]]], [1], ["task 0 of job type 'job A'", "5 of device type 'a'", "best has 4"]),
        ([[[1], [np.nan]]], [1], ["task 1 of job type 'job A'", "nan"]),
        ([[[1], [-1]]], [1], ["task 1 of job type 'job A'", "-1"]),
        ([[[1], [0]]], [1], ["task 1 of job type 'job A'", "no devices"]),
        ([[[1]], []], [1, 1], ["'job B'", "no tasks"]),
        ([[[1], [1]]], [3], ["'job A'", "at least 3 of its 2", "1 to 2"]),
        ([[[1], [1]]], [0], ["'job A'", "at least 0", "1 to 2"]),
    ],
)
def test_ill_formed_problems_are_named(jobs, minimum, words):
    with pytest.raises(ScenarioError) as error:
        problem([[4], [2]], jobs, minimum)
    for word in words:
        assert word in str(error.value)


def test_a_combination_that_no_server_has():
    with pytest.raises(ScenarioError, match="combination"):
        problem([[4, 1], [1, 4]], [[[3, 3]]], [1])
    with pytest.raises(ScenarioError, match="its 1"):
        problem([[4], [9]], [[[5]]], [1], mask=[[1, 0]])


def test_tasks_out_of_order_and_unknown_job_types():
    from dataclasses import replace

    p = problem([[4]], [[[1]], [[1], [2]]], [1, 1])
    with pytest.raises(ScenarioError, match=r"task_job_type\[1\]"):
        replace(p, task_job_type=np.array([1, 0, 1]))
    with pytest.raises(ScenarioError, match=r"task_job_type\[2\]"):
        replace(p, task_job_type=np.array([0, 1, 2]))
    with pytest.raises(ScenarioError, match="whole numbers"):
        replace(p, minimum=np.array([1.5, 1.0]))


def test_gain_table_counts_equal_tasks_once():
    p = problem([[64.0]], [[[1]] * 32 + [[2]]], [1], utilities=Utilities.of("log", [[1.0]]))
    table = gain_table(p)
    assert table.value.size == 33 * 2
    assert table.value[table.stride[0] * 5 + table.stride[32]] == pytest.approx(np.log(1 + 5 + 2))


def test_gain_table_takes_utilities_of_your_own():
    own = Utility("saturating", lambda y, a: a * -np.expm1(-y), lambda y, a: a * np.exp(-y))
    p = problem([[4.0]], [[[1], [2]]], [1], utilities=Utilities.of(own, [[2.0]]))
    table = gain_table(p)
    assert table.value[table.stride.sum()] == pytest.approx(2 * (1 - np.exp(-3)))


def test_gain_table_that_would_not_fit():
    p = problem([[64.0]], [[[1 + q / 64] for q in range(30)]], [1])
    with pytest.raises(ScenarioError, match="'job"):
        gain_table(p)

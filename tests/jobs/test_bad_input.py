"""Jobs that cannot be played: named, counted; nothing is lost, nothing runs twice."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Conditions, Jobs, Node, Nodes, Options, simulate_jobs
from gangwise.study.compare import compare
from gangwise.study.tune import tune


def test_each_fault_is_set_aside_under_its_name():
    nan = np.nan
    jobs = Jobs.of(
        submit=[0, nan, -5, 1, 2, 3, 4, 5, 6, 7, 8],
        run=[10, 10, 10, nan, -1, 10, 10, 10, 10, 10, 10],
        tasks=[1, 1, 1, 1, 1, 0, 1, 1, 1, 2.5, 1],
        demand={"gpu": [1, 1, 1, 1, 1, 1, -1, 0, 1, 1, 1]},
        recorded_start=[nan] * 8 + [20, nan, nan],
        recorded_end=[nan] * 8 + [10, nan, nan],
        limit=[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, nan],
    )
    told = {reason: rows.tolist() for reason, rows in jobs.account.set_aside.items()}
    assert told == {
        "without a submission time": [1],
        "submitted at a negative time": [2],
        "that ended before they started": [8],
        "without a run time": [3],
        "with a negative run time": [4],
        "with no task": [5],
        "with a part of a task": [9],
        "with a missing or negative number of devices": [6],
        "that ask for no device": [7],
    }
    assert jobs.account.noted == {
        "without a requested limit: the run time is taken for it": 1,
        "ran longer than they requested": 1,
    }
    assert jobs.row.tolist() == [0, 10]
    assert jobs.account.played == len(jobs) == 2


def test_dependencies_in_a_circle_and_on_nothing():
    jobs = Jobs.of(
        submit=[0, 0, 0, 0, 0],
        run=[5, 5, 5, 5, 5],
        id=["a", "b", "c", "d", "e"],
        after={"a": ["b"], "b": ["a"], "c": ["c"], "d": ["a", "nobody"], "e": ["d"]},
    )
    assert {k: v.tolist() for k, v in jobs.account.set_aside.items()} == {
        "that come after one another in a circle": [0, 1, 2]
    }
    assert jobs.account.noted["dependencies on jobs that are not in the log: dropped"] == 1
    assert jobs.account.noted["dependencies on jobs that were set aside: dropped"] == 1
    schedule = simulate_jobs(jobs, Nodes.pool(2))
    assert schedule.start.tolist() == [0, 5]


def test_a_job_larger_than_the_cluster_stays_out_and_the_rest_is_played():
    nodes = Nodes.of([Node("a", {"gpu": 4}, {"rack": "x"}), Node("b", {"gpu": 2})])
    jobs = Jobs.of(
        submit=[0, 1, 2, 3],
        run=[1, 1, 1, 1],
        tasks=[1, 3, 7, 2],
        demand={"gpu": [5, 2, 1, 4], "tpu": [0, 0, 0, 0]},
        constraint=[{}, {}, {}, {"rack": "x"}],
        after={1: [0]},
    )
    for engine in ("compiled", "plain"):
        schedule = simulate_jobs(jobs, nodes, engine=engine)
        (rows,) = schedule.account.set_aside.values()
        assert rows.tolist() == [0, 2, 3]
        assert np.isnan(schedule.start[[0, 2, 3]]).all()
        assert schedule.start[1] == 1.0
        assert schedule.account.noted["dependencies on jobs that were set aside: dropped"] == 1


def test_a_device_that_no_node_has_is_named():
    jobs = Jobs.of(submit=[0], run=[1], demand={"tpu": 1})
    schedule = simulate_jobs(jobs, Nodes.pool(2))
    assert list(schedule.account.set_aside) == ["that ask for tpu, which no node has"]


def test_a_million_jobs_at_one_instant():
    J = 1_000_000
    jobs = Jobs.of(submit=np.zeros(J), run=np.ones(J))
    schedule = simulate_jobs(jobs, Nodes.pool(1000), "fcfs+none+first-fit")
    assert (schedule.start == np.arange(J) // 1000).all()
    assert (schedule.attempts == 1).all()


def test_a_node_that_fails_with_everything_on_it_runs_nothing_twice():
    jobs = Jobs.of(submit=[0] * 6, run=[100] * 6, demand={"gpu": 1})
    conditions = Conditions(downs=[(50, 0), (60, 0)], ups=[(70, 0)])
    for engine in ("compiled", "plain"):
        schedule = simulate_jobs(
            jobs,
            Nodes.alike(2, {"gpu": 3}),
            "fcfs+none+first-fit",
            conditions,
            Options(restart=10),
            engine=engine,
        )
        assert schedule.attempts.tolist() == [2, 2, 2, 1, 1, 1]
        assert schedule.end.tolist() == [180, 180, 180, 100, 100, 100]
        assert schedule.lost.tolist() == [50 + 0] * 3 + [0] * 3
        assert schedule.counts["requeues"] == 3
        assert schedule.cuts["end"].tolist() == [50] * 3


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (Conditions(rates=np.zeros((1, 2))), "not positive"),
        (Conditions(rates=np.ones((2, 2))), r"\[L, N\]"),
        (Conditions(downs=[(5, 7)]), "there are 2 nodes"),
        (Conditions(factors=[(5, 0, -1.0)]), "must be > 0"),
        (Conditions(drains=[(-1, 0)]), "event at -1.0 s of node 0"),
        (Conditions(cancels=[(5, 1)]), "job 1 is cancelled at 5 s: there are 1 jobs"),
    ],
)
def test_conditions_that_make_no_sense(conditions, said):
    jobs = Jobs.of(submit=[0], run=[1])
    with pytest.raises(ScenarioError, match=said):
        simulate_jobs(jobs, Nodes.alike(2, {"cpu": 1}), conditions=conditions)


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_jobs_withdrawn_before_they_come_while_they_wait_and_while_they_run(engine):
    jobs = Jobs.of(
        submit=[0, 0, 0, 50, 60],
        run=[100, 100, 10, 10, 10],
        id=["runs", "waits", "behind", "comes", "after"],
        after={"after": ["waits", "comes"]},
    )
    schedule = simulate_jobs(
        jobs,
        Nodes.pool(1),
        "fcfs+none+first-fit",
        Conditions(cancels=[(30, 0), (20, 1), (40, 3), (45, 3)]),
        engine=engine,
    )
    nan = np.nan
    np.testing.assert_array_equal(schedule.start, [0, nan, 30, nan, 60])
    np.testing.assert_array_equal(schedule.end, [30, nan, 40, nan, 70])
    assert schedule.counts["cancellations"] == 3
    assert schedule.placed(0) == [(0, 1)]


@pytest.mark.parametrize("engine", ["compiled", "plain"])
def test_a_node_that_drains_keeps_what_runs_and_takes_nothing_new(engine):
    jobs = Jobs.of(submit=[0, 0, 20, 30], run=[100, 100, 10, 10], demand={"gpu": 1})
    conditions = Conditions(drains=[(10, 1)], ups=[(150, 1)])
    nodes = Nodes.alike(2, {"gpu": 1})
    schedule = simulate_jobs(jobs, nodes, "fcfs+easy+first-fit", conditions, engine=engine)
    assert schedule.end.tolist() == [100, 100, 110, 120]
    assert schedule.attempts.tolist() == [1, 1, 1, 1]
    assert [schedule.placed(j)[0][0] for j in range(4)] == [0, 1, 0, 0]


def test_amounts_that_are_not_counted_exactly_are_refused():
    jobs = Jobs.of(submit=[0.0] * 4, run=[1.0] * 4, demand={"memory": 7e11}, limit=[1.0] * 4)
    # 2.1e12 / 7e11: three fit at once, to the last byte.
    played = simulate_jobs(jobs, Nodes.alike(1, {"memory": 2.1e12}), "fcfs+easy+best-fit")
    assert played.start.tolist() == [0.0, 0.0, 0.0, 1.0]
    with pytest.raises(ScenarioError, match="memory in a larger unit"):
        simulate_jobs(jobs, Nodes.alike(1, {"memory": 2.3e12}), "fcfs+easy+best-fit")


@pytest.mark.parametrize(
    "call",
    [
        lambda: Jobs.of([0], [1], tipe="a"),
        lambda: compare("ogasched-default-v1", "drf", 1, [0], job=2),
        lambda: tune("ogasched-default-v1", "ogasched-react", ["steps=1:3:int"], "never", tryals=1),
    ],
)
def test_an_option_that_there_is_not_is_named(call):
    with pytest.raises(TypeError, match=r"tipe|job|tryals"):
        call()

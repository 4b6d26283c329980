"""The graph of tasks against hand-made cases and a plain recursive reading of the words."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.logs.formats.alibaba_v2018 import Dag


def reaches(parents, start):
    """Every task that a task waits for, however far."""
    seen, todo = set(), list(parents[start])
    while todo:
        task = todo.pop()
        if task not in seen:
            seen.add(task)
            todo += parents[task]
    return seen


EDGES = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=16)
    )
)


@given(EDGES)
def test_any_graph_is_what_a_plain_search_finds(case):
    tasks, edges = case
    dag = Dag(tasks, [c for c, _ in edges], [p for _, p in edges])
    parents = [{p for c, p in edges if c == task} for task in range(tasks)]
    assert [set(dag.parent[dag.child == task].tolist()) for task in range(tasks)] == parents
    ancestors = [reaches(parents, task) for task in range(tasks)]
    assert dag.on_circle.tolist() == [task in ancestors[task] for task in range(tasks)]
    duration = np.arange(1.0, tasks + 1)
    if dag.on_circle.any():
        with pytest.raises(TraceError, match="circle"):
            dag.finish(duration)
        return

    def longest(task, length):
        return length[task] + max((longest(p, length) for p in parents[task]), default=0.0)

    assert dag.finish(duration).tolist() == [longest(task, duration) for task in range(tasks)]
    assert dag.level.tolist() == [longest(task, np.ones(tasks)) - 1 for task in range(tasks)]


def test_two_chains_by_hand():
    # 0 -> 1 -> 2 and 3 -> 2; 4 alone. Durations 1, 2, 3, 10, 4: 2 ends at 10 + 3.
    dag = Dag(5, [1, 2, 2, 2], [0, 1, 3, 3])
    assert (dag.child.tolist(), dag.parent.tolist()) == ([1, 2, 2], [0, 1, 3])
    assert dag.finish(np.array([1.0, 2, 3, 10, 4])).tolist() == [1, 3, 13, 10, 4]
    assert dag.level.tolist() == [0, 1, 2, 0, 0]


def test_a_task_after_a_circle_is_not_on_it():
    dag = Dag(4, [0, 1, 2, 3], [1, 0, 1, 3])
    assert dag.on_circle.tolist() == [True, True, False, True]
    assert dag.level.tolist() == [-1, -1, -1, -1]


def test_no_tasks_no_edges_and_edges_to_nowhere():
    nothing = Dag(0, [], [])
    assert nothing.finish(np.empty(0)).tolist() == []
    assert Dag(2, [], []).level.tolist() == [0, 0]
    for edge in ((0, 2), (-1, 0)):
        with pytest.raises(ValueError, match="outside 0"):
            Dag(2, [edge[0]], [edge[1]])


def test_a_long_chain_is_one_path():
    n = 3000
    assert Dag(n, np.arange(1, n), np.arange(n - 1)).finish(np.ones(n))[-1] == n


def test_of_jobs_keeps_jobs_apart_and_names_what_a_job_lacks():
    rows = [
        (2, "a", "M1", ""),
        (3, "b", "M1", ""),
        (4, "b", "R2", "M1"),
        (5, "a", "J3", "M1|R2"),
        (6, "a", "R2", "M1"),
    ]
    jobs = pl.DataFrame(rows, schema=["row", "job", "name", "after"], orient="row")
    dag = Dag.of_jobs(jobs)
    assert list(zip(dag.child.tolist(), dag.parent.tolist())) == [(2, 1), (3, 0), (3, 4), (4, 0)]
    with pytest.raises(TraceError, match="R2"):
        Dag.of_jobs(jobs.head(4))
    assert Dag.of_jobs(jobs.head(2)).level.tolist() == [0, 0]

"""RLScheduler's environment: its rule by hand, and where it is what our simulation does."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import UnknownName
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.simulation import simulate_jobs
from gangwise.reproduce.field import Picked


def test_fcfs_without_backfilling_is_an_ordinary_one():
    rng = np.random.default_rng(3)
    come, run = np.cumsum(rng.integers(0, 60, 300)).astype(float), rng.integers(1, 900, 300)
    jobs = Jobs.of(come, run.astype(float), rng.integers(1, 17, 300), {"cpu": 1})
    start = Picked("fcfs").start(jobs, 16)
    ours = simulate_jobs(jobs, Nodes.alike(1, {"cpu": 16}), "fcfs").start
    assert np.array_equal(start, ours)
    assert start.max() > come.max() + 1000  # jobs waited


@pytest.mark.parametrize(
    ("picked", "start"),
    [
        # 1 is picked at 1, and keeps its turn although 2 is shorter when there is room at 10.
        (Picked("sjf"), [0, 10, 15, 17]),
        # 3 is due to end at 9, before 1 has room.
        (Picked("sjf", backfilling=True), [0, 10, 15, 4]),
        # 1 is picked alone; of 2 and 3 the latter's key is smaller, 1 beside 13.5.
        (Picked("wfp3"), [0, 10, 20, 15]),
    ],
)
def test_who_was_picked_starts_before_anyone_else_is_picked(picked, start):
    jobs = Jobs.of([0, 1, 2, 4], [10, 5, 2, 5], [3, 4, 4, 1], {"cpu": 1})
    assert picked.start(jobs, 4).tolist() == start


def test_an_order_that_the_environment_does_not_have_is_named():
    with pytest.raises(UnknownName, match="f9"):
        Picked("f9").start(Jobs.of([0], [1], 1, {"cpu": 1}), 1)

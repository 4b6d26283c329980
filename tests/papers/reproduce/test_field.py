"""The environments of others: their rules by hand, and where they are what our simulation does."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import UnknownName
from gangwise.jobs.model import Jobs, Nodes
from gangwise.jobs.simulation import simulate_jobs
from gangwise.papers.reproduce.field import Picked, Rounds


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


def test_in_gavels_rounds_a_job_waits_for_its_first_share():
    jobs = Jobs.of([0, 100, 1500], [1000, 50, 400], 1, {"gpu": 1}, type=["a", "a", "a"])
    one = np.array([[1.0, 1.0, 1.0]])
    # Shares at 0 and, as nothing is left to run, 1,920 s later.
    assert Rounds().end(jobs, one, 9).tolist() == [1000, 1970, 2320]
    # With shares every six minutes 1 starts with the second round, 2 with the one after its coming.
    assert Rounds(between=360).end(jobs, one, 9).tolist() == [1000, 410, 1900]
    # Steps are whole: of 1 / 0.007 s each, two in a round.
    slow = Jobs.of([0], [1000], 1, {"gpu": 1}, type=["a"])
    assert Rounds().end(slow, 0.007 * one, 9) == pytest.approx([1000])


def test_in_gavels_rounds_shares_say_who_runs_where():
    jobs = Jobs.of([0, 0], [3600, 3600], 1, {"gpu": 1}, type=["a", "b"])
    speed = np.array([[1.0, 0.2, 0.1], [1.0, 0.9, 0.8]])
    # On the V100 for x of the time, a has (0.2 + 0.8 x) / 0.433 of what equal shares give, and b
    # (1 - 0.1 x) / 0.9: both the same at x = 0.332. When b has ended, a has the V100.
    x = 0.332
    first = 3600 / (1 - 0.1 * x)
    last = first + 3600 - first * (0.2 + 0.8 * x)
    assert Rounds().end(jobs, speed, 1) == pytest.approx([last, first], abs=360)
    assert Rounds().end(jobs, speed, 2).tolist() == [3600, 3600]

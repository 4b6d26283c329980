"""Least attained service: hand cases, and that every job ends once."""

from __future__ import annotations

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Conditions, Jobs, Nodes, Options, simulate_jobs
from gangwise.jobs.gavel import LeastAttained
from gangwise.jobs.scheduler import create_scheduler


def test_a_new_job_preempts_one_that_has_had_a_level_more() -> None:
    """One device. At 100 s the first job has had 100 device-seconds, more than the threshold 50."""
    jobs = Jobs.of([0, 100], [1000, 20], 1)
    schedule = simulate_jobs(
        jobs, Nodes.pool(1), LeastAttained((50.0,)), None, Options(restart=7.0)
    )
    assert schedule.end.tolist() == [1027.0, 120.0]
    assert schedule.counts["preemptions"] == 1
    assert schedule.lost.tolist() == [0.0, 0.0]


def test_jobs_of_one_level_do_not_take_turns() -> None:
    jobs = Jobs.of([0, 1, 2], [30, 30, 30], 1)
    schedule = simulate_jobs(jobs, Nodes.pool(1), LeastAttained((1000.0,)))
    assert schedule.counts["preemptions"] == 0
    assert schedule.end.tolist() == [30.0, 60.0, 90.0]


def test_service_is_counted_in_devices_times_seconds() -> None:
    """Four devices: after 20 s the wide job has had 80 device-seconds, the narrow one 20."""
    jobs = Jobs.of([0, 0, 20], [500, 500, 10], [3, 1, 1])
    schedule = simulate_jobs(jobs, Nodes.pool(4), LeastAttained((50.0,)))
    assert schedule.start[2] == 20.0
    assert schedule.attempts.tolist() == [2, 1, 1]


def test_as_many_make_room_as_a_gang_needs_and_none_of_its_own_level() -> None:
    jobs = Jobs.of([0, 0, 100], [300, 400, 10], [1, 1, 2])
    schedule = simulate_jobs(jobs, Nodes.pool(2), LeastAttained((50.0, 350.0)))
    assert schedule.counts["preemptions"] == 2
    held = Jobs.of([0, 0, 100], [300, 400, 10], [1, 1, 2], priority=[0, 0, 0])
    never = simulate_jobs(held, Nodes.pool(2), LeastAttained((1e9,)))
    assert never.counts["preemptions"] == 0
    assert never.start[2] == 400.0


@pytest.mark.parametrize("seed", range(4))
def test_every_job_ends_once_and_small_ones_sooner_than_under_fcfs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    J = 60
    jobs = Jobs.of(
        np.cumsum(rng.exponential(20, J)),
        rng.lognormal(4, 1.5, J),
        rng.integers(1, 5, J),
        {"gpu": 1},
    )
    nodes = Nodes.alike(3, {"gpu": 4})
    conditions = Conditions(downs=[(300.0, 0)], ups=[(900.0, 0)])
    options = Options(restart=5.0, checkpoint=0.0)
    scheduler = LeastAttained((100.0, 1000.0), pause=5.0)
    schedule = simulate_jobs(jobs, nodes, scheduler, conditions, options)
    assert np.isfinite(schedule.end).all()
    assert (schedule.attempts >= 1).all()
    again = simulate_jobs(
        jobs, nodes, LeastAttained((100.0, 1000.0), pause=5.0), conditions, options
    )
    assert (again.end == schedule.end).all()
    plain = simulate_jobs(jobs, nodes, "fcfs+none+best-fit", conditions, options)
    small = jobs.run * jobs.tasks < 100
    if small.sum() > 5:
        took = (schedule.end - jobs.submit)[small].mean()
        assert took <= (plain.end - jobs.submit)[small].mean() + 1.0


def test_by_name_and_bad_arguments() -> None:
    assert create_scheduler("las:pause=30").pause == 30
    with pytest.raises(ScenarioError, match="rising numbers"):
        LeastAttained((5.0, 1.0))
    with pytest.raises(ScenarioError, match="pause is"):
        LeastAttained(pause=0)

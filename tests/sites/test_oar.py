"""OAR with Kamelot: against a chain of slots in plain Python, and against real runs."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.oar import run_times

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Jobs, Node, Nodes, create_scheduler, simulate_jobs
from gangwise.jobs.schedule import Options
from tests.reference import kamelot


def case(seed: int) -> tuple[Jobs, Nodes]:
    """Jobs that wait for one another, on nodes that hold one job each."""
    rng = np.random.default_rng([45, seed])
    N, J = int(rng.integers(2, 13)), int(rng.integers(5, 61))
    submit = np.cumsum(rng.integers(0, 30, J)).astype(float)
    run = rng.integers(1, 120, J).astype(float)
    limit = run + rng.choice([1, 10, 60, 200], J)
    size = np.minimum(2 ** rng.integers(0, 4, J), N)
    nodes = Nodes.of(Node(f"n{n}", {"cpu": 1.0}) for n in range(N))
    jobs = Jobs.of(submit, run, limit=limit, tasks=size)
    return jobs, nodes


@pytest.mark.parametrize("seed", range(40))
def test_every_start_is_that_of_the_chain_of_slots(seed: int) -> None:
    jobs, nodes = case(seed)
    security = 60 * (seed % 4 > 0)
    columns = jobs.submit, jobs.run, jobs.limit + security, jobs.tasks
    plain = kamelot.play(*(x.astype(int).tolist() for x in columns), len(nodes))
    # The plain engine is another half minute of compiling: in the full tests, see the middle cases.
    for engine in ("compiled", "plain") if seed in (0, 1) else ("compiled",):
        played = simulate_jobs(jobs, nodes, f"oar:security={security}", engine=engine)
        assert played.start.tolist() == plain, engine


def test_it_differs_from_conservative_backfilling() -> None:
    """Else the cases above would not tell the two apart."""
    differ = 0
    for seed in range(60):
        jobs, nodes = case(seed)
        names = "oar", "fcfs+conservative+first-fit"
        one, other = (simulate_jobs(jobs, nodes, create_scheduler(n)).start for n in names)
        differ += (one != other).any()
    assert differ >= 20


def test_it_plans_in_the_order_of_submission_alone() -> None:
    with pytest.raises(ScenarioError, match="take fcfs"):
        create_scheduler("sjf+kamelot+first-fit")


RUNS = {  # mean as a share of the recorded one, and job by job, at least
    "seed2-sgraphene1-run1": (0.05, 0.80),
    "seed3-sgraphene4-run1": (0.05, 0.80),
    "seed4-sgraphene1-run1": (0.05, 0.85),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_retells_real_runs(traces, name: str) -> None:
    rows = np.array(
        [
            line.split()
            for line in (traces / "oar-grid5000" / f"{name}.swf").read_text().splitlines()
            if not line.startswith(";")
        ],
        dtype=float,
    )
    submit, wait, run, size, limit = rows[:, [1, 2, 3, 4, 8]].T
    jobs = Jobs.of(submit, run, limit=limit, tasks=size.astype(int))
    nodes = Nodes.of(Node(f"n{n}", {"cpu": 1.0}) for n in range(32))
    played = simulate_jobs(jobs, nodes, create_scheduler("oar"), options=Options(latency=1.45))
    waits = played.start - submit
    off, share = RUNS[name]
    assert abs(waits.mean() / wait.mean() - 1) <= off
    assert 1 - np.abs(waits - wait).sum() / wait.sum() >= share


def test_whole_seconds_of_alike_jobs_tell_their_run_times() -> None:
    rng = np.random.default_rng(0)
    program = np.repeat([61.3, 65.8, 290.5], 40)
    limit = np.repeat([123.0, 123.0, 436.0], 40)
    begin = rng.uniform(0, 1e4, 120)
    seconds = np.floor(begin + program) - np.floor(begin)
    rows = np.stack([np.arange(120), begin, begin, seconds, np.ones(120), limit], axis=1)
    assert np.abs(run_times(rows) - program).max() < 0.25 < np.abs(seconds - program).max()

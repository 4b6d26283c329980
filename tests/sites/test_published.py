"""KTH-SP2 as others have published it, and what learned run times give there."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.jobs_run_times import measures

from gangwise.jobs.simulation import simulate_jobs
from gangwise.study.replay_scenario import ReplayScenario

pytestmark = pytest.mark.full


def test_published_rows_come_out_and_learned_times_keep_what_is_said_of_them(traces: Path) -> None:
    """Gaussier et al. (SC 2015), ``KTH-SP2-published.csv``; then ours, nothing drawn."""
    log = traces / "swf" / "KTH-SP2.swf.gz"
    if not log.exists():
        pytest.skip("no KTH-SP2 here")
    played = ReplayScenario(source=str(log)).draw(0)
    jobs, nodes = played.jobs, played.nodes
    easy = measures(simulate_jobs(jobs, nodes, "fcfs+easy"))
    published = {
        "fcfs+easy:passing=shortest": 69.41,
        "fcfs+easy:ends=true,passing=queue,slack=inf": 71.72,
        "fcfs+easy:ends=true,slack=inf": 49.85,
        "fcfs+easy:ends=learned,times=last-two,slack=inf": 62.86,
        "fcfs+easy:ends=learned,times=last-two,correction=steps,slack=inf": 63.50,
    }
    assert easy[0] == pytest.approx(92.58, rel=0.005)
    for name, slowdown in published.items():
        found = measures(simulate_jobs(jobs, nodes, name))
        assert found[0] == pytest.approx(slowdown, rel=0.005), name
    assert measures(simulate_jobs(jobs, nodes, "fcfs+easy:ends=learned"))[0] <= 60.0
    _, completion, _, p99, longest = measures(simulate_jobs(jobs, nodes, "aged+easy:ends=learned"))
    assert completion <= (1 - 0.135) * easy[1]
    assert p99 <= easy[3]
    assert longest <= 1.5 * easy[4]

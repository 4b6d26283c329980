"""When jobs that wait on a cluster in memory will start; all that ended ran for the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangwise.core.errors import ScenarioError
from gangwise.core.settings import json_text
from gangwise.engines.engine import EngineNode
from gangwise.service.account import forecast_live
from gangwise.service.loop import Service
from tests.service.pretend import Pretend
from tests.service.test_faults import Time, ticks


def test_waiting_jobs_start_when_those_before_them_have_run_as_long_as_usual(
    tmp_path: Path,
) -> None:
    """Jobs that need the whole node run for 100 s, though they request more; then three queue."""
    time, engine = Time(), Pretend([EngineNode("n0", {"gpu": 4000}, {})])
    folder = tmp_path / "state"
    service = Service(engine, folder, "fcfs+easy+best-fit", act=True, clock=time.clock)
    ticks(service, time)
    for step in range(24):
        engine.submit(f"job{step}", 2, 2)
        ticks(service, time, 10, 10.0)
        engine.end(f"job{step}")
        ticks(service, time, 20, 10.0)
    for name in ("runs", "next", "last"):
        engine.submit(name, 2, 2)
        ticks(service, time)
    ticks(service, time, 4, 10.0)
    service.close()
    found = forecast_live(folder)
    assert [row["job"] for row in found.rows] == ["next", "last"]
    begun = service.ledger.jobs["runs"].begun
    for turn, row in enumerate(found.rows, 1):
        due = begun + 100.0 * turn - found.now
        assert row["p50"] == pytest.approx(due, abs=25.0)
        spread = 40.0 * turn  # cells of run times are a quarter wide, and two add up
        assert row["p50"] <= row["p90"] <= due + spread < row["promised"]
    assert "24 jobs that have ended" in found.basis


def test_where_nobody_waits_nothing_is_foretold(tmp_path: Path) -> None:
    engine = Pretend([EngineNode("n0", {"gpu": 4000}, {})])
    time = Time()
    service = Service(engine, tmp_path, "fcfs+easy+best-fit", act=True, clock=time.clock)
    ticks(service, time)
    service.close()
    with pytest.raises(ScenarioError, match="no job waits"):
        forecast_live(tmp_path)


def test_a_job_that_starts_in_no_future_does_not_end_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes are down: its quantiles are infinite, which JSON writes as null."""
    time, engine = Time(), Pretend([EngineNode("n0", {"gpu": 4000}, {})])
    service = Service(engine, tmp_path / "s", "fcfs+easy+best-fit", act=True, clock=time.clock)
    ticks(service, time)
    engine.submit("over", 2, 2)
    ticks(service, time, 4, 10.0)
    engine.end("over")
    engine.set_up("n0", False)
    engine.submit("never", 2, 2)
    ticks(service, time, 4, 10.0)
    service._keep()  # as it does before it has it foretold
    found = forecast_live(tmp_path / "s")
    told = json_text({"now": found.now, "jobs": found.rows})
    assert json.loads(told)["jobs"][0]["p50"] is None
    monkeypatch.setattr(service._forecaster, "found", lambda: json.loads(told))
    ticks(service, time, 2, 10.0)
    assert [row["p50"] for row in service.views["queue"]] == [None]
    service.close()

"""The account against a cluster in memory, whose ranks work in a test's own time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gangwise.core.errors import ScenarioError
from gangwise.engines.engine import EngineNode, RankReport
from gangwise.service.account import account
from gangwise.service.loop import Service
from tests.service.pretend import Pretend
from tests.service.test_faults import Time, ticks

SPEED = {"n0": 2.0, "n1": 2.0, "n2": 1.0, "n3": 1.0}  # as labelled
RATES = {"model=new": 2.0}


def test_the_simulation_predicts_what_a_live_run_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    time, rng = Time(), random.Random(1)
    engine = Pretend(
        [
            EngineNode(n, {"gpu": 4000}, {"model": "new" if s == 2 else "old"})
            for n, s in SPEED.items()
        ]
    )
    service = Service(
        engine, tmp_path / "state", "fcfs+easy+label", act=True, rates=RATES, clock=time.clock
    )
    with pytest.raises(Exception, match="checkpoint"):
        account(tmp_path / "state")
    left: dict[str, float] = {}
    ticks(service, time)
    step = 0
    while step < 120 or engine.table.keys() - service.ledger.over.keys():
        step += 1
        if step <= 120 and step % 2 == 0:
            work = rng.uniform(60.0, 600.0)
            left[str(step)] = work
            engine.submit(str(step), rng.choice([1, 2, 3]), rng.choice([1, 2]), work=work)
        for job, row in list(engine.table.items()):
            if row.phase != "running":
                continue
            slowest = min(SPEED[p.node] for p in row.placed)
            left[job] -= 10.0 * slowest
            reports = tuple(
                RankReport(p.node, i, SPEED[p.node] * 60.0, 60.0) for i, p in enumerate(row.placed)
            )
            if left[job] <= 0:
                engine.end(job, ranks=reports)
            elif 60.0 < row.job.work - left[job] < 70.0:
                engine.tell("measured", job, ranks=reports)
        ticks(service, time, 1, 10.0)
    service.close()
    found = account(tmp_path / "state", since=0.0)
    assert found["jobs"] == 60
    assert abs(found["error"]) < 0.05
    assert found["happened"]["wait"] > 60.0
    assert "60 jobs" in found["told"]
    with pytest.raises(ScenarioError, match="an account needs 5"):
        account(tmp_path / "state", since=time.wall)

"""The service on a real Slurm, where GANGWISE_ENGINES names it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangwise.engines.slurm import SlurmEngine
from gangwise.service.loop import Service
from tests.engines.test_conformance import NAMED

pytestmark = pytest.mark.skipif("slurm" not in NAMED, reason="GANGWISE_ENGINES has no slurm")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from tests.engines.slurm_lab import SlurmLab

    lab = SlurmLab(tmp_path_factory.mktemp("slurm"))
    yield lab
    lab.stop()


def until(service: Service, done, patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not done():
        assert time.monotonic() < end, (service.health(), service.ledger.jobs)
        service.tick(0.25)


def test_acting(lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    service = Service(lab.engine(), tmp_path / "state", act=True)
    jobs = [lab.submit(1.0, tasks=3, gpus=2, wrapped=True) for _ in range(4)]
    until(service, lambda: len(service.ledger.over) == 4)
    assert set(service.ledger.over.values()) == {"finished"}
    rows = {row["job"]: row for row in service.store.rows("SELECT * FROM history")}
    assert sorted(rows) == sorted(jobs)
    for job in jobs:
        where = [node for node, _ in lab.ran(job)]
        told = {p[0]: p[1] for p in rows[job]["body"]["placed"]}
        assert told == {node: where.count(node) for node in where}
    service.close()


def test_watching(lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Slurm's own scheduler places; nothing is changed, and the account has what happened."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    engine = SlurmEngine(
        "open", lab.reports, watch=True, poll=0.25, environment=lab.cluster.environment
    )
    monkeypatch.setattr(engine, "_change", lambda *words: pytest.fail(f"scontrol {words}"))
    service = Service(engine, tmp_path / "state")
    until(service, lambda: service.ledger.books is not None)
    known = set(service.ledger.over) | set(service.ledger.jobs)
    submit = ["sbatch", "--parsable", "-p", "open", "-o", "/dev/null", "-t", "5", "-N", "4"]
    script = "#!/bin/sh\nsleep 3\n"
    jobs = [lab.cluster.call(*submit, "--gres=gpu:4", text=script).strip() for _ in range(2)]
    until(service, lambda: set(jobs) <= set(service.ledger.over))
    assert not known & set(jobs)
    rows = {r["job"]: r for r in service.store.rows("SELECT * FROM history")}
    first, second = (rows[job] for job in jobs)
    assert {p[0] for p in first["body"]["placed"]} == {"a1", "a2", "b1", "b2"}
    assert second["started"] - first["ended"] > -1.5
    assert second["first"] - second["submitted"] > 2.0
    assert not math.isnan(first["ended"])
    assert service.store.rows("SELECT * FROM intents") == []
    service.close()

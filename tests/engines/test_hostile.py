"""No row that anybody can write ends the service or keeps a good job from its node."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from gangwise.service.loop import Service
from tests.engines.hostile import FIRST, GOOD, HostileLocal, HostileSlurm, hostile_kubernetes

pytestmark = pytest.mark.full

ROWS = 2000
TIMES = 5
"""So many answers of so many rows: 10,000 of each engine."""


def made(engine: str, rng: random.Random, folder: Path) -> Any:
    if engine == "local":
        return HostileLocal(rng, ROWS, folder)
    if engine == "kubernetes":
        return hostile_kubernetes(rng, ROWS)
    return HostileSlurm(rng, ROWS, watch=engine == "slurm, watched")


@pytest.mark.parametrize("engine", ["local", "slurm", "slurm, watched", "kubernetes"])
def test_hostile_rows(engine: str, tmp_path: Path) -> None:
    acts = engine != "slurm, watched"
    unread = 0
    for seed in range(TIMES if acts else 1):
        cluster = made(engine, random.Random(seed), tmp_path / f"cluster-{seed}")
        state = tmp_path / f"state-{seed}"
        service = Service(cluster, state, "fcfs+easy+best-fit", act=acts)
        for _ in range(2):
            service.tick(0.0)
            service._compared = cluster._looked = -1e9  # look at the whole table again
        told = service.views["unreadable"]
        unread += len(told)
        assert service.health()["well"], service.troubles
        assert all(row["why"].startswith("left alone: unreadable, because") for row in told)
        good = {str(FIRST + i) for i in range(GOOD)}
        if acts:
            assert good <= cluster.released()
        else:
            assert len(good & service.ledger.jobs.keys()) == GOOD
            assert cluster.said == [], "who only watches changes nothing"
        service.close()
        again = Service(cluster, state, "fcfs+easy+best-fit", act=acts)
        again.tick(0.0)
        assert not again.notes
        again.close()
    assert unread > 0.05 * ROWS * (TIMES if acts else 1)

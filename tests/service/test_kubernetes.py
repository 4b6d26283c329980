"""The whole service on a real API server: from pods that users make to what it has learned."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gangwise.service.loop import Service
from tests.engines.kubernetes_cluster import why_not
from tests.engines.kubernetes_lab import GROUPS, KubernetesLab

pytestmark = pytest.mark.full

if not os.environ.get("GANGWISE_KUBE"):
    pytest.skip(why_not(), allow_module_level=True)


def test_gangs_are_placed_and_rates_learned(tmp_path: Path) -> None:
    """b2 works at half the speed that it is said to have."""
    lab = KubernetesLab(tmp_path)
    service = Service(lab.engine(), tmp_path / "state", "fcfs+easy+learned:depth=100", act=True)
    run = f"{sys.executable} -m gangwise.engines.rank --every 0.3"
    work = 1.0
    command = f"test $NODE_NAME = b2 && export GANGWISE_SPEED=0.5; exec {run} --sleep {work}"
    jobs = 6
    try:

        def submit(i: int) -> None:
            lab.group(f"train{i}", 2)
            for rank in range(2):
                lab.pod(
                    f"train{i}-{rank}",
                    ["sh", "-c", command],
                    2,
                    labels={f"{GROUPS}/pod-group": f"train{i}"},
                    annotations={"gangwise.io/work": str(work), "gangwise.io/type": "train"},
                )

        def until_over(count: int) -> None:
            end = time.monotonic() + 90
            while len(service.ledger.outcomes) < count and time.monotonic() < end:
                service.tick(0.1)
            assert list(service.ledger.outcomes.values()) == ["finished"] * count, service.health()

        for i in range(jobs):
            submit(i)
        until_over(jobs)
        rows = service.store.rows("SELECT * FROM intents")
        assert [row["attempt"] for row in rows] == [1] * jobs
        for i in range(jobs, jobs + 6):  # where the machine is busy, it takes more of them
            if "b2" in [node.node for node in service.ledger.slow_nodes()]:
                break
            submit(i)
            until_over(i + 1)
        slow = max(service.ledger.slow_nodes(), key=lambda node: node.slower)
        assert slow.node == "b2"
        assert slow.low < 0.5 < slow.high or abs(slow.slower - 0.5) < 0.15
        for pod in lab.pods().values():
            assert pod["status"]["phase"] == "Succeeded"
    finally:
        service.close()
        lab.stop()

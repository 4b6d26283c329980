"""The whole service on a real API server: from pods that users make to what it has learned."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
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


def test_a_ray_cluster_starts_whole_or_not_at_all(tmp_path: Path) -> None:
    """A head and four workers of another size, as KubeRay makes their pods.

    The RayCluster alone says how many they are. While one node is full, not a single pod is bound.
    """
    lab = KubernetesLab(tmp_path)
    lab.define("ray.io", "v1", "rayclusters", "RayCluster")
    workers = [{"groupName": "gpu", "replicas": 4, "minReplicas": 0}]
    spec = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": workers}
    ray = lab.make("ray.io/v1", "rayclusters", "RayCluster", "llm", spec)
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "llm", "controller": True}
    owner |= {"uid": ray["metadata"]["uid"]}
    blocker = lab.submit(300.0, gpus=4, model="b")
    service = Service(lab.engine(), tmp_path / "state", act=True)
    try:

        def until(done: Callable[[], bool]) -> None:
            end = time.monotonic() + 90
            while not done():
                assert time.monotonic() < end, (service.health(), service.ledger.jobs)
                service.tick(0.1)

        def phase(job: str) -> str:
            active = service.ledger.jobs.get(job)
            return active.phase if active else service.ledger.outcomes.get(job, "")

        def bound() -> list[str]:
            pods = lab.pods().items()
            return [n for n, pod in pods if n.startswith("llm") and pod["spec"].get("nodeName")]

        until(lambda: phase(blocker) == "running")
        run = ["sh", "-c", 'echo "ran $NODE_NAME"; sleep 2']
        for name, kind, gpus, cpu in [("llm-head", "head", 0, 3)] + [
            (f"llm-gpu-worker-{i}", "worker", 4, 1) for i in range(4)
        ]:
            if name == "llm-gpu-worker-3":  # until the last has come they are no gang
                for _ in range(10):
                    service.tick(0.1)
                assert not bound()
            labels = {"ray.io/cluster": "llm", "ray.io/node-type": kind}
            lab.pod(name, run, gpus, cpu=cpu, labels=labels, owners=[owner])
        until(lambda: any(job.startswith("default/llm~") for job in service.ledger.jobs))
        (gang,) = [job for job in service.ledger.jobs if job.startswith("default/llm~")]
        for _ in range(20):  # three nodes of four are free
            service.tick(0.1)
        assert (phase(gang), bound()) == ("waiting", [])
        # Cores, of which there are as few as GPUs, are free enough, beside no GPU.
        assert service.explanation(gang)["cause"] == "pieces"
        asked = service.ledger.jobs[gang].asked
        assert sorted((g.tasks, g.demand.get("gpu", 0)) for g in asked.groups) == [
            (1, 0),
            (4, 4000),
        ]
        service.engine.cancel(blocker)
        until(lambda: phase(gang) in ("running", "finished"))
        assert len(bound()) == 5
        until(lambda: phase(gang) == "finished")
        where = {name: pod["spec"]["nodeName"] for name, pod in lab.pods().items()}
        assert {where[f"llm-gpu-worker-{i}"] for i in range(4)} == {"a1", "a2", "b1", "b2"}
        started = [
            pod["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"]
            for name, pod in lab.pods().items()
            if name.startswith("llm")
        ]
        assert len(started) == 5
    finally:
        service.close()
        lab.stop()

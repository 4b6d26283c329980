"""One service acts on a Kubernetes cluster, another or kube-scheduler itself stands by."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gangwise.core.errors import EngineError
from gangwise.engines.engine import Placed
from gangwise.engines.kubernetes import KubernetesEngine
from tests.engines.kubernetes_lab import KubernetesLab
from tests.engines.test_kubernetes import lab  # noqa: F401 - a fixture
from tests.waiting import until

pytestmark = pytest.mark.full
LEASE = "gangwise/leader"
HELD = "/apis/coordination.k8s.io/v1/namespaces/gangwise/leases/leader"


# F811: pytest finds a fixture by the name of a parameter, which then hides the import.
@pytest.fixture
def engines(lab: KubernetesLab) -> Iterator[list[KubernetesEngine]]:  # noqa: F811
    """Services of one test; the next finds no Lease, and nobody who would take it."""
    found: list[KubernetesEngine] = []
    yield found
    for engine in found:
        engine.close()
    lab.plane.stop_scheduler()
    code, answer = lab.api("DELETE", HELD)
    assert code == 200, answer


def opened(lab: KubernetesLab, engines: list[KubernetesEngine]) -> KubernetesEngine:  # noqa: F811
    engine = KubernetesEngine(lab.plane.kubeconfig_restricted, lost_after=0.5, lease=LEASE)
    engines.append(engine)
    return engine


def acts(engine: KubernetesEngine) -> bool:
    try:
        engine.events(0.0)
    except EngineError as error:
        return "standing by" not in str(error)
    return True


def killed(engine: KubernetesEngine) -> None:
    """As with SIGKILL: it does not release the Lease."""
    assert engine._api.lease is not None
    engine._api.lease.give_up = lambda: None
    engine.close()


def test_a_standby_takes_over_within_fifteen_seconds(
    lab: KubernetesLab,  # noqa: F811
    engines: list[KubernetesEngine],
) -> None:
    first, second = opened(lab, engines), opened(lab, engines)
    assert acts(first)
    assert not acts(second)
    job = lab.submit(0.2, tasks=2)
    until(lambda: job in {row.job.id for row in first.jobs()}, "known")
    with pytest.raises(EngineError, match="standing by"):
        second.place(job, 1, [Placed("a1", 2)])
    first.close()  # it ends in order: nobody waits
    code, lease = lab.api("GET", HELD)
    assert (code, lease["spec"]["holderIdentity"]) == (200, "")
    until(lambda: acts(second), "taken over")
    third = opened(lab, engines)
    killed(second)
    began = time.monotonic()
    until(lambda: acts(third), "taken over after a kill", 60.0)
    assert time.monotonic() - began > 5.0, "15 s since the last renewal"


def test_never_two_at_once(lab: KubernetesLab, engines: list[KubernetesEngine]) -> None:  # noqa: F811
    """Four who all want it; the one who has it is killed or ends; an observer counts holders."""
    everyone = [opened(lab, engines) for _ in range(4)]
    both: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.002):
            held = [e for e in everyone if e._api.lease is not None and e._api.lease.held]
            if len(held) > 1:
                both.append(len(held))

    observer = threading.Thread(target=watch)
    observer.start()
    until(lambda: any(map(acts, everyone)), "somebody leads")
    for _ in range(3):
        leader = next(e for e in everyone if acts(e))
        everyone.remove(leader)
        leader.close()
        until(lambda: any(map(acts, everyone)), "the next leads", 30.0)
    over.set()
    observer.join()
    assert not both


def test_kube_scheduler_takes_the_pods_of_a_service_that_is_gone_for_good(
    lab: KubernetesLab,  # noqa: F811
    engines: list[KubernetesEngine],
) -> None:
    """Pods wait as their users wrote them: nothing of them was changed, so nothing is restored."""
    rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/gangwise"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gangwise-lead"}
    subjects = [{"kind": "User", "name": "system:kube-scheduler"}]
    body = {"metadata": {"name": "stands-by"}, "roleRef": role, "subjects": subjects}
    code, answer = lab.api("POST", f"{rights}/rolebindings", body)
    assert code == 201, answer
    engine = opened(lab, engines)
    until(lambda: acts(engine), "leads", 30.0)
    kinds: list[dict[str, Any]] = [
        {"tasks": 2, "gpus": 2},
        {"model": "b"},
        {"tasks": 2, "per_node": 1},
    ]
    jobs = [lab.submit(0.2, **kind) for kind in kinds]
    until(lambda: set(jobs) <= {row.job.id for row in engine.jobs()}, "known")
    before = {name: pod for name, pod in lab.pods().items() if not pod["spec"].get("nodeName")}
    lab.plane.start_scheduler(stands_by=LEASE)
    time.sleep(8.0)  # longer than it would wait for a lease that nobody renews
    waiting = {name: pod for name, pod in lab.pods().items() if not pod["spec"].get("nodeName")}
    assert waiting == before, "kube-scheduler stands by, and nobody touched them"
    killed(engine)
    until(lambda: all(len(lab.ran(job)) >= 1 for job in jobs), "run by kube-scheduler", 60.0)
    for name, pod in lab.pods().items():
        if name in before:
            asked = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
            assert asked == before[name]["spec"]
            assert not pod["metadata"].get("annotations")
    back = opened(lab, engines)
    assert not acts(back), "kube-scheduler holds the Lease now"

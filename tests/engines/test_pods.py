"""What users ask of Kubernetes is kept, on a real API server and beside its own scheduler.

GANGWISE_REQUESTS says how many requests are played (120), GANGWISE_SEED which (0).
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gangwise.engines.kubernetes import KubernetesEngine
from gangwise.service.loop import Service
from tests.engines import pod_grammar as grammar
from tests.engines.kubernetes_cluster import ControlPlane, why_not
from tests.engines.pod_grammar import Spec
from tests.waiting import until

pytestmark = pytest.mark.full

if not os.environ.get("GANGWISE_KUBE"):  # where it is set, what cannot start fails
    pytest.skip(why_not(), allow_module_level=True)

REQUESTS = int(os.environ.get("GANGWISE_REQUESTS", "120"))
SEED = int(os.environ.get("GANGWISE_SEED", "0"))
PODS = "/api/v1/namespaces/default/pods"
AT_ONCE = 20


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        plane.start_scheduler()
        for node in grammar.NODES.values():
            made(plane, "/api/v1/nodes", node)
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for name, value in (("high", 1000), ("low", -1000)):
            made(plane, classes, {"metadata": {"name": name}, "value": value})
        yield plane
    finally:
        plane.stop()


def made(plane: ControlPlane, path: str, body: Spec) -> bool:
    """Whether the API server takes it."""
    code, answer = plane.admin("POST", path, body)
    assert code in (201, 422, 403), answer
    return code == 201


def pods(plane: ControlPlane) -> list[Spec]:
    found: list[Spec] = plane.admin("GET", PODS)[1]["items"]
    return found


def emptied(plane: ControlPlane) -> bool:
    for pod in pods(plane):
        plane.admin("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    return not pods(plane)


def guards(plane: ControlPlane) -> None:
    """Another scheduler's pods, which keep others away."""
    for i, guard in enumerate(grammar.GUARDS):
        body = grammar.manifests(i, {"labels": {"app": guard["app"]}, **guard["rule"]}, "other")[0]
        body["metadata"]["name"] = f"guard-{i}"
        body["spec"]["nodeName"] = guard["node"]
        assert made(plane, PODS, body)


def played(plane: ControlPlane, scheduler: str, tick: Callable[[], None]) -> Counter[str]:
    """All requests, some at once: what was bound, what waits, and what was narrowed."""
    found: Counter[str] = Counter()
    drawn = grammar.requests(SEED, REQUESTS)
    for first in range(0, len(drawn), AT_ONCE):
        guards(plane)
        for number, asked in enumerate(drawn[first : first + AT_ONCE], first):
            bodies = grammar.manifests(number, asked, scheduler)
            found["refused by the API server"] += not all(made(plane, PODS, b) for b in bodies)
        before, quiet = -1, time.monotonic()
        while time.monotonic() < quiet + 1.5:  # nobody was bound for so long
            tick()
            now = sum(bool(p["spec"].get("nodeName")) for p in pods(plane))
            before, quiet = now, quiet if now == before else time.monotonic()
        table = pods(plane)
        for name, why in grammar.violations(table).items():
            found |= {f"narrowed: {name}: {one}": 1 for one in why}
        if scheduler == "gangwise":  # Kubernetes' own knows no gangs
            found |= {f"part of a gang: {name}": 1 for name in grammar.broken_gangs(table)}
        ran = [p for p in table if p["spec"]["schedulerName"] == scheduler]
        found["bound"] += sum(bool(p["spec"].get("nodeName")) for p in ran)
        found["waits"] += sum(not p["spec"].get("nodeName") for p in ran)
        until(lambda: emptied(plane), "empty")
        tick()
    print(scheduler, {k: v for k, v in found.items() if " " not in k}, flush=True)
    return found


def test_no_request_is_narrowed(plane: ControlPlane, tmp_path: Path) -> None:
    engine = KubernetesEngine(plane.kubeconfig_restricted, lost_after=9.0)
    service = Service(engine, tmp_path / "state", "fcfs+easy+best-fit", act=True)
    try:
        found = played(plane, "gangwise", lambda: service.tick(0.1))
    finally:
        service.close()
    assert not [what for what in found if what.startswith(("narrowed", "part"))]
    assert found["bound"] > REQUESTS / 3, "most are placed, and not all left alone"


def test_the_oracle_asks_no_more_than_kubernetes_own_scheduler_gives(plane: ControlPlane) -> None:
    found = played(plane, "default-scheduler", lambda: time.sleep(0.3))
    assert not [what for what in found if what.startswith("narrowed")]
    assert found["bound"] > REQUESTS / 3


def test_the_oracle_sees_what_is_planted() -> None:
    """One pod on the wrong node, or two where one may be, for each kind of request."""
    base = {"app": "own"}
    wrong = {
        "selector": ({"nodeSelector": {"model": "a"}}, "b1"),
        "affinity": (grammar.KINDS["affinity"][0], "b1"),
        "taint": ({}, "b3"),
        "cordon": ({}, "b4"),
        "more cpu": ({"resources": {"cpu": "5"}}, "a1"),
        "more example.com/fpga": ({"resources": {"example.com/fpga": "1"}}, "a1"),
        "claim": ({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}]}, "a1"),
    }
    for what, (asked, node) in wrong.items():
        (pod,) = grammar.manifests(0, {"labels": base, **copy.deepcopy(asked)}, "any")
        pod["spec"]["nodeName"] = node
        (why,) = grammar.violations([pod]).values()
        assert any(what in one for one in why), what
    for what, asked in (
        ("port", {"ports": [{"hostPort": 80}]}),
        ("beside", grammar.KINDS["pods"][0]),
    ):
        two = [grammar.manifests(i, copy.deepcopy(asked), "any")[0] for i in (0, 1)]
        for pod in two:
            pod["spec"]["nodeName"] = "a1"
        found = [one for why in grammar.violations(two).values() for one in why]
        assert any(what in one for one in found), what

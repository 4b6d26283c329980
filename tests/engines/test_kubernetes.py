"""What happens to gangs when the API server, nodes, users and our own process misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner
from urllib3.exceptions import ProtocolError

from gangwise.cli import app
from gangwise.core.errors import EngineError, Rejected
from gangwise.engines.engine import Placed
from gangwise.engines.kubernetes import KubernetesEngine
from tests.engines.conformance import Watch, sizes
from tests.engines.kubernetes_cluster import why_not
from tests.engines.kubernetes_lab import GROUPS, KubernetesLab
from tests.waiting import until

pytestmark = pytest.mark.full

if not os.environ.get("GANGWISE_KUBE"):  # where it is set, what cannot start fails
    pytest.skip(why_not(), allow_module_level=True)

HALVES = [Placed("a1", 1), Placed("b1", 1)]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesLab]:
    lab = KubernetesLab(tmp_path_factory.mktemp("kubernetes"))
    yield lab
    lab.stop()


@pytest.fixture
def watch(lab: KubernetesLab) -> Iterator[Watch]:
    watch = Watch(lab)
    yield watch
    watch.engine.close()

    def emptied() -> bool:
        for name in lab.pods():  # again and again: a successor may still be on its way
            lab.api("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        return not lab.pods() and lab.nodes.idle

    until(emptied, "empty")


def waiting(watch: Watch, **how: Any) -> str:
    job: str = watch.lab.submit(how.pop("seconds", 30), tasks=how.pop("tasks", 2), **how)
    watch.phase(job, "pending")
    return job


def name_of(job: str, rank: int) -> str:
    return f"{job.removeprefix('default/').partition('~')[0]}-{rank}"


def bound(lab: KubernetesLab) -> dict[str, str]:
    return {n: p["spec"]["nodeName"] for n, p in lab.pods().items() if p["spec"].get("nodeName")}


def test_a_gang_of_which_one_pod_cannot_be_bound_is_rolled_back(
    lab: KubernetesLab, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = waiting(watch)
    api = watch.engine._api
    bind = api.bind

    def after_its_deletion(pod: Any, node: str, marks: dict[str, str]) -> str:
        if pod.name == name_of(job, 1):
            lab.api("DELETE", f"{PODS}/{pod.name}", {"gracePeriodSeconds": 0})
        return bind(pod, node, marks)

    monkeypatch.setattr(api, "bind", after_its_deletion)
    with pytest.raises(Rejected, match="gone"):
        watch.engine.place(job, 1, HALVES)
    watch.until(lambda: not bound(lab), "half a gang is still bound")
    assert list(lab.pods()) == [f"{name_of(job, 0)}-r1"], "the half that is left waits again"
    monkeypatch.undo()
    assert "1 of its 2 pods" in watch.engine.held()[job]
    with pytest.raises(Rejected, match="its 2"):
        watch.engine.place(job, 2, HALVES)
    group = name_of(job, 1).rpartition("-")[0]
    lab.pod(name_of(job, 1), ["true"], 1, labels={f"{GROUPS}/pod-group": group})
    watch.until(lambda: job not in watch.engine.held(), "whole again")
    watch.engine.place(job, 2, HALVES)
    assert watch.told("started", job).attempt == 2


def test_a_reply_that_is_lost_binds_once(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    job = waiting(watch, seconds=0.2)
    core = watch.engine._api.core
    real = core.create_namespaced_pod_binding

    def lost(*args: Any, **how: Any) -> Any:
        real(*args, **how)
        raise ProtocolError("connection reset")

    monkeypatch.setattr(core, "create_namespaced_pod_binding", lost)
    watch.engine.place(job, 1, HALVES)
    watch.told("finished", job)
    assert len(watch.lab.ran(job)) == 2


def test_a_pod_that_somebody_else_bound_is_a_conflict(lab: KubernetesLab, watch: Watch) -> None:
    job = waiting(watch)
    name = name_of(job, 0)
    target = {"apiVersion": "v1", "kind": "Node", "name": "b2"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    with watch.engine._table.lock:  # the watch is not heard meanwhile
        assert lab.api("POST", f"{PODS}/{name}/binding", body)[0] == 201
        with pytest.raises(Rejected, match="on b2 already"):
            watch.engine.place(job, 1, HALVES)


@pytest.mark.parametrize("then", ["place", "preempt"])
def test_killed_between_two_bindings(lab: KubernetesLab, watch: Watch, then: str) -> None:
    job = waiting(watch)
    with watch.engine._table.lock:
        pod = next(p for p in watch.engine._table.gangs[job].pods.values() if p.name[-1] == "0")
    marks = {"job": job, "attempt": "3", "placement": '{"a1": 1, "b1": 1}'}
    written = {f"gangwise.io/{k}": v for k, v in marks.items()}
    assert not watch.engine._api.bind(pod, "a1", written).why
    watch.engine.close()
    again = watch.reopened()
    row = again.status(job)
    assert (row.phase, row.attempt, sizes(row.placed)) == ("placed", 3, {"a1": 1, "b1": 1})
    if then == "place":
        again.engine.place(job, 3, HALVES)
        assert again.told("started", job).attempt == 3
        assert sorted(bound(lab).values()) == ["a1", "b1"]
    else:
        again.engine.preempt(job)
        assert again.told("preempted", job).attempt == 3
        again.phase(job, "pending")
        again.engine.place(job, 4, HALVES)
        assert again.told("started", job)
    again.engine.close()


def test_killed_while_a_gang_is_taken_off(
    lab: KubernetesLab, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = waiting(watch)
    watch.engine.place(job, 1, HALVES)
    watch.told("started", job)

    def dies(*_: Any) -> None:
        watch.engine.close()
        raise EngineError("killed here")

    monkeypatch.setattr(watch.engine._api, "delete", dies)
    with pytest.raises(EngineError, match="killed here"):
        watch.engine.preempt(job)
    assert len(lab.pods()) == 4, "successors were made first"
    again = watch.reopened()
    assert again.told("preempted", job).attempt == 1
    assert again.phase(job, "pending").job.tasks == 2
    again.engine.place(job, 2, HALVES)
    again.told("started", job)
    assert sorted(lab.pods()) == [f"{name_of(job, r)}-r1" for r in (0, 1)]
    again.engine.close()


def test_the_kubelet_says_no(
    watch: Watch, lab: KubernetesLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody took the devices, and we had not heard of it."""
    monkeypatch.setattr(watch.engine._table, "_other", lambda *_: None)
    job = waiting(watch)
    lab.pod("squatter", ["sleep", "30"], 4, schedulerName="other", nodeName="b1")
    until(lambda: lab.pods()["squatter"]["status"]["phase"] == "Running", "running")
    watch.engine.place(job, 1, HALVES)
    assert "OutOfnvidia.com/gpu" in watch.told("preempted", job).detail
    assert watch.phase(job, "pending").attempt == 1


def test_devices_of_other_schedulers_are_taken(watch: Watch, lab: KubernetesLab) -> None:
    lab.pod("squatter", ["sleep", "30"], 4, schedulerName="other", nodeName="b1")
    job = waiting(watch)
    rows = watch.until(lambda: [r for r in watch.engine.jobs() if r.foreign], "not seen")
    assert [(r.placed, r.job.demand["gpu"]) for r in rows] == [((Placed("b1", 1),), 4000)]
    with pytest.raises(Rejected, match="b1"):
        watch.engine.place(job, 1, HALVES)
    lab.api("DELETE", f"{PODS}/squatter", {"gracePeriodSeconds": 0})
    watch.until(lambda: not [r for r in watch.engine.jobs() if r.foreign], "still there")
    watch.engine.place(job, 1, HALVES)
    watch.told("started", job)


def test_taints_cordons_and_affinity_are_honoured(watch: Watch, lab: KubernetesLab) -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    lab.api("PATCH", "/api/v1/nodes/b1", {"spec": {"taints": [taint]}}, "merge")
    rules = {"key": "model", "operator": "NotIn", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rules]}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    try:
        plain = waiting(watch)
        watch.until(lambda: watch.status(plain).job.constraint, "the taint is not known")
        with pytest.raises(Rejected, match="dedicated=x"):
            watch.engine.place(plain, 1, HALVES)
        note = {"gangwise.io/type": "picky"}
        lab.pod(
            *("picky", ["sleep", "5"], 1),
            annotations=note,
            affinity={"nodeAffinity": needed},
            tolerations=[{"key": "dedicated", "operator": "Exists"}],
        )
        picky = watch.until(
            lambda: [r.job.id for r in watch.engine.jobs() if r.job.job_type == "picky"],
            "not there",
        )[0]
        with pytest.raises(Rejected, match="matches"):
            watch.engine.place(picky, 1, [Placed("a1", 1)])
        watch.engine.place(picky, 1, [Placed("b1", 1)])
        watch.told("started", picky)
        lab.api("PATCH", "/api/v1/nodes/a1", {"spec": {"unschedulable": True}}, "merge")
        assert watch.told("node_down", node="a1").detail == "cordoned"
        with pytest.raises(Rejected, match="cordoned"):
            watch.engine.place(plain, 1, [Placed("a1", 2)])
    finally:
        lab.api("PATCH", "/api/v1/nodes/b1", {"spec": {"taints": None}}, "merge")
        lab.api("PATCH", "/api/v1/nodes/a1", {"spec": {"unschedulable": None}}, "merge")
    watch.told("node_up", node="a1")


def test_nodes_come_and_go(watch: Watch, lab: KubernetesLab) -> None:
    lab.nodes.add("c1", {"devices": {"cpu": 4, "nvidia.com/gpu": 4}, "labels": {"model": "c"}})
    watch.told("node_up", node="c1")
    job = waiting(watch)
    watch.engine.place(job, 1, [Placed("a1", 1), Placed("c1", 1)])
    watch.told("started", job)
    lab.nodes.remove("c1")
    watch.told("node_down", node="c1")
    assert "c1" in watch.told("preempted", job).detail
    assert "c1" not in [node.name for node in watch.engine.nodes()]
    watch.phase(job, "pending")


def test_pods_of_a_batch_job_are_a_gang_that_its_controller_makes_again(
    watch: Watch, lab: KubernetesLab
) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    spec = {"parallelism": 2, "completions": 5, "template": template}
    code, made = lab.api("POST", jobs, {"metadata": {"name": "batch"}, "spec": spec})
    assert code == 201, made
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "batch", "controller": True}
    owner["uid"] = made["metadata"]["uid"]

    def controller_makes(*names: str) -> None:
        for name in names:
            body = lab.pod(name, ["sleep", "30"], 1, owners=[owner])
            assert body["metadata"]["ownerReferences"]

    controller_makes("batch-a", "batch-b")
    row = watch.until(watch.engine.jobs, "not told of")[0]
    job = row.job.id
    assert (row.job.tasks, row.job.job_type) == (2, "batch")
    watch.engine.place(job, 1, HALVES)
    watch.told("started", job)
    watch.engine.preempt(job)
    assert watch.told("preempted", job).attempt == 1
    assert watch.status(job).phase == "pending"
    assert "controller" in watch.engine.held()[job]
    with pytest.raises(Rejected, match="held"):
        watch.engine.place(job, 2, HALVES)
    controller_makes("batch-c", "batch-d")
    watch.until(lambda: job not in watch.engine.held(), "whole again")
    watch.engine.place(job, 2, HALVES)
    watch.until(lambda: len(bound(lab)) == 2, "not bound")
    assert watch.phase(job, "running").attempt == 2
    watch.engine.cancel(job)
    watch.told("cancelled", job)
    code, gone = lab.api("GET", f"{jobs}/batch")
    assert code == 404 or gone["metadata"]["deletionTimestamp"], "its Job is gone as well"


def test_pods_of_strangers_are_not_cancelled(watch: Watch, lab: KubernetesLab) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0"}
    lab.pod("web-x", ["sleep", "30"], 1, owners=[{**owner, "controller": True}])
    job = watch.until(watch.engine.jobs, "not told of")[0].job.id
    with pytest.raises(EngineError, match="ReplicaSet web"):
        watch.engine.cancel(job)


def test_gangs_that_are_not_whole_are_held_and_later_pods_are_on_their_own(
    watch: Watch, lab: KubernetesLab
) -> None:
    labels = {f"{GROUPS}/pod-group": "slow"}
    lab.pod("slow-0", ["sleep", "30"], 1, labels=labels)
    why = watch.until(lambda: list(watch.engine.held().values()), "not held")[0]
    assert "PodGroup" in why
    lab.group("slow", 2)
    watch.until(lambda: "1 of its 2" in str(watch.engine.held()), "size not found")
    assert not watch.engine.jobs()
    lab.pod("slow-1", ["sleep", "30"], 1, labels=labels)
    job = watch.until(watch.engine.jobs, "not told of")[0].job
    assert job.tasks == 2
    lab.pod("slow-2", ["sleep", "30"], 1, labels=labels)
    more = watch.until(lambda: watch.engine.jobs()[1:], "not told of")[0].job
    assert (more.tasks, watch.status(job.id).job.tasks) == (1, 2)
    watch.engine.place(job.id, 1, HALVES)
    watch.told("started", job.id)
    assert sorted(bound(lab)) == ["slow-0", "slow-1"]


def test_who_only_watches_follows_everybody_and_touches_nobody(lab: KubernetesLab) -> None:
    only = KubernetesEngine(lab.plane.kubeconfig_restricted, watch=True)
    notes = {"gangwise.io/tasks": "2"}
    labels = {f"{GROUPS}/pod-group": "theirs"}
    for rank in (0, 1):
        how = {"labels": labels, "annotations": notes, "schedulerName": "other"}
        lab.pod(f"theirs-{rank}", ["sleep", "0.3"], 1, **how)
    told = []

    def phase() -> str:
        told.extend(only.events(0.05))
        return next((row.phase for row in only.jobs()), "")

    until(lambda: phase() == "pending", "seen")
    for rank, node in ((0, "a1"), (1, "b1")):
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        meta = {"name": f"theirs-{rank}"}
        assert lab.api(
            "POST", f"{PODS}/theirs-{rank}/binding", {"metadata": meta, "target": target}
        )
    until(lambda: phase() == "finished", "finished")
    (row,) = only.jobs()
    assert sizes(row.placed) == {"a1": 1, "b1": 1}
    assert [e.kind for e in told if e.job] == ["submitted", "started", "finished"]
    with pytest.raises(Rejected, match="only watched"):
        only.place(row.job.id, 1, HALVES)
    with pytest.raises(EngineError, match="only watched"):
        only.cancel(row.job.id)
    only.close()
    for rank in (0, 1):
        lab.api("DELETE", f"{PODS}/theirs-{rank}", {"gracePeriodSeconds": 0})


def test_without_the_right_to_make_pods_none_is_taken_off(watch: Watch) -> None:
    job = waiting(watch)
    watch.engine.place(job, 1, HALVES)
    watch.told("started", job)
    watch.engine.recreate = False
    with pytest.raises(EngineError, match="recreate is off"):
        watch.engine.preempt(job)
    assert watch.status(job).phase == "running"


def test_no_right_more_than_is_needed(lab: KubernetesLab) -> None:
    """The conformance suite runs with these rights; here is what they do not include."""
    may_not = [
        ("GET", "/api/v1/secrets", None),
        ("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}}),
        ("DELETE", "/api/v1/nodes/a1", None),
        ("PATCH", "/api/v1/nodes/a1", {"spec": {"unschedulable": True}}),
        ("PATCH", f"{PODS}/x", {"metadata": {"labels": {"a": "b"}}}),
        ("POST", f"{PODS}/x/exec", None),
        ("GET", f"{PODS}/x/log", None),
        ("POST", "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "x"}}),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None),
        ("GET", "/api/v1/configmaps", None),
    ]
    for method, path, body in may_not:
        code, answer = lab.plane.restricted(
            method, path, body, "merge" if method == "PATCH" else "json"
        )
        assert code == 403, (method, path, answer)


def test_an_api_server_that_is_silent_then_gone_then_back(lab: KubernetesLab, watch: Watch) -> None:
    job = waiting(watch)
    lab.pause()
    try:
        until(lambda: not answers(watch), "noticed", 20)
        with pytest.raises(EngineError, match="answer"):
            watch.engine.events(0.1)
    finally:
        lab.resume()
    lab.plane.stop()
    with pytest.raises(EngineError):
        watch.engine.place(job, 1, HALVES)
    lab.plane.start()  # what it knew of versions is gone: watches answer 410
    # It may know no rights at first (403), and watches wait longer from one failure to the next.
    until(lambda: answers(watch), "answering", 90)
    other = waiting(watch, seconds=0.1)
    watch.engine.place(other, 1, HALVES)
    watch.told("finished", other)
    assert watch.status(job).phase == "pending"


def answers(watch: Watch) -> bool:
    """Whether calls are answered and no watch is behind."""
    try:
        watch.engine.jobs()
        watch.events += watch.engine.events(0.1)
    except EngineError:
        return False
    return not any(loop.failing() for loop in watch.engine.loops)


def test_a_pod_that_is_deleted_as_it_starts_leaves_its_devices(
    lab: KubernetesLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the nodes that stand in: as on a kubelet, nothing of it runs on."""
    plain = subprocess.Popen

    def slow(*given: Any, **more: Any) -> Any:
        process = plain(*given, **more)
        time.sleep(1.0)  # while it is deleted
        return process

    monkeypatch.setattr(subprocess, "Popen", slow)
    lab.pod("short", ["sleep", "60"], 1, schedulerName="other", nodeName="b1")
    until(lambda: not lab.nodes.idle, "admitted")
    lab.api("DELETE", f"{PODS}/short", {"gracePeriodSeconds": 0})
    until(lambda: lab.nodes.idle, "idle")
    assert "short" not in lab.pods()


def test_the_doctor_says_what_it_would_leave_alone(lab: KubernetesLab) -> None:
    """With the rights of the how-to; nothing is changed."""
    whole = lab.submit(1.0, tasks=2)
    lab.group("half", 2)
    lab.pod("half-0", ["true"], 1, labels={f"{GROUPS}/pod-group": "half"})
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}
    lab.pod("claims", ["true"], 1, volumes=[claim])
    before = lab.pods()
    words = ["doctor", "--engine", "kubernetes", "--json"]
    told = CliRunner().invoke(
        app, [*words, "--set", f"kubeconfig={lab.plane.kubeconfig_restricted}"]
    )
    assert told.exit_code == 0, told.output
    found = json.loads(told.output)
    assert found["nodes"] == 4
    assert found["waiting"] == 3
    alone = {name.partition("~")[0]: why for name, why in found["left_alone"].items()}
    assert whole.partition("~")[0] not in alone
    assert "1 of its 2 pods" in alone["default/half"]
    assert "claim" in alone["default/claims"].lower()
    assert lab.pods() == before
    for name in before:
        lab.api("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

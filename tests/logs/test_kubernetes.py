"""Dumps of kubectl, written by the API's description."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise import TraceError
from gangwise.jobs import simulate_jobs
from gangwise.logs import open_tables, reader_of
from gangwise.logs.formats.kubernetes import KubernetesDump, pod_of
from gangwise.logs.inspect import inspect
from gangwise.logs.jobs import open_jobs
from gangwise.notation import exact_quantity as amount


def at(minute):
    return f"2024-01-15T10:{minute:02d}:00Z"


def pod(name, created=0, started=None, ended=None, phase="Running", node="n1", **more):
    requests = more.pop("requests", {"cpu": "500m", "memory": "1Gi"})
    meta = {"name": name, "namespace": "ml", "creationTimestamp": at(created), **more}
    status = {"phase": phase}
    if started is not None:
        status["startTime"] = at(started)
    if ended is not None:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": at(ended)}}}]
    spec = {"containers": [{"resources": {"requests": requests}}]}
    if node:
        spec["nodeName"] = node
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def requests_of(spec):
    record = pod_of(1, pod("p") | {"spec": spec}, False, {})
    return record.cpu, record.mem, record.gpu


def owner(kind, name, api="v1"):
    return [{"kind": kind, "name": name, "controller": True, "apiVersion": api}]


GPUS = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 4}
PODS = [
    pod("done", 0, 1, 21, "Succeeded"),
    pod("a-0", 2, 4, 30, "Succeeded", requests=GPUS, ownerReferences=owner("PyTorchJob", "a")),
    pod(
        "a-1", 2, 10, 30, "Succeeded", "n2", requests=GPUS, ownerReferences=owner("PyTorchJob", "a")
    ),
    pod("b-0", 3, None, None, "Pending", None, labels={"scheduling.k8s.io/group-name": "b"}),
    pod("runs", 5, 6),
    pod("agent", 0, 0, ownerReferences=owner("DaemonSet", "agent")),
    pod("rs-1", 0, 7, 9, "Failed", ownerReferences=owner("ReplicaSet", "rs")),
    pod("rs-2", 0, 7, 9, "Failed", ownerReferences=owner("ReplicaSet", "rs")),
    {"kind": "Pod", "metadata": {"name": "broken"}, "spec": {}},
    pod("odd", requests={"cpu": "many"}),
]
NODES = [
    {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "A100"} if gpus else {}},
        "spec": {"unschedulable": name == "n2"},
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "256Gi", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "lastHeartbeatTime": at(40)}],
        },
    }
    for name, gpus in (("n1", 8), ("n2", 8), ("n3", 0))
]


def write(folder, pods=PODS, nodes=NODES):
    for name, items in (("pods.json", pods), ("nodes.json", nodes)):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)
        (folder / name).write_text(text)
    return folder


def test_pods_gangs_and_nodes_by_hand(tmp_path):
    assert reader_of(write(tmp_path)) is KubernetesDump
    tables = KubernetesDump(tmp_path).scan()
    columns = ["name", "cpu", "mem", "gpu", "tasks", "created", "started", "deleted", "status"]
    assert tables.jobs.select(columns).rows() == [
        ("ml/done", 0.5, 1, 0, 1, 0, 60, 1260, "Succeeded"),
        ("ml/a", 8, 64, 4, 2, 120, 600, 1800, "Succeeded"),
        ("ml/b", 0.5, 1, 0, 1, 180, None, 2400, "Pending"),
        ("ml/runs", 0.5, 1, 0, 1, 300, 360, 2400, "Running"),
        ("ml/rs-1", 0.5, 1, 0, 1, 0, 420, 540, "Failed"),
        ("ml/rs-2", 0.5, 1, 0, 1, 0, 420, 540, "Failed"),
    ]
    assert tables.jobs["hosts"].to_list()[1] == "n1|n2"
    assert tables.servers.select("name", "model", "cpu", "mem", "gpu").rows() == [
        ("n1", "A100", 63.5, 256, 8),
        ("n2", "A100", 63.5, 256, 8),
        ("n3", "", 63.5, 256, 0),
    ]
    lost = {why: n for stage in tables.stages for why, (n, _) in stage.dropped.items()}
    assert lost == {
        "of a DaemonSet, or static: on its node whatever is decided": 1,
        "the record is not as the API has it: the pod has no creationTimestamp": 1,
        "the record is not as the API has it: 'many' is no quantity": 1,
    }
    assert "1 nodes take no new pods" in "\n".join(tables.notes)
    apart = KubernetesDump(tmp_path, gangs=False).scan()
    assert apart.jobs["tasks"].to_list() == [1] * 7
    with pytest.raises(TraceError, match="record"):
        KubernetesDump(tmp_path, strict=True).scan()


def test_as_jobs_and_what_inspect_says(tmp_path):
    log = open_jobs(write(tmp_path))
    assert np.isfinite(log.jobs.withdrawn).sum() == 1  # pending until the dump
    assert log.played.read == 8  # with the two that cannot be read, without the DaemonSet's
    assert dict(zip(log.jobs.id, log.jobs.run))["ml/a"] == 1200
    found = inspect(tmp_path)
    assert [trace.name for trace in found.traces] == ["kubernetes"]
    assert not found.unknown


def test_a_workload_stands_for_its_pods_and_a_class_says_the_priority_of_a_pod(tmp_path):
    classes = [{"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10000}]
    ranked = pod("solo", 1, 2, 3, "Succeeded", labels={"kueue.x-k8s.io/priority-class": "high"})
    tables = KubernetesDump(write(tmp_path, [*classes, ranked, pod("done", 0, 1, 2)])).scan()
    assert tables.jobs.select("name", "priority").rows() == [("ml/solo", 10000), ("ml/done", 0)]
    pods = {"spec": ranked["spec"]}
    failed = [("Admitted", 4, ""), ("Finished", 9, "Failed")]
    work = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ml", "creationTimestamp": at(3)},
        "spec": {"podSets": [{"count": 3, "template": pods}, {"template": pods}]},
        "status": {
            "conditions": [
                {"type": t, "status": "True", "lastTransitionTime": at(m), "reason": why}
                for t, m, why in failed
            ]
        },
    }
    tables = KubernetesDump(write(tmp_path, [*classes, ranked, work])).scan()
    columns = ["name", "cpu", "tasks", "created", "started", "deleted", "status"]
    assert tables.jobs.select(columns).rows() == [("ml/w", 0.5, 4, 0, 60, 360, "Failed")]
    assert "1 pods are left out: Kueue's workloads stand for them" in tables.notes


def test_models_that_a_pod_selects(tmp_path):
    one, two = pod("x", requests=GPUS), pod("y", requests=GPUS)
    one["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "A100"}
    rule = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100", "A100"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    two["spec"]["affinity"] = {"nodeAffinity": needed}
    write(tmp_path, [one, two])
    assert KubernetesDump(tmp_path).scan().jobs["models"].to_list() == ["A100", "A100|H100"]


def test_init_containers_limits_and_overhead():
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "9", "memory": "2Gi"}}},
            {"resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}},
            {},
        ],
        "initContainers": [
            {"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        ],
        "overhead": {"cpu": "100m"},
    }
    assert requests_of(spec) == (3.1, 2.5, 0)


@given(
    number=st.integers(0, 10**6), unit=st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"])
)
def test_quantities_against_integers(number, unit):
    base, power = (1024, "KMG") if unit.endswith("i") else (1000, "kMG")
    factor = base ** (power.index(unit[0]) + 1) if unit and unit != "m" else 1
    expected = number / 1000 if unit == "m" else number * factor
    assert amount(f"{number}{unit}") == pytest.approx(expected)


def test_no_pods(tmp_path):
    write(tmp_path, pods=[])
    with pytest.raises(TraceError, match="kubectl get pods"):
        KubernetesDump(tmp_path).scan()
    write(tmp_path, pods=[{"kind": "Pod"}])
    with pytest.raises(TraceError, match="record"):
        KubernetesDump(tmp_path).scan()


def matrix(*series):
    """An answer of /api/v1/query_range: name, labels, and pairs of time and value."""
    result = [
        {"metric": {"__name__": name, **labels}, "values": [[t, str(v)] for t, v in values]}
        for name, labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_dump_of_which_no_pod_can_be_a_job(tmp_path):
    """Its only pod has ended, and nothing says when."""
    tables = KubernetesDump(write(tmp_path, [pod("lost", 0, 1, None, "Succeeded")])).scan()
    assert tables.jobs.is_empty()
    assert list(tables.stages[-1].dropped) == ["it has ended, and no container says when"]


def test_range_exports_of_kube_state_metrics_by_hand(tmp_path):
    def pod(name, first, last, **more):
        of = {"namespace": "ml", "pod": name, "uid": f"u-{name}"}
        every = range(first, last + 60, 60)
        info = {"node": "n1", "created_by_kind": "PyTorchJob", "created_by_name": "llm"} | more
        held = [("cpu", "core", 4), ("memory", "byte", 2**33), ("nvidia_com_gpu", "integer", 2)]
        asked = "kube_pod_container_resource_requests"
        yield "kube_pod_info", of | info, [(t, 1) for t in every]
        for resource, unit, n in held:
            labels = {"container": "c", "resource": resource, "unit": unit}
            yield asked, of | labels, [(t, n) for t in every]
        yield (
            "kube_pod_status_phase",
            of | {"phase": "Running"},
            [(t, int(t > first)) for t in every],
        )

    def told(name, metric, value):
        return metric, {"namespace": "ml", "pod": name, "uid": f"u-{name}"}, [(600, value)]

    alone = {"created_by_kind": "", "created_by_name": ""}
    pods = [*pod("llm-0", 0, 1200), *pod("llm-1", 0, 1200), *pod("gone", 300, 600, **alone)]
    done = [
        told("llm-0", "kube_pod_completion_time", 1100),
        *(told(f"llm-{n}", "kube_pod_start_time", 90) for n in (0, 1)),
        (
            "kube_pod_status_phase",
            {**told("llm-0", "", 0)[1], "phase": "Succeeded"},
            [(1140, 1), (1260, 1)],
        ),
        *pod("ds", 0, 1200, created_by_kind="DaemonSet", created_by_name="ds"),
        ("up", {"job": "kubelet", "namespace": "x", "pod": "y"}, [(0, 1)]),
        ("kube_pod_info", {"namespace": "ml"}, [(0, 1)]),
    ]
    node = [("cpu", 64), ("memory", 2**38), ("nvidia_com_gpu", 8)]
    nodes = [
        ("kube_node_status_allocatable", {"node": "n1", "resource": r}, [(1260, n)])
        for r, n in node
    ]
    labels = {"node": "n1", "label_nvidia_com_gpu_product": "H100"}
    (tmp_path / "pods.json").write_text(matrix(*pods))
    (tmp_path / "more.json").write_text(
        matrix(*done, ("kube_node_labels", labels, [(0, 1)]), *nodes)
    )
    assert reader_of(tmp_path) is KubernetesDump
    tables = KubernetesDump(tmp_path).scan()
    columns = ["name", "cpu", "mem", "gpu", "tasks", "created", "started", "deleted", "application"]
    assert tables.jobs.select(columns).rows() == [
        ("ml/llm", 4, 8, 2, 2, 0, 90, 1260, "llm"),  # the second still runs at the end
        ("ml/gone", 4, 8, 2, 1, 300, 360, 600, "gone"),
    ]
    assert tables.servers.select("name", "model", "cpu", "mem", "gpu").rows() == [
        ("n1", "H100", 64, 256, 8)
    ]
    lost = {why: n for stage in tables.stages for why, (n, _) in stage.dropped.items()}
    assert sorted(lost.values()) == [1, 1]
    apart = KubernetesDump(tmp_path, gangs=False).scan().jobs
    assert dict(apart.select("name", "deleted").rows())["ml/llm-0"] == 1100


def pod_record(name, day, *, owner="", group="", phase="Succeeded", hours=1.0, at="08:00", gpus=2):
    """A pod of a day in March: it starts a minute after its creation and runs for some hours."""
    created = datetime.fromisoformat(f"2025-03-{day:02d}T{at}:00+00:00")
    started = created + timedelta(minutes=1)
    meta = {"name": name, "namespace": "team", "uid": f"{name}-{day}-{at}"}
    meta |= {"creationTimestamp": created.isoformat()}
    if owner:
        kind = {"kind": "PyTorchJob", "name": "train", "uid": owner, "controller": True}
        meta["ownerReferences"] = [kind]
    if group:
        meta["labels"] = {"scheduling.x-k8s.io/pod-group": group}
    state: dict = {"running": {"startedAt": started.isoformat()}}
    if phase in ("Succeeded", "Failed"):
        over = {"finishedAt": (started + timedelta(hours=hours)).isoformat()}
        state = {"terminated": over}
    status = {"phase": phase, "startTime": started.isoformat()}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "nodeName": "n1",
            "containers": [{"resources": {"requests": {"cpu": "4", "nvidia.com/gpu": str(gpus)}}}],
        },
        "status": status | {"containerStatuses": [{"state": state}]},
    }


def kept(folder, **dumps):
    """Jobs, tasks, wait and hours that they ran, of dumps by the names of their files."""
    for name, items in dumps.items():
        (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    jobs = open_tables(folder).jobs.sort("created", "name")
    ran = jobs["deleted"] - jobs["started"]
    if "elapsed" in jobs.columns:
        ran = jobs["elapsed"].fill_null(ran)
    return list(zip(jobs["tasks"], jobs["started"] - jobs["created"], ran / 3600))


def test_a_name_that_is_used_again_is_another_job(tmp_path):
    items = [pod_record(f"t-{n}", day, owner=f"uid{day}") for day in (3, 4, 5) for n in range(2)]
    assert kept(tmp_path, dump=items) == [(2, 60, 1)] * 3
    groups = [pod_record(f"t-{day}-{n}", day, group="night") for day in (3, 4) for n in range(2)]
    assert kept(tmp_path, dump=groups) == [(2, 60, 1)] * 2


def test_dumps_of_several_days_are_one_log(tmp_path):
    """Whatever the names of the files: the record of a pod in the last dump counts."""
    node = {"kind": "Node", "metadata": {"name": "n1"}, "spec": {}, "status": {}}
    node["status"] = {"allocatable": {"cpu": "32", "nvidia.com/gpu": "8"}}
    monday = [node, pod_record("a", 3, phase="Running"), pod_record("b", 3, phase="Running")]
    monday.append(pod_record("c", 3, at="20:01"))
    tuesday = [node, pod_record("a", 3, hours=24), pod_record("d", 5)]
    # b is gone on Tuesday: it ran at least until Monday's dump, of which 21:02 is the last instant.
    right = [(1, 60, 24), (1, 60, 13 + 1 / 60), (1, 60, 1), (1, 60, 1)]
    assert kept(tmp_path, zz=monday, aa=tuesday) == [pytest.approx(row) for row in right]
    assert len(open_tables(tmp_path).servers) == 1
    assert len(open_tables(tmp_path / "zz.json").jobs) == 3


def test_a_worker_that_is_replaced_keeps_its_gang(tmp_path):
    items = [
        pod_record("w0", 3, owner="u", hours=4),
        pod_record("w1", 3, owner="u", hours=2, phase="Failed"),
        pod_record("w1b", 3, owner="u", hours=1.5, at="10:20"),
    ]
    assert kept(tmp_path, dump=items) == [(2, 60, 4)]


def stopped(folder, **dumps):
    """Jobs of dumps as they are played: when they begin, hours that they run, hours lost."""
    kept(folder, **dumps)
    log = open_jobs(folder)
    lost = re.search(r"([\d.]+) GPU-hours of it lost", log.played.line)
    return list(zip(log.jobs.submit, log.jobs.recorded_start, log.jobs.run / 3600)), lost and lost[
        1
    ]


def test_a_pod_that_is_evicted_and_made_again_is_one_job(tmp_path):
    """The first of two GPUs runs for an hour in vain, the second for three; another is done."""
    job = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
    items = [
        pod_record("j-x", 3, phase="Failed"),
        pod_record("j-y", 3, at="10:00", hours=3),
        pod_record("j-z", 3, at="10:01"),
    ]
    for item in items:
        item["metadata"]["ownerReferences"] = [job]
    jobs, lost = stopped(tmp_path, dump=items)
    assert jobs == [(0, 60, 4), (7260, 7320, 1)]
    assert lost == "2"


def workload(*conditions, evictions=0):
    """A workload of two pods with a GPU each, made at 8:00; of conditions: type, status, time."""
    state = [
        {"type": kind, "status": now, "lastTransitionTime": f"2025-03-{when}:00Z"}
        for kind, now, when in conditions
    ]
    container = {"resources": {"requests": {"nvidia.com/gpu": "1"}}}
    return {
        "kind": "Workload",
        "metadata": {"name": "w", "uid": "w", "creationTimestamp": "2025-03-03T08:00:00Z"},
        "spec": {"podSets": [{"count": 2, "template": {"spec": {"containers": [container]}}}]},
        "status": {"conditions": state}
        | ({"schedulingStats": {"evictions": [{"count": evictions}]}} if evictions else {}),
    }


def test_a_workload_that_is_evicted_and_admitted_again_is_one_job(tmp_path):
    """It runs from 9 to 11 in vain, and from 14 to 18; or waits when the last dump is made."""
    first = workload(("Admitted", "True", "03T09:00"))
    out = workload(("Admitted", "False", "03T11:00"), ("Evicted", "True", "03T11:00"))
    done = workload(("Admitted", "True", "03T14:00"), ("Finished", "True", "03T18:00"))
    jobs, lost = stopped(tmp_path, a=[first], b=[out], c=[done])
    assert jobs == [(0, 3600, 6)]
    assert lost == "4"
    (tmp_path / "c.json").unlink()
    jobs, lost = stopped(tmp_path, a=[first], b=[out])
    assert jobs[0] == (0, 3600, 2)
    assert lost is None
    assert jobs[1][0] == 3 * 3600
    assert np.isnan(jobs[1][1])
    (tmp_path / "a.json").unlink()
    again = workload(*[("Admitted", "True", "03T14:00")] * 2, evictions=2)
    kept(tmp_path, b=[again])
    assert any("1 workloads were evicted before" in note for note in open_tables(tmp_path).notes)


def gang_pod(name, kind, owner, gpus, labels=None, at="08:00"):
    pod = pod_record(name, 3, owner=owner, at=at, gpus=gpus)
    pod["metadata"]["ownerReferences"][0] |= {"kind": kind}
    pod["metadata"]["labels"] = labels or {}
    return pod


MPI = {"training.kubeflow.org/job-name": "m"}


@pytest.mark.parametrize(
    "pods",
    [
        [
            gang_pod("h", "RayCluster", "u", 0),
            *(gang_pod(f"w{n}", "RayCluster", "u", 4) for n in "ab"),
        ],
        # The launcher is of a Job that the MPIJob owns, and comes when the workers are there.
        [
            gang_pod("l", "Job", "j", 0, MPI, "08:02"),
            *(gang_pod(n, "MPIJob", "u", 4, MPI) for n in "ab"),
        ],
    ],
)
def test_head_and_workers_are_one_job(tmp_path, pods):
    """It starts when the last pod does, and holds 12 cores and 8 GPUs; a day later another does."""
    again = json.loads(json.dumps(pods).replace("2025-03-03", "2025-03-04").replace('"u', '"v'))
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": pods + again}))
    log = open_jobs(tmp_path)
    start = max(pod["status"]["startTime"] for pod in pods)[14:16]
    assert log.jobs.sizes.tolist() == [3, 3]
    assert log.jobs.recorded_start.tolist() == [60 * int(start), 60 * int(start) + 86400]
    assert [group[0] for group in log.jobs.shapes[0].groups] == [1, 2]
    assert dict(zip(log.nodes.devices, log.jobs.shapes[0].demand)) == {"cpu": 12000, "gpu": 8000}
    assert len({*log.jobs.id.tolist()}) == 2


def test_a_job_of_jobsets_and_two_pod_sets_are_gangs(tmp_path):
    """Pods of a Job that a JobSet owns, and Kueue's podSets of other sizes, start whole."""
    owned = {"kind": "Job", "metadata": {"name": "train", "namespace": "team"}}
    owned["metadata"]["ownerReferences"] = [{"kind": "JobSet", "name": "s", "controller": True}]
    pods = [gang_pod("a", "Job", "1", 2), gang_pod("b", "Job", "1", 4)]
    assert kept(tmp_path, dump=[owned, *pods]) == [(1, 60, 1)] * 2  # a row for each kind
    assert open_jobs(tmp_path).jobs.sizes.tolist() == [2]
    both = workload(("Admitted", "True", "03T09:00"), ("Finished", "True", "03T10:00"))
    container = {"resources": {"requests": {"nvidia.com/gpu": "4"}}}
    both["spec"]["podSets"].append({"template": {"spec": {"containers": [container]}}})
    kept(tmp_path, dump=[both])
    log = open_jobs(tmp_path)
    assert log.jobs.sizes.tolist() == [3]
    assert log.jobs.shapes[0].demand == (6000,)


def test_a_job_of_which_all_indices_run_at_once_is_a_gang(tmp_path):
    """As Kubernetes schedules Jobs; others' pods are apart, and what no dump says is told."""
    index = {"batch.kubernetes.io/job-completion-index": "0"}
    pods = [gang_pod(name, "Job", "u", 2, index) for name in ("a", "b")]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["name"] = "j"
    job = {"kind": "Job", "metadata": {"name": "j", "namespace": "team"}}
    for spec, sizes in (
        ({"completionMode": "Indexed", "parallelism": 2, "completions": 2}, [2]),
        ({"completionMode": "Indexed", "parallelism": 2, "completions": 4}, [1, 1]),
        ({"parallelism": 2, "completions": 2}, [1, 1]),
    ):
        kept(tmp_path, dump=pods, jobs=[job | {"spec": spec}])
        log = open_jobs(tmp_path)
        assert log.jobs.sizes.tolist() == sizes
        assert f"100 % of {len(sizes)} jobs" in log.played.line
        assert "Indexed Jobs" not in str(log.played.notes)
    (tmp_path / "jobs.json").unlink()
    assert "2 pods are of Indexed Jobs" in str(open_jobs(tmp_path).played.notes)


def test_groups_of_a_leaderworkerset_are_told_apart_by_their_number(tmp_path):
    group = "leaderworkerset.sigs.k8s.io/"
    labels = [{group + "name": "l", group + "group-index": str(n)} for n in range(2)]
    pods = [gang_pod(f"l-{n}-{k}", "Set", f"{n}", k, labels[n]) for n in (0, 1) for k in (1, 4)]
    kept(tmp_path, dump=pods)
    jobs = open_jobs(tmp_path).jobs
    assert jobs.sizes.tolist() == [2, 2]
    again = json.loads(json.dumps(pods).replace("2025-03-03", "2025-03-04"))
    kept(tmp_path, dump=[pod_record("x", 3), pod_record("x", 4), *pods, *again])
    assert {"team/x", "team/x#2"} < {*open_jobs(tmp_path).jobs.id.tolist()}


def test_a_pod_of_which_only_its_node_and_request_are_exported_started_on_it(tmp_path):
    of = {"namespace": "ml", "pod": "p", "uid": "u"}
    asked = of | {"container": "c", "resource": "nvidia_com_gpu"}
    (tmp_path / "info.json").write_text(
        matrix(
            ("kube_pod_info", of | {"node": ""}, [(t, 1) for t in (0, 60)]),
            ("kube_pod_info", of | {"node": "n1"}, [(t, 1) for t in range(120, 3720, 60)]),
            ("kube_pod_container_resource_requests", asked, [(0, 2)]),
            ("kube_pod_info", {**of, "pod": "q", "uid": "v", "node": "n1"}, [(7200, 1)]),
        )
    )
    columns = ["name", "created", "started", "deleted"]
    assert KubernetesDump(tmp_path).scan().jobs.select(columns).rows()[0] == ("ml/p", 0, 120, 3660)


def test_other_accelerators_are_devices_of_their_names(tmp_path):
    """Two pods of 4 slices each on a node of 7: the second waits for the first, though cores do."""
    node = {"kind": "Node", "metadata": {"name": "n1"}, "spec": {}}
    node["status"] = {"allocatable": {"cpu": "32", "nvidia.com/mig-1g.5gb": "7", "x.io/npu": "2"}}
    pods = [pod_record("a", 3), pod_record("b", 3, at="08:30")]
    for each in pods:
        asked = {"cpu": "4", "nvidia.com/mig-1g.5gb": "4", "pods.kubernetes.io/x": "1"}
        each["spec"]["containers"][0]["resources"]["requests"] = asked
    pods[1]["spec"]["resourceClaims"] = [{"name": "c"}]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": [node, *pods]}))
    log = open_jobs(tmp_path)
    assert log.nodes.devices == ("cpu", "nvidia.com/mig-1g.5gb")
    assert "of 2 jobs and 100 % of 8 nvidia.com/mig-1g.5gb-hours" in log.played.line
    assert log.played.overused[0].most == 8 / 7
    assert any("1 pods claim devices" in note for note in log.played.notes)
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": pods}))
    assert open_jobs(tmp_path).nodes.capacity.tolist() == [[8000, 8000]]


def test_pods_ask_for_unlike_devices_and_claims_count_as_their_driver_offers_them(tmp_path):
    """A pod of cores alone asks for no slices; a claim that was given counts as given, else asked.

    On four devices of a driver, of which two are held for an hour, a job that claims three waits.
    """
    node = {"kind": "Node", "metadata": {"name": "n1"}, "spec": {}}
    node["status"] = {"allocatable": {"cpu": "32", "x.io/slice": "7"}}
    offered = {
        "driver": "gpu.x.io",
        "nodeName": "n1",
        "devices": [{"name": f"d{i}"} for i in "0123"],
    }
    devices = {"results": [{"driver": "gpu.x.io", "device": f"d{i}"} for i in range(2)]}
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.x.io", "count": 3}}]}
    claims = {"made-for-a": ({}, {"allocation": {"devices": devices}}), "shared": (asked, {})}
    more = [{"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": offered}]
    for name, (devices_asked, status) in claims.items():
        meta = {"name": name, "namespace": "team"}
        more.append({"kind": "ResourceClaim", "metadata": meta, "spec": {"devices": devices_asked}})
        more[-1]["status"] = status
    a, b, c = (pod_record(name, 3, at=f"08:{m}0") for m, name in enumerate("abc"))
    for each, requests in ((a, {"cpu": "1"}), (b, {"cpu": "1"}), (c, {"x.io/slice": "4"})):
        each["spec"]["containers"][0]["resources"]["requests"] = requests
    a["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "t"}]
    a["status"]["resourceClaimStatuses"] = [{"name": "g", "resourceClaimName": "made-for-a"}]
    b["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "shared"}]
    for items in ([node, a, b, c, *more], [*more, c, b, a, node, {"kind": "ResourceClaim"}]):
        (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": items}))
        log = open_jobs(tmp_path)
        assert "100 % of 3 jobs" in log.played.line
        kinds = ("cpu", "claim/gpu.x.io", "x.io/slice")
        demand = log.jobs.demand(kinds)[log.jobs.shape] // 1000
        assert dict(zip(log.jobs.id, demand.tolist())) == {
            "team/a": [1, 2, 0],
            "team/b": [1, 3, 0],
            "team/c": [0, 0, 4],
        }
        played = simulate_jobs(log.jobs, log.nodes, "fcfs+easy+best-fit", engine="plain")
        assert played.start.tolist() == [0.0, 3600.0, 1200.0]


def test_what_a_pod_asks_for_as_a_whole_overrides_its_containers():
    def asked(name):
        return {"resources": {"requests": {"cpu": name}}}

    containers = [asked("1"), asked("2")]
    spec = {"containers": containers, "resources": {"requests": {"cpu": "5"}}}
    assert requests_of(spec) == (5, 0, 0)
    limits = {"cpu": "8", "memory": "4Gi"}
    spec = {"containers": containers, "resources": {"limits": limits}, "overhead": {"cpu": "250m"}}
    assert requests_of(spec) == (3.25, 4, 0)


@pytest.mark.parametrize(
    "record",
    [
        "no object",
        {"kind": "WorkloadPriorityClass", "metadata": {"name": "x"}},
        {"kind": "Job", "metadata": {"name": "x", "ownerReferences": ["y"]}, "spec": {}},
        pod("big") | {"spec": {"containers": [], "priority": 10**400}},
    ],
)
def test_a_record_that_is_not_as_the_api_has_it_loses_no_other(tmp_path, record):
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"items": [record, *PODS[:1]]}), encoding="utf-8")
    assert len(KubernetesDump(file).scan().jobs) == 1


@pytest.mark.parametrize("values", [[], [[60, "+Inf"]], [[60, "1e18"]], [[1e18, "60"]]])
def test_a_series_without_times_that_there_are_is_left_out(tmp_path, values):
    meta = {"namespace": "a", "pod": "p"}
    sound = [
        {
            "metric": {"__name__": "kube_pod_start_time", **meta},
            "values": [[60, "60"], [120, "60"]],
        },
        {
            "metric": {
                "__name__": "kube_pod_container_resource_requests",
                "resource": "cpu",
                **meta,
            },
            "values": [[60, "2"], [120, "2"]],
        },
    ]
    bad = {
        "metric": {"__name__": "kube_pod_created", "namespace": "a", "pod": "q"},
        "values": values,
    }
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"data": {"resultType": "matrix", "result": [*sound, bad]}}))
    tables = KubernetesDump(file).scan()
    assert tables.jobs["name"].to_list() == ["a/p"]
    assert tables.stages[0].dropped == {"the series is not as Prometheus prints it": (1, 3)}

"""Kubernetes (``kubernetes.toml``): what kubectl or Prometheus tell of pods, workloads, nodes.

A file of kube-state-metrics is Prometheus' answer to ``/api/v1/query_range`` (a matrix) or
``/api/v1/query`` (a vector); several files are one export.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import polars as pl

from gangwise import notation
from gangwise.core.errors import TraceError
from gangwise.logs import reading
from gangwise.logs.format import all_files, declared
from gangwise.logs.formats.tabular import TableMapping
from gangwise.logs.tables import Reader, Tables, server_table
from gangwise.logs.text import beginning, read_records, without_collecting

TIMES = {
    "kube_pod_created": "created",
    "kube_pod_start_time": "started",
    "kube_pod_completion_time": "ended",
}
"""Series whose values are seconds since 1970."""
SERIES = (*TIMES, "kube_pod_info", "kube_pod_owner", "kube_pod_status_phase")
SERIES += ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
NODES = ("kube_node_status_allocatable", "kube_node_labels", "kube_node_info")


def samples(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    # A vector has one value a series, a matrix a list of them.
    pairs = series["values"] if "values" in series else [series["value"]]
    return [(float(time), float(value)) for time, value in pairs]


def records_of(every: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Nodes and pods as records of the API, as far as the series tell.

    A pod that has no sample at the end of the export was deleted: it ends with its last sample, at
    ``status.lastSeen``.
    """
    # A pod's uid is part of the key, for a name may be used again in the span of an export.
    pods: dict[tuple[str, ...], dict[str, Any]] = {}
    nodes: dict[str, dict[str, Any]] = {}
    times: set[float] = set()
    for series in every:
        meta, values = series["metric"], samples(series)
        times |= {time for time, _ in values}
        if meta["__name__"] in NODES:
            node = nodes.setdefault(meta["node"], {"labels": {}, "allocatable": {}})
            _add_node(node, meta, values)
        else:
            key = (meta["namespace"], meta["pod"], meta.get("uid", ""))
            _add_pod(pods.setdefault(key, {"phase": {}, "asked": {}, "seen": []}), meta, values)
    # The step is the least distance of two samples, whatever the scrape interval was.
    latest = max(times, default=0.0)
    step = min((b - a for a, b in zip(sorted(times), sorted(times)[1:])), default=0.0)
    for name, node in nodes.items():
        about = {"name": name, "labels": node["labels"]}
        status = {"allocatable": node["allocatable"]}
        yield {"kind": "Node", "metadata": about, "spec": {}, "status": status}
    for (space, name, _), pod in pods.items():
        # A pod without a sample in the last step was gone by then.
        yield _record(space, name, pod, latest - step)


def _add_node(
    node: dict[str, Any], of: Mapping[str, str], values: list[tuple[float, float]]
) -> None:
    if "resource" in of:
        node["allocatable"][_resource(of["resource"])] = values[-1][1]
    for label, text in of.items():
        if label.startswith("label_") and ("gpu_product" in label or "accelerator" in label):
            node["labels"]["accelerator"] = text


def _add_pod(pod: dict[str, Any], of: Mapping[str, str], values: list[tuple[float, float]]) -> None:
    name, on = of["__name__"], [time for time, value in values if value]
    # Zero means that the pod is not in that state; such samples still show that it was there.
    pod["seen"] += [time for time, _ in values]
    if name in TIMES:
        pod[TIMES[name]] = values[-1][1]
    # Of a phase, the first and the last sample in which it was on.
    elif name == "kube_pod_status_phase" and on:
        pod["phase"][of["phase"]] = on[0], on[-1]
    elif "resource" in of:
        weak = name.endswith("limits")  # used where no request is given
        amounts = pod["asked"].setdefault(of.get("container", ""), ({}, {}))[weak]
        # The largest: a request can be resized while the pod runs.
        amounts[_resource(of["resource"])] = max(value for _, value in values)
    # A pod may have several owners, of which one controls it.
    elif name == "kube_pod_owner" and of.get("owner_is_controller", "true") == "true":
        pod["owner"] = of.get("owner_kind", ""), of.get("owner_name", "")
    elif name == "kube_pod_info":
        pod["node"] = of.get("node") or pod.get("node", "")
        if of.get("node") and on:  # on a node since then, where no series says it better
            pod["placed"] = min(on[0], pod.get("placed", inf))
        pod.setdefault("owner", (of.get("created_by_kind", ""), of.get("created_by_name", "")))


def _resource(name: str) -> str:
    """A resource as the API calls it: labels of Prometheus have no ``.`` and no ``/``."""
    # kube-state-metrics writes `nvidia_com_gpu`; the vendor is of no matter, being a GPU is.
    return f"{name.removesuffix('_gpu')}/gpu" if name.endswith("_gpu") else name


def _record(space: str, name: str, pod: Mapping[str, Any], whole: float) -> dict[str, Any]:
    phases, times = pod["phase"], pod["seen"]
    # The phase that was seen last.
    phase = max(phases, key=lambda each: phases[each][1], default="Unknown")
    over = phase in ("Succeeded", "Failed")
    # Without a completion time a pod was over when its last phase was first seen.
    ended = pod.get("ended", phases[phase][0] if over else None)
    # Started when it ran first, or was put on a node; before that it waited.
    started = pod.get("started", phases.get("Running", (pod.get("placed"),))[0])
    kind, owner = pod.get("owner", ("", ""))
    owners = [{"kind": kind, "name": owner, "controller": True}] if owner else []
    status: dict[str, Any] = {"phase": phase, "startTime": _written(started)}
    if over:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": _written(ended)}}}]
    elif max(times) < whole:
        status["lastSeen"] = _written(max(times))
    # Container by container, as in a spec: limits stand in where no request is given.
    containers = [{"resources": {"requests": r, "limits": w}} for r, w in pod["asked"].values()]
    about: dict[str, Any] = {"name": name, "namespace": space, "ownerReferences": owners}
    about["creationTimestamp"] = _written(pod.get("created", min(times)))
    spec = {"containers": containers, "nodeName": pod.get("node", "")}
    return {"kind": "Pod", "metadata": about, "spec": spec, "status": status}


def _written(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()


NAME = "kubernetes"
FORMAT = declared(NAME)
GROUPS, OWNERS, MODELS = (FORMAT.mapping["names"][of] for of in ("groups", "owners", "models"))
# Some groups are numbered: of one name and several numbers each is a gang.
GROUPS = [label.split("+") for label in GROUPS]


def resources(held: Mapping[str, Any]) -> tuple[float, float, float]:
    """Cores, GiB and GPUs of a list of resources.

    >>> resources({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110"})
    (4.0, 8.0, 2.0)
    """
    return _cores_gib_gpus(_amounts(held))


# Quantities are parsed exactly, as fractions, which is slow.
@lru_cache(maxsize=1 << 14)  # pods ask for the same few amounts
def _amount(text: str | int | float) -> float:
    return float(notation.exact_quantity(text))


def _amounts(held: Mapping[str, Any]) -> dict[str, float]:
    return {name: _amount(n) for name, n in held.items() if _is_counted(name)}


def _is_counted(name: str) -> bool:
    """Cores, memory, and devices that vendors name; not hugepages or Kubernetes' own."""
    return name in ("cpu", "memory") or ("/" in name and ".kubernetes.io/" not in name)


def _is_gpu(name: str) -> bool:
    return name.endswith("/gpu")


def _cores_gib_gpus(of: Mapping[str, float]) -> tuple[float, float, float]:
    gpus = sum(n for name, n in of.items() if _is_gpu(name))
    return of.get("cpu", 0.0), of.get("memory", 0.0) / notation.GIB, gpus


@dataclass(frozen=True)
class PodRecord:
    """A pod: what it asks for, when it was there, and its gang (empty for none)."""

    row: int
    name: str
    namespace: str
    cpu: float
    mem: float
    gpu: float
    models: str
    created: float
    started: float | None
    ended: float | None
    status: str
    host: str
    gang: str
    application: str
    priority: float
    queue: str = ""
    uid: str = ""
    owner: str = ""  # uid of the object that controls it; names are used again, uids are not
    spare: int = 0  # how many of its equal pods the workload can do without
    share: float = 1.0  # share of its equal pods that was admitted
    evicted: float | None = None  # when a workload lost its admission
    evictions: int = 0  # how often it did, as far as it says
    devices: tuple[tuple[str, float], ...] = ()  # other than GPUs, by name: MIG slices, TPUs, NPUs
    again: str = ""  # of runs of one job that was stopped and ran again, what they share


Owners = Mapping[tuple[str, str], tuple[str, str]]
"""Kind and name of what owns a kind and name, as far as the dump says."""


def application_of(meta: Mapping[str, Any], owners: Owners) -> str:
    """The job type that a pod is of: the topmost owner, without what numbers its likes.

    >>> application_of({"name": "llm-0"}, {}), application_of({"name": "llm-1"}, {})
    ('llm', 'llm')
    """
    kind, name = _owner(meta)
    if not name:
        # generateName is what many pods of one template share; it ends with a dash.
        kind, name = "Pod", str(meta.get("generateName") or meta["name"]).rstrip("-")
    space = str(meta.get("namespace") or "default")
    visited = set[tuple[str, str]]()
    # Owners of owners, as Job → JobSet; a circle of them ends the climb.
    while (above := owners.get((kind, f"{space}/{name}"))) and above not in visited:
        visited.add(above)
        kind, name = above
    if kind == "ReplicaSet":  # named by its Deployment and a hash
        return name.rpartition("-")[0] or name
    # Numbers at the end tell pods of a set apart, not kinds of work.
    return re.sub(r"(?:-\d+)+$", "", name) or name


def pod_of(row: int, record: Mapping[str, Any], gangs: bool, owners: Owners) -> PodRecord:
    """Read one pod.

    Raises ValueError when it is not as the API has it.
    """
    meta, spec, status = record["metadata"], record["spec"], record.get("status") or {}
    created = notation.timestamp(meta.get("creationTimestamp"))
    if created is None:
        raise reading.RecordError("the pod has no creationTimestamp")
    name, space = str(meta["name"]), str(meta.get("namespace") or "default")
    total = notation.pod_total(spec, _amounts)
    cpu, mem, gpu = _cores_gib_gpus(total)
    phase = str(status.get("phase") or "Unknown")
    # The pod ends with the last of its containers.
    ended = list(_ends(status))
    group = _gang(meta, owners) if gangs else ""
    gang = f"{space}/{group}" if group else ""
    host, models = str(spec.get("nodeName") or ""), _models(spec) if gpu else ""
    # startTime is when the kubelet took the pod; before it was on a node it can have none.
    started = notation.timestamp(status.get("startTime")) if host else None
    end = max(ended, default=None)
    # A container may have restarted: an end counts only if the pod is over.
    if phase not in ENDED:
        end = notation.timestamp(status.get("lastSeen"))
    application, priority = application_of(meta, owners), float(spec.get("priority") or 0)
    request, times = (cpu, mem, gpu, models), (created, started, end)
    values = (*request, *times, phase, host, gang, application, priority)
    return PodRecord(
        row,
        f"{space}/{name}",
        space,
        *values,
        uid=str(meta.get("uid") or ""),
        owner=str((notation.controller(record) or {}).get("uid") or ""),
        devices=tuple(sorted(_others(total).items())),
    )


PRIORITY = "kueue.x-k8s.io/priority-class"


def classes_of(records: list[Any]) -> dict[str, float]:
    """Values of the WorkloadPriorityClasses among the records, by name."""
    classes: dict[str, float] = {}
    for record in records:
        # One that is not as the API has it counts as not there, as no pod stands or falls with it.
        with suppress(*reading.MALFORMED):
            if record["kind"] == "WorkloadPriorityClass":
                classes[str(record["metadata"]["name"])] = float(record["value"])
    return classes


def workload_of(row: int, record: Mapping[str, Any], owners: Owners) -> list[PodRecord]:
    """Read a Workload of Kueue as its pods, which start together when it is admitted."""
    meta, spec, pods = record["metadata"], record["spec"], []
    status = record.get("status") or {}
    # Only conditions that hold now; others tell of the past.
    conditions = (c for c in status.get("conditions") or () if c.get("status") == "True")
    true = {condition["type"]: condition for condition in conditions}
    started, ended = (
        notation.timestamp((true.get(kind) or {}).get("lastTransitionTime"))
        for kind in ("Admitted", "Finished")
    )
    phase = "Running" if "Admitted" in true else "Pending"
    if "Finished" in true:
        phase = "Failed" if true["Finished"].get("reason") == "Failed" else "Succeeded"
    evicted = notation.timestamp((true.get("Evicted") or {}).get("lastTransitionTime"))
    lost = (status.get("schedulingStats") or {}).get("evictions") or ()
    evictions = sum(int(eviction.get("count", 0)) for eviction in lost)
    admitted = (status.get("admission") or {}).get("podSetAssignments") or ()
    counts = {part["name"]: part.get("count") for part in admitted}
    for pod_set in spec["podSets"]:
        template = {**pod_set["template"]["spec"], "priority": spec.get("priority")}
        pod = pod_of(row, {"metadata": meta, "spec": template}, False, owners)
        queue = f"{pod.namespace}/{spec['queueName']}" if spec.get("queueName") else ""
        # The pods of a workload share its name, by which they are a gang.
        pod = replace(pod, gang=pod.name, queue=queue, owner=str(meta.get("uid") or ""))
        pod = replace(pod, started=started, ended=ended, status=phase, evicted=evicted)
        pod = replace(pod, evictions=evictions)
        # Each pod of a set stands for itself, as pods of a gang do.
        count = int(pod_set.get("count", 1))
        if "minCount" in pod_set:
            # Partial admission: the work of all pods is done by those that were admitted.
            share = (counts.get(pod_set.get("name")) or count) / max(count, 1)
            pod = replace(pod, spare=count - int(pod_set["minCount"]), share=share)
        pods += [pod] * count
    return pods


def _owner(meta: Mapping[str, Any]) -> tuple[str, str]:
    owner = notation.controller({"metadata": meta}) or {}
    kind = str(owner.get("kind") or "")
    # Jobs of Volcano make a PodGroup of their own name.
    if kind == "Job" and str(owner.get("apiVersion") or "").startswith("batch.volcano.sh"):
        kind = "PodGroup"
    return kind, str(owner.get("name") or "")


def _gang(meta: Mapping[str, Any], owners: Owners) -> str:
    """The group of a pod, or the owner whose pods start together: as a label says, or above it."""
    # A label of a gang says more than an owner.
    for names in (meta.get("labels") or {}, meta.get("annotations") or {}):
        for labels in GROUPS if names else ():
            if all(map(names.get, labels)):
                return "-".join(str(names[label]) for label in labels)
    (kind, name), space = _owner(meta), meta.get("namespace") or "default"
    above = owners.get((kind, f"{space}/{name}"), ("", ""))
    indexed = owners.get((INDEXED, f"{space}/{name}"), ("", "")) if kind == "Job" else ("", "")
    return next((name for kind, name in ((kind, name), above, indexed) if kind in OWNERS), "")


def _models(spec: Mapping[str, Any]) -> str:
    selector = spec.get("nodeSelector") or {}
    models = {str(selector[label]) for label in MODELS if label in selector}
    for term in (notation.required({"spec": spec}, "nodeAffinity") or {}).get(
        "nodeSelectorTerms"
    ) or ():
        # Any of the terms may hold, so that a model of any may be used.
        for rule in term.get("matchExpressions") or ():
            if rule.get("key") in MODELS and rule.get("operator") == "In":
                models |= {str(value) for value in rule.get("values") or ()}
    return "|".join(sorted(models))


def _ends(status: Mapping[str, Any]) -> Iterator[float]:
    texts = [
        (state_of.get("terminated") or {}).get("finishedAt")
        # lastState is of the container before a restart.
        for state in status.get("containerStatuses") or ()
        for state_of in (state.get("state") or {}, state.get("lastState") or {})
    ]
    texts += [
        condition.get("lastTransitionTime")
        for condition in status.get("conditions") or ()
        if condition.get("reason") in ("PodCompleted", "PodFailed")
    ]
    yield from (end for end in map(notation.timestamp, texts) if end is not None)


class KubernetesDump(Reader):
    """Reader of a dump of pods, or of a folder with dumps of pods and nodes.

    ``gangs`` makes one job of the pods of a group, or of an owner whose pods start together.
    """

    FORMAT = FORMAT

    def __init__(self, path: Path | str, *, gangs: bool = True, strict: bool = False):
        super().__init__(path, strict=strict)
        self.gangs = gangs

    @without_collecting()
    def _read(self) -> Tables:
        path = self.source.path
        files = [
            f for f in all_files(path) if f == path or self.FORMAT.table("pods and nodes").fits(f)
        ]
        dumps, series = list[_Dump](), list[Any]()
        owners: dict[tuple[str, str], tuple[str, str]] = {}
        accounts, digests = list[tuple[reading.RowAccount, str, int]](), {}
        for file in files:
            exported = '"resultType"' in beginning(file)
            source = read_records(file, "data.result" if exported else "items")
            digests[file.name] = source.digest
            account = reading.RowAccount(file, self.source.strict)
            if exported:
                series += _series(source.records, account)
            else:
                owners |= dict(_owned(source.records))
                dumps.append(_Dump(source.records, account))
            accounts.append((account, file.name, len(source.records)))
        for dump in dumps:  # owners may stand in a later file than their pods
            dump.read(self.gangs, owners)
        if series:
            dumps.append(_Dump(list(records_of(series)), reading.RowAccount(path)))
            dumps[-1].read(self.gangs, owners)
            # The samples' last instant is that of the export, in which pods may still run.
            dumps[-1].latest = max(time for one_series in series for time, _ in samples(one_series))
        latest = max((dump.latest for dump in dumps), default=0.0)
        # Dumps in the order in which they were made, so that later records count.
        dumps.sort(key=lambda dump: dump.latest)
        pods, admitted = (_joined(dumps, kind) for kind in ("pods", "workloads"))
        stages = [account.stage(name, records) for account, name, records in accounts]
        # Workloads say when their pods were admitted; pods of dumps with workloads are not counted
        # twice.
        replaced, pods = len(pods) * bool(admitted), admitted or pods
        if not pods:
            reason = reading.reasons(*(stage.dropped for stage in stages))
            raise TraceError(
                "no pod that can be used here; make a dump with kubectl get pods -A -o json > "
                f"pods.json{'; left out: ' * bool(reason)}{reason}",
                path,
            )
        rows, stage = _jobs(_replaced(pods), latest)
        nodes = {node[1]: node for dump in dumps for node in dump.nodes}  # the latest of a name
        facts = {
            "dumped": not series,
            "exported": bool(series),
            "replaced": replaced,
            "evicted": len({pod.uid for pod in pods if pod.evictions and not pod.again}),
            "alike": sum(row["tasks"] > 1 for row in rows),
            "running": sum(row["unfinished"] for row in rows),
            "closed": len({name for dump in dumps for name in dump.closed}),
            "no_nodes": not nodes,
            "claiming": sum(dump.claiming for dump in dumps),
            "indexed": sum(dump.indexed for dump in dumps),
        }
        notes = TableMapping(FORMAT.mapping["facts"]).notes(pl.DataFrame([facts]))
        devices = Counter(name for pod in pods for name, _ in pod.devices)
        for device, n in sorted(devices.items()):
            notes.append(f"{n} pods ask for {device}: a device of that name, which slots lack")
        kinds = {"started": pl.Float64, "row": pl.Int64, "tasks": pl.Int64}
        jobs = pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)
        accounts_read = (*stages, stage), digests, tuple(notes)
        jobs = jobs.with_columns(pl.col(device).fill_null(0.0) for device in devices)
        servers = server_table(nodes.values())
        devices_of = {name: amounts for dump in dumps for name, amounts in dump.others.items()}
        for device in sorted(devices):
            amounts = [devices_of[name].get(device, 0.0) for name in nodes]
            servers = servers.with_columns(pl.Series(device, amounts, pl.Float64))
        return Tables(NAME, servers, jobs, *accounts_read)


CLAIMED = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass")
NO_JOBS = ("WorkloadPriorityClass", *CLAIMED)
"""Kinds of records that may be in a dump, and are no jobs."""


@dataclass
class _Dump:
    """Pods, workloads and nodes of one file, and the last instant that it knows of."""

    records: list[Any]
    account: reading.RowAccount
    pods: list[PodRecord] = field(default_factory=list)
    workloads: list[PodRecord] = field(default_factory=list)
    nodes: list[tuple[Any, ...]] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)  # names of nodes that take no new pods
    others: dict[str, dict[str, float]] = field(default_factory=dict)  # devices of nodes, by name
    claiming: int = 0  # pods that claim devices, which are not read
    indexed: int = 0  # pods of Indexed Jobs that no dump has
    claims: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)  # by namespace, name
    sliced: dict[str, Counter[str]] = field(default_factory=dict)  # of nodes, as drivers offer them
    latest: float = 0.0

    def read(self, gangs: bool, owners: Owners) -> None:
        classes, ranked = classes_of(self.records), dict[str, str]()
        self._read_claims()
        for row, record in enumerate(self.records, 1):
            # A record that is wrong costs one row; the dump may have thousands.
            try:
                self._add(row, record, gangs, owners, ranked)
                self.latest = max(self.latest, *_times(record))
            except reading.MALFORMED as error:
                readable = isinstance(error, reading.RecordError | notation.NotationError)
                reason = str(error) if readable else "a field is missing"
                self.account.refuse(row, f"the record is not as the API has it: {reason}")
        # Classes of priority may stand behind the pods that name them.
        self.pods = [
            replace(pod, priority=classes[ranked[pod.name]]) if ranked[pod.name] in classes else pod
            for pod in self.pods
        ]

    def _add(
        self, row: int, record: Any, gangs: bool, owners: Owners, ranked: dict[str, str]
    ) -> None:
        kind = _kind(record)
        if kind == "Node":
            self.nodes.append(_node(row, record))
            status = record["status"]
            devices = _others(_amounts(status.get("allocatable") or status["capacity"]))
            name = self.nodes[-1][1]
            # What drivers offer by slices comes on top of extended resources.
            self.others[name] = devices | dict(self.sliced.get(name, {}))
            if record["spec"].get("unschedulable"):
                self.closed.add(self.nodes[-1][1])
        elif kind == "Pod" and _fixed(record):
            self.account.leave_out(row, reading.FIXED)
        elif kind == "Pod":
            pod = pod_of(row, record, gangs, owners)
            claimed = self._claimed(pod.namespace, record) if self.sliced else Counter[str]()
            if claimed:
                held = Counter(dict(pod.devices)) + claimed
                pod = replace(pod, devices=tuple(sorted(held.items())))
            self.pods.append(pod)
            ranked[pod.name] = (record["metadata"].get("labels") or {}).get(PRIORITY, "")
            self.claiming += bool(record["spec"].get("resourceClaims")) and not claimed
            self.indexed += not pod.gang and _is_of_lost_job(record["metadata"], owners)
        elif kind == "Workload":
            self.workloads += workload_of(row, record, owners)
            specs = (pod_set["template"]["spec"] for pod_set in record["spec"]["podSets"])
            self.claiming += sum(bool(spec.get("resourceClaims")) for spec in specs)
        # Such kinds are read elsewhere, and are no rows that were lost.
        elif kind not in NO_JOBS:
            self.account.leave_out(row, reading.OTHER_KIND)

    def _read_claims(self) -> None:
        """Count devices that claims have, or ask for, and that nodes offer, by driver."""
        for record in self.records:
            # A record that is no claim as Kubernetes writes them counts as not there.
            with suppress(*reading.MALFORMED):
                kind = _kind(record)
                if kind == "ResourceSlice":
                    spec = record["spec"]
                    offered = self.sliced.setdefault(str(spec["nodeName"]), Counter())
                    offered[f"claim/{spec['driver']}"] += len(spec["devices"])
                elif kind == "ResourceClaim":
                    allocation = (record.get("status") or {}).get("allocation")
                    counts = Counter[str]()
                    for result in allocation["devices"]["results"] if allocation else ():
                        counts[f"claim/{result['driver']}"] += 1
                    for request in () if allocation else record["spec"]["devices"]["requests"]:
                        wanted = request.get("exactly") or request
                        counts[f"claim/{wanted['deviceClassName']}"] += int(
                            wanted.get("count") or 1
                        )
                    meta = record["metadata"]
                    self.claims[str(meta.get("namespace") or "default"), str(meta["name"])] = counts

    def _claimed(self, namespace: str, record: Any) -> Counter[str]:
        """Devices of the claims that a pod names, or that were made for it."""
        made = record.get("status", {}).get("resourceClaimStatuses") or ()
        # Names of claims that were made for the pod stand in its status,
        # those it shares in its spec.
        names = {str(claim.get("resourceClaimName")) for claim in made}
        names |= {
            str(c.get("resourceClaimName")) for c in record["spec"].get("resourceClaims") or ()
        }
        claimed = (self.claims.get((namespace, name), Counter()) for name in sorted(names))
        return sum(claimed, Counter[str]())


def _others(amounts: Mapping[str, float]) -> dict[str, float]:
    """Extended resources other than GPUs, by their names: MIG slices, TPUs, NPUs.

    >>> _others({"cpu": 4.0, "google.com/tpu": 4.0, "nvidia.com/gpu": 1.0})
    {'google.com/tpu': 4.0}
    """
    return {name: n for name, n in amounts.items() if "/" in name and not _is_gpu(name)}


def _joined(dumps: Sequence[_Dump], of: str) -> list[PodRecord]:
    """Pods (or workloads) of dumps in order of time: of one pod the last dump's record counts.

    A pod without an end that a later dump does not have ended in between: it ends when it was last
    seen. A workload that was admitted in an earlier dump and at another time in a later, or waits
    there, was evicted: the earlier admission is a run of its own, see :func:`_as_runs`.
    """
    pods: dict[tuple[Any, ...], list[tuple[_Dump, list[PodRecord]]]] = {}
    for dump in dumps:
        of_dump: dict[tuple[Any, ...], list[PodRecord]] = {}
        for pod in getattr(dump, of):  # a workload is several pods in one record
            # Without a uid (in an export) a name and its creation are the pod.
            of_dump.setdefault((pod.uid,) if pod.uid else (pod.name, pod.created), []).append(pod)
        for key, group in of_dump.items():
            records = pods.setdefault(key, [])
            # A run that goes on is one record; of another start the earlier is a run that was lost.
            if records:
                older, (old_pod, *_) = records[-1]
                older.account.leave_out(old_pod.row, reading.EARLIER)
                # A record without a start says less than a later one, and the
                # same start is the same run.
                if old_pod.started is None or old_pod.started == group[0].started:
                    records.pop()
                    group = [replace(pod, evicted=pod.evicted or old_pod.evicted) for pod in group]
            records.append((dump, group))
    newest = max((dump.latest for dump in dumps if getattr(dump, of)), default=0.0)
    joined: list[PodRecord] = []
    for records in pods.values():
        dump, group = records[-1]
        # Seen last in a dump that is not the newest: it was gone by the next.
        if group[0].ended is None and group[0].started is not None and dump.latest < newest:
            records[-1] = dump, [replace(pod, ended=dump.latest) for pod in group]
        joined += _as_runs(records) if len(records) > 1 else records[-1][1]
    return joined


def _as_runs(records: Sequence[tuple[_Dump, list[PodRecord]]]) -> Iterator[PodRecord]:
    """Pods of the admissions of one workload, each a run; one that waits again does so from then.

    A run ended when the workload was evicted, or was last seen in it.
    """
    since = None
    for (dump, group), later in zip(records, [*records[1:], None]):
        for pod in group:
            name_of_runs = f"{pod.name} {pod.uid}"
            if later is not None:
                # The eviction is the end, unless the dump has seen the run for longer.
                end = later[1][0].evicted
                end = end if end and end >= dump.latest else dump.latest
                yield replace(pod, ended=end, again=name_of_runs, status="Failed")
            else:
                begun = pod.created if since is None else since
                yield replace(
                    pod, again=name_of_runs, created=begun if pod.started is None else pod.created
                )
        since = end if later is not None else since


def _replaced(pods: list[PodRecord]) -> list[PodRecord]:
    """Pods of no gang that failed, and those that their owner made in their place, as runs of one.

    A pod takes the place of the first of its owner's that had failed before it was created.
    """
    failed: dict[str, list[PodRecord]] = {}
    run_of: dict[int, str] = {}
    # Retries: an owner makes a new pod where one has failed.
    for pod in sorted(pods, key=lambda p: p.created):
        if pod.gang or not pod.owner:
            continue
        waiting = failed.setdefault(pod.owner, [])
        lost_pod = next((p for p in waiting if (p.ended or inf) <= pod.created), None)
        if lost_pod is not None:
            waiting.remove(lost_pod)
            run_of[id(pod)] = run_of.setdefault(id(lost_pod), f"{lost_pod.name} {lost_pod.uid}")
        if pod.status == "Failed":
            waiting.append(pod)
    return [replace(p, again=run_of[id(p)]) if id(p) in run_of else p for p in pods]


def _series(records: list[Any], account: reading.RowAccount) -> list[Any]:
    usable = []
    for row, record in enumerate(records, 1):
        try:
            needed = ("node",) if "node" in record["metric"] else ("namespace", "pod")
            pairs, _ = samples(record), [record["metric"][label] for label in needed]
            dates = [time for time, _ in pairs]
            dates += [value for _, value in pairs if record["metric"].get("__name__") in TIMES]
            if not pairs or not all(0 <= date <= LATEST for date in dates):
                raise ValueError("no samples, or times that are none")
            if record["metric"].get("__name__") in (*SERIES, *NODES):
                usable.append(record)
            else:
                # Other series are no fault; they are counted, so that none seems lost.
                account.leave_out(row, SILENT)
        except reading.MALFORMED:
            account.refuse(row, "the series is not as Prometheus prints it")
    return usable


LATEST = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970: no date is later."""
SILENT = "a series that says nothing of when pods run and what they ask for"
ENDED = ("Succeeded", "Failed")


def _kind(record: Mapping[str, Any]) -> str:
    """Items of a PodList name no kind; pods have containers."""
    if record.get("kind"):
        return str(record["kind"])
    return "Pod" if "containers" in (record.get("spec") or {}) else "Node"


def _owned(records: list[Any]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    for record in records:
        meta = record.get("metadata") if isinstance(record, dict) else None
        if isinstance(meta, dict) and record.get("kind") not in (None, "Pod", "Node"):
            try:
                (kind, name), own = _owner(meta), str(meta.get("name"))
            except reading.MALFORMED:  # the record is refused where it is read
                continue
            place, spec = f"{meta.get('namespace') or 'default'}/{own}", record.get("spec")
            if name:
                yield (str(record["kind"]), place), (kind, name)
            if record["kind"] == "Job" and isinstance(spec, dict):
                # Kubernetes schedules such a Job as one gang: each of its indices runs at once.
                size, indexed = spec.get("parallelism", 1), spec.get("completionMode") == "Indexed"
                # All at once means as many in parallel as there are to complete.
                is_gang = indexed and size == spec.get("completions") != 1
                yield (INDEXED, place), (INDEXED if is_gang else "Job", own)


INDEXED = "Indexed Job"
"""Kind under which owners have Jobs, those whose pods all run at once as one of themselves."""


def _is_of_lost_job(meta: Mapping[str, Any], owners: Owners) -> bool:
    """Whether a pod has an index of a Job that no dump has: whether it is a gang is not known."""
    labels = {*(meta.get("labels") or {}), *(meta.get("annotations") or {})}
    place = f"{meta.get('namespace') or 'default'}/{_owner(meta)[1]}"
    return "batch.kubernetes.io/job-completion-index" in labels and (INDEXED, place) not in owners


def _fixed(record: Mapping[str, Any]) -> bool:
    meta = record["metadata"]
    # A mirror pod stands for a static one, which the kubelet runs without a scheduler.
    static = "kubernetes.io/config.mirror" in (meta.get("annotations") or {})
    return static or _owner(meta)[0] in ("DaemonSet", "Node")


def _node(row: int, record: Mapping[str, Any]) -> tuple[Any, ...]:
    status, meta = record["status"], record["metadata"]
    # allocatable is what pods can have; capacity includes what the system keeps.
    cpu, mem, gpu = resources(status.get("allocatable") or status["capacity"])
    labels = meta.get("labels") or {}
    # A node with GPUs of an unknown model still has GPUs.
    model = next((str(labels[label]) for label in MODELS if labels.get(label)), "gpu")
    return row, str(meta["name"]), model if gpu else "", cpu, mem, gpu


def _times(record: Mapping[str, Any]) -> Iterator[float]:
    """Times of a record, the heartbeats of nodes among them: the last is that of the dump."""
    status = record.get("status") or {}
    yield notation.timestamp((record.get("metadata") or {}).get("creationTimestamp")) or 0.0
    yield from _ends(status)
    for condition in status.get("conditions") or ():
        for key in ("lastTransitionTime", "lastHeartbeatTime"):
            yield notation.timestamp(condition.get(key)) or 0.0


def _runs(pods: Sequence[PodRecord]) -> Iterator[list[list[PodRecord]]]:
    """The runs of a group: for each of its tasks the pods that did it, one after another.

    A pod that was created after another of its group had ended takes its place. When all have ended
    before the next is created, the group's name is used again for another run, unless all are of
    one object by its uid.
    """
    tasks: list[list[PodRecord]] = []
    for pod in sorted(pods, key=lambda p: (p.created, p.row)):
        # Tasks that are over leave a place that a later pod may take.
        over = [t for t in tasks if t[-1].ended is not None and t[-1].ended <= pod.created]
        # With an owner's uid the pods belong together, however long the pause between them.
        if tasks and len(over) == len(tasks) and not pod.owner:
            yield tasks
            tasks, over = [], []
        if over:
            over[0].append(pod)
        else:
            tasks.append([pod])
    if tasks:
        yield tasks


def _time_in_use(pods: Sequence[PodRecord], latest: float) -> float:
    """Seconds in which any of some pods ran."""
    total, until = 0.0, -inf
    for start, end in sorted(
        (pod.started, latest if pod.ended is None else pod.ended)
        for pod in pods
        if pod.started is not None
    ):
        # Only the time that no earlier pod covers is added.
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


def _jobs(pods: list[PodRecord], latest: float) -> tuple[list[dict[str, Any]], reading.Stage]:
    start = min(pod.created for pod in pods)
    groups: dict[tuple[Any, ...], list[PodRecord]] = {}
    account, objects = reading.RowAccount(Path(NAME)), _objects(pods, latest)
    for pod in pods:
        if pod.status in ENDED and pod.started and pod.ended is None:
            account.leave_out(pod.row, "it has ended, and no container says when")
            continue
        # Pods of a gang that ask for the same are tasks of one row.
        shape = (pod.cpu, pod.mem, pod.gpu, pod.models, pod.devices)
        alone = (pod.name, pod.uid or pod.created)
        run = pod.started if pod.again else None
        # Pods of one run: the same object, and the same start of a run that was stopped.
        key = (pod.gang, objects[pod.gang, pod.owner], run, *shape) if pod.gang else alone
        groups.setdefault(key, []).append(pod)
    rows = []
    used: dict[str, list[tuple[Any, ...]]] = {}  # by name, the objects and runs that had it
    for group in groups.values():
        for number, tasks in enumerate(_runs(group)):
            row = _job_of(tasks, latest, start)
            run = group[0].started if group[0].again else None
            owner = objects.get((group[0].gang, group[0].owner), group[0].uid)
            runs, use = used.setdefault(row["name"], []), (owner, number, run)
            if use not in runs:
                runs.append(use)
            # A name that is used again is another job.
            if place := runs.index(use):
                row["job"] = f"{row['name']}#{place + 1}"
            rows.append(row)
    return rows, account.stage("pods", len(pods))


def _objects(pods: Sequence[PodRecord], latest: float) -> dict[tuple[str, str], int]:
    """Number of the run of its gang that the pods of each owner are, counted by gang.

    A launcher and its workers have different owners; they are there at the same time.
    """
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for pod in pods:
        if pod.gang:
            begin, end_of_span = spans.get((pod.gang, pod.owner), (inf, -inf))
            end = latest if pod.ended is None else pod.ended
            spans[pod.gang, pod.owner] = min(begin, pod.created), max(end_of_span, end)
    # The number of the run, and when all pods of it have ended.
    until: dict[str, tuple[int, float]] = {}
    numbers = {}
    for (gang, owner), (begin, end_of_span) in sorted(spans.items(), key=lambda item: item[1]):
        number, over = until.get(gang, (0, inf))
        # A set of pods that begins after all before it have ended is the next run.
        number += begin > over
        numbers[gang, owner] = number
        until[gang] = number, end_of_span if over == inf or begin > over else max(over, end_of_span)
    return numbers


def _job_of(tasks: list[list[PodRecord]], latest: float, first: float) -> dict[str, Any]:
    """A run of a group as one job: it starts with the last of its first pods."""
    group = [pod for task in tasks for pod in task]
    example, begun = group[0], [task[0].started for task in tasks]
    # A pod of the gang that never started keeps all of it waiting.
    started = None if None in begun else max(begun)  # type: ignore[type-var]  # none is None
    end = max(latest if pod.ended is None else pod.ended for pod in group)
    spare, share = max(p.spare for p in group), sum(p.share for p in group) / len(group)
    name = example.gang or example.name
    row: dict[str, Any] = {
        "row": example.row,
        "name": name,
        "cpu": example.cpu,
        "mem": example.mem,
        "gpu": example.gpu,
        "models": example.models,
        **dict(example.devices),
        "tasks": len(tasks),
        "created": min(task[0].created for task in tasks) - first,
        "started": None if started is None else started - first,
        "deleted": end - first,
        "job": name,
        "status": max((task[-1].status for task in tasks), key=PHASES.index),
        "user": example.namespace,
        "application": example.application,
        "priority": max(pod.priority for pod in group),
        "hosts": "|".join(sorted({pod.host for pod in group if pod.host})),
        "unfinished": any(task[-1].ended is None for task in tasks),
    }
    if example.queue:
        row["queue"] = example.queue
    if spare > 0:
        row["terms"] = f"fewest={len(tasks) - spare}"
    if started is not None:
        # Where pods were replaced the gaps between them are no work.
        ran = _time_in_use(group, latest) if len(group) > len(tasks) else end - started
        ran *= share  # its work is what it did, with all pods done sooner
        # A second is the resolution of times in the API.
        if abs(ran - (end - started)) > 1:
            row["elapsed"] = ran
        # Who was stopped whole lost what it had done: what ended before all its tasks began again.
        restarted = min(task[-1].started or started for task in tasks)
        if lost_pods := [p for p in group if p.ended is not None and p.ended <= restarted]:
            row["lost"] = _time_in_use(lost_pods, latest) * share
    if example.again:
        row["again"] = example.again
    return row


PHASES = ("Succeeded", "Unknown", "Pending", "Running", "Failed")
"""Phases in ascending order: the status of a gang is the highest of its pods."""

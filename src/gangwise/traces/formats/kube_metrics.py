"""kube-state-metrics as Prometheus keeps them: range queries, read as records of the API.

A file is the answer of ``/api/v1/query_range`` (a matrix) or ``/api/v1/query`` (a vector); several
files are one export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangwise.traces.io.json_records import beginning

TIMES = {
    "kube_pod_created": "created",
    "kube_pod_start_time": "started",
    "kube_pod_completion_time": "ended",
}
"""Series whose values are seconds since 1970."""
SERIES = (*TIMES, "kube_pod_info", "kube_pod_owner", "kube_pod_status_phase")
SERIES += ("kube_pod_container_resource_requests", "kube_pod_container_resource_limits")
NODES = ("kube_node_status_allocatable", "kube_node_labels", "kube_node_info")


def is_export(file: Path) -> bool:
    """Whether a file is an answer of Prometheus with series of pods or nodes."""
    start = beginning(file)
    return start.startswith("{") and '"resultType"' in start and '"kube_' in start


def is_known(series: Mapping[str, Any]) -> bool:
    return series["metric"].get("__name__") in (*SERIES, *NODES)


def samples(series: Mapping[str, Any]) -> list[tuple[float, float]]:
    found = series["values"] if "values" in series else [series["value"]]
    return [(float(time), float(value)) for time, value in found]


def records_of(every: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Nodes and pods as records of the API, as far as the series tell.

    A pod that has no sample at the end of the export was deleted: it ends with its last sample, at
    ``status.lastSeen``.
    """
    pods: dict[tuple[str, ...], dict[str, Any]] = {}
    nodes: dict[str, dict[str, Any]] = {}
    times: set[float] = set()
    for series in every:
        of, values = series["metric"], samples(series)
        times |= {time for time, _ in values}
        if of["__name__"] in NODES:
            _add_node(nodes.setdefault(of["node"], {"labels": {}, "allocatable": {}}), of, values)
        else:
            key = (of["namespace"], of["pod"], of.get("uid", ""))
            _add_pod(pods.setdefault(key, {"phase": {}, "asked": {}, "seen": []}), of, values)
    last = max(times, default=0.0)
    step = min((b - a for a, b in zip(sorted(times), sorted(times)[1:])), default=0.0)
    for name, node in nodes.items():
        status = {"allocatable": node["allocatable"]}
        yield {"kind": "Node", "metadata": {"name": name, "labels": node["labels"]}, "spec": {}} | {
            "status": status
        }
    for (space, name, _), pod in pods.items():
        yield _record(space, name, pod, last - step)


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
    pod["seen"] += [time for time, _ in values]
    if name in TIMES:
        pod[TIMES[name]] = values[-1][1]
    elif name == "kube_pod_status_phase" and on:
        pod["phase"][of["phase"]] = on[0], on[-1]
    elif "resource" in of:
        weak = name.endswith("limits")  # stands for a request that is not given
        held = pod["asked"].setdefault(of.get("container", ""), ({}, {}))[weak]
        held[_resource(of["resource"])] = max(value for _, value in values)
    elif name == "kube_pod_owner" and of.get("owner_is_controller", "true") == "true":
        pod["owner"] = of.get("owner_kind", ""), of.get("owner_name", "")
    elif name == "kube_pod_info":
        pod["node"] = of.get("node") or pod.get("node", "")
        pod.setdefault("owner", (of.get("created_by_kind", ""), of.get("created_by_name", "")))


def _resource(name: str) -> str:
    """A resource as the API calls it: labels of Prometheus have no ``.`` and no ``/``."""
    return f"{name.removesuffix('_gpu')}/gpu" if name.endswith("_gpu") else name


def _record(space: str, name: str, pod: Mapping[str, Any], whole: float) -> dict[str, Any]:
    phases, seen = pod["phase"], pod["seen"]
    phase = max(phases, key=lambda each: phases[each][1], default="Unknown")
    over = phase in ("Succeeded", "Failed")
    ended = pod.get("ended", phases[phase][0] if over else None)
    started = pod.get("started", phases.get("Running", (None,))[0])
    kind, owner = pod.get("owner", ("", ""))
    owners = [{"kind": kind, "name": owner, "controller": True}] if owner else []
    status: dict[str, Any] = {"phase": phase, "startTime": _written(started)}
    if over:
        status["containerStatuses"] = [{"state": {"terminated": {"finishedAt": _written(ended)}}}]
    elif max(seen) < whole:
        status["lastSeen"] = _written(max(seen))
    asked = [{"resources": {"requests": r, "limits": w}} for r, w in pod["asked"].values()]
    about: dict[str, Any] = {"name": name, "namespace": space, "ownerReferences": owners}
    about["creationTimestamp"] = _written(pod.get("created", min(seen)))
    spec = {"containers": asked, "nodeName": pod.get("node", "")}
    return {"kind": "Pod", "metadata": about, "spec": spec, "status": status}


def _written(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()

"""A Kubernetes of four nodes for the conformance suite: a real API server, stand-in kubelets."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from gangwise.engines.kubernetes import KubernetesEngine
from tests.engines.conformance import NODES
from tests.engines.kubernetes_cluster import ControlPlane, StandInNodes

GROUPS = "scheduling.x-k8s.io"
FIELDS = {"GANGWISE_NODE": "spec.nodeName", "GANGWISE_JOB": "metadata.uid"}


class KubernetesLab:
    """Users' gangs are pods of a PodGroup."""

    patience = 90.0
    quiet = 1.5

    def __init__(self, folder: Path):
        self.folder = folder
        self.reports = folder / "reports"
        self.reports.mkdir()
        self.plane = ControlPlane(folder / "plane")
        self.api = self.plane.admin
        try:
            self.plane.start()
            self._define_groups()
        except BaseException:
            self.plane.stop()
            raise
        devices = {"cpu": 4, "nvidia.com/gpu": 4}
        self.nodes = StandInNodes(
            self.api,
            {n: {"devices": devices, "labels": {"model": n[0], "rack": n[0]}} for n in NODES},
            folder / "output",
        )
        self.count = 0
        self.engines: list[KubernetesEngine] = []

    def _define_groups(self) -> None:
        self.define(GROUPS, "v1alpha1", "podgroups", "PodGroup")

    def define(self, group: str, version: str, plural: str, kind: str) -> None:
        """Let the API server know a kind of objects, whatever they hold."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        about: dict[str, Any] = {"name": version, "served": True, "storage": True}
        about["schema"] = {"openAPIV3Schema": schema}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind}
        body = {
            "metadata": {
                "name": f"{plural}.{group}",
                # names under k8s.io want to be approved; tests are not
                "annotations": {"api-approved.kubernetes.io": "unapproved, tests only"},
            },
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [about]},
        }
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        code, answer = self.api("POST", path, body)
        assert code == 201, answer

    def make(
        self, api: str, plural: str, kind: str, name: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
        path = f"/apis/{api}/namespaces/default/{plural}"
        for _ in range(100):  # a kind that was defined just now is served a little later
            code, answer = self.api("POST", path, body)
            if code != 404:
                break
            time.sleep(0.1)
        assert code == 201, answer
        return answer

    def engine(self) -> KubernetesEngine:
        engine = KubernetesEngine(
            self.plane.kubeconfig_restricted, lost_after=0.5, reports=self.reports
        )
        self.engines.append(engine)
        return engine

    def pod(self, name: str, command: list[str], gpus: float, **more: Any) -> dict[str, Any]:
        """Make a pod; ``labels``, ``annotations``, ``owners``, fields of its spec may be given.

        It asks for half a core, or for whole ones that ``cpu`` counts.
        """
        labels, notes = more.pop("labels", {}), more.pop("annotations", {})
        owners = more.pop("owners", [])
        asked = {"nvidia.com/gpu": str(gpus), "cpu": str(more.pop("cpu", "500m"))}
        variables = [
            {"name": n, "valueFrom": {"fieldRef": {"fieldPath": f}}} for n, f in FIELDS.items()
        ]
        variables.append({"name": "GANGWISE_REPORTS", "value": str(self.reports)})
        container = {
            "name": "c",
            "image": "none",
            "command": command,
            "env": variables,
            "resources": {"limits": asked, "requests": asked},
        }
        spec = {
            "schedulerName": "gangwise",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **more,
        }
        meta = {"name": name, "labels": labels, "annotations": notes, "ownerReferences": owners}
        body = {"metadata": meta, "spec": spec}
        code, answer = self.api("POST", "/api/v1/namespaces/default/pods", body)
        assert code == 201, answer
        return answer

    def group(self, name: str, least: int) -> None:
        self.make(f"{GROUPS}/v1alpha1", "podgroups", "PodGroup", name, {"minMember": least})

    def submit(
        self,
        seconds: float,
        tasks: int = 1,
        gpus: int = 1,
        *,
        fails: bool = False,
        model: str = "",
        per_node: int = 0,
        wrapped: bool = False,
        limit: float = 600.0,
        head: int = 0,
    ) -> str:
        self.count += 1
        name = f"g{self.count}"
        said = 'echo "ran $NODE_NAME ${CUDA_VISIBLE_DEVICES:-}"; '
        command = ["sh", "-c", f"{said} sleep {seconds}; exit {3 if fails else 0}"]
        if wrapped:
            run = f"{sys.executable} -m gangwise.engines.rank --sleep {seconds} --every 0.5"
            command = ["sh", "-c", f"{said} {run}"]
        more: dict[str, Any] = {"activeDeadlineSeconds": int(limit)}
        if model:
            more["nodeSelector"] = {"model": model}
        if per_node:
            rule = {"labelSelector": {"matchLabels": {f"{GROUPS}/pod-group": name}}}
            rule["topologyKey"] = "kubernetes.io/hostname"
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}
            more["affinity"] = {"podAntiAffinity": rules}
        self.group(name, tasks + (head > 0))
        if head:
            labels = {f"{GROUPS}/pod-group": name}
            self.pod(f"{name}-head", command, 0, cpu=head, labels=labels, **more)
        pods = [
            self.pod(f"{name}-{i}", command, gpus, labels={f"{GROUPS}/pod-group": name}, **more)
            for i in range(tasks)
        ]
        first = self.pods()[f"{name}-head"] if head else pods[0]
        return f"default/{name}~{first['metadata']['uid'][:8]}"

    def ran(self, job: str) -> list[tuple[str, tuple[int, ...]]]:
        name = job.removeprefix("default/").partition("~")[0]
        found = []
        for pod, lines in self.nodes.output.items():
            if pod.startswith(f"{name}-"):
                for line in lines.splitlines():
                    word, node, *devices = line.split()
                    assert word == "ran"
                    ids = devices[0].split(",") if devices else []
                    found.append((node, tuple(map(int, ids))))
        return found

    def node_down(self, node: str) -> None:
        self.nodes.power_off(node)

    def node_up(self, node: str) -> None:
        self.nodes.power_on(node)

    def pause(self) -> None:
        self.plane.freeze()

    def resume(self) -> None:
        self.plane.freeze(False)

    def pods(self) -> dict[str, Any]:
        """All pods by name, as the API server has them."""
        _, found = self.api("GET", "/api/v1/namespaces/default/pods")
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def stop(self) -> None:
        for engine in self.engines:
            engine.close()
        self.nodes.close()
        self.plane.stop()


def dump(lab: KubernetesLab) -> str:
    """For a look when a test fails."""
    return json.dumps({n: p["status"] for n, p in lab.pods().items()}, indent=1)

"""The how-to of Kubernetes, line by line in a fresh cluster, and out of it again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engines.kubernetes_cluster import Api, ControlPlane, StandInNodes, _free_ports, why_not
from tests.waiting import until

pytestmark = pytest.mark.full

if not os.environ.get("GANGWISE_KUBE"):  # where it is set, what cannot start fails
    pytest.skip(why_not(), allow_module_level=True)
if not shutil.which("kubectl"):
    pytest.skip("no kubectl", allow_module_level=True)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
STAND_BY = ROOT / "deploy/kubernetes/stand-by"
HAS = {"cpu": 16, "nvidia.com/gpu": 8, "memory": "64Gi"}
VOLATILE = ("resourceVersion", "managedFields")
"""Fields of metadata that the API server writes anew with each change of a pod."""
BOUND = ("job", "attempt", "placement")


class Typist:
    """Types the page's shell lines where a user would: kubectl's configuration, PATH, folders."""

    def __init__(self, folder: Path, plane: ControlPlane, ports: str):
        self.folder, self.plane, self.left = folder, plane, self._lines()
        self.instead = {"/var/lib/gangwise": str(folder / "state"), "8080": ports}
        self.instead["/shared/gangwise"] = str(folder / "reports")
        programs = folder / "bin"
        programs.mkdir()
        (programs / "gangwise").write_text(f'#!/bin/sh\nexec {sys.executable} -m gangwise "$@"\n')
        (programs / "python").symlink_to(sys.executable)
        (programs / "gangwise").chmod(0o755)
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(plane.kubeconfig),
            "PYTHONUNBUFFERED": "1",
        }
        self.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        self.environment["XDG_CONFIG_HOME"] = str(folder / "config")
        self.serving: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def _lines() -> list[str]:
        blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
        joined = "".join(blocks).replace("\\\n", " ")
        return [line.strip() for line in joined.splitlines() if line.strip()]

    def text(self, text: str) -> str:
        for old, new in self.instead.items():
            text = text.replace(old, new)
        return text

    def type(self, start: str, fails: bool = False) -> str:
        """The next line of the page, which has to begin so; services are left running."""
        line = self.left[0] if fails else self.left.pop(0)
        # Nobody here would end a namespace.
        line += " --wait=false" * line.startswith("kubectl delete")
        assert line.startswith(start), (line, start)
        if line.startswith("gangwise serve"):
            said = self.folder / f"said-{len(self.left)}"
            with said.open("w") as file:
                process = subprocess.Popen(
                    ["sh", "-c", f"exec {self.text(line)}"],
                    cwd=ROOT,
                    env=self.environment,
                    stdout=file,
                    stderr=file,
                )
            self.serving.append(process)

            def ended() -> str:
                return said.read_text() if process.poll() is not None else ""

            until(lambda: "look with" in said.read_text(), "served", 120.0, ended)
            return said.read_text()
        done = subprocess.run(
            ["sh", "-c", self.text(line)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, (line, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def stop(self, how: int) -> None:
        process = self.serving.pop()
        process.send_signal(how)
        assert process.wait(60.0) in (0, -how)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(tmp_path / "plane")
    try:
        yield plane.start(grant=False)
    finally:
        plane.stop()


def stand_in_scheduler(plane: ControlPlane) -> None:
    """What the Deployment of kube-scheduler would run, with the rights of its account."""
    path = "/api/v1/namespaces/gangwise"
    account = f"{path}/serviceaccounts/gangwise-stand-by/token"
    code, answer = plane.admin("POST", account, {"spec": {}})
    assert code == 201, answer
    user = Api(plane.admin.server, plane.admin.authority, answer["status"]["token"])
    code, told = plane.admin("GET", f"{path}/configmaps/gangwise-stand-by")
    assert code == 200, told
    given = yaml.safe_load(told["data"]["scheduler.yaml"])
    plane.start_scheduler(given=given, user=user)


def without_volatile(pod: dict[str, Any], bound: bool) -> str:
    """A pod to the byte, without what the API server and a kubelet write."""
    pod = json.loads(json.dumps(pod))
    pod.pop("status")
    for name in VOLATILE:
        pod["metadata"].pop(name, None)
    if bound:
        assert pod["spec"].pop("nodeName")
    return json.dumps(pod, sort_keys=True)


def test_the_how_to_to_the_letter_and_back_out(tmp_path: Path, plane: ControlPlane) -> None:
    port = str(_free_ports(1)[0])
    typist = Typist(tmp_path, plane, port)
    (tmp_path / "reports").mkdir()
    (tmp_path / "train.py").write_text("for i in range(5): print('step', i)\n")
    nodes = StandInNodes(
        plane.admin,
        {n: {"devices": HAS, "labels": {"gpu": g}} for n, g in (("n1", "a100"), ("n2", "v100"))},
        tmp_path / "output",
    )
    pods = "/api/v1/namespaces/default/pods"

    def all_pods() -> dict[str, Any]:
        return {p["metadata"]["name"]: p for p in plane.admin("GET", pods)[1]["items"]}

    def submitted(gang: str, tasks: int = 2, **spec: Any) -> None:
        (text,) = re.findall(r"```yaml\n(apiVersion: v1\nkind: Pod\n.*?)```", PAGE, re.S)
        for rank in range(tasks):
            pod = yaml.safe_load(typist.text(text))
            pod["metadata"]["name"] = f"{gang}-{rank}"
            pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": gang}
            pod["metadata"]["annotations"]["gangwise.io/tasks"] = str(tasks)
            pod["spec"]["containers"][0]["command"][-1] = str(tmp_path / "train.py")
            pod["spec"] |= spec
            file = tmp_path / "pod.yaml"
            file.write_text(yaml.safe_dump(pod))
            subprocess.run(
                ["kubectl", "apply", "-f", str(file)],
                env=typist.environment,
                check=True,
                capture_output=True,
            )

    def cordon(on: bool) -> None:
        for name in ("n1", "n2"):
            body = {"spec": {"unschedulable": on}}
            assert plane.admin("PATCH", f"/api/v1/nodes/{name}", body, "merge")[0] == 200

    def phases() -> set[str]:
        return {pod["status"]["phase"] for pod in all_pods().values()}

    old = os.environ["PATH"]
    os.environ["PATH"] = typist.environment["PATH"]  # of the kubelet's pods
    try:
        assert typist.left.pop(0).startswith("pip install")
        assert "serviceaccount/gangwise created" in typist.type("kubectl apply -f")
        assert "2 nodes; 0 jobs wait" in typist.type("gangwise doctor")
        typist.type("gangwise serve --engine kubernetes --shadow")
        typist.stop(signal.SIGTERM)
        assert "gangwise-act created" in typist.type("kubectl apply -f")
        typist.type("gangwise serve --engine kubernetes --act")
        submitted("train")
        until(lambda: phases() == {"Succeeded"}, "run by gangwise", 120.0)
        marks = all_pods()["train-0"]["metadata"]["annotations"]
        assert {f"gangwise.io/{name}" for name in BOUND} <= marks.keys()
        assert list((tmp_path / "reports").rglob("*.json"))
        (tmp_path / "tokens").write_text("operator " + "0123456789abcdef" * 2 + "\n")
        typist.instead["from-file=tokens"] = f"from-file={tmp_path}/tokens"
        typist.type("kubectl -n gangwise create secret")
        assert "statefulset.apps/gangwise created" in typist.type("kubectl apply -k")
        assert "statefulset.apps/gangwise configured" in typist.type("kubectl apply -k")
        assert "deployment.apps/gangwise-stand-by created" in typist.type("kubectl apply -k")
        stand_in_scheduler(plane)
        cordon(True)  # so that all that comes now waits
        submitted("waits")
        submitted("alone", 1, nodeSelector={"gpu": "v100"})
        before = {n: p for n, p in all_pods().items() if n.startswith(("waits", "alone"))}
        assert "stop it first" in typist.type("gangwise detach", fails=True)
        assert {n: all_pods()[n] for n in before} == before, "nobody has touched them"
        typist.stop(signal.SIGKILL)
        shutil.rmtree(tmp_path / "state")  # gone for good
        told = typist.type("gangwise detach")
        assert told.count("left to ") == 2, told
        assert "2 jobs given back" in told
        assert {n: all_pods()[n]["spec"] for n in before} == {
            n: p["spec"] for n, p in before.items()
        }
        cordon(False)
        until(lambda: phases() == {"Succeeded"}, "run by kube-scheduler", 120.0)
        for name, pod in before.items():
            now = all_pods()[name]
            assert without_volatile(now, True) == without_volatile(pod, False), name
        assert "deleted" in typist.type("kubectl delete -k")
        assert "deleted" in typist.type("kubectl delete -k")
    finally:
        os.environ["PATH"] = old
        while typist.serving:
            typist.stop(signal.SIGKILL)
        nodes.close()

"""A private Kubernetes control plane for tests: etcd, a real kube-apiserver, nodes that are not.

``GANGWISE_KUBE`` names a folder with ``kube-apiserver`` (or ``kube-apiserver.xz``), or one whose
``bin`` holds it; ``etcd`` is looked for beside it and on the PATH. Everything listens on
127.0.0.1, and lives in a folder of the caller's. There is no controller-manager: nobody evicts,
collects or makes pods.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from ssl import create_default_context
from typing import Any

from tests.waiting import until

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
RIGHTS = [KUBERNETES / kind / "rbac.json" for kind in ("watch", "act")]
OF_THIS_ONE = ("apiVersion", "clientConnection")
UNITS = {
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}


class NoKubernetesError(RuntimeError):
    """The programs are not there."""


def why_not() -> str:
    """Why no API server can be started here; empty where one can."""
    try:
        _program("kube-apiserver")
        _program("etcd")
    except NoKubernetesError as error:
        return str(error)
    return ""


def _program(name: str) -> Path:
    folder = os.environ.get("GANGWISE_KUBE", "")
    if not folder:
        raise NoKubernetesError("set GANGWISE_KUBE to the folder with kube-apiserver")
    for place in (Path(folder), Path(folder) / "bin"):
        for file in (place / name, place / f"{name}.xz"):
            if file.is_file():
                return file
    found = shutil.which(name)
    if found is None:
        raise NoKubernetesError(f"no {name} in {folder} nor on the PATH (Debian has etcd-server)")
    return Path(found)


def _unpacked(file: Path) -> Path:
    """Unpacked once, beside other temporary files of this user's."""
    if file.suffix != ".xz":
        return file
    folder = Path(tempfile.gettempdir()) / f"gangwise-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = file.stat()
    target = folder / f"{file.stem}-{about.st_size}-{about.st_mtime_ns}"
    if not target.exists():
        part = folder / f"{target.name}.{os.getpid()}.part"
        with lzma.open(file) as packed, part.open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
        part.chmod(0o755)
        part.rename(target)
    return target


class Api:
    """JSON in, (status, JSON) out, as one user."""

    def __init__(self, server: str, authority: Path, token: str):
        self.server, self.token, self.authority = server, token, authority
        context = create_default_context(cafile=str(authority))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def open(
        self, method: str, path: str, body: Any = None, kind: str = "json", wait: float = 30.0
    ):
        kinds = {"json": "application/json", "merge": "application/merge-patch+json"}
        request = urllib.request.Request(
            self.server + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": kinds[kind]},
            method=method,
        )
        return self._opener.open(request, timeout=wait)

    def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "json"
    ) -> tuple[int, Any]:
        try:
            with self.open(method, path, body, kind) as answer:
                code, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read()
        return code, json.loads(text) if text[:1] == b"{" else text.decode(errors="replace")

    def kubeconfig(self, file: Path) -> Path:
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        cluster = {"server": self.server, "certificate-authority-data": authority}
        context = {"cluster": "tests", "user": "tests"}
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": self.token}}],
            "contexts": [{"name": "tests", "context": context}],
        }
        file.write_text(json.dumps(configuration))
        file.chmod(0o600)
        return file


class ControlPlane:
    """etcd and kube-apiserver in ``root``; the same root again finds what was stored."""

    def __init__(self, root: Path):
        self.root = root
        for name in ("etcd", "kube-apiserver"):
            _program(name)
        keys = root / "keys"
        keys.mkdir(parents=True, exist_ok=True)
        self._certificate, self._key = keys / "tls.crt", keys / "tls.key"
        if not self._certificate.exists():
            self._make_keys(keys)
        self._ports = _free_ports(3)
        users = [line.split(",") for line in (keys / "tokens.csv").read_text().splitlines()]
        server = f"https://127.0.0.1:{self._ports[2]}"
        tokens = {user: token for token, user, *_ in users}
        self.admin = Api(server, self._certificate, tokens["admin"])
        self.restricted = Api(server, self._certificate, tokens["gangwise"])
        self._tokens = tokens
        self.kubeconfig = self.admin.kubeconfig(root / "admin.json")
        self.kubeconfig_restricted = self.restricted.kubeconfig(root / "gangwise.json")
        self._running: list[subprocess.Popen[bytes]] = []

    def _make_keys(self, keys: Path) -> None:
        keys.chmod(0o700)
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=gangwise-tests",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ]
        command += ["-keyout", str(self._key), "-out", str(self._certificate)]
        subprocess.run(command, check=True, capture_output=True)
        lines = [
            f'{secrets.token_hex(20)},admin,admin,"system:masters"',
            f"{secrets.token_hex(20)},gangwise,gangwise",
            f"{secrets.token_hex(20)},system:kube-scheduler,system:kube-scheduler",
        ]
        (keys / "tokens.csv").write_text("\n".join(lines) + "\n")
        (keys / "tokens.csv").chmod(0o600)

    def start(self, wait: float = 180.0, grant: bool = True) -> ControlPlane:
        client, peer, secure = self._ports
        at, to = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._spawn(
            "etcd",
            {
                "data-dir": self.root / "etcd",
                "name": "tests",
                "listen-client-urls": at,
                "advertise-client-urls": at,
                "listen-peer-urls": to,
                "initial-advertise-peer-urls": to,
                "initial-cluster": f"tests={to}",
                "unsafe-no-fsync": "true",  # nothing here has to survive a power cut
            },
        )
        self._spawn(
            "kube-apiserver",
            {
                "etcd-servers": at,
                "bind-address": "127.0.0.1",
                "secure-port": secure,
                "advertise-address": "127.0.0.1",
                "tls-cert-file": self._certificate,
                "tls-private-key-file": self._key,
                "token-auth-file": self.root / "keys" / "tokens.csv",
                "anonymous-auth": "false",
                "authorization-mode": "RBAC",
                "service-cluster-ip-range": "10.0.0.0/24",
                "service-account-issuer": "https://tests.invalid",
                "service-account-key-file": self._certificate,
                "service-account-signing-key-file": self._key,
                "endpoint-reconciler-type": "none",
                # For want of a controller-manager: nobody would make the account that the first
                # asks for, nor take the taint of the second off a new node.
                "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
            },
        )
        until(lambda: self._answers("/readyz"), "ready", wait, self._alive)
        until(lambda: self._answers("/api/v1/namespaces/default"), "serving", wait, self._alive)
        if grant:
            self.grant()
        return self

    def start_scheduler(
        self, stands_by: str = "", given: Mapping[str, Any] | None = None, user: Api | None = None
    ) -> None:
        """Kubernetes' own, for pods that name no other.

        With ``stands_by``, a Lease as NAMESPACE/NAME, or ``given``, a configuration, it answers to
        the name ``gangwise`` as soon as nobody else holds the Lease.
        """
        user = user or Api(
            self.admin.server, self._certificate, self._tokens["system:kube-scheduler"]
        )
        kubeconfig = user.kubeconfig(self.root / "kube-scheduler.json")
        options: dict[str, Any] = {
            "bind-address": "127.0.0.1",
            "port": 0,
            "secure-port": _free_ports(1)[0],
            "cert-dir": self.root / "keys",
        }
        if given or stands_by:
            namespace, _, name = stands_by.partition("/")
            election = {"leaderElect": True, "resourceLock": "leases", "resourceName": name}
            election |= {"resourceNamespace": namespace, "leaseDuration": "6s"}
            election |= {"renewDeadline": "4s", "retryPeriod": "1s"}
            configuration = {
                "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "leaderElection": election,
                "profiles": [{"schedulerName": "gangwise"}],
            }
            if given:  # as it is, in the version and with the kubeconfig of this one
                configuration = {**given, **{k: configuration[k] for k in OF_THIS_ONE}}
            file = self.root / "stands-by.json"
            file.write_text(json.dumps(configuration))
            options["config"] = file
        else:
            options |= {"kubeconfig": kubeconfig, "leader-elect": "false"}
        self._spawn("kube-scheduler", options)

    def stop_scheduler(self) -> None:
        for process in self._running[2:]:
            process.kill()
            process.wait()
        del self._running[2:]

    def grant(self) -> None:
        """Give the restricted user the rights of the how-to, and no other."""
        for item in [each for file in RIGHTS for each in json.loads(file.read_text())["items"]]:
            item["subjects"] = (
                [{"kind": "User", "name": "gangwise"}] if "subjects" in item else None
            )
            kinds = f"{item['kind'].lower()}s"
            group = "/apis/rbac.authorization.k8s.io/v1"
            if item["kind"] in ("Role", "RoleBinding"):
                kinds = f"namespaces/{item['metadata']['namespace']}/{kinds}"
            elif item["kind"] == "Namespace":
                group = "/api/v1"
            elif item["kind"] == "ServiceAccount":
                continue
            body = {k: v for k, v in item.items() if v}
            code, answer = self.admin("POST", f"{group}/{kinds}", body)
            if code not in (201, 409):
                raise RuntimeError(f"{item['metadata']['name']} was not accepted: {answer}")
        until(lambda: self.restricted("GET", "/api/v1/nodes?limit=1")[0] == 200, "rights in force")

    def stop(self) -> None:
        """End all, at once: an API server that is asked to end waits for whoever watches it."""
        for process in reversed(self._running):
            process.kill()
            process.wait()
        self._running.clear()

    def freeze(self, on: bool = True) -> None:
        """The API server neither answers nor ends: what a lost network looks like."""
        self._running[1].send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def _spawn(self, name: str, options: Mapping[str, Any]) -> None:
        command = [
            str(_unpacked(_program(name))),
            *(f"--{key}={value}" for key, value in options.items()),
        ]
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._running.append(process)

    def _answers(self, path: str) -> bool:
        try:
            return self.admin("GET", path)[0] == 200
        except (OSError, HTTPException):
            return False

    def _alive(self) -> str:
        dead = [p.args[0] for p in self._running if p.poll() is not None]
        return f"{dead[0]} ended; its log is in {self.root}" if dead else ""


class StandInNodes:
    """The kubelets of all nodes: register them, run the commands of pods bound to them.

    A pod's containers are local processes, never started again. A pod that does not fit fails as
    on a kubelet; ``power_off`` kills a node's processes while its pods go on saying Running.
    """

    def __init__(
        self, api: Api, nodes: Mapping[str, Mapping[str, Any]], folder: Path, pods: str = "110"
    ):
        self.api, self.pods_allowed, self.folder = api, pods, folder
        self.folder.mkdir()
        self.nodes = {name: dict(node) for name, node in nodes.items()}
        self._lock = threading.RLock()
        self._on: dict[str, bool] = dict.fromkeys(nodes, True)
        self._used: dict[str, dict[str, dict[str, float]]] = {name: {} for name in nodes}
        self._gpus: dict[str, list[int]] = {}
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._seen: set[str] = set()
        self._gone: set[str] = set()
        self._closing = False
        for name in nodes:
            self._register(name)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """No process runs, all devices are free."""
        with self._lock:
            return not any(self._used.values()) and not self._processes

    @property
    def output(self) -> dict[str, str]:
        """What pods have written so far, by their names."""
        return {file.stem: file.read_text() for file in self.folder.glob("*.log")}

    # nodes -------------------------------------------------------------------------------------

    def _register(self, name: str) -> None:
        node = self.nodes[name]
        has = {"pods": self.pods_allowed, "memory": "64Gi", **node.get("devices", {})}
        has = {k: str(v) for k, v in has.items()}
        self._gpus[name] = list(range(int(has.get("nvidia.com/gpu", 0))))
        status = {"capacity": has, "allocatable": has, "conditions": self._conditions("True")}
        labels = {"kubernetes.io/hostname": name, **node.get("labels", {})}
        body = {"metadata": {"name": name, "labels": labels}, "status": status}
        if node.get("taints"):
            body["spec"] = {"taints": node["taints"]}
        code, answer = self.api("POST", "/api/v1/nodes", body)
        if code == 409:
            code, answer = self.api(
                "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "merge"
            )
        assert code in (200, 201), answer

    @staticmethod
    def _conditions(ready: str) -> list[dict[str, str]]:
        return [{"type": "Ready", "status": ready, "lastHeartbeatTime": _now()}]

    def add(self, name: str, node: Mapping[str, Any]) -> None:
        with self._lock:
            self.nodes[name], self._on[name], self._used[name] = dict(node), True, {}
        self._register(name)

    def remove(self, name: str) -> None:
        self.power_off(name, tell=False)
        self.api("DELETE", f"/api/v1/nodes/{name}")

    def power_off(self, name: str, tell: bool = True) -> None:
        with self._lock:
            self._on[name] = False
            lost = list(self._used[name])
            self._used[name].clear()
        for uid in lost:
            self._kill(uid, signal.SIGKILL)
        if tell:
            body = {"status": {"conditions": self._conditions("Unknown")}}
            self.api("PATCH", f"/api/v1/nodes/{name}/status", body, "merge")

    def power_on(self, name: str) -> None:
        with self._lock:
            self._on[name] = True
        self._register(name)
        _, found = self.api("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")
        for pod in found["items"]:
            if pod["status"].get("phase") == "Running":
                self._report(pod, "Failed", reason="NodeLost")
            self._saw("ADDED", pod)

    # pods --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        select = "fieldSelector=spec.nodeName%21%3D"
        while not self._closing:
            try:
                code, found = self.api("GET", f"/api/v1/pods?{select}")
                if code != 200:
                    raise OSError(str(found))
                for pod in found["items"]:
                    self._saw("ADDED", pod)
                with self._lock:  # deleted between two watches
                    here = {*self._processes}.union(*self._used.values())
                for uid in here - {pod["metadata"]["uid"] for pod in found["items"]}:
                    self._kill(uid, signal.SIGKILL)
                since = found["metadata"]["resourceVersion"]
                path = f"/api/v1/pods?{select}&watch=1&timeoutSeconds=60&resourceVersion={since}"
                with self.api.open("GET", path, wait=90.0) as stream:
                    for line in stream:
                        event = json.loads(line)
                        if event["type"] == "ERROR" or self._closing:
                            break
                        self._saw(event["type"], event["object"])
            except (OSError, ValueError, HTTPException):
                time.sleep(0.2)

    def _saw(self, kind: str, pod: Any) -> None:
        name, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if name not in self.nodes:
            return
        if kind == "DELETED":
            self._kill(uid, signal.SIGKILL)
            return
        with self._lock:
            on, here, new = self._on[name], uid in self._used[name], uid not in self._seen
        if not on:
            return
        if pod["metadata"].get("deletionTimestamp"):
            if here:
                self._kill(uid, signal.SIGTERM)
            else:
                self._delete(pod)
        elif new and pod["status"].get("phase") == "Pending":
            self._admit(name, pod)

    def _admit(self, node: str, pod: Any) -> None:
        need = {"pods": 1.0}
        for container in pod["spec"]["containers"]:
            for kind, amount in container.get("resources", {}).get("requests", {}).items():
                need[kind] = need.get(kind, 0.0) + _quantity(amount)
        has = {"pods": self.pods_allowed, "memory": "64Gi", **self.nodes[node].get("devices", {})}
        gpus: list[int] = []
        with self._lock:
            self._seen.add(pod["metadata"]["uid"])
            used = list(self._used[node].values())
            short = [
                kind
                for kind, amount in need.items()
                if sum(each.get(kind, 0.0) for each in used) + amount
                > _quantity(str(has.get(kind, 0))) + 1e-9
            ]
            if not short:
                self._used[node][pod["metadata"]["uid"]] = need
                count = int(need.get("nvidia.com/gpu", 0))
                gpus, self._gpus[node] = self._gpus[node][:count], self._gpus[node][count:]
        if short:
            self._report(pod, "Failed", reason=f"OutOf{short[0]}")
        else:
            threading.Thread(target=self._run, args=(node, pod, gpus), daemon=True).start()

    def _run(self, node: str, pod: Any, gpus: list[int]) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        begun, processes = _now(), []
        for container in pod["spec"]["containers"]:
            fields = {"spec.nodeName": node, "metadata.name": meta["name"], "metadata.uid": uid}
            variables = {
                e["name"]: fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
                if "valueFrom" in e
                else e.get("value", "")
                for e in container.get("env", [])
            }
            told = {"NODE_NAME": node, "POD_NAME": meta["name"], "POD_NAMESPACE": meta["namespace"]}
            told["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
            command = container.get("command", []) + container.get("args", [])
            with (self.folder / f"{meta['name']}.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **told, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            processes.append(process)
        with self._lock:
            self._processes[uid] = processes
            gone = uid in self._gone
        if gone:  # deleted before it ran
            self._kill(uid, signal.SIGKILL)
        self._report(pod, "Running", [{"running": {"startedAt": begun}}] * len(processes))
        codes = [process.wait() for process in processes]
        with self._lock:
            there = self._used[node].pop(uid, None) is not None
            self._gpus[node] = sorted(self._gpus[node] + gpus)
            self._processes.pop(uid, None)
        if not there or self._closing:  # the node lost power: nobody reports
            return
        times = {"startedAt": begun, "finishedAt": _now()}
        ended = [{"terminated": {"exitCode": code & 255, **times}} for code in codes]
        self._report(pod, "Failed" if any(codes) else "Succeeded", ended)
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        code, now = self._heard("GET", path)
        if code == 200 and now["metadata"].get("deletionTimestamp"):
            self._delete(pod)

    def _report(self, pod: Any, phase: str, states: list[Any] | None = None, **more: Any) -> None:
        status: dict[str, Any] = {"phase": phase, **more}
        if states:
            status["containerStatuses"] = [
                {
                    "name": c["name"],
                    "image": c["image"],
                    "imageID": "",
                    "ready": "running" in state,
                    "restartCount": 0,
                    "state": state,
                }
                for c, state in zip(pod["spec"]["containers"], states, strict=True)
            ]
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        while not self._closing:  # as a kubelet: until it is taken, or the pod is gone
            if self._heard("PATCH", path, body, "merge")[0] in (200, 404, 409):
                return
            time.sleep(0.2)

    def _heard(self, *request: Any) -> tuple[int, Any]:
        """Ask until the server answers: it may be busy, or stopped and started by a test."""
        while not self._closing:
            with suppress(OSError, HTTPException):
                return self.api(*request)
            time.sleep(0.2)
        return 0, None

    def _delete(self, pod: Any) -> None:
        meta = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        self._heard("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", body)

    def _kill(self, uid: str, how: int) -> None:
        with self._lock:
            self._gone.add(uid)
            processes = list(self._processes.get(uid, ()))
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)

    def close(self) -> None:
        self._closing = True
        for uid in list(self._processes):
            self._kill(uid, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Ports that no outgoing connection is given, so that they are still free a minute later.

    An etcd that another test's server has found instead would make two of them one cluster.
    """
    draw = random.Random(secrets.randbits(64))
    ports: list[int] = []
    while len(ports) < count:
        port = draw.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _quantity(text: str) -> float:
    digits = text.rstrip("".join(set("".join(UNITS))))
    return float(digits) * UNITS[text[len(digits) :]]


@contextmanager
def control_plane(root: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(root)
    try:
        yield plane.start()
    finally:
        plane.stop()

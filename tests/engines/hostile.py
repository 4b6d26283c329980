"""Rows as nobody would write them who means well, drawn from a seed, and engines that get them.

Each engine is the real one; only the cluster's answers are made up.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from gangwise.engines.local import LocalEngine
from tests.engines.test_slurm_dialects import NODES_OLD, Recorded, new, old

NASTY: list[Any] = [
    None,
    -1,
    0,
    1e-9,
    -0.0,
    2**31,
    2**63,
    10**30,
    1e308,
    math.nan,
    math.inf,
    -math.inf,
    True,
    "",
    " ",
    "work=1.2.3",
    "\ud800",
    "a\0b",
    "²",
    "٣",
    "x" * 5000,
    "9" * 5000,
    "--user=root",
    "../../etc/passwd",
    "a,b[1-9]",
    "gpu:-4",
    "1e999",
    "NaN",
    "-5Gi",
    "gangwise attempt=1 restarts=0 on=",
    "gangwise attempt=1 restarts=0 on=n1:0,zz:99999999",
    [],
    {},
    [None],
    [[]],
    {"set": True, "infinite": False, "number": "x"},
    {"": None},
    {"a": {"b": [1, {"c": "\udcff"}]}},
    ["RUNNING", 7],
    json.loads(60 * "[" + 60 * "]"),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in it."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(each, (*path, key))
    return found


def spoiled(rng: random.Random, row: Any) -> Any:
    """One to three places of a row replaced or taken out; now and then all of it."""
    if rng.random() < 0.02:
        return copy.deepcopy(rng.choice(NASTY))
    row = copy.deepcopy(row)
    for _ in range(rng.choice((1, 1, 2, 3))):
        path = rng.choice(places(row) or [()])
        if not path:
            break
        where = row
        for key in path[:-1]:
            where = where[key]
        if rng.random() < 0.2:
            del where[path[-1]]
        else:
            where[path[-1]] = copy.deepcopy(rng.choice(NASTY))
    return row


# ------------------------------------------------------------------------------------------ Slurm

GOOD = 5
"""Jobs among them that are as they should be."""
FIRST = 70_001
"""Number of the first."""


class HostileSlurm(Recorded):
    """Answers in either dialect; good jobs fit on a node of their own, ``good``."""

    def lead(self, identity: str) -> None:
        """Nobody else acts here."""

    def __init__(self, rng: random.Random, rows: int, watch: bool = False):
        kinds = ("PENDING", "RUNNING", "FAILED", "TIMEOUT", "COMPLETED", "REQUEUED")
        dialect = new if rng.random() < 0.5 else dict
        jobs: list[Any] = []
        for i in range(rows):
            more = {"features": "a100", "user_id": 1000}
            mark = f"gangwise attempt={i % 3} restarts=0 on=n{i % 4}:1"
            row = old(100 + i, rng.choice(kinds), admin_comment=rng.choice(("", mark)), **more)
            row["job_resources"] = {"allocated_nodes": [{"nodename": "n1", "cpus_used": 1}]}
            jobs.append(spoiled(rng, dialect(row)))
        for i in range(GOOD):
            more = {"features": "good", "tres_per_node": "", "time_limit": 1}
            more |= {"tasks": 1, "node_count": 1}
            jobs.insert(rng.randrange(len(jobs)), old(FIRST + i, "PENDING", **more))
        good = {**NODES_OLD[0], "name": "good", "features": "good", "active_features": "good"}
        nodes = [spoiled(rng, rng.choice(NODES_OLD)) for _ in range(rows // 10)]
        super().__init__(jobs, [*nodes, {**good, "cpus": 64}], watch=watch)
        self.poll = 60.0  # placements share a look

    def released(self) -> set[str]:
        """Jobs that Slurm was told to start."""
        return {line.split()[-1] for line in self.said if " release " in line}


# ------------------------------------------------------------------------------------------ local


class HostileLocal(LocalEngine):
    """A folder of job files; nothing is launched."""

    def __init__(self, rng: random.Random, rows: int, folder: Path):
        shape = {"devices": {"cpu": 8.0, "gpu": 4.0}, "labels": {"model": "a"}, "speed": 1.0}
        bad = [spoiled(rng, {"name": f"n{i}", **shape}) for i in range(rows // 20)]
        LocalEngine.create(folder, [*bad, {"name": "good", **shape, "labels": {"model": "good"}}])
        self.launched: set[str] = set()
        for i in range(rows):
            self._file(folder, str(100 + i), spoiled(rng, self._asked("a")))
        for i in range(GOOD):
            self._file(folder, str(FIRST + i), self._asked("good"))
        for i, text in enumerate(("", "{", "[" * 100_000, '{"tasks": ' + "9" * 5000 + "}", "\xff")):
            self._file(folder, f"t{i}", None)
            (folder / "jobs" / f"t{i}" / "job.json").write_bytes(text.encode("latin-1"))
        for name in ("fifo", "link"):
            (folder / "jobs" / name).mkdir()
        os.mkfifo(folder / "jobs" / "fifo" / "job.json")
        (folder / "jobs" / "link" / "job.json").symlink_to("/dev/zero")
        super().__init__(folder)

    @staticmethod
    def _asked(model: str) -> dict[str, Any]:
        asked: dict[str, Any] = {"command": ["true"], "tasks": 1, "demand": {"cpu": 1.0}}
        asked |= {"job_type": "train", "user": "ada", "submitted": 1000.0, "limit": 60.0}
        asked |= {"per_node": 0, "constraint": {"model": model}, "priority": 0.0, "work": 5.0}
        return asked | {"environment": {}}

    @staticmethod
    def _file(folder: Path, name: str, content: Any) -> None:
        (folder / "jobs" / name).mkdir()
        (folder / "jobs" / name / "job.json").write_text(json.dumps(content))

    def _launch(self, here: Path) -> None:
        self.launched.add(here.parent.name)

    def released(self) -> set[str]:
        return self.launched


# ------------------------------------------------------------------------------------- Kubernetes


def pod(name: str, model: str, **more: Any) -> dict[str, Any]:
    """As the API server has it."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "labels": {"app": "a"}}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"gangwise.io/limit": "9"}}
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"schedulerName": "gangwise", "containers": [container], "priority": 0}
    spec |= {"nodeSelector": {"model": model}, "tolerations": [{"key": "a", "operator": "Exists"}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}, **more}


def gang_pod(rng: random.Random, i: int) -> dict[str, Any]:
    """One with everything that is read of a pod."""
    found = pod(f"p{i}", "a")
    notes = {"tasks": "2", "per-node": "1", "work": "5", "attempt": "1", "placement": '{"n1": 1}'}
    found["metadata"]["annotations"] |= {f"gangwise.io/{k}": v for k, v in notes.items()}
    group = {"scheduling.x-k8s.io/pod-group": f"g{i // 2}"}
    found["metadata"]["labels"] |= group if rng.random() < 0.5 else {}
    expression = {"key": "rank", "operator": "Gt", "values": ["1"]}
    rule = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    found["spec"]["affinity"] = {"nodeAffinity": {needed: rule}}
    if rng.random() < 0.5:
        found["spec"]["nodeName"] = rng.choice(("n1", "n2"))
        state = {"terminated": {"finishedAt": "2026-01-01T00:00:09Z", "exitCode": 1}}
        found["status"] = {"phase": rng.choice(("Running", "Failed", "Succeeded"))}
        found["status"]["containerStatuses"] = [{"state": state}]
    if rng.random() < 0.2:
        found["spec"]["schedulerName"] = "default-scheduler"
    return found


def node(name: str, model: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "64", "memory": "99Gi", "pods": "110"}}
    status["conditions"] = [{"type": "Ready", "status": "True"}]
    taint = {"key": "a", "value": "", "effect": "NoSchedule"}
    meta = {"name": name, "labels": {"model": model}}
    return {"metadata": meta, "spec": {"taints": [taint]}, "status": status}


class AtOnce:
    """A pool that works in whoever asks it."""

    @staticmethod
    def map(do: Callable[..., Any], *given: Any) -> Any:
        return map(do, *given)

    @staticmethod
    def submit(do: Callable[..., Any], *given: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(do(*given))
        return found


def hostile_kubernetes(rng: random.Random, rows: int) -> Any:
    """The engine, and a connection to nobody: it answers, and writes down what was bound."""
    from types import SimpleNamespace

    from gangwise.engines.engine import Capabilities
    from gangwise.engines.kubernetes import KubernetesEngine
    from gangwise.engines.kubernetes_api import Binding
    from gangwise.engines.kubernetes_gangs import ClusterCache
    from gangwise.engines.kubernetes_objects import gang_size

    bound: set[str] = set()

    def bind(pod: Any, node: str, marks: Any) -> Binding:
        bound.add(pod.name)
        return Binding()

    def items(listing: Any, *kind: str) -> list[Any]:
        group = {"metadata": {"namespace": "default", "name": "g1"}, "spec": {"minMember": 2}}
        return [spoiled(rng, group) for _ in range(rows // 20)]

    def read_size(of: Any) -> int:
        return gang_size(spoiled(rng, {"metadata": {}, "spec": {"minMember": 2}}))

    listings = SimpleNamespace(list_cluster_custom_object=None, list_job_for_all_namespaces=None)
    engine = KubernetesEngine.__new__(KubernetesEngine)
    engine.watch, engine.recreate = False, True
    engine.capabilities = Capabilities(1.0)
    engine._table = ClusterCache("gangwise", 30.0, None)
    engine._api = SimpleNamespace(
        check=lambda: None,
        bind=bind,
        pool=AtOnce,
        items=items,
        read_size=read_size,
        custom=listings,
        batch=listings,
        close=lambda: None,
        trouble="",
    )
    if hasattr(engine._table, "quarantine"):
        engine.quarantine = engine._table.quarantine
    nodes = [spoiled(rng, node(f"n{i}", "a")) for i in range(rows // 20)]
    engine._table.all_nodes([*nodes, node("good", "good")])
    pods: list[Any] = [spoiled(rng, gang_pod(rng, i)) for i in range(rows // 2)]
    for i in range(GOOD):
        pods.insert(rng.randrange(len(pods)), pod(str(FIRST + i), "good"))
    engine._table.all_pods(pods)
    engine._table.opened = True
    for i in range(rows // 2, rows):  # and from the watch, one by one
        kind = rng.choice(("ADDED", "MODIFIED", "DELETED"))
        engine._table.one_pod(kind, spoiled(rng, gang_pod(rng, i)))
    engine._look_up_sizes()
    engine.released = lambda: bound
    return engine

"""The cluster by the events of the watch: nodes, pods, gangs, and what becomes of them.

A fold over objects of the API server, without a call to it. A gang is closed when all of its pods
have come; then it appears as a job, and its size stays. Pods of the same group that come later are
jobs of their own.
"""

from __future__ import annotations

import copy
import json
import math
import os
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from gangwise.core.errors import EngineError
from gangwise.engines import engine
from gangwise.engines import kubernetes_objects as objects
from gangwise.engines.kubernetes_objects import MATCHES, OURS, PORT, WITHOUT, Membership, Taint

KEPT = 3600.0  # seconds that jobs stay in the table after their end
ON_NODES = ("placed", "running")
AFFINITIES = 4096  # required node affinities of waiting gangs that are kept apart
FILES = 100_000  # files of the folder of reports that are looked at
ASKED_AGAIN = 8  # objects that a list no longer has for which the API server is asked by name
OF_POD = 16  # reports of one pod that are read


@dataclass
class WatchedPod:
    """A pod as the watch last reported it."""

    uid: str
    namespace: str
    name: str
    manifest: dict[str, Any]
    node: str
    phase: str
    leaving: bool

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> WatchedPod:
        meta = manifest["metadata"]
        for part in ("labels", "annotations"):
            engine.table(meta.get(part) or {}, part, _any_text)
        # Tried only: a time that cannot be read is found here, and left to this pod.
        objects.seconds(engine.name(meta["creationTimestamp"], "creationTimestamp"))
        return cls(
            engine.name(meta["uid"], "its uid"),
            engine.name(meta["namespace"], "its namespace"),
            engine.name(meta["name"], "its name"),
            manifest,
            engine.name(manifest["spec"].get("nodeName") or "", "its node", empty=True),
            (manifest.get("status") or {}).get("phase") or "Pending",
            bool(meta.get("deletionTimestamp")),
        )

    @property
    def user(self) -> int | None:
        """Uid that its first container runs as, where its specification says one."""
        spec = self.manifest["spec"]
        for part in ((spec.get("containers") or [{}])[0], spec):
            if (uid := (part.get("securityContext") or {}).get("runAsUser")) is not None:
                return engine.whole(uid, "runAsUser", 0, 2**32)
        return None

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def bounced(self) -> bool:
        """Whether its node refused it, so that it never ran."""
        reason = (self.manifest.get("status") or {}).get("reason") or ""
        # OutOfcpu, OutOfpods, …: its kubelet found no room when the pod came.
        return self.phase == "Failed" and (
            reason.startswith("OutOf")
            or reason in ("NodeAffinity", "NodeLost", "UnexpectedAdmissionError")
        )

    def times(self, which: str) -> list[float]:
        """``startedAt`` or ``finishedAt`` of its containers, where they have it."""
        statuses = (self.manifest.get("status") or {}).get("containerStatuses") or ()
        states = (status.get("state") or {} for status in statuses)
        stamps = ((s.get("terminated") or s.get("running") or {}).get(which) for s in states)
        return [objects.seconds(stamp) for stamp in stamps if stamp]


@dataclass
class Gang:
    """Pods that are placed together, as one job."""

    id: str
    belongs: Membership
    pods: dict[str, WatchedPod] = field(default_factory=dict)
    size: int | None = None  # how many pods it must have
    tasks: int = 0  # how many it had when it became a job; 0 before
    attempt: int = 0
    plan: dict[tuple[str, int], int] = field(default_factory=dict)
    """Node and group of tasks → how many of its pods go there."""
    kinds: tuple[str, ...] = ()
    """What the pods of each group ask for, where they are unlike."""
    binding: dict[str, str] = field(default_factory=dict)
    """Pods whose Binding is under way: uid → node."""
    cancelled: bool = False
    removal_reason: str | None = None
    """Why it is being taken off its nodes, in words; None when it is not."""
    cause: engine.Cause = "released"  # why it is being taken off, or was last
    comes_back: bool = False  # all of its pods are gone, and their controller is to make new ones
    held: str = ""
    status: engine.Status | None = None
    reports: dict[str, engine.RankReport] = field(default_factory=dict)
    files_read: dict[str, int] = field(default_factory=dict)
    """Reports by pod; files that were read, and of what time they were."""
    ended_at: float = math.inf
    size_due: float = -math.inf
    """When it was over, and when its size may be asked for again; by the monotonic clock."""
    size_wait: float = 0.5  # seconds after the next question for its size; doubled each time

    @property
    def phase(self) -> engine.Phase | None:
        """That of its row in the table of jobs; None where it has none yet."""
        return None if self.status is None else self.status.phase

    @property
    def live(self) -> list[WatchedPod]:
        return [p for p in self.pods.values() if not p.ended]

    @property
    def full(self) -> bool:
        """Whether no more pods can belong to it."""
        need = self.tasks or sum(self.plan.values())
        count = sum(p.ended or not p.leaving for p in self.pods.values())
        return count >= need if need else any(map(self.where, self.pods.values()))

    def group(self, pod: WatchedPod) -> int:
        """Place among the groups of those pods that ask for the same."""
        return self.kinds.index(objects.asked(pod.manifest)) if self.kinds else 0

    def where(self, pod: WatchedPod) -> str:
        """The node that a pod is bound to, or about to be."""
        return pod.node or self.binding.get(pod.uid, "")


class ClusterCache:
    """Nodes, pods and gangs; for the parameters see :class:`.KubernetesEngine`."""

    def __init__(
        self, scheduler: str, lost_after: float, reports: Path | None, watch: bool = False
    ):
        self.scheduler, self.lost_after = scheduler, lost_after
        self.reports, self.watch = reports, watch
        # A list is taken in object by object, under the same lock.
        self.lock = threading.RLock()
        self.wake_up = threading.Event()  # something changed that may need doing
        self.events: queue.SimpleQueue[engine.EngineEvent] = queue.SimpleQueue()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.up: dict[str, str] = {}  # node → why it takes no pods; empty where it does
        self.silent: dict[str, float] = {}
        """Nodes whose kubelet does not report: since when, by the monotonic clock."""
        self.taints: set[Taint] = set()
        self.gangs: dict[str, Gang] = {}  # by the ids of their jobs
        self.foreign: dict[str, engine.Status] = {}  # pods of other schedulers that hold devices
        self._on: dict[str, dict[str, engine.Status]] = {}  # jobs that hold devices of a node
        self._keeps_away: dict[str, list[tuple[str, Any]]] = {}  # rules of pods that are on nodes
        self.opened = False  # whether all was listed once: nodes that come now are new
        self._terms: dict[str, list[Any]] = {}
        self._ports: set[str] = set()
        self._described: list[engine.EngineNode] | None = None
        self._gang_of: dict[str, str] = {}
        self._open: dict[Membership, str] = {}
        self.quarantine = engine.Quarantine()
        self.now: Callable[[], float] = time.time  # by the cluster's clock
        self.exists: Callable[[str, Any], bool] = lambda kind, item: False
        """Whether the API server has a node or a pod that a list no longer has."""

    def _require_whole(self, kind: str, found: list[Any], missing: Iterable[Any]) -> None:
        """Raise EngineError where a list lacks what the API server has: some are asked for."""
        for item in islice(missing, ASKED_AGAIN):
            if self.exists(kind, item):
                name = item["metadata"]["name"]
                raise EngineError(f"a list of {len(found)} {kind}s lacks {name}, which is there")

    def all_nodes(self, found: list[Any]) -> None:
        """Take in a list of all nodes; those not listed are gone."""
        names = set(map(_name, found))
        with self.lock:
            removed = [node for name, node in self.nodes.items() if name not in names]
        # A list that was cut short would take nodes away on which jobs run.
        self._require_whole("node", found, removed)
        with self.lock:
            for node in found:
                self.one_node("ADDED", node)
            for node in removed:
                self.one_node("DELETED", node)

    def one_node(self, kind: str, node: Any) -> None:
        """Take in a change of a node; one that cannot be read stays as it was."""
        self.quarantine.read("node", _name(node), lambda: self._one_node(kind, node))
        self.wake_up.set()

    def _one_node(self, kind: str, node: Any) -> None:
        name = node["metadata"]["name"]
        with self.lock:
            old_reason, taints = self.up.get(name), Taint.of(self.nodes.get(name, {}))
            if kind == "DELETED":
                self._described = None
                self.nodes.pop(name, None)
                self.up.pop(name, None)
                # A node that was removed is lost at once; nothing is waited for.
                self.silent.setdefault(name, time.monotonic() - self.lost_after)
                down: str | None = "removed"
            else:
                # Heartbeats come all the time; only what jobs depend on makes nodes anew.
                if _described(node) != _described(self.nodes.get(name)):
                    # Both raise where the node cannot be read; then it stays as it was.
                    engine.EngineNode(
                        name, self._devices(node), node["metadata"].get("labels") or {}
                    )
                    Taint.of(node)
                    self._described = None
                conditions = {c["type"]: c for c in node["status"].get("conditions") or ()}
                ready = conditions.get("Ready", {})
                down = "cordoned" if node["spec"].get("unschedulable") else ""
                self.nodes[name] = node
                if ready.get("status") != "True":
                    down = (
                        f"not ready ({ready.get('reason') or ready.get('status') or 'never was'})"
                    )
                    self.silent.setdefault(name, time.monotonic())
                else:
                    self.silent.pop(name, None)
                self.up[name] = down
            if Taint.of(self.nodes.get(name, {})) != taints:
                self._described = None
                # Gangs that wait have to avoid other taints now.
                self.taints = {taint for each in self.nodes.values() for taint in Taint.of(each)}
                self._update_waiting()
            if down and old_reason == "":
                self.events.put(
                    engine.EngineEvent("node_down", time.time(), node=name, detail=down)
                )
            elif not down and (old_reason or (old_reason is None and self.opened)):
                detail = "added" if old_reason is None else ""
                self.events.put(
                    engine.EngineEvent("node_up", time.time(), node=name, detail=detail)
                )

    def described(self) -> list[engine.EngineNode]:
        """Nodes as they are; made anew only when something of them has changed."""
        with self.lock:
            if self._described is None:
                self._described = [
                    engine.EngineNode(
                        name, self._devices(node), self._labels(name, node), not reason, reason
                    )
                    for name, node in sorted(self.nodes.items())
                    for reason in [self.up[name]]
                ]
            return self._described

    def _devices(self, node: Any) -> dict[str, int]:
        offered = node["status"].get("allocatable") or {}
        devices = {
            objects.DEVICES.get(k, k): objects.thousandths(k, text, up=False)
            for k, text in offered.items()
        }
        return devices | dict.fromkeys(self._ports, 1000)

    def _labels(self, name: str, node: Any) -> dict[str, str]:
        """Labels of a node, with those for the taints that it does not have."""
        labels = dict(node["metadata"].get("labels") or {})
        mine = Taint.of(node)
        labels.update((f"{WITHOUT}{t}", "true") for t in self.taints if t not in mine)
        for short, terms in self._terms.items():
            if objects.fits_affinity(terms, name, node["metadata"].get("labels") or {}):
                labels[f"{MATCHES}{short}"] = "true"
        return labels

    def silent_long(self, node: str) -> bool:
        """Whether a node has been silent for so long that it counts as lost."""
        since = self.silent.get(node)
        return since is not None and time.monotonic() - since >= self.lost_after

    # Pods, gangs

    def all_pods(self, found: list[Any]) -> None:
        """Take in a list of all pods; those not listed are gone."""

        # By this order, and not that of the list, pods fill their gangs:
        # the same after each restart.
        def bound_first(pod: WatchedPod) -> tuple[Any, ...]:
            return (
                not pod.node,
                pod.manifest["metadata"]["creationTimestamp"],
                objects.natural(pod.name),
            )

        present = set(map(_uid, found))
        with self.lock:
            gangs = list(self.gangs.values())
            removed = [(g, p) for g in gangs for p in g.pods.values() if p.uid not in present]
        # Pods of gangs that have ended go as their owners like.
        live = (pod.manifest for gang, pod in removed if gang.phase not in engine.ENDED)
        self._require_whole("pod", found, live)
        with self.lock:
            for _, pod in removed:
                self.one_pod("DELETED", pod.manifest)
            for uid in self.foreign.keys() - present:
                self._keeps_away.pop(uid, None)
                self._note(self.foreign.pop(uid), None)
            for pod in sorted(
                self.quarantine.read_all("pod", found, WatchedPod.of, _name), key=bound_first
            ):
                # Gangs are looked at when all pods are in; otherwise each
                # would first appear incomplete.
                self.one_pod("ADDED", pod.manifest, whole=True)
            for gang in self.gangs.values():
                self.update(gang)

    def one_pod(self, kind: str, manifest: Any, whole: bool = False) -> None:
        """Take in a change of a pod; ``whole`` where it is part of a whole list."""
        self.quarantine.read("pod", _name(manifest), lambda: self._one_pod(kind, manifest, whole))

    def _one_pod(self, kind: str, manifest: Any, whole: bool) -> None:
        pod = WatchedPod.of(manifest)
        with self.lock:
            self._note_rules(pod, there=kind != "DELETED" and bool(pod.node) and not pod.ended)
            if not self._ours(manifest):
                self._other(kind, pod)
                return
            gang = self.gangs.get(self._gang_of.get(pod.uid, ""))
            if kind == "DELETED":
                if gang is not None:
                    self._gang_of.pop(pod.uid, None)
                    removed = gang.pods.pop(pod.uid, None)
                    if gang.phase in engine.ENDED and removed is not None:
                        gang.pods[pod.uid] = removed  # it ended before: its story stays
                        removed.phase = removed.phase if removed.ended else "Failed"
                    self.update(gang)
                    self.wake_up.set()
                return
            gang = gang or self._gang_for(pod)
            if gang is None:
                return
            old_pod = gang.pods.get(pod.uid)
            if old_pod is not None and old_pod.node and not pod.node:
                return  # older than our own Binding
            gang.pods[pod.uid] = pod
            self._gang_of[pod.uid] = gang.id
            notes = pod.manifest["metadata"].get("annotations") or {}
            if (attempt := notes.get(f"{OURS}attempt")) is not None:
                # Pods of a gang that was taken off half-way tell of different attempts.
                gang.attempt = max(gang.attempt, _number(attempt))
                # After a restart the plan is known from the pods alone.
                if pod.node and gang.removal_reason is None and not gang.plan:
                    gang.plan = _plan(notes.get(f"{OURS}placement"))
            if not whole:
                self.update(gang)
        self.wake_up.set()

    def _note_rules(self, pod: WatchedPod, there: bool) -> None:
        """Note which pods a pod on a node keeps away; a change concerns all gangs that wait."""
        rules = objects.keeps_away(pod.manifest) if there else []
        if rules == self._keeps_away.get(pod.uid, []):
            return
        self._keeps_away.pop(pod.uid, None)
        if rules:
            self._keeps_away[pod.uid] = rules
        self._update_waiting()
        self.wake_up.set()

    def _update_waiting(self) -> None:
        for gang in self.gangs.values():
            if gang.phase in (None, "pending"):
                self.update(gang)

    def _ours(self, manifest: Any) -> bool:
        """Whether a pod is ours; where we only watch, all are but those that belong to nodes."""
        if not self.watch or manifest["spec"].get("schedulerName") == self.scheduler:
            return bool(manifest["spec"].get("schedulerName") == self.scheduler)
        owner = objects.controller(manifest)
        of_node = owner is not None and owner["kind"] in ("DaemonSet", "Node")
        return not of_node and manifest["metadata"]["namespace"] != "kube-system"

    def _other(self, kind: str, pod: WatchedPod) -> None:
        """Take in another scheduler's pod: it only holds devices."""
        if kind == "DELETED" or pod.ended or not pod.node:
            self._note(self.foreign.pop(pod.uid, None), None)
        elif pod.uid not in self.foreign:
            created = objects.seconds(pod.manifest["metadata"]["creationTimestamp"])
            try:
                needs, kind = objects.demand(pod.manifest), objects.job_type(pod.manifest)
            except Exception as error:
                self.quarantine.put("pod", f"{pod.namespace}/{pod.name}", error)
                # Of what cannot be read only that it is there is known.
                needs, kind = {"pods": 1000}, "other"
            name = f"{pod.namespace}/{pod.name}~{pod.uid[:8]}"
            job = engine.EngineJob(name, kind, pod.namespace, created, 1, needs)
            row = engine.Status(job, "running", placed=(engine.Placed(pod.node, 1),), foreign=True)
            self.foreign[pod.uid] = row
            self._note(None, row)

    def _note(self, before: engine.Status | None, now: engine.Status | None) -> None:
        """Note which jobs hold devices of which node, as a row of the table changes."""
        if before is not None:
            for p in before.placed:
                self._on.get(p.node, {}).pop(before.job.id, None)
        if now is not None and now.phase in ON_NODES:
            for p in now.placed:
                self._on.setdefault(p.node, {})[now.job.id] = now

    def holding(self, nodes: Iterable[str]) -> list[engine.Status]:
        """Jobs that hold devices of some nodes."""
        with self.lock:
            rows = {name: row for n in nodes for name, row in self._on.get(n, {}).items()}
        return list(rows.values())

    def _gang_for(self, pod: WatchedPod) -> Gang | None:
        """The gang of a pod that was not seen before, made where there is none.

        A pod that comes when its group is a job already is a job of its own.
        """
        belongs = Membership.of(pod.manifest)
        label = objects.own_value(pod.manifest, "job")
        ends = pod.times("finishedAt") if pod.ended else []
        if ends and self.now() - max(ends) > KEPT:
            return None
        if label.startswith(f"{pod.namespace}/"):  # what stands in others' names is not believed
            self._open.setdefault(belongs, label)
            return self.gangs.setdefault(label, Gang(label, belongs))
        gang = self.gangs.get(self._open.get(belongs, ""))
        if gang is not None and not gang.cancelled and gang.phase not in engine.ENDED:
            # A gang that is being taken off gets its successors, others only what they lack.
            if gang.removal_reason is not None or not gang.full:
                return gang
            # The size of a job never changes once a scheduler has seen it.
            belongs = Membership(pod.namespace, "pod", pod.uid)
        name = pod.name if belongs.kind == "pod" else belongs.name
        # A name may come again, with its uid it does not.
        gang = Gang(f"{pod.namespace}/{name}~{pod.uid[:8]}", belongs)
        self.gangs[gang.id] = gang
        self._open[belongs] = gang.id
        return gang

    def update(self, gang: Gang) -> None:
        """Look at a gang and report what changed; one that cannot be read stays as it was."""
        self.quarantine.read("job", gang.id, lambda: self._update(gang))

    def _update(self, gang: Gang) -> None:
        earlier, status = gang.status, self._now(gang)
        if status is None:
            return
        gang.status = status
        self._note(earlier, status)
        if earlier is not None and status.phase == earlier.phase:
            return
        if status.phase in ON_NODES and gang.removal_reason is None:
            gang.cause = "released"
        if status.phase == "pending":
            # What an earlier attempt measured says nothing of the next.
            gang.reports.clear()
        # Reports are read before the pods, and the files beside them, may be removed.
        if status.phase in engine.ENDED:
            # Before the end is reported, as they come with it.
            self.read_reports([gang])
            gang.ended_at = time.monotonic()
            gang.held = ""
        for event in engine.events_between(earlier, status, lambda _: tuple(gang.reports.values())):
            self.events.put(event)

    def _now(self, gang: Gang) -> engine.Status | None:
        """Row of the gang in the table of jobs; None until it is complete."""
        past = gang.status
        if past is not None and past.phase in engine.ENDED:
            return past
        # A pod and its successor are both there: the service that took the gang off was killed
        # half-way.
        replaced = {objects.own_value(p.manifest, "replaces") for p in gang.pods.values()}
        if replaced & gang.pods.keys() and gang.removal_reason is None and not self.watch:
            gang.removal_reason = "half taken off by an earlier run"
        bound = [p for p in gang.pods.values() if gang.where(p)]
        waiting = [p for p in gang.live if not gang.where(p) and not p.leaving]
        if not gang.pods:
            return None if past is None else self._without_pods(gang, past)
        if gang.cancelled and not gang.live and past is not None:
            # Pods that ended before the deletion stay in the cluster, so the gang has pods still.
            return replace(past, phase="cancelled", ended=time.time())
        if not bound:
            if gang.cancelled:
                return past
            gang.plan = {} if not gang.binding else gang.plan
            if gang.removal_reason is not None and past is not None and past.phase in ON_NODES:
                past = replace(past, detail=gang.removal_reason)
            gang.removal_reason = None
            return self._pending(gang, past, waiting)
        if self.watch and waiting and (past is None or past.phase == "pending"):
            # Somebody binds them, one by one.
            return self._pending(gang, past, [*bound, *waiting])
        if gang.removal_reason is None and not self.watch and any(p.bounced for p in bound):
            bounced = next(p for p in bound if p.bounced)
            reason = bounced.manifest["status"]["reason"]
            gang.removal_reason = f"node {bounced.node} would not run {bounced.name}: {reason}"
            gang.cause = "node_failed"
            self.wake_up.set()
        job = past.job if past is not None and past.phase != "pending" else None
        job = job or self._job(gang, [*bound, *waiting])
        counts = Counter((gang.where(p), gang.group(p)) for p in bound)
        # The plan counts while Bindings are under way; a gang that others placed has none.
        placed = tuple(
            engine.Placed(n, c, (), g) for (n, g), c in sorted((gang.plan or counts).items())
        )
        if not job.groups:
            job = replace(job, tasks=sum(gang.plan.values()) or len(bound))
        begun = [t for p in bound for t in p.times("startedAt")]
        # A gang has started when the last of its pods has.
        started = max(begun, default=math.nan)
        foreign = not gang.attempt and not any(
            objects.own_value(p.manifest, "attempt") for p in bound
        )
        row = engine.Status(job, "placed", gang.attempt, placed, started, foreign=foreign)
        complete = sum(counts.values()) >= sum(gang.plan.values())
        # A pod that was deleted by hand leaves its gang short for ever, unless a controller makes
        # it again; a gang that is still being bound has pods that wait.
        short = not complete and not waiting and gang.belongs.kind not in objects.REMADE
        short = short and not any(objects.controller(p.manifest) for p in bound)
        over = all(p.ended for p in bound) and (complete or short)
        if gang.removal_reason is not None or gang.cancelled or not over:
            going = all(p.phase in ("Running", "Succeeded", "Failed") for p in bound)
            # Once it runs, pods that end one after another are no change of its phase.
            ran = past is not None and past.phase == "running"
            return replace(row, phase="running" if ran or (going and complete) else "placed")
        return _ended(row, bound, len(bound) if complete else sum(gang.plan.values()))

    def _without_pods(self, gang: Gang, before: engine.Status) -> engine.Status | None:
        """Row of a gang whose pods are all gone: it waits for new ones, or has ended."""
        remade = gang.comes_back or gang.belongs.kind in objects.REMADE
        phase: engine.Phase = "cancelled"
        if gang.removal_reason is not None and not gang.cancelled:
            if remade:
                return self._pending(gang, before, [])
            phase = "failed"
        reason = gang.removal_reason or ""
        return replace(before, phase=phase, attempt=gang.attempt, ended=time.time(), detail=reason)

    def _pending(
        self, gang: Gang, before: engine.Status | None, pods: list[WatchedPod]
    ) -> engine.Status | None:
        gang.held, gang.comes_back = "", not pods
        try:
            if not pods:
                raise EngineError("being made again by their controller: no pod is there yet")
            size = 1 if gang.belongs.kind == "pod" else gang.size
            if size is None:
                size = gang.size = objects.declared_size(pods[0].manifest)
            if size is None:
                raise EngineError(
                    f"how many pods {gang.belongs.kind} {gang.belongs.name} has is not known: "
                    f"it needs a PodGroup, or the annotation {OURS}tasks"
                )
            need = gang.tasks or size
            # A gang is offered whole or not at all.
            if len(pods) < need:
                raise EngineError(f"{len(pods)} of its {need} pods are there")
            job = self._job(gang, pods)
            gang.tasks = len(pods)
        except Exception as error:
            gang.held = str(error)
            if not isinstance(error, EngineError):
                gang.held = f"left alone: unreadable, because {type(error).__name__}: {error}"
            if before is None:
                return None
            status = engine.Status(before.job, "pending", gang.attempt, detail=gang.held)
            return replace(status, foreign=before.foreign, cause=gang.cause)
        detail = before.detail if before is not None and before.phase in ON_NODES else ""
        return engine.Status(job, "pending", gang.attempt, detail=detail, cause=gang.cause)

    def _job(self, gang: Gang, pods: list[WatchedPod]) -> engine.EngineJob:
        """The job of a gang, whose pods are a group for each thing that they ask for."""
        manifests = [pod.manifest for pod in pods]
        for manifest in manifests:
            if reason := objects.not_modelled(manifest):
                raise EngineError(f"left alone: it asks for {reason}, which is not modelled")
            # Required anti-affinity holds in both directions: pods on nodes keep newcomers away.
            for uid, rules in self._keeps_away.items():
                if uid not in gang.pods and any(
                    objects.selects(t, manifest, home) for home, t in rules
                ):
                    raise EngineError("left alone: a pod on a node keeps pods like it away")
        alike: dict[str, list[Any]] = {}
        for manifest in manifests:
            alike.setdefault(objects.asked(manifest), []).append(manifest)
        # Sorted, so that groups have the same numbers after a restart.
        gang.kinds = tuple(sorted(alike)) if len(alike) > 1 and not _keep_apart(alike) else ()
        # Where pods of one group keep those of another off their nodes, all are one group, in which
        # each counts with the most that any asks for.
        groups = [alike[kind] for kind in gang.kinds] or [manifests]
        by_age = [(m["metadata"]["creationTimestamp"], m["metadata"]["name"]) for m in manifests]
        # The oldest speaks for all: successors are younger than what they replace.
        oldest = manifests[by_age.index(min(by_age))]
        created = objects.seconds(oldest["metadata"]["creationTimestamp"])
        limit = oldest["spec"].get("activeDeadlineSeconds")
        return engine.EngineJob.of_groups(
            [self._group(group) for group in groups],
            id=gang.id,
            job_type=objects.job_type(oldest),
            user=objects.own_value(oldest, "user") or gang.belongs.namespace,
            submitted=objects.note(oldest, "submitted", created),
            limit=objects.note(oldest, "limit", math.inf) if limit is None else float(limit),
            deadline=objects.note(oldest, "deadline", math.inf),
            priority=float(oldest["spec"].get("priority") or 0),
            work=objects.note(oldest, "work", math.nan),
        )

    def _group(self, manifests: list[Any]) -> engine.TaskGroup:
        """Pods as tasks; where they differ, each counts with the most that any asks for."""
        needs: dict[str, int] = {}
        for manifest in manifests:
            for kind, amount in objects.demand(manifest).items():
                needs[kind] = max(needs.get(kind, 0), amount)
        # A port that some pod asks for is a device, of which each node has one from now on.
        for port in needs:
            if port.startswith(PORT) and port not in self._ports:
                self._ports.add(port)
                self._described = None
        selectors = (dict(m["spec"].get("nodeSelector") or {}) for m in manifests)
        wanted = objects.common(selectors, "nodeSelector")
        terms = objects.common(map(objects.affinity, manifests), "node affinity")
        if terms:
            short = objects.digest(terms)
            if short not in self._terms:
                objects.check_affinity(terms)
                if len(self._terms) >= AFFINITIES:
                    self._forget_affinities()
                self._terms[short], self._described = terms, None
            wanted[f"{MATCHES}{short}"] = "true"
        for taint in self.taints:
            # Tasks may go where all of them tolerate the taints: nodes without a taint carry a
            # label for it.
            if not all(taint.tolerated(m) for m in manifests):
                wanted[f"{WITHOUT}{taint}"] = "true"
        per_node = objects.common(map(objects.per_node, manifests), "anti-affinity")
        return engine.TaskGroup(len(manifests), needs, per_node, wanted)

    def _forget_affinities(self) -> None:
        """Forget node affinities that no waiting gang requires."""
        waiting = (g.status for g in self.gangs.values())
        rows = (w for w in waiting if w and w.phase == "pending")
        used = {k for row in rows for part in row.job.parts for k in part.constraint}
        self._terms = {k: terms for k, terms in self._terms.items() if f"{MATCHES}{k}" in used}
        if len(self._terms) >= AFFINITIES:
            raise EngineError(f"{AFFINITIES} other node affinities wait already")

    def note_lost(self, gang: Gang) -> None:
        """Mark a gang to be taken off where one of its pods is on a lost node."""
        if gang.removal_reason is not None or gang.phase not in ON_NODES:
            return
        for pod in gang.live:
            if pod.node and self.silent_long(pod.node):
                gang.removal_reason, gang.cause = f"node {pod.node} is lost", "node_failed"
                return

    def forget(self, gang: Gang) -> None:
        for uid in gang.pods:
            self._gang_of.pop(uid, None)
        self.gangs.pop(gang.id, None)
        # Pods of the same group that come now begin a new job.
        if self._open.get(gang.belongs) == gang.id:
            del self._open[gang.belongs]

    def read_reports(self, gangs: Iterable[Gang]) -> None:
        """Read the files ``UID.RUN.RANK.json`` of the shared folder that are new."""
        if self.reports is None:
            return
        files: dict[str, list[tuple[str, int]]] = {}
        try:
            with os.scandir(self.reports) as folder:
                # Others write into this folder, any number of files.
                for file in islice(folder, FILES):
                    uid = file.name.partition(".")[0]
                    if uid in self._gang_of and file.name.endswith(".json"):
                        of_pod = files.setdefault(uid, [])
                        if len(of_pod) < OF_POD:
                            stamp = file.stat(follow_symlinks=False).st_mtime_ns
                            of_pod.append((file.name, stamp))
        except OSError:
            return  # not there now: no measurement
        for gang in gangs:
            fresh = []
            for uid in files.keys() & gang.pods.keys():
                for name, stamp in files[uid]:
                    if gang.files_read.get(name) == stamp:
                        continue
                    if (
                        report := engine.read_report(self.reports / name, gang.pods[uid].user)
                    ) is None:
                        continue
                    gang.files_read[name] = stamp
                    gang.reports[uid] = report._replace(node=gang.where(gang.pods[uid]))
                    fresh.append(gang.reports[uid])
            if fresh and gang.phase == "running":
                self.events.put(
                    engine.EngineEvent(
                        "measured", time.time(), gang.id, gang.attempt, ranks=tuple(fresh)
                    )
                )


def _ended(row: engine.Status, bound: list[WatchedPod], size: int) -> engine.Status:
    """Row of a gang of ``size`` pods of which all that are there have ended."""
    ended = max((t for p in bound for t in p.times("finishedAt")), default=time.time())
    phase: engine.Phase = "finished"
    detail = ""
    # Pods that were deleted left no exit code: the gang cannot be said to have finished.
    if len(bound) < size:
        phase, detail = "failed", f"{size - len(bound)} of its pods were deleted while it ran"
    elif failed := [p for p in bound if p.phase == "Failed"]:
        status = failed[0].manifest["status"]
        reason = status.get("reason")
        phase = "killed" if reason == "DeadlineExceeded" else "failed"
        states = [each.get("state") or {} for each in status.get("containerStatuses") or ()]
        codes = [s["terminated"].get("exitCode", 0) for s in states if "terminated" in s]
        detail = f"pod {failed[0].name}: {reason or f'exit {codes}'}"
    return replace(row, phase=phase, ended=ended, detail=detail)


def successor(pod: WatchedPod, gang: Gang) -> dict[str, Any]:
    """A pod that waits in the place of one that is to be deleted."""
    meta = pod.manifest["metadata"]
    spec = copy.deepcopy(pod.manifest["spec"])
    # It must be free to go anywhere; a pod that names a node is never scheduled.
    spec.pop("nodeName", None)
    notes = dict(meta.get("annotations") or {})
    notes.pop(f"{OURS}placement", None)
    base = notes.get(f"{OURS}name", pod.name)
    turn = _number(notes.get(f"{OURS}turn", "0")) + 1
    assert gang.status is not None
    # Who it follows and as which attempt, so that a service that starts anew knows the gang again.
    notes |= {
        f"{OURS}name": base,
        f"{OURS}turn": str(turn),
        f"{OURS}job": gang.id,
        f"{OURS}replaces": pod.uid,
        f"{OURS}submitted": repr(gang.status.job.submitted),
        f"{OURS}attempt": str(gang.attempt),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            # A name has at most 253 characters.
            "name": f"{base[:240]}-r{turn}",
            "labels": meta.get("labels") or {},
            "annotations": notes,
            "ownerReferences": meta.get("ownerReferences") or [],
        },
        "spec": spec,
    }


def _described(node: Any) -> Any:
    """The part of a node that jobs depend on; heartbeats are no part of it."""
    if node is None:
        return None
    status = node["status"]
    ready = [c.get("status") for c in status.get("conditions") or () if c["type"] == "Ready"]
    return node["spec"], node["metadata"].get("labels"), status.get("allocatable"), ready


def _any_text(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise engine.Malformed(f"{what} is {engine.quoted(value)}, not text")


def _name(item: Any) -> str:
    try:
        meta = item["metadata"]
        return "/".join(engine.clean_text(meta[k]) for k in ("namespace", "name") if meta.get(k))
    except (KeyError, TypeError, AttributeError):
        return engine.quoted(item)


def _uid(item: Any) -> Any:
    try:
        uid = item["metadata"]["uid"]
    except (KeyError, TypeError):
        return None
    return uid if isinstance(uid, str) else None


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else 0


def _keep_apart(alike: Mapping[str, list[Any]]) -> bool:
    """Whether a pod of one kind keeps pods of another kind off its node."""
    return any(
        objects.selects(term, other[0], home)
        for kind, pods in alike.items()
        for home, term in objects.keeps_away(pods[0])
        for other_kind, other in alike.items()
        if other_kind != kind
    )


def plan_text(plan: Mapping[tuple[str, int], int]) -> str:
    """A plan as an annotation; the group stands behind a colon, which no node's name has."""
    return json.dumps({f"{node}:{g}" if g else node: tasks for (node, g), tasks in plan.items()})


def _plan(text: str | None) -> dict[tuple[str, int], int]:
    plan = {}
    try:
        for key, tasks in json.loads(text or "{}").items():
            node, _, group = key.partition(":")
            plan[str(node), int(group or 0)] = int(tasks)
    except (ValueError, AttributeError, TypeError):
        return {}
    return plan

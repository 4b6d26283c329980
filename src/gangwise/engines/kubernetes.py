"""Kubernetes: pods with ``schedulerName: gangwise`` are held until a whole gang is bound.

A Binding checks nothing: the API server takes a full node, and one that is not there. So a
placement is checked here against all pods that the watch has told of, and only then sent. What is
decided is written with the Binding itself, as annotations of the pod (job, attempt, placement);
whoever comes after a crash finds it there.

A binding cannot be undone. To take a gang off its nodes, its pods are deleted; a pod that no
controller would make again gets a successor first (``NAME-rN``, which names the pod it replaces),
so that there is no moment at which a job is lost. Half-made successors are completed by whoever
sees them.
"""

from __future__ import annotations

import copy
import json
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangwise.core.errors import EngineError, Rejected
from gangwise.engines.engine import (
    ENDED,
    Capabilities,
    EngineEvent,
    EngineJob,
    EngineNode,
    EventKind,
    Phase,
    Placed,
    RankReport,
    Status,
    check_placement,
)
from gangwise.engines.kubernetes_objects import (
    MATCHES,
    OURS,
    WITHOUT,
    Membership,
    Names,
    Taint,
    affinity,
    common,
    controller,
    declared_size,
    demand,
    digest,
    fits_affinity,
    job_type,
    natural,
    note,
    per_node,
    said,
    seconds,
    thousandths,
)
from gangwise.engines.reports import read_report

KEPT = 3600.0
"""Seconds that jobs stay in the table after their end."""
_PATIENCE = (3.0, 10.0)
"""Seconds to connect, and to wait for an answer."""
_QUIET = 2.0
"""Seconds without a word after which the API server is asked whether it is there."""


@dataclass
class _Pod:
    """A pod, as last told."""

    uid: str
    namespace: str
    name: str
    manifest: dict[str, Any]
    node: str
    phase: str
    leaving: bool

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> _Pod:
        meta = manifest["metadata"]
        return cls(
            meta["uid"],
            meta["namespace"],
            meta["name"],
            manifest,
            manifest["spec"].get("nodeName") or "",
            (manifest.get("status") or {}).get("phase") or "Pending",
            bool(meta.get("deletionTimestamp")),
        )

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def bounced(self) -> bool:
        """The node would not have it: it never ran."""
        reason = (self.manifest.get("status") or {}).get("reason") or ""
        return self.phase == "Failed" and (
            reason.startswith("OutOf")
            or reason in ("NodeAffinity", "NodeLost", "UnexpectedAdmissionError")
        )

    def times(self, which: str) -> list[float]:
        """``startedAt`` or ``finishedAt`` of its containers."""
        found = []
        for each in (self.manifest.get("status") or {}).get("containerStatuses") or ():
            state = each.get("state") or {}
            told = (state.get("terminated") or state.get("running") or {}).get(which)
            if told:
                found.append(seconds(told))
        return found


@dataclass
class _Gang:
    """Pods that are one job."""

    id: str
    belongs: Membership
    pods: dict[str, _Pod] = field(default_factory=dict)
    size: int | None = None
    attempt: int = 0
    plan: dict[str, int] = field(default_factory=dict)
    going: dict[str, str] = field(default_factory=dict)
    """Pods whose Binding is under way: uid → node."""
    cancelled: bool = False
    why_off: str | None = None
    """Why it is being taken off its nodes; None when it is not."""
    held: str = ""
    status: Status | None = None
    reports: dict[str, RankReport] = field(default_factory=dict)
    over: float = math.inf
    """By the monotonic clock."""

    @property
    def live(self) -> list[_Pod]:
        return [p for p in self.pods.values() if not p.ended]

    def where(self, pod: _Pod) -> str:
        return pod.node or self.going.get(pod.uid, "")


class Kubernetes:
    """An engine over the API server.

    Parameters
    ----------
    kubeconfig : path, optional
        By default what ``kubectl`` uses, or the service account within a pod.
    context : str, optional
        Of the kubeconfig.
    scheduler : str
        Pods that name it as their ``schedulerName`` are ours.
    recreate : bool
        Make successors of pods that no controller would make again (the right to create pods).
        Without it such pods cannot be preempted, and a gang of them that was bound in part and has
        to be rolled back is lost: it ends as failed.
    lost_after : float
        Seconds that a node must have been silent before gangs are taken off it.
    reports : path, optional
        Folder that pods write their rank reports to, shared with them.
    names : Names
        What resources are called here.
    threads : int
        Bindings sent at once.

    Raises
    ------
    EngineError
        When there is no kubeconfig, or the API server does not answer.
    """

    name = "kubernetes"

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        *,
        context: str | None = None,
        scheduler: str = "gangwise",
        recreate: bool = True,
        lost_after: float = 30.0,
        reports: str | Path | None = None,
        names: Names = Names(),
        threads: int = 16,
    ):
        self.scheduler, self.recreate, self.lost_after = scheduler, recreate, lost_after
        self.reports, self.names = None if reports is None else Path(reports), names
        self.capabilities = Capabilities(
            gang_native=False,
            moldable=True,
            preempt=True,
            device_ids=False,
            held_queue=True,
            start_latency=1.0,
        )
        settings = client.Configuration()
        try:
            if kubeconfig is None and not Path(config.KUBE_CONFIG_DEFAULT_LOCATION).exists():
                config.load_incluster_config(client_configuration=settings)
            else:
                where = None if kubeconfig is None else str(kubeconfig)
                config.load_kube_config(where, context, client_configuration=settings)
        except config.ConfigException as error:
            raise EngineError(f"no kubeconfig that works ({error}); give --kubeconfig") from error
        settings.retries = False
        settings.connection_pool_maxsize = threads + 8
        self.server = settings.host
        self._api = client.ApiClient(settings)
        self._core = client.CoreV1Api(self._api)
        self._batch = client.BatchV1Api(self._api)
        self._custom = client.CustomObjectsApi(self._api)
        self._pool = ThreadPoolExecutor(threads, "gangwise-bind")

        self._lock = threading.RLock()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._up: dict[str, str] = {}
        """Node → why it is not up; empty where it is."""
        self._silent: dict[str, float] = {}
        """Nodes whose kubelet does not report, since when by the monotonic clock."""
        self._terms: dict[str, list[Any]] = {}
        self._gang_of: dict[str, str] = {}
        self._gangs: dict[str, _Gang] = {}
        self._open: dict[Membership, str] = {}
        self._foreign: dict[str, Status] = {}
        self._events: queue.SimpleQueue[EngineEvent] = queue.SimpleQueue()
        self._read: dict[str, int] = {}
        self._heard = time.monotonic()
        self._closing = threading.Event()
        self._turn = threading.Event()
        """Set for a round of chores at once."""

        ready = {"nodes": threading.Event(), "pods": threading.Event()}
        follow = {
            "nodes": (self._core.list_node, self._all_nodes, self._one_node),
            "pods": (self._core.list_pod_for_all_namespaces, self._all_pods, self._one_pod),
        }
        self._trouble = ""
        self._threads = [
            threading.Thread(
                target=self._follow, args=(*follow[what], ready[what]), name=what, daemon=True
            )
            for what in follow
        ]
        self._threads.append(threading.Thread(target=self._chores, name="chores", daemon=True))
        for thread in self._threads[:2]:
            thread.start()
        end = time.monotonic() + sum(_PATIENCE)
        for what in ready:
            if not ready[what].wait(max(end - time.monotonic(), 0.0)):
                self.close()
                raise EngineError(
                    f"{self.server} does not list {what}: {self._trouble or 'silence'}"
                )
        self._look_up_sizes()
        self._threads[2].start()

    # -------------------------------------------------------------------------------- the boundary

    def nodes(self) -> list[EngineNode]:
        """All nodes; what keeps pods off some of them is a label that the others have."""
        self._check()
        with self._lock:
            taints = self._taints()
            return [
                EngineNode(
                    name,
                    {
                        self.names(kind): thousandths(kind, text, up=False)
                        for kind, text in (node["status"].get("allocatable") or {}).items()
                    },
                    self._labels(name, node, taints),
                    not self._up[name],
                    self._up[name],
                )
                for name, node in sorted(self._nodes.items())
            ]

    def jobs(self) -> list[Status]:
        """Gangs of ours, and as foreign every other pod on a node."""
        self._check()
        with self._lock:
            ours = [g.status for g in self._gangs.values() if g.status is not None]
            return ours + list(self._foreign.values())

    def held(self) -> dict[str, str]:
        """Gangs that cannot be placed yet, such as those whose pods are not all there, and why."""
        with self._lock:
            return {gang.id: gang.held for gang in self._gangs.values() if gang.held}

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        """Bind every pod of a gang; none stays bound where one cannot be."""
        self._check()
        plan: dict[str, int] = {}
        for node, tasks, _ in placed:
            plan[node] = plan.get(node, 0) + tasks
        with self._lock:
            gang = self._gangs.get(job)
            if gang is None or gang.status is None:
                raise Rejected(f"job {job} is not there")
            if gang.why_off is not None:
                raise Rejected(f"job {job} is being taken off its nodes: {gang.why_off}")
            again = gang.status.phase in ("placed", "running") and gang.attempt == attempt
            if not (again and gang.plan == plan):
                check_placement(gang.status, placed, self.nodes(), self.jobs())
                if gang.held:
                    raise Rejected(f"job {job} is held: {gang.held}")
            chosen = self._assign(gang, plan)
            gang.attempt, gang.plan = attempt, plan
            gang.going.update((pod.uid, node) for pod, node in chosen)
            self._regard(gang)
            marks = {
                f"{OURS}job": gang.id,
                f"{OURS}attempt": str(attempt),
                f"{OURS}placement": json.dumps(plan),
            }
        answers = list(self._pool.map(lambda pair: self._bind(*pair, marks), chosen))
        failed = [(pod, why) for (pod, _), why in zip(chosen, answers, strict=True) if why]
        with self._lock:
            for (pod, node), why in zip(chosen, answers, strict=True):
                gang.going.pop(pod.uid, None)
                if not why and not pod.node:
                    pod.node = node  # the watch will say so too
            if not failed:
                self._regard(gang)
                return
            pod, why = failed[0]
            gang.why_off = f"pod {pod.name} could not be bound: {why.removeprefix('?')}"
            if len(failed) == len(chosen) == sum(plan.values()) and not why.startswith("?"):
                gang.why_off = None  # nothing was bound
                gang.plan = {}
            self._regard(gang)
        self._turn.set()
        message = f"job {job}: pod {pod.name} could not be bound to {dict(chosen_names(chosen))[pod.name]}: "
        raise (EngineError if why.startswith("?") else Rejected)(message + why.removeprefix("?"))

    def preempt(self, job: str) -> None:
        """Delete the pods of a gang, after making successors of those that nobody else would."""
        with self._lock:
            gang = self._gangs.get(job)
            if (
                gang is None
                or gang.status is None
                or gang.status.phase not in ("placed", "running")
            ):
                return
            for pod in gang.live:
                owner = controller(pod.manifest)
                if owner is None and not self.recreate:
                    raise EngineError(
                        f"job {job} cannot be preempted: nobody would make pod {pod.name} again, "
                        "and recreate is off"
                    )
            gang.why_off = gang.why_off or "preempted"
        self._take_off(gang)
        self._turn.set()

    def cancel(self, job: str) -> None:
        """Delete its pods, and the batch Job that would make them again."""
        with self._lock:
            gang = self._gangs.get(job)
            if gang is None or gang.status is None or gang.status.phase in ENDED:
                return
            pods = list(gang.live)
            owners = {(o["kind"], o["name"]) for p in pods if (o := controller(p.manifest))}
            strange = sorted(f"{kind} {name}" for kind, name in owners if kind != "Job")
            if strange:
                raise EngineError(f"job {job} belongs to {strange[0]}, which would make it again")
            gang.cancelled, gang.why_off = True, None
            namespace = gang.belongs.namespace
        for _, name in sorted(owners):
            self._call(
                self._batch.delete_namespaced_job,
                name,
                namespace,
                propagation_policy="Background",
                missing_is_fine=True,
            )
        self._delete(pods)
        with self._lock:
            self._regard(gang)

    def events(self, timeout: float) -> list[EngineEvent]:
        """From the watch, as they come."""
        self._check()
        found: list[EngineEvent] = []
        try:
            found.append(
                self._events.get(timeout=timeout) if timeout > 0 else self._events.get_nowait()
            )
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            return found

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        self._turn.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # ---------------------------------------------------------------------------- talking to the API

    def _call(
        self, call: Callable[..., Any], *args: Any, missing_is_fine: bool = False, **kw: Any
    ) -> Any:
        """The JSON of an answer; None for 404 where that is fine.

        The client's own decoding is not used: it fails on the Status that answers a Binding.
        """
        try:
            answer = call(*args, **kw, _preload_content=False, _request_timeout=_PATIENCE)
            self._heard = time.monotonic()
            return json.loads(answer.data)
        except ApiException as error:
            self._heard = time.monotonic()
            if error.status == 404 and missing_is_fine:
                return None
            raise
        except (HTTPError, OSError, ValueError) as error:
            raise EngineError(f"{self.server} does not answer: {_short(error)}") from error

    def _check(self) -> None:
        """Ask the API server for a sign of life where it has been quiet."""
        if self._closing.is_set():
            raise EngineError("the engine is closed")
        if time.monotonic() - self._heard <= _QUIET:
            return
        try:
            self._call(self._core.list_node, limit=1)
        except ApiException as error:
            raise EngineError(f"{self.server} refuses: {_said_by(error)}") from error

    def _follow(
        self,
        listing: Callable[..., Any],
        everything: Callable[[list[Any]], None],
        one: Callable[[str, Any], None],
        ready: threading.Event,
    ) -> None:
        """List, then watch from there; list again when the version has expired (410)."""
        version = ""
        while not self._closing.is_set():
            try:
                if not version:
                    found, version = self._listed(listing)
                    everything(found)
                    ready.set()
                stream = listing(
                    watch=True,
                    resource_version=version,
                    timeout_seconds=60,
                    allow_watch_bookmarks=True,
                    _preload_content=False,
                    _request_timeout=(_PATIENCE[0], 75.0),
                )
                with stream:
                    for line in stream:
                        if self._closing.is_set():
                            return
                        self._heard = time.monotonic()
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            version = ""
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            one(event["type"], event["object"])
            except ApiException as error:
                version = ""
                self._trouble = _said_by(error)
                self._closing.wait(1.0 if error.status != 410 else 0.0)
            except (HTTPError, OSError, ValueError, KeyError, EngineError) as error:
                version = ""  # a cut within a line may have lost it
                self._trouble = _short(error)
                self._closing.wait(0.5)

    def _listed(self, listing: Callable[..., Any]) -> tuple[list[Any], str]:
        items: list[Any] = []
        page = ""
        while True:
            more = {"_continue": page} if page else {}
            answer = self._call(listing, limit=1000, **more)
            items += answer["items"]
            page = answer["metadata"].get("continue") or ""
            if not page:
                return items, answer["metadata"]["resourceVersion"]

    def _bind(self, pod: _Pod, node: str, marks: dict[str, str]) -> str:
        """Bind a pod; says why not, after a ? where it may have been bound all the same."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": marks},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        why = ""
        for pause in (0.0, 0.2, 1.0):
            self._closing.wait(pause)
            try:
                self._call(self._core.create_namespaced_pod_binding, pod.name, pod.namespace, body)
                return ""
            except ApiException as error:
                why = _said_by(error)
                if error.status == 404:
                    return "it is gone"
                if error.status < 500 and error.status not in (409, 429):
                    return why
                lost = False
            except EngineError as error:
                why, lost = str(error), True
            try:
                now = self._call(
                    self._core.read_namespaced_pod, pod.name, pod.namespace, missing_is_fine=True
                )
            except (ApiException, EngineError):
                continue
            if now is None or now["metadata"]["uid"] != pod.uid:
                return "it is gone"
            where = now["spec"].get("nodeName")
            if where == node:
                return ""
            if where:
                return f"it is on {where} already"
            if not lost and now["metadata"].get("deletionTimestamp"):
                return "it is being deleted"
        return f"?{why}"

    def _delete(self, pods: Iterable[_Pod], force: bool = False) -> None:
        def one(pod: _Pod) -> None:
            body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
            if force or self._silent_long(pod.node):
                body["gracePeriodSeconds"] = 0
            try:
                self._call(
                    self._core.delete_namespaced_pod,
                    pod.name,
                    pod.namespace,
                    body=body,
                    missing_is_fine=True,
                )
            except ApiException as error:
                if error.status != 409:  # 409: another pod of this name
                    raise EngineError(f"pod {pod.name} not deleted: {_said_by(error)}") from error

        list(self._pool.map(one, pods))

    def _silent_long(self, node: str) -> bool:
        since = self._silent.get(node)
        return since is not None and time.monotonic() - since >= self.lost_after

    # --------------------------------------------------------------------------------------- nodes

    def _all_nodes(self, found: list[Any]) -> None:
        with self._lock:
            gone = self._nodes.keys() - {node["metadata"]["name"] for node in found}
            for node in found:
                self._one_node("ADDED", node)
            for name in gone:
                self._one_node("DELETED", self._nodes[name])

    def _one_node(self, kind: str, node: Any) -> None:
        name = node["metadata"]["name"]
        with self._lock:
            before = self._up.get(name)
            taints = self._taints()
            if kind == "DELETED":
                self._nodes.pop(name, None)
                self._up.pop(name, None)
                self._silent.setdefault(name, time.monotonic() - self.lost_after)
                why: str | None = "removed"
            else:
                self._nodes[name] = node
                ready = next(
                    (c for c in node["status"].get("conditions") or () if c["type"] == "Ready"), {}
                )
                why = ""
                if ready.get("status") != "True":
                    why = f"not ready ({ready.get('reason') or ready.get('status') or 'never was'})"
                    self._silent.setdefault(name, time.monotonic())
                else:
                    self._silent.pop(name, None)
                    if node["spec"].get("unschedulable"):
                        why = "cordoned"
                self._up[name] = why
            if self._taints() != taints:
                for gang in self._gangs.values():
                    if gang.status is None or gang.status.phase == "pending":
                        self._regard(gang)
            if why and not before and before is not None:
                self._events.put(EngineEvent("node_down", time.time(), node=name, detail=why))
            elif not why and before:
                self._events.put(EngineEvent("node_up", time.time(), node=name))
            elif not why and before is None and self._threads_started():
                self._events.put(EngineEvent("node_up", time.time(), node=name, detail="added"))
        self._turn.set()

    def _threads_started(self) -> bool:
        return len(self._threads) > 2 and self._threads[2].is_alive()

    def _taints(self) -> dict[str, tuple[Taint, ...]]:
        return {name: Taint.of(node) for name, node in self._nodes.items()}

    def _labels(self, name: str, node: Any, taints: dict[str, tuple[Taint, ...]]) -> dict[str, str]:
        labels = dict(node["metadata"].get("labels") or {})
        every = {taint for found in taints.values() for taint in found}
        labels.update((f"{WITHOUT}{t}", "true") for t in every if t not in taints[name])
        for short, terms in self._terms.items():
            if fits_affinity(terms, name, node["metadata"].get("labels") or {}):
                labels[f"{MATCHES}{short}"] = "true"
        return labels

    # ---------------------------------------------------------------------------------- pods, gangs

    def _all_pods(self, found: list[Any]) -> None:
        def bound_first(pod: Any) -> tuple[Any, ...]:
            meta = pod["metadata"]
            unbound = not pod["spec"].get("nodeName")
            return unbound, meta.get("creationTimestamp") or "", natural(meta["name"])

        with self._lock:
            present = {pod["metadata"]["uid"] for pod in found}
            for gang in list(self._gangs.values()):
                for pod in list(gang.pods.values()):
                    if pod.uid not in present:
                        self._one_pod("DELETED", pod.manifest)
            for uid in self._foreign.keys() - present:
                del self._foreign[uid]
            for manifest in sorted(found, key=bound_first):
                self._one_pod("ADDED", manifest, whole=True)
            for gang in self._gangs.values():
                self._regard(gang)

    def _one_pod(self, kind: str, manifest: Any, whole: bool = False) -> None:
        """Take in what became of a pod; ``whole`` where more are to come before anyone looks."""
        pod = _Pod.of(manifest)
        with self._lock:
            if manifest["spec"].get("schedulerName") != self.scheduler:
                self._other(kind, pod)
                return
            gang = self._gangs.get(self._gang_of.get(pod.uid, ""))
            if kind == "DELETED":
                if gang is not None:
                    self._gang_of.pop(pod.uid, None)
                    last = gang.pods.pop(pod.uid, None)
                    if gang.status is not None and gang.status.phase in ENDED and last is not None:
                        gang.pods[pod.uid] = last  # it ended before: its story stays
                        last.phase = last.phase if last.ended else "Failed"
                    self._regard(gang)
                    self._turn.set()
                return
            if gang is None:
                gang = self._gang_for(pod)
                if gang is None:
                    return
            known = gang.pods.get(pod.uid)
            if known is not None and known.node and not pod.node:
                return  # older than our own Binding
            gang.pods[pod.uid] = pod
            self._gang_of[pod.uid] = gang.id
            notes = pod.manifest["metadata"].get("annotations") or {}
            if pod.node and f"{OURS}attempt" in notes and gang.why_off is None:
                gang.attempt = max(gang.attempt, _number(notes[f"{OURS}attempt"]))
                if not gang.plan:
                    gang.plan = _plan(notes.get(f"{OURS}placement"))
            elif f"{OURS}attempt" in notes:
                gang.attempt = max(gang.attempt, _number(notes[f"{OURS}attempt"]))
            if not whole:
                self._regard(gang)
        self._turn.set()

    def _other(self, kind: str, pod: _Pod) -> None:
        """Another scheduler's: what it holds is taken."""
        if kind == "DELETED" or pod.ended or not pod.node:
            self._foreign.pop(pod.uid, None)
        elif pod.uid not in self._foreign:
            try:
                needs = demand(pod.manifest, self.names)
            except (EngineError, KeyError):
                needs = {}
            job = EngineJob(
                f"{pod.namespace}/{pod.name}~{pod.uid[:8]}",
                job_type(pod.manifest),
                pod.namespace,
                seconds(pod.manifest["metadata"].get("creationTimestamp")),
                1,
                needs,
            )
            self._foreign[pod.uid] = Status(
                job, "running", placed=(Placed(pod.node, 1),), foreign=True
            )

    def _gang_for(self, pod: _Pod) -> _Gang | None:
        """The gang that a pod not seen before belongs to.

        A pod that comes when its group is on nodes already is a job of its own.
        """
        belongs = Membership.of(pod.manifest)
        written = said(pod.manifest, "job")
        if pod.ended:
            ends = pod.times("finishedAt")
            if ends and time.time() - max(ends) > KEPT:
                return None
        if written:
            gang = self._gangs.get(written)
            if gang is None:
                gang = self._gangs[written] = _Gang(written, belongs)
            self._open.setdefault(belongs, written)
            return gang
        gang = self._gangs.get(self._open.get(belongs, ""))
        if gang is not None and not gang.cancelled:
            over = gang.status is not None and gang.status.phase in ENDED
            if not over and (gang.why_off or not any(gang.where(p) for p in gang.pods.values())):
                return gang
            if not over:
                belongs = Membership(pod.namespace, "pod", pod.uid)
        name = pod.name if belongs.kind == "pod" else belongs.name
        gang = _Gang(f"{pod.namespace}/{name}~{pod.uid[:8]}", belongs)
        self._gangs[gang.id] = gang
        self._open[belongs] = gang.id
        return gang

    def _regard(self, gang: _Gang) -> None:
        """Tell what has become of a gang."""
        before = gang.status
        now = self._now(gang)
        if now is None:
            return
        gang.status = now
        old: Phase | None = None if before is None else before.phase
        if now.phase == old:
            return
        told: list[EventKind] = []
        on_nodes = old in ("placed", "running")
        if now.phase == "pending":
            told.append("preempted" if on_nodes else "submitted")
            if on_nodes:
                gang.reports.clear()
        elif old is None and now.phase == "placed":
            told.append("submitted")
        if now.phase in ("running", "finished", "failed", "killed") and old != "running":
            told.append("started")
        if now.phase in ENDED:
            self._read_reports([gang])
            told.append(now.phase)  # type: ignore[arg-type]
            gang.over = time.monotonic()
            gang.held = ""
        for kind in told:
            at = {"submitted": now.job.submitted, "started": now.started}.get(kind, now.ended)
            self._events.put(
                EngineEvent(
                    kind,
                    at if math.isfinite(at) else time.time(),
                    gang.id,
                    0
                    if kind == "submitted"
                    else (before or now).attempt
                    if kind == "preempted"
                    else now.attempt,
                    ranks=tuple(gang.reports.values()) if kind in ENDED else (),
                    detail=now.detail,
                )
            )

    def _now(self, gang: _Gang) -> Status | None:
        """Its row in the table of jobs; None before it is one."""
        before = gang.status
        if before is not None and before.phase in ENDED:
            return before
        originals = {said(p.manifest, "replaces") for p in gang.pods.values()} & gang.pods.keys()
        if originals and gang.why_off is None:
            gang.why_off = "half taken off by an earlier run"
        bound = [p for p in gang.pods.values() if gang.where(p)]
        waiting = [
            p for p in gang.pods.values() if not gang.where(p) and not p.leaving and not p.ended
        ]
        if not gang.pods:
            if before is None:
                return None
            if gang.why_off is not None and not gang.cancelled and self._comes_back(gang):
                return self._pending(gang, before, [])
            phase: Phase = "cancelled"
            if gang.why_off is not None and not gang.cancelled:
                phase = "failed"
            return replace(
                before,
                phase=phase,
                attempt=gang.attempt,
                ended=time.time(),
                detail=gang.why_off or "",
            )
        if not bound:
            if gang.cancelled:
                return before
            gang.plan = {} if not gang.going else gang.plan
            if (
                gang.why_off is not None
                and before is not None
                and before.phase in ("placed", "running")
            ):
                before = replace(before, detail=gang.why_off)
            gang.why_off = None
            return self._pending(gang, before, waiting)
        if gang.why_off is None and any(p.bounced for p in bound):
            first = next(p for p in bound if p.bounced)
            gang.why_off = f"node {first.node} would not run {first.name}: {first.manifest['status']['reason']}"
            self._turn.set()
        counts: dict[str, int] = {}
        for pod in bound:
            counts[gang.where(pod)] = counts.get(gang.where(pod), 0) + 1
        placed = tuple(Placed(n, c) for n, c in sorted((gang.plan or counts).items()))
        job = before.job if before is not None and before.phase != "pending" else None
        job = job or self._job(gang, bound)
        begun = [t for p in bound for t in p.times("startedAt")]
        started = max(begun, default=math.nan)
        ours = any(
            f"{OURS}attempt" in (p.manifest["metadata"].get("annotations") or {}) for p in bound
        )
        row = Status(
            job, "placed", gang.attempt, placed, started, foreign=not ours and not gang.attempt
        )
        over = all(p.ended for p in bound) and sum(counts.values()) >= sum(gang.plan.values())
        if gang.why_off is not None or gang.cancelled or not over:
            going = all(p.phase in ("Running", "Succeeded", "Failed") for p in bound)
            whole = sum(counts.values()) >= sum(gang.plan.values())
            was = before is not None and before.phase == "running"
            return replace(row, phase="running" if was or (going and whole) else "placed")
        ends = [t for p in bound for t in p.times("finishedAt")]
        failed = [p for p in bound if p.phase == "Failed"]
        phase, detail = "finished", ""
        if failed:
            status = failed[0].manifest["status"]
            phase = "killed" if status.get("reason") == "DeadlineExceeded" else "failed"
            codes = _exit_codes(failed[0])
            detail = f"pod {failed[0].name}: {status.get('reason') or f'exit {codes}'}"
        ended = max(ends, default=time.time())
        return replace(row, phase=phase, ended=ended, detail=detail)

    def _comes_back(self, gang: _Gang) -> bool:
        """Whether pods that are all gone will be made again."""
        return gang.belongs.kind == "job" or gang.held.startswith("being made again")

    def _pending(self, gang: _Gang, before: Status | None, pods: list[_Pod]) -> Status | None:
        gang.held = ""
        try:
            if not pods:
                raise EngineError("being made again by their controller: no pod is there yet")
            size = gang.size
            if gang.belongs.kind == "pod":
                size = 1
            elif size is None:
                size = gang.size = declared_size(pods[0].manifest)
            if size is None:
                raise EngineError(
                    f"how many pods {gang.belongs.kind} {gang.belongs.name} has is not known: "
                    f"it needs a PodGroup, or the annotation {OURS}tasks"
                )
            job = self._job(gang, pods, minimum=size)
            if len(pods) < size:
                raise EngineError(f"{len(pods)} of its {size} pods are there")
        except (EngineError, KeyError) as error:
            gang.held = str(error)
            if before is None:
                return None
            return replace(
                before,
                phase="pending",
                attempt=gang.attempt,
                placed=(),
                started=math.nan,
                detail=gang.held,
            )
        detail = (
            before.detail if before is not None and before.phase in ("placed", "running") else ""
        )
        return Status(job, "pending", gang.attempt, detail=detail)

    def _job(self, gang: _Gang, pods: list[_Pod], minimum: int = 0) -> EngineJob:
        """What the user submitted; a gang of unlike pods asks for the most of each for all."""
        manifests = [pod.manifest for pod in pods]
        needs: dict[str, int] = {}
        for manifest in manifests:
            for kind, amount in demand(manifest, self.names).items():
                needs[kind] = max(needs.get(kind, 0), amount)
        wanted = common(
            (dict(m["spec"].get("nodeSelector") or {}) for m in manifests), "nodeSelector"
        )
        terms = common(map(affinity, manifests), "node affinity")
        if terms:
            short = digest(terms)
            self._terms.setdefault(short, terms)
            wanted[f"{MATCHES}{short}"] = "true"
        for taint in {t for found in self._taints().values() for t in found}:
            if not all(taint.tolerated(m) for m in manifests):
                wanted[f"{WITHOUT}{taint}"] = "true"
        first = min(
            manifests, key=lambda m: (m["metadata"]["creationTimestamp"], m["metadata"]["name"])
        )
        created = seconds(first["metadata"]["creationTimestamp"])
        limit = first["spec"].get("activeDeadlineSeconds")
        return EngineJob(
            gang.id,
            job_type(first),
            said(first, "user") or gang.belongs.namespace,
            note(first, "submitted", created),
            len(pods),
            needs,
            common(map(per_node, manifests), "anti-affinity"),
            wanted,
            float(limit) if limit is not None else note(first, "limit", math.inf),
            note(first, "deadline", math.inf),
            float(first["spec"].get("priority") or 0),
            minimum if minimum < len(pods) else 0,
            note(first, "work", math.nan),
        )

    def _assign(self, gang: _Gang, plan: dict[str, int]) -> list[tuple[_Pod, str]]:
        """Pods in the order of their names to nodes in the order given, except those bound."""
        left = dict(plan)
        for pod in gang.pods.values():
            if gang.where(pod):
                left[gang.where(pod)] = left.get(gang.where(pod), 0) - 1
        seats = [node for node, count in left.items() for _ in range(count)]
        pods = [
            p for p in gang.pods.values() if not gang.where(p) and not p.leaving and not p.ended
        ]
        pods.sort(key=lambda pod: natural(pod.name))
        return list(zip(pods, seats, strict=False))

    # -------------------------------------------------------------------------------------- chores

    def _chores(self) -> None:
        """What takes calls to the API server: sizes of gangs, taking off, reports of ranks."""
        while not self._closing.is_set():
            self._turn.wait(0.25)
            self._turn.clear()
            with self._lock:
                gangs = list(self._gangs.values())
                for gang in gangs:
                    self._note_lost(gang)
                    if time.monotonic() - gang.over > KEPT:
                        self._forget(gang)
                unsized = [g for g in gangs if g.size is None and g.held]
                leaving = [g for g in gangs if g.why_off is not None and g.pods]
            try:
                self._look_up_sizes()
                for gang in leaving:
                    self._take_off(gang)
                if self.reports is not None:
                    with self._lock:
                        self._read_reports(
                            g for g in gangs if g.status and g.status.phase == "running"
                        )
                if unsized or leaving:
                    self._closing.wait(0.25)
                    self._turn.set()
            except (EngineError, ApiException) as error:
                self._trouble = str(error)
                self._closing.wait(0.5)

    def _note_lost(self, gang: _Gang) -> None:
        if (
            gang.why_off is not None
            or gang.status is None
            or gang.status.phase not in ("placed", "running")
        ):
            return
        for pod in gang.live:
            if pod.node and self._silent_long(pod.node):
                gang.why_off = f"node {pod.node} is lost"
                return

    def _forget(self, gang: _Gang) -> None:
        for uid in gang.pods:
            self._gang_of.pop(uid, None)
        self._gangs.pop(gang.id, None)
        if self._open.get(gang.belongs) == gang.id:
            del self._open[gang.belongs]

    def _look_up_sizes(self) -> None:
        """From PodGroups, or the parallelism of batch Jobs; by a list where many are asked for."""
        with self._lock:
            unsized = [g for g in self._gangs.values() if g.size is None and g.held]
            unsized = [g for g in unsized if g.belongs.kind != "pod"]
        by_api: dict[str, list[_Gang]] = {}
        for gang in unsized:
            by_api.setdefault(gang.belongs.api, []).append(gang)
        for api, gangs in by_api.items():
            found: list[Any]
            if len(gangs) <= 8:
                found = list(self._pool.map(self._read_size, (g.belongs for g in gangs)))
            elif api:
                items = self._items(
                    self._custom.list_cluster_custom_object, *api.split("/"), "podgroups"
                )
                sizes = {_at(item): (item.get("spec") or {}).get("minMember", 1) for item in items}
                found = [sizes.get((g.belongs.namespace, g.belongs.name)) for g in gangs]
            else:
                items = self._items(self._batch.list_job_for_all_namespaces)
                sizes = {_at(item): _parallelism(item) for item in items}
                found = [sizes.get((g.belongs.namespace, g.belongs.name)) for g in gangs]
            with self._lock:
                for gang, size in zip(gangs, found, strict=True):
                    if size is not None:
                        gang.size = max(int(size), 1)
                        self._regard(gang)

    def _read_size(self, of: Membership) -> int | None:
        where = of.name, of.namespace
        if of.kind == "job":
            job = self._call(self._batch.read_namespaced_job, *where, missing_is_fine=True)
            return None if job is None else _parallelism(job)
        group = self._call(
            self._custom.get_namespaced_custom_object,
            *of.api.split("/"),
            of.namespace,
            "podgroups",
            of.name,
            missing_is_fine=True,
        )
        return None if group is None else (group.get("spec") or {}).get("minMember", 1)

    def _items(self, listing: Callable[..., Any], *args: Any) -> list[Any]:
        """None where the kind is not known to this cluster."""
        found = self._call(listing, *args, missing_is_fine=True)
        return [] if found is None else list(found["items"])

    def _take_off(self, gang: _Gang) -> None:
        """Make successors, delete the pods; what was begun before is completed."""
        with self._lock:
            pods = [p for p in gang.pods.values() if p.node or p.bounced]
            replaced = {said(p.manifest, "replaces") for p in gang.pods.values()}
            bare = [p for p in pods if controller(p.manifest) is None and p.uid not in replaced]
            bodies = [_successor(p, gang) for p in bare] if self.recreate else []
        for pod, body in zip(bare, bodies, strict=False):
            try:
                self._call(self._core.create_namespaced_pod, pod.namespace, body)
            except ApiException as error:
                if error.status != 409:
                    raise EngineError(
                        f"pod {pod.name} gets no successor and stays: {_said_by(error)}"
                    ) from error
        if any(p for p in pods if not p.leaving or self._silent_long(p.node)):
            self._delete(p for p in pods if not p.leaving or self._silent_long(p.node))

    def _read_reports(self, gangs: Iterable[_Gang]) -> None:
        """Files ``UID.RUN.RANK.json`` of the shared folder that are new."""
        if self.reports is None:
            return
        for gang in gangs:
            fresh = []
            for uid, pod in gang.pods.items():
                for file in self.reports.glob(f"{uid}.*.json"):
                    try:
                        written = file.stat().st_mtime_ns
                    except OSError:
                        continue
                    if self._read.get(file.name) == written:
                        continue
                    report = read_report(file)
                    if report is None:
                        continue
                    report = report._replace(node=gang.where(pod))
                    self._read[file.name] = written
                    gang.reports[uid] = report
                    fresh.append(report)
            if fresh and gang.status is not None and gang.status.phase == "running":
                self._events.put(
                    EngineEvent("measured", time.time(), gang.id, gang.attempt, ranks=tuple(fresh))
                )


def chosen_names(chosen: Iterable[tuple[_Pod, str]]) -> Iterator[tuple[str, str]]:
    """Names of pods, and the nodes chosen for them."""
    return ((pod.name, node) for pod, node in chosen)


def _successor(pod: _Pod, gang: _Gang) -> dict[str, Any]:
    """A pod that waits in the place of one that is to be deleted."""
    meta = pod.manifest["metadata"]
    spec = copy.deepcopy(pod.manifest["spec"])
    spec.pop("nodeName", None)
    notes = dict(meta.get("annotations") or {})
    notes.pop(f"{OURS}placement", None)
    base = notes.get(f"{OURS}name", pod.name)
    turn = _number(notes.get(f"{OURS}turn", "0")) + 1
    assert gang.status is not None
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
            "name": f"{base[:240]}-r{turn}",
            "labels": meta.get("labels") or {},
            "annotations": notes,
            "ownerReferences": meta.get("ownerReferences") or [],
        },
        "spec": spec,
    }


def _at(item: Any) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _parallelism(job: Any) -> int:
    """How many pods of a batch Job run at once."""
    spec = job.get("spec") or {}
    most = spec.get("parallelism", 1)
    return int(min(most, spec.get("completions") or most))


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else 0


def _plan(text: str | None) -> dict[str, int]:
    try:
        return {str(node): int(tasks) for node, tasks in json.loads(text or "{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _exit_codes(pod: _Pod) -> list[int]:
    states = (
        each.get("state") or {} for each in pod.manifest["status"].get("containerStatuses") or ()
    )
    return [s["terminated"].get("exitCode", 0) for s in states if "terminated" in s]


def _said_by(error: ApiException) -> str:
    """The API server's own words."""
    try:
        return f"{error.status} {json.loads(error.body)['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]

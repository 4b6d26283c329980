"""Kubernetes: pods with ``schedulerName: gangwise`` are held until a whole gang is bound.

A Binding checks nothing: the API server takes a full node, and one that is not there. So a
placement is checked here against all pods that the watch has shown, and only then sent. What is
decided is written with the Binding itself, as annotations of the pod (job, attempt, placement);
whoever comes after a crash finds it there.

A binding cannot be undone. To take a gang off its nodes, its pods are deleted; a pod that no
controller would make again gets a successor first (``NAME-rN``, which names the pod it replaces),
so that there is no moment at which a job is lost. Half-made successors are completed by whoever
sees them.
"""

from __future__ import annotations

import json
import math
import os
import queue
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangwise.core.errors import EngineError, Rejected
from gangwise.engines.engine import (
    ENDED,
    Capabilities,
    EngineEvent,
    EngineNode,
    Leader,
    Lease,
    Placed,
    Status,
    check_placement,
    tasks_by_node,
)
from gangwise.engines.intake import name, whole
from gangwise.engines.kubernetes_gangs import (
    KEPT,
    ON_NODES,
    ClusterCache,
    Gang,
    WatchedPod,
    successor,
)
from gangwise.engines.kubernetes_objects import OURS, Membership, controller, natural, own_value


@dataclass(eq=False, repr=False)
class KubernetesEngine:
    """An engine over the API server.

    Raises EngineError when there is no kubeconfig, or the API server does not answer.
    """

    name = "kubernetes"

    kubeconfig: str | Path | None = None
    """By default what ``kubectl`` uses, or the service account within a pod."""
    _: KW_ONLY
    context: str | None = None  # of the kubeconfig
    scheduler: str = "gangwise"  # pods that name it as their ``schedulerName`` are ours
    recreate: bool = True
    """Make successors of pods that no controller would make again (the right to create pods).
    Without it such pods cannot be preempted, and a gang of them that was bound in part and has
    to be rolled back is lost: it ends as failed."""
    lost_after: float = 30.0  # seconds that a node is silent before gangs are taken off it
    reports: str | Path | None = None  # folder, shared with pods, for their rank reports
    threads: int = 16  # calls made at once
    lease: str = ""
    """``NAMESPACE/NAME`` of a Lease that has to be held before anything is done."""
    watch: bool = False
    """Follow the pods of every scheduler and touch none; those of DaemonSets and of the
    ``kube-system`` namespace only take devices."""

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(start_latency=1.0, at_once=self.threads)
        folder = None if self.reports is None else Path(self.reports)
        table = ClusterCache(self.scheduler, self.lost_after, folder, self.watch)
        self._table, self.quarantine = table, table.quarantine
        self._api = api = Connection(self.kubeconfig, self.context, self.threads)
        if self.lease and not self.watch:
            identity = f"gangwise-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            api.lease = KubernetesLeader(api, self.lease, identity)
        listed = threading.Event(), threading.Event()
        pods = api.core.list_pod_for_all_namespaces
        watches = [
            (api.core.list_node, table.all_nodes, table.one_node, listed[0]),
            (pods, table.all_pods, table.one_pod, listed[1]),
        ]
        for each in watches:
            threading.Thread(target=api.follow, args=each, daemon=True).start()
        begun = time.monotonic()
        for what, event in zip(("nodes", "pods"), listed, strict=True):
            while not event.wait(0.25):  # as long as pages of a long list come
                if time.monotonic() < (begun if api.trouble else api.heard) + sum(PATIENCE):
                    continue
                self.close()
                why = api.trouble or "it is silent"
                raise EngineError(f"{api.server} does not list {what}: {why}")
        table.opened = True
        try:
            with refusals(f"{api.server} refuses"):
                self._look_up_sizes()
        except EngineError:
            self.close()
            raise
        threading.Thread(target=self._chores, daemon=True).start()

    # The boundary

    def nodes(self) -> list[EngineNode]:
        """All nodes; a taint appears as a label that all other nodes carry."""
        self._api.check()
        return list(self._table.described())

    def jobs(self) -> list[Status]:
        """Our gangs, and every other pod on a node as a foreign job."""
        self._api.check()
        with self._table.lock:
            ours = [g.status for g in self._table.gangs.values() if g.status is not None]
            return ours + list(self._table.foreign.values())

    def held(self) -> dict[str, str]:
        """Gangs that cannot be placed yet, such as those whose pods are not all there, and why."""
        with self._table.lock:
            return {gang.id: gang.held for gang in self._table.gangs.values() if gang.held}

    def place(self, job: str, attempt: int, placed: Sequence[Placed]) -> None:
        """Bind every pod of a gang; none stays bound where one cannot be."""
        self._check_may_act(job)
        table = self._table
        plan = tasks_by_node(placed)
        with table.lock:
            gang = table.gangs.get(job)
            if gang is None or gang.status is None:
                raise Rejected(f"job {job} is not there")
            if gang.phase == "pending" and gang.held:
                raise Rejected(f"job {job} is held: {gang.held}")
            if gang.removal_reason is not None:
                raise Rejected(f"job {job} is being taken off its nodes: {gang.removal_reason}")
            again = gang.phase in ON_NODES and gang.attempt == attempt
            if not (again and gang.plan == plan):
                check_placement(gang.status, placed, self.nodes(), table.holding(plan))
            chosen = self._assign(gang, plan)
            gang.attempt, gang.plan = attempt, plan
            gang.binding.update((pod.uid, node) for pod, node in chosen)
            table.update(gang)
        marks = {
            f"{OURS}job": gang.id,
            f"{OURS}attempt": str(attempt),
            f"{OURS}placement": json.dumps(plan),
        }
        bind = partial(self._api.bind, marks=marks)
        each = self._api.pool.map if len(chosen) > 1 else map
        answers = list(each(bind, [pod for pod, _ in chosen], [node for _, node in chosen]))
        with table.lock:
            for (pod, node), answer in zip(chosen, answers, strict=True):
                gang.binding.pop(pod.uid, None)
                if not answer.why and not pod.node:
                    pod.node = node  # the watch will say so too
            failed = [(*c, a) for c, a in zip(chosen, answers, strict=True) if a.why]
            if failed:
                pod, node, answer = failed[0]
                message = f"pod {pod.name} could not be bound to {node}: {answer.why}"
                if any(gang.where(p) for p in gang.pods.values()) or answer.unsure:
                    gang.removal_reason = message
                else:
                    gang.plan = {}
            table.update(gang)
        if failed:
            table.wake_up.set()
            raise (EngineError if answer.unsure else Rejected)(f"job {job}: {message}")

    def _check_may_act(self, job: str) -> None:
        """Raise unless the API server answers, we lead, and do not only watch."""
        self._api.check()
        if self.watch:
            raise Rejected(f"job {job} is only watched")

    def preempt(self, job: str) -> None:
        """Delete the pods of a gang, and first make successors of those that have no controller."""
        self._check_may_act(job)
        with self._table.lock:
            gang = self._table.gangs.get(job)
            if gang is None or gang.phase not in ON_NODES:
                return
            bare = [pod.name for pod in gang.live if controller(pod.manifest) is None]
            if bare and not self.recreate:
                raise EngineError(
                    f"job {job} cannot be preempted: nobody would make pod {bare[0]} again, "
                    "and recreate is off"
                )
            gang.removal_reason = gang.removal_reason or "preempted"
        self._take_off(gang)
        self._table.wake_up.set()

    def cancel(self, job: str) -> None:
        """Delete its pods, and the batch Job that would make them again."""
        self._check_may_act(job)
        with self._table.lock:
            gang = self._table.gangs.get(job)
            if gang is None or gang.status is None:
                raise Rejected(f"there is no job {job}")
            if gang.phase in ENDED:
                return
            pods = gang.live
            owners = {(o["kind"], o["name"]) for p in pods if (o := controller(p.manifest))}
            if gang.belongs.kind == "job":
                owners.add(("Job", gang.belongs.name))
            strange = sorted(f"{kind} {name}" for kind, name in owners if kind != "Job")
            if strange:
                raise EngineError(f"job {job} belongs to {strange[0]}, which would make it again")
            gang.cancelled, gang.removal_reason = True, None
        delete, namespace = self._api.batch.delete_namespaced_job, gang.belongs.namespace
        with refusals(f"job {job} not cancelled"):
            for _, name in sorted(owners):
                how: dict[str, Any] = {"propagation_policy": "Background"}
                self._api.call(delete, name, namespace, missing_is_fine=True, **how)
        self._api.delete(pods, self._is_lost)
        with self._table.lock:
            self._table.update(gang)

    def detach(self) -> dict[str, str]:
        """Free the Lease of a service that is gone, for a kube-scheduler that stands by."""
        if not self.lease:
            raise EngineError("give --set lease=NAMESPACE/NAME, a Lease of a kube-scheduler's")
        with self._table.lock:
            pods = [(g.id, p) for g in self._table.gangs.values() for p in g.live if not p.node]
        ours = self._table.scheduler
        waits = [job for job, p in pods if p.manifest["spec"].get("schedulerName") == ours]
        lease = KubernetesLeader(self._api, self.lease, f"gangwise-detach-{secrets.token_hex(4)}")
        until = time.monotonic() + lease.duration + sum(PATIENCE)
        before, holder = lease.read(), ""
        while not holder and time.monotonic() < until:
            if lease.held:
                lease.release()
                until = time.monotonic() + lease.duration
            time.sleep(0.25)
            now = lease.read()
            if now is None or before is None or now.mine:
                continue
            if not now.holder.startswith("gangwise-") or now.renewal != before.renewal:
                holder = now.holder
        lease.release()
        if holder.startswith("gangwise-"):
            raise EngineError(f"the service {holder} acts: stop it first")
        left = f"left to kube-scheduler ({holder})"
        return dict.fromkeys(waits, left if holder else "waits: no kube-scheduler is there")

    def events(self, timeout: float) -> list[EngineEvent]:
        self._api.check()
        waiting = self._table.events
        found: list[EngineEvent] = []
        try:
            found.append(waiting.get(timeout > 0, timeout))
            while True:
                found.append(waiting.get_nowait())
        except queue.Empty:
            return found

    def close(self) -> None:
        self._api.close()
        self._table.wake_up.set()

    # Chores

    def _chores(self) -> None:
        """Do what takes time: look up sizes of gangs, take gangs off, read reports of ranks."""
        table, closing = self._table, self._api.closing
        looked = -math.inf
        while not closing.is_set():
            table.wake_up.wait(0.25)
            table.wake_up.clear()
            with table.lock:
                gangs = list(table.gangs.values())
                for gang in gangs:
                    table.note_lost(gang)
                    if time.monotonic() - gang.ended_at > KEPT:
                        table.forget(gang)
                acts = self._api.lease is None or self._api.lease.held
                leaving = [g for g in gangs if acts and g.removal_reason is not None and g.pods]
                if time.monotonic() > looked + 0.5:
                    looked = time.monotonic()
                    table.read_reports(g for g in gangs if g.phase == "running")
            chores: list[Callable[[], None]] = [partial(self._take_off, gang) for gang in leaving]
            for chore in (self._look_up_sizes, *chores):
                try:
                    chore()
                except (Exception, CancelledError) as error:  # of one gang, perhaps; others go on
                    if closing.is_set():  # no more calls are taken
                        return
                    self._api.trouble = f"{type(error).__name__}: {error}"
                    closing.wait(0.5)
            closing.wait(0.05)  # many changes are one round of chores

    def _look_up_sizes(self) -> None:
        """Sizes of gangs, from PodGroups or batch Jobs; by one listing where many are missing."""
        api, table = self._api, self._table

        def read_size(of: Membership) -> int | None:
            what, name = f"size of {of.kind}", f"{of.namespace}/{of.name}"
            silent = (EngineError, ApiException)
            return self.quarantine.read(what, name, partial(api.read_size, of), silent)

        with table.lock:
            unsized = [g for g in table.gangs.values() if g.size is None and g.held]
            due = [g for g in unsized if g.belongs.kind != "pod" and time.monotonic() >= g.size_due]
            for gang in due:
                gang.size_due = time.monotonic() + 0.5
        by_api = defaultdict[str, list[Gang]](list)
        for gang in due:
            by_api[gang.belongs.api].append(gang)
        for kind, gangs in by_api.items():
            sizes: dict[tuple[str, str], int | None]
            where = [(g.belongs.namespace, g.belongs.name) for g in gangs]
            if len(gangs) <= 8:
                found = api.pool.map(read_size, (g.belongs for g in gangs))
                sizes = dict(zip(where, found, strict=True))
            elif kind:
                listing = api.custom.list_cluster_custom_object
                items = api.items(listing, *kind.split("/"), "podgroups")
                sizes = dict(self.quarantine.read_all("PodGroup", items, group_size, at))
            else:
                items = api.items(api.batch.list_job_for_all_namespaces)
                sizes = dict(self.quarantine.read_all("Job", items, job_size, at))
            with table.lock:
                for gang, key in zip(gangs, where, strict=True):
                    if (size := sizes.get(key)) is not None:
                        gang.size = size
                        table.update(gang)

    def _take_off(self, gang: Gang) -> None:
        """Make successors and delete the pods; complete what an earlier call began."""
        with self._table.lock:
            pods = [p for p in gang.pods.values() if p.node]
            replaced = {own_value(p.manifest, "replaces") for p in gang.pods.values()}
            bare = [p for p in pods if controller(p.manifest) is None and p.uid not in replaced]
            bodies = [(p, successor(p, gang)) for p in bare] if self.recreate else []
        for pod, body in bodies:
            with refusals(f"pod {pod.name} gets no successor and stays", 409):  # it was made before
                self._api.call(self._api.core.create_namespaced_pod, pod.namespace, body)
        self._api.delete([p for p in pods if not p.leaving or self._is_lost(p)], self._is_lost)

    def _is_lost(self, pod: WatchedPod) -> bool:
        return self._table.silent_long(pod.node)

    @staticmethod
    def _assign(gang: Gang, plan: dict[str, int]) -> list[tuple[WatchedPod, str]]:
        """Assign pods that are not bound, by name, to the nodes in the order given."""
        left = dict(plan)
        for pod in gang.pods.values():
            if gang.where(pod):
                left[gang.where(pod)] = left.get(gang.where(pod), 0) - 1
        seats = [node for node, count in left.items() for _ in range(count)]
        free = [p for p in gang.pods.values() if not gang.where(p) and not p.leaving]
        free = sorted((p for p in free if not p.ended), key=lambda pod: natural(pod.name))
        return list(zip(free, seats, strict=False))


# Talking to the API server: calls with their failures named, watches that go on, Bindings

PATIENCE = (3.0, 6.0)  # seconds to connect, and to wait for an answer
_QUIET = 2.0  # seconds without a word after which the API server is asked whether it is there
_MISTRUST = 10.0  # seconds for which a watch may fail before its picture counts as out of date


class Binding(NamedTuple):
    """Outcome of binding a pod: it is bound where no reason is given."""

    why: str = ""
    unsure: bool = False  # nobody answered for good: it may have been bound all the same


class Connection:
    """Connection to an API server; raises EngineError without a usable kubeconfig."""

    def __init__(self, kubeconfig: str | Path | None, context: str | None, threads: int):
        settings = client.Configuration()
        try:
            if kubeconfig is None and not Path(config.KUBE_CONFIG_DEFAULT_LOCATION).exists():
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the client has no types
            else:
                where = None if kubeconfig is None else str(kubeconfig)
                config.load_kube_config(where, context, client_configuration=settings)  # type: ignore[no-untyped-call]  # the client has no types
        except (config.ConfigException, OSError) as error:
            raise EngineError(f"no kubeconfig that works ({error}); give its path") from error
        settings.retries = False
        settings.connection_pool_maxsize = threads + 8
        self.server = settings.host
        api = client.ApiClient(settings)
        self.core = client.CoreV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self.coordination = client.CoordinationV1Api(api)
        self.lease: KubernetesLeader | None = None
        self.pool = ThreadPoolExecutor(threads, "gangwise-kubernetes")
        self.heard = time.monotonic()
        self.closing = threading.Event()
        self.trouble = ""
        self._streams: list[Any] = []
        self.failing: dict[Any, float] = {}  # listings that have failed, since when

    def close(self) -> None:
        """End all watches, and drop calls that have not begun."""
        self.closing.set()
        if self.lease is not None:
            self.lease.release()
        for stream in list(self._streams):
            with suppress(OSError, RuntimeError, ValueError):
                stream.shutdown()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def call(
        self, call: Callable[..., Any], *args: Any, missing_is_fine: bool = False, **kw: Any
    ) -> Any:
        """Make a call and return the JSON of its answer; None for 404 where that is fine.

        The client's own decoding is not used: it fails on the Status that answers a Binding.
        """
        try:
            answer = call(*args, **kw, _preload_content=False, _request_timeout=PATIENCE)
            self.heard = time.monotonic()
            return json.loads(answer.data)
        except ApiException as error:  # an answer, too
            self.heard = time.monotonic()
            if error.status == 404 and missing_is_fine:
                return None
            raise
        except (HTTPError, OSError, ValueError) as error:
            raise EngineError(f"{self.server} does not answer: {_short(error)}") from error

    def check(self) -> None:
        """Ask the API server for a sign of life where it has been quiet."""
        if self.closing.is_set():
            raise EngineError("the engine is closed")
        if self.lease is not None:
            self.lease.check()
        now = time.monotonic()
        if any(now - since > _MISTRUST for since in self.failing.values()):
            raise EngineError(f"{self.server} cannot be followed: {self.trouble}")
        if now - self.heard <= _QUIET:
            return
        with refusals(f"{self.server} refuses"):
            self.call(self.core.list_node, limit=1)

    @contextmanager
    def _open_while(self, stream: Any) -> Iterator[None]:
        """While a watch is read; :meth:`close` ends it from another thread."""
        self._streams.append(stream)
        try:
            with stream:
                yield
        finally:
            self._streams.remove(stream)

    def _note(self, listing: Any, trouble: str) -> None:
        self.trouble = trouble
        self.failing.setdefault(listing, time.monotonic())

    def follow(
        self,
        listing: Callable[..., Any],
        everything: Callable[[list[Any]], None],
        one: Callable[[str, Any], None],
        ready: threading.Event,
    ) -> None:
        """List, then watch from there; list again when the version has expired (410)."""
        version = ""
        while not self.closing.is_set():
            try:
                if not version:
                    found, version = self._listed(listing)
                    everything(found)
                    ready.set()
                    self.failing.pop(listing, None)
                stream = listing(
                    watch=True,
                    resource_version=version,
                    timeout_seconds=60,
                    allow_watch_bookmarks=True,
                    _preload_content=False,
                    _request_timeout=(PATIENCE[0], 75.0),
                )
                with self._open_while(stream):
                    for line in stream:
                        if self.closing.is_set():
                            return
                        self.heard = time.monotonic()
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            version = ""
                            break
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            one(event["type"], event["object"])
            except ApiException as error:
                version = ""
                self._note(listing, message_of(error))
                self.closing.wait(1.0 if error.status != 410 else 0.0)
            except Exception as error:  # whatever an object holds, the watch goes on
                version = ""  # a cut within a line may have lost it
                self._note(listing, _short(error))
                self.closing.wait(0.5)

    def _listed(self, listing: Callable[..., Any]) -> tuple[list[Any], str]:
        items: list[Any] = []
        page = ""
        while True:
            more: dict[str, Any] = {"_continue": page} if page else {}
            answer = self.call(listing, limit=1000, **more)
            items += answer["items"]
            page = answer["metadata"].get("continue") or ""
            if not page:
                return items, answer["metadata"]["resourceVersion"]

    def items(self, listing: Callable[..., Any], *args: Any) -> list[Any]:
        """Items of a listing; none where the cluster does not know their kind."""
        found = self.call(listing, *args, missing_is_fine=True)
        return [] if found is None else list(found["items"])

    def bind(self, pod: WatchedPod, node: str, marks: dict[str, str]) -> Binding:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": marks},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        where, why = (pod.name, pod.namespace), ""
        for pause in (0.0, 0.2, 1.0):
            self.closing.wait(pause)
            try:
                self.call(self.core.create_namespaced_pod_binding, *where, body)
                return Binding()
            except ApiException as error:
                why = message_of(error)
                if error.status == 404:
                    return Binding("it is gone")
                if error.status < 500 and error.status not in (409, 429):
                    return Binding(why)
                lost = False
            except EngineError as error:
                why, lost = str(error), True
            try:
                now = self.call(self.core.read_namespaced_pod, *where, missing_is_fine=True)
            except (ApiException, EngineError):
                continue
            if now is None or now["metadata"]["uid"] != pod.uid:
                return Binding("it is gone")
            bound = now["spec"].get("nodeName")
            if bound:
                return Binding("" if bound == node else f"it is on {bound} already")
            if not lost and now["metadata"].get("deletionTimestamp"):
                return Binding("it is being deleted")
        return Binding(why, unsure=True)

    def delete(self, pods: Iterable[WatchedPod], by_force: Callable[[WatchedPod], bool]) -> None:
        """Delete pods; those of lost nodes without waiting for their kubelet."""

        def one(pod: WatchedPod) -> None:
            body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
            if by_force(pod):
                body["gracePeriodSeconds"] = 0
            where, delete = (pod.name, pod.namespace), self.core.delete_namespaced_pod
            with refusals(f"pod {pod.name} not deleted", 409):  # there is another of this name
                self.call(delete, *where, body=body, missing_is_fine=True)

        list(self.pool.map(one, pods))

    def read_size(self, of: Membership) -> int | None:
        """How many pods a group or batch Job has; None where it is not there."""
        where = of.name, of.namespace
        if of.kind == "job":
            job = self.call(self.batch.read_namespaced_job, *where, missing_is_fine=True)
            return None if job is None else job_size(job)[1]
        which = (*of.api.split("/"), of.namespace, "podgroups", of.name)
        read = self.custom.get_namespaced_custom_object
        group = self.call(read, *which, missing_is_fine=True)
        return None if group is None else group_size(group)[1]


class KubernetesLeader(Leader):
    """A Lease of the cluster, ``NAMESPACE/NAME``: its holder acts, everybody else stands by.

    Held as Kubernetes' own components hold theirs, so that a kube-scheduler may stand by, too.
    ``identity`` is unique to this process.
    """

    def __init__(self, api: Connection, where: str, identity: str):
        self.namespace, _, self.name = where.partition("/")
        if not (self.namespace and self.name):
            raise EngineError(f"the lease {where!r} is not written NAMESPACE/NAME")
        self._api, self.identity, self.duration = api, identity, 15
        self.what = f"the lease {where}"
        super().__init__()

    def read(self) -> Lease | None:
        read = self._api.coordination.read_namespaced_lease
        with refusals(self.what):
            found = self._api.call(read, self.name, self.namespace, missing_is_fine=True)
        if found is None:
            return None
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        duration = float(spec.get("leaseDurationSeconds") or self.duration)
        renewal = holder, spec.get("renewTime")
        return Lease(holder, holder == self.identity, renewal, duration, found)

    def take(self, found: Lease | None) -> None:
        spec = (found.state.get("spec") or {}) if found else {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = found is not None and found.mine
        self._put(
            found,
            {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.duration,
                "renewTime": now,
                "acquireTime": spec.get("acquireTime", now) if mine else now,
                "leaseTransitions": spec.get("leaseTransitions", 0) + (not mine),
            },
        )

    def _put(self, found: Lease | None, spec: dict[str, Any]) -> None:
        api = self._api
        with refusals(self.what):  # 409: somebody else was faster
            if found is None:
                body = {"metadata": {"name": self.name}, "spec": spec}
                api.call(api.coordination.create_namespaced_lease, self.namespace, body)
            else:  # with its version: an update that comes second is refused
                body = {**found.state, "spec": spec}
                where = self.name, self.namespace
                api.call(api.coordination.replace_namespaced_lease, *where, body)

    def give_up(self) -> None:
        if (found := self.read()) is not None and found.mine:
            free = {"holderIdentity": "", "leaseDurationSeconds": 1}
            self._put(found, found.state["spec"] | free)


@contextmanager
def refusals(what: str, allowed: int = 0) -> Iterator[None]:
    """Raise EngineError where the API server refuses, unless with the ``allowed`` status."""
    try:
        yield
    except ApiException as error:
        if error.status != allowed:
            raise EngineError(f"{what}: {message_of(error)}") from error


def at(item: Any) -> tuple[str, str]:
    meta = item["metadata"]
    return name(meta["namespace"], "its namespace"), name(meta["name"], "its name")


def group_size(group: Any) -> tuple[tuple[str, str], int]:
    """Namespace and name of a PodGroup, and how many pods it must have."""
    least = (group.get("spec") or {}).get("minMember", 1)
    return at(group), max(whole(least, "minMember"), 1)


def job_size(job: Any) -> tuple[tuple[str, str], int]:
    """Namespace and name of a batch Job, and how many of its pods run at once."""
    spec = job.get("spec") or {}
    most = whole(spec.get("parallelism", 1), "parallelism")
    return at(job), max(min(most, whole(spec.get("completions") or most, "completions")), 1)


def message_of(error: ApiException) -> str:
    try:
        return f"{error.status} {json.loads(error.body or '{}')['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]

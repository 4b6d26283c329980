"""Kubernetes: pods with ``schedulerName: gangwise`` are held until a whole gang is bound.

A Binding checks nothing: the API server takes a full node, and one that is not there. So a
placement is checked here against all pods that the watch has shown, and only then sent. What is
decided is written with the Binding itself, as annotations of the pod (job, attempt, placement);
the next service finds it there after a crash.

A binding cannot be undone. To take a gang off its nodes, its pods are deleted; a pod that no
controller would make again gets a successor first (``NAME-rN``, which names the pod it replaces),
so that there is no moment at which a job is lost. Half-made successors are completed by any service
that sees them.
"""

import math
import os
import queue
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from gangwise.core.errors import EngineError, Rejected, StandingBy
from gangwise.engines import engine, kubernetes_api
from gangwise.engines import kubernetes_gangs as watched
from gangwise.engines import kubernetes_objects as objects
from gangwise.engines.background import BackgroundLoop, Backoff
from gangwise.engines.leader import Leader, Lease

CHORES = 180.0  # seconds that a round of chores may take: a call waits for up to 30


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
        self.capabilities = engine.Capabilities(start_latency=1.0, at_once=self.threads)
        folder = None if self.reports is None else Path(self.reports)
        table = watched.ClusterCache(self.scheduler, self.lost_after, folder, self.watch)
        self._table, self.quarantine = table, table.quarantine
        self._reports_read = -math.inf
        self._api = api = kubernetes_api.Connection(self.kubeconfig, self.context, self.threads)
        table.now, table.exists = api.now, api.exists
        if self.lease and not self.watch:
            identity = f"gangwise-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
            api.lease = KubernetesLeader(api, self.lease, identity)
        else:
            # Where there is a lease, its renewals are the signs of life.
            api.asker.start(kubernetes_api.ASK)
        pods = api.core.list_pod_for_all_namespaces
        kubernetes_api.Follower(api, "nodes", api.core.list_node, table.all_nodes, table.one_node)
        kubernetes_api.Follower(api, "pods", pods, table.all_pods, table.one_pod)
        begun = time.monotonic()
        for follower in api.followers:
            while not follower.ready.wait(0.25):  # as long as pages of a long list come
                # Whatever is heard prolongs the wait, a trouble that has a name does not.
                if time.monotonic() < (begun if api.trouble() else api.heard) + sum(
                    kubernetes_api.PATIENCE
                ):
                    continue
                self.close()
                reason = api.trouble() or "it is silent"
                raise EngineError(f"{api.server} does not list {follower.what}: {reason}")
        table.opened = True
        try:
            with kubernetes_api.refusals(f"{api.server} refuses"):
                self._look_up_sizes()
        except EngineError:
            self.close()
            raise
        backoff = Backoff(*kubernetes_api.LITTLE)
        self._chores = BackgroundLoop("the chores", self._do_chores, CHORES, backoff, api.asker)
        self._chores.start()

    @property
    def loops(self) -> list[BackgroundLoop]:
        """Loops in the background, which the service watches."""
        api = self._api
        return [api.asker, *(follower.loop for follower in api.followers), self._chores]

    @property
    def leader(self) -> Leader | None:
        leader: Leader | None = self._api.lease
        return leader

    @property
    def answered(self) -> float:
        """Time at which the API server last answered a call, in seconds of :func:`.clock`."""
        return self._api.answered

    # The boundary

    def nodes(self) -> list[engine.EngineNode]:
        """All nodes; a taint appears as a label that all other nodes carry."""
        self._api.check()
        return list(self._table.described())

    def jobs(self) -> list[engine.Status]:
        """Our gangs, and every other pod on a node as a foreign job."""
        self._api.check()
        with self._table.lock:
            ours = [g.status for g in self._table.gangs.values() if g.status is not None]
            return ours + list(self._table.foreign.values())

    def held(self) -> dict[str, str]:
        """Gangs that cannot be placed yet, such as those whose pods are not all there, and why."""
        with self._table.lock:
            return {gang.id: gang.held for gang in self._table.gangs.values() if gang.held}

    def place(self, job: str, attempt: int, placed: Sequence[engine.Placed]) -> None:
        """Bind every pod of a gang; none stays bound where one cannot be."""
        self._check_may_act(job)
        table = self._table
        plan = engine.tasks_by_node(placed)
        with table.lock:
            gang = table.gangs.get(job)
            if gang is None or gang.status is None:
                raise Rejected(f"job {job} is not there")
            if gang.phase == "pending" and gang.held:
                raise Rejected(f"job {job} is held: {gang.held}")
            if gang.removal_reason is not None:
                raise Rejected(f"job {job} is being taken off its nodes: {gang.removal_reason}")
            # Sent again, for the answer was lost: pods that are not bound yet are bound now.
            repeats = gang.phase in watched.ON_NODES and gang.attempt == attempt
            if not (repeats and gang.plan == plan):
                engine.check_placement(
                    gang.status, placed, self.nodes(), table.holding(n for n, _ in plan)
                )
            chosen = self._assign(gang, plan)
            # Under the lock and before any call: from here on the table holds these devices for it.
            gang.attempt, gang.plan = attempt, plan
            gang.binding.update((pod.uid, node) for pod, node in chosen)
            table.update(gang)
        marks = {
            f"{objects.OURS}job": gang.id,
            f"{objects.OURS}attempt": str(attempt),
            f"{objects.OURS}placement": watched.plan_text(plan),
        }
        bind = partial(self._api.bind, marks=marks)
        apply = self._api.pool.map if len(chosen) > 1 else map
        answers = list(apply(bind, [pod for pod, _ in chosen], [node for _, node in chosen]))
        with table.lock:
            for (pod, node), answer in zip(chosen, answers, strict=True):
                gang.binding.pop(pod.uid, None)
                if not answer.why and not pod.node:
                    pod.node = node  # the watch will say so too
            failed = [(*c, a) for c, a in zip(chosen, answers, strict=True) if a.why]
            if failed:
                pod, node, answer = failed[0]
                message = f"pod {pod.name} could not be bound to {node}: {answer.why}"
                # All or nothing: a gang that is bound in part, or perhaps, is taken off again.
                if any(gang.where(p) for p in gang.pods.values()) or answer.unsure:
                    gang.removal_reason = message
                else:
                    gang.plan = {}
            table.update(gang)
        if failed:
            table.wake_up.set()
            # Rejected says that nothing was started, which is not known here.
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
            if gang is None or gang.phase not in watched.ON_NODES:
                return
            # Pods that nobody owns are gone for good when they are deleted.
            bare = [pod.name for pod in gang.live if objects.controller(pod.manifest) is None]
            if bare and not self.recreate:
                raise Rejected(
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
            if gang.phase in engine.ENDED:
                return
            pods = gang.live
            owners = {(o["kind"], o["name"]) for p in pods if (o := objects.controller(p.manifest))}
            if gang.belongs.kind == "job":
                owners.add(("Job", gang.belongs.name))
            if gang.belongs.kind == "owner":
                owners = {(gang.belongs.api.rpartition("/")[2], gang.belongs.name)}
            strange = sorted(f"{kind} {name}" for kind, name in owners if kind != "Job")
            if strange:
                raise Rejected(f"job {job} belongs to {strange[0]}, which would make it again")
            # Marked before the pods are gone, or their end would look like a failure.
            gang.cancelled, gang.removal_reason = True, None
        delete, namespace = self._api.batch.delete_namespaced_job, gang.belongs.namespace
        with kubernetes_api.refusals(f"job {job} not cancelled"):
            # The Job first, or it would make the pods again.
            for _, name in sorted(owners):
                # Said outright: by default the API leaves the pods of a batch/v1 Job alone.
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
        # A holder that is alive renews within this time; one that does not is gone.
        until = time.monotonic() + lease.duration + sum(kubernetes_api.PATIENCE)
        earlier, holder = lease.read(), ""
        while not holder and time.monotonic() < until:
            if lease.held:
                lease.release()
                until = time.monotonic() + lease.duration
            time.sleep(0.25)
            current = lease.read()
            if current is None or earlier is None or current.mine:
                continue
            if not current.holder.startswith("gangwise-") or current.renewal != earlier.renewal:
                holder = current.holder
        lease.release()
        if holder.startswith("gangwise-"):
            raise EngineError(f"the service {holder} acts: stop it first")
        message = f"left to kube-scheduler ({holder})"
        return dict.fromkeys(waits, message if holder else "waits: no kube-scheduler is there")

    def events(self, timeout: float) -> list[engine.EngineEvent]:
        self._api.check()
        waiting = self._table.events
        events: list[engine.EngineEvent] = []
        try:
            events.append(waiting.get(timeout > 0, timeout))
            while True:
                events.append(waiting.get_nowait())
        except queue.Empty:
            return events

    def close(self) -> None:
        self._api.close()
        if hasattr(self, "_chores"):
            self._chores.end()
            self._table.wake_up.set()
            self._chores.join()

    # Chores

    def _do_chores(self) -> float:
        """Do what takes time: look up sizes of gangs, take gangs off, read reports of ranks."""
        table, closing = self._table, self._api.closing
        table.wake_up.wait(0.25)
        table.wake_up.clear()
        with table.lock:
            gangs = list(table.gangs.values())
            for gang in gangs:
                table.note_lost(gang)
                if time.monotonic() - gang.ended_at > watched.KEPT:
                    table.forget(gang)
            # All see that a gang is lost, the leader alone takes it off.
            acts = self._api.lease is None or self._api.lease.held
            leaving = [g for g in gangs if acts and g.removal_reason is not None and g.pods]
            if time.monotonic() > self._reports_read + 0.5:
                self._reports_read = time.monotonic()
                table.read_reports(g for g in gangs if g.phase == "running")
        chores: list[Callable[[], None]] = [partial(self._take_off, gang) for gang in leaving]
        failed: Exception | None = None
        for chore in (self._look_up_sizes, *chores):
            try:
                chore()
            except (Exception, CancelledError) as error:  # of one gang, perhaps; others go on
                if closing.is_set():  # no more calls are taken
                    self._chores.end()
                    return 0.0
                failed = error
            self._chores.beat()
        if failed is not None:
            raise failed
        return 0.05  # many changes are one round of chores

    def _look_up_sizes(self) -> None:
        """Sizes of gangs, from PodGroups or batch Jobs; by one listing where many are missing."""
        api, table = self._api, self._table

        def sized(item: Any) -> tuple[tuple[str, str], int]:
            return kubernetes_api.at(item), objects.gang_size(item)

        def read_size(of: objects.Membership) -> int | None:
            label, name = f"size of {of.kind}", f"{of.namespace}/{of.name}"
            silent = (EngineError, ApiException)
            return self.quarantine.read(label, name, partial(api.read_size, of), silent)

        with table.lock:
            unsized = [g for g in table.gangs.values() if g.size is None and g.held]
            unsized = [g for g in unsized if g.belongs.api or g.belongs.kind == "job"]
            due = [g for g in unsized if time.monotonic() >= g.size_due]
            for gang in due:  # a PodGroup may come later than its pods, or never
                gang.size_due = time.monotonic() + gang.size_wait
                gang.size_wait = min(2 * gang.size_wait, 30.0)
        by_api = defaultdict[str, list[watched.Gang]](list)
        for gang in due:
            by_api[gang.belongs.api].append(gang)
        for kind, gangs in by_api.items():
            sizes: dict[tuple[str, str], int | None]
            keys = [(g.belongs.namespace, g.belongs.name) for g in gangs]
            # A few by their names; of many, one listing costs less.
            if len(gangs) <= 8:
                listed = api.pool.map(read_size, (g.belongs for g in gangs))
                sizes = dict(zip(keys, listed, strict=True))
            elif kind:
                items = api.items(api.custom.list_cluster_custom_object, *kind.split("/"))
                sizes = dict(self.quarantine.read_all(kind, items, sized, kubernetes_api.at))
            else:
                items = api.items(api.batch.list_job_for_all_namespaces)
                sizes = dict(self.quarantine.read_all("Job", items, sized, kubernetes_api.at))
            with table.lock:
                for gang, key in zip(gangs, keys, strict=True):
                    if (size := sizes.get(key)) is not None:
                        gang.size = size
                        table.update(gang)

    def _take_off(self, gang: watched.Gang) -> None:
        """Make successors and delete the pods; complete what an earlier call began."""
        with self._table.lock:
            pods = [p for p in gang.pods.values() if p.node]
            replaced = {objects.own_value(p.manifest, "replaces") for p in gang.pods.values()}
            bare = [
                p for p in pods if objects.controller(p.manifest) is None and p.uid not in replaced
            ]
            bodies = [(p, watched.successor(p, gang)) for p in bare] if self.recreate else []
        for pod, body in bodies:
            with kubernetes_api.refusals(
                f"pod {pod.name} gets no successor and stays", 409
            ):  # it was made before
                self._api.call(self._api.core.create_namespaced_pod, pod.namespace, body)
        # A pod on a lost node stays as leaving until it is deleted by force.
        self._api.delete([p for p in pods if not p.leaving or self._is_lost(p)], self._is_lost)

    def _is_lost(self, pod: watched.WatchedPod) -> bool:
        return self._table.silent_long(pod.node)

    @staticmethod
    def _assign(
        gang: watched.Gang, plan: dict[tuple[str, int], int]
    ) -> list[tuple[watched.WatchedPod, str]]:
        """Assign pods that are not bound, by name, to the nodes in the order given."""
        unfilled = dict(plan)
        for pod in gang.pods.values():
            if node := gang.where(pod):
                seat = node, gang.group(pod)
                # Pods that sit on a node already fill seats there, so that a second call finds what
                # is left.
                unfilled[seat] = unfilled.get(seat, 0) - 1
        seats = defaultdict[int, list[str]](list)
        for (node, group), count in unfilled.items():
            seats[group] += [node] * count
        free = [p for p in gang.pods.values() if not gang.where(p) and not p.leaving]
        # By natural order, so that rank 10 comes behind rank 9 and neighbours stay together.
        free = sorted((p for p in free if not p.ended), key=lambda pod: objects.natural(pod.name))
        chosen = []
        for pod in free:
            if nodes := seats[gang.group(pod)]:
                chosen.append((pod, nodes.pop(0)))
        return chosen


class KubernetesLeader(Leader):
    """A Lease of the cluster, ``NAMESPACE/NAME``: its holder acts, all others stand by.

    Held as Kubernetes' own components hold theirs, so that a kube-scheduler may stand by, too.
    ``identity`` is unique to this process.
    """

    duration = 15

    def __init__(self, api: kubernetes_api.Connection, where: str, identity: str):
        self.namespace, _, self.name = where.partition("/")
        if not (self.namespace and self.name):
            raise EngineError(f"the lease {where!r} is not written NAMESPACE/NAME")
        self._api, self.identity = api, identity
        self._written: Lease | None = None  # as we wrote it; nobody changes it while it holds
        self.what = f"the lease {where}"
        super().__init__()

    def read(self) -> Lease | None:
        # A renewal of what somebody else has changed is refused by its version: none is read first.
        if self._written is not None and self._written.mine:
            return self._written
        call = self._api.coordination.read_namespaced_lease
        with kubernetes_api.refusals(self.what):
            lease = self._api.call(
                call, self.name, self.namespace, missing_is_fine=True, **kubernetes_api.PROBE
            )
        return None if lease is None else self._lease(lease)

    def _lease(self, lease: dict[str, Any]) -> Lease:
        spec = lease.get("spec") or {}
        if not isinstance(spec, dict) or not isinstance(lease.get("metadata"), dict):
            raise EngineError(f"{self.what} is {engine.quoted(lease)}")
        holder = spec.get("holderIdentity") or ""
        engine.name(holder, f"the holder of {self.what}", empty=True)
        duration = spec.get("leaseDurationSeconds") or self.duration
        engine.number(duration, f"the duration of {self.what}", 1.0, 86_400.0)
        engine.number(spec.get("leaseTransitions") or 0, f"the transitions of {self.what}", 0.0)
        engine.name(lease["metadata"].get("resourceVersion"), f"the version of {self.what}")
        renewal = holder, spec.get("renewTime")
        return Lease(holder, holder == self.identity, renewal, float(duration), lease)

    def take(self, found: Lease | None) -> None:
        spec = (found.state.get("spec") or {}) if found else {}
        date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = found is not None and found.mine
        self._put(
            found,
            {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self.duration,
                "renewTime": date,
                "acquireTime": spec.get("acquireTime", date) if mine else date,
                # Counted only where the holder changes, as Kubernetes' own leaders do.
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not mine),
            },
        )

    def _put(self, found: Lease | None, spec: dict[str, Any]) -> None:
        # Kept only where this succeeds: what was written may have been spoilt on its way here.
        api, known, self._written = self._api, self._written, None
        try:
            if found is None:
                body = {"metadata": {"name": self.name}, "spec": spec}
                create = api.coordination.create_namespaced_lease
                lease = api.call(create, self.namespace, body, **kubernetes_api.PROBE)
            else:  # with its version: an update that comes second is refused
                body = {**found.state, "spec": spec}
                replace, key = (
                    api.coordination.replace_namespaced_lease,
                    (self.name, self.namespace),
                )
                lease = api.call(replace, *key, body, **kubernetes_api.PROBE)
            self._written = self._lease(lease)
        except ApiException as error:
            if error.status == 409:
                # Of an earlier renewal the answer may be lost: the other version may be our own.
                if known is not None and (current := self.read()) is not None and current.mine:
                    return self._put(current, spec)
                raise StandingBy(f"{self.what}: another service was faster") from error
            raise kubernetes_api.refusal(self.what, error) from error

    def give_up(self) -> None:
        if (lease := self.read()) is not None and lease.mine:
            free = {"holderIdentity": "", "leaseDurationSeconds": 1}
            self._put(lease, lease.state["spec"] | free)

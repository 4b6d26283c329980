"""Talking to the API server: calls with their failures named, watches that go on, Bindings."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangwise.core.errors import EngineError
from gangwise.engines.intake import name, whole
from gangwise.engines.kubernetes_gangs import Pod
from gangwise.engines.kubernetes_objects import Membership
from gangwise.engines.leader import Held, Leader

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
        self.lease: Lease | None = None
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
        except ApiException as error:
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
        try:
            self.call(self.core.list_node, limit=1)
        except ApiException as error:
            raise EngineError(f"{self.server} refuses: {message_of(error)}") from error

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

    def bind(self, pod: Pod, node: str, marks: dict[str, str]) -> Binding:
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

    def delete(self, pods: Iterable[Pod], by_force: Callable[[Pod], bool]) -> None:
        """Delete pods; those of lost nodes without waiting for their kubelet."""

        def one(pod: Pod) -> None:
            body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
            if by_force(pod):
                body["gracePeriodSeconds"] = 0
            try:
                where = pod.name, pod.namespace
                delete = self.core.delete_namespaced_pod
                self.call(delete, *where, body=body, missing_is_fine=True)
            except ApiException as error:
                if error.status != 409:  # 409: another pod of this name
                    raise EngineError(f"pod {pod.name} not deleted: {message_of(error)}") from error

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


class Lease(Leader):
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

    def read(self) -> Held | None:
        try:
            read = self._api.coordination.read_namespaced_lease
            found = self._api.call(read, self.name, self.namespace, missing_is_fine=True)
        except ApiException as error:
            raise EngineError(f"{self.what}: {message_of(error)}") from error
        if found is None:
            return None
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        duration = float(spec.get("leaseDurationSeconds") or self.duration)
        renewal = holder, spec.get("renewTime")
        return Held(holder, holder == self.identity, renewal, duration, found)

    def take(self, found: Held | None) -> None:
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

    def _put(self, found: Held | None, spec: dict[str, Any]) -> None:
        api = self._api
        try:
            if found is None:
                body = {"metadata": {"name": self.name}, "spec": spec}
                api.call(api.coordination.create_namespaced_lease, self.namespace, body)
            else:  # with its version: an update that comes second is refused
                body = {**found.state, "spec": spec}
                where = self.name, self.namespace
                api.call(api.coordination.replace_namespaced_lease, *where, body)
        except ApiException as error:  # 409: somebody else was faster
            raise EngineError(f"{self.what}: {message_of(error)}") from error

    def give_up(self) -> None:
        if (found := self.read()) is not None and found.mine:
            free = {"holderIdentity": "", "leaseDurationSeconds": 1}
            self._put(found, found.state["spec"] | free)


def at(item: Any) -> tuple[str, str]:
    meta = item["metadata"]
    return name(meta["namespace"], "its namespace"), name(meta["name"], "its name")


def group_size(group: Any) -> tuple[tuple[str, str], int]:
    """Which PodGroup it is, and how many pods it must have."""
    least = (group.get("spec") or {}).get("minMember", 1)
    return at(group), max(whole(least, "minMember"), 1)


def job_size(job: Any) -> tuple[tuple[str, str], int]:
    """Which batch Job it is, and how many of its pods run at once."""
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

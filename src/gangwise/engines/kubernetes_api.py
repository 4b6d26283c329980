"""The API server of Kubernetes: calls with their failures named, watches that go on, Bindings.

The server is asked as its own clients ask it: failures are followed by :class:`.Backoff`, what it
says in ``Retry-After`` holds for all calls, long lists come in pages, and a list that only brings a
picture up to date may come from the server's cache. Replies and their heads are bounded in size and
in time: a server that sends a byte now and then is one that does not answer.
"""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPResponse
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError, ReadTimeoutError

from gangwise.core.errors import EngineError
from gangwise.engines.background import TOLERATED, BackgroundLoop, Backoff, TryLater, clock, short
from gangwise.engines.engine import Malformed, name, quoted
from gangwise.engines.kubernetes_gangs import WatchedPod
from gangwise.engines.kubernetes_objects import Membership, gang_size

PATIENCE = (3.0, 6.0)  # seconds to connect, and in which a reply must be there as a whole
REPLY = 15.0  # the same of a list
LONG: dict[str, Any] = {"_request_timeout": (PATIENCE[0], REPLY)}
PROBE: dict[str, Any] = {"_request_timeout": (2.0, 4.0)}  # of a call that asks for a sign of life
ASK = 3.0  # seconds without an answer after which the API server is asked for a sign of life
SILENT = 6.0  # seconds without an answer after which it counts as silent
BYTES = 256 * 2**20  # size of a reply; a page of pods has some megabytes
LINE_BYTES = 16 * 2**20  # size of an event of a watch; etcd stores objects of at most 1.5 MiB
LINE = 6.0  # seconds in which the rest of an event must come
PAGE = 500  # objects of a page, as of Kubernetes' own clients
LONGEST_PAUSE = 30.0  # seconds for which a Retry-After is kept at most
WATCH = 300  # seconds after which the server is to end a watch, and up to twice as many
DOUBTED = 5.0  # the same, before a list is read again that may have been spoilt
NO_VERSION = {410: 1.0, 400: 0.5, 500: 0.5}
"""Statuses by which a server refuses a version, and how much a refusal of a watch counts; 500 is
that of a version which is no number (seen of 1.20), and of any fault of the server."""
IDLE = 90.0  # seconds without a word, while bookmarks come each minute, after which it is reopened
BRIEF = 1.0  # seconds: a watch that ends earlier without an event has failed
LITTLE = (0.8, 2.5)  # first and longest base of a back-off, in seconds, of what costs little


class Binding(NamedTuple):
    """Outcome of binding a pod: it is bound where no reason is given."""

    why: str = ""
    unsure: bool = False  # no final answer came: it may have been bound all the same


class Connection:
    """Connection to an API server; raises EngineError without a usable kubeconfig."""

    def __init__(self, kubeconfig: str | Path | None, context: str | None, threads: int):
        # One of its own: the client's default configuration is one for the whole process.
        settings = client.Configuration()
        try:
            usual = map(os.path.expanduser, config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep))
            if kubeconfig is None and not any(map(os.path.exists, usual)):
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the client has no types
            else:
                path = None if kubeconfig is None else str(kubeconfig)
                config.load_kube_config(path, context, client_configuration=settings)  # type: ignore[no-untyped-call]  # the client has no types
        except (config.ConfigException, OSError) as error:
            raise EngineError(f"no kubeconfig that works ({error}); give its path") from error
        # Only the caller knows what may be repeated; a Binding may not be, unseen.
        settings.retries = False
        settings.connection_pool_maxsize = threads + 8
        self.server = settings.host
        api = client.ApiClient(settings)
        pools = api.rest_client.pool_manager
        pools.request = _bounded(pools.request)  # type: ignore[method-assign]  # of all calls
        pools.pool_classes_by_scheme = {
            scheme: _with_deadlines(pool) for scheme, pool in pools.pool_classes_by_scheme.items()
        }
        self.core = client.CoreV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.custom = client.CustomObjectsApi(api)
        self.coordination = client.CoordinationV1Api(api)
        self.lease: Any = None  # a Leader, where one is needed
        self.pool = ThreadPoolExecutor(threads, "gangwise-kubernetes")
        self.heard = time.monotonic()  # when anything came from the server
        self.answered = clock()  # when a call was answered
        self.closing = threading.Event()
        self.followers: list[Follower] = []
        self._streams: list[Any] = []
        self._pause_until = -float("inf")
        backoff = Backoff(ASK / 2, ASK / 2)
        self._asker = BackgroundLoop(self.server, self._ask_if_quiet, 30.0, backoff)
        self._ahead: float | None = None  # the server's time less that of our clock

    def close(self) -> None:
        """End all watches and their threads, and drop calls that have not begun."""
        self.closing.set()
        # While calls can still be made, so that another service can lead at once.
        if self.lease is not None:
            self.lease.release()
        # A thread that reads would wait for the next line, which may come in minutes.
        for stream in list(self._streams):
            with suppress(OSError, RuntimeError, ValueError):
                stream.shutdown()
        self.pool.shutdown(wait=False, cancel_futures=True)
        for loop in (self._asker, *(follower.loop for follower in self.followers)):
            loop.join()

    def call(
        self, call: Callable[..., Any], *args: Any, missing_is_fine: bool = False, **kw: Any
    ) -> Any:
        """Make a call and return the JSON object of its answer; None for 404 where that is fine.

        The client's own decoding is not used: it fails on the Status that answers a Binding.
        """
        if (pause := self.pause()) > 0:
            raise TryLater(f"{self.server} asks for a pause of {pause:.0f} s more", pause)
        try:
            options = {"_request_timeout": PATIENCE, **kw, "_preload_content": False}
            answer = call(*args, **options)
            self.heard = time.monotonic()
            self._note_time(answer.headers.get("Date"))
            content = json.loads(answer.data)
        except ApiException as error:  # an answer, too
            self.heard = time.monotonic()
            if error.status == 404 and missing_is_fine:
                return None
            if not error.status:  # by the client: no answer came
                raise EngineError(f"{self.server} does not answer: {error.reason}") from error
            self.note_pause(error)
            raise
        except (HTTPError, OSError, ValueError, RecursionError) as error:
            raise EngineError(f"{self.server} does not answer: {short(error)}") from error
        if not isinstance(content, dict):
            raise EngineError(f"{self.server} answers {quoted(content)}, which is no JSON object")
        self.answered = clock()
        return content

    def _note_time(self, date: str | None) -> None:
        with suppress(ValueError, TypeError):
            # Whole seconds, late by their way here: enough to tell when a pod has ended.
            self._ahead = parsedate_to_datetime(date or "").timestamp() - clock()

    def now(self) -> float:
        """Seconds since 1970 by the clock of the API server, as it last said in a reply."""
        return time.time() if self._ahead is None else clock() + self._ahead

    def pause(self) -> float:
        """Seconds for which the server wants no calls."""
        return max(self._pause_until - clock(), 0.0)

    def note_pause(self, error: ApiException) -> None:
        seconds = retry_after(error)
        self._pause_until = max(self._pause_until, clock() + min(seconds, LONGEST_PAUSE))

    def check(self) -> None:
        """Ask the API server for a sign of life where it has been quiet."""
        if self.closing.is_set():
            raise EngineError("the engine is closed")
        asker = self.asker
        # A loop that hangs has no trouble yet; replies that are spoilt are answers, too.
        if (silent := max(asker.failing(), clock() - self.answered)) > SILENT:
            reason = f": {asker.trouble}" if asker.trouble else ""
            raise EngineError(f"{self.server} has not answered for {silent:.0f} s{reason}")
        if self.lease is not None:
            self.lease.check()
        for follower in self.followers:
            if follower.failing() > TOLERATED:
                reason = follower.loop.trouble or "no watch of them is answered"
                raise EngineError(f"{follower.what} of {self.server} cannot be followed: {reason}")

    @property
    def asker(self) -> BackgroundLoop:
        """Loop that asks for a sign of life: the one that renews the lease, where there is one."""
        return self._asker if self.lease is None else self.lease.loop

    def _ask_if_quiet(self) -> float:
        """Ask for one node where no call was answered lately; raises EngineError in vain."""
        # Any call that was answered is a sign of life: one that asks for nothing else is for quiet
        # times.
        if (wait := self.answered + ASK - clock()) > 0 and not self._asker.trouble:
            return wait
        with refusals(f"{self.server} refuses"):
            _items_of(self.call(self.core.list_node, limit=1, **PROBE))
        return ASK

    def trouble(self) -> str:
        """Trouble of a watch; empty for none."""
        return next((f.loop.trouble for f in self.followers if f.loop.trouble), "")

    @contextmanager
    def open_while(self, stream: Any) -> Iterator[None]:
        """While a watch is read; :meth:`close` ends it from another thread."""
        self._streams.append(stream)
        try:
            with stream:
                if self.closing.is_set():
                    raise EngineError("the engine is closed")
                yield
        finally:
            self._streams.remove(stream)

    def listed(
        self, listing: Callable[..., Any], since: str = "", beat: Callable[[], Any] = bool
    ) -> tuple[list[Any], str]:
        """Items of a listing, and its version; ``beat`` is called after each page.

        A picture ``since`` a version is brought up to date from the server's cache, by a reply that
        is not older than it. Otherwise the pages of one consistent reading come.
        """
        if since:
            newer: dict[str, Any] = {"resource_version_match": "NotOlderThan"}
            try:
                return _items_of(self.call(listing, resource_version=since, **newer, **LONG))
            except ApiException as error:
                # It has no version so new, or so old, or it is none: one that was spoilt.
                if error.status not in (*NO_VERSION, 504):
                    raise
        items: list[Any] = []
        page = ""
        while True:
            options: dict[str, Any] = {"_continue": page} if page else {}
            answer = self.call(listing, limit=PAGE, **options, **LONG)
            part, version = _items_of(answer)
            items += part
            page = answer["metadata"].get("continue") or ""
            beat()
            if not page:
                return items, version

    def items(self, listing: Callable[..., Any], *args: Any) -> list[Any]:
        """Items of a listing; none where the cluster does not know their kind."""
        answer = self.call(listing, *args, missing_is_fine=True, **LONG)
        return [] if answer is None else list(answer["items"])

    def exists(self, kind: str, item: Any) -> bool:
        """Whether a node or a pod that a list no longer has is there after all."""
        meta = item["metadata"]
        call = self.core.read_node if kind == "node" else self.core.read_namespaced_pod
        key = (meta["name"],) if kind == "node" else (meta["name"], meta["namespace"])
        answer = self.call(call, *key, missing_is_fine=True)
        return answer is not None and (answer.get("metadata") or {}).get("uid") == meta.get("uid")

    def bind(self, pod: WatchedPod, node: str, marks: dict[str, str]) -> Binding:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "uid": pod.uid, "annotations": marks},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        key, reason = (pod.name, pod.namespace), ""
        # A Binding may be made though its answer is lost: after each failure the pod itself is
        # read.
        for pause in (0.0, 0.2, 1.0):
            self.closing.wait(max(pause, self.pause()))
            try:
                reply = self.call(self.core.create_namespaced_pod_binding, *key, body)
                if reply.get("kind") == "Status" and reply.get("status") != "Failure":
                    return Binding()
                reason, lost = f"a Binding is answered with {quoted(reply)}", True
            except ApiException as error:
                reason = message_of(error)
                if error.status == 404:
                    return Binding("it is gone")
                # The server has understood and refused; nothing was bound.
                if error.status < 500 and error.status not in (409, 429):
                    return Binding(reason)
                lost = False
            except EngineError as error:
                reason, lost = str(error), True
            self.closing.wait(self.pause())
            try:
                current = self.call(self.core.read_namespaced_pod, *key, missing_is_fine=True)
                # Another pod may have taken the name.
                if current is None or current["metadata"]["uid"] != pod.uid:
                    return Binding("it is gone")
                bound, leaving = current["spec"].get("nodeName"), current["metadata"]
            except (ApiException, EngineError, KeyError, TypeError, AttributeError):
                continue
            if bound:
                return Binding("" if bound == node else f"it is on {bound} already")
            if not lost and leaving.get("deletionTimestamp"):
                return Binding("it is being deleted")
        return Binding(reason, unsure=True)

    def delete(self, pods: Iterable[WatchedPod], by_force: Callable[[WatchedPod], bool]) -> None:
        """Delete pods; those of lost nodes without waiting for their kubelet."""

        def one(pod: WatchedPod) -> None:
            # Not a pod that has taken the name since.
            body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
            if by_force(pod):
                # A kubelet that is gone confirms no end: without this the pod would stay for ever.
                body["gracePeriodSeconds"] = 0
            key, delete = (pod.name, pod.namespace), self.core.delete_namespaced_pod
            with refusals(f"pod {pod.name} not deleted", 409):  # there is another of this name
                self.call(delete, *key, body=body, missing_is_fine=True)

        # A map over threads raises what they raised only where it is read.
        list(self.pool.map(one, pods))

    def read_size(self, of: Membership) -> int | None:
        """Number of a gang's pods by the object that says so; None where that is not there."""
        key = of.name, of.namespace
        if of.kind == "job":
            owner = self.call(self.batch.read_namespaced_job, *key, missing_is_fine=True)
        else:
            api, version, plural = of.api.split("/")
            path = (api, version, of.namespace, plural, of.name)
            call = self.custom.get_namespaced_custom_object
            try:
                owner = self.call(call, *path, missing_is_fine=True)
            except ApiException as error:
                if error.status != 403:
                    raise
                raise Malformed(
                    f"the service may not get {plural}.{api}: {quoted(error)}"
                ) from None
        return None if owner is None else gang_size(owner)


class _Expired(EngineError):  # noqa: N818 - what a watch says
    """A watch is answered by an event ERROR, such as 410."""


class Follower:
    """All objects of a kind: listed, and kept up to date by a watch.

    ``everything`` takes in a list of all, ``one`` a change of one. A watch that fails is opened
    again from the last version that was seen. Where that is answered by 410 or an ERROR, twice
    (or by 400 or 500, three times) without a change in between, the list is read again; at once,
    and again some seconds later, where an event could not be read.
    """

    def __init__(
        self,
        api: Connection,
        what: str,
        listing: Callable[..., Any],
        everything: Callable[[list[Any]], None],
        one: Callable[[str, Any], None],
    ):
        self.what, self.ready = what, threading.Event()
        self._api, self._listing, self._everything, self._one = api, listing, everything, one
        self._version = ""  # where to watch from; empty before the first list
        self._expired = 0.0  # watches in a row that were answered by an ERROR, as they count
        self._doubts = 0  # lists to be read, since objects that could be read may be wrong, too
        self._lists, self._list_after = Backoff(first=5.0), -float("inf")
        self._opened = float("inf")  # since when a watch has been open
        self._current = clock()  # when the picture was that of the API server, as far as known
        name, patience = f"the watch of {what}", IDLE + 4 * REPLY
        self.loop = BackgroundLoop(name, self._step, patience, Backoff(*LITTLE), api.asker)
        api.followers.append(self)
        self.loop.start()

    def failing(self) -> float:
        """Seconds for which the picture has not been kept up to date; 0 where it is."""
        if clock() > self._opened + BRIEF:  # and no ERROR has come
            self.loop.came_round()
            self._current = clock()
        return clock() - self._current

    def _step(self) -> float:
        api = self._api
        if self.loop.trouble and api.asker.trouble:  # one asks for all until it is answered
            raise EngineError(self.loop.trouble)
        expired = self._expired > 1 and clock() >= self._list_after
        if not self._version or self._doubts or expired:
            self._list_after = clock() + self._lists.wait()  # a list costs much
            items, version = api.listed(self._listing, self._version, self.loop.beat)
            self._everything(items)
            # Only when all of it is taken in; else the list is read again.
            self._version, self._expired, self._current = version, 0, clock()
            self._doubts = max(self._doubts - 1, 0)
            self.ready.set()
        began, events = clock(), 0
        try:
            # Of random length, so that the watches of many clients do not end together.
            lasts = DOUBTED if self._doubts else WATCH * (1.0 + random.random())
            for event in self._events(self._version, int(lasts)):
                version = _version_of(event)
                if event["type"] != "BOOKMARK":
                    self._one(event["type"], event["object"])
                # Only when the change is taken in: after a failure it comes again.
                self._version = version
                events, self._expired, self._current = events + 1, 0, clock()
                self.loop.came_round()
                if api.closing.is_set():
                    return 0.0
        except ApiException as error:
            self._expired += NO_VERSION.get(error.status, 0.0)
            raise refusal(f"the watch of {self.what}", error) from error
        except ReadTimeoutError:
            if self._opened == float("inf"):
                raise
            return 0.0  # no bookmark has come: a proxy, say, has forgotten it, and it is reopened
        except (TryLater, HTTPError, OSError):  # no more is heard, and nothing was misheard
            raise
        except _Expired:
            self._expired += 1
            raise
        except BaseException:
            self._doubts = 2
            raise
        finally:
            self._opened = float("inf")
        # A proxy that takes a watch and drops it would be asked without a pause.
        if not events and clock() < began + BRIEF and not api.closing.is_set():
            raise EngineError(f"the watch of {self.what} ended at once")
        return 0.0

    def _events(self, version: str, seconds: int) -> Iterator[Any]:
        """Events of a watch from a version on; raises EngineError for ERROR."""
        api = self._api
        if (pause := api.pause()) > 0:
            raise TryLater(f"{api.server} asks for a pause of {pause:.0f} s more", pause)
        try:
            stream = self._listing(
                watch=True,
                resource_version=version,
                timeout_seconds=seconds,
                allow_watch_bookmarks=True,
                _preload_content=False,
                _request_timeout=(PROBE["_request_timeout"][0], IDLE),
            )
        except ApiException as error:
            api.note_pause(error)
            raise
        # From here on the connection can be ended from another thread.
        with api.open_while(stream):
            self._opened = clock()
            for line in _lines(stream):
                api.heard = time.monotonic()
                event = json.loads(line)
                if not isinstance(event, dict):
                    raise Malformed(f"an event of the watch is {quoted(event)}, not an object")
                if event.get("type") == "ERROR":
                    raise _Expired(f"the watch of {self.what} says {quoted(event)}")
                yield event


def _lines(stream: Any) -> Iterator[bytes]:
    """Lines of a reply that goes on; raises EngineError for one that is too long, or dripped."""
    tail, began = b"", clock()
    for chunk in stream.stream(2**16):
        # From the first byte of a line on: between two events there may be none for long.
        if not tail:
            began = clock()
        *whole_lines, tail = (tail + chunk).split(b"\n")
        for line in whole_lines:
            if line.strip():
                yield line
            began = clock()
        # An event that drips in would hold the watch for ever, and one without an end the memory.
        if tail and (len(tail) > LINE_BYTES or clock() > began + LINE):
            raise EngineError(f"an event has {len(tail)} bytes after {clock() - began:.0f} s")


class _Timed(RawIOBase):
    """Bytes of a connection that must be there in time, however many of them come at once."""

    def __init__(self, raw: RawIOBase, until: float):
        self.raw, self.until = raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if clock() > self.until:
            raise TimeoutError("a reply, or its head, takes too long")
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


class _TimedReply(HTTPResponse):
    """A reply whose head is there in time, and whose body ends in time, unless it is a watch's.

    The time-outs of sockets are those of each read: a byte now and then meets them for ever.
    """

    def __init__(self, sock: Any, *args: Any, **more: Any):
        super().__init__(sock, *args, **more)
        self._began, self._wait = clock(), sock.gettimeout() or REPLY
        # The head of a watch comes at once, and its lines as long as it lasts.
        self._lasts = self._wait >= IDLE
        sock.settimeout(head := PATIENCE[1] if self._lasts else self._wait)
        # Nothing is in the buffer yet, so that the raw stream can be put behind a clock.
        self._timed = _Timed(self.fp.detach(), self._began + head)
        self._sock = sock
        self.fp = BufferedReader(self._timed)

    def begin(self) -> None:
        super().begin()
        if self._lasts:
            self._sock.settimeout(self._wait)
            self._timed.until = float("inf")


def _with_deadlines(pool: Any) -> Any:
    """The class of a pool of connections, with replies that are there in time."""
    # urllib3 offers no time-out of a whole reply, so that the class of replies is its own here.
    connection = type("Connection", (pool.ConnectionCls,), {"response_class": _TimedReply})
    return type("Pool", (pool,), {"ConnectionCls": connection})


def _bounded(request: Callable[..., Any]) -> Callable[..., Any]:
    """A request whose reply is read as a whole, within a bound of size; not of a watch."""

    def bounded(method: str, url: str, **more: Any) -> Any:
        response = request(method, url, **more)
        # A watch has no end, and is read line by line within bounds of its own.
        if "watch=true" in url.lower() and 200 <= response.status < 300:
            return response
        body = BytesIO()
        with response:
            for chunk in response.stream(2**16):
                body.write(chunk)
                if body.tell() > BYTES:
                    raise HTTPError(f"a reply of more than {BYTES} bytes")
        body.seek(0)
        # It was decoded as it was read.
        as_it_is: dict[str, Any] = {"decode_content": False, "enforce_content_length": False}
        head = {"headers": response.headers, "status": response.status, "reason": response.reason}
        return urllib3.HTTPResponse(body, **head, **as_it_is)

    return bounded


def _items_of(answer: Any) -> tuple[list[Any], str]:
    """Items and version of a list; raises Malformed for what is none."""
    items, meta = answer.get("items"), answer.get("metadata")
    if not isinstance(items, list) or not isinstance(meta, dict):
        raise Malformed(f"a list has the items {quoted(items)} and the metadata {quoted(meta)}")
    return items, name(meta.get("resourceVersion"), "the version of a list")


def _version_of(event: dict[str, Any]) -> str:
    meta = (event.get("object") or {}).get("metadata") or {}
    return name(meta.get("resourceVersion"), "the version of an event")


@contextmanager
def refusals(what: str, allowed: int = 0) -> Iterator[None]:
    """Raise EngineError where the API server refuses, unless with the ``allowed`` status."""
    try:
        yield
    except ApiException as error:
        if error.status != allowed:
            raise refusal(what, error) from error


def refusal(what: str, error: ApiException) -> EngineError:
    seconds, message = retry_after(error), f"{what}: {message_of(error)}"
    return TryLater(message, seconds) if seconds else EngineError(message)


def retry_after(error: ApiException) -> float:
    """Seconds of a refusal's ``Retry-After``; 0 where there is none."""
    text = str((error.headers or {}).get("Retry-After") or "")
    # HTTP allows a date as well, which Kubernetes never gives.
    return min(float(text), LONGEST_PAUSE) if text.isascii() and text.isdigit() else 0.0


def at(item: Any) -> tuple[str, str]:
    meta = item["metadata"]
    return name(meta["namespace"], "its namespace"), name(meta["name"], "its name")


def message_of(error: ApiException) -> str:
    try:
        return f"{error.status} {json.loads(error.body or '{}')['message']}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{error.status} {error.reason}"

"""An API server that answers wrongly on demand, in front of a real one or of one in memory."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.engines.hostile import node, pod, spoiled

FAULTS = (
    *("refused", "500", "503", "429", "html", "empty", "null", "list", "truncated", "cut", "types"),
    *("emptied", "10 MB", "hang", "drip", "drip of a head", "drip of a body", "error", "at once"),
)
"""Faults of replies; ``error`` is an ERROR event of each watch, ``at once`` its immediate end."""
DRIPS: dict[str, dict[str, str]] = {
    "drip": {"Transfer-Encoding": "chunked"},
    "drip of a body": {"Content-Length": "60000"},
    "drip of a head": {},
}
LOST = "lost"  # requests that hang for good, also when the fault is over
REFUSED_WITH = {"500": 500, "503": 503, "429": 429}
Upstream = Callable[[str, str, bytes, Callable[[], bool]], tuple[int, Iterator[bytes]]]
"""Method, path, body, and whether the server still runs → status, and lines of the reply."""


class GarblingServer:
    """An API server on loopback whose replies have the fault ``mode``; empty for none."""

    def __init__(self, upstream: Upstream, seed: int = 0, port: int = 0):
        self.mode, self.upstream, self.rng = "", upstream, random.Random(seed)
        self.requests: Counter[str] = Counter()  # by kind
        self.over = False
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kubeconfig(self, file: Path) -> Path:
        contexts = [{"name": "t", "context": {"cluster": "t", "user": "t"}}]
        about = {"current-context": "t", "contexts": contexts, "users": [{"name": "t", "user": {}}]}
        clusters = [{"name": "t", "cluster": {"server": self.url}}]
        file.write_text(json.dumps({**about, "clusters": clusters}))
        return file

    def close(self) -> None:
        self.over = True
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each reply waits 40 ms between its head and its body
    owner: GarblingServer

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - names of the library's

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        watches = asked.get("watch") in (["true"], ["True"])
        kind = "watch" if watches else "page" if "limit" in asked else self.command.lower()
        kind = "probe" if asked.get("limit") == ["1"] else kind
        whole = kind == "get" and urllib.parse.urlsplit(self.path).path in LISTS
        self.owner.requests["list" if whole else kind] += 1
        try:
            self._garbled(self.owner.mode, watches, body)
        except (OSError, ValueError):
            self.close_connection = True

    def _garbled(self, mode: str, watches: bool, body: bytes) -> None:
        owner = self.owner
        if mode == "refused":
            self.close_connection = True
        elif mode in REFUSED_WITH:
            more = {"Retry-After": "1"} if mode == "429" else {}
            self._send(REFUSED_WITH[mode], b'{"kind":"Status","message":"no"}', more)
        elif mode in ("html", "empty", "null", "list"):
            page = b"<html><body>502 Bad Gateway</body></html>"
            self._send(200, {"html": page, "empty": b"", "null": b"null", "list": b"[]"}[mode])
        elif mode == "10 MB":
            self._send(200, b'{"items": "' + 10 * 2**20 * b"x" + b'"}')
        elif mode == LOST:
            while not owner.over:
                time.sleep(0.1)
        elif mode == "hang" or mode in DRIPS:
            if mode == "drip of a head":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
            elif mode != "hang":
                self._head(200, DRIPS[mode])
            while owner.mode == mode and not owner.over:
                time.sleep(0.1)
                if mode != "hang":
                    self.wfile.write(b"1\r\n{\r\n" if mode == "drip" else b"{")
            self.close_connection = True
        elif watches:
            self._stream(mode, body)
        else:
            status, lines = owner.upstream(self.command, self.path, body, lambda: False)
            self._send_wrong(mode, status, b"".join(lines))

    def _stream(self, mode: str, body: bytes) -> None:
        gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}

        def goes_on() -> bool:
            return self.owner.mode == mode and not self.owner.over

        status, lines = 200, iter(())
        if mode not in ("error", "at once"):
            status, lines = self.owner.upstream(self.command, self.path, body, goes_on)
        self._head(status, {"Transfer-Encoding": "chunked"})
        if mode == "error":
            self._chunk(json.dumps(gone).encode() + b"\n")
        for line in lines:
            if mode == "types":
                line = json.dumps(spoiled(self.owner.rng, json.loads(line))).encode() + b"\n"
            self._chunk(line[: len(line) // 2] if mode in ("cut", "truncated") else line)
        self._chunk(b"")

    def _send_wrong(self, mode: str, status: int, reply: bytes) -> None:
        if mode == "types":
            reply = json.dumps(spoiled(self.owner.rng, json.loads(reply))).encode()
        elif mode == "cut":
            reply = reply[: self.owner.rng.randrange(len(reply) or 1)]
        elif mode == "emptied" and b'"items"' in reply:
            reply = json.dumps({**json.loads(reply), "items": []}).encode()
        if mode == "truncated":  # it is announced, and does not come
            self._head(status, {"Content-Length": str(len(reply))})
            self.wfile.write(reply[: len(reply) // 2])
            self.close_connection = True
        else:
            self._send(status, reply)

    def _head(self, status: int, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, reply: bytes, more: dict[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": str(len(reply)), **(more or {})})
        self.wfile.write(reply)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


LISTS = ("/api/v1/nodes", "/api/v1/pods")


class InMemory:
    """Nodes, pods and a Lease as an API server keeps them, as far as an engine asks for them."""

    def __init__(self, nodes: int, pods: int, running: int):
        self.lock = threading.Condition()
        self.version, self.log = 1, list[tuple[int, str, dict[str, Any]]]()
        self.items: dict[str, dict[str, Any]] = {}
        self.lease: dict[str, Any] | None = None
        for i in range(nodes):
            self.items[f"/api/v1/nodes/n{i}"] = node(f"n{i}", "a")
        for i in range(pods):
            one = pod(f"p{i}", "a")
            if i < running:
                one["metadata"]["annotations"] |= {
                    "gangwise.io/attempt": "1",
                    "gangwise.io/placement": json.dumps({f"n{i % nodes}": 1}),
                }
                one["spec"]["nodeName"], one["status"]["phase"] = f"n{i % nodes}", "Running"
            self.items[f"/api/v1/namespaces/default/pods/p{i}"] = one
        for one in self.items.values():
            one["metadata"]["resourceVersion"] = "1"

    def __call__(
        self, method: str, path: str, body: bytes, goes_on: Callable[[], bool]
    ) -> tuple[int, Iterator[bytes]]:
        split = urllib.parse.urlsplit(path)
        asked, path = urllib.parse.parse_qs(split.query), split.path
        if "leases" in path:
            return self._leases(method, body)
        if not asked.get("resourceVersion", ["1"])[0].isdigit():  # as a real one of 1.20 answers
            return 500, iter([b'{"kind": "Status", "message": "resourceVersion: Invalid value"}'])
        if path in LISTS and asked.get("watch") in (["true"], ["True"]):
            until = time.monotonic() + float(asked["timeoutSeconds"][0])
            since = int(asked["resourceVersion"][0])
            return 200, self._watch(path, since, lambda: goes_on() and time.monotonic() < until)
        with self.lock:
            if path in LISTS:
                found = [i for name, i in self.items.items() if path.split("/")[-1] in name]
                meta = {"resourceVersion": str(self.version)}
                return 200, iter([json.dumps({"items": found, "metadata": meta}).encode()])
            if method == "POST" and path.endswith("/binding"):
                self._bind(path.removesuffix("/binding"), json.loads(body))
                return 201, iter([b'{"kind": "Status"}'])
            if (one := self.items.get(path)) is None:
                return 404, iter([b'{"kind": "Status", "message": "not found"}'])
            return 200, iter([json.dumps(one).encode()])

    def _bind(self, path: str, binding: Any) -> None:
        one = json.loads(json.dumps(self.items[path]))
        one["metadata"]["annotations"] |= binding["metadata"]["annotations"]
        one["spec"]["nodeName"] = binding["target"]["name"]
        one["status"]["phase"] = "Running"
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.items[path] = one
        self.log.append((self.version, "/api/v1/pods", one))
        self.lock.notify_all()

    def _watch(self, path: str, since: int, goes_on: Callable[[], bool]) -> Iterator[bytes]:
        while goes_on():
            with self.lock:
                self.lock.wait(0.05)
                news = [(v, one) for v, of, one in self.log if v > since and of == path]
            for version, one in news:
                since = version
                yield json.dumps({"type": "MODIFIED", "object": one}).encode() + b"\n"

    def _leases(self, method: str, body: bytes) -> tuple[int, Iterator[bytes]]:
        with self.lock:
            if method != "GET":
                new, now = (
                    ((i or {}).get("metadata") or {}) for i in (json.loads(body), self.lease)
                )
                if new.get("resourceVersion") != now.get("resourceVersion"):
                    return 409, iter([b'{"kind": "Status", "message": "of another version"}'])
                self.lease = json.loads(body)
                self.lease["metadata"]["resourceVersion"] = str(time.monotonic_ns())
            if self.lease is None:
                return 404, iter([b"{}"])
            return 200, iter([json.dumps(self.lease).encode()])


def behind(server: str, token: str, context: Any) -> Upstream:
    """A real API server, asked as the user of a token."""
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(*handlers)

    def upstream(
        method: str, path: str, body: bytes, goes_on: Callable[[], bool]
    ) -> tuple[int, Iterator[bytes]]:
        head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(server + path, body or None, head, method=method)
        try:
            answer = opener.open(asked, timeout=70.0)
        except urllib.error.HTTPError as error:
            return error.code, iter([error.read()])

        def lines() -> Iterator[bytes]:
            with answer:
                for line in answer:
                    yield line
                    if "watch=true" in path.lower() and not goes_on():
                        return

        return answer.status, lines()

    return upstream

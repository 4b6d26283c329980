"""The API in a process of its own, on loopback: what clients cannot do to it, and what it keeps."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gangwise.engines.engine import EngineNode
from gangwise.service import api, listening
from gangwise.service.listening import Listening
from gangwise.service.loop import Service
from gangwise.service.state import ServiceState
from tests.service.pretend import Pretend
from tests.service.test_api import OPERATOR, READER, Made, client, with_token
from tests.waiting import until


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"reader {READER}\noperator {OPERATOR}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    engine = Pretend([EngineNode("n0", {"gpu": 4000})])
    service = Service(engine, tmp_path / "state", "fcfs+easy+best-fit", act=True)
    engine.submit("7")
    service.tick(0.0)
    yield service
    service.close()


@pytest.mark.full
def test_idle_connections_keep_nobody_out(service: Service, tokens: Path, tmp_path: Path) -> None:
    """1,100 of them: others are answered, wishes are kept, and the service goes on placing."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limit[1]), limit[1]))
    door = Listening(tmp_path / "state", "127.0.0.1", 0, tokens)
    held = []
    try:
        url = f"http://127.0.0.1:{door.port}"
        with httpx.Client(base_url=url, trust_env=False, timeout=30.0) as web:
            assert web.get("/api/health").status_code == 200
        for _ in range(1100):
            held.append(socket.create_connection(("127.0.0.1", door.port), timeout=30.0))
        open_files = f"/proc/{door.process.pid}/fd"  # a connection is cut a moment after the next
        until(lambda: len(os.listdir(open_files)) < listening.CONNECTIONS + 60)
        with httpx.Client(base_url=url, trust_env=False, timeout=30.0) as web:
            assert web.get("/api/health").json()["engine"] == "pretend"
            headers = with_token(OPERATOR)
            wish = web.post("/api/cancel", json={"job": "7"}, headers=headers).json()
            assert wish["state"] == "accepted"
            service.engine.submit("8")
            service.tick(0.0)
            assert ("place", "8", 1) in service.engine.calls
            told = web.get(f"/api/wishes/{wish['id']}").json()
            assert (told["state"], told["what"]) == ("done", "cancel")
            assert web.get("/api/wishes/99").status_code == 404
            for name in ("--user=root", "9", "-1", "7 8", "../7"):
                answer = web.post("/api/cancel", json={"job": name}, headers=headers)
                assert answer.status_code == 404, "names come from the ledger only"
            door.process.kill()
            door.process.wait()
            door._began = time.monotonic()
            assert not door.revive(), "not at once"
            door._began -= 10.0
            assert door.revive()
            assert web.get("/api/health").status_code == 200
    finally:
        for one in held:
            one.close()
        door.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


POST = "POST /api/pause HTTP/1.1\r\nHost: localhost\r\n"


def raw(port: int, text: str) -> bytes:
    """What is answered to something that is not all of a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as one:
        one.sendall(text.encode())
        return one.recv(1000)


def test_slow_requests_are_cut(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS", 0.2)
    monkeypatch.setattr(api, "SLOW", 0.2)
    with client(Made(), tokens) as web:
        port = web.base_url.port
        assert port is not None
        assert raw(port, "") == b"", "nothing was said"
        assert raw(port, "GET /api/health HTTP/1.1\r\nHost: loc") == b"", "half a head"
        begun = (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\nAuthorization: "
        )
        slow = raw(port, f'{begun}Bearer {OPERATOR}\r\n\r\n{{"paus')
        assert b" 408 " in slow


def test_large_bodies_are_refused_unread(tokens: Path) -> None:
    """By the head alone: none of 32 MiB is sent, and there is an answer."""
    with client(Made(), tokens) as web:
        port = web.base_url.port
        assert port is not None
        head = f"{POST}Content-Length: 33554432\r\n"
        assert b" 401 " in raw(port, f"{head}\r\n")
        chunked = (
            "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert b" 401 " in raw(port, chunked)
        assert b" 403 " in raw(port, f"{head}Authorization: Bearer {READER}\r\n\r\n")
        assert b" 413 " in raw(port, f"{head}Authorization: Bearer {OPERATOR}\r\n\r\n")
        many = web.post("/api/pause", content=b" " * 70_000, headers=with_token(OPERATOR))
        assert many.status_code == 413


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("baseline", b'{"every": NaN}'),
        ("baseline", b'{"every": Infinity}'),
        ("baseline", b'{"every": 1e999}'),
        ("cancel", b'{"job": "\\ud800"}'),
        ("cancel", b'{"job": "\xff"}'),
        ("cancel", b'{"job": ' + b"[" * 30_000),
        ("pause", b""),
        ("pause", b"9" * 5000),
    ],
)
def test_what_is_no_json_is_400(tokens: Path, path: str, body: bytes) -> None:
    state = Made()
    with client(state, tokens) as web:
        headers = {**with_token(OPERATOR), "Content-Type": "application/json"}
        assert web.post(f"/api/{path}", content=body, headers=headers).status_code == 400
        assert web.get("/api/timeline?seconds=nan").status_code == 400
    assert state.asked == []


def test_too_many_requests(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "RATE", 0.001)
    monkeypatch.setattr(api, "BURST", 5.0)
    with client(Made(), tokens) as web:
        codes = [web.get("/api/health").status_code for _ in range(7)]
        assert codes == [200] * 5 + [429] * 2
        assert web.get("/api/health", headers=with_token(READER)).status_code == 200, "another one"


def test_who_only_watches_is_asked_for_nothing(tokens: Path, tmp_path: Path) -> None:
    state = Made()
    state.views["health"]["mode"] = "shadow"
    with client(state, tokens) as web:
        for path, body in (("cancel", {"job": "6"}), ("pause", {"paused": True})):
            answer = web.post(f"/api/{path}", json=body, headers=with_token(OPERATOR))
            assert answer.status_code == 409
    assert state.asked == []
    service = Service(Pretend([EngineNode("n0", {"gpu": 4000})]), tmp_path / "state")
    service.store.ask("pause", True)  # as by an API that is mistaken
    service.tick(0.0)
    (found,) = service.store.requests("id = 1")
    assert (found.state, "only watches" in found.detail) == ("refused", True)
    assert not service.ledger.paused
    service.close()


def test_what_cannot_be_done_is_refused_with_a_reason(service: Service) -> None:
    asked = [("cancel", "99"), ("pause", True), ("every", "x"), ("cancel", {"a": 1}), ("rm", 1)]
    for what, value in asked:
        service.store.ask(what, value)
    service.tick(0.0)
    found = service.store.requests("1")
    assert [w.state for w in found] == ["refused", "done", "refused", "refused", "refused"]
    assert service.ledger.paused
    assert "99" in found[0].detail


def test_a_wish_is_kept_wherever_the_service_dies(tmp_path: Path) -> None:
    """Before it looked, after it did it, and after that was saved; then again from the start."""

    class Killed(BaseException):
        pass

    engine = Pretend([EngineNode("n0", {"gpu": 4000})])
    state = tmp_path / "state"
    for step, line in enumerate(("_fulfil_requests", "_save", "_act") * 2):
        service = Service(engine, state, "fcfs+easy+best-fit", act=True)
        paused = step % 2 == 0
        service.tick(0.0)
        operator = ServiceState(state)
        number = operator.add_request("pause", paused)
        operator.close()

        def dies(*_: Any) -> None:
            raise Killed

        setattr(service, line, dies)
        with pytest.raises(Killed):
            service.tick(0.0)
        service.store.close()
        os.close(service._lock)
        again = Service(engine, state, "fcfs+easy+best-fit", act=True)
        again.tick(0.0)
        assert again.ledger.paused is paused
        (found,) = again.store.requests("id = ?", number)
        assert found.state == "done"
        again.close()


@pytest.mark.full
def test_killed_after_202(tmp_path: Path, tokens: Path) -> None:
    """The whole command, killed before its loop can have looked; what was promised is kept."""
    state = tmp_path / "state"
    command = [sys.executable, "-m", "gangwise", "serve", "--engine", "local", "--act", "--state"]
    command += [str(state), "--http", "0", "--tokens", str(tokens), "--account-every", "0"]

    def start() -> tuple[subprocess.Popen[bytes], int]:
        with open(tmp_path / "said", "w") as file:
            process = subprocess.Popen(command, stderr=file)

        def port() -> re.Match[str] | None:
            assert process.poll() is None, (tmp_path / "said").read_text()
            return re.search(r"http://.*:(\d+)\n", (tmp_path / "said").read_text())

        return process, int(until(port)[1])

    process, port = start()
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, trust_env=False, timeout=30.0) as web:
            until(lambda: _answers(web))
            process.send_signal(signal.SIGSTOP)  # so that the loop does nothing meanwhile
            answer = web.post("/api/pause", json={"paused": True}, headers=with_token(OPERATOR))
            assert answer.status_code == 202
        process.kill()
        process.wait()
        until(lambda: _refuses(port))  # the process of the API ends with it
        store = ServiceState(state)
        found = store.get_request(1)
        assert found is not None
        assert (found.what, found.state) == ("pause", "accepted")
        process, port = start()
        until(lambda: (w := store.get_request(1)) is not None and w.state == "done")
        until(lambda: json.loads(json.dumps(store.view("health")))["paused"])
        store.close()
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30.0)


def _answers(web: httpx.Client) -> bool:
    try:
        return web.get("/api/health").json().get("mode") == "act"
    except httpx.TransportError:
        return False


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return True
    return False

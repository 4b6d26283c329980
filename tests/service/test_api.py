"""HTTP over a state made by hand, fuzzed from its own document, and its page in a browser."""

from __future__ import annotations

import math
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families

from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.engines.background import moment
from gangwise.engines.engine import Placed
from gangwise.service.api import create_app
from gangwise.service.ledger import Intent
from gangwise.service.listening import server
from gangwise.service.state import ServiceState, explained, in_terminal, present, read_tokens
from gangwise.service.store import FILE, OperatorRequest, ServiceStore

LEFT = "left alone: unreadable, because"
READER, OPERATOR = "reader-token-0123456789", "operator-token-0123456789"


class Made:
    """A cluster of two nodes: one gang runs on both, one job waits, one has ended."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.jobs = {"6", "<b>7</b>"}
        self.silent = 0.0
        now = time.time()
        common = {"job_type": "train", "user": "ada", "tasks": 2, "demand": {"gpu": 1.0}}
        common |= {"submitted": now - 100, "limit": math.inf, "attempt": 1}
        node = {"devices": {"gpu": 4.0}, "labels": {"model": "a"}, "declared": 1.0, "reason": ""}
        self.views: dict[str, Any] = {
            "health": {"well": True, "mode": "act", "engine": "made", "scheduler": "fcfs"}
            | {"waiting": 1, "running": 1, "placed": 0, "counts": {"rounds": 3}, "troubles": {}},
            "nodes": [
                {"name": "n1", "up": True, "free": {"gpu": 3.0}, **node}
                | {"factor": 0.5, "low": 0.4, "high": 0.6},
                {"name": "n2", "up": False, "free": {"gpu": 0.0}, **node, "reason": "drained"},
            ],
            "queue": [
                {"job": "<b>7</b>", "phase": "waiting", "why": "4 gpu do not fit", "where": []}
                | {"since": now - 60, "until": math.inf, **common}
            ],
            "running": [
                {"job": "6", "phase": "running", "nodes": [["n1", 1], ["n2", 1]], "by": "scheduler"}
                | {"since": now - 50, "rate": math.nan, **common}
            ],
            "held": [{"job": "8", "why": "1 of its 2 pods are there"}],
            "unreadable": [{"kind": "node", "name": "n3", "why": f"{LEFT} cpu is -1"}],
            "slow": [{"node": "n1", "slower": 0.5, "low": 0.4, "high": 0.6}],
            "rates": {
                "nodes": ["n1", "n2"],
                "types": [
                    {"job_type": "train", "rate": [0.5, 1], "low": [0.4, 0.5], "high": [0.6, 2]}
                ],
            },
        }
        self.ended = [
            {"seq": 1, "job": "5", "job_type": "train", "user": "ada", "submitted": now - 300}
            | {"first": now - 200, "started": now - 200, "ended": now - 110, "tasks": 1}
            | {"outcome": "finished", "by": "scheduler", "rate": 1.0}
            | {"body": {"placed": [["n1", 1, []]]}}
        ]

    def view(self, name: str) -> Any:
        return self.views.get(name)

    def age(self) -> float:
        return self.silent

    def latencies(self, until: str, bounds: Sequence[float]) -> tuple[list[float], float]:
        return [*(2.0 * (bound >= 1.0) for bound in bounds), 3.0], 7.5

    def decisions(self, limit: int) -> list[dict[str, Any]]:
        row = {"seq": 1, "job": "6", "attempt": 1, "kind": "place", "placed": [["n1", 1, []]]}
        row |= {"by": "scheduler", "state": "started", "decided": 1.0, "detail": ""}
        return [row | {"accepted": 1.1, "started": 1.2, "ended": None}][:limit]

    def history(self, since: float, limit: int) -> list[dict[str, Any]]:
        return [row for row in self.ended if row["ended"] >= since][:limit]

    def shown(self) -> list[dict[str, Any]]:
        held = [{**row, "phase": "held"} for row in self.views["held"]]
        return [*self.views["queue"], *held, *self.views["running"]]

    def job(self, name: str) -> dict[str, Any]:
        for row in [*self.views["queue"], *self.views["running"], *self.ended]:
            if row["job"] == name:
                return dict(row)
        raise UnknownName("job", name, ["5", "6"])

    def knows(self, job: str) -> bool:
        return job in self.jobs

    def add_request(self, what: str, value: Any) -> int:
        self.asked.append((what, value))
        return len(self.asked)

    def get_request(self, number: int) -> OperatorRequest | None:
        if number > len(self.asked):
            return None
        return OperatorRequest(number, *self.asked[number - 1], "accepted", 1.0, None, "")


class Listening:
    """The server of an application in a thread of this process, with the limits that it has."""

    def __init__(self, app: Any):
        self._server = server(app)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10.0)
        self._socket.close()


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# ours\nreader {READER}\n\noperator {OPERATOR}  # ada\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def state() -> Made:
    return Made()


@contextmanager
def client(state: Made, tokens: Path, host: str = "127.0.0.1") -> Iterator[httpx.Client]:
    """Over a socket of this host, as if the service listened on ``host``."""
    listening = Listening(create_app(state, read_tokens(tokens), host=host))
    url = f"http://127.0.0.1:{listening.port}"
    with httpx.Client(base_url=url, trust_env=False) as web:
        yield web
    listening.close()


@pytest.fixture
def web(state: Made, tokens: Path) -> Iterator[httpx.Client]:
    with client(state, tokens) as web:
        yield web


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_what_is_shown(web: httpx.Client) -> None:
    assert web.get("/api/health").json()["running"] == 1
    assert [n["name"] for n in web.get("/api/nodes").json()] == ["n1", "n2"]
    jobs = {j["job"]: j["phase"] for j in web.get("/api/jobs").json()}
    assert jobs == {"<b>7</b>": "waiting", "8": "held", "6": "running", "5": "finished"}
    assert [j["job"] for j in web.get("/api/jobs?phase=held").json()] == ["8"]
    assert [j["job"] for j in web.get("/api/jobs?phase=ended").json()] == ["5"]
    assert web.get("/api/jobs?user=bo").json() == []
    assert web.get("/api/unreadable").json()[0]["name"] == "n3"
    job = web.get("/api/job", params={"id": "<b>7</b>"}).json()
    assert (job["why"], job["until"]) == ("4 gpu do not fit", None)
    assert "known: 5, 6" in web.get("/api/job?id=9").json()["detail"].lower()
    assert web.get("/api/decisions").json()[0]["state"] == "started"
    rates = web.get("/api/rates").json()
    assert rates["types"][0]["high"] == [0.6, 2.0]
    assert rates["slow"][0]["node"] == "n1"
    pieces = web.get("/api/timeline?seconds=3600").json()["pieces"]
    assert [(p["job"], p["node"]) for p in pieces] == [("6", "n1"), ("6", "n2"), ("5", "n1")]
    assert len(web.get("/api/timeline?seconds=60").json()["pieces"]) == 2


def test_what_ended_lately_is_by_the_clock_of_the_service(web: httpx.Client, state: Made) -> None:
    """A day behind that of this machine, of which job 5 would have ended a day ago."""
    state.views["health"] |= {"now": time.time() - 86_400.0, "heard": moment()}
    state.ended[0] |= {"started": time.time() - 86_600.0, "ended": time.time() - 86_500.0}
    assert [j["job"] for j in web.get("/api/jobs?phase=ended").json()] == ["5"]
    assert "5" in {p["job"] for p in web.get("/api/timeline?seconds=600").json()["pieces"]}


def test_metrics_are_read_by_prometheus_own_parser(web: httpx.Client, state: Made) -> None:
    def read() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(web.get("/metrics").text)
        samples = (sample for family in families for sample in family.samples)
        return {(s.name, *s.labels.values()): s.value for s in samples}

    found = read()
    assert found["gangwise_jobs", "waiting"] == 1
    assert found["gangwise_node_up", "n2"] == 0
    assert found["gangwise_node_speed_ratio", "low", "n1"] == 0.4
    assert found["gangwise_well",] == 1
    assert found["gangwise_unreadable", "node"] == 1
    name = "gangwise_latency_seconds_bucket"
    late = {frozenset(k[1:]): v for k, v in found.items() if k[0] == name}
    assert late[frozenset(("started", "0.5"))] == 0
    assert late[frozenset(("started", "2.0"))] == 2
    assert late[frozenset(("accepted", "+Inf"))] == 3
    assert found["gangwise_latency_seconds_sum", "started"] == 7.5
    state.silent = 100.0
    assert read()["gangwise_well",] == 0, "a service that says nothing is not well"
    state.views.clear()
    assert read()["gangwise_well",] == 0


def test_times_are_told_by_the_clock_of_the_service() -> None:
    """It may be an hour behind that of the browser, or of the terminal."""
    boot, seconds = moment()
    trouble = {"engine": {"since": 940.0, "what": "refused"}}
    health = {"now": 1000.0, "heard": [boot, seconds - 30.0], "troubles": trouble}
    assert present(health) == pytest.approx(1030.0, abs=1.0)
    assert "engine has been failing for 1.5 min: refused" in list(in_terminal({"health": health}))
    waits = {"job": "7", "phase": "waiting", "tasks": 1, "demand": {"gpu": 1}, "why": "4 gpu"}
    waits |= {"submitted": 910.0, "since": 940.0, "where": []}
    assert "waits for 1.5 min" in explained(waits, 1000.0)


def test_latencies_are_counted_from_what_was_decided(tmp_path: Path) -> None:
    """Against a count one by one; a preemption and what never started are none of them."""
    rng = np.random.default_rng(0)
    accepted, started = rng.exponential(0.5, 40), 1.0 + rng.exponential(3.0, 40)
    store = ServiceStore(tmp_path / FILE)
    on = (Placed("n1", 1),)
    kinds = ["preempt" if j % 10 == 3 else "place" for j in range(40)]
    intents = [(100.0, Intent(kind, str(j), 1, on, "scheduler")) for j, kind in enumerate(kinds)]
    states = [
        (state, 100.0 + float(after[j]), kind, str(j), 1, "")
        for state, after in (("accepted", accepted), ("started", started))
        for j, kind in enumerate(kinds)
        if state == "accepted" or j % 4
    ]
    store.commit(intents=intents, states=states)
    store.close()
    state = ServiceState(tmp_path)
    placed = np.array([kind == "place" for kind in kinds])
    starts = placed & (np.arange(40) % 4 > 0)
    bounds = (0.1, 0.5, 2.0, 5.0)
    for until, times in (("accepted", accepted[placed]), ("started", started[starts])):
        within, total = state.latencies(until, bounds)
        assert within == [*((times <= bound).sum() for bound in bounds), times.size]
        assert total == pytest.approx(times.sum(), abs=1e-4)
    state.close()


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("cancel", {"job": "6"}, ("cancel", "6")),
        ("pause", {"paused": True}, ("pause", True)),
        ("baseline", {"every": 5}, ("every", 5)),
    ],
)
def test_only_operators_act(
    web: httpx.Client, state: Made, path: str, body: Any, asked: tuple[str, Any]
) -> None:
    post = f"/api/{path}"
    assert web.post(post, json=body).status_code == 401
    assert web.post(post, json=body, headers=with_token("wrong" * 5)).status_code == 401
    assert web.post(post, json=body, headers=with_token(READER)).status_code == 403
    assert state.asked == []
    assert web.post(post, json=body, headers=with_token(OPERATOR)).status_code == 202
    assert state.asked == [asked]
    bad = web.post(post, json={**body, "more": 1}, headers=with_token(OPERATOR))
    assert bad.status_code == 422


def test_beyond_this_host_reading_needs_a_token(state: Made, tokens: Path) -> None:
    with client(state, tokens, "0.0.0.0") as web:
        assert web.get("/api/nodes").status_code == 401
        assert web.get("/metrics").status_code == 401
        assert web.get("/api/nodes", headers=with_token(READER)).status_code == 200
        assert web.get("/").status_code == 200, "the page itself holds nothing; it asks for a token"


def test_a_name_that_is_not_ours_is_refused(web: httpx.Client) -> None:
    """As a page of somebody else's would, whose name was made to point here."""
    assert web.get("/api/nodes", headers={"Host": "evil.example"}).status_code == 400


def test_a_file_that_cannot_be_read_now(
    web: httpx.Client, state: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(_: str) -> Any:
        raise StoreError("service.sqlite: database is locked")

    monkeypatch.setattr(state, "view", locked)
    answer = web.get("/api/nodes")
    assert (answer.status_code, answer.json()["detail"][-6:]) == (503, "locked")


@pytest.mark.parametrize(
    "line", ["root 0123456789abcdef", "reader short", "reader", "operator a b c"]
)
def test_bad_tokens_are_named_by_row(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"reader {READER}\n{line}\n")
    path.chmod(0o600)
    with pytest.raises(ScenarioError, match="row 2"):
        read_tokens(path)
    path.chmod(0o640)
    with pytest.raises(ScenarioError, match="chmod 600"):
        read_tokens(path)


# ------------------------------------------------------------------------------ its own document


@pytest.mark.full
def test_fuzzed_from_its_own_document() -> None:
    """No answer but those it promises, in the shape it promises; 401 for whoever would act."""
    import schemathesis  # takes a second, which every process of the short tests would spend

    listening = Listening(create_app(Made()))
    document = schemathesis.openapi.from_url(f"http://127.0.0.1:{listening.port}/openapi.json")
    tried: dict[str, int] = {}

    for found in document.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        def holds(case: schemathesis.Case) -> None:
            answer = case.call_and_validate()
            assert answer.status_code < 500
            if case.method == "POST":
                assert answer.status_code in (401, 422)
            tried[case.path] = tried.get(case.path, 0) + 1

        holds()
    listening.close()
    assert {"/api/health", "/api/jobs", "/api/job", "/api/cancel", "/metrics"} <= tried.keys()


# ------------------------------------------------------------------------------------ the page


@pytest.fixture
def served(state: Made) -> Iterator[str]:
    listening = Listening(create_app(state))
    yield f"http://127.0.0.1:{listening.port}/"
    listening.close()


def test_the_page_in_a_browser(served: str, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        pytest.skip("no chromium here: install Debian's package of that name")
    command = f"{chromium} --headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    command += "--disable-background-networking --disable-component-update --disable-sync "
    command += f"--user-data-dir={tmp_path} --virtual-time-budget=4000 --dump-dom {served}"
    seen = subprocess.run(command.split(), capture_output=True, text=True, timeout=60).stdout
    text = re.sub(r"\s+", " ", seen)
    assert "acts on made with fcfs" in text
    assert "4 gpu do not fit" in text
    assert "&lt;b&gt;7&lt;/b&gt;" in text, "what users write is never markup"
    assert "n1 is 50 % slower than its label says (40 to 60)" in text
    assert "down: drained" in text
    assert "8 is held: 1 of its 2 pods are there" in text
    assert f"node n3 is {LEFT} cpu is -1" in text
    assert "as of " in text


def test_the_page_asks_nobody_else(served: str) -> None:
    folder = Path(__file__).parents[2] / "src" / "gangwise" / "service" / "page"
    for file in folder.iterdir():
        assert not re.search(r"https?://|//[a-z]+\.", file.read_text()), file


def test_what_is_no_http_leaves_no_traceback(served: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also behind a head that is right, where the application has begun to answer."""
    port = int(served.rstrip("/").rpartition(":")[2])
    head = b"HTTP/1.1\r\nHost: localhost\r\n"
    wrong = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /api/pause " + head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /api/jobs " + head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /api/jobs " + head + b"\r\n\x00\x00\r\n\r\n",
        b"POST /api/pause " + head + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
    ]
    for request in wrong:
        for pieces in ([request], request.partition(b"\r\n\r\n")):
            with socket.create_connection(("127.0.0.1", port), 10.0) as client:
                for piece in pieces:
                    client.sendall(piece)
                    time.sleep(0.02 if len(pieces) > 1 else 0.0)
                with suppress(OSError):
                    while client.recv(1 << 16):
                        pass
    assert httpx.get(served + "api/health").status_code == 200
    assert [record for record in caplog.records if record.exc_info] == []

"""HTTP: what the service shows, for pages, programs and Prometheus; and what operators may do.

Without a token a client on this host may read, and nothing else. Where the service listens beyond
this host, reading needs a token too. Tokens have one of two roles: ``reader``, or ``operator``,
who may also cancel jobs, pause placing, and set the baseline's share.
"""

import asyncio
import hmac
import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gangwise import __version__
from gangwise.core.errors import StoreError, UnknownName
from gangwise.core.settings import finite
from gangwise.engines import background
from gangwise.engines import engine as engines
from gangwise.service.state import STALE, Role, ServiceState, digest, is_loopback, present
from gangwise.service.store import What

PAGE = {"": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
BODY = 64 * 1024  # bytes of a request's body
SLOW = 10.0  # seconds for sending it
RATE, BURST = 100.0, 400.0  # requests a second of a token or an address, and how many more at once
CLIENTS = 10_000  # of so many the rates are remembered
LATENCIES = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # upper bounds of the histogram
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
SAFE = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; "
    b"connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}


# Shapes


class ApiModel(BaseModel):
    """What is answered; more may come with later versions."""

    model_config = ConfigDict(extra="allow")


class Trouble(ApiModel):
    """What is not well, and since when (seconds since 1970)."""

    since: float
    what: str


class Health(ApiModel):
    """State of the service and its cluster."""

    well: bool
    age: float | None = Field(description="Seconds since the service last said anything.")
    now: float = Field(0.0, description="Time by the service's clock, as all times that it gives.")
    version: str = ""
    mode: str = ""
    engine: str = ""
    scheduler: str = ""
    paused: bool = False
    baseline_every: int = 0
    waiting: int = 0
    placed: int = 0
    running: int = 0
    round_ms: float = 0.0
    troubles: dict[str, Trouble] = {}
    notes: list[str] = []
    counts: dict[str, int] = {}


class NodeShown(ApiModel):
    """A node; ``factor`` is its speed ÷ that of its label, with 95 % bounds, where learned."""

    name: str
    up: bool
    reason: str = ""
    devices: dict[str, float]
    free: dict[str, float]
    labels: dict[str, str] = {}
    declared: float | dict[str, float] = 1.0
    factor: float | None = None
    low: float | None = None
    high: float | None = None


class JobShown(ApiModel):
    """A job; why it waits, or where it runs or ran.

    ``cause`` is as in the causes of waiting of a replay, ``users`` whose jobs hold what it waits
    for, or for whose it is kept. ``until`` is when the reason is expected to end, ``frees`` whose
    end would let it start, and ``p50`` and ``p90`` the times by which it starts with an even chance
    and in nine cases of ten.
    """

    job: str
    phase: str
    job_type: str = ""
    user: str = ""
    tasks: int = 1
    submitted: float | None = None
    since: float | None = None
    why: str | None = None
    cause: str = ""
    users: list[str] = []
    where: list[str] = []
    until: float | None = None
    frees: list[str] = []
    p50: float | None = None
    p90: float | None = None


class Decision(ApiModel):
    """What was decided, and what it came to: intended → accepted → started → ended."""

    seq: int
    job: str
    attempt: int
    kind: str
    by: str
    state: str
    decided: float
    accepted: float | None = None
    started: float | None = None
    ended: float | None = None
    detail: str = ""
    placed: list[Any] = []


class TypeRates(ApiModel):
    """Rates of a job type, one for each node."""

    job_type: str
    rate: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Rates(ApiModel):
    """Believed rates, work per second of a node of rate 1, with 95 % bounds."""

    nodes: list[str] = []
    types: list[TypeRates] = []
    slow: list[dict[str, Any]] = Field([], description="Nodes slower than their label says.")


class Piece(ApiModel):
    """Tasks of a gang that ran on a node for some time."""

    job: str
    job_type: str
    user: str
    node: str
    tasks: int
    began: float
    ended: float | None
    by: str
    outcome: str


class Timeline(ApiModel):
    """Gangs that ran lately, node by node."""

    now: float
    since: float
    pieces: list[Piece]


class Problem(BaseModel):
    """Why a request was refused, or failed."""

    detail: Any


class Cancel(BaseModel):
    """A job to be ended for good."""

    model_config = ConfigDict(extra="forbid")
    job: str = Field(min_length=1, max_length=engines.NAME)


class Pause(BaseModel):
    """Whether placing is to be paused."""

    model_config = ConfigDict(extra="forbid", strict=True)
    paused: bool


class Share(BaseModel):
    """One of so many jobs goes where the baseline places it; 0 for none."""

    model_config = ConfigDict(extra="forbid", strict=True)
    every: int = Field(ge=0, le=1_000_000)


class Unreadable(ApiModel):
    """What is left alone, because it cannot be read."""

    kind: str
    name: str
    why: str


class WishShown(BaseModel):
    """What an operator asked for; ``accepted`` is on the disk, and done at one of the next ticks.

    ``detail`` says why it was refused.
    """

    id: int
    what: str
    value: Any
    state: str
    asked: float
    told: float | None = None
    detail: str = ""


# The guard


class Guard:
    """Checks tokens, rates and sizes before the application sees a request.

    ``tokens`` are as :func:`read_tokens` gives them; where it is ``private``, reading needs one.
    """

    def __init__(self, app: ASGIApp, tokens: dict[str, Role], private: bool):
        self._app, self._tokens, self._private = app, tokens, private
        self._left: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                # What an answer says itself goes before these.
                present_names = {name.lower() for name, _ in message["headers"]}
                headers = [(k, v) for k, v in SAFE.items() if k not in present_names]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        refused = self._refused(scope)
        # Read whole first, so that neither a slow nor a large body occupies the application.
        if refused is None and scope["method"] not in SAFE_METHODS:
            body, refused = await self._body(scope, receive)
            buffered = iter([{"type": "http.request", "body": body, "more_body": False}])
            receive_more = receive

            async def receive() -> Message:
                return next(buffered, None) or await receive_more()

        if refused is None:
            await self._app(scope, receive, safely)
            return
        status, reason = refused
        # What is left of a refused body would be read as the next request.
        headers = {"Connection": "close"}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        elif status == 429:
            headers["Retry-After"] = "1"
        await JSONResponse({"detail": reason}, status, headers)(scope, receive, safely)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason of a refusal that the head alone decides."""
        credentials = [v for k, v in scope["headers"] if k == b"authorization"]
        client, role = str((scope.get("client") or ("",))[0]), None
        if credentials:
            kind, _, token = credentials[0].decode("latin-1").partition(" ")
            hashed = digest(token.strip())
            # All are compared, and in constant time: how long it takes says nothing of a token.
            for known_digest, its in self._tokens.items():
                if hmac.compare_digest(known_digest, hashed):
                    client, role = known_digest, its
        # Before the token is judged: guessing is slowed down as well.
        if not self._often(client):
            return 429, f"more than {RATE:g} requests a second"
        if credentials and (role is None or kind.lower() != "bearer"):
            return 401, "unknown token; give Authorization: Bearer TOKEN"
        path, reads = scope["path"], scope["method"] in SAFE_METHODS
        if not reads and role is None:
            return 401, "this needs a token"
        if not reads and role != "operator":
            return 403, "this needs a token of the role operator"
        if self._private and role is None and path.startswith(("/api/", "/metrics")):
            return 401, "reading needs a token here"
        return None

    def _often(self, client: str) -> bool:
        """Whether a client has a request left: a token bucket of BURST, which fills at RATE."""
        instant = time.monotonic()
        # Taken out and put in again at the end, so that the first of the table was longest silent.
        tokens, since = self._left.pop(client, (BURST, instant))
        tokens = min(tokens + (instant - since) * RATE, BURST)
        self._left[client] = max(tokens - 1.0, 0.0), instant
        if len(self._left) > CLIENTS:
            del self._left[next(iter(self._left))]
        return tokens >= 1.0

    async def _body(self, scope: Scope, receive: Receive) -> tuple[bytes, tuple[int, str] | None]:
        """Read a body within bounds of size and time; it must be JSON, without NaN and Infinity."""
        declared, body, unfinished = dict(scope["headers"]).get(b"content-length", b"0"), b"", True
        # int() of a text of a million digits is slow, so nine are read; the
        # sum below bounds the rest.
        if not declared.isdigit() or int(declared[:9]) > BODY:
            return b"", (413, f"a body has at most {BODY} bytes")
        try:
            async with asyncio.timeout(SLOW):
                while unfinished and len(body) <= BODY:
                    message = await receive()
                    body += message.get("body", b"")
                    unfinished = bool(message.get("more_body"))
        except TimeoutError:
            return b"", (408, f"the body took more than {SLOW:g} s")
        if len(body) > BODY:
            return b"", (413, f"a body has at most {BODY} bytes")
        try:
            # Written once more: json takes lone surrogates and NaN, which no answer could hold.
            json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError) as error:
            return b"", (400, f"the body is not JSON: {engines.clean_text(str(error))}")
        return body, None


# App


def create_app(
    state: ServiceState, tokens: dict[str, Role] | None = None, *, host: str = "127.0.0.1"
) -> FastAPI:
    """The application, for any ASGI server.

    ``tokens`` are as :func:`read_tokens` gives them. Where it will listen on a ``host`` beyond
    loopback, reading needs a token.
    """
    private = not is_loopback(host)
    app = FastAPI(
        title="gangwise",
        version=__version__,
        description=(__doc__ or "").strip(),
        docs_url=None,  # these pages load from other hosts
        redoc_url=None,
    )
    # Only names of this host: a page elsewhere could read us under a name of its own that leads
    # here. The last one is that of Starlette's client, for tests.
    hosts = ["localhost", "127.0.0.1", "[::1]", "testserver"]
    if private:
        hosts += [host] if host not in ("0.0.0.0", "::") else ["*"]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    # Added last and so outermost: it sees a request before anything else does.
    app.add_middleware(Guard, tokens=dict(tokens or {}), private=private)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        # Without the input, which may hold what is no JSON.
        errors = [{k: e[k] for k in ("type", "loc", "msg")} for e in error.errors()]
        none = any(e["type"] in ("finite_number", "string_unicode") for e in errors)
        return JSONResponse({"detail": errors}, 400 if none else 422)

    @app.exception_handler(StoreError)
    async def not_now(_: Request, error: StoreError) -> Response:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "2"})

    _add_reading(app, state)
    _add_operating(app, state)
    folder = files("gangwise.service") / "page"
    for name, kind in PAGE.items():
        page = Response((folder / (name or "page.html")).read_bytes(), media_type=kind)
        app.add_route(f"/{name}", partial(_same, page))
    return app


_BEARER = HTTPBearer(auto_error=False, description="A token of role reader or operator.")
_PROBLEMS = {
    400: "NaN, or not UTF-8 text.",
    401: "No token, or one that is not known.",
    403: "A token of role operator is needed.",
    404: "It is not there.",
    408: "The body took too long.",
    409: "The service only watches.",
    413: "The body is too large.",
    429: "Too many requests.",
    503: "The service's file cannot be read now.",
}


def _route(tag: str, *further: int, **more: Any) -> dict[str, Any]:
    """How /openapi.json describes a route: Guard checks tokens before a request comes here."""
    return {
        "dependencies": [Depends(_BEARER)],
        "responses": {
            code: {"model": Problem, "description": _PROBLEMS[code]}
            for code in (400, 401, 429, 503, *further)
        },
        "tags": [tag],
        **more,
    }


_READ, _READ_ONE = _route("read"), _route("read", 404)
_OPERATE = _route("operate", 404, 403, 408, 409, 413, status_code=202)


_UP_TO_A_WEEK = Query(gt=0, le=604_800, allow_inf_nan=False)


def _add_reading(app: FastAPI, state: ServiceState) -> None:
    @app.get("/api/health", **_READ)
    def health() -> Health:
        """State of the service and its cluster, and what is not well."""
        return Health.model_validate(_health(state))

    @app.get("/api/nodes", **_READ)
    def nodes() -> list[NodeShown]:
        """Nodes, what is free on them, how fast they are believed to be."""
        return [NodeShown.model_validate(row) for row in _view(state, "nodes")]

    @app.get("/api/jobs", **_READ)
    def jobs(
        phase: Literal["", "waiting", "held", "placed", "running", "ended"] = "",
        user: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> list[JobShown]:
        """Jobs: those that wait or are held (the first of them), run, or ended in the last day."""
        rows = state.shown()
        if phase in ("", "ended"):
            rows += [_ended(row) for row in state.history(_now(state) - 86_400, limit)]
        wanted = (
            row
            for row in rows
            if (not user or row.get("user") == user)
            and (phase in ("", row["phase"]) or (phase == "ended" and "outcome" in row))
        )
        # Cut while reading: a queue of thousands is not made into rows that nobody sees.
        return [JobShown.model_validate(finite(row)) for row, _ in zip(wanted, range(limit))]

    @app.get("/api/job", **_READ_ONE)
    def job(id: Annotated[str, Query(min_length=1, max_length=engines.NAME)]) -> JobShown:
        """One job: why it waits, since when, what would free it; or where it runs or ran."""
        try:
            row = state.job(id)
        except UnknownName as error:
            raise HTTPException(404, str(error)) from error
        return JobShown.model_validate(finite(_ended(row) if "outcome" in row else row))

    @app.get("/api/decisions", **_READ)
    def decisions(limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> list[Decision]:
        """What was decided, newest first."""
        return [Decision.model_validate(finite(row)) for row in state.decisions(limit)]

    @app.get("/api/rates", **_READ)
    def rates() -> Rates:
        """Believed rates with their uncertainty; nodes that are slower than their label."""
        beliefs = {**(state.view("rates") or {}), "slow": state.view("slow") or []}
        return Rates.model_validate(finite(beliefs))

    @app.get("/api/timeline", **_READ)
    def timeline(seconds: Annotated[float, _UP_TO_A_WEEK] = 3600.0) -> Timeline:
        """Gangs on nodes, of the last seconds."""
        return _timeline(state, seconds)

    @app.get("/api/account", **_READ)
    def account() -> dict[str, Any]:
        """What deciding here would have saved, or saves; empty where nothing is known."""
        return finite(state.view("account") or {})  # type: ignore[no-any-return]  # JSON

    @app.get("/api/unreadable", **_READ)
    def unreadable() -> list[Unreadable]:
        """What of the cluster, its users and the journal is left alone, and why."""
        return [Unreadable.model_validate(row) for row in _view(state, "unreadable")]

    @app.get("/api/wishes/{id}", **_READ_ONE)
    def wished(id: Annotated[int, Path(ge=1, le=2**53)]) -> WishShown:
        """State of a request, and why it was refused."""
        if (request := state.get_request(id)) is None:
            raise HTTPException(404, f"there is no request {id}")
        return WishShown.model_validate(finite(request._asdict()))

    @app.get("/metrics", response_class=Response, **_READ)
    def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        # A registry for this answer alone: the global one has metrics of the process, too.
        registry = CollectorRegistry()
        registry.register(_Metrics(state))
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")


def _add_operating(app: FastAPI, state: ServiceState) -> None:
    def accept(what: What, value: Any) -> WishShown:
        mode = (state.view("health") or {}).get("mode")
        if mode != "act":
            reason = "only watches (--shadow)" if mode else "has not said anything yet"
            raise HTTPException(409, f"the service {reason}: nothing is changed")
        request = state.get_request(state.add_request(what, value))
        assert request is not None
        return WishShown.model_validate(request._asdict())

    @app.post("/api/cancel", **_OPERATE)
    def cancel(asked: Cancel) -> WishShown:
        """End a job for good; one that waits or runs."""
        if not state.knows(asked.job):
            raise HTTPException(404, f"no job {asked.job!r} waits or runs")
        return accept("cancel", asked.job)

    @app.post("/api/pause", **_OPERATE)
    def pause(asked: Pause) -> WishShown:
        """Place nothing, or go on; what runs is left alone."""
        return accept("pause", asked.paused)

    @app.post("/api/baseline", **_OPERATE)
    def baseline(asked: Share) -> WishShown:
        """Set the share of jobs that go where the baseline has them."""
        return accept("every", asked.every)


# What is shown


def _same(page: Response, _: Request) -> Response:
    return page


def _view(state: ServiceState, name: str) -> Any:
    return finite(state.view(name) or [])


def _now(state: ServiceState) -> float:
    return present(state.view("health") or {})


def _health(state: ServiceState) -> dict[str, Any]:
    shown = state.view("health")
    age = state.age()
    if shown is None:
        return {"well": False, "age": None, "notes": ["the service has not said anything yet"]}
    answered = background.age(shown.get("answered") or background.moment())  # or an old service
    well = bool(shown["well"]) and max(age, answered) < STALE
    derived = {"well": well, "age": age if math.isfinite(age) else None, "now": present(shown)}
    return {**finite(shown), **derived}


def _ended(row: dict[str, Any]) -> dict[str, Any]:
    nodes = [[p[0], p[1]] for p in row["body"].get("placed", ())]
    fields = {k: v for k, v in row.items() if k not in ("body", "seq")}
    return {**fields, "phase": row["outcome"], "since": row["ended"], "nodes": nodes}


def _timeline(state: ServiceState, seconds: float) -> Timeline:
    instant = _now(state)
    gangs = [
        (row, row["nodes"], row["since"], None, "running")
        for row in _view(state, "running")
        if row["phase"] == "running"
    ]
    for row in state.history(instant - seconds, 10_000):
        placed = row["body"].get("placed", ())
        gangs.append((row, placed, row["started"], row["ended"], row["outcome"]))
    pieces = []
    for row, placed, began, ended, outcome in gangs:
        if began is not None and math.isfinite(began):
            names = {name: row[name] for name in ("job", "job_type", "user", "by")}
            span = {"began": began, "ended": ended, "outcome": outcome}
            pieces += [Piece(node=node, tasks=tasks, **names, **span) for node, tasks, *_ in placed]
    return Timeline(now=instant, since=instant - seconds, pieces=pieces)


class _Metrics:
    """What Prometheus collects, read anew at each request."""

    def __init__(self, state: ServiceState):
        self._state = state

    def collect(self) -> Iterator[Metric]:
        yield from self._of_service()
        yield from self._of_nodes()

    def _of_service(self) -> Iterator[Metric]:
        health = _health(self._state)
        well, age = float(health["well"]), health["age"]
        age, round_ms = math.inf if age is None else age, health.get("round_ms", 0.0)
        phases = {(p,): health.get(p, 0) for p in ("waiting", "placed", "running")}
        yield _gauge("well", "1 if the service and its cluster are well", {(): well})
        yield _gauge("age_seconds", "Since the service last said anything", {(): age})
        yield _gauge("jobs", "Jobs by phase", phases, "phase")
        yield _gauge("round_seconds", "The last round of decisions", {(): round_ms / 1000})
        about = "From a decision until the cluster accepts it, and until the job starts"
        late = HistogramMetricFamily("gangwise_latency_seconds", about, labels=["until"])
        for until in ("accepted", "started"):
            # Buckets of Prometheus are cumulative: each has all that the smaller ones have.
            within, total = self._state.latencies(until, LATENCIES)
            names = [*map(str, LATENCIES), "+Inf"]
            late.add_metric([until], list(zip(names, within, strict=True)), total)
        yield late
        unreadable = health.get("unreadable") or {}
        about = "Since the service was started"
        counts = CounterMetricFamily("gangwise_events", about, labels=["kind"])
        for kind, count in (health.get("counts") or {}).items():
            counts.add_metric([kind], count)
        counts.add_metric(["unreadable"], sum(unreadable.values()))
        yield counts
        troubles = {(trouble,): 1.0 for trouble in health.get("troubles") or {}}
        yield _gauge("trouble", "1 for what is not well", troubles, "what")
        # A kind that is no longer there goes to 0, where a missing sample would read as unchanged.
        kinds = [row["kind"] for row in _view(self._state, "unreadable")]
        left_alone = {(kind,): kinds.count(kind) for kind in {*kinds, *unreadable}}
        yield _gauge("unreadable", "What is left alone, as it cannot be read", left_alone, "kind")
        about = "Mean time in which waiting jobs start, by forecast: even chance, nine in ten"
        instant = _now(self._state)
        queue = [row for row in _view(self._state, "queue") if row.get("p50") is not None]
        ahead = {
            (quantile,): sum(max(row[name] - instant, 0.0) for row in queue) / len(queue)
            for name, quantile in (("p50", "0.5"), ("p90", "0.9"))
            if queue
        }
        yield _gauge("start_seconds", about, ahead, "quantile")

    def _of_nodes(self) -> Iterator[Metric]:
        nodes = _view(self._state, "nodes")
        up = {(node["name"],): float(node["up"]) for node in nodes}
        free = {(node["name"], k): amount for node in nodes for k, amount in node["free"].items()}
        speed = {
            (node["name"], bound): node[name]
            for node in nodes
            for name, bound in (("factor", "estimate"), ("low", "low"), ("high", "high"))
            if node.get(name) is not None
        }
        about = "Speed ÷ that of its label: estimate, and bounds of its 95 % interval"
        yield _gauge("node_up", "1 if it takes tasks", up, "node")
        yield _gauge("node_free", "Free devices", free, "node", "device")
        yield _gauge("node_speed_ratio", about, speed, "node", "bound")


def _gauge(name: str, about: str, samples: Mapping[Any, float], *labels: str) -> GaugeMetricFamily:
    """A gauge; ``samples`` has a value for each tuple of the values of its labels."""
    gauge = GaugeMetricFamily(f"gangwise_{name}", about, labels=labels)
    for values, amount in samples.items():
        gauge.add_metric(values, amount)
    return gauge

"""HTTP: what the service shows, for pages, programs and Prometheus; and what operators may do.

Without a token a client on this host may read, and nothing else. Where the service listens beyond
this host, reading needs a token too. Tokens have one of two roles: ``reader``, or ``operator``,
who may also cancel jobs, pause placing, and set the baseline's share.
"""

import hashlib
import hmac
import ipaddress
import math
import socket
import stat
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from gangwise import __version__
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.core.json_text import finite
from gangwise.service.state import State

Role = Literal["reader", "operator"]
STALE = 15.0
"""Seconds without a word after which a service is not well, whatever it said last."""
PAGE = {"": "text/html", "page.css": "text/css", "page.js": "text/javascript"}


# ---------------------------------------------------------------------------------------- tokens


def read_tokens(file: Path | str) -> dict[str, Role]:
    """Tokens by their SHA-256, out of lines ``reader TOKEN`` and ``operator TOKEN``.

    Raises
    ------
    ScenarioError
        When others may read the file, or a line is not of that form.
    """
    path = Path(file)
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ScenarioError(f"{path}: tokens cannot be read: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ScenarioError(f"{path}: others may read these tokens; chmod 600 {path}")
    found: dict[str, Role] = {}
    for row, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        role = words[0]
        if len(words) != 2 or role not in ("reader", "operator") or len(words[1]) < 16:
            raise ScenarioError(
                f"{path}, row {row}: write 'reader TOKEN' or 'operator TOKEN', with at least 16 "
                "characters in a token"
            )
        found[_digest(words[1])] = "reader" if role == "reader" else "operator"
    return found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether nobody else can reach it.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---------------------------------------------------------------------------------------- shapes


class Shown(BaseModel):
    """What is answered; more may come with later versions."""

    model_config = ConfigDict(extra="allow")


class Trouble(Shown):
    """What is not well, and since when (seconds since 1970)."""

    since: float
    what: str


class Health(Shown):
    """How the service and its cluster are."""

    well: bool
    age: float | None = Field(description="Seconds since the service last said anything.")
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


class NodeShown(Shown):
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


class JobShown(Shown):
    """A job; why it waits, or where it runs or ran.

    ``until`` is when the reason is expected to end, ``frees`` whose end would let it start, and
    ``start`` when it is expected to start if all others take as long as requested.
    """

    job: str
    phase: str
    job_type: str = ""
    user: str = ""
    tasks: int = 1
    submitted: float | None = None
    since: float | None = None
    why: str | None = None
    where: list[str] = []
    until: float | None = None
    frees: list[str] = []
    start: float | None = None


class Decision(Shown):
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


class TypeRates(Shown):
    """Rates of a job type, one a node."""

    job_type: str
    rate: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Rates(Shown):
    """Believed rates, work per second of a node of rate 1, with 95 % bounds."""

    nodes: list[str] = []
    types: list[TypeRates] = []
    slow: list[dict[str, Any]] = Field([], description="Nodes slower than their label says.")


class Piece(Shown):
    """A gang on a node, for some time."""

    job: str
    job_type: str
    user: str
    node: str
    tasks: int
    began: float
    ended: float | None
    by: str
    outcome: str


class Timeline(Shown):
    """Who ran where."""

    now: float
    since: float
    pieces: list[Piece]


class Problem(BaseModel):
    """Why not."""

    detail: Any


class Cancel(BaseModel):
    """A job to be ended for good."""

    model_config = ConfigDict(extra="forbid")
    job: str = Field(min_length=1, max_length=300)


class Pause(BaseModel):
    """Whether nothing is to be placed."""

    model_config = ConfigDict(extra="forbid", strict=True)
    paused: bool


class Share(BaseModel):
    """Of how many jobs one goes where the baseline has it; 0 for none."""

    model_config = ConfigDict(extra="forbid", strict=True)
    every: int = Field(ge=0, le=1_000_000)


class Accepted(BaseModel):
    """It will be done at the next tick; health and decisions tell what came of it."""

    asked: str


# ------------------------------------------------------------------------------------------- app


def create_app(
    state: State,
    tokens: dict[str, Role] | None = None,
    *,
    host: str = "127.0.0.1",
    names: Iterable[str] = (),
) -> FastAPI:
    """The application, for any ASGI server.

    Parameters
    ----------
    state : State
    tokens : mapping, optional
        As :func:`read_tokens` gives them.
    host : str
        Address that it will listen on: beyond loopback, reading needs a token.
    names : iterable of str
        Further names under which clients reach it.
    """
    known = dict(tokens or {})
    private = not is_loopback(host)
    app = FastAPI(
        title="gangwise",
        version=__version__,
        description=(__doc__ or "").strip(),
        docs_url=None,  # these pages load from other hosts
        redoc_url=None,
    )
    hosts = ["localhost", "127.0.0.1", "[::1]", "testserver", *names]
    if private:
        hosts += [host] if host not in ("0.0.0.0", "::") else ["*"]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)

    @app.middleware("http")
    async def guarded(
        request: Request, follow: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        answer = await follow(request)
        answer.headers["Content-Security-Policy"] = (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    @app.exception_handler(StoreError)
    async def not_now(_: Request, error: StoreError) -> Response:
        return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "2"})

    bearer = HTTPBearer(auto_error=False, description="A token of role reader or operator.")
    Given = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]

    def role_of(request: Request, given: HTTPAuthorizationCredentials | None) -> Role | None:
        if given is None:
            if "authorization" in request.headers:
                unread = {"WWW-Authenticate": "Bearer"}
                raise HTTPException(401, "give Authorization: Bearer TOKEN", unread)
            return None
        digest, role = _digest(given.credentials), None
        for each, its in known.items():
            if hmac.compare_digest(each, digest):
                role = its
        if role is None:
            raise HTTPException(401, "this token is not known", {"WWW-Authenticate": "Bearer"})
        return role

    def may_read(request: Request, given: Given) -> None:
        if role_of(request, given) is None and private:
            raise HTTPException(401, "reading needs a token here", {"WWW-Authenticate": "Bearer"})

    def may_operate(request: Request, given: Given) -> Callable[[str, Any], None]:
        role = role_of(request, given)
        if role is None:
            raise HTTPException(401, "this needs a token", {"WWW-Authenticate": "Bearer"})
        if role != "operator":
            raise HTTPException(403, "this needs a token of the role operator")
        if state.ask is None:
            raise HTTPException(409, "the service runs in another process, which does not listen")
        return state.ask

    Operate = Annotated[Callable[[str, Any], None], Depends(may_operate)]
    failing: dict[int | str, dict[str, Any]] = {
        401: {"model": Problem, "description": "No token, or one that is not known."},
        503: {"model": Problem, "description": "The service's file cannot be read now."},
    }
    operating = {
        **failing,
        403: {"model": Problem, "description": "A token of role operator is needed."},
        409: {"model": Problem, "description": "The service does not listen."},
    }
    read: dict[str, Any] = {"dependencies": [Depends(may_read)], "responses": failing}

    @app.get("/api/health", tags=["read"], **read)
    def health() -> Health:
        """Whether all is well."""
        return Health.model_validate(_health(state))

    @app.get("/api/nodes", tags=["read"], **read)
    def nodes() -> list[NodeShown]:
        """Nodes, what is free on them, how fast they are believed to be."""
        return [NodeShown.model_validate(row) for row in _view(state, "nodes")]

    @app.get("/api/jobs", tags=["read"], **read)
    def jobs(
        phase: Literal["", "waiting", "held", "placed", "running", "ended"] = "",
        user: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> list[JobShown]:
        """Jobs: those that wait or are held (the first of them), run, or ended in the last day."""
        held = [{**row, "phase": "held"} for row in _view(state, "held")]
        rows = [*_view(state, "queue"), *held, *_view(state, "running")]
        if phase in ("", "ended"):
            rows += [_ended(row) for row in state.history(time.time() - 86_400, limit)]
        wanted = (
            row
            for row in rows
            if (not user or row.get("user") == user)
            and (phase in ("", row["phase"]) or (phase == "ended" and "outcome" in row))
        )
        return [JobShown.model_validate(finite(row)) for row, _ in zip(wanted, range(limit))]

    @app.get(
        "/api/job",
        tags=["read"],
        **{
            **read,
            "responses": {**failing, 404: {"model": Problem, "description": "No such job."}},
        },
    )
    def job(id: Annotated[str, Query(min_length=1, max_length=300)]) -> JobShown:
        """One job: why it waits, since when, what would free it; or where it runs or ran."""
        try:
            row = state.job(id)
        except UnknownName as error:
            raise HTTPException(404, str(error)) from error
        return JobShown.model_validate(finite(_ended(row) if "outcome" in row else row))

    @app.get("/api/decisions", tags=["read"], **read)
    def decisions(limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> list[Decision]:
        """What was decided, newest first."""
        return [Decision.model_validate(finite(row)) for row in state.decisions(limit)]

    @app.get("/api/rates", tags=["read"], **read)
    def rates() -> Rates:
        """Believed rates with their uncertainty; nodes that are slower than their label."""
        found = {**(state.view("rates") or {}), "slow": state.view("slow") or []}
        return Rates.model_validate(finite(found))

    @app.get("/api/timeline", tags=["read"], **read)
    def timeline(
        seconds: Annotated[float, Query(gt=0, le=604_800, allow_inf_nan=False)] = 3600.0,
    ) -> Timeline:
        """Gangs on nodes, of the last seconds."""
        return _timeline(state, seconds)

    @app.get("/api/account", tags=["read"], **read)
    def account() -> dict[str, Any]:
        """What deciding here would have saved, or saves; empty where nothing is known."""
        return finite(state.view("account") or {})  # type: ignore[no-any-return]  # JSON

    @app.post("/api/cancel", status_code=202, tags=["operate"], responses=operating)
    def cancel(ask: Operate, wish: Cancel) -> Accepted:
        """End a job for good."""
        ask("cancel", wish.job)
        return Accepted(asked=f"cancel {wish.job}")

    @app.post("/api/pause", status_code=202, tags=["operate"], responses=operating)
    def pause(ask: Operate, wish: Pause) -> Accepted:
        """Place nothing, or go on; what runs is left alone."""
        ask("pause", wish.paused)
        return Accepted(asked="pause" if wish.paused else "go on")

    @app.post("/api/baseline", status_code=202, tags=["operate"], responses=operating)
    def baseline(ask: Operate, wish: Share) -> Accepted:
        """Set the share of jobs that go where the baseline has them."""
        ask("every", wish.every)
        return Accepted(asked=f"baseline every {wish.every}")

    @app.get("/metrics", tags=["read"], response_class=Response, **read)
    def metrics() -> Response:
        """For Prometheus."""
        registry = CollectorRegistry()
        registry.register(_Metrics(state))
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    folder = files("gangwise.service") / "page"
    for name, kind in PAGE.items():
        content = (folder / (name or "page.html")).read_bytes()
        app.add_api_route(f"/{name}", _page(content, kind), include_in_schema=False)
    return app


# ------------------------------------------------------------------------------------ what is shown


def _page(content: bytes, kind: str) -> Callable[[], Response]:
    def page() -> Response:
        return Response(content, media_type=kind)

    return page


def _view(state: State, name: str) -> Any:
    return finite(state.view(name) or [])


def _health(state: State) -> dict[str, Any]:
    found = state.view("health")
    age = state.age()
    if found is None:
        return {"well": False, "age": None, "notes": ["the service has not said anything yet"]}
    well = bool(found["well"]) and age < STALE
    return {**finite(found), "well": well, "age": age if math.isfinite(age) else None}


def _ended(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the history as a job."""
    where = [[p[0], p[1]] for p in row["body"].get("placed", ())]
    kept = {k: v for k, v in row.items() if k not in ("body", "seq")}
    return {**kept, "phase": row["outcome"], "since": row["ended"], "nodes": where}


def _timeline(state: State, seconds: float) -> Timeline:
    now = time.time()
    pieces = []
    for row in _view(state, "running"):
        if row["phase"] == "running":
            for node, tasks in row["nodes"]:
                pieces.append(_piece(row, node, tasks, row["since"], None, "running"))
    for row in state.history(now - seconds, 10_000):
        if row["started"] is not None:
            for node, tasks, *_ in row["body"].get("placed", ()):
                piece = _piece(row, node, tasks, row["started"], row["ended"], row["outcome"])
                pieces.append(piece)
    return Timeline(now=now, since=now - seconds, pieces=[p for p in pieces if p is not None])


def _piece(
    row: dict[str, Any], node: str, tasks: int, began: float, ended: float | None, outcome: str
) -> Piece | None:
    if began is None or not math.isfinite(began):
        return None
    return Piece(
        job=row["job"],
        job_type=row["job_type"],
        user=row["user"],
        node=node,
        tasks=tasks,
        began=began,
        ended=ended,
        by=row["by"],
        outcome=outcome,
    )


class _Metrics:
    """Metrics, made anew from the views at each look."""

    def __init__(self, state: State):
        self._state = state

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        health = _health(self._state)
        well = GaugeMetricFamily("gangwise_well", "1 if the service and its cluster are well")
        well.add_metric([], float(health["well"]))
        yield well
        age = GaugeMetricFamily("gangwise_age_seconds", "Since the service last said anything")
        age.add_metric([], math.inf if health["age"] is None else health["age"])
        yield age
        jobs = GaugeMetricFamily("gangwise_jobs", "Jobs by phase", labels=["phase"])
        for phase in ("waiting", "placed", "running"):
            jobs.add_metric([phase], health.get(phase, 0))
        yield jobs
        last = GaugeMetricFamily("gangwise_round_seconds", "The last round of decisions")
        last.add_metric([], health.get("round_ms", 0.0) / 1000)
        yield last
        counts = CounterMetricFamily(
            "gangwise_events", "Since the service was started", labels=["kind"]
        )
        for kind, count in (health.get("counts") or {}).items():
            counts.add_metric([kind], count)
        yield counts
        trouble = GaugeMetricFamily("gangwise_trouble", "1 for what is not well", labels=["what"])
        for what in health.get("troubles") or {}:
            trouble.add_metric([what], 1.0)
        yield trouble
        nodes = _view(self._state, "nodes")
        up = GaugeMetricFamily("gangwise_node_up", "1 if it takes tasks", labels=["node"])
        free = GaugeMetricFamily("gangwise_node_free", "Free devices", labels=["node", "device"])
        factor = GaugeMetricFamily(
            "gangwise_node_speed_ratio",
            "Speed ÷ that of its label: estimate, and bounds of its 95 % interval",
            labels=["node", "bound"],
        )
        for node in nodes:
            up.add_metric([node["name"]], float(node["up"]))
            for device, amount in node["free"].items():
                free.add_metric([node["name"], device], amount)
            for name, bound in (("factor", "estimate"), ("low", "low"), ("high", "high")):
                if node.get(name) is not None:
                    factor.add_metric([node["name"], bound], node[name])
        yield up
        yield free
        yield factor


class Listening:
    """A server of the application in a thread of its own, until it is closed.

    Raises
    ------
    ScenarioError
        When it cannot listen there.
    """

    def __init__(self, app: FastAPI, host: str, port: int):
        config = uvicorn.Config(app, host=host, port=port, log_level="warning", ws="none")
        self._server = uvicorn.Server(config)
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)  # whoever comes at once waits
        except OSError as error:
            self._socket.close()
            raise ScenarioError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(5.0)
        self._socket.close()

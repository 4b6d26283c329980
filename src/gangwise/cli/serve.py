"""``gangwise serve``, ``top`` and ``account``: the live service and what it says; ``rank``."""

from __future__ import annotations

import json
import math
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gangwise.cli import options
from gangwise.core.errors import EngineError, ScenarioError
from gangwise.core.terminal import one_line

if TYPE_CHECKING:
    from gangwise.engines.engine import Engine
    from gangwise.engines.local import Demo
    from gangwise.service.listening import Listening
    from gangwise.service.loop import Service

HERE = Path("gangwise-state")
ALIVE = 5.0  # seconds within which a service that works has touched its heartbeat


def rates_of(texts: list[str] | None) -> dict[str, float]:
    """Declared rates out of ``label=value:rate`` texts; the value may have a colon itself."""
    how = "LABEL=VALUE:RATE, such as model=a100:2.5"
    rates = options.numbers_of(texts, "--rate", how, ":")
    for label, rate in rates.items():
        if "=" not in label or not rate > 0:
            raise ScenarioError(f"--rate {label}:{rate:g}: write {how}")
    return rates


def _demonstration(state: Path, service: type[Service] | None) -> Demo:
    """A simulated cluster with users, in a folder of the service's state."""
    from gangwise.core.files import Tree
    from gangwise.engines.local import Demo
    from gangwise.service.store import own_folder

    own_folder(state)
    Tree(state).check_folder("cluster")
    options.say(f"a simulated cluster of 6 nodes with users, in {state / 'cluster'}")
    return Demo(state / "cluster", service)


def _require_answer(cluster: Engine) -> None:
    """End a first start whose cluster does not answer, before it makes a folder."""
    try:
        cluster.nodes()
    except EngineError as error:
        text = "; ".join(str(error).splitlines())
        raise EngineError(f"the cluster does not answer, and nothing was begun: {text}") from error


def serve_command(
    engine: str = "local",
    act: bool = False,
    scheduler: str = "priority+easy+learned:depth=100",
    baseline: str = "fcfs+easy+best-fit",
    baseline_every: int = 0,
    rate: list[str] | None = None,
    state: Path = HERE,
    seconds: float = 0.0,
    http: str = "",
    tokens: Path | None = None,
    account_every: float = 600.0,
    forecast_every: float = 60.0,
    keep_days: float = 30.0,
    clock_is_right: bool = False,
    settings: list[str] | None = None,
) -> None:
    """Run beside a cluster: watch what it does, or place its jobs.

    Without settings, the local engine simulates a small cluster with users.
    """
    from gangwise.core.registry import create
    from gangwise.service.listening import listening_socket, require_packages
    from gangwise.service.loop import Service
    from gangwise.service.store import FILE

    if not keep_days >= 1:
        raise ScenarioError(f"--keep-days {keep_days:g}: give 1 or more")
    if {"--act", "--shadow"} <= {*sys.argv}:
        raise ScenarioError("--act places jobs and --shadow only watches: give one of them")
    options.require_folder(state)
    if any(state.glob("*.plan.json")):
        raise ScenarioError(f"{state} holds results; give --state a folder of its own")
    values: dict[str, Any] = options.settings_of(settings)
    rates = rates_of(rate)
    if http:
        require_packages()
        listening_socket(*_address(http)).close()
    # Whatever was begun ends in the opposite order, also where the next thing is refused.
    with ExitStack() as begun:
        if engine == "local" and "folder" not in values:
            values["folder"] = str(state / "cluster")
            demo = _demonstration(state, None if act else Service)
            begun.callback(demo.stop)
            rates = rates or rates_of(list(demo.rates))
        if engine != "local" and not act:
            # Whatever goes wrong, an engine that only watches changes nothing.
            values.setdefault("watch", True)
        cluster = create("engine", engine, **values)
        begun.callback(cluster.close)
        if not (state / FILE).exists():  # a service that has run outlives its cluster's silence
            _require_answer(cluster)
        given: dict[str, Any] = {"act": act, "baseline": baseline, "rates": rates}
        given |= {"every": baseline_every, "account": account_every, "forecast": forecast_every}
        given |= {"keep": keep_days * 86_400.0, "clock_is_right": clock_is_right}
        service = Service(cluster, state, scheduler, **given)
        begun.callback(service.close)
        for note in service.notes:
            options.say(note)
        options.say(f"{'acting' if act else 'watching'}; look with: gangwise top --state {state}")
        # Last, as it reads the folder that the service has made.
        listening = listen(http, tokens, state) if http else None
        if listening is not None:
            begun.callback(listening.close)
        _serve(service, listening, seconds)


def _serve(service: Service, listening: Listening | None, seconds: float) -> None:
    """Serve until a signal comes, or so many seconds have passed."""
    from gangwise.core.terminal import requests_to_stop

    def over() -> bool:
        if stop.is_set() or time.monotonic() > end:
            return True
        if listening is not None and listening.revive():
            options.say("the process of the API ended and was started again")
        return False

    end = time.monotonic() + seconds if seconds else math.inf
    with requests_to_stop() as stop:
        service.serve(over)


def detach_command(
    engine: str = "slurm",
    if_silent: float = 0.0,
    state: Path = HERE,
    settings: list[str] | None = None,
) -> None:
    """Give all pending jobs back to the cluster's own scheduler, as their users submitted them.

    This needs only the cluster, not the service or its folder. Run it from cron with
    --if-silent 600, and it releases held jobs if the service is gone.
    """
    from gangwise.core.registry import create
    from gangwise.engines.background import age
    from gangwise.service.loop import HEARTBEAT

    try:
        # By the machine's own seconds, as a clock may be set.
        silent = age(json.loads((state / HEARTBEAT).read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        silent = math.inf  # there is no such service
    if silent < (if_silent or ALIVE):
        if if_silent:
            return
        raise ScenarioError(
            f"a service is running in {state}: stop it first, or it will take the next jobs"
        )
    # An engine that acts would take the very lease that is to be freed.
    only_watch = {"watch": True} if engine == "kubernetes" else {}
    cluster = create("engine", engine, **options.settings_of(settings) | only_watch)
    if not hasattr(cluster, "detach"):
        raise ScenarioError(f"--engine {engine}: its jobs cannot be given back")
    outcomes = cluster.detach()
    for job, outcome in outcomes.items():
        options.say(one_line(f"{job}: {outcome}"))
    options.say(f"{len(outcomes)} jobs given back")


def doctor_command(
    engine: str = "slurm", settings: list[str] | None = None, as_json: bool = False
) -> None:
    """Say which parts of this cluster's configuration and queue would be left alone, and why.

    It looks at the cluster once and changes nothing.
    """
    from contextlib import closing

    from gangwise.core.registry import create

    values = options.settings_of(settings)
    if engine != "local":
        values.setdefault("watch", True)
    with closing(create("engine", engine, **values)) as cluster:
        nodes, jobs = cluster.nodes(), cluster.jobs()
        remarks, alone = cluster.survey() if hasattr(cluster, "survey") else ([], {})
        alone |= getattr(cluster, "held", dict)()
        rows = cluster.quarantine.rows()
        alone |= {row["name"]: row["why"] for row in rows if row["kind"] in ("job", "pod")}
    remarks += [f"node {node.name} is not up: {node.reason}" for node in nodes if not node.up]
    remarks += [f"{r['kind']} {r['name']}: {r['why']}" for r in rows if r["kind"] == "node"]
    waiting = {row.job.id for row in jobs if row.phase == "pending"} | set(alone)
    if as_json:
        about = {"nodes": len(nodes), "waiting": len(waiting), "left_alone": alone}
        options.echo(options.json_text({**about, "remarks": remarks}))
        return
    options.echo(
        f"{len(nodes)} nodes; {len(waiting)} jobs wait, {len(alone)} of them would be left alone"
    )
    remarks, alone = one_line(remarks), one_line(alone)
    for remark in remarks:
        options.echo(f"  {remark}")
    for reason in dict.fromkeys(alone.values()):
        names = [job for job, text in alone.items() if text == reason]
        rest_text = f" and {len(names) - 5} more" if len(names) > 5 else ""
        options.echo(f"  {reason}: {', '.join(names[:5])}{rest_text}")


def _address(http: str) -> tuple[str, int]:
    host, _, port = http.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise ScenarioError(f"--http {http}: give a port up to 65535, or HOST:PORT")
    # An address of IPv6 stands in brackets, which a socket does not take.
    return host.strip("[]") or "127.0.0.1", int(port)


def listen(http: str, tokens: Path | None, state: Path) -> Listening:
    """Serve the page and the API of the service of this folder, from a process of their own."""
    from gangwise.service.listening import Listening

    host, port = _address(http)
    listening = Listening(state, host, port, tokens)
    options.say(f"http://{f'[{host}]' if ':' in host else host}:{listening.port}")
    return listening


def top_command(state: Path = HERE, as_json: bool = False) -> None:
    """Show the cluster now: nodes slower than their label, who runs, who waits and why."""
    from gangwise.service.state import VIEWS, ServiceState, in_terminal

    shown = ServiceState(state)
    views = {name: view for name in VIEWS if (view := shown.view(name)) is not None}
    if as_json:
        options.echo(options.json_text(views))
        return
    console = options.screen()
    for part in in_terminal(one_line(views)):
        console.print(part)


def account_command(since: str = "", state: Path = HERE, as_json: bool = False) -> None:
    """Compute what would have been saved: replay the arrivals since Monday in simulation."""
    import datetime

    from gangwise.service.account import account

    try:
        # Without a zone it is local time.
        begin = datetime.datetime.fromisoformat(since).timestamp() if since else None
    except ValueError:
        raise ScenarioError(f"--since {since}: write a date and time, 2026-11-16T08:00") from None
    result = account(state, begin)
    options.echo(options.json_text(result) if as_json else result["told"])


def rank_command(context: typer.Context) -> None:
    """Run one rank of a gang and report its work per second; options: gangwise rank -- --help."""
    from gangwise.engines.rank import main

    sys.exit(main(context.args))

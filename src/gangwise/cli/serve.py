"""``gangwise serve``, ``top`` and ``account``: the live service and what it says; ``rank``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gangwise.cli.options import Json, Settings, say, settings_of
from gangwise.core.errors import ScenarioError
from gangwise.core.json_text import json_text

State = Annotated[
    Path, typer.Option("--state", help="Folder where the service keeps what it knows.")
]
HERE = Path("gangwise-state")


def rates_of(texts: list[str] | None) -> dict[str, float]:
    """Declared rates out of ``label=value:rate`` texts.

    >>> rates_of(["model=a100:2.5"])
    {'model=a100': 2.5}
    """
    rates: dict[str, float] = {}
    for text in texts or ():
        label, _, value = text.rpartition(":")
        try:
            rates[label] = float(value)
        except ValueError:
            rates[label] = 0.0
        if "=" not in label or not rates[label] > 0:
            raise ScenarioError(f"--rate {text}: write LABEL=VALUE:RATE, such as model=a100:2.5")
    return rates


def serve_command(
    engine: Annotated[
        str, typer.Option(help="local, slurm or kubernetes (see: gangwise list).")
    ] = "local",
    act: Annotated[
        bool,
        typer.Option("--act/--shadow", help="Place jobs, or only watch and say what was lost."),
    ] = False,
    scheduler: Annotated[
        str, typer.Option(help="Who decides: queue+backfilling+choice, or a scheduler's name.")
    ] = "fcfs+easy+learned:depth=100",
    baseline: Annotated[str, typer.Option(help="What is compared with.")] = "fcfs+easy+best-fit",
    baseline_every: Annotated[
        int, typer.Option(help="Every so many jobs, one goes where the baseline has it; 0: none.")
    ] = 0,
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE:RATE", help="Declared speed of nodes; 1 without."),
    ] = None,
    state: State = HERE,
    seconds: Annotated[
        float, typer.Option(help="Stop after so many seconds; 0: when told to.")
    ] = 0.0,
    http: Annotated[
        str,
        typer.Option(metavar="[HOST:]PORT", help="Serve a page and an API there; loopback first."),
    ] = "",
    tokens: Annotated[
        Path | None,
        typer.Option(help="File of tokens: lines 'reader TOKEN' and 'operator TOKEN', mode 600."),
    ] = None,
    account_every: Annotated[
        float, typer.Option(help="Seconds between accounts of what would have been saved; 0: none.")
    ] = 600.0,
    settings: Settings = None,
) -> None:
    """Stand beside a cluster: watch what it does, or place its jobs.

    Without settings the local engine pretends a small cluster with users, to look at.
    """
    import time

    from gangwise.core.interrupt import requests_to_stop
    from gangwise.core.registry import create
    from gangwise.service.loop import Service

    if baseline_every < 0:
        raise ScenarioError(f"--baseline-every {baseline_every}: give 0 or more")
    given: dict[str, Any] = settings_of(settings)
    rates = rates_of(rate)
    demo = None
    if engine == "local" and "folder" not in given:
        from gangwise.service.demo import Demo

        given["folder"] = str(state / "cluster")
        demo = Demo(state / "cluster", served=not act)
        rates = rates or rates_of(list(Demo.rates))
        say(f"a pretended cluster of 6 nodes with users, in {state / 'cluster'}")
    if engine != "local" and not act:
        given.setdefault("watch", True)
    service = Service(
        create("engine", engine, **given),
        state,
        scheduler,
        act=act,
        baseline=baseline,
        every=baseline_every,
        rates=rates,
        account=account_every,
    )
    for note in service.notes:
        say(note)
    say(f"{'acting' if act else 'watching'}; look with: gangwise top --state {state}")
    listening = listen(http, tokens, state, service) if http else None
    end = time.monotonic() + seconds if seconds else float("inf")
    with requests_to_stop() as stop:
        try:
            service.serve(lambda: stop.is_set() or time.monotonic() > end)
        finally:
            if listening is not None:
                listening.close()
            service.close()
            if demo is not None:
                demo.stop()


def listen(http: str, tokens: Path | None, state: Path, service: Any) -> Any:
    """Serve the page and the API of a service in this process."""
    host, _, port = http.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65_535:
        raise ScenarioError(f"--http {http}: give a port, or HOST:PORT")
    try:
        from gangwise.service.api import Listening, create_app, is_loopback, read_tokens
        from gangwise.service.state import StoredState
    except ModuleNotFoundError as error:
        raise ScenarioError(f"--http needs {error.name}: pip install 'gangwise[live]'") from error
    known = read_tokens(tokens) if tokens is not None else {}
    if not is_loopback(host) and not known:
        raise ScenarioError(f"--http {http}: beyond this host, give --tokens as well")
    shown = create_app(StoredState(state, service.ask), known, host=host)
    listening = Listening(shown, host, int(port))
    say(f"http://{f'[{host}]' if ':' in host else host}:{listening.port}")
    return listening


def top_command(state: State = HERE, as_json: Json = False) -> None:
    """The cluster now: nodes slower than their label, who runs, who waits and why."""
    from rich.console import Console

    from gangwise.service.store import Store
    from gangwise.service.views import VIEWS, told

    store = Store(state / "service.sqlite", read_only=True)
    found = {name: view[1] for name in VIEWS if (view := store.view(name)) is not None}
    if as_json:
        print(json_text(found))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for part in told(found):
        console.print(part)


def account_command(
    since: Annotated[
        str, typer.Option(help="Jobs submitted from then on, such as 2026-11-16T08:00; Monday.")
    ] = "",
    state: State = HERE,
    as_json: Json = False,
) -> None:
    """What would have been saved: the real arrivals since Monday, played through the simulation."""
    import datetime

    from gangwise.service.account import account

    try:
        begin = datetime.datetime.fromisoformat(since).timestamp() if since else None
    except ValueError:
        raise ScenarioError(f"--since {since}: write a date and time, 2026-11-16T08:00") from None
    found = account(state, begin)
    print(json_text(found) if as_json else found["told"])


def rank_command(context: typer.Context) -> None:
    """Run one rank of a gang and report how much work it does per second (see: --help after --)."""
    from gangwise.engines.rank import main

    sys.exit(main(context.args))

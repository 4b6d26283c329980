"""``gangwise explain``: why a job waits, now; why a finished run decided as it did."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangwise.cli.options import Json
from gangwise.cli.serve import HERE, State
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.json_text import json_text

if TYPE_CHECKING:
    from gangwise.experiments.explain import Told


def explain_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB_OR_RESULTS",
            help="Id of a job of the live service; or, with --slot or --job, a folder of results.",
            show_default=False,
        ),
    ],
    slot: Annotated[
        int | None,
        typer.Option(help="Of a folder of compare or run: the slot, from 0.", show_default=False),
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Of a folder of replay: the id of a job.", show_default=False)
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "--scheduler",
            help="As it is called in the results; the best policy, or the first scheduler, by "
            "default.",
            show_default=False,
        ),
    ] = "",
    seed: Annotated[
        int | None, typer.Option(help="The first one by default.", show_default=False)
    ] = None,
    state: State = HERE,
    as_json: Json = False,
) -> None:
    """Why a job waits now; or, of a finished run, what was decided in a slot or for a job, and why.

    gangwise explain 42 asks the live service: what holds job 42 back, since when, what would free
    it, and when it is expected to start. With --slot or --job the run is played again from its seed
    up to there: who came, who got what and where, and what it was worth beside the runner-up.
    """
    if slot is None and job is None:
        if Path(what).is_dir():
            raise ScenarioError(
                f"{what} is a folder: say --slot T of a comparison, or --job ID of a replay"
            )
        _explain_live(what, state, as_json)
        return
    if slot is not None and job is not None:
        raise ScenarioError("--slot is of a comparison, --job of a replay: give one of the two")
    from gangwise.experiments.explain import explain_job, explain_slot

    if slot is not None:
        told = explain_slot(what, slot, policy, seed)
    else:
        told = explain_job(what, str(job), policy, seed)
    if as_json:
        print(json_text(told.as_dict()))
    else:
        _print(told)


def _explain_live(job: str, state: Path, as_json: bool) -> None:
    from gangwise.service.store import Store
    from gangwise.service.views import explained

    store = Store(state / "service.sqlite", read_only=True)
    rows = [
        row
        for name in ("queue", "running", "held")
        for row in (store.view(name) or (0.0, []))[1]
        if row["job"] == job
    ]
    if not rows:
        rows = store.rows("SELECT * FROM history WHERE job = ?", job)
    if not rows:
        names = [r["job"] for r in (store.view("queue") or (0.0, []))[1]]
        raise UnknownName("job", job, names[:50])
    print(json_text(rows[0]) if as_json else explained(rows[0]))


def _print(told: Told) -> None:
    from rich.table import Table
    from rich.text import Text

    from gangwise.cli.options import screen

    console = screen()
    about = told.about
    who = about.get("policy") or about.get("scheduler")
    where = f"slot {about['slot']}" if "slot" in about else f"job {about['job']}"
    line = f"{about['scenario']}, {who}, seed {about['seed']}, {where}"
    console.print(Text(line, style="bold"))
    if "reward" in about:
        numbers = ", ".join(f"{k} {v:.5g}" for k, v in about["metrics"].items())
        console.print(f"reward {about['reward']:.6g} ({numbers}), as it is stored", markup=False)
    if told.rows:
        table = Table(box=None, pad_edge=False)
        names = list(dict.fromkeys(name for row in told.rows for name in row))
        for name in names:
            number = all(isinstance(row.get(name), int | float | None) for row in told.rows)
            table.add_column(Text(name.replace("_", " ")), justify="right" if number else "left")
        for row in told.rows:
            table.add_row(*(Text(_cell(row.get(name))) for name in names))
        console.print()
        console.print(table)
        console.print()
    for sentence in told.sentences:
        console.print(sentence, markup=False)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isinf(value)):
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)

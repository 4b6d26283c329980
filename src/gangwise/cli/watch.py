"""``gangwise watch``: a run of another terminal as it goes on."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangwise.cli.options import Json, say, screen
from gangwise.core.json_text import json_text

if TYPE_CHECKING:
    from gangwise.experiments.watch import Seen

SHOWN = 40
"""Rows of the table that are shown."""


def watch_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="What was given as --out to compare, run, sweep, replay or tune."
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Of the experiment; the one begun last by default.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Watch a run from another terminal: progress, the table so far with intervals, time left.

    It ends when the run does. With --json it looks once.
    """
    from rich.live import Live

    from gangwise.experiments.watch import Watch

    watch = Watch(folder, name)
    seen = watch.look()
    if as_json:
        print(json_text(seen.as_dict()))
        return
    console, going_on = screen(), seen.going_on
    if once or not going_on:
        console.print(_shown(folder, seen))
        return
    try:
        with Live(_shown(folder, seen), console=console, auto_refresh=False) as live:
            while going_on:
                time.sleep(every)
                seen = watch.look()
                going_on = seen.going_on
                live.update(_shown(folder, seen), refresh=True)
        if not console.is_terminal:
            console.print()  # which ends the line that Live leaves open
    except KeyboardInterrupt:
        say("gangwise: the run goes on; it is only watched no more")


def _shown(folder: Path, seen: Seen) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from gangwise.experiments.statistics import NOTHING, Estimate, decimals_for, estimate_text

    if not seen.experiment:
        return Text(f"{folder}: it has not begun yet")
    state = "is finished" if seen.done == seen.of else "was stopped; the same command goes on"
    if seen.writer is not None:
        state = f"goes on since {seen.writer.get('since', '?')}: {seen.writer.get('command', '')}"
    left = ""
    if seen.seconds_left is not None and seen.writer is not None:
        left = f", {timedelta(seconds=round(seen.seconds_left))} left"
    parts: list[Any] = [
        Text(f"{folder}: {seen.experiment} {state}"),
        Text(f"{seen.done} of {seen.of} {seen.unit}{left}"),
        ProgressBar(total=max(seen.of, 1), completed=seen.done, width=60),
    ]
    if seen.table:
        name, rows = seen.objective, seen.table[:SHOWN]
        cells = list(rows[0])[: list(rows[0]).index("policy")]
        found = [Estimate(row[name], row[f"{name}.low"], row[f"{name}.high"]) for row in rows]
        unit = "% over" if seen.percent else "more than"
        who = "policy" if seen.unit == "runs" else "trial"
        table = Table(box=None, pad_edge=False)
        for column in [*cells, who]:
            table.add_column(Text(column))
        for column in ("seeds", name, f"{unit} {seen.over}"):
            table.add_column(Text(column), justify="right")
        for row, value in zip(rows, found):
            ahead = NOTHING
            if row["ahead"] is not None:
                lead = Estimate(row["ahead"], row["ahead.low"], row["ahead.high"])
                ahead = estimate_text(lead, max(1, decimals_for([lead])), sign=True)
            table.add_row(
                *(Text(NOTHING if row[key] is None else str(row[key])) for key in cells),
                Text(row["policy"]),
                str(row["seeds"]),
                estimate_text(value, decimals_for(found)),
                ahead,
            )
        parts += [Text(""), table]
        if len(seen.table) > SHOWN:
            parts.append(Text(f"and {len(seen.table) - SHOWN} rows more: gangwise report {folder}"))
    return Group(*parts)

"""``gangwise replay``: which scheduler would have served the jobs of a log best."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gangwise.cli import completion
from gangwise.cli.options import (
    Isolated,
    Json,
    Settings,
    command_line,
    progress,
    say,
    screen,
    seed_list,
    settings_of,
)
from gangwise.core.json_text import json_text

DEFAULT = {
    "world": "unlike",
    "nodes": 8,
    "load": 0.9,
    "limits": "work",
    "longest": 100_000.0,
    "first": 1000,
}
"""Settings of the replay that needs no log: done within a minute of installing."""


def replay_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="The folder or file of a trace, an .swf, twin:NAME, the folder of an earlier "
            "replay or of a live service; by default a twin of a GPU cluster's jobs on 8 nodes of "
            "three generations, so that nothing need be downloaded.",
            show_default=False,
            autocompletion=completion.trace_or_file,
        ),
    ] = "",
    policies: Annotated[
        str | None,
        typer.Option(
            help="Schedulers separated by blanks or commas: queue+backfilling+choice, such as "
            "sjf+easy+best-fit, or a name of one (see: gangwise list).",
            autocompletion=completion.schedulers,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="How many, or a list; 5 where rates are drawn, else nothing is drawn."),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            help="Hidden rates: unlike, like or drifting nodes, measured:FILE, recorded:FOLDER, "
            "with arguments as in like:stragglers=0.1. Without: as logged."
        ),
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Stretch arrivals to this load; as logged without.")
    ] = None,
    bound: Annotated[
        bool, typer.Option("--bound/--no-bound", help="Certify how much is left to gain.")
    ] = True,
    sensitive: Annotated[
        bool | None,
        typer.Option(
            "--sensitivity/--no-sensitivity",
            help="Play the best again under other assumptions. With --out and a log by default.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and report.html; goes on where it was.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Workers; all cores by default.")] = -1,
    isolated: Isolated = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Replay a log's jobs under schedulers: waiting, completion time, and what is left to gain."""
    from gangwise.experiments.replay import replay, replay_source
    from gangwise.experiments.replay_scenario import TWIN
    from gangwise.experiments.sensitivity import sensitivity
    from gangwise.report.jobs import job_report, results_of
    from gangwise.report.pages import write_replay
    from gangwise.service.recording import is_recording, lines, replayed

    given = settings_of(settings)
    if source and is_recording(source):
        found = replayed(source, [n for n in (policies or "").replace(",", " ").split() if n])
        print(json_text(found) if as_json else "\n".join(lines(found)))
        return
    if sensitive is None:
        sensitive = bool(source) and out is not None
    if not source:
        source, given = TWIN, {**DEFAULT, **given}
    named = {"world": world, "load": load}
    given |= {key: value for key, value in named.items() if value is not None}
    scenario = replay_source(source, given)
    names = [name for name in (policies or "").replace(",", " ").split() if name]
    with progress("start again with the same --out to go on") as tell:
        chosen = seed_list(seeds) if seeds else ()
        played = replay(scenario, names, chosen, out, jobs, tell, isolated)
        bounds = played.bounds(progress=tell) if bound else []
        again = sensitivity(played, jobs, tell) if sensitive else None
    values = [found.mean_completion for found in bounds]
    if as_json:
        print(json_text({**played.as_dict(), "lower_bounds": values}))
    else:
        screen().print(job_report(results_of(played, values, command_line(), again)).terminal())
    if out is not None:
        written = write_replay(played, out, bounds, command_line(), again)
        say(f"wrote {', '.join(path.name for path in written)} to {out}")


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the runs and report.html.")] = Path(
        "gangwise-demo"
    ),
) -> None:
    """See what it is: a thousand jobs of a GPU cluster under five schedulers, in half a minute."""
    replay_command(out=out)
    say(f"open {out / 'report.html'} in a browser; next, a log of your own: gangwise replay FILE")

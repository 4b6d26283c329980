"""``gangwise replay``: which scheduler would have served the jobs of a log best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gangwise.cli.options import command_line, progress, say, screen, seed_list, settings_of
from gangwise.core.errors import ScenarioError
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
    source: str = "",
    policies: str | None = None,
    rules: str = "",
    seeds: str | None = None,
    world: str | None = None,
    load: float | None = None,
    site: str | None = None,
    bound: bool | None = None,
    sensitive: bool | None = None,
    until_full: bool = False,
    out: Path | None = None,
    jobs: int = -1,
    isolated: bool = False,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Replay a log's jobs under schedulers: waiting, completion time, and what is left to gain."""
    from gangwise.experiments.replay import STEPS, replay, replay_source, sensitivity
    from gangwise.experiments.replay_scenario import TWIN
    from gangwise.jobs.site import SLURM
    from gangwise.report.jobs import job_report, results_of

    given = settings_of(settings)
    if until_full:
        other = {
            "--world": world,
            "--load": load,
            "--sensitivity": sensitive,
            "--as": rules or None,
        }
        if refused := [name for name, value in other.items() if value is not None]:
            raise ScenarioError(f"{refused[0]} is of a replay in time, which --until-full is not")
        _fill(source or TWIN, policies, seeds, given, out, as_json)
        return
    if source and Path(source).is_dir():
        from gangwise.service.recording import is_recording, lines, replayed

        if is_recording(source):
            found = replayed(source, [n for n in (policies or "").replace(",", " ").split() if n])
            print(json_text(found) if as_json else "\n".join(lines(found)))
            return
    if sensitive is None:
        sensitive = bool(source) and out is not None
    if not source:
        source, given = TWIN, {**DEFAULT, **given}
    if rules.startswith(SLURM) and site is None:
        site = rules
    named = {"world": world, "load": load, "site": site}
    given |= {key: value for key, value in named.items() if value is not None}
    scenario = replay_source(source, given)
    names = [name for name in (policies or "").replace(",", " ").split() if name]
    with progress("start again with the same --out to go on") as tell:
        chosen = seed_list(seeds) if seeds else ()
        played = replay(scenario, names, chosen, out, jobs, tell, isolated, rules)
        bounds = [] if bound is False else played.bounds(STEPS if bound else None, tell)
        again = sensitivity(played, jobs, tell) if sensitive else None
    values = [found.mean_completion for found in bounds]
    priced = all(found.searched for found in bounds)
    if as_json:
        print(json_text(played.as_dict(values, priced)))
    else:
        results = results_of(played, values, command_line(), again, priced)
        screen().print(job_report(results).terminal())
    if out is not None:
        from gangwise.report.pages import write_replay

        with progress("start again with the same --out to go on") as tell:
            tell("page", 0, 1)
            written = write_replay(played, out, bounds, command_line(), again)
        say(f"wrote {', '.join(path.name for path in written)} to {out}")


def _fill(
    source: str,
    policies: str | None,
    seeds: str | None,
    given: dict[str, Any],
    out: Path | None,
    as_json: bool,
) -> None:
    from gangwise.core.files import Folder
    from gangwise.experiments.filling import fill_trace
    from gangwise.report.filling import filling_figure, filling_sheet
    from gangwise.report.tables import rich_tables

    names = (policies or "").replace(",", " ").split()
    with progress("nothing is kept") as tell:
        found = fill_trace(source, names, seed_list(seeds) if seeds else (), given, tell)
    if as_json:
        print(json_text(found.as_dict()))
    else:
        screen().print(found.line, rich_tables([filling_sheet(found)]), sep="\n")
    if out is not None:
        with Folder(out).publish("filling") as new:
            new.write("filling.json", json_text(found.as_dict()) + "\n")
            new.write("filling.svg", filling_figure(found))
        say(f"wrote filling.json and filling.svg to {out}")


def demo_command(out: Path = Path("gangwise-demo")) -> None:
    """Replay a thousand jobs of a GPU cluster under five schedulers, in half a minute."""
    replay_command(out=out)
    say(f"open {out / 'report.html'} in a browser; next, a log of your own: gangwise replay FILE")

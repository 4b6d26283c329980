"""``gangwise replay``: which scheduler would have served the jobs of a log best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangwise.cli.options import command_line, progress, say, screen, seed_list, settings_of
from gangwise.core.errors import ScenarioError
from gangwise.core.json_text import json_text

TWIN_SETTINGS = {
    "world": "unlike",
    "nodes": 8,
    "load": 0.9,
    "limits": "work",
    "longest": 100_000.0,
    "first": 1000,
}
"""Of the twin that is played where settings are given and no log."""

DEMO_SCHEDULERS = (
    "fcfs+easy+label",
    "fcfs+easy+label:ends=learned",
    "fcfs+easy+learned",
    "sjf+easy+label",
    "sjf+easy+learned",
    "fcfs+easy+oracle:ends=learned",
)
"""What learned run times, learned speeds and another order are worth, and all together."""
DEMO_SEEDS, DEMO_STEPS = 10, 50


def replay_command(
    source: str = "",
    policies: str | None = None,
    rules: str = "",
    seeds: str | None = None,
    world: str | None = None,
    load: float | None = None,
    site: str | None = None,
    bound: bool | None = None,
    until_full: bool = False,
    out: Path | None = None,
    jobs: int = -1,
    isolated: bool = False,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Replay a log's jobs under schedulers: waiting, completion time, and what is left to gain."""
    from gangwise.experiments.replay import STEPS, replay, replay_source
    from gangwise.experiments.replay_scenario import TWIN
    from gangwise.jobs.site import PRINTED
    from gangwise.report.jobs import job_report, results_of
    from gangwise.scenarios.jobs import DEMO

    given = settings_of(settings)
    if until_full:
        other = {"--world": world, "--load": load, "--as": rules or None}
        if refused := [name for name, value in other.items() if value is not None]:
            raise ScenarioError(f"{refused[0]} does not go with --until-full: no time passes there")
        _fill(source or TWIN, policies, seeds, given, out, as_json)
        return
    if source and Path(source).is_dir():
        from gangwise.service.recording import is_recording, lines, replayed

        if is_recording(source):
            found = replayed(source, [n for n in (policies or "").replace(",", " ").split() if n])
            print(json_text(found) if as_json else "\n".join(lines(found)))
            return
    if rules.startswith(PRINTED) and site is None:
        site = rules
    named = {"world": world, "load": load, "site": site}
    given |= {key: value for key, value in named.items() if value is not None}
    names = [name for name in (policies or "").replace(",", " ").split() if name]
    chosen: Sequence[int] = seed_list(seeds) if seeds else ()
    steps = STEPS if bound else None
    if not source and given:
        source, given = TWIN, {**TWIN_SETTINGS, **given}
    elif not source:
        source, steps = DEMO, steps or DEMO_STEPS
        names, chosen = names or list(DEMO_SCHEDULERS), chosen or range(DEMO_SEEDS)
    scenario = replay_source(source, given)
    with progress("start again with the same --out to go on") as tell:
        played = replay(scenario, names, chosen, out, jobs, tell, isolated, rules)
        bounds = [] if bound is False else played.bounds(steps, tell)
    values = [found.mean_completion for found in bounds]
    priced = all(found.searched for found in bounds)
    if as_json:
        print(json_text(played.as_dict(values, priced)))
    else:
        results = results_of(played, values, command_line(), priced)
        screen().print(job_report(results).terminal())
    if out is not None:
        from gangwise.report.pages import write_replay

        with progress("start again with the same --out to go on") as tell:
            tell("page", 0, 1)
            written = write_replay(played, out, bounds, command_line())
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
    """Play gangs of 1 to 16 nodes under six schedulers: seconds; the first time a minute or two."""
    replay_command(out=out)
    say(f"open {out / 'report.html'} in a browser; next, a log of your own: gangwise replay FILE")
